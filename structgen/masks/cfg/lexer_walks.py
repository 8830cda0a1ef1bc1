"""Walk a grammar's lexer through a vocabulary's trie, and cache the walks.

A walk starts in a lexer state at a node of the trie, or at a set of nodes walked as one. It reports
the tokens that end inside and, by outcome, the nodes where terminals may end. It reports a node
only if some token continues there with a byte that the terminal's condition allows: after a name,
no letter. `masks` decides what may follow a terminal.

- `Search` makes one walk, a `TrieWalk`. If a class of bytes leads a state back to itself, the whole
  run is one comparison (`ByteRuns`), and all nodes where the run ends are walked at once.
- `Walks` are the walks of one lexer. Grammars with the same terminals share one lexer and its
  `Known`.
- `as_leaf_walk` converts a walk for `leaf_walks`.

`Order` numbers the trie in pre-order, so that a subtree is a range. For a class of bytes,
`ByteRuns.last` holds the depth of each node's last byte outside the class. So one comparison over a
range finds everything below a node that stays in the class. A class consists of ASCII bytes and
UTF-8 lead bytes. A lead byte stands for all its characters: their other bytes belong to the run if
they are well-formed. Malformed UTF-8 belongs to no class, and reading restarts after it. So a
node's subtree reads the same wherever in a token a run begins. `Order` knows no automata or
grammars.

Small sets of tokens are lists of ids, large ones packed bits (`gathered`).
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer, as_flags
from structgen.automaton.work import WORK
from structgen.masks.grouping import BIT, StateRows, bits_of, ranges
from structgen.masks.leaf_walks import TrieWalk, walker_of
from structgen.masks.node_sets import NODE_BITS, Node, NodeSet, NodeSets
from structgen.masks.text.character_arrays import pre_order
from structgen.masks.walk_store import ROOT, LeafWalk, WalkStore
from structgen.storage import GenerationalCache, array_cache, cached_method, fork_safe
from structgen.vocabulary import Trie, Vocabulary, view

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = "tuple[int, ...]"
"""A few token ids, repeats allowed."""

Rows: TypeAlias = "tuple[Bits, ...]"
"""Packed masks."""

Packed: TypeAlias = "bytes | bytearray | memoryview"
"""A packed mask as bytes."""

_FEW_IDS = 100
"""More token ids than this are packed."""
_FEW_OF_TERMINAL = 24
"""The same limit for the walk of a single terminal, which many walks and masks combine."""
_MANY = 200
"""NumPy sets more bits than this faster than a loop."""
_MOST_ROWS = 6
"""More rows than this are merged. Most walks have the same few rows."""


class LexerWalk(NamedTuple):
    """The walk of a lexer from one node.

    Attributes:
        ids: tokens that end inside, or exactly where a terminal may end.
        rows: further such tokens, as packed masks.
        exits: ``(outcome, node)`` pairs: where terminals may end inside a token.
        ends: lexer states in which these tokens end; ``~q`` for all states inside a character that
            begins in ``q`` (`Walks.inside_characters`).
        number: unique among the walks of lexers and goals in this process.
    """

    ids: Ids
    rows: Rows
    exits: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]
    number: int


new_number = itertools.count(1).__next__
"""Return the next number for a walk."""


def gathered(ids: list[int], rows: Sequence[Bits], n_words: int) -> tuple[Ids, Rows, int]:
    """Return token ids and packed masks (repeats allowed) within the limits of a walk; and the
    bytes that they take besides ``rows``."""
    if len(ids) <= _FEW_IDS and len(rows) < 2:
        return tuple(ids), tuple(rows), 8 * len(ids)
    size = 0
    if len(ids) > _FEW_IDS:
        different = set(ids)
        if len(different) > _FEW_IDS:
            rows = [*rows, bits_of(list(different), n_words)]
            ids = []
            size = 4 * n_words
        else:
            ids = list(different)
    if len(rows) > 1:
        rows = _different(rows)
        if len(rows) > _MOST_ROWS:
            rows = (_union(rows),)
            size += 4 * n_words
    return tuple(ids), tuple(rows), size + 8 * len(ids) + 8 * len(rows)


def gathered_arrays(
    ids: list[int], parts: list[bytes], rows: list[Bits], n_words: int
) -> tuple[Ids, Rows]:
    """Like `gathered`, plus the token ids as bytes, int32 each."""
    more = np.frombuffer(b"".join(parts), np.int32)
    if len(ids) + len(more) <= _FEW_OF_TERMINAL:
        ids = ids + more.tolist()
    else:
        rows, ids = [*rows, bits_of(np.append(more, np.array(ids, np.int32)), n_words)], []
    few, packed, _ = gathered(ids, rows, n_words)
    return few, packed


def overlay(ids: list[int], rows: Sequence[Bits], nothing: bytes) -> tuple[Packed, bool]:
    """Return token ids and packed masks (repeats allowed) as one mask, and whether it is a new one,
    not in ``rows``.

    Cost: a copy of the mask, and 0.1 µs for each id; for many ids, NumPy takes 10 µs for all.

    Args:
        ids: token ids.
        rows: packed masks.
        nothing: a mask without tokens.
    """
    if len(rows) > 1:
        rows = _different(rows)
    mask: bytearray | memoryview
    if len(rows) > 1:
        mask = packed(_union(rows))
    elif rows:
        if not ids:
            return packed(rows[0]), False
        mask = bytearray(rows[0])
    else:
        mask = bytearray(nothing)
    if len(ids) > _MANY:
        every = np.array(ids, np.int32)
        np.bitwise_or.at(np.frombuffer(mask, np.uint32), every >> 5, BIT[every & 31])
    else:
        for token in ids:
            mask[token >> 3] |= 1 << (token & 7)
    return mask, True


def packed(row: Bits) -> memoryview:
    """Return a row of bits as bytes."""
    return memoryview(row).cast("B")  # type: ignore[arg-type]


def _different(rows: Sequence[Bits]) -> Rows:
    return tuple({id(row): row for row in rows}.values())


def _union(rows: Sequence[Bits]) -> Bits:
    """Return the union of two or more rows."""
    out: Bits = rows[0] | rows[1]
    for row in rows[2:]:
        np.bitwise_or(out, row, out)
    return out


Int32 = npt.NDArray[np.int32]
Depths = npt.NDArray[Any]
"""uint8, or wider if a token has 255 bytes or more."""

VERSION = 2
"""Increase this whenever the arrays on disk change."""

SHALLOW = 2
"""Runs that begin at this depth at most use a separate list of their ends."""

_CONTINUES, _MALFORMED = 256, 257
_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BEYOND_ASCII = bytes(range(0xC2, 0xF5))


def members(inside: bytes) -> bytes:
    """Return a class of bytes as a flag for each byte."""
    flags = bytearray(256)
    for byte in inside:
        flags[byte] = 1
    return bytes(flags)


def _all_but(outside: bytes) -> bytes:
    return bytes(b for b in range(0x80) if b not in outside) + _BEYOND_ASCII


_CONTROLS = bytes(range(0x20))
COMMON = [
    members(inside)
    for inside in (
        _WORD + b"_0123456789",
        _WORD + b"0123456789",
        b"0123456789",
        b" \t\r\n",
        b" \t\r\n\f",
        b" \t",
        b" ",
        b"\n",
        b"\r\n",
        _all_but(b'"\\' + _CONTROLS),
        _all_but(b'"\\'),
        _all_but(b'"\\\n'),
        _all_but(b"'\\\n"),
        _all_but(b'"'),
        _all_but(b"'"),
        _all_but(b"\n"),
        _all_but(b""),
    )
]
"""Common classes of grammars; their runs are stored on disk."""


class ByteRuns:
    """The runs of one class.

    Attributes:
        last: [nodes]; depth of the deepest ancestor (or the node itself) whose byte is outside the
            class, 0 for none.
        token_last: the same for the ends of the tokens, in pre-order.
        edges: the well-formed nodes outside the class whose parent a run from a node of depth
            `SHALLOW` or less can reach; in pre-order.
        edge_rank: their numbers in pre-order.
        edge_up: `last` of their parents.
        row: the tokens in the class, as bits.
        view: ``last``, for reading one element at a time.
    """

    __slots__ = ("edge_rank", "edge_up", "edges", "last", "row", "token_last", "view")

    def __init__(
        self, last: Depths, token_last: Depths, edges: Int32, edge_up: Depths, order: Order
    ) -> None:
        self.last = last
        self.view = view(last.astype(np.int32) if last.itemsize > 1 else last)
        self.token_last = token_last
        self.edges = edges
        self.edge_rank = order.rank[edges]
        self.edge_up = edge_up
        self.row = bits_of(order.token_ids[token_last == 0], order.n_words)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays from which all others are computed, as they are stored on disk."""
        return {
            "last": self.last,
            "token_last": self.token_last,
            "edges": self.edges,
            "edge_up": self.edge_up,
        }

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        arrays = [*self.arrays().values(), self.edge_rank, self.row]
        return sum(array.nbytes for array in arrays)


class Views(NamedTuple):
    """Arrays by node, and `Order.node`, for reading one element at a time."""

    rank: Sequence[int]
    beyond: Sequence[int]
    node: Sequence[int]
    parent: Sequence[int]
    depth: Sequence[int]
    is_malformed: bytes


class Order:
    """A vocabulary's trie in pre-order, and the runs of classes through it.

    Attributes:
        rank: int32 [nodes]; number in pre-order.
        beyond: int32 [nodes]; one more than the largest such number in the subtree.
        node: int32 [nodes]; the node of each number.
        is_inside: bool [nodes]; whether the node is inside a character.
        token_ids: int32; the tokens in pre-order of the nodes where they end.
        tokens_before: int32 [nodes + 1]; the number of tokens that end at nodes of smaller numbers.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        trie = self._trie = vocabulary.trie
        self._vocabulary = weakref.ref(vocabulary)
        self.n_words = (vocabulary.size + 31) // 32
        arrays = vocabulary.cached_arrays("byte-order", VERSION, lambda: _order(trie))
        self.rank: Int32 = arrays["rank"]
        self.beyond: Int32 = arrays["beyond"]
        self._symbol: npt.NDArray[np.int16] = arrays["symbol"]
        self.is_inside: npt.NDArray[np.bool_] = arrays["inside"]
        self.node: Int32 = np.empty(trie.n_nodes, np.int32)
        self.node[self.rank] = np.arange(trie.n_nodes, dtype=np.int32)
        count = np.diff(trie.token_start)
        self.tokens_before: Int32 = np.zeros(trie.n_nodes + 1, np.int32)
        np.cumsum(count[self.node], out=self.tokens_before[1:])
        held = np.flatnonzero(count)
        ends = np.repeat(held, count[held])
        by_rank = np.argsort(self.rank[ends], kind="stable")
        self.token_ids: Int32 = trie.token_ids[by_rank]
        self._token_node: Int32 = ends[by_rank].astype(np.int32)
        self.views = Views(
            view(self.rank),
            view(self.beyond),
            view(self.node),
            view(trie.parent),
            view(trie.depth.astype(np.int32)),
            (self._symbol == _MALFORMED).tobytes(),
        )
        self._levels = list(pairwise(trie.level_start.tolist()[1:]))
        store = walker_of(vocabulary).store
        self._known: GenerationalCache[bytes, ByteRuns] = store.cache()
        self._charge = store.charge
        self._common = frozenset(COMMON)

    def runs(self, inside: bytes) -> ByteRuns:
        """Return the runs of a class of bytes, given by `members`.

        Cost: 2 ms for a new class at 128k tokens; 0.5 ms for one of `COMMON`, from disk.
        """
        found = self._known[inside]
        if found is None:
            vocabulary = self._vocabulary()
            if vocabulary is not None and inside in self._common:
                name = f"byte-run-{np.packbits(np.frombuffer(inside, np.uint8)).tobytes().hex()}"
                arrays = vocabulary.cached_arrays(
                    name, VERSION, lambda: self._make(inside).arrays()
                )
                found = ByteRuns(**arrays, order=self)
            else:
                found = self._make(inside)
            self._known[inside] = found
            self._charge(found.nbytes)
        return found

    def _make(self, inside: bytes) -> ByteRuns:
        trie = self._trie
        symbol = self._symbol
        is_outside = np.ones(258, bool)
        is_outside[:256] = np.frombuffer(inside, np.uint8) == 0
        is_outside[_CONTINUES] = False
        outside = is_outside[symbol]
        outside[0] = False
        last = np.zeros(trie.n_nodes, np.uint8 if trie.max_depth < 255 else np.uint16)
        parent = trie.parent
        for depth, (a, b) in enumerate(self._levels, 1):
            here = last[parent[a:b]]
            here[outside[a:b]] = depth
            last[a:b] = here
        up = last[parent]
        found = np.flatnonzero(outside & (up <= SHALLOW) & (symbol != _MALFORMED))
        edges = self.node[np.sort(self.rank[found])]
        return ByteRuns(last, last[self._token_node], edges, up[edges], self)

    # -- from some nodes --------------------------------------------------------------------------

    def tokens_below(self, runs: ByteRuns, nodes: Int32) -> Int32:
        """Return the tokens that end at or below ``nodes`` and inside the class."""
        depth = self._trie.depth[nodes]
        if len(nodes) > 1 and int(depth.min()) == int(depth.max()):
            # Merge neighbours into one range; including the nodes themselves does no harm.
            rank = np.sort(self.rank[nodes])
            beyond = self.beyond[self.node[rank]]
            apart = np.flatnonzero(rank[1:] != beyond[:-1]) + 1
            first = self.tokens_before[rank[np.concatenate(([0], apart))]]
            last = self.tokens_before[beyond[np.concatenate((apart - 1, [len(rank) - 1]))]]
            depth = np.full(len(first), depth[0], runs.last.dtype)
        else:
            first = self.tokens_before[self.rank[nodes] + 1]
            last = self.tokens_before[self.beyond[nodes]]
        if len(first) <= 8:
            parts = []
            for a, b, d in zip(first.tolist(), last.tolist(), depth.tolist(), strict=True):
                parts.append(self.token_ids[a:b][runs.token_last[a:b] <= d])
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        at = ranges(first, last)
        chosen: Int32 = self.token_ids[at[runs.token_last[at] <= depth.repeat(last - first)]]
        return chosen

    def edges_below(self, runs: ByteRuns, nodes: Int32) -> Int32:
        """Return the nodes where runs from ``nodes`` end: see `ByteRuns.edges`."""
        depth = self._trie.depth[nodes]
        rank, beyond = self.rank[nodes] + 1, self.beyond[nodes]
        found: Int32
        if int(depth.max()) <= SHALLOW:
            if len(nodes) == 1 and not nodes[0]:
                found = runs.edges[runs.edge_up == 0]
                return found
            first = np.searchsorted(runs.edge_rank, rank)
            last = np.searchsorted(runs.edge_rank, beyond)
            if len(first) == 1:
                a, b = int(first[0]), int(last[0])
                found = runs.edges[a:b][runs.edge_up[a:b] <= depth[0]]
                return found
            at = ranges(first, last)
            found = runs.edges[at[runs.edge_up[at] <= depth.repeat(last - first)]]
            return found
        below = self.node[ranges(rank, beyond)]
        up = runs.last[self._trie.parent[below]]
        there = runs.last[below] == self._trie.depth[below]
        there &= up <= depth.repeat(beyond - rank)
        there &= self._symbol[below] != _MALFORMED
        found = below[there]
        return found

    def nodes_below(self, runs: ByteRuns, nodes: Int32) -> Int32:
        """Return the nodes below ``nodes``, inside the class, between two characters."""
        rank, beyond = self.rank[nodes] + 1, self.beyond[nodes]
        below = self.node[ranges(rank, beyond)]
        there = runs.last[below] <= self._trie.depth[nodes].repeat(beyond - rank)
        there &= ~self.is_inside[below]
        found: Int32 = below[there]
        return found

    def size(self, nodes: list[Node]) -> int:
        """Return the number of nodes at and below ``nodes``, each a node or a set."""
        found = 0
        for node in nodes:
            if not isinstance(node, NodeSet):
                found += self.views.beyond[node] - self.views.rank[node]
                continue
            if node.size is None:
                members = node.members
                node.size = int((self.beyond[members] - self.rank[members]).sum())
            found += node.size
        return found

    @cached_method
    def tails(self) -> list[bytes]:
        """Return the beginnings of characters that are cut by the end of some token."""
        trie = self._trie
        found: set[bytes] = set()
        cut = np.flatnonzero(self.is_inside & (np.diff(trie.token_start) > 0))
        for node in cut.tolist():
            out = bytearray()
            while self.is_inside[node]:
                out.append(int(trie.byte[node]))
                node = int(trie.parent[node])
            found.add(bytes(out[::-1]))
        return sorted(found)


def _order(trie: Trie) -> array_cache.Arrays:
    """Return the arrays of `Order`, except those that are quickly computed from others."""
    rank, below = pre_order(trie)
    count = np.zeros(256, np.int8)
    low, high = np.full(256, 0x80, np.uint8), np.full(256, 0xBF, np.uint8)
    count[0xC2:0xE0], count[0xE0:0xF0], count[0xF0:0xF5] = 1, 2, 3
    low[0xE0], high[0xED], low[0xF0], high[0xF4] = 0xA0, 0x9F, 0x90, 0x8F
    begins = (count > 0) | (np.arange(256) < 0x80)
    symbol = np.full(trie.n_nodes, _MALFORMED, np.int16)
    left = np.zeros(trie.n_nodes, np.int8)
    least, most = np.full(trie.n_nodes, 0x80, np.uint8), np.full(trie.n_nodes, 0xBF, np.uint8)
    for a, b in pairwise(trie.level_start.tolist()[1:]):
        up, byte = trie.parent[a:b], trie.byte[a:b].astype(np.int16)
        waits = left[up] > 0
        continues = waits & (byte >= least[up]) & (byte <= most[up])
        fresh = ~waits & begins[byte]
        symbol[a:b] = np.where(continues, _CONTINUES, np.where(fresh, byte, _MALFORMED))
        left[a:b] = np.where(continues, left[up] - 1, np.where(fresh, count[byte], 0))
        least[a:b] = np.where(fresh, low[byte], 0x80)
        most[a:b] = np.where(fresh, high[byte], 0xBF)
    return {
        "rank": rank.astype(np.int32),
        "beyond": (rank + below).astype(np.int32),
        "symbol": symbol,
        "inside": left > 0,
    }


_orders: weakref.WeakKeyDictionary[Vocabulary, Order] = weakref.WeakKeyDictionary()
_orders_lock = fork_safe(threading.Lock())


def order_of(vocabulary: Vocabulary) -> Order:
    """Return the order of ``vocabulary``, cached. Cost: 10 ms for 128k tokens, from disk."""
    with _orders_lock:
        found = _orders.get(vocabulary)
        if found is None:
            found = _orders[vocabulary] = Order(vocabulary)
        return found


_SMALL = 400
"""Subtrees of up to this many nodes are visited node by node."""


class Search(TrieWalk):
    """One walk of a lexer."""

    leaf: Lexer

    def __init__(self, walks: Walks, q: int, node: int) -> None:
        rows, continuing, allowed = lambda: walks.states, walks.continues, walks.allowed_after
        super().__init__(walks.lexer, walks.nodes, rows, q, node, self._wait, continuing, allowed)
        self._walks = walks
        self._whole: list[Bits] = []
        self._runs: dict[int, list[int]] = {}

    def _wait(self, state: int, at: Node) -> bool:
        """Postpone a run until nothing else is left."""
        if self.leaf.loop(state) is None:
            return False
        self._runs.setdefault(state, []).append(at)
        return True

    def walk(self) -> LexerWalk:
        """Return the whole walk."""
        walks = self._walks
        WORK.spend(2)
        while self.todo or self._runs:
            WORK.spend(3)
            if self.todo:
                self.narrow()
                continue
            state, where = self._runs.popitem()
            if walks.order.size(where) <= _SMALL:
                self._short_run(state, where)
            else:
                self._run(state, where)
        ids, rows = gathered_arrays(self.ids, self.parts, self._whole, walks.n_words)
        exits = tuple((outcome, walks.nodes.join(where)) for outcome, where in self.exits.items())
        ends = cast("tuple[int, ...]", tuple(self.ends))
        return LexerWalk(ids, rows, exits, ends, new_number())

    def _short_run(self, state: int, where: list[int]) -> None:
        """Like `_run`, node by node."""
        walks, sets, lexer, order = self._walks, self.nodes, self.leaf, self._walks.order
        loop = lexer.loop(state)
        assert loop is not None
        looping, inside, leaving = loop
        last, depth_of = order.runs(inside).view, order.views.depth
        rank, beyond, node_at = order.views.rank, order.views.beyond, order.views.node
        parent, byte_of, is_malformed = order.views.parent, sets.byte, order.views.is_malformed
        token_start, token_ids, ids = sets.token_start, sets.token_ids, self.ids
        outcome = lexer.label(state)
        allowed = walks.allowed_mask(outcome) if outcome >= 0 else 0
        if allowed & looping:
            self._run(state, where)
            return
        exits: dict[int, None] = {}
        left: dict[int, list[int]] = {}
        for member in where:
            for start in (member,) if member < sets.n_nodes else sets.real(member).tolist():
                depth = depth_of[start]
                at, end = rank[start] + 1, beyond[start]
                while at < end:
                    node = node_at[at]
                    if last[node] <= depth:
                        first = token_start[node]
                        if first != token_start[node + 1]:
                            ids += token_ids[first : token_start[node + 1]]
                        at += 1
                        continue
                    at = beyond[node]
                    byte = byte_of[node]
                    if is_malformed[node]:
                        continue
                    if allowed >> byte & 1:
                        exits[parent[node]] = None
                    if byte in leaving:
                        left.setdefault(leaving[byte], []).append(node)
        self.ends[state] = None
        if any(inside[0x80:]):
            self.ends[~state] = None
        if exits:
            self.exits.setdefault(outcome, []).extend(exits)
        for to, reached in left.items():
            self.arrive(to, sets.join(reached))

    def _run(self, state: int, where: list[int]) -> None:
        """Walk from all nodes of ``where`` at once, in a state that leads back to itself."""
        walks, sets, trie, lexer = self._walks, self.nodes, self.nodes.trie, self.leaf
        order = walks.order
        loop = lexer.loop(state)
        assert loop is not None
        looping, inside, leaving = loop
        runs = order.runs(inside)
        nodes = sets.real(sets.join(where))
        if len(nodes) > 1 and not nodes[0]:
            # The root, or nodes below it: the arrays serve only one of both.
            self._runs.setdefault(state, []).append(sets.joined(nodes[1:]))
            nodes = nodes[:1]
        self.ends[state] = None
        if any(inside[0x80:]):
            self.ends[~state] = None
        if len(nodes) == 1 and not nodes[0]:
            self._whole.append(runs.row)
        else:
            self.parts.append(order.tokens_below(runs, nodes).tobytes())
        outcome = lexer.label(state)
        edges: npt.NDArray[np.int32] | None = None
        if outcome >= 0:
            flags = walks.allowed_after(outcome)
            if walks.allowed_mask(outcome) & looping:
                there = sets.continuing(order.nodes_below(runs, nodes), flags)
            else:
                edges = order.edges_below(runs, nodes)
                there = trie.parent[edges[flags[trie.byte[edges]]]]
                # Its start was visited when it was reached.
            if len(there):
                self.exits.setdefault(outcome, []).append(sets.joined(there))
        if not leaving:
            return
        if edges is None:
            edges = order.edges_below(runs, nodes)
        row = np.full(256, -1, np.int32)
        row[list(leaving)] = list(leaving.values())
        to = row[trie.byte[edges]]
        alive = to >= 0
        edges, to = edges[alive], to[alive]
        if not len(edges):
            return
        self.take(edges, to)
        for target in np.flatnonzero(np.bincount(to)).tolist():
            if lexer.continues(target):
                self.todo.append((target, sets.joined(edges[to == target])))


Spaces: TypeAlias = "tuple[tuple[LexerWalk, ...], tuple[tuple[int, int], ...]]"
"""The walks of ignored terminals from a node, and their ends: conditions and nodes."""


class Known(NamedTuple):
    """Results about one lexer, in its own numbers; other classes fill it.

    Attributes:
        walks: by state and node (``state << NODE_BITS | node``).
        spaces: for ignored terminals, by condition and node.
    """

    walks: GenerationalCache[int, LexerWalk]
    spaces: dict[frozenset[int], GenerationalCache[int, Spaces]]


def _known(lexer: Lexer, store: WalkStore) -> Known:
    """Return the `Known` of ``lexer`` over a vocabulary, shared by its grammars."""
    by_store: weakref.WeakKeyDictionary[WalkStore, Known]
    by_store = lexer.attached.setdefault(Walks, weakref.WeakKeyDictionary())
    found = by_store.get(store)
    if found is None:
        found = by_store[store] = Known(store.cache(), {})
    return found


_FEW = 10
"""Sets of up to this many nodes are visited one by one."""
_FEW_MEMBERS = 40
_HUGE = 4_000
"""In such small sets, nodes with larger subtrees than this are walked separately."""
_MANY_BYTES = 8
"""Terminals that may continue with more bytes than this are walked separately from large nodes."""


class Walks:
    """The walks of one lexer over one vocabulary.

    Attributes:
        lexer: the lexer.
        nodes: nodes of the trie, and sets of them.
        states: the transitions of the lexer's states by byte.
        known: the results about the lexer, common to all grammars that share it.
        charge, cache: see `WalkStore`.
    """

    def __init__(self, lexer: Lexer, vocabulary: Vocabulary) -> None:
        self.lexer = lexer
        self.trie: Trie = vocabulary.trie
        self.order: Order = order_of(vocabulary)
        store = walker_of(vocabulary).store
        self.nodes: NodeSets = store.nodes
        self.n_words = (vocabulary.size + 31) // 32
        # The rows of a grammar's own lexer are counted with its states.
        self.states = StateRows(lambda: lexer, lambda _: None, lambda q: lexer.loop(q) is not None)
        self._anything = lexer.terminals.lookahead.anything
        self.known = _known(lexer, store)
        self._walks = self.known.walks
        self.charge, self.cache = store.charge, store.cache

    def walk(self, q: int, node: int) -> LexerWalk:
        """Return the walk from lexer state ``q`` at ``node``."""
        key = q << NODE_BITS | node
        found = self._walks[key]
        if found is None:
            split = self.lexer.split(q)
            parts = [(part, node) for part in split] if len(split) > 1 else self._apart(q, node)
            found = self._joined(parts) if parts else Search(self, q, node).walk()
            self._walks[key] = found
            self.charge(400 + 8 * len(found.ids) + 4 * self.n_words * len(found.rows))
        return found

    def _apart(self, q: int, node: int) -> list[tuple[int, int]]:
        """Return the walks that make up the one from ``q`` at ``node``, if it is a combination."""
        if not isinstance(node, NodeSet) or not 1 < len(node.members) <= _FEW_MEMBERS:
            return []
        if self.lexer.n_bytes(q) <= _MANY_BYTES:
            return []
        # Large nodes one by one, so that other sets with them share their walks.
        large = self.order.beyond[node.members] - self.order.rank[node.members] > _HUGE
        found = node.members[large].tolist()
        if found and len(found) < len(node.members):
            found.append(self.nodes.of(node.members[~large]))
        return [(q, part) for part in found] if len(found) > 1 else []

    def _joined(self, steps: list[tuple[int, int]]) -> LexerWalk:
        parts = [self.walk(q, node) for q, node in steps]
        all_ids = [i for part in parts for i in part.ids]
        ids, rows, _ = gathered(all_ids, [r for part in parts for r in part.rows], self.n_words)
        exits: dict[int, list[int]] = {}
        for part in parts:
            for outcome, node in part.exits:
                exits.setdefault(outcome, []).append(node)
        ends = dict.fromkeys(end for part in parts for end in part.ends)
        joined = tuple((outcome, self.nodes.join(nodes)) for outcome, nodes in exits.items())
        return LexerWalk(ids, rows, joined, tuple(ends), new_number())

    @cached_method
    def inside_characters(self, q: int) -> tuple[int, ...]:
        """Return the states inside a character that begins in ``q`` in which a token can end."""
        states: dict[int, None] = {}
        for tail in self.order.tails():
            at: int | None = q
            for byte in tail:
                at = self.lexer.row(at).get(byte) if at is not None else None
            if at is not None:
                states[at] = None
        return tuple(states)

    # -- what may follow ---------------------------------------------------------------------------

    def bytes_after(self, node: int, condition: int) -> int:
        """Return a mask of the bytes that continue tokens from ``node`` under a condition."""
        found = self.nodes.bytes_after(node)
        if condition == self._anything:
            return found
        return found & self.lexer.mask_under(condition)

    @cached_method
    def allowed_after(self, outcome: int) -> npt.NDArray[np.bool_]:
        """Return which bytes may follow an outcome: bool [256]."""
        return as_flags(self.allowed_mask(outcome))

    @cached_method
    def allowed_mask(self, outcome: int) -> int:
        """Return which bytes may follow an outcome, as a mask."""
        return self.lexer.following(outcome)

    def continues(self, node: int, outcome: int) -> int:
        """Return the part of ``node`` from which some token continues as an outcome allows; -1 if
        there is none."""
        nodes = self.nodes
        if node < nodes.n_nodes:
            return node if nodes.bytes_after(node) & self.allowed_mask(outcome) else -1
        if nodes.n_members(node) <= _FEW:
            allowed = self.allowed_mask(outcome)
            members = nodes.real(node).tolist()
            found = [member for member in members if nodes.bytes_after(member) & allowed]
            if len(found) == len(members):
                return node
            return nodes.join(found) if found else -1
        there = nodes.continuing(nodes.real(node), self.allowed_after(outcome))
        return nodes.of(there) if len(there) else -1


def as_leaf_walk(walks: Walks, q: int, node: Node) -> LeafWalk:
    """Return a walk as a `LeafWalk`."""
    found = walks.walk(q, node)
    ids = np.array(found.ids, np.int32)
    row = None
    if found.rows:
        row = reduce(np.bitwise_or, found.rows)
        if node != ROOT:
            # `NonterminalWalks` combines ids.
            flags = np.unpackbits(row.view(np.uint8), bitorder="little")
            ids, row = np.concatenate((ids, np.flatnonzero(flags).astype(np.int32))), None
    exits = tuple([exit_ for exit_ in found.exits if walks.nodes.continues(exit_[1])])
    ends: dict[int, None] = {}
    for end in found.ends:
        ends.update(dict.fromkeys(walks.inside_characters(~end) if end < 0 else (end,)))
    return row, ids.tobytes(), exits, tuple(ends)
