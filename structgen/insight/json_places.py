"""Read JSON byte by byte as it is written: what opens, grows and closes, and where a byte belongs.

`JsonReader` reports events, with strings unescaped exactly, wherever the bytes are cut. A mask or
another reader has accepted the document, so nothing is checked or repaired. A value closes when its
last byte is certain: a number closes with the byte after it. Knows no types, tokens or schemas.

    reader = JsonReader()
    for event in reader.feed(b'{"name":"Ann","age":3'):   # what these bytes have settled
        ...                                                # Closed(("name",), 8, 13), …
    reader.finish()                                        # the document has ended

`check_values` checks foreign JSON before other code reads it. `ByteReader` reads a text with a
constraint's automaton byte by byte, while cursors move from token to token.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, TypeAlias, cast

from structgen.automaton.core import DEAD, NeedsText, TextHistory
from structgen.automaton.texts import Text
from structgen.constraint import Constraint, Cursor
from structgen.grammar.json_schema import child_path
from structgen.storage.user_folder import n_values

Path: TypeAlias = "tuple[str | int, ...]"
"""The path of a value: the keys and indices that lead to it; ``()`` is the document itself."""

Kind: TypeAlias = Literal["object", "array", "string", "other"]
"""The kind of a value; ``other``: a number, a boolean or null."""

_QUOTE, _COMMA, _COLON = 0x22, 0x2C, 0x3A
_BLANK = frozenset(b" \t\n\r")
_ENDS = frozenset(b" \t\n\r,]}")
_PLAIN = re.compile(rb'[^"\\]*')
_STRING = re.compile(r'"[^"\r\n]*"?')  # without escapes; ends at the latest with its line

ESCAPE = re.compile(
    rb"\\[^u]"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])",
    re.DOTALL,
)
"""One escaped character of a JSON string, which may be a surrogate pair. A first half waits for the
next characters, and stands alone if they cannot be the second."""

_LONGEST_ESCAPE = 12


@lru_cache(maxsize=256)
def _character(escape: bytes) -> str:
    text: str = json.loads(b'"%b"' % escape)
    return text


@dataclass(frozen=True, slots=True)
class Opened:
    """A value has begun, at byte ``start`` of the document."""

    path: Path
    kind: Kind
    start: int


@dataclass(frozen=True, slots=True)
class Grown:
    """The open string continues with ``text``, unescaped, which will not change."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A value is complete: the bytes from ``start`` to before ``end`` of the document."""

    path: Path
    kind: Kind
    start: int
    end: int


Event: TypeAlias = "Opened | Grown | Closed"


class JsonReader:
    """Reads a document and reports its events, each once, in order.

    Attributes:
        n_bytes: number of bytes read.
        open_start: offset of the first byte of the string, number or word being read, or -1.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        # For each open container: where it began, whether it is an array, and the step to the open
        # or next value: a key, an index, or None while the key is not known.
        self._starts: list[int] = []
        self._is_array: list[bool] = []
        self._steps: list[str | int | None] = []
        self._is_in_string = False  # or a key
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogatepass").decode
        self._held = b""  # the beginning of an unfinished escape
        self._begin = 0  # offset at which the value or key being read begins
        self._key: list[str] | None = None  # the pieces of the key being read
        self._is_between = False  # whether a value has closed and no comma has followed
        self.open_start = -1

    @property
    def path(self) -> str:
        """The JSON path of the value that the next byte belongs to; between values, and in a key,
        of their container."""
        return child_path("$", *self._path(self._steps[:-1] if self._is_between else self._steps))

    def path_of(self, byte: int) -> str:
        """Return the path of ``byte`` if it comes next: `path`, unless it ends a value."""
        if not self._is_in_string and (byte in b"]}" or (self.open_start >= 0 and byte in _ENDS)):
            return child_path("$", *self._path(self._steps[:-1]))
        return self.path

    def feed(self, data: bytes) -> list[Event]:
        """Read more of the document, and return the events that it settles.

        Cost: each byte is read once.
        """
        events: list[Event] = []
        self._begin = self.n_bytes - len(self._held)
        data, self._held = self._held + data, b""
        at = 0
        while at < len(data):
            if self._is_in_string:
                at = self._in_string(data, at, events)
            else:
                byte = data[at]
                if self.open_start >= 0 and byte in _ENDS:
                    self._close_scalar("other", self._begin + at, events)
                if byte not in _BLANK:
                    self._outside(byte, self._begin + at, events)
                at += 1
        self.n_bytes = self._begin + len(data)
        return events

    def finish(self) -> list[Event]:
        """End the document, and with it a number or word at its end."""
        events: list[Event] = []
        if self.open_start >= 0 and not self._is_in_string:
            self._close_scalar("other", self.n_bytes, events)
        return events

    def _in_string(self, data: bytes, at: int, events: list[Event]) -> int:
        """Read on in a string; return the index in ``data`` at which to continue."""
        pieces: list[str] = []
        while True:
            run = _PLAIN.match(data, at)
            assert run is not None
            pieces.append(self._decode(run[0]))
            at = run.end()
            escape = ESCAPE.match(data, at)
            if escape is None:
                break
            pieces.append(_character(escape[0]))
            at = escape.end()
        self._grow("".join(pieces), events)
        if data[at : at + 1] != b'"':
            self._held = data[at:]
            if len(self._held) >= _LONGEST_ESCAPE:
                raise ValueError("it has an escape that is not in JSON")
            return len(data)
        self._is_in_string = False
        if self._key is None:
            self._close_scalar("string", self._begin + at + 1, events)
        else:
            self._steps[-1] = "".join(self._key)
            self._key = None
        return at + 1

    def _grow(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._key is not None:
            self._key.append(text)
        else:
            events.append(Grown(self._path(self._steps), text))

    def _outside(self, byte: int, at: int, events: list[Event]) -> None:
        if byte in b"{[":
            is_array = byte == 0x5B
            events.append(Opened(self._path(self._steps), "array" if is_array else "object", at))
            self._starts.append(at)
            self._is_array.append(is_array)
            self._steps.append(0 if is_array else None)
            self._is_between = False
        elif byte in b"}]":
            is_array = self._is_array.pop()
            self._steps.pop()
            start = self._starts.pop()
            kind: Kind = "array" if is_array else "object"
            events.append(Closed(self._path(self._steps), kind, start, at + 1))
            self._is_between = True
        elif byte == _COMMA:
            step = self._steps[-1]
            self._steps[-1] = step + 1 if isinstance(step, int) else None
            self._is_between = False
        elif byte == _QUOTE:
            self._is_in_string = True
            if self._steps and self._steps[-1] is None:
                self._key = []
            else:
                self.open_start = at
                events.append(Opened(self._path(self._steps), "string", at))
        elif byte != _COLON and self.open_start < 0:
            self.open_start = at
            events.append(Opened(self._path(self._steps), "other", at))

    def _close_scalar(self, kind: Kind, end: int, events: list[Event]) -> None:
        events.append(Closed(self._path(self._steps), kind, self.open_start, end))
        self.open_start = -1
        self._is_between = True

    @staticmethod
    def _path(steps: list[str | int | None]) -> Path:
        # Only the last step may be unknown. Copied in one go: each event of a deep value has one.
        return cast("Path", tuple(steps[:-1] if steps and steps[-1] is None else steps))


def scalars(events: Iterable[Event]) -> list[Closed]:
    """Return the scalars that some events close."""
    return [e for e in events if isinstance(e, Closed) and e.kind in ("string", "other")]


class ByteReader:
    """A text being read.

    Attributes:
        machine: the automaton.
        state: the state after the text; `DEAD` if it was refused.
    """

    def __init__(
        self, constraint: Constraint, read: bytes = b"", cursor: Cursor | None = None
    ) -> None:
        """Read a text; ``cursor``: one that has read it, so that it is not read again."""
        self._engine = constraint._ready() if cursor is None else cursor.engine
        self.machine = self._engine.machine
        self.state = self.machine.start
        self._read = bytearray()
        self._tape = TextHistory()
        self._on_tape = 0
        if cursor is None:
            self.read(read)
        else:
            self.state, self._read = cursor.state, bytearray(read)

    @property
    def length(self) -> int:
        """The number of bytes read."""
        return len(self._read)

    def read(self, data: bytes) -> None:
        """Read more of the text."""
        for byte in data:
            self.state = self.step(self.state, byte, bytes([byte]))
            self._read.append(byte)

    def step(self, state: int, byte: int, since: bytes) -> int:
        """Return the state after ``byte``; ``since``: the bytes that follow the text read so far,
        this byte included.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        step = partial(self._step, state, byte, since)
        return self._engine.within_limits(("read", state, byte), step)

    def _step(self, state: int, byte: int, since: bytes) -> int:
        to = self.machine.step(state, byte)
        if to != DEAD and self.machine.is_pending(to):
            to = self.machine.resolve(to, self._tape_now().after(since))
        return to

    def next_bytes(self, state: int) -> set[int]:
        """Return the bytes that may come in ``state``.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.next_bytes, state)
        return self._engine.within_limits(("next", state, 0), find)

    def forced_byte(self) -> int:
        """Return the only byte that may come, or -1.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.forced_byte, self.state)
        return self._engine.within_limits(("forced", self.state, 0), find)

    def shortest_completion(self) -> Text:
        """Return the shortest known text that completes the text read so far.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        return self._engine.within_limits(("finish", self.state, 0), self._completion)

    def _completion(self) -> Text:
        try:
            return self.machine.shortest_completion(self.state)
        except NeedsText:
            return self.machine.shortest_completion(self.state, self._tape_now())

    def _tape_now(self) -> TextHistory:
        # Computed only on request, which is when the text is JSON: a tape reads nothing else.
        self._tape.feed(bytes(self._read[self._on_tape :]))
        self._on_tape = len(self._read)
        return self._tape


def check_values(text: str, most: int) -> tuple[str, str]:
    """Refuse JSON text with more values.

    Returns:
        The text outside of strings, and the whole text without escapes that hide a string's end.

    Raises:
        ValueError: it has more values, or is not UTF-8.
    """
    if "\0" in text:  # as in UTF-16, which JSON readers detect by it, and in which quotes differ
        raise ValueError("it has a NUL, which JSON in UTF-8 cannot have")
    # Without such escapes, every second part is outside of strings. Not so in events of a stream,
    # whose other lines may have a quote.
    bare = text.replace("\\\\", "__").replace('\\"', "__")
    quotes = bare.count('"')
    if quotes <= 4 * most:
        has_lines = "\n" in bare or "\r" in bare
        outside = _STRING.sub("", bare) if has_lines else "".join(bare.split('"')[::2])
    if quotes > 4 * most or n_values(outside) > most:
        raise ValueError(f"it has more than {most:,} values")
    return outside, bare
