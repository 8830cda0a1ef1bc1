"""One output, or many, from prompt to end.

In reading order: `chat` (prompts), `chat_tokens` (separates a template's markers from the text of
messages), `tools` (how a model calls tools), `options` (how options combine) and `call_validation`
(checks a call against model and output type). `generation` is one output in progress, without a
model: `progress` holds its state, `choosing` picks tokens, `checks` handles refused values.
`thinking` and `sections` chain a thought, a draft and the answer. `speculation` guesses tokens, and
`drafting` gets guesses from a small model. `loop` drives one output or many, `stream` yields one
piece by piece. `results` has the return values of calls, `tasks` prepares prompts and runs calls,
and `calls` has the signatures that generators inherit. Knows models only by `models.base`.
"""

from __future__ import annotations

from . import chat, options
from .call_validation import (
    check_adapter,
    check_fits,
    check_may_fit,
    encode,
    encode_pieces,
    part_that_may_fit,
    that_may_fit,
)
from .calls import AsyncMaker, AsyncTypedGenerator, Calls, Take
from .chat import Prompt, TokenPrompt
from .chat_tokens import too_long
from .generation import Generation
from .loop import Rows, batch_pays, made, passes_of, shares_much
from .options import AskOptions, GeneratorOptions, SearchOptions, TypeOptions, check_by_name
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
from .stream import AsyncStream, AsyncValueStream, ReadAsync, Stream, ValueStream, pieces
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
    "AsyncStream",
    "AsyncTypedGenerator",
    "AsyncValueStream",
    "Chunk",
    "Draft",
    "Enforcement",
    "GenerationResult",
    "GeneratorOptions",
    "Prompt",
    "SearchOptions",
    "SectionName",
    "Stream",
    "Think",
    "Timings",
    "TokenPrompt",
    "TypeOptions",
    "Usage",
    "ValueStream",
]
