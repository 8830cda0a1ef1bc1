"""Chats and completions, and what all endpoints share: models by name, whole answers, streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from structgen.runner import (
    AsyncChunkStream,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    CompletionChunk,
    CompletionRequest,
    CompletionResponse,
    Runner,
    Trials,
)

from ..errors import ApiError
from ..exchange import DONE, EventStream, Told, answered, begun, event, settings_of
from ..openapi import answers, body
from ..shapes import CHAT_FIELDS, INPUT, TEXT_FIELDS
from ..wire import PYTHON_ONLY, Asked, aside, asked, json_object

PieceT = TypeVar("PieceT", bound=BaseModel)


def runner_of(request: Request) -> Runner:
    """The server's Runner."""
    runner: Runner = request.app.state.runner
    return runner


def check_model(request: Request, name: Any) -> None:
    """Refuse a model that there is not.

    Raises:
        ApiError: so it is.
    """
    runner = runner_of(request)
    if name is None:
        return
    known = [*runner.list_models(), *runner.list_aliases()]
    if name not in known:
        raise ApiError(
            404,
            f"There is no model {name!r}. There are: {', '.join(known) or 'none'}.",
            param="model",
            code="model_not_found",
        )


async def tried(request: Request, work: Asked[Any]) -> None:
    """Try the form of a request out, where it can do no harm.

    Raises:
        ApiError: it cannot be enforced.
    """
    trials: Trials = request.app.state.trials
    await answered(request, trials.check(work.request), work.told)


async def whole(
    request: Request, work: Awaitable[BaseModel], told: Told, *, is_large: bool = False
) -> Response:
    """An answer in one piece; ``is_large``: it takes long to write."""
    made = await answered(request, work, told)
    check_sure(made)
    note(request, made)
    text = await aside(request, made.model_dump_json, is_large=is_large)
    return Response(text, media_type="application/json")


async def streamed(request: Request, pieces: AsyncChunkStream[PieceT], told: Told) -> Response:
    """An answer piece by piece."""
    going = await begun(request, pieces, told)

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            async for piece in going:
                note(request, piece)
                check_sure(piece)
                yield event(piece.model_dump_json())
            yield DONE
        finally:
            await going.aclose()

    return EventStream(events(), most=settings_of(request).request_seconds, told=told)


def check_sure(made: BaseModel) -> None:
    """Refuse an answer with a value that is less likely than ``abstain_below`` asks.

    Raises:
        Abstained: so it is.
    """
    for choice in getattr(made, "choices", ()):
        if choice.finish_reason is not None and choice.result is not None:
            choice.result.check_sure()


def note(request: Request, made: BaseModel) -> None:
    """Put model and tokens into the line of the log."""
    log = request.state.log
    log["model"] = getattr(made, "model", None)
    usage = getattr(made, "usage", None)
    if usage is not None:
        log["prompt_tokens"] = getattr(usage, "prompt_tokens", None)
        log["completion_tokens"] = getattr(usage, "completion_tokens", None)


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
        return await streamed(request, runner.astream_chat(work.request), work.told)
    has_scores = bool(work.request.logprobs or work.request.trace)
    return await whole(request, runner.achat(work.request), work.told, is_large=has_scores)


@router.post(
    "/v1/completions",
    openapi_extra=body(
        CompletionRequest, without=PYTHON_ONLY, more={**TEXT_FIELDS, "prompt": INPUT}
    ),
    responses=answers(CompletionResponse, chunk=CompletionChunk),
)
async def completions(request: Request) -> Response:
    """Go on from a prompt."""
    given, settings = await json_object(request), settings_of(request)
    work = await aside(request, lambda: asked(CompletionRequest, given, settings))
    check_model(request, work.request.model)
    await tried(request, work)
    runner = runner_of(request)
    if work.streams:
        return await streamed(request, runner.astream_complete(work.request), work.told)
    has_scores = work.request.logprobs is not None
    return await whole(request, runner.acomplete(work.request), work.told, is_large=has_scores)
