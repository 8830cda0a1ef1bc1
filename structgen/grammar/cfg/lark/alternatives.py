"""Rules that have one alternative twice, which Lark refuses.

Owns when two alternatives are one to Lark: options and brackets multiply a rule's alternatives, and
two that consist of the same symbols must be the same in the tree, too, with the same name and the
same places left empty by ``[…]``. Asked about texts that Lark has refused, for nothing else to be
wrong with them that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from structgen.grammar.cfg.embedded import Lifted

from . import syntax
from .statements import Mistake, Statement, statements
from .syntax import Item, Way

_MAX_WAYS = 2_000
"""Most alternatives of one rule that are looked at."""

_EMPTY = ""
"""Stands where brackets left something out that the tree has a place for."""

_Symbols: TypeAlias = "tuple[str, ...]"


def twice(source: Lifted) -> Iterator[Mistake]:
    """The rules with an alternative that Lark would have twice."""
    found = statements(source.text)
    names = {s.body[0].text: s.name for s in found if s.kind == "terminal" and len(s.body) == 1}
    for statement in found:
        if statement.kind == "rule":
            symbols = _repeated(statement, names)
            if symbols is not None:
                message = (
                    f"Rule {statement.name!r} has one alternative twice, {' '.join(symbols)}. "
                    "Leave one out; options ([…] or ?) make alternatives, too, with and without "
                    "what is optional."
                )
                yield Mistake.at(statement.at, message, source, statement)


def _repeated(statement: Statement, names: dict[str, str]) -> _Symbols | None:
    """The symbols of an alternative that a rule has twice."""
    multiplied = _Multiplied(names)
    try:
        found = syntax.ways(statement.body)
        ways = [(symbols, way.alias) for way in found for symbols in multiplied.of(way)]
    except (_TooMany, syntax.UnexpectedToken, RecursionError, ValueError):
        return multiplied.repeated
    return multiplied.repeated or _first_twice(symbols for symbols, _ in dict.fromkeys(ways))


def _first_twice(ways: Iterable[_Symbols]) -> _Symbols | None:
    """The first sequence, but for places left empty, that there is twice."""
    seen: set[_Symbols] = set()
    for symbols in ways:
        texts = tuple([symbol for symbol in symbols if symbol != _EMPTY])
        if texts and texts in seen:
            return texts
        seen.add(texts)
    return None


class _TooMany(Exception):
    """There are more alternatives than anyone could look at."""


class _Multiplied:
    """The sequences of symbols that parts of rules stand for.

    Args:
        names: of the terminals that consist of one literal or pattern, by that.

    Attributes:
        repeated: a sequence that something which is repeated with ``+`` or ``*`` can be in two
            ways: Lark makes a rule of it.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self.repeated: _Symbols | None = None

    def of(self, way: Way) -> Iterable[_Symbols]:
        out: list[_Symbols] = [()]
        for item in way.items:
            ways = self._ways(item)
            if len(out) * len(ways) > _MAX_WAYS:
                raise _TooMany
            out = [symbols + more for symbols in out for more in ways]
        return dict.fromkeys(out)

    def _ways(self, item: Item) -> list[_Symbols]:
        if item.kind in ("value", "use"):
            return [(self._name(item),)]
        ways = list(dict.fromkeys(symbols for way in item.inside for symbols in self.of(way)))
        if item.kind == "?":
            return [*ways, ()]
        if item.kind == "[":
            return [*ways, (_EMPTY,) * max(sum(map(_is_kept, symbols)) for symbols in ways)]
        if item.kind == "~":
            least, most = int(item.tokens[1].text), int(item.tokens[-1].text)
            if len(ways) ** most > _MAX_WAYS or most > _MAX_WAYS:
                raise _TooMany
            one = item._replace(kind="(")
            counts = range(least, most + 1)
            return [symbols for n in counts for symbols in self.of(Way((one,) * n))]
        if item.kind in ("+", "*"):
            self.repeated = self.repeated or _first_twice(ways)
            many = (f"({' | '.join(map(' '.join, ways))})+",)
            return [many] if item.kind == "+" else [many, ()]
        return ways

    def _name(self, item: Item) -> str:
        texts = [self._names.get(token.text, token.text) for token in item.tokens]
        arguments = [self._name(argument) for way in item.inside for argument in way.items]
        return "..".join(texts) + (f"{{{', '.join(arguments)}}}" if arguments else "")


def _is_kept(symbol: str) -> bool:
    """Whether the tree has a place for a symbol."""
    return symbol[:1] not in ("", "_", '"', "(")
