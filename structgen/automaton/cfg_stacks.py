"""Stacks of open goals: which terminals may come next, and what each of them leads to.

A place in a text is a set of *tops*, pairs of a goal state and the goal's *continuation*: the
interned set of tops to go on with when the goal ends. Continuations are sets, so however many ways
lead to a place, a goal begun there is begun once; and they are identified by content, so equal
places are one integer. That is a graph-structured stack without positions (Tomita 1986; Scott &
Johnstone 2010): whatever the grammar, memory grows with the square of the text at worst, and with
its depth of nesting for grammars people write. A goal that stands last in its rule hands its own
continuation on (a tail call), so right recursion needs no depth either.

This module knows terminals by number only.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import CompileLimitExceeded
from .cfg_goals import Goals

BOTTOM = -1
"""In a continuation: the text may end here."""

MAX_PLACES = 2_000_000
"""Most places, and most continuations, of one grammar."""

_STATE_BITS = 24
_STATE_MASK = (1 << _STATE_BITS) - 1


class Stacks:
    """The places of one grammar.

    Args:
        goals: the goal automata of a grammar that has a text.

    Attributes:
        start: the place where a text begins.
        continuations: the tops of each continuation, packed (`unpack`), or `BOTTOM`.
        places: the ``(goal state, continuation)`` pairs of each place.
        accepting: whether the text may end at a place.
    """

    def __init__(self, goals: Goals) -> None:
        self.goals = goals
        self.continuations: list[frozenset[int]] = []
        self._continuation_ids: dict[frozenset[int], int] = {}
        self.places: list[tuple[tuple[int, int], ...]] = []
        self.accepting: list[bool] = []
        self._place_ids: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        self._expected: list[frozenset[int] | None] = []
        self._calls: list[dict[int, int] | None] = []
        self._shifts: dict[tuple[int, int], int] = {}
        self.start = self._place({goals.origin: {BOTTOM}}, goals.accepts[goals.origin])

    def continuation(self, tops: frozenset[int]) -> int:
        """The number of a continuation."""
        found = self._continuation_ids.get(tops)
        if found is None:
            found = self._continuation_ids[tops] = len(self.continuations)
            if found > MAX_PLACES:
                raise CompileLimitExceeded(
                    "too many continuations are open", limit=MAX_PLACES, actual=found
                )
            self.continuations.append(tops)
        return found

    def calls(self, place: int) -> dict[int, int]:
        """Goals that may begin at ``place``, and their continuations."""
        found = self._calls[place]
        if found is None:
            goals = self.goals
            tops: dict[int, set[int]] = {}
            for state, below in self.places[place]:
                for symbol, to in goals.edges(state).items():
                    if symbol >= 0:
                        continue
                    above = tops.setdefault(~symbol, set())
                    if goals.is_final[to] or (
                        goals.accepts[to] and goals.goal_of[to] == ~symbol and goals.is_loop(to)
                    ):
                        above |= self.continuations[below]
                    else:
                        above.add(to | below << _STATE_BITS)
            found = {goal: self.continuation(frozenset(t)) for goal, t in tops.items()}
            self._calls[place] = found
        return found

    def expected(self, place: int) -> frozenset[int]:
        """The terminals that may come next."""
        found = self._expected[place]
        if found is None:
            goals = self.goals
            out: set[int] = set()
            for state, _ in self.places[place]:
                out.update(s for s in goals.edges(state) if s >= 0)
            for goal in self.calls(place):
                out.update(goals.start(goal))
            found = self._expected[place] = frozenset(out)
        return found

    def shift(self, place: int, terminal: int) -> int:
        """The place after one of the expected terminals."""
        key = (place, terminal)
        found = self._shifts.get(key)
        if found is None:
            found = self._shifts[key] = self.union([(place, terminal)])
        return found

    def union(self, steps: Iterable[tuple[int, int]], places: Iterable[int] = ()) -> int:
        """The place that any of ``steps`` (place, terminal) or ``places`` can be."""
        goals = self.goals
        tops: dict[int, set[int]] = {}
        todo: list[tuple[int, frozenset[int]]] = []
        accepting = False
        for place, terminal in steps:
            for state, below in self.places[place]:
                to = goals.edges(state).get(terminal)
                if to is not None:
                    todo.append((to, self.continuations[below]))
            for goal, above in self.calls(place).items():
                to = goals.start(goal).get(terminal)
                if to is not None:
                    todo.append((to, self.continuations[above]))
        while todo:
            state, entries = todo.pop()
            known = tops.get(state)
            if known is None:
                tops[state] = set(entries)
                new: Iterable[int] = entries
            else:
                new = entries - known
                known |= entries
            if not goals.accepts[state]:
                continue
            for top in new:
                if top == BOTTOM:
                    accepting = True
                else:
                    todo.append((top & _STATE_MASK, self.continuations[top >> _STATE_BITS]))
        for place in places:
            accepting = accepting or self.accepting[place]
            for state, below in self.places[place]:
                tops.setdefault(state, set()).update(self.continuations[below])
        return self._place(tops, accepting)

    def _place(self, tops: dict[int, set[int]], accepting: bool) -> int:
        pairs = tuple(
            sorted(
                (state, self.continuation(frozenset(entries)))
                for state, entries in tops.items()
                if not self.goals.is_final[state]
            )
        )
        key = (accepting, pairs)
        found = self._place_ids.get(key)
        if found is None:
            found = self._place_ids[key] = len(self.places)
            if found > MAX_PLACES:
                raise CompileLimitExceeded(
                    "too many places in the grammar", limit=MAX_PLACES, actual=found
                )
            self.places.append(pairs)
            self.accepting.append(accepting)
            self._expected.append(None)
            self._calls.append(None)
        return found


def unpack(top: int) -> tuple[int, int]:
    """The ``(goal state, continuation)`` of a packed top."""
    return top & _STATE_MASK, top >> _STATE_BITS
