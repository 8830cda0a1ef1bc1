"""Connections of uvicorn servers that anybody can reach: `structgen serve`, and MCP over HTTP.

`Connection` is uvicorn's, with time limits on request lines and headers, and on clients that do not
read their answers. The number of idle connections is limited, and addresses take turns. A client
that closes its sending side counts as disconnected, because the two look the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections import Counter, OrderedDict, deque
from typing import Any, ClassVar, final

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST_EVENTS = 64
"""Parts of requests that are parsed in one turn. Each takes 20 us, even a one-byte chunk."""

_SLICE = 16 << 10
"""Bytes that the parser gets at once. Two such pieces of short headers take it 20 ms."""

_MOST_IDLE = 500
"""Most connections without a complete request, or whose requests wait to be read. Beyond that, one
of the address with the most is closed, because sockets are files."""

_MOST_FILES = 65_536

_PART = 64 << 10
"""Most bytes of an answer that are sent at once."""

_LEAST_READ = 16 << 10
"""The fewest bytes that a client must read within the time limit, if so many are ready."""


@final
class Turns:
    """Connections with something to read. In each round of the event loop one of them reads.

    It reads a bounded number of parts, and begins at most one request. So a request waits for one
    request of each other address, and of each other connection of its own address, however many
    they have sent.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Connection]] = OrderedDict()

    def add(self, one: Connection) -> None:
        """Let a connection wait for its turn."""
        if not self._waiting:
            one.loop.call_soon(self._next)
        self._waiting.setdefault(one.address, deque()).append(one)

    def _next(self) -> None:
        address, line = next(iter(self._waiting.items()))
        one = line[0]
        try:
            one.read()
        finally:
            line.popleft()
            self._waiting.move_to_end(address)
            if not line:
                del self._waiting[address]
            if self._waiting:
                one.loop.call_soon(self._next)


@final
class _Parser(h11.Connection):
    """Parses a limited number of parts of requests, then claims to need data.

    Attributes:
        left: the number of parts it may still parse.
        needs_data: whether it really needs data, or no more can come.
    """

    left = 0
    needs_data = True

    def next_event(self) -> Any:
        """Return the next part of a request; data after the last request is not read."""
        if not self.left or self.their_state is h11.MUST_CLOSE:
            return h11.NEED_DATA
        self.left -= 1
        event = super().next_event()
        self.needs_data = event is h11.NEED_DATA or self.their_state is h11.MUST_CLOSE
        return event


class Connection(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: seconds for the request line and headers, from their first byte; for the first
            request, from the connection's beginning.
        write_seconds: seconds in which a client must read a part of its answer.
        turns: decides which connection reads next.
        idle: the connections that are not being answered, the longest first.
        address: the address of the client or its proxy; for IPv6 the network, its first 64 bits.
    """

    head_seconds = 30.0
    write_seconds = 30.0
    turns = Turns()
    idle: ClassVar[dict[Connection, None]] = {}
    address = ""

    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _waiting = 0
    _unread = b""
    _has_turn = False

    def __init__(self, *args: Any, **options: Any) -> None:
        """Set up, as uvicorn does when a client connects."""
        super().__init__(*args, **options)
        self.conn: _Parser = _Parser(h11.SERVER, _SLICE)
        self._wait()

    def connection_made(self, transport: Any) -> None:
        """Watch how much waits to be sent."""
        super().connection_made(transport)
        self.flow = FlowControl(self)  # type: ignore[arg-type]
        self.address = "" if self.client is None else self.client[0]
        if ":" in self.address:  # one machine has all addresses of its network
            number = int(ipaddress.IPv6Address(self.address))
            self.address = str(number >> 64) if number >> 64 else self.address
        self._check_writing()
        self._note(is_idle=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop()
        self._note(is_idle=False)
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Buffer data, to be read at this connection's turn."""
        self._unread += data
        self.transport.pause_reading()
        self._take_turn()

    def _take_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self.turns.add(self)

    def read(self) -> None:
        """Read some of the data, and wait for the next turn if there is more."""
        self._has_turn = False
        is_closing = self.transport.is_closing()
        if is_closing or self.conn.their_state is h11.MUST_CLOSE:
            self._unread, self.conn.needs_data = b"", True  # No other request follows.
        if is_closing or self.flow.read_paused:
            return
        now = b""
        if self.conn.needs_data:
            now, self._unread = self._unread[:_SLICE], self._unread[_SLICE:]
        self.conn.left = _MOST_EVENTS
        try:
            if now:
                super().data_received(now)
            else:
                self.handle_events()
        except h11.LocalProtocolError:  # data that is not HTTP comes after its answer
            self.transport.abort()
        finally:
            self.conn.left = 0
        is_over = self.cycle is None or self.cycle.response_complete
        if is_over:
            self._wait()
        else:
            self._stop()
        self._note(is_idle=is_over or self.cycle.more_body)
        self.transport.pause_reading()
        if not self.flow.read_paused:
            self.resume_reading()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._note(is_idle=True)

    def _note(self, *, is_idle: bool) -> None:
        """Record whether the connection is idle; close one if there are too many.

        That is the one that has waited longest for its client to send, otherwise the newest.
        """
        if not is_idle or self.transport.is_closing():
            self.idle.pop(self, None)
            return
        self.idle.setdefault(self)
        if len(self.idle) > _MOST_IDLE:
            ((most, _),) = Counter(one.address for one in self.idle).most_common(1)
            theirs = [one for one in self.idle if one.address == most]
            excess = next((one for one in theirs if not one._has_turn), theirs[-1])
            del self.idle[excess]
            excess.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP, in the form of all other errors."""
        error = {"message": msg, "type": "invalid_request_error", "param": None, "code": None}
        body = json.dumps({"error": error}).encode()
        headers = [("Content-Type", "application/json"), ("Connection", "close")]
        if self.cycle is not None:  # the application's answer to it would come too late
            self.cycle.disconnected = True
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body)):
            self.transport.write(self.conn.send(event))
        self.transport.write(self.conn.send(h11.EndOfMessage()))
        self.transport.close()

    def pause_reading(self) -> None:
        """Stop reading: first an answer is made, or a part of a body is taken."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read, first the data that has arrived before."""
        if self._unread or not self.conn.needs_data:
            self._take_turn()
        else:
            self.transport.resume_reading()

    def resume_writing(self) -> None:
        """Continue, because the client has read."""
        self._waiting = 0
        super().resume_writing()

    def _check_writing(self) -> None:
        """Disconnect a client that has read almost nothing since the last check."""
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


def replayed(body: bytes, receive: Any) -> Any:
    """Return an ASGI ``receive`` that returns a whole body once, then the client's messages."""
    ahead = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Any:
        return ahead.pop() if ahead else await receive()

    return receiving


async def in_parts(send: Any, message: Any) -> None:
    """Send a message in small parts, so that the answer lasts until it is read."""
    body, sent = message.get("body", b""), 0
    for end in range(_PART, len(body), _PART):
        await send({"type": "http.response.body", "body": body[sent:end], "more_body": True})
        sent = end
    await send({**message, "body": body[sent:]} if sent else message)
    if message.get("more_body"):  # others have their turn: there may be hundreds of events
        await asyncio.sleep(0)


def connections(head_seconds: float = 30.0, write_seconds: float = 30.0) -> type[Connection]:
    """Return the class of connections for one server."""
    limits = {"head_seconds": head_seconds, "write_seconds": write_seconds}
    return type("Connection", (Connection,), {**limits, "turns": Turns(), "idle": {}})


def have_files() -> None:
    """Raise the limit on open files, often 1,024, as far as allowed: each connection is a file."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
