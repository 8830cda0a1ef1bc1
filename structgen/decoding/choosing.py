"""Choose the next token: from the scores by processors, mask and sampler, or without the model.

This module owns the order in which scores are edited, the token that would have been chosen without
the budget, and everything that needs no model: forced text, the only token of a mask, the end. It
stops at a place with a choice and writes the mask there. `progress` takes the chosen token. Runs no
model.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, final

import numpy as np

from structgen.errors import ModelError
from structgen.models.base import Allowed, Model, Passes, is_due
from structgen.sampling import (
    Logits,
    LogitsProcessor,
    Sampler,
    TokenIds,
    checked,
    logit_bias,
    min_length,
    no_repeat_ngram,
)

from . import options
from .chat_tokens import Speller
from .checks import Trial
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
        progress: Progress,
        *,
        speller: Speller,
        index: int,
        n_before: int,
    ) -> None:
        """Check the requested processors.

        Args:
            model: the model.
            search: the options of the call.
            settings: the resolved settings for this model.
            processor: the generator's processor, or None; the call's processor runs after it.
            progress: the output.
            speller: encodes forced text.
            index: the index of the output in a call for several.
            n_before: the number of tokens before the first one that counts for random numbers.

        Raises:
            OptionError: a processor does not fit the model.
        """
        self._progress = progress
        self._mask = mask = progress.mask
        vocabulary = model.vocabulary
        # In this order: preferences, the mask, the user's processors, the mask again.
        self._processors: list[LogitsProcessor] = []
        if settings.get("min_length"):
            ends = min_length(settings["min_length"], vocabulary.eos_token_ids)
            self._processors.append(ends)
        if settings.get("no_repeat_ngram_size"):
            self._processors.append(no_repeat_ngram(settings["no_repeat_ngram_size"]))
        if search.logit_bias:
            self._processors.append(logit_bias(search.logit_bias, vocabulary.size))
        if mask is not None:
            self._processors.append(mask)
        of_call = None if search.processor is None else checked(search.processor)
        for own in (processor, of_call):
            if own is not None:
                self._processors.append(own if mask is None else mask.has_last_word_after(own))
        self._sampler = Sampler(settings, index=index, n_prompt=n_before)
        # Samplers by the temperature of a rule; None: that of the call.
        self._samplers: dict[float | None, Sampler] = {None: self._sampler}
        constraint, seed = progress.constraint, {"random_seed": self._sampler.seed}
        self._has_temperatures = constraint is not None and constraint.has_temperatures
        self._sampled_at: Hashable = None  # the place at which the sampler was chosen last

        def sampler(temperature: float) -> Sampler:
            own = search.but(temperature=temperature, do_sample=temperature > 0)
            settings = options.resolve(own, model.search_defaults)
            return Sampler(settings | seed, index=index, n_prompt=n_before)

        self._make_sampler = sampler
        self._n_before = n_before
        self._speller = speller
        self._end = vocabulary.eos_token_ids[0]
        self._takes = search.forced
        # Then the model's most likely token is taken if the mask allows it, without applying the
        # mask.
        self._is_unedited = (
            progress.is_plain
            and progress.reporter.recorder is None
            and self._processors == ([] if mask is None else [mask])
        )
        self._may_take_favourite = self._is_unedited and self._sampler.takes_likeliest
        self._everything: Allowed | None = None  # made on demand
        self._has_refused = False  # whether the cursor refused the model's choice here
        self._size = vocabulary.size
        self._n_masked = 0  # tokens chosen under a mask, and the sum of tokens allowed
        self._allowed_total = 0

    @property
    def mean_allowed(self) -> float | None:
        """The mean number of tokens that masks allowed; None if there were no masks."""
        return self._allowed_total / self._n_masked if self._n_masked else None

    # -- where there is a choice ------------------------------------------------------------

    @property
    def allowed(self) -> Allowed | None:
        """The mask of the next token, if only the most likely allowed token is needed.

        None: the scores are needed.
        """
        mask = self._mask
        if self._has_temperatures:
            self._choose_sampler()
        if not self._may_take_favourite or self._has_refused:
            return None
        if mask is not None:
            return None if mask.is_shortening else mask.words
        if self._everything is None:
            self._everything = np.full((self._size + 31) // 32, 0xFFFFFFFF, np.uint32)
        return self._everything

    def take(self, token: int) -> bool:
        """Add the most likely token of `allowed` to the output, which may end it.

        Returns:
            Whether the cursor accepts it; otherwise the scores are needed.
        """
        progress, mask = self._progress, self._mask
        if not progress.accepts(token):
            self._has_refused = True
            return False
        if mask is not None:
            self._n_masked += 1
            self._allowed_total += mask.allowed
        progress.take_chosen(token, None, None, None)
        return True

    def choose(self, logits: Logits, own: Logits | None) -> bool:
        """Choose a token and add it to the output, which may end it.

        Args:
            logits: float32 ``[1, vocab]``, the model's scores. Changed in place.
            own: a copy of them for the recorder, or None.

        Returns:
            Whether there is a token: False if checks and the cursor leave none.

        Raises:
            OptionError: the user's processor returned invalid scores.
            ModelError: the model returned no usable scores.
        """
        progress = self._progress
        self._has_refused = False
        if self._has_temperatures:
            self._choose_sampler()
        n_allowed: int | None = None
        token: int | None = None
        wanted: int | None = None  # the token without the budget
        free: Logits | None = None  # a copy of the scores for it
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
            logits = self._edited(logits)
            token = self._sample(self._weighed(logits[0], is_first=True))
            if wanted is None:
                wanted = token if free is None else self._wanted(free)
            while not progress.accepts(token):
                # otherwise it would be chosen for ever
                is_likely = bool(logits[0, token] > -np.inf)
                logits[0, token] = -np.inf
                if progress.trial is not None and logits[0].max() == -np.inf:
                    return False
                if not is_likely:
                    raise ModelError(
                        "No token can be chosen: the model's scores of all allowed tokens are NaN "
                        "or minus infinity. Either the model is damaged or processor= did it."
                    )
                token = self._sample(self._weighed(logits[0]))
        if wanted is not None and wanted != token:
            progress.shortened.note(progress.tokens.output_ids, wanted, token, forced)
        progress.take_chosen(token, own, logits[0], n_allowed)
        return True

    def _choose_sampler(self) -> None:
        """Choose the sampler by the temperature of the grammar's open rules, or that of the
        call."""
        cursor = self._progress.cursor
        assert cursor is not None
        if cursor.place == self._sampled_at:
            return
        self._sampled_at, temperature = cursor.place, cursor.temperature
        if temperature not in self._samplers:
            assert temperature is not None
            self._samplers[temperature] = self._make_sampler(temperature)
        self._sampler = self._samplers[temperature]
        self._may_take_favourite = self._is_unedited and self._sampler.takes_likeliest

    def _edited(self, logits: Logits) -> Logits:
        for processor in self._processors:
            logits = processor(self._progress.tokens.token_ids, logits)
        return logits

    def _wanted(self, scores: Logits) -> int:
        """Return the token chosen without the budget, from the same random number."""
        assert self._mask is not None
        self._mask.lift_budget()
        return self._sample(self._weighed(self._edited(scores)[0]))

    def drafted(self, row: TokenIds, scores: Logits) -> int:
        """Return the call's choice from a draft model's scores after ``row``, int32 ``[n]``."""
        return self._sampler(row, scores, len(row) - self._n_before)

    def _sample(self, scores: Logits) -> int:
        tokens, trial = self._progress.tokens, self._progress.trial
        position = tokens.length - self._n_before
        if trial is not None:  # other random numbers for each attempt
            position += len(trial.attempts) << 32
        return self._sampler(tokens.row, scores, position)

    def _weighed(self, scores: Logits, *, is_first: bool = False) -> Logits:
        """Return the scores, lowered by the checks' barred probabilities."""
        trial = self._progress.trial
        if trial is None:
            return scores
        if is_first:
            trial.barred.look_at(scores)
        return trial.barred.weighed(scores)

    # -- where there is none ----------------------------------------------------------------

    def take_forced(self) -> Passes[None]:
        """Take forced tokens until there is a choice, and write its mask; may end the output.

        Yields regularly. The caller may stop at any yield.
        """
        progress, mask, trial = self._progress, self._mask, self._progress.trial
        cursor = progress.cursor
        if mask is None or cursor is None:
            return
        while progress.is_plain or progress.resume():
            barred: Collection[int] = () if trial is None else self._excluded(trial)
            tokens, needless = cursor.forced(lambda data: self._speller(progress.tokens.row, data))
            if tokens and tokens[0] in barred:
                self._leave(by_text=True)
                continue
            if tokens and not self._takes:
                mask.begin(instead=tokens[0])
                return
            if tokens:
                if not (yield from self._take_all(tokens)):
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
                return  # the model's own choice is needed
            if is_end:
                if trial is not None:
                    trial.barred.follow(self._end)
                if progress.end():
                    return
                continue
            only = mask.only() if self._takes else None
            if only is None:
                return
            if (yield from self._take_all([only])) and progress.finish_reason is not None:
                return

    def _take_all(self, tokens: Sequence[int]) -> Passes[bool]:
        """Take forced tokens; False if the output did not reach their end."""
        progress, trial = self._progress, self._progress.trial
        for index, token in enumerate(tokens):
            if is_due():
                yield
            if index and trial is not None and token in trial.excluded():
                self._leave(by_text=True)
                return False
            if not progress.take_forced(token) or progress.is_weighing:
                return False
            if progress.finish_reason is not None:
                return True
        return True

    def _excluded(self, trial: Trial) -> Collection[int]:
        """Return the tokens that checks bar here."""
        return trial.excluded(self._progress.tokens.left, self._progress.place_after)

    def _leave(self, *, by_text: bool) -> None:
        """Go back from a place where everything that the mask allows is barred."""
        progress, trial = self._progress, self._progress.trial
        assert trial is not None
        assert progress.cursor is not None
        if not by_text:
            progress.shortened.note_open(progress.tokens.output_ids)
        left, place = progress.tokens.left, progress.cursor.place
        progress.go_back(trial.dead_end(by_text=by_text, left=left, place=place))
