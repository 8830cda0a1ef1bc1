"""Token ids, few as arrays and many as packed bits, and walks that end in them.

It owns how sets of tokens are put together. It knows no tries, lexers or grammars.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .grouping import BIT, bits_of

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = "tuple[int, ...] | npt.NDArray[np.int32]"
"""Token ids, repeats allowed: few as tuples, which are quicker made and set."""

EMPTY: Ids = ()

Packed: TypeAlias = "bytes | bytearray | memoryview"
"""A packed mask as bytes."""

_FEW = 100
"""Up to so many token ids are tuples."""
_MANY = 150
"""More than these, and NumPy sets them faster than we do."""
_DENSE = 400
"""More token ids than this, and they are packed."""


class Tokens(Protocol):
    """Some token ids, or a packed mask."""

    @property
    def ids(self) -> Ids:
        """Token ids; empty if ``bits`` is set."""
        ...

    @property
    def bits(self) -> Bits | None:
        """The same as a packed mask, where they are many."""
        ...


class Part(NamedTuple):
    """`Tokens`, and nothing else."""

    ids: Ids
    bits: Bits | None


class Walk(NamedTuple):
    """What a lexer does from one node.

    Attributes:
        ids: tokens that end inside, or exactly where a terminal may end; empty if ``bits`` is set.
        bits: the same as a packed mask, where they are many.
        exits: ``(outcome, node)`` pairs: where terminals may end and a token goes on.
        ends: lexer states in which those tokens end; ``~q`` for all those inside a character that
            begins in ``q`` (`Walks.inside_characters`). None: not known (`Walks.ends`).
    """

    ids: Ids
    bits: Bits | None
    exits: tuple[tuple[int, int], ...]
    ends: tuple[int, ...] | None


def _gathered(
    parts: Iterable[Tokens], few: list[int]
) -> tuple[list[int], list[npt.NDArray[np.int32]], dict[int, Bits]]:
    """The ids of all tuples, after ``few``, the arrays of ids, and the different masks."""
    more: list[npt.NDArray[np.int32]] = []
    rows: dict[int, Bits] = {}
    for part in parts:
        if part.bits is not None:
            rows[id(part.bits)] = part.bits
        elif isinstance(part.ids, tuple):
            few += part.ids
        else:
            more.append(part.ids)
    return few, more, rows


def merge(
    parts: Collection[Tokens], n_words: int, further: list[int] | None = None
) -> tuple[Ids, Bits | None]:
    """The tokens of several walks as ids, or packed if they are many; with some ids more, whose
    list may be used."""
    if len(parts) == 1 and not further:
        (only,) = parts
        if only.bits is not None or len(only.ids) <= _FEW or not isinstance(only.ids, tuple):
            return only.ids, only.bits
    few, more, rows = _gathered(parts, [] if further is None else further)
    ids: Ids
    if not more:
        ids = tuple(few) if len(few) <= _FEW else np.array(few, np.int32)
    elif few:
        ids = np.concatenate((*more, np.array(few, np.int32)))
    else:
        ids = more[0] if len(more) == 1 else np.concatenate(more)
    if not rows:
        return (ids, None) if len(ids) <= _DENSE else (EMPTY, bits_of(ids, n_words))
    first, *others = rows.values()
    if not others and not len(ids):
        return EMPTY, first
    bits = first.copy()
    for other in others:
        bits |= other
    if len(ids):
        set_bits(bits, ids)
    return EMPTY, bits


def overlay(parts: Iterable[Tokens], nothing: bytes) -> tuple[Packed, bool]:
    """The tokens of several walks as a packed mask, and whether it is no walk's own.

    Cost: a copy of the mask, and 0.1 us for each id; of many, NumPy takes 10 for all.

    Args:
        parts: the walks.
        nothing: a mask without tokens.
    """
    few, more, rows = _gathered(parts, [])
    mask: bytearray | memoryview
    if len(rows) > 1:
        first, second, *others = rows.values()
        row = first | second
        for other in others:
            row |= other
        mask = packed(row)
    elif rows:
        (row,) = rows.values()
        if not few and not more:
            return packed(row), False
        mask = bytearray(row)
    else:
        mask = bytearray(nothing)
    if more or len(few) > _MANY:
        if few:
            more.append(np.array(few, np.int32))
        ids = more[0] if len(more) == 1 else np.concatenate(more)
        set_bits(np.frombuffer(mask, np.uint32), ids)
    else:
        for token in few:
            mask[token >> 3] |= 1 << (token & 7)
    return mask, True


def packed(row: Bits) -> memoryview:
    """A row of bits as bytes."""
    return memoryview(row).cast("B")  # type: ignore[arg-type]


def set_bits(out: Bits, ids: Ids) -> None:
    """Set the bits of token ids (repeats allowed) in a packed mask."""
    ids = np.asarray(ids, np.int32)
    np.bitwise_or.at(out, ids >> 5, BIT[ids & 31])
