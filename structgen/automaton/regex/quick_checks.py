"""What is plain to see of a pattern, before an automaton is made of it.

Owns one sufficient test, `fewest_characters`: an expression has a string, of so many characters,
and looking for it by derivatives visits few states. It looks at the expression only. Where it says
no, the automaton is built and probed (`early_check`).

Where a string has two characters at most, there are no more states than pairs of minterms. Else
`has_few_sets` counts sets of positions. It reads sequences of *deterministic* expressions,
one-unambiguous in the sense of Brüggemann-Klein and Wood (1998), and alternatives of such: what is
searched for anywhere in a text follows the expression for any text. After a text a deterministic
expression is at one position or at none; the next one of the sequence is at a position for each
place where it may have begun. So the derivatives of the whole are sets of positions (Glushkov
1961), and these are followed as bit masks: some ten times faster than derivatives are made, and
only so far that it is plain whether they are few.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from structgen.automaton.bits import bits
from structgen.grammar import ir

MOST_SETS = 200
"""Most positions, counted repeats written out, and most sets of them. An automaton may have a
thousand times as many nodes."""

_MOST_RANGES = 200
_MOST_DEPTH = 40


_MOST_WORDS = 100

Word: TypeAlias = "tuple[ir.CharSet, ...]"


class _TooMany(Exception):
    """More than is looked at, or something else than characters, sequences and repeats."""


def has_few_sets(regex: ir.Regex) -> bool:
    """Whether ``regex`` plainly has few derivatives. False means nothing.

    Cost: a microsecond or two for each set, of which patterns of ordinary size have some dozen.
    """
    try:
        return _Positions(regex).are_few()
    except _TooMany:
        return False


class _Positions:
    """The positions of alternatives, which stand one after the other in the bits of a mask.

    Attributes:
        begins: where the alternatives begin.
        again: the same of those that are searched for: they may begin at each character.
        over: the last positions of those after which any text may follow.
        follow: for each position those that may come next.
    """

    def __init__(self, regex: ir.Regex) -> None:
        self._sets: list[ir.CharSet] = []
        self.follow: list[int] = []
        self.begins = self.again = self.over = 0
        inside: list[int] = []
        for part in regex.parts if isinstance(regex, ir.Alternate) else (regex,):
            parts = part.parts if isinstance(part, ir.Concat) else (part,)
            if not parts:
                raise _TooMany
            is_searched, is_open = parts[0] == ir.ANY_TEXT, parts[-1] == ir.ANY_TEXT
            found: list[tuple[int, int, bool]] = []
            for inner in parts[is_searched : len(parts) - is_open]:
                before = len(self.follow)
                found.append(self._read(inner, _MOST_DEPTH))
                inside += [found[-1][0], *self.follow[before:]]
            first, last, is_nullable = self._along(found)
            if is_nullable and is_open:
                raise _TooMany  # it takes any text
            self.begins |= first
            self.again |= first if is_searched else 0
            self.over |= last if is_open else 0
        self._classes = self._by_class()
        if not all(map(self._is_clear, inside)):
            raise _TooMany

    def _read(self, regex: ir.Regex, depth: int) -> tuple[int, int, bool]:
        """Add the positions of ``regex``: its first and its last ones, and whether it takes
        "".

        What follows what is only known within it.
        """
        if isinstance(regex, ir.CharSet):
            if len(self._sets) >= MOST_SETS or not regex.ranges:
                raise _TooMany
            self._sets.append(regex)
            self.follow.append(0)
            bit = 1 << len(self._sets) - 1
            return bit, bit, False
        if not depth:
            raise _TooMany
        if isinstance(regex, ir.Concat):
            return self._along([self._read(part, depth - 1) for part in regex.parts])
        if isinstance(regex, ir.Alternate) and regex.parts:
            listed = words(regex)
            if listed is not None:
                return self._read_words(listed)
            found = [self._read(part, depth - 1) for part in regex.parts]
            first = last = 0
            for begin, end, _ in found:
                first |= begin
                last |= end
            return first, last, any(is_nullable for _, _, is_nullable in found)
        if isinstance(regex, ir.Repeat):
            times = max(regex.min, 1) if regex.max is None else regex.max
            if not 0 < times <= MOST_SETS:
                raise _TooMany
            copies: list[tuple[int, int, bool]] = []
            for i in range(times):
                begin, end, is_nullable = self._read(regex.body, depth - 1)
                copies.append((begin, end, is_nullable or i >= regex.min))
            if regex.max is None:
                self._lead(copies[-1][1], copies[-1][0])
            return self._along(copies)
        raise _TooMany

    def _read_words(self, words: list[Word]) -> tuple[int, int, bool]:
        """As `_read`, of any of some words: those that begin alike have these positions in common,
        for what is left of them after a text is one expression."""
        rests: dict[ir.CharSet, list[Word]] = {}
        for word in words:
            if word:
                rests.setdefault(word[0], []).append(word[1:])
        first = last = 0
        for chars, left in rests.items():
            begin, end, _ = self._read(chars, 1)
            first |= begin
            inner, ends, may_end = self._read_words(left)
            self._lead(end, inner)
            last |= ends | (end if may_end else 0)
        return first, last, () in words

    def _along(self, parts: list[tuple[int, int, bool]]) -> tuple[int, int, bool]:
        first = last = 0
        is_nullable = True
        for begin, end, may_miss in parts:
            self._lead(last, begin)
            if is_nullable:
                first |= begin
            last = end | last if may_miss else end
            is_nullable = is_nullable and may_miss
        return first, last, is_nullable

    def _lead(self, ends: int, begins: int) -> None:
        for position in bits(ends):
            self.follow[position] |= begins

    def _by_class(self) -> list[int]:
        """For each class of characters that the sets do not tell apart, the positions of it."""
        positions: dict[ir.CharSet, int] = {}
        for position, chars in enumerate(self._sets):
            positions[chars] = positions.get(chars, 0) | 1 << position
        edges: dict[int, int] = {}
        for chars, held in positions.items():
            for low, high in chars.ranges:
                edges[low] = edges.get(low, 0) ^ held
                edges[high + 1] = edges.get(high + 1, 0) ^ held
        if len(edges) > 2 * _MOST_RANGES:
            raise _TooMany
        classes: dict[int, None] = {}
        here = 0
        for code in sorted(edges):
            here ^= edges[code]
            classes[here] = None
        classes.pop(0, None)
        return list(classes)

    def _is_clear(self, following: int) -> bool:
        """Whether no character leads to two of these positions."""
        if not following & (following - 1):
            return True
        return all((following & held).bit_count() <= 1 for held in self._classes)

    def are_few(self) -> bool:
        """Whether there are at most `MOST_SETS` sets of positions that some text leads to."""
        follow, again, over, classes = self.follow, self.again, self.over, self._classes
        seen: set[int] = set()
        todo = [self.begins]
        while todo:
            following = todo.pop()
            for held in classes:
                to = following & held
                if to and to not in seen and not to & over:
                    seen.add(to)
                    if len(seen) > MOST_SETS:
                        return False
                    next_ = again
                    while to:
                        bit = to & -to
                        to ^= bit
                        next_ |= follow[bit.bit_length() - 1]
                    todo.append(next_)
        return True


def words(regex: ir.Regex, most: int = _MOST_WORDS) -> list[Word] | None:
    """The words that ``regex`` lists, if it does, up to ``most``: each character may be any of a
    set."""
    if isinstance(regex, ir.CharSet):
        return [(regex,)] if most > 0 else None
    if isinstance(regex, ir.Alternate):
        out: list[Word] = []
        for part in regex.parts:
            found = words(part, most - len(out))
            if found is None:
                return None
            out += found
        return out
    if isinstance(regex, ir.Concat):
        out = [()]
        for part in regex.parts:
            found = words(part, most // max(len(out), 1))
            if found is None:
                return None
            out = [(*word, *more) for word in out for more in found]
        return out
    if isinstance(regex, ir.Repeat) and regex.max is not None and regex.max <= 1:
        found = words(regex.body, most)
        return found if found is None or regex.min else [*found, ()]
    return None


_FEW_SETS = 6

_MOST_LEAST = 50
"""Largest ``minLength`` beside a pattern: states are told apart by what is left of it."""

_REMEMBERED = 1024


@lru_cache(maxsize=_REMEMBERED)
def fewest_characters(regex: ir.Regex) -> int:
    """Characters of a shortest string that ``regex`` matches; -1 where more than a look is
    needed.

    Cost: some 10 µs for a pattern of ordinary size.
    """
    found: list[ir.CharSet] = []
    try:
        fewest = _fewest(regex, found, _MOST_DEPTH)
    except _TooMany:
        return -1
    if fewest > MOST_SETS:
        return -1
    if fewest <= 1 or (fewest == 2 and len(dict.fromkeys(found)) <= _FEW_SETS):
        return fewest
    return fewest if has_few_sets(regex) else -1


def has_string(regex: ir.Regex, least: int, most: int | None) -> bool:
    """Whether a string of ``least`` to ``most`` characters that ``regex`` matches is plain to
    see.

    False means nothing.
    """
    fewest = fewest_characters(regex)
    if fewest < 0 or (most is not None and max(fewest, least) > most):
        return False
    return least <= fewest or (least <= _MOST_LEAST and _may_grow(regex))


def _may_grow(regex: ir.Regex) -> bool:
    """Whether there is plainly a longer string, by one character, for each one."""
    parts = regex.parts if isinstance(regex, ir.Concat) else (regex,)
    return any(
        isinstance(part, ir.Repeat) and part.max is None and isinstance(part.body, ir.CharSet)
        for part in parts
    )


def _fewest(regex: ir.Regex, found: list[ir.CharSet], depth: int) -> int:
    """The characters of a shortest text; the character sets are added to ``found``."""
    if isinstance(regex, ir.CharSet):
        found.append(regex)
        if not regex.ranges or len(found) > MOST_SETS:
            raise _TooMany
        return 1
    if not depth:
        raise _TooMany
    if isinstance(regex, ir.Concat):
        return sum([_fewest(part, found, depth - 1) for part in regex.parts])
    if isinstance(regex, ir.Alternate) and regex.parts:
        return min([_fewest(part, found, depth - 1) for part in regex.parts])
    if isinstance(regex, ir.Repeat):
        return _fewest(regex.body, found, depth - 1) * regex.min
    raise _TooMany
