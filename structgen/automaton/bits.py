"""Sets of small numbers, held as bit masks in Python ints."""

from __future__ import annotations

_LONG = 256
"""Masks with at least this many bits are converted to a list first: clearing a bit costs time
proportional to the mask's length."""


def bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set in ``mask``, ascending."""
    out: list[int] = []
    if mask.bit_length() > _LONG:
        digits = bin(mask)[:1:-1]
        at = digits.find("1")
        while at >= 0:
            out.append(at)
            at = digits.find("1", at + 1)
        return out
    while mask:
        bit = mask & -mask
        out.append(bit.bit_length() - 1)
        mask ^= bit
    return out
