"""Build the ONNX graph of a decoder, and write it with its rounded weights beside it.

The operators, their wiring and their names are those that ``onnxruntime_genai.models.builder``
emits for int4 on the CPU, because the runtime's kernels are tuned for these shapes. One layer is

    x ── norm ── qkv ── GroupQueryAttention (rotary inside) ── o ──┐
    └────────────── SkipSimplifiedLayerNormalization ◀─────────────┘
                        ├── gate ── Sigmoid, Mul ──┐
                        └── up ─────────────────── Mul ── down ── (the next layer's skip norm)

with ``MatMulNBits`` for every projection and the head. If a model has norms of queries and keys,
qkv is split before the attention; norms behind the attention and the feed-forward layer come before
the skip norms. It differs from the builder in two points: gate and up are one projection (fewer,
larger operators: 3% faster), and the input of a projection that `four_bit` kept exactly is extended
by the means of its blocks (AveragePool, Concat).

In the block format of ``MatMulNBits``, blocks along the inputs have unsigned integers, with a
float32 scale and an integer zero point per block:

- `four_bit` *recognises* weights that already lie on 16 evenly spaced levels per block (GGUF's
  Q4_0, Q4_1 and Q4_K do) and keeps them to the last bit. Rounding them to a second 4-bit grid, as a
  general quantiser must, would add as much noise as the first quantisation did: for SmolLM2-135M
  the top token then differs at 30% of all positions.
- `eight_bit` rounds anything, with an error too small to matter, `to_four_bits` with one that
  shows. Wide matrices of 8 bits have blocks of 64, with which passes take 0.85 to 0.95 of the time.
  With blocks of 128, a row of a batch would differ from the same row alone (docs/models.md).

Weights of 16 bits (`HalfMatrix`) are multiplied by ``FusedMatMul``, on the CPU as float32. Knows no
tokenizers and no files to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from structgen.errors import ConversionError
from structgen.models.base import MASK_INPUT
from structgen.models.cache import masked, sha256

from .decoder import Attention, DecoderShape, FloatArray, LayerWeights, Rope

_BLOCK = 32
"""Inputs that share a scale, except in wide 8-bit matrices."""

ByteArray = npt.NDArray[np.uint8]

_WIDE = 768
"""Fewest inputs for blocks of 64. SmolLM2, with 576, loses 0.6 points of agreement with them."""

_TOP = 15  # largest 4-bit integer
PIECE = 1 << 20  # numbers made or rounded at a time: temporary arrays of all would be gigabytes


@dataclass(frozen=True)
class QuantizedMatrix:
    """A quantised matrix for ``MatMulNBits``: ``w ≈ (q - zero_point) * scale``.

    Attributes:
        bits: 4 or 8.
        n_outputs: rows.
        n_inputs: columns, with those of the means.
        n_means: if not 0, the last ``n_means`` columns are for the means of the blocks of the other
            columns, by which the input must be extended (see `four_bit`).
        block: inputs that share a scale.
        values: uint8 ``(n_outputs, n_blocks, block * bits // 8)``, lower half of a byte first.
        scales: float32 ``(n_outputs, n_blocks)``.
        zero_points: uint8 ``(n_outputs, ceil(n_blocks / 2))``, lower half of a byte first; None:
            the middle of the range.
    """

    bits: int
    n_outputs: int
    n_inputs: int
    n_means: int
    block: int
    values: ByteArray
    scales: FloatArray
    zero_points: ByteArray | None


@dataclass(frozen=True)
class HalfMatrix:
    """A matrix that is not quantised.

    Attributes:
        values: float16 ``(n_outputs, n_inputs)``.
    """

    values: npt.NDArray[np.float16]


def half(weight: FloatArray) -> HalfMatrix:
    """Round a float32 ``(outputs, inputs)`` matrix to 16-bit floats.

    Raises:
        ConversionError: a number is too large for them.
    """
    with np.errstate(over="ignore"):
        values = weight.astype(np.float16)
    if not np.isfinite(values).all():
        raise ConversionError(
            f"The model has a weight of {np.abs(weight).max():.0e}, but 16-bit floats end at "
            "65,504. Pass dtype='int8' or 'int4', which allow larger numbers."
        )
    return HalfMatrix(values)


def to_four_bits(weight: FloatArray) -> QuantizedMatrix:
    """Round a float32 ``(outputs, inputs)`` matrix to 4 bits, without loss if possible."""
    exact = four_bit(weight)
    if exact is not None:
        return exact
    return _packed(weight.shape[1], 0, *_by_rows(_round_to_four_bits, weight))


def eight_bit(weight: FloatArray) -> QuantizedMatrix:
    """Round a float32 ``(outputs, inputs)`` matrix to 8 bits, symmetric about 0.

    Wide ones have blocks of 64, others blocks of 32, which keep GGUF's Q8_0 exactly. Costs a few
    passes over the matrix.
    """
    n_outputs, n_inputs = weight.shape
    block = 64 if n_inputs >= _WIDE and n_inputs % 64 == 0 else _BLOCK

    def rounded(rows: FloatArray) -> tuple[npt.NDArray[Any], ...]:
        blocks = _blocks(rows, block)
        scales = np.abs(blocks).max(axis=-1) / 127
        scales[scales == 0] = 1
        return (np.rint(blocks / scales[..., None]) + 128).astype(np.uint8), scales

    values, scales = _by_rows(rounded, weight)
    return QuantizedMatrix(8, n_outputs, n_inputs, 0, block, values, scales, None)


def _by_rows(
    make: Callable[[FloatArray], Iterable[npt.NDArray[Any]]], weight: FloatArray
) -> list[npt.NDArray[Any]]:
    """Return the arrays that a function makes of a matrix, of some rows at a time."""
    step = max(PIECE // weight.shape[1], 1)
    pieces = (make(weight[at : at + step]) for at in range(0, len(weight), step))
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def four_bit(weight: FloatArray) -> QuantizedMatrix | None:
    """Represent a float32 ``(outputs, inputs)`` matrix in 4 bits without loss, or return None.

    Each block must lie on at most 16 evenly spaced levels, ``q * step + low``. The runtime wants
    ``(q - z) * step`` with an integer ``z``; what remains, ``offset = low + z * step``, is constant
    over the block, so its share of a dot product is ``32 * offset`` times the mean of the block's
    inputs. Those means become further input columns (one per block, so 3% more) with the offsets,
    rounded to 4 bits, as weights: the remaining error is that of 8 bits.

    Costs a sort of every block, unless the first rows already show that the answer is None.
    """
    sample = weight[:8]
    if len(weight) > len(sample) and _levels(_blocks(sample)) is None:
        return None
    try:
        levels, step, zero_points, offsets = _by_rows(_kept, weight)
    except _Finer:
        return None
    n_means = 0
    if bool((np.abs(offsets) > 1e-3 * step).any()):
        n_means = levels.shape[1]
        mean_levels, mean_steps, mean_zero_points = _round_to_four_bits(offsets * _BLOCK)
        levels = np.concatenate([levels, mean_levels], axis=1)
        step = np.concatenate([step, mean_steps], axis=1)
        zero_points = np.concatenate([zero_points, mean_zero_points], axis=1)
    return _packed(weight.shape[1] + n_means, n_means, levels, step, zero_points)


def _blocks(weight: FloatArray, block: int = _BLOCK) -> FloatArray:
    n_outputs, n_inputs = weight.shape
    if n_inputs % block:
        raise ValueError(f"{n_inputs} inputs are not a multiple of {block}")
    return weight.reshape(n_outputs, n_inputs // block, block)


class _Finer(Exception):
    """A block has more levels than 4 bits."""


def _kept(weight: FloatArray) -> tuple[npt.NDArray[Any], ...]:
    """Return levels, steps, zero points and offsets of rows in 4 bits, as in `four_bit`."""
    blocks = _blocks(weight)
    found = _levels(blocks)
    if found is None:
        raise _Finer
    low, step = found
    levels = np.rint((blocks - low[..., None]) / step[..., None]).astype(np.uint8)
    zero_points = np.clip(np.rint(-low / step), 0, _TOP)
    return levels, step, zero_points, low + zero_points * step


def _levels(blocks: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return ``(low, step)`` of every block, if each lies on at most 16 evenly spaced levels."""
    ordered = np.sort(blocks, axis=-1)
    low = ordered[..., 0]
    span = ordered[..., -1] - low
    gaps = np.diff(ordered, axis=-1)
    # Values of one level differ by rounding only; those of two levels by span / 15 at least.
    gaps[gaps < span[..., None] * 1e-3] = np.inf
    smallest = gaps.min(axis=-1)
    constant = span == 0
    smallest[constant] = 1
    steps = np.zeros_like(smallest)
    # Neighbouring levels may be unused: the smallest gap may be a multiple of the step.
    for divisor in (1, 2, 3):
        n_steps = np.rint(span / smallest * divisor)
        candidate = np.where(constant, 1, span / np.maximum(n_steps, 1))
        positions = (blocks - low[..., None]) / candidate[..., None]
        fits = (n_steps <= _TOP) & (np.abs(positions - np.rint(positions)).max(axis=-1) < 0.01)
        take = fits & (steps == 0)
        steps[take] = candidate[take]
        if bool((steps > 0).all()):
            return low, steps
    return None


def _round_to_four_bits(weight: FloatArray) -> tuple[ByteArray, FloatArray, FloatArray]:
    """Return levels, steps and zero points of the nearest 4-bit matrix, padded to whole blocks."""
    padded = np.pad(weight, ((0, 0), (0, -weight.shape[1] % _BLOCK)))
    blocks = _blocks(padded)
    low = np.minimum(blocks.min(axis=-1), 0)
    high = np.maximum(blocks.max(axis=-1), 0)
    steps = (high - low) / _TOP
    steps[steps == 0] = 1
    zero_points = np.rint(-low / steps)
    levels = np.clip(np.rint(blocks / steps[..., None]) + zero_points[..., None], 0, _TOP)
    return levels.astype(np.uint8), steps, zero_points


def _packed(
    n_inputs: int, n_means: int, levels: ByteArray, steps: FloatArray, zero_points: FloatArray
) -> QuantizedMatrix:
    """Return a 4-bit matrix."""
    scales = np.ascontiguousarray(steps, dtype=np.float32)
    zeros = _pack(zero_points.astype(np.uint8))
    values = _pack(levels)
    return QuantizedMatrix(4, len(levels), n_inputs, n_means, _BLOCK, values, scales, zeros)


def _pack(levels: ByteArray) -> ByteArray:
    """Pack two 4-bit numbers per byte along the last axis, the first one in the lower half."""
    if levels.shape[-1] % 2:
        levels = np.concatenate([levels, np.zeros_like(levels[..., :1])], axis=-1)
    return np.ascontiguousarray(levels[..., 0::2] | (levels[..., 1::2] << 4))


Matrix = QuantizedMatrix | HalfMatrix

Target = Literal["cpu", "cuda"]

_MICROSOFT = "com.microsoft"
_FLOAT, _INT32, _INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
_DATA = "model.onnx.data"
_PAGE = 4096  # tensors begin at pages of memory, so that the runtime can map them
_INLINE_BYTES = 1024  # smaller tensors stay in model.onnx: shape inference must read some of them

INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
}
"""Names of the graph's inputs, by their names in ``genai_config.json``."""

OUTPUTS = {
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}
"""Names of the graph's outputs, by their names in ``genai_config.json``."""

SEARCH = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "top_k": 1,
    "length_penalty": 1.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "do_sample": False,
    "early_stopping": True,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
}
"""The runtime's own search settings, for ``genai_config.json``."""

HIDDEN_STATES = "hidden_states"
"""Name of the output with a vector per token. The runtime returns such further outputs by name."""


def save_masked(model: ir.Model, size: int, plain: Path) -> Path:
    """Write a graph with a mask beside the plain one; it contains the plain one's digest.

    Args:
        model: the model, to which the mask is added.
        size: the width of its scores.
        plain: the plain graph's file.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: see `_add_mask`.
    """
    _add_mask(model.graph, size)
    model.metadata_props["structgen.mask_of"] = sha256(plain)
    target = masked(plain)
    aside = target.with_name(f".{os.urandom(8).hex()}.part")  # of this call alone
    try:
        ir.save(model, aside)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return target


def _add_mask(graph: ir.Graph, size: int) -> None:
    """Add a mask to a graph's scores, which makes those of forbidden tokens minus infinity.

    The mask is a further input, `structgen.models.base.MASK_INPUT`, for all positions of a row.
    Tokens can then be chosen on the device, without copying scores to the host. The mask's bits
    become numbers by a lookup of each byte.

    Args:
        graph: a decoder, whose output ``logits`` becomes the output of a further node.
        size: the width of the scores.

    Raises:
        ValueError: it has no such output, or already has a mask.

    Cost: 0.5% of a pass over 64 tokens of Qwen2.5 0.5B; a step saves more.
    """
    places = [i for i, output in enumerate(graph.outputs) if output.name == OUTPUTS["logits"]]
    if not places or any(given.name == MASK_INPUT for given in graph.inputs):
        raise ValueError("it already has a mask" if places else f"no output {OUTPUTS['logits']!r}")
    scores = graph.outputs[places[0]]
    n_bytes = 4 * -(-size // 32)
    mask = _value(MASK_INPUT, ir.DataType.UINT8, ["rows", 1, n_bytes])
    graph.inputs.append(mask)

    def constant(name: str, array: npt.NDArray[Any]) -> ir.Value:
        return registered(graph, ir.tensor(array, name=f"structgen.{name}"))

    def one(op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        node = ir.node(op_type, inputs, attributes, name=f"/structgen/mask/{op_type}")
        node.outputs[0].name = f"/structgen/mask/{op_type}/output_0"
        graph.append(node)
        return node.outputs[0]

    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    dtype = _FLOAT if scores.dtype is None else scores.dtype
    addends = np.where(bits == 1, 0, -np.inf).astype(dtype.numpy())
    looked_up = one("Gather", constant("addends", addends), one("Cast", mask, to=_INT32), axis=0)
    addend = one("Reshape", looked_up, constant("row", np.array([0, 0, -1], np.int64)))
    if 8 * n_bytes > size:
        ends = [np.array([i], np.int64) for i in (0, size, 2)]
        named = zip(("first", "end", "axis"), ends, strict=True)
        addend = one("Slice", addend, *(constant(name, end) for name, end in named))
    shape, scores.name = scores.shape, "/structgen/mask/logits"
    masked = one("Add", scores, addend)
    masked.name, masked.type, masked.shape = OUTPUTS["logits"], ir.TensorType(dtype), shape
    graph.outputs[places[0]] = masked


def registered(graph: ir.Graph, tensor: ir.TensorProtocol) -> ir.Value:
    """Return a constant of a graph."""
    value = ir.Value(name=tensor.name, const_value=tensor)
    graph.register_initializer(value)
    return value


class GraphBuilder:
    """Builds a decoder graph: `embed`, then `layer` for each layer, then `head`, then `save`.

    Args:
        shape: the model's hyperparameters.
        folder: where ``model.onnx.data`` is written with the graph, so that only one matrix is in
            memory.
        target: the device. ``"cuda"``: numbers between operators, scales and the cache have 16
            bits, as with the builder.
    """

    def __init__(self, shape: DecoderShape, folder: Path, target: Target = "cpu") -> None:
        self._shape = shape
        self._dtype = _FLOAT if target == "cpu" else ir.DataType.FLOAT16
        # On the CPU inputs are rounded to 8 bits, 20 times faster than float32.
        self._accuracy_level = 4 if target == "cpu" else 0
        self._folder = folder
        (folder / _DATA).touch()
        self._input_ids = _value(INPUTS["input_ids"], _INT64, ["batch_size", "sequence_length"])
        mask = _value(INPUTS["attention_mask"], _INT64, ["batch_size", "total_sequence_length"])
        self._graph = ir.Graph(
            [self._input_ids, mask],
            [],
            nodes=[],
            name="main_graph",
            opset_imports={"": 21, _MICROSOFT: 1},
        )
        self._ropes = {
            rope: [self._turns(rope, of, f"_{i}" if i else "") for of in (np.cos, np.sin)]
            for i, rope in enumerate(shape.ropes)
        }
        # Last position of each sequence, and the longest length: both int32.
        base = "/model/attn_mask_reformat"
        one = self._constant("one", np.array([1], np.int64))
        lengths = self._one("ReduceSum", f"{base}/ReduceSum", mask, one, keepdims=0)
        last = self._one("Sub", f"{base}/Sub", lengths, one)
        self._seqlens_k = self._one("Cast", f"{base}/Sub/Cast", last, to=_INT32)
        size = self._one("Shape", f"{base}/Shape", mask)
        axis = self._constant("axis", np.array(1, np.int64))
        longest = self._one("Gather", f"{base}/Gather", size, axis, axis=0)
        self._total_length = self._one("Cast", f"{base}/Gather/Cast", longest, to=_INT32)
        self._presents: list[ir.Value] = []
        self._n_layers = 0
        self._split_sizes: ir.Value | None = None
        # The residual stream: `_hidden` plus, from the first layer on, the last block's `_delta`,
        # which the next norm adds in passing.
        self._hidden: ir.Value
        self._delta: ir.Value | None = None
        self._table: tuple[Matrix, list[ir.Value]]

    def embed(self, table: Matrix) -> None:
        """Look token ids up in a ``(vocab_size, hidden_size)`` table."""
        name = "/model/embed_tokens"
        weights = self._weights(
            "model.embed_tokens" if not self._shape.is_tied else "lm_head", table
        )
        self._table = table, weights
        self._hidden = self._looked_up(name, table, weights)
        if self._shape.embedding_scale != 1:
            self._hidden = self._times(f"{name}/Mul", self._hidden, self._shape.embedding_scale)

    def _looked_up(self, name: str, table: Matrix, weights: list[ir.Value]) -> ir.Value:
        if isinstance(table, HalfMatrix):
            found = self._one("Gather", f"{name}/Gather", weights[0], self._input_ids, axis=0)
            return self._widened(name, found)
        # The head's three-dimensional blocks, reshaped to the rows that the gather expects.
        rows = np.array([table.n_outputs, table.n_inputs * table.bits // 8], np.int64)
        shape = self._constant("model.embed_tokens.shape", rows)
        return self._one(
            "GatherBlockQuantized",
            f"{name}/GatherBlockQuantized",
            self._one("Reshape", f"{name}/Reshape", weights[0], shape),
            self._input_ids,
            *weights[1:],
            domain=_MICROSOFT,
            bits=table.bits,
            block_size=table.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def layer(
        self,
        weights: LayerWeights,
        *,
        qkv: Matrix,
        o: Matrix,
        gate_up: Matrix,
        down: Matrix,
        qkv_bias: FloatArray | None = None,
    ) -> None:
        """Add the next transformer block.

        Args:
            weights: its norms and the bias of ``o``.
            qkv: its projections of queries, keys and values, stacked along the outputs.
            o: the projection after the attention.
            gate_up: the projections of gate and up, stacked.
            down: the last projection.
            qkv_bias: the biases of ``qkv``.
        """
        base = f"/model/layers.{self._n_layers}"
        attention = self._shape.layers[self._n_layers]
        normed = self._norm(f"{base}/input_layernorm", weights.attn_norm)
        packed = self._matmul(f"{base}/attn/qkv_proj", normed, qkv, bias=qkv_bias)
        attended = self._attention(f"{base}/attn", packed, weights, attention)
        delta = self._matmul(f"{base}/attn/o_proj", attended, o, bias=weights.o_bias)
        if weights.attn_post_norm is not None:
            name = f"{base}/attn_post_layernorm"
            delta = self._plain_norm(name, delta, weights.attn_post_norm)
        self._delta = delta

        normed = self._norm(f"{base}/post_attention_layernorm", weights.ffn_norm)
        both = self._matmul(f"{base}/mlp/gate_up_proj", normed, gate_up)
        gate, up = self._node("Split", f"{base}/mlp/Split", [both], 2, axis=-1, num_outputs=2)
        activated = self._activate(f"{base}/mlp/act_fn", gate)
        product = self._one("Mul", f"{base}/mlp/Mul", activated, up)
        delta = self._matmul(f"{base}/mlp/down_proj", product, down)
        if weights.ffn_post_norm is not None:
            delta = self._plain_norm(f"{base}/ffn_post_layernorm", delta, weights.ffn_post_norm)
        self._delta = delta
        self._n_layers += 1

    def head(self, norm: FloatArray, head: Matrix | None, *, hidden_states: bool = False) -> None:
        """Add the last norm and the output projection.

        Args:
            norm: the norm's gain.
            head: the projection; None: the embedding table itself.
            hidden_states: whether the projection's input is also an output.
        """
        normed = self._norm("/model/final_norm", norm, is_last=True)
        if head is None:
            table, weights = self._table
        else:
            table, weights = head, self._weights("lm_head", head)
        logits = self._matmul("/lm_head", normed, table, weights)
        if self._shape.logit_cap:
            small = self._times("/lm_head/Div", logits, 1 / self._shape.logit_cap)
            pressed = self._one("Tanh", "/lm_head/Tanh", small)
            logits = self._times("/lm_head/Mul", pressed, self._shape.logit_cap)
        self._describe(logits, "logits", ["batch_size", "sequence_length", self._shape.vocab_size])
        self._graph.outputs.extend([logits, *self._presents])
        if hidden_states:
            sizes: list[str | int] = ["batch_size", "sequence_length", self._shape.hidden_size]
            self._describe(normed, HIDDEN_STATES, sizes)
            self._graph.outputs.append(normed)

    def save(self) -> None:
        """Write ``model.onnx``, which has the place of each tensor in ``model.onnx.data``.

        The same graph with a mask is written beside it (`save_masked`).
        """
        model = ir.Model(self._graph, ir_version=10, producer_name="structgen")
        plain = self._folder / "model.onnx"
        ir.save(model, plain)
        save_masked(model, self._shape.vocab_size, plain)

    def _constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        if array.dtype == np.float32:
            array = array.astype(self._dtype.numpy())
        tensor: ir.TensorProtocol = ir.tensor(array, name=name)
        if array.nbytes >= _INLINE_BYTES:
            tensor = self._append(name, tensor.dtype, array.shape, [array])
        return registered(self._graph, tensor)

    def _turns(self, rope: Rope, of: np.ufunc, suffix: str) -> ir.Value:
        """Return the cosines or sines of all positions, made in pieces, because they may be
        gigabytes."""
        n, step, dtype = self._shape.context_length, PIECE // rope.size, self._dtype.numpy()
        places = ((at, min(at + step, n)) for at in range(0, n, step))
        pieces = (rope.table(of, *place).astype(dtype) for place in places)
        name = f"{of.__name__}_cache{suffix}"
        tensor = self._append(name, self._dtype, (n, rope.size // 2), pieces)
        return registered(self._graph, tensor)

    def _append(
        self,
        name: str,
        dtype: ir.DataType,
        shape: tuple[int, ...],
        pieces: Iterable[npt.NDArray[Any]],
    ) -> ir.ExternalTensor:
        """Write a tensor at the end of the data."""
        with (self._folder / _DATA).open("ab") as data:
            data.write(b"\0" * (-data.tell() % _PAGE))
            offset = data.tell()
            for piece in pieces:
                data.write(piece.tobytes())
            length = data.tell() - offset
        return ir.ExternalTensor(
            _DATA, offset, length, dtype, shape=ir.Shape(shape), name=name, base_dir=self._folder
        )

    def _weights(self, name: str, matrix: Matrix) -> list[ir.Value]:
        if isinstance(matrix, HalfMatrix):
            return [self._constant(f"{name}.weight", matrix.values)]
        weights = [
            self._constant(f"{name}.qweight", matrix.values),
            self._constant(f"{name}.scales", matrix.scales),
        ]
        if matrix.zero_points is not None:
            weights.append(self._constant(f"{name}.qzeros", matrix.zero_points))
        return weights

    def _node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[ir.Value | None],
        n_outputs: int = 1,
        domain: str = "",
        **attributes: int | float | str | Sequence[int],
    ) -> Sequence[ir.Value]:
        node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=n_outputs, name=name)
        for i, output in enumerate(node.outputs):
            output.name = f"{name}/output_{i}"
        self._graph.append(node)
        return node.outputs

    def _one(
        self, op_type: str, name: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any
    ) -> ir.Value:
        """Add a node with one output, and return the output."""
        return self._node(op_type, name, inputs, 1, domain, **attributes)[0]

    def _widened(self, name: str, value: ir.Value) -> ir.Value:
        """Return 16-bit numbers in the type of the operators."""
        if self._dtype != _FLOAT:
            return value
        return self._one("Cast", f"{name}/Cast", value, to=_FLOAT)

    def _describe(self, value: ir.Value, name: str, shape: Sequence[str | int]) -> None:
        """Turn an intermediate value into a graph output."""
        value.name, value.type, value.shape = name, ir.TensorType(self._dtype), ir.Shape(shape)

    def _norm(self, name: str, weight: FloatArray, is_last: bool = False) -> ir.Value:
        """Normalize the residual stream, after adding the pending delta."""
        gain = self._constant(f"{_initializer(name)}.weight", weight)
        if self._delta is None:
            return self._rms_norm(f"{name}/LayerNorm", self._hidden, gain)
        outputs = self._node(
            "SkipSimplifiedLayerNormalization",
            f"{name}/SkipLayerNorm",
            [self._hidden, self._delta, gain],
            1 if is_last else 4,
            _MICROSOFT,
            epsilon=self._shape.rms_epsilon,
        )
        if not is_last:
            # The mean and the inverse deviation exist only for training; no name means unused.
            outputs[1].name = outputs[2].name = ""
            self._hidden = outputs[3]
        return outputs[0]

    def _plain_norm(self, name: str, x: ir.Value, weight: FloatArray) -> ir.Value:
        """Normalize something other than the residual stream."""
        gain = self._constant(f"{_initializer(name)}.weight", weight)
        return self._rms_norm(f"{name}/LayerNorm", x, gain)

    def _rms_norm(self, name: str, x: ir.Value, gain: ir.Value) -> ir.Value:
        kind, epsilon = "SimplifiedLayerNormalization", self._shape.rms_epsilon
        return self._one(kind, name, x, gain, axis=-1, epsilon=epsilon, stash_type=1)

    def _activate(self, name: str, gate: ir.Value) -> ir.Value:
        if self._shape.family.activation == "gelu":
            return self._one("Gelu", f"{name}/Gelu", gate, approximate="tanh")
        sigmoid = self._one("Sigmoid", f"{name}/Sigmoid", gate)
        return self._one("Mul", f"{name}/Mul", gate, sigmoid)

    def _times(self, name: str, x: ir.Value, factor: float) -> ir.Value:
        constant = self._constant(f"{_initializer(name)}.factor", np.array(factor, np.float32))
        return self._one("Mul", name, x, constant)

    def _matmul(
        self,
        name: str,
        x: ir.Value,
        matrix: Matrix,
        weights: list[ir.Value] | None = None,
        bias: FloatArray | None = None,
    ) -> ir.Value:
        if weights is None:
            weights = self._weights(_initializer(name), matrix)
        if isinstance(matrix, HalfMatrix):
            wide = self._widened(name, weights[0])
            product = self._one(
                "FusedMatMul", f"{name}/MatMul", x, wide, domain=_MICROSOFT, transB=1
            )
            if bias is None:
                return product
            addend = self._constant(f"{_initializer(name)}.bias", bias)
            return self._one("Add", f"{name}/Add", product, addend)
        inputs: list[ir.Value | None] = [x, *weights]
        if bias is not None:
            inputs += [None] * (5 - len(inputs))
            inputs.append(self._constant(f"{_initializer(name)}.bias", bias))
        if matrix.n_means:
            # (batch, sequence, channels) is to the pool a batch of `sequence` one-line pictures.
            pool = f"{name}/means/AveragePool"
            means = self._one("AveragePool", pool, x, kernel_shape=[_BLOCK], strides=[_BLOCK])
            inputs[0] = self._one("Concat", f"{name}/means/Concat", x, means, axis=-1)
        return self._one(
            "MatMulNBits",
            f"{name}/MatMulNBits",
            *inputs,
            domain=_MICROSOFT,
            K=matrix.n_inputs,
            N=matrix.n_outputs,
            bits=matrix.bits,
            block_size=matrix.block,
            accuracy_level=self._accuracy_level,
        )

    def _attention(
        self, name: str, packed: ir.Value, weights: LayerWeights, attention: Attention
    ) -> ir.Value:
        shape, i = self._shape, self._n_layers
        dims: list[str | int] = [
            "batch_size",
            shape.n_kv_heads,
            "past_sequence_length",
            shape.head_size,
        ]
        names = [INPUTS[key] % i for key in ("past_key_names", "past_value_names")]
        past = [_value(name, self._dtype, dims) for name in names]
        self._graph.inputs.extend(past)
        # Keys and values are packed after the queries in the first input.
        qkv: list[ir.Value | None] = [packed, None, None]
        if weights.q_norm is not None and weights.k_norm is not None:
            qkv = self._split(name, packed, weights.q_norm, weights.k_norm)
        tables = self._ropes[attention.rope] if attention.rope is not None else []
        is_near = 0 < attention.window < shape.context_length
        attended, *present = self._node(
            "GroupQueryAttention",
            f"{name}/GroupQueryAttention",
            [*qkv, *past, self._seqlens_k, self._total_length, *tables],
            3,
            _MICROSOFT,
            num_heads=shape.n_heads,
            kv_num_heads=shape.n_kv_heads,
            scale=shape.attention_scale,
            local_window_size=attention.window if is_near else -1,
            softcap=shape.attention_cap,
            do_rotary=int(attention.rope is not None),
            rotary_interleaved=0,
        )
        dims = ["batch_size", shape.n_kv_heads, "total_sequence_length", shape.head_size]
        for value, key in zip(present, ("present_key_names", "present_value_names"), strict=True):
            self._describe(value, OUTPUTS[key] % i, dims)
            self._presents.append(value)
        return attended

    def _split(
        self, name: str, packed: ir.Value, q_norm: FloatArray, k_norm: FloatArray
    ) -> list[ir.Value | None]:
        """Split queries, keys and values, the first two normalized head by head."""
        shape = self._shape
        sizes = [count * shape.head_size for count in (shape.n_heads, *[shape.n_kv_heads] * 2)]
        if self._split_sizes is None:
            self._split_sizes = self._constant("qkv_sizes", np.array(sizes, np.int64))
        parts = list(self._node("Split", f"{name}/Split", [packed, self._split_sizes], 3, axis=-1))
        for which, (letter, gain) in enumerate((("q", q_norm), ("k", k_norm))):
            base = f"{name}/{letter}_norm"
            heads = self._reshape(f"{base}/heads", parts[which], [0, 0, -1, shape.head_size])
            normed = self._plain_norm(base, heads, gain)
            parts[which] = self._reshape(f"{base}/row", normed, [0, -1, sizes[which]])
        return [*parts]

    def _reshape(self, name: str, x: ir.Value, dims: list[int]) -> ir.Value:
        shape = self._constant(f"{_initializer(name)}.shape", np.array(dims, np.int64))
        return self._one("Reshape", name, x, shape)


def _value(name: str, dtype: ir.DataType, shape: Sequence[str | int]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def _initializer(node_name: str) -> str:
    return node_name.strip("/").replace("/", ".")
