"""A document that is being written, as a tree that only grows.

Owns the tree: nodes with the offsets at which each thing was settled, so that the document as it
was at any offset can be seen without a copy. Adding a token costs its bytes, wherever in a document
of whatever size it comes. Knows nothing of how users see it (`partial`).

`JsonReader` reads the bytes: what opens, what grows, what has closed, and the exact unescaping of
strings, wherever the bytes are cut. A mask has let the document through, so nothing is checked and
nothing repaired: a value has closed when its last byte is certain, a number with the byte behind
it. Knows no types, tokens or automata.

    reader = JsonReader()
    for event in reader.feed(b'{"name":"Ann","age":3'):   # what these bytes have settled
        ...                                                # Closed(("name",), 8, 13), …
    reader.finish()                                        # the document has ended
"""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from structgen.errors import ParseError

from .shapes import ArrayShape, ObjectShape, Place, Shapes

Path: TypeAlias = "tuple[str | int, ...]"
"""Where a value is: the keys and indices that lead to it; ``()`` is the document itself."""

Kind: TypeAlias = Literal["object", "array", "string", "other"]
"""What a value is; ``other``: a number, a boolean, null."""

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_BLANK = frozenset(b" \t\n\r")
_ENDS = frozenset(b" \t\n\r,]}")
_PLAIN = re.compile(rb'[^"\\]*')
_SIMPLE = {0x62: "\b", 0x66: "\f", 0x6E: "\n", 0x72: "\r", 0x74: "\t"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A value has begun.

    Attributes:
        path: where it is.
        kind: what it is.
        start: offset of its first byte.
    """

    path: Path
    kind: Kind
    start: int


@dataclass(frozen=True, slots=True)
class Grown:
    """A string, the value that is open, goes on: characters that will not change.

    Attributes:
        path: where it is.
        text: the next of its characters, unescaped.
    """

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A value is whole: bytes ``start`` to ``end`` of the document.

    Attributes:
        path: where it is.
        kind: what it is.
        start: offset of its first byte.
        end: offset behind its last byte.
    """

    path: Path
    kind: Kind
    start: int
    end: int


Event: TypeAlias = "Opened | Grown | Closed"


class Unescaper:
    """The text of a JSON string, from its bytes between the quotes, in pieces of any sizes.

    An escape, a pair of surrogates and a character may each lie across pieces; what is given out is
    certain. Half of a pair that stands alone is kept as it is, as Python's `json` does.
    """

    __slots__ = ("_decode", "_escape", "_high")

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogatepass").decode
        self._escape: bytearray | None = None  # the bytes of an open escape, from its backslash
        self._high = ""  # the first half of a pair, whose other half may come

    def plain(self, data: bytes) -> str:
        """Bytes that are neither a backslash nor part of an escape."""
        return self._alone() + self._decode(data)

    @property
    def in_escape(self) -> bool:
        """Whether the next byte belongs to an escape."""
        return self._escape is not None

    def escape(self, byte: int) -> str:
        """One byte of an escape, its backslash first."""
        if self._escape is None:
            self._escape = bytearray()
            return ""
        self._escape.append(byte)
        if self._escape[0] != 0x75:  # u
            self._escape = None
            return self._alone() + _SIMPLE.get(byte, chr(byte))
        if len(self._escape) < 5:
            return ""
        unit = int(self._escape[1:], 16)
        self._escape = None
        if 0xDC00 <= unit < 0xE000 and self._high:
            pair = 0x10000 + ((ord(self._high) - 0xD800) << 10) + (unit - 0xDC00)
            self._high = ""
            return chr(pair)
        text = self._alone()
        if 0xD800 <= unit < 0xDC00:
            self._high = chr(unit)
            return text
        return text + chr(unit)

    def end(self) -> str:
        """The closing quote has come."""
        return self._alone()

    def _alone(self) -> str:
        """A first half whose other half did not come."""
        high, self._high = self._high, ""
        return high


class JsonReader:
    """Reads a document and tells its events, each once, in order.

    Attributes:
        n_bytes: how many bytes have been read.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        # For each open container: where it began, whether it is an array, and the step to the value
        # that is open or comes next: a key, an index, or None while the key is not known.
        self._starts: list[int] = []
        self._is_array: list[bool] = []
        self._steps: list[str | int | None] = []
        self._string: Unescaper | None = None  # the string or key being read
        self._key: list[str] | None = None  # the pieces of the key being read
        self._start = -1  # of the scalar being read

    def feed(self, data: bytes) -> list[Event]:
        """Read more of the document, and return what it settles.

        Cost: each byte is looked at once.
        """
        events: list[Event] = []
        at, length = 0, len(data)
        while at < length:
            if self._string is not None:
                at = self._in_string(self._string, data, at, events)
            else:
                byte = data[at]
                if self._start >= 0 and byte in _ENDS:
                    self._close_scalar("other", self.n_bytes + at, events)
                if byte not in _BLANK:
                    self._outside(byte, self.n_bytes + at, events)
                at += 1
        self.n_bytes += length
        return events

    def finish(self) -> list[Event]:
        """The document has ended, and with it a number or word that nothing else ends."""
        events: list[Event] = []
        if self._start >= 0 and self._string is None:
            self._close_scalar("other", self.n_bytes, events)
        return events

    def _in_string(self, string: Unescaper, data: bytes, at: int, events: list[Event]) -> int:
        """Read on in a string; returns where."""
        pieces: list[str] = []
        length = len(data)
        while at < length:
            if string.in_escape:
                pieces.append(string.escape(data[at]))
                at += 1
                continue
            run = _PLAIN.match(data, at)
            assert run is not None
            if run.end() > at:
                pieces.append(string.plain(run[0]))
                at = run.end()
                continue
            byte = data[at]
            at += 1
            if byte == _BACKSLASH:
                string.escape(byte)
                continue
            pieces.append(string.end())
            self._grow("".join(pieces), events)
            self._string = None
            if self._key is None:
                self._close_scalar("string", self.n_bytes + at, events)
            else:
                self._steps[-1] = "".join(self._key)
                self._key = None
            return at
        self._grow("".join(pieces), events)
        return at

    def _grow(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._key is not None:
            self._key.append(text)
        else:
            events.append(Grown(self._path(), text))

    def _outside(self, byte: int, at: int, events: list[Event]) -> None:
        if byte in b"{[":
            is_array = byte == 0x5B
            events.append(Opened(self._path(), "array" if is_array else "object", at))
            self._starts.append(at)
            self._is_array.append(is_array)
            self._steps.append(0 if is_array else None)
        elif byte in b"}]":
            is_array = self._is_array.pop()
            self._steps.pop()
            start = self._starts.pop()
            kind: Kind = "array" if is_array else "object"
            events.append(Closed(self._path(), kind, start, at + 1))
        elif byte == _COMMA:
            step = self._steps[-1]
            self._steps[-1] = step + 1 if isinstance(step, int) else None
        elif byte == _QUOTE:
            self._string = Unescaper()
            if self._steps and self._steps[-1] is None:
                self._key = []
            else:
                self._start = at
                events.append(Opened(self._path(), "string", at))
        elif byte != _COLON and self._start < 0:
            self._start = at
            events.append(Opened(self._path(), "other", at))

    def _close_scalar(self, kind: Kind, end: int, events: list[Event]) -> None:
        events.append(Closed(self._path(), kind, self._start, end))
        self._start = -1

    def _path(self) -> Path:
        return tuple(step for step in self._steps if step is not None)


NEVER = 1 << 62
"""An offset that no document reaches."""

MISSING: Any = object()
"""In the place of a value that is not known."""

Candidates: TypeAlias = "tuple[ObjectShape, ...]"


class Node:
    """One value of the document.

    Attributes:
        kind: what it is.
        places: the types it may have, by what was known when it began.
        start: offset of its first byte.
        end: offset behind its last byte, while it is open `NEVER`.
        settled: from which offset on it is known that it is whole.
        steps: of an object: its keys, in their order, and the places of their values in
            ``children``.
        children: of an object or array: the values, in their order.
        pieces: of a string: its text so far, in pieces; ``marks``: from which offset on each is
            known.
        shapes: of an object: what it may be, each with the offset from which on that is so.
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
        """Of a string: its text as it was at an offset."""
        return "".join(self.pieces[: bisect_right(self.marks, at)])

    def n_begun(self, at: int) -> int:
        """Of an object or array: how many of its values had begun at an offset."""
        low, high = 0, len(self.children)
        while low < high:
            middle = (low + high) // 2
            if self.children[middle].start < at:
                low = middle + 1
            else:
                high = middle
        return low

    def shape(self, at: int) -> Candidates:
        """Of an object: what it could be at an offset."""
        found: Candidates = ()
        for since, shapes in self.shapes:
            if since > at:
                break
            found = shapes
        return found


class Document:
    """A document that is being written.

    Attributes:
        shapes: what its parts are.
        root: its value, None until it has begun.
        n_bytes: how much of it there is.
        n_changes: how many things that can be seen have changed.
        data: the document.
        reader: reads it.
        open: the values that have begun and not ended, each inside of the one before.
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
        """The document goes on."""
        self.data += data
        self.n_bytes += len(data)
        for event in self.reader.feed(data):
            self.take(event)

    def finish(self) -> None:
        """The document is whole."""
        self.n_bytes += 1  # from here on a number at its end is settled, and from here only
        for event in self.reader.finish():
            self.take(event)

    def take(self, event: Event) -> None:
        """Grow by what an event of the reader tells."""
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
        parent = self.open[-1] if self.open else None
        if parent is None:
            places: tuple[Place, ...] = (self.shapes.root,)
        else:
            step = event.path[-1]
            places = self._inside(parent, step)
        node = Node(event.kind, places, event.start)
        if parent is None:
            self.root = node
        else:
            if isinstance(step, str):
                # A map may have a key twice. What was seen stays; the last counts in the value.
                parent.steps.setdefault(step, len(parent.children))
            parent.children.append(node)
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
        """The types that a value may have, by what its parent is."""
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
            return  # that the output has ended is told when it has
        self.n_changes += 1
        if isinstance(event.path[-1], str):
            self._compare_tag(self.open[-1], event.path[-1], node)

    def _compare_tag(self, parent: Node, key: str, node: Node) -> None:
        """A field that tells candidates apart has closed: leave out those that it excludes."""
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
        """Whether a string is text that can be seen while it is written."""
        return node.kind == "string" and self._grows(node)

    def raw(self, node: Node) -> Any:
        """A whole value as `json.loads` gives it."""
        return json.loads(self.data[node.start : node.end])

    def value(self, node: Node, places: Sequence[Place] | None = None) -> Any:
        """A whole value as its type has it; `MISSING` where it is not told yet.

        Args:
            node: the value.
            places: the types it may have, by what is known of its object now.

        Raises:
            ParseError: its own checks refuse it.
        """
        places = node.places if places is None else places
        key = tuple(places)
        if key not in node.values:
            node.values[key] = self._value(node, places)
        found = node.values[key]
        if isinstance(found, ParseError):
            raise found
        return found

    def _value(self, node: Node, places: Sequence[Place]) -> Any:
        parsers = [self.shapes.parser(place) for place in places]
        if not parsers or None in parsers:
            return MISSING
        text = self.data[node.start : node.end].decode("utf-8", "surrogatepass")
        values, refused = [], None
        for parse in parsers:
            assert parse is not None
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
