"""The decode loop: an output and a sequence of the model, in turns.

It owns who is asked when, and nothing else: what happens to scores is `generation`'s business, how
a model computes them its module's. The loops are plain generators. `Output` is what callers know of
what is driven, `Run` what loop, batches and streams know; `generation` makes those of one section,
`sections` puts several after one another.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from structgen.insight import Passes, TraceStep
from structgen.models.base import TokenSequence, n_shared
from structgen.sampling import Logits, TokenIds, TokenLogprob

from .call_validation import passes
from .results import FinishReason, GenerationResult

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

    def guess(self, n_pending: int) -> Sequence[int]:
        """Tokens that probably come after those that there are, to be run with the pending ones."""

    def note_guess(self, n_guessed: int, n_right: int) -> None:
        """Take down how many tokens of a guess came; the model has seen no others."""

    def score_forced(self, logits: Logits) -> None:
        """Take the scores of forced tokens."""

    def choose(self, logits: Logits) -> None:
        """Choose the next token."""

    def take_chunks(self) -> list[Chunk]:
        """The text that has become certain since the last call, none of it empty."""

    def check_whole(self) -> None:
        """Raise when an output type was asked for and its text was cut."""


def decode(run: Run, sequence: TokenSequence) -> Generator[Chunk, None, None]:
    """Make one output; yield its text as it becomes certain, in pieces none of which is empty.

    Args:
        run: the output, not begun.
        sequence: may hold the first tokens of the prompt already; left open.
    """
    run.start(reused_tokens=sequence.length)
    yield from resume(run, sequence)


def resume(run: Run, sequence: TokenSequence) -> Generator[Chunk, None, None]:
    """Go on with an output that has begun, as `loop`.

    Args:
        run: the output.
        sequence: may hold the first of its tokens already; left open.
    """
    for chunks in passes_of(run, sequence):
        yield from chunks


def passes_of(run: Run, sequence: TokenSequence) -> Generator[list[Chunk], None, None]:
    """The same, a step at a time: yield before each pass of the model, and at the end.

    What is yielded is the text that has become certain since, which may be none. So whoever drives
    several outputs may let each have a pass in turn.

    Args:
        run: an output that has begun.
        sequence: may hold the first of its tokens already; left open.
    """
    run.resume(sequence.length)
    while True:
        run.advance()
        yield run.take_chunks()
        if run.is_weighing:
            for _ in run.weigh():
                yield []
                if run.is_interrupted:
                    break
            continue
        if run.is_waiting:
            continue
        n_wanted, goes_on = run.n_wanted, run.finish_reason is None
        if not goes_on and not n_wanted:
            return
        if sequence.length > run.n_seen:
            sequence.rewind(run.n_seen)
        pending = run.take_pending()
        guessed = run.guess(len(pending)) if goes_on else ()
        if guessed:
            sequence.append([*pending.tolist(), *guessed])
            scores = sequence.recent_logits(len(guessed) + 1)
            run.note_guess(len(guessed), _verify(run, guessed, scores))
            continue
        for i, piece in enumerate(passes(pending)):
            if i:
                yield []
            if goes_on and run.is_interrupted:
                break
            sequence.append(piece)
        if goes_on and run.is_interrupted:
            continue
        if n_wanted:
            run.score_forced(sequence.recent_logits(n_wanted + 1)[:-1])
        if not goes_on:
            return
        run.choose(sequence.logits())


def _verify(run: Run, guessed: Sequence[int], logits: Logits) -> int:
    """Choose tokens along a guess, for as long as they are those that it has.

    Args:
        run: the output, of which the model has seen all tokens, and the guessed ones after them.
        guessed: the tokens.
        logits: float32 ``[len(guessed) + 1, vocab]``, the scores before each of them and after all.

    Returns:
        How many tokens of the guess came.
    """
    first = run.token_ids.shape[1]
    after = np.array(guessed, np.int32)
    at = 0
    while True:
        run.choose(logits[at : at + 1])
        if run.finish_reason is not None or at == len(guessed):
            return at
        run_ids = run.token_ids[0]
        if len(run_ids) <= first + at or run_ids[-1] != after[at]:
            return at
        run.advance()
        came = run.token_ids[0, first:]
        at = n_shared(came, after)
        if run.finish_reason is not None or at < len(came):
            return at
