"""Read grammars byte by byte: a `Machine` in which some frames are grammars.

It keeps the number of states low: places reached at the same time are merged. Inside a token it
makes no states, and begins only what the next byte can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from structgen.automaton.core.frames import Alternative, TextHistory
from structgen.automaton.core.leaf import GROW, Leaf
from structgen.automaton.core.machine import Machine
from structgen.automaton.core.stacks import (
    ACCEPT,
    BOTTOM,
    DEAD,
    LEAF_BITS,
    LEAF_MASK,
    PENDING,
    STATE_MASK,
    TOP_BITS,
    pack,
)
from structgen.automaton.texts import Text, put
from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir

from .embedded_terminals import LimitedLeaf, SamplingFrame
from .frame import CfgFrame
from .lexer import Lexer

_START = 1
"""The start state of every grammar."""

_MOST_NAMED = 3


_WORTH_KEEPING = 10
"""Results of grammars with fewer rules are not stored in a file."""


class GrammarFacts(Protocol):
    """A store of results about grammars that outlives processes.

    `structgen.grammar.cfg.cache` is one, on disk.
    """

    def fingerprint(self, grammar: ir.ContextFree) -> str | None:
        """Return a key of the grammar; None if nothing is stored for it."""

    def find_flag(self, name: str, of: str) -> bool | None:
        """Return a stored flag of the grammar with key ``of``; None if not stored."""

    def keep_flag(self, name: str, of: str, holds: bool) -> None:
        """Store a flag for `find_flag`."""


class CfgMachine(Machine):
    """A `Machine` in which some frames are grammars.

    Args:
        start: the alternatives with which a text may start; or a grammar for the whole text.
    """

    rules: CfgFrame | None
    _make: Callable[[], CfgMachine]

    def __init__(self, start: tuple[Alternative, ...] | CfgFrame) -> None:
        self.rules = None
        if isinstance(start, CfgFrame):
            self.rules, self.languages = start, (start,)
            start = start.open()
        # (frame, condition, continuation below) → places reached since the last state was made
        self._reached: dict[tuple[CfgFrame, int, int], dict[int, None]] = {}
        self._next = -1  # the next byte, if known
        super().__init__(start)

    @classmethod
    def of(
        cls, grammar: ir.ContextFree, chars: ir.CharSet, facts: GrammarFacts | None = None
    ) -> CfgMachine:
        """Return the machine of a grammar alone.

        If a process has built the grammar without errors before, it is built on first use: the
        first mask is read from disk and needs no automata.

        Args:
            grammar: the grammar.
            chars: the code points that may be written.
            facts: the stored results of other processes; None: no store.
        """
        of = None if facts is None else facts.fingerprint(grammar)
        if facts is None or of is None:
            return cls(CfgFrame(grammar, chars))
        of = f"{of} {chars.ranges}"
        is_worth_it = len(grammar.rules) >= _WORTH_KEEPING
        is_free = facts.find_flag("is free", of) if is_worth_it else None
        if is_free is None:
            rules = CfgFrame(grammar, chars)
            if is_worth_it:
                facts.keep_flag("is free", of, rules.is_free)
            found = cls(rules)
        else:
            found = cls.__new__(cls)
            found.start = _START
            found._make = lambda: cls(CfgFrame(grammar, chars, is_free=is_free))
        found.fingerprint = of
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what a machine has, when it is first asked for."""
            if name.startswith("__") or "states" in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            with GROW:
                if "states" not in self.__dict__:  # otherwise another thread was first
                    made = self._make()
                    self.__dict__.update(made.__dict__)
                    made.languages = ()
            return getattr(self, name)

    @property
    def n_states(self) -> int:
        """The number of states reached; 0 if only the first mask has been used."""
        return len(self.states) if "states" in self.__dict__ else 0

    @property
    def weight(self) -> int:
        """See `Machine.weight`."""
        if not self.n_states:
            return 0
        # Places are smaller than the plans of other frames.
        places = sum([isinstance(frame, CfgFrame) for frame, _ in self.stacks.frames])
        return super().weight - 7500 * places

    def _resume_link(
        self, link: tuple[int, int], depth: int, outcome: int, found: set[int]
    ) -> None:
        frame, at = self.stacks.frames[link[0]]
        if not isinstance(frame, CfgFrame):
            super()._resume_link(link, depth, outcome, found)
            return
        place, lexer, following = at >> 1, frame.lexer, self._next
        if at & 1:
            anything = lexer.terminals.lookahead.anything
            self._reached.setdefault((frame, anything, link[1]), {})[place] = None
            return
        for condition, terminals in lexer.outcomes[outcome]:
            # The last terminal puts no condition on what follows the whole text.
            if following < 0 or link[1] != BOTTOM or lexer.mask_under(condition) >> following & 1:
                after = frame.after(place, terminals)
                self._reached.setdefault((frame, condition, link[1]), {})[after] = None

    # Report the reached places every time.

    def _following(self, continuation: int, outcome: int) -> Collection[int]:
        found: set[int] = set()
        self._resume(continuation, outcome, found)
        return found

    def _only_way(self, continuation: int, outcome: int) -> None:
        return None

    def _may_end_before(self, continuation: int, outcome: int, byte: int) -> bool:
        return True

    def _intern(self, found: set[int]) -> int:
        self._begin_reached(found)
        return super()._intern(found)

    def _begin_reached(self, found: set[int]) -> None:
        """Add the configurations after the terminals that have ended."""
        while self._reached:
            (frame, condition, below), places = self._reached.popitem()
            place = frame.union(tuple(places))
            self._enter(frame.begin(place, condition), below, found)

    def _advance(self, configurations: Iterable[int], byte: int, following: int = -1) -> set[int]:
        """Return the configurations after ``byte``; if ``following`` is given, only those that may
        continue with it."""
        # Drop what an error left behind in the middle of a state.
        self._reached.clear()
        self._next = following
        found: set[int] = set()
        for configuration in configurations:
            leaf = configuration & LEAF_MASK
            if leaf != PENDING:
                to = self.leaves[leaf].step(configuration >> LEAF_BITS & STATE_MASK, byte)
                if to >= 0:
                    self._arrive(leaf, to, configuration >> TOP_BITS, found)
        self._begin_reached(found)
        self._next = -1
        return found

    def read(self, state: int, data: bytes, start: int = 0) -> tuple[int, int]:
        """See `Machine.read`."""
        with GROW:
            configurations: Collection[int] = self.states[state]
            before, i, end = 0, start, len(data)
            while i < end:
                if len(configurations) == 1:
                    (only,) = configurations
                    leaf = only & LEAF_MASK
                    automaton = None if leaf == PENDING else self.leaves[leaf]
                    q = only >> LEAF_BITS & STATE_MASK
                    if isinstance(automaton, Lexer):
                        if only == before:
                            # A terminal that may end here continues as before, up to the last byte
                            # without a choice.
                            i = max(i, end - len(data[i:].lstrip(automaton.staying(q))) - 1)
                        else:
                            # The usual case: the terminal continues, and cannot end.
                            to, i = automaton.run(q, data, i)
                            if to != q:
                                only += to - q << LEAF_BITS
                                configurations = (only,)
                            if i == end:
                                return self._interned.lone(leaf, to, only >> TOP_BITS), end
                        before = only
                    elif automaton is not None:
                        self._reached.clear()
                        state, i = self._read_alone(only, data, i, state if i == start else -1)
                        if state == DEAD or state in self.pending:
                            return state, i
                        configurations = self.states[state]
                        if i == end:
                            return state, end
                        continue
                found = self._advance(configurations, data[i], data[i + 1] if i + 1 < end else -1)
                i += 1
                if len(found) > 1:
                    found = self._interned.merged(found)
                if i == end or [c for c in found if c & LEAF_MASK == PENDING and c != ACCEPT]:
                    return self._intern(found), i
                configurations = found
            return state, end

    def _grow(self, state: int, byte: int) -> int:
        with GROW:
            result = self._intern(self._advance(self.states[state], byte))
            self._steps[state << 8 | byte] = result
            return result

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

    def union(self, states: Iterable[int]) -> int:
        """Return the state that is the union of states."""
        with GROW:
            self._reached.clear()
            return self._intern({c for state in states for c in self.states[state]})

    def is_limited(self, state: int) -> bool:
        """Return whether a rule that is open, or may begin, has a token limit."""
        return any(
            isinstance(self.leaves[leaf], LimitedLeaf) for leaf, *_ in self.configurations(state)
        )

    def token_end(self, state: int) -> int:
        """Return the state after a token whose bytes lead to ``state``: rules with a token limit
        have one token less."""
        if not self.is_limited(state):
            return state
        with GROW:
            found: set[int] = set(self.states[state])
            for leaf, q, continuation in self.configurations(state):
                limited = self.leaves[leaf]
                if isinstance(limited, LimitedLeaf):
                    found.discard(pack(leaf, q, continuation))
                    to = limited.token_end(q)
                    if to >= 0:
                        found.add(pack(leaf, to, continuation))
            return self._interned.intern(found)

    def temperature(self, state: int) -> float | None:
        """Return the highest temperature of rules that are open or may begin, if any."""
        found: list[float] = []
        stacks = self.stacks
        todo = [continuation for *_, continuation in self.configurations(state)]
        seen = set(todo)
        while todo:
            for frame_id, below in stacks.continuations[todo.pop()]:
                frame, _ = stacks.frames[frame_id]
                if isinstance(frame, SamplingFrame):
                    found.append(frame.temperature)
                elif not isinstance(frame, CfgFrame) and below not in seen:
                    seen.add(below)
                    todo.append(below)
        return max(found, default=None)

    def placed(self, error: CompileLimitExceeded, state: int) -> CompileLimitExceeded:
        """See `Machine.placed`; in a grammar, with the open rules."""
        if error.path is not None or not self.n_states:
            return error
        rules: dict[str, None] = {}
        for _, _, continuation in self.configurations(state):
            for frame_id, _ in self.stacks.continuations[continuation]:
                frame, at = self.stacks.frames[frame_id]
                if isinstance(frame, CfgFrame):
                    rules.update(dict.fromkeys(frame.rules_at(at)))
        if rules:
            return error.at(f"rule {', '.join([*rules][:_MOST_NAMED])}")
        return super().placed(error, state)

    def completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None = None
    ) -> Text | None:
        """See `Machine.completion`; from a terminal, the grammar knows a shorter way."""
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
