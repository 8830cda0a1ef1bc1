"""Read schema nodes as regular expressions over the strings that satisfy them.

For strings, every requirement is one language, with all its applicators and negations: and, or and
not are parts of an expression, so nothing is multiplied out. Only requirements that apply
themselves in place, endlessly, have none. Keywords about other types do not matter, nor does
``unevaluated…``, because strings have no parts.

`has_plain_string` is a sufficient test that looks only at an expression. Most patterns are
*deterministic*: after any text there is only one position in them (one-unambiguous in the sense of
Brüggemann-Klein and Wood, 1998). So they have no more states than positions, and need no automaton
before a mask does. The same holds for lists of words, even if these share prefixes or are searched
for: the state depends on the longest prefix that the text ends with (Aho and Corasick, 1975).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.grammar.formats import FORMATS, format_of
from structgen.grammar.json_schema import FALSE, STRING, TRUE, Node, bounds
from structgen.grammar.regex import alternate, complement, intersect


def string_regex(nodes: Sequence[Node], with_barred: bool = False) -> ir.Regex | None:
    """Return the strings that satisfy the string assertions of all ``nodes``, or None for none.

    ``with_barred``: include the strings that ``nodes`` bar one by one; see `excluding`.
    """
    least, most = bounds(nodes, "length")
    if most is not None and least > most:
        return None
    parts = list(dict.fromkeys([pattern for node in nodes for pattern in node.patterns]))
    if not with_barred:
        barred = [ir.literal(v) for n in nodes for v in n.excluded if isinstance(v, str)]
        if barred:
            parts.append(ir.Complement(ir.Alternate(tuple(barred))))
    if least or most is not None:
        parts.append(ir.Repeat(ir.ANY_CHAR, least, most))
    if not parts:
        return ir.ANY_TEXT
    return parts[0] if len(parts) == 1 else ir.Intersect(tuple(parts))


class StringReader:
    """Reads requirements over one growing list of nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[int, ir.Regex | None] = {}

    def read(self, requirement: int) -> ir.Regex | None:
        """Return the strings that meet ``requirement``, or None if it applies itself in place."""
        if requirement <= FALSE:
            return ir.ANY_TEXT if requirement == TRUE else ir.NOTHING
        number = requirement >> 1
        if number not in self._known:
            self._known[number] = None
            self._known[number] = self._node(self._nodes[number])
        regex = self._known[number]
        return complement(regex) if regex is not None and requirement & 1 else regex

    def read_choice(self, ways: Iterable[Iterable[int]]) -> ir.Regex | None:
        """Return the strings that meet all requirements of at least one of ``ways``."""
        found: list[ir.Regex] = []
        for way in ways:
            parts = self._read_each(way)
            if parts is None:
                return None
            found.append(intersect(parts))
        return alternate(found)

    def _read_each(self, requirements: Iterable[int]) -> list[ir.Regex] | None:
        found = [self.read(requirement) for requirement in requirements]
        known = [regex for regex in found if regex is not None]
        return known if len(known) == len(found) else None

    def _node(self, node: Node) -> ir.Regex | None:
        own = string_regex([node])
        if not node.types & STRING or own is None:
            return ir.NOTHING
        parts = self._read_each((*node.refs, *node.all_of))
        choices: list[ir.Regex | None] = []
        if node.any_of is not None:
            choices.append(self.read_choice((child,) for child in node.any_of))
        if node.one_of is not None:
            ways = self._read_each(node.one_of)
            choices.append(None if ways is None else _exactly_one(ways))
        if node.condition is not None:
            test, then, otherwise = node.condition
            choices.append(self.read_choice([(test, then), (test ^ 1, otherwise)]))
        if parts is None or None in choices:
            return None
        parts.append(own)
        if node.enum is not None:
            parts.append(alternate(ir.literal(v) for v in node.enum if isinstance(v, str)))
        return intersect([*parts, *(regex for regex in choices if regex is not None)])


def counts_only(regex: ir.Regex) -> bool:
    """Return whether ``regex`` only limits the number of characters."""
    if isinstance(regex, (ir.Alternate, ir.Concat, ir.Intersect)):
        return all(map(counts_only, regex.parts))
    if isinstance(regex, (ir.Complement, ir.Repeat)):
        return counts_only(regex.body)
    return regex == ir.ANY_CHAR


def _exactly_one(parts: Iterable[ir.Regex]) -> ir.Regex:
    """Return an expression for texts that exactly one part matches; linear in their number."""
    none: ir.Regex = ir.ANY_TEXT
    one: ir.Regex = ir.NOTHING
    for part in parts:
        other = complement(part)
        one = alternate([intersect([none, part]), intersect([one, other])])
        none = intersect([none, other])
    return one


_MOST_LEAST = 50
"""The largest ``minLength`` beside a pattern: each remaining count is a state."""

_MOST_PLACES = 300
_MOST_SEARCHED = 12
"""The most positions of a pattern with counted repeats, and of one that is searched for anywhere in
a text, where any set of positions may be active."""

_MOST_LETTERS = 2_000
"""The most letters in a list of words."""

_FEW_SETS = 6
_MANY = 1 << 40
_OTHERS = 0x80
"""The bit that stands for all other characters."""


def has_plain_string(node: Node) -> bool:
    """Return whether some string obviously meets a node's lengths and pattern, and a search for it
    visits few states. False means unknown."""
    least, most = node.min_length, node.max_length
    if not node.patterns:
        return most is None or least <= most
    if len(node.patterns) > 1:
        return False
    (pattern,) = node.patterns
    name = format_of(pattern)
    # The shortest string of a format is printable ASCII, which every vocabulary can write.
    fewest, may_grow = _plain_lengths(pattern) if name is None else (FORMATS[name].fewest, False)
    if fewest < 0 or (most is not None and max(fewest, least) > most):
        return False
    return least <= fewest or (may_grow and least <= _MOST_LEAST)


def _plain_lengths(regex: ir.Regex) -> tuple[int, bool]:
    """Return the characters of a shortest string, and whether there obviously is one of each
    greater length.

    -1 if this is not obvious.
    """
    ways = [_within(way) for way in (regex.parts if isinstance(regex, ir.Alternate) else (regex,))]
    is_searched = any(searched for _, searched in ways)
    inside = ways[0][0] if len(ways) == 1 else ir.Alternate(tuple([way for way, _ in ways]))
    sets: dict[ir.CharSet, int] = {}
    _, _, fewest, places = _look(inside, sets)
    if (
        fewest > 1
        and (fewest > 2 or len(sets) > _FEW_SETS)
        and places > (_MOST_SEARCHED if is_searched else _MOST_PLACES)
        and not _words(inside, sets)
    ):
        return -1, False
    parts = inside.parts if isinstance(inside, ir.Concat) else (inside,)
    stars = [part.body for part in parts if isinstance(part, ir.Repeat) and part.max is None]
    return fewest, not is_searched and any(isinstance(body, ir.CharSet) for body in stars)


def _within(regex: ir.Regex) -> tuple[ir.Concat, bool]:
    """Strip parts that allow any text at the ends; return the rest, and whether one was at the
    start.

    Once any text may follow, there is no other position.
    """
    parts = regex.parts if isinstance(regex, ir.Concat) else (regex,)
    is_searched = parts[:1] == (ir.ANY_TEXT,)
    end = len(parts) - (parts[1:][-1:] == (ir.ANY_TEXT,))
    return ir.Concat(parts[is_searched:end]), is_searched


class _Look(NamedTuple):
    """Facts about an expression that are obvious from its parts.

    Attributes:
        first: the characters that its texts may begin with, as a mask: ASCII, and a bit for all
            others.
        more: the characters that may follow where a text might have ended.
        fewest: the number of characters of a shortest text.
        places: the number of positions; `_MANY` or more if it may not be deterministic.
    """

    first: int
    more: int
    fewest: int
    places: int


def _look(regex: ir.Regex, sets: dict[ir.CharSet, int]) -> _Look:
    """Return the facts about an expression, and add its character sets, as masks, to ``sets``.

    If it has anything other than sets, sequences, alternatives and repeats, or no text at all,
    ``fewest`` is too large.
    """
    if isinstance(regex, ir.CharSet) and regex.ranges:
        mask = sets.get(regex, 0)
        if not mask:
            for low, high in regex.ranges:
                mask |= (1 << min(high, _OTHERS) + 1) - (1 << min(low, _OTHERS))
            sets[regex] = mask
        return _Look(mask, 0, 1, 1)
    if isinstance(regex, ir.Concat):
        first = more = fewest = places = 0
        for part in regex.parts:
            begin, after, length, size = _look(part, sets)
            if begin & (more if fewest else more | first):
                places += _MANY
            if not fewest:
                first |= begin
            more = after if length else more | begin | after
            fewest += length
            places += size
        return _Look(first, more, fewest, places)
    if isinstance(regex, ir.Alternate) and regex.parts:
        first = more = places = 0
        looks = [_look(part, sets) for part in regex.parts]
        is_apart = True
        for begin, after, _, size in looks:
            is_apart = is_apart and not first & begin
            places += size
            first |= begin
            more |= after
        if not is_apart:
            words = _words(regex, sets)
            if not words:
                places += _MANY
            more |= _continuing(words, sets)
        return _Look(first, more, min([look.fewest for look in looks]), places)
    if isinstance(regex, ir.Repeat) and regex.max != 0:
        first, more, fewest, places = _look(regex.body, sets)
        if not fewest or (regex.max != 1 and first & more):
            places += _MANY
        if regex.max != 1 and regex.max != regex.min:
            more |= first
        times = regex.min + 1 if regex.max is None else regex.max
        return _Look(first, more, fewest * regex.min, places * times)
    return _Look(0, 0, _MANY, _MANY)


_Word: TypeAlias = "tuple[ir.CharSet, ...]"


def _words(regex: ir.Regex, sets: Mapping[ir.CharSet, int]) -> list[_Word]:
    """Return the words of an expression that lists words with distinct letters, else none.

    Args:
        regex: the expression, which was looked at.
        sets: its character sets, as masks, perhaps with others.
    """
    words = listed_words(regex)
    WORK.spend(sum(map(len, words)))
    masks = [sets[letter] for letter in set(chain.from_iterable(words))]
    is_apart = sum(masks).bit_count() == sum(map(int.bit_count, masks))
    return words if is_apart else []


def _continuing(words: Sequence[_Word], sets: Mapping[ir.CharSet, int]) -> int:
    """Return the letters, as a mask, with which a word may continue where another one ends."""
    children: dict[tuple[int, ir.CharSet], int] = {}
    ends: set[int] = set()
    for word in words:
        node = 0
        for letter in word:
            node = children.setdefault((node, letter), len(children) + 1)
        ends.add(node)
    ends.discard(0)  # before any character, each may begin
    more = 0
    for node, letter in children:
        more |= sets[letter] if node in ends else 0
    return more


def listed_words(regex: ir.Regex, most: int = _MOST_LETTERS) -> list[_Word]:
    """Return the words of an expression that lists words of up to ``most`` letters, else none."""
    if isinstance(regex, ir.CharSet):
        return [(regex,)]
    if isinstance(regex, ir.Alternate):
        found: list[_Word] = []
        for part in regex.parts:
            words = listed_words(part, most)
            most -= sum(map(len, words)) + 1
            if not words or most < 0:
                return []
            found += words
        return found
    if isinstance(regex, ir.Concat):
        parts, least = regex.parts, len(regex.parts)
    elif isinstance(regex, ir.Repeat) and regex.max is not None and regex.max <= most:
        parts, least = (regex.body,) * regex.max, regex.min
    else:
        return []
    shorter: list[_Word] = []
    found = [()]
    for n, part in enumerate(parts):
        WORK.spend(1)
        if n >= least:
            shorter += found
        words = [(part,)] if isinstance(part, ir.CharSet) else listed_words(part, most)
        letters = len(found) * sum(map(len, words)) + len(words) * sum(map(len, found))
        if not words or sum(map(len, shorter)) + letters + len(found) * len(words) > most:
            return []
        found = [(*first, *then) for first in found for then in words]
    return shorter + found
