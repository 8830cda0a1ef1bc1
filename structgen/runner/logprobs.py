"""Log probabilities in the shapes of OpenAI's API.

Owns how tokens are written there: as text where their bytes are text, else as bytes; and which of
them a piece of an answer tells. The numbers are those of the distribution that was chosen from:
among the tokens that the output type allowed. Knows no requests.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import final

from structgen.sampling import TokenLogprob as Scored
from structgen.sampling import TopToken

from .responses import ChoiceLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob

LEAST = -9999.0
"""What stands for a probability of nothing, which JSON has no number for."""


def written(token: bytes) -> str:
    """A token as text; where its bytes are none by themselves, ``bytes:\\xe2\\x80``."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _number(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST


def _listed(top: tuple[TopToken, ...]) -> list[TopToken]:
    return [one for one in top if math.isfinite(one.logprob)]


def chat_logprobs(scores: Sequence[Scored]) -> ChoiceLogprobs:
    """Those of tokens of a chat's answer, which are all its tokens, calls included."""
    return ChoiceLogprobs(
        content=[
            TokenLogprob(
                token=written(one.token),
                logprob=_number(one.logprob),
                bytes=list(one.token),
                top_logprobs=[
                    TopLogprob(token=written(t.token), logprob=t.logprob, bytes=list(t.token))
                    for t in _listed(one.top)
                ],
            )
            for one in scores
        ]
    )


@final
class CompletionScores:
    """Those of one completion, piece by piece.

    Args:
        start: how many characters of its text come before its first token.
    """

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._length = start

    def of(self, scores: Sequence[Scored]) -> CompletionLogprobs:
        """Those of the tokens that come next."""
        tokens, numbers, tops, offsets = [], [], [], []
        for one in scores:
            tokens.append(written(one.token))
            numbers.append(_number(one.logprob))
            tops.append({written(t.token): t.logprob for t in _listed(one.top)})
            offsets.append(self._length)
            self._length += len(self._decoder.decode(one.token))
        return CompletionLogprobs(
            tokens=tokens,
            token_logprobs=numbers,
            top_logprobs=tops if any(tops) else None,
            text_offset=offsets,
        )


@final
class Untold:
    """Scores of one output that no piece of its answer has told yet."""

    def __init__(self) -> None:
        self._n_added = 0
        self._scores: list[Scored] = []

    def add(self, scores: Sequence[Scored]) -> None:
        """Note those that come next."""
        self._n_added += len(scores)
        self._scores += scores

    def end(self, scores: Sequence[Scored]) -> None:
        """Note those that are left of the whole output's."""
        self.add(scores[self._n_added :])

    def take(self) -> list[Scored]:
        """What is to be told now."""
        scores, self._scores = self._scores, []
        return scores
