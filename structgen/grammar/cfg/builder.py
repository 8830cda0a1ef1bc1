"""Rules written as expressions → the IR's rules over terminals.

Owns the expression nodes of notations without terminals of their own (`notation`). Whatever
part of an expression refers to no rule is regular and becomes one terminal, which may end wherever
its pattern matches; so do references to rules that are regular themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from structgen.grammar import ir, reading
from structgen.storage import IdentityMap

from . import embedded

MAX_PATTERN = 2_000
"""Longest pattern of one terminal made of several parts, in characters."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly ``text``."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: ir.CharSet


@dataclass(frozen=True, slots=True)
class Reference:
    """Whatever a rule derives."""

    name: str


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
    """A terminal that is no pattern."""

    terminal: ir.Embedded | ir.SpecialToken


@dataclass(frozen=True, slots=True)
class Difference:
    """What ``whole`` can be and ``part`` cannot; both have to be regular.

    ``position`` is where in the text, ``name`` what messages call it.
    """

    whole: Expression
    part: Expression
    position: int
    name: str


Expression: TypeAlias = (
    "Literal | Chars | Reference | Sequence | Alternatives | Repeated | Placed | Difference"
)


_T = TypeVar("_T")

_NOT_REGULAR = (
    "Only what is regular can be taken away from what is regular: no rules that contain "
    "themselves, no embedded JSON. Write the rest out."
)


def build(
    rules: Mapping[str, Expression],
    start: str,
    wrong: Callable[[str, int], None],
) -> ir.ContextFree:
    """The grammar of ``rules``; every reference must have its rule.

    Args:
        rules: expressions by name.
        start: the rule to begin with.
        wrong: is told what is wrong, and at which position of the text; what it raises goes on.
    """
    return _Builder(rules, wrong).build(start)


class _Builder:
    def __init__(self, rules: Mapping[str, Expression], wrong: Callable[[str, int], None]) -> None:
        self._rules = rules
        self._wrong = wrong
        self._told: set[int] = set()
        self._terminals: list[ir.AnyTerminal] = []
        self._numbers: dict[str, int] = {}  # of terminals, by pattern
        self._nonterminals: dict[str, int] = {}
        self._lowered: dict[tuple[int, tuple[int, ...]], None] = {}
        self._made: dict[Expression, int] = {}
        self._tokens: dict[ir.SpecialToken, int] = {}
        # Other terminals may hold schemas, which have no hash.
        self._placed: IdentityMap[ir.AnyTerminal, int] = IdentityMap()
        self._todo: list[str] = []
        # The pattern of each rule that is regular, short enough, and not recursive.
        self._patterns: dict[str, str | None] = {}
        self._regexes: dict[str, ir.Regex | None] = {}
        self._nullable: dict[str, bool] = {}

    def build(self, start: str) -> ir.ContextFree:
        self._settle(Reference(start), self._patterns, self._pattern, None)
        self._nonterminal(start)
        for name in self._todo:
            self._define(self._nonterminals[name], self._rules[name])
        return ir.ContextFree(
            tuple(self._terminals),
            tuple(self._nonterminals),
            tuple(self._lowered),
            self._nonterminals[start],
        )

    def _settle(
        self,
        expression: Expression,
        known: dict[str, _T],
        work_out: Callable[[Expression], _T],
        in_itself: _T,
    ) -> None:
        """Put into ``known`` what rules that ``expression`` leads to come to, the last ones first:
        chains of rules are longer than Python's stack. ``in_itself`` for rules in
        themselves, which are not regular."""
        todo: list[tuple[str, Iterator[str]]] = [("", _references(expression))]
        under_way: set[str] = set()
        while todo:
            name, references = todo[-1]
            inner = next(references, None)
            if inner is None:
                todo.pop()
                under_way.discard(name)
                if name and name not in known:
                    known[name] = work_out(self._rules[name])
            elif inner in under_way:
                known[inner] = in_itself
            elif inner not in known:
                under_way.add(inner)
                todo.append((inner, _references(self._rules[inner])))

    # -- regular parts ----------------------------------------------------------------------------

    def _pattern(self, expression: Expression) -> str | None:
        """A Python pattern of ``expression``, or None if it is not regular, or gets too long."""
        if isinstance(expression, Placed):
            return None
        if isinstance(expression, Difference):
            chars = _as_chars(self._difference(expression))
            return None if chars is None else _class(chars)
        # These two have nothing in them that could be a rule, however long they are.
        if isinstance(expression, Literal):
            return re.escape(expression.text)
        if isinstance(expression, Chars):
            return _class(expression.chars)
        if isinstance(expression, Reference):
            out = self._patterns[expression.name]
        elif isinstance(expression, Repeated):
            body = self._pattern(expression.body)
            most = "" if expression.most is None else expression.most
            out = None if body is None else f"(?:{body}){{{expression.least},{most}}}"
        else:
            parts = [self._pattern(part) for part in expression.parts]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                out = None
            elif isinstance(expression, Sequence):
                out = "".join(map(_one_of_several, known))
            else:
                out = "|".join(known)
                out = f"(?:{out})"
        return out if out is not None and len(out) <= MAX_PATTERN else None

    def _is_nullable(self, expression: Expression) -> bool:
        """Whether a regular expression can be empty."""
        self._settle(expression, self._nullable, self._may_be_empty, False)
        return self._may_be_empty(expression)

    def _may_be_empty(self, expression: Expression) -> bool:
        if isinstance(expression, Literal):
            return not expression.text
        if isinstance(expression, (Chars, Placed, Difference)):
            return False
        if isinstance(expression, Reference):
            return self._nullable[expression.name]
        if isinstance(expression, Repeated):
            return expression.least == 0 or self._may_be_empty(expression.body)
        if isinstance(expression, Sequence):
            return all(map(self._may_be_empty, expression.parts))
        return any(map(self._may_be_empty, expression.parts))

    # -- differences ------------------------------------------------------------------------------

    def _difference(self, expression: Difference) -> ir.Regex:
        self._settle(expression, self._regexes, self._regex, None)
        whole, part = self._regex(expression.whole), self._regex(expression.part)
        if whole is None or part is None:
            if expression.position not in self._told:
                self._told.add(expression.position)
                self._wrong(_NOT_REGULAR, expression.position)
            return ir.literal(embedded.MADE_UP)
        chars = [_as_chars(whole), _as_chars(part)]
        if chars[0] is not None and chars[1] is not None:
            taken = [*ir.negate(chars[0]).ranges, *chars[1].ranges]
            return ir.negate(ir.char_set(taken))
        return ir.Intersect((whole, ir.Complement(part)))

    def _regex(self, expression: Expression) -> ir.Regex | None:
        """``expression`` as a regular expression, or None if it is none."""
        if isinstance(expression, Placed):
            inner = expression.terminal
            is_pattern = isinstance(inner, ir.Embedded) and isinstance(inner.grammar, ir.Pattern)
            return inner.grammar.regex if is_pattern else None  # type: ignore[union-attr]
        if isinstance(expression, Literal):
            return ir.literal(expression.text)
        if isinstance(expression, Chars):
            return expression.chars
        if isinstance(expression, Difference):
            return self._difference(expression)
        if isinstance(expression, Reference):
            return self._regexes[expression.name]
        if isinstance(expression, Repeated):
            body = self._regex(expression.body)
            return None if body is None else ir.Repeat(body, expression.least, expression.most)
        found = [self._regex(part) for part in expression.parts]
        parts = tuple(part for part in found if part is not None)
        if len(parts) < len(found):
            return None
        return ir.Concat(parts) if isinstance(expression, Sequence) else ir.Alternate(parts)

    def _taken_away(self, expression: Difference) -> list[int]:
        """The symbols of a difference that is more than a character."""
        regex = self._difference(expression)
        found = self._made.get(expression)
        if found is None:
            found = self._made[expression] = self._nonterminal(f"{len(self._nonterminals)}:")
            more = ir.Intersect((regex, ir.Repeat(ir.ANY_CHAR, 1, None)))
            if _is_nullable(regex):
                self._lowered[found, ()] = None
            terminal = ir.Embedded(expression.name, ir.Pattern(more, expression.name))
            self._lowered[found, (self._place(terminal),)] = None
        return [~found]

    # -- rules ------------------------------------------------------------------------------------

    def _define(self, nonterminal: int, expression: Expression) -> None:
        parts = expression.parts if isinstance(expression, Alternatives) else (expression,)
        for part in parts:
            items = part.parts if isinstance(part, Sequence) else (part,)
            symbols: list[int] = []
            for item in self._grouped(items):
                symbols += self._symbols(item)
            self._lowered[nonterminal, tuple(symbols)] = None

    def _grouped(self, items: tuple[Expression, ...]) -> list[Expression]:
        """Neighbours that are regular together, so that each run is one terminal."""
        out: list[Expression] = []
        run: list[Expression] = []
        length = 0
        for item in items:
            pattern = self._pattern(item)
            more = 0 if pattern is None else len(_one_of_several(pattern))
            if pattern is not None and length + more <= MAX_PATTERN:
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
        pattern = self._pattern(expression)
        if pattern == "":
            return []
        if pattern is not None:
            if not self._is_nullable(expression):
                return [self._terminal(pattern)]
            # A terminal is never empty; being empty is up to a rule.
            optional = self._helper(expression)
            if optional is not None:
                self._lowered[optional, ()] = None
                self._lowered[optional, (self._terminal(pattern),)] = None
                return [~optional]
            return [~self._made[expression]]
        if isinstance(expression, Placed):
            return [self._place(expression.terminal)]
        if isinstance(expression, Difference):
            return self._taken_away(expression)
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
        """Left-recursive, which costs the least."""
        body = self._symbols(expression.body)
        least, most = expression.least, expression.most
        count = least if most is None else most
        reading.spend(
            count * (len(body) + 1),
            f"rules are repeated {count:,} times, which is written out; repeat fewer times",
        )
        if most is None:
            self._lowered[made, tuple(body * least)] = None
            self._lowered[made, (~made, *body)] = None
            return
        # x{m,n}: m times, and then each once more than the last, as nested options.
        inner: tuple[int, ...] = ()
        for i in range(most - least):
            option = self._nonterminal(f"{len(self._nonterminals)}:{i}")
            self._lowered[option, ()] = None
            self._lowered[option, (*body, *inner)] = None
            inner = (~option,)
        self._lowered[made, (*(body * least), *inner)] = None

    def _helper(self, expression: Expression) -> int | None:
        """A new nonterminal for ``expression``, or None if it has one."""
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

    def _terminal(self, pattern: str) -> int:
        found = self._numbers.get(pattern)
        if found is None:
            found = self._numbers[pattern] = self._place(
                ir.Terminal(_shown(pattern), pattern, splits=True)
            )
        return found

    def _place(self, terminal: ir.AnyTerminal) -> int:
        new = len(self._terminals)
        if isinstance(terminal, ir.SpecialToken):
            number = self._tokens.setdefault(terminal, new)
        else:
            number = self._placed.setdefault(terminal, new)
        if number == new:
            self._terminals.append(terminal)
        return number


def _references(expression: Expression) -> Iterator[str]:
    """The rules that ``expression`` refers to."""
    todo = [expression]
    while todo:
        part = todo.pop()
        if isinstance(part, Reference):
            yield part.name
        elif isinstance(part, (Sequence, Alternatives)):
            todo.extend(reversed(part.parts))
        elif isinstance(part, Repeated):
            todo.append(part.body)
        elif isinstance(part, Difference):
            todo += (part.part, part.whole)


def _one_of_several(pattern: str) -> str:
    """``pattern`` as it stands between others."""
    return f"(?:{pattern})" if "|" in pattern else pattern


def _is_nullable(regex: ir.Regex) -> bool:
    """Whether ``regex`` matches the empty text."""
    if isinstance(regex, ir.CharSet):
        return False
    if isinstance(regex, (ir.Concat, ir.Intersect)):
        return all(map(_is_nullable, regex.parts))
    if isinstance(regex, ir.Alternate):
        return any(map(_is_nullable, regex.parts))
    if isinstance(regex, ir.Repeat):
        return regex.min == 0 or _is_nullable(regex.body)
    if isinstance(regex, ir.Complement):
        return not _is_nullable(regex.body)
    if isinstance(regex, ir.Checksum):
        return not regex.steps
    if isinstance(regex, (ir.Lookahead, ir.Lookbehind)):
        return _is_nullable(regex.body) != regex.negate
    return True  # an anchor


def _as_chars(regex: ir.Regex) -> ir.CharSet | None:
    """One character of a set, if ``regex`` is just that."""
    if isinstance(regex, ir.CharSet):
        return regex
    if isinstance(regex, ir.Concat) and len(regex.parts) == 1:
        return _as_chars(regex.parts[0])
    if isinstance(regex, ir.Alternate):
        sets = [_as_chars(part) for part in regex.parts]
        if None not in sets:
            return ir.char_set([r for chars in sets if chars for r in chars.ranges])
    return None


def _class(chars: ir.CharSet) -> str:
    if chars == ir.ANY_CHAR:
        return "(?s:.)"
    if not chars.ranges:
        return "(?!)"
    spans = [
        f"\\U{low:08x}" + (f"-\\U{high:08x}" if high > low else "") for low, high in chars.ranges
    ]
    return f"[{''.join(spans)}]"


def _shown(pattern: str) -> str:
    return pattern if len(pattern) <= 40 else pattern[:39] + "…"
