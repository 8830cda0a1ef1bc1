"""JSON Schema → `SchemaGraph`: reads, checks and resolves, decides nothing.

Everything wrong with a schema is found here, at compile: a keyword of the wrong type, a reference
that leads nowhere, a malformed pattern. Annotations and unknown keywords, which the standard says
assert nothing, are passed over (`report` lists them). This module knows no automata; what a schema
*means* is decided in `automaton.values`.

Dynamic references make a node depend on how it was reached: a node is a raw schema together with
the resources with dynamic anchors that were entered on the way to it.

Standards: drafts 4, 6, 7, 2019-09 and 2020-12, https://json-schema.org/specification.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ..errors import CompileLimitExceeded, PatternError, SchemaError, UnsupportedFeature
from . import dialects, ir
from .formats import format_regex
from .regex import parse_ecma
from .schema_documents import Documents, Resource
from .schema_graph import (
    DIGITS,
    FALSE,
    TRUE,
    TYPE_BITS,
    Contains,
    Node,
    SchemaGraph,
    child_path,
    json_key,
    to_decimal,
)

MAX_NODES = 200_000
"""Most subschemas one schema may reach."""


def lower(
    schema: Any,
    *,
    dialect: str | None = None,
    documents: Mapping[str, Any] | None = None,
    format_assertion: bool = True,
) -> SchemaGraph:
    """Read and check a schema.

    Args:
        schema: a mapping or a bool, as ``json.loads`` gives it.
        dialect: draft of a schema whose ``$schema`` does not say (see `dialects.DIALECTS`).
        documents: documents that references may lead to, by URL; the metaschemas are known.
        format_assertion: whether ``format`` is enforced or an annotation.

    Returns:
        The graph of everything reachable from the schema.

    Raises:
        SchemaError: the schema is malformed; the message names the path.
        UnsupportedFeature: a keyword cannot be enforced.
        CompileLimitExceeded: more than `MAX_NODES` subschemas.
    """
    draft = dialects.by_name(dialect) if dialect is not None else None
    return _Reader(schema, draft, documents, format_assertion).read()


class _Place:
    """Where a raw schema stands: its path, its resource and the dynamic scope it was reached in."""

    __slots__ = ("path", "resource", "scope")

    def __init__(self, path: str, resource: Resource, scope: tuple[Resource, ...]) -> None:
        self.path = path
        self.resource = resource
        self.scope = scope

    def at(self, *steps: str | int) -> str:
        return child_path(self.path, *steps)


class _Reader:
    """One pass over the reachable schema objects, with a work list instead of recursion."""

    def __init__(
        self,
        schema: Any,
        dialect: dialects.Dialect | None,
        documents: Mapping[str, Any] | None,
        format_assertion: bool,
    ) -> None:
        self._document = schema
        self._documents = Documents(schema, dialect, documents)
        self._formats = format_assertion
        self._nodes = [Node("$")]
        self._is_dynamic: dict[Resource, bool] = {}
        self._numbers: dict[tuple[int, tuple[Resource, ...]], int] = {}
        self._work: list[tuple[int, Mapping[str, Any], _Place]] = []

    def read(self) -> SchemaGraph:
        root = self._documents.root
        top = self._child(self._document, _Place("$", root, self._scope((), root)))
        while self._work:
            number, raw, place = self._work.pop()
            self._fill(self._nodes[number], raw, place)
        return SchemaGraph(self._nodes, top)

    # -- nodes ------------------------------------------------------------------------------

    def _child(self, raw: Any, place: _Place) -> int:
        """The obligation that ``raw`` holds; its node is put on the work list when it is new."""
        if raw is True:
            return TRUE
        if raw is False:
            return FALSE
        if not isinstance(raw, Mapping):
            raise SchemaError(
                f"a schema must be an object or a boolean, at {place.path}; got {_show(raw)}.",
                path=place.path,
            )
        if not raw:
            return TRUE
        key = (id(raw), place.scope)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            if number > MAX_NODES:
                raise CompileLimitExceeded(
                    "the schema reaches too many subschemas", limit=MAX_NODES, actual=number
                )
            self._nodes.append(Node(place.path))
            self._work.append((number, raw, place))
        return 2 * number

    def _below(self, raw: Any, place: _Place, *steps: str | int) -> int:
        """The obligation of a subschema of the schema at ``place``."""
        return self._child(raw, _Place(place.at(*steps), place.resource, place.scope))

    def _scope(self, scope: tuple[Resource, ...], entered: Resource) -> tuple[Resource, ...]:
        """``scope`` after entering a resource: only first entries, and dynamic ones, count."""
        if entered in scope:
            return scope
        dynamic = self._is_dynamic.get(entered)
        if dynamic is None:
            dynamic = self._is_dynamic[entered] = _is_dynamic(entered)
        return (*scope, entered) if dynamic else scope

    def _fill(self, node: Node, raw: Mapping[str, Any], place: _Place) -> None:
        resource = self._documents.enter(raw, place.resource, place.path)
        if resource is not place.resource:
            place = _Place(place.path, resource, self._scope(place.scope, resource))
        dialect = resource.dialect
        if dialect.ref_stands_alone and "$ref" in raw:
            self._ref(node, raw["$ref"], place)
            return
        for keyword, value in raw.items():
            handler = _HANDLERS.get(keyword)
            if handler is not None and keyword in dialect.assertions:
                handler(self, node, value, place)
        if "items" in raw or "prefixItems" in raw or "additionalItems" in raw:
            self._items(node, raw, place)
        if "contains" in raw and "contains" in dialect.assertions:
            self._contains(node, raw, place)
        if "if" in raw and "if" in dialect.assertions:
            self._if(node, raw, place)
        _draft4_bounds(node, raw)

    # -- any type ---------------------------------------------------------------------------

    def _type(self, node: Node, value: Any, place: _Place) -> None:
        names = value if isinstance(value, list) else [value]
        bits = 0
        for name in names:
            bit = TYPE_BITS.get(name) if isinstance(name, str) else None
            if bit is None:
                close = difflib.get_close_matches(str(name), TYPE_BITS, 1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise SchemaError(
                    f"'type' must be one of {', '.join(TYPE_BITS)}, at {place.at('type')}; "
                    f"got {_show(name)}.{hint}",
                    path=place.at("type"),
                    keyword="type",
                )
            if name == "integer" and place.resource.dialect.year == 4:
                bit = DIGITS  # draft 4, 3.5: "a JSON number without a fraction or exponent part"
            bits |= bit
        node.types &= bits

    def _enum(self, node: Node, value: Any, place: _Place) -> None:
        if not isinstance(value, list):
            raise _wrong("enum", "an array", value, place)
        self._restrict(node, value)

    def _const(self, node: Node, value: Any, place: _Place) -> None:
        self._restrict(node, [value])

    def _restrict(self, node: Node, values: list[Any]) -> None:
        """Keep only ``values`` (and, beside an earlier enum or const, only the common ones)."""
        keys = {json_key(v): v for v in values}
        if node.enum is not None:
            kept = {json_key(v) for v in node.enum}
            keys = {k: v for k, v in keys.items() if k in kept}
        node.enum = tuple(keys.values())

    # -- numbers and strings ----------------------------------------------------------------

    def _minimum(self, node: Node, value: Any, place: _Place) -> None:
        node.minimum = _number("minimum", value, place)

    def _maximum(self, node: Node, value: Any, place: _Place) -> None:
        node.maximum = _number("maximum", value, place)

    def _exclusive_minimum(self, node: Node, value: Any, place: _Place) -> None:
        if place.resource.dialect.year == 4 or isinstance(value, bool):
            _boolean("exclusiveMinimum", value, place)
        else:
            node.exclusive_minimum = _number("exclusiveMinimum", value, place)

    def _exclusive_maximum(self, node: Node, value: Any, place: _Place) -> None:
        if place.resource.dialect.year == 4 or isinstance(value, bool):
            _boolean("exclusiveMaximum", value, place)
        else:
            node.exclusive_maximum = _number("exclusiveMaximum", value, place)

    def _multiple_of(self, node: Node, value: Any, place: _Place) -> None:
        number = _number("multipleOf", value, place)
        if number <= 0:
            raise _wrong("multipleOf", "a number greater than 0", value, place)
        node.multiple_of = number

    def _pattern(self, node: Node, value: Any, place: _Place) -> None:
        if not isinstance(value, str):
            raise _wrong("pattern", "a string", value, place)
        node.patterns += (_parse_pattern(value, place.at("pattern")),)

    def _format(self, node: Node, value: Any, place: _Place) -> None:
        if not isinstance(value, str):
            raise _wrong("format", "a string", value, place)
        regex = format_regex(value, place.resource.dialect.name) if self._formats else None
        if regex is not None:
            node.patterns += (regex,)

    # -- objects and arrays -----------------------------------------------------------------

    def _properties(self, node: Node, value: Any, place: _Place) -> None:
        self._mapping("properties", value, place)
        node.properties = {k: self._below(v, place, "properties", k) for k, v in value.items()}

    def _pattern_properties(self, node: Node, value: Any, place: _Place) -> None:
        self._mapping("patternProperties", value, place)
        node.pattern_properties = tuple(
            (
                _parse_pattern(k, place.at("patternProperties", k), "patternProperties"),
                self._below(v, place, "patternProperties", k),
            )
            for k, v in value.items()
        )

    def _additional(self, node: Node, value: Any, place: _Place) -> None:
        node.additional = self._below(value, place, "additionalProperties")
        node.evaluates_all_properties = True

    def _required(self, node: Node, value: Any, place: _Place) -> None:
        node.required = _names("required", value, place)

    def _unique(self, node: Node, value: Any, place: _Place) -> None:
        node.unique = _boolean("uniqueItems", value, place)

    def _items(self, node: Node, raw: Mapping[str, Any], place: _Place) -> None:
        """``prefixItems``, ``items`` and ``additionalItems``, which depend on each other."""
        known = place.resource.dialect.assertions
        items = raw.get("items", True)
        if "prefixItems" in raw and "prefixItems" in known:
            node.prefix = self._schemas("prefixItems", raw["prefixItems"], place)
            node.items = self._below(items, place, "items")
            node.evaluates_all_items |= "items" in raw
        elif isinstance(items, list):
            if place.resource.dialect.year >= 2020 and "$schema" in place.resource.root:
                raise SchemaError(
                    f"'items' must be a schema in draft 2020-12, at {place.at('items')}; got an "
                    "array. Use prefixItems, or name an older draft in $schema.",
                    path=place.at("items"),
                    keyword="items",
                )
            node.prefix = tuple(
                self._below(item, place, "items", i) for i, item in enumerate(items)
            )
            node.items = self._below(raw.get("additionalItems", True), place, "additionalItems")
            node.evaluates_all_items |= "additionalItems" in raw
        elif "items" in raw:
            node.items = self._below(items, place, "items")
            node.evaluates_all_items |= True

    def _contains(self, node: Node, raw: Mapping[str, Any], place: _Place) -> None:
        least, most = 1, None
        if "minContains" in place.resource.dialect.assertions:
            least = _count("minContains", raw.get("minContains", 1), place)
            if "maxContains" in raw:
                most = _count("maxContains", raw["maxContains"], place)
        obligation = self._below(raw["contains"], place, "contains")
        node.contains = (Contains(obligation, least, most),)
        node.contains_evaluates = place.resource.dialect.year >= 2020

    # -- in place ---------------------------------------------------------------------------

    def _mapping(self, keyword: str, value: Any, place: _Place) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(keyword, "an object", value, place)

    def _schemas(self, keyword: str, value: Any, place: _Place) -> tuple[int, ...]:
        if not isinstance(value, list) or not value:
            raise _wrong(keyword, "a non-empty array of schemas", value, place)
        return tuple(self._below(v, place, keyword, i) for i, v in enumerate(value))

    def _all_of(self, node: Node, value: Any, place: _Place) -> None:
        node.all_of += self._schemas("allOf", value, place)

    def _any_of(self, node: Node, value: Any, place: _Place) -> None:
        node.any_of = self._schemas("anyOf", value, place)

    def _one_of(self, node: Node, value: Any, place: _Place) -> None:
        node.one_of = self._schemas("oneOf", value, place)

    def _not(self, node: Node, value: Any, place: _Place) -> None:
        node.all_of += (self._below(value, place, "not") ^ 1,)

    def _if(self, node: Node, raw: Mapping[str, Any], place: _Place) -> None:
        node.condition = (
            self._below(raw["if"], place, "if"),
            self._below(raw.get("then", True), place, "then"),
            self._below(raw.get("else", True), place, "else"),
        )

    def _dependent_required(self, node: Node, value: Any, place: _Place) -> None:
        self._mapping("dependentRequired", value, place)
        node.dependent_required |= {
            k: _names("dependentRequired", v, place) for k, v in value.items()
        }

    def _dependent_schemas(self, node: Node, value: Any, place: _Place) -> None:
        self._mapping("dependentSchemas", value, place)
        node.dependent_schemas |= {
            k: self._below(v, place, "dependentSchemas", k) for k, v in value.items()
        }

    def _dependencies(self, node: Node, value: Any, place: _Place) -> None:
        self._mapping("dependencies", value, place)
        for name, item in value.items():
            if isinstance(item, list):
                node.dependent_required[name] = _names("dependencies", item, place)
            elif isinstance(item, str) and place.resource.dialect.year == 4:
                node.dependent_required[name] = (item,)
            else:
                node.dependent_schemas[name] = self._below(item, place, "dependencies", name)

    def _unevaluated_properties(self, node: Node, value: Any, place: _Place) -> None:
        node.unevaluated_properties = self._below(value, place, "unevaluatedProperties")
        node.evaluates_all_properties |= node.unevaluated_properties == TRUE

    def _unevaluated_items(self, node: Node, value: Any, place: _Place) -> None:
        node.unevaluated_items = self._below(value, place, "unevaluatedItems")
        node.evaluates_all_items |= node.unevaluated_items == TRUE

    # -- references -------------------------------------------------------------------------

    def _ref(self, node: Node, value: Any, place: _Place) -> None:
        if not isinstance(value, str):
            raise _wrong("$ref", "a string", value, place)
        target = self._documents.resolve(value, place.resource, place.at("$ref"))
        scope = self._scope(place.scope, target.resource)
        node.refs += (self._child(target.raw, _Place(target.path, target.resource, scope)),)

    def _dynamic_ref(self, node: Node, value: Any, place: _Place) -> None:
        if not isinstance(value, str):
            raise _wrong("$dynamicRef", "a string", value, place)
        target = self._documents.resolve(value, place.resource, place.at("$dynamicRef"))
        name = value.partition("#")[2]
        raw = target.raw
        if isinstance(raw, Mapping) and name and raw.get("$dynamicAnchor") == name:
            for resource in place.scope:
                found = self._documents.dynamic_anchor(resource, name)
                if found is not None:
                    target = found
                    break
        scope = self._scope(place.scope, target.resource)
        node.refs += (self._child(target.raw, _Place(target.path, target.resource, scope)),)

    def _recursive_ref(self, node: Node, value: Any, place: _Place) -> None:
        if value != "#":
            raise _wrong("$recursiveRef", "'#'", value, place)
        resource = place.resource
        root = resource.root
        if isinstance(root, Mapping) and root.get("$recursiveAnchor") is True:
            for outer in place.scope:
                if isinstance(outer.root, Mapping) and outer.root.get("$recursiveAnchor") is True:
                    resource = outer
                    break
        scope = self._scope(place.scope, resource)
        node.refs += (self._child(resource.root, _Place(resource.path, resource, scope)),)


def _counter(keyword: str, field: str) -> Callable[[_Reader, Node, Any, _Place], None]:
    def read(_: _Reader, node: Node, value: Any, place: _Place) -> None:
        setattr(node, field, _count(keyword, value, place))

    return read


def _single(keyword: str, field: str) -> Callable[[_Reader, Node, Any, _Place], None]:
    def read(reader: _Reader, node: Node, value: Any, place: _Place) -> None:
        setattr(node, field, reader._below(value, place, keyword))

    return read


_HANDLERS: dict[str, Callable[[_Reader, Node, Any, _Place], None]] = {
    "type": _Reader._type,
    "enum": _Reader._enum,
    "const": _Reader._const,
    "minimum": _Reader._minimum,
    "maximum": _Reader._maximum,
    "exclusiveMinimum": _Reader._exclusive_minimum,
    "exclusiveMaximum": _Reader._exclusive_maximum,
    "multipleOf": _Reader._multiple_of,
    "minLength": _counter("minLength", "min_length"),
    "maxLength": _counter("maxLength", "max_length"),
    "pattern": _Reader._pattern,
    "format": _Reader._format,
    "properties": _Reader._properties,
    "patternProperties": _Reader._pattern_properties,
    "additionalProperties": _Reader._additional,
    "propertyNames": _single("propertyNames", "property_names"),
    "required": _Reader._required,
    "minProperties": _counter("minProperties", "min_properties"),
    "maxProperties": _counter("maxProperties", "max_properties"),
    "minItems": _counter("minItems", "min_items"),
    "maxItems": _counter("maxItems", "max_items"),
    "uniqueItems": _Reader._unique,
    "allOf": _Reader._all_of,
    "anyOf": _Reader._any_of,
    "oneOf": _Reader._one_of,
    "not": _Reader._not,
    "dependentRequired": _Reader._dependent_required,
    "dependentSchemas": _Reader._dependent_schemas,
    "dependencies": _Reader._dependencies,
    "unevaluatedProperties": _Reader._unevaluated_properties,
    "unevaluatedItems": _Reader._unevaluated_items,
    "$ref": _Reader._ref,
    "$dynamicRef": _Reader._dynamic_ref,
    "$recursiveRef": _Reader._recursive_ref,
}


def _is_dynamic(resource: Resource) -> bool:
    """Whether dynamic references can lead into ``resource``: a cheap test that may say yes."""
    root = resource.root
    if not isinstance(root, Mapping) or resource.dialect.year < 2019:
        return False
    return "$recursiveAnchor" in root or _mentions_dynamic_anchor(root)


def _mentions_dynamic_anchor(root: Mapping[str, Any]) -> bool:
    stack: list[Any] = [root]
    while stack:
        raw = stack.pop()
        if isinstance(raw, Mapping):
            if "$dynamicAnchor" in raw:
                return True
            stack.extend(raw.values())
        elif isinstance(raw, list):
            stack.extend(raw)
    return False


def _draft4_bounds(node: Node, raw: Mapping[str, Any]) -> None:
    """Draft 4's boolean ``exclusiveMinimum`` and ``exclusiveMaximum``."""
    if raw.get("exclusiveMinimum") is True and node.minimum is not None:
        node.exclusive_minimum, node.minimum = node.minimum, None
    if raw.get("exclusiveMaximum") is True and node.maximum is not None:
        node.exclusive_maximum, node.maximum = node.maximum, None


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> ir.Regex:
    return parse_ecma(pattern)


def _parse_pattern(pattern: str, path: str, keyword: str = "pattern") -> ir.Regex:
    try:
        return _parse(pattern)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"{error} (in the pattern at {path})", path=path, keyword=keyword
        ) from error
    except PatternError as error:
        raise SchemaError(
            f"invalid regular expression at {path}: {error}", path=path, keyword=keyword
        ) from error


def _count(keyword: str, value: Any, place: _Place) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise _wrong(keyword, "a whole number of at least 0", value, place)
    if value < 0:
        raise _wrong(keyword, "a whole number of at least 0", value, place)
    return int(value)


def _boolean(keyword: str, value: Any, place: _Place) -> bool:
    if not isinstance(value, bool):
        raise _wrong(keyword, "a boolean", value, place)
    return value


def _names(keyword: str, value: Any, place: _Place) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _wrong(keyword, "an array of strings", value, place)
    return tuple(dict.fromkeys(value))


def _number(keyword: str, value: Any, place: _Place) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _wrong(keyword, "a number", value, place)
    number = to_decimal(value)
    if not number.is_finite():
        raise _wrong(keyword, "a finite number", value, place)
    return number


def _wrong(keyword: str, wanted: str, value: Any, place: _Place) -> SchemaError:
    path = place.at(keyword)
    return SchemaError(
        f"{keyword!r} must be {wanted}, at {path}; got {_show(value)}.", path=path, keyword=keyword
    )


def _show(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
