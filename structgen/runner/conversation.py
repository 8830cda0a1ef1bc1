"""One chat from end to end: a turn of a session, rounds of an agent, and who is told.

Owns the order of these, and streamed answers put together, so that sessions and agents see whole
ones. It asks a model through a function that it is given. Knows no models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from structgen.errors import RequestError, SessionError

from .agent import Agent, Asked, Watched, expanded
from .messages import Message
from .metrics import Metrics, RequestRecord
from .requests import ChatRequest, StreamOptions
from .responses import (
    ChatChunk,
    ChatResponse,
    Choice,
    ChoiceLogprobs,
    FunctionCall,
    ResponseMessage,
    ToolCall,
)
from .sessions import Sessions, Turn
from .shape import Usage
from .tools import Tool, ToolSource
from .tracing import Span, Traces


@dataclass(frozen=True, slots=True)
class Conversations:
    """What chats share.

    Attributes:
        sessions: the conversations that are kept.
        metrics: count requests and calls.
        traces: make spans.
    """

    sessions: Sessions
    metrics: Metrics
    traces: Traces

    async def answer(
        self,
        request: ChatRequest,
        ask: Callable[[ChatRequest], Asked],
        model: str,
        loop: asyncio.AbstractEventLoop | None,
    ) -> Asked:
        """The chunks of an answer, if it is streamed, and then the response.

        Args:
            request: what was asked.
            ask: asks the model once.
            model: its id.
            loop: where tools run.

        Raises:
            What asking raises; SessionError: the turn could not begin, or be kept: then its
                ``response`` is the answer.
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
                if request.max_tool_rounds is not None:
                    watched = Watched(self.metrics, self.traces, span)
                    pieces = Agent(request, loop, watched).answer(ask)
                else:
                    pieces = ask(plain(request))
                async with aclosing(pieces) as made:
                    async for piece in made:
                        if isinstance(piece, ChatResponse):
                            response = piece
                        elif any(choice.finish_reason for choice in piece.choices):
                            ends.append(piece)  # whoever has read it may read no further
                        else:
                            yield piece
                assert response is not None
                _note(response, record, span)
                if turn is not None:
                    await _keep(turn, request, response)
        for chunk in ends:
            yield chunk
        if request.stream_options is not None and request.stream_options.include_usage:
            yield ChatChunk(
                id=response.id,
                created=response.created,
                model=response.model,
                choices=[],
                usage=response.usage,
                system_fingerprint=response.system_fingerprint,
            )
        yield response


def _continued(request: ChatRequest, turn: Turn) -> ChatRequest:
    """The request with what was said before."""
    if (request.n or 1) != 1:
        raise RequestError("n: a session goes on with one answer.", param="n")
    new = [message.model_dump(exclude_none=True) for message in request.messages]
    together = [Message.model_validate(message) for message in turn.with_history(new)]
    return request.model_copy(update={"messages": together})


async def _keep(turn: Turn, request: ChatRequest, response: ChatResponse) -> None:
    said = [message.model_dump(exclude_none=True) for message in request.messages]
    try:
        await turn.end([*said, *response.messages])
    except SessionError as error:
        error.response = response
        raise


def plain(request: ChatRequest) -> ChatRequest:
    """A request whose tools do not run here: what grammars and prompts are made of is enough."""
    tools = request.tools or []
    if any(isinstance(tool, Tool) or _has_several(tool) for tool in tools):
        sources = [tool.source for tool in expanded(tools).values()]
        request = request.model_copy(update={"tools": sources})
    return request


def _has_several(tool: Any) -> bool:
    return not isinstance(tool, type) and isinstance(tool, ToolSource)


def _note(response: ChatResponse, record: RequestRecord, span: Span) -> None:
    usage = response.usage
    span.set(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens,
        forced_tokens=usage.completion_tokens_details.forced_tokens,
        finish_reasons=[choice.finish_reason for choice in response.choices],
    )
    span.content(
        "gen_ai.output.messages", lambda: [one.message.model_dump() for one in response.choices]
    )
    record.usage |= counted(usage)


def counted(usage: Usage) -> dict[str, float]:
    """A usage as metrics count it."""
    found: dict[str, float] = {
        "prompt": usage.prompt_tokens,
        "cached": usage.prompt_tokens_details.cached_tokens,
        "completion": usage.completion_tokens,
        "forced": usage.completion_tokens_details.forced_tokens,
        "reasoning": usage.completion_tokens_details.reasoning_tokens,
    }
    if usage.time_to_first_token is not None:
        found["time_to_first_token_seconds"] = usage.time_to_first_token
    if usage.tokens_per_second is not None:
        found["tokens_per_second"] = usage.tokens_per_second
    return found


# -- streams ----------------------------------------------------------------------------------


async def assembled(
    stream: Callable[[ChatRequest], AsyncGenerator[ChatChunk, None]], request: ChatRequest
) -> Asked:
    """The chunks of one streamed answer, and then the whole."""
    asked = request.model_copy(update={"stream_options": StreamOptions(include_usage=True)})
    whole: ChatResponse | None = None
    async with aclosing(stream(asked)) as chunks:
        async for chunk in chunks:
            if whole is None:
                whole = ChatResponse(
                    id=chunk.id,
                    created=chunk.created,
                    model=chunk.model,
                    choices=[],
                    usage=Usage(),
                    system_fingerprint=chunk.system_fingerprint,
                )
            if chunk.usage is not None:
                whole.usage = chunk.usage
                continue
            _add(whole, chunk)
            yield chunk
    assert whole is not None
    whole.choices.sort(key=lambda choice: choice.index)
    yield whole


def _add(whole: ChatResponse, chunk: ChatChunk) -> None:
    for more in chunk.choices:
        choice = next((one for one in whole.choices if one.index == more.index), None)
        if choice is None:
            choice = Choice(index=more.index, message=ResponseMessage(), finish_reason="stop")
            whole.choices.append(choice)
        message, delta = choice.message, more.delta
        if delta.content:
            message.content = (message.content or "") + delta.content
        if delta.reasoning_content:
            message.reasoning_content = (message.reasoning_content or "") + delta.reasoning_content
        for part in delta.tool_calls or ():
            message.tool_calls = message.tool_calls or []
            if part.index == len(message.tool_calls):
                function = FunctionCall(name=part.function.name or "", arguments="")
                message.tool_calls.append(ToolCall(id=part.id or "", function=function))
            message.tool_calls[part.index].function.arguments += part.function.arguments
        if more.logprobs is not None:
            told = choice.logprobs.content if choice.logprobs is not None else None
            together = [*(told or ()), *(more.logprobs.content or ())]
            choice.logprobs = ChoiceLogprobs(content=together)
        if more.finish_reason is not None:
            choice.finish_reason = more.finish_reason
            choice.shortened = more.shortened
            choice._result, choice._made = more._result, more._made
            if message.content is None and not message.tool_calls:
                message.content = ""
