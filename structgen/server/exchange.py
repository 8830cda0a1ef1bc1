"""Work for a client: it ends with its answer, at its deadline, or when the client disconnects.

Waits for all three at once, for whole answers and for streams of server-sent events. Cancelling a
task ends the model's work within one pass; the Runner guarantees that. A stream's answer begins
when its first pieces are ready, so an error until then has an HTTP status. A later error is an
event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar, final

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from structgen.asgi import left
from structgen.errors import let_go
from structgen.runner import AsyncChunkStream

from .errors import ApiError, api_error
from .gateway import LOG, OWNER, ClientGone
from .settings import Settings
from .wire import aside

T = TypeVar("T")


def settings_of(request: Request) -> Settings:
    """Return the server's settings."""
    settings: Settings = request.app.state.settings
    return settings


ToError: TypeAlias = Callable[[BaseException], ApiError]
"""Returns the answer to an error."""


async def answered(request: Request, work: Awaitable[T], to_error: ToError = api_error) -> T:
    """Wait for work.

    Raises:
        ApiError: the work took too long, or failed with an error that ``to_error`` knows.
        ClientGone: the client has disconnected.
        Exception: any other error, unchanged, for the log.
    """
    try:
        return await within(request.receive, work, settings_of(request).request_seconds)
    except Exception as error:
        api = to_error(error)
        if api.status == 500:
            raise
        raise api from error


async def within(receive: Receive, work: Awaitable[T], most: float) -> T:
    """`answered`, without a request: ``receive`` tells when the client has disconnected."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(left(receive))
    try:
        await asyncio.wait({task, gone}, timeout=most, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientGone
        raise too_long(most)
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def too_long(most: float) -> ApiError:
    """Return the error for an answer that takes too long."""
    return ApiError(
        408,
        f"The answer took longer than this server's limit of {most:g} s (request_seconds). Ask "
        "for less, for example with a lower max_tokens.",
        code="timeout",
    )


async def written(request: Request, answer: Mapping[str, Any]) -> Response:
    """Write an answer as JSON, in the thread for large work, because it may repeat all that was
    sent."""
    now = dict(answer)  # other tasks use it meanwhile
    work = aside(request, lambda: json.dumps(now, ensure_ascii=False), is_large=True)
    return sent(request, await answered(request, work))


def sent(request: Request, text: str, kind: str = "application/json") -> Response:
    """Return a whole answer; its bytes count until the client has read it. Batches read theirs at
    once.

    Raises:
        ApiError: this client has too many bytes under way.
    """
    body = text.encode()
    if OWNER not in request.scope:
        request.state.taken(len(body))
    return Response(body, media_type=kind)


DONE = b"data: [DONE]\n\n"
"""The last event of OpenAI's streams."""


def event(data: str, name: str | None = None) -> bytes:
    """Return an event. Its JSON has no line breaks, so it is one line."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {data}\n\n".encode()


async def begun(
    request: Request, pieces: AsyncChunkStream[T], to_error: ToError
) -> AsyncGenerator[T, None]:
    """Return a stream whose first piece is ready.

    Args:
        request: the request, whose client may disconnect.
        pieces: the stream.
        to_error: as for `answered`, for errors before the first piece.

    Raises:
        As `answered`.
    """
    try:
        first = await answered(request, anext(pieces), to_error)
    except BaseException:
        await pieces.aclose()
        raise

    async def all_of_them() -> AsyncGenerator[T, None]:
        async with pieces:
            yield first
            async for piece in pieces:
                yield piece

    return all_of_them()


@final
class EventStream(Response):
    """A streamed answer of events. They are made as fast as the model writes, and count as the
    client's bytes until it has read them."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        most: float,
        to_error: ToError,
        failed: Callable[[ApiError], bytes] | None = None,
    ) -> None:
        """Make it.

        Args:
            events: the events.
            most: the most seconds that it may take.
            to_error: makes the error that clients get.
            failed: makes the last event of a failed stream; None: the form that OpenAI's clients
                read.
        """
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._most = most
        self._to_error = to_error
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        taken = scope["state"]["taken"]
        unread: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def make() -> None:
            try:
                async with contextlib.aclosing(self._events) as events:
                    async for one in events:
                        taken(len(one))
                        unread.put_nowait(one)
                        await asyncio.sleep(0)
            finally:
                unread.put_nowait(None)

        async def write() -> None:
            making = asyncio.ensure_future(make())
            try:
                while (one := await unread.get()) is not None:
                    await send({"type": "http.response.body", "body": one, "more_body": True})
                    taken(-len(one))
                await making
            finally:
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)

        last = b""
        try:
            await within(receive, write(), self._most)
        except ClientGone:
            raise
        except Exception as error:
            api = self._to_error(error)
            if api.status == 500:
                LOG.error("a stream failed: %s", scope["state"]["id"], exc_info=error)
            let_go(error)
            scope["state"]["log"]["error"] = api.code or api.status
            body = json.dumps(api.body, ensure_ascii=False)
            last = event(body) if self._failed is None else self._failed(api)
        await send({"type": "http.response.body", "body": last, "more_body": False})
