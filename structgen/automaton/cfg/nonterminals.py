"""Turn each nonterminal (a *goal*) into a deterministic automaton over terminals and goals.

A goal automaton reads the nonempty texts of the nonterminal, from left to right. It follows the
left-corner relation: it begins with a terminal. When a symbol X has been found at the left edge of
the goal, any rule ``C → X γ`` whose C can be at that edge may continue with γ. When the goal itself
has been found, the automaton may end. So left recursion, even hidden behind symbols that can be
empty, is a loop and costs no stack. Unit rules and cycles cost nothing, and rules with a common
beginning share states (Rosenkrantz & Lewis 1970; Nederhof 1993, generalised left-corner parsing).
Symbols that can be empty are skipped in place. States are numbered across all goals and made on
demand. Knows rules, not texts.

`Loops` first moves repetitions to where they are used. Readers of grammars translate ``member (","
member)*`` to a separate nonterminal, ``X: "," member | X "," member``. As a goal, it would add a
level to the stack wherever a list continues, and the place after its first element would differ
from the others. If something follows such a nonterminal, its elements and a *loop* replace it: a
symbol at the end of a rule that defines, without being read, how the rule may continue. Short
nonterminals with one rule are inlined, too. The language stays the same, with fewer states and
lower stacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.storage import cached_method

Rule = tuple[int, tuple[int, ...]]
"""A nonterminal, and a sequence of symbols for it."""

_Sequence = tuple[int, ...]

_SHORT = 3
"""The most symbols of a rule that replaces its nonterminal everywhere."""

_GROWTH = 3
"""The most copied symbols, as a multiple of the symbols in the grammar."""

_DEPTH = 50
"""The most nested loops that are made for one rule."""


class Loops:
    """The rules of a grammar, with loops.

    Args:
        rules: the rules.
        nullable: for each nonterminal, whether it can be empty.
        root: the nonterminal of whole texts.

    Attributes:
        rules: rules for the same nonterminals, if they can be reached from ``root``; some have a
            loop as their last symbol. Loops are numbered after the nonterminals.
        ways: for each loop, the ways in which a rule may continue.
    """

    def __init__(self, rules: Sequence[Rule], nullable: Sequence[bool], root: int) -> None:
        n = self._n = len(nullable)
        self._nullable = nullable
        self._rules_of: dict[int, list[_Sequence]] = {}
        for lhs, rhs in rules:
            self._rules_of.setdefault(lhs, []).append(rhs)
        # For each nonterminal that can be replaced: its first part, and its rounds.
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
        """Split ``lhs`` into its first part and its rounds, if it is a list or a short rule."""
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
        """Return whether a sequence cannot be empty."""
        return any(s >= 0 or not self._nullable[~s] for s in symbols)

    def _leave_out_circles(self) -> None:
        """Keep nonterminals that are recursive only through others that stay."""
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
        """Return the ways of a nonterminal, with loops."""
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
                # ``a list b | a b``, so that the place before the first element equals those before
                # the others.
                before, after = rhs[:i], rhs[i + 1 :]
                if before + after in left and self._is_something(before):
                    del left[before + after]
                    left[rhs] = (*before, self._loop(~rhs[i], after))
                    break
        out: list[_Sequence] = []
        for rhs, way in left.items():
            # The first part of a list is not replaced in its own rules.
            out += self._spread(way, rhs[:1] == (~lhs,))
        return out

    def _spread(self, symbols: _Sequence, start: int = 0) -> list[_Sequence]:
        """Return the ways to write a sequence without replaced nonterminals, except before
        ``start``."""
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
                WORK.spend(len(way) >> 10)
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
        """Return the symbol for another round, or for what follows the loop."""
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


_CELL_BITS = 32
_CELL = (1 << _CELL_BITS) - 1

Item = int
"""A nonterminal, and the rest of the rule that is being read for it: the number of a cell. So rules
with equal rests are one item. Packed into an int, because there are thousands, and the garbage
collector would visit tuples."""

_DONE = 0
"""The empty cell."""


class NonterminalAutomata:
    """The goal automata of a grammar.

    Attributes:
        origin: the state in which a text begins: it reads the start nonterminal and ends.
        nullable: nonterminals that can be empty.
        productive: nonterminals that derive some text.
        accepts: whether a state may end its goal.
        goal_of: the goal of each state.
        is_final: states that end their goal and cannot continue.
    """

    def __init__(self, grammar: ir.ContextFree, dead_terminals: Iterable[int] = ()) -> None:
        # An extra rule: a mark that no text contains, then the start nonterminal.
        n = len(grammar.nonterminals) + 1
        mark = self._mark = len(grammar.terminals)
        rules = [*grammar.rules, (n - 1, (mark, ~grammar.start))]
        dead = set(dead_terminals)
        if dead:
            rules = [(lhs, rhs) for lhs, rhs in rules if not dead.intersection(rhs)]
        self.productive = _closure(n, rules, False)
        if not all(self.productive):
            useless = {~i for i, is_productive in enumerate(self.productive) if not is_productive}
            rules = [(lhs, rhs) for lhs, rhs in rules if not useless.intersection(rhs)]
        self.nullable = _closure(n, rules, True)
        self._rules: list[Rule] = rules
        loops = Loops(rules, self.nullable, n - 1)
        # The rests of rules, as cells: a symbol, and the next cell.
        self._cells: list[tuple[int, int]] = [(0, _DONE)]
        # Whether nothing follows from a cell before its symbol is read.
        self._is_plain: list[bool] = [False]
        self._cell_ids: dict[tuple[int, int], int] = {}
        self._n = n
        # Computed when a symbol, a loop or a goal is first needed.
        self._loop_ways = loops.ways
        self._ways: dict[int, list[int]] = {}
        # For each symbol: the rules with it at the left edge, and the items after it, by the rules'
        # left sides.
        self._edges_of: dict[int, list[tuple[int, tuple[int, ...], list[int], int]]] = {}
        self._found: dict[int, dict[int, dict[Item, None]]] = {}
        self._at_left_edge: dict[int, set[int]] = {}
        self._below: list[set[int]] = [set() for _ in range(n)]
        for lhs, rhs in loops.rules:
            rests: list[int] = []  # the cells after each of its symbols, made on demand
            for i, symbol in enumerate(rhs):
                self._edges_of.setdefault(symbol, []).append((lhs, rhs, rests, i))
                if symbol >= 0:
                    self._at_left_edge.setdefault(lhs, set()).add(symbol)
                    break
                self._below[lhs].add(~symbol)
                if not self.nullable[~symbol]:
                    break
        self.accepts: list[bool] = []
        self.is_final: list[bool] = []
        self.goal_of: list[int] = []
        self._items: list[frozenset[Item]] = []
        self._ids: dict[tuple[int, bool, frozenset[Item]], int] = {}
        self._edges: list[dict[int, int] | None] = []
        self._symbols: list[Mapping[int, list[Item]] | None] = []
        self._gone: dict[int, int] = {}
        self._followed: list[dict[Item, tuple[frozenset[Item], bool]]] = [{} for _ in range(n)]
        self._loops: dict[int, int] = {}
        self.origin = self.start(n - 1)[mark] if self.productive[n - 1] else -1

    def _rests(self, symbols: Sequence[int]) -> list[int]:
        """Return the cells of a rule: of the whole rule, and of the rest after each symbol."""
        WORK.spend(len(symbols) >> 4)
        cell = _DONE
        rests = [cell]
        for symbol in reversed(symbols):
            key = (symbol, cell)
            found = self._cell_ids.get(key)
            if found is None:
                found = self._cell_ids[key] = len(self._cells)
                self._cells.append(key)
                self._is_plain.append(
                    symbol >= 0 or (~symbol < self._n and not self.nullable[~symbol])
                )
            cell = found
            rests.append(cell)
        return rests[::-1]

    @cached_method
    def first(self, goal: int) -> frozenset[int]:
        """Return the terminals with which ``goal`` may begin."""
        corners = self._corners_of(goal)
        WORK.spend(1 + (len(corners) >> 4))
        found = frozenset().union(*(self._at_left_edge.get(lhs, ()) for lhs in corners))
        WORK.hold(250 + 60 * len(found))
        return found

    @cached_method
    def start(self, goal: int) -> dict[int, int]:
        """Map each terminal with which ``goal`` may begin to the state after it."""
        return {t: self.go(~goal, t) for t in sorted(self.first(goal))}

    def symbols(self, state: int) -> Mapping[int, list[Item]]:
        """Return the symbols that may follow, each with the state after it.

        A nonterminal stands for its nonempty texts.
        """
        found = self._symbols[state]
        if found is None:
            WORK.spend(1 + (len(self._items[state]) >> 2))
            moved: dict[int, list[Item]] = {}
            cells = self._cells
            for item in self._items[state]:
                cell = item & _CELL
                symbol, after = cells[cell]
                moved.setdefault(symbol, []).append(item - cell + after)
            WORK.hold(200 + 220 * len(moved) + 40 * len(self._items[state]))
            found = self._symbols[state] = dict(sorted(moved.items()))
        return found

    def go(self, at: int, symbol: int) -> int:
        """Return the state after one of the symbols of state ``at``; if ``at`` < 0, after one of
        the terminals with which goal ``~at`` begins."""
        key = (at << _CELL_BITS) + symbol
        found = self._gone.get(key)
        if found is None:
            if at >= 0:
                found = self._state(self.goal_of[at], self.symbols(at)[symbol])
            else:
                found = self._state(~at, self._at_edge(~at, symbol))
            WORK.hold(100)
            self._gone[key] = found
        return found

    def edges(self, state: int) -> dict[int, int]:
        """Map each symbol to the next state: all results of `go` for a state."""
        found = self._edges[state]
        if found is None:
            found = {symbol: self.go(state, symbol) for symbol in self.symbols(state)}
            WORK.hold(150 + 40 * len(found))
            self._edges[state] = found
        return found

    def neighbours(self) -> tuple[dict[int, int], int]:
        """Return which terminals may follow each other, and which may come last.

        Returns:
            For each terminal of a reachable productive rule, the terminals that may follow, as a
            mask; and the terminals with which a text may end.
        """
        n, nullable = len(self.nullable), self.nullable
        used: list[set[int]] = [set() for _ in nullable]
        for lhs, rhs in self._rules:
            used[lhs].update(rhs)
        reachable = _reachable(n - 1, [{~s for s in symbols if s < 0} for symbols in used])
        rules = self._rules
        if len(reachable) < n:
            rules = [(lhs, rhs) for lhs, rhs in rules if lhs in reachable]
        empty = {~i for i, is_nullable in enumerate(nullable) if is_nullable}
        first = self._edge_terminals(rules, empty)
        last = self._edge_terminals([(lhs, rhs[::-1]) for lhs, rhs in rules], empty)
        # First what follows each symbol, then each terminal.
        after = dict.fromkeys(set().union(*[used[lhs] for lhs in reachable]), 0)
        for _, rhs in rules:
            following = 0
            for symbol in reversed(rhs):
                after[symbol] |= following
                begins = 1 << symbol if symbol >= 0 else first[~symbol]
                following = following | begins if symbol in empty else begins
        follow = {symbol: following for symbol, following in after.items() if symbol >= 0}
        # Many nonterminals end with the same terminals.
        ends: dict[int, int] = {}
        for symbol, following in after.items():
            if symbol < 0 and following:
                ends[last[~symbol]] = ends.get(last[~symbol], 0) | following
        for mask, following in ends.items():
            for terminal in bits(mask):
                follow[terminal] |= following
        del follow[self._mark]
        return follow, last[n - 1] & ~(1 << self._mark)

    def _edge_terminals(self, rules: list[Rule], empty: set[int]) -> list[int]:
        """Return a mask of the terminals that each nonterminal can begin with."""
        found = [0] * len(self.nullable)
        users: dict[int, set[int]] = {}
        edges = {(lhs, rhs[0]) for lhs, rhs in rules if rhs}
        for lhs, rhs in rules if empty else ():
            for before, symbol in itertools.pairwise(rhs):
                if before not in empty:
                    break
                edges.add((lhs, symbol))
        for lhs, symbol in edges:
            if symbol >= 0:
                found[lhs] |= 1 << symbol
            else:
                users.setdefault(~symbol, set()).add(lhs)
        todo = [i for i, mask in enumerate(found) if mask]
        while todo:
            inner = todo.pop()
            mask = found[inner]
            for user in users.get(inner, ()):
                if mask & ~found[user]:
                    found[user] |= mask
                    todo.append(user)
        return found

    def is_loop(self, state: int) -> bool:
        """Return whether every end of the state's goal can continue in all ways that ``state`` can.

        So if a goal ends with itself, returning to ``state`` adds nothing.
        """
        goal = self.goal_of[state]
        loop = self._loops.get(goal)
        if loop is None:
            loop = self._loops[goal] = self._state(goal, self._at_edge(goal, ~goal), True)
        return state == loop

    @cached_method
    def _corners_of(self, goal: int) -> frozenset[int]:
        """Return the nonterminals that can be at the left edge of ``goal``."""
        found = _reachable(goal, self._below)
        WORK.spend(1 + (len(found) >> 1))
        WORK.hold(250 + 60 * len(found))
        return found

    def _at_edge(self, goal: int, symbol: int) -> list[Item]:
        by_rule = self._found.get(symbol)
        if by_rule is None:
            by_rule = {}
            for lhs, rhs, rests, i in self._edges_of.get(symbol, ()):
                if not rests:
                    rests += self._rests(rhs[1:])
                by_rule.setdefault(lhs, {})[lhs << _CELL_BITS | rests[i]] = None
            self._found[symbol] = by_rule
            WORK.spend(1 + (len(by_rule) >> 2))
            WORK.hold(300 * len(by_rule))
        corners = self._corners_of(goal)
        # A terminal may begin thousands of rules, of which few are at the goal's left edge.
        if len(corners) < len(by_rule):
            found = [by_rule[lhs] for lhs in corners if lhs in by_rule]
        else:
            found = [items for lhs, items in by_rule.items() if lhs in corners]
        WORK.spend(min(len(corners), len(by_rule)) >> 5)
        return [item for items in found for item in items]

    def _state(self, goal: int, items: Sequence[Item], accepts: bool = False) -> int:
        """Return the state with ``items`` and all items that follow from them without reading."""
        is_plain, followed = self._is_plain, self._followed[goal]
        # For most cells nothing follows, and nothing is cached.
        held = frozenset([item for item in items if is_plain[item & _CELL]])
        if len(held) < len(items):
            more: list[frozenset[Item]] = []
            for item in items:
                if is_plain[item & _CELL]:
                    continue
                known = followed.get(item)
                if known is None:
                    known = followed[item] = self._follow(goal, item)
                more.append(known[0])
                accepts = accepts or known[1]
            if held or len(more) > 1:
                WORK.spend(sum([len(part) for part in more]) >> 6)
                held = held.union(*more)
            else:
                (held,) = more
        found = self._ids.get((goal, accepts, held))
        if found is None:
            WORK.spend(2 + (len(held) >> 3))
            WORK.hold(600 + 70 * len(held))
            found = self._ids[goal, accepts, held] = len(self._items)
            self._items.append(held)
            self.accepts.append(accepts)
            self.is_final.append(accepts and not held)
            self.goal_of.append(goal)
            self._edges.append(None)
            self._symbols.append(None)
        return found

    def _follow(self, goal: int, item: Item) -> tuple[frozenset[Item], bool]:
        """Return the incomplete items that follow from ``item``, itself included, and whether the
        goal has been found."""
        accepts = False
        cells, n, is_plain, followed = self._cells, self._n, self._is_plain, self._followed[goal]
        seen = {item}
        todo = [item]
        open_items: list[Item] = []
        others: list[frozenset[Item]] = []
        n_known = 0
        for at in todo:
            known = followed.get(at)
            if known is not None:
                # Do not visit what follows from it again.
                others.append(known[0])
                n_known += len(known[0])
                accepts = accepts or known[1]
                continue
            cell = at & _CELL
            if cell == _DONE:
                lhs = at >> _CELL_BITS
                accepts = accepts or lhs == goal
                more = self._at_edge(goal, ~lhs)
            else:
                symbol, after = cells[cell]
                if symbol < 0 and ~symbol >= n:
                    loop = ~symbol - n
                    ways = self._ways.get(loop)
                    if ways is None:
                        ways = self._ways[loop] = [self._rests(w)[0] for w in self._loop_ways[loop]]
                    more = [at - cell + way for way in ways]
                else:
                    open_items.append(at)
                    if is_plain[cell]:
                        continue
                    more = [at - cell + after]
            for other in more:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        found = frozenset(open_items).union(*others)
        WORK.spend(2 + len(seen) + (n_known >> 4))
        WORK.hold(500 + 60 * len(found))
        return found, accepts


def _closure(n: int, rules: Iterable[Rule], empty: bool) -> list[bool]:
    """Return the nonterminals that have a rule of only such nonterminals and, unless ``empty``,
    terminals."""
    known = [False] * n
    lhs_of: list[int] = []
    missing: list[int] = []  # by rule, the number of its nonterminals that are still unknown
    users: dict[int, list[int]] = {}
    ready: list[int] = []
    for lhs, rhs in rules:
        if empty and max(rhs, default=-1) >= 0:
            continue
        needed = {~symbol for symbol in rhs if symbol < 0}
        for other in needed:
            users.setdefault(other, []).append(len(lhs_of))
        lhs_of.append(lhs)
        missing.append(len(needed))
        if not needed:
            ready.append(lhs)
    while ready:
        found = ready.pop()
        if known[found]:
            continue
        known[found] = True
        for r in users.get(found, ()):
            missing[r] -= 1
            if not missing[r]:
                ready.append(lhs_of[r])
    return known


def _reachable(start: int, successors: list[set[int]]) -> frozenset[int]:
    seen = {start}
    todo = [start]
    while todo:
        for to in successors[todo.pop()]:
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return frozenset(seen)
