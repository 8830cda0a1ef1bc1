r"""GBNF (llama.cpp) and EBNF (W3C style, as XGrammar reads it) → IR.

Both write ``name ::= expression``, with literals, character classes, ``| ( ) * + ?`` and ``{m,n}``.
They have no terminals: every character counts for itself, and a text belongs to the language if any
way to cut it fits. What is regular becomes a terminal that may end wherever its pattern matches, so
that masks are as fast as with terminals of one's own.

    GBNF   ``# comment``; the first rule is ``root``; an expression ends with its line, except
           inside brackets, after ``|`` and before a line that begins with ``|``
    EBNF   ``/* comment */`` and ``# comment``; ``#x20`` is a character, also in classes, so that
           no comment begins with ``#x``;
           ``'...'`` is a literal too; ``[a-z] - [aeiou]`` takes away what is regular; a rule ends
           where the next rule begins; the first rule is ``root``, or whichever comes first

Escapes in literals and classes: ``\n \r \t \xHH \uHHHH \UHHHHHHHH``, in EBNF ``\a \b \e \f \v \0``,
too, as in XGrammar; before what is no letter and no digit the backslash is dropped.

Where errors are collected, a mistake is passed over and reading goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from structgen.errors import GrammarError, PatternError
from structgen.grammar import ir, regex

from . import builder, embedded, foreign
from .builder import (
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
from .characters import NO_CODE, SPACE, Scanner
from .embedded import Errors, Given

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|[0-9]+[A-Za-z_-][A-Za-z0-9_-]*")
_HEAD = re.compile(rf"({_NAME.pattern})(?:\[[^\]\n]*\])?\s*::=")
_OTHER_HEAD = re.compile(r"[ \t]*(?:[:=→←]|->|<-)")
_RULE = re.compile(rf"^[ \t]*(?={_HEAD.pattern})", re.MULTILINE)
_JUNK = re.compile(r"'[^'\n]*'|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|\\.|[^\s\"'\[(|);<A-Za-z_]+|.")
_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d+)?\s*)?\}")
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
        errors: see `read.parse`.

    Raises:
        GrammarError: the grammar is malformed.
    """
    reader = _Reader(text, dialect, errors)
    rules = reader.rules()
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
        error = GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(rules)}. "
            "Name one of them as start."
        )
        if not errors or _RULE.search(text):
            embedded.report(errors, error)
        start = next(iter(rules))
    # What stands in a rule that could not be read is defined, too.
    for head in _RULE.finditer(text) if errors else ():
        rules.setdefault(head[1], Literal(embedded.MADE_UP))
    for name, position in reader.references:
        if name not in rules:
            error = reader.error(
                f"Rule {name!r} is used but not defined. Define it: {name} ::= ...", position
            )
            embedded.report(errors, error)
            rules[name] = Literal(embedded.MADE_UP)
    return builder.build(rules, start, reader.wrong)


def _given(name: str, terminal: Given) -> ir.Embedded | ir.SpecialToken:
    if not isinstance(terminal, str):
        return terminal
    try:
        pattern = regex.parse_python(terminal)
    except PatternError as error:
        raise GrammarError(f"Terminal {name}: {error}") from error
    return ir.Embedded(f"terminal {name}", ir.Pattern(pattern, terminal))


class _Reader(Scanner):
    def __init__(self, text: str, dialect: str, errors: Errors) -> None:
        super().__init__(text, dialect, errors)
        self.depth = 0
        self.references: list[tuple[str, int]] = []

    def rules(self) -> dict[str, Expression]:
        """The rules; where errors are collected, those with mistakes, too."""
        rules: dict[str, Expression] = {}
        self.skip()
        while self.at < len(self.text):
            begin = self.at
            try:
                self.rule(rules)
            except GrammarError as error:
                embedded.report(self.errors, error)
                self.depth = 0
                name = _NAME.match(self.text, begin)
                if name is not None:
                    rules.setdefault(name[0], Literal(embedded.MADE_UP))
                following = (m.end() for m in _RULE.finditer(self.text, begin + 1))
                self.at = next((end for end in following if end >= self.at), len(self.text))
        return rules

    def rule(self, rules: dict[str, Expression]) -> None:
        """Read one rule."""
        begin = self.at
        name = self.head(bool(rules))
        if name in rules:
            self.wrong(
                f"Rule {name!r} is defined twice. Write the alternatives in one rule, with | "
                "between them.",
                begin,
            )
        self.skip()
        found = self.alternatives()
        self.skip()
        while self.peek(")"):
            self.wrong("This bracket closes none. Leave it out, or add (.")
            self.at += 1
            self.alternatives()
            self.skip()
        if name:
            rules.setdefault(name, found)
        if self.peek(";"):
            self.at += 1
            self.skip()

    def head(self, goes_on: bool) -> str:
        """Go past a rule's name and ``::=``; the name, or nothing where there is none.

        Args:
            goes_on: whether what is no rule may belong to the one before.
        """
        match = _NAME.match(self.text, self.at)
        bnf = foreign.bnf_name(self.text, self.at)
        if bnf is not None:
            self.wrong(
                f"The name of a rule stands without angle brackets: {bnf[0]} ::= …, also where it "
                "is used. With them it is a special token."
            )
            name, self.at = bnf
        elif match is not None and self._is_head():
            name, self.at = match[0], match.end()
        elif goes_on and self.dialect == "gbnf":
            # What stands here is looked through for its own mistakes, and is no rule.
            self.wrong(
                "A rule ends with its line in GBNF, except inside brackets, after | and before a "
                "line that begins with |, and this begins none: name ::= …. Put it on the line "
                "before, or have the text read as EBNF (dialect), where lines mean nothing."
            )
            return ""
        elif match is None:
            is_code = self.dialect == "ebnf" and self.peek("#x")
            raise self.error(NO_CODE if is_code else "A rule must begin with its name, then ::=")
        else:
            name, self.at = match[0], match.end()
        self.skip()
        if not self.peek("::="):
            message, end = foreign.head(self.text, self.at, name)
            if end == self.at:
                raise self.error(message)
            self.wrong(message)
            self.at = end
        else:
            self.at += 3
        return name

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
            if self._is_end():
                self.at = back
                break
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _is_end(self) -> bool:
        """Whether nothing more of a sequence stands here."""
        return self.at >= len(self.text) or self.text[self.at] in "|);" or self._is_rule()

    def _is_rule(self) -> bool:
        match = _NAME.match(self.text, self.at)
        if match is None:
            return self.peek("<") and foreign.bnf_name(self.text, self.at) is not None
        if self.text.startswith("[", match.end()):
            return _HEAD.match(self.text, self.at) is not None
        space = SPACE[self.dialect].match(self.text, match.end())
        assert space is not None
        return self.text.startswith("::=", space.end())

    def _is_head(self) -> bool:
        """Whether a rule begins here, if only in another notation."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            return False
        return self._is_rule() or _OTHER_HEAD.match(self.text, match.end()) is not None

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
            if self._is_end():
                self.wrong(
                    "After - must come what is taken away, as in [a-z] - [aeiou]; nothing does.",
                    position,
                )
                break
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
                    self.wrong(
                        f"A repetition of at least {least} and at most {most} times. Write "
                        f"{{{most},{least}}}."
                    )
                    most = least
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
            line, column = embedded.place(self.text, position)
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
            if self.peek("="):
                self.wrong(
                    "A lookahead assertion, (= …), is XGrammar's, and is not supported. Leave it "
                    "out where what follows in the rules says the same; else write the grammar in "
                    "Lark, where terminals may look ahead: /a(?=b)/.",
                    opening,
                )
                self.at += 1
                self.skip()
            found = self.alternatives()
            self.skip()
            if not self.peek(")"):
                self.wrong("This bracket is never closed. Add ).", opening)
                return found
            self.at += 1
            return found
        if char == '"' or (char == "'" and self.dialect == "ebnf"):
            return self.literal(char)
        if char == "[":
            return self.char_class()
        if char == "<":
            return self.special_token()
        if self.peek("%json"):
            return self.json()
        if char == "." and self.dialect == "gbnf":
            self.at += 1
            return Chars(ir.ANY_CHAR)
        if char == "#" and self.dialect == "ebnf":
            return self.code()
        match = _NAME.match(self.text, self.at)
        if match is None:
            self.wrong(
                f"Expected a literal, a class in [ ], a rule's name or a bracket, found {char!r}."
                f"{foreign.item(self.text, self.at, self.dialect)}"
            )
            junk = _JUNK.match(self.text, self.at)
            assert junk is not None
            self.at = junk.end()
            return Literal(embedded.MADE_UP)
        if foreign.MACRO.match(self.text, self.at):
            self.wrong(
                f"{match[0]}(…) is a macro of XGrammar's, and is not supported. A token is written "
                "<name> or <[id]>; a pattern is given from outside: terminals={'name': Regex(...)}."
            )
            self.at = foreign.past_brackets(self.text, match.end())
            return Literal(embedded.MADE_UP)
        self.references.append((match[0], self.at))
        self.at = match.end()
        return Reference(match[0])

    def special_token(self) -> Expression:
        match = embedded.TOKEN.match(self.text, self.at)
        if match is None:
            self.wrong("A special token is written <name>, without spaces.")
            self.at += 1
            return Literal(embedded.MADE_UP)
        self.at = match.end()
        try:
            return Placed(embedded.special_token(match[0], self.text, match.start()))
        except GrammarError as error:
            embedded.report(self.errors, error)
            return Literal(embedded.MADE_UP)

    def json(self) -> Expression:
        try:
            terminal, self.at = embedded.json_schema(self.text, self.at)
        except GrammarError as error:
            embedded.report(self.errors, error)
            self.at = embedded.past(self.text, self.at + len("%json"))
            return Literal(embedded.MADE_UP)
        return Placed(terminal)
