"""Small NumPy helpers: ranges laid end to end, where equal values begin, token ids as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def ranges(first: npt.NDArray[Any], last: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """All of ``first[i] .. last[i] - 1``, one after another."""
    lengths = last - first
    ends = lengths.cumsum()
    if not len(ends):
        return np.zeros(0, np.int64)
    shifts = (first - (ends - lengths)).repeat(lengths)
    found: npt.NDArray[np.int64] = np.arange(int(ends[-1]), dtype=np.int64) + shifts
    return found


def starts_of(ordered: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where each different value of an array in order begins.

    In place of `numpy.unique`, whose first call imports masked arrays: 10 ms.
    """
    is_first = np.empty(len(ordered), bool)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The different ``values``, ascending."""
    ordered = np.sort(values)
    found: npt.NDArray[Any] = ordered[starts_of(ordered)]
    return found


def bits_of(ids: npt.ArrayLike, n_words: int) -> npt.NDArray[np.uint32]:
    """Token ids (repeats allowed) as a packed mask, uint32 ``[n_words]``."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[np.asarray(ids, np.int32)] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def words_of(ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The words of a packed mask that token ids (repeats allowed) are in: where, and what they are.

    Cost: what sorting does; a few hundred are cheaper so than by `bits_of`.
    """
    ids = np.sort(ids)
    positions = ids >> 5
    first = starts_of(positions)
    return positions[first].astype(np.int64), np.bitwise_or.reduceat(BIT[ids & 31], first)


def words_of_few(ids: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """As `words_of`, one by one, which is quicker for a few dozen."""
    table: dict[int, int] = {}
    for token in ids:
        table[token >> 5] = table.get(token >> 5, 0) | 1 << (token & 31)
    return np.array(list(table), np.int64), np.array(list(table.values()), np.uint32)


BIT: npt.NDArray[np.uint32] = (1 << np.arange(32)).astype(np.uint32)
"""The word in which that bit alone is set: uint32 [32]."""
