"""The state of an output: what happens when a token is taken, taken back, or ends it.

`Progress` moves tokens, cursor, text, checks and recorder forwards and backwards together, and
knows why an output ends. Its parts do not know each other:

- `OutputTokens`: one array for prompt and output; which tokens the model has seen, which were
  forced.
- `TextAssembler`: turns token bytes into final text.
- `Reporter`: the final text for readers, with its steps and scores.
- `Clock`: when the output began, yielded its first text and ended; ``timeout`` and ``cancel``.

`choosing` picks the tokens. Runs no model.

    take ─▶ text reported, or held until checks settle it ─▶ the end
      ▲                          │ refused
      └──────── go_back ◀────────┘

`Shortened` lists the values that a token budget changed. It compares each token with the one chosen
from the same scores, options and random number under the mask of the type alone. Different tokens
for the same forced text count as the same choice.
"""

from __future__ import annotations

import codecs
import copy
import time
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from structgen.constraint import Constraint, Cursor
from structgen.errors import ModelError, TokenNotAllowed
from structgen.insight import (
    TOP,
    BestValues,
    JsonReader,
    OpenPasses,
    StepRecorder,
    Trace,
    headline,
    is_json,
    readable_prompt,
)
from structgen.models.base import Model, Passes, is_due
from structgen.options import CancelEvent
from structgen.sampling import Logits, TokenIds, TokenLogprob, TokenMask
from structgen.vocabulary import Vocabulary

from .checks import Trial
from .options import SearchOptions
from .results import Chunk, FinishReason, Timings

_COMMA = 0x2C

_LONGEST_TEXT, _BYTES_A_TOKEN = 4 << 20, 16
"""The most bytes of an output, plus more for each token. A token of an untrusted folder may have
60,000 bytes; those of published models have five on average and at most 128."""


@final
class Shortened:
    """The places at which the budget of one output prevented the model's own choice.

    Attributes:
        noted: JSON paths, each once, in order of occurrence; ``$`` for text that is not JSON; each
            with the number of tokens before it.
    """

    def __init__(self, constraint: Constraint | None) -> None:
        """Start without places.

        Args:
            constraint: the output type; None: free text, in which a budget changes no choice.
        """
        self.noted: tuple[tuple[int, str], ...] = ()
        self._constraint = constraint
        self._places: JsonReader | None = None  # made on first use
        self._n_read = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of `noted`."""
        return tuple(path for _, path in self.noted)

    def note(self, output_ids: TokenIds, wanted: int, chosen: int, forced: bytes) -> None:
        """Record a token that the budget barred.

        Args:
            output_ids: the output before it.
            wanted: the token that would have been chosen without the budget.
            chosen: the token that was chosen.
            forced: the bytes that are forced here in any case.
        """
        assert self._constraint is not None
        texts = self._constraint.named.texts
        barred, written = texts[wanted], texts[chosen]
        if {wanted, chosen} <= {*self._constraint.vocabulary.eos_token_ids}:
            return  # the end, with another id
        if barred and written and forced.startswith(barred) and forced.startswith(written):
            return  # the same text in other tokens
        path = "$"
        if is_json(self._constraint):
            # Their common prefix was written: it may end the open value.
            same = 0
            while same < min(len(barred), len(written)) and barred[same] == written[same]:
                same += 1
            places = copy.deepcopy(self._read(output_ids))
            places.feed(barred[:same])
            path = places.path_of(barred[same]) if same < len(barred) else places.path
        self.note_path(path, len(output_ids))

    def note_path(self, path: str, n_tokens: int) -> None:
        """Record a place that begins after that many tokens."""
        if path not in self.paths:
            self.noted += ((n_tokens, path),)

    def note_open(self, output_ids: TokenIds) -> None:
        """Record that after ``output_ids`` the budget allows nothing, although the type does."""
        assert self._constraint is not None
        path = self._read(output_ids).path if is_json(self._constraint) else "$"
        self.note_path(path, len(output_ids))

    def forget(self, n_tokens: int) -> None:
        """Drop places after that many tokens, because the budget did not cause what follows."""
        self.noted = tuple(one for one in self.noted if one[0] < n_tokens)

    def go_back(self, n_tokens: int) -> None:
        """Go back to that many tokens of the output.

        Later places stay: without the budget, the output might not have gone back.
        """
        if self._n_read > n_tokens:
            self._places, self._n_read = None, 0

    def is_known_at(self, output_ids: TokenIds) -> bool:
        """Return whether everything that the budget bars after ``output_ids`` is at listed places.

        Then the model's own choice is not needed.
        """
        if not self.noted:
            return False
        assert self._constraint is not None
        if not is_json(self._constraint):
            return True
        places = self._read(output_ids)
        return {places.path, places.path_of(_COMMA)} <= {*self.paths}

    def _read(self, output_ids: TokenIds) -> JsonReader:
        assert self._constraint is not None
        texts = self._constraint.named.texts
        if self._places is None:
            self._places = JsonReader()
        for token_id in output_ids[self._n_read :].tolist():
            self._places.feed(texts[token_id])
        self._n_read = len(output_ids)
        return self._places


@final
class Clock:
    """The times of one output. Any thread may cancel it."""

    def __init__(self, timeout: float | None = None, cancelled: CancelEvent | None = None) -> None:
        """Start the clock.

        Args:
            timeout: the most seconds from `count_from`; None: no limit.
            cancelled: an event that ends the output.
        """
        self._timeout = timeout
        self._cancelled = cancelled
        self._deadline: float | None = None
        self._started = time.perf_counter()
        self._first_chunk: float | None = None
        self._ended: float | None = None
        self.is_cancelled = False

    def start(self) -> float:
        """Count times from now, because the model is about to run; return this time."""
        self._started = time.perf_counter()
        return self._started

    def count_from(self, began: float) -> None:
        """Set the start of the call, by `time.perf_counter`; only the first call counts."""
        if self._timeout is not None and self._deadline is None:
            self._deadline = began + self._timeout

    def note_text(self) -> None:
        """Record that text was yielded."""
        if self._first_chunk is None:
            self._first_chunk = time.perf_counter()

    def cancel(self) -> None:
        """Request that the output end where it is."""
        self.is_cancelled = True

    def end(self) -> None:
        """Stop the clock; only the first call counts."""
        if self._ended is None:
            self._ended = time.perf_counter()

    @property
    def has_ended(self) -> bool:
        """Whether the output has ended."""
        return self._ended is not None

    @property
    def is_late(self) -> bool:
        """Whether it has timed out."""
        return self._deadline is not None and time.perf_counter() > self._deadline

    @property
    def is_interrupted(self) -> bool:
        """Whether it must end where it is: cancelled, or timed out."""
        if self.is_cancelled or (self._cancelled is not None and self._cancelled.is_set()):
            return True
        return self.is_late

    @property
    def interruption(self) -> str:
        """Why it must end, for a message."""
        if self.is_late:
            return f"it timed out (timeout={self._timeout:g} seconds)"
        return "it was cancelled"

    @property
    def timings(self) -> Timings:
        """The times to the first text and to the end, or until now."""
        first = None if self._first_chunk is None else self._first_chunk - self._started
        ended = time.perf_counter() if self._ended is None else self._ended
        return Timings(first, ended - self._started)


@final
class OutputTokens:
    """The tokens of one output so far.

    Attributes:
        length: the number of tokens, the prompt's included.
        left: the number of tokens that may follow.
        n_seen: how many tokens the model has seen.
        n_forced: how many output tokens were forced.
        n_unscored: how many tokens at the end were forced and not seen by the model.
        are_forced: for each token of the output, its end included, whether it was forced.
    """

    def __init__(self, prompt_ids: TokenIds, max_tokens: int) -> None:
        """Start with a prompt, int32 ``[n]``, and room for ``max_tokens``."""
        self._n_prompt = len(prompt_ids)
        self.left = max_tokens
        self._ids = np.empty((1, self._n_prompt + max_tokens), np.int32)
        self._ids[0, : self._n_prompt] = prompt_ids
        self.length = self._n_prompt
        self.n_seen = 0
        self.n_forced = 0
        self.n_unscored = 0
        self.are_forced: list[bool] = []

    @property
    def token_ids(self) -> TokenIds:
        """Prompt and output, int32 ``[1, n]``, read-only."""
        view = self._ids[:, : self.length]
        view.flags.writeable = False
        return view

    @property
    def row(self) -> TokenIds:
        """Prompt and output, int32 ``[n]``; do not change."""
        row: TokenIds = self._ids[0, : self.length]
        return row

    @property
    def output_ids(self) -> TokenIds:
        """The output, int32 ``[n]``; do not change."""
        output_ids: TokenIds = self._ids[0, self._n_prompt : self.length]
        return output_ids

    @property
    def n_output(self) -> int:
        """The number of output tokens."""
        return self.length - self._n_prompt

    def add(self, token: int) -> None:
        """Add a token. There must be room."""
        self._ids[0, self.length] = token
        self.length += 1
        self.left -= 1

    def note_unchosen(self, *, is_forced: bool) -> None:
        """Record that the next token needs no pass of the model."""
        self.are_forced.append(is_forced)
        self.n_forced += is_forced
        self.n_unscored += 1

    def take_pending(self) -> TokenIds:
        """Return the tokens that the model has not seen, int32 ``[n]``, and count them as seen.

        After `Generation.advance`, unless that ended the output, there is at least one, except if
        the model has seen the whole prompt in an earlier call.
        """
        pending = self._ids[0, self.n_seen : self.length]
        self.n_seen = self.length
        return pending

    def cut(self, n_output: int) -> int:
        """Remove all tokens of the output after the first ones; return how many were removed."""
        n_steps = self.length - self._n_prompt - n_output
        self.length -= n_steps
        self.left += n_steps
        self.n_seen = min(self.n_seen, self.length)
        self.n_unscored = max(self.n_unscored - n_steps, 0)
        self.n_forced -= sum(self.are_forced[n_output:])
        del self.are_forced[n_output:]
        return n_steps


class TextAssembler:
    """Converts token ids to text in final chunks.

    Holds back bytes of an unfinished UTF-8 character, and text that could be the start of a stop
    string. Invalid UTF-8, which only free text can contain, becomes U+FFFD.

    Attributes:
        text: all final text so far.
        n_given: its number of characters.
        stopped_by: the stop string that ended the text, or None.
    """

    def __init__(self, tokens: Sequence[bytes], stop: Sequence[str] = ()) -> None:
        self._tokens = tokens
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._chunks: list[str] = []
        self.n_given = 0
        self.stopped_by: str | None = None

    @property
    def text(self) -> str:
        """All final text so far."""
        return "".join(self._chunks)

    @property
    def n_begun(self) -> int:
        """The number of characters, including held and unfinished ones."""
        return self.n_given + len(self._held) + bool(self._decoder.getstate()[0])

    def feed(self, token_id: int) -> str:
        """Add a token; return the text that is now final, perhaps none.

        When a stop string is complete, returns the text before it and sets ``stopped_by``.
        """
        self._held += self._decoder.decode(self._tokens[token_id])
        if not self._stop:
            return self._give(len(self._held))
        found = [(at, s) for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            chunk = self._give(at)
            self._held = ""
            return chunk
        return self._give(len(self._held) - self._unsure())

    def finish(self) -> str:
        """End the tokens; return the held text. Drops the bytes of an unfinished character."""
        return self._give(len(self._held))

    def _give(self, length: int) -> str:
        chunk, self._held = self._held[:length], self._held[length:]
        if chunk:
            self._chunks.append(chunk)
            self.n_given += length
        return chunk

    def _unsure(self) -> int:
        """Return the length of the longest end of the held text with which a stop string begins."""
        longest = min(len(self._held), max(map(len, self._stop)) - 1)
        for length in range(longest, 0, -1):
            end = self._held[-length:]
            if any(s.startswith(end) for s in self._stop):
                return length
        return 0


@final
class Reporter:
    """The final text of one output, with the steps and scores that the call requested.

    Attributes:
        recorder: receives each token; None: only the text is needed.
    """

    def __init__(self, model: Model, constraint: Constraint | None, search: SearchOptions) -> None:
        """Begin with none."""
        self._model = model
        self._constraint = constraint
        self._search = search
        texts = model.vocabulary.tokens if constraint is None else constraint.named.texts
        self._text = TextAssembler(texts, search.stop)
        self._chunks: list[str] = []
        self._n_reported = 0  # number of tokens whose text `report_up_to` has reported
        # The ends of texts of tokens whose scores must be reported.
        self._ends: deque[int] = deque()
        self._n_scored = 0
        self.recorder: StepRecorder | None = None
        if search.logprobs or search.trace:
            n_top = max(search.top_logprobs, TOP if search.trace else 0)
            self.recorder = StepRecorder(constraint, model.vocabulary, n_top)

    @property
    def text(self) -> str:
        """All final text."""
        return self._text.text

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended it, or None."""
        return self._text.stopped_by

    def report(self, token: int) -> None:
        """Report the text of a final token."""
        chunk = self._text.feed(token)
        if chunk:
            self._chunks.append(chunk)
        if self._search.logprobs:
            self._ends.append(self._text.n_begun)

    def report_up_to(self, output_ids: TokenIds, n_tokens: int) -> None:
        """Report the text of the first tokens of an output, which are final."""
        for token in output_ids[self._n_reported : n_tokens].tolist():
            self.report(token)
        self._n_reported = n_tokens

    def finish(self) -> None:
        """Process the end of the tokens."""
        self._chunks.append(self._text.finish())

    def take(self) -> list[Chunk]:
        """Return the text that has become final since the last call, as one piece if any."""
        if not self._chunks:
            return []
        chunk = "".join(self._chunks)
        self._chunks.clear()
        if not chunk:
            return []
        if self.recorder is None:
            return [Chunk(chunk)]
        first = self._n_scored
        while self._ends and self._ends[0] <= self._text.n_given:
            self._ends.popleft()
            self._n_scored += 1
        steps = self.recorder.take_news() if self._search.trace else ()
        logprobs = self._listed(self.recorder.logprobs_of(first, self._n_scored))
        return [Chunk(chunk, steps=steps, logprobs=logprobs)]

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """The log probabilities of all tokens, if requested."""
        if self.recorder is None or not self._search.logprobs:
            return None
        return self._listed(self.recorder.logprobs)

    def trace(self, prompt_ids: TokenIds, max_tokens: int) -> Trace | None:
        """Return the trace so far, if requested."""
        if self.recorder is None or not self._search.trace:
            return None
        name = None if self._constraint is None else self._constraint.output.name
        return Trace(
            self.recorder.steps,
            self._constraint,
            title=headline(name, self._model.name),
            prompt=readable_prompt(prompt_ids.tolist(), self._model.vocabulary),
            n_tokens=self._model.vocabulary.size,
            max_tokens=max_tokens,
        )

    def _listed(self, found: Sequence[TokenLogprob]) -> tuple[TokenLogprob, ...]:
        """Return the requested number of most likely tokens, if a trace has more."""
        n_top = self._search.top_logprobs
        return tuple(
            replace(scores, top=scores.top[:n_top], unmasked_top=scores.unmasked_top[:n_top])
            for scores in found
        )


@final
@dataclass(eq=False)
class Progress:
    """One output so far. Used by one thread.

    Attributes:
        vocabulary: the model's vocabulary.
        constraint: the compiled output type, or None.
        tokens: prompt and output.
        reporter: receives final text.
        clock: records the end.
        mask: the cursor's mask, released at the end.
        cursor: its place in the output type; None: free text.
        trial: the checks of its values during generation; or None.
        best: finds the most likely values, if requested.
        finish_reason: why it ended, None while it continues.
        timed_out: whether it ended because of ``timeout``.
        shortened: the places that its budget changed.
        is_plain: whether written tokens are never taken back, and never wait for checks.
    """

    vocabulary: Vocabulary
    constraint: Constraint | None
    tokens: OutputTokens
    reporter: Reporter
    clock: Clock
    mask: TokenMask | None = None
    cursor: Cursor | None = None
    trial: Trial | None = None
    best: BestValues | None = None
    finish_reason: FinishReason | None = None
    timed_out: bool = False

    def __post_init__(self) -> None:
        constraint = self.constraint
        self.shortened = Shortened(constraint)
        self.is_plain = self.trial is None and self.best is None
        self._eos_token_ids = self.vocabulary.eos_token_ids
        self._texts = self.vocabulary.tokens if constraint is None else constraint.named.texts
        # bytes beyond the allowance per token
        self._n_beyond = 0
        self._ends_after = False  # it has ended, except for a value to be weighed

    # -- places -----------------------------------------------------------------------------

    def accepts(self, token: int) -> bool:
        """Advance the cursor by a token, if there is a cursor; return whether it accepts.

        It accepts the tokens of its masks. Very rarely, near the end of a budget, and only if the
        continuation depends on the text so far, it refuses an allowed token, because finishing
        after it takes more bytes than estimated.
        """
        if self.cursor is not None:
            try:
                self.cursor.accept(token)
            except TokenNotAllowed:
                return False
        return True

    def place_after(self, token: int) -> Hashable | None:
        """Return the cursor's place after a token; None if unknown."""
        assert self.cursor is not None
        try:
            self.cursor.accept(token)
        except TokenNotAllowed:
            return None
        place = self.cursor.place
        self.cursor.rollback(1)
        return place

    def go_back(self, n_tokens: int) -> None:
        """Undo all tokens after the first ``n_tokens``, and the end."""
        assert self.cursor is not None
        self.cursor.rollback(self.tokens.cut(n_tokens) + self.cursor.is_finished)
        self.shortened.go_back(n_tokens)
        if self.reporter.recorder is not None:
            self.reporter.recorder.keep(n_tokens)

    # -- tokens -----------------------------------------------------------------------------

    def take_chosen(
        self, token: int, own: Logits | None, scores: Logits | None, n_allowed: int | None
    ) -> None:
        """Add a chosen token that the cursor has accepted; may end the output.

        Args:
            token: the token.
            own: float32 ``[vocab]``, the model's scores; None if not needed.
            scores: float32 ``[vocab]``, the scores that it was chosen by; None if not needed.
            n_allowed: the number of tokens that the mask allowed, if there is one.
        """
        if self.reporter.recorder is not None:
            self.reporter.recorder.record(token, own, scores, n_allowed)
        if self.trial is not None and scores is not None:
            self.trial.barred.follow(token, float(scores[token]))
        self.tokens.are_forced.append(False)
        self._take(token)

    def take_forced(self, token: int) -> bool:
        """Add a forced token; False if the output went back, or waits."""
        assert self.cursor is not None
        self.cursor.accept(token)
        if self.reporter.recorder is not None:
            self.reporter.recorder.record(token)
        if self.trial is not None:
            self.trial.barred.follow(token)
        self.tokens.note_unchosen(is_forced=True)
        return self._take(token)

    def _take(self, token: int) -> bool:
        """Add a token to the text; the end of the sequence ends the output.

        Returns:
            Whether it stays: False if a check refused the value that it ends, and the output went
                back; or if the output has to wait for the check.
        """
        if token in self._eos_token_ids:
            return self.end()
        self.tokens.add(token)
        self._n_beyond += len(self._texts[token]) - _BYTES_A_TOKEN
        if self._n_beyond > _LONGEST_TEXT:
            most = f"{_LONGEST_TEXT:,} bytes, plus {_BYTES_A_TOKEN} for each token"
            raise ModelError(f"An output has more than {most}: this model's tokens are too long.")
        if self.is_plain:
            self.reporter.report(token)
        elif self.best is not None:
            self.best.read(self._texts[token])
            self._report_up_to(self.best.n_settled)
        else:
            assert self.trial is not None
            back = self.trial.read(self._texts[token])
            if back is not None:
                self.go_back(back)
                return False
            if self.trial.is_waiting:
                return False
            self._report_up_to(self.trial.n_settled)
        if self.reporter.stopped_by is not None:
            self.finish("stop_string")
        return True

    def _report_up_to(self, n_tokens: int) -> None:
        self.reporter.report_up_to(self.tokens.output_ids, n_tokens)

    # -- the end ----------------------------------------------------------------------------

    def end(self) -> bool:
        """End the output by itself; False if a check refused it and it went back, or it waits."""
        if self.best is not None:
            self.best.end()
            if self.best.is_waiting:
                self._ends_after = True
                return False
        if self.trial is not None:
            back = self.trial.end()
            if back is not None:
                self.go_back(back)
                return False
            if self.trial.is_waiting:
                return False
        self.finish("stop")
        return True

    def finish(self, reason: FinishReason) -> None:
        """End the output with a reason."""
        if reason == "stop" and self.shortened.noted:
            reason = "budget"
        self.finish_reason = reason
        self.timed_out = reason == "cancelled" and self.clock.is_late
        if self.mask is not None:
            self.mask.release()
        self.clock.end()
        if reason != "stop_string":
            if not self.is_plain:
                self._report_up_to(self.tokens.n_output)
            self.reporter.finish()

    def resume(self) -> bool:
        """Process the answers of checks; return whether the output can continue."""
        trial = self.trial
        if trial is None or not self.is_waiting:
            return not self.is_weighing
        if not trial.may_resume:
            return False
        is_end, back = trial.resume()
        if back is not None:
            self.go_back(back)
        elif is_end:
            self.finish("stop")
            return False
        self._report_up_to(trial.n_settled)
        return True

    # -- checks that are made elsewhere -----------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for checks in another process, so that `resume` comes next."""
        return self.trial is not None and self.finish_reason is None and self.trial.is_waiting

    # -- values that are weighed ------------------------------------------------------------

    @property
    def is_weighing(self) -> bool:
        """Whether a value has closed whose alternatives `weigh` must compare."""
        return self.best is not None and self.best.is_waiting and self.finish_reason is None

    def weigh(self, open_sequence: OpenPasses) -> Passes[None]:
        """Compare them, on a separate sequence, and write the most likely instead; may end the
        output."""
        assert self.best is not None
        output_ids = self.tokens.output_ids.tolist()
        change = yield from self.best.weigh(output_ids, open_sequence)
        is_end, self._ends_after = self._ends_after, False
        if change is not None:
            n_before, path = change
            written, were_forced = output_ids[n_before:], self.tokens.are_forced[n_before:]
            noted = self.shortened.noted
            self._unwrite(n_before)
            if (yield from self._write(path)):
                return
            self._unwrite(n_before)
            yield from self._write(written, were_forced)
            # The most likely value is of the type: only the budget had no room for it.
            self.shortened.noted = noted
            self.shortened.note_path(self.best.path, n_before)
        if self.finish_reason is None and not self.is_weighing:
            if is_end:
                self.finish("stop")
            else:
                self._report_up_to(self.best.n_settled)

    def _unwrite(self, n_tokens: int) -> None:
        assert self.best is not None
        self.go_back(n_tokens)
        self.shortened.forget(n_tokens)
        self.best.go_back(n_tokens)

    def _write(
        self, token_ids: Sequence[int], were_forced: Sequence[bool] | None = None
    ) -> Passes[bool]:
        """Write tokens that were chosen as a whole, in slices; return whether all fit."""
        for i, token in enumerate(token_ids):
            if is_due():
                yield
            if were_forced is None and not self._fits(token):
                return False
            if not self.accepts(token):
                return False
            if self.reporter.recorder is not None:
                self.reporter.recorder.record(token)
            self.tokens.note_unchosen(is_forced=were_forced is not None and were_forced[i])
            self._take(token)
        return True

    def _fits(self, token: int) -> bool:
        """Return whether the mask allows a token, because a budget may bar it."""
        assert self.cursor is not None
        words = np.zeros((self.vocabulary.size + 31) // 32, np.uint32)
        self.cursor.fill_mask(words)
        return bool(words[token >> 5] >> np.uint32(token & 31) & 1)
