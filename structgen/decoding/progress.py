"""An output as it stands: what is done when a token is taken, taken back, or ends it.

Owns that tokens, cursor, text, checks and recorders go on and go back together, and why an output
ends. Which token comes is not its business: the model's choices come from `choosing`, what needs no
choice from `forced`. Knows no model and no scores.

    take ─▶ text told, or held until checks or weighing settle it ─▶ the end
      ▲                          │ refused, or written anew
      └──────── go_back ◀────────┘
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import final

import numpy as np

from structgen.constraint import Constraint, Cursor
from structgen.errors import TokenNotAllowed
from structgen.insight import BestValues, Opened, Passes, Recorder, Step
from structgen.sampling import Logits, TokenMask
from structgen.vocabulary import Vocabulary

from .checks import Trial
from .clock import Clock
from .output_tokens import OutputTokens
from .reporting import Reporter
from .shortened import Shortened
from .text_assembler import FinishReason


@final
class Progress:
    """One output so far. Used by one thread.

    Attributes:
        tokens: its tokens.
        cursor: its place in the output type; None: free text.
        trial: its checks, or None.
        shortened: where its budget changed it.
        finish_reason: why it ended, None while it goes on.
        timed_out: whether it ended because its time was over.
        is_plain: whether nothing that is written is ever taken back, or waits for anything.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        constraint: Constraint | None,
        tokens: OutputTokens,
        reporter: Reporter,
        clock: Clock,
        recorders: Sequence[Recorder],
        *,
        mask: TokenMask | None = None,
        cursor: Cursor | None = None,
        trial: Trial | None = None,
        best: BestValues | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            vocabulary: the model's.
            constraint: the compiled output type, or None.
            tokens: the prompt.
            reporter: is told of text that stands.
            clock: is told of the end.
            recorders: are told of each token.
            mask: that of the cursor, to be released at the end.
            cursor: at the beginning of the constraint.
            trial: the checks of its values, made while it is written.
            best: what weighs its values, if they are to be the likeliest.
        """
        self.tokens = tokens
        self.cursor = cursor
        self.trial = trial
        self.shortened = Shortened(constraint)
        self.finish_reason: FinishReason | None = None
        self.timed_out = False
        self._n_words = (vocabulary.size + 31) // 32
        self._eos_token_ids = vocabulary.eos_token_ids
        self._texts = vocabulary.tokens if constraint is None else constraint.named.texts
        self._reporter = reporter
        self._clock = clock
        self._recorders = tuple(recorders)
        self._mask = mask
        self._best = best
        self.is_plain = trial is None and best is None
        self._ends_after = False  # it has ended, but for a value to be weighed

    # -- places -----------------------------------------------------------------------------

    def accepts(self, token: int) -> bool:
        """Move the cursor over a token, if there is one and it goes along.

        Masks say which tokens it takes. Close to the end of a budget, and only where what follows
        depends on the text so far, it may refuse what they allow: of such a token more bytes may be
        owed than were counted on. Very rare.
        """
        if self.cursor is not None:
            try:
                self.cursor.accept(token)
            except TokenNotAllowed:
                return False
        return True

    def place_after(self, token: int) -> Hashable | None:
        """The cursor's place after a token; None: it does not go along, or that says too little."""
        assert self.cursor is not None
        try:
            self.cursor.accept(token)
        except TokenNotAllowed:
            return None
        place = self.cursor.place
        self.cursor.rollback(1)
        return place

    def go_back(self, n_tokens: int) -> None:
        """Take back all tokens after the first ``n_tokens``, and the end."""
        assert self.cursor is not None
        self.cursor.rollback(self.tokens.cut(n_tokens) + self.cursor.is_finished)
        self.shortened.go_back(n_tokens)
        for recorder in self._recorders:
            recorder.keep(n_tokens)

    # -- tokens -----------------------------------------------------------------------------

    def take_chosen(
        self, token: int, own: Logits | None, scores: Logits, n_allowed: int | None
    ) -> None:
        """Take a token that was chosen, over which the cursor has moved; may end the output.

        Args:
            token: the token.
            own: float32 ``[vocab]``, what the model gave; None where nobody is told.
            scores: float32 ``[vocab]``, what it was chosen by.
            n_allowed: how many tokens the mask allowed, if there is one.
        """
        for recorder in self._recorders:
            recorder.record(Step(token, False, own, scores, n_allowed))
        if self.trial is not None:
            self.trial.barred.go_on(token, float(scores[token]))
        self.tokens.are_forced.append(False)
        self._take(token)

    def take_forced(self, token: int) -> bool:
        """Take a token that is the only way on; False if the output went back, or waits."""
        assert self.cursor is not None
        self.cursor.accept(token)
        for recorder in self._recorders:
            recorder.record(Step(token, True, None, None, 1))
        if self.trial is not None:
            self.trial.barred.go_on(token)
        self.tokens.note_unchosen(is_forced=True)
        return self._take(token)

    def _take(self, token: int) -> bool:
        """Add a token to the text; the end of the sequence ends the output.

        Returns:
            Whether it stays: False where a check has refused what it ends, and the output went
            back; or where that has to be waited for.
        """
        if token in self._eos_token_ids:
            return self.end()
        self.tokens.add(token)
        if self.is_plain:
            self._reporter.tell(token)
        elif self._best is not None:
            self._best.read(self._texts[token])
            self._tell_up_to(self._best.n_settled)
        else:
            assert self.trial is not None
            back = self.trial.read(self._texts[token])
            if back is not None:
                self.go_back(back)
                return False
            if self.trial.is_waiting:
                return False
            self._tell_up_to(self.trial.n_settled)
        if self._reporter.stopped_by is not None:
            self.finish("stop_string")
        return True

    def _tell_up_to(self, n_tokens: int) -> None:
        self._reporter.tell_up_to(self.tokens.output_ids, n_tokens)

    # -- the end ----------------------------------------------------------------------------

    def end(self) -> bool:
        """End the output by itself; False if a check refuses it, and it went back, or it waits."""
        if self._best is not None:
            self._best.end()
            if self._best.is_waiting:
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
        """End the output, for a reason."""
        if reason == "stop" and self.shortened.noted:
            reason = "budget"
        self.finish_reason = reason
        self.timed_out = reason == "cancelled" and self._clock.is_late
        if self._mask is not None:
            self._mask.release()
        self._clock.end()
        if reason != "stop_string":
            if not self.is_plain:
                self._tell_up_to(self.tokens.n_output)
            self._reporter.finish()

    def goes_on(self) -> bool:
        """Take what checks have answered; whether there is nothing more to wait for."""
        return not self.is_weighing and (not self.is_waiting or self.resume())

    # -- checks that are made elsewhere -----------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether `resume` comes next, because checks that are made elsewhere are waited for."""
        return self.trial is not None and self.finish_reason is None and self.trial.is_waiting

    def resume(self) -> bool:
        """Go on where checks had to be waited for; whether there is anything to do after that."""
        trial = self.trial
        if trial is None or not trial.may_resume:
            return False
        is_end, back = trial.resume()
        if back is not None:
            self.go_back(back)
        elif is_end:
            self.finish("stop")
            return False
        self._tell_up_to(trial.n_settled)
        return True

    # -- values that are weighed ------------------------------------------------------------

    @property
    def is_weighing(self) -> bool:
        """Whether a value has closed whose alternatives are to be weighed by `weigh`."""
        return self._best is not None and self._best.is_waiting and self.finish_reason is None

    def weigh(self, open_sequence: Opened) -> Passes[None]:
        """Weigh them, on a sequence of their own, and write the likeliest instead; may end it."""
        assert self._best is not None
        output_ids = self.tokens.output_ids.tolist()
        change = yield from self._best.weigh(output_ids, open_sequence)
        is_end, self._ends_after = self._ends_after, False
        if change is not None:
            n_before, path = change
            written, were_forced = output_ids[n_before:], self.tokens.are_forced[n_before:]
            noted = self.shortened.noted
            self._unwrite(n_before)
            if self._write(path):
                return
            place = self._best.keep_written()
            self._unwrite(n_before)
            self._write(written, were_forced)
            # What is likeliest is of the type: it was the budget that had no room for it.
            self.shortened.noted = noted
            self.shortened.note_path(place, n_before)
        if self.finish_reason is None and not self.is_weighing:
            if is_end:
                self.finish("stop")
            else:
                self._tell_up_to(self._best.n_settled)

    def _unwrite(self, n_tokens: int) -> None:
        assert self._best is not None
        self.go_back(n_tokens)
        self.shortened.forget(n_tokens)
        self._best.go_back(n_tokens)

    def _write(self, token_ids: Sequence[int], were_forced: Sequence[bool] | None = None) -> bool:
        """Write tokens that were chosen as a whole; whether all of them fit."""
        for i, token in enumerate(token_ids):
            if were_forced is None and not self._fits(token):
                return False
            if not self.accepts(token):
                return False
            for recorder in self._recorders:
                recorder.record(Step(token, True, None, None, 1))
            self.tokens.note_unchosen(is_forced=were_forced is not None and were_forced[i])
            self._take(token)
        return True

    def _fits(self, token: int) -> bool:
        """Whether the mask allows a token, which a budget may bar."""
        assert self.cursor is not None
        words = np.zeros(self._n_words, np.uint32)
        self.cursor.fill_mask(words)
        return bool(words[token >> 5] >> np.uint32(token & 31) & 1)
