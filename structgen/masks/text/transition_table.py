"""A symbol automaton's transitions as an array, one row a state, filled as states are met.

States are numbered as they turn up: their own numbers may be anything. It knows no vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.bits import bits
from structgen.automaton.regex import SymbolAutomaton
from structgen.masks.state_rows import RowTable


class TransitionTable(RowTable):
    """Transitions by minterm; the last column stands for what is no character of a text.

    Args:
        symbols: the automaton.
        charge: told the bytes that the table grows by.

    Attributes:
        goes_on: bool [states]; whether there is any next state.
        states: the automaton's own states, by number.
    """

    columns: ClassVar[dict[str, int]] = {"goes_on": 0}

    def __init__(self, symbols: SymbolAutomaton, charge: Callable[[int], None]) -> None:
        super().__init__(symbols.alphabet.n_minterms + 1, charge)
        self._symbols = symbols
        self._numbers: dict[int, int] = {}
        self.states: list[int] = []
        self.goes_on = np.zeros(len(self.rows), bool)

    def number(self, state: int) -> int:
        """The number of one of the automaton's states."""
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self.states)
            self.states.append(state)
        return found

    def fill(self, state: int) -> None:
        """See `RowTable`; ``state`` is a number."""
        moves = self._symbols.moves(self.states[state])
        spread(self.rows[state], [(mask, self.number(to)) for mask, to in moves])
        self.goes_on[state] = bool(moves)


def spread(row: npt.NDArray[Any], moves: Iterable[tuple[int, int]]) -> None:
    """Write into ``row`` where each minterm leads by ``moves``."""
    for mask, to in moves:
        row[bits(mask)] = to
