"""Walks of a grammar's lexer through a vocabulary's trie, remembered.

A walk starts in a lexer state at a node of the trie, or at a set of nodes walked as one. It reports
the tokens that end inside and the nodes where terminals may end, by outcome: only those nodes from
which some token continues with a byte that the terminal's end allows; after a name, with no letter.

- `Search` makes one walk, a `TrieWalk`. Where a state leads back to itself by a class of bytes, the
  whole run is one comparison (`byte_runs`), and what leaves it is walked from all those places at
  once.
- `Walks` are the walks of one lexer. Grammars with the same terminals have one lexer, and share
  what is `Known` of it.
- `as_leaf_walk` gives the same walks in the terms of `leaf_walks`.

What follows a terminal is the business of `masks` and `nonterminal_walks`.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer, as_flags
from structgen.automaton.work import WORK
from structgen.masks.grouping import StateRows
from structgen.masks.leaf_walks import TrieWalk, walker_of
from structgen.masks.node_sets import NODE_BITS, Node, NodeSet, NodeSets
from structgen.masks.walk_store import ROOT, LeafWalk, WalkStore
from structgen.storage import GenerationalCache
from structgen.vocabulary import Trie, Vocabulary

from .byte_runs import Order, order_of
from .tokens import Bits, LexerWalk, gathered, gathered_arrays, new_number

_SMALL = 400
"""Nodes of subtrees that are still looked at one by one."""


class Search(TrieWalk):
    """One walk of a lexer."""

    leaf: Lexer

    def __init__(self, walks: Walks, q: int, node: int) -> None:
        rows, going_on, allowed = lambda: walks.states, walks.goes_on, walks.allowed_after
        super().__init__(walks.lexer, walks.nodes, rows, q, node, self._wait, going_on, allowed)
        self._walks = walks
        self._whole: list[Bits] = []
        self._runs: dict[int, list[int]] = {}

    def _wait(self, state: int, at: Node) -> bool:
        """Runs wait until there is nothing else."""
        if self.leaf.loop(state) is None:
            return False
        self._runs.setdefault(state, []).append(at)
        return True

    def walk(self) -> LexerWalk:
        """All of it."""
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
        """As `_run`, node by node."""
        walks, sets, lexer, order = self._walks, self.nodes, self.leaf, self._walks.order
        loop = lexer.loop(state)
        assert loop is not None
        inside, leaving = loop
        last, depth_of = order.runs(inside).view, order.views.depth
        rank, beyond, node_at = order.views.rank, order.views.beyond, order.views.node
        parent, byte_of, is_malformed = order.views.parent, sets.byte, order.views.is_malformed
        token_start, token_ids, ids = sets.token_start, sets.token_ids, self.ids
        outcome = lexer.label(state)
        allowed = walks.allowed_mask(outcome) if outcome >= 0 else 0
        if allowed & lexer.loop_mask(state):
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
        """A state that leads back to itself, from all of ``where`` at once."""
        walks, sets, trie, lexer = self._walks, self.nodes, self.nodes.trie, self.leaf
        order = walks.order
        loop = lexer.loop(state)
        assert loop is not None
        inside, leaving = loop
        runs = order.runs(inside)
        nodes = sets.real(sets.join(where))
        if len(nodes) > 1 and not nodes[0]:
            # The root, and nodes below it: the arrays are made for one or the other.
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
            if walks.allowed_mask(outcome) & lexer.loop_mask(state):
                there = sets.going_on(order.nodes_below(runs, nodes), flags)
            else:
                edges = order.edges_below(runs, nodes)
                there = trie.parent[edges[flags[trie.byte[edges]]]]
                # Where it begins was looked at when it was reached.
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
            if lexer.goes_on(target):
                self.todo.append((target, sets.joined(edges[to == target])))


Spaces: TypeAlias = "tuple[tuple[LexerWalk, ...], tuple[tuple[int, int], ...]]"
"""What is ignored does from a node: its walks, and where it ends: conditions and nodes."""


class Known(NamedTuple):
    """What is known of one lexer, in its own numbers. Others fill it.

    Attributes:
        walks: by state and node (``state << NODE_BITS | node``).
        spaces: for the terminals that are ignored, by condition and node.
    """

    walks: GenerationalCache[int, LexerWalk]
    spaces: dict[frozenset[int], GenerationalCache[int, Spaces]]


def _known(lexer: Lexer, store: WalkStore) -> Known:
    """What is known of ``lexer`` over a vocabulary: of one that grammars share, to all of them."""
    by_store: weakref.WeakKeyDictionary[WalkStore, Known]
    by_store = lexer.attached.setdefault(Walks, weakref.WeakKeyDictionary())
    found = by_store.get(store)
    if found is None:
        found = by_store[store] = Known(store.cache(), {})
    return found


_FEW = 10
"""Sets of so many nodes are looked at one by one."""
_FEW_MEMBERS = 40
_HUGE = 4_000
"""In sets of so few nodes, those with larger subtrees are walked by themselves."""
_MANY_BYTES = 8
"""Terminals that go on with more bytes than these are walked apart from large nodes."""


class Walks:
    """The walks of one lexer over one vocabulary.

    Attributes:
        lexer: the lexer.
        nodes: nodes of the trie, and sets of them.
        states: where bytes lead from the lexer's states.
        known: what is known of the lexer; of one that grammars share, to all of them.
        charge, cache: see `WalkStore`.
    """

    def __init__(self, lexer: Lexer, vocabulary: Vocabulary) -> None:
        self.lexer = lexer
        self.trie: Trie = vocabulary.trie
        self.order: Order = order_of(vocabulary)
        store = walker_of(vocabulary).store
        self.nodes: NodeSets = store.nodes
        self.n_words = (vocabulary.size + 31) // 32
        self.states = StateRows(lambda: lexer, _free_of_charge, lambda q: lexer.loop(q) is not None)
        self._allowed: dict[int, npt.NDArray[np.bool_]] = {}
        self._allowed_masks: dict[int, int] = {}
        self._anything = lexer.terminals.lookahead.anything
        self._inside: dict[int, tuple[int, ...]] = {}
        self.known = _known(lexer, store)
        self._walks = self.known.walks
        self.charge, self.cache = store.charge, store.cache

    def walk(self, q: int, node: int) -> LexerWalk:
        """The walk from lexer state ``q`` at ``node``."""
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
        """The walks that one from ``q`` at ``node`` is put together from, if it is."""
        if not isinstance(node, NodeSet) or not 1 < len(node.members) <= _FEW_MEMBERS:
            return []
        if self.lexer.n_bytes(q) <= _MANY_BYTES:
            return []
        # The large ones one by one, so that other sets that hold them share their walks.
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

    def inside_characters(self, q: int) -> tuple[int, ...]:
        """The states in which a token can end inside a character that begins in ``q``."""
        found = self._inside.get(q)
        if found is None:
            states: dict[int, None] = {}
            for tail in self.order.tails():
                at: int | None = q
                for byte in tail:
                    at = self.lexer.row(at).get(byte) if at is not None else None
                if at is not None:
                    states[at] = None
            found = self._inside[q] = tuple(states)
        return found

    # -- what may follow ---------------------------------------------------------------------------

    def bytes_after(self, node: int, condition: int) -> int:
        """The bytes with which tokens go on from ``node`` under a condition, as a mask."""
        found = self.nodes.bytes_after(node)
        if condition == self._anything:
            return found
        return found & self.lexer.mask_under(condition)

    def allowed_after(self, outcome: int) -> npt.NDArray[np.bool_]:
        """Which bytes may follow an outcome: bool [256]."""
        found = self._allowed.get(outcome)
        if found is None:
            found = self._allowed[outcome] = as_flags(self.allowed_mask(outcome))
        return found

    def allowed_mask(self, outcome: int) -> int:
        """Which bytes may follow an outcome, as a mask."""
        found = self._allowed_masks.get(outcome)
        if found is None:
            found = self._allowed_masks[outcome] = self.lexer.following(outcome)
        return found

    def goes_on(self, node: int, outcome: int) -> int:
        """What of ``node`` some token goes on from as an outcome allows; -1 for nothing."""
        nodes = self.nodes
        if node < nodes.n_nodes:
            allowed = self.allowed_mask(outcome)
            first, byte_of = nodes.first_child[node], nodes.byte
            for child in range(first, first + nodes.n_children[node]):
                if allowed >> byte_of[child] & 1:
                    return node
            return -1
        if nodes.n_members(node) <= _FEW:
            allowed = self.allowed_mask(outcome)
            members = nodes.real(node).tolist()
            found = [member for member in members if nodes.bytes_after(member) & allowed]
            if len(found) == len(members):
                return node
            return nodes.join(found) if found else -1
        there = nodes.going_on(nodes.real(node), self.allowed_after(outcome))
        return nodes.of(there) if len(there) else -1


def _free_of_charge(_: int) -> None:
    """The rows of a grammar's lexer are counted with its states."""


def as_leaf_walk(walks: Walks, q: int, node: Node) -> LeafWalk:
    """A walk in the terms of `leaf_walks`."""
    found = walks.walk(q, node)
    ids = np.array(found.ids, np.int32)
    row = None
    if found.rows:
        row = found.rows[0]
        for other in found.rows[1:]:
            row = row | other
        if node != ROOT:
            # NonterminalWalks put ids together.
            flags = np.unpackbits(row.view(np.uint8), bitorder="little")
            ids, row = np.concatenate((ids, np.flatnonzero(flags).astype(np.int32))), None
    exits = tuple([exit_ for exit_ in found.exits if walks.nodes.goes_on(exit_[1])])
    ends: dict[int, None] = {}
    for end in found.ends:
        ends.update(dict.fromkeys(walks.inside_characters(~end) if end < 0 else (end,)))
    return row, ids.tobytes(), exits, tuple(ends)
