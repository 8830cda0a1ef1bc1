"""A grammar as a frame: its rules and terminals, and what may follow at a place.

The state of a `CfgFrame` is a place (`places`). The leaf above it is the lexer, or the first leaf
of an `EmbeddedTerminal`. When a terminal ends, the frame returns which terminals may begin next.
Every place can be finished, so no state of a machine is a dead end. If no condition on the
following text leads to a dead end, all terminals that the rules expect may begin
(`CfgFrame.entry`). Otherwise a terminal may begin only if the text can be finished after one of its
ends.

The end of a terminal puts a condition on what follows (`terminals`): after a number, no digit. The
first character of the next terminal nearly always settles it, so a condition is summarised as a
mask of the minterms that settle it. With these masks, and a few near ends of each terminal,
`Neighbours` proves that no condition can lead to a dead end (`is_free`), that a place can be
finished after any end of a terminal (`is_certain`), and how (`rests`). The proof is sufficient, not
necessary: if it fails, `machine` examines the states.

A condition is a number. A negative number is ``~terminal`` and represents all conditions of a
terminal that has too many.

The fewest bytes that finish a goal are computed once for all stacks, for each goal state and
condition; dominated results are dropped. This is a least fixpoint over the goal automata (Knuth
1977), extended on demand. A stack is then finished goal by goal.
"""

from __future__ import annotations

import functools
import heapq
import weakref
from collections.abc import Mapping

from structgen.automaton.bits import bits
from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.core.leaf import GROW
from structgen.automaton.schema.nesting import UNLIMITED
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import GrammarError, Unsatisfiable, UnsupportedFeature
from structgen.grammar import ir
from structgen.storage import cached_method

from .embedded_terminals import EmbeddedTerminal, GuardedLeaf, LimitedLeaf, NamedTokenLeaf
from .lexer import Expected, Lexer, shared_lexer
from .nonterminals import NonterminalAutomata
from .places import PlaceGraph, Rest, Rests, better
from .terminals import Terminals

MAX_DEMANDS = 16
"""The most demands of a terminal that are distinguished."""

_MAX_STATES = 5_000


class Demands:
    """The demands of one grammar's terminals.

    Attributes:
        first: the minterms that each terminal can begin with.
        known: for each, minterms that each settle all its demands, whether the text may always end
            after it, and the demands (None: too many).
    """

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        terminals = lexer.terminals
        self.known = [
            terminals.demands(t) if start >= 0 or t in terminals.embedded else (0, False, None)
            for t, start in enumerate(terminals.starts)
        ]
        self.first = [
            terminals.first(t) if start >= 0 or t in terminals.embedded else 0
            for t, start in enumerate(terminals.starts)
        ]
        # For each demand: the minterms that settle it, and whether the text may end.
        self._settling: dict[int, tuple[int, bool]] = {
            ~t: (mask, may_end) for t, (mask, may_end, _) in enumerate(self.known)
        }
        self._met: dict[int, tuple[int, int]] = {}

    def look_closer(self, terminal: int) -> tuple[int, ...] | None:
        """Return a terminal's demands after visiting many of its states; None: still too many."""
        exact = self._lexer.terminals.demands(terminal, _MAX_STATES)
        if exact[2] is not None:
            self.known[terminal] = exact
            self._settling[~terminal] = exact[:2]
            del self._met[~terminal]
        return exact[2]

    def at_end(self, demand: int) -> Rest | None:
        """Return the empty completion if the text may end under a demand."""
        return (0, b"", None) if self.settling(demand)[1] else None

    def settling(self, demand: int) -> tuple[int, bool]:
        """Return the minterms that settle a demand, and whether the text may end under it."""
        found = self._settling.get(demand)
        if found is None:
            found = self._settling[demand] = self._lexer.terminals.settled_by([demand])
        return found

    def meeting(self, demand: int) -> tuple[int, int]:
        """Return the terminals with a first character that settles a demand, and those with a first
        character that does not, as masks."""
        found = self._met.get(demand)
        if found is None:
            settling = self.settling(demand)[0]
            some = others = 0
            for t, first in enumerate(self.first):
                if first & settling:
                    some |= 1 << t
                if first & ~settling:
                    others |= 1 << t
            found = self._met[demand] = some, others
        return found

    def of(self, terminal: int) -> tuple[int, ...]:
        """Return the demands after a terminal: conditions, or one that represents all of them."""
        demands = self.known[terminal][2]
        return (~terminal,) if demands is None or len(demands) > MAX_DEMANDS else demands

    def asks(self, demand: int) -> bool:
        """Return whether a demand restricts anything."""
        anything = self._lexer.terminals.lookahead.anything
        return demand < 0 or self.settling(demand) != self.settling(anything)

    def covers(self, other: int, demand: int) -> bool:
        """Return whether every text allowed after one demand is known to be allowed after
        another."""
        mask, may_end = self.settling(demand)
        settling, ends = self.settling(other)
        return other == demand or bool(mask and mask & ~settling == 0 and ends >= may_end)

    @cached_method
    def steps(self, demand: int, terminal: int) -> dict[int, Text]:
        """Map demands of ``terminal`` to its bytes, for some ways to write it under ``demand``."""
        mask = self.settling(demand)[0] & self.first[terminal]
        if mask:
            text, after = self._lexer.ends.shortest_beginning(terminal, mask)
            return {after: text}
        if demand >= 0 and self.first[terminal]:
            return self._lexer.ends.of(terminal, demand, near=True)
        return {}


class Conditions:
    """The demands of a grammar's terminals, exactly: as conditions on the rest of the text."""

    def __init__(self, lexer: Lexer, ignore: frozenset[int]) -> None:
        self._lexer = lexer
        self._ignore = sorted(ignore)
        self._lookahead = lexer.terminals.lookahead

    def at_end(self, condition: int) -> Rest | None:
        """Return the text that may follow once all goals have ended, if one meets the condition."""
        label = self._lookahead.label
        if label(condition) >= 0:
            return (0, b"", None)
        best: Rest | None = None
        for terminal in self._ignore:
            for after, text in self.steps(condition, terminal).items():
                if label(after) >= 0:
                    best = better(best, (len(text), text, None))
        return best

    def steps(self, condition: int, terminal: int) -> dict[int, Text]:
        """See `Demands.steps`; covers all ways."""
        return self._lexer.ends.of(terminal, condition)

    def asks(self, condition: int) -> bool:
        """See `Demands.asks`."""
        return condition != self._lookahead.anything

    def covers(self, other: int, condition: int) -> bool:
        """See `Demands.covers`."""
        return other in (condition, self._lookahead.anything)


Node = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the demand there."""


class GoalEnds:
    """The ends of the goals of one grammar."""

    def __init__(
        self, goals: NonterminalAutomata, demands: Demands | Conditions, ignore: frozenset[int]
    ) -> None:
        self._goals = goals
        self._demands = demands
        self._ignore = ignore
        self._ends: dict[Node, dict[int, Text]] = {}
        # What ends when a node does: (node, bytes before), or (node, state to continue in).
        self._heads: dict[Node, dict[tuple[Node, Text], None]] = {}
        self._callers: dict[Node, dict[tuple[Node, int], None]] = {}
        self._todo: list[tuple[int, Node, int, Text]] = []

    def of(self, node: Node) -> dict[int, Text]:
        """Map the demands with which a goal can end to the fewest bytes until then."""
        if node not in self._ends:
            self._add(node)
            self._open(node)
            while self._todo:
                _, at, demand, text = heapq.heappop(self._todo)
                self._end(at, demand, text)
        return self._ends[node]

    def _add(self, node: Node) -> None:
        WORK.hold(400)
        self._ends[node], self._heads[node], self._callers[node] = {}, {}, {}

    def _open(self, start: Node) -> None:
        goals = self._goals
        opened = [start]
        for node in opened:
            WORK.spend(3)
            state, demand = node
            if state >= 0 and goals.accepts[state]:
                heapq.heappush(self._todo, (0, node, demand, b""))
            edges = goals.edges(state) if state >= 0 else goals.start(~state)
            steps = list(edges.items())
            if self._demands.asks(demand):
                # Ignored terminals are worth writing only because of a demand.
                steps += [(terminal, state) for terminal in self._ignore]
            WORK.hold(150 * len(steps))
            for symbol, to in steps:
                if symbol < 0:
                    inner = (symbol, demand)
                    if inner not in self._ends:
                        self._add(inner)
                        opened.append(inner)
                    self._callers[inner][node, to] = None
                    for after, more in list(self._ends[inner].items()):
                        self._record_end(node, to, after, more)
                    continue
                for after, text in self._demands.steps(demand, symbol).items():
                    inner = (to, after)
                    if inner not in self._ends:
                        self._add(inner)
                        opened.append(inner)
                    self._heads[inner][node, text] = None
                    for end, more in self._ends[inner].items():
                        self._push(node, end, put(text, more))

    def _push(self, node: Node, demand: int, text: Text) -> None:
        if not self._is_beaten(node, demand, text):
            WORK.hold(120)
            heapq.heappush(self._todo, (len(text), node, demand, text))

    def _is_beaten(self, node: Node, demand: int, text: Text) -> bool:
        """Return whether a known end of ``node`` is as short and, as far as known, as good."""
        WORK.spend(1 + (len(self._ends[node]) >> 2))
        covers = self._demands.covers
        for other, known in self._ends[node].items():
            if len(known) <= len(text) and covers(other, demand):
                return True
        return False

    def _end(self, node: Node, demand: int, text: Text) -> None:
        if self._is_beaten(node, demand, text):
            return
        self._ends[node][demand] = text
        for head, before in self._heads[node]:
            self._push(head, demand, put(before, text))
        for caller, to in list(self._callers[node]):
            self._record_end(caller, to, demand, text)

    def _record_end(self, caller: Node, to: int, demand: int, text: Text) -> None:
        """Record that ``caller``'s goal can end under ``demand`` after ``text``; ``to`` follows."""
        node = (to, demand)
        if node not in self._ends:
            self._add(node)
            self._open(node)
        if (caller, text) not in self._heads[node]:
            WORK.hold(200)
            self._heads[node][caller, text] = None
            for after, more in list(self._ends[node].items()):
                self._push(caller, after, put(text, more))


_MAX_SURVEY = 5_000
_MAX_PENDING = 300


class Neighbours:
    """The terminals of one grammar that may follow each other.

    Attributes:
        rests: short ways from places to the end, under demands.
    """

    def __init__(self, graph: PlaceGraph, lexer: Lexer, ignore: frozenset[int]) -> None:
        self._graph = graph
        self._goals: NonterminalAutomata = graph.goals
        self._lexer = lexer
        self._ignore = ignore
        self._demands = Demands(lexer)
        self._ends = GoalEnds(graph.goals, self._demands, ignore)
        self.rests = Rests(graph, self._ends.of, self._demands.at_end)
        self._follow, self._last = graph.goals.neighbours()
        self._left = self._all_left()

    def unsettled(self) -> tuple[int, int] | None:
        """Return a terminal and an embedded one after it whose first character may not settle the
        terminal's demand."""
        terminals = self._lexer.terminals
        rest = terminals.lookahead
        embedded = sum(1 << t for t in terminals.embedded)
        before = {**self._follow, **dict.fromkeys(self._ignore, embedded)}
        alike: dict[int, int] = {}  # embedded terminals by their first characters
        for inner in terminals.embedded:
            first = self._demands.first[inner]
            if first != terminals.end_of_text:
                alike[first] = alike.get(first, 0) | 1 << inner
        for terminal, following in before.items():
            WORK.spend(len(alike))
            for first, group in alike.items():
                found = following & group
                if not found:
                    continue
                inner = (found & -found).bit_length() - 1
                if self._left is None:
                    return terminal, inner
                for demand in self._left_by(terminal):
                    open_minterms = first & ~self._demands.settling(demand)[0]
                    if demand < 0:
                        if open_minterms:
                            return terminal, inner
                        continue
                    for mask, to in rest.steps(demand):
                        if mask & open_minterms and rest.is_possible(to):
                            return terminal, inner
        return None

    def is_free(self) -> bool:
        """Return whether no demand of any terminal can ever lead to a dead end."""
        if self._left is None:
            return False
        follow, ignore = self._follow, self._ignore
        terminals, ends = self._lexer.terminals, self._lexer.ends

        def fits(terminal: int, following: int) -> bool:
            for demand in self._left_by(terminal):
                if demand != self._anything:
                    for t in bits(following & ~self._demands.meeting(demand)[0]):
                        # A terminal with a single text makes the demand itself.
                        if demand < 0 or t not in terminals.literals:
                            return False
                        if not ends.from_state(t, terminals.starts[t], demand, _MAX_PENDING):
                            return False
            return True

        everything = sum(1 << t for t in follow)
        if not all(fits(i, everything) for i in ignore):
            return False
        for terminal, following in follow.items():
            # Ignored terminals may come between, and may precede everything.
            if not fits(terminal, following) and not any(fits(terminal, 1 << i) for i in ignore):
                return False
        last = [*bits(self._last), *ignore]
        return all(self._demands.settling(d)[1] for t in last for d in self._left_by(t))

    def _left_by(self, terminal: int) -> set[int]:
        assert self._left is not None
        return self._left.get(terminal, set())

    def _all_left(self) -> dict[int, set[int]] | None:
        """Return the possible demands after each terminal, with those left by earlier ones.

        None if these are too many.
        """
        follow, ignore = self._follow, self._ignore
        left: dict[int, set[int]] = {}
        todo: list[tuple[int, int]] = []

        def add(terminal: int, demand: int) -> None:
            known = left.setdefault(terminal, set())
            if demand not in known:
                known.add(demand)
                todo.append((terminal, demand))

        for terminal in {*follow, *ignore}:
            for demand in self._demands.of(terminal):
                add(terminal, demand)
        total = 0
        ignored = sum(1 << t for t in ignore)
        everything = ignored | sum(1 << t for t in follow)
        while todo:
            terminal, demand = todo.pop()
            if demand == self._anything:
                continue  # not needed
            following = everything if terminal in ignore else follow.get(terminal, 0) | ignored
            following &= self._demands.meeting(demand)[1]  # usually nothing is left
            for t in bits(following):
                if demand < 0:
                    # An estimate is not enough.
                    exact = self._demands.look_closer(terminal)
                    if exact is None:
                        return None
                    if len(exact) > MAX_DEMANDS:
                        # Their union may.
                        if following & self._demands.meeting(demand)[1]:
                            return None
                        break
                    left[terminal].discard(demand)
                    for known in exact:
                        add(terminal, known)
                    break
                if self._lexer.is_met_at_once(t, demand) is not False:
                    continue
                ends = self._lexer.ends.from_state(
                    t, self._lexer.terminals.starts[t], demand, _MAX_PENDING
                )
                total += 1
                if ends is None or total > _MAX_SURVEY:
                    return None
                for end in ends:
                    add(t, end)
        return left

    def is_safe(self) -> bool:
        """Like `is_free`, but visit every state of every goal: slower, and True more often.

        A state is safe under a demand if its goal can end under a demand with which every state
        that may have called it is also safe. This computes the greatest such set.
        """
        if self._left is None:
            return False
        returns, wanted = self._survey()
        if returns is None:
            return False
        root = self._goals.goal_of[self._goals.origin]
        safe = dict.fromkeys(wanted, True)
        users: dict[Node, set[Node]] = {}
        todo = list(safe)
        while todo:
            node = todo.pop()
            if not safe[node]:
                continue
            goal = self._goals.goal_of[node[0]]
            good = False
            for end in self._ends.of(node):
                after = [(state, end) for state in returns.get(goal, ())]
                for caller in after:
                    users.setdefault(caller, set()).add(node)
                    if caller not in safe:
                        safe[caller] = True
                        todo.append(caller)
                if goal == root:
                    good = good or self._demands.settling(end)[1]
                else:
                    good = good or all(safe[caller] for caller in after)
            if not good:
                if node in wanted:
                    return False
                safe[node] = False
                todo += users.get(node, ())
            if len(safe) > _MAX_SURVEY:
                return False
        return True

    def _survey(self) -> tuple[dict[int, list[int]] | None, set[Node]]:
        """Return the states that call each goal, and all states with the demands there."""
        goals = self._goals
        returns: dict[int, list[int]] = {}
        wanted: set[Node] = {(goals.origin, self._anything)}
        started: set[int] = set()
        seen = {goals.origin}
        for state in (todo := [goals.origin]):
            steps = list(goals.edges(state).items())
            for symbol, to in steps:
                if symbol < 0:
                    returns.setdefault(~symbol, []).append(to)
                    if ~symbol not in started:
                        started.add(~symbol)
                        steps += goals.start(~symbol).items()
                else:
                    wanted.update((to, demand) for demand in self._left_by(symbol))
                if to not in seen:
                    seen.add(to)
                    todo.append(to)
            for terminal in self._ignore:
                wanted.update((state, demand) for demand in self._left_by(terminal))
            if len(wanted) > _MAX_SURVEY:
                return None, wanted
        return returns, wanted

    # -- places -----------------------------------------------------------------------------------

    def is_certain(self, place: int, terminal: int) -> bool:
        """Return whether it is proven that after every end of ``terminal`` the text can finish from
        ``place``."""
        if self.rests.is_possible(place, ~terminal):
            return True
        demands = self._demands.known[terminal][2]
        if demands is None or len(demands) > MAX_DEMANDS:
            return False
        return all(self.rests.is_possible(place, demand) for demand in demands)

    @cached_method
    def ends_after(self, state: int, terminal: int) -> frozenset[int]:
        """Return the demands with which a goal can end after any end of a terminal in it.

        Whether one of them can be met depends on the stack: see `can_end`.
        """
        goals, ends_of = self._goals, self._ends.of
        WORK.spend(1 + (len(goals.edges(state)) >> 1))
        out: set[int] = set()
        if terminal in self._ignore:
            out.update(ends_of((state, ~terminal)))
        for symbol, to in goals.edges(state).items():
            if symbol == terminal:
                out.update(ends_of((to, ~terminal)))
            elif symbol < 0 and terminal in goals.start(~symbol):
                for demand in list(ends_of((goals.start(~symbol)[terminal], ~terminal))):
                    out.update(ends_of((to, demand)))
        return frozenset(out)

    @cached_method
    def can_end(self, continuation: int, demands: frozenset[int]) -> bool:
        """Return whether a continuation can reach the end under any of ``demands``."""
        of = self.rests.of_continuation
        return any(of(continuation, demand) is not None for demand in demands)

    @property
    def _anything(self) -> int:
        return self._lexer.terminals.lookahead.anything


_MAX_EXITS = 500

_Asked = tuple[tuple[tuple[int, frozenset[int]], ...], dict[int, list[int]]]
"""Questions about the stacks of a place: the number of a top, and demands, one of which its
continuation must meet; and for each terminal, the questions of which one must be true."""


class CfgFrame(Frame):
    """The open text of a grammar.

    ``at`` is ``2 * place``, plus 1 while an embedded terminal is written; the place is then the one
    after it.

    Args:
        grammar: the grammar.
        chars: the code points that may be written.
        embedded: the alternatives with which the texts of each embedded terminal may start.
        is_free: the attribute, if known.

    Raises:
        Unsatisfiable: no text matches.
        GrammarError: an embedded terminal can be empty.
        PatternError: a terminal's pattern is malformed or not regular.
        UnsupportedFeature: a terminal has a lookaround that cannot be enforced exactly.

    Attributes:
        lexer: the terminals.
        graph: the places.
        ignore: terminals that may come anywhere.
        embedded: terminals that are not patterns, by number.
        is_free: whether no terminal's demand on what follows can lead to a dead end.
    """

    nests = False
    limit = UNLIMITED

    def __init__(
        self,
        grammar: ir.ContextFree,
        chars: ir.CharSet,
        embedded: Mapping[int, tuple[Alternative, ...]] | None = None,
        is_free: bool | None = None,
    ) -> None:
        self.grammar = grammar
        self._chars = chars
        self._inner = embedded or {}
        with GROW:
            self._build(is_free)

    def _unsatisfiable(self, why: str) -> Unsatisfiable:
        """Return the error for an empty language. It blames the vocabulary if no token has a
        character that all texts need."""
        if self._chars != ir.ANY_CHAR:
            try:
                CfgFrame(self.grammar, ir.ANY_CHAR, self._inner)
            except Unsatisfiable:
                pass
            else:
                return Unsatisfiable(
                    "this vocabulary cannot write any text that matches the grammar: it lacks "
                    "tokens for single characters that every text needs."
                )
        return Unsatisfiable(f"no text matches the grammar: {why}")

    def _build(self, is_free: bool | None) -> None:
        grammar = self.grammar
        lexer = None if self._inner else shared_lexer(grammar.terminals, self._chars)
        terminals = lexer.terminals if lexer else Terminals(grammar.terminals, self._chars)
        for t, ways in self._inner.items():
            if ways:
                terminals.embedded[t] = self._embed(grammar.terminals[t].name, ways, terminals)
        self.embedded = terminals.embedded
        dead = [t for t, s in enumerate(terminals.starts) if s < 0 and t not in self.embedded]
        goals = NonterminalAutomata(grammar, dead)
        if goals.origin < 0:
            rule = grammar.nonterminals[grammar.start]
            raise self._unsatisfiable(f"rule {rule!r} can never be completed.")
        self.lexer = lexer or self._own_lexer(terminals)
        self.graph = PlaceGraph(goals)
        self._lookahead = terminals.lookahead
        self.ignore = frozenset(t for t in grammar.ignore if t not in dead)
        reason = self._neighbours.unsettled() if self.embedded else None
        if reason is not None:
            before, terminal = (grammar.terminals[t].name for t in reason)
            raise UnsupportedFeature(
                f"Whether terminal {before} may end before {terminal} depends on more than the "
                f"first character of {terminal}.",
                fix=(
                    "Put a literal between the two, or shorten the lookahead of the first terminal."
                ),
            )
        if is_free is None:
            is_free = self._neighbours.is_free() or self._neighbours.is_safe()
        self.is_free = is_free
        if lexer and not self.is_free:
            # How terminals may end depends on this grammar's places.
            self.lexer = self._own_lexer(terminals)
        conditions = Conditions(self.lexer, self.ignore)
        ends = GoalEnds(goals, conditions, self.ignore)
        self._rests = Rests(self.graph, ends.of, conditions.at_end)
        self._free_entries: dict[tuple[tuple[int, ...], int], int] = {}
        # See `_fine` and `_met`.
        self._asked: dict[tuple[int, ...], _Asked] = {}
        self._answered: dict[
            tuple[tuple[int, ...], tuple[bool, ...]], tuple[frozenset[int], frozenset[int]]
        ] = {}
        self._begun: dict[tuple[int, int], tuple[Alternative, ...]] = {}
        self._guards: dict[tuple[int, int], tuple[Alternative, ...]] = {}
        if not self.open():
            raise self._unsatisfiable(
                "its terminals always consume what must come after them. A terminal takes the "
                "longest text it can (or the shortest, with a lazy quantifier). Put something "
                "between them that they cannot contain."
            )

    def _own_lexer(self, terminals: Terminals) -> Lexer:
        """Make a lexer that uses the machine to decide how terminals may end, without keeping it
        alive."""
        frame = weakref.ref(self)

        def permits(place: int, condition: int) -> bool:
            asked = frame()
            assert asked is not None, "what a frame is made of is used after it"
            return asked._can_finish(place, condition)

        return Lexer(terminals, permits)

    @functools.cached_property
    def _neighbours(self) -> Neighbours:
        # The caller holds `GROW`; the lock of cached properties is never taken before it.
        return Neighbours(self.graph, self.lexer, self.ignore)

    def _embed(
        self, name: str, ways: tuple[Alternative, ...], terminals: Terminals
    ) -> EmbeddedTerminal:
        inner = EmbeddedTerminal(name, ways, terminals.alphabet)
        if inner.can_be_empty:
            raise GrammarError(
                f"{name} matches the empty text, which is not supported for a terminal. Make it "
                "at least one character long, and optional in the rules."
            )
        return inner

    def release(self) -> None:
        """Drop all references back to the frame; see `machine.Machine.languages`."""
        self._begun.clear()
        self._guards.clear()

    # -- what may come ----------------------------------------------------------------------------

    def open(self) -> tuple[Alternative, ...]:
        """Return the alternatives with which a text may start."""
        return self.begin(self.graph.start, self._lookahead.anything)

    def begin(self, place: int, condition: int) -> tuple[Alternative, ...]:
        """Return the alternatives at a place: its terminals, or the end of the text."""
        found = self._begun.get((place, condition))
        if found is None:
            found = self._begun[place, condition] = self._begin(place, condition)
        return found

    def _begin(self, place: int, condition: int) -> tuple[Alternative, ...]:
        ways: list[Alternative] = []
        if self.may_end(place, condition):
            ways += POP
        q = self.entry(place, condition)
        if q >= 0:
            ways.append(Alternative(self.lexer, q, ((self, 2 * place),)))
        for terminal, after in self.embedded_at(place):
            below = (self, 2 * after + 1)
            ways += [
                Alternative(way.leaf, way.q, (*way.frames, below))
                for way in self.ways_of(terminal, condition)
            ]
        return tuple(ways)

    def may_end(self, place: int, condition: int) -> bool:
        """Return whether the text may end at a place."""
        return self.graph.accepting[place] and self._lookahead.label(condition) >= 0

    def ways_of(self, terminal: int, condition: int) -> tuple[Alternative, ...]:
        """Return the alternatives with which an embedded terminal starts under a condition."""
        inner: EmbeddedTerminal = self.embedded[terminal]
        if condition == self._lookahead.anything:
            return inner.ways
        found = self._guards.get((terminal, condition))
        if found is None:
            ways: list[Alternative] = []
            settling = self._lookahead.settling(condition)
            for way, first in zip(inner.ways, inner.firsts(), strict=True):
                assert way.leaf is not None
                if isinstance(way.leaf, NamedTokenLeaf):
                    ways += [way] if self._lookahead.label(condition) >= 0 else []
                    continue
                if not first & ~settling:
                    ways.append(way)
                    continue
                if isinstance(way.leaf, LimitedLeaf):
                    raise UnsupportedFeature(
                        f"max_tokens of {self.grammar.terminals[terminal].name} is not supported "
                        "after a terminal with a lookahead.",
                        fix="Put a literal between the two.",
                    )
                leaf = GuardedLeaf(way.leaf, way.q, settling, self.lexer.encoding)
                if leaf.continues(leaf.start):
                    ways.append(Alternative(leaf, leaf.start, way.frames))
            found = self._guards[terminal, condition] = tuple(ways)
        return found

    def _arrivals(self, at: int, outcome: int) -> list[tuple[int, int]]:
        """Return the ``(place, condition)`` pairs that ``outcome`` of the leaf above leads to."""
        if at & 1:
            return [(at >> 1, self._lookahead.anything)]
        return [
            (self.after(at >> 1, terminals), condition)
            for condition, terminals in self.lexer.outcomes[outcome]
        ]

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        return tuple(way for to in self._arrivals(at, outcome) for way in self.begin(*to))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        known: list[Text] = []
        for to in self._arrivals(at, outcome):
            way = self._neighbours.rests.text_of(*to)
            if way is None:
                way = self._rests.text_of(*to)
            if way is not None:
                known.append(way)
        return min(known, key=lambda way: (len(way), way), default=None)

    def after(self, place: int, ended: tuple[int, ...]) -> int:
        """Return the place after any of the terminals ``ended`` (ignored ones do not move it)."""
        if len(ended) == 1:
            (terminal,) = ended
            if terminal not in self.ignore:
                return self.graph.shift(place, terminal)
            if terminal not in self.graph.expected(place):
                return place
        expected = self.graph.expected(place)
        steps = [(place, t) for t in ended if t in expected]
        return self.graph.union(steps, [place] if self.ignore.intersection(ended) else [])

    @cached_method
    def entry(self, place: int, condition: int) -> int:
        """Return the lexer state in which the next terminal begins, or -1 if nothing can follow."""
        if self.is_free:
            states = self.graph.shapes[place]
            if not states and not self.graph.accepting[place]:
                return -1
            found = self._free_entries.get((states, condition))
            if found is None:
                q = self.lexer.entry(self.graph.expected(place) | self.ignore, condition)
                found = q if self.lexer.continues(q) else -1
                self._free_entries[states, condition] = found
            return found
        fine, others = self._fine(place)
        met, unclear = self._met(condition)
        sure = fine & met
        doubtful = (others & met) | (self.graph.expected(place) | self.ignore) & unclear
        if not doubtful:
            q = self.lexer.entry(sure, condition)
            return q if self.lexer.continues(q) else -1
        chosen: list[Expected] = [(terminal, None) for terminal in sure]
        chosen += self._chosen(place, condition, doubtful)
        q = self.lexer.entry(tuple(sorted(chosen, key=lambda e: e[0])), condition)
        return q if self.lexer.continues(q) else -1

    def union(self, places: tuple[int, ...]) -> int:
        """Return the place that is the union of ``places``."""
        return places[0] if len(places) == 1 else self.graph.union((), places)

    def embedded_at(self, place: int) -> list[tuple[int, int]]:
        """Return the embedded terminals that may begin at a place, each with the place after it."""
        out: list[tuple[int, int]] = []
        if self.embedded:
            for terminal in sorted(self.graph.expected(place)):
                if terminal not in self.embedded:
                    continue
                after = self.graph.shift(place, terminal)
                if self.is_free or self._can_finish(after, self._lookahead.anything):
                    out.append((terminal, after))
        return out

    # -- the beginnings of terminals ------------------------------------------------------------

    def _fine(self, place: int) -> tuple[frozenset[int], frozenset[int]]:
        """Split the terminals that may begin at a place: those after any end of which the text can
        be finished for sure, and the others.

        The part that depends on goal states is computed once for all places with the same states. A
        few questions are answered by the stacks below; stacks with the same answers have the same
        terminals.
        """
        shape, neighbours = self.graph.shapes[place], self._neighbours
        asked = self._asked.get(shape)
        if asked is None:
            numbers: dict[tuple[int, frozenset[int]], int] = {}
            terminals: dict[int, list[int]] = {}
            for terminal in (self.graph.expected(place) | self.ignore).difference(self.embedded):
                WORK.spend(1 + (len(shape) >> 2))
                terminals[terminal] = [
                    numbers.setdefault((i, ends), len(numbers))
                    for i, state in enumerate(shape)
                    if (ends := neighbours.ends_after(state, terminal))
                ]
            asked = self._asked[shape] = tuple(numbers), terminals
        questions, terminals = asked
        tops = self.graph.places[place]
        WORK.spend(1 + (len(questions) >> 3))
        answers = tuple([neighbours.can_end(tops[i][1], demands) for i, demands in questions])
        found = self._answered.get((shape, answers))
        if found is None:
            fine = frozenset(t for t, asks in terminals.items() if any(answers[n] for n in asks))
            found = self._answered[shape, answers] = fine, frozenset(terminals).difference(fine)
        return found

    @cached_method
    def _met(self, condition: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the terminals for which every first character meets a condition, and those for
        which only some do."""
        every = [t for t, start in enumerate(self.lexer.terminals.starts) if start >= 0]
        is_met = {t: self.lexer.is_met_at_once(t, condition) for t in every}
        met = every if condition == self._lookahead.anything else [t for t in every if is_met[t]]
        unclear = frozenset(t for t in every if is_met[t] is False).difference(met)
        return frozenset(met), unclear

    def _chosen(self, place: int, condition: int, expected: frozenset[int]) -> list[Expected]:
        """Return which of the terminals may begin at a place, and how they may end."""
        chosen: list[Expected] = []
        for terminal in sorted(expected.difference(self.embedded)):
            after = self.after(place, (terminal,))
            met = condition == self._lookahead.anything
            if not met:
                at_once = self.lexer.is_met_at_once(terminal, condition)
                if at_once is None:
                    continue
                met = at_once
            if met and self._neighbours.is_certain(after, terminal):
                chosen.append((terminal, None))
                continue
            start = self.lexer.terminals.starts[terminal]
            ends = self.lexer.ends.from_state(terminal, start, condition, _MAX_EXITS)
            if ends is None:
                chosen.append((terminal, after))
                continue
            live = frozenset(c for c in ends if self._can_finish(after, c))
            if live:
                chosen.append((terminal, None if len(live) == len(ends) else live))
        return chosen

    def _can_finish(self, place: int, condition: int) -> bool:
        """Return whether a text can be finished from a place under a condition."""
        if self._neighbours.rests.is_possible(place, condition):
            return True
        return self._rests.is_possible(place, condition)

    # -- completion -------------------------------------------------------------------------------

    def rules_at(self, at: int) -> list[str]:
        """Return the names of the rules that are open."""
        goals, names = self.graph.goals, self.grammar.nonterminals
        found = [goals.goal_of[top] for top, _ in self.graph.places[at >> 1]]
        return [names[goal if goal < len(names) else self.grammar.start] for goal in found]

    def complete(self, q: int, at: int) -> Text | None:
        """Return a short way to the end of the text from lexer state ``q``.

        Not always the shortest: between two terminals it takes ways that are safe for all demands
        of the first one.
        """
        place = at >> 1
        best: Text | None = None
        ends, inside = self.lexer.ends, self.lexer.threads(q)
        # If the near ends are not enough, look at all.
        for is_near, rests in ((True, self._neighbours.rests), (False, self._rests)):
            for (terminal, condition), text in ends.inside(inside, is_near).items():
                if best is not None and len(text) >= len(best):
                    continue
                rest = rests.text_of(self.after(place, (terminal,)), condition)
                if rest is not None and (best is None or len(text) + len(rest) < len(best)):
                    best = put(text, rest)
            if best is not None:
                break
        return best
