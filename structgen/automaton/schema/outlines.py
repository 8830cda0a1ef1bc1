"""Find, by cheap tests, alternatives that exclude each other, and the values that a node lists.

`Outlines` reads the plain assertions of a schema, through references and ``allOf``: types, listed
values, required members and the requirements on them. For ``oneOf`` it checks pairs of
alternatives. If all have a tag, only those that share a value of it can overlap. Otherwise it
compares required members, and only then tests, for a bounded number of pairs, whether any value
meets both. `Listings` returns the few values that meet a node (an ``enum``, a ``const``, a pattern
of few words). Both look only at fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.grammar.json_schema import (
    ALL_TYPES,
    FALSE,
    IN_PLACE,
    OBJECT,
    OF_STRINGS,
    OF_VALUES,
    STRING,
    TRUE,
    Node,
)
from structgen.storage import cached_method

from .strings import listed_words

_MOST_HOPS = 12
"""The search follows at most this many nested references and applicators."""

_MOST_WORDS = 64
"""The most words of a pattern that are listed."""


class Listing(NamedTuple):
    """A list of values, by `json_key`.

    Attributes:
        keys: all values that can meet the requirement.
        is_exact: whether all of them meet it, and are strings.
    """

    keys: frozenset[Any]
    is_exact: bool


class Listings:
    """The values that the nodes of a growing list allow, if these are listed. Cached."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[int, Listing | None] = {}

    def of(self, requirement: int, hops: int = 0) -> Listing | None:
        """Return the values that can meet ``requirement``; None if these are not a plain list."""
        if requirement & 1 or requirement not in self._known:
            if requirement & 1 or hops > _MOST_HOPS:
                return None
            self._known[requirement] = None  # the result inside its own computation
            self._known[requirement] = self._listing(self._nodes[requirement >> 1], hops + 1)
        return self._known[requirement]

    def _listing(self, node: Node, hops: int) -> Listing | None:
        found: Listing | None = None
        parts: list[Listing] = []
        exact = True
        if node.enum is not None:
            exact = node.is_list
            found = Listing(node.listed, exact and all(isinstance(key, str) for key in node.listed))
        elif not _OF_MORE_THAN_TYPES.isdisjoint(vars(node)):
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

    def is_silent(self, requirement: int) -> bool:
        """Return whether every string obviously meets ``requirement``."""
        if requirement & 1:
            return False
        node = self._nodes[requirement >> 1]
        return bool(node.types & STRING) and _OF_STRINGS.isdisjoint(vars(node))

    @cached_method
    def words(self, number: int) -> frozenset[str] | None:
        """Return the strings that meet node ``number`` if its only assertion on strings is a
        pattern of few words; else None."""
        node = self._nodes[number]
        if vars(node).keys() <= _PATTERN and node.types & STRING and len(node.patterns) == 1:
            return _texts(node.patterns[0])
        return None


_PATTERN = frozenset(("_place", "types", "patterns"))
_OF_STRINGS = OF_STRINGS | IN_PLACE | {"enum", "excluded"}
_OF_MORE_THAN_TYPES = OF_VALUES | {"excluded"}
_LISTING = frozenset(("_place", "_listed", "types", "enum", "refs", "all_of", "any_of", "one_of"))


def _texts(regex: ir.Regex) -> frozenset[str] | None:
    """Return the texts of ``regex`` if there are few; else None."""
    listed = listed_words(regex, 100 * _MOST_WORDS)
    sizes = [[sum(high - low + 1 for low, high in c.ranges) for c in word] for word in listed]
    if not listed or sum(map(prod, sizes)) > _MOST_WORDS:
        return None
    return frozenset(
        "".join(map(chr, codes))
        for word in listed
        for codes in product(*([n for a, b in c.ranges for n in range(a, b + 1)] for c in word))
    )


MAX_COMPARED = 30_000
"""The most pairs of one ``oneOf`` whose outlines are compared."""

MAX_ASKED = 700
"""The most pairs of one ``oneOf`` for which structgen computes whether any value meets both. With
more alternatives, a rule costs less."""

_MOST_NESTED = 8
"""The most members inside which alternatives are told apart."""

_MOST_PARTS = 200
"""The most references and parts of an ``allOf`` that are read."""


class _AsksItself(Exception):
    """Raised if the result depends on itself."""


class Outline(NamedTuple):
    """The plain assertions of a schema.

    Attributes:
        types: type bits of its values; a superset.
        required: names that an object must have.
        members: by name, requirements on the member's value.
        closed: for each part that allows no other names, the names that it allows.
    """

    types: int
    required: frozenset[str]
    members: dict[str, tuple[int, ...]]
    closed: tuple[frozenset[str], ...]

    def owed(self, name: str) -> tuple[int, ...]:
        """Return the requirements on the member ``name``; FALSE is among them if it is
        forbidden."""
        found = self.members.get(name, ())
        if self.closed and any(name not in names for names in self.closed):
            return (*found, FALSE)
        return found


class Outlines:
    """The plain assertions of the nodes of a growing list, cached.

    Args:
        nodes: the schema's nodes.
        listings: the values that they list.
        is_empty: returns whether clearly no value meets several requirements together.
    """

    def __init__(
        self, nodes: Sequence[Node], listings: Listings, is_empty: Callable[[tuple[int, ...]], bool]
    ) -> None:
        self._nodes = nodes
        self._listings = listings
        self._is_empty = is_empty
        self._empty: dict[tuple[int, ...], bool] = {}
        self._inside: dict[tuple[int, ...], bool | None] = {}  # whether members are apart
        self._groups: dict[tuple[tuple[int, ...], int], list[list[int]]] = {}
        self._under_way: set[tuple[tuple[int, ...], int]] = set()

    @cached_method
    def of(self, requirement: int) -> Outline:
        """Return the outline of ``requirement``."""
        types = ALL_TYPES
        required: set[str] = set()
        members: dict[str, list[int]] = {}
        closed: list[frozenset[str]] = []
        todo, seen = [requirement], {requirement}
        while todo and len(seen) < _MOST_PARTS:
            at = todo.pop()
            if at & 1:
                types = 0 if at == FALSE else types
                continue
            node = self._nodes[at >> 1]
            types &= node.types
            WORK.spend(len(node.properties) >> 2)
            required.update(node.required)
            for name, owed in node.properties.items():
                if owed != TRUE:
                    members.setdefault(name, []).append(owed)
            if node.additional == FALSE and not node.pattern_properties:
                closed.append(frozenset(node.properties))
            for part in (*node.refs, *node.all_of):
                if part not in seen:
                    seen.add(part)
                    todo.append(part)
        by_name = {name: tuple(dict.fromkeys(owed)) for name, owed in members.items()}
        return Outline(types, frozenset(required), by_name, tuple(closed))

    def overlapping(self, options: tuple[int, ...], types: int) -> list[list[int]]:
        """List for each of ``options`` the indexes of the others that may overlap with it for
        values of ``types``."""
        key = options, types
        found = self._groups.get(key)
        if found is None:
            if key in self._under_way:
                raise _AsksItself
            self._under_way.add(key)
            try:
                found = self._groups[key] = self._overlapping(options, types)
            finally:
                self._under_way.remove(key)
        return found

    def _overlapping(self, options: tuple[int, ...], types: int) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in options]
        compared = asked = 0
        for i, near in enumerate(self._by_tag(options, types)):
            WORK.spend(len(near) >> 5)
            WORK.hold(8 * len(near))
            for j in near:
                if j <= i:
                    continue
                compared += 1
                apart: bool | None = None
                if compared <= MAX_COMPARED:
                    apart = self._are_apart(options[i], options[j], types)
                if apart is None and asked < MAX_ASKED:
                    asked += 1
                    apart = self._asked((options[i], options[j]))
                if not apart:
                    found[i].append(j)
                    found[j].append(i)
        return found

    def _by_tag(self, options: tuple[int, ...], types: int) -> list[Sequence[int]]:
        """Return for each option the indexes of those that share a listed value."""
        everything: list[Sequence[int]] = [range(len(options))] * len(options)
        lists: list[frozenset[Any]] = []
        for option in options:
            listing = self._listings.of(option)
            if listing is None:
                break
            lists.append(listing.keys)
        if len(lists) < len(options):
            outlines = [self.of(option) for option in options]
            if any(outline.types & types & ~OBJECT for outline in outlines):
                return everything
            lists = self._tags(outlines)
            if not lists:
                return everything
        places: dict[Any, list[int]] = {}
        for place, keys in enumerate(lists):
            for value in keys:
                places.setdefault(value, []).append(place)
        out: list[Sequence[int]] = []
        for keys in lists:
            near: set[int] = set()
            for value in keys:
                near.update(places[value])
            out.append(sorted(near))
        return out

    def _tags(self, outlines: list[Outline]) -> list[frozenset[Any]]:
        """Return the values of a required member, of the value or of a member inside it, that is
        listed in each outline."""
        best: list[frozenset[Any]] = []
        seen: set[tuple[int, ...]] = set()
        todo = [outlines]
        while todo:
            outlines = todo.pop()
            for name in sorted(frozenset.intersection(*(one.required for one in outlines))):
                WORK.spend(len(outlines))
                owing = [outline.members.get(name, ()) for outline in outlines]
                lists: list[frozenset[Any]] = []
                for owed in owing:
                    known = [self._listings.of(one) for one in owed]
                    keys = [listing.keys for listing in known if listing is not None]
                    if not keys:
                        break
                    lists.append(frozenset.intersection(*keys))
                if len(lists) < len(outlines):
                    inside = tuple(owed[0] for owed in owing if len(owed) == 1)
                    if len(inside) == len(outlines) and len(seen) < _MOST_NESTED:
                        within = [self.of(one) for one in inside]
                        if inside not in seen and all(one.types == OBJECT for one in within):
                            seen.add(inside)
                            todo.append(within)
                elif len(set(lists)) > len(set(best)):
                    best = lists
        return best

    def _are_apart(self, a: int, b: int, types: int, depth: int = 0) -> bool | None:
        """Return whether two requirements certainly exclude each other; None: unknown yet."""
        some, other = self._listings.of(a), self._listings.of(b)
        if some is not None and other is not None and some.keys.isdisjoint(other.keys):
            return True
        one, two = self.of(a), self.of(b)
        types &= one.types & two.types
        if not types:
            return True
        if types != OBJECT:
            return None
        for name in one.required | two.required:
            mine, theirs = one.owed(name), two.owed(name)
            if FALSE in mine or FALSE in theirs:
                return True
            if not mine or not theirs or mine == theirs:
                continue
            pair = (*mine, *theirs)
            # What is asked looks only a few levels deep.
            if len(pair) == 2 and depth < _MOST_NESTED and pair not in self._inside:
                WORK.spend(1)
                self._inside[pair] = None  # the result while it is being computed
                self._inside[pair] = self._are_apart(*pair, ALL_TYPES, depth + 1)
            if self._inside.get(pair) or self._asked(pair):
                return True
        return None

    def _asked(self, requirements: tuple[int, ...]) -> bool:
        found = self._empty.get(requirements)
        if found is None:
            self._empty[requirements] = False  # the result while it is being computed
            try:
                found = self._is_empty(requirements)
            except _AsksItself:
                found = False  # not obvious; and no partial result is kept
            self._empty[requirements] = found
        return found
