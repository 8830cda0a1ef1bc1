"""Walks of a grammar's lexer through a vocabulary's trie, memoised.

A walk starts in a lexer state at a node of the trie, or at a *set* of nodes walked as one (all the
places where tokens leave a name, say), and reports the tokens that end inside and the nodes where
terminals may end, by outcome. Of those nodes only the ones count from which some token goes on with
a byte that the terminal's end allows: after a name, with no letter. Narrow walks run depth first in
Python, wide ones level by level in NumPy.

This module knows lexers and tries; what follows a terminal is `cfg_masks`' business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .automaton.cfg_lexer import Lexer
from .trie import Trie
from .vocabulary import Vocabulary

Bits = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.int32]

_MAX_VISITS = 250
_MAX_SPARSE = 8
_DENSE = 400
_NARROW = 40
_DEEP = 8
_MANY = 40
_HUGE = 20_000


_EMPTY: Ids = np.array([], np.int32)


class _Tokens(Protocol):
    @property
    def ids(self) -> Ids: ...

    @property
    def bits(self) -> Bits | None: ...


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
        self._allowed: dict[int, tuple[bytes, npt.NDArray[np.bool_]]] = {}
        self._open_nodes: dict[bytes, npt.NDArray[np.bool_]] = {}
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
            parts = self._lexer.split(q)
            if len(parts) > 1:
                found = self._joined([self.walk(part, node) for part in parts])
            else:
                found = self._sparse(q, node) or self._wide(q, node)
            self._walks[key] = found
            self.used += 400 + found.ids.nbytes
            if found.bits is not None:
                self.used += found.bits.nbytes
        return found

    def _joined(self, parts: list[Walk]) -> Walk:
        ids, bits = merge(parts, self._n_words)
        exits = dict.fromkeys(exit_ for part in parts for exit_ in part.exits)
        ends = dict.fromkeys(end for part in parts for end in part.ends)
        return Walk(ids, bits, tuple(exits), tuple(ends))

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
        # Sorting by hand: NumPy's unique hashes, which takes milliseconds here.
        nodes = np.sort(nodes)
        nodes = nodes[np.concatenate(([True], nodes[1:] != nodes[:-1]))]
        if len(nodes) == 1:
            return int(nodes[0])
        key = nodes.tobytes()
        found = self._set_ids.get(key)
        if found is None:
            found = self._set_ids[key] = self._trie.n_nodes + len(self._sets)
            self._sets.append(nodes)
            self.used += 2 * nodes.nbytes + 200
        return found

    def _allowed_after(self, outcome: int) -> tuple[bytes, npt.NDArray[np.bool_]]:
        """Which bytes may follow an outcome, by byte, twice over."""
        found = self._allowed.get(outcome)
        if found is None:
            allowed = self._lexer.following_bytes(outcome)
            found = self._allowed[outcome] = (allowed.tobytes(), allowed)
        return found

    def _goes_on(self, node: int, outcome: int) -> bool:
        """Whether some token goes on at ``node`` as an outcome allows."""
        first = self._first_child[node]
        allowed = self._allowed_after(outcome)[0]
        byte_of = self._byte
        return any(allowed[byte_of[c]] for c in range(first, first + self._n_children[node]))

    def _going_on(self, nodes: npt.NDArray[np.int32], outcome: int) -> npt.NDArray[np.int32]:
        """Those of ``nodes`` where some token goes on as an outcome allows."""
        trie = self._trie
        bits, allowed = self._allowed_after(outcome)
        if len(nodes) < _HUGE:
            nodes = nodes[trie.n_children[nodes] > 0]
            if not len(nodes):
                return nodes
            count = trie.n_children[nodes]
            ends = np.cumsum(count)
            starts = trie.first_child[nodes] - (ends - count)
            children = np.repeat(starts, count) + np.arange(int(ends[-1]), dtype=np.int32)
            return nodes[np.logical_or.reduceat(allowed[trie.byte[children]], ends - count)]
        known = self._open_nodes.get(bits)
        if known is None:
            known = np.zeros(trie.n_nodes, bool)
            edges = allowed[trie.byte]
            edges[0] = False  # the root has no edge
            known[trie.parent[edges]] = True
            self._open_nodes[bits] = known
        return nodes[known[nodes]]

    # -- walks ------------------------------------------------------------------------------------

    def _sparse(self, q: int, node: int) -> Walk | None:
        trie, lexer = self._trie, self._lexer
        if node < trie.n_nodes:
            if self._n_children[node] > _MANY and lexer.n_bytes(q) > _MANY:
                return None
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
        below: list[Walk] = []
        visits = 0
        while stack:
            state, at = stack.pop()
            count = n_children[at]
            if not count:
                continue
            if count > _MANY and lexer.n_bytes(state) > _MANY and at != node:
                # Others come here too; a walk of its own is shared with them.
                below.append(self.walk(state, at))
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
                if outcome >= 0 and n_children[child] and self._goes_on(child, outcome):
                    exits.setdefault(outcome, []).append(child)
                stack.append((to, child))
        token_ids = self._token_ids
        ids = [token_ids[i] for n in tokens for i in range(token_start[n], token_start[n + 1])]
        if below:
            for walk in below:
                for outcome, exit_node in walk.exits:
                    exits.setdefault(outcome, []).append(exit_node)
                ends.update(dict.fromkeys(walk.ends))
            here = Walk(np.array(ids, np.int32), None, (), ())
            merged, bits = merge([here, *below], self._n_words)
            joined = tuple((o, self.join(n)) for o, n in exits.items())
            return Walk(merged, bits, joined, tuple(ends))
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
        if node == 0:
            nodes, states = self._from_the_root(q, seen_nodes, seen_states)
        while len(nodes):
            if len(nodes) <= _NARROW and len(seen_nodes) >= _DEEP:
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
                there = self._going_on(out_nodes[out_labels == outcome], outcome)
                if len(there):
                    exits.append((outcome, self._join(there)))
        ending = tuple(np.flatnonzero(np.bincount(all_states[held])).tolist())
        return Walk(ids if bits is None else ids[:0], bits, tuple(exits), ending)

    def _from_the_root(
        self,
        q: int,
        seen_nodes: list[npt.NDArray[np.int32]],
        seen_states: list[npt.NDArray[np.int32]],
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Whole levels at a time, as long as most of a level lives; then what is left to walk."""
        trie = self._trie
        at = np.array([q], np.int32)
        for depth in range(1, trie.max_depth + 1):
            first, last = int(trie.level_start[depth]), int(trie.level_start[depth + 1])
            self._cover(at[at >= 0])
            above = at[trie.parent[first:last] - int(trie.level_start[depth - 1])]
            index = above * np.int32(256) + trie.byte[first:last]
            at = self._rows.ravel().take(index, mode="wrap")
            at[above < 0] = -1
            alive = np.flatnonzero(at >= 0)
            nodes, states = (alive + first).astype(np.int32), at[alive]
            seen_nodes.append(nodes)
            seen_states.append(states)
            if 2 * len(alive) < last - first:
                return nodes, states
        return nodes[:0], states[:0]

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


def merge(parts: Iterable[_Tokens], n_words: int, most: int = _DENSE) -> tuple[Ids, Bits | None]:
    """The tokens of several walks as ids, or packed if there are more than ``most``."""
    few: list[Ids] = []
    many: list[Bits] = []
    for part in parts:
        if part.bits is not None:
            many.append(part.bits)
        elif len(part.ids):
            few.append(part.ids)
    ids = few[0] if len(few) == 1 else np.concatenate(few) if few else _EMPTY
    if not many:
        return (ids, None) if len(ids) <= most else (_EMPTY, pack(ids, n_words))
    if len(many) == 1 and not len(ids):
        return _EMPTY, many[0]
    bits = many[0].copy()
    for other in many[1:]:
        bits |= other
    if len(ids):
        set_bits(bits, ids)
    return _EMPTY, bits


def set_bits(out: Bits, ids: Ids) -> None:
    """Set the bits of token ids (repeats allowed) in a packed mask."""
    np.bitwise_or.at(out, ids >> 5, np.left_shift(np.uint32(1), (ids & 31).astype(np.uint32)))


def pack(ids: Ids, n_words: int) -> Bits:
    """Token ids as a packed mask, uint32 [n_words]."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[ids] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32, copy=False)
