"""The nodes of a trie at which a whole number of characters has been read, as arrays.

It computes, for one way of spelling characters, everything about these nodes that costs time: their
characters, their pre-order, the tokens below them, and what the bytes of a character cut by the end
of a token may become. The result is plain arrays, to be kept on disk; `characters.Characters` is
what they are for, and says what each of them means. Nothing here knows automata.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import ASCII_ONLY, may_escape, may_escape_slash
from structgen.vocabulary import Trie

Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"
Int64: TypeAlias = npt.NDArray[np.int64]

VERSION = 1
"""To be raised whenever `build` would give other arrays than before."""

_QUOTE, _BACKSLASH, _SLASH, _U = 0x22, 0x5C, 0x2F, 0x75
_SHORT = {0x62: 0x08, 0x66: 0x0C, 0x6E: 0x0A, 0x72: 0x0D, 0x74: 0x09}
_HEX = {b: int(chr(b), 16) for b in b"0123456789abcdefABCDEF"}
_INSIDE, _NO_TEXT, _CLOSING = -3, -2, -1


def build(trie: Trie, size: int, spelling: str, barred: frozenset[int]) -> Arrays:
    """The arrays of `characters.Characters`; see there for the arguments.

    Cost: 0.1 s for 128k tokens.
    """
    code, tails = _decode(trie, spelling, barred)
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
    spans = [(i, *span) for tail, i in kinds.items() for span in _spans(tail, spelling, barred)]
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
        "escapes": np.flatnonzero(_first_bytes(trie, node, place) == _BACKSLASH)
        if spelling != "utf8"
        else np.zeros(0),
        "children": children,
        "child_start": np.searchsorted(parent[children], np.arange(len(node) + 1)),
        "by_depth": np.argsort(depth[node], kind="stable"),
    }
    out = {name: array.astype(np.int32) for name, array in out.items()}
    out["depth"] = np.append(depth[node], 0).astype(kind)
    out["tail_lengths"] = np.array([len(tail) for tail in kinds], np.int32)
    out["tail_bytes"] = np.frombuffer(b"".join(kinds), np.uint8)
    return out


def _decode(trie: Trie, spelling: str, barred: frozenset[int]) -> tuple[Int64, dict[int, bytes]]:
    """Per trie node its character (a code point, `_NO_TEXT` or `_CLOSING`), or `_INSIDE` one; and
    the bytes so far at each node inside one where a token ends."""
    json = spelling != "utf8"
    is_barred = np.isin(np.arange(256), list(barred))
    code = np.full(trie.n_nodes, _INSIDE, np.int64)
    code[0] = _NO_TEXT
    left = np.zeros(trie.n_nodes, np.int8)  # continuation bytes still to come
    value = np.zeros(trie.n_nodes, np.int64)
    least = np.zeros(trie.n_nodes, np.int64)
    escaping: dict[int, bytes] = {}
    inside_escape = np.zeros(trie.n_nodes, bool)
    ascii_points = np.arange(256)
    ascii_points[0x80:] = _NO_TEXT
    if json:
        ascii_points[:0x20] = _NO_TEXT
        ascii_points[_QUOTE] = _CLOSING
    ascii_points[is_barred] = _NO_TEXT
    raw = spelling not in ASCII_ONLY
    for first, last in pairwise(trie.level_start.tolist()[1:]):
        parent, byte = trie.parent[first:last], trie.byte[first:last].astype(np.int64)
        waiting = left[parent] > 0
        tail = byte >> 6 == 2
        goes_on = waiting & tail
        fresh = ~goes_on
        here = np.full(last - first, _INSIDE, np.int64)
        here[fresh] = ascii_points[byte[fresh]]
        lead = fresh & (byte >= 0xC2) & (byte <= 0xF4)
        count = np.where(byte >= 0xF0, 3, np.where(byte >= 0xE0, 2, 1))
        span = np.array([0, 0x1F, 0x0F, 0x07])[count]
        # Below a barred lead byte nothing is text.
        forbidden = np.where(lead, is_barred[byte], value[parent] < 0)
        now_left = np.where(lead, count, np.where(goes_on, left[parent] - 1, 0))
        so_far = np.where(lead, byte & span, value[parent] << 6 | byte & 0x3F)
        so_far[forbidden & (lead | goes_on)] = -1
        low = np.where(lead, np.array([0, 0x80, 0x800, 0x10000])[count], least[parent])
        here[lead] = _INSIDE
        whole = goes_on & (now_left == 0)
        valid = (so_far >= low) & (so_far <= 0x10FFFF) & (so_far >> 11 != 0x1B) & raw
        here[whole] = np.where(valid, so_far, _NO_TEXT)[whole]
        # A character cut off by another one: the node is no text, and reading starts anew.
        here[waiting & ~tail] = _NO_TEXT
        now_left[waiting & ~tail] = 0
        left[first:last], value[first:last], least[first:last] = now_left, so_far, low
        if json:
            starts = fresh & ~waiting & (byte == _BACKSLASH) & ~inside_escape[parent]
            for node in (np.flatnonzero(starts | inside_escape[parent]) + first).tolist():
                before = escaping.get(int(trie.parent[node]), b"")
                spelt = before + bytes([int(trie.byte[node])])
                point = _unescape(spelt, spelling, barred)
                here[node - first] = _INSIDE if point is None else point
                left[node] = 0
                if point is None:
                    escaping[node] = spelt
                    inside_escape[node] = True
        code[first:last] = here
    code[0] = _NO_TEXT
    tails = dict(escaping)
    cut = (code == _INSIDE) & ~inside_escape & (np.diff(trie.token_start) > 0)
    for node in np.flatnonzero(cut).tolist():
        depth = 1
        up = int(trie.parent[node])
        while code[up] == _INSIDE:
            up, depth = int(trie.parent[up]), depth + 1
        tails[node] = trie.string_of(node)[-depth:]
    return code, tails


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


def _first_bytes(trie: Trie, node: Int64, place: Int64) -> npt.NDArray[np.uint8]:
    """The first byte of each character node's spelling."""
    at = node
    while True:
        up = trie.parent[at]
        inside = place[up] < 0
        if not inside.any():
            first: npt.NDArray[np.uint8] = trie.byte[at]
            return first
        at = np.where(inside, up, at)


def _spans(tail: bytes, spelling: str, barred: frozenset[int]) -> list[tuple[int, int]]:
    """The code points whose spelling begins with ``tail``, as first and last of each range."""
    lead = tail[0]
    if lead == _BACKSLASH:
        return _escape_spans(tail, spelling, barred)
    if spelling in ASCII_ONLY or lead in barred:
        return []
    length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2
    value = lead & (0x07, 0x0F, 0x1F)[4 - length]
    for byte in tail[1:]:
        value = value << 6 | byte & 0x3F
    shift = 6 * (length - len(tail))
    least = (0x80, 0x800, 0x10000)[length - 2]
    first, last = max(value << shift, least), min((value + 1 << shift) - 1, 0x10FFFF)
    return [(first, last)] if first <= last else []


def _escape_spans(tail: bytes, spelling: str, barred: frozenset[int]) -> list[tuple[int, int]]:
    if len(tail) == 1:
        plain = [
            *_SHORT.values(),
            _QUOTE,
            _BACKSLASH,
            *([_SLASH] if may_escape_slash(spelling) else []),
        ]
        more = _escape_spans(b"\\u", spelling, barred)
        return [*((point, point) for point in plain), *more]
    free = 4 - len(tail[2:6])
    first = int(tail[2:6] or b"0", 16) << 4 * free
    last = first + (1 << 4 * free) - 1
    if len(tail) >= 6:  # a high surrogate is whole: how much of the low one?
        free = 4 - len(tail[8:])
        low = int(tail[8:] or b"0", 16) << 4 * free
        high = 0x10000 + (first - 0xD800 << 10) - 0xDC00
        low, top = max(low, 0xDC00), min(low + (1 << 4 * free) - 1, 0xDFFF)
        return [(high + low, high + top)] if low <= top else []
    out = [(max(first, 0xE000), last), (max(first, 0x80), min(last, 0xD7FF))]
    if may_escape(ord("a"), spelling):
        out.append((first, min(last, 0x7F)))
    else:
        ascii_points = range(first, min(last + 1, 0x80))
        out += ((point, point) for point in ascii_points if may_escape(point, spelling, barred))
    low, high = max(first, 0xD800), min(last, 0xDBFF)
    out.append((0x10000 + (low - 0xD800 << 10), 0x10000 + (high - 0xD800 << 10) + 0x3FF))
    return [(first, last) for first, last in out if first <= last]


def _unescape(spelt: bytes, spelling: str, barred: frozenset[int]) -> int | None:
    """The code point of an escape, `_NO_TEXT` where it is none, None where it is not complete."""
    if len(spelt) == 1:
        return None
    kind = spelt[1]
    if kind != _U:
        if kind in _SHORT:
            return _SHORT[kind]
        if kind in (_QUOTE, _BACKSLASH) or (kind == _SLASH and may_escape_slash(spelling)):
            return kind
        return _NO_TEXT
    if any(byte not in _HEX for byte in spelt[2:6]):
        return _NO_TEXT
    if len(spelt) < 6:
        return None
    point = int(spelt[2:6], 16)
    if 0xDC00 <= point <= 0xDFFF:
        return _NO_TEXT
    if not 0xD800 <= point <= 0xDBFF:
        return point if may_escape(point, spelling, barred) else _NO_TEXT
    if spelt[6:8] != b"\\u"[: len(spelt) - 6]:
        return _NO_TEXT
    if any(byte not in _HEX for byte in spelt[8:]):
        return _NO_TEXT
    if len(spelt) < 12:
        return None
    low = int(spelt[8:], 16)
    return 0x10000 + (point - 0xD800 << 10) + low - 0xDC00 if 0xDC00 <= low <= 0xDFFF else _NO_TEXT
