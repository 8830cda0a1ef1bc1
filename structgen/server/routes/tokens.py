"""``POST /v1/tokenize`` and ``POST /v1/detokenize``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr, model_validator

from structgen.runner import Message

from ..bodies import json_object
from ..errors import told
from ..exchange import answered
from ..openapi import answers, body
from ..shapes import DetokenizeAnswer, TokenizeAnswer
from ..wire import read, refused
from .text import check_model, runner_of, said

router = APIRouter(tags=["tokens"])


class TokenizeBody(BaseModel):
    """A text, or the messages of a chat, whose tokens are wanted."""

    model_config = ConfigDict(extra="forbid")

    model: StrictStr | None = None
    prompt: StrictStr | None = None
    text: StrictStr | None = None
    messages: list[Message] | None = None
    add_special_tokens: StrictBool = True

    @model_validator(mode="after")
    def _one(self) -> TokenizeBody:
        given = [one for one in (self.prompt, self.text, self.messages) if one is not None]
        if len(given) != 1:
            raise ValueError("pass one of prompt, text and messages")
        return self


class DetokenizeBody(BaseModel):
    """Token ids whose text is wanted."""

    model_config = ConfigDict(extra="forbid")

    model: StrictStr | None = None
    tokens: list[StrictInt]
    skip_special_tokens: StrictBool = False


@router.post("/v1/tokenize", openapi_extra=body(TokenizeBody), responses=answers(TokenizeAnswer))
@router.post("/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> dict[str, Any]:
    """Token ids of a text or a chat, and how many the model takes."""
    asked = read(TokenizeBody, await json_object(request))
    check_model(request, asked.model)
    runner = runner_of(request)
    given: Any = asked.prompt if asked.text is None else asked.text
    if asked.messages is not None:
        given = [message.for_template() for message in asked.messages]
    try:
        tokens = await answered(
            request,
            runner.atokenize_text(
                given, add_special_tokens=asked.add_special_tokens, model=asked.model
            ),
        )
        longest = await runner.amax_sequence_length(asked.model)
    except Exception as error:
        raise said(error, told) from error
    return {"count": len(tokens), "max_model_len": longest, "tokens": tokens}


@router.post(
    "/v1/detokenize", openapi_extra=body(DetokenizeBody), responses=answers(DetokenizeAnswer)
)
@router.post("/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> dict[str, Any]:
    """The text of token ids."""
    asked = read(DetokenizeBody, await json_object(request))
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
