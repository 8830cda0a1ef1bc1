"""A symbol automaton's transitions as an array, one row a state, filled as states are met.

States are numbered as they turn up: their own numbers may be anything. It knows no vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import SymbolAutomaton
from structgen.masks.grouping import distinct

Int32 = npt.NDArray[np.int32]


class TransitionTable:
    """Transitions by minterm.

    Args:
        symbols: the automaton.
        charge: told the bytes that the table grows by.

    Attributes:
        rows: int32 [states, minterms + 1]; the number of the next state, -1 for none; the last
        column
            stands for what is no character of a text.
        goes_on: bool [states]; whether there is any next state.
        states: the automaton's own states, by number.
    """

    def __init__(self, symbols: SymbolAutomaton, charge: Callable[[int], None]) -> None:
        self._symbols = symbols
        self._charge = charge
        self._numbers: dict[int, int] = {}
        self._filled = np.zeros(16, bool)
        self.states: list[int] = []
        self.rows = np.full((16, symbols.alphabet.n_minterms + 1), -1, np.int32)
        self.goes_on = np.zeros(16, bool)

    def number(self, state: int) -> int:
        """The number of one of the automaton's states."""
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self.states)
            self.states.append(state)
        return found

    def cover(self, numbers: Int32) -> None:
        """Make sure that states have their rows."""
        if not len(numbers):
            return
        missing = numbers
        if int(numbers.max()) < len(self._filled):
            missing = numbers[~self._filled[numbers]]
            if not len(missing):
                return
        for number in distinct(missing).tolist():
            if number < len(self._filled) and self._filled[number]:
                continue
            moves = self._symbols.moves(self.states[number])
            targets = [(mask, self.number(to)) for mask, to in moves]
            self._make_room(len(self.states))
            row = self.rows[number]
            for mask, to in targets:
                while mask:
                    bit = mask & -mask
                    mask ^= bit
                    row[bit.bit_length() - 1] = to
            self.goes_on[number] = bool(targets)
            self._filled[number] = True

    def _make_room(self, n_states: int) -> None:
        size = len(self._filled)
        if n_states <= size:
            return
        more = max(size, n_states - size)
        blank = np.full((more, self.rows.shape[1]), -1, np.int32)
        self.rows = np.concatenate((self.rows, blank))
        self._filled = np.concatenate((self._filled, np.zeros(more, bool)))
        self.goes_on = np.concatenate((self.goes_on, np.zeros(more, bool)))
        self._charge(blank.nbytes + 100 * more)
