"""How good probabilities are: accuracy, Brier score, log loss, expected calibration error.

It owns the arithmetic and the data; `structgen.decisions.diagram` draws it. It knows no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .distributions import Floats

N_BINS = 10
"""Bins of a reliability diagram, of equal width."""

_LEAST = 1e-6
"""What the right label's probability counts as at least in the log loss."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Examples whose likeliest label has about the same probability.

    Attributes:
        low: the least probability that belongs here.
        high: where the next bin begins.
        count: examples.
        confidence: their mean probability of the likeliest label.
        accuracy: how often that label was right.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """How good probabilities were on labelled examples.

    Attributes:
        n: examples.
        accuracy: how often the likeliest label was right.
        brier: mean over the examples of the squared distance from the distribution to the truth:
            0 where the right label always had it all, 2 where a wrong one did.
        ece: expected calibration error: by how much the probability of the likeliest label missed
            how often it was right, over bins weighted by their examples.
        log_loss: mean of minus the logarithm of the right label's probability.
        bins: what ``ece`` was summed over, empty ones left out.
    """

    n: int
    accuracy: float
    brier: float
    ece: float
    log_loss: float
    bins: tuple[Bin, ...]

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.3f}, Brier {self.brier:.3f}, ECE {self.ece:.3f}, "
            f"log loss {self.log_loss:.3f} (n={self.n})"
        )


def measured(probabilities: Sequence[Floats], right: Sequence[int]) -> Metrics:
    """Measure distributions, which may be over different labels each.

    Args:
        probabilities: float64 ``[n_labels]`` of each example.
        right: the index of its right label.
    """
    n = len(right)
    top = np.array([p.max() for p in probabilities])
    hits = np.array([int(p.argmax()) == r for p, r in zip(probabilities, right, strict=True)])
    of_right = np.array([p[r] for p, r in zip(probabilities, right, strict=True)])
    squares = np.array([float((p**2).sum()) for p in probabilities])
    bins = _bins(top, hits)
    return Metrics(
        n=n,
        accuracy=float(hits.mean()),
        brier=float((squares - 2 * of_right + 1).mean()),
        ece=sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / n,
        log_loss=float(-np.log(np.maximum(of_right, _LEAST)).mean()),
        bins=bins,
    )


def _bins(top: Floats, hits: npt.NDArray[np.bool_]) -> tuple[Bin, ...]:
    which = np.minimum((top * N_BINS).astype(int), N_BINS - 1)
    found = []
    for i in range(N_BINS):
        inside = which == i
        if inside.any():
            count = int(inside.sum())
            confidence, accuracy = float(top[inside].mean()), float(hits[inside].mean())
            found.append(Bin(i / N_BINS, (i + 1) / N_BINS, count, confidence, accuracy))
    return tuple(found)
