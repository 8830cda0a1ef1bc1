"""The graph-structured stack of a grammar: which terminals may come next, and the place after each.

A place is a set of *tops*: pairs of a nonterminal's state and its *continuation*, the interned set
of tops to return to when the nonterminal ends. A nonterminal begins only once at a place, and equal
places are one integer (Tomita 1986; Scott & Johnstone 2010). Memory grows with the square of the
text's length at worst, and with the depth of nesting for usual grammars. The last nonterminal of a
rule passes on its own continuation, so right recursion needs no stack.

`Rests` finds short ways from a place to the end of a text, one nonterminal at a time; the caller
decides how a nonterminal ends. Terminals are numbers here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from typing import TypeAlias

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

from .nonterminals import NonterminalAutomata

TEXT_END = -1
"""In a continuation: the text may end here."""

MAX_PLACES = 2_000_000
"""The most places, and the most continuations, of one grammar."""

_Moves = tuple[int, tuple[tuple[int, int], ...]]

_STATE_BITS = 24
_STATE_MASK = (1 << _STATE_BITS) - 1


class PlaceGraph:
    """The places of one grammar.

    Args:
        goals: the goal automata of a grammar that has a text.

    Attributes:
        start: the place where a text begins.
        continuations: the tops of each continuation, packed (`unpack`), or `TEXT_END`.
        places: the ``(goal state, continuation)`` pairs of each place.
        shapes: the goal states of each place, which determine what may come next.
        accepting: whether the text may end at each place.
    """

    def __init__(self, goals: NonterminalAutomata) -> None:
        self.goals = goals
        self.continuations: list[frozenset[int]] = []
        self._continuation_ids: dict[frozenset[int], int] = {}
        self.places: list[tuple[tuple[int, int], ...]] = []
        self.accepting: list[bool] = []
        self._place_ids: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        self.shapes: list[tuple[int, ...]] = []
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._expected: dict[tuple[int, ...], frozenset[int]] = {}
        self._called: dict[int, int] = {}
        self._moves: dict[int, _Moves] = {}
        self._shifts: dict[int, int] = {}
        self.start = self._place(
            {goals.origin: self.continuation(frozenset((TEXT_END,)))}, goals.accepts[goals.origin]
        )

    def continuation(self, tops: frozenset[int]) -> int:
        """Return the number of a continuation."""
        found = self._continuation_ids.get(tops)
        if found is None:
            found = _next(self.continuations, len(tops), "too many continuations are open")
            self._continuation_ids[tops] = found
            self.continuations.append(tops)
        return found

    def _call(self, place: int, goal: int) -> int:
        """Return the continuation of a goal that begins at a place."""
        key = place << _STATE_BITS | goal
        found = self._called.get(key)
        if found is None:
            goals = self.goals
            tops: set[int] = set()
            WORK.spend(1 + (len(self.places[place]) >> 3))
            WORK.hold(100)
            for state, below in self.places[place]:
                if ~goal not in goals.symbols(state):
                    continue
                to = goals.go(state, ~goal)
                if goals.is_final[to] or (
                    goals.accepts[to] and goals.goal_of[to] == goal and goals.is_loop(to)
                ):
                    more = self.continuations[below]
                    WORK.spend(1 + (len(more) >> 4))
                    tops |= more
                else:
                    tops.add(to | below << _STATE_BITS)
            found = self._called[key] = self.continuation(frozenset(tops))
        return found

    def expected(self, place: int) -> frozenset[int]:
        """Return the terminals that may come next."""
        states = self.shapes[place]
        found = self._expected.get(states)
        if found is None:
            goals = self.goals
            expected: set[int] = set()
            for state in states:
                WORK.spend(1 + (len(goals.symbols(state)) >> 2))
                for symbol in goals.symbols(state):
                    if symbol >= 0:
                        expected.add(symbol)
                        continue
                    first = goals.first(~symbol)
                    WORK.spend(len(first) >> 5)
                    expected |= first
            found = self._expected[states] = frozenset(expected)
        return found

    def shift(self, place: int, terminal: int) -> int:
        """Return the place after one of the expected terminals."""
        key = place << _STATE_BITS | terminal
        found = self._shifts.get(key)
        if found is None:
            found = self._shifts[key] = self.union(((place, terminal),))
        return found

    def _moves_of(self, state: int, terminal: int) -> _Moves:
        """Return the state after a terminal from a goal state: in its own goal (-1: none); and the
        goals that begin with it, with the state after it in each."""
        key = state << _STATE_BITS | terminal
        found = self._moves.get(key)
        if found is None:
            symbols, first, go = self.goals.symbols(state), self.goals.first, self.goals.go
            own = go(state, terminal) if terminal in symbols else -1
            WORK.spend(1 + (len(symbols) >> 2))
            begun = [(~s, go(s, terminal)) for s in symbols if s < 0 and terminal in first(~s)]
            WORK.hold(250 + 100 * len(begun))
            found = self._moves[key] = (own, tuple(begun))
        return found

    def union(self, steps: Iterable[tuple[int, int]], places: Iterable[int] = ()) -> int:
        """Return the union of ``places`` and of the places after ``steps`` (place, terminal)."""
        accepts, continuations = self.goals.accepts, self.continuations
        # Goal states with their continuations: most have one, which has a number already.
        tops: dict[int, int | set[int]] = {}
        todo: list[tuple[int, int]] = []
        accepting = False
        for place, terminal in steps:
            for state, below in self.places[place]:
                own, begun = self._moves_of(state, terminal)
                if own >= 0:
                    todo.append((own, below))
                for goal, to in begun:
                    todo.append((to, self._call(place, goal)))
        WORK.spend(len(todo) >> 3)
        while todo:
            state, below = todo.pop()
            known = tops.get(state)
            new: Collection[int] = ()
            if known is None:
                tops[state] = below
                new = continuations[below]
            elif known != below:
                if isinstance(known, int):
                    known = tops[state] = set(continuations[known])
                more = continuations[below]
                WORK.spend(1 + (len(more) >> 5))
                new = more - known
                known |= new
            if accepts[state]:
                WORK.spend(1 + (len(new) >> 3))
                for top in new:
                    if top == TEXT_END:
                        accepting = True
                    else:
                        todo.append((top & _STATE_MASK, top >> _STATE_BITS))
        for place in places:
            WORK.spend(1 + (len(self.places[place]) >> 3))
            accepting = accepting or self.accepting[place]
            for state, below in self.places[place]:
                known = tops.get(state, below)
                if known == below:
                    tops[state] = below
                    continue
                if isinstance(known, int):
                    known = tops[state] = set(continuations[known])
                WORK.spend(1 + (len(continuations[below]) >> 5))
                known |= continuations[below]
        return self._place(tops, accepting)

    def _place(self, tops: dict[int, int | set[int]], accepting: bool) -> int:
        is_final = self.goals.is_final
        pairs = tuple(
            sorted(
                [
                    (
                        state,
                        below if isinstance(below, int) else self.continuation(frozenset(below)),
                    )
                    for state, below in tops.items()
                    if not is_final[state]
                ]
            )
        )
        key = (accepting, pairs)
        found = self._place_ids.get(key)
        if found is None:
            found = _next(self.places, len(pairs), "too many places in the grammar")
            self._place_ids[key] = found
            self.places.append(pairs)
            self.accepting.append(accepting)
            shape = tuple([state for state, _ in pairs])
            self.shapes.append(self._shapes.setdefault(shape, shape))
        return found


def _next(made: Sized, n_tops: int, problem: str) -> int:
    """Return the number of a new place or continuation with ``n_tops`` tops; enforce the bound."""
    WORK.spend(1 + (n_tops >> 2))
    WORK.hold(300 + 70 * n_tops)
    number = len(made)
    if number > MAX_PLACES:
        raise CompileLimitExceeded(problem, limit=MAX_PLACES, actual=number)
    return number


def unpack(top: int) -> tuple[int, int]:
    """Return the ``(goal state, continuation)`` of a packed top."""
    return top & _STATE_MASK, top >> _STATE_BITS


Rest: TypeAlias = "tuple[int, Text, tuple[int, int] | None]"
"""Length of a whole completion, its first part, and the (continuation, condition) after it."""


class Rests:
    """The completions of one grammar's stacks.

    Args:
        graph: the places.
        ends: for a goal state under a condition, returns a short text to the goal's end for each
            condition that can hold there.
        at_end: returns the completion after the end of all goals, under a condition.
    """

    def __init__(
        self,
        graph: PlaceGraph,
        ends: Callable[[tuple[int, int]], Mapping[int, Text]],
        at_end: Callable[[int], Rest | None],
    ) -> None:
        self._graph = graph
        self._ends = ends
        self._at_end = at_end
        self._known: dict[tuple[int, int], Rest | None] = {}
        self._spelt: dict[tuple[int, int], Text] = {}

    def text_of(self, place: int, condition: int) -> Text | None:
        """Return a short way to the end from a place under a condition, if it finds one."""
        found = self.of_place(place, condition)
        return None if found is None else self._text(found)

    def is_possible(self, place: int, condition: int) -> bool:
        """Return whether it finds a way to the end."""
        return self.of_place(place, condition) is not None

    def of_place(self, place: int, condition: int) -> Rest | None:
        """Return the shortest completion that it finds for a place, or None if there is none."""
        WORK.spend(1 + (len(self._graph.places[place]) >> 1))
        best = self._at_end(condition) if self._graph.accepting[place] else None
        for state, below in self._graph.places[place]:
            for after, text in self._ends((state, condition)).items():
                rest = self.of_continuation(below, after)
                if rest is not None:
                    best = better(best, (rest[0] + len(text), text, (below, after)))
        return best

    def of_continuation(self, continuation: int, condition: int) -> Rest | None:
        """Like `of_place`, but without recursion, since stacks can be deep."""
        key = (continuation, condition)
        if key in self._known:
            return self._known[key]
        stack = [key]
        while stack:
            at = stack[-1]
            WORK.spend(1 + (len(self._graph.continuations[at[0]]) >> 1))
            if at in self._known:
                stack.pop()
                continue
            missing: list[tuple[int, int]] = []
            best: Rest | None = None
            for top in self._graph.continuations[at[0]]:
                if top == TEXT_END:
                    best = better(best, self._at_end(at[1]))
                    continue
                state, below = unpack(top)
                for after, text in self._ends((state, at[1])).items():
                    if (below, after) not in self._known:
                        missing.append((below, after))
                        continue
                    rest = self._known[below, after]
                    if rest is not None:
                        best = better(best, (rest[0] + len(text), text, (below, after)))
            if missing:
                stack += missing
            else:
                WORK.hold(250)
                self._known[at] = best
                stack.pop()
        return self._known[key]

    def _text(self, rest: Rest) -> Text:
        """Return the text of a completion; stacks with a common base share one text."""
        known = self._spelt
        below: list[tuple[tuple[int, int], Rest]] = []
        place = rest[2]
        while place is not None and place not in known:
            found = self._known[place]
            assert found is not None, "a completion continues where there is one"
            below.append((place, found))
            place = found[2]
        for key, found in reversed(below):
            known[key] = put(found[1], known[found[2]]) if found[2] is not None else found[1]
        return put(rest[1], known[rest[2]]) if rest[2] is not None else rest[1]


def better(a: Rest | None, b: Rest | None) -> Rest | None:
    """Return the shorter of two completions; the first if they are equally long."""
    if a is None or b is None:
        return b if a is None else a
    return b if b[0] < a[0] else a
