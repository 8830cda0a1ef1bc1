"""What is driven: one output being made, of one section or of several.

`Output` is what callers know of it, `Run` what the loop, batches and streams know;
`structgen.decoding.generation` makes those of one section, `structgen.decoding.sections` puts
several after one another.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from structgen.insight import Passes, TraceStep
from structgen.sampling import Logits, TokenIds, TokenLogprob

from .results import GenerationResult
from .text_assembler import FinishReason

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
        """A piece of ``section``."""
        made = super().__new__(cls, text)
        made.section = section
        made.steps = steps
        made.logprobs = logprobs
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.section, self.steps, self.logprobs


class Output(Protocol):
    """One output, whoever makes it."""

    @property
    def result(self) -> GenerationResult[Any]:
        """What there is so far."""

    def sure_result(self) -> GenerationResult[Any]:
        """The result, unless the model is not sure enough of it."""

    def cancel(self) -> None:
        """Ask that it end where it is, from any thread."""

    def stop(self) -> None:
        """End it here."""


class Run(Output, Protocol):
    """One output, between a prompt and a result. See `Generation` for what each does."""

    @property
    def prompt_ids(self) -> TokenIds:
        """int32 ``[n]``: what the model has to see before anything is chosen."""

    @property
    def max_tokens(self) -> int:
        """Most tokens after those."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended, None while it goes on."""

    @property
    def adapter(self) -> str | None:
        """Name of the adapter that the model runs with, or None."""

    @property
    def token_ids(self) -> TokenIds:
        """All tokens so far, int32 ``[1, n]``."""

    @property
    def is_interrupted(self) -> bool:
        """Whether it is to end where it is."""

    @property
    def is_waiting(self) -> bool:
        """Whether `advance` comes next, because checks that are made elsewhere are waited for."""

    @property
    def is_blocked(self) -> bool:
        """Whether that would do nothing, because they have not answered yet."""

    @property
    def n_seen(self) -> int:
        """How many of the tokens the model has seen; it is to forget what it has seen beside."""

    @property
    def n_wanted(self) -> int:
        """Forced tokens at the end that are to be scored."""

    @property
    def is_weighing(self) -> bool:
        """Whether the model is wanted for `weigh` before the output goes on."""

    def weigh(self) -> Passes[None]:
        """Weigh the alternatives of a value that has closed, and write the likeliest instead."""

    def start(self, reused_tokens: int = 0) -> None:
        """Say that the model is about to run."""

    def count_time_from(self, began: float) -> None:
        """Say when the call began."""

    def resume(self, n_seen: int) -> None:
        """Say how many tokens the model has seen."""

    def advance(self) -> None:
        """Go on as far as possible without the model."""

    def take_pending(self) -> TokenIds:
        """The tokens that the model has not seen, int32 ``[n]``."""

    def score_forced(self, logits: Logits) -> None:
        """Take the scores of forced tokens."""

    def choose(self, logits: Logits) -> None:
        """Choose the next token."""

    def take_chunks(self) -> list[Chunk]:
        """The text that has become certain since the last call, none of it empty."""

    def check_whole(self) -> None:
        """Raise when an output type was asked for and its text was cut."""
