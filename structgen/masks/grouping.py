"""NumPy helpers: concatenated ranges, groups of equal values, token ids as bits, growing tables.

`RowTable` holds the transitions of an automaton as arrays, which are filled when states are
reached. `StateRows` are those of a leaf, by byte, for walks level by level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import Leaf


def ranges(first: npt.NDArray[Any], last: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return all of ``first[i] .. last[i] - 1``, concatenated."""
    lengths = last - first
    ends = lengths.cumsum()
    if not len(ends):
        return np.zeros(0, np.int64)
    shifts = (first - (ends - lengths)).repeat(lengths)
    found: npt.NDArray[np.int64] = np.arange(int(ends[-1]), dtype=np.int64) + shifts
    return found


def starts_of(ordered: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the start of each run of equal values in a sorted array.

    Replaces `numpy.unique`, whose first call takes 10 ms to import masked arrays.
    """
    is_first = np.empty(len(ordered), bool)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct ``values``, ascending."""
    ordered = np.sort(values)
    found: npt.NDArray[Any] = ordered[starts_of(ordered)]
    return found


def bits_of(ids: npt.ArrayLike, n_words: int) -> npt.NDArray[np.uint32]:
    """Return token ids (repeats allowed) as a packed mask, uint32 ``[n_words]``."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[np.asarray(ids, np.int32)] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def words_of(ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the nonzero words of a packed mask of token ids (repeats allowed), and their
    positions.

    Cost: that of sorting; for a few hundred ids, cheaper than `bits_of`.
    """
    ids = np.sort(ids)
    positions = ids >> 5
    first = starts_of(positions)
    return positions[first].astype(np.int64), np.bitwise_or.reduceat(BIT[ids & 31], first)


def words_of_few(ids: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Like `words_of`, in a loop, which is faster for a few dozen ids."""
    table: dict[int, int] = {}
    for token in ids:
        table[token >> 5] = table.get(token >> 5, 0) | 1 << (token & 31)
    return np.array(list(table), np.int64), np.array(list(table.values()), np.uint32)


BIT: npt.NDArray[np.uint32] = (1 << np.arange(32)).astype(np.uint32)
"""The word with only that bit set: uint32 [32]."""


_FIRST_SIZE = 16


class RowTable(ABC):
    """Arrays by state, filled for each state on first use.

    Args:
        width: the number of symbols.
        charge: called with the bytes by which the arrays grow.

    Attributes:
        rows: int32 [states, width]; the next state, or -1, for the states that `cover` has seen.
        columns: further arrays of a subclass, with their initial values.
    """

    columns: ClassVar[dict[str, int]] = {}

    def __init__(self, width: int, charge: Callable[[int], None]) -> None:
        self._charge = charge
        self.rows = np.full((_FIRST_SIZE, width), -1, np.int32)
        self._filled = np.zeros(_FIRST_SIZE, bool)
        charge(self.rows.nbytes)

    @abstractmethod
    def fill(self, state: int) -> None:
        """Write the row and columns of a state. The arrays have room for it."""

    def cover(self, states: npt.NDArray[np.signedinteger]) -> None:
        """Ensure that each of ``states`` has its row."""
        if not len(states):
            return
        top = int(states.max())
        if top >= len(self._filled):
            self._make_room(top + 1)
        missing = ~self._filled[states]
        if not missing.any():
            return
        for state in distinct(states[missing]).tolist():
            self.fill(state)
            self._filled[state] = True

    def _make_room(self, n_states: int) -> None:
        before = len(self._filled)
        size = max(2 * before, n_states)
        for name, first in {"rows": -1, "_filled": 0, **self.columns}.items():
            old = getattr(self, name)
            new = np.full((size, *old.shape[1:]), first, old.dtype)
            new[:before] = old
            setattr(self, name, new)
        self._charge((4 * self.rows.shape[1] + 100) * (size - before))


class StateRows(RowTable):
    """The states of one leaf.

    Args:
        leaf: returns the leaf, which this must not keep alive.
        charge: called with the bytes by which the arrays grow.
        loops: returns whether a run leads back to a state; None: not needed.

    Attributes:
        labels: int32 [states]; their outcomes, or -1.
        loops: bool [states]; whether a run leads back to them.
    """

    columns: ClassVar[dict[str, int]] = {"labels": -1, "loops": 0}

    def __init__(
        self,
        leaf: Callable[[], Leaf | None],
        charge: Callable[[int], None],
        loops: Callable[[int], bool] | None = None,
    ) -> None:
        super().__init__(256, charge)
        self._leaf = leaf
        self._loops = loops
        self.labels = np.full(_FIRST_SIZE, -1, np.int32)
        self.loops = np.zeros(_FIRST_SIZE, bool)

    def fill(self, state: int) -> None:
        """See `RowTable`."""
        leaf = self._leaf()
        assert leaf is not None
        row = leaf.row(state)
        if row:
            self.rows[state, list(row)] = list(row.values())
        self.labels[state] = leaf.label(state)
        if self._loops is not None:
            self.loops[state] = self._loops(state)
