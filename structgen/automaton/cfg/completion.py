"""The shortest way to the end of a text, and whether there is one.

What a goal needs is computed once for all stacks: for a goal state and a condition on the rest, the
fewest bytes that end the goal, for each condition that may hold afterwards. These summaries are a
least fixpoint over the goal automata (Knuth 1977), grown by a worklist as they are asked for. A
stack is then finished goal by goal, memoised per continuation.

Conditions matter: after ``NAME`` another ``NAME`` cannot follow at once, and in a grammar without
anything to put between them that can be a dead end. Where `neighbours` cannot rule that out,
this module has the last word.
"""

from __future__ import annotations

from collections import deque

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK

from .lexer import Lexer
from .neighbours import spelt
from .nonterminals import NonterminalAutomata
from .stacks import BOTTOM, Stacks, unpack

_Source = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the condition there."""

_Rest = tuple[int, Text, "tuple[int, int] | None"]
"""Length of the whole completion, its first part, and the (continuation, condition) after it."""


class Completion:
    """Shortest completions in one grammar.

    Args:
        stacks: the places.
        lexer: the terminals.
        ignore: terminals that may stand anywhere.
    """

    def __init__(self, stacks: Stacks, lexer: Lexer, ignore: tuple[int, ...]) -> None:
        self._stacks = stacks
        self._goals: NonterminalAutomata = stacks.goals
        self._lexer = lexer
        self._ignore = ignore
        self._rest = lexer.terminals.rest
        self._reached: dict[_Source, dict[tuple[int, int], Text]] = {}
        self._ends: dict[_Source, dict[int, Text]] = {}
        self._callers: dict[_Source, dict[tuple[_Source, int, tuple[int, int]], None]] = {}
        self._todo: deque[tuple[_Source, tuple[int, int]]] = deque()
        self._finish: dict[tuple[int, int], _Rest | None] = {}
        self._spelt: dict[tuple[int, int], Text] = {}

    # -- places -----------------------------------------------------------------------------------

    def of_place(self, place: int, condition: int) -> Text | None:
        """The fewest bytes that finish from ``place``, or None when there is no way."""
        found = self._of_place(place, condition)
        return None if found is None else self._spell(found)

    def is_possible(self, place: int, condition: int) -> bool:
        """Whether a text can be finished from ``place``."""
        return self._of_place(place, condition) is not None

    def _of_place(self, place: int, condition: int) -> _Rest | None:
        WORK.spend(1 + (len(self._stacks.places[place]) >> 1))
        best: _Rest | None = None
        if self._stacks.accepting[place]:
            best = self._at_end(condition)
        for state, below in self._stacks.places[place]:
            best = self._better(best, self._of_top(state, below, condition))
        return best

    def _of_top(self, state: int, below: int, condition: int) -> _Rest | None:
        best: _Rest | None = None
        for after, text in self.ends((state, condition)).items():
            rest = self._of_continuation(below, after)
            if rest is not None and (best is None or rest[0] + len(text) < best[0]):
                best = (rest[0] + len(text), text, (below, after))
        return best

    def _of_continuation(self, continuation: int, condition: int) -> _Rest | None:
        """As `of_place`; without recursion, since stacks can be deep."""
        key = (continuation, condition)
        if key in self._finish:
            return self._finish[key]
        stack = [key]
        while stack:
            at = stack[-1]
            WORK.spend(1 + (len(self._stacks.continuations[at[0]]) >> 1))
            if at in self._finish:
                stack.pop()
                continue
            missing: list[tuple[int, int]] = []
            best: _Rest | None = None
            for top in self._stacks.continuations[at[0]]:
                if top == BOTTOM:
                    best = self._better(best, self._at_end(at[1]))
                    continue
                state, below = unpack(top)
                for after, text in self.ends((state, at[1])).items():
                    if (below, after) not in self._finish:
                        missing.append((below, after))
                        continue
                    rest = self._finish[below, after]
                    if rest is not None:
                        whole = (rest[0] + len(text), text, (below, after))
                        best = self._better(best, whole)
            if missing:
                stack += missing
            else:
                WORK.hold(250)
                self._finish[at] = best
                stack.pop()
        return self._finish[key]

    def _at_end(self, condition: int) -> _Rest | None:
        if self._rest.label(condition) >= 0:
            return (0, b"", None)
        best: _Rest | None = None
        for terminal in self._ignore:
            if self._lexer.terminals.starts[terminal] < 0:
                continue
            for after, text in self._lexer.exits.of(terminal, condition).items():
                if self._rest.label(after) >= 0:
                    best = self._better(best, (len(text), text, None))
        return best

    @staticmethod
    def _better(a: _Rest | None, b: _Rest | None) -> _Rest | None:
        if a is None or b is None:
            return b if a is None else a
        return b if b[:2] < a[:2] else a

    def _spell(self, found: _Rest) -> Text:
        return spelt(found, self._finish, self._spelt)

    # -- goals ------------------------------------------------------------------------------------

    def ends(self, source: _Source) -> dict[int, Text]:
        """For each condition that can hold when the goal ends: the fewest bytes until then."""
        if source not in self._ends:
            self._open(source)
            while self._todo:
                self._advance(*self._todo.popleft())
        return self._ends[source]

    def _open(self, source: _Source) -> None:
        self._ends[source] = {}
        self._callers[source] = {}
        self._reached[source] = {source: b""}
        self._todo.append((source, source))

    def _reach(self, source: _Source, at: tuple[int, int], text: Text) -> None:
        reached = self._reached[source]
        easier = reached.get((at[0], self._rest.anything))
        if easier is not None and len(easier) <= len(text):
            return
        known = reached.get(at)
        if known is None or len(text) < len(known):
            WORK.hold(250)
            reached[at] = text
            self._todo.append((source, at))

    def _advance(self, source: _Source, at: tuple[int, int]) -> None:
        goals, lexer = self._goals, self._lexer
        WORK.spend(4)
        state, condition = at
        text = self._reached[source][at]
        if state >= 0 and goals.accepts[state]:
            ends = self._ends[source]
            known = ends.get(condition)
            if known is None or len(text) < len(known):
                ends[condition] = text
                for caller, to, place in list(self._callers[source]):
                    self._reach(caller, (to, condition), put(self._reached[caller][place], text))
        edges = goals.edges(state) if state >= 0 else goals.start(~state)
        for symbol, to in edges.items():
            if symbol >= 0:
                for after, more in lexer.exits.of(symbol, condition).items():
                    self._reach(source, (to, after), put(text, more))
                continue
            inner = (symbol, condition)
            if inner not in self._ends:
                self._open(inner)
            self._callers[inner][source, to, at] = None
            for after, more in list(self._ends[inner].items()):
                self._reach(source, (to, after), put(text, more))
        if condition != self._rest.anything:
            # Only a condition makes it worth while to write what is ignored.
            for terminal in self._ignore:
                if lexer.terminals.starts[terminal] >= 0:
                    for after, more in lexer.exits.of(terminal, condition).items():
                        self._reach(source, (state, after), put(text, more))
