"""`Quote`: verbatim pieces of a text as an output type, and values that know their position.

Has the classes that users see, the documents that a call passes, and checks on lists of quotes
(`in_order`, `disjoint`). The automaton finds where a quote is in its document
(`automaton.regex.quotes`), so masks and values cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from structgen import notebook
from structgen.errors import OptionError, OutputTypeError, ParseError
from structgen.grammar import ir
from structgen.grammar.regex import algebra as regex_algebra

from .regexes import TextPattern

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema
    from typing_extensions import Self

Unit: TypeAlias = Literal["word", "character", "sentence", "line"]
Place: TypeAlias = tuple[int, int]
Places: TypeAlias = tuple[Place, ...]

MAX_STEPS = 100_000
"""The most places that are tried to decide whether quotes are disjoint: the choices multiply with
each quote."""


class DocumentMissing(OutputTypeError):
    """A `Quote` names a document that the call does not pass."""


class _Given(dict[str, str]):
    """Documents by name, and the names used so far."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        super().__init__(documents)
        self.asked: set[str] = set()


_GIVEN: ContextVar[_Given | None] = ContextVar("documents", default=None)


@contextmanager
def documents(given: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Set the documents that quotes without a document use in the block, including later additions.

    Raises:
        OptionError: no quote used one of them.
    """
    known = _Given(given)
    token = _GIVEN.set(known)
    try:
        yield known
    finally:
        _GIVEN.reset(token)
    for name in given.keys() - known.asked:
        raise OptionError(
            f"quote_from has a document {name!r}, but the output type has no quote from it. Add "
            f"Quote(source={name!r}) to the output type.",
            option="quote_from",
            value=name,
        )


class QuotedText(str):
    """A quote: a ``str`` that knows where the document contains it.

    Attributes:
        places: where the document has it as a quote, as ``(first, last + 1)`` characters, in order.
            There is at least one.
        start: the index of its first character in the document, at the first of its places; in a
            list with `in_order` or `disjoint`, at a place that fits.
        end: one more than the index of its last character there.
    """

    __slots__ = ("end", "places", "start")

    places: tuple[tuple[int, int], ...]
    start: int
    end: int

    def __new__(
        cls, text: str, places: tuple[tuple[int, int], ...], place: tuple[int, int] | None = None
    ) -> Self:
        """Return ``text``, which is at ``places``."""
        self = super().__new__(cls, text)
        self.places = places
        self.start, self.end = place or places[0]
        return self

    def _repr_html_(self) -> str:
        """Return the text and its place, in a notebook."""
        return f"{notebook.shown(str(self))} <small>{self.start:,}\u2013{self.end:,}</small>"

    def __reduce__(self) -> tuple[Any, ...]:
        return QuotedText, (str(self), self.places, (self.start, self.end))


class ListCheck:
    """A check on a list of quotes, in `Annotated`.

    No mask enforces it; pass ``retries=`` for another attempt.

    Args:
        name: its name.
        choose: picks one place for each quote, so that all fit together; None if there are none.
    """

    def __init__(
        self, name: str, choose: Callable[[Sequence[Places]], Sequence[Place] | None]
    ) -> None:
        self.__name__ = name
        self._choose = choose

    def __repr__(self) -> str:
        return f"structgen.types.{self.__name__}"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        schema: Any = handler(source)
        other = schema["function"]["function"] if schema["type"] == "function-after" else None
        if other is in_order:
            checked: CoreSchema = schema
            return checked  # then they are disjoint, too
        if other is disjoint:
            schema = schema["schema"]
        items = schema.get("items_schema", {}) if schema["type"] == "list" else {}
        check = items.get("function", {}).get("function")
        if getattr(check, "__module__", None) != __name__:
            raise OutputTypeError(
                f"{self!r} is for lists of quotes: Annotated[list[Annotated[str, Quote(...)]], "
                f"{self!r}]."
            )
        return core_schema.no_info_after_validator_function(self, schema)

    def __call__(self, quotes: list[Any]) -> list[Any]:
        """Check a list whose items have been checked."""
        known = [quote for quote in quotes if isinstance(quote, QuotedText)]
        if len(known) < len(quotes):
            return quotes  # the document is unknown here: see `Quote.checker`
        chosen = self._choose([quote.places for quote in known])
        if chosen is None:
            what = "in the order of the document" if self.__name__ == "in_order" else "disjoint"
            raise ValueError(f"the quotes are not {what}")
        return [
            QuotedText(quote, quote.places, place)
            for quote, place in zip(known, chosen, strict=True)
        ]


def _in_order(quotes: Sequence[Places]) -> Sequence[Place] | None:
    """Place each quote as early as possible after the previous one, to leave the most room."""
    chosen: list[Place] = []
    for places in quotes:
        last = chosen[-1][1] if chosen else 0
        found = next((place for place in places if place[0] >= last), None)
        if found is None:
            return None
        chosen.append(found)
    return chosen


def _disjoint(quotes: Sequence[Places]) -> Sequence[Place] | None:
    """Place quotes without overlap, trying those with the fewest places first."""
    order = sorted(range(len(quotes)), key=lambda number: len(quotes[number]))
    chosen: dict[int, Place] = {}
    tried = [iter(quotes[number]) for number in order[:1]]
    steps = 0
    while tried:
        steps += 1
        if steps > MAX_STEPS:
            raise ValueError(
                f"cannot tell in {MAX_STEPS:,} steps whether the quotes are disjoint, because "
                "they occur in too many places"
            )
        number = order[len(tried) - 1]
        chosen.pop(number, None)
        place = next(tried[-1], None)
        if place is None:
            tried.pop()
        elif all(place[1] <= other[0] or other[1] <= place[0] for other in chosen.values()):
            chosen[number] = place
            if len(tried) == len(order):
                return [chosen[number] for number in range(len(order))]
            tried.append(iter(quotes[order[len(tried)]]))
    return None if quotes else ()


in_order = ListCheck("in_order", _in_order)
"""Each quote begins where the one before ends, or later."""

disjoint = ListCheck("disjoint", _disjoint)
"""No two quotes have a character of the document in common."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Quote(TextPattern[QuotedText]):
    """A verbatim piece of a text; parses to a `QuotedText`, which knows its place.

    An output type by itself, a constraint on ``str`` inside others,
    ``Annotated[str, Quote(report)]``, and a part of patterns like any `Regex`.

    Args:
        document: the text; None: each call passes it, see ``source``.
        unit: quotes begin and end at the borders of words, characters, sentences or lines. Text
            directly at a word, such as a comma, may be included or not. In scripts without blanks
            between words, each character is a word. Blanks around a line are not part of it.
        min: the fewest units, at least 1.
        max: the most units; None for no limit.
        ignore_case: whether letters may be written in another case.
        any_whitespace: whether any single blank in the quote matches a run of blanks and line ends
            in the document.
        source: instead of a document, the name under which calls pass one:
            ``generator(prompt, quote_from={"report": text})``.

    Raises:
        OutputTypeError: an argument is wrong.
    """

    document: str | None
    unit: Unit
    min: int
    max: int | None
    ignore_case: bool
    any_whitespace: bool
    source: str | None

    def __init__(
        self,
        document: str | None = None,
        unit: Unit = "word",
        *,
        min: int = 1,
        max: int | None = None,
        ignore_case: bool = False,
        any_whitespace: bool = False,
        source: str | None = None,
    ) -> None:
        if source is None:
            _check_document(document)
        elif document is not None or not isinstance(source, str):
            raise OutputTypeError(
                "Quote takes a document, or its name, as a str: Quote(text), or "
                f"Quote(source=name). Got source={source!r}."
            )
        if unit not in get_args(Unit):
            raise OutputTypeError(
                f"Quote has no unit {unit!r}. The units are {', '.join(map(repr, get_args(Unit)))}."
            )
        for count in (min, max):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
                raise OutputTypeError(
                    f"The number of units of a Quote must be an int, got {count!r}."
                )
        if min < 1 or (max is not None and max < min):
            raise OutputTypeError(
                f"A Quote needs min >= 1 and min <= max; got min={min}, max={max}."
            )
        for name, option in (("ignore_case", ignore_case), ("any_whitespace", any_whitespace)):
            if not isinstance(option, bool):
                raise OutputTypeError(f"{name}={option!r} of a Quote must be a bool.")
        values = (document, unit, min, max, ignore_case, any_whitespace, source)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def is_private(self) -> bool:
        """See `TextPattern`."""
        return True

    def expression(self) -> list[Any]:
        """Return an expression of `grammar.regex.algebra`.

        Raises:
            DocumentMissing: no document was passed.
        """
        document, given = self.document, _GIVEN.get()
        if document is None and self.source is not None and given is not None:
            given.asked.add(self.source)
            document = given.get(self.source)
        if document is None:
            has = f" The call passes {', '.join(map(repr, given))}." if given else ""
            raise DocumentMissing(
                f"{self!r} needs its document. Pass it: "
                f"generator(prompt, quote_from={{{self.source!r}: text}}).{has}"
            )
        _check_document(document)
        options = [self.ignore_case, self.any_whitespace]
        return ["quote", document, self.unit, self.min, self.max, *options]

    def find(self, text: str) -> QuotedText:
        """Find ``text`` in the document.

        Raises:
            ParseError: it is not a quote of the document.
        """
        from structgen.automaton.core import GROW
        from structgen.automaton.regex import passages_of

        quote = regex_algebra.lower(self.expression())
        assert isinstance(quote, ir.Quote)
        with GROW:  # what is read is sorted
            places = passages_of(quote).places(text)
        if not places:
            raise ParseError(
                f"{text[:80]!r} does not occur in the document in the way that {self!r} requires.",
                text=text,
            )
        return QuotedText(text, tuple(places))

    def checker(self) -> Callable[[str], str]:
        """See `TextPattern`."""

        def check(text: str) -> str:
            if self.document is None and _GIVEN.get() is None:
                return text  # the document is unknown here, for example when a stored value is read
            try:
                return self.find(text)
            except ParseError as error:
                raise ValueError(str(error)) from None

        return check

    def __repr__(self) -> str:
        if self.document is None:
            shown = [f"source={self.source!r}", f"unit={self.unit!r}"]
        else:
            short = len(self.document) <= 20
            shown = [repr(self.document if short else self.document[:19] + "…"), repr(self.unit)]
        shown += [f"min={self.min}"] if self.min > 1 else []
        shown += [] if self.max is None else [f"max={self.max}"]
        shown += ["ignore_case=True"] if self.ignore_case else []
        shown += ["any_whitespace=True"] if self.any_whitespace else []
        return f"Quote({', '.join(shown)})"


def _check_document(document: Any) -> None:
    """Raise OutputTypeError for anything except a text that can be quoted."""
    if not isinstance(document, str):
        can_be_read = hasattr(document, "read_text") or hasattr(document, "read")
        hint = " Read the file first." if can_be_read else ""
        raise OutputTypeError(
            f"Quote takes a document as a str, got {type(document).__name__}.{hint}"
        )
    if regex_algebra.SURROGATES.search(document):
        raise OutputTypeError(
            "The document of a Quote contains half of a surrogate pair, which is not valid text. "
            "Remove it."
        )


def holds_document(output_type: Any) -> bool:
    """Return whether a type that is not a class contains a `Quote`."""
    if isinstance(output_type, TextPattern):
        return output_type.is_private
    parts = (
        get_args(output_type)
        or getattr(output_type, "parts", ())
        or getattr(output_type, "members", ())
    )
    return isinstance(parts, tuple) and any(map(holds_document, parts))
