"""Requests to a Runner: messages and typed requests, in the shape of OpenAI's API.

The classes define the fields of each request, what a message may contain, and how chat templates
receive messages; they find all errors that need no model. Dicts are validated into these classes.
An unknown or unsupported field is refused by its path, so nothing is silently ignored. `work` turns
fields into prompts and options of the decode loop, `constraints` into the form of the answer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from structgen.decisions import Debias
from structgen.errors import OptionError, PromptError, RequestError
from structgen.media import Audio, Image, openai_part, part
from structgen.options import FIELDS, OPTIONS
from structgen.storage.user_folder import NUL, n_values

from .fields import (
    MAX_VALUES,
    NOT_HERE,
    ByName,
    Many,
    Number,
    Request,
    Strictly,
    Wrong,
    check_json,
    in_slices,
    shown,
)

_MOST_TOOLS = 500  # a request with 3,000 took 30 s and 1 GB
_LONGEST_TOOLS = 1_000_000  # characters of all: 15 million took 1 GB, 10 s


def excess_of_tools(number: int, size: int) -> str | None:
    """Return what is wrong with so many foreign tools of so many characters, if it is."""
    if number <= _MOST_TOOLS and size <= _LONGEST_TOOLS:
        return None
    return (
        f"{number:,} tools with {size:,} characters. All tools are part of each prompt, so the "
        f"limit is {_MOST_TOOLS:,} tools with {_LONGEST_TOOLS:,} characters."
    )


class TextPart(Strictly):
    """A text as a part of a message's content."""

    type: Literal["text"] = "text"
    text: StrictStr


def _part_schema(kind: str, required: str, **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of a part of a kind, with an object under the kind's name."""

    def closed(required: list[str], properties: Mapping[str, Any]) -> dict[str, Any]:
        shape = {"type": "object", "required": required, "properties": properties}
        return {**shape, "additionalProperties": False}

    return closed(["type", kind], {"type": {"const": kind}, kind: closed([required], properties)})


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
GrammarType: TypeAlias = Literal["regex", "json_schema", "lark", "gbnf", "choice"]

_TEXT = {"type": "string"}
_MEDIA_SCHEMA = {
    "oneOf": [
        _part_schema("image_url", "url", url=_TEXT, detail={"enum": ["auto", "high"]}),
        _part_schema("input_audio", "data", data=_TEXT, format=_TEXT),
    ]
}
"""The JSON forms of a picture and a sound."""

ContentPart: TypeAlias = Annotated[
    Annotated[TextPart, Tag("text-part")]
    | Annotated[
        Any, PlainSerializer(openai_part), WithJsonSchema(_MEDIA_SCHEMA), Tag("media-part")
    ],
    Discriminator(lambda one: "media-part" if isinstance(one, (Image, Audio)) else "text-part"),
]
"""A part of a message's content: a text, a picture or a sound."""


class CalledFunction(Strictly):
    """The function of a call: its name, and the arguments as JSON text."""

    name: StrictStr
    arguments: StrictStr

    @field_validator("arguments")
    @classmethod
    def _in_bounds(cls, text: str) -> str:
        try:
            check_json(text)
        except ValueError as error:
            raise Wrong(f"{error}.") from None
        return text


class MessageToolCall(Strictly):
    """A call in an earlier answer of the assistant's."""

    id: StrictStr | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: StrictInt | None = None


class Message(Strictly):
    """One message of a chat.

    Attributes:
        role: who wrote it; ``developer`` is ``system``.
        content: text; or a list of parts: texts, and in a user's message pictures and sounds.
        name: the name of the author, for templates that use names.
        tool_calls: calls in an earlier answer of the assistant's.
        tool_call_id: the id of the call that this is the result of, with the role ``tool``.
        reasoning_content: the thinking of the assistant, for templates that show it.
        refusal: always None, as in answers.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: StrictStr | Many[ContentPart] | None = None
    name: StrictStr | None = None
    tool_calls: Many[MessageToolCall] | None = None
    tool_call_id: StrictStr | None = None
    reasoning_content: StrictStr | None = None
    refusal: None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None

    @field_validator("content", mode="before")
    @classmethod
    def _read_media(cls, content: Any) -> Any:
        if not isinstance(content, (list, tuple)):
            return content
        parts = list(content)
        for index, one in enumerate(parts):
            kind = one.get("type") if isinstance(one, Mapping) else None
            if not isinstance(kind, str) or kind == "text":
                continue
            if kind not in ("image_url", "input_audio"):
                raise Wrong(
                    f"parts of type {kind!r} are not supported. Supported types: 'text', "
                    "'image_url' and 'input_audio'.",
                    index,
                    "type",
                    is_supported=False,
                )
            try:
                parts[index] = part(one, "this part")
            except PromptError as error:
                raise Wrong(str(error), index, kind) from None
        return parts

    @model_validator(mode="after")
    def _is_whole(self) -> Message:
        if self.tool_calls and self.role != "assistant":
            raise Wrong(
                "only a message with the role 'assistant' may have tool_calls.", "tool_calls"
            )
        if self.tool_call_id is not None and self.role != "tool":
            raise Wrong(
                "only a message with the role 'tool' may have tool_call_id.", "tool_call_id"
            )
        if self.content is None and not self.tool_calls:
            raise Wrong("the message has no content. Pass a string.", "content")
        if self.role != "user" and self.has_media:
            raise Wrong("only a message with the role 'user' may have images or audio.", "content")
        if self.role == "tool" and NOT_TEXT.search(self.text):  # which no user has written
            self.content = NOT_TEXT.sub("\ufffd", self.text)
        return self

    @property
    def has_media(self) -> bool:
        """Whether the content has a picture or a sound."""
        return isinstance(self.content, list) and not all(
            isinstance(part, TextPart) for part in self.content
        )

    @property
    def text(self) -> str:
        """The text of the content, without pictures and sounds."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    def for_template(self) -> dict[str, Any]:
        """Return the message in the format of chat templates."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.text}
        if self.has_media:
            message["content"] = [
                openai_part(one.text) if isinstance(one, TextPart) else one
                for one in self.content or ()
            ]
        for name in ("name", "tool_call_id", "reasoning_content"):
            value = getattr(self, name)
            if value is not None:
                message[name] = value
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id or f"call{index:05}",
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": _arguments(call.function.arguments),
                    },
                }
                for index, call in enumerate(self.tool_calls)
            ]
        return message


NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no prompt can contain: NUL and lone surrogates."""


def _arguments(text: str) -> Any:
    """Return arguments as chat templates expect them: as a value if they are JSON. A NUL, which no
    prompt can contain, is replaced as in results of tools."""
    try:
        return json.loads(NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text)
    except ValueError:
        return text


_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

Stop = Annotated[StrictStr, Field(max_length=1_000)]
"""A text that ends an output. It is bounded because each piece of an output is compared with all of
them."""

# -- texts ------------------------------------------------------------------------------------


class StreamOptions(Strictly):
    """Options of a stream.

    Attributes:
        include_usage: whether the stream ends with a chunk that has the usage and no choices.
    """

    include_usage: StrictBool = False
    include_obfuscation: Literal[False] | None = None


def _no_count(given: Any) -> Any:
    """Return a flag, which the API of completions has a number for."""
    if type(given) is int:
        raise Wrong(f"{given} is not a bool. Pass logprobs=true and top_logprobs={given}.")
    return given


class OptionField:
    """Validates a field that is an option of a call, by the table of options."""

    def __init__(self, option: str, field: str | None = None) -> None:
        self._option = OPTIONS[option]
        self._field = field or self._option.field or option

    def read(self, given: Any) -> Any:
        """Check a value.

        Raises:
            Wrong: the value is out of range or of another type.
        """
        if given is None:
            return None
        try:
            return self._option.read(self._field, 0 if given == self._option.off else given)
        except OptionError as error:
            raise Wrong(str(error), names_field=True) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{**self._option.schema}, {"type": "null"}]}


if TYPE_CHECKING:

    class OptionFields(Request):
        """The fields that are options of calls."""

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

else:
    OptionFields = create_model(
        "OptionFields",
        __base__=Request,
        **{
            field: (Annotated[Any, OptionField(name)], Field(None, description=OPTIONS[name].about))
            for field, name in FIELDS.items()
        },
    )


class Sampled(OptionFields):
    """The base of requests for text.

    Fields that clients send and that have no effect here are accepted: ``user``, ``metadata``,
    ``safety_identifier``, ``prompt_cache_key``.

    Options of calls are fields here, too: see `structgen.options.FIELDS`.

    Attributes:
        n: number of outputs.
        stream_options: options of a stream.
        grammar: the form of the text: a regular expression, JSON Schema, grammar or choices.
        grammar_type: the kind of ``grammar``.
        output_type: the form of the text, as a Python type or another output type of structgen's.
    """

    _FIXED: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "service_tier": (("auto", "default"), "Omit it, or pass 'auto' or 'default'."),
        "store": ((False,), "Answers are not stored. Omit it, or pass false."),
    }
    """Fields for which only the values that have no effect are supported."""

    logit_bias: Annotated[dict[str | int, Number], WrapValidator(in_slices)] | None = None
    stop: Stop | Annotated[Many[Stop], Field(max_length=100)] | None = None
    abstain_below: Number | ByName[Number] | None = None
    n: Annotated[StrictInt, Field(ge=1, le=128)] | None = None
    stream_options: StreamOptions | None = None
    grammar: Any = None
    grammar_type: GrammarType | None = None
    output_type: Any = Field(default=None, exclude=True)
    user: StrictStr | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: StrictStr | None = None
    prompt_cache_key: StrictStr | None = None
    service_tier: Any = None
    store: Any = None
    _is_foreign: bool = PrivateAttr(default=False)
    """Whether some tools may be foreign (of an MCP server), so that types have limits."""

    @field_validator("logit_bias", "stop", "abstain_below")
    @classmethod
    def _is_option(cls, given: Any, info: ValidationInfo) -> Any:
        value = given
        if info.field_name == "logit_bias" and given is not None:
            value = {}
            for token, added in given.items():
                if isinstance(token, str) and not _TOKEN_ID.fullmatch(token):
                    raise Wrong("this is not a token id.", token)
                value[int(token)] = added
            given = value
        OptionField(str(info.field_name)).read(value)
        return given

    @model_validator(mode="after")
    def _only_what_is_supported(self) -> Sampled:
        for name, (values, instead) in self._FIXED.items():
            given = getattr(self, name, None)
            if given is not None and given not in values:
                raise Wrong(f"{shown(given)} is not supported. {instead}", name, is_supported=False)
        return self


class _Place(Strictly):
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class _Location(Strictly):
    type: Literal["approximate"] = "approximate"
    approximate: _Place


class WebSearchOptions(Strictly):
    """How a request searches the web.

    Attributes:
        search_context_size: how much the model reads: 3, 6 or 12 passages a query.
        user_location: where the user is, for the model.
        search_description: replaces the description of the tool.
        extract_description: refused, because it is for a tool of mistral.rs that reads pages.
    """

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: _Location | None = None
    search_description: str | None = None
    extract_description: None = None


MaxTokens = Annotated[int | None, OptionField("max_new_tokens", "max_completion_tokens")]


class ChatRequest(Sampled):
    """A chat. A str for ``messages`` is one message of the user.

    Attributes:
        messages: the chat.
        max_completion_tokens: another name for ``max_tokens``.
        response_format: the form of the answer, as in OpenAI's API.
        tools: tools that the model may call: as in OpenAI's API, or functions and classes.
        tool_choice: ``none``, ``auto``, ``required``, or one or several tools in OpenAI's form.
        parallel_tool_calls: whether an answer may contain several calls.
        logprobs: whether to return the log probabilities of the answer's tokens.
        top_logprobs: number of likeliest tokens to list for each.
        with_schema_hint: whether to put the JSON Schema of the answer into the system message; the
            mask alone does not show the model its descriptions.
        enable_thinking: whether the model thinks before it answers.
        reasoning_effort: how long it thinks.
        thinking_budget: most tokens of the thought; None: as the effort says.
        session_id: the session to continue; ``messages`` are the new ones only.
        max_tool_rounds: most rounds of tool calls before the answer. The Runner runs the callbacks.
            None: the answer contains the calls, and nothing runs.
        approve: called before each call, with a `structgen.runner.ToolRequest`.
        tool_timeout: seconds for one call.
        max_tool_result: most characters of a result that the model sees.
        trace: whether to return what happened at each token of the answer.
        enable_code_execution: whether the model gets a tool that runs Python here: see
            `CodeExecutionConfig`.
        web_search_options: the fields of `WebSearchOptions`: gives the model a tool that searches
            the web. None: no such tool.
    """

    _FIXED: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        **Sampled._FIXED,
        "verbosity": (("medium",), "Describe the wanted length in a message."),
        "modalities": ((["text"],), "Answers are text only."),
    }

    _MAIN = "messages"

    messages: Many[Message]
    max_completion_tokens: MaxTokens = None
    response_format: Any = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: StrictBool | None = None
    logprobs: Annotated[StrictBool | None, BeforeValidator(_no_count)] = None
    top_logprobs: Annotated[int | None, OptionField("top_logprobs")] = None
    with_schema_hint: StrictBool = False
    enable_thinking: StrictBool | None = None
    reasoning_effort: Effort | None = None
    thinking_budget: Annotated[StrictInt, Field(ge=1)] | None = None
    verbosity: Any = None
    modalities: Any = None
    session_id: StrictStr | None = None
    max_tool_rounds: Annotated[StrictInt, Field(ge=1, le=100)] | None = None
    approve: Any = Field(default=None, exclude=True)
    tool_timeout: Number | None = None
    max_tool_result: Annotated[StrictInt, Field(ge=1)] | None = None
    trace: StrictBool = False
    enable_code_execution: StrictBool = False
    web_search_options: WebSearchOptions | None = None
    _needs_text: bool = PrivateAttr(default=False)
    """Whether a free-text answer must not be blank or a written-out call."""

    @property
    def _runs_tools(self) -> bool:
        """Whether the Runner runs the called tools."""
        own = self.enable_code_execution or self.web_search_options is not None
        return own or self.max_tool_rounds is not None

    @model_validator(mode="after")
    def _only_of_use(self) -> ChatRequest:
        # Frameworks, too, pass what their MCP servers list.
        foreign = [tool for tool in self.tools or () if isinstance(tool, Mapping)]
        self._is_foreign = bool(foreign)
        try:
            size = len(json.dumps(foreign, ensure_ascii=False, default=dict))
        except (TypeError, ValueError, RecursionError):  # not JSON: reading them says where
            size = 0
        if (excess := excess_of_tools(len(foreign), size)) is not None:
            raise Wrong(f"the request has {excess}", "tools")
        if not self._runs_tools:
            for name in ("approve", "tool_timeout", "max_tool_result"):
                if getattr(self, name) is not None:
                    raise Wrong("requires max_tool_rounds=, because no tools run without it.", name)
        return self

    @field_validator("messages", mode="before")
    @classmethod
    def _one_message(cls, messages: Any) -> Any:
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        if isinstance(messages, (list, tuple)):
            # Messages of answers and of other libraries may be among them.
            return [
                one.model_dump(exclude_none=True)
                if isinstance(one, BaseModel) and not isinstance(one, Message)
                else one
                for one in messages
            ]
        return messages

    @field_validator("messages")
    @classmethod
    def _some_messages(cls, messages: list[Message]) -> list[Message]:
        if not messages:
            raise Wrong("the list is empty. Pass at least one.")
        calls = [call for message in messages for call in message.tool_calls or ()]
        if sum(n_values(call.function.arguments) for call in calls) > MAX_VALUES:
            raise Wrong(
                f"the arguments of all calls together have more than {MAX_VALUES:,} values."
            )
        return messages


class CompletionRequest(Sampled):
    """Text that continues a prompt, without a chat template.

    Attributes:
        prompt: a text, which gets the tokens that start a prompt; token ids, which are used
            unchanged; or a list of these.
        echo: whether the returned text begins with the prompt.
        logprobs: how many of the likeliest tokens to return for each token of the text.
    """

    _MAIN = "prompt"

    prompt: Any
    echo: StrictBool = False
    logprobs: Annotated[int | None, OptionField("top_logprobs", "logprobs")] = None
    best_of: StrictInt | None = None

    @model_validator(mode="after")
    def _only_what_completions_have(self) -> CompletionRequest:
        if self.best_of not in (None, self.n or 1):
            raise Wrong(f"{self.best_of} differs from n. {NOT_HERE['best_of']}", "best_of")
        if self.special_tokens == "template":
            raise Wrong(
                "a raw prompt cannot treat the names of special tokens as plain text. Pass token "
                "ids for that.",
                "special_tokens",
            )
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, each a text or token ids.

        Raises:
            RequestError: one is neither.
        """
        given = self.prompt
        if isinstance(given, str) or are_tokens(given):
            given = [given]
        if not isinstance(given, (list, tuple)) or not given:
            raise RequestError(
                "prompt must be a string, a list of token ids, or a list of these.", param="prompt"
            )
        for index, prompt in enumerate(given):
            if not isinstance(prompt, str) and not are_tokens(prompt) and prompt != []:
                raise RequestError(
                    f"prompt[{index}] is neither a string nor a list of token ids.",
                    param=f"prompt[{index}]",
                )
            if not prompt:
                raise RequestError(f"prompt[{index}] is empty.", param=f"prompt[{index}]")
        return list(given)


def are_tokens(given: Any) -> bool:
    """Return whether a list has only token ids, and at least one."""
    return isinstance(given, (list, tuple)) and bool(given) and all(type(i) is int for i in given)


# -- others -----------------------------------------------------------------------------------


class EmbeddingRequest(Request):
    """Texts to embed.

    Attributes:
        input: a text, or a list of texts.
        dimensions: number of leading values of each vector to keep.
        encoding_format: how vectors are written.
        prompt_name: which of the model's prompts to put before each text, such as ``query``.
        input_type: the kind of texts; the model's prompt for this kind, if it has one, goes before
            each.
        truncate_sequence: whether to cut texts that are too long; otherwise they raise an error.
    """

    _MAIN = "input"

    input: Any
    dimensions: StrictInt | None = None
    encoding_format: Literal["float", "base64"] = "float"
    prompt_name: StrictStr | None = None
    input_type: Literal["query", "document"] | None = None
    truncate_sequence: StrictBool = False
    user: StrictStr | None = None


class TranscriptionRequest(Request):
    """A sound to transcribe.

    Attributes:
        file: a `structgen.media.Audio`, or its bytes or path.
        language: the spoken language, such as ``de``; None: the model detects it.
        translate: whether to write the English translation.
        prompt: text that could come before it, to show how names are spelt.
        temperature: randomness; 0: none.
    """

    _MAIN = "file"
    _MAIN_KINDS = (Audio, bytes, str, os.PathLike)

    file: Any
    language: StrictStr | None = None
    translate: StrictBool = False
    prompt: Annotated[StrictStr, Field(max_length=4_000)] = ""
    temperature: Annotated[Number, Field(ge=0, le=1)] = 0.0

    @property
    def audio(self) -> Audio:
        """The sound.

        Raises:
            RequestError: the file is not a sound.
        """
        try:
            audio = self.file if isinstance(self.file, Audio) else Audio(self.file)
            return Audio(
                audio.data,
                language=self.language or audio.language,
                translate=self.translate or audio.translate,
            )
        except PromptError as error:
            raise RequestError(f"file: {error}", param="file") from error


class RerankRequest(Request):
    """Documents to rank by how well they answer a query.

    Attributes:
        query: the question.
        documents: texts, or dicts with a ``text``.
        top_n: return this many.
        return_documents: whether to return the documents' texts, too.
        truncate_sequence: whether to cut documents that are too long; otherwise they raise an
            error.
    """

    query: StrictStr
    documents: list[Any]
    top_n: Annotated[StrictInt, Field(ge=1)] | None = None
    return_documents: StrictBool = False
    truncate_sequence: StrictBool = False
    user: StrictStr | None = None


class ExplainRequest(Request):
    """Why a token was not allowed at a place of an output.

    Attributes:
        response_format: the form of the output, as in a `ChatRequest`.
        grammar: the same.
        grammar_type: the same.
        max_tokens: the limit on the output's tokens.
        before: ids of the output's tokens before the place.
        token: the token in question: an id, the name of a special token, or text.
        chosen: id of the token that was chosen there.
    """

    response_format: Any = None
    grammar: Any = None
    grammar_type: GrammarType | None = None
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    before: Annotated[Many[StrictInt], Field(max_length=8_192)]
    token: StrictInt | Annotated[StrictStr, Field(max_length=1_000)]
    chosen: StrictInt


class DecisionRequest(Request):
    """Typed questions about a state. See `structgen.decisions`.

    Attributes:
        state: text, messages or any JSON value.
        questions: questions of `structgen.decisions` by name, as JSON or objects; or a class.
        abstain_below: the lowest probability of an answer; below it there is none.
        debias: ``none``, ``prior`` or ``contextual``.
        tolerance: the largest error of a probability.
        adapter: name of a loaded adapter.
        timeout: most seconds.
    """

    state: Any
    questions: Any
    abstain_below: Number | ByName[Number] | None = None
    debias: Debias | None = None
    tolerance: Number | None = None
    adapter: StrictStr | None = None
    timeout: Number | None = None
    user: StrictStr | None = None
