"""`Runner`: several models behind one object, for programs that serve or orchestrate.

Owns the public methods, each sync and async, and the loop that all of it lives in; the rest is
behind it: `registry` (which model), `chat` (text), `vectors` (embeddings and rankings). Async
methods may be awaited in any event loop; sync ones may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar, final

from structgen.errors import OptionError, StructgenError

from . import completions, vectors
from .chats import Chats, request_of
from .configuration import ModelConfig
from .conversation import Conversations, counted
from .fields import Request
from .loops import AsyncChunkStream, ChunkStream, LoopThread
from .management import Models, embedding_host, text_host
from .metrics import Metrics
from .registry import Registry
from .requests import (
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    ExplainRequest,
    RerankRequest,
    StreamOptions,
)
from .responses import ChatResponse, CompletionChunk, CompletionResponse
from .sessions import Sessions
from .steps import explain
from .tracing import Traces
from .vector_responses import DecisionResponse, EmbeddingResponse, RerankResponse

MAX_CONCURRENCY = 64
"""Most requests that run on a model at once, unless told otherwise."""

MAX_QUEUE = 256
"""Most requests that wait for a model, unless told otherwise."""

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=Request)


@final
class Runner(Chats, Models):
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
        sessions: Sessions | str | os.PathLike[str] | None = None,
        traces: Any = None,
        trace_contents: bool = False,
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
            sessions: `Sessions`, which stay open, or the SQLite file to keep them in; None: in
                memory.
            traces: where OpenTelemetry's spans go: True, to the global tracer provider; a provider;
                False, nowhere; None, to the global one if the program has imported
                ``opentelemetry``.
            trace_contents: whether spans have prompts, answers, arguments and results.

        Raises:
            OptionError: a source or a number is wrong, or ``opentelemetry`` is not installed.
            ModelNotFound: ``default`` or an alias names no model.
            SessionError: the file of sessions cannot be used.
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
        self.metrics = Metrics()
        self._tools_lock = threading.Lock()
        self.traces = Traces(traces, trace_contents)
        self._owns_sessions = not isinstance(sessions, Sessions)
        kept = sessions if isinstance(sessions, Sessions) else Sessions(sessions)
        self._conversations = Conversations(kept, self.metrics, self.traces)
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
        self._watch()

    def __repr__(self) -> str:
        return f"Runner({', '.join(map(repr, self._registry.entries))})"

    # -- completions ------------------------------------------------------------------------

    def complete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> CompletionResponse:
        """Go on from a prompt that is text, without a chat template.

        Args and raises as for `chat`, with a `CompletionRequest`.
        """
        asked = request_of(CompletionRequest, request, model, fields)
        return self._thread.wait(self._complete(asked))

    async def acomplete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> CompletionResponse:
        """`complete`, for asynchronous code."""
        asked = request_of(CompletionRequest, request, model, fields)
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
        with self._seen("text_completion", request.model) as (entry, record):
            async with self._registry.lease(entry) as host:
                made = await completions.complete(text_host(host, entry), request, entry.id, began)
            if made.usage is not None:
                record.usage |= counted(made.usage)
        return made

    def _completion_stream(
        self, request: Any, model: str | None, fields: Mapping[str, Any]
    ) -> Callable[[], AsyncGenerator[CompletionChunk, None]]:
        asked = request_of(CompletionRequest, request, model, fields)
        self._registry.entry(asked.model)
        return lambda: self._completion_chunks(asked)

    async def _completion_chunks(
        self, request: CompletionRequest
    ) -> AsyncGenerator[CompletionChunk, None]:
        began = time.perf_counter()
        wants_usage = request.stream_options is not None and request.stream_options.include_usage
        options = StreamOptions(include_usage=True)
        asked = request.model_copy(update={"stream_options": options})
        with self._seen("text_completion", request.model) as (entry, record):
            async with self._registry.lease(entry) as host:
                chunks = completions.completion_chunks(
                    text_host(host, entry), asked, entry.id, began
                )
                async with contextlib.aclosing(chunks) as made:
                    async for chunk in made:
                        if chunk.usage is not None:
                            record.usage |= counted(chunk.usage)
                        if chunk.usage is None or wants_usage:
                            yield chunk

    # -- others -----------------------------------------------------------------------------

    def embed(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> EmbeddingResponse:
        """Make vectors of texts. Args and raises as for `chat`, with an `EmbeddingRequest`."""
        return self._thread.wait(self._embed(request_of(EmbeddingRequest, request, model, fields)))

    async def aembed(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> EmbeddingResponse:
        """`embed`, for asynchronous code."""
        asked = request_of(EmbeddingRequest, request, model, fields)
        return await self._thread.asked(self._embed(asked))

    def rerank(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> RerankResponse:
        """Order documents by how well they answer a query: by a cross-encoder, or by vectors.

        Args and raises as for `chat`, with a `RerankRequest`.
        """
        return self._thread.wait(self._rerank(request_of(RerankRequest, request, model, fields)))

    async def arerank(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> RerankResponse:
        """`rerank`, for asynchronous code."""
        asked = request_of(RerankRequest, request, model, fields)
        return await self._thread.asked(self._rerank(asked))

    def decide(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> DecisionResponse:
        """Answer typed questions about a state, with the probability of each answer.

        Args and raises as for `chat`, with a `DecisionRequest`. See `structgen.decisions`.
        """
        return self._thread.wait(self._decide(request_of(DecisionRequest, request, model, fields)))

    async def adecide(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> DecisionResponse:
        """`decide`, for asynchronous code."""
        asked = request_of(DecisionRequest, request, model, fields)
        return await self._thread.asked(self._decide(asked))

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        with self._seen("embeddings", request.model) as (entry, record):
            async with self._registry.lease(entry) as host:
                made = await vectors.embed(host, request, entry.id, self._registry.embedders())
            record.usage["prompt"] = made.usage.prompt_tokens
        return made

    async def _rerank(self, request: RerankRequest) -> RerankResponse:
        with self._seen("rerank", request.model) as (entry, record):
            async with self._registry.lease(entry) as host:
                ranking = embedding_host(host, entry, self._registry.embedders())
                made = await vectors.rerank(ranking, request, entry.id)
            record.usage["prompt"] = made.usage.prompt_tokens
        return made

    async def _decide(self, request: DecisionRequest) -> DecisionResponse:
        with self._seen("decide", request.model) as (entry, record):
            async with self._registry.lease(entry) as host:
                made = await vectors.decide(text_host(host, entry), request, entry.id)
            record.usage["prompt"] = made.usage.prompt_tokens
            record.usage["cached"] = made.usage.prompt_tokens_details.cached_tokens
        return made

    def explain(self, request: Any = None, /, *, model: str | None = None, **fields: Any) -> str:
        """Say why a token was not allowed at a place of an output, or that it was.

        Args and raises as for `chat`, with an `ExplainRequest`.
        """
        return self._thread.wait(self._explain(request_of(ExplainRequest, request, model, fields)))

    async def aexplain(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> str:
        """`explain`, for asynchronous code."""
        asked = request_of(ExplainRequest, request, model, fields)
        return await self._thread.asked(self._explain(asked))

    async def _explain(self, request: ExplainRequest) -> str:
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await explain(text_host(host, entry), request)

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
            try:
                self._thread.wait(self._registry.close())
            except StructgenError:
                if not self._thread.is_stopping:  # somebody else closes it, too
                    raise
            self._end()

    async def aclose(self) -> None:
        """`close`, for asynchronous code."""
        if self._finalizer.alive:
            try:
                await self._thread.asked(self._registry.close())
            except StructgenError:
                if not self._thread.is_stopping:
                    raise
            self._end()

    def _end(self) -> None:
        self._finalizer()
        if self._tools_thread is not None:
            self._tools_thread.stop(1.0)
        if self._owns_sessions:
            self._conversations.sessions.close()

    def _watch(self) -> None:
        """Have the metrics tell what the registry keeps."""
        entries = self._registry.entries

        def waiting() -> dict[str, float]:
            return {id_: entry.places.waiting for id_, entry in list(entries.items())}

        def loaded() -> dict[str, float]:
            return {id_: float(entry.status == "loaded") for id_, entry in list(entries.items())}

        self.metrics.watch("requests_waiting", "Requests that wait for a place.", "model", waiting)
        self.metrics.watch("model_loaded", "Whether a model is loaded.", "model", loaded)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Runner:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
