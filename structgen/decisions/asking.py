"""Asking: from a state and questions to distributions, pass by pass of the model.

It owns `Settings` (how a model is asked), the prompts of each question, in several orders where
that is wanted, and the division by the prior. It knows no calibration, no answers and no limits of
time. How masses are summed is `structgen.decisions.reading`'s, the arithmetic of distributions
`structgen.decisions.distributions`'.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

from structgen.decoding import Task, encode_pieces
from structgen.decoding import options as search_options
from structgen.errors import OptionError, PromptError
from structgen.insight import Passes, readable_prompt
from structgen.models.base import Model
from structgen.sampling import TokenIds

from . import distributions
from .distributions import Distribution
from .questions import Label, Question
from .reading import Reading, Texts, Usage, read
from .templates import BASE, CHAT, PromptTemplate

TOLERANCE = 0.01
"""How far off a probability may be, unless asked otherwise."""

DEBIAS = ("none", "prior", "contextual", "orders")
"""What ``debias`` may be, beside None."""

DEBIAS_OF_KIND: Mapping[str, str] = {
    "predicate": "contextual",
    "choice": "prior",
    "score": "prior",
}
"""What None means for each kind of question: what did best for it (docs/decisions.md)."""

_CONTENT_FREE = ("", "[MASK]")
"""What stands for a state, beside the template's ``no_state``, with ``contextual``."""

LEAST_CHANGE = 0.05
"""What the distribution without a state has to differ by, at least, for an answer to say something
of the state: half the sum of the absolute differences. See docs/decisions.md for what it parts."""

ORDERS = 4
"""In how many orders options are told at most, unless asked otherwise."""

_KEPT = 256
"""Most compiled sets of labels, and most priors, that are kept."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is asked: see `Decider`."""

    template: PromptTemplate | None = None
    debias: str | None = None
    orders: int = ORDERS
    tolerance: float = TOLERANCE
    adapter: str | None = None

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            OptionError: one is out of range.
        """
        if self.template is not None and not isinstance(self.template, PromptTemplate):
            raise OptionError(f"template={self.template!r} is no PromptTemplate.")
        if self.debias is not None and self.debias not in DEBIAS:
            raise OptionError(
                f"debias={self.debias!r}. It must be None or one of {', '.join(DEBIAS)}."
            )
        if isinstance(self.orders, bool) or not isinstance(self.orders, int) or self.orders < 1:
            raise OptionError(f"orders={self.orders!r}. It must be an integer of 1 or more.")
        check_share(self.tolerance, "tolerance", is_open=True)

    def debias_of(self, question: Question) -> str:
        """What is done about the bias of a question."""
        return self.debias or DEBIAS_OF_KIND[question.kind]


def check_share(value: Any, name: str, *, is_open: bool = False) -> None:
    """Check that an option is a number from 0 to 1; with ``is_open``, below 1.

    Raises:
        OptionError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(f"{name}={value!r} is not a number.")
    if not 0 <= value <= 1 or (is_open and value == 1):
        raise OptionError(f"{name}={value!r} is out of range. It must be from 0 to 1.")


@dataclass(frozen=True, slots=True)
class Found:
    """What a model gives the labels of some questions.

    Attributes:
        distributions: of each question, debiased and not calibrated.
        changes: by how much the answer to each differs from that without a state, from 0 to 1,
            where the model was asked without one.
        usage: what that took.
        trace: the prompts that were read for each.
    """

    distributions: dict[str, Distribution]
    changes: dict[str, float]
    usage: Usage
    trace: dict[str, tuple[str, ...]]


@final
class Asker:
    """Asks a model. Immutable and safe to share by threads.

    Attributes:
        model: the model.
        template: how it is asked.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        """Nothing is asked yet."""
        self.model = model
        self.template = settings.template or (CHAT if _has_chat_template(model) else BASE)
        self._settings = settings
        self._task = Task(model, None, None, think=0)
        self._search = search_options.parse({"adapter": settings.adapter})
        self._compiled = functools.lru_cache(_KEPT)(self._compile)
        self._priors = functools.lru_cache(_KEPT)(_Prior)

    def ask(self, state: str, questions: Mapping[str, Question]) -> Passes[Found]:
        """Begin to read the distributions of some questions about a state.

        Prompts are made and labels compiled before this returns; the rest is passes of the model.

        Raises:
            PromptError: now or in a pass: something does not fit the context.
        """
        readings = {
            name: [self._reading(state, question, labels) for labels in self._orders_of(question)]
            for name, question in questions.items()
        }
        return self._asked(questions, readings)

    def prompt_ids(self, state: str, question: Question) -> TokenIds:
        """The tokens that the model gets for one question, int32 ``[n]``."""
        return self._reading(state, question, question.labels).token_ids

    def fingerprint(self, question: Question) -> str:
        """A digest of all that changes a question's distribution, but for the state."""
        settings = self._settings
        debias = settings.debias_of(question)
        orders = settings.orders if debias == "orders" else 1
        told = [(label.text, label.description) for label in question.labels]
        given = [
            *(self.model.name, self.model.vocabulary.size, settings.adapter),
            *(question.kind, question.instructions, told),
            *(asdict(self.template), debias, orders),
        ]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()

    def _asked(
        self, questions: Mapping[str, Question], readings: Mapping[str, Sequence[Reading]]
    ) -> Passes[Found]:
        priors = {
            question: self._priors(question)
            for question in questions.values()
            if self._settings.debias_of(question) in ("prior", "contextual")
        }
        unknown = [
            reading
            for question, prior in priors.items()
            if prior.distribution is None
            for reading in self._of_prior(question, prior)
        ]
        every = [
            replace(one, is_enough=self._divides(priors.get(questions[name])))
            for name, some in readings.items()
            for one in some
        ]
        parts, usage = yield from self._read([*every, *unknown])
        found: dict[str, Distribution] = {}
        changes: dict[str, float] = {}
        trace: dict[str, tuple[str, ...]] = {}
        at = 0
        for name, some in readings.items():
            mine = parts[at : at + len(some)]
            at += len(some)
            found[name] = mine[0] if len(some) == 1 else distributions.mean(mine)
            prompts = [one.token_ids for one in some]
            prior = priors.get(questions[name])
            if prior is not None and prior.distribution is not None:
                prompts += prior.prompts
                changes[name] = distributions.distance(found[name], prior.distribution)
                found[name] = distributions.without_prior(found[name], prior.distribution)
            trace[name] = tuple(map(self._shown, prompts))
        return Found(found, changes, usage, trace)

    def _read(self, readings: Sequence[Reading]) -> Passes[tuple[list[Distribution], Usage]]:
        settings = self._settings
        return read(self.model, readings, settings.tolerance, adapter=settings.adapter)

    def _of_prior(self, question: Question, prior: _Prior) -> list[Reading]:
        """The readings of a prior, which is kept: as exact for one state as for another."""
        states = [self.template.no_state]
        if self._settings.debias_of(question) == "contextual":
            states += _CONTENT_FREE
        readings = [self._reading(state, question, question.labels) for state in states]
        prior.prompts = [one.token_ids for one in readings]
        tolerance = self._settings.tolerance
        return [
            replace(
                reading,
                is_enough=lambda given: distributions.is_sharp(given, tolerance),
                keep=functools.partial(prior.keep, index),
            )
            for index, reading in enumerate(readings)
        ]

    def _divides(self, prior: _Prior | None) -> Callable[[Distribution], bool] | None:
        """Whether a distribution is within the tolerance after it is divided by a prior."""
        if prior is None:
            return None

        def is_enough(given: Distribution) -> bool:
            assert prior.distribution is not None
            divided = distributions.without_prior(given, prior.distribution)
            return divided.error_bound <= self._settings.tolerance

        return is_enough

    def _reading(self, state: str, question: Question, labels: Sequence[Label]) -> Reading:
        """A prompt that tells the labels in this order."""
        template = self.template
        if template.is_chat:
            prompt = template.prompt(state, question, labels)
            token_ids = self._task.prepare(prompt, self._search).token_ids
        else:
            token_ids = encode_pieces(self.model, template.pieces(state, question, labels))
        return Reading(token_ids, self._compiled(tuple(one.text for one in question.labels)))

    def _compile(self, texts: tuple[str, ...]) -> Texts:
        before = self.template.before_label
        return Texts([before + text for text in texts], self.template.ends, self.model.vocabulary)

    def _orders_of(self, question: Question) -> list[tuple[Label, ...]]:
        """The orders in which a question's labels are told, the question's own first."""
        labels, orders = question.labels, self._settings.orders
        if self._settings.debias_of(question) != "orders":
            return [labels]
        if question.kind == "score":  # no other order is one of a scale
            return [labels, labels[::-1]][:orders]
        if question.kind == "predicate" and self.template.predicate is not None:
            return [labels]
        n, count = len(labels), min(orders, len(labels))
        starts = [i * n // count for i in range(count)]
        return [(*labels[start:], *labels[:start]) for start in starts]

    def _shown(self, token_ids: TokenIds) -> str:
        return readable_prompt(token_ids.tolist(), self.model.vocabulary)


class _Prior:
    """Where the prior of one question is kept, once it is known.

    Attributes:
        prompts: the tokens of what is read for it.
        distribution: the mean of what that gave; None until all is read.
    """

    def __init__(self, question: Question) -> None:
        self.distribution: Distribution | None = None
        self.prompts: list[TokenIds] = []
        self._parts: dict[int, Distribution] = {}

    def keep(self, index: int, distribution: Distribution) -> None:
        self._parts[index] = distribution
        if len(self._parts) == len(self.prompts):
            parts = [self._parts[i] for i in range(len(self._parts))]
            self.distribution = parts[0] if len(parts) == 1 else distributions.mean(parts)


def _has_chat_template(model: Model) -> bool:
    try:
        model.apply_chat_template([{"role": "user", "content": "probe"}])
    except PromptError:
        return False
    return True
