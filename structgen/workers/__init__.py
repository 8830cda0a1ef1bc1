"""Models in separate processes, for asynchronous code.

In reading order: `scheduler` (which output gets the next pass; knows no processes), `protocol` (the
messages between the two processes), `verdicts` (checks that need the parent's code), `threads` (a
pool of reused threads), `worker` (the process that runs the model), `process` (the parent's side of
it, and running calls), `embedders` (an embedder in such a process), `generator` (makes outputs) and
`model` (`AsyncModel` and errands). Other folders use `AsyncModel`, `EmbedderProcess`,
`run_errands`, `prompt_tokens`, `transcribe_windows`, `Scheduler` and `STRANGER`.
"""

from __future__ import annotations

from .embedders import EmbedderProcess
from .generator import WorkerGenerator
from .model import AsyncModel, at_once, prompt_tokens, run_errands, transcribe_windows
from .process import MAX_MASK_WORK, MAX_WORK, STRANGER, Stranger, owner, python
from .protocol import FORM_BYTES, form_weight
from .scheduler import Job, Scheduler, WorkJob
from .threads import give_back
