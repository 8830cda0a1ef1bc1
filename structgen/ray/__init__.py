"""structgen on Ray, for many machines: batch jobs, datasets of Ray Data, Ray Serve.

`data` distributes rows: `Cluster` for jobs (``structgen.batch(..., cluster=Cluster())``, the
command ``structgen batch --ray``), and `generate`, `embed`, `decide` for a dataset that you have.
`serving` has `deployment`: the server as an application of Ray Serve. Calling them imports ``ray``.
"""

from __future__ import annotations

from .data import Cluster, decide, embed, generate
from .serving import app, deployment

__all__ = ["Cluster", "app", "decide", "deployment", "embed", "generate"]
