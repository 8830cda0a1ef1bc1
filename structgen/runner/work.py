"""One request for text as calls of a generator: prompts, options, form, and who makes the outputs.

Owns what `ChatRequest`s and `CompletionRequest`s become, the outputs of that, whole or piece by
piece, and errors in words of the request. Which process makes the outputs is the host's business,
what form they have `constraints'`. Knows no shapes of answers, no registry and no sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from structgen.decoding import AsyncStream, Chunk, GenerationResult, TokenPrompt
from structgen.errors import (
    BatchError,
    CompileLimitExceeded,
    IncompleteOutput,
    OptionError,
    OutputTypeError,
    RequestError,
)
from structgen.workers import WorkerGenerator, owner, prompt_tokens

from .constraints import Wanted, refusal, wanted
from .fields import placed
from .hosts import TextHost
from .options import limits, search_of, settings_of
from .reading import Reader
from .requests import ChatRequest, CompletionRequest, Sampled

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
    place = host.place_for((owner(), _beginning(request)))
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
    made = n if settings_of(options, host.search_defaults).get("do_sample") else 1
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
    except (OptionError, OutputTypeError) as error:
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
    if isinstance(error, CompileLimitExceeded) and work.asked.param != "output_type":
        made = placed(error, work.asked.param)  # by a mask
        made.__cause__ = error
        return made
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


async def pieces_of(
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
