"""Walk one leaf automaton through a vocabulary's trie, and cache the walk for the vocabulary.

All constraints over one vocabulary share a `Walker`. `Walker.leaf_walk` walks a leaf from one state
at one node. It reports the tokens that end inside the leaf and the nodes where the leaf may end.
`string_walks` walks text; `TrieWalk` walks everything else byte by byte, also the lexers of
grammars. Knows no frames, constraints or masks.

`Digits` walks numbers through tries whose tokens have several digits, like Llama 3's. A number's
automaton mostly counts digits. So digit strings are walked as ranges of integers, one group per
state, instead of a thousand nodes.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import LimitedLeaf
from structgen.automaton.core import AUTOMATA, FORMAT_AUTOMATA, Leaf
from structgen.automaton.json import ExcludingLeaf, NumberLeaf
from structgen.automaton.work import WORK
from structgen.storage import GenerationalCache, fork_safe
from structgen.vocabulary import Trie, Vocabulary

from .grouping import StateRows, bits_of, distinct, ranges
from .node_sets import Node, Nodes, NodeSets, levels
from .text.string_walks import LeafTexts, StringWalks
from .walk_store import (
    HANDED,
    NO_WALK,
    ROOT,
    Bits,
    End,
    Exits,
    LeafWalk,
    Tokens,
    WalkBuilder,
    WalkMemo,
    WalkStore,
    ids_of,
)

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_ZERO = ord("0")
_MOST_DIGITS = 4
"""The longest digit strings that are walked like this: arrays have an entry for each possible one.
"""


_FAR = 1 << 30
"""More bytes than the possible number of tokens."""

_MANY_DIGITS = 256
"""Fewer digit strings than this are walked one by one."""


class _Level(NamedTuple):
    """The digit strings of one length, by value.

    Attributes:
        nodes: int32; their nodes, -1 for none.
        tokens: int32; the token of each, or -1; None if one has several tokens.
        is_full: whether each has a node and a token.
        continuing: bool; whether tokens continue after each; None if none does.
        others: bool; whether tokens continue with a byte other than a digit; None if none does.
    """

    nodes: Int32
    tokens: Int32 | None
    is_full: bool
    continuing: Bools | None
    others: Bools | None


class Digits:
    """The digit strings of one trie.

    Attributes:
        count: the number of their nodes.
        longest: the most digits with which a token begins.
        is_walked: whether `walk` can be used: none of them is too long.
    """

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self.longest = self.count = 0
        nodes = np.zeros(1, np.int64)
        while True:
            first = trie.first_child[nodes]
            nodes = ranges(first, first + trie.n_children[nodes])
            nodes = nodes[(trie.byte[nodes] >= _ZERO) & (trie.byte[nodes] < _ZERO + 10)]
            if not len(nodes):
                break
            self.longest, self.count = self.longest + 1, self.count + len(nodes)
        self.is_walked = self.longest <= _MOST_DIGITS
        self._levels = self._make_levels() if self.is_walked else []

    def _make_levels(self) -> list[_Level]:
        trie = self._trie
        levels: list[_Level] = []
        nodes: Int32 = np.zeros(1, np.int32)
        for _ in range(self.longest + 1):
            below = np.full((len(nodes), 10), -1, np.int32)
            others = np.zeros(len(nodes), bool)
            for value in (nodes >= 0).nonzero()[0].tolist():
                first = int(trie.first_child[nodes[value]])
                for child in range(first, first + int(trie.n_children[nodes[value]])):
                    digit = int(trie.byte[child]) - _ZERO
                    if 0 <= digit <= 9:
                        below[value, digit] = child
                    else:
                        others[value] = True
            levels.append(self._level(nodes, others))
            nodes = below.reshape(-1)
        return levels

    def _level(self, nodes: Int32, others: Bools) -> _Level:
        trie = self._trie
        exist = nodes >= 0
        n_tokens = np.where(exist, trie.token_start[nodes + 1] - trie.token_start[nodes], 0)
        tokens: Int32 | None = None
        if int(n_tokens.max()) <= 1:
            tokens = np.full(len(nodes), -1, np.int32)
            tokens[n_tokens > 0] = trie.token_ids[trie.token_start[nodes[n_tokens > 0]]]
        continuing = exist & (trie.n_children[nodes] > 0)
        return _Level(
            nodes,
            tokens,
            bool(exist.all() and n_tokens.min() > 0),
            continuing if continuing.any() else None,
            others if others.any() else None,
        )

    def walk(self, leaf: Leaf, q: int, out: WalkBuilder, nodes: NodeSets) -> list[tuple[int, int]]:
        """Add the walk of ``leaf`` from its state ``q`` at the root through the digits of tokens;
        and the states after other bytes, with their nodes.

        Cost: some microseconds for each state that digits lead to, plus the cost of making the
        state.
        """
        exits: dict[int, list[Int32]] = {}
        others: list[tuple[int, int]] = []
        groups = {q: np.zeros(1, np.int64)}
        for length, level in enumerate(self._levels):
            below: dict[int, list[Int64]] = {}
            for state, values in groups.items():
                if length:
                    found = self._tokens(level, values)
                    if len(found):
                        out.parts.append(found.tobytes())
                        out.ends[state] = None
                    outcome = leaf.label(state)
                    if outcome >= 0 and level.continuing is not None:
                        continuing = values[level.continuing[values]]
                        if len(continuing):
                            exits.setdefault(outcome, []).append(level.nodes[continuing])
                # States from which nothing is read need no row; rows take the time.
                if level.others is not None and level.others[values].any():
                    where = level.nodes[values[level.others[values]]]
                    others += self._others(leaf.row(state), where)
                if length < self.longest:
                    by_target: dict[int, list[int]] = {}
                    for byte, to in sorted(leaf.row(state).items()):
                        if 0 <= byte - _ZERO <= 9:
                            by_target.setdefault(to, []).append(byte - _ZERO)
                    for to, digits in by_target.items():
                        below.setdefault(to, []).append((values[:, None] * 10 + digits).ravel())
            groups = {}
            for to, parts in below.items():
                values = parts[0] if len(parts) == 1 else np.concatenate(parts)
                if not self._levels[length + 1].is_full:
                    values = values[self._levels[length + 1].nodes[values] >= 0]
                if len(values):
                    groups[to] = values
        for outcome, places in exits.items():
            out.exits[outcome] = [nodes.of(np.sort(np.concatenate(places)))]
        return others

    def _tokens(self, level: _Level, values: Int64) -> Int32:
        """Return the tokens that are digit strings of one length."""
        if level.tokens is None:
            nodes, trie = level.nodes[values], self._trie
            found: Int32 = trie.token_ids[
                ranges(trie.token_start[nodes], trie.token_start[nodes + 1])
            ]
            return found
        found = level.tokens[values]
        return found if level.is_full else found[found >= 0]

    def _others(self, row: dict[int, int], nodes: Int32) -> Iterator[tuple[int, int]]:
        """Yield the states after bytes that are not digits."""
        child = self._trie.child
        steps = [(byte, to) for byte, to in row.items() if not 0 <= byte - _ZERO <= 9]
        for node in nodes.tolist() if steps else ():
            for byte, to in steps:
                found = child.get(node << 8 | byte)
                if found is not None:
                    yield to, found


_MOST_VISITS = 400
"""After this many nodes visited one by one, NumPy takes over,"""

_FEW_NODES = 40
"""and stops at a level with this many nodes or fewer."""

_FEW_BYTES = 4
"""A set's children by up to this many bytes are found one by one."""


class TrieWalk(WalkBuilder):
    """One walk of a leaf through the trie, byte by byte.

    Depth first while few nodes survive, level by level over arrays while there are many.

    Args:
        leaf: the leaf.
        nodes: nodes of the trie, and sets of them.
        rows: returns the transitions of the leaf's states by byte, as arrays.
        q: the start state of the leaf.
        node: the start node.
        set_aside: collects states at nodes that are walked in another way.
        continuing: returns the part of a node from which some token continues after an outcome, -1
            if there is none; None if any byte may follow.
        allowed: returns the bytes that may follow an outcome.
    """

    __slots__ = ("_allowed", "_continuing", "_rows", "_set_aside", "leaf", "nodes", "todo")

    def __init__(
        self,
        leaf: Leaf,
        nodes: NodeSets,
        rows: Callable[[], StateRows],
        q: int,
        node: Node,
        set_aside: Callable[[int, Node], bool] | None,
        continuing: Callable[[Node, int], Node] | None = None,
        allowed: Callable[[int], Bools] | None = None,
    ) -> None:
        super().__init__()
        self.leaf = leaf
        self.nodes = nodes
        self._rows = rows
        self._set_aside = set_aside
        self._continuing = continuing
        self._allowed = allowed
        self.todo: list[tuple[int, Node]] = [(q, node)]

    def narrow(self) -> None:
        """Continue depth first, until there are too many nodes."""
        nodes, leaf, todo = self.nodes, self.leaf, self.todo
        n_nodes, n_children = nodes.n_nodes, nodes.n_children
        first_child, byte_of = nodes.first_child, nodes.byte
        token_start, token_ids = nodes.token_start, nodes.token_ids
        child_of, ids, exits, ends = nodes.trie.child, self.ids, self.exits, self.ends
        labels, row_of = leaf.labels, leaf.row
        continues = leaf.continues if leaf.of_grammar else None  # texts would make rows for these
        set_aside, continuing = self._set_aside, self._continuing
        visits = 0
        while todo:
            state, at = todo.pop()
            if set_aside is not None and set_aside(state, at):
                continue
            row = row_of(state)
            if at >= n_nodes:
                few = len(row) <= _FEW_BYTES
                visits += len(row) if few else max(len(row), nodes.n_members(at))
            else:
                visits += min(len(row), n_children[at]) + 1
            if visits > _MOST_VISITS:
                todo.append((state, at))
                self._wide()
                return
            if at >= n_nodes:
                if few:
                    below_by = nodes.child
                    steps = [(to, c) for byte, to in row.items() if (c := below_by(at, byte)) >= 0]
                else:
                    below = nodes.children(at)
                    steps = [(row[byte], child) for byte, child in below.items() if byte in row]
            elif n_children[at] < len(row):
                first = first_child[at]
                steps = [
                    (row[byte], child)
                    for child in range(first, first + n_children[at])
                    if (byte := byte_of[child]) in row
                ]
            else:
                steps = [
                    (to, child)
                    for byte, to in row.items()
                    if (child := child_of.get(at << 8 | byte)) is not None
                ]
            for to, child in steps:
                if child >= n_nodes:
                    self.arrive(to, child)
                    continue
                first, last = token_start[child], token_start[child + 1]
                if first != last:
                    ids += token_ids[first:last]
                    ends[to] = None
                if n_children[child]:
                    outcome = labels[to]
                    if outcome >= 0 and (continuing is None or continuing(child, outcome) >= 0):
                        exits.setdefault(outcome, []).append(child)
                    if continues is None or continues(to):
                        todo.append((to, child))

    def arrive(self, state: int, at: Node) -> None:
        """Reach a state at a node, or at a set of them."""
        here = self.nodes.tokens_of(at)
        if len(here):
            self.ids += here
            self.ends[state] = None
        if not self.nodes.continues(at):
            return
        outcome = self.leaf.labels[state]
        if outcome >= 0:
            exit_node = at if self._continuing is None else self._continuing(at, outcome)
            if exit_node >= 0:
                self.exits.setdefault(outcome, []).append(exit_node)
        if not self.leaf.of_grammar or self.leaf.continues(state):
            self.todo.append((state, at))

    def _wide(self) -> None:
        """Walk level by level, until it is narrow again or only runs are left."""
        sets, trie, rows = self.nodes, self.nodes.trie, self._rows()
        parts = [(sets.real(at), state) for state, at in self.todo]
        self.todo.clear()
        nodes = np.concatenate([part for part, _ in parts])
        states = np.repeat(
            np.array([state for _, state in parts], np.int32), [len(part) for part, _ in parts]
        )
        seen_nodes: list[Nodes] = []
        seen_states: list[Int32] = []
        while len(nodes):
            WORK.spend(10 + (len(nodes) >> 5))
            rows.cover(states)
            looping = rows.loops[states]
            if looping.any():
                there, which = nodes[looping], states[looping]
                for state in distinct(which).tolist():
                    self.todo.append((state, sets.joined(there[which == state])))
                nodes, states = nodes[~looping], states[~looping]
                if not len(nodes):
                    break
            if seen_nodes and len(nodes) <= _FEW_NODES:
                self.todo += zip(states.tolist(), nodes.tolist(), strict=True)
                break
            count = trie.n_children[nodes]
            children = sets.below(nodes)
            to = rows.rows[np.repeat(states, count), trie.byte[children]]
            alive = np.flatnonzero(to >= 0)
            nodes, states = children[alive], to[alive]
            seen_nodes.append(nodes)
            seen_states.append(states)
        if seen_nodes:
            self.take(np.concatenate(seen_nodes), np.concatenate(seen_states))

    def take(self, nodes: Nodes, states: Int32) -> None:
        """Add the tokens that end at ``nodes``, reached in ``states``, and the nodes where the leaf
        may end."""
        sets, trie, rows = self.nodes, self.nodes.trie, self._rows()
        rows.cover(states)
        self.parts.append(sets.tokens_at(nodes).tobytes())
        held = trie.token_start[nodes] != trie.token_start[nodes + 1]
        self.ends.update(dict.fromkeys(distinct(states[held]).tolist()))
        labels = rows.labels[states]
        ending = np.flatnonzero(labels >= 0)
        if len(ending):
            nodes, labels = nodes[ending], labels[ending]
            for outcome in distinct(labels).tolist():
                there = nodes[labels == outcome]
                if self._allowed is None:
                    there = there[trie.n_children[there] > 0]
                else:
                    there = sets.continuing(there, self._allowed(outcome))
                if len(there):
                    self.exits.setdefault(outcome, []).append(sets.joined(there))


class Walker:
    """The caches and walks of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.store = WalkStore(vocabulary)
        self.texts = LeafTexts(self.store)
        self.strings = StringWalks(self.store, self.texts, self.leaf_walk)
        self._left: GenerationalCache[tuple[Leaf, int, Node], tuple[Int32, Int32]]
        self._left = self.store.cache()

    # -- one leaf ---------------------------------------------------------------------------

    def leaf_walk(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Walk ``leaf`` from state ``q`` at ``node``; cached in ``memo``."""
        found = memo.get(leaf, q, node)
        return self.walk_uncached(leaf, q, node, memo) if found is None else found

    def walk_uncached(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Like `leaf_walk`, for a walk that is not in ``memo`` yet."""
        WORK.left -= 2
        if WORK.left < 0:
            raise WORK.too_much()
        if leaf.hands_over:
            assert isinstance(leaf, ExcludingLeaf)
            less = self._walk_without(leaf, q, node, memo)
            memo.put(leaf, q, node, less)
            self.store.used += len(less[1]) + 400
            return less
        found: LeafWalk | None = None
        if leaf.holds_text:
            state = leaf.text_state(q)
            if state is None:
                found = self.strings.before_text(leaf, q, node, memo)
                if found is None:
                    found = self.strings.behind_text(leaf, q, node)
                if found is not None and node != ROOT:
                    return found  # from cached parts, for one frame, which is cached, too
            else:
                found = self.strings.in_text(leaf, state, node, memo)
        elif isinstance(leaf, LimitedLeaf):
            found = self._limited_walk(leaf, q, node, memo)
        if found is None:
            digits = self._digits if node == ROOT and isinstance(leaf, NumberLeaf) else None
            if digits is not None and digits.is_walked and digits.count > _MANY_DIGITS:
                found = self._number_walk(leaf, q, memo)
            else:
                found = self._walk_bytes(leaf, q, node, memo)
        size = len(found[1])
        if node == ROOT:
            if size > 4 * self.store.n_words:
                found = self.store.with_row(found)
                size = 0
            if leaf.is_shared and q >= leaf.report_from:  # its states are numbered in order of use
                size += leaf.grown()
        memo.put(leaf, q, node, found)
        # The cost of walks is checked once per mask, when it is charged.
        self.store.used += size + 400
        return found

    def alike(self, leaf: Leaf, q: int) -> int:
        """Return a state of ``leaf`` with the same tokens as ``q``, shared by many such states.

        The shortest completion after each token has the same length, too.
        """
        if not leaf.holds_text:
            return leaf.alike(q, self._digits.longest)
        state = leaf.text_state(q)
        if state is None:
            return q
        to = self.texts.of(leaf).alike(state)
        return q if to == state else leaf.in_text(to)

    def _walk_without(self, leaf: ExcludingLeaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Return the walk of a leaf without some of its texts: the cached walk of the whole leaf,
        without the few paths that write a barred text.

        Cost: a step for each trie node on these paths.
        """
        base, barred = leaf.base, leaf.key(q)
        memo = self.store.walks if base.is_shared else memo
        row, ids, exits, ends = self.leaf_walk(base, barred[0], node, memo)
        child_of = self.store.trie.child
        gone_ids: list[int] = []
        gone: set[int] = set()
        stops: dict[End, None] = {(HANDED, ends, None): None}
        todo = [(barred, at) for at in self.store.nodes.real(node).tolist()]
        while todo:
            (state, others), at = todo.pop()
            WORK.spend(1)
            for byte, after in leaf.barred_row(others).items():
                child = child_of.get(at << 8 | byte)
                if child is None:
                    continue
                to = base.step(state, byte)
                if to < 0:
                    continue
                key = to, after
                if not leaf.is_alive(key):
                    gone_ids += self.store.nodes.tokens_of(child)
                    gone.add(child)
                    _, more, outs, _ = self.leaf_walk(base, to, child, memo)
                    gone_ids += ids_of(more).tolist()
                    for _, out in outs:
                        gone.update(self.store.nodes.real(out).tolist())
                    continue
                if self.store.nodes.tokens_of(child):
                    stops[leaf.state(key)] = None
                if leaf.is_barred(after):
                    gone.add(child)
                todo.append((key, child))
        row, ids = self._tokens_without(row, ids, gone_ids)
        if gone:
            exits = self._exits_without(exits, gone)
        return row, ids, exits, (*stops,)

    def _limited_walk(self, leaf: LimitedLeaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Return the walk of a leaf with a token limit: that of its inner leaf, without the tokens
        after which the text could not end within the remaining tokens.

        Cost: near the limit, 0.1 µs for each node of the trie, once for each state of the inner
        leaf.
        """
        inner, (at, left) = leaf.inner, leaf.inside(q)
        if left < 0:
            return NO_WALK
        memo = self.store.walks if inner.is_shared else memo
        row, ids, exits, ends = self.leaf_walk(inner, at, node, memo)
        if inner.most_left is None or inner.most_left > left:
            tokens, bytes_left = self._bytes_left(inner, at, node)
            row, ids = self._tokens_without(row, ids, tokens[bytes_left > left])
        return row, ids, exits, ends

    def _bytes_left(self, leaf: Leaf, q: int, node: Node) -> tuple[Int32, Int32]:
        """Return the tokens that end inside a leaf, with the bytes of its shortest end after each;
        without those with 0."""
        found = self._left[leaf, q, node]
        if found is None:
            tokens: list[Int32] = []
            bytes_left: list[Int32] = []
            sets = self.store.nodes
            for nodes, at, states in levels(sets.trie, leaf.step, q, sets.real(node)):
                shortest = [leaf.shortest(state) for state in states]
                sizes = np.array([len(way[0]) if way else _FAR for way in shortest], np.int32)[at]
                nodes, sizes = nodes[sizes > 0], sizes[sizes > 0]
                first, last = sets.trie.token_start[nodes], sets.trie.token_start[nodes + 1]
                tokens.append(sets.tokens_at(nodes))
                bytes_left.append(np.repeat(sizes, last - first))
            found = self._left[leaf, q, node] = np.concatenate(tokens), np.concatenate(bytes_left)
            self.store.used += 200 + found[0].nbytes + found[1].nbytes
        return found

    def _tokens_without(
        self, row: Bits | None, ids: Tokens, gone: list[int] | Int32
    ) -> tuple[Bits | None, Tokens]:
        """Return the tokens of a walk without the given ones."""
        if not len(gone):
            return row, ids
        if row is not None:
            row = self.store.intern(row & ~bits_of(gone, len(row)))
        left = ids_of(ids)
        return row, left[np.isin(left, gone, invert=True)].tobytes()

    def _exits_without(self, exits: Exits, gone: set[int]) -> Exits:
        out: list[tuple[int, Node]] = []
        count = self.store.nodes.n_children
        for outcome, node in exits:
            reals = self.store.nodes.real(node).tolist()
            members = [real for real in reals if count[real] and real not in gone]
            if members:
                out.append((outcome, self.store.nodes.of(np.array(members, np.int32))))
        return (*out,)

    @functools.cached_property
    def _digits(self) -> Digits:
        return Digits(self.store.trie)

    def _number_walk(self, leaf: Leaf, q: int, memo: WalkMemo) -> LeafWalk:
        """Return the walk of a number from the root, with equivalent digit strings at once."""
        found = WalkBuilder()
        for state, node in self._digits.walk(leaf, q, found, self.store.nodes):
            ids = self.store.nodes.tokens_of(node)
            if ids:
                found.ids += ids
                found.ends[state] = None
            if not self.store.trie.n_children[node]:
                continue
            outcome = leaf.label(state)
            if outcome >= 0:
                found.exits.setdefault(outcome, []).append(node)
            found.include(self.leaf_walk(leaf, state, node, memo))
        return self.store.finished(found)

    def _walk_bytes(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        """Return the walk of a leaf byte by byte, except its texts."""
        texts: dict[int, list[int]] = {}

        def rows() -> StateRows:
            table: StateRows | None = memo.tables[leaf]
            if table is None:
                table = memo.tables[leaf] = StateRows(weakref.ref(leaf), self.store.charge)
            return table

        def set_aside(state: int, at: Node) -> bool:
            return self.strings.set_aside(leaf, state, at, texts)

        aside = set_aside if leaf.holds_text else None
        found = TrieWalk(leaf, self.store.nodes, rows, q, node, aside)
        while found.todo:
            found.narrow()
        if texts:
            self.strings.walk_all(leaf, texts, found, memo)
        return self.store.finished(found)


class CacheInfo(NamedTuple):
    """The sizes of the mask caches, over all vocabularies in use.

    Attributes:
        vocabularies: the number of vocabularies with caches.
        n_bytes: bytes of the caches, both generations.
        budget: the most bytes that they may take together.
        entries: the number of cached walks, rows and masks.
        turns: how often the older generation was dropped.
        tables: bytes of tables that depend only on the vocabularies and are never dropped.
        automata: bytes of the automata that schemas share, independent of vocabularies; see
            `automaton.core.shared`.
        constraints: bytes of the automata of live constraints, roughly. They grow with the outputs;
            beyond 64 MB a constraint starts a new one.
    """

    vocabularies: int
    n_bytes: int
    budget: int
    entries: int
    turns: int
    tables: int
    automata: int
    constraints: int


def cache_info() -> CacheInfo:
    """Return a live gauge of the mask caches. Cost: microseconds.

    Returns:
        `CacheInfo`: over all vocabularies in use, the bytes that caches take (``n_bytes``) and may
        take (``budget``), how much is cached and was dropped; see its attributes.
    """
    with _walkers_lock:
        walkers = list(_walkers.values())
    stores = [walker.store for walker in walkers]
    return CacheInfo(
        len(walkers),
        sum(store.used + store.held for store in stores),
        sum(store.budget for store in stores),
        sum(store.entries() for store in stores),
        sum(store.turns for store in stores),
        sum(walker.texts.tables for walker in walkers),
        AUTOMATA.n_bytes + FORMAT_AUTOMATA.n_bytes,
        sum(store.weight_of_owners() for store in stores),
    )


_walkers: weakref.WeakKeyDictionary[Vocabulary, Walker] = weakref.WeakKeyDictionary()
_walkers_lock = fork_safe(threading.Lock())


def walker_of(vocabulary: Vocabulary) -> Walker:
    """Return the shared caches of ``vocabulary``."""
    with _walkers_lock:
        found = _walkers.get(vocabulary)
        if found is None:
            found = _walkers[vocabulary] = Walker(vocabulary)
        return found
