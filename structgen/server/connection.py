"""A connection: uvicorn's, which does not wait for ever for the head of a request.

Owns the time limit on request lines and headers. That on bodies is the `gateway`'s. A client that
ends its sending side is taken for one that has left, since the two look the same; what was done for
it ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: within which the head of a request has to arrive, from its first byte on; of
            the first request, from when the client connects.
    """

    head_seconds = 30.0

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin, as uvicorn does when a client connects."""
        super().__init__(*args, **options)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on; wait no longer once there is a request."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop()

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


def connections(head_seconds: float) -> type[Connection]:
    """The class of connections with a time limit."""
    return type("Connection", (Connection,), {"head_seconds": head_seconds})
