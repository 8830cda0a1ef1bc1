"""LlamaIndex: LLMs that call functions, and embeddings, of a Runner.

    from structgen.integrations.llama_index import StructgenLLM

    llm = StructgenLLM(model="smollm2-135m-instruct", max_tokens=100)
    llm.structured_predict(Landmark, PromptTemplate("Describe {name}."), name="the Eiffel Tower")

Converts LlamaIndex's histories, answers and ``additional_kwargs``, and asks for values of a class.
Each piece of a stream contains all earlier ones. A call becomes a request to the Runner.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from structgen import models
from structgen.errors import ModelError, OptionError, StructgenError, requires

with requires(
    ModelError,
    "structgen.integrations.llama_index needs the package llama-index-core. Install it",
    "llama-index",
):
    from llama_index.core.constants import DEFAULT_NUM_OUTPUTS

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.utils import parse_partial_json
from llama_index.core.program.streaming_utils import process_streaming_content_incremental
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from structgen import runner
from structgen.runner import Runner

from . import frameworks

__all__ = ["StructgenEmbedding", "StructgenLLM"]

# -- messages ----------------------------------------------------------------------------------

_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
"""Roles that have other names in chat templates."""


def chat_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages of a chat.

    Raises:
        OptionError: a message has content that a text model cannot read.
    """
    return frameworks.joined(_message_of(message) for message in messages)


def _message_of(message: ChatMessage) -> dict[str, Any]:
    role = _ROLES.get(message.role.value, message.role.value)
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.content or "")
        elif isinstance(block, ToolCallBlock):
            calls.append(frameworks.call_of(block.tool_call_id, block.tool_name, block.tool_kwargs))
        elif not isinstance(block, CachePoint):  # prompts are kept by themselves
            raise frameworks.no_text(f"A {type(block).__name__}")
    more: Mapping[str, Any] = message.additional_kwargs
    if role == "assistant":
        thought = "\n\n".join(thoughts) if any(thoughts) else None
        return frameworks.answer("\n".join(texts), thought, calls or more.get("tool_calls") or [])
    called = {"tool_call_id": more.get("tool_call_id")} if role == "tool" else {}
    return {"role": role, "content": "\n".join(texts), **called}


# -- answers -----------------------------------------------------------------------------------


def response_of(answer: runner.ChatResponse) -> ChatResponse:
    """Return a whole answer: its first choice."""
    choice = answer.choices[0]
    message = choice.message
    calls = [one.model_dump(mode="json") for one in message.tool_calls or ()]
    return ChatResponse(
        message=_message(message.content or "", message.reasoning_content or "", calls),
        raw=answer.model_dump(mode="json"),
        logprobs=_logprobs(choice.logprobs),
        additional_kwargs={**_usage(answer.usage), **frameworks.details_of(choice)},
    )


def completion_of(response: ChatResponse) -> CompletionResponse:
    """Return the same as a text."""
    return CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        logprobs=response.logprobs,
        additional_kwargs={**response.additional_kwargs, **response.message.additional_kwargs},
    )


class Pieces:
    """The answer so far."""

    def __init__(self) -> None:
        self._made = frameworks.Growing()

    def of(self, chunk: runner.ChatChunk) -> Iterator[ChatResponse]:
        """Yield the piece after a chunk, if there is anything new."""
        made = self._made
        made.add(chunk)
        delta = ""
        is_new = chunk.usage is not None
        for choice in chunk.choices:
            delta = choice.delta.content or ""
            more = delta or choice.delta.reasoning_content or choice.delta.tool_calls
            is_new = is_new or bool(more)
        if is_new:
            known = {} if made.usage is None else _usage(made.usage)
            message = made.choice.message
            yield ChatResponse(
                message=_message(
                    message.content or "", message.reasoning_content or "", made.calls
                ),
                delta=delta,
                raw=chunk.model_dump(mode="json"),
                logprobs=_logprobs(made.choice.logprobs),
                additional_kwargs={**known, **made.details},
            )


def _message(text: str, thought: str, calls: Sequence[dict[str, Any]]) -> ChatMessage:
    blocks: list[Any] = []
    if thought:
        blocks.append(ThinkingBlock(content=thought))
    if text or not calls:
        blocks.append(TextBlock(text=text))
    for call in calls:
        function = call["function"]
        blocks.append(
            ToolCallBlock(
                tool_call_id=call["id"],
                tool_name=function["name"],
                tool_kwargs=function["arguments"],
            )
        )
    more = {"tool_calls": calls} if calls else {}
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=more)


def _usage(usage: runner.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _logprobs(given: Any) -> list[list[LogProb]] | None:
    """Return the log probabilities for each token, its own first."""
    if given is None:
        return None
    return [
        [
            _logprob(token),
            *(_logprob(top) for top in token.top_logprobs if top.token != token.token),
        ]
        for token in given.content or ()
    ]


def _logprob(given: Any) -> LogProb:
    return LogProb(token=given.token, logprob=given.logprob, bytes=given.bytes or [])


# -- the model ---------------------------------------------------------------------------------

_OF_CALLS = ("tool_required", "tool_choice", "allow_parallel_tool_calls")
"""Arguments about calls that LlamaIndex's programs pass even without tools."""


class StructgenLLM(FunctionCallingLLM):
    """A local chat model. Masks enforce its tool calls and structured outputs.

    The model is loaded by the first request, into a process of its own.

    Attributes:
        model: an id or alias of the Runner's; without a Runner, whatever one takes as a source: a
            name of the catalogue, a folder, a Hugging Face repository.
        runner: the Runner. None: the one that all adapters share.
        max_tokens: most tokens of an answer; one with a form is always complete within them.
        temperature: 0: the likeliest token.
        top_p: sample among the likeliest tokens that together have this probability.
        seed: with the same seed and fields, the same answer.
        stop: texts that end an answer.
        timeout: most seconds.
        context_window: most tokens of prompt and answer; None: from the catalogue, the model's
            files, or the loaded model.
        additional_kwargs: any other fields of `structgen.runner.ChatRequest`. A call takes all of
            them by name, too.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, protected_namespaces=("pydantic_model_",)
    )

    model: str
    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    timeout: float | None = None
    context_window: int | None = None
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator(
        "messages_to_prompt", "completion_to_prompt", "query_wrapper_prompt", mode="before"
    )
    @classmethod
    def _no_prompts(cls, given: Any, info: ValidationInfo) -> Any:
        if given is not None:
            raise OptionError(
                f"{info.field_name} is not supported: the model's chat template writes the prompts."
            )
        return given

    @classmethod
    def class_name(cls) -> str:
        """Return what LlamaIndex calls the class in files."""
        return "StructgenLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """The facts about the model."""
        if self.context_window is None:
            self.context_window = _context(self._runner(self.model), self.model)
        return LLMMetadata(
            context_window=self.context_window or -1,
            num_output=self.max_tokens or DEFAULT_NUM_OUTPUTS,
            is_chat_model=True,
            is_function_calling_model=True,
            model_name=self.model,
        )

    # -- answers ----------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer a chat."""
        runner, fields = self._asked(messages, kwargs)
        return response_of(runner.chat(fields))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer a chat."""
        runner, fields = self._asked(messages, kwargs)
        return response_of(await runner.achat(fields))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer a chat piece by piece. Closing the stream ends the answer."""
        runner, fields = self._asked(messages, kwargs, streams=True)

        def pieces() -> ChatResponseGen:
            made = Pieces()
            with runner.stream_chat(fields) as chunks:
                for chunk in chunks:
                    yield from made.of(chunk)

        return pieces()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """Answer a chat piece by piece. Closing the stream ends the answer."""
        runner, fields = self._asked(messages, kwargs, streams=True)

        async def pieces() -> ChatResponseAsyncGen:
            made = Pieces()
            async with runner.astream_chat(fields) as chunks:
                async for chunk in chunks:
                    for piece in made.of(chunk):
                        yield piece

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a prompt as a chat, or continue it if it is ``formatted``."""
        if formatted:
            runner, fields = self._completed(prompt, kwargs)
            return _text(runner.complete(fields))
        return completion_of(self.chat([ChatMessage(content=prompt)], **kwargs))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """`complete`, for asynchronous code."""
        if formatted:
            runner, fields = self._completed(prompt, kwargs)
            return _text(await runner.acomplete(fields))
        return completion_of(await self.achat([ChatMessage(content=prompt)], **kwargs))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """`complete`, piece by piece."""
        if formatted:
            runner, fields = self._completed(prompt, kwargs)

            def pieces() -> CompletionResponseGen:
                text = ""
                with runner.stream_complete(fields) as chunks:
                    for chunk in chunks:
                        text += chunk.text
                        if chunk.text:
                            yield CompletionResponse(text=text, delta=chunk.text)

            return pieces()
        made: Iterator[ChatResponse] = self.stream_chat([ChatMessage(content=prompt)], **kwargs)
        return (completion_of(one) for one in made)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """`complete`, piece by piece, for asynchronous code."""
        if formatted:
            runner, fields = self._completed(prompt, kwargs)

            async def pieces() -> CompletionResponseAsyncGen:
                text = ""
                async with runner.astream_complete(fields) as chunks:
                    async for chunk in chunks:
                        text += chunk.text
                        if chunk.text:
                            yield CompletionResponse(text=text, delta=chunk.text)

            return pieces()
        chat = [ChatMessage(content=prompt)]
        made: AsyncIterator[ChatResponse] = await self.astream_chat(chat, **kwargs)
        return (completion_of(one) async for one in made)

    def _runner(self, model: str) -> Runner:
        return frameworks.runner_of(self.runner, model)

    def _fields(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        own = frameworks.own_fields(self, StructgenLLM)
        fields = {**own, **self.additional_kwargs, **kwargs}
        frameworks.check_free(fields, ("n",), "LlamaIndex")
        return fields

    def _asked(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], *, streams: bool = False
    ) -> tuple[Runner, dict[str, Any]]:
        """Return the Runner and the request for a call."""
        several = "for streams." if streams else None
        fields = frameworks.chat_request(self._fields(kwargs), chat_of(messages), several)
        return self._runner(fields["model"]), fields

    def _completed(self, prompt: str, kwargs: Mapping[str, Any]) -> tuple[Runner, dict[str, Any]]:
        fields = self._fields(kwargs)
        fields["prompt"] = prompt
        return self._runner(fields["model"]), fields

    # -- tools ------------------------------------------------------------------------------

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the arguments of a chat with tools; the mask enforces ``tool_choice``."""
        messages = list(chat_history or ())
        if isinstance(user_msg, str):
            user_msg = ChatMessage(content=user_msg)
        if user_msg is not None:
            messages.append(user_msg)
        fields = {**kwargs, "messages": messages}
        if tools:
            fields["tools"] = [
                tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools
            ]
            fields["parallel_tool_calls"] = allow_parallel_tool_calls
        choice = _choice(tool_choice, tool_required)
        if tools or choice not in ("auto", "none"):  # the Runner refuses it without tools
            fields["tool_choice"] = choice
        return fields

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Return the tool calls of an answer; for a piece of a stream with their arguments so far.

        Raises:
            ValueError: there are none, and ``error_on_no_tool_call`` is True.
        """
        calls = [one for one in response.message.blocks if isinstance(one, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise ValueError(f"The answer contains no tool call: {response.message.content!r}.")
        return [
            ToolSelection(
                tool_id=call.tool_call_id or "",
                tool_name=call.tool_name,
                tool_kwargs=_arguments(call.tool_kwargs),
            )
            for call in calls
        ]

    # -- values of a class ------------------------------------------------------------------

    def structured_predict(
        self,
        output_cls: type[Any],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        """Answer with an instance of a class, enforced by mask; its validators may still refuse it.

        The answer is JSON, even if ``pydantic_program_mode`` requests a call.
        """
        messages = self._get_messages(prompt, **prompt_args)
        return _value(output_cls, self.chat(messages, **_formed(output_cls, llm_kwargs)))

    async def astructured_predict(
        self,
        output_cls: type[Any],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        """`structured_predict`, for asynchronous code."""
        messages = self._get_messages(prompt, **prompt_args)
        return _value(output_cls, await self.achat(messages, **_formed(output_cls, llm_kwargs)))

    def _structured_stream_call(
        self,
        output_cls: type[Any],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        messages = self._get_messages(prompt, **prompt_args)
        value: Any = None
        for piece in self.stream_chat(messages, **_formed(output_cls, llm_kwargs)):
            value = process_streaming_content_incremental(piece, output_cls, value)
            yield value

    async def _structured_astream_call(
        self,
        output_cls: type[Any],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        messages = self._get_messages(prompt, **prompt_args)
        answer = await self.astream_chat(messages, **_formed(output_cls, llm_kwargs))

        async def values() -> AsyncIterator[Any]:
            value: Any = None
            async for piece in answer:
                value = process_streaming_content_incremental(piece, output_cls, value)
                yield value

        return values()


def _context(runner: Runner, model: str) -> int | None:
    """Return the context length of a model, which is loaded if its files do not tell: agents ask
    within their loop."""
    with contextlib.suppress(StructgenError):
        if known := models.info(runner.get_model_info(model)["source"]).context:
            return known
    return runner.max_sequence_length(model)


def _formed(output_cls: type[BaseModel], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a request for values of a class."""
    others = {name: value for name, value in (given or {}).items() if name not in _OF_CALLS}
    return {**others, "output_type": output_cls}


def _value(output_cls: type[BaseModel], answer: ChatResponse) -> BaseModel:
    return output_cls.model_validate_json(answer.message.content or "")


def _choice(given: Any, is_required: bool) -> Any:
    if given is None:
        return "required" if is_required else "auto"
    if given == "any":
        return "required"
    if isinstance(given, str) and given not in ("auto", "none", "required"):
        return {"type": "function", "function": {"name": given}}
    return given


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return parse_partial_json(given)
    except ValueError:
        return {}


def _text(answer: Any) -> CompletionResponse:
    return CompletionResponse(text=answer.text, raw=answer.model_dump(mode="json"))


# -- embeddings --------------------------------------------------------------------------------


class StructgenEmbedding(BaseEmbedding):
    """A local embedder. Queries and texts get the model's prompts for these, if it has any.

    Attributes:
        model_name: as ``model`` of `StructgenLLM`.
        runner: as for `StructgenLLM`.
        dimensions: keep this many numbers of each vector.
        truncate: whether texts that are too long are cut, rather than refused.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, protected_namespaces=("pydantic_model_",)
    )

    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    dimensions: int | None = None
    truncate: bool = False

    @classmethod
    def class_name(cls) -> str:
        """Return what LlamaIndex calls the class in files."""
        return "StructgenEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return frameworks.embedded(self, self.model_name, [query], "query")[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await frameworks.aembedded(self, self.model_name, [query], "query"))[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return frameworks.embedded(self, self.model_name, texts, "document")

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await frameworks.aembedded(self, self.model_name, texts, "document")
