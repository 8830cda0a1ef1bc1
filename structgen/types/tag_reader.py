"""Finished text with tags into pieces of text and typed values.

Owns where the tags of a text begin and end. The first ``end`` counts where the type is whole and
the rest can be read, as in the grammar (`tag_grammar`). Knows no masks.
"""

from __future__ import annotations

import functools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from structgen.errors import ParseError
from structgen.grammar import ir

from .divided import Divider, is_text_of

Bounds: TypeAlias = "tuple[int, int | None]"
"""Fewest and most, or None."""


@dataclass(frozen=True, slots=True)
class ReadTag:
    """One kind of tag, to be read.

    Attributes:
        begin: its text.
        end: its text.
        is_whole: whether a text can be what stands in it, see `whole_of`.
        parse: what makes a value of that.
        make: what makes a piece of the value.
        bounds: fewest and most of them.
    """

    begin: str
    end: str
    is_whole: Callable[[str], bool]
    parse: Callable[[str], Any]
    make: Callable[[Any], Any]
    bounds: Bounds


class _Found(NamedTuple):
    """A tag in a text, and where its parts are."""

    tag: ReadTag
    start: int
    first: int
    last: int
    after: int


def read_tags(tags: Sequence[ReadTag], bounds: Bounds, name: str, text: str) -> list[Any]:
    """The pieces of ``text``: a str where it is free, what `ReadTag.make` gives for each tag.

    Raises:
        ParseError: a begin opens nothing, what it opens is not one of the values of its type, or
            there are fewer or more tags than ``bounds`` and theirs say.
    """
    pieces: list[Any] = []
    at = 0
    path = _cut(tags, name, text)
    counted = [(f"{tag.begin!r}", tag.bounds, sum(f.tag is tag for f in path)) for tag in tags]
    for what, (least, most), count in [*counted, ("tags in all", bounds, len(path))]:
        if count < least or (most is not None and count > most):
            raise ParseError(
                f"The text is no {name}: it has {count} {what}. Text: {text!r}", text=text
            )
    for found in path:
        if found.start > at:
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


def _cut(tags: Sequence[ReadTag], name: str, text: str) -> list[_Found]:
    by_length = sorted(tags, key=lambda tag: -len(tag.begin))
    begins = re.compile("|".join(re.escape(tag.begin) for tag in by_length))
    # Where each end stands, but for those behind which the rest cannot be read.
    ends = {tag.end: _places(tag.end, text) for tag in tags}

    def dismiss(after: int) -> None:
        for end, places in ends.items():
            at = bisect_left(places, after - len(end))
            if at < len(places) and places[at] == after - len(end):
                del places[at]

    def ways(at: int) -> Iterator[_Found | None]:
        opened = begins.search(text, at)
        if opened is None:
            yield None
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
                    yield _Found(tag, start, first, last, last + len(tag.end))

    path: list[_Found] = []
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
    where = "" if opened is None else f" {opened[0]!r} at position {opened.start():,}"
    raise ParseError(
        f"The text is no {name}: a tag opens nothing that is whole, such as{where}. Text: {text!r}",
        text=text,
    )


def _places(end: str, text: str) -> list[int]:
    """Where ``end`` stands in ``text``, in order; it may overlap itself."""
    places: list[int] = []
    at = text.find(end)
    while at >= 0:
        places.append(at)
        at = text.find(end, at + 1)
    return places


def whole_of(grammar: ir.Grammar) -> Callable[[str], bool]:
    """What tells whether a text can be a whole one of ``grammar``; of JSON, whether it is JSON."""
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
    # Only when there are tags to read: automata are a lot of code to those who have schemas only.
    from structgen.automaton.json import evaluate

    return bool(evaluate.matches(regex, text))


def _is_json(divider: Divider, text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    # A number may be the beginning of another one; everything else is whole once only.
    return text.rstrip()[-1] not in "0123456789" or is_text_of(divider, text)
