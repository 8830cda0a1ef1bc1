"""Tagged text and calls of tools, read piece by piece while they are written.

Owns which pieces of an unfinished text are certain, and their values' types; what `tag_reader` and
`tool_reader` make of the finished text is the same. Knows no masks and no partial values.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from structgen.grammar import ir

from .tag_grammar import regular
from .tag_reader import ReadTag
from .tool_calls import ToolSyntax
from .tools import Tool
from .user import OutputType, Part

_TEXT: OutputType[str] = OutputType(ir.Pattern(ir.ANY_TEXT, source="text"), str, "text")

_NOT_BLANK = re.compile(r"[^ \t\n\r]")

_OF_NUMBERS = ("", *"0123456789.eE+-")

_Found = list[tuple[Part, str, bool]]


class _Pieces:
    """The pieces of a text that is not finished: text, and what begins at marks in it."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0  # where what is not told yet begins
        self._step = 0
        self._is_open = False
        self._plain: OutputType[Any] = _TEXT

    def _free(self, end: int, *, is_closed: bool) -> _Found:
        """Text goes on to a place, and may end there; there is no piece of empty text."""
        more = self._text[self._at : end]
        self._at = max(self._at, end)
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
        """How far text goes at least: what it ends in may be the start of a mark."""
        n = max((len(mark) - 1 for mark in marks), default=0)
        for start in range(max(self._at, len(self._text) - n), len(self._text)):
            if any(mark.startswith(self._text[start:]) for mark in marks):
                return start
        return len(self._text)


class TagPieces(_Pieces):
    """See `user.PartReader`.

    Args:
        tags: those of the text, of which `are_certain` holds.
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
                opened = self._begins.search(self._text, self._at)
                if opened is None:
                    return found + self._free(self._certain(self._marks), is_closed=False)
                found += self._free(opened.start(), is_closed=True)
                self._at = self._looked = opened.end()
                self._tag = self._tags[self._marks.index(opened[0])]
            tag = self._tag
            last = self._text.find(tag.end, self._looked)
            while last >= 0 and not tag.is_whole(self._text[self._at : last]):
                last = self._text.find(tag.end, last + 1)
            if last < 0:
                self._looked = max(self._at, len(self._text) - len(tag.end) + 1)
                return found
            part = Part(self._step, _made(tag))
            found.append((part, self._text[self._at : last], True))
            self._at = last + len(tag.end)
            self._tag = None
            self._next()


def _made(tag: ReadTag) -> OutputType:
    def parse(text: str) -> Any:
        return tag.make(tag.parse(text))

    return OutputType(_TEXT.grammar, parse, "a tag")


def are_certain(tags: Sequence[ReadTag], inner: Sequence[ir.Grammar], ends: Sequence[Any]) -> bool:
    """Whether each begin and end is known as soon as it is there, whatever comes after it.

    Args:
        tags: the tags of a text.
        inner: what stands in each.
        ends: what ends each, as `tags.mark_of` gives it.
    """
    begins = sorted(tag.begin for tag in tags)
    if any(after.startswith(one) for one, after in itertools.pairwise(begins)):
        return False  # what begins with a text stands next to it
    return all(
        _is_certain(grammar, end[0] if isinstance(end[0], str) else "")
        for grammar, end in zip(inner, ends, strict=True)
    )


def _is_certain(grammar: ir.Grammar, end: str) -> bool:
    """Whether the first place where a text of ``grammar`` is whole, and ``end`` follows, is it."""
    if isinstance(grammar, ir.Either) and regular(grammar) is None:
        return all(isinstance(part, ir.Json) and _is_certain(part, end) for part in grammar.parts)
    if not isinstance(grammar, ir.Json):
        return regular(grammar) is not None and bool(end)
    schema = grammar.schema
    kind = schema.get("type") if isinstance(schema, dict) else None
    # All JSON but numbers is whole once only.
    return kind in ("object", "array", "string", "boolean") or end[:1] not in _OF_NUMBERS


class AnswerPieces(_Pieces):
    """See `user.PartReader`: all of the text is one part.

    Args:
        answer: its type; None: free text.
    """

    def __init__(self, answer: OutputType[Any] | None = None) -> None:
        super().__init__()
        self._plain = _TEXT if answer is None else answer

    def feed(self, text: str) -> _Found:
        """See `user.PartReader`."""
        self._text += text
        return self._free(len(self._text), is_closed=False)


class CallPieces(_Pieces):
    """See `user.PartReader`.

    Args:
        syntax: how calls are written.
        tools: those that may be called.
        answer: the type of what is no call; None: free text.
        plain: in which other syntaxes the text may begin with a call.
    """

    def __init__(
        self,
        syntax: ToolSyntax,
        tools: Sequence[Tool],
        answer: OutputType | None = None,
        plain: Sequence[ToolSyntax] = (),
    ) -> None:
        super().__init__()
        self._mark = syntax.marker if answer is None else ""
        self._plain = _TEXT if answer is None else answer
        self._syntax = syntax
        self._tools = tools
        self._before: str | None = None  # what comes before the next call's name
        self._tool: Tool | None = None
        self._first = 0  # where its arguments begin
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
            try:
                if "}" not in self._text[self._at :]:
                    raise ValueError
                first = _NOT_BLANK.search(self._text, self._first)
                _, last = json.JSONDecoder().raw_decode(self._text, first.start() if first else 0)
            except (ValueError, RecursionError):
                more = self._text[self._at :]
                self._at = len(self._text)
                return [*found, (part, more, False)] if more else found
            found.append((part, self._text[self._at : last], True))
            self._at, self._tool, self._before = last, None, self._syntax.again or ""
            self._next()
        return found

    def _begin(self, found: _Found) -> bool:
        """Read text, up to where calls begin."""
        if self._plain_openings and not self._at:
            for opening, syntax in self._plain_openings.items():
                if opening.startswith(self._text):
                    return False  # which it may be
                if self._text.startswith(opening):
                    self._syntax, self._before = syntax, syntax.before
                    return True
            self._plain_openings = {}
        mark = self._mark
        if not mark:
            begins = self._syntax.before
            if not self._at and begins.startswith(self._text):
                return False  # which it may be
            if self._at or not self._text.startswith(begins):
                found += self._free(len(self._text), is_closed=False)
                return False
            start = 0
        else:
            start = self._text.find(mark, self._at)
            if start < 0:
                found += self._free(self._certain([mark]), is_closed=False)
                return False
            found += self._free(start, is_closed=True)
        self._at, self._before = start, self._syntax.before
        return True

    def _opens(self) -> bool:
        """Whether a call's arguments begin here."""
        if not self._before:
            return False  # there are no more
        first = _NOT_BLANK.search(self._text, self._at)
        most = len(self._text) if first is None else first.start()
        for at in range(self._at, most + 1):  # blanks may belong to the JSON before
            for tool in self._tools:
                opening = self._syntax.opening(tool.name, self._before)
                if self._text.startswith(opening, at):
                    self._tool = tool
                    self._at = self._first = at + len(opening)
                    return True
        return False
