"""One output being made: everything about it but the model.

It owns the order of events between two passes of the model, for one output: what edits the scores,
the choice, the cursor, the text, and why it ends. It never runs a model: whoever drives it
(`structgen.decoding.loop`) asks for the tokens to run, and hands in the scores. So one output alone
and each row of a batch are made by the same code.

    advance() ─▶ finished? ─▶ take_pending() ─▶ [the model runs over them] ─▶ choose(scores) ─▶ …
    the mask; forced tokens    tokens the model                             processors, mask,
                               has not seen                                 sampler, cursor, text
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from structgen.constraint import Constraint, Cursor
from structgen.errors import IncompleteOutput, TokenNotAllowed
from structgen.grammar import ir
from structgen.insight import (
    TOP,
    BestValues,
    Confidence,
    Passes,
    Recorder,
    Step,
    StepRecorder,
    Trace,
    headline,
    readable_prompt,
)
from structgen.models.base import Model
from structgen.sampling import Logits, LogitsProcessor, Sampler, TokenIds, TokenLogprob, TokenMask
from structgen.values import Judging

from . import options
from .barred import Barred
from .call_validation import (
    budget,
    check_abstains,
    check_adapter,
    check_best,
    opener,
    opening,
    processors,
)
from .checks import Trial
from .options import SearchOptions
from .results import GenerationResult, Parsed, Timings, Usage
from .run import Chunk
from .shortened import Shortened
from .spelling import Speller
from .text_assembler import FinishReason, TextAssembler

_WHOLE = ("stop", "budget")
"""Why an output ends that is whole."""


@final
class Generation:
    """One output: from a checked prompt to a `GenerationResult`. Used by one thread.

    Attributes:
        prompt_ids: int32 ``[n]``, the prompt.
        max_tokens: most tokens to generate, the end of the sequence included.
        finish_reason: why it ended, None while it goes on.
        reused_tokens: prompt tokens that need not be run, for the driver to set.
        recorders: told of each token.
        adapter: name of the adapter that the model runs with, or None.
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
        recorders: Sequence[Recorder] = (),
        checks: Judging | None = None,
    ) -> None:
        """Check a call against the model.

        Args:
            model: the model that will be asked.
            constraint: the compiled output type, or None.
            processor: the user's processor, or None.
            prompt_ids: of `encode`.
            search: of `structgen.decoding.options.parse`.
            index: which output of a call for several this is.
            position: how many tokens of the output stand in the prompt already: those of sections
                before this one. A seed gives each token of an output a random number of its own.
            recorders: told of each token.
            checks: of the output type, made while it is written if ``retries`` says so.

        Raises:
            PromptError: the prompt is longer than the context.
            OptionError: an option does not fit the model or the prompt.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
        """
        vocabulary = model.vocabulary
        self.prompt_ids = prompt_ids
        self.max_tokens = budget(model, len(prompt_ids), search)
        self.finish_reason: FinishReason | None = None
        self.reused_tokens = 0
        self._record: StepRecorder | None = None
        if search.logprobs or search.trace:
            n_top = max(search.top_logprobs, TOP if search.trace else 0)
            self._record = StepRecorder(constraint, vocabulary, n_top)
            recorders = [*recorders, self._record]
        check_adapter(model, search.adapter)
        self.adapter = search.adapter
        self._search = search
        self.recorders = tuple(recorders)
        self._model = model
        self._constraint = constraint
        check_abstains(constraint, search)
        check_best(constraint, search)
        self._eos_token_ids = vocabulary.eos_token_ids
        self._cursor: Cursor | None = None
        self._mask: TokenMask | None = None
        self._trial: Trial | None = None
        self._best: BestValues | None = None
        self._ends_after = False  # the output has ended, but for a value to be weighed
        self._shortened = Shortened(constraint)
        if constraint is not None:
            self._cursor = constraint.start(max_tokens=self.max_tokens)
            self._mask = TokenMask(self._cursor, vocabulary.size, len(vocabulary.eos_token_ids))
            self._best = BestValues(constraint) if search.best else None
        settings = options.resolve(search, model.search_defaults)
        if constraint is not None and checks is not None and search.retries:
            self._trial = _trial(checks, constraint, settings, search.retries)
        self._processors = processors(model, search, settings, processor, self._mask)
        self._sampler = Sampler(settings, index=index, n_prompt=len(prompt_ids) - position)
        self._position = position
        # Then what the model likes best is taken if the mask allows it, which is left unapplied.
        self._may_take_favourite = (
            self._processors == [self._mask]
            and self._sampler.takes_likeliest
            and not self.recorders
            and self._trial is None
            and self._best is None
        )
        self._n_masked = 0  # tokens chosen under a mask, and how many these allowed in all
        self._allowed_total = 0
        texts = vocabulary.tokens if constraint is None else constraint.named.texts
        self._token_texts = texts
        self._text = TextAssembler(texts, search.stop)
        self._n_told = 0  # tokens whose text has been taken down, where some may be taken back
        self._ends: deque[int] = deque()  # where texts end of tokens whose scores are to be told
        self._n_scores_told = 0
        self._are_forced: list[bool] = []  # of each token, where some may be taken back
        self._chunks: list[str] = []
        self._ids = np.empty((1, len(prompt_ids) + self.max_tokens), np.int32)
        self._ids[0, : len(prompt_ids)] = prompt_ids
        self._length = len(prompt_ids)
        self._seen = 0  # tokens the model has seen
        self._n_forced = 0
        self._n_unscored = 0  # forced tokens at the end, which the model has not seen
        self._forces = search.forced
        self._speller = Speller(vocabulary, model.encode)
        self._timeout = search.timeout
        self._deadline: float | None = None
        self._cancel_event = search.cancel
        self._is_cancelled = False
        self._timed_out = False
        self._started = time.perf_counter()
        self._first_chunk: float | None = None
        self._ended: float | None = None

    @property
    def token_ids(self) -> TokenIds:
        """Prompt and output so far, int32 ``[1, n]``, read-only."""
        view = self._ids[:, : self._length]
        view.flags.writeable = False
        return view

    @property
    def result(self) -> GenerationResult[Any]:
        """What has been generated so far; ``finish_reason`` is None while it goes on."""
        finish_reason = self.finish_reason
        if finish_reason is None and (self._ended is not None or self._is_cancelled):
            finish_reason = "cancelled"
        output_ids = tuple(self._ids[0, len(self.prompt_ids) : self._length].tolist())
        first = None if self._first_chunk is None else self._first_chunk - self._started
        ended = time.perf_counter() if self._ended is None else self._ended
        text = self._text.text
        attempts = () if self._trial is None else self._trial.attempts
        return GenerationResult(
            text=text,
            token_ids=output_ids,
            finish_reason=finish_reason,
            usage=Usage(
                prompt_tokens=len(self.prompt_ids),
                output_tokens=len(output_ids),
                reused_tokens=self.reused_tokens,
                forced_tokens=self._n_forced,
                retries=min(len(attempts), self._search.retries),
                retried_tokens=0 if self._trial is None else self._trial.n_retried,
            ),
            attempts=attempts,
            timings=Timings(first, ended - self._started),
            mean_allowed_tokens=self._allowed_total / self._n_masked if self._n_masked else None,
            confidence=Confidence(
                self._constraint,
                output_ids,
                opener(self._model, self.prompt_ids, self.adapter),
                is_whole=finish_reason in _WHOLE,
            ),
            abstain_below=self._search.abstain_below,
            shortened=self._shortened.paths,
            _parsed=self._parsed(text, finish_reason),
            _logprobs=self._logprobs(),
            _trace=self._trace(),
        )

    def sure_result(self) -> GenerationResult[Any]:
        """The result of an output that has ended, unless the model is not sure enough of it.

        Raises:
            Abstained: so it is, or the call is over before that is known.
        """
        result = self.result
        result.check_sure(lambda: self.is_interrupted)
        return result

    def _parsed(self, text: str, finish_reason: FinishReason | None) -> Parsed[Any] | None:
        """What gives the value; None while there is none, and where the text was cut.

        Free text is its own value wherever it ends.
        """
        if finish_reason is None:
            return None
        if self._constraint is None:
            return Parsed(str, text)
        if self._trial is not None and self._trial.values:
            (value,) = self._trial.values
            return Parsed(lambda text: value, text)
        if finish_reason not in _WHOLE and not self._constraint.allows(text):
            return None
        return Parsed(self._constraint.output.parse, text)

    def _logprobs(self) -> tuple[TokenLogprob, ...] | None:
        if self._record is None or not self._search.logprobs:
            return None
        return self._listed(self._record.logprobs)

    def _listed(self, found: Sequence[TokenLogprob]) -> tuple[TokenLogprob, ...]:
        """With as many of the likeliest tokens as were asked for, where a trace has more."""
        n_top = self._search.top_logprobs
        return tuple(
            replace(scores, top=scores.top[:n_top], unmasked_top=scores.unmasked_top[:n_top])
            for scores in found
        )

    def _trace(self) -> Trace | None:
        if self._record is None or not self._search.trace:
            return None
        return Trace(
            self._record.steps,
            self._constraint,
            title=headline(
                None if self._constraint is None else self._constraint.output.name,
                self._model.name,
            ),
            prompt=readable_prompt(self.prompt_ids.tolist(), self._model.vocabulary),
            n_tokens=self._model.vocabulary.size,
            max_tokens=self.max_tokens,
        )

    @property
    def _output_ids(self) -> TokenIds:
        output_ids: TokenIds = self._ids[0, len(self.prompt_ids) : self._length]
        return output_ids

    # -- the driver's side ------------------------------------------------------------------

    def start(self, reused_tokens: int = 0) -> None:
        """Say that the model is about to run: times count from here.

        Args:
            reused_tokens: how many of the prompt's first tokens the model has seen already.
        """
        self._started = time.perf_counter()
        self.count_time_from(self._started)
        self.reused_tokens = self._seen = reused_tokens

    def count_time_from(self, began: float) -> None:
        """Say when the call began, by `time.perf_counter`: ``timeout`` counts from the first time.

        For a call that makes several outputs, whose one deadline holds for those that come last.
        """
        if self._timeout is not None and self._deadline is None:
            self._deadline = began + self._timeout

    def resume(self, n_seen: int) -> None:
        """Say that the model has seen so many of the tokens, whatever it had before."""
        self._seen = n_seen

    def advance(self) -> None:
        """Go on as far as possible without the model; may end the output."""
        if self.finish_reason is not None:
            return
        if self.is_interrupted:
            self._finish("cancelled")
        elif self.is_weighing or (self.is_waiting and not self._resumes()):
            return
        elif self._length - len(self.prompt_ids) >= self.max_tokens:
            self._finish("length")
        elif self._mask is not None:
            self._advance(self._mask)

    def cancel(self) -> None:
        """Ask that the output end where it is. From any thread."""
        self._is_cancelled = True

    @property
    def is_weighing(self) -> bool:
        """Whether a value has closed whose alternatives are to be weighed by `weigh`."""
        return self._best is not None and self._best.is_waiting and self.finish_reason is None

    def weigh(self) -> Passes[None]:
        """Weigh them, on a sequence of their own, and write the likeliest instead; may end it."""
        assert self._best is not None
        output_ids = self._output_ids.tolist()
        change = yield from self._best.weigh(
            output_ids, partial(opening, self._model, self.prompt_ids, self.adapter)
        )
        is_end, self._ends_after = self._ends_after, False
        if change is not None:
            n_before, path = change
            written, were_forced = output_ids[n_before:], self._are_forced[n_before:]
            noted = self._shortened.noted
            self._take_back(n_before)
            if self._write(path):
                return
            place = self._best.keep_written()
            self._take_back(n_before)
            self._write(written, were_forced)
            # What is likeliest is of the type: it was the budget that had no room for it.
            self._shortened.noted = noted
            self._shortened.note_path(place, n_before)
        if self.finish_reason is None and not self.is_weighing:
            if is_end:
                self._finish("stop")
            else:
                self._tell_up_to(self._best.n_settled)

    def _take_back(self, n_tokens: int) -> None:
        assert self._best is not None
        self._go_back(n_tokens)
        self._shortened.forget(n_tokens)
        self._best.go_back(n_tokens)

    def _write(self, token_ids: Sequence[int], are_forced: Sequence[bool] | None = None) -> bool:
        """Write tokens that were chosen as a whole; whether all of them fit."""
        assert self._cursor is not None
        for i, token in enumerate(token_ids):
            if are_forced is None and not self._fits(token):
                return False
            if not self._moves(token):
                return False
            for recorder in self.recorders:
                recorder.record(Step(token, True, None, None, 1))
            self._n_unscored += 1
            self._are_forced.append(are_forced is not None and are_forced[i])
            self._n_forced += self._are_forced[-1]
            self._add(token)
        return True

    def _fits(self, token: int) -> bool:
        """Whether the mask allows a token, which a budget may bar."""
        assert self._cursor is not None
        words = np.zeros((self._model.vocabulary.size + 31) // 32, np.uint32)
        self._cursor.fill_mask(words)
        return bool(words[token >> 5] >> np.uint32(token & 31) & 1)

    @property
    def is_interrupted(self) -> bool:
        """Whether the output is to end where it is: cancelled, or out of time."""
        return (
            self._is_cancelled
            or (self._cancel_event is not None and self._cancel_event.is_set())
            or self._is_late
        )

    @property
    def _is_late(self) -> bool:
        return self._deadline is not None and time.perf_counter() > self._deadline

    @property
    def n_wanted(self) -> int:
        """Forced tokens at the end that a recorder wants scored; the model must run for it."""
        wanted = any(recorder.wants_forced_logits for recorder in self.recorders)
        return self._n_unscored if wanted and self.finish_reason != "cancelled" else 0

    @property
    def n_seen(self) -> int:
        """How many of the tokens the model has seen; what it has seen beside, it is to forget."""
        return self._seen

    @property
    def n_pending(self) -> int:
        """How many tokens `take_pending` would return."""
        return self._length - self._seen

    def take_pending(self) -> TokenIds:
        """Return the tokens the model has not seen, int32 ``[n]``, and count them as seen.

        After `advance`, and if that did not end the output, there is at least one, unless the
        model has seen the whole prompt in an earlier call.
        """
        pending = self._ids[0, self._seen : self._length]
        self._seen = self._length
        return pending

    def score_forced(self, logits: Logits) -> None:
        """Hand recorders the scores of forced tokens.

        Args:
            logits: float32 ``[n, vocab]``, of the first ``n`` of the `n_wanted` tokens.
        """
        self._n_unscored -= len(logits)
        for recorder in self.recorders:
            if recorder.wants_forced_logits:
                recorder.forced_logits(logits)

    def choose(self, logits: Logits) -> None:
        """Choose the next token; may end the output.

        Args:
            logits: float32 ``[1, vocab]``, the model's scores after all tokens so far. Changed.

        Raises:
            OptionError: the user's processor returned something else than scores.
        """
        self._n_unscored = 0
        own = logits[0].copy() if self.recorders else None
        n_allowed: int | None = None
        token: int | None = None
        wanted: int | None = None  # what it would have been without the budget
        scores: Logits | None = None
        forced = b""
        if self._mask is not None:
            n_allowed = self._mask.allowed
            self._n_masked += 1
            self._allowed_total += n_allowed
            if self._may_take_favourite:
                token = wanted = self._mask.favourite(logits[0])
            if self._mask.is_shortening and wanted is None:
                scores, forced = logits.copy(), self._forced_bytes()
        if token is None or not self._moves(token):
            for processor in self._processors:
                logits = processor(self.token_ids, logits)
            token = self._sample(self._weighed(logits[0], is_first=True))
            if wanted is None:
                wanted = token if scores is None else self._wanted(scores)
            while not self._moves(token):
                logits[0, token] = -np.inf
                if self._trial is not None and logits[0].max() == -np.inf:
                    self._go_back(self._trial.dead_end(by_text=False))
                    return
                token = self._sample(self._weighed(logits[0]))
        if wanted is not None and wanted != token:
            self._shortened.note(self._output_ids, wanted, token, forced)
        for recorder in self.recorders:
            recorder.record(Step(token, False, own, logits[0], n_allowed))
        if self._trial is not None:
            self._trial.barred.go_on(token, float(logits[0, token]))
        self._are_forced.append(False)
        self._add(token)

    def _weighed(self, scores: Logits, *, is_first: bool = False) -> Logits:
        if self._trial is None:
            return scores
        if is_first:
            self._trial.barred.look_at(scores)
        return self._trial.barred.weighed(scores)

    def _sample(self, scores: Logits) -> int:
        position = self._position + self._length - len(self.prompt_ids)
        if self._trial is not None:  # other random numbers for each attempt
            position += len(self._trial.attempts) << 32
        return self._sampler(self._ids[0, : self._length], scores, position)

    def _forced_bytes(self) -> bytes:
        return b"" if self._cursor is None else self._cursor.forced_bytes()

    def _wanted(self, scores: Logits) -> int:
        """The token that these scores come to without the budget, with the same random number."""
        assert self._mask is not None
        self._mask.lift_budget()
        for processor in self._processors:
            scores = processor(self.token_ids, scores)
        return self._sample(self._weighed(scores[0]))

    def _moves(self, token: int) -> bool:
        """Move the cursor over a token, if there is one and it goes along.

        Masks say which tokens it takes. Close to the end of a budget, and only where what follows
        depends on the text so far, it may refuse what they allow: of such a token more bytes may be
        owed than were counted on. Very rare.
        """
        if self._cursor is not None:
            try:
                self._cursor.accept(token)
            except TokenNotAllowed:
                return False
        return True

    def take_chunks(self) -> list[Chunk]:
        """Return the text that has become certain since the last call, in one piece if any."""
        chunk = "".join(self._chunks)
        self._chunks.clear()
        if not chunk:
            return []
        if self._first_chunk is None:
            self._first_chunk = time.perf_counter()
        record = self._record
        if record is None:
            return [Chunk(chunk)]
        steps = record.take_news() if self._search.trace else ()
        return [Chunk(chunk, steps=steps, logprobs=self._take_logprobs(record))]

    def _take_logprobs(self, record: StepRecorder) -> tuple[TokenLogprob, ...]:
        """Those of the tokens whose text has been given out since the last call."""
        first, n_given = self._n_scores_told, self._text.n_given
        while self._ends and self._ends[0] <= n_given:
            self._ends.popleft()
            self._n_scores_told += 1
        told = record.logprobs_of(first, self._n_scores_told)
        return self._listed(told)

    def stop(self) -> None:
        """End the output here, ``cancelled`` unless it has ended."""
        if self._ended is None:
            self._ended = time.perf_counter()

    def check_whole(self) -> None:
        """Raise when an output type was asked for and its text was cut.

        Raises:
            IncompleteOutput: so it was; it carries the text.
        """
        if self._constraint is None or self.finish_reason in _WHOLE:
            return
        text = self._text.text
        if self._constraint.allows(text):
            return
        raise IncompleteOutput(
            f"The output was cut before it was a whole {self._constraint.output.name}: "
            f"{self.why_cut()}",
            text=text,
        )

    def why_cut(self) -> str:
        """Why an output that has ended is not whole, and what to do about it."""
        if self._text.stopped_by is not None:
            return (
                f"stop string {self._text.stopped_by!r} came up. Leave it out, or put the limit "
                "into the output type."
            )
        if self.finish_reason == "length":
            return f"it reached {self.max_tokens:,} tokens."
        if self._timed_out:
            return (
                f"timeout={self._timeout:g} seconds were over. Allow more, or bound the output: "
                "max_new_tokens= makes it complete within so many tokens."
            )
        return "it was cancelled."

    # -- inside -----------------------------------------------------------------------------

    def _advance(self, mask: TokenMask) -> None:
        """Take forced tokens until there is a choice, and write its mask."""
        assert self._cursor is not None
        while not self.is_weighing:
            if self.is_waiting:
                if not self._resumes():
                    return
                continue
            barred = self._excluded()
            tokens, needless = self._cursor.forced(self._spell)
            if tokens and tokens[0] in barred:
                self._leave(by_text=True)
                continue
            if tokens and not self._forces:
                mask.begin(instead=tokens[0])
                return
            if not self._force_all(tokens):
                continue
            if self.finish_reason is not None:
                return
            if tokens and self._trial is not None:
                barred = self._excluded()
            is_end = mask.begin(needless, barred=barred)
            if barred and self._trial is not None and not mask.allows_beside(self._trial.idle()):
                self._leave(by_text=not mask.is_shortening)
                continue
            if mask.is_shortening and not self._shortened.is_known_at(self._output_ids):
                return  # the model is asked what it would have chosen
            if is_end:
                if self._trial is not None:
                    self._trial.barred.go_on(self._eos_token_ids[0])
                if self._end():
                    return
                continue
            only = mask.only() if self._forces else None
            if only is None:
                return
            if self._force_all([only]) and self.finish_reason is not None:
                return

    def _force_all(self, tokens: Sequence[int]) -> bool:
        """Take tokens that are the only way on; False if the output did not come to their end."""
        for index, token in enumerate(tokens):
            if index and self._trial is not None and token in self._trial.excluded():
                self._leave(by_text=True)
                return False
            if not self._force(token) or self.is_weighing:
                return False
            if self.finish_reason is not None:
                return True
        return True

    def _leave(self, *, by_text: bool) -> None:
        """Go back from where all is barred that the mask allows."""
        assert self._trial is not None
        assert self._cursor is not None
        if not by_text:
            self._shortened.note_open(self._output_ids)
        place = self._cursor.place
        self._go_back(self._trial.dead_end(by_text=by_text, left=self._left, place=place))

    @property
    def _left(self) -> int:
        """How many tokens are left of the budget."""
        return self.max_tokens - (self._length - len(self.prompt_ids))

    def _excluded(self) -> Collection[int]:
        """The tokens that checks bar here."""
        return () if self._trial is None else self._trial.excluded(self._left, self._place_after)

    def _place_after(self, token: int) -> Hashable | None:
        assert self._cursor is not None
        try:
            self._cursor.accept(token)
        except TokenNotAllowed:
            return None
        place = self._cursor.place
        self._cursor.rollback(1)
        return place

    def _go_back(self, n_tokens: int) -> None:
        """Take back all tokens after the first ``n_tokens``, and the end."""
        assert self._cursor is not None
        n_steps = self._length - len(self.prompt_ids) - n_tokens
        self._cursor.rollback(n_steps + self._cursor.is_finished)
        self._length -= n_steps
        self._seen = min(self._seen, self._length)
        self._n_unscored = max(self._n_unscored - n_steps, 0)
        self._n_forced -= sum(self._are_forced[n_tokens:])
        del self._are_forced[n_tokens:]
        self._shortened.go_back(n_tokens)
        for recorder in self.recorders:
            recorder.keep(n_tokens)

    def _spell(self, data: bytes) -> list[int]:
        return self._speller(self._ids[0, : self._length], data)

    def _force(self, token: int) -> bool:
        """Take a token that is the only way on; False if the output went back."""
        assert self._cursor is not None
        self._cursor.accept(token)
        for recorder in self.recorders:
            recorder.record(Step(token, True, None, None, 1))
        if self._trial is not None:
            self._trial.barred.go_on(token)
        self._are_forced.append(True)
        self._n_forced += 1
        self._n_unscored += 1
        return self._add(token)

    def _resumes(self) -> bool:
        """Go on where checks had to be waited for; whether there is anything to do after that."""
        trial = self._trial
        if trial is None or not trial.may_resume:
            return False
        is_end, back = trial.resume()
        if back is not None:
            self._go_back(back)
        elif is_end:
            self._finish("stop")
            return False
        self._tell_up_to(trial.n_settled)
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether `advance` comes next, because checks that are made elsewhere are waited for."""
        return self._trial is not None and self.finish_reason is None and self._trial.is_waiting

    @property
    def is_blocked(self) -> bool:
        """Whether that would do nothing, because they have not answered yet."""
        trial = self._trial
        return (
            trial is not None
            and self.is_waiting
            and not trial.may_resume
            and not self.is_interrupted
        )

    def _add(self, token: int) -> bool:
        """Add a token to the text; the end of the sequence ends the output.

        Returns:
            Whether it stays: False where a check has refused what it ends, and the output went
            back; or where that has to be waited for.
        """
        if token in self._eos_token_ids:
            return self._end()
        self._ids[0, self._length] = token
        self._length += 1
        if self._best is not None:
            self._best.read(self._token_texts[token])
            self._tell_up_to(self._best.n_settled)
        elif self._trial is None:
            self._tell(token)
        else:
            back = self._trial.read(self._token_texts[token])
            if back is not None:
                self._go_back(back)
                return False
            if self._trial.is_waiting:
                return False
            self._tell_up_to(self._trial.n_settled)
        if self._text.stopped_by is not None:
            self._finish("stop_string")
        return True

    def _tell(self, token: int) -> None:
        """Take down the text of a token that stays."""
        chunk = self._text.feed(token)
        if chunk:
            self._chunks.append(chunk)
        if self._search.logprobs:
            self._ends.append(self._text.n_begun)

    def _tell_up_to(self, n_tokens: int) -> None:
        """Take down the text of the first tokens, which stay."""
        for token in self._output_ids[self._n_told : n_tokens].tolist():
            self._tell(token)
        self._n_told = n_tokens

    def _end(self) -> bool:
        """End the output by itself; False if a check refuses it, and it went back, or it waits."""
        if self._best is not None:
            self._best.end()
            if self._best.is_waiting:
                self._ends_after = True
                return False
        if self._trial is not None:
            back = self._trial.end()
            if back is not None:
                self._go_back(back)
                return False
            if self._trial.is_waiting:
                return False
        self._finish("stop")
        return True

    def _finish(self, reason: FinishReason) -> None:
        if reason == "stop" and self._shortened.noted:
            reason = "budget"
        self.finish_reason = reason
        self._timed_out = reason == "cancelled" and self._is_late
        if self._mask is not None:
            self._mask.release()
        self._ended = time.perf_counter()
        if reason != "stop_string":
            if self._trial is not None or self._best is not None:
                self._tell_up_to(len(self._output_ids))
            self._chunks.append(self._text.finish())


def _trial(
    checks: Judging, constraint: Constraint, settings: Mapping[str, Any], retries: int
) -> Trial:
    texts, samples = constraint.named.texts, settings.get("do_sample")
    temperature = float(settings.get("temperature", 1.0)) if samples else 1.0
    is_json = isinstance(constraint.output.grammar, ir.Json)
    barred = Barred(constraint.vocabulary, texts, temperature, is_json=is_json)
    return Trial(checks, barred, retries)
