"""Where in a JSON document a byte stands: paths and the spans of scalars, read byte by byte.

It owns reading a document that something else has checked: it never complains. It knows nothing of
schemas, automata and tokens. (`automaton.tape` reads too, for the automaton's own needs; it is on
the path of every mask and knows neither keys nor numbers.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass

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
