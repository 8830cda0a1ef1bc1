"""JSON Schema (draft 2020-12) → `SchemaGraph`: reads, checks and resolves, decides nothing.

Everything wrong with a schema is found here, at compile: a keyword of the wrong type, a reference
that leads nowhere, a malformed pattern. A keyword that structgen cannot enforce is refused with its
path; annotations and unknown keywords, which the standard says assert nothing, are passed over.
This module knows no automata; what a schema *means* is decided in `automaton.values`.

Standard: https://json-schema.org/draft/2020-12 (core and validation).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from ..errors import PatternError, SchemaError, UnsupportedFeature
from . import ir
from .regex import parse_ecma
from .schema_graph import (
    ALL_TYPES,
    FALSE,
    INTEGER,
    TRUE,
    TYPE_BITS,
    Node,
    SchemaGraph,
    child_path,
    json_key,
    to_decimal,
)

ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment $schema $id $defs "
    "definitions $vocabulary contentEncoding contentMediaType contentSchema discriminator".split()
)
"""Keywords of the standard (and OpenAPI's ``discriminator``) that assert nothing by themselves."""

REFUSED = {
    "oneOf": "Use anyOf when the branches exclude each other.",
    "not": "State what is allowed instead.",
    "if": "Use anyOf with one branch for each case.",
    "contains": "Constrain every item with items, or the first ones with prefixItems.",
    "uniqueItems": "Use a fixed enum of combinations, or check after generation.",
    "unevaluatedProperties": "Use additionalProperties beside properties.",
    "unevaluatedItems": "Use items beside prefixItems.",
    "dependentRequired": "Use anyOf with one branch for each case.",
    "dependentSchemas": "Use anyOf with one branch for each case.",
    "dependencies": "Use anyOf with one branch for each case.",
    "format": "Use pattern.",
    "$dynamicRef": "Use $ref.",
    "$recursiveRef": "Use $ref.",
}
"""Assertions that exist and are not enforced yet, with what to do instead."""

HARMLESS = frozenset(["then", "else", "minContains", "maxContains", "$anchor", "$dynamicAnchor"])
"""Keywords that mean nothing without a neighbour that is refused, or only name a place."""


def lower(schema: Any) -> SchemaGraph:
    """Read and check a schema.

    Args:
        schema: a mapping or a bool, as ``json.loads`` gives it.

    Returns:
        The graph of everything reachable from the schema.

    Raises:
        SchemaError: the schema is malformed; the message names the path.
        UnsupportedFeature: a keyword cannot be enforced.
    """
    return _Reader(schema).read()


class _Reader:
    """One pass over the reachable schema objects, with a work list instead of recursion."""

    def __init__(self, schema: Any) -> None:
        self._document = schema
        self._nodes = [Node("$"), Node("$", types=0)]
        self._numbers: dict[int, int] = {}
        self._work: list[tuple[int, Mapping[str, Any], str]] = []

    def read(self) -> SchemaGraph:
        root = self._child(self._document, "$")
        while self._work:
            number, raw, path = self._work.pop()
            self._fill(self._nodes[number], raw, path)
        return SchemaGraph(self._nodes, root)

    def _child(self, raw: Any, path: str) -> int:
        """The number of the node for ``raw``, which is put on the work list when it is new."""
        if raw is True:
            return TRUE
        if raw is False:
            return FALSE
        if not isinstance(raw, Mapping):
            raise SchemaError(
                f"a schema must be an object or a boolean, at {path}; got {_show(raw)}.", path=path
            )
        if not raw:
            return TRUE
        number = self._numbers.get(id(raw))
        if number is None:
            number = self._numbers[id(raw)] = len(self._nodes)
            self._nodes.append(Node(path))
            self._work.append((number, raw, path))
        return number

    def _fill(self, node: Node, raw: Mapping[str, Any], path: str) -> None:
        for keyword, value in raw.items():
            handler = _HANDLERS.get(keyword)
            if handler is not None:
                handler(self, node, value, child_path(path, keyword))
            elif keyword in REFUSED and not _vacuous(keyword, value):
                raise UnsupportedFeature(
                    f"JSON Schema keyword {keyword!r} is not supported, at {path}.",
                    path=path,
                    keyword=keyword,
                    fix=REFUSED[keyword],
                )

    # -- any type ---------------------------------------------------------------------------

    def _type(self, node: Node, value: Any, path: str) -> None:
        names = value if isinstance(value, list) else [value]
        bits = 0
        for name in names:
            bit = TYPE_BITS.get(name) if isinstance(name, str) else None
            if bit is None:
                close = difflib.get_close_matches(str(name), TYPE_BITS, 1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise SchemaError(
                    f"'type' must be one of {', '.join(TYPE_BITS)}, at {path}; "
                    f"got {_show(name)}.{hint}",
                    path=path,
                    keyword="type",
                )
            bits |= bit
        node.types &= bits

    def _enum(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise _wrong("enum", "an array", value, path)
        self._restrict(node, value)

    def _const(self, node: Node, value: Any, path: str) -> None:
        self._restrict(node, [value])

    def _restrict(self, node: Node, values: list[Any]) -> None:
        """Keep only ``values`` (and, beside an earlier enum or const, only the common ones)."""
        keys = {json_key(v): v for v in values}
        if node.enum is not None:
            kept = {json_key(v) for v in node.enum}
            keys = {k: v for k, v in keys.items() if k in kept}
        node.enum = tuple(keys.values())

    # -- numbers and strings ----------------------------------------------------------------

    def _bound(self, node: Node, value: Any, path: str) -> None:
        setattr(node, _FIELDS[_last(path)], _number(_last(path), value, path))

    def _multiple_of(self, node: Node, value: Any, path: str) -> None:
        number = _number("multipleOf", value, path)
        if number <= 0:
            raise _wrong("multipleOf", "a number greater than 0", value, path)
        node.multiple_of = number

    def _count(self, node: Node, value: Any, path: str) -> None:
        keyword = _last(path)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            raise _wrong(keyword, "a whole number of at least 0", value, path)
        if value < 0:
            raise _wrong(keyword, "a whole number of at least 0", value, path)
        setattr(node, _FIELDS[keyword], int(value))

    def _pattern(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, str):
            raise _wrong("pattern", "a string", value, path)
        node.patterns += (_parse_pattern(value, path),)

    # -- objects and arrays -----------------------------------------------------------------

    def _properties(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _wrong("properties", "an object", value, path)
        node.properties = {k: self._child(v, child_path(path, k)) for k, v in value.items()}

    def _pattern_properties(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _wrong("patternProperties", "an object", value, path)
        node.pattern_properties = tuple(
            (_parse_pattern(k, child_path(path, k)), self._child(v, child_path(path, k)))
            for k, v in value.items()
        )

    def _single(self, node: Node, value: Any, path: str) -> None:
        setattr(node, _FIELDS[_last(path)], self._child(value, path))

    def _required(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise _wrong("required", "an array of strings", value, path)
        node.required = tuple(dict.fromkeys(value))

    def _prefix_items(self, node: Node, value: Any, path: str) -> None:
        node.prefix = self._schemas("prefixItems", value, path)

    # -- in place ---------------------------------------------------------------------------

    def _schemas(self, keyword: str, value: Any, path: str) -> tuple[int, ...]:
        if not isinstance(value, list) or not value:
            raise _wrong(keyword, "a non-empty array of schemas", value, path)
        return tuple(self._child(v, child_path(path, i)) for i, v in enumerate(value))

    def _all_of(self, node: Node, value: Any, path: str) -> None:
        node.all_of = self._schemas("allOf", value, path)

    def _any_of(self, node: Node, value: Any, path: str) -> None:
        node.any_of = self._schemas("anyOf", value, path)

    def _ref(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, str):
            raise _wrong("$ref", "a string", value, path)
        target, target_path = self._resolve(value, path)
        node.ref = self._child(target, target_path)

    def _resolve(self, reference: str, path: str) -> tuple[Any, str]:
        """What a local reference (``#`` or ``#/json/pointer``) points at."""
        if reference not in ("#", "") and not reference.startswith("#/"):
            raise UnsupportedFeature(
                f"'$ref' {reference!r} is not a local JSON pointer, at {path}.",
                path=path,
                keyword="$ref",
                fix="Put the definition under $defs and refer to it as '#/$defs/NAME'.",
            )
        target: Any = self._document
        target_path = "$"
        for token in reference.lstrip("#").split("/")[1:]:
            step = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
                target_path = child_path(target_path, step)
            elif isinstance(target, list) and step.isdigit() and int(step) < len(target):
                target = target[int(step)]
                target_path = child_path(target_path, int(step))
            else:
                known = list(target) if isinstance(target, Mapping) else []
                close = difflib.get_close_matches(step, known, 1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise SchemaError(
                    f"'$ref' {reference!r} leads nowhere, at {path}: "
                    f"there is no {step!r} in {target_path}.{hint}",
                    path=path,
                    keyword="$ref",
                )
        return target, target_path


_FIELDS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "minItems": "min_items",
    "maxItems": "max_items",
    "items": "items",
    "additionalProperties": "additional",
    "propertyNames": "property_names",
}

_HANDLERS: dict[str, Callable[[_Reader, Node, Any, str], None]] = {
    "type": _Reader._type,
    "enum": _Reader._enum,
    "const": _Reader._const,
    **dict.fromkeys(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], _Reader._bound
    ),
    "multipleOf": _Reader._multiple_of,
    **dict.fromkeys(
        ["minLength", "maxLength", "minProperties", "maxProperties", "minItems", "maxItems"],
        _Reader._count,
    ),
    "pattern": _Reader._pattern,
    "properties": _Reader._properties,
    "patternProperties": _Reader._pattern_properties,
    **dict.fromkeys(["items", "additionalProperties", "propertyNames"], _Reader._single),
    "required": _Reader._required,
    "prefixItems": _Reader._prefix_items,
    "allOf": _Reader._all_of,
    "anyOf": _Reader._any_of,
    "$ref": _Reader._ref,
}


def _vacuous(keyword: str, value: Any) -> bool:
    """Whether a refused keyword asserts nothing with this value."""
    if keyword == "uniqueItems":
        return value is False
    if keyword in ("unevaluatedProperties", "unevaluatedItems"):
        return value is True
    if keyword == "not":
        return value is False
    if keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        return value == {}
    return False


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> ir.Regex:
    return parse_ecma(pattern)


def _parse_pattern(pattern: str, path: str) -> ir.Regex:
    try:
        return _parse(pattern)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"{error} (in the pattern at {path})", path=path, keyword="pattern"
        ) from error
    except PatternError as error:
        raise SchemaError(
            f"invalid regular expression at {path}: {error}", path=path, keyword="pattern"
        ) from error


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _number(keyword: str, value: Any, path: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _wrong(keyword, "a number", value, path)
    number = to_decimal(value)
    if not number.is_finite():
        raise _wrong(keyword, "a finite number", value, path)
    return number


def _wrong(keyword: str, wanted: str, value: Any, path: str) -> SchemaError:
    return SchemaError(
        f"{keyword!r} must be {wanted}, at {path}; got {_show(value)}.", path=path, keyword=keyword
    )


def _show(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


__all__ = ["ALL_TYPES", "ANNOTATIONS", "HARMLESS", "INTEGER", "REFUSED", "lower"]
