"""The nodes of a trie at which a whole number of characters has been read, as arrays.

It computes, for one way of spelling characters, everything about these nodes that costs time: their
characters, their pre-order, the tokens below them, and what the bytes of a character cut by the end
of a token may become. The result is plain arrays, to be kept on disk; `characters.Characters` is
what they are for, and says what each of them means. Nothing here knows automata.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import GROUND, NO_ATOM, Alphabet, Escapes, JsonString, Utf8
from structgen.grammar.ir import Ranges, normalize_ranges
from structgen.vocabulary import Trie

Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"
Int64: TypeAlias = npt.NDArray[np.int64]

VERSION = 2
"""To be raised whenever `build` would give other arrays than before."""

_QUOTE, _BACKSLASH = 0x22, 0x5C
_WHOLE, _INSIDE, _NO_TEXT, _CLOSING = -4, -3, -2, -1
_PAYLOAD = np.array([0x7F] * 0x80 + [0x3F] * 0x40 + [0x1F] * 0x20 + [0x0F] * 0x10 + [0x07] * 0x10)
"""What each byte of UTF-8 says of a code point."""


def build(trie: Trie, size: int, spelling: str, barred: frozenset[int]) -> Arrays:
    """The arrays of `characters.Characters`; see there for the arguments.

    Cost: 0.1 s for 128k tokens.
    """
    code, tails, firsts = _decode(trie, spelling, barred)
    order, below = pre_order(trie)
    whole = code != _INSIDE
    by_order = np.empty(trie.n_nodes, np.int64)
    by_order[order] = np.arange(trie.n_nodes)
    before = np.concatenate(([0], np.cumsum(whole[by_order])))
    node = by_order[whole[by_order]]
    place = np.where(whole, before[order], -1)
    above, depth = _above(trie, whole)
    parent = place[above[node]]
    ranks, points = _points(code[node])
    # Tokens in pre-order of where they end.
    ends = np.repeat(np.arange(trie.n_nodes), np.diff(trie.token_start))
    rank = np.argsort(order[ends], kind="stable")
    ends = ends[rank]
    token_ids = trie.token_ids[rank]
    at = place[ends]
    token_node = np.where(at >= 0, at, len(node))
    node_of_id = np.full(size, len(node))
    node_of_id[token_ids] = token_node
    inside = np.flatnonzero(at < 0)
    kinds: dict[bytes, int] = {}
    partial_tail = [kinds.setdefault(tails[end], len(kinds)) for end in ends[inside].tolist()]
    points_of = _encoding(_Points(()), spelling, barred)
    spans = [(i, *span) for tail, i in kinds.items() for span in _spans(tail, points_of)]
    # The largest value of the type has to stay free.
    most = int(depth.max())
    kind = np.uint8 if most < 0xFF else np.uint16 if most < 0xFFFF else np.uint32
    children = np.argsort(parent[1:], kind="stable") + 1
    out: Arrays = {
        "node": node,
        "place": place,
        "end": before[(order + below)[node]],
        "parent": parent,
        "code": ranks,
        "points": points,
        "token_start": np.searchsorted(order[ends], order[node]),
        "token_end": np.searchsorted(order[ends], (order + below)[node]),
        "token_ids": token_ids,
        "token_node": token_node,
        "node_of_id": node_of_id,
        "partial": token_ids[inside],
        "partial_node": place[above[ends[inside]]],
        "partial_tail": np.array(partial_tail, np.int32),
        "tail_spans": np.array(spans, np.int32).reshape(-1, 3),
        "escapes": np.flatnonzero((firsts[node] == _BACKSLASH) & (spelling != "utf8")),
        "children": children,
        "child_start": np.searchsorted(parent[children], np.arange(len(node) + 1)),
        "by_depth": np.argsort(depth[node], kind="stable"),
    }
    out = {name: array.astype(np.int32) for name, array in out.items()}
    out["depth"] = np.append(depth[node], 0).astype(kind)
    out["tail_lengths"] = np.array([len(tail) for tail in kinds], np.int32)
    out["tail_bytes"] = np.frombuffer(b"".join(kinds), np.uint8)
    return out


def _encoding(alphabet: Alphabet, spelling: str, barred: frozenset[int]) -> Utf8:
    if spelling == "utf8":
        return Utf8(alphabet)
    return JsonString(alphabet, cast(Escapes, spelling), barred)


def _table(encoding: Utf8) -> npt.NDArray[np.int16]:
    """By node of an encoding and byte: the next node, `_WHOLE` after a character, `_CLOSING` or
    `_NO_TEXT`."""
    numbers = {GROUND: 0}
    rows: list[npt.NDArray[np.int16]] = []
    for node in (order := [GROUND]):
        row = np.full(256, _NO_TEXT, np.int16)
        for byte, to in encoding.row(node).items():
            if to >= 0 and to not in numbers:
                numbers[to] = len(order)
                order.append(to)
            row[byte] = _WHOLE if to < 0 else numbers[to]
        rows.append(row)
    if encoding.spelling != "utf8":
        rows[0][_QUOTE] = _CLOSING
    return np.array(rows)


def _decode(
    trie: Trie, spelling: str, barred: frozenset[int]
) -> tuple[Int64, dict[int, bytes], npt.NDArray[np.uint8]]:
    """Per trie node its character (a code point, `_NO_TEXT` or `_CLOSING`), or `_INSIDE` one; the
    bytes so far at each node inside one where a token ends; and per node the first of those."""
    table = _table(_encoding(Alphabet(()), spelling, barred))
    code = np.full(trie.n_nodes, _NO_TEXT, np.int64)
    at, length = np.zeros(trie.n_nodes, np.int16), np.zeros(trie.n_nodes, np.int16)
    value, begun = np.zeros(trie.n_nodes, np.int64), np.zeros(trie.n_nodes, np.uint8)
    for first, last in pairwise(trie.level_start.tolist()[1:]):
        parent, byte = trie.parent[first:last], trie.byte[first:last]
        goes_on = at[parent] > 0
        to = table[at[parent], byte]
        # A character cut off by another one: the node is no text, and reading starts anew.
        at[first:last] = np.maximum(to, 0)
        length[first:last] = np.where(goes_on, length[parent], 0) + 1
        begun[first:last] = np.where(goes_on, begun[parent], byte)
        value[first:last] = np.where(goes_on, value[parent] << 6, 0) | byte & _PAYLOAD[byte]
        code[first:last] = np.where(to > 0, _INSIDE, np.where(to == _WHOLE, value[first:last], to))

    def spelt(node: int) -> bytes:
        return trie.string_of(node)[-int(length[node]) :]

    if spelling != "utf8":
        for node in np.flatnonzero((code >= 0) & (begun == _BACKSLASH)).tolist():
            code[node] = ord(json.loads(b'"%b"' % spelt(node)))
    cut = np.flatnonzero((code == _INSIDE) & (np.diff(trie.token_start) > 0))
    return code, {node: spelt(node) for node in cut.tolist()}, begun


def pre_order(trie: Trie) -> tuple[Int64, Int64]:
    """Per trie node its number in pre-order, and how many nodes its subtree has."""
    levels = trie.level_start.tolist()
    below = np.ones(trie.n_nodes, np.int64)
    for first, last in reversed(list(pairwise(levels[1:]))):
        up = int(trie.parent[first])
        top = int(trie.parent[last - 1])
        below[up : top + 1] += np.bincount(
            trie.parent[first:last] - up, weights=below[first:last], minlength=top + 1 - up
        ).astype(np.int64)
    order = np.zeros(trie.n_nodes, np.int64)
    for first, last in pairwise(levels[1:]):
        parent = trie.parent[first:last]
        total = np.cumsum(below[first:last]) - below[first:last]
        eldest = np.flatnonzero(np.diff(parent, prepend=-1))
        base = np.repeat(total[eldest], np.diff(eldest, append=len(parent)))
        order[first:last] = order[parent] + 1 + total - base
    return order, below


def _above(trie: Trie, whole: npt.NDArray[np.bool_]) -> tuple[Int64, Int64]:
    """Per trie node its nearest whole ancestor, and how many characters lead to it."""
    above = np.zeros(trie.n_nodes, np.int64)
    depth = np.zeros(trie.n_nodes, np.int64)
    for first, last in pairwise(trie.level_start.tolist()[1:]):
        parents = trie.parent[first:last]
        above[first:last] = np.where(whole[parents], parents, above[parents])
        depth[first:last] = depth[above[first:last]] + whole[first:last]
    return above, depth


def _points(code: Int64) -> tuple[Int64, Int64]:
    """Characters numbered in ascending order, then the closing quote, then what is no text."""
    points, ranks = np.unique(code, return_inverse=True)
    text = points >= 0
    ranks = ranks.reshape(-1) - int(np.count_nonzero(~text))
    points = points[text]
    ranks[code == _CLOSING] = len(points)
    ranks[code == _NO_TEXT] = len(points) + 1
    return ranks, points


class _Points(Alphabet):
    """An alphabet in which each code point is a minterm, for what tells ranges of them."""

    def minterm(self, code_point: int) -> int:
        return code_point

    def ascii_minterms(self) -> tuple[int, ...]:
        return tuple(range(0x80))

    def minterms_between(self, low: int, high: int) -> int:
        return int(low <= high)

    def single_minterm(self, low: int, high: int) -> int:
        return low if low == high else NO_ATOM


def _spans(tail: bytes, encoding: Utf8) -> Ranges:
    """The code points whose spelling begins with ``tail``; ``encoding`` is one of `_Points`."""
    at = GROUND
    for byte in tail:
        at = encoding.row(at)[byte]
    found: list[tuple[int, int]] = []
    todo = [at]
    while todo:
        node = todo.pop()
        span = (~node, ~node) if node < 0 else encoding.span(node)
        if span is None:
            todo += encoding.row(node).values()
        else:
            found.append(span)
    return normalize_ranges(found)
