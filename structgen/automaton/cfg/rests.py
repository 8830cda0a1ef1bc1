"""Short ways from a stack to the end of a text, made of the ways to the ends of its goals.

A stack is finished goal by goal, and what is found is kept for each continuation. How a goal ends,
and under which conditions (or demands: see `neighbours`), is told by whom `Rests` are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK

from .stacks import BOTTOM, Stacks, unpack

Rest: TypeAlias = "tuple[int, Text, tuple[int, int] | None]"
"""Length of a whole completion, its first part, and the (continuation, condition) after it."""


class Rests:
    """The completions of one grammar's stacks.

    Args:
        stacks: the places.
        ends: for a goal state under a condition: for each condition that can hold when the goal
            ends, a short text until then.
        at_end: the completion where all goals have ended, under a condition.
    """

    def __init__(
        self,
        stacks: Stacks,
        ends: Callable[[tuple[int, int]], Mapping[int, Text]],
        at_end: Callable[[int], Rest | None],
    ) -> None:
        self._stacks = stacks
        self._ends = ends
        self._at_end = at_end
        self._known: dict[tuple[int, int], Rest | None] = {}
        self._spelt: dict[tuple[int, int], Text] = {}

    def of_place(self, place: int, condition: int) -> Rest | None:
        """The shortest completion of a place that is found, or None when there is no way."""
        WORK.spend(1 + (len(self._stacks.places[place]) >> 1))
        best = self._at_end(condition) if self._stacks.accepting[place] else None
        for state, below in self._stacks.places[place]:
            for after, text in self._ends((state, condition)).items():
                rest = self.of_continuation(below, after)
                if rest is not None:
                    best = better(best, (rest[0] + len(text), text, (below, after)))
        return best

    def of_continuation(self, continuation: int, condition: int) -> Rest | None:
        """As `of_place`; without recursion, since stacks can be deep."""
        key = (continuation, condition)
        if key in self._known:
            return self._known[key]
        stack = [key]
        while stack:
            at = stack[-1]
            WORK.spend(1 + (len(self._stacks.continuations[at[0]]) >> 1))
            if at in self._known:
                stack.pop()
                continue
            missing: list[tuple[int, int]] = []
            best: Rest | None = None
            for top in self._stacks.continuations[at[0]]:
                if top == BOTTOM:
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

    def text(self, rest: Rest) -> Text:
        """The text of a completion; what stacks have in common below is one text, made once."""
        known = self._spelt
        below: list[tuple[tuple[int, int], Rest]] = []
        place = rest[2]
        while place is not None and place not in known:
            found = self._known[place]
            assert found is not None, "a completion goes on where there is one"
            below.append((place, found))
            place = found[2]
        for key, found in reversed(below):
            known[key] = put(found[1], known[found[2]]) if found[2] is not None else found[1]
        return put(rest[1], known[rest[2]]) if rest[2] is not None else rest[1]


def better(a: Rest | None, b: Rest | None) -> Rest | None:
    """The shorter one of two completions; of equally long ones the first."""
    if a is None or b is None:
        return b if a is None else a
    return b if b[0] < a[0] else a
