"""What type checkers know of output types: the value that a text of each parses to.

Owns `Typed`, the base of structgen's own output types, and the aliases that the signatures of
everything that takes an output type are written with. Nothing here does anything at run time.

A type checker infers ``T`` from a Python type by `typing_extensions.TypeForm` (PEP 747), which
mypy 2 and pyright understand, for classes, ``Literal``, unions, ``list[int]``, ``Annotated`` and
all else that may stand in an annotation. It needs an overload of its own, because mypy finds no
type form in a union with others. The other kinds share one where a type variable's default says
what those parse to that name no type:

    Own[TextT]       structgen's own, a TypeAdapter      what it says: `Typed`
                     a compiled pattern; None            str, the default of ``TextT``
    TypeForm[T]      a Python type                       T
    Choices[ItemT]   a list, tuple or set of choices     one of them
                     a JSON Schema as a dict             Any, the default of ``ItemT``
    Functions        a function, or several              `structgen.Call`

What a checker cannot know, such as what a `JsonSchema` parses to, is ``Any``. The streams of a
model that is asked directly have two overloads, ``TypeForm[T]`` and ``Others[AnyT]``: of what is
neither a type nor an `Own` their values are ``Any``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import enum
    import re
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import date, time
    from decimal import Decimal
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
    """An output type that is an object; a text of it parses to a ``T_co``."""

    __slots__ = ()


class SchemaBuilder(Protocol):
    """GenSON's builder of a JSON Schema."""

    def to_schema(self) -> Any:
        """The schema, a dict."""


Own: TypeAlias = "Typed[TextT] | TypeAdapter[TextT] | re.Pattern[str]"
"""What says what it parses to; and a compiled pattern, which parses to the text itself."""

Item: TypeAlias = "str | int | float | enum.Enum | date | time | UUID | Decimal | None"
"""What may be one of several choices."""

Choices: TypeAlias = (
    "list[ItemT] | tuple[ItemT, ...] | AbstractSet[ItemT] | Mapping[str, Any] | SchemaBuilder"
)
"""Several of them; or a dict that plainly is a JSON Schema, or what makes one."""

Functions: TypeAlias = "Callable[..., object] | Sequence[Callable[..., object]]"
"""A function whose arguments are asked for, or several of which one is chosen."""

Others: TypeAlias = "Own[AnyT] | Choices[Any] | Functions | None"
"""All that is no Python type."""
