"""Batch jobs: many rows in, typed rows out, in files that survive a crash at any time.

In reading order: `rows` (reads rows and builds prompts), `parts` (the folder of results, whose
parts are complete or absent), `columns` (Arrow types of results) and `job` (asks a Runner about
many rows at once, and writes the results in order). Knows no server and no command line.
"""

from __future__ import annotations

from .columns import Columns
from .job import Asker, Cluster, Job, asker, batch, default_model, model_digest, results, shown
from .parts import Parts
from .rows import BadRow, Prompts, Row, Source, Unread, as_json, pyarrow

__all__ = ["Cluster", "Job", "batch"]
