r"""EBNF as ISO/IEC 14977 writes it → the expressions of `builder`.

    rule = term, "text" | 'text', [optional], {repeated}, (grouped), 3 * thrice, a - b;

Commas stand between what follows each other, a semicolon (or a full stop) ends a rule, ``(* *)`` is
a comment, ``? ?`` a special sequence. The standard's other spellings are read, too: ``/`` and ``!``
for ``|``, ``(/ /)`` for brackets, ``(: :)`` for braces. Names may contain spaces. Literals have no
escapes. As in the other notations without terminals every character counts for itself: nothing may
stand between two terms that the grammar does not say.

What special sequences mean the standard leaves open. Here: ``? /pattern/ ?``, ``? U+00E9 ?``,
``? <special token> ?``, ``? %json {…} ?``, and anything that ``terminals=`` has under that text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from structgen.errors import GrammarError, PatternError
from structgen.grammar import ir, regex

from . import builder, embedded
from .builder import (
    Alternatives,
    Difference,
    Expression,
    Literal,
    Placed,
    Reference,
    Repeated,
    Sequence,
)
from .embedded import Errors, Given

RULE = re.compile(r"^[ \t]*[A-Za-z][A-Za-z0-9_ \t]*=(?![=>])", re.MULTILINE)
"""How a rule begins."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[ \t]+[A-Za-z0-9_]+)*")
_TERM = re.compile(r"[A-Za-z0-9\"'\[{?]|\((?!\*)")
_CODE_POINT = re.compile(r"U\+([0-9A-Fa-f]{4,6})")
_MAX_DEPTH = 150


def parse(
    text: str,
    start: str | None = None,
    given: Mapping[str, Given] | None = None,
    errors: Errors = None,
) -> ir.ContextFree:
    """The grammar of an ISO 14977 text.

    Args:
        text: the grammar.
        start: the rule to begin with; None for the first.
        given: rules and special sequences that the text leaves open.
        errors: see `read.parse`.

    Raises:
        GrammarError: the grammar is malformed.
    """
    reader = _Reader(text, given or {}, errors)
    rules = reader.rules()
    if not rules:
        raise GrammarError("The grammar has no rules. A rule is written: name = definition;")
    start = next(iter(rules)) if start is None else " ".join(start.split())
    for name, terminal in (given or {}).items():
        if name in rules:
            raise GrammarError(
                f"Rule {name!r} is given by terminals= and defined. Leave one of them out."
            )
        rules[name] = reader.placed(name, terminal, None)
    if start not in rules:
        error = GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(rules)}. "
            "Name one of them as start."
        )
        embedded.report(errors, error)
        start = next(iter(rules))
    for name, position in reader.references:
        if name not in rules:
            message = f"Rule {name!r} is used but not defined. Define it: {name} = …;"
            if " " in name:
                terms = name.replace(" ", ", ")
                message = f"{message} Names may have spaces in them; several are written {terms}."
            embedded.report(errors, embedded.placed(message, text, position))
            rules[name] = Literal(embedded.MADE_UP)
    return builder.build(rules, start, reader.wrong)


class _Reader:
    def __init__(self, text: str, given: Mapping[str, Given], errors: Errors) -> None:
        self.text = text
        self.given = given
        self.errors = errors
        self.at = 0
        self.depth = 0
        self.is_cut = False  # whether the end of a line has been passed over unread
        self.named = ""
        self.is_separated = True
        self.references: list[tuple[str, int]] = []

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise an error at a position, the current one by default."""
        raise embedded.placed(message, self.text, self.at if position is None else position)

    def wrong(self, message: str, position: int | None = None) -> None:
        """Tell an error: collect it, and then what follows is read as well as can be; or raise."""
        at = self.at if position is None else position
        embedded.report(self.errors, embedded.placed(message, self.text, at))

    def past_line(self) -> Expression:
        """What stands for something that ends nowhere, which says nothing of the next line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end
        self.skip()
        self.is_cut = True
        return Literal(embedded.MADE_UP)

    def skip(self) -> None:
        """Go past space and comments, which may contain comments."""
        opened: list[int] = []
        while self.at < len(self.text):
            if self.text.startswith("(*", self.at) and not self.text.startswith("(*)", self.at):
                opened.append(self.at)
                self.at += 2
            elif opened and self.text.startswith("*)", self.at):
                opened.pop()
                self.at += 2
            elif opened or self.text[self.at].isspace():
                self.at += 1
            else:
                return
        if opened:
            self.fail("This comment is never closed. Add *).", opened[-1])

    def take(self, *symbols: str) -> bool:
        """Go past one of ``symbols``, if one stands here, and what may be skipped after it."""
        for symbol in symbols:
            if self.text.startswith(symbol, self.at):
                self.at += len(symbol)
                self.skip()
                return True
        return False

    def found(self) -> str:
        """What stands here, for messages."""
        return repr(self.text[self.at]) if self.at < len(self.text) else "the end"

    def name(self) -> str | None:
        match = _NAME.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        self.skip()
        return " ".join(match[0].split())

    def rules(self) -> dict[str, Expression]:
        """The rules; where errors are collected, those with mistakes, too."""
        rules: dict[str, Expression] = {}
        while self.at < len(self.text):
            begin = self.at
            try:
                self.skip()
                if self.at < len(self.text):
                    self.rule(rules)
            except GrammarError as error:
                embedded.report(self.errors, error)
                self.depth = 0
                name = _NAME.match(self.text, begin)
                if name is not None:
                    rules.setdefault(" ".join(name[0].split()), Literal(embedded.MADE_UP))
                following = (m.start() for m in RULE.finditer(self.text, begin + 1))
                self.at = next((at for at in following if at >= self.at), len(self.text))
        return rules

    def rule(self, rules: dict[str, Expression]) -> None:
        """Read one rule."""
        begin = self.at
        name = self.name()
        if name is None:
            self.fail(f"A rule must begin with its name, then =; found {self.found()}.")
        if not self.take("="):
            self.fail(f"After the name of rule {name!r} must come =, found {self.found()}.")
        if name in rules:
            self.wrong(
                f"Rule {name!r} is defined twice. Write the alternatives in one rule, with | "
                "between them.",
                begin,
            )
        self.named = name
        self.is_separated = True
        rules.setdefault(name, self.alternatives())
        while not self.take(";", "."):
            if not self.is_cut:
                self.unseparated()
            self.is_cut = False
            if self.at >= len(self.text) or self._is_rule():
                break
            before = self.at
            self.alternatives()
            if self.at == before:
                self.at += 1
                self.skip()
                self.alternatives()

    def unseparated(self) -> None:
        """Tell that terms, or rules, do not come apart here."""
        self.wrong(
            f"Between two terms must come a comma, and after rule {self.named!r} a semicolon; "
            f"found {self.found()}."
        )

    def _is_rule(self) -> bool:
        """Whether the next rule begins here."""
        begin = self.text.rfind("\n", 0, self.at) + 1
        return not self.text[begin : self.at].strip() and RULE.match(self.text, begin) is not None

    def alternatives(self) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"Brackets are nested more than {_MAX_DEPTH} deep. Use rules.")
        parts = [self.sequence()]
        while not self.text.startswith("/)", self.at) and self.take("|", "/", "!"):
            parts.append(self.sequence())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Expression:
        parts = [self.term()]
        while True:
            if not self.take(","):
                if self.is_cut or self._is_rule() or not _TERM.match(self.text, self.at):
                    break
                if self.is_separated:
                    self.unseparated()
                # Those who leave one comma out leave them all out, which is one mistake.
                self.is_separated = False
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def term(self) -> Expression:
        whole = self.factor()
        position = self.at
        if not self.take("-"):
            return whole
        line, column = embedded.place(self.text, position)
        name = f"the difference at line {line}, column {column}"
        return Difference(whole, self.factor(), position, name)

    def factor(self) -> Expression:
        match = re.compile(r"[0-9]+").match(self.text, self.at)
        if match is None:
            return self.primary()
        self.at = match.end()
        self.skip()
        if not self.take("*"):
            self.wrong(f"After a number must come *, as in 3 * digit; found {self.found()}.")
        times = int(match[0])
        return Repeated(self.primary(), times, times)

    def primary(self) -> Expression:
        position = self.at
        if self._is_rule():
            return Literal("")
        if self.take("(/", "["):
            return Repeated(self.bracketed(position, "/)", "]"), 0, 1)
        if self.take("(:", "{"):
            return Repeated(self.bracketed(position, ":)", "}"), 0, None)
        if self.take("("):
            return self.bracketed(position, ")")
        for quote in ('"', "'"):
            if self.text.startswith(quote, self.at):
                return self.literal(quote)
        if self.text.startswith("?", self.at):
            return self.special_sequence()
        name = self.name()
        if name is None:
            return Literal("")  # a term may be empty
        self.references.append((name, position))
        return Reference(name)

    def bracketed(self, opening: int, *closing: str) -> Expression:
        inside = self.alternatives()
        if not self.take(*closing):
            self.wrong(f"This bracket is never closed. Add {closing[-1]}.", opening)
        return inside

    def literal(self, quote: str) -> Expression:
        end = self.text.find(quote, self.at + 1)
        if end < 0 or "\n" in self.text[self.at : end]:
            self.wrong(f"This literal is never closed. Add {quote}.")
            return self.past_line()
        out = Literal(self.text[self.at + 1 : end])
        if not out.text:
            self.wrong("A literal is never empty. For nothing at all write nothing.")
        self.at = end + 1
        self.skip()
        return out

    def special_sequence(self) -> Expression:
        opening = self.at
        begin = re.compile(r"\?\s*").match(self.text, opening)
        assert begin is not None
        if self.text.startswith("%json", begin.end()):
            try:
                terminal, self.at = embedded.json_schema(self.text, begin.end())
            except GrammarError as error:
                embedded.report(self.errors, error)
                return self.past_line()
            closing = re.compile(r"\s*\?").match(self.text, self.at)
            if closing is None:
                self.wrong("After the schema must come ?.")
                return Placed(terminal)
            self.at = closing.end()
            self.skip()
            return Placed(terminal)
        if self.text.startswith("/", begin.end()):
            # A pattern may contain question marks.
            match = re.compile(r"\?\s*(/(?:\\.|[^/\\\n])+/)\s*\?").match(self.text, opening)
        else:
            match = re.compile(r"\?([^?]*[^?\s][^?]*)\?").match(self.text, opening)
        if match is None:
            self.wrong("This special sequence is never closed. Add ?.", opening)
            return self.past_line()
        self.at = match.end()
        self.skip()
        content = " ".join(match[1].split())
        if content in self.given:
            return self.placed(content, self.given[content], opening)
        if content[0] == "/":
            return self.placed(f"? {content} ?", content[1:-1].replace("\\/", "/"), opening)
        code_point = _CODE_POINT.fullmatch(content)
        if code_point and int(code_point[1], 16) <= ir.MAX_CODE_POINT:
            return Literal(chr(int(code_point[1], 16)))
        if embedded.TOKEN.fullmatch(content):
            try:
                return Placed(embedded.special_token(content, self.text, match.start(1)))
            except GrammarError as error:
                embedded.report(self.errors, error)
                return Literal(embedded.MADE_UP)
        self.wrong(
            f"What the special sequence ? {content} ? means is not known. Give it: Cfg(..., "
            f"terminals={{{content!r}: Regex(...)}}); or write ? /pattern/ ? or ? U+00E9 ?.",
            opening,
        )
        return Literal(embedded.MADE_UP)

    def placed(self, name: str, terminal: Given, position: int | None) -> Placed:
        """A terminal that is given; a string is a pattern."""
        if not isinstance(terminal, str):
            return Placed(terminal)
        try:
            pattern = regex.parse_python(terminal)
        except PatternError as error:
            raise embedded.placed(f"{name}: {error}", self.text, position) from error
        return Placed(ir.Embedded(f"terminal {name}", ir.Pattern(pattern, terminal)))
