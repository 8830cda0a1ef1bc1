"""The lexer of a grammar: all expected terminals at once, as one leaf automaton over bytes.

A state holds each terminal still possible, with its state, and what an earlier terminal demands of
the text that follows it (see `cfg_terminals`). It may end with several terminals at the same place,
each with its own condition on the rest, so an outcome is a tuple of ``(condition, terminals)``.
States from which no terminal can end are left out.

It knows nothing of rules: which terminals are expected is the caller's choice (`Lexer.entry`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import CompileLimitExceeded
from . import liveness
from .cfg_terminals import Terminals
from .derivatives import NONE, Moves
from .encoding import GROUND, Utf8
from .leaf import Leaf

Outcome = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a condition on the rest and the terminals that may end under it."""

Expected = tuple[int, frozenset[int] | None]
"""A terminal, and the conditions under which it may end here (None: any)."""

MAX_SEARCH = 200_000


class Lexer(Leaf):
    """The lexer of one grammar.

    Attributes:
        terminals: the terminals.
        outcomes: what each label stands for.
    """

    is_shared = False

    def __init__(self, terminals: Terminals) -> None:
        super().__init__()
        self.terminals = terminals
        self.outcomes: list[Outcome] = []
        self._outcome_ids: dict[Outcome, int] = {}
        self._symbols: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        self._symbol_ids: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._symbol_moves: list[Moves | None] = []
        self._symbol_labels: list[int] = []
        # Terminals with the conditions under which they may end, where not all will do.
        self.variants: list[Expected] = [(t, None) for t in range(len(terminals.starts))]
        self._variant_ids = {variant: v for v, variant in enumerate(self.variants)}
        self._alive: dict[tuple[int, int, int], bool] = {}
        self._settled: dict[tuple[int, int], bool] = {}
        self._exits: dict[tuple[int, int, int], dict[int, bytes]] = {}
        self._entries: dict[tuple[int, Collection[Expected | int]], int] = {}
        self._encoding = Utf8(terminals.alphabet)
        self._ground: dict[int, list[int]] = {}
        self._leads: list[tuple[int, int, int]] = []
        for byte, target in self._encoding.row(GROUND).items():
            if target < 0:
                self._ground.setdefault(~target, []).append(byte)
            else:
                self._leads.append((byte, target, self._encoding.reach(target)))

    def entry(self, expected: frozenset[int] | tuple[Expected, ...], condition: int) -> int:
        """The state before any of ``expected``, the text being bound by ``condition``."""
        key = (condition, expected)
        found = self._entries.get(key)
        if found is None:
            starts = self.terminals.starts
            threads = []
            variants = {e if isinstance(e, int) else self._variant(e) for e in expected}
            for v in sorted(variants):
                t = self.variants[v][0]
                if starts[t] >= 0 and self._is_alive(v, starts[t], condition):
                    threads.append((v, starts[t]))
            found = self._entries[key] = self.state((self._symbol(condition, threads), GROUND))
        return found

    def threads(self, q: int) -> tuple[int, tuple[tuple[int, int], ...], int]:
        """What a state holds: the condition, its (variant, terminal state) pairs, encoding node."""
        symbol, node = self._keys[q]
        condition, threads = self._symbols[symbol]
        return condition, threads, node

    def exits(self, v: int, state: int, condition: int) -> dict[int, bytes]:
        """For each condition under which a terminal can end: the fewest bytes that end it so.

        Args:
            v: the variant.
            state: the terminal's state.
            condition: what holds of the rest from here on.
        """
        known = self._exits.get((v, state, condition))
        if known is not None:
            return known
        spelt = self._encoding.shortest(GROUND)
        found: dict[int, bytes] = {}
        seen: set[tuple[int, int]] = set()
        # Breadth first by length in bytes; a character has one to four.
        levels: list[dict[tuple[int, int], bytes]] = [{(state, condition): b""}, {}, {}, {}, {}]
        while any(levels):
            level = levels.pop(0)
            levels.append({})
            for (q, w), text in level.items():
                if (q, w) in seen:
                    continue
                seen.add((q, w))
                end = self._end(v, q, w)
                if end != NONE:
                    found.setdefault(end, text)
                for mask, to, w_to in self._steps(q, w):
                    if (to, w_to) in seen or not self._is_alive(v, to, w_to):
                        continue
                    best = min((spelt[a] for a in _bits(mask)), key=lambda s: (len(s), s))
                    levels[len(best) - 1].setdefault((to, w_to), text + best)
            if len(seen) > MAX_SEARCH:
                raise CompileLimitExceeded(
                    "finding the ends of a terminal visits too many states",
                    limit=MAX_SEARCH,
                    actual=len(seen),
                )
        self._exits[v, state, condition] = found
        return found

    def exits_of(self, terminal: int, condition: int) -> dict[int, bytes]:
        """`exits` from the beginning of a terminal."""
        start = self.terminals.starts[terminal]
        if not self._is_alive(terminal, start, condition):
            return {}
        return self.exits(terminal, start, condition)

    def exits_inside(self, q: int) -> dict[tuple[int, int], bytes]:
        """For each (terminal, condition) that can end from a lexer state: the fewest bytes."""
        condition, threads, node = self.threads(q)
        found: dict[tuple[int, int], bytes] = {}
        for v, state in threads:
            places = {(state, condition): b""}
            if node != GROUND:
                places = {}
                spelt = self._encoding.shortest(node)
                for mask, to, w in self._steps(state, condition):
                    texts = [spelt[a] for a in _bits(mask) if a in spelt]
                    if texts and self._is_alive(v, to, w):
                        places[to, w] = min(texts, key=lambda s: (len(s), s))
            for (to, w), text in places.items():
                for end, more in self.exits(v, to, w).items():
                    key = (self.variants[v][0], end)
                    whole = text + more
                    if key not in found or len(whole) < len(found[key]):
                        found[key] = whole
        return found

    def settles(self, terminal: int, condition: int) -> bool:
        """Whether a terminal can be read so that ``condition`` has come true on the way."""
        start, anything = self.terminals.starts[terminal], self.terminals.rest.anything
        if start < 0:
            return False
        return liveness.is_alive(
            (start, condition),
            self._settled,
            lambda s: s[1] == anything,
            lambda s: [(to, w) for _, to, w in self._steps(*s)],
            MAX_SEARCH,
            "telling whether two terminals can be neighbours visits too many states",
        )

    # -- symbols --------------------------------------------------------------------------------

    def _variant(self, variant: Expected) -> int:
        found = self._variant_ids.get(variant)
        if found is None:
            found = self._variant_ids[variant] = len(self.variants)
            self.variants.append(variant)
        return found

    def _symbol(self, condition: int, threads: Iterable[tuple[int, int]]) -> int:
        key = (condition, tuple(threads))
        found = self._symbol_ids.get(key)
        if found is None:
            found = self._symbol_ids[key] = len(self._symbols)
            self._symbols.append(key)
            self._symbol_moves.append(None)
            self._symbol_labels.append(self._outcome(*key))
        return found

    def _outcome(self, condition: int, threads: tuple[tuple[int, int], ...]) -> int:
        ends: dict[int, list[int]] = {}
        for v, q in threads:
            end = self._end(v, q, condition)
            if end != NONE:
                ends.setdefault(end, []).append(self.variants[v][0])
        if not ends:
            return -1
        outcome = tuple((end, tuple(dict.fromkeys(ts))) for end, ts in sorted(ends.items()))
        found = self._outcome_ids.get(outcome)
        if found is None:
            found = self._outcome_ids[outcome] = len(self.outcomes)
            self.outcomes.append(outcome)
        return found

    def _end(self, v: int, q: int, condition: int) -> int:
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
        return end if allowed is None or end in allowed else NONE

    def _steps(self, q: int, condition: int) -> list[tuple[int, int, int]]:
        rest = self.terminals.rest
        moves = self.terminals.moves(q)
        if condition == rest.anything:
            return [(mask, to, condition) for mask, to in moves]
        conditions = rest.moves(condition)
        return [(m & n, to, w) for m, to in moves for n, w in conditions if m & n]

    def _is_alive(self, v: int, q: int, condition: int) -> bool:
        anything = self.terminals.rest.anything
        unrestricted = self.variants[v][1] is None
        if unrestricted and condition == anything:
            return True  # a terminal's own states all lead to an end
        return liveness.is_alive(
            (v, q, condition),
            self._alive,
            lambda s: (unrestricted and s[2] == anything) or self._end(*s) != NONE,
            lambda s: [(v, to, w) for _, to, w in self._steps(s[1], s[2])],
            MAX_SEARCH,
            "telling whether a terminal can end visits too many states",
        )

    def _moves(self, symbol: int) -> Moves:
        found = self._symbol_moves[symbol]
        if found is not None:
            return found
        condition, threads = self._symbols[symbol]
        rest = self.terminals.rest
        free = condition == rest.anything
        conditions: Moves = ((self.terminals.alphabet.everything, condition),)
        if not free:
            conditions = rest.moves(condition)
        merged: dict[int, int] = {}
        for chars, w in conditions:
            parts: list[tuple[int, tuple[tuple[int, int], ...]]] = [(chars, ())]
            for v, q in threads:
                plain = w == rest.anything and self.variants[v][1] is None
                moves = [
                    (mask, to)
                    for mask, to in self.terminals.moves(q)
                    if mask & chars and (plain or self._is_alive(v, to, w))
                ]
                if not moves:
                    continue
                split: list[tuple[int, tuple[tuple[int, int], ...]]] = []
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
                    to = self._symbol(w, above)
                    merged[to] = merged.get(to, 0) | part
        found = self._symbol_moves[symbol] = tuple((mask, to) for to, mask in merged.items())
        return found

    # -- bytes ----------------------------------------------------------------------------------

    def _edges(self, key: Any) -> Mapping[int, Any]:
        symbol, node = key
        edges: dict[int, Any] = {}
        live = 0
        if node == GROUND:
            for mask, to in self._moves(symbol):
                live |= mask
                target = (to, GROUND)
                for atom in _bits(mask):
                    for byte in self._ground.get(atom, ()):
                        edges[byte] = target
            for byte, deeper, reach in self._leads:
                if reach & live:
                    edges[byte] = (symbol, deeper)
            return edges
        targets: dict[int, int] = {}
        for mask, to in self._moves(symbol):
            live |= mask
            for atom in _bits(mask):
                targets[atom] = to
        for byte, deeper in self._encoding.row(node).items():
            if deeper >= 0:
                if self._encoding.reach(deeper) & live:
                    edges[byte] = (symbol, deeper)
            elif ~deeper in targets:
                edges[byte] = (targets[~deeper], GROUND)
        return edges

    def _label(self, key: Any) -> int:
        symbol, node = key
        return self._symbol_labels[symbol] if node == GROUND else -1


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        bit = mask & -mask
        out.append(bit.bit_length() - 1)
        mask ^= bit
    return out
