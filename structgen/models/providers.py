"""Execution providers: what ONNX Runtime can compute on here, and the error when it cannot.

It owns names and the check. It knows nothing of models; nothing is imported before it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from structgen.errors import ModelError

_NAMES = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
    "OpenVINOExecutionProvider": "openvino",
    "QNNExecutionProvider": "qnn",
    "WebGpuExecutionProvider": "webgpu",
}


def installed() -> list[str]:
    """Names of the execution providers that are installed."""
    import onnxruntime  # type: ignore[import-untyped]

    return [_NAMES[name] for name in _NAMES if name in onnxruntime.get_available_providers()]


def checked(providers: Sequence[str]) -> list[str]:
    """Return the names as the runtime wants them.

    Raises:
        ModelError: no list, or one is not installed; the error names those that are.
    """
    if isinstance(providers, str) or not providers:
        raise ModelError(f"providers={providers!r} is no list of names such as ['cuda', 'cpu'].")
    here = installed()
    names = [str(name).lower().removesuffix("executionprovider") for name in providers]
    for name, given in zip(names, providers, strict=True):
        if name not in here:
            raise ModelError(
                f"The execution provider {given!r} is not installed. Installed: {', '.join(here)}. "
                "CUDA comes with the package onnxruntime-genai-cuda, DirectML with "
                "onnxruntime-genai-directml, each instead of onnxruntime-genai."
            )
    return names
