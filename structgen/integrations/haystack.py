"""Haystack: generators and embedders of a Runner, as components of pipelines.

    from structgen.integrations.haystack import StructgenChatGenerator

    generator = StructgenChatGenerator("smollm2-135m-instruct")
    generator.run("Describe the Eiffel Tower.", generation_kwargs={"response_format": Landmark})

Converts Haystack's histories, answers and chunks, and writes and reads components in pipeline
files. A run becomes a request to the Runner. Queries and documents each have an embedder, with the
model's prompt for them if it has one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from structgen.errors import ModelError, OptionError, requires

with requires(
    ModelError,
    "structgen.integrations.haystack needs the package haystack-ai, and Python 3.11. Install it",
    "haystack",
):
    from haystack import Document, component, default_from_dict, default_to_dict

from haystack.dataclasses import (
    ChatMessage,
    ComponentInfo,
    ReasoningContent,
    StreamingCallbackT,
    StreamingChunk,
    TextContent,
    ToolCall,
    ToolCallDelta,
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

from structgen.runner import ChatChunk, ChatResponse, EmbeddingResponse, Runner, Usage

from . import frameworks

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "StructgenChatGenerator",
    "StructgenDocumentEmbedder",
    "StructgenGenerator",
    "StructgenTextEmbedder",
]


# -- messages ----------------------------------------------------------------------------------


def chat_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Return the messages of a chat.

    Raises:
        OptionError: a message has content that a text model cannot read.
    """
    return frameworks.joined(one for message in messages for one in _messages_of(message))


def _messages_of(message: ChatMessage) -> Iterator[dict[str, Any]]:
    if message.images or message.files:
        raise frameworks.no_text("An image or a file")
    if message.tool_call_results:
        for result in message.tool_call_results:
            content = result.result
            if not isinstance(content, str):
                if not all(isinstance(part, TextContent) for part in content):
                    raise frameworks.no_text(f"The result of {result.origin.tool_name}")
                content = "\n".join(part.text for part in content if isinstance(part, TextContent))
            yield {"role": "tool", "content": content, "tool_call_id": result.origin.id}
        return
    calls = [frameworks.call_of(one.id, one.tool_name, one.arguments) for one in message.tool_calls]
    thought = message.reasoning.reasoning_text if message.reasoning else None
    answer = frameworks.answer("\n\n".join(message.texts), thought, calls)
    name = {} if message.name is None else {"name": message.name}
    yield {**answer, "role": message.role.value, **name}


# -- answers -----------------------------------------------------------------------------------


def replies_of(answer: ChatResponse) -> list[ChatMessage]:
    """Return a whole answer, of one choice or several."""
    return [
        _message(
            choice.message.content,
            choice.message.reasoning_content,
            [call.model_dump(mode="json") for call in choice.message.tool_calls or ()],
            _meta(answer.model, choice.index, answer.usage, frameworks.details_of(choice)),
        )
        for choice in answer.choices
    ]


class Pieces:
    """The chunks of an answer, in Haystack's classes, and their sum.

    A chunk belongs to one block: the thought, the text or a call; ``index`` is the block's number.
    """

    def __init__(self, component: ComponentInfo) -> None:
        self._component = component
        self._made = frameworks.Growing()
        self._block: Any = None
        self._index = -1
        self._began: str | None = None
        self._model = ""

    def of(self, chunk: ChatChunk) -> Iterator[StreamingChunk]:
        """Yield the pieces of a chunk: none or one."""
        self._made.add(chunk)
        self._model = chunk.model
        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                thought = ReasoningContent(reasoning_text=delta.reasoning_content)
                yield self._piece("thought", reasoning=thought)
            if delta.content:
                yield self._piece("text", content=delta.content)
            for call in delta.tool_calls or ():
                piece = ToolCallDelta(
                    index=call.index,
                    tool_name=call.function.name,
                    arguments=call.function.arguments or None,
                    id=call.id,
                )
                yield self._piece(call.index, tool_calls=[piece])
            if choice.finish_reason is not None:
                yield self._piece(self._block, finish_reason=choice.finish_reason)

    @property
    def reply(self) -> ChatMessage:
        """The whole answer."""
        made, message = self._made, self._made.choice.message
        meta = _meta(self._model, 0, made.usage or Usage(), made.details)
        meta["completion_start_time"] = self._began
        thought = (message.reasoning_content or "").strip()
        return _message(message.content or None, thought, made.calls, meta)

    def _piece(self, block: Any, content: str = "", **fields: Any) -> StreamingChunk:
        starts = block != self._block
        if starts:
            self._block = block
            self._index += 1
        now = datetime.now().isoformat()
        self._began = self._began or now
        return StreamingChunk(
            content=content,
            component_info=self._component,
            index=max(self._index, 0),
            start=starts,
            meta={"model": self._model, "received_at": now},
            **fields,
        )


def _message(
    text: str | None, thought: str | None, calls: Sequence[dict[str, Any]], meta: dict[str, Any]
) -> ChatMessage:
    made = [
        ToolCall(
            id=call["id"],
            tool_name=call["function"]["name"],
            arguments=json.loads(call["function"]["arguments"]),
        )
        for call in calls
    ]
    return ChatMessage.from_assistant(
        text=text, tool_calls=made, reasoning=thought or None, meta=meta
    )


def _meta(model: str, index: int, usage: Usage, details: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "index": index, "usage": usage.model_dump(mode="json"), **details}


# -- generators --------------------------------------------------------------------------------


class Loading:
    """The base of components with a Runner's model: loading, and writing to and reading from files.

    Attributes:
        model: an id, alias or source.
        runner: the Runner, or None: the one that all adapters share.
    """

    model: str
    runner: Runner | None

    def warm_up(self) -> None:
        """Load the model."""
        self._of().load(self.model)

    async def warm_up_async(self) -> None:
        """Load the model."""
        await self._of().aload(self.model)

    def _of(self) -> Runner:
        return frameworks.runner_of(self.runner, self.model)

    def to_dict(self) -> dict[str, Any]:
        """Write the component, without the Runner; a class in it as its JSON Schema."""
        names = inspect.signature(type(self).__init__).parameters
        fields = {name: getattr(self, name) for name in names if name not in ("self", "runner")}
        if fields.get("streaming_callback") is not None:
            fields["streaming_callback"] = serialize_callable(fields["streaming_callback"])
        if "generation_kwargs" in fields:
            fields["generation_kwargs"] = _written(fields["generation_kwargs"])
        if "tools" in fields:
            fields["tools"] = serialize_tools_or_toolset(fields["tools"])
        made: dict[str, Any] = default_to_dict(self, **fields)
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read a component that `to_dict` wrote."""
        if "tools" in data["init_parameters"]:
            deserialize_tools_or_toolset_inplace(data["init_parameters"], key="tools")
        made: Self = default_from_dict(cls, _read(data))
        return made


@component
class StructgenChatGenerator(Loading):
    """A local chat model. Masks enforce its tool calls and structured outputs.

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
            runner: the Runner. None: the one that all adapters share. ``to_dict`` does not write
                it: set ``runner`` after reading a component.
            streaming_callback: called with each `StreamingChunk`.
            generation_kwargs: fields of `structgen.runner.ChatRequest`; a ``response_format`` may
                be a Pydantic class, too.
            tools: the tools that the model may call.
        """
        self.model = model
        self.runner = runner
        self.streaming_callback = streaming_callback
        self.generation_kwargs = generation_kwargs or {}
        self.tools = tools

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
            messages: the chat; a text is a single user message.
            streaming_callback: instead of the component's.
            generation_kwargs: beside the component's, and before them.
            tools: instead of the component's.

        Returns:
            ``replies``: the answer, or ``n`` of them.
        """
        chosen = select_streaming_callback(
            self.streaming_callback, streaming_callback, requires_async=False
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
            self.streaming_callback, streaming_callback, requires_async=True
        )
        fields = self._asked(messages, generation_kwargs, tools, streams=chosen is not None)
        runner = self._of()
        if chosen is None:
            return {"replies": replies_of(await runner.achat(fields))}
        pieces = Pieces(ComponentInfo.from_component(self))
        async with runner.astream_chat(fields) as chunks:
            async for chunk in chunks:
                for piece in pieces.of(chunk):
                    waiting = chosen(piece)
                    if inspect.isawaitable(waiting):
                        await waiting
        return {"replies": [pieces.reply]}

    def _asked(
        self,
        messages: Sequence[ChatMessage] | str,
        given: Mapping[str, Any] | None,
        tools: ToolsType | None,
        *,
        streams: bool,
    ) -> dict[str, Any]:
        """Return the request for a run."""
        fields = {**self.generation_kwargs, **(given or {})}
        frameworks.check_free(fields, ("model", "tools"), "the component")
        known = flatten_tools_or_toolsets(self.tools if tools is None else tools)
        if known:
            fields["tools"] = [{"type": "function", "function": tool.tool_spec} for tool in known]
        if isinstance(messages, str):
            messages = [ChatMessage.from_user(messages)]
        fields["model"] = self.model
        several = "with a streaming callback." if streams else None
        return frameworks.chat_request(fields, chat_of(messages), several)


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
        """Make a generator; nothing is loaded. Other arguments: as for `StructgenChatGenerator`.

        Args:
            system_prompt: the system message.
        """
        self.model = model
        self.runner = runner
        self.system_prompt = system_prompt
        self.streaming_callback = streaming_callback
        self.generation_kwargs = generation_kwargs or {}

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
            prompt: the user's message.
            system_prompt: instead of the component's.
            streaming_callback: instead of the component's.
            generation_kwargs: beside the component's, and before them.

        Returns:
            ``replies``: the text, or ``n`` of them; ``meta``: details of each.
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
        instructions = self.system_prompt if system is None else system
        first = [] if instructions is None else [ChatMessage.from_system(instructions)]
        return [*first, ChatMessage.from_user(prompt)]


def _texts(made: Mapping[str, list[ChatMessage]]) -> dict[str, Any]:
    replies = made["replies"]
    return {"replies": [one.text or "" for one in replies], "meta": [one.meta for one in replies]}


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields in the form for files.

    A form is written as JSON text: YAML would sort the members of its objects, and a model writes
    them in the order of the schema.
    """
    given = fields.get("response_format")
    if isinstance(given, type) and issubclass(given, BaseModel):
        given = frameworks.schema_format(given.__name__, given.model_json_schema())
    return {**fields, "response_format": json.dumps(given)} if given else dict(fields)


def _read(data: dict[str, Any]) -> dict[str, Any]:
    """Return fields that were read, with the named callback."""
    parameters = dict(data["init_parameters"])
    if parameters.get("streaming_callback") is not None:
        parameters["streaming_callback"] = deserialize_callable(parameters["streaming_callback"])
    fields = parameters.get("generation_kwargs") or {}
    if isinstance(fields.get("response_format"), str):
        form = json.loads(fields["response_format"])
        parameters["generation_kwargs"] = {**fields, "response_format": form}
    return {**data, "init_parameters": parameters}


# -- embedders ---------------------------------------------------------------------------------


class _Embedder(Loading):
    """The base of both embedders."""

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        dimensions: int | None = None,
        truncate: bool = False,
    ) -> None:
        """Make an embedder; nothing is loaded.

        Args:
            model: as for `StructgenChatGenerator`.
            runner: the same.
            dimensions: number of leading values of each vector to keep.
            truncate: whether texts that are too long are cut, rather than refused.
        """
        self.model = model
        self.runner = runner
        self.dimensions = dimensions
        self.truncate = truncate


@component
class StructgenTextEmbedder(_Embedder):
    """A local embedder of queries."""

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    def run(self, text: str) -> dict[str, Any]:
        """Embed a text.

        Returns:
            ``embedding``, and ``meta``: the model and its usage.
        """
        made = self._of().embed(self._fields(text))
        return {"embedding": frameworks.vectors_of(made)[0], "meta": _usage_of(made)}

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    async def run_async(self, text: str) -> dict[str, Any]:
        """`run`, for asynchronous code."""
        made = await self._of().aembed(self._fields(text))
        return {"embedding": frameworks.vectors_of(made)[0], "meta": _usage_of(made)}

    def _fields(self, text: str) -> dict[str, Any]:
        if not isinstance(text, str):
            raise OptionError(
                "StructgenTextEmbedder takes a str. For documents, use StructgenDocumentEmbedder."
            )
        return frameworks.vector_request(self.model, self, [text], "query")


@component
class StructgenDocumentEmbedder(_Embedder):
    """A local embedder of documents."""

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        dimensions: int | None = None,
        truncate: bool = False,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
    ) -> None:
        """Make an embedder; nothing is loaded. Other arguments: as for `StructgenTextEmbedder`.

        Args:
            meta_fields_to_embed: fields of each document's ``meta`` to put before its content.
            embedding_separator: the text between these.
        """
        # No super(): `component` makes a new class of this one.
        _Embedder.__init__(self, model, runner=runner, dimensions=dimensions, truncate=truncate)
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.embedding_separator = embedding_separator

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents.

        Returns:
            ``documents``: the same, each with its ``embedding``; ``meta``: the model and its usage.
        """
        if not documents:
            return {"documents": [], "meta": {}}
        made = self._of().embed(self._fields(documents))
        return _with_vectors(documents, made)

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """`run`, for asynchronous code."""
        if not documents:
            return {"documents": [], "meta": {}}
        made = await self._of().aembed(self._fields(documents))
        return _with_vectors(documents, made)

    def _fields(self, documents: Sequence[Document]) -> dict[str, Any]:
        if isinstance(documents, str) or not all(isinstance(one, Document) for one in documents):
            raise OptionError(
                "StructgenDocumentEmbedder takes documents. For a str, use StructgenTextEmbedder."
            )
        texts = []
        for one in documents:
            meta = (one.meta.get(name) for name in self.meta_fields_to_embed)
            parts = [str(value) for value in meta if value is not None]
            texts.append(self.embedding_separator.join([*parts, one.content or ""]))
        return frameworks.vector_request(self.model, self, texts, "document")


def _with_vectors(documents: Sequence[Document], made: EmbeddingResponse) -> dict[str, Any]:
    pairs = zip(documents, frameworks.vectors_of(made), strict=True)
    return {
        "documents": [replace(document, embedding=vector) for document, vector in pairs],
        "meta": _usage_of(made),
    }


def _usage_of(made: EmbeddingResponse) -> dict[str, Any]:
    return {"model": made.model, "usage": made.usage.model_dump(mode="json")}
