"""`ToolCalls` as an output type: its grammar, and the calls of a finished text.

Owns the reading of texts, and what `ToolCalls` becomes. Knows no template: the syntax is given, or
neutral.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir
from structgen.grammar.regex import tree

from .part_readers import AnswerPieces, CallPieces
from .tool_calls import CHOICES, NEUTRAL, ToolCalls, ToolsOffered, ToolSyntax
from .tool_grammar import answer_type, no_calls, saying, tool_grammar
from .tools import Tool, read_tools
from .user import OutputType

_BLANKS = re.compile(r"[ \t\n\r]*")


def tool_calls_type(value: ToolCalls, name: str, lower: Callable[[Any], OutputType]) -> OutputType:
    """The output type of calls.

    Args:
        value: what the user wrote.
        name: what to call it in messages.
        lower: makes output types of the tools' arguments.

    Raises:
        OutputTypeError: a tool cannot be enforced, or the syntax cannot say what is asked for.
    """
    syntax = value.syntax or NEUTRAL
    tools = read_tools(value.tools, lower)
    callable_ = tools if value.choice != "none" else ()
    if value.choice not in CHOICES:
        callable_ = tuple(tool for tool in tools if tool.name == value.choice)
        if not callable_:
            raise OutputTypeError(
                f"ToolCalls: choice={value.choice!r} is neither 'auto', 'required', 'none' nor one "
                f"of the tools: {', '.join(tool.name for tool in tools)}."
            )

    answer = None if value.answer is None else answer_type(value, syntax, callable_, lower)

    def rewritten(syntax: ToolSyntax) -> OutputType:
        return tool_calls_type(value.written_as(syntax), name, lower)

    offered = ToolsOffered(
        tuple(tool.schema for tool in tools),
        syntax,
        value.instructions,
        rewritten if value.syntax is None else None,
    )

    def fitted(tokens: Collection[str]) -> OutputType:
        if not callable_:
            return _without_calls(value, syntax, tools, name, answer, offered)
        grammar: ir.Grammar = tool_grammar(value, syntax, callable_, tokens)
        parse = functools.partial(read_calls, value, syntax, callable_, name)
        outputs = [tool.output for tool in callable_]
        if answer is not None:
            grammar = ir.Either((grammar, answer.grammar))
            parse = functools.partial(_read, syntax.before, answer, parse)
            outputs.append(answer)
        return OutputType(
            grammar,
            parse,
            name,
            tuple(dict.fromkeys(found for output in outputs for found in output.checked)),
            fitted=fitted,
            offered=offered,
            growing=functools.partial(
                CallPieces, syntax, callable_, answer, value.without_markers(syntax)
            ),
        )

    return fitted(())


def _without_calls(
    value: ToolCalls,
    syntax: ToolSyntax,
    tools: Sequence[Tool],
    name: str,
    answer: OutputType | None,
    offered: ToolsOffered,
) -> OutputType:
    """The output type where none may be called: a value, or a text in which no call begins."""

    def read(text: str) -> list[Any]:
        if answer is not None:
            return [answer.parse(text)]
        begun = text if syntax.marker else text[after_blanks(text, 0) :]
        if syntax.marker in begun if syntax.marker else begun.startswith(syntax.before):
            raise ParseError(
                f"The text is no {name}: a call begins in it. Text: {text!r}", text=text
            )
        return _text(value, name, text)

    if answer is not None:
        growing = functools.partial(AnswerPieces, answer)
        return replace(answer, parse=read, named=name, offered=offered, growing=growing)
    regex = no_calls(syntax)
    if not value.blank:
        regex = tree.intersect((regex, saying(tools)))
    grammar = ir.Pattern(regex, source="text without calls")
    return OutputType(grammar, read, name, offered=offered, growing=AnswerPieces)


def _read(
    before: str, answer: OutputType, calls: Callable[[str], list[Any]], text: str
) -> list[Any]:
    """The calls, or the value of an answer, which never begins as a call does."""
    return calls(text) if text.startswith(before) else [answer.parse(text)]


def read_calls(
    asked: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], name: str, text: str
) -> list[Any]:
    """The text before the calls, if any, and the calls.

    Raises:
        ParseError: a call is not whole, its arguments are not valid, or what there is, is not what
            was asked for.
    """
    for plain in asked.without_markers(syntax):
        if any(text.startswith(plain.opening(tool.name)) for tool in tools):
            syntax = plain
    start = text.find(syntax.marker) if syntax.marker else 0
    if start < 0 or (not syntax.marker and not text.startswith(syntax.before)):
        if not asked.may_be_text:
            raise ParseError(f"The text is no {name}: it has no call. Text: {text!r}", text=text)
        return _text(asked, name, text)
    if start and not asked.has_text:
        raise _not_whole(name, text, 0)
    pieces: list[Any] = [text[:start]] if start else []
    at, before = start, syntax.before
    while True:
        call, ends = _call(before, syntax, tools, name, text, at)
        pieces.append(call)
        if any(text[end:] == syntax.after for end in ends):
            return pieces
        if syntax.again is None or asked.parallel is False:
            raise _not_whole(name, text, ends[0])
        before = syntax.again
        at = next((end for end in ends if text.startswith(before, end)), ends[0])


def _text(asked: ToolCalls, name: str, text: str) -> list[Any]:
    """The parts of an answer that is text alone."""
    if not asked.blank and after_blanks(text, 0) == len(text):
        raise ParseError(f"The text is no {name}: it says nothing. Text: {text!r}", text=text)
    return [text] if text else []


def _call(
    before: str, syntax: ToolSyntax, tools: Sequence[Tool], name: str, text: str, at: int
) -> tuple[Any, range]:
    """The call at a place, and where its arguments may end: blanks after them may be theirs."""
    for tool in tools:
        opening = syntax.opening(tool.name, before)
        if not text.startswith(opening, at):
            continue
        first = after_blanks(text, at + len(opening))
        try:
            _, last = json.JSONDecoder().raw_decode(text, first)
        except (ValueError, RecursionError):
            raise _not_whole(name, text, first) from None
        try:
            call = tool.output.parse(text[first:last])
            return call, range(last, after_blanks(text, last) + 1)
        except ParseError as error:
            raise ParseError(f"In a call of {tool.name}: {error}", text=text) from error
    raise _not_whole(name, text, at)


def after_blanks(text: str, at: int) -> int:
    """Where the blanks that begin at a place end: JSON may have some around it."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _not_whole(name: str, text: str, at: int) -> ParseError:
    return ParseError(
        f"The text is no {name}: no call is whole at position {at:,}. Text: {text!r}", text=text
    )
