"""`Runner`: several models behind one object, for programs that serve or orchestrate.

The public methods, each sync and async: for models, their states, tokens and adapters; for chats,
streams, agents and sessions; for completions, embeddings, rankings and decisions. All work runs in
the Runner's own event loop. The rest is elsewhere: `registry` (models), `agent` (a chat), `answers`
(text), `vectors` (requests that make no text). Async methods may be awaited in any event loop; sync
ones may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeAlias, TypeVar, final

from structgen.decoding import check_may_fit, encode
from structgen.errors import ModelError, ModelNotFound, OptionError, RequestError, StructgenError
from structgen.models import requantized
from structgen.models.base import Model, Passes
from structgen.models.listening import Segment, Transcript
from structgen.options import Whole
from structgen.workers import at_once, owner, run_errands

from . import answers, vectors
from .agent import Asked, Conversations, count, plain
from .answers import explain
from .code import CodeExecution, CodeExecutionConfig
from .hosts import EmbeddingHost, Host, ModelConfig, TextHost, load_options
from .loops import AsyncChunkStream, ChunkStream, LoopThread
from .registry import Entry, ModelStatus, Registry
from .requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    ExplainRequest,
    RerankRequest,
    TranscriptionRequest,
)
from .responses import (
    ChatChunk,
    ChatResponse,
    CompletionChunk,
    CompletionResponse,
    DecisionResponse,
    EmbeddingResponse,
    File,
    RerankResponse,
    TranscriptionResponse,
)
from .search import SearchCallback, WebSearch
from .sessions import Sessions
from .telemetry import Metrics, RequestRecord, Traces
from .vectors import in_bounds
from .work import prompt_length


def text_host(host: Host, entry: Entry) -> TextHost:
    """Return the host of a text model.

    Raises:
        RequestError: the model makes vectors.
    """
    if not isinstance(host, TextHost):
        raise RequestError(
            f"{entry.id} is an embedder or reranker and cannot generate text. Pass another model=.",
            param="model",
        )
    return host


def _web_search(
    callback: SearchCallback | None, model: str, registry: Registry, thread: LoopThread
) -> WebSearch:
    """Return a search whose passages a model ranks. It has no reference to the Runner, which refers
    to it."""

    async def ranked(request: RerankRequest) -> RerankResponse:
        entry = registry.entry(model)
        async with registry.lease(entry) as host:
            return await vectors.rerank(embedding_host(host, entry, registry), request, entry.id)

    return WebSearch(callback, lambda request: thread.asked(ranked(request)))


def embedding_host(host: Host, entry: Entry, registry: Registry) -> EmbeddingHost:
    """Return the host of an embedder.

    Raises:
        RequestError: the model makes text.
    """
    if not isinstance(host, EmbeddingHost):
        raise RequestError(
            f"{entry.id} is a text model and cannot make embeddings or rank documents. "
            f"{registry.embedders()}",
            param="model",
        )
    return host


def _tokenised(model: Model, prompt: Any, is_bare: bool, is_bounded: bool) -> Passes[list[int]]:
    """Return an errand that returns the tokens of a prompt, without a pass of the model.

    Args:
        model: the model.
        prompt: a text, or messages.
        is_bare: whether to leave out the tokens that start a prompt.
        is_bounded: whether the prompt must fit the model's context.
    """
    if isinstance(prompt, str) and (is_bare or not prompt):
        if is_bounded:
            check_may_fit(model, prompt)
        found = model.encode(prompt) if prompt else ()
    else:
        found = encode(model, prompt, bounded=is_bounded)
    return at_once([int(token) for token in found])


P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = "Callable[Concatenate[Runner, P], Coroutine[Any, Any, T]]"
"""A method of a Runner that returns work to run in its event loop."""


def _both(begin: Work[P, T]) -> tuple[Callable[Concatenate[Runner, P], T], Work[P, T]]:
    """Return a sync and an async method from one that begins some work.

    Args:
        begin: checks the arguments in the caller's thread and returns the work, which runs in the
            Runner's loop.
    """

    @functools.wraps(begin)
    def waits(self: Runner, /, *args: P.args, **options: P.kwargs) -> T:
        return self._thread.wait(begin(self, *args, **options))

    @functools.wraps(begin)
    async def awaits(self: Runner, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._thread.asked(begin(self, *args, **options))

    name = begin.__name__.lstrip("_")
    waits.__name__, awaits.__name__ = name, f"a{name}"
    begin.__qualname__ = f"Runner.{name}"  # Python uses this name in errors about arguments
    awaits.__doc__ = f"`{name}`, for asynchronous code."
    return waits, awaits


MAX_CONCURRENCY = 64
"""Most requests that run on a model at once, by default."""

MAX_QUEUE = 256
"""Most requests that wait for a model, by default."""


@final
class Runner(
    contextlib.AbstractContextManager["Runner"], contextlib.AbstractAsyncContextManager["Runner"]
):
    """Runs several models and answers requests to them. Safe to share by threads, tasks and loops.

    A model is loaded by its first request, or by `load`. Close the Runner, or use it in a ``with``
    or ``async with`` statement, to end the processes of its models.

    Attributes:
        metrics: counters and times of all requests.

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
        enable_search: bool = False,
        search_callback: SearchCallback | None = None,
        search_embedding_model: str | None = None,
        code_execution_config: CodeExecutionConfig | None = None,
    ) -> None:
        """Make a Runner; nothing is loaded.

        Args:
            models: models by id: each a name of the catalogue, a folder, a Hugging Face repository,
                a `ModelConfig`, its fields as a dict, or a loaded `structgen.AsyncModel` or
                `structgen.Embedder`. A single name is a model of that id.
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
            enable_search: whether requests with ``web_search_options`` may search the web.
            search_callback: the search: a function, sync or async, that takes a query and returns
                dicts with ``title``, ``description``, ``url`` and ``content``, all texts.
            search_embedding_model: what ranks passages of results: one of ``models``, or the source
                of an embedder, which is added. None: the first of ``models`` that is declared an
                embedder, else ``all-minilm-l6-v2``.
            code_execution_config: how requests with ``enable_code_execution`` run Python that the
                model writes; None: code execution is off.

        Raises:
            OptionError: a source or a number is wrong, ``opentelemetry`` is not installed, or
                ``enable_search`` has no ``search_callback``.
            ModelNotFound: ``default`` or an alias names no model.
            SessionError: the file of sessions cannot be used.
        """
        if isinstance(models, str):
            models = {models: models}
        if models is not None and not isinstance(models, Mapping):
            raise OptionError(
                f"models={models!r} is not a mapping. Pass the name of one model, or models by "
                "id: {'small': 'smollm2-135m-instruct'}."
            )
        if memory_budget is not None:
            Whole(1)("memory_budget", memory_budget)
        Whole(1)("max_concurrency", max_concurrency)
        Whole(0)("max_queue", max_queue)
        configs = {id_: ModelConfig.of(source) for id_, source in (models or {}).items()}
        self.metrics = Metrics()
        self._tools_lock = threading.Lock()
        self._tools_thread: LoopThread | None = None
        self.traces = Traces(traces, trace_contents)
        self._owns_sessions = not isinstance(sessions, Sessions)
        kept = sessions if isinstance(sessions, Sessions) else Sessions(sessions)
        if (search_callback or search_embedding_model) and not enable_search:
            raise OptionError(
                "search_callback= and search_embedding_model= require enable_search=True."
            )
        self._thread = LoopThread("structgen-runner")
        self._finalizer = weakref.finalize(self, self._thread.stop)

        try:
            self._registry = Registry(
                configs,
                default=default,
                aliases=aliases or {},
                memory_budget=memory_budget,
                max_concurrency=max_concurrency,
                max_queue=max_queue,
            )
            search = None
            if enable_search:
                model = self._registry.ranking(search_embedding_model)
                search = _web_search(search_callback, model, self._registry, self._thread)
        except BaseException:
            self._finalizer()
            raise
        code = None if code_execution_config is None else CodeExecution(code_execution_config)
        self._conversations = Conversations(kept, self.metrics, self.traces, search, code)
        self._watch()

    def __repr__(self) -> str:
        return f"Runner({', '.join(map(repr, self._registry.entries))})"

    # -- which there are --------------------------------------------------------------------

    def list_models(self) -> list[str]:
        """Return the ids of all models, in the order in which they were added."""
        return list(self._registry.entries)

    def list_models_with_status(self) -> dict[str, ModelStatus]:
        """Return the status of each model, by id."""
        return {id_: entry.status for id_, entry in list(self._registry.entries.items())}

    def list_unloaded_models(self) -> list[str]:
        """Return the ids of the models that are not loaded; a request to one loads it."""
        return [id_ for id_, status in self.list_models_with_status().items() if status != "loaded"]

    def get_model_status(self, model: str | None = None) -> ModelStatus:
        """Return ``loaded``, ``loading``, ``unloading``, ``unloaded`` or ``failed``.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.entry(model).status

    def get_model_info(self, model: str | None = None) -> dict[str, Any]:
        """Return the facts about a model: source, status, bytes, aliases, why loading failed, ….

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.info(self._registry.entry(model))

    def is_model_loaded(self, model: str | None = None) -> bool:
        """Return whether a model is loaded.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self.get_model_status(model) == "loaded"

    def get_default_model_id(self) -> str | None:
        """Return the id of the model that answers requests without one."""
        return self._registry.default

    def set_default_model_id(self, model: str) -> None:
        """Set the model that answers requests without one.

        Raises:
            ModelNotFound: there is no such model.
        """
        self._registry.default = self._registry.entry(model).id

    def add_model(self, model: str, source: Any) -> None:
        """Add a model, unloaded. Args as for ``models=`` of a Runner.

        Raises:
            OptionError: the name is taken, or the source is not a model.
        """
        config = ModelConfig.of(source)
        self._thread.call(lambda: self._registry.add(model, config))

    def add_alias(self, alias: str, model: str) -> None:
        """Add another name for a model, or point an existing alias to another model.

        Raises:
            OptionError: a model has that name.
            ModelNotFound: there is no such model.
        """
        self._thread.call(lambda: self._registry.add_alias(alias, model))

    def remove_alias(self, alias: str) -> None:
        """Remove an alias.

        Raises:
            ModelNotFound: there is no such alias.
        """
        if self._thread.call(lambda: self._registry.aliases.pop(alias, None)) is None:
            raise ModelNotFound(f"{alias!r} is not an alias.")

    def list_aliases(self) -> dict[str, str]:
        """Return the id of the model of each alias."""
        return dict(self._registry.aliases)

    # -- loading ----------------------------------------------------------------------------

    def _load(self, model: str | None = None) -> Coroutine[Any, Any, None]:
        """Load a model, unless it is loaded. Requests to other models keep running.

        Raises:
            ModelNotFound: there is no such model.
            StructgenError: it cannot be loaded.
        """
        return self._registry.load(self._registry.entry(model))

    load, aload = _both(_load)

    def _unload(self, model: str | None = None) -> Coroutine[Any, Any, None]:
        """Unload a model once its running requests have ended; its next request loads it again.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.unload(self._registry.entry(model))

    unload, aunload = _both(_unload)

    async def _reload(self, model: str | None = None) -> None:
        """Unload a model and load it again. Args and raises as for `load`."""
        entry = self._registry.entry(model)
        await self._registry.unload(entry)
        await self._registry.load(entry)

    reload, areload = _both(_reload)

    def _remove(self, model: str) -> Coroutine[Any, Any, None]:
        """Unload a model and remove it. Requests that wait for it fail.

        Raises:
            ModelNotFound: there is no such model.
        """
        return self._registry.remove(self._registry.entry(model))

    remove, aremove = _both(_remove)

    async def _requantize(
        self, model: str | None, dtype: str, *, source: str | os.PathLike[str] | None = None
    ) -> None:
        """Convert the weights of a model to another type, and answer new requests with the result.

        Until the conversion is done, the old weights answer. Requests that are running then finish
        with the old weights. The converted model stays in the cache of models.

        Args:
            model: id or alias of the model; None: the default.
            dtype: ``"int8"``, ``"int4"`` or ``"fp16"``: see `structgen.models.convert`.
            source: the weights: a GGUF file, or a folder with safetensors; None: the weights of the
                catalogue name that the model was loaded by.

        Raises:
            ModelNotFound: there is no such model.
            OptionError: there are no weights to convert, the model is an embedder, or the model was
                passed in already loaded.
            ConversionError: the weights cannot be converted.
            ModelError: the model was unloaded or changed meanwhile, or memory has no room for both.
            StructgenError: as for `load`.

        Cost: downloading the weights of a catalogue name, and a minute for 500M parameters, in a
        process of its own.
        """
        entry = self._registry.entry(model)
        config = entry.config
        weights = source or entry.weights or config.source
        is_named = isinstance(config.source, (str, os.PathLike)) and isinstance(
            weights, (str, os.PathLike)
        )
        if not is_named or isinstance(entry.host, EmbeddingHost) or config.kind == "embedding":
            raise OptionError(
                f"{entry.id} cannot be requantized: the Runner must have loaded it as a text "
                "model, by name or from a folder."
            )
        if entry.swaps:
            raise OptionError(f"{entry.id} is already being requantized. Wait for that to finish.")
        entry.swaps = True
        try:
            target = load_options(config).target
            folder = await asyncio.to_thread(requantized, weights, dtype, target=target)
            await self._registry.swap(entry, folder)
            entry.weights = weights
        finally:
            entry.swaps = False

    requantize, arequantize = _both(_requantize)

    # -- tokens -----------------------------------------------------------------------------

    async def _tokenize_text(
        self,
        text: str | Sequence[Any],
        *,
        add_special_tokens: bool = True,
        model: str | None = None,
    ) -> list[int]:
        """Return the token ids of a text, or of chat messages.

        Args:
            text: the text; or messages, which go through the chat template.
            add_special_tokens: whether to put the tokens that start a prompt before a text.
            model: id or alias of the model, which is loaded if necessary.

        Raises:
            ModelNotFound: there is no such model.
            PromptError: malformed messages.
        """
        entry = self._registry.entry(model)
        async with self._registry.lease(entry) as host:
            if isinstance(host, TextHost):
                errand = partial(
                    _tokenised,
                    prompt=text,
                    is_bare=not add_special_tokens,
                    is_bounded=owner() is not None,
                )
                found: list[list[int]] = await run_errands(host.model, [errand])
                return found[0]
            if not isinstance(text, str):
                raise RequestError(
                    f"{entry.id} does not support chats, only plain text.", param="text"
                )
            text = in_bounds(host.embedder, text, "text", cuts=None)
            whole = host.embedder.tokenize_whole
            return await host.aside(partial(whole, text, add_special_tokens=add_special_tokens))

    tokenize_text, atokenize_text = _both(_tokenize_text)

    async def _detokenize_text(
        self, tokens: Sequence[int], *, skip_special_tokens: bool = True, model: str | None = None
    ) -> str:
        """Return the text of token ids.

        Args:
            tokens: the ids.
            skip_special_tokens: whether to leave special tokens out; otherwise their names are
                written.
            model: as for `tokenize_text`.

        Raises:
            ModelNotFound: there is no such model.
            OptionError: a number is not a token id.
        """
        async with self._registry.lease(self._registry.entry(model)) as host:
            text_of = host.embedder.detokenize if isinstance(host, EmbeddingHost) else host.text_of
            return await host.aside(
                partial(text_of, tokens, skip_special_tokens=skip_special_tokens)
            )

    detokenize_text, adetokenize_text = _both(_detokenize_text)

    async def _max_sequence_length(self, model: str | None = None) -> int | None:
        """Return the most tokens of prompt and output together; None: not known.

        Raises:
            ModelNotFound: there is no such model.
        """
        async with self._registry.lease(self._registry.entry(model)) as host:
            if isinstance(host, EmbeddingHost):
                return host.embedder.max_length
            return host.context_length

    max_sequence_length, amax_sequence_length = _both(_max_sequence_length)

    # -- adapters ---------------------------------------------------------------------------

    def _load_adapter(
        self, name: str, path: str | os.PathLike[str], *, model: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Load a LoRA adapter for requests with ``adapter=name``. Reloading the model keeps it.

        Raises:
            ModelNotFound: there is no such model.
            StructgenError: as for `structgen.TextModel.load_adapter`.
        """
        return self._with_adapter(self._registry.entry(model), name, path)

    load_adapter, aload_adapter = _both(_load_adapter)

    def _unload_adapter(self, name: str, *, model: str | None = None) -> Coroutine[Any, Any, None]:
        """Unload an adapter. Raises as `structgen.TextModel.unload_adapter`."""
        return self._with_adapter(self._registry.entry(model), name, None)

    unload_adapter, aunload_adapter = _both(_unload_adapter)

    def list_adapters(self, model: str | None = None) -> list[str]:
        """Return the names of the adapters that a model has, or will have when it is loaded."""
        entry = self._registry.entry(model)
        if isinstance(entry.host, TextHost):
            return list(entry.host.models[0].adapters)
        return sorted(entry.config.adapters)

    async def _with_adapter(
        self, entry: Entry, name: str, path: str | os.PathLike[str] | None
    ) -> None:
        if path is not None:
            path = os.path.abspath(os.path.expanduser(path))
        if path is not None or entry.host is not None or name not in entry.config.adapters:
            async with self._registry.lease(entry) as host:
                before = entry.config.adapters.get(name)
                before = None if before is None else os.fspath(before)
                await text_host(host, entry).with_adapter(name, path, before)
        adapters: Mapping[str, Any] = {k: v for k, v in entry.config.adapters.items() if k != name}
        if path is not None:
            adapters = {**adapters, name: path}
        entry.config = replace(entry.config, adapters=adapters)

    # -- answers ----------------------------------------------------------------------------

    def chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """Answer a chat.

        With ``max_tool_rounds``, the Runner runs the tools that the model calls and gives it their
        results, until it answers. Each call of a sync function runs in a thread of its own. Async
        functions run in the Runner's event loop, with `achat` in the caller's.

        Args:
            request: a `ChatRequest`, or the same as a dict.
            model: id or alias of the model.
            fields: fields of the request; they replace its own.

        Raises:
            RequestError: a field is unknown, unsupported or wrong.
            ModelNotFound: there is no such model.
            Overloaded: too many requests wait for it.
            WorkerDied: the model's process ended by itself; the next request starts another.
            SessionError: the turn cannot begin, or cannot be stored.
            StructgenError: as for a `structgen.Generator`.
        """
        asked = ChatRequest.of(request, fields, model)
        return self._thread.wait(self._chat(asked, self._own_loop(asked)))

    async def achat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """`chat`, for asynchronous code. Cancelling the task ends the output within one pass."""
        asked = ChatRequest.of(request, fields, model)
        return await self._thread.asked(self._chat(asked, self._callers_loop(asked)))

    def stream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChunkStream[ChatChunk]:
        """Answer a chat piece by piece. Args and raises as for `chat`.

        An unknown model raises at once; all other errors come while the stream is read. With
        ``max_tool_rounds``, chunks with an ``agentic_tool_call`` report the calls of tools.
        """
        asked = ChatRequest.of(request, fields, model)
        return ChunkStream(self._thread, self._chat_stream(asked, self._own_loop(asked)))

    def astream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> AsyncChunkStream[ChatChunk]:
        """`stream_chat`, for asynchronous code: ``async for chunk in runner.astream_chat(...)``."""
        asked = ChatRequest.of(request, fields, model)
        return AsyncChunkStream(self._thread, self._chat_stream(asked, self._callers_loop(asked)))

    async def _count_tokens(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> int:
        """Return the number of tokens in the prompt of a chat, without answering it.

        It is ``usage.prompt_tokens`` of the answer: the messages in the chat template, with what
        the template says about tools and thinking.

        Args and raises as for `chat`. A ``session_id`` is refused, because the session could change
        before the chat itself.

        Cost: no pass of the model. The output type is compiled, and kept for `chat`.
        """
        asked = ChatRequest.of(request, fields, model)
        if asked.session_id is not None:
            raise RequestError(
                "session_id: tokens of a session cannot be counted. Pass all messages.",
                param="session_id",
            )
        entry = self._registry.entry(asked.model)
        search = self._conversations.searching(asked)
        if search is not None:
            tools = [*(asked.tools or []), search.tool]
            asked = asked.model_copy(update={"tools": tools, "web_search_options": None})
        async with self._registry.lease(entry) as host:
            return await prompt_length(text_host(host, entry), plain(asked))

    count_tokens, acount_tokens = _both(_count_tokens)

    # -- sessions ---------------------------------------------------------------------------

    def list_session_ids(self) -> list[str]:
        """Return the ids of all sessions, the most recently used first."""
        return self._conversations.sessions.ids()

    def export_session(self, session_id: str) -> str:
        """Return a session as JSON.

        Raises:
            SessionError: there is no such session.
        """
        return self._conversations.sessions.export(session_id)

    def import_session(
        self,
        session_id: str,
        session_json: str | bytes | Mapping[str, Any],
        model_id: str | None = None,
        *,
        replace: bool = False,
    ) -> str:
        """Import a session that was exported, and return its id. See `Sessions.load`.

        Args:
            session_id: its id here.
            session_json: the result of `export_session`, or the same as a dict.
            model_id: one of this Runner's models; other APIs ask for it. All models share all
                sessions, so structgen only checks that it exists.
            replace: whether to replace a session that has this id.

        Raises:
            SessionError: it is not a session, it is too long, or the id is taken.
            ModelNotFound: this Runner has no such model.
        """
        if model_id is not None:
            self._registry.entry(model_id)
        return self._conversations.sessions.load(session_json, session_id, replace=replace)

    def delete_session(self, session_id: str) -> bool:
        """Delete a session. Return whether it existed."""
        return self._conversations.sessions.delete(session_id)

    def find_file(self, file_id: str) -> File | None:
        """Return a file that a model's code wrote, by its id in ``answer.files``; or None.

        The newest 256 MB of these files are kept.
        """
        code = self._conversations.code
        return None if code is None else code.find(file_id)

    # -- completions ------------------------------------------------------------------------

    def _complete(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> Coroutine[Any, Any, CompletionResponse]:
        """Continue a text prompt, without a chat template.

        Args and raises as for `chat`, with a `CompletionRequest`.
        """
        asked = CompletionRequest.of(request, fields, model)
        return answers.collected(self._completion(asked, streams=False))

    complete, acomplete = _both(_complete)

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

    def _completion_stream(
        self, request: Any, model: str | None, fields: Mapping[str, Any]
    ) -> Callable[[], AsyncGenerator[CompletionChunk, None]]:
        asked = CompletionRequest.of(request, fields, model)
        self._registry.entry(asked.model)
        return lambda: self._completion(asked, streams=True)

    async def _completion(
        self, request: CompletionRequest, *, streams: bool
    ) -> AsyncGenerator[CompletionChunk, None]:
        began = time.perf_counter()
        wants_usage = request.stream_options is not None and request.stream_options.include_usage
        async with self._seen("text_completion", request.model) as (entry, record, host):
            text = text_host(host, entry)
            chunks = answers.complete(text, request, entry.id, began, streams=streams)
            async with contextlib.aclosing(chunks) as made:
                async for chunk in made:
                    if chunk.usage is not None:
                        count(chunk.usage, record)
                    if chunk.usage is None or wants_usage or not streams:
                        yield chunk

    # -- how --------------------------------------------------------------------------------

    async def _chat(
        self, request: ChatRequest, loop: asyncio.AbstractEventLoop | None
    ) -> ChatResponse:
        async for piece in self._answer(request, loop, streams=False):
            last = piece
        assert isinstance(last, ChatResponse)
        return last

    def _chat_stream(
        self, request: ChatRequest, loop: asyncio.AbstractEventLoop | None
    ) -> Callable[[], AsyncGenerator[ChatChunk, None]]:
        self._registry.entry(request.model)

        async def chunks() -> AsyncGenerator[ChatChunk, None]:
            async with contextlib.aclosing(self._answer(request, loop, streams=True)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatChunk):
                        yield piece

        return chunks

    def _answer(
        self, request: ChatRequest, loop: asyncio.AbstractEventLoop | None, *, streams: bool
    ) -> Asked:
        """Return a stream of the chunks of a chat, then the response."""

        async def ask(asked: ChatRequest) -> Asked:
            began = time.perf_counter()
            async with self._registry.lease(entry) as host:
                text = text_host(host, entry)
                answer = answers.chat(text, asked, entry.id, began, streams=streams)
                async with contextlib.aclosing(answer) as pieces:
                    async for piece in pieces:
                        yield piece

        entry = self._registry.entry(request.model)
        return self._conversations.answer(request, ask, entry.id, loop)

    @contextlib.asynccontextmanager
    async def _seen(
        self, kind: str, model: str | None
    ) -> AsyncIterator[tuple[Entry, RequestRecord, Host]]:
        """Count a request in a span; yield its entry, its record and the loaded model."""
        entry = self._registry.entry(model)
        span = self._conversations.traces.begin(kind, entry.id, request_model=entry.id)
        with self.metrics.request(kind, entry.id) as record, span:
            async with self._registry.lease(entry) as host:
                yield entry, record, host
            span.count(record.tokens)

    def _own_loop(self, request: ChatRequest) -> asyncio.AbstractEventLoop | None:
        """Return the Runner's loop for tools of a request that was made outside any event loop."""
        if not request._runs_tools:
            return None
        with self._tools_lock:
            thread = self._tools_thread
            if thread is None:
                self._thread.check()
                thread = self._tools_thread = LoopThread("structgen-tools")
                weakref.finalize(self, thread.stop, 1.0)
        if thread.is_current:
            raise StructgenError(
                "An async tool of this Runner cannot run tools with a synchronous method. Await "
                "the async method, such as achat."
            )
        return thread.loop

    def _callers_loop(self, request: ChatRequest) -> asyncio.AbstractEventLoop | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._own_loop(request)
        return self._own_loop(request) if loop is self._thread.loop else loop

    # -- others -----------------------------------------------------------------------------

    async def _embed(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> EmbeddingResponse:
        """Return vectors of texts. Args and raises as for `chat`, with an `EmbeddingRequest`."""
        asked = EmbeddingRequest.of(request, fields, model)
        async with self._seen("embeddings", asked.model) as (entry, record, host):
            made = await vectors.embed(host, asked, entry.id, self._registry.embedders())
            record.tokens["prompt"] = made.usage.prompt_tokens
        return made

    embed, aembed = _both(_embed)

    async def _transcribe(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> TranscriptionResponse:
        """Transcribe a sound. Args and raises as for `chat`, with a `TranscriptionRequest`.

        The model must be Whisper.
        """
        asked = TranscriptionRequest.of(request, fields, model)
        async for _, transcript in self._transcription(asked):
            made = transcript
        return TranscriptionResponse.of(made, translates=asked.audio.translate)

    transcribe, atranscribe = _both(_transcribe)

    def astream_transcribe(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> AsyncChunkStream[tuple[Sequence[Segment], Transcript]]:
        """Transcribe a sound, and yield each window: its segments, and the transcript so far."""
        asked = TranscriptionRequest.of(request, fields, model)
        self._registry.entry(asked.model)
        return AsyncChunkStream(self._thread, lambda: self._transcription(asked))

    async def _transcription(
        self, request: TranscriptionRequest
    ) -> AsyncGenerator[tuple[Sequence[Segment], Transcript], None]:
        audio = request.audio
        async with self._seen("transcribe", request.model) as (entry, _, host):
            heard = text_host(host, entry).transcribe_windows(
                audio, request.prompt, request.temperature
            )
            async with contextlib.aclosing(heard) as windows:
                async for window in windows:
                    yield window

    async def _rerank(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> RerankResponse:
        """Rank documents by how well they answer a query, with a cross-encoder or by vectors.

        Args and raises as for `chat`, with a `RerankRequest`.
        """
        asked = RerankRequest.of(request, fields, model)
        async with self._seen("rerank", asked.model) as (entry, record, host):
            ranker = embedding_host(host, entry, self._registry)
            made = await vectors.rerank(ranker, asked, entry.id)
            record.tokens["prompt"] = made.usage.prompt_tokens
        return made

    rerank, arerank = _both(_rerank)

    async def _decide(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> DecisionResponse:
        """Answer typed questions about a state, with the probability of each answer.

        Args and raises as for `chat`, with a `DecisionRequest`. See `structgen.decisions`.
        """
        asked = DecisionRequest.of(request, fields, model)
        async with self._seen("decide", asked.model) as (entry, record, host):
            made = await vectors.decide(host, asked, entry.id)
            record.tokens["prompt"] = made.usage.prompt_tokens
            record.tokens["cached"] = made.usage.prompt_tokens_details.cached_tokens
        return made

    decide, adecide = _both(_decide)

    async def _explain(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> str:
        """Explain why the mask did not allow a token at a place in an output, or say that it did.

        Args and raises as for `chat`, with an `ExplainRequest`.
        """
        asked = ExplainRequest.of(request, fields, model)
        entry = self._registry.entry(asked.model)
        async with self._registry.lease(entry) as host:
            return await explain(text_host(host, entry), asked)

    explain, aexplain = _both(_explain)

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

    def send_re_isq(self, dtype: str, model_id: str | None = None) -> None:
        """`requantize`; ``dtype`` as there."""
        self.requantize(model_id, dtype)

    def generate_image(
        self,
        prompt: str,
        response_format: Any = None,
        height: int = 720,
        width: int = 1280,
        model_id: str | None = None,
        save_file: str | None = None,
    ) -> NoReturn:
        """Raise an error: the runtime has no models for it. The arguments are those of mistral.rs.

        Raises:
            ModelError: always, unless there is no such model.
            ModelNotFound: there is no such model.
        """
        raise self._lacks(model_id, "make pictures (FLUX, Stable Diffusion)")

    def generate_audio(self, prompt: str, model_id: str | None = None) -> NoReturn:
        """Raise an error: the runtime has no models for it. The arguments are those of mistral.rs.

        Raises:
            ModelError: always, unless there is no such model.
            ModelNotFound: there is no such model.
        """
        raise self._lacks(model_id, "speak (Dia, Kokoro)")

    def _lacks(self, model: str | None, what: str) -> ModelError:
        return ModelError(
            f"{self._registry.entry(model).id} generates text or embeddings. ONNX Runtime GenAI, "
            f"which runs structgen's models, has no models that {what}. Use another server for "
            "this."
        )

    send_chat_completion_request_to_model = send_chat_completion_request
    send_completion_request_to_model = send_completion_request
    send_embedding_request_to_model = send_embedding_request

    # -- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """End all models. Running requests fail. A second call does nothing."""
        if self._finalizer.alive:
            try:
                self._thread.wait(self._registry.close())
            except StructgenError:
                if not self._thread.is_stopping:  # somebody else is closing it, too
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
        """Add the registry's gauges to the metrics."""
        entries = self._registry.entries

        def waiting() -> dict[str, float]:
            return {id_: entry.places.waiting for id_, entry in list(entries.items())}

        def loaded() -> dict[str, float]:
            return {id_: float(entry.status == "loaded") for id_, entry in list(entries.items())}

        self.metrics.watch(
            "requests_waiting", "Requests that wait for a free slot.", "model", waiting
        )
        self.metrics.watch("model_loaded", "Whether a model is loaded.", "model", loaded)

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
