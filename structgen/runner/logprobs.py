"""Log probabilities in the shapes of OpenAI's API.

Owns how tokens are written there: as text where their bytes are text, else as bytes. The numbers
are those of the distribution that was chosen from: among the tokens that the output type allowed.
Knows no requests.
"""

from __future__ import annotations

import codecs
import math
from typing import Any

from structgen.decoding import GenerationResult
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


def chat_logprobs(result: GenerationResult[Any]) -> ChoiceLogprobs:
    """Those of a chat's answer: of all its tokens, calls included."""
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
            for one in result.logprobs
        ]
    )


def completion_logprobs(result: GenerationResult[Any]) -> CompletionLogprobs:
    """Those of a completion."""
    tokens, scores, tops, offsets = [], [], [], []
    decoder, length = codecs.getincrementaldecoder("utf-8")("ignore"), 0
    for one in result.logprobs:
        tokens.append(written(one.token))
        scores.append(_number(one.logprob))
        tops.append({written(t.token): t.logprob for t in _listed(one.top)})
        offsets.append(length)
        length += len(decoder.decode(one.token))
    has_tops = any(tops)
    return CompletionLogprobs(
        tokens=tokens,
        token_logprobs=scores,
        top_logprobs=tops if has_tops else None,
        text_offset=offsets,
    )
