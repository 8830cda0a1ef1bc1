"""What a decoder is to the converter: its shape, its weights, and where they are read from.

Every family that is converted is one block with a few choices: biases, norms of queries and keys,
norms behind the attention and the feed-forward layer, windows, layers without positions, two
activations. `DecoderShape` and `LayerWeights` say which choices a model makes; `Checkpoint` is what
a kind of file has to offer. `FAMILIES` states what the files themselves do not: a GGUF file says
``gemma3``, and every reader has to know that its every sixth layer sees the whole text. This module
knows no file format and no graph, and reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rope:
    """One way to turn queries and keys by their positions.

    Attributes:
        base: base of the frequencies.
        size: how many of a head's numbers are turned, from its beginning.
        scale: positions are divided by this.
        divisors: what each frequency is divided by besides; empty: by nothing.
        magnitude: what cosines and sines are multiplied by.
    """

    base: float
    size: int
    scale: float = 1.0
    divisors: tuple[float, ...] = ()
    magnitude: float = 1.0

    def tables(self, n_positions: int) -> tuple[FloatArray, FloatArray]:
        """Cosine and sine of every position: two float32 ``(n_positions, size // 2)``."""
        exponents = np.arange(0, self.size, 2, dtype=np.float64) / self.size
        frequencies = self.base**-exponents / self.scale
        if self.divisors:
            frequencies = frequencies / np.array(self.divisors)
        angles = np.outer(np.arange(n_positions, dtype=np.float64), frequencies)
        cos, sin = np.cos(angles) * self.magnitude, np.sin(angles) * self.magnitude
        return cos.astype(np.float32), sin.astype(np.float32)


@dataclass(frozen=True)
class Attention:
    """How the attention of one layer looks back.

    Attributes:
        rope: the layer's positions; None: it has none.
        window: how many tokens a token sees, itself among them; 0: all that are before it.
    """

    rope: Rope | None
    window: int = 0


@dataclass(frozen=True)
class DecoderShape:
    """The hyperparameters of a decoder.

    Attributes:
        runtime_type: what ``genai_config.json`` calls the family.
        hidden_size: width of the residual stream.
        ffn_size: width of the gated feed-forward layer.
        n_heads: query heads.
        n_kv_heads: key and value heads (grouped-query attention when fewer than ``n_heads``).
        head_size: width of one head.
        vocab_size: rows of the embedding, the width of the logits.
        context_length: positions that the converted model has.
        rms_epsilon: epsilon of every RMS normalisation.
        is_tied: the output projection is the embedding itself.
        layers: the attention of each transformer block.
        attention_scale: what products of queries and keys are multiplied by.
        attention_cap: they are pressed between minus and plus this by a tanh; 0: they are not.
        logit_cap: the same of the logits.
        embedding_scale: what embeddings are multiplied by.
        activation: of the feed-forward layer's gate; ``gelu`` is the one by a tanh.
        has_wide_range: numbers between its operators exceed what 16 bits hold.
    """

    runtime_type: str
    hidden_size: int
    ffn_size: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    vocab_size: int
    context_length: int
    rms_epsilon: float
    is_tied: bool
    layers: tuple[Attention, ...]
    attention_scale: float
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    activation: Literal["silu", "gelu"] = "silu"
    has_wide_range: bool = False

    @property
    def n_layers(self) -> int:
        """Transformer blocks."""
        return len(self.layers)

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The different ways of turning, in order of their first layers."""
        found = (attention.rope for attention in self.layers)
        return tuple(dict.fromkeys(rope for rope in found if rope is not None))


@dataclass
class LayerWeights:
    """The float32 weights of one transformer block, projections as ``(outputs, inputs)``.

    In Hugging Face's order: the first halves of all rotary pairs come before the second ones. What
    is None is not there.
    """

    attn_norm: FloatArray
    q: FloatArray
    k: FloatArray
    v: FloatArray
    o: FloatArray
    ffn_norm: FloatArray
    gate: FloatArray
    up: FloatArray
    down: FloatArray
    q_bias: FloatArray | None = None
    k_bias: FloatArray | None = None
    v_bias: FloatArray | None = None
    o_bias: FloatArray | None = None
    q_norm: FloatArray | None = None
    k_norm: FloatArray | None = None
    attn_post_norm: FloatArray | None = None
    ffn_post_norm: FloatArray | None = None


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that ``genai_config.json`` names.

    Attributes:
        end: all that end a turn or a text, the model's own choice first.
        start: the one that starts a text; None: there is none.
        padding: the one that fills batches.
    """

    end: list[int]
    start: int | None
    padding: int


class Checkpoint(Protocol):
    """A trained model on disk, opened and checked. Everything is read when it is asked for."""

    path: Path
    shape: DecoderShape

    def embedding(self) -> FloatArray:
        """The embedding, ``(vocab_size, hidden_size)``."""
        ...

    def head(self) -> FloatArray:
        """The output projection of a model that is not tied, like the embedding."""
        ...

    def final_norm(self) -> FloatArray:
        """The gain of the norm before the output projection."""
        ...

    def layer(self, layer: int) -> LayerWeights:
        """The weights of one transformer block."""
        ...

    def special_tokens(self) -> SpecialTokens:
        """Which tokens begin, end and pad a text."""
        ...

    def write_tokenizer(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json`` into a folder."""
        ...


@dataclass(frozen=True)
class Refusal:
    """Makes the errors of what a model has and the converter cannot do.

    Attributes:
        path: the file or folder of the model.
    """

    path: Path
    advice: str = field(
        default="Use a folder made by `python -m onnxruntime_genai.models.builder`.", repr=False
    )

    def __call__(self, what: str) -> ConversionError:
        """The error that names a feature."""
        return ConversionError(
            f"{self.path}: {what}, which structgen's converter does not support. {self.advice}"
        )


def check_shape(path: Path, shape: DecoderShape) -> None:
    """Refuse sizes that the graph or the runtime's kernels cannot express.

    Raises:
        ConversionError: there is one.
    """
    refuse = Refusal(path)
    if shape.n_heads % shape.n_kv_heads:
        raise ConversionError(
            f"{path} is damaged: {shape.n_heads} query heads cannot share {shape.n_kv_heads} key "
            "heads."
        )
    if shape.head_size % 16:
        raise refuse(f"a head size of {shape.head_size}, not a multiple of 16")
    for rope in shape.ropes:
        if rope.size % 16 or not 0 < rope.size <= shape.head_size:
            raise refuse(f"RoPE over {rope.size} of {shape.head_size} dimensions")
    for name, size in (
        ("embedding_length", shape.hidden_size),
        ("feed_forward_length", shape.ffn_size),
    ):
        if size % 32:
            raise refuse(f"{name} = {size}, not a multiple of 32")


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
