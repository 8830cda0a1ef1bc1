"""What a Lark text comes to, before Lark reads it: bounded, or refused.

Lark multiplies out what is optional, alternatives inside sequences and counted repeats, and makes a
rule of a template for each list of arguments: both can be more than any machine holds. `bounded`
makes rules of the parts of a rule that would have too many alternatives, which changes the tree
and not the language, and refuses templates that lead to ever more of them. For that the text is
cut into tokens, statements and alternatives here. Lark alone says whether it is well-formed, and
what it means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from structgen.errors import CompileLimitExceeded
from structgen.grammar import reading

MAX_WAYS = 2_000
"""Most alternatives of one rule that Lark is to multiply out."""

MAX_INSTANCES = 1_000
"""Most rules that templates may come to."""

_MAX_LENGTH = 5_000
"""Most characters that a template with its arguments is written with, these written out."""

_STEPS = 8
"""Steps for each character that Lark reads: up to 30 µs."""

_BLANKS = re.compile(r"\s{64,}")
"""What Lark looks at in the square of its length, 400 characters to a step."""

_MOST_NODES = 1 << 40
"""More parts of terminals than any machine holds."""

_FEW = 16
"""Most alternatives that are left to a sequence that had more than `MAX_WAYS`."""

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

_NAMES = ("rule", "terminal")
_COMMANDS = ("%import", "%ignore", "%declare")
_CLOSED_BY = {"(": ")", "[": "]"}


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
    """A part of a rule.

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


Way: TypeAlias = "tuple[Item, ...]"
"""One alternative."""


class Statement(NamedTuple):
    """One statement: ``kind`` is rule, terminal, import, ignore, declare, or nothing."""

    kind: str
    tokens: list[Token]
    name: str
    parameters: list[str]
    body: list[Token]

    @property
    def at(self) -> int:
        """Where the name that it defines stands."""
        return next((t.at for t in self.tokens if t.text == self.name), self.tokens[0].at)


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
        elif kind not in ("comment", "blank"):
            kind = found[0] if kind in ("command", "sign") else kind
            line.append(Token(kind, found[0], found.start()))
    return [*out, line] if line else out


def statements(text: str) -> list[Statement]:
    """The statements of a text; what is not like one has no kind.

    What is no token between them is passed over.
    """
    found = [[t for t in line if t.kind != "other"] for line in lines(text)]
    return [_statement(line) for line in found if line]


def _statement(line: list[Token]) -> Statement:
    kinds = [token.kind for token in line]
    if kinds[0] in _COMMANDS:
        return Statement(kinds[0][1:], line, "", [], line[1:])
    first = int(kinds[0] in ("%override", "%extend"))
    named = first + (kinds[first : first + 1] == ["modifiers"])
    if ":" not in kinds or kinds[named] not in _NAMES:
        return Statement("", line, "", [], [])
    colon = kinds.index(":")
    head = line[named + 1 : colon] if "{" in kinds[named : named + 2] else []
    parameters = [token.text for token in head if token.kind == "rule"]
    return Statement(kinds[named], line, line[named].text, parameters, line[colon + 1 :])


def rules(text: str) -> list[str]:
    """The names of the rules that a text defines or imports."""
    out: list[str] = []
    for statement in statements(text):
        if statement.kind == "rule" and not statement.parameters:
            out.append(statement.name)
        elif statement.kind == "import":
            kinds = [token.kind for token in statement.body]
            first = kinds.index("(") if "(" in kinds else -1
            out += [token.text for token in statement.body[first:] if token.kind == "rule"]
    return list(dict.fromkeys(out))


class Malformed(Exception):
    """A rule that Lark refuses."""


def ways_of(body: list[Token]) -> tuple[Way, ...]:
    """The alternatives that a rule consists of.

    Raises:
        Malformed: they are not well-formed.
    """
    reader = _Reader(body)
    found = reader.ways()
    if reader.kind:
        raise Malformed
    return found


class _Reader:
    """Reads what a rule consists of, by recursive descent."""

    def __init__(self, line: list[Token]) -> None:
        self._line = line
        self._number = 0

    @property
    def kind(self) -> str:
        """The kind of the next token; nothing at the end."""
        return self._line[self._number].kind if self._number < len(self._line) else ""

    def ways(self) -> tuple[Way, ...]:
        """Alternatives up to the end, or to what closes a bracket."""
        out = [self._way()]
        while self._take("|"):
            out.append(self._way())
        return tuple(out)

    def _way(self) -> Way:
        items: list[Item] = []
        while (item := self._item()) is not None:
            items.append(item)
        if self._take("->"):
            self._need("rule")
        return tuple(items)

    def _item(self) -> Item | None:
        begin = self._number
        item = self._atom()
        if item is None:
            return None
        operator = self._take("operator")
        if operator:
            return Item(operator.text, (operator,), self._span(begin), ((item,),))
        tilde = self._take("~")
        if tilde:
            counts = [tilde, self._need("number")]
            if self._take(".."):
                counts.append(self._need("number"))
            return Item("~", tuple(counts), self._span(begin), ((item,),))
        return item

    def _atom(self) -> Item | None:
        begin = self._number
        bracket = self._take("(", "[")
        if bracket is None:
            return self._value()
        inside = self.ways()
        self._need(_CLOSED_BY[bracket.text])
        return Item(bracket.text, (bracket,), self._span(begin), inside)

    def _value(self) -> Item | None:
        begin = self._number
        token = self._take("rule", "terminal", "pattern", "literal")
        if token is None:
            return None
        if token.kind == "literal" and self._take(".."):
            return Item("value", (token, self._need("literal")), self._span(begin))
        if token.kind != "rule" or not self._take("{"):
            return Item("value", (token,), self._span(begin))
        arguments = [self._argument()]
        while not self._take("}"):
            self._need(",")
            arguments.append(self._argument())
        return Item("use", (token,), self._span(begin), (tuple(arguments),))

    def _argument(self) -> Item:
        value = self._value()
        if value is None:
            raise Malformed
        return value

    def _span(self, begin: int) -> tuple[int, int]:
        """Where the tokens since ``begin`` stand."""
        return self._line[begin].at, self._line[self._number - 1].end

    def _take(self, *kinds: str) -> Token | None:
        """The next token if it is of one of the ``kinds``."""
        if self.kind not in kinds or not self.kind:
            return None
        self._number += 1
        return self._line[self._number - 1]

    def _need(self, kind: str) -> Token:
        token = self._take(kind)
        if token is None:
            raise Malformed
        return token


def spend(text: str) -> None:
    """Count the work of one time that Lark reads ``text``; see `reading.spend`."""
    reading.spend_text(text, _STEPS)
    squares = sum(len(blanks) ** 2 for blanks in _BLANKS.findall(text))
    reading.spend(squares // 400, "the grammar has too many blank lines in a row; leave them out")


def bounded(text: str, is_imported: bool = False) -> Bounded:
    """A Lark text for the same language, of which Lark makes a bounded number of rules.

    Args:
        text: the text.
        is_imported: whether templates may be used that are not used in it.

    Raises:
        CompileLimitExceeded: templates are used with ever more arguments, or Lark would make more
            of the text than may be.
    """
    found: list[tuple[Statement, tuple[Way, ...]]] = []
    every = statements(text)
    _check_terminals([statement for statement in every if statement.kind == "terminal"])
    for statement in every:
        if statement.kind == "rule":
            try:
                found.append((statement, ways_of(statement.body)))
            except (Malformed, RecursionError):
                continue  # which Lark refuses
    _check_templates(found, is_imported)
    parts = Bounded(text)
    for statement, ways in found:
        parts.look_at(statement, ways)
    return parts


class Bounded:
    """A text, with rules made of parts of its rules.

    Args:
        text: the text.

    Attributes:
        prefix: how the names of these rules begin; no other name begins so.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.prefix = "part_of_rule_"
        while self.prefix in text:
            self.prefix += "_"
        self._made: dict[tuple[int, int], str] = {}
        """By where parts stand: what stands for them."""

    def look_at(self, statement: Statement, ways: tuple[Way, ...]) -> None:
        """Make rules of the parts of a rule where it has too many alternatives."""
        given = f"{{{', '.join(statement.parameters)}}}" if statement.parameters else ""
        try:
            for way in ways:
                count = self._size_of_way(way, given)
                if count > 1:
                    reading.spend(
                        count * len(way),
                        "what is optional or has alternatives, each beside each other, comes to "
                        "too many rules; make rules of parts of it",
                        f"rule {statement.name}",
                    )
        except (RecursionError, ValueError):
            pass  # which Lark refuses, too: a count may have more digits than any number

    def text(self) -> str:
        """The text with all these rules."""
        if not self._made:
            return self._text
        rules = [f"{name}: {self._written(*span, True)}" for span, name in self._made.items()]
        return "\n".join([self._written(0, len(self._text)), "", *rules, ""])

    def position(self, at: int) -> int:
        """Where a character of `text` stands in the text that it was made of."""
        end = 0
        for first, last in sorted(self._made, key=lambda span: (span[0], -span[1])):
            if first >= end and at >= first:
                at = max(first, at - len(self._made[first, last]) - 2 + last - first)
                end = last
        return at

    def _written(self, begin: int, end: int, is_inside: bool = False) -> str:
        """What stands somewhere, with the names of rules for the parts of which these are made."""
        out: list[str] = []
        for first, last in sorted(self._made, key=lambda span: (span[0], -span[1])):
            if begin <= first and last <= end and not (is_inside and (first, last) == (begin, end)):
                out += [self._text[begin:first], f" {self._made[first, last]} "]
                begin = last
        return "".join([*out, self._text[begin:end]])

    def _size_of_way(self, way: Way, given: str) -> int:
        sizes = [self._size(item, given) for item in way]
        if math.prod(sizes) <= MAX_WAYS:
            return math.prod(sizes)
        size = 1
        for item, several in sorted(zip(way, sizes, strict=True), key=lambda pair: pair[1]):
            size *= several if size * several <= _FEW else self._apart(item, given)
        return size

    def _apart(self, item: Item, given: str) -> int:
        """Make a rule of a part, which then is one symbol."""
        self._made.setdefault(item.span, f"{self.prefix}{len(self._made)}{given}")
        return 1

    def _size(self, item: Item, given: str) -> int:
        """How many sequences of symbols a part comes to."""
        if item.kind in ("value", "use"):
            return 1
        size = sum(self._size_of_way(way, given) for way in item.inside)
        if item.kind in ("?", "["):
            return size + 1
        if item.kind == "(":
            return size
        if item.kind in ("*", "+"):
            return 2 if item.kind == "*" else 1
        least, most = int(item.tokens[1].text), int(item.tokens[-1].text)
        if size > 1 and (most > MAX_WAYS or size ** max(most, 0) > MAX_WAYS):
            size = self._apart(item.inside[0][0], given)
        if size == 1:
            return max(most - least, 0) + 1
        return math.floor(sum(size**count for count in range(max(least, 0), most + 1))) or 1


def _check_terminals(terminals: list[Statement]) -> None:
    """Look how long terminals are with those in them written out, which Lark does.

    Raises:
        CompileLimitExceeded: too long.
    """
    inner = {
        s.name: [token.text for token in s.body if token.kind == "terminal"] for s in terminals
    }
    own = {s.name: len(s.body) for s in terminals}
    # With each terminal how many parts it has, and how many there are in all its parts together:
    # Lark goes through a terminal once for each part of it.
    known: dict[str, tuple[int, int]] = {}
    under_way: set[str] = set()
    for name in inner:
        todo = [(name, iter(inner[name]))]
        while todo:
            name, names = todo[-1]
            following = next(names, None)
            if following in under_way:
                return  # a terminal in itself, which Lark refuses
            if following is not None:
                if following in inner and following not in known:
                    under_way.add(following)
                    todo.append((following, iter(inner[following])))
                continue
            todo.pop()
            under_way.discard(name)
            if name in known:
                continue
            parts = [known[part] for part in inner[name] if part in known]
            size = min(own[name] + sum(part[0] for part in parts), _MOST_NODES)
            work = min(size + sum(part[1] for part in parts), _MOST_NODES)
            known[name] = size, work
            if parts:
                reading.spend(
                    work,
                    "terminals with terminals in them are too long, written out; make rules of "
                    "them (in lower case), or write patterns",
                    f"terminal {name}",
                )


def _check_templates(found: list[tuple[Statement, tuple[Way, ...]]], is_imported: bool) -> None:
    """Look whether templates come to an end.

    Args:
        found: rules and templates.
        is_imported: see `bounded`; then templates are looked at with their parameters, too.

    Raises:
        CompileLimitExceeded: they do not, or late.
    """
    templates = {
        s.name: (s.parameters, ways, s.tokens[-1].end - s.tokens[0].at)
        for s, ways in found
        if s.parameters
    }
    if not templates:
        return
    seen: set[str] = set()
    todo = [(ways, dict[str, str]()) for s, ways in found if is_imported or not s.parameters]
    while todo:
        ways, given = todo.pop()
        for item in _uses(ways):
            name, *arguments = _shown(item, given)
            shown = f"{name}{{{','.join(arguments)}}}"
            if shown in seen or name not in templates:
                continue
            seen.add(shown)
            if len(seen) > MAX_INSTANCES or len(shown) > _MAX_LENGTH:
                raise CompileLimitExceeded(
                    f"template {name} is used with ever more arguments: inside itself, say, with "
                    "what it is given inside something else; write out the rules that are needed",
                    limit=MAX_INSTANCES,
                    actual=MAX_INSTANCES + 1,
                    path=f"rule {name}",
                )
            parameters, body, length = templates[name]
            reading.spend(
                _STEPS * length,
                "templates come to rules that are too long together; use them less often",
                f"rule {name}",
            )
            todo.append((body, dict(zip(parameters, arguments, strict=False))))


def _uses(ways: tuple[Way, ...]) -> Iterator[Item]:
    """The uses of templates in alternatives."""
    for way in ways:
        for item in way:
            if item.kind == "use":
                yield item
            yield from _uses(item.inside)


def _shown(item: Item, given: dict[str, str]) -> list[str]:
    """A value, or a template and its arguments, in which parameters are what is given for them."""
    texts = [given.get(token.text, token.text) for token in item.tokens]
    out = ["..".join(texts)]
    for way in item.inside:
        for argument in way:
            name, *arguments = _shown(argument, given)
            out.append(f"{name}{{{','.join(arguments)}}}" if arguments else name)
    return out
