r"""GBNF (llama.cpp) and EBNF (W3C style, as XGrammar reads it; for ISO's see `cfg_iso`) → IR.

Both write ``name ::= expression``, with literals, character classes, ``| ( ) * + ?`` and ``{m,n}``.
They have no terminals: every character counts for itself, and a text belongs to the language if any
way to cut it fits. What is regular becomes a terminal that may end wherever its pattern matches, so
that masks are as fast as with terminals of one's own.

    GBNF   ``# comment``; the first rule is ``root``; an expression ends with its line, except
           inside brackets, after ``|`` and before a line that begins with ``|``
    EBNF   ``/* comment */`` and ``# comment``; ``#x20`` is a character, also in classes;
           ``'...'`` is a literal too; ``[a-z] - [aeiou]`` takes away what is regular; a rule ends
           where the next rule begins; the first rule is ``root``, or whichever comes first

Escapes in literals and classes: ``\n \r \t \xHH \uHHHH \UHHHHHHHH``; before any other character the
backslash is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import GrammarError, PatternError
from . import cfg_builder, cfg_embedded, ir, regex
from .cfg_builder import (
    Alternatives,
    Chars,
    Difference,
    Expression,
    Literal,
    Placed,
    Reference,
    Repeated,
    Sequence,
)
from .cfg_embedded import Errors, Given

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|[0-9]+[A-Za-z_-][A-Za-z0-9_-]*")
_RULE = re.compile(rf"^[ \t]*(?=(?:{_NAME.pattern})\s*::=)", re.MULTILINE)
_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d+)?\s*)?\}")
_SPACE = {
    "gbnf": re.compile(r"(?:[ \t\r\n]|#[^\n]*)*"),
    "ebnf": re.compile(r"(?:[ \t\r\n]|#(?!x[0-9A-Fa-f])[^\n]*|/\*(?:(?!\*/).)*\*/)*", re.DOTALL),
}
_MAX_DEPTH = 150


def parse(
    text: str,
    start: str | None,
    dialect: str,
    given: Mapping[str, Given] | None = None,
    errors: Errors = None,
) -> ir.ContextFree:
    """The grammar of a GBNF or EBNF text.

    Args:
        text: the grammar.
        start: the rule to begin with; None for ``root``, or in EBNF the first rule.
        dialect: ``"gbnf"`` or ``"ebnf"``.
        given: rules that the text leaves open.
        errors: see `cfg.parse`.

    Raises:
        GrammarError: the grammar is malformed.
    """
    reader = _Reader(text, dialect)
    rules = reader.rules(errors)
    for name, terminal in (given or {}).items():
        if name in rules:
            raise GrammarError(
                f"Rule {name!r} is given by terminals= and defined. Leave one of them out."
            )
        rules[name] = Placed(_given(name, terminal))
    if not rules:
        raise GrammarError("The grammar has no rules. A rule is written: name ::= expression")
    if start is None:
        start = "root" if dialect == "gbnf" or "root" in rules else next(iter(rules))
    if start not in rules:
        raise GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(rules)}. "
            "Name one of them as start."
        )
    for name, position in reader.references:
        if name not in rules:
            error = reader.error(
                f"Rule {name!r} is used but not defined. Define it: {name} ::= ...", position
            )
            cfg_embedded.report(errors, error)
            rules[name] = Literal("x")
    try:
        return cfg_builder.build(rules, start)
    except cfg_builder.NotRegular as error:
        raise reader.error(str(error), error.position) from None


def _given(name: str, terminal: Given) -> ir.Embedded | ir.SpecialToken:
    if not isinstance(terminal, str):
        return terminal
    try:
        pattern = regex.parse_python(terminal)
    except PatternError as error:
        raise GrammarError(f"Terminal {name}: {error}") from error
    return ir.Embedded(f"terminal {name}", ir.Pattern(pattern, terminal))


@dataclass
class _Reader:
    text: str
    dialect: str

    def __post_init__(self) -> None:
        self.at = 0
        self.depth = 0
        self.references: list[tuple[str, int]] = []

    def error(self, message: str, position: int | None = None) -> GrammarError:
        """An error at a position, the current one by default."""
        at = self.at if position is None else position
        before = self.text[:at]
        line = before.count("\n") + 1
        return GrammarError(
            message, text=self.text, line=line, column=at - (before.rfind("\n") + 1) + 1
        )

    def skip(self) -> None:
        """Go past space and comments."""
        match = _SPACE[self.dialect].match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def rules(self, errors: Errors = None) -> dict[str, Expression]:
        """The rules; where errors are collected, what follows a rule with a mistake, too."""
        rules: dict[str, Expression] = {}
        self.skip()
        while self.at < len(self.text):
            begin = self.at
            try:
                self.rule(rules)
            except GrammarError as error:
                cfg_embedded.report(errors, error)
                self.depth = 0
                name = _NAME.match(self.text, begin)
                if name is not None:
                    rules.setdefault(name[0], Literal("x"))
                following = (m.end() for m in _RULE.finditer(self.text, begin + 1))
                self.at = next((end for end in following if end >= self.at), len(self.text))
        return rules

    def rule(self, rules: dict[str, Expression]) -> None:
        """Read one rule."""
        begin = self.at
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error("A rule must begin with its name, then ::=")
        self.at = match.end()
        self.skip()
        if not self.peek("::="):
            raise self.error(f"After the name of rule {match[0]!r} must come ::=")
        self.at += 3
        if match[0] in rules:
            raise self.error(
                f"Rule {match[0]!r} is defined twice. Write the alternatives in one rule, with | "
                "between them.",
                begin,
            )
        self.skip()
        rules[match[0]] = self.alternatives()
        self.skip()
        if self.peek(";"):
            self.at += 1
            self.skip()

    def alternatives(self) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"Brackets are nested more than {_MAX_DEPTH} deep. Use rules.")
        parts = [self.sequence()]
        while True:
            back = self.at
            self.skip()
            if not self.peek("|"):
                self.at = back
                break
            self.at += 1
            self.skip()
            parts.append(self.sequence())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Expression:
        parts: list[Expression] = []
        while True:
            back = self.at
            self.skip()
            # At the top of a GBNF rule a line break ends it.
            ended = self.dialect == "gbnf" and self.depth == 1 and "\n" in self.text[back : self.at]
            if ended and parts:
                self.at = back
                break
            if self.at >= len(self.text) or self.text[self.at] in "|);" or self._is_rule():
                self.at = back
                break
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _is_rule(self) -> bool:
        match = _NAME.match(self.text, self.at)
        if match is None:
            return False
        space = _SPACE[self.dialect].match(self.text, match.end())
        assert space is not None
        return self.text.startswith("::=", space.end())

    def item(self) -> Expression:
        found = self.repeated()
        while self.dialect == "ebnf":
            back = self.at
            self.skip()
            if not self.peek("-") or self.peek("->"):
                self.at = back
                break
            position = self.at
            self.at += 1
            self.skip()
            found = self.difference(found, self.repeated(), position)
        return found

    def repeated(self) -> Expression:
        found = self.primary()
        while True:
            char = self.text[self.at : self.at + 1]
            count = _COUNT.match(self.text, self.at)
            if char and char in "*+?":
                found = Repeated(found, int(char == "+"), 1 if char == "?" else None)
                self.at += 1
            elif count:
                least = int(count[1])
                most = least if not count[2] else int(count[3]) if count[3] else None
                if most is not None and most < least:
                    raise self.error(
                        f"A repetition of at least {least} and at most {most} times. Write "
                        f"{{{most},{least}}}."
                    )
                found = Repeated(found, least, most)
                self.at = count.end()
            else:
                return found

    def difference(self, whole: Expression, part: Expression, position: int) -> Expression:
        sets = [
            Chars(ir.char_set([(ord(e.text), ord(e.text))]))
            if isinstance(e, Literal) and len(e.text) == 1
            else e
            for e in (whole, part)
        ]
        if not isinstance(sets[0], Chars) or not isinstance(sets[1], Chars):
            line, column = cfg_embedded.place(self.text, position)
            name = f"the difference at line {line}, column {column}"
            return Difference(whole, part, position, name)
        taken = [*ir.negate(sets[0].chars).ranges, *sets[1].chars.ranges]
        return Chars(ir.negate(ir.char_set(taken)))

    def primary(self) -> Expression:
        char = self.text[self.at : self.at + 1]
        if char == "(":
            opening = self.at
            self.at += 1
            self.skip()
            found = self.alternatives()
            self.skip()
            if not self.peek(")"):
                raise self.error("This bracket is never closed. Add ).", opening)
            self.at += 1
            return found
        if char == '"' or (char == "'" and self.dialect == "ebnf"):
            return self.literal(char)
        if char == "[":
            return self.char_class()
        if char == "<":
            return Placed(self.special_token())
        if self.peek("%json"):
            return self.json()
        if char == "." and self.dialect == "gbnf":
            self.at += 1
            return Chars(ir.ANY_CHAR)
        if char == "#" and self.dialect == "ebnf":
            code = self.hexadecimal(self.at + 2, None)
            return Chars(ir.char_set([(code, code)]))
        match = _NAME.match(self.text, self.at)
        if match is None:
            what = repr(char) if char else "the end"
            message = (
                f"Expected a literal, a class in [ ], a rule's name or a bracket, found {what}."
            )
            most = re.compile(r"\{\s*,\s*(\d+)\s*\}").match(self.text, self.at)
            if most is not None:
                message += f" At most {most[1]} times is written {{0,{most[1]}}}."
            raise self.error(message)
        self.references.append((match[0], self.at))
        self.at = match.end()
        return Reference(match[0])

    def special_token(self) -> ir.SpecialToken:
        match = cfg_embedded.TOKEN.match(self.text, self.at)
        if match is None:
            raise self.error("A special token is written <name>, without spaces.")
        self.at = match.end()
        return cfg_embedded.special_token(match[0], self.text, match.start())

    def json(self) -> Expression:
        terminal, self.at = cfg_embedded.json_schema(self.text, self.at)
        return Placed(terminal)

    def literal(self, quote: str) -> Expression:
        opening = self.at
        self.at += 1
        out: list[str] = []
        while not self.peek(quote):
            if self.at >= len(self.text) or self.peek("\n"):
                raise self.error(f"This literal is never closed. Add {quote}.", opening)
            out.append(self.character())
        self.at += 1
        return Literal("".join(out))

    def char_class(self) -> Expression:
        opening = self.at
        self.at += 1
        negate = self.peek("^")
        self.at += negate
        ranges: list[tuple[int, int]] = []
        while not self.peek("]"):
            if self.at >= len(self.text) or self.peek("\n"):
                raise self.error("This class is never closed. Add ].", opening)
            low = ord(self.character())
            high = low
            is_range = self.peek("-") and not self.peek("-]") and self.at + 1 < len(self.text)
            if is_range:
                self.at += 1
                high = ord(self.character())
                if high < low:
                    raise self.error(
                        f"The range {chr(low)}-{chr(high)} is the wrong way round. Swap them.",
                        opening,
                    )
            ranges.append((low, high))
        self.at += 1
        chars = ir.char_set(ranges)
        return Chars(ir.negate(chars) if negate else chars)

    def character(self) -> str:
        """One character of a literal or class, escapes resolved."""
        char = self.text[self.at]
        if self.dialect == "ebnf" and re.match(r"#x[0-9A-Fa-f]", self.text[self.at : self.at + 3]):
            return chr(self.hexadecimal(self.at + 2, None))
        if char != "\\":
            self.at += 1
            return char
        kind = self.text[self.at + 1 : self.at + 2]
        if kind in ("x", "u", "U") and kind:
            return chr(self.hexadecimal(self.at + 2, {"x": 2, "u": 4, "U": 8}[kind]))
        if not kind or kind == "\n":
            raise self.error("A backslash at the end of a line. Write \\\\ for a backslash.")
        self.at += 2
        return _ESCAPES.get(kind, kind)

    def hexadecimal(self, at: int, digits: int | None) -> int:
        match = re.compile(r"[0-9A-Fa-f]+").match(self.text, at)
        found = "" if match is None else match[0][:digits]
        if not found or (digits is not None and len(found) < digits):
            raise self.error(f"Expected {digits or 'some'} hexadecimal digits.")
        if int(found, 16) > ir.MAX_CODE_POINT:
            raise self.error(f"There is no character {found}: the last is 10FFFF.")
        self.at = at + len(found)
        return int(found, 16)
