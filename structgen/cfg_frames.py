"""What one open goal does through a vocabulary's trie, whatever it is open in.

A walk of a place is put together from walks of its tops. A goal state's walk (`Frames.top`) reads
its own terminals and begins its own goals; it reports the tokens that end before the goal does, and
the trie nodes where the goal may end. What follows there is the continuation's business, so the
walk is shared by all stacks, and the beginning of a goal (`Frames.goal`) by all states that call
it. Right for grammars in which no demand leads to a dead end (`CfgMachine.is_free`): elsewhere what
a terminal may do depends on the whole stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .automaton.cfg_machine import CfgMachine
from .cfg_walks import Bits, Ids, Walk, Walks, merge

_END = 1 << 62  # no goal state's number


class FrameWalk(NamedTuple):
    """What a goal does from one node.

    Attributes:
        ids: tokens that end before the goal does, or exactly there; empty if ``bits`` is set.
        bits: the same as a packed mask, where they are many.
        closed: ``(condition, node)`` pairs where the goal ends, having read something.
    """

    ids: Ids
    bits: Bits | None
    closed: tuple[tuple[int, int], ...]


class Frames:
    """Walks of one machine's goals.

    Attributes:
        used: bytes held, about.
    """

    def __init__(self, machine: CfgMachine, walks: Walks, n_words: int) -> None:
        self.used = 0
        self._machine = machine
        self._goals = machine.stacks.goals
        self._walks = walks
        self._n_words = n_words
        self._found: dict[tuple[int, int, int], FrameWalk] = {}
        self._own: dict[int, tuple[dict[int, int], list[tuple[int, int]]]] = {}

    def clear(self) -> None:
        """Forget all walks."""
        self._found.clear()
        self.used = 0

    def top(self, state: int, condition: int, node: int) -> FrameWalk:
        """The walk of goal state ``state`` at ``node``, the text being bound by ``condition``."""
        key = (state, condition, node)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._top(state, condition, node)
            self._charge(found)
        return found

    def goal(self, goal: int, condition: int, node: int) -> FrameWalk:
        """The walk of a whole goal from ``node``."""
        key = (~goal, condition, node)
        found = self._found.get(key)
        if found is None:
            parts = _Parts()
            starts = self._goals.start(goal)
            self._read(frozenset(starts), starts, -1, condition, node, parts)
            found = self._found[key] = parts.walk(self._walks, self._n_words)
            self._charge(found)
        return found

    def end(self, condition: int, node: int) -> FrameWalk:
        """The walk of what may stand after the whole text: terminals that are ignored."""
        key = (_END, condition, node)
        found = self._found.get(key)
        if found is None:
            parts = _Parts()
            machine = self._machine
            q = machine.lexer.entry(machine.ignore, condition)
            if machine.lexer.n_bytes(q):
                walk = self._walks.walk(q, node)
                parts.add(walk)
                for outcome, at in walk.exits:
                    for after, _ in machine.lexer.outcomes[outcome]:
                        parts.add(self.end(after, at))
            found = self._found[key] = parts.walk(self._walks, self._n_words)
            self._charge(found)
        return found

    def _charge(self, walk: FrameWalk) -> None:
        self.used += 300 + walk.ids.nbytes + (0 if walk.bits is None else walk.bits.nbytes)

    def _top(self, state: int, condition: int, node: int) -> FrameWalk:
        own = self._own.get(state)
        if own is None:
            edges = self._goals.edges(state)
            terminals = {s: to for s, to in edges.items() if s >= 0}
            own = self._own[state] = (terminals, [(~s, to) for s, to in edges.items() if s < 0])
        terminals, calls = own
        parts = _Parts()
        ignore = self._machine.ignore
        self._read(ignore.union(terminals), terminals, state, condition, node, parts)
        for goal, to in calls:
            walk = self.goal(goal, condition, node)
            parts.add(walk)
            for after, at in walk.closed:
                self._go_on(to, after, at, parts)
        return parts.walk(self._walks, self._n_words)

    def _read(
        self,
        expected: frozenset[int],
        targets: dict[int, int],
        ignored: int,
        condition: int,
        node: int,
        parts: _Parts,
    ) -> None:
        """Walk some terminals, and go on in their targets (in ``ignored`` after ignored ones)."""
        lexer = self._machine.lexer
        q = lexer.entry(expected, condition)
        if not lexer.n_bytes(q):
            return
        walk = self._walks.walk(q, node)
        parts.add(walk)
        for outcome, at in walk.exits:
            for after, ended in lexer.outcomes[outcome]:
                for terminal in ended:
                    to = targets.get(terminal)
                    if to is not None:
                        self._go_on(to, after, at, parts)
                    if ignored >= 0 and terminal in self._machine.ignore:
                        parts.add(found := self.top(ignored, after, at))
                        parts.close(found.closed)
                        if self._goals.accepts[ignored]:
                            parts.close(((after, at),))

    def _go_on(self, state: int, condition: int, node: int, parts: _Parts) -> None:
        if not self._goals.is_final[state]:
            walk = self.top(state, condition, node)
            parts.add(walk)
            parts.close(walk.closed)
        if self._goals.accepts[state]:
            parts.close(((condition, node),))


class _Parts:
    """A walk being put together."""

    def __init__(self) -> None:
        self._walks: list[Walk | FrameWalk] = []
        self._closed: dict[int, dict[int, None]] = {}

    def add(self, walk: Walk | FrameWalk) -> None:
        """Add the tokens of a walk."""
        self._walks.append(walk)

    def close(self, closed: Iterable[tuple[int, int]]) -> None:
        """Add places where the goal ends."""
        for condition, node in closed:
            self._closed.setdefault(condition, {})[node] = None

    def walk(self, walks: Walks, n_words: int) -> FrameWalk:
        """The whole."""
        ids, bits = merge(self._walks, n_words)
        closed = tuple((w, walks.join(list(nodes))) for w, nodes in self._closed.items())
        return FrameWalk(ids, bits, closed)
