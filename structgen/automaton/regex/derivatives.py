"""Derivatives of regular expressions by minterms, and which expressions match any text.

Reading a minterm in an expression gives its Brzozowski derivative (Brzozowski 1964; Owens, Reppy &
Turon 2009 for derivative classes), by classes of minterms with the same derivative. Intersection
and complement cost nothing extra. `lookarounds` handles anchors and lookarounds, `expressions` the
normal form. Knows no runs of characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from structgen.automaton import liveness
from structgen.automaton.work import WORK
from structgen.grammar import ir

from . import lookarounds
from .alphabet import Alphabet
from .expressions import ALT, AND, CAT, EPSILON, NONE, NOT, QUOTE, REP, SET, Expressions
from .lookarounds import Moves
from .quotes import Interval, passages_of


def char_sets(regex: ir.Regex) -> set[ir.Ranges]:
    """Return all character sets that occur in ``regex`` (iterative: nesting costs no stack).

    Visits each part once: formats have few parts, each at many places.
    """
    found: set[ir.Ranges] = set()
    seen: set[ir.Regex] = set()
    stack: list[ir.Regex] = [regex]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ir.CharSet):
            found.add(node.ranges)
        elif isinstance(node, ir.Checksum):
            found.update(chars.ranges for step in node.steps for _, chars in step)
            found.add(node.between.ranges)
        elif isinstance(node, ir.Quote):
            found.update(passages_of(node).sets)
        else:
            stack.extend(ir.parts_of(node))
    WORK.spend(len(seen) >> 2)
    return found


class Derivatives:
    """A regular expression and its derivatives.

    Args:
        regex: the expression.
        alphabet: minterms at least as fine as the expression's character sets; None builds them.

    Raises:
        CompileLimitExceeded: more than `expressions.MAX_NODES` derivatives were needed.
    """

    def __init__(self, regex: ir.Regex, alphabet: Alphabet | None) -> None:
        self.alphabet = alphabet or Alphabet(char_sets(regex))
        self.expressions = Expressions(self.alphabet)
        self._moves: dict[int, Moves] = {}
        self._alive: dict[int, bool] = {NONE: False, EPSILON: True}
        self._looks: lookarounds.Lookarounds | None = None
        self._sums: dict[Any, list[tuple[int, ...]]] = {}
        self._is_counting = False
        # By quoted document, the minterms of each class of its characters.
        self.classes: list[list[int]] = []
        # The start state. It may have no text; all other states have one.
        self.start = self._lower(regex, {})
        self._sums.clear()

    def label(self, state: int) -> int:
        """Return 0 if the text may end here, else -1."""
        return 0 if self.expressions.flags[state] & 0b001 else -1

    # -- from the IR ------------------------------------------------------------------------

    def _lower(self, regex: ir.Regex, known: dict[ir.Regex, int]) -> int:
        """Return the node of an expression; ``known``: the nodes of its parts so far."""
        expressions = self.expressions
        found = known.get(regex)
        if found is not None:
            return found
        WORK.left -= 1
        if WORK.left < 0:
            raise WORK.too_much()
        if isinstance(regex, ir.CharSet):
            node = expressions.set_of(self.alphabet.mask(regex.ranges))
        elif isinstance(regex, ir.Concat):
            node = EPSILON
            for part in reversed(regex.parts):
                node = expressions.cat(self._lower(part, known), node)
        elif isinstance(regex, ir.Alternate):
            node = expressions.alt([self._lower(part, known) for part in regex.parts])
        elif isinstance(regex, ir.Repeat):
            most = -1 if regex.max is None else regex.max
            if most > max(regex.min, 1):
                self._is_counting = True
            node = expressions.repeat(self._lower(regex.body, known), regex.min, most)
        elif isinstance(regex, ir.Intersect):
            both = expressions.all_of([self._lower(part, known) for part in regex.parts])
            node = self._of_its_own(both)
        elif isinstance(regex, ir.Complement):
            node = self._of_its_own(expressions.complement(self._lower(regex.body, known)))
        elif isinstance(regex, ir.Checksum):
            node = self._checksum(regex)
        elif isinstance(regex, ir.Quote):
            node = self._quote(regex)
        else:
            if self._looks is None:
                self._looks = lookarounds.Lookarounds(self)
            node = self._looks.lower(regex, lambda part: self._lower(part, known))
        known[regex] = node
        return node

    def _checksum(self, regex: ir.Checksum) -> int:
        """Return the node of a checksum: a node for each place, each number of gap characters left,
        and each remainder that is still needed.

        Equal endings share nodes and are computed once.
        """
        expressions = self.expressions
        modulus, between = (
            regex.modulus,
            expressions.set_of(self.alphabet.mask(regex.between.ranges)),
        )
        # Equal endings are identified by what follows, for each place.
        WORK.spend(len(regex.steps) ** 2 >> 4)
        WORK.hold(4 * len(regex.steps) ** 2)
        # A row of remainders for each number of gaps, still without gaps.
        WORK.spend(modulus * (1 + regex.count) >> 2)
        WORK.hold(8 * modulus * (1 + regex.count))
        nothing = (NONE,) * modulus
        # By the number of gaps still to fill, and the sum still to add.
        owed = [(EPSILON, *nothing[1:])] + [nothing] * regex.count
        for place in reversed(range(len(regex.steps))):
            gaps = tuple(gap - place for gap in regex.gaps if gap >= place)
            key = modulus, regex.steps[place:], between, gaps, regex.count
            known = self._sums.get(key)
            if known is None:
                sets = [
                    (n, expressions.set_of(self.alphabet.mask(c.ranges)))
                    for n, c in regex.steps[place]
                ]
                WORK.spend(modulus * len(owed) * (1 + len(sets)) >> 2)
                WORK.hold(8 * modulus * len(owed))
                known = [
                    tuple(
                        self._ways(
                            [expressions.cat(c, rests[(rest - n) % modulus]) for n, c in sets]
                        )
                        for rest in range(modulus)
                    )
                    for rests in owed
                ]
                if place in regex.gaps:
                    for n in range(regex.count, 0, -1):
                        filled = [expressions.cat(between, after) for after in known[n - 1]]
                        known[n] = tuple(map(self._ways, zip(known[n], filled, strict=True)))
                self._sums[key] = known
            owed = known
        return owed[regex.count][0]

    def _quote(self, regex: ir.Quote) -> int:
        """Return the node of all quotes of a document."""
        passages = passages_of(regex)
        if not len(passages.starts):
            return NONE
        self.classes.append([self.alphabet.mask(ranges) for ranges in passages.sets])
        self.expressions.quotes.append(passages)
        return self.expressions.quote(len(self.classes) - 1, passages.root)

    def _ways(self, parts: Iterable[int]) -> int:
        """Return the union of sequences that each begin with a different character."""
        expressions = self.expressions
        flat: list[int] = []
        for part in parts:
            if part != NONE:
                node = expressions.nodes[part]
                flat.extend(node[1:] if node[0] == ALT else (part,))
        if len(flat) < 2 or any(expressions.nodes[part][0] != CAT for part in flat):
            return expressions.alt(flat)
        return expressions.node((ALT, *sorted(flat)), 0)

    def _of_its_own(self, node: int) -> int:
        return node if self._looks is None else self._looks.of_its_own(node)

    # -- derivatives ------------------------------------------------------------------------

    def derive(self, node: int) -> Moves:
        """Return the derivatives of a node, by classes of minterms."""
        moves = self._moves.get(node)
        if moves is None:
            # Start at the end of a long chain of optional parts, to avoid deep recursion.
            chain = [node]
            while True:
                kind, *args = self.expressions.nodes[chain[-1]]
                if (
                    kind != CAT
                    or args[1] in self._moves
                    or not self.expressions.flags[args[0]] & 0b001
                ):
                    break
                chain.append(args[1])
            for part in reversed(chain):
                moves = self._moves[part] = self._derivative(part)
            assert moves is not None
        return moves

    def _derivative(self, node: int) -> Moves:
        expressions = self.expressions
        if self._looks is not None and self._looks.are_in(node):
            return self._looks.derivative(node)
        kind, *args = expressions.nodes[node]
        derive = self.derive
        if kind == SET:
            return ((args[0], EPSILON),)
        if kind == CAT:
            left, right = args
            moves = tuple((mask, expressions.cat(to, right)) for mask, to in derive(left))
            if expressions.flags[left] & 0b001:
                return self.overlay([moves, derive(right)], expressions.alt)
            return moves
        if kind == REP:
            body, least, most = args
            fewer = 0 if expressions.flags[body] & 0b001 else max(least - 1, 0)
            rest = expressions.repeat(body, fewer, most - 1 if most > 0 else most)
            return tuple((mask, expressions.cat(to, rest)) for mask, to in derive(body))
        if kind == ALT:
            return self.overlay([derive(part) for part in args], expressions.alt)
        if kind == AND:
            return self.overlay([derive(part) for part in args], expressions.all_of, every=True)
        if kind == QUOTE:
            which, *read = args
            masks = self.classes[which]
            children = expressions.quotes[which].children(Interval(*read))
            return tuple(
                [(masks[code], expressions.quote(which, to)) for code, to in children.items()]
            )
        if kind == NOT:
            out: list[tuple[int, int]] = []
            rest_mask = self.alphabet.everything
            for mask, to in derive(args[0]):
                rest_mask &= ~mask
                out.append((mask, expressions.complement(to)))
            out.append((rest_mask, expressions.everything))
            return tuple((mask, to) for mask, to in out if mask and to != NONE)
        return ()

    def overlay(
        self, maps: list[Moves], combine: Callable[[Iterable[int]], int], every: bool = False
    ) -> Moves:
        """Combine move maps by minterm; with ``every``, drop minterms that a map lacks."""
        maps = [m for m in maps if m] if not every else maps
        if len(maps) == 1:
            return maps[0]
        groups: dict[tuple[int, ...], int] = {}
        for mask, targets in _common(maps) if every else _refined(maps):
            groups[targets] = groups.get(targets, 0) | mask
        # Part by part, without making nodes: new nodes cost more.
        WORK.spend(1 + (len(groups) * len(maps) >> 2))
        merged: dict[int, int] = {}
        for targets, mask in groups.items():
            to = combine(targets) if len(targets) > 1 else targets[0]
            if to != NONE:
                merged[to] = merged.get(to, 0) | mask
        return tuple((mask, to) for to, mask in merged.items())

    # -- emptiness --------------------------------------------------------------------------

    def _parts_alive(self, node: int) -> bool:
        """`_is_alive` of a sequence, alternation or repeat without anchors, from its parts."""
        while True:
            kind, *args = self.expressions.nodes[node]
            if kind == ALT:
                return any(self._is_alive(part) for part in args)
            if kind == REP:
                return args[1] == 0 or self._is_alive(args[0])
            if kind != CAT:
                return self._is_alive(node)
            if not self._is_alive(args[0]):
                return False
            node = args[1]

    def _is_alive(self, node: int) -> bool:
        """Return whether an accepting state can be reached from ``node``."""
        expressions = self.expressions
        if not expressions.flags[node] & 0b11000:
            return node != NONE
        known = self._alive.get(node)
        if known is not None:
            return known
        if not expressions.flags[node] & 0b01000 and expressions.nodes[node][0] in (CAT, ALT, REP):
            found = self._alive[node] = self._parts_alive(node)
            return found
        is_alive = self._alive_by_length(node)
        if is_alive is not None:
            self._alive[node] = is_alive
            return is_alive
        return liveness.is_alive(
            node,
            self._alive,
            lambda at: (  # it may end, or is plain
                bool(expressions.flags[at] & 0b001)
                or (not expressions.flags[at] & 0b11000 and at != NONE)
            ),
            lambda at: [to for _, to in self.derive(at)],
        )

    def _alive_by_length(self, node: int) -> bool | None:
        """`_is_alive` of a conjunction with ``.{a,b}``, if the shortest text of the other part
        decides.

        Most conjunctions are a pattern with a length, far from its limit: a search would visit a
        state for each missing character.
        """
        expressions = self.expressions
        kind, *parts = expressions.nodes[node]
        if kind != AND or expressions.flags[node] & 0b01000:
            return None
        for part in parts:
            other = expressions.nodes[part]
            if other[0] == REP and other[1] == expressions.any_char:
                if other[3] >= 0 and expressions.least[node] > other[3]:
                    return False
                if len(parts) == 2:
                    rest = parts[0] if part == parts[1] else parts[1]
                    # For plain expressions, the lower bound is the length of some text.
                    if not expressions.flags[rest] & 0b11000 and (
                        expressions.least[rest] >= other[2] or expressions.grows[rest]
                    ):
                        return True
        return None


def _common(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the minterms that all ``maps`` have, grouped by their next states."""
    pieces: list[tuple[int, tuple[int, ...]]] = [(mask, (to,)) for mask, to in maps[0]]
    for moves in maps[1:]:
        pieces = [
            (common, (*targets, to))
            for mask, targets in pieces
            for other, to in moves
            if (common := mask & other)
        ]
    return pieces


def _refined(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the minterms that any of ``maps`` has, grouped by their next states."""
    if sum(mask.bit_count() for moves in maps for mask, _ in moves) <= 3 * len(maps):
        return _refined_by_minterm(maps)
    pieces: list[tuple[int, tuple[int, ...]]] = [(mask, (to,)) for mask, to in maps[0]]
    for moves in maps[1:]:
        split: list[tuple[int, tuple[int, ...]]] = []
        WORK.spend(len(moves) * len(pieces) >> 4)
        for other, to in moves:
            untouched: list[tuple[int, tuple[int, ...]]] = []
            for piece in pieces:
                mask, targets = piece
                common = mask & other
                if not common:
                    untouched.append(piece)
                    continue
                split.append((common, (*targets, to)))
                other ^= common
                if mask != common:
                    untouched.append((mask ^ common, targets))
            pieces = untouched
            if other:
                split.append((other, (to,)))
        pieces += split
    return pieces


def _refined_by_minterm(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    per_minterm: dict[int, list[int]] = {}
    for moves in maps:
        for mask, to in moves:
            while mask:
                bit = mask & -mask
                mask ^= bit
                per_minterm.setdefault(bit, []).append(to)
    return [(bit, tuple(targets)) for bit, targets in per_minterm.items()]
