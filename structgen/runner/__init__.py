"""The Runner: several models, chats, tools and sessions behind one object.

In reading order: `tools` (functions, classes and schemas that a model may call, and their runs),
`mcp` (servers of tools), `metrics` (counters and times) and `tracing` (spans for OpenTelemetry).
"""

from __future__ import annotations

from .mcp import McpServer
from .metrics import Metrics
from .tools import LONGEST_RESULT, TIMEOUT_SECONDS, Tool, ToolFailure, ToolOutcome

__all__ = [
    "LONGEST_RESULT",
    "TIMEOUT_SECONDS",
    "McpServer",
    "Metrics",
    "Tool",
    "ToolFailure",
    "ToolOutcome",
]
