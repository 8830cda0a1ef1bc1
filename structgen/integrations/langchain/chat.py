"""`ChatStructgen`: a chat model of a Runner, for LangChain and LangGraph.

Owns the fields of the model, how a call becomes a request of the Runner's, and LangChain's words
for tools and their choice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field

from structgen.errors import OptionError
from structgen.runner import Runner

from ..frameworks import closed_format, runner_of
from .answers import Pieces, result_of
from .errors import errors
from .messages import chat_of
from .structured import Method, structured, tool_of

_FIELDS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "timeout",
    "n",
    "logprobs",
    "top_logprobs",
    "enable_thinking",
    "reasoning_effort",
)
"""Fields of the model that are fields of each request."""

_TAKEN = ("messages", "stream_options", "session_id", "max_tool_rounds", "approve")
"""Fields of a request that LangChain fills in, or that stand against what it does."""

_CHOICES = {"any": "required", True: "required", False: "none"}
"""LangChain's words for choices of tools, where they are not the Runner's."""


class ChatStructgen(BaseChatModel):
    """A local chat model whose calls of tools and structured outputs have their form by mask.

    The model is loaded by the first request, into a process of its own.

    Attributes:
        model: an id or alias of the Runner's; without a Runner, whatever one takes as a source: a
            name of the catalogue, a folder, a Hugging Face repository.
        runner: the Runner. None: the one that all adapters share.
        max_tokens: most tokens of an answer; with a form it is whole within them.
        temperature: 0: the likeliest token.
        top_p: sample among the likeliest tokens that together have this probability.
        top_k: sample among so many of the likeliest.
        seed: with the same seed and fields, the same answer.
        stop: texts that end an answer.
        timeout: most seconds.
        n: how many answers, for `generate`.
        logprobs: whether ``response_metadata`` has the log probability of each token.
        top_logprobs: how many of the likeliest tokens it lists beside each.
        parallel_tool_calls: whether there may be several calls in an answer, of tools that are
            bound.
        enable_thinking: whether the model thinks before it answers.
        reasoning_effort: how much.
        model_kwargs: any other fields of `structgen.runner.ChatRequest`. A call takes all of them
            by name, too.
        streaming: whether to stream also where nobody reads a stream but callbacks.
        max_retries: taken for the sake of programs that set it; nothing is sent twice.
        api_key: taken for their sake, too; there is no server.
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
        given = {name: getattr(self, name) for name in ("model", *_FIELDS)}
        return {
            **{name: value for name, value in given.items() if value is not None},
            **self.model_kwargs,
        }

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
        """The Runner, and the request that a call is."""
        fields = {**self._identifying_params, **kwargs}
        fields.pop("stream", None)  # LangChain's, for itself
        for name in _TAKEN:
            if name in fields:
                raise OptionError(f"{name} is what LangChain fills in. It cannot be set.")
        if stop is not None:
            fields["stop"] = stop
        if streams:
            if (fields.get("n") or 1) > 1:
                raise OptionError(f"n={fields['n']} is not supported for streams. Call generate.")
            fields["stream_options"] = {"include_usage": True}
        if "response_format" in fields:
            fields["response_format"] = closed_format(fields["response_format"])
        fields["messages"] = chat_of(messages)
        return runner_of(self.runner, fields["model"]), fields

    # -- tools and types --------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Have the model know tools.

        Args:
            tools: functions, classes, tools of LangChain's or dicts.
            tool_choice: ``"auto"``, ``"none"``, ``"any"`` or ``"required"`` (at least one call), a
                tool's name (a call of it), or as in OpenAI's API. It is held by mask.
            strict: changes nothing: arguments are always valid for the tool's schema.
            kwargs: further fields of the request, such as ``parallel_tool_calls``.

        Raises:
            OptionError: ``tool_choice`` names no tool, or asks for a call of none.
        """
        if not tools and tool_choice not in (None, False, "auto", "none"):
            raise OptionError(
                f"tool_choice={tool_choice!r} asks for a call, and there are no tools."
            )
        if tools:
            made = [tool_of(tool) for tool in tools]
            kwargs["tools"] = made
            if self.parallel_tool_calls is not None:
                kwargs.setdefault("parallel_tool_calls", self.parallel_tool_calls)
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
        """Have the model answer with values of a type: by mask, so that none is asked for again.

        Args:
            schema: a Pydantic class, of which instances come back; or a ``TypedDict``, a JSON
                Schema with a title, or a tool of OpenAI's shape, of which dicts do.
            include_raw: whether a dict of ``raw`` (the message), ``parsed`` and ``parsing_error``
                comes back. There is an error only where a validator of the class refuses a value.
            method: ``"json_schema"``; ``"json_mode"``, which is the same here; or
                ``"function_calling"``: a call of a tool.
            strict: changes nothing: the form always holds.
            kwargs: further fields of the request.
        """
        return structured(self, schema, method=method, include_raw=include_raw, fields=kwargs)

    # -- tokens -----------------------------------------------------------------------------

    def get_token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        with errors():
            runner = runner_of(self.runner, self.model)
            return runner.tokenize_text(text, model=self.model, add_special_tokens=False)

    def get_num_tokens_from_messages(
        self,
        messages: list[BaseMessage],
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool] | None = None,
    ) -> int:
        """Return how many tokens a history has, with the chat template and what it says of tools.

        One that the assistant's message ends, as parts of histories may, counts with a short
        message of the user's after it.
        """
        with errors():
            chat = chat_of(messages)
            if chat and chat[-1]["role"] == "assistant":
                chat.append({"role": "user", "content": "."})
            made = [tool_of(tool) for tool in tools or ()]
            fields: dict[str, Any] = {"messages": chat, "tools": made or None}
            return runner_of(self.runner, self.model).count_tokens(fields, model=self.model)


def _choice(given: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    if isinstance(given, (str, bool)):
        names = [tool["function"]["name"] for tool in tools if "function" in tool]
        if given in names:
            return {"type": "function", "function": {"name": given}}
        choice: Literal["auto", "none", "required"] | str = _CHOICES.get(given, str(given))
        if choice not in ("auto", "none", "required"):
            raise OptionError(
                f"tool_choice={given!r} is none of auto, none, any and the tools: "
                f"{', '.join(names)}."
            )
        return choice
    return given
