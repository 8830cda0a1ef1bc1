"""`Ready`: a named set of texts that is an output type, a pattern and a Pydantic type at once.

Owns how such a type goes into Pydantic's schemas, by itself or in `Annotated`, and that what it is
made of is read when it is first used. Knows no particular set of texts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar.regex import algebra as regex_algebra

from ..regexes import TextPattern
from ..sums import Combining

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema


_MOST_IN_ENUM = 1000
"""More texts are one long string of an expression: whoever walks a schema need not see each."""


class Ready(TextPattern):
    """A type of `structgen.types`. It parses to the text.

    By itself it is an output type and may stand where a type does, in a Pydantic class, ``list[…]``
    or a union; it is combined like a `Regex`; and called with a text it gives that text back.

    Args:
        name: what it is called, as an expression in `structgen.types`.
        about: one sentence on its texts.
        expression: what makes an expression of `grammar.regex.algebra`.
        texts: what lists the texts instead, if there are so few.
        remake: the function of `structgen.types`, and its arguments, by which another process comes
            by it; None where it is looked up by its name.
    """

    __slots__ = ("_expression", "_make", "_members", "_remake", "_texts", "about", "name")

    def __init__(
        self,
        name: str,
        about: str,
        expression: Callable[[], list[Any]] | None = None,
        *,
        texts: Callable[[], Sequence[str]] | None = None,
        remake: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        self.name = name
        self.about = about
        self._make = expression
        self._texts = texts
        self._remake = remake
        self._expression: list[Any] | None = None
        self._members: tuple[str, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...] | None:
        """All its texts, where they are listed; None where they are described.

        Raises:
            OutputTypeError: the package that lists them is not installed.
        """
        if self._members is None and self._texts is not None:
            self._members = tuple(dict.fromkeys(self._texts()))
        return self._members

    def expression(self) -> list[Any]:
        """What `grammar.regex.algebra` calls an expression."""
        if self._expression is None:
            texts = self.texts
            if texts is not None:
                self._expression = ["texts", "\n".join(texts)]
            else:
                assert self._make is not None
                self._expression = self._make()
        return self._expression

    def __call__(self, text: str) -> str:
        """``text``, if it is one of the type.

        Raises:
            ParseError: it is not.
        """
        from structgen.automaton.json import evaluate

        texts = self.texts
        if isinstance(text, str) and (
            text in texts
            if texts is not None
            else evaluate.matches(regex_algebra.lower(self.expression()), text)
        ):
            return text
        raise ParseError(f"{str(text)[:80]!r} is no {self!r}.", text=str(text))

    def __or__(self, other: Any) -> Any:
        """Texts of either; beside a type, a union of types."""
        if isinstance(other, (TextPattern, str, Combining, Mapping)):
            return super().__or__(other)
        return Union[self._annotated, other]  # noqa: UP007 - `|` asks both of its operands

    def __ror__(self, other: Any) -> Any:
        if isinstance(other, (str, Combining, Mapping)):
            return super().__ror__(other)
        return Union[other, self._annotated]  # noqa: UP007

    @property
    def _annotated(self) -> Any:
        return Annotated[str, self]

    def __repr__(self) -> str:
        return f"structgen.types.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._remake or (self.name, None)

    # -- in Pydantic's schemas --------------------------------------------------------------

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler | None = None
    ) -> CoreSchema:
        if source is self and handler is not None:
            return handler.generate_schema(self._annotated)
        return super().__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        texts = self.texts
        if texts is None or len(texts) > _MOST_IN_ENUM:
            return super().__get_pydantic_json_schema__(schema, handler)
        result = handler(schema)
        if result.get("type") != "string" or "enum" in result:
            return super().__get_pydantic_json_schema__(schema, handler)
        return {**result, "enum": list(texts)}


def _again(name: str, arguments: tuple[Any, ...] | None) -> Any:
    found = getattr(importlib.import_module("structgen.types"), name)
    return found if arguments is None else found(*arguments)


def package(name: str, needed_for: str) -> Any:
    """The module of a package that lists texts.

    Raises:
        OutputTypeError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OutputTypeError(
            f"structgen.types.{needed_for} needs the package {name.partition('.')[0]}: "
            "pip install 'structgen[types]'."
        ) from error
