"""The rounds of an agent as one answer: messages, usage, and chunks put one after the other.

Owns what of a round is kept, added up and shown. Which rounds there are is the agent's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from .messages import Message
from .responses import AgenticToolCall, ChatChunk, ChatResponse, ResponseMessage
from .shape import CompletionTokensDetails, PromptTokensDetails, Usage


def as_message(message: ResponseMessage) -> Message:
    """An answer as a message of the chat that goes on. Thoughts are not kept."""
    found = message.model_dump(exclude_none=True, exclude={"reasoning_content"})
    if not message.tool_calls:
        found["content"] = message.content or ""
    return Message.model_validate(found)


def further(choice: Any) -> Any:
    """The choice of tools after a round: what had to be called once need not be again."""
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
    """The usage of all rounds together. The first text is that of the first round."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    output = sum(usage.completion_tokens for usage in usages)
    total = sum(usage.total_time or 0.0 for usage in usages)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=sum(usage.prompt_tokens_details.cached_tokens for usage in usages)
        ),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=sum(u.completion_tokens_details.reasoning_tokens for u in usages),
            forced_tokens=sum(u.completion_tokens_details.forced_tokens for u in usages),
        ),
        time_to_first_token=usages[0].time_to_first_token,
        total_time=round(total, 6),
        tokens_per_second=round(output / total, 2) if output and total else None,
    )


# -- streams ----------------------------------------------------------------------------------


def is_held(chunk: ChatChunk) -> bool:
    """Whether a chunk is held back: calls that run here are not the caller's, and the end of a
    round may not be the end."""
    return any(
        choice.finish_reason is not None or choice.delta.tool_calls is not None
        for choice in chunk.choices
    )


def event_of(response: ChatResponse, record: AgenticToolCall) -> ChatChunk:
    """The chunk that tells of a call."""
    return ChatChunk(
        id=response.id,
        created=response.created,
        model=response.model,
        choices=[],
        system_fingerprint=response.system_fingerprint,
        agentic_tool_call=record,
    )


async def until(
    work: asyncio.Future[Any], events: asyncio.Queue[AgenticToolCall]
) -> AsyncGenerator[AgenticToolCall, None]:
    """The events until some work is done, and those that it has told by then."""
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
