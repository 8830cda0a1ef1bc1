"""Calibration: measure the quality of probabilities, and improve them with examples.

Here are the metrics (accuracy, Brier score, log loss, expected calibration error), the fit on
labelled examples, its file, and the reliability diagram (which imports Matplotlib on first use).
Works on distributions and knows no models; a fingerprint tells which model, question and prompts a
`Calibration` belongs to.

What is fitted. With z the logarithms of a distribution, the calibrated one is softmax(s·z + b): s
is one over the temperature (Guo et al., 2017), b a number for each label. The log loss of the right
labels is convex in s and b, so Newton's method finds the one best fit, the same each time. A small
penalty pulls s towards 1 and b towards 0, so that few examples, or examples that are all right,
cannot drive them to infinity.

With vectors x of the states, weights W are learned, too: softmax(s·z + b + W·x), a logistic
regression that begins at what is known without it. Cross-validation over fifths of the examples
chooses its ridge penalty, and a last factor of all scores.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.errors import OptionError, counted, requires
from structgen.storage import written_whole

from .distributions import Distribution, Floats, rescaled, softmax

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

N_BINS = 10
"""Bins of a reliability diagram, of equal width."""

_LEAST = 1e-6
"""The smallest probability of the right label in the log loss."""


class _FirstError:
    """Makes Pydantic stop at the first wrong element: of millions it would keep an error each."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(kind), "fail_fast": True}


Many: TypeAlias = Annotated[tuple[T, ...], _FirstError()]
"""A tuple that may be foreign."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Examples whose likeliest label has a similar probability.

    Attributes:
        low: the lowest probability in the bin.
        high: the start of the next bin.
        count: the number of examples.
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
    """The quality of probabilities on labelled examples.

    Attributes:
        n: number of examples.
        accuracy: how often the likeliest label was right.
        brier: mean over the examples of the squared distance from the distribution to the truth:
            0 if the right label always had probability 1, 2 if a wrong one did.
        ece: expected calibration error: the difference between the probability of the likeliest
            label and how often it was right, averaged over bins, weighted by their examples.
        log_loss: mean of minus the logarithm of the right label's probability.
        bins: the bins of ``ece``, without empty ones.
    """

    n: int
    accuracy: float
    brier: float
    ece: float
    log_loss: float
    bins: Many[Bin]

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.3f}, Brier {self.brier:.3f}, ECE {self.ece:.3f}, "
            f"log loss {self.log_loss:.3f} (n={self.n})"
        )


def measured(probabilities: Sequence[Floats] | Floats, right: Sequence[int]) -> Metrics:
    """Measure distributions, each of which may have other labels.

    Args:
        probabilities: float64 ``[n_labels]`` for each example.
        right: the index of the right label of each.
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
"""Parts into which examples are divided to measure a fit on unseen examples."""

FEWEST = 2 * N_FOLDS
"""Fewest examples that can be fitted."""

_FORMAT = "structgen calibration 1"
_PENALTY = 0.5
"""Weight of the penalty, where an example has weight 1."""

_PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Penalties on the weights of vectors, the strongest first."""

_MOST_STEPS = 100
_LEAST_STEP = 1e-4
_MOST = 1e6
_MOST_BYTES = 1 << 26
_MOST_VALUES = 3_000_000  # more numbers than fit in so many bytes
_MOST_NAMES = 100_000
_LEAST_SLOPE = 0.01


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted calibration of one question, with its accuracy before and after.

    Attributes:
        temperature: above 1: the model was overconfident; below 1: underconfident.
        bias: added to the logarithm of each label's probability, in the question's order; zeros if
            not fitted.
        before: the quality of the probabilities without it.
        after: their quality with it, by fivefold cross-validation, so expect this for new examples.
        model: the model's name.
        question: the text of the question.
        labels: the texts of its labels.
        fingerprint: a hash of the model, question, template and debias that it is for.
        weights: for each label, the weights of the state's vector, whose sum is added to the
            logarithm of its probability; empty if none were learned.
        embedder: the name of the embedder that made the vectors.
    """

    temperature: float
    bias: Many[float]
    before: Metrics
    after: Metrics
    model: str
    question: str
    labels: Many[str]
    fingerprint: str
    weights: Many[Many[float]] = ()
    embedder: str | None = None

    def __str__(self) -> str:
        return f"temperature {self.temperature:.2f}\nbefore: {self.before}\nafter:  {self.after}"

    def applied(
        self, given: Distribution, vector: Floats | None, labels: Sequence[str]
    ) -> Distribution:
        """Return the calibrated distribution.

        Args:
            given: the distribution over the labels, in the order in which they were learned.
            vector: the vector of the state, which `weights` need.
            labels: the labels in the order of the result.

        Raises:
            OptionError: the calibration, from a file, has other labels than the question.
        """
        place = {label: i for i, label in enumerate(self.labels)}
        if len(self.labels) != len(labels) or place.keys() != set(labels):
            raise OptionError(
                f"The calibration of {self.question!r} has {counted(len(self.labels), 'label')}, "
                f"but the question {len(labels)}, or others. Repeat Decider.calibrate."
            )
        bias = np.array(self.bias)
        if self.weights:
            bias += np.array(self.weights) @ vector
        order = [place[label] for label in labels]
        return rescaled(given, 1 / self.temperature, bias).in_order(order)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the reliability diagrams before and after, side by side.

        Args:
            path: the file to save them to, in the format of its suffix; None: they are not saved.

        Raises:
            OptionError: Matplotlib is not installed: ``pip install 'structgen[plot]'``.
        """
        return reliability_diagram({"before": self.before, "after": self.after}, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a JSON file, atomically."""
        write(path, _FORMAT, asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a calibration from a file of `save`.

        Raises:
            OptionError: the file is not a calibration's.
            OSError: it cannot be read.
        """
        return read(path, _FORMAT, cls, "a calibration that structgen saved", "calibrate")

    def __post_init__(self) -> None:
        """Check values that may be wrong in a file.

        Raises:
            ValueError: a number is out of range, or their count differs from that of labels.
        """
        if len(self.bias) != len(self.labels):
            raise ValueError("its number of biases differs from its number of labels")
        if self.weights and (
            len(self.weights) != len(self.labels) or len({len(row) for row in self.weights}) != 1
        ):
            raise ValueError("its number of rows of weights differs from its number of labels")
        numbers = (self.temperature, *self.bias, *itertools.chain.from_iterable(self.weights))
        if self.temperature < 1 / _MOST or not all(abs(one) <= _MOST for one in numbers):
            raise ValueError("its numbers are out of range")


def write(path: str | os.PathLike[str], form: str, what: Mapping[str, Any]) -> None:
    """Write an object to a JSON file, completely or not at all; ``form`` names the format."""
    with written_whole(Path(path)) as file:
        text = json.dumps({"format": form, **what}, ensure_ascii=False, indent=1)
        file.write(f"{text}\n".encode())


def read(path: str | os.PathLike[str], form: str, kind: type[T], what: str, made_by: str) -> T:
    """Read a file of `write`, which may be foreign.

    Raises:
        OptionError: the file is not a ``what``, as made by ``Decider.made_by``.
        OSError: it cannot be read.
    """
    from pydantic import TypeAdapter  # imported late: only loading needs it

    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        if data.count(b",") + data.count(b"[") > _MOST_VALUES or data.count(b":") > _MOST_NAMES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values, or {_MOST_NAMES:,} names")
        given = json.loads(data)
        found = given.get("format") if isinstance(given, dict) else None
        if found != form:
            raise ValueError(f"its format is {found!r}")
        return TypeAdapter(kind).validate_python(given)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(
            f"{os.fspath(path)} is not {what}: {error}. Create one with Decider.{made_by}."
        ) from None


@dataclass(frozen=True, slots=True)
class Fit:
    """The parameters of a fit: see `Calibration`; ``weights`` is ``[n_labels, dimensions]``."""

    slope: float
    bias: Floats
    weights: Floats

    def scores(self, logs: Floats, vectors: Floats) -> Floats:
        """Return the logarithms of calibrated distributions, each up to a constant."""
        found: Floats = self.slope * logs + self.bias + vectors @ self.weights.T
        return found

    def scaled(self, factor: float) -> Fit:
        """Return the same with all scores multiplied by a factor."""
        return Fit(factor * self.slope, factor * self.bias, factor * self.weights)


def fitted(
    given: Sequence[Distribution],
    right: Sequence[int],
    *,
    has_bias: bool,
    vectors: Floats | None = None,
) -> tuple[Fit, Metrics, Metrics]:
    """Fit on examples.

    Args:
        given: a distribution for each example.
        right: the index of the right label of each.
        has_bias: whether to fit a bias for each label, too.
        vectors: ``[n, dimensions]``, the vectors of the states, to learn weights for them, too.

    Returns:
        The fit, and the metrics before and after it; the latter on held-out examples.
    """
    logs = np.array([one.logs for one in given])
    labels = np.array(right)
    known = np.zeros((len(right), 0)) if vectors is None else vectors

    def fits(some: npt.NDArray[np.bool_]) -> list[Fit]:
        slope, bias = _fit(logs[some], labels[some], has_bias and vectors is None)
        if vectors is None:
            return [Fit(slope, bias, np.zeros((len(bias), 0)))]
        rows = _learned(slope * logs[some], known[some], labels[some])
        return [Fit(slope, row[-1], row[:-1].T) for row in rows]

    folds = np.empty(len(labels), int)  # each fold has its share of each label
    folds[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % N_FOLDS
    left_out = np.zeros((1 if vectors is None else len(_PENALTIES), *logs.shape))
    for fold in range(N_FOLDS):
        for i, fit in enumerate(fits(folds != fold)):
            some = folds == fold
            left_out[i, some] = fit.scores(logs[some], known[some])
    made = fits(np.ones(len(labels), bool))
    if vectors is not None:
        factors = [_fit(scores, labels, has_bias=False)[0] for scores in left_out]
        made = [fit.scaled(factor) for fit, factor in zip(made, factors, strict=True)]
        left_out *= np.array(factors)[:, None, None]
    after = [measured(softmax(scores), right) for scores in left_out]
    best = min(range(len(made)), key=lambda i: after[i].log_loss)
    return made[best], measured([one.values for one in given], right), after[best]


def _learned(known: Floats, vectors: Floats, right: np.ndarray) -> list[Floats]:
    """Fit a logistic regression on vectors, added to known scores, for each of `_PENALTIES`.

    Gradient steps, each as long as a bound on the curvature allows (Böhning, 1992: half of the
    features' second moments), in the axes of these moments, with Nesterov's momentum. Each penalty
    begins at the result of the last.

    Returns:
        Weights ``[dimensions + 1, n_labels]``, the last row those of a constant.
    """
    features = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1)
    left, sizes, axes = np.linalg.svd(features, full_matrices=False)
    features = left * sizes
    truth = np.eye(known.shape[1])[right]
    at = np.zeros((len(sizes), known.shape[1]))
    found = []
    for penalty in _PENALTIES:
        curvature = (sizes**2 / 2 + penalty)[:, None]
        ahead, momentum = at, 1.0
        for _ in range(_MOST_STEPS):
            wrong = softmax(known + features @ ahead) - truth
            new = ahead - (features.T @ wrong + penalty * ahead) / curvature
            step = new - at
            at = new
            if np.abs(step).max() < _LEAST_STEP:
                break
            if float(((ahead - new) * step).sum()) > 0:  # the step was too long
                momentum = 1.0
            before, momentum = momentum, (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (before - 1) / momentum * step
        found.append(axes.T @ at)
    return found


def _fit(logs: Floats, right: np.ndarray, has_bias: bool) -> tuple[float, Floats]:
    """Minimise the log loss with its penalty by Newton's method. ``logs`` is ``[n, n_labels]``."""
    n, k = logs.shape
    # The parameters are s and, if wanted, b; features are [n, label, parameter].
    features = logs[:, :, None]
    if has_bias:
        features = np.concatenate([features, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)
    n_parameters = features.shape[2]
    rest = np.zeros(n_parameters)
    rest[0] = 1.0
    at = rest.copy()

    def loss(parameters: Floats) -> float:
        of_right = softmax(features @ parameters)[np.arange(n), right]
        penalty = _PENALTY * float(((parameters - rest) ** 2).sum())
        return float(-np.log(np.maximum(of_right, 1e-300)).sum()) + penalty

    for _ in range(_MOST_STEPS):
        p = softmax(features @ at)
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
    # Examples that contradict the model would reverse its order: then its answer is ignored.
    return max(float(at[0]), _LEAST_SLOPE), at[1:] if has_bias else np.zeros(k)


def reliability_diagram(
    measured: Mapping[str, Metrics], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw a diagram for each of the given metrics, by title, as in `Calibration.plot`."""
    with requires(OptionError, "A reliability diagram requires Matplotlib", "plot"):
        from matplotlib.figure import Figure
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
                alpha=0.25 + 0.75 * part.count / one.n,  # darker bars have more examples
            )
            axis.plot(part.confidence, part.accuracy, "o", color="#b04030", markersize=4)
        axis.set_title(f"{title}\naccuracy {one.accuracy:.2f}, ECE {one.ece:.3f}", fontsize=9)
        axis.set_xlabel("probability of the most likely label", fontsize=8)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    axes[0].set_ylabel("fraction that was right", fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure
