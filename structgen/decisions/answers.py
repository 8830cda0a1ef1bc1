"""Answers: the data that a decider returns, with a probability for each label of each question."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar, final

from structgen import notebook
from structgen.errors import Abstained, OptionError

from .asking import Usage
from .distributions import Distribution
from .questions import Question

T = TypeVar("T")

LEAST_MASS = 0.001
"""The smallest share of the model's own distribution on the labels at which an answer is
informative: below it the model would hardly ever write one of them."""


@dataclass(frozen=True, slots=True, repr=False)
class _Answer:
    """The base of all answers.

    Attributes:
        labels: the texts of the labels, in the question's order.
        label_probabilities: the probability of each label, in the same order, with sum 1.
        mass: the share of the model's own distribution on the labels, that is, how likely it was to
            answer with one of them at all; with several prompts the mean.
        error_bound: the largest error of a probability, from parts of the sums that were left out.
        abstained: whether the likeliest label is below ``abstain_below``.
        informative: whether the answer seems to depend on the state. False: without a state the
            model answers nearly the same (tested with ``debias`` None, ``prior`` and
            ``contextual``); or ``mass`` is below 0.001; or, in a batch, all of many states got the
            same label. True is not a proof.
    """

    labels: tuple[str, ...]
    label_probabilities: tuple[float, ...]
    mass: float
    error_bound: float
    abstained: bool
    informative: bool

    def __repr__(self) -> str:
        pairs = zip(self.labels, self.label_probabilities, strict=True)
        shown = ", ".join(f"{label!r}: {p:.3f}" for label, p in pairs)
        signal = "" if self.informative else ", informative=False"
        return f"{type(self).__name__}({self.choice!r}, {{{shown}}}{signal})"

    @property
    def choice(self) -> Any:
        """The likeliest value; None if the decider abstained."""
        raise NotImplementedError

    @property
    def no_signal(self) -> str:
        """The reason why ``informative`` is False; empty if it is True."""
        if self.informative:
            return ""
        if self.mass < LEAST_MASS:
            return (
                f"the labels have less than {LEAST_MASS} of the model's own probability: it would "
                "have written something else"
            )
        return "with no state or a different one, the model's answer is nearly the same"

    def _repr_html_(self) -> str:
        """Return the labels as HTML, for notebooks."""
        pairs = zip(self.labels, self.label_probabilities, strict=True)
        return notebook.table(((label, f"{p:.3f}") for label, p in pairs), ("label", "probability"))

    @property
    def margin(self) -> float:
        """The probability of the likeliest label minus that of the second."""
        first, second = sorted(self.label_probabilities, reverse=True)[:2]
        return first - second

    @property
    def confidence(self) -> float:
        """1 if one label has all the probability, 0 if all labels have equal ones.

        It is not the chance of being right, but 1 minus the entropy of the distribution divided by
        the largest possible entropy.
        """
        entropy = -sum(p * math.log(p) for p in self.label_probabilities if p > 0)
        return max(0.0, 1 - entropy / math.log(len(self.labels)))  # rounding may make it negative

    @property
    def probability(self) -> float:
        """The probability of the likeliest label; for a `Predicate`, of yes."""
        return self.label_probabilities[self._likeliest]

    @property
    def _likeliest(self) -> int:
        return max(range(len(self.labels)), key=self.label_probabilities.__getitem__)


@dataclass(frozen=True, slots=True, repr=False)
class PredicateAnswer(_Answer):
    """The answer to a `Predicate`. ``labels`` are yes and no."""

    @property
    def probabilities(self) -> dict[bool, float]:
        """The probability of True and of False."""
        return dict(zip((True, False), self.label_probabilities, strict=True))

    @property
    def probability(self) -> float:
        """The probability of yes."""
        return self.label_probabilities[0]

    @property
    def choice(self) -> bool | None:
        """Whether yes is at least as likely as no; None if the decider abstained."""
        return None if self.abstained else self.probability >= 0.5


@dataclass(frozen=True, slots=True, repr=False)
class ChoiceAnswer(_Answer):
    """The answer to a `Choice`.

    Attributes:
        values: the values of the labels.
    """

    values: tuple[Any, ...]

    @property
    def choice(self) -> Any:
        """The likeliest option, the first of equals; None if the decider abstained."""
        return None if self.abstained else self.values[self._likeliest]

    @property
    def probabilities(self) -> dict[Any, float]:
        """The probability of each option, the likeliest first.

        If two options are equal in Python, as 1 and True are, the keys are their texts.
        """
        keys: Sequence[Any] = self.values
        if len(set(keys)) < len(keys):
            keys = self.labels
        pairs = zip(keys, self.label_probabilities, strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))


@dataclass(frozen=True, slots=True, repr=False)
class ScoreAnswer(_Answer):
    """The answer to a `Score`."""

    @property
    def score(self) -> float:
        """The mean level, with levels numbered 0, 1, 2 and so on: 1.3 lies above the second."""
        return sum(i * p for i, p in enumerate(self.label_probabilities))

    @property
    def choice(self) -> str | None:
        """The likeliest level; None if the decider abstained."""
        return None if self.abstained else self.labels[self._likeliest]

    @property
    def level(self) -> int | None:
        """The number of the likeliest level; None if the decider abstained."""
        return None if self.abstained else self._likeliest

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each level, in the order of the levels."""
        return dict(zip(self.labels, self.label_probabilities, strict=True))


Answer: TypeAlias = PredicateAnswer | ChoiceAnswer | ScoreAnswer
"""The answer to one question."""


@final
class Answers(Mapping[str, Any], Generic[T]):
    """The answers about one state: a mapping of a question's name to its answer.

    Attributes:
        usage: the tokens and passes used.
        trace: the prompts of each question, by name, exactly as the model got them, with special
            tokens by name. The first asks the question; the others are for ``debias``.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer],
        usage: Usage,
        trace: Mapping[str, tuple[str, ...]],
        output_type: type[T] | None = None,
    ) -> None:
        """Take the answers; ``output_type`` is the class that the questions came from."""
        self._answers = dict(answers)
        self.usage = usage
        self.trace = dict(trace)
        self._type = output_type

    def __getitem__(self, name: str) -> Any:
        """Return an answer.

        Raises:
            KeyError: no question has this name.
        """
        try:
            return self._answers[name]
        except KeyError:
            raise KeyError(f"{name} is not a question here. Asked: {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={one.choice!r}" for name, one in self._answers.items())
        return f"Answers({shown})"

    def _repr_html_(self) -> str:
        """Return the answers as HTML, for notebooks."""
        rows = [
            (name, "(abstained)" if a.abstained else a.choice, f"{max(a.label_probabilities):.3f}")
            for name, a in self._answers.items()
        ]
        return notebook.table(rows, ("question", "answer", "probability"))

    @property
    def abstained(self) -> tuple[str, ...]:
        """The names of the questions whose answers are not sure enough."""
        return tuple(name for name, answer in self._answers.items() if answer.abstained)

    def _without_signal(self, names: Collection[str]) -> Answers[T]:
        """Return the same with ``informative=False`` for some questions, by name."""
        marked = {
            name: replace(one, informative=False) if name in names else one
            for name, one in self._answers.items()
        }
        return Answers(marked, self.usage, self.trace, self._type)

    @property
    def value(self) -> T:
        """The likeliest answers as an instance of the class of the questions.

        Raises:
            OptionError: the questions did not come from a class.
            Abstained: the model is not sure enough of a field.
            pydantic.ValidationError: a validator of the class refuses these values.
        """
        if self._type is None:
            raise OptionError(
                "These questions did not come from a class. Read each answer: answers[name].choice."
            )
        if self.abstained:
            raise Abstained(
                f"The model is not sure enough about: {', '.join(self.abstained)}. The "
                "distributions are in answers[name].",
                text=repr(self),
                values=tuple(self._answers[name] for name in self.abstained),
            )
        values = {name: answer.choice for name, answer in self._answers.items()}
        return self._type(**values)


def answer_of(
    question: Question, given: Distribution, abstain_below: float | None, *, informative: bool
) -> Answer:
    """Make an answer from a distribution over a question's labels."""
    probabilities = tuple(given.values.tolist())
    surely = max(probabilities) - given.error_bound
    abstained = abstain_below is not None and surely < abstain_below
    common = (
        tuple(label.text for label in question.labels),
        probabilities,
        min(given.mass, 1.0),
        given.error_bound,
        abstained,
        informative,
    )
    if question.kind == "predicate":
        return PredicateAnswer(*common)
    if question.kind == "score":
        return ScoreAnswer(*common)
    return ChoiceAnswer(*common, values=tuple(label.value for label in question.labels))
