"""Calibration: how good probabilities are, and a temperature and biases that make them better.

It owns the metrics (accuracy, Brier score, log loss, expected calibration error), the fit on
labelled examples, the file that keeps it, and the reliability diagram, which imports Matplotlib
when one is drawn. It is given distributions and knows no models; a `Calibration` says by a
fingerprint of which model, question and prompts it is.

What is fitted. With z the logarithms of a distribution, the calibrated one is softmax(s·z + b): s
is one over the temperature (Guo et al., 2017), b a number for each label. The log loss of the right
labels is convex in s and b, so Newton's method finds the one best fit, the same each time. A small
penalty pulls s towards 1 and b towards 0, so that few examples, or examples that are all right,
cannot drive them to infinity.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from structgen.errors import OptionError
from structgen.storage import written_whole

from .distributions import Distribution, Floats, rescaled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


N_FOLDS = 5
"""Parts into which examples are cut to measure a fit on what it has not seen."""

FEWEST = 2 * N_FOLDS
"""Fewest examples that can be fitted."""

_FORMAT = "structgen calibration 1"
_PENALTY = 0.5
"""Weight of the penalty, against examples of weight 1: half an example's pull."""

_MOST_STEPS = 100
_LEAST_SLOPE = 0.01


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was fitted for one question, and how much better it is.

    Attributes:
        temperature: above 1 the model was too sure, below 1 not sure enough.
        bias: what is added to the logarithm of each label's probability, in the question's order;
            zeros where none was fitted.
        before: how good the probabilities were.
        after: how good they are with it: each fifth of the examples by what was fitted on the
            others, so this is what to expect of new ones.
        model: the model's name.
        question: the question's words.
        labels: its labels' texts.
        fingerprint: of all that it is good for: model, question, template and debias.
    """

    temperature: float
    bias: tuple[float, ...]
    before: Metrics
    after: Metrics
    model: str
    question: str
    labels: tuple[str, ...]
    fingerprint: str

    def __str__(self) -> str:
        return f"temperature {self.temperature:.2f}\nbefore: {self.before}\nafter:  {self.after}"

    def applied(self, given: Distribution) -> Distribution:
        """The calibrated distribution."""
        return rescaled(given, 1 / self.temperature, np.array(self.bias))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the reliability diagrams before and after, side by side.

        Args:
            path: where to save them; the ending says the format. None: nowhere.

        Raises:
            OptionError: Matplotlib is not installed: ``pip install 'structgen[plot]'``.
        """

        return reliability_diagram({"before": self.before, "after": self.after}, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, whole or not at all."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, ensure_ascii=False, indent=1)
        with written_whole(Path(path)) as file:
            file.write(f"{text}\n".encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read it from a file of `save`.

        Raises:
            OptionError: the file is none.
            OSError: it cannot be read.
        """
        from pydantic import TypeAdapter  # late: those who load none need not wait for it

        try:
            given = json.loads(Path(path).read_text(encoding="utf-8"))
            if given["format"] != _FORMAT:
                raise ValueError(f"its format is {given['format']!r}")
            found = TypeAdapter(cls).validate_python(given)
            numbers = (found.temperature, *found.bias)
            if not all(map(math.isfinite, numbers)) or found.temperature <= 0:
                raise ValueError("its numbers are out of range")
            if len(found.bias) != len(found.labels):
                raise ValueError("it has not one bias a label")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                f"{os.fspath(path)} is not a calibration that structgen saved: {error}. Make one "
                "with Decider.calibrate."
            ) from None
        return found


def fitted(
    given: Sequence[Distribution], right: Sequence[int], *, has_bias: bool
) -> tuple[float, Floats, Metrics, Metrics]:
    """Fit on examples.

    Args:
        given: a distribution for each.
        right: the index of its right label.
        has_bias: whether to fit a bias for each label too.

    Returns:
        Slope, bias, and measurements before and after, the latter on what was left out.
    """
    logs = np.array([one.logs for one in given])
    labels = np.array(right)
    after: list[Floats] = [np.empty(0)] * len(given)
    folds = np.arange(len(given)) % N_FOLDS
    for fold in range(N_FOLDS):
        slope, bias = _fit(logs[folds != fold], labels[folds != fold], has_bias)
        for i in np.flatnonzero(folds == fold).tolist():
            after[i] = rescaled(given[i], slope, bias).values
    slope, bias = _fit(logs, labels, has_bias)
    before = measured([one.values for one in given], right)
    return slope, bias, before, measured(after, right)


def _fit(logs: Floats, right: np.ndarray, has_bias: bool) -> tuple[float, Floats]:
    """Newton's method on the log loss with its penalty. ``logs`` is ``[n, n_labels]``."""
    n, k = logs.shape
    # The parameters are s and, where wanted, b; features [n, label, parameter].
    features = logs[:, :, None]
    if has_bias:
        features = np.concatenate([features, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)
    n_parameters = features.shape[2]
    rest = np.zeros(n_parameters)
    rest[0] = 1.0
    at = rest.copy()

    def softmax(parameters: Floats) -> Floats:
        scores = features @ parameters
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        found: Floats = weights / weights.sum(axis=1, keepdims=True)
        return found

    def loss(parameters: Floats) -> float:
        of_right = softmax(parameters)[np.arange(n), right]
        penalty = _PENALTY * float(((parameters - rest) ** 2).sum())
        return float(-np.log(np.maximum(of_right, 1e-300)).sum()) + penalty

    for _ in range(_MOST_STEPS):
        p = softmax(at)
        expected = np.einsum("nk,nkd->nd", p, features)
        gradient = (expected - features[np.arange(n), right]).sum(axis=0)
        gradient += 2 * _PENALTY * (at - rest)
        hessian = np.einsum("nk,nkd,nke->de", p, features, features) - expected.T @ expected
        hessian += 2 * _PENALTY * np.eye(n_parameters)
        step = np.linalg.solve(hessian, gradient)
        decrement = float(gradient @ step)
        if decrement < 1e-12:
            break
        size, now = 1.0, loss(at)
        while size > 1e-8 and loss(at - size * step) > now - 0.25 * size * decrement:
            size /= 2
        at = at - size * step
    # Examples that contradict the model would turn its order around: then it says nothing at all.
    return max(float(at[0]), _LEAST_SLOPE), at[1:] if has_bias else np.zeros(k)


def reliability_diagram(
    measured: Mapping[str, Metrics], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw a reliability diagram for each of some measurements, side by side.

    Args:
        measured: title to measurement.
        path: where to save it; the ending says the format. None: nowhere.

    Raises:
        OptionError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError(
            "A reliability diagram needs Matplotlib: pip install 'structgen[plot]'."
        ) from None
    figure = Figure(figsize=(3.6 * len(measured), 3.8), layout="constrained")
    axes = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    for axis, (title, one) in zip(axes, measured.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
        for part in one.bins:
            axis.bar(
                part.low,
                part.accuracy,
                width=1 / N_BINS,
                align="edge",
                color="#4878a8",
                edgecolor="white",
                alpha=0.25 + 0.75 * part.count / one.n,  # darker: more examples
            )
            axis.plot(part.confidence, part.accuracy, "o", color="#b04030", markersize=4)
        axis.set_title(f"{title}\naccuracy {one.accuracy:.2f}, ECE {one.ece:.3f}", fontsize=9)
        axis.set_xlabel("probability of the likeliest label", fontsize=8)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    axes[0].set_ylabel("how often it was right", fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure
