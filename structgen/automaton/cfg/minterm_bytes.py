"""The bytes that characters begin with, by minterms: what a lexer's rows are made of.

`AtomBytes` knows an alphabet and its spelling in UTF-8, and no automaton.
"""

from __future__ import annotations

from structgen.automaton.bits import bits
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import GROUND, Utf8


class AtomBytes:
    """Bytes of sets of minterms, given as masks.

    Attributes:
        leads: lead bytes, each with the node of the encoding it leads to.
        minterm_of_byte: the minterm of each ASCII character; no minterm for the other bytes.
        of_minterm: the ASCII characters of one minterm, as a mask of bytes.
        leads_of: sets of minterms that lead bytes lead to, and those bytes as a mask.
        beyond_ascii: the minterms that have characters beyond ASCII.
    """

    def __init__(self, alphabet: Alphabet, encoding: Utf8) -> None:
        ascii_minterms = alphabet.ascii_minterms()
        ground: dict[int, list[int]] = {}
        for byte, minterm in enumerate(ascii_minterms):
            ground.setdefault(minterm, []).append(byte)
        self._ground = ground
        self.of_minterm = {minterm: _as_mask(found) for minterm, found in ground.items()}
        self.leads_of: dict[int, int] = {}
        row = encoding.row(GROUND)
        self.leads = [(byte, target) for byte, target in row.items() if target >= 0]
        self.beyond_ascii = 0
        for byte, target in self.leads:
            reach = encoding.reach(target)
            self.leads_of[reach] = self.leads_of.get(reach, 0) | 1 << byte
            self.beyond_ascii |= reach
        self.minterm_of_byte = [*ascii_minterms, *[alphabet.n_minterms] * 128]
        self._spellings = {minterm: len(found) for minterm, found in ground.items()}
        self._ascii: dict[int, list[int]] = {
            1 << minterm: found for minterm, found in ground.items()
        }
        self._widths: dict[int, int] = {}
        self._begins: dict[int, int] = {}

    def ascii(self, minterms: int) -> list[int]:
        """The ASCII characters of some minterms."""
        found = self._ascii.get(minterms)
        if found is None:
            ground = self._ground
            found = [byte for minterm in bits(minterms) for byte in ground.get(minterm, ())]
            self._ascii[minterms] = found
        return found

    def first(self, minterms: int) -> int:
        """The bytes with which characters of some minterms begin, as a mask."""
        found = self._begins.get(minterms)
        if found is None:
            found = 0
            for minterm in bits(minterms):
                found |= self.of_minterm.get(minterm, 0)
            for reach, mask in self.leads_of.items():
                if reach & minterms:
                    found |= mask
            self._begins[minterms] = found
        return found

    def width(self, minterms: int) -> int:
        """How many bytes there are in the characters of some minterms, about."""
        found = self._widths.get(minterms)
        if found is None:
            found = self._widths[minterms] = sum(self._spellings.get(a, 4) for a in bits(minterms))
        return found


def _as_mask(characters: list[int]) -> int:
    first, last = characters[0], characters[-1]
    if len(characters) == last - first + 1:
        return (1 << last + 1) - (1 << first)
    return sum([1 << byte for byte in characters])
