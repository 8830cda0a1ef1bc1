"""The pushdown recogniser: leaf automata over hash-consed continuations, lazily determinised.

A configuration is a leaf in some state over a *continuation* (`stacks`), the open frames below it.
When the leaf may end with an outcome, `Frame.resume` of the top frames gives alternatives, each a
new leaf and the frames to push. A machine state is the interned set of configurations that the
bytes so far can lead to. Configurations, continuations and states are integers. Transitions are in
one flat dict. States are made when first reached.

A few frames (unique items, distinct keys) continue differently after different texts. Such a place
is a *pending* configuration. `Machine.resolve` replaces it, given the text, before the next byte is
read.

`Completions` finds short ways to the end of a text; the result is deterministic. The machine knows
neither JSON nor tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

from structgen.automaton.texts import Text, flat, joined, put
from structgen.errors import CompileLimitExceeded

from .frames import Alternative, Frame, NeedsText, Released, TextHistory
from .leaf import ENDED, GROW, Leaf
from .stacks import (
    ACCEPT,
    BOTTOM,
    DEAD,
    LEAF_BITS,
    LEAF_MASK,
    PENDING,
    STATE_BITS,
    STATE_MASK,
    TOP_BITS,
    Stacks,
    States,
    pack,
    unpack,
)


class AnyText(TextHistory):
    """Stands in for a `TextHistory`: any text in which no recorded value is in ``seen``.

    Attributes:
        seen: values that the completion made with it compares. Recording a value that is none of
            them, nor a part of one, does not change the completion.
    """

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []


class Completions:
    """Completions over the stacks that have been reached.

    Args:
        frames, continuations: those of `Stacks`, which keep growing.
    """

    def __init__(
        self, frames: list[tuple[Frame, int]], continuations: list[tuple[tuple[int, int], ...]]
    ) -> None:
        self._frames = frames
        self._continuations = continuations
        # upper bound of the bytes that close a continuation after an outcome
        self._most_closing: dict[tuple[int, int], int | None] = {(BOTTOM, 0): 0}

    def completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None = None
    ) -> Text | None:
        """Return bytes that end the text from one configuration; None if it cannot end."""
        best = self._completion(leaf, q, continuation, tape, None)
        # The nearest end of the leaf may lead to a long continuation. So the frame's own choice
        # counts, too, and no completion is longer than `finish` promised.
        for frame_id, _ in self._continuations[continuation]:
            frame, at = self._frames[frame_id]
            wanted = frame.preferred(at)
            if wanted is not None:
                best = _shorter(best, self._completion(leaf, q, continuation, tape, wanted))
        return best

    def _completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None, wanted: int | None
    ) -> Text | None:
        shortest = leaf.shortest(q, wanted)
        if shortest is None:
            return None
        return self._close(continuation, shortest[1], shortest[0], tape)

    def _close(
        self, continuation: int, outcome: int, out: Text, tape: TextHistory | None
    ) -> Text | None:
        """Return ``out`` plus the bytes that close every frame of ``continuation``.

        These are the fewest that the frames offer. Where they depend on the text so far, each frame
        in turn takes the fewest bytes for itself.
        """
        if tape is None:
            best: Text | None = out if continuation == BOTTOM else None
            for frame_id, below in self._continuations[continuation]:
                rest = self.rest(below)
                own = None if rest is None else self._finish_frame(frame_id, outcome, out, None)
                if rest is not None and own is not None:
                    best = _shorter(best, put(own, rest))
            return best
        todo = [(out, continuation)]
        while todo:
            out, continuation = todo.pop()
            if continuation == BOTTOM:
                return out
            ways: list[tuple[Text, int]] = []
            for frame_id, below in self._continuations[continuation]:
                own = self._finish_frame(frame_id, outcome, out, tape)
                if own is not None:
                    ways.append((own, below))
            todo += sorted(ways, key=lambda way: (len(way[0]), way), reverse=True)
            outcome = 0
        return None

    def most_bytes(
        self, leaf: Leaf, q: int, continuation: int, wanted: int | None = None
    ) -> int | None:
        """Return an upper bound on the bytes of `completion`, whatever the text so far; None if
        unknown.

        ``wanted``: the outcome with which the leaf ends, None for any.
        """
        shortest = leaf.shortest(q, wanted)
        if shortest is None:
            return None
        rest = self._most_below(continuation, shortest[1])
        return None if rest is None else len(shortest[0]) + rest

    def _most_below(self, continuation: int, outcome: int) -> int | None:
        """Return an upper bound on the bytes that close every frame of ``continuation`` after
        ``outcome``."""
        known = self._most_closing
        todo = [] if (continuation, outcome) in known else [(continuation, outcome)]
        while todo:
            here, last = todo[-1]
            links = self._continuations[here]
            missing = [(below, 0) for _, below in links if (below, 0) not in known]
            if missing:
                todo += missing
                continue
            todo.pop()
            most: int | None = 0
            for frame_id, below in links:
                frame, at = self._frames[frame_id]
                if frame.records(at, last) and frame.finish_reads(at, last):
                    own = frame.finish_most(at, last)
                else:
                    text = frame.finish(at, last)
                    own = None if text is None else len(text)
                rest = known[below, 0]
                if own is None or rest is None:
                    most = None
                    break
                most = max(most or 0, own + rest)
            known[here, last] = most
        return known[continuation, outcome]

    def rest(self, continuation: int) -> Text | None:
        """Return the fewest bytes that close ``continuation`` after outcome 0, over all stacks."""
        # continuation → (bytes in all, those for its own frame, the continuation then)
        known: dict[int, tuple[int, Text, int] | None] = {BOTTOM: (0, b"", BOTTOM)}
        todo = [continuation]
        while todo:
            links = self._continuations[todo[-1]]
            missing = [below for _, below in links if below not in known]
            if missing:
                todo += missing
                continue
            ways: list[tuple[int, Text, int]] = []
            for frame_id, below in links:
                rest = known[below]
                own = None if rest is None else self._finish_frame(frame_id, 0, b"", None)
                if rest is not None and own is not None:
                    ways.append((len(own) + rest[0], own, below))
            known[todo.pop()] = min(ways) if ways else None
        parts: list[Text] = []
        while continuation != BOTTOM:
            way = known[continuation]
            if way is None:
                return None
            parts.append(way[1])
            continuation = way[2]
        return joined(b"", parts)

    def _finish_frame(
        self, frame_id: int, outcome: int, out: Text, tape: TextHistory | None
    ) -> Text | None:
        frame, at = self._frames[frame_id]
        text = None
        if frame.records(at, outcome) and frame.finish_reads(at, outcome):
            if tape is None:
                raise NeedsText
            if isinstance(tape, AnyText):
                otherwise = frame.finish_otherwise(at, outcome)
                if otherwise is None:
                    raise NeedsText
                tape.seen += otherwise[1]
                return put(out, otherwise[0])
            text = tape.after(flat(out)).text(outcome)
        rest = frame.finish(at, outcome, text)
        return None if rest is None else put(out, rest)


def _shorter(a: Text | None, b: Text | None) -> Text | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=lambda way: (len(way), way))


class Machine:
    """A lazy deterministic recogniser of one language.

    Args:
        start: the alternatives with which a text may start.

    Threads can share it: it grows under one lock, and reading needs no lock.

    Attributes:
        languages: objects that are released together with the machine.
        fingerprint: identifies the machine's language in every process, if known.
        stacks: the continuations.
        leaves, states, accepting, pending: see `stacks.States`; read only.
        loops: states that no plain text (`text_leaf.is_plain`) leaves, as far as known; read only.
    """

    languages: Sequence[Released] = ()
    fingerprint: str | None = None

    def __del__(self) -> None:
        # `weakref.finalize` would do the same, with a registry and ten times the calls.
        for language in self.languages:
            language.release()

    def __init__(self, start: tuple[Alternative, ...]) -> None:
        self.stacks = stacks = Stacks()
        self._interned = interned = States(stacks)
        # Read at every step; these objects stay the same for the machine's life.
        self.leaves, self.states = interned.leaves, interned.states
        self.accepting, self.pending = interned.accepting, interned.pending
        self.loops: set[int] = set()
        self._steps: dict[int, int] = {}
        # what may follow an outcome over a continuation
        self._after: dict[int, tuple[int, ...]] = {}
        self._resumed: dict[tuple[Frame, int, int, bool], tuple[Alternative, ...]] = {}
        self._finish: dict[int, Text] = {}
        with GROW:
            found: set[int] = set()
            self._enter(start, BOTTOM, found)
            self.start = self._intern(found)

    @functools.cached_property
    def completions(self) -> Completions:
        """The short ways to the end."""
        return Completions(self.stacks.frames, self.stacks.continuations)

    @property
    def n_states(self) -> int:
        """The number of states that have been reached."""
        return len(self.states)

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly, without leaves that other machines share."""
        weight = 300 * (len(self.states) + len(self._steps) + len(self._interned.alone))
        # Includes what their values keep for each of their own states.
        weight += 8000 * len(self.stacks.frames) + 300 * len(self.stacks.continuations)
        for leaf in self.leaves:
            if not leaf.is_shared:
                weight += leaf.weight
        return weight

    def is_accepting(self, state: int) -> bool:
        """Return whether the text may end in ``state``."""
        return state in self.accepting

    def configurations(self, state: int) -> list[tuple[int, int, int]]:
        """Return the ``(leaf id, leaf state, continuation)`` triples of ``state``."""
        return [
            (c & LEAF_MASK, c >> LEAF_BITS & STATE_MASK, c >> TOP_BITS)
            for c in self.states[state]
            if c != ACCEPT and c & LEAF_MASK != PENDING
        ]

    def is_pending(self, state: int) -> bool:
        """Return whether ``state`` must be resolved before any other use."""
        return state in self.pending

    # -- the recogniser ---------------------------------------------------------------------

    def step(self, state: int, byte: int) -> int:
        """Return the state after ``byte``, or `DEAD`."""
        to = self._steps.get(state << 8 | byte)
        if to is None:
            to = self._grow(state, byte)
        return to

    def read(self, state: int, data: bytes, start: int = 0) -> tuple[int, int]:
        """Return the state after ``data[start:]``, and the index up to which it was read.

        Reading stops early where the state has to be resolved first, or is `DEAD`. Between the
        start and the end, states are made only where more than one continuation is possible.
        """
        i, n = start, len(data)
        with GROW:
            while i < n:
                configurations = self.states[state]
                if len(configurations) == 1 and configurations[0] & LEAF_MASK != PENDING:
                    state, i = self._read_alone(configurations[0], data, i, state)
                elif state << 8 | data[i] in self._steps:
                    state = self._steps[state << 8 | data[i]]
                    i += 1
                else:
                    state, i = self._read_apart(state, data, i)
                if state == DEAD or state in self.pending:
                    break
        return state, i

    def _read_apart(self, state: int, data: bytes, i: int) -> tuple[int, int]:
        """Like `read`, from several configurations; reads several bytes if one configuration alone
        does."""
        byte, takers = data[i], 0
        for configuration in self.states[state]:
            if self._takes(configuration, byte):
                only = configuration
                takers += 1
        if takers == 1:
            return self._read_alone(only, data, i)
        return self._grow(state, byte), i + 1

    def _takes(self, configuration: int, byte: int) -> bool:
        """Return whether the leaf of a configuration continues with ``byte``."""
        leaf = configuration & LEAF_MASK
        if leaf == PENDING:
            return False
        return self.leaves[leaf].takes(configuration >> LEAF_BITS & STATE_MASK, byte)

    def _may_end_before(self, continuation: int, outcome: int, byte: int) -> bool:
        """Return whether ``byte`` may belong to what follows one of the leaf's outcomes."""
        return any(
            configuration & LEAF_MASK == PENDING or self._takes(configuration, byte)
            for configuration in self._following(continuation, outcome)
        )

    def _read_alone(
        self, configuration: int, data: bytes, i: int, state: int = -1
    ) -> tuple[int, int]:
        """`read` from one configuration, that of ``state`` if given, as long as it stays one."""
        leaf, continuation = configuration & LEAF_MASK, configuration >> TOP_BITS
        q = before = configuration >> LEAF_BITS & STATE_MASK
        automaton, n = self.leaves[leaf], len(data)
        while True:
            q, i = automaton.read(q, data, i)
            if q >= 0:
                outcome = automaton.labels[q]
                if automaton.hands_over or outcome >= 0:
                    if i == n or self._may_end_before(continuation, outcome, data[i]):
                        return self._arrived(leaf, q, continuation), i
                    continue  # such as a number, with a digit
                if q == before and state >= 0:
                    if automaton.reads_plain(q):
                        self.loops.add(state)
                    return state, i
                return self._interned.lone(leaf, q, continuation), i
            if q > ENDED:
                return DEAD, i
            way = self._only_way(continuation, ENDED - q)
            if way is None:
                return self._intern({*self._following(continuation, ENDED - q)}), i
            automaton, q, continuation = way
            leaf, state = self._interned.leaf_id(automaton), -1
            if i == n:
                return self._interned.lone(leaf, q, continuation) if automaton.continues(
                    q
                ) else DEAD, i

    def _only_way(self, continuation: int, outcome: int) -> tuple[Leaf, int, int] | None:
        """Return the leaf, state and continuation after an outcome, if only one can follow.

        Otherwise None; also if they depend on the text, or if that leaf may end at once.
        """
        stacks = self.stacks
        while True:
            links = stacks.continuations[continuation]
            if len(links) != 1:
                return None
            frame_id, below = links[0]
            frame, at = stacks.frames[frame_id]
            limited = stacks.depths[continuation] >= frame.limit
            ways = self._resumed.get((frame, at, outcome, limited))
            if ways is None:  # cached results depend on no text
                if frame.records(at, outcome):
                    return None
                ways = self.resumed(frame, at, outcome, limited)
            if len(ways) != 1:
                return None
            (way,) = ways
            leaf = way.leaf
            if leaf is not None:
                if leaf.labels[way.q] >= 0 or leaf.hands_over:
                    return None
                return leaf, way.q, stacks.push(way.frames, below)
            continuation, outcome = stacks.push(way.frames, below), 0

    def _arrived(self, leaf: int, q: int, continuation: int) -> int:
        """Return the state of one configuration, plus what follows if its leaf may end there."""
        alone = (continuation << STATE_BITS | q) << LEAF_BITS | leaf
        known = self._interned.alone
        state = known.get(alone)
        if state is None:
            found: set[int] = set()
            self._arrive(leaf, q, continuation, found)
            state = known[alone] = self._intern(found)
        return state

    def _following(self, continuation: int, outcome: int) -> Collection[int]:
        """Return the configurations that follow an outcome over a continuation."""
        key = continuation << STATE_BITS | outcome
        following = self._after.get(key)
        if following is None:
            found: set[int] = set()
            self._resume(continuation, outcome, found)
            following = self._after[key] = (*found,)
        return following

    def resolve(self, state: int, tape: TextHistory) -> int:
        """Return the state that a pending ``state`` becomes after the text of ``tape``."""
        stacks = self.stacks
        with GROW:
            found: set[int] = set()
            for configuration in self.states[state]:
                if configuration == ACCEPT or configuration & LEAF_MASK != PENDING:
                    found.add(configuration)
                    continue
                _, outcome, continuation = unpack(configuration)
                for frame_id, below in stacks.continuations[continuation]:
                    frame, at = stacks.frames[frame_id]
                    limited = stacks.depths[continuation] >= frame.limit
                    ways = frame.resume(at, outcome, tape.text(outcome), limited)
                    self._enter(ways, below, found)
            return self._intern(found)

    def next_bytes(self, state: int) -> set[int]:
        """Return the bytes that may follow."""
        out: set[int] = set()
        for leaf, q, _ in self.configurations(state):
            out.update(self.leaves[leaf].row(q))
        return out

    def forced_byte(self, state: int) -> int:
        """Return the only byte that may follow, or -1: several may, or the text may end."""
        if state in self.accepting:
            return -1
        forced = -1
        for leaf, q, _ in self.configurations(state):
            row = self.leaves[leaf].row(q)
            if len(row) != 1:
                return -1
            (byte,) = row
            if forced not in (-1, byte):
                return -1
            forced = byte
        return forced

    def _intern(self, found: set[int]) -> int:
        """Return the state of some configurations."""
        return self._interned.intern(found)

    # -- growth -----------------------------------------------------------------------------

    def _grow(self, state: int, byte: int) -> int:
        with GROW:
            ways: list[tuple[int, int, int]] = []
            for leaf, q, continuation in self.configurations(state):
                to = self.leaves[leaf].step(q, byte)
                if to >= 0:
                    ways.append((leaf, to, continuation))
            if len(ways) == 1:
                result = self._arrived(*ways[0])
            else:
                found: set[int] = set()
                for leaf, to, continuation in ways:
                    self._arrive(leaf, to, continuation, found)
                result = self._intern(found)
            self._steps[state << 8 | byte] = result
            return result

    def _arrive(self, leaf: int, q: int, continuation: int, found: set[int]) -> None:
        """Add a configuration, plus what follows if its leaf may end there."""
        automaton = self.leaves[leaf]
        handed = automaton.handed(q) if automaton.hands_over else None
        if handed is not None:
            automaton, q = handed
            leaf = self._interned.leaf_id(automaton)
        if automaton.continues(q):
            found.add((continuation << STATE_BITS | q) << LEAF_BITS | leaf)
        outcome = automaton.labels[q]
        if outcome >= 0:
            self._resume(continuation, outcome, found)

    def _resume(self, continuation: int, outcome: int, found: set[int]) -> None:
        if continuation == BOTTOM:
            found.add(ACCEPT)
            return
        depth = self.stacks.depths[continuation]
        for link in self.stacks.continuations[continuation]:
            self._resume_link(link, depth, outcome, found)

    def _resume_link(
        self, link: tuple[int, int], depth: int, outcome: int, found: set[int]
    ) -> None:
        """Add the configurations that follow one frame."""
        frame, at = self.stacks.frames[link[0]]
        if frame.may_record and frame.records(at, outcome):
            found.add(pack(PENDING, outcome, self.stacks.over(*link)))
        else:
            ways = self.resumed(frame, at, outcome, depth >= frame.limit)
            self._enter(ways, link[1], found)

    def resumed(
        self, frame: Frame, at: int, outcome: int, limited: bool
    ) -> tuple[Alternative, ...]:
        """Return `Frame.resume` where it does not depend on the text. Cached."""
        key = (frame, at, outcome, limited)
        found = self._resumed.get(key)
        if found is None:
            found = self._resumed[key] = frame.resume(at, outcome, None, limited)
        return found

    def _enter(self, ways: tuple[Alternative, ...], below: int, found: set[int]) -> None:
        push = self.stacks.push
        for way in ways:
            continuation = push(way.frames, below)
            if way.leaf is None:
                self._resume(continuation, 0, found)
            else:
                self._arrive(self._interned.leaf_id(way.leaf), way.q, continuation, found)

    def state_of(self, leaf: Leaf, q: int, continuation: int) -> int:
        """Return the state of one configuration, plus what follows if its leaf may end here."""
        with GROW:
            return self._arrived(self._interned.leaf_id(leaf), q, continuation)

    # -- completion -------------------------------------------------------------------------

    def placed(self, error: CompileLimitExceeded, state: int) -> CompileLimitExceeded:
        """Return ``error``, raised at ``state``, with its place in the schema, if known."""
        if error.path is not None:
            return error
        for _, _, continuation in self.configurations(state):
            for frame_id, _ in self.stacks.continuations[continuation]:
                path = getattr(self.stacks.frames[frame_id][0], "path", None)
                if path is not None:
                    return error.at(path)
        return error

    def completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None = None
    ) -> Text | None:
        """Return bytes from one configuration to the end; None if it cannot end."""
        return self.completions.completion(leaf, q, continuation, tape)

    def shortest_completion(self, state: int, tape: TextHistory | None = None) -> Text:
        """Return bytes of a short way from ``state`` to acceptance. Deterministic.

        For a leaf alone these are the fewest bytes. With open objects and arrays there may be
        fewer: the way takes the shortest end of the leaf first.

        Raises:
            NeedsText: the answer depends on the text so far; pass its `TextHistory`.
        """
        if state in self.accepting:
            return b""
        found = self._finish.get(state)
        if found is None:
            with GROW:
                ways = [
                    self.completion(self.leaves[leaf], q, continuation, tape)
                    for leaf, q, continuation in self.configurations(state)
                ]
                found = min((way for way in ways if way is not None), key=lambda b: (len(b), b))
                if tape is None:
                    self._finish[state] = found
        return found
