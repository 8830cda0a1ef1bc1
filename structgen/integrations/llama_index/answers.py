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

from ..frameworks import Growing, details_of


def response_of(answer: runner.ChatResponse) -> ChatResponse:
    """A whole answer: its first choice."""
    choice = answer.choices[0]
    message = choice.message
    calls = [one.model_dump(mode="json") for one in message.tool_calls or ()]
    return ChatResponse(
        message=_message(message.content or "", message.reasoning_content or "", calls),
        raw=answer.model_dump(mode="json"),
        logprobs=_logprobs(None if choice.logprobs is None else choice.logprobs.content),
        additional_kwargs={**_usage(answer.usage), **details_of(choice)},
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
        self._made = Growing()

    def of(self, chunk: runner.ChatChunk) -> Iterator[ChatResponse]:
        """What there is after a chunk: nothing that is new, or a piece."""
        made = self._made
        made.add(chunk)
        delta = ""
        is_new = chunk.usage is not None
        for choice in chunk.choices:
            delta = choice.delta.content or ""
            said = delta or choice.delta.reasoning_content or choice.delta.tool_calls
            is_new = is_new or bool(said)
        if is_new:
            known = {} if made.usage is None else _usage(made.usage)
            yield ChatResponse(
                message=_message(made.text, made.thought, made.calls),
                delta=delta,
                raw=chunk.model_dump(mode="json"),
                logprobs=_logprobs(made.logprobs),
                additional_kwargs={**known, **made.details},
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
        for token in given
    ]


def _logprob(given: Any) -> LogProb:
    return LogProb(token=given.token, logprob=given.logprob, bytes=given.bytes or [])
