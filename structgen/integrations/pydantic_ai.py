"""pydantic-ai: models and embedders of a Runner for its agents.

    from pydantic_ai import Agent
    from structgen.integrations.pydantic_ai import StructgenModel

    agent = Agent(StructgenModel("smollm2-135m-instruct"), output_type=Landmark)
    agent.run_sync("Describe the Eiffel Tower.").output

Chooses the Runner of a model, and unloads models that are no longer used. Converts pydantic-ai's
histories, answers, errors and ``provider_details``. Each setting of a request becomes a field of
the Runner's `ChatRequest`, or raises an error that names it.
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from types import TracebackType
from typing import Any, cast

from structgen.errors import (
    BudgetTooSmall,
    IncompleteOutput,
    ModelError,
    ModelNotFound,
    OptionError,
    OutputTypeError,
    Overloaded,
    PromptError,
    StructgenError,
    WorkerDied,
    requires,
)

with requires(
    ModelError,
    "structgen.integrations.pydantic_ai needs the package pydantic-ai, and Python 3.11. Install it",
    "pydantic-ai",
):
    import pydantic_ai.providers

from pydantic_ai import exceptions
from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult, EmbeddingSettings
from pydantic_ai.embeddings.result import EmbedInputType
from pydantic_ai.exceptions import ModelTimeoutError, UserError
from pydantic_ai.messages import (
    CachePoint,
    FinishReason,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
    StreamedResponse,
    check_allow_model_requests,
)
from pydantic_ai.models._tool_choice import resolve_tool_choice
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.providers import Provider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from structgen.options import FIELDS
from structgen.runner import AsyncChunkStream, ChatChunk, ChatResponse, Choice, Runner, Usage

from . import frameworks

__all__ = [
    "StructgenEmbeddingModel",
    "StructgenModel",
    "StructgenModelSettings",
    "StructgenProvider",
]

# -- the Runner --------------------------------------------------------------------------------

SYSTEM = "structgen"
"""pydantic-ai's name of the provider."""


PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    supports_json_object_output=True,
    default_structured_output_mode="native",
    native_output_requires_schema_in_instructions=True,  # the mask is not part of the prompt
    supports_thinking=True,
)
"""The capabilities of all models of a Runner. Masks enforce forms and calls."""


class StructgenProvider(Provider[Runner]):
    """A Runner as a provider of pydantic-ai.

    Args:
        runner: the Runner of the models. None: a new one, which adds models by name, and unloads
            them when the last agent or model leaves its ``async with``.
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self._client = Runner() if runner is None else runner
        self._is_own = runner is None
        self._known: set[str] = set()  # models that were named here, if the Runner is its own

    @property
    def name(self) -> str:
        """``structgen``."""
        return SYSTEM

    @property
    def base_url(self) -> str:
        """Empty, because models run on this machine."""
        return ""

    @property
    def client(self) -> Runner:
        """The Runner."""
        return self._client

    @staticmethod
    def model_profile(model_name: str) -> ModelProfile | None:
        """Return the capabilities of a model."""
        return PROFILE

    def know(self, model_name: str) -> None:
        """Add a model to its own Runner; a passed Runner has its models already."""
        if not self._is_own:
            return
        self._known.add(model_name)
        frameworks.know(self._client, model_name)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        """Leave it; see the class."""
        was_entered = self._entered_count > 0
        await super().__aexit__(exc_type, exc_val, exc_tb)
        if self._is_own and was_entered and self._entered_count == 0:
            for model in sorted(self._known):
                await self._client.aunload(model)
        return None


@cache
def own_provider() -> StructgenProvider:
    """Return the provider for models without another one.

    Its Runner is shared by all adapters, so a model is loaded only once.
    """
    made = StructgenProvider(frameworks.own_runner())
    made._is_own = True
    return made


def provider_of(given: StructgenProvider | Runner | None, model_name: str) -> StructgenProvider:
    """Return the provider for a model, after the model was added if necessary."""
    if given is None:
        given = own_provider()
    elif isinstance(given, Runner):
        given = StructgenProvider(given)
    given.know(model_name)
    return given


@contextlib.contextmanager
def errors_of(model_name: str) -> Iterator[None]:
    """Turn structgen's errors into pydantic-ai's, which `FallbackModel` and retries recognise."""
    try:
        yield
    except Overloaded as error:
        raise exceptions.ModelOverloadedError(
            model_name, str(error), retry_after=error.retry_after
        ) from error
    except ModelNotFound as error:
        raise exceptions.ModelNotFoundError(model_name, str(error)) from error
    except WorkerDied as error:
        raise exceptions.ModelConnectionError(model_name, str(error)) from error
    except IncompleteOutput as error:
        raise exceptions.ModelTimeoutError(model_name, str(error)) from error
    except (BudgetTooSmall, OptionError, OutputTypeError, PromptError) as error:
        raise exceptions.ModelRequestRejectedError(
            model_name, str(error), provider_error_code=getattr(error, "param", None)
        ) from error
    except StructgenError as error:
        raise exceptions.ModelServerError(model_name, str(error)) from error


# -- messages ----------------------------------------------------------------------------------

Chat = list[dict[str, Any]]


def chat_of(
    messages: Sequence[ModelMessage], instructions: Sequence[InstructionPart] | None
) -> Chat:
    """Return the messages of a chat.

    Raises:
        UserError: a part cannot be read by a text model.
    """
    chat: Chat = []
    for message in messages:
        if isinstance(message, ModelResponse):
            chat.append(_answer(message))
        else:
            chat += _request(message)
    leading = 0
    while leading < len(chat) and chat[leading]["role"] == "system":
        leading += 1
    more = [{"role": "system", "content": part.content} for part in instructions or ()]
    return frameworks.joined([*chat[:leading], *more, *chat[leading:]])


def _request(message: ModelRequest) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield {"role": "user", "content": _user(part)}
        elif isinstance(part, ToolReturnPart):
            if part.files:
                raise UserError(
                    str(frameworks.no_text(f"A file in the result of {part.tool_name}"))
                )
            yield {
                "role": "tool",
                "tool_call_id": part.tool_call_id,
                "content": part.model_response_str(),
            }
        else:
            raise UserError(
                f"{type(part).__name__} cannot be shown to a model as it is. Pass "
                "model.prepare_messages(messages), as an Agent does."
            )


def _user(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    texts = []
    for item in part.content:
        if isinstance(item, (str, TextContent)):
            texts.append(item if isinstance(item, str) else item.content)
        elif not isinstance(item, CachePoint):  # prompts are kept by themselves
            what = f"{type(item).__name__} in a user's message"
            raise UserError(str(frameworks.no_text(what)))
    return "\n\n".join(texts)


def _answer(message: ModelResponse) -> dict[str, Any]:
    """Return an earlier answer, without parts that only another provider's models can read."""
    texts, thoughts, calls = [], [], []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.content)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.content)
        elif isinstance(part, ToolCallPart):
            calls.append(
                frameworks.call_of(part.tool_call_id, part.tool_name, part.args_as_json_str())
            )
    return frameworks.answer("\n\n".join(texts), "\n\n".join(thoughts), calls)


# -- settings ----------------------------------------------------------------------------------

PREFIX = "structgen_"


class StructgenModelSettings(ModelSettings, total=False):
    """Settings for structgen's models only.

    Any other field of `structgen.runner.ChatRequest` can be set with this prefix or in
    ``extra_body``, except those for messages, tools and output types.
    """

    structgen_logprobs: bool
    """Return the log probability of each token in ``provider_details['logprobs']``."""

    structgen_top_logprobs: int
    """Number of likeliest tokens to list for each."""

    structgen_trace: bool
    """Return what happened at each token in ``provider_details['trace']``."""

    structgen_abstain_below: float | dict[str, float]
    """Return how sure the model is of each value that was a choice among few, by JSON path, in
    ``provider_details['confidence']``, and in ``['abstained']`` those below this."""

    structgen_best: bool
    """Write values that are a choice among few as the likeliest text."""

    structgen_min_p: float
    """Sample among tokens with at least this share of the likeliest token's probability."""

    structgen_repetition_penalty: float
    """Above 1 it discourages tokens that occurred before."""

    structgen_no_repeat_ngram_size: int
    """Do not repeat any run of so many tokens."""

    structgen_thinking_budget: int
    """Most tokens of a thought."""

    structgen_truncate_sequence: bool
    """Remove the oldest turns of a prompt that is too long."""

    structgen_adapter: str
    """Name of a loaded adapter."""


_NAMES = {name: name for name in FIELDS if name in ModelSettings.__annotations__}
_NAMES |= {"stop_sequences": "stop", "service_tier": "service_tier"}
"""Settings with the names of their fields."""

_ELSEWHERE = frozenset(
    {
        "request_timeout",
        "first_event_timeout",
        "framing_announcement",
        "tool_choice",
        "parallel_tool_calls",
        "thinking",
        "extra_body",
        "cache",  # shared parts of prompts are cached anyway
        "max_retries",  # a request that failed is never sent again
    }
)
"""Settings that pydantic-ai handles itself, that are read below, or that hold anyway."""

_REFUSED = {
    "extra_headers": "structgen sends no HTTP requests.",
    "citations": "structgen's models do not cite sources.",
}

_TAKEN = (
    *("n", "tools", "tool_choice", "parallel_tool_calls", "response_format", "grammar"),
    *("grammar_type", "output_type", "tool_timeout", "max_tool_result"),
)
"""Fields that the agent sets, beside those of all frameworks."""


def fields_of(settings: ModelSettings, params: ModelRequestParameters) -> dict[str, Any]:
    """Return all fields of a request except its messages.

    Raises:
        UserError: a setting is not supported.
    """
    return {**_settings(settings), **_thinking(params), **_tools(settings, params), **_form(params)}


def _settings(settings: ModelSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _NAMES:
            if name == "timeout" and not isinstance(value, (int, float, type(None))):
                raise UserError(f"timeout={value!r} is not supported. Pass a number of seconds.")
            fields[_NAMES[name]] = value
        elif name in _REFUSED:
            if value:
                raise UserError(f"{name}={value!r} is not supported. {_REFUSED[name]}")
        elif name.startswith(PREFIX):
            own[name.removeprefix(PREFIX)] = value
        elif name not in _ELSEWHERE and not name.startswith(_others()):
            raise UserError(f"There is no setting {name!r}.")
    body: Any = settings.get("extra_body") or {}
    if not isinstance(body, Mapping):
        raise UserError(f"extra_body={body!r} must be a dict of fields of a ChatRequest.")
    own = {**body, **own}
    try:
        frameworks.check_free(own, ("model", *_TAKEN), "the agent")
    except OptionError as error:
        raise UserError(str(error)) from None
    return {**fields, **own}


@cache
def _others() -> tuple[str, ...]:
    """Return the prefixes of settings whose names are for other models."""
    providers = pkgutil.iter_modules(pydantic_ai.providers.__path__)
    return ("decision_", "mcp_", *(f"{one.name}_" for one in providers if one.name[0] != "_"))


def _thinking(params: ModelRequestParameters) -> dict[str, Any]:
    level = params.thinking
    if level is None:
        return {}
    if isinstance(level, bool):
        return {"enable_thinking": level}
    return {"reasoning_effort": "xhigh" if level == "max" else level}


def _form(params: ModelRequestParameters) -> dict[str, Any]:
    """Return the form of an answer without calls, even if only the prompt asks for it."""
    if params.output_object is None:
        return {}
    name, schema = params.output_object.name or "output", params.output_object.json_schema
    return {"response_format": frameworks.closed_format(frameworks.schema_format(name, schema))}


def _tools(settings: ModelSettings, params: ModelRequestParameters) -> dict[str, Any]:
    choice = resolve_tool_choice(settings, params)  # it refuses calls without tools
    tools = params.declared_tool_defs
    if not tools:
        return {}
    made = [
        frameworks.tool_of(one.name, one.description or None, one.parameters_json_schema)
        for one in tools.values()
    ]
    fields: dict[str, Any] = {"tools": made}
    if isinstance(choice, str):
        fields["tool_choice"] = choice
    else:
        mode, names = choice
        allowed = [{"type": "function", "function": {"name": n}} for n in tools if n in names]
        fields["tool_choice"] = {
            "type": "allowed_tools",
            "allowed_tools": {"mode": mode, "tools": allowed},
        }
    parallel = settings.get("parallel_tool_calls")
    if parallel is None and not params.function_tools:
        parallel = False  # the agent would use only one of several outputs
    if parallel is not None:
        fields["parallel_tool_calls"] = parallel
    return fields


# -- answers -----------------------------------------------------------------------------------

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_call"}


def response_of(answer: ChatResponse) -> ModelResponse:
    """Return a whole answer.

    Raises:
        ModelTimeoutError: ``timeout`` cut it.
    """
    choice = answer.choices[0]
    message = choice.message
    parts: list[ModelResponsePart] = []
    if message.reasoning_content:
        parts.append(ThinkingPart(message.reasoning_content, provider_name=SYSTEM))
    if message.content:
        parts.append(TextPart(message.content))
    for call in message.tool_calls or ():
        function = call.function
        parts.append(ToolCallPart(function.name, function.arguments, tool_call_id=call.id))
    return ModelResponse(
        parts=parts,
        usage=usage_of(answer.usage),
        model_name=answer.model,
        provider_name=SYSTEM,
        provider_details=_details(choice, answer.model),
        provider_response_id=answer.id,
        finish_reason=_REASONS[choice.finish_reason],
    )


def usage_of(usage: Usage) -> RequestUsage:
    """Return the usage in pydantic-ai's form."""
    return RequestUsage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.prompt_tokens_details.cached_tokens,
        output_tokens=usage.completion_tokens,
        details=usage.completion_tokens_details.model_dump(),
    )


def _details(choice: Choice, model: str) -> dict[str, Any]:
    """Return the details of a finished answer.

    Raises:
        ModelTimeoutError: ``timeout`` cut it.
    """
    if choice.result is not None and choice.result.finish_reason == "cancelled":
        raise ModelTimeoutError(model, "timeout: the answer was cut off before it was complete.")
    return frameworks.details_of(choice)


@dataclass
class StructgenStreamedResponse(StreamedResponse):
    """An answer piece by piece."""

    _model: str
    _first: ChatChunk
    _chunks: AsyncChunkStream[ChatChunk]
    _timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _made: frameworks.Growing = field(default_factory=frameworks.Growing)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self.provider_response_id = self._first.id
        for event in self._events(self._first):
            yield event
        with errors_of(self._model):
            async for chunk in self._chunks:
                for event in self._events(chunk):
                    yield event

    def _events(self, chunk: ChatChunk) -> Iterator[ModelResponseStreamEvent]:
        self._made.add(chunk)
        if chunk.usage is not None:
            self._usage = usage_of(chunk.usage)
        parts = self._parts_manager
        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                yield from parts.handle_thinking_delta(
                    vendor_part_id="reasoning",
                    content=delta.reasoning_content,
                    provider_name=SYSTEM,
                )
            if delta.content:
                yield from parts.handle_text_delta(vendor_part_id="content", content=delta.content)
            for call in delta.tool_calls or ():
                yield from parts.handle_tool_call_delta_events(
                    vendor_part_id=call.index,
                    tool_name=call.function.name,
                    args=call.function.arguments,
                    tool_call_id=call.id,
                )
            if choice.finish_reason is not None:
                self.provider_details = _details(self._made.choice, self._model)
                self.finish_reason = _REASONS[choice.finish_reason]

    async def close_stream(self) -> None:
        """End the answer, within one pass of the model."""
        await self._chunks.aclose()

    @property
    def model_name(self) -> str:
        """The model's id."""
        return self._first.model

    @property
    def provider_name(self) -> str:
        """``structgen``."""
        return SYSTEM

    @property
    def provider_url(self) -> None:
        """There is none."""
        return None

    @property
    def timestamp(self) -> datetime:
        """When the request was made."""
        return self._timestamp


# -- the model ---------------------------------------------------------------------------------


@dataclass(init=False)
class StructgenModel(Model[Runner]):
    """A local model. Masks enforce its tool calls and structured outputs.

    Args:
        model_name: an id or alias of the Runner's; without a Runner, whatever one takes as a
            source: a name of the catalogue, a folder, a Hugging Face repository.
        provider: the Runner, or a `StructgenProvider`. None: the shared one.
        profile: as for other models; the default has pydantic-ai's native output.
        settings: `StructgenModelSettings` for every request.

    The model is loaded by the first request, into a process of its own.
    """

    _unsupported_file_inputs = frozenset({"image", "document", "audio", "video"})

    _model_name: str = field(repr=False)
    _provider: StructgenProvider = field(repr=False)

    def __init__(
        self,
        model_name: str,
        *,
        provider: StructgenProvider | Runner | None = None,
        profile: ModelProfileSpec | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self._model_name = model_name
        self._provider = provider_of(provider, model_name)
        super().__init__(settings=settings, profile=profile)

    @property
    def runner(self) -> Runner:
        """The Runner."""
        return self._provider.client

    @property
    def model_name(self) -> str:
        """The model's id or alias."""
        return self._model_name

    @property
    def system(self) -> str:
        """``structgen``."""
        return self._provider.name

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Answer."""
        fields, _ = self._asked(messages, model_settings, model_request_parameters)
        with errors_of(self._model_name):
            answer = await self.runner.achat(fields, model=self._model_name)
        return response_of(answer)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Answer piece by piece. Leaving it ends the answer."""
        fields, params = self._asked(messages, model_settings, model_request_parameters)
        fields["stream_options"] = {"include_usage": True}
        with errors_of(self._model_name):
            chunks = self.runner.astream_chat(fields, model=self._model_name)
        async with chunks:
            with errors_of(self._model_name):
                first = await anext(chunks)  # before the model runs: errors are raised here
            yield StructgenStreamedResponse(
                model_request_parameters=params,
                _model=self._model_name,
                _first=first,
                _chunks=chunks,
            )

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Count the tokens of the prompt, tools and instructions included."""
        fields, _ = self._asked(messages, model_settings, model_request_parameters)
        with errors_of(self._model_name):
            count = await self.runner.acount_tokens(fields, model=self._model_name)
        return RequestUsage(input_tokens=count)

    def _asked(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        params: ModelRequestParameters,
    ) -> tuple[dict[str, Any], ModelRequestParameters]:
        """Return a request as the Runner's."""
        check_allow_model_requests()
        settings, params = self.prepare_request(settings, params)
        fields = fields_of(settings or cast(ModelSettings, {}), params)
        fields["messages"] = chat_of(messages, self._get_instruction_parts(messages, params))
        return fields, params


# -- embeddings --------------------------------------------------------------------------------

_EMBEDDING_NAMES = {"dimensions": "dimensions", "truncate": "truncate_sequence"}


@dataclass(init=False)
class StructgenEmbeddingModel(EmbeddingModel):
    """A local embedder. Queries and documents get the model's prompts for these, if it has any.

    Args:
        model_name: as for `StructgenModel`.
        provider: as for `StructgenModel`.
        settings: settings for every request; ``extra_body`` has fields of
            `structgen.runner.EmbeddingRequest`.
    """

    _model_name: str = field(repr=False)
    _provider: StructgenProvider = field(repr=False)

    def __init__(
        self,
        model_name: str,
        *,
        provider: StructgenProvider | Runner | None = None,
        settings: EmbeddingSettings | None = None,
    ) -> None:
        self._model_name = model_name
        self._provider = provider_of(provider, model_name)
        super().__init__(settings=settings)

    @property
    def model_name(self) -> str:
        """The model's id or alias."""
        return self._model_name

    @property
    def system(self) -> str:
        """``structgen``."""
        return self._provider.name

    async def embed(
        self,
        inputs: str | Sequence[str],
        *,
        input_type: EmbedInputType,
        settings: EmbeddingSettings | None = None,
    ) -> EmbeddingResult:
        """Make the vectors of texts.

        Raises:
            UserError: a setting is not supported.
        """
        check_allow_model_requests()
        texts, settings = self.prepare_embed(inputs, settings)
        fields = {"input_type": input_type, **_embedding_fields(settings)}
        if "prompt_name" in fields:
            del fields["input_type"]
        with errors_of(self._model_name):
            made = await self._provider.client.aembed(fields, model=self._model_name, input=texts)
        return EmbeddingResult(
            embeddings=frameworks.vectors_of(made),
            inputs=texts,
            input_type=input_type,
            model_name=made.model,
            provider_name=self.system,
            usage=RequestUsage(input_tokens=made.usage.prompt_tokens),
        )

    async def max_input_tokens(self) -> int | None:
        """Return the most tokens that a text may have."""
        with errors_of(self._model_name):
            return await self._provider.client.amax_sequence_length(self._model_name)

    async def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        with errors_of(self._model_name):
            found = await self._provider.client.atokenize_text(text, model=self._model_name)
        return len(found)


def _embedding_fields(settings: EmbeddingSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _EMBEDDING_NAMES:
            fields[_EMBEDDING_NAMES[name]] = value
        elif name == "extra_body":
            if not isinstance(value, Mapping) or {"input", "model", "encoding_format"} & set(value):
                raise UserError(f"extra_body={value!r} must be a dict of additional fields.")
            fields |= value
        elif name == "extra_headers":
            if value:
                raise UserError("extra_headers is not supported: structgen sends no HTTP requests.")
        else:
            raise UserError(f"There is no setting {name!r}.")
    return fields
