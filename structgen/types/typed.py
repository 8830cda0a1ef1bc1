"""What type checkers know of output types: the value that a text of each parses to.

Owns `Typed`, the base of structgen's own output types, and the aliases that the signatures of
everything that takes an output type are written with. Nothing here does anything at run time.

A type checker infers ``T`` from a Python type by `typing_extensions.TypeForm` (PEP 747), which
mypy 2 and pyright understand, for classes, ``Literal``, unions, ``list[int]``, ``Annotated`` and
all else that may stand in an annotation. An overload is needed for each of the kinds below,
because mypy finds no type form in a union with others.

    TypeForm[T]      a Python type                       T
    Own[T]           structgen's own, a TypeAdapter      what it says: `Typed`
    PlainText        None, a compiled pattern            str
    Choices[ItemT]   a list, tuple or set of choices     one of them
    Functions        a function, or several              `structgen.Call`
    Schemas          a JSON Schema as a dict             Any

What a checker cannot know, such as what a `JsonSchema` parses to, is ``Any``.
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
else:
    T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Typed(Generic[T_co]):
    """An output type that is an object; a text of it parses to a ``T_co``."""

    __slots__ = ()


class SchemaBuilder(Protocol):
    """GenSON's builder of a JSON Schema."""

    def to_schema(self) -> Any:
        """The schema, a dict."""


Own: TypeAlias = "Typed[T] | TypeAdapter[T]"
"""An object that is an output type and says what it parses to."""

PlainText: TypeAlias = "re.Pattern[str] | None"
"""What parses to the text itself: a compiled pattern, and no output type at all."""

Schemas: TypeAlias = "Mapping[str, Any] | SchemaBuilder"
"""A dict that plainly is a JSON Schema, and what makes one."""

Item: TypeAlias = "str | int | float | enum.Enum | date | time | UUID | Decimal | None"
"""What may be one of several choices."""

ItemT = TypeVar("ItemT", bound="Item")

Choices: TypeAlias = "list[ItemT] | tuple[ItemT, ...] | AbstractSet[ItemT]"
"""Several of them."""

Functions: TypeAlias = "Callable[..., object] | Sequence[Callable[..., object]]"
"""A function whose arguments are asked for, or several of which one is chosen."""
