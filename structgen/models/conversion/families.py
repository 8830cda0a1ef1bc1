"""The families that are converted: how each one's block differs from a plain Llama's.

Plain facts, which the files themselves do not state: a GGUF file says ``gemma3``, and every reader
has to know that its every sixth layer sees the whole text. It reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class Family:
    """What all models of a family share.

    Attributes:
        title: its name in messages.
        runtime_type: what ``genai_config.json`` calls it.
        activation: of the feed-forward layer's gate.
        has_qk_norms: queries and keys are normalised, head by head.
        has_post_norms: what attention and feed-forward layer give is normalised too.
        is_fused: queries, keys and values are one projection, gate and up another.
        scales_embeddings: by the square root of their width.
        full_period: every how many layers one sees the whole text where the others see a window; 1:
            all layers are alike.
        rope_period: every how many layers one has no positions; 0: all have them.
        window_rope_base: base of the frequencies of layers with a window; None: the same as of the
            others.
        attention_cap: default of the cap of products of queries and keys.
        logit_cap: default of the cap of logits.
        wide_layers: the number of layers of the one model whose products are scaled by
            ``hidden_size / n_heads`` instead of by the head's size (Gemma's 27B); 0: none.
        is_interleaved: GGUF files of it hold rotary pairs as neighbours.
    """

    title: str
    runtime_type: str
    activation: Literal["silu", "gelu"] = "silu"
    has_qk_norms: bool = False
    has_post_norms: bool = False
    is_fused: bool = False
    scales_embeddings: bool = False
    full_period: int = 1
    rope_period: int = 0
    window_rope_base: float | None = None
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    wide_layers: int = 0
    is_interleaved: bool = False

    @property
    def has_unit_norms(self) -> bool:
        """Hugging Face's files hold a norm's gain minus one."""
        return self.scales_embeddings


FAMILIES = MappingProxyType(
    {
        "llama": Family("Llama", "llama", is_interleaved=True),
        "qwen2": Family("Qwen2", "qwen2"),
        "qwen3": Family("Qwen3", "qwen3", has_qk_norms=True),
        "gemma": Family("Gemma", "gemma", activation="gelu", scales_embeddings=True),
        "gemma2": Family(
            "Gemma 2",
            "gemma2",
            activation="gelu",
            has_post_norms=True,
            scales_embeddings=True,
            full_period=2,
            attention_cap=50.0,
            logit_cap=30.0,
            wide_layers=46,
        ),
        "gemma3": Family(
            "Gemma 3",
            "gemma3_text",
            activation="gelu",
            has_qk_norms=True,
            has_post_norms=True,
            scales_embeddings=True,
            full_period=6,
            window_rope_base=10000.0,
            wide_layers=62,
        ),
        "phi3": Family("Phi-3", "phi3", is_fused=True),
        "smollm3": Family("SmolLM3", "smollm3", rope_period=4, is_interleaved=True),
    }
)
"""Every family by its name in GGUF files."""

MODELS = (
    "Llama, SmolLM2, TinyLlama, Mistral 7B, Qwen 2, 2.5 and 3, Gemma 1 to 3, Phi-3 to Phi-4-mini, "
    "SmolLM3"
)
"""The families in words, for messages."""
