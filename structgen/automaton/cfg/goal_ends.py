"""The fewest bytes that end a goal, for each demand that it can end with.

Computed once for all stacks, for goal states under demands; what is worse in every way is left out.
A least fixpoint over the goal automata (Knuth 1977), grown as it is asked for.
"""

from __future__ import annotations

import heapq

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK

from .demands import Demands
from .nonterminals import NonterminalAutomata

Node = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the demand there: a condition on the
rest, or, below 0, one of the demands that stand for all those of a terminal."""


class GoalEnds:
    """The ends of the goals of one grammar.

    Args:
        demands: what its terminals demand.
        ignore: terminals that may stand anywhere.
        anything: the demand that asks for nothing.
    """

    def __init__(
        self,
        goals: NonterminalAutomata,
        demands: Demands,
        ignore: frozenset[int],
        anything: int,
    ) -> None:
        self._goals = goals
        self._demands = demands
        self._ignore = ignore
        self._anything = anything
        self._ends: dict[Node, dict[int, Text]] = {}
        # Who else ends when a node does: (node, bytes before), or (node, state to go on in).
        self._heads: dict[Node, dict[tuple[Node, Text], None]] = {}
        self._callers: dict[Node, dict[tuple[Node, int], None]] = {}
        self._todo: list[tuple[int, Node, int, Text]] = []

    def of(self, node: Node) -> dict[int, Text]:
        """For the demands a goal can end with: the fewest bytes until then."""
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
            if demand < 0 or self._demands.settling(demand) != self._demands.settling(
                self._anything
            ):
                # Only a demand makes it worth while to write what is ignored.
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
                        self._go_on(node, to, after, more)
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
        """Whether some known end of ``node`` is as short and, as far as can be seen, as good."""
        WORK.spend(1 + (len(self._ends[node]) >> 2))
        mask, may_end = self._demands.settling(demand)
        for other, known in self._ends[node].items():
            if len(known) <= len(text):
                settling, ends = self._demands.settling(other)
                if other == demand or (mask and mask & ~settling == 0 and ends >= may_end):
                    return True
        return False

    def _end(self, node: Node, demand: int, text: Text) -> None:
        if self._is_beaten(node, demand, text):
            return
        self._ends[node][demand] = text
        for head, before in self._heads[node]:
            self._push(head, demand, put(before, text))
        for caller, to in list(self._callers[node]):
            self._go_on(caller, to, demand, text)

    def _go_on(self, caller: Node, to: int, demand: int, text: Text) -> None:
        """A goal called by ``caller`` can end under ``demand`` after ``text``; ``to`` follows."""
        node = (to, demand)
        if node not in self._ends:
            self._add(node)
            self._open(node)
        if (caller, text) not in self._heads[node]:
            WORK.hold(200)
            self._heads[node][caller, text] = None
            for after, more in list(self._ends[node].items()):
                self._push(caller, after, put(text, more))
