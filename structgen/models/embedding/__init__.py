"""Embedders: texts to vectors on ONNX Runtime. The only folder that makes ``onnxruntime`` sessions.

`folder` (what an embedder's files say), `tokens` (texts to token ids), `batches` (which texts run
together), `session` (the graph), `device` (the graph where the provider is not the CPU), `pooling`
(vectors of tokens to the vector of a text) `arguments` (of calls), `embedder`
(`Embedder`) and `opening` (`load`). It knows nothing of
language models, masks or output types.
"""

from __future__ import annotations

from .arguments import checked_texts, prompt_name_for
from .embedder import Embedder
from .opening import load
from .pooling import finish, to_base64
from .results import EmbeddingResult, Ranked

__all__ = [
    "Embedder",
    "EmbeddingResult",
    "Ranked",
    "checked_texts",
    "finish",
    "load",
    "prompt_name_for",
    "to_base64",
]
