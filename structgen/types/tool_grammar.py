"""The grammar of calls in a model's syntax, with free text before or instead of them.

A call begins as soon as the syntax's marker is there, as a tag does (`tag_grammar`); what follows
is fixed but for the name and the arguments, so that it is forced. Where a syntax has no marker, an
answer that begins as a call is one, and all other text is free. Where it has one, an answer may
also begin with a call in plain JSON (`PLAIN`): it is one as soon as a tool's name and the key of
the arguments are there, so that other JSON stays text. Knows no values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.regex import tree

from .divided import LOOSE
from .tag_grammar import Terminals, overlap, up_to, without
from .tags import mark_of
from .tool_calls import ToolCalls, ToolSyntax
from .tools import Tool
from .user import OutputType, SpecialToken

_START, _MORE = 0, 2
_BEGINS_JSON = frozenset(' \t\n\r{["-0123456789tfn')
_BLANK = ir.char_set([(0x20, 0x20), (0x9, 0xA), (0xD, 0xD)])
_BLANKS = tree.repeat(_BLANK, 0, None)
_VISIBLE = ir.negate(_BLANK)


def tool_grammar(
    calls: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], tokens: Collection[str]
) -> ir.ContextFree:
    """The texts of answers.

    Args:
        calls: what the user asked for.
        syntax: how calls are written.
        tools: those of which there may be calls.
        tokens: names of the tokens that are no text.

    Raises:
        OutputTypeError: the syntax cannot say what is asked for.
    """
    made = Terminals()
    rules: list[tuple[int, tuple[int, ...]]] = []
    arguments = [
        made.number(ir.Embedded(f"arguments of {tool.name}", tool.output.grammar)) for tool in tools
    ]

    def fixed(text: str) -> list[int]:
        return [made.text(piece) for piece in mark_of(text, tokens)] if text else []

    def named(before: str, written: ToolSyntax = syntax) -> list[list[int]]:
        return [
            [*fixed(written.opening(tool.name, before)), inside]
            for tool, inside in zip(tools, arguments, strict=True)
        ]

    def more(number: int, written: ToolSyntax) -> None:
        """What follows the arguments: the end, or another call."""
        rules.append((number, tuple(fixed(written.after))))
        if calls.parallel is not False and written.again is not None:
            rules.extend((number, (*way, ~number)) for way in named(written.again, written))

    if calls.parallel and syntax.again is None:
        raise OutputTypeError(
            f"{calls!r}: this model's syntax has one call in an answer. Leave parallel=True out, "
            "or pass a syntax= that has an again=."
        )
    names = ["answer", "call", "more"]
    more(_MORE, syntax)
    if calls.has_text:
        plain = calls.without_markers(syntax)
        openings = [one.opening(tool.name) for one in plain for tool in tools]
        said = () if calls.blank else (saying(tools),)
        rules += _free(calls, syntax, made, named, tokens, openings, said)
        for one in plain:
            number = len(names)
            names.append(f"more, begun as {one.before!r}")
            rules += [(_START, (*way, ~number)) for way in named(one.before, one)]
            more(number, one)
    else:
        rules += [(_START, (*way, ~_MORE)) for way in named(syntax.before)]
    return ir.ContextFree(tuple(made.all), tuple(names), tuple(rules), _START)


def _beginning_with(openings: Iterable[str]) -> ir.Regex:
    return tree.concat((tree.alternate(map(ir.literal, openings)), ir.ANY_TEXT))


def _free(
    calls: ToolCalls,
    syntax: ToolSyntax,
    made: Terminals,
    named: Callable[[str], list[list[int]]],
    tokens: Collection[str],
    openings: Sequence[str],
    said: Sequence[ir.Regex],
) -> list[tuple[int, tuple[int, ...]]]:
    """The rules of an answer that is text, or begins with it; none that has an opening does. An
    answer that is text alone is ``said``, too."""

    def alone(text: ir.Regex, free: int) -> list[tuple[int, ...]]:
        if not said:
            return [(), (free,)]
        pattern = ir.Pattern(tree.intersect((text, *said)), source="answer")
        return [(made.number(ir.Embedded("answer", pattern)),)]

    if not syntax.marker:
        if not calls.may_be_text:
            raise OutputTypeError(
                f"{calls!r}: in this model's syntax calls have no marker, so that no text can "
                "stand before them. Leave text=True out, or pass a syntax= with a marker."
            )
        call = tree.concat((_BLANKS, ir.literal(syntax.before), ir.ANY_TEXT))
        text = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), tree.complement(call)))
        free = made.number(ir.Embedded("text", ir.Pattern(text, source="text")))
        return [
            *((_START, way) for way in alone(text, free)),
            *((_START, (*way, ~_MORE)) for way in named(syntax.before)),
        ]
    first, *more = mark_of(syntax.marker, tokens)
    if isinstance(first, str) and more:
        raise OutputTypeError(
            f"The marker {syntax.marker!r} has a special token inside. It may begin with one."
        )
    rest = syntax.before[len(syntax.marker) :]
    none = [tree.complement(_beginning_with(openings))] if openings else []
    some = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), without([syntax.marker]), *none))
    free = made.number(ir.Embedded("text", ir.Pattern(some, source="text")))
    if isinstance(first, SpecialToken) or not overlap([syntax.marker]):
        ways = [[*way, ~_MORE] for way in named(syntax.before)]
        bodies = [*ways, *([free, *way] for way in ways)]
    else:
        opening = tree.intersect((up_to(syntax.marker, [syntax.marker]), *none))
        source = f"text up to {syntax.marker!r}"
        opened = made.number(ir.Embedded(source, ir.Pattern(opening, source=source)))
        bodies = [[opened, *way, ~_MORE] for way in named(rest)]
    ends = alone(some, free) if calls.may_be_text else []
    return [*((_START, end) for end in ends), *((_START, tuple(body)) for body in bodies)]


def saying(tools: Sequence[Tool]) -> ir.Regex:
    """Texts that are not blank, and in which no call of a tool is written as JSON."""

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


def no_calls(syntax: ToolSyntax) -> ir.Regex:
    """Texts in which no call begins."""
    if syntax.marker:
        return without([syntax.marker])
    begun = tree.concat((_BLANKS, ir.literal(syntax.before), ir.ANY_TEXT))
    return tree.intersect((ir.ANY_TEXT, tree.complement(begun)))


def answer_type(
    calls: ToolCalls, syntax: ToolSyntax, tools: Sequence[Tool], lower: Callable[[Any], OutputType]
) -> OutputType:
    """The type of answers that are no calls: none of its texts begins as a call does.

    Raises:
        OutputTypeError: there is no such type, or one of its texts might be a call.
    """
    output = lower(calls.answer)
    if output.offered is not None:
        raise OutputTypeError(f"{calls!r}: answer= is a type of values, and no ToolCalls.")
    grammar = output.grammar
    if isinstance(grammar, ir.Pattern) and tools:
        begun = tree.concat((ir.literal(syntax.before), ir.ANY_TEXT))
        regex = tree.intersect((grammar.regex, tree.complement(begun)))
        return replace(output, grammar=ir.Pattern(regex, source=grammar.source))
    for tool in tools:
        if _may_begin(grammar, syntax.opening(tool.name)):
            raise OutputTypeError(
                f"{calls!r}: an answer may begin as a call of {tool.name} does, so that the two "
                "could not be told apart. Pass a class, or a schema of an object without other "
                "properties, as answer=; or a syntax= with a marker."
            )
    return output


def _may_begin(grammar: ir.Grammar, begun: str) -> bool:
    """Whether a text of a grammar begins so, under any options."""
    if isinstance(grammar, ir.Choice):
        return any(text.startswith(begun) for text in grammar.texts)
    if isinstance(grammar, ir.Json) and begun[0] not in _BEGINS_JSON:
        return False
    # Only now: automata are a lot of code to those who have types only.
    from structgen.automaton import build

    machine = build(grammar, LOOSE).machine
    state, _ = machine.read(machine.start, begun.encode())
    return bool(state)
