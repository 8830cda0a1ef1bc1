"""Vectors of texts from a language model: what goes into its last projection, pooled.

It owns the passes over a text and the output that they are read from. It knows nothing of loading.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError, PromptError
from structgen.models.base import Model
from structgen.models.passes import LONGEST_PASS, after_start
from structgen.models.progress import Progress, late
from structgen.sampling import TokenIds
from structgen.storage.user_folder import inside

from .folders import read_config

OUTPUT = "hidden_states"
"""What a graph calls its vector a token."""

FloatArray = npt.NDArray[np.float32]


def embed(
    model: Model,
    texts: str | Iterable[str],
    new: Callable[[int], Any],
    pooling: str,
    dimensions: int | None,
    normalize: bool,
    progress: Progress | None,
) -> FloatArray:
    """What `TextModel.embed` says; ``new`` makes a runtime's sequence with room for so many tokens.

    Texts are run one after the other and pooled at once, so that little is in memory.
    """
    from structgen.models.embedding import checked_texts

    rows = rows_of(model, checked_texts(texts))
    with late(progress) as report:

        def done(n_texts: int) -> None:
            report(f"Embedding with {model.name}", n_texts, len(rows))

        work = embedding(model, rows, new, pooling, dimensions, normalize, done)
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: FloatArray = end.value
                return found


def rows_of(model: Model, texts: Iterable[str]) -> list[TokenIds]:
    """The tokens of texts, int32 ``[n]`` each, after the model's `start_ids`."""
    rows = [model.encode(text) for text in texts]
    return [after_start(model.start_ids, row) if len(row) else row for row in rows]


def embedding(
    model: Model,
    rows: Sequence[TokenIds],
    new: Callable[[int], Any],
    pooling: str,
    dimensions: int | None,
    normalize: bool,
    done: Callable[[int], None] = lambda n_texts: None,
) -> Generator[None, None, FloatArray]:
    """The same of texts in tokens, pass by pass: it yields before each."""
    # Imported late: the other runtime's package, which generating does not need.
    from structgen.models.embedding import pooling as pools

    how = pools.check_pooling(pooling)
    for i, row in enumerate(rows):
        if len(row) >= model.context_length:
            raise PromptError(
                f"Text {i} has {len(row):,} tokens, and the context of {model.name} is "
                f"{model.context_length:,}. Split it."
            )
    # A text without tokens is run as another one, and its vector left out; so is no text at all.
    nothing = np.zeros(1, np.int32)
    some = [row if len(row) else nothing for row in rows] or [nothing]
    out: list[FloatArray] = []
    for hidden in hidden_states(some, new, model.name):
        if hidden is None:
            yield
            continue
        out.append(pools.pool(hidden[None], [len(hidden)], how)[0])
        done(min(len(out), len(rows)))
    found = np.array(out)[: len(rows)]
    found[[not len(row) for row in rows]] = 0
    return pools.finish(found, dimensions, normalize)


def hidden_states(
    rows: Sequence[TokenIds], new: Callable[[int], Any], name: str
) -> Iterator[FloatArray | None]:
    """Run texts one after the other: the vectors of each one's tokens, float32 ``[tokens, width]``.

    Before each pass comes None.

    Args:
        rows: the texts' token ids, int32 ``[n]``, none of them empty.
        new: makes a runtime's sequence with room for so many tokens.
        name: what to call the model in errors.

    Raises:
        ModelError: the graph has no such output.
    """
    sequence: Any = None
    for i, row in enumerate(rows):
        if i:
            sequence.rewind_to(0)
        parts = []
        for part in _passes(row):
            yield None
            if sequence is None:
                sequence = new(max(map(len, rows)) + 1)
            sequence.append_tokens(part)
            try:
                parts.append(np.array(sequence.get_output(OUTPUT)[0], np.float32))
            except Exception as error:
                raise no_output(name) from error
        yield np.concatenate(parts)


def no_output(name: str) -> ModelError:
    """What is said of a model that lacks the output."""
    return ModelError(
        f"{name} has no output {OUTPUT!r}, so it cannot embed. Convert it with "
        "`structgen models convert FILE.gguf OUT --hidden-states`, or use an embedder: "
        "structgen.load_embedder('all-minilm-l6-v2')."
    )


def has_output(folder: Path | None) -> bool:
    """Whether the graph in a folder has the output; False where there is no folder to look in.

    Cost: reading the graph's file.
    """
    if folder is None:
        return False
    import onnx_ir

    decoder = read_config(folder)["model"].get("decoder", {})
    graph = onnx_ir.load(inside(folder, decoder.get("filename", "model.onnx"))).graph
    return any(output.name == OUTPUT for output in graph.outputs)


def _passes(row: TokenIds) -> list[TokenIds]:
    """A text in passes of a bounded length, none of which is a single token if that can be helped.

    A pass over one token rounds differently from others.
    """
    starts = [*range(0, len(row), LONGEST_PASS), len(row)]
    if len(starts) > 2 and starts[-1] - starts[-2] == 1:
        starts[-2] -= 1
    return [row[first:end] for first, end in itertools.pairwise(starts)]
