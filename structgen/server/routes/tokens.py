"""``POST /v1/tokenize`` and ``POST /v1/detokenize``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import StrictBool, StrictInt, StrictStr, model_validator

from structgen.runner import Many, Message

from ..bodies import aside, json_object
from ..errors import told
from ..exchange import answered
from ..openapi import answers, body
from ..shapes import DetokenizeAnswer, Strictly, TokenizeAnswer
from ..wire import read, refused
from .text import check_model, runner_of, said

router = APIRouter(tags=["tokens"])

_SLICE = 10_000


class TokenizeBody(Strictly):
    """A text, or the messages of a chat, whose tokens are wanted."""

    model: StrictStr | None = None
    prompt: StrictStr | None = None
    text: StrictStr | None = None
    messages: Many[Message] | None = None
    add_special_tokens: StrictBool = True

    @model_validator(mode="after")
    def _one(self) -> TokenizeBody:
        given = [one for one in (self.prompt, self.text, self.messages) if one is not None]
        if len(given) != 1:
            raise ValueError("pass one of prompt, text and messages")
        return self


class DetokenizeBody(Strictly):
    """Token ids whose text is wanted."""

    model: StrictStr | None = None
    tokens: Many[StrictInt]
    skip_special_tokens: StrictBool = False


@router.post("/v1/tokenize", openapi_extra=body(TokenizeBody), responses=answers(TokenizeAnswer))
@router.post("/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> Response:
    """Token ids of a text or a chat, and how many the model takes."""
    given = await json_object(request)
    asked = await aside(request, lambda: read(TokenizeBody, given))
    check_model(request, asked.model)
    runner = runner_of(request)
    text: Any = asked.prompt if asked.text is None else asked.text
    if asked.messages is not None:
        text = [message.for_template() for message in asked.messages]
    try:
        tokens = await answered(
            request,
            runner.atokenize_text(
                text, add_special_tokens=asked.add_special_tokens, model=asked.model
            ),
        )
        longest = await runner.amax_sequence_length(asked.model)
    except Exception as error:
        raise said(error, told) from error
    ids = await aside(request, lambda: _joined(tokens), is_large=len(tokens) > _SLICE)
    length = "null" if longest is None else longest
    answer = f'{{"count":{len(tokens)},"max_model_len":{length},"tokens":[{ids}]}}'
    return Response(answer, media_type="application/json")


def _joined(tokens: list[int]) -> str:
    """Write many numbers, in slices: between them other threads go on."""
    slices = (tokens[at : at + _SLICE] for at in range(0, len(tokens), _SLICE))
    return ",".join(",".join(map(str, part)) for part in slices)


@router.post(
    "/v1/detokenize", openapi_extra=body(DetokenizeBody), responses=answers(DetokenizeAnswer)
)
@router.post("/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> dict[str, Any]:
    """The text of token ids."""
    given = await json_object(request)
    asked = await aside(request, lambda: read(DetokenizeBody, given))
    check_model(request, asked.model)
    try:
        text = await answered(
            request,
            runner_of(request).adetokenize_text(
                asked.tokens, skip_special_tokens=asked.skip_special_tokens, model=asked.model
            ),
        )
    except Exception as error:
        api = said(error, told)
        if getattr(api, "status", None) == 400:
            raise refused(str(error), "tokens", "invalid_value") from error
        raise api from error
    return {"prompt": text, "text": text}
