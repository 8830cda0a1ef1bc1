"""HTTP bodies and answers as Pydantic classes, except those of the Runner.

The server validates bodies with these classes, and ``/openapi.json`` is made from them, so the
document is true. The classes of answers are only for that document; tests compare the answers with
it. The schemas at the end describe fields that the Runner reads itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    WrapValidator,
)
from pydantic_core import PydanticCustomError, core_schema

from structgen.decisions import Debias
from structgen.runner import ByName, Effort, Many, ModelStatus, Strictly, TokenLogprob, in_slices

# -- in common ------------------------------------------------------------------------------------

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Body(Strictly):
    """A part of a body. Unknown fields are accepted only if they are null."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, None]


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class ByType:
    """Chooses a class of a union by the ``type`` of a part.

    Attributes:
        untyped: a field of the first class; a part with this field may leave ``type`` out.
    """

    untyped: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        by_type = {
            kind: handler.generate_schema(one)
            for one in get_args(source)
            for kind in get_args(one.model_fields["type"].annotation)
            if isinstance(kind, str)
        }
        known = ", ".join(by_type)

        def kind_of(given: Any) -> Any:
            if not isinstance(given, Mapping):
                return getattr(given, "type", None)
            if given.get("type") is None and self.untyped in given:
                return next(iter(by_type))
            return given.get("type")

        def check(given: Any) -> Any:
            if not isinstance(given, Mapping | BaseModel):
                raise PydanticCustomError("shape", "This is not an object.")
            if (got := kind_of(given)) not in tuple(by_type):
                raise PydanticCustomError(
                    "shape",
                    "{got} is not supported. It must be one of {known}.",
                    {"at": "type", "got": repr(got)[:80], "known": known},
                )
            return given

        # A tag with a hyphen cannot be a field's name, so it can be left out of paths in errors.
        return core_schema.no_info_before_validator_function(
            check,
            core_schema.tagged_union_schema(
                {f"{kind}-part": schema for kind, schema in by_type.items()},
                lambda given: f"{kind_of(given)}-part",
            ),
        )


# -- items of the input of the Responses API and of decisions --------------------------------------

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Body):
    """A text."""

    type: Literal["input_text", "text"]
    text: StrictStr


class OutputText(Body):
    """A text of the assistant, in the form of answers."""

    type: Literal["output_text"]
    text: StrictStr
    annotations: Many[Any] | None = None
    logprobs: Many[Any] | None = None


class InputJson(Body):
    """A JSON value."""

    type: Literal["input_json"]
    data: dict[str, Any] | Many[dict[str, Any]]


class ReasoningText(Body):
    """A thought."""

    type: Literal["reasoning_text"]
    text: StrictStr


Part: TypeAlias = Annotated[InputText | OutputText | InputJson, ByType()]
"""A part of a message."""


class InputImage(Body):
    """A picture: a ``data:`` URI, or an address on an allowed host."""

    type: Literal["input_image"]
    image_url: StrictStr
    detail: Literal["auto", "high"] | None = None


class MessageItem(Body):
    """A message."""

    type: Literal["message", None] = "message"
    id: StrictStr | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: StrictStr | Many[Part]
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class SeenItem(MessageItem):
    """A message that may have pictures."""

    content: StrictStr | Many[Annotated[InputText | OutputText | InputJson | InputImage, ByType()]]  # type: ignore[assignment]


class CallItem(Body):
    """A call that the model asked for."""

    type: Literal["function_call"]
    id: StrictStr | None = None
    call_id: StrictStr
    name: StrictStr
    arguments: StrictStr
    status: Status | None = None


class CallOutputItem(Body):
    """The result of a call."""

    type: Literal["function_call_output"]
    id: StrictStr | None = None
    call_id: StrictStr
    output: StrictStr | Many[Part]
    status: Status | None = None


class ReasoningItem(Body):
    """A thought of the assistant, before its message or calls."""

    type: Literal["reasoning"]
    id: StrictStr | None = None
    summary: Annotated[list[Any], Field(max_length=0)] | None = None
    content: Many[ReasoningText] | None = None
    status: Status | None = None


InputItem: TypeAlias = Annotated[
    MessageItem | CallItem | CallOutputItem | ReasoningItem, ByType(untyped="role")
]
"""An item."""

ResponseItem: TypeAlias = Annotated[
    SeenItem | CallItem | CallOutputItem | ReasoningItem, ByType(untyped="role")
]
"""An item that may have pictures."""


# -- the Responses API: the request ----------------------------------------------------------------


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class AnyObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Body):
    """A value that is valid under a JSON Schema."""

    type: Literal["json_schema"]
    name: StrictStr | None = None
    description: StrictStr | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    strict: StrictBool | None = None


Format: TypeAlias = Annotated[TextFormat | AnyObjectFormat | SchemaFormat, ByType()]


class TextSettings(Body):
    """The format of the text."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = None


class FunctionTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: Annotated[StrictStr, Field(min_length=1)]
    description: StrictStr | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


class Reasoning(Body):
    """How much the model may think."""

    effort: Effort | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Literal["auto"] | None = None


class ResponseStreamOptions(Body):
    """Options of a stream."""

    include_obfuscation: Literal[False] | None = None


Short = Annotated[StrictStr, Field(max_length=1_000)]
"""A text that each event of an answer repeats, so it is short."""

Metadata = Annotated[dict[Short, Short], WrapValidator(in_slices)]
"""Short texts by short names."""


class ResponsesBody(Body):
    """The request, except the fields of chats, which the Runner checks."""

    input: StrictStr | Many[ResponseItem] | None = None
    instructions: StrictStr | None = None
    max_output_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    text: TextSettings | None = None
    tools: Many[FunctionTool] | None = None
    reasoning: Reasoning | None = None
    include: Many[Literal["message.output_text.logprobs"]] | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=1000)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: StrictStr | None = None
    stream: StrictBool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: StrictBool | None = None
    background: StrictBool | None = None
    metadata: Annotated[Metadata, Field(max_length=100)] | None = None
    user: Short | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    prompt_cache_retention: StrictStr | None = None
    service_tier: Literal["auto", "default"] | None = None


# -- the answer -------------------------------------------------------------------------------


class OutputTextOut(Answer):
    """A text."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[TokenLogprob]


class MessageOut(Answer):
    """A message of the assistant."""

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
    """A thought of the model."""

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
    """The reason why there is no answer."""

    code: str
    message: str


class IncompleteDetails(Answer):
    """The reason why an answer is incomplete."""

    reason: Literal["max_output_tokens"]


class InputTokens(Answer):
    """Details of the input tokens."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputTokens(Answer):
    """Details of the output tokens."""

    reasoning_tokens: Count


class ResponseUsage(Answer):
    """Numbers of input and output tokens."""

    input_tokens: Count
    input_tokens_details: InputTokens
    output_tokens: Count
    output_tokens_details: OutputTokens
    total_tokens: Count


class ReasoningSettings(Answer):
    """The requested thinking effort."""

    effort: Effort | None
    summary: None


class ResponseAnswer(Answer):
    """An answer, complete or as far as it has come."""

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


Instructions: TypeAlias = (
    Annotated[StrictStr, Field(min_length=1)] | Many[Annotated[InputText | InputJson, ByType()]]
)


class OwnFields(Body):
    """structgen's own fields of both endpoints, and fields without effect."""

    model: StrictStr | None = None
    abstain_below: Number | ByName[Number] | None = None
    debias: Debias | None = None
    tolerance: Number | None = None
    adapter: StrictStr | None = None
    timeout: Number | None = None
    user: StrictStr | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: StrictStr | None = None
    prompt_cache_key: StrictStr | None = None
    prompt_cache_options: dict[str, Any] | None = None


# -- OpenAI's ---------------------------------------------------------------------------------


Criteria = Annotated[dict[Literal["true", "false"], Any], WrapValidator(in_slices)]


class PredicateQuestion(Body):
    """How likely a statement is to be true."""

    type: Literal["predicate"]
    name: StrictStr | None = None
    instructions: Instructions
    criteria: Criteria | None = None


class Option(Body):
    """An option of a choice."""

    value: StrictBool | StrictStr
    description: StrictStr | None = None


class ChoiceQuestion(Body):
    """Which of several options."""

    type: Literal["choice"]
    name: StrictStr | None = None
    instructions: Instructions
    choices: Annotated[Many[Option], Field(min_length=2)]


class Level(Body):
    """A level of a scale."""

    label: StrictStr
    description: StrictStr | None = None


class ScoreQuestion(Body):
    """How much, on a scale."""

    type: Literal["score"]
    name: StrictStr | None = None
    instructions: Instructions
    levels: Annotated[Many[Level], Field(min_length=2)]


def _question(given: Any) -> Any:
    """Check the type, and that labels do not have the form of `structgen.decisions`."""
    for field, name, key in (
        ("options", "choices", "value"),
        ("choices", "choices", "value"),
        ("levels", "levels", "label"),
    ):
        labels = given.get(field) if isinstance(given, Mapping) else None
        if labels is not None and (
            field != name or not isinstance(labels, list) or any(type(one) is str for one in labels)
        ):
            example = f'[{{"{key}": "…", "description": "…"}}, …]'
            raise PydanticCustomError(
                "shape",
                'Write "{name}": {example}.',
                {"at": field, "name": name, "example": example},
            )
    return given


class DecisionsBody(OwnFields):
    """Questions about an input."""

    input: StrictStr | Many[InputItem]
    questions: Annotated[
        Many[
            Annotated[
                PredicateQuestion | ChoiceQuestion | ScoreQuestion,
                ByType(),
                BeforeValidator(_question),
            ]
        ],
        Field(min_length=1),
    ]


class PredicateOut(Answer):
    """How likely the statement is to be true."""

    name: str | None
    type: Literal["predicate"]
    probability: Probability
    informative: bool


class OptionOut(Answer):
    """How likely an option is the answer."""

    value: str | bool
    probability: Probability


class ChoiceOut(Answer):
    """The likeliest option, and all of them."""

    name: str | None
    type: Literal["choice"]
    choice: str | bool
    confidence: Probability
    probabilities: list[OptionOut]
    informative: bool


class LevelOut(Answer):
    """How likely a level is the answer."""

    value: int
    label: str
    probability: Probability


class ScoreOut(Answer):
    """The mean level, and all of them."""

    name: str | None
    type: Literal["score"]
    score: float
    confidence: Probability
    probabilities: list[LevelOut]
    informative: bool


class RefusalOut(Answer):
    """No answer reached the probability ``abstain_below``."""

    name: str | None
    type: Literal["refusal"]


class DecisionAnswer(Answer):
    """The answers, in the order of the questions."""

    object: Literal["decision"]
    model: str
    answers: list[PredicateOut | ChoiceOut | ScoreOut | RefusalOut]
    usage: ResponseUsage


# -- System One's -----------------------------------------------------------------------------


class NoulQuestion(Body):
    """How likely a statement is to be true."""

    type: Literal["noul"]
    instructions: Any
    criteria: Criteria | None = None


class CriteriaQuestion(Body):
    """Which of several options, each with its meaning."""

    type: Literal["choice"]
    instructions: Any
    criteria: Annotated[dict[str, Any], Field(min_length=2)]


class LevelsQuestion(Body):
    """How much, on a scale."""

    type: Literal["score"]
    instructions: Any
    criteria: Annotated[list[Any], Field(min_length=2)]


class SystemOneBody(OwnFields):
    """Named questions about a state."""

    state: Any
    questions: Annotated[
        ByName[Annotated[NoulQuestion | CriteriaQuestion | LevelsQuestion, ByType()]],
        Field(min_length=1),
    ]


class NoulOut(Answer):
    """How likely the statement is to be true."""

    type: Literal["noul"]
    noul: Probability


class NamedChoiceOut(Answer):
    """The likeliest option; null: none reached the probability ``abstain_below``."""

    type: Literal["choice"]
    choice: str | None
    probabilities: dict[str, Probability]
    confidence: Probability


class NamedScoreOut(Answer):
    """The mean level, the meaning of each level, and how likely each is."""

    type: Literal["score"]
    score: float
    legend: dict[str, str]
    probabilities: dict[str, Probability]
    confidence: Probability


class SystemOneUsage(Answer):
    """Numbers of input tokens, and of output tokens (always 0)."""

    input_tokens: Count
    output_tokens: Count


class SystemOneAnswer(Answer):
    """The answers by name."""

    model: str
    answers: dict[str, NoulOut | NamedChoiceOut | NamedScoreOut]
    usage: SystemOneUsage


# -- answers of the endpoints around text, and errors ----------------------------------------------


class ErrorDetails(Answer):
    """What went wrong and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Answer):
    """An error."""

    error: ErrorDetails


class ModelEntry(Answer):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    status: ModelStatus
    aliases: list[str]
    is_default: bool


class ModelList(Answer):
    """All models."""

    object: Literal["list"]
    data: list[ModelEntry]


class ModelState(Answer):
    """The state of a model."""

    id: str
    status: ModelStatus
    kind: Literal["text", "embedding"] | None
    bytes: Count | None
    users: Count
    error: str | None
    aliases: list[str]
    is_default: bool
    search_defaults: dict[str, Any] | None


class TokenizeAnswer(Answer):
    """Token ids."""

    count: Count
    max_model_len: int
    tokens: list[int]


class DetokenizeAnswer(Answer):
    """A text, under both names that clients use."""

    prompt: str
    text: str


class Problem(Answer):
    """A problem of a form."""

    message: str
    line: int | None
    path: str | None
    is_error: bool


class FormProblems(Answer):
    """Whether a form can be enforced."""

    valid: bool
    problems: list[Problem]


class GrammarEntry(Answer):
    """A grammar of the library."""

    id: str
    description: str


class GrammarList(Answer):
    """All grammars of the library."""

    object: Literal["list"]
    data: list[GrammarEntry]


class GrammarText(GrammarEntry):
    """A grammar as text."""

    grammar_type: Literal["lark"]
    grammar: str


class PictureState(Answer):
    """A state of an automaton."""

    accepting: bool


class PictureEdge(Answer):
    """An edge."""

    of: Annotated[int, Field(alias="from")]
    to: int
    label: str


class Picture(Answer):
    """An automaton, or its beginning."""

    states: list[PictureState]
    edges: list[PictureEdge]
    is_whole: bool


class Explanation(Answer):
    """Why a token was not allowed."""

    reason: str


class Health(Answer):
    """The process runs."""

    status: Literal["ok"]


class Readiness(Answer):
    """All models are loaded."""

    status: Literal["ready"]
    models: dict[str, ModelStatus]


class Deleted(Answer):
    """The confirmation of a deletion."""

    id: str
    object: Literal["response", "file"]
    deleted: Literal[True]


class FileAnswer(Answer):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"]


class _List(Answer):
    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileList(_List):
    """Files, the newest first."""

    data: list[FileAnswer]


class BatchAnswer(Answer):
    """A batch: see OpenAI's API."""

    model_config = ConfigDict(extra="allow")  # the times at which its status changed

    id: str
    object: Literal["batch"]
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None
    errors: dict[str, Any] | None
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    request_counts: dict[str, int]


class BatchList(_List):
    """Batches, the newest first."""

    data: list[BatchAnswer]


class InputItemList(_List):
    """The input items of an answer, the last first."""

    data: list[dict[str, Any]]


# -- fields of chats and completions that the Runner reads itself ----------------------------------

_NULL: dict[str, Any] = {"type": "null"}
_TEXT: dict[str, Any] = {"type": "string"}
_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "object"}, {"type": "boolean"}]}


def _object(required: tuple[str, ...] = (), /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def _or_null(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas, _NULL]}


def _const(value: Any) -> dict[str, Any]:
    return {"const": value}


_FORMAT = _or_null(
    _object(("type",), type={"enum": ["text", "json_object"]}),
    _object(
        ("type", "json_schema"),
        type=_const("json_schema"),
        json_schema=_object(("schema",), name={}, description={}, schema=_SCHEMA, strict={}),
    ),
)

_FUNCTION = _object(
    ("name",),
    name={"type": "string", "minLength": 1},
    description={},
    parameters=_or_null({"type": "object"}),
    strict={},
)

_NAME = _object(("name",), name=_TEXT)
_NAMED = {
    "anyOf": [
        _object(("type", "function"), type=_const("function"), function=_NAME),
        _object(("type", "name"), type=_const("function"), name=_TEXT),
    ]
}
_MODE = {"enum": ["auto", "required"], "default": "auto"}
_LISTED = {"type": "array", "items": _NAMED, "minItems": 1}

_CHOICE = _or_null(
    {"enum": ["none", "auto", "required"]},
    _NAMED,
    _object(
        ("type", "allowed_tools"),
        type=_const("allowed_tools"),
        allowed_tools=_object(("tools",), mode=_MODE, tools=_LISTED),
    ),
    _object(("type", "tools"), type=_const("allowed_tools"), mode=_MODE, tools=_LISTED),
)

_GRAMMAR = {"type": ["string", "object", "array", "boolean", "null"]}

VLLM = {
    "regex": _or_null(_TEXT),
    "choice": _or_null({"type": "array", "minItems": 1}),
    "grammar": _or_null(_TEXT),
    "json": _or_null(_TEXT, _SCHEMA),
    "json_object": {"type": ["boolean", "null"]},
}
"""The forms of vLLM's ``structured_outputs``; a request has one of them."""


TEXT_FIELDS: dict[str, Any] = {
    "stream": {"type": ["boolean", "null"], "default": False},
    "store": {"type": ["boolean", "null"]},
    "service_tier": {"enum": ["auto", "default", None]},
    "grammar": _GRAMMAR,
    "structured_outputs": _or_null({**_object(**VLLM), "description": "One of these, as in vLLM."}),
    "chat_template_kwargs": _or_null(_object(enable_thinking={"type": ["boolean", "null"]})),
    **{f"guided_{name}": schema for name, schema in VLLM.items()},
    "prompt_cache_retention": {},
}
"""Fields of all requests for text."""

CHAT_FIELDS: dict[str, Any] = {
    **TEXT_FIELDS,
    "messages": {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"$ref": "#/components/schemas/Message"}, "minItems": 1},
        ]
    },
    "response_format": _FORMAT,
    "tools": _or_null(
        {
            "type": "array",
            "items": _object(("type", "function"), type=_const("function"), function=_FUNCTION),
        }
    ),
    "tool_choice": _CHOICE,
    "verbosity": {"enum": ["medium", None]},
    "modalities": {"enum": [["text"], None]},
}
"""Fields of chats."""

_IDS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}

INPUT: dict[str, Any] = {
    "anyOf": [_TEXT, _IDS, {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}, "minItems": 1}]
}
"""The input of embeddings and completions: a text, its tokens, or several."""

DOCUMENTS: dict[str, Any] = {
    "type": "array",
    "items": {
        "anyOf": [_TEXT, {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]}]
    },
    "minItems": 1,
}
"""The documents of a rerank request."""
