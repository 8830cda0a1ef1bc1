"""Masks over logits in NumPy, for decoding loops of one's own.

Owns what a mask does to scores outside of structgen's own loop. Knows no runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.constraint import Cursor

Scores: TypeAlias = "npt.NDArray[np.floating[Any]]"
"""Logits, of any floating type."""

# Row b: the bounds of eight neighbouring tokens whose mask bits are the byte b.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BOUNDS = np.where(_BITS == 1, np.float32(np.inf), np.float32(-np.inf))


def apply_mask(logits: Scores, mask: npt.NDArray[Any]) -> Scores:
    """Set the logits of all tokens that a mask does not allow to minus infinity, in place.

    Args:
        logits: ``[V]`` or ``[batch, V]``, of any floating type. Those beyond the mask's vocabulary,
            which models have that are wider than their tokenizer, are not allowed.
        mask: int32 or uint32 ``[words]`` or ``[batch, words]``, from `Cursor.fill_mask` or
            `structgen.fill_masks`.

    Returns:
        ``logits``.

    Raises:
        ValueError: shapes or types do not fit.

    Cost: 40 µs a row of 128,000 tokens.
    """
    if mask.dtype not in (np.int32, np.uint32):
        raise ValueError(f"a mask is int32 or uint32, got {mask.dtype}.")
    if not np.issubdtype(logits.dtype, np.floating):
        raise ValueError(f"logits are floating numbers, got {logits.dtype}.")
    width, n_bits = logits.shape[-1], 32 * mask.shape[-1]
    if logits.ndim not in (1, 2) or logits.shape[:-1] != mask.shape[:-1] or width <= n_bits - 32:
        raise ValueError(
            f"logits {list(logits.shape)} and a mask {list(mask.shape)} do not go together: it has "
            "as many rows, and no more bits than there are logits."
        )
    rows = logits.reshape(-1, width) if logits.ndim == 1 else logits
    for row, most in zip(rows, bounds(mask.reshape(len(rows), -1), width), strict=True):
        np.minimum(row, most, out=row)
    return logits


def bounds(mask: npt.NDArray[Any], width: int) -> Iterator[npt.NDArray[np.float32]]:
    """The most that each logit may be: infinity where a mask allows the token, else minus infinity.

    The lesser of logits and bounds are the masked logits. Looked up eight at a time, they take the
    same time whatever the mask; to unpack bits and select takes 5 to 10 times as long.

    Args:
        mask: int32 or uint32 ``[batch, words]``.
        width: how many logits there are; those beyond the mask are not allowed.

    Yields:
        float32 ``[width]`` for each row, in the same array, which stays in the processor's caches.
    """
    rows = np.ascontiguousarray(mask).view(np.uint8)
    n_bytes = rows.shape[1]
    room = np.empty((max(n_bytes, (width + 7) // 8), 8), np.float32)
    room[n_bytes:] = -np.inf
    found, known = room.reshape(-1)[:width], room[:n_bytes]
    before = None
    for row in rows:
        # Sequences of a batch are often at the same place of the same type.
        if before is None or not np.array_equal(row, before):
            np.take(_BOUNDS, row, axis=0, out=known, mode="clip")
        before = row
        yield found


def masked(logits: Scores, cursor: Cursor) -> Scores:
    """A copy of ``logits``, ``[V]``, in which only what the cursor allows is above minus infinity.

    Raises:
        ValueError: there are fewer logits than the vocabulary has tokens.
    """
    mask = np.empty((cursor.vocabulary.size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    if logits.shape[-1] < cursor.vocabulary.size:
        raise ValueError(
            f"{logits.shape[-1]:,} logits are fewer than the vocabulary's "
            f"{cursor.vocabulary.size:,} tokens. Give the vocabulary their width: "
            "Vocabulary.from_tokenizer_json(path, size=...)."
        )
    out: Scores = np.array(logits)
    apply_mask(out, mask)
    return out
