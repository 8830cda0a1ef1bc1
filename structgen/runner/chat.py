"""One request for text: from the request to the calls of a generator, and back to the answer.

Owns what `ChatRequest`s and `CompletionRequest`s become: prompt, options, outputs, and the choices
or chunks made of these. Which process makes the outputs is the host's business, what form they have
`constraints'`, how a text is read `reading`'s. Knows no registry and no sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Hashable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from structgen.decoding import AsyncStream, Chunk, GenerationResult, TokenPrompt
from structgen.decoding import options as search_options
from structgen.errors import (
    BatchError,
    IncompleteOutput,
    OptionError,
    OutputTypeError,
    RequestError,
)
from structgen.insight import TraceStep
from structgen.types import Call
from structgen.workers import WorkerGenerator, prompt_tokens

from .constraints import Wanted, refusal, wanted
from .hosts import TextHost
from .logprobs import CompletionScores, Untold, chat_logprobs
from .options import limits, search_of
from .reading import More, Reader
from .requests import ChatRequest, CompletionRequest, Sampled
from .responses import (
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    CompletionChoice,
    CompletionResponse,
    CompletionTokensDetails,
    Delta,
    DeltaFunction,
    DeltaToolCall,
    FinishReason,
    FunctionCall,
    PromptTokensDetails,
    ResponseMessage,
    TokenStep,
    ToolCall,
    Usage,
    new_id,
    now,
)
from .steps import steps_of, sureness_of

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "stop_string": "stop",
    "budget": "stop",  # whole: `shortened` says what the limit did
    "length": "length",
    "cancelled": "length",  # by timeout=
}


_BEGINNING = 40
"""Characters that tell one prompt from another, where there is a choice of processes."""

_FIELDS = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "adapter": "adapter",
    "abstain_below": "abstain_below",
    "best=": "best=",
    "retries=": "retries=",
    "logit_bias": "logit_bias",
    "stop=": "stop=",
}
"""Options that errors of a call are about, and the fields that they are."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a request comes to on a model.

    Attributes:
        host: the model.
        place: which of its processes makes the outputs.
        generator: makes them, in that.
        prompts: each as a generator takes it.
        options: of the calls.
        n: how many outputs of each prompt.
        made: how many of these are made; the others are the same, as nothing is left to chance.
        asked: the form.
        began: when the request came.
        thinking: the field that asks for thoughts, if any.
    """

    host: TextHost
    place: int
    generator: WorkerGenerator[Any]
    prompts: Sequence[Any]
    options: dict[str, Any]
    n: int
    made: int
    asked: Wanted
    began: float
    thinking: str | None

    @property
    def reader(self) -> Reader:
        """A reader of one of its outputs."""
        constraint = self.generator.constraint
        return Reader.of(None if constraint is None else constraint.output)


async def work_of(host: TextHost, request: Sampled, began: float) -> Work:
    """What a request comes to.

    Raises:
        RequestError: a field is wrong for this model, or its form cannot be enforced.
        PromptError: the prompt is empty.
    """
    asked = wanted(request)
    options = search_of(request)
    limit, think = limits(request, host.context_length)
    place = host.place_for(_beginning(request))
    try:
        generator = await host.generator(asked.key, asked.type, _of_type(request, think), place)
    except OutputTypeError as error:
        raise await asyncio.to_thread(refusal, error, asked) from error
    except OptionError as error:
        is_hint = "with_schema_hint=" in str(error)
        field = "with_schema_hint" if is_hint else _thinking_field(request)
        raise RequestError(str(error), param=field) from error
    options |= limit
    prompts: list[Any]
    if isinstance(request, ChatRequest):
        prompts = [[message.for_template() for message in request.messages]]
    else:
        assert isinstance(request, CompletionRequest)
        prompts = [_prompt(host, place, one) for place, one in enumerate(request.prompts)]
    if request.truncate_sequence:
        options["truncate"] = True
    n = request.n or 1
    settings = search_options.resolve(search_options.parse(options), host.search_defaults)
    made = n if settings.get("do_sample") else 1
    field = _thinking_field(request)
    return Work(host, place, generator, prompts, options, n, made, asked, began, field)


def _of_type(request: Sampled, think: Any) -> dict[str, Any]:
    """Options that go with the form."""
    options = {} if think is None else {"think": think}
    if isinstance(request, ChatRequest) and request.with_schema_hint:
        options["with_schema_hint"] = True
    return options


def _beginning(request: Sampled) -> Hashable:
    """What the prompts of a conversation have in common, whatever is said later in it."""
    if isinstance(request, ChatRequest):
        found = []
        for message in request.messages:
            found.append((message.role, message.text))
            if message.role == "user":
                break
        return hash(tuple(found))
    prompt = getattr(request, "prompt", None)
    first = prompt[0] if isinstance(prompt, (list, tuple)) and prompt else prompt
    return hash(str(first if isinstance(first, (str, list)) else prompt)[:_BEGINNING])


def _prompt(host: TextHost, place: int, prompt: str | list[int]) -> str | TokenPrompt:
    if isinstance(prompt, str):
        return prompt
    try:
        host.check_tokens(prompt)
    except OptionError as error:
        param = f"prompt[{place}]"
        raise RequestError(f"{param}: {error}", param=param) from None
    return TokenPrompt(tuple(prompt))


def _thinking_field(request: Sampled) -> str | None:
    for name in ("thinking_budget", "reasoning_effort", "enable_thinking"):
        if getattr(request, name, None) is not None:
            return name
    return None


async def results_of(work: Work) -> list[list[GenerationResult[Any]]]:
    """The outputs of each prompt, ``made`` of them.

    Raises:
        RequestError: the prompt does not fit the model, or the limit is too low.
        StructgenError: as for a generator.
    """

    async def outputs(prompt: Any) -> list[GenerationResult[Any]]:
        if work.made == 1:
            return [await work.generator.result(prompt, **work.options)]
        several: list[Any] = await work.generator.result(prompt, n=work.made, **work.options)
        return several

    tasks = [asyncio.ensure_future(outputs(prompt)) for prompt in work.prompts]
    try:
        with work.host.work_at(work.place):
            return [await task for task in tasks]
    except BatchError as several:
        first = next(iter(several.errors.values()))
        raise told(first, work) from first
    except IncompleteOutput as error:
        told(error, work)
        raise
    except OptionError as error:
        raise told(error, work) from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def prompt_length(host: TextHost, request: ChatRequest) -> int:
    """How many tokens the prompt of a chat has.

    Raises:
        As `work_of`.
    """
    work = await work_of(host, request, time.perf_counter())
    try:
        return len(await prompt_tokens(work.generator, work.prompts[0], **work.options))
    except OptionError as error:
        raise told(error, work) from error


def told(error: Exception, work: Work) -> Exception:
    """An error of a call, with the field that it is about, where there is one."""
    if isinstance(error, IncompleteOutput):
        # It says what would have made it whole, in the words of a generator.
        error.args = tuple(str(arg).replace("max_new_tokens=", "max_tokens=") for arg in error.args)
    if not isinstance(error, OptionError):
        return error
    text = str(error)
    param = None
    if work.thinking is not None and "think=" in text:
        if work.thinking == "thinking_budget":
            text = text.replace("think=", "thinking_budget=")
        return RequestError(text, param=work.thinking)
    for option, field in _FIELDS.items():
        if option in text:
            param, text = field.rstrip("="), text.replace(option, field)
            break
    return RequestError(text, param=param)


# -- chats ------------------------------------------------------------------------------------


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
            finish_reason=reason_of(result, has_calls=bool(calls)),
            logprobs=chat_logprobs(result.logprobs) if request.logprobs else None,
            trace=steps_of(result.trace) if request.trace else None,
            confidence=sureness_of(result.confidence, request.abstain_below),
            shortened=list(result.shortened) or None,
        )
        _give_value(choice, result, work.asked)
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
    id_, created = new_id("chatcmpl-"), now()

    def chunk(choices: list[ChunkChoice], usage: Usage | None = None) -> ChatChunk:
        return ChatChunk(
            id=id_,
            created=created,
            model=model,
            choices=choices,
            usage=usage,
            system_fingerprint=host.fingerprint,
        )

    readers = [work.reader for _ in range(work.made)]
    steps = [_Steps() for _ in range(work.made)]
    scores = [Untold() for _ in range(work.made)]
    for index in range(work.n):
        first = Delta(role="assistant", content="")
        yield chunk([ChunkChoice(index=index, delta=first)])
    results: dict[int, GenerationResult[Any]] = {}
    async with aclosing(_pieces(work)) as pieces:
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
                    [
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
                        finish_reason=reason_of(piece, has_calls=bool(reader.calls)),
                        logprobs=chat_logprobs(ours) if ours else None,
                        trace=rest,
                        confidence=sureness_of(piece.confidence, request.abstain_below),
                        shortened=list(piece.shortened) or None,
                    )
                    _give_value(last, piece, work.asked)
                    yield chunk([last])
    if request.stream_options is not None and request.stream_options.include_usage:
        yield chunk([], usage_of([list(results.values())], work.began))


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


async def _pieces(
    work: Work,
) -> AsyncGenerator[tuple[int, Chunk | GenerationResult[Any]], None]:
    """The pieces of all outputs as they come, each with its number; the last is the result."""
    streams: list[AsyncStream[Any]] = []
    for prompt in work.prompts:
        streams += work.generator.streams(prompt, work.made, **work.options)
    arrived: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

    async def read(number: int, stream: AsyncStream[Any]) -> None:
        try:
            async with stream:
                async for piece in stream:
                    arrived.put_nowait((number, piece))
                arrived.put_nowait((number, stream.result))
        except Exception as error:
            arrived.put_nowait((number, error))

    tasks = [asyncio.ensure_future(read(number, one)) for number, one in enumerate(streams)]
    left = len(tasks)
    try:
        with work.host.work_at(work.place):
            while left:
                number, piece = await arrived.get()
                if isinstance(piece, Exception):
                    raise told(piece, work)
                left -= isinstance(piece, GenerationResult)
                yield number, piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- completions ------------------------------------------------------------------------------


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
    id_, created = new_id("cmpl-"), now()

    def chunk(choices: list[CompletionChoice], usage: Usage | None = None) -> CompletionResponse:
        return CompletionResponse(
            id=id_,
            created=created,
            model=model,
            choices=choices,
            usage=usage,
            system_fingerprint=host.fingerprint,
        )

    def places(number: int) -> range:
        prompt, made = divmod(number, work.made)
        return range(prompt * work.n + made, (prompt + 1) * work.n, work.made)

    before = [text_of(host, prompt) if request.echo else "" for prompt in work.prompts]
    if request.echo:
        for index, text in enumerate(before):
            for place in range(index * work.n, (index + 1) * work.n):
                yield chunk([CompletionChoice(index=place, text=text)])
    results: list[list[GenerationResult[Any]]] = [[] for _ in work.prompts]
    scores = [Untold() for _ in range(work.made * len(work.prompts))]
    written = [CompletionScores(len(text)) for text in before for _ in range(work.made)]
    async with aclosing(_pieces(work)) as pieces:
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
                    yield chunk([last])
            else:
                yield chunk(
                    [
                        CompletionChoice(index=at, text=str(piece), logprobs=logprobs)
                        for at in places(number)
                    ]
                )
    if request.stream_options is not None and request.stream_options.include_usage:
        yield chunk([], usage_of(results, work.began))


def _completed(result: GenerationResult[Any], work: Work) -> CompletionChoice:
    choice = CompletionChoice(
        text=result.text,
        finish_reason=reason_of(result),
        shortened=list(result.shortened) or None,
    )
    _give_value(choice, result, work.asked)
    return choice


# -- what is said of outputs ------------------------------------------------------------------


def reason_of(result: GenerationResult[Any], *, has_calls: bool = False) -> FinishReason:
    """Why an output ended, in OpenAI's words."""
    if has_calls:
        return "tool_calls"
    return _REASONS[result.finish_reason or "stop"]


def usage_of(groups: Sequence[Sequence[GenerationResult[Any]]], began: float) -> Usage:
    """Tokens and times of the outputs that were made for one request, those of each prompt."""
    ended = time.perf_counter()
    prompt = cached = output = forced = reasoning = 0
    for group in groups:  # a prompt counts once, however many outputs it has
        prompt += max((one.usage.prompt_tokens for one in group), default=0)
        cached += max((one.usage.reused_tokens for one in group), default=0)
    results = [result for group in groups for result in group]
    for usage in (result.usage for result in results):
        output += usage.output_tokens + usage.reasoning_tokens + usage.draft_tokens
        forced += usage.forced_tokens
        reasoning += usage.reasoning_tokens
    firsts = [
        ended - began - result.timings.total_seconds + result.timings.first_chunk_seconds
        for result in results
        if result.timings.first_chunk_seconds is not None
    ]
    first = max(min(firsts), 0.0) if firsts else None
    total = ended - began
    speed = None
    if output:
        speed = round(output / total, 2)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=reasoning, forced_tokens=forced
        ),
        time_to_first_token=None if first is None else round(first, 6),
        total_time=round(total, 6),
        tokens_per_second=speed,
    )


def _give_value(
    choice: Choice | ChunkChoice | CompletionChoice, result: GenerationResult[Any], asked: Wanted
) -> None:
    """Have a choice make its typed value when it is asked for."""

    def value() -> Any:
        made = result.value
        if not asked.tools:
            return made
        calls = [piece for piece in made if isinstance(piece, Call)]
        if calls:
            return calls
        return made[0] if made else ""

    choice._result = result
    choice._made = value
