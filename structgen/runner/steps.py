"""What happened at each token, in the shape of answers; and why a token was not allowed.

Owns how steps of a trace, and how sure the model is of values, are written; and the question why.
Which steps there are is told by the output; reasons are `structgen.insight`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from structgen.errors import OptionError, OutputTypeError, RequestError, StructgenError
from structgen.insight import TOP, TraceStep, ValueConfidence, why_barred
from structgen.sampling import TopToken

from .constraints import refusal, wanted
from .hosts import TextHost
from .logprobs import LEAST, written
from .requests import ChatRequest, ExplainRequest
from .responses import LikelyToken, LikelyValue, TokenStep, ValueSureness


def steps_of(steps: Iterable[TraceStep]) -> list[TokenStep]:
    """Steps as answers have them."""
    return [_step(step) for step in steps]


def _step(step: TraceStep) -> TokenStep:
    scores = step.logprob
    own = scores.unmasked_logprob
    return TokenStep(
        index=step.index,
        token="" if step.is_end else written(step.token),
        token_id=step.token_id,
        bytes=list(step.token),
        start=step.start,
        path=step.path,
        is_end=step.is_end,
        is_forced=step.is_forced,
        allowed=step.n_allowed,
        logprob=max(scores.logprob, LEAST),
        own_logprob=None if own is None else max(own, LEAST),
        removed=scores.removed,
        top=_tokens(() if step.is_forced else scores.top),
        own_top=_tokens(scores.unmasked_top),
    )


def _tokens(tokens: Iterable[TopToken]) -> list[LikelyToken]:
    return [
        LikelyToken(
            token=written(one.token),
            token_id=one.token_id,
            logprob=one.logprob,
            is_allowed=one.is_allowed,
        )
        for one in tokens
        if one.logprob > LEAST
    ]


def sureness_of(
    confidence: Mapping[str, ValueConfidence], asked: float | Mapping[str, float] | None
) -> dict[str, ValueSureness] | None:
    """How sure the model is of the values that ``abstain_below`` was about; None: of none."""
    if asked is None:
        return None
    paths = asked if isinstance(asked, Mapping) else list(confidence)
    return {
        path: ValueSureness(
            probability=confidence[path].probability,
            alternatives=[
                LikelyValue(value=one.value, probability=one.probability)
                for one in confidence[path].alternatives[:TOP]
            ],
        )
        for path in paths
    }


async def explain(host: TextHost, request: ExplainRequest) -> str:
    """Why a token was not allowed at a place, or that it was.

    Raises:
        RequestError: there is no form, or the tokens before are none of an output of it.
    """
    fields = ("response_format", "grammar", "grammar_type")
    form = ChatRequest.of({"messages": "-"}, {name: getattr(request, name) for name in fields})
    asked = wanted(form)
    if asked.type is None:
        return "In free text every token is allowed."
    try:
        generator = await host.generator(asked.key, asked.type, {})
    except OutputTypeError as error:
        raise refusal(error, asked) from error
    constraint = generator.constraint
    assert constraint is not None
    size = constraint.vocabulary.size
    for name, ids in (("before", request.before), ("chosen", [request.chosen])):
        if not all(0 <= one < size for one in ids):
            raise RequestError(f"{name}: token ids are 0 to {size - 1:,}.", param=name)

    def why() -> str:
        cursor = constraint.start()
        try:
            for token_id in request.before:
                cursor.accept(token_id)
        except StructgenError as error:
            raise RequestError(f"before: {error}", param="before") from error
        return why_barred(
            constraint,
            request.before,
            request.token,
            chosen=request.chosen,
            max_tokens=request.max_tokens,
        )

    try:
        return await asyncio.to_thread(why)
    except OptionError as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"token: {error}", param="token") from error
