"""A mask, and how token ids become one: a row that many share, and the few words that differ.

Knows no automata: it is given rows and token ids, and a vocabulary's store to share rows in.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .grouping import bits_of, words_of, words_of_few
from .walk_store import Bits, Tokens, WalkStore, ids_of

NO_BITS = np.array([], np.uint32)

_OFTEN = 6
"""A mask that so many states have is worth a row."""

_FEW = 24
"""So many tokens are gathered into words one by one,"""

_SOME = 600
"""and so many by sorting them."""

Mask: TypeAlias = "tuple[bytes | bytearray | memoryview, npt.NDArray[np.int64] | None, Bits]"
"""A mask: a row that many share, and what is different.

That is the row, uint32 [ceil(size / 32)], as bytes (those of an array cost twice as much to copy);
positions in it, or None where nothing is different; and what stands there instead. A plain tuple:
see `walk_store.WalkMemo`.
"""


def fill(mask: Mask, out: Bits) -> None:
    """Write ``mask`` into ``out``, uint32 [ceil(size / 32)]."""
    row, words, bits = mask
    out[:] = np.frombuffer(row, np.uint32)
    if words is not None:
        out[words] = bits


def packed(store: WalkStore, row: bytes | None, tokens: Tokens) -> Mask:
    """The bytes of a row, if any, and tokens as one mask."""
    ids = ids_of(tokens)
    if len(ids) <= _FEW:
        words, bits = words_of_few(ids.tolist())
    elif len(ids) <= _SOME:
        words, bits = words_of(ids)
    else:
        every = bits_of(ids, store.n_words)
        words = every.nonzero()[0]
        if row is not None or len(words) * 3 > store.n_words:
            if row is not None:
                every |= np.frombuffer(row, np.uint32)
            return store.packed(every), None, NO_BITS
        bits = every[words]
    if not len(words):
        return store.zeros if row is None else row, None, NO_BITS
    if row is None:
        return store.zeros, words, bits
    bits |= np.frombuffer(row, np.uint32)[words]
    return row, words, bits


def met_again(store: WalkStore, key: tuple[bytes | None, Tokens], mask: Mask) -> Mask:
    """``mask``, known by ``key`` and met in another state: in a row of its own where that is often.

    The words that differ are a quarter of what filling it costs. One mask in twenty is met in eight
    states, and these are four in five of those that are filled.
    """
    row, words, bits = mask
    times = (store.met[key] or 0) + 1
    if times < _OFTEN or words is None:
        store.met[key] = times
        return mask
    own = np.frombuffer(bytearray(row), np.uint32)
    own[words] = bits
    mask = store.masks[key] = own.tobytes(), None, NO_BITS
    store.used += own.nbytes
    return mask
