"""The vocabulary as characters: which tokens stay inside a text, by the characters they hold.

It owns one view of a trie for each way of spelling characters (plain UTF-8; the inside of a JSON
string): the *character nodes*, at which a whole number of characters has been read, numbered in
pre-order, so that everything below a node is a range. `Characters.run` answers for a set of
characters and some nodes which tokens stay in the set from there, and where it is left; what it
says for the root is kept (`Characters.slice`), with the characters of each such token, so that any
limit on their number is one comparison. It knows automata only by name of their encodings, and no
masks of any constraint.

Quotes, bytes that no text may hold and malformed UTF-8 are characters of their own that belong to
no set, and after which reading starts anew: a node's subtree reads the same wherever in a token its
text starts.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .alphabet_points import AlphabetPoints
from .automaton.alphabet import Alphabet
from .automaton.encoding import ASCII_ONLY, may_escape
from .character_runs import Run
from .grouping import ranges
from .lone_runs import LoneRun
from .recent import Recent
from .trie import Trie, view

Bools: TypeAlias = npt.NDArray[np.bool_]
Int32: TypeAlias = npt.NDArray[np.int32]
Depths: TypeAlias = npt.NDArray[Any]
"""uint8, or wider where a token has 255 characters or more."""

_T = TypeVar("_T")

_QUOTE, _BACKSLASH = 0x22, 0x5C
_POINT_BITS = 21
_ROOT = np.zeros(1, np.int32)
_NO_QUOTES: Mapping[str, Sequence[int]] = {}

_MOST_LONG = (500, 200, 50)
"""Most tokens that are longer than each of `Characters.levels`."""

_LEAST_NEAR = 4


class Slice:
    """A set of characters, seen from the root.

    Attributes:
        run: the run from there.
        counts: [size of the vocabulary]; number of characters of each token that lies in the set
            whole, and the largest value of the dtype for all others.
        partials: tokens that end inside a character after an endless run from the root, by the
            address of an array of the tails that may follow, which is held beside them.
        lone: for `text_runs`: the run as all of a text. Sets that differ by characters that no
            token holds have one slice, but may go on otherwise after a character that is cut: so by
            the tails that may follow, as bytes.
    """

    __slots__ = ("__weakref__", "counts", "lone", "partials", "run")

    def __init__(self, run: Run, counts: Depths) -> None:
        self.run = run
        self.counts = counts
        self.partials: dict[int, tuple[Bools, Int32]] = {}
        self.lone: dict[bytes, LoneRun] = {}


def _frozen(lists: dict[int, list[_T]]) -> dict[int, tuple[_T, ...]]:
    """With tuples of numbers, which the garbage collector soon leaves alone, unlike lists."""
    return {key: (*items,) for key, items in lists.items()}


class Views(NamedTuple):
    """Arrays of `Characters` for reading one element at a time."""

    node: Sequence[int]
    end: Sequence[int]
    code: Sequence[int]
    own_start: Sequence[int]
    own_stop: Sequence[int]
    token_ids: Sequence[int]
    place: Sequence[int]


class LongEdge(NamedTuple):
    """Characters without a branch on the way to long tokens.

    Attributes:
        above: the edge before, -1 for none.
        codes: the characters, as `Characters.code`.
        tokens: those that end right after,
        partials: those that end inside the next character, each with its tail,
        quote: and which closing quote stands there, or -1; if that is beyond the level asked for.
    """

    above: int
    codes: tuple[int, ...]
    tokens: tuple[int, ...]
    partials: tuple[tuple[int, int], ...]
    quote: int


class Whole(NamedTuple):
    """What every text may do from some nodes.

    Attributes:
        places: the nodes, int32, as bytes.
        counts: from the root, characters of each token that is text, as `Slice.counts`.
        ids: the tokens that are text; from the root, those that end inside a character.
        quotes: bool ``[len(Characters.quotes)]``; the closing quotes that end a text.
    """

    places: bytes
    counts: Depths | None
    ids: Int32
    quotes: npt.NDArray[np.bool_]


class Characters:
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
        cache: Callable[[], Recent[Any, Any]],
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
        self._slices: Recent[bytes, Slice] = cache()
        self._runs: Recent[tuple[bytes, bytes], Run] = cache()
        self._wholes: Recent[bytes, Whole] = cache()
        self._spelt: Recent[str, tuple[bytes, int]] = cache()
        self._most: Recent[bytes, int] = cache()
        self._by_alphabet: Recent[Any, AlphabetPoints] = cache()
        # For `text_walks` and `walks`: what texts do by their contents, whatever the automaton.
        self.texts: Recent[bytes, Any] = cache()
        self.strings: Recent[bytes, tuple[Any, ...]] = cache()
        self._short: dict[int, tuple[npt.NDArray[np.uint32], Bools]] = {}
        self._long: dict[int, list[LongEdge]] = {}
        self.cache = cache
        self.charge = self._charge = charge
        self._by_depth: Int32 = arrays["by_depth"]
        self._look_ups(arrays["escapes"])

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays."""
        arrays = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    def points_of(self, alphabet: Alphabet) -> AlphabetPoints:
        """The characters by the atoms of ``alphabet``."""
        found = self._by_alphabet[alphabet.key]
        if found is None:
            found = self._by_alphabet[alphabet.key] = AlphabetPoints(self, alphabet)
            self._charge(4 * len(self.points) + 100 * len(alphabet.starts) + 1000)
        return found

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
        self._sorted_quotes: list[int] = self.quotes.tolist()
        self._sorted_partials: list[int] = self.partial_node.tolist()
        self.quote_parent: Int32 = self.parent[self.quotes]
        self.quote_index = {place: i for i, place in enumerate(self._sorted_quotes)}
        self._quote_texts: Recent[int, dict[str, list[int]]] = self.cache()
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

    # -- nodes ----------------------------------------------------------------------------------

    def partials_inside(self, cut: Slice, alive: Bools) -> Int32:
        """The tokens that end inside a character after an endless run from the root.

        Args:
            cut: the slice of the run's characters.
            alive: bool ``[len(tails)]``, what may begin such a character; asked for again, it has
                to be the same array.
        """
        found = cut.partials.get(id(alive))
        if found is None:
            chosen, _ = cut.run.partials()
            ids: Int32 = self.partial[chosen[alive[self.partial_tail[chosen]]]]
            found = cut.partials[id(alive)] = alive, ids
            self._charge(ids.nbytes + alive.nbytes + 200)
        return found[1]

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

    def spelt(self, text: str) -> tuple[bytes, int]:
        """The tokens that are the beginning of ``text``, and the one of `quotes` after it, or -1.

        The tokens as the bytes of an int32 array: there are thousands of these, and unlike an
        array or a list, the garbage collector soon leaves bytes and the tuple around them alone.

        ``text`` is printable ASCII without quotes and backslashes, in the spelling of `plain`.
        """
        found = self._spelt[text]
        if found is None:
            views, child = self.views, self.trie.child
            ids, at = array("i"), 0
            for byte in text.encode("ascii"):
                at = child.get(at << 8 | byte, 0)
                if not at:
                    break
                place = views.place[at]
                ids.extend(views.token_ids[views.own_start[place] : views.own_stop[place]])
            quote = self.quote_below(views.place[at]) if at or not text else -1
            found = self._spelt[text] = ids.tobytes(), quote
            self._charge(4 * len(ids) + len(text) + 300)
        return found

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
            first = bisect_right(self._sorted_quotes, place)
            beyond = bisect_left(self._sorted_quotes, self.views.end[place])
            if first == beyond:
                return _NO_QUOTES
            found = {}
            n_points = len(self.points)
            for which in range(first, beyond):
                text: list[str] = []
                at = int(self.parent[self._sorted_quotes[which]])
                while at != place and self.views.code[at] < n_points:
                    text.append(chr(self.points[self.views.code[at]]))
                    at = int(self.parent[at])
                if at == place:
                    found.setdefault("".join(reversed(text)), []).append(which)
            self._quote_texts[place] = found
            self._charge(100 * len(found) + 100)
        return found

    @functools.cached_property
    def levels(self) -> tuple[int, ...]:
        """Lengths, in characters, ascending, that fewer and fewer tokens exceed."""
        depths = np.bincount(self.depth[self.token_node[self.token_node < self.n]])
        longer = np.cumsum(depths[::-1])[::-1]
        found = [int(np.searchsorted(-longer, -most)) - 1 for most in _MOST_LONG]
        return tuple(sorted({max(level, _LEAST_NEAR) for level in found}))

    @functools.cached_property
    def _partial_depths(self) -> Int32:
        depths = np.zeros(self.size, np.int32)
        np.maximum.at(depths, self.partial, self.depth[self.partial_node])
        return depths

    def short(self, level: int) -> tuple[npt.NDArray[np.uint32], Bools]:
        """What is not beyond ``level`` characters: tokens as bits ``[ceil(size / 32)]``, and bool
        ``[len(quotes)]``."""
        found = self._short.get(level)
        if found is None:
            flags = np.zeros((self.size + 31) // 32 * 32, bool)
            depths = self.depth[self.node_of_id]
            flags[: self.size] = (depths <= level) & (self._partial_depths <= level)
            bits = np.packbits(flags, bitorder="little").view("<u4")
            found = self._short[level] = bits, self.depth[self.quote_parent] <= level
        return found

    def long(self, level: int) -> list[LongEdge]:
        """What is beyond ``level`` characters of text, and the way there; parents before children.

        First characters are edges of their own.
        """
        known = self._long.get(level)
        if known is not None:
            return known
        text = np.ones(len(self.points) + 2, bool)
        text[-2:] = False
        ends = (np.flatnonzero(self.own_stop > self.own_start), self.partial_node)
        nodes = np.concatenate((*ends, self.quote_parent))
        nodes = self.slice(text).run.within(nodes[self.depth[nodes] > level])
        parent, codes, views = view(self.parent), self.views.code, self.views
        breaks = set(nodes.tolist())
        seen: set[int] = set()
        for node in list(breaks):
            while node:
                if node in seen or not parent[node]:
                    breaks.add(node)  # two ways part here, or have just begun
                if node in seen:
                    break
                seen.add(node)
                node = parent[node]
        number = {node: i for i, node in enumerate(sorted(breaks))}
        found: list[LongEdge] = []
        for node in number:
            spelt: list[int] = []
            at = node
            while at and (at == node or at not in number):
                spelt.append(codes[at])
                at = parent[at]
            is_deep = self.depth[node] > level
            tokens = views.token_ids[views.own_start[node] : views.own_stop[node]]
            found.append(
                LongEdge(
                    number.get(at, -1),
                    tuple(reversed(spelt)),
                    (*tokens,) if is_deep else (),
                    self.partials.get(node, ()) if is_deep else (),
                    self.quote_below(node) if is_deep else -1,
                )
            )
        self._charge(500 * len(found) + 40 * len(seen))
        self._long[level] = found
        return found

    # -- sets of characters ---------------------------------------------------------------------

    def slice(self, inside: Bools) -> Slice:
        """The slice of a set of characters; ``inside``: bool ``[len(points) + 2]``.

        Cost: about 0.4 ms for a new set at 128k tokens; remembered by content.
        """
        key = np.packbits(inside).tobytes()
        found = self._slices[key]
        if found is None:
            run = Run(self, inside, _ROOT)
            counts = run.counts()
            found = self._slices[key] = Slice(run, counts)
            self._charge(counts.nbytes + run.left.nbytes + 5000)
        return found

    def run(self, inside: Bools, places: Int32) -> Run:
        """The run of a set from ``places``, ascending nodes none of which is below another.

        Remembered by content: what repeats words leaves them at the same places in every state.
        """
        key = np.packbits(inside).tobytes(), places.tobytes()
        found = self._runs[key]
        if found is None:
            found = self._runs[key] = Run(self, inside, places)
            self._charge(found.left.nbytes + 2 * places.nbytes + len(key[0]) + 1000)
        return found

    def whole(self, places: Int32) -> Whole:
        """All tokens that are text from one of ``places``, none of which is below another."""
        key = places.tobytes()
        found = self._wholes[key]
        if found is None:
            inside = np.ones(len(self.points) + 2, bool)
            inside[-2:] = False
            counts = None
            if len(places) == 1 and not places[0]:
                cut = self.slice(inside)
                run, counts = cut.run, cut.counts
            else:
                run = self.run(inside, places)
            chosen, _ = run.partials()
            text = np.zeros(len(self.tails), bool)
            text[self.tail_spans[:, 0]] = True
            ids = self.partial[chosen[text[self.partial_tail[chosen]]]]
            if counts is None:
                ids = np.concatenate((run.tokens(self.longest), ids))
            quotes = np.zeros(len(self.quotes), bool)
            quotes[run.quotes()[0]] = True
            found = self._wholes[key] = Whole(key, counts, ids, quotes)
            self._charge(len(key) + ids.nbytes + quotes.nbytes + 300)
        return found

    def around_quotes(self, places: Int32) -> tuple[int, int]:
        """Which of `quotes` are not before or after all subtrees of ``places``."""
        return self._around(self._sorted_quotes, places)

    def around_partials(self, places: Int32) -> tuple[int, int]:
        """Which of `partial` are not before or after all subtrees of ``places``."""
        return self._around(self._sorted_partials, places)

    def _around(self, nodes: list[int], places: Int32) -> tuple[int, int]:
        first = bisect_left(nodes, int(places[0]))
        return first, bisect_left(nodes, self.views.end[int(places[-1])], first)

    @functools.cached_property
    def _levels(self) -> tuple[Int32, list[tuple[int, int]]]:
        """In order of depth: where in that order each node's parent stands, and the levels below
        the root."""
        rank = np.empty(self.n, np.int32)
        rank[self._by_depth] = np.arange(self.n, dtype=np.int32)
        starts = np.concatenate(([0], np.cumsum(np.bincount(self.depth[:-1])))).tolist()
        return rank[self.parent[self._by_depth]], list(pairwise(starts))[1:]

    def most_in_order(self, sets: Sequence[Bools], is_searched: bool = True) -> int | None:
        """How often at most a token holds characters of all these sets, one after another.

        What stands between them does not matter: ``(?:\\S+\\s+){n}`` needs n times one character
        that is no blank, and a blank later; no token of Llama 3.1 has two such pairs.

        Args:
            sets: at most 8, each bool ``[len(points) + 2]``.
            is_searched: whether to search if it is not known; None if it is neither.

        Cost: a millisecond; remembered by content.
        """
        sets_as_bytes = b"".join(np.packbits(inside).tobytes() for inside in sets)
        key = blake2b(sets_as_bytes, digest_size=16).digest()
        found = self._most[key]
        if found is None and is_searched:
            bits = np.zeros(len(self.points) + 2, np.uint8)
            for i, inside in enumerate(sets):
                bits[inside] |= np.uint8(1 << i)
            flat_parent, levels = self._levels
            held = bits[self.code[self._by_depth]]
            n_sets = len(sets)
            # The set whose turn it is in the low four bits, and above how often all were found.
            kind = np.uint16 if self.longest < 1 << 12 else np.uint32
            found_at = np.zeros(self.n, kind)
            for a, b in levels:
                now = found_at[flat_parent[a:b]]
                now += held[a:b] >> (now & 15) & 1
                now[now & 15 == n_sets] += 16 - n_sets
                found_at[a:b] = now
            times = found_at >> 4
            found = self._most[key] = int(times.max())
            self._charge(len(key) + 100)
        return found
