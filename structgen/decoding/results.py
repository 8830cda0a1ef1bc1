"""What a call returns besides its text: its value, tokens, why it ended, counts, times, confidence.

Plain frozen data, but for the value and the confidence, which are computed when they are asked for.
`Enforcement` says who saw to it that the answer of a remote model is of its type; `Chunk` is a
piece of a text that is streamed, and `Output` what callers know of an output that is being made.
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
"""Why an output ended: by itself; whole, but shortened by its budget; at a limit, at a stop string,
or by its reader."""


SectionName: TypeAlias = Literal["reasoning", "draft", "answer"]
"""The sections of an output, in the order in which they are written."""


class Chunk(str):
    """A piece of text, and which section it belongs to.

    Attributes:
        section: ``"answer"``; with ``think=`` or ``draft=`` also ``"reasoning"`` and ``"draft"``.
        steps: with ``trace=True``, the steps of the trace that are new or have changed since the
            chunk before. One takes the place of an earlier one with its ``index``.
        logprobs: with ``logprobs=True``, those of the tokens whose text ends in this piece, as they
            are known by now: ``unmasked_logprob`` of a forced token may come with the result only,
            as do tokens without text after the last piece.
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
    """Who saw to it that an answer of a remote model is of its output type.

    Each entry is a JSON path and a keyword: ``$.properties.age minimum``; of other types ``$`` and
    ``pattern``, ``choice`` or ``grammar``.

    Attributes:
        dialect: how the server was asked.
        sent: what was sent, in words.
        server: what the server was asked to enforce, and is known to enforce in that dialect. It
            was validated here, too.
        here: what only the validation of the answer saw to: keywords that were not sent, or that
            such servers do not enforce, and validators of the type's own.
        neither: what nobody saw to: keywords that ``on_unsupported="warn"`` left out.
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
        forced_tokens: tokens of the output that were the only way on, and not chosen.
        reasoning_tokens: tokens of the thought before the output, its tags included.
        draft_tokens: tokens of the draft before the output. What asks for the output after it
            counts among the prompt's.
        guessed_tokens: tokens that the model ran before they were chosen, see ``speculate=``;
            forced ones do not count.
        accepted_tokens: how many of these came.
        retries: how often the output went back because a check had refused a value.
        retried_tokens: tokens that were written and taken back then. They are not part of
            ``output_tokens``, and have cost as much.
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
    """Wall-clock times of one call, from when its first token was asked for.

    Attributes:
        first_chunk_seconds: until the first text; None when there was none.
        total_seconds: until the end.
    """

    first_chunk_seconds: float | None
    total_seconds: float


class Parsed(Generic[T_co]):
    """The value of a text, parsed when it is first asked for."""

    __slots__ = ("_parse", "_text", "_values")

    def __init__(self, parse: Callable[[str], T_co], text: str) -> None:
        self._parse = parse
        self._text = text
        self._values: tuple[T_co, ...] = ()

    def get(self) -> T_co:
        """Return the value; the same one each time, but for threads that ask for it at once."""
        if not self._values:
            self._values = (self._parse(self._text),)
        return self._values[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the value: what parses it is the type's, and stays."""
        try:
            value = self.get()
            pickle.dumps(value)
        except Exception as error:  # it is refused, or its class cannot be sent
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
        token_ids: its tokens, without the end of the sequence. With a stop string they reach to
            the token that completed it.
        finish_reason: ``stop`` (it ended by itself), ``budget`` (it is whole, but the limit on
            tokens changed the text: see ``shortened``), ``length`` (free text reached a limit),
            ``stop_string`` or ``cancelled``; None: it has not ended, only for the `result` of an
            unfinished stream.
        usage: token counts.
        timings: wall-clock times.
        mean_allowed_tokens: how many tokens the mask allowed on average, over the tokens the model
            was asked for; None without an output type.
        confidence: how sure the model is of each value that was a choice among few, by JSON path:
            ``result.confidence["$.label"].probability``. Runs the model when asked.
        abstain_below: the option of that name.
        shortened: JSON paths of the values that the limit on tokens changed, in the order in which
            that happened; ``$`` for text that is not JSON. The limit is ``max_new_tokens``,
            ``max_length`` or the model's context. See `structgen.decoding.choosing`.
        reasoning: the thought of the model, without its tags; None without ``think=``.
        draft: its draft; None without ``draft=``, or before the draft begins.
        attempts: the values that checks rejected, with ``retries=``.
        enforcement: of a remote model: what its server enforced, what was validated here. None:
            the model ran here, under a mask that enforces all that ``constraint.explain()`` says.
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
            IncompleteOutput: the text is not complete: it was cut, or is still being written.
            ParseError: the text fits the type's grammar, but its class rejects it, such as by a
                Pydantic validator.

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
        """Return the value and how it was made, in a notebook."""
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
        """Return the same result with another parser for its value."""
        return self if self._parsed is None else replace(self, _parsed=Parsed(parse, self.text))

    def completed(
        self,
        logprobs: Sequence[TokenLogprob],
        steps: Sequence[TraceStep],
        constraint: Constraint | None,
    ) -> GenerationResult[T_co]:
        """Return the same result with these scores and steps, if it has any."""
        scores = None if self._logprobs is None else tuple(logprobs)
        trace = None if self._trace is None else self._trace.completed(steps, constraint)
        return replace(self, _logprobs=scores, _trace=trace)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The log probabilities of each token of ``token_ids``.

        Raises:
            OptionError: the call did not ask for them.
        """
        if self._logprobs is None:
            raise OptionError(
                "This result has no log probabilities. Pass logprobs=True to the call."
            )
        return self._logprobs

    @property
    def trace(self) -> Trace:
        """What happened at each step.

        Raises:
            OptionError: the call did not ask for it.
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
        """Raise if the model is too unsure of a value for ``abstain_below``.

        Args:
            give_up: called before each pass of the model that this needs; True ends it.

        Raises:
            Abstained: it has the text and the values; no values if ``give_up`` returned True,
                because it is not known how sure the model is.
        """
        try:
            run_passes(self.checking_sure(), give_up)
        except GivenUp:
            raise self.given_up() from None

    def given_up(self) -> Abstained:
        """Return the error for a call that ended before it was known how sure the model is."""
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
    """One output, of any kind of generator."""

    @property
    def result(self) -> GenerationResult[Any]:
        """What there is so far."""

    @property
    def is_interrupted(self) -> bool:
        """Whether it is to end where it is: cancelled, or out of time."""

    def cancel(self) -> None:
        """Ask that it end where it is, from any thread."""

    def stop(self) -> None:
        """End it here."""
