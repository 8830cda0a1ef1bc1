"""Models in processes of their own, for asynchronous code.

In reading order: `scheduler` (whose turn it is on a model; knows no process), `protocol` (what the
two processes say), `worker` (the one with the model), `process` (its parent's side), `model`
(`AsyncModel`), `generator` (what it makes) and `calls` (one call that is under way). Others know
`AsyncModel`, and the `Scheduler`.
"""

from __future__ import annotations

from .generator import WorkerGenerator
from .model import AsyncModel
from .scheduler import Job, Scheduler

__all__ = ["AsyncModel", "Job", "Scheduler", "WorkerGenerator"]
