"""The type of each part of a document: fields and their names, items, growing text.

This module reads Pydantic's core schemas, which describe models, dataclasses, `TypedDict`s, attrs
and msgspec classes and containers. The members of a union are candidates: a part has the properties
that all remaining candidates share, and keys and tags rule out candidates. Knows no documents and
no bytes.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from structgen.types import FUNCTIONS, NAMES, ValueSchema

_WRAPPERS = {
    "nullable": "schema",
    "default": "schema",
    "custom-error": "schema",
    "definitions": "schema",
    "function-before": "schema",
    "function-after": "schema",
    "function-wrap": "schema",
    "json-or-python": "json_schema",
    "lax-or-strict": "lax_schema",
    "model": "schema",
    "dataclass": "schema",
}
"""Core schemas around the one that describes the JSON, with the key of the inner one."""

_OWN = "structgen."  # structgen's functions only check, and change nothing
_CHANGES = ("strip_whitespace", "to_lower", "to_upper")
_LISTS = ("list", "set", "frozenset", "generator")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A possible type of a part; compared by the identity of its objects.

    Attributes:
        core: its core schema; None: any JSON.
        config: the core config of its class, or None.
    """

    core: Any
    config: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.core is other.core and self.config is other.config

    def __hash__(self) -> int:
        return hash((id(self.core), id(self.config)))  # both are held


ANYTHING = Place(None)
"""A part that may be any JSON."""


class _Part(NamedTuple):
    """A place without its wrappers."""

    core: Any
    config: Any
    is_changed: bool  # by a function, so the value may differ from the text
    names: Mapping[str, str]  # the constructor's name for each key
    owner: Any  # the class whose body it is, or None


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """A possible type of an object.

    Attributes:
        fields: by key: the field's name in the value, and its type.
        others: the type of all other keys; None: not allowed.
        keys: the type of the keys themselves; None: as in the JSON.
        tags: by key: the allowed values of the field.
    """

    fields: Mapping[str, tuple[str, Place]]
    others: Place | None = None
    keys: Place | None = None
    tags: Mapping[str, frozenset[Any]] | None = None


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """A possible type of an array.

    Attributes:
        first: the types of its first items.
        others: the type of later items; None: not allowed.
    """

    first: tuple[Place, ...]
    others: Place | None


class Shapes:
    """The shapes of the parts of one output type. Thread-safe: at worst, cached results are
    computed twice.

    Attributes:
        root: the type of the whole.
        refs: the core schemas that others refer to, by name.
    """

    def __init__(self, values: ValueSchema | None) -> None:
        """Read a type.

        Args:
            values: Pydantic's schema of the value; None: the value is the result of `json.loads`.
        """
        self._values = values
        self.refs: dict[str, Any] = {}
        self._kept: dict[tuple[str, Place], Any] = {} if values is None else values.kept
        self._numbers: dict[Place, int] = {}
        self.root = ANYTHING
        if values is not None:
            self.root = Place(values.core, values.config)
            if values.core["type"] == "definitions":
                self.refs = {one["ref"]: one for one in values.core["definitions"]}

    def number(self, place: Place) -> int:
        """Return the number of a type, which identifies it in other processes."""
        return self._numbers.setdefault(place, len(self._numbers))

    def objects(self, place: Place) -> tuple[ObjectShape, ...]:
        """Return the possible object shapes."""
        return self._keep("objects", place, self._objects)

    def arrays(self, place: Place) -> tuple[ArrayShape, ...]:
        """Return the possible array shapes."""
        return self._keep("arrays", place, self._arrays)

    def inside(self, place: Place) -> list[Place]:
        """Return the possible types of fields and items inside."""
        objects, arrays = self.objects(place), self.arrays(place)
        found = [field for one in objects for _, field in one.fields.values()]
        found += [item for one in arrays for item in one.first]
        found += [one.others for one in objects if one.others is not None]
        return found + [one.others for one in arrays if one.others is not None]

    def names(self) -> frozenset[str] | None:
        """Return the names of all fields and other attributes of the type's objects.

        None if they depend on more than the place: some objects may have any field, others are a
        choice among several; or code changes the value.
        """
        return self._keep("names", self.root, self._all_names)

    def grows(self, place: Place) -> bool:
        """Return whether a string there becomes the value unchanged."""
        return self._keep("grows", place, self._grows)

    def parser(self, place: Place) -> Callable[[str], Any] | None:
        """Return a function that makes the value there from its JSON; it raises `ParseError`.

        None if only the enclosing value can be parsed: a validator reads other fields, or refused
        values are omitted.
        """
        if place.core is None or self._values is None:
            return json.loads
        return self._keep("parser", place, self._parser)

    def omits(self, place: Place) -> bool:
        """Return whether a value that its type refuses there is omitted."""
        return place.core is not None and self._keep("omits", place, self._omits)

    def _omits(self, place: Place) -> bool:
        return any(core.get("on_error") == "omit" for core in self.wrappers(place.core))

    def _keep(self, what: str, place: Place, make: Callable[[Place], _T]) -> _T:
        key = (what, place)
        if key not in self._kept:
            self._kept[key] = make(place)
        found: _T = self._kept[key]
        return found

    def referred(self, core: Any, seen: set[str]) -> list[Any]:
        """Return the core schema of a reference, once: ``seen`` has the names so far."""
        name = core["schema_ref"]
        if name in seen or name not in self.refs:
            return []
        seen.add(name)
        return [self.refs[name]]

    def wrappers(self, core: Any) -> Iterator[Any]:
        """Yield the wrappers of a value in a core schema; in unions, those of each member."""
        waiting, seen = [core], set[str]()
        while waiting:
            core = waiting.pop()
            kind = core["type"]
            if kind == "definition-ref":
                waiting += self.referred(core, seen)
                continue
            yield core
            if kind in ("union", "tagged-union"):
                waiting += _choices_of(core)
            elif kind == "chain":
                waiting += core["steps"]
            elif kind in _WRAPPERS:
                waiting.append(core[_WRAPPERS[kind]])

    def _parser(self, place: Place) -> Callable[[str], Any] | None:
        assert self._values is not None
        if self.omits(place) or _asks_for_others(place.core):
            return None
        return self._values.parser(place.core, place.config)

    def _objects(self, place: Place) -> tuple[ObjectShape, ...]:
        if place.core is None:
            return (ObjectShape({}, others=ANYTHING),)
        return tuple(
            shape for part in self._parts(place) if (shape := self._object(part)) is not None
        )

    def _object(self, part: _Part) -> ObjectShape | None:
        core, config = part.core, part.config
        kind = core["type"]
        if kind == "any":
            return ObjectShape({}, others=ANYTHING)
        if kind == "dict":
            return ObjectShape(
                {},
                others=_or_anything(core.get("values_schema"), config),
                keys=_or_anything(core.get("keys_schema"), config),
            )
        if kind in ("model-fields", "typed-dict"):
            members = list(core["fields"].items())
        elif kind in ("dataclass-args", "named-tuple"):
            members = [(field["name"], field) for field in core["fields"]]
        elif kind == "call":
            arguments = core["arguments_schema"].get("arguments_schema", [])
            members = [(field["name"], field) for field in arguments]
        else:
            return None
        fields = {}
        tags = {}
        for name, field in members:
            inner = Place(field["schema"], config)
            for key in _keys(name, field, config):
                fields[key] = (part.names.get(name, name), inner)
                literals = self._literals(inner)
                if literals is not None:
                    tags[key] = literals
        extra = core.get("extra_behavior") or (config or {}).get("extra_fields_behavior")
        others = _or_anything(core.get("extras_schema"), config) if extra == "allow" else None
        return ObjectShape(fields, others, tags=tags)

    def _all_names(self, root: Place) -> frozenset[str] | None:
        found: set[str] = set()
        is_open = is_choice = False
        todo, seen = [root], {ANYTHING}
        while todo:
            place = todo.pop()
            if place in seen:
                is_open = is_open or place is ANYTHING
                continue
            seen.add(place)
            shapes = self.objects(place)
            is_choice = is_choice or len(shapes) > 1
            for part in self._parts(place):
                if part.is_changed and self._object(part) is not None:
                    return None
                found.update(dir(part.owner) if part.owner is not None else ())
            for shape in shapes:
                is_open = is_open or shape.others is not None
                found.update(name for name, _ in shape.fields.values())
            todo += self.inside(place)
        return None if is_open and is_choice else frozenset(found)

    def _arrays(self, place: Place) -> tuple[ArrayShape, ...]:
        if place.core is None:
            return (ArrayShape((), ANYTHING),)
        return tuple(
            shape for part in self._parts(place) if (shape := self._array(part)) is not None
        )

    def _array(self, part: _Part) -> ArrayShape | None:
        core, config = part.core, part.config
        kind = core["type"]
        if kind == "any":
            return ArrayShape((), ANYTHING)
        if kind in _LISTS:
            return ArrayShape((), _or_anything(core.get("items_schema"), config))
        if kind == "tuple":
            items = [Place(item, config) for item in core["items_schema"]]
            index = core.get("variadic_item_index")
            if index is None:
                return ArrayShape(tuple(items), None)
            # The items after a variable number of items are known only at the end of the array.
            others = items[index] if index == len(items) - 1 else ANYTHING
            return ArrayShape(tuple(items[:index]), others)
        if kind == "named-tuple":
            return ArrayShape(tuple(Place(one["schema"], config) for one in core["fields"]), None)
        return None

    def _grows(self, place: Place) -> bool:
        if place.core is None:
            return True
        if self.parser(place) is None:
            return False
        found = False
        for part in self._parts(place):
            kind = part.core["type"]
            if kind == "any":
                found = True
            elif kind == "str":
                config = part.config or {}
                changes = any(part.core.get(name) or config.get(f"str_{name}") for name in _CHANGES)
                if changes or part.is_changed:
                    return False
                found = True
            elif kind not in _NO_STRINGS:
                return False
        return found

    def _literals(self, place: Place) -> frozenset[Any] | None:
        """Return the only possible values; None if others are possible."""
        found: set[Any] = set()
        for part in self._parts(place):
            if part.core["type"] == "literal":
                expected = part.core["expected"]
            elif part.core["type"] == "enum":
                expected = part.core["members"]
            else:
                return None
            for one in expected:
                found.add(one.value if isinstance(one, enum.Enum) else one)
        try:
            return frozenset(found)
        except TypeError:
            return None

    def _parts(self, place: Place) -> Iterator[_Part]:
        """Yield the possible parts, each without its wrappers."""
        waiting: list[_Part] = [_Part(place.core, place.config, False, {}, None)]
        seen = set[str]()
        while waiting:
            core, config, is_changed, names, owner = waiting.pop(0)
            kind = core["type"]
            if kind in ("definition-ref", "union", "tagged-union"):
                is_choice = kind != "definition-ref"
                choices = _choices_of(core) if is_choice else self.referred(core, seen)
                waiting[:0] = [_Part(one, config, is_changed, names, owner) for one in choices]
                continue
            if kind == "chain":
                waiting.insert(0, _Part(core["steps"][0], config, True, names, owner))
                continue
            if kind in ("model", "dataclass"):
                config, names, owner = core.get("config", config), {}, core["cls"]
            if kind in FUNCTIONS:
                function = core["function"]["function"]
                names = getattr(function, NAMES, names)
                module = getattr(function, "__module__", None) or ""
                is_changed = is_changed or not module.startswith(_OWN)
            inner = _WRAPPERS.get(kind)
            if inner is None:
                yield _Part(core, config, is_changed, names, owner)
            else:
                waiting.insert(0, _Part(core[inner], config, is_changed, names, owner))


_NO_STRINGS = (
    *("model-fields", "typed-dict", "dataclass-args", "named-tuple", "call", "dict", "tuple"),
    *(*_LISTS, "none", "int", "float", "bool"),
)
"""Core schemas of values that masks never write as strings."""


def _choices_of(core: Any) -> list[Any]:
    """Return the core schemas of the members of a union, tagged or not."""
    if core["type"] == "tagged-union":
        return [one for one in core["choices"].values() if isinstance(one, dict)]
    return [one[0] if isinstance(one, tuple) else one for one in core["choices"]]


def _or_anything(core: Any, config: Any) -> Place:
    return ANYTHING if core is None else Place(core, config)


def _keys(name: str, field: Mapping[str, Any], config: Any) -> Iterator[str]:
    """Yield the possible keys of a field in the JSON."""
    alias = field.get("validation_alias")
    if alias is None:
        yield name
        return
    if isinstance(alias, str):
        yield alias
    else:
        for path in alias if isinstance(alias[0], list) else [alias]:
            if len(path) == 1:
                yield path[0]
    if (config or {}).get("populate_by_name") or (config or {}).get("validate_by_name"):
        yield name


def _asks_for_others(core: Any) -> bool:
    """Return whether a field's validator reads the object's other fields."""
    stack = [core]
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple)):
            stack.extend(node)
        elif isinstance(node, dict):
            if node.get("type") in ("model", "dataclass", "typed-dict", "definitions"):
                continue
            function = node.get("function")
            if isinstance(function, dict) and function.get("type") == "with-info":
                return True
            stack.extend(part for key, part in node.items() if key not in ("metadata", "ref"))
    return False
