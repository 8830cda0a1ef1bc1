"""Sets of small numbers, held as bit masks in Python ints."""

from __future__ import annotations


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set in ``mask``, ascending."""
    out = []
    while mask:
        bit = mask & -mask
        out.append(bit.bit_length() - 1)
        mask ^= bit
    return out
