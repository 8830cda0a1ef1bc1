"""Answers to requests for text: choices and chunks, built from outputs, whole or streamed.

Beside its text an answer has the reason why it ended, its usage, its typed value, log
probabilities, the trace of its steps, and explanations of why a token was not allowed. Tokens are
written as in OpenAI's API: as text if their bytes are text, otherwise as bytes. Log probabilities
are relative to the tokens that the output type allowed. `work` makes the outputs;
`structgen.insight` supplies the reasons.
"""

from __future__ import annotations

import codecs
import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, final

from structgen.automaton.core import GROW
from structgen.automaton.work import Limits, sharing
from structgen.decoding import Chunk, GenerationResult
from structgen.errors import OptionError, OutputTypeError, RequestError, TokenNotAllowed
from structgen.insight import TOP, TraceStep, ValueConfidence, why_barred
from structgen.sampling import TokenLogprob as Scored
from structgen.sampling import TopToken
from structgen.types import Call, OutputType
from structgen.workers import STRANGER

from .constraints import Wanted, refusal, wanted
from .hosts import TextHost
from .requests import ChatRequest, CompletionRequest, ExplainRequest
from .responses import (
    MANY_SCORES,
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
    LikelyToken,
    LikelyValue,
    TokenLogprob,
    TokenStep,
    TopLogprob,
    Usage,
    ValueSureness,
    new_id,
    now,
)
from .work import Work, pieces_of, work_of

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "stop_string": "stop",
    "budget": "stop",  # a shortened output is whole: `shortened` says what the limit did
    "length": "length",
    "cancelled": "length",  # ended by timeout=
}


def reason_of(
    result: GenerationResult[Any], asked: Wanted, *, has_calls: bool = False
) -> FinishReason:
    """Return why an output ended, as OpenAI's ``finish_reason``."""
    if has_calls:
        return "tool_calls"
    if result.finish_reason == "budget" and asked.answer_is_free:
        return "length"  # for the tools' grammar any text is whole, for its reader it is not
    return _REASONS[result.finish_reason or "stop"]


def usage_of(groups: Sequence[Sequence[GenerationResult[Any]]], began: float) -> Usage:
    """Sum the tokens and times of a request's outputs, grouped by prompt."""
    ended = time.perf_counter()
    prompt = cached = output = 0
    details = CompletionTokensDetails()
    for group in groups:  # a prompt counts once, whatever n= is
        prompt += max((one.usage.prompt_tokens for one in group), default=0)
        cached += max((one.usage.reused_tokens for one in group), default=0)
    results = [result for group in groups for result in group]
    for usage in (result.usage for result in results):
        output += usage.output_tokens + usage.reasoning_tokens + usage.draft_tokens
        details.forced_tokens += usage.forced_tokens
        details.reasoning_tokens += usage.reasoning_tokens
        details.accepted_prediction_tokens += usage.accepted_tokens
        details.rejected_prediction_tokens += usage.guessed_tokens - usage.accepted_tokens
    firsts = [
        ended - began - result.timings.total_seconds + result.timings.first_chunk_seconds
        for result in results
        if result.timings.first_chunk_seconds is not None
    ]
    first = max(min(firsts), 0.0) if firsts else None
    return Usage.of(prompt, cached, output, details, first, ended - began)


def finish(
    choice: ChunkChoice | CompletionChoice,
    result: GenerationResult[Any],
    asked: Wanted,
    *,
    has_calls: bool = False,
) -> None:
    """Set how an output ended, and let its choice make the typed value when it is read."""
    choice.finish_reason = reason_of(result, asked, has_calls=has_calls)
    choice.confidence = sureness_of(result.confidence, result.abstain_below)
    choice.shortened = list(result.shortened) or None

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
"""Stands for the logarithm of 0, which JSON cannot write."""


def written(token: bytes) -> str:
    """Return a token as text; where its bytes are none by themselves, ``bytes:\\xe2\\x80``."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _number(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST


def _listed(top: tuple[TopToken, ...]) -> list[TopToken]:
    return [one for one in top if math.isfinite(one.logprob)]


def chat_logprobs(scores: Sequence[Scored]) -> ChoiceLogprobs:
    """Return the log probabilities of a chat's answer: of all its tokens, tool calls included."""
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
    """The log probabilities of one completion, piece by piece.

    Args:
        start: the number of characters of the text before its first token.
    """

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._length = start

    def of(self, scores: Sequence[Scored]) -> CompletionLogprobs:
        """Return the log probabilities of the next tokens."""
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
class UnsentScores:
    """Scores of one output that have not been sent yet."""

    def __init__(self) -> None:
        self._n_added = 0
        self._scores: list[Scored] = []

    def add(self, piece: Chunk | GenerationResult[Any]) -> None:
        """Add the scores of a piece; or of the whole output, those that no piece had."""
        scores = piece.logprobs[self._n_added if isinstance(piece, GenerationResult) else 0 :]
        self._n_added += len(scores)
        self._scores += scores

    def take(self) -> list[Scored]:
        """Return what is to be sent now."""
        scores, self._scores = self._scores, []
        return scores


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
    """Return how sure the model is of the values that ``abstain_below`` names; None: it is None."""
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
    """Return why a token was not allowed at a place, or say that it was allowed.

    A foreign request may take as many steps in total as compiling its form.

    Raises:
        RequestError: the request has no form, the tokens before cannot begin an output of the form,
            or the explanation takes too many steps.
    """
    fields = ("response_format", "grammar", "grammar_type")
    form = ChatRequest.of({"messages": "-"}, {name: getattr(request, name) for name in fields})
    asked = await host.aside(partial(wanted, form))
    if asked.type is None:
        return "In free text every token is allowed."
    try:
        generator = await host.generator(asked.key, asked.type, {})
    except OutputTypeError as error:
        raise await host.aside(partial(refusal, error, asked)) from error
    constraint = generator.constraint
    assert constraint is not None
    size = constraint.vocabulary.size
    for name, ids in (("before", request.before), ("chosen", [request.chosen])):
        if not all(0 <= one < size for one in ids):
            raise RequestError(f"{name}: token ids range from 0 to {size - 1:,}.", param=name)

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


async def chat(
    host: TextHost, request: ChatRequest, model: str, began: float, *, streams: bool
) -> AsyncGenerator[ChatChunk | ChatResponse, None]:
    """Yield the answer to a chat: its chunks, then the whole response.

    Unless it is streamed, the chunks of an output come at once, when all outputs are done.
    """
    work = await work_of(host, request, began)
    chunk = partial(
        ChatChunk,
        id=new_id("chatcmpl-"),
        created=now(),
        model=model,
        system_fingerprint=host.fingerprint,
    )
    whole = ChatResponse(
        **chunk.keywords, choices=[Choice.begun(index) for index in range(work.n)], usage=Usage()
    )
    for choice in whole.choices:
        choice.logprobs = ChoiceLogprobs(content=[]) if request.logprobs else None
        choice.trace = [] if request.trace else None
    outputs = [_Output(index, work, request, streams) for index in range(work.made)]
    results: dict[int, GenerationResult[Any]] = {}
    heads = range(work.n if streams else 0)  # sent first, but only once there is something to send
    async with aclosing(pieces_of(work, streams=streams)) as pieces:
        async for made, piece in pieces:
            if isinstance(piece, GenerationResult):
                results[made] = piece
            read = partial(outputs[made].choices, piece)
            takes_long = _takes_long(piece, bool(request.logprobs), bool(request.trace))
            for one in await host.aside(read) if takes_long else read():
                for index in heads:
                    first = Delta(role="assistant", content="")
                    yield chunk(choices=[ChunkChoice(index=index, delta=first)])
                heads = range(0)
                others = range(made + work.made, work.n, work.made)
                choices = [one, *(one.model_copy(update={"index": place}) for place in others)]
                for more in choices:
                    whole.choices[more.index].add(more)
                yield chunk(choices=choices)
    whole.usage = usage_of([list(results.values())], work.began)
    yield whole


def _takes_long(piece: Chunk | GenerationResult[Any], scores: bool, trace: bool = False) -> bool:
    """Return whether reading the ``scores`` and the ``trace`` of a piece takes long. A stream may
    send all at once, too, where it awaited a stop text."""
    tokens = [*piece.logprobs] if scores else []
    if trace:
        steps = piece.trace if isinstance(piece, GenerationResult) else piece.steps
        tokens += [step.logprob for step in steps]
    return sum(1 + len(token.top) for token in tokens) > MANY_SCORES


@final
class _Output:
    """One output of a chat, in the form of chunks."""

    def __init__(self, index: int, work: Work, request: ChatRequest, streams: bool) -> None:
        self._index = index
        self._work = work
        self._request = request
        self._streams = streams
        constraint = work.generator.constraint
        self._reader = _Reader(None if constraint is None else constraint.output)
        self._steps = _Steps()
        self._scores = UnsentScores()

    def choices(self, piece: Chunk | GenerationResult[Any]) -> list[ChunkChoice]:
        """Return what a piece adds; or what the final result has that no piece had."""
        reader, request = self._reader, self._request
        deltas: list[Delta] = []
        if isinstance(piece, GenerationResult):
            if request.trace:
                self._steps.add(piece.trace)
            if request.logprobs:
                self._scores.add(piece)
            if not self._streams:
                if piece.reasoning is not None:
                    deltas.append(Delta(reasoning_content=piece.reasoning))
                deltas += reader.feed(piece.text)
            deltas += reader.finish(piece.text)
        elif piece.section == "answer":
            self._steps.add(piece.steps)
            self._scores.add(piece)
            deltas += reader.feed(str(piece))
        elif piece.section == "reasoning":
            deltas.append(Delta(reasoning_content=str(piece)))
        found = [self._choice(delta) for delta in deltas]
        if isinstance(piece, GenerationResult):
            last = self._choice(Delta())
            finish(last, piece, self._work.asked, has_calls=reader.n_calls > 0)
            found.append(last)
        return found

    def _choice(self, delta: Delta) -> ChunkChoice:
        scores = self._scores.take()
        return ChunkChoice(
            index=self._index,
            delta=delta,
            trace=self._steps.take(),
            logprobs=chat_logprobs(scores) if scores else None,
        )


class _Steps:
    """The trace of an output, whose steps are sent with its chunks as soon as possible."""

    def __init__(self) -> None:
        self._known: dict[int, TraceStep] = {}
        self._news: dict[int, TraceStep] = {}

    def add(self, steps: Iterable[TraceStep]) -> None:
        """Add steps that are new or have changed."""
        for step in steps:
            if self._known.get(step.index) != step:
                self._known[step.index] = self._news[step.index] = step

    def take(self) -> list[TokenStep] | None:
        """Return what is to be sent now."""
        steps = [_step(step) for step in self._news.values()] or None
        self._news.clear()
        return steps


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@final
class _Reader:
    """Splits one output into content and tool calls with names and arguments.

    The order is that of OpenAI's streams: the id and name of a call come first, then pieces of its
    arguments.

    Attributes:
        n_calls: how many calls there were so far.
    """

    def __init__(self, output: OutputType[Any] | None) -> None:
        """Begin to read an output of a type."""
        offers = output is not None and output.offered is not None
        growing = output.growing if output is not None and offers else None
        self.n_calls = 0
        self._parts = None if growing is None else growing()
        self._step: Any = None
        self._has_arguments = False
        self._n_characters = 0  # of the content

    def feed(self, text: str) -> Iterator[Delta]:
        """Read more text; yield what it adds."""
        if self._parts is None:
            yield from self._content(text)
            return
        for part, more, _ in self._parts.feed(text):
            if part.tool is None:
                yield from self._content(more)
                continue
            if part.step != self._step:
                self._step, self._has_arguments = part.step, False
                self.n_calls += 1
                # Nine letters and digits, as Mistral's chat templates want them.
                id_ = "".join(secrets.choice(_LETTERS) for _ in range(9))
                yield self._call(DeltaFunction(name=part.tool), id=id_, type="function")
            if not self._has_arguments:
                more = more.lstrip(" \t\n\r")
            if more:
                self._has_arguments = True
                yield self._call(DeltaFunction(arguments=more))

    def finish(self, text: str) -> Iterator[Delta]:
        """End the text; yield what was held back because it could have begun a call."""
        return self._content("" if self.n_calls else text[self._n_characters :])

    def _content(self, text: str) -> Iterator[Delta]:
        if text:
            self._n_characters += len(text)
            yield Delta(content=text)

    def _call(self, function: DeltaFunction, **head: Any) -> Delta:
        call = DeltaToolCall(index=self.n_calls - 1, function=function, **head)
        return Delta(tool_calls=[call])


async def complete(
    host: TextHost, request: CompletionRequest, model: str, began: float, *, streams: bool
) -> AsyncGenerator[CompletionResponse, None]:
    """Yield the texts that continue from prompts, piece by piece; the last piece has the usage.

    Unless they are streamed, each text is one piece, sent when all are done.
    """
    work = await work_of(host, request, began)
    chunk = partial(
        CompletionResponse,
        id=new_id("cmpl-"),
        created=now(),
        model=model,
        system_fingerprint=host.fingerprint,
    )

    def places(number: int) -> range:
        prompt, made = divmod(number, work.made)
        return range(prompt * work.n + made, (prompt + 1) * work.n, work.made)

    before = [""] * len(work.prompts)
    if request.echo:
        before = [
            one if isinstance(one, str) else host.text_of(one.token_ids) for one in work.prompts
        ]
    heads = [text for text in before for _ in range(work.n if request.echo else 0)]
    results: list[list[GenerationResult[Any]]] = [[] for _ in work.prompts]
    scores = [UnsentScores() for _ in range(work.made * len(work.prompts))]
    written = [CompletionScores(len(text)) for text in before for _ in range(work.made)]
    has_scores = request.logprobs is not None

    def choice_of(number: int, piece: Chunk | GenerationResult[Any]) -> CompletionChoice:
        if isinstance(piece, GenerationResult):
            if has_scores:
                scores[number].add(piece)
            choice = CompletionChoice(text="" if streams else piece.text)
            finish(choice, piece, work.asked)
        else:
            scores[number].add(piece)
            choice = CompletionChoice(text=str(piece))
        ours = scores[number].take()
        if ours or (has_scores and not streams):
            choice.logprobs = written[number].of(ours)
        return choice

    async with aclosing(pieces_of(work, streams=streams)) as pieces:
        async for number, piece in pieces:
            if isinstance(piece, GenerationResult):
                results[number // work.made].append(piece)
            elif piece.section != "answer":
                continue
            read = partial(choice_of, number, piece)
            one = await host.aside(read) if _takes_long(piece, has_scores) else read()
            for place, text in enumerate(heads):
                yield chunk(choices=[CompletionChoice(index=place, text=text)])
            heads = []
            yield chunk(
                choices=[one.model_copy(update={"index": place}) for place in places(number)]
            )
    yield chunk(choices=[], usage=usage_of(results, work.began))


async def collected(pieces: AsyncIterator[CompletionResponse]) -> CompletionResponse:
    """Join a completion's pieces into one response."""
    choices: dict[int, CompletionChoice] = {}
    async for piece in pieces:
        for more in piece.choices:
            if more.index in choices:
                more.text = choices[more.index].text + more.text
            choices[more.index] = more
    piece.choices = [choices[index] for index in sorted(choices)]
    return piece
