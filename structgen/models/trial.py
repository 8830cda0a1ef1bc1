"""Test a folder's tokenizer and chat template once, in a process that may crash.

The runtime and ``tokenizers`` read them in native code, without limits on time, memory or depth: a
recursive template ends the process, and a loop holds the interpreter lock forever. So they first
run in another process, with typical chats. A success is cached under all that it depends on.
Problems that depend on a message's content are not found.

The runtime's tokenizer ignores many parts of a ``tokenizer.json``: all normalizers except
SentencePiece's, and most kinds of pre-tokenizers. So its tokens are compared with those of
``tokenizers``, and a model whose prompts would differ from its training is reported.

A pattern may take gigabytes or hours only for characters that are in none of these texts. So only
parts of published patterns are allowed, whose time is linear here; for others the runtime uses
stack for each character, and both programs backtrack.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import string
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from structgen.errors import ModelError
from structgen.storage import array_cache, user_folder

from . import apart, cache, damage

# No telemetry unless the user wants it: conversions use the runtime, too.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

CPU_SECONDS = 30
"""Most CPU seconds for reading the tokenizer and writing some chats: 262k tokens take 3."""

_BYTES = 4 << 30
_READS, _UNREAD = "reads otherwise", "cannot be read"

_LONGEST_PATTERN = 4096  # of one that is not known

_CALL = {"type": "function", "function": {"name": "probe", "arguments": {"a": [1, "b"]}}}
_TOOL = {"type": "function", "function": {"name": "probe", "description": "d", "parameters": {}}}
_TEXT = "What is it?" * 100 + string.printable[:95]
_USER = {"role": "user", "content": _TEXT}
_PROSE = "The Quick brown Fox isn't 42?\n\nNo;  it's 3.14", "Naïve café: Straße, Привет, 日本, ﬁn"
_CHATS = (
    [_USER],
    [{"role": "system", "content": "Be brief."}, _USER],
    [_USER, {"role": "assistant", "content": "This."}, _USER],
    [
        *(_USER, {"role": "assistant", "content": "", "tool_calls": [{"id": "1", **_CALL}]}),
        {"role": "tool", "content": "{}", "name": "probe", "tool_call_id": "1"},
    ],
)


def check(folder: Path, template: str | None) -> None:
    """Check that a folder's tokenizer and chat template can be used, and warn of wrong tokens.

    Args:
        folder: the folder of a model.
        template: replaces the folder's own.

    Raises:
        ModelError: they crash the process, or take too much time or memory; or no process can be
            started.

    Cost: the first time a process of 0.5 s for a tokenizer of 50k tokens, of 3 s for one of 262k;
    then 5 and 40 ms.
    """
    import onnxruntime_genai as og  # type: ignore[import-untyped]

    digest = hashlib.sha256(f"10 {og.__version__} {template}".encode(errors="replace"))
    for path in sorted(folder.iterdir()):
        # Models that share a tokenizer differ in these two, which are not about it.
        is_other = path.name in (cache.CONFIG, cache.RECORD)
        if path.suffix in damage.DESCRIBING and not is_other and path.is_file():
            digest.update(f"{path.name} {path.stat().st_size} ".encode(errors="backslashreplace"))
            with contextlib.suppress(OSError):  # the runtime cannot read it, either
                digest.update(user_folder.contents(path))
    ended = _ended(digest.hexdigest(), "chats", str(folder.absolute()), template)
    if ended == _READS:
        warnings.warn(
            f"ONNX Runtime GenAI tokenizes prompts differently from {folder / 'tokenizer.json'}, "
            "because it does not support its normalizer or pre-tokenizer. The model gets tokens "
            "that it was not trained with, and its answers may be poor.",
            UserWarning,
            stacklevel=4,
        )
    elif ended:
        raise ModelError(
            f"The tokenizer or the chat template of {folder} {ended}. "
            "Pass chat_template= to use another template, or choose another model."
        )


def check_file(file: Path) -> None:
    """Check that ``tokenizers`` can use a ``tokenizer.json``.

    Raises:
        ValueError: it crashes the process, takes too much time or memory, or has patterns that
            could do so for other texts.
        OSError: the file cannot be read, or is too large.

    Cost: the first time a process of 0.2 s for 50k tokens; then 1 ms per megabyte.
    """
    import tokenizers

    digest = hashlib.sha256(f"12 {tokenizers.__version__}".encode())
    digest.update(user_folder.contents(file))
    if ended := _ended(digest.hexdigest(), "text", str(file.absolute())):
        raise ValueError(f"it {ended}")


def _ended(key: str, function: str, *arguments: str | None) -> str:
    """Return the result of `chats` or `text` in a process of its own; cache a success."""
    if (known := array_cache.load("templates", key, key)) is not None:
        return _READS if "reads" in known else ""
    limits = apart.Limits(_BYTES, CPU_SECONDS)
    try:
        ended: str = apart.call(f"{__name__}:{function}", *arguments, limits=limits)
    except apart.Ended as error:
        return str(error)
    except OSError as error:
        raise ModelError(f"Cannot test the tokenizer of {arguments[0]}: {error}.") from error
    if ended in ("", _READS):
        array_cache.store("templates", key, key, {"reads": np.zeros(1, np.uint8)} if ended else {})
    return "" if ended == _UNREAD else ended


# An ONNX graph that returns its input.
_NOTHING = (
    b'\x08\n:S\n\x1d\n\x0eaudio_features\x12\x01y"\x08Identity\x12\x01gZ\x1d\n\x0eaudio_features'
    b"\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03"
    b"\x12\x01nB\x04\n\x00\x10\x15"
)


def write_nothing(folder: Path, settings: Mapping[str, Any] | None = None, **more: Any) -> None:
    """Add a model that computes nothing to a folder, so that the runtime reads the rest of the
    folder.

    Args:
        folder: the folder.
        settings: settings of a tokenizer without tokens; None: the folder has its own tokenizer.
        more: further settings of the model.
    """
    (folder / "nothing.onnx").write_bytes(_NOTHING)
    graph = {"filename": "nothing.onnx"}
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "vocab_size": 1}
    model = {"type": "whisper", "context_length": 1, "encoder": graph, "decoder": graph, **tokens}
    files: dict[str, Any] = {"genai_config.json": {"model": {**model, **more}}}
    if settings is not None:
        files["tokenizer_config.json"] = {"tokenizer_class": "GPT2Tokenizer", **settings}
        files["tokenizer.json"] = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def is_class(kind: object) -> bool:
    """Return whether the runtime supports a class of tokenizers."""
    import onnxruntime_genai as og

    with tempfile.TemporaryDirectory() as name:
        write_nothing(Path(name), {"tokenizer_class": kind})
        with contextlib.suppress(RuntimeError):
            return tokenizer(og, name) is not None
    return False


def tokenizer(og: Any, folder: str) -> Any:
    """Return the runtime's tokenizer of a folder."""
    try:
        return og.Tokenizer(folder)
    except TypeError:  # The last runtime for Python 3.10 needs a model, which may be large.
        with tempfile.TemporaryDirectory() as name:
            for path in Path(folder).iterdir():
                if path.suffix in damage.DESCRIBING and path.is_file():
                    shutil.copyfile(path, Path(name, path.name))
            write_nothing(Path(name))
            return og.Tokenizer(og.Model(name))


def text(file: str) -> str:
    """Read a tokenizer and encode a text; return a problem as the end of a sentence, or ``""``."""
    from tokenizers import Tokenizer

    with _refused():
        if wrong := _wrong(Path(file).read_bytes()):
            return wrong
        Tokenizer.from_file(file).encode(_TEXT)
    return ""


def chats(folder: str, template: str | None) -> str:
    """Write and encode chats; return as `text`, or `_READS`, or `_UNREAD` if nothing was tested."""
    import onnxruntime_genai as og
    from tokenizers import Tokenizer

    file = f"{folder}/tokenizer.json"
    with _refused():
        if wrong := _wrong(Path(file).read_bytes()):
            return wrong
    use = {} if template is None else {"template_str": template}
    with _refused():
        used = tokenizer(og, folder)
        for chat in map(json.dumps, _CHATS):
            for tools in ({}, {"tools": json.dumps([_TOOL])}):
                with _refused():
                    written = used.apply_chat_template(
                        chat, add_generation_prompt=True, **use, **tools
                    )
                    used.encode(written)
        with _refused():  # if `tokenizers` cannot read it, the runtime may still
            own = Tokenizer.from_file(file)
            own.no_truncation()
            own.no_padding()
            for one in _PROSE:
                if list(used.encode(one)) != own.encode(one, add_special_tokens=False).ids:
                    return _READS
        return ""
    return _UNREAD  # maybe only with this genai_config.json, or now


_WORD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(end: str) -> str:
    return f"{_WORD}{_UPPER}*{_LOWER}+{end}|{_WORD}{_UPPER}+{_LOWER}*{end}"


CASED_WORDS = _cased("(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
"""A word ends in small letters and may begin with capitals, so "getValue" is two."""

_UNITS = (
    *(CASED_WORDS, _cased("")),
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
    *("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'s|'t|'re|'ve|'m|'ll|'d"),
    *(r" ?\p{L}+| ?\p{N}+", r"[\p{L}]+|[\p{N}]", r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"),
    *(rf"{_WORD}\p{{L}}+", rf"{_WORD}[\p{{L}}\p{{M}}]+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"),
    *(r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+"),
    *(r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r" ?[\p{P}\p{S}]+[\r\n]*", r"[^\s\p{L}\p{N}]+"),
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    *(r"\s*[\r\n]+|\s+(?!\S)|\s+", r"\s+(?!\S)|\s+"),
)
"""The parts of published tokenizers' patterns for which the runtime has code of its own; it uses
std::regex for the rest."""

_REPLACED = (" {2,}", r"\s+", r"\s{2,}|[\n\r\t]")
"""Patterns of normalizers, which only ``tokenizers`` uses."""

_PLAIN = re.compile(r"(?:\||\\[pP]\{\w+\}|\\[^\d]|\[(?:[^\[\]\\]|\\.)+\]|[^\[\](){}*+?\\])*")
"""Matches patterns without repetition and groups, which compare each character with a few others.
"""


_WRITES_MORE = {
    "ByteLevel",
    "Metaspace",
    "handle_chinese_chars",  # of a BertNormalizer
    "suffix",  # of a BPEDecoder
    "word_delimiter_token",  # of CTC
}
"""Types and fields of steps that write more than they read, such as a character per byte."""

_EMPTY = re.compile(r"(?:\\[bBAzZGKyY]|[\^$])*")
"""Matches an alternative of a `_PLAIN` pattern that matches the empty text."""

_MOST_STEPS = 100
_MOST_GROWTH = 64  # times; Unicode forms make up to 18 characters of one
_LONGEST_WORD = 256  # characters; published ones have 100
_LONGEST_PIECE = 512  # characters of a token
_MOST_CHARACTERS = 1 << 23  # of added tokens and pieces, each up to 240 bytes; XLM-V's have 6e6


def _wrong(data: bytes) -> str | None:
    """Return the part of a ``tokenizer.json`` that could take gigabytes or hours for some text."""
    try:
        document = json.loads(data)
        model = document["model"]
        word = model.get("max_input_chars_per_word") or 0
        pieces = model["vocab"] if isinstance(model["vocab"], list) else ()  # of a Unigram
        sizes = [len(piece) for piece, _ in pieces]
        piece = max(sizes, default=0)
        total = sum(sizes) + sum(len(one["content"]) for one in document.get("added_tokens") or ())
        affixes = (model.get(f) or "" for f in ("continuing_subword_prefix", "end_of_word_suffix"))
        affix = max(map(len, affixes))
        for names in (("normalizer", "pre_tokenizer"), ("decoder",), ("post_processor",)):
            growths = [*_growths([document.get(name) for name in names])]
            if len(growths) > _MOST_STEPS:
                where = " and ".join(names)
                return f"has {len(growths):,} steps in its {where}; the limit is {_MOST_STEPS}"
            if (growth := math.prod(growths)) > _MOST_GROWTH:
                what = "tokens" if "post_processor" in names else "characters"
                return f"may replace one with {growth:,.0f} {what}; the limit is {_MOST_GROWTH}"
        if affix > _MOST_GROWTH:
            return f"adds {affix:,} characters to parts of words; the limit is {_MOST_GROWTH}"
        if word > _LONGEST_WORD:
            return f"looks for tokens in words of {word:,} characters; the limit is {_LONGEST_WORD}"
        if piece > _LONGEST_PIECE:
            return f"has a token of {piece:,} characters; the limit is {_LONGEST_PIECE}"
        if total > _MOST_CHARACTERS:
            return f"has tokens of {total:,} characters; the limit is {_MOST_CHARACTERS:,}"
        return _pattern(document)
    except MemoryError:
        raise
    except Exception as error:  # any error: the file may be anything
        return f"cannot be parsed: {error!r:.200}"


def _growths(section: Any) -> Iterator[float]:
    """Yield how many characters or tokens each step of a part may write for one."""
    if isinstance(section, list):
        for one in section:
            yield from _growths(one)
    elif isinstance(section, dict):
        for one in ("normalizers", "pretokenizers", "decoders", "processors"):
            yield from _growths(section.get(one))
        growth: float = 1 + len(section.get("prepend", ""))  # for each piece between added tokens
        if _WRITES_MORE & {*section, section.get("type")}:
            growth *= 2
        if "single" in section:
            ids = (len(one["ids"]) for one in section["special_tokens"].values())
            growth *= max(1, len(section["single"]), len(section["pair"])) * max((1, *ids))
        if "content" in section and "pattern" in section:
            size, sought = len(section["content"]), section["pattern"]
            if text := sought.get("String"):
                growth *= max(1, size / len(text))
            else:  # it may match between any two characters
                empty = any(map(_EMPTY.fullmatch, sought.get("Regex", "").split("|")))
                growth *= max(1, size + empty)
        if packed := section.get("precompiled_charsmap"):
            data = base64.b64decode(packed)  # the size of a trie, the trie, and texts
            texts = data[4 + int.from_bytes(data[:4], "little") :].decode(errors="replace")
            growth *= max(1, *map(len, texts.split("\0")))
        yield growth


def _pattern(document: Any) -> str | None:
    """Return the problem of a ``tokenizer.json``'s patterns."""
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        for pattern in _patterns(document.get(name)):
            rest = f"|{pattern}|".replace("\r", r"\r").replace("\n", r"\n")
            for unit in (*_UNITS, *(_REPLACED if name == "normalizer" else ())):
                rest = rest.replace(f"|{unit}|", "|", 1)
            if len(rest) > _LONGEST_PATTERN or not _PLAIN.fullmatch(rest):
                return (
                    f"has the unknown pattern {pattern[:200]!r} in its {name}, which may take "
                    "hours or crash the process"
                )
    return None


def _patterns(section: Any) -> Iterator[str]:
    """Yield all regular expressions in a part of a ``tokenizer.json``."""
    if isinstance(section, dict):
        for name, value in section.items():
            yield from [str(value)] if name == "Regex" else _patterns(value)
    elif isinstance(section, list):
        for value in section:
            yield from _patterns(value)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Ignore errors and panics, except of memory: loading the folder raises them again."""
    try:
        yield
    except BaseException as error:
        kept = MemoryError, KeyboardInterrupt, SystemExit
        if isinstance(error, kept) or "bad_alloc" in str(error):
            raise
