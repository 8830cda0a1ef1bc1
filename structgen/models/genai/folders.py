"""What a folder of ONNX Runtime GenAI says of its model: its configuration and its vocabulary.

It reads three files. It knows nothing of the runtime, nor of how folders come about.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structgen.errors import ModelError
from structgen.models import cache
from structgen.vocabulary import Vocabulary

_POST_PROCESSOR = b'"post_processor"'


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``genai_config.json``, with what is needed of it.

    Raises:
        ModelError: there is none, or it cannot be understood.
    """
    path = folder / "genai_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        model = config["model"]
        for name in ("vocab_size", "context_length", "eos_token_id"):
            model[name]
    except FileNotFoundError:
        if cache.is_embedder(folder):
            raise ModelError(
                f"{folder} is an embedder, which generates no text: load it with "
                "structgen.load_embedder."
            ) from None
        raise ModelError(
            f"{folder} has no genai_config.json, so it is not an ONNX Runtime GenAI model folder. "
            "Convert a GGUF file with: structgen models convert FILE.gguf OUT"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be understood: {error!r}") from error
    return dict(config)


def read_ahead(folder: Path) -> None:
    """Ask the system to read the weights from disk, where it can do so by itself; does not wait."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    for path in folder.glob("*.onnx*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            advise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def folder_vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of ``tokenizer.json``, as wide as the model's logits.

    Raises:
        VocabularyError: it cannot be understood.
    """
    model = config["model"]
    eos = model["eos_token_id"]
    return Vocabulary.from_tokenizer_json(
        folder / "tokenizer.json",
        eos_token_ids=[eos] if isinstance(eos, int) else eos,
        size=int(model["vocab_size"]),
    )


def start_ids(folder: Path, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return the tokens that a text alone begins with, as Transformers' tokenizers add them.

    ``add_bos_token`` in ``tokenizer_config.json`` says whether there is one; where it is silent,
    the template in ``tokenizer.json`` that puts special tokens around a text does.

    Raises:
        ModelError: a file cannot be read.
    """
    path = folder / "tokenizer_config.json"
    try:
        settings = json.loads(path.read_bytes()) if path.exists() else {}
        adds, name = settings.get("add_bos_token"), settings.get("bos_token")
        if isinstance(name, dict):
            name = name.get("content")
        if adds is False:
            names = []
        elif adds is True and isinstance(name, str):
            names = [name]
        else:
            path = folder / "tokenizer.json"
            names = _put_before(_post_processor(path.read_bytes()))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} cannot be understood: {error!r}") from error
    found = [vocabulary.named_tokens.get(name) for name in names]
    return tuple(token_id for token_id in found if token_id is not None)


def _post_processor(tokenizer: bytes) -> Any:
    """What ``tokenizer.json`` puts around texts.

    It stands before the vocabulary, so that the file, of 20 MB perhaps, need not be parsed for it.
    """
    at = tokenizer.find(_POST_PROCESSOR)
    if at < 0:
        return None
    start = tokenizer.index(b":", at + len(_POST_PROCESSOR)) + 1
    end = tokenizer.find(b'"model"', start)  # its template is small, what follows may not be
    text = tokenizer[start : end if end > 0 else None].decode().lstrip()
    return json.JSONDecoder().raw_decode(text)[0]


def _put_before(post_processor: Any) -> list[str]:
    """Names of the special tokens that a post-processor puts before a text."""
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
