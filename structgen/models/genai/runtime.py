"""Import ``onnxruntime_genai`` without its telemetry, and know what its version lacks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

from structgen.errors import ModelError
from structgen.models.loading import in_short

# A program that answers on this machine tells nobody else about it, unless its user wants that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime_genai as og  # type: ignore[import-untyped]

OLD = ""
"""What to say of a runtime that is the last for Python 3.10: it decodes no sounds, does not read
settings that came later, and ends the process when asked for an output that the graph lacks."""
if tuple(map(int, og.__version__.split(".")[:2])) < (0, 12):
    OLD = (
        f"ONNX Runtime GenAI {og.__version__} is the last version for Python 3.10. Use Python 3.11."
    )

__all__ = ["OLD", "Running", "og"]


@final
class Running:
    """A sequence of the runtime's, or rows side by side: its own methods, whose errors are ours.

    A folder may say of itself what its graph does not keep, and the runtime finds out in a pass.
    """

    def __init__(self, og_model: og.Model, params: og.GeneratorParams, name: str) -> None:
        """``name`` is what messages call the model."""
        self._name = name
        self._generator = _explained(og.Generator, name)(og_model, params)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        # Nothing that is kept leads back to this: its memory is free as soon as it is let go.
        explained = self.__dict__[method] = _explained(getattr(self._generator, method), self._name)
        return explained


def _explained(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def explained(*given: Any) -> Any:
        try:
            return call(*given)
        except Exception as error:
            raise ModelError(f"ONNX Runtime GenAI cannot run {name}: {in_short(error)}.") from error

    return explained
