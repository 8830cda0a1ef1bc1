"""Texts that masks allow, drawn byte by byte from a vocabulary of the 256 bytes."""

from __future__ import annotations

import random

import numpy as np

import structgen
from structgen.constraint import Constraint, Cursor

BYTES = structgen.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
END = 256


def allowed(cursor: Cursor) -> list[int]:
    """The ids of the tokens that the mask of ``cursor`` allows, of `BYTES`."""
    mask = np.zeros((BYTES.size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    found: list[int] = np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), bitorder="little")
    ).tolist()
    return found


def walk(constraint: Constraint, seed: int, budget: int) -> str:
    """A text that the masks allow, drawn byte by byte; it rarely ends before it must."""
    draw = random.Random(seed)
    cursor = constraint.start(max_tokens=max(budget, constraint.start().min_tokens_to_finish()))
    text = bytearray()
    while True:
        tokens = allowed(cursor)
        ends = [token for token in tokens if token in (END, 0x22, 0x5D, 0x7D)]
        others = [token for token in tokens if token not in ends and 0x20 <= token < 0x7F]
        rest = [token for token in tokens if token not in ends and token not in others]
        pools = [pool for pool in (others, others, others, rest) if pool]
        may_end = ends and (not pools or draw.random() < 0.05)
        token = draw.choice(ends if may_end else draw.choice(pools))
        if token == END:
            return text.decode()
        cursor.accept(token)
        text.append(token)
