"""Masks one under the other, in the array that a runtime hands to its kernels.

`rows_of` says what may be written into; `fill_for_draft` writes the masks along a draft of tokens
that something quicker than the model has guessed. Of a cursor it knows what `Movable` says; models
and devices are unknown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.vocabulary import Vocabulary

Rows: TypeAlias = "npt.NDArray[np.int32] | npt.NDArray[np.uint32]"
"""Masks, one under the other: ``[n, ceil(vocabulary.size / 32)]``."""

_WORD = np.dtype(np.uint32)


class Movable(Protocol):
    """What a draft needs of a cursor."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its masks."""

    def fill_row(self, row: npt.NDArray[np.uint32], row_bytes: memoryview | None) -> None:
        """Write the mask of the next token."""

    def accept(self, token_id: int) -> None:
        """Advance by one token."""

    def rollback(self, n: int) -> None:
        """Take back the last tokens."""


def rows_of(
    out: Any, n: int, size: int | None
) -> tuple[npt.NDArray[np.uint32], list[memoryview] | None]:
    """``out`` as uint32; and the bytes of its rows, where they lie one after the other."""
    if not isinstance(out, np.ndarray):
        hint = "; pass tensor.numpy()" if hasattr(out, "numpy") else ""
        raise ValueError(
            f"masks are a NumPy array of int32 or uint32 [{n}, words], got "
            f"{type(out).__name__}{hint}."
        )
    n_words = (size + 31) // 32 if size is not None else out.shape[-1] if out.ndim else 0
    if out.dtype not in (np.int32, np.uint32) or out.shape != (n, n_words):
        raise ValueError(
            f"masks of {n} places are int32 or uint32 [{n}, {n_words}], got {out.dtype} "
            f"{list(out.shape)}."
        )
    if not out.flags.writeable:
        raise ValueError("masks cannot be written into an array that is read-only.")
    words = out.view(np.uint32)
    if not n or not n_words or not words.flags.c_contiguous:
        return words, None
    view = memoryview(words.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    step = 4 * n_words
    return words, [view[at : at + step] for at in range(0, n * step, step)]


def fill_for_draft(
    cursor: Movable, tokens: Sequence[int], out: Rows, parents: Sequence[int] | None
) -> npt.NDArray[np.bool_]:
    """See `Cursor.fill_masks_for_draft`."""
    draft = [_token(token) for token in tokens]
    above = _checked_parents(parents, len(draft))
    size = cursor.vocabulary.size
    words, rows = rows_of(out, len(draft) + 1, size)

    def fill(row: int) -> None:
        cursor.fill_row(words[row], None if rows is None else rows[row])

    allowed = np.zeros(len(draft), np.bool_)
    words[1:] = 0
    fill(0)
    children: dict[int, list[int]] = {}
    for token in range(len(draft) - 1, -1, -1):
        children.setdefault(above[token], []).append(token)
    # Depth first, so that each token is accepted and taken back once.
    path: list[int] = []
    waiting = children.get(-1, [])
    try:
        while waiting:
            node = waiting.pop()
            parent, token_id = above[node], draft[node]
            while path and path[-1] != parent:
                path.pop()
                cursor.rollback(1)
            row = words[parent + 1]
            if not 0 <= token_id < size:
                continue
            if not row[token_id >> 5] >> (token_id & 31) & 1:
                continue
            cursor.accept(token_id)
            path.append(node)
            allowed[node] = True
            fill(node + 1)
            waiting += children.get(node, ())
    finally:
        cursor.rollback(len(path))
    return allowed


def _checked_parents(parents: Sequence[int] | None, n: int) -> Sequence[int]:
    if parents is None:
        return range(-1, n - 1)
    above = [_token(parent) for parent in parents]
    if len(above) != n:
        raise ValueError(f"parents has one index for each of the {n} tokens, got {len(above)}.")
    for i, parent in enumerate(above):
        if not -1 <= parent < i:
            where = f"from 0 to {i - 1}, or -1" if i else "-1"
            raise ValueError(
                f"parents[{i}] is {parent}: a token's parent stands before it, so that this is "
                f"{where} for a token that follows the text so far."
            )
    return above


def _token(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"a draft is whole numbers, the ids of tokens; got {value!r}.")
    return int(value)


def bytes_of(out: npt.NDArray[np.uint32], size: int) -> memoryview | None:
    """The bytes of a mask, where it is made as masks are; else None.

    Raises:
        ValueError: it is no array, or not for so many tokens.
    """
    n_words = (size + 31) // 32
    if type(out) is np.ndarray and out.dtype is _WORD:
        view = memoryview(out)  # type: ignore[arg-type]
        if view.shape == (n_words,) and view.c_contiguous:
            return view.cast("B")
    elif not isinstance(out, np.ndarray):
        kind = type(out).__name__
        raise ValueError(f"a mask is a NumPy array of uint32 [{n_words}], got {kind}.")
    if out.shape != (n_words,):
        raise ValueError(
            f"a mask for {size:,} tokens is uint32 [{n_words}], got "
            f"{list(out.shape)}. If the model's logits are wider than its tokenizer, give the "
            "vocabulary that width: Vocabulary.from_tokenizer_json(path, size=...)."
        )
    return None
