"""Which alternatives certainly exclude each other, as far as their outlines tell.

Owns `Outlines`: what a schema plainly asks of a value, through references and ``allOf``: its types,
the values that it lists, the members that must be there and what these owe. ``oneOf`` asks of each
pair of its alternatives whether a value can meet both. Where all of them have a tag, that is a look
at who shares a value of it; where not, members that one requires are compared with the other's.
Only then is it asked, of so many pairs at most, whether both together leave anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from structgen.grammar.json_schema import ALL_TYPES, FALSE, OBJECT, TRUE, Node

from .listings import Listings

MAX_COMPARED = 30_000
"""Most pairs of one ``oneOf`` whose outlines are compared."""

MAX_ASKED = 700
"""Most pairs of one ``oneOf`` of which is asked whether both together leave anything: where
alternatives are more, they cost less as a rule than told apart like that."""

_MOST_PARTS = 200
"""Most references and parts of an ``allOf`` that are looked through."""


class _AsksItself(Exception):
    """Which alternatives exclude each other depends on just that."""


class Outline(NamedTuple):
    """What a schema plainly asks.

    Attributes:
        types: type bits of its values, or more.
        required: names that an object must have.
        members: by name, requirements on the member's value.
        closed: for each part that allows no other names, those that it does.
    """

    types: int
    required: frozenset[str]
    members: dict[str, tuple[int, ...]]
    closed: tuple[frozenset[str], ...]

    def owed(self, name: str) -> tuple[int, ...]:
        """What the member called ``name`` owes; FALSE among it if there must be none."""
        found = self.members.get(name, ())
        if self.closed and any(name not in names for names in self.closed):
            return (*found, FALSE)
        return found


class Outlines:
    """What the nodes of a growing list plainly ask, remembered.

    Args:
        nodes: the schema's nodes.
        listings: which values they list.
        is_empty: whether values that owe all of some requirements are clearly none.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        listings: Listings,
        is_empty: Callable[[tuple[int, ...]], bool],
    ) -> None:
        self._nodes = nodes
        self._listings = listings
        self._is_empty = is_empty
        self._known: dict[int, Outline] = {}
        self._empty: dict[tuple[int, ...], bool] = {}
        self._groups: dict[tuple[tuple[int, ...], int], list[list[int]]] = {}
        self._under_way: set[tuple[tuple[int, ...], int]] = set()

    def of(self, requirement: int) -> Outline:
        """The outline of what ``requirement`` asks."""
        found = self._known.get(requirement)
        if found is None:
            found = self._known[requirement] = self._read(requirement)
        return found

    def _read(self, requirement: int) -> Outline:
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
        """For each of ``options`` the places of those others that a value of one of ``types`` may
        meet as well: all others, but those that certainly exclude it."""
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
        """For each option the places of those that share a value with it, where all list some."""
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
        """The values of a member that all objects must have, if it is one of a list in each."""
        shared = frozenset.intersection(*(outline.required for outline in outlines))
        best: list[frozenset[Any]] = []
        for name in sorted(shared):
            lists: list[frozenset[Any]] = []
            for outline in outlines:
                known = [self._listings.of(owed) for owed in outline.members.get(name, ())]
                keys = [listing.keys for listing in known if listing is not None]
                if not keys:
                    break
                lists.append(frozenset.intersection(*keys))
            if len(lists) == len(outlines) and len(set(lists)) > len(set(best)):
                best = lists
        return best

    def _are_apart(self, a: int, b: int, types: int) -> bool | None:
        """Whether two requirements certainly exclude each other; None: more has to be asked."""
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
            if mine and theirs and mine != theirs and self._asked((*mine, *theirs)):
                return True
        return None

    def _asked(self, requirements: tuple[int, ...]) -> bool:
        found = self._empty.get(requirements)
        if found is None:
            self._empty[requirements] = False  # the answer while it is being worked out
            try:
                found = self._is_empty(requirements)
            except _AsksItself:
                found = False  # that is not plain to see; and nothing that was half known is kept
            self._empty[requirements] = found
        return found
