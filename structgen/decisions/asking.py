"""Ask a model: from a state and questions to distributions, pass by pass.

Here are `Settings` (how a model is asked), the prompt of each question, the passes over them, and
the division by the prior. `structgen.insight.confidence` computes a label's mass and its error,
`distributions` does the arithmetic. Knows no calibration, no answers and no time limits.

`read` runs all prompts of a call in one sequence, sorted by their tokens so that neighbours share
as much as possible (prompts whose distributions others need come first). Before each prompt it
rewinds the sequence to the part that the prompt shares with the last. No pass is over one token,
which would round differently; longer passes agree to the bit however the tokens are divided
(`structgen.models.genai.sequences`). So a prompt's result does not depend on its neighbours.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, final, get_args

import numpy as np

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import Task, check_fits, encode_pieces
from structgen.decoding import options as search_options
from structgen.errors import OptionError, PromptError
from structgen.grammar import ir
from structgen.insight import TokenTree, WrittenTexts, readable_prompt
from structgen.models.base import (
    PREFIXES_OF,
    Model,
    Passes,
    TokenSequence,
    n_shared,
    passes,
    per_model,
)
from structgen.options import Word, check_tolerance
from structgen.sampling import TokenIds
from structgen.storage import KeptByBytes, fork_safe
from structgen.types import OutputType
from structgen.vocabulary import Vocabulary

from . import distributions
from .distributions import Distribution, Floats, found
from .questions import Question
from .templates import BASE, CHAT, PromptTemplate

_MOST_PASSES = 64
"""Most passes for a prompt's labels, to be exact enough for the later use of the distribution:
hundreds of rare labels would take one each."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and passes used for answers.

    Attributes:
        prompt_tokens: tokens of the prompts; a shared prefix counts once.
        cached_tokens: how many of these were cached.
        run_tokens: tokens that the model processed: without cached ones, with those of labels and
            those repeated after a rewind.
        passes: passes of the model; a prompt is one pass, however long.
        label_passes: how many of these were for labels after a prompt.
    """

    prompt_tokens: int = 0
    run_tokens: int = 0
    passes: int = 0
    label_passes: int = 0
    cached_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.run_tokens + other.run_tokens,
            self.passes + other.passes,
            self.label_passes + other.label_passes,
            self.cached_tokens + other.cached_tokens,
        )


@final
class Texts:
    """The texts of a question's labels, compiled for a vocabulary. Immutable."""

    def __init__(self, texts: Sequence[str], ends: Sequence[str], vocabulary: Vocabulary) -> None:
        """Compile texts, which must all differ.

        ``ends``: texts that, like the end of the output, may end a label which is the beginning of
        another.
        """
        in_order = sorted(texts)
        # Labels with the same beginning are neighbours.
        begun = [a for a, b in itertools.pairwise(in_order) if b.startswith(a)]
        written = dict.fromkeys((*texts, *(text + end for text in begun for end in ends)))
        grammar = ir.Choice(tuple(written))
        self.constraint: Constraint[str] = compile_constraint(
            OutputType(grammar, str, "the labels"), vocabulary
        )
        self._bytes = [text.encode() for text in texts]

    def weight(self) -> int:
        """About how many bytes it holds: 4 kB, 128 per label, 16 per byte, and its masks."""
        labels = 128 * len(self._bytes) + 16 * sum(map(len, self._bytes))
        return 4096 + labels + self.constraint.weight

    def written(self) -> WrittenTexts:
        """Return the texts for a `TokenTree`."""
        return WrittenTexts(self._bytes, is_json=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """A prompt with the labels to weigh after it.

    Attributes:
        token_ids: int32 ``[n]``.
        longest: most tokens of a label.
        compiled: returns the compiled labels, because those of thousands of questions would take
            gigabytes.
        is_enough: returns whether a distribution within the tolerance is exact enough for its use;
            None: it always is.
        keep: called with the distribution, before readings without ``keep`` begin.
    """

    token_ids: TokenIds
    longest: int
    compiled: Callable[[], Texts]
    is_enough: Callable[[Distribution], bool] | None = None
    keep: Callable[[Distribution], None] | None = None


def read(
    model: Model, readings: Sequence[Reading], tolerance: float, *, adapter: str | None
) -> Passes[tuple[list[Distribution], Usage]]:
    """Weigh the labels of each prompt, pass by pass, as exactly as the tolerance asks.

    Raises:
        PromptError: a prompt does not fit the context, or the likely labels do not fit after it.
    """
    if not readings:
        return [], Usage()

    def place(i: int) -> tuple[bool, bytes]:
        return readings[i].keep is None, readings[i].token_ids.astype(">i4").tobytes()

    order = sorted(range(len(readings)), key=place)
    longest = max(len(one.token_ids) + one.longest for one in readings)
    first = readings[order[0]].token_ids
    room = min(longest, model.context_length)
    sequence = model.start(room, prefix=first, adapter=adapter)
    results: dict[int, Distribution] = {}
    prompt_tokens = run_tokens = label_passes = 0
    # The part that prompts share is not cached: it counts once.
    cached_tokens = _held(sequence, first)
    before: TokenIds = np.empty(0, np.int32)
    try:
        for i in order:
            reading = readings[i]
            token_ids, texts = reading.token_ids, reading.compiled()
            prompt_tokens += len(token_ids) - n_shared(before, token_ids)
            before = token_ids
            sequence.make_room(len(token_ids) + reading.longest)
            held = _held(sequence, token_ids)
            sequence.rewind(held)
            run_tokens += len(token_ids) - held
            for piece in passes(token_ids[held:], model.pace.longest_pass):
                yield
                sequence.append(piece)
            room = model.context_length - len(token_ids)
            tree = TokenTree(texts.constraint, texts.written(), (), sequence, room)
            error = yield from tree.growing(tolerance, is_enough=_asked_of(reading, tree))
            run_tokens += tree.run_tokens
            label_passes += tree.passes - 1  # the first reads the prompt's own scores
            if tree.cut and error > tolerance:
                raise PromptError(
                    f"The context has room for {room} tokens after a question, too few for the "
                    "likely labels. Shorten the state."
                )
            results[i] = found(tree.masses, error)
            if reading.keep is not None:
                reading.keep(results[i])
    finally:
        sequence.close()
    n_passes = len(readings) + label_passes
    usage = Usage(prompt_tokens, run_tokens, n_passes, label_passes, cached_tokens)
    return [results[i] for i in range(len(readings))], usage


def _held(sequence: TokenSequence, token_ids: TokenIds) -> int:
    """Return how many of a prompt's tokens a sequence can keep; at least the last two are run."""
    return max(min(n_shared(sequence.token_ids[0], token_ids), len(token_ids) - 2), 0)


def _asked_of(reading: Reading, tree: TokenTree) -> Callable[[float], bool] | None:
    """Return a function that asks a reading whether the masses of a tree are exact enough."""
    is_enough = reading.is_enough
    if is_enough is None:
        return None
    return lambda error: tree.passes >= _MOST_PASSES or is_enough(found(tree.masses, error))


TOLERANCE = 0.01
"""The default of the largest error of a probability."""

Debias = Literal["none", "prior", "contextual"]
"""The values of ``debias``, beside None."""

DEBIAS_OF_KIND: Mapping[str, str] = {"predicate": "contextual", "choice": "prior", "score": "prior"}
"""The meaning of None for each kind of question: the best one for it (docs/decision-quality.md)."""

_CONTENT_FREE = ("", "[MASK]")
"""The texts instead of a state, beside the template's ``no_state``, with ``contextual``."""

LEAST_CHANGE = 0.05
"""The least difference from the distribution without a state at which an answer is informative:
half the sum of the absolute differences. See docs/decision-quality.md."""

MOST_TOKENS = 1 << 21
"""Most tokens of all prompts of a call: hours of work, and 8 MB."""

MOST_LABELS = 300_000
"""Most bytes of the labels of a question. They are compiled between two passes: this many in 0.3 s,
to 70 MB."""

KEPT_BYTES = 64 << 20
"""About how many bytes of compiled labels and priors are kept per model: the labels of 200
questions with 40 each."""

_T = TypeVar("_T", bound="Texts | _Prior")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to ask a model: see `Decider`."""

    template: PromptTemplate | None = None
    debias: str | None = None
    tolerance: float = TOLERANCE
    adapter: str | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            OptionError: a setting is out of range.
        """
        if self.template is not None and not isinstance(self.template, PromptTemplate):
            raise OptionError(f"template={self.template!r} is not a PromptTemplate.")
        if self.debias is not None:
            Word(get_args(Debias))("debias", self.debias)
        object.__setattr__(self, "tolerance", check_tolerance("tolerance", self.tolerance))

    def debias_of(self, question: Question) -> str:
        """Return the method to correct the bias of a question."""
        return self.debias or DEBIAS_OF_KIND[question.kind]


@dataclass(frozen=True, slots=True)
class Found:
    """A model's probabilities of the labels of some questions.

    Attributes:
        distributions: one for each question, debiased and not calibrated.
        changes: the difference of each answer from the one without a state, from 0 to 1, if the
            model was also asked without one.
        usage: the tokens and passes used.
        trace: the prompts that were read for each question.
        fingerprints: the fingerprint of each question, for calibrations; empty unless requested.
        vector: the state's vector, if there is an embedder.
    """

    distributions: dict[str, Distribution]
    changes: dict[str, float]
    usage: Usage
    trace: dict[str, tuple[str, ...]]
    fingerprints: dict[str, str]
    vector: Floats | None = None


@per_model
def _kept_of(model: Model) -> tuple[KeptByBytes[Texts | _Prior], threading.Lock]:
    """Return the cache of a model, which all its askers share, and its lock."""
    kept: KeptByBytes[Texts | _Prior] = KeptByBytes(KEPT_BYTES, lambda one: one.weight())
    return kept, fork_safe(threading.Lock())


@final
class Asker:
    """Asks a model. Immutable and safe to share by threads."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model = model
        self.template = settings.template or (CHAT if _has_chat_template(model) else BASE)
        self._settings = settings
        self._task = Task(model, None, None, think=0)
        self._search = search_options.parse({"adapter": settings.adapter})
        self._kept, self._lock = _kept_of(model)

    def ask(
        self, state: str, questions: Mapping[str, Question], *, is_bound: bool = False
    ) -> Passes[Found]:
        """Read the distributions of some questions about a state.

        With ``is_bound`` the result has fingerprints. It also yields after each question and
        prompt, because there may be thousands.

        Raises:
            PromptError: a prompt does not fit the context, or there are too many tokens in total.
        """
        priors: dict[Question, _Prior] = {}
        settings = self._settings
        adapter = None if settings.adapter is None else self.model.adapter_loads
        for question in questions.values():
            if settings.debias_of(question) != "none":
                made = functools.partial(_Prior, question)
                priors[question] = self._once((settings, adapter, question), made)
                yield
        asked = yield from _made(self._reading(state, question) for question in questions.values())
        unknown = yield from _made(
            reading
            for question, prior in priors.items()
            if prior.distribution is None
            for reading in self._of_prior(question, prior)
        )
        every = [
            replace(one, is_enough=self._divides(priors.get(question)))
            for one, question in zip(asked, questions.values(), strict=True)
        ]
        parts, usage = yield from read(
            self.model, [*every, *unknown], settings.tolerance, adapter=settings.adapter
        )
        found: dict[str, Distribution] = {}
        changes: dict[str, float] = {}
        trace: dict[str, tuple[str, ...]] = {}
        for name, part, reading in zip(questions, parts, every, strict=False):
            prompts, found[name] = [reading.token_ids], part
            prior = priors.get(questions[name])
            if prior is not None and prior.distribution is not None:
                prompts += prior.prompts
                changes[name] = distributions.distance(part, prior.distribution)
                found[name] = distributions.without_prior(part, prior.distribution)
            vocabulary = self.model.vocabulary
            trace[name] = tuple(readable_prompt(ids.tolist(), vocabulary) for ids in prompts)
            yield
        bound = {name: self.fingerprint(one) for name, one in questions.items() if is_bound}
        return Found(found, changes, usage, trace, bound)

    def prompt_ids(self, state: str, question: Question) -> TokenIds:
        """Return the tokens that the model gets for one question, int32 ``[n]``."""
        return self._reading(state, question).token_ids

    def fingerprint(self, question: Question) -> str:
        """Return a digest of all that changes a question's distribution, except the state."""
        settings = self._settings
        debias = settings.debias_of(question)
        labels = [(label.text, label.description) for label in question.labels]
        given = [
            *(self.model.name, self.model.vocabulary.size, settings.adapter),
            *(question.kind, question.instructions, labels),
            *(asdict(self.template), debias),
        ]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()

    def _of_prior(self, question: Question, prior: _Prior) -> list[Reading]:
        """Return the readings for a prior, which is cached and equally exact for all states."""
        states = [self.template.no_state]
        if self._settings.debias_of(question) == "contextual":
            states += _CONTENT_FREE
        readings = [self._reading(state, question) for state in states]
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
        """Return whether a distribution is within the tolerance after the division by a prior."""
        if prior is None:
            return None

        def is_enough(given: Distribution) -> bool:
            assert prior.distribution is not None
            divided = distributions.without_prior(given, prior.distribution)
            return divided.error_bound <= self._settings.tolerance

        return is_enough

    def _reading(self, state: str, question: Question) -> Reading:
        """Return the prompt of a question about a state."""
        template = self.template
        if template.is_chat:
            prompt = template.prompt(state, question)
            token_ids = self._task.prepare(prompt, self._search).token_ids
        else:
            token_ids = encode_pieces(self.model, template.pieces(state, question))
        check_fits(self.model, len(token_ids))
        texts = tuple(template.before_label + one.text for one in question.labels)
        sizes = [len(text.encode()) for text in texts]
        size = sum(sizes) - len(texts) * len(template.before_label.encode())
        if size > MOST_LABELS:
            raise OptionError(
                f"The labels of the question {question.instructions[:100]!r} have {size:,} bytes "
                f"in total; the limit is {MOST_LABELS:,}. Shorten them, and explain them in their "
                "descriptions."
            )
        made = functools.partial(Texts, texts, template.ends, self.model.vocabulary)
        key = texts, template.ends
        return Reading(token_ids, max(sizes) + 1, functools.partial(self._once, key, made))

    def _once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the cached value of a key for this owner, or make and cache it."""
        key = PREFIXES_OF.get(), key
        with self._lock:
            found: Any = self._kept.get(key)
        if found is None:
            found = make()
            with self._lock:
                self._kept.add(key, found)
        kept: _T = found
        return kept


def _made(readings: Iterable[Reading]) -> Passes[list[Reading]]:
    """Make prompts, up to the limit on tokens, and let others have a pass after each.

    Raises:
        PromptError: there are too many tokens in total.
    """
    found: list[Reading] = []
    n_tokens = 0
    for reading in readings:
        found.append(reading)
        n_tokens += len(reading.token_ids)
        if n_tokens > MOST_TOKENS:
            raise PromptError(
                f"The prompts of these questions have more than {MOST_TOKENS:,} tokens in total. "
                "Ask fewer questions in one call, or shorten the state."
            )
        yield
    return found


class _Prior:
    """The prior of one question, once it is known.

    Attributes:
        prompts: the tokens of the prompts that are read for it.
        distribution: the mean of their distributions; None until all are read.
    """

    def __init__(self, question: Question) -> None:
        labels = question.labels
        length = sum(len(one.text) + len(one.description or "") + 200 for one in labels)
        self._length = 4 * (len(question.instructions) + length)
        self.distribution: Distribution | None = None
        self.prompts: list[TokenIds] = []
        self._parts: dict[int, Distribution] = {}

    def weight(self) -> int:
        """About how many bytes it holds, with its question."""
        return self._length * (1 + len(self._parts)) + sum(one.nbytes for one in self.prompts)

    def keep(self, index: int, distribution: Distribution) -> None:
        self._parts[index] = distribution
        if len(self._parts) == len(self.prompts):
            self.distribution = distributions.mean([self._parts[i] for i in sorted(self._parts)])


def _has_chat_template(model: Model) -> bool:
    try:
        model.apply_chat_template([{"role": "user", "content": "probe"}])
    except PromptError:
        return False
    return True
