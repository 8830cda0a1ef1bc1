"""Output types put together: one of several (`AnyOf`), or one after the other (`Joined`).

Owns what ``|`` and ``+`` make of output types that are objects. Knows neither patterns, which make
a pattern of two patterns, nor grammars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structgen.errors import OutputTypeError

from .typed import Typed


class Combining:
    """An output type that ``|`` and ``+`` take with any other."""

    __slots__ = ()

    def __or__(self, other: Any) -> AnyOf:
        """A text of this, or of another output type."""
        return AnyOf(self, other)

    def __ror__(self, other: Any) -> AnyOf:
        return AnyOf(other, self)

    def __add__(self, other: Any) -> Joined:
        """This, and then the other; the sum parses to its text."""
        found: Joined = joined_with(self, other)
        return found

    def __radd__(self, other: Any) -> Joined:
        found: Joined = joined_with(other, self)
        return found


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(Combining, Typed[Any]):
    """A text of any one of several output types, as each writes it alone; made by ``|``.

    Attributes:
        members: output types; strings stand for themselves.
    """

    members: tuple[Any, ...]

    def __init__(self, *members: Any) -> None:
        flat: list[Any] = []
        for member in members:
            flat += member.members if isinstance(member, AnyOf) else (member,)
        object.__setattr__(self, "members", tuple(flat))

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        raise OutputTypeError(
            f"{self!r} cannot be a part of JSON: each member is a text of its own. For a field, "
            "write a union of types, with Annotated[str, Regex(...)] for strings of a form."
        )

    def __repr__(self) -> str:
        return " | ".join(map(_shown, self.members))


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Combining, Typed[str]):
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
        return " + ".join(f"({p!r})" if isinstance(p, AnyOf) else _shown(p) for p in self.parts)


def joined_with(first: Any, second: Any) -> Any:
    """The sum of two parts, one of which may be a sum; NotImplemented if one is plainly no type."""
    parts: list[Any] = []
    for part in (first, second):
        if part is None or isinstance(part, (int, float, complex, bytes)):
            return NotImplemented
        parts += part.parts if isinstance(part, Joined) else (part,)
    return Joined(tuple(parts))


def _shown(part: Any) -> str:
    return part.__name__ if isinstance(part, type) else repr(part)
