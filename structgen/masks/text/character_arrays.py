"""The trie as characters, in arrays: the nodes at which a whole number of characters has been read.

It owns the arrays of one way of spelling characters, numbered in pre-order so that everything below
a node is a range, and what is asked of single nodes. Sets of characters are unknown here:
`characters` answers for those.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import ASCII_ONLY, may_escape
from structgen.masks.grouping import ranges
from structgen.storage import GenerationalCache
from structgen.vocabulary import Trie, view

Bools: TypeAlias = npt.NDArray[np.bool_]
Int32: TypeAlias = npt.NDArray[np.int32]
Depths: TypeAlias = npt.NDArray[Any]
"""uint8, or wider where a token has 255 characters or more."""

_T = TypeVar("_T")

_QUOTE, _BACKSLASH = 0x22, 0x5C
_POINT_BITS = 21
_NO_QUOTES: Mapping[str, Sequence[int]] = {}


def _frozen(lists: dict[int, list[_T]]) -> dict[int, tuple[_T, ...]]:
    """With tuples of numbers, which the garbage collector soon leaves alone, unlike lists."""
    return {key: (*items,) for key, items in lists.items()}


class Views(NamedTuple):
    """Arrays of `CharacterArrays` for reading one element at a time."""

    node: Sequence[int]
    end: Sequence[int]
    code: Sequence[int]
    own_start: Sequence[int]
    own_stop: Sequence[int]
    token_ids: Sequence[int]
    place: Sequence[int]


class CharacterArrays:
    """The character nodes of one trie under one spelling.

    Args:
        trie: the vocabulary's trie.
        size: number of token ids.
        spelling: ``"utf8"`` for plain text; one of `automaton.encoding.Escapes` for the inside of
            JSON strings.
        barred: bytes, from 0x7F on, that begin no character.
        arrays: what `character_nodes.build` makes of all these.
        cache: makes a cache that some budget rules.
        charge: told the bytes that each thing in one of them takes.

    Attributes:
        is_canonical: whether printable ASCII, but quotes and backslashes, has one spelling.
        n: number of character nodes, the root (0) included. Nodes are numbered in pre-order.
        place: int32 [trie nodes]; the character node at a trie node, or -1 inside a character.
        node: int32 [n]; the trie node of a character node.
        end: int32 [n]; one more than the last node of the subtree.
        parent: int32 [n].
        depth: [n + 1]; characters from the root.
        code: int32 [n]; position of the node's character in `points`, or ``len(points)`` for the
            closing quote and ``len(points) + 1`` for what is no text.
        by_depth: int32 [n]; all nodes, those nearest to the root first.
        points: int32; the code points that occur, ascending.
        token_start: int32 [n]; with `token_end` the range, in `token_ids`, of the tokens below.
        token_node: int32; where each of `token_ids` ends, or ``n`` inside a character.
        token_depth: `depth` there, or the largest value of its dtype inside a character.
        rank_of_id: int64 [size]; where each id stands in `token_ids`, their number for none.
        quotes: the nodes right after a closing quote.
        partial: ids of the tokens that end inside a character; `partial_node`, where that character
            begins, ascending; `partial_tail`, which of `tails` (its bytes so far).
        tail_spans: int32 [spans, 3]; a tail, and first and last of some code points that it may
            become.
    """

    def __init__(
        self,
        trie: Trie,
        size: int,
        spelling: str,
        barred: frozenset[int],
        arrays: Mapping[str, npt.NDArray[Any]],
        cache: Callable[[], GenerationalCache[Any, Any]],
        charge: Callable[[int], None],
    ) -> None:
        self.trie = trie
        self.size = size
        self.spelling = spelling
        self._barred = barred
        self.is_canonical = spelling == "utf8" or not may_escape(ord("a"), spelling)
        self.node: Int32 = arrays["node"]
        self.place: Int32 = arrays["place"]
        self.end: Int32 = arrays["end"]
        self.parent: Int32 = arrays["parent"]
        self.depth: Depths = arrays["depth"]
        self.code: Int32 = arrays["code"]
        self.points: Int32 = arrays["points"]
        self.token_start: Int32 = arrays["token_start"]
        self.token_end: Int32 = arrays["token_end"]
        self.token_ids: Int32 = arrays["token_ids"]
        self.token_node: Int32 = arrays["token_node"]
        self.node_of_id: Int32 = arrays["node_of_id"]
        by_node = np.argsort(arrays["partial_node"], kind="stable")
        self.partial: Int32 = arrays["partial"][by_node]
        self.partial_node: Int32 = arrays["partial_node"][by_node]
        self.partial_tail: Int32 = arrays["partial_tail"][by_node]
        self.tail_spans: Int32 = arrays["tail_spans"]
        self._children: Int32 = arrays["children"]
        self._child_start: Int32 = arrays["child_start"]
        self.n = len(self.node)
        self.quotes = np.flatnonzero(self.code == len(self.points)).astype(np.int32)
        ends = np.cumsum(arrays["tail_lengths"]).tolist()
        tails = arrays["tail_bytes"].tobytes()
        self.tails = [tails[a:b] for a, b in pairwise([0, *ends])]
        self.cache = cache
        self.charge = charge
        self.by_depth: Int32 = arrays["by_depth"]
        self._look_ups(arrays["escapes"])

    def _look_ups(self, escapes: Int32) -> None:
        """What is asked of single nodes."""
        self.longest = int(self.depth.max())
        inside = np.flatnonzero(self.token_node < self.n)
        whole = self.token_node[inside]  # ascending, as tokens stand in pre-order of their ends
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
            view(self.place),
        )
        # Characters spelt with a backslash: the nodes right below a node, by their code point.
        escaped: dict[int, list[int]] = {}
        for at in escapes.tolist():
            if self.views.code[at] < len(self.points):
                key = int(self.parent[at]) << _POINT_BITS | int(self.points[self.code[at]])
                escaped.setdefault(key, []).append(at)
        self._escapes = _frozen(escaped)
        partials: dict[int, list[tuple[int, int]]] = {}
        for place, token, tail in zip(
            self.partial_node.tolist(),
            self.partial.tolist(),
            self.partial_tail.tolist(),
            strict=True,
        ):
            partials.setdefault(place, []).append((token, tail))
        self.partials = _frozen(partials)
        self.sorted_quotes: list[int] = self.quotes.tolist()
        self.sorted_partials: list[int] = self.partial_node.tolist()
        self.quote_parent: Int32 = self.parent[self.quotes]
        self.quote_index = {place: i for i, place in enumerate(self.sorted_quotes)}
        self._quote_texts: GenerationalCache[int, dict[str, list[int]]] = self.cache()
        self._quote_below = {place: i for i, place in enumerate(self.parent[self.quotes].tolist())}
        # Children on the way to a quote, that are text themselves.
        towards: dict[int, list[int]] = {}
        # From a node on the way, the most characters of text before a quote.
        self.text_before_quotes: dict[int, int] = {}
        quote = len(self.points)
        seen: set[int] = set()
        for place in self.quote_parent.tolist():
            length = 0
            while self.text_before_quotes.get(place, -1) < length:
                self.text_before_quotes[place] = length
                if not place or int(self.code[place]) >= quote:
                    break
                up = int(self.parent[place])
                if place not in seen:
                    seen.add(place)
                    towards.setdefault(up, []).append(place)
                place, length = up, length + 1
        self.towards_quotes = _frozen(towards)
        self.top = self._children[: self._child_start[1]]
        self.token_depth = self.depth[self.token_node]
        self.token_depth[self.token_node == self.n] = np.iinfo(self.depth.dtype).max
        self.rank_of_id = np.full(self.size, len(self.token_ids), np.int64)
        self.rank_of_id[self.token_ids] = np.arange(len(self.token_ids))

    def children_of(self, places: Int32) -> tuple[Int32, Int32]:
        """The nodes right below ``places``, place by place, and how many each of them has."""
        first, beyond = self._child_start[places], self._child_start[places + 1]
        found: Int32 = self._children[ranges(first, beyond)]
        return found, beyond - first

    @functools.cached_property
    def quote_under(self) -> Int32:
        """Per node which of `quotes` stands right below it, or -1."""
        found = np.full(self.n, -1, np.int32)
        found[self.quote_parent] = np.arange(len(self.quotes), dtype=np.int32)
        return found

    @functools.cached_property
    def holds_partials(self) -> Bools:
        """Per node whether a token ends inside the character after it."""
        found = np.zeros(self.n, bool)
        found[self.partial_node] = True
        return found

    def quote_below(self, place: int) -> int:
        """Which of `quotes` stands right below ``place``, or -1."""
        return self._quote_below.get(place, -1)

    def spelt_below(self, place: int, point: int, spelt: bytes) -> list[int]:
        """The nodes right below ``place`` whose character is ``point``, however it is spelt.

        ``spelt``: its plain spelling, empty for none.
        """
        found: list[int] = []
        if spelt:
            at, child = self.views.node[place], self.trie.child
            for byte in spelt:
                at = child.get(at << 8 | byte, 0)
                if not at:
                    break
            else:
                found.append(self.views.place[at])
        escaped = self._escapes.get(place << _POINT_BITS | point)
        return found if escaped is None else [*found, *escaped]

    def plain(self, point: int) -> bytes:
        """How ``point`` is spelt without a backslash, if that is one way to spell it."""
        if self.spelling != "utf8" and (point < 0x20 or point in (_QUOTE, _BACKSLASH)):
            return b""
        spelt = chr(point).encode()
        is_raw = point < 0x80 or self.spelling not in ASCII_ONLY
        return spelt if is_raw and spelt[0] not in self._barred else b""

    def quote_texts(self, place: int) -> Mapping[str, Sequence[int]]:
        """The texts between ``place`` and the closing quotes below it, with which of `quotes`."""
        found = self._quote_texts[place]
        if found is None:
            first = bisect_right(self.sorted_quotes, place)
            beyond = bisect_left(self.sorted_quotes, self.views.end[place])
            if first == beyond:
                return _NO_QUOTES
            found = {}
            n_points = len(self.points)
            for which in range(first, beyond):
                text: list[str] = []
                at = int(self.parent[self.sorted_quotes[which]])
                while at != place and self.views.code[at] < n_points:
                    text.append(chr(self.points[self.views.code[at]]))
                    at = int(self.parent[at])
                if at == place:
                    found.setdefault("".join(reversed(text)), []).append(which)
            self._quote_texts[place] = found
            self.charge(100 * len(found) + 100)
        return found

    def around(self, nodes: list[int], places: Int32) -> tuple[int, int]:
        """Which of some nodes are not before or after all subtrees of ``places``."""
        first = bisect_left(nodes, int(places[0]))
        return first, bisect_left(nodes, self.views.end[int(places[-1])], first)
