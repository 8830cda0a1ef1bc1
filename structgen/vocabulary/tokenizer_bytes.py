"""Hugging Face ``tokenizer.json`` → the bytes each token id adds to the text.

Knows how a tokenizer file writes its tokens, which of them are special, and which ids end a
sequence according to the files beside it. It does not tokenize: only *decoding* matters here. Knows
no tries, masks, grammars or models.

The ``decoder`` section defines how token strings become text. Its steps become functions of one
token, which are exact for tokens in the middle of a text:

===============  ==================================================================================
ByteLevel        each character stands for one byte (GPT-2's alphabet); a token with any other
                 character stands for itself
Replace          with a literal pattern: SentencePiece's ``▁`` → space
Metaspace        the same, under its own name
ByteFallback     ``<0x0A>`` → the byte 0x0A
WordPiece        ``##x`` → ``x``; every other token begins with a space; then the clean-up of
                 spaces before punctuation
BPEDecoder       the end-of-word suffix → space
Strip, Fuse      after a Fuse they concern only the ends of the text, and change no token
===============  ==================================================================================

So the *first* token of a text is read as in the middle: SentencePiece's ``▁Paris`` is " Paris",
although decoding it alone would drop the space. That is right for generation, which continues a
prompt. For a file without a decoder, the pre-tokenizer, normalizer and byte_fallback determine it.
Steps that are not such functions (a regular expression, a step across tokens, CTC) are refused.

Special added tokens are never text. Other added tokens are text as written in the file, except
``▁``; in a ByteLevel file they are *not* in GPT-2's alphabet. (``tokenizers`` decodes them as if
they were, which garbles an added ``é``, and shows a normalised one with the normalizer's prefix
space; its encoder takes them literally, and so does ONNX Runtime GenAI.)
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from structgen.errors import VocabularyError, printable
from structgen.storage.user_folder import MOST_OF_TOKENIZER, MOST_VALUES, contents, document

MAX_SIZE = 1 << 21
"""The most ids of a vocabulary. A file with larger ids counts as malformed: the id → bytes table
would fill the memory."""

_MOST_TOKENS = 1_000_000
"""The most tokens. The largest vocabularies have 0.9 million; more would take minutes to read."""

_MOST_CHARACTERS = 1 << 24  # of tokens and names together, before and after a decoder's steps
_LONGEST_CONTENT = 4  # that such a step may insert for each character
_MOST_STEPS = 8  # known files have up to three

END_TOKEN_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<|EOT|>",
    "<|eos|>",
    "<eos>",
    "[EOS]",
    "</s>",
)
"""Special tokens that end a sequence or a turn in tokenizers of well-known models."""

# The files that the two functions `find_…` read.
_BESIDE = (
    "genai_config.json",
    "generation_config.json",
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
_SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
# The replacements of the WordPiece decoder's clean-up, in order.
_CLEAN_UP = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m")),
    (" do not", " don't"),
    *((f" {end}", end) for end in ("'s", "'ve", "'re")),
)
_SHOWN = 500  # characters of the start and end of an invalid text
_NOWHERE = Path("<tokenizer>", "tokenizer.json")
"""The path of a tokenizer that is not from a file. No files are beside it."""

_ELSE = "Pass the bytes of each token to Vocabulary.from_tokens instead."


@dataclass(frozen=True)
class TokenTable:
    """The token ids of a tokenizer file.

    Attributes:
        path: the file.
        tokens: bytes by id; ``b""`` for special ids and holes.
        special_token_ids: ids that are never text.
        ids: id of each token string of the file, added ones included.
        added: id of each added token's string, in the file's order.
    """

    path: Path
    tokens: list[bytes]
    special_token_ids: frozenset[int]
    ids: dict[str, int]
    added: dict[str, int]

    @property
    def named_ends(self) -> frozenset[int]:
        """The ids of special tokens with well-known names that end a sequence or a turn."""
        named = {self.ids[name] for name in END_TOKEN_NAMES if name in self.ids}
        return self.special_token_ids & named


def read(path: str | os.PathLike[str]) -> TokenTable:
    """Read a ``tokenizer.json``, or the one in a folder.

    Raises:
        VocabularyError: the file is missing or malformed, or its tokens have no fixed bytes.
    """
    file = _tokenizer_file(path)
    return _table(file, _read_json(file, MOST_OF_TOKENIZER))


def read_text(text: str) -> TokenTable:
    """Read the text of a ``tokenizer.json`` without files beside it.

    Raises:
        VocabularyError: it is malformed, or its tokens have no fixed bytes.
    """
    return _table(_NOWHERE, _object(_NOWHERE, lambda: json.loads(text)))


def _table(file: Path, document: dict[str, Any]) -> TokenTable:
    try:
        return _understood(file, document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        _fail(file, f"it cannot be parsed ({error!r})", _ELSE)


def _understood(file: Path, document: dict[str, Any]) -> TokenTable:
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        _fail(file, 'it has no "model" with a "vocab"', "Is it a Hugging Face tokenizer.json?")
    ids = _model_ids(file, model)
    added, special = _added_tokens(file, document)
    if len(ids) + len(added) > _MOST_TOKENS:
        n = len(ids) + len(added)
        _fail(file, f"it has {n:,} tokens; the limit is {_MOST_TOKENS:,}", _ELSE)
    # The token for unknown text has no text itself.
    unknown = model.get("unk_id")
    if not isinstance(unknown, int):
        unknown = ids.get(model.get("unk_token") or "")
    special |= set() if unknown is None else {unknown}
    decoder = _decoder(file, document)

    strings = [""] * (1 + max(max(ids.values(), default=-1), max(added, default=-1)))
    for text, token_id in ids.items():
        strings[token_id] = text
    for token_id, text in added.items():
        strings[token_id] = text
    _bound(strings)
    for token_id in special:
        strings[token_id] = ""
    try:
        tokens = decoder.tokens(strings)
        if decoder.last == "alphabet":
            for token_id in added.keys() - special:
                tokens[token_id] = strings[token_id].encode()
    except UnicodeEncodeError as error:
        _fail(file, f"token {error.object[:80]!r} has half a surrogate pair", _ELSE)
    ids.update((text, token_id) for token_id, text in added.items())
    return TokenTable(file, tokens, frozenset(special), ids, {text: i for i, text in added.items()})


def fingerprint(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256, in hex, of all files from which a vocabulary is read.

    None if one of them cannot be read; reading the vocabulary then raises the reason.

    Cost: 10 ms for 128k tokens, 30 ms for 262k.
    """
    file = _tokenizer_file(path)
    digest = hashlib.sha256()
    try:
        for each in (file, *(file.parent / name for name in _BESIDE)):
            data = contents(each) if each is file or each.is_file() else b""
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


def find_eos_token_ids(table: TokenTable) -> tuple[int, ...]:
    """Return the ids that end a sequence, according to the files beside a tokenizer file.

    The first of these with any id decides:

    1. ``genai_config.json``, ``model.eos_token_id``: what ONNX Runtime GenAI stops on;
    2. ``generation_config.json``, ``eos_token_id``;
    3. ``config.json``, ``eos_token_id``, or that of its ``text_config``;
    4. ``eos_token`` of ``tokenizer_config.json`` and ``special_tokens_map.json``, together with
       every special token of the tokenizer that is in `END_TOKEN_NAMES` (they name one token, and
       a chat model ends its turns with another).

    Raises:
        VocabularyError: a file is malformed, or none of them has an id.
    """
    folder = table.path.parent
    for name, keys in (
        ("genai_config.json", ("model",)),
        ("generation_config.json", ()),
        ("config.json", ()),
        ("config.json", ("text_config",)),
    ):
        value: Any = _read_json_beside(folder / name)
        for key in (*keys, "eos_token_id"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value != []:
            return _as_ids(folder / name, value, "eos_token_id")

    found = set(table.named_ends)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        value = _read_json_beside(folder / name).get("eos_token")
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text in table.ids:
            found.add(table.ids[text])
    if not found:
        _fail(
            table.path,
            "the end-of-sequence id is unknown: it is not in a configuration file in the folder "
            "or the name of a special token",
            "Pass eos_token_ids=[id, ...].",
        )
    return tuple(sorted(found))


def find_size(table: TokenTable) -> int | None:
    """Return the width of the logits that ``genai_config.json`` beside the file declares, or None.

    Raises:
        VocabularyError: the configuration is malformed.
    """
    file = table.path.parent / "genai_config.json"
    model = _read_json_beside(file).get("model")
    value = model.get("vocab_size") if isinstance(model, dict) else None
    return None if value is None else _as_ids(file, value, "vocab_size")[0]


def _bound(strings: list[str]) -> None:
    if sum(map(len, strings)) > _MOST_CHARACTERS:
        raise ValueError(f"its tokens would have more than {_MOST_CHARACTERS:,} characters")


@dataclass(frozen=True)
class _Decoder:
    """A tokenizer's decoder as a function of one token: ``steps`` on its string, then ``last``."""

    steps: tuple[Callable[[str], str], ...]
    last: Literal["utf8", "alphabet", "fallback"]

    def tokens(self, strings: list[str]) -> list[bytes]:
        """Return the bytes of each token string; no bytes for an empty one."""
        for step in self.steps:
            strings = [text and step(text) for text in strings]
            _bound(strings)
        if self.last == "alphabet":
            return _from_byte_alphabet(strings)
        tokens = [text.encode() for text in strings]
        if self.last == "fallback":
            for token_id, text in enumerate(strings):
                if len(text) == 6 and (match := _BYTE_TOKEN.fullmatch(text)):
                    tokens[token_id] = bytes.fromhex(match[1])
        return tokens


def _decoder(file: Path, document: dict[str, Any]) -> _Decoder:
    section = document.get("decoder") or _implied_decoder(file, document)
    steps: list[Callable[[str], str]] = []
    last: Literal["utf8", "alphabet", "fallback"] = "utf8"
    fused = False
    for part in _flatten(section, "decoders"):
        kind = part.get("type")
        if kind == "Fuse":
            fused = True
            continue
        if kind == "Strip" and fused and not part.get("stop"):
            continue  # strips the start of the whole text
        if kind == "ByteFallback" and last == "utf8" and not fused:
            last = "fallback"
            continue
        if kind == "ByteLevel" and last == "utf8" and not fused:
            last = "alphabet"
            continue
        step = _string_step(part)
        # Either order is the same, except for ▁ itself: in its three bytes, it becomes a space.
        is_mark = kind == "Metaspace" and part.get("replacement") == _SPACE_MARK
        is_late = fused or not (last == "utf8" or (last == "fallback" and is_mark))
        if step is None or is_late or len(steps) == _MOST_STEPS:
            _fail(
                file,
                f"its decoder {json.dumps(section, ensure_ascii=False)} has a step, "
                f"{json.dumps(part, ensure_ascii=False)}, that does not map each token to its own "
                "bytes",
                _ELSE,
            )
        steps.append(step)
    return _Decoder(tuple(steps), last)


def _string_step(part: dict[str, Any]) -> Callable[[str], str] | None:
    """Return the decoder step as a function of one token's string, or None if it is not one."""
    kind = part.get("type")
    if kind == "Metaspace":
        mark = part.get("replacement", _SPACE_MARK)
        return lambda text: text.replace(mark, " ")
    if kind == "Replace" and isinstance(part.get("pattern"), dict):
        old, new = part["pattern"].get("String"), part.get("content")
        if isinstance(old, str) and old and isinstance(new, str) and len(new) <= _LONGEST_CONTENT:
            return lambda text: text.replace(old, new)
    if kind == "BPEDecoder":
        suffix = part.get("suffix", "</w>")
        return lambda text: text.replace(suffix, " ")
    if kind == "WordPiece":
        prefix, clean = part.get("prefix", "##"), part.get("cleanup", True)

        def word_piece(text: str) -> str:
            text = text[len(prefix) :] if text.startswith(prefix) else " " + text
            for old, new in _CLEAN_UP if clean else ():
                text = text.replace(old, new)
            return text

        return word_piece
    return None


def _implied_decoder(file: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return the decoder that undoes the encoding side of a file that has none."""
    model = document["model"]
    parts = [
        *_flatten(document.get("pre_tokenizer"), "pretokenizers"),
        *_flatten(document.get("normalizer"), "normalizers"),
    ]
    if any(part.get("type") == "ByteLevel" for part in parts):
        return {"type": "ByteLevel"}
    if any(part.get("type") == "Metaspace" or part.get("content") == _SPACE_MARK for part in parts):
        marks = {"type": "Metaspace"}
        fallback = [{"type": "ByteFallback"}] if model.get("byte_fallback") else []
        return {"type": "Sequence", "decoders": [marks, *fallback]}
    if model.get("type") == "WordPiece":
        prefix = model.get("continuing_subword_prefix", "##")
        return {"type": "WordPiece", "prefix": prefix, "cleanup": False}
    _fail(file, "it has no decoder, and its pre-tokenizer does not imply one", _ELSE)


def _flatten(section: Any, key: str) -> Iterator[dict[str, Any]]:
    if isinstance(section, dict):
        if section.get("type") == "Sequence":
            for part in section.get(key) or ():
                yield from _flatten(part, key)
        else:
            yield section


def byte_alphabet() -> npt.NDArray[np.int16]:
    """Return GPT-2's byte alphabet: byte by code point, -1 for none."""
    # Printable Latin-1 bytes represent themselves; the others use code points from 256 on.
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(plain))
    table = np.full(256 + len(others) + 1, -1, np.int16)
    table[plain] = plain
    table[256 : 256 + len(others)] = others
    return table


def _from_byte_alphabet(strings: list[str]) -> list[bytes]:
    # All tokens at once: one character is one byte, so lengths carry over.
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    ends = np.cumsum(lengths)
    points = np.frombuffer("".join(strings).encode("utf-32-le"), np.uint32)
    alphabet = byte_alphabet()
    values = alphabet[np.minimum(points, len(alphabet) - 1)]
    text = values.astype(np.uint8).tobytes()
    bounds = [0, *ends.tolist()]
    tokens = [text[start:end] for start, end in pairwise(bounds)]
    # A token with any character outside the alphabet is literal.
    for token_id in np.unique(np.searchsorted(ends, np.flatnonzero(values < 0), "right")).tolist():
        tokens[token_id] = strings[token_id].encode()
    return tokens


def _tokenizer_file(path: str | os.PathLike[str]) -> Path:
    try:
        file = Path(path)
    except TypeError:
        hint = " Use Vocabulary.from_tokenizer(tokenizer)." if hasattr(path, "get_vocab") else ""
        raise VocabularyError(
            "from_tokenizer_json takes the path of a tokenizer.json or of its folder, got "
            f"{type(path).__name__}.{hint}"
        ) from None
    return file / "tokenizer.json" if file.is_dir() else file


def _model_ids(file: Path, model: dict[str, Any]) -> dict[str, int]:
    kind, vocab = model.get("type"), model["vocab"]
    if kind in ("BPE", "WordPiece", "WordLevel", None) and isinstance(vocab, dict):
        ids = dict(vocab)
    elif kind in ("Unigram", None) and isinstance(vocab, list):
        # The tokenizer cannot distinguish equal strings with several ids; the last one counts.
        try:
            ids = {text: token_id for token_id, (text, _score) in enumerate(vocab)}
        except (TypeError, ValueError):
            _fail(file, 'its Unigram "vocab" is not a list of [token, score]', _ELSE)
    else:
        _fail(
            file, f"its model type {kind!r} is unknown", f"Known: BPE, Unigram, WordPiece. {_ELSE}"
        )
    for text, token_id in ids.items():
        if type(token_id) is not int or not 0 <= token_id < MAX_SIZE or type(text) is not str:
            _fail(file, f"token {text!r} has the id {token_id!r}", _ELSE)
    return ids


def _added_tokens(file: Path, document: dict[str, Any]) -> tuple[dict[int, str], set[int]]:
    added: dict[int, str] = {}
    special: set[int] = set()
    for entry in document.get("added_tokens") or ():
        token_id = entry.get("id") if isinstance(entry, dict) else None
        text = entry.get("content") if isinstance(entry, dict) else None
        if type(token_id) is not int or not 0 <= token_id < MAX_SIZE or type(text) is not str:
            _fail(file, f"its added token {entry!r} lacks an id or content", _ELSE)
        added[token_id] = text
        if entry.get("special"):
            special.add(token_id)
    return added, special


def _as_ids(file: Path, value: Any, what: str) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(type(item) is int and 0 <= item < MAX_SIZE for item in values):
        _fail(file, f"{what} is {value!r}", "Correct the file, or pass the value yourself.")
    return tuple(sorted(set(values)))


def _read_json_beside(file: Path) -> dict[str, Any]:
    return _read_json(file) if file.is_file() else {}


def _read_json(file: Path, most: int = MOST_VALUES) -> dict[str, Any]:
    return _object(file, lambda: document(file, most))


def _object(file: Path, read: Callable[[], Any]) -> dict[str, Any]:
    try:
        found = read()
    except FileNotFoundError:
        _fail(file, "the file does not exist", "Pass a tokenizer.json, or the folder with it.")
    except OSError as error:
        _fail(file, f"it cannot be read ({error.strerror})", "Check the path and its permissions.")
    except (ValueError, RecursionError) as error:
        _fail(file, f"it is not JSON ({error})", "Download the file again.")
    if not isinstance(found, dict):
        _fail(file, "it is not a JSON object", "Download the file again.")
    return found


def _fail(file: Path, problem: str, fix: str) -> NoReturn:
    if len(problem) > 2 * _SHOWN:  # it may quote the whole file
        problem = f"{problem[:_SHOWN]}…{problem[-_SHOWN:]}"
    shown = printable(problem)  # without half surrogate pairs, too
    raise VocabularyError(f"Cannot read the tokenizer file {file}: {shown}. {fix}") from None
