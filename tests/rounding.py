"""What may differ between two ways to run the same tokens through a model, and how that is told.

A model's scores depend a little on the passes by which its tokens were run, and how much depends on
the processor: one may give batches and single rows the same bits where another does not. So no test
demands equal bits, or equal outputs, of different passes. `near` compares scores; `gap` follows two
greedy outputs to where they part and says how far apart the two tokens were scored. Where the
passes are the same, and `cold` makes them so, bits have to be the same on every processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import exp
from typing import Any

import numpy as np

from structgen.models.genai import TextModel
from structgen.sampling.processors import Logits

MEAN, MOST = 0.5, 4.0
"""How far apart scores, which reach 20, may be on average and at most. Measured: 0.1, 1.1."""

TIE = 2.0
"""How far apart two tokens may be of which rounding chose one. Measured, in 35 cases: 0.31."""

PROBABLE = 0.1
"""How far apart probabilities may be. Measured: 0.015."""

COUNTING = "1, 2, 3, 4, 5, 6,"
"""The default model goes on with " 7, 8": each token scores 3.4 and more above every other one."""

COUNTING_CHAT = [
    {"role": ("user", "assistant")[turn % 2], "content": text}
    for turn, text in enumerate(["1, 2, 3", "4, 5, 6", "7, 8, 9", "10, 11, 12", "13, 14, 15"])
]
"""The default model answers "16, 17, 18": each token scores 2.1 and more above every other one."""


@contextmanager
def cold(model: TextModel) -> Iterator[None]:
    """Nothing is reused of earlier calls: the same call runs the same passes."""
    kept = model.sequences.max_bytes
    model.sequences.max_bytes = 0
    model.close()
    try:
        yield
    finally:
        model.sequences.max_bytes = kept


def near(scores: Logits, expected: Logits) -> bool:
    """Whether scores are the same but for rounding."""
    apart = abs(scores.astype(np.float64) - expected)
    return bool(apart.mean() < MEAN and apart.max() < MOST)


def near_logprobs(some: Iterable[float | None], expected: Iterable[float | None]) -> bool:
    """Whether log probabilities of the same tokens are the same but for rounding."""
    pairs = list(zip(some, expected, strict=True))
    return all(
        one is other if one is None or other is None else abs(exp(one) - exp(other)) < PROBABLE
        for one, other in pairs
    )


def gap(model: TextModel, prompt: Any, one: Any, other: Any, adapter: str | None = None) -> float:
    """How far apart the two tokens are scored at which two results part; 0: they do not.

    The least that any way to run the tokens before gives: in one pass, or one by one.
    """
    pairs = zip(one.token_ids, other.token_ids, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        assert one.token_ids == other.token_ids
        return 0.0
    ids = prompt
    if isinstance(prompt, (str, list)):
        text = prompt if isinstance(prompt, str) else model.apply_chat_template(prompt)
        ids = model.encode(text)
    gaps = []
    for passes in ([one.token_ids[:at]], [[token] for token in one.token_ids[:at]]):
        sequence = model.start(len(ids) + at + 1, adapter=adapter)
        sequence.append(ids)
        for tokens in passes:
            sequence.append(tokens)
        scores = sequence.logits()[0]
        sequence.close()
        gaps.append(float(abs(scores[one.token_ids[at]] - scores[other.token_ids[at]])))
    return min(gaps)
