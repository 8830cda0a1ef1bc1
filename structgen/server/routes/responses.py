"""The Responses API, ``/v1/responses``: a request as a chat, and its typed events.

`turn_of` makes the chat: ``text.format`` is a flattened ``response_format``, and tools are
flattened, too. `Events` makes the answer from the chunks of a chat: an item is added, its parts are
added, grow and are done, the item is done, then the next one. A whole answer is made in the same
way, with nobody listening.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.errors import let_go
from structgen.options import FIELDS
from structgen.runner import AsyncChunkStream, ChatChunk, ChatRequest, samples_how

from ..batches import listed
from ..errors import ApiError, api_error
from ..exchange import EventStream, answered, begun, event, settings_of, too_long, written
from ..gateway import LOG
from ..items import BEGUN, items_of, messages_in, new_id, response_of, text_part, usage_of
from ..openapi import answers, body
from ..pictures import with_pictures
from ..settings import Settings
from ..shapes import CHAT_FIELDS, Deleted, InputItemList, ResponseAnswer, ResponsesBody
from ..store import Job, Jobs, Store, Stored
from ..wire import Asked, aside, asked, check_many, check_names, json_object, named, read, refused
from .text import check_sure, has_many_scores, note, runner_of, tried

SAME = (
    *(FIELDS.keys() - {"max_tokens", "truncate_sequence", "best", "retries"}),
    "model",
    "tool_choice",
    "parallel_tool_calls",
    "grammar",
    "grammar_type",
    "structured_outputs",
    "enable_thinking",
    "thinking_budget",
    "chat_template_kwargs",
)
"""Fields that are the same as in chats."""

_NAMES = {
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "truncate_sequence": "truncation",
    "logprobs": "include",
}
"""The names of fields of chats in this API."""


def turn_of(
    body: Mapping[str, Any], before: list[dict[str, Any]], settings: Settings
) -> tuple[Asked[ChatRequest], Stored]:
    """Return the chat for a request, and its answer before it begins.

    Args:
        body: the request.
        before: the messages of the answer that it continues.
        settings: the server's settings.

    Raises:
        ApiError: a field is unknown, unsupported or wrong.
    """
    chat: dict[str, Any] = {name: body[name] for name in SAME if name in body}
    check_names(body, {*SAME, *ResponsesBody.model_fields})
    left = {name: value for name, value in body.items() if name not in SAME}
    check_many(left.get("input"), "input", settings.max_inputs)
    given = read(ResponsesBody, left)
    items = items_of(left.get("input"))
    messages = [*before, *messages_in(items)]
    if before and len(json.dumps(messages, ensure_ascii=False)) > settings.max_body_bytes:
        raise refused(
            f"The messages so far have more than {settings.max_body_bytes:,} bytes "
            "(max_body_bytes). Start a new conversation with the messages you need, without "
            "previous_response_id.",
            "previous_response_id",
            "invalid_value",
        )
    if not messages:
        raise refused("input is missing. Pass a string or a list of items.", "input", "missing")
    head = []
    if given.instructions is not None:
        head = [{"role": "system", "content": given.instructions}]
    chat["messages"] = [*head, *messages]
    if given.max_output_tokens is not None:
        chat["max_tokens"] = given.max_output_tokens
    format_ = (left.get("text") or {}).get("format")
    if format_ is not None:
        chat["response_format"] = _format(format_)
    if given.text is not None and given.text.verbosity is not None:
        chat["verbosity"] = given.text.verbosity
    tools = None if left.get("tools") is None else [_tool(tool) for tool in left["tools"]]
    if tools is not None:
        chat["tools"] = [
            {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
            for tool in tools
        ]
    effort = None if given.reasoning is None else given.reasoning.effort
    if effort is not None:
        chat["reasoning_effort"] = effort
    if given.include or given.top_logprobs:
        chat["logprobs"] = True
    if given.top_logprobs is not None:
        chat["top_logprobs"] = given.top_logprobs
    if given.truncation == "auto":
        chat["truncate_sequence"] = True
    is_stored, in_background = given.store is not False, bool(given.background)
    if in_background and not is_stored:
        raise refused("background requires store=true.", "background", "invalid_value")
    chat["stream"] = bool(given.stream)
    work = asked(ChatRequest, chat, settings, rename=_renamed)
    work.request = ChatRequest.of(work.request, {"stream_options": {"include_usage": True}})
    echo = {
        "background": in_background,
        "instructions": given.instructions,
        "max_output_tokens": given.max_output_tokens,
        "metadata": given.metadata or {},
        "parallel_tool_calls": chat.get("parallel_tool_calls") is not False,
        "previous_response_id": given.previous_response_id,
        "reasoning": {"effort": effort, "summary": None},
        "store": is_stored,
        "temperature": chat.get("temperature"),
        "presence_penalty": chat.get("presence_penalty") or 0,
        "frequency_penalty": chat.get("frequency_penalty") or 0,
        "text": {"format": format_ or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": tools or [],
        "top_logprobs": given.top_logprobs or 0,
        "top_p": chat.get("top_p"),
        "truncation": given.truncation or "disabled",
        "user": given.user,
        "safety_identifier": given.safety_identifier,
        "prompt_cache_key": given.prompt_cache_key,
        "service_tier": "default",
        "max_tool_calls": None,
    }
    return work, Stored(response_of(echo), items, messages, owner="")


def _renamed(param: str) -> str:
    """Return this API's name of a field of a chat."""
    if param.startswith("messages"):
        return "input"
    if param.startswith("tools["):
        return param.replace("].function", "]", 1)
    if param.startswith("tool_choice.function"):
        return param.replace(".function", "", 1)
    return named(param, _NAMES)


def _format(given: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened ``text.format`` in the form of chats."""
    inner = {name: value for name, value in given.items() if name != "type" and value is not None}
    if given["type"] == "json_schema":
        return {"type": "json_schema", "json_schema": inner}
    return {"type": given["type"]}


def _tool(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with all its fields."""
    fields = {name: value for name, value in given.items() if value is not None}
    none = {"type": "object", "properties": {}}
    return {"description": None, "parameters": none, "strict": False, **fields}


@final
class Events:
    """The events of one answer."""

    def __init__(self, response: dict[str, Any]) -> None:
        self.response = response
        self._number = 0
        self._kind: str | None = None
        self._item: dict[str, Any] = {}
        self._text = ""
        self._logprobs: list[Any] = []
        self._reason: str | None = None

    def ahead(self) -> Events:
        """Copy this, to make events that may never be sent; followers see only what was sent."""
        made = copy(self)
        made.response, made._logprobs = dict(self.response), [*self._logprobs]
        return made

    def follow(self, ahead: Events) -> None:
        """Continue from a copy, whose events are sent now."""
        self.response |= ahead.response
        vars(self).update({**vars(ahead), "response": self.response})

    def begin(self) -> Iterator[bytes]:
        """Yield the events before the first chunk."""
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def feed(self, chunk: ChatChunk) -> Iterator[bytes]:
        """Yield the events of a chunk."""
        if chunk.usage is not None:
            self.response["usage"] = usage_of(chunk.usage)
        for choice in chunk.choices:
            delta = choice.delta
            scores: list[Any] = []
            if choice.logprobs is not None:
                scores = [one.model_dump(mode="json") for one in choice.logprobs.content or ()]
            if delta.reasoning_content:
                yield from self._reasoning(delta.reasoning_content)
            if delta.content:
                yield from self._message(delta.content, scores)
            for call in delta.tool_calls or ():
                if call.id is not None:
                    name = call.function.name or ""
                    yield from self._begin(
                        "function_call", "fc_", call_id=call.id, name=name, arguments=""
                    )
                if call.function.arguments:
                    yield from self._arguments(call.function.arguments)
            if self._kind == "message" and not delta.content:
                self._logprobs += scores  # of tokens without a text
            if choice.finish_reason is not None:
                self._reason = choice.finish_reason

    def takes_long(self, chunk: ChatChunk) -> bool:
        """Return whether the events of a chunk have many scores: its own, or those of a message
        that it ends."""
        ends = self._logprobs and any(choice.delta.tool_calls for choice in chunk.choices)
        return bool(ends) or has_many_scores(chunk)

    def end(self) -> Iterator[bytes]:
        """Yield the events after the last chunk."""
        is_cut = self._reason == "length"
        status = "incomplete" if is_cut else "completed"
        if not self.response["output"] and self._kind is None:
            yield from self._message("")  # an empty answer is an empty message
        yield from self._close(status)
        self.response["status"] = status
        self.response["completed_at"] = None if is_cut else int(time.time())
        if is_cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        yield self._event(f"response.{status}", response=self.response)

    def again(self) -> Iterator[bytes]:
        """Yield all events of a finished answer, each text in one piece."""
        whole = self.response
        self.response = {**whole, **BEGUN}
        yield from self.begin()
        for item in whole["output"]:
            if item["type"] == "function_call":
                skeleton = {**item, "arguments": "", "status": "in_progress"}
                yield from self._open("function_call", skeleton)
                yield from self._arguments(item["arguments"])
            else:
                yield from self._repeated(item)
            yield from self._close(item["status"])
        self.response = whole
        kind = {"completed": "completed", "failed": "failed"}.get(whole["status"], "incomplete")
        yield self._event(f"response.{kind}", response=self.response)

    def _repeated(self, item: dict[str, Any]) -> Iterator[bytes]:
        """Yield the events of an item of text."""
        text = "".join(part["text"] for part in item["content"])
        kind: str = item["type"]
        yield from self._open(kind, {**item, "content": [], "status": "in_progress"})
        if kind == "reasoning":
            yield self._part("added", {"type": "reasoning_text", "text": ""})
            yield from self._reasoning(text)
            return
        self._logprobs = item["content"][0]["logprobs"] if item["content"] else []
        yield self._part("added", text_part(""))
        yield from self._message(text)

    def cancel(self) -> Iterator[bytes]:
        """Yield the events after the last chunk of a cancelled answer."""
        yield from self._close("incomplete")
        self.response["status"] = "cancelled"
        yield self._event("response.incomplete", response=self.response)

    def fail(self, error: ApiError) -> bytes:
        """Return the last event of a failed answer."""
        self.response["status"] = "failed"
        self.response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=self.response)

    # -- items ------------------------------------------------------------------------------

    def _reasoning(self, text: str) -> Iterator[bytes]:
        if self._kind != "reasoning":
            yield from self._begin("reasoning", "rs_", summary=[], content=[])
            yield self._part("added", {"type": "reasoning_text", "text": ""})
        self._text += text
        yield self._of_item("response.reasoning_text.delta", content_index=0, delta=text)

    def _message(self, text: str, scores: Sequence[Any] = ()) -> Iterator[bytes]:
        if self._kind != "message":
            yield from self._begin("message", "msg_", role="assistant", content=[])
            yield self._part("added", text_part(""))
        self._text += text
        self._logprobs += scores
        if text:
            yield self._of_item(
                "response.output_text.delta", content_index=0, delta=text, logprobs=[*scores]
            )

    def _begin(self, kind: str, prefix: str, **fields: Any) -> Iterator[bytes]:
        """Add an item that has no content yet."""
        item = {"type": kind, "id": new_id(prefix), "status": "in_progress", **fields}
        yield from self._open(kind, item)

    def _arguments(self, text: str) -> Iterator[bytes]:
        self._text += text
        yield self._of_item("response.function_call_arguments.delta", delta=text)

    def _open(self, kind: str, item: dict[str, Any]) -> Iterator[bytes]:
        yield from self._close("completed")
        self._kind, self._item, self._text, self._logprobs = kind, item, "", []
        yield self._event("response.output_item.added", output_index=self._index, item=item)

    def _close(self, status: str) -> Iterator[bytes]:
        if self._kind is None:
            return
        item, text = {**self._item, "status": status}, self._text
        if self._kind == "function_call":
            item["arguments"] = text
            yield self._of_item(
                "response.function_call_arguments.done", arguments=text, name=item["name"]
            )
        else:
            part = {"type": "reasoning_text", "text": text}
            fields = {"content_index": 0, "text": text}
            if self._kind == "message":
                part, fields["logprobs"] = text_part(text, self._logprobs), self._logprobs
            kind = "output_text" if self._kind == "message" else "reasoning_text"
            yield self._of_item(f"response.{kind}.done", **fields)
            yield self._part("done", part)
            item["content"] = [part]
        yield self._event("response.output_item.done", output_index=self._index, item=item)
        self.response["output"] = [*self.response["output"], item]
        self._kind = None

    # -- events -----------------------------------------------------------------------------

    @property
    def _index(self) -> int:
        return len(self.response["output"])

    def _part(self, what: str, part: dict[str, Any]) -> bytes:
        return self._of_item(f"response.content_part.{what}", content_index=0, part=part)

    def _of_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=self._index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        data = {"type": kind, "sequence_number": number, **fields}
        return event(json.dumps(data, ensure_ascii=False), kind)


router = APIRouter(tags=["responses"])

_ENDED = ApiError(503, "The server stopped before this answer was finished.", code="server_error")
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
    """Answer an input, and store the answer so that a later request can continue it."""
    given = await json_object(request)
    is_large = await with_pictures(request, given) > 0
    before, settings = await _before(request, given), settings_of(request)
    asked, stored = await aside(
        request, lambda: turn_of(given, before, settings), is_large=is_large or bool(before)
    )
    chat = asked.request
    await tried(request, asked)
    runner = runner_of(request)
    stored.response["model"] = runner.get_model_info(chat.model)["id"]
    stored.owner = request.state.owner
    _settle(request, asked, stored)
    if stored.response["background"]:
        return await _in_background(request, asked, stored)
    events, pieces = Events(stored.response), runner.astream_chat(chat)
    if not asked.streams:
        made = _made(request, asked, stored, events, pieces)
        await answered(request, _read(made), asked.to_error)
        return await written(request, stored.response)
    going = await begun(request, pieces, asked.to_error)
    _settle(request, asked, stored)
    return EventStream(
        _made(request, asked, stored, events, going),
        most=settings_of(request).request_seconds,
        to_error=asked.to_error,
        failed=events.fail,
    )


def _settle(request: Request, asked: Asked[ChatRequest], stored: Stored) -> None:
    """Set an answer's sampling settings, which are known once the model is loaded."""
    info = runner_of(request).get_model_info(stored.response["model"])
    stored.response |= samples_how(asked.request, info["search_defaults"])


async def _made(
    request: Request,
    asked: Asked[ChatRequest],
    stored: Stored,
    events: Events,
    pieces: AsyncChunkStream[ChatChunk] | AsyncGenerator[ChatChunk, None],
) -> AsyncGenerator[bytes, None]:
    """Yield the events of an answer made of a chat's chunks; it is stored before the last one."""
    # Those of streams count while they are unread.
    is_counted = not (stored.response["background"] or asked.streams)
    every = partial(_all, request, is_counted=is_counted)
    async with aclosing(pieces):
        for one in events.begin():
            yield one
        async for piece in pieces:
            note(request, piece)
            check_sure(piece)
            news: Iterable[bytes] = events.feed(piece)
            if events.takes_long(piece):
                ahead = events.ahead()
                news = await _all(request, ahead.feed(piece))
                events.follow(ahead)
            for one in news:
                yield one
        _settle(request, asked, stored)
        ahead = events.ahead()
        last = await every(ahead.end())
        if stored.response["store"] and not stored.response["background"]:
            await _store(request).put(replace(stored, response=ahead.response))
        events.follow(ahead)
        for one in last:
            yield one


async def _read(events: AsyncGenerator[bytes, None]) -> None:
    async for _ in events:
        pass


async def _all(
    request: Request, events: Iterator[bytes], *, is_counted: bool = False
) -> list[bytes]:
    """Make events that repeat the whole answer, maybe with scores of thousands of tokens."""
    made = await aside(request, lambda: list(events), is_large=True)
    if is_counted:
        request.state.taken(sum(map(len, made)))
    return made


async def _in_background(request: Request, asked: Asked[ChatRequest], stored: Stored) -> Any:
    """Begin an answer in the background."""
    stored.response["status"] = "queued"
    size = await aside(request, lambda: sum(map(len, stored.texts())), is_large=True)
    job = Job(stored, size)
    _jobs(request).add(job)
    try:
        await _store(request).put(stored)
    except BaseException:
        job.end()
        raise
    job.task = asyncio.ensure_future(_done(request, asked, job))
    if asked.streams:
        return _followed(request, job.after(-1))
    return await written(request, stored.response)


def _followed(request: Request, events: AsyncGenerator[bytes, None]) -> Response:
    """Return a stream of the events of an answer that is made in the background."""
    return EventStream(events, most=settings_of(request).request_seconds, to_error=api_error)


async def _done(request: Request, asked: Asked[ChatRequest], job: Job) -> None:
    """Make an answer in the background."""
    stored = job.stored
    stored.response["status"] = "in_progress"
    events = Events(stored.response)
    most = settings_of(request).request_seconds
    pieces = runner_of(request).astream_chat(asked.request)

    async def make() -> None:
        async for one in _made(request, asked, stored, events, pieces):
            job.add(one)

    try:
        await asyncio.wait_for(make(), most)
    except asyncio.CancelledError:
        if not job.is_stopped:
            job.add(events.fail(_ENDED))
        else:
            for one in await aside(request, lambda: list(events.cancel()), is_large=True):
                job.add(one)
    except asyncio.TimeoutError:
        job.add(events.fail(too_long(most)))
    except Exception as error:
        api = asked.to_error(error)
        if api.status == 500:
            LOG.error("a background answer failed", exc_info=error)
        let_go(error)
        job.add(events.fail(api))
    finally:
        job.end()
        try:
            if job.is_wanted:
                await asyncio.shield(_store(request).put(stored))
                job.is_kept = True
            # The store has them from now on; they may be megabytes.
            stored.items, stored.messages = [], []
        except ApiError as error:  # for example a full disk: served from here while it is held
            LOG.error("cannot store the answer %s: %s", stored.response["id"], error)
            let_go(error)
            job.size += await aside(request, lambda: sum(map(len, stored.texts())), is_large=True)


async def _before(request: Request, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of the answer that a request continues."""
    id_ = body.get("previous_response_id")
    if id_ is None:
        return []
    found = await _known(request, id_) if isinstance(id_, str) else None
    if found is None:
        raise refused(_none(request, id_), "previous_response_id", "previous_response_not_found")
    if found.response["status"] not in ("completed", "incomplete"):
        raise refused(
            f"The answer {id_} is {found.response['status']}.",
            "previous_response_id",
            "invalid_value",
        )
    return [*found.messages, *messages_in(found.response["output"])]


async def _known(request: Request, id_: str) -> Stored | None:
    """Return an answer of this client as far as it has come. Its bytes count until the request
    ends.

    Raises:
        ApiError: this client has too much under way.
    """
    owner = request.state.owner
    job = _jobs(request).get(id_, owner)
    if job is not None and job.task is not None and not (job.task.done() and job.is_kept):
        return job.stored
    found = await answered(request, _store(request).get(id_, owner))
    request.state.taken(0 if found is None else found.size)
    if found is not None and found.response["status"] in ("queued", "in_progress"):
        Events(found.response).fail(_ENDED)  # its server was killed, and nobody continues it
    return found


def _none(request: Request, id_: object) -> str:
    other = " Another server may have it: this is one of several servers that do not share answers."
    return (
        f"There is no answer {id_!r}. It was not stored, or it was deleted to make room for newer "
        "ones."
    ) + (other if settings_of(request).replicated else "")


async def _found(request: Request, id_: str) -> Stored:
    found = await _known(request, id_)
    if found is None:
        raise ApiError(404, _none(request, id_), code="response_not_found")
    return found


_QUERY = {
    "parameters": [
        {
            "name": "stream",
            "in": "query",
            "description": "Whether to stream the answer's events from the beginning.",
            "schema": {"type": "boolean"},
        },
        {
            "name": "starting_after",
            "in": "query",
            "description": "With stream=true: the number of the last event that you have received.",
            "schema": {"type": "integer", "minimum": 0},
        },
    ]
}


@router.post("/v1/responses/compact", include_in_schema=False)
@router.post("/v1/responses/input_tokens", include_in_schema=False)
async def not_here(request: Request) -> None:
    """Refuse OpenAI's other routes, which would otherwise be read as ids of answers."""
    raise ApiError(404, f"There is no POST {request.url.path}. See /docs.", code="not_found")


@router.get("/v1/responses/{response_id}", openapi_extra=_QUERY, responses=_ANSWERS)
async def retrieve(response_id: str, request: Request) -> Any:
    """Return a stored answer, or its events: the past ones, then more as they come."""
    follows, after = _asked(request)
    found = await _found(request, response_id)
    if not follows:
        return await written(request, found.response)
    job = _jobs(request).get(response_id, request.state.owner)
    if job is not None:
        return _followed(request, job.after(after))
    events = await answered(request, _all(request, Events(found.response).again()))

    async def replayed() -> AsyncGenerator[bytes, None]:
        # Clients that followed it in smaller pieces get the end, too.
        for one in events[after + 1 :] or events[-1:]:
            yield one

    return _followed(request, replayed())


def _asked(request: Request) -> tuple[bool, int]:
    """Return the query: whether to stream, and after which event."""
    follows, after = False, None
    for name, value in request.query_params.multi_items():
        if name == "stream" and value.lower() in ("true", "false"):
            follows = value.lower() == "true"
        elif name == "starting_after" and value.isascii() and value.isdigit():
            after = int(value[:18])
        elif name in ("stream", "starting_after"):
            raise refused(
                f"{name}: {value!r} is not one of the supported values.", name, "invalid_value"
            )
        else:
            raise refused(f"{name} is not supported here.", name)
    if after is not None and not follows:
        raise refused("starting_after requires stream=true.", "starting_after", "invalid_value")
    return follows, -1 if after is None else after


@router.delete("/v1/responses/{response_id}", responses=answers(Deleted))
async def delete(response_id: str, request: Request) -> dict[str, Any]:
    """Delete an answer; one in the background is stopped."""
    await _found(request, response_id)
    if _jobs(request).get(response_id, request.state.owner) is not None:
        await _jobs(request).stop(response_id, forget=True)
    await _store(request).remove(response_id, request.state.owner)
    return {"id": response_id, "object": "response", "deleted": True}


@router.post("/v1/responses/{response_id}/cancel", responses=answers(ResponseAnswer))
async def cancel(response_id: str, request: Request) -> Response:
    """Stop an answer that runs in the background."""
    found = await _found(request, response_id)
    if not found.response["background"]:
        raise ApiError(400, "Only a background answer can be cancelled.", code="not_in_background")
    job = _jobs(request).get(response_id, request.state.owner)
    if job is not None:
        await _jobs(request).stop(response_id)
        if job.stored.response["status"] == "queued":  # the task had not begun
            job.stored.response["status"] = "cancelled"
            await _store(request).put(job.stored)
        found = job.stored
    return await written(request, found.response)


@router.get("/v1/responses/{response_id}/input_items", responses=answers(InputItemList))
async def input_items(response_id: str, request: Request) -> Response:
    """Return the input items of an answer, the last first."""
    items = (await _found(request, response_id)).items[::-1]
    return await written(request, listed(items, request.query_params))
