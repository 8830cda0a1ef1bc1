"""The caches of one vocabulary, and walks as values (`LeafWalk`, `End`).

All `GenerationalCache` caches of a vocabulary share one byte budget, and drop the least recently
used entries. `string_walks` and `leaf_walks` make the walks.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import LimitedLeaf
from structgen.automaton.core import Leaf
from structgen.automaton.json import ExcludingLeaf
from structgen.storage import Caches, GenerationalCache, Weighed, fork_safe
from structgen.vocabulary import Trie, Vocabulary

from .grouping import bits_of
from .node_sets import NODE_BITS, Node, NodeSets

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = npt.NDArray[np.int32]

Tokens: TypeAlias = bytes
"""Token ids (repeats allowed) as bytes, int32 each: joining and looking up bytes takes a fraction
of an array's time; see `ids_of`."""

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
"""Byte budget of one vocabulary's caches."""

ROOT = 0

_FEW_GROUPS = 256
"""Dead groups of caches are removed only when there are more groups than this."""


def ids_of(tokens: Tokens) -> Ids:
    """Return ``tokens`` as an array. Read only."""
    return np.frombuffer(tokens, np.int32)


Exits: TypeAlias = "tuple[tuple[int, Node], ...]"

End: TypeAlias = "int | tuple[int, int] | tuple[str, tuple[End, ...], int | None]"
"""A state; a run of text, by its first state and its length (see `LeafTexts.run_ends`); or the ends
of a walk of the shared leaf before a text that begins in a state (`Leaf.before_text`), of the leaf
after a text with a label (`Leaf.after_text`), or of the leaf that continues (`Leaf.handed`). Plain
tuples: see `WalkMemo`."""

BEFORE, AFTER, HANDED = "before", "after", "handed"

Stop: TypeAlias = "tuple[Leaf, int | tuple[int, int]]"
"""A leaf, and a state of it or a run of text."""


def ends_of(leaf: Leaf, ends: Iterable[End]) -> Iterator[Stop]:
    """Yield the ends of a walk of ``leaf``, as states and runs of that leaf or of the one that
    takes over."""
    if isinstance(leaf, LimitedLeaf):
        leaf = leaf.inner
    if not leaf.hands_over:
        for own in _own_ends(leaf, ends):
            yield leaf, own
        return
    assert isinstance(leaf, ExcludingLeaf)
    for end in ends:
        if isinstance(end, int):
            yield leaf, end
        elif len(end) == 3:
            yield from ends_of(leaf.base, end[1])


def _own_ends(leaf: Leaf, ends: Iterable[End]) -> dict[int | tuple[int, int], None]:
    out: dict[int | tuple[int, int], None] = {}
    for end in ends:
        if isinstance(end, int) or len(end) == 2:
            out[end] = None
            continue
        which, theirs, at = end
        for q in theirs:
            assert isinstance(q, int), "punctuation is no text"
            if which == BEFORE:
                out[leaf.own_before(q, at)] = None
            else:
                assert at is not None
                out[leaf.own(q, at)] = None
    return out


LeafWalk: TypeAlias = "tuple[Bits | None, Tokens, Exits, tuple[End, ...]]"
"""The walk of a leaf from one node. Plain tuples: see `WalkMemo`.

- Further tokens that end inside the leaf, as bits ``[ceil(size / 32)]``; or None, and None unless
  the walk starts at the root.
- Tokens that end inside the leaf or exactly where it may end.
- ``(outcome, node)`` pairs: the nodes where the leaf may end, with its outcome; only nodes where
  some token continues.
- The ends of these tokens; used only for token budgets, through `ends_of`.
"""

LeafWalker: TypeAlias = "Callable[[Leaf, int, Node, WalkMemo], LeafWalk]"
"""Walks a leaf from a state at a node, and caches the walk in a memo."""

NO_WALK: LeafWalk = None, b"", (), ()


class WalkMemo:
    """Walks of leaves, by leaf, state and node.

    There are thousands, and every full garbage collection would visit them. So keys are integers
    and walks plain tuples, which the collector ignores after it has seen that they only contain
    numbers and arrays. Equal exits share one object. Walks may outlive their leaf.

    Attributes:
        kept: the walks, by ``(leaf number << 32 | state) << NODE_BITS | number of the node``. Read
            only.
        tables: tables of leaves for wide walks; see `leaf_walks`.
    """

    __slots__ = ("_exits", "kept", "tables")

    def __init__(
        self,
        kept: GenerationalCache[int, LeafWalk],
        exits: GenerationalCache[Exits, Exits],
        tables: GenerationalCache[Leaf, Any],
    ) -> None:
        self.kept = kept
        self._exits = exits
        self.tables = tables

    def get(self, leaf: Leaf, q: int, node: Node) -> LeafWalk | None:
        """Return the walk, or None."""
        return self.kept[(leaf.number << 32 | q) << NODE_BITS | node]

    def put(self, leaf: Leaf, q: int, node: Node, walk: LeafWalk) -> None:
        """Store ``walk``."""
        row, ids, exits, ends = walk
        if exits:
            known = self._exits[exits]
            if known is None:
                known = self._exits[exits] = exits
            exits = known
        self.kept[(leaf.number << 32 | q) << NODE_BITS | node] = row, ids, exits, ends


class WalkBuilder:
    """A walk in progress."""

    __slots__ = ("ends", "exits", "ids", "parts", "row")

    def __init__(self) -> None:
        self.row: Bits | None = None
        self.ids: list[int] = []
        self.parts: list[Tokens] = []
        self.exits: dict[int, list[Node]] = {}
        self.ends: dict[End, None] = {}

    def add_row(self, row: Bits) -> None:
        """Add the tokens of a row."""
        self.row = row if self.row is None else self.row | row

    def include(self, walk: LeafWalk) -> None:
        """Add everything from ``walk``, of the same leaf."""
        row, ids, exits, ends = walk
        if row is not None:
            self.add_row(row)
        self.parts.append(ids)
        self.ends.update(dict.fromkeys(ends))
        for outcome, node in exits:
            self.exits.setdefault(outcome, []).append(node)


class WalkStore:
    """The caches of one vocabulary.

    Attributes:
        vocabulary: the vocabulary, while it is in use.
        nodes: nodes of the trie, and sets of them.
        used: bytes charged since the last turn.
        held: bytes charged in the previous generation; many of them dropped or used again since.
        turns: how often the caches have turned.
        when_rotated: called at each turn.
        masks: masks by the row and the token ids that they consist of; see `masks.MaskEngine`.
        met: the number of states of masks without their own row.
        openings: masks before the first brace, by leaf and state; see `masks.MaskEngine`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        # A weak reference: this object lives as long as its vocabulary.
        self.vocabulary = weakref.ref(vocabulary)
        self.trie: Trie = vocabulary.trie
        self.size = vocabulary.size
        self.n_words = (vocabulary.size + 31) // 32
        self.zeros = bytes(4 * self.n_words)
        # the values that one token can open: "[[[" opens three
        self.most_opened = self.trie.most(b"[{")
        self.budget = DEFAULT_CACHE_BYTES
        self.used = 0
        self.held = 0
        self.turns = 0
        self._caches_lock = fork_safe(threading.Lock())
        self._caches: weakref.WeakSet[GenerationalCache[Any, Any]] = weakref.WeakSet()
        # The caches of constraints. Many come and go: dead ones are removed from time to time.
        self._groups: list[weakref.ref[Caches]] = []
        self._most_groups = _FEW_GROUPS
        self._exits: GenerationalCache[Exits, Exits] = self.cache()
        self.walks = self.memo(self.cache(), self.cache())
        self._interned: GenerationalCache[bytes, Bits] = self.cache()
        self.masks: GenerationalCache[tuple[bytes | None, Tokens], tuple[Any, Any, Bits]] = (
            self.cache()
        )
        self.met: GenerationalCache[tuple[bytes | None, Tokens], int] = self.cache()
        self.openings: GenerationalCache[tuple[Leaf, int], tuple[Any, Any, Bits]] = self.cache()
        self.when_rotated: list[Callable[[], None]] = []
        self.nodes = NodeSets(self.trie, self.cache, self.charge)

    # -- the budget -------------------------------------------------------------------------

    def cache(self) -> GenerationalCache[Any, Any]:
        """Return a cache within this vocabulary's budget."""
        made: GenerationalCache[Any, Any] = GenerationalCache()
        with self._caches_lock:
            self._caches.add(made)
        return made

    def caches(self, first: GenerationalCache[Any, Any], count: int, owner: Weighed) -> Caches:
        """Return ``first`` plus ``count`` more caches, within the budget as long as the list lives.

        ``owner`` is the automaton of the constraint that they belong to.
        """
        made = Caches([first, *(GenerationalCache() for _ in range(count))], owner)
        with self._caches_lock:
            if len(self._groups) >= self._most_groups:
                self._groups = [group for group in self._groups if group() is not None]
                self._most_groups = max(_FEW_GROUPS, 2 * len(self._groups))
            self._groups.append(weakref.ref(made))
        return made

    def memo(
        self, kept: GenerationalCache[int, Any], tables: GenerationalCache[Leaf, Any]
    ) -> WalkMemo:
        """Return a memo that stores walks in ``kept``, and tables of leaves in ``tables``."""
        return WalkMemo(kept, self._exits, tables)

    def charge(self, n_bytes: int) -> None:
        """Count ``n_bytes`` of cache; the current generation may take two fifths of the budget.

        One mask may add a lot before it is charged: if the previous generation would take more than
        the rest of the budget, it is dropped at once.
        """
        self.used += n_bytes
        if self.used > self.budget * 2 // 5:
            self.held, self.used = self.used, 0
            self._rotate()
            if self.held > self.budget * 3 // 5:
                self.held = 0
                self._rotate()

    def _rotate(self) -> None:
        self.turns += 1
        for cache in self._all_caches():
            cache.rotate()
        for forget in self.when_rotated:
            forget()

    def entries(self) -> int:
        """Return the number of entries."""
        return sum(len(cache) + len(cache.old) for cache in self._all_caches())

    def weight_of_owners(self) -> int:
        """Return roughly how many bytes the automata of live constraints take."""
        with self._caches_lock:
            owners = [group.owner for group in self._live_groups()]
        return sum(owner.weight for owner in owners)

    def _all_caches(self) -> list[GenerationalCache[Any, Any]]:
        with self._caches_lock:
            return [*self._caches, *(cache for group in self._live_groups() for cache in group)]

    def _live_groups(self) -> list[Caches]:
        return [made for group in self._groups if (made := group()) is not None]

    def intern(self, bits: Bits) -> Bits:
        """Return one array for all rows equal to ``bits``."""
        key = bits.tobytes()
        found = self._interned[key]
        if found is None:
            found = self._interned[key] = np.frombuffer(key, np.uint32)
            self.charge(len(key) + 200)
        return found

    def packed(self, bits: Bits) -> bytes:
        """Return one object for the bytes of all rows equal to ``bits``."""
        base = bits.base
        if type(base) is not bytes:
            base = self.intern(bits).base
            assert type(base) is bytes
        return base

    def with_row(self, walk: LeafWalk) -> LeafWalk:
        """Return ``walk`` with its tokens as bits, which are smaller, and which masks need
        anyway."""
        row, ids, exits, ends = walk
        more = bits_of(ids_of(ids), self.n_words)
        return self.intern(more if row is None else row | more), b"", exits, ends

    def finished(self, found: WalkBuilder) -> LeafWalk:
        """Return ``found`` as a walk."""
        if found.ids:
            found.parts.append(array("i", found.ids).tobytes())
        joined = tuple(
            [(outcome, self.nodes.join(nodes)) for outcome, nodes in found.exits.items()]
        )
        return found.row, b"".join(found.parts), joined, tuple(found.ends)
