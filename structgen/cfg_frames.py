"""What one open goal does through a vocabulary's trie, whatever it is open in.

A walk of a place is put together from walks of its tops. A goal state's walk (`Frames.top`) reads
its own terminals and begins its own goals; it reports the tokens that end before the goal does, and
the trie nodes where the goal may end. What follows there is the continuation's business, so the
walk is shared by all stacks, and the beginning of a goal (`Frames.goal`) by all states that call
it. Terminals are walked one by one, so that places share them whatever else they expect; those that
are ignored are walked once for each node where a terminal ends (`Frames.spaced`), before anything
that follows. Right for grammars in which no demand leads to a dead end (`CfgMachine.is_free`):
elsewhere what a terminal may do depends on the whole stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .automaton.cfg_machine import CfgMachine
from .cfg_tokens import EMPTY, Bits, Ids, Walk, merge
from .cfg_walks import Walks

_Targets = list[tuple[int, int, int]]
"""First bytes of a terminal, as a mask; the terminal; the goal state after it."""

Spot = tuple[int, int]
"""What holds of the rest of the text, and a node."""


class FrameWalk(NamedTuple):
    """What a goal does from one node.

    Attributes:
        ids: tokens that end before the goal does, or exactly there; empty if ``bits`` is set.
        bits: the same as a packed mask, where they are many.
        closed: where the goal ends, having read something.
    """

    ids: Ids
    bits: Bits | None
    closed: tuple[Spot, ...]


class Frames:
    """Walks of one machine's goals.

    Attributes:
        used: bytes held, about.
    """

    def __init__(self, machine: CfgMachine, walks: Walks, n_words: int) -> None:
        self.used = 0
        self._machine = machine
        self._goals = machine.stacks.goals
        self._lexer = machine.lexer
        self._anything = machine.lexer.terminals.rest.anything
        self._walks = walks
        self._n_words = n_words
        self._nothing = FrameWalk(EMPTY, None, ())
        self._found: dict[tuple[int, int, int], FrameWalk] = {}
        self._spaces: dict[Spot, tuple[tuple[Walk, ...], tuple[Spot, ...]]] = {}
        # What is known of goal states: their terminals, the goals they call, and the bytes that
        # any of those begins with.
        self._own: dict[int, tuple[_Targets, list[tuple[int, int]], int]] = {}
        self._starts: dict[int, tuple[_Targets, int]] = {}
        self._entries: dict[Spot, int] = {}
        self._is_neutral: dict[int, bool] = {}
        self._ignored = tuple((self._first(t), t) for t in sorted(machine.ignore))

    def clear(self) -> None:
        """Forget all walks."""
        self._found.clear()
        self._spaces.clear()
        self.used = 0

    def top(self, state: int, condition: int, node: int) -> FrameWalk:
        """The walk of goal state ``state`` at ``node``, the text being bound by ``condition``."""
        terminals, calls, begins = self._own_of(state)
        available = self._walks.bytes_after(node, condition)
        if not begins & available:
            return self._nothing
        key = (state, condition, node)
        found = self._found.get(key)
        if found is None:
            parts = _Parts()
            self._read(terminals, condition, node, available, parts)
            for goal, to in calls:
                walk = self.goal(goal, condition, node)
                if walk is not self._nothing:
                    parts.walks[id(walk)] = walk
                    for after, at in walk.closed:
                        self._go_on(to, after, at, parts)
            found = self._keep(key, parts)
        return found

    def goal(self, goal: int, condition: int, node: int) -> FrameWalk:
        """The walk of a whole goal from ``node``."""
        targets, begins = self._start_of(goal)
        available = self._walks.bytes_after(node, condition)
        if not begins & available:
            return self._nothing
        key = (~goal, condition, node)
        found = self._found.get(key)
        if found is None:
            parts = _Parts()
            self._read(targets, condition, node, available, parts)
            found = self._keep(key, parts)
        return found

    def spaced(self, condition: int, node: int) -> tuple[tuple[Walk, ...], tuple[Spot, ...]]:
        """Walks of what is ignored from ``node`` on, and the spots where something may follow.

        The first of these is where it began.
        """
        key = (condition, node)
        found = self._spaces.get(key)
        if found is None:
            available = self._walks.bytes_after(node, condition)
            if any(first & available for first, _ in self._ignored):
                found = self._spaced(key)
            else:
                found = ((), (key,))
            self._spaces[key] = found
            self.used += 300
        return found

    def _spaced(self, begin: Spot) -> tuple[tuple[Walk, ...], tuple[Spot, ...]]:
        walks: dict[int, Walk] = {}
        spots: dict[int, list[int]] = {begin[0]: [begin[1]]}
        seen = {begin}
        for condition, node in (todo := [begin]):
            available = self._walks.bytes_after(node, condition)
            for first, terminal in self._ignored:
                if not first & available:
                    continue
                walk = self._walks.walk(self._entry(terminal, condition), node)
                walks[id(walk)] = walk
                for outcome, at in walk.exits:
                    for after, _ in self._lexer.outcomes[outcome]:
                        spot = (after, at)
                        if spot not in seen:
                            seen.add(spot)
                            todo.append(spot)
                            if self._is_no_matter(after):
                                after = self._anything
                            spots.setdefault(after, []).append(at)
        joined = tuple((w, self._walks.nodes.join(nodes)) for w, nodes in spots.items())
        return tuple(walks.values()), joined

    def _keep(self, key: tuple[int, int, int], parts: _Parts) -> FrameWalk:
        closed = tuple(
            (w, self._walks.nodes.join(list(nodes))) for w, nodes in parts.closed.items()
        )
        ids, bits = merge(parts.walks.values(), self._n_words)
        found = self._found[key] = FrameWalk(ids, bits, closed)
        self.used += 300 + ids.nbytes + (0 if bits is None else bits.nbytes)
        return found

    # -- goal states ------------------------------------------------------------------------------

    def _own_of(self, state: int) -> tuple[_Targets, list[tuple[int, int]], int]:
        found = self._own.get(state)
        if found is None:
            edges = self._goals.edges(state)
            terminals, begins = self._targets({s: to for s, to in edges.items() if s >= 0})
            calls = [(~s, to) for s, to in edges.items() if s < 0]
            for goal, _ in calls:
                begins |= self._start_of(goal)[1]
            found = self._own[state] = (terminals, calls, begins)
        return found

    def _start_of(self, goal: int) -> tuple[_Targets, int]:
        """The terminals that a goal begins with, and the bytes."""
        found = self._starts.get(goal)
        if found is None:
            found = self._starts[goal] = self._targets(self._goals.start(goal))
        return found

    def _targets(self, edges: dict[int, int]) -> tuple[_Targets, int]:
        targets = [(self._first(terminal), terminal, to) for terminal, to in edges.items()]
        begins = 0
        for first, _, _ in targets:
            begins |= first
        return targets, begins

    def _first(self, terminal: int) -> int:
        """The bytes that a terminal begins with."""
        return self._lexer.first_bytes(self._entry(terminal, self._anything))

    def _entry(self, terminal: int, condition: int) -> int:
        """The lexer state before one terminal."""
        key = (terminal, condition)
        found = self._entries.get(key)
        if found is None:
            if condition != self._anything and self._lexer.is_free_of(terminal, condition):
                found = self._entry(terminal, self._anything)
            else:
                found = self._lexer.entry(frozenset((terminal,)), condition)
            self._entries[key] = found
        return found

    def _is_no_matter(self, condition: int) -> bool:
        """Whether whatever may follow what is ignored meets a condition at once."""
        found = self._is_neutral.get(condition)
        if found is None:
            lexer, ignore = self._lexer, self._machine.ignore
            found = condition == self._anything or all(
                lexer.is_free_of(t, condition)
                for t, start in enumerate(lexer.terminals.starts)
                if start >= 0 and t not in ignore
            )
            self._is_neutral[condition] = found
        return found

    # -- walks ------------------------------------------------------------------------------------

    def _read(
        self, targets: _Targets, condition: int, node: int, available: int, parts: _Parts
    ) -> None:
        """Walk some terminals, and go on in their targets."""
        walk_of, outcomes = self._walks.walk, self._lexer.outcomes
        ended: dict[tuple[int, int], list[int]] = {}
        for first, terminal, to in targets:
            if first & available:
                walk = walk_of(self._entry(terminal, condition), node)
                parts.walks[id(walk)] = walk
                for outcome, at in walk.exits:
                    for after, _ in outcomes[outcome]:
                        ended.setdefault((to, after), []).append(at)
        for (to, after), nodes in ended.items():
            spaces, spots = self.spaced(after, self._walks.nodes.join(nodes))
            for space in spaces:
                parts.walks[id(space)] = space
            for then, at in spots:
                self._go_on(to, then, at, parts)

    def _go_on(self, state: int, condition: int, node: int, parts: _Parts) -> None:
        if not self._goals.is_final[state]:
            walk = self.top(state, condition, node)
            if walk is not self._nothing:
                parts.walks[id(walk)] = walk
                parts.close(walk.closed)
        if self._goals.accepts[state]:
            parts.close(((condition, node),))


class _Parts:
    """A walk being put together."""

    def __init__(self) -> None:
        self.walks: dict[int, Walk | FrameWalk] = {}
        self.closed: dict[int, dict[int, None]] = {}

    def close(self, closed: Iterable[Spot]) -> None:
        """Add places where the goal ends."""
        for condition, node in closed:
            self.closed.setdefault(condition, {})[node] = None
