"""Embedders: texts to vectors on ONNX Runtime. The only folder that makes ``onnxruntime`` sessions.

`pooling` (vectors of tokens to the vector of a text), `folder` (what an embedder's files say),
`tokens` (texts to token ids), `session` (the graph, on the CPU or another device) and `embedder`
(`Embedder` and `load`). Knows no language models, masks or output types.
"""

from __future__ import annotations

from .embedder import (
    Embedder,
    EmbeddingResult,
    Pause,
    Ranked,
    checked_texts,
    in_thread,
    load,
    opened,
    prompt_name_for,
)
from .folder import Settings
from .pooling import Pooling, finish, to_base64
from .session import Kind
from .tokens import Tokens

__all__ = ["Embedder", "EmbeddingResult", "Ranked", "load"]
