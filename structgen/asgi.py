"""Work in an ASGI application that stops when its client disconnects.

Frameworks run a handler to its end even if nobody waits for the answer any more. This works with
any framework; if the client has disconnected, it raises Starlette's `HTTPException`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
"""ASGI's ``receive``, from which an application gets the messages of a request."""


class Request(Protocol):
    """The part of a request that `while_connected` needs; Starlette's and FastAPI's have it."""

    @property
    def receive(self) -> Receive:
        """ASGI's ``receive``."""

    async def body(self) -> bytes:
        """Read the body, or return it again."""


@contextlib.asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the body of ``async with`` when the client disconnects.

    Outputs of structgen in it end within one pass of the model::

        @app.post("/orders")
        async def orders(text: str, request: Request) -> Order:
            async with structgen.asgi.while_connected(request):
                return await generator.parse(text)

    The request's body is read first, and stays available as ``request.body()``. A streamed response
    does not need this: servers end it themselves.

    Args:
        request: Starlette's or FastAPI's.

    Raises:
        HTTPException: 499, if the client has disconnected. Nobody reads it, but logs have the
            reason.
    """
    with contextlib.suppress(RuntimeError):  # a stream that was read to its end
        await request.body()
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        await left(request.receive)
        has_left = True
        task.cancel()

    def is_ours() -> bool:
        """Undo the cancellation; return whether nobody else has cancelled the task.

        Before Python 3.11 this cannot be known.
        """
        return has_left and not (hasattr(task, "uncancel") and task.uncancel())

    watcher = asyncio.ensure_future(watch())
    try:
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            await asyncio.sleep(0)  # It may have cancelled this a moment ago.
    except BaseException as error:
        if not is_ours() or not isinstance(error, asyncio.CancelledError):
            raise
        from starlette.exceptions import HTTPException

        raise HTTPException(499, "The client has left.") from None
    else:
        is_ours()


async def left(receive: Receive) -> None:
    """Wait until the client of a request disconnects, after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
