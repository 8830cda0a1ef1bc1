"""How tokens are run through a model: what a pass may hold, and what two prompts share.

Knows no runtime: sequences and the decode loop both ask here.
"""

from __future__ import annotations

import numpy as np

from structgen.sampling import TokenIds

LONGEST_PASS = 64
"""Most tokens in one pass over a prompt: nothing can end a call within one."""


def n_shared(a: TokenIds, b: TokenIds) -> int:
    """Length of the longest common beginning of two sequences of token ids, int32 ``[n]``."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
