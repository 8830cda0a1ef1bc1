"""The vocabulary as characters: which tokens stay inside a text, by the characters they hold.

It owns one view of a trie for each way of spelling characters (plain UTF-8; the inside of a JSON
string): the *character nodes*, at which a whole number of characters has been read, numbered in
pre-order, so that everything below a node is a range. `Characters.slice` answers for a set of
characters, for all nodes at once, where the last character outside the set stands; with that, "all
tokens that stay in the set" is one comparison over an array, from any node, with or without a limit
on their length. It knows automata only by name of their encodings, and no masks of any constraint.

Quotes, bytes that no text may hold and malformed UTF-8 are characters of their own that belong to
no set, and after which reading starts anew: a node's subtree reads the same wherever in a token its
text starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .automaton.encoding import ASCII_ONLY, may_escape, may_escape_slash
from .recent import Recent
from .trie import Trie

Bools: TypeAlias = npt.NDArray[np.bool_]
Int32: TypeAlias = npt.NDArray[np.int32]
Depths: TypeAlias = npt.NDArray[Any]
"""uint8, or wider where a token has 255 characters or more."""

_QUOTE, _BACKSLASH, _U = 0x22, 0x5C, 0x75
_SHORT = {0x62: 0x08, 0x66: 0x0C, 0x6E: 0x0A, 0x72: 0x0D, 0x74: 0x09}
_HEX = {b: int(chr(b), 16) for b in b"0123456789abcdefABCDEF"}
_NO_TEXT, _CLOSING = -2, -1

_WIDE_LEVEL = 512
"""Levels with fewer nodes than this are not worth a NumPy call each."""


class Slice:
    """A set of characters, seen from every character node.

    Attributes:
        last: [n + 1]; depth of the deepest ancestor (or the node itself) whose character lies
            outside the set, 0 for none. The last entry, for tokens that end inside a character, is
            larger than every depth.
        counts: [size of the vocabulary]; number of characters of each token that lies in the set
            whole, and the largest value of the dtype for all others.
        edges: where the set is left: nodes whose character, and none of their ancestors', is a
            character of text outside the set; None until asked for.
    """

    __slots__ = ("counts", "edges", "last")

    def __init__(self, last: Depths, counts: Depths) -> None:
        self.last = last
        self.counts = counts
        self.edges: Int32 | None = None


def view(array: npt.NDArray[np.int32] | npt.NDArray[np.uint8]) -> Sequence[int]:
    """``array`` for reading one element at a time: three times as fast as from NumPy."""
    return cast("Sequence[int]", memoryview(array))  # type: ignore[arg-type]


def ranges(first: npt.NDArray[Any], last: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """All of ``first[i] .. last[i] - 1``, one after another."""
    lengths = last - first
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    shifts = np.repeat(first - (ends - lengths), lengths)
    found: npt.NDArray[np.int64] = np.arange(int(ends[-1]), dtype=np.int64) + shifts
    return found


class Views(NamedTuple):
    """Arrays of `Characters` for reading one element at a time."""

    node: Sequence[int]
    end: Sequence[int]
    code: Sequence[int]
    own_start: Sequence[int]
    own_stop: Sequence[int]
    token_ids: Sequence[int]


class Characters:
    """The character nodes of one trie under one spelling.

    Args:
        trie: the vocabulary's trie.
        size: number of token ids.
        spelling: ``"utf8"`` for plain text; one of `automaton.encoding.Escapes` for the inside of
            JSON strings.
        barred: bytes, from 0x7F on, that begin no character.
        slices: where slices are kept.
        charge: told the bytes that each of them takes.

    Attributes:
        n: number of character nodes, the root (0) included. Nodes are numbered in pre-order.
        place: int32 [trie nodes]; the character node at a trie node, or -1 inside a character.
        node: int32 [n]; the trie node of a character node.
        end: int32 [n]; one more than the last node of the subtree.
        parent: int32 [n].
        depth: [n + 1]; characters from the root.
        code: int32 [n]; position of the node's character in `points`, or ``len(points)`` for the
            closing quote and ``len(points) + 1`` for what is no text.
        points: int32; the code points that occur, ascending.
        token_start: int32 [n]; with `token_end` the range, in `token_ids`, of the tokens below.
        token_node: int32; where each of `token_ids` ends, or ``n`` inside a character.
        quotes: the nodes right after a closing quote.
        partial: ids of the tokens that end inside a character; `partial_node`, where that character
            begins; `partial_tail`, which of `tails` (its bytes so far).
        tail_spans: int64 [tails, 2]; first and last code point that a tail of UTF-8 may become, -1
            for escapes.
        escapes: ``(node, code point)`` → nodes below it that spell that with a backslash.
    """

    def __init__(
        self,
        trie: Trie,
        size: int,
        spelling: str,
        barred: frozenset[int],
        slices: Recent[bytes, Slice],
        charge: Callable[[int], None],
    ) -> None:
        self.trie = trie
        self.size = size
        self.spelling = spelling
        self.barred = barred
        self._barred = np.isin(np.arange(256), list(barred))
        code, tails = self._decode()
        self._number(code)
        self._sort_tokens(tails)
        self._levels()
        self._look_ups()
        self._slices = slices
        self._charge = charge

    # -- construction -----------------------------------------------------------------------

    def _decode(self) -> tuple[npt.NDArray[np.int64], dict[int, bytes]]:
        """Per trie node its character (a code point, `_NO_TEXT` or `_CLOSING`), or -3 inside one;
        and the bytes so far at each node inside one where a token ends."""
        trie, json = self.trie, self.spelling != "utf8"
        code = np.full(trie.n_nodes, -3, np.int64)
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
        ascii_points[self._barred] = _NO_TEXT
        raw = self.spelling not in ASCII_ONLY
        for first, last in pairwise(trie.level_start.tolist()[1:]):
            parent, byte = trie.parent[first:last], trie.byte[first:last].astype(np.int64)
            waiting = left[parent] > 0
            tail = byte >> 6 == 2
            goes_on = waiting & tail
            fresh = ~goes_on
            here = np.full(last - first, -3, np.int64)
            here[fresh] = ascii_points[byte[fresh]]
            lead = fresh & (byte >= 0xC2) & (byte <= 0xF4)
            count = np.where(byte >= 0xF0, 3, np.where(byte >= 0xE0, 2, 1))
            span = np.array([0, 0x1F, 0x0F, 0x07])[count]
            # Below a barred lead byte nothing is text.
            forbidden = np.where(lead, self._barred[byte], value[parent] < 0)
            now_left = np.where(lead, count, np.where(goes_on, left[parent] - 1, 0))
            so_far = np.where(lead, byte & span, value[parent] << 6 | byte & 0x3F)
            so_far[forbidden & (lead | goes_on)] = -1
            low = np.where(lead, np.array([0, 0x80, 0x800, 0x10000])[count], least[parent])
            here[lead] = -3
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
                    point = _unescape(spelt, self.spelling, self.barred)
                    here[node - first] = -3 if point is None else point
                    left[node] = 0
                    if point is None:
                        escaping[node] = spelt
                        inside_escape[node] = True
            code[first:last] = here
        code[0] = _NO_TEXT
        tails = dict(escaping)
        cut = (code == -3) & ~inside_escape & (np.diff(trie.token_start) > 0)
        for node in np.flatnonzero(cut).tolist():
            depth = 1
            up = int(trie.parent[node])
            while code[up] == -3:
                up, depth = int(trie.parent[up]), depth + 1
            tails[node] = trie.string_of(node)[-depth:]
        return code, tails

    def _number(self, code: npt.NDArray[np.int64]) -> None:
        trie = self.trie
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
        whole = code != -3
        by_order = np.empty(trie.n_nodes, np.int64)
        by_order[order] = np.arange(trie.n_nodes)
        before = np.concatenate(([0], np.cumsum(whole[by_order])))
        self._order, self._below = order, below
        self.node = by_order[whole[by_order]].astype(np.int32)
        self.n = len(self.node)
        self.place = np.where(whole, before[order], -1).astype(np.int32)
        self.end = before[(order + below)[self.node]].astype(np.int32)
        # The nearest whole ancestor, level by level.
        above = np.zeros(trie.n_nodes, np.int64)
        depth = np.zeros(trie.n_nodes, np.int64)
        for first, last in pairwise(levels[1:]):
            parents = trie.parent[first:last]
            above[first:last] = np.where(whole[parents], parents, above[parents])
            depth[first:last] = depth[above[first:last]] + whole[first:last]
        self._above = above
        self.parent = self.place[above[self.node]]
        # The largest value of the type has to stay free.
        most = int(depth.max())
        kind = np.uint8 if most < 0xFF else np.uint16 if most < 0xFFFF else np.uint32
        self.depth = np.append(depth[self.node], 0).astype(kind)
        points = code[self.node]
        self.points, ranks = np.unique(points, return_inverse=True)
        text = self.points >= 0
        shift = int(np.count_nonzero(~text))
        self.points = self.points[text].astype(np.int32)
        self.code: Int32 = (ranks - shift).astype(np.int32)
        n_points = len(self.points)
        self.code[points == _CLOSING] = n_points
        self.code[points == _NO_TEXT] = n_points + 1
        self.quotes = np.flatnonzero(self.code == n_points).astype(np.int32)

    def _sort_tokens(self, tails: dict[int, bytes]) -> None:
        trie = self.trie
        counts = np.diff(trie.token_start)
        ends = np.repeat(np.arange(trie.n_nodes), counts)
        rank = np.argsort(self._order[ends], kind="stable")
        self.token_ids: Int32 = trie.token_ids[rank]
        ends = ends[rank]
        starts = np.searchsorted(self._order[ends], self._order[self.node])
        self.token_start: Int32 = starts.astype(np.int32)
        last = (self._order + self._below)[self.node]
        self.token_end = np.searchsorted(self._order[ends], last).astype(np.int32)
        place = self.place[ends]
        self.token_node = np.where(place >= 0, place, self.n).astype(np.int32)
        self.node_of_id = np.full(self.size, self.n, np.int32)
        self.node_of_id[self.token_ids] = self.token_node
        inside = np.flatnonzero(place < 0)
        self.partial = self.token_ids[inside]
        self.partial_node = self.place[self._above[ends[inside]]]
        kinds: dict[bytes, int] = {}
        self.partial_tail = np.array(
            [kinds.setdefault(tails[node], len(kinds)) for node in ends[inside].tolist()], np.int32
        )
        self.tails = list(kinds)
        # Where a tail of plain UTF-8 leads, as a range of code points; -1 for escapes.
        spans = [_span(tail) for tail in self.tails]
        self.tail_spans = np.array(spans, np.int64).reshape(-1, 2)
        self.escapes: dict[tuple[int, int], list[int]] = {}
        if self.spelling != "utf8":
            first = self._first_bytes()
            for at in np.flatnonzero(first == _BACKSLASH).tolist():
                key = (int(self.parent[at]), self._point(at))
                self.escapes.setdefault(key, []).append(at)

    def _point(self, place: int) -> int:
        """The code point at ``place``, or -1 for none."""
        code = int(self.code[place])
        return int(self.points[code]) if code < len(self.points) else -1

    def _first_bytes(self) -> npt.NDArray[np.uint8]:
        """The first byte of each character node's spelling."""
        trie = self.trie
        at = self.node.astype(np.int64)
        while True:
            up = trie.parent[at]
            inside = self.place[up] < 0
            if not inside.any():
                first: npt.NDArray[np.uint8] = trie.byte[at]
                return first
            at = np.where(inside, up, at)

    def _levels(self) -> None:
        """Breadth-first copies of parents and characters, in which a level is a slice."""
        order = np.argsort(self.depth[:-1], kind="stable")
        rank = np.empty(self.n, np.int64)
        rank[order] = np.arange(self.n)
        self._rank = rank
        self._flat_code = self.code[order]
        self._flat_parent = rank[self.parent[order]].astype(np.int32)
        sizes = np.bincount(self.depth[:-1])
        starts = np.concatenate(([0], np.cumsum(sizes)))
        wide = 1
        while wide < len(sizes) and sizes[wide] >= _WIDE_LEVEL:
            wide += 1
        self._wide = [(int(starts[d]), int(starts[d + 1])) for d in range(1, wide)]
        # The deep rest, a few long chains: ancestors 1, 2, 4, … steps up, down to the last wide
        # level.
        floor = int(starts[wide])
        jump = self._flat_parent[floor:].astype(np.int64)
        self._floor, self._jumps = floor, []
        reach = 1
        while reach < 2 * (len(sizes) - wide) and len(jump):
            self._jumps.append(jump)
            jump = np.where(jump >= floor, jump[np.maximum(jump - floor, 0)], jump)
            reach *= 2
        self._flat_depth = self.depth[:-1][order]

    def _look_ups(self) -> None:
        """What is asked of single nodes."""
        self.longest = int(self.depth.max())
        inside = np.flatnonzero(self.token_node < self.n)
        whole = self.token_node[inside]  # ascending, as tokens stand in pre-order of their ends
        numbers = np.arange(self.n)
        # A node's own tokens come first in its range.
        own = np.bincount(whole, minlength=self.n)
        self.own_start: Int32 = self.token_start
        self.own_stop: Int32 = (self.token_start + own).astype(np.int32)
        self.views = Views(
            view(self.node),
            view(self.end),
            view(self.code),
            view(self.own_start),
            view(self.own_stop),
            view(self.token_ids),
        )
        self.partials: dict[int, list[tuple[int, int]]] = {}
        for place, token, tail in zip(
            self.partial_node.tolist(),
            self.partial.tolist(),
            self.partial_tail.tolist(),
            strict=True,
        ):
            self.partials.setdefault(place, []).append((token, tail))
        self.quote_index = {place: i for i, place in enumerate(self.quotes.tolist())}
        self._quote_below = {place: i for i, place in enumerate(self.parent[self.quotes].tolist())}
        # Children on the way to a quote, that are text themselves.
        self.towards_quotes: dict[int, list[int]] = {}
        quote = len(self.points)
        seen: set[int] = set()
        for place in self.parent[self.quotes].tolist():
            while place and int(self.code[place]) < quote and place not in seen:
                seen.add(place)
                up = int(self.parent[place])
                self.towards_quotes.setdefault(up, []).append(place)
                place = up
        by_parent = np.argsort(self.parent[1:], kind="stable").astype(np.int32) + 1
        self._children = by_parent
        self._child_start = np.searchsorted(self.parent[by_parent], np.arange(self.n + 1))
        self.top = by_parent[: self._child_start[1]]
        first = np.searchsorted(self.top, numbers, "right") - 1
        first[0] = len(self.top)
        self.first_of_node = np.append(first, len(self.top)).astype(np.int32)
        self.first_of_id = self.first_of_node[self.node_of_id]
        self.depth_of_id = self.depth[self.node_of_id]
        none = self.depth.copy()
        none[-1] = np.iinfo(none.dtype).max
        self.nothing = Slice(none, np.full(self.size, none[-1]))

    # -- nodes ----------------------------------------------------------------------------------

    def children(self, places: Int32) -> Int32:
        """The nodes right below ``places``, ascending."""
        found: Int32 = self._children[
            ranges(self._child_start[places], self._child_start[places + 1])
        ]
        return found

    def quote_below(self, place: int) -> int:
        """Which of `quotes` stands right below ``place``, or -1."""
        return self._quote_below.get(place, -1)

    def spelt_below(self, place: int, point: int) -> list[int]:
        """The nodes right below ``place`` whose character is ``point``, however it is spelt."""
        found = []
        at = self.views.node[place]
        if point == _BACKSLASH and self.spelling != "utf8":
            at = 0  # what begins so is an escape
        else:
            for byte in chr(point).encode():
                at = self.trie.child.get(at << 8 | byte, 0)
                if not at:
                    break
        if at:
            raw = int(self.place[at])
            if raw >= 0 and self._point(raw) == point:
                found.append(raw)
        escaped = self.escapes.get((place, point))
        return found if escaped is None else found + escaped

    # -- sets of characters ---------------------------------------------------------------------

    def slice(self, inside: Bools) -> Slice:
        """The slice of a set of characters; ``inside``: bool ``[len(points) + 2]``.

        Cost: about 2 ms for a new set at 128k tokens; remembered by content.
        """
        key = np.packbits(inside).tobytes()
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = self._make(inside)
            self._charge(3 * self.n + self.size)
        return found

    def _make(self, inside: Bools) -> Slice:
        outside = ~inside[self._flat_code]
        flat = np.zeros(self.n, self.depth.dtype)
        for depth, (a, b) in enumerate(self._wide, 1):
            flat[a:b] = np.where(outside[a:b], depth, flat[self._flat_parent[a:b]])
        floor = self._floor
        if floor < self.n:
            flat[floor:] = np.where(outside[floor:], self._flat_depth[floor:], 0)
            deep = flat[floor:]
            for jump in self._jumps:
                np.maximum(deep, flat[jump], out=deep)
        last: Depths = np.empty(self.n + 1, self.depth.dtype)
        np.take(flat, self._rank, out=last[:-1])
        last[-1] = np.iinfo(last.dtype).max
        counts = np.where(last[self.node_of_id] == 0, self.depth_of_id, last[-1])
        return Slice(last, counts)

    def by_id(self, cut: Slice) -> Depths:
        """`Slice.last` by token id."""
        found: Depths = cut.last[self.node_of_id]
        return found

    def edges(self, cut: Slice) -> Int32:
        """`Slice.edges`."""
        if cut.edges is None:
            last, text = cut.last, self.code < len(self.points)
            outside = (last[:-1] == self.depth[:-1]) & (last[self.parent] == 0) & text
            outside[0] = False
            cut.edges = np.flatnonzero(outside).astype(np.int32)
        return cut.edges


def _span(tail: bytes) -> tuple[int, int]:
    """The first and last code point whose UTF-8 begins with ``tail``; -1 for none, and escapes."""
    lead = tail[0]
    if lead == _BACKSLASH:
        return -1, -1
    length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2
    value = lead & (0x07, 0x0F, 0x1F)[4 - length]
    for byte in tail[1:]:
        value = value << 6 | byte & 0x3F
    shift = 6 * (length - len(tail))
    least = (0x80, 0x800, 0x10000)[length - 2]
    first, last = max(value << shift, least), min((value + 1 << shift) - 1, 0x10FFFF)
    return (first, last) if first <= last else (-1, -1)


def _unescape(spelt: bytes, spelling: str, barred: frozenset[int]) -> int | None:
    """The code point of an escape, `_NO_TEXT` where it is none, None where it is not complete."""
    if len(spelt) == 1:
        return None
    kind = spelt[1]
    if kind != _U:
        if kind in _SHORT:
            return _SHORT[kind]
        if kind in (_QUOTE, _BACKSLASH) or (kind == 0x2F and may_escape_slash(spelling)):
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
