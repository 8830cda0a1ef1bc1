"""Nodes of a vocabulary's trie, single or as a set that is walked as one.

A `NodeSet` holds its members, and is an integer that no trie node has. Sets with the same members
are one object while cached. A set's children are its members' children, merged by byte. So the text
after a name or a string is walked once for all nodes where tokens leave it. Belongs to the
vocabulary; knows no automata.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from structgen.automaton.work import WORK
from structgen.storage import GenerationalCache
from structgen.vocabulary import Trie, view

from .grouping import distinct, ranges, starts_of

Nodes = npt.NDArray[np.int32]

NODE_BITS = 40
"""The numbers of nodes and sets have at most this many bits."""

_FEW = 40
"""Sets of up to this many members are handled one by one."""

_MANY = 2_000

_numbers = itertools.count(1 << (NODE_BITS - 1))


@final
class NodeSet(int):
    """Several trie nodes walked as one: a unique number.

    Attributes:
        members: the nodes, ascending.
        children: byte → child, made on demand.
        tokens: the tokens that end at the members, made on demand.
        size: the number of nodes at and below them, made on demand.
    """

    members: Nodes
    children: dict[int, Node] | None = None
    tokens: list[int] | None = None
    size: int | None = None

    def __new__(cls, members: Nodes) -> NodeSet:
        """Return the set of ``members``, under a new number."""
        made = super().__new__(cls, next(_numbers))
        made.members = members
        return made


Node: TypeAlias = int
"""A node of the trie, or a `NodeSet`."""


class NodeSets:
    """The sets of nodes of one trie.

    Args:
        trie: the trie.
        cache: makes a cache within the vocabulary's byte budget.
        charge: called with the rough bytes of each entry.

    Attributes:
        n_nodes: the number of trie nodes; sets have larger numbers.
        known_texts: results of `read`, by the text's number plus the node.
    """

    def __init__(
        self,
        trie: Trie,
        cache: Callable[[], GenerationalCache[Any, Any]],
        charge: Callable[[int], None],
    ) -> None:
        self.n_nodes = trie.n_nodes
        self.trie = trie
        self.first_child = view(trie.first_child)
        self.n_children = view(trie.n_children)
        self.byte = view(trie.byte)
        self.token_start = view(trie.token_start)
        self.token_ids = view(trie.token_ids)
        self._charge = charge
        self._sets: GenerationalCache[bytes, NodeSet] = cache()
        self._child: GenerationalCache[int, Node] = cache()
        self._bytes: GenerationalCache[int, int] = cache()
        self._joined: GenerationalCache[tuple[Node, ...], Node] = cache()
        self._texts: GenerationalCache[bytes, int] = cache()
        self._text_numbers = itertools.count(1)
        self.known_texts: GenerationalCache[int, tuple[tuple[int, ...], Node]] = cache()

    def real(self, node: Node) -> Nodes:
        """Return the trie nodes of ``node``."""
        return node.members if isinstance(node, NodeSet) else np.array([node], np.int32)

    def n_members(self, node: Node) -> int:
        """Return the number of trie nodes of ``node``."""
        return len(node.members) if isinstance(node, NodeSet) else 1

    def join(self, nodes: Sequence[Node]) -> Node:
        """Return one node for all of ``nodes``, each a node or a set."""
        if len(nodes) == 1:
            return nodes[0]
        # The same pair of nodes often occurs again, in another state.
        key = tuple(nodes)
        found = self._joined[key]
        if found is None:
            if max(nodes) >= self.n_nodes:
                found = self.joined(np.concatenate([self.real(node) for node in nodes]))
            elif len(nodes) > _FEW:
                found = self.joined(np.array(nodes, np.int32))
            else:
                found = self.of(np.array(sorted(set(nodes)), np.int32))
            self._joined[key] = found
            self._charge(150 + 8 * len(key))
        return found

    def joined(self, nodes: Nodes) -> Node:
        """Return one node for all of ``nodes``, repeats allowed."""
        if len(nodes) > _MANY:
            # Marking all is faster than sorting.
            flags = np.zeros(self.n_nodes, np.bool_)
            flags[nodes] = True
            return self.of(np.flatnonzero(flags).astype(np.int32))
        return self.of(distinct(nodes))

    def of(self, nodes: Nodes) -> Node:
        """Return the node for ``nodes``, ascending."""
        if len(nodes) == 1:
            return int(nodes[0])
        key = nodes.tobytes()
        found = self._sets[key]
        if found is None:
            found = self._sets[key] = NodeSet(nodes)
            self._charge(2 * len(key) + 300)
        return found

    def number_of(self, text: bytes) -> int:
        """Return a text's number for `read`: larger than any node, so that both can be added."""
        found = self._texts[text]
        if found is None:
            found = self._texts[text] = next(self._text_numbers) << NODE_BITS
            self._charge(150 + len(text))
        return found

    def read(self, text: bytes, number: int, node: Node) -> tuple[tuple[int, ...], Node]:
        """Read a text from ``node``.

        Returns:
            The tokens that end on the way; and the node after it if some token continues there,
            else -1.
        """
        key = number + node
        found = self.known_texts[key]
        if found is None:
            n_nodes, token_start, token_ids = self.n_nodes, self.token_start, self.token_ids
            child_of = self.trie.child
            ids: list[int] = []
            at = node
            for byte in text:
                at = child_of.get(at << 8 | byte, -1) if at < n_nodes else self.child(at, byte)
                if at < 0:
                    break
                if at >= n_nodes:
                    ids += self.tokens_of(at)
                elif token_start[at] != token_start[at + 1]:
                    ids += token_ids[token_start[at] : token_start[at + 1]]
            if at >= 0 and not self.continues(at):
                at = -1
            found = self.known_texts[key] = tuple(ids), at
            self._charge(200 + 36 * len(ids))
        return found

    def continues(self, node: Node) -> bool:
        """Return whether any token continues after ``node``."""
        return bool(self.children(node) if node >= self.n_nodes else self.n_children[node])

    def children(self, node: Node) -> dict[int, Node]:
        """Map each byte to the child of a set, a node or a set. Do not change the dict."""
        assert isinstance(node, NodeSet)
        found = node.children
        if found is None:
            found = node.children = self._children_of(node.members)
            self._charge(100 * len(found) + 100)
        return found

    def child(self, node: Node, byte: int) -> Node:
        """Return the child of a set by one byte, a node or a set; -1 for none."""
        assert isinstance(node, NodeSet)
        if node.children is not None or len(node.members) > _FEW:
            return self.children(node).get(byte, -1)
        key = node << 8 | byte
        found = self._child[key]
        if found is None:
            child_of, members = self.trie.child, node.members.tolist()
            below = [c for n in members if (c := child_of.get(n << 8 | byte)) is not None]
            found = self._child[key] = self.of(np.array(below, np.int32)) if below else -1
            self._charge(100)
        return found

    def _children_of(self, nodes: Nodes) -> dict[int, Node]:
        WORK.spend(2)
        if len(nodes) <= _FEW:
            first_child, n_children, byte_of = self.first_child, self.n_children, self.byte
            grouped: dict[int, list[int]] = {}
            for at in nodes.tolist():
                first = first_child[at]
                for child in range(first, first + n_children[at]):
                    grouped.setdefault(byte_of[child], []).append(child)
            return {
                byte: below[0] if len(below) == 1 else self.of(np.array(below, np.int32))
                for byte, below in grouped.items()
            }
        below = self.below(nodes)
        edge = self.trie.byte[below]
        by_byte = np.argsort(edge, kind="stable")
        below, edge = below[by_byte], edge[by_byte]
        starts = starts_of(edge)
        bounds = itertools.pairwise([*starts.tolist(), len(below)])
        return {
            byte: self.of(below[i:j])
            for byte, (i, j) in zip(edge[starts].tolist(), bounds, strict=True)
        }

    def below(self, nodes: Nodes) -> Nodes:
        """Return all children of ``nodes``, in their order."""
        first = self.trie.first_child[nodes]
        return ranges(first, first + self.trie.n_children[nodes]).astype(np.int32)

    def bytes_after(self, node: Node) -> int:
        """Return the bytes with which tokens continue from ``node``, as a mask."""
        found = self._bytes[node]
        if found is None:
            found = 0
            if not isinstance(node, NodeSet):
                first, byte_of = self.first_child[node], self.byte
                for child in range(first, first + self.n_children[node]):
                    found |= 1 << byte_of[child]
            elif len(node.members) <= _FEW:
                for member in node.members.tolist():
                    found |= self.bytes_after(member)
            else:
                flags = np.zeros(256, np.bool_)
                flags[self.trie.byte[self.below(node.members)]] = True
                packed = np.packbits(flags, bitorder="little")
                found = int.from_bytes(packed.tobytes(), "little")
            self._bytes[node] = found
            self._charge(100)
        return found

    def continuing(self, nodes: Nodes, allowed: npt.NDArray[np.bool_]) -> Nodes:
        """Return the ``nodes`` from which some token continues with an allowed byte."""
        trie = self.trie
        nodes = nodes[trie.n_children[nodes] > 0]
        if not len(nodes):
            return nodes
        count = trie.n_children[nodes]
        flags = allowed[trie.byte[self.below(nodes)]]
        return nodes[np.logical_or.reduceat(flags, np.cumsum(count) - count)]

    def tokens_of(self, node: Node) -> Sequence[int]:
        """Return the tokens that end at ``node``."""
        start, ids = self.token_start, self.token_ids
        if not isinstance(node, NodeSet):
            return ids[start[node] : start[node + 1]]
        if node.tokens is None:
            node.tokens = self.tokens_at(node.members).tolist()
            self._charge(100 + 8 * len(node.tokens))
        return node.tokens

    def tokens_at(self, nodes: Nodes) -> Nodes:
        """Return the tokens that end at ``nodes``."""
        first = self.trie.token_start[nodes]
        last = self.trie.token_start[nodes + 1]
        held = np.flatnonzero(first != last)
        found: Nodes = self.trie.token_ids[ranges(first[held], last[held])]
        return found


def levels(
    trie: Trie,
    step: Callable[[int, int], int],
    state: int,
    nodes: Nodes,
    is_wanted: npt.NDArray[np.bool_] | None = None,
) -> Iterator[tuple[Nodes, npt.NDArray[np.int64], list[int]]]:
    """Yield the states after tokens, level by level: the nodes in which some end, and for each of
    them the index of its state in a list.

    Args:
        trie: the trie of the tokens.
        step: returns the state after a state and a byte; negative if there is none.
        state: the state at ``nodes``.
        nodes: the nodes to begin below.
        is_wanted: by node, whether to visit it; None: all.
    """
    # The nodes of one level, and for each the index of its state in `states`.
    at = np.zeros(len(nodes), np.int64)
    states = [state]
    while len(nodes):
        n_children = trie.n_children[nodes]
        first = trie.first_child[nodes]
        nodes = ranges(first, first + n_children).astype(np.int32)
        steps = np.repeat(at, n_children) << 8 | trie.byte[nodes]
        if is_wanted is not None:
            nodes, steps = nodes[is_wanted[nodes]], steps[is_wanted[nodes]]
        table = np.zeros(len(states) << 8, np.int64)
        table[steps] = 1
        met = np.flatnonzero(table)
        WORK.spend(len(met))
        places: dict[int, int] = {}
        for key in met.tolist():
            to = step(states[key >> 8], key & 255)
            table[key] = -1 if to < 0 else places.setdefault(to, len(places))
        at = table[steps]
        nodes, at = nodes[at >= 0], at[at >= 0]
        states = list(places)
        is_end = trie.token_start[nodes] != trie.token_start[nodes + 1]
        yield nodes[is_end], at[is_end], states
