"""structgen on Ray, an engine for many machines: batch jobs, and datasets of Ray Data.

`data` has what asks rows: `Cluster` for jobs (``structgen.batch(..., cluster=Cluster())``, the
command ``structgen batch --ray``), and `generate`, `embed`, `decide` for a dataset that you have.
``ray`` is imported when they are called.
"""

from __future__ import annotations

from .data import Cluster, decide, embed, generate

__all__ = ["Cluster", "decide", "embed", "generate"]
