"""Token masks: a machine state × the vocabulary's trie → packed bits.

A mask is computed by walking the trie and the automaton together. The walk is compositional, so
that its parts are shared: `_Walker.leaf_walk` walks one leaf from one state and one trie node, and
reports the tokens that end inside and the nodes at which the leaf may end; the walk goes on there
with whatever the continuation allows. Results are memoised per vocabulary (leaf walks, which every
schema with the same kind of string shares) and per machine (frames, whole states), under one byte
budget for each vocabulary.

A *virtual* node is a set of trie nodes walked as one: all the places where tokens leave a string,
say. Sparse walks run depth first in Python; as soon as many nodes survive, `_wide_walk` takes over,
level by level in NumPy: that one function is the place to make wide states faster.

This module knows automata only through `machine.Machine` and `leaf.Leaf`, and no schemas.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .automaton.leaf import GROW, Leaf
from .automaton.machine import BOTTOM, Frame, Machine, NeedsText
from .automaton.nesting import UNLIMITED
from .automaton.tape import Tape
from .trie import Trie
from .vocabulary import Vocabulary

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = npt.NDArray[np.int32]

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
"""Byte budget of one vocabulary's caches."""

_SPARSE_VISITS = 256
"""Trie nodes a sparse walk may visit before the wide walk takes over."""

_ROOT = 0
_NO_NODE = -1


class LeafWalk(NamedTuple):
    """What one leaf does from one trie node.

    Attributes:
        ids: int32, tokens that end inside the leaf or exactly where it may end.
        exits: ``(outcome, node)`` pairs: where the leaf may end, and with which outcome.
        ends: leaf states in which those tokens end.
    """

    ids: Ids
    exits: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]


class Mask(NamedTuple):
    """A mask as the words that are not zero; ``words`` is None when all are listed."""

    words: npt.NDArray[np.int64] | None
    bits: Bits
    n_tokens: int


class _Walker:
    """The caches and walks of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.trie: Trie = vocabulary.trie
        self.size = vocabulary.size
        self.n_words = (vocabulary.size + 31) // 32
        # values that one token can open: "[[[" three
        self.most_opened = max(
            (t.count(b"[") + t.count(b"{") for t in vocabulary.tokens), default=0
        )
        self.budget = DEFAULT_CACHE_BYTES
        self.epoch = 0
        self._reset()

    def _reset(self) -> None:
        self.used = 0
        self.members: list[tuple[int, ...]] = []
        self._virtual: dict[tuple[int, ...], int] = {}
        self._children: dict[int, dict[int, int]] = {}
        self.walks: dict[tuple[Leaf, int, int], LeafWalk] = {}
        self.tables: weakref.WeakKeyDictionary[Leaf, _Table] = weakref.WeakKeyDictionary()
        self.masks: dict[tuple[int, int], Mask] = {}
        self.reaches: dict[tuple[int, int], int] = {}

    def charge(self, n_bytes: int) -> None:
        """Count ``n_bytes`` of cache."""
        self.used += n_bytes

    def trim(self) -> None:
        """Start the caches anew when they have outgrown the budget."""
        if self.used > self.budget:
            self.epoch += 1
            self._reset()

    # -- trie nodes, real and virtual -------------------------------------------------------

    def join(self, nodes: list[int]) -> int:
        """One node that stands for all of ``nodes`` (each real or virtual)."""
        if len(nodes) == 1:
            return nodes[0]
        real: set[int] = set()
        for node in nodes:
            if node < self.trie.n_nodes:
                real.add(node)
            else:
                real.update(self.members[node - self.trie.n_nodes])
        if len(real) == 1:
            return real.pop()
        key = tuple(sorted(real))
        found = self._virtual.get(key)
        if found is None:
            found = self._virtual[key] = self.trie.n_nodes + len(self.members)
            self.members.append(key)
            self.charge(32 * len(key))
        return found

    def real(self, node: int) -> tuple[int, ...]:
        """The trie nodes that ``node`` stands for."""
        return (node,) if node < self.trie.n_nodes else self.members[node - self.trie.n_nodes]

    def children(self, node: int) -> dict[int, int]:
        """Byte → child (real or virtual) of ``node``."""
        found = self._children.get(node)
        if found is not None:
            return found
        trie = self.trie
        out: dict[int, int] = {}
        if node < trie.n_nodes:
            first = int(trie.first_child[node])
            last = first + int(trie.n_children[node])
            out = dict(zip(trie.byte[first:last].tolist(), range(first, last), strict=True))
        else:
            grouped: dict[int, list[int]] = {}
            for member in self.members[node - trie.n_nodes]:
                first = int(trie.first_child[member])
                last = first + int(trie.n_children[member])
                for byte, child in zip(
                    trie.byte[first:last].tolist(), range(first, last), strict=True
                ):
                    grouped.setdefault(byte, []).append(child)
            out = {byte: self.join(nodes) for byte, nodes in grouped.items()}
        self._children[node] = out
        self.charge(100 * len(out) + 100)
        return out

    def ids_at(self, node: int) -> list[int]:
        """Tokens that end at ``node``."""
        start, ids = self.trie.token_start, self.trie.token_ids
        out: list[int] = []
        for member in self.real(node):
            first, last = int(start[member]), int(start[member + 1])
            if first != last:
                out += ids[first:last].tolist()
        return out

    # -- one leaf ---------------------------------------------------------------------------

    def leaf_walk(self, leaf: Leaf, q: int, node: int) -> LeafWalk:
        """Walk ``leaf`` from state ``q`` at ``node``."""
        return self.memoised(self.walks, leaf, q, node)

    def memoised(
        self, memo: dict[tuple[Leaf, int, int], LeafWalk], leaf: Leaf, q: int, node: int
    ) -> LeafWalk:
        """As `leaf_walk`, remembered in ``memo``."""
        key = (leaf, q, node)
        found = memo.get(key)
        if found is None:
            found = self._sparse_walk(leaf, q, node) or self._wide_walk(leaf, q, node)
            memo[key] = found
            self.charge(found.ids.nbytes + 400)
        return found

    def _sparse_walk(self, leaf: Leaf, q: int, node: int) -> LeafWalk | None:
        ids: list[int] = []
        exits: dict[int, list[int]] = {}
        ends: dict[int, None] = {}
        stack = [(q, node)]
        visits = 0
        while stack:
            state, at = stack.pop()
            children = self.children(at)
            if not children:
                continue
            row = leaf.row(state)
            visits += min(len(children), len(row))
            if visits > _SPARSE_VISITS:
                return None
            few, many = (row, children) if len(row) < len(children) else (children, row)
            for byte in few:
                if byte not in many:
                    continue
                to, child = row[byte], children[byte]
                here = self.ids_at(child)
                if here:
                    ids += here
                    ends[to] = None
                outcome = leaf.label(to)
                if outcome >= 0:
                    exits.setdefault(outcome, []).append(child)
                stack.append((to, child))
        joined = tuple((outcome, self.join(nodes)) for outcome, nodes in exits.items())
        return LeafWalk(np.array(ids, np.int32), joined, tuple(ends))

    def _wide_walk(self, leaf: Leaf, q: int, node: int) -> LeafWalk:
        """As `_sparse_walk`, level by level over arrays."""
        trie = self.trie
        table = self.tables.get(leaf)
        if table is None:
            table = self.tables[leaf] = _Table(leaf)
        nodes = np.array(self.real(node), np.int64)
        states = np.full(len(nodes), q, np.int64)
        seen_nodes: list[npt.NDArray[np.int64]] = []
        seen_states: list[npt.NDArray[np.int64]] = []
        while len(nodes):
            table.cover(states)
            count = trie.n_children[nodes]
            keep = count > 0
            nodes, states, count = nodes[keep], states[keep], count[keep]
            ends = np.cumsum(count)
            if not len(ends):
                break
            offset = np.arange(int(ends[-1])) - np.repeat(ends - count, count)
            children = np.repeat(trie.first_child[nodes], count) + offset
            to = table.rows[np.repeat(states, count), trie.byte[children]]
            alive = to >= 0
            nodes, states = children[alive].astype(np.int64), to[alive].astype(np.int64)
            seen_nodes.append(nodes)
            seen_states.append(states)
        if not seen_nodes:
            return LeafWalk(np.array([], np.int32), (), ())
        all_nodes, all_states = np.concatenate(seen_nodes), np.concatenate(seen_states)
        first = trie.token_start[all_nodes]
        count = trie.token_start[all_nodes + 1] - first
        total = np.cumsum(count)
        offset = np.arange(int(total[-1])) - np.repeat(total - count, count)
        ids = trie.token_ids[np.repeat(first, count) + offset]
        table.cover(all_states)
        labels = table.labels[all_states]
        exits: list[tuple[int, int]] = []
        leaving = labels >= 0
        if leaving.any():
            out_nodes, out_labels = all_nodes[leaving], labels[leaving]
            for outcome in np.unique(out_labels).tolist():
                exits.append((outcome, self.join(out_nodes[out_labels == outcome].tolist())))
        ending = tuple(np.unique(all_states[count > 0]).tolist())
        return LeafWalk(ids, tuple(exits), ending)


class _Table:
    """A leaf's transitions as an array, one row of 256 a state, filled as states are met."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = weakref.ref(leaf)
        self.rows = np.full((16, 256), -1, np.int32)
        self.labels = np.full(16, -1, np.int32)
        self._filled = np.zeros(16, bool)

    def cover(self, states: npt.NDArray[np.int64]) -> None:
        """Make sure that every one of ``states`` has its row."""
        if not len(states):
            return
        top = int(states.max())
        if top >= len(self._filled):
            size = max(2 * len(self._filled), top + 1)
            for name, fill in (("rows", -1), ("labels", -1), ("_filled", False)):
                old = getattr(self, name)
                new = np.full((size, *old.shape[1:]), fill, old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        missing = ~self._filled[states]
        if not missing.any():
            return
        leaf = self._leaf()
        assert leaf is not None
        for state in np.unique(states[missing]).tolist():
            row = leaf.row(state)
            if row:
                self.rows[state, list(row)] = list(row.values())
            self.labels[state] = leaf.label(state)
            self._filled[state] = True


class FrameWalk(NamedTuple):
    """What a frame does from one trie node, until it is closed.

    Attributes:
        ids: tokens that end before the frame is closed, or exactly there.
        closed: node (real or virtual) where it is closed, or -1.
        ends: stacks in which those tokens end, as ``(leaf, leaf state, frames above the one
            below)``, topmost frame first.
    """

    ids: Ids
    closed: int
    ends: tuple[End, ...]


End: TypeAlias = "tuple[Leaf | None, int, tuple[tuple[Frame, int], ...]]"

_walkers: weakref.WeakKeyDictionary[Vocabulary, _Walker] = weakref.WeakKeyDictionary()
_walkers_lock = threading.Lock()


def walker_of(vocabulary: Vocabulary) -> _Walker:
    """The shared caches of ``vocabulary``."""
    with _walkers_lock:
        found = _walkers.get(vocabulary)
        if found is None:
            found = _walkers[vocabulary] = _Walker(vocabulary)
        return found


_EMPTY = np.array([], np.int32)
_DEPENDS_ON_TEXT = Mask(None, np.array([], np.uint32), 0)
_FAR = 1 << 60


class MaskEngine:
    """Masks of one machine over one vocabulary.

    Thread-safe: a mask that is not cached is computed under the automata's growth lock.
    """

    _numbers = iter(range(1 << 62))

    def __init__(self, machine: Machine, vocabulary: Vocabulary) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self._walker = walker_of(vocabulary)
        self._number = next(MaskEngine._numbers)
        # Walks of frames, and of leaves that no other schema shares: they go with the constraint.
        self._epoch = self._walker.epoch
        self._walks: dict[tuple[Leaf, int, int], LeafWalk] = {}
        self._frame_walks: dict[tuple[Frame, int, int, int, int], FrameWalk] = {}
        self._eos = [t for t in vocabulary.eos_token_ids if t < vocabulary.size]

    def mask(self, state: int, tape: Callable[[], Tape]) -> Mask:
        """The mask of ``state``. Cost: a dictionary look-up once computed.

        ``tape`` gives the text so far; it is only asked for where the mask depends on it, and then
        the mask is computed anew each time.
        """
        found = self._walker.masks.get((self._number, state))
        if found is None:
            with GROW:
                self._trim()
                try:
                    found = self._compute(state, None)
                except NeedsText:
                    found = _DEPENDS_ON_TEXT
                self._walker.masks[self._number, state] = found
                self._walker.charge(found.bits.nbytes * 2 + 200)
        if found is _DEPENDS_ON_TEXT:
            with GROW:
                self._trim()
                return self._compute(state, tape())
        return found

    def _trim(self) -> None:
        """Keep to the budget; forget walks whose virtual nodes no longer exist."""
        self._walker.trim()
        if self._epoch != self._walker.epoch:
            self._epoch = self._walker.epoch
            self._walks.clear()
            self._frame_walks.clear()

    def _leaf_walk(self, leaf: Leaf, q: int, node: int) -> LeafWalk:
        if leaf.is_shared:
            return self._walker.leaf_walk(leaf, q, node)
        return self._walker.memoised(self._walks, leaf, q, node)

    def fill(self, state: int, out: Bits, tape: Callable[[], Tape]) -> None:
        """Write the mask of ``state`` into ``out``, uint32 [ceil(size / 32)]."""
        mask = self.mask(state, tape)
        if mask.words is None:
            out[:] = mask.bits
        else:
            out[:] = 0
            out[mask.words] = mask.bits

    def _compute(self, state: int, tape: Tape | None) -> Mask:
        parts: list[Ids] = []
        machine, walker = self.machine, self._walker
        for leaf_id, q, continuation in machine.configurations(state):
            walk = self._leaf_walk(machine.leaves[leaf_id], q, _ROOT)
            parts.append(walk.ids)
            for outcome, node in walk.exits:
                try:
                    self._after(continuation, outcome, node, parts)
                except NeedsText:
                    if tape is None:
                        raise
                    self._after_text(continuation, outcome, node, parts, tape)
        if machine.is_accepting(state):
            parts.append(np.array(self._eos, np.int32))
        return pack_ids(parts, walker.n_words)

    def _after_text(
        self, continuation: int, outcome: int, node: int, parts: list[Ids], tape: Tape
    ) -> None:
        """As `_after`, trie node by trie node: what follows depends on the text that led there."""
        machine, walker = self.machine, self._walker
        for real in walker.real(node):
            if continuation == BOTTOM or not walker.trie.n_children[real]:
                continue
            for frame_id, below in machine.continuations[continuation]:
                frame, at = machine.frames[frame_id]
                text = None
                if frame.records(at, outcome):
                    text = tape.after(walker.trie.string_of(real)).text(outcome)
                limited = machine.depths[continuation] >= frame.limit
                for way in frame.resume(at, outcome, text, limited):
                    pushed = machine.push(way.frames, below)
                    if way.leaf is None:
                        self._after_text(pushed, 0, real, parts, tape)
                        continue
                    walk = self._leaf_walk(way.leaf, way.q, real)
                    parts.append(walk.ids)
                    for next_outcome, exit_node in walk.exits:
                        self._after_text(pushed, next_outcome, exit_node, parts, tape)

    def _after(self, continuation: int, outcome: int, node: int, parts: list[Ids]) -> None:
        """Collect the tokens that go on from ``node`` once a leaf has ended with ``outcome``."""
        machine = self.machine
        todo = [(continuation, outcome, node)]
        seen = set(todo)
        while todo:
            continuation, outcome, node = todo.pop()
            for frame_id, below in machine.continuations[continuation]:
                frame, at = machine.frames[frame_id]
                room = self._room(frame, continuation)
                walk = self._frame_walk(frame, at, outcome, node, room)
                parts.append(walk.ids)
                rest = (below, 0, walk.closed)
                if walk.closed != _NO_NODE and rest not in seen:
                    seen.add(rest)
                    todo.append(rest)

    def _room(self, frame: Frame, continuation: int) -> int:
        """How many frames that nest may be pushed on ``continuation``, whose top is ``frame``,
        before resuming is limited; no more than a token can push."""
        room = frame.limit - self.machine.depths[continuation]
        return max(0, min(room, self._walker.most_opened + 1))

    def _frame_walk(self, frame: Frame, at: int, outcome: int, node: int, room: int) -> FrameWalk:
        if frame.limit == UNLIMITED:
            room = self._walker.most_opened + 1
        key = (frame, at, outcome, node, room)
        found = self._frame_walks.get(key)
        if found is not None:
            return found
        if not self._walker.children(node) and node < self._walker.trie.n_nodes:
            # Nothing can follow here: most exits are at the very end of a token.
            return FrameWalk(_EMPTY, _NO_NODE, ())
        if frame.records(at, outcome):
            raise NeedsText
        parts: list[Ids] = []
        closed: list[int] = []
        ends: dict[End, None] = {}
        for way in frame.resume(at, outcome, None, not room):
            if way.leaf is None:
                self._close(way.frames, 0, node, room, parts, closed, ends)
                continue
            walk = self._leaf_walk(way.leaf, way.q, node)
            parts.append(walk.ids)
            for q in walk.ends:
                ends[way.leaf, q, way.frames] = None
            for next_outcome, exit_node in walk.exits:
                self._close(way.frames, next_outcome, exit_node, room, parts, closed, ends)
        ids = np.concatenate(parts) if parts else _EMPTY
        result = FrameWalk(ids, self._walker.join(closed) if closed else _NO_NODE, tuple(ends))
        self._frame_walks[key] = result
        self._walker.charge(ids.nbytes + 300)
        return result

    def _close(
        self,
        frames: tuple[tuple[Frame, int], ...],
        outcome: int,
        node: int,
        room: int,
        parts: list[Ids],
        closed: list[int],
        ends: dict[End, None],
    ) -> None:
        """Walk on through ``frames`` (top first); nodes where the last one is closed are added.

        ``room`` is that of the last one.
        """
        far = room > self._walker.most_opened
        above_last = sum(frame.nests for frame, _ in frames[:-1])
        for i, (frame, at) in enumerate(frames):
            here = room if far else max(0, room - above_last)
            walk = self._frame_walk(frame, at, outcome, node, here)
            above_last -= frame.nests
            parts.append(walk.ids)
            for leaf, q, above in walk.ends:
                ends[leaf, q, above + frames[i + 1 :]] = None
            if walk.closed == _NO_NODE:
                return
            outcome, node = 0, walk.closed
        closed.append(node)

    # -- how far one token can lead from the end ----------------------------------------------

    def reach(self, state: int) -> int:
        """Upper bound, in tokens, on the completion after any one token from ``state``.

        Very large where that depends on the text so far.
        """
        key = (self._number, state)
        found = self._walker.reaches.get(key)
        if found is None:
            with GROW:
                self._trim()
                try:
                    found = self._reach(state)
                except NeedsText:
                    found = _FAR
                self._walker.reaches[key] = found
                self._walker.charge(100)
        return found

    def _reach(self, state: int) -> int:
        machine = self.machine
        longest = 0
        for leaf_id, q, continuation in machine.configurations(state):
            leaf = machine.leaves[leaf_id]
            walk = self._leaf_walk(leaf, q, _ROOT)
            for end in walk.ends:
                longest = max(longest, self._tokens_to_close(leaf, end, continuation))
            for outcome, node in walk.exits:
                todo = [(continuation, outcome, node)]
                seen = set(todo)
                while todo:
                    above, out, at_node = todo.pop()
                    for frame_id, below in machine.continuations[above]:
                        frame, at = machine.frames[frame_id]
                        room = self._room(frame, above)
                        frame_walk = self._frame_walk(frame, at, out, at_node, room)
                        for end_leaf, end, frames in frame_walk.ends:
                            assert end_leaf is not None
                            pushed = machine.push(frames, below)
                            longest = max(longest, self._tokens_to_close(end_leaf, end, pushed))
                        rest = (below, 0, frame_walk.closed)
                        if frame_walk.closed != _NO_NODE and rest not in seen:
                            seen.add(rest)
                            todo.append(rest)
        return longest

    def _tokens_to_close(self, leaf: Leaf, q: int, continuation: int) -> int:
        rest = self.machine.completion(leaf, q, continuation)
        return _FAR if rest is None else len(self.vocabulary.encode_bytes(rest))


def pack_ids(parts: list[Ids], n_words: int) -> Mask:
    """Token ids (repeats allowed) as a mask of ``n_words`` words."""
    ids = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else _EMPTY
    if len(ids) > 64:
        flags = np.zeros(n_words * 32, np.uint8)
        flags[ids] = 1
        bits = np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)
        count = int(np.count_nonzero(flags))
        words = np.flatnonzero(bits)
        if len(words) * 3 > n_words:
            return Mask(None, bits, count)
        return Mask(words, bits[words], count)
    table: dict[int, int] = {}
    for token in ids.tolist():
        table[token >> 5] = table.get(token >> 5, 0) | 1 << (token & 31)
    return Mask(
        np.array(list(table), np.int64),
        np.array(list(table.values()), np.uint32),
        sum(word.bit_count() for word in table.values()),
    )
