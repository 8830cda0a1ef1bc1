"""Whether a given Python value satisfies a schema node: the schema graph read as a validator.

Needed at compile only, where a schema names values itself: ``enum`` and ``const`` beside other
assertions, and property names. Not used on generated text, whose validity is the automaton's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..grammar import ir
from ..grammar.schema_graph import (
    ARRAY,
    BOOLEAN,
    FRACTION,
    INTEGER,
    NULL,
    OBJECT,
    STRING,
    Node,
    json_key,
    to_decimal,
)
from .derivatives import RegexAutomaton


@lru_cache(maxsize=1024)
def _automaton(regex: ir.Regex) -> RegexAutomaton:
    return RegexAutomaton(regex)


def matches(regex: ir.Regex, text: str) -> bool:
    """Whether ``regex`` matches the whole of ``text``."""
    automaton = _automaton(regex)
    state = automaton.start
    for char in text:
        atom = automaton.alphabet.atom(ord(char))
        for mask, to in automaton.moves(state):
            if atom >= 0 and mask >> atom & 1:
                state = to
                break
        else:
            return False
    return automaton.label(state) >= 0


def type_bit(value: Any) -> int:
    """The type bit of a JSON value; 1.0 is an integer."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    if isinstance(value, Mapping):
        return OBJECT
    if isinstance(value, (list, tuple)):
        return ARRAY
    return INTEGER if to_decimal(value) % 1 == 0 else FRACTION


def holds(nodes: Sequence[Node], number: int, value: Any) -> bool:
    """Whether ``value`` satisfies node ``number``."""
    node = nodes[number]
    kind = type_bit(value)
    if not node.types & kind:
        return False
    if node.enum is not None and json_key(value) not in {json_key(v) for v in node.enum}:
        return False
    if node.ref is not None and not holds(nodes, node.ref, value):
        return False
    if not all(holds(nodes, n, value) for n in node.all_of):
        return False
    if node.any_of is not None and not any(holds(nodes, n, value) for n in node.any_of):
        return False
    if kind & (INTEGER | FRACTION):
        return _number_holds(node, value)
    if kind == STRING:
        return (
            len(value) >= node.min_length
            and (node.max_length is None or len(value) <= node.max_length)
            and all(matches(p, value) for p in node.patterns)
        )
    if kind == OBJECT:
        return _object_holds(nodes, node, value)
    if kind == ARRAY:
        return (
            len(value) >= node.min_items
            and (node.max_items is None or len(value) <= node.max_items)
            and all(
                holds(nodes, node.prefix[i] if i < len(node.prefix) else node.items, item)
                for i, item in enumerate(value)
            )
        )
    return True


def _number_holds(node: Node, value: Any) -> bool:
    number = to_decimal(value)
    return (
        (node.minimum is None or number >= node.minimum)
        and (node.maximum is None or number <= node.maximum)
        and (node.exclusive_minimum is None or number > node.exclusive_minimum)
        and (node.exclusive_maximum is None or number < node.exclusive_maximum)
        and (node.multiple_of is None or number % node.multiple_of == 0)
    )


def _object_holds(nodes: Sequence[Node], node: Node, value: Mapping[str, Any]) -> bool:
    if any(name not in value for name in node.required):
        return False
    if len(value) < node.min_properties:
        return False
    if node.max_properties is not None and len(value) > node.max_properties:
        return False
    for name, item in value.items():
        if not holds(nodes, node.property_names, name):
            return False
        children = [child for regex, child in node.pattern_properties if matches(regex, name)]
        if name in node.properties:
            children.append(node.properties[name])
        if not all(holds(nodes, c, item) for c in children or [node.additional]):
            return False
    return True
