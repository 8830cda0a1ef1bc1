"""The answer to a `CompletionRequest`: texts that go on from prompts, whole or piece by piece.

Owns the choices and chunks that outputs become. How they come about is `work`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from structgen.decoding import GenerationResult, TokenPrompt

from .hosts import TextHost
from .logprobs import CompletionScores, Untold
from .outcomes import give_value, reason_of, usage_of
from .requests import CompletionRequest
from .responses import CompletionChoice, CompletionResponse
from .shape import new_id, now
from .work import Work, pieces_of, results_of, work_of


def text_of(host: TextHost, prompt: str | TokenPrompt) -> str:
    """The text of a prompt."""
    return prompt if isinstance(prompt, str) else host.text_of(prompt.token_ids)


async def complete(
    host: TextHost, request: CompletionRequest, model: str, began: float
) -> CompletionResponse:
    """The texts that go on from prompts."""
    work = await work_of(host, request, began)
    found = await results_of(work)
    choices: list[CompletionChoice] = []
    for prompt, results in zip(work.prompts, found, strict=True):
        for number in range(work.n):
            result = results[number % work.made]
            before = text_of(host, prompt) if request.echo else ""
            choice = _completed(result, work)
            choice.index = len(choices)
            choice.text = before + choice.text
            if request.logprobs is not None:
                choice.logprobs = CompletionScores(len(before)).of(result.logprobs)
            choices.append(choice)
    return CompletionResponse(
        model=model,
        choices=choices,
        usage=usage_of(found, work.began),
        system_fingerprint=host.fingerprint,
    )


async def completion_chunks(
    host: TextHost, request: CompletionRequest, model: str, began: float
) -> AsyncGenerator[CompletionResponse, None]:
    """The texts that go on from prompts, piece by piece."""
    work = await work_of(host, request, began)
    chunk = partial(
        CompletionResponse,
        id=new_id("cmpl-"),
        created=now(),
        model=model,
        usage=None,
        system_fingerprint=host.fingerprint,
    )

    def places(number: int) -> range:
        prompt, made = divmod(number, work.made)
        return range(prompt * work.n + made, (prompt + 1) * work.n, work.made)

    before = [text_of(host, prompt) if request.echo else "" for prompt in work.prompts]
    if request.echo:
        for index, text in enumerate(before):
            for place in range(index * work.n, (index + 1) * work.n):
                yield chunk(choices=[CompletionChoice(index=place, text=text)])
    results: list[list[GenerationResult[Any]]] = [[] for _ in work.prompts]
    scores = [Untold() for _ in range(work.made * len(work.prompts))]
    written = [CompletionScores(len(text)) for text in before for _ in range(work.made)]
    async with aclosing(pieces_of(work)) as pieces:
        async for number, piece in pieces:
            if isinstance(piece, GenerationResult):
                results[number // work.made].append(piece)
                if request.logprobs is not None:
                    scores[number].end(piece.logprobs)
            elif piece.section == "answer":
                scores[number].add(piece.logprobs)
            else:
                continue
            ours = scores[number].take()
            logprobs = written[number].of(ours) if ours else None
            if isinstance(piece, GenerationResult):
                for place in places(number):
                    last = _completed(piece, work)
                    last.index, last.text, last.logprobs = place, "", logprobs
                    yield chunk(choices=[last])
            else:
                yield chunk(
                    choices=[
                        CompletionChoice(index=at, text=str(piece), logprobs=logprobs)
                        for at in places(number)
                    ]
                )
    if request.stream_options is not None and request.stream_options.include_usage:
        yield chunk(choices=[], usage=usage_of(results, work.began))


def _completed(result: GenerationResult[Any], work: Work) -> CompletionChoice:
    choice = CompletionChoice(
        text=result.text,
        finish_reason=reason_of(result, work.asked),
        shortened=list(result.shortened) or None,
    )
    give_value(choice, result, work.asked)
    return choice
