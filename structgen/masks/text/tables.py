"""Where each character leads from the states of a text, as far as the vocabulary has it.

`TextTables` holds that of one automaton under one encoding: next states by minterm, the few
characters of a state that has few, the states of a level as rows of one array. It knows nothing of
the trie below a node; who walks it is built on this.
"""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from structgen.automaton.bits import bits
from structgen.automaton.regex import SymbolAutomaton
from structgen.masks.grouping import starts_of

from .character_arrays import Int32
from .characters import Characters
from .ends import TextWalk
from .transition_table import TransitionTable, spread

DEAD = -(1 << 30)
"""Where no text leads."""

_NARROW = 12
"""Characters that a state may read and still be walked character by character."""

FEW = 4
"""Characters of which each is looked for by itself, in large subtrees too."""


class TextTables:
    """Where the characters of a vocabulary lead in one symbol automaton.

    Attributes:
        characters: the vocabulary.
        symbols: the automaton.
        n_minterms: how many minterms it has.
        points: the characters by these.
    """

    def __init__(self, characters: Characters, symbols: SymbolAutomaton) -> None:
        self.characters = characters
        self.symbols = symbols
        self.n_minterms = symbols.alphabet.n_minterms
        self.points = characters.points_of(symbols.alphabet)
        self._narrows: dict[int, tuple[tuple[int, bytes, int], ...] | None] = {}
        self._tables: dict[int, npt.NDArray[np.int64]] = {}

    @functools.cached_property
    def rows(self) -> TransitionTable:
        """Transitions of many states at once."""
        return TransitionTable(self.symbols, self.characters.charge)

    def quoted(self, out: TextWalk, label: int) -> npt.NDArray[np.bool_]:
        """The closing quotes of ``out`` with a label, to be added to."""
        found = out.quotes.get(label)
        if found is None:
            found = out.quotes[label] = np.zeros(len(self.characters.arrays.quotes), bool)
        return found

    def table(self, state: int) -> npt.NDArray[np.int64]:
        """Next state by minterm; the last entry stands for characters of no text."""
        table = self._tables.get(state)
        if table is None:
            table = np.full(self.n_minterms + 1, DEAD, np.int64)
            spread(table, self.symbols.moves(state))
            self._tables[state] = table
            self.characters.charge(table.nbytes + 200)
        return table

    def narrow(self, state: int) -> tuple[tuple[int, bytes, int], ...] | None:
        """Each character that ``state`` may read, its plain spelling, and where it leads.

        None where there are many.
        """
        found = self._narrows.get(state, False)
        if found is not False:
            return found  # type: ignore[return-value]
        weights = self.points.weights
        total = 0
        steps: list[tuple[int, int]] = []
        for mask, to in self.symbols.moves(state):
            for minterm in bits(mask):
                total += weights[minterm]
                if total > _NARROW:
                    self._narrows[state] = None
                    return None
                steps.append((minterm, to))
        # Tuples of plain values: the garbage collector soon leaves them alone.
        narrow = tuple(
            (point, spelt, to)
            for minterm, to in steps
            if weights[minterm]
            for point, spelt in self.points.listed(minterm)
        )
        self._narrows[state] = narrow
        self.characters.charge(100 * len(narrow) + 100)
        return narrow

    def live(self, state: int) -> int:
        """All minterms that ``state`` may read."""
        live = 0
        for mask, _ in self.symbols.moves(state):
            live |= mask
        return live

    def is_few(self, state: int) -> bool:
        """Whether so few characters may be read that the way they lead is gone one by one."""
        narrow = self.narrow(state)
        return narrow is not None and len(narrow) <= FEW


def grouped(targets: npt.NDArray[np.int64], places: Int32) -> list[tuple[int, Int32]]:
    """``places``, ascending, by target, without the dead ones."""
    alive = targets != DEAD
    if not alive.any():
        return []
    targets, places = targets[alive], places[alive]
    order = np.argsort(targets, kind="stable")
    targets, places = targets[order], places[order]
    first = starts_of(targets)
    bounds = pairwise([*first.tolist(), len(places)])
    return [
        (state, places[a:b]) for state, (a, b) in zip(targets[first].tolist(), bounds, strict=True)
    ]
