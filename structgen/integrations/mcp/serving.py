"""Running the server: over this process's standard streams, or over HTTP on this machine.

Owns the transports and how they end. HTTP listens to this machine only: there are no keys, and
names that lead here from elsewhere (DNS rebinding) are refused by the ``mcp`` package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from structgen.errors import OptionError, StructgenError
from structgen.runner import Runner

from .server import server_of
from .tools import Models

HOST = "127.0.0.1"
PATH = "/mcp"

_log = logging.getLogger("structgen")


def serve_stdio(runner: Runner, models: Models, *, lazy: bool = False) -> None:
    """Serve the program that has started this one, until it closes standard input.

    An interrupt ends the process at once, as SIGTERM does; those of models end with it.

    Args:
        runner: which is asked; it stays open.
        models: ids of its models that the tools may be asked for.
        lazy: load them when they are first asked for. Else they are loaded from the start, while
            the host is answered.
    """

    async def run() -> None:
        server = server_of(runner, models)
        async with _loading(runner, models, lazy), stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    # A thread waits for the next line, and nothing else could make it stop.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        asyncio.run(run())
    finally:
        signal.signal(signal.SIGINT, before)


def serve_http(
    runner: Runner,
    models: Models,
    *,
    port: int,
    lazy: bool = False,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serve programs of this machine over streamable HTTP, until the process is told to stop.

    Args:
        runner: see `serve_stdio`.
        models: see `serve_stdio`.
        port: to listen on; 0: one that is free.
        lazy: see `serve_stdio`.
        on_start: is told the address.

    Raises:
        OptionError: the port is taken.
    """
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise OptionError(f"The port {port} cannot be listened on: {error.strerror}.") from None
    with listening:
        server: Server[Any] = server_of(runner, models)
        app = server.streamable_http_app(streamable_http_path=PATH, host=HOST)
        config = uvicorn.Config(app, log_level="warning", ws="none")

        async def run() -> None:
            async with _loading(runner, models, lazy):
                await uvicorn.Server(config).serve(sockets=[listening])

        if on_start is not None:
            on_start(f"http://{HOST}:{listening.getsockname()[1]}{PATH}")
        asyncio.run(run())


@contextlib.asynccontextmanager
async def _loading(runner: Runner, models: Models, lazy: bool) -> AsyncIterator[None]:
    """Load models meanwhile: hosts wait only seconds for the first answer."""
    task = asyncio.create_task(_load(runner, () if lazy else (*models.text, *models.embedding)))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _load(runner: Runner, models: Sequence[str]) -> None:
    for model in models:
        try:
            await runner.aload(model)
        except StructgenError as error:  # which a call that needs it is told, too
            _log.error("%s cannot be loaded: %s", model, error)
