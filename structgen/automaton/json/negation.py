"""The negation of a schema node, as alternatives of positive nodes.

``not`` and ``oneOf`` need schemas that a value must *not* satisfy. A negated node is turned round
once: it fails when any one of its assertions fails, so its negation is a choice among small nodes
that state one failure each (a type it does not allow, a missing required name, an item that breaks
``items``, …). Everything downstream then deals with positive assertions only. Where a failure lies
in a child, the child's requirement is negated in turn, later and only if it is reached.

This module knows the meaning of each keyword's failure; `branches` multiplies the choices out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from structgen.grammar import ir
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    FALSE,
    NUMBER,
    OBJECT,
    STRING,
    TRUE,
    Contains,
    Node,
)

from .rules import Rule

Choice: TypeAlias = "list[tuple[int, ...]]"
"""Alternatives, each a set of requirements that together make one way."""

Add: TypeAlias = Callable[[Node], int]
"""Adds a node to the graph and gives the requirement that it holds."""


def negate(node: Node, add: Add, constant: Callable[[Any], int], members: Rule) -> Choice:
    """The ways in which a value can fail ``node``.

    Args:
        node: the node that must not hold.
        add: adds a synthetic node.
        constant: gives the requirement to equal an object or array.
        members: what the node itself says about an object's members.
    """
    path = node.path
    out: Choice = [(child ^ 1,) for child in (*node.refs, *node.all_of)]
    if node.any_of is not None:
        out.append(tuple(child ^ 1 for child in node.any_of))
    if node.one_of is not None:
        out.append(tuple(child ^ 1 for child in node.one_of))
        out += [(a, b) for i, a in enumerate(node.one_of) for b in node.one_of[i + 1 :]]
    if node.condition is not None:
        test, then, otherwise = node.condition
        out += [(test, then ^ 1), (test ^ 1, otherwise ^ 1)]
    for name, names in node.dependent_required.items():
        out += [
            (add(Node(path, types=OBJECT, required=(name,), properties={other: FALSE})),)
            for other in names
            if other != name
        ]
    for name, child in node.dependent_schemas.items():
        out.append((add(Node(path, types=OBJECT, required=(name,))), child ^ 1))
    if node.types != ALL_TYPES and ALL_TYPES & ~node.types:
        out.append((add(Node(path, types=ALL_TYPES & ~node.types)),))
    out += _values(node, add, constant)
    out += [(add(failure),) for failure in _numbers(node) + _strings(node)]
    out += [(add(failure),) for failure in _arrays(node)]
    if node.types & OBJECT and node.speaks_of_objects:
        out.append((add(Node(path, types=OBJECT, rules=(members.negated,))),))
    return [way for way in out if FALSE not in way]


def _values(node: Node, add: Add, constant: Callable[[Any], int]) -> Choice:
    out: Choice = []
    if node.enum is not None:
        scalars = tuple(v for v in node.enum if not isinstance(v, (dict, list, tuple)))
        others = [v for v in node.enum if isinstance(v, (dict, list, tuple))]
        unequal = add(Node(node.path, excluded=scalars)) if scalars else TRUE
        out.append((unequal, *(constant(v) ^ 1 for v in others)))
    if node.excluded:
        out.append((add(Node(node.path, enum=tuple(node.excluded))),))
    return out


def _numbers(node: Node) -> list[Node]:
    out: list[Node] = []
    if node.minimum is not None:
        out.append(Node(node.path, types=NUMBER, exclusive_maximum=node.minimum))
    if node.maximum is not None:
        out.append(Node(node.path, types=NUMBER, exclusive_minimum=node.maximum))
    if node.exclusive_minimum is not None:
        out.append(Node(node.path, types=NUMBER, maximum=node.exclusive_minimum))
    if node.exclusive_maximum is not None:
        out.append(Node(node.path, types=NUMBER, minimum=node.exclusive_maximum))
    if node.multiple_of is not None:
        out.append(Node(node.path, types=NUMBER, not_multiple_of=node.multiple_of))
    if node.not_multiple_of is not None:
        out.append(Node(node.path, types=NUMBER, multiple_of=node.not_multiple_of))
    return out


def _strings(node: Node) -> list[Node]:
    out: list[Node] = []
    if node.min_length:
        out.append(Node(node.path, types=STRING, max_length=node.min_length - 1))
    if node.max_length is not None:
        out.append(Node(node.path, types=STRING, min_length=node.max_length + 1))
    out += [
        Node(node.path, types=STRING, patterns=(ir.Complement(pattern),))
        for pattern in node.patterns
    ]
    return out


def _arrays(node: Node) -> list[Node]:
    path = node.path
    out: list[Node] = []
    if node.min_items:
        out.append(Node(path, types=ARRAY, max_items=node.min_items - 1))
    if node.max_items is not None:
        out.append(Node(path, types=ARRAY, min_items=node.max_items + 1))
    if node.unevaluated_items != TRUE:
        # All the rest holds, but an item that nothing evaluates is wrong.
        fields = node.fields()
        fields.update(
            types=node.types & ARRAY,
            unevaluated_properties=TRUE,
            unevaluated_items=TRUE,
            some_unevaluated_item=node.unevaluated_items ^ 1,
        )
        out.append(Node(path, **fields))
    if node.unique:
        out.append(Node(path, types=ARRAY, repeats=True))
    if node.repeats:
        out.append(Node(path, types=ARRAY, unique=True))
    for index, child in enumerate(node.prefix):
        if child != TRUE:
            prefix = (*[TRUE] * index, child ^ 1)
            out.append(Node(path, types=ARRAY, prefix=prefix, min_items=index + 1))
    if node.items != TRUE:
        some = Contains(node.items ^ 1, start=len(node.prefix))
        out.append(Node(path, types=ARRAY, contains=(some,)))
    for some in node.contains:
        if some.least:
            fewer = Contains(some.requirement, 0, some.least - 1, some.start)
            out.append(Node(path, types=ARRAY, contains=(fewer,)))
        if some.most is not None:
            more = Contains(some.requirement, some.most + 1, None, some.start)
            out.append(Node(path, types=ARRAY, contains=(more,)))
    return out
