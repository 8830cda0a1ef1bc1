"""The interface between a machine and its frames.

A `Frame` is a kind of open value. When the leaf above it ends with an outcome, the frame returns
how the text may continue, each way an `Alternative`, and how to close the value in the fewest
bytes.

A `TextHistory` holds the text so far, for frames that need it. It is read backwards: the last
string, or the current item of the innermost open array.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from structgen.automaton.texts import Text

from .leaf import Leaf


class Frame:
    """A kind of open value. ``at`` is the frame's own integer state.

    By default, its continuation does not depend on the text.

    Attributes:
        nests: whether the frame counts towards the depth of the stack.
        limit: the depth of the stack, this frame included, from which the frame is resumed as
            ``limited``.
        may_record: whether `records` can ever be true; rare.
    """

    nests: bool
    limit: int
    may_record = False

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """Return the alternatives that may follow when the leaf above ends with ``outcome``.

        ``text`` is given if `records` is true. ``limited``: the stack is near its bound, so frames
        pushed from here on must limit their own depth.
        """
        raise NotImplementedError

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """Return the fewest bytes that close this frame after ``outcome``, or an upper bound.

        ``text`` is only needed if `records` and `finish_reads` are true. In a state that has
        forgotten which values are barred (see `forget`), the result is as long as may be needed,
        but not the real bytes.
        """
        raise NotImplementedError

    def records(self, at: int, outcome: int) -> bool:
        """Return whether the continuation depends on the key or item that was just written."""
        return False

    def forget(self, at: int, outcome: int) -> int | None:
        """Return a state with the same continuation after all texts, up to the end of the next
        value inside, for a frame whose continuation depends on the text (`records`).

        Do not resume the frame in that state; it only promises that some value is possible. None if
        there is no such state.
        """
        return None

    def forgotten(self, at: int) -> int:
        """Return the most values that the next one must differ from, in such a state and those that
        follow; 0 in all others."""
        return 0

    def otherwise(self, at: int, outcome: int) -> tuple[Frame, int, Collection[Any]] | None:
        """Return a frame and state that replace it after all texts except certain values, and these
        values, if the continuation depends on the text (`records`)."""
        return None

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Return whether `finish` depends on the text, where `records` says that `resume` does."""
        return False

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """Return `finish` for all texts except certain values, and a superset of these values, if
        it depends on the text; None if unknown."""
        return None

    def finish_most(self, at: int, outcome: int) -> int | None:
        """Return an upper bound on the bytes of `finish`, if it depends on the text; None if
        unknown."""
        return None

    def preferred(self, at: int) -> int | None:
        """Return the outcome with which `finish` would end the leaf above; None for any."""
        return None


class Released(Protocol):
    """An object that lives as long as a machine."""

    def release(self) -> None:
        """Drop all references back to the machine."""


class NeedsText(Exception):
    """The answer depends on text that a state does not hold; call again with a `TextHistory`."""


class Alternative:
    """One way to continue: ``leaf`` in state ``q``, over ``frames`` (top first) pushed on the
    stack.

    Without a leaf, no byte is read: the topmost frame below is resumed with outcome 0.
    """

    __slots__ = ("frames", "leaf", "q")

    def __init__(
        self, leaf: Leaf | None, q: int = 0, frames: tuple[tuple[Frame, int], ...] = ()
    ) -> None:
        self.leaf = leaf
        self.q = q
        self.frames = frames


POP = (Alternative(None),)


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
        """Return a copy that has read ``data`` as well."""
        other = TextHistory()
        other._data = self._data + data
        return other

    def text(self, outcome: int) -> bytes:
        """Return the text for a recording frame: after outcome 0 the array item that ends here,
        otherwise the last string, which is the key. Cost: its length."""
        if outcome == 0:
            return bytes(self._data[self._start_of_item() :])
        end = self._data.rindex(_QUOTE)
        return bytes(self._data[self._opening(end) : end + 1])

    def open_string(self) -> bytes:
        """Return the string still open at the end of the text, from its opening quote."""
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
        """Return the position of the opening quote for ``closing``: no backslash precedes it, while
        an odd number of them precedes a quote inside."""
        data = self._data
        while True:
            closing = data.rindex(_QUOTE, 0, closing)
            at = closing
            while at and data[at - 1] == _BACKSLASH:
                at -= 1
            if (closing - at) % 2 == 0:
                return closing
