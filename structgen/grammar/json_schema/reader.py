"""The walk over a schema's reachable subschemas: one `Node` for each, references followed.

Owns the work list, the numbering of nodes and dynamic scopes. Dynamic references make a node depend
on how it was reached: a node is a raw schema together with the resources with dynamic anchors that
were entered on the way to it. What a schema object's keywords say is read by the function that the
reader is given (see `read`); nothing here knows one but ``$ref`` and its kin.

Standard: JSON Schema core, sections 8 and 9, https://json-schema.org/specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from structgen.errors import CompileLimitExceeded, SchemaError, StructgenError
from structgen.grammar.regex import algebra as regex_algebra
from structgen.storage import IdentityMap

from .checks import not_a_schema, text, wrong
from .dialects import DIALECTS
from .documents import Documents, Place, Resource, Target, has_dynamic_anchors
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
    node_at,
)


class Heights:
    """The heights of the root and of what references lead to, each with a number: its base.

    Attributes:
        of: for each base the most schemas that are inside one another there, itself included.
        bases: the base of a node that a reference leads to, by the number of the node.
        links: the references followed: the base that each stands in, at which depth, and the
            number of the node that it leads to.
    """

    __slots__ = ("bases", "links", "of")

    def __init__(self) -> None:
        self.of = [0]
        self.bases: dict[int, int] = {}
        self.links: list[tuple[int, int, int]] = []

    def reach_below(self, place: Place) -> None:
        """There are schemas inside the one at ``place``."""
        if place.depth + 1 >= self.of[place.base]:
            self.of[place.base] = place.depth + 2

    def whole(self) -> int | None:
        """Most schemas on a way down, through references; None where these lead in circles."""
        if not self.links:
            return self.of[0]
        steps: dict[int, list[tuple[int, int]]] = {}
        for base, depth, number in self.links:
            to = self.bases.get(number)
            if to is None:
                return None  # into the midst of what was read elsewhere
            steps.setdefault(base, []).append((depth + 1, to))
        heights = self.of
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
        # The numbers of raw schemas, by the scope that they were reached with.
        self._plain: IdentityMap[Mapping[str, Any], int] = IdentityMap()
        self._numbers: dict[tuple[Resource, ...], IdentityMap[Mapping[str, Any], int]] = {
            (): self._plain
        }
        self._work: list[tuple[int, Mapping[str, Any], Place]] = []
        self._typed: set[int] = {TRUE}
        # The node that all members and items share which name a type and say nothing else, by that
        # name; integers are another matter in draft 4.
        self._alike: tuple[dict[str, int], dict[str, int]] = ({}, {})
        # What references of members and items lead to.
        self._referred_to: dict[tuple[str, Resource], int] = {}
        # The node of all lists of nothing but what meets an requirement, by that.
        self._lists: dict[int, int] = {}
        self._heights = Heights()
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
        self._heights.bases[top >> 1] = 0
        nodes, heights, work, fill, observe = (
            self._nodes,
            self._heights.of,
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
        height = self._heights.whole()
        return SchemaGraph(nodes, top, height, self._typed, self.lists_containers, said)

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
        """All schema objects that were read; some come more than once."""
        return chain.from_iterable(self._numbers.values())

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
                if place.depth >= self._heights.of[place.base]:
                    self._heights.of[place.base] = place.depth + 1
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
            types = _only_type(raw, place)
            if not types:
                return self._unread(raw, place, steps)
            new = len(self._nodes)
            number = self._plain.setdefault(raw, new)
            if number < new:
                return 2 * number
            node = node_at((place, steps))
            node.types = types
            self._typed.add(2 * number)
            self._heights.reach_below(place)
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
        if not raw:
            return TRUE
        nodes = self._nodes
        new = len(nodes)
        number = self._plain.setdefault(raw, new)
        if number < new:
            return 2 * number
        node = _bare(Node)  # `node_at`, without the call
        if _HOLDING.isdisjoint(raw):
            node._place = place, steps
            nodes.append(node)
            try:
                self._fill(self, node, raw, place)
            except StructgenError:
                self._fill(self, Node("$"), raw, place.below(*steps))
                raise
            heights = self._heights.of  # `reach_below`, without the call
            if place.depth + 1 >= heights[place.base]:
                heights[place.base] = place.depth + 2
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
        self._heights.reach_below(place)
        return out

    def each(self, raw: Any, place: Place, *steps: str | int) -> int:
        """As `below`, of a schema for items, or for members that are not named."""
        if type(raw) is not dict or place.scope or self._observe is not None:
            return self.below(raw, place, *steps)
        known = 0
        self._heights.reach_below(place)
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
            self._heights.links.append((place.base, place.depth + 1, known >> 1))
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
        heights = self._heights.of
        if place.depth + 3 > heights[place.base]:
            heights[place.base] = place.depth + 3
        known = self._lists.get(item)
        if known is None:
            node = node_at("$")
            node.types = ARRAY
            node.items = item
            node.evaluates_all_items = True
            known = self._lists[item] = 2 * len(self._nodes)
            self._nodes.append(node)
        return known

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
        raw = target[0]
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
        return self._follow((resource.root, Place(resource.path, resource)), place)

    def _follow(self, target: Target, place: Place, depth: int = 0) -> int:
        """The requirement that a reference ``depth`` levels below ``place`` leads to."""
        raw, there = target
        scope = place.scope
        if self._follows_dynamic:
            scope = self._enter(scope, there.resource)
        heights = self._heights
        base, number = len(heights.of), len(self._nodes)
        to = Place(there, there.resource, scope, (), 0, base)
        heights.of.append(0)
        requirement = self.child(raw, to)
        if requirement == 2 * number:
            heights.bases[number] = base
        else:
            heights.of.pop()
        if requirement > FALSE:
            heights.links.append((place.base, place.depth + depth, requirement >> 1))
        return requirement

    def _enter(self, scope: tuple[Resource, ...], entered: Resource) -> tuple[Resource, ...]:
        """``scope`` after entering a resource: only first entries, and dynamic ones, count."""
        if not self._follows_dynamic or entered in scope:
            return scope
        dynamic = self._is_dynamic.get(entered)
        if dynamic is None:
            dynamic = self._is_dynamic[entered] = has_dynamic_anchors(entered)
        return (*scope, entered) if dynamic else scope


def _only_type(raw: Mapping[str, Any], place: Place) -> int:
    """The type bits of a schema that says no more than a type, as about half of all do; else 0."""
    name = raw.get("type")
    types = TYPE_BITS.get(name, 0) if type(name) is str else 0
    if not types or not _BEYOND_TYPE.isdisjoint(raw):
        return 0
    return 0 if types == INTEGER and place.resource.dialect.year == 4 else types
