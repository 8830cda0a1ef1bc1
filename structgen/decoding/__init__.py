"""One output, or many, from a prompt to its end.

In reading order: `chat` (prompts), `chat_tokens` (a template's markers, told from what messages
say), `tools` (how a model calls tools), `options` (how options go together)
and `call_validation` (held against model and output type). `generation` is one output being made,
and never runs a model: `progress` has its parts go on and back together, `choosing` says which
token comes, `checks` what is refused while it is written. `thinking` and `sections` put a thought,
a draft and the answer after one another. `speculation` guesses what is run ahead, and `drafting`
has a small model guess. `loop` drives one output, or many at once, `stream` hands one over piece by
piece. `results` is what comes of it; `tasks` is what a generator makes outputs of; `calls`
(signatures) is what generators inherit. Knows models by `models.base` alone.
"""

from __future__ import annotations

from . import chat, options
from .call_validation import (
    check_adapter,
    check_fits,
    check_may_fit,
    encode,
    encode_pieces,
)
from .calls import AsyncMaker, AsyncTypedGenerator, Calls, Take
from .chat import Prompt, TokenPrompt
from .generation import Generation
from .loop import Rows, batch_pays, made, passes_of, shares_much
from .options import (
    AskOptions,
    GeneratorOptions,
    SearchOptions,
    TypeOptions,
    check_by_name,
)
from .progress import Clock
from .results import (
    Chunk,
    Enforcement,
    GenerationResult,
    Output,
    Parsed,
    SectionName,
    Timings,
    Usage,
)
from .sections import Run
from .stream import AsyncStream, AsyncValueStream, Stream, ValueStream, pieces
from .tasks import (
    Prepared,
    Several,
    Task,
    checks_for,
    checks_of_constraint,
    make_outputs,
    probabilities,
)
from .thinking import Draft, Think
from .tools import as_model_writes, tool_syntax, written_in

__all__ = [
    "AskOptions",
    "AsyncMaker",
    "AsyncStream",
    "AsyncTypedGenerator",
    "AsyncValueStream",
    "Calls",
    "Chunk",
    "Clock",
    "Draft",
    "Enforcement",
    "Generation",
    "GenerationResult",
    "GeneratorOptions",
    "Output",
    "Parsed",
    "Prepared",
    "Prompt",
    "Rows",
    "Run",
    "SearchOptions",
    "SectionName",
    "Several",
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
    "check_by_name",
    "check_fits",
    "check_may_fit",
    "checks_for",
    "checks_of_constraint",
    "encode",
    "encode_pieces",
    "made",
    "make_outputs",
    "options",
    "passes_of",
    "pieces",
    "probabilities",
    "shares_much",
    "tool_syntax",
    "written_in",
]
