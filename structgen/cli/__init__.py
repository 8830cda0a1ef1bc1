"""The ``structgen`` command: arguments and printing, nothing else.

`commands` (all of them together, and how the process ends), `terminal` (what they share), `forms`
(the output type that options ask for), `generation`, `decisions`, `demo`, `embeddings`,
`model_commands`, `grammar_commands`.
"""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
