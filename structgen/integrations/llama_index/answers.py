"""The Runner's answers as LlamaIndex's responses, whole and in pieces.

Owns which part of an answer is which block of a message, and what stands in
``additional_kwargs``. A piece has all that there was before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from structgen import runner

from ..frameworks import details_of


def response_of(answer: runner.ChatResponse) -> ChatResponse:
    """A whole answer: its first choice."""
    choice = answer.choices[0]
    message = choice.message
    calls = [one.model_dump(mode="json") for one in message.tool_calls or ()]
    return ChatResponse(
        message=_message(message.content or "", message.reasoning_content or "", calls),
        raw=answer.model_dump(mode="json"),
        logprobs=_logprobs(choice.logprobs),
        additional_kwargs={**_usage(answer.usage), **details_of(choice, choice.trace)},
    )


def completion_of(response: ChatResponse) -> CompletionResponse:
    """The same as a text."""
    return CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        logprobs=response.logprobs,
        additional_kwargs={**response.additional_kwargs, **response.message.additional_kwargs},
    )


class Pieces:
    """The answer that the chunks so far make."""

    def __init__(self) -> None:
        self._text = ""
        self._thought = ""
        self._calls: list[dict[str, Any]] = []
        self._known: dict[str, Any] = {}
        self._trace: list[Any] = []
        self._logprobs: list[list[LogProb]] | None = None

    def of(self, chunk: runner.ChatChunk) -> Iterator[ChatResponse]:
        """What there is after a chunk: nothing that is new, or a piece."""
        delta = ""
        is_new = chunk.usage is not None
        if chunk.usage is not None:
            self._known |= _usage(chunk.usage)
        for choice in chunk.choices:
            delta = choice.delta.content or ""
            self._text += delta
            self._thought += choice.delta.reasoning_content or ""
            for call in choice.delta.tool_calls or ():
                if call.index == len(self._calls):
                    function = {"name": call.function.name, "arguments": ""}
                    self._calls.append({"id": call.id, "type": "function", "function": function})
                self._calls[call.index]["function"]["arguments"] += call.function.arguments
            self._trace += choice.trace or ()
            if choice.finish_reason is not None:
                self._known |= details_of(choice, self._trace)
                self._logprobs = _logprobs(choice.logprobs)
            said = delta or choice.delta.reasoning_content or choice.delta.tool_calls
            is_new = is_new or bool(said)
        if is_new:
            yield ChatResponse(
                message=_message(self._text, self._thought, self._calls),
                delta=delta,
                raw=chunk.model_dump(mode="json"),
                logprobs=self._logprobs,
                additional_kwargs=dict(self._known),
            )


def _message(text: str, thought: str, calls: Sequence[dict[str, Any]]) -> ChatMessage:
    blocks: list[Any] = []
    if thought:
        blocks.append(ThinkingBlock(content=thought))
    if text or not calls:
        blocks.append(TextBlock(text=text))
    for call in calls:
        function = call["function"]
        blocks.append(
            ToolCallBlock(
                tool_call_id=call["id"],
                tool_name=function["name"],
                tool_kwargs=function["arguments"],
            )
        )
    more = {"tool_calls": [{**one, "function": {**one["function"]}} for one in calls]}
    return ChatMessage(
        role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=more if calls else {}
    )


def _usage(usage: runner.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _logprobs(given: Any) -> list[list[LogProb]] | None:
    """Of each token the log probabilities, its own first."""
    if given is None:
        return None
    return [
        [
            _logprob(token),
            *(_logprob(top) for top in token.top_logprobs if top.token != token.token),
        ]
        for token in given.content or ()
    ]


def _logprob(given: Any) -> LogProb:
    return LogProb(token=given.token, logprob=given.logprob, bytes=given.bytes or [])
