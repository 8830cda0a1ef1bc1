"""A document that is being written, as a tree that only grows.

Each node stores the offsets at which its parts were settled, so the document at any earlier offset
can be viewed without a copy. The cost of adding a token depends only on its bytes, not on the
document. Does not know `partial`; `structgen.insight.JsonReader` reads the bytes.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from typing import Any, TypeAlias

from structgen.errors import ParseError
from structgen.insight import Closed, Event, Grown, JsonReader, Kind, Opened

from .shapes import ArrayShape, ObjectShape, Place, Shapes

NEVER = 1 << 62
"""An offset beyond any document."""

MISSING: Any = object()
"""Replaces an unknown value."""

Candidates: TypeAlias = "tuple[ObjectShape, ...]"


class Node:
    """One value of the document.

    Attributes:
        kind: its kind.
        places: its possible types, as known at its start.
        start: offset of its first byte.
        end: offset after its last byte; `NEVER` while it is open.
        settled: the offset from which it is known to be complete.
        steps: for an object: its keys, in order, with the indexes of their values in ``children``.
        children: for an object or array: its values, in order.
        pieces: for a string: its text so far, in pieces; ``marks``: the offset from which each is
            known.
        shapes: for an object: its possible shapes, each with the offset from which it applies.
    """

    __slots__ = (
        *("children", "end", "kind", "marks", "pieces", "places"),
        *("settled", "shapes", "start", "steps", "values"),
    )

    def __init__(self, kind: Kind, places: tuple[Place, ...], start: int) -> None:
        self.kind = kind
        self.places = places
        self.start = start
        self.end = self.settled = NEVER
        self.steps: dict[str, int] = {}
        self.children: list[Node] = []
        self.pieces: list[str] = []
        self.marks: list[int] = []
        self.shapes: list[tuple[int, Candidates]] = []
        self.values: dict[tuple[Place, ...], Any] = {}

    def text(self, at: int) -> str:
        """Return a string's text as it was at an offset."""
        return "".join(self.pieces[: bisect_right(self.marks, at)])

    def n_begun(self, at: int) -> int:
        """Return how many values of an object or array had begun at an offset."""
        return bisect_left(self.children, at, key=lambda child: child.start)

    def shape(self, at: int) -> Candidates:
        """Return the possible shapes of an object at an offset."""
        found: Candidates = ()
        for since, shapes in self.shapes:
            if since > at:
                break
            found = shapes
        return found


class Document:
    """A document that is being written.

    Attributes:
        shapes: the shapes of its parts.
        root: its value, None until it has begun.
        n_bytes: its length so far.
        n_changes: the number of visible changes so far.
        data: the bytes.
        reader: the JSON reader.
        open: the open values, each inside the previous one.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.root: Node | None = None
        self.n_bytes = 0
        self.n_changes = 0
        self.data = bytearray()
        self.reader = JsonReader()
        self.open: list[Node] = []
        self._arrays: list[tuple[ArrayShape, ...]] = []

    def feed(self, data: bytes) -> None:
        """Read more of the document."""
        self.data += data
        self.n_bytes += len(data)
        for event in self.reader.feed(data):
            self.take(event)

    def finish(self) -> None:
        """End the document."""
        self.n_bytes += 1  # a number that ends here is settled from here on
        for event in self.reader.finish():
            self.take(event)

    def take(self, event: Event) -> None:
        """Process an event of the reader."""
        if isinstance(event, Grown):
            node = self.open[-1]
            node.pieces.append(event.text)
            node.marks.append(self.n_bytes)
            self.n_changes += self._grows(node)
        elif isinstance(event, Opened):
            self._begin(event)
        else:
            self._end(event)

    def _begin(self, event: Opened) -> None:
        if self.open:
            parent, step = self.open[-1], event.path[-1]
            places = self._inside(parent, step)
            node = Node(event.kind, places, event.start)
            if isinstance(step, str):
                # A map may have a key twice. Visible parts stay; the last one counts in the value.
                parent.steps.setdefault(step, len(parent.children))
            parent.children.append(node)
        else:
            places = (self.shapes.root,)
            self.root = node = Node(event.kind, places, event.start)
        self.open.append(node)
        arrays: list[ArrayShape] = []
        if event.kind == "object":
            found = [shape for place in places for shape in self.shapes.objects(place)]
            node.shapes.append((event.start, tuple(found)))
        elif event.kind == "array":
            arrays = [shape for place in places for shape in self.shapes.arrays(place)]
        self._arrays.append(tuple(arrays))
        if event.kind in ("object", "array") or self._grows(node):
            self.n_changes += 1

    def _inside(self, parent: Node, step: str | int) -> tuple[Place, ...]:
        """Return the possible types of a value, given its parent."""
        if isinstance(step, int):
            found = [
                shape.first[step] if step < len(shape.first) else shape.others
                for shape in self._arrays[-1]
            ]
        else:
            shapes = parent.shapes[-1][1]
            fit = tuple(one for one in shapes if step in one.fields or one.others is not None)
            if fit and len(fit) < len(shapes):
                parent.shapes.append((self.n_bytes, fit))
                self.n_changes += 1
            found = [one.fields[step][1] if step in one.fields else one.others for one in fit]
        return tuple(dict.fromkeys(place for place in found if place is not None))

    def _end(self, event: Closed) -> None:
        node = self.open.pop()
        self._arrays.pop()
        node.end, node.settled = event.end, self.n_bytes
        if not event.path:
            return  # the end of the output is reported later
        self.n_changes += 1
        if isinstance(event.path[-1], str):
            self._compare_tag(self.open[-1], event.path[-1], node)

    def _compare_tag(self, parent: Node, key: str, node: Node) -> None:
        """Exclude candidates by a discriminating field that has just closed."""
        shapes = parent.shapes[-1][1]
        if len(shapes) < 2 or node.kind not in ("string", "other"):
            return
        value = node.text(self.n_bytes) if node.kind == "string" else self.raw(node)
        fit = tuple(
            one for one in shapes if not one.tags or key not in one.tags or value in one.tags[key]
        )
        if fit and len(fit) < len(shapes):
            parent.shapes.append((self.n_bytes, fit))

    def _grows(self, node: Node) -> bool:
        return bool(node.places) and all(map(self.shapes.grows, node.places))

    def grows(self, node: Node) -> bool:
        """Return whether a string is visible while it is written."""
        return node.kind == "string" and self._grows(node)

    def raw(self, node: Node) -> Any:
        """Return a complete value as from `json.loads`."""
        return json.loads(self.data[node.start : node.end])

    def value(self, node: Node, places: tuple[Place, ...]) -> Any:
        """Return a complete value of its type; `MISSING` if the type is not known yet.

        Args:
            node: the value.
            places: its possible types, as known now.

        Raises:
            ParseError: its own checks refuse it.
        """
        if places not in node.values:
            node.values[places] = self._value(node, places)
        found = node.values[places]
        if isinstance(found, ParseError):
            raise found
        return found

    def _value(self, node: Node, places: tuple[Place, ...]) -> Any:
        parsers = [parse for place in places if (parse := self.shapes.parser(place)) is not None]
        if not parsers or len(parsers) < len(places):
            return MISSING
        text = self.data[node.start : node.end].decode("utf-8", "surrogatepass")
        values, refused = [], None
        for parse in parsers:
            try:
                values.append(parse(text))
            except ParseError as error:
                refused = error
        if len(parsers) == 1 and refused is not None:
            return refused
        if refused is not None or any(not _is_same(values[0], one) for one in values[1:]):
            return MISSING
        return values[0]


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    try:
        return bool(one == other)
    except Exception:  # a class's own comparison may raise anything
        return False
