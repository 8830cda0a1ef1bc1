"""JSON Schema → `SchemaGraph`: read and check each keyword of a schema object.

`lower` is the entry point. It finds every error in a schema at compile time: a keyword of the wrong
type, a reference without a target, a malformed pattern. Has the list of keywords, and how each
becomes fields of a `Node`. Annotations and unknown keywords, which assert nothing by the standard,
are skipped (`structgen.constraint.explain` lists them). Definitions that no reference reaches are
only checked for malformed values and patterns. `automaton.json.values` implements the meaning of a
node.

Standards: drafts 4, 6, 7, 2019-09 and 2020-12, https://json-schema.org/specification.

`Reader` walks the subschemas with a work list, numbers nodes and tracks dynamic scopes; `documents`
resolves references. With dynamic references a node depends on how it was reached: it is a raw
schema together with the resources with dynamic anchors entered on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

from structgen.errors import CompileLimitExceeded, SchemaError, UnsupportedFeature
from structgen.grammar.formats import format_regex
from structgen.grammar.regex import algebra as regex_algebra
from structgen.storage import IdentityMap

from . import checks, dialects
from .checks import not_a_schema, text, wrong
from .dialects import DIALECTS, GUIDANCE, Dialect
from .documents import Documents, Place, Resource, Target, has_dynamic_anchors
from .graph import (
    ARRAY,
    DIGITS,
    DIGITS_ONLY,
    FALSE,
    FRACTION,
    INTEGER,
    POINTED,
    TRUE,
    TYPE_BITS,
    Contains,
    Node,
    SchemaGraph,
    by_key,
    node_at,
    only_named,
)

_PLACED = frozenset(["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$defs", "definitions"])
"""Keywords that identify a schema, or contain others without applying them."""

_BEYOND_TYPE = _PLACED.union(*(d.assertions for d in DIALECTS.values())) - {"type"}
"""All keywords with a meaning, except ``type``."""

_BEYOND_REF = (_BEYOND_TYPE | {"type"}) - {"$ref"}

_BEYOND_LIST = _BEYOND_TYPE - {"items"}

MAX_NODES = 200_000
"""The most subschemas that one schema may reach."""

_AT_ONCE = 50
"""The work of this many nodes is counted together."""


_NOTHING: Mapping[str, Any] = {}

Holder: TypeAlias = "tuple[Mapping[str, Any], Place]"
"""A schema with definitions, and its place."""

Observer: TypeAlias = "Callable[[Mapping[str, Any], Place], None]"
"""Called once for each node with the raw schema and its place, before its keywords are read."""


"""Reads the keywords of a raw schema at a place into a node."""


class NotDynamic(Exception):
    """A `Reader` that does not follow dynamic references found one."""


class Reader:
    """One pass over the reachable schema objects, with a work list instead of recursion.

    Args:
        schema: the raw schema.
        documents: the possible targets of references.
        format_assertion: whether ``format`` is enforced or an annotation.
        skipped: keywords to skip.
        observe: called with each schema object, in the order of the walk.
        is_dynamic: whether to follow dynamic references. Few schemas have any, and without them
            their targets need not be tracked: otherwise a dynamic reference raises `NotDynamic`.

    Attributes:
        holders: the schema objects with definitions, so far.
        lists_containers: whether any schema lists objects or arrays as its values, so far.
    """

    def __init__(
        self,
        schema: Any,
        documents: Documents,
        format_assertion: bool,
        skipped: Skipped,
        observe: Observer | None = None,
        is_dynamic: bool = True,
    ) -> None:
        self._document = schema
        self._documents = documents
        self.asserts_formats = format_assertion
        self._skipped = skipped
        self._dialect: Dialect | None = None
        self._handlers: dict[str, Handler] = {}
        self._observe = observe
        self._nodes = [Node("$")]
        self._follows_dynamic = is_dynamic
        self._is_dynamic: dict[Resource, bool] = {}
        # The numbers of raw schemas, by the scope in which they were reached.
        self._plain: IdentityMap[Mapping[str, Any], int] = IdentityMap()
        self._numbers: dict[tuple[Resource, ...], IdentityMap[Mapping[str, Any], int]] = {
            (): self._plain
        }
        self._work: deque[tuple[int, Mapping[str, Any], Place]] = deque()
        self._typed: set[int] = {TRUE}
        # The node that all members and items with only a type share, by type; in draft 4, integers
        # differ.
        self._alike: tuple[dict[str, int], dict[str, int]] = ({}, {})
        # The targets of references of members and items.
        self._referred_to: dict[tuple[str, Resource], int] = {}
        # The node of all lists whose items only meet a requirement, by that requirement.
        self._lists: dict[int, int] = {}
        self._refers = False
        self.holders: list[Holder] = []
        self.lists_containers = False

    def read(self) -> SchemaGraph:
        """Return the graph of everything reachable. Call once.

        Raises:
            SchemaError: the schema is malformed.
            CompileLimitExceeded: more than `MAX_NODES` subschemas.
        """
        root = self._documents.root
        scope = self._enter((), root) if self._follows_dynamic else ()
        top = self.child(self._document, Place("$", root, scope))
        nodes, work, observe = self._nodes, self._work, self._observe
        counted = 0
        while work:
            number, raw, place = work.popleft()
            if len(nodes) > counted + _AT_ONCE:
                checks.spend(len(nodes) - counted)
                counted = len(nodes)
            if not _PLACED.isdisjoint(raw):
                place = self.entered(raw, place)
                if "$defs" in raw or "definitions" in raw:
                    self.holders.append((raw, place))
            if observe is not None:
                observe(raw, place)
            self._fill(nodes[number], raw, place)
        used: set[str] = set().union(*map(vars, nodes))
        return SchemaGraph(nodes, top, self._refers, self._typed, self.lists_containers, used)

    def entered(self, raw: Mapping[str, Any], place: Place) -> Place:
        """Return ``place`` with the resource that may begin there, with its identifiers checked."""
        own = place.resource
        if raw is not own.root and (own.dialect.id_keyword in raw or "$schema" in raw):
            resource = self._documents.enter(raw, own, place.path)
            if resource is not place.resource:
                scope = self._enter(place.scope, resource)
                place = Place(place, resource, scope)
        if "$schema" in raw and not (raw is self._document and self._documents.is_known):
            self._documents.check_dialect(raw, place)
        if "$anchor" in raw or "$dynamicAnchor" in raw:
            self._documents.scan(self._documents.root)
        return place

    def leads_to_all(self, raw: Mapping[str, Any]) -> bool:
        """Return whether all definitions of one of ``holders`` have been reached."""
        numbers = self._plain
        for keyword in ("$defs", "definitions"):
            held = raw.get(keyword, _NOTHING)
            if type(held) is not dict:
                return False
            for schema in held.values():
                if schema not in numbers and schema is not True and schema is not False:
                    return False
        return True

    def reached(self) -> Iterator[Mapping[str, Any]]:
        """Return all schema objects that were read; some come more than once."""
        return chain.from_iterable(self._numbers.values())

    def child(self, raw: Any, place: Place) -> int:
        """Return the requirement of ``raw``; queue its node if it is new."""
        if raw is True:
            return TRUE
        if raw is False:
            return FALSE
        if type(raw) is not dict and not isinstance(raw, Mapping):
            raise not_a_schema(raw, place.path)
        if not raw:
            return TRUE
        scope, new = place.scope, len(self._nodes)
        numbers = self._numbers.setdefault(scope, IdentityMap()) if scope else self._plain
        number = numbers.setdefault(raw, new)
        if number == new:
            self._nodes.append(node_at(place))
            if number > MAX_NODES:
                raise self._too_many(self._nodes[number])
            types = 0 if self._observe is not None else _only_type(raw, place)
            if types:
                self._nodes[number].types = types
                self._typed.add(2 * number)
            else:
                self._work.append((number, raw, place))
        return 2 * number

    def _too_many(self, last: Node) -> CompileLimitExceeded:
        return CompileLimitExceeded(
            f"the schema contains too many subschemas, the last at {last.path}",
            limit=MAX_NODES,
            actual=len(self._nodes) - 1,
        )

    def below(self, raw: Any, place: Place, *steps: str | int) -> int:
        """Return a subschema's requirement; the first step from ``place`` is its keyword.

        Raises:
            SchemaError: ``raw`` is not a schema.
        """
        if type(raw) is not dict:
            if raw is True or raw is False:
                return TRUE if raw else FALSE
            if not isinstance(raw, Mapping):
                raise not_a_schema(raw, place.at(*steps), str(steps[0]))
        return self.child(raw, place.below(*steps))

    def members(self, keyword: str, held: Mapping[str, Any], place: Place) -> dict[str, int]:
        """Map names to the requirements of the schemas under ``keyword`` at ``place``.

        Raises:
            SchemaError: one of them is not a schema.
        """
        return {name: self.each(raw, place, keyword, name) for name, raw in held.items()}

    def each(self, raw: Any, place: Place, *steps: str | int) -> int:
        """Like `below`, for schemas of members or items: equivalent ones share a node."""
        if type(raw) is not dict or place.scope or self._observe is not None:
            return self.below(raw, place, *steps)
        known = 0
        kind = raw.get("type")
        if type(kind) is str and _BEYOND_TYPE.isdisjoint(raw):
            alike = self._alike[place.resource.dialect.year == 4]
            known = alike.get(kind) or self._alike_node(kind, place)
        elif "$ref" in raw:
            known = self._referred(raw, place, *steps)
        elif kind == "array" and "items" in raw:
            known = self._alike_list(raw, place)
        return known or self.below(raw, place, *steps)

    def _referred(self, raw: Mapping[str, Any], place: Place, *steps: str | int) -> int:
        """Return the target's requirement if a schema below ``place`` is only a reference; 0 if
        not, or if the target asserts nothing.
        """
        resource = place.resource
        beyond = _PLACED if resource.dialect.year <= 7 else _BEYOND_REF
        reference = raw["$ref"]
        if type(reference) is not str or not beyond.isdisjoint(raw):
            return 0
        key = (reference, resource)
        known = self._referred_to.get(key)
        if known is None:
            try:
                target = self._documents.resolve(reference, resource, place)
            except SchemaError:
                self._documents.resolve(reference, resource, place.below(*steps))
                raise
            known = self._referred_to[key] = self._follow(target, place)
        return known

    def _alike_node(self, kind: str, place: Place) -> int:
        """Return the requirement to have the type ``kind``, in the draft at ``place``; 0 if there
        is no such type.

        The shared node has no place of its own.
        """
        types = TYPE_BITS.get(kind, 0)
        if not types:
            return 0
        is_draft4 = place.resource.dialect.year == 4
        if is_draft4 and types == INTEGER:
            types = DIGITS
        number = len(self._nodes)
        node = node_at("$")
        node.types = types
        self._nodes.append(node)
        self._typed.add(2 * number)
        self._alike[is_draft4][kind] = 2 * number
        return 2 * number

    def _alike_list(self, raw: Mapping[str, Any], place: Place) -> int:
        """Return the requirement to be an array with items of one type, if ``raw``, below the
        schema at ``place``, asserts only that; otherwise 0. See `_alike_node`."""
        items = raw["items"]
        kind = items.get("type") if type(items) is dict else None
        if type(kind) is not str or not (
            _BEYOND_LIST.isdisjoint(raw) and _BEYOND_TYPE.isdisjoint(items)
        ):
            return 0
        alike = self._alike[place.resource.dialect.year == 4]
        item = alike.get(kind) or self._alike_node(kind, place)
        if not item:
            return 0
        known = self._lists.get(item)
        if known is None:
            node = node_at("$")
            node.types = ARRAY
            node.items = item
            node.evaluates_all_items = True
            known = self._lists[item] = 2 * len(self._nodes)
            self._nodes.append(node)
        return known

    # -- keywords ---------------------------------------------------------------------------

    def _fill(self, node: Node, raw: Mapping[str, Any], place: Place) -> None:
        """Read the keywords of ``raw`` into ``node``."""
        if self._skipped:
            raw = {k: v for k, v in raw.items() if not self.is_skipped(place, k)}
        dialect = place.resource.dialect
        if dialect is not self._dialect:
            self._dialect = dialect
            self._handlers = _handlers(dialect.assertions)
        if dialect.ref_ignores_siblings and "$ref" in raw:
            for keyword in _IDENTIFIERS:
                if keyword in raw:
                    checks.text(keyword, raw[keyword], place)
            node.refs += (self.reference("$ref", raw["$ref"], place),)
            return
        handlers = self._handlers
        for keyword, value in raw.items():
            handler = handlers.get(keyword)
            if handler is None:
                continue
            if handler is _properties and type(value) is dict and "".join(value).isascii():
                node.properties = self.members(keyword, value, place)  # used by nearly every object
            else:
                handler(self, node, value, place)
        if not _LATER.isdisjoint(raw):
            later = [_TOGETHER[k] for k in raw if k in _LATER]
            for read in dict.fromkeys(later) if len(later) > 1 else later:
                read(self, node, raw, place)

    def is_skipped(self, place: Place, keyword: str, *inside: str) -> bool:
        """Return whether a keyword, or its part under a name, is skipped."""
        if not self._skipped:
            return False
        path = place.at(keyword, *inside)
        return (place.path, keyword) in self._skipped or (path, keyword) in self._skipped

    # -- references -------------------------------------------------------------------------

    def both(self, first: int, second: int, place: Place) -> int:
        """Return the requirement to meet two requirements, of a schema at ``place``."""
        self._nodes.append(Node(place, all_of=(first, second)))
        return 2 * (len(self._nodes) - 1)

    def reference(self, keyword: str, value: Any, place: Place) -> int:
        """Return the requirement that ``$ref``, ``$dynamicRef`` or ``$recursiveRef`` leads to."""
        if keyword == "$ref":
            reference = text(keyword, value, place)
            return self._follow(self._documents.resolve(reference, place.resource, place), place)
        if not self._follows_dynamic:
            raise NotDynamic
        if keyword == "$recursiveRef":
            return self._recursive_reference(value, place)
        reference = text(keyword, value, place)
        target = self._documents.resolve(reference, place.resource, place, keyword)
        name = reference.partition("#")[2]
        raw = target[0]
        if isinstance(raw, Mapping) and name and raw.get("$dynamicAnchor") == name:
            for resource in place.scope:
                found = self._documents.dynamic_anchor(resource, name)
                if found is not None:
                    target = found
                    break
        return self._follow(target, place)

    def _recursive_reference(self, value: Any, place: Place) -> int:
        if value != "#":
            raise wrong("$recursiveRef", "'#'", value, place)
        resource = place.resource
        root = resource.root
        if isinstance(root, Mapping) and root.get("$recursiveAnchor") is True:
            for outer in place.scope:
                if isinstance(outer.root, Mapping) and outer.root.get("$recursiveAnchor") is True:
                    resource = outer
                    break
        return self._follow((resource.root, Place(resource.path, resource)), place)

    def _follow(self, target: Target, place: Place) -> int:
        """Return the requirement of the target of a reference at ``place``."""
        self._refers = True
        raw, there = target
        scope = place.scope
        if self._follows_dynamic:
            scope = self._enter(scope, there.resource)
        return self.child(raw, Place(there, there.resource, scope))

    def _enter(self, scope: tuple[Resource, ...], entered: Resource) -> tuple[Resource, ...]:
        """Return ``scope`` after entering a resource: only first and dynamic entries matter."""
        if not self._follows_dynamic or entered in scope:
            return scope
        dynamic = self._is_dynamic.get(entered)
        if dynamic is None:
            dynamic = self._is_dynamic[entered] = has_dynamic_anchors(entered)
        return (*scope, entered) if dynamic else scope


def _only_type(raw: Mapping[str, Any], place: Place) -> int:
    """Return the type bits of a schema that has only a type, as half of all do, or 0."""
    name = raw.get("type")
    types = TYPE_BITS.get(name, 0) if type(name) is str else 0
    if not types or not _BEYOND_TYPE.isdisjoint(raw):
        return 0
    return 0 if types == INTEGER and place.resource.dialect.year == 4 else types


Skipped: TypeAlias = "Collection[tuple[str, str]]"
"""``(path, keyword)`` pairs that are skipped; the path is that of the keyword's schema, or of its
part."""


_IDENTIFIERS = ("$schema", "$id", "$anchor", "$dynamicAnchor")


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
    if is_plain and node.enum is None:  # the usual case
        checks.spend(len(values) >> 5)
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
    """Keep only ``values``; with an earlier enum or const, only the common ones."""
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
    """Read draft 4's boolean ``exclusiveMinimum`` and ``exclusiveMaximum``."""
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


def _format(reader: Reader, node: Node, value: Any, place: Place) -> None:
    name = checks.text("format", value, place)
    regex = format_regex(name, place.dialect.name) if reader.asserts_formats else None
    if regex is not None:
        node.patterns += (regex,)


def _regex(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.patterns += (regex_algebra.lower(value),)


def _digits_only(reader: Reader, node: Node, value: Any, place: Place) -> None:
    if value is True:
        node.types &= ~POINTED


# -- objects and arrays -------------------------------------------------------------------------


def _properties(reader: Reader, node: Node, value: Any, place: Place) -> None:
    checks.members("properties", value, place)
    node.properties = reader.members("properties", value, place)


def _pattern_properties(reader: Reader, node: Node, value: Any, place: Place) -> None:
    keyword = "patternProperties"
    checks.mapping(keyword, value, place)
    node.pattern_properties = tuple(
        (checks.pattern(keyword, source, place, source), reader.each(child, place, keyword, source))
        for source, child in value.items()
        if not reader.is_skipped(place, keyword, source)
    )


def _additional(reader: Reader, node: Node, value: Any, place: Place) -> None:
    additional = reader.each(value, place, "additionalProperties")
    if additional != TRUE:
        node.additional = additional
    node.evaluates_all_properties = True


def _items(reader: Reader, node: Node, raw: Mapping[str, Any], place: Place) -> None:
    """``prefixItems``, ``items`` and ``additionalItems``, which depend on each other."""
    items = raw.get("items", True)
    if "prefixItems" in raw and "prefixItems" in place.dialect.assertions:
        node.prefix = _schemas(reader, raw["prefixItems"], place, "prefixItems")
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


def _schemas(reader: Reader, value: Any, place: Place, keyword: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise checks.wrong(keyword, "a non-empty array of schemas", value, place)
    return tuple(reader.below(v, place, keyword, i) for i, v in enumerate(value))


def _all_of(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.all_of += _schemas(reader, value, place, "allOf")


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


def _dependencies(keyword: str) -> Handler:
    """``dependencies``, or a successor, beside which it may say something of the same name."""

    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        checks.members(keyword, value, place)
        for name, item in value.items():
            if isinstance(item, str) and keyword == "dependencies" and place.dialect.year == 4:
                names: tuple[str, ...] = (item,)
            elif isinstance(item, list) and keyword != "dependentSchemas":
                names = checks.names(keyword, item, place, name)
            elif keyword == "dependentRequired":
                raise checks.no_names(keyword, item, place, name)
            else:
                wanted = reader.below(item, place, keyword, name)
                schemas = vars(node).setdefault("dependent_schemas", {})
                if name in schemas:
                    wanted = reader.both(schemas[name], wanted, place)
                schemas[name] = wanted
                continue
            required = vars(node).setdefault("dependent_required", {})
            required[name] = (*required.get(name, ()), *names)

    return read


def _unevaluated_properties(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.unevaluated_properties = reader.below(value, place, "unevaluatedProperties")
    node.evaluates_all_properties |= node.unevaluated_properties == TRUE


def _unevaluated_items(reader: Reader, node: Node, value: Any, place: Place) -> None:
    node.unevaluated_items = reader.below(value, place, "unevaluatedItems")
    node.evaluates_all_items |= node.unevaluated_items == TRUE


def _reference(keyword: str) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        node.refs += (reader.reference(keyword, value, place),)

    return read


def _held(keyword: str, field: str, held: Callable[[Reader, Any, Place, str], Any]) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        setattr(node, field, held(reader, value, place, keyword))

    return read


def _guidance(reader: Reader, node: Node, value: Any, place: Place) -> None:
    if place.path != "$":
        raise UnsupportedFeature(
            f"{GUIDANCE!r} is supported only at the root of a schema, not at {place.path}.",
            path=place.path,
            keyword=GUIDANCE,
            fix="Move it there, or remove it.",
        )


def _identifier(keyword: str) -> Handler:
    def read(reader: Reader, node: Node, value: Any, place: Place) -> None:
        checks.text(keyword, value, place)

    return read


@lru_cache(maxsize=64)
def _handlers(assertions: frozenset[str]) -> dict[str, Handler]:
    """Return the keywords that are read in a dialect with these ``assertions``."""
    return {k: h for k, h in _HANDLERS.items() if k in assertions or k in _IDENTIFIERS}


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
    "format": _format,
    regex_algebra.KEYWORD: _regex,
    DIGITS_ONLY: _digits_only,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _held("propertyNames", "property_names", Reader.below),
    "required": _checked("required", "required", checks.names),
    "minProperties": _checked("minProperties", "min_properties"),
    "maxProperties": _checked("maxProperties", "max_properties"),
    "minItems": _checked("minItems", "min_items"),
    "maxItems": _checked("maxItems", "max_items"),
    "uniqueItems": _checked("uniqueItems", "unique", checks.boolean),
    "allOf": _all_of,
    "anyOf": _held("anyOf", "any_of", _schemas),
    "oneOf": _held("oneOf", "one_of", _schemas),
    "not": _not,
    "dependentRequired": _dependencies("dependentRequired"),
    "dependentSchemas": _dependencies("dependentSchemas"),
    "dependencies": _dependencies("dependencies"),
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    GUIDANCE: _guidance,
    **{keyword: _reference(keyword) for keyword in ("$ref", "$dynamicRef", "$recursiveRef")},
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
"""Keywords that are read after all others, with those that they depend on."""

_LATER = frozenset(_TOGETHER)

MAX_UNREACHED = 1_000
"""The most unreachable subschemas that are checked."""


class UnreachedReader(Reader):
    """Checks the definitions of some schemas.

    Args:
        documents: the documents of the schemas.
        reached: the schema objects that need no check.
        skipped: see `Reader`.

    Cost: some 10 µs for each subschema, of which there are at most `MAX_UNREACHED`.
    """

    def __init__(
        self, documents: Documents, reached: Iterable[Mapping[str, Any]], skipped: Skipped
    ) -> None:
        super().__init__(True, documents, False, skipped, _see_nothing)
        self._met: IdentityMap[Mapping[str, Any], bool] = IdentityMap()
        for raw in reached:
            self._met[raw] = True
        self._left = MAX_UNREACHED

    def check(self, holders: Iterable[Holder]) -> None:
        """Check the ``$defs`` and ``definitions`` of the ``holders``.

        Raises:
            SchemaError: a definition is malformed.
        """
        for raw, place in holders:
            self._definitions(raw, place)
        while self._work and self._left > 0:
            self._left -= 1
            _, raw, place = self._work.popleft()
            place = self.entered(raw, place)
            self._definitions(raw, place)
            try:
                self._fill(Node(place), raw, place)
            except (UnsupportedFeature, CompileLimitExceeded):
                continue

    def _definitions(self, raw: Mapping[str, Any], place: Place) -> None:
        for keyword in ("$defs", "definitions"):
            if keyword not in raw or (keyword == "$defs" and place.dialect.year < 2019):
                continue
            held = checks.mapping(keyword, raw[keyword], place)
            for name, schema in held.items():
                self.below(schema, place, keyword, name)

    def child(self, raw: Any, place: Place) -> int:
        """See `Reader.child`: queued for reading, and treated as ``true``."""
        if not isinstance(raw, (bool, Mapping)):
            raise checks.not_a_schema(raw, place.path)
        if isinstance(raw, Mapping) and raw not in self._met:
            self._met[raw] = True
            self._work.append((TRUE, raw, place))
        return TRUE

    def both(self, first: int, second: int, place: Place) -> int:
        """See `Reader.both`."""
        return TRUE

    def reference(self, keyword: str, value: Any, place: Place) -> int:
        """See `Reader.reference`; not followed."""
        checks.text(keyword, value, place)
        return TRUE


def lower(
    schema: Any,
    *,
    dialect: str | None = None,
    documents: Mapping[str, Any] | None = None,
    format_assertion: bool = True,
    closed: bool = False,
    skipped: Skipped = (),
    observe: Observer | None = None,
    apart: bool = False,
) -> SchemaGraph:
    """Read and check a schema.

    Args:
        schema: a mapping or a bool, as from ``json.loads``.
        dialect: the draft if ``$schema`` does not set it (see `dialects.DIALECTS`).
        documents: documents that references may use, by URL; the metaschemas are built in.
        format_assertion: whether ``format`` is enforced or an annotation.
        closed: whether objects have only members that the schema names.
        skipped: keywords to skip, with their paths.
        observe: called for each subschema that is reached, with its place.
        apart: whether each subschema gets its own node with its place, even if it has only a type
            or a reference.

    Returns:
        The graph of everything reachable from the schema.

    Raises:
        SchemaError: the schema is malformed; the message names the path.
        UnsupportedFeature: a keyword cannot be enforced.
        CompileLimitExceeded: more than `MAX_NODES` subschemas.
    """
    draft = dialects.by_name(dialect) if dialect is not None else None
    known = Documents(schema, draft, documents)
    if (apart or skipped) and observe is None:
        observe = _see_nothing  # paths are needed everywhere
    reader = Reader(schema, known, format_assertion, skipped, observe, is_dynamic=False)
    try:
        graph = reader.read()
    except NotDynamic:
        reader = Reader(schema, known, format_assertion, skipped, observe)
        graph = reader.read()
    holders = [holder for holder in reader.holders if not reader.leads_to_all(holder[0])]
    if holders:
        UnreachedReader(known, reader.reached(), skipped).check(holders)
    return only_named(graph) if closed else graph


def _see_nothing(raw: Mapping[str, Any], place: Place) -> None:
    """Do nothing: an observer makes each subschema a node of its own."""
