"""Grammars inside a `Machine`: beside other output types, and with such types inside them.

`CfgMachine` is the faster recogniser of a grammar by itself. Here the same rules are a frame: its
state is a place in the grammar, its leaf the lexer, and a terminal that is no pattern
(`EmbeddedTerminal`) is whatever leaf and frames its texts start with, pushed on top. So JSON inside
a grammar is JSON as ever, down to what depends on the text so far.

`EmbeddingMachine` adds what a grammar needs for its states not to multiply: places reached at once
are one place.
"""

from __future__ import annotations

from collections.abc import Collection

from structgen.automaton.core.frames import POP, Alternative, Frame, TextHistory
from structgen.automaton.core.leaf import GROW, Leaf
from structgen.automaton.core.machine import Machine
from structgen.automaton.schema.nesting import UNLIMITED
from structgen.automaton.texts import Text, put

from .embedded_terminals import EmbeddedTerminal, GuardedLeaf, NamedTokenLeaf
from .lexer import Lexer
from .machine import CfgMachine


class CfgFrame(Frame):
    """The open text of a grammar.

    ``at`` is ``2 * place``, 1 more while an embedded terminal is written: the place is then the one
    after it.

    Args:
        cfg: the grammar.
    """

    nests = False
    limit = UNLIMITED

    def __init__(self, cfg: CfgMachine) -> None:
        self.cfg = cfg
        self._lookahead = cfg.lexer.terminals.lookahead
        self._begun: dict[tuple[int, int], tuple[Alternative, ...]] = {}
        self._guards: dict[tuple[int, int], tuple[Alternative, ...]] = {}

    def release(self) -> None:
        """Let go of all that refers back to the frame, see `machine.Machine.languages`."""
        self._begun.clear()
        self._guards.clear()

    def open(self) -> tuple[Alternative, ...]:
        """How a text may start."""
        return self.begin(self.cfg.graph.start, self._lookahead.anything)

    def begin(self, place: int, condition: int) -> tuple[Alternative, ...]:
        """What may come at a place: its terminals, or the end of the text."""
        found = self._begun.get((place, condition))
        if found is None:
            cfg = self.cfg
            ways: list[Alternative] = []
            if cfg.graph.accepting[place] and self._lookahead.label(condition) >= 0:
                ways += POP
            q = cfg.entry(place, condition)
            if q >= 0:
                ways.append(Alternative(cfg.lexer, q, ((self, 2 * place),)))
            for terminal, after in cfg.embedded_at(place, condition):
                below = (self, 2 * after + 1)
                ways += [
                    Alternative(way.leaf, way.q, (*way.frames, below))
                    for way in self._ways(terminal, condition)
                ]
            found = self._begun[place, condition] = tuple(ways)
        return found

    def _ways(self, terminal: int, condition: int) -> tuple[Alternative, ...]:
        """How an embedded terminal starts under a condition."""
        inner: EmbeddedTerminal = self.cfg.embedded[terminal]
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
                leaf = GuardedLeaf(
                    way.leaf, way.q, self._lookahead, condition, self.cfg.lexer.encoding
                )
                if leaf.goes_on(leaf.start):
                    ways.append(Alternative(leaf, leaf.start, way.frames))
            found = self._guards[terminal, condition] = tuple(ways)
        return found

    def arrivals(self, at: int, outcome: int) -> list[tuple[int, int]]:
        """The ``(place, condition)`` pairs that ``outcome`` of the leaf above leads to."""
        place = at >> 1
        if at & 1:
            return [(place, self._lookahead.anything)]
        return [
            (self.cfg.after(place, terminals), condition)
            for condition, terminals in self.cfg.lexer.outcomes[outcome]
        ]

    def complete(self, q: int, at: int) -> Text | None:
        """A short way to the end of the text from lexer state ``q``."""
        return self.cfg.complete(q, at >> 1)

    # -- see `frames.Frame` ----------------------------------------------------------------------

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        arrivals = self.arrivals(at, outcome)
        return tuple(way for arrival in arrivals for way in self.begin(*arrival))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        ways = [self.cfg.complete_place(*arrival) for arrival in self.arrivals(at, outcome)]
        known = [way for way in ways if way is not None]
        return min(known, key=lambda way: (len(way), way), default=None)


class EmbeddingMachine(Machine):
    """A `Machine` in which some frames are grammars."""

    def __init__(self, start: tuple[Alternative, ...]) -> None:
        # (frame, condition, continuation below) → places reached since the last state was made
        self._reached: dict[tuple[CfgFrame, int, int], dict[int, None]] = {}
        super().__init__(start)

    def _resume_link(
        self, link: tuple[int, int], depth: int, outcome: int, found: set[int]
    ) -> None:
        frame, at = self.stacks.frames[link[0]]
        if not isinstance(frame, CfgFrame):
            super()._resume_link(link, depth, outcome, found)
            return
        for place, condition in frame.arrivals(at, outcome):
            self._reached.setdefault((frame, condition, link[1]), {})[place] = None

    # What has been reached has to be told of every time.

    def _following(self, continuation: int, outcome: int) -> Collection[int]:
        found: set[int] = set()
        self._resume(continuation, outcome, found)
        return found

    def _only_way(self, continuation: int, outcome: int) -> None:
        return None

    def _may_end_before(self, continuation: int, outcome: int, byte: int) -> bool:
        return True

    def _intern(self, found: set[int]) -> int:
        while self._reached:
            (frame, condition, below), places = self._reached.popitem()
            place = frame.cfg.union(tuple(places))
            self._enter(frame.begin(place, condition), below, found)
        return super()._intern(found)

    # What an error left behind in the middle of a state belongs to no other.

    def read(self, state: int, data: bytes, start: int = 0) -> tuple[int, int]:
        """See `Machine.read`."""
        with GROW:
            self._reached.clear()
            return super().read(state, data, start)

    def _grow(self, state: int, byte: int) -> int:
        with GROW:
            self._reached.clear()
            return super()._grow(state, byte)

    def resolve(self, state: int, tape: TextHistory) -> int:
        """See `Machine.resolve`."""
        with GROW:
            self._reached.clear()
            return super().resolve(state, tape)

    def state_of(self, leaf: Leaf, q: int, continuation: int) -> int:
        """See `Machine.state_of`."""
        with GROW:
            self._reached.clear()
            return super().state_of(leaf, q, continuation)

    def completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None = None
    ) -> Text | None:
        """See `Machine.completion`: from a terminal, the grammar knows a shorter way."""
        if not isinstance(leaf, Lexer):
            return super().completion(leaf, q, continuation, tape)
        ways: list[Text] = []
        for frame_id, below in self.stacks.continuations[continuation]:
            frame, at = self.stacks.frames[frame_id]
            assert isinstance(frame, CfgFrame)
            way, rest = frame.complete(q, at), self.completions.rest(below)
            if way is not None and rest is not None:
                ways.append(put(way, rest))
        return min(ways, key=lambda way: (len(way), way), default=None)
