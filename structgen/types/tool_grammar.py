"""`ToolCalls` as an output type: its grammar, and the calls of a finished text.

A call begins as soon as the syntax's marker is complete, like a tag (`tags`). Everything after it,
except the name and the arguments, is fixed and therefore forced. If a syntax has no marker, an
answer that begins like a call is a call, and all other text is free. With a marker, an answer may
also begin with a call in plain JSON (`tool_calls.PLAIN`). It counts as a call after a tool's name
and the key of the arguments, so other JSON stays text. Knows no template.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir
from structgen.grammar.regex import parse_python, tree

from .joined import LOOSE
from .tagged import AnswerPieces, CallPieces, whole_of
from .tags import Terminals, mark_of, overlap, up_to, without
from .tool_arguments import BLANK_CHARACTERS, Parameter, read_parameters
from .tool_calls import (
    CHOICES,
    INDEX,
    IS_TEXT,
    NEUTRAL,
    ParameterSyntax,
    ToolCalls,
    ToolsOffered,
    ToolSyntax,
)
from .tools import Tool, read_tools
from .user import OutputType, SpecialToken, all_checked

_START, _MORE = 0, 2
_BEGINS_JSON = frozenset(' \t\n\r{["-0123456789tfn')
_BLANK = ir.char_set([(0x20, 0x20), (0x9, 0xA), (0xD, 0xD)])
_BLANKS = tree.repeat(_BLANK, 0, None)
_VISIBLE = ir.negate(_BLANK)
_NUMBER = ir.Pattern(parse_python("0|[1-9][0-9]{0,3}"), source="number of a call")
"""The texts of `INDEX`."""


def tool_grammar(
    calls: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], tokens: Collection[str]
) -> ir.ContextFree:
    """Return the grammar of answers.

    Args:
        calls: the user's options.
        syntax: how calls are written.
        tools: the tools that may be called.
        tokens: names of tokens that have no text.

    Raises:
        OutputTypeError: the syntax cannot say what is asked for.
    """
    made = Terminals()
    rules: list[tuple[int, tuple[int, ...]]] = []
    names = ["answer", "call", "more"]
    values: dict[Any, list[tuple[str, list[int]]]] = {}  # shared by parameters with the same values

    def fixed(text: str) -> list[int]:
        found: list[int] = []
        for n, part in enumerate(text.split(INDEX)):
            if n:
                found.append(made.number(ir.Embedded("number of a call", _NUMBER)))
            found += map(made.text, mark_of(part, tokens))
        return found

    @functools.cache
    def arguments(how: ParameterSyntax | None) -> list[int]:
        """Return the symbols of the tools' arguments in a syntax."""
        return [
            made.number(ir.Embedded(f"arguments of {tool.name}", tool.output.grammar))
            if how is None
            else one_by_one(tool, how)
            for tool in tools
        ]

    def one_by_one(tool: Tool, how: ParameterSyntax) -> int:
        """Return the nonterminal of a tool's arguments. There are two for the rest from each
        parameter on: as the first argument, and after others."""
        begin = len(names)
        for number, one in enumerate(tool.parameters):
            same = one.text, repr(one.value)
            if same not in values:
                values[same] = _values(one, how, made, tokens)
            for is_further in (0, 1):
                here = len(names)
                names.append(f"{one.name} of {tool.name}")
                before = how.again * is_further + how.before + one.name
                if not one.is_required:
                    rules.append((here, (~(here + 2),)))
                for text, value in values[same]:
                    opening = fixed(before + how.between.replace(IS_TEXT, text))
                    rules.append((here, (*opening, *value, ~(begin + 2 * number + 3))))
        rules.extend(((len(names), ()), (len(names) + 1, ())))
        names.extend([f"end of {tool.name}"] * 2)
        return ~begin

    def named(before: str, written: ToolSyntax = syntax) -> list[list[int]]:
        inside = zip(tools, arguments(written.parameters), strict=True)
        return [[*fixed(written.opening(tool.name, before)), one] for tool, one in inside]

    def more(number: int, written: ToolSyntax) -> None:
        """Add the rules after the arguments: the end, or another call."""
        rules.append((number, tuple(fixed(written.after))))
        if calls.parallel is not False and written.again is not None:
            rules.extend((number, (*way, ~number)) for way in named(written.again, written))

    if calls.parallel and syntax.again is None:
        raise OutputTypeError(
            f"{calls!r}: this model's syntax allows only one call in an answer. Remove "
            "parallel=True, or pass a syntax= with again=."
        )
    arguments(syntax.parameters)
    more(_MORE, syntax)
    if calls.has_text:
        rules += _free(calls, syntax, tools, made, named, tokens)
        for one in calls.without_markers(syntax):
            number = len(names)
            names.append(f"more, begun as {one.before!r}")
            rules += [(_START, (*way, ~number)) for way in named(one.before, one)]
            more(number, one)
    else:
        rules += [(_START, (*way, ~_MORE)) for way in named(syntax.before)]
    return ir.ContextFree(tuple(made.all), tuple(names), tuple(rules), _START)


def _values(
    one: Parameter, how: ParameterSyntax, made: Terminals, tokens: Collection[str]
) -> list[tuple[str, list[int]]]:
    """Return the forms of a value and its closing text, each with whether it is a string."""
    first, *more = mark_of(how.after, tokens) or ("",)
    name, after = f"value such as {one.name}", list(map(made.text, more))
    ways: list[tuple[str, list[int]]] = []
    if one.value is not None:
        opening = [made.number(ir.Embedded(name, one.value))]
        ways.append(("false", [*opening, *([made.text(first)] if first else []), *after]))
    if one.text is None:
        return ways
    tag = how.after.lstrip()
    kept: ir.Regex = ir.Intersect((one.text,))
    bound = without([tag])
    if isinstance(first, str) and not more:
        kept, bound = tree.concat((kept, ir.literal(first))), up_to(tag, [tag])
    if not tree.lacks(one.text, tag[:1]):
        kept = tree.intersect((kept, bound))
    if isinstance(first, SpecialToken):
        after.insert(0, made.text(first))
        if whole_of(ir.Pattern(kept))(""):
            ways.append(("true", after))
            kept = tree.intersect((kept, tree.repeat(ir.ANY_CHAR, 1, None)))
    elif more:
        kept = tree.concat((kept, ir.literal(first)))
    text = made.number(ir.Embedded(name, ir.Pattern(kept, source=name)))
    return [*ways, ("true", [text, *after])]


def _free(
    calls: ToolCalls,
    syntax: ToolSyntax,
    tools: Sequence[Tool],
    made: Terminals,
    named: Callable[[str], list[list[int]]],
    tokens: Collection[str],
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the rules of an answer that is, or begins with, text; it never begins like a call
    without markers."""
    plain = calls.without_markers(syntax)
    openings = [one.opening(tool.name) for one in plain for tool in tools]
    texts = () if calls.blank else (any_call(tools),)

    def alone(text: ir.Regex, free: int) -> list[tuple[int, ...]]:
        if not texts:
            return [(), (free,)]
        pattern = ir.Pattern(tree.intersect((text, *texts)), source="answer")
        return [(made.number(ir.Embedded("answer", pattern)),)]

    if not syntax.marker:
        if not calls.may_be_text:
            raise OutputTypeError(
                f"{calls!r}: this model's syntax has no marker before calls, so text cannot come "
                "before them. Remove text=True, or pass a syntax= with a marker."
            )
        text = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), no_calls(syntax, tools)))
        free = made.number(ir.Embedded("text", ir.Pattern(text, source="text")))
        return [
            *((_START, way) for way in alone(text, free)),
            *((_START, (*way, ~_MORE)) for way in named(syntax.before)),
        ]
    first, *more = mark_of(syntax.marker, tokens)
    begun = tree.concat((tree.alternate(map(ir.literal, openings)), ir.ANY_TEXT))
    none = [tree.complement(begun)] if openings else []
    some = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), without([syntax.marker]), *none))
    free = made.number(ir.Embedded("text", ir.Pattern(some, source="text")))
    if isinstance(first, SpecialToken) or not (more or overlap([syntax.marker])):
        ways = [[*way, ~_MORE] for way in named(syntax.before)]
        bodies = [*ways, *([free, *way] for way in ways)]
    else:
        # Text cannot contain the next token, so any token before it may be text.
        before = tree.concat((ir.ANY_TEXT, ir.literal(first)))
        before = tree.intersect((before, without([syntax.marker])))
        opening = tree.intersect((before if more else up_to(first, [first]), *none))
        source = f"text up to {first!r}"
        opened = made.number(ir.Embedded(source, ir.Pattern(opening, source=source)))
        bodies = [[opened, *way, ~_MORE] for way in named(syntax.before[len(first) :])]
    ends = alone(some, free) if calls.may_be_text else []
    return [*((_START, end) for end in ends), *((_START, tuple(body)) for body in bodies)]


def any_call(tools: Sequence[Tool]) -> ir.Regex:
    """Return nonblank texts without a call of a tool as JSON."""

    def spaced(*parts: str | ir.Regex) -> ir.Regex:
        return tree.concat(
            piece
            for part in parts
            for piece in (ir.literal(part) if isinstance(part, str) else part, _BLANKS)
        )

    def maybe(*parts: str) -> ir.Regex:
        return tree.repeat(spaced(*parts), 0, 1)

    keys = tree.alternate(map(ir.literal, ('"name"', '"function"', '"tool"', '"tool_name"')))
    names = tree.alternate(ir.literal(json.dumps(tool.name)) for tool in tools)
    kind, inner = maybe('"type"', ":", '"function"', ","), maybe('"function"', ":", "{")
    call = spaced("{", kind, inner, keys, ":", names)
    visible = tree.concat((_BLANKS, _VISIBLE, ir.ANY_TEXT))
    anywhere = tree.concat((ir.ANY_TEXT, call, ir.ANY_TEXT))
    return tree.intersect((visible, tree.complement(anywhere)))


def no_calls(syntax: ToolSyntax, tools: Sequence[Tool]) -> ir.Regex:
    """Return texts without the start of a call."""
    if syntax.marker:
        return without([syntax.marker])
    return tree.complement(tree.concat((_BLANKS, _begun(syntax, tools))))


def _begun(syntax: ToolSyntax, tools: Sequence[Tool]) -> ir.Regex:
    """Return texts that begin like calls."""
    begins = syntax.begins(tool.name for tool in tools)
    return tree.concat((tree.alternate(map(ir.literal, begins)), ir.ANY_TEXT))


def answer_type(
    calls: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], lower: Callable[[Any], OutputType]
) -> OutputType:
    """Return the type of answers without calls: its texts never begin like a call.

    Raises:
        OutputTypeError: the type is invalid, or one of its texts might be a call.
    """
    output = lower(calls.answer)
    if output.offered is not None:
        raise OutputTypeError(f"{calls!r}: answer= must be the type of a value, not ToolCalls.")
    grammar = output.grammar
    if isinstance(grammar, ir.Pattern) and tools:
        begun = tree.complement(_begun(syntax, tools))
        regex = tree.intersect((grammar.regex, begun))
        return replace(output, grammar=ir.Pattern(regex, source=grammar.source))
    for tool in tools:
        if _may_begin(grammar, syntax.opening(tool.name).partition(INDEX)[0]):
            raise OutputTypeError(
                f"{calls!r}: an answer may begin in the same way as a call of {tool.name}, so "
                "they cannot be distinguished. Pass a class, or a schema of an object without "
                "other properties, as answer=, or pass a syntax= with a marker."
            )
    return output


def _may_begin(grammar: ir.Grammar, begun: str) -> bool:
    """Return whether a text of a grammar may begin like this, under any options."""
    if isinstance(grammar, ir.Choice):
        return any(text.startswith(begun) for text in grammar.texts)
    if isinstance(grammar, ir.Json) and begun[0] not in _BEGINS_JSON:
        return False
    # Imported here, because automata are a lot of code for users who only make types.
    from structgen.automaton import build

    machine = build(grammar, LOOSE).machine
    state, _ = machine.read(machine.start, begun.encode())
    return bool(state)


def tool_calls_type(value: ToolCalls, name: str, lower: Callable[[Any], OutputType]) -> OutputType:
    """Return the output type of calls.

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

    if (how := syntax.parameters) is not None:
        callable_ = tuple(
            replace(tool, parameters=read_parameters(tool.name, tool.output.grammar, how))
            for tool in callable_
        )
    begins = syntax.begins((tool.name for tool in callable_), named=True)
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
        outputs = [tool.output for tool in callable_]
        if answer is not None:
            grammar = ir.Either((grammar, answer.grammar))
            outputs.append(answer)

        def parse(text: str) -> list[Any]:
            if answer is not None and not text.startswith(begins):
                return [answer.parse(text)]  # it never begins like a call
            return read_calls(value, syntax, callable_, name, text)

        return OutputType(
            grammar,
            parse,
            name,
            all_checked(outputs),
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
    """Return the output type without calls: a value, or text without the start of a call."""

    begins = syntax.begins(tool.name for tool in tools)

    def read(text: str) -> list[Any]:
        if answer is not None:
            return [answer.parse(text)]
        begun = text if syntax.marker else text.lstrip(BLANK_CHARACTERS)
        if syntax.marker in begun if syntax.marker else begun.startswith(begins):
            raise ParseError(
                f"The text does not match {name}: it contains the beginning of a call. Text: "
                f"{text!r}",
                text=text,
            )
        return _text(value, name, text)

    if answer is not None:
        growing = functools.partial(AnswerPieces, answer)
        return replace(answer, parse=read, named=name, offered=offered, growing=growing)
    regex = no_calls(syntax, tools)
    if not value.blank:
        regex = tree.intersect((regex, any_call(tools)))
    grammar = ir.Pattern(regex, source="text without calls")
    return OutputType(grammar, read, name, offered=offered, growing=AnswerPieces)


def read_calls(
    asked: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], name: str, text: str
) -> list[Any]:
    """Return the text before the calls, if any, and the calls.

    Raises:
        ParseError: a call is incomplete, its arguments are invalid, or the answer does not fit the
            options.
    """
    reader = CallPieces(syntax, tools, plain=asked.without_markers(syntax))
    found = reader.feed(text)
    calls = [(part, inside) for part, inside, is_closed in found if part.tool and is_closed]
    if not reader.has_begun:
        if not asked.may_be_text:
            raise ParseError(
                f"The text does not match {name}: it has no call. Text: {text!r}", text=text
            )
        return _text(asked, name, text)
    if found and not found[0][0].tool and not asked.has_text:
        raise _not_whole(name, text, 0)
    pieces: list[Any] = [inside for part, inside, _ in found if not part.tool]
    for part, inside in calls:
        try:
            pieces.append(part.output.parse(inside))
        except ParseError as error:
            raise ParseError(f"In a call of {part.tool}: {error}", text=text) from error
    if not reader.has_ended or not calls or (asked.parallel is False and len(calls) > 1):
        raise _not_whole(name, text, reader.at)
    return pieces


def _text(asked: ToolCalls, name: str, text: str) -> list[Any]:
    """Return the parts of an answer that is only text."""
    if not asked.blank and not text.strip(BLANK_CHARACTERS):
        raise ParseError(f"The text does not match {name}: it is empty. Text: {text!r}", text=text)
    return [text] if text else []


def _not_whole(name: str, text: str, at: int) -> ParseError:
    return ParseError(
        f"The text does not match {name}: there is no complete call at position {at:,}. Text: "
        f"{text!r}",
        text=text,
    )
