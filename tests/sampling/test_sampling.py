"""Choosing tokens from scores, held against the definitions written out."""

from __future__ import annotations

import inside
import numpy as np
import pytest

from structgen.sampling.sampler import Sampler, top, uniform

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
    assert Sampler({})(NONE, logits.copy(), 0) == logits.argmax()
    assert Sampler({"do_sample": True, "top_k": 1})(NONE, logits.copy(), 0) == logits.argmax()
    logits[[4, 7]] = 99
    assert Sampler({})(NONE, logits, 0) == 4


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 5, 1.0), (1.0, 0, 0.6), (1.5, 6, 0.8), (1.0, 99, 0.99)],
)
def test_sampling_draws_from_the_distribution_it_says(temperature, top_k, top_p):
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    sampler = Sampler({"do_sample": True, "random_seed": 3, **settings})
    n = 4000
    drawn = np.bincount([sampler(NONE, scores(), i) for i in range(n)], minlength=SIZE) / n
    weights = expected(scores(), temperature, top_k, top_p)
    assert not drawn[weights == 0].any()
    # Five standard deviations: a fixed seed, so it passes or fails for good.
    assert (abs(drawn - weights) <= 5 * np.sqrt(weights * (1 - weights) / n)).all()


def test_a_seed_fixes_the_tokens_and_each_output_of_a_call_has_its_own():
    def tokens(seed: int, index: int = 0) -> list[int]:
        sampler = Sampler({"do_sample": True, "random_seed": seed}, index=index)
        return [sampler(NONE, scores(i), i) for i in range(20)]

    assert tokens(1) == tokens(1) != tokens(2)
    assert tokens(1) == tokens(1, 0) != tokens(1, 1) == tokens(1, 1) != tokens(1, 2)
    assert tokens(-1) != tokens(-1)


def test_a_token_depends_on_its_position_and_on_nothing_that_was_chosen_before():
    sampler = Sampler({"do_sample": True, "random_seed": 5})
    forward = [sampler(NONE, scores(i), i) for i in range(30)]
    backward = [sampler(NONE, scores(i), i) for i in reversed(range(30))]
    assert forward == backward[::-1]


def test_random_numbers_are_uniform_over_seeds_and_positions():
    numbers = np.array([[uniform(seed, i) for i in range(200)] for seed in range(200)])
    counts = np.histogram(numbers, 100, (0, 1))[0]
    # 40,000 numbers in 100 bins: chi-square with 99 degrees of freedom, far into both tails.
    assert 50 < ((counts - 400) ** 2 / 400).sum() < 160
    shifted = np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]
    assert abs(shifted) < 0.03


@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("n", [1, 7, 50, 5000])
def test_the_top_is_what_sorting_gives_ties_and_minus_infinity_included(size, n):
    random = np.random.default_rng(size)
    for n_masked in (0, size // 2, size - 1):
        values = random.integers(-9, 9, size).astype(np.float32)
        values[random.permutation(size)[:n_masked]] = -np.inf
        expected = np.argsort(-values, kind="stable")[:n]
        assert top(values, n).tolist() == [i for i in expected if values[i] > -np.inf]


@pytest.mark.parametrize("size", [40, 64, 700, 6400])
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_p": 0.999}])
def test_wide_vocabularies_are_drawn_from_by_the_definition(size, settings):
    random = np.random.default_rng(size)
    logits = (random.normal(size=size) * 3).astype(np.float32)
    logits[random.integers(0, size, size // 3)] = -np.inf
    sampler = Sampler({"do_sample": True, "random_seed": 1, **settings})
    order = np.argsort(-logits, kind="stable")
    weights = np.exp(logits.astype(float) - logits.max())
    mass = np.cumsum(weights[order]) / weights.sum()
    nucleus = order[: int(np.searchsorted(mass, settings.get("top_p", 1.0))) + 1]
    drawn = np.zeros(size)
    drawn[nucleus] = weights[nucleus]
    edges = np.cumsum(drawn) / drawn.sum()
    for position in range(200):
        token = sampler(NONE, logits, position)
        number = uniform(inside.stream(sampler), position)
        assert drawn[token] > 0
        # Running sums in other orders and precisions agree to rounding.
        assert edges[token] - drawn[token] / drawn.sum() <= number + 1e-5
        assert number <= edges[token] + 1e-5


def test_the_repetition_penalty_lowers_what_came_up_and_nothing_else():
    logits = np.array([2.0, -2.0, 1.5, -np.inf], np.float32)
    seen = np.array([0, 1, 3, 0], np.int32)
    assert Sampler({"repetition_penalty": 2.0})(seen, logits, 0) == 2
    assert Sampler({"repetition_penalty": 1.3})(seen, logits, 0) == 0
    assert logits.tolist() == [2.0, -2.0, 1.5, -np.inf]
    lower = np.array([-2.0, -2.5], np.float32)
    assert Sampler({"repetition_penalty": 1.1})(np.array([0], np.int32), lower, 0) == 0
    assert Sampler({"repetition_penalty": 1.5})(np.array([0], np.int32), lower, 0) == 1


def test_one_allowed_token_is_taken_whatever_the_settings():
    logits = np.full(SIZE, -np.inf, np.float32)
    logits[9] = -1e30
    for settings in ({}, {"do_sample": True, "top_p": 0.1, "top_k": 3, "temperature": 0.01}):
        assert Sampler(settings)(NONE, logits.copy(), 0) == 9
