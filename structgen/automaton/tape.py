"""The text of one JSON document so far, as far as frames that record need it.

A `Tape` reads bytes one by one and knows where the last string and the current item of each open
array began. It checks nothing: the automaton has done that. It exists because machine states are
shared by all sequences and hold no text.
"""

from __future__ import annotations

_QUOTE, _BACKSLASH, _COMMA = 0x22, 0x5C, 0x2C
_OPEN, _CLOSE = (0x5B, 0x7B), (0x5D, 0x7D)


class Tape:
    """The bytes written so far, with the places where values started."""

    __slots__ = ("_data", "_escaped", "_in_string", "_key", "_starts", "_string_start")

    def __init__(self) -> None:
        self._data = bytearray()
        self._starts: list[int] = []
        self._in_string = False
        self._escaped = False
        self._string_start = 0
        self._key = (0, 0)

    def feed(self, data: bytes) -> None:
        """Read ``data``."""
        for byte in data:
            self._data.append(byte)
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif byte == _BACKSLASH:
                    self._escaped = True
                elif byte == _QUOTE:
                    self._in_string = False
                    self._key = (self._string_start, len(self._data))
            elif byte == _QUOTE:
                self._in_string = True
                self._string_start = len(self._data) - 1
            elif byte in _OPEN:
                self._starts.append(len(self._data))
            elif byte in _CLOSE:
                self._starts.pop()
            elif byte == _COMMA:
                self._starts[-1] = len(self._data)

    def after(self, data: bytes) -> Tape:
        """A new tape with ``data`` read as well."""
        other = Tape()
        other._data = bytearray(self._data)
        other._starts = list(self._starts)
        other._in_string = self._in_string
        other._escaped = self._escaped
        other._string_start = self._string_start
        other._key = self._key
        other.feed(data)
        return other

    def text(self, outcome: int) -> bytes:
        """What a recording frame has just been given: after outcome 0 the array item that has
        ended here, else the last string, which is the key."""
        if outcome == 0:
            return bytes(self._data[self._starts[-1] :])
        start, end = self._key
        return bytes(self._data[start:end])
