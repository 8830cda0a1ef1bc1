"""Which terminals may begin at a place, and how they may end there.

Where no demand leads to a dead end these are all that the rules expect. Elsewhere a terminal may
begin only if, after some of its ends, the text can still be finished: what goal states say of that
is found once for all places that have them.
"""

from __future__ import annotations

from collections.abc import Callable

from structgen.automaton.work import WORK

from .completion import Completion
from .embedded_terminals import EmbeddedTerminal
from .lexer import Lexer
from .neighbours import Neighbours
from .stacks import Stacks
from .terminal_sets import Expected

_MAX_EXITS = 500

_Asked = tuple[tuple[tuple[int, frozenset[int]], ...], dict[int, list[int]]]
"""Questions to the stacks of a place: the number of a top, and demands, of which one is to be met
by its continuation; and for each terminal the questions of which one is to be answered with yes."""


class Entries:
    """The beginnings of terminals of one grammar.

    Args:
        embedded: the terminals that are no patterns.
        after: the place after some terminals.
        neighbours: made when it is first asked for.
    """

    def __init__(
        self,
        stacks: Stacks,
        lexer: Lexer,
        ignore: frozenset[int],
        embedded: dict[int, EmbeddedTerminal],
        is_free: bool,
        after: Callable[[int, tuple[int, ...]], int],
        neighbours: Callable[[], Neighbours],
        completion: Completion,
    ) -> None:
        self._stacks = stacks
        self._lexer = lexer
        self._rest = lexer.terminals.rest
        self._ignore = ignore
        self._embedded = embedded
        self._is_free = is_free
        self._after = after
        self._made_neighbours = neighbours
        self._completion = completion
        self._free_entries: dict[tuple[tuple[int, ...], int], int] = {}
        # See `_fine` and `_met`.
        self._asked: dict[tuple[int, ...], _Asked] = {}
        self._answered: dict[
            tuple[tuple[int, ...], tuple[bool, ...]], tuple[frozenset[int], frozenset[int]]
        ] = {}
        self._met_by: dict[int, tuple[frozenset[int], frozenset[int]]] = {}

    @property
    def _neighbours(self) -> Neighbours:
        return self._made_neighbours()

    def find(self, place: int, condition: int) -> int:
        """The lexer state in which the next terminal begins, or -1 when nothing can follow."""
        if self._is_free:
            states = self._stacks.shapes[place]
            if not states and not self._stacks.accepting[place]:
                return -1
            found = self._free_entries.get((states, condition))
            if found is None:
                q = self._lexer.entry(self._stacks.expected(place) | self._ignore, condition)
                found = q if self._lexer.goes_on(q) else -1
                self._free_entries[states, condition] = found
            return found
        fine, others = self._fine(place)
        met, unclear = self._met(condition)
        sure = fine & met
        doubtful = (others & met) | (self._stacks.expected(place) | self._ignore) & unclear
        if not doubtful:
            q = self._lexer.entry(sure, condition)
            return q if self._lexer.goes_on(q) else -1
        chosen: list[Expected] = [(terminal, None) for terminal in sure]
        chosen += self._chosen(place, condition, doubtful)
        q = self._lexer.entry(tuple(sorted(chosen, key=lambda e: e[0])), condition)
        return q if self._lexer.goes_on(q) else -1

    def _fine(self, place: int) -> tuple[frozenset[int], frozenset[int]]:
        """Of the terminals that may begin at a place: those after any end of which the text can
        surely be finished, and the others.

        What the goal states say is found once for all places that have them. The stacks below are
        asked a few questions, and all with the same answers have the same terminals.
        """
        shape, neighbours = self._stacks.shapes[place], self._neighbours
        asked = self._asked.get(shape)
        if asked is None:
            numbers: dict[tuple[int, frozenset[int]], int] = {}
            terminals: dict[int, list[int]] = {}
            for terminal in (self._stacks.expected(place) | self._ignore).difference(
                self._embedded
            ):
                WORK.spend(1 + (len(shape) >> 2))
                terminals[terminal] = [
                    numbers.setdefault((i, ends), len(numbers))
                    for i, state in enumerate(shape)
                    if (ends := neighbours.ends_after(state, terminal))
                ]
            asked = self._asked[shape] = tuple(numbers), terminals
        questions, terminals = asked
        tops = self._stacks.places[place]
        WORK.spend(1 + (len(questions) >> 3))
        answers = tuple([neighbours.can_end(tops[i][1], demands) for i, demands in questions])
        found = self._answered.get((shape, answers))
        if found is None:
            fine = frozenset(t for t, asks in terminals.items() if any(answers[n] for n in asks))
            found = self._answered[shape, answers] = fine, frozenset(terminals).difference(fine)
        return found

    def _met(self, condition: int) -> tuple[frozenset[int], frozenset[int]]:
        """The terminals whose first character meets a condition, whichever it is; and those of
        which that depends on the character."""
        found = self._met_by.get(condition)
        if found is None:
            every = [t for t, start in enumerate(self._lexer.terminals.starts) if start >= 0]
            is_met = {t: self._lexer.is_met_at_once(t, condition) for t in every}
            met = every if condition == self._rest.anything else [t for t in every if is_met[t]]
            unclear = frozenset(t for t in every if is_met[t] is False).difference(met)
            found = self._met_by[condition] = frozenset(met), unclear
        return found

    def _chosen(self, place: int, condition: int, expected: frozenset[int]) -> list[Expected]:
        """Which of some terminals may begin at a place, and how they may end."""
        chosen: list[Expected] = []
        for terminal in sorted(expected.difference(self._embedded)):
            after = self._after(place, (terminal,))
            met = condition == self._rest.anything
            if not met:
                at_once = self._lexer.is_met_at_once(terminal, condition)
                if at_once is None:
                    continue
                met = at_once
            if met and self._neighbours.is_certain(after, terminal):
                chosen.append((terminal, None))
                continue
            start = self._lexer.terminals.starts[terminal]
            exits = self._lexer.exits.from_state(terminal, start, condition, _MAX_EXITS)
            if exits is None:
                chosen.append((terminal, after))
                continue
            live = frozenset(c for c in exits if self.can_finish(after, c))
            if live:
                chosen.append((terminal, None if len(live) == len(exits) else live))
        return chosen

    def can_finish(self, place: int, condition: int) -> bool:
        """Whether a text can be finished from a place under a condition."""
        if self._neighbours.is_possible(place, condition):
            return True
        return self._completion.is_possible(place, condition)
