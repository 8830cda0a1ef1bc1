"""The endpoints of the Responses API: ``/v1/responses``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import ChatChunk, ChatRequest

from ..bodies import json_object
from ..errors import ApiError
from ..exchange import answered, settings_of, too_long
from ..gateway import LOG
from ..input_items import messages_in
from ..openapi import answers, body
from ..output_items import response_of
from ..response_events import Events
from ..shapes import (
    CHAT_FIELDS,
    DeletedResponse,
    InputItemList,
    ResponseAnswer,
    ResponsesBody,
)
from ..sse import EventStream, begun
from ..store import Store, Stored
from ..turn import SAME, Turn, turn_of
from ..wire import refused
from .chat import is_head
from .text import check_model, note, runner_of, said, tried

router = APIRouter(tags=["responses"])

_CHAT = {**ChatRequest.model_json_schema()["properties"], **CHAT_FIELDS}
_BODY = body(ResponsesBody, more={name: _CHAT[name] for name in SAME})
_ANSWERS = answers(ResponseAnswer, events="typed events of the Responses API")


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


@router.post("/v1/responses", openapi_extra=_BODY, responses=_ANSWERS)
async def create(request: Request) -> Any:
    """Answer an input; keep the answer, so that another can go on from it."""
    body = await json_object(request)
    turn = turn_of(body, _before(request, body), settings_of(request))
    chat = turn.asked.request
    check_model(request, chat.model)
    await tried(request, turn.asked)
    runner = runner_of(request)
    model = runner.get_model_info(chat.model)["id"]
    stored = Stored(response_of(turn.echo, model), turn.items, turn.messages, request.state.holder)
    if turn.asked.streams:
        return await _streamed(request, turn, stored)
    if turn.in_background:
        stored.response["status"] = "queued"
        stored.task = asyncio.ensure_future(_in_background(request, turn, stored))
        _store(request).put(stored)
        return stored.response
    pieces = runner.astream_chat(chat)
    try:
        await answered(request, _finished(pieces, Events(stored.response)))
    except Exception as error:
        raise said(error, turn.asked.told) from error
    finally:
        await pieces.aclose()
    _keep(request, turn, stored)
    return stored.response


async def _finished(pieces: AsyncIterator[ChatChunk], events: Events) -> None:
    """Have the chunks of a chat make an answer."""
    async for piece in pieces:
        list(events.feed(piece))
    list(events.end())


async def _in_background(request: Request, turn: Turn, stored: Stored) -> None:
    """Make an answer that nobody waits for."""
    stored.response["status"] = "in_progress"
    events = Events(stored.response)
    most = settings_of(request).request_seconds
    pieces = runner_of(request).astream_chat(turn.asked.request)
    try:
        await asyncio.wait_for(_finished(pieces, events), most)
    except asyncio.CancelledError:
        stored.response["status"] = "cancelled"
        raise
    except asyncio.TimeoutError:
        events.fail(too_long(most))
    except Exception as error:
        api = turn.asked.told(error)
        if api.status == 500:
            LOG.error("an answer in the background failed", exc_info=error)
        events.fail(api)
    finally:
        await pieces.aclose()
        stored.task = None
        store = _store(request)
        if store.get(stored.response["id"], stored.holder) is not None:
            store.put(stored)


async def _streamed(request: Request, turn: Turn, stored: Stored) -> Response:
    pieces = runner_of(request).astream_chat(turn.asked.request)
    try:
        going = await begun(request, pieces, is_head)
    except Exception as error:
        raise said(error, turn.asked.told) from error
    events = Events(stored.response)

    async def made() -> AsyncGenerator[bytes, None]:
        try:
            for one in events.begin():
                yield one
            async for piece in going:
                note(request, piece)
                for one in events.feed(piece):
                    yield one
            last = list(events.end())
            _keep(request, turn, stored)
            for one in last:
                yield one
        finally:
            await going.aclose()

    return EventStream(
        made(),
        most=settings_of(request).request_seconds,
        told=turn.asked.told,
        failed=events.fail,
    )


def _keep(request: Request, turn: Turn, stored: Stored) -> None:
    if turn.is_stored:
        _store(request).put(stored)


def _before(request: Request, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of the answer that a request goes on from."""
    id_ = body.get("previous_response_id")
    if id_ is None:
        return []
    found = _store(request).get(id_, request.state.holder) if isinstance(id_, str) else None
    if found is None:
        raise refused(
            f"There is no answer {id_!r}. It was not stored, or has been dropped for newer ones.",
            "previous_response_id",
            "previous_response_not_found",
        )
    if found.response["status"] not in ("completed", "incomplete"):
        raise refused(
            f"The answer {id_} is {found.response['status']}.",
            "previous_response_id",
            "invalid_value",
        )
    return [*found.messages, *messages_in(found.response["output"])]


def _found(request: Request, id_: str) -> Stored:
    found = _store(request).get(id_, request.state.holder)
    if found is None:
        raise ApiError(
            404,
            f"There is no answer {id_!r}. It was not stored, or has been dropped for newer ones.",
            code="response_not_found",
        )
    return found


@router.get("/v1/responses/{response_id}", responses=_ANSWERS)
async def retrieve(response_id: str, request: Request) -> dict[str, Any]:
    """An answer that was stored."""
    for name, value in request.query_params.multi_items():
        if name != "stream" or value.lower() != "false":
            raise refused(f"{name} is not supported here.", name)
    return _found(request, response_id).response


@router.delete("/v1/responses/{response_id}", responses=answers(DeletedResponse))
async def delete(response_id: str, request: Request) -> dict[str, Any]:
    """Forget an answer; one that is being made in the background ends."""
    found = _found(request, response_id)
    if found.task is not None:
        found.task.cancel()
    _store(request).remove(response_id, request.state.holder)
    return {"id": response_id, "object": "response", "deleted": True}


@router.post("/v1/responses/{response_id}/cancel", responses=answers(ResponseAnswer))
async def cancel(response_id: str, request: Request) -> dict[str, Any]:
    """End an answer that is being made in the background."""
    found = _found(request, response_id)
    if not found.response["background"]:
        raise ApiError(
            400, "Only an answer in the background can be cancelled.", code="not_in_background"
        )
    task = found.task
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if found.response["status"] in ("queued", "in_progress"):  # it had not begun
        found.response["status"] = "cancelled"
    return found.response


@router.get("/v1/responses/{response_id}/input_items", responses=answers(InputItemList))
async def input_items(response_id: str, request: Request) -> dict[str, Any]:
    """The items that an answer is to, the last first."""
    items = _found(request, response_id).items[::-1]
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": False,
    }
