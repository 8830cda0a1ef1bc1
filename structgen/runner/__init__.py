"""Several models behind one object: requests in, typed answers out.

In reading order: `requests` and `responses` (their shapes, which are those of OpenAI's API),
`constraints` and `options` (what form and which search a request asks for), `reading` and
`logprobs` (outputs in the words of answers), `configuration` and `hosts` (what holds a loaded
model), `registry` (which models there are, and in what state), `chat` (a request for text, from end
to end), `vectors` (the others), `tokens` (asked of the model's own process), `loops` (the event
loop it all lives in), `management` and `runner` (`Runner`); `tools` (functions, classes and schemas
that a model may call, and their runs), `mcp` (servers of tools), `sessions` and `session_file`
(conversations that are kept), `metrics` (counters and times) and `tracing` (spans for
OpenTelemetry). Knows no server.
"""

from __future__ import annotations

from .configuration import ModelConfig
from .loops import AsyncChunkStream, ChunkStream
from .mcp import McpServer
from .metrics import Metrics
from .requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    Message,
    RerankRequest,
)
from .responses import (
    ChatChunk,
    ChatResponse,
    CompletionChunk,
    CompletionResponse,
    DecisionResponse,
    EmbeddingResponse,
    RerankResponse,
    Usage,
)
from .runner import Runner
from .sessions import Sessions
from .tools import LONGEST_RESULT, TIMEOUT_SECONDS, Tool, ToolFailure, ToolOutcome

__all__ = [
    "LONGEST_RESULT",
    "TIMEOUT_SECONDS",
    "AsyncChunkStream",
    "ChatChunk",
    "ChatRequest",
    "ChatResponse",
    "ChunkStream",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionResponse",
    "DecisionRequest",
    "DecisionResponse",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "McpServer",
    "Message",
    "Metrics",
    "ModelConfig",
    "RerankRequest",
    "RerankResponse",
    "Runner",
    "Sessions",
    "Tool",
    "ToolFailure",
    "ToolOutcome",
    "Usage",
]
