"""Work for a client: it ends with an answer, at its deadline, or when the client goes away.

Owns waiting for all three at once. A cancelled task ends the model's work within one pass: that is
the Runner's promise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive

from structgen.asgi import left

from .bodies import aside
from .errors import ApiError
from .gateway import ClientGone
from .settings import Settings

T = TypeVar("T")


def settings_of(request: Request) -> Settings:
    """The server's settings."""
    settings: Settings = request.app.state.settings
    return settings


async def answered(request: Request, work: Awaitable[T]) -> T:
    """Wait for work.

    Raises:
        ApiError: it took too long.
        ClientGone: nobody waits for it any more.
        Exception: what it raised.
    """
    return await within(request.receive, work, settings_of(request).request_seconds)


async def within(receive: Receive, work: Awaitable[T], most: float) -> T:
    """`answered`, without a request: ``receive`` says when the client is gone."""
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
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def too_long(most: float) -> ApiError:
    """What is said where an answer takes longer than answers may."""
    return ApiError(
        408,
        f"The answer took longer than {most:g} s, which is this server's limit "
        "(request_seconds). Ask for less: max_tokens=, say.",
        code="timeout",
    )


async def written(request: Request, answer: Mapping[str, Any]) -> Response:
    """Write an answer as JSON, in the thread for large work: it may have all that was sent."""
    now = dict(answer)  # others go on with it meanwhile
    text = await aside(request, lambda: json.dumps(now, ensure_ascii=False), is_large=True)
    return Response(text, media_type="application/json")
