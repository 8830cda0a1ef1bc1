"""Hash-consed stacks of frames, and states: each an integer.

A *continuation* (`Stacks`) represents the open frames as a set of links, each a frame over another
continuation. Stacks that differ only at the bottom share their upper part (a graph-structured
stack: Tomita 1986). So the number of continuations depends on the schema, not on the depth of the
text.

A state (`States`) is an interned set of configurations, each a leaf in some state over a
continuation. Nearly all states have one configuration, whose number they use. Configurations that
differ only below their leaf are merged. `machine` has the transitions between states.
"""

from __future__ import annotations

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, check_limit
from structgen.storage import Numbers

from .frames import Frame
from .leaf import Leaf

BOTTOM = 0
"""The empty continuation: the text may end here."""

_LINK_BITS = 32


class Stacks:
    """The continuations that have been reached.

    Attributes:
        frames: by number, each with its own state.
        continuations: the links of each, as pairs of numbers: a frame, and the continuation below
            it.
        depths: the number of nesting frames, the same in all stacks of a continuation.
    """

    def __init__(self) -> None:
        self._frame_ids: Numbers[tuple[Frame, int]] = Numbers()
        self.frames = self._frame_ids.listed
        self.continuations: list[tuple[tuple[int, int], ...]] = [()]
        self.depths: list[int] = [0]
        self._continuation_ids: dict[tuple[tuple[int, int], ...], int] = {}  # several links
        self._over_ids: dict[int, int] = {}  # of one
        self._unions: dict[tuple[int, int], int] = {}

    def push(self, frames: tuple[tuple[Frame, int], ...], below: int) -> int:
        """Return the continuation with ``frames`` (top first) over ``below``."""
        for pushed in reversed(frames):
            below = self.over(self._frame_ids[pushed], below)
        return below

    def union(self, a: int, b: int) -> int:
        """Return the continuation with all stacks of ``a`` and ``b``, neither of which is empty."""
        if a == b:
            return a
        key = (a, b) if a < b else (b, a)
        found = self._unions.get(key)
        if found is None:
            WORK.spend(2)
            belows: dict[int, int] = {}
            links: set[tuple[int, int]] = set()
            for frame_id, below in (*self.continuations[a], *self.continuations[b]):
                if below == BOTTOM:
                    links.add((frame_id, below))
                    continue
                known = belows.get(frame_id)
                belows[frame_id] = below if known is None else self.union(known, below)
            found = self._unions[key] = self._continuation((*sorted({*links, *belows.items()}),))
        return found

    def _continuation(self, links: tuple[tuple[int, int], ...]) -> int:
        if len(links) == 1:
            return self.over(*links[0])
        found = self._continuation_ids.get(links)
        if found is None:
            WORK.spend(1 + (len(links) >> 2))
            WORK.hold(80 * len(links))
            found = self._continuation_ids[links] = len(self.continuations)
            frame_id, below = links[0]
            self.depths.append(self.depths[below] + self.frames[frame_id][0].nests)
            self.continuations.append(links)
        return found

    def over(self, frame_id: int, below: int) -> int:
        """Return the continuation that is a single link."""
        key = below << _LINK_BITS | frame_id
        found = self._over_ids.get(key)
        if found is None:
            found = self._over_ids[key] = len(self.continuations)
            self.depths.append(self.depths[below] + self.frames[frame_id][0].nests)
            self.continuations.append(((frame_id, below),))
        return found


DEAD = 0
"""The state that accepts nothing: state 0 of every machine."""

MAX_STATES = 2_000_000
MAX_CONFIGURATIONS = 20_000
"""The most states of a machine, and the most configurations of a state."""

LEAF_BITS = 24
STATE_BITS = 32
LEAF_MASK = (1 << LEAF_BITS) - 1
STATE_MASK = (1 << STATE_BITS) - 1
TOP_BITS = LEAF_BITS + STATE_BITS
_TOP_MASK = (1 << TOP_BITS) - 1
ACCEPT = -1
PENDING = LEAF_MASK
"""Leaf number of a configuration that waits for the text that led to it."""


class States:
    """The states that have been reached.

    Attributes:
        leaves: by number.
        states: the configurations of each, ascending.
        accepting: the states in which the text may end.
        pending: the states that wait for the text that led to them.
        alone: for each configuration, the state of it plus what may follow it there.
    """

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self.leaves: list[Leaf] = []
        self._leaf_ids: dict[int, int] = {}
        self.states: list[tuple[int, ...]] = [()]
        self._state_ids: dict[tuple[int, ...], int] = {(): DEAD}  # states that are not in `alone`
        # A set, because few states are: a list would cost an item for every new state.
        self.accepting: set[int] = set()
        self.pending: set[int] = set()
        # States of one configuration need no other key.
        self.alone: dict[int, int] = {}

    def leaf_id(self, leaf: Leaf) -> int:
        """Return this machine's number for ``leaf``."""
        found = self._leaf_ids.get(leaf.number)
        if found is None:
            found = self._leaf_ids[leaf.number] = len(self.leaves)
            self.leaves.append(leaf)
        return found

    def intern(self, found: set[int]) -> int:
        """Return the state of some configurations."""
        if len(found) > 1:
            found = self.merged(found)
        if len(found) == 1:
            (only,) = found
            leaf, q = only & LEAF_MASK, only >> LEAF_BITS & STATE_MASK
            if leaf != PENDING and self.leaves[leaf].labels[q] < 0:
                return self.lone(leaf, q, only >> TOP_BITS)
            return self._interned((only,))
        check_limit(len(found), MAX_CONFIGURATIONS, "too many alternatives are open at once")
        return self._interned((*sorted(found),))

    def lone(self, leaf: int, q: int, continuation: int) -> int:
        """Return the state of one configuration inside its leaf."""
        alone = (continuation << STATE_BITS | q) << LEAF_BITS | leaf
        state = self.alone.get(alone)
        if state is None:
            WORK.left -= 1
            if WORK.left < 0:
                raise WORK.too_much()
            state = len(self.states)
            if state > MAX_STATES:
                raise _too_many_states(state)
            self.states.append((alone,))
            self.alone[alone] = state
        return state

    def _interned(self, key: tuple[int, ...]) -> int:
        """Return the state of the ascending configurations in ``key``, not all in one leaf."""
        state = self._state_ids.get(key)
        if state is None:
            WORK.spend(1 + (len(key) >> 2))
            WORK.hold(40 * len(key))
            state = len(self.states)
            if state > MAX_STATES:
                raise _too_many_states(state)
            self.states.append(key)
            self._state_ids[key] = state
            for configuration in key:
                if configuration == ACCEPT:
                    self.accepting.add(state)
                elif configuration & LEAF_MASK == PENDING:
                    self.pending.add(state)
        return state

    def merged(self, found: set[int]) -> set[int]:
        """Return ``found`` with configurations merged that differ only in their continuations."""
        if len(found) == 2:
            first, second = found
            if (first ^ second) & _TOP_MASK:
                return found
        tops: dict[int, int] = {}
        out: set[int] = set()
        for configuration in found:
            continuation = configuration >> TOP_BITS
            if configuration == ACCEPT or continuation == BOTTOM:
                out.add(configuration)
                continue
            top = configuration & _TOP_MASK
            known = tops.get(top)
            tops[top] = continuation if known is None else self._stacks.union(known, continuation)
        out.update(continuation << TOP_BITS | top for top, continuation in tops.items())
        return out


def _too_many_states(actual: int) -> CompileLimitExceeded:
    return CompileLimitExceeded("too many automaton states", limit=MAX_STATES, actual=actual)


def pack(leaf: int, q: int, continuation: int) -> int:
    """Return one integer for a configuration."""
    return (continuation << STATE_BITS | q) << LEAF_BITS | leaf


def unpack(configuration: int) -> tuple[int, int, int]:
    """Return the ``(leaf id, leaf state, continuation)`` of a configuration."""
    rest = configuration >> LEAF_BITS
    return configuration & LEAF_MASK, rest & STATE_MASK, rest >> STATE_BITS
