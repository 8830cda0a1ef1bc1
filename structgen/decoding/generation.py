"""One output being made: everything about it except the model.

`Generation` owns the order of events between two passes of the model, for one output, and its
result. It never runs a model: its driver (`loop`) gets the tokens to run, and passes in the scores.
So the same code makes one output alone and each row of a batch.

    advance() ─▶ finished? ─▶ take_pending() ─▶ [the model runs over them] ─▶ choose(scores) ─▶ …
    the mask; forced tokens    tokens the model                             processors, mask,
                               has not seen                                 sampler, cursor, text

`Progress` moves the parts of an output forwards and backwards together; `Chooser` chooses the
tokens.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, final

from structgen.constraint import Constraint
from structgen.errors import IncompleteOutput
from structgen.insight import BestValues, Confidence
from structgen.models.base import Allowed, MediaPrompt, Model, Passes
from structgen.sampling import Logits, LogitsProcessor, TokenIds, TokenMask
from structgen.values import Judging

from . import options
from .call_validation import budget, check_adapter, check_values, opening
from .chat_tokens import Speller
from .checks import Trial
from .choosing import Chooser
from .drafting import Drafter
from .options import SearchOptions
from .progress import Clock, OutputTokens, Progress, Reporter
from .results import Chunk, FinishReason, GenerationResult, Parsed, Usage
from .speculation import Speculation

_WHOLE = ("stop", "budget")
"""The finish reasons of complete outputs."""

_LONG = 1_000
"""After this many tokens, a call without a limit logs that it has none, because it may take
minutes."""

_log = logging.getLogger(__name__)


@final
class Generation:
    """One output: from a checked prompt to a `GenerationResult`. Used by one thread.

    Attributes:
        prompt_ids: int32 ``[n]``, the prompt.
        max_tokens: the most tokens to generate, the end of the sequence included.
        adapter: the name of the model's adapter, or None.
        media: the pictures and sounds of the prompt, or None.
        tokens: prompt and output so far, and which of them the model has seen.
        progress: the output so far.
    """

    def __init__(
        self,
        model: Model,
        constraint: Constraint | None,
        processor: LogitsProcessor | None,
        prompt_ids: TokenIds,
        search: SearchOptions,
        *,
        index: int = 0,
        position: int = 0,
        checks: Judging | None = None,
        media: MediaPrompt | None = None,
    ) -> None:
        """Check a call against the model.

        Args:
            model: the model.
            constraint: the compiled output type, or None.
            processor: the user's processor, or None.
            prompt_ids: the result of `encode`.
            search: the result of `structgen.decoding.options.parse`.
            index: the index of the output in a call for several.
            position: the number of output tokens that are in the prompt already, from earlier
                sections. With a seed, each position of an output has its own random numbers.
            checks: the checks of the output type, which run during generation with ``retries``.
            media: the pictures and sounds of the prompt.

        Raises:
            PromptError: the prompt is longer than the context.
            OptionError: an option does not fit the model or the prompt.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
        """
        vocabulary = model.vocabulary
        self.prompt_ids = prompt_ids
        self.max_tokens = budget(model, len(prompt_ids), search)
        check_adapter(model, search.adapter)
        self.adapter = search.adapter
        self.media = media
        check_values(constraint, search)
        self._model = model
        self._constraint = constraint
        self._search = search
        self._reporter = Reporter(model, constraint, search)
        self._recorder = self._reporter.recorder
        cursor, mask, trial, best = None, None, None, None
        if constraint is not None:
            cursor = constraint.start(max_tokens=self.max_tokens)
            mask = TokenMask(cursor, vocabulary.size, len(vocabulary.eos_token_ids))
            best = BestValues(constraint) if search.best else None
        settings = options.resolve(search, model.search_defaults)
        if constraint is not None and checks is not None and search.retries:
            trial = Trial(checks, constraint, settings, search.retries)
        self._clock = Clock(search.timeout, search.cancel)
        limits = (search.max_new_tokens, search.max_length, search.timeout)
        self._warn_below = -1 if any(limits) else self.max_tokens - _LONG
        self.tokens = OutputTokens(prompt_ids, self.max_tokens)
        self.progress = Progress(
            vocabulary,
            constraint,
            self.tokens,
            self._reporter,
            self._clock,
            mask,
            cursor,
            trial,
            best,
        )
        speller = Speller(vocabulary, model.encode)
        self._chooser = Chooser(
            model,
            search,
            settings,
            processor,
            self.progress,
            speller=speller,
            index=index,
            n_before=len(prompt_ids) - position,
        )
        self._speculation: Speculation | None = None
        self._drafter: Drafter | None = None
        if search.speculate and self.progress.is_plain and self._recorder is None:
            small, n_prompt = model.draft, len(prompt_ids)
            cost = 1.0 if small is None else small.cost
            guesses = Speculation(vocabulary.tokens, cursor, speller, model.pace, n_prompt, cost)
            self._speculation = guesses
            if small is not None:
                room, drafted = n_prompt + self.max_tokens, self._chooser.drafted
                self._drafter = Drafter(
                    small, cursor, vocabulary, speller, guesses, self._clock, room, drafted
                )
        self._open = partial(opening, model, prompt_ids, search.adapter, media)
        self._reused_tokens = 0

    # -- what there is ----------------------------------------------------------------------

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it continues."""
        return self.progress.finish_reason

    @property
    def result(self) -> GenerationResult[Any]:
        """The result so far; ``finish_reason`` is None while it continues."""
        tokens, trial = self.tokens, self.progress.trial
        finish_reason = self.finish_reason
        if finish_reason is None and (self._clock.has_ended or self._clock.is_cancelled):
            finish_reason = "cancelled"
        output_ids = tuple(tokens.output_ids.tolist())
        text = self._reporter.text
        attempts = () if trial is None else trial.attempts
        return GenerationResult(
            text=text,
            token_ids=output_ids,
            finish_reason=finish_reason,
            usage=Usage(
                prompt_tokens=len(self.prompt_ids),
                output_tokens=len(output_ids),
                reused_tokens=self._reused_tokens,
                forced_tokens=tokens.n_forced,
                guessed_tokens=0 if self._speculation is None else self._speculation.tried,
                accepted_tokens=0 if self._speculation is None else self._speculation.right,
                retries=min(len(attempts), self._search.retries),
                retried_tokens=0 if trial is None else trial.n_retried,
            ),
            attempts=attempts,
            timings=self._clock.timings,
            mean_allowed_tokens=self._chooser.mean_allowed,
            confidence=Confidence(
                self._constraint, output_ids, self._open, is_whole=finish_reason in _WHOLE
            ),
            abstain_below=self._search.abstain_below,
            shortened=self.progress.shortened.paths,
            _parsed=self._parsed(text, finish_reason),
            _logprobs=self._reporter.logprobs,
            _trace=self._reporter.trace(self.prompt_ids, self.max_tokens),
        )

    def _parsed(self, text: str, finish_reason: FinishReason | None) -> Parsed[Any] | None:
        """Return the `Parsed` value; None while there is none, and if the text was cut.

        Free text is its own value at any end.
        """
        if finish_reason is None:
            return None
        if self._constraint is None:
            return Parsed(str, text)
        trial = self.progress.trial
        if trial is not None and trial.values:
            (value,) = trial.values
            return Parsed(lambda text: value, text)
        if finish_reason not in _WHOLE and not self._is_whole(text):
            return None
        return Parsed(self._constraint.output.parse, text)

    def _is_whole(self, text: str) -> bool:
        """Return whether an output that was cut is complete by chance."""
        assert self._constraint is not None
        assert self.progress.cursor is not None
        data, texts = text.encode(), self._constraint.named.texts
        ends = [0, *accumulate(len(texts[token]) for token in self.tokens.output_ids)]
        n_tokens = bisect_right(ends, len(data)) - 1
        return self.progress.cursor.allows_after(n_tokens, data[ends[n_tokens] :])

    def check_whole(self) -> None:
        """Check that an output of a type was not cut.

        Raises:
            IncompleteOutput: it was; the error has the text.
        """
        if self._constraint is None or self.finish_reason in _WHOLE:
            return
        text = self._reporter.text
        if self._is_whole(text):
            return
        raise IncompleteOutput(
            f"The output was truncated before it was a complete {self._constraint.output.name}: "
            f"{self.why_cut()}",
            text=text,
        )

    def why_cut(self) -> str:
        """Return why an output that has ended is incomplete, and the fix."""
        if self._reporter.stopped_by is not None:
            return (
                f"it reached the stop string {self._reporter.stopped_by!r}. Remove it, or put the "
                "limit into the output type."
            )
        if self.finish_reason == "length":
            return f"it reached {self.max_tokens:,} tokens."
        if self.progress.timed_out:
            return (
                f"it timed out (timeout={self._search.timeout:g} seconds). Allow more, or set a "
                "token limit, within which outputs are completed."
            )
        return "it was cancelled."

    # -- the driver's side ------------------------------------------------------------------

    @property
    def part(self) -> Generation:
        """The section that the model runs for: this object, because the output has only one."""
        return self

    def start(self, reused_tokens: int = 0) -> None:
        """Note that the model is about to run: times count from here.

        Args:
            reused_tokens: the number of the prompt's first tokens that the model has already seen.
        """
        self._clock.count_from(self._clock.start())
        self._reused_tokens = self.tokens.n_seen = reused_tokens

    def count_time_from(self, began: float) -> None:
        """Set the start of the call, by `time.perf_counter`: ``timeout`` counts from the first
        value set.

        For calls with several outputs, which share one deadline.
        """
        self._clock.count_from(began)

    def advance(self) -> Passes[None]:
        """Continue as far as possible without the model; may end the output. Yields regularly."""
        progress = self.progress
        if progress.finish_reason is not None:
            return
        if self.tokens.left < self._warn_below:
            self._warn_below = -1
            _log.warning(
                "An output has %s tokens already and no limit. It may continue until it fills the "
                "context of %s. Pass max_new_tokens, and bound lists and strings in the type.",
                f"{_LONG:,}",
                self._model.name,
            )
        if self._clock.is_interrupted:
            progress.finish("cancelled")
        elif progress.is_plain or progress.resume():
            if not self.tokens.left:
                progress.finish("length")
            else:
                for _ in self._chooser.take_forced():
                    yield
                    if self._clock.is_interrupted:
                        progress.finish("cancelled")
                        return

    def cancel(self) -> None:
        """Request that the output end where it is. Call from any thread."""
        self._clock.cancel()

    def stop(self) -> None:
        """End the output here, ``cancelled`` unless it has ended."""
        self._clock.end()
        if self._drafter is not None:
            self._drafter.close()

    @property
    def is_interrupted(self) -> bool:
        """Whether the output must end where it is: cancelled, or timed out."""
        return self._clock.is_interrupted

    @property
    def is_blocked(self) -> bool:
        """Whether `advance` would do nothing, because checks in another process have not
        answered."""
        trial = self.progress.trial
        return (
            trial is not None
            and self.progress.is_waiting
            and not trial.may_resume
            and not self.is_interrupted
        )

    def weigh(self) -> Passes[None]:
        """Weigh the alternatives of a closed value, like `Progress.weigh`."""
        return self.progress.weigh(self._open)

    @property
    def n_wanted(self) -> int:
        """The number of forced tokens at the end that the recorder needs scores for; the model must
        run for it."""
        if self._recorder is None or self.finish_reason == "cancelled":
            return 0
        return self.tokens.n_unscored

    def guess(self) -> Generator[list[Chunk], None, Sequence[int]]:
        """Return tokens that probably follow; none if the call does not speculate.

        Yields before each pass of a draft model.
        """
        if self._speculation is None:
            return ()
        row, left = self.tokens.row, self.tokens.left - 1
        guessed = self._speculation.guess(row, left)
        if not guessed and self._drafter is not None:
            guessed = yield from self._drafter.guess(row, left)
        return guessed

    def note_guess(self, n_guessed: int, n_right: int) -> None:
        """Record that the model has seen a guess, and how many of its tokens were right."""
        self.tokens.n_seen += n_right
        if self._speculation is not None:
            self._speculation.note(n_guessed, n_right)

    def score_forced(self, logits: Logits) -> None:
        """Pass the scores of forced tokens to the recorder.

        Args:
            logits: float32 ``[n, vocab]``, for the first ``n`` of the `n_wanted` tokens.
        """
        self.tokens.n_unscored -= len(logits)
        assert self._recorder is not None
        self._recorder.forced_logits(logits)

    @property
    def allowed(self) -> Allowed | None:
        """The mask of the next token, if the model may choose the most likely one; else None."""
        return self._chooser.allowed

    def take(self, token: int) -> bool:
        """Take the model's choice from `allowed`; if False, call `choose` with its scores
        instead."""
        if not self._chooser.take(token):
            return False
        self.tokens.n_unscored = 0
        return True

    def choose(self, logits: Logits) -> None:
        """Choose the next token; may end the output.

        Args:
            logits: float32 ``[1, vocab]``, the model's scores after all tokens so far. Changed in
                place.

        Raises:
            OptionError: the user's processor returned invalid scores.
        """
        progress = self.progress
        self.tokens.n_unscored = 0
        own = None if self._recorder is None else logits[0].copy()
        if not self._chooser.choose(logits, own):
            assert progress.trial is not None
            progress.go_back(progress.trial.dead_end(by_text=False))

    def take_chunks(self) -> list[Chunk]:
        """Return the text that has become final since the last call, as one piece if any."""
        chunks = self._reporter.take()
        if chunks:
            self._clock.note_text()
        return chunks
