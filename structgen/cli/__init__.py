"""The ``structgen`` command: arguments and printing, nothing else.

`terminal` (used by all commands), `generation` (``generate`` and ``trace``, and the options of
output types), `desk` (commands without a model), `batch`, `embeddings`,
`model_commands` (with ``doctor``), `demo`, and `commands`: the smaller commands, the parser of all
commands, and how the process ends.
"""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
