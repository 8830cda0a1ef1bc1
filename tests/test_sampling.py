"""Choosing tokens from scores, held against the definitions written out."""

from __future__ import annotations

import numpy as np
import pytest

from structgen.sampling import Sampler

SIZE = 40
NONE = np.empty(0, np.int32)


def scores(seed: int = 0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=SIZE).astype(np.float32) * 2
    logits[::3] = -np.inf
    return logits


def expected(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    order = np.argsort(-logits, kind="stable")
    keep = order[: top_k or SIZE]
    weights = np.zeros(SIZE)
    weights[keep] = np.exp(logits[keep].astype(float) / temperature)
    weights /= weights.sum()
    mass = 0.0
    for token in order:
        if mass >= top_p:
            weights[token] = 0
        mass += weights[token]
    return weights / weights.sum()


def test_greedy_takes_the_best_and_the_first_of_equals():
    logits = scores()
    assert Sampler({})(NONE, logits.copy()) == logits.argmax()
    assert Sampler({"do_sample": True, "top_k": 1})(NONE, logits.copy()) == logits.argmax()
    logits[[4, 7]] = 99
    assert Sampler({})(NONE, logits) == 4


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 5, 1.0), (1.0, 0, 0.6), (1.5, 6, 0.8), (1.0, 99, 0.99)],
)
def test_sampling_draws_from_the_distribution_it_says(temperature, top_k, top_p):
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    sampler = Sampler({"do_sample": True, "random_seed": 3, **settings})
    n = 4000
    drawn = np.bincount([sampler(NONE, scores()) for _ in range(n)], minlength=SIZE) / n
    weights = expected(scores(), temperature, top_k, top_p)
    assert not drawn[weights == 0].any()
    # Five standard deviations: a fixed seed, so it passes or fails for good.
    assert (abs(drawn - weights) <= 5 * np.sqrt(weights * (1 - weights) / n)).all()


def test_a_seed_fixes_the_tokens_and_each_output_of_a_call_has_its_own():
    def tokens(seed: int, index: int = 0) -> list[int]:
        sampler = Sampler({"do_sample": True, "random_seed": seed}, index=index)
        return [sampler(NONE, scores(i)) for i in range(20)]

    assert tokens(1) == tokens(1) != tokens(2)
    assert tokens(1) == tokens(1, 0) != tokens(1, 1) == tokens(1, 1) != tokens(1, 2)
    assert tokens(-1) != tokens(-1)


def test_the_repetition_penalty_lowers_what_came_up_and_nothing_else():
    logits = np.array([2.0, -2.0, 1.5, -np.inf], np.float32)
    Sampler({"repetition_penalty": 2.0})(np.array([0, 1, 3, 0], np.int32), logits)
    assert logits.tolist() == [1.0, -4.0, 1.5, -np.inf]
    assert Sampler({"repetition_penalty": 2.0})(np.array([0], np.int32), logits[:3]) == 2


def test_one_allowed_token_is_taken_whatever_the_settings():
    logits = np.full(SIZE, -np.inf, np.float32)
    logits[9] = -1e30
    for settings in ({}, {"do_sample": True, "top_p": 0.1, "top_k": 3, "temperature": 0.01}):
        assert Sampler(settings)(NONE, logits.copy()) == 9
