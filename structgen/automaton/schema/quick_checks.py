"""Cheap tests of a schema's nodes, before anything is built for them.

Both are sufficient, not necessary, and look only at fields. `QuickChecks.possible`: some value
meets a node. `PlainNodes.is_plain`: a value has few alternatives, so building them cannot exceed a
limit. If they return False, `values` decides. Most real schemas are plain throughout, and compile
in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    DIGITS,
    FALSE,
    IN_PLACE,
    NULL,
    OBJECT,
    OF_NUMBERS,
    OF_VALUES,
    STRING,
    TRUE,
    Node,
)

from .conjunctions import types_of
from .nesting import UNLIMITED

_MAX_HOPS = 60
"""The tests follow at most this many nested nodes."""

_MAX_WAYS = 64
"""The most branches of one value of a plain schema."""

_MAX_LISTED = 100
"""The most values of an ``enum`` that are looked at."""

_MAX_OWED = 100
"""The most items that an array may require."""


class QuickChecks:
    """Tests on a growing list of nodes. Cached.

    Args:
        nodes: the schema's nodes.
        has_string: whether some string meets a node's lengths and patterns.
        has_number: whether some whole number obviously meets a node's assertions.
        is_ascii: whether only ASCII is sure to be writable, because the vocabulary lacks some
            bytes.
        typed: the requirements that only name one type, or none.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        has_string: Callable[[Node], bool],
        has_number: Callable[[Node], bool],
        is_ascii: bool,
        typed: Set[int] = frozenset(),
    ) -> None:
        self._nodes = nodes
        self._has_string = has_string
        self._has_number = has_number
        self._is_ascii = is_ascii
        self._typed = typed
        self._known: dict[tuple[int, int, int], bool] = {}

    def possible(
        self, requirement: int, room: int = UNLIMITED, hops: int = 0, types: int = ALL_TYPES
    ) -> bool:
        """Return whether some value of one of ``types`` obviously meets ``requirement``, and nests
        at most ``room`` levels. False means unknown."""
        if requirement <= FALSE:
            return requirement == TRUE and types == ALL_TYPES
        if requirement & 1 or hops > _MAX_HOPS:
            return False
        if room and types == ALL_TYPES and requirement in self._typed:
            return True
        node = self._nodes[requirement >> 1]
        surely = node.types & types & (_SURELY if room else _SURELY_FLAT)
        if surely and _NARROWING.isdisjoint(vars(node)):
            return True  # true for half of those that do more than name a type
        key = (requirement, room, types)
        found = self._known.get(key)
        if found is None:
            self._known[key] = False  # the answer inside itself
            found = self._known[key] = self._possible(node, room, hops + 1, types)
        return found

    def opened(self, requirement: int) -> tuple[bool, bool] | None:
        """Return whether a key, and whether ``}``, may follow an object's opening brace.

        None if other values are allowed, or if it is not obvious which of them may follow, or
        whether the object with any of its members exists.
        """
        if requirement & 1:
            return None
        node = self._nodes[requirement >> 1]
        if node.types != OBJECT or not _BEYOND_MEMBERS.isdisjoint(vars(node)):
            return None
        properties, required, additional = node.properties, node.required, node.additional
        if self._is_ascii and not "".join((*properties, *required)).isascii():
            return None
        typed, possible = self._typed, self.possible
        for owed in properties.values():
            if owed not in typed and not possible(owed):
                return None
        if additional != FALSE:
            if not possible(additional):
                return None
        elif any(name not in properties for name in required):
            return None
        return bool(properties or required or additional != FALSE), not required

    def _possible(self, node: Node, room: int, hops: int, types: int) -> bool:
        types &= node.types
        if node.applies_in_place:
            return self._possible_in_place(node, room, hops, types)
        if node.excluded:
            return False
        if node.enum is not None:
            return self._lists_one(node, types)
        if types & (NULL | BOOLEAN):
            return True
        if types & STRING and (not node.speaks_of_strings or self._has_string(node)):
            return True
        if types & DIGITS and (not node.speaks_of_numbers or self._has_number(node)):
            return True
        if not room:
            return False
        if types & ARRAY and self._possible_array(node, room, hops):
            return True
        return bool(types & OBJECT) and self._possible_object(node, room, hops)

    def _possible_in_place(self, node: Node, room: int, hops: int, types: int) -> bool:
        """Return whether the in-place applicators, besides the type, allow some value."""
        if not _ASSERTIONS.isdisjoint(vars(node)) or not _applies_simply(node):
            return False
        if bool(node.refs) + (node.any_of is not None) + (node.one_of is not None) != 1:
            return False
        if len(node.refs) > 1 or (node.one_of and not _differ_by_type(self._nodes, node.one_of)):
            return False
        options = node.refs or node.any_of or node.one_of or ()
        return any(self.possible(option, room, hops, types) for option in options)

    def _lists_one(self, node: Node, types: int) -> bool:
        if node.speaks_of_strings or node.speaks_of_numbers:
            return False
        for value in (node.enum or ())[:_MAX_LISTED]:
            kind = _KINDS.get(type(value), 0) & types
            if kind and (kind != STRING or not self._is_ascii or value.isascii()):
                return True
        return False

    def _possible_array(self, node: Node, room: int, hops: int) -> bool:
        if node.contains or node.repeats:
            return False
        least = node.min_items
        if not least:
            return True
        if node.unique or least > _MAX_OWED:
            return False
        if node.max_items is not None and node.max_items < least:
            return False
        owed = node.prefix[:least] if least <= len(node.prefix) else (*node.prefix, node.items)
        inside = room if room == UNLIMITED else room - 1
        return all(self.possible(item, inside, hops) for item in owed)

    def _possible_object(self, node: Node, room: int, hops: int) -> bool:
        if node.rules or node.property_names != TRUE or node.max_properties is not None:
            return False
        if node.min_properties > len(node.required):
            return False
        if node.required and node.pattern_properties:
            return False
        inside = room if room == UNLIMITED else room - 1
        properties = node.properties
        return all(
            self.possible(properties.get(name, node.additional), inside, hops)
            and (not self._is_ascii or name.isascii())
            for name in node.required
        )


_KINDS = {str: STRING, int: DIGITS, bool: BOOLEAN, type(None): NULL}
"""The type bit of values that an ``enum`` may list, for types with a single bit."""


def _applies_simply(node: Node) -> bool:
    """Return whether the in-place applicators are only references, ``anyOf`` and ``oneOf``."""
    return not (
        node.all_of
        or node.condition
        or node.dependent_required
        or node.dependent_schemas
        or node.unevaluated_properties != TRUE
        or node.unevaluated_items != TRUE
        or node.some_unevaluated_item != FALSE
    )


class PlainNodes:
    """The nodes of a schema that leave a value few alternatives, found without building anything.

    Such a node either has assertions itself, or refers to plain nodes: to one, to any of several,
    or to one of several that differ by type. Then one node applies to a value, or two of which one
    has no requirements on its inside. Nothing is negated.

    Attributes:
        worth_a_look: the numbers of nodes that may not be plain.

    Cost: linear, a few microseconds a node.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._ways: dict[int, int] = {}
        # All other nodes are plain.
        self.worth_a_look = [
            n for n, node in enumerate(nodes) if not _WORTH_A_LOOK.isdisjoint(vars(node))
        ]

    def is_plain(self, requirement: int) -> bool:
        """Return whether a value is plain to which only ``requirement`` applies."""
        if requirement & 1:
            return requirement == FALSE
        return self._count_ways(requirement >> 1, 0) <= _MAX_WAYS

    def children(self, requirement: int) -> list[int]:
        """Return the requirements on each member and item of a value of ``requirement``."""
        out: dict[int, None] = {}
        stack = [requirement >> 1]
        while stack:
            node = self._nodes[stack.pop()]
            stack += [ob >> 1 for ob in node.parts_in_place()]
            out.update(dict.fromkeys([child for _, child in node.pattern_properties]))
            out.update(dict.fromkeys((*node.properties.values(), node.additional, node.items)))
            out.update(dict.fromkeys(node.prefix))
        return [child for child in out if child > FALSE]

    def _count_ways(self, number: int, hops: int) -> int:
        """Return an upper bound on a node's branches; too many if it is not plain."""
        found = self._ways.get(number)
        if found is not None:
            return found
        node = self._nodes[number]
        if vars(node).keys().isdisjoint(_WORTH_A_LOOK):
            self._ways[number] = 1
            return 1
        self._ways[number] = _MAX_WAYS + 1  # the answer inside itself
        if hops > _MAX_HOPS or not self._is_plain(node):
            return _MAX_WAYS + 1
        options = node.refs or node.any_of or node.one_of or ()
        ways = [self._count_ways(option >> 1, hops + 1) for option in options]
        found = self._ways[number] = sum(ways) if ways else 1
        return found

    def _is_plain(self, node: Node) -> bool:
        """Return whether ``node`` is plain, provided that the nodes it refers to are."""
        fields = vars(node)
        if any(isinstance(value, (dict, list)) for value in node.enum or ()):
            return False
        if node.min_items > _MAX_OWED:
            return False
        if INVOLVED.isdisjoint(fields):
            return True
        if node.contains or node.repeats or node.rules or not _applies_simply(node):
            return False
        children = [child for _, child in node.pattern_properties if child > FALSE]
        if children and (len(node.pattern_properties) > 1 or node.properties):
            return False  # two schemas with assertions may apply to a member
        names = node.property_names
        if names & 1 or (names != TRUE and self._nodes[names >> 1].applies_in_place):
            return False
        if not node.applies_in_place:
            return True
        options = node.one_of if node.any_of is None else node.any_of
        if options is None:
            return len(node.refs) == 1 and not node.refs[0] & 1 and not node.asserts
        if node.refs or (node.any_of is not None and node.one_of is not None):
            return False
        if not _ASSERTIONS.isdisjoint(fields):
            return False
        if any(option & 1 and option > FALSE for option in options):
            return False
        return node.one_of is None or _differ_by_type(self._nodes, node.one_of)


INVOLVED = IN_PLACE | {"contains", "repeats", "rules", "pattern_properties", "property_names"}
"""A schema without any of these fields is plain by itself."""
_BEYOND_MEMBERS = INVOLVED | {"enum", "excluded", "min_properties", "max_properties"}
_WORTH_A_LOOK = INVOLVED | {"enum", "min_items"}
_SURELY_FLAT = NULL | BOOLEAN | STRING | DIGITS
_SURELY = _SURELY_FLAT | ARRAY | OBJECT
_ASSERTIONS = OF_VALUES | {"enum", "excluded"}
_NARROWING = (
    INVOLVED - {"pattern_properties"}
    | OF_NUMBERS
    | {"enum", "excluded", "min_length", "patterns", "required", "min_properties", "min_items"}
)
"""Without any of these fields, a node that allows a type in `_SURELY` is met by an empty value of
that type, or by a number."""


def _differ_by_type(nodes: Sequence[Node], options: Sequence[int]) -> bool:
    """Return whether no two of ``options`` allow the same type."""
    seen = 0
    for option in options:
        types = types_of(nodes, option)
        if types & seen:
            return False
        seen |= types
    return True
