"""What comes without the model: forced tokens, the one token of a mask, the end, ways back.

Owns how far an output goes on by itself, to a place with a choice, whose mask it has written then.
What happens to each token is `progress`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

from structgen.sampling import TokenMask

from .checks import Trial
from .progress import Progress
from .spelling import Speller


@final
class Forced:
    """The way on of one output that has an output type, where there is but one."""

    def __init__(
        self, progress: Progress, mask: TokenMask, speller: Speller, end: int, *, takes: bool
    ) -> None:
        """Begin.

        Args:
            progress: the output.
            mask: its mask.
            speller: writes forced text in tokens.
            end: a token that ends it.
            takes: whether forced tokens are taken; else the model is asked, and has no choice.
        """
        self._progress = progress
        self._mask = mask
        self._speller = speller
        self._end = end
        self._takes = takes
        cursor, self._trial = progress.cursor, progress.trial
        assert cursor is not None
        self._cursor = cursor

    def go_on(self) -> None:
        """Take forced tokens until there is a choice, and write its mask; may end the output."""
        progress, mask, trial = self._progress, self._mask, self._trial
        while progress.is_plain or progress.goes_on():
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
                if progress.finish_reason is not None:
                    return
                if trial is not None:
                    barred = self._excluded(trial)
            is_end = mask.begin(needless, barred=barred)
            if barred and trial is not None and not mask.allows_beside(trial.idle()):
                self._leave(by_text=not mask.is_shortening)
                continue
            shortened = progress.shortened
            if mask.is_shortening and not shortened.is_known_at(progress.tokens.output_ids):
                return  # the model is asked what it would have chosen
            if is_end:
                if trial is not None:
                    trial.barred.go_on(self._end)
                if progress.end():
                    return
                continue
            only = mask.only() if self._takes else None
            if only is None:
                return
            if self._take_all([only]) and progress.finish_reason is not None:
                return

    def _take_all(self, tokens: Sequence[int]) -> bool:
        """Take tokens that are the only way on; False if the output did not come to their end."""
        progress = self._progress
        for index, token in enumerate(tokens):
            if index and self._trial is not None and token in self._trial.excluded():
                self._leave(by_text=True)
                return False
            if not progress.take_forced(token) or progress.is_weighing:
                return False
            if progress.finish_reason is not None:
                return True
        return True

    def _excluded(self, trial: Trial) -> Collection[int]:
        """The tokens that checks bar here."""
        return trial.excluded(self._progress.tokens.left, self._progress.place_after)

    def _leave(self, *, by_text: bool) -> None:
        """Go back from where all is barred that the mask allows."""
        assert self._trial is not None
        progress = self._progress
        if not by_text:
            progress.shortened.note_open(progress.tokens.output_ids)
        left, place = progress.tokens.left, self._cursor.place
        progress.go_back(self._trial.dead_end(by_text=by_text, left=left, place=place))

    def _spell(self, data: bytes) -> list[int]:
        return self._speller(self._progress.tokens.row, data)
