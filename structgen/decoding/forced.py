"""What comes without the model: forced tokens, the one token of a mask, the end, ways back.

Owns how far an output goes on by itself, to a place with a choice, whose mask it has written then.
What happens to each token is `so_far`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

from structgen.sampling import TokenMask

from .checks import Trial
from .so_far import SoFar
from .spelling import Speller


@final
class Forced:
    """The way on of one output that has an output type, where there is but one."""

    def __init__(
        self, so_far: SoFar, mask: TokenMask, speller: Speller, end: int, *, takes: bool
    ) -> None:
        """Begin.

        Args:
            so_far: the output.
            mask: its mask.
            speller: writes forced text in tokens.
            end: a token that ends it.
            takes: whether forced tokens are taken; else the model is asked, and has no choice.
        """
        self._so_far = so_far
        self._mask = mask
        self._speller = speller
        self._end = end
        self._takes = takes
        cursor, self._trial = so_far.cursor, so_far.trial
        assert cursor is not None
        self._cursor = cursor

    def go_on(self) -> None:
        """Take forced tokens until there is a choice, and write its mask; may end the output."""
        so_far, mask, trial = self._so_far, self._mask, self._trial
        while so_far.is_plain or so_far.goes_on():
            barred: Collection[int] = () if trial is None else self._excluded(trial)
            tokens, needless = self._cursor.forced(self._spell)
            if tokens and tokens[0] in barred:
                self._leave(by_text=True)
                continue
            if tokens and not self._takes:
                mask.begin(instead=tokens[0])
                return
            if tokens:
                if not self._take_all(tokens):
                    continue
                if so_far.finish_reason is not None:
                    return
                if trial is not None:
                    barred = self._excluded(trial)
            is_end = mask.begin(needless, barred=barred)
            if barred and trial is not None and not mask.allows_beside(trial.idle()):
                self._leave(by_text=not mask.is_shortening)
                continue
            shortened = so_far.shortened
            if mask.is_shortening and not shortened.is_known_at(so_far.written.output_ids):
                return  # the model is asked what it would have chosen
            if is_end:
                if trial is not None:
                    trial.barred.go_on(self._end)
                if so_far.end():
                    return
                continue
            only = mask.only() if self._takes else None
            if only is None:
                return
            if self._take_all([only]) and so_far.finish_reason is not None:
                return

    def _take_all(self, tokens: Sequence[int]) -> bool:
        """Take tokens that are the only way on; False if the output did not come to their end."""
        so_far = self._so_far
        for index, token in enumerate(tokens):
            if index and self._trial is not None and token in self._trial.excluded():
                self._leave(by_text=True)
                return False
            if not so_far.take_forced(token) or so_far.is_weighing:
                return False
            if so_far.finish_reason is not None:
                return True
        return True

    def _excluded(self, trial: Trial) -> Collection[int]:
        """The tokens that checks bar here."""
        return trial.excluded(self._so_far.written.left, self._so_far.place_after)

    def _leave(self, *, by_text: bool) -> None:
        """Go back from where all is barred that the mask allows."""
        assert self._trial is not None
        so_far = self._so_far
        if not by_text:
            so_far.shortened.note_open(so_far.written.output_ids)
        left, place = so_far.written.left, self._cursor.place
        so_far.go_back(self._trial.dead_end(by_text=by_text, left=left, place=place))

    def _spell(self, data: bytes) -> list[int]:
        return self._speller(self._so_far.written.row, data)
