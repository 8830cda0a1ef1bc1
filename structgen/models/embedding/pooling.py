"""Pool the vectors of tokens into one vector per text; cut, scale and encode vectors.

Plain functions over arrays. Knows no runtime, no tokenizer and no files.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError
from structgen.options import Whole, Word

FloatArray = npt.NDArray[np.float32]
Pooling = Literal["mean", "cls", "last"]

WIDEST = 16_384
"""Most numbers of a vector: published models have up to a quarter of it. A request's vectors are in
the caller's memory, whatever the limits of the graph's process."""

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def check_pooling(pooling: str) -> Pooling:
    """Return ``pooling``.

    Raises:
        OptionError: the pooling is unknown.
    """
    return cast("Pooling", Word(POOLINGS)("pooling", pooling))


def checked(vectors: FloatArray, model: object) -> FloatArray:
    """Return the vectors or scores of a model, after a check that they are finite (JSON has no
    other numbers) and not too many.

    Raises:
        ModelError: they are not. ``model`` is its name or file in the message.
    """
    if (width := vectors[0].size) > WIDEST:
        raise ModelError(
            f"The model returns vectors with {width:,} numbers; the limit is {WIDEST:,}."
        )
    if not np.isfinite(vectors).all():
        raise ModelError(
            f"{model} returned NaN or infinite values. It is damaged, or its weights have too few "
            "bits for this text."
        )
    return vectors


def _pooled(length: int, pooling: Pooling, n_skipped: int) -> slice:
    """Return the tokens of a text that are averaged."""
    if pooling == "mean":
        return slice(min(n_skipped, length - 1), length)
    return slice(0, 1) if pooling == "cls" else slice(length - 1, length)


def weights(lengths: Sequence[int], pooling: Pooling, n_skipped: int, n_tokens: int) -> FloatArray:
    """Return the weight of each token in its text's vector, float32 ``[texts, tokens, 1]``."""
    out = np.zeros((len(lengths), n_tokens, 1), np.float32)
    for row, length in enumerate(lengths):
        if length:
            pooled = _pooled(length, pooling, n_skipped)
            out[row, pooled] = 1 / (pooled.stop - pooled.start)
    return out


def pool(
    hidden: npt.NDArray[np.floating], lengths: Sequence[int], pooling: Pooling, n_skipped: int = 0
) -> FloatArray:
    """Return the vector of each text, float32 ``[batch, width]``.

    Args:
        hidden: ``[batch, tokens, width]``: a vector for each token, padding at the end.
        lengths: tokens of each text. A text without any gets zeros.
        pooling: the mean of all tokens, the first token or the last.
        n_skipped: number of first tokens (the prompt's) that the mean leaves out.
    """
    out = np.zeros((len(lengths), hidden.shape[-1]), np.float32)
    for row, (vectors, length) in enumerate(zip(hidden, lengths, strict=True)):
        if length:
            # Only over this text's tokens, so the batch does not matter.
            pooled = vectors[_pooled(length, pooling, n_skipped)]
            out[row] = pooled.mean(axis=0, dtype=np.float32)
    return out


def finish(vectors: FloatArray, dimensions: int | None, normalize: bool) -> FloatArray:
    """Keep the first ``dimensions`` numbers of each vector, and scale each to length 1.

    A vector of zeros does not change.

    Raises:
        OptionError: vectors are shorter.
    """
    width = vectors.shape[-1]
    if dimensions is not None:
        Whole(1, width)("dimensions", dimensions)
        vectors = vectors[:, :dimensions]
    if normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths == 0, np.float32(1), lengths)
    return np.ascontiguousarray(vectors, np.float32)


def to_base64(vectors: FloatArray) -> list[str]:
    """Encode vectors in base64 of little-endian float32, as OpenAI's API does."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in vectors]
