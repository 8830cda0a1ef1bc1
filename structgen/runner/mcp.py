"""MCP servers as sources of tools, through the official ``mcp`` package (extra ``mcp``).

Owns `McpServer`: one server, over its standard input and output or over HTTP, as the user sees it.
Its connection (`mcp_connection`) has a thread and an event loop of its own, so that tools run from
any thread and any loop, and a server that hangs stops nobody. What a tool is, is `tools`' business.
What a server says of its tools, and what they return, is untrusted text, told to the model as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, final

from structgen.errors import OptionError, ToolServerError

from .mcp_connection import Connection, Opening, Server, package
from .tools import Tool, check_seconds

CONNECT_SECONDS = 30.0
"""How long a server may take to answer at first, where nothing else is said."""


@final
class McpServer:
    """A server of tools that speaks MCP. Safe to share by threads, tasks and loops.

    Made by `stdio` or `http`, used with ``with`` or ``async with``; in between, `tools` has its
    tools, and it is itself an item of ``tools=``. A tool's call that fails, or finds that the
    server has died, tells the model, and is told in the answer's ``agentic_tool_calls``.
    """

    def __init__(
        self,
        name: str,
        opening: Opening,
        *,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        """See `stdio` and `http`."""
        check_seconds("McpServer: timeout", timeout)
        check_seconds("McpServer: connect_timeout", connect_timeout)
        if isinstance(only, str):
            raise OptionError(f"McpServer: only={only!r} is a str. Pass a list of names.")
        if not isinstance(prefix, str):
            raise OptionError(f"McpServer: prefix={prefix!r} is no str.")
        self.name = name
        self._server = Server(
            name,
            opening,
            prefix,
            None if only is None else tuple(only),
            timeout,
            connect_timeout,
        )
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        arguments: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str | None = None,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> McpServer:
        """A server that is a program, started with the connection and ended with it.

        Args:
            command: the program.
            arguments: of its command line.
            env: environment variables, beside the few harmless ones that it gets (PATH, HOME, …):
                this process's own are not handed on.
            cwd: the folder that it runs in.
            name: what messages call it; None: the command.
            prefix: stands before the names of its tools, to tell them from other servers'.
            only: names of the tools to offer; None: all.
            timeout: seconds a call may take; None: as the request says.
            connect_timeout: seconds it may take until its tools are known.

        Raises:
            OptionError: an option is wrong, or the ``mcp`` package is not installed.
        """
        mcp = package()
        parameters = mcp.StdioServerParameters(
            command=command,
            args=list(arguments),
            env=None if env is None else dict(env),
            cwd=None if cwd is None else Path(cwd),
        )

        async def opened(stack: contextlib.AsyncExitStack, errors: TextIO) -> Any:
            return mcp.stdio_client(parameters, errlog=errors)

        return cls(
            name or command,
            opened,
            prefix=prefix,
            only=only,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> McpServer:
        """A server behind an address, over streamable HTTP.

        Args:
            url: such as ``http://127.0.0.1:8000/mcp``.
            headers: sent with each request: for authorization, say.
            name: what messages call it; None: the address, without a password in it.
            prefix: as for `stdio`, and so are the other arguments.
            only: see `stdio`.
            timeout: see `stdio`.
            connect_timeout: see `stdio`.

        Raises:
            OptionError: an option is wrong, or the ``mcp`` package is not installed.
        """
        package()
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise OptionError(f"McpServer.http: {url!r} is no address that begins with http.")
        transport = importlib.import_module("mcp.client.streamable_http")

        async def opened(stack: contextlib.AsyncExitStack, errors: TextIO) -> Any:
            client = transport.create_mcp_http_client(headers=dict(headers or {}))
            await stack.enter_async_context(client)
            return transport.streamable_http_client(url, http_client=client)

        scheme, _, rest = url.partition("://")
        place = rest.partition("/")[0].rpartition("@")[2]
        return cls(
            name or f"{scheme}://{place}",
            opened,
            prefix=prefix,
            only=only,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools, as they were when the connection was made.

        Raises:
            ToolServerError: there is no connection.
        """
        connection = self._connection
        if connection is None:
            raise ToolServerError(
                f"The MCP server {self.name} is not connected. Use it in a with statement: "
                "with server: ...",
                server=self.name,
            )
        return connection.tools

    def start(self) -> McpServer:
        """Connect, and ask for the tools. What ``with`` does.

        Raises:
            ToolServerError: it cannot be started or reached, did not answer in time, or has a tool
                whose arguments cannot be enforced.
        """
        with self._lock:
            if self._connection is None:
                self._connection = Connection(self._server)
        return self

    def close(self) -> None:
        """End the connection, and the program if there is one. A second call does nothing."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> McpServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> McpServer:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)
