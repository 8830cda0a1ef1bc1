"""Numbers through a trie whose tokens hold several digits, as in the vocabularies of Llama 3.

A number's automaton mostly cares how many digits there are, and tells few of them apart: so the
digit strings of a vocabulary, in order, are walked as ranges of integers, one group a state, and
not as a thousand nodes. What else tokens hold after digits is reported, not walked.

It knows leaves by their rows and the trie; remembering walks is `walks`' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import Leaf
from structgen.vocabulary import Trie

from .grouping import ranges

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_ZERO = ord("0")
_MOST_DIGITS = 4
"""Longest digit strings that are walked so: arrays have an entry for each that there may be."""


class DigitWalk(NamedTuple):
    """What a number does with the digits that tokens begin with.

    Attributes:
        ids: tokens that are digits.
        ends: states in which they end.
        exits: outcome → nodes behind digits where the number may end and tokens go on.
        others: states after other bytes, with the nodes there.
    """

    ids: Int32
    ends: list[int]
    exits: dict[int, Int32]
    others: list[tuple[int, int]]


class _Level(NamedTuple):
    """The digit strings of one length, by value.

    Attributes:
        nodes: int32; their nodes, -1 for none.
        tokens: int32; the token that each of them is, or -1; None where one is several.
        is_full: whether every one has a node and is a token.
        going_on: bool; whether tokens go on behind it; None where none does.
        others: bool; whether with something else than a digit; None where none does.
    """

    nodes: Int32
    tokens: Int32 | None
    is_full: bool
    going_on: Bools | None
    others: Bools | None


class Digits:
    """The digit strings of one trie.

    Attributes:
        count: how many nodes they take.
        longest: the most digits that a token begins with.
        is_walked: whether `walk` serves: there are none that are too long for it.
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
        going_on = exist & (trie.n_children[nodes] > 0)
        return _Level(
            nodes,
            tokens,
            bool(exist.all() and n_tokens.min() > 0),
            going_on if going_on.any() else None,
            others if others.any() else None,
        )

    def walk(self, leaf: Leaf, q: int) -> DigitWalk:
        """What ``leaf`` does from its state ``q`` at the root.

        Cost: some microseconds for each state that digits lead to, and what that takes to make.
        """
        ids: list[Int32] = []
        ends: list[int] = []
        exits: dict[int, list[Int32]] = {}
        others: list[tuple[int, int]] = []
        groups = {q: np.zeros(1, np.int64)}
        for length, level in enumerate(self._levels):
            below: dict[int, list[Int64]] = {}
            for state, values in groups.items():
                if length:
                    found = self._tokens(level, values)
                    if len(found):
                        ids.append(found)
                        ends.append(state)
                    outcome = leaf.label(state)
                    if outcome >= 0 and level.going_on is not None:
                        going_on = values[level.going_on[values]]
                        if len(going_on):
                            exits.setdefault(outcome, []).append(level.nodes[going_on])
                # States that nothing is read from need no row, which is what takes time.
                if level.others is not None and level.others[values].any():
                    where = level.nodes[values[level.others[values]]]
                    others += self._others(leaf.row(state), where)
                if length < self.longest:
                    for to, digits in _by_target(leaf.row(state)):
                        below.setdefault(to, []).append((values[:, None] * 10 + digits).ravel())
            groups = {}
            for to, parts in below.items():
                values = parts[0] if len(parts) == 1 else np.concatenate(parts)
                if not self._levels[length + 1].is_full:
                    values = values[self._levels[length + 1].nodes[values] >= 0]
                if len(values):
                    groups[to] = values
        return DigitWalk(
            np.concatenate(ids) if ids else np.zeros(0, np.int32),
            list(dict.fromkeys(ends)),
            {outcome: np.sort(np.concatenate(parts)) for outcome, parts in exits.items()},
            others,
        )

    def _tokens(self, level: _Level, values: Int64) -> Int32:
        """The tokens that are digit strings of one length."""
        if level.tokens is None:
            nodes, trie = level.nodes[values], self._trie
            found: Int32 = trie.token_ids[
                ranges(trie.token_start[nodes], trie.token_start[nodes + 1])
            ]
            return found
        found = level.tokens[values]
        return found if level.is_full else found[found >= 0]

    def _others(self, row: dict[int, int], nodes: Int32) -> Iterator[tuple[int, int]]:
        """Where bytes that are no digits lead."""
        child = self._trie.child
        steps = [(byte, to) for byte, to in row.items() if not 0 <= byte - _ZERO <= 9]
        for node in nodes.tolist() if steps else ():
            for byte, to in steps:
                found = child.get(node << 8 | byte)
                if found is not None:
                    yield to, found


def _by_target(row: dict[int, int]) -> list[tuple[int, Int64]]:
    """Digits by the state that they lead to."""
    found: dict[int, list[int]] = {}
    for byte, to in row.items():
        if 0 <= byte - _ZERO <= 9:
            found.setdefault(to, []).append(byte - _ZERO)
    return [(to, np.array(sorted(digits), np.int64)) for to, digits in found.items()]
