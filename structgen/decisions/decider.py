"""Decider: a model that is asked typed questions about a state, and gives distributions.

It owns the call: its options, its limits of time, calibrating. How a model is asked is
`structgen.decisions.asking`'s, what is asked and answered `structgen.decisions.requests`'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, final

from structgen.decoding import CancelEvent, check_adapter
from structgen.decoding import options as search_options
from structgen.errors import IncompleteOutput, ModelError
from structgen.insight import GivenUp, run_passes
from structgen.models.base import Model
from structgen.sampling import TokenIds

from .answers import Answers
from .asking import ORDERS, TOLERANCE, Asker, Found, Settings
from .calibration import Calibration
from .questions import Question
from .requests import (
    Calibrations,
    Request,
    Signals,
    Thresholds,
    check_call,
    check_thresholds,
    examples_of,
    states_of,
)
from .templates import PromptTemplate, state_text

if TYPE_CHECKING:
    from typing_extensions import Never

    from .requests import ModelT

_R = TypeVar("_R")


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
        abstain_below: what the likeliest label has to reach, where a call does not say.

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
        debias: str | None = None,
        orders: int = ORDERS,
        tolerance: float = TOLERANCE,
        adapter: str | None = None,
        calibrations: Iterable[Calibration] = (),
        abstain_below: Thresholds = None,
        warn: bool = True,
    ) -> None:
        """Make a decider.

        Args:
            model: from `structgen.load`, or the name of one to load.
            template: how states and questions are put; None: `CHAT` where the model has a chat
                template, else `BASE`.
            debias: ``"none"``; ``"prior"``: divide by what the model answers without a state;
                ``"contextual"``: by the mean of what it answers to three texts without content;
                ``"orders"``: tell the options in several orders and take the mean, at as many
                passes a question. None: what did best for the kind of question, ``"contextual"``
                for a `Predicate`, ``"prior"`` for others.
            orders: see above; of a `Score` two at most, up and down.
            tolerance: no probability is further off than this, before debiasing and calibration;
                each answer's ``error_bound`` says by how much after these. 0: sum over every token
                sequence.
            adapter: name of an adapter of `TextModel.load_adapter` to run with.
            calibrations: of `calibrate`, each for the question that it was made for.
            abstain_below: as for `decide`, for calls that pass none. Names of a mapping need not be
                asked in each call.
            warn: whether to warn, once a question, where answers carry no signal. Each answer's
                ``informative`` says so in any case.

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
        self._settings = Settings(template, debias, orders, tolerance, adapter)
        check_adapter(model, adapter)
        self._asker = Asker(model, self._settings)
        self._calibrations = Calibrations(calibrations, model.name)
        self.model = model
        self.template = self._asker.template
        self.debias = debias
        self.orders = orders
        self.tolerance = float(tolerance)
        self.calibrations = self._calibrations.all
        check_thresholds(abstain_below)
        self.abstain_below = abstain_below
        self._warn = warn
        self._signals = Signals(model.name, warns=warn)

    def __repr__(self) -> str:
        return f"Decider({self.model.name!r}, debias={self.debias!r})"

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
        check_call("decide", misplaced)
        request = Request.of(questions, abstain_below, self.abstain_below)
        text = state_text(state)
        give_up = _GiveUp(timeout, cancel)
        answers = give_up.guard(lambda: self._decide(text, request, give_up))
        return self._signals.of(request, [text], [answers])[0]

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
        """Answer the same questions about each of several states, one after the other.

        The numbers are those of `decide`, to the bit: rows of a batch would round differently. Only
        ``informative`` is False for all, too, where 20 states or more got one and the same label.

        Args and raises as for `decide`; a list of states, where that takes one.
        """
        check_call("decide_batch", misplaced)
        texts = states_of(states)
        request = Request.of(questions, abstain_below, self.abstain_below)
        give_up = _GiveUp(timeout, cancel)
        batch = give_up.guard(lambda: [self._decide(text, request, give_up) for text in texts])
        return self._signals.of(request, texts, batch)

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
        check_call("calibrate", misplaced)
        texts, right = examples_of(question, examples)
        give_up = _GiveUp(timeout, cancel)
        asked = {"question": question}

        def all_read() -> list[Found]:
            return [run_passes(self._asker.ask(text, asked), give_up) for text in texts]

        given = [found.distributions["question"] for found in give_up.guard(all_read)]
        fingerprint = self._asker.fingerprint(question)
        return Calibration.fit(question, self.model.name, fingerprint, given, right, bias=bias)

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
            adapter=self._settings.adapter,
            calibrations=(*self.calibrations, *calibrations),
            abstain_below=self.abstain_below,
            warn=self._warn,
        )

    def prompt_ids(self, state: Any, question: Question) -> TokenIds:
        """Return the tokens that the model gets for one question, int32 ``[n]``.

        Raises:
            PromptError: as for `decide`.
        """
        return self._asker.prompt_ids(state_text(state), question)

    def _decide(self, state: str, request: Request, give_up: _GiveUp) -> Answers[Any]:
        found = run_passes(self._asker.ask(state, request.questions), give_up)

        def calibration_of(name: str) -> Calibration | None:
            if not self._calibrations:
                return None
            return self._calibrations.get(self._asker.fingerprint(request.questions[name]))

        return request.answers(found, calibration_of)


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


def _loaded(name: str) -> Model:
    # Imported late: a model that is there already needs no runtime of ours.
    from structgen import models
    from structgen.constraint import warm_up
    from structgen.models import genai
    from structgen.text_model import TextModel

    return genai.load(models.path(name, task="generate"), kind=TextModel, meanwhile=warm_up)
