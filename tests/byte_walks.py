"""Texts that masks allow, drawn byte by byte from a vocabulary of the 256 bytes."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

import structgen
from structgen.constraint import Constraint, Cursor

BYTES = structgen.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
END = 256


def _bits(cursor: Cursor) -> npt.NDArray[np.bool_]:
    mask = np.zeros((BYTES.size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    return np.unpackbits(mask.view(np.uint8), bitorder="little").view(bool)


def allowed(cursor: Cursor) -> list[int]:
    """The ids of the tokens that the mask of ``cursor`` allows, of `BYTES`."""
    found: list[int] = np.flatnonzero(_bits(cursor)).tolist()
    return found


def _where(ids: range | tuple[int, ...]) -> npt.NDArray[np.bool_]:
    where = np.zeros((BYTES.size + 31) // 32 * 32, bool)
    where[list(ids)] = True
    return where


_ENDS = _where((END, 0x22, 0x5D, 0x7D))
_OTHERS = _where(range(0x20, 0x7F)) & ~_ENDS
_REST = ~(_ENDS | _OTHERS)


def walk(constraint: Constraint, seed: int, budget: int) -> str:
    """A text that the masks allow, drawn byte by byte; it rarely ends before it must."""
    draw = random.Random(seed)
    cursor = constraint.start(max_tokens=max(budget, constraint.start().min_tokens_to_finish()))
    text = bytearray()
    while True:
        bits = _bits(cursor)
        ends, others, rest = (np.flatnonzero(bits & some) for some in (_ENDS, _OTHERS, _REST))
        pools = [pool for pool in (others, others, others, rest) if pool.size]
        may_end = ends.size and (not pools or draw.random() < 0.05)
        token = int(draw.choice(ends if may_end else draw.choice(pools)))
        if token == END:
            return text.decode()
        cursor.accept(token)
        text.append(token)
