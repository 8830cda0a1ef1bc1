"""MCP: a server whose tools are a Runner's generate, extract, classify, decide and embed.

    structgen mcp smollm2-135m-instruct            # over stdio, as hosts start it
    structgen mcp smollm2-135m-instruct --http     # over streamable HTTP, on this machine

In reading order: `arguments` (what the tools take), `results` (what they return), `tools` (a call
as a request of the Runner's), `server` (the tools as MCP lists and calls them, errors, progress),
`serving` (stdio and HTTP). The other side, servers of tools for a Runner, is `structgen.McpServer`.
"""

from __future__ import annotations

from structgen.errors import OptionError

try:
    import mcp as _package
except ImportError as error:
    raise OptionError(
        "structgen.integrations.mcp needs the package mcp, which is not installed: "
        "pip install 'structgen[mcp]'."
    ) from error

from .server import server_of
from .serving import serve_http, serve_stdio
from .tools import Models

__all__ = ["Models", "serve_http", "serve_stdio", "server_of"]

del _package
