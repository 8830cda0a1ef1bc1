"""The endpoint of chats: ``POST /v1/chat/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import ChatChunk, ChatRequest, ChatResponse

from ..bodies import aside, json_object
from ..exchange import settings_of
from ..openapi import answers, body
from ..shapes import CHAT_FIELDS
from ..wire import PYTHON_ONLY, asked
from .text import check_model, runner_of, streamed, tried, whole

router = APIRouter(tags=["text"])


@router.post(
    "/v1/chat/completions",
    openapi_extra=body(ChatRequest, without=PYTHON_ONLY, more=CHAT_FIELDS),
    responses=answers(ChatResponse, chunk=ChatChunk),
)
async def chat_completions(request: Request) -> Response:
    """Answer a chat."""
    given, settings = await json_object(request), settings_of(request)
    work = await aside(request, lambda: asked(ChatRequest, given, settings))
    check_model(request, work.request.model)
    await tried(request, work)
    runner = runner_of(request)
    if work.streams:
        return await streamed(request, runner.astream_chat(work.request), work.told, is_head)
    return await whole(request, runner.achat(work.request), work.told)


def is_head(chunk: ChatChunk) -> bool:
    """Whether a chunk only says that the assistant speaks."""
    return bool(chunk.choices) and all(
        choice.delta.role is not None and choice.finish_reason is None for choice in chunk.choices
    )
