"""The Runner's answers as LangChain's messages, whole and in pieces.

Owns which part of an answer is which part of a message, and what stands in ``response_metadata``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    InvalidToolCall,
    ToolCall,
)
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from structgen.runner import ChatChunk, ChatResponse, Usage

from ..frameworks import Told, details_of

PROVIDER = "structgen"
"""What LangChain calls the provider."""


def result_of(answer: ChatResponse) -> ChatResult:
    """A whole answer, of one choice or several; the first has the usage of all."""
    found = []
    for index, choice in enumerate(answer.choices):
        calls: list[ToolCall] = []
        broken: list[InvalidToolCall] = []
        for one in choice.message.tool_calls or ():
            try:
                arguments = json.loads(one.function.arguments)
            except ValueError as error:  # the answer was cut within a call
                broken.append(
                    invalid_tool_call(
                        name=one.function.name,
                        args=one.function.arguments,
                        id=one.id,
                        error=str(error),
                    )
                )
            else:
                calls.append(tool_call(name=one.function.name, args=arguments, id=one.id))
        message = AIMessage(
            content=choice.message.content or "",
            additional_kwargs=_thought(choice.message.reasoning_content),
            tool_calls=calls,
            invalid_tool_calls=broken,
            usage_metadata=usage_of(answer.usage) if index == 0 else None,
            response_metadata=_metadata(answer.model, details_of(choice)),
        )
        found.append(ChatGeneration(message=message))
    return ChatResult(generations=found)


class Pieces:
    """The chunks of one answer, as LangChain's."""

    def __init__(self) -> None:
        self._told = Told()

    def of(self, chunk: ChatChunk) -> Iterator[ChatGenerationChunk]:
        """What a chunk says: nothing, or a piece."""
        if chunk.usage is not None:  # after all choices
            usage = usage_of(chunk.usage)
            message = AIMessageChunk(content="", usage_metadata=usage, chunk_position="last")
            yield ChatGenerationChunk(message=message)
        for choice in chunk.choices:
            delta = choice.delta
            details = self._told.add(choice)
            metadata = _metadata(chunk.model, details) if details else {}
            calls = [
                tool_call_chunk(
                    name=call.function.name,
                    args=call.function.arguments,
                    id=call.id,
                    index=call.index,
                )
                for call in delta.tool_calls or ()
            ]
            if not (delta.content or delta.reasoning_content or calls or metadata):
                continue
            message = AIMessageChunk(
                content=delta.content or "",
                additional_kwargs=_thought(delta.reasoning_content),
                tool_call_chunks=calls,
                response_metadata=metadata,
            )
            yield ChatGenerationChunk(message=message)


def usage_of(usage: Usage) -> UsageMetadata:
    """Tokens."""
    thought = usage.completion_tokens_details.reasoning_tokens
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.prompt_tokens_details.cached_tokens),
        output_token_details=OutputTokenDetails(reasoning=thought),
    )


def _thought(text: str | None) -> dict[str, Any]:
    return {"reasoning_content": text} if text else {}


def _metadata(model: str, details: dict[str, Any]) -> dict[str, Any]:
    return {"model_name": model, "model_provider": PROVIDER, **details}
