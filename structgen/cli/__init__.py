"""The ``structgen`` command: arguments and printing, nothing else.

`terminal` (what commands share), `generation` (``generate`` and ``trace``, and the output type that
options ask for), `vector_files` and `embeddings`, `model_commands` (with ``doctor``), `demo`, and
`commands`: the smaller commands, all of them together, and how the process ends.
"""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
