"""`Tagged` and `TaggedText` as output types: their grammar, and the values of their texts.

Handles the types inside tags, and marks with named tokens. The tokens are known only with a
vocabulary (`OutputType.fitted`); until then such marks are text. The caller lowers the types inside
tags.

Finds the tags in a finished text: a tag ends at the first ``end`` where the type is complete and
the rest can be parsed, as in the grammar (`tags`). Tagged text and tool calls are also parsed piece
by piece while they are written, up to where the result is certain. Knows no masks.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir

from .joined import Divider, is_text_of
from .tags import (
    FREE,
    Bounds,
    Flow,
    Tagged,
    TaggedText,
    TaggedValue,
    TagPart,
    mark_of,
    regular,
    tag_grammar,
    text_of,
)
from .tool_arguments import NOT_BLANK, JsonArguments, ParameterReader
from .tool_calls import INDEX, ToolSyntax
from .tools import Tool
from .user import OutputType, Part, all_checked


@dataclass(frozen=True, slots=True)
class ReadTag:
    """One kind of tag, for parsing.

    Attributes:
        begin: its text.
        end: its text.
        is_whole: returns whether a text can be its complete content, see `whole_of`.
        parse: makes the value of the content.
        make: makes a piece from the value.
        bounds: the fewest and most such tags.
    """

    begin: str
    end: str
    is_whole: Callable[[str], bool]
    parse: Callable[[str], Any]
    make: Callable[[Any], Any]
    bounds: Bounds


class _Cut(NamedTuple):
    """A tag in a text, with the positions of its parts."""

    tag: ReadTag
    start: int
    first: int
    last: int
    after: int


def read_tags(
    tags: Sequence[ReadTag], bounds: Bounds, name: str, text: str, flow: Flow = FREE
) -> list[Any]:
    """Split ``text`` into pieces: a str if free, `ReadTag.make`'s result for each tag.

    Raises:
        ParseError: a begin has no valid content and end, or there are fewer or more tags than
            ``bounds`` and their own bounds allow.
    """
    pieces: list[Any] = []
    at = 0
    path = _cut(tags, name, text, flow)
    counted = [(f"{tag.begin!r}", tag.bounds, sum(f.tag is tag for f in path)) for tag in tags]
    for what, (least, most), count in [*counted, ("tags in total", bounds, len(path))]:
        if count < least or (most is not None and count > most):
            raise ParseError(
                f"The text does not match {name}: it has {count} {what}. Text: {text!r}", text=text
            )
    for found in path:
        if found.start > at and flow.separator is None:
            pieces.append(text[at : found.start])
        inside = text[found.first : found.last]
        try:
            value = found.tag.parse(inside)
        except ParseError as error:
            raise ParseError(
                f"In {found.tag.begin!r} at position {found.start:,}: {error}", text=text
            ) from error
        pieces.append(found.tag.make(value))
        at = found.after
    if at < len(text):
        pieces.append(text[at:])
    return pieces


def _cut(tags: Sequence[ReadTag], name: str, text: str, flow: Flow) -> list[_Cut]:
    by_length = sorted(tags, key=lambda tag: -len(tag.begin))
    begins = re.compile("|".join(re.escape(tag.begin) for tag in by_length))
    # The positions of each end, without those after which the rest cannot be parsed.
    ends = {tag.end: _places(tag.end, text) for tag in tags}

    def dismiss(after: int) -> None:
        for end, places in ends.items():
            at = bisect_left(places, after - len(end))
            if at < len(places) and places[at] == after - len(end):
                del places[at]

    separator = None if flow.separator is None else text_of(flow.separator)

    def ways(at: int) -> Iterator[_Cut | None]:
        if at == len(text):
            yield None
            return
        if flow.stops and at:
            return
        if separator is None:
            opened = begins.search(text, at)
            if opened is None:
                yield None
                return
        else:
            before = separator if at else ""
            opened = begins.match(text, at + len(before)) if text.startswith(before, at) else None
            if opened is None:
                return
        start = opened.start()
        for tag in by_length:
            if not text.startswith(tag.begin, start):
                continue
            first = start + len(tag.begin)
            places, last = ends[tag.end], first - 1
            while (index := bisect_right(places, last)) < len(places):
                last = places[index]
                if tag.is_whole(text[first:last]):
                    yield _Cut(tag, start, first, last, last + len(tag.end))

    path: list[_Cut] = []
    open_ways = [ways(0)]
    while open_ways:
        for found in open_ways[-1]:
            if found is None:
                return path
            path.append(found)
            open_ways.append(ways(found.after))
            break
        else:
            open_ways.pop()
            if path:
                dismiss(path.pop().after)
    opened = begins.search(text)
    where = "" if opened is None else f", such as {opened[0]!r} at position {opened.start():,}"
    raise ParseError(
        f"The text does not match {name}: a tag is incomplete or its content is "
        f"invalid{where}. Text: {text!r}",
        text=text,
    )


def _places(end: str, text: str) -> list[int]:
    """Return the positions of ``end`` in ``text``, in order; they may overlap."""
    places: list[int] = []
    at = text.find(end)
    while at >= 0:
        places.append(at)
        at = text.find(end, at + 1)
    return places


def whole_of(grammar: ir.Grammar) -> Callable[[str], bool]:
    """Return a function that tests whether a text is complete in ``grammar``; for JSON, whether it
    is JSON."""
    if isinstance(grammar, ir.Pattern):
        return functools.partial(_matches, grammar.regex)
    if isinstance(grammar, ir.Choice):
        return frozenset(grammar.texts).__contains__
    if isinstance(grammar, ir.Either):
        parts = [whole_of(part) for part in grammar.parts]
        return lambda text: any(is_whole(text) for is_whole in parts)
    divider = Divider([grammar], "value")
    if isinstance(grammar, ir.Json):
        return functools.partial(_is_json, divider)
    return functools.partial(is_text_of, divider)


def _matches(regex: ir.Regex, text: str) -> bool:
    # Imported here, because automata are a lot of code for users who only have schemas.
    from structgen.automaton.schema import evaluate

    return bool(evaluate.matches(regex, text))


def _is_json(divider: Divider, text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    # A number may be the beginning of another one; everything else is complete only once.
    return text.rstrip()[-1] not in "0123456789" or is_text_of(divider, text)


_TEXT: OutputType[str] = OutputType(ir.Pattern(ir.ANY_TEXT, source="text"), str, "text")

_OF_NUMBERS = ("", *"0123456789.eE+-")

_Found = list[tuple[Part, str, bool]]


class _Pieces:
    """The pieces of an unfinished text: text, and parts that begin at marks in it.

    Args:
        plain: the type of text outside marks; None: free text.

    Attributes:
        at: the start of the part that is not certain yet.
    """

    names: frozenset[str | int] | None = None

    def __init__(self, plain: OutputType[Any] | None = None) -> None:
        self._text = ""
        self.at = 0
        self._step = 0
        self._is_open = False
        self._plain = plain or _TEXT

    def _free(self, end: int, *, is_closed: bool) -> _Found:
        """Continue text up to a place, where it may end; makes no piece of empty text."""
        more = self._text[self.at : end]
        self.at = max(self.at, end)
        self._is_open = self._is_open or bool(more)
        if not self._is_open or not (more or is_closed):
            return []
        part = Part(self._step, self._plain)
        if is_closed:
            self._next()
        return [(part, more, is_closed)]

    def _next(self) -> None:
        self._is_open = False
        self._step += 1

    def _certain(self, marks: Sequence[str]) -> int:
        """Return how far text certainly goes: its end may be the start of a mark."""
        n = max((len(mark) - 1 for mark in marks), default=0)
        for start in range(max(self.at, len(self._text) - n), len(self._text)):
            if any(mark.startswith(self._text[start:]) for mark in marks):
                return start
        return len(self._text)


class TagPieces(_Pieces):
    """See `user.PartReader`.

    Args:
        tags: the tags of the text, for which `are_certain` is true.
    """

    def __init__(self, tags: Sequence[ReadTag]) -> None:
        super().__init__()
        self._tags = tags
        self._marks = [tag.begin for tag in tags]
        self._begins = re.compile("|".join(map(re.escape, self._marks)))
        self._tag: ReadTag | None = None
        self._looked = 0  # from where on an end may come

    def feed(self, text: str) -> _Found:
        """See `user.PartReader`."""
        self._text += text
        found: _Found = []
        while True:
            if self._tag is None:
                opened = self._begins.search(self._text, self.at)
                if opened is None:
                    return found + self._free(self._certain(self._marks), is_closed=False)
                found += self._free(opened.start(), is_closed=True)
                self.at = self._looked = opened.end()
                self._tag = self._tags[self._marks.index(opened[0])]
            tag = self._tag
            last = self._text.find(tag.end, self._looked)
            while last >= 0 and not tag.is_whole(self._text[self.at : last]):
                last = self._text.find(tag.end, last + 1)
            if last < 0:
                self._looked = max(self.at, len(self._text) - len(tag.end) + 1)
                return found
            made = OutputType(_TEXT.grammar, functools.partial(_value, tag), "a tag")
            found.append((Part(self._step, made), self._text[self.at : last], True))
            self.at = last + len(tag.end)
            self._tag = None
            self._next()


def _value(tag: ReadTag, text: str) -> Any:
    return tag.make(tag.parse(text))


def are_certain(parts: Sequence[TagPart]) -> bool:
    """Return whether each begin and end is certain at once, independent of what follows."""
    begins = sorted(text_of(part.begin) for part in parts)
    if any(after.startswith(one) for one, after in itertools.pairwise(begins)):
        return False  # texts that begin with it sort next to it
    return all(
        _is_certain(part.grammar, part.end[0] if isinstance(part.end[0], str) else "")
        for part in parts
    )


def _is_certain(grammar: ir.Grammar, end: str) -> bool:
    """Return whether ``end`` always ends a tag when a text of ``grammar`` is first complete."""
    if isinstance(grammar, ir.Either) and regular(grammar) is None:
        return all(isinstance(part, ir.Json) and _is_certain(part, end) for part in grammar.parts)
    if not isinstance(grammar, ir.Json):
        return regular(grammar) is not None and bool(end)
    schema = grammar.schema
    kind = schema.get("type") if isinstance(schema, dict) else None
    # All JSON except numbers is complete only once.
    return kind in ("object", "array", "string", "boolean") or end[:1] not in _OF_NUMBERS


class AnswerPieces(_Pieces):
    """See `user.PartReader`: the whole text is one part."""

    def feed(self, text: str) -> _Found:
        """See `user.PartReader`."""
        self._text += text
        return self._free(len(self._text), is_closed=False)


class CallPieces(_Pieces):
    """See `user.PartReader`.

    Args:
        syntax: how calls are written.
        tools: the tools that may be called.
        answer: the type of answers without calls; None: free text.
        plain: other syntaxes in which the text may begin with a call.
    """

    def __init__(
        self,
        syntax: ToolSyntax,
        tools: Sequence[Tool],
        answer: OutputType | None = None,
        plain: Sequence[ToolSyntax] = (),
    ) -> None:
        super().__init__(answer)
        self._mark = syntax.marker if answer is None else ""
        self._syntax = syntax
        self._tools = {tool.name: tool for tool in tools}
        self._before: str | None = None  # the text before the next call's name
        self._tool: Tool | None = None
        self._arguments: JsonArguments | ParameterReader = JsonArguments(0)
        self._plain_openings = {one.opening(tool.name): one for one in plain for tool in tools}

    def feed(self, text: str) -> _Found:
        """See `user.PartReader`."""
        self._text += text
        found: _Found = []
        if self._before is None and not self._begin(found):
            return found
        while self._tool is not None or self._opens():
            assert self._tool is not None
            part = Part(self._step, self._tool.output, self._tool.name)
            more, last = self._arguments.feed(self._text)
            if last is None:
                return [*found, (part, more, False)] if more else found
            found.append((part, more, True))
            self.at, self._tool, self._before = last, None, self._syntax.again or ""
            self._next()
        return found

    @property
    def has_begun(self) -> bool:
        """Whether there are calls."""
        return self._before is not None

    @property
    def has_ended(self) -> bool:
        """Whether all calls are complete, followed by exactly the text that must follow them."""
        rest, after = self._text[self.at :], self._syntax.after
        # Blanks after the last arguments may belong to them.
        blanks = rest[: len(rest) - len(after)]
        return self._tool is None and rest.endswith(after) and not NOT_BLANK.search(blanks)

    def _begin(self, found: _Found) -> bool:
        """Read text up to the start of calls."""
        if self._plain_openings and not self.at:
            for opening, syntax in self._plain_openings.items():
                if opening.startswith(self._text):
                    return False  # which it may be
                if self._text.startswith(opening):
                    self._syntax, self._before = syntax, syntax.before
                    return True
            self._plain_openings = {}
        mark = self._mark
        if not mark:
            begins = self._syntax.begins(self._tools, named=self._plain is not _TEXT)
            if not self.at and any(text.startswith(self._text) for text in begins):
                return False  # which it may be
            if self.at or not self._text.startswith(begins):
                found += self._free(len(self._text), is_closed=False)
                return False
            start = 0
        else:
            start = self._text.find(mark, self.at)
            if start < 0:
                found += self._free(self._certain([mark]), is_closed=False)
                return False
            found += self._free(start, is_closed=True)
        self.at, self._before = start, self._syntax.before
        return True

    def _opens(self) -> bool:
        """Return whether a call's arguments begin here."""
        if not self._before:
            return False  # there are no more
        opened = _opening(self._syntax, self._before, tuple(self._tools)).match(self._text, self.at)
        if opened is not None:
            self._tool = self._tools[opened[1]]
            self.at = opened.end()
            if self._syntax.parameters is None:
                self._arguments = JsonArguments(self.at)
            else:
                self._arguments = ParameterReader(self._syntax, self._tool.parameters, self.at)
        return opened is not None


@functools.lru_cache(maxsize=64)
def _opening(syntax: ToolSyntax, before: str, names: tuple[str, ...]) -> re.Pattern[str]:
    """Match the text before a call's arguments; blanks before it may belong to earlier JSON."""
    starts, ends = (
        re.escape(text).replace(re.escape(INDEX), "[0-9]+") for text in (before, syntax.between)
    )
    if not syntax.between and syntax.parameters:  # the name ends where other text begins
        after = syntax.parameters.before, syntax.after
        ends = f"(?={'|'.join(map(re.escape, after))})"
    return re.compile(rf"[ \t\n\r]*?{starts}({'|'.join(map(re.escape, names))}){ends}")


def tagged_type(
    value: Tagged | TaggedText, name: str, lower: Callable[[Any], OutputType]
) -> OutputType:
    """Return the output type of free text with tags.

    Raises:
        OutputTypeError: a tag cannot hold a type, or the begins are ambiguous.
    """
    text = TaggedText(value) if isinstance(value, Tagged) else value
    inner = [_inner(tag, lower) for tag in text.tags]
    if text.stop_after_first and max(text.at_least, *(tag.at_least for tag in text.tags)) > 1:
        raise OutputTypeError(f"{name}: at_least requires more tags than the first one.")
    wholes = [whole_of(output.grammar) for output in inner]

    def fitted(tokens: Collection[str]) -> OutputType:
        parts: list[TagPart] = []
        readers: list[ReadTag] = []
        for tag, output, is_whole in zip(text.tags, inner, wholes, strict=True):
            begin, end = mark_of(tag.begin, tokens), mark_of(tag.end, tokens)
            bounds = tag.at_least, tag.at_most
            parts.append(TagPart(begin, output.grammar, end, bounds))
            make = functools.partial(TaggedValue, tag)
            texts = text_of(begin), text_of(end)
            readers.append(ReadTag(*texts, is_whole, output.parse, make, bounds))
        bounds = text.at_least, text.at_most
        separator = None if text.separator is None else mark_of(text.separator, tokens)
        flow = Flow(text.trigger, separator, text.stop_after_first)
        is_certain = separator is None and are_certain(parts)
        return OutputType(
            tag_grammar(parts, bounds, flow),
            functools.partial(read_tags, readers, bounds, name, flow=flow),
            name,
            all_checked(inner),
            fitted=fitted,
            growing=functools.partial(TagPieces, readers) if is_certain else None,
        )

    return fitted(())


def _inner(tag: Tagged, lower: Callable[[Any], OutputType]) -> OutputType:
    try:
        output = lower(tag.type)
    except OutputTypeError as error:
        raise error.inside(f"In {tag!r}") from error
    if ir.has_rules(output.grammar):
        raise OutputTypeError(
            f"{tag!r}: its type is a grammar, which cannot be inside a tag. Use a type that is "
            "not a Cfg and has no tags, or write the whole text as one Cfg."
        )
    return output
