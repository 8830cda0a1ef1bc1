"""Alphabets of minterms: code points divided into the few classes that a language distinguishes.

A language of a few character sets cannot distinguish code points that are in the same sets.
`Alphabet` computes these classes (minterms; D'Antoni & Veanes 2017) once. Then a character set is a
bit mask over minterms in a Python int, and set operations are integer operations. Knows no bytes,
regular expressions or JSON.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice, pairwise

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.grammar.ir import MAX_CODE_POINT, SURROGATES, Ranges

NO_ATOM = -1


class Alphabet:
    """A partition of the Unicode scalar values into minterms ``0 .. n_minterms - 1``.

    Attributes:
        n_minterms: number of classes.
        everything: mask with every minterm's bit set.
        starts: sorted first code points of the intervals; ``minterms[i]`` is the minterm of
            interval i (`NO_ATOM` for the surrogates, which no text contains).
        key: a hashable value, the same for equal partitions.
    """

    __slots__ = (
        "__weakref__",
        "_ascii",
        "_masks",
        "everything",
        "key",
        "minterms",
        "n_minterms",
        "representatives",
        "starts",
    )

    def __init__(self, sets: Iterable[Ranges]) -> None:
        distinct = sorted(set(sets))
        # Each set has a bit for each minterm, and there are as many minterms as sets.
        WORK.spend(len(distinct) ** 2 >> 10)
        WORK.hold(len(distinct) ** 2 >> 2)
        events: dict[int, int] = {0: 0, SURROGATES[0]: 0, SURROGATES[1] + 1: 0}
        for index, ranges in enumerate(distinct):
            bit = 1 << index
            for low, high in ranges:
                events[low] = events.get(low, 0) ^ bit
                events[high + 1] = events.get(high + 1, 0) ^ bit
        events.pop(MAX_CODE_POINT + 1, None)
        starts: list[int] = []
        minterms: list[int] = []
        representatives: list[int] = []
        by_signature: dict[int, int] = {}
        signature = 0
        for start in sorted(events):
            signature ^= events[start]
            if start == SURROGATES[0]:
                minterm = NO_ATOM
            else:
                found = by_signature.get(signature)
                if found is None:
                    found = by_signature[signature] = len(by_signature)
                    representatives.append(start)
                minterm = found
            if minterms and minterms[-1] == minterm:
                continue
            starts.append(start)
            minterms.append(minterm)
        # Tuples of numbers: unlike lists, the garbage collector soon stops visiting them.
        self.starts, self.minterms = tuple(starts), tuple(minterms)
        self.representatives = tuple(representatives)
        self.n_minterms = len(by_signature)
        self.everything = (1 << self.n_minterms) - 1
        self.key = (self.starts, self.minterms)
        self._ascii: tuple[int, ...] = ()
        masks = [0] * len(distinct)
        for signature, minterm in by_signature.items():
            WORK.spend(signature.bit_count() >> 5)
            for index in bits(signature):
                masks[index] |= 1 << minterm
        self._masks: dict[Ranges, int] = dict(zip(distinct, masks, strict=True))

    def minterm(self, code_point: int) -> int:
        """Return the minterm of ``code_point`` (`NO_ATOM` for a surrogate)."""
        return self.minterms[bisect_right(self.starts, code_point) - 1]

    def ascii_minterms(self) -> tuple[int, ...]:
        """Return the minterm of each of the code points below 128."""
        if not self._ascii:
            found: list[int] = []
            for minterm, (first, beyond) in zip(
                self.minterms, pairwise((*self.starts, MAX_CODE_POINT + 1)), strict=True
            ):
                found += [minterm] * (min(beyond, 0x80) - first)
                if beyond >= 0x80:
                    break
            self._ascii = tuple(found)
        return self._ascii

    def mask(self, ranges: Ranges) -> int:
        """Return the minterms of one of the sets that the alphabet was built from."""
        return self._masks[ranges]

    def minterms_between(self, low: int, high: int) -> int:
        """Return the mask of the minterms that occur in ``low .. high``, without surrogates."""
        if low > high:
            return 0
        mask = 0
        i = bisect_right(self.starts, low) - 1
        while i < len(self.starts) and self.starts[i] <= high:
            minterm = self.minterms[i]
            if minterm >= 0:
                mask |= 1 << minterm
            i += 1
        return mask

    def single_minterm(self, low: int, high: int) -> int:
        """Return the minterm that contains all of ``low .. high``, or `NO_ATOM`."""
        i = bisect_right(self.starts, low) - 1
        if i + 1 < len(self.starts) and self.starts[i + 1] <= high:
            return NO_ATOM
        return self.minterms[i]

    def samples(self, mask: int, most: int) -> list[str]:
        """Return up to ``most`` characters of the minterms in ``mask``, ordinary ones first."""
        minterms = self.ascii_minterms()
        found = [char for char in _ORDINARY if mask >> minterms[ord(char)] & 1][:most]
        runs = zip(self.minterms, pairwise((*self.starts, MAX_CODE_POINT + 1)), strict=True)
        while len(found) < most and (run := next(runs, None)) is not None:
            its_own, bounds = run
            if its_own >= 0 and mask >> its_own & 1:
                others = (char for char in map(chr, range(*bounds)) if char not in _ORDINARY)
                found += islice(others, most - len(found))
        return found


_ORDINARY = "abcdefghijklmnopqrstuvwxyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ ./:@"
