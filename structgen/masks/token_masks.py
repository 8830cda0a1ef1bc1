"""Token masks: a machine state × the vocabulary's trie → packed bits.

A mask is computed by walking the trie and the automaton together. The walk is compositional, so
that its parts are shared: `walks` walks one leaf from one state at one node, and reports the tokens
that end inside and the nodes at which the leaf may end; `MaskEngine` goes on there with whatever
the frames below allow. Results are remembered for the vocabulary (walks of leaves that every schema
with the same kind of string shares) and for the constraint (frames, whole states), all under the
vocabulary's one byte budget.

This module knows automata only through `machine.Machine` and `leaf.Leaf`, and no schemas.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer, NamedTokenLeaf
from structgen.automaton.core import (
    BOTTOM,
    GROW,
    POP,
    Alternative,
    Frame,
    Leaf,
    Machine,
    NeedsText,
    TextHistory,
)
from structgen.automaton.json import CLOSE, UNLIMITED, OpeningLeaf
from structgen.automaton.work import WORK
from structgen.masks.cfg.leaves import LexerWalks
from structgen.storage import Caches, GenerationalCache
from structgen.vocabulary import Vocabulary

from .grouping import bits_of, words_of, words_of_few
from .named_tokens import NamedTokens
from .text_independence import Forgetting
from .walk_store import (
    NO_WALK,
    NODE_BITS,
    ROOT,
    Bits,
    Cluster,
    Exits,
    LeafWalk,
    Node,
    Tokens,
    WalkMemo,
    ends_of,
    ids_of,
)
from .walks import Walker, walker_of

_NO_NODE = -1


Mask: TypeAlias = "tuple[bytes | bytearray | memoryview, npt.NDArray[np.int64] | None, Bits]"
"""A mask: a row that many share, and what is different.

That is the row, uint32 [ceil(size / 32)], as bytes (those of an array cost twice as much to copy);
positions in it, or None where nothing is different; and what stands there instead. A plain tuple:
see `walk_store.WalkMemo`.
"""


def fill(mask: Mask, out: Bits) -> None:
    """Write ``mask`` into ``out``, uint32 [ceil(size / 32)]."""
    row, words, bits = mask
    out[:] = np.frombuffer(row, np.uint32)
    if words is not None:
        out[words] = bits


def _packed(walker: Walker, row: bytes | None, tokens: Tokens) -> Mask:
    """The bytes of a row, if any, and tokens as one mask."""
    ids = ids_of(tokens)
    if len(ids) <= _FEW:
        words, bits = words_of_few(ids.tolist())
    elif len(ids) <= _SOME:
        words, bits = words_of(ids)
    else:
        every = bits_of(ids, walker.n_words)
        words = every.nonzero()[0]
        if row is not None or len(words) * 3 > walker.n_words:
            if row is not None:
                every |= np.frombuffer(row, np.uint32)
            return walker.packed(every), None, _NO_BITS
        bits = every[words]
    if not len(words):
        return walker.zeros if row is None else row, None, _NO_BITS
    if row is None:
        return walker.zeros, words, bits
    bits |= np.frombuffer(row, np.uint32)[words]
    return row, words, bits


def _met_again(walker: Walker, key: tuple[bytes | None, Tokens], mask: Mask) -> Mask:
    """``mask``, known by ``key`` and met in another state: in a row of its own where that is often.

    The words that differ are a quarter of what filling it costs. One mask in twenty is met in eight
    states, and these are four in five of those that are filled.
    """
    row, words, bits = mask
    times = (walker.met[key] or 0) + 1
    if times < _OFTEN or words is None:
        walker.met[key] = times
        return mask
    own = np.frombuffer(bytearray(row), np.uint32)
    own[words] = bits
    mask = walker.masks[key] = own.tobytes(), None, _NO_BITS
    walker.used += own.nbytes
    return mask


class _NamedWalks(dict[NamedTokenLeaf, LeafWalk]):
    """What a named token's leaf does at the start of a token."""

    def __init__(self, named: NamedTokens) -> None:
        super().__init__()
        self._named = named

    def __missing__(self, leaf: NamedTokenLeaf) -> LeafWalk:
        end = leaf.start
        while leaf.row(end):
            (end,) = leaf.row(end).values()
        token = array("i", [self._named.ids[leaf.named]]).tobytes()
        found = self[leaf] = None, token, (), (end,)
        return found


Frames: TypeAlias = "tuple[tuple[Frame, int], ...]"

Ends: TypeAlias = "tuple[Leaf | None, tuple[Any, ...], Frames]"
"""Where the tokens of one walk end: what was walked, None for frames; the ends, as in `LeafWalk` or
`FrameWalk`; and the frames above the one below, topmost first; or further ones."""

FrameWalk: TypeAlias = "tuple[Tokens, Node, tuple[Ends, ...]]"
"""What a frame does from one trie node, until it is closed: tokens that end before that, or exactly
there; the node (real or virtual) where it is closed, or -1; and the stacks in which those tokens
end, see `places_of`. Tuples and not named ones: see `walk_store.WalkMemo`."""


def places_of(
    ends: Iterable[Ends], below: Frames = ()
) -> Iterator[tuple[Leaf, int | tuple[int, int], Frames]]:
    """The stacks that a frame's walk ends in: leaf, its state, and frames above the one below.

    Topmost frame first. Some come twice. Only budgets ask.
    """
    for leaf, inner, frames in ends:
        above = frames + below
        if leaf is None:
            yield from places_of(inner, above)
        else:
            for to, end in ends_of(leaf, inner):
                yield to, end, above


Place: TypeAlias = "tuple[Leaf, int | tuple[int, int], int]"
"""A leaf, where in it tokens end (see `walk_store.End`), and the continuation below it."""


def places_over(machine: Machine, ends: Iterable[Ends], below: int) -> Iterator[Place]:
    """`places_of`, with the frames pushed on ``below``."""
    for leaf, end, frames in places_of(ends):
        yield leaf, end, machine.push(frames, below)


_NOTHING_AFTER: FrameWalk = b"", _NO_NODE, ()
_NO_BITS = np.array([], np.uint32)

_OFTEN = 6
"""A mask that so many states have is worth a row."""

_FEW = 24
"""So many tokens are gathered into words one by one,"""

_SOME = 600
"""and so many by sorting them."""


class MaskEngine:
    """Masks of one machine over one vocabulary.

    Thread-safe: a mask that is not cached is computed under the automata's growth lock.

    Attributes:
        ready: the fields of masks by state, of those computed and used of late. Only to be read.
    """

    def __init__(
        self, machine: Machine, vocabulary: Vocabulary, named: NamedTokens | None = None
    ) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self.named = NamedTokens(vocabulary) if named is None else named
        self._walker = walker = walker_of(vocabulary)
        self._by_text: set[int] = set()  # states whose masks depend on the text so far
        self._masks: GenerationalCache[int, Mask] = GenerationalCache()
        self.ready = self._masks
        self._most_room = walker.most_opened + 1

    # What a mask that all schemas share does not ask for.

    _is_noted = False

    @cached_property
    def _caches(self) -> Caches:
        """What goes with the constraint: also walks of frames, and of leaves of its own."""
        return self._walker.caches(self._masks, 4, self.machine)

    @cached_property
    def _alike(self) -> GenerationalCache[tuple[Any, ...], Mask]:
        return self._caches[1]

    @cached_property
    def _frame_walks(self) -> GenerationalCache[tuple[Frame, int, int, Node, int], FrameWalk]:
        return self._caches[2]

    @cached_property
    def _walks(self) -> WalkMemo:
        return self._walker.memo(*self._caches[3:])

    @cached_property
    def _named_walks(self) -> _NamedWalks:
        return _NamedWalks(self.named)

    @cached_property
    def _forgetting(self) -> Forgetting:
        return Forgetting(self.machine, self._walker)

    @cached_property
    def _lexers(self) -> LexerWalks:
        return LexerWalks(self._walker, self.vocabulary)

    def mask(self, state: int, tape: Callable[[], TextHistory]) -> Mask:
        """The mask of ``state``. Cost: a dictionary look-up once computed; see `ready`.

        ``core.text_history`` gives the text so far; it is only asked for where the mask depends on
        it, and then the mask is computed anew each time.
        """
        machine = self.machine
        with GROW:
            found = self._masks[state]
            if found is not None:
                return found
            configurations = machine.configurations(state)
            is_accepting = state in machine.accepting
            if state not in self._by_text:
                try:
                    if state == machine.start:
                        found = self._opening(configurations)
                    if found is None and not self._is_noted:
                        self._is_noted = bool(self._caches)  # ruled from here on
                    for leaf_id, _, _ in configurations if found is None else ():
                        leaf = machine.leaves[leaf_id]
                        if leaf.holds_text and leaf.symbols.has_expressions:
                            found = self._mask_of_alike(configurations, is_accepting)
                            break
                    if found is None:
                        found = self._put_together(configurations, is_accepting, None)
                except NeedsText:
                    self._by_text.add(state)
                else:
                    self._masks[state] = found
                    walker = self._walker
                    walker.used += 100
                    if walker.used > walker.budget * 2 // 5:
                        walker.charge(0)
                    return found
            return self._put_together(configurations, is_accepting, tape())

    def _leaf_walk(self, leaf: Leaf, q: int, node: Node) -> LeafWalk:
        memo = self._walker.walks if leaf.is_shared else self._walks
        found = memo.get(leaf, q, node)
        if found is None:
            anew = self._walk_of_grammar if leaf.of_grammar else self._walker.walk_anew
            found = anew(leaf, q, node, memo)
        return found

    def _walk_of_grammar(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """The walk of a lexer, or of a named token."""
        if isinstance(leaf, NamedTokenLeaf):
            # A token of its own: no other one goes on with it.
            at_root = node == ROOT and q == leaf.start
            return self._named_walks[leaf] if at_root else NO_WALK
        assert isinstance(leaf, Lexer)
        found = self._lexers.walk(leaf, q, node)
        memo.put(leaf, q, node, found)
        self._walker.used += len(found[1]) + 400
        return found

    def root_walk(self, leaf: Leaf, q: int, continuation: int) -> LeafWalk:
        """What ``leaf`` does from its state ``q`` with whole tokens."""
        walker = self._walker
        last = walker.last_walk(leaf, q) if continuation == BOTTOM else None
        if last is not None:
            return last
        memo = walker.walks if leaf.is_shared else self._walks
        found = memo.kept[(leaf.number << 32 | q) << NODE_BITS]  # the root is node 0
        if found is None:
            anew = self._walk_of_grammar if leaf.of_grammar else walker.walk_anew
            found = anew(leaf, q, ROOT, memo)
        return found

    def _mask_of_alike(
        self, configurations: list[tuple[int, int, int]], is_accepting: bool
    ) -> Mask:
        """The mask of ``configurations`` where several states may be alike."""
        configurations = self._alike_ones(configurations)
        key = is_accepting, *configurations
        found = self._alike[key]
        if found is None:
            found = self._alike[key] = self._put_together(configurations, is_accepting, None)
            self._walker.used += 200
        return found

    def _opening(self, configurations: list[tuple[int, int, int]]) -> Mask | None:
        """The mask before the first brace of a document that is plainly an object; None for other
        documents, and where some token holds part of a key as well."""
        leaves, walker = self.machine.leaves, self._walker
        for leaf_id, q, _ in configurations:
            leaf = leaves[leaf_id]
            if type(leaf) is not OpeningLeaf:
                break
            found = walker.openings[leaf, q]
            if found is None:
                row, tokens, exits, _ = walker.leaf_walk(*leaf.before_key(q), ROOT, walker.walks)
                if any(outcome != CLOSE for outcome, _ in exits):
                    break  # nothing follows the end of the document
                bits = None if row is None else walker.packed(row)
                found = walker.openings[leaf, q] = _packed(walker, bits, tokens)
            return found
        return None

    def configurations(self, state: int) -> list[tuple[int, int, int]]:
        """Those of ``state``, or others with the same tokens and completions after them."""
        return self._alike_ones(self.machine.configurations(state))

    def _alike_ones(self, configurations: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        leaves, walker = self.machine.leaves, self._walker
        return [(leaf, walker.alike(leaves[leaf], q), below) for leaf, q, below in configurations]

    def _put_together(
        self,
        configurations: list[tuple[int, int, int]],
        is_accepting: bool,
        tape: TextHistory | None,
    ) -> Mask:
        tokens = bytearray()  # there may be thousands of configurations
        bits: Bits | None = None
        leaves, walker = self.machine.leaves, self._walker
        for leaf_id, q, continuation in configurations:
            row, more, exits, _ = self.root_walk(leaves[leaf_id], q, continuation)
            tokens += more
            if row is not None:
                bits = row if bits is None else bits | row
            for outcome, node in exits:
                if tape is None:
                    for (more, _, _), _ in self.walks_after(continuation, outcome, node):
                        tokens += more
                else:
                    for more, _ in self.walks_after_text(continuation, outcome, node, tape):
                        tokens += more
        if is_accepting:
            eos = [t for t in self.vocabulary.eos_token_ids if t < self.vocabulary.size]
            tokens += array("i", eos).tobytes()
        # On MaskBench four in five have been met before, in another schema or state.
        key = None if bits is None else walker.packed(bits), bytes(tokens)
        mask = walker.masks[key]
        if mask is None:
            mask = walker.masks[key] = _packed(walker, *key)
            walker.used += 300 + len(tokens) + 3 * mask[2].nbytes
        elif mask[1] is not None:
            mask = _met_again(walker, key, mask)
        return self._without_named(mask, configurations) if self.named.textual else mask

    def _without_named(self, mask: Mask, configurations: list[tuple[int, int, int]]) -> Mask:
        """``mask`` without named tokens that only stand there for their text."""
        leaves = [self.machine.leaves[leaf] for leaf, _, _ in configurations]
        meant = {self.named.ids[n.named] for n in leaves if isinstance(n, NamedTokenLeaf)}
        bits = np.zeros(self._walker.n_words, np.uint32)
        fill(mask, bits)
        for token in self.named.textual - meant:
            bits[token >> 5] &= ~np.uint32(1 << (token & 31))
        return self._walker.packed(bits), None, _NO_BITS

    def walks_after_text(
        self, continuation: int, outcome: int, node: Node, tape: TextHistory
    ) -> Iterator[tuple[Tokens, Iterable[Place]]]:
        """As `walks_after`, where what follows depends on the text that led there.

        As far as it does, that is node by node. Tokens, each time with the places in which they
        end.
        """
        machine, walker = self.machine, self._walker
        todo = [(continuation, outcome, node)]
        while todo:
            continuation, outcome, node = todo.pop()
            WORK.spend(1)
            if continuation == BOTTOM or not walker.has_children(node):
                continue
            for frame_id, below in machine.continuations[continuation]:
                frame, at = machine.frames[frame_id]
                room = self._room(frame, continuation)
                others: Iterable[int] = ()
                try:
                    walk = self._frame_walk(frame, at, outcome, node, room)
                except NeedsText:
                    walk, others = self._walk_forgetting(frame, at, outcome, node, room)
                yield walk[0], places_over(machine, walk[2], below)
                if walk[1] != _NO_NODE:
                    todo.append((below, 0, walk[1]))
                for real in others:
                    text = None
                    if frame.records(at, outcome):
                        text = tape.after(walker.trie.string_of(real)).text(outcome)
                    for way in frame.resume(at, outcome, text, not room):
                        pushed = machine.push(way.frames, below)
                        if way.leaf is None:
                            todo.append((pushed, 0, real))
                            continue
                        _, ids, exits, ends = self._leaf_walk(way.leaf, way.q, real)
                        if way.leaf.labels[way.q] >= 0:  # it may be empty
                            exits = (*exits, (way.leaf.labels[way.q], real))
                        stops = ends_of(way.leaf, ends)
                        yield ids, [(leaf, end, pushed) for leaf, end in stops]
                        todo += [(pushed, after, to) for after, to in exits]

    def _walk_forgetting(
        self, frame: Frame, at: int, outcome: int, node: Node, room: int
    ) -> tuple[FrameWalk, Iterable[int]]:
        """`_frame_walk` as far as no text is needed, and the nodes that need it."""
        walk = _NOTHING_AFTER
        if frame.records(at, outcome):
            apart = self._forgetting.apart(frame, at, outcome, node, not room)
            if apart is not None:
                if apart.node is not None:
                    walk = self._walk_on(frame, apart.at, outcome, apart.node, room)
                return walk, apart.others
        return walk, self._walker.real(node)

    def _room(self, frame: Frame, continuation: int) -> int:
        """How many frames that nest may be pushed over ``frame`` before resuming is limited."""
        most = self._most_room
        room = frame.limit - self.machine.depths[continuation]
        return most if room > most else room if room > 0 else 0

    def walks_after(
        self, continuation: int, outcome: int, node: Node
    ) -> list[tuple[FrameWalk, int]]:
        """The walks of all frames that ``node`` leads through, with what lies below each."""
        machine, most_room = self.machine, self._most_room
        depths = machine.depths
        out: list[tuple[FrameWalk, int]] = []
        todo = [(continuation, outcome, node)]
        for continuation, outcome, node in todo:  # which grows, by a few: most tokens end before
            WORK.left -= 1
            if WORK.left < 0:
                raise WORK.too_much()
            for frame_id, below in machine.continuations[continuation]:
                frame, at = machine.frames[frame_id]
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
        """What ``frame`` does from ``node``, where its leaf has ended with ``outcome``.

        Up to ``room`` frames that nest may be pushed before resuming is limited; no more than
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
                ways = self.machine.resumed(frame, at, outcome, not room)
                if ways is POP:
                    return b"", node, ()  # not worth remembering
                found = self._walk_ways(ways, node, room)
            self._frame_walks[key] = found
        return found

    def _walk_on(self, frame: Frame, at: int, outcome: int, node: Node, room: int) -> FrameWalk:
        """As `_frame_walk`, where what follows does not depend on the text."""
        key = (frame, at, outcome, node, room)
        found = self._frame_walks[key]
        if found is None:
            ways = self.machine.resumed(frame, at, outcome, not room)
            found = self._frame_walks[key] = self._walk_ways(ways, node, room)
        return found

    def _walk_ways(self, ways: tuple[Alternative, ...], node: Node, room: int) -> FrameWalk:
        """What a frame does from ``node`` that goes on in one of ``ways``."""
        walker = self._walker
        number = node.number if type(node) is Cluster else node
        closed: list[Node] = []
        ends: list[Ends] = []
        tokens = b""
        for way in ways:
            leaf, frames = way.leaf, way.frames
            exits: Exits
            if leaf is None:
                exits = ((0, node),)
            else:
                memo = walker.walks if leaf.is_shared else self._walks
                walk = memo.kept[(leaf.number << 32 | way.q) << NODE_BITS | number]
                if walk is None:
                    anew = self._walk_of_grammar if leaf.of_grammar else walker.walk_anew
                    walk = anew(leaf, way.q, node, memo)
                _, more, exits, inner = walk
                if leaf.labels[way.q] >= 0:  # it may be empty: walks tell where text of it ends
                    exits = (*exits, (leaf.labels[way.q], node))
                tokens += more
                if inner:
                    ends.append((leaf, inner, frames))
            for next_outcome, exit_node in exits:
                if frames:
                    tokens += self._close(frames, next_outcome, exit_node, room, closed, ends)
                else:
                    closed.append(exit_node)
        walker.used += len(tokens) + 300
        closed_at: Node = _NO_NODE
        if closed:
            closed_at = walker.join(closed) if closed[1:] else closed[0]
        return tokens, closed_at, tuple(ends)

    def _close(
        self,
        frames: tuple[tuple[Frame, int], ...],
        outcome: int,
        node: Node,
        room: int,
        closed: list[Node],
        ends: list[Ends],
    ) -> Tokens:
        """Walk on through ``frames`` (top first); nodes where the last one is closed are added.

        ``room`` is that of the last one.
        """
        tokens = b""
        for frame, at in frames:
            frames = frames[1:]
            here = room
            if room < self._most_room:  # those that nest above the last one
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
