"""`Regex`, and operators on patterns: and, or, not, difference, concatenation, counts.

Has the classes that users write, and puts them into Pydantic's schemas (as the keyword of
`grammar.regex.algebra`). Does not know how a regular expression becomes an automaton.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, overload

from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.regex import algebra as regex_algebra

from .sums import AnyOf, Joined, T_co, Typed, check_counts, joined_with

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema


FOR_MASKS: ContextVar[bool] = ContextVar("for masks", default=False)
"""Whether Pydantic is describing a type for masks."""


class TextPattern(Typed[T_co]):
    """A set of texts that can be combined with others, also with plain strings.

    An output type by itself, and a constraint on ``str`` inside others: ``Annotated[str,
    Regex(r"[a-z]+") & ~Regex("admin")]``. Each part is a separate language: its anchors and
    lookarounds do not see the parts around it.
    """

    __slots__ = ()

    def expression(self) -> list[Any]:
        """Return what `grammar.regex.algebra` calls an expression."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...] | None:
        """All its texts, if they are listed; otherwise None."""
        return None

    @property
    def is_private(self) -> bool:
        """Whether it contains a document, which must be freed after the type's last use."""
        return False

    def checker(self) -> Callable[[str], str]:
        """Return a validator for Pydantic, linear in the string's length."""
        return _checker(self)

    def __and__(self, other: TextPattern | str) -> TextPattern[str]:
        """Return texts of both."""
        return _combined("and", self, other)

    def __rand__(self, other: str) -> TextPattern[str]:
        return _combined("and", other, self)

    @overload
    def __or__(self, other: TextPattern | str) -> TextPattern[str]: ...
    @overload
    def __or__(self, other: Any) -> AnyOf: ...
    def __or__(self, other: Any) -> TextPattern[str] | AnyOf:
        """Return texts of either: a pattern for two patterns, otherwise a union of output types."""
        return AnyOf(self, other) if _part(other) is None else _combined("or", self, other)

    def __ror__(self, other: Any) -> TextPattern[str] | AnyOf:
        return AnyOf(other, self) if _part(other) is None else _combined("or", other, self)

    @overload
    def __add__(self, other: TextPattern | str) -> TextPattern[str]: ...
    @overload
    def __add__(self, other: Any) -> Joined: ...
    def __add__(self, other: Any) -> TextPattern[str] | Joined:
        """Return a text of this one followed by one of the other, which may be any output type."""
        return _followed(self, other)

    def __radd__(self, other: Any) -> TextPattern[str] | Joined:
        return _followed(other, self)

    def __invert__(self) -> TextPattern[str]:
        """Return all other texts."""
        return Combined("not", (self,))

    def __sub__(self, other: TextPattern | str) -> TextPattern[str]:
        """Return texts of this one that are not texts of the other."""
        part = _part(other)
        return NotImplemented if part is None else self & ~part

    def exactly(self, count: int) -> TextPattern[str]:
        """Return ``count`` texts of this in a row."""
        return self.between(count, count)

    def at_least(self, count: int) -> TextPattern[str]:
        """Return ``count`` or more texts of this in a row."""
        return _times(self, count, None)

    def at_most(self, count: int) -> TextPattern[str]:
        """Return up to ``count`` texts of this in a row, including none."""
        return self.between(0, count)

    def between(self, least: int, most: int) -> TextPattern[str]:
        """Return from ``least`` to ``most`` texts of this in a row."""
        return _times(self, least, most)

    def optional(self) -> TextPattern[str]:
        """Return one text of this, or the empty text."""
        return _times(self, 0, 1)

    def zero_or_more(self) -> TextPattern[str]:
        """Return any number of texts of this in a row, including none."""
        return _times(self, 0, None)

    def times(self, least: int, most: int | None = None) -> TextPattern[str]:
        """Return ``least`` texts of this in a row, or with ``most`` from ``least`` to ``most``."""
        return _times(self, least, least if most is None else most)

    many = zero_or_more

    def one_or_more(self) -> TextPattern[str]:
        """Return one or more texts of this in a row."""
        return _times(self, 1, None)

    def overlaps(self, other: TextPattern | str) -> bool:
        """Return whether some text matches both.

        Cost: building their common automaton up to the first such text, usually well under a
        millisecond.

        Raises:
            PatternError: a pattern is malformed.
            UnsupportedFeature: a pattern is not regular.
            CompileLimitExceeded: it has too many states.
        """
        from structgen.automaton.core import GROW
        from structgen.automaton.regex import RegexAutomaton

        with GROW:  # documents are shared
            both = RegexAutomaton(regex_algebra.lower((self & other).expression()))
            return not both.is_empty()

    # -- as a constraint in Annotated[str, ...] ---------------------------------------------

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler | None = None
    ) -> CoreSchema:
        # If the class itself is the type, Pydantic calls this with the handler as `source`.
        if handler is None or source is self:
            shown, written = ("Regex", "Regex(...)") if handler is None else 2 * (repr(self),)
            raise OutputTypeError(
                f"{shown} is used as a type, but it only describes a string. Write Annotated[str, "
                f"{written}]."
            )
        # Pydantic calls this, so it is imported already; users without Pydantic never import it.
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.checker(), handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        result = handler(schema)
        if result.get("type") != "string":
            raise OutputTypeError(
                f"{self!r} describes a string, but it annotates another type. Write "
                "Annotated[str, ...]."
            )
        if self.is_private and not FOR_MASKS.get():
            return result  # other callers do not need a whole document
        expression = self.expression()
        known = result.get(regex_algebra.KEYWORD)
        result[regex_algebra.KEYWORD] = expression if known is None else ["and", known, expression]
        return result


@dataclass(frozen=True, slots=True, init=False)
class Regex(TextPattern[str]):
    """Text that matches a regular expression as a whole, like ``re.fullmatch``.

    Parses to the text itself. Compiling raises an error if the expression is not regular
    (backreferences).
    Combine with ``&`` (and), ``|`` (or), ``~`` (not), ``-`` (but not) and ``+``
    (followed by), and with the methods of `TextPattern`.

    Args:
        pattern: Python syntax, or a compiled `re.Pattern` with its flags.
        flags: of the `re` module, such as ``re.IGNORECASE``.

    Raises:
        OutputTypeError: an argument has the wrong type.
    """

    pattern: str
    flags: int

    def __init__(self, pattern: str | re.Pattern[str], flags: int = 0) -> None:
        if isinstance(flags, bool) or not isinstance(flags, int):
            named = _flags_named(flags) if isinstance(flags, str) else ""
            raise OutputTypeError(
                "Regex flags must be flags of the re module, such as re.IGNORECASE, "
                f"got {flags!r}.{named}"
            )
        source: object = pattern
        if isinstance(pattern, re.Pattern):
            source, own = pattern.pattern, pattern.flags
            if flags & ~own:
                raise OutputTypeError(
                    f"Regex({pattern!r}) already has the flags that it was compiled with, but "
                    f"flags= adds {re.RegexFlag(flags)!r}. Pass all flags to re.compile."
                )
            flags = own & ~re.UNICODE  # which every pattern of text has
        if not isinstance(source, str):
            hint = " Call .decode() on it." if isinstance(source, bytes) else ""
            raise OutputTypeError(
                f"Regex takes a pattern as a str, got {type(source).__name__}.{hint}"
            )
        object.__setattr__(self, "pattern", source)
        object.__setattr__(self, "flags", int(flags))

    def expression(self) -> list[Any]:
        """Return what `grammar.regex.algebra` calls an expression."""
        return ["regex", self.pattern, self.flags]

    def __repr__(self) -> str:
        flags = f", {re.RegexFlag(self.flags)!r}" if self.flags else ""
        return f"Regex({self.pattern!r}{flags})"


def _flags_named(letters: str) -> str:
    """Return a sentence that suggests how to write flags given as letters."""
    if not letters or not set(letters.lower()) <= set("aimsx"):
        return ""
    return f" Write {' | '.join(f're.{letter}' for letter in letters.upper())}."


_SIGNS = {"and": " & ", "or": " | ", "then": " + "}


@dataclass(frozen=True, slots=True, repr=False)
class Combined(TextPattern[str]):
    """A combination of patterns; made by the operators and methods of `TextPattern`."""

    operation: str
    parts: tuple[TextPattern, ...]
    least: int = 1
    most: int | None = 1

    @property
    def is_private(self) -> bool:
        """See `TextPattern`."""
        return any(part.is_private for part in self.parts)

    def expression(self) -> list[Any]:
        """Return what `grammar.regex.algebra` calls an expression."""
        counts = [self.least, self.most] if self.operation == "times" else []
        return [self.operation, *(part.expression() for part in self.parts), *counts]

    def __repr__(self) -> str:
        shown = [
            repr(part) if isinstance(part, Regex) or self.operation == "not" else f"({part!r})"
            for part in self.parts
        ]
        if self.operation == "not":
            return f"~{shown[0]}" if isinstance(self.parts[0], Regex) else f"~({shown[0]})"
        if self.operation != "times":
            return _SIGNS[self.operation].join(shown)
        if self.most is None:
            return f"{shown[0]}.at_least({self.least})"
        return f"{shown[0]}.between({self.least}, {self.most})"


def _part(value: object) -> TextPattern[str] | None:
    if isinstance(value, str):
        return Regex(re.escape(value))
    return value if isinstance(value, TextPattern) else None


def _combined(
    operation: str, first: TextPattern | str, second: TextPattern | str
) -> TextPattern[str]:
    parts: list[TextPattern] = []
    for value in (first, second):
        part = _part(value)
        if part is None:
            return cast("TextPattern[str]", NotImplemented)  # tells Python to try the other operand
        flat = isinstance(part, Combined) and part.operation == operation
        parts += part.parts if flat and isinstance(part, Combined) else (part,)
    return Combined(operation, tuple(parts))


def _followed(first: Any, second: Any) -> TextPattern[str] | Joined:
    """Return one after the other: a pattern if both are patterns or text, otherwise a sum of
    parts."""
    if _part(first) is not None and _part(second) is not None:
        return _combined("then", first, second)
    return cast(Joined, joined_with(first, second))


def _times(part: TextPattern, least: int, most: int | None) -> TextPattern[str]:
    check_counts(least, most)
    return Combined("times", (part,), least, most)


def _checker(pattern: TextPattern) -> Callable[[str], str]:
    """See `TextPattern.checker`."""
    compiled: list[ir.Regex] = []

    def check(text: str) -> str:
        # Imported here, because automata are built on grammars and types, not the reverse.
        from structgen.automaton.schema import evaluate

        if not compiled:
            compiled.append(regex_algebra.lower(pattern.expression()))
        if not evaluate.matches(compiled[0], text):
            raise ValueError(f"{text[:80]!r} does not match {pattern!r}")
        return text

    return check
