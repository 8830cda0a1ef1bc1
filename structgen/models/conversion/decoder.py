"""What a decoder is to the converter: its shape, its weights, and where they are read from.

Every family that is converted is one block with a few choices: biases, norms of queries and keys,
norms behind the attention and the feed-forward layer, windows, layers without positions, two
activations. `DecoderShape` and `LayerWeights` say which choices a model makes; `Checkpoint` is what
a kind of file has to offer. This module knows no file format, no family by name, and no graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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
