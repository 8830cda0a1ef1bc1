"""Which values of a type can be judged before the whole is there, by the code that looks at them.

A value can be judged alone if nothing around it may change it first or forgive it (a "before" or
"wrap" validator, `OnErrorOmit`), and none of its validators asks for other fields. Reads core
schemas; knows no documents and no refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from structgen.types import FUNCTIONS, looked_at_by

from .shapes import WRAPPERS, Place, Shapes

_NOT_PARTS = frozenset(
    ("metadata", "serialization", "expected", "default", "config", "function", "computed_fields")
)
"""Keys of core schemas under which there is nothing that reads a value."""

_CHANGES = frozenset(("function-before", "function-wrap", "function-plain"))
_FORGIVES = ("default", "omit")


class Plan(NamedTuple):
    """How the values of one type are judged.

    Attributes:
        has_code: whether code looks at the value or its parts.
        is_judged: whether that takes a look at the value when it closes: its parts, judged when
            they close, leave something over.
        is_alone: whether it can be judged without what is around it.
        taints: whether its parts cannot be judged without it.
    """

    has_code: bool
    is_judged: bool
    is_alone: bool
    taints: bool


_PLAIN = Plan(has_code=False, is_judged=False, is_alone=True, taints=False)


def plan_of(shapes: Shapes, place: Place) -> Plan:
    """How values of a type are judged."""
    if place.core is None or not any(_code(shapes, place.core, ())):
        return _PLAIN
    taints = forgives = False
    for core in _wrappers(shapes, place.core):
        kind = core["type"]
        taints = taints or (kind in _CHANGES and bool(looked_at_by(core)))
        forgives = forgives or (kind == "default" and core.get("on_error") in _FORGIVES)
    objects, arrays = shapes.objects(place), shapes.arrays(place)
    inside: set[int] = set()
    if not (taints or forgives):
        parts = [part for shape in objects for _, part in shape.fields.values()]
        parts += [part for shape in arrays for part in shape.first]
        parts += [one.others for one in objects if one.others is not None]
        parts += [one.others for one in arrays if one.others is not None]
        inside = {id(part.core) for part in parts if _is_alone(shapes, part)}
    # Of several kinds of object it may be known too late which one it is.
    is_judged = (
        len(objects) > 1 or len(arrays) > 1 or any(_code(shapes, place.core, frozenset(inside)))
    )
    return Plan(True, is_judged, _is_alone(shapes, place), taints or forgives)


def _is_alone(shapes: Shapes, place: Place) -> bool:
    if place.core is None:
        return True
    forgives = any(
        core["type"] == "default" and core.get("on_error") in _FORGIVES
        for core in _wrappers(shapes, place.core)
    )
    return not forgives and shapes.parser(place) is not None


def _wrappers(shapes: Shapes, core: Any) -> Iterator[Any]:
    """What is around what a value is, in a core schema; in unions around each that it may be."""
    waiting, seen = [core], set()
    while waiting:
        core = waiting.pop()
        kind = core["type"]
        if kind == "definition-ref":
            name = core["schema_ref"]
            if name not in seen and name in shapes.refs:
                seen.add(name)
                waiting.append(shapes.refs[name])
            continue
        yield core
        if kind == "union":
            waiting += [one[0] if isinstance(one, tuple) else one for one in core["choices"]]
        elif kind == "tagged-union":
            waiting += [one for one in core["choices"].values() if isinstance(one, dict)]
        elif kind == "chain":
            waiting += core["steps"]
        elif kind in WRAPPERS:
            waiting.append(core[WRAPPERS[kind]])


def _code(shapes: Shapes, core: Any, without: frozenset[int] | tuple[()]) -> Iterator[bool]:
    """True for each place in a core schema where code looks at values, parts left out."""
    waiting: list[Any] = [core]
    seen: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting.extend(node)
        elif isinstance(node, dict):
            if id(node) in without:
                continue
            kind = node.get("type")
            if kind == "definition-ref":
                name = node["schema_ref"]
                if name not in seen and name in shapes.refs:
                    seen.add(name)
                    waiting.append(shapes.refs[name])
                continue
            is_schema = isinstance(node.get("function"), dict) or kind not in FUNCTIONS
            if isinstance(kind, str) and is_schema and looked_at_by(node):
                yield True
            skipped = _NOT_PARTS | {"definitions"} if kind == "definitions" else _NOT_PARTS
            waiting.extend(part for key, part in node.items() if key not in skipped)
