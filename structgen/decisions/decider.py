"""Decider: a model that is asked typed questions about a state, and gives distributions.

It owns what happens from questions to answers: the prompts of each question, debiasing, and which
calibration applies. How masses are summed is `structgen.decisions.reading`'s, the arithmetic of
distributions `structgen.decisions.distributions`'.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar, final, overload

from structgen.decoding import CancelEvent, Task, check_adapter
from structgen.decoding import options as search_options
from structgen.errors import IncompleteOutput, ModelError, OptionError, PromptError
from structgen.insight import GivenUp, readable_prompt
from structgen.models.base import Model
from structgen.sampling import TokenIds

from . import distributions
from .answers import Answer, Answers, answer_of
from .calibration import FEWEST, Calibration, fitted
from .distributions import Distribution
from .fields import is_model_class, questions_in
from .questions import Choice, Label, Predicate, Question, Score
from .reading import Reading, Texts, Usage, read
from .templates import BASE, CHAT, PromptTemplate, state_text

if TYPE_CHECKING:
    from pydantic import BaseModel

    ModelT = TypeVar("ModelT", bound=BaseModel)

_R = TypeVar("_R")

TOLERANCE = 0.01
"""How far off a probability may be, unless asked otherwise."""

DEBIAS = ("none", "prior", "orders")
"""What ``debias`` may be."""

DEFAULT_DEBIAS = "none"
"""What it is unless asked otherwise."""

ORDERS = 4
"""In how many orders options are told at most, unless asked otherwise."""

_KEPT = 256
"""Most compiled sets of labels, and most priors, that a decider keeps."""


@final
class Decider:
    """Answers typed questions about a state with the probability of every allowed answer.

    Immutable and safe to share by threads.

    Attributes:
        model: the model.
        template: how it is asked.
        debias: what is done about the bias of labels and their order.
        orders: in how many orders options are told, where ``debias`` is ``"orders"``.
        tolerance: how far off a probability may be.
        calibrations: what is applied to the answers.

    Example::

        decider = Decider("smollm2-135m-instruct")
        answers = decider.decide(
            "I was charged twice!", {"refund": Predicate("Is this about money?")}
        )
        answers["refund"].probability
    """

    def __init__(
        self,
        model: Model | str,
        *,
        template: PromptTemplate | None = None,
        debias: str = DEFAULT_DEBIAS,
        orders: int = ORDERS,
        tolerance: float = TOLERANCE,
        adapter: str | None = None,
        calibrations: Iterable[Calibration] = (),
    ) -> None:
        """Make a decider.

        Args:
            model: from `structgen.load`, or the name of one to load.
            template: how states and questions are put; None: `CHAT` where the model has a chat
                template, else `BASE`.
            debias: ``"none"``; ``"prior"``: divide by what the model answers without a state
                (contextual calibration); ``"orders"``: tell the options in several orders and
                take the mean. The last costs as many passes a question.
            orders: see above; of a `Score` two at most, up and down.
            tolerance: no probability is further off than this, before debiasing and calibration;
                each answer's ``error_bound`` says by how much after these. 0: sum over every token
                sequence.
            adapter: name of an adapter of `TextModel.load_adapter` to run with.
            calibrations: of `calibrate`, each for the question that it was made for.

        Raises:
            OptionError: an option is out of range, or a calibration was made for another model.
            ModelError: the model is none, or cannot be loaded.
        """
        if isinstance(model, str):
            model = _loaded(model)
        if not hasattr(model, "vocabulary") or not hasattr(model, "start"):
            raise ModelError(
                f"The model is {model!r}, not a loaded model. Pass structgen.load(name), or the "
                "name."
            )
        if template is not None and not isinstance(template, PromptTemplate):
            raise OptionError(f"template={template!r} is no PromptTemplate.")
        if debias not in DEBIAS:
            raise OptionError(f"debias={debias!r}. It must be one of {', '.join(DEBIAS)}.")
        if isinstance(orders, bool) or not isinstance(orders, int) or orders < 1:
            raise OptionError(f"orders={orders!r}. It must be an integer of 1 or more.")
        _check_share(tolerance, "tolerance", is_open=True)
        check_adapter(model, adapter)
        self.model = model
        self.template = template or (CHAT if _has_chat_template(model) else BASE)
        self.debias = debias
        self.orders = orders
        self.tolerance = float(tolerance)
        self._adapter = adapter
        self._task = Task(model, None, None, think=0)
        self._search = search_options.parse({"adapter": adapter})
        self._compiled = functools.lru_cache(_KEPT)(self._compile)
        self._priors = functools.lru_cache(_KEPT)(_Prior)
        self.calibrations = tuple(calibrations)
        for one in self.calibrations:
            if not isinstance(one, Calibration):
                raise OptionError(f"calibrations: {one!r} is no Calibration.")
            if one.model != model.name:
                raise OptionError(
                    f"The calibration of {one.question!r} was made for the model {one.model}, and "
                    f"this is {model.name}. Make one for it with Decider.calibrate."
                )
        self._calibration_of = {one.fingerprint: one for one in self.calibrations}

    def __repr__(self) -> str:
        return f"Decider({self.model.name!r}, debias={self.debias!r})"

    @overload
    def decide(
        self,
        state: Any,
        questions: type[ModelT],
        *,
        abstain_below: float | Mapping[str, float] | None = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
    ) -> Answers[ModelT]: ...

    @overload
    def decide(
        self,
        state: Any,
        questions: Mapping[str, Question],
        *,
        abstain_below: float | Mapping[str, float] | None = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
    ) -> Answers[Any]: ...

    def decide(
        self,
        state: Any,
        questions: Any,
        *,
        abstain_below: float | Mapping[str, float] | None = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
    ) -> Answers[Any]:
        """Answer questions about a state.

        The same call gives the same numbers, to the bit, on one machine's CPU: alone, among other
        questions, with or without what calls before have left.

        Args:
            state: text, chat messages, or any JSON value.
            questions: name to question; or a Pydantic class of ``bool``, ``Literal`` and ``Enum``
                fields, of which each becomes a question.
            abstain_below: what the likeliest label's probability has to reach, less what it may be
                off; else the answer is marked ``abstained`` and its ``choice`` is None. One number,
                or one for each of some questions.
            timeout: seconds this may take.
            cancel: an object with ``is_set()``, asked before each pass of the model.

        Raises:
            OptionError: no questions, or a bad option.
            PromptError: the state is no text and no JSON, or does not fit the context.
            IncompleteOutput: ``timeout`` or ``cancel`` ended it.

        Cost: one pass over the state; for each question one over its own tokens and one for each
        further token of the likely labels: none where labels are single tokens. `Answers.usage`
        counts.
        """
        asked, output_type = _questions(questions)
        thresholds = _thresholds(abstain_below, asked)
        give_up = _GiveUp(timeout, cancel)
        return give_up.guard(
            lambda: self._decide(state_text(state), asked, thresholds, output_type, give_up)
        )

    def decide_batch(
        self,
        states: Iterable[Any],
        questions: Any,
        *,
        abstain_below: float | Mapping[str, float] | None = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
    ) -> list[Answers[Any]]:
        """Answer the same questions about each of several states, one after the other.

        The numbers are those of `decide`, to the bit: rows of a batch would round differently.

        Args and raises as for `decide`; a list of states, where that takes one.
        """
        if isinstance(states, (str, bytes, Mapping)) or not isinstance(states, Iterable):
            raise OptionError(
                f"decide_batch takes a list of states, not {type(states).__name__}. For one "
                "state: decide."
            )
        asked, output_type = _questions(questions)
        thresholds = _thresholds(abstain_below, asked)
        texts = [state_text(state) for state in states]
        give_up = _GiveUp(timeout, cancel)
        return give_up.guard(
            lambda: [self._decide(text, asked, thresholds, output_type, give_up) for text in texts]
        )

    def calibrate(
        self,
        question: Question,
        examples: Iterable[tuple[Any, Any]],
        *,
        bias: bool = False,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
    ) -> Calibration:
        """Fit a temperature, and perhaps a bias for each label, on labelled examples.

        The decider stays as it is; make one that uses it with `calibrated`.

        Args:
            question: the question.
            examples: pairs of a state and its right answer: an option, True or False, a level (its
                text or number).
            bias: whether to fit a bias for each label too: worth it with some 20 examples a label.
            timeout: seconds this may take.
            cancel: as for `decide`.

        Raises:
            OptionError: fewer than 10 examples, or a right answer that is no label of the question.
            PromptError, IncompleteOutput: as for `decide`.

        Cost: that of `decide` for each example, and milliseconds.
        """
        asked, _ = _questions({"question": question})
        pairs = [
            (state_text(state), _index_of(question, answer, i))
            for i, (state, answer) in enumerate(_pairs(examples))
        ]
        if len(pairs) < FEWEST:
            raise OptionError(f"There are {len(pairs)} examples. Calibrating takes {FEWEST}.")
        give_up = _GiveUp(timeout, cancel)

        def all_read() -> list[Distribution]:
            return [self._distributions(text, asked, give_up)[0]["question"] for text, _ in pairs]

        given = give_up.guard(all_read)
        slope, offsets, before, after = fitted(given, [i for _, i in pairs], has_bias=bias)
        return Calibration(
            temperature=1 / slope,
            bias=tuple(offsets.tolist()),
            before=before,
            after=after,
            model=self.model.name,
            question=question.instructions,
            labels=tuple(label.text for label in question.labels),
            fingerprint=self._fingerprint(question),
        )

    def calibrated(self, *calibrations: Calibration) -> Decider:
        """Return a decider that applies these too, each to the question that it was made for.

        Raises:
            OptionError: one was made for another model.
        """
        return Decider(
            self.model,
            template=self.template,
            debias=self.debias,
            orders=self.orders,
            tolerance=self.tolerance,
            adapter=self._adapter,
            calibrations=(*self.calibrations, *calibrations),
        )

    def prompt_ids(self, state: Any, question: Question) -> TokenIds:
        """Return the tokens that the model gets for one question, int32 ``[n]``.

        Raises:
            PromptError: as for `decide`.
        """
        return self._reading(state_text(state), question, question.labels).token_ids

    def _decide(
        self,
        state: str,
        questions: Mapping[str, Question],
        thresholds: Mapping[str, float],
        output_type: Any,
        give_up: _GiveUp,
    ) -> Answers[Any]:
        found, usage, trace = self._distributions(state, questions, give_up)
        answers: dict[str, Answer] = {}
        for name, question in questions.items():
            given = found[name]
            calibration = None
            if self._calibration_of:
                calibration = self._calibration_of.get(self._fingerprint(question))
            if calibration is not None:
                given = calibration.applied(given)
            answers[name] = answer_of(question, given, thresholds.get(name))
        return Answers(answers, usage, trace, output_type)

    def _distributions(
        self, state: str, questions: Mapping[str, Question], give_up: _GiveUp
    ) -> tuple[dict[str, Distribution], Usage, dict[str, tuple[str, ...]]]:
        """The distributions of some questions, debiased and not calibrated."""
        readings: dict[str, list[Reading]] = {
            name: [self._reading(state, question, labels) for labels in self._orders_of(question)]
            for name, question in questions.items()
        }
        parts, usage = self._read([one for some in readings.values() for one in some], give_up)
        found: dict[str, Distribution] = {}
        at = 0
        for name, some in readings.items():
            found[name] = (
                parts[at] if len(some) == 1 else distributions.mean(parts[at : at + len(some)])
            )
            at += len(some)
        trace = {
            name: tuple(self._shown(one.token_ids) for one in some)
            for name, some in readings.items()
        }
        if self.debias == "prior":
            for name, question in questions.items():
                prior, reading, more = self._prior(question, give_up)
                usage += more
                trace[name] += (self._shown(reading.token_ids),)
                found[name] = distributions.without_prior(found[name], prior)
        return found, usage, trace

    def _prior(self, question: Question, give_up: _GiveUp) -> tuple[Distribution, Reading, Usage]:
        """What the question's labels get without a state; read once and kept."""
        kept = self._priors(question)
        usage = Usage()
        if kept.found is None:
            reading = self._reading(self.template.no_state, question, question.labels)
            (prior,), usage = self._read([reading], give_up)
            kept.found = prior, reading
        return (*kept.found, usage)

    def _read(
        self, readings: Sequence[Reading], give_up: _GiveUp
    ) -> tuple[list[Distribution], Usage]:
        return read(self.model, readings, self.tolerance, adapter=self._adapter, give_up=give_up)

    def _reading(self, state: str, question: Question, labels: Sequence[Label]) -> Reading:
        """A prompt that tells the labels in this order."""
        prompt = self.template.prompt(state, question, labels)
        token_ids = self._task.prepare(prompt, self._search).token_ids
        return Reading(token_ids, self._compiled(tuple(one.text for one in question.labels)))

    def _compile(self, texts: tuple[str, ...]) -> Texts:
        before = self.template.before_label
        return Texts([before + text for text in texts], self.template.ends, self.model.vocabulary)

    def _orders_of(self, question: Question) -> list[tuple[Label, ...]]:
        """The orders in which a question's labels are told, the question's own first."""
        labels = question.labels
        if self.debias != "orders":
            return [labels]
        if question.kind == "score":  # no other order is one of a scale
            return [labels, labels[::-1]][: self.orders]
        if question.kind == "predicate" and self.template.predicate is not None:
            return [labels]
        n, count = len(labels), min(self.orders, len(labels))
        starts = [i * n // count for i in range(count)]
        return [(*labels[start:], *labels[:start]) for start in starts]

    def _shown(self, token_ids: TokenIds) -> str:
        return readable_prompt(token_ids.tolist(), self.model.vocabulary)

    def _fingerprint(self, question: Question) -> str:
        """A digest of all that changes a question's distribution, but for the state."""
        orders = self.orders if self.debias == "orders" else 1
        told = [(label.text, label.description) for label in question.labels]
        given = [
            *(self.model.name, self.model.vocabulary.size, self._adapter),
            *(question.kind, question.instructions, told),
            *(asdict(self.template), self.debias, orders),
        ]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()


class _Prior:
    """Where the prior of one question is kept, once it is known."""

    def __init__(self, question: Question) -> None:
        self.found: tuple[Distribution, Reading] | None = None


class _GiveUp:
    """Says when a call is to end early, and why."""

    def __init__(self, timeout: float | None, cancel: CancelEvent | None) -> None:
        search = search_options.parse({"timeout": timeout, "cancel": cancel})
        self._timeout, self._cancel = search.timeout, search.cancel
        self._began = time.perf_counter()
        self._is_late = False

    def __call__(self) -> bool:
        self._is_late = (
            self._timeout is not None and time.perf_counter() > self._began + self._timeout
        )
        return self._is_late or (self._cancel is not None and self._cancel.is_set())

    def guard(self, run: Callable[[], _R]) -> _R:
        """What ``run`` returns.

        Raises:
            IncompleteOutput: it was given up.
        """
        try:
            return run()
        except GivenUp:
            why = f"timeout={self._timeout:g} seconds were over" if self._is_late else ""
            raise IncompleteOutput(
                f"The answers are not known: {why or 'it was cancelled'}.", text=""
            ) from None


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


def _thresholds(given: Any, questions: Mapping[str, Question]) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        _check_share(given, "abstain_below")
        return dict.fromkeys(questions, float(given))
    for name, threshold in given.items():
        if name not in questions:
            raise OptionError(
                f"abstain_below has {name!r}, which is no question. Asked: {', '.join(questions)}."
            )
        _check_share(threshold, f"abstain_below[{name!r}]")
    return dict(given)


def _check_share(value: Any, name: str, *, is_open: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(f"{name}={value!r} is not a number.")
    if not 0 <= value <= 1 or (is_open and value == 1):
        raise OptionError(f"{name}={value!r} is out of range. It must be from 0 to 1.")


def _pairs(examples: Iterable[Any]) -> list[tuple[Any, Any]]:
    found = []
    for i, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise OptionError(
                f"Example {i} is {example!r}. Pass pairs of a state and its right answer."
            )
        found.append((example[0], example[1]))
    return found


def _index_of(question: Question, answer: Any, at: int) -> int:
    """Which label an answer is."""
    labels = question.labels
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


def _has_chat_template(model: Model) -> bool:
    try:
        model.apply_chat_template([{"role": "user", "content": "probe"}])
    except PromptError:
        return False
    return True


def _loaded(name: str) -> Model:
    # Imported late: a model that is there already needs no runtime of ours.
    from structgen import models
    from structgen.constraint import warm_up
    from structgen.models import genai
    from structgen.text_model import TextModel

    return genai.load(models.path(name, task="generate"), kind=TextModel, meanwhile=warm_up)
