"""Masks of several cursors at once, one row for each sequence of a batch.

Owns `fill_masks` and what goes wrong with some of its rows. What a mask is and how a cursor writes
it is `cursor`'s business, what may be written into that of `rows`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structgen.errors import BatchError, OptionError, StructgenError, VocabularyError

from .cursor import Cursor
from .rows import Rows, rows_of

_ALL = np.uint32(0xFFFFFFFF)


def fill_masks(cursors: Sequence[Cursor | None], out: Rows, *, threads: int = 1) -> None:
    """Write the mask of each cursor into its row.

    The cursors may be of any constraints of one vocabulary: the rows of a batch mix types.

    Args:
        cursors: one for each row. A finished cursor's row is all 0. None: everything is allowed
            in this row, all its bits are set.
        out: int32 or uint32 ``[len(cursors), ceil(vocabulary.size / 32)]``; bit ``t % 32`` of word
            ``t // 32`` is set when token ``t`` is allowed, as in `Cursor.fill_mask`. A torch tensor
            on the CPU goes in as ``tensor.numpy()``, which shares its memory.
        threads: the most threads to use. One is used whatever is given: masks are made under
            Python's interpreter lock, so that two threads took 1.3 times as long as one for
            64 rows met before, and as long as one for new ones.

    Raises:
        ValueError: ``out`` has another shape or dtype.
        TypeError: something else stands among the cursors.
        VocabularyError: the cursors are of several vocabularies.
        OptionError: ``threads`` is no whole number of at least 1.
        BatchError: some masks could not be made within the limits; its ``errors`` say by row which
            and why. Their rows are all 0, all others are filled.

    Cost: that of `Cursor.fill_mask` for each row.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads must be a whole number of at least 1; got {threads!r}.")
    size = _common_size(cursors)
    words, rows = rows_of(out, len(cursors), size)
    errors: dict[object, Exception] = {}
    for i, cursor in enumerate(cursors):
        if cursor is None:
            words[i] = _ALL
            continue
        try:
            cursor.fill_row(words[i], None if rows is None else rows[i])
        except StructgenError as refused:
            words[i] = 0
            errors[i] = refused
    if errors:
        first, error = next(iter(errors.items()))
        raise BatchError(
            f"{len(errors)} of {len(cursors)} masks could not be made; row {first}: {error}",
            results=[],
            errors=errors,
        ) from error


def _common_size(cursors: Sequence[Cursor | None]) -> int | None:
    """How many tokens the vocabulary of the cursors has; None where there are none."""
    common, first = None, 0
    for i, cursor in enumerate(cursors):
        if cursor is None:
            continue
        if not isinstance(cursor, Cursor):
            raise TypeError(
                f"fill_masks takes cursors, from constraint.start(), or None; got "
                f"{type(cursor).__name__} for row {i}."
            )
        vocabulary = cursor.vocabulary
        if common is None:
            common, first = vocabulary, i
        elif vocabulary is not common and vocabulary != common:
            raise VocabularyError(
                f"the cursors of one call are of one vocabulary: row {first} is of {common!r}, "
                f"row {i} of {vocabulary!r}. Call fill_masks for each vocabulary."
            )
    return None if common is None else common.size
