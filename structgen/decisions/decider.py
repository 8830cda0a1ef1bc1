"""Decider and AsyncDecider: ask a model or an embedder typed questions.

Here are the calls: their options, the checks of states, questions, thresholds, examples and
calibrations, the time limits, and the warning if answers carry no signal. `asking` asks a model,
`comparing` an embedder, `calibration` learns from examples.

The model of an `AsyncDecider` runs in a process of its own, which makes prompts, labels and passes.
Checks, users' own values, calibrations and answers stay in this process. `structgen.workers`
connects the two.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, final

import numpy as np

from structgen.decoding import Clock, check_adapter
from structgen.decoding import options as search_options
from structgen.errors import IncompleteOutput, ModelError, OptionError, UninformativeWarning
from structgen.models.base import GivenUp, Model, Passes, run_passes
from structgen.models.embedding import Embedder, Pause, in_thread
from structgen.options import CancelEvent, Real
from structgen.sampling import TokenIds
from structgen.storage import fork_safe
from structgen.workers import AsyncModel, run_errands

from .answers import LEAST_MASS, Answer, Answers, answer_of
from .asking import LEAST_CHANGE, TOLERANCE, Asker, Found, Settings
from .calibration import FEWEST, Calibration, Many, fitted, read, write
from .comparing import Comparer, is_explained
from .questions import (
    Bare,
    Choice,
    Predicate,
    Question,
    Score,
    bare,
    in_order,
    is_model_class,
    of_bare,
    questions_in,
)
from .templates import PromptTemplate, state_text

if TYPE_CHECKING:
    from pydantic import BaseModel
    from typing_extensions import Never, Self
    from typing_extensions import TypeVar as NewTypeVar

    ModelT = NewTypeVar("ModelT", bound=BaseModel, default=Any)

GivenT = TypeVar("GivenT")
OwnT = TypeVar("OwnT", "Model | Embedder", "AsyncModel | Embedder")

Thresholds: TypeAlias = float | Mapping[str, float] | None
"""``abstain_below``: for all questions, or by name."""


def check_call(call: Any, misplaced: Mapping[str, Any]) -> None:
    """Check that a method of a decider got only options that it has.

    Raises:
        OptionError: it got others; the message says where they belong.
    """
    for option in misplaced:
        if option in (*Settings.__slots__, "embedder", "calibrations", "warn"):
            raise OptionError(
                f"{option}= belongs to the decider, not to {call.__name__}: create one with "
                f"Decider(model, {option}=…), or AsyncDecider for an asynchronous model."
            )
        known = ", ".join(f"{one}=" for one in call.__kwdefaults__)
        raise OptionError(f"{call.__name__} does not support {option}=. It supports {known}.")


@dataclass(frozen=True, slots=True)
class Request:
    """The questions of a call.

    Attributes:
        questions: by name.
        thresholds: the values of ``abstain_below`` by name.
        output_type: the class that the questions came from, or None.
    """

    questions: dict[str, Question]
    thresholds: dict[str, float]
    output_type: Any

    @classmethod
    def of(cls, questions: Any, abstain_below: Any, default: Thresholds = None) -> Request:
        """Check the caller's questions; ``default`` is the decider's ``abstain_below``.

        Raises:
            OptionError: there are no questions, or a threshold is wrong.
        """
        asked, output_type = _questions(questions)
        if abstain_below is None and isinstance(default, Mapping):
            abstain_below = {name: default[name] for name in asked if name in default}
        elif abstain_below is None:
            abstain_below = default
        return cls(asked, _thresholds(abstain_below, asked), output_type)

    def answers(self, found: Found, calibrations: Mapping[str | None, Calibration]) -> Answers[Any]:
        """Return the answers for a model's distributions; fingerprints select the calibrations."""
        answers: dict[str, Answer] = {}
        for name, question in self.questions.items():
            given = found.distributions[name]
            calibration = calibrations.get(found.fingerprints.get(name))
            informative = found.changes.get(name, 1.0) >= LEAST_CHANGE and given.mass >= LEAST_MASS
            if calibration is not None:
                labels = [label.text for label in question.labels]
                given = calibration.applied(given, found.vector, labels)
                informative = informative or bool(calibration.weights)
            answers[name] = answer_of(
                question, given, self.thresholds.get(name), informative=informative
            )
        return Answers(answers, found.usage, found.trace, self.output_type)


FEWEST_A_LABEL = 8
"""Fewest examples of a label for learning."""

MANY = 20
"""If this many states all get the same label, a question is not informative."""

_MOST_QUESTIONS = 256


@final
class Signals:
    """Statistics of each question, to warn once if its answers carry no signal.

    Safe to share by threads. It never changes the answer of a single call because of earlier calls.
    """

    def __init__(self, model: str, *, warns: bool) -> None:
        """Start without answers; ``model`` is the model's name."""
        self._model = model
        self._warns = warns
        self._labels: OrderedDict[Question, dict[str, str]] = OrderedDict()
        self._warned: set[Question] = set()
        self._lock = fork_safe(threading.Lock())

    def of(
        self, request: Request, states: Sequence[str], batch: list[Answers[Any]]
    ) -> list[Answers[Any]]:
        """Count the answers about states that were asked together, and mark them.

        Returns:
            The answers; ``informative`` is False if at least `MANY` states all got the same label.
        """
        alike: set[str] = set()
        for name, question in request.questions.items():
            answers = [one[name] for one in batch]
            labels = dict(zip(states, (one.labels[one._likeliest] for one in answers), strict=True))
            if len(labels) >= MANY and len(set(labels.values())) == 1:
                alike.add(name)
            reason = self._reason(question, labels, answers) if self._warns else None
            if reason is not None:
                warnings.warn(
                    f"{name!r}: {reason} {self._model} may not be able to decide this. Measure it "
                    "with Decider.calibrate and labelled examples, or use a larger model "
                    "(docs/decisions.md). This warning appears once per question.",
                    UninformativeWarning,
                    stacklevel=4,
                )
        return [answers._without_signal(alike) for answers in batch] if alike else batch

    def _reason(
        self, question: Question, labels: dict[str, str], answers: Sequence[Answer]
    ) -> str | None:
        """Return the reason to warn about a question now; None: there is none."""
        with self._lock:
            if question in self._warned:
                return None
            seen = self._labels.pop(question, {}) | labels
            reason = None
            silent = next((one for one in answers if not one.informative), None)
            if silent is not None:
                reason = f"{silent.no_signal}."
            elif len(seen) >= MANY and len(set(seen.values())) == 1:
                reason = f"all {len(seen)} states got {next(iter(seen.values()))!r}."
            if reason is not None:
                self._warned.add(question)
            else:
                self._labels[question] = dict([*seen.items()][-MANY:])
            if len(self._labels) > _MOST_QUESTIONS:
                self._labels.popitem(last=False)
            return reason


def _by_fingerprint(
    given: Sequence[Calibration], model: str, embedder: Embedder | None
) -> dict[str | None, Calibration]:
    """Return calibrations by fingerprint.

    Raises:
        OptionError: a calibration was made for another model, or for another embedder's vectors.
    """
    for one in given:
        if not isinstance(one, Calibration):
            raise OptionError(f"calibrations: {one!r} is not a Calibration.")
        if one.model != model:
            raise OptionError(
                f"The calibration of {one.question!r} is for the model {one.model}, but this is "
                f"{model}. Use that model, or create one for this with Decider.calibrate."
            )
        if one.weights and (
            embedder is None
            or (embedder.name, embedder.dimensions) != (one.embedder, len(one.weights[0]))
        ):
            raise OptionError(
                f"What was learned about {one.question!r} requires vectors of {one.embedder} with "
                f"{len(one.weights[0])} numbers: Decider(model, embedder=…)."
            )
    return {one.fingerprint: one for one in given}


def states_of(states: Any) -> list[str]:
    """Return the texts of several states.

    Raises:
        OptionError: they are not a list.
        PromptError: a state is neither text nor JSON.
    """
    if isinstance(states, (str, bytes, Mapping)) or not isinstance(states, Iterable):
        raise OptionError(
            f"decide_batch takes a list of states, not {type(states).__name__}. For one "
            "state: decide."
        )
    return [state_text(state) for state in states]


def examples_of(
    question: Question, examples: Iterable[Any], fewest: int = FEWEST
) -> tuple[list[str], list[int]]:
    """Return the states of labelled examples as text, and the index of the right label for each.

    Raises:
        OptionError: they are not pairs or too few, or a right answer is not a label.
        PromptError: a state is neither text nor JSON.
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
    if len(texts) < fewest:
        raise OptionError(f"There are {len(texts)} examples. Pass at least {fewest}.")
    return texts, right


def _questions(given: Any) -> tuple[dict[str, Question], Any]:
    """Return questions by name, and the class that they came from, if any."""
    if is_model_class(given):
        return questions_in(given), given
    if not isinstance(given, Mapping):
        raise OptionError(
            f"The questions are of type {type(given).__name__}. Pass a mapping of name to "
            "question, or a Pydantic class."
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
        return dict.fromkeys(questions, Real(0, 1)("abstain_below", given))
    for name in given:
        if name not in questions:
            raise OptionError(
                f"abstain_below has {name!r}, which is not a question. Asked: "
                f"{', '.join(questions)}.",
                option="abstain_below",
            )
    share = Real(0, 1)
    return {name: share(f"abstain_below[{name!r}]", one) for name, one in given.items()}


def _index_of(question: Question, answer: Any, at: int) -> int:
    """Return the index of an answer's label."""
    labels: Sequence[Any] = question.labels
    for i, label in enumerate(labels):
        if type(label.value) is type(answer) and label.value == answer:
            return i
    for i, label in enumerate(labels):
        if label.text == answer:
            return i
    shown = ", ".join(label.text for label in labels[:20])
    raise OptionError(
        f"Example {at}: the right answer {answer!r} is not a label of the question. "
        f"Labels: {shown}."
    )


class _AnyDecider(ABC, Generic[GivenT, OwnT]):
    """The base of both deciders: a model, how it is asked, and calibrations of its answers."""

    embedder: Embedder | None = None

    def __init__(
        self,
        model: GivenT,
        *,
        template: PromptTemplate | None = None,
        debias: str | None = None,
        tolerance: float = TOLERANCE,
        adapter: str | None = None,
        embedder: Embedder | None = None,
        calibrations: Iterable[Calibration] = (),
        abstain_below: Thresholds = None,
        warn: bool = True,
    ) -> None:
        """Make a decider.

        Args:
            model: for a `Decider`, from `structgen.load` or `structgen.load_embedder`, or the name
                of a model to load; for an `AsyncDecider`, from `structgen.load_async` or
                `TextModel.to_async`.
            template: the template of prompts; None: `CHAT` if the model has a chat template,
                otherwise `BASE`.
            debias: ``"none"``; ``"prior"``: divide by the model's answer without a state;
                ``"contextual"``: divide by the mean of its answers to three texts without content.
                None: the best for the kind of question, ``"contextual"`` for a `Predicate`,
                ``"prior"`` for others.
            tolerance: the largest error of a probability before debiasing and calibration; after
                these it is ``error_bound`` of each answer. 0: sum over all token sequences.
            adapter: name of an adapter from `TextModel.load_adapter`.
            embedder: for a text model: makes vectors of states for `Decider.fit`.
            calibrations: results of `calibrate` and `fit`, each for its own question.
            abstain_below: as for `decide`, for calls that pass none. Questions named in a mapping
                may be missing in a call.
            warn: whether to warn, once per question, if answers carry no signal. ``informative`` of
                each answer tells it in any case.

        Raises:
            OptionError: an option is out of range, the model has no such adapter, or a
                calibration was made for another model.
            ModelError: the model is of another kind, or cannot be loaded.
        """
        self._settings = Settings(template, debias, tolerance, adapter)
        self.embedder = embedder
        self.model: OwnT = self._checked(model, adapter)
        if isinstance(self.model, Embedder):
            if self.embedder not in (None, self.model):
                raise OptionError("embedder= requires a text model, but the model is an embedder.")
            self.embedder = self.model
        elif self.embedder is not None and not isinstance(self.embedder, Embedder):
            raise OptionError(
                f"embedder={self.embedder!r}: pass structgen.load_embedder(name).",
                option="embedder",
            )
        self.calibrations = tuple(calibrations)
        self._calibrations = _by_fingerprint(self.calibrations, self.model.name, self.embedder)
        self.debias = debias
        self.tolerance = self._settings.tolerance
        # Questions that it names may be asked later.
        _thresholds(abstain_below, abstain_below if isinstance(abstain_below, Mapping) else {})
        self.abstain_below = abstain_below
        self._warn = warn
        self._signals = Signals(self.model.name, warns=warn)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model.name!r}, debias={self.debias!r})"

    @abstractmethod
    def _checked(self, given: GivenT, adapter: str | None) -> OwnT:
        """Return the checked model. Raises as the constructor."""

    def _here(
        self,
        asker: Asker | Comparer,
        states: Iterable[str],
        questions: Mapping[str, Question],
        *,
        is_bound: bool,
        learns: bool = False,
    ) -> Passes[list[Found]]:
        """Ask about states in this process; ``learns``: for `Decider.fit`.

        Raises:
            OptionError: an embedder gets a question without explained labels.
        """
        if self.embedder is self.model and not learns:
            for name, question in questions.items():
                if (
                    not is_explained(question)
                    and asker.fingerprint(question) not in self._calibrations
                ):
                    raise OptionError(
                        f"{name!r}: an embedder cannot tell what yes and no mean. Give the "
                        "Predicate criteria for true and false, or fit the question on examples."
                    )
        if not is_bound:
            questions = as_learned(asker, questions, self._orders(questions))
        is_bound = is_bound or bool(self._calibrations)
        made: list[Found] = []
        for state in states:
            made.append((yield from asker.ask(state, questions, is_bound=is_bound)))
        return (yield from self._with_vectors(states, made, learns=learns))

    def _orders(self, questions: Mapping[str, Question]) -> _Orders:
        """Return the calibrations that may be for questions with labels in another order."""
        found: _Orders = {}
        for name, question in questions.items():
            texts = tuple([label.text for label in question.labels])
            alike = [
                (one.fingerprint, tuple(one.labels))
                for one in self.calibrations
                # The order of a Score's levels, and of yes and no, is part of the question.
                if one.question == question.instructions and question.kind == "choice"
                if sorted(one.labels) == sorted(texts)
            ]
            if any(labels != texts for _, labels in alike):
                same = [known for known in alike if known[1] == texts]
                found[name] = same + [known for known in alike if known[1] != texts]
        return found

    def _with_vectors(
        self, states: Iterable[str], replies: list[Found], *, learns: bool
    ) -> Passes[list[Found]]:
        """Return the distributions for states, with the states' vectors if they are needed."""
        if self.embedder is None or not (learns or any(one.weights for one in self.calibrations)):
            return replies
        made: list[Found] = []
        for state, found in zip(states, replies, strict=True):
            if found.vector is None:
                yield
                comparer = cast("Comparer", _asker(self.embedder, Settings()))
                found = replace(found, vector=comparer.vector(state)[0])
            made.append(found)
        return made

    def _answers(
        self, request: Request, states: list[str], replies: Iterable[Found]
    ) -> list[Answers[Any]]:
        """Return the answers for states that are asked together, for a public method."""
        made = [request.answers(reply, self._calibrations) for reply in replies]
        return self._signals.of(request, states, made)

    def _fitted(
        self,
        question: Question,
        replies: list[Found],
        right: list[int],
        *,
        bias: bool = False,
        learns: bool = False,
    ) -> Calibration:
        """Return a calibration from the answers for examples and the right labels."""
        given = [found.distributions["question"] for found in replies]
        vectors = np.array([found.vector for found in replies]) if learns else None
        fit, before, after = fitted(given, right, has_bias=bias, vectors=vectors)
        return Calibration(
            temperature=1 / fit.slope,
            bias=tuple(fit.bias.tolist()),
            before=before,
            after=after,
            model=self.model.name,
            question=question.instructions,
            labels=tuple(label.text for label in question.labels),
            fingerprint=replies[0].fingerprints["question"],
            weights=tuple(map(tuple, fit.weights.round(6).tolist())) if learns else (),
            embedder=self.embedder.name if learns and self.embedder is not None else None,
        )

    def _lesson(self, question: Question, examples: Iterable[Any]) -> tuple[list[str], list[int]]:
        """Return the data that `fit` learns from. Raises as `fit`."""
        if self.embedder is None:
            raise OptionError("fit requires vectors: Decider(model, embedder=…).")
        texts, right = examples_of(question, examples, fewest=0)
        for i, label in enumerate(question.labels):
            if right.count(i) < FEWEST_A_LABEL:
                raise OptionError(
                    f"There are {right.count(i)} examples of {label.text!r}. Fitting requires "
                    f"{FEWEST_A_LABEL} of each label."
                )
        return texts, right

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the model (settings and calibrations) to a JSON file."""
        saved = SavedDecider(self._settings, self.abstain_below, self.calibrations)
        write(path, _FORMAT, asdict(saved))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: GivenT, *, embedder: Embedder | None = None
    ) -> Self:
        """Return a decider from a file of `save`, and its model and embedder.

        Args:
            path: the file; or a folder of files that differ only in their calibrations.
            model: as for the constructor.
            embedder: the same.

        Raises:
            OptionError: the file is not a decider's, or was made with another model.
            OSError: it cannot be read.
            ModelError: as for the constructor.
        """
        return cls(model, embedder=embedder, **SavedDecider.read(path).options)

    def calibrated(self, *calibrations: Calibration) -> Self:
        """Return a decider that also applies these calibrations, each to its own question.

        Raises:
            OptionError: a calibration was made for another model.
        """
        known = (*self.calibrations, *calibrations)
        options = SavedDecider(self._settings, self.abstain_below, known).options
        model = cast("GivenT", self.model)
        return type(self)(model, embedder=self.embedder, warn=self._warn, **options)


@final
class Decider(_AnyDecider["Model | Embedder | str", "Model | Embedder"]):
    """Answers typed questions about a state with the probability of every allowed answer.

    Immutable and safe to share by threads.

    Attributes:
        model: the model or embedder.
        embedder: makes vectors of states for the weights that `fit` learned; or None.
        template: the prompt template; None for an embedder.
        debias: how to correct the bias of labels and their order.
        tolerance: the largest error of a probability.
        calibrations: the calibrations of its answers.
        abstain_below: the lowest probability of the likeliest label, unless a call has its own.

    Example::

        decider = Decider("smollm2-135m-instruct")
        answers = decider.decide(
            "I was charged twice!", {"refund": Predicate("Is this about money?")}
        )
        answers["refund"].probability
    """

    template: PromptTemplate | None = None

    def _checked(self, given: Model | Embedder | str, adapter: str | None) -> Model | Embedder:
        model = _loaded(given) if isinstance(given, str) else given
        self._asker: Asker | Comparer
        if isinstance(model, Embedder):
            self._asker = _asker(model, self._settings)
            return model
        if not hasattr(model, "vocabulary") or not hasattr(model, "start"):
            raise ModelError(
                f"The model is {model!r}, not a loaded model. Pass structgen.load(name), "
                "structgen.load_embedder(name), or the name."
            )
        check_adapter(model, adapter)
        self._asker = asker = Asker(model, self._settings)
        self.template = asker.template
        return model

    def decide(
        self,
        state: Any,
        questions: type[ModelT] | Mapping[str, Question],
        *,
        abstain_below: Thresholds = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Answers[ModelT]:
        """Answer questions about a state.

        On the CPU of one machine, the same call returns the same numbers to the bit, alone or with
        other questions, and whatever ran before.

        Args:
            state: text, chat messages, or any JSON value.
            questions: questions by name; or a Pydantic class whose fields are ``bool``, ``Literal``
                or ``Enum``, each of which becomes a question.
            abstain_below: the lowest probability of the likeliest label, minus its possible error;
                below it the answer is ``abstained`` and its ``choice`` is None. A number, or a
                mapping for some of the questions.
            timeout: the most seconds.
            cancel: an object with ``is_set()``, asked before each pass of the model.

        Raises:
            OptionError: there are no questions, or an option is wrong; or an embedder is asked a
                `Predicate` without ``criteria`` that was not fitted.
            PromptError: the state is neither text nor JSON, or does not fit the context.
            IncompleteOutput: ``timeout`` or ``cancel`` ended it.

        Cost with an embedder: one vector, whatever the questions, and once three for each label.
        With a model: one pass over the state; for each question one pass over its own tokens, and
        one for each further token of the likely labels (none if labels are single tokens).
        `Answers.usage` has the numbers.
        """
        check_call(self.decide, misplaced)
        request = Request.of(questions, abstain_below, self.abstain_below)
        texts = [state_text(state)]
        replies = self._ask(texts, request.questions, timeout, cancel)
        return self._answers(request, texts, replies)[0]

    def decide_batch(
        self,
        states: Iterable[Any],
        questions: type[ModelT] | Mapping[str, Question],
        *,
        abstain_below: Thresholds = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> list[Answers[ModelT]]:
        """Answer the same questions about several states, one after the other.

        The numbers are those of `decide`, to the bit: rows of a batch would round differently.
        ``informative`` is also False for all states if 20 or more of them got the same label.

        Args and raises as for `decide`, with a list of states.
        """
        check_call(self.decide_batch, misplaced)
        texts = states_of(states)
        request = Request.of(questions, abstain_below, self.abstain_below)
        replies = self._ask(texts, request.questions, timeout, cancel)
        return self._answers(request, texts, replies)

    def calibrate(
        self,
        question: Question,
        examples: Iterable[tuple[Any, Any]],
        *,
        bias: bool = False,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Calibration:
        """Fit a temperature, and perhaps a bias for each label, on labelled examples.

        The decider does not change; `calibrated` returns one that uses the calibration.

        Args:
            question: the question.
            examples: pairs of a state and its right answer: an option, True or False, a level (its
                text or number).
            bias: whether to fit a bias for each label, too. Use it with about 20 examples per
                label.
            timeout: the most seconds.
            cancel: as for `decide`.

        Raises:
            OptionError: fewer than 10 examples, or a right answer is not a label of the question.
            PromptError, IncompleteOutput: as for `decide`.

        Cost: that of `decide` for each example, and milliseconds.
        """
        check_call(self.calibrate, misplaced)
        texts, right = examples_of(question, examples)
        replies = self._ask(texts, {"question": question}, timeout, cancel, is_bound=True)
        return self._fitted(question, replies, right, bias=bias)

    def fit(
        self,
        question: Question,
        examples: Iterable[tuple[Any, Any]],
        *,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Self:
        """Return a decider that has learned a question from labelled examples.

        It learns weights for the vectors of an embedder, and adds them to the decider's own answer.
        ``calibrations[-1].after`` is its quality on unseen examples.

        Args:
            question: the question.
            examples: as for `calibrate`, eight or more of each label.
            timeout: the most seconds, without the fit itself.
            cancel: as for `decide`.

        Raises:
            OptionError: the decider has no embedder, a label has too few examples, or a right
                answer is not a label of the question.
            PromptError, IncompleteOutput: as for `decide`.

        Cost: that of `decide` for each example, and a second for a hundred.
        """
        check_call(self.fit, misplaced)
        texts, right = self._lesson(question, examples)
        replies = self._ask(
            texts, {"question": question}, timeout, cancel, is_bound=True, learns=True
        )
        return self.calibrated(self._fitted(question, replies, right, learns=True))

    def prompt_ids(self, state: Any, question: Question) -> TokenIds:
        """Return the tokens that the model gets for one question, int32 ``[n]``.

        Raises:
            PromptError: as for `decide`.
        """
        return self._asker.prompt_ids(state_text(state), question)

    def _ask(
        self,
        states: list[str],
        questions: dict[str, Question],
        timeout: Any,
        cancel: Any,
        *,
        is_bound: bool = False,
        learns: bool = False,
    ) -> list[Found]:
        clock = _clock(timeout, cancel)
        work = self._here(self._asker, states, questions, is_bound=is_bound, learns=learns)
        try:
            return run_passes(work, lambda: clock.is_interrupted)
        except GivenUp:
            raise _unknown(clock) from None


_FORMAT = "structgen decider 1"


@dataclass(frozen=True)
class SavedDecider:
    """The contents of a file of `Decider.save`."""

    settings: Settings
    abstain_below: float | Mapping[str, float] | None
    calibrations: Many[Calibration]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SavedDecider:
        """Read a file, or all ``.json`` files of a folder as one.

        Raises:
            OptionError: a file is not a decider's, there are no files, or two have different
                settings.
            OSError: a file cannot be read.
        """
        place = Path(path)
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        if not files:
            raise OptionError(f"{place} has no files that Decider.save wrote: none ends in .json.")
        read_ = [read(one, _FORMAT, cls, "a decider that structgen saved", "save") for one in files]
        for one, file in zip(read_, files, strict=True):
            if (one.settings, one.abstain_below) != (read_[0].settings, read_[0].abstain_below):
                raise OptionError(
                    f"{file} differs from {files[0]} in template, debias, tolerance, adapter or "
                    "abstain_below, which must be the same. Serve it as another model."
                )
        learned = tuple(c for one in read_ for c in one.calibrations)
        if len({one.fingerprint for one in learned}) < len(learned) and len(files) > 1:
            raise OptionError(f"{place} has two files for one question. Remove one of them.")
        return replace(read_[0], calibrations=learned)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments for a new decider, without the model."""
        return {
            **{name: getattr(self.settings, name) for name in Settings.__slots__},
            "calibrations": self.calibrations,
            "abstain_below": self.abstain_below,
        }


def _loaded(name: str) -> Model | Embedder:
    # Imported late: a loaded model does not need our runtime.
    from structgen import models
    from structgen.constraint import warm_up
    from structgen.models import embedding, genai
    from structgen.text_model import TextModel

    place = models.path(name)
    if models.is_language_model(place):
        return genai.load(place, kind=TextModel, meanwhile=warm_up)
    return embedding.load(place)


@final
class AsyncDecider(_AnyDecider["AsyncModel | Embedder", "AsyncModel | Embedder"]):
    """Answers typed questions about a state like a `Decider`, without blocking the event loop.

    The model runs in its own process, where the passes of other calls run between those of a
    decision. An embedder runs in a thread. Immutable; safe to share by tasks, loops and threads.
    Numbers and attributes are those of a `Decider`, except for ``template``.

    Example::

        async with await structgen.load_async("smollm2-135m-instruct") as model:
            decider = AsyncDecider(model)
            answers = await decider.decide(
                "I was charged twice!", {"refund": Predicate("Is this about money?")}
            )
    """

    def _checked(self, given: AsyncModel | Embedder, adapter: str | None) -> AsyncModel | Embedder:
        if isinstance(given, Embedder):
            _asker(given, self._settings)
            return given
        if not isinstance(given, AsyncModel):
            raise ModelError(
                f"The model is {given!r}, which does not run in its own process. Pass await "
                "structgen.load_async(name), or model.to_async()."
            )
        if adapter is not None and adapter not in given.adapters:
            raise OptionError(
                f"{given.name} has no adapter {adapter!r}. Load it: "
                f"await model.load_adapter(path, {adapter!r}).",
                option="adapter",
            )
        return given

    async def decide(
        self,
        state: Any,
        questions: type[ModelT] | Mapping[str, Question],
        *,
        abstain_below: Thresholds = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        pause: Pause | None = None,
        **misplaced: Never,
    ) -> Answers[ModelT]:
        """Answer questions about a state. Cancelling the task ends it within one pass.

        Args and raises as for `Decider.decide`; ``timeout`` counts from when the call reaches the
        process, and ``cancel`` may be an `asyncio.Event`. ``pause`` is awaited between an
        embedder's passes, as in `Embedder.aresult`. Also raises:
            WorkerDied: the model's process ended by itself.
        """
        check_call(self.decide, misplaced)
        request = Request.of(questions, abstain_below, self.abstain_below)
        texts = [state_text(state)]
        replies = await self._ask(texts, request.questions, timeout, cancel, pause=pause)
        return self._answers(request, texts, replies)[0]

    async def decide_batch(
        self,
        states: Iterable[Any],
        questions: type[ModelT] | Mapping[str, Question],
        *,
        abstain_below: Thresholds = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> list[Answers[ModelT]]:
        """Answer the same questions about several states.

        Args and raises as for `decide`, with a list of states; ``timeout`` is for each.
        """
        check_call(self.decide_batch, misplaced)
        texts = states_of(states)
        request = Request.of(questions, abstain_below, self.abstain_below)
        replies = await self._ask(texts, request.questions, timeout, cancel)
        return self._answers(request, texts, replies)

    async def calibrate(
        self,
        question: Question,
        examples: Iterable[tuple[Any, Any]],
        *,
        bias: bool = False,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Calibration:
        """Fit a temperature, and perhaps a bias for each label, on labelled examples.

        Args and raises as for `Decider.calibrate`, ``timeout`` for each example.
        """
        check_call(self.calibrate, misplaced)
        texts, right = examples_of(question, examples)
        replies = await self._ask(texts, {"question": question}, timeout, cancel, is_bound=True)
        return self._fitted(question, replies, right, bias=bias)

    async def fit(
        self,
        question: Question,
        examples: Iterable[tuple[Any, Any]],
        *,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Self:
        """Return a decider that has learned a question from labelled examples.

        Args and raises as for `Decider.fit`, ``timeout`` of a text model for each example. The fit
        itself runs in a thread.
        """
        check_call(self.fit, misplaced)
        texts, right = self._lesson(question, examples)
        replies = await self._ask(
            texts, {"question": question}, timeout, cancel, is_bound=True, learns=True
        )
        made = await asyncio.to_thread(self._fitted, question, replies, right, learns=True)
        return self.calibrated(made)

    async def _ask(
        self,
        states: list[str],
        questions: Mapping[str, Question],
        timeout: Any,
        cancel: Any,
        *,
        is_bound: bool = False,
        learns: bool = False,
        pause: Pause | None = None,
    ) -> list[Found]:
        clock = _clock(timeout, cancel)

        async def between() -> None:
            if clock.is_interrupted:
                raise _unknown(clock)
            if pause is not None:
                await pause()

        if isinstance(self.model, Embedder):
            asker = _asker(self.model, self._settings)
            work = self._here(asker, states, questions, is_bound=is_bound, learns=learns)
            return await in_thread(work, between)
        search = search_options.parse({"timeout": timeout, "cancel": cancel})
        errand = partial(
            begin,
            questions={name: bare(question) for name, question in questions.items()},
            settings=self._settings,
            is_bound=is_bound or bool(self._calibrations),
            orders={} if is_bound else self._orders(questions),
        )
        replies = await run_errands(
            self.model,
            [partial(errand, state=state) for state in states],
            timeout=search.timeout,
            cancel=search.cancel,
        )
        return await in_thread(self._with_vectors(states, replies, learns=learns), pause)


def _clock(timeout: Any, cancel: Any) -> Clock:
    """Return a clock that counts from now."""
    search = search_options.parse({"timeout": timeout, "cancel": cancel})
    clock = Clock(search.timeout, search.cancel)
    clock.count_from(clock.start())
    return clock


def _unknown(clock: Clock) -> IncompleteOutput:
    return IncompleteOutput(f"The answers are not complete: {clock.interruption}.", text="")


def begin(
    model: Model,
    *,
    state: str,
    questions: Mapping[str, Bare],
    settings: Settings,
    is_bound: bool,
    orders: _Orders,
) -> Passes[Found]:
    """Return an errand that asks questions about a state in the model's process.

    With ``is_bound`` it also returns fingerprints; ``orders``: as for `as_learned`.
    """
    asker = _asker(model, settings)
    asked = {name: of_bare(question) for name, question in questions.items()}
    return asker.ask(state, as_learned(asker, asked, orders), is_bound=is_bound)


_Orders: TypeAlias = "dict[str, list[tuple[str, tuple[str, ...]]]]"
"""By name of a question: fingerprints of calibrations, with the labels in their order."""


def as_learned(
    asker: Asker | Comparer, questions: Mapping[str, Question], orders: _Orders
) -> dict[str, Question]:
    """Return the questions with labels in the order in which they were learned, because the order
    changes a model's answers; `Calibration.applied` restores the original order.

    Args:
        asker: computes fingerprints.
        questions: by name.
        orders: for some questions, the calibrations that may be for them, the best first.
    """
    found = dict(questions)
    for name, known in orders.items():
        made = ((one, in_order(questions[name], labels)) for one, labels in known)
        learned = (other for one, other in made if asker.fingerprint(other) == one)
        found[name] = next(learned, questions[name])
    return found


_MOST_ASKERS = 16
"""Most askers that are cached per model, one for each `Settings`."""


def _asker(model: Model | Embedder, settings: Settings) -> Asker | Comparer:
    """Return the asker of a model, with its compiled labels and priors; or of an embedder, with its
    vectors of labels.

    It refers to the model, so the model keeps it: nothing else keeps either of them.
    """
    make: Any = Comparer if isinstance(model, Embedder) else Asker
    # Several threads ask: a worker's thread for long calls, too.
    kept: Any = vars(model).setdefault("_askers", lru_cache(_MOST_ASKERS)(partial(make, model)))
    asker: Asker | Comparer = kept(settings)
    return asker
