"""From a folder, or an ONNX file, to an `Embedder`.

Owns what a folder's settings and a caller's wishes come to, and errors where they do not go
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structgen.errors import ModelError, ModelNotFound, OptionError
from structgen.models import cache
from structgen.models.loading import remedy

from .embedder import Embedder
from .folder import Settings, read
from .pooling import POOLINGS, Pooling, check_pooling
from .session import Graph
from .tokens import TextTokenizer


def load(
    place: Path,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Embedder:
    """Load an embedder's folder, or its ONNX file; see `structgen.load_embedder`."""
    wanted = None if pooling is None else check_pooling(pooling)
    if cache.is_language_model(place):
        raise ModelNotFound(
            f"{place} is a language model: structgen.load gives it, and its embed() makes vectors "
            "if it was converted with --hidden-states."
        )
    settings = read(place)
    graph = Graph(
        settings.graph,
        wants_tokens=wanted is not None,
        providers=providers,
        session_options=session_options,
        threads=threads,
    )
    if wanted is not None and graph.kind != "tokens":
        raise OptionError(
            f"pooling={pooling!r}: {settings.graph} gives no vector a token that could be pooled."
        )
    if graph.takes_text:
        if max_length is not None:
            raise OptionError(
                f"max_length={max_length}: {settings.graph} reads text itself, and cuts it itself."
            )
        return Embedder(graph, None, settings, pooling=None, max_length=None)
    if settings.tokenizer is None:
        raise ModelNotFound(
            f"{settings.folder} has no tokenizer.json, and {settings.graph.name} takes token ids. "
            "Copy it from the model's source."
        )
    most = _most(settings, max_length)
    return Embedder(
        graph,
        TextTokenizer(settings.tokenizer, most),
        settings,
        pooling=wanted or _folders_pooling(settings) if graph.kind == "tokens" else None,
        max_length=most,
    )


def _most(settings: Settings, max_length: int | None) -> int | None:
    if max_length is None:
        return settings.max_length
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise OptionError(f"max_length={max_length!r} is out of range. It must be 1 or more.")
    if settings.positions is not None and max_length > settings.positions:
        raise OptionError(
            f"max_length={max_length} is out of range: {settings.folder.name} has "
            f"{settings.positions} positions."
        )
    return max_length


def _folders_pooling(settings: Settings) -> Pooling:
    """How a folder says that tokens are pooled; the mean where it does not say."""
    if settings.others:
        raise ModelError(
            f"{settings.folder} goes on after pooling with {', '.join(settings.others)}, which "
            "this ONNX file has not in it. Export the whole model, so that its output is "
            "sentence_embedding; or pass pooling= to have the vectors without it."
        )
    if settings.lacks is not None:
        raise ModelError(
            f"{settings.lacks} is missing, which modules.json names, so that it is not known how "
            f"tokens are pooled. {remedy(settings.folder)} Or pass pooling=."
        )
    if settings.pooling is None:
        return "mean"
    for known in POOLINGS:
        if settings.pooling == known:
            return known
    raise ModelError(
        f"{settings.folder} asks for the pooling {settings.pooling!r}, which is none of "
        f"{', '.join(POOLINGS)}. Export the whole model, so that its output is "
        "sentence_embedding; or pass another pooling=."
    )
