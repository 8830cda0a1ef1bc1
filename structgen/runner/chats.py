"""What a Runner offers for chats: answers, streams, agents, sessions.

Owns the public methods for these, and where the tools of an agent run; what happens in a chat is
`conversation`'s business, which model answers the registry's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, TypeVar

from structgen.errors import RequestError, StructgenError

from . import chat as one_chat
from .agent import Asked
from .conversation import Conversations, assembled, plain
from .fields import Request
from .loops import AsyncChunkStream, ChunkStream, LoopThread
from .management import text_host
from .metrics import Metrics, RequestRecord
from .registry import Entry, Registry
from .requests import ChatRequest
from .responses import ChatChunk, ChatResponse
from .work import prompt_length

RequestT = TypeVar("RequestT", bound=Request)


class Chats:
    """The chats of a Runner. Every method may be called from any thread.

    Attributes:
        metrics: counters and times of all requests.
    """

    metrics: Metrics

    _thread: LoopThread
    _registry: Registry
    _conversations: Conversations
    _tools_thread: LoopThread | None = None
    _tools_lock: threading.Lock

    # -- answers ----------------------------------------------------------------------------

    def chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """Answer a chat.

        With ``max_tool_rounds`` the tools that the model calls run here, and it reads their
        results, until it answers: functions that are not async each in a thread of its own, async
        ones in a loop of the Runner's; of `achat` in the caller's.

        Args:
            request: a `ChatRequest`, or the same as a dict.
            model: id or alias of the model.
            fields: of the request, in place of its own.

        Raises:
            RequestError: a field is unknown, unsupported or wrong.
            ModelNotFound: there is no such model.
            Overloaded: too many requests wait for it.
            WorkerDied: the model's process ended by itself; the next request starts another.
            SessionError: the turn cannot begin, or cannot be kept.
            StructgenError: as for a `structgen.Generator`.
        """
        asked = request_of(ChatRequest, request, model, fields)
        return self._thread.wait(self._chat(asked, self._own_loop(asked)))

    async def achat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChatResponse:
        """`chat`, for asynchronous code. Cancelling the task ends the output within one pass."""
        asked = request_of(ChatRequest, request, model, fields)
        return await self._thread.asked(self._chat(asked, self._callers_loop(asked)))

    def stream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> ChunkStream[ChatChunk]:
        """Answer a chat piece by piece. Args and raises as for `chat`; the model is found at once,
        all else is told as the stream is read. With ``max_tool_rounds``, chunks with an
        ``agentic_tool_call`` tell of the calls."""
        asked = request_of(ChatRequest, request, model, fields)
        return ChunkStream(self._thread, self._chat_stream(asked, self._own_loop(asked)))

    def astream_chat(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> AsyncChunkStream[ChatChunk]:
        """`stream_chat`, for asynchronous code: ``async for chunk in runner.astream_chat(...)``."""
        asked = request_of(ChatRequest, request, model, fields)
        return AsyncChunkStream(self._thread, self._chat_stream(asked, self._callers_loop(asked)))

    def count_tokens(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> int:
        """Return how many tokens the prompt of a chat has, and make no answer.

        They are what ``usage.prompt_tokens`` of its answer would say: of the messages in the chat
        template, with what it tells of tools and thoughts.

        Args and raises as for `chat`; a ``session_id`` is refused, since the session may go on
        meanwhile.

        Cost: no pass of the model; the form of the answer is compiled, and kept for `chat`.
        """
        asked = request_of(ChatRequest, request, model, fields)
        return self._thread.wait(self._count(asked))

    async def acount_tokens(
        self, request: Any = None, /, *, model: str | None = None, **fields: Any
    ) -> int:
        """`count_tokens`, for asynchronous code."""
        asked = request_of(ChatRequest, request, model, fields)
        return await self._thread.asked(self._count(asked))

    # -- sessions ---------------------------------------------------------------------------

    def list_session_ids(self) -> list[str]:
        """Ids of all sessions, those that were used last first."""
        return self._conversations.sessions.ids()

    def export_session(self, session_id: str) -> str:
        """A session as JSON.

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
        """Take in a session that was exported, and return its id. See `Sessions.load`.

        Args:
            session_id: what to call it.
            session_json: what `export_session` gave, or the same as a dict.
            model_id: one of this Runner's models, as other APIs ask for it. All models share all
                sessions, so it is only checked.
            replace: whether it replaces a session that has the id.

        Raises:
            SessionError: it is none, is too long, or there is one with this id.
            ModelNotFound: this Runner has no such model.
        """
        if model_id is not None:
            self._registry.entry(model_id)
        return self._conversations.sessions.load(session_json, session_id, replace=replace)

    def delete_session(self, session_id: str) -> bool:
        """Delete a session. Returns whether there was one."""
        return self._conversations.sessions.delete(session_id)

    # -- how --------------------------------------------------------------------------------

    async def _chat(
        self, request: ChatRequest, loop: asyncio.AbstractEventLoop | None
    ) -> ChatResponse:
        response: ChatResponse | None = None
        async with contextlib.aclosing(self._answer(request, self._whole, loop)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResponse):
                    response = piece
        assert response is not None
        return response

    def _chat_stream(
        self, request: ChatRequest, loop: asyncio.AbstractEventLoop | None
    ) -> Callable[[], AsyncGenerator[ChatChunk, None]]:
        self._registry.entry(request.model)

        async def chunks() -> AsyncGenerator[ChatChunk, None]:
            def ask(asked: ChatRequest) -> Asked:
                return assembled(self._chunks, asked)

            async with contextlib.aclosing(self._answer(request, ask, loop)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatChunk):
                        yield piece

        return chunks

    def _answer(
        self,
        request: ChatRequest,
        ask: Callable[[ChatRequest], Asked],
        loop: asyncio.AbstractEventLoop | None,
    ) -> Asked:
        entry = self._registry.entry(request.model)
        return self._conversations.answer(request, ask, entry.id, loop)

    async def _count(self, request: ChatRequest) -> int:
        if request.session_id is not None:
            raise RequestError(
                "session_id: tokens are counted of messages. Pass all of them.", param="session_id"
            )
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            return await prompt_length(text_host(host, entry), plain(request))

    async def _whole(self, request: ChatRequest) -> Asked:
        """One answer of the model."""
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            response = await one_chat.chat(text_host(host, entry), request, entry.id, began)
        yield response

    async def _chunks(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """One answer of the model, piece by piece."""
        began = time.perf_counter()
        entry = self._registry.entry(request.model)
        async with self._registry.lease(entry) as host:
            chunks = one_chat.chat_chunks(text_host(host, entry), request, entry.id, began)
            async with contextlib.aclosing(chunks) as made:
                async for chunk in made:
                    yield chunk

    @contextlib.contextmanager
    def _seen(self, kind: str, model: str | None) -> Iterator[tuple[Entry, RequestRecord]]:
        """A request that is counted, and has a span, and the model it is for."""
        entry = self._registry.entry(model)
        span = self._conversations.traces.begin(kind, entry.id, request_model=entry.id)
        with self.metrics.request(kind, entry.id) as record, span:
            yield entry, record
            tokens = record.usage.get("prompt")
            span.set(input_tokens=None if tokens is None else int(tokens))

    def _own_loop(self, request: ChatRequest) -> asyncio.AbstractEventLoop | None:
        """Where the tools of a request run that was not made in a loop: one of the Runner's."""
        if request.max_tool_rounds is None:
            return None
        with self._tools_lock:
            thread = self._tools_thread
            if thread is None:
                self._thread.check()
                thread = self._tools_thread = LoopThread("structgen-tools")
                weakref.finalize(self, thread.stop, 1.0)
        if thread.is_current:
            raise StructgenError(
                "An async tool of this Runner cannot wait for tools that run beside it. Await "
                "achat there."
            )
        return thread.loop

    def _callers_loop(self, request: ChatRequest) -> asyncio.AbstractEventLoop | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._own_loop(request)
        return self._own_loop(request) if loop is self._thread.loop else loop


def request_of(
    kind: type[RequestT], request: Any, model: str | None, fields: Mapping[str, Any]
) -> RequestT:
    """The request that a caller means, for a model.

    Raises:
        RequestError: it is none, or a field is wrong.
    """
    if model is not None:
        fields = {**fields, "model": model}
    return kind.of(request, fields)
