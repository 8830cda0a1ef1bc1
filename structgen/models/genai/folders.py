"""What a folder of ONNX Runtime GenAI says of its model: its configuration and its vocabulary.

It reads two files. It knows nothing of the runtime, nor of how folders come about.
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
    except (OSError, ValueError, KeyError, TypeError) as error:
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
