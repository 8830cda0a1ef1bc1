"""How deep values nest: what a schema forces, and where a bound on the depth has to be watched.

A bound on nesting is itself a schema: a value that opens at most n objects and arrays inside one
another is a scalar, or its items and members open at most n - 1. As a requirement on a value it is
kept like any other, so nothing that it rules out is ever begun. But it makes every level a schema
of its own, with its own masks. So it is added only near the bound: as many levels above it as the
schema can force a value to have (`forced_height`).

Knows only the schema graph. `values` adds the requirements, `machine` counts open values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from structgen.grammar.json_schema import ALL_TYPES, ARRAY, OBJECT, Node, SchemaGraph

from .conjunctions import types_of

UNLIMITED = 1 << 30
"""A depth that no text reaches."""


class NestingBound:
    """The requirements to nest at most so many levels, made on demand.

    Args:
        add: adds a node to the graph and gives its requirement.
        levels: where the levels that requirements allow are noted.
    """

    def __init__(self, add: Callable[[Node], int], levels: dict[int, int]) -> None:
        self._add = add
        self._requirements: list[int] = []
        self.levels = levels

    def at_most(self, levels: int) -> int:
        """The requirement to open at most ``levels`` objects and arrays inside one another."""
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
    """How many objects and arrays may be open before values are held to the rest of ``max_depth``.

    0 when the whole value must be, `UNLIMITED` when nothing needs to be.
    """
    if max_depth is None:
        return UNLIMITED
    height = graph.height
    if (
        height is None
        or height * 2 > max_depth
        or "unique" in graph.said
        or graph.lists_containers  # whose depth is not that of the schema
    ):
        height = forced_height(graph.nodes)
    return 0 if height is None else max(0, max_depth - height)


def forced_height(nodes: Sequence[Node]) -> int | None:
    """An upper bound on the levels that a smallest value of any conjunction of ``nodes`` needs.

    None when none is plain to see: a value may have to hold another of its own kind. Cost: linear.
    """
    if any(
        types_of(nodes, requirement) & (OBJECT | ARRAY)
        for node in nodes
        if node.unique
        for requirement in (*node.prefix, node.items)
    ):
        return None  # when the shallow values are used up, only deeper ones are left
    rules = _Forced(nodes)
    # Most nodes lead nowhere.
    heights = {
        number: rules.own_height(number)
        for number, node in enumerate(nodes)
        if not number or rules.leading.isdisjoint(vars(node))
    }
    for start in range(len(nodes)):
        if start in heights:
            continue
        path = {start}
        # (node, what it leads to and is still to be looked at, its height so far)
        stack = [(start, rules.steps(start), rules.own_height(start))]
        while stack:
            number, steps, height = stack.pop()
            while steps and steps[-1][1] in heights:
                levels, child = steps.pop()
                height = max(height, levels + heights[child])
            if not steps:
                heights[number] = height
                path.discard(number)
                continue
            child = steps[-1][1]
            if child in path:
                return None
            path.add(child)
            stack.append((number, steps, height))
            stack.append((child, rules.steps(child), rules.own_height(child)))
    return max(heights.values())


class _Forced:
    """Which subschemas a value that meets a node, and whatever else, may have to hold.

    Generous: what some node of the schema demands counts as demanded by all, since nodes combine;
    and where something must not hold, everything counts.

    Attributes:
        leading: the fields by which a node may lead to others.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._all = any(_negates(n) for n in nodes if not _APPLICATORS.isdisjoint(vars(n)))
        self._names: set[str] = set()
        others = items = False
        for node in nodes:
            if _DEMANDS.isdisjoint(vars(node)):
                continue
            others |= node.min_properties > 0
            items |= bool(node.min_items or node.contains)
            self._names.update(node.required, node.dependent_required, node.dependent_schemas)
            for names in node.dependent_required.values():
                self._names.update(names)
        self._others = self._all or bool(self._names) or others
        self._items = self._all or items
        self.leading = _IN_PLACE.union(
            ("properties",) if self._all or self._names else (),
            _OF_OTHERS if self._others else (),
            _OF_ITEMS if self._items else (),
        )

    def own_height(self, number: int) -> int:
        """The levels that the node may need by itself."""
        if not number:  # the schema ``true``
            return 0
        enum = self._nodes[number].enum
        return 1 + max(map(_height_of, enum), default=0) if enum else 1

    def steps(self, number: int) -> list[tuple[int, int]]:
        """``(levels between, node)`` pairs, but for the schema ``true``, which leads nowhere."""
        return [step for step in self._steps(self._nodes[number]) if number and step[1]]

    def _steps(self, node: Node) -> Iterator[tuple[int, int]]:
        yield from ((0, ob >> 1) for ob in node.parts_in_place())
        if self._all or self._names:
            for name, ob in node.properties.items():
                if self._all or name in self._names:
                    yield 1, ob >> 1
        if self._others:
            yield from ((1, ob >> 1) for _, ob in node.pattern_properties)
            yield 1, node.additional >> 1
            yield 1, node.unevaluated_properties >> 1
        if self._items:
            yield from ((1, ob >> 1) for ob in node.prefix)
            yield from ((1, some.requirement >> 1) for some in node.contains)
            yield 1, node.items >> 1
            yield 1, node.unevaluated_items >> 1


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
    """How deep a JSON value nests."""
    height, level = 0, [value]
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, (list, tuple)):
                inner += item
        nests = any(isinstance(item, (dict, list, tuple)) for item in level)
        height += nests
        level = inner
    return height
