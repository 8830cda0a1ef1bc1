"""Walks of one leaf automaton through a vocabulary's trie, remembered for the vocabulary.

`Walker` is what all constraints over one vocabulary share. `Walker.leaf_walk` walks a leaf from one
state at one node and reports the tokens that end inside it and the nodes where it may end. Text is
left to `text_walks`; everything else is walked byte by byte, depth first while few nodes survive,
level by level in NumPy once there are many.

A `Cluster` is a set of trie nodes walked as one: all the places where tokens leave a string, say.
Whatever is remembered lies in `Recent` caches under one byte budget, of which the part not used for
longest is dropped. Nothing here knows of frames, constraints or masks.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import character_nodes
from .automaton.encoding import GROUND, Utf8
from .automaton.leaf import Leaf, StringLeaf, TextLeaf
from .automaton.numbers import NumberLeaf
from .automaton.shared import AUTOMATA
from .characters import Characters, Whole
from .digit_walks import Digits
from .grouping import distinct, ranges, starts_of
from .recent import Caches, Recent
from .text_walks import ANEW, TextWalk, TextWalks, apart
from .trie import Trie, view
from .vocabulary import Vocabulary

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = npt.NDArray[np.int32]

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
"""Byte budget of one vocabulary's caches."""

_LONGEST_NAME = 80

ROOT = 0
EMPTY = np.array([], np.int32)

_SPARSE_VISITS = 256
"""Trie nodes a sparse walk may visit before the wide walk takes over."""


_FEW_NAMES = 200
"""Names of which each is looked up by what is left of it."""

_FEW_MEMBERS = 24
"""Nodes whose children are gathered one by one."""


class Cluster:
    """Several trie nodes walked as one.

    Attributes:
        members: the nodes, ascending.
        children: byte → child, once asked for.
        number: what no other cluster and no trie node has.
    """

    __slots__ = ("__weakref__", "children", "members", "number")

    def __init__(self, members: npt.NDArray[np.int32]) -> None:
        self.members = members
        self.number = next(_cluster_numbers)
        self.children: dict[int, Node] | None = None


Node: TypeAlias = "int | Cluster"
Exits: TypeAlias = "tuple[tuple[int, Node], ...]"

_NODE_BITS = 40
_cluster_numbers = itertools.count(1 << (_NODE_BITS - 1))


End: TypeAlias = "int | tuple[int, int] | tuple[str, tuple[End, ...], int | None]"
"""A state; a run of text, by its first state and its length (see `Walker.run_ends`); or the ends of
a walk of the shared leaf before a text that begins in a state (`Leaf.before_text`), or of that
after one with a label (`Leaf.after_text`). Tuples and not named ones: see `WalkMemo`."""

_BEFORE, _AFTER = "before", "after"


def ends_of(leaf: Leaf, ends: Iterable[End]) -> dict[int | tuple[int, int], None]:
    """The ends of a walk of ``leaf`` in its own states and runs."""
    out: dict[int | tuple[int, int], None] = {}
    for end in ends:
        if isinstance(end, int) or len(end) == 2:
            out[end] = None
            continue
        which, theirs, at = end
        for q in theirs:
            assert isinstance(q, int), "punctuation is no text"
            if which == _BEFORE:
                out[leaf.own_before(q, at)] = None
            else:
                assert at is not None
                out[leaf.own(q, at)] = None
    return out


LeafWalk: TypeAlias = "tuple[Bits | None, Ids, Exits, tuple[End, ...]]"
"""What one leaf does from one node. Tuples and not named ones: see `WalkMemo`.

- Further tokens that end inside the leaf, as bits ``[ceil(size / 32)]``; or None, and None unless
  the walk starts at the root.
- Tokens that end inside the leaf or exactly where it may end.
- ``(outcome, node)`` pairs: where the leaf may end, and with which outcome.
- Where those tokens end; only budgets ask, through `ends_of`.
"""

NO_WALK: LeafWalk = None, EMPTY, (), ()


class WalkMemo:
    """Walks of leaves, remembered by leaf, state and node.

    There are thousands, which every full collection of garbage would look at: so keys are integers
    and walks plain tuples, which the collector leaves alone once it has seen that they hold nothing
    but numbers and arrays. Exits, of which few are different, are one for all. A leaf that is
    dropped may be gone before its walks are.
    """

    __slots__ = ("_exits", "_kept")

    def __init__(self, kept: Recent[int, LeafWalk], exits: Recent[Exits, Exits]) -> None:
        self._kept = kept
        self._exits = exits

    def get(self, leaf: Leaf, q: int, node: Node) -> LeafWalk | None:
        """The walk, or None."""
        at = node if isinstance(node, int) else node.number
        return self._kept[(leaf.number << 32 | q) << _NODE_BITS | at]

    def put(self, leaf: Leaf, q: int, node: Node, walk: LeafWalk) -> None:
        """Remember ``walk``."""
        row, ids, exits, ends = walk
        if exits:
            known = self._exits[exits]
            if known is None:
                known = self._exits[exits] = exits
            exits = known
        at = node if isinstance(node, int) else node.number
        self._kept[(leaf.number << 32 | q) << _NODE_BITS | at] = row, ids, exits, ends


class Walker:
    """The caches and walks of one vocabulary.

    Attributes:
        used: bytes charged since the last turn.
        held: bytes charged in the generation before, much of it dropped or used again since.
        turns: how often the caches have been turned.
        masks: masks by the row and the token ids that they consist of; see `masks.pack`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        # Not held: the walker lasts as long as its vocabulary.
        self._vocabulary = weakref.ref(vocabulary)
        self.trie: Trie = vocabulary.trie
        self.size = vocabulary.size
        self.n_words = (vocabulary.size + 31) // 32
        self.zeros = bytes(4 * self.n_words)
        # values that one token can open: "[[[" three
        self.most_opened = self.trie.most(b"[{")
        self.unsettled: Ids | None = None  # see `reach`, which makes it when it needs it
        self.budget = DEFAULT_CACHE_BYTES
        self.used = 0
        self.held = 0
        self.turns = 0
        self._caches_lock = threading.Lock()
        self._caches: weakref.WeakSet[Recent[Any, Any]] = weakref.WeakSet()
        self._groups: weakref.WeakSet[Caches] = weakref.WeakSet()
        self._exits: Recent[Exits, Exits] = self.cache()
        self.walks = self.memo(self.cache())
        self._rows: Recent[tuple[int, int, int], tuple[Any, Any, Bits]] = self.cache()
        self._interned: Recent[bytes, Bits] = self.cache()
        self.masks: Recent[tuple[bytes | None, bytes], tuple[bytes, Any, Bits]] = self.cache()
        self._quoted: Recent[tuple[Characters, Any], tuple[Ids, Node | None]] = self.cache()
        self._free: Recent[tuple[Characters, bytes, tuple[int, ...], Leaf], LeafWalk]
        self._free = self.cache()
        self._after: Recent[tuple[Characters, Any, Leaf], LeafWalk] = self.cache()
        # By text last: of keys that are strings alone the collector need not know.
        self._rests: Recent[tuple[Characters, Leaf | None], Recent[str, _Rest]] = self.cache()
        self._before: Recent[tuple[Leaf, int, Node], tuple[LeafWalk, Node | None, bytes]]
        self._before = self.cache()
        self._clusters: weakref.WeakValueDictionary[bytes, Cluster] = weakref.WeakValueDictionary()
        self._tables: Recent[Leaf, _Table] = self.cache()
        # What is made for a leaf holds its automaton, and goes with the leaf.
        self._texts: weakref.WeakKeyDictionary[Leaf, TextWalks] = weakref.WeakKeyDictionary()
        self._characters: dict[tuple[str, frozenset[int]], Characters] = {}
        self._views = (
            view(self.trie.first_child),
            view(self.trie.n_children),
            view(self.trie.byte),
            view(self.trie.token_start),
            view(self.trie.token_ids),
        )

    # -- the budget -------------------------------------------------------------------------

    def cache(self) -> Recent[Any, Any]:
        """A cache that this walker's budget rules."""
        made: Recent[Any, Any] = Recent()
        with self._caches_lock:
            self._caches.add(made)
        return made

    def caches(self, count: int) -> Caches:
        """Several at once, which are ruled as long as the list is held: it is noted once."""
        made = Caches([Recent() for _ in range(count)])
        with self._caches_lock:
            self._groups.add(made)
        return made

    def memo(self, kept: Recent[int, Any]) -> WalkMemo:
        """A memo of walks that keeps them in ``kept``."""
        return WalkMemo(kept, self._exits)

    def charge(self, n_bytes: int) -> None:
        """Count ``n_bytes`` of cache; half the budget is for what was used last."""
        self.used += n_bytes
        if self.used > self.budget // 2:
            self.held, self.used = self.used, 0
            self.turns += 1
            for cache in self._all_caches():
                cache.turn()
            self._texts = weakref.WeakKeyDictionary()

    def entries(self) -> int:
        """How many things are remembered."""
        return sum(len(cache) + len(cache.old) for cache in self._all_caches())

    def _all_caches(self) -> list[Recent[Any, Any]]:
        with self._caches_lock:
            return [*self._caches, *(cache for group in self._groups for cache in group)]

    @property
    def tables(self) -> int:
        """Bytes of the vocabulary's characters, in each spelling that was needed."""
        return sum(characters.n_bytes for characters in list(self._characters.values()))

    def intern(self, bits: Bits) -> Bits:
        """One array for all rows equal to ``bits``."""
        key = bits.tobytes()
        found = self._interned[key]
        if found is None:
            found = self._interned[key] = np.frombuffer(key, np.uint32)
            self.charge(len(key) + 200)
        return found

    def packed(self, bits: Bits) -> bytes:
        """One object for the bytes of all rows equal to ``bits``."""
        if type(bits.base) is not bytes:
            bits = self.intern(bits)
        assert isinstance(bits.base, bytes)
        return bits.base

    # -- trie nodes, one or many ------------------------------------------------------------

    def join(self, nodes: Sequence[Node]) -> Node:
        """One node that stands for all of ``nodes``."""
        if len(nodes) == 1:
            return nodes[0]
        real: set[int] = set()
        for node in nodes:
            if isinstance(node, int):
                real.add(node)
            else:
                real.update(node.members.tolist())
        if len(real) == 1:
            return real.pop()
        return self.cluster(np.array(sorted(real), np.int32))

    def cluster(self, members: npt.NDArray[np.int32]) -> Cluster:
        """The cluster of ``members``, which ascend."""
        key = members.tobytes()
        found = self._clusters.get(key)
        if found is None:
            found = self._clusters[key] = Cluster(members)
            self.charge(2 * len(key) + 200)
        return found

    def real(self, node: Node) -> list[int]:
        """The trie nodes that ``node`` stands for."""
        if isinstance(node, int):
            return [node]
        members: list[int] = node.members.tolist()
        return members

    def has_children(self, node: Node) -> bool:
        """Whether any token goes on after ``node``."""
        if isinstance(node, int):
            return bool(self._views[1][node])
        return bool(self.children(node))

    def children(self, cluster: Cluster) -> dict[int, Node]:
        """Byte → child of a cluster."""
        out = cluster.children
        if out is None:
            out = cluster.children = self._children_of(cluster.members)
            self.charge(100 * len(out) + 100)
        return out

    def _children_of(self, members: npt.NDArray[np.int32]) -> dict[int, Node]:
        if len(members) <= _FEW_MEMBERS:
            first, count, byte = self._views[:3]
            grouped: dict[int, list[int]] = {}
            for member in members.tolist():
                start = first[member]
                for child in range(start, start + count[member]):
                    grouped.setdefault(byte[child], []).append(child)
            return {
                b: nodes[0] if len(nodes) == 1 else self.cluster(np.array(nodes, np.int32))
                for b, nodes in grouped.items()
            }
        trie = self.trie
        starts = trie.first_child[members]
        # The children of ascending nodes ascend.
        children = ranges(starts, starts + trie.n_children[members]).astype(np.int32)
        order = np.argsort(trie.byte[children], kind="stable")
        children = children[order]
        bytes_ = trie.byte[children]
        begin = starts_of(bytes_)
        bounds = pairwise([*begin.tolist(), len(children)])
        return {
            b: int(children[i]) if j == i + 1 else self.cluster(children[i:j].copy())
            for b, (i, j) in zip(bytes_[begin].tolist(), bounds, strict=True)
        }

    def ids_at(self, node: Node) -> list[int]:
        """Tokens that end at ``node``."""
        start, ids = self._views[3:]
        if isinstance(node, int):
            return list(ids[start[node] : start[node + 1]])
        out: list[int] = []
        for member in node.members.tolist():
            out += ids[start[member] : start[member + 1]]
        return out

    # -- one leaf ---------------------------------------------------------------------------

    def leaf_walk(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Walk ``leaf`` from state ``q`` at ``node``; remembered in ``memo``."""
        found = memo.get(leaf, q, node)
        return self.walk_anew(leaf, q, node, memo) if found is None else found

    def walk_anew(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """As `leaf_walk`, where ``memo`` does not hold the walk yet."""
        found = self._walk_before_text(leaf, q, node, memo)
        if found is None:
            found = self._text_walk(leaf, q, node, memo)
        if found is None:
            is_wide = node == ROOT and self._is_wide(leaf)
            if is_wide and self._digits.is_walked:
                found = self._number_walk(leaf, q, memo)
            elif not is_wide:
                found = self._sparse_walk(leaf, q, node, memo)
            if found is None:
                found = self._wide_walk(leaf, q, node)
        if node == ROOT and found[1].nbytes > 4 * self.n_words:
            found = self._with_row(found)
        memo.put(leaf, q, node, found)
        # What walks cost is looked at once a mask, when that is charged.
        self.used += found[1].nbytes + 400 + (leaf.grown() if leaf.is_shared else 0)
        return found

    def _with_row(self, walk: LeafWalk) -> LeafWalk:
        """``walk`` with its tokens as bits, which take less, and which masks need anyway."""
        row, ids, exits, ends = walk
        flags = np.zeros(self.n_words * 32, np.uint8)
        flags[ids] = 1
        more: Bits = np.packbits(flags, bitorder="little").view("<u4")
        return self.intern(more if row is None else row | more), EMPTY, exits, ends

    def alike(self, leaf: Leaf, q: int) -> int:
        """A state of ``leaf`` with the same tokens as ``q``, shared by many such states.

        After each token the shortest completion is as long, too.
        """
        if not leaf.holds_text:
            return leaf.alike(q, self._digits.longest)
        state = leaf.text_state(q)
        if state is None:
            return q
        to = self._texts_of(leaf).alike(state)
        return q if to == state else leaf.in_text(to)

    def last_walk(self, leaf: Leaf, q: int) -> LeafWalk | None:
        """`leaf_walk` from the root of plain text after which nothing follows, without exits.

        None where the ordinary walk serves as well.
        """
        if type(leaf) is not TextLeaf:
            return None
        state = leaf.text_state(q)
        if state is None or not self._texts_of(leaf).is_wide(state):
            return None
        found = _Found()
        self._add_text(leaf, self._texts_of(leaf).walk(state, [_ROOT_PLACE]), found, None)
        return self._finished(found)

    @functools.cached_property
    def _digits(self) -> Digits:
        return Digits(self.trie)

    def _is_wide(self, leaf: Leaf) -> bool:
        """Whether ``leaf`` is known to be too much for a sparse walk from the root."""
        return isinstance(leaf, NumberLeaf) and self._digits.count > _SPARSE_VISITS

    def _number_walk(self, leaf: Leaf, q: int, memo: WalkMemo) -> LeafWalk:
        """The walk of a number from the root, all digit strings that it cannot tell apart at
        once."""
        walk = self._digits.walk(leaf, q)
        found = _Found()
        found.parts.append(walk.ids)
        found.ends.update(dict.fromkeys(walk.ends))
        for outcome, nodes in walk.exits.items():
            found.exits[outcome] = [int(nodes[0]) if len(nodes) == 1 else self.cluster(nodes)]
        for state, node in walk.others:
            ids = self.ids_at(node)
            if ids:
                found.ids += ids
                found.ends[state] = None
            outcome = leaf.label(state)
            if outcome >= 0:
                found.exits.setdefault(outcome, []).append(node)
            if self.trie.n_children[node]:
                found.include(self.leaf_walk(leaf, state, node, memo))
        return self._finished(found)

    def _sparse_walk(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk | None:
        first, count, byte_at, token_start, token_ids = self._views
        child_of = self.trie.child
        is_text, labels = leaf.holds_text, leaf.labels
        found = _Found()
        ids, exits, ends = found.ids, found.exits, found.ends
        texts: dict[int, list[int]] = {}
        stack: list[tuple[int, Node]] = [(q, node)]
        visits = 0
        while stack:
            state, at = stack.pop()
            if isinstance(at, int) and not count[at]:
                continue
            if is_text and self._set_aside(leaf, state, at, texts):
                continue
            if isinstance(at, int):
                n = count[at]
                row = leaf.row(state)
                if len(row) < n:
                    visits += len(row)
                    base = at << 8
                    pairs: list[tuple[int, Node]] = []
                    for byte, to in row.items():
                        child = child_of.get(base | byte)
                        if child is not None:
                            pairs.append((to, child))
                else:
                    visits += n
                    start = first[at]
                    pairs = []
                    for child in range(start, start + n):
                        step = row.get(byte_at[child])
                        if step is not None:
                            pairs.append((step, child))
            else:
                children = self.children(at)
                row = leaf.row(state)
                visits += min(len(children), len(row))
                few, many = (row, children) if len(row) < len(children) else (children, row)
                pairs = [(row[byte], children[byte]) for byte in few if byte in many]
            if visits > _SPARSE_VISITS:
                return None
            for to, child_node in pairs:
                if isinstance(child_node, int):
                    a, b = token_start[child_node], token_start[child_node + 1]
                    if a != b:
                        ids += token_ids[a:b]
                        ends[to] = None
                else:
                    here = self.ids_at(child_node)
                    if here:
                        ids += here
                        ends[to] = None
                outcome = labels[to]
                if outcome >= 0:
                    exits.setdefault(outcome, []).append(child_node)
                stack.append((to, child_node))
        if texts:
            self._walk_texts(leaf, texts, found, memo)
        return self._finished(found)

    def _finished(self, found: _Found) -> LeafWalk:
        parts = found.parts
        if found.ids:
            parts.append(np.array(found.ids, np.int32))
        joined = tuple([(outcome, self.join(nodes)) for outcome, nodes in found.exits.items()])
        ids = EMPTY if not parts else parts[0] if len(parts) == 1 else np.concatenate(parts)
        return found.row, ids, joined, tuple(found.ends)

    # -- text -------------------------------------------------------------------------------

    def characters(self, encoding: Utf8) -> Characters:
        """The vocabulary's characters as ``encoding`` spells them."""
        spelling, barred = encoding.spelling, encoding.barred
        found = self._characters.get((spelling, barred))
        if found is None:
            arrays = self._character_arrays(spelling, barred)
            found = Characters(
                self.trie, self.size, spelling, barred, arrays, self.cache, self.charge
            )
            self._characters[spelling, barred] = found
        return found

    def _character_arrays(self, spelling: str, barred: frozenset[int]) -> character_nodes.Arrays:
        def build() -> character_nodes.Arrays:
            return character_nodes.build(self.trie, self.size, spelling, barred)

        vocabulary = self._vocabulary()
        if vocabulary is None:
            return build()
        name = "-".join(["characters", spelling, *(f"{byte:x}" for byte in sorted(barred))])
        if len(name) > _LONGEST_NAME:
            name = f"characters-{spelling}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return vocabulary.cached_arrays(name, character_nodes.VERSION, build)

    def _texts_of(self, leaf: Leaf) -> TextWalks:
        # Symbols of leaves that are not shared may lead back to the leaf: a table of ours would
        # hold both for ever.
        found: TextWalks | None
        found = self._texts.get(leaf) if leaf.is_shared else leaf.attached.get(self)
        if found is None:
            assert leaf.holds_text
            found = TextWalks(self.characters(leaf.encoding), leaf.symbols)
            if leaf.is_shared:
                self._texts[leaf] = found
            else:
                leaf.attached[self] = found
        return found

    def _text_walk(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk | None:
        """The walk of a text from ``q``; None where no text, or one that may end anywhere."""
        if not leaf.holds_text or type(leaf) is TextLeaf:
            return None
        state = leaf.text_state(q)
        if state is None:
            return None
        if node == ROOT:
            if type(leaf) is StringLeaf:
                return self._string_walk(leaf, self._texts_of(leaf), state, memo)
            rests = leaf.symbols.rests(state, _FEW_NAMES)
            if rests is not None:
                characters = self.characters(leaf.encoding)
                if characters.is_canonical:
                    return self._walk_names(leaf, state, rests, characters)
        walks = self._texts_of(leaf)
        found = _Found()
        if isinstance(node, int):
            place = walks.characters.views.place[node]
            if place < 0:
                return None
            self._walk_text(leaf, walks, state, [place], found, memo)
            return self._finished(found)
        texts: dict[int, list[int]] = {}
        if not self._set_aside(leaf, q, node, texts):
            return None
        self._walk_texts(leaf, texts, found, memo)
        return self._finished(found)

    def _string_walk(self, leaf: Leaf, walks: TextWalks, state: int, memo: WalkMemo) -> LeafWalk:
        """The walk from the root of a string whose text is at ``state``: the same for all strings
        of which the same is left to be read."""
        content = walks.content(state)
        closed = leaf.after_quote(0)
        kept = None if content is None else walks.characters.strings[content]
        if kept is not None:
            row, ids, exits, is_closed = kept
            ends = (state, ANEW)
            return row, ids, exits, (ends, closed) if is_closed else (ends,)
        found = _Found()
        self._walk_text(leaf, walks, state, [_ROOT_PLACE], found, memo)
        walk = self._finished(found)
        if content is not None:
            if walk[1].nbytes > 4 * self.n_words:
                walk = self._with_row(walk)
            row, ids, exits, inner = walk
            walks.characters.strings[content] = row, ids, exits, closed in inner
            self.used += ids.nbytes + 300
        return walk

    def _walk_names(
        self, leaf: Leaf, state: int, rests: list[tuple[int, str]], characters: Characters
    ) -> LeafWalk:
        """The walk from the root of a text that is one of a few names, by what is left of them."""
        parts: list[Ids] = []
        exits: dict[int, list[Node]] = {}
        ends: list[End] = [(state, -1 - _ROOT_PLACE)]
        shared = leaf.after_text(rests[0][0])
        after = None if shared is None else shared[0]  # one for all names
        known = self._rests[characters, after]
        if known is None:
            known = self._rests[characters, after] = self.cache()
        for name, text in rests:
            shared = leaf.after_text(name)
            found = known[text]
            if found is None:
                found = known[text] = self._rest(characters, after, text)
                self.used += found[0].nbytes + len(text) + 300
            ids, node, after_ends = found
            parts.append(ids)
            if after_ends is None:
                continue
            if shared is not None:
                ends.append((_AFTER, after_ends, name))
                outcome = shared[1]
            else:
                to = leaf.after_quote(name)
                ends.append(to)
                outcome = leaf.label(to)
            if node is not None:
                exits.setdefault(outcome, []).append(node)
        ids = parts[0] if len(parts) == 1 else np.concatenate(parts)
        joined = tuple([(outcome, self.join(nodes)) for outcome, nodes in exits.items()])
        return None, ids, joined, tuple(ends)

    def _rest(self, characters: Characters, after: Leaf | None, text: str) -> _Rest:
        """What `_walk_names` needs to know of a name of which ``text`` is left."""
        some, quote = characters.spelt(text)
        ids = np.frombuffer(some, np.int32)
        if quote < 0:
            return ids, None, None
        node: Node | None = None
        ends: tuple[End, ...] = ()
        if after is None:
            more, node = self._behind_quotes(characters, (quote,))
        else:
            _, more, exits, ends = self._after_quotes(characters, (quote,), after)
            if exits:
                ((_, node),) = exits
        return np.concatenate((ids, more)) if len(more) else ids, node, ends

    def _walk_before_text(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk | None:
        """The walk of what stands before a text, where a shared leaf does that, and of the text."""
        shared = leaf.before_text(q)
        if shared is None:
            return None
        before, at, start = shared
        key = before, at, node
        known = self._before[key]
        if known is None:
            known = self._before[key] = self._without_text(
                self.leaf_walk(before, at, node, self.walks)
            )
            self.used += 300
        walk, text, firsts = known
        row, ids, exits, inner = walk
        ends: tuple[End, ...] = ((_BEFORE, inner, start),) if inner else ()
        if text is None:
            return row, ids, exits, ends
        assert start is not None
        rests = leaf.symbols.rests(start, _FEW_NAMES)
        if rests is not None and self.characters(leaf.encoding).is_canonical:
            for _, name in rests:
                if ord(name[0]) in firsts if name else 0x22 in firsts:
                    break
            else:
                return row, ids, exits, ends  # as it nearly always is
        found = _Found()
        if row is not None:
            found.add_row(row)
        found.parts.append(ids)
        found.ends.update(dict.fromkeys(ends))
        for outcome, where in exits:
            found.exits[outcome] = [where]
        found.include(self.leaf_walk(leaf, leaf.in_text(start), text, memo))
        return self._finished(found)

    def _without_text(self, walk: LeafWalk) -> tuple[LeafWalk, Node | None, bytes]:
        """A walk of what stands before a text without its exit to there, and that, if tokens go on
        there, and the bytes with which they do."""
        row, ids, exits, ends = walk
        text: Node | None = None
        others: list[tuple[int, Node]] = []
        for outcome, node in exits:
            if outcome != 1:
                others.append((outcome, node))
            elif self.has_children(node):
                text = node
        firsts: Iterable[int] = ()
        if isinstance(text, int):
            first, count, byte_at = self._views[:3]
            firsts = byte_at[first[text] : first[text] + count[text]]
        elif text is not None:
            firsts = self.children(text)
        return (row, ids, tuple(others), ends), text, bytes(firsts)

    def _set_aside(self, leaf: Leaf, q: int, at: Node, texts: dict[int, list[int]]) -> bool:
        """Note ``(q, at)`` for a walk of text, if it is one worth it."""
        if type(leaf) is TextLeaf:
            return False  # may end anywhere: exits are needed one by one
        state = leaf.text_state(q)
        if state is None:
            return False
        characters = self._texts_of(leaf).characters
        place = characters.place
        if isinstance(at, int):
            where = characters.views.place[at]
            if where < 0:
                return False
            texts.setdefault(state, []).append(where)
            return True
        members = at.members
        places = place[members[self.trie.n_children[members] > 0]]
        if len(places):
            if int(places.min()) < 0:
                return False
            texts.setdefault(state, []).extend(places.tolist())
        return True

    def _walk_texts(
        self, leaf: Leaf, texts: dict[int, list[int]], found: _Found, memo: WalkMemo
    ) -> None:
        """Add the walks that `_set_aside` has noted."""
        walks = self._texts_of(leaf)
        for state, places in texts.items():
            for together in apart(walks.characters, places):
                self._walk_text(leaf, walks, state, together, found, memo)

    def _walk_text(
        self,
        leaf: Leaf,
        walks: TextWalks,
        state: int,
        places: list[int],
        found: _Found,
        memo: WalkMemo,
    ) -> None:
        """Add the walk of a text from ``places``, and what follows its closing quotes."""
        free = walks.free_walk(state, places)
        if free is None:
            self._add_text(leaf, walks.walk(state, places), found, memo)
            return
        shared = leaf.after_text(free.usual)
        assert shared is not None, "only keys may be anything"
        after, _ = shared
        row, ids, exits, ends = self._free_text(walks.characters, free.whole, free.special, after)
        if row is not None:
            found.add_row(row)
        found.parts.append(ids)
        found.ends.update(dict.fromkeys(free.runs))
        self._follow(leaf, free.usual, ends, exits, found)
        for label, single in free.single.items():
            _, ids, exits, ends = self._after_quotes(walks.characters, (*single,), after)
            found.parts.append(ids)
            self._follow(leaf, label, ends, exits, found)

    def _follow(
        self,
        leaf: Leaf,
        label: int,
        ends: tuple[End, ...],
        exits: tuple[tuple[int, Node], ...],
        found: _Found,
    ) -> None:
        """Add where a walk of ``leaf.after_text(label)`` led."""
        shared = leaf.after_text(label)
        assert shared is not None
        if ends:
            found.ends[_AFTER, ends, label] = None
        if exits:
            nodes = found.exits.setdefault(shared[1], [])
            nodes += [node for _, node in exits]

    def _free_text(
        self, characters: Characters, whole: Whole, special: tuple[int, ...], after: Leaf
    ) -> LeafWalk:
        """The walk of any text whatever and of ``after`` behind it, ``special`` quotes left out."""
        key = (characters, whole.places, special, after)
        found = self._free[key]
        if found is None:
            quotes = whole.quotes
            if special:
                quotes = quotes.copy()
                quotes[list(special)] = False
            _, more, exits, ends = self._after_quotes(
                characters, np.packbits(quotes).tobytes(), after
            )
            row: Bits | None = None
            ids = np.concatenate((whole.ids, more))
            if whole.counts is not None:
                flags = np.zeros(self.n_words * 32, bool)
                flags[: len(whole.counts)] = whole.counts <= characters.longest
                flags[ids] = True
                row = self.intern(np.packbits(flags, bitorder="little").view("<u4"))
                ids = EMPTY
            found = self._free[key] = row, ids, exits, ends
            self.charge(4 * len(ids) + len(whole.places) + 500)
        return found

    def _add_text(
        self,
        leaf: Leaf,
        walk: TextWalk,
        found: _Found,
        memo: WalkMemo | None,
    ) -> None:
        """Add a walk of text to what was found, and what follows its closing quotes."""
        if walk.counts is not None:
            found.add_row(self._row(*walk.counts))
        if walk.row is not None:
            found.add_row(self.intern(walk.row))
        found.parts += walk.ids
        found.ends.update(dict.fromkeys(walk.runs))
        if memo is None or not (walk.quotes or walk.single):
            return
        characters = self.characters(leaf.encoding)
        quotes: dict[int, bytes | tuple[int, ...]] = {}
        for label, mask in walk.quotes.items():
            if label in walk.single:
                mask[walk.single.pop(label)] = True
            if mask.any():
                quotes[label] = np.packbits(mask).tobytes()
        for label, single in walk.single.items():
            quotes[label] = (*sorted(single),)
        for label, which in quotes.items():
            shared = leaf.after_text(label)
            if shared is not None:
                _, ids, exits, ends = self._after_quotes(characters, which, shared[0])
                found.parts.append(ids)
                self._follow(leaf, label, ends, exits, found)
                continue
            to = leaf.after_quote(label)
            ids, node = self._behind_quotes(characters, which)
            found.parts.append(ids)
            found.ends[to] = None
            if node is None:
                continue
            outcome = leaf.label(to)
            if outcome >= 0:
                found.exits.setdefault(outcome, []).append(node)
            if leaf.goes_on(to):
                rest = self.leaf_walk(leaf, to, node, memo)
                found.include(rest)

    def _row(self, counts: npt.NDArray[Any], most: int, more: Ids | None) -> Bits:
        """The tokens whose count is at most ``most``, and ``more``, as bits."""
        key = (id(counts), most, id(more))
        found = self._rows[key]
        if found is None:
            bits = np.zeros(self.n_words * 4, np.uint8)
            flags = counts <= most
            if more is not None:
                flags[more] = True
            packed = np.packbits(flags, bitorder="little")
            bits[: len(packed)] = packed
            # Holding the arrays keeps their addresses from being used again.
            found = self._rows[key] = (counts, more, self.intern(bits.view("<u4")))
            self.charge(300)
        return found[2]

    def _behind_quotes(
        self, characters: Characters, which: bytes | tuple[int, ...]
    ) -> tuple[Ids, Node | None]:
        """Tokens that end right after some quotes, and the node where others go on.

        ``which`` of `Characters.quotes`: their numbers, or a packed mask.
        """
        key = (characters, which)
        found = self._quoted[key]
        if found is None:
            if isinstance(which, bytes):
                mask = np.unpackbits(np.frombuffer(which, np.uint8), count=len(characters.quotes))
                chosen = characters.quotes[mask > 0]
            else:
                chosen = characters.quotes[list(which)]
            nodes = characters.node[chosen]
            ids = [token for node in nodes.tolist() for token in self.ids_at(node)]
            going_on = np.sort(nodes[self.trie.n_children[nodes] > 0])
            node: Node | None = None
            if len(going_on):
                node = int(going_on[0]) if len(going_on) == 1 else self.cluster(going_on)
            found = self._quoted[key] = (np.array(ids, np.int32), node)
            self.charge(4 * len(ids) + 300)
        return found

    def _after_quotes(
        self, characters: Characters, which: bytes | tuple[int, ...], leaf: Leaf
    ) -> LeafWalk:
        """The walk of ``leaf`` behind some quotes, with the tokens that end right there."""
        key = (characters, which, leaf)
        found = self._after[key]
        if found is None:
            ids, node = self._behind_quotes(characters, which)
            ends: tuple[End, ...] = (leaf.start,) if len(ids) else ()
            exits: Exits = ()
            if node is not None:
                _, more, exits, inner = self.leaf_walk(leaf, leaf.start, node, self.walks)
                ids, ends = np.concatenate((ids, more)), (*ends, *inner)
            found = self._after[key] = None, ids, exits, ends
            self.charge(4 * len(ids) + 300)
        return found

    def run_ends(self, leaf: Leaf, state: int, most: int) -> list[int]:
        """The leaf states in which tokens may end on a run: all that matter for completions.

        States that may end right away, and after any one more character, are alike in that: one
        stands for all.
        """
        assert leaf.holds_text
        symbols, encoding = leaf.symbols, leaf.encoding
        if most <= ANEW:
            runs = self._texts_of(leaf).runs_anew(state, ANEW - most)
            return [q for at, count in runs for q in self.run_ends(leaf, at, count)]
        if most < 0:
            states = self._texts_of(leaf).special_states(state, -1 - most)
            return [q for at in states for q in self.run_ends(leaf, at, 0)]
        tails = {GROUND}
        for tail in self._texts_of(leaf).characters.tails:
            node = GROUND
            for byte in tail:
                node = encoding.row(node).get(byte, -1)
                if node < 0:
                    break
            else:
                tails.add(node)
        chars, length = symbols.run(state)
        last = min(most, symbols.settled(state)) if length < 0 else most
        out: list[int] = []
        states = [symbols.after_run(state, count) for count in range(last + 1)]
        may_end = [symbols.label(at) >= 0 for at in states]
        # Where there are several outcomes, another one may be near.
        is_one = symbols.expression(state) is not None
        for count, at in enumerate(states):
            live = 0
            for mask, _ in symbols.moves(at):
                live |= mask
            may_all_end = is_one and 0 < count < last and all(may_end[count - 1 : count + 2])
            if may_all_end and not live & ~chars:
                continue
            out += [
                leaf.in_text(at, tail)
                for tail in tails
                if tail == GROUND or encoding.reach(tail) & live
            ]
        return out

    # -- level by level ---------------------------------------------------------------------

    def _table_of(self, leaf: Leaf) -> _Table:
        found: _Table | None
        found = self._tables[leaf] if leaf.is_shared else leaf.attached.get(_Table)
        if found is None:
            found = _Table(leaf, self.charge)
            if leaf.is_shared:
                self._tables[leaf] = found
            else:
                leaf.attached[_Table] = found
        return found

    def _wide_walk(self, leaf: Leaf, q: int, node: Node) -> LeafWalk:
        """As `_sparse_walk`, level by level over arrays."""
        trie = self.trie
        table = self._table_of(leaf)
        nodes = np.array(self.real(node), np.int64)
        states = np.full(len(nodes), q, np.int64)
        seen_nodes: list[npt.NDArray[np.int64]] = []
        seen_states: list[npt.NDArray[np.int64]] = []
        while len(nodes):
            table.cover(states)
            first, count = trie.first_child[nodes], trie.n_children[nodes]
            children = ranges(first, first + count)
            to = table.rows[np.repeat(states, count), trie.byte[children]]
            alive = to >= 0
            nodes, states = children[alive].astype(np.int64), to[alive].astype(np.int64)
            seen_nodes.append(nodes)
            seen_states.append(states)
        if not seen_nodes:
            return NO_WALK
        all_nodes, all_states = np.concatenate(seen_nodes), np.concatenate(seen_states)
        first, last = trie.token_start[all_nodes], trie.token_start[all_nodes + 1]
        ids = trie.token_ids[ranges(first, last)]
        table.cover(all_states)
        labels = table.labels[all_states]
        exits: list[tuple[int, Node]] = []
        leaving = labels >= 0
        if leaving.any():
            out_nodes, out_labels = all_nodes[leaving], labels[leaving]
            for outcome in distinct(out_labels).tolist():
                members = distinct(out_nodes[out_labels == outcome]).astype(np.int32)
                alone = int(members[0]) if len(members) == 1 else self.cluster(members)
                exits.append((outcome, alone))
        ending = tuple(distinct(all_states[last > first]).tolist())
        return None, ids, tuple(exits), ending


class _Found:
    """What a walk has found so far."""

    __slots__ = ("ends", "exits", "ids", "parts", "row")

    def __init__(self) -> None:
        self.row: Bits | None = None
        self.ids: list[int] = []
        self.parts: list[Ids] = []
        self.exits: dict[int, list[Node]] = {}
        self.ends: dict[End, None] = {}

    def add_row(self, row: Bits) -> None:
        self.row = row if self.row is None else self.row | row

    def include(self, walk: LeafWalk) -> None:
        """Add all that ``walk`` of the same leaf has found."""
        row, ids, exits, ends = walk
        if row is not None:
            self.add_row(row)
        self.parts.append(ids)
        self.ends.update(dict.fromkeys(ends))
        for outcome, node in exits:
            self.exits.setdefault(outcome, []).append(node)


_ROOT_PLACE = 0

_Rest: TypeAlias = "tuple[Ids, Node | None, tuple[End, ...] | None]"
"""Of a name of which a text is left: the tokens that begin the text, or go on after it in the
leaf that follows; where tokens leave that leaf; and where in it they end, or None where no token
reaches the closing quote. Without a leaf, the same for the quote alone."""


class _Table:
    """A leaf's transitions as an array, one row of 256 a state, filled as states are met."""

    def __init__(self, leaf: Leaf, charge: Callable[[int], None]) -> None:
        self._leaf = weakref.ref(leaf)
        self._charge = charge
        self.rows = np.full((16, 256), -1, np.int32)
        self.labels = np.full(16, -1, np.int32)
        self._filled = np.zeros(16, bool)
        charge(self.rows.nbytes)

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
            self._charge(self.rows.nbytes)
        missing = ~self._filled[states]
        if not missing.any():
            return
        leaf = self._leaf()
        assert leaf is not None
        for state in distinct(states[missing]).tolist():
            row = leaf.row(state)
            if row:
                self.rows[state, list(row)] = list(row.values())
            self.labels[state] = leaf.label(state)
            self._filled[state] = True


class CacheInfo(NamedTuple):
    """What the caches of masks hold, over all vocabularies in use.

    Attributes:
        vocabularies: how many vocabularies have caches.
        n_bytes: bytes charged to them: what was used last and what will go first.
        budget: bytes they may take together.
        entries: remembered walks, rows and masks.
        turns: how often the part not used for longest was dropped.
        tables: bytes of what depends on the vocabularies alone and is never dropped.
        automata: bytes of the automata that schemas share, whatever the vocabulary; see
            `automaton.shared`.
    """

    vocabularies: int
    n_bytes: int
    budget: int
    entries: int
    turns: int
    tables: int
    automata: int


def cache_info() -> CacheInfo:
    """A live gauge of the mask caches. Cost: microseconds."""
    with _walkers_lock:
        walkers = list(_walkers.values())
    return CacheInfo(
        len(walkers),
        sum(walker.used + walker.held for walker in walkers),
        sum(walker.budget for walker in walkers),
        sum(walker.entries() for walker in walkers),
        sum(walker.turns for walker in walkers),
        sum(walker.tables for walker in walkers),
        AUTOMATA.n_bytes,
    )


_walkers: weakref.WeakKeyDictionary[Vocabulary, Walker] = weakref.WeakKeyDictionary()
_walkers_lock = threading.Lock()
_latest: tuple[Callable[[], Vocabulary | None], Callable[[], Walker | None]]
_latest = (lambda: None), (lambda: None)
"""The one asked for last: most processes have one vocabulary, and ask for each constraint."""


def walker_of(vocabulary: Vocabulary) -> Walker:
    """The shared caches of ``vocabulary``."""
    global _latest
    known, walker = _latest
    found = walker() if known() is vocabulary else None
    if found is None:
        with _walkers_lock:
            found = _walkers.get(vocabulary)
            if found is None:
                found = _walkers[vocabulary] = Walker(vocabulary)
        _latest = weakref.ref(vocabulary), weakref.ref(found)
    return found
