"""A schema graph whose objects have only the members that it names: the option ``closed``.

Each value's schema is read as if it had ``unevaluatedProperties: false``, except if the schema
itself mentions other members (``additionalProperties``, ``unevaluatedProperties``), asserts
nothing, or is a value in an ``enum``. Nothing changes below ``not`` and ``if``, nor in a ``oneOf``
whose alternatives are not obviously distinct: fewer values there would make more valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from .graph import ARRAY, FALSE, IN_PLACE, OBJECT, TRUE, Node, SchemaGraph, json_key, mapped


def only_named(graph: SchemaGraph) -> SchemaGraph:
    """Return ``graph`` with closed objects, as copies of nodes."""
    closing = _Closing(graph.nodes)
    root = closing.copy(graph.root, is_value=True)
    closing.fill()
    used = graph.used | {"additional", "properties", "unevaluated_properties"}
    return replace(graph, root=root, used=used)


class _Closing:
    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._copies: dict[tuple[int, bool], int] = {}
        self._todo: list[tuple[Node, int, bool]] = []

    def copy(self, requirement: int, is_value: bool) -> int:
        """Return ``requirement`` with closed values inside. It is closed itself if ``is_value``;
        otherwise others apply to the same value."""
        node = self._nodes[requirement >> 1]
        if requirement & 1 or not node.types & (OBJECT | ARRAY) or not node.fields():
            return requirement
        key = requirement, is_value
        if key not in self._copies:
            self._copies[key] = 2 * len(self._nodes)
            self._nodes.append(Node(node.path))
            self._todo.append((node, self._copies[key] >> 1, is_value))
        return self._copies[key]

    def fill(self) -> None:
        """Make the copies."""
        while self._todo:
            node, number, is_value = self._todo.pop()
            fields = node.fields()
            self._close_parts(fields)
            if is_value and node.types & OBJECT and node.enum is None:
                self._close(node, fields)
            self._nodes[number] = Node(node.path, **fields)

    def _close_parts(self, fields: dict[str, Any]) -> None:
        def value(requirement: int) -> int:
            return self.copy(requirement, is_value=True)

        def part(requirement: int) -> int:
            return self.copy(requirement, is_value=False)

        for name, parts in fields.items():
            if name in _VALUES:
                fields[name] = mapped(name, parts, value)
            elif name == "condition":
                fields[name] = (parts[0], part(parts[1]), part(parts[2]))
            elif name in ("refs", "all_of", "any_of", "dependent_schemas") or (
                name == "one_of" and _are_apart(self._nodes, parts)
            ):
                fields[name] = mapped(name, parts, part)

    def _close(self, node: Node, fields: dict[str, Any]) -> None:
        in_place = IN_PLACE & fields.keys()
        (name,) = in_place if len(in_place) == 1 else ("",)
        if not in_place:
            if not node.evaluates_all_properties:
                fields["additional"] = FALSE
                fields["properties"] = {**fields.get("properties", {})}
                for required in node.required:
                    fields["properties"].setdefault(required, TRUE)
        elif fields.keys() - {"types"} == {name} and (
            name == "any_of" or (name in ("refs", "all_of") and len(fields[name]) == 1)
        ):
            parts = getattr(node, name)
            fields[name] = tuple(self.copy(one, is_value=True) for one in parts)
        elif not node.evaluates_all_properties and node.unevaluated_properties == TRUE:
            fields["unevaluated_properties"] = FALSE


_VALUES = frozenset(
    (
        *("properties", "pattern_properties", "additional", "unevaluated_properties"),
        *("prefix", "items", "unevaluated_items"),
    )
)
"""The fields whose requirements are about other values, where closing these allows fewer."""


def _are_apart(nodes: Sequence[Node], options: Sequence[int]) -> bool:
    """Return whether obviously no object or array can meet two of ``options``: they differ by type,
    or by the values of a required member."""
    found: list[tuple[int, dict[str, frozenset[Any]]]] = []
    for option in options:
        node = nodes[option >> 1]
        for _ in nodes:
            if node.fields().keys() != {"refs"} or len(node.refs) != 1:
                break
            node = nodes[node.refs[0] >> 1]
        types = node.types & (OBJECT | ARRAY)
        if not node.speaks_of_arrays and not node.applies_in_place:
            types &= OBJECT  # nothing in an array of it is closed
        listed = {
            name: frozenset(map(json_key, values))
            for name in node.required
            if (values := nodes[node.properties.get(name, TRUE) >> 1].enum) is not None
        }
        found.append((ARRAY | OBJECT, {}) if option & 1 else (types, listed))
    return all(
        not types & others
        or (
            types & others == OBJECT
            and any(listed[name].isdisjoint(named[name]) for name in listed.keys() & named)
        )
        for (types, listed), (others, named) in combinations(found, 2)
    )
