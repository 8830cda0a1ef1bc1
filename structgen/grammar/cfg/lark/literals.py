"""Mistakes in the literals, patterns and ranges of a Lark text. Part of `cfg_lark_mistakes`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from structgen.errors import PatternError, UnsupportedFeature
from structgen.grammar.cfg.embedded import Lifted
from structgen.grammar.regex import python as python_regex

from . import rules
from .statements import Mistake, Statement, statements
from .syntax import NotPlain, Token


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
        reason = _meaning(text)[1]
        if reason:
            message = rf"{text} has an escape that is none ({reason}). Write \\ for a backslash."
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
    elif len(_meaning(token.text)[0]) != 1:
        message = (
            f"A range of characters is from one character to another, and {token.text} is not "
            'one. Write "a".."z", or alternatives with |.'
        )
        yield Mistake.at(token, message, source, statement)
    elif end is not None and _meaning(token.text)[0] > _meaning(end.text)[0]:
        message = f"The range {token.text}..{end.text} has its last character first. Swap them."
        yield Mistake.at(token, message, source, statement)


def malformed_patterns(statement: Statement, source: Lifted) -> Iterator[Mistake]:
    """Patterns that Python's ``re`` does not take, or we do not."""
    for token in statement.body:
        if token.kind != "REGEXP":
            continue
        try:
            pattern = rules.literal("x", token.text)
            python_regex.parse(pattern.to_regexp(), lazy=True)
        except NotPlain:
            continue
        except (PatternError, UnsupportedFeature) as error:
            is_all = statement.kind == "term" and len(statement.body) == 1
            shown = statement.name if is_all else repr(pattern.value)
            yield Mistake.at(token, f"Terminal {shown}: {error}", source, statement)


def place_of(terminal: str, text: str) -> int | None:
    """Where a Lark text has the pattern of a terminal, by what messages call that."""
    for statement in statements(text):
        if statement.kind == "term" and statement.name == terminal:
            patterns = [token.at for token in statement.body if token.kind == "REGEXP"]
            return patterns[0] if len(patterns) == 1 else statement.at
        for token in statement.body:
            if token.kind == "REGEXP":
                with contextlib.suppress(NotPlain):
                    if repr(rules.literal("x", token.text).value) == terminal:
                        return token.at
    return None


def _meaning(literal: str) -> tuple[str, str]:
    """What a literal or pattern stands for with its escapes read; or why it cannot be read."""
    from lark.exceptions import LarkError
    from lark.load_grammar import eval_escaping

    try:
        return str(eval_escaping(literal[1 : literal.rindex(literal[0])])), ""  # type: ignore[no-untyped-call]
    except LarkError as error:
        reason = error.args[-1]
    except ValueError as error:
        reason = error
    return "", str(getattr(reason, "msg", reason)).rpartition("position ")[2]
