"""The answer to a `ChatRequest`: messages and calls of tools, whole or piece by piece.

Owns the choices and chunks that outputs become. How these come about is `work`'s business, how a
text is read `reading`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from structgen.decoding import GenerationResult
from structgen.insight import TraceStep

from .hosts import TextHost
from .logprobs import Untold, chat_logprobs
from .outcomes import give_value, reason_of, usage_of
from .reading import More
from .requests import ChatRequest
from .responses import (
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    DeltaFunction,
    DeltaToolCall,
    FunctionCall,
    ResponseMessage,
    TokenStep,
    ToolCall,
)
from .shape import new_id, now
from .steps import steps_of, sureness_of
from .work import pieces_of, results_of, work_of


async def chat(host: TextHost, request: ChatRequest, model: str, began: float) -> ChatResponse:
    """The answer to a chat."""
    work = await work_of(host, request, began)
    (results,) = await results_of(work)
    choices = []
    for index in range(work.n):
        result = results[index % work.made]
        reader = work.reader
        list(reader.feed(result.text))
        list(reader.finish(result.text))
        calls = [
            ToolCall(id=c.id, function=FunctionCall(name=c.name, arguments=c.arguments))
            for c in reader.calls
        ]
        message = ResponseMessage(
            content=reader.content if reader.content or not calls else None,
            tool_calls=calls or None,
            reasoning_content=result.reasoning,
        )
        choice = Choice(
            index=index,
            message=message,
            finish_reason=reason_of(result, work.asked, has_calls=bool(calls)),
            logprobs=chat_logprobs(result.logprobs) if request.logprobs else None,
            trace=steps_of(result.trace) if request.trace else None,
            confidence=sureness_of(result.confidence, request.abstain_below),
            shortened=list(result.shortened) or None,
        )
        give_value(choice, result, work.asked)
        choices.append(choice)
    return ChatResponse(
        model=model,
        choices=choices,
        usage=usage_of([results], work.began),
        system_fingerprint=host.fingerprint,
    )


async def chat_chunks(
    host: TextHost, request: ChatRequest, model: str, began: float
) -> AsyncGenerator[ChatChunk, None]:
    """The answer to a chat, piece by piece."""
    work = await work_of(host, request, began)
    chunk = partial(
        ChatChunk,
        id=new_id("chatcmpl-"),
        created=now(),
        model=model,
        usage=None,
        system_fingerprint=host.fingerprint,
    )

    readers = [work.reader for _ in range(work.made)]
    steps = [_Steps() for _ in range(work.made)]
    scores = [Untold() for _ in range(work.made)]
    for index in range(work.n):
        first = Delta(role="assistant", content="")
        yield chunk(choices=[ChunkChoice(index=index, delta=first)])
    results: dict[int, GenerationResult[Any]] = {}
    async with aclosing(pieces_of(work)) as pieces:
        async for made, piece in pieces:
            reader = readers[made]
            deltas: list[Delta]
            if isinstance(piece, GenerationResult):
                results[made] = piece
                if request.trace:
                    steps[made].add(piece.trace)
                if request.logprobs:
                    scores[made].end(piece.logprobs)
                deltas = [_delta(more) for more in reader.finish(piece.text)]
            elif piece.section == "answer":
                steps[made].add(piece.steps)
                scores[made].add(piece.logprobs)
                deltas = [_delta(more) for more in reader.feed(str(piece))]
            elif piece.section == "reasoning":
                deltas = [Delta(reasoning_content=str(piece))]
            else:
                continue
            places = range(made, work.n, work.made)
            for delta in deltas:
                told, ours = steps[made].take(), scores[made].take()
                logprobs = chat_logprobs(ours) if ours else None
                yield chunk(
                    choices=[
                        ChunkChoice(index=i, delta=delta, trace=told, logprobs=logprobs)
                        for i in places
                    ]
                )
            if isinstance(piece, GenerationResult):
                rest, ours = steps[made].take(), scores[made].take()
                for place in places:
                    last = ChunkChoice(
                        index=place,
                        delta=Delta(),
                        finish_reason=reason_of(piece, work.asked, has_calls=bool(reader.calls)),
                        logprobs=chat_logprobs(ours) if ours else None,
                        trace=rest,
                        confidence=sureness_of(piece.confidence, request.abstain_below),
                        shortened=list(piece.shortened) or None,
                    )
                    give_value(last, piece, work.asked)
                    yield chunk(choices=[last])
    if request.stream_options is not None and request.stream_options.include_usage:
        yield chunk(choices=[], usage=usage_of([list(results.values())], work.began))


class _Steps:
    """Steps of an output that are told with its chunks, each as soon as there is one."""

    def __init__(self) -> None:
        self._known: dict[int, TraceStep] = {}
        self._news: dict[int, TraceStep] = {}

    def add(self, steps: Iterable[TraceStep]) -> None:
        """Note steps that are new or have changed."""
        for step in steps:
            if self._known.get(step.index) != step:
                self._known[step.index] = self._news[step.index] = step

    def take(self) -> list[TokenStep] | None:
        """What is to be told now."""
        told = steps_of(self._news.values()) or None
        self._news.clear()
        return told


def _delta(more: More) -> Delta:
    if more.index is None:
        return Delta(content=more.content)
    if more.call is not None:
        call = DeltaToolCall(
            index=more.index,
            id=more.call.id,
            type="function",
            function=DeltaFunction(name=more.call.name),
        )
    else:
        call = DeltaToolCall(index=more.index, function=DeltaFunction(arguments=more.arguments))
    return Delta(tool_calls=[call])
