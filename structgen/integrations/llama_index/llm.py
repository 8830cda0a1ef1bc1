"""`StructgenLLM`: a chat model of a Runner, for LlamaIndex.

Owns the fields of the model, how a call becomes a request of the Runner's, and how values of a
class are asked for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    ToolCallBlock,
)
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.utils import parse_partial_json
from llama_index.core.program.streaming_utils import process_streaming_content_incremental
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field

from structgen.errors import OptionError
from structgen.runner import Runner

from ..frameworks import closed_format, runner_of
from .answers import Pieces, completion_of, response_of
from .messages import chat_of

_FIELDS = ("model", "max_tokens", "temperature", "top_p", "seed", "stop", "timeout")
"""Fields of the model that are fields of each request."""

_TAKEN = ("messages", "stream_options", "n", "session_id", "max_tool_rounds", "approve")
"""Fields of a request that LlamaIndex fills in, or that stand against what it does."""

_OF_CALLS = ("tool_required", "tool_choice", "allow_parallel_tool_calls")
"""What LlamaIndex's programs say of calls, where there are none."""


class StructgenLLM(FunctionCallingLLM):
    """A local chat model whose calls of tools and structured outputs have their form by mask.

    The model is loaded by the first request, into a process of its own.

    Attributes:
        model: an id or alias of the Runner's; without a Runner, whatever one takes as a source: a
            name of the catalogue, a folder, a Hugging Face repository.
        runner: the Runner. None: the one that all adapters share.
        max_tokens: most tokens of an answer; with a form it is whole within them.
        temperature: 0: the likeliest token.
        top_p: sample among the likeliest tokens that together have this probability.
        seed: with the same seed and fields, the same answer.
        stop: texts that end an answer.
        timeout: most seconds.
        context_window: most tokens of prompt and answer; None: the model is asked, and so loaded.
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

    @classmethod
    def class_name(cls) -> str:
        """What LlamaIndex calls the class in files."""
        return "StructgenLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What the model is."""
        if self.context_window is None:
            self.context_window = self._runner(self.model).max_sequence_length(self.model)
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
        """Answer a prompt: as a chat, or, where it is ``formatted``, as the text that goes on."""
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
        return runner_of(self.runner, model)

    def _fields(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _FIELDS}
        given = {name: value for name, value in own.items() if value is not None}
        fields = {**given, **self.additional_kwargs, **kwargs}
        for name in _TAKEN:
            if name in fields:
                raise OptionError(f"{name} is what LlamaIndex fills in. It cannot be set.")
        return fields

    def _asked(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], *, streams: bool = False
    ) -> tuple[Runner, dict[str, Any]]:
        """The Runner, and the request that a call is."""
        fields = self._fields(kwargs)
        if "response_format" in fields:
            fields["response_format"] = closed_format(fields["response_format"])
        if streams:
            fields["stream_options"] = {"include_usage": True}
        fields["messages"] = chat_of(messages)
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
        """A chat with tools as a chat: ``tool_choice`` is held by mask."""
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
            fields["tool_choice"] = _choice(tool_choice, tool_required)
        return fields

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = True,
        **kwargs: Any,
    ) -> list[ToolSelection]:
        """Return the calls of an answer; of a piece of it what is there of their arguments.

        Raises:
            ValueError: there are none, and ``error_on_no_tool_call`` says that this is wrong.
        """
        calls = [one for one in response.message.blocks if isinstance(one, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise ValueError(f"The answer calls no tool: {response.message.content!r}.")
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
        """Answer with an instance of a class, by mask; its validators may still refuse it.

        The answer is JSON, also where ``pydantic_program_mode`` asks for a call.
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


def _formed(output_cls: type[BaseModel], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a request for values of a class."""
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
        return json.loads(given)
    except ValueError:
        pass
    try:
        return parse_partial_json(given)
    except ValueError:
        return {}


def _text(answer: Any) -> CompletionResponse:
    return CompletionResponse(text=answer.text, raw=answer.model_dump(mode="json"))
