"""JSON Schema → `SchemaGraph`: what each keyword of a schema object says, checked; decides nothing.

`lower` is the entry. Everything wrong with a schema is found here, at compile: a keyword of the
wrong type, a reference that leads nowhere, a malformed pattern. Owns the list of keywords and how
each becomes fields of a `Node`; `reader` walks the subschemas, `documents` resolves references.
Annotations and unknown keywords, which the standard says assert nothing, are passed over
(`structgen.constraint.explain` lists them). Of definitions that no reference reaches only what is
malformed in them is told: values of keywords, and patterns. What a node *means* is decided in
`automaton.values`.

Standards: drafts 4, 6, 7, 2019-09 and 2020-12, https://json-schema.org/specification.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeAlias

from structgen.errors import CompileLimitExceeded, UnsupportedFeature
from structgen.grammar.formats import format_regex
from structgen.grammar.regex import algebra as regex_algebra
from structgen.storage import IdentityMap

from . import checks, dialects
from .dialects import Dialect
from .documents import Documents, Place
from .graph import (
    DIGITS,
    DIGITS_ONLY,
    FRACTION,
    POINTED,
    TRUE,
    TYPE_BITS,
    Contains,
    Node,
    SchemaGraph,
    by_key,
)
from .reader import Fill, Holder, NotDynamic, Observer, Reader

Skipped: TypeAlias = "Collection[tuple[str, str]]"
"""``(path, keyword)`` pairs that are read as if they were not there; the path is that of the
keyword's schema, or that of what it holds."""


_IDENTIFIERS = ("$schema", "$id", "$anchor", "$dynamicAnchor")


class KeywordReader:
    """Reads schema objects into nodes; its `read` is to be given to a `Reader`.

    Args:
        format_assertion: whether ``format`` is enforced or an annotation.
        skipped: keywords to pass over.
    """

    def __init__(self, format_assertion: bool = True, skipped: Skipped = ()) -> None:
        self._formats = format_assertion
        self._skipped = skipped
        self._dialect: Dialect | None = None
        self._handlers: dict[str, Handler] = {}
        self._but_type: dict[str, Handler] = {}
        self._types: Mapping[str, int] = {}
        self._ref_stands_alone = False

    def read(self, reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
        """Read the keywords of ``raw`` into ``node``."""
        if self._skipped:
            raw = {k: v for k, v in raw.items() if not self._is_skipped(place, k)}
        dialect = place.resource.dialect
        if dialect is not self._dialect:
            self._dialect, self._ref_stands_alone = dialect, dialect.ref_stands_alone
            handlers, but_type, self._types = _handlers(dialect.assertions, dialect.year == 4)
            me = weakref.proxy(self)  # bound methods would leave it to the collector
            own: dict[str, Handler] = {
                "format": partial(KeywordReader.format, me),
                "patternProperties": partial(KeywordReader.pattern_properties, me),
            }
            self._handlers, self._but_type = handlers | own, but_type | own
        if self._ref_stands_alone and "$ref" in raw:
            for keyword in _IDENTIFIERS:
                if keyword in raw:
                    checks.text(keyword, raw[keyword], place)
            _ref(reader, node, raw["$ref"], place)
            return
        handlers = self._handlers
        name = raw.get("type")
        if type(name) is str and name in self._types:  # as nearly always
            node.types = self._types[name]
            handlers = self._but_type
        for keyword, value in raw.items():
            handler = handlers.get(keyword)
            if handler is None:
                continue
            if handler is _properties and type(value) is dict and "".join(value).isascii():
                node.properties = reader.members(keyword, value, place)  # of nearly every object
            else:
                handler(reader, node, value, place)
        if not _LATER.isdisjoint(raw):
            later = [_TOGETHER[k] for k in raw if k in _LATER]
            for read in dict.fromkeys(later) if len(later) > 1 else later:
                read(reader, node, raw, place)

    def _is_skipped(self, place: Place, keyword: str, *inside: str) -> bool:
        path = place.at(keyword, *inside)
        return (place.path, keyword) in self._skipped or (path, keyword) in self._skipped

    # -- what options decide ----------------------------------------------------------------

    def format(self, reader: Reader, node: Node, value: Any, place: Place) -> None:
        """``format``."""
        name = checks.text("format", value, place)
        regex = format_regex(name, place.dialect.name) if self._formats else None
        if regex is not None:
            node.patterns += (regex,)

    def pattern_properties(self, reader: Reader, node: Node, value: Any, place: Place) -> None:
        """``patternProperties``."""
        keyword = "patternProperties"
        checks.mapping(keyword, value, place)
        node.pattern_properties = tuple(
            (
                checks.pattern(keyword, source, place, source),
                reader.each(child, place, keyword, source),
            )
            for source, child in value.items()
            if not (self._skipped and self._is_skipped(place, keyword, source))
        )


Handler: TypeAlias = "Callable[[Reader, Node, Any, Place], None]"
Together: TypeAlias = "Callable[[Reader, Node, Mapping[str, Any], Place], None]"

# -- any type ---------------------------------------------------------------------------------


def _type(reader: Reader, node: Node, value: Any, place: Place) -> None:
    bits = checks.types("type", value, place)
    if not bits & FRACTION and place.resource.dialect.year == 4:
        bits &= ~POINTED  # draft 4, 3.5: "a JSON number without a fraction or exponent part"
    node.types &= bits


def _enum(reader: Reader, node: Node, value: Any, place: Place) -> None:
    values = checks.array("enum", value, place)
    try:
        is_plain = "".join(values).isascii()
    except TypeError:
        is_plain = False
    if is_plain and node.enum is None:  # as nearly always
        node.enum = tuple(dict.fromkeys(values))
        return
    checks.unicode("enum", values, place)
    _restrict(reader, node, values)


def _const(reader: Reader, node: Node, value: Any, place: Place) -> None:
    if type(value) is str and value.isascii() and node.enum is None:
        node.enum = (value,)
        return
    checks.unicode("const", value, place)
    _restrict(reader, node, [value])


def _restrict(reader: Reader, node: Node, values: list[Any]) -> None:
    """Keep only ``values`` (and, beside an earlier enum or const, only the common ones)."""
    if any(isinstance(value, (dict, list)) for value in values):
        reader.lists_containers = True
    keys = by_key(values)
    if node.enum is not None:
        earlier = by_key(node.enum)
        keys = {key: value for key, value in earlier.items() if key in keys}
    node.enum = tuple(keys.values())


# -- numbers and strings ------------------------------------------------------------------------


def _checked(
    keyword: str, field: str, check: Callable[[str, Any, Place], Any] = checks.count
) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        setattr(node, field, check(keyword, value, place))

    return read


def _exclusive(keyword: str, field: str) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        if isinstance(value, bool):  # see _draft4_bounds
            if place.dialect.year > 4 and place.resource.is_stated:
                raise checks.of_another_draft(keyword, value, place, place.dialect, "draft4")
        elif place.dialect.year == 4:
            checks.number(keyword, value, place)
            raise checks.of_another_draft(keyword, value, place, place.dialect, "draft7")
        else:
            setattr(node, field, checks.number(keyword, value, place))

    return read


def _draft4_bounds(reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
    """Draft 4's boolean ``exclusiveMinimum`` and ``exclusiveMaximum``."""
    if raw.get("exclusiveMinimum") is True and node.minimum is not None:
        node.exclusive_minimum = vars(node).pop("minimum")
    if raw.get("exclusiveMaximum") is True and node.maximum is not None:
        node.exclusive_maximum = vars(node).pop("maximum")


def _multiple_of(reader: Reader, node: Node, value: Any, place: Place) -> None:
    number = checks.number("multipleOf", value, place)
    if number <= 0:
        raise checks.wrong("multipleOf", "a number greater than 0", value, place)
    node.multiple_of = number


def _pattern(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.patterns += (checks.pattern("pattern", checks.text("pattern", value, place), place),)


def _regex(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.patterns += (regex_algebra.lower(value),)


def _digits_only(reader: Reader, node: Node, value: Any, place: Place) -> None:
    if value is True:
        node.types &= ~POINTED


# -- objects and arrays -------------------------------------------------------------------------


def _properties(reader: Reader, node: Node, value: Any, place: Place) -> None:
    checks.members("properties", value, place)
    node.properties = reader.members("properties", value, place)


def _additional(reader: Reader, node: Node, value: Any, place: Place) -> None:
    additional = reader.each(value, place, "additionalProperties")
    if additional != TRUE:
        node.additional = additional
    node.evaluates_all_properties = True


def _required(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.required = checks.names("required", value, place)


def _items(reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
    """``prefixItems``, ``items`` and ``additionalItems``, which depend on each other."""
    items = raw.get("items", True)
    if "prefixItems" in raw and "prefixItems" in place.dialect.assertions:
        node.prefix = _schemas("prefixItems", reader, raw["prefixItems"], place)
        node.items = reader.each(items, place, "items")
        node.evaluates_all_items |= "items" in raw
    elif isinstance(items, list):
        if place.dialect.year >= 2020 and place.resource.is_stated:
            raise checks.of_another_draft("items", items, place, place.dialect, "draft2019-09")
        node.prefix = tuple(reader.each(item, place, "items", i) for i, item in enumerate(items))
        node.items = reader.each(raw.get("additionalItems", True), place, "additionalItems")
        node.evaluates_all_items |= "additionalItems" in raw
    elif "items" in raw:
        node.items = reader.each(items, place, "items")
        node.evaluates_all_items |= True


def _contains(reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
    if "contains" not in place.dialect.assertions:
        return
    least, most = 1, None
    if "minContains" in place.dialect.assertions:
        least = checks.count("minContains", raw.get("minContains", 1), place)
        if "maxContains" in raw:
            most = checks.count("maxContains", raw["maxContains"], place)
    requirement = reader.below(raw["contains"], place, "contains")
    node.contains = (Contains(requirement, least, most),)
    node.contains_evaluates = place.dialect.year >= 2020


# -- in place -----------------------------------------------------------------------------------


def _schemas(keyword: str, reader: Reader, value: Any, place: Place) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise checks.wrong(keyword, "a non-empty array of schemas", value, place)
    return tuple(reader.below(v, place, keyword, i) for i, v in enumerate(value))


def _all_of(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.all_of += _schemas("allOf", reader, value, place)


def _any_of(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.any_of = _schemas("anyOf", reader, value, place)


def _one_of(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.one_of = _schemas("oneOf", reader, value, place)


def _not(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.all_of += (reader.below(value, place, "not") ^ 1,)


def _if(reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
    if "if" not in place.dialect.assertions:
        return
    node.condition = (
        reader.below(raw["if"], place, "if"),
        reader.below(raw.get("then", True), place, "then"),
        reader.below(raw.get("else", True), place, "else"),
    )


def _dependent_required(reader: Reader, node: Node, value: Any, place: Place) -> None:
    keyword = "dependentRequired"
    checks.members(keyword, value, place)
    for name, item in value.items():
        if not isinstance(item, list):
            raise checks.no_names(keyword, item, place, name)
        _depend_on_names(node, name, checks.names(keyword, item, place, name))


def _dependent_schemas(reader: Reader, node: Node, value: Any, place: Place) -> None:
    keyword = "dependentSchemas"
    checks.members(keyword, value, place)
    for name, item in value.items():
        _depend_on_schema(reader, node, name, reader.below(item, place, keyword, name), place)


def _dependencies(reader: Reader, node: Node, value: Any, place: Place) -> None:
    keyword = "dependencies"
    checks.members(keyword, value, place)
    for name, item in value.items():
        if isinstance(item, list):
            _depend_on_names(node, name, checks.names(keyword, item, place, name))
        elif isinstance(item, str) and place.dialect.year == 4:
            _depend_on_names(node, name, (item,))
        else:
            _depend_on_schema(reader, node, name, reader.below(item, place, keyword, name), place)


# `dependencies` may stand beside its successors, and say something of the same name.


def _depend_on_names(node: Node, name: str, wanted: tuple[str, ...]) -> None:
    own = vars(node).setdefault("dependent_required", {})
    own[name] = (*own.get(name, ()), *wanted)


def _depend_on_schema(reader: Reader, node: Node, name: str, wanted: int, place: Place) -> None:
    own = vars(node).setdefault("dependent_schemas", {})
    if name in own:
        wanted = reader.both(own[name], wanted, place)
    own[name] = wanted


def _unevaluated_properties(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.unevaluated_properties = reader.below(value, place, "unevaluatedProperties")
    node.evaluates_all_properties |= node.unevaluated_properties == TRUE


def _unevaluated_items(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.unevaluated_items = reader.below(value, place, "unevaluatedItems")
    node.evaluates_all_items |= node.unevaluated_items == TRUE


def _ref(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.refs += (reader.reference(value, place),)


def _dynamic_ref(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.refs += (reader.dynamic_reference(value, place),)


def _recursive_ref(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.refs += (reader.recursive_reference(value, place),)


def _single(keyword: str, field: str) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        setattr(node, field, reader.below(value, place, keyword))

    return read


def _identifier(keyword: str) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        checks.text(keyword, value, place)

    return read


@lru_cache(maxsize=64)
def _handlers(
    assertions: frozenset[str], is_draft4: bool
) -> tuple[dict[str, Handler], dict[str, Handler], Mapping[str, int]]:
    """The keywords that are read in a dialect with these ``assertions``; all but ``type``; and the
    types by name, if that is read."""
    found = {k: h for k, h in _HANDLERS.items() if k in assertions or k in _IDENTIFIERS}
    but_type = {k: h for k, h in found.items() if k != "type"}
    if "type" not in found:
        return found, but_type, {}
    return found, but_type, TYPE_BITS | {"integer": DIGITS} if is_draft4 else TYPE_BITS


_HANDLERS: dict[str, Handler] = {
    **{keyword: _identifier(keyword) for keyword in _IDENTIFIERS},
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _checked("minimum", "minimum", checks.number),
    "maximum": _checked("maximum", "maximum", checks.number),
    "exclusiveMinimum": _exclusive("exclusiveMinimum", "exclusive_minimum"),
    "exclusiveMaximum": _exclusive("exclusiveMaximum", "exclusive_maximum"),
    "multipleOf": _multiple_of,
    "minLength": _checked("minLength", "min_length"),
    "maxLength": _checked("maxLength", "max_length"),
    "pattern": _pattern,
    regex_algebra.KEYWORD: _regex,
    DIGITS_ONLY: _digits_only,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _single("propertyNames", "property_names"),
    "required": _required,
    "minProperties": _checked("minProperties", "min_properties"),
    "maxProperties": _checked("maxProperties", "max_properties"),
    "minItems": _checked("minItems", "min_items"),
    "maxItems": _checked("maxItems", "max_items"),
    "uniqueItems": _checked("uniqueItems", "unique", checks.boolean),
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "dependencies": _dependencies,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    "$ref": _ref,
    "$dynamicRef": _dynamic_ref,
    "$recursiveRef": _recursive_ref,
}

_TOGETHER: dict[str, Together] = {
    "items": _items,
    "prefixItems": _items,
    "additionalItems": _items,
    "contains": _contains,
    "if": _if,
    "exclusiveMinimum": _draft4_bounds,
    "exclusiveMaximum": _draft4_bounds,
}
"""Keywords that are read once all others are, with those that they depend on."""

_LATER = frozenset(_TOGETHER)

MAX_UNREACHED = 1_000
"""Most subschemas that are checked although nothing reaches them."""


class UnreachedReader(Reader):
    """Checks the definitions of some schemas.

    Args:
        documents: what the schemas are part of.
        reached: the schema objects that need no check.
        fill: see `Reader`.

    Cost: some 10 µs for each subschema, of which there are at most `MAX_UNREACHED`.
    """

    def __init__(
        self, documents: Documents, reached: Iterable[Mapping[str, Any]], fill: Fill
    ) -> None:
        super().__init__(True, documents, fill)
        self._met: IdentityMap[Mapping[str, Any], bool] = IdentityMap()
        for raw in reached:
            self._met[raw] = True
        self._left = MAX_UNREACHED

    def check(self, holders: Iterable[Holder]) -> None:
        """Check what ``$defs`` and ``definitions`` of the ``holders`` hold.

        Raises:
            SchemaError: something in there is malformed.
        """
        for raw, place in holders:
            self._definitions(raw, place)
        while self._work and self._left > 0:
            self._left -= 1
            _, raw, place = self._work.pop()
            place = self.entered(raw, place)
            self._definitions(raw, place)
            try:
                self._fill(self, Node(place), raw, place)
            except (UnsupportedFeature, CompileLimitExceeded):
                continue

    def _definitions(self, raw: Mapping[str, Any], place: Place) -> None:
        for keyword in ("$defs", "definitions"):
            if keyword not in raw or (keyword == "$defs" and place.dialect.year < 2019):
                continue
            held = checks.mapping(keyword, raw[keyword], place)
            for name in reversed(list(held)):
                self.below(held[name], place, keyword, name)

    def below(self, raw: Any, place: Place, *steps: str | int) -> int:
        """See `Reader.below`."""
        if not isinstance(raw, (bool, Mapping)):
            raise checks.not_a_schema(raw, place.at(*steps), str(steps[0]))
        return self.child(raw, place.below(*steps))

    def members(self, keyword: str, held: Mapping[str, Any], place: Place) -> dict[str, int]:
        """See `Reader.members`."""
        return {name: self.below(raw, place, keyword, name) for name, raw in held.items()}

    def each(self, raw: Any, place: Place, *steps: str | int) -> int:
        """See `Reader.each`."""
        return self.below(raw, place, *steps)

    def child(self, raw: Any, place: Place) -> int:
        """See `Reader.child`: remembered to be read, and taken for ``true``."""
        if not isinstance(raw, (bool, Mapping)):
            raise checks.not_a_schema(raw, place.path)
        if isinstance(raw, Mapping) and raw not in self._met:
            self._met[raw] = True
            self._work.append((TRUE, raw, place))
        return TRUE

    def both(self, first: int, second: int, place: Place) -> int:
        """See `Reader.both`."""
        return TRUE

    def reference(self, value: Any, place: Place) -> int:
        """See `Reader.reference`; not followed."""
        checks.text("$ref", value, place)
        return TRUE

    def dynamic_reference(self, value: Any, place: Place) -> int:
        """See `Reader.dynamic_reference`; not followed."""
        checks.text("$dynamicRef", value, place)
        return TRUE

    def recursive_reference(self, value: Any, place: Place) -> int:
        """See `Reader.recursive_reference`; not followed."""
        checks.text("$recursiveRef", value, place)
        return TRUE


def lower(
    schema: Any,
    *,
    dialect: str | None = None,
    documents: Mapping[str, Any] | None = None,
    format_assertion: bool = True,
    skipped: Skipped = (),
    observe: Observer | None = None,
    apart: bool = False,
) -> SchemaGraph:
    """Read and check a schema.

    Args:
        schema: a mapping or a bool, as ``json.loads`` gives it.
        dialect: draft of a schema whose ``$schema`` does not say (see `dialects.DIALECTS`).
        documents: documents that references may lead to, by URL; the metaschemas are known.
        format_assertion: whether ``format`` is enforced or an annotation.
        skipped: keywords, with their paths, that are passed over.
        observe: told of each subschema that is reached, and where.
        apart: whether each subschema is to be a node of its own, which knows where it stands, also
            where it says no more than a type or a reference.

    Returns:
        The graph of everything reachable from the schema.

    Raises:
        SchemaError: the schema is malformed; the message names the path.
        UnsupportedFeature: a keyword cannot be enforced.
        CompileLimitExceeded: more than `reader.MAX_NODES` subschemas.
    """
    draft = dialects.by_name(dialect) if dialect is not None else None
    known = Documents(schema, draft, documents)
    if (apart or skipped) and observe is None:
        observe = _see_nothing  # paths are needed everywhere
    fill = KeywordReader(format_assertion, skipped).read
    reader = Reader(schema, known, fill, observe, is_dynamic=False)
    try:
        graph = reader.read()
    except NotDynamic:
        reader = Reader(schema, known, fill, observe)
        graph = reader.read()
    holders = reader.with_unreached() if reader.holders else []
    if holders:
        fill = KeywordReader(format_assertion=False, skipped=skipped).read
        UnreachedReader(known, reader.reached(), fill).check(holders)
    return graph


def _see_nothing(raw: Mapping[str, Any], place: Place) -> None:
    """Whoever watches sees each subschema, so that none are read together."""
