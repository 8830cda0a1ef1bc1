"""Batch jobs: many rows in, typed rows out, in files that survive whatever happens to the process.

In reading order: `rows` (where rows come from, and what a row's prompt is), `parts` (the folder of
results, in parts that are complete or absent), `job` (rows asked of a Runner, many at once, and
their results in order). It knows no server and no command line.
"""

from __future__ import annotations

from .columns import Columns
from .job import Asker, Cluster, Job, asker, batch, default_model, model_digest, results, shown
from .parts import Parts
from .rows import BadRow, Prompts, Row, Source, Unread, pyarrow

__all__ = [
    "Asker",
    "BadRow",
    "Cluster",
    "Columns",
    "Job",
    "Parts",
    "Prompts",
    "Row",
    "Source",
    "Unread",
    "asker",
    "batch",
    "default_model",
    "model_digest",
    "pyarrow",
    "results",
    "shown",
]
