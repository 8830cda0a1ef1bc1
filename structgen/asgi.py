"""Work in an ASGI application that ends when its client leaves.

Frameworks run a handler to its end, though nobody waits for its answer any more. It needs no
framework of its own; where the client has left, it raises Starlette's `HTTPException`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Protocol, TypeAlias

Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
"""Where an ASGI application gets the messages about a request from."""


class Request(Protocol):
    """What `while_connected` needs of a request; Starlette's and FastAPI's have it."""

    @property
    def receive(self) -> Receive:
        """ASGI's ``receive``."""

    async def body(self) -> bytes:
        """Read the body, or return it again."""


@contextlib.asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the body of ``async with`` when the client leaves.

    What structgen writes in it ends within one pass of the model::

        @app.post("/orders")
        async def orders(text: str, request: Request) -> Order:
            async with structgen.asgi.while_connected(request):
                return await generator.parse(text)

    The request's body is read first, and stays there for ``request.body()``. A response that is
    streamed needs none of this: servers end it themselves.

    Args:
        request: Starlette's or FastAPI's.

    Raises:
        HTTPException: 499, where the client has left: nobody reads it, and logs say why.
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
        """Take back the cancelling, and say whether nobody else has cancelled the task.

        Before Python 3.11 that cannot be known.
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
    """Wait until the client of a request whose body was read leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
