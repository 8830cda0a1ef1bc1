"""The endpoints of the Responses API: ``/v1/responses``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import ChatChunk, ChatRequest, samples_how

from ..background import Job, Jobs
from ..bodies import aside, json_object
from ..errors import ApiError, told
from ..exchange import answered, settings_of, too_long, written
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
from .text import check_model, check_sure, note, runner_of, said, tried

router = APIRouter(tags=["responses"])

_CHAT = {**ChatRequest.model_json_schema()["properties"], **CHAT_FIELDS}
_BODY = body(ResponsesBody, more={name: _CHAT[name] for name in SAME})
_ANSWERS = answers(ResponseAnswer, events="typed events of the Responses API")


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


@router.post("/v1/responses", openapi_extra=_BODY, responses=_ANSWERS)
async def create(request: Request) -> Any:
    """Answer an input; keep the answer, so that another can go on from it."""
    given = await json_object(request)
    before, settings = await _before(request, given), settings_of(request)
    turn = await aside(request, lambda: turn_of(given, before, settings))
    chat = turn.asked.request
    check_model(request, chat.model)
    await tried(request, turn.asked)
    runner = runner_of(request)
    model = runner.get_model_info(chat.model)["id"]
    stored = Stored(response_of(turn.echo, model), turn.items, turn.messages, request.state.owner)
    _settle(request, turn, stored)
    if turn.in_background:
        return await _in_background(request, turn, stored)
    if turn.asked.streams:
        return await _streamed(request, turn, stored)
    pieces = runner.astream_chat(chat)
    try:
        await answered(request, _finished(pieces, Events(stored.response)))
    except Exception as error:
        raise said(error, turn.asked.told) from error
    finally:
        await pieces.aclose()
    _settle(request, turn, stored)
    await _keep(request, turn, stored)
    return await written(request, stored.response)


def _settle(request: Request, turn: Turn, stored: Stored) -> None:
    """Have an answer say how it is sampled, which the model knows once it is loaded."""
    info = runner_of(request).get_model_info(stored.response["model"])
    stored.response |= samples_how(turn.asked.request, info["search_defaults"])


async def _finished(pieces: AsyncIterator[ChatChunk], events: Events) -> None:
    """Have the chunks of a chat make an answer."""
    async for piece in pieces:
        check_sure(piece)
        list(events.feed(piece))
    list(events.end())


async def _in_background(request: Request, turn: Turn, stored: Stored) -> Any:
    """Begin an answer that nobody waits for."""
    stored.response["status"] = "queued"
    size = await aside(request, lambda: sum(map(len, stored.texts())), is_large=True)
    job = Job(stored, size)
    _jobs(request).add(job)
    try:
        await _store(request).put(stored)
    except BaseException:
        job.end()
        raise
    job.task = asyncio.ensure_future(_done(request, turn, job))
    if turn.asked.streams:
        return _followed(request, job.after(-1))
    return await written(request, stored.response)


def _followed(request: Request, events: AsyncGenerator[bytes, None]) -> Response:
    """A stream of events of an answer that is made whether somebody follows it or not."""
    return EventStream(events, most=settings_of(request).request_seconds, told=told)


async def _done(request: Request, turn: Turn, job: Job) -> None:
    """Make an answer in the background."""
    stored = job.stored
    stored.response["status"] = "in_progress"
    events = Events(stored.response)
    most = settings_of(request).request_seconds
    pieces = runner_of(request).astream_chat(turn.asked.request)

    async def make() -> None:
        for one in events.begin():
            job.say(one)
        async for piece in pieces:
            check_sure(piece)
            for one in events.feed(piece):
                job.say(one)
        _settle(request, turn, stored)
        for one in events.end():
            job.say(one)

    try:
        await asyncio.wait_for(make(), most)
    except asyncio.CancelledError:
        for one in events.cancel():
            job.say(one)
    except asyncio.TimeoutError:
        job.say(events.fail(too_long(most)))
    except Exception as error:
        api = turn.asked.told(error)
        if api.status == 500:
            LOG.error("an answer in the background failed", exc_info=error)
        job.say(events.fail(api))
    finally:
        job.end()
        await pieces.aclose()
        if job.is_wanted:
            await asyncio.shield(_store(request).put(stored))
        stored.items, stored.messages = [], []  # the store's from now on: they may be megabytes


async def _streamed(request: Request, turn: Turn, stored: Stored) -> Response:
    pieces = runner_of(request).astream_chat(turn.asked.request)
    try:
        going = await begun(request, pieces, is_head)
    except Exception as error:
        raise said(error, turn.asked.told) from error
    _settle(request, turn, stored)
    events = Events(stored.response)

    async def made() -> AsyncGenerator[bytes, None]:
        try:
            for one in events.begin():
                yield one
            async for piece in going:
                note(request, piece)
                check_sure(piece)
                for one in events.feed(piece):
                    yield one
            last = list(events.end())
            await _keep(request, turn, stored)
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


async def _keep(request: Request, turn: Turn, stored: Stored) -> None:
    if turn.is_stored:
        await _store(request).put(stored)


async def _before(request: Request, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of the answer that a request goes on from."""
    id_ = body.get("previous_response_id")
    if id_ is None:
        return []
    found = await _known(request, id_) if isinstance(id_, str) else None
    if found is None:
        raise refused(_none(id_), "previous_response_id", "previous_response_not_found")
    if found.response["status"] not in ("completed", "incomplete"):
        raise refused(
            f"The answer {id_} is {found.response['status']}.",
            "previous_response_id",
            "invalid_value",
        )
    return [*found.messages, *messages_in(found.response["output"])]


async def _known(request: Request, id_: str) -> Stored | None:
    """An answer of whoever asks, as far as it is there."""
    owner = request.state.owner
    job = _jobs(request).get(id_, owner)
    if job is not None and job.task is not None and not job.task.done():
        return job.stored
    found = await _store(request).get(id_, owner)
    if found is not None and found.response["status"] in ("queued", "in_progress"):
        # Its server ended before it was done: nobody goes on with it.
        events = Events(found.response)
        events.fail(
            ApiError(503, "The server ended while this answer was made.", code="server_error")
        )
    return found


def _none(id_: object) -> str:
    return f"There is no answer {id_!r}. It was not stored, or has been dropped for newer ones."


async def _found(request: Request, id_: str) -> Stored:
    found = await _known(request, id_)
    if found is None:
        raise ApiError(404, _none(id_), code="response_not_found")
    return found


_QUERY = {
    "parameters": [
        {
            "name": "stream",
            "in": "query",
            "description": "Whether to follow the answer's events, from their beginning.",
            "schema": {"type": "boolean"},
        },
        {
            "name": "starting_after",
            "in": "query",
            "description": "With stream=true: the number of the last event that is known.",
            "schema": {"type": "integer", "minimum": 0},
        },
    ]
}


@router.post("/v1/responses/compact", include_in_schema=False)
@router.post("/v1/responses/input_tokens", include_in_schema=False)
async def not_here(request: Request) -> None:
    """What OpenAI has besides: no answers of these names."""
    raise ApiError(404, f"There is no POST {request.url.path}. See /docs.", code="not_found")


@router.get("/v1/responses/{response_id}", openapi_extra=_QUERY, responses=_ANSWERS)
async def retrieve(response_id: str, request: Request) -> Any:
    """An answer that was stored, or its events: those that are there, then more as they come."""
    follows, after = _asked(request)
    found = await _found(request, response_id)
    if not follows:
        return await written(request, found.response)
    job = _jobs(request).get(response_id, request.state.owner)
    if job is not None:
        return _followed(request, job.after(after))
    events = list(Events(found.response).again())

    async def told_again() -> AsyncGenerator[bytes, None]:
        # The end is told to those, too, who have followed it when it came in smaller pieces.
        for one in events[after + 1 :] or events[-1:]:
            yield one

    return _followed(request, told_again())


def _asked(request: Request) -> tuple[bool, int]:
    """What a query says: whether to stream, and after which event."""
    follows, after = False, None
    for name, value in request.query_params.multi_items():
        if name == "stream" and value.lower() in ("true", "false"):
            follows = value.lower() == "true"
        elif name == "starting_after" and value.isascii() and value.isdigit():
            after = int(value[:18])
        elif name in ("stream", "starting_after"):
            raise refused(f"{name}: {value!r} is not one of its values.", name, "invalid_value")
        else:
            raise refused(f"{name} is not supported here.", name)
    if after is not None and not follows:
        raise refused(
            "starting_after is of no use without stream=true.", "starting_after", "invalid_value"
        )
    return follows, -1 if after is None else after


@router.delete("/v1/responses/{response_id}", responses=answers(DeletedResponse))
async def delete(response_id: str, request: Request) -> dict[str, Any]:
    """Forget an answer; one that is being made in the background ends."""
    await _found(request, response_id)
    if _jobs(request).get(response_id, request.state.owner) is not None:
        await _jobs(request).stop(response_id, forget=True)
    await _store(request).remove(response_id, request.state.owner)
    return {"id": response_id, "object": "response", "deleted": True}


@router.post("/v1/responses/{response_id}/cancel", responses=answers(ResponseAnswer))
async def cancel(response_id: str, request: Request) -> Response:
    """End an answer that is being made in the background."""
    found = await _found(request, response_id)
    if not found.response["background"]:
        raise ApiError(
            400, "Only an answer in the background can be cancelled.", code="not_in_background"
        )
    job = _jobs(request).get(response_id, request.state.owner)
    if job is not None:
        await _jobs(request).stop(response_id)
        if job.stored.response["status"] == "queued":  # its task had not begun
            job.stored.response["status"] = "cancelled"
            await _store(request).put(job.stored)
        return await written(request, job.stored.response)
    return await written(request, found.response)


@router.get("/v1/responses/{response_id}/input_items", responses=answers(InputItemList))
async def input_items(response_id: str, request: Request) -> Response:
    """The items that an answer is to, the last first."""
    items = (await _found(request, response_id)).items[::-1]
    answer = {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": False,
    }
    return await written(request, answer)
