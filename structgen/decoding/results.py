"""The results of calls: value, tokens, finish reason, counts, times, confidence.

Plain frozen data, except the value and the confidence, which are computed on demand. `Enforcement`
records what enforced the type of a remote model's answer; `Chunk` is a piece of a streamed text,
and `Output` the interface of an output in progress.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias

from structgen import notebook
from structgen.constraint import Constraint
from structgen.errors import (
    Abstained,
    Attempt,
    IncompleteOutput,
    OptionError,
    ParseError,
    StructgenError,
)
from structgen.insight import Trace, TraceStep, ValueConfidence, below
from structgen.models.base import GivenUp, Passes, run_passes
from structgen.sampling import TokenLogprob
from structgen.types import T_co

FinishReason: TypeAlias = Literal["stop", "budget", "length", "stop_string", "cancelled"]
"""Why an output ended: by itself; complete, but shortened by its budget; at a limit; at a stop
string; or by its reader."""


SectionName: TypeAlias = Literal["reasoning", "draft", "answer"]
"""The sections of an output, in order."""


class Chunk(str):
    """A piece of text, and which section it belongs to.

    Attributes:
        section: ``"answer"``; with ``think=`` or ``draft=`` also ``"reasoning"`` and ``"draft"``.
        steps: with ``trace=True``, the steps of the trace that are new or changed since the
            previous chunk. A step replaces an earlier one with the same ``index``.
        logprobs: with ``logprobs=True``, those of the tokens whose text ends in this piece, as far
            as known: ``unmasked_logprob`` of a forced token, and tokens without text after the last
            piece, may only be in the result.
    """

    section: SectionName
    steps: tuple[TraceStep, ...]
    logprobs: tuple[TokenLogprob, ...]

    def __new__(
        cls,
        text: str,
        section: SectionName = "answer",
        steps: tuple[TraceStep, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> Chunk:
        """Return a piece of ``section``."""
        made = super().__new__(cls, text)
        made.section = section
        made.steps = steps
        made.logprobs = logprobs
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.section, self.steps, self.logprobs


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What enforced the output type of a remote model's answer.

    Each entry is a JSON path and a keyword: ``$.properties.age minimum``; for other types ``$`` and
    ``pattern``, ``choice`` or ``grammar``.

    Attributes:
        dialect: the dialect of the request.
        sent: a description of the constraint that was sent.
        server: keywords that the server was asked to enforce, and is known to enforce in that
            dialect. They were validated here, too.
        here: keywords that only the validation here enforced: those that were not sent, or that
            such servers do not enforce, and the type's validators.
        neither: keywords that nothing enforced, because of ``on_unsupported="warn"``.
    """

    dialect: str
    sent: str
    server: tuple[str, ...]
    here: tuple[str, ...]
    neither: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.dialect}: {self.sent}"]
        for who, places in (
            ("by the server, and checked by structgen", self.server),
            ("only checked by structgen", self.here),
            ("not enforced", self.neither),
        ):
            if places:
                lines += [who, *(f"  {place}" for place in places)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        prompt_tokens: tokens of the prompt, after the chat template.
        output_tokens: tokens of the output, without the end of the sequence.
        reused_tokens: tokens of the prompt that the model had seen before and did not run again.
        forced_tokens: tokens of the output that were forced rather than chosen.
        reasoning_tokens: tokens of the thought before the output, its tags included.
        draft_tokens: tokens of the draft before the output. The request after it counts as prompt.
        guessed_tokens: tokens that the model ran before they were chosen, see ``speculate=``,
            without forced ones.
        accepted_tokens: how many of these guesses were right.
        retries: how often the output went back because a check refused a value.
        retried_tokens: tokens that were written and then undone. They cost as much as others, but
            are not part of ``output_tokens``.
    """

    prompt_tokens: int
    output_tokens: int
    reused_tokens: int = 0
    forced_tokens: int = 0
    reasoning_tokens: int = 0
    draft_tokens: int = 0
    guessed_tokens: int = 0
    accepted_tokens: int = 0
    retries: int = 0
    retried_tokens: int = 0

    @property
    def sampled_tokens(self) -> int:
        """Tokens of the output that were chosen by the model's scores."""
        return self.output_tokens - self.forced_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock times of one call, from the request of its first token.

    Attributes:
        first_chunk_seconds: until the first text; None if there was none.
        total_seconds: until the end.
    """

    first_chunk_seconds: float | None
    total_seconds: float


class Parsed(Generic[T_co]):
    """The value of a text, parsed on first use."""

    __slots__ = ("_parse", "_text", "_values")

    def __init__(self, parse: Callable[[str], T_co], text: str) -> None:
        self._parse = parse
        self._text = text
        self._values: tuple[T_co, ...] = ()

    def get(self) -> T_co:
        """Return the value; the same object each time, except for threads that call this at the
        same time."""
        if not self._values:
            self._values = (self._parse(self._text),)
        return self._values[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the value without its parser, which belongs to the type."""
        try:
            value = self.get()
            pickle.dumps(value)
        except Exception as error:  # a check refused it, or its class cannot be pickled
            why = f"This result was sent without its value, because of an error: {error}"
            return Parsed, (functools.partial(_lost, why), self._text)
        return Parsed, (functools.partial(_same, value), self._text)


def _same(value: Any, text: str) -> Any:
    return value


def _lost(why: str, text: str) -> Any:
    raise ParseError(why, text=text)


@dataclass(frozen=True, slots=True)
class GenerationResult(Generic[T_co]):
    """The result of one call.

    Attributes:
        text: the output.
        token_ids: its tokens, without the end of the sequence. With a stop string, up to the token
            that completed it.
        finish_reason: ``stop`` (ended by itself), ``budget`` (complete, but the token limit changed
            the text: see ``shortened``), ``length`` (free text reached a limit), ``stop_string`` or
            ``cancelled``; None only for the `result` of an unfinished stream.
        usage: token counts.
        timings: wall-clock times.
        mean_allowed_tokens: the mean number of tokens that the mask allowed, over the tokens that
            the model chose; None without an output type.
        confidence: the model's confidence in each value that was a choice among few, by JSON path:
            ``result.confidence["$.label"].probability``. Runs the model on first use.
        abstain_below: the option of that name.
        shortened: JSON paths of the values that the token limit changed, in order of occurrence;
            ``$`` for text that is not JSON. The limit is ``max_new_tokens``, ``max_length`` or the
            model's context. See `structgen.decoding.choosing`.
        reasoning: the model's thought, without its tags; None without ``think=``.
        draft: the model's draft; None without ``draft=``, or before the draft begins.
        attempts: the values that checks rejected, with ``retries=``.
        enforcement: for a remote model: what its server enforced, and what was validated here.
            None: the model ran here, under masks that enforce everything listed by
            ``constraint.explain()``.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    usage: Usage
    timings: Timings
    mean_allowed_tokens: float | None
    confidence: Mapping[str, ValueConfidence] = field(
        default_factory=dict, repr=False, compare=False
    )
    abstain_below: float | Mapping[str, float] | None = None
    shortened: tuple[str, ...] = ()
    reasoning: str | None = None
    draft: str | None = None
    attempts: tuple[Attempt, ...] = ()
    enforcement: Enforcement | None = None
    _parsed: Parsed[T_co] | None = field(default=None, repr=False, compare=False)
    _logprobs: tuple[TokenLogprob, ...] | None = field(default=None, repr=False)
    _trace: Trace | None = field(default=None, repr=False)

    @property
    def value(self) -> T_co:
        """The output as a value of the output type; without an output type, the text.

        Raises:
            IncompleteOutput: the text is incomplete: it was cut, or is still being written.
            ParseError: the text fits the type's grammar, but code of its class, such as a Pydantic
                validator, rejects it.

        Cost: parsing, once.
        """
        if self._parsed is None:
            why = (
                ("The output is not complete, so it has no value yet. Read the stream to its end.")
                if self.finish_reason is None
                else "The output was truncated, so it has no value "
                f"(finish_reason={self.finish_reason!r}). The text so far is in .text."
            )
            raise IncompleteOutput(why, text=self.text)
        try:
            return self._parsed.get()
        except ParseError as error:
            if type(error) is not ParseError or not self.shortened:
                raise
            where = ", ".join(self.shortened[:3]) + (", …" if len(self.shortened) > 3 else "")
            why = f"max_new_tokens shortened this output at {where}. Raise it."
            raise ParseError(f"{error} {why}", text=error.text) from error

    def _repr_html_(self) -> str:
        """Return the value and facts about the call, for a notebook."""
        try:
            value: Any = self.value
        except StructgenError:
            value = self.text  # cut, or refused by a check
        usage = f"{self.usage.output_tokens:,} tokens, {self.usage.forced_tokens:,} forced"
        made = [("finish_reason", self.finish_reason), ("usage", usage)]
        names = ("shortened", "reasoning", "draft", "attempts")
        made += [(name, getattr(self, name)) for name in names if getattr(self, name)]
        return notebook.shown(value) + notebook.table(made)

    def parsed_by(self, parse: Callable[[str], Any]) -> GenerationResult[Any]:
        """Return this result with another parser for its value."""
        return self if self._parsed is None else replace(self, _parsed=Parsed(parse, self.text))

    def completed(
        self,
        logprobs: Sequence[TokenLogprob],
        steps: Sequence[TraceStep],
        constraint: Constraint | None,
    ) -> GenerationResult[T_co]:
        """Return this result with these scores and steps, if there are any."""
        scores = None if self._logprobs is None else tuple(logprobs)
        trace = None if self._trace is None else self._trace.completed(steps, constraint)
        return replace(self, _logprobs=scores, _trace=trace)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The log probabilities of each token of ``token_ids``.

        Raises:
            OptionError: the call did not request them.
        """
        if self._logprobs is None:
            raise OptionError(
                "This result has no log probabilities. Pass logprobs=True to the call."
            )
        return self._logprobs

    @property
    def trace(self) -> Trace:
        """The events of each step.

        Raises:
            OptionError: the call did not request a trace.
        """
        if self._trace is None:
            raise OptionError("This result has no trace. Pass trace=True to the call.")
        return self._trace

    @property
    def abstained(self) -> tuple[ValueConfidence, ...]:
        """The values whose probability is below ``abstain_below``; empty without that option.

        Raises:
            OptionError: ``abstain_below`` has a path whose value was not a choice among few.
        """
        if self.abstain_below is None:
            return ()
        return run_passes(below(self.confidence, self.abstain_below))

    def check_sure(self, give_up: Callable[[], bool] | None = None) -> None:
        """Check that the model is sure enough of all values for ``abstain_below``.

        Args:
            give_up: called before each pass of the model; True stops.

        Raises:
            Abstained: it is not; the error has the text and the values, or no values if ``give_up``
                returned True, because the probabilities are unknown then.
        """
        try:
            run_passes(self.checking_sure(), give_up)
        except GivenUp:
            raise self.given_up() from None

    def given_up(self) -> Abstained:
        """Return the error for a call that ended before the model's probabilities were known."""
        return Abstained(
            "The output is complete, but its confidence was not computed before the call ended "
            "(timeout= or cancel=). Allow more time, or check fewer paths: "
            "abstain_below={'$.label': 0.8}.",
            text=self.text,
            values=(),
        )

    def checking_sure(self) -> Passes[None]:
        """Run `check_sure` pass by pass."""
        if self.abstain_below is None:
            return
        values = yield from below(self.confidence, self.abstain_below)
        if values:
            raise Abstained(
                "The model is not sure enough:\n" + "\n".join(f"  {value}" for value in values),
                text=self.text,
                values=values,
            )


class Output(Protocol):
    """The interface of an output of any kind of generator."""

    @property
    def result(self) -> GenerationResult[Any]:
        """The result so far."""

    @property
    def is_interrupted(self) -> bool:
        """Whether it must end where it is: cancelled, or timed out."""

    def cancel(self) -> None:
        """Request that it end where it is, from any thread."""

    def stop(self) -> None:
        """End it here."""
