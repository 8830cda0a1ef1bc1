"""Choosing tokens from scores, held against the definitions written out."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from fakes import FakeModel

from structgen import Generator, OptionError, Regex, RequestError
from structgen.cli.generation import generate
from structgen.decoding.options import parse, resolve
from structgen.remote.dialects import dialect_of
from structgen.remote.task import arguments_of
from structgen.runner.requests import ChatRequest
from structgen.runner.work import search_of
from structgen.sampling.sampler import Sampler, top

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


def numbers(sampler: Sampler, size: int, position: int) -> np.ndarray:
    """The random number of each token: tokens that are equally likely race by these alone."""
    left, ranks = np.zeros(size, np.float32), np.zeros(size)
    for rank in range(size):
        ranks[first := sampler(NONE, left, position)] = rank
        left[first] = -np.inf
    return ranks


def test_random_numbers_are_independent_over_seeds_positions_and_tokens():
    """Which of eight equals wins says nothing of the next seed, output, position or token."""
    for size, offset in ((8, 0), (8, 20_000), (3, 150_000)):
        logits = np.full(offset + size, -np.inf, np.float32)
        logits[offset:] = 0
        won = np.array(
            [
                [sampler(NONE, logits, at) - offset for at in range(100)]
                for sampler in (Sampler({"do_sample": True, "random_seed": i}) for i in range(100))
            ]
        )
        pairs = [won.ravel()]
        pairs += [won[:-1].ravel() * size + won[1:].ravel()]
        pairs += [won[:, :-1].ravel() * size + won[:, 1:].ravel()]
        for found, kinds in zip(pairs, (size, size**2, size**2), strict=True):
            counts = np.bincount(found, minlength=kinds)
            even = len(found) / kinds
            # Five standard deviations of chi-square, whose degrees of freedom are `kinds - 1`.
            off = ((counts - even) ** 2 / even).sum() - (kinds - 1)
            assert abs(off) < 5 * (2 * (kinds - 1)) ** 0.5
    ranks = np.array(
        [numbers(Sampler({"do_sample": True, "random_seed": i}), 6, 3) for i in range(500)]
    )
    assert (abs(np.corrcoef(ranks.T) + 0.2 - 1.2 * np.eye(6)) < 0.2).all()


@pytest.mark.parametrize("size", [40, 700, 20_000])
def test_a_mask_changes_no_choice_that_it_allows(size):
    random = np.random.default_rng(size)
    logits = (random.normal(size=size) * 2).astype(np.float32)
    sampler = Sampler({"do_sample": True, "random_seed": 9, "temperature": 0.8})
    kept = 0
    for position in range(100):
        masked = np.where(random.random(size) < 0.3, -np.inf, logits).astype(np.float32)
        free, under = sampler(NONE, logits, position), sampler(NONE, masked, position)
        assert masked[under] > -np.inf
        if masked[free] > -np.inf:
            assert under == free
            kept += 1
    assert kept > 50


def test_scores_that_round_differently_seldom_change_a_choice():
    """Noise as between passes of one and of two tokens changes about as few choices as it must."""
    random = np.random.default_rng(4)
    sampler = Sampler({"do_sample": True, "random_seed": 1})
    changed, least, n = 0, 0.0, 2000
    for position in range(n):
        logits = (random.normal(size=500) * 3).astype(np.float32)
        other = logits + (random.normal(size=500) * 0.1).astype(np.float32)
        shares = [np.exp(each.astype(float)) for each in (logits, other)]
        # No way to choose changes fewer: half of what the probabilities differ by.
        least += abs(shares[0] / shares[0].sum() - shares[1] / shares[1].sum()).sum() / 2 / n
        changed += sampler(NONE, logits, position) != sampler(NONE, other, position)
    assert 0.02 < least < changed / n < 2 * least


@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("n", [1, 7, 50, 5000])
def test_the_top_is_what_sorting_gives_ties_and_minus_infinity_included(size, n):
    random = np.random.default_rng(size)
    for n_masked in (0, size // 2, size - 1):
        values = random.integers(-9, 9, size).astype(np.float32)
        values[random.permutation(size)[:n_masked]] = -np.inf
        expected = np.argsort(-values, kind="stable")[:n]
        assert top(values, n).tolist() == [i for i in expected if values[i] > -np.inf]


@pytest.mark.parametrize("size", [40, 64, 700, 20_000])
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_p": 0.999}, {"top_p": 1 - 1e-12}])
def test_wide_vocabularies_are_drawn_from_by_the_definition(size, settings):
    """Of the nucleus the token wins that wins among these alone; of equals the first are in it."""
    random = np.random.default_rng(size)
    logits = random.integers(-9, 9, size).astype(np.float32) / 3
    logits[random.integers(0, size, size // 3)] = -np.inf
    order = np.argsort(-logits, kind="stable")
    mass = np.cumsum(np.exp(logits[order].astype(float)))
    nucleus = order[: int(np.searchsorted(mass, settings.get("top_p", 1.0) * mass[-1])) + 1]
    alone = np.full(size, -np.inf, np.float32)
    alone[nucleus] = logits[nucleus]
    seen = set()
    for position in range(100):
        token = Sampler({"do_sample": True, "random_seed": 1, **settings})(NONE, logits, position)
        assert token == Sampler({"do_sample": True, "random_seed": 1})(NONE, alone, position)
        seen.add(token)
    assert len(seen) > 9


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_give_a_token(score):
    logits = scores() if score != -np.inf else np.full(SIZE, score, np.float32)
    logits[7] = score
    for settings in ({}, {"top_k": 5}, {"top_p": 0.5}, {"temperature": 2.0}):
        token = Sampler({"do_sample": True, **settings})(NONE, logits, 0)
        assert token == logits.argmax()


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


def reference(
    logits: np.ndarray, prompt: list[int], output: list[int], settings: dict
) -> np.ndarray:
    """The distribution that the options define, written out token by token, in float64."""
    scores = {i: float(score) for i, score in enumerate(logits) if score > -np.inf}
    counts = Counter(output)
    for i in scores:
        penalty = settings.get("repetition_penalty", 1.0)
        if i in counts or i in prompt:
            scores[i] = scores[i] * penalty if scores[i] < 0 else scores[i] / penalty
        scores[i] -= settings.get("frequency_penalty", 0.0) * counts[i]
        scores[i] -= settings.get("presence_penalty", 0.0) * (counts[i] > 0)
    if not settings.get("do_sample"):
        best = min(scores, key=lambda i: (-scores[i], i))
        return np.eye(len(logits))[best]
    order = sorted(scores, key=lambda i: (-scores[i], i))
    order = order[: settings.get("top_k") or None]
    greatest = scores[order[0]]
    weights = {i: np.exp((scores[i] - greatest) / settings.get("temperature", 1.0)) for i in order}
    weights = {i: weight for i, weight in weights.items() if weight >= settings.get("min_p", 0.0)}
    whole, mass, kept = sum(weights.values()), 0.0, {}
    for i in order:
        if i in weights and mass < settings.get("top_p", 1.0) * whole:
            kept[i] = weights[i]
            mass += weights[i]
    probabilities = np.zeros(len(logits))
    probabilities[list(kept)] = list(kept.values())
    return probabilities / probabilities.sum()


@pytest.mark.parametrize("seed", range(150))
def test_all_options_together_are_what_they_are_defined_to_be(seed):
    r = random.Random(seed)
    size = r.choice([5, 40, 700])
    logits = np.random.default_rng(seed).normal(size=size).astype(np.float32) * 3
    logits[np.random.default_rng(seed).random(size) < r.choice([0.0, 0.5, 0.9])] = -np.inf
    logits[r.randrange(size)] = 1.0
    before = logits.copy()
    prompt = [r.randrange(size) for _ in range(r.choice([0, 3, 20]))]
    output = [r.randrange(size) for _ in range(r.choice([0, 1, 8, 60]))]
    settings = {"random_seed": seed}
    for name, values in {
        "do_sample": [True, True, False],
        "temperature": [0.3, 1.0, 1.7],
        "top_k": [0, 3, 50],
        "top_p": [0.5, 0.95, 1.0],
        "min_p": [0.0, 0.05, 0.3, 1.0],
        "repetition_penalty": [1.0, 1.3, 0.8],
        "frequency_penalty": [0.0, 0.4, -0.7, 2.0],
        "presence_penalty": [0.0, 0.9, -2.0],
    }.items():
        if r.random() < 0.6:
            settings[name] = r.choice(values)
    sampler = Sampler(settings, n_prompt=len(prompt))
    expected = reference(logits, prompt, output, settings)
    ids = np.array([*prompt, *output], np.int32)
    for position in range(30):
        token = sampler(ids, logits, position)
        assert expected[token] > 0
        if settings.get("do_sample"):  # the winner of a race by the probabilities alone
            alone = np.log(expected, out=np.full(size, -np.inf), where=expected > 0)
            race = Sampler({"do_sample": True, "random_seed": seed})
            assert token == race(NONE, alone.astype(np.float32), position)
    assert (logits == before).all()


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"frequency_penalty": 1.5},
        {"presence_penalty": 2.0, "frequency_penalty": -0.4},
        {"min_p": 0.4, "presence_penalty": 1.0, "temperature": 1.2},
    ],
)
def test_penalties_count_the_output_alone_under_a_mask(settings, forced):
    """Each token of an output is one that the definition gives a probability, mask included."""
    steps = []

    def look(token_ids, logits):
        steps.append((token_ids[0].tolist(), logits[0].copy()))
        return logits

    generator = Generator(FakeModel(), Regex("([abc]{4}-){5}x"), processor=look)
    result = generator.result("abcabc aaaa", seed=4, forced=forced, **settings)
    n_prompt = len(steps[0][0])
    assert (result.usage.forced_tokens > 0) == forced
    chosen = []
    for ids, logits in steps:
        output = ids[n_prompt:]
        assert output == list(result.token_ids[: len(output)])
        asked = {"do_sample": "min_p" in settings, **settings}
        expected = reference(logits, ids[:n_prompt], output, asked)
        if len(output) < len(result.token_ids):
            chosen.append(expected[result.token_ids[len(output)]])
    assert len(chosen) >= 20
    assert all(probability > 0 for probability in chosen)


def test_top_n_sigma_keeps_tokens_near_the_greatest_of_those_that_the_mask_allows():
    """One row in the table of options: so each layer has it, or refuses it by name."""
    allowed = np.array([4.0, 3.0, 2.0, -1.0], np.float32)
    logits = np.full(200, -np.inf, np.float32)
    logits[[7, 90, 91, 150]] = allowed
    least = allowed.max() - 1.0 * allowed.std()
    sampler = Sampler({"do_sample": True, "top_n_sigma": 1.0, "random_seed": 3})
    chosen = {sampler(np.zeros(0, np.int32), logits, at) for at in range(500)}
    assert chosen == {i for i in (7, 90, 91, 150) if logits[i] >= least} == {7, 90}

    settings = resolve(parse({"top_n_sigma": 1.0}), {"do_sample": False, "top_k": 50})
    assert settings["do_sample"]
    assert settings["top_n_sigma"] == 1.0
    for wrong in (0, -1, "1", math.inf):
        with pytest.raises(OptionError, match="top_n_sigma=") as caught:
            parse({"top_n_sigma": wrong})
        assert caught.value.option == "top_n_sigma"
    request = ChatRequest(messages="Hi", top_n_sigma=1.5)
    assert search_of(request) == {"top_n_sigma": 1.5}
    with pytest.raises(RequestError, match="top_n_sigma") as refused:
        ChatRequest(messages="Hi", top_n_sigma=0)
    assert refused.value.param == "top_n_sigma"
    assert "--top-n-sigma" in {flag for one in generate.params for flag in one.opts}
    given = {"top_n_sigma": 1.5}
    arguments_of(given, parse(given), dialect_of("llama.cpp"))
    for dialect in ("openai", "vllm", "sglang", "ollama", "json-schema"):
        with pytest.raises(OptionError, match=r"top_n_sigma= is not supported in the dialect"):
            arguments_of(given, parse(given), dialect_of(dialect))
