"""Lark as llguidance reads it → IR.

    name[lazy]: …         a rule, whose lexemes match as few characters as they can
    name[suffix="x"]: …   the same, up to and including what follows
    name[stop="x"]: …     a text without what follows, which is not part of the output
    name[max_tokens=9, temperature=0.5]: …   a terminal, or a regular %lark {…}, of that many tokens
                          at most, and what they are sampled with; the latter of %json {…}, too
    name[suffix="x", stop_capture="end"]: …  names the text that ended the rule
    name::_: … %if …      a rule for each number of 64 bits that is met
    NAME: A & ~B          a terminal, with *and* and *not*
    %json {…}  %lark {…}  a JSON Schema; a grammar of its own, with its own names
    %regex {"substring_words": "…"}   words in a row of a text, also ``_chars`` and ``_chunks``
    <|name|>  <[12,20-30]>  <[^12]>   a token by its name; any of some, or of all but some, by ids

A lexeme is a text of its terminal, followed by ignored text. A text belongs to the language if any
way to split it into lexemes fits. llguidance tries only the longest lexeme, so it refuses some
texts that are accepted here. Where it truncates a text at its token limit, texts are complete here.
`notation` makes rules of expressions.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from structgen.errors import GrammarError, PatternError
from structgen.grammar import ir, reading, regex
from structgen.grammar.regex import tree

from . import embedded, notation
from .embedded import Given
from .notation import Alternatives, Expression, Placed, Reference, Regular, Repeated, Sequence

_TOKENS = re.compile(
    r"""(?P<blank>[ \t]+|(?:\#|//)[^\n]*)
    |(?P<newline>\r?\n)
    |(?P<string>"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})|[^"\\\x00-\x1f\x7f])*"i?)
    |(?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    |(?P<command>%[a-z]+)
    |(?P<rule>!?[_?]?[a-z](?:[_a-z0-9]|-(?!>))*)
    |(?P<terminal>_?[A-Z](?:[_A-Z0-9]|-(?!>))*)
    |(?P<number>0[xX][0-9a-fA-F]+|[+-]?\d+(?:\.(?!\.)\d*)?(?:[eE][+-]?\d+)?)
    |(?P<token><[^<>\s]+>)
    |(?P<grammar>@[\w-]+)
    |(?P<sign>->|\.\.|::|[:,.(){}\[\]~|&=?*+_])
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_TIMES = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_MAX_DEPTH = 100
"""The most nested brackets and terminals."""

_ANY = ir.Repeat(ir.ANY_CHAR, 1, None)
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_TOKENS = 10**6
"""The largest token limit of a rule."""


class _Token(NamedTuple):
    """A token of the text: its kind, text, position; and the JSON after a command."""

    kind: str
    text: str
    at: int
    value: Any = None


class _Definition(NamedTuple):
    """A rule or terminal: the range of its body among the tokens, its position in the text, its
    options, and whether it has a number."""

    body: int
    end: int
    at: int
    options: Mapping[str, Any]
    is_numbered: bool


class _Bits(NamedTuple):
    """Some bits of a rule's number: the index of the lowest, their value, and the largest possible
    value."""

    low: int
    value: int
    most: int


_BITS = 64
"""The number of bits of a rule's number."""

_FUNCTIONS: dict[str, tuple[tuple[type, ...], Callable[..., int]]] = {
    "set_bit": ((int,), lambda number, bit: number | 1 << min(bit, _BITS)),
    "clear_bit": ((int,), lambda number, bit: number & ~(1 << min(bit, _BITS))),
    "bit_and": ((int,), lambda number, mask: number & mask),
    "bit_or": ((int,), lambda number, mask: number | mask),
    "incr": ((_Bits,), lambda number, bits: number + ((bits.value < bits.most) << bits.low)),
    "decr": ((_Bits,), lambda number, bits: number - ((bits.value > 0) << bits.low)),
    "bit_set": ((int,), lambda number, bit: bool(number >> bit & 1)),
    "bit_clear": ((int,), lambda number, bit: not number >> bit & 1),
    "is_ones": ((_Bits,), lambda _, bits: bits.value == bits.most),
    "is_zeros": ((_Bits,), lambda _, bits: not bits.value),
    "true": ((), lambda _: True),
    "not": ((bool,), lambda _, one: not one),
    "and": ((bool, bool), lambda _, one, other: one and other),
    "or": ((bool, bool), lambda _, one, other: one or other),
}
"""Functions of a rule's number: the types of their arguments, and the result for a number. A new
number is an int, a condition a bool."""

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare = getattr(operator, _name)
    _FUNCTIONS[_name] = (_Bits, int), lambda _, bits, than, by=_compare: by(bits.value, than)
    _FUNCTIONS[f"bit_count_{_name}"] = (
        (_Bits, int),
        lambda _, bits, than, by=_compare: by(bits.value.bit_count(), than),
    )


def parse(text: str, start: str, given: Mapping[str, Given]) -> ir.ContextFree:
    """Return the grammar of a text.

    Args:
        text: the grammar.
        start: the start rule.
        given: terminals that the text declares without a definition.

    Raises:
        GrammarError: the grammar is malformed, or cannot be enforced.
        CompileLimitExceeded: it is too large when expanded.
    """
    reader = _Reader(text, given)
    scope = _Scope(reader, "", 0)
    scope.statements()
    first = scope.rule(start, 0)
    if scope.has_initial_skip:
        reader.rules["::start"] = Sequence((Regular(scope.skip), first))
        first = Reference("::start")
    while reader.todo:
        name, read = reader.todo.pop()
        reader.rules[name] = read()
    grammar = notation.build(reader.rules, first.name, text)
    captures = [
        ir.Capture(number, name, tuple([tail for tail in tails if tail != ir.EPSILON]), is_tail)
        for number, rule in enumerate(grammar.nonterminals)
        for name, tails, is_tail in reader.captures.get(rule, ())
    ]
    return replace(grammar, captures=tuple(captures))


def definitions(text: str) -> dict[str, tuple[int, set[str]]]:
    """Map each rule and terminal to the position of its definition, and the names in it; "" to the
    names elsewhere, as in options or ignored text."""
    reader = _Reader(text, {})
    scope = _Scope(reader, "", 0)
    scope.statements()
    defined, tokens = scope.defined, reader.tokens

    def names(some: Iterable[_Token]) -> set[str]:
        return {token.text for token in some if token.kind in ("rule", "terminal")}

    bodies = {i for one in defined.values() for i in range(one.body, one.end)}
    heads = {one.at for one in defined.values()}
    found = {name: (one.at, names(tokens[one.body : one.end])) for name, one in defined.items()}
    others = names(t for i, t in enumerate(tokens) if i not in bodies and t.at not in heads)
    return found | {"": (0, others)} if others else found


class _Reader:
    """The state that all scopes of a text share: its tokens, and the rules used."""

    def __init__(self, text: str, given: Mapping[str, Given]) -> None:
        self.text = text
        self.given = given
        self.tokens = self._tokens()
        self.rules: dict[str, Expression] = {}
        self.todo: list[tuple[str, Callable[[], Expression]]] = []
        self.captures: dict[str, list[tuple[str, tuple[ir.Regex, ...], bool]]] = {}

    def _tokens(self) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while at < len(self.text):
            match = _TOKENS.match(self.text, at)
            if match is None:
                self.wrong("This is not grammar, or a string or pattern is not closed", at)
            kind, written, begin, at = str(match.lastgroup), match[0], at, match.end()
            value: Any = None
            if written == "%json":
                value, at = embedded.json_schema(self.text, begin)
            elif written in ("%regex", "%llguidance"):
                value, at = embedded.json_after(written, self.text, begin)
            if kind != "blank":
                found.append(_Token(kind, written, begin, value))
        end = len(self.text)
        return [
            *found,
            _Token("newline", "the end of the line", end),
            _Token("end", "the end", end),
        ]

    def wrong(self, message: str, at: int) -> NoReturn:
        """Raise an error at a character."""
        raise embedded.placed(f"{message}.", self.text, at)


class _Scope:
    """A grammar with its own names: that of the text, or of a ``%lark``.

    Args:
        reader: the shared state.
        prefix: the prefix of its rules' names.
        begin: its first token.
    """

    def __init__(self, reader: _Reader, prefix: str, begin: int) -> None:
        self._reader = reader
        self._prefix = prefix
        self._next = begin
        self.defined: dict[str, _Definition] = {}
        self._imported: dict[str, ir.Regex] = {}
        self._known: dict[str, tuple[ir.Regex, int]] = {}  # terminals, with their sizes
        self._under_way: list[str] = []
        self._depth = 0
        self._ignored: list[int] = []
        self._options: dict[str, Any] = {}
        self._in_terminal = False
        self._number: int | None = None  # of the current rule

    # -- tokens ------------------------------------------------------------------------------------

    @property
    def _here(self) -> _Token:
        return self._reader.tokens[self._next]

    def _wrong(self, message: str, at: int | None = None) -> NoReturn:
        self._reader.wrong(message, self._here.at if at is None else at)

    def _take(self, *kinds: str) -> _Token | None:
        """Return the current token and advance, if it is of these kinds or this text."""
        found = self._here
        if found.kind in kinds or found.text in kinds:
            self._next += 1
            return found
        return None

    def _must(self, *kinds: str) -> _Token:
        found = self._take(*kinds)
        if found is None:
            self._wrong(f"Expected {' or '.join(kinds)}, found {self._here.text!r}")
        return found

    def _skip_newlines(self) -> None:
        while self._take("newline"):
            pass

    # -- statements --------------------------------------------------------------------------------

    def statements(self) -> int:
        """Read definitions up to the end, or past the closing bracket; return the next token."""
        while True:
            self._skip_newlines()
            token = self._here
            if token.kind == "end" and not self._prefix:
                break
            if token.text == "}" and self._prefix:
                self._next += 1
                break
            self._next += 1
            if token.kind in ("rule", "terminal"):
                self._definition(token)
            elif token.text == "%ignore":
                self._ignored.append(self._next)
                self._pass_body()
            elif token.text == "%import":
                self._imports()
            elif token.text == "%declare":
                while (name := self._take("terminal")) is not None:
                    if name.text not in self._reader.given:
                        self._wrong(f"Define {name.text}, or pass terminals=", name.at)
            elif token.text == "%llguidance":
                self._options |= token.value
            else:
                self._wrong(
                    f"Expected a rule, a terminal or a command, found {token.text!r}", token.at
                )
        for option, value in self._options.items():
            if option not in ("no_forcing", "allow_initial_skip", "ignore_once"):
                self._wrong(f"%llguidance has an option {option!r}, which is not supported", 0)
            if not isinstance(value, bool):
                self._wrong(f"The option {option!r} must be true or false, not {value!r}", 0)
        return self._next

    def _definition(self, token: _Token) -> None:
        name = token.text.lstrip("!?")
        is_numbered = token.kind == "rule" and self._take("::") is not None
        if is_numbered:
            self._must("_")
        if self._here.text in ("{", "."):
            what = "templates" if self._here.text == "{" else "priorities"
            self._wrong(f"llguidance has no {what}. Read the text as Lark: dialect='lark'")
        options: dict[str, Any] = {}
        if self._take("["):
            if token.kind != "rule":
                self._wrong(f"Only rules have options. Write {name.lower()}[…]", token.at)
            options = self._rule_options()
        self._must(":")
        if name in self.defined or name in self._reader.given:
            self._wrong(
                f"{name} is defined twice. Write the alternatives in one definition", token.at
            )
        body = self._next
        self._pass_body()
        self.defined[name] = _Definition(body, self._next, token.at, options, is_numbered)

    def _rule_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        given: set[str] = set()
        while not self._take("]"):
            key = self._must("rule")
            if key.text in given:
                self._wrong(f"{key.text} is given twice", key.at)
            given.add(key.text)
            if "stop" in given and given & {"suffix", "lazy"}:
                self._wrong("A rule ends at stop=, or at suffix= or lazy. Remove one", key.at)
            if key.text in ("max_tokens", "temperature"):
                self._must("=")
                options[key.text] = self._limit(key, self._must("number"))
            elif key.text == "stop_capture":
                self._must("=")
                options[key.text] = json.loads(self._must("string").text)
            elif key.text == "capture":
                options["capture"] = None
                if self._take("="):
                    written = self._must("string")
                    options["capture"] = json.loads(written.text)
            elif key.text == "lazy":
                options.setdefault("suffix", None)
            elif key.text in ("stop", "suffix"):
                self._must("=")
                options[key.text] = self._next
                self._must("string", "regex", "terminal")
            else:
                self._wrong(
                    f"Unknown option {key.text!r} of a rule. Options: capture, lazy, max_tokens, "
                    "stop, stop_capture, suffix, temperature",
                    key.at,
                )
            if not self._take(","):
                self._must("]")
                break
        if "stop_capture" in options and options.get("suffix") is None:
            self._wrong(
                "stop_capture= requires suffix=. The text of stop= is never written, so there is "
                "nothing to capture"
            )
        return options

    def _limit(self, key: _Token, number: _Token) -> float | None:
        """Return the value of ``max_tokens=`` or ``temperature=``."""
        if key.text == "max_tokens":
            if re.fullmatch(r"\d{1,7}", number.text) and int(number.text) <= _MOST_TOKENS:
                return int(number.text)
            what = f"a whole number up to {_MOST_TOKENS:,}"
        else:
            if not number.text.startswith(("-", "0x", "0X")) and float(number.text) < math.inf:
                return float(number.text)
            what = "0 or more"
        self._wrong(f"{key.text}= must be {what}, not {number.text}", number.at)

    def _pass_body(self) -> None:
        """Skip to the end of a body: of its line, unless the next one continues with ``|``."""
        depth = 0
        while True:
            token = self._here
            if token.kind == "end" or (not depth and token.text == "}"):
                return
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if token.kind == "newline" and not depth:
                back = self._next
                self._skip_newlines()
                if self._here.text != "|":
                    self._next = back
                    return
            self._next += 1

    def _imports(self) -> None:
        where = self._must("rule")
        if where.text != "common":
            self._wrong("Only common can be imported: %import common.INT", where.at)
        names: list[_Token] = []
        if self._take("("):
            while not self._take(")"):
                names.append(self._must("terminal"))
                self._take(",")
        else:
            self._must(".")
            names.append(self._must("terminal"))
        alias = self._must("terminal") if self._take("->") else None
        for name in names:
            self._imported[(alias or name).text] = self._common(name)

    def _common(self, name: _Token) -> ir.Regex:
        from . import lark

        try:
            found = lark.parse(f"start: {name.text}\n%import common.{name.text}").terminals[0]
        except GrammarError:
            self._wrong(f"Lark's common has no {name.text}", name.at)
        assert isinstance(found, ir.Terminal)
        assert isinstance(found.pattern, str)
        return regex.parse_python(found.pattern)

    # -- rules and terminals -----------------------------------------------------------------------

    @property
    def has_initial_skip(self) -> bool:
        """Whether something ignored may come first."""
        return self._options.get("allow_initial_skip") is True

    @functools.cached_property
    def skip(self) -> ir.Regex:
        """The ignored text after a lexeme."""
        parts = [self._terminal_at(begin, self._reader.tokens[begin].at) for begin in self._ignored]
        most = 1 if self._options.get("ignore_once") else None
        return tree.repeat(tree.alternate(parts), 0, most) if parts else ir.EPSILON

    def rule(self, name: str, at: int, number: int | None = None) -> Reference:
        """Return the rule of a name and, if it has them, a number."""
        found = self.defined.get(name)
        if found is None:
            self._wrong(f"{name!r} is not defined. Define it: {name}: …", at)
        if found.is_numbered != (number is not None):
            has = f"has a number, as in {name}::0" if found.is_numbered else "has no number (::)"
            self._wrong(f"The rule {name!r} {has}", at)
        full = f"{self._prefix}{name}" if number is None else f"{self._prefix}{name}::{number}"
        if full not in self._reader.rules:
            reading.spend(
                8 * (found.end - found.body), "there are too many numbers of rules; use fewer bits"
            )
            self._reader.rules[full] = Regular(ir.NOTHING)  # until it is read
            self._reader.todo.append((full, lambda: self._rule_body(found, number)))
            self._reader.captures[full] = self._captures(name, found.options)
        # Terminals with many numbers grow large, and captures need a start and an end.
        is_apart = found.is_numbered or bool(self._reader.captures[full])
        return Reference(full, is_apart=is_apart)

    def _captures(
        self, name: str, options: Mapping[str, Any]
    ) -> list[tuple[str, tuple[ir.Regex, ...], bool]]:
        """Return the capture names of a rule's text and of its end."""
        until, back = options.get("suffix"), self._next
        tails = self.skip, ir.EPSILON if until is None else self._value_at(until)
        self._next = back
        found: list[tuple[str, tuple[ir.Regex, ...], bool]] = []
        if "stop_capture" in options:
            found.append((options["stop_capture"], tails, True))
        if "capture" in options:
            found.append((options["capture"] or name, tails, False))
        return found

    def _rule_body(self, found: _Definition, number: int | None) -> Expression:
        self._next, self._number = found.body, number
        options = found.options
        if options.keys() <= {"capture"}:
            return self._whole()
        if options.get("max_tokens") == 0:
            return Regular(ir.EPSILON)
        is_inner = self._here.text in ("%json", "%lark")
        if is_inner and options.keys() <= {"capture", "max_tokens", "temperature"}:
            return self._limited_inner(found)
        body = self._terminal_at(found.body, found.at)
        if "suffix" in options:
            until = options["suffix"]
            end = ir.EPSILON if until is None else self._value_at(until)
            body = notation.shortest(tree.concat([body, end]))
        elif "stop" in options and (stop := self._value_at(options["stop"])) != ir.EPSILON:
            stopped = tree.concat([body, tree.intersect([stop, _ANY]), ir.ANY_TEXT])
            body = tree.intersect([body, tree.complement(stopped)])
        if options.keys() & {"max_tokens", "temperature"}:
            return self._then_skip(self._limited(Regular(body), found))
        return self._lexeme(body, found.at)

    def _limited(self, body: Expression, found: _Definition) -> Expression:
        """Return a regular expression with the limits of its rule."""
        limits = found.options.get("max_tokens"), found.options.get("temperature")
        name = "a rule with max_tokens= or temperature="
        return notation.Made((body,), lambda regex: regex, name, found.at, *limits)

    def _limited_inner(self, found: _Definition) -> Expression:
        """Return a schema or a separate grammar with the limits of its rule."""
        token = self._must("%json", "%lark")
        if token.text == "%lark":
            inner = self._limited(self._inner(token), found)
        elif "max_tokens" in found.options:
            self._wrong(
                "max_tokens= is not supported for %json, as JSON cannot be truncated. Bound it in "
                "the schema, with maxLength and maxItems",
                found.at,
            )
        else:
            inner = Placed(replace(token.value, temperature=found.options["temperature"]))
        if self._here.kind not in ("newline", "end") and self._here.text != "}":
            self._wrong(f"A rule with limits must be {token.text} alone, or a terminal")
        return self._then_skip(inner)

    def _value_at(self, begin: int) -> ir.Regex:
        self._next = begin
        self._in_terminal = True
        try:
            return self._regular(self._atom(), self._here.at)
        finally:
            self._in_terminal = False

    def _terminal(self, name: _Token) -> ir.Regex:
        if name.text in self._imported:
            return self._imported[name.text]
        if name.text not in self._known:
            found = self.defined.get(name.text)
            if found is None:
                self._wrong(
                    f"{name.text} is not defined. Define it, or import it from common", name.at
                )
            if name.text in self._under_way:
                self._wrong(
                    f"Terminal {name.text} contains itself. Write a rule, in lower case", name.at
                )
            if len(self._under_way) > _MAX_DEPTH:
                self._wrong(f"Terminals are nested more than {_MAX_DEPTH} deep", name.at)
            self._under_way.append(name.text)
            made = self._terminal_at(found.body, found.at)
            self._known[name.text] = made, sum(1 for _ in ir.nodes(made))
            self._under_way.pop()
        made, size = self._known[name.text]
        reading.spend(8 * size, "terminals inside terminals are too long; write rules")
        return made

    def _terminal_at(self, begin: int, at: int) -> ir.Regex:
        """Return the terminal whose body begins at a token."""
        state = self._next, self._in_terminal, self._depth
        self._next, self._in_terminal, self._depth = begin, True, 0
        try:
            return self._regular(self._whole(), at)
        finally:
            self._next, self._in_terminal, self._depth = state

    def _regular(self, expression: Expression, at: int) -> ir.Regex:
        if isinstance(expression, Regular):
            return expression.regex
        if isinstance(expression, Repeated):
            return tree.repeat(
                self._regular(expression.body, at), expression.least, expression.most
            )
        if isinstance(expression, (Sequence, Alternatives)):
            parts = [self._regular(part, at) for part in expression.parts]
            return (tree.concat if isinstance(expression, Sequence) else tree.alternate)(parts)
        self._wrong("This cannot be part of a terminal. Put it into a rule, in lower case", at)

    def _lexeme(self, found: ir.Regex, at: int) -> Expression:
        """Return a text of a terminal, and ignored text after it."""
        if self._in_terminal:
            return Regular(found)
        if notation.is_plain(found):
            return Regular(tree.concat([found, self.skip]))
        line, column = embedded.place(self._reader.text, at)
        name = f"the terminal at line {line}, column {column}"
        return Sequence((notation.by_itself(found, name), Regular(self.skip)))

    # -- expressions -------------------------------------------------------------------------------

    def _whole(self) -> Expression:
        found = self._alternatives()
        if self._here.kind not in ("newline", "end") and self._here.text != "}":
            self._wrong(f"The definition cannot continue with {self._here.text!r}")
        return found

    def _deepen(self, at: int) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._wrong(f"Brackets are nested more than {_MAX_DEPTH} deep. Use rules", at)

    def _alternatives(self) -> Expression:
        self._deepen(self._here.at)
        parts, todo = [], self._reader.todo
        while True:
            n_rules = len(todo)
            parts.append(self._both())
            if self._take("->"):
                self._must("rule")
            if self._take("%if") and not self._computed(bool):
                parts.pop()
                for name, _ in todo[n_rules:]:  # only this alternative needs these
                    del self._reader.rules[name]
                del todo[n_rules:]
            back = self._next
            self._skip_newlines()
            if not self._take("|"):
                self._next = back
                break
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _both(self) -> Expression:
        at = self._here.at
        parts = [self._sequence()]
        while self._take("&"):
            if not self._in_terminal:
                self._wrong("& is only for terminals, in upper case", at)
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return Regular(tree.intersect([self._regular(part, at) for part in parts]))

    def _sequence(self) -> Expression:
        parts = []
        ends = ("newline", "end", "|", "->", "%if", "}", ")", "]", "&")
        while self._here.kind not in ends and self._here.text not in ends:
            parts.append(self._item())
            if self._depth > 1:  # inside brackets, line breaks do not matter
                back = self._next
                self._skip_newlines()
                if self._here.text == "|":
                    self._next = back
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _item(self) -> Expression:
        found = self._atom()
        while True:
            at = self._here.at
            if (times := self._take(*_TIMES)) is not None:
                found = Repeated(found, *_TIMES[times.text])
            elif self._take("~"):
                least = self._count()
                found = self._repeated(
                    found, least, self._count() if self._take("..") else least, at
                )
            elif self._take("{"):
                least = 0 if self._here.text == "," else self._count()
                most: int | None = least
                if self._take(","):
                    most = None if self._here.text == "}" else self._count()
                self._must("}")
                found = self._repeated(found, least, most, at)
            else:
                return found

    def _repeated(self, body: Expression, least: int, most: int | None, at: int) -> Expression:
        if least < 0 or (most is not None and most < least):
            self._wrong("The first number is the minimum, from 0, the second the maximum", at)
        return Repeated(body, least, most)

    def _count(self) -> int:
        token = self._must("number")
        if not re.fullmatch(r"[+-]?\d{1,9}", token.text):
            self._wrong(f"{token.text!r} is not a valid number of times", token.at)
        return int(token.text)

    def _atom(self) -> Expression:
        token = self._here
        self._next += 1
        if token.kind == "string":
            if self._take(".."):
                return self._lexeme(self._range(token, self._must("string")), token.at)
            return self._lexeme(self._string(token), token.at)
        if token.kind == "regex":
            return self._lexeme(self._pattern(token), token.at)
        if token.text == "%regex":
            return self._lexeme(self._substring(token), token.at)
        if token.kind == "terminal":
            given = self._reader.given.get(token.text)
            if given is not None and token.text not in self.defined:
                return self._then_skip(Placed(notation.given_terminal(token.text, given)))
            return self._lexeme(self._terminal(token), token.at)
        if token.text == "(" or token.text == "[":
            self._skip_newlines()
            found = self._alternatives()
            self._skip_newlines()
            self._must(")" if token.text == "(" else "]")
            return found if token.text == "(" else Repeated(found, 0, 1)
        if token.text == "~" and self._in_terminal:
            return Regular(tree.complement(self._regular(self._atom(), token.at)))
        if token.kind == "grammar":
            self._wrong("Other grammars are not supported. Write %lark {…} or %json {…}", token.at)
        if self._in_terminal:
            where = "a terminal, or a rule with options other than capture"
            self._wrong(f"{token.text} cannot be in {where}", token.at)
        if token.kind == "rule":
            number = self._computed(int) if self._take("::") else None
            return self.rule(token.text.lstrip("!?"), token.at, number)
        if token.kind == "token":
            named = embedded.special_token(token.text, self._reader.text, token.at)
            return self._then_skip(Placed(named))
        if token.text == "%json":
            return self._then_skip(Placed(token.value))
        if token.text == "%lark":
            return self._then_skip(self._inner(token))
        self._wrong(f"Expected a rule, a terminal or a text, found {token.text!r}", token.at)

    def _computed(self, kind: type) -> Any:
        """Return the result of a function of a rule's number: another number (int), a condition
        (bool), or some of its bits."""
        token = self._must("number", "rule", "[", "_")
        number = self._number
        found: Any = None
        self._deepen(token.at)
        if token.kind == "number":
            found = int(token.text, 0) if re.fullmatch(r"0[xX]\w+|[1-9]\d*|0", token.text) else None
        elif number is None or self._in_terminal:
            self._wrong("Only numbered rules have a number: name::_ : …", token.at)
        elif token.kind == "rule":
            kinds, function = _FUNCTIONS.get(token.text, ((), lambda _: None))
            given: list[Any] = []
            if kinds or self._here.text == "(":
                self._must("(")
                for n, of in enumerate(kinds):
                    if n:
                        self._must(",")
                    given.append(self._computed(of))
                self._must(")")
            found = function(number, *given)
        elif token.text == "_" and kind is int:
            found = number
        else:
            low, high = 0, _BITS
            if token.text == "[":
                low, _, high, _ = self._count(), self._must(":"), self._count(), self._must("]")
            if 0 <= low < high <= _BITS:
                most = (1 << high - low) - 1
                found = _Bits(low, number >> low & most, most)
        self._depth -= 1
        if type(found) is not kind or (isinstance(found, int) and found >> _BITS):
            what = {int: f"a number of {_BITS} bits", bool: "a condition"}
            self._wrong(f"{token.text!r} is not {what.get(kind, 'bits, like [0:3]')}", token.at)
        return found

    def _then_skip(self, one: Expression) -> Expression:
        if self._in_terminal:
            self._wrong("This cannot be part of a terminal. Put it into a rule, in lower case")
        return one if self.skip == ir.EPSILON else Sequence((one, Regular(self.skip)))

    def _inner(self, token: _Token) -> Expression:
        self._must("{")
        inner = _Scope(self._reader, f"{self._prefix}{token.at}:", self._next)
        self._next = inner.statements()
        first = inner.rule("start", token.at)
        return Sequence((Regular(inner.skip), first)) if inner.has_initial_skip else first

    def _string(self, token: _Token) -> ir.Regex:
        written = token.text.removesuffix("i")
        text = json.loads(re.sub(r"(\\[^x])|\\x", lambda m: m[1] or r"\u00", written))
        if not token.text.endswith("i"):
            return ir.literal(text)
        return regex.parse_python(re.escape(text), re.IGNORECASE)

    def _range(self, first: _Token, last: _Token) -> ir.Regex:
        ends = [json.loads(token.text.removesuffix("i")) for token in (first, last)]
        if any(len(end) != 1 for end in ends) or ends[0] > ends[1]:
            self._wrong('A range goes from one character to a later one: "a".."z"', first.at)
        return ir.char_set([(ord(ends[0]), ord(ends[1]))])

    def _pattern(self, token: _Token) -> ir.Regex:
        end = token.text.rindex("/")
        flags = token.text[end + 1 :]
        if "l" in flags:
            self._wrong(f"Unknown flags {flags!r}. Use i, m, s, u or x", token.at)
        number = functools.reduce(lambda a, b: a | getattr(re, b.upper()), flags, 0)
        try:
            return notation.pattern(token.text[1:end].replace(r"\/", "/"), number)
        except PatternError as error:
            self._wrong(str(error).rstrip("."), token.at)

    def _substring(self, token: _Token) -> ir.Regex:
        key, value = next(iter(token.value.items()), ("", None))
        if key == "substring_chars" and isinstance(value, str) and value and len(token.value) == 1:
            quote = ir.Quote(value, "character", 1, None, False, False)
            return tree.alternate([ir.EPSILON, quote])
        chunks: Any = value
        if key == "substring_words" and isinstance(value, str):
            chunks = _WORDS.findall(value)
        is_sound = isinstance(chunks, list) and all(isinstance(chunk, str) for chunk in chunks)
        is_known = key in ("substring_words", "substring_chunks")
        if len(token.value) != 1 or not is_known or not is_sound:
            self._wrong(
                '%regex takes {"substring_words": "…"}, {"substring_chars": "…"} or '
                '{"substring_chunks": ["…", …]}',
                token.at,
            )
        if len(chunks) > notation.MAX_CHUNKS:
            most = notation.MAX_CHUNKS
            self._wrong(f"A text of %regex may have at most {most} words or chunks", token.at)
        return notation.pieces(chunks)
