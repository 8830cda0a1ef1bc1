"""The converter's view of a decoder: its shape, its weights, and the checkpoint.

All supported families have the same block with a few choices: biases, norms of queries and keys,
norms after the attention and the feed-forward layer, windows, layers without positions, two
activations. `DecoderShape` and `LayerWeights` have a model's choices. `Checkpoint` checks and reads
the tensors, which each file format names differently. `FAMILIES` has the facts that are not in
files: for example, in ``gemma3`` every sixth layer sees the whole text. Knows no file format and no
graph.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError, printable
from structgen.storage.user_folder import NOT_UNDERSTOOD

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: how queries and keys are rotated by position.

    Attributes:
        base: base of the frequencies.
        size: how many numbers of a head are rotated, from its beginning.
        scale: positions are divided by this.
        divisors: further divisors of the frequencies; empty: none.
        magnitude: a factor of cosines and sines.
    """

    base: float
    size: int
    scale: float = 1.0
    divisors: tuple[float, ...] = ()
    magnitude: float = 1.0

    def table(self, of: np.ufunc, first: int, end: int) -> FloatArray:
        """Return the cosines or sines of positions, float32 ``(end - first, size // 2)``."""
        exponents = np.arange(0, self.size, 2, dtype=np.float64) / self.size
        frequencies = self.base**-exponents / self.scale
        if self.divisors:
            frequencies = frequencies / np.array(self.divisors)
        angles = np.outer(np.arange(first, end, dtype=np.float64), frequencies)
        found: FloatArray = (of(angles) * self.magnitude).astype(np.float32)
        return found


@dataclass(frozen=True)
class Attention:
    """The attention of one layer.

    Attributes:
        rope: its rotary embedding; None: it has no positions.
        window: how many tokens a token sees, with itself; 0: all before it.
    """

    rope: Rope | None
    window: int = 0


@dataclass(frozen=True)
class Family:
    """The facts that all models of a family share.

    Attributes:
        title: its name in messages.
        runtime_type: its name in ``genai_config.json``, and Hugging Face's ``model_type``.
        activation: the activation of the feed-forward layer's gate; ``gelu`` is the tanh version.
        has_qk_norms: whether queries and keys are normalized, head by head.
        has_post_norms: whether the results of attention and feed-forward layer are also normalized.
        is_fused: whether queries, keys and values are one projection, and gate and up another.
        scales_embeddings: whether embeddings are multiplied by the square root of their width.
            Numbers between operators then exceed 16-bit floats, and Hugging Face's files have a
            norm's gain minus one.
        full_period: every n-th layer sees the whole text, the others a window; 0: all layers are
            alike.
        rope_period: every n-th layer has no positions; 0: all have them.
        rope_base: the base of the frequencies if a Hugging Face folder does not have it.
        window_rope_base: the base for layers with a window; None: as for the others.
        is_tied: whether the output projection is the embedding, if such a folder does not tell.
        attention_cap: default limit of products of queries and keys.
        logit_cap: default limit of logits.
        wide_layers: the number of layers of the one model whose products are scaled by
            ``hidden_size / n_heads`` instead of by the head's size (Gemma's 27B); 0: none.
        is_interleaved: whether its GGUF files store rotary pairs as neighbours.
    """

    title: str
    runtime_type: str
    activation: Literal["silu", "gelu"] = "silu"
    has_qk_norms: bool = False
    has_post_norms: bool = False
    is_fused: bool = False
    scales_embeddings: bool = False
    full_period: int = 0
    rope_period: int = 0
    rope_base: float = 10_000.0
    window_rope_base: float | None = None
    is_tied: bool = False
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    wide_layers: int = 0
    is_interleaved: bool = False


@dataclass(frozen=True)
class DecoderShape:
    """The hyperparameters of a decoder.

    Attributes:
        family: its family.
        hidden_size: width of the residual stream.
        ffn_size: width of the gated feed-forward layer.
        n_heads: query heads.
        n_kv_heads: key and value heads (grouped-query attention when fewer than ``n_heads``).
        head_size: width of one head.
        vocab_size: rows of the embedding, the width of the logits.
        context_length: positions that the converted model has.
        rms_epsilon: epsilon of every RMS normalisation.
        is_tied: whether the output projection is the embedding.
        layers: the attention of each transformer block.
        attention_scale: the factor of products of queries and keys.
        attention_cap: the limit to which a tanh presses them; 0: none.
        logit_cap: the same for logits.
    """

    family: Family
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

    @property
    def embedding_scale(self) -> float:
        """The factor of embeddings."""
        return math.sqrt(self.hidden_size) if self.family.scales_embeddings else 1.0

    @property
    def n_layers(self) -> int:
        """The number of transformer blocks."""
        return len(self.layers)

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The different rotary embeddings, in the order of their first layers."""
        found = (attention.rope for attention in self.layers)
        return tuple(dict.fromkeys(rope for rope in found if rope is not None))


@dataclass
class LayerWeights:
    """The float32 weights of one transformer block, projections as ``(outputs, inputs)``.

    In Hugging Face's order: the first halves of all rotary pairs come before the second ones. None:
    the weight does not exist.
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
        end: all tokens that end a turn or a text, the model's own choice first.
        start: the token that starts a text; None: there is none.
        padding: the token that pads batches.
    """

    end: list[int]
    start: int | None
    padding: int


FAMILIES = MappingProxyType(
    {
        "llama": Family("Llama", "llama", is_interleaved=True),
        "qwen2": Family("Qwen2", "qwen2"),
        "qwen3": Family("Qwen3", "qwen3", has_qk_norms=True),
        "gemma": Family("Gemma", "gemma", activation="gelu", scales_embeddings=True, is_tied=True),
        "gemma2": Family(
            "Gemma 2",
            "gemma2",
            activation="gelu",
            has_post_norms=True,
            scales_embeddings=True,
            full_period=2,
            is_tied=True,
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
            rope_base=1_000_000.0,
            window_rope_base=10_000.0,
            is_tied=True,
            wide_layers=62,
        ),
        "phi3": Family("Phi-3", "phi3", is_fused=True),
        "smollm3": Family(
            "SmolLM3",
            "smollm3",
            rope_period=4,
            rope_base=2_000_000.0,
            is_tied=True,
            is_interleaved=True,
        ),
    }
)
"""All families by their names in GGUF files."""


def check_family(path: Path, kind: str, name: str, known: Collection[str]) -> None:
    """Raise ConversionError for a model of an unsupported family."""
    if name not in known:
        raise ConversionError(
            f"{path} has a model of {kind} {name!r}. structgen converts "
            f"{', '.join(map(repr, known))}. For other models use a folder made by "
            "`python -m onnxruntime_genai.models.builder`."
        )


class _Stored(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


StoredT = TypeVar("StoredT", bound=_Stored)


class Tensors(ABC, Generic[StoredT]):
    """The tensors of a file or folder, by name.

    Attributes:
        path: the file or folder.
    """

    def __init__(self, path: Path) -> None:
        """Start empty; subclasses put the storage of each tensor into ``_tensors``."""
        self.path = path
        self._tensors: dict[str, StoredT] = {}

    @property
    def tensor_names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(self._tensors)

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, rows first: a projection is ``(outputs, inputs)``.

        Raises:
            ConversionError: there is no such tensor.
        """
        return self._stored(name).shape

    def _stored(self, name: str) -> StoredT:
        if name not in self._tensors:
            raise ConversionError(f"{self.path} has no tensor {name!r}, which is required.")
        return self._tensors[name]

    def tensor(self, name: str) -> FloatArray:
        """Return a tensor's values as float32.

        Raises:
            ConversionError: there is no such tensor, its storage type is not supported, or it has
                NaN or infinity.
        """
        values = self._values_of(name, self._stored(name))
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return values
        raise ConversionError(
            f"{self.path} is damaged: tensor {name!r} contains NaN or infinite values. Download "
            "it again."
        )

    @abstractmethod
    def _values_of(self, name: str, stored: StoredT) -> FloatArray: ...


@dataclass(frozen=True)
class Names:
    """The names of tensors in a file format.

    Attributes:
        embedding: the table of tokens.
        head: the output projection.
        norm: the norm before it.
        layer: the prefix of a layer's tensors; ``{}`` is its number.
        parts: the rest of a name, by field of `LayerWeights`; ``qkv`` and ``gate_up`` if fused.
    """

    embedding: str
    head: str
    norm: str
    layer: str
    parts: Mapping[str, str]


MOST_DIMENSIONS = 8  # of a tensor; the product of a million sizes would take hours
_LARGEST_HEAD = 1 << 14
_MOST_LAYERS = 1_000  # Llama 3.1 405B has 126; each takes 90 kB of memory, whatever its size
_SHOWN = 300  # characters of an error, which may quote a value
_LARGEST = 1e12  # of the numbers that a graph computes with; bases of RoPE reach 1e8
_MOST_POSITIONS = 1 << 21  # each has a row in tables of cosines and sines,
_LARGEST_TABLE = 1 << 28  # which have half as many numbers as this


def numbers(file: Path, kind: str, shape: tuple[int, ...], offset: int) -> npt.NDArray[Any]:
    """Read a tensor.

    Raises:
        ConversionError: the file has become shorter.
    """
    found = np.fromfile(file, kind, math.prod(shape), offset=offset)
    if len(found) != math.prod(shape):
        raise ConversionError(f"{file} was truncated while structgen read it. Try again.")
    return found.reshape(shape)


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn exceptions from wrong values in a file into an error that the file is damaged.

    Raises:
        ConversionError: there was one.
    """
    try:
        yield
    except NOT_UNDERSTOOD as error:
        raise ConversionError(
            f"{path} is damaged: its metadata cannot be parsed "
            f"({printable(repr(error)[:_SHOWN])}). Download it again."
        ) from error


class Checkpoint(ABC):
    """A trained model on disk, opened and checked. Tensors are read on first use.

    Subclasses have the names of tensors and read the rest.

    Args:
        path: the file or folder.
        family: the model's family.
        tensors: the model's tensors.
        context_length: positions of the converted model; None: all.

    Raises:
        ConversionError: a feature cannot be expressed; or a tensor is missing, unknown, or has the
            wrong shape.
    """

    _names: Names
    _biased: tuple[str, ...] = ()
    """Projections that always have biases; others may have them, in all layers."""

    def __init__(
        self, path: Path, family: Family, tensors: Tensors[Any], context_length: int | None
    ) -> None:
        self.path = path
        self._family = family
        self._tensors = tensors
        self.shape = self._read_shape(context_length)
        self._check_shape()
        self._sizes = _sizes(family, self.shape)
        self._check_tensors()

    @abstractmethod
    def _read_shape(self, context_length: int | None) -> DecoderShape:
        """Return the hyperparameters. Raises for unsupported features."""

    def _check_counts(self, n_layers: int, head_size: int) -> None:
        """Refuse numbers that no model has, before anything is made for each."""
        n_tensors = len(self._tensors.tensor_names)
        if n_layers > min(n_tensors, _MOST_LAYERS) or head_size > _LARGEST_HEAD:
            raise ConversionError(
                f"{self.path} is damaged: its metadata declares {n_layers:,} layers with heads of "
                f"{head_size:,} dimensions, and it has {n_tensors:,} tensors. Download it again."
            )

    @abstractmethod
    def _not_needed(self) -> dict[str, tuple[int, ...]]:
        """Return tensors that a file may have although the graph needs none, with their shapes."""

    @abstractmethod
    def special_tokens(self) -> SpecialTokens:
        """Return the tokens that begin, end and pad a text."""

    @abstractmethod
    def tokenizer_files(self) -> tuple[bytes, dict[str, Any]]:
        """Return ``tokenizer.json``, and the settings of ``tokenizer_config.json``.

        Raises:
            ConversionError: the kind of tokenizer, or a splitting rule, is unknown.
        """

    def _in_halves(self, rows: FloatArray) -> FloatArray:
        """Return the rows of queries or keys with the first halves of all rotary pairs first."""
        return rows

    def _gain(self, values: FloatArray) -> FloatArray:
        """Return a norm's gain from the stored values."""
        return values

    def embedding(self) -> FloatArray:
        """Return the embedding, ``(vocab_size, hidden_size)``."""
        return self._tensors.tensor(self._names.embedding)

    def head(self) -> FloatArray:
        """Return the output projection of an untied model, ``(vocab_size, hidden_size)``."""
        return self._tensors.tensor(self._names.head)

    def final_norm(self) -> FloatArray:
        """Return the gain of the norm before the output projection."""
        return self._gain(self._tensors.tensor(self._names.norm))

    def layer(self, layer: int) -> LayerWeights:
        """Return the weights of one transformer block."""
        shape, found = self.shape, dict[str, FloatArray]()
        for part in self._sizes:
            name = self._name_of(part, layer)
            if name in self._tensors.tensor_names:
                found[part] = self._tensors.tensor(name)
        n_queries = shape.n_heads * shape.head_size
        ends = n_queries, n_queries + shape.n_kv_heads * shape.head_size
        for kind in ("weight", "bias"):
            if f"qkv.{kind}" in found:
                parts = np.split(found.pop(f"qkv.{kind}"), ends)
                found |= zip((f"q.{kind}", f"k.{kind}", f"v.{kind}"), parts, strict=True)
        if "gate_up.weight" in found:
            found["gate.weight"], found["up.weight"] = np.split(found.pop("gate_up.weight"), 2)
        for part, values in found.items():
            if part[:2] in ("q.", "k."):
                found[part] = self._in_halves(values)
            elif "norm" in part:
                found[part] = self._gain(values)
        fields = {part.removesuffix(".weight").replace(".", "_"): part for part in found}
        return LayerWeights(**{field: found[part] for field, part in fields.items()})

    def _name_of(self, part: str, layer: int) -> str:
        of, kind = part.split(".")
        return f"{self._names.layer.format(layer)}{self._names.parts[of]}.{kind}"

    def _refuse(self, what: str) -> ConversionError:
        """Return the error for an unsupported feature."""
        return ConversionError(
            f"{self.path}: {what}, which structgen's converter does not support. Use a folder made "
            "by `python -m onnxruntime_genai.models.builder`."
        )

    def _positions(self, trained: int, wanted: int | None) -> int:
        """Return the number of positions of the converted model.

        Raises:
            ConversionError: more are requested than the model was trained for.
        """
        context = trained if wanted is None else wanted
        if not 0 < context <= trained:
            raise ConversionError(
                f"context_length={wanted} is out of range: {self.path} was trained for {trained} "
                f"positions. Pass 1 to {trained}."
            )
        if context > _MOST_POSITIONS:
            raise ConversionError(
                f"{self.path} declares {context:,} positions; structgen converts at most "
                f"{_MOST_POSITIONS:,}. Pass a smaller context_length."
            )
        return context

    def _check_shape(self) -> None:
        """Refuse sizes that the graph or the runtime's kernels cannot express."""
        shape, refuse = self.shape, self._refuse
        least = 1 / _LARGEST  # limit for numbers where 0 would cause infinity
        for name, number, low in (
            ("epsilon of its norms", shape.rms_epsilon, 0),
            ("caps", shape.attention_cap, 0),
            ("caps", shape.logit_cap, 0),
            *(("windows", attention.window, 0) for attention in shape.layers),
            ("scale of attention", shape.attention_scale, least),
            *(
                ("RoPE", number, least)
                for rope in shape.ropes
                for number in (rope.base, rope.scale, rope.magnitude, *rope.divisors)
            ),
        ):
            if not low <= number <= _LARGEST:
                raise ConversionError(
                    f"{self.path} is damaged: {number!r} is out of range for {name}. Download it "
                    "again."
                )
        if shape.n_heads % shape.n_kv_heads:
            raise ConversionError(
                f"{self.path} is damaged: {shape.n_heads} query heads cannot share "
                f"{shape.n_kv_heads} key heads."
            )
        if shape.head_size % 16:
            raise refuse(f"a head size of {shape.head_size}, which is not a multiple of 16")
        for rope in shape.ropes:
            if rope.size % 16 or not 0 < rope.size <= shape.head_size:
                raise refuse(f"RoPE over {rope.size} of {shape.head_size} dimensions")
            if len(rope.divisors) not in (0, rope.size // 2):
                raise refuse(f"{len(rope.divisors)} RoPE factors for {rope.size // 2} pairs")
            if shape.context_length * rope.size > _LARGEST_TABLE:
                raise ConversionError(
                    f"{self.path} declares {shape.context_length:,} positions with RoPE over "
                    f"{rope.size:,} dimensions. Pass a smaller context_length."
                )
        for name, size in (
            ("embedding_length", shape.hidden_size),
            ("feed_forward_length", shape.ffn_size),
        ):
            if size < 1 or size % 32:  # rows without numbers take no bytes: there may be 2**62
                raise refuse(f"{name} = {size}, which is not a multiple of 32")

    def _check_tensors(self) -> None:
        """Check that exactly the tensors that the graph needs exist, with their shapes."""
        shape, names, title = self.shape, self._names, self._family.title
        table = (shape.vocab_size, shape.hidden_size)
        needed: dict[str, tuple[int, ...]] = {
            names.embedding: table,
            names.norm: (shape.hidden_size,),
        }
        if not shape.is_tied:
            needed[names.head] = table
        allowed, found = self._not_needed() | needed, self._tensors.tensor_names
        for part, size in self._sizes.items():
            of_layers = [self._name_of(part, layer) for layer in range(shape.n_layers)]
            allowed |= dict.fromkeys(of_layers, size)
            of, kind = part.split(".")
            if kind == "weight" or of in self._biased or not found.isdisjoint(of_layers):
                needed |= dict.fromkeys(of_layers, size)
        missing, unknown = sorted(needed.keys() - found), sorted(found - allowed.keys())
        if missing:
            raise ConversionError(
                f"{self.path} lacks {len(missing)} tensors of a {title} model with "
                f"{shape.n_layers} layers. The first is {missing[0]!r}."
            )
        if unknown:
            raise ConversionError(
                f"{self.path} has {len(unknown)} tensors that a plain {title} model does not "
                f"have. The first is {unknown[0]!r}. Dropping them would change the model."
            )
        for name in sorted(found):
            if self._tensors.tensor_shape(name) != allowed[name]:
                raise ConversionError(
                    f"{self.path}: tensor {name!r} has the shape "
                    f"{self._tensors.tensor_shape(name)}, expected {allowed[name]}."
                )


def _sizes(family: Family, shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Return a layer's tensors and shapes. Either all layers have biases or none."""
    n_queries, n_keys = shape.n_heads * shape.head_size, shape.n_kv_heads * shape.head_size
    hidden, ffn = shape.hidden_size, shape.ffn_size
    if family.is_fused:
        projections = {"qkv": n_queries + 2 * n_keys}
        products = {"gate_up": 2 * ffn}
    else:
        projections = {"q": n_queries, "k": n_keys, "v": n_keys}
        products = {"gate": ffn, "up": ffn}
    return {
        "attn_norm.weight": (hidden,),
        "ffn_norm.weight": (hidden,),
        "o.weight": (hidden, n_queries),
        "o.bias": (hidden,),
        "down.weight": (hidden, ffn),
        **{f"{part}.weight": (size, hidden) for part, size in (projections | products).items()},
        **{f"{part}.bias": (size,) for part, size in projections.items()},
        **{
            f"{part}.weight": (shape.head_size,)
            for part in ("q_norm", "k_norm")
            if family.has_qk_norms
        },
        **{
            f"{part}.weight": (hidden,)
            for part in ("attn_post_norm", "ffn_post_norm")
            if family.has_post_norms
        },
    }
