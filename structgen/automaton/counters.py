"""Counters too far from their end to matter: expressions that no short text can tell apart.

``\\S+(\\s+\\S+){0,40}`` beside ``maxLength: 500`` is another state after every character and every
word, yet for hundreds of characters nothing follows from the counts. `Far.alike` gives, for a
state, one that reads the same texts of at most so many characters, and can go on after the same
ones: it drops upper bounds that such a text cannot reach. Lower bounds stay, so that shortest
completions are the same too. It knows derivatives' nodes, and of tokens only how much one holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import derivatives as kinds

if TYPE_CHECKING:
    from .derivatives import RegexAutomaton

MAX_SPELLING = 12
"""Most bytes of one character: two escaped surrogates."""

_UNKNOWN = 1 << 40


class Far:
    """States of one automaton that texts of limited length cannot tell apart.

    Args:
        automaton: the automaton.
        longest: most characters of a text, one that is cut included.
        most_of: given some sets of atoms, a number that in no text all of them reach: how often
            something can be repeated that takes a character of each every time.
    """

    def __init__(
        self,
        automaton: RegexAutomaton,
        longest: int,
        most_of: Callable[[Sequence[int]], int],
    ) -> None:
        self._automaton = automaton
        self._longest = longest
        self._most_of = most_of
        self._alike: dict[int, int] = {}
        self._limitless: dict[int, int] = {}
        self._worst: dict[int, tuple[int, int]] = {}

    def alike(self, state: int) -> int:
        """A state that stands for ``state``; often itself."""
        found = self._alike.get(state)
        if found is None:
            found, automaton = state, self._automaton
            node = automaton.started(state)
            if node >= 0 and automaton.label(node) == automaton.label(state):
                found = node if automaton.holds_anchors(node) else self._unbounded(node)
            self._alike[state] = found
        return found

    def _without_length(self, node: int, parts: list[int]) -> int:
        """An expression beside ``.{0,n}``, without that if ``n`` is far away."""
        split = self._beside_length(parts)
        if split is None:
            return node
        rest, most = split
        # Whatever has been read, something so short is still to come, and however it is spelt
        # nothing longer is shorter in bytes.
        left = self._least_and_worst(rest)[1] * MAX_SPELLING
        return self._unbounded(rest) if most >= self._longest + left else node

    def _beside_length(self, parts: list[int]) -> tuple[int, int] | None:
        """For ``.{0,n}`` and one other part of a conjunction: that one, and n."""
        automaton = self._automaton
        rest: list[int] = []
        most = -1
        for part in parts:
            kind, *args = automaton.parts(part)
            if kind == kinds.REP and automaton.is_everything(args[0]) and args[1] == 0:
                most = args[2]
            else:
                rest.append(part)
        return (rest[0], most) if len(rest) == 1 and len(parts) == 2 else None

    def _unbounded(self, node: int) -> int:
        """An expression without the upper bounds that are out of reach."""
        found = self._limitless.get(node)
        if found is None:
            found = self._limitless[node] = self._make_unbounded(node)
        return found

    def _make_unbounded(self, node: int) -> int:
        automaton = self._automaton
        *first, last = automaton.sequence(node)
        if first:
            out = self._unbounded(last)
            for part in reversed(first):
                out = automaton.cat(self._unbounded(part), out)
            return out
        kind, *args = automaton.parts(node)
        if kind == kinds.ALT:
            return automaton.alt([self._unbounded(part) for part in args])
        if kind == kinds.AND:
            return self._without_length(node, args)
        if kind == kinds.REP:
            body, least, most = args
            if most > least and most > self._times(body):
                most = -1
            return automaton.repeat(self._unbounded(body), least, most)
        return node

    def _times(self, body: int) -> int:
        """How often at most a text can hold ``body`` whole."""
        least, _ = self._least_and_worst(body)
        times = self._longest // max(least, 1)
        needed = self._needed(body)
        return min(times, self._most_of(sorted(needed))) if len(needed) > 1 else times

    def _needed(self, node: int) -> set[int]:
        """Sets of atoms of each of which every text of ``node`` holds a character."""
        kind, *args = self._automaton.parts(node)
        if kind == kinds.SET:
            return {args[0]}
        if kind == kinds.CAT:
            return {mask for part in self._automaton.sequence(node) for mask in self._needed(part)}
        if kind == kinds.REP and args[1]:
            return self._needed(args[0])
        return set()

    def _least_and_worst(self, node: int) -> tuple[int, int]:
        """The fewest characters of an expression, and the most that can be the fewest still to come
        once some have been read; 0 and `_UNKNOWN` where that is not known."""
        found = self._worst.get(node)
        if found is None:
            kind, *args = self._automaton.parts(node)
            if kind == kinds.SET:
                found = 1, 1
            elif kind == kinds.CAT:
                found = 0, 0
                for part in reversed(self._automaton.sequence(node)):
                    least, worst = self._least_and_worst(part)
                    found = least + found[0], max(worst + found[0], found[1])
            elif kind == kinds.ALT:
                both = [self._least_and_worst(part) for part in args]
                found = min(least for least, _ in both), max(worst for _, worst in both)
            elif kind == kinds.REP:
                least, worst = self._least_and_worst(args[0])
                found = least * args[1], worst + least * max(args[1] - 1, 0)
            elif kind == kinds.AND and (split := self._beside_length(args)) is not None:
                # What is still to come is what is soonest, or would have been too long before.
                found = self._least_and_worst(split[0])
            elif kind == kinds.EPSILON:
                found = 0, 0
            else:
                found = 0, _UNKNOWN
            self._worst[node] = found
        return found
