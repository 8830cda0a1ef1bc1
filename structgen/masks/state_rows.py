"""Where bytes lead from the states of a leaf, as arrays that are filled as states are met.

Walks level by level read them, of any leaf and of the lexers of grammars. Knows no tries.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import Leaf

from .grouping import distinct

_FIRST_SIZE = 16


class StateRows:
    """The states of one leaf.

    Args:
        leaf: gives the leaf, which may not be kept alive.
        charge: told the bytes that the arrays grow by.
        loops: whether a run leads back to a state; None: it is not asked.

    Attributes:
        rows: int32 [states, 256]; the next state, or -1, of the states that `cover` has seen.
        labels: int32 [states]; their outcomes, or -1.
        loops: bool [states]; whether a run leads back to them.
    """

    def __init__(
        self,
        leaf: Callable[[], Leaf | None],
        charge: Callable[[int], None],
        loops: Callable[[int], bool] | None = None,
    ) -> None:
        self._leaf = leaf
        self._loops = loops
        self._charge = charge
        self.rows = np.full((_FIRST_SIZE, 256), -1, np.int32)
        self.labels = np.full(_FIRST_SIZE, -1, np.int32)
        self.loops = np.zeros(_FIRST_SIZE, bool)
        self._filled = np.zeros(_FIRST_SIZE, bool)
        charge(self.rows.nbytes)

    def cover(self, states: npt.NDArray[np.signedinteger]) -> None:
        """Make sure that every one of ``states`` has its row."""
        if not len(states):
            return
        top = int(states.max())
        if top >= len(self._filled):
            before = len(self._filled)
            size = max(2 * before, top + 1)
            for name, fill in (("rows", -1), ("labels", -1), ("loops", 0), ("_filled", 0)):
                old = getattr(self, name)
                new = np.full((size, *old.shape[1:]), fill, old.dtype)
                new[:before] = old
                setattr(self, name, new)
            self._charge(1024 * (size - before))
        missing = ~self._filled[states]
        if not missing.any():
            return
        leaf = self._leaf()
        assert leaf is not None
        for state in distinct(states[missing]).tolist():
            row = leaf.row(state)
            if row:
                self.rows[state, list(row)] = list(row.values())
            self.labels[state] = leaf.label(state)
            if self._loops is not None:
                self.loops[state] = self._loops(state)
            self._filled[state] = True
