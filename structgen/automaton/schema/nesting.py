"""The depth of values: how deep a schema forces them to nest, and where a depth limit must be
enforced.

A bound on nesting is itself a schema: a value that opens at most n objects and arrays inside one
another is a scalar, or its items and members open at most n - 1. It is enforced like any other
requirement on a value, so nothing that it rules out is ever begun. But it makes every level a
separate schema with its own masks. So it is added only near the bound: as many levels above it as
the schema can force a value to have (`forced_height`).

Knows only the schema graph. `values` adds the requirements, `machine` counts open values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from structgen.grammar.json_schema import ALL_TYPES, ARRAY, FALSE, OBJECT, Node, SchemaGraph, mapped

from .conjunctions import types_of

UNLIMITED = 1 << 30
"""A depth greater than that of any text."""


class NestingBound:
    """The requirements to nest at most that many levels, made on demand.

    Args:
        add: adds a node to the graph and gives its requirement.
        levels: filled with the levels that requirements allow.
    """

    def __init__(self, add: Callable[[Node], int], levels: dict[int, int]) -> None:
        self._add = add
        self._requirements: list[int] = []
        self.levels = levels

    def at_most(self, levels: int) -> int:
        """Return the requirement to nest at most ``levels`` objects and arrays."""
        while len(self._requirements) <= levels:
            if not self._requirements:
                node = Node("$", types=ALL_TYPES & ~(OBJECT | ARRAY))
            else:
                inner = self._requirements[-1]
                node = Node("$", additional=inner, items=inner, not_evaluating=True)
            requirement = self._add(node)
            self.levels[requirement] = len(self._requirements)
            self._requirements.append(requirement)
        return self._requirements[levels]


def watch_from(graph: SchemaGraph, max_depth: int | None) -> int:
    """Return how many levels may be open before ``max_depth`` restricts the values.

    0 if the whole value must be restricted, `UNLIMITED` if nothing must be.
    """
    if max_depth is None:
        return UNLIMITED
    # Without cycles, no node is deeper than the number of nodes.
    height: int | None = len(graph.nodes)
    if (
        graph.refers
        or len(graph.nodes) * 2 > max_depth
        or "unique" in graph.used
        or graph.lists_containers  # their depth is not the schema's
    ):
        height = forced_height(graph.nodes)
    return 0 if height is None else max(0, max_depth - height)


def forced_height(nodes: Sequence[Node]) -> int | None:
    """Return a bound on the levels that the smallest value of any conjunction of ``nodes`` needs.

    None if there is no obvious one: a value may have to contain another of its own kind. Cost:
    linear.
    """
    steps = _Steps(nodes)
    heights = [1] * len(nodes)
    heights[0] = 0  # the schema ``true``
    leading = []
    for number, node in enumerate(nodes):
        fields = vars(node)
        if fields.get("unique") and any(
            types_of(nodes, item) & (OBJECT | ARRAY) for item in (*node.prefix, node.items)
        ):
            return None  # when all shallow values are used, only deeper ones are left
        if "enum" in fields:
            heights[number] += max(map(_height_of, fields["enum"]), default=0)
        if not steps.leading.isdisjoint(fields):
            leading.append(number)
    waiting = dict.fromkeys(leading, 0)
    above: dict[int, list[tuple[int, int]]] = {}
    for number in leading:
        for levels, child in steps.of(nodes[number]):
            if child in waiting:
                waiting[number] += 1
                above.setdefault(child, []).append((levels, number))
            else:
                heights[number] = max(heights[number], levels + heights[child])
    known = [number for number in leading if not waiting[number]]
    for child in known:  # grows while it is read
        for levels, number in above.get(child, ()):
            heights[number] = max(heights[number], levels + heights[child])
            waiting[number] -= 1
            if not waiting[number]:
                known.append(number)
    return max(heights) if len(known) == len(leading) else None


class _Steps:
    """The subschemas that a value may have to contain if it meets a node and any others.

    An overestimate: a requirement of any node counts for all, because nodes combine; and if there
    is a negation, everything counts.

    Attributes:
        leading: the fields through which a node may lead to others.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        names: set[str] = set()
        others = items = self._all = False
        for node in nodes:
            fields = vars(node)
            if not _APPLICATORS.isdisjoint(fields) and _negates(node):
                self._all = True
            if _DEMANDS.isdisjoint(fields):
                continue
            others |= node.min_properties > 0
            items |= bool(node.min_items or node.contains)
            names.update(node.required, node.dependent_required, node.dependent_schemas)
            for owed in node.dependent_required.values():
                names.update(owed)
        self._names = names
        self.leading = _IN_PLACE.union(
            ("properties",) if self._all or names else (),
            _OF_OTHERS if self._all or names or others else (),
            _OF_ITEMS if self._all or items else (),
        )

    def of(self, node: Node) -> list[tuple[int, int]]:
        """Return ``(levels between, node)`` pairs, without the schema ``true``, which leads
        nowhere."""
        found = []
        fields = vars(node)
        for field in self.leading.intersection(fields):
            held, parts = fields[field], list[int]()
            if field == "properties" and not self._all:
                held = {name: held[name] for name in self._names.intersection(held)}
            mapped(field, held, parts.append)  # for the calls only
            levels = 0 if field in _IN_PLACE else 1
            found += [(levels, wanted >> 1) for wanted in parts if wanted > FALSE]
        return found


_APPLICATORS = frozenset(["refs", "all_of", "any_of", "one_of", "condition", "contains"])
_DEMANDS = frozenset(
    [
        "required",
        "dependent_required",
        "dependent_schemas",
        "min_properties",
        "min_items",
        "contains",
    ]
)
_IN_PLACE = frozenset(["refs", "all_of", "any_of", "one_of", "condition", "dependent_schemas"])
_OF_OTHERS = ("pattern_properties", "additional", "unevaluated_properties")
_OF_ITEMS = ("prefix", "contains", "items", "unevaluated_items")


def _negates(node: Node) -> bool:
    return bool(
        node.one_of is not None
        or node.condition is not None
        or any(some.most is not None for some in node.contains)
        or any(ob & 1 for ob in (*node.refs, *node.all_of, *(node.any_of or ())) if ob > 1)
    )


def _height_of(value: Any) -> int:
    """Return how deep a JSON value nests."""
    height, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list, tuple))]:
        height += 1
        level = [x for item in level for x in (item.values() if isinstance(item, dict) else item)]
    return height
