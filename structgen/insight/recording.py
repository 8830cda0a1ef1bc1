"""What a run tells of each token, and to whom.

Two data types between the loop, which makes steps, and those who record them; no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from structgen.sampling import Logits


@dataclass(slots=True)
class Step:
    """One token of an output, as a `Recorder` is told of it.

    Attributes:
        token_id: the token; an end-of-sequence id ends the output and is no part of it.
        is_forced: whether it was the only way on, so that nobody was asked.
        model_logits: float32 ``[vocab]``, the model's own scores, before any processor; None where
            it is forced (see `Recorder.forced_logits`).
        logits: float32 ``[vocab]``, what was chosen from, minus infinity where masked; None where
            it is forced.
        n_allowed: tokens the mask allowed, end-of-sequence ids included; None without a mask.
    """

    token_id: int
    is_forced: bool
    model_logits: Logits | None
    logits: Logits | None
    n_allowed: int | None


class Recorder(Protocol):
    """Something that wants to know about every token: logprobs, a trace.

    Attributes:
        wants_forced_logits: whether `forced_logits` should be called. Costs a copy of the scores
            of all forced tokens, and a pass over those at the very end, which is skipped otherwise.
    """

    wants_forced_logits: bool

    def record(self, step: Step) -> None:
        """Note a token. The arrays are this recorder's to keep, not to change."""

    def forced_logits(self, logits: Logits) -> None:
        """Note the model's own scores of ``n`` forced tokens, float32 ``[n, vocab]``.

        Those that have been recorded and not been scored, in their order: all of a run of forced
        tokens at once, or in a batch one after the other. Forced tokens that come first are scored
        by the prompt.
        """

    def keep(self, n_steps: int) -> None:
        """Forget all but the first ``n_steps``: the output goes on from there."""
