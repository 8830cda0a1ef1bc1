"""Token ids, few as arrays and many as packed bits, and walks that end in them.

It owns how sets of tokens are put together. It knows no tries, lexers or grammars.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .grouping import bits_of, words_of, words_of_few

Bits: TypeAlias = npt.NDArray[np.uint32]
Ids: TypeAlias = "tuple[int, ...] | npt.NDArray[np.int32]"
"""Token ids, repeats allowed: the fewest as tuples, which are quicker made."""

EMPTY: Ids = ()

Words: TypeAlias = npt.NDArray[np.int64]
"""Positions in a packed mask."""

_NO_BITS: Bits = np.array([], np.uint32)

_FEW = 40
_SOME = 600
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
    parts: Iterable[Tokens],
) -> tuple[list[int], list[npt.NDArray[np.int32]], dict[int, Bits]]:
    """The ids of all tuples, the arrays of ids, and the different masks."""
    few: list[int] = []
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


def merge(parts: Collection[Tokens], n_words: int, most: int = _DENSE) -> tuple[Ids, Bits | None]:
    """The tokens of several walks as ids, or packed if there are more than ``most``."""
    if len(parts) == 1:
        (only,) = parts
        if only.bits is not None or len(only.ids) <= _FEW or not isinstance(only.ids, tuple):
            return only.ids, only.bits
    few, more, rows = _gathered(parts)
    ids: Ids
    if not more:
        ids = tuple(few) if len(few) <= _FEW else np.array(few, np.int32)
    elif few:
        ids = np.concatenate((*more, np.array(few, np.int32)))
    else:
        ids = more[0] if len(more) == 1 else np.concatenate(more)
    if not rows:
        return (ids, None) if len(ids) <= most else (EMPTY, bits_of(ids, n_words))
    first, *others = rows.values()
    if not others and not len(ids):
        return EMPTY, first
    bits = first.copy()
    for other in others:
        bits |= other
    if len(ids):
        set_bits(bits, ids)
    return EMPTY, bits


def overlay(parts: Iterable[Tokens], n_words: int) -> tuple[Bits | None, Words | None, Bits]:
    """The tokens of several walks as a mask: a row, where one of them or all are one, and the words
    that differ from it (None: none does), or from nothing at all; and what stands there."""
    few, more, rows = _gathered(parts)
    row: Bits | None = None
    if rows:
        row, *others = rows.values()
        if others:
            row = row | others[0]
            for other in others[1:]:
                row |= other
    if not more and len(few) <= _FEW:
        words, bits = words_of_few(few)
    else:
        if few:
            more.append(np.array(few, np.int32))
        ids = more[0] if len(more) == 1 else np.concatenate(more)
        if len(ids) > _SOME:
            every = bits_of(ids, n_words)
            return every if row is None else every | row, None, _NO_BITS
        words, bits = words_of(ids)
    if not len(words):
        return row, None, _NO_BITS
    if row is not None:
        bits |= row[words]
    return row, words, bits


def set_bits(out: Bits, ids: Ids) -> None:
    """Set the bits of token ids (repeats allowed) in a packed mask."""
    ids = np.asarray(ids, np.int32)
    np.bitwise_or.at(out, ids >> 5, np.left_shift(np.uint32(1), (ids & 31).astype(np.uint32)))
