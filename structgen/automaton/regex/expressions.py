"""Regular expressions in a normal form, hash-consed to integers: the states of a pattern.

Expressions that are equal by the normal form are one node (Owens, Reppy & Turon 2009), so a pattern
has few states. Counted repeats stay symbolic: ``r{3,1000}`` is one node. `Expressions` owns the
nodes, their limits, the constructors, and the normal form of alternatives, which keeps the widest
of overlapping ones. Character sets are masks of minterms. Knows neither derivatives nor the IR.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

from .alphabet import Alphabet
from .quotes import Interval, Passages

MAX_NODES = 200_000
"""The most expressions that one pattern may derive before it is refused."""

MAX_SIZE = 3_000_000
"""The most parts of all these expressions: growing alternatives are as costly as many alternatives.
"""

ROOM = 10
"""Factor for both limits for patterns whose states grow steadily with the text."""

_MOST_LEAST = 1 << 48
"""The largest lower bound on lengths."""

NONE, EPSILON = 0, 1
SET, CAT, ALT, REP, AND, NOT, QUOTE = range(2, 9)


_MOST_BEFORE = 3
"""The most factors before a repeat that are compared to find an alternative that covers it."""

_NO_END = 1 << 60
"""The upper bound of an unbounded repeat."""

_Counted = tuple[tuple[int, ...], int, int]
"""The parts before a repeat, its body, and the parts after."""


class Expressions:
    """The nodes of one pattern.

    Attributes:
        alphabet: the minterms of its sets.
        nodes: for each node, its kind and its parts: nodes, a mask of minterms, or bounds (-1:
            none). ``CAT`` has two parts, ``ALT`` and ``AND`` any number, ``REP`` a body and bounds,
            ``QUOTE`` the number of a document and an interval of it.
        flags: per node: bit 0 nullable at the end, bit 1 nullable in the middle, bit 2 nullable
            when the text is empty, bit 3 holds an anchor or lookaround, bit 4 holds more than sums
            and repeats.
        least: for each node, a lower bound on the characters of a text.
        grows: for each node, whether there is a text of each length from that bound on; 0 if
            unknown.
        size: the number of parts of all nodes.
        quotes: the quoted documents.
        any_char: the node of any one character.
        everything: the node of all texts.
        room: the factor for the usual limits.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.nodes: list[tuple[int, ...]] = [(NONE,), (EPSILON,)]
        self._ids: dict[tuple[int, ...], int] = {(NONE,): NONE, (EPSILON,): EPSILON}
        self.flags = bytearray((0, 0b111))
        self.size = 0
        self.room = 1
        self.quotes: list[Passages] = []
        self.least = array("q", (0, 0))
        self.grows = bytearray((0, 0))
        self._chars: dict[int, int] = {}
        self._counted: dict[int, tuple[tuple[_Counted, int, int], ...]] = {}
        self.any_char = self.set_of(self.alphabet.everything)
        self.everything = self.repeat(self.any_char, 0, -1)

    # -- what a node is ---------------------------------------------------------------------

    def sequence(self, node: int) -> list[int]:
        """Return the parts of a sequence; any other node is its only part."""
        out: list[int] = []
        while self.nodes[node][0] == CAT:
            out.append(self.nodes[node][1])
            node = self.nodes[node][2]
        out.append(node)
        return out

    # -- construction -----------------------------------------------------------------------

    def node(self, key: tuple[int, ...], flags: int) -> int:
        """Return the node of a kind with parts in normal form."""
        found = self._ids.get(key)
        if found is None:
            found = len(self.nodes)
            if found > MAX_NODES * self.room:
                raise CompileLimitExceeded(
                    "a pattern needs too many automaton states; simplify its counted repetitions",
                    limit=MAX_NODES * self.room,
                    actual=found,
                )
            WORK.left -= 1 + (len(key) >> 3)
            if WORK.left < 0:
                raise WORK.too_much()
            self.size += len(key)
            if self.size > MAX_SIZE * self.room:
                raise CompileLimitExceeded(
                    "a pattern has too many alternatives at once; simplify its counted repetitions",
                    limit=MAX_SIZE * self.room,
                    actual=self.size,
                )
            self.nodes.append(key)
            self.flags.append(flags)
            self.least.append(min(self._fewest(key), _MOST_LEAST))
            self.grows.append(self._has_all_lengths(key, self.least[found]))
            self._ids[key] = found
        return found

    def _fewest(self, key: tuple[int, ...]) -> int:
        kind, *args = key
        if kind == SET:
            return 1
        if kind == CAT:
            return self.least[args[0]] + self.least[args[1]]
        if kind == ALT:
            return min(self.least[part] for part in args)
        if kind == AND:
            return max(self.least[part] for part in args)
        if kind == REP:
            return self.least[args[0]] * args[1]
        if kind == QUOTE:
            return self.quotes[args[0]].least(Interval(*args[1:]))
        return 0

    def _has_all_lengths(self, key: tuple[int, ...], least: int) -> bool:
        kind, *args = key
        if kind == CAT:
            return bool(self.grows[args[0]] or self.grows[args[1]])
        if kind == ALT:
            return any(self.grows[part] and self.least[part] == least for part in args)
        if kind == REP:
            body, low, most = args
            if self.grows[body]:
                return low > 0 or self.least[body] <= 1
            return most < 0 and self.least[body] == 1
        return False

    def set_of(self, mask: int) -> int:
        """Return the node of one of some minterms."""
        return self.node((SET, mask), 0) if mask else NONE

    def quote(self, which: int, read: Interval) -> int:
        """Return the node of the rest of a quote."""
        node = self.node((QUOTE, which, *read), 0)
        if not self.least[node]:
            self.flags[node] = 0b111
        return node

    def cat(self, left: int, right: int) -> int:
        """Return the node of a sequence."""
        if left == NONE or right == NONE:
            return NONE
        if left == EPSILON:
            return right
        if right == EPSILON:
            return left
        node = self.nodes[left]
        if node[0] == CAT:
            return self.cat(node[1], self.cat(node[2], right))
        if left == self.everything and right == self.everything:
            return left
        f, g = self.flags[left], self.flags[right]
        if node[0] == REP and not f & 0b11000:
            # a{1,2}a{0,3} is a{1,5}: a chain of optional parts stays one counter.
            rest = self.nodes[right]
            first, *after = rest[1:] if rest[0] == CAT else (right,)
            other = self.nodes[first]
            if other[0] == REP and other[1] == node[1]:
                most = -1 if -1 in (node[3], other[3]) else node[3] + other[3]
                merged = self.repeat(node[1], node[2] + other[2], most)
                return self.cat(merged, after[0]) if after else merged
        flags = (f & g & 0b111) | ((f | g) & 0b11000)
        return self.node((CAT, left, right), flags)

    def repeat(self, body: int, least: int, most: int) -> int:
        """Return the node of a repeat; ``most`` -1 for any number."""
        if most == 0 or body == EPSILON:
            return EPSILON
        if body == NONE:
            return EPSILON if least == 0 else NONE
        if most >= 0 and most < least:
            return NONE
        flags = self.flags[body]
        if flags & 0b111 == 0b111:
            least = 0
        if least == 1 and most == 1:
            return body
        node = self.nodes[body]
        if node[0] == REP and least <= 1 and most == -1 and node[2] <= 1 and node[3] == -1:
            return self.repeat(node[1], least * node[2], -1)
        key = (REP, body, least, most)
        return self.node(key, (0b111 if least == 0 else flags & 0b111) | (flags & 0b11000))

    def all_of(self, parts: Iterable[int]) -> int:
        """Return the node of a conjunction."""
        flat: set[int] = set()
        stack = list(parts)
        while stack:
            part = stack.pop()
            if part == NONE:
                return NONE
            node = self.nodes[part]
            if node[0] == AND:
                stack.extend(node[1:])
            elif part != self.everything:
                flat.add(part)
        if not flat:
            return self.everything
        if len(flat) > 1:
            flat = self._as_one_repeat(flat)
        if len(flat) == 1:
            return flat.pop()
        flags = 0b111
        for part in flat:
            flags &= self.flags[part]
        anchors = 0
        for part in flat:
            anchors |= self.flags[part] & 0b01000
        return self.node((AND, *sorted(flat)), (flags & 0b111) | anchors | 0b10000)

    def _as_one_repeat(self, parts: set[int]) -> set[int]:
        """Return ``parts`` of a conjunction with all repeats of one set merged: ``[a-z]*`` and
        ``.{2,9}`` is ``[a-z]{2,9}``."""
        repeats: list[tuple[int, ...]] = []
        for part in parts:
            node = self.nodes[part]
            if node[0] == SET:
                repeats.append((part, node[1], 1, 1))
            elif node[0] == REP and self.nodes[node[1]][0] == SET:
                repeats.append((part, self.nodes[node[1]][1], *node[2:]))
        if len(repeats) < 2:
            return parts
        chars, least, most = self.alphabet.everything, 0, -1
        for _, mask, low, high in repeats:
            chars &= mask
            least = max(least, low)
            most = high if most < 0 else min(most, high) if high >= 0 else most
        one = self.repeat(self.set_of(chars), least, most)
        return {NONE} if one == NONE else {one, *parts.difference([item[0] for item in repeats])}

    def complement(self, body: int) -> int:
        """Return the node of all texts except those of ``body``."""
        if body == NONE:
            return self.everything
        if body == self.everything:
            return NONE
        node = self.nodes[body]
        if node[0] == NOT:
            return node[1]
        flags = self.flags[body]
        return self.node((NOT, body), (~flags & 0b111) | (flags & 0b01000) | 0b10000)

    # -- sums ---------------------------------------------------------------------------------

    def alt(self, parts: Iterable[int]) -> int:
        """Return the node of a union."""
        flat: set[int] = set()
        chars = 0
        stack = list(parts)
        while stack:
            part = stack.pop()
            node = self.nodes[part]
            if node[0] == ALT:
                stack.extend(node[1:])
            elif node[0] == SET:
                chars |= node[1]
            elif part != NONE:
                flat.add(part)
        if chars:
            flat.add(self.set_of(chars))
        if self.everything in flat:
            return self.everything
        flags = 0
        for part in flat:
            if part != EPSILON:
                flags |= self.flags[part]
        if EPSILON in flat:
            if flags & 0b111 == 0b111:
                flat.discard(EPSILON)
            flags |= 0b111
        if not flat:
            return NONE
        WORK.spend(len(flat) >> 3)
        flat = self._subsume(flat)
        if len(flat) == 1:
            return flat.pop()
        return self.node((ALT, *sorted(flat)), flags)

    def _subsume(self, parts: set[int]) -> set[int]:
        """Drop ``r{a,b}·s`` beside ``r{c,d}·s`` with c <= a, b <= d, to keep few counters.

        If ``s`` matches any text, repeats of ``r`` beyond ``c`` may as well belong to ``s``. Both
        may have the same parts before them.
        """
        if len(parts) < 2:
            return parts
        WORK.spend(len(parts) >> 1)
        parts = self._without_covered(parts)
        groups: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        for part in parts:
            node, rest = self.nodes[part], EPSILON
            before: tuple[int, ...] = ()
            if node[0] == CAT:
                left, rest = node[1:]
                while rest != self.everything and len(before) < _MOST_BEFORE:
                    after = self.nodes[rest]
                    if after[0] != CAT:
                        break
                    before += (left,)
                    left, rest = after[1:]
                if rest != self.everything:
                    before = ()
                    left, rest = node[1:]
                node = self.nodes[left]
            if node[0] == REP:
                most = node[3] if node[3] >= 0 and rest != self.everything else _NO_END
                groups.setdefault((node[1], rest, *before), []).append((node[2], most, part))
        out = parts
        for group in groups.values():
            if len(group) < 2:
                continue
            group.sort(key=lambda item: (item[0], -item[1]))
            widest = -1
            for _, most, part in group:
                if most <= widest:
                    if out is parts:
                        out = set(parts)
                    out.discard(part)
                widest = max(widest, most)
        return self._adjoined(out) if len(out) > 1 else out

    def _adjoined(self, parts: set[int]) -> set[int]:
        """Return ``parts`` with ``q·r{a,b}·s`` and ``q·r{c,d}·s`` merged into ``q·r{a,d}·s`` if no
        count is missing between them: in ``(?:a|b|ab){1000}`` any of hundreds of counts may be
        left."""
        groups: dict[_Counted, list[tuple[int, int, int]]] = {}
        n_counted = 0
        for part in parts:
            counted = self._counted.get(part)
            if counted is None:
                counted = self._counted[part] = self._find_counted(part)
            n_counted += len(counted)
            for key, least, most in counted:
                groups.setdefault(key, []).append((least, most, part))
        if len(groups) == n_counted:
            return parts
        gone: set[int] = set()
        joined: set[int] = set()
        for (before, body, rest), group in groups.items():
            if len(group) < 2:
                continue
            group.sort()
            chain: list[int] = []
            first = last = 0
            for least, most, part in [*group, (_NO_END, _NO_END, NONE)]:
                if part in gone:
                    continue
                if chain and least <= last + 1 and part != NONE:
                    chain.append(part)
                    last = max(last, most)
                    continue
                if len(chain) > 1:
                    one = self.cat(self.repeat(body, first, -1 if last == _NO_END else last), rest)
                    for factor in reversed(before):
                        one = self.cat(factor, one)
                    gone.update(chain)
                    joined.add(one)
                chain, first, last = [part], least, most
        return self._subsume(parts - gone | joined) if gone else parts

    def _find_counted(self, part: int) -> tuple[tuple[_Counted, int, int], ...]:
        """Return a sequence's repeats: the parts before, the body, the parts after; bounds."""
        found: list[tuple[_Counted, int, int]] = []
        before: tuple[int, ...] = ()
        rest = part
        while rest != EPSILON and len(before) <= _MOST_BEFORE:
            node = self.nodes[rest]
            left, rest = node[1:] if node[0] == CAT else (rest, EPSILON)
            factor = self.nodes[left]
            if factor[0] == REP:
                most = factor[3] if factor[3] >= 0 else _NO_END
                found.append(((before, factor[1], rest), factor[2], most))
            before += (left,)
        return tuple(found)

    def _without_covered(self, parts: set[int]) -> set[int]:
        """Drop ``q·[x]*·s`` beside ``[x]*·s`` if ``q`` has no other characters: of overlapping
        parts of a pattern, the widest remains."""
        stars: dict[int, int] = {}
        for part in parts:
            node = self.nodes[part]
            if node[0] == CAT:
                node = self.nodes[node[1]]
            if node[0] == REP and not node[2] and node[3] < 0:
                body = self.nodes[node[1]]
                if body[0] == SET:
                    stars[part] = body[1]
        if not stars:
            return parts
        out = parts
        for part in parts:
            chars, rest = 0, part
            for _ in range(_MOST_BEFORE + 1):
                node = self.nodes[rest]
                if node[0] != CAT:
                    break
                chars |= self._all_chars(node[1])
                rest = node[2]
                if rest in stars and not chars & ~stars[rest]:
                    if out is parts:
                        out = set(parts)
                    out.discard(part)
                    break
        return out

    def _all_chars(self, node: int) -> int:
        """Return the minterms that texts of an expression contain; a superset."""
        found = self._chars.get(node)
        if found is None:
            kind, *args = self.nodes[node]
            if kind == SET:
                found = args[0]
            elif kind in (CAT, ALT):
                found = 0
                for part in args:
                    found |= self._all_chars(part)
            elif kind == REP:
                found = self._all_chars(args[0])
            else:
                found = 0 if kind == EPSILON else self.alphabet.everything
            self._chars[node] = found
        return found
