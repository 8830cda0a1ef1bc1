"""The endpoints for chats and completions, and what all endpoints share: whole and streamed
answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from structgen.runner import (
    MANY_SCORES,
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

from ..exchange import DONE, EventStream, ToError, answered, begun, event, sent, settings_of
from ..openapi import answers, body
from ..pictures import with_pictures
from ..shapes import CHAT_FIELDS, INPUT, TEXT_FIELDS
from ..wire import PYTHON_ONLY, Asked, aside, asked, json_object

PieceT = TypeVar("PieceT", bound=BaseModel)


def runner_of(request: Request) -> Runner:
    """Return the server's Runner."""
    runner: Runner = request.app.state.runner
    return runner


async def tried(request: Request, work: Asked[Any]) -> None:
    """Check the form of a request in a separate process.

    Raises:
        ApiError: it cannot be enforced.
    """
    trials: Trials = request.app.state.trials
    await answered(request, trials.check(work.request), work.to_error)


async def whole(
    request: Request, work: Awaitable[BaseModel], to_error: ToError, *, is_large: bool = False
) -> Response:
    """Return a whole answer; ``is_large``: it takes long to write."""
    made = await answered(request, work, to_error)
    check_sure(made)
    note(request, made)
    text = await aside(request, made.model_dump_json, is_large=is_large)
    return sent(request, text)


async def streamed(
    request: Request, pieces: AsyncChunkStream[PieceT], to_error: ToError
) -> Response:
    """Return a streamed answer."""
    going = await begun(request, pieces, to_error)

    async def events() -> AsyncGenerator[bytes, None]:
        async with aclosing(going):
            async for piece in going:
                note(request, piece)
                check_sure(piece)
                write = piece.model_dump_json
                is_large = has_many_scores(piece)
                yield event(await aside(request, write, is_large=True) if is_large else write())
            yield DONE

    return EventStream(events(), most=settings_of(request).request_seconds, to_error=to_error)


def has_many_scores(piece: Any) -> bool:
    """Return whether writing a piece of a stream takes long."""
    return bool(sum(choice.n_scores for choice in piece.choices) > MANY_SCORES)


def check_sure(made: BaseModel) -> None:
    """Raise if a value of an answer is less likely than ``abstain_below``.

    Raises:
        Abstained: a value is.
    """
    for choice in getattr(made, "choices", ()):
        if choice.finish_reason is not None and choice.result is not None:
            choice.result.check_sure()


def note(request: Request, made: BaseModel) -> None:
    """Add model and tokens to the log line."""
    log = request.state.log
    log["model"] = getattr(made, "model", None)
    usage = getattr(made, "usage", None)
    if usage is not None:
        log["prompt_tokens"] = getattr(usage, "prompt_tokens", None)
        log["completion_tokens"] = getattr(usage, "completion_tokens", None)


async def _answered(
    request: Request,
    kind: Any,
    ask: Callable[[Any], Awaitable[BaseModel]],
    stream: Callable[[Any], AsyncChunkStream[PieceT]],
) -> Response:
    """Return the answer to a request for text, whole or streamed."""
    given, settings = await json_object(request), settings_of(request)
    size = await with_pictures(request, given)
    work: Asked[Any] = await aside(request, lambda: asked(kind, given, settings), is_large=size > 0)
    # Each output is a request of its own, with the prompt.
    request.state.taken(((work.request.n or 1) - 1) * request.state.taken(0))
    await tried(request, work)
    if work.streams:
        return await streamed(request, stream(work.request), work.to_error)
    scores = [given.get(name) for name in ("logprobs", "trace")]
    has_scores = any(one is not None and one is not False for one in scores)
    return await whole(request, ask(work.request), work.to_error, is_large=has_scores)


router = APIRouter(tags=["text"])


@router.post(
    "/v1/chat/completions",
    openapi_extra=body(ChatRequest, without=PYTHON_ONLY, more=CHAT_FIELDS),
    responses=answers(ChatResponse, chunk=ChatChunk),
)
async def chat_completions(request: Request) -> Response:
    """Answer a chat."""
    runner = runner_of(request)
    return await _answered(request, ChatRequest, runner.achat, runner.astream_chat)


@router.post(
    "/v1/completions",
    openapi_extra=body(
        CompletionRequest, without=PYTHON_ONLY, more={**TEXT_FIELDS, "prompt": INPUT}
    ),
    responses=answers(CompletionResponse, chunk=CompletionChunk),
)
async def completions(request: Request) -> Response:
    """Continue a prompt."""
    runner = runner_of(request)
    return await _answered(request, CompletionRequest, runner.acomplete, runner.astream_complete)
