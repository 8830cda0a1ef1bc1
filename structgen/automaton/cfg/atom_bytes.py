"""The bytes that characters begin with, by atoms: what a lexer's rows are made of.

`AtomBytes` knows an alphabet and its spelling in UTF-8, and no automaton.
"""

from __future__ import annotations

from structgen.automaton.bits import bits
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import GROUND, Utf8


class AtomBytes:
    """Bytes of sets of atoms, given as masks.

    Attributes:
        leads: lead bytes, each with the node of the encoding it leads to.
        atom_of_byte: the atom of each ASCII character; no atom for the other bytes.
        of_atom: the ASCII characters of one atom, as a mask of bytes.
        leads_of: sets of atoms that lead bytes lead to, and those bytes as a mask.
        beyond_ascii: the atoms that have characters beyond ASCII.
    """

    def __init__(self, alphabet: Alphabet, encoding: Utf8) -> None:
        ascii_atoms = alphabet.ascii_atoms()
        ground: dict[int, list[int]] = {}
        for byte, atom in enumerate(ascii_atoms):
            ground.setdefault(atom, []).append(byte)
        self._ground = ground
        self.of_atom = {atom: _as_mask(found) for atom, found in ground.items()}
        self.leads_of: dict[int, int] = {}
        row = encoding.row(GROUND)
        self.leads = [(byte, target) for byte, target in row.items() if target >= 0]
        self.beyond_ascii = 0
        for byte, target in self.leads:
            reach = encoding.reach(target)
            self.leads_of[reach] = self.leads_of.get(reach, 0) | 1 << byte
            self.beyond_ascii |= reach
        self.atom_of_byte = [*ascii_atoms, *[alphabet.n_atoms] * 128]
        self._spellings = {atom: len(found) for atom, found in ground.items()}
        self._ascii: dict[int, list[int]] = {1 << atom: found for atom, found in ground.items()}
        self._widths: dict[int, int] = {}
        self._begins: dict[int, int] = {}

    def ascii(self, atoms: int) -> list[int]:
        """The ASCII characters of some atoms."""
        found = self._ascii.get(atoms)
        if found is None:
            ground = self._ground
            found = [byte for atom in bits(atoms) for byte in ground.get(atom, ())]
            self._ascii[atoms] = found
        return found

    def first(self, atoms: int) -> int:
        """The bytes with which characters of some atoms begin, as a mask."""
        found = self._begins.get(atoms)
        if found is None:
            found = 0
            for atom in bits(atoms):
                found |= self.of_atom.get(atom, 0)
            for reach, mask in self.leads_of.items():
                if reach & atoms:
                    found |= mask
            self._begins[atoms] = found
        return found

    def width(self, atoms: int) -> int:
        """How many bytes there are in the characters of some atoms, about."""
        found = self._widths.get(atoms)
        if found is None:
            found = self._widths[atoms] = sum(self._spellings.get(a, 4) for a in bits(atoms))
        return found


def _as_mask(characters: list[int]) -> int:
    first, last = characters[0], characters[-1]
    if len(characters) == last - first + 1:
        return (1 << last + 1) - (1 << first)
    return sum([1 << byte for byte in characters])
