"""Walks of a grammar's lexer through a vocabulary's trie, memoised.

A walk starts in a lexer state at a node of the trie, or at a *set* of nodes walked as one (all the
places where tokens leave a name, say), and reports the tokens that end inside and the nodes where
terminals may end, by outcome. Of those nodes only the ones count from which some token goes on with
a byte that the terminal's end allows: after a name, with no letter. Narrow walks run depth first in
Python, wide ones level by level in NumPy.

This module knows lexers and tries; what follows a terminal is `cfg_masks`' business.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .automaton.cfg_lexer import Lexer
from .trie import Trie
from .vocabulary import Vocabulary

Bits = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.int32]

_MAX_VISITS = 160
_MAX_SPARSE = 8
_DENSE = 400
_NARROW = 40


class Walk(NamedTuple):
    """What a lexer does from one node.

    Attributes:
        ids: tokens that end inside, or exactly where a terminal may end; empty if ``bits`` is set.
        bits: the same as a packed mask, where they are many.
        exits: ``(outcome, node)`` pairs: where terminals may end and a token goes on.
        ends: lexer states in which those tokens end.
    """

    ids: Ids
    bits: Bits | None
    exits: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]


class Walks:
    """The walks of one lexer over one vocabulary.

    Attributes:
        used: bytes held, about.
    """

    def __init__(self, lexer: Lexer, vocabulary: Vocabulary) -> None:
        self.used = 0
        self._lexer = lexer
        self._trie: Trie = vocabulary.trie
        self._n_words = (vocabulary.size + 31) // 32
        self._first_child = self._trie.first_child.data
        self._n_children = self._trie.n_children.data
        self._byte = self._trie.byte.tobytes()
        self._token_ids = self._trie.token_ids.data
        self._token_start = self._trie.token_start.data
        self._rows = np.full((64, 256), -1, np.int32)
        self._labels = np.full(64, -1, np.int32)
        self._filled = np.zeros(64, bool)
        self._open_nodes: dict[int, npt.NDArray[np.bool_]] = {}
        self._goes_on: dict[bytes, npt.NDArray[np.bool_]] = {}
        self._reset()

    def _reset(self) -> None:
        self._walks: dict[tuple[int, int], Walk] = {}
        self._sets: list[npt.NDArray[np.int32]] = []
        self._set_ids: dict[bytes, int] = {}
        self.used = 0

    def clear(self) -> None:
        """Forget all walks, and all sets of nodes."""
        self._reset()

    def walk(self, q: int, node: int) -> Walk:
        """The walk from lexer state ``q`` at ``node``."""
        key = (q, node)
        found = self._walks.get(key)
        if found is None:
            found = self._sparse(q, node) or self._wide(q, node)
            self._walks[key] = found
            self.used += 400 + found.ids.nbytes
            if found.bits is not None:
                self.used += found.bits.nbytes
        return found

    # -- nodes ------------------------------------------------------------------------------------

    def _real(self, node: int) -> npt.NDArray[np.int32]:
        n_nodes = self._trie.n_nodes
        return np.array([node], np.int32) if node < n_nodes else self._sets[node - n_nodes]

    def join(self, nodes: list[int]) -> int:
        """One node that stands for all of ``nodes``, each a node or a set."""
        if len(nodes) == 1:
            return nodes[0]
        return self._join(np.concatenate([self._real(node) for node in nodes]))

    def _join(self, nodes: npt.NDArray[np.int32]) -> int:
        """One node that stands for all of ``nodes``."""
        if len(nodes) == 1:
            return int(nodes[0])
        nodes = np.unique(nodes)
        if len(nodes) == 1:
            return int(nodes[0])
        key = nodes.tobytes()
        found = self._set_ids.get(key)
        if found is None:
            found = self._set_ids[key] = self._trie.n_nodes + len(self._sets)
            self._sets.append(nodes)
            self.used += 2 * nodes.nbytes + 200
        return found

    def _goes_on_after(self, outcome: int) -> npt.NDArray[np.bool_]:
        """For each trie node, whether some token goes on as an outcome allows."""
        found = self._open_nodes.get(outcome)
        if found is None:
            allowed = self._lexer.following_bytes(outcome)
            key = allowed.tobytes()
            known = self._goes_on.get(key)
            if known is None:
                trie = self._trie
                known = np.zeros(trie.n_nodes, bool)
                edges = allowed[trie.byte]
                edges[0] = False  # the root has no edge
                known[trie.parent[edges]] = True
                self._goes_on[key] = known
            found = self._open_nodes[outcome] = known
        return found

    # -- walks ------------------------------------------------------------------------------------

    def _sparse(self, q: int, node: int) -> Walk | None:
        trie, lexer = self._trie, self._lexer
        if node < trie.n_nodes:
            stack = [(q, node)]
        else:
            members = self._sets[node - trie.n_nodes]
            if len(members) > _MAX_SPARSE:
                return None
            stack = [(q, member) for member in members.tolist()]
        first_child, n_children, byte_of = self._first_child, self._n_children, self._byte
        token_start, child_of, filled = self._token_start, trie.child, self._filled
        tokens: list[int] = []
        exits: dict[int, list[int]] = {}
        ends: dict[int, None] = {}
        visits = 0
        while stack:
            state, at = stack.pop()
            count = n_children[at]
            if not count:
                continue
            steps: list[tuple[int, int]] = []
            if lexer.n_bytes(state) <= count:
                for byte, to in lexer.row(state).items():
                    child = child_of.get(at << 8 | byte)
                    if child is not None:
                        steps.append((to, child))
                visits += lexer.n_bytes(state)
            else:
                visits += count
                if visits > _MAX_VISITS:
                    return None
                if state >= len(filled) or not filled[state]:
                    self._fill(state)
                    filled = self._filled
                row = self._rows[state]
                first = first_child[at]
                for child in range(first, first + count):
                    to = int(row[byte_of[child]])
                    if to >= 0:
                        steps.append((to, child))
            if visits > _MAX_VISITS:
                return None
            for to, child in steps:
                if token_start[child] != token_start[child + 1]:
                    tokens.append(child)
                    ends[to] = None
                outcome = lexer.label(to)
                if outcome >= 0 and self._goes_on_after(outcome)[child]:
                    exits.setdefault(outcome, []).append(child)
                stack.append((to, child))
        token_ids = self._token_ids
        ids = [token_ids[i] for n in tokens for i in range(token_start[n], token_start[n + 1])]
        return Walk(
            np.array(ids, np.int32),
            None,
            tuple((o, self._join(np.array(n, np.int32))) for o, n in exits.items()),
            tuple(ends),
        )

    def _wide(self, q: int, node: int) -> Walk:
        trie = self._trie
        nodes = self._real(node)
        states = np.full(len(nodes), q, np.int32)
        seen_nodes: list[npt.NDArray[np.int32]] = []
        seen_states: list[npt.NDArray[np.int32]] = []
        while len(nodes):
            if len(nodes) <= _NARROW and seen_nodes:
                nodes, states = self._to_the_end(nodes, states)
                seen_nodes.append(nodes)
                seen_states.append(states)
                break
            count = trie.n_children[nodes]
            keep = count > 0
            if not keep.all():
                nodes, states, count = nodes[keep], states[keep], count[keep]
                if not len(nodes):
                    break
            self._cover(states)
            ends = np.cumsum(count)
            starts = trie.first_child[nodes] - (ends - count)
            children = np.repeat(starts, count) + np.arange(int(ends[-1]), dtype=np.int32)
            to = self._rows[np.repeat(states, count), trie.byte[children]]
            alive = np.flatnonzero(to >= 0)
            nodes, states = children[alive].astype(np.int32), to[alive]
            seen_nodes.append(nodes)
            seen_states.append(states)
        if not seen_nodes:
            return Walk(np.array([], np.int32), None, (), ())
        all_nodes, all_states = np.concatenate(seen_nodes), np.concatenate(seen_states)
        self._cover(all_states)
        first = trie.token_start[all_nodes]
        count = trie.token_start[all_nodes + 1] - first
        held = np.flatnonzero(count)
        ids = self._tokens_at(first[held], count[held])
        bits = pack(ids, self._n_words) if len(ids) > _DENSE else None
        labels = self._labels[all_states]
        exits: list[tuple[int, int]] = []
        leaving = np.flatnonzero(labels >= 0)
        if len(leaving):
            out_nodes, out_labels = all_nodes[leaving], labels[leaving]
            for outcome in np.flatnonzero(np.bincount(out_labels)).tolist():
                there = out_nodes[out_labels == outcome]
                there = there[self._goes_on_after(outcome)[there]]
                if len(there):
                    exits.append((outcome, self._join(there)))
        ending = tuple(np.flatnonzero(np.bincount(all_states[held])).tolist())
        return Walk(ids if bits is None else ids[:0], bits, tuple(exits), ending)

    def _to_the_end(
        self, nodes: npt.NDArray[np.int32], states: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """What lies below a few nodes: long tokens, whose levels are too thin for arrays."""
        first_child, n_children, byte_of = self._first_child, self._n_children, self._byte
        stack = list(zip(nodes.tolist(), states.tolist(), strict=True))
        below: list[int] = []
        there: list[int] = []
        for node, state in stack:
            count = n_children[node]
            if count:
                if state >= len(self._filled) or not self._filled[state]:
                    self._fill(state)
                row = self._rows[state]
                first = first_child[node]
                for child in range(first, first + count):
                    to = int(row[byte_of[child]])
                    if to >= 0:
                        below.append(child)
                        there.append(to)
                        stack.append((child, to))
        return np.array(below, np.int32), np.array(there, np.int32)

    def _tokens_at(self, first: Ids, count: Ids) -> Ids:
        ids = self._trie.token_ids[first]
        if len(count) and int(count.max()) > 1:
            more = count > 1
            first, count = first[more], count[more]
            ends = np.cumsum(count)
            offset = np.arange(int(ends[-1]), dtype=np.int32) - np.repeat(ends - count, count)
            ids = np.concatenate([ids, self._trie.token_ids[np.repeat(first, count) + offset]])
        return ids

    # -- transitions ------------------------------------------------------------------------------

    def _cover(self, states: npt.NDArray[np.int32]) -> None:
        """Make sure that every one of ``states`` has its row."""
        if not len(states):
            return
        top = int(states.max())
        if top >= len(self._filled):
            self._grow(top)
        missing = ~self._filled[states]
        if missing.any():
            for state in np.flatnonzero(np.bincount(states[missing])).tolist():
                self._fill(state)

    def _fill(self, state: int) -> None:
        if state >= len(self._filled):
            self._grow(state)
        self._rows[state] = self._lexer.byte_row(state)
        self._labels[state] = self._lexer.label(state)
        self._filled[state] = True

    def _grow(self, top: int) -> None:
        size = max(2 * len(self._filled), top + 1)
        for name, fill in (("_rows", -1), ("_labels", -1), ("_filled", False)):
            old = getattr(self, name)
            new = np.full((size, *old.shape[1:]), fill, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def set_bits(out: Bits, ids: Ids) -> None:
    """Set the bits of token ids (repeats allowed) in a packed mask."""
    np.bitwise_or.at(out, ids >> 5, np.left_shift(np.uint32(1), (ids & 31).astype(np.uint32)))


def pack(ids: Ids, n_words: int) -> Bits:
    """Token ids as a packed mask, uint32 [n_words]."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[ids] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)
