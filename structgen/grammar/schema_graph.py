"""The JSON Schema graph: what a schema says, checked and with its references resolved.

One `Node` per schema object, numbered; applicators hold node numbers, so a recursive schema is a
graph with cycles and no Python recursion. Node 0 is the schema ``true``, node 1 ``false``. This
module owns the data structure and the type bits; `json_schema` fills it in, the automaton reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from . import ir

NULL, BOOLEAN, OBJECT, ARRAY, STRING, INTEGER, FRACTION = (1 << i for i in range(7))
NUMBER = INTEGER | FRACTION
ALL_TYPES = (1 << 7) - 1
TYPE_BITS = {
    "null": NULL,
    "boolean": BOOLEAN,
    "object": OBJECT,
    "array": ARRAY,
    "string": STRING,
    "integer": INTEGER,
    "number": NUMBER,
}

TRUE, FALSE = 0, 1


@dataclass(slots=True)
class Node:
    """One schema object. None and empty mean that the keyword is absent."""

    path: str
    types: int = ALL_TYPES
    enum: tuple[Any, ...] | None = None
    # numbers
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    exclusive_minimum: Decimal | None = None
    exclusive_maximum: Decimal | None = None
    multiple_of: Decimal | None = None
    # strings
    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[ir.Regex, ...] = ()
    # objects
    properties: dict[str, int] = field(default_factory=lambda: {})
    pattern_properties: tuple[tuple[ir.Regex, int], ...] = ()
    additional: int = TRUE
    property_names: int = TRUE
    required: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    # arrays
    prefix: tuple[int, ...] = ()
    items: int = TRUE
    min_items: int = 0
    max_items: int | None = None
    # in place
    ref: int | None = None
    all_of: tuple[int, ...] = ()
    any_of: tuple[int, ...] | None = None

    @property
    def speaks_of_objects(self) -> bool:
        """Whether an object's members matter to this node's own assertions."""
        return bool(
            self.properties
            or self.pattern_properties
            or self.required
            or self.additional != TRUE
            or self.property_names != TRUE
            or self.min_properties
            or self.max_properties is not None
        )

    @property
    def speaks_of_arrays(self) -> bool:
        """Whether an array's items matter to this node's own assertions."""
        return bool(
            self.prefix or self.items != TRUE or self.min_items or self.max_items is not None
        )


@dataclass(slots=True)
class SchemaGraph:
    """A whole schema: ``nodes[root]`` is where a document starts."""

    nodes: list[Node]
    root: int


def child_path(path: str, *steps: str | int) -> str:
    """``path`` extended the way error messages write it: ``$.properties["a b"][0]``."""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or (step.startswith("$") and step[1:].isidentifier()):
            path += f".{step}"
        else:
            escaped = step.replace("\\", "\\\\").replace('"', '\\"')
            path += f'["{escaped}"]'
    return path


def json_key(value: Any) -> Any:
    """A hashable value equal exactly for values that JSON Schema calls equal (1 = 1.0 ≠ true)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (int, float, Decimal)):
        number = to_decimal(value)
        return ("number", number.normalize() if number else Decimal(0))
    if isinstance(value, dict):
        return ("object", frozenset((k, json_key(v)) for k, v in value.items()))
    return ("array", tuple(json_key(v) for v in value))


def to_decimal(value: int | float | Decimal) -> Decimal:
    """The number as its shortest decimal spelling has it (0.1 is a tenth)."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
