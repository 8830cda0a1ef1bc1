"""LangChain: chat models, embeddings and decisions of a Runner.

    from structgen.integrations.langchain import ChatStructgen

    model = ChatStructgen(model="smollm2-135m-instruct", max_tokens=100)
    model.with_structured_output(Landmark).invoke("Describe the Eiffel Tower.")

Converts LangChain's histories, answers, errors, tools and tool choices, and implements its methods
for typed outputs. Errors are LangChain's, so its fallbacks, retries and middleware recognise them.
A call becomes a request to the Runner; `structgen.decisions` makes decisions. `StructgenDecisions`
needs langchain-core 1.8.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from typing import Any, Literal

from structgen import errors as ours

try:
    from langchain_core import decisions as theirs
    from langchain_core import exceptions
except ImportError as error:
    raise ours.ModelError(
        "structgen.integrations.langchain needs the package langchain-core, 1.8 or newer. Install "
        "it: pip install -U 'structgen[langchain]'."
    ) from error

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.output_parsers import BaseOutputParser, JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structgen.decisions import Question, answer_of_system_one, question_of_system_one
from structgen.runner import ChatChunk, ChatResponse, DecisionResponse, Runner, Usage, tools_of
from structgen.types import lower, written

from . import frameworks

__all__ = ["ChatStructgen", "StructgenDecisions", "StructgenEmbeddings"]

# -- messages ----------------------------------------------------------------------------------

_CALLS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call"})
"""Blocks that repeat a message's ``tool_calls``."""

_THOUGHTS = {"reasoning": "reasoning", "thinking": "thinking"}
"""Blocks of thoughts, with the key of their texts."""


def chat_of(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return the messages of a chat.

    Raises:
        OptionError: a message has content that a text model cannot read.
    """
    return frameworks.joined(_message_of(message) for message in messages)


def _message_of(message: BaseMessage) -> dict[str, Any]:
    text, thoughts = _texts(message)
    entry: dict[str, Any] = {"role": _role(message), "content": text}
    if isinstance(message, AIMessage):
        thoughts = message.additional_kwargs.get("reasoning_content") or thoughts
        calls = [
            frameworks.call_of(one["id"], one["name"] or "", one["args"])
            for one in (*message.tool_calls, *message.invalid_tool_calls)
        ]
        if not calls and "function_call" in message.additional_kwargs:
            raise ours.OptionError("function_call is not supported. Pass tool_calls.")
        return frameworks.answer(text, thoughts, calls)
    if isinstance(message, ToolMessage):
        entry["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        entry["name"] = message.name
    return entry


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    known = (SystemMessage, HumanMessage, AIMessage, ToolMessage)
    for kind, role in zip(known, ("system", "user", "assistant", "tool"), strict=True):
        if isinstance(message, kind):
            return role
    kinds = (FunctionMessage, RemoveMessage)
    what = type(message).__name__ if isinstance(message, kinds) else repr(message.type)
    raise ours.OptionError(f"A message of type {what} cannot be shown to a model.")


def _texts(message: BaseMessage) -> tuple[str, str]:
    """Return the text of a message and its thoughts."""
    if isinstance(message.content, str):
        return message.content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for block in message.content:
        kind = "text" if isinstance(block, str) else block.get("type")
        if isinstance(block, str):
            texts.append(block)
        elif kind == "text" and "text" in block:
            texts.append(str(block["text"]))
        elif kind in _THOUGHTS:
            thoughts.append(str(block.get(_THOUGHTS[kind]) or ""))
        elif not (kind in _CALLS and isinstance(message, AIMessage) and message.tool_calls):
            raise frameworks.no_text(f"A block of the type {kind!r}")
    return "".join(texts), "\n\n".join(thoughts)


# -- answers -----------------------------------------------------------------------------------

PROVIDER = "structgen"
"""LangChain's name of the provider."""


def result_of(answer: ChatResponse) -> ChatResult:
    """Return a whole answer, of one choice or several; the first has the usage of all."""
    found = []
    for index, choice in enumerate(answer.choices):
        calls = [
            tool_call(name=one.function.name, args=json.loads(one.function.arguments), id=one.id)
            for one in choice.message.tool_calls or ()
        ]
        message = AIMessage(
            content=choice.message.content or "",
            additional_kwargs=_thought(choice.message.reasoning_content),
            tool_calls=calls,
            usage_metadata=usage_of(answer.usage) if index == 0 else None,
            response_metadata=_metadata(answer.model, frameworks.details_of(choice)),
        )
        found.append(ChatGeneration(message=message))
    return ChatResult(generations=found)


class Pieces:
    """The chunks of one answer, as LangChain's."""

    def __init__(self) -> None:
        self._made = frameworks.Growing()

    def of(self, chunk: ChatChunk) -> Iterator[ChatGenerationChunk]:
        """Yield the pieces of a chunk: none or one."""
        self._made.add(chunk)
        if chunk.usage is not None:  # after all choices
            usage = usage_of(chunk.usage)
            message = AIMessageChunk(content="", usage_metadata=usage, chunk_position="last")
            yield ChatGenerationChunk(message=message)
        for choice in chunk.choices:
            delta = choice.delta
            metadata: dict[str, Any] = {}
            if choice.finish_reason is not None:
                metadata = _metadata(chunk.model, self._made.details)
            calls = [
                tool_call_chunk(
                    name=call.function.name,
                    args=call.function.arguments,
                    id=call.id,
                    index=call.index,
                )
                for call in delta.tool_calls or ()
            ]
            if not (delta.content or delta.reasoning_content or calls or metadata):
                continue
            message = AIMessageChunk(
                content=delta.content or "",
                additional_kwargs=_thought(delta.reasoning_content),
                tool_call_chunks=calls,
                response_metadata=metadata,
            )
            yield ChatGenerationChunk(message=message)


def usage_of(usage: Usage) -> UsageMetadata:
    """Return the usage in LangChain's form."""
    thought = usage.completion_tokens_details.reasoning_tokens
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.prompt_tokens_details.cached_tokens),
        output_token_details=OutputTokenDetails(reasoning=thought),
    )


def _thought(text: str | None) -> dict[str, Any]:
    return {"reasoning_content": text} if text else {}


def _metadata(model: str, details: dict[str, Any]) -> dict[str, Any]:
    return {"model_name": model, "model_provider": PROVIDER, **details}


# -- errors ------------------------------------------------------------------------------------


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Turn structgen's errors into LangChain's, with structgen's as the cause."""
    try:
        yield
    except ours.StructgenError as error:
        kind = next((message for known, message in _ERRORS if isinstance(error, known)), None)
        if isinstance(error, ours.PromptError) and error.is_too_long:
            kind = exceptions.ContextOverflowError
        raise (kind or exceptions.ModelError)(str(error)) from error


_INVALID = (ours.PromptError, ours.BudgetTooSmall, ours.OptionError, ours.OutputTypeError)
_ERRORS: tuple[tuple[Any, type[Exception]], ...] = (
    (ours.Overloaded, exceptions.ModelRateLimitError),
    (ours.ModelNotFound, exceptions.ModelNotFoundError),
    (ours.WorkerDied, exceptions.ModelConnectionError),
    (ours.IncompleteOutput, exceptions.ModelTimeoutError),
    (_INVALID, exceptions.ModelInvalidRequestError),
)


# -- outputs of a type -------------------------------------------------------------------------

Method = Literal["json_schema", "function_calling", "json_mode"]


def structured(
    model: BaseChatModel,
    schema: Any,
    *,
    method: Method,
    include_raw: bool,
    fields: Mapping[str, Any],
) -> Runnable[LanguageModelInput, Any]:
    """Return a chain of the model, bound to the type, and a parser.

    Raises:
        OptionError: the method is unknown, or LangChain cannot make a JSON Schema from the type.
    """
    described = {"ls_structured_output_format": {"kwargs": {"method": method}, "schema": schema}}
    is_class = isinstance(schema, type) and is_basemodel_subclass(schema)
    parser: Runnable[Any, Any]
    if method == "function_calling":
        name = _json_schema(schema)["title"]
        one = {"tool_choice": name, "parallel_tool_calls": False}
        bound = model.bind_tools([tool_of(schema)], **{**one, **fields, **described})
        if is_class and issubclass(schema, BaseModel) and schema.__name__ == name:
            bound = bound.bind(tools=[schema])  # its schema says less of decimals, dates
        if is_class:
            parser = PydanticToolsParser(tools=[schema], first_tool_only=True)
        else:
            parser = JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    elif method in ("json_schema", "json_mode"):
        form: dict[str, Any]
        if is_class and issubclass(schema, BaseModel):
            form, parser = {"output_type": schema}, _Parser(pydantic_object=schema)
        else:  # the mask is for its JSON Schema, as LangChain makes it
            json_schema = _json_schema(schema)
            form = {"response_format": frameworks.schema_format(json_schema["title"], json_schema)}
            reader: BaseOutputParser[Any] = JsonOutputParser()
            parser = PydanticOutputParser(pydantic_object=schema) if is_class else reader
        bound = model.bind(**{**form, **fields, **described})
    else:
        raise ours.OptionError(
            f"method={method!r} must be json_schema, function_calling or json_mode."
        )
    if not include_raw:
        return bound | parser
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=bound) | parsed.with_fallbacks([failed], exception_key="parsing_error")


def _is_json_schema(given: Any) -> bool:
    """Return whether a value is a JSON Schema with a title, and not a tool."""
    return isinstance(given, Mapping) and "title" in given and "name" not in given


def tool_of(given: Any) -> dict[str, Any]:
    """Return a tool in OpenAI's form.

    LangChain keeps only title and description of a JSON Schema with ``$ref``, ``anyOf`` or
    ``additionalProperties`` instead of ``properties``, and treats a recursive part as anything.
    """
    if isinstance(given, BaseTool) and isinstance(given.args_schema, Mapping):  # of an MCP server
        # LangChain copies what a reference leads to: 2 kB of references became gigabytes.
        return frameworks.tool_of(given.name, given.description, _unnamed(given.args_schema))
    made: dict[str, Any] = convert_to_openai_tool(given)
    schema = given
    if inspect.isroutine(given):
        schema = StructuredTool.from_function(
            given,
            description=given.__doc__ or "-",
            parse_docstring=True,
            error_on_invalid_docstring=False,
        )
    schema = getattr(schema, "tool_call_schema", schema)
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if _is_json_schema(given) or (schema is not given and isinstance(schema, Mapping)):
        kept = _unnamed(schema)
        if _has_circle(schema):
            made["function"]["parameters"] = kept
        made["function"].setdefault("parameters", kept)
    return made


def _unnamed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without its title and description, which the tool has."""
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


_REFERENCE = re.compile(r'"\$ref": "#(?:/(?:\$defs|definitions)/([^"/]+)[^"]*)?"')


def _has_circle(schema: Mapping[str, Any]) -> bool:
    """Return whether a part of a schema is recursive, or refers to parts that are."""

    def led_to(part: Any) -> set[str]:
        return {*_REFERENCE.findall(json.dumps(part, ensure_ascii=False, default=str))}

    held = schema.get("definitions"), schema.get("$defs")  # which may still be anything
    parts = {name: part for one in held if isinstance(one, Mapping) for name, part in one.items()}
    try:
        TopologicalSorter({name: led_to(part) for name, part in parts.items()}).prepare()
    except CycleError:
        return True
    return "" in led_to(schema)  # "" is the whole schema


def _json_schema(schema: Any) -> dict[str, Any]:
    """Return the JSON Schema of a class, a function or a dict, as LangChain makes it."""
    if _is_json_schema(schema):
        return dict(schema)
    try:
        return convert_to_json_schema(schema)
    except (TypeError, ValueError) as error:
        raise ours.OptionError(
            f"schema={schema!r} is not a Pydantic class, TypedDict or JSON Schema with a title. "
            "For other types use model.bind(output_type=...), whose answers are strings."
        ) from error


class _Parser(PydanticOutputParser[Any]):
    """Parses JSON of a class as the mask defines it: dates of strict classes are texts."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """Return an instance; for an unfinished text None if there is none yet."""
        if partial:
            return super().parse_result(result, partial=True)
        text = result[0].text
        try:
            return self.pydantic_object.model_validate_json(text)
        except ValidationError as error:
            name = self.pydantic_object.__name__
            raise OutputParserException(
                f"{text!r} does not match {name}: {error}", llm_output=text
            ) from error


# -- the model ---------------------------------------------------------------------------------

_CHOICES = {"any": "required", True: "required", False: "none"}
"""LangChain's words for choices of tools that differ from the Runner's."""


class ChatStructgen(BaseChatModel):
    """A local chat model. Masks enforce its tool calls and structured outputs.

    The model is loaded by the first request, into a process of its own.

    Attributes:
        model: an id or alias of the Runner's; without a Runner, whatever one takes as a source: a
            name of the catalogue, a folder, a Hugging Face repository.
        runner: the Runner. None: the one that all adapters share.
        max_tokens: most tokens of an answer; one with a form is always complete within them.
        temperature: 0: the likeliest token.
        top_p: sample among the likeliest tokens that together have this probability.
        top_k: sample among this many of the likeliest tokens.
        seed: with the same seed and fields, the same answer.
        stop: texts that end an answer.
        timeout: most seconds.
        n: how many answers, for `generate`.
        logprobs: whether ``response_metadata`` has the log probability of each token.
        top_logprobs: number of likeliest tokens to list for each.
        parallel_tool_calls: whether an answer may have several tool calls.
        enable_thinking: whether the model thinks before it answers.
        reasoning_effort: how long it thinks.
        model_kwargs: any other fields of `structgen.runner.ChatRequest`. A call takes all of them
            by name, too.
        streaming: whether to stream even if only callbacks read the stream.
        max_retries: accepted because programs set it; nothing is sent twice.
        api_key: accepted for the same reason; there is no server.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    model: str
    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    timeout: float | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    streaming: bool = False
    max_retries: int | None = Field(default=None, exclude=True, repr=False)
    api_key: Any = Field(default=None, exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        return "structgen"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {**frameworks.own_fields(self, ChatStructgen), **self.model_kwargs}

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Return LangChain's cache key: a request's fields, and the grammars of its types."""
        with errors():
            _, fields = self._asked((), stop, kwargs)
            for name in {"output_type", "response_format"} & fields.keys():
                if not isinstance(form := fields[name], (Mapping, type(None))):
                    fields[name] = written.write(lower(form), {}, "")
            tools = tools_of(fields.get("tools") or ()).values()
            fields["tools"] = [
                (one.schema, written.write(one.definition.output, {}, "")) for one in tools
            ]
        return str(sorted(fields.items()))

    def _resolve_model_profile(self) -> ModelProfile | None:
        return ModelProfile(
            text_inputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            text_outputs=True,
            reasoning_output=True,
            tool_calling=True,
            tool_choice=True,
            tool_call_streaming=True,
            structured_output=True,
        )

    # -- answers ----------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with errors():
            runner, fields = self._asked(messages, stop, kwargs)
            return result_of(runner.chat(fields))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with errors():
            runner, fields = self._asked(messages, stop, kwargs)
            return result_of(await runner.achat(fields))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        pieces = Pieces()
        with errors():
            runner, fields = self._asked(messages, stop, kwargs, streams=True)
            with runner.stream_chat(fields) as chunks:
                for chunk in chunks:
                    for piece in pieces.of(chunk):
                        if run_manager is not None:
                            run_manager.on_llm_new_token(piece.text, chunk=piece)
                        yield piece

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        pieces = Pieces()
        with errors():
            runner, fields = self._asked(messages, stop, kwargs, streams=True)
            async with runner.astream_chat(fields) as chunks:
                async for chunk in chunks:
                    for piece in pieces.of(chunk):
                        if run_manager is not None:
                            await run_manager.on_llm_new_token(piece.text, chunk=piece)
                        yield piece

    def _asked(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        kwargs: Mapping[str, Any],
        *,
        streams: bool = False,
    ) -> tuple[Runner, dict[str, Any]]:
        """Return the Runner and the request for a call."""
        fields = {**self._identifying_params, **kwargs}
        fields.pop("stream", None)  # LangChain's, for itself
        frameworks.check_free(fields, (), "LangChain")
        if self.parallel_tool_calls is not None and fields.get("tools"):
            fields.setdefault("parallel_tool_calls", self.parallel_tool_calls)
        if stop is not None:
            fields["stop"] = stop
        several = "for streams. Call generate." if streams else None
        fields = frameworks.chat_request(fields, chat_of(messages), several)
        return frameworks.runner_of(self.runner, fields["model"]), fields

    # -- tools and types --------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Give the model tools.

        Args:
            tools: functions, classes, tools of LangChain's or dicts.
            tool_choice: ``"auto"``, ``"none"``, ``"any"`` or ``"required"`` (at least one call), a
                tool's name (a call of it), or as in OpenAI's API. The mask enforces it.
            strict: no effect: arguments are always valid for the tool's schema.
            kwargs: further fields of the request, such as ``parallel_tool_calls``.

        Raises:
            OptionError: ``tool_choice`` names no tool, or requires a call without tools.
        """
        if not tools and tool_choice not in (None, False, "auto", "none"):
            raise ours.OptionError(f"tool_choice={tool_choice!r} requires tools.")
        if tools:
            made = [tool_of(tool) for tool in tools]
            kwargs["tools"] = made
            if tool_choice is not None:
                kwargs["tool_choice"] = _choice(tool_choice, made)
        return super().bind(**kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Method = "json_schema",
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a model that answers with values of a type. Masks enforce the type, so nothing is
        retried.

        Args:
            schema: a Pydantic class, which returns instances; or a ``TypedDict``, a JSON Schema
                with a title, or a tool of OpenAI's shape, which return dicts.
            include_raw: whether to return a dict of ``raw`` (the message), ``parsed`` and
                ``parsing_error``. There is an error only if a validator of the class rejects a
                value.
            method: ``"json_schema"``; ``"json_mode"``, which is the same here; or
                ``"function_calling"``: a call of a tool.
            strict: no effect: the form is always enforced.
            kwargs: further fields of the request.
        """
        return structured(self, schema, method=method, include_raw=include_raw, fields=kwargs)

    # -- tokens -----------------------------------------------------------------------------

    def get_token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        with errors():
            runner = frameworks.runner_of(self.runner, self.model)
            return runner.tokenize_text(text, model=self.model, add_special_tokens=False)

    def get_num_tokens_from_messages(
        self,
        messages: list[BaseMessage],
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool] | None = None,
    ) -> int:
        """Return the number of tokens of a history, with the chat template and its text about
        tools.

        If it ends with a message of the assistant, as parts of histories may, a short user message
        is counted after it.
        """
        with errors():
            chat = chat_of(messages)
            if chat and chat[-1]["role"] == "assistant":
                chat.append({"role": "user", "content": "."})
            made = [tool_of(tool) for tool in tools or ()]
            fields: dict[str, Any] = {"messages": chat, "tools": made or None}
            return frameworks.runner_of(self.runner, self.model).count_tokens(
                fields, model=self.model
            )


def _choice(given: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    if isinstance(given, (str, bool)):
        names = [tool["function"]["name"] for tool in tools if "function" in tool]
        if given in names:
            return {"type": "function", "function": {"name": given}}
        choice: Literal["auto", "none", "required"] | str = _CHOICES.get(given, str(given))
        if choice not in ("auto", "none", "required"):
            raise ours.OptionError(
                f"tool_choice={given!r} must be auto, none, any or one of the tools: "
                f"{', '.join(names)}."
            )
        return choice
    return given


# -- embeddings --------------------------------------------------------------------------------


class StructgenEmbeddings(BaseModel, Embeddings):
    """A local embedder. Queries and documents get the model's prompts for these, if it has any.

    Attributes:
        model: as for `ChatStructgen`.
        runner: as for `ChatStructgen`.
        dimensions: keep this many numbers of each vector.
        truncate: whether texts that are too long are cut, rather than refused.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    model: str
    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    dimensions: int | None = None
    truncate: bool = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Make the vectors of documents."""
        with errors():
            return frameworks.embedded(self, self.model, texts, "document")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Make the vectors of documents."""
        with errors():
            return await frameworks.aembedded(self, self.model, texts, "document")

    def embed_query(self, text: str) -> list[float]:
        """Make the vector of a query."""
        with errors():
            return frameworks.embedded(self, self.model, [text], "query")[0]

    async def aembed_query(self, text: str) -> list[float]:
        """Make the vector of a query."""
        with errors():
            return (await frameworks.aembedded(self, self.model, [text], "query"))[0]


# -- decisions ---------------------------------------------------------------------------------


class StructgenDecisions(theirs.BaseDecisionModel):
    """A local decision model: the probability of every answer, to a proven bound.

    Attributes:
        model: as for `ChatStructgen`.
        runner: as for `ChatStructgen`.
        debias: see `structgen.decisions.Decider`.
        tolerance: the largest error of a probability.
        adapter: name of a loaded adapter.
        timeout: most seconds.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    debias: str | None = None
    tolerance: float | None = None
    adapter: str | None = None
    timeout: float | None = None

    @property
    def _provider(self) -> str:
        return PROVIDER

    def _classify(self, state: Any, questions: dict[str, Any]) -> theirs.ClassifierResponse:
        with errors():
            made = frameworks.runner_of(self.runner, self.model).decide(
                self._asked(state, questions)
            )
        return _answers_of(made, questions)

    async def _aclassify(self, state: Any, questions: dict[str, Any]) -> theirs.ClassifierResponse:
        with errors():
            made = await frameworks.runner_of(self.runner, self.model).adecide(
                self._asked(state, questions)
            )
        return _answers_of(made, questions)

    def _asked(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        names = ("model", "debias", "tolerance", "adapter", "timeout")
        return {
            **{name: getattr(self, name) for name in names},
            "state": _state(state),
            "questions": {name: _question(name, one) for name, one in questions.items()},
        }


def _state(given: Any) -> Any:
    """Return a state as JSON; messages at its root become a chat."""
    if isinstance(given, BaseMessage):
        return chat_of([given])
    if isinstance(given, Mapping):
        return {name: _inner(one) for name, one in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if given and all(isinstance(one, BaseMessage) for one in given):
            return chat_of(given)
        return [_inner(one) for one in given]
    return given


def _inner(given: Any) -> Any:
    return chat_of([given])[0] if isinstance(given, BaseMessage) else _state(given)


def _question(name: str, given: Any) -> Question:
    if isinstance(given, theirs.Choice):
        return question_of_system_one("choice", given.instructions, given.criteria)
    if isinstance(given, theirs.Score):
        return question_of_system_one("score", given.instructions, given.criteria)
    if isinstance(given, theirs.Noul):
        one = given.criteria
        criteria = None if one is None else {"true": one.true, "false": one.false}
        return question_of_system_one("noul", given.instructions, criteria)
    raise ours.OptionError(
        f"The question {name!r} is a {type(given).__name__}, which is not supported: models of "
        "structgen read only text."
    )


def _answers_of(made: DecisionResponse, questions: Mapping[str, Any]) -> theirs.ClassifierResponse:
    found = {
        name: answer_of_system_one(made.answers[name], question.criteria)
        for name, question in questions.items()
    }
    usage = {"input_tokens": made.usage.prompt_tokens, "output_tokens": 0}
    return theirs.ClassifierResponse.model_validate(
        {"model": made.model, "answers": found, "usage": usage, "request_id": made.id}
    )
