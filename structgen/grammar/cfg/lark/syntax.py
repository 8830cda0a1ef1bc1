"""Lark's own syntax: the tokens of a grammar's text, and what does not belong where it stands.

Owns the kinds of tokens and how statements are built of them, for messages alone: Lark reads the
grammar, and `unexpected` is asked about lines of a text that Lark has refused. It says what stands
where something else must, and what that is. What right statements mean is not known here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PATTERN = r"(?P<pattern>/(?!/)(?:\\[/\\]|[^/\\]|\\(?![/\\]))*/[imslux]*)|"
_OTHERS = r"""
    (?P<literal>"(?:\\["\\]|[^"\\\n]|\\(?!["\\]))*"i?)
    |(?P<open>"[^\n]*|/(?!/))
    |(?P<comment>\s*(?://|\#)[^\n]*)
    |(?P<rule>_?[a-z][_a-z0-9]*)
    |(?P<terminal>_?[A-Z][_A-Z0-9]*)
    |(?P<or>(?:\r?\n\s*)?\|)
    |(?P<end>\r?\n\s*)
    |(?P<blank>[ \t]+|\\[ ]*\n)
    |(?P<number>[+-]?\d+)
    |(?P<command>%(?:override|declare|extend|ignore|import))
    |(?P<modifiers>(?:!\??|\?!?)(?=[_a-z]))
    |(?P<operator>[+*?])
    |(?P<sign>\.\.|->|[.\[\]{}():,~])
    |(?P<other>[^\S \t\n]+|[\s\S])
    """
_KINDS = re.compile(_PATTERN + _OTHERS, re.VERBOSE)
"""Of several kinds that fit, the first is meant. A pattern may go over lines, as Lark has it. Each
kind takes what it takes in one way, so that no text is read more than once for it."""

_NO_PATTERNS = re.compile(_OTHERS, re.VERBOSE)
"""The same behind a slash that begins no pattern: there, no other begins one."""

_BY_TEXT = ("command", "sign")
_PASSED_OVER = ("comment", "blank")
NAMES = ("rule", "terminal")
"""Kinds of tokens that are names."""

_HINTS = {
    "again": "To repeat again what is repeated, put it into brackets: (…){}.",
    "operator": "What it repeats comes before it.",
    "command": "It begins a line.",
    "number": 'Text stands in quotes: "{}".',
    "modifiers": "Before a name, it stands where that is defined; after what is optional, a blank "
    "follows it.",
    "_": "A name has letters, and one underscore in front of them at most.",
    ":": "A definition begins on a line of its own.",
    ",": "What follows each other stands side by side, without commas.",
    ".": "Names have no dots.",
    "..": 'A range is from one literal to another: "a".."z".',
    "{": "Only templates, in lower case, have arguments.",
    "}": "No template is open that it could close.",
}
"""What is said of tokens that stand among the parts of a rule and are none."""

_CLOSED_BY = {"(": ")", "[": "]"}
_REPEATS = ("operator", "~")
_VALUE = "a name, a literal or a pattern"
_END = "the end of the line"


class Token(NamedTuple):
    """A token of a Lark text, and where it begins.

    Attributes:
        kind: a group of `_KINDS`; ``|``, signs and commands are kinds by themselves.
        text: how it is written.
        at: where it begins.
    """

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.at + len(self.text)


class Item(NamedTuple):
    """A part of a rule or terminal.

    Attributes:
        kind: ``value``, a name, literal, pattern or range; ``use``, a template with arguments;
            ``(`` or ``[``, alternatives in brackets; an operator or ``~``, something repeated.
        tokens: of what it is written, but for what is inside.
        span: where it begins and ends.
        inside: the alternatives in brackets; or one, of what is repeated or the arguments.
    """

    kind: str
    tokens: tuple[Token, ...]
    span: tuple[int, int]
    inside: tuple[Way, ...] = ()


class Way(NamedTuple):
    """One alternative."""

    items: tuple[Item, ...]
    alias: str = ""


class UnexpectedToken(Exception):
    """Something does not belong where it stands.

    Attributes:
        at: where that is.
        token: what; None for the end of the line.
        hint: a sentence on what to write, or nothing; for want of a better one.
        is_open: whether a bracket before it is not closed.
    """

    def __init__(
        self, message: str, at: int, token: Token | None, hint: str, is_open: bool
    ) -> None:
        super().__init__(message)
        self.at = at
        self.token = token
        self.hint = hint
        self.is_open = is_open


def lines(text: str) -> list[list[Token]]:
    """The tokens of each line that has any; a line that begins with ``|`` is part of the one
    before. Characters that are no token have the kind ``other``, and so have the slash of a pattern
    that never ends, and a literal that does not end on its line."""
    out: list[list[Token]] = []
    line: list[Token] = []
    kinds, at = _KINDS, 0
    while (found := kinds.match(text, at)) is not None:
        kind, at = str(found.lastgroup), found.end()
        if kind == "open":
            kinds = kinds if found[0][0] == '"' else _NO_PATTERNS
            line.append(Token("other", found[0], found.start()))
        elif kind == "end":
            if line:
                out.append(line)
                line = []
        elif kind == "or":
            line.append(Token("|", "|", found.end() - 1))
        elif kind not in _PASSED_OVER:
            line.append(Token(found[0] if kind in _BY_TEXT else kind, found[0], found.start()))
    return [*out, line] if line else out


def check(line: list[Token]) -> None:
    """Check that a line is a statement.

    Raises:
        UnexpectedToken: it is not.
    """
    _Reader(line).statement()


def ways(body: list[Token]) -> tuple[Way, ...]:
    """The alternatives that a definition consists of.

    Raises:
        UnexpectedToken: they are not well-formed.
    """
    return _Reader(body).ways("")


class _Reader:
    """Reads one line, by recursive descent."""

    def __init__(self, line: list[Token]) -> None:
        self._line = line
        self._number = 0
        self._open: list[str] = []

    # -- statements -------------------------------------------------------------------------------

    def statement(self) -> None:
        if self._take("%import"):
            self._import()
        elif self._take("%declare"):
            self._need("the name of a terminal", *NAMES)
            while self._take(*NAMES):
                pass
            self._need(f"the name of a terminal or {_END}", "")
        elif self._take("%ignore"):
            self._expansions()
        else:
            command = self._take("%override", "%extend")
            self._definition(command)

    def _definition(self, command: Token | None) -> None:
        modifiers = self._take("modifiers")
        name = self._take("rule") or (None if modifiers else self._take("terminal"))
        if name is None and (modifiers or command):
            what = "the name of a rule" + ("" if modifiers else " or a terminal")
            raise self._unexpected(what)
        if name is None:
            hint = (
                "A line begins with name: …, with | to go on, or with %ignore, %import, %declare, "
                "%extend or %override."
            )
            if self._kind == "other" and self._line[self._number].text == "_":
                hint = _HINTS["_"]
            elif self._kind == "|":
                hint = "No rule or terminal stands before it that could have other alternatives."
            raise self._unexpected("", hint)
        if name.kind == "rule" and self._take("{"):
            self._need("the name of a parameter, in lower case", "rule")
            while not self._take("}"):
                self._need(", or }", ",")
                self._need("the name of a parameter, in lower case", "rule")
        if self._take("."):
            self._need("a number, which is the priority", "number")
        self._need(f": after the name {name.text!r}", ":")
        self._expansions()

    def _import(self) -> None:
        self._take(".")
        name = "the name of a rule or a terminal"
        self._need("the name of a grammar", *NAMES)
        while self._take("."):
            self._need(name, *NAMES)
        if self._take("->"):
            self._need(name, *NAMES)
        elif self._take("("):
            self._need(name, *NAMES)
            while not self._take(")"):
                self._need(", or )", ",")
                self._need(name, *NAMES)
        else:
            self._need(f". or -> or ( or {_END}", "")
        self._need(_END, "")

    def _expansions(self) -> None:
        self.ways("")
        if self._kind:
            raise self._misplaced()

    # -- alternatives -----------------------------------------------------------------------------

    def ways(self, bracket: str) -> tuple[Way, ...]:
        """Alternatives up to the end of the line, or to what closes ``bracket``."""
        out = [self._way(bracket)]
        while self._take("|"):
            out.append(self._way(bracket))
        return tuple(out)

    def _way(self, bracket: str) -> Way:
        items: list[Item] = []
        while (item := self._item()) is not None:
            items.append(item)
        alias = ""
        if self._take("->"):
            alias = self._need("the name of the alternative, in lower case", "rule").text
            close = _CLOSED_BY.get(bracket, "")
            if self._kind not in ("|", close):
                raise self._unexpected(f"| or {close or _END}")
        return Way(tuple(items), alias)

    def _item(self) -> Item | None:
        begin = self._number
        item = self._atom()
        if item is None:
            return None
        operator = self._take("operator")
        if operator:
            return Item(operator.text, (operator,), self._span(begin), (Way((item,)),))
        tilde = self._take("~")
        if tilde:
            counts = [tilde, self._need("a number", "number")]
            if self._take(".."):
                counts.append(self._need("a number", "number"))
            return Item("~", tuple(counts), self._span(begin), (Way((item,)),))
        return item

    def _atom(self) -> Item | None:
        begin = self._number
        bracket = self._take("(", "[")
        if bracket is None:
            return self._value()
        close = _CLOSED_BY[bracket.text]
        self._open.append(close)
        inside = self.ways(bracket.text)
        if not self._take(close):
            raise self._misplaced()
        self._open.pop()
        return Item(bracket.text, (bracket,), self._span(begin), inside)

    def _value(self) -> Item | None:
        begin = self._number
        token = self._take("rule", "terminal", "pattern", "literal")
        if token is None:
            return None
        if token.kind == "literal" and self._take(".."):
            last = self._need('a literal of one character, "z"', "literal")
            return Item("value", (token, last), self._span(begin))
        if token.kind != "rule" or not self._take("{"):
            return Item("value", (token,), self._span(begin))
        arguments = [self._argument()]
        while not self._take("}"):
            self._need(", or }", ",")
            arguments.append(self._argument())
        return Item("use", (token,), self._span(begin), (Way(tuple(arguments)),))

    def _span(self, begin: int) -> tuple[int, int]:
        """Where the tokens since ``begin`` stand."""
        return self._line[begin].at, self._line[self._number - 1].end

    def _argument(self) -> Item:
        value = self._value()
        if value is None:
            raise self._unexpected(f"{_VALUE}, as an argument of the template")
        return value

    # -- tokens -----------------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        """The kind of the next token; nothing at the end."""
        return self._line[self._number].kind if self._number < len(self._line) else ""

    def _take(self, *kinds: str) -> Token | None:
        """The next token if it is of one of the ``kinds``."""
        if self._kind not in kinds or not self._kind:
            return None
        self._number += 1
        return self._line[self._number - 1]

    def _need(self, expected: str, *kinds: str) -> Token:
        """The next token, which has to be of one of the ``kinds``; ``""`` is the end."""
        token = self._take(*kinds)
        if token is None:
            if not self._kind and "" in kinds:
                return self._line[-1]
            raise self._unexpected(expected)
        return token

    def _unexpected(self, expected: str, hint: str = "") -> UnexpectedToken:
        """An error about the next token, with what is expected, if that can be said."""
        then = f" Expected: {expected}." if expected else ""
        is_open = bool(self._open)
        if not self._kind:
            end = self._line[-1].end if self._line else 0
            return UnexpectedToken(f"It ends too early here.{then}", end, None, hint, is_open)
        token = self._line[self._number]
        shown = token.text[0] if token.kind == "other" else token.text
        message = f"Unexpected {shown!r}.{then}"
        return UnexpectedToken(message, token.at, token, hint, is_open)

    def _misplaced(self) -> UnexpectedToken:
        """An error about the next token, where an item could stand and what ends them."""
        expected = self._open[-1] if self._open else ""
        if not self._kind:
            hint = "Brackets end on their line, or before a line that begins with |."
            return self._unexpected(expected, hint)
        kind, text = self._kind, self._line[self._number].text
        before = self._line[self._number - 1].kind if self._number else ""
        if kind in (")", "]"):
            hint = "" if expected else "No bracket is open that it could close."
            return self._unexpected(expected, hint)
        if kind[0] == "%":
            kind = "command"
        elif kind in _REPEATS:
            is_again = before in (*_REPEATS, "number")
            kind = "again" if is_again else "operator"
        elif kind == "other" and text == "_":
            kind = text
        return self._unexpected("", _HINTS.get(kind, "").format(text))
