"""Which values a schema node lists, as far as a look at it tells.

Owns `Listings`: for a node the few values that meet it (an ``enum``, a ``const``, any of such, a
pattern that matches a few words), and for a requirement an upper bound of its types. Lookarounds at
fields and at what nodes refer to, builds nothing, and says None where it would have to think.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from structgen.grammar import ir
from structgen.grammar.json_schema import ALL_TYPES, STRING, Node

from .quick_checks import IN_PLACE

_MOST_HOPS = 12
"""So many references and applicators deep is looked."""

_MOST_WORDS = 64
"""Most words of a pattern that are listed."""


class Listing(NamedTuple):
    """Values, by `json_key`.

    Attributes:
        keys: all values that can meet the requirement.
        is_exact: whether all of them do, and are strings.
    """

    keys: frozenset[Any]
    is_exact: bool


class Listings:
    """What the nodes of a growing list list, remembered.

    Args:
        nodes: the schema's nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[int, Listing | None] = {}
        self._words: dict[int, frozenset[str] | None] = {}

    def of(self, requirement: int, hops: int = 0) -> Listing | None:
        """The values that can meet ``requirement``, or None where these are not a plain list."""
        if requirement & 1 or requirement not in self._known:
            if requirement & 1 or hops > _MOST_HOPS:
                return None
            self._known[requirement] = None  # the answer inside itself
            self._known[requirement] = self._listing(self._nodes[requirement >> 1], hops + 1)
        return self._known[requirement]

    def _listing(self, node: Node, hops: int) -> Listing | None:
        found: Listing | None = None
        parts: list[Listing] = []
        exact = True
        if node.enum is not None:
            found = Listing(node.listed, node.is_list and _are_strings(node.listed))
            if not node.is_list:
                exact = False
        elif node.asserts and not _says_types(node):
            exact = False
        for option in (*node.refs, *node.all_of):
            one = self.of(option, hops)
            if one is None:
                exact = False
            else:
                parts.append(one)
        for options in (node.any_of, node.one_of):
            if options is not None:
                ways = [self.of(option, hops) for option in options]
                known = [way for way in ways if way is not None]
                if len(known) < len(ways):
                    exact = False
                    continue
                keys = frozenset[Any]().union(*(way.keys for way in known))
                apart = options is node.any_of or sum(len(way.keys) for way in known) == len(keys)
                parts.append(Listing(keys, apart and all(way.is_exact for way in known)))
        for part in parts:
            if found is None:
                found = part
            else:
                found = Listing(found.keys & part.keys, found.is_exact and part.is_exact)
        if found is None:
            return None
        exact &= vars(node).keys() <= _LISTING and bool(node.types & STRING)
        return Listing(found.keys, found.is_exact and exact)

    def types(self, requirement: int, hops: int = 0) -> int:
        """Type bits that are the only ones which values that meet ``requirement`` can have."""
        if requirement & 1 or hops > _MOST_HOPS:
            return ALL_TYPES
        node = self._nodes[requirement >> 1]
        types = node.types
        for part in (*node.refs, *node.all_of):
            types &= self.types(part, hops + 1)
        for options in (node.any_of, node.one_of):
            if options is not None:
                some = 0
                for option in options:
                    some |= self.types(option, hops + 1)
                    if some & types == types:
                        break
                types &= some
        return types

    def is_silent(self, requirement: int) -> bool:
        """Whether every string plainly meets ``requirement``."""
        if requirement & 1:
            return False
        node = self._nodes[requirement >> 1]
        return bool(node.types & STRING) and _OF_STRINGS.isdisjoint(vars(node))

    def words(self, number: int) -> frozenset[str] | None:
        """The strings that meet node ``number`` if it is a pattern of few words and says nothing
        else of strings; else None."""
        if number not in self._words:
            node = self._nodes[number]
            found = None
            if vars(node).keys() <= _PATTERN and node.types & STRING and len(node.patterns) == 1:
                found = _words(node.patterns[0])
            self._words[number] = None if found is None else frozenset(found)
        return self._words[number]


_PATTERN = frozenset(("_place", "types", "patterns"))
_OF_STRINGS = frozenset(("enum", "excluded", "min_length", "max_length", "patterns")) | (
    IN_PLACE - {"contains", "repeats", "rules", "pattern_properties", "property_names"}
)
_LISTING = frozenset(("_place", "_listed", "types", "enum", "refs", "all_of", "any_of", "one_of"))


def _says_types(node: Node) -> bool:
    return not (
        node.excluded
        or node.speaks_of_numbers
        or node.speaks_of_strings
        or node.speaks_of_objects
        or node.speaks_of_arrays
    )


def _are_strings(keys: frozenset[Any]) -> bool:
    return all(isinstance(key, str) for key in keys)


def _words(regex: ir.Regex) -> list[str] | None:
    """The texts of ``regex`` if they are few and finitely many; else None."""
    if isinstance(regex, ir.CharSet):
        if sum(high - low + 1 for low, high in regex.ranges) > _MOST_WORDS:
            return None
        return [chr(code) for low, high in regex.ranges for code in range(low, high + 1)]
    if isinstance(regex, ir.Concat):
        texts = [""]
        for part in regex.parts:
            more = _words(part)
            if more is None or len(texts) * len(more) > _MOST_WORDS:
                return None
            texts = [text + tail for text in texts for tail in more]
        return texts
    if isinstance(regex, ir.Alternate):
        texts = []
        for part in regex.parts:
            more = _words(part)
            if more is None or len(texts) + len(more) > _MOST_WORDS:
                return None
            texts += more
        return texts
    if isinstance(regex, ir.Repeat) and regex.max is not None and regex.max <= 1:
        more = _words(regex.body)
        if more is None:
            return None
        return more if regex.min else ["", *more]
    return None
