"""The walk over a schema's reachable subschemas: one `Node` for each, references followed.

Owns the work list, the numbering of nodes and dynamic scopes. Dynamic references make a node depend
on how it was reached: a node is a raw schema together with the resources with dynamic anchors that
were entered on the way to it. What a schema object's keywords say is read by the function that the
reader is given (see `keywords`); nothing here knows one but ``$ref`` and its kin.

Standard: JSON Schema core, sections 8 and 9, https://json-schema.org/specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from structgen.errors import CompileLimitExceeded, SchemaError, StructgenError
from structgen.grammar.regex import algebra as regex_algebra

from .checks import not_a_schema, text, wrong
from .dialects import DIALECTS, Dialect
from .documents import Documents, Resource, Target
from .graph import (
    ARRAY,
    DIGITS,
    DIGITS_ONLY,
    FALSE,
    INTEGER,
    TRUE,
    TYPE_BITS,
    Node,
    SchemaGraph,
    child_path,
    node_at,
)

_PLACED = frozenset(["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$defs", "definitions"])
"""Keywords that say where a schema is, or hold others that nothing applies."""

_BEYOND_TYPE = _PLACED.union(*(d.assertions for d in DIALECTS.values())) - {"type"}
"""All keywords that mean something, but ``type``."""

_BEYOND_REF = (_BEYOND_TYPE | {"type"}) - {"$ref"}

_BEYOND_LIST = _BEYOND_TYPE - {"items"}

_HOLDING = _BEYOND_TYPE - (
    {"enum", "const", "format", "required", "uniqueItems", regex_algebra.KEYWORD, DIGITS_ONLY}
    | {"minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties"}
    | {"maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
"""Keywords that hold schemas, lead to some, or say where one is."""

MAX_NODES = 200_000
"""Most subschemas one schema may reach."""


class Place:
    """Where a raw schema stands.

    Args:
        above: JSON path, or the place of the schema that holds this one.
        resource: see below.
        scope: see below.
        steps: from ``above`` to here. Paths are written out when a message asks for them.
        depth: see below.
        base: see below.

    Attributes:
        resource: the resource the schema belongs to.
        scope: the resources with dynamic anchors that were entered on the way to it.
        depth: how many schemas hold this one, from where a reference leads.
        base: the number of that place; 0 where the document begins.
    """

    __slots__ = ("_above", "_steps", "base", "depth", "resource", "scope")

    def __init__(
        self,
        above: str | Place,
        resource: Resource,
        scope: tuple[Resource, ...],
        steps: tuple[str | int, ...] = (),
        depth: int = 0,
        base: int = 0,
    ) -> None:
        self._above = above
        self._steps = steps
        self.resource = resource
        self.scope = scope
        self.depth = depth
        self.base = base

    def below(self, *steps: str | int) -> Place:
        """The place ``steps`` below, as far as nothing is known of what stands there."""
        return Place(self, self.resource, self.scope, steps, self.depth + 1, self.base)

    @property
    def path(self) -> str:
        """JSON path, for messages."""
        if self._steps or not isinstance(self._above, str):
            ways: list[tuple[str | int, ...]] = []
            place: str | Place = self
            while isinstance(place, Place):
                ways.append(place._steps)
                place = place._above
            self._above = child_path(place, *(step for way in reversed(ways) for step in way))
            self._steps = ()
        return self._above

    def at(self, *steps: str | int) -> str:
        """The path of a keyword, or of something inside one."""
        return child_path(self.path, *steps)

    @property
    def dialect(self) -> Dialect:
        """The draft that the schema is written in."""
        return self.resource.dialect


_NOTHING: Mapping[str, Any] = {}

_bare = object.__new__

Holder: TypeAlias = "tuple[Mapping[str, Any], Place]"
"""A schema with definitions, and where it stands."""

Observer: TypeAlias = "Callable[[Mapping[str, Any], Place], None]"
"""Called once for each node with the raw schema and its place, before its keywords are read."""


Fill: TypeAlias = "Callable[[Reader, Node, Mapping[str, Any], Place], None]"
"""Reads the keywords of a raw schema at a place into a node."""


class NotDynamic(Exception):
    """A dynamic reference was met by a `Reader` that does not follow them."""


class Reader:
    """One pass over the reachable schema objects, with a work list instead of recursion.

    Args:
        schema: the raw schema.
        documents: what references may lead to.
        fill: reads the keywords of a raw schema at a place into a node.
        observe: told of each schema object on the way, in the order of the walk.
        is_dynamic: whether dynamic references are followed. Few schemas have any, and without
            there is no need to know where they can lead: `NotDynamic` is raised at one.

    Attributes:
        holders: the schema objects with definitions, so far.
        lists_containers: whether any schema lists objects or arrays as its values, so far.
    """

    def __init__(
        self,
        schema: Any,
        documents: Documents,
        fill: Fill,
        observe: Observer | None = None,
        is_dynamic: bool = True,
    ) -> None:
        self._document = schema
        self._documents = documents
        self._fill = fill
        self._observe = observe
        self._nodes = [Node("$")]
        self._follows_dynamic = is_dynamic
        self._is_dynamic: dict[Resource, bool] = {}
        # by the id of the raw schema, with the scope where there is any
        self._numbers: dict[int | tuple[int, tuple[Resource, ...]], int] = {}
        self._work: list[tuple[int, Mapping[str, Any], Place]] = []
        self._typed: set[int] = {TRUE}
        # The node that all members and items share which name a type and say nothing else, by that
        # name; integers are another matter in draft 4.
        self._alike: tuple[dict[str, int], dict[str, int]] = ({}, {})
        # What references of members and items lead to.
        self._referred_to: dict[tuple[str, Resource], int] = {}
        # The node of all lists of nothing but what meets an requirement, by that.
        self._lists: dict[int, int] = {}
        # What references lead to, and the root: how many schemas are inside one another there, and
        # by which number it is known; and the references, with where they stand.
        self._heights = [0]
        self._bases: dict[int, int] = {}
        self._links: list[tuple[int, int, int]] = []
        self.holders: list[Holder] = []
        self.lists_containers = False

    def read(self) -> SchemaGraph:
        """The graph of everything reachable; to be called once.

        Raises:
            SchemaError: the schema is malformed.
            CompileLimitExceeded: more than `MAX_NODES` subschemas.
        """
        root = self._documents.root
        scope = self._enter((), root) if self._follows_dynamic else ()
        top = self.child(self._document, Place("$", root, scope))
        self._bases[top >> 1] = 0
        nodes, heights, work, fill, observe = (
            self._nodes,
            self._heights,
            self._work,
            self._fill,
            self._observe,
        )
        while work:
            number, raw, place = work.pop()
            if place.depth >= heights[place.base]:
                heights[place.base] = place.depth + 1
            if not _PLACED.isdisjoint(raw):
                place = self.entered(raw, place)
                if "$defs" in raw or "definitions" in raw:
                    self.holders.append((raw, place))
            if observe is not None:
                observe(raw, place)
            fill(self, nodes[number], raw, place)
        said: set[str] = set().union(*map(vars, nodes))
        height = self._height() if self._links else heights[0]
        return SchemaGraph(nodes, top, height, self._typed, self.lists_containers, said)

    def _height(self) -> int | None:
        """Most schemas on a way down, through references; None where these lead in circles."""
        steps: dict[int, list[tuple[int, int]]] = {}
        for base, depth, number in self._links:
            to = self._bases.get(number)
            if to is None:
                return None  # into the midst of what was read elsewhere
            steps.setdefault(base, []).append((depth + 1, to))
        heights = self._heights
        levels: dict[int, int] = {}
        opened = {0: heights[0]}
        # (base, depth of the link that has led there, links still to be looked at)
        stack = [(0, 0, iter(steps.get(0, ())))]
        while stack:
            base, above, links = stack[-1]
            for depth, to in links:
                level = levels.get(to)
                if level is None:
                    if to in opened:
                        return None
                    opened[to] = heights[to]
                    stack.append((to, depth, iter(steps.get(to, ()))))
                    break
                if depth + level > opened[base]:
                    opened[base] = depth + level
            else:
                stack.pop()
                level = levels[base] = opened.pop(base)
                if stack and above + level > opened[stack[-1][0]]:
                    opened[stack[-1][0]] = above + level
        return levels[0]

    def entered(self, raw: Mapping[str, Any], place: Place) -> Place:
        """``place`` with the resource that the schema there may begin, identifiers checked."""
        own = place.resource
        if raw is not own.root and (own.dialect.id_keyword in raw or "$schema" in raw):
            resource = self._documents.enter(raw, own, place.path)
            if resource is not place.resource:
                scope = self._enter(place.scope, resource)
                place = Place(place, resource, scope, (), place.depth + 1, place.base)
        if "$schema" in raw and not (raw is self._document and self._documents.is_known):
            self._documents.check_dialect(raw, place)
        if "$anchor" in raw or "$dynamicAnchor" in raw:
            self._documents.scan()
        return place

    def with_unreached(self) -> list[Holder]:
        """Those of ``holders`` that may hold definitions which nothing has led to."""
        return [holder for holder in self.holders if not self._leads_to_all(holder[0])]

    def _leads_to_all(self, raw: Mapping[str, Any]) -> bool:
        numbers = self._numbers
        for keyword in ("$defs", "definitions"):
            held = raw.get(keyword, _NOTHING)
            if type(held) is not dict:
                return False
            for schema in held.values():
                if id(schema) not in numbers and schema is not True and schema is not False:
                    return False
        return True

    def reached(self) -> set[int]:
        """The ids of all schema objects that were read."""
        return {key if isinstance(key, int) else key[0] for key in self._numbers}

    def child(self, raw: Any, place: Place) -> int:
        """The requirement that ``raw`` holds; its node is put on the work list when it is new."""
        if raw is True:
            return TRUE
        if raw is False:
            return FALSE
        if type(raw) is not dict and not isinstance(raw, Mapping):
            raise not_a_schema(raw, place.path)
        if not raw:
            return TRUE
        key = (id(raw), place.scope) if place.scope else id(raw)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self._nodes.append(node_at(place))
            if number > MAX_NODES:
                raise self._too_many(self._nodes[number])
            types = 0 if self._observe is not None else _only_type(raw, place)
            if types:
                self._nodes[number].types = types
                self._typed.add(2 * number)
                if place.depth >= self._heights[place.base]:
                    self._heights[place.base] = place.depth + 1
            else:
                self._work.append((number, raw, place))
        return 2 * number

    def _too_many(self, last: Node) -> CompileLimitExceeded:
        return CompileLimitExceeded(
            f"the schema reaches too many subschemas, the last at {last.path}",
            limit=MAX_NODES,
            actual=len(self._nodes) - 1,
        )

    def below(self, raw: Any, place: Place, *steps: str | int) -> int:
        """The requirement of a subschema of the schema at ``place``; the first step is its keyword.

        Raises:
            SchemaError: ``raw`` is no schema.
        """
        if type(raw) is not dict:
            if raw is True or raw is False:
                return TRUE if raw else FALSE
            if not isinstance(raw, Mapping):
                raise not_a_schema(raw, place.at(*steps), str(steps[0]))
        elif not place.scope and self._observe is None:
            # As `child` does; half of all schemas name a type, and need no place of their own.
            known = self._numbers.get(id(raw))
            if known is not None:
                return 2 * known
            types = _only_type(raw, place)
            if not types:
                return self._unread(raw, place, steps)
            number = self._numbers[id(raw)] = len(self._nodes)
            node = node_at((place, steps))
            node.types = types
            self._typed.add(2 * number)
            self._reach_below(place)
            self._nodes.append(node)
            if number > MAX_NODES:
                raise self._too_many(node)
            return 2 * number
        return self.child(raw, place.below(*steps))

    def _unread(self, raw: dict[str, Any], place: Place, steps: tuple[str | int, ...]) -> int:
        """The requirement of a subschema that says more than a type; its node is on the work list.

        No scope and no observer asks for more; see `below`. What holds no schemas is read at once,
        and gets a place of its own only for a message.
        """
        numbers = self._numbers
        known = numbers.get(id(raw))
        if known is not None:
            return 2 * known
        if not raw:
            return TRUE
        nodes = self._nodes
        number = numbers[id(raw)] = len(nodes)
        node = _bare(Node)  # `node_at`, without the call
        if _HOLDING.isdisjoint(raw):
            node._place = place, steps
            nodes.append(node)
            try:
                self._fill(self, node, raw, place)
            except StructgenError:
                self._fill(self, Node("$"), raw, place.below(*steps))
                raise
            if place.depth + 1 >= self._heights[place.base]:  # as `_reach_below` has it
                self._heights[place.base] = place.depth + 2
        else:
            node._place = to = Place(place, place.resource, (), steps, place.depth + 1, place.base)
            nodes.append(node)
            self._work.append((number, raw, to))
        if number > MAX_NODES:
            raise self._too_many(node)
        return 2 * number

    def members(self, keyword: str, held: Mapping[str, Any], place: Place) -> dict[str, int]:
        """The requirements of the schemas that ``keyword`` of the schema at ``place`` has by name.

        Raises:
            SchemaError: one of them is no schema.
        """
        below = self.below
        if place.scope or self._observe is not None:
            return {name: below(raw, place, keyword, name) for name, raw in held.items()}
        alike = self._alike[place.resource.dialect.year == 4]
        unread = self._unread
        out: dict[str, int] = {}
        for name, raw in held.items():
            if type(raw) is dict:
                kind = raw.get("type")
                known = 0
                if type(kind) is str and _BEYOND_TYPE.isdisjoint(raw):
                    known = alike.get(kind) or self._alike_node(kind, place)
                elif "$ref" in raw:
                    known = self._referred(raw, place, keyword, name)
                elif kind == "array" and "items" in raw:
                    known = self._alike_list(raw, place)
                out[name] = known or unread(raw, place, (keyword, name))
            else:
                out[name] = below(raw, place, keyword, name)
        if place.depth + 1 >= self._heights[place.base]:  # as `_reach_below` has it
            self._heights[place.base] = place.depth + 2
        return out

    def each(self, raw: Any, place: Place, *steps: str | int) -> int:
        """As `below`, of a schema for items, or for members that are not named."""
        if type(raw) is not dict or place.scope or self._observe is not None:
            return self.below(raw, place, *steps)
        known = 0
        self._reach_below(place)
        kind = raw.get("type")
        if type(kind) is str and _BEYOND_TYPE.isdisjoint(raw):
            alike = self._alike[place.resource.dialect.year == 4]
            known = alike.get(kind) or self._alike_node(kind, place)
        elif "$ref" in raw:
            known = self._referred(raw, place, *steps)
        return known or self._unread(raw, place, steps)

    def _referred(self, raw: Mapping[str, Any], place: Place, *steps: str | int) -> int:
        """The requirement that a schema below ``place`` leads to if it is a reference and no more.

        0 if it is not, or if that says nothing.
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
            known = self._referred_to[key] = self._follow(target, place, 1)
        elif known > FALSE:
            self._links.append((place.base, place.depth + 1, known >> 1))
        return known

    def _alike_node(self, kind: str, place: Place) -> int:
        """The requirement to be of the type called ``kind``, in the draft at ``place``.

        0 if there is no such type. It stands in no place of its own: what it is part of does.
        """
        types = TYPE_BITS.get(kind, 0)
        if not types:
            return 0
        is_draft4 = place.resource.dialect.year == 4
        if is_draft4 and types == INTEGER:
            types = DIGITS
        number = len(self._nodes)
        node = _bare(Node)  # `node_at`, without the call
        node._place = "$"
        node.types = types
        self._nodes.append(node)
        self._typed.add(2 * number)
        self._alike[is_draft4][kind] = 2 * number
        return 2 * number

    def _alike_list(self, raw: Mapping[str, Any], place: Place) -> int:
        """The requirement to be an array whose items are of one type, if that is all that ``raw``,
        a member of the schema at ``place``, says; else 0. As `_alike_node`."""
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
        if place.depth + 3 > self._heights[place.base]:
            self._heights[place.base] = place.depth + 3
        known = self._lists.get(item)
        if known is None:
            node = node_at("$")
            node.types = ARRAY
            node.items = item
            node.evaluates_all_items = True
            known = self._lists[item] = 2 * len(self._nodes)
            self._nodes.append(node)
        return known

    def _reach_below(self, place: Place) -> None:
        """There are schemas inside the one at ``place``."""
        if place.depth + 1 >= self._heights[place.base]:
            self._heights[place.base] = place.depth + 2

    # -- references -------------------------------------------------------------------------

    def both(self, first: int, second: int, place: Place) -> int:
        """The requirement to meet two requirements, of a schema at ``place``."""
        self._nodes.append(Node(place, all_of=(first, second)))
        return 2 * (len(self._nodes) - 1)

    def reference(self, value: Any, place: Place) -> int:
        """The requirement that ``$ref`` leads to."""
        reference = text("$ref", value, place)
        return self._follow(self._documents.resolve(reference, place.resource, place), place)

    def dynamic_reference(self, value: Any, place: Place) -> int:
        """The requirement that ``$dynamicRef`` leads to from here."""
        if not self._follows_dynamic:
            raise NotDynamic
        reference = text("$dynamicRef", value, place)
        target = self._documents.resolve(reference, place.resource, place, "$dynamicRef")
        name = reference.partition("#")[2]
        raw = target.raw
        if isinstance(raw, Mapping) and name and raw.get("$dynamicAnchor") == name:
            for resource in place.scope:
                found = self._documents.dynamic_anchor(resource, name)
                if found is not None:
                    target = found
                    break
        return self._follow(target, place)

    def recursive_reference(self, value: Any, place: Place) -> int:
        """The requirement that ``$recursiveRef`` leads to from here."""
        if not self._follows_dynamic:
            raise NotDynamic
        if value != "#":
            raise wrong("$recursiveRef", "'#'", value, place)
        resource = place.resource
        root = resource.root
        if isinstance(root, Mapping) and root.get("$recursiveAnchor") is True:
            for outer in place.scope:
                if isinstance(outer.root, Mapping) and outer.root.get("$recursiveAnchor") is True:
                    resource = outer
                    break
        return self._follow(Target(resource.root, resource.path, resource), place)

    def _follow(self, target: Target, place: Place, depth: int = 0) -> int:
        """The requirement that a reference ``depth`` levels below ``place`` leads to."""
        scope = place.scope
        if self._follows_dynamic:
            scope = self._enter(scope, target.resource)
        base, number = len(self._heights), len(self._nodes)
        to = Place(target.above, target.resource, scope, target.steps, 0, base)
        self._heights.append(0)
        requirement = self.child(target.raw, to)
        if requirement == 2 * number:
            self._bases[number] = base
        else:
            self._heights.pop()
        if requirement > FALSE:
            self._links.append((place.base, place.depth + depth, requirement >> 1))
        return requirement

    def _enter(self, scope: tuple[Resource, ...], entered: Resource) -> tuple[Resource, ...]:
        """``scope`` after entering a resource: only first entries, and dynamic ones, count."""
        if not self._follows_dynamic or entered in scope:
            return scope
        dynamic = self._is_dynamic.get(entered)
        if dynamic is None:
            dynamic = self._is_dynamic[entered] = _is_dynamic(entered)
        return (*scope, entered) if dynamic else scope


def _only_type(raw: Mapping[str, Any], place: Place) -> int:
    """The type bits of a schema that says no more than a type, as about half of all do; else 0."""
    name = raw.get("type")
    types = TYPE_BITS.get(name, 0) if type(name) is str else 0
    if not types or not _BEYOND_TYPE.isdisjoint(raw):
        return 0
    return 0 if types == INTEGER and place.resource.dialect.year == 4 else types


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
