"""Rules with their repetitions as loops: what needs no stack is put where it stands.

Readers of grammars spell ``member ("," member)*`` with a nonterminal of its own, ``X: "," member |
X "," member``. A goal for it would be one more level on the stack wherever a list goes on, and the
place after its first element would differ from those after the others. Here such a nonterminal is
replaced, where something follows it, by its elements and a *loop*: a symbol that only ever stands
last and says, without being read, in which ways the rule may go on from there. Short nonterminals
of one rule are put where they stand, too. The language is the same; goal automata (`nonterminals`)
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
        root: the nonterminal of whole texts.

    Attributes:
        rules: rules for the same nonterminals, as far as ``root`` leads to them; some have a loop
            as their last symbol. Loops are numbered like nonterminals, after them.
        ways: for each loop the ways in which a rule may go on there.
    """

    def __init__(self, rules: Sequence[Rule], nullable: Sequence[bool], root: int) -> None:
        n = self._n = len(nullable)
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
        self._lists = {~lhs for lhs, (begins, rounds) in self._parts.items() if begins == rounds}
        self._room = _GROWTH * sum([len(rhs) for _, rhs in rules]) + 100
        self._depth = 0
        self._loops: dict[tuple[int, _Sequence], int] = {}
        self.ways: list[list[_Sequence]] = []
        self.rules: list[Rule] = []
        seen = {~root}
        todo = [~root]
        for symbol in todo:
            if ~symbol >= n:
                ways = self.ways[~symbol - n]
            else:
                ways = self._without_repeats(~symbol)
                self.rules += [(~symbol, way) for way in ways]
            used = set().union(*ways).difference(seen)
            more = [other for other in used if other < 0]
            seen.update(more)
            todo += more

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

    def _without_repeats(self, lhs: int) -> list[_Sequence]:
        """The ways of a nonterminal, with loops."""
        found, replaced, lists = self._rules_of.get(lhs, []), self._replaced, self._lists
        if all(replaced.isdisjoint(rhs) for rhs in found):
            return found
        left = {rhs: rhs for rhs in found}
        for rhs in found:
            if self._lists.isdisjoint(rhs):
                continue
            if lists.isdisjoint(rhs) or rhs not in left:
                continue
            for i in range(1, len(rhs) - 1):
                if rhs[i] not in lists:
                    continue
                # ``a list b | a b``: then the place before the first element is like those before
                # the others.
                before, after = rhs[:i], rhs[i + 1 :]
                if before + after in left and self._is_something(before):
                    del left[before + after]
                    left[rhs] = (*before, self._loop(~rhs[i], after))
                    break
        out: list[_Sequence] = []
        for rhs, way in left.items():
            # What a list begins with is not replaced in its own rules.
            out += self._spread(way, rhs[:1] == (~lhs,))
        return out

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
