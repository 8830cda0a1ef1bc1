"""One step of a trace: which token, where in the output, among how many allowed ones.

Plain data; `trace` fills it in and `trace_page` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from structgen.sampling import TokenLogprob, TopToken


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One token of an output.

    Attributes:
        index: which step it was, from 0.
        start: offset of its first byte in the output.
        path: JSON path of the value it begins in, ``$`` for the whole or for no JSON; between the
            values of an object or array, and in a key, that of the object or array.
        is_end: whether it is the end of the sequence, which is no part of the output.
        n_allowed: tokens the mask allowed; all of them for free text, 1 where it was forced.
        logprob: its log probabilities, and the likeliest tokens.
    """

    index: int
    start: int
    path: str
    is_end: bool
    n_allowed: int
    logprob: TokenLogprob

    @property
    def token_id(self) -> int:
        """The token's id."""
        return self.logprob.token_id

    @property
    def token(self) -> bytes:
        """The token's bytes."""
        return self.logprob.token

    @property
    def is_forced(self) -> bool:
        """Whether it was the only way on, and not chosen."""
        return self.logprob.is_forced

    @property
    def removed(self) -> float | None:
        """The probability the model gave to all that was not allowed; None: it was not asked."""
        return self.logprob.removed

    @property
    def masked_favourite(self) -> TopToken | None:
        """The model's own favourite, if it was not allowed."""
        favourite = self.logprob.unmasked_top[:1]
        return favourite[0] if favourite and not favourite[0].is_allowed else None
