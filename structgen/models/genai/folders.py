"""Read a model's configuration and vocabulary from its folder, or token bytes from its tokenizer.

Without a folder, `token_bytes` recovers the bytes of every token from ONNX Runtime GenAI's
tokenizer object, which cannot list a vocabulary and does not know its folder. Two of its functions
are enough: ``decode(ids) -> str`` and ``find(spelling) -> id``. Knows neither the runtime nor how
folders are made.

How bytes are recovered. A token is decoded between two copies of a harmless token, ``A``, so that
no decoder strips or adds a space. Text without U+FFFD is the token's own text. Otherwise the token
begins or ends inside a UTF-8 character; single-byte tokens before and after it complete the
character, and their bytes are removed again. A result counts only if spelling it as the tokenizer
file does finds the very same id.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from structgen.errors import ConversionError, ModelError, VocabularyError
from structgen.models import cache, damage
from structgen.storage.user_folder import WRONG, contents, document, flag, inside
from structgen.vocabulary import Vocabulary, byte_alphabet

_POST_PROCESSOR = b'"post_processor"'


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``genai_config.json``, checked for the fields that are needed.

    Raises:
        ModelError: it is missing or not valid.
    """
    path = folder / "genai_config.json"
    try:
        if not path.is_file():  # reading a pipe would wait
            raise FileNotFoundError
        config = document(path)
        model = config["model"]
        model["eos_token_id"]
        int(model.get("decoder", {}).get("num_hidden_layers", 0))
        for name in ("vocab_size", "context_length"):
            int(model[name])
    except FileNotFoundError:
        if cache.is_embedder(folder):
            raise ModelError(
                f"{folder} has no genai_config.json, which a language model needs. If it is an "
                "embedder, load it with structgen.load_embedder."
            ) from None
        raise ModelError(
            f"{folder} has no genai_config.json, so it is not an ONNX Runtime GenAI model folder. "
            "Convert a GGUF file or a folder with safetensors: structgen models convert SOURCE OUT"
        ) from None
    except WRONG as error:
        raise ModelError(f"{path} cannot be parsed: {error!r}") from error
    return dict(config)


def graph_name(config: Mapping[str, Any]) -> str:
    """Return the name of the decoder's graph file from the configuration."""
    return str(config["model"].get("decoder", {}).get("filename", "model.onnx"))


def masked_graph(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the file of the same graph with a mask in ``folder``; None: there is none."""
    with contextlib.suppress(ValueError):
        graph = inside(folder, graph_name(config))
        if cache.has_mask(graph):
            return cache.masked(graph).relative_to(folder).as_posix()
    return None


def add_mask(folder: str) -> str:
    """Write a second graph with a mask, and return its file; see `structgen.models.add_mask`."""
    import onnx_ir as ir

    from structgen.models.conversion.graph import save_masked

    config = read_config(Path(folder))
    name = graph_name(config)
    try:
        plain = inside(Path(folder), name)
        if plain.stat().st_size > cache.LARGEST_GRAPH:
            raise ValueError("its weights are inside the file instead of in a separate file")
        if lacks := damage.of_graph(plain):
            raise ValueError(lacks[0].problem.rstrip("."))
        return str(save_masked(ir.load(plain), int(config["model"]["vocab_size"]), plain))
    except MemoryError:
        raise
    except Exception as error:  # any error: the file may be anything
        raise ConversionError(f"Cannot add a mask to {Path(folder, name)}: {error}.") from error


def read_ahead(folder: Path) -> None:
    """Ask the system to read the weights from disk in the background, if it can."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    for path in folder.glob("*.onnx*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            advise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def folder_vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of ``tokenizer.json``, as wide as the model's logits.

    Raises:
        VocabularyError: it is not valid.
    """
    model = config["model"]
    eos = model["eos_token_id"]
    return Vocabulary.from_tokenizer_json(
        folder / "tokenizer.json",
        eos_token_ids=[eos] if isinstance(eos, int) else eos,
        size=int(model["vocab_size"]),
    )


def start_ids(folder: Path, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return the tokens that start a text, as added by Transformers' tokenizers.

    They come from ``add_bos_token`` in ``tokenizer_config.json``, or, without it, from the template
    in ``tokenizer.json`` that puts special tokens around a text.

    Raises:
        ModelError: a file cannot be read.
    """
    path = folder / "tokenizer_config.json"
    try:
        settings = document(path) if path.is_file() else {}
        adds, name = flag(settings, "add_bos_token"), settings.get("bos_token")
        if isinstance(name, dict):
            name = name.get("content")
        if not adds and settings.get("add_bos_token") is not None:
            names = []
        elif adds and isinstance(name, str):
            names = [name]
        else:
            path = folder / "tokenizer.json"
            names = _put_before(_post_processor(contents(path)))
        found = [vocabulary.named_tokens.get(name) for name in names]
    except WRONG as error:
        raise ModelError(f"{path} cannot be parsed: {error!r}") from error
    return tuple(token_id for token_id in found if token_id is not None)


def _post_processor(tokenizer: bytes) -> Any:
    """Return the post-processor of ``tokenizer.json``, which puts tokens around texts.

    It comes before the vocabulary, so the whole file, maybe 20 MB, need not be parsed.
    """
    at = tokenizer.find(_POST_PROCESSOR)
    if at < 0:
        return None
    start = tokenizer.index(b":", at + len(_POST_PROCESSOR)) + 1
    end = tokenizer.find(b'"model"', start)  # the rest may be large
    text = tokenizer[start : end if end > 0 else None].decode().lstrip()
    return json.JSONDecoder().raw_decode(text)[0]


def _put_before(post_processor: Any) -> list[str]:
    """Return the names of the special tokens that a post-processor puts before a text."""
    if not isinstance(post_processor, dict):
        return []
    if post_processor.get("type") == "Sequence":
        parts = post_processor.get("processors") or []
        return [name for part in parts for name in _put_before(part)]
    names = []
    if post_processor.get("type") == "TemplateProcessing":
        for piece in post_processor.get("single") or []:
            if "SpecialToken" not in piece:
                break
            names.append(piece["SpecialToken"]["id"])
    return names


Decode = Callable[[Sequence[int]], str]
Find = Callable[[str], int]

_REPLACEMENT = "\ufffd"
_SPACE_MARK = "\u2581"  # SentencePiece's visible space
_NO_SUCH_ID = 2**31 - 1
_HINT = "Pass folder=, the model's folder, or vocabulary=, a structgen.Vocabulary."

# What can stand before continuation bytes, and after lead bytes, so that both become characters.
# The second bytes 0x90 and 0x80 suit every lead but ED and F4 between them, A0 suits E0.
_BEFORE = (b"", b"\xc3", b"\xe1\x80", b"\xe1", b"\xf1\x80\x80", b"\xf1\x80", b"\xf1")
_AFTER = (b"", b"\x80", b"\x80\x80", b"\xa0\x80", b"\x80\x80\x80", b"\x90\x80\x80")


def token_bytes(decode: Decode, find: Find, size: int) -> list[bytes]:
    """Return the bytes of ids ``0 .. size - 1``; ``b""`` for special, unused and padding ids.

    Args:
        decode: returns the text of a few ids, without special tokens, with U+FFFD for invalid
            UTF-8.
        find: returns the id of a spelling in the tokenizer file; negative if there is none.
        size: number of ids, the width of the logits.

    Raises:
        VocabularyError: a token's bytes cannot be determined with certainty.

    Cost: about 5 µs per id.
    """
    anchor = find("A")
    if anchor < 0 or decode([anchor, anchor]) != "AA":
        raise VocabularyError(
            "The tokenizer has no plain token 'A', which structgen needs to find the bytes of "
            f"other tokens. {_HINT}"
        )
    points = {byte: point for point, byte in enumerate(byte_alphabet().tolist())}
    spelling = [chr(points[byte]) for byte in range(256)]  # only in byte-level vocabularies
    byte_ids = [find(one) for one in spelling]
    if byte_ids[0x20] < 0 or decode([anchor, byte_ids[0x20], anchor]) != "A A":
        spelling = []
        byte_ids = [find(f"<0x{byte:02X}>") for byte in range(256)]
    # What ids past the end of the vocabulary decode to: padding of the logits.
    unknown = decode([anchor, _NO_SUCH_ID, anchor])

    def is_spelt(token: int, data: bytes) -> bool:
        if spelling:
            return find("".join(spelling[byte] for byte in data)) == token
        return find(data.decode().replace(" ", _SPACE_MARK)) == token

    def completed(token: int) -> bytes | None:
        for before, after in itertools.product(_BEFORE, _AFTER):
            ids = [byte_ids[byte] for byte in before]
            ids.append(token)
            ids.extend(byte_ids[byte] for byte in after)
            if min(ids) < 0:
                continue  # a byte without a token of its own
            data = decode(ids).encode()
            if data.startswith(before) and data.endswith(after):
                data = data[len(before) : len(data) - len(after)]
                if is_spelt(token, data):
                    return data
        return None

    def one(token: int) -> bytes:
        text = decode([anchor, token, anchor])
        if text == "AA":
            return b""
        # The runtime's decoder can swallow the byte after an unfinished character, so the text
        # around U+FFFD is not to be trusted.
        if _REPLACEMENT in text and spelling:
            repaired = completed(token)
            if repaired is not None:
                return repaired
        elif text[:1] == text[-1:] == "A":
            inner = text[1:-1]
            # A literal match is an added token, which the file spells unchanged.
            if is_spelt(token, inner.encode()) or find(inner) == token:
                return inner.encode()
        if text == unknown:
            return b""
        raise VocabularyError(
            f"The bytes of token {token} are unknown: the tokenizer decodes it to {text[1:-1]!r}. "
            f"{_HINT}"
        )

    known = {token: bytes([byte]) for byte, token in enumerate(byte_ids) if token >= 0}
    return [known[i] if i in known else one(i) for i in range(size)]
