"""The Responses API: what is asked, and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
)

from structgen.runner import ByName, Many

from .base import Answer, Body, Count, kind_of, tag_of
from .items import InputItem, Status

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

# -- what is asked ----------------------------------------------------------------------------


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class AnyObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Body):
    """What a JSON Schema says."""

    type: Literal["json_schema"]
    name: StrictStr | None = None
    description: StrictStr | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    strict: StrictBool | None = None


def _format(given: Any) -> Any:
    return kind_of(given, ("text", "json_object", "json_schema"))


Format: TypeAlias = Annotated[
    Annotated[TextFormat, Tag("text-part")]
    | Annotated[AnyObjectFormat, Tag("json_object-part")]
    | Annotated[SchemaFormat, Tag("json_schema-part")],
    Discriminator(tag_of),
    BeforeValidator(_format),
]


class TextSettings(Body):
    """What the text is like."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = None


class FunctionTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: Annotated[StrictStr, Field(min_length=1)]
    description: StrictStr | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


def _tool(given: Any) -> Any:
    return kind_of(given, ("function",))


class Reasoning(Body):
    """How much the model thinks."""

    effort: Effort | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Literal["auto"] | None = None


class ResponseStreamOptions(Body):
    """What a stream tells."""

    include_obfuscation: Literal[False] | None = None


Short = Annotated[StrictStr, Field(max_length=1_000)]
"""A text that each event of an answer repeats."""


class ResponsesBody(Body):
    """What is asked, but for the fields that are those of chats: the Runner checks these."""

    input: StrictStr | Many[InputItem] | None = None
    instructions: StrictStr | None = None
    max_output_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    text: TextSettings | None = None
    tools: Many[Annotated[FunctionTool, BeforeValidator(_tool)]] | None = None
    reasoning: Reasoning | None = None
    include: Many[Literal["message.output_text.logprobs"]] | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=1000)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: StrictStr | None = None
    stream: StrictBool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: StrictBool | None = None
    background: StrictBool | None = None
    metadata: Annotated[ByName[Short], Field(max_length=100)] | None = None
    user: Short | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    prompt_cache_retention: StrictStr | None = None
    service_tier: Literal["auto", "default"] | None = None


# -- what is answered -------------------------------------------------------------------------


class TopLogprobOut(Answer):
    """A token and its log probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class LogprobOut(TopLogprobOut):
    """A token of a text, and the likeliest ones in its place."""

    top_logprobs: list[TopLogprobOut]


class OutputTextOut(Answer):
    """A text."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[LogprobOut]


class MessageOut(Answer):
    """A message of the assistant's."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: Status
    content: list[OutputTextOut]


class ReasoningTextOut(Answer):
    """A thought."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningOut(Answer):
    """What the model thought."""

    type: Literal["reasoning"]
    id: str
    summary: Annotated[list[Any], Field(max_length=0)]
    content: list[ReasoningTextOut]
    status: Status


class CallOut(Answer):
    """A call that the model asks for; the arguments are JSON that is valid for its schema."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class ResponseError(Answer):
    """Why there is no answer."""

    code: str
    message: str


class IncompleteDetails(Answer):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


class InputTokens(Answer):
    """Of the tokens that were read."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputTokens(Answer):
    """Of the tokens that were written."""

    reasoning_tokens: Count


class ResponseUsage(Answer):
    """How many tokens were read and written."""

    input_tokens: Count
    input_tokens_details: InputTokens
    output_tokens: Count
    output_tokens_details: OutputTokens
    total_tokens: Count


class ReasoningSettings(Answer):
    """How much was thought."""

    effort: Effort | None
    summary: None


class ResponseAnswer(Answer):
    """An answer, as far as it is there."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[MessageOut | ReasoningOut | CallOut]
    usage: ResponseUsage | None
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningSettings
    store: bool
    temperature: float
    presence_penalty: float
    frequency_penalty: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    service_tier: Literal["default"]
    max_tool_calls: None
