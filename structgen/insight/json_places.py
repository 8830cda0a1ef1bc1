"""Where in a JSON document a byte stands: paths and the spans of scalars, read byte by byte.

It owns reading a document that something else has checked: it never complains. It knows nothing of
schemas, automata and tokens. (`automaton.tape` reads too, for the automaton's own needs; it is on
the path of every mask and knows neither keys nor numbers.)

`ByteReader` reads a text with a constraint's automaton, for those who ask about places in it:
cursors go from token to token, this goes inside a token, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from structgen.automaton.core import DEAD, NeedsText, TextHistory
from structgen.automaton.texts import Text
from structgen.constraint import Constraint
from structgen.grammar.json_schema import child_path

_QUOTE, _BACKSLASH = 0x22, 0x5C
_BLANK = frozenset(b" \t\n\r")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, number, boolean or null of a document.

    Attributes:
        path: its JSON path, ``$`` for the document itself.
        start: offset of its first byte.
        end: offset behind its last byte.
    """

    path: str
    start: int
    end: int


class JsonPlaces:
    """Reads a document and knows the place it has come to.

    Attributes:
        scalars: the values that have ended, other than objects and arrays, in order.
    """

    def __init__(self) -> None:
        self.scalars: list[Scalar] = []
        self._at = 0
        # For each open container: how many values it has begun, and the step to the one that is
        # open or comes next: a key, an index, or None between values.
        self._counts: list[int] = []
        self._is_array: list[bool] = []
        self._steps: list[str | int | None] = []
        self._path = "$"
        self._key: bytearray | None = None  # the key being read
        self._start = -1  # of the scalar being read
        self._quoted = False
        self._escaped = False

    @property
    def path(self) -> str:
        """The path of the value that the next byte belongs to; between the values of an object or
        array, and in a key, that of the object or array."""
        return self._path

    @property
    def open_start(self) -> int:
        """Offset of the first byte of the string, number or word that is being read, or -1."""
        return self._start

    def path_of(self, byte: int) -> str:
        """The path that ``byte`` belongs to if it comes next: `path`, unless it ends a value."""
        if not self._quoted and (
            byte in b"]}" or (self._start >= 0 and (byte == 0x2C or byte in _BLANK))
        ):
            return child_path("$", *(step for step in self._steps[:-1] if step is not None))
        return self._path

    def feed(self, data: bytes) -> None:
        """Read more of the document."""
        for byte in data:
            if self._quoted:
                self._in_quotes(byte)
            else:
                if self._start >= 0 and (byte in _BLANK or byte in b",]}"):
                    self._end_scalar(self._at)
                self._outside(byte)
            self._at += 1

    def finish(self) -> None:
        """The document has ended, and with it a number or word that nothing else ends."""
        if self._start >= 0 and not self._quoted:
            self._end_scalar(self._at)

    def _in_quotes(self, byte: int) -> None:
        if self._key is not None:
            self._key.append(byte)
        if self._escaped:
            self._escaped = False
        elif byte == _BACKSLASH:
            self._escaped = True
        elif byte == _QUOTE:
            self._quoted = False
            if self._key is None:
                self._end_scalar(self._at + 1)
            else:
                self._step_to(json.loads(self._key))
                self._key = None

    def _outside(self, byte: int) -> None:
        if byte in b"{[":
            self._counts.append(0)
            self._is_array.append(byte == 0x5B)
            self._steps.append(None)
            if byte == 0x5B:
                self._step_to(0)
            else:
                self._set_path()
        elif byte in b"}]":
            self._counts.pop()
            self._is_array.pop()
            self._steps.pop()
            self._leave()
        elif byte == 0x2C:
            self._counts[-1] += 1
            if self._is_array[-1]:
                self._step_to(self._counts[-1])
        elif byte == _QUOTE:
            self._quoted = True
            if self._steps and self._steps[-1] is None:
                self._key = bytearray(b'"')
            else:
                self._start = self._at
        elif byte != 0x3A and byte not in _BLANK and self._start < 0:
            self._start = self._at

    def _end_scalar(self, end: int) -> None:
        self.scalars.append(Scalar(self._path, self._start, end))
        self._start = -1
        self._leave()

    def _leave(self) -> None:
        """A value has ended: what comes next belongs to the container."""
        if self._steps:
            self._steps[-1] = None
        self._set_path()

    def _step_to(self, step: str | int) -> None:
        self._steps[-1] = step
        self._set_path()

    def _set_path(self) -> None:
        self._path = child_path("$", *(step for step in self._steps if step is not None))


class ByteReader:
    """A text being read.

    Attributes:
        machine: the automaton.
        state: where in it the text has led to, `DEAD` if nowhere.
    """

    def __init__(self, constraint: Constraint) -> None:
        self._engine = constraint._ready()
        self.machine = self._engine.machine
        self.state = self.machine.start
        self._read = bytearray()
        self._tape = TextHistory()
        self._on_tape = 0

    @property
    def length(self) -> int:
        """Bytes read."""
        return len(self._read)

    def go_on(self, data: bytes) -> None:
        """Read more of the text."""
        for byte in data:
            self.state = self.step(self.state, byte, bytes([byte]))
            self._read.append(byte)

    def step(self, state: int, byte: int, since: bytes) -> int:
        """The state after ``byte``; ``since`` is what leads there from what has been read, with
        that byte.

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
        """The bytes that may come in ``state``.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.next_bytes, state)
        return self._engine.within_limits(("next", state, 0), find)

    def forced_byte(self) -> int:
        """The only byte that may come, or -1.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.forced_byte, self.state)
        return self._engine.within_limits(("forced", self.state, 0), find)

    def shortest_completion(self) -> Text:
        """The shortest text that finishes what has been read, as far as one is known.

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
        # Written only when it is asked for, which is when the text is JSON: a tape reads nothing
        # else.
        self._tape.feed(bytes(self._read[self._on_tape :]))
        self._on_tape = len(self._read)
        return self._tape
