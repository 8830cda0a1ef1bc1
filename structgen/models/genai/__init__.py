"""Text models on ONNX Runtime GenAI: the only folder that imports ``onnxruntime_genai``.

`runtime` (the package itself), `folders` (a model's files, and token bytes from a tokenizer that
can only decode), `media` (pictures, read by the runtime's processors), `sound` (sound files as
samples), `whisper` (its prompts and transcripts), `sequences` (reused between calls, and batches),
`model` (`TextModel`, its adapters and vectors) and `opening` (`load`, `from_onnx_genai`).
"""

from __future__ import annotations

from .model import TextModel
from .opening import from_onnx_genai, load

__all__ = ["TextModel", "from_onnx_genai", "load"]
