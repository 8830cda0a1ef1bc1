"""Sums of regular expressions in normal form: without the alternatives that others cover.

Of what overlaps in a pattern the widest part remains, and counts of one repeat that lack none in
between are one range of counts: so ``(?:a|b|ab){1000}`` has one part or two after any text, not
hundreds. It knows the nodes of `expressions`, and nothing of derivatives.
"""

from __future__ import annotations

from collections.abc import Iterable

from structgen.automaton.work import WORK

from .alphabet import Alphabet
from .expressions import ALT, CAT, EPSILON, NONE, REP, SET, Expressions

_MOST_BEFORE = 3
"""Most factors before a repeat that are compared to find out that another alternative covers it."""

_NO_END = 1 << 60
"""The upper bound of a repeat without one, among upper bounds."""

_Counted = tuple[tuple[int, ...], int, int]
"""What stands before a repeat, what it repeats, and what comes after."""


class Sums(Expressions):
    """`Expressions` with their sums."""

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet)
        self._chars: dict[int, int] = {}
        self._counted: dict[int, tuple[tuple[_Counted, int, int], ...]] = {}

    def alt(self, parts: Iterable[int]) -> int:
        """The node of a sum."""
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
        """Drop ``r{a,b}·s`` when ``r{c,d}·s`` with c <= a, b <= d is there: keeps counters few.

        Where ``s`` takes any text, what ``r`` reads beyond ``c`` times may as well belong to it;
        and something may stand before both.
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
        """``parts`` with ``q·r{a,b}·s`` and ``q·r{c,d}·s`` as one ``q·r{a,d}·s`` where no count is
        left out between them: in ``(?:a|b|ab){1000}`` any of hundreds of counts may be left."""
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
        """The repeats in a sequence: what stands before, is repeated and comes after; bounds."""
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
        """Drop ``q·[x]*·s`` when ``[x]*·s`` is there and ``q`` has no other characters: of what
        overlaps in a pattern the widest part remains."""
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
        """The minterms that texts of an expression hold, or more."""
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
