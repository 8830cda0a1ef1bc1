"""Bounds hold through debiasing and calibration; measurements and fits against their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.decisions import distributions
from structgen.decisions.calibration import fitted, measured

shares = st.lists(st.floats(0.001, 1), min_size=2, max_size=6)


def cut_short(masses, left_out):
    """What is found of masses when so much of each is not, and the distribution in truth."""
    masses = np.array(masses)
    kept = masses * (1 - np.resize(left_out, len(masses)))
    left = float((masses - kept).sum())
    return distributions.found(kept, left / (kept.sum() + left)), masses / masses.sum()


def holds(true, told):
    assert told.values.sum() == pytest.approx(1)
    assert (true >= told.low - 1e-9).all()
    assert (true <= told.high + 1e-9).all()
    assert np.abs(true - told.values).max() <= told.error_bound + 1e-9


@given(shares, st.lists(st.floats(0, 0.3), min_size=1, max_size=6))
def test_what_was_not_found_is_within_the_bound(masses, left_out):
    told, true = cut_short(masses, left_out)
    holds(true, told)


@given(shares, st.lists(st.floats(0, 0.2), min_size=1, max_size=6), st.floats(0.2, 3), st.data())
def test_the_bound_holds_after_all_corrections(masses, left_out, slope, data):
    n = len(masses)
    told, true = cut_short(masses, left_out)
    others = data.draw(st.lists(st.floats(0.001, 1), min_size=n, max_size=n))
    prior, true_prior = cut_short(others, left_out)
    exact = distributions.without_prior(
        distributions.found(true, 0.0), distributions.found(true_prior, 0.0)
    )
    holds(exact.values, distributions.without_prior(told, prior))
    bias = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=n, max_size=n)))
    exact = distributions.rescaled(distributions.found(true, 0.0), slope, bias)
    holds(exact.values, distributions.rescaled(told, slope, bias))
    mean = distributions.mean([told, prior])
    holds((true + true_prior) / 2, mean)


@given(shares, st.lists(st.floats(0, 0.02), min_size=1, max_size=6), st.data())
def test_a_sharp_prior_moves_no_probability_by_more_than_half_the_tolerance(masses, left_out, data):
    tolerance = 0.05
    n = len(masses)
    given = distributions.found(np.array(masses), 0.0)
    others = data.draw(st.lists(st.floats(0.001, 1), min_size=n, max_size=n))
    prior, true = cut_short(others, left_out)
    divided = distributions.without_prior(given, prior)
    exact = distributions.without_prior(given, distributions.found(true, 0.0))
    if distributions.is_sharp(prior, tolerance):
        assert np.abs(divided.values - exact.values).max() <= tolerance / 2 + 1e-9
        assert divided.error_bound <= tolerance / 2 + 1e-9
    assert distributions.is_sharp(distributions.found(true, 0.0), 0)


def test_nothing_found_says_nothing():
    told = distributions.found(np.zeros(4), 1.0)
    assert told.values.tolist() == [0.25] * 4
    assert told.error_bound == 0.75
    assert told.mass == 0


def test_no_correction_changes_nothing():
    told = distributions.found(np.array([0.2, 0.1, 0.1]), 0.02)
    same = distributions.rescaled(told, 1.0, np.zeros(3))
    assert same.values == pytest.approx(told.values)
    even = distributions.found(np.array([1.0, 1.0, 1.0]), 0.0)
    assert distributions.without_prior(told, even).values == pytest.approx(told.values)


def test_metrics_are_those_of_their_definitions():
    found = measured([np.array([0.8, 0.2]), np.array([0.4, 0.6]), np.array([0.3, 0.7])], [0, 0, 1])
    assert found.accuracy == pytest.approx(2 / 3)
    brier = (0.2**2 * 2 + 0.6**2 * 2 + 0.3**2 * 2) / 3
    assert found.brier == pytest.approx(brier)
    assert found.log_loss == pytest.approx(-np.log([0.8, 0.4, 0.7]).mean())
    assert found.ece == pytest.approx((abs(1 - 0.8) + abs(0 - 0.6) + abs(1 - 0.7)) / 3)
    assert [b.count for b in found.bins] == [1, 1, 1]
    sure = measured([np.array([1.0, 0.0])], [0])
    assert (sure.accuracy, sure.brier, sure.ece) == (1, 0, 0)


def simulated(n, temperature, bias, seed=1):
    """Distributions of a model that is too sure by ``temperature``, and the labels in truth."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0, 1.5, (n, len(bias)))
    weights = np.exp(logits)
    true = weights / weights.sum(axis=1, keepdims=True)
    right = [int(chance.choice(len(bias), p=p)) for p in true]
    told = np.exp((logits - np.array(bias)) * temperature)
    return [distributions.found(w / w.sum(), 0.0) for w in told], right


def test_a_temperature_is_found_again():
    given, right = simulated(2000, 2.5, [0, 0, 0])
    fit, before, after = fitted(given, right, has_bias=False)
    slope, bias = fit.slope, fit.bias
    assert 1 / slope == pytest.approx(2.5, rel=0.1)
    assert bias.tolist() == [0, 0, 0]
    assert after.ece < before.ece / 3
    assert after.brier < before.brier
    assert after.accuracy == before.accuracy


def test_a_bias_is_found_again():
    given, right = simulated(3000, 1.0, [1.0, -1.0, 0.0])
    fit, before, after = fitted(given, right, has_bias=True)
    slope, bias = fit.slope, fit.bias
    assert slope == pytest.approx(1, abs=0.1)
    assert bias - bias.mean() == pytest.approx([1, -1, 0], abs=0.2)
    assert after.accuracy > before.accuracy


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_fit_is_the_least_of_its_loss(has_bias):
    given, right = simulated(60, 3.0, [0.5, 0.0, -0.5, 0.0])
    fit, _, _ = fitted(given, right, has_bias=has_bias)
    slope, bias = fit.slope, fit.bias
    logs = np.array([one.logs for one in given])

    def loss(slope, bias):
        scores = slope * logs + bias
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        penalty = 0.5 * ((slope - 1) ** 2 + (bias**2).sum())
        return -scores[range(60), right].sum() + penalty

    least = loss(slope, bias)
    chance = np.random.default_rng(0)
    for _ in range(50):
        step = chance.normal(0, 0.05, 1 + len(bias))
        assert loss(slope + step[0], bias + (step[1:] if has_bias else 0)) >= least


def test_a_model_that_is_always_wrong_says_nothing_in_the_end():
    given = [distributions.found(np.array([0.9, 0.1]), 0.0)] * 40
    fit, _, after = fitted(given, [1] * 40, has_bias=False)
    slope = fit.slope
    assert slope == 0.01
    assert after.bins[0].confidence == pytest.approx(0.5, abs=0.01)
