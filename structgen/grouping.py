"""Small NumPy helpers: ranges laid end to end, and where equal values begin."""

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
