"""The ``structgen`` command: arguments and printing, nothing else (`commands`, `demo`)."""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
