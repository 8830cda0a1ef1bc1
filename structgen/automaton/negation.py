"""The negation of a schema node, as alternatives of positive nodes.

``not`` and ``oneOf`` need schemas that a value must *not* satisfy. A negated node is turned round
once: it fails when any one of its assertions fails, so its negation is a choice among small nodes
that state one failure each (a type it does not allow, a missing required name, an item that breaks
``items``, …). Everything downstream then deals with positive assertions only. Where a failure lies
in a child, the child's obligation is negated in turn, later and only if it is reached.

This module knows the meaning of each keyword's failure; `branches` multiplies the choices out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..errors import UnsupportedFeature
from ..grammar import ir
from ..grammar.schema_graph import (
    ALL_TYPES,
    ARRAY,
    FALSE,
    NUMBER,
    OBJECT,
    STRING,
    TRUE,
    Contains,
    Exists,
    Keys,
    Node,
)
from . import presence

Choice: TypeAlias = "list[tuple[int, ...]]"
"""Alternatives, each a set of obligations that together make one way."""

Add: TypeAlias = Callable[[Node], int]
"""Adds a node to the graph and gives the obligation that it holds."""


def negate(node: Node, add: Add, constant: Callable[[Any], int]) -> Choice:
    """The ways in which a value can fail ``node``.

    Args:
        node: the node that must not hold.
        add: adds a synthetic node.
        constant: gives the obligation to equal an object or array.

    Raises:
        UnsupportedFeature: the failure of ``uniqueItems``, ``unevaluated*`` is not expressible.
    """
    path = node.path
    for keyword, used in (
        ("uniqueItems", node.unique),
        ("unevaluatedProperties", node.unevaluated_properties != TRUE),
        ("unevaluatedItems", node.unevaluated_items != TRUE),
    ):
        if used:
            raise UnsupportedFeature(
                f"{keyword!r} inside 'not', or in one of several overlapping 'oneOf' branches, is "
                f"not supported, at {path}.",
                path=path,
                keyword=keyword,
                fix="Move it out of the negated part, or use anyOf.",
            )
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
    out += [(add(failure),) for failure in _objects(node) + _arrays(node)]
    return [way for way in out if FALSE not in way]


def _values(node: Node, add: Add, constant: Callable[[Any], int]) -> Choice:
    out: Choice = []
    if node.enum is not None:
        scalars = tuple(v for v in node.enum if not isinstance(v, (dict, list, tuple)))
        others = [v for v in node.enum if isinstance(v, (dict, list, tuple))]
        unequal = add(Node(node.path, excluded=scalars)) if scalars else TRUE
        out.append((unequal, *(constant(v) ^ 1 for v in others)))
    if node.excluded:
        out.append((add(Node(node.path, enum=node.excluded)),))
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


def _objects(node: Node) -> list[Node]:
    path = node.path
    out = [Node(path, types=OBJECT, properties={name: FALSE}) for name in node.required]
    if node.min_properties:
        out.append(Node(path, types=OBJECT, max_properties=node.min_properties - 1))
    if node.max_properties is not None:
        out.append(Node(path, types=OBJECT, min_properties=node.max_properties + 1))
    out += [
        Node(path, types=OBJECT, required=(name,), properties={name: child ^ 1})
        for name, child in node.properties.items()
        if child != TRUE
    ]
    out += [
        Node(path, types=OBJECT, exists=(Exists(((Keys(pattern=regex), child ^ 1),)),))
        for regex, child in node.pattern_properties
        if child != TRUE
    ]
    if node.additional != TRUE:
        some = Exists(((_other_keys(node), node.additional ^ 1),))
        out.append(Node(path, types=OBJECT, exists=(some,)))
    if node.property_names != TRUE:
        out.append(Node(path, types=OBJECT, bad_name=node.property_names ^ 1))
    for some in node.exists:
        rule = (presence.negation(some.presence),)
        never = {k.name: ob ^ 1 for k, ob in some.triggers if k.name is not None}
        patterns = tuple((k.pattern, ob ^ 1) for k, ob in some.triggers if k.pattern is not None)
        others = [(k, ob) for k, ob in some.triggers if k.name is None and k.pattern is None]
        if others:
            # ``additionalProperties`` speaks of the keys that the rest of its node does not.
            keys, obligation = others[0]
            never = dict.fromkeys(keys.but_names, TRUE) | never
            listed = {regex for regex, _ in patterns}
            patterns += tuple((p, TRUE) for p in keys.but_patterns if p not in listed)
            node_ = Node(path, types=OBJECT, properties=never, pattern_properties=patterns)
            node_.additional, node_.presence = obligation ^ 1, rule
            out.append(node_)
        else:
            out.append(
                Node(
                    path,
                    types=OBJECT,
                    properties=never,
                    pattern_properties=patterns,
                    presence=rule,
                )
            )
    for formula in node.presence:
        out.append(Node(path, types=OBJECT, presence=(presence.negation(formula),)))
    if node.bad_name != TRUE:
        out.append(Node(path, types=OBJECT, property_names=node.bad_name ^ 1))
    return out


def _other_keys(node: Node) -> Keys:
    """The keys that ``additionalProperties`` speaks of."""
    patterns = tuple(dict.fromkeys(regex for regex, _ in node.pattern_properties))
    return Keys(but_names=tuple(node.properties), but_patterns=patterns)


def monitor(node: Node) -> Exists | None:
    """The failure of ``node``, for an object, as one thing to watch for; None where it is more.

    Twenty overlapping ``oneOf`` branches would multiply out to the product of all their failures;
    watched for side by side they cost a bit each.
    """
    if (
        node.applies_in_place
        or node.enum is not None
        or node.excluded
        or node.min_properties
        or node.max_properties is not None
        or node.exists
        or node.presence
        or node.bad_name != TRUE
        or node.property_names != TRUE
        or not node.types & OBJECT
    ):
        return None
    triggers = [(Keys(name=name), ob ^ 1) for name, ob in node.properties.items() if ob != TRUE]
    triggers += [
        (Keys(pattern=regex), ob ^ 1) for regex, ob in node.pattern_properties if ob != TRUE
    ]
    if node.additional != TRUE:
        triggers.append((_other_keys(node), node.additional ^ 1))
    missing = presence.disjunction(("lacks", name) for name in node.required)
    return Exists(tuple(triggers), missing)


def _arrays(node: Node) -> list[Node]:
    path = node.path
    out: list[Node] = []
    if node.min_items:
        out.append(Node(path, types=ARRAY, max_items=node.min_items - 1))
    if node.max_items is not None:
        out.append(Node(path, types=ARRAY, min_items=node.max_items + 1))
    for index, child in enumerate(node.prefix):
        if child != TRUE:
            prefix = (*[TRUE] * index, child ^ 1)
            out.append(Node(path, types=ARRAY, prefix=prefix, min_items=index + 1))
    if node.items != TRUE:
        some = Contains(node.items ^ 1, start=len(node.prefix))
        out.append(Node(path, types=ARRAY, contains=(some,)))
    for some in node.contains:
        if some.least:
            fewer = Contains(some.obligation, 0, some.least - 1, some.start)
            out.append(Node(path, types=ARRAY, contains=(fewer,)))
        if some.most is not None:
            more = Contains(some.obligation, some.most + 1, None, some.start)
            out.append(Node(path, types=ARRAY, contains=(more,)))
    return out
