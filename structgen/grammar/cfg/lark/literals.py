"""Mistakes in the literals, patterns and ranges of a Lark text. Part of `mistakes`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from structgen.errors import PatternError, UnsupportedFeature
from structgen.grammar.cfg.embedded import Lifted
from structgen.grammar.regex import python as python_regex

from .statements import Mistake, Statement, statements
from .syntax import Token

_ESCAPE = re.compile(
    r"""
    \\(?:
        \\ | (?P<sign>[nftr]) | (?P<quote>")
        | x(?P<x>[0-9a-fA-F]{2}) | u(?P<u>[0-9a-fA-F]{4}) | U(?P<U>[0-9a-fA-F]{8})
        | (?P<bad>[xuU])
    )
    """,
    re.VERBOSE,
)
"""What Lark reads in literals and patterns. Other backslashes stand for themselves."""

_SIGNS = {"n": "\n", "f": "\f", "t": "\t", "r": "\r"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_SURROGATE = re.compile("[\ud800-\udfff]")


def mistakes_in(token: Token, statement: Statement, source: Lifted) -> Iterator[Mistake]:
    """What is wrong with a literal or a pattern, but for the pattern's own syntax."""
    text = token.text
    content, flags = text[1 : text.rindex(text[0])], text[text.rindex(text[0]) + 1 :]
    at, message = token.at, ""
    if not content:
        message = (
            "Empty terminals are not allowed. Leave the literal out; an "
            "alternative may be empty, and ? makes things optional."
        )
    elif "\0" in text:
        at += text.index("\0")
        message = r"A literal has the character NUL in it. Write it as \x00."
    elif "\n" in text and "x" not in flags:
        message = (
            r"A pattern goes over several lines without the flag x. Write it on one line, \n "
            "for a line break, or put x behind it: /…/x."
        )
    else:
        reason = _unreadable(content)
        if reason:
            message = f"{text} has {reason}."
    if message:
        yield Mistake.at(at, message, source, statement)


def mistakes_in_range(
    token: Token, end: Token | None, statement: Statement, source: Lifted
) -> Iterator[Mistake]:
    """What is wrong with one end of a range, and with both if the other, ``end``, is given."""
    if token.text.endswith("i"):
        message = (
            f"A range of characters has no flag, as {token.text} does. Write both: "
            '"a".."z" | "A".."Z".'
        )
        yield Mistake.at(token, message, source, statement)
    elif len(_meaning(token.text)) != 1:
        message = (
            f"A range of characters is from one character to another, and {token.text} is not "
            'one. Write "a".."z", or alternatives with |.'
        )
        yield Mistake.at(token, message, source, statement)
    elif end is not None and _meaning(token.text) > _meaning(end.text):
        message = f"The range {token.text}..{end.text} has its last character first. Swap them."
        yield Mistake.at(token, message, source, statement)


def malformed_patterns(statement: Statement, source: Lifted) -> Iterator[Mistake]:
    """Patterns that Python's ``re`` does not take, or we do not."""
    for token in statement.body:
        if token.kind != "pattern" or _unreadable(token.text):
            continue
        flags = token.text[token.text.rindex("/") + 1 :]
        pattern = _meaning(token.text)
        regex = "".join(f"(?{flag}:" for flag in flags) + pattern + ")" * len(flags)
        try:
            python_regex.parse(regex, lazy=True)
        except (PatternError, UnsupportedFeature) as error:
            is_all = statement.kind == "terminal" and len(statement.body) == 1
            shown = statement.name if is_all else repr(pattern)
            yield Mistake.at(token, f"Terminal {shown}: {error}", source, statement)


def place_of(terminal: str, text: str) -> int | None:
    """Where a Lark text has the pattern of a terminal, by what messages call that."""
    for statement in statements(text):
        if statement.kind == "terminal" and statement.name == terminal:
            patterns = [token.at for token in statement.body if token.kind == "pattern"]
            return patterns[0] if len(patterns) == 1 else statement.at
        for token in statement.body:
            if token.kind == "pattern" and repr(_meaning(token.text)) == terminal:
                return token.at
    return None


def _unreadable(text: str) -> str:
    """Why a literal or pattern cannot be read; nothing if it can."""
    for found in _ESCAPE.finditer(text):
        if found["bad"]:
            return (
                f"an escape that is none: {found[0]} takes {_DIGITS[found['bad']]} hexadecimal "
                r"digits. Write \\ for a backslash"
            )
        if found["U"] and int(found["U"], 16) > sys.maxunicode:
            return f"an escape that is none: there is no character {found[0]}"
    if _SURROGATE.search(text):
        return "half of a surrogate pair in it, which is no character"
    return ""


def _meaning(literal: str) -> str:
    """What a literal or pattern stands for, with the escapes read that Lark reads.

    Backslashes in pairs stay, as in a pattern they must.
    """

    def read(found: re.Match[str]) -> str:
        code = int(found["x"] or found["u"] or found["U"] or "110000", 16)
        if code <= sys.maxunicode:
            return chr(code)
        return found["quote"] or _SIGNS.get(found["sign"], found[0])

    return _ESCAPE.sub(read, literal[1 : literal.rindex(literal[0])])
