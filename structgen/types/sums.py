"""Output types one after the other, as ``+`` puts them: `Joined`.

Owns what may stand in such a sum. Knows neither patterns, which are sums of their own where all
parts are patterns, nor grammars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structgen.errors import OutputTypeError

from .typed import Typed
from .user import Alternating


class Summed(Alternating):
    """An output type that ``+`` puts before or behind any other; the sum parses to its text."""

    __slots__ = ()

    def __add__(self, other: Any) -> Joined:
        """This, and then the other."""
        found: Joined = joined_with(self, other)
        return found

    def __radd__(self, other: Any) -> Joined:
        found: Joined = joined_with(other, self)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Summed, Typed[str]):
    """Texts and output types one after the other; made by ``+``. Parses to the text.

    Attributes:
        parts: output types; strings stand for themselves.
    """

    parts: tuple[Any, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        raise OutputTypeError(
            f"{self!r} cannot be a part of JSON: it is text with values in it. Write a string's "
            "contents as Regex(...) alone, or the parts as fields."
        )

    def __repr__(self) -> str:
        return " + ".join(
            part.__name__ if isinstance(part, type) else repr(part) for part in self.parts
        )


def joined_with(first: Any, second: Any) -> Any:
    """The sum of two parts, one of which may be a sum; NotImplemented if one is plainly no type."""
    parts: list[Any] = []
    for part in (first, second):
        if part is None or isinstance(part, (int, float, complex, bytes)):
            return NotImplemented
        parts += part.parts if isinstance(part, Joined) else (part,)
    return Joined(tuple(parts))
