"""Streams of server-sent events, which end with their client, at a deadline, or with an error.

Owns the form of events. The first pieces are waited for before the answer begins, so that what goes
wrong until then has a status of HTTP; what goes wrong later is an event of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar, final

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from structgen.asgi import left

from .errors import ApiError
from .exchange import settings_of, too_long, within
from .gateway import LOG, ClientGone

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
"""The last event of OpenAI's streams."""


def event(data: str, name: str | None = None) -> bytes:
    """An event. JSON has no line breaks, so that it is one line."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {data}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """An error in the middle of a stream, as OpenAI's clients read it."""
    return event(json.dumps(error.body, ensure_ascii=False))


async def begun(
    request: Request, pieces: AsyncIterator[T], is_head: Callable[[T], bool]
) -> AsyncGenerator[T, None]:
    """A stream that has begun: its first piece that is no head is there.

    Args:
        request: whose client may go away.
        pieces: the stream.
        is_head: whether a piece says nothing yet.

    Raises:
        ApiError, ClientGone: as `answered`.
        Exception: what the stream raises until then.
    """
    heads: list[T] = []

    async def read() -> None:
        async for piece in pieces:
            heads.append(piece)
            if not is_head(piece):
                return

    async def close() -> None:
        aclose = getattr(pieces, "aclose", None)
        if aclose is not None:
            await aclose()

    try:
        await within(request.receive, read(), settings_of(request).request_seconds)
    except BaseException:
        await close()
        raise

    async def all_of_them() -> AsyncGenerator[T, None]:
        try:
            for piece in heads:
                yield piece
            async for piece in pieces:
                yield piece
        finally:
            await close()

    return all_of_them()


@final
class EventStream(Response):
    """An answer that is a stream of events."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        most: float,
        told: Callable[[BaseException], ApiError],
        failed: Callable[[ApiError], bytes] = error_event,
    ) -> None:
        """Make it.

        Args:
            events: its events.
            most: seconds that it may take.
            told: what is said of an error.
            failed: the last event of a stream that goes wrong.
        """
        super().__init__(
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        del self.headers["content-length"]
        self._events = events
        self._most = most
        self._told = told
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

        async def write() -> None:
            async with contextlib.aclosing(self._events) as events:
                async for one in events:
                    await send({"type": "http.response.body", "body": one, "more_body": True})

        error: BaseException | None = None
        writing = asyncio.ensure_future(write())
        gone = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait(
                {writing, gone}, timeout=self._most, return_when=asyncio.FIRST_COMPLETED
            )
            if writing.done():
                error = writing.exception()
            elif gone.done():
                raise ClientGone
            else:
                error = too_long(self._most)
        finally:
            for task in (writing, gone):
                task.cancel()
            await asyncio.gather(writing, gone, return_exceptions=True)
        last = b""
        if error is not None:
            said = self._told(error)
            if said.status == 500:
                LOG.error("a stream failed: %s", scope["state"]["id"], exc_info=error)
            scope["state"]["log"]["error"] = said.code or said.status
            last = self._failed(said)
        await send({"type": "http.response.body", "body": last, "more_body": False})


def json_event(piece: Any, name: str | None = None) -> bytes:
    """An event with a Pydantic object."""
    return event(piece.model_dump_json(), name)
