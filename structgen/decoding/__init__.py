"""One output, or many, from a prompt to its end.

In reading order: `chat` (prompts), `options` (what a call may ask for), `call_validation` (held
against model and output type). `generation` is one output being made, and never runs a model: of
`output_tokens` (its tokens), `reporting` (what a reader is told of it) and `clock`, which
`progress` has go on and back together, of `forced` and `choosing` (which token comes), `shortened`
(what its budget cut) and `checks` and `barred` (what is refused while it is written, and written
anew). `loop` drives one, `batch` many; `stream`, `value_stream` and `async_streams` hand them over
piece by piece. `spelling` (forced text in tokens), `text_assembler`, `results`, `enforcement` (of
remote models); `outputs` (all of one call), `probabilities`, `calls`, `async_calls` (their
signatures) and `makers` (models that make generators of their own kind); `chat_tokens` tells a
template's markers from what messages say; `tool_syntax`, `tool_prompts` and `tool_history` know how
a model calls tools, and what it is told of them and of earlier calls; `run` (what is driven),
`sections` (a thought, a draft and the answer after one another), `thinking`, `drafts`, `truncation`
(prompts that are too long) and `tasks` (what a generator makes outputs of).
Knows models by `models.base` alone.
"""

from __future__ import annotations

from . import chat, options
from .async_calls import AsyncGenerator, Take
from .async_streams import AsyncStream, AsyncValueStream
from .batch import Rows, batch_pays, make_all, shares_much
from .call_validation import (
    check_adapter,
    check_fits,
    check_may_fit,
    encode,
    encode_pieces,
    opener,
)
from .calls import Calls
from .chat import Prompt, Prompts, TokenPrompt
from .drafts import Draft
from .enforcement import Enforcement
from .generation import Generation
from .loop import passes_of
from .makers import AsyncMaker
from .options import (
    AskOptions,
    CallOptions,
    CancelEvent,
    GeneratorOptions,
    SearchOptions,
    TypeOptions,
)
from .outputs import failure, gathered, make_outputs
from .probabilities import probabilities
from .results import GenerationResult, Parsed, Timings, Usage
from .run import Chunk, Output, Run, SectionName
from .stream import Stream, pieces
from .tasks import Prepared, Task, checks_for, checks_of_constraint
from .thinking import Think
from .tool_syntax import as_model_writes, tool_syntax, written_in
from .value_stream import ValueStream

__all__ = [
    "AskOptions",
    "AsyncGenerator",
    "AsyncMaker",
    "AsyncStream",
    "AsyncValueStream",
    "CallOptions",
    "Calls",
    "CancelEvent",
    "Chunk",
    "Draft",
    "Enforcement",
    "Generation",
    "GenerationResult",
    "GeneratorOptions",
    "Output",
    "Parsed",
    "Prepared",
    "Prompt",
    "Prompts",
    "Rows",
    "Run",
    "SearchOptions",
    "SectionName",
    "Stream",
    "Take",
    "Task",
    "Think",
    "Timings",
    "TokenPrompt",
    "TypeOptions",
    "Usage",
    "ValueStream",
    "as_model_writes",
    "batch_pays",
    "chat",
    "check_adapter",
    "check_fits",
    "check_may_fit",
    "checks_for",
    "checks_of_constraint",
    "encode",
    "encode_pieces",
    "failure",
    "gathered",
    "make_all",
    "make_outputs",
    "opener",
    "options",
    "passes_of",
    "pieces",
    "probabilities",
    "shares_much",
    "tool_syntax",
    "written_in",
]
