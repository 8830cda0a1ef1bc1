"""One walk of a grammar's lexer through a vocabulary's trie.

Narrow walks run depth first in Python, sets of nodes merged byte by byte; wide ones level by level
in NumPy; and where a state leads back to itself by a class of bytes, the whole run is one
comparison (`byte_runs`), and what leaves it is walked on from all those places at once.

It remembers nothing: that is `walks`' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer
from structgen.automaton.work import WORK
from structgen.masks.state_rows import StateRows
from structgen.vocabulary import Trie

from .byte_runs import Order
from .node_sets import NodeSets
from .tokens import Bits, Walk, gathered_arrays, new_number

_MAX_VISITS = 400
_SMALL = 400
"""Nodes of subtrees that are still looked at one by one."""

_FEW = 40
_FEW_BYTES = 4
"""A set's children by so many bytes are found one by one."""


class LexerTables(Protocol):
    """What a search asks of `walks.Walks`: a lexer's states as arrays, and what may follow them."""

    lexer: Lexer
    nodes: NodeSets
    trie: Trie
    order: Order
    n_words: int
    states: StateRows

    def goes_on(self, node: int, outcome: int) -> int:
        """The nodes below ``node`` that may follow an outcome, or -1."""

    def allowed_after(self, outcome: int) -> npt.NDArray[np.bool_]:
        """bool ``[256]``: the bytes that may follow an outcome."""

    def allowed_mask(self, outcome: int) -> int:
        """The same as the bits of an integer."""


class Search:
    """One walk."""

    def __init__(self, walks: LexerTables, q: int, node: int) -> None:
        self._walks = walks
        self._nodes = walks.nodes
        self._lexer = walks.lexer
        self._trie = walks.trie
        self._ids: list[int] = []
        self._parts: list[npt.NDArray[np.int32]] = []
        self._rows: list[Bits] = []
        self._exits: dict[int, list[int]] = {}
        self._ends: dict[int, None] = {}
        self._todo = [(q, node)]
        self._runs: dict[int, list[int]] = {}

    def walk(self) -> Walk:
        """All of it."""
        walks = self._walks
        WORK.spend(2)
        while self._todo or self._runs:
            WORK.spend(3)
            if self._todo:
                self._narrow()
                continue
            state, where = self._runs.popitem()
            if walks.nodes.size(where) <= _SMALL:
                self._short_run(state, where)
            else:
                self._run(state, where)
        ids, rows = gathered_arrays(self._ids, self._parts, self._rows, walks.n_words)
        exits = tuple((outcome, walks.nodes.join(where)) for outcome, where in self._exits.items())
        return Walk(ids, rows, exits, tuple(self._ends), new_number())

    def _narrow(self) -> None:
        """Depth first, until that gets too much."""
        walks, nodes, lexer, todo = self._walks, self._nodes, self._lexer, self._todo
        n_nodes, n_children = nodes.n_nodes, nodes.n_children
        first_child, byte_of = nodes.first_child, nodes.byte
        token_start, token_ids = nodes.token_start, nodes.token_ids
        child_of, ids, exits, ends = self._trie.child, self._ids, self._exits, self._ends
        visits = 0
        while todo:
            state, at = todo.pop()
            if at < n_nodes and not n_children[at]:
                continue
            if lexer.loop(state) is not None:
                self._runs.setdefault(state, []).append(at)
                continue
            row = lexer.row(state)
            if at < n_nodes:
                visits += min(len(row), n_children[at]) + 1
            else:
                visits += len(row) if len(row) <= _FEW_BYTES else max(len(row), nodes.n_members(at))
            if visits > _MAX_VISITS:
                todo.append((state, at))
                self._wide()
                return
            if at < n_nodes and n_children[at] < len(row):
                first = first_child[at]
                steps = [
                    (row[byte], child)
                    for child in range(first, first + n_children[at])
                    if (byte := byte_of[child]) in row
                ]
            elif at < n_nodes:
                steps = [
                    (to, child)
                    for byte, to in row.items()
                    if (child := child_of.get(at << 8 | byte)) is not None
                ]
            elif len(row) <= _FEW_BYTES:
                below_by = nodes.child
                steps = [(to, c) for byte, to in row.items() if (c := below_by(at, byte)) >= 0]
            else:
                below = nodes.children(at)
                steps = [(row[byte], child) for byte, child in below.items() if byte in row]
            for to, child in steps:
                if child >= n_nodes:
                    self._arrive(to, child)
                    continue
                first, last = token_start[child], token_start[child + 1]
                if first != last:
                    ids += token_ids[first:last]
                    ends[to] = None
                if n_children[child]:
                    outcome = lexer.label(to)
                    if outcome >= 0 and walks.goes_on(child, outcome) >= 0:
                        exits.setdefault(outcome, []).append(child)
                    if lexer.goes_on(to):
                        todo.append((to, child))

    def _arrive(self, state: int, at: int) -> None:
        """A state is reached at a node, or at a set of them."""
        walks, sets, lexer = self._walks, self._nodes, self._lexer
        here = sets.tokens_of(at)
        if len(here):
            self._ids += here
            self._ends[state] = None
        outcome = lexer.label(state)
        if outcome >= 0:
            exit_node = walks.goes_on(at, outcome)
            if exit_node >= 0:
                self._exits.setdefault(outcome, []).append(exit_node)
        if lexer.goes_on(state):
            self._todo.append((state, at))

    def _wide(self) -> None:
        """Level by level, until it is narrow again or nothing but runs are left."""
        walks, sets, trie = self._walks, self._nodes, self._trie
        parts = [(sets.real(at), state) for state, at in self._todo]
        self._todo.clear()
        nodes = np.concatenate([part for part, _ in parts])
        states = np.repeat(
            np.array([state for _, state in parts], np.int32), [len(part) for part, _ in parts]
        )
        seen_nodes: list[npt.NDArray[np.int32]] = []
        seen_states: list[npt.NDArray[np.int32]] = []
        depth = 0
        while len(nodes):
            walks.states.cover(states)
            looping = walks.states.loops[states]
            if looping.any():
                there, which = nodes[looping], states[looping]
                for state in np.flatnonzero(np.bincount(which)).tolist():
                    node = sets.joined(there[which == state])
                    self._runs.setdefault(state, []).append(node)
                nodes, states = nodes[~looping], states[~looping]
                if not len(nodes):
                    break
            if depth and len(nodes) <= _FEW:
                self._todo += zip(states.tolist(), nodes.tolist(), strict=True)
                break
            depth += 1
            count = trie.n_children[nodes]
            children = sets.below(nodes)
            to = walks.states.rows[np.repeat(states, count), trie.byte[children]]
            alive = np.flatnonzero(to >= 0)
            nodes, states = children[alive], to[alive]
            seen_nodes.append(nodes)
            seen_states.append(states)
        if seen_nodes:
            self._take(np.concatenate(seen_nodes), np.concatenate(seen_states))

    def _take(self, nodes: npt.NDArray[np.int32], states: npt.NDArray[np.int32]) -> None:
        """Tokens that end at ``nodes``, and terminals that do."""
        walks, sets, trie = self._walks, self._nodes, self._trie
        walks.states.cover(states)
        self._parts.append(sets.tokens_at(nodes))
        held = trie.token_start[nodes] != trie.token_start[nodes + 1]
        ending = np.flatnonzero(np.bincount(states[held])).tolist()
        self._ends.update(dict.fromkeys(ending))
        labels = walks.states.labels[states]
        leaving = np.flatnonzero(labels >= 0)
        if len(leaving):
            nodes, labels = nodes[leaving], labels[leaving]
            for outcome in np.flatnonzero(np.bincount(labels)).tolist():
                flags = walks.allowed_after(outcome)
                there = sets.going_on(nodes[labels == outcome], flags)
                if len(there):
                    self._exits.setdefault(outcome, []).append(sets.joined(there))

    def _short_run(self, state: int, where: list[int]) -> None:
        """As `_run`, node by node."""
        walks, sets, lexer, order = self._walks, self._nodes, self._lexer, self._walks.order
        loop = lexer.loop(state)
        assert loop is not None
        inside, leaving = loop
        last, depth_of = order.runs(inside).view, order.views.depth
        rank, beyond, node_at = order.views.rank, order.views.beyond, order.views.node
        parent, byte_of, is_malformed = order.views.parent, sets.byte, order.views.is_malformed
        token_start, token_ids, ids = sets.token_start, sets.token_ids, self._ids
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
        self._ends[state] = None
        if any(inside[0x80:]):
            self._ends[~state] = None
        if exits:
            self._exits.setdefault(outcome, []).extend(exits)
        for to, reached in left.items():
            self._arrive(to, sets.join(reached))

    def _run(self, state: int, where: list[int]) -> None:
        """A state that leads back to itself, from all of ``where`` at once."""
        walks, sets, trie, lexer = self._walks, self._nodes, self._trie, self._lexer
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
        self._ends[state] = None
        if any(inside[0x80:]):
            self._ends[~state] = None
        if len(nodes) == 1 and not nodes[0]:
            self._rows.append(runs.row)
        else:
            self._parts.append(order.tokens_below(runs, nodes))
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
                self._exits.setdefault(outcome, []).append(sets.joined(there))
        if not leaving:
            return
        if edges is None:
            edges = order.edges_below(runs, nodes)
        to = _as_row(leaving)[trie.byte[edges]]
        alive = to >= 0
        edges, to = edges[alive], to[alive]
        if not len(edges):
            return
        self._take(edges, to)
        for target in np.flatnonzero(np.bincount(to)).tolist():
            if lexer.goes_on(target):
                self._todo.append((target, sets.joined(edges[to == target])))


def _as_row(row: Mapping[int, int]) -> npt.NDArray[np.int32]:
    """A state's row as an array: int32 [256], -1 where there is nothing."""
    out = np.full(256, -1, np.int32)
    out[list(row)] = list(row.values())
    return out
