"""The Runner: several models, chats, tools and sessions behind one object.

In reading order: `tools` (functions, classes and schemas that a model may call, and their runs).
"""

from __future__ import annotations

from .tools import LONGEST_RESULT, TIMEOUT_SECONDS, Tool, ToolFailure, ToolOutcome

__all__ = ["LONGEST_RESULT", "TIMEOUT_SECONDS", "Tool", "ToolFailure", "ToolOutcome"]
