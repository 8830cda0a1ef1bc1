"""One chat from end to end: the model calls tools, they run, it reads the results, it answers.

This module owns the rounds of a chat: which calls run and who approves them, what the model
receives back, when it is offered no more tools, what each round stores, counts and shows, and the
events. It also owns the turn of a session around them. It asks the model once per round, streamed
or not, through a function that the caller passes. It knows no models.

    messages ─▶ model ─▶ calls ─▶ approve ─▶ run, side by side ─▶ results ─▶ model ─▶ … ─▶ answer

The loop ends when the model calls nothing, or calls a tool without code. Then its calls are the
caller's, and none of that round has run. After ``max_tool_rounds`` rounds, or when the same calls
returned the same results three times, the model is asked once more and may not call. The prompt
still lists the tools, so what the model has read stays cached. By mask, the answer is a value of
the requested type, or a text that is not empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import math
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from typing import Any, Literal, TypeAlias, TypeVar, final

from structgen.errors import (
    BudgetTooSmall,
    OptionError,
    OutputTypeError,
    PromptError,
    RequestError,
    SessionError,
    StructgenError,
)
from structgen.types import Call

from .code import CodeExecution, CodeSession
from .loops import CancelledInside, carried, in_thread, is_async, within
from .requests import ChatRequest, Message
from .responses import (
    AgenticEnd,
    AgenticToolCall,
    ChatChunk,
    ChatResponse,
    CompletionTokensDetails,
    ToolCall,
    Usage,
)
from .search import ROUNDS, Search, WebSearch
from .sessions import Sessions, Turn
from .telemetry import NO_SPAN, Metrics, RequestRecord, Span, Traces
from .tools import (
    LONGEST_RESULT,
    TIMEOUT_SECONDS,
    Tool,
    ToolOutcome,
    ToolSource,
    check_seconds,
    shown,
    tools_of,
)


def further(choice: Any) -> Any:
    """Return ``tool_choice`` for the rounds after the first: a call that was required has been
    made."""
    if choice == "required":
        return "auto"
    if isinstance(choice, Mapping):
        if choice.get("type") == "allowed_tools":
            inner = choice.get("allowed_tools")
            if isinstance(inner, Mapping):
                return {**choice, "allowed_tools": {**inner, "mode": "auto"}}
            return {**choice, "mode": "auto"}
        return "auto"
    return choice


def summed(usages: Sequence[Usage]) -> Usage:
    """Return the usage of all rounds together. The time to the first text is the first round's."""
    details = CompletionTokensDetails()
    for name in CompletionTokensDetails.model_fields:
        tokens = sum(getattr(usage.completion_tokens_details, name) for usage in usages)
        setattr(details, name, tokens)
    return Usage.of(
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.prompt_tokens_details.cached_tokens for usage in usages),
        sum(usage.completion_tokens for usage in usages),
        details,
        usages[0].time_to_first_token,
        sum(usage.total_time or 0.0 for usage in usages),
    )


# -- streams ----------------------------------------------------------------------------------


def is_held(chunk: ChatChunk) -> bool:
    """Return whether a chunk is held back: calls that run here are not for the caller, and the end
    of a round may not be the end of the answer."""
    return any(
        choice.finish_reason is not None or choice.delta.tool_calls is not None
        for choice in chunk.choices
    )


def beside(response: ChatResponse, **fields: Any) -> ChatChunk:
    """Return a chunk without choices that carries something else, such as a call that has run."""
    head = {name: getattr(response, name) for name in ("id", "created", "model")}
    fingerprint = response.system_fingerprint
    return ChatChunk(**head, choices=[], system_fingerprint=fingerprint, **fields)


async def until(
    work: asyncio.Future[Any], events: asyncio.Queue[AgenticToolCall]
) -> AsyncGenerator[AgenticToolCall, None]:
    """Yield events as work sends them, until it is done and all have been yielded."""
    while not work.done():
        get = asyncio.ensure_future(events.get())
        try:
            await asyncio.wait([work, get], return_when=asyncio.FIRST_COMPLETED)
            if get.done():
                yield get.result()
        finally:
            get.cancel()
    while not events.empty():
        yield events.get_nowait()


T = TypeVar("T")

_GRACE_SECONDS = 5.0
_MOST_REPEATS = 3  # rounds of the same calls with the same results; the next would be one more
_SHORT_RESULT = 200  # results of fewer characters are not cut to fit the context
_MOST_FOREIGN = 128 << 20  # most bytes of MCP results that an answer keeps


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call that waits for approval; this is what ``approve`` is called with.

    Attributes:
        name: the name of the tool.
        arguments: checked values by name.
        id: the id of the call.
        round: the round of the loop, from 1.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str
    round: int

    def __repr__(self) -> str:
        """Return the call as text for whoever approves it; invisible characters are escaped."""
        what = f"{self.name}({dict(self.arguments)!r})"
        return f"ToolRequest({what}, id={self.id!r}, round={self.round})"


Run: TypeAlias = "Callable[[], Awaitable[ToolOutcome]]"
"""Runs one call of a tool."""

Asked: TypeAlias = "AsyncGenerator[ChatChunk | ChatResponse, None]"
"""One answer of the model: its chunks, then the whole response."""


@final
class Agent:
    """The loop for one request.

    Args:
        request: the request, with ``max_tool_rounds``.
        loop: the event loop that runs tools and ``approve``; None: the one that runs this.
        search: the web search, which adds a tool and the text that answers may quote.
        code: the code execution, which adds a tool and collects the files it makes.
        metrics: where calls are counted.
        traces: where spans of calls go.
        span: the request's span.

    Raises:
        RequestError: a field is wrong.
        OutputTypeError: an item of ``tools`` is not a tool.
    """

    def __init__(
        self,
        request: ChatRequest,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        search: Search | None = None,
        code: CodeSession | None = None,
        metrics: Metrics | None = None,
        traces: Traces | None = None,
        span: Span = NO_SPAN,
    ) -> None:
        rounds = request.max_tool_rounds or ROUNDS
        own = [one.tool for one in (search, code) if one is not None]
        tools = [*(request.tools or []), *own]
        if not tools:
            raise RequestError("max_tool_rounds requires tools.", param="max_tool_rounds")
        if (request.n or 1) != 1:
            raise RequestError("n: with max_tool_rounds, only one answer is supported.", param="n")
        if request.approve is not None and not callable(request.approve):
            raise RequestError("approve is not callable.", param="approve")
        try:
            check_seconds("tool_timeout", request.tool_timeout)
        except OptionError as error:
            raise RequestError(str(error), param="tool_timeout") from None
        self._request = request
        self._rounds: int = rounds
        self._search = search
        self._code = code
        self._tools = expanded(tools)
        self._loop = loop
        self._metrics = metrics or Metrics()
        self._traces = traces or Traces(False)
        self._span = span
        self._timeout = TIMEOUT_SECONDS if request.tool_timeout is None else request.tool_timeout
        self._longest = request.max_tool_result or LONGEST_RESULT
        self._log: list[AgenticToolCall] = []
        self._added: list[Message] = []
        self._foreign = 0
        self._usages: list[Usage] = []
        self._id = ""
        self._created = 0

    async def answer(self, ask: Callable[[ChatRequest], Asked]) -> Asked:
        """Yield the chunks of all rounds, then the response.

        Raises:
            What ``ask`` and ``approve`` raise. Exceptions of tools go to the model; only what is
            not an `Exception` is raised.
        """
        search = self._search
        messages = list(self._request.messages)
        choice = self._request.tool_choice
        seen: Counter[Hashable] = Counter()
        end: AgenticEnd = "answer"
        replies: list[Message] = []
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
                    **NOT_ASKED,
                    **({} if search is None else search.form(self._request, is_last=is_last)),
                }
            )
            asked._needs_text = True
            asked._is_foreign |= any(tool._is_foreign for tool in self._tools.values())
            response: ChatResponse | None = None
            held: list[ChatChunk] = []
            explained = contextlib.nullcontext() if search is None else search.explained()
            with explained:
                async with aclosing(self._fitting(ask, asked, replies)) as pieces:
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
            message = Message.model_validate(response.messages[0])
            self._added.append(message)
            calls = response.choices[0].message.tool_calls or []
            if is_last or not self._runs(calls):
                response.agentic_end = "calls" if calls else end
                for chunk in filter(self._follows, held):
                    if any(choice.finish_reason for choice in chunk.choices):
                        chunk.agentic_end = response.agentic_end
                    yield chunk
                yield self._whole(response)
                return
            events: asyncio.Queue[AgenticToolCall] = asyncio.Queue()
            results = asyncio.ensure_future(carried(self._run(calls, number, events.put_nowait)))
            try:
                async for event in until(results, events):
                    yield beside(response, agentic_tool_call=event)
                replies = await results
            finally:
                results.cancel()
            self._added += replies
            done = tuple(
                sorted((_key(call), one.text) for call, one in zip(calls, replies, strict=True))
            )
            seen[done] += 1
            if seen[done] == _MOST_REPEATS:
                end = "repeats"
            messages = [*messages, message, *replies]
            choice = further(choice)

    async def _fitting(
        self, ask: Callable[[ChatRequest], Asked], asked: ChatRequest, replies: Sequence[Message]
    ) -> Asked:
        """Ask the model. While the prompt does not fit the context, halve the longest result of the
        last round and ask again."""
        while True:
            try:
                async with aclosing(ask(asked)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except (PromptError, RequestError, BudgetTooSmall) as error:
                longest = max(replies, key=lambda one: len(one.text), default=None)
                option = getattr(error.__cause__, "option", None)
                lacks_room = option in ("max_new_tokens", "max_length")
                if isinstance(error, PromptError):
                    lacks_room |= error.is_too_long
                elif isinstance(error, BudgetTooSmall):  # the context's or the caller's limit
                    lacks_room |= error.budget < (asked.max_tokens or math.inf)
                if not lacks_room or longest is None or len(longest.text) < _SHORT_RESULT:
                    raise
                half = len(longest.text) // 2
                longest.content = (
                    f"{longest.text[:half]}… (truncated to the first {half:,} characters)"
                )
                for record in self._log:
                    if record.id == longest.tool_call_id:
                        record.result, record.cut = longest.content, True

    def _follows(self, chunk: ChatChunk) -> bool:
        """Make a chunk continue those before it: one answer has one id and one beginning."""
        if not self._id:
            self._id, self._created = chunk.id, chunk.created
            return True
        chunk.id, chunk.created = self._id, self._created
        begins = [choice.delta.role is not None for choice in chunk.choices]
        return not (self._usages and any(begins))

    def _runs(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether there are calls and all of them are of tools with code."""
        found = [self._tools.get(call.function.name) for call in calls]
        return bool(calls) and all(tool is None or tool.is_runnable for tool in found)

    async def _run(
        self, calls: Sequence[ToolCall], number: int, report: Callable[[AgenticToolCall], None]
    ) -> list[Message]:
        """Run the calls of a round at the same time; return the replies to the model in the order
        of the calls."""
        made: list[tuple[AgenticToolCall, Run | None]] = []
        first: dict[str, AgenticToolCall] = {}
        same: list[tuple[AgenticToolCall, AgenticToolCall]] = []
        for call in calls:  # one after another: a person may be asked
            record = AgenticToolCall(
                round=number, id=call.id, status="running", **call.function.model_dump()
            )
            before = first.setdefault(_key(call), record)
            if before is record:
                made.append((record, await self._permitted(record)))
            else:
                record.repeats = before.id
                same.append((record, before))
                made.append((record, None))
        for record, _ in made:
            self._log.append(record)
            report(record.model_copy())
        tasks = [
            asyncio.ensure_future(self._done(record, run, report)) for record, run in made if run
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
            report(record.model_copy())
        return [
            # Some templates also use the name.
            Message(
                role="tool", content=record.result or "", tool_call_id=record.id, name=record.name
            )
            for record, _ in made
        ]

    async def _permitted(self, record: AgenticToolCall) -> Run | None:
        """Return what runs a call; None: it may not run, and its record has the reason."""
        name = record.name
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            why = f"There is no tool {name!r}. There are: {known}."
            return self._barred(record, "failed", why)
        limit = self._timeout if tool.timeout is None else tool.timeout
        try:
            checked = await tool.checked(record.arguments, limit)
        except Exception as error:  # of a class's own validators, for example
            why = await tool.problem(error, limit, is_check=True)
            return self._barred(record, "failed", why)
        if self._request.approve is not None:
            leave = await self._asked(ToolRequest(name, checked.arguments, record.id, record.round))
            record.approved = leave is True
            if leave is not True:
                why = f"The call was not approved. {leave or ''}".rstrip()
                return self._barred(record, "refused", why)
        return lambda: self._ran(tool, checked, record)

    async def _asked(self, request: ToolRequest) -> bool | str:
        """Return what ``approve`` decides."""
        approve = self._request.approve

        async def asked() -> Any:
            if is_async(approve):
                return await approve(request)
            leave = await in_thread(lambda: approve(request), "approve")
            return await leave if inspect.isawaitable(leave) else leave

        does = "It must return True, False, or a str with the reason for refusing."
        call = f"for a call of {request.name}. {does}"
        try:
            leave = await self._there(lambda: within(None, asked()))
        except CancelledInside as error:
            raise OptionError(f"approve raised CancelledError {call}") from error
        if not isinstance(leave, (bool, str)):
            raise OptionError(f"approve returned {leave!r} {call}")
        return leave

    async def _done(
        self, record: AgenticToolCall, run: Run, report: Callable[[AgenticToolCall], None]
    ) -> None:
        outcome = await run()
        record.result, record.error = outcome.content, outcome.error
        record.status = "completed" if outcome.error is None else "failed"
        record.seconds = round(outcome.seconds, 6)
        record.cut = True if outcome.cut else None
        record._value = outcome.result
        status = "ok" if outcome.error is None else "error"
        self._metrics.tool(record.name, status, outcome.seconds)
        report(record.model_copy())

    async def _ran(self, tool: Tool, call: Call, record: AgenticToolCall) -> ToolOutcome:
        with self._traces.begin(
            "execute_tool", tool.name, parent=self._span, tool_name=tool.name, call_id=record.id
        ) as span:
            span.content("gen_ai.tool.call.arguments", lambda: record.arguments)
            outcome = await self._in_time(tool, call)
            if tool._is_foreign and isinstance(outcome.result, str):
                self._foreign += (size := sys.getsizeof(outcome.result))
                if self._foreign > _MOST_FOREIGN:  # 16 MiB may take four times as much memory
                    self._foreign -= size
                    why = (
                        f"The results of MCP servers have more than {_MOST_FOREIGN:,} bytes in "
                        "total."
                    )
                    outcome = replace(outcome, content=f"Error: {why}", result=None, error=why)
            span.content("gen_ai.tool.call.result", lambda: outcome.content)
            if outcome.error is not None:
                span.failed("_OTHER", outcome.error)  # OpenTelemetry's value without a class
            return outcome

    async def _in_time(self, tool: Tool, call: Call) -> ToolOutcome:
        limit = self._timeout if tool.timeout is None else tool.timeout
        run = self._there(lambda: tool.run(call, timeout=limit, longest=self._longest))
        try:
            # The tool enforces its own time limit, unless async code blocks the event loop.
            return await asyncio.wait_for(run, limit + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            why = f"The tool timed out: it blocked its event loop for more than {limit:g} s."
            return ToolOutcome(f"Error: {why}", None, why, limit, call.arguments)

    async def _there(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Await something in the event loop that runs tools."""
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

    def _barred(
        self, record: AgenticToolCall, status: Literal["failed", "refused"], why: str
    ) -> Run | None:
        """Record that a call does not run, and why."""
        record.status = status
        record.error, _ = shown(why, self._longest)
        record.result = f"Error: {record.error}"
        name = record.name if record.name in self._tools else ""
        self._metrics.tool(name, "error" if status == "failed" else status, None)
        return None

    def _whole(self, response: ChatResponse) -> ChatResponse:
        response.usage = summed(self._usages)
        response.agentic_tool_calls = self._log
        response.files = None if self._code is None else self._code.files
        response.web_search = None if self._search is None else self._search.found
        response._messages = [message.model_dump(exclude_none=True) for message in self._added]
        return response


def _key(call: ToolCall) -> str:
    """Return a key that is equal for calls of the same tool with the same arguments."""
    arguments = call.function.arguments
    with contextlib.suppress(ArithmeticError, ValueError, RecursionError):
        # Numbers by their digits: a Decimal parameter tells some apart that are equal as floats.
        arguments = repr(
            json.loads(
                arguments,
                parse_float=Decimal,
                object_pairs_hook=lambda pairs: dict(sorted(pairs, key=itemgetter(0))),
            )
        )
    return f"{call.function.name} {arguments}"


NOT_ASKED: dict[str, Any] = {
    "max_tool_rounds": None,
    "approve": None,
    "tool_timeout": None,
    "max_tool_result": None,
    "web_search_options": None,
    "session_id": None,
    "enable_code_execution": False,
}
"""Fields for the program that has the Runner; the model's request does not have them."""


def expanded(tools: Sequence[Any]) -> dict[str, Tool]:
    """Return the tools of a request, by name.

    Raises:
        RequestError: an item is not a tool, or two tools have the same name.
    """
    try:
        return tools_of(tools)
    except OutputTypeError as error:
        raise RequestError(f"tools: {error}", param="tools") from error


@dataclass(frozen=True, slots=True)
class Conversations:
    """What all chats of a Runner share.

    Attributes:
        sessions: the stored conversations.
        metrics: where requests and calls are counted.
        traces: where spans go.
        search: the web search; None: there is none.
        code: runs code that models write; None: code execution is off.
    """

    sessions: Sessions
    metrics: Metrics
    traces: Traces
    search: WebSearch | None = None
    code: CodeExecution | None = None

    def running(self, request: ChatRequest) -> CodeSession | None:
        """Return what runs code for a request; the caller closes it.

        Raises:
            RequestError: code execution is off, or needs an ``approve`` that the request lacks.
        """
        if not request.enable_code_execution:
            return None
        param = "enable_code_execution"
        if self.code is None:
            raise RequestError(
                f"{param}: this Runner cannot run code. Create it with code_execution_config=.",
                param=param,
                kind="unsupported",
            )
        if request.approve is None and self.code.config.permission == "ask":
            raise RequestError(
                f"{param}: pass approve=, which is called before each tool call, or create the "
                "Runner with CodeExecutionConfig(permission='auto').",
                param=param,
            )
        return CodeSession(self.code)

    def searching(self, request: ChatRequest) -> Search | None:
        """Return a search for a request that asks for one.

        Raises:
            RequestError: there is none.
        """
        if request.web_search_options is None:
            return None
        if self.search is None:
            raise RequestError(
                "web_search_options: this Runner cannot search the web. Create it with "
                "enable_search=True and search_callback=, or pass your own search tool.",
                param="web_search_options",
                kind="unsupported",
            )
        return Search(self.search, request.web_search_options, request.output_type)

    async def answer(
        self,
        request: ChatRequest,
        ask: Callable[[ChatRequest], Asked],
        model: str,
        loop: asyncio.AbstractEventLoop | None,
    ) -> Asked:
        """Yield the chunks of an answer, then the response.

        Raises:
            What ``ask`` raises. SessionError: the turn could not begin, or could not be stored; in
                the second case its ``response`` is the answer.
        """
        span = self.traces.begin("chat", model, request_model=model)
        response: ChatResponse | None = None
        ends: list[ChatChunk] = []
        with self.metrics.request("chat", model) as record, span:
            asked = request.messages
            span.content("gen_ai.input.messages", lambda: [m.for_template() for m in asked])
            async with AsyncExitStack() as stack:
                turn: Turn | None = None
                if request.session_id is not None:
                    span.set(conversation_id=request.session_id)
                    turn = self.sessions.turn(request.session_id)
                    request = _continued(request, await stack.enter_async_context(turn))
                search = self.searching(request)
                code = self.running(request)
                if code is not None:
                    stack.push_async_callback(in_thread, code.close, "code")
                if request._runs_tools:
                    agent = Agent(
                        request,
                        loop,
                        search=search,
                        code=code,
                        metrics=self.metrics,
                        traces=self.traces,
                        span=span,
                    )
                    pieces = agent.answer(ask)
                else:
                    pieces = ask(plain(request))
                async with aclosing(pieces) as made:
                    async for piece in made:
                        if isinstance(piece, ChatResponse):
                            response = piece
                        elif any(choice.finish_reason for choice in piece.choices):
                            ends.append(piece)  # the reader may stop here
                        else:
                            yield piece
                assert response is not None
                _note(response, record, span)
                if turn is not None:
                    await _keep(turn, request, response)
        for chunk in ends:
            yield chunk
        if request.stream_options is not None and request.stream_options.include_usage:
            yield beside(response, usage=response.usage)
        yield response


def _continued(request: ChatRequest, turn: Turn) -> ChatRequest:
    """Return the request with the session's messages before its own."""
    if (request.n or 1) != 1:
        raise RequestError("n: a session supports only one answer.", param="n")
    new = [message.model_dump(exclude_none=True) for message in request.messages]
    together = [Message.model_validate(message) for message in turn.with_history(new)]
    return request.model_copy(update={"messages": together})


async def _keep(turn: Turn, request: ChatRequest, response: ChatResponse) -> None:
    asked = [message.model_dump(exclude_none=True) for message in request.messages]
    try:
        await turn.end([*asked, *response.messages])
    except SessionError as error:
        error.response = response
        raise


def plain(request: ChatRequest) -> ChatRequest:
    """Return a request whose tools do not run here: grammars and prompts need only their
    definitions."""
    tools = request.tools or []
    kinds = (Tool, ToolSource)
    if any(not isinstance(tool, type) and isinstance(tool, kinds) for tool in tools):
        found = expanded(tools).values()
        request = request.model_copy(update={"tools": [tool.source for tool in found]})
        request._is_foreign |= any(tool._is_foreign for tool in found)
    return request


def _note(response: ChatResponse, record: RequestRecord, span: Span) -> None:
    count(response.usage, record)
    span.count(record.tokens)
    span.set(finish_reasons=[choice.finish_reason for choice in response.choices])
    span.content(
        "gen_ai.output.messages", lambda: [one.message.model_dump() for one in response.choices]
    )


def count(usage: Usage, record: RequestRecord) -> None:
    """Count the tokens and times of an answer; a detail is named by the first word of its field."""
    record.tokens |= {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens}
    for name, tokens in (*usage.prompt_tokens_details, *usage.completion_tokens_details):
        record.tokens[name.partition("_")[0]] = tokens
    if usage.time_to_first_token is not None:
        record.times["time_to_first_token_seconds"] = usage.time_to_first_token
    if usage.tokens_per_second is not None:
        record.times["tokens_per_second"] = usage.tokens_per_second
