"""Lark grammars → IR, read with the ``lark`` package.

Owns what the rules and terminals mean that Lark makes of a text: the language that
``lark.Lark(text, parser="earley")`` accepts with its dynamic lexer. A terminal takes what
``re.match`` takes of its pattern, where the rules expect it; ignored terminals may stand before any
terminal and at the end. Priorities choose among parses of a text, never among texts, so they are
dropped, like aliases and whatever else shapes the tree.

Lark ends at the first mistake that it finds. Its message is told with the place in the user's text,
and with what mends it. A text that comes from no file may be a stranger's, so it reads no file:
relative imports are for grammars that are files themselves.

What a text comes to is bounded before Lark reads it. Lark multiplies out what is optional,
alternatives inside sequences and counted repeats, and makes a rule of a template for each list of
arguments: both can be more than any machine holds. `bounded` makes rules of the parts of a rule
that would have too many alternatives, which changes the tree and not the language, and refuses
templates that lead to ever more of them. For that alone the text is cut into tokens, statements and
alternatives here.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from structgen.errors import CompileLimitExceeded, GrammarError, PatternError, UnsupportedFeature
from structgen.grammar import ir, reading
from structgen.grammar import regex as regexes

from . import cache, embedded, foreign
from .embedded import Given, Lifted

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


def rule_names(text: str) -> list[str]:
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


_COMMON = (
    "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING "
    "LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS WS_INLINE CR LF NEWLINE SH_COMMENT "
    "CPP_COMMENT C_COMMENT SQL_COMMENT"
)
"""What ``%import common.NAME`` finds, for hints."""

_LIBRARY = ("common", "lark", "python", "unicode")
"""The grammars that come with Lark."""

_EXPECTED = {
    "OP": "* + or ?",
    "RULE": "the name of a rule",
    "TERMINAL": "the name of a terminal",
    "STRING": 'a literal, "…"',
    "REGEXP": "a pattern, /…/",
    "NUMBER": "a number",
    "_NL": "the end of the line",
    "_TO": "->",
    "_DOT": ".",
    "_DOTDOT": "..",
    "_COLON": ":",
    "_COMMA": ",",
    "_LPAR": "(",
    "_RPAR": ")",
    "_LBRA": "[",
    "_RBRA": "]",
    "_LBRACE": "{",
    "_RBRACE": "}",
    "_OR": "|",
    "TILDE": "~",
}
"""How Lark calls what may come next, and how it is written."""

_FIXES = {
    "defined more than once": "Give one of them another name, write both as alternatives of one "
    "definition, or say %override or %extend.",
    "Recursion in terminal": "Write a rule (in lower case), or repeat with * and +.",
    "inside terminals": "Make a rule of the terminal (in lower case), or a terminal of what is in "
    "it (in upper case).",
    "Rules defined twice": "Leave one alternative out.",
    "Empty terminals": "Leave the literal out: an alternative may be empty, and ? makes things "
    "optional.",
    "cannot be empty": "Give it a literal or a pattern, and make it optional where rules use it.",
    "Bad Range": "The first number is the least, the second the most.",
    "can only use newlines": r"Write \n for a line break, or put x behind the pattern: /…/x.",
    "Aliasing not allowed": "Leave -> and the name out.",
    "Nothing was imported": "Write %import common.NAME.",
    "nonexisting": "Write it without %override, or import it.",
    "wasn't defined before": "Define it above, or import it.",
    "with different parameters": "Name the same parameters in the same order.",
    "marked for expansion": "Leave the underscore or the alias out.",
    "cannot use the ?rule": "Leave the underscore or the ? out.",
    "number of template arguments": "A rule without parameters takes no {…}.",
    "limit (4300": "Repeat less often.",
}
"""What mends a mistake, by what Lark says of it."""

_BY_RULE = {
    "range": 'A range is from one character to another, without flags: "a".."z"',
    "template_usage": "What is used with arguments here is no template",
}
"""What is wrong where Lark fails at a part of a rule without saying why."""

_NAMED = re.compile(
    r"['`](\w+)['`]|<(\w+) :|\((\w+)\)|(?:[Rr]ule|[Tt]erminal|template|defined:|used for|at) (\w+)"
)
"""Where the messages of Lark name what they are about."""


class Loaded(NamedTuple):
    """A grammar as Lark loads it.

    Attributes:
        terminals: name and pattern (a Lark `Pattern`) of each terminal that is used.
        rules: names of a nonterminal and of the symbols it may consist of.
        nonterminals: their names.
        ignored: names of terminals.
    """

    terminals: list[tuple[str, Any]]
    rules: list[tuple[str, tuple[str, ...]]]
    nonterminals: dict[str, None]
    ignored: list[str]


def parse(
    text: str,
    start: str = "start",
    path: str | None = None,
    given: Mapping[str, Given] | None = None,
) -> ir.ContextFree:
    """The grammar of a Lark text.

    Args:
        text: the grammar; ``%json {…}`` may stand in its rules.
        start: the rule to begin with.
        path: the file it came from, for relative imports; None: it may have none.
        given: terminals that the text only declares, or uses.

    Raises:
        GrammarError: the grammar is malformed.
        CompileLimitExceeded: it is too long, or what it stands for is.
    """
    spend(text)
    if given or (path is not None and cache.reads_files(text)):
        return _read(text, start, path, given or {})
    return cache.get_or_read(text, start, lambda: _read(text, start, path, {}))


def _read(text: str, start: str, path: str | None, given: Mapping[str, Given]) -> ir.ContextFree:
    source = embedded.lift(text, given)
    loaded = _load(source, start, path)
    terminals: list[ir.AnyTerminal] = []
    numbers: dict[str, int] = {}
    for name, pattern in loaded.terminals:
        shown = repr(pattern.value) if name.startswith("__") else name
        regex = pattern.to_regexp()
        try:
            _check_pattern(name, shown, pattern, regex, source)
        except UnsupportedFeature as error:
            placed = _error(f"Terminal {shown}: {error}", source, name, pattern.raw)
            raise UnsupportedFeature(str(placed)) from error
        numbers[name] = len(terminals)
        terminals.append(ir.Terminal(shown, regex))
    nonterminals = {name: ~number for number, name in enumerate(loaded.nonterminals)}
    numbers |= nonterminals
    lowered: dict[tuple[int, tuple[int, ...]], None] = {}

    def number_of(name: str) -> int:
        if name not in numbers:
            terminals.append(_given(name, source))
            numbers[name] = len(terminals) - 1
        return numbers[name]

    for name, way in loaded.rules:
        try:
            symbols = tuple([numbers[symbol] for symbol in way])
        except KeyError:
            symbols = tuple(map(number_of, way))
        lowered[~numbers[name], symbols] = None
    skipped = tuple(map(number_of, loaded.ignored))
    for number in skipped:
        if not isinstance(terminals[number], ir.Terminal):
            raise _ignored(terminals[number].name, source)
    return ir.ContextFree(
        tuple(terminals), tuple(nonterminals), tuple(lowered), ~numbers[start], skipped
    )


def _given(name: str, source: Lifted) -> ir.AnyTerminal:
    """A terminal that the grammar does not define."""
    terminal = source.embedded.get(name)
    if terminal is None and not name.isupper():
        use = re.search(rf"(?<!\w){name}(?![\w{{:])", source.text)
        raise source.error(
            f"{name!r} is used as a rule, and none has this name. A template is used with "
            f"arguments, {name}{{…}}; a terminal is imported in upper case.",
            None if use is None else use.start(),
        )
    if terminal is None:
        raise _error(
            f"Terminal {name} is declared (%declare) but never defined, so it cannot be written. "
            f"Define it here, or give it: Cfg(..., terminals={{{name!r}: ...}}).",
            source,
            name,
        )
    if not isinstance(terminal, str):
        return terminal
    try:
        may_be_empty = regexes.may_be_empty(terminal)
    except PatternError as error:
        raise _error(f"Terminal {name}: {error}", source, name) from error
    _check_width(name, may_be_empty, source, name)
    return ir.Terminal(name, terminal)


def _load(source: Lifted, start: str, path: str | None) -> Loaded:
    """The grammar as Lark loads it.

    Raises:
        GrammarError: Lark refuses it.
        CompileLimitExceeded: see `bounded`.
    """
    import lark

    _check_literals(source)
    read = bounded(source.text)
    files: list[tuple[str, str]] = []
    patterns: dict[str, Any] = {}

    def keep(terminal: Any) -> None:
        # Lark would compile the patterns and refuse some, without a place: that is ours to do.
        patterns[str(terminal.name)] = terminal.pattern
        terminal.pattern = _stand_in()

    def imported(base: object, name: str) -> tuple[str, str]:
        file, text = _file_for_lark(base, name, path, source)
        files.append((file, text))
        spend(text)
        _check_literals(embedded.plain(text), file)
        return file, bounded(text, is_imported=True).text()

    options: dict[str, Any] = {
        "start": start,
        "source_path": path or "<grammar>",
        "import_paths": [imported],
        "edit_terminals": keep,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                # Without a parser: to build one takes as long again.
                made = lark.Lark(read.text(), parser=None, lexer="basic", **options)
            except lark.exceptions.LexError:
                # Something that is ignored is given from outside, of which lexers know nothing.
                _check_start(source, start)
                made = lark.Lark(read.text(), parser="earley", **options)
    except (
        lark.exceptions.LarkError,
        RecursionError,
        AssertionError,
        AttributeError,
        OSError,
        LookupError,
        ValueError,
    ) as error:
        raise _refusal(error, source, read.position, files) from None

    def name_of(symbol: Any) -> str:
        # What the text has no name for begins with underscores, as Lark's own helpers do.
        name = str(symbol.name)
        return f"__{name}" if name.startswith(read.prefix) else name

    rules = [(name_of(r.origin), tuple([name_of(s) for s in r.expansion])) for r in made.rules]
    nonterminals = dict.fromkeys([name for name, _ in rules])
    if start not in nonterminals:
        _check_start(source, start)
    ignored = [str(name) for name in made.ignore_tokens]
    mentioned = {str(s.name) for rule in made.rules for s in rule.expansion if s.is_term}
    mentioned |= set(ignored)
    terminals = [item for item in patterns.items() if item[0] in mentioned]
    return Loaded(terminals, rules, nonterminals, ignored)


@functools.cache
def _stand_in() -> Any:
    """A pattern that is none of the grammar's."""
    from lark.lexer import PatternStr

    return PatternStr("x")


def _check_start(source: Lifted, start: str) -> None:
    """Look whether there is a rule to start with.

    Raises:
        GrammarError: there is none.
    """
    templates = [s.name for s in statements(source.text) if s.parameters]
    if start in templates:
        raise _error(
            f"{start!r} is a template, and a grammar starts with a rule. Take the parameters away, "
            "or write a rule that uses it with arguments.",
            source,
            start,
        )
    names = rule_names(source.text)
    if not names:
        raise GrammarError(
            f'The grammar has no rules. A rule is written in lower case: {start}: "text" TERMINAL'
        )
    if start not in names:
        shown = [name for name in sorted(names) if not name.startswith("_")] or sorted(names)
        raise GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(shown)}. "
            "Name one of them as start."
        )


def _check_literals(source: Lifted, file: str = "") -> None:
    """Look whether literals and patterns end: of one that does not Lark would try all ways to read
    each backslash in it.

    Raises:
        GrammarError: one does not.
    """
    for line in lines(source.text):
        for token in line:
            if token.kind == "other" and token.text[0] in '"/':
                error = _malformed(source, token.at, f"Unexpected {token.text[0]!r}.")
                raise _in_file(error, file) if file else error


def _in_file(error: GrammarError, file: str) -> GrammarError:
    told = str(error).replace("\n", "\n  ")
    return GrammarError(f"In {file}, which is imported: {told}")


def _file_for_lark(base: object, name: str, path: str | None, source: Lifted) -> tuple[str, str]:
    """The path and text of a file that Lark is about to import.

    Lark would read it by itself, with a byte order mark as a part of the text; and where it finds
    nothing, it would open ``name`` in the working directory.

    Args:
        base: the folder of the file that imports it; else the grammar comes with Lark.
        name: its path from there.
        path: the file of the grammar that is read; None: it has none, and reads none.
        source: the grammar that is read.

    Raises:
        GrammarError: there is none, or it may not be read.
        FileNotFoundError: it comes with Lark, which is to read it.
    """
    shown = name.removesuffix(".lark").replace(os.sep, ".")
    first = shown.partition(".")[0]
    found = re.search(rf"^[ \t]*%import\b[\s\\.]*({first})\b", source.text, re.MULTILINE)
    at = None if found is None else found.start(1)
    if isinstance(base, str) and path is None:
        raise source.error(
            f"%import .{shown} reads a file beside the grammar's own file, and this grammar is "
            "given as a text. Pass its file instead, Cfg(Path(...)), or write here what it "
            "imports.",
            at,
        )
    try:
        if isinstance(base, str):
            file = os.path.join(base, name)
            with open(file, encoding="utf-8-sig") as stream:
                return file, stream.read()
        from importlib import resources

        (resources.files("lark") / "grammars").joinpath(name).read_text("utf-8")
    except (OSError, ValueError):
        if isinstance(base, str):
            message = (
                f"There is no {name} in {base or '.'} to import from. Names with a dot in front "
                "are files beside the grammar's."
            )
        else:
            message = (
                f"There is no grammar {shown!r} that comes with Lark.{_near(first, _LIBRARY)} "
                f"Those that do are {', '.join(_LIBRARY)}; a file beside the grammar's is "
                f"imported as .{shown}."
            )
        raise source.error(message, at) from None
    raise FileNotFoundError(name)


def _refusal(
    error: Exception, source: Lifted, position: Callable[[int], int], files: list[tuple[str, str]]
) -> GrammarError:
    """What Lark refuses a text for, as we tell it.

    Args:
        error: Lark's.
        source: the text.
        position: where a character stands in it that Lark was given.
        files: those that have been imported, with what they say; the last one last.
    """
    from lark.exceptions import UnexpectedInput

    if isinstance(getattr(error, "orig_exc", error), RecursionError):
        return GrammarError(
            "The grammar cannot be loaded: it is nested too deeply, or files import each other in "
            "a circle. Give parts of it names, as rules of their own."
        )
    cause = error if isinstance(error, UnexpectedInput) else error.__context__
    if isinstance(cause, UnexpectedInput):
        if not files:
            return _unexpected(cause, error, source, position(cause.pos_in_stream or 0))
        inner = embedded.plain(files[-1][1])
        at = inner.offset(cause.line, cause.column)
        return _in_file(_unexpected(cause, error, inner, at), files[-1][0])
    said = re.sub(r'^Error trying to process rule "\w+":', "", str(error)).strip()
    said = _BY_RULE.get(getattr(error, "rule", ""), said)
    said = re.sub(r"(?:Non)?Terminal\(('\w+')\)", r"\1", said)
    template = re.match(r"Tree\('template_usage', \[('\w+')", said)
    if template:
        said = f"Templates aren't allowed inside terminals ({template[1]})"
    undefined = re.search(r"'(\w+)' used but not defined( \(in .*\))|not defined: (\w+)", said)
    if undefined:
        return _undefined(undefined[1] or undefined[3], undefined[2] or "", source, files)
    place = _place(said, source)
    found = statements(source.text)
    if isinstance(cause, SyntaxError):
        raw = error.args[0]
        place = next((t.at for s in found for t in s.body if raw in t.text), None)
        said = (
            f"{raw!r} has an escape that is none, or the character NUL. Write \\\\ for a "
            "backslash, and \\x00 for NUL"
        )
    elif isinstance(error, AssertionError) and not said:
        said, place = _unsaid(found)
    elif isinstance(error, AttributeError):
        said = "Only terminals can be declared, whose names are in upper case"
        rules = (t.at for s in found if s.kind == "declare" for t in s.body if t.kind == "rule")
        place = next(rules, None)
    for token in getattr(getattr(error, "obj", None), "scan_values", lambda _: ())(bool):
        begin = position(getattr(token, "start_pos", None) or 0)
        if source.text.startswith(str(token), begin):
            place = begin
            break
    said = re.sub(r"\s+", " ", said).rstrip(".")
    fix = next((fix for what, fix in _FIXES.items() if what in said), "")
    return source.error(f"The grammar is malformed: {said}. {fix}".rstrip(), place)


def _unsaid(found: list[Statement]) -> tuple[str, int | None]:
    """Why Lark refuses a text where it does not say, and where."""
    declared = {t.text for s in found if s.kind == "declare" for t in s.body}
    for statement in found:
        depth = 0
        for token in statement.body:
            depth += (token.kind in "([") - (token.kind in ")]")
            if token.kind == "->" and depth:
                return (
                    "An alias (->) names an alternative of the whole rule. Leave it out, or make a "
                    "rule of what is in the brackets",
                    token.at,
                )
            if statement.kind == "terminal" and token.text in declared:
                return (
                    f"Terminal {token.text!r} is declared or given, not defined, so it cannot be "
                    f"part of another terminal. Make {statement.name!r} a rule (in lower case)",
                    token.at,
                )
    return "Lark does not say why", None


def _unexpected(syntax: Any, error: Exception, source: Lifted, at: int) -> GrammarError:
    """An error about something that does not belong where it stands."""
    token = getattr(syntax, "token", None)
    if token is not None and token.type in ("_NL", "_NL_OR", "$END"):
        message = "The line ends too early here."
    else:
        message = f"Unexpected {source.text[at : at + 1] if token is None else str(token)!r}."
    said = str(error).partition(", at line")[0]
    if token is not None and not said.startswith("Unexpected"):
        message += f" {said}."
    elif token is not None and said.startswith("Unexpected token"):
        names = [_EXPECTED[name] for name in sorted(syntax.expected) if name in _EXPECTED]
        message += f" Expected: {', '.join(names)}."
    return _malformed(source, at, message)


def _malformed(source: Lifted, at: int, message: str) -> GrammarError:
    """An error about something at ``at``, with what is written there in Lark."""
    mixed = foreign.mixed_case(source.text, at)
    if mixed is not None:
        return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
    advice = foreign.in_lark(source.original, source.position(at))
    return source.error(f"The grammar is malformed: {message} {advice}".rstrip(), at)


def _undefined(name: str, where: str, source: Lifted, files: list[tuple[str, str]]) -> GrammarError:
    """An error about a name that nothing defines, with what was probably meant."""
    folder, _, own = name.rpartition("__")
    for file, text in files:
        if folder and os.path.basename(file) == f"{folder.rpartition('__')[2]}.lark":
            return _in_file(_undefined(own, where, embedded.plain(text), []), file)
    found = statements(source.text)
    at = next((t.at for s in found for t in s.body if t.text == name and s.kind != "import"), None)
    mixed = None if at is None else foreign.mixed_case(source.text, at)
    if mixed is not None:
        return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
    wanted = next((t for s in found if s.kind == "import" for t in s.body if t.text == name), None)
    if wanted is not None:
        message = f"{name} is imported here, and the grammar that it comes from does not define it."
        return source.error(message + _near(name, _COMMON.split()), wanted.at)
    defined = [s.name for s in found if s.name]
    if not name.lstrip("_")[:1].isupper():
        fix = _near(name, defined) or f" Define it: {name}: ..."
        return source.error(f"Rule {name!r} used but not defined{where}.{fix}", at)
    close = difflib.get_close_matches(name, defined, 2)
    close += [
        f"%import common.{other}" for other in difflib.get_close_matches(name, _COMMON.split(), 2)
    ]
    message = f"Terminal {name!r} used but not defined{where}. "
    message += f"Did you mean {' or '.join(close)}? Else define it, " if close else "Define it, "
    message += f"{name}: /pattern/, or give it: Cfg(..., terminals={{{name!r}: ...}})."
    return source.error(message, at)


def _near(name: str, known: Iterable[str]) -> str:
    """What was probably meant, as a sentence; or nothing."""
    near = difflib.get_close_matches(name, list(known), 3)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _place(said: str, source: Lifted) -> int | None:
    """Where the text has what a message of Lark's is about, if it names that."""
    found = statements(source.text)
    for match in _NAMED.finditer(said):
        name = match[match.lastindex or 0]
        defined = [s.at for s in found if s.name == name]
        defined += [t.at for s in found if s.kind == "declare" for t in s.body if t.text == name]
        used = [t.at for s in found for t in s.body if t.text == name]
        for places in (used, defined) if "used" in said or "inside" in said else (defined, used):
            if places:
                return places[min("more than once" in said, len(places) - 1)]
    for statement in found:
        for token in statement.body:
            if token.text == ("~" if "Bad Range" in said else "->" if "Aliasing" in said else ""):
                return token.at
            if token.kind == "pattern" and (token.text in said or not _is_regex(token.text)):
                return token.at
            if token.kind == "literal" and token.text in said:
                return token.at
    return None


def _is_regex(pattern: str) -> bool:
    """Whether Lark takes a pattern, as it is written."""
    end = pattern.rindex("/")
    try:
        re.compile(pattern[1:end])
    except (re.error, RecursionError, OverflowError):
        return False
    return "\n" not in pattern or "x" in pattern[end:]


def _raw(text: str, raw: str) -> int:
    """Where a literal or pattern that is written so stands first."""
    tokens = (token for line in lines(text) for token in line)
    return next((token.at for token in tokens if token.text == raw), text.index(raw))


def place_of(terminal: str, text: str) -> int | None:
    """Where a Lark text has the pattern of a terminal, by what messages call that."""
    from lark import load_grammar

    reader: Any = load_grammar
    for statement in statements(text):
        patterns = [token for token in statement.body if token.kind == "pattern"]
        if statement.kind == "terminal" and statement.name == terminal:
            return patterns[0].at if len(patterns) == 1 else statement.at
        for token in patterns:
            if repr(reader.eval_escaping(token.text[1 : token.text.rindex("/")])) == terminal:
                return token.at
    return None


def _error(message: str, source: Lifted, name: str | None, raw: str | None = None) -> GrammarError:
    """An error about ``name``, placed where the grammar defines it, else where it first uses it; or
    where it is written, ``raw``."""
    found = None
    if raw is None and name and name.startswith("__"):
        raw = _range(message, source.text)
    if raw is not None and raw in source.text:
        return source.error(message, _raw(source.text, raw))
    if name:
        escaped = re.escape(name)
        found = re.search(rf"(?<=^){escaped}(?=[.:{{ ])", source.text, re.MULTILINE)
        found = found or re.search(rf"(?<!\w){escaped}(?!\w)", source.text)
    at = -1
    if found is not None:
        at = found.start()
    elif name and name.startswith("__IGNORE"):
        ignored = [s.tokens[0].at for s in statements(source.text) if s.kind == "ignore"]
        at = ([*ignored, -1] * 2)[int(name.rpartition("_")[2])]
    return source.error(message, None if at < 0 else at)


def _range(message: str, text: str) -> str | None:
    """The range of characters, as it is written, that a message is about."""
    for found in re.finditer(r'"(\\?.)"[ \t]*\.\.[ \t]*"(\\?.)"', text):
        if f"[{found[1]}-{found[2]}]" in message:
            return found[0]
    return None


def _ignored(name: str, source: Lifted) -> GrammarError:
    """An error about a terminal that is no pattern, at the statement that ignores it."""
    message = (
        f"Only patterns can be ignored, not {name}. Write a pattern, or put it into the rules."
    )
    found = re.search(rf"^[ \t]*%ignore[^\n]*?\b({name.split()[-1]})\b", source.text, re.MULTILINE)
    return source.error(message, None if found is None else found.start(1))


def _check_pattern(name: str, shown: str, pattern: Any, regex: str, source: Lifted) -> None:
    if pattern.type == "str" and not pattern.flags and pattern.value:
        return  # a literal
    try:
        may_be_empty = regexes.may_be_empty(regex)
    except PatternError as error:
        raise _error(f"Terminal {shown}: {error}", source, name, pattern.raw) from error
    _check_width(shown, may_be_empty, source, name, pattern.raw)


def _check_width(
    shown: str, may_be_empty: bool, source: Lifted, name: str, raw: str | None = None
) -> None:
    if may_be_empty:
        raise _error(
            f"Terminal {shown} can match the empty text, which a terminal must "
            "not. Make it match something (+ instead of *), and make it optional in the rules.",
            source,
            name,
            raw,
        )
