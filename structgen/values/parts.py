"""Values of a text's parts while it is written: the holes of a template, the pieces of tagged text.

Owns what of each part is there. Where parts begin and end is said by a `PartReader` of the output
type; what grows inside of one is a growing value of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from structgen.errors import ParseError
from structgen.types import OutputType, PartReader


class Grows(Protocol):
    """A value that grows, see `growing.GrowingValue`."""

    @property
    def is_text(self) -> bool:
        """Whether the value is the text."""

    def feed(self, text: str) -> Any:
        """The text goes on; returns what there is, or None where nothing is new."""


class Seen(NamedTuple):
    """A part that is there.

    Attributes:
        value: as far as it is there; a `ParseError` where its own checks refuse it.
        is_done: whether it is whole.
    """

    value: Any
    is_done: bool

    def read(self) -> Any:
        """The value.

        Raises:
            ParseError: its own checks refuse it.
        """
        if isinstance(self.value, ParseError):
            raise self.value
        return self.value


class GrowingParts:
    """The parts of one text.

    Attributes:
        seen: by name or index, those that are there; a new dict whenever one has changed.

    Args:
        reader: what divides the text.
        begin: begins the value of a part.
    """

    def __init__(self, reader: PartReader, begin: Callable[[OutputType], Grows]) -> None:
        self._reader = reader
        self._begin = begin
        self._open: Grows | None = None
        self._pieces: list[str] = []
        self.seen: dict[str | int, Seen] = {}

    def feed(self, text: str) -> bool:
        """The text goes on; returns whether something new is there."""
        before = self.seen
        for part, more, is_closed in self._reader.feed(text):
            self._pieces.append(more)
            value: Any = None
            if is_closed:
                try:
                    value = part.output.parse("".join(self._pieces))
                except ParseError as error:
                    value = error
                self._open, self._pieces = None, []
            else:
                if self._open is None:
                    self._open = self._begin(part.output)
                value = self._open.feed(more)
                if value is None:
                    continue
                if self._open.is_text:  # a str grows as it does in JSON
                    value = value.so_far
            self.seen = {**self.seen, part.step: Seen(value, is_closed)}
        return self.seen is not before
