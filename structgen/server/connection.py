"""A connection: uvicorn's, which waits for no client for ever.

Owns the time limits on request lines and headers, and on a client that does not read its answer.
That on bodies is the `gateway`'s. A client that ends its sending side is taken for one that has
left, since the two look the same; what was done for it ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_SLICE = 4 << 10
"""Bytes that are read at once: the parser takes some 20 us for each chunk of a body, even of one
byte."""

_LEAST_READ = 16 << 10
"""Bytes that a client that reads takes at least within the limit, if so many are there."""


class Connection(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: within which the head of a request has to arrive, from its first byte on; of
            the first request, from when the client connects.
        write_seconds: within which a client has to take some of an answer that waits for it.
    """

    head_seconds = 30.0
    write_seconds = 30.0

    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _waiting = 0
    _unread = b""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin, as uvicorn does when a client connects."""
        super().__init__(*args, **options)
        self._wait()

    def connection_made(self, transport: Any) -> None:
        """Watch what waits to be sent."""
        super().connection_made(transport)
        self._check_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop()
        if self._writing is not None:
            self._writing.cancel()
        self._unread = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read some of it; other connections have their turn before the rest."""
        is_reading = bool(self._unread)
        self._unread += data
        if not is_reading:
            self._read()

    def _read(self) -> None:
        if self.transport.is_closing():
            self._unread = b""
        if not self._unread:
            return
        now, self._unread = self._unread[:_SLICE], self._unread[_SLICE:]
        super().data_received(now)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop()
        if self._unread:
            self.transport.pause_reading()
            self.loop.call_soon(self._read)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._waiting = 0
        super().resume_writing()

    def _check_writing(self) -> None:
        """Drop a client that has taken next to nothing since the last time."""
        transport: Any = self.transport
        waiting = transport.get_write_buffer_size()
        is_stuck = self._waiting and waiting > max(self._waiting - _LEAST_READ, 0)
        if is_stuck:
            transport.abort()
            return
        is_waited_for = transport.is_closing() or self.flow.write_paused
        self._waiting = waiting if is_waited_for else 0
        self._writing = self.loop.call_later(self.write_seconds, self._check_writing)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


def connections(head_seconds: float, write_seconds: float) -> type[Connection]:
    """The class of connections with time limits."""
    limits = {"head_seconds": head_seconds, "write_seconds": write_seconds}
    return type("Connection", (Connection,), limits)
