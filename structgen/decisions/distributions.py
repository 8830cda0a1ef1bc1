"""Probabilities of labels with bounds, and how bias and calibration change them.

Turns the mass of each label into a distribution, each number with its least and greatest possible
value. Corrections keep these bounds proven, because each raises a label's probability when its own
weight grows, and lowers it when another's does. Knows no models, prompts or questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

LEAST_PRIOR = 0.1
"""How much of an even share a label's prior counts at least: what is rarer is not lifted more."""

_LEAST = 0.001
"""What a probability counts as at least where its logarithm is taken, or `LEAST_PRIOR` of an even
share where that is less: below it, numbers are made of what was left out of the sums."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities of some labels.

    Attributes:
        values: float64 ``[n]``, of sum 1.
        low: float64 ``[n]``, the least that each can be.
        high: float64 ``[n]``, the most.
        mass: the part of the model's own distribution on the labels that were looked at.
    """

    values: Floats
    low: Floats
    high: Floats
    mass: float

    @property
    def error_bound(self) -> float:
        """No probability is further off than this."""
        return float(max((self.high - self.values).max(), (self.values - self.low).max(), 0.0))

    @property
    def logs(self) -> Floats:
        """Logarithms, of nothing less than `_LEAST`."""
        return _logs(self.values)

    def in_order(self, order: Sequence[int]) -> Distribution:
        """Return the same, of labels in another order."""
        rows = [*order]
        return Distribution(self.values[rows], self.low[rows], self.high[rows], self.mass)


def found(masses: Floats, error: float) -> Distribution:
    """Make a distribution of masses.

    Args:
        masses: float64 ``[n]``, what was found of each.
        error: what was not found, by all there may be.
    """
    total = float(masses.sum())
    if not total:  # nothing says nothing about any of them
        n = len(masses)
        return Distribution(np.full(n, 1 / n), np.zeros(n), np.ones(n), 0.0)
    left = error * total / (1 - error) if error < 1 else np.inf
    low = masses / (total + left) if np.isfinite(left) else np.zeros(len(masses))
    high = np.minimum(low + error, 1.0)
    return Distribution(masses / total, low, high, total)


def mean(parts: Sequence[Distribution]) -> Distribution:
    """Return the mean of distributions over the same labels."""
    return Distribution(
        np.mean([part.values for part in parts], axis=0),
        np.mean([part.low for part in parts], axis=0),
        np.mean([part.high for part in parts], axis=0),
        float(np.mean([part.mass for part in parts])),
    )


def without_prior(given: Distribution, prior: Distribution) -> Distribution:
    """Divide by the probabilities that the labels have without a state (Zhao et al., 2021)."""
    least = LEAST_PRIOR / len(given.values)

    def floored(values: Floats) -> Floats:
        return np.maximum(values, least)

    return _weighted(
        given.values / floored(prior.values),
        given.low / floored(prior.high),
        given.high / floored(prior.low),
        given.mass,
    )


def distance(a: Distribution, b: Distribution) -> float:
    """Return the total variation distance, 0 to 1: what of the probability lies on other labels."""
    return float(np.abs(a.values - b.values).sum()) / 2


def is_sharp(prior: Distribution, tolerance: float) -> bool:
    """Return whether dividing by this prior moves no probability by over ``tolerance / 2``.

    A probability ``p`` moves by at most ``p * (1 - p) <= 1/4`` of the relative error of the prior.
    """
    least = LEAST_PRIOR / len(prior.values)
    low, high = np.maximum(prior.low, least), np.maximum(prior.high, least)
    return bool((high / low).max() - 1 <= 2 * tolerance)


def rescaled(given: Distribution, slope: float, bias: Floats) -> Distribution:
    """Multiply the logarithms by ``slope`` (one over the temperature) and add ``bias``."""

    def weights(values: Floats) -> Floats:
        logs = slope * _logs(values) + bias
        return np.exp(logs - highest)

    highest = float((slope * given.logs + bias).max())
    return _weighted(weights(given.values), weights(given.low), weights(given.high), given.mass)


def softmax(scores: Floats) -> Floats:
    """Return what scores make of each row, or of a vector: exponentials of sum 1."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return found


def _logs(values: Floats) -> Floats:
    return np.log(np.maximum(values, min(_LEAST, LEAST_PRIOR / len(values))))


def _weighted(values: Floats, low: Floats, high: Floats, mass: float) -> Distribution:
    """Normalise weights; a probability is least where its own is and the others are greatest."""
    # Rounding may put a bound on the wrong side of what it bounds.
    low, high = np.minimum(low, values), np.maximum(high, values)
    least = low / np.maximum(low + (high.sum() - high), np.finfo(float).tiny)
    most = high / np.maximum(high + (low.sum() - low), np.finfo(float).tiny)
    return Distribution(values / values.sum(), least, most, mass)
