"""Walk frames through a vocabulary's trie: what follows a leaf, as far as a token reaches.

`leaf_walks` reports the tokens that end inside a leaf and the nodes at which the leaf may end. From
there `FrameWalks` continues with the frames below. It caches walks of frames, and of leaves that
only this constraint has.

In an array with unique items, earlier items matter only when the next item ends. `Forgetting` finds
the trie nodes below which no token reaches that far. There, one walk serves all texts
(`Frame.forget`); the few other nodes are walked with the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from structgen.automaton.core import (
    BOTTOM,
    POP,
    Alternative,
    Frame,
    Leaf,
    Machine,
    NeedsText,
    Stacks,
    TextHistory,
)
from structgen.automaton.json import UNLIMITED, bytes_of_many
from structgen.automaton.work import WORK
from structgen.storage import Caches, GenerationalCache

from .leaf_walks import Walker
from .node_sets import NODE_BITS, Node
from .walk_store import (
    ROOT,
    Exits,
    LeafWalk,
    LeafWalker,
    Tokens,
    WalkMemo,
    WalkStore,
    ends_of,
    ids_of,
)

_MOST_VISITED = 400
"""After this many places below a node, it is walked with the text."""


class Apart(NamedTuple):
    """The result of `Forgetting.apart`.

    Attributes:
        at: the frame's state that has forgotten the text.
        node: the nodes for which that state is equivalent, as one node; None if there are none.
        others: the other nodes.
    """

    at: int
    node: Node | None
    others: tuple[int, ...]


class Forgetting:
    """Finds the nodes that may be walked without the text, for the frames of one machine."""

    def __init__(self, machine: Machine, store: WalkStore) -> None:
        self._machine = machine
        self._store = store
        self._known: GenerationalCache[tuple[Frame, int, int, bool, int], bool] = store.cache()
        self._apart: GenerationalCache[tuple[Frame, int, int, bool, Node], Apart] = store.cache()
        self._plenty: GenerationalCache[tuple[Leaf, int, int], bool] = store.cache()

    def apart(self, frame: Frame, at: int, outcome: int, node: Node, limited: bool) -> Apart | None:
        """Split the nodes of ``node``, at which ``frame`` resumes; None if no text can be
        forgotten."""
        forgotten = frame.forget(at, outcome)
        if forgotten is None:
            return None
        key = (frame, forgotten, outcome, limited, node)
        found = self._apart[key]
        if found is None:
            found = self._apart[key] = self._make_apart(frame, forgotten, outcome, node, limited)
            self._store.used += 300
        return found

    def _make_apart(self, frame: Frame, at: int, outcome: int, node: Node, limited: bool) -> Apart:
        store, known = self._store, self._known
        count = store.trie.n_children
        alike: list[int] = []
        others: list[int] = []
        for real in store.nodes.real(node).tolist():
            if not count[real]:
                continue
            key = (frame, at, outcome, limited, real)
            is_alike = known[key]
            if is_alike is None:
                is_alike = known[key] = self._is_alike(frame, at, outcome, real, limited)
                store.used += 200
            (alike if is_alike else others).append(real)
        return Apart(at, store.nodes.join(alike) if alike else None, (*others,))

    def _is_alike(self, frame: Frame, at: int, outcome: int, node: int, limited: bool) -> bool:
        """Return whether no token ends, or nearly ends, an item of ``frame`` below ``node``."""
        resumed = self._machine.resumed
        n_barred = frame.forgotten(at)
        n_visited = 0
        # leaf, its state, node, the frame's state below it, and whether that is inside an item
        todo = [
            (way.leaf, way.q, node, way.frames[-1][1], False)
            for way in resumed(frame, at, outcome, limited)
            if way.leaf is not None
        ]
        nodes = self._store.nodes
        first, count, byte_at = nodes.first_child, nodes.n_children, nodes.byte
        while todo:
            leaf, q, here, below, is_inside = todo.pop()
            n_visited += 1
            if n_visited > _MOST_VISITED:
                return False
            for child in range(first[here], first[here] + count[here]):
                to = leaf.step(q, byte_at[child])
                if to < 0:
                    continue
                if is_inside and (leaf.labels[to] >= 0 or not self._has_plenty(leaf, to, n_barred)):
                    return False
                if count[child]:
                    todo.append((leaf, to, child, below, is_inside))
                if leaf.labels[to] < 0 or not count[child]:
                    continue
                for way in resumed(frame, below, leaf.labels[to], limited):
                    if way.leaf is None:
                        continue  # the array is closed, so nothing is compared any more
                    if len(way.frames) != 1:
                        return False
                    todo.append((way.leaf, way.q, child, way.frames[0][1], True))
        return True

    def _has_plenty(self, leaf: Leaf, q: int, count: int) -> bool:
        """Return whether some text is left from ``q`` if any ``count`` texts are barred."""
        key = (leaf, q, count)
        found = self._plenty[key]
        if found is None:
            found = self._plenty[key] = bytes_of_many(leaf, q, count) is not None
            self._store.used += 200
        return found


_NO_NODE = -1


Frames: TypeAlias = "tuple[tuple[Frame, int], ...]"

Ends: TypeAlias = "tuple[Leaf | None, tuple[Any, ...], Frames]"
"""The ends of the tokens of one walk: the leaf, None for frames; the ends, as in `LeafWalk` or
`FrameWalk`; and the frames above the lowest one, topmost first; or further ends."""

FrameWalk: TypeAlias = "tuple[Tokens, Node, tuple[Ends, ...]]"
"""The walk of a frame from one trie node until it is closed: tokens that end before or exactly
there; the node (real or virtual) where it is closed, or -1; and the stacks in which these tokens
end, see `token_ends`. Plain tuples: see `walk_store.WalkMemo`."""


def token_ends(
    ends: Iterable[Ends], below: Frames = ()
) -> Iterator[tuple[Leaf, int | tuple[int, int], Frames]]:
    """Yield the stacks in which a frame's walk ends: leaf, state, and frames above the lowest.

    Topmost frame first. May contain duplicates. Used only for token budgets.
    """
    for leaf, inner, frames in ends:
        above = frames + below
        if leaf is None:
            yield from token_ends(inner, above)
        else:
            for to, end in ends_of(leaf, inner):
                yield to, end, above


TokenEnd: TypeAlias = "tuple[Leaf, int | tuple[int, int], int]"
"""A leaf, an end of tokens in it (see `walk_store.End`), and the continuation below it."""


def token_ends_over(stacks: Stacks, ends: Iterable[Ends], below: int) -> Iterator[TokenEnd]:
    """`token_ends`, with the frames pushed on ``below``."""
    for leaf, end, frames in token_ends(ends):
        yield leaf, end, stacks.push(frames, below)


_NOTHING_AFTER: FrameWalk = b"", _NO_NODE, ()


class FrameWalks:
    """Walks of the frames and leaves of one machine over one vocabulary.

    Args:
        caches: the caches of this constraint: of walks of frames, and of its own leaves.
    """

    def __init__(self, machine: Machine, walker: Walker, caches: Caches) -> None:
        self._machine = machine
        self._stacks = machine.stacks
        self._walker = walker
        self._walk_uncached: LeafWalker = walker.walk_uncached
        self._store = walker.store
        self._most_room = walker.store.most_opened + 1
        self._most_repeats = 8 * walker.store.size + 4096  # bytes: each token twice, plus a reserve
        self._frame_walks: GenerationalCache[tuple[Frame, int, int, Node, int], FrameWalk]
        self._frame_walks = caches[2]
        self._walks: WalkMemo = walker.store.memo(*caches[3:])

    @cached_property
    def _forgetting(self) -> Forgetting:
        return Forgetting(self._machine, self._store)

    def _leaf_walk(self, leaf: Leaf, q: int, node: Node) -> LeafWalk:
        memo = self._store.walks if leaf.is_shared else self._walks
        found = memo.get(leaf, q, node)
        if found is None:
            found = self._walk_uncached(leaf, q, node, memo)
        return found

    def root_walk(self, leaf: Leaf, q: int, continuation: int) -> LeafWalk:
        """Return the walk of ``leaf`` from its state ``q`` with whole tokens."""
        last = self._walker.strings.last(leaf, q) if continuation == BOTTOM else None
        return self._leaf_walk(leaf, q, ROOT) if last is None else last

    def walks_after_text(
        self,
        continuation: int,
        outcome: int,
        node: Node,
        tape: TextHistory,
        is_string: bool = False,
    ) -> Iterator[tuple[Tokens, Iterable[TokenEnd]]]:
        """Like `walks_after`, if the continuation depends on the text.

        Yields tokens with their ends, node by node where the text matters. ``is_string``: the
        string that is open in ``tape`` ends there.
        """
        stacks, store = self._stacks, self._store
        todo = [(continuation, outcome, node)]
        while todo:
            continuation, outcome, node = todo.pop()
            WORK.spend(1)
            if continuation == BOTTOM or not store.nodes.continues(node):
                continue
            for frame_id, below in stacks.continuations[continuation]:
                frame, at = stacks.frames[frame_id]
                room = self._room(frame, continuation)
                others: Iterable[int] = ()
                try:
                    walk = self._frame_walk(frame, at, outcome, node, room)
                except NeedsText:
                    found = None
                    if is_string:
                        found = self._walk_otherwise(frame, at, outcome, node, room, tape)
                    walk, others = found or self._walk_forgetting(frame, at, outcome, node, room)
                yield walk[0], token_ends_over(stacks, walk[2], below)
                if walk[1] != _NO_NODE:
                    todo.append((below, 0, walk[1]))
                for real in others:
                    text = None
                    if frame.records(at, outcome):
                        text = tape.after(store.trie.string_of(real)).text(outcome)
                    for way in frame.resume(at, outcome, text, not room):
                        pushed = stacks.push(way.frames, below)
                        if way.leaf is None:
                            todo.append((pushed, 0, real))
                            continue
                        _, ids, exits, ends = self._leaf_walk(way.leaf, way.q, real)
                        if way.leaf.labels[way.q] >= 0:  # it may be empty
                            exits = (*exits, (way.leaf.labels[way.q], real))
                        stops = ends_of(way.leaf, ends)
                        yield ids, [(leaf, end, pushed) for leaf, end in stops]
                        todo += [(pushed, after, to) for after, to in exits]
            is_string = False

    def _walk_otherwise(
        self, frame: Frame, at: int, outcome: int, node: Node, room: int, tape: TextHistory
    ) -> tuple[FrameWalk, Iterable[int]] | None:
        """Return the walk after strings that ``frame`` does not distinguish, and the nodes at which
        a distinguished one ends. None if unknown."""
        otherwise = frame.otherwise(at, outcome) if frame.records(at, outcome) else None
        if otherwise is None:
            return None
        instead, state, values = otherwise
        open_string = tape.open_string()
        begun = json.loads(open_string + b'"')
        differing = {v for v in values if isinstance(v, str) and v.startswith(begun)}
        store, others = self._store, []
        if differing:
            real = store.nodes.real(node).tolist()
            others = [
                n for n in real if json.loads(open_string + store.trie.string_of(n)) in differing
            ]
            if others:
                left = [n for n in real if n not in others]
                if not left:
                    return _NOTHING_AFTER, others
                node = store.nodes.join(left)
        try:
            return self._frame_walk(instead, state, outcome, node, room), others
        except NeedsText:
            return None

    def _walk_forgetting(
        self, frame: Frame, at: int, outcome: int, node: Node, room: int
    ) -> tuple[FrameWalk, Iterable[int]]:
        """Return `_frame_walk` as far as no text is needed, and the nodes that need it."""
        walk = _NOTHING_AFTER
        if frame.records(at, outcome):
            apart = self._forgetting.apart(frame, at, outcome, node, not room)
            if apart is not None:
                if apart.node is not None:
                    walk = self._walk_on(frame, apart.at, outcome, apart.node, room)
                return walk, apart.others
        return walk, self._store.nodes.real(node).tolist()

    def _room(self, frame: Frame, continuation: int) -> int:
        """Return how many frames may nest above ``frame`` before resuming is limited."""
        most = self._most_room
        room = frame.limit - self._stacks.depths[continuation]
        return most if room > most else room if room > 0 else 0

    def walks_after(
        self, continuation: int, outcome: int, node: Node
    ) -> list[tuple[FrameWalk, int]]:
        """Return the walks of all frames that ``node`` leads through, with the continuation below
        each."""
        stacks, most_room = self._stacks, self._most_room
        depths = stacks.depths
        out: list[tuple[FrameWalk, int]] = []
        todo = [(continuation, outcome, node)]
        # grows by a few
        for continuation, outcome, node in todo:
            WORK.left -= 1
            if WORK.left < 0:
                raise WORK.too_much()
            for frame_id, below in stacks.continuations[continuation]:
                frame, at = stacks.frames[frame_id]
                room = frame.limit - depths[continuation]
                if room > most_room or room < 0:
                    room = most_room if room > 0 else 0
                walk = self._frame_walk(frame, at, outcome, node, room)
                out.append((walk, below))
                closed = walk[1]
                if closed != _NO_NODE and below != BOTTOM:
                    rest = (below, 0, closed)
                    if rest not in todo:
                        todo.append(rest)
        return out

    def _frame_walk(self, frame: Frame, at: int, outcome: int, node: Node, room: int) -> FrameWalk:
        """Return the walk of ``frame`` from ``node``, after its leaf has ended with ``outcome``.

        Up to ``room`` nesting frames may be pushed before resuming is limited; at most
        `_most_room`, which is more than a token can push.
        """
        if frame.limit == UNLIMITED:
            room = self._most_room
        key = (frame, at, outcome, node, room)
        found = self._frame_walks[key]
        if found is None:
            if frame.may_record and frame.records(at, outcome):
                found, others = self._walk_forgetting(frame, at, outcome, node, room)
                if others:
                    raise NeedsText
            else:
                ways = self._machine.resumed(frame, at, outcome, not room)
                if ways is POP:
                    return b"", node, ()  # not worth caching
                found = self._walk_ways(ways, node, room)
            self._frame_walks[key] = found
        return found

    def _walk_on(self, frame: Frame, at: int, outcome: int, node: Node, room: int) -> FrameWalk:
        """Like `_frame_walk`, if the continuation does not depend on the text."""
        key = (frame, at, outcome, node, room)
        found = self._frame_walks[key]
        if found is None:
            ways = self._machine.resumed(frame, at, outcome, not room)
            found = self._frame_walks[key] = self._walk_ways(ways, node, room)
        return found

    def _walk_ways(self, ways: tuple[Alternative, ...], node: Node, room: int) -> FrameWalk:
        """Return the walk of a frame from ``node`` that continues in one of ``ways``."""
        closed: list[Node] = []
        ends: list[Ends] = []
        tokens = b""
        for way in ways:
            leaf, frames = way.leaf, way.frames
            exits: Exits
            if leaf is None:
                exits = ((0, node),)
            else:
                memo = self._store.walks if leaf.is_shared else self._walks
                walk = memo.kept[(leaf.number << 32 | way.q) << NODE_BITS | node]
                if walk is None:
                    walk = self._walk_uncached(leaf, way.q, node, memo)
                _, more, exits, inner = walk
                if leaf.labels[way.q] >= 0:  # it may be empty: walks report where its text ends
                    exits = (*exits, (leaf.labels[way.q], node))
                tokens += more
                if inner:
                    ends.append((leaf, inner, frames))
            for next_outcome, exit_node in exits:
                if frames:
                    tokens += self._close(frames, next_outcome, exit_node, room, closed, ends)
                    if len(tokens) > self._most_repeats:
                        tokens = self._once(tokens)
                else:
                    closed.append(exit_node)
        self._store.used += len(tokens) + 300
        closed_at: Node = _NO_NODE
        if closed:
            closed_at = self._store.nodes.join(closed)
        return tokens, closed_at, tuple(ends)

    def _once(self, tokens: Tokens) -> Tokens:
        """Return each token once; before, it occurs once for each way to split its text."""
        WORK.spend(self._store.size >> 9)
        has = np.zeros(self._store.size, bool)
        has[ids_of(tokens)] = True
        return np.flatnonzero(has).astype(np.int32).tobytes()

    def _close(
        self,
        frames: tuple[tuple[Frame, int], ...],
        outcome: int,
        node: Node,
        room: int,
        closed: list[Node],
        ends: list[Ends],
    ) -> Tokens:
        """Continue through ``frames`` (top first); add the nodes where the last one is closed.

        ``room`` is that of the last one.
        """
        tokens = b""
        for frame, at in frames:
            frames = frames[1:]
            here = room
            if room < self._most_room:  # the nesting frames above the last one
                nested = frame.nests and bool(frames)
                here = max(0, room - nested - sum(above.nests for above, _ in frames[:-1]))
            more, closed_at, inner = self._frame_walk(frame, at, outcome, node, here)
            tokens += more
            if inner:
                ends.append((None, inner, frames))
            if closed_at == _NO_NODE:
                return tokens
            outcome, node = 0, closed_at
        closed.append(node)
        return tokens
