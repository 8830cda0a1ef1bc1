"""AsyncDecider: a decider for asynchronous code, on a model in a process of its own.

It owns what happens here and what there. There: prompts, labels, passes. Here: the checks, users'
own values, calibrations, answers. How the two processes speak is `structgen.workers`' business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from structgen.decoding import CancelEvent
from structgen.decoding import options as search_options
from structgen.errors import ModelError, OptionError
from structgen.insight import Passes
from structgen.models.base import Model
from structgen.workers import AsyncModel, run_errands

from .answers import Answers
from .asking import ORDERS, TOLERANCE, Asker, Found, Settings
from .calibration import Calibration
from .questions import Question, without_values
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


@final
class AsyncDecider:
    """Answers typed questions about a state, as `Decider`, without holding up the event loop.

    The model runs in its process, where other calls have passes between those of a decision.
    Immutable; safe to share by tasks, loops and threads. The numbers are those of a `Decider`.

    Attributes:
        model: the model.
        debias: see `Decider`.
        orders: see `Decider`.
        tolerance: see `Decider`.
        calibrations: what is applied to the answers.
        abstain_below: what the likeliest label has to reach, where a call does not say.

    Example::

        async with await structgen.load_async("smollm2-135m-instruct") as model:
            decider = AsyncDecider(model)
            answers = await decider.decide(
                "I was charged twice!", {"refund": Predicate("Is this about money?")}
            )
    """

    def __init__(
        self,
        model: AsyncModel,
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
            model: from `structgen.load_async` or `TextModel.to_async`.
            template: as for a `Decider`, and so on.
            debias: see there.
            orders: see there.
            tolerance: see there.
            adapter: see there.
            calibrations: see there.
            abstain_below: see there.
            warn: see there.

        Raises:
            OptionError: as a `Decider`.
            ModelError: the model is no `AsyncModel`.
        """
        if not isinstance(model, AsyncModel):
            raise ModelError(
                f"The model is {model!r}, which does not run in a process of its own. Pass "
                "await structgen.load_async(name), or model.to_async()."
            )
        self._settings = Settings(template, debias, orders, tolerance, adapter)
        if adapter is not None and adapter not in model.adapters:
            raise OptionError(
                f"{model.name} has no adapter {adapter!r}. Load it: "
                f"await model.load_adapter(path, {adapter!r})."
            )
        self._calibrations = Calibrations(calibrations, model.name)
        self.model = model
        self.debias = debias
        self.orders = orders
        self.tolerance = float(tolerance)
        self.calibrations = self._calibrations.all
        check_thresholds(abstain_below)
        self.abstain_below = abstain_below
        self._warn = warn
        self._signals = Signals(model.name, warns=warn)

    def __repr__(self) -> str:
        return f"AsyncDecider({self.model.name!r}, debias={self.debias!r})"

    async def decide(
        self,
        state: Any,
        questions: type[ModelT] | Mapping[str, Question],
        *,
        abstain_below: Thresholds = None,
        timeout: float | None = None,
        cancel: CancelEvent | None = None,
        **misplaced: Never,
    ) -> Answers[ModelT]:
        """Answer questions about a state. Cancelling the task ends it within one pass.

        Args and raises as for `Decider.decide`; ``timeout`` counts from when the call reaches the
        process, and ``cancel`` may be an `asyncio.Event`. Also raises:
            WorkerDied: the model's process ended by itself.
        """
        check_call("decide", misplaced)
        request = Request.of(questions, abstain_below, self.abstain_below)
        (answers,) = await self._decide([state_text(state)], request, timeout, cancel)
        return answers

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
        """Answer the same questions about each of several states.

        Args and raises as for `decide`, ``timeout`` for each; a list of states, where that takes
        one.
        """
        check_call("decide_batch", misplaced)
        texts = states_of(states)
        request = Request.of(questions, abstain_below, self.abstain_below)
        return await self._decide(texts, request, timeout, cancel)

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
        check_call("calibrate", misplaced)
        texts, right = examples_of(question, examples)
        replies = await self._ask(texts, {"question": question}, timeout, cancel, is_bound=True)
        given = [reply.found.distributions["question"] for reply in replies]
        fingerprint = replies[0].fingerprints["question"]
        return Calibration.fit(question, self.model.name, fingerprint, given, right, bias=bias)

    def calibrated(self, *calibrations: Calibration) -> AsyncDecider:
        """Return a decider that applies these too, each to the question that it was made for.

        Raises:
            OptionError: one was made for another model.
        """
        return AsyncDecider(
            self.model,
            template=self._settings.template,
            debias=self.debias,
            orders=self.orders,
            tolerance=self.tolerance,
            adapter=self._settings.adapter,
            calibrations=(*self.calibrations, *calibrations),
            abstain_below=self.abstain_below,
            warn=self._warn,
        )

    async def _decide(
        self, states: list[str], request: Request, timeout: Any, cancel: Any
    ) -> list[Answers[Any]]:
        is_bound = bool(self._calibrations)
        replies = await self._ask(states, request.questions, timeout, cancel, is_bound=is_bound)

        def answers(reply: Reply) -> Answers[Any]:
            def calibration_of(name: str) -> Calibration | None:
                return self._calibrations.get(reply.fingerprints[name]) if is_bound else None

            return request.answers(reply.found, calibration_of)

        return self._signals.of(request, states, [answers(reply) for reply in replies])

    async def _ask(
        self,
        states: list[str],
        questions: Mapping[str, Question],
        timeout: Any,
        cancel: Any,
        *,
        is_bound: bool,
    ) -> list[Reply]:
        search = search_options.parse({"timeout": timeout, "cancel": cancel})
        bare = {name: without_values(question) for name, question in questions.items()}
        errand = Asking("", bare, self._settings, is_bound)
        return await run_errands(
            self.model,
            [replace(errand, state=state) for state in states],
            timeout=search.timeout,
            cancel=search.cancel,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What comes back.

    Attributes:
        found: the distributions.
        fingerprints: what each question is, for calibrations; empty unless asked for.
    """

    found: Found
    fingerprints: dict[str, str]


@dataclass(frozen=True, slots=True)
class Asking:
    """An errand: to ask questions about a state, where the model is.

    Attributes:
        state: its text.
        questions: by name, without their values.
        settings: how they are asked.
        is_bound: whether what the questions are is asked for.
    """

    state: str
    questions: dict[str, Question]
    settings: Settings
    is_bound: bool

    def begin(self, model: Model) -> Passes[Reply]:
        """Make the prompts; what is returned makes the passes."""
        asker = _asker(model, self.settings)
        return self._asked(asker, asker.ask(self.state, self.questions))

    def _asked(self, asker: Asker, passes: Passes[Found]) -> Passes[Reply]:
        fingerprints = {}
        if self.is_bound:
            fingerprints = {name: asker.fingerprint(one) for name, one in self.questions.items()}
        return Reply((yield from passes), fingerprints)


_KEPT = 16
"""Most askers that are kept for a model, one for each of `Settings`."""


def _asker(model: Model, settings: Settings) -> Asker:
    """What asks a model, with the labels that it has compiled and the priors that it has read.

    It holds the model, and so the model holds it: nothing else keeps either of them.
    """
    kept: OrderedDict[Settings, Asker] = vars(model).setdefault("_askers", OrderedDict())
    if settings not in kept:
        kept[settings] = Asker(model, settings)
        if len(kept) > _KEPT:
            kept.popitem(last=False)
    kept.move_to_end(settings)
    return kept[settings]
