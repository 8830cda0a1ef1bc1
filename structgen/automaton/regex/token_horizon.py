"""Counters too far from their end to matter: expressions that no short text can tell apart.

``\\S+(\\s+\\S+){0,40}`` beside ``maxLength: 500`` is another state after every character and every
word, yet for hundreds of characters nothing follows from the counts. `Far.alike` gives, for a
state, one that reads the same texts of at most so many characters, and can go on after the same
ones: it drops upper bounds that such a text cannot reach. Lower bounds stay, so that shortest
completions are the same too. It knows the nodes of `expressions`, and of tokens only how much one
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import expressions as kinds

if TYPE_CHECKING:
    from .automaton import RegexAutomaton

MAX_SPELLING = 12
"""Most bytes of one character: two escaped surrogates."""

_UNKNOWN = 1 << 40

_MANY = 4
"""Bounds that are worth a search through the tokens for how often one can repeat something: that
takes as long as a walk."""

_PLAIN = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))
"""Characters that are one byte in every spelling."""


class _Sizes(NamedTuple):
    """Lengths of the texts of an expression.

    Attributes:
        least: the fewest characters, or less.
        n_bytes: so few bytes some text takes.
        worst: once some characters have been read, so few bytes some way to go on takes;
            `_UNKNOWN` where that is not known.
    """

    least: int
    n_bytes: int
    worst: int


class TokenHorizon:
    """States of one automaton that texts of limited length cannot tell apart.

    Args:
        automaton: the automaton.
        longest: most characters of a text, one that is cut included.
        most_of: given some sets of minterms, how often at most a text holds a character of the
            first, and later one of the second, and so on: how often it can repeat what takes all
            of these. None if that is not known yet, and the second argument says not to search
            for it.
    """

    def __init__(
        self,
        automaton: RegexAutomaton,
        longest: int,
        most_of: Callable[[Sequence[int], bool], int | None],
    ) -> None:
        self._automaton = automaton
        self._longest = longest
        self._most_of = most_of
        self._alike: dict[int, int] = {}
        self._limitless: dict[int, int] = {}
        self._orders: dict[int, int] = {}
        self._known_sizes: dict[int, _Sizes] = {}
        self._plain = 0
        for first, last in _PLAIN:
            self._plain |= automaton.alphabet.minterms_between(first, last)

    def alike(self, state: int) -> int:
        """A state that stands for ``state``; often itself."""
        found = self._alike.get(state)
        if found is None:
            found, automaton = state, self._automaton
            node = automaton.started(state)
            if node >= 0 and automaton.label(node) == automaton.label(state):
                found = node if automaton.expressions.holds_anchors(node) else self._unbounded(node)
            self._alike[state] = found
        return found

    def _without_length(self, node: int, parts: list[int]) -> int:
        """An expression beside ``.{0,n}``, without that if ``n`` is far away."""
        split = self._beside_length(parts)
        if split is None:
            return node
        rest, most = split
        # Whatever has been read, something of so few bytes is still to come: what is shortest has
        # no more characters than that.
        left = self._sizes(rest).worst
        return self._unbounded(rest) if most >= self._longest + left else node

    def _beside_length(self, parts: list[int]) -> tuple[int, int] | None:
        """For ``.{0,n}`` and one other part of a conjunction: that one, and n."""
        automaton = self._automaton
        rest: list[int] = []
        most = -1
        for part in parts:
            kind, *args = automaton.expressions.parts(part)
            if kind == kinds.REP and automaton.expressions.is_everything(args[0]) and args[1] == 0:
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
        *first, last = automaton.expressions.sequence(node)
        if first:
            out = self._unbounded(last)
            for part in reversed(first):
                out = automaton.expressions.cat(self._unbounded(part), out)
            return out
        kind, *args = automaton.expressions.parts(node)
        if kind == kinds.ALT:
            return automaton.expressions.alt([self._unbounded(part) for part in args])
        if kind == kinds.AND:
            return self._without_length(node, args)
        if kind == kinds.REP:
            body, least, most = args
            if most > least and most > self._times(body, most):
                most = -1
            return automaton.expressions.repeat(self._unbounded(body), least, most)
        return node

    def _times(self, body: int, most: int) -> int:
        """How often at most a text can hold ``body`` whole; ``most`` or more where that is not
        worth finding out."""
        least = self._sizes(body).least
        times = self._longest // max(least, 1)
        if times < most:
            return times
        found = self._orders.get(body)
        if found is None:
            needed = self._needed(body)
            known = self._most_of(needed, most >= _MANY) if len(needed) > 1 else times
            if known is None:
                return times
            found = self._orders[body] = known
        return min(times, found)

    def _needed(self, node: int) -> list[int]:
        """Sets of minterms: every text of ``node`` holds a character of each, in this order."""
        kind, *args = self._automaton.expressions.parts(node)
        if kind == kinds.SET:
            return [args[0]]
        if kind == kinds.CAT:
            return [
                mask
                for part in self._automaton.expressions.sequence(node)
                for mask in self._needed(part)
            ]
        if kind == kinds.REP and args[1]:
            return self._needed(args[0])
        return []

    def _sizes(self, node: int) -> _Sizes:
        """What is known of the lengths of an expression's texts."""
        found = self._known_sizes.get(node)
        if found is None:
            found = self._known_sizes[node] = self._find_sizes(node)
        return found

    def _find_sizes(self, node: int) -> _Sizes:
        kind, *args = self._automaton.expressions.parts(node)
        if kind == kinds.SET:
            n_bytes = 1 if args[0] & self._plain else MAX_SPELLING
            return _Sizes(1, n_bytes, n_bytes)
        if kind == kinds.CAT:
            whole = _Sizes(0, 0, 0)
            for part in reversed(self._automaton.expressions.sequence(node)):
                some = self._sizes(part)
                worst = max(some.worst + whole.n_bytes, whole.worst)
                whole = _Sizes(some.least + whole.least, some.n_bytes + whole.n_bytes, worst)
            return whole
        if kind == kinds.ALT:
            parts = [self._sizes(part) for part in args]
            return _Sizes(
                min(part.least for part in parts),
                min(part.n_bytes for part in parts),
                max(part.worst for part in parts),
            )
        if kind == kinds.REP:
            body, times = self._sizes(args[0]), args[1]
            worst = body.worst + body.n_bytes * max(times - 1, 0)
            return _Sizes(body.least * times, body.n_bytes * times, worst)
        if kind == kinds.AND and (split := self._beside_length(args)) is not None:
            # What is still to come is what is soonest, or would have been too long before.
            return self._sizes(split[0])
        return _Sizes(0, 0, 0 if kind == kinds.EPSILON else _UNKNOWN)
