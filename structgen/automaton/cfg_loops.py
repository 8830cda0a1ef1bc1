"""Rules with their repetitions as loops: what needs no stack is put where it stands.

Readers of grammars spell ``member ("," member)*`` with a nonterminal of its own, ``X: "," member |
X "," member``. A goal for it would be one more level on the stack wherever a list goes on, and the
place after its first element would differ from those after the others. Here such a nonterminal is
replaced, where something follows it, by its elements and a *loop*: a symbol that only ever stands
last and says, without being read, in which ways the rule may go on from there. Short nonterminals
of one rule are put where they stand, too. The language is the same; goal automata (`cfg_goals`)
have fewer states, and stacks fewer levels.

This module knows rules only.
"""

from __future__ import annotations

from collections.abc import Sequence

Rule = tuple[int, tuple[int, ...]]
"""A nonterminal, and symbols it may consist of."""

_Sequence = tuple[int, ...]

_SHORT = 3
"""Symbols of a rule that is put wherever its nonterminal stands."""

_GROWTH = 3
"""Symbols may be copied so many times as there are of them."""

_DEPTH = 50
"""Loops in one rule that are made inside one another's making."""


class Loops:
    """The rules of a grammar, with loops.

    Args:
        rules: the rules.
        nullable: for each nonterminal, whether it can be empty.

    Attributes:
        rules: rules for the same nonterminals, of which some have a loop as their last symbol.
            Loops are numbered like nonterminals, after them.
        ways: for each loop the ways in which a rule may go on there.
    """

    def __init__(self, rules: Sequence[Rule], nullable: Sequence[bool]) -> None:
        self._n = len(nullable)
        self._nullable = nullable
        self._rules_of: dict[int, list[_Sequence]] = {}
        for lhs, rhs in rules:
            self._rules_of.setdefault(lhs, []).append(rhs)
        # For each that can be replaced: how it begins, and with what each round goes on.
        self._parts: dict[int, tuple[list[_Sequence], list[_Sequence]]] = {}
        for lhs, found in self._rules_of.items():
            parts = self._parts_of(lhs, found)
            if parts is not None:
                self._parts[lhs] = parts
        self._leave_out_circles()
        self._replaced = {~lhs for lhs in self._parts}
        self._room = _GROWTH * sum([len(rhs) for _, rhs in rules]) + 100
        self._depth = 0
        self._loops: dict[tuple[int, _Sequence], int] = {}
        self.ways: list[list[_Sequence]] = []
        self.rules: list[Rule] = []
        for lhs, found in self._rules_of.items():
            if self._replaced.isdisjoint([symbol for rhs in found for symbol in rhs]):
                self.rules += [(lhs, rhs) for rhs in found]
                continue
            spread = [way for rhs in found for way in self._spread(rhs, rhs[:1] == (~lhs,))]
            self.rules += [(lhs, way) for way in self._folded(spread)]
        self.ways = [self._folded(ways) for ways in self.ways]

    def _parts_of(
        self, lhs: int, found: list[_Sequence]
    ) -> tuple[list[_Sequence], list[_Sequence]] | None:
        """How ``lhs`` begins and how it goes on, if it is a list of elements or a short rule."""
        this = ~lhs
        if len(found) == 1:
            (only,) = found
            return ([only], []) if len(only) <= _SHORT and this not in only else None
        if not any(rhs[:1] == (this,) for rhs in found):
            return None
        begins: list[_Sequence] = []
        rounds: list[_Sequence] = []
        for rhs in found:
            body = rhs[1:] if rhs[:1] == (this,) else rhs
            if this in body or not self._is_something(body):
                return None
            (begins if body is rhs else rounds).append(body)
        return (begins, rounds) if begins and rounds else None

    def _is_something(self, symbols: _Sequence) -> bool:
        """Whether a sequence cannot be empty."""
        return any(s >= 0 or not self._nullable[~s] for s in symbols)

    def _leave_out_circles(self) -> None:
        """Keep what leads to itself only through nonterminals that stay."""
        done: set[int] = set()
        for start in list(self._parts):
            path: dict[int, None] = {}
            todo = [start]
            while todo:
                lhs = todo.pop()
                if lhs < 0:
                    done.add(path.popitem()[0])
                    continue
                if lhs in path:
                    self._parts.pop(lhs, None)
                    continue
                parts = self._parts.get(lhs)
                if parts is None or lhs in done:
                    continue
                path[lhs] = None
                todo.append(-1)
                todo += [~s for way in (*parts[0], *parts[1]) for s in way if s < 0]

    def _spread(self, symbols: _Sequence, start: int = 0) -> list[_Sequence]:
        """The ways to write a sequence without the nonterminals that are replaced, those before
        ``start`` excepted."""
        replaced = self._replaced
        if replaced.isdisjoint(symbols):
            return [symbols]
        out: list[_Sequence] = []
        todo = [(symbols, start)]
        while todo:
            way, start = todo.pop()
            for i in range(start, len(way)):
                if way[i] not in replaced:
                    continue
                begins, rounds = self._parts[~way[i]]
                before, after = way[:i], way[i + 1 :]
                if rounds and (not after or self._depth > _DEPTH):
                    continue  # the last call of a rule needs no level
                if self._room < 0:
                    continue
                if rounds:
                    after = (self._loop(~way[i], after),)
                more = [((*before, *body, *after), i) for body in begins]
                self._room -= sum([len(longer) for longer, _ in more]) - len(way)
                todo += more
                break
            else:
                out.append(way)
        return out

    def _folded(self, ways: list[_Sequence]) -> list[_Sequence]:
        """``a | a b L``, where ``L`` is to go on with nothing or ``b L``, as ``a L``: so the place
        before the first round is the one before all others."""
        kept = dict.fromkeys(ways)
        todo = [way for way in ways if way and ~way[-1] >= self._n]
        while todo:
            way = todo.pop()
            if way not in kept:
                continue
            ends = self.ways[~way[-1] - self._n]
            for end in ends:
                before = way[: len(way) - len(end)]
                if end[-1:] == way[-1:] and before + end == way:
                    whole = [before + end for end in ends]
                    if self._is_something(before) and all(one in kept for one in whole):
                        for one in whole:
                            del kept[one]
                        kept[before + way[-1:]] = None
                        todo.append(before + way[-1:])
                        break
        return list(kept)

    def _loop(self, lhs: int, after: _Sequence) -> int:
        """The symbol for going on with another round, or with what follows the last."""
        key = (lhs, after)
        found = self._loops.get(key)
        if found is None:
            number = len(self.ways)
            found = self._loops[key] = ~(self._n + number)
            self.ways.append([])
            self._depth += 1
            ways = self._spread(after)
            for body in self._parts[lhs][1]:
                ways += self._spread((*body, found))
            self._depth -= 1
            self._room -= sum([len(way) for way in ways])
            self.ways[number] = ways
        return found
