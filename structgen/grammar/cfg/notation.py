r"""GBNF (llama.cpp) and EBNF (W3C style) → IR; `xgrammar` extends it.

Both write ``name ::= expression``, with literals, character classes, ``| ( ) * + ?`` and ``{m,n}``.
They have no terminals: a text belongs to the language if any derivation by characters fits. Regular
parts become terminals that may end wherever their pattern matches, so that masks are as fast as
with explicit terminals.

    GBNF   ``# comment``; the first rule is ``root``; an expression ends with its line, except
           inside brackets, after ``|`` and before a line that begins with ``|``
    EBNF   ``/* comment */`` and ``# comment``; ``#x20`` is a character, also in classes, so that
           no comment begins with ``#x``;
           ``'...'`` is a literal too; ``[a-z] - [aeiou]`` takes away what is regular; a rule ends
           where the next rule begins; the first rule is ``root``, or whichever comes first

Escapes in literals and classes: ``\n \r \t \xHH \uHHHH \UHHHHHHHH``, in EBNF also ``\a \b \e \f \v
\0``, as in XGrammar. Before any other character than a letter or digit, the backslash is dropped.

A rule is read as an expression. Each part without references to rules is regular and becomes one
terminal, and so do references to regular rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn, TypeAlias

from structgen.errors import GrammarError, PatternError, did_you_mean
from structgen.grammar import ir, reading, regex
from structgen.grammar.regex import tree
from structgen.storage import IdentityMap, cached_method

from . import embedded, foreign
from .embedded import Given

MAX_CHUNKS = 100
"""The most texts of `pieces`."""

MAX_LENGTH = 1_000
"""The longest regular expression, in characters, of a terminal made of several parts."""


@dataclass(frozen=True, slots=True)
class Regular:
    """A literal, or one character of a set."""

    regex: ir.Regex


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a rule; ``is_apart``: not part of a terminal, although regular."""

    name: str
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of the parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """``body`` from ``least`` to ``most`` times (None: unbounded)."""

    body: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A terminal that is not part of another."""

    terminal: ir.AnyTerminal


@dataclass(frozen=True, slots=True)
class Made:
    """The result of ``make`` for parts, which must be regular.

    ``what`` is its name in messages, ``position`` its place in the text. ``max_tokens`` and
    ``temperature`` are those of an `ir.Embedded`; with one of them it is not part of another
    terminal.
    """

    parts: tuple[Expression, ...]
    make: Callable[..., ir.Regex]
    what: str
    position: int
    max_tokens: int | None = None
    temperature: float | None = None

    @property
    def is_apart(self) -> bool:
        """Whether it is not part of another regular expression."""
        return self.max_tokens is not None or self.temperature is not None


_MOST_WAYS = 8
"""The most sequences of symbols to which one is multiplied out."""

_FEW = 4
"""Up to this many repetitions of a body are written out."""

Expression: TypeAlias = "Regular | Reference | Sequence | Alternatives | Repeated | Placed | Made"
_Found: TypeAlias = IdentityMap[Expression, "ir.Regex | None"]


def build(
    rules: Mapping[str, Expression],
    start: str,
    text: str = "",
    terminals: Iterable[Placed] = (),
    ignore: Iterable[Placed] = (),
    captures: Mapping[str, str] | None = None,
) -> ir.ContextFree:
    """Return the grammar of ``rules``; every reference must have its rule.

    Args:
        rules: expressions by name.
        start: the start rule.
        text: the source of the rules, for messages about differences.
        terminals: the first terminals, in this order.
        ignore: terminals that may come before any other.
        captures: the names of captures by rule; such rules are not part of a terminal.

    Raises:
        GrammarError: a difference of parts that are not regular; or brackets are nested too deeply.
    """
    names = captures or {}
    builder = _Builder(rules, text, names)
    for one in terminals:
        builder.place(one.terminal)
    try:
        grammar = builder.build(start, ignore)
    except RecursionError:
        raise GrammarError("Brackets are nested too deeply. Use rules.") from None
    found = [
        ir.Capture(number, names[rule], ())
        for number, rule in enumerate(grammar.nonterminals)
        if rule in names
    ]
    return replace(grammar, captures=tuple(found)) if found else grammar


class _Builder:
    def __init__(
        self, rules: Mapping[str, Expression], text: str, captures: Container[str]
    ) -> None:
        self._rules = rules
        self._captures = captures
        self._text = text
        self._terminals: list[ir.AnyTerminal] = []
        self._nonterminals: dict[str, int] = {}
        self._lowered: dict[tuple[int, tuple[int, ...]], None] = {}
        self._made: dict[Expression, int] = {}
        self._tokens: dict[ir.SpecialToken, int] = {}
        # Other terminals may contain schemas, which are not hashable.
        self._placed: IdentityMap[ir.AnyTerminal, int] = IdentityMap()
        self._todo: list[str] = []
        # The regular expressions of rules and expressions: alone, and for terminals.
        self._known: tuple[dict[str, ir.Regex | None], ...] = ({}, {})
        self._found: tuple[_Found, ...] = (IdentityMap(), IdentityMap())

    def build(self, start: str, ignore: Iterable[Placed]) -> ir.ContextFree:
        """See `build`."""
        self._settle(Reference(start), True)
        self._nonterminal(start)
        for name in self._todo:
            self._define(self._nonterminals[name], self._rules[name])
        ignored = tuple([self.place(one.terminal) for one in ignore])
        return ir.ContextFree(
            tuple(self._terminals),
            tuple(self._nonterminals),
            tuple(self._lowered),
            self._nonterminals[start],
            ignored,
        )

    def _settle(self, expression: Expression, for_terminal: bool) -> None:
        """Compute the regular expressions of rules that ``expression`` refers to, the last ones
        first, because chains of rules may be longer than Python's stack. Recursive rules are not
        regular."""
        known = self._known[for_terminal]
        todo: list[tuple[str, Iterator[str]]] = [("", _references(expression))]
        under_way: set[str] = set()
        while todo:
            name, references = todo[-1]
            inner = next(references, None)
            if inner is None:
                todo.pop()
                under_way.discard(name)
                if name and name not in known:
                    is_apart = for_terminal and name in self._captures
                    regex = None if is_apart else self._regex(self._rules[name], for_terminal)
                    known[name] = regex
            elif inner in under_way:
                known[inner] = None
            elif inner not in known:
                under_way.add(inner)
                todo.append((inner, _references(self._rules[inner])))

    # -- regular parts ----------------------------------------------------------------------------

    def _regex(self, expression: Expression, for_terminal: bool) -> ir.Regex | None:
        """Return ``expression`` as a regular expression, or None if it is not regular.

        With ``for_terminal`` also None if it is too large, embedded, or has a difference of more
        than characters.
        """
        if isinstance(expression, Placed):
            grammar = getattr(expression.terminal, "grammar", None)
            return grammar.regex if isinstance(grammar, ir.Pattern) and not for_terminal else None
        if isinstance(expression, Regular):  # it contains no rule, at any length
            return expression.regex
        if isinstance(expression, Made):
            if expression.is_apart:
                return None
            found = self._of_parts(expression)
            return None if for_terminal and not isinstance(found, ir.CharSet) else found
        if isinstance(expression, Reference):
            is_apart = expression.is_apart and for_terminal
            return None if is_apart else self._known[for_terminal][expression.name]
        known = self._found[for_terminal]
        if expression not in known:
            inner = [self._regex(part, for_terminal) for part in _parts(expression)]
            parts = [part for part in inner if part is not None]
            whole: ir.Regex | None = None
            if len(parts) == len(inner):
                if isinstance(expression, Repeated):
                    whole = tree.repeat(parts[0], expression.least, expression.most)
                else:
                    join = tree.concat if isinstance(expression, Sequence) else tree.alternate
                    whole = join(parts)
                if for_terminal and len(_written(whole)) > MAX_LENGTH:
                    whole = None
            known[expression] = whole
        return known.get(expression)

    # -- what is made of regular parts ------------------------------------------------------------

    def _of_parts(self, expression: Made) -> ir.Regex:
        self._settle(expression, False)
        found = [self._regex(part, False) for part in expression.parts]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            message = (
                f"Only regular parts can be in {expression.what}: no rules that contain "
                "themselves, no embedded JSON. Write the rest out."
            )
            raise embedded.placed(message, self._text, expression.position)
        return expression.make(*parts)

    def _made_symbol(self, expression: Made) -> int:
        """Return the symbol of a `Made` expression that is more than a character."""
        found = self._made.get(expression)
        if found is None:
            found = self._made[expression] = self._nonterminal(f"{len(self._nonterminals)}:")
            line, column = embedded.place(self._text, expression.position)
            name = f"{expression.what} at line {line}, column {column}"
            limits = expression.max_tokens, expression.temperature
            self._define(found, by_itself(self._of_parts(expression), name, *limits))
        return ~found

    # -- rules ------------------------------------------------------------------------------------

    def _define(self, nonterminal: int, expression: Expression) -> None:
        for way in self._ways(expression, _MOST_WAYS):
            self._lowered[nonterminal, way] = None

    def _ways(self, expression: Expression, most: int) -> list[tuple[int, ...]]:
        """Return the sequences of symbols of ``expression``. A part that would make them more than
        ``most`` becomes a nonterminal."""
        pattern = self._regex(expression, True)
        if pattern is not None:
            return [] if pattern == ir.NOTHING else [tuple(self._symbols(expression))]
        if isinstance(expression, Alternatives):
            return [way for part in expression.parts for way in self._ways(part, most)]
        if isinstance(expression, Repeated) and (expression.least, expression.most) == (0, 1):
            return [(), *self._ways(expression.body, most)]
        if not isinstance(expression, Sequence):
            return [tuple(self._symbols(expression))]
        ways: list[list[int]] = [[]]
        for item in self._grouped(expression.parts):
            is_few = len(ways) * _count(item) <= most
            some = self._ways(item, most) if is_few else [tuple(self._symbols(item))]
            if len(some) == 1:
                for way in ways:
                    way += some[0]
            else:
                ways = [[*way, *one] for way in ways for one in some]
        return [tuple(way) for way in ways]

    def _grouped(self, items: tuple[Expression, ...]) -> list[Expression]:
        """Return groups of adjacent parts that are regular together, so that each group is one
        terminal."""
        out: list[Expression] = []
        run: list[Expression] = []
        length = 0
        for item in items:
            pattern = self._regex(item, True)
            more = 0 if pattern is None else len(_written(pattern))
            if pattern is not None and length + more <= MAX_LENGTH:
                run.append(item)
                length += more
                continue
            if run:
                out.append(run[0] if len(run) == 1 else Sequence(tuple(run)))
            run, length = [], 0
            if pattern is not None:
                run, length = [item], more
            else:
                out.append(item)
        if run:
            out.append(run[0] if len(run) == 1 else Sequence(tuple(run)))
        return out

    def _symbols(self, expression: Expression) -> list[int]:
        pattern = self._regex(expression, True)
        if pattern == ir.EPSILON:
            return []
        if pattern == ir.NOTHING:
            return [self._rule()]
        if pattern is not None:
            if not tree.is_nullable(pattern):
                return [self._terminal(pattern)]
            # A terminal is never empty; rules handle emptiness.
            optional = self._helper(expression)
            if optional is not None:
                self._lowered[optional, ()] = None
                self._lowered[optional, (self._terminal(pattern),)] = None
                return [~optional]
            return [~self._made[expression]]
        if isinstance(expression, Placed):
            return [self.place(expression.terminal)]
        if isinstance(expression, Made):
            return [self._made_symbol(expression)]
        if isinstance(expression, Reference):
            return [~self._nonterminal(expression.name)]
        if isinstance(expression, Sequence):
            return [
                symbol for part in self._grouped(expression.parts) for symbol in self._symbols(part)
            ]
        made = self._helper(expression)
        if made is None:
            return [~self._made[expression]]
        if isinstance(expression, Alternatives):
            self._define(made, expression)
        elif isinstance(expression, Repeated):
            self._repeat(made, expression)
        return [~made]

    def _repeat(self, made: int, expression: Repeated) -> None:
        """Add left-recursive rules, which cost the least."""
        body = self._symbols(expression.body)
        least, most = expression.least, expression.most
        count = least if most is None else most
        reading.spend(
            count * (len(body) + 1),
            f"rules are repeated {count:,} times, each of which is written out; repeat fewer times",
        )
        if most is None:
            self._lowered[made, tuple(body * least)] = None
            self._lowered[made, (~made, *body)] = None
            return
        known: dict[tuple[int, bool], tuple[int, ...]] = {}
        symbols = (*self._row(body, least, known), *self._up_to(body, most - least, known))
        self._lowered[made, symbols] = None

    def _row(
        self, body: list[int], count: int, known: dict[tuple[int, bool], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Return ``count`` bodies: a few as they are, many as two halves."""
        if count <= _FEW:
            return tuple(body * count)
        if (count, True) not in known:
            half = self._row(body, count // 2, known)
            rest = self._row(body, count - count // 2, known)
            known[count, True] = (self._rule((*half, *rest)),)
        return known[count, True]

    def _up_to(
        self, body: list[int], most: int, known: dict[tuple[int, bool], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Return 0 to ``most`` bodies: fewer than half, or half plus up to the rest."""
        if not most:
            return ()
        if (most, False) not in known:
            half = (most + 1) // 2
            fewer = self._up_to(body, half - 1, known)
            more = (*self._row(body, half, known), *self._up_to(body, most - half, known))
            known[most, False] = (self._rule(fewer, more),)
        return known[most, False]

    def _rule(self, *ways: tuple[int, ...]) -> int:
        """Return the symbol of a new nonterminal that derives these."""
        made = self._nonterminal(f"{len(self._nonterminals)}:")
        for way in ways:
            self._lowered[made, way] = None
        return ~made

    def _helper(self, expression: Expression) -> int | None:
        """Return a new nonterminal for ``expression``, or None if it has one."""
        if expression in self._made:
            return None
        made = self._made[expression] = self._nonterminal(f"{len(self._nonterminals)}:")
        return made

    def _nonterminal(self, name: str) -> int:
        found = self._nonterminals.get(name)
        if found is None:
            found = self._nonterminals[name] = len(self._nonterminals)
            if name in self._rules:
                self._todo.append(name)
        return found

    @cached_method
    def _terminal(self, pattern: ir.Regex) -> int:
        name = _written(pattern)
        name = name if len(name) <= 40 else name[:39] + "…"
        return self.place(ir.Terminal(name, pattern))

    def place(self, terminal: ir.AnyTerminal) -> int:
        """Return the number of a terminal; add it if it is new."""
        new = len(self._terminals)
        if isinstance(terminal, ir.SpecialToken):
            number = self._tokens.setdefault(terminal, new)
        else:
            number = self._placed.setdefault(terminal, new)
        if number == new:
            self._terminals.append(terminal)
        return number


def _count(expression: Expression) -> int:
    """Return the number of ways of an expression."""
    if isinstance(expression, Alternatives):
        return sum(map(_count, expression.parts))
    if isinstance(expression, Sequence):
        return math.prod(map(_count, expression.parts))
    if isinstance(expression, Repeated) and (expression.least, expression.most) == (0, 1):
        return 1 + _count(expression.body)
    return 1


def _parts(expression: Expression) -> tuple[Expression, ...]:
    """Return the parts of ``expression``."""
    if isinstance(expression, Repeated):
        return (expression.body,)
    return expression.parts if isinstance(expression, (Sequence, Alternatives, Made)) else ()


def _references(expression: Expression) -> Iterator[str]:
    """Yield the rules that ``expression`` refers to."""
    todo = [expression]
    while todo:
        part = todo.pop()
        if isinstance(part, Reference):
            yield part.name
        todo += reversed(_parts(part))


_OF_OTHERS = re.compile(
    r"\\[xu]\{([0-9A-Fa-f]{1,6})\}|\\c([A-Za-z])|(\(\?<)(?=[A-Za-z_]\w*>)|\\.", re.DOTALL
)


def pattern(text: str, flags: int) -> ir.Regex:
    """Return a Python pattern, also with Rust's and ECMAScript's syntax: ``\\u{1F600}``, ``\\cA``,
    ``(?<name>…)``."""

    def as_in_python(found: re.Match[str]) -> str:
        if found[1]:
            return f"\\U{found[1]:0>8}"
        if found[2]:
            return f"\\x{ord(found[2]) & 31:02x}"
        return "(?P<" if found[3] else found[0]

    return regex.parse_python(_OF_OTHERS.sub(as_in_python, text), flags)


def is_plain(regex: ir.Regex) -> bool:
    """Return whether a regular expression has only features that patterns of terminals may have."""
    plain = ir.CharSet, ir.Concat, ir.Alternate, ir.Repeat
    return all(isinstance(node, plain) for node in ir.nodes(regex))


def by_itself(
    regex: ir.Regex, name: str, max_tokens: int | None = None, temperature: float | None = None
) -> Expression:
    """Return a separate terminal for a regular expression that is not plain, or has limits; with
    its name for messages."""
    more = ir.Pattern(tree.intersect([regex, ir.Repeat(ir.ANY_CHAR, 1, None)]), name)
    one = Placed(ir.Embedded(name, more, max_tokens, temperature))
    return Alternatives((Regular(ir.EPSILON), one)) if is_nullable(regex) else one


def pieces(chunks: list[str]) -> ir.Regex:
    """Return any number of consecutive chunks, or none."""
    rest: ir.Regex = ir.EPSILON
    tails: list[ir.Regex] = [rest]
    for chunk in reversed(chunks):
        rest = tree.alternate([ir.EPSILON, tree.concat([ir.literal(chunk), rest])])
        tails.append(rest)
    return tree.alternate(tails)


def shortest(regex: ir.Regex) -> ir.Regex:
    """Return the texts without a shorter matching beginning."""
    longer = tree.concat([regex, ir.Repeat(ir.ANY_CHAR, 1, None)])
    return tree.intersect([regex, tree.complement(longer)])


def less(whole: ir.Regex, part: ir.Regex) -> ir.Regex:
    """Return the texts of one that are not texts of another."""
    if isinstance(whole, ir.CharSet) and isinstance(part, ir.CharSet):
        return ir.less(whole, part)
    return ir.Intersect((whole, ir.Complement(part)))


def is_nullable(regex: ir.Regex) -> bool:
    """Return whether ``regex`` matches the empty text."""
    if isinstance(regex, ir.Complement):
        return not is_nullable(regex.body)
    if isinstance(regex, ir.Checksum):
        return not regex.steps
    if isinstance(regex, (ir.Lookahead, ir.Lookbehind)):
        return is_nullable(regex.body) != regex.negate
    is_anchor = isinstance(regex, (ir.StartAnchor, ir.EndAnchor))
    return is_anchor or tree.is_empty(regex, is_nullable)


def _written(regex: ir.Regex) -> str:
    """Return a readable regular expression without assertions."""
    if isinstance(regex, ir.CharSet):
        ends = [(repr(chr(low))[1:-1], repr(chr(high))[1:-1]) for low, high in regex.ranges]
        spans = [low if low == high else f"{low}-{high}" for low, high in ends]
        return spans[0] if len(spans) == 1 and "-" not in spans[0] else f"[{''.join(spans)}]"
    if isinstance(regex, ir.Repeat):
        return f"({_written(regex.body)}){{{regex.min},{'' if regex.max is None else regex.max}}}"
    inner = map(_written, ir.parts_of(regex))
    return f"({'|'.join(inner)})" if isinstance(regex, ir.Alternate) else "".join(inner)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_MORE_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "0": "\0"}
_CONSTRAINT = re.compile(r"\[\s*(?:wfc|vc|WFC|VC|ws)\s*:")
_CLASSES = {"d": "[0-9]", "w": "[A-Za-z0-9_]", "s": r"[ \t\r\n]"}
_SPACE = {
    "gbnf": re.compile(r"(?:[ \t\r\n]|#[^\n]*)*"),
    "xgrammar": re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*"),
    "ebnf": re.compile(r"(?:[ \t\r\n]|#(?!x)[^\n]*|/\*(?:(?!\*/).)*\*/)*", re.DOTALL),
}
"""The space between two items."""

_NO_CODE = (
    "#x must be followed by the code of a character in hexadecimal digits, as in #x20. If this is "
    "a comment, put a space after the #."
)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|[0-9]+[A-Za-z_-][A-Za-z0-9_-]*")
_OPTIONS = re.compile(r"\[[^\]\n]*\]")
_HEAD = re.compile(rf"{_OPTIONS.pattern}\s*::=")
_IN_XGRAMMAR = "Pass dialect='xgrammar'."
_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d+)?\s*)?\}")
_MAX_DEPTH = 150


def parse(
    reader: Reader, start: str | None, given: Mapping[str, Given] | None = None
) -> ir.ContextFree:
    """Return the grammar of a text.

    Args:
        reader: reads the text.
        start: the start rule; None for ``root``, or in EBNF the first rule.
        given: rules that the text leaves undefined.

    Raises:
        GrammarError: the grammar is malformed.
    """
    rules = reader.rules()
    for name, terminal in (given or {}).items():
        if name in rules:
            raise GrammarError(
                f"Rule {name!r} is both in terminals= and defined. Remove one of them."
            )
        rules[name] = Placed(given_terminal(name, terminal))
    if not rules:
        raise GrammarError("The grammar has no rules. Write a rule: name ::= expression")
    if start is None:
        start = "root" if reader.dialect != "ebnf" or "root" in rules else next(iter(rules))
    if start not in rules:
        raise GrammarError(
            f"The grammar has no rule {start!r} to start with. Rules: {', '.join(rules)}. Choose "
            f"one of them: start={next(iter(rules))!r}."
        )
    for name, position in reader.references:
        if name not in rules:
            reader.wrong(
                f"Rule {name!r} is used but not defined.{did_you_mean(name, rules)} "
                f"Define it: {name} ::= ...",
                position,
            )
    return build(rules, start, reader.text, captures=reader.captures)


def definitions(reader: Reader) -> dict[str, tuple[int, set[str]]]:
    """Map each rule of a valid text to its position, and the names in it."""
    rules = reader.rules()
    return {name: (reader.begins[name], set(_references(rules[name]))) for name in rules}


def given_terminal(name: str, terminal: Given) -> ir.Embedded | ir.SpecialToken:
    """Return a terminal of ``terminals=``."""
    if not isinstance(terminal, str):
        return terminal
    try:
        pattern = regex.parse_python(terminal)
    except PatternError as error:
        raise GrammarError(f"Terminal {name}: {error}") from error
    return ir.Embedded(f"terminal {name}", ir.Pattern(pattern, terminal))


class Reader:
    """Reads a text from a position on.

    Args:
        text: the text.
        dialect: ``"gbnf"``, ``"ebnf"`` or, of `xgrammar`'s, ``"xgrammar"``.
    """

    def __init__(self, text: str, dialect: str) -> None:
        self.text = text
        self.dialect = dialect
        self.name = _NAME  # of a rule
        self.at = 0
        self.depth = 0
        self.begins: dict[str, int] = {}  # of rules
        self.captures: dict[str, str] = {}  # of rules, their names
        self.references: list[tuple[str, int]] = []

    def wrong(self, message: str, position: int | None = None) -> NoReturn:
        """Raise an error at a position, the current one by default."""
        raise embedded.placed(message, self.text, self.at if position is None else position)

    def skip(self) -> None:
        """Skip space and comments."""
        match = _SPACE[self.dialect].match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, token: str) -> bool:
        """Return whether ``token`` comes next."""
        return self.text.startswith(token, self.at)

    def quoted(self, quote: str) -> str:
        """Return a text in quotes."""
        opening = self.at
        self.at += 1
        out: list[str] = []
        while not self.peek(quote):
            if self.at >= len(self.text) or self.peek("\n"):
                self.wrong(f"This literal is not closed. Add {quote}.", opening)
            out.append(self.character())
        self.at += 1
        return "".join(out)

    def char_class(self) -> Expression:
        """Return a class, ``[a-z]`` or ``[^a-z]``."""
        opening = self.at
        if self.dialect == "ebnf" and _CONSTRAINT.match(self.text, self.at):
            self.wrong("W3C constraints are not supported. Write it as a comment, /* … */.")
        self.at += 1
        negate = self.peek("^")
        self.at += negate
        ranges: list[tuple[int, int]] = []
        while not self.peek("]"):
            if self.at >= len(self.text) or self.peek("\n"):
                self.wrong("This class is not closed. Add ].", opening)
            low = ord(self.character())
            high = low
            is_range = self.peek("-") and not self.peek("-]") and self.at + 1 < len(self.text)
            if is_range:
                self.at += 1
                high = ord(self.character())
                if high < low:
                    self.wrong(
                        f"The range {chr(low)}-{chr(high)} is reversed. Swap the two.", opening
                    )
            ranges.append((low, high))
        self.at += 1
        chars = ir.char_set(ranges)
        return Regular(ir.negate(chars) if negate else chars)

    def character(self) -> str:
        """Return one character of a literal or class, escapes resolved."""
        char = self.text[self.at]
        if self.dialect == "ebnf" and re.match(r"#x[0-9A-Fa-f]", self.text[self.at : self.at + 3]):
            return chr(self.hexadecimal(self.at + 2, None))
        if char != "\\":
            self.at += 1
            return char
        kind = self.text[self.at + 1 : self.at + 2]
        if kind in ("x", "u", "U") and kind:
            digits = {"x": None if self.dialect == "xgrammar" else 2, "u": 4, "U": 8}[kind]
            begin = self.at
            char = chr(self.hexadecimal(self.at + 2, digits))
            if (
                kind == "x"
                and self.dialect == "ebnf"
                and re.match("[0-9A-Fa-f]", self.text[self.at])
            ):
                self.wrong(
                    "XGrammar reads all the digits after \\x but llama.cpp only two, so this is "
                    "ambiguous. Write \\uHHHH, or pass dialect='xgrammar'.",
                    begin,
                )
            return char
        if not kind or kind == "\n":
            self.wrong("A backslash ends the line. Write \\\\ for a backslash.")
        escapes = _ESCAPES if self.dialect == "gbnf" else _ESCAPES | _MORE_ESCAPES
        if kind not in escapes and kind.isalnum():
            meant = f"{_CLASSES[kind]} for the class" if kind in _CLASSES else f"{kind} for itself"
            if kind in _MORE_ESCAPES:
                meant = f"\\x{ord(_MORE_ESCAPES[kind]):02x} for the character"
            self.wrong(f"Unknown escape \\{kind}. Write {meant}, or \\\\ for a backslash.")
        self.at += 2
        return escapes.get(kind, kind)

    def hexadecimal(self, at: int, digits: int | None) -> int:
        """Return the code point in that many digits (None: as many as there are) at ``at``."""
        match = re.compile(r"[0-9A-Fa-f]+").match(self.text, at)
        found = "" if match is None else match[0][:digits]
        code = int(found or "0", 16)
        if not found or (digits is not None and len(found) < digits):
            self.wrong(f"Expected {digits or 'some'} hexadecimal digits.")
        if code > ir.MAX_CODE_POINT:
            self.wrong(f"There is no character {found}; the last one is 10FFFF.")
        self.at = at + len(found)
        return code

    def rules(self) -> dict[str, Expression]:
        """Return the rules."""
        rules: dict[str, Expression] = {}
        self.skip()
        while self.at < len(self.text):
            begin = self.at
            name = self.head(bool(rules))
            if self.begins.setdefault(name, begin) != begin:
                self.wrong(
                    f"Rule {name!r} is defined twice. Write the alternatives in one rule, with | "
                    "between them.",
                    begin,
                )
            self.skip()
            rules[name] = self.body(begin)
            self.skip()
            if self.peek(")"):
                self.wrong("This bracket closes nothing. Remove it, or add (.")
            if self.peek(";"):
                self.at += 1
                self.skip()
        return rules

    def body(self, begin: int) -> Expression:
        """Return the body of the rule whose name is at ``begin``."""
        return self.alternatives()

    def options(self, name: str) -> None:
        """Read the text between the name of a rule and ``::=``."""
        found = _OPTIONS.match(self.text, self.at)
        if found is not None:
            self.wrong(f"Options of a rule, {found[0]}, are XGrammar syntax. {_IN_XGRAMMAR}")

    def head(self, may_continue: bool) -> str:
        """Skip a rule's name and ``::=``; return the name.

        Args:
            may_continue: whether other text may belong to the previous rule.
        """
        match = self.name.match(self.text, self.at)
        if may_continue and self.dialect == "gbnf" and not self._is_rule():
            self.wrong(
                "In GBNF, a rule ends with its line, except inside brackets, after | and before a "
                "line that begins with |, but this does not begin a rule: name ::= …. Put it on "
                "the line before, or read the text as EBNF (dialect), which ignores lines."
            )
        if match is None:
            is_code = self.dialect == "ebnf" and self.peek("#x")
            begin = "A rule must begin with its name, without angle brackets, followed by ::="
            self.wrong(_NO_CODE if is_code else begin)
        self.at = match.end()
        self.options(match[0])
        self.skip()
        if not self.peek("::="):
            name = match[0]
            self.wrong(f"The name of rule {name!r} must be followed by ::=, as in {name} ::= …")
        self.at += 3
        return match[0]

    def deepen(self) -> None:
        """Count nested brackets."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.wrong(f"Brackets are nested more than {_MAX_DEPTH} deep. Use rules.")

    def alternatives(self) -> Expression:
        """Read alternatives, separated by ``|``."""
        self.deepen()
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
        """Read a sequence."""
        parts: list[Expression] = []
        while True:
            back = self.at
            self.skip()
            # At the top level of a GBNF rule, a line break ends it.
            ended = self.dialect == "gbnf" and self.depth == 1 and "\n" in self.text[back : self.at]
            if ended and parts:
                self.at = back
                break
            if self.is_end():
                self.at = back
                break
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def is_end(self) -> bool:
        """Return whether a sequence ends here."""
        return self.at >= len(self.text) or self.text[self.at] in "|);" or self._is_rule()

    def _is_rule(self) -> bool:
        match = self.name.match(self.text, self.at)
        if match is None:
            return False
        if self.text.startswith("[", match.end()):
            return _HEAD.match(self.text, match.end()) is not None
        space = _SPACE[self.dialect].match(self.text, match.end())
        assert space is not None
        return self.text.startswith("::=", space.end())

    def item(self) -> Expression:
        """Return a repeatable item, in EBNF perhaps with a difference."""
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
            if self.is_end():
                self.wrong(
                    "- must be followed by what is excluded, as in [a-z] - [aeiou].", position
                )
            found = Made((found, self.repeated()), less, "the difference", position)
        return found

    def repeated(self) -> Expression:
        """Return a repeatable item."""
        found = self.primary()
        while (times := self.times()) is not None:
            found = Repeated(found, *times)
        return found

    def times(self) -> tuple[int, int | None] | None:
        """Return the counts of the preceding item, at least and at most; None if there are none."""
        char = self.text[self.at : self.at + 1]
        count = _COUNT.match(self.text, self.at)
        if char and char in "*+?":
            self.at += 1
            return int(char == "+"), 1 if char == "?" else None
        if count is None:
            return None
        least = int(count[1])
        most = least if not count[2] else int(count[3]) if count[3] else None
        if most is not None and most < least:
            self.wrong(
                f"A repetition of at least {least} and at most {most} times. Write "
                f"{{{most},{least}}}."
            )
        self.at = count.end()
        return least, most

    def primary(self) -> Expression:
        """Read a literal, a class, a rule, a token, or a group in brackets."""
        char = self.text[self.at : self.at + 1]
        if char == "(":
            opening = self.at
            self.at += 1
            self.skip()
            if self.peek("="):
                self.wrong(f"A lookahead, (= …), is XGrammar syntax. {_IN_XGRAMMAR}", opening)
            found = self.alternatives()
            self.skip()
            if not self.peek(")"):
                self.wrong("This bracket is not closed. Add ).", opening)
            self.at += 1
            return found
        if char == '"' or (char == "'" and self.dialect == "ebnf"):
            return Regular(tree.concat(map(ir.character, map(ord, self.quoted(char)))))
        if char == "[":
            return self.char_class()
        is_other = self.dialect == "gbnf" and self.peek("!<")
        if char == "<" or is_other:
            token = embedded.TOKEN.match(self.text, self.at + is_other)
            if token is None:
                self.wrong("Write a special token as <name>, without spaces.")
            self.at = token.end()
            named = embedded.special_token(token[0], self.text, token.start())
            return Placed(replace(named, text=f"!{named.text}") if is_other else named)
        if self.peek("%json"):
            terminal, self.at = embedded.json_schema(self.text, self.at)
            return Placed(terminal)
        if char == "." and self.dialect == "gbnf":
            self.at += 1
            return Regular(ir.ANY_CHAR)
        if char == "#" and self.dialect == "ebnf":
            if not re.match("#x[0-9A-Fa-f]", self.text[self.at : self.at + 3]):
                self.wrong(_NO_CODE)
            code = self.hexadecimal(self.at + 2, None)
            return Regular(ir.char_set([(code, code)]))
        match = self.name.match(self.text, self.at)
        if match is None:
            self.wrong(
                f"Expected a literal, a class in [ ], a rule's name or a bracket, found {char!r}."
                f"{foreign.item(self.text, self.at)}"
            )
        if self.dialect != "xgrammar" and foreign.MACRO.match(self.text, self.at):
            self.wrong(f"{match[0]}(…) is an XGrammar macro. {_IN_XGRAMMAR}")
        self.references.append((match[0], self.at))
        self.at = match.end()
        return Reference(match[0])
