"""The choice of a token from the model's scores: processors, mask, sampler.

Owns the order in which scores are edited, and what would have been chosen without the budget. What
happens to the token then is `progress`'s business. Runs no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from structgen.models.base import Model
from structgen.sampling import Logits, LogitsProcessor, Sampler, TokenMask

from .call_validation import processors
from .options import SearchOptions
from .progress import Progress


@final
class Chooser:
    """Chooses the tokens of one output."""

    def __init__(
        self,
        model: Model,
        search: SearchOptions,
        settings: Mapping[str, Any],
        processor: LogitsProcessor | None,
        mask: TokenMask | None,
        *,
        index: int,
        n_before: int,
        may_skip: bool,
    ) -> None:
        """Check what processors are asked for.

        Args:
            model: the model.
            search: of the call.
            settings: what these come to on this model.
            processor: the user's, or None.
            mask: of the output type, or None.
            index: which output of a call for several this is.
            n_before: how many tokens stand before those that random numbers are counted by.
            may_skip: whether scores need not be edited where the token is known without.

        Raises:
            OptionError: a processor does not fit the model.
        """
        self._mask = mask
        self._processors = processors(model, search, settings, processor, mask)
        self._sampler = Sampler(settings, index=index, n_prompt=n_before)
        self._n_before = n_before
        # Then what the model likes best is taken if the mask allows it, which is left unapplied.
        self._may_take_favourite = (
            may_skip and self._processors == [mask] and self._sampler.takes_likeliest
        )
        self._n_masked = 0  # tokens chosen under a mask, and how many these allowed in all
        self._allowed_total = 0

    @property
    def mean_allowed(self) -> float | None:
        """How many tokens masks allowed, in the mean; None: there were none."""
        return self._allowed_total / self._n_masked if self._n_masked else None

    def choose(self, progress: Progress, logits: Logits, own: Logits | None) -> bool:
        """Choose a token and have the output take it; it may end with that.

        Args:
            progress: the output.
            logits: float32 ``[1, vocab]``, the model's scores. Changed.
            own: a copy of them for recorders, or None.

        Returns:
            Whether there is one: False where checks and the cursor leave none.

        Raises:
            OptionError: the user's processor returned something else than scores.
        """
        n_allowed: int | None = None
        token: int | None = None
        wanted: int | None = None  # what it would be without the budget
        free: Logits | None = None  # a copy of the scores for that
        forced = b""
        mask = self._mask
        if mask is not None:
            n_allowed = mask.allowed
            self._n_masked += 1
            self._allowed_total += n_allowed
            if self._may_take_favourite:
                token = wanted = mask.favourite(logits[0])
            if mask.is_shortening and wanted is None:
                assert progress.cursor is not None
                free, forced = logits.copy(), progress.cursor.forced_bytes()
        if token is None or not progress.accepts(token):
            logits = self._edited(progress, logits)
            token = self._sample(progress, _weighed(progress, logits[0], is_first=True))
            if wanted is None:
                wanted = token if free is None else self._wanted(progress, free)
            while not progress.accepts(token):
                logits[0, token] = -np.inf
                if progress.trial is not None and logits[0].max() == -np.inf:
                    return False
                token = self._sample(progress, _weighed(progress, logits[0]))
        if wanted is not None and wanted != token:
            progress.shortened.note(progress.tokens.output_ids, wanted, token, forced)
        progress.take_chosen(token, own, logits[0], n_allowed)
        return True

    def _edited(self, progress: Progress, logits: Logits) -> Logits:
        for processor in self._processors:
            logits = processor(progress.tokens.token_ids, logits)
        return logits

    def _wanted(self, progress: Progress, scores: Logits) -> int:
        """The token that these scores come to without the budget, with the same random number."""
        assert self._mask is not None
        self._mask.lift_budget()
        return self._sample(progress, _weighed(progress, self._edited(progress, scores)[0]))

    def _sample(self, progress: Progress, scores: Logits) -> int:
        tokens = progress.tokens
        position = tokens.length - self._n_before
        if progress.trial is not None:  # other random numbers for each attempt
            position += len(progress.trial.attempts) << 32
        return self._sampler(tokens.row, scores, position)


def _weighed(progress: Progress, scores: Logits, *, is_first: bool = False) -> Logits:
    """Scores, less what checks have found improbable."""
    if progress.trial is None:
        return scores
    if is_first:
        progress.trial.barred.look_at(scores)
    return progress.trial.barred.weighed(scores)
