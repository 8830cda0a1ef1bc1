"""Probabilities of labels with bounds, and how bias and calibration change them.

Turns the mass of each label into a distribution, each number with its lowest and highest possible
value. Corrections keep these bounds proven, because each raises a label's probability if its own
weight grows, and lowers it if another's grows. Knows no models, prompts or questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

LEAST_PRIOR = 0.1
"""The smallest prior of a label, as a share of the even one: rarer labels are not raised further.
"""

_LEAST = 0.001
"""The smallest probability whose logarithm is taken, or `LEAST_PRIOR` of an even share if that is
less: below it, numbers depend on the parts that were left out of the sums."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Probabilities of some labels.

    Attributes:
        values: float64 ``[n]``, with sum 1.
        low: float64 ``[n]``, the lowest possible values.
        high: float64 ``[n]``, the highest possible values.
        mass: the part of the model's own distribution on the labels that was found.
    """

    values: Floats
    low: Floats
    high: Floats
    mass: float

    @property
    def error_bound(self) -> float:
        """The largest error of a probability."""
        return float(max((self.high - self.values).max(), (self.values - self.low).max(), 0.0))

    @property
    def logs(self) -> Floats:
        """Logarithms of the values, with `_LEAST` as the smallest value."""
        return _logs(self.values)

    def in_order(self, order: Sequence[int]) -> Distribution:
        """Return the same for labels in another order."""
        rows = [*order]
        return Distribution(self.values[rows], self.low[rows], self.high[rows], self.mass)


def found(masses: Floats, error: float) -> Distribution:
    """Make a distribution from masses.

    Args:
        masses: float64 ``[n]``, the mass found for each label.
        error: the mass that was not found, divided by the largest possible total.
    """
    total = float(masses.sum())
    if not total:  # without any mass nothing is known
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
    """Return the total variation distance, 0 to 1: how much probability lies on other labels."""
    return float(np.abs(a.values - b.values).sum()) / 2


def is_sharp(prior: Distribution, tolerance: float) -> bool:
    """Return whether the error of a prior moves no probability by more than ``tolerance / 2``.

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
    """Return the softmax of each row, or of a vector."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return found


def _logs(values: Floats) -> Floats:
    return np.log(np.maximum(values, min(_LEAST, LEAST_PRIOR / len(values))))


def _weighted(values: Floats, low: Floats, high: Floats, mass: float) -> Distribution:
    """Normalise weights. A probability is lowest if its own weight is lowest and the others are
    highest."""
    # Rounding may put a bound on the wrong side of its value.
    low, high = np.minimum(low, values), np.maximum(high, values)
    least = low / np.maximum(low + (high.sum() - high), np.finfo(float).tiny)
    most = high / np.maximum(high + (low.sum() - low), np.finfo(float).tiny)
    return Distribution(values / values.sum(), least, most, mass)
