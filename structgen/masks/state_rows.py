"""Where the states of an automaton lead, as arrays that are filled as states are met.

`RowTable` is how such arrays grow; `StateRows` are those of a leaf, by byte: walks level by level
read them, of any leaf and of the lexers of grammars. Knows no tries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import Leaf

from .grouping import distinct

_FIRST_SIZE = 16


class RowTable(ABC):
    """Arrays by state, each state's part of which is filled when it is first asked for.

    Args:
        width: how many symbols there are.
        charge: told the bytes that the arrays grow by.

    Attributes:
        rows: int32 [states, width]; the next state, or -1, of the states that `cover` has seen.
        columns: the arrays that a subclass has besides, and what stands in them at first.
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
        charge: told the bytes that the arrays grow by.
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
