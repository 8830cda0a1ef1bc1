"""Read a GGUF file: its hyperparameters and its weights, as float32, one tensor at a time.

Owns what the GGUF format and the Llama architecture mean: key names, tensor names, the row order
llama.cpp gives to the query and key projections, RoPE frequency factors. Refuses, before any work
is done, whatever the converter would otherwise get silently wrong: another architecture, unknown
tensors, wrong shapes, scaled RoPE it cannot express. Knows nothing of ONNX, quantisation for the
runtime, or tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError

from .gguf_header import architecture_of

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LlamaShape:
    """The hyperparameters of a Llama-family decoder.

    Attributes:
        n_layers: transformer blocks.
        hidden_size: width of the residual stream.
        ffn_size: width of the gated feed-forward layer.
        n_heads: query heads.
        n_kv_heads: key and value heads (grouped-query attention when fewer than ``n_heads``).
        head_size: width of one head.
        vocab_size: rows of the embedding, the width of the logits.
        context_length: positions the model was trained for.
        rms_epsilon: epsilon of every RMS normalisation.
        rope_base: base of the rotary frequencies.
        rope_scale: positions are divided by this ("linear" RoPE scaling), 1.0 normally.
        is_tied: the output projection is the embedding itself.
    """

    n_layers: int
    hidden_size: int
    ffn_size: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    vocab_size: int
    context_length: int
    rms_epsilon: float
    rope_base: float
    rope_scale: float
    is_tied: bool


class GgufFile:
    """An opened GGUF file (memory-mapped; nothing is read before it is asked for).

    Args:
        path: the file.

    Raises:
        ConversionError: no GGUF file, a damaged or truncated one, or one split in several parts.
    """

    def __init__(self, path: str | Path) -> None:
        # Imported here: `import structgen.models` must not pay for gguf.
        from gguf import GGUFReader

        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise ConversionError(f"Cannot read the GGUF file {self.path}: {error}.") from error
        if magic != b"GGUF":
            raise ConversionError(
                f"{self.path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'. "
                "Pass the .gguf weights themselves."
            )
        check_family(self.path, architecture_of(self.path))
        try:
            self._reader = GGUFReader(self.path)
        except Exception as error:  # the reader raises whatever NumPy raises on a short file
            raise ConversionError(
                f"{self.path} is a damaged or truncated GGUF file ({error}). Fetch it again."
            ) from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if int(self.get("split.count", 1)) > 1:
            raise ConversionError(
                f"{self.path} is one part of a model split in {self.get('split.count')} files. "
                "Merge them first, with llama.cpp's `llama-gguf-split --merge`."
            )

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key as plain Python (str, int, float, bool or list)."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def require(self, key: str) -> Any:
        """Like :meth:`get`, for keys that must be there.

        Raises:
            ConversionError: the key is missing.
        """
        value = self.get(key)
        if value is None:
            raise ConversionError(f"{self.path} has no metadata key {key!r}, which is needed.")
        return value

    @property
    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors in the file."""
        return frozenset(self._tensors)

    def tensor_type(self, name: str) -> str:
        """The GGUF storage type of a tensor, e.g. ``Q4_1``."""
        return self._tensors[name].tensor_type.name

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, rows first: a projection is ``(outputs, inputs)``."""
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def tensor(self, name: str) -> FloatArray:
        """A tensor's values as float32, rows first.

        Raises:
            ConversionError: no such tensor, or a storage type that cannot be dequantised.
        """
        from gguf.quants import dequantize

        if name not in self._tensors:
            raise ConversionError(f"{self.path} has no tensor {name!r}, which is needed.")
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ConversionError(
                f"{self.path}: tensor {name!r} is stored as {tensor.tensor_type.name}, which the "
                "gguf package cannot dequantise. Use a file quantised as Q4_0, Q4_K_M, Q8_0 or F16."
            ) from error
        return np.ascontiguousarray(values, dtype=np.float32).reshape(self.tensor_shape(name))


def layer_tensor(layer: int, part: str) -> str:
    """GGUF name of one tensor of a block, e.g. ``blk.3.attn_q.weight``."""
    return f"blk.{layer}.{part}.weight"


def check_family(path: Path, architecture: str | None) -> None:
    """Raise when a file's architecture is known and is another one.

    Raises:
        ConversionError: so it is.
    """
    if architecture not in (None, "llama"):
        raise ConversionError(
            f"{path} holds a model of architecture {architecture!r}; structgen converts "
            "'llama' (Llama, SmolLM2, TinyLlama, Mistral 7B). For others use a folder made by "
            "`python -m onnxruntime_genai.models.builder`."
        )


def read_shape(file: GgufFile) -> LlamaShape:
    """Read and check the hyperparameters of a Llama-family model.

    Every tensor of the file must be one the converter uses, with the shape it must have, so that
    nothing of the model is dropped in silence.

    Raises:
        ConversionError: another architecture, a feature outside the plain Llama block, a tensor
            missing, unknown or of the wrong shape.
    """
    check_family(file.path, str(file.require("general.architecture")))
    n_heads = _same_everywhere(file, "llama.attention.head_count")
    n_kv_heads = _same_everywhere(file, "llama.attention.head_count_kv", n_heads)
    hidden_size = int(file.require("llama.embedding_length"))
    head_size = int(file.get("llama.attention.key_length", hidden_size // n_heads))
    if n_heads % n_kv_heads:
        raise ConversionError(
            f"{file.path} is damaged: {n_heads} query heads cannot share {n_kv_heads} key heads."
        )
    _check_features(file, head_size)
    embedding = "token_embd.weight"
    if embedding not in file.tensor_names:
        raise ConversionError(f"{file.path} has no tensor {embedding!r}, which is needed.")
    shape = LlamaShape(
        n_layers=int(file.require("llama.block_count")),
        hidden_size=hidden_size,
        ffn_size=int(file.require("llama.feed_forward_length")),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=head_size,
        vocab_size=file.tensor_shape(embedding)[0],
        context_length=int(file.require("llama.context_length")),
        rms_epsilon=float(file.require("llama.attention.layer_norm_rms_epsilon")),
        rope_base=float(file.get("llama.rope.freq_base", 10000.0)),
        rope_scale=float(file.get("llama.rope.scaling.factor", 1.0)),
        is_tied="output.weight" not in file.tensor_names,
    )
    _check_tensors(file, shape)
    return shape


def _same_everywhere(file: GgufFile, key: str, default: int | None = None) -> int:
    """A count that the format also allows to differ from layer to layer."""
    value = file.require(key) if default is None else file.get(key, default)
    values = set(value) if isinstance(value, list) else {value}
    if len(values) != 1:
        raise ConversionError(
            f"{file.path}: {key} differs between layers ({sorted(values)}), which structgen's "
            "converter does not support."
        )
    return int(values.pop())


def _check_features(file: GgufFile, head_size: int) -> None:
    """Refuse features of the 'llama' architecture that the graph does not express."""

    def refuse(what: str) -> ConversionError:
        return ConversionError(
            f"{file.path}: {what}, which structgen's converter does not support. Use a folder "
            "made by `python -m onnxruntime_genai.models.builder`."
        )

    if int(file.get("llama.expert_count", 0)) > 0:
        raise refuse(f"a mixture of {file.get('llama.expert_count')} experts")
    scaling = str(file.get("llama.rope.scaling.type", "none"))
    if scaling not in ("none", "linear"):
        raise refuse(f"RoPE scaling of type {scaling!r}")
    if scaling == "none" and float(file.get("llama.rope.scaling.factor", 1.0)) != 1.0:
        raise refuse("a RoPE scaling factor without a type")
    rope_size = int(file.get("llama.rope.dimension_count", head_size))
    if rope_size != head_size:
        raise refuse(f"RoPE over {rope_size} of {head_size} dimensions")
    value_size = int(file.get("llama.attention.value_length", head_size))
    if value_size != head_size:
        raise refuse(f"value heads of {value_size} beside key heads of {head_size}")
    if int(file.get("llama.attention.sliding_window", 0)) > 0:
        raise refuse("sliding-window attention")
    if head_size % 16:
        raise refuse(f"a head size of {head_size}, not a multiple of 16")
    for key in ("embedding_length", "feed_forward_length"):
        if int(file.require(f"llama.{key}")) % 32:
            raise refuse(f"{key} = {file.get(f'llama.{key}')}, not a multiple of 32")


def _check_tensors(file: GgufFile, shape: LlamaShape) -> None:
    """Every tensor the graph needs is there with its shape, and no other."""
    q_size, kv_size = shape.n_heads * shape.head_size, shape.n_kv_heads * shape.head_size
    hidden, ffn = shape.hidden_size, shape.ffn_size
    expected: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (shape.vocab_size, hidden),
        "output_norm.weight": (hidden,),
    }
    if not shape.is_tied:
        expected["output.weight"] = (shape.vocab_size, hidden)
    if "rope_freqs.weight" in file.tensor_names:
        expected["rope_freqs.weight"] = (shape.head_size // 2,)
    parts = {
        "attn_norm": (hidden,),
        "attn_q": (q_size, hidden),
        "attn_k": (kv_size, hidden),
        "attn_v": (kv_size, hidden),
        "attn_output": (hidden, q_size),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    for layer in range(shape.n_layers):
        expected.update({layer_tensor(layer, part): size for part, size in parts.items()})
    missing = sorted(expected.keys() - file.tensor_names)
    if missing:
        raise ConversionError(
            f"{file.path} lacks {len(missing)} tensors of a Llama model with {shape.n_layers} "
            f"layers, the first being {missing[0]!r}."
        )
    unknown = sorted(file.tensor_names - expected.keys())
    if unknown:
        raise ConversionError(
            f"{file.path} has {len(unknown)} tensors that a plain Llama model does not have, the "
            f"first being {unknown[0]!r}; leaving them out would change the model."
        )
    for name, size in expected.items():
        if file.tensor_shape(name) != size:
            raise ConversionError(
                f"{file.path}: tensor {name!r} has shape {file.tensor_shape(name)}, not {size}."
            )


def projection(file: GgufFile, shape: LlamaShape, layer: int, part: str) -> FloatArray:
    """Weights of one projection as float32 ``(outputs, inputs)``, query and key heads in halves.

    llama.cpp stores each query and key head with the two halves of the rotary pairs interleaved;
    the runtime's (and Hugging Face's) order is first all the first elements, then all the second.
    """
    weight = file.tensor(layer_tensor(layer, part))
    if part not in ("attn_q", "attn_k"):
        return weight
    pairs = weight.reshape(-1, shape.head_size // 2, 2, shape.hidden_size)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def rope_tables(file: GgufFile, shape: LlamaShape) -> tuple[FloatArray, FloatArray]:
    """Cosine and sine of every position: two float32 ``(context_length, head_size // 2)``."""
    exponents = np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size
    frequencies = shape.rope_base**-exponents / shape.rope_scale
    if "rope_freqs.weight" in file.tensor_names:
        # Llama 3.1's long-context scaling, precomputed by llama.cpp as divisors.
        frequencies = frequencies / file.tensor("rope_freqs.weight")
    angles = np.outer(np.arange(shape.context_length, dtype=np.float64), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
