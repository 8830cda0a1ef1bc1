"""The shortest way to the end of a text, and whether there is one.

What a goal needs is computed once for all stacks: for a goal state and a condition on the rest, the
fewest bytes that end the goal, for each condition that may hold afterwards. These summaries are a
least fixpoint over the goal automata (Knuth 1977), grown by a worklist as they are asked for. A
stack is then finished goal by goal (`rests`).

Conditions matter: after ``NAME`` another ``NAME`` cannot follow at once, and in a grammar without
anything to put between them that can be a dead end. Where `neighbours` cannot rule that out,
this module has the last word.
"""

from __future__ import annotations

from collections import deque

from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK

from .lexer import Lexer
from .nonterminals import NonterminalAutomata
from .rests import Rest, Rests, better
from .stacks import Stacks

_Source = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the condition there."""


class ConditionalEnds:
    """The fewest bytes that end the goals of one grammar, for each condition on the rest.

    Args:
        goals: the goals.
        lexer: the terminals.
        ignore: terminals that may stand anywhere.
    """

    def __init__(self, goals: NonterminalAutomata, lexer: Lexer, ignore: tuple[int, ...]) -> None:
        self._goals = goals
        self._lexer = lexer
        self._ignore = ignore
        self._rest = lexer.terminals.rest
        self._reached: dict[_Source, dict[tuple[int, int], Text]] = {}
        self._ends: dict[_Source, dict[int, Text]] = {}
        self._callers: dict[_Source, dict[tuple[_Source, int, tuple[int, int]], None]] = {}
        self._todo: deque[tuple[_Source, tuple[int, int]]] = deque()

    def at_end(self, condition: int) -> Rest | None:
        """What may still stand where all goals have ended, if any of it meets the condition."""
        if self._rest.label(condition) >= 0:
            return (0, b"", None)
        best: Rest | None = None
        for terminal in self._ignore:
            if self._lexer.terminals.starts[terminal] < 0:
                continue
            for after, text in self._lexer.exits.of(terminal, condition).items():
                if self._rest.label(after) >= 0:
                    best = better(best, (len(text), text, None))
        return best

    def of(self, source: _Source) -> dict[int, Text]:
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


class Completion:
    """Shortest completions in one grammar.

    Args:
        stacks: the places.
        lexer: the terminals.
        ignore: terminals that may stand anywhere.
    """

    def __init__(self, stacks: Stacks, lexer: Lexer, ignore: tuple[int, ...]) -> None:
        ends = ConditionalEnds(stacks.goals, lexer, ignore)
        self._rests = Rests(stacks, ends.of, ends.at_end)

    def of_place(self, place: int, condition: int) -> Text | None:
        """The fewest bytes that finish from ``place``, or None when there is no way."""
        found = self._rests.of_place(place, condition)
        return None if found is None else self._rests.text(found)

    def is_possible(self, place: int, condition: int) -> bool:
        """Whether a text can be finished from ``place``."""
        return self._rests.of_place(place, condition) is not None
