"""NumPy helpers: concatenated ranges, groups of equal values, token ids as bits, growing tables.

`RowTable` holds where the states of an automaton lead, as arrays filled as states are reached.
`StateRows` are those of a leaf, by byte, for walks level by level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import Leaf


def ranges(first: npt.NDArray[Any], last: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return all of ``first[i] .. last[i] - 1``, one after another."""
    lengths = last - first
    ends = lengths.cumsum()
    if not len(ends):
        return np.zeros(0, np.int64)
    shifts = (first - (ends - lengths)).repeat(lengths)
    found: npt.NDArray[np.int64] = np.arange(int(ends[-1]), dtype=np.int64) + shifts
    return found


def starts_of(ordered: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where each different value of an array in order begins.

    In place of `numpy.unique`, whose first call imports masked arrays: 10 ms.
    """
    is_first = np.empty(len(ordered), bool)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the different ``values``, ascending."""
    ordered = np.sort(values)
    found: npt.NDArray[Any] = ordered[starts_of(ordered)]
    return found


def bits_of(ids: npt.ArrayLike, n_words: int) -> npt.NDArray[np.uint32]:
    """Token ids (repeats allowed) as a packed mask, uint32 ``[n_words]``."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[np.asarray(ids, np.int32)] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def words_of(ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return the words of a packed mask with these token ids (repeats allowed), and their places.

    Cost: what sorting does; a few hundred are cheaper so than by `bits_of`.
    """
    ids = np.sort(ids)
    positions = ids >> 5
    first = starts_of(positions)
    return positions[first].astype(np.int64), np.bitwise_or.reduceat(BIT[ids & 31], first)


def words_of_few(ids: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Like `words_of`, one by one, which is quicker for a few dozen."""
    table: dict[int, int] = {}
    for token in ids:
        table[token >> 5] = table.get(token >> 5, 0) | 1 << (token & 31)
    return np.array(list(table), np.int64), np.array(list(table.values()), np.uint32)


BIT: npt.NDArray[np.uint32] = (1 << np.arange(32)).astype(np.uint32)
"""The word in which that bit alone is set: uint32 [32]."""


_FIRST_SIZE = 16


class RowTable(ABC):
    """Arrays by state, filled for each state on first use.

    Args:
        width: how many symbols there are.
        charge: called with the bytes that the arrays grow by.

    Attributes:
        rows: int32 [states, width]; the next state, or -1, of the states that `cover` has seen.
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
        """Write the row of a state, for which there is room, and what goes with it."""

    def cover(self, states: npt.NDArray[np.signedinteger]) -> None:
        """Make sure that every one of ``states`` has its row."""
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
        leaf: gives the leaf, which may not be kept alive.
        charge: called with the bytes that the arrays grow by.
        loops: whether a run leads back to a state; None: it is not asked.

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
