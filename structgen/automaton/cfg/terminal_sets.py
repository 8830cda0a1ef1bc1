"""What a lexer reads at once, character by character: terminals, each in a state of its own.

A state holds each terminal still possible, with its state, and what an earlier terminal demands of
the text that follows it (see `terminals`). Where several may end at the same place, each with a
condition of its own on the rest, they end with an outcome, a tuple of ``(condition, terminals)``.
How characters are spelt in bytes is the business of `lexer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from structgen.automaton import liveness
from structgen.automaton.regex.expressions import NONE
from structgen.automaton.regex.lookarounds import Moves
from structgen.automaton.work import WORK

from .terminals import Terminals

Outcome = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a condition on the rest and the terminals that may end under it."""

Expected = tuple[int, "frozenset[int] | int | None"]
"""A terminal and the conditions under which it may end here: any (None), some, or those that
`TerminalSets.permits` allows for a number of the caller's."""

Threads = tuple[tuple[int, int], ...]
"""Pairs of a variant and a state of its terminal."""

MAX_SEARCH = 100_000
"""Most states of one terminal that are looked at to find all its ends."""


class TerminalSets:
    """An automaton over characters that reads several terminals at once.

    Attributes:
        terminals: the terminals.
        permits: whether a terminal expected with a number may end under a condition; None where
            none is expected so.
        variants: terminals with the conditions under which they may end, where not all will do.
            Those that may end under any have the terminals' own numbers.
        keys: the condition and the threads of each state.
        labels: the number of the outcome of each state, or -1.
        outcomes: what each number stands for.
        conditions_of: the conditions of each outcome.
    """

    def __init__(self, terminals: Terminals, permits: Callable[[int, int], bool] | None) -> None:
        self.terminals = terminals
        self.permits = permits
        self.variants: list[Expected] = [(t, None) for t in range(len(terminals.starts))]
        self._variant_ids = {variant: v for v, variant in enumerate(self.variants)}
        self.keys: list[tuple[int, Threads]] = []
        self._ids: dict[tuple[int, Threads], int] = {}
        self._moves: list[Moves | None] = []
        self.labels: list[int] = []
        self.outcomes: list[Outcome] = []
        self.conditions_of: list[tuple[int, ...]] = []
        self._outcome_ids: dict[Outcome, int] = {}
        self._alive: dict[tuple[int, int, int], bool] = {}
        self._is_free_of: dict[tuple[int, int], bool] = {}

    def variant(self, variant: Expected) -> int:
        """The number of a terminal with the conditions under which it may end."""
        found = self._variant_ids.get(variant)
        if found is None:
            found = self._variant_ids[variant] = len(self.variants)
            self.variants.append(variant)
        return found

    def state(self, condition: int, threads: Iterable[tuple[int, int]]) -> int:
        """The number of some terminals in their states, the text being bound by ``condition``."""
        key = (condition, tuple(threads))
        found = self._ids.get(key)
        if found is None:
            WORK.spend(1 + (len(key[1]) >> 2))
            outcome = self._outcome(*key)  # which may be too much: nothing has been added by then
            found = self._ids[key] = len(self.keys)
            self.keys.append(key)
            self._moves.append(None)
            self.labels.append(outcome)
        return found

    def _outcome(self, condition: int, threads: Threads) -> int:
        ends: dict[int, list[int]] = {}
        for v, q in threads:
            end = self.end(v, q, condition)
            if end != NONE:
                ends.setdefault(end, []).append(self.variants[v][0])
        if not ends:
            return -1
        outcome = tuple((end, tuple(dict.fromkeys(ts))) for end, ts in sorted(ends.items()))
        found = self._outcome_ids.get(outcome)
        if found is None:
            found = self._outcome_ids[outcome] = len(self.outcomes)
            self.outcomes.append(outcome)
            self.conditions_of.append(tuple([end for end, _ in outcome]))
        return found

    def end(self, v: int, q: int, condition: int) -> int:
        """The condition on the rest when terminal ``v`` ends at ``q``, or `NONE`."""
        rest = self.terminals.rest
        end = self.terminals.end(q)
        if end == NONE:
            return NONE
        if condition != rest.anything:
            end = rest.both(condition, end)
            if not rest.is_possible(end):
                return NONE
        allowed = self.variants[v][1]
        if isinstance(allowed, int):
            assert self.permits is not None
            return end if self.permits(allowed, end) else NONE
        return end if allowed is None or end in allowed else NONE

    def steps(self, q: int, condition: int) -> list[tuple[int, int, int]]:
        """Moves of a terminal from ``q``: minterms as a mask, its state and the condition after."""
        rest = self.terminals.rest
        moves = self.terminals.moves(q)
        if condition == rest.anything:
            return [(mask, to, condition) for mask, to in moves]
        conditions = rest.steps(condition)
        return [(m & n, to, w) for m, to in moves for n, w in conditions if m & n]

    def is_alive(self, v: int, q: int, condition: int) -> bool:
        """Whether terminal ``v`` can still end from ``q``."""
        anything = self.terminals.rest.anything
        unrestricted = self.variants[v][1] is None
        if unrestricted and condition == anything:
            return True  # a terminal's own states all lead to an end
        return liveness.is_alive(
            (v, q, condition),
            self._alive,
            lambda s: (unrestricted and s[2] == anything) or self.end(*s) != NONE,
            lambda s: [(v, to, w) for _, to, w in self.steps(s[1], s[2])],
            MAX_SEARCH,
            "telling whether a terminal can end visits too many states",
        )

    def moves(self, state: int) -> Moves:
        """Disjoint ``(minterm mask, next state)`` pairs, none of which leads nowhere."""
        found = self._moves[state]
        if found is not None:
            return found
        condition, threads = self.keys[state]
        rest = self.terminals.rest
        free = condition == rest.anything
        conditions: Moves = ((self.terminals.alphabet.everything, condition),)
        if not free:
            conditions = rest.steps(condition)
        merged: dict[int, int] = {}
        for chars, w in conditions:
            parts: list[tuple[int, Threads]] = [(chars, ())]
            for v, q in threads:
                plain = w == rest.anything and self.variants[v][1] is None
                moves = [
                    (mask, to)
                    for mask, to in self.terminals.moves(q)
                    if mask & chars and (plain or self.is_alive(v, to, w))
                ]
                if not moves:
                    continue
                split: list[tuple[int, Threads]] = []
                for part, above in parts:
                    for mask, to in moves:
                        here = part & mask
                        if here:
                            part &= ~mask
                            split.append((here, (*above, (v, to))))
                    if part:
                        split.append((part, above))
                parts = split
            for part, above in parts:
                if above:
                    to = self.state(w, above)
                    merged[to] = merged.get(to, 0) | part
        found = self._moves[state] = tuple((mask, to) for to, mask in merged.items())
        return found

    def after_minterm(self, state: int, minterm: int) -> int:
        """The state after one minterm, or -1: one part of `moves`."""
        condition, threads = self.keys[state]
        rest, bit = self.terminals.rest, 1 << minterm
        after = condition
        if condition != rest.anything:
            after = next((w for mask, w in rest.steps(condition) if mask & bit), NONE)
            if after == NONE:
                return -1
        above: list[tuple[int, int]] = []
        for v, q in threads:
            for mask, to in self.terminals.moves(q):
                if mask & bit:
                    plain = after == rest.anything and self.variants[v][1] is None
                    if plain or self.is_alive(v, to, after):
                        above.append((v, to))
        return self.state(after, above) if above else -1

    def is_met_at_once(self, terminal: int, condition: int) -> bool | None:
        """Whether the first character of a terminal meets ``condition``, whichever it is.

        Returns:
            None when no character can begin the terminal there.
        """
        rest = self.terminals.rest
        first = self.terminals.first(terminal)
        if first == self.terminals.end_of_text:
            return True if rest.label(condition) >= 0 else None
        possible, settling = rest.possible(condition)
        return not first & possible & ~settling if first & possible else None

    def is_free_of(self, terminal: int, condition: int) -> bool:
        """Whether ``condition`` means nothing to a terminal: each first character settles it."""
        key = (terminal, condition)
        found = self._is_free_of.get(key)
        if found is None:
            left = self.terminals.first(terminal) & ~self.terminals.rest.settling(condition)
            found = self._is_free_of[key] = not left
        return found
