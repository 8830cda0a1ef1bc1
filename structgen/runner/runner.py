"""`Runner`: several models behind one object, for programs that serve or orchestrate.

Owns the public methods, each sync and async, and the loop that all of it lives in; the rest is
behind it: `registry` (which model), `chat` (text), `vectors` (embeddings and rankings). Async
methods may be awaited in any event loop; sync ones may be called from any thread.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, final

from structgen.errors import OptionError

from . import chat as chats
from . import vectors
from .configuration import ModelConfig
from .loops import AsyncChunkStream, ChunkStream, LoopThread
from .management import Models, embedding_host, text_host
from .registry import Registry
from .requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    Request,
    RerankRequest,
)
from .responses import (
    ChatChunk,
    ChatResponse,
    CompletionChunk,
    CompletionResponse,
    DecisionResponse,
    EmbeddingResponse,
    RerankResponse,
)

MAX_CONCURRENCY = 64
"""Most requests that run on a model at once, unless told otherwise."""

MAX_QUEUE = 256
"""Most requests that wait for a model, unless told otherwise."""

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=Request)


@final
class Runner(Models):
    """Several models, and requests to them. Safe to share by threads, tasks and event loops.

    Models are loaded when they are first asked for, or by `load`. Close it, or use it with ``with``
    or ``async with``, to end their processes.

    Example::

        with Runner(models={"small": "smollm2-135m-instruct"}) as runner:
            answer = runner.chat(messages="Name a colour.", output_type=Literal["red", "blue"])
            answer.value
    """

    def __init__(
        self,
        models: Mapping[str, Any] | str | None = None,
        *,
        default: str | None = None,
        aliases: Mapping[str, str] | None = None,
        memory_budget: int | None = None,
        max_concurrency: int = MAX_CONCURRENCY,
        max_queue: int = MAX_QUEUE,
    ) -> None:
        """Make a Runner; nothing is loaded.

        Args:
            models: sources by id: each a name of the catalogue, a folder, a Hugging Face
                repository, a `ModelConfig`, its fields as a dict, or a loaded
                `structgen.AsyncModel` or `structgen.Embedder`. A single name is a model of that
                id.
            default: id or alias of the model that requests without one get; None: the first.
            aliases: other names of models.
            memory_budget: most bytes that loaded models may take; None: no limit. The model that
                was used longest ago is unloaded for another, never one in use.
            max_concurrency: most requests that run on one model at once.
            max_queue: most that wait for it; more are refused with `structgen.Overloaded`.

        Raises:
            OptionError: a source or a number is wrong.
            ModelNotFound: ``default`` or an alias names no model.
        """
        if isinstance(models, str):
            models = {models: models}
        for name, value, least in (
            ("memory_budget", memory_budget, 1),
            ("max_concurrency", max_concurrency, 1),
            ("max_queue", max_queue, 0),
        ):
            if value is None and name == "memory_budget":
                continue
            if type(value) is not int or value < least:
                raise OptionError(f"{name}={value!r} is no whole number of {least} or more.")
        configs = {id_: ModelConfig.of(source) for id_, source in (models or {}).items()}
        self._thread = LoopThread("structgen-runner")
        self._finalizer = weakref.finalize(self, self._thread.stop)

        async def made() -> Registry:
            return Registry(
                configs,
                default=default,
                aliases=aliases or {},
                memory_budget=memory_budget,
                max_concurrency=max_concurrency,
                max_queue=max_queue,
            )

        try:
            self._registry = self._thread.wait(made())
        except BaseException:
            self._finalizer()
            raise

    def __repr__(self) -> str:
        return f"Runner({', '.join(map(repr, self._registry.entries))})"

    # -- chats ------------------------------------------------------------------------------

    def chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """Answer a chat.

        Args:
            request: a `ChatRequest`, or the same as a dict.
            model: id or alias of the model.
            fields: of the request, in place of its own.

        Raises:
            RequestError: a field is unknown, unsupported or wrong.
            ModelNotFound: there is no such model.
            Overloaded: too many requests wait for it.
            WorkerDied: the model's process ended by itself; the next request starts another.
            StructgenError: as for a `structgen.Generator`.
        """
        return self._thread.wait(self._chat(_request(ChatRequest, request, model, fields)))

    async def achat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """`chat`, for asynchronous code. Cancelling the task ends the output within one pass."""
        asked = _request(ChatRequest, request, model, fields)
        return await self._thread.asked(self._chat(asked))

    def stream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChunkStream[ChatChunk]:
        """Answer a chat piece by piece. Args and raises as for `chat`; the model is found at once,
        all else is told as the stream is read."""
        return ChunkStream(self._thread, self._chat_stream(request, model, fields))

    def astream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> AsyncChunkStream[ChatChunk]:
        """`stream_chat`, for asynchronous code: ``async for chunk in runner.astream_chat(...)``."""
        return AsyncChunkStream(self._thread, self._chat_stream(request, model, fields))

    async def _chat(self, request: ChatRequest) -> ChatResponse:
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await chats.chat(text_host(host, entry), request, entry.id, began)

    def _chat_stream(
        self, request: Any, model: str | None, fields: Mapping[str, Any]
    ) -> Callable[[], AsyncGenerator[ChatChunk, None]]:
        asked = _request(ChatRequest, request, model, fields)
        self._registry.entry(asked.model)
        return lambda: self._chat_chunks(asked)

    async def _chat_chunks(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            chunks = chats.chat_chunks(text_host(host, entry), request, entry.id, began)
            async with contextlib.aclosing(chunks) as made:
                async for chunk in made:
                    yield chunk

    # -- completions ------------------------------------------------------------------------

    def complete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> CompletionResponse:
        """Go on from a prompt that is text, without a chat template.

        Args and raises as for `chat`, with a `CompletionRequest`.
        """
        asked = _request(CompletionRequest, request, model, fields)
        return self._thread.wait(self._complete(asked))

    async def acomplete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> CompletionResponse:
        """`complete`, for asynchronous code."""
        asked = _request(CompletionRequest, request, model, fields)
        return await self._thread.asked(self._complete(asked))

    def stream_complete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChunkStream[CompletionChunk]:
        """`complete`, piece by piece."""
        return ChunkStream(self._thread, self._completion_stream(request, model, fields))

    def astream_complete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> AsyncChunkStream[CompletionChunk]:
        """`stream_complete`, for asynchronous code."""
        return AsyncChunkStream(self._thread, self._completion_stream(request, model, fields))

    async def _complete(self, request: CompletionRequest) -> CompletionResponse:
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await chats.complete(text_host(host, entry), request, entry.id, began)

    def _completion_stream(
        self, request: Any, model: str | None, fields: Mapping[str, Any]
    ) -> Callable[[], AsyncGenerator[CompletionChunk, None]]:
        asked = _request(CompletionRequest, request, model, fields)
        self._registry.entry(asked.model)
        return lambda: self._completion_chunks(asked)

    async def _completion_chunks(
        self, request: CompletionRequest
    ) -> AsyncGenerator[CompletionChunk, None]:
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            chunks = chats.completion_chunks(text_host(host, entry), request, entry.id, began)
            async with contextlib.aclosing(chunks) as made:
                async for chunk in made:
                    yield chunk

    # -- others -----------------------------------------------------------------------------

    def embed(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> EmbeddingResponse:
        """Make vectors of texts. Args and raises as for `chat`, with an `EmbeddingRequest`."""
        return self._thread.wait(self._embed(_request(EmbeddingRequest, request, model, fields)))

    async def aembed(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> EmbeddingResponse:
        """`embed`, for asynchronous code."""
        asked = _request(EmbeddingRequest, request, model, fields)
        return await self._thread.asked(self._embed(asked))

    def rerank(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> RerankResponse:
        """Order documents by how well they answer a query: by a cross-encoder, or by vectors.

        Args and raises as for `chat`, with a `RerankRequest`.
        """
        return self._thread.wait(self._rerank(_request(RerankRequest, request, model, fields)))

    async def arerank(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> RerankResponse:
        """`rerank`, for asynchronous code."""
        asked = _request(RerankRequest, request, model, fields)
        return await self._thread.asked(self._rerank(asked))

    def decide(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> DecisionResponse:
        """Answer typed questions about a state, with the probability of each answer.

        Args and raises as for `chat`, with a `DecisionRequest`. See `structgen.decisions`.
        """
        return self._thread.wait(self._decide(_request(DecisionRequest, request, model, fields)))

    async def adecide(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> DecisionResponse:
        """`decide`, for asynchronous code."""
        asked = _request(DecisionRequest, request, model, fields)
        return await self._thread.asked(self._decide(asked))

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await vectors.embed(embedding_host(host, entry), request, entry.id)

    async def _rerank(self, request: RerankRequest) -> RerankResponse:
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await vectors.rerank(embedding_host(host, entry), request, entry.id)

    async def _decide(self, request: DecisionRequest) -> DecisionResponse:
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await vectors.decide(text_host(host, entry), request, entry.id)

    # -- the names that people migrate with -------------------------------------------------

    def send_chat_completion_request(
        self, request: Any, model_id: str | None = None
    ) -> ChatResponse:
        """`chat`."""
        return self.chat(request, model=model_id)

    def send_completion_request(
        self, request: Any, model_id: str | None = None
    ) -> CompletionResponse:
        """`complete`."""
        return self.complete(request, model=model_id)

    def send_embedding_request(
        self, request: Any, model_id: str | None = None
    ) -> EmbeddingResponse:
        """`embed`."""
        return self.embed(request, model=model_id)

    def send_chat_completion_request_to_model(self, request: Any, model_id: str) -> ChatResponse:
        """`chat` on a model."""
        return self.chat(request, model=model_id)

    def send_completion_request_to_model(self, request: Any, model_id: str) -> CompletionResponse:
        """`complete` on a model."""
        return self.complete(request, model=model_id)

    def send_embedding_request_to_model(self, request: Any, model_id: str) -> EmbeddingResponse:
        """`embed` on a model."""
        return self.embed(request, model=model_id)

    # -- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """End all models. Requests under way fail. A second call does nothing."""
        if self._finalizer.alive:
            self._thread.wait(self._registry.close())
            self._finalizer()

    async def aclose(self) -> None:
        """`close`, for asynchronous code."""
        if self._finalizer.alive:
            await self._thread.asked(self._registry.close())
            self._finalizer()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Runner:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _request(
    kind: type[RequestT], request: Any, model: str | None, fields: Mapping[str, Any]
) -> RequestT:
    if model is not None:
        fields = {**fields, "model": model}
    return kind.of(request, fields)
