"""Answers to requests for text: choices and chunks, made of outputs, whole or piece by piece.

Owns what an answer says beside its text: why it ended, what it took, its typed value, log
probabilities, what happened at each token, and why a token was not allowed. Tokens are written as
OpenAI's API writes them: as text where their bytes are text, else as bytes. Log probabilities are
those of the distribution that was chosen from: among the tokens that the output type allowed. How
outputs come about is the business of `work`; reasons come from `structgen.insight`.
"""

from __future__ import annotations

import codecs
import math
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, final

from structgen.automaton.core import GROW
from structgen.automaton.work import Limits, sharing
from structgen.decoding import GenerationResult, TokenPrompt
from structgen.errors import OptionError, OutputTypeError, RequestError, TokenNotAllowed
from structgen.insight import TOP, TraceStep, ValueConfidence, why_barred
from structgen.sampling import TokenLogprob as Scored
from structgen.sampling import TopToken
from structgen.types import Call
from structgen.workers import STRANGER

from .constraints import Wanted, refusal, wanted
from .hosts import TextHost
from .requests import ChatRequest, CompletionRequest, ExplainRequest
from .responses import (
    ChatChunk,
    ChatResponse,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionChoice,
    CompletionLogprobs,
    CompletionResponse,
    CompletionTokensDetails,
    Delta,
    DeltaFunction,
    DeltaToolCall,
    FinishReason,
    FunctionCall,
    LikelyToken,
    LikelyValue,
    PromptTokensDetails,
    ResponseMessage,
    TokenLogprob,
    TokenStep,
    ToolCall,
    TopLogprob,
    Usage,
    ValueSureness,
    new_id,
    now,
)
from .work import More, Work, pieces_of, results_of, work_of

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "stop_string": "stop",
    "budget": "stop",  # whole: `shortened` says what the limit did
    "length": "length",
    "cancelled": "length",  # by timeout=
}


def reason_of(
    result: GenerationResult[Any], asked: Wanted, *, has_calls: bool = False
) -> FinishReason:
    """Why an output ended, in OpenAI's words."""
    if has_calls:
        return "tool_calls"
    if result.finish_reason == "budget" and asked.answer_is_free:
        return "length"  # any text is whole for the tools' grammar, but not for its reader
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


def give_value(
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


LEAST = -9999.0
"""What stands for a probability of nothing, which JSON has no number for."""


def written(token: bytes) -> str:
    """A token as text; where its bytes are none by themselves, ``bytes:\\xe2\\x80``."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _number(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST


def _listed(top: tuple[TopToken, ...]) -> list[TopToken]:
    return [one for one in top if math.isfinite(one.logprob)]


def chat_logprobs(scores: Sequence[Scored]) -> ChoiceLogprobs:
    """Those of tokens of a chat's answer, which are all its tokens, calls included."""
    return ChoiceLogprobs(
        content=[
            TokenLogprob(
                token=written(one.token),
                logprob=_number(one.logprob),
                bytes=list(one.token),
                top_logprobs=[
                    TopLogprob(token=written(t.token), logprob=t.logprob, bytes=list(t.token))
                    for t in _listed(one.top)
                ],
            )
            for one in scores
        ]
    )


@final
class CompletionScores:
    """Those of one completion, piece by piece.

    Args:
        start: how many characters of its text come before its first token.
    """

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._length = start

    def of(self, scores: Sequence[Scored]) -> CompletionLogprobs:
        """Those of the tokens that come next."""
        tokens, numbers, tops, offsets = [], [], [], []
        for one in scores:
            tokens.append(written(one.token))
            numbers.append(_number(one.logprob))
            tops.append({written(t.token): t.logprob for t in _listed(one.top)})
            offsets.append(self._length)
            self._length += len(self._decoder.decode(one.token))
        return CompletionLogprobs(
            tokens=tokens,
            token_logprobs=numbers,
            top_logprobs=tops if any(tops) else None,
            text_offset=offsets,
        )


@final
class Untold:
    """Scores of one output that no piece of its answer has told yet."""

    def __init__(self) -> None:
        self._n_added = 0
        self._scores: list[Scored] = []

    def add(self, scores: Sequence[Scored]) -> None:
        """Note those that come next."""
        self._n_added += len(scores)
        self._scores += scores

    def end(self, scores: Sequence[Scored]) -> None:
        """Note those that are left of the whole output's."""
        self.add(scores[self._n_added :])

    def take(self) -> list[Scored]:
        """What is to be told now."""
        scores, self._scores = self._scores, []
        return scores


def steps_of(steps: Iterable[TraceStep]) -> list[TokenStep]:
    """Steps as answers have them."""
    return [_step(step) for step in steps]


def _step(step: TraceStep) -> TokenStep:
    scores = step.logprob
    own = scores.unmasked_logprob
    return TokenStep(
        index=step.index,
        token="" if step.is_end else written(step.token),
        token_id=step.token_id,
        bytes=list(step.token),
        start=step.start,
        path=step.path,
        is_end=step.is_end,
        is_forced=step.is_forced,
        allowed=step.n_allowed,
        logprob=max(scores.logprob, LEAST),
        own_logprob=None if own is None else max(own, LEAST),
        removed=scores.removed,
        top=_tokens(() if step.is_forced else scores.top),
        own_top=_tokens(scores.unmasked_top),
    )


def _tokens(tokens: Iterable[TopToken]) -> list[LikelyToken]:
    return [
        LikelyToken(
            token=written(one.token),
            token_id=one.token_id,
            logprob=one.logprob,
            is_allowed=one.is_allowed,
        )
        for one in tokens
        if one.logprob > LEAST
    ]


def sureness_of(
    confidence: Mapping[str, ValueConfidence], asked: float | Mapping[str, float] | None
) -> dict[str, ValueSureness] | None:
    """How sure the model is of the values that ``abstain_below`` was about; None: of none."""
    if asked is None:
        return None
    paths = asked if isinstance(asked, Mapping) else list(confidence)
    return {
        path: ValueSureness(
            probability=confidence[path].probability,
            alternatives=[
                LikelyValue(value=one.value, probability=one.probability)
                for one in confidence[path].alternatives[:TOP]
            ],
        )
        for path in paths
    }


async def explain(host: TextHost, request: ExplainRequest) -> str:
    """Why a token was not allowed at a place, or that it was.

    For a stranger the whole of it may take as many steps as to compile the form.

    Raises:
        RequestError: there is no form, or the tokens before are none of an output of it; or it
            takes too much.
    """
    fields = ("response_format", "grammar", "grammar_type")
    form = ChatRequest.of({"messages": "-"}, {name: getattr(request, name) for name in fields})
    asked = wanted(form)
    if asked.type is None:
        return "In free text every token is allowed."
    try:
        generator = await host.generator(asked.key, asked.type, {})
    except OutputTypeError as error:
        raise refusal(error, asked) from error
    constraint = generator.constraint
    assert constraint is not None
    size = constraint.vocabulary.size
    for name, ids in (("before", request.before), ("chosen", [request.chosen])):
        if not all(0 <= one < size for one in ids):
            raise RequestError(f"{name}: token ids are 0 to {size - 1:,}.", param=name)

    stranger, spent = STRANGER.get(), [0]

    @contextmanager
    def bounded() -> Iterator[None]:
        if stranger is None:
            yield
            return
        with GROW, sharing(Limits(stranger.max_work), spent):
            yield

    def why() -> str:
        cursor = constraint.start()
        try:
            for token_id in request.before:
                with bounded():
                    cursor.accept(token_id)
        except TokenNotAllowed as error:
            raise RequestError(f"before: {error}", param="before") from error
        return why_barred(
            constraint,
            request.before,
            request.token,
            chosen=request.chosen,
            max_tokens=request.max_tokens,
            around=bounded,
        )

    try:
        return await host.aside(why)
    except OutputTypeError as error:
        raise refusal(error, asked) from error
    except OptionError as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"token: {error}", param="token") from error


async def chat(host: TextHost, request: ChatRequest, model: str, began: float) -> ChatResponse:
    """The answer to a chat."""
    work = await work_of(host, request, began)
    (results,) = await results_of(work)
    if request.logprobs or request.trace:  # of thousands of tokens, that takes seconds
        return await host.aside(partial(_chat, host, request, model, work, results))
    return _chat(host, request, model, work, results)


def _chat(
    host: TextHost,
    request: ChatRequest,
    model: str,
    work: Work,
    results: Sequence[GenerationResult[Any]],
) -> ChatResponse:
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


def text_of(host: TextHost, prompt: str | TokenPrompt) -> str:
    """The text of a prompt."""
    return prompt if isinstance(prompt, str) else host.text_of(prompt.token_ids)


async def complete(
    host: TextHost, request: CompletionRequest, model: str, began: float
) -> CompletionResponse:
    """The texts that go on from prompts."""
    work = await work_of(host, request, began)
    found = await results_of(work)
    if request.logprobs is not None:  # as of chats
        return await host.aside(partial(_complete, host, request, model, work, found))
    return _complete(host, request, model, work, found)


def _complete(
    host: TextHost,
    request: CompletionRequest,
    model: str,
    work: Work,
    found: Sequence[Sequence[GenerationResult[Any]]],
) -> CompletionResponse:
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
