"""The agent loop: the model calls tools, they run, it reads the results, until it answers.

Owns the rounds of one chat: which calls run, with whose leave, what goes back to the model, when
tools are offered no more, and what is told of it all. It asks a model through a function that it is
given, once a round, and is written once for answers that are streamed and those that are not. Knows
no models and no sessions.

    messages ─▶ model ─▶ calls ─▶ approve ─▶ run, side by side ─▶ results ─▶ model ─▶ … ─▶ answer

A round ends the loop when the model calls nothing, or calls a tool that has no code: its calls are
then the caller's, and none of that round has run. After ``max_tool_rounds`` rounds, or when the
same calls have had the same results three times, the model is asked once more, and may call none.
The prompt still tells of the tools: what the model has read of it stays read. An answer is a value
of the type asked for, or a text that says something, by mask.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, final

from structgen.errors import OptionError, OutputTypeError, ParseError, RequestError, StructgenError
from structgen.types import Call

from .loops import carried
from .messages import Message
from .metrics import Metrics
from .requests import ChatRequest
from .responses import AgenticEnd, AgenticToolCall, ChatChunk, ChatResponse, ToolCall
from .rounds import as_message, event_of, further, is_held, summed, until
from .running import CancelledInside, in_thread, is_async, within
from .shape import Usage
from .tools import (
    LONGEST_RESULT,
    TIMEOUT_SECONDS,
    Tool,
    ToolOutcome,
    check_seconds,
    shown,
    tools_of,
)
from .tracing import NO_SPAN, Span, Traces

T = TypeVar("T")

_GRACE_SECONDS = 5.0
_MOST_REPEATS = 3  # of the same calls with the same results: the next round would be another
_REFUSED = "The call was not approved."


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call that waits for leave to run: what ``approve`` is called with.

    Attributes:
        name: the tool's.
        arguments: checked values by name.
        id: of the call.
        round: in which round of the loop, from 1.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str
    round: int


Approve: TypeAlias = "Callable[[ToolRequest], bool | str | Awaitable[bool | str]]"
"""True: it runs. False, or a str that says why: it does not, and the model is told."""

Asked: TypeAlias = "AsyncGenerator[ChatChunk | ChatResponse, None]"
"""One answer of the model: its chunks, if it is streamed, and then the whole."""


@dataclass(slots=True)
class Watched:
    """Who is told of calls.

    Attributes:
        metrics: counts them; None: nobody does.
        traces: makes their spans.
        span: that of the request.
    """

    metrics: Metrics | None = None
    traces: Traces = field(default_factory=lambda: Traces(False))
    span: Span = NO_SPAN


@final
class Agent:
    """The loop for one request.

    Args:
        request: what was asked, with ``max_tool_rounds``.
        loop: where tools and ``approve`` run; None: where this does.
        watched: who is told.

    Raises:
        RequestError: a field is wrong.
        OutputTypeError: a tool is none.
    """

    def __init__(
        self,
        request: ChatRequest,
        loop: asyncio.AbstractEventLoop | None = None,
        watched: Watched | None = None,
    ) -> None:
        if request.max_tool_rounds is None:
            raise RequestError("There are no rounds.", param="max_tool_rounds")
        if not request.tools:
            raise RequestError(
                "max_tool_rounds is of no use without tools.", param="max_tool_rounds"
            )
        if (request.n or 1) != 1:
            raise RequestError(
                "n: with max_tool_rounds there is one answer, as tools run for it.", param="n"
            )
        if request.approve is not None and not callable(request.approve):
            raise RequestError("approve is no function.", param="approve")
        _check(request.tool_timeout)
        self._request = request
        self._rounds: int = request.max_tool_rounds
        self._tools = expanded(request.tools)
        self._loop = loop
        self._watched = watched or Watched()
        self._timeout = TIMEOUT_SECONDS if request.tool_timeout is None else request.tool_timeout
        longest = request.max_tool_result
        self._longest = LONGEST_RESULT if longest is None else longest
        self._log: list[AgenticToolCall] = []
        self._added: list[Message] = []
        self._usages: list[Usage] = []
        self._id = ""
        self._created = 0

    async def answer(self, ask: Callable[[ChatRequest], Asked]) -> Asked:
        """The chunks of all rounds, if they are streamed, and then the response.

        Args:
            ask: asks the model once.

        Raises:
            What asking raises, and what ``approve`` does; of tools only what is no `Exception`.
        """
        messages = list(self._request.messages)
        choice = self._request.tool_choice
        seen: Counter[Hashable] = Counter()
        end: AgenticEnd = "answer"
        for number in range(1, self._rounds + 2):
            if number > self._rounds:
                end = "rounds"
            is_last = end != "answer"
            asked = self._request.model_copy(
                update={
                    "messages": messages,
                    "tools": [tool.source for tool in self._tools.values()],
                    "tool_choice": "none" if is_last else choice,
                    "parallel_tool_calls": None if is_last else self._request.parallel_tool_calls,
                    **_NOT_ASKED,
                }
            )
            asked._says_something = True
            response: ChatResponse | None = None
            held: list[ChatChunk] = []
            async with aclosing(ask(asked)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatResponse):
                        response = piece
                    elif is_held(piece):
                        held.append(piece)
                    elif self._follows(piece):
                        yield piece
            assert response is not None
            if self._id:
                response.id, response.created = self._id, self._created
            self._usages.append(response.usage)
            message = response.choices[0].message
            said = as_message(message)
            self._added.append(said)
            calls = message.tool_calls or []
            if is_last or not self._runs(calls):
                response.agentic_end = "calls" if calls else end
                for chunk in filter(self._follows, held):
                    if any(choice.finish_reason for choice in chunk.choices):
                        chunk.agentic_end = response.agentic_end
                    yield chunk
                yield self._whole(response)
                return
            events: asyncio.Queue[AgenticToolCall] = asyncio.Queue()
            results = asyncio.ensure_future(self._run(calls, response, number, events.put_nowait))
            try:
                async for event in until(results, events):
                    yield event_of(response, event)
                told = await results
            finally:
                results.cancel()
            self._added += told
            done = tuple(
                sorted((_key(call), one.text) for call, one in zip(calls, told, strict=True))
            )
            seen[done] += 1
            if seen[done] == _MOST_REPEATS:
                end = "repeats"
            messages = [*messages, said, *told]
            choice = further(choice)

    def _follows(self, chunk: ChatChunk) -> bool:
        """Have a chunk follow those before it: one answer has one id, and begins once."""
        if not self._id:
            self._id, self._created = chunk.id, chunk.created
            return True
        chunk.id, chunk.created = self._id, self._created
        begins = [choice.delta.role is not None for choice in chunk.choices]
        return not (self._usages and any(begins))

    def _runs(self, calls: Sequence[ToolCall]) -> bool:
        """Whether there are calls, all of tools that have code."""
        found = [self._tools.get(call.function.name) for call in calls]
        return bool(calls) and all(tool is None or tool.is_runnable for tool in found)

    async def _run(
        self,
        calls: Sequence[ToolCall],
        response: ChatResponse,
        number: int,
        tell: Callable[[AgenticToolCall], None],
    ) -> list[Message]:
        """Run the calls of a round, side by side; what the model is told, in their order."""
        made: list[tuple[AgenticToolCall, Callable[[], Awaitable[ToolOutcome]] | None]] = []
        first: dict[str, AgenticToolCall] = {}
        same: list[tuple[AgenticToolCall, AgenticToolCall]] = []
        for call in calls:  # one after another: somebody may be asked
            before = first.get(_key(call))
            if before is None:
                made.append(await self._permitted(call, number))
                first[_key(call)] = made[-1][0]
            else:
                record = _record(call, number)
                record.repeats = before.id
                same.append((record, before))
                made.append((record, None))
        for record, _ in made:
            self._log.append(record)
            tell(record.model_copy())
        tasks = [
            asyncio.ensure_future(self._done(record, run, tell)) for record, run in made if run
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for record, before in same:
            for name in ("status", "approved", "result", "error", "cut", "_value"):
                setattr(record, name, getattr(before, name))
            tell(record.model_copy())
        return [
            # Some templates want the name, too.
            Message(
                role="tool",
                content=record.result or "",
                tool_call_id=record.id,
                name=record.name,
            )
            for record, _ in made
        ]

    async def _permitted(
        self, call: ToolCall, number: int
    ) -> tuple[AgenticToolCall, Callable[[], Awaitable[ToolOutcome]] | None]:
        """The record of a call, and what runs it, if it may run."""
        name, arguments = call.function.name, call.function.arguments
        record = _record(call, number)
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            return self._failed(record, f"There is no tool {name!r}. There are: {known}."), None
        try:
            checked = tool.parse(arguments)
        except ParseError as error:
            return self._failed(record, f"The arguments are not valid: {error}"), None
        except Exception as error:  # of a class's own checks
            return self._failed(record, await tool.raised(error)), None
        if self._request.approve is not None:
            leave = await self._asked(ToolRequest(name, checked.arguments, call.id, number))
            record.approved = leave is True
            if leave is not True:
                record.status = "refused"
                why = leave if isinstance(leave, str) and leave else ""
                self._tell(record, f"{_REFUSED} {why}".rstrip())
                self._count(name, "refused", None)
                return record, None
        return record, lambda: self._ran(tool, checked, record)

    async def _asked(self, request: ToolRequest) -> bool | str:
        """What ``approve`` says."""
        approve = self._request.approve

        async def asked() -> Any:
            if is_async(approve):
                return await approve(request)
            leave = await in_thread(lambda: approve(request), "approve")
            return await leave if inspect.isawaitable(leave) else leave

        try:
            leave = await self._there(lambda: within(None, asked()))
        except CancelledInside as error:
            raise OptionError(
                f"approve raised CancelledError for a call of {request.name}. It has to return "
                "True, False, or a str that says why not."
            ) from error
        if not isinstance(leave, (bool, str)):
            raise OptionError(
                f"approve returned {leave!r} for a call of {request.name}. It has to return True, "
                "False, or a str that says why not."
            )
        return leave

    async def _done(
        self,
        record: AgenticToolCall,
        run: Callable[[], Awaitable[ToolOutcome]],
        tell: Callable[[AgenticToolCall], None],
    ) -> None:
        outcome = await run()
        record.result, record.error = outcome.content, outcome.error
        record.status = "completed" if outcome.error is None else "failed"
        record.seconds = round(outcome.seconds, 6)
        record.cut = True if outcome.cut else None
        record._value = outcome.result
        self._count(record.name, "ok" if outcome.error is None else "error", outcome.seconds)
        tell(record.model_copy())

    async def _ran(self, tool: Tool, call: Call, record: AgenticToolCall) -> ToolOutcome:
        watched = self._watched
        with watched.traces.begin(
            "execute_tool", tool.name, parent=watched.span, tool_name=tool.name, call_id=record.id
        ) as span:
            span.content("gen_ai.tool.call.arguments", lambda: record.arguments)
            outcome = await self._in_time(tool, call)
            span.content("gen_ai.tool.call.result", lambda: outcome.content)
            return outcome

    async def _in_time(self, tool: Tool, call: Call) -> ToolOutcome:
        limit = self._timeout if tool.timeout is None else tool.timeout
        run = self._there(lambda: tool.run(call, timeout=limit, longest=self._longest))
        try:
            # It keeps the time itself, unless an async tool blocks the loop that it runs in.
            return await asyncio.wait_for(run, limit + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            why = f"The tool ran out of time: it blocked its event loop for more than {limit:g} s."
            return ToolOutcome(f"Error: {why}", None, why, limit, call.arguments)

    async def _there(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Await something in the loop where tools run."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return await carried(begin())

        async def work() -> T:
            return await carried(begin())

        coroutine = work()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise StructgenError(
                "A tool could not run: the event loop that made the request is closed."
            ) from error
        return await asyncio.wrap_future(future)

    def _failed(self, record: AgenticToolCall, why: str) -> AgenticToolCall:
        record.status = "failed"
        self._tell(record, why)
        self._count(record.name if record.name in self._tools else "", "error", None)
        return record

    def _tell(self, record: AgenticToolCall, why: str) -> None:
        record.error, _ = shown(why, self._longest)
        record.result = f"Error: {record.error}"

    def _count(self, name: str, outcome: str, seconds: float | None) -> None:
        if self._watched.metrics is not None:
            self._watched.metrics.tool(name, outcome, seconds)

    def _whole(self, response: ChatResponse) -> ChatResponse:
        response.usage = summed(self._usages)
        response.agentic_tool_calls = self._log
        response._messages = [message.model_dump(exclude_none=True) for message in self._added]
        return response


def _record(call: ToolCall, number: int) -> AgenticToolCall:
    return AgenticToolCall(
        round=number,
        id=call.id,
        name=call.function.name,
        arguments=call.function.arguments,
        status="running",
    )


def _key(call: ToolCall) -> str:
    """What calls of one tool with the same arguments have in common."""
    arguments = call.function.arguments
    with contextlib.suppress(ValueError, RecursionError):
        arguments = json.dumps(json.loads(arguments), sort_keys=True)
    return f"{call.function.name} {arguments}"


_NOT_ASKED: dict[str, Any] = {
    "max_tool_rounds": None,
    "approve": None,
    "tool_timeout": None,
    "max_tool_result": None,
    "session_id": None,
}
"""What a model is not asked."""


def expanded(tools: Sequence[Any]) -> dict[str, Tool]:
    """The tools of a request, by name.

    Raises:
        RequestError: one is none, or two have one name.
    """
    try:
        return tools_of(tools)
    except OutputTypeError as error:
        raise RequestError(f"tools: {error}", param="tools") from error


def _check(seconds: float | None) -> None:
    try:
        check_seconds("tool_timeout", seconds)
    except OptionError as error:
        raise RequestError(str(error), param="tool_timeout") from None
