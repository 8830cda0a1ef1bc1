"""Find the tokens that stay inside a text, by their characters.

For one encoding of characters (plain UTF-8, or the inside of a JSON string), `Characters` finds
which tokens stay in a set of characters from some nodes, and where they leave it. For the root it
caches the result with the length of each token (`Characters.slice`), so that a maximum length is
one comparison. Quotes, bytes that no text may contain and malformed UTF-8 belong to no set; reading
restarts after them. `AlphabetPoints` maps the minterms of an alphabet to characters of the
vocabulary.
"""

from __future__ import annotations

import functools
import weakref
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.automaton.bits import bits
from structgen.automaton.regex import Alphabet
from structgen.grammar.ir import MAX_CODE_POINT
from structgen.storage import GenerationalCache
from structgen.vocabulary import view

from .character_arrays import (
    Bools,
    CharacterArrays,
    CharacterRun,
    CountedTokens,
    Depths,
    Int32,
    Slice,
)

_MOST_SETS = 8
"""The most sets of characters that are searched for in order; more hardly ever improve the bound.
"""


class AlphabetPoints:
    """The characters of a vocabulary by the minterms of an alphabet.

    Attributes:
        weights: for each minterm, how many of the vocabulary's characters are in it.
        cut: the minterms that a character cut by a token's end may become; a superset.
    """

    def __init__(self, characters: Characters, alphabet: Alphabet) -> None:
        arrays = characters.arrays
        self._characters = characters
        # Not the alphabet itself, which lives as long as this object.
        self._starts, self._minterms, self._n_minterms = (
            alphabet.starts,
            alphabet.minterms,
            alphabet.n_minterms,
        )
        # The vocabulary's characters in each interval of the alphabet.
        cuts = np.searchsorted(arrays.points, alphabet.starts).tolist()
        self._intervals = list(pairwise([*cuts, len(arrays.points)]))
        self.weights = [0] * alphabet.n_minterms
        for minterm, (first, beyond) in zip(alphabet.minterms, self._intervals, strict=True):
            if minterm >= 0:
                self.weights[minterm] += beyond - first
        self._listed: list[tuple[tuple[int, bytes], ...] | None] = [None] * alphabet.n_minterms
        self.cut = alphabet.minterms_between(0x7F, MAX_CODE_POINT)
        if arrays.spelling in ("any", "any-ascii"):
            self.cut = alphabet.everything
        elif arrays.spelling != "utf8":
            for low, high in ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)):
                self.cut |= alphabet.minterms_between(low, high)
        self._alive_tails: dict[int, npt.NDArray[np.bool_]] = {}
        self._most_in_order: dict[tuple[int, ...], int] = {}
        # Not stored: large, and cached by content with the vocabulary.
        self._slices: weakref.WeakValueDictionary[int, Slice] = weakref.WeakValueDictionary()

    @functools.cached_property
    def minterms(self) -> Int32:
        """The minterm by `CharacterArrays.code`; the number of minterms for other bytes."""
        n_points = len(self._characters.arrays.points)
        minterms = np.full(n_points + 2, self._n_minterms, np.int32)
        for minterm, (first, beyond) in zip(self._minterms, self._intervals, strict=True):
            if minterm >= 0:
                minterms[first:beyond] = minterm
        return minterms

    @functools.cached_property
    def minterm_of(self) -> Sequence[int]:
        """`minterms` for single look-ups."""
        return view(self.minterms)

    def listed(self, minterm: int) -> tuple[tuple[int, bytes], ...]:
        """Return the vocabulary's characters in ``minterm``, with their unescaped bytes."""
        found = self._listed[minterm]
        if found is None:
            arrays = self._characters.arrays
            points = [
                int(point)
                for other, (first, beyond) in zip(self._minterms, self._intervals, strict=True)
                if other == minterm
                for point in arrays.points[first:beyond]
            ]
            found = tuple((point, arrays.plain(point)) for point in points)
            self._listed[minterm] = found
        return found

    @functools.cached_property
    def reach_of_tails(self) -> tuple[list[int], npt.NDArray[np.int64]]:
        """The minterms that each tail may become: the distinct sets, and the index of each tail's
        set."""
        arrays = self._characters.arrays
        tail, first, last = arrays.tail_spans.T
        starts = np.asarray(self._starts)
        low = np.searchsorted(starts, first, "right") - 1
        high = np.searchsorted(starts, last, "right") - 1
        spans = (low * len(starts) + high).tolist()
        of_span: dict[int, int] = {}
        for span in set(spans):
            mask = 0
            for minterm in self._minterms[span // len(starts) : span % len(starts) + 1]:
                mask |= 1 << minterm if minterm >= 0 else 0
            of_span[span] = mask
        by_tail = [0] * len(arrays.tails)
        for at, span in zip(tail.tolist(), spans, strict=True):
            by_tail[at] |= of_span[span]
        masks: dict[int, int] = {}
        kinds_of_tails = [masks.setdefault(mask, len(masks)) for mask in by_tail]
        return list(masks), np.array(kinds_of_tails, np.int64)

    def slice(self, chars: int) -> Slice:
        """`Characters.slice` of the minterms ``chars``."""
        found = self._slices.get(chars)
        if found is None:
            found = self._slices[chars] = self._characters.slice(self.inside(chars))
        return found

    def holds(self, chars: int) -> npt.NDArray[np.bool_]:
        """Return flags by minterm, and for other bytes: whether it is one of ``chars``."""
        found = np.zeros(self._n_minterms + 1, bool)
        found[bits(chars)] = True
        return found

    def inside(self, chars: int) -> npt.NDArray[np.bool_]:
        """Return flags by `CharacterArrays.code`: whether the minterm is one of ``chars``."""
        inside: npt.NDArray[np.bool_] = self.holds(chars)[self.minterms]
        return inside

    def most_in_order(self, masks: Sequence[int], is_searched: bool) -> int | None:
        """`Characters.most_in_order` of some sets of minterms; None if that would have to be
        searched for and is not to be."""
        key = (*masks[:_MOST_SETS],)
        found = self._most_in_order.get(key)
        if found is None:
            sets = [self.inside(mask) for mask in key]
            found = self._characters.most_in_order(sets, is_searched)
            if found is not None:
                self._most_in_order[key] = found
        return found

    def tails_of(self, live: int) -> npt.NDArray[np.bool_] | None:
        """Return which `CharacterArrays.tails` begin a character in ``live``, or None."""
        if not live & self.cut:
            return None
        found = self._alive_tails.get(live)
        if found is None:
            masks, which = self.reach_of_tails
            found = np.array([bool(mask & live) for mask in masks], bool)[which]
            self._alive_tails[live] = found
            self._characters.charge(found.nbytes + 100)
        return found


class Whole(NamedTuple):
    """The walk of any text from some nodes.

    Attributes:
        places: the nodes, int32, as bytes.
        counted: from the root, the tokens that are text; those that end inside a character are
            ``others``.
        ids: the tokens that are text; from the root, those that end inside a character.
        quotes: bool ``[len(Characters.quotes)]``; the closing quotes that end a text.
    """

    places: bytes
    counted: CountedTokens | None
    ids: Int32
    quotes: npt.NDArray[np.bool_]


class Characters:
    """Tokens that stay inside a text, by sets of characters.

    Args:
        arrays: the trie as characters.

    Attributes:
        charge: called with the bytes of each cache entry.
        cache: makes a cache within a byte budget.
        strings: for `string_walks`: walks of texts by content, for any automaton.
    """

    def __init__(self, arrays: CharacterArrays) -> None:
        self.arrays = arrays
        self.charge = arrays.charge
        self.cache = cache = arrays.cache
        self._slices: GenerationalCache[bytes, Slice] = cache()
        self._runs: GenerationalCache[tuple[bytes, bytes], CharacterRun] = cache()
        self._wholes: GenerationalCache[bytes, Whole] = cache()
        self._spelt: GenerationalCache[str, tuple[bytes, int]] = cache()
        self._most: GenerationalCache[bytes, int] = cache()
        self._by_alphabet: GenerationalCache[Any, AlphabetPoints] = cache()
        self.strings: GenerationalCache[bytes, tuple[Any, ...]] = cache()

    @property
    def n_bytes(self) -> int:
        """The size of its arrays in bytes."""
        arrays = [value for value in vars(self.arrays).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    def points_of(self, alphabet: Alphabet) -> AlphabetPoints:
        """Return the characters by the minterms of ``alphabet``."""
        found = self._by_alphabet[alphabet.key]
        if found is None:
            found = self._by_alphabet[alphabet.key] = AlphabetPoints(self, alphabet)
            self.charge(4 * len(self.arrays.points) + 100 * len(alphabet.starts) + 1000)
        return found

    # -- nodes ----------------------------------------------------------------------------------

    def endless(self, cut: Slice, alive: Bools) -> CountedTokens:
        """Return the tokens of an endless run from the root; those that end inside a character
        after it are ``others``.

        Args:
            cut: the slice of the run's characters.
            alive: bool ``[len(tails)]``, the tails that may begin such a character.
        """
        arrays = self.arrays
        key = alive.tobytes()
        found = cut.endless.get(key)
        if found is None:
            chosen, _ = cut.run.partials()
            ids: Int32 = arrays.partial[chosen[alive[arrays.partial_tail[chosen]]]]
            found = cut.endless[key] = CountedTokens(cut.tokens.counts, ids)
            self.charge(ids.nbytes + len(key) + 200)
        return found

    def spelt(self, text: str) -> tuple[bytes, int]:
        """Return the tokens that begin ``text``, and the one of `quotes` after them, or -1.

        The tokens are the bytes of an int32 array: there are thousands of results, and unlike
        arrays or lists, the garbage collector soon ignores bytes and the tuple around them.

        ``text`` is printable ASCII without quotes and backslashes, as in `plain`.
        """
        arrays = self.arrays
        found = self._spelt[text]
        if found is None:
            views, child = arrays.views, arrays.trie.child
            ids, at = array("i"), 0
            for byte in text.encode("ascii"):
                at = child.get(at << 8 | byte, 0)
                if not at:
                    break
                place = views.place[at]
                ids.extend(views.token_ids[views.token_start[place] : views.own_stop[place]])
            quote = arrays.quote_below(views.place[at]) if at or not text else -1
            found = self._spelt[text] = ids.tobytes(), quote
            self.charge(4 * len(ids) + len(text) + 300)
        return found

    # -- sets of characters ---------------------------------------------------------------------

    def slice(self, inside: Bools) -> Slice:
        """Return the slice of a set of characters; ``inside``: bool ``[len(points) + 2]``.

        Cost: about 0.4 ms for a new set at 128k tokens; cached by content.
        """
        key = np.packbits(inside).tobytes()
        found = self._slices[key]
        if found is None:
            run = CharacterRun(self.arrays, inside, np.zeros(1, np.int32))
            found = self._slices[key] = Slice(run)
            self.charge(found.tokens.counts.nbytes + run.left.nbytes + 5000)
        return found

    def run(self, inside: Bools, places: Int32) -> CharacterRun:
        """Return the run of a set from ``places``, ascending nodes none of which is below another.

        Cached by content: repeated words end at the same nodes in every state.
        """
        key = np.packbits(inside).tobytes(), places.tobytes()
        found = self._runs[key]
        if found is None:
            found = self._runs[key] = CharacterRun(self.arrays, inside, places)
            self.charge(found.left.nbytes + 2 * places.nbytes + len(key[0]) + 1000)
        return found

    def whole(self, places: Int32) -> Whole:
        """Return all tokens that are text from one of ``places``, which do not nest."""
        arrays = self.arrays
        key = places.tobytes()
        found = self._wholes[key]
        if found is None:
            inside = np.ones(len(arrays.points) + 2, bool)
            inside[-2:] = False
            counts: Depths | None = None
            if len(places) == 1 and not places[0]:
                cut = self.slice(inside)
                run, counts = cut.run, cut.tokens.counts
            else:
                run = self.run(inside, places)
            chosen, _ = run.partials()
            text = np.zeros(len(arrays.tails), bool)
            text[arrays.tail_spans[:, 0]] = True
            ids = arrays.partial[chosen[text[arrays.partial_tail[chosen]]]]
            counted = None
            if counts is None:
                ids = np.concatenate((run.tokens(arrays.longest), ids))
            else:
                counted = CountedTokens(counts, ids)
            quotes = np.zeros(len(arrays.quotes), bool)
            quotes[run.quotes()[0]] = True
            found = self._wholes[key] = Whole(key, counted, ids, quotes)
            self.charge(len(key) + ids.nbytes + quotes.nbytes + 300)
        return found

    @functools.cached_property
    def _levels(self) -> tuple[Int32, list[tuple[int, int]]]:
        """In order of depth: the index of each node's parent, and the levels below the root."""
        arrays = self.arrays
        rank = np.empty(arrays.n, np.int32)
        rank[arrays.by_depth] = np.arange(arrays.n, dtype=np.int32)
        starts = np.concatenate(([0], np.cumsum(np.bincount(arrays.depth[:-1])))).tolist()
        return rank[arrays.parent[arrays.by_depth]], list(pairwise(starts))[1:]

    def most_in_order(self, sets: Sequence[Bools], is_searched: bool = True) -> int | None:
        """Return how often a token can contain characters of all these sets, one after another.

        Other characters may be between them: ``(?:\\S+\\s+){n}`` needs n times a character that is
        not a blank, and a blank later; no token of Llama 3.1 has two such pairs.

        Args:
            sets: at most 8, each bool ``[len(points) + 2]``.
            is_searched: whether to search if the result is not cached; otherwise None is returned.

        Cost: a millisecond; cached by content.
        """
        arrays = self.arrays
        sets_as_bytes = b"".join(np.packbits(inside).tobytes() for inside in sets)
        key = blake2b(sets_as_bytes, digest_size=16).digest()
        found = self._most[key]
        if found is None and is_searched:
            sets_of = np.zeros(len(arrays.points) + 2, np.uint8)
            for i, inside in enumerate(sets):
                sets_of[inside] |= np.uint8(1 << i)
            flat_parent, levels = self._levels
            held = sets_of[arrays.code[arrays.by_depth]]
            n_sets = len(sets)
            # The index of the next set in the low four bits; above, how often all were found.
            kind = np.uint16 if arrays.longest < 1 << 12 else np.uint32
            found_at = np.zeros(arrays.n, kind)
            for a, b in levels:
                now = found_at[flat_parent[a:b]]
                now += held[a:b] >> (now & 15) & 1
                now[now & 15 == n_sets] += 16 - n_sets
                found_at[a:b] = now
            times = found_at >> 4
            found = self._most[key] = int(times.max())
            self.charge(len(key) + 100)
        return found
