"""Token ids, few by themselves and many as packed bits, and walks that end in them.

It owns how sets of tokens are put together. It knows no tries, lexers or grammars.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.masks.grouping import BIT, bits_of

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = "tuple[int, ...]"
"""A few token ids, repeats allowed."""

Rows: TypeAlias = "tuple[Bits, ...]"
"""Packed masks."""

Packed: TypeAlias = "bytes | bytearray | memoryview"
"""A packed mask as bytes."""

_FEW = 100
"""More token ids than this, and they are packed."""
_FEW_OF_TERMINAL = 24
"""The same for what a single terminal does, which many walks and masks are put together from."""
_MANY = 200
"""More than these, and NumPy sets them faster than we do."""
_MOST_ROWS = 6
"""More rows than this, and they become one. Most walks have the same few."""


class LexerWalk(NamedTuple):
    """What a lexer does from one node.

    Attributes:
        ids: tokens that end inside, or exactly where a terminal may end.
        rows: further ones, as packed masks.
        exits: ``(outcome, node)`` pairs: where terminals may end and a token goes on.
        ends: lexer states in which those tokens end; ``~q`` for all those inside a character that
            begins in ``q`` (`Walks.inside_characters`).
        number: what no other walk of this process has, of a lexer or a goal.
    """

    ids: Ids
    rows: Rows
    exits: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]
    number: int


new_number = itertools.count(1).__next__
"""A number for a walk."""


def gathered(ids: list[int], rows: Sequence[Bits], n_words: int) -> tuple[Ids, Rows, int]:
    """Token ids and packed masks, repeats allowed, as few of either as a walk may have; and the
    bytes that they take beside ``rows``."""
    if len(ids) <= _FEW and len(rows) < 2:
        return tuple(ids), tuple(rows), 8 * len(ids)
    size = 0
    if len(ids) > _FEW:
        different = set(ids)
        if len(different) > _FEW:
            rows = [*rows, bits_of(list(different), n_words)]
            ids = []
            size = 4 * n_words
        else:
            ids = list(different)
    if len(rows) > 1:
        rows = _different(rows)
        if len(rows) > _MOST_ROWS:
            rows = (_union(rows),)
            size += 4 * n_words
    return tuple(ids), tuple(rows), size + 8 * len(ids) + 8 * len(rows)


def gathered_arrays(
    ids: list[int], parts: list[bytes], rows: list[Bits], n_words: int
) -> tuple[Ids, Rows]:
    """As `gathered`, with token ids as bytes as well, int32 each."""
    more = np.frombuffer(b"".join(parts), np.int32)
    if len(ids) + len(more) <= _FEW_OF_TERMINAL:
        ids = ids + more.tolist()
    else:
        rows, ids = [*rows, bits_of(np.append(more, np.array(ids, np.int32)), n_words)], []
    few, packed, _ = gathered(ids, rows, n_words)
    return few, packed


def overlay(ids: list[int], rows: Sequence[Bits], nothing: bytes) -> tuple[Packed, bool]:
    """Token ids and packed masks, repeats allowed, as one mask, and whether it is none of ``rows``.

    Cost: a copy of the mask, and 0.1 us for each id; of many, NumPy takes 10 for all.

    Args:
        ids: token ids.
        rows: packed masks.
        nothing: a mask without tokens.
    """
    if len(rows) > 1:
        rows = _different(rows)
    mask: bytearray | memoryview
    if len(rows) > 1:
        mask = packed(_union(rows))
    elif rows:
        if not ids:
            return packed(rows[0]), False
        mask = bytearray(rows[0])
    else:
        mask = bytearray(nothing)
    if len(ids) > _MANY:
        every = np.array(ids, np.int32)
        np.bitwise_or.at(np.frombuffer(mask, np.uint32), every >> 5, BIT[every & 31])
    else:
        for token in ids:
            mask[token >> 3] |= 1 << (token & 7)
    return mask, True


def packed(row: Bits) -> memoryview:
    """A row of bits as bytes."""
    return memoryview(row).cast("B")  # type: ignore[arg-type]


def _different(rows: Sequence[Bits]) -> Rows:
    return tuple({id(row): row for row in rows}.values())


def _union(rows: Sequence[Bits]) -> Bits:
    """All tokens of some rows, of two or more."""
    out: Bits = rows[0] | rows[1]
    for row in rows[2:]:
        np.bitwise_or(out, row, out)
    return out
