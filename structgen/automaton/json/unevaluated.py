"""What ``unevaluatedProperties`` and ``unevaluatedItems`` come to, once it is known what has held.

They become an ordinary node that lists what the others do not speak of.
"""

from __future__ import annotations

from collections.abc import Callable

from structgen.grammar import ir
from structgen.grammar.json_schema import ALL_TYPES, ARRAY, FALSE, TRUE, Contains, Node


def properties_left(owner: Node, parts: list[Node]) -> Node | None:
    """What ``unevaluatedProperties`` of ``owner`` says beside ``parts``, the nodes that hold; None
    for nothing."""
    if owner.unevaluated_properties == TRUE:
        return None
    if any(
        p.evaluates_all_properties or (p is not owner and p.unevaluated_properties != TRUE)
        for p in parts
    ):
        return None
    # A nested unevaluatedProperties: true evaluates everything too; it is not kept as such.
    names: dict[str, int] = {}
    patterns: dict[ir.Regex, int] = {}
    for part in parts:
        if not part.not_evaluating:
            names.update(dict.fromkeys(part.properties, TRUE))
            patterns.update({regex: TRUE for regex, _ in part.pattern_properties})
    return Node(
        owner.path,
        properties=names,
        pattern_properties=tuple(patterns.items()),
        additional=owner.unevaluated_properties,
    )


def items_left(owner: Node, parts: list[Node], add: Callable[[Node], int]) -> Node | None:
    """The same of ``unevaluatedItems``; ``add`` gives the requirement of a synthetic node."""
    some = owner.some_unevaluated_item
    if owner.unevaluated_items == TRUE and some == FALSE:
        return None
    if any(
        p.evaluates_all_items or (p is not owner and p.unevaluated_items != TRUE) for p in parts
    ):
        return None if some == FALSE else Node(owner.path, types=ALL_TYPES & ~ARRAY)
    prefix = max(len(p.prefix) for p in parts)
    found = [
        c.requirement for p in parts if p.contains_evaluates for c in p.contains if not c.start
    ]
    if some != FALSE:
        if found:
            some = add(Node(owner.path, all_of=(some, *(ob ^ 1 for ob in found))))
        return Node(owner.path, types=ARRAY, contains=(Contains(some, start=prefix),))
    ways = [owner.unevaluated_items, *found]
    rest = ways[0] if len(ways) == 1 else add(Node(owner.path, any_of=tuple(ways)))
    return Node(owner.path, prefix=(TRUE,) * prefix, items=rest)
