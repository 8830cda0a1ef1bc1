"""Requests: what a caller asks, checked, and its answers once distributions are there.

It owns the checks of states, questions, thresholds, examples and calibrations, which deciders of
both kinds share. It runs no model.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from structgen.errors import OptionError, UninformativeWarning
from structgen.storage import fork_safe

from .answers import LEAST_MASS, Answer, Answers, answer_of
from .asking import LEAST_CHANGE, Found, Settings, check_share
from .calibration import FEWEST, Calibration
from .fields import is_model_class, questions_in
from .questions import Choice, Predicate, Question, Score
from .templates import state_text

if TYPE_CHECKING:
    from pydantic import BaseModel
    from typing_extensions import TypeVar

    ModelT = TypeVar("ModelT", bound=BaseModel, default=Any)

Thresholds: TypeAlias = float | Mapping[str, float] | None
"""``abstain_below``: for all questions, or by their names."""


def check_thresholds(given: Any) -> None:
    """Check a decider's ``abstain_below``; questions it names may be asked later.

    Raises:
        OptionError: it is no number from 0 to 1, and no mapping of names to some.
    """
    _thresholds(given, given if isinstance(given, Mapping) else {})


_OF_CALLS = {
    "decide": ("abstain_below", "timeout", "cancel"),
    "decide_batch": ("abstain_below", "timeout", "cancel"),
    "calibrate": ("bias", "timeout", "cancel"),
}


def check_call(name: str, misplaced: Mapping[str, Any]) -> None:
    """Check that a call of a decider got no options that it does not take.

    Raises:
        OptionError: it did; the message says where they belong.
    """
    for option in misplaced:
        if option in (*Settings.__slots__, "calibrations", "warn"):
            raise OptionError(
                f"{option}= belongs to the decider, not to {name}: make one with "
                f"Decider(model, {option}=…), or AsyncDecider of an asynchronous model."
            )
        known = ", ".join(f"{one}=" for one in _OF_CALLS[name])
        raise OptionError(f"{name} takes no {option}=. It takes {known}.")


@dataclass(frozen=True, slots=True)
class Request:
    """Questions that were asked.

    Attributes:
        questions: by name.
        thresholds: of the answers that may be abstained from.
        output_type: the class that the questions came from, or None.
    """

    questions: dict[str, Question]
    thresholds: dict[str, float]
    output_type: Any

    @classmethod
    def of(cls, questions: Any, abstain_below: Any, default: Thresholds = None) -> Request:
        """Check what a caller asked.

        Args:
            questions: by name, or a class.
            abstain_below: of this call.
            default: of the decider, which holds where the call says nothing.

        Raises:
            OptionError: no questions, or a bad threshold.
        """
        asked, output_type = _questions(questions)
        if abstain_below is None and isinstance(default, Mapping):
            abstain_below = {name: default[name] for name in asked if name in default}
        elif abstain_below is None:
            abstain_below = default
        return cls(asked, _thresholds(abstain_below, asked), output_type)

    def answers(
        self, found: Found, calibration_of: Callable[[str], Calibration | None]
    ) -> Answers[Any]:
        """Make the answers; ``calibration_of`` is told a question's name."""
        answers: dict[str, Answer] = {}
        for name, question in self.questions.items():
            given = found.distributions[name]
            calibration = calibration_of(name)
            if calibration is not None:
                given = calibration.applied(given)
            informative = found.changes.get(name, 1.0) >= LEAST_CHANGE and given.mass >= LEAST_MASS
            answers[name] = answer_of(
                question, given, self.thresholds.get(name), informative=informative
            )
        return Answers(answers, found.usage, found.trace, self.output_type)


MANY = 20
"""So many states that got one and the same label say that a question decides nothing."""

_KEPT = 256


@final
class Signals:
    """What a decider has seen of each question, to warn once where its answers carry no signal.

    Safe to share by threads. It changes no answer of a single call: what ran before does not count.
    """

    def __init__(self, model: str, *, warns: bool) -> None:
        """Nothing is seen yet; ``model`` is the model's name."""
        self._model = model
        self._warns = warns
        self._labels: OrderedDict[Question, dict[str, str]] = OrderedDict()
        self._warned: set[Question] = set()
        self._lock = fork_safe(threading.Lock())

    def of(
        self, request: Request, states: Sequence[str], batch: list[Answers[Any]]
    ) -> list[Answers[Any]]:
        """Look at the answers about some states that were asked together, and mark them.

        Returns:
            The answers: ``informative`` is False where `MANY` states or more all got one label.
        """
        alike: set[str] = set()
        for name, question in request.questions.items():
            answers = [one[name] for one in batch]
            labels = dict(zip(states, map(_likeliest, answers), strict=True))
            if len(labels) >= MANY and len(set(labels.values())) == 1:
                alike.add(name)
            reason = self._reason(question, labels, answers) if self._warns else None
            if reason is not None:
                warnings.warn(
                    f"{name!r}: {reason} {self._model} may decide nothing here. Measure it with "
                    "Decider.calibrate and labelled examples, or use a larger model "
                    "(docs/decisions.md). This is said once a question.",
                    UninformativeWarning,
                    stacklevel=3,
                )
        return [answers._without_signal(alike) for answers in batch] if alike else batch

    def _reason(
        self, question: Question, labels: dict[str, str], answers: Sequence[Answer]
    ) -> str | None:
        """Why to warn of a question now, if at all."""
        with self._lock:
            if question in self._warned:
                return None
            seen = self._labels.pop(question, {}) | labels
            reason = None
            silent = next((one for one in answers if not one.informative), None)
            if silent is not None:
                reason = f"{silent.no_signal}."
            elif len(seen) >= MANY and len(set(seen.values())) == 1:
                reason = f"all of {len(seen)} states got {next(iter(seen.values()))!r}."
            if reason is not None:
                self._warned.add(question)
            else:
                self._labels[question] = dict([*seen.items()][-MANY:])
            if len(self._labels) > _KEPT:
                self._labels.popitem(last=False)
            return reason


def _likeliest(answer: Answer) -> str:
    return answer.labels[answer.label_probabilities.index(max(answer.label_probabilities))]


@final
class Calibrations:
    """Calibrations of one model, by what each was made for."""

    def __init__(self, given: Iterable[Calibration], model: str) -> None:
        """Check that they were made for this model.

        Raises:
            OptionError: one was not.
        """
        self.all = tuple(given)
        for one in self.all:
            if not isinstance(one, Calibration):
                raise OptionError(f"calibrations: {one!r} is no Calibration.")
            if one.model != model:
                raise OptionError(
                    f"The calibration of {one.question!r} was made for the model {one.model}, and "
                    f"this is {model}. Make one for it with Decider.calibrate."
                )
        self._of = {one.fingerprint: one for one in self.all}

    def __bool__(self) -> bool:
        return bool(self._of)

    def get(self, fingerprint: str) -> Calibration | None:
        """The one for a question."""
        return self._of.get(fingerprint)


def states_of(states: Any) -> list[str]:
    """The texts of several states.

    Raises:
        OptionError: it is no list of them.
        PromptError: one is no text and no JSON.
    """
    if isinstance(states, (str, bytes, Mapping)) or not isinstance(states, Iterable):
        raise OptionError(
            f"decide_batch takes a list of states, not {type(states).__name__}. For one "
            "state: decide."
        )
    return [state_text(state) for state in states]


def examples_of(question: Question, examples: Iterable[Any]) -> tuple[list[str], list[int]]:
    """The texts of the states of labelled examples, and which label is right for each.

    Raises:
        OptionError: they are no pairs, too few, or a right answer is no label.
        PromptError: a state is no text and no JSON.
    """
    Request.of({"question": question}, None)
    texts: list[str] = []
    right: list[int] = []
    for i, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise OptionError(
                f"Example {i} is {example!r}. Pass pairs of a state and its right answer."
            )
        texts.append(state_text(example[0]))
        right.append(_index_of(question, example[1], i))
    if len(texts) < FEWEST:
        raise OptionError(f"There are {len(texts)} examples. Calibrating takes {FEWEST}.")
    return texts, right


def _questions(given: Any) -> tuple[dict[str, Question], Any]:
    """Questions by name, and the class that they came from, if any."""
    if is_model_class(given):
        return questions_in(given), given
    if not isinstance(given, Mapping):
        raise OptionError(
            f"The questions are {given!r}. Pass a mapping of name to question, or a Pydantic class."
        )
    if not given:
        raise OptionError("There are no questions. Pass at least one.")
    for name, question in given.items():
        if not isinstance(name, str) or not isinstance(question, (Predicate, Choice, Score)):
            raise OptionError(
                f"The question {name!r} is {question!r}. Pass a Predicate, a Choice or a Score of "
                "structgen.decisions under a name."
            )
    return dict(given), None


def _thresholds(given: Any, questions: Mapping[str, Any]) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        check_share(given, "abstain_below")
        return dict.fromkeys(questions, float(given))
    for name, threshold in given.items():
        if name not in questions:
            raise OptionError(
                f"abstain_below has {name!r}, which is no question. Asked: {', '.join(questions)}."
            )
        check_share(threshold, f"abstain_below[{name!r}]")
    return dict(given)


def _index_of(question: Question, answer: Any, at: int) -> int:
    """Which label an answer is."""
    labels: Sequence[Any] = question.labels
    for i, label in enumerate(labels):
        if type(label.value) is type(answer) and label.value == answer:
            return i
    for i, label in enumerate(labels):
        if label.text == answer:
            return i
    shown = ", ".join(label.text for label in labels[:20])
    raise OptionError(
        f"Example {at}: the right answer {answer!r} is no label of the question. Labels: {shown}."
    )
