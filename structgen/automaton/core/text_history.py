"""The text so far, as far as frames that record need it.

A `TextHistory` holds bytes and, asked what a frame has just been given, reads them backwards: the
last string, or the current item of the innermost open array. It checks nothing: the automaton has
done that, and only for the JSON that is open; what a grammar puts before it is not looked at. It
exists because machine states are shared by all sequences and hold no text.
"""

from __future__ import annotations

_QUOTE, _BACKSLASH, _COMMA = 0x22, 0x5C, 0x2C
_OPEN, _CLOSE = (0x5B, 0x7B), (0x5D, 0x7D)


class TextHistory:
    """The bytes written so far."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Read ``data``."""
        self._data += data

    def after(self, data: bytes) -> TextHistory:
        """A new tape with ``data`` read as well."""
        other = TextHistory()
        other._data = self._data + data
        return other

    def text(self, outcome: int) -> bytes:
        """What a recording frame has just been given: after outcome 0 the array item that has
        ended here, else the last string, which is the key. Cost: its length."""
        if outcome == 0:
            return bytes(self._data[self._start_of_item() :])
        end = self._data.rindex(_QUOTE)
        return bytes(self._data[self._opening(end) : end + 1])

    def open_string(self) -> bytes:
        """The string that is still open at the end of the text, from its opening quote on."""
        return bytes(self._data[self._opening(len(self._data)) :])

    def _start_of_item(self) -> int:
        data = self._data
        at, depth = len(data) - 1, 0
        while True:
            byte = data[at]
            if byte == _QUOTE:
                at = self._opening(at)
            elif byte in _CLOSE:
                depth += 1
            elif byte in _OPEN:
                depth -= 1
                if depth < 0:
                    return at + 1
            elif byte == _COMMA and not depth:
                return at + 1
            at -= 1

    def _opening(self, closing: int) -> int:
        """The opening quote of the string that ``closing`` closes: before it stands no backslash,
        before a quote inside an odd number of them."""
        data = self._data
        while True:
            closing = data.rindex(_QUOTE, 0, closing)
            at = closing
            while at and data[at - 1] == _BACKSLASH:
                at -= 1
            if (closing - at) % 2 == 0:
                return closing
