"""Scores and the choice of a token: processors, the sampler, log probabilities.

`processors` (functions that edit scores, including the mask), `sampler` (greedy, temperature,
top-k, top-p) and `logprobs`. Knows no model and no output type.
"""

from __future__ import annotations

from .logprobs import Scorer, TokenLogprob, TopToken
from .processors import (
    Logits,
    LogitsProcessor,
    TokenIds,
    TokenMask,
    checked,
    logit_bias,
    min_length,
    no_repeat_ngram,
)
from .sampler import Sampler

__all__ = ["Logits", "LogitsProcessor", "TokenIds", "TokenLogprob", "TopToken"]
