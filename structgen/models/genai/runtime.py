"""Import ``onnxruntime_genai`` without its telemetry, and know what its version lacks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

from structgen.errors import ModelError
from structgen.models.loading import in_short

# No telemetry unless the user wants it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime_genai as og  # type: ignore[import-untyped]

OLD = ""
"""The note in messages for the last runtime for Python 3.10, which decodes no sounds, does not know
later settings, and ends the process if an output is missing in the graph."""
if tuple(map(int, og.__version__.split(".")[:2])) < (0, 12):
    OLD = (
        f"ONNX Runtime GenAI {og.__version__} is the last version for Python 3.10. Use Python 3.11."
    )

__all__ = ["OLD", "Running", "og"]


@final
class Running:
    """The runtime's sequence or batch, with its own methods, whose errors become ours.

    A folder's configuration may be wrong about its graph, which the runtime notices only in a pass.
    """

    def __init__(self, og_model: og.Model, params: og.GeneratorParams, name: str) -> None:
        """``name`` is what messages call the model."""
        self._name = name
        self._generator = _explained(og.Generator, name)(og_model, params)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        # Nothing refers back to this, so its memory is freed as soon as it is dropped.
        explained = self.__dict__[method] = _explained(getattr(self._generator, method), self._name)
        return explained


def _explained(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def explained(*given: Any) -> Any:
        try:
            return call(*given)
        except Exception as error:
            raise ModelError(f"ONNX Runtime GenAI cannot run {name}: {in_short(error)}.") from error

    return explained
