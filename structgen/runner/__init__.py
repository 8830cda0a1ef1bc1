"""Several models behind one object: requests in, typed answers out.

In reading order: `requests` and `responses` (their shapes, which are those of OpenAI's API),
`constraints` and `options` (what form and which search a request asks for), `reading`, `logprobs`
and `steps` (outputs in the words of answers), `configuration` and `hosts` (what holds a loaded
model), `registry` (which models there are, and in what state), `chat` (a request for text, from end
to end), `vectors` (the others), `loops` (the event loop it all lives in); `tools` (functions,
classes and schemas that a model may call, and their runs, for which `running` has threads and
limits), `mcp` and `mcp_connection` (servers of tools), `agent` and `rounds` (of calls), `sessions`
and `session_file` (conversations that are kept), `metrics` (counters and times), `tracing` (spans
for OpenTelemetry) and `conversation` (a chat with all of these); `management`, `chats` and `runner`
(`Runner`). Knows no server.
"""

from __future__ import annotations

from .agent import ToolRequest
from .configuration import ModelConfig
from .fields import MAX_VALUES, ByName, Many, check_json, few, in_slices
from .fields import refused as request_error
from .loops import AsyncChunkStream, ChunkStream
from .mcp import McpServer
from .messages import Message
from .metrics import Metrics
from .options import samples_how
from .requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    ExplainRequest,
    RerankRequest,
)
from .responses import (
    AgenticToolCall,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    CompletionChunk,
    CompletionResponse,
    TokenLogprob,
)
from .runner import Runner
from .running import Places
from .sessions import Sessions
from .shape import Usage
from .tools import LONGEST_RESULT, TIMEOUT_SECONDS, Tool, ToolFailure, ToolOutcome
from .tracing import Traces
from .trials import Trials
from .vector_responses import DecisionResponse, EmbeddingResponse, RerankResponse

__all__ = [
    "LONGEST_RESULT",
    "MAX_VALUES",
    "TIMEOUT_SECONDS",
    "AgenticToolCall",
    "AsyncChunkStream",
    "ByName",
    "ChatChunk",
    "ChatRequest",
    "ChatResponse",
    "Choice",
    "ChunkChoice",
    "ChunkStream",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionResponse",
    "DecisionRequest",
    "DecisionResponse",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "ExplainRequest",
    "Many",
    "McpServer",
    "Message",
    "Metrics",
    "ModelConfig",
    "Places",
    "RerankRequest",
    "RerankResponse",
    "Runner",
    "Sessions",
    "TokenLogprob",
    "Tool",
    "ToolFailure",
    "ToolOutcome",
    "ToolRequest",
    "Traces",
    "Trials",
    "Usage",
    "check_json",
    "few",
    "in_slices",
    "request_error",
    "samples_how",
]
