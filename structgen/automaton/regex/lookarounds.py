"""Derivatives of regular expressions with lookarounds at any place.

A lookahead restricts the rest of the text, so a state that begins with one is an intersection:
``(?=r)·s`` is ``r·Σ* ∩ s``. Inside a repeat, ``s`` is not known locally. So the derivative is
computed together with a *continuation*, everything that follows up to the end of the text, and each
lookahead before the character is intersected there.

A lookbehind restricts the text so far. Its node holds the derivative of ``Σ*·r`` by that text,
which shows whether it is true. Each character advances all lookbehind nodes of a state, at any
depth (`Lookarounds._shift`). ``^`` is the lookbehind of nothing and ``$`` the lookahead of nothing.
A lookahead inside a lookbehind must outlive its match: there the expression is paired with the
condition on the rest of the text (`_WITH`).

The constructions are those of alternating automata (Chandra, Kozen & Stockmeyer 1981), written as
derivatives; Moseley et al. 2023 (PLDI) give location-based derivatives for lookarounds outside of
repeats. Sets of conditions are kept in the automaton's own normal form, so states stay finite: at
worst exponential in the number of lookaheads open at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from structgen.errors import check_limit
from structgen.grammar import ir

from .expressions import ALT, AND, CAT, EPSILON, NONE, NOT, REP, Expressions

Moves: TypeAlias = "tuple[tuple[int, int], ...]"
"""Disjoint ``(minterm mask, next state)`` pairs."""

MAX_WORK = 2_000_000
"""The most derivatives of parts for one pattern: about ten seconds."""

MAX_CONDITIONS = 256
"""The most sets of lookaheads under which one place can be passed."""

# Kinds of nodes besides those of `expressions`. An _AHEAD holds the condition on the rest of the
# text, a _BEHIND the derivative by the text so far and whether it is negated, an _OWN a state that
# ends before the text does.
_AHEAD, _BEHIND, _WITH, _OWN = 10, 11, 12, 13

Conditions: TypeAlias = "frozenset[frozenset[int]]"
"""Alternatives; in each, expressions that the rest of the text must match."""

_ALWAYS: Conditions = frozenset((frozenset(),))
_NEVER: Conditions = frozenset()


class Derivable(Protocol):
    """The part of `derivatives.Derivatives` that `Lookarounds` use."""

    expressions: Expressions

    def derive(self, node: int) -> Moves:
        """Return the derivatives of a node without lookarounds."""

    def overlay(
        self, maps: list[Moves], combine: Callable[[Iterable[int]], int], every: bool = False
    ) -> Moves:
        """Combine move maps by minterm; with ``every``, drop minterms that a map lacks."""


class Lookarounds:
    """The lookarounds of one automaton. Bit 3 of a node's flags marks nodes that have some.

    Anchors are lookarounds, too.
    """

    def __init__(self, automaton: Derivable) -> None:
        # The automaton holds this object; a reference back would need the garbage collector.
        self._held_by = weakref.ref(automaton)
        self._expressions = automaton.expressions
        self._work = 0
        self._plain: dict[int, Moves] = {}
        self._consumed: dict[tuple[int, int, bool], Moves] = {}
        self._emptied: dict[int, Conditions] = {}
        self._steps: dict[int, Moves] = {}
        self._shifted: dict[tuple[int, int], int] = {}
        self._behinds: dict[int, frozenset[int]] = {}

    @property
    def _automaton(self) -> Derivable:
        automaton = self._held_by()
        assert automaton is not None
        return automaton

    def are_in(self, node: int) -> bool:
        """Return whether ``node`` has lookarounds, so that its derivatives are computed here."""
        return (
            bool(self._expressions.flags[node] & 0b1000) or self._expressions.nodes[node][0] == _OWN
        )

    # -- construction -----------------------------------------------------------------------

    def lower(self, regex: ir.Regex, lower: Callable[[ir.Regex], int]) -> int:
        """Return the node of a lookaround or anchor."""
        expressions = self._expressions
        if isinstance(regex, ir.Lookahead):
            rest = expressions.cat(lower(regex.body), expressions.everything)
            return self._ahead(expressions.complement(rest) if regex.negate else rest)
        if isinstance(regex, ir.Lookbehind):
            return self._behind(
                expressions.cat(expressions.everything, lower(regex.body)), regex.negate
            )
        return (
            self._behind(EPSILON, 0) if isinstance(regex, ir.StartAnchor) else self._ahead(EPSILON)
        )

    def _ahead(self, rest: int) -> int:
        expressions = self._expressions
        if rest in (NONE, expressions.everything):
            return NONE if rest == NONE else EPSILON
        at_end = expressions.flags[rest] & 1
        return expressions.node((_AHEAD, rest), 0b11000 | at_end * 0b101)

    def _behind(self, so_far: int, negate: int) -> int:
        expressions = self._expressions
        if so_far in (NONE, expressions.everything):
            return NONE if (so_far == NONE) != bool(negate) else EPSILON
        holds = expressions.flags[so_far] & 1 ^ negate
        # Never marked nullable in the middle: that changes with the text.
        return expressions.node((_BEHIND, so_far, int(negate)), 0b11000 | holds * 0b101)

    def of_its_own(self, node: int) -> int:
        """Return ``node`` as a separate text: its lookarounds see nothing outside of it."""
        flags = self._expressions.flags[node]
        if not flags & 0b1000:
            return node
        # From outside a plain expression, which may be empty exactly where the inner text may end.
        return self._expressions.node((_OWN, node), 0b10000 | (flags & 1) * 0b111)

    def _with(self, rest: int, node: int) -> int:
        expressions = self._expressions
        if NONE in (rest, node):
            return NONE
        if rest == expressions.everything:
            return node
        flags = expressions.flags
        holds = flags[rest] & flags[node] & 1
        return expressions.node((_WITH, rest, node), 0b11000 | holds * 0b101)

    # -- derivatives ------------------------------------------------------------------------

    def derivative(self, node: int) -> Moves:
        """Return the derivative of a state: of an expression that reaches to the end of the
        text."""
        kind, *args = self._expressions.nodes[node]
        if kind == _OWN:
            moves = self._automaton.derive(args[0])
            return tuple((mask, self.of_its_own(to)) for mask, to in moves)
        return self._shift_moves(self._ahead_of_end(node))

    def _ahead_of_end(self, node: int) -> Moves:
        """`derivative` without advancing the lookbehinds."""
        expressions = self._expressions
        automaton = self._automaton
        if not expressions.flags[node] & 0b1000:
            return automaton.derive(node)
        found = self._plain.get(node)
        if found is None:
            kind, *args = expressions.nodes[node]
            self._count_work(len(args))
            if kind == ALT:
                parts = [self._ahead_of_end(part) for part in args]
                found = automaton.overlay(parts, expressions.alt)
            elif kind == AND:
                parts = [self._ahead_of_end(part) for part in args]
                found = automaton.overlay(parts, expressions.all_of, every=True)
            elif kind == NOT:
                found = self._complement(self._ahead_of_end(args[0]))
            else:
                found = self._consume(node, EPSILON, False)
            self._plain[node] = found
        return found

    def _complement(self, moves: Moves) -> Moves:
        expressions = self._expressions
        rest = expressions.alphabet.everything
        out = []
        for mask, to in moves:
            rest &= ~mask
            out.append((mask, expressions.complement(to)))
        out.append((rest, expressions.everything))
        return tuple((mask, to) for mask, to in out if mask and to != NONE)

    def _consume(self, node: int, then: int, behind: bool) -> Moves:
        """Return the derivatives of ``node·then`` for a character read in ``node``.

        Args:
            node: an expression in the middle.
            then: everything after it.
            behind: ``then`` ends here and not at the end of the text; lookaheads are paired with it
                instead of being intersected.
        """
        expressions = self._expressions
        automaton = self._automaton
        if not expressions.flags[node] & 0b1000:
            return tuple((mask, expressions.cat(to, then)) for mask, to in automaton.derive(node))
        key = (node, then, behind)
        found = self._consumed.get(key)
        if found is None:
            self._count_work()
            found = self._consumed[key] = automaton.overlay(
                self._ways(node, then, behind), expressions.alt
            )
        return found

    def _count_work(self, parts: int = 1) -> None:
        self._work += parts
        check_limit(
            self._work,
            MAX_WORK,
            "a pattern with lookarounds needs too much work; simplify or shorten it",
        )

    def _ways(self, node: int, then: int, behind: bool) -> list[Moves]:
        expressions = self._expressions
        kind, *args = expressions.nodes[node]
        if kind == ALT:
            return [self._consume(part, then, behind) for part in args]
        if kind == CAT:
            left, right = args
            ways = [self._consume(left, expressions.cat(right, then), behind)]
            for rests in self._empty(left):
                ways.append(self._under(rests, self._consume(right, then, behind), behind))
            return ways
        if kind == REP:
            body, least, most = args
            rest = expressions.repeat(body, max(least - 1, 0), most - 1 if most > 0 else most)
            ways = [self._consume(body, expressions.cat(rest, then), behind)]
            if least > 1 and most != 1:
                # Rounds may be empty, also all required ones. One is enough for the conditions of
                # an empty round; after it, any number may follow up to the maximum.
                rest = expressions.repeat(body, 0, most - 2 if most > 0 else most)
                for rests in self._empty(body):
                    moves = self._consume(body, expressions.cat(rest, then), behind)
                    ways.append(self._under(rests, moves, behind))
            return ways
        if kind == _WITH:
            rest, inner = args
            return [self._under(frozenset((rest,)), self._consume(inner, then, behind), behind)]
        return []  # _AHEAD and _BEHIND read nothing; an AND or NOT here is an _OWN

    def _under(self, rests: frozenset[int], moves: Moves, behind: bool) -> Moves:
        """Return ``moves`` with the extra condition that the rest of the text matches all
        ``rests``."""
        if not rests or not moves:
            return moves
        automaton = self._automaton
        owed = [self._ahead_of_end(rest) for rest in sorted(rests)]
        if not behind:
            return automaton.overlay([moves, *owed], self._expressions.all_of, every=True)
        both = automaton.overlay(owed, self._expressions.all_of, every=True)
        out: dict[int, int] = {}
        for mask, to in moves:
            for owed_mask, rest in both:
                if mask & owed_mask:
                    paired = self._with(rest, to)
                    out[paired] = out.get(paired, 0) | mask & owed_mask
        return tuple((mask, to) for to, mask in out.items() if to != NONE)

    def _empty(self, node: int) -> Conditions:
        """Return the conditions under which ``node`` matches the empty text here, with more text to
        come."""
        expressions = self._expressions
        flags = expressions.flags[node]
        if not flags & 0b1000:
            return _ALWAYS if flags & 1 else _NEVER
        if node in self._emptied:
            return self._emptied[node]
        kind, *args = expressions.nodes[node]
        found = _NEVER
        if kind == _AHEAD:
            found = frozenset((frozenset(args),))
        elif kind == _BEHIND:
            found = self._empty(args[0])
            if args[1]:
                either = [expressions.all_of(rests) for rests in found]
                rest = expressions.complement(expressions.alt(either))
                found = _NEVER if rest == NONE else frozenset((frozenset((rest,)),))
                if rest == expressions.everything:
                    found = _ALWAYS
        elif kind == _WITH:
            found = frozenset(rests | {args[0]} for rests in self._empty(args[1]))
        elif kind == CAT:
            found = self._empty(args[0])
            if found:
                right = self._empty(args[1])
                found = frozenset(a | b for a in found for b in right)
        elif kind == ALT:
            found = frozenset(rests for part in args for rests in self._empty(part))
        elif kind == REP:
            found = _ALWAYS if args[1] == 0 else self._empty(args[0])
        if frozenset() in found:
            found = _ALWAYS
        check_limit(len(found), MAX_CONDITIONS, "a pattern has too many lookarounds in one place")
        self._emptied[node] = found
        return found

    # -- lookbehinds ------------------------------------------------------------------------

    def _shift_moves(self, moves: Moves) -> Moves:
        out: dict[int, int] = {}
        for mask, to in moves:
            for part, shifted in self._shift_all(mask, to):
                if shifted != NONE:
                    out[shifted] = out.get(shifted, 0) | part
        return tuple((mask, to) for to, mask in out.items())

    def _shift_all(self, mask: int, node: int) -> list[tuple[int, int]]:
        """Return ``node`` after each of the characters in ``mask``."""
        behinds = sorted(self._behinds_of(node))
        if not behinds:
            return [(mask, node)]
        groups: dict[tuple[int, ...], int] = {}
        while mask:
            bit = mask & -mask
            mask ^= bit
            key = tuple(self._step(so_far, bit) for so_far in behinds)
            groups[key] = groups.get(key, 0) | bit
        same = tuple(behinds)
        return [
            (group, node if key == same else self._shift(node, group & -group))
            for key, group in groups.items()
        ]

    def _step(self, so_far: int, bit: int) -> int:
        """Return the derivative of a lookbehind's state."""
        moves = self._steps.get(so_far)
        if moves is None:
            if self._expressions.flags[so_far] & 0b1000:
                moves = self._shift_moves(self._consume(so_far, EPSILON, True))
            else:
                moves = self._automaton.derive(so_far)
            self._steps[so_far] = moves
        return next((to for mask, to in moves if mask & bit), NONE)

    def _behinds_of(self, node: int) -> frozenset[int]:
        """Return the states of all lookbehinds in ``node``."""
        expressions = self._expressions
        chain: list[int] = []  # as long as the pattern: no recursion
        while node not in self._behinds and expressions.flags[node] & 0b1000:
            chain.append(node)
            if expressions.nodes[node][0] != CAT:
                break
            node = expressions.nodes[node][2]
        held = self._behinds.get(node, frozenset())
        for node in reversed(chain):
            kind, *args = expressions.nodes[node]
            if kind == _BEHIND:
                held |= {args[0]}
            else:
                for part in args[:1] if kind in (CAT, REP) else args:
                    held |= self._behinds_of(part)
            self._behinds[node] = held
        return held

    def _shift(self, node: int, bit: int) -> int:
        """Return ``node`` with every lookbehind advanced by the character ``bit``."""
        expressions = self._expressions
        chain: list[int] = []  # as long as the pattern: no recursion
        while (node, bit) not in self._shifted and self._behinds_of(node):
            chain.append(node)
            if expressions.nodes[node][0] != CAT:
                break
            node = expressions.nodes[node][2]
        found = self._shifted.get((node, bit), node)
        for node in reversed(chain):
            self._count_work()
            kind, *args = expressions.nodes[node]
            if kind == _BEHIND:
                found = self._behind(self._step(args[0], bit), args[1])
            elif kind == CAT:
                found = expressions.cat(self._shift(args[0], bit), found)
            elif kind == REP:
                found = expressions.repeat(self._shift(args[0], bit), args[1], args[2])
            else:
                found = self._rebuilt(kind, [self._shift(part, bit) for part in args])
            self._shifted[node, bit] = found
        return found

    def _rebuilt(self, kind: int, parts: list[int]) -> int:
        expressions = self._expressions
        if kind == ALT:
            return expressions.alt(parts)
        if kind == AND:
            return expressions.all_of(parts)
        if kind == NOT:
            return expressions.complement(parts[0])
        return self._ahead(parts[0]) if kind == _AHEAD else self._with(parts[0], parts[1])
