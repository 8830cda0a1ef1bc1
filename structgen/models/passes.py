"""How tokens are run through a model: what a pass may hold, what prompts begin with and share.

Knows no runtime: sequences and the decode loop both ask here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structgen.sampling import TokenIds

LONGEST_PASS = 64
"""Most tokens in one pass over a prompt: nothing can end a call within one."""

_LONGEST_TOKEN = 100
"""Most characters that a token stands for, where its vocabulary has none that is longer."""


def most_characters(n_tokens: int, longest: int = 0) -> int:
    """Most characters of a text that so many tokens can hold: what is longer need not be encoded,
    which takes a quarter of a second for each megabyte.

    Args:
        n_tokens: how many.
        longest: characters of the longest token, where that is known.
    """
    return n_tokens * max(longest, _LONGEST_TOKEN)


def after_start(start_ids: Sequence[int], token_ids: TokenIds) -> TokenIds:
    """The tokens of a text, int32 ``[n]``, after a model's `Model.start_ids`, put once."""
    start = list(start_ids)
    if not start or token_ids[: len(start)].tolist() == start:
        return token_ids
    return np.concatenate([np.array(start, np.int32), token_ids])


def n_shared(a: TokenIds, b: TokenIds) -> int:
    """Length of the longest common beginning of two sequences of token ids, int32 ``[n]``."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
