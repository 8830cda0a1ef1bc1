"""Answers of a Runner: typed objects, whose `model_dump` gives the wire form of OpenAI's API.

These are the answers to chats, completions, embeddings, rankings and decisions, the chunks of
streams, and what they share: ids, times and usage. Fields that OpenAI's clients expect are always
in the wire form, null if empty; fields that only this package has are left out if empty. The typed
value of an answer is not serialised. Knows nothing of how an answer is made.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from structgen.decoding import GenerationResult
from structgen.models.listening import Transcript
from structgen.types import QuotedText, T


def new_id(prefix: str) -> str:
    """Return a new unique id."""
    return prefix + secrets.token_hex(12)


def now() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


_OMIT = "left out where it is None"
OmitNone: TypeAlias = Annotated[T | None, _OMIT]
"""A field that the wire form leaves out if it is None."""


class Shape(BaseModel):
    """The base of all parts of an answer."""

    model_config = ConfigDict(extra="forbid")

    _own: ClassVar[frozenset[str]] = frozenset()
    """The names of the fields that are `OmitNone`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the names of the class's `OmitNone` fields."""
        fields = cls.model_fields.items()
        cls._own = frozenset(name for name, field in fields if _OMIT in field.metadata)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the wire form's schema, in which all fields but `OmitNone` ones are required."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["required"] = [name for name in cls.model_fields if name not in cls._own]
        return schema

    @model_serializer(mode="wrap")
    def _wire(self, handler: SerializerFunctionWrapHandler) -> Any:
        made = handler(self)
        return {k: v for k, v in made.items() if v is not None or k not in self._own}


# -- usage ------------------------------------------------------------------------------------


class PromptTokensDetails(Shape):
    """Details of a prompt's tokens."""

    cached_tokens: int = 0


class CompletionTokensDetails(Shape):
    """Details of an answer's tokens.

    Attributes:
        reasoning_tokens: tokens of thoughts, tags included.
        forced_tokens: tokens that were the only allowed one, so that nothing was chosen.
        accepted_prediction_tokens: tokens that speculation guessed right.
        rejected_prediction_tokens: tokens that speculation guessed wrong.
    """

    reasoning_tokens: int = 0
    forced_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(Shape):
    """Tokens and times of a request.

    Attributes:
        prompt_tokens: tokens of the prompt, after the chat template.
        completion_tokens: tokens of all outputs, thinking included.
        total_tokens: the sum of both.
        prompt_tokens_details: how many prompt tokens were cached.
        completion_tokens_details: how many output tokens were thinking, forced or guessed.
        time_to_first_token: seconds from the request to the first text, time in the queue included.
        total_time: seconds to the end.
        tokens_per_second: ``completion_tokens`` divided by ``total_time``.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)
    completion_tokens_details: CompletionTokensDetails = Field(
        default_factory=CompletionTokensDetails
    )
    time_to_first_token: OmitNone[float] = None
    total_time: OmitNone[float] = None
    tokens_per_second: OmitNone[float] = None

    @classmethod
    def of(
        cls,
        prompt: int,
        cached: int,
        output: int,
        details: CompletionTokensDetails,
        first: float | None,
        total: float,
    ) -> Usage:
        """Return the usage for counts of tokens and seconds."""
        return cls(
            prompt_tokens=prompt,
            completion_tokens=output,
            total_tokens=prompt + output,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
            completion_tokens_details=details,
            time_to_first_token=None if first is None else round(first, 6),
            total_time=round(total, 6),
            tokens_per_second=round(output / total, 2) if output and total else None,
        )


FinishReason = Literal["stop", "length", "tool_calls"]


class FunctionCall(Shape):
    """A tool's name, and its arguments as JSON text, which are valid for the tool's schema."""

    name: str
    arguments: str


class ToolCall(Shape):
    """A call that the model asks for."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ResponseMessage(Shape):
    """The assistant's answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: None = None
    tool_calls: OmitNone[list[ToolCall]] = None
    reasoning_content: OmitNone[str] = None


class TopLogprob(Shape):
    """A token and its log probability."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    """A token of the answer, and the likeliest ones in its place."""

    top_logprobs: list[TopLogprob] = Field(default_factory=list)


MANY_SCORES = 1_000
"""More log probabilities take more than 20 ms to read and to write."""


class ChoiceLogprobs(Shape):
    """The log probabilities of an answer's tokens, relative to the allowed tokens."""

    content: list[TokenLogprob] | None = None
    refusal: None = None


class LikelyToken(Shape):
    """A token that was likely at a place.

    Attributes:
        is_allowed: whether the form allowed it.
    """

    token: str
    token_id: int
    logprob: float
    is_allowed: bool


class TokenStep(Shape):
    """What happened at one token: see `structgen.insight.TraceStep`.

    Attributes:
        index: the number of the token in the output. A stream may send a step again with more
            details; it replaces the earlier one.
        token: its text; if its bytes alone are not text, as ``logprobs`` write it.
        token_id: its id.
        bytes: its bytes.
        start: offset of its first byte in the output.
        path: JSON path of the value it belongs to; ``$`` if there is none.
        is_end: whether it ends the output.
        is_forced: whether it was the only allowed token.
        allowed: number of tokens that the form allowed.
        logprob: log probability among the allowed tokens.
        own_logprob: log probability among all tokens; None: the model was not asked.
        removed: the probability of all tokens that were not allowed.
        top: the likeliest allowed tokens.
        own_top: the likeliest of all tokens.
    """

    index: int
    token: str
    token_id: int
    bytes: list[int]
    start: int
    path: str
    is_end: bool
    is_forced: bool
    allowed: int
    logprob: float
    own_logprob: float | None = None
    removed: float | None = None
    top: list[LikelyToken]
    own_top: list[LikelyToken]


class LikelyValue(Shape):
    """A value that was possible at a place."""

    value: Any
    probability: float


class ValueSureness(Shape):
    """How sure the model is of a value that was one of a few possible ones.

    Attributes:
        probability: that of the chosen value, summed over all ways to write it.
        alternatives: the likeliest possible values, the chosen one included.
    """

    probability: float
    alternatives: list[LikelyValue]


class _Valued(Shape):
    """The base of outputs with a typed value."""

    _result: GenerationResult[Any] | None = PrivateAttr(default=None)
    _made: Callable[[], Any] | None = PrivateAttr(default=None)

    @property
    def value(self) -> Any:
        """The output as a value of its type; the text if there is no type.

        Raises:
            ParseError: the text fits the type's grammar, but fails a check that only its class can
                make.
            IncompleteOutput: the output was cut off.
        """
        return None if self._made is None else self._made()

    @property
    def result(self) -> GenerationResult[Any] | None:
        """The `structgen.GenerationResult`, with all details of the output."""
        return self._result


class Choice(_Valued):
    """One of the answers.

    Attributes:
        index: its number, from 0.
        message: the message.
        finish_reason: why it ended, as in OpenAI's API.
        logprobs: with ``logprobs``, the log probabilities of its tokens.
        shortened: JSON paths of the values that the limit on tokens changed.
        trace: with ``trace``, what happened at each token.
        confidence: with ``abstain_below``, how sure the model is of each named value.
    """

    index: int = 0
    message: ResponseMessage
    finish_reason: FinishReason
    logprobs: ChoiceLogprobs | None = None
    shortened: OmitNone[list[str]] = None
    trace: OmitNone[list[TokenStep]] = None
    confidence: OmitNone[dict[str, ValueSureness]] = None

    @classmethod
    def begun(cls, index: int = 0) -> Choice:
        """Return a choice that has no content yet."""
        return cls(index=index, message=ResponseMessage(), finish_reason="stop")

    def add(self, more: ChunkChoice) -> None:
        """Add a chunk's part of this choice."""
        message, delta = self.message, more.delta
        if delta.content:
            message.content = (message.content or "") + delta.content
        if delta.reasoning_content is not None:
            message.reasoning_content = (message.reasoning_content or "") + delta.reasoning_content
        for part in delta.tool_calls or ():
            message.tool_calls = message.tool_calls or []
            if part.id is not None:
                function = FunctionCall(name=part.function.name or "", arguments="")
                message.tool_calls.append(ToolCall(id=part.id, function=function))
            message.tool_calls[part.index].function.arguments += part.function.arguments
        if more.logprobs is not None:
            self.logprobs = self.logprobs or ChoiceLogprobs()
            self.logprobs.content = self.logprobs.content or []
            self.logprobs.content += more.logprobs.content or ()
        for step in more.trace or ():  # one sent again replaces the first
            self.trace = self.trace or []
            self.trace[step.index : step.index + 1] = [step]
        if more.finish_reason is not None:
            self.finish_reason = more.finish_reason
            self.confidence, self.shortened = more.confidence, more.shortened
            self._result, self._made = more._result, more._made
            if message.content is None and not message.tool_calls:
                message.content = ""


AgenticEnd: TypeAlias = Literal["answer", "calls", "rounds", "repeats"]
"""Why an agent's rounds ended: see `ChatResponse`."""


class AgenticToolCall(Shape):
    """A tool call that the Runner handled in one of an agent's rounds.

    Attributes:
        round: the number of the round, from 1.
        id: the id of the call.
        name: the name of the tool.
        arguments: as the model wrote them, valid for the tool's schema.
        status: ``running`` in the first event of a stream; then ``completed``, ``failed`` or
            ``refused`` by ``approve``.
        approved: what ``approve`` returned; None: it was not called.
        result: what the model was shown.
        error: what went wrong, or why it was refused.
        seconds: how long it ran.
        cut: True where ``result`` is the beginning of a longer one.
        repeats: the id of a call of the same round with the same arguments. That one ran, this one
            has its result.
    """

    round: int
    id: str
    name: str
    arguments: str
    status: Literal["running", "completed", "failed", "refused"]
    approved: OmitNone[bool] = None
    result: OmitNone[str] = None
    error: OmitNone[str] = None
    seconds: OmitNone[float] = None
    cut: OmitNone[bool] = None
    repeats: OmitNone[str] = None
    _value: Any = PrivateAttr(default=None)

    @property
    def value(self) -> Any:
        """What the tool returned. It is not serialised."""
        return self._value


class SearchPassage(Shape):
    """A passage of a search result that the model read.

    Attributes:
        title: the title of the page.
        url: its address.
        text: the passage.
        start: its first character in the text that answers may quote (all passages joined).
        end: one more than its last character there.
    """

    title: str
    url: str
    text: str
    start: int
    end: int


class File(Shape):
    """A file that a model's code wrote.

    Attributes:
        id: its id, for `Runner.find_file`.
        name: its path in the folder of the code.
        bytes: its size.
        mime_type: its type, guessed from its name; None: not known.
    """

    id: str
    name: str
    bytes: int
    mime_type: str | None = None
    _data: Any = PrivateAttr(default=b"")

    @property
    def data(self) -> Any:
        """The content, as bytes. It is not serialised."""
        return self._data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file to a path."""
        Path(path).write_bytes(self._data)


class ChatResponse(Shape):
    """The answer to a `ChatRequest`.

    Attributes:
        agentic_tool_calls: the calls that ran, with ``max_tool_rounds``.
        files: the files that code of the model wrote, with ``enable_code_execution``.
        web_search: the passages that the model read, with ``web_search_options``.
        agentic_end: why the rounds ended, with ``max_tool_rounds``: ``answer``: the model answered;
            ``calls``: it called tools without code, which you run; ``rounds``: no rounds were
            left; ``repeats``: a round had the calls and results of an earlier one.
    """

    id: str = Field(default_factory=lambda: new_id("chatcmpl-"))
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(default_factory=now)
    model: str
    choices: list[Choice]
    usage: Usage
    system_fingerprint: str | None = None
    agentic_tool_calls: OmitNone[list[AgenticToolCall]] = None
    agentic_end: OmitNone[AgenticEnd] = None
    files: OmitNone[list[File]] = None
    web_search: OmitNone[list[SearchPassage]] = None
    _messages: list[dict[str, Any]] | None = PrivateAttr(default=None)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that continue the chat: the calls and results, then the answer."""
        if self._messages is not None:
            return self._messages
        message = self.choices[0].message
        found = message.model_dump(exclude_none=True, exclude={"reasoning_content"})
        return [found if message.tool_calls else {**found, "content": message.content or ""}]

    @property
    def value(self) -> Any:
        """The typed value of the first answer: see `Choice.value`."""
        return self.choices[0].value

    def cited(self, quote: QuotedText) -> SearchPassage:
        """Return the passage of the web search that a quote in the answer comes from.

        Raises:
            LookupError: it comes from no passage.
        """
        for one in self.web_search or ():
            if one.start <= quote.start < one.end:
                return one
        raise LookupError(f"{quote!r} is not a quote from a web search result.")

    @property
    def text(self) -> str:
        """The text of the first answer."""
        return self.choices[0].message.content or ""


class DeltaFunction(Shape):
    """A part of a call: first its name, then pieces of its arguments."""

    name: OmitNone[str] = None
    arguments: str = ""


class DeltaToolCall(Shape):
    """A part of the call at an index; the first part has its id and name."""

    index: int
    id: OmitNone[str] = None
    type: OmitNone[Literal["function"]] = None
    function: DeltaFunction


class Delta(Shape):
    """The part of an answer that a chunk adds."""

    role: OmitNone[Literal["assistant"]] = None
    content: OmitNone[str] = None
    refusal: OmitNone[None] = None
    tool_calls: OmitNone[list[DeltaToolCall]] = None
    reasoning_content: OmitNone[str] = None


class ChunkChoice(_Valued):
    """A part of one of the answers: see `Choice`."""

    index: int = 0
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: ChoiceLogprobs | None = None
    shortened: OmitNone[list[str]] = None
    trace: OmitNone[list[TokenStep]] = None
    confidence: OmitNone[dict[str, ValueSureness]] = None

    @property
    def n_scores(self) -> int:
        """How many log probabilities it has."""
        tokens = self.logprobs.content if self.logprobs else None
        found = sum(1 + len(token.top_logprobs) for token in tokens or ())
        return found + sum(1 + len(step.top) for step in self.trace or ())


class ChatChunk(Shape):
    """A piece of a streamed answer.

    The last chunk has no choices, and contains the usage if the request asked for it.

    Attributes:
        agentic_tool_call: with ``max_tool_rounds``: a call that the Runner runs, once when it
            begins and once when it has ended. Such a chunk has no choices.
        agentic_end: as in `ChatResponse`, in the chunk with the finish reason.
    """

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: OmitNone[Usage] = None
    agentic_tool_call: OmitNone[AgenticToolCall] = None
    agentic_end: OmitNone[AgenticEnd] = None
    system_fingerprint: str | None = None


# -- completions ------------------------------------------------------------------------------


class CompletionLogprobs(Shape):
    """The log probabilities of a text's tokens, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CompletionChoice(_Valued):
    """One of the texts: see `Choice`."""

    index: int = 0
    text: str
    finish_reason: FinishReason | None = None
    logprobs: CompletionLogprobs | None = None
    shortened: OmitNone[list[str]] = None
    confidence: OmitNone[dict[str, ValueSureness]] = None

    @property
    def n_scores(self) -> int:
        """How many log probabilities it has."""
        found = self.logprobs
        return len(found.tokens) + sum(map(len, found.top_logprobs or ())) if found else 0


class CompletionResponse(Shape):
    """The answer to a `CompletionRequest`, or a chunk of it with more of its texts."""

    id: str = Field(default_factory=lambda: new_id("cmpl-"))
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=now)
    model: str
    choices: list[CompletionChoice]
    usage: OmitNone[Usage] = None
    system_fingerprint: str | None = None

    @property
    def value(self) -> Any:
        """The typed value of the first text: see `CompletionChoice.value`."""
        return self.choices[0].value

    @property
    def text(self) -> str:
        """The first text."""
        return self.choices[0].text


CompletionChunk = CompletionResponse
"""A piece of a streamed completion."""


class Embedding(Shape):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class InputUsage(Shape):
    """Tokens of a request that makes no text."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class DecisionUsage(InputUsage):
    """The same, with the number of tokens that were cached."""

    prompt_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)


class EmbeddingResponse(Shape):
    """The answer to an `EmbeddingRequest`."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: InputUsage


class TranscriptionUsage(Shape):
    """How long a sound was."""

    type: Literal["duration"] = "duration"
    seconds: float


class TranscriptionSegment(Shape):
    """A sentence or so of a transcript: see `structgen.models.listening.Segment`."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class TranscriptionResponse(Shape):
    """The answer to a `TranscriptionRequest`."""

    task: Literal["transcribe", "translate"]
    language: str
    duration: float
    text: str
    segments: list[TranscriptionSegment]
    usage: TranscriptionUsage
    _transcript: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, transcript: Transcript, *, translates: bool = False) -> TranscriptionResponse:
        """Return a transcript in the format of OpenAI's API."""
        made = cls(
            task="translate" if translates else "transcribe",
            language=transcript.language,
            duration=transcript.seconds,
            text=transcript.text,
            segments=[
                TranscriptionSegment(
                    id=i,
                    seek=round(one.start * 100),
                    start=one.start,
                    end=one.end,
                    text=one.text,
                    tokens=list(one.token_ids),
                    temperature=one.temperature,
                    avg_logprob=one.logprob,
                    compression_ratio=one.compression_ratio,
                    no_speech_prob=one.no_speech,
                )
                for i, one in enumerate(transcript.segments)
            ],
            usage=TranscriptionUsage(seconds=transcript.seconds),
        )
        made._transcript = transcript
        return made

    @property
    def transcript(self) -> Transcript:
        """The transcript, as `structgen.TextModel.transcribe` returns it."""
        found: Transcript = self._transcript
        return found


class RerankResult(Shape):
    """The place of one document."""

    index: int
    relevance_score: float
    document: OmitNone[dict[str, str]] = None


class RerankResponse(Shape):
    """The answer to a `RerankRequest`: the best document first."""

    id: str = Field(default_factory=lambda: new_id("rerank-"))
    object: Literal["rerank"] = "rerank"
    model: str
    results: list[RerankResult]
    usage: InputUsage


class DecisionResponse(Shape):
    """The answer to a `DecisionRequest`: decisions by name, in the JSON form of
    `structgen.decisions`."""

    id: str = Field(default_factory=lambda: new_id("decision-"))
    object: Literal["decision"] = "decision"
    created: int = Field(default_factory=now)
    model: str
    answers: dict[str, Any]
    usage: DecisionUsage
    _answers: Any = PrivateAttr(default=None)

    @property
    def value(self) -> Any:
        """The `structgen.decisions.Answers`."""
        return self._answers
