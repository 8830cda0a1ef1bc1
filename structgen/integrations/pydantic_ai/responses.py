"""The Runner's answers as pydantic-ai's responses, whole and in pieces.

Owns which part of an answer is which part of a response, and what stands in ``provider_details``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pydantic_ai._thinking_part import split_content_into_text_and_thinking
from pydantic_ai.exceptions import ModelTimeoutError
from pydantic_ai.messages import (
    FinishReason,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from structgen.runner import AsyncChunkStream, ChatChunk, ChatResponse, Usage

from ..frameworks import Told
from .provider import SYSTEM, errors_of

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_call"}

Tags = tuple[str, str]


def response_of(answer: ChatResponse, tags: Tags) -> ModelResponse:
    """A whole answer.

    Raises:
        ModelTimeoutError: ``timeout`` cut it.
    """
    choice = answer.choices[0]
    message = choice.message
    parts: list[ModelResponsePart] = []
    if message.reasoning_content:
        parts.append(ThinkingPart(message.reasoning_content, provider_name=SYSTEM))
    if message.content:
        parts += split_content_into_text_and_thinking(message.content, tags)
    for call in message.tool_calls or ():
        function = call.function
        parts.append(ToolCallPart(function.name, function.arguments, tool_call_id=call.id))
    return ModelResponse(
        parts=parts,
        usage=usage_of(answer.usage),
        model_name=answer.model,
        provider_name=SYSTEM,
        provider_details=_details(Told(), choice, answer.model),
        provider_response_id=answer.id,
        finish_reason=_REASONS[choice.finish_reason],
    )


def usage_of(usage: Usage) -> RequestUsage:
    """Tokens."""
    details = usage.completion_tokens_details
    return RequestUsage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.prompt_tokens_details.cached_tokens,
        output_tokens=usage.completion_tokens,
        details={
            "reasoning_tokens": details.reasoning_tokens,
            "forced_tokens": details.forced_tokens,
        },
    )


def _details(told: Told, choice: Any, model: str) -> dict[str, Any]:
    """What else is known of an answer at its end.

    Raises:
        ModelTimeoutError: ``timeout`` cut it.
    """
    if choice.result is not None and choice.result.finish_reason == "cancelled":
        raise ModelTimeoutError(model, "timeout cut the answer before it was whole.")
    return told.add(choice)


@dataclass
class StructgenStreamedResponse(StreamedResponse):
    """An answer piece by piece."""

    _model: str
    _first: ChatChunk
    _chunks: AsyncChunkStream[ChatChunk]
    _tags: Tags
    _timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _told: Told = field(default_factory=Told)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self.provider_response_id = self._first.id
        for event in self._events(self._first):
            yield event
        with errors_of(self._model):
            async for chunk in self._chunks:
                for event in self._events(chunk):
                    yield event

    def _events(self, chunk: ChatChunk) -> Iterator[ModelResponseStreamEvent]:
        if chunk.usage is not None:
            self._usage = usage_of(chunk.usage)
        parts = self._parts_manager
        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                yield from parts.handle_thinking_delta(
                    vendor_part_id="reasoning",
                    content=delta.reasoning_content,
                    provider_name=SYSTEM,
                )
            if delta.content:
                yield from parts.handle_text_delta(
                    vendor_part_id="content", content=delta.content, thinking_tags=self._tags
                )
            for call in delta.tool_calls or ():
                yield from parts.handle_tool_call_delta_events(
                    vendor_part_id=call.index,
                    tool_name=call.function.name,
                    args=call.function.arguments,
                    tool_call_id=call.id,
                )
            details = _details(self._told, choice, self._model)
            if choice.finish_reason is not None:
                self.finish_reason = _REASONS[choice.finish_reason]
                self.provider_details = details

    async def close_stream(self) -> None:
        """End the answer, within one pass of the model."""
        await self._chunks.aclose()

    @property
    def model_name(self) -> str:
        """The model's id."""
        return self._first.model

    @property
    def provider_name(self) -> str:
        """``structgen``."""
        return SYSTEM

    @property
    def provider_url(self) -> None:
        """There is none."""
        return None

    @property
    def timestamp(self) -> datetime:
        """When the request was made."""
        return self._timestamp
