"""Models in processes of their own, for asynchronous code.

In reading order: `scheduler` (whose turn it is on a model; knows no process), `protocol` (what the
two processes say), `verdicts` (checks of the parent's code), `threads` (which are used again),
`worker` (the process with the model), `process` (its parent's side, and one call under way),
`generator` (what makes outputs) and `model` (`AsyncModel`, and other work on it).
Others know `AsyncModel`, `run_errands`, `prompt_tokens`, `hear`, the `Scheduler` and `STRANGER`.
"""

from __future__ import annotations

from .generator import WorkerGenerator
from .model import AsyncModel, at_once, hear, prompt_tokens, run_errands
from .process import MAX_MASK_WORK, MAX_WORK, STRANGER, Stranger, owner
from .protocol import FORM_BYTES
from .scheduler import Job, Scheduler, WorkJob

__all__ = [
    "FORM_BYTES",
    "MAX_MASK_WORK",
    "MAX_WORK",
    "STRANGER",
    "AsyncModel",
    "Job",
    "Scheduler",
    "Stranger",
    "WorkJob",
    "WorkerGenerator",
    "at_once",
    "hear",
    "owner",
    "prompt_tokens",
    "run_errands",
]
