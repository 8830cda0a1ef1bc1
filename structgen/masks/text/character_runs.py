r"""Runs of characters: which nodes are reached within one set, and where the set is left first.

A subtree is a range in pre-order. Of the nodes outside the set only the topmost count; what lies
between their subtrees is reached within the set. Subtrees that no run enters are not looked at: a
set of digits looks at 1% of a vocabulary, letters at half of it.

`CharacterRun` is a run of one set from some places. Automata are unknown here.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.masks.grouping import ranges

from .character_arrays import Bools, CharacterArrays, Depths, Int32

Chosen: TypeAlias = "tuple[npt.NDArray[np.int64], Depths]"

_GAP = 3000
"""Nodes that are looked at in vain rather than looked around."""

_NONE: Int32 = np.zeros(0, np.int32)


class CharacterRun:
    """A run of characters of one set, from some places.

    Args:
        characters: the vocabulary.
        inside: the set; bool ``[len(points) + 2]``.
        places: nodes, ascending, none of which is below another.

    Attributes:
        places: those.
        left: int32, ascending; the first node outside the set on each way down: another character,
            a quote, what is no text.

    Cost: for the whole vocabulary 0.3 ms at 128k tokens.
    """

    __slots__ = ("_base", "_characters", "_partials", "_quotes", "_spans", "left", "places")

    def __init__(self, characters: CharacterArrays, inside: Bools, places: Int32) -> None:
        self._characters = characters
        self.places = places
        self._quotes: Chosen | None = None
        self._partials: Chosen | None = None
        depths = characters.depth[places]
        self._base: int | None = int(depths[0]) if (depths == depths[0]).all() else None
        self._spans: list[tuple[int, int]] = []
        outside = ~inside
        if self.is_root:
            self._spans, self.left = self._from_root(outside)
            return
        end = characters.end[places]
        nodes = ranges(places, end)
        out = np.take(outside, characters.code[nodes])
        lengths = end - places
        out[np.cumsum(lengths) - lengths] = False
        self.left = _topmost(nodes[out], characters.end)

    @property
    def is_root(self) -> bool:
        """Whether it starts at the root."""
        return len(self.places) == 1 and not self.places[0]

    def _from_root(self, outside: Bools) -> tuple[list[tuple[int, int]], Int32]:
        """The ranges that a run from the root may enter, and `left`."""
        characters = self._characters
        tops = characters.top
        first = tops[~outside[characters.code[tops]]]
        if not len(first):
            return [], tops
        beyond = characters.end[first]
        apart = (first[1:] - beyond[:-1] > _GAP).nonzero()[0]
        starts = first[np.concatenate(([0], apart + 1))].tolist()
        ends = beyond[np.append(apart, len(beyond) - 1)].tolist()
        # Between the ranges the root's children are outside.
        parts: list[Int32] = []
        before = 0
        lows, highs = np.searchsorted(tops, starts).tolist(), np.searchsorted(tops, ends).tolist()
        for a, b, low, high in zip(starts, ends, lows, highs, strict=True):
            left = np.take(outside, characters.code[a:b]).nonzero()[0] + a
            parts += (tops[before:low], _topmost(left, characters.end))
            before = high
        parts.append(tops[before:])
        return list(zip(starts, ends, strict=True)), np.concatenate(parts)

    # -- what is inside -----------------------------------------------------------------------

    def tokens(self, most: int) -> Int32:
        """Of a run from elsewhere, the tokens that end within its first ``most`` characters, and
        between two."""
        characters = self._characters
        longest = characters.longest
        # What is below the places but not below where the run is left: the ranges between.
        places, left = self.places, self.left
        start, end = characters.token_start, characters.token_end
        first = np.sort(np.concatenate((start[places], end[left])), kind="stable")
        last = np.sort(np.concatenate((start[left], end[places])), kind="stable")
        ranks = ranges(first, last)
        depths = characters.token_depth[ranks]
        limits: Any = longest if self._base is None else min(self._base + most, longest)
        if self._base is None and most < longest:
            bounds = np.append(np.searchsorted(ranks, start[places]), len(ranks))
            above = characters.depth[places].astype(np.int64)
            limits = np.repeat(np.minimum(above + most, longest), np.diff(bounds))
        found: Int32 = characters.token_ids[ranks[depths <= limits]]
        return found

    def counts(self) -> Depths:
        """Of a run from the root, for all token ids: the characters of each token that ends within
        it and between two, and the largest value of the dtype for all others."""
        characters = self._characters
        parts = self._token_depths()
        most = _most_of(characters.depth)
        by_rank = np.full(len(characters.token_ids) + 1, most, characters.depth.dtype)
        for low, depths in parts:
            by_rank[low : low + len(depths)] = depths
        return by_rank.take(characters.rank_of_id)

    def _token_depths(self) -> list[tuple[int, Depths]]:
        """`Characters.token_depth` by spans, from some rank on; the largest value for tokens that
        leave the run."""
        characters = self._characters
        found: list[tuple[int, Depths]] = []
        cuts = np.searchsorted(self.left, [x for span in self._spans for x in span]).tolist()
        for i, (a, b) in enumerate(self._spans):
            left = self.left[cuts[2 * i] : cuts[2 * i + 1]]
            low, high = int(characters.token_start[a]), len(characters.token_ids)
            if b < characters.n:
                high = int(characters.token_start[b])
            start, end = characters.token_start[left], characters.token_end[left]
            depths = _outside(low, high, start, end, characters.depth)
            depths |= characters.token_depth[low:high]
            found.append((low, depths))
        return found

    def nodes_after(self, count: int) -> npt.NDArray[np.int64]:
        """The nodes after exactly ``count`` characters of the run, ascending."""
        characters = self._characters
        depth = characters.depth
        nodes = ranges(self.places, characters.end[self.places])
        base = np.repeat(depth[self.places], characters.end[self.places] - self.places)
        return self.within(nodes[depth[nodes] == base.astype(np.int64) + count])

    def _is_left(self, nodes: npt.NDArray[Any]) -> Bools:
        """Which of ``nodes`` are outside the set, or below one that is."""
        if not len(self.left):
            return np.zeros(len(nodes), bool)
        above = np.searchsorted(self.left, nodes, "right") - 1
        found: Bools = (above >= 0) & (nodes < self._characters.end[self.left[above]])
        return found

    def within(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Those of some nodes below the places that are reached within the set."""
        found: npt.NDArray[np.int64] = nodes[~self._is_left(nodes)]
        return found

    def steps_to(self, nodes: npt.NDArray[Any]) -> Depths:
        """How many characters lie between the places and ``nodes``, which are below them."""
        depth = self._characters.depth
        if self._base is not None:
            steps: Depths = depth[nodes] - np.asarray(self._base, depth.dtype)
            return steps
        start = self.places[np.searchsorted(self.places, nodes, "right") - 1]
        steps = depth[nodes] - depth[start]
        return steps

    def quotes(self) -> Chosen:
        """Which of `Characters.quotes` may close the run, and after how many characters."""
        if self._quotes is None:
            characters = self._characters
            first, beyond = characters.around(characters.sorted_quotes, self.places)
            self._quotes = self._reached(characters.quote_parent[first:beyond], first)
        return self._quotes

    def partials(self) -> Chosen:
        """Which of `CharacterArrays.partial` begin in the run, and after how many characters."""
        if self._partials is None:
            characters = self._characters
            first, beyond = characters.around(characters.sorted_partials, self.places)
            self._partials = self._reached(characters.partial_node[first:beyond], first)
        return self._partials

    def _reached(self, nodes: Int32, shift: int) -> Chosen:
        inside = ~self._is_left(nodes)
        if not self.is_root:
            which = np.searchsorted(self.places, nodes, "right") - 1
            inside &= (which >= 0) & (nodes < self._characters.end[self.places[which]])
        chosen = inside.nonzero()[0]
        steps = self.steps_to(nodes[chosen])
        chosen += shift
        return chosen, steps


def _topmost(nodes: npt.NDArray[np.int64], end: Int32) -> Int32:
    """Those of ``nodes``, ascending, that are below no other of them."""
    if not len(nodes):
        return _NONE
    reached = np.maximum.accumulate(end[nodes])
    keep = np.empty(len(nodes), bool)
    keep[0] = True
    np.greater_equal(nodes[1:], reached[:-1], out=keep[1:])
    return nodes[keep].astype(np.int32)


def _outside(first: int, beyond: int, starts: Int32, ends: Int32, depth: Depths) -> Depths:
    """For ``first .. beyond - 1``: 0, or the largest value of the dtype of ``depth`` for what lies
    in one of some ranges, in order and apart."""
    lengths = np.empty(2 * len(starts) + 1, np.int64)
    lengths[:-1:2] = starts
    lengths[-1] = beyond
    lengths[0] -= first
    lengths[2::2] -= ends
    lengths[1::2] = ends - starts
    pattern = np.zeros(len(lengths), depth.dtype)
    pattern[1::2] = _most_of(depth)
    return pattern.repeat(lengths)


def _most_of(depth: Depths) -> int:
    """The largest value of a dtype, which no depth is."""
    return int(np.iinfo(depth.dtype).max)


Bits: TypeAlias = npt.NDArray[np.uint32]


class CountedTokens:
    """The tokens that lie in a set of characters whole, seen from the root, and a few others.

    Two of these are the same only if they are one object.

    Attributes:
        counts: [size of the vocabulary]; number of characters of each token that lies in the set
            whole, and the largest value of the dtype for all others.
        others: further tokens, of any length.
    """

    __slots__ = ("counts", "others")

    def __init__(self, counts: Depths, others: Int32 | None) -> None:
        self.counts = counts
        self.others = others

    def flags(self, most: int, size: int) -> Bools:
        """Those of at most so many characters, and the others: bool ``[size]``."""
        found = np.zeros(size, bool)
        np.less_equal(self.counts, most, out=found[: len(self.counts)])
        if self.others is not None:
            found[self.others] = True
        return found


class Slice:
    """A set of characters, seen from the root.

    Attributes:
        run: the run from there.
        tokens: the tokens that lie in the set whole.
        endless: for `Characters.endless`: these, and those that end inside a character after them,
            by the tails that may follow, as bytes.
    """

    __slots__ = ("__weakref__", "endless", "run", "tokens")

    def __init__(self, run: CharacterRun) -> None:
        self.run = run
        self.tokens = CountedTokens(run.counts(), None)
        self.endless: dict[bytes, CountedTokens] = {}
