"""Several models behind one object: requests in, typed answers out.

In reading order: `fields` and `requests` (what is asked), `responses` (what is answered),
`constraints` (the form that a request asks for) and `trials` (foreign forms, compiled in a separate
process); `loops` (threads and event loops), `hosts` (loaded models) and `registry` (all models and
their states); `work` (a request as calls of a generator), `answers` (its outputs as answers) and
`vectors` (requests that make no text); `tools` (what a model may call), `mcp` (servers of tools),
`search` (web search), `code` (code that models write) and `confined` (the script that runs it),
`sessions` (stored conversations), `telemetry` (metrics and spans) and `agent` (a chat with all of
these); `runner` (`Runner`). Knows no server.
"""

from __future__ import annotations

from .agent import NOT_ASKED, ToolRequest
from .code import CodeExecutionConfig, SandboxPolicy
from .constraints import grammar_type_of
from .fields import MAX_VALUES, ByName, Many, Strictly, check_json, has_more, in_slices
from .fields import refused as request_error
from .fields import unknown as unknown_field
from .hosts import ModelConfig, by_id, installed
from .loops import Aside, AsyncChunkStream, ChunkStream
from .mcp import McpServer
from .registry import ModelStatus
from .requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    Effort,
    EmbeddingRequest,
    ExplainRequest,
    GrammarType,
    Message,
    RerankRequest,
    TranscriptionRequest,
    WebSearchOptions,
)
from .responses import (
    MANY_SCORES,
    AgenticToolCall,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    CompletionChunk,
    CompletionResponse,
    DecisionResponse,
    EmbeddingResponse,
    File,
    RerankResponse,
    SearchPassage,
    TokenLogprob,
    TranscriptionResponse,
    Usage,
)
from .runner import Runner
from .sessions import Database, Sessions
from .telemetry import Metrics, Traces
from .tools import LONGEST_RESULT, TIMEOUT_SECONDS, Tool, ToolFailure, ToolOutcome, tools_of
from .trials import Trials
from .work import samples_how

__all__ = [
    "AgenticToolCall",
    "AsyncChunkStream",
    "ChatChunk",
    "ChatRequest",
    "ChatResponse",
    "Choice",
    "ChunkChoice",
    "ChunkStream",
    "CodeExecutionConfig",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionResponse",
    "DecisionRequest",
    "DecisionResponse",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "ExplainRequest",
    "File",
    "McpServer",
    "Message",
    "Metrics",
    "ModelConfig",
    "ModelStatus",
    "RerankRequest",
    "RerankResponse",
    "Runner",
    "SandboxPolicy",
    "SearchPassage",
    "Sessions",
    "TokenLogprob",
    "Tool",
    "ToolFailure",
    "ToolOutcome",
    "ToolRequest",
    "TranscriptionRequest",
    "TranscriptionResponse",
    "Usage",
    "WebSearchOptions",
]
