"""The JSON Schema graph: a schema, checked and with its references resolved.

One `Node` per schema object, numbered. A node refers to another by a *requirement*: ``2 * n`` means
that node n must hold, ``2 * n + 1`` that it must not. Node 0 is the schema ``true``, so requirement
0 is always met and requirement 1 never. Applicators hold requirements, so a recursive schema is a
graph with cycles and needs no Python recursion. Has the data structure, the type bits and the
option ``closed``; `read` fills it, the automaton reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from typing import Any, Protocol

from structgen.grammar import ir

# A number is DIGITS if it is whole and written so (12), POINTED if it is whole and has a fraction
# or exponent part (12.0, 1.2e1), otherwise FRACTION.
NULL, BOOLEAN, OBJECT, ARRAY, STRING, DIGITS, POINTED, FRACTION = (1 << i for i in range(8))
INTEGER = DIGITS | POINTED
NUMBER = INTEGER | FRACTION
ALL_TYPES = (1 << 8) - 1
TYPE_BITS = {
    "null": NULL,
    "boolean": BOOLEAN,
    "object": OBJECT,
    "array": ARRAY,
    "string": STRING,
    "integer": INTEGER,
    "number": NUMBER,
}
"""The types by name. Only in draft 4, 1.0 is not an integer: there ``integer`` is `DIGITS`."""

DIGITS_ONLY = "$structgen-digits"
"""The keyword of a JSON Schema under which whole numbers are written without point and exponent."""

TRUE, FALSE = 0, 1
"""The requirements that always and never hold."""


@dataclass(frozen=True, slots=True)
class Contains:
    """Between ``least`` and ``most`` items from index ``start`` on meet ``requirement``."""

    requirement: int
    least: int = 1
    most: int | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Keys:
    """A set of keys: one name, or those that match a pattern (search applied), or all others.

    Attributes:
        name: the only key, if not None.
        pattern: otherwise the keys that match this, if not None.
        but_names, but_patterns: otherwise all keys except these.
    """

    name: str | None = None
    pattern: ir.Regex | None = None
    but_names: tuple[str, ...] = ()
    but_patterns: tuple[ir.Regex, ...] = ()


class HasPath(Protocol):
    """An object that knows its place in the schema."""

    @property
    def path(self) -> str:
        """JSON path, for messages."""

    def at(self, *steps: str | int) -> str:
        """Return the path of a part."""


_NO_NAMES: dict[str, Any] = {}  # never changed


OF_NUMBERS = frozenset(
    (
        "minimum",
        "maximum",
        "exclusive_minimum",
        "exclusive_maximum",
        "multiple_of",
        "not_multiple_of",
    )
)
OF_STRINGS = frozenset(("min_length", "max_length", "patterns"))
OF_OBJECTS = frozenset(
    (
        "properties",
        "pattern_properties",
        "additional",
        "property_names",
        "required",
        "min_properties",
        "max_properties",
        "rules",
    )
)
OF_ARRAYS = frozenset(
    ("prefix", "items", "min_items", "max_items", "contains", "unique", "repeats")
)
OF_VALUES = OF_NUMBERS | OF_STRINGS | OF_OBJECTS | OF_ARRAYS
IN_PLACE = frozenset(
    (
        "refs",
        "all_of",
        "any_of",
        "one_of",
        "condition",
        "dependent_required",
        "dependent_schemas",
        "unevaluated_properties",
        "unevaluated_items",
        "some_unevaluated_item",
    )
)
"""The fields that speak of values of one kind, of any kind, and those that make other nodes apply
to the same value. A field that is not set says nothing."""
HOLDING = frozenset(
    (
        *("properties", "pattern_properties", "additional", "property_names", "prefix", "items"),
        *("contains", "refs", "all_of", "any_of", "one_of", "condition", "dependent_schemas"),
        *("unevaluated_properties", "unevaluated_items", "some_unevaluated_item"),
    )
)
"""The fields that hold requirements."""
_TYPES_ONLY = {"_place", "types"}
_LISTED_ONLY = _TYPES_ONLY | {"enum"}
_ASSERTIONS = OF_VALUES | {"enum", "excluded"}
_BESIDE_A_LIST = OF_VALUES | IN_PLACE | {"excluded"}


class Node:
    """One schema object. A field that is not set has the value it has here: the keyword is absent.

    Args:
        place: the place of the schema object, or something that knows it.
        **fields: fields to set.
    """

    _listed: frozenset[Any] | None = None

    types: int = ALL_TYPES
    enum: tuple[Any, ...] | None = None
    excluded: Collection[Any] = ()  # values that it must not equal: scalars, or `Barred`
    # numbers
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    exclusive_minimum: Decimal | None = None
    exclusive_maximum: Decimal | None = None
    multiple_of: Decimal | None = None
    not_multiple_of: Decimal | None = None
    # strings
    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[ir.Regex, ...] = ()
    # objects
    properties: Mapping[str, int] = _NO_NAMES
    pattern_properties: tuple[tuple[ir.Regex, int], ...] = ()
    additional: int = TRUE
    property_names: int = TRUE
    required: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    rules: tuple[Any, ...] = ()  # conditions on all members; see `automaton.schema.rules`
    # arrays
    prefix: tuple[int, ...] = ()
    items: int = TRUE
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    repeats: bool = False  # two items must be equal
    # in place
    refs: tuple[int, ...] = ()
    all_of: tuple[int, ...] = ()
    any_of: tuple[int, ...] | None = None
    one_of: tuple[int, ...] | None = None
    condition: tuple[int, int, int] | None = None  # if, then, else
    dependent_required: Mapping[str, tuple[str, ...]] = _NO_NAMES
    dependent_schemas: Mapping[str, int] = _NO_NAMES
    unevaluated_properties: int = TRUE
    unevaluated_items: int = TRUE
    some_unevaluated_item: int = FALSE  # one must be present and meet this (unless it is FALSE)
    # the nodes whose evaluations count for them
    evaluates_all_properties: bool = False
    evaluates_all_items: bool = False
    contains_evaluates: bool = True
    not_evaluating: bool = False

    def __init__(self, place: str | HasPath, **fields: Any) -> None:
        self._place = place
        if fields:
            if not fields.keys() <= FIELDS:
                raise TypeError(f"no fields of a node: {sorted(fields.keys() - FIELDS)}")
            set_fields = {name: value for name, value in fields.items() if value != _SILENT[name]}
            vars(self).update(set_fields)

    @property
    def path(self) -> str:
        """JSON path, for messages."""
        place = self._place
        return place if isinstance(place, str) else place.path

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in vars(self).items() if name in FIELDS}

    @property
    def has_types_only(self) -> bool:
        """Whether only the field ``types`` is set."""
        return vars(self).keys() <= _TYPES_ONLY

    @property
    def lists_strings_only(self) -> bool:
        """Whether it only has an ``enum`` of only strings, and ``types`` that include them."""
        return (
            vars(self).keys() <= _LISTED_ONLY
            and self.types & STRING != 0
            and self.enum is not None
            and set(map(type, self.enum)) == {str}
        )

    @property
    def listed(self) -> frozenset[Any]:
        """The `json_key` of every value that ``enum`` lists."""
        if self._listed is None:
            self._listed = frozenset(json_key(v) for v in self.enum or ())
        return self._listed

    @property
    def is_list(self) -> bool:
        """Whether the node only has ``enum``."""
        return (
            self.enum is not None
            and (self.types == ALL_TYPES or all(type(v) is str for v in self.enum))
            and bool(self.types & STRING)
            and _BESIDE_A_LIST.isdisjoint(vars(self))
        )

    @property
    def speaks_of_objects(self) -> bool:
        """Whether an object's members matter to this node's own assertions."""
        return not OF_OBJECTS.isdisjoint(vars(self))

    @property
    def speaks_of_arrays(self) -> bool:
        """Whether an array's items matter to this node's own assertions."""
        return not OF_ARRAYS.isdisjoint(vars(self))

    @property
    def speaks_of_numbers(self) -> bool:
        """Whether a number's value matters to this node's own assertions."""
        return not OF_NUMBERS.isdisjoint(vars(self))

    @property
    def speaks_of_strings(self) -> bool:
        """Whether a string's value matters to this node's own assertions."""
        return not OF_STRINGS.isdisjoint(vars(self))

    @property
    def asserts(self) -> bool:
        """Whether the node has assertions besides its in-place applicators."""
        return self.types != ALL_TYPES or not _ASSERTIONS.isdisjoint(vars(self))

    def parts_in_place(self) -> list[int]:
        """Return the requirements on the same value through other nodes, in order."""
        return [
            *self.refs,
            *self.all_of,
            *(self.any_of or ()),
            *(self.one_of or ()),
            *(self.condition or ()),
            *self.dependent_schemas.values(),
        ]

    @property
    def applies_in_place(self) -> bool:
        """Whether the node makes other nodes apply to the same value."""
        return not IN_PLACE.isdisjoint(vars(self))


_bare = object.__new__


def node_at(place: str | HasPath) -> Node:
    """``Node(place)`` in half the time: every subschema is one."""
    node = _bare(Node)
    node._place = place
    return node


FIELDS = frozenset(Node.__annotations__) - {"_listed"}
"""The names of a node's fields."""

_SILENT = {name: getattr(Node, name) for name in FIELDS}
"""The values of fields whose keyword is absent."""


def mapped(field: str, held: Any, change: Callable[[int], Any]) -> Any:
    """Return what one of the fields `HOLDING` holds, with ``change`` made to each requirement."""
    if isinstance(held, int):
        return change(held)
    if isinstance(held, dict):
        return {name: change(one) for name, one in held.items()}
    if field == "pattern_properties":
        return tuple([(regex, change(one)) for regex, one in held])
    if field == "contains":
        return tuple([replace(some, requirement=change(some.requirement)) for some in held])
    return held and tuple(map(change, held))


@dataclass(slots=True)
class SchemaGraph:
    """A whole schema: a document starts with the requirement ``root``.

    Attributes:
        nodes: all nodes.
        root: the document's requirement.
        refers: whether there are references, so that nodes may form cycles.
        typed: the requirements that only name one type, or none.
        lists_containers: whether any ``enum`` or ``const`` contains objects or arrays.
        used: the fields that any node sets, so that others need no check.
    """

    nodes: list[Node]
    root: int
    refers: bool = True
    typed: Set[int] = frozenset()
    lists_containers: bool = False
    used: Set[str] = FIELDS


def bounds(nodes: Iterable[Node], kind: str) -> tuple[int, int | None]:
    """Return the least and the most that ``nodes`` allow together: of ``length`` of strings,
    ``items`` of arrays, ``properties`` of objects."""
    least, most = 0, None
    for node in nodes:
        least = max(least, getattr(node, f"min_{kind}"))
        own = getattr(node, f"max_{kind}")
        if own is not None:
            most = own if most is None else min(most, own)
    return least, most


def child_path(path: str, *steps: str | int) -> str:
    """Return ``path`` extended in the format of error messages: ``$.properties["a b"][0]``."""
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
    """Return a key that is equal exactly for equal values in JSON Schema (1 = 1.0 ≠ true)."""
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


def by_key(values: Iterable[Any]) -> dict[Any, Any]:
    """Return ``values`` by `json_key`; the first of equal ones."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(json_key(value), value)
    return found


def to_decimal(value: int | float | Decimal) -> Decimal:
    """Return the number by its shortest decimal text (0.1 is exactly a tenth)."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


# -- the option ``closed`` ------------------------------------------------------------------------


def only_named(graph: SchemaGraph) -> SchemaGraph:
    """Return ``graph`` with closed objects, as copies of nodes: they have only named members.

    Each value's schema is read as if it had ``unevaluatedProperties: false``, except if the schema
    itself mentions other members (``additionalProperties``, ``unevaluatedProperties``), asserts
    nothing, or is a value in an ``enum``. Nothing changes below ``not`` and ``if``, nor in a
    ``oneOf`` whose alternatives are not obviously distinct: fewer values there would make more
    valid.
    """
    closing = _Closing(graph.nodes)
    root = closing.copy(graph.root, is_value=True)
    closing.fill()
    used = graph.used | {"additional", "properties", "unevaluated_properties"}
    return replace(graph, root=root, used=used)


class _Closing:
    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._copies: dict[tuple[int, bool], int] = {}
        self._todo: list[tuple[Node, int, bool]] = []

    def copy(self, requirement: int, is_value: bool) -> int:
        """Return ``requirement`` with closed values inside. It is closed itself if ``is_value``;
        otherwise others apply to the same value."""
        node = self._nodes[requirement >> 1]
        if requirement & 1 or not node.types & (OBJECT | ARRAY) or not node.fields():
            return requirement
        key = requirement, is_value
        if key not in self._copies:
            self._copies[key] = 2 * len(self._nodes)
            self._nodes.append(Node(node.path))
            self._todo.append((node, self._copies[key] >> 1, is_value))
        return self._copies[key]

    def fill(self) -> None:
        """Make the copies."""
        while self._todo:
            node, number, is_value = self._todo.pop()
            fields = node.fields()
            self._close_parts(fields)
            if is_value and node.types & OBJECT and node.enum is None:
                self._close(node, fields)
            self._nodes[number] = Node(node.path, **fields)

    def _close_parts(self, fields: dict[str, Any]) -> None:
        def value(requirement: int) -> int:
            return self.copy(requirement, is_value=True)

        def part(requirement: int) -> int:
            return self.copy(requirement, is_value=False)

        for name, parts in fields.items():
            if name in _VALUES:
                fields[name] = mapped(name, parts, value)
            elif name == "condition":
                fields[name] = (parts[0], part(parts[1]), part(parts[2]))
            elif name in ("refs", "all_of", "any_of", "dependent_schemas") or (
                name == "one_of" and _are_apart(self._nodes, parts)
            ):
                fields[name] = mapped(name, parts, part)

    def _close(self, node: Node, fields: dict[str, Any]) -> None:
        in_place = IN_PLACE & fields.keys()
        (name,) = in_place if len(in_place) == 1 else ("",)
        if not in_place:
            if not node.evaluates_all_properties:
                fields["additional"] = FALSE
                fields["properties"] = {**fields.get("properties", {})}
                for required in node.required:
                    fields["properties"].setdefault(required, TRUE)
        elif fields.keys() - {"types"} == {name} and (
            name == "any_of" or (name in ("refs", "all_of") and len(fields[name]) == 1)
        ):
            parts = getattr(node, name)
            fields[name] = tuple(self.copy(one, is_value=True) for one in parts)
        elif not node.evaluates_all_properties and node.unevaluated_properties == TRUE:
            fields["unevaluated_properties"] = FALSE


_VALUES = frozenset(
    (
        *("properties", "pattern_properties", "additional", "unevaluated_properties"),
        *("prefix", "items", "unevaluated_items"),
    )
)
"""The fields whose requirements are about other values, where closing these allows fewer."""


def _are_apart(nodes: Sequence[Node], options: Sequence[int]) -> bool:
    """Return whether obviously no object or array can meet two of ``options``: they differ by type,
    or by the values of a required member."""
    found: list[tuple[int, dict[str, frozenset[Any]]]] = []
    for option in options:
        node = nodes[option >> 1]
        for _ in nodes:
            if node.fields().keys() != {"refs"} or len(node.refs) != 1:
                break
            node = nodes[node.refs[0] >> 1]
        types = node.types & (OBJECT | ARRAY)
        if not node.speaks_of_arrays and not node.applies_in_place:
            types &= OBJECT  # nothing in an array of it is closed
        listed = {
            name: frozenset(map(json_key, values))
            for name in node.required
            if (values := nodes[node.properties.get(name, TRUE) >> 1].enum) is not None
        }
        found.append((ARRAY | OBJECT, {}) if option & 1 else (types, listed))
    return all(
        not types & others
        or (
            types & others == OBJECT
            and any(listed[name].isdisjoint(named[name]) for name in listed.keys() & named)
        )
        for (types, listed), (others, named) in combinations(found, 2)
    )
