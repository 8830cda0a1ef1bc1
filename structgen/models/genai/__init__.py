"""Text models on ONNX Runtime GenAI: the only folder that imports ``onnxruntime_genai``.

`runtime` (the package itself), `model` (`TextModel`), `opening` (`load`, `from_onnx_genai`),
`sequences` (kept from call to call), `batches`, `adapters` (LoRA), `folders` (what a model's folder
says) and `recover` (token bytes from a tokenizer that can only decode).
"""

from __future__ import annotations

from .model import TextModel
from .opening import from_onnx_genai, load

__all__ = ["TextModel", "from_onnx_genai", "load"]
