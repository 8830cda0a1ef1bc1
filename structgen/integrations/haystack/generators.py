"""`StructgenChatGenerator` and `StructgenGenerator`: chat models of a Runner, as components.

Owns the fields of the components, how they are written and read, and how a run becomes a request
of the Runner's.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import (
    ChatMessage,
    ComponentInfo,
    StreamingCallbackT,
    select_streaming_callback,
)
from haystack.tools import (
    ToolsType,
    deserialize_tools_or_toolset_inplace,
    flatten_tools_or_toolsets,
    serialize_tools_or_toolset,
)
from haystack.utils import deserialize_callable, serialize_callable
from pydantic import BaseModel

from structgen.errors import OptionError
from structgen.runner import Runner

from ..frameworks import closed_format
from .answers import Pieces, replies_of
from .loading import Loading
from .messages import chat_of

_TAKEN = (
    "messages",
    "model",
    "tools",
    "stream_options",
    "session_id",
    "max_tool_rounds",
    "approve",
)
"""Fields of a request that a component fills in, or that stand against what it does."""


@component
class StructgenChatGenerator(Loading):
    """A local chat model whose calls of tools and structured outputs have their form by mask.

    The model is loaded by the first run, or by ``warm_up``, into a process of its own.
    """

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        tools: ToolsType | None = None,
    ) -> None:
        """Make a generator; nothing is loaded.

        Args:
            model: an id or alias of the Runner's; without a Runner, whatever one takes as a
                source: a name of the catalogue, a folder, a Hugging Face repository.
            runner: the Runner. None: the one that all adapters share. It is not written by
                ``to_dict``: set ``runner`` on what is read again.
            streaming_callback: is called with each `StreamingChunk`.
            generation_kwargs: fields of `structgen.runner.ChatRequest`; a ``response_format`` may
                be a Pydantic class, too.
            tools: that the model may call.
        """
        self.model = model
        self.runner = runner
        self.streaming_callback = streaming_callback
        self.generation_kwargs = generation_kwargs or {}
        self.tools = tools

    def to_dict(self) -> dict[str, Any]:
        """Write the component, without the Runner; a class in it as its JSON Schema."""
        callback = self.streaming_callback
        made: dict[str, Any] = default_to_dict(
            self,
            model=self.model,
            streaming_callback=None if callback is None else serialize_callable(callback),
            generation_kwargs=_written(self.generation_kwargs),
            tools=serialize_tools_or_toolset(self.tools),
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StructgenChatGenerator:
        """Read a component that `to_dict` wrote."""
        deserialize_tools_or_toolset_inplace(data["init_parameters"], key="tools")
        made: StructgenChatGenerator = default_from_dict(cls, _read(data))
        return made

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, Any]:
        """Answer a chat.

        Args:
            messages: the chat; a text is the user's one message.
            streaming_callback: instead of the component's.
            generation_kwargs: beside the component's, and before them.
            tools: instead of the component's.

        Returns:
            ``replies``: the answer, or ``n`` of them.
        """
        chosen = select_streaming_callback(
            init_callback=self.streaming_callback,
            runtime_callback=streaming_callback,
            requires_async=False,
        )
        fields = self._asked(messages, generation_kwargs, tools, streams=chosen is not None)
        runner = self._of()
        if chosen is None:
            return {"replies": replies_of(runner.chat(fields))}
        pieces = Pieces(ComponentInfo.from_component(self))
        with runner.stream_chat(fields) as chunks:
            for chunk in chunks:
                for piece in pieces.of(chunk):
                    chosen(piece)
        return {"replies": [pieces.reply]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, Any]:
        """`run`, for asynchronous code. Cancelling it ends the answer within one pass."""
        chosen = select_streaming_callback(
            init_callback=self.streaming_callback,
            runtime_callback=streaming_callback,
            requires_async=True,
        )
        fields = self._asked(messages, generation_kwargs, tools, streams=chosen is not None)
        runner = self._of()
        if chosen is None:
            return {"replies": replies_of(await runner.achat(fields))}
        pieces = Pieces(ComponentInfo.from_component(self))
        async with runner.astream_chat(fields) as chunks:
            async for chunk in chunks:
                for piece in pieces.of(chunk):
                    told = chosen(piece)
                    if inspect.isawaitable(told):
                        await told
        return {"replies": [pieces.reply]}

    def _asked(
        self,
        messages: Sequence[ChatMessage] | str,
        given: Mapping[str, Any] | None,
        tools: ToolsType | None,
        *,
        streams: bool,
    ) -> dict[str, Any]:
        """The request that a run is."""
        fields = {**self.generation_kwargs, **(given or {})}
        for name in _TAKEN:
            if name in fields:
                raise OptionError(f"{name} is what the component fills in. It cannot be set.")
        if streams:
            if (fields.get("n") or 1) > 1:
                raise OptionError(f"n={fields['n']} is not supported with a streaming callback.")
            fields["stream_options"] = {"include_usage": True}
        if "response_format" in fields:
            fields["response_format"] = closed_format(fields["response_format"])
        known = flatten_tools_or_toolsets(self.tools if tools is None else tools)
        if known:
            fields["tools"] = [{"type": "function", "function": tool.tool_spec} for tool in known]
        if isinstance(messages, str):
            messages = [ChatMessage.from_user(messages)]
        fields["messages"] = chat_of(messages)
        fields["model"] = self.model
        return fields


@component
class StructgenGenerator(Loading):
    """`StructgenChatGenerator` for texts: a prompt in, texts out."""

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        system_prompt: str | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Make a generator; nothing is loaded.

        Args:
            model: as for `StructgenChatGenerator`.
            runner: the same.
            system_prompt: what the system says first.
            streaming_callback: as for `StructgenChatGenerator`.
            generation_kwargs: the same.
        """
        self.model = model
        self.runner = runner
        self.system_prompt = system_prompt
        self.streaming_callback = streaming_callback
        self.generation_kwargs = generation_kwargs or {}

    def to_dict(self) -> dict[str, Any]:
        """Write the component, without the Runner; a class in it as its JSON Schema."""
        callback = self.streaming_callback
        made: dict[str, Any] = default_to_dict(
            self,
            model=self.model,
            system_prompt=self.system_prompt,
            streaming_callback=None if callback is None else serialize_callable(callback),
            generation_kwargs=_written(self.generation_kwargs),
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StructgenGenerator:
        """Read a component that `to_dict` wrote."""
        made: StructgenGenerator = default_from_dict(cls, _read(data))
        return made

    @component.output_types(replies=list[str], meta=list[dict[str, Any]])
    def run(
        self,
        prompt: str,
        system_prompt: str | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a prompt.

        Args:
            prompt: what the user says.
            system_prompt: instead of the component's.
            streaming_callback: instead of the component's.
            generation_kwargs: beside the component's, and before them.

        Returns:
            ``replies``: the text, or ``n`` of them; ``meta``: of each.
        """
        chat = self._chat(prompt, system_prompt)
        return _texts(self._generator().run(chat, streaming_callback, generation_kwargs))

    @component.output_types(replies=list[str], meta=list[dict[str, Any]])
    async def run_async(
        self,
        prompt: str,
        system_prompt: str | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """`run`, for asynchronous code."""
        chat, generator = self._chat(prompt, system_prompt), self._generator()
        return _texts(await generator.run_async(chat, streaming_callback, generation_kwargs))

    def _generator(self) -> StructgenChatGenerator:
        return StructgenChatGenerator(
            self.model,
            runner=self.runner,
            streaming_callback=self.streaming_callback,
            generation_kwargs=self.generation_kwargs,
        )

    def _chat(self, prompt: str, system: str | None) -> list[ChatMessage]:
        told = self.system_prompt if system is None else system
        first = [] if told is None else [ChatMessage.from_system(told)]
        return [*first, ChatMessage.from_user(prompt)]


def _texts(made: Mapping[str, list[ChatMessage]]) -> dict[str, Any]:
    replies = made["replies"]
    return {"replies": [one.text or "" for one in replies], "meta": [one.meta for one in replies]}


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as they go into a file.

    A form goes as JSON text: in YAML the members of its objects would be sorted, and a model writes
    them in the order of the schema.
    """
    given = fields.get("response_format")
    if isinstance(given, type) and issubclass(given, BaseModel):
        form = {"name": given.__name__, "schema": given.model_json_schema()}
        given = {"type": "json_schema", "json_schema": form}
    return {**fields, "response_format": json.dumps(given)} if given else dict(fields)


def _read(data: dict[str, Any]) -> dict[str, Any]:
    """The same, read again, with the callback that is named."""
    given = data["init_parameters"]
    callback, fields = given.get("streaming_callback"), given.get("generation_kwargs") or {}
    form = fields.get("response_format")
    if isinstance(form, str):
        fields = {**fields, "response_format": json.loads(form)}
    if callback is not None:
        callback = deserialize_callable(callback)
    told = {**given, "streaming_callback": callback, "generation_kwargs": fields}
    return {**data, "init_parameters": told}
