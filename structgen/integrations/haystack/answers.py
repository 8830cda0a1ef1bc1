"""The Runner's answers as Haystack's messages, and their pieces as its chunks.

Owns which part of an answer is which, and what stands in ``meta``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from haystack.dataclasses import (
    ChatMessage,
    ComponentInfo,
    ReasoningContent,
    StreamingChunk,
    ToolCall,
    ToolCallDelta,
)

from structgen.runner import ChatChunk, ChatResponse, Usage

from ..frameworks import Growing, details_of


def replies_of(answer: ChatResponse) -> list[ChatMessage]:
    """A whole answer, of one choice or several."""
    return [
        _message(
            choice.message.content,
            choice.message.reasoning_content,
            [call.model_dump(mode="json") for call in choice.message.tool_calls or ()],
            _meta(answer.model, choice.index, answer.usage, details_of(choice)),
        )
        for choice in answer.choices
    ]


class Pieces:
    """The chunks of an answer, as Haystack's, and what they make together.

    A chunk tells of one block: the thought, the text, or one of the calls; ``index`` counts these.
    """

    def __init__(self, component: ComponentInfo) -> None:
        self._component = component
        self._made = Growing()
        self._block: Any = None
        self._index = -1
        self._began: str | None = None
        self._model = ""

    def of(self, chunk: ChatChunk) -> Iterator[StreamingChunk]:
        """What a chunk says: nothing, or a piece."""
        self._made.add(chunk)
        self._model = chunk.model
        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                thought = ReasoningContent(reasoning_text=delta.reasoning_content)
                yield self._piece("thought", reasoning=thought)
            if delta.content:
                yield self._piece("text", content=delta.content)
            for call in delta.tool_calls or ():
                told = ToolCallDelta(
                    index=call.index,
                    tool_name=call.function.name,
                    arguments=call.function.arguments or None,
                    id=call.id,
                )
                yield self._piece(call.index, tool_calls=[told])
            if choice.finish_reason is not None:
                yield self._piece(self._block, finish_reason=choice.finish_reason)

    @property
    def reply(self) -> ChatMessage:
        """The whole answer."""
        made = self._made
        meta = _meta(self._model, 0, made.usage or Usage(), made.details)
        meta["completion_start_time"] = self._began
        return _message(made.text or None, made.thought.strip(), made.calls, meta)

    def _piece(self, block: Any, content: str = "", **fields: Any) -> StreamingChunk:
        starts = block != self._block
        if starts:
            self._block = block
            self._index += 1
        now = datetime.now().isoformat()
        self._began = self._began or now
        return StreamingChunk(
            content=content,
            component_info=self._component,
            index=max(self._index, 0),
            start=starts,
            meta={"model": self._model, "received_at": now},
            **fields,
        )


def _message(
    text: str | None, thought: str | None, calls: Sequence[dict[str, Any]], meta: dict[str, Any]
) -> ChatMessage:
    made = [
        ToolCall(
            id=call["id"],
            tool_name=call["function"]["name"],
            arguments=json.loads(call["function"]["arguments"]),
        )
        for call in calls
    ]
    return ChatMessage.from_assistant(
        text=text, tool_calls=made, reasoning=thought or None, meta=meta
    )


def _meta(model: str, index: int, usage: Usage, details: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "index": index, "usage": usage.model_dump(mode="json"), **details}
