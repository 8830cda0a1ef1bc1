"""The minterms of an alphabet as the characters that occur in a vocabulary.

Everything here depends on the alphabet and the vocabulary alone, not on an automaton's states: one
for all texts over one alphabet (`Characters.points_of`). It knows nothing of walks.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import Alphabet
from structgen.grammar.ir import MAX_CODE_POINT
from structgen.vocabulary import view

from .character_arrays import Bools, CharacterArrays, Int32, LongEdge
from .lone_runs import Slice

_MOST_SETS = 8
"""Most sets of characters that are looked for in order; more hardly ever tell more."""


class LongAtoms(NamedTuple):
    """`Characters.long`, beyond one level, by minterms, edge by edge.

    Attributes:
        below: the edges that go on from it.
        spelt: its characters: minterms, each with how often in a row.
        lengths: characters from the root to its end, but the first,
        masks: and their minterms.
        first: minterm → the edges of all ways that begin with it.
    """

    below: list[tuple[int, ...]]
    spelt: list[tuple[tuple[int, int], ...]]
    lengths: list[int]
    masks: list[int]
    first: dict[int, tuple[int, ...]]


class CharacterSets(Protocol):
    """What is asked here of `characters.Characters`."""

    @property
    def arrays(self) -> CharacterArrays:
        """See `Characters`."""

    @property
    def charge(self) -> Callable[[int], None]:
        """See `Characters`."""

    def long(self, level: int) -> list[LongEdge]:
        """See `Characters`."""

    def slice(self, inside: Bools) -> Slice:
        """See `Characters`."""

    def most_in_order(self, sets: Sequence[Bools], is_searched: bool = True) -> int | None:
        """See `Characters`."""


class AlphabetPoints:
    """The characters of a vocabulary by the minterms of an alphabet.

    Args:
        characters: the vocabulary.
        alphabet: the alphabet.

    Attributes:
        weights: per minterm, how many of the vocabulary's characters are in it.
        cut: the minterms that a character cut by a token's end may become, and more.
    """

    def __init__(self, characters: CharacterSets, alphabet: Alphabet) -> None:
        arrays = characters.arrays
        self._characters = characters
        # Not the alphabet itself: this is kept for as long as it lives.
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
        self._long: dict[int, LongAtoms] = {}
        # Not held: large, and kept by content with the vocabulary.
        self._slices: weakref.WeakValueDictionary[int, Slice] = weakref.WeakValueDictionary()

    @functools.cached_property
    def minterms(self) -> Int32:
        """By `Characters.code`; the number of minterms for what is no text."""
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
        """The vocabulary's characters in ``minterm``, with their plain spellings."""
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
        """The minterms each tail may become: the different sets, and which of them is whose."""
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
        """By minterm, and for what is no text: whether it is one of ``chars``."""
        found = np.zeros(self._n_minterms + 1, bool)
        while chars:
            bit = chars & -chars
            chars ^= bit
            found[bit.bit_length() - 1] = True
        return found

    def inside(self, chars: int) -> npt.NDArray[np.bool_]:
        """By `Characters.code`: whether a character is of the minterms ``chars``."""
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
        """For each of `Characters.tails`, whether some character that begins so is in ``live``.

        None for none.
        """
        if not live & self.cut:
            return None
        found = self._alive_tails.get(live)
        if found is None:
            masks, which = self.reach_of_tails
            found = np.array([bool(mask & live) for mask in masks], bool)[which]
            self._alive_tails[live] = found
            self._characters.charge(found.nbytes + 100)
        return found

    def long(self, level: int) -> LongAtoms:
        """The way to tokens of more than ``level`` characters."""
        known = self._long.get(level)
        if known is not None:
            return known
        edges = self._characters.long(level)
        sizes = np.array([len(edge.codes) for edge in edges], np.int64)
        starts = np.cumsum(sizes) - sizes
        every = self.minterms[np.array([code for edge in edges for code in edge.codes], np.int64)]
        changes = np.ones(len(every), bool)
        changes[1:] = every[1:] != every[:-1]
        changes[starts] = True
        at = changes.nonzero()[0]
        times = np.diff(at, append=len(every)).tolist()
        pieces = tuple(zip(every[at].tolist(), times, strict=True))
        bounds = [*np.searchsorted(at, starts).tolist(), len(at)]
        below: list[list[int]] = [[] for _ in edges]
        spelt = [pieces[a:b] for a, b in pairwise(bounds)]
        lengths: list[int] = []
        masks: list[int] = []
        begins: list[int] = []
        first: dict[int, list[int]] = {}
        for i, edge in enumerate(edges):
            if edge.above < 0:
                begin, length, mask = spelt[i][0][0], 0, 0
            else:
                below[edge.above].append(i)
                begin = begins[edge.above]
                length = lengths[edge.above] + len(edge.codes)
                mask = masks[edge.above]
                for minterm, _ in spelt[i]:
                    mask |= 1 << minterm
            begins.append(begin)
            lengths.append(length)
            masks.append(mask)
            first.setdefault(begin, []).append(i)
        self._characters.charge(300 * len(edges) + 100 * len(pieces))
        # Tuples of numbers: unlike lists, the garbage collector soon leaves them alone.
        found = self._long[level] = LongAtoms(
            [(*longer,) for longer in below],
            spelt,
            lengths,
            masks,
            {minterm: (*ways,) for minterm, ways in first.items()},
        )
        return found
