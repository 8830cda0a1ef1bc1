"""The endpoint of texts that go on: ``POST /v1/completions``."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import CompletionChunk, CompletionRequest, CompletionResponse

from ..bodies import aside, json_object
from ..exchange import settings_of
from ..openapi import answers, body
from ..shapes import INPUT, TEXT_FIELDS
from ..wire import PYTHON_ONLY, asked
from .text import check_model, runner_of, streamed, tried, whole

router = APIRouter(tags=["text"])


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
        pieces = runner.astream_complete(work.request)
        # An echo is there before anything is made.
        echoes = bool(work.request.echo)
        return await streamed(
            request, pieces, work.told, lambda one: echoes and _is_unfinished(one)
        )
    return await whole(request, runner.acomplete(work.request), work.told)


def _is_unfinished(chunk: object) -> bool:
    choices = getattr(chunk, "choices", [])
    return bool(choices) and all(choice.finish_reason is None for choice in choices)
