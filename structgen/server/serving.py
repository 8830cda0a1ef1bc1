"""Run the server: the Runner of its settings, uvicorn, the log, and shutdown.

This is what `structgen serve` does. On SIGTERM or Ctrl-C the server accepts no more requests,
finishes the running ones, and closes the models. `Connection` is uvicorn's, with time limits on
request lines and headers, and on clients that do not read their answers (`gateway` limits bodies).
A client that closes its sending side counts as disconnected, because the two look the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import sys
from collections import Counter, OrderedDict, deque
from dataclasses import replace
from typing import Any, ClassVar, Literal, final

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from structgen import models
from structgen.errors import ModelNotFound, OptionError, failure, printable
from structgen.runner import ModelConfig, Runner

from .app import create_app
from .gateway import Keys, keys_in
from .settings import Settings

_MOST_EVENTS = 64
"""Parts of requests that are parsed in one turn. Each takes 20 us, even a chunk of one byte."""

_SLICE = 16 << 10
"""Bytes that the parser is given at once. It takes 20 ms for two of them that are short headers."""

_MOST_IDLE = 500
"""Connections whose clients have not sent all of a request, or whose requests wait to be read. Of
more, one of the address that has most is closed: sockets are files."""

_MOST_FILES = 65_536

_LEAST_READ = 16 << 10
"""Bytes that a client that reads takes at least within the limit, if so many are there."""


@final
class Turns:
    """Connections that have something to read. In each round of the loop one of them reads.

    It reads a bounded number of parts, and begins one request at most. So whoever asks waits for
    one request of each other address, and of each other connection of the same address, however
    many those have sent.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Connection]] = OrderedDict()

    def add(self, one: Connection) -> None:
        """Have a connection wait for its turn."""
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
    """Parses as many parts of requests as it may, and then says that it needs data.

    Attributes:
        left: how many it may.
        needs_data: whether it does need data, or no more can come.
    """

    left = 0
    needs_data = True

    def next_event(self) -> Any:
        """The next part of a request."""
        if not self.left:
            return h11.NEED_DATA
        self.left -= 1
        event = super().next_event()
        self.needs_data = event is h11.NEED_DATA or self.their_state is h11.MUST_CLOSE
        return event


class Connection(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: within which the head of a request has to arrive, from its first byte on; of
            the first request, from when the client connects.
        write_seconds: within which a client has to take some of an answer that waits for it.
        turns: which connection reads next.
        idle: those that are not being answered, the longest first.
    """

    head_seconds = 30.0
    write_seconds = 30.0
    turns = Turns()
    idle: ClassVar[dict[Connection, None]] = {}

    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _waiting = 0
    _unread = b""
    _has_turn = False

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin, as uvicorn does when a client connects."""
        super().__init__(*args, **options)
        self.conn: _Parser = _Parser(h11.SERVER, _SLICE)
        self._wait()

    def connection_made(self, transport: Any) -> None:
        """Watch what waits to be sent."""
        super().connection_made(transport)
        self.flow = FlowControl(self)  # type: ignore[arg-type]
        self._check_writing()
        self._note(is_idle=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop()
        self._note(is_idle=False)
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    @property
    def address(self) -> str:
        """Of the client, or of the proxy before it."""
        return "" if self.client is None else self.client[0]

    def data_received(self, data: bytes) -> None:
        """Have it read when it is this connection's turn."""
        self._unread += data
        self.transport.pause_reading()
        self._go_on()

    def _go_on(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self.turns.add(self)

    def read(self) -> None:
        """Read some of what has arrived, and wait for the next turn if there is more."""
        self._has_turn = False
        is_closing = self.transport.is_closing()
        if is_closing or self.conn.their_state is h11.MUST_CLOSE:
            self._unread = b""  # There is to be no other request.
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
        except h11.LocalProtocolError:  # what is no HTTP comes after its answer
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
        """Remember whether nothing is answered; where there are too many of these, close one.

        It is the one that has waited longest for its client to send; else the last that came.
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

    def pause_reading(self) -> None:
        """Read nothing: an answer is to be made first, or part of a body taken."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading, first what has arrived before."""
        if self._unread or not self.conn.needs_data:
            self._go_on()
        else:
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
    return type("Connection", (Connection,), {**limits, "turns": Turns(), "idle": {}})


def runner_of(settings: Settings) -> Runner:
    """A Runner with the models of settings; nothing is loaded.

    Raises:
        OptionError, ModelNotFound: a model, alias or the default is wrong, or two models have one
            id.
    """
    configured = {id_: ModelConfig.of(source) for id_, source in settings.models.items()}
    for id_, source in settings.embedders.items():
        if id_ in configured:
            raise OptionError(
                f"{id_!r} is the id of a model and of an embedder. Give one another: ID=MODEL."
            )
        given = dict(source) if isinstance(source, dict) else {"source": source}
        configured[id_] = ModelConfig.of({"kind": "embedding", **given})
    for id_, path in settings.deciders.items():
        if id_ not in configured:
            known = ", ".join(configured)
            raise OptionError(f"deciders: there is no model {id_!r}. There are: {known}.")
        configured[id_] = replace(configured[id_], decider=path)
    return Runner(
        configured,
        default=settings.default_model,
        aliases=settings.aliases,
        memory_budget=settings.memory_budget,
        max_concurrency=settings.max_concurrency,
        max_queue=settings.max_queue,
        sessions=settings.sessions,
        traces=True if settings.traces else None,
    )


def check(settings: Settings) -> list[str]:
    """Check settings without loading or fetching a model, or listening.

    Returns:
        What a server would do, a line each.

    Raises:
        StructgenError: something is wrong.
    """
    file = settings.api_key_file
    keys = Keys([*settings.api_keys, *([] if file is None else keys_in(file))])
    with runner_of(settings) as runner:
        _check_sources(settings)
        ids = runner.list_models()
        default = runner.get_default_model_id()
    said = [f"will listen on http://{_shown(settings.host)}:{settings.port}"]
    said.append(f"models: {', '.join(ids)}; {default} unless a request names one")
    said.append("asks for an API key" if keys else "asks for no API key")
    if not keys and not settings.is_local:
        said.append("warning: whoever reaches this address may use it: pass --api-key")
    return said


def _check_sources(settings: Settings) -> None:
    """Raise if a name can be no model's: a server that is told so at once need not be watched."""
    tasks: dict[str, Literal["generate", "embed"] | None] = {"models": None, "embedders": "embed"}
    for field, task in tasks.items():
        for id_, given in getattr(settings, field).items():
            source = ModelConfig.of(given).source
            try:
                models.check(source, task=task)
            except (ModelNotFound, OptionError) as error:
                where = "" if source == id_ else f"{field}.{id_}: "  # else it names the model
                raise type(error)(f"{where}{error}") from None


def check_address(settings: Settings) -> None:
    """Raise if nobody can listen there: models take seconds to load, and that is told at once.

    Raises:
        OptionError: the port is in use, or the address is none of this machine's.
    """
    place = f"{_shown(settings.host)}:{settings.port}"
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # as asyncio does: what has just ended is not in the way
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise OptionError(
            f"Cannot listen on {place}: {failure(error)}. Pass another port (--port) "
            "or host (--host), or end what listens there."
        ) from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def serve(settings: Settings) -> None:
    """Serve until the process gets a signal to stop.

    Raises:
        StructgenError: the settings are wrong.
    """
    said = check(settings)
    check_address(settings)
    for line in said:
        print(line, file=sys.stderr)
    runner = runner_of(settings)
    try:
        app = create_app(runner, settings, owns_runner=True)
        _log_to_stderr(settings)
        config = uvicorn.Config(
            app,
            http=connections(settings.body_seconds, settings.write_seconds),
            ws="none",
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            # Who sends X-Forwarded-For is believed only where the variable says whom to believe.
            proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
            timeout_keep_alive=15,
        )
        _have_files()
        # What is here now stays: a collection walks only what requests leave behind.
        gc.collect()
        gc.freeze()
        uvicorn.Server(config).run()
    finally:
        runner.close()


def _have_files() -> None:
    """Let the process open as many files as it may: each connection is one of often 1,024."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    for name in ("structgen.server", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.propagate = False
        log.setLevel(logging.INFO)


@final
class _Text(logging.Formatter):
    """A line for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        entry = getattr(record, "entry", None)
        if entry is not None:
            said = {k: v for k, v in entry.items() if v is not None}
            head = " ".join(str(said.pop(name, "")) for name in ("method", "path", "status"))
            record.msg, record.args = " ".join([head, *(f"{k}={v}" for k, v in said.items())]), ()
        record.msg, record.args = printable(record.getMessage()), ()
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        """A traceback, whose lines nobody takes for lines of the log."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


@final
class _Json(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            **(getattr(record, "entry", None) or {"message": record.getMessage()}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
