"""Alphabets of atoms: the code points cut into the few classes that a language can tell apart.

A language built from a handful of character sets cannot distinguish code points that lie in exactly
the same of them. `Alphabet` computes those classes (atoms, the minterms of D'Antoni & Veanes 2017)
once; afterwards a character set is a bit mask over atoms, held in a Python int, and set operations
are integer operations. This module knows nothing of bytes, regular expressions or JSON.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from structgen.automaton.bits import bits
from structgen.grammar.ir import MAX_CODE_POINT, SURROGATES, Ranges

NO_ATOM = -1


class Alphabet:
    """A partition of the Unicode scalar values into atoms ``0 .. n_atoms - 1``.

    Attributes:
        n_atoms: number of classes.
        everything: mask with every atom's bit set.
        starts: sorted first code points of the intervals; ``atoms[i]`` is the atom of interval i
            (`NO_ATOM` for the surrogates, which no text contains).
        key: a hashable value equal for equal partitions.
    """

    __slots__ = (
        "__weakref__",
        "_ascii",
        "_masks",
        "atoms",
        "everything",
        "key",
        "n_atoms",
        "representatives",
        "starts",
    )

    def __init__(self, sets: Iterable[Ranges]) -> None:
        distinct = sorted(set(sets))
        events: dict[int, int] = {0: 0, SURROGATES[0]: 0, SURROGATES[1] + 1: 0}
        for index, ranges in enumerate(distinct):
            bit = 1 << index
            for low, high in ranges:
                events[low] = events.get(low, 0) ^ bit
                events[high + 1] = events.get(high + 1, 0) ^ bit
        events.pop(MAX_CODE_POINT + 1, None)
        starts: list[int] = []
        atoms: list[int] = []
        representatives: list[int] = []
        by_signature: dict[int, int] = {}
        signature = 0
        for start in sorted(events):
            signature ^= events[start]
            if start == SURROGATES[0]:
                atom = NO_ATOM
            else:
                found = by_signature.get(signature)
                if found is None:
                    found = by_signature[signature] = len(by_signature)
                    representatives.append(start)
                atom = found
            if atoms and atoms[-1] == atom:
                continue
            starts.append(start)
            atoms.append(atom)
        # Tuples of numbers: unlike lists, the garbage collector soon leaves them alone.
        self.starts, self.atoms = tuple(starts), tuple(atoms)
        self.representatives = tuple(representatives)
        self.n_atoms = len(by_signature)
        self.everything = (1 << self.n_atoms) - 1
        self.key = (self.starts, self.atoms)
        self._ascii: tuple[int, ...] = ()
        masks = [0] * len(distinct)
        for signature, atom in by_signature.items():
            for index in bits(signature):
                masks[index] |= 1 << atom
        self._masks: dict[Ranges, int] = dict(zip(distinct, masks, strict=True))

    def atom(self, code_point: int) -> int:
        """The atom of ``code_point`` (`NO_ATOM` for a surrogate)."""
        return self.atoms[bisect_right(self.starts, code_point) - 1]

    def ascii_atoms(self) -> tuple[int, ...]:
        """The atom of each of the code points below 128."""
        if not self._ascii:
            found: list[int] = []
            for atom, (first, beyond) in zip(
                self.atoms, pairwise((*self.starts, MAX_CODE_POINT + 1)), strict=True
            ):
                found += [atom] * (min(beyond, 0x80) - first)
                if beyond >= 0x80:
                    break
            self._ascii = tuple(found)
        return self._ascii

    def mask(self, ranges: Ranges) -> int:
        """The atoms of one of the sets that the alphabet was built from."""
        return self._masks[ranges]

    def atoms_between(self, low: int, high: int) -> int:
        """Mask of the atoms that occur in ``low .. high`` (surrogates count for nothing)."""
        if low > high:
            return 0
        mask = 0
        i = bisect_right(self.starts, low) - 1
        while i < len(self.starts) and self.starts[i] <= high:
            atom = self.atoms[i]
            if atom >= 0:
                mask |= 1 << atom
            i += 1
        return mask

    def single_atom(self, low: int, high: int) -> int:
        """The one atom that fills ``low .. high`` completely, or `NO_ATOM`."""
        i = bisect_right(self.starts, low) - 1
        if i + 1 < len(self.starts) and self.starts[i + 1] <= high:
            return NO_ATOM
        return self.atoms[i]

    def sample(self, mask: int) -> str:
        """A character of one of the atoms in ``mask``, an ordinary one where there is any."""
        for char in _ORDINARY:
            if mask >> self.atom(ord(char)) & 1:
                return char
        return chr(self.representatives[(mask & -mask).bit_length() - 1])


_ORDINARY = "abcdefghijklmnopqrstuvwxyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ ./:@"
