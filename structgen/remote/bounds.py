"""How much of an answer is read, and for how long.

A server may send a body, or a line of a stream, that never ends. The client keeps what has come of
it in memory, and looks at no time limit while something comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from structgen.errors import RemoteError

from .exchange import Exchange

_MOST_BYTES = 64 << 20  # of a body, or of a line of a stream

_ASKS: ContextVar[Exchange | None] = ContextVar("structgen_asks", default=None)


@contextlib.contextmanager
def bounded(client: Any, exchange: Exchange) -> Iterator[None]:
    """Bound the answer to a request that is sent inside.

    Args:
        client: of ``openai``; its other requests stay as they are.
        exchange: that the request is of.
    """
    http: Any = getattr(client, "_client", None)
    if http is not None:
        hook = _watch_async if hasattr(http, "aclose") else _watch
        heard = http.event_hooks["response"]
        if hook not in heard:
            http.event_hooks = {**http.event_hooks, "response": [*heard, hook]}
    token = _ASKS.set(exchange)
    try:
        yield
    finally:
        _ASKS.reset(token)


class _Bound:
    """Counts what comes."""

    def __init__(self, exchange: Exchange, response: Any) -> None:
        self._exchange = exchange
        self._is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        self._size = 0

    def take(self, piece: bytes) -> bytes:
        """A piece has come.

        Raises:
            RemoteError: it is too much.
            TimeoutError: the call has no time left.
        """
        first = piece.find(b"\n") if self._is_stream else -1
        if self._size + (len(piece) if first < 0 else first) > _MOST_BYTES:
            what = "a line of a stream" if self._is_stream else "an answer"
            raise RemoteError(f"The server sent {what} of more than {_MOST_BYTES:,} bytes.")
        self._size = self._size + len(piece) if first < 0 else len(piece) - piece.rfind(b"\n") - 1
        if self._exchange.is_interrupted:
            raise TimeoutError
        return piece


def _watch(response: Any) -> None:
    exchange = _ASKS.get()
    if exchange is None:
        return
    bound, whole = _Bound(exchange, response), response.iter_bytes

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        return map(bound.take, whole(chunk_size))

    response.iter_bytes = iter_bytes


async def _watch_async(response: Any) -> None:
    exchange = _ASKS.get()
    if exchange is None:
        return
    bound, whole = _Bound(exchange, response), response.aiter_bytes

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in whole(chunk_size):
            yield bound.take(piece)

    response.aiter_bytes = aiter_bytes
