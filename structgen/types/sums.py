"""The base of all output types: their static type, and ``|`` and ``+`` between them.

`Typed` is the base of structgen's own output types. Signatures that take an output type use the
aliases here. ``|`` and ``+`` of output types that are objects make `AnyOf` and `Joined`. Knows
neither patterns, whose sums are patterns, nor grammars.

A type checker infers ``T`` from a Python type by `typing_extensions.TypeForm` (PEP 747), which mypy
2 and pyright understand, for classes, ``Literal``, unions, ``list[int]``, ``Annotated`` and
everything else that may be an annotation. It needs a separate overload, because mypy does not find
a type form in a union with other types. The other kinds share an overload; the default of a type
variable is the value's type if the output type does not name one:

    Own[TextT]       structgen's own, a TypeAdapter      what it says: `Typed`
                     a compiled pattern; None            str, the default of ``TextT``
    TypeForm[T]      a Python type                       T
    Choices[ItemT]   a list, tuple or set of choices     one of them
                     a JSON Schema as a dict             Any, the default of ``ItemT``
    Functions        a function, or several              `structgen.Call`

Types that a checker cannot know, such as the values of a `JsonSchema`, are ``Any``. Streams of a
model have two overloads, ``Others[AnyT]`` and ``TypeForm[T]``: values of output types other than
Python types and `Own` are ``Any``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from structgen.errors import OutputTypeError

if TYPE_CHECKING:
    import enum
    import re
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import date, time
    from decimal import Decimal
    from functools import partial
    from types import CodeType
    from uuid import UUID

    from pydantic import TypeAdapter
    from typing_extensions import TypeVar as TypeVarWithDefault

    T_co = TypeVarWithDefault("T_co", covariant=True, default=Any)
    TextT = TypeVarWithDefault("TextT", default=str)
    ItemT = TypeVarWithDefault("ItemT", bound="Item", default=Any)
    AnyT = TypeVarWithDefault("AnyT", default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)
    TextT = ItemT = AnyT = TypeVar("AnyT")
T = TypeVar("T")


class Typed(Generic[T_co]):
    """An output type that is an object; its texts parse to ``T_co``."""

    __slots__ = ()


class SchemaBuilder(Protocol):
    """GenSON's builder of a JSON Schema."""

    def to_schema(self) -> Any:
        """Return the schema, a dict."""


Own: TypeAlias = "Typed[TextT] | TypeAdapter[TextT] | re.Pattern[str]"
"""Output types that declare the type of their values; and a compiled pattern, which parses to the
text itself."""

Item: TypeAlias = "str | int | float | enum.Enum | date | time | UUID | Decimal | None"
"""The possible items of a list of choices."""

Choices: TypeAlias = (
    "list[ItemT] | tuple[ItemT, ...] | AbstractSet[ItemT] | Mapping[str, Any] | SchemaBuilder"
)
"""A list of choices; or a dict that is clearly a JSON Schema, or a builder of one."""

Functions: TypeAlias = "Callable[..., object] | Sequence[Callable[..., object]]"
"""A function whose arguments the model writes, or several from which it chooses one."""


class _Coded(Protocol):
    @property
    def __code__(self) -> CodeType: ...


_Function: TypeAlias = "_Coded | partial[Any]"
"""A function. A class can be called, too, but has no code."""

Others: TypeAlias = "Own[AnyT] | Choices[Any] | _Function | Sequence[_Function] | None"
"""Everything except Python types. In overloads it comes before ``TypeForm[T]``, which accepts None.
"""


class Combining:
    """An output type that ``|`` and ``+`` combine with any other.

    Attributes:
        no_json: why it cannot be inside a Pydantic type, and the fix.
    """

    __slots__ = ()

    no_json: ClassVar[str] = (
        "it is a separate output type. For a field, use a Python type, such as Annotated[str, "
        "Regex(...)] for strings."
    )

    def __or__(self, other: Any) -> AnyOf:
        """Return a text of this, or of another output type."""
        return AnyOf(self, other)

    def __ror__(self, other: Any) -> AnyOf:
        return AnyOf(other, self)

    def __add__(self, other: Any) -> Joined:
        """Return this followed by the other; the sum parses to its text."""
        found: Joined = joined_with(self, other)
        return found

    def __radd__(self, other: Any) -> Joined:
        found: Joined = joined_with(other, self)
        return found

    def optional(self) -> Repeated:
        """Return one text of this, or the empty text."""
        return Repeated(self, 0, 1)

    def times(self, least: int, most: int | None = None) -> Repeated:
        """Return ``least`` texts of this in a row, or with ``most`` from ``least`` to ``most``."""
        return Repeated(self, least, least if most is None else most)

    def many(self) -> Repeated:
        """Return any number of texts of this in a row, including none."""
        return Repeated(self, 0, None)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        # If the class itself is the type, it is passed in place of the instance.
        shown = self.__name__ if isinstance(self, type) else repr(self)
        raise OutputTypeError(f"{shown} cannot be part of a JSON value: {self.no_json}")


@dataclass(frozen=True, slots=True, init=False)
class AnyOf(Combining, Typed[Any]):
    """A text of one of several output types, written as each would be alone; made by ``|``.

    Attributes:
        members: output types, or strings as literal text.
    """

    members: tuple[Any, ...]

    def __init__(self, *members: Any) -> None:
        flat: list[Any] = []
        for member in members:
            flat += member.members if isinstance(member, AnyOf) else (member,)
        object.__setattr__(self, "members", tuple(flat))

    def __repr__(self) -> str:
        return " | ".join(map(_shown, self.members))


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Combining, Typed[str]):
    """Texts and output types one after the other; made by ``+``. Parses to the text.

    Attributes:
        parts: output types, or strings as literal text.
    """

    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return " + ".join(f"({p!r})" if isinstance(p, AnyOf) else _shown(p) for p in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Repeated(Combining, Typed[str]):
    """Texts of one output type in a row; made by ``times`` and the like. Parses to the text.

    Attributes:
        part: the output type.
        least, most: bounds on their number; None for no bound.
    """

    part: Any
    least: int
    most: int | None

    def __post_init__(self) -> None:
        check_counts(self.least, self.most)

    def __repr__(self) -> str:
        shown = f"({self.part!r})" if isinstance(self.part, (AnyOf, Joined)) else repr(self.part)
        if self.most is None:
            return f"{shown}.many()"
        return f"{shown}.times({self.least}, {self.most})"


def check_counts(least: int, most: int | None) -> None:
    """Raise for invalid counts."""
    for count in (least, most):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise OutputTypeError(f"A count must be an int, got {count!r}.")
    if least < 0 or (most is not None and most < least):
        raise OutputTypeError(
            f"The minimum count must be at least 0 and at most the maximum, got {least} to {most}."
        )


def joined_with(first: Any, second: Any) -> Any:
    """Return the sum of two parts or sums; NotImplemented if one is clearly not a type."""
    parts: list[Any] = []
    for part in (first, second):
        if part is None or isinstance(part, (int, float, complex, bytes)):
            return NotImplemented
        parts += part.parts if isinstance(part, Joined) else (part,)
    return Joined(tuple(parts))


def _shown(part: Any) -> str:
    return part.__name__ if isinstance(part, type) else repr(part)
