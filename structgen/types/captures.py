"""Find the parts of a finished text that rules of a grammar capture: `CapturedText`.

The text is derived again from the grammar's rules, by Earley's algorithm over bytes (Jay Earley,
1970); automata read the terminals. If there are several derivations, it takes the first alternative
of a rule that fits; then the last part of a rule is as short as possible, then the one before it,
as in templates. The text of a named token is its name; a token named by its id has any text of at
least one character. In a text decoded without these tokens, both are empty. Knows no masks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from structgen.errors import ParseError, Unsatisfiable
from structgen.grammar import ir

from .joined import LOOSE
from .schemas import shown

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_STEPS = 500_000
"""The most steps of one derivation; a terminal takes a step for every eight bytes."""

_Item: TypeAlias = "tuple[int, int, int]"
"""A rule, the number of its symbols read, and their start."""

_Span: TypeAlias = "tuple[int, int, int]"
"""A nonterminal, and the start and end of its text."""


class _Steps:
    """Counts the work of one derivation."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = _MAX_STEPS

    def take(self, n: int) -> None:
        """Count more steps.

        Raises:
            ParseError: there are too many.
        """
        self._left -= n
        if self._left < 0:
            raise ParseError(
                f"Deriving the text from the grammar takes more than {_MAX_STEPS:,} steps, so "
                "structgen cannot capture anything. Remove capture, or limit the repetitions.",
                text=self._text,
            )


class CapturedText(str):
    """A text of a grammar with captures: a ``str`` with extra attributes.

    Attributes:
        all_captures: each name with its text, in the order in which they end, inner ones first.
    """

    __slots__ = ("all_captures",)

    all_captures: tuple[tuple[str, str], ...]

    def __new__(cls, text: str, all_captures: tuple[tuple[str, str], ...]) -> Self:
        """Return ``text`` with these named parts."""
        self = super().__new__(cls, text)
        self.all_captures = all_captures
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return CapturedText, (str(self), self.all_captures)

    @property
    def captures(self) -> dict[str, str]:
        """The last text of each name."""
        return dict(self.all_captures)


class Capturing:
    """Makes `CapturedText` of the texts of a grammar."""

    def __init__(self, grammar: ir.ContextFree, name: str) -> None:
        self._grammar = grammar
        self._name = name
        self._machines: dict[int | ir.Regex, Any] = {}

    def __call__(self, text: str) -> CapturedText:
        """Return ``text`` with its captures.

        Raises:
            ParseError: it is not a text of the grammar, or there are too many ways to derive it.
        """
        data, steps = text.encode("utf-8", "surrogatepass"), _Steps(text)
        ends = partial(self._ends, steps, True)
        spans = _Derivation(self._grammar, data, ends, steps).spans()
        if spans is None and any(ir.special_tokens(self._grammar)):
            ends = partial(self._ends, steps, False)
            spans = _Derivation(self._grammar, data, ends, steps).spans()
        if spans is None:
            raise ParseError(f"The text does not match {self._name}: {shown(text)}.", text=text)
        captured: dict[int, list[ir.Capture]] = defaultdict(list)
        for one in self._grammar.captures:
            captured[one.nonterminal].append(one)
        found: list[tuple[str, str]] = []
        for nonterminal, begin, end in reversed(spans):
            for one in captured.get(nonterminal, ()):
                part = more = data[begin:end]
                for tail in one.tails:
                    places = (i for i in range(len(part)) if len(part) in ends(tail, part, i))
                    part, more = part[: next(places, None)], part
                found.append((one.name, (more[len(part) :] if one.is_tail else part).decode()))
        return CapturedText(text, tuple(found))

    def _ends(
        self, steps: _Steps, with_tokens: bool, terminal: int | ir.Regex, data: bytes, at: int
    ) -> list[int]:
        """Return the ends of a terminal's texts that begin at a place of ``data``.

        ``with_tokens``: special tokens have texts.
        """
        from structgen.automaton.core import TextHistory

        machine = self._machine(terminal)
        if machine is None:
            return []
        found: list[int] = []
        if isinstance(machine, ir.SpecialToken):
            name = machine.text.encode()
            if not with_tokens:
                found = [at]
            elif name.startswith((b"<[", b"<!", b"!<")):
                # Its text depends on the vocabulary: characters that no other symbol explains.
                found = [end for end in range(at + 1, len(data)) if data[end] & 0xC0 != 0x80]
                found += [len(data)] if at < len(data) else []
            elif data.startswith(name, at):
                found = [at + len(name)]
            steps.take(len(found))
            return found
        state, end = machine.start, at
        for end in range(at, len(data)):
            state = machine.step(state, data[end])
            while machine.is_pending(state):
                state = machine.resolve(state, TextHistory().after(data[at : end + 1]))
            if not state:
                break
            if machine.is_accepting(state):
                found.append(end + 1)
        steps.take(len(found) + (end - at >> 3))
        return found

    def _machine(self, terminal: int | ir.Regex) -> Any:
        # Imported here, because automata are a lot of code for users who only make types.
        from structgen.automaton import build

        if terminal not in self._machines:
            one: Any = self._grammar.terminals[terminal] if isinstance(terminal, int) else terminal
            if not isinstance(one, ir.SpecialToken):
                regex: Any = one.pattern if isinstance(one, ir.Terminal) else one
                grammar = one.grammar if isinstance(one, ir.Embedded) else ir.Pattern(regex, "")
                try:
                    one = build(grammar, LOOSE).machine
                except Unsatisfiable:
                    one = None
            self._machines[terminal] = one
        return self._machines[terminal]


class _Derivation:
    """The derivation of a text from the rules.

    Args:
        grammar: the grammar.
        data: the text.
        ends: returns the ends of a terminal's texts.
        steps: counts the work.
    """

    def __init__(
        self,
        grammar: ir.ContextFree,
        data: bytes,
        ends: Callable[[int, bytes, int], list[int]],
        steps: _Steps,
    ) -> None:
        self._rules = grammar.rules
        self._start = grammar.start
        self._data = data
        self._size = len(data)
        self._rules_of: dict[int, list[int]] = defaultdict(list)
        for number, (nonterminal, _) in enumerate(grammar.rules):
            self._rules_of[nonterminal].append(number)
        self._ends = lru_cache(maxsize=None)(lambda terminal, at: ends(terminal, data, at))
        # The places where each item was reached, and when each nonterminal first had a text.
        self._places: dict[_Item, dict[int, None]] = defaultdict(dict)
        self._whole: dict[_Span, int] = {}
        self._read(steps)

    def _read(self, steps: _Steps) -> None:
        agenda: list[list[_Item]] = [[] for _ in range(self._size + 1)]
        waiting: dict[tuple[int, int], list[_Item]] = {}

        def reach(item: _Item, at: int) -> None:
            if at not in self._places[item]:
                self._places[item][at] = None
                agenda[at].append(item)

        def predict(nonterminal: int, at: int) -> list[_Item]:
            for rule in self._rules_of[nonterminal]:
                reach((rule, 0, at), at)
            return []

        predict(self._start, 0)
        for at, items in enumerate(agenda):
            for rule, read, begin in items:  # more are added meanwhile
                steps.take(1)
                nonterminal, symbols = self._rules[rule]
                after = rule, read + 1, begin
                if read == len(symbols):
                    if (nonterminal, begin, at) not in self._whole:
                        self._whole[nonterminal, begin, at] = len(self._whole)
                        for one, n, first in waiting.get((nonterminal, begin), ()):
                            reach((one, n + 1, first), at)
                elif symbols[read] >= 0:
                    for end in self._ends(symbols[read], at):
                        reach(after, end)
                else:
                    key = ~symbols[read], at
                    if key not in waiting:
                        waiting[key] = predict(*key)
                    waiting[key].append((rule, read, begin))
                    if (*key, at) in self._whole:
                        reach(after, at)

    def spans(self) -> list[_Span] | None:
        """Return the nonterminals of the derivation with their texts, from the right, each before
        those inside it; None if there is no derivation."""
        todo = [(self._start, 0, self._size)]
        if todo[0] not in self._whole:
            return None
        found: list[_Span] = []
        while todo:
            span = todo.pop()
            found.append(span)
            todo += self._parts(span)
        return found

    def _parts(self, span: _Span) -> list[_Span]:
        """Return the nonterminals inside one."""
        nonterminal, begin, end = span
        for rule in self._rules_of[nonterminal]:
            parts = self._divide((rule, len(self._rules[rule][1]), begin), end, span)
            if parts is not None:
                return parts
        raise AssertionError("what was derived has a derivation")

    def _divide(self, item: _Item, end: int, whole: _Span) -> list[_Span] | None:
        """Return the nonterminals that an item has read up to ``end``; None if it has not.

        No part is, or contains, the whole again, because parts are derived before the whole.
        """
        rule, read, begin = item
        if end not in self._places.get(item, ()):
            return None
        if not read:
            return []
        symbol, before = self._rules[rule][1][read - 1], (rule, read - 1, begin)
        for at in sorted(self._places.get(before, ()), reverse=True):
            if symbol >= 0:
                if at > end or end not in self._ends(symbol, at):
                    continue
            elif (order := self._whole.get((~symbol, at, end))) is None or (
                (at, end) == whole[1:] and order >= self._whole[whole]
            ):
                continue
            others = self._divide(before, at, whole)
            if others is not None:
                return others if symbol >= 0 else [*others, (~symbol, at, end)]
        return None
