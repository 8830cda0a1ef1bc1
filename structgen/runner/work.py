"""One request for text as calls of a generator: prompts, options, output type, and who runs it.

Turns a `ChatRequest` or `CompletionRequest` into outputs, whole or streamed, and errors into ones
that name the request's fields. Each field becomes an option of the decode loop or is refused by
name. `hosts` picks the process that makes the outputs, `constraints` their type. Knows no answers,
no registry and no sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from structgen.decoding import (
    AsyncStream,
    Chunk,
    GenerationResult,
    TokenPrompt,
    chat,
    that_may_fit,
    too_long,
)
from structgen.decoding import options as search_options
from structgen.errors import (
    BatchError,
    CompileLimitExceeded,
    OptionError,
    OutputTypeError,
    RequestError,
)
from structgen.insight import TOP
from structgen.options import FIELDS, OPTIONS, field_of
from structgen.workers import STRANGER, WorkerGenerator, owner, prompt_tokens

from .constraints import Wanted, refusal, wanted
from .fields import has_more, placed
from .hosts import MAX_SCORES, TextHost
from .loops import Interrupted
from .requests import ChatRequest, CompletionRequest, Sampled

EFFORTS = {"minimal": 128, "low": 512, "medium": 1024, "high": 4096, "xhigh": 8192}
"""Most tokens of a thought, by ``reasoning_effort``; at most half of the model's context."""

DEFAULT_EFFORT = "medium"

_USUAL_TOKEN = 128  # bytes of the longest token of published models

_SECTIONS = ("think", "draft")
"""Options of a generator that put a section before the answer."""


def search_of(request: Sampled) -> dict[str, Any]:
    """Return the options of a call except its limit on tokens.

    Raises:
        RequestError: a value is wrong; the error names the field.
    """
    found: dict[str, Any] = {}
    for name, option in FIELDS.items():
        value = getattr(request, name)
        if option != "max_new_tokens" and value not in (None, [], OPTIONS[option].default):
            found[option] = value
    if isinstance(request, CompletionRequest) and request.logprobs is not None:
        found |= {"logprobs": True, "top_logprobs": request.logprobs}
    if isinstance(request, ChatRequest):
        if request.top_logprobs and not request.logprobs:
            raise RequestError("top_logprobs requires logprobs=true.", param="top_logprobs")
        if request.logprobs:
            found |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
        if request.trace:
            found["trace"] = True
    return found


def settings_of(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search settings of a call, from its options and the model's defaults."""
    return search_options.resolve(search_options.parse(options), defaults)


def samples_how(request: Sampled, defaults: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the temperature and ``top_p`` that a request is answered with.

    Args:
        request: the request.
        defaults: the model's own settings; None: not known yet.
    """
    settings = settings_of(search_of(request), defaults or {})
    if not settings.get("do_sample"):
        return {"temperature": 0.0, "top_p": 1.0}
    return {
        "temperature": float(settings.get("temperature", 1.0)),
        "top_p": float(settings.get("top_p") or 1.0),
    }


def limits(request: Sampled, context_length: int) -> tuple[dict[str, Any], Any]:
    """Return the limit on an output's tokens as an option, and the thinking options of
    `structgen.Generator`.

    Raises:
        RequestError: a value is wrong, or two contradict each other.
    """
    most, field = request.max_tokens, "max_tokens"
    if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
        field = "max_completion_tokens"
        if most is not None and most != request.max_completion_tokens:
            raise RequestError(
                "max_tokens and max_completion_tokens are two names for the same limit. Pass only "
                "one.",
                param=field,
            )
        most = request.max_completion_tokens
    think = _thinking(request, context_length) if isinstance(request, ChatRequest) else None
    if think and most is not None:
        # The limit counts both: at least a quarter of it is left for the answer.
        think = min(think, most - max(most // 4, 1))
        if think < 1:
            raise RequestError(
                f"{field}={most} leaves no tokens for thinking. Raise it.", param=field
            )
        most -= think
    return ({} if most is None else {"max_new_tokens": most}), think


def _thinking(request: ChatRequest, context_length: int) -> int | None:
    effort, budget, enabled = (
        request.reasoning_effort,
        request.thinking_budget,
        request.enable_thinking,
    )
    off = [name for name, is_off in (
        ("enable_thinking", enabled is False),
        ("reasoning_effort", effort == "none"),
    ) if is_off]  # fmt: skip
    on = [name for name, is_on in (
        ("enable_thinking", enabled is True),
        ("reasoning_effort", effort not in (None, "none")),
        ("thinking_budget", budget is not None),
    ) if is_on]  # fmt: skip
    if off and on:
        raise RequestError(f"{off[0]} and {on[0]} contradict each other.", param=on[0])
    if off:
        return 0
    if not on:
        return None
    if budget is not None:
        return budget
    return min(EFFORTS[effort or DEFAULT_EFFORT], context_length // 2)


_BEGINNING = 40
"""Characters by which prompts are told apart to choose a process."""


@dataclass(frozen=True, slots=True)
class Work:
    """A request as calls of a generator on a model.

    Attributes:
        host: the model.
        place: the number of the process that makes the outputs.
        generator: the generator in that process.
        prompts: the prompts, in a form that a generator accepts.
        options: the options of the calls.
        n: number of outputs of each prompt.
        made: how many of these are generated; without sampling all are equal, so one is enough.
        scores: the most log probabilities that all outputs may have.
        asked: the form of the request.
        began: the time when the request arrived.
        thinking: the field that asks for thinking; None: none does.
    """

    host: TextHost
    place: int
    generator: WorkerGenerator[Any]
    prompts: Sequence[Any]
    options: dict[str, Any]
    n: int
    made: int
    scores: int
    asked: Wanted
    began: float
    thinking: str | None


async def work_of(host: TextHost, request: Sampled, began: float) -> Work:
    """Return the work for a request.

    Raises:
        RequestError: a field is wrong for this model, or its form cannot be enforced.
        PromptError: the prompt is empty.
    """
    if STRANGER.get() is None and not request._is_foreign:
        asked, prompts = _read(host, request)
    else:  # looking through half a megabyte takes a tenth of a second or more
        asked, prompts = await host.aside(partial(_read, host, request))
    options = search_of(request)
    limit, think = limits(request, host.context_length)
    place = host.place_for((owner(), _beginning(request)))
    try:
        of_type = {} if think is None else {"think": think}
        if isinstance(request, ChatRequest) and request.with_schema_hint:
            of_type["with_schema_hint"] = True
        foreign = request._is_foreign
        generator = await host.generator(asked.key, asked.type, of_type, place, foreign=foreign)
    except OutputTypeError as error:
        raise await host.aside(partial(refusal, error, asked)) from error
    except OptionError as error:
        raise _in_words(error, _thinking_field(request), error.option) from error
    options |= limit
    n = request.n or 1
    form = generator.constraint
    samples = settings_of(options, host.search_defaults).get("do_sample") or (
        form is not None and form.has_temperatures
    )
    if samples and host.seed is not None:
        options.setdefault("seed", host.seed)
    made = n if samples else 1
    field = _thinking_field(request)
    scores = _scores(options, n * len(prompts), host)
    return Work(host, place, generator, prompts, options, n, made, scores, asked, began, field)


def _read(host: TextHost, request: Sampled) -> tuple[Wanted, list[Any]]:
    """Return the form and the prompts of a request. Raises as `work_of`."""
    asked = wanted(request)
    # Each prompt is sent for each of n= outputs. The first model has what is asked of one here.
    model, cuts = cast(Any, host.models[0]), bool(request.truncate_sequence)
    prompts: list[Any]
    if isinstance(request, ChatRequest):
        messages = [message.for_template() for message in request.messages]
        calls, most = [one.get("tool_calls") for one in messages], 2 * model.context_length
        if not cuts and has_more(calls, most):  # each value is a token or more
            raise too_long(model, f"tool calls with more than {most:,} tokens")
        prompts = [chat.parse(messages)]
    else:
        assert isinstance(request, CompletionRequest)
        prompts = [_prompt(host, place, one) for place, one in enumerate(request.prompts)]
    return asked, [that_may_fit(model, prompt, cuts=cuts) for prompt in prompts]


def _scores(options: Mapping[str, Any], n_outputs: int, host: TextHost) -> int:
    """Return the number of log probabilities of ``n_outputs``, checked against the limit; long
    tokens count several times.

    Raises:
        RequestError: there may be more than the limit, and the request is foreign or the model has
            very long tokens.
    """
    each = 2 * TOP + 2 if options.get("trace") else 0
    if options.get("logprobs"):
        each += 1 + int(options["top_logprobs"])
    as_many = max(1, host.models[0].vocabulary.trie.max_depth // _USUAL_TOKEN)
    each *= as_many
    n_tokens: int = min(options.get("max_new_tokens", host.context_length), host.context_length)
    scores = n_outputs * n_tokens * each
    if scores > MAX_SCORES and (as_many > 1 or STRANGER.get() is not None):
        raise RequestError(
            f"{n_outputs:,} outputs of up to {n_tokens:,} tokens with {each:,} log probabilities "
            f"each may return {scores:,} log probabilities. The limit is {MAX_SCORES:,}. Lower "
            "max_tokens, top_logprobs or n.",
            param="logprobs" if options.get("logprobs") else "trace",
        )
    return scores


def _beginning(request: Sampled) -> Hashable:
    """Return the beginning that all prompts of a conversation share, however it continues."""
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


async def prompt_length(host: TextHost, request: ChatRequest) -> int:
    """Return the number of tokens in the prompt of a chat.

    Raises:
        As `work_of`.
    """
    work = await work_of(host, request, time.perf_counter())
    try:
        return len(await prompt_tokens(work.generator, work.prompts[0], **work.options))
    except OptionError as error:
        raise with_field(error, work) from error


def with_field(error: Exception, work: Work) -> Exception:
    """Return an error of a call with the field that it is about, if there is one."""
    if isinstance(error, CompileLimitExceeded) and work.asked.param != "output_type":
        return placed(error, work.asked.param)  # by a mask
    if not isinstance(error, OptionError):
        return error
    # Requests have one limit, that on output tokens.
    param = "max_tokens" if error.option == "max_length" else field_of(error.option)
    return _in_words(error, work.thinking, param)


def _in_words(error: OptionError, thinking: str | None, param: str | None) -> RequestError:
    """Return an error that names the request's field: ``thinking`` for errors of thinking,
    otherwise ``param``."""
    if error.option in _SECTIONS:
        param = thinking
    return RequestError(error.naming(param) if param else str(error), param=param)


async def pieces_of(
    work: Work, *, streams: bool
) -> AsyncGenerator[tuple[int, Chunk | GenerationResult[Any]], None]:
    """Yield the pieces of all outputs as they are made, each with the number of its output; the
    last piece of each is its result.

    Unless they are streamed, yield only the results, those of a prompt when all are done.

    Raises:
        RequestError: the prompt does not fit the model, or the limit is too low.
        StructgenError: as for a generator.
    """
    arrived: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

    def fail(number: int, error: BaseException) -> None:
        raised = error if isinstance(error, Exception) else Interrupted(error)  # by a check
        arrived.put_nowait((number, raised))

    async def read(number: int, stream: AsyncStream[Any]) -> None:
        try:
            async with stream:
                async for piece in stream:
                    arrived.put_nowait((number, piece))
                arrived.put_nowait((number, stream.result))
        except BaseException as error:
            fail(number, error)

    async def wait(number: int, prompt: Any) -> None:
        options = work.options if work.made == 1 else {**work.options, "n": work.made}
        try:
            made: Any = await work.generator.result(prompt, **options)
            for index, result in enumerate([made] if work.made == 1 else made):
                arrived.put_nowait((number + index, result))
        except BatchError as error:
            arrived.put_nowait((number, next(iter(error.errors.values()))))
        except BaseException as error:
            fail(number, error)

    going: list[AsyncStream[Any]] = []
    try:
        for prompt in work.prompts if streams else ():
            going += work.generator.streams(prompt, work.made, **work.options)
    except OptionError as error:
        raise with_field(error, work) from error
    jobs = [read(number, stream) for number, stream in enumerate(going)]
    if not streams:
        jobs = [wait(at * work.made, prompt) for at, prompt in enumerate(work.prompts)]
    tasks = [asyncio.ensure_future(job) for job in jobs]
    left = work.made * len(work.prompts)
    piece: Any = None
    raised: Exception | None = None
    try:
        with work.host.work_at(work.place, work.scores):
            while left:
                number, piece = await arrived.get()
                if isinstance(piece, Exception):
                    raised = with_field(piece, work)
                    raise raised from (piece.__cause__ if raised is piece else piece)
                left -= isinstance(piece, GenerationResult)
                yield number, piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        piece = raised = None  # as in `LoopThread.wait`
