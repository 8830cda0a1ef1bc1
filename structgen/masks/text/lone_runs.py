"""Texts of which nothing is left but one run of a set: ``.{0,37}``, ``[0-9a-f]*``, ``\\w{2,9}``.

What such a text does at the root depends on the set and on two bounds. The set is most of it, and
looked at once: in what order its tokens, closing quotes and characters cut by a token's end come,
by the characters before them. What is left to do for two bounds is to cut these lists.

A `LoneRun` knows one set and the vocabulary's characters; automata are unknown here, and what
follows a text is `string_walks`' business.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.storage import GenerationalCache
from structgen.vocabulary import view

from .character_arrays import Bools, CharacterArrays, Depths, Int32
from .character_runs import Run

Bits: TypeAlias = npt.NDArray[np.uint32]

_FEW = 600
"""Tokens of a set, or of a set beyond some length, that are listed one by one."""


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
        lone: for `runs`: the run as all of a text. Sets that differ by characters that no
            token holds have one slice, but may go on otherwise after a character that is cut: so by
            the tails that may follow, as bytes.
    """

    __slots__ = ("__weakref__", "endless", "lone", "run", "tokens")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tokens = CountedTokens(run.counts(), None)
        self.endless: dict[bytes, CountedTokens] = {}
        self.lone: dict[bytes, LoneRun] = {}


class LoneRun:
    """What texts of one set do from the root, whatever their bounds.

    Args:
        characters: the vocabulary.
        cut: the set.
        alive: `AlphabetPoints.tails_of` of it.

    Attributes:
        longest: bounds from here on are as good as none.
        walks: for the walks of whole strings, by their bounds; see `bounds`.
        rows: for the answers of `first`,
        quotes_known: and for what follows closing quotes, by `quote_bounds`.

    Cost: 0.1 ms at 128k tokens.
    """

    __slots__ = (
        "_characters",
        "_ids",
        "_last_quote",
        "_level",
        "_partial_ids",
        "_partial_steps",
        "_quote_steps",
        "_quotes",
        "_steps",
        "counts",
        "longest",
        "quotes_known",
        "rows",
        "walks",
    )

    def __init__(self, characters: CharacterArrays, cut: Slice, alive: Bools | None) -> None:
        self._characters = characters
        self.counts = counts = cut.tokens.counts
        self.walks: GenerationalCache[tuple[int, int], tuple[Any, ...]] = characters.cache()
        self.rows: GenerationalCache[int, Bits] = characters.cache()
        self.quotes_known: GenerationalCache[tuple[int, int], tuple[Any, ...]] = characters.cache()
        self._quotes, self._quote_steps = cut.run.quotes()
        self._partial_ids: Int32 = np.zeros(0, np.int32)
        self._partial_steps = np.zeros(0, np.int64)
        if alive is not None:
            chosen, steps = cut.run.partials()
            keep = alive[characters.partial_tail[chosen]]
            self._partial_ids = characters.partial[chosen[keep]]
            self._partial_steps = steps[keep].astype(np.int64)
        self._level = -1
        is_inside = counts != np.iinfo(counts.dtype).max
        n_inside = int(np.count_nonzero(is_inside))
        if n_inside + len(self._partial_ids) > _FEW:
            # A number of characters that few tokens exceed.
            lengths = range(characters.longest)
            few = n_inside - _FEW // 2
            self._level = bisect_left(lengths, few, key=self._up_to)
            is_inside &= counts > self._level
        inside = is_inside.nonzero()[0]
        # A character that is cut needs room for itself.
        late = self._partial_steps >= self._level
        ids = np.concatenate((inside.astype(np.int32), self._partial_ids[late]))
        steps = np.concatenate((counts[inside].astype(np.int64), self._partial_steps[late] + 1))
        order = np.argsort(steps, kind="stable")
        self._ids: Int32 = ids[order]
        self._steps = view(steps[order])
        self._last_quote = int(self._quote_steps.max()) if len(self._quote_steps) else 0
        last = int(self._steps[-1]) if len(steps) else 0
        self.longest = max(self._last_quote, last, self._level)

    def _up_to(self, most: int) -> int:
        """Tokens of the set of at most so many characters."""
        return int(np.count_nonzero(self.counts <= most))

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays."""
        quotes = 2 * self._quotes.nbytes
        return 12 * len(self._ids) + 12 * len(self._partial_ids) + quotes + 1000

    def bounds(self, least: int, most: int) -> tuple[int, int]:
        """The bounds that a walk can tell ``least`` and ``most`` (-1: none) from, as a key."""
        top = self.longest
        return min(least, top + 1), top if most < 0 else min(most, top)

    def tokens(self, most: int) -> tuple[int, Int32]:
        """Tokens of at most so many characters: all of those of a first few characters, and others.

        Returns:
            What to ask `first` for, -1 for none; and the others.
        """
        return min(self._level, most), self._ids[: bisect_right(self._steps, most)]

    def first(self, most: int, n_words: int) -> Bits:
        """The tokens of at most so many characters as bits, ``[n_words]``."""
        flags = np.zeros(32 * n_words, bool)
        np.less_equal(self.counts, most, out=flags[: len(self.counts)])
        flags[self._partial_ids[self._partial_steps < most]] = True
        return np.packbits(flags, bitorder="little").view("<u4")

    def quote_bounds(self, least: int, most: int) -> tuple[int, int]:
        """The bounds that closing quotes can tell `bounds` from."""
        return min(least, self._last_quote + 1), min(most, self._last_quote)

    def quotes(self, least: int, most: int) -> Bools | None:
        """Which of `Characters.quotes` may close the text; None for none."""
        steps = self._quote_steps
        chosen = self._quotes[(steps >= least) & (steps <= most)]
        if not len(chosen):
            return None
        found = np.zeros(len(self._characters.quotes), bool)
        found[chosen] = True
        return found
