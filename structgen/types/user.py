"""The user's output types beyond plain Python types, and the result of lowering.

`Choice`, `Cfg` and `SpecialToken` are immutable and hashable. `OutputType` is a grammar and a
parser. Knows the bare text of an item of a finite set. `ValueSchema` holds Pydantic's schema of a
value, for readers of parts of its JSON. Imports no Pydantic, and does not know how a grammar is
built.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import inspect
import json
import math
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from structgen.errors import GrammarError, OutputTypeError, ParseError, failure
from structgen.grammar import ir

from .schemas import shown
from .sums import Combining, T, T_co, Typed
from .tool_calls import ToolsOffered

NAMES = "__structgen_names__"
"""Attribute of a function that makes instances: the constructor's name for each key of the JSON."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """The Pydantic schema that makes a value.

    Attributes:
        core: the core schema of the whole.
        config: the core config of the whole, or None.
        parser: takes the core schema of a part inside ``core``, and the core config of its class;
            returns a function that makes the part's value from its JSON, or raises `ParseError`.
        kept: results of value readers about the parts.
    """

    core: Any
    config: Any
    parser: Callable[[Any, Any], Callable[[str], Any]]
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a text with its own value.

    Attributes:
        step: the name of the part in the whole value, or its index.
        output: its type.
        tool: name of the tool whose arguments it is; None for other parts.
    """

    step: str | int
    output: OutputType
    tool: str | None = None


class PartReader(Protocol):
    """Reads a growing text part by part.

    Attributes:
        names: the names of all parts, if they are fields; None if they are items.
    """

    names: frozenset[str | int] | None

    def feed(self, text: str) -> list[tuple[Part, str, bool]]:
        """Read more text. Return parts in order, each with the next certain piece of its text, and
        whether it is complete."""


@dataclass(frozen=True, slots=True)
class OutputType(Typed[T_co]):
    """An output type ready for compiling.

    Attributes:
        grammar: the texts a model may write.
        parse: turns one such text into its value; raises `ParseError`.
        named: the type's name in messages, or a function that returns it, because schemas are long
            and messages rare.
        checked: code that checks parsed texts, which masks cannot enforce: paths, and the names of
            the code.
        locate: adds the place in the user's text to an error; None: nothing to add.
        fitted: returns the output type for a vocabulary, given the names of its control tokens,
            which have no text; None: it is the same for all vocabularies.
        offered: the tools for the prompt, or None.
        values: the Pydantic schema of the value, for readers of parts of its JSON; None without
            Pydantic.
        growing: starts reading a growing text part by part; None if it has no parts.
    """

    grammar: ir.Grammar
    parse: Callable[[str], T_co]
    named: str | Callable[[], str]
    checked: tuple[tuple[str, str], ...] = ()
    locate: Callable[[OutputTypeError], object] | None = field(
        default=None, repr=False, compare=False
    )
    fitted: Callable[[Collection[str]], OutputType] | None = field(
        default=None, repr=False, compare=False
    )

    offered: ToolsOffered | None = field(default=None, repr=False, compare=False)
    values: ValueSchema | None = field(default=None, repr=False, compare=False)
    growing: Callable[[], PartReader] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The type's name in messages."""
        return self.named if isinstance(self.named, str) else self.named()


def all_checked(parts: Iterable[OutputType]) -> tuple[tuple[str, str], ...]:
    """Return the ``checked`` entries of parts, each once."""
    return tuple(dict.fromkeys(found for part in parts for found in part.checked))


def fitted_parts(
    parts: Sequence[OutputType], make: Callable[[list[OutputType]], OutputType]
) -> Callable[[Collection[str]], OutputType] | None:
    """Return ``fitted`` of the type that ``make`` makes from parts."""
    if all(part.fitted is None for part in parts):
        return None
    return lambda tokens: make([part.fitted(tokens) if part.fitted else part for part in parts])


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Choice(Combining, Typed[T]):
    """Exactly one of ``items``, written as bare text; parses to the same item object.

    Items may be strings, numbers, booleans, None, dates, times, UUIDs, decimals and enum members.
    Booleans and None are written ``true``, ``false`` and ``null``.

    Args:
        items: at least one. Repeated items count once. Compiling raises for two different items
            with the same text.
    """

    items: tuple[T, ...]

    def __init__(self, items: Iterable[T]) -> None:
        if isinstance(items, (str, bytes)):
            raise OutputTypeError(
                f"Choice takes several items, got the single string {items!r}. "
                f"Write Choice([{items!r}])."
            )
        if isinstance(items, Mapping) or not isinstance(items, Iterable):
            raise OutputTypeError(
                f"Choice takes a list of items, got {type(items).__name__}. "
                'Write Choice(["yes", "no"]).'
            )
        values = list(items)
        if isinstance(items, (set, frozenset)):
            # Strings hash differently in every process; outputs under a seed must not depend on
            # that.
            values.sort(key=lambda item: (type(item).__name__, str(item)))
        object.__setattr__(self, "items", tuple(values))

    # 1, True and 1.0 are equal, but are different choices.
    def _key(self) -> tuple[tuple[type, Any], ...]:
        return tuple((type(item), item) for item in self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.items[:5]))
        return f"Choice([{shown}{', …' if len(self.items) > 5 else ''}])"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        is_class = handler is None  # Pydantic calls this if the class itself is the type
        written = "..." if is_class else ", ".join(map(repr, self.items))
        raise OutputTypeError(
            f"{'Choice' if is_class else repr(self)} cannot be used inside another type. Write "
            f"Literal[{written}] or an Enum."
        )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cfg(Combining, Typed[str]):
    """Text that a context-free grammar derives; parses to the text itself.

    Any grammar works: left- or right-recursive, ambiguous, cyclic. ``docs/grammars.md`` says what
    the terminals of each dialect match.

    Args:
        text_or_path: the grammar, or the file that holds it: a path object, or a string that ends
            in ``.lark``, ``.gbnf`` or ``.ebnf`` and has no line break.
        start: the start rule; None for the dialect's own (``start`` in Lark, ``root`` in GBNF, the
            first rule in EBNF).
        dialect: ``"lark"``, ``"llguidance"`` (its Lark), ``"gbnf"``, ``"xgrammar"`` (its EBNF) or
            ``"ebnf"`` (the W3C's). None: detect it by the file's name, or by the form of its rules
            (``name:`` is Lark, and llguidance's with ``%llguidance``; ``name ::=`` GBNF if there is
            a ``root``, otherwise EBNF).
        terminals: terminals that the grammar declares without a definition (``%declare`` in Lark),
            by name. A string is a pattern, as if the grammar had ``NAME: /pattern/``; a
            `SpecialToken` is one token; anything else is an output type other than a grammar, whose
            text may end wherever it is complete:
            ``{"CALL": MyModel, "ID": Regex("[a-z]+") - "none"}``.

    Raises:
        GrammarError: the file cannot be read, or the dialect is unknown.
    """

    no_json = (
        "a grammar is a separate output type, or one part of a union of output types. Use Regex "
        "for the contents of a string, or write the JSON in the grammar: %json {...}, or "
        "terminals={'NAME': Model}."
    )

    text: str
    start: str | None
    dialect: str | None
    path: str | None
    terminals: tuple[tuple[str, Any], ...]

    def __init__(
        self,
        text_or_path: str | os.PathLike[str],
        start: str | None = None,
        dialect: str | None = None,
        terminals: Mapping[str, Any] | None = None,
    ) -> None:
        # Imported here, because grammar readers are a lot of code for users who only have schemas.
        from structgen.grammar import cfg
        from structgen.grammar.cfg import library as grammars

        files, path = tuple(cfg.EXTENSIONS), None
        if isinstance(text_or_path, os.PathLike):
            path = os.fspath(text_or_path)
        elif not isinstance(text_or_path, str):
            raise GrammarError(
                f"Cfg takes a grammar as a str or a path, got {type(text_or_path).__name__}."
            )
        elif text_or_path.endswith(files) and not set("\n:") & set(text_or_path[3:]):
            path = text_or_path
        text = str(text_or_path) if path is None else ""
        if text and not set("\n:=") & set(text) and text in grammars.names():
            raise GrammarError(
                f"{text!r} is the name of a library grammar. Write Cfg.named({text!r})."
            )
        if text and not set("\n:=") & set(text[3:]) and os.path.isfile(text):
            raise GrammarError(
                f"{text!r} looks like a file name, but Cfg reads a str as a grammar unless it "
                f"ends in {', '.join(files)}. Write Cfg(Path({text!r}))."
            )
        if path is not None:
            try:
                with open(path, encoding="utf-8-sig") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                why = failure(error)
                raise GrammarError(f"Cannot read the grammar file {path}: {why}.") from error
        if dialect is not None:
            cfg.check_dialect(dialect)
        object.__setattr__(self, "text", str(text).removeprefix(cfg.BYTE_ORDER_MARK))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "dialect", dialect)
        object.__setattr__(self, "path", path)
        if terminals is not None and not isinstance(terminals, Mapping):
            raise GrammarError(
                f"terminals= must be a dict of terminals by name, got {type(terminals).__name__}."
            )
        object.__setattr__(self, "terminals", tuple(sorted((terminals or {}).items())))

    @classmethod
    def named(cls, name: str) -> Cfg:
        """Return a grammar of the library by name; ``structgen grammars list`` shows them.

        Raises:
            OptionError: unknown grammar; the message suggests similar names.
        """
        from structgen.grammar.cfg import library as grammars

        return cls(grammars.text(name), dialect="lark")

    def __repr__(self) -> str:
        what = self.path if self.path is not None else self.text
        given = f", terminals={shown(dict(self.terminals))}" if self.terminals else ""
        return f"Cfg({shown(what)}{given})"


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """One special token of the vocabulary, as a terminal of a grammar.

    For tokens whose names are not of the form ``<…>``, which grammars support directly:
    ``Cfg("start: CALLS …", terminals={"CALLS": SpecialToken("[TOOL_CALLS]")})``.

    Attributes:
        text: its name in the tokenizer.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text:
            raise OutputTypeError(
                "SpecialToken takes the name of a token, as written in its tokenizer, got "
                f"{self.text!r}."
            )


def choice_type(items: Sequence[Any], name: str) -> OutputType:
    """Return the output type that writes exactly one of ``items``.

    Raises:
        OutputTypeError: no items, an item without a bare text, or two different items with the same
            text.
    """
    if not items:
        raise OutputTypeError(
            f"{name} has no members, so no text can satisfy it. Add at least one."
        )
    by_text: dict[str, Any] = {}
    for item in items:
        text = bare_text(item, name)
        if text not in by_text:
            by_text[text] = item
        elif type(by_text[text]) is not type(item) or by_text[text] != item:
            raise OutputTypeError(
                f"{name} has two members that are both written as {text!r}: {by_text[text]!r} and "
                f"{item!r}. Remove one of them, or write them differently."
            )

    def parse(text: str) -> Any:
        try:
            return by_text[text]
        except KeyError:
            raise ParseError(
                f"{text!r} is not a member of {name}. Members: {', '.join(list(by_text)[:20])}.",
                text=text,
            ) from None

    return OutputType(ir.Choice(tuple(by_text)), parse, name)


def bare_text(item: Any, name: str) -> str:
    """Return ``item`` as text: strings as they are, enum members by value, numbers as in JSON, …

    Raises:
        OutputTypeError: the item has no such text.
    """
    value = item.value if isinstance(item, enum.Enum) else item
    if isinstance(value, str):
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OutputTypeError(
                f"The member {item!r} of {name} contains half of a surrogate pair, which is not "
                "valid text. Remove it."
            ) from None
        return text
    if value is None or isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, float) and math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, (dt.date, dt.time)):  # datetime is a date
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    fix = "Use strings, and map them to the objects afterwards."
    if isinstance(item, type) or hasattr(item, "__origin__"):
        fix = "For any of several types, use Union; for a list of values, use list[...]."
    elif inspect.isroutine(item) or isinstance(item, functools.partial):
        fix = "For a call of one of several functions, pass a list that contains only functions."
    raise OutputTypeError(
        f"The member {item!r} of {name} has no plain text form. Members may be strings, numbers, "
        f"booleans, None, dates, times, UUIDs, decimals and enum members with these values. {fix}"
    )
