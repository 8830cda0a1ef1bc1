"""Checks that only the user's code can make, run on values as they close in a growing document.

An invalid value is refused when it is written, not at the end of the output. A refusal covers the
value and everything before it, with any continuation. A value is checked against the whole part of
the type at its place, as Pydantic would. Knows no tokens, and not what happens after a refusal.

A value can be checked alone if nothing around it may change or accept it (a "before" or "wrap"
validator, `OnErrorOmit`), and if none of its validators reads other fields. Pydantic's core schemas
show this. Otherwise the smallest enclosing part that can be checked is checked when it closes, at
the latest the whole value. If Pydantic then names invalid parts, the first of them is refused,
provided that nothing written after it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from structgen.errors import ParseError
from structgen.grammar import ir
from structgen.grammar.json_schema import child_path
from structgen.insight import Closed, Event, Opened, Path
from structgen.storage import cached_method
from structgen.types import FUNCTIONS, OutputType, looked_at_by

from .document import NEVER, Document, Node
from .shapes import Place, Shapes

_NOT_PARTS = frozenset(
    ("metadata", "serialization", "expected", "default", "config", "function", "computed_fields")
)
"""Keys of core schemas without readers of values."""

_CHANGES = frozenset(("function-before", "function-wrap", "function-plain"))
_FORGIVES = ("default", "omit")


class Plan(NamedTuple):
    """How the values of one type are checked.

    Attributes:
        has_code: whether code checks the value or its parts.
        is_judged: whether the value itself must be checked when it closes, because the checks of
            its parts are not enough.
        is_alone: whether it can be checked without its surroundings.
        taints: whether its parts cannot be checked without it.
    """

    has_code: bool
    is_judged: bool
    is_alone: bool
    taints: bool


_PLAIN = Plan(has_code=False, is_judged=False, is_alone=True, taints=False)


def plan_of(shapes: Shapes, place: Place) -> Plan:
    """Return how values of a type are checked."""
    if place.core is None or not _has_code(shapes, place.core):
        return _PLAIN
    taints = _forgives(shapes, place) or any(
        core["type"] in _CHANGES and looked_at_by(core) for core in shapes.wrappers(place.core)
    )
    parts = [] if taints else shapes.inside(place)
    inside = {id(part.core) for part in parts if _is_alone(shapes, part)}
    # With several kinds of object, it may be known too late which one it is.
    is_judged = (
        len(shapes.objects(place)) > 1
        or len(shapes.arrays(place)) > 1
        or _has_code(shapes, place.core, inside)
    )
    return Plan(True, is_judged, _is_alone(shapes, place), taints)


def _is_alone(shapes: Shapes, place: Place) -> bool:
    if place.core is None:
        return True
    return not _forgives(shapes, place) and shapes.parser(place) is not None


def _forgives(shapes: Shapes, place: Place) -> bool:
    """Return whether a refused value is replaced by something else."""
    return any(
        core["type"] == "default" and core.get("on_error") in _FORGIVES
        for core in shapes.wrappers(place.core)
    )


def _has_code(shapes: Shapes, core: Any, without: Collection[int] = ()) -> bool:
    """Return whether code checks values in a core schema, except in ``without``."""
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
            if not isinstance(kind, str):  # fields, whatever they are called
                waiting.extend(node.values())
                continue
            if kind == "definition-ref":
                waiting += shapes.referred(node, seen)
                continue
            is_schema = isinstance(node.get("function"), dict) or kind not in FUNCTIONS
            if is_schema and looked_at_by(node):
                return True
            skipped = _NOT_PARTS | {"definitions"} if kind == "definitions" else _NOT_PARTS
            waiting.extend(part for key, part in node.items() if key not in skipped)
    return False


Key: TypeAlias = "tuple[Path, tuple[int, ...]]"
"""A value: its path, and the numbers of its possible types."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that code has refused.

    Attributes:
        path: its JSON path.
        text: its text.
        judged_key: the value that was checked: the refused one, or one that contains it.
        judged: offset at which that one began; earlier text does not matter.
        start: offset of its first byte.
        end: offset after the last byte that the refusal depends on.
        ended_by: bytes of which one after ``end``, or the end of the output, shows that the value
            ends there; None: its closing quote or bracket ends it.
        message: the error message of the code.
        error: why the text does not parse.
    """

    path: str
    text: str
    judged_key: Key
    judged: int
    start: int
    end: int
    ended_by: bytes | None
    message: str
    error: ParseError


class Waiting:
    """The result of `Reading.read` while the code has not answered yet."""


WAITING = Waiting()


class Reading(Protocol):
    """One output, read while it is written.

    If the code runs in another process, `read` and `end` may return `WAITING`: then `verdict`
    returns the answer as soon as it is known.
    """

    @property
    def settled(self) -> int:
        """The offset before which nothing will be refused any more."""

    @property
    def settled_before(self) -> int:
        """The same offset before the last read, if that has to wait."""

    @property
    def open_values(self) -> Sequence[tuple[Key, int]]:
        """The open values that will be checked, with their start offsets."""

    def read(self, data: bytes) -> Refusal | Waiting | None:
        """Read more output; return the first refusal among the values that it closes."""

    def end(self) -> Refusal | Waiting | None:
        """End the output."""

    def verdict(self) -> Refusal | Waiting | None:
        """Return the postponed result of `read` or `end`."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The value of the whole output, after it was accepted."""


class Judging(Protocol):
    """The checks of an output type, in any process."""

    @property
    def name(self) -> str:
        """What messages call the type."""

    def reading(self, data: bytes = b"") -> Reading:
        """Begin an output, or continue with one of which ``data`` has been accepted."""


class Checks:
    """The checks of one output type. Thread-safe: at worst, cached results are computed twice."""

    def __init__(self, output: OutputType, *, in_order: bool = True) -> None:
        """Read a type.

        Args:
            output: the type.
            in_order: whether objects have their keys in the order of their classes.
        """
        self.output = output
        self.in_order = in_order
        self.shapes: Shapes | None = None
        if isinstance(output.grammar, ir.Json) and output.values is not None:
            self.shapes = Shapes(output.values)

    @property
    def name(self) -> str:
        """What messages call the type."""
        return self.output.name

    def reading(self, data: bytes = b"") -> HereReading:
        """Begin an output, or continue with one of which ``data`` has been accepted."""
        if self.shapes is None:
            return WholeReading(self.output, data)
        return JsonReading(self, self.shapes, data)

    @cached_method
    def plan(self, place: Place) -> Plan:
        """Return how values of a type are checked."""
        assert self.shapes is not None
        return plan_of(self.shapes, place)


def checks_of(output: OutputType, *, in_order: bool = True) -> Checks | None:
    """Return the `Checks` of a type; None if no code checks its values."""
    return Checks(output, in_order=in_order) if output.checked else None


# -- outputs -----------------------------------------------------------------------------------


class WholeReading:
    """An output that can only be checked at its end."""

    settled = settled_before = 0
    open_values: Sequence[tuple[Key, int]] = ()  # texts of the whole are barred already

    def __init__(self, output: OutputType, data: bytes = b"") -> None:
        self._output = output
        self._data = bytearray(data)
        self.values: tuple[Any, ...] = ()

    def read(self, data: bytes) -> Refusal | None:
        """Read more output."""
        self._data += data
        return None

    def end(self) -> Refusal | None:
        """End the output."""
        text = self._data.decode("utf-8", "replace")
        try:
            self.values = (self._output.parse(text),)
        except ParseError as error:
            message = "; ".join(dict.fromkeys(one["msg"] for one in _problems(error)))
            message = message or str(error.__cause__ or error)
            return Refusal("$", text, ((), ()), 0, 0, len(self._data), b"", message, error)
        return None

    def verdict(self) -> Refusal | None:
        """Return None: it never has to wait."""
        return None


class JsonReading(Document):
    """A JSON document whose parts are checked when they close."""

    def __init__(self, checks: Checks, shapes: Shapes, data: bytes = b"") -> None:
        super().__init__(shapes)
        self.values: tuple[Any, ...] = ()
        self._checks = checks
        self._tainted: list[bool] = []  # for each open value, whether its parts cannot be checked
        self._held: list[tuple[Key, int]] = []  # open values that will be checked
        self._is_held: list[bool] = []
        self._refusal: Refusal | None = None
        self._judges = False
        self.feed(data)
        self._judges = True

    @property
    def settled(self) -> int:
        """The offset before which nothing will be refused any more."""
        return self._held[0][1] if self._held else self.n_bytes

    @property
    def settled_before(self) -> int:
        """None: it never has to wait."""
        return self.settled

    def verdict(self) -> Refusal | None:
        """Return None: it never has to wait."""
        return None

    @property
    def open_values(self) -> Sequence[tuple[Key, int]]:
        """The open values that will be checked, with their start offsets."""
        return self._held

    def read(self, data: bytes) -> Refusal | None:
        """Read more output; return the first refusal among the values that it closes."""
        self.data += data
        self.n_bytes += len(data)
        return self._take_all(self.reader.feed(data))

    def end(self) -> Refusal | None:
        """End the output."""
        refusal = self._take_all(self.reader.finish())
        if refusal is None and not self.values:
            assert self.root is not None
            refusal = self._judge_whole(self.root)
        return refusal

    def _take_all(self, events: list[Event]) -> Refusal | None:
        for event in events:
            self.take(event)
            if self._refusal is not None:
                return self._refusal
        return None

    def take(self, event: Event) -> None:
        """Process an event; check values that close."""
        node = self.open[-1] if self.open else None
        super().take(event)
        if isinstance(event, Opened):
            self._opened(self.open[-1], event.path)
        elif isinstance(event, Closed):
            assert node is not None
            self._tainted.pop()
            if self._is_held.pop():
                self._held.pop()
                if self._judges:
                    self._judge(node, event.path)

    def _opened(self, node: Node, path: Path) -> None:
        plans = [self._checks.plan(place) for place in node.places]
        has_code = any(plan.has_code for plan in plans)
        is_tainted = bool(self._tainted) and self._tainted[-1]
        is_held = (
            has_code
            and not is_tainted
            and all(plan.is_alone for plan in plans)
            and (len(plans) > 1 or any(plan.is_judged for plan in plans))
        )
        # The whole is always checked at the end.
        is_held = is_held or (not path and any(plan.is_judged for plan in plans))
        self._tainted.append(is_tainted or any(plan.taints for plan in plans))
        self._is_held.append(is_held)
        if is_held:
            self._held.append(((path, self._types(node)), node.start))

    def _judge(self, node: Node, path: Path) -> None:
        """Refuse a value that none of its possible types accepts."""
        if not path:
            self._refusal = self._judge_whole(node)
            return
        text = self.data[node.start : node.end].decode("utf-8", "surrogatepass")
        errors: list[ParseError] = []
        for place in node.places:
            parse = self.shapes.parser(place)
            if parse is None:
                return
            try:
                parse(text)
            except ParseError as error:
                errors.append(error)
            else:
                return
        self._refusal = self._refused(node, path, errors[-1])

    def _judge_whole(self, node: Node) -> Refusal | None:
        text = self.data.decode("utf-8", "surrogatepass")
        try:
            self.values = (self._checks.output.parse(text),)
        except ParseError as error:
            return self._refused(node, (), error)
        return None

    def _refused(self, node: Node, path: Path, error: ParseError) -> Refusal:
        """Return the refusal of a value, or of its first invalid part."""
        first, where, is_final = node, path, True
        found = [*self._at_fault(node, error)]
        message = str(error.__cause__ or error)
        if found:
            start = min(part.start for _, part, _, _ in found)
            here = [one for one in found if one[1].start == start]
            _, first, steps, is_final = here[0]
            where = (*path, *steps)
            message = "; ".join(dict.fromkeys(text for text, *_ in here))
        last = first if is_final else node
        return Refusal(
            child_path("$", *where),
            self.data[first.start : first.end].decode("utf-8", "surrogatepass"),
            (path, self._types(node)),
            node.start,
            first.start,
            last.end,
            b" \t\n\r,]}" if last.kind == "other" else None,
            message,
            error,
        )

    def _at_fault(self, node: Node, error: ParseError) -> Iterator[tuple[str, Node, Path, bool]]:
        """Yield Pydantic's messages with their parts and paths, and whether text after each does
        not matter."""
        for problem in _problems(error):
            part, is_final = node, True
            steps: list[str | int] = []
            for step in problem["loc"]:
                if step == "[key]":
                    part, steps, is_final = node, [], True
                    break
                inner = _child(part, step)
                if inner is not None:
                    is_final = is_final and self._is_final(part, step)
                    part = inner
                    steps.append(step)
            yield problem["msg"], part, tuple(steps), is_final

    def _types(self, node: Node) -> tuple[int, ...]:
        return tuple(self.shapes.number(place) for place in node.places)

    def _is_final(self, node: Node, step: str | int) -> bool:
        """Return whether an invalid part makes the whole invalid, with any text after the part."""
        if len(node.places) != 1 or self._checks.plan(node.places[0]).taints:
            return False
        if isinstance(step, int):
            return len(self.shapes.arrays(node.places[0])) == 1
        shapes = node.shape(node.children[node.steps[step]].start)
        if len(shapes) != 1 or step not in shapes[0].fields:
            return False
        # A field's validators get the earlier fields of its class.
        keys = list(shapes[0].fields)
        earlier = keys[: keys.index(step)]
        if self._checks.in_order:
            earlier = [key for key in earlier if key in node.steps]
        return all(node.steps.get(key, NEVER) < node.steps[step] for key in earlier)


HereReading: TypeAlias = "WholeReading | JsonReading"
"""One output, checked in this process."""


def _child(node: Node, step: Any) -> Node | None:
    """Return the part of a value for a step of Pydantic's location; None if the step is not a
    part."""
    if node.kind == "array" and isinstance(step, int) and step < len(node.children):
        return node.children[step]
    # If a key was written twice, it is unknown which one is meant.
    is_clear = len(node.steps) == len(node.children)
    if node.kind == "object" and isinstance(step, str) and step in node.steps and is_clear:
        return node.children[node.steps[step]]
    return None


def _problems(error: ParseError) -> list[Mapping[str, Any]]:
    """Return Pydantic's errors, if Pydantic refused the text."""
    cause = error.__cause__
    list_errors = getattr(cause, "errors", None)
    if not callable(list_errors):
        return []
    found: list[Mapping[str, Any]] = list_errors(include_url=False, include_context=False)
    return found
