"""Several sequences of a text model that ONNX Runtime GenAI runs side by side.

It owns how rows of different lengths stand in one batch, how chosen tokens get into it, and how it
grows. It knows nothing of output types, sampling or loading; the runtime's objects are
made by whoever is passed in.

What the runtime does, measured with 0.18 and relied on here:

* Tokens can be appended to a batch once; after that each step adds one token to every row. The
  token is the likeliest of what ``set_logits`` left, so scores of one finite entry write any token.
* Rows are padded *on the right* with the padding token, which is then neither seen nor kept: the
  scores of a shorter row are those of the row alone, but for rounding. `pads_exactly` checks it.
* A row whose end-of-sequence token was written goes on with padding. So rows are never fed one
  before they are done, and cost a step as long as the batch has them.
* A batch can be rewound to nothing only: to grow, all of it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from structgen.errors import ModelError
from structgen.sampling import Logits, TokenIds

_SPARE_TOKENS = 256

MOST_ROWS = 32
"""Rows that the runtime takes: it refuses more."""


@final
class TextBatch:
    """Rows of tokens being extended together. Used by one thread; close it after use."""

    def __init__(
        self,
        new: Callable[[int, int], Any],
        rows: Sequence[TokenIds],
        *,
        room: int,
        context_length: int,
        width: int,
        pad_token_id: int,
    ) -> None:
        """Run the model over ``rows``.

        Args:
            new: makes a runtime's batch with room for so many tokens in each of so many rows.
            rows: int32 ``[n]`` each, at least two; none but the longest ends in the padding token.
            room: most tokens that any row will have.
            context_length: most tokens a sequence can have.
            width: scores a token has.
            pad_token_id: what rows are padded with.
        """
        self._new = new
        self._room = min(room, context_length)
        self._width = width
        self._pad_token_id = pad_token_id
        self._rows = [row.tolist() for row in rows]
        self._generator: Any = None
        self._fill()

    def __len__(self) -> int:
        return len(self._rows)

    def logits(self) -> Logits:
        """Return the scores of each row's next token, float32 ``[rows, width]``: a copy."""
        logits: Logits = self._generator.get_logits()[:, -1, :]
        if logits.shape[1] != self._width:
            raise ModelError(
                f"The model's logits are {logits.shape[1]:,} wide but its vocabulary has "
                f"{self._width:,} ids."
            )
        return logits

    def extend(self, token_ids: Sequence[int | None]) -> None:
        """Add a token to each row and run the model.

        Args:
            token_ids: one for each row; None for rows that are done, which are fed padding.
        """
        for row, token in zip(self._rows, token_ids, strict=True):
            if token is None:
                del row[1:]  # not to be run again
            else:
                row.append(token)
        if self._steps == self._capacity:
            self._fill()
            return
        wanted = [self._pad_token_id if token is None else token for token in token_ids]
        at = np.arange(len(wanted)), wanted
        self._only[at] = 0
        self._generator.get_logits()  # else it refuses others
        self._generator.set_logits(self._only)
        self._generator.generate_next_token()
        self._only[at] = -np.inf
        self._steps += 1

    def close(self) -> None:
        """Free the batch's memory. A second call does nothing."""
        self._generator = None

    def _fill(self) -> None:
        """Replace the runtime's batch by one that holds the rows."""
        longest = max(map(len, self._rows))
        padded = np.full((len(self._rows), longest), self._pad_token_id, np.int32)
        for row, tokens in zip(padded, self._rows, strict=True):
            row[: len(tokens)] = tokens
        self._generator = None  # its memory first, or both are there at once
        self._capacity = max(min(longest + _SPARE_TOKENS, self._room), longest)
        try:
            self._generator = self._new(self._capacity, len(self._rows))
        except Exception as error:
            raise ModelError(f"ONNX Runtime GenAI refuses to start a batch: {error}") from error
        self._generator.append_tokens(padded)
        self._steps = longest
        self._only = np.full((len(self._rows), self._width), -np.inf, np.float32)


def pads_exactly(
    start: Callable[[Sequence[TokenIds]], TextBatch], alone: Callable[[TokenIds], Logits]
) -> bool:
    """Whether rows of different lengths score as they do alone, tried out on two short ones.

    Args:
        start: begins a batch.
        alone: the scores after one row by itself, float32 ``[1, width]``.
    """
    long, short = np.array([5, 6, 7, 8, 9], np.int32), np.array([9, 8, 7], np.int32)
    try:
        batch = start([long, short])
        first = batch.logits()
        batch.extend([6, 6])
        scores = np.concatenate([first, batch.logits()])
        batch.close()
    except Exception:
        return False
    six = np.array([6], np.int32)
    rows = [long, short, np.concatenate([long, six]), np.concatenate([short, six])]
    expected = np.concatenate([alone(row) for row in rows])
    # A pass over one token rounds differently from one over more; a wrong one is off by far more.
    close = np.abs(scores - expected).mean(axis=1) < 0.05 * np.abs(expected).mean()
    return bool(close.all())
