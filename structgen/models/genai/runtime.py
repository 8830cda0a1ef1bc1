"""Import ``onnxruntime_genai`` without its telemetry, and know what its version lacks."""

from __future__ import annotations

import os

# A program that answers on this machine tells nobody else about it, unless its user wants that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime_genai as og  # type: ignore[import-untyped]

ENDS_AT_UNKNOWN_OUTPUTS = tuple(map(int, og.__version__.split(".")[:2])) < (0, 12)
"""Whether the runtime ends the process when it is asked for an output that the graph lacks."""

__all__ = ["ENDS_AT_UNKNOWN_OUTPUTS", "og"]
