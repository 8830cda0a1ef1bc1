"""Learn from a few sentences how large each channel is, and smooth what is rounded to 8 bits.

The CPU kernels round a projection's *input* to 8 bits too, with one scale for 32 channels, so a
single large channel drowns its 31 neighbours. Dividing such channels before the projection and
multiplying its columns by the same number changes nothing but that rounding (SmoothQuant, Xiao et
al. 2023). The division costs nothing at run time: it disappears into the normalisation's weights
(before the query, key and value projections) or into the rows of the value projection (before the
output projection).

Owns a plain float32 forward pass, one layer at a time, and the choice of the divisors. Knows
nothing of files or graphs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .decoder import Attention, DecoderShape, LayerWeights, Rope

FloatArray = npt.NDArray[np.float32]

_TURNS = (
    ("system", "You are a helpful assistant."),
    ("user", "Write a short poem about the sea."),
    ("assistant", "The waves roll in, the waves roll out, and gulls above them wheel about."),
)
_DOCUMENTS = (
    '{"name": "Ada Lovelace", "born": "1815-12-10", "languages": ["English", "French"], '
    '"active": true, "score": 42.5}\n',
    "import math\n\ndef area(radius):\n    return math.pi * radius ** 2\n",
)


_MARKERS = (
    ("<|im_start|>", "\n", "<|im_end|>\n"),
    ("<start_of_turn>", "\n", "<end_of_turn>\n"),
    ("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
)


def texts(knows: Callable[[str], bool]) -> list[str]:
    """What the forward pass reads: a conversation, JSON and code, about 100 tokens together.

    Args:
        knows: whether a text is a token. A chat model's activations are largest on the tokens that
            mark turns, so the conversation should carry those that the model knows.
    """
    found = [marks for marks in _MARKERS if knows(marks[0])]
    start, join, end = found[0] if found else ("", ": ", "\n")
    return ["".join(f"{start}{who}{join}{text}{end}" for who, text in _TURNS), *_DOCUMENTS]


_STRENGTH = 0.9
# 0 would follow the weights only, 1 the activations only. On SmolLM2-135M, 148 held-out positions:
# mean cosine to float32 0.9986, 0.9988, 0.9984, 0.9981 at 0.7, 0.8, 0.9, 1.0; the first three are
# equal within noise (0.0003). 0.9 was taken because there the near tie at the start of an answer
# to "What is the capital of France?" ("The" 25.33, "L" 25.24 in float32) falls the right way in
# each of 16 slightly disturbed runs; without smoothing it did in 1 of 8.


class Calibration:
    """A float32 forward pass over several token sequences, advanced layer by layer.

    Args:
        shape: hyperparameters of the model.
        embedding: float32 ``(vocab_size, hidden_size)``.
        sequences: token ids; each at least two tokens.

    Attributes:
        shape: as given.
    """

    def __init__(
        self, shape: DecoderShape, embedding: FloatArray, sequences: list[list[int]]
    ) -> None:
        self.shape = shape
        # All sequences in one matrix: fewer and larger products, which matters most on a machine
        # whose other cores are busy.
        rows = embedding[np.concatenate([np.asarray(ids) for ids in sequences])]
        self._hidden = rows * np.float32(shape.embedding_scale)
        ends = np.cumsum([len(ids) for ids in sequences])
        self._parts = [slice(end - len(ids), end) for end, ids in zip(ends, sequences, strict=True)]
        self._is_later = np.ones(len(self._hidden), bool)
        self._is_later[[part.start for part in self._parts]] = False
        self._positions = np.concatenate([np.arange(len(ids)) for ids in sequences])
        n_positions = int(self._positions.max()) + 1
        self._tables = {rope: rope.tables(n_positions) for rope in shape.ropes}
        self._n_layers = 0

    def advance(self, weights: LayerWeights) -> tuple[FloatArray, FloatArray]:
        """Run the next layer.

        Returns:
            Root mean square, over all tokens, of each channel of the normalised input
            ``(hidden_size,)`` and of the attention's output ``(n_heads * head_size,)``. First
            tokens are left out: models park attention on them with values of no other token.
        """
        normed = self._norm(self._hidden, weights.attn_norm)
        attended = self._attend(normed, weights, self.shape.layers[self._n_layers])
        rms = _rms(normed[self._is_later]), _rms(attended[self._is_later])
        delta = _project(attended, weights.o, weights.o_bias)
        self._hidden = self._hidden + self._norm_behind(delta, weights.attn_post_norm)
        normed = self._norm(self._hidden, weights.ffn_norm)
        gated = self._activate(normed @ weights.gate.T) * (normed @ weights.up.T)
        delta = self._norm_behind(gated @ weights.down.T, weights.ffn_post_norm)
        self._hidden = self._hidden + delta
        self._n_layers += 1
        return rms

    def _activate(self, gate: FloatArray) -> FloatArray:
        if self.shape.activation == "gelu":
            inner = np.float32((2 / np.pi) ** 0.5) * (gate + np.float32(0.044715) * gate**3)
        else:
            # SiLU as a tanh: exp would overflow, and warn, on large negative inputs.
            inner = np.float32(0.5) * gate
        activated: FloatArray = gate * (0.5 + 0.5 * np.tanh(inner))
        return activated

    def _norm(self, hidden: FloatArray, weight: FloatArray) -> FloatArray:
        mean_square = np.mean(hidden * hidden, axis=-1, keepdims=True)
        normed: FloatArray = hidden / np.sqrt(mean_square + self.shape.rms_epsilon) * weight
        return normed

    def _norm_behind(self, delta: FloatArray, weight: FloatArray | None) -> FloatArray:
        return delta if weight is None else self._norm(delta, weight)

    def _attend(
        self, normed: FloatArray, weights: LayerWeights, attention: Attention
    ) -> FloatArray:
        shape, n = self.shape, len(normed)
        heads = (n, shape.n_heads, shape.head_size), (n, shape.n_kv_heads, shape.head_size)
        q = _project(normed, weights.q, weights.q_bias).reshape(heads[0])
        k = _project(normed, weights.k, weights.k_bias).reshape(heads[1])
        v = _project(normed, weights.v, weights.v_bias).reshape(heads[1])
        q = self._rotate(self._norm_behind(q, weights.q_norm), attention.rope)
        k = self._rotate(self._norm_behind(k, weights.k_norm), attention.rope)
        group = shape.n_heads // shape.n_kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        attended = np.empty_like(q)
        for part in self._parts:
            scores = np.einsum("thd,shd->hts", q[part], k[part]) * np.float32(shape.attention_scale)
            if shape.attention_cap:
                scores = shape.attention_cap * np.tanh(scores / shape.attention_cap)
            is_seen = np.tri(scores.shape[-1], dtype=bool)
            if attention.window:
                is_seen &= ~np.tri(scores.shape[-1], k=-attention.window, dtype=bool)
            scores = np.where(is_seen, scores, np.float32(-1e30))
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            attended[part] = np.einsum("hts,shd->thd", scores, v[part])
        return attended.reshape(n, -1)

    def _rotate(self, heads: FloatArray, rope: Rope | None) -> FloatArray:
        if rope is None:
            return heads
        cos, sin = (table[self._positions, None] for table in self._tables[rope])
        first, second = np.split(heads[..., : rope.size], 2, axis=-1)
        turned = [first * cos - second * sin, second * cos + first * sin, heads[..., rope.size :]]
        return np.concatenate(turned, axis=-1)


def smooth(weights: LayerWeights, shape: DecoderShape, rms: tuple[FloatArray, FloatArray]) -> None:
    """Rescale one layer in place, so that the inputs of q, k, v and o round to 8 bits well.

    Args:
        weights: the layer; computes the same function before and after.
        shape: hyperparameters of the model.
        rms: what `Calibration.advance` returned for this layer.
    """
    columns = np.sqrt(sum(np.sum(w * w, axis=0) for w in (weights.q, weights.k, weights.v)))
    divisor = _divisor(rms[0], columns)
    weights.attn_norm = weights.attn_norm / divisor
    weights.q, weights.k, weights.v = (w * divisor for w in (weights.q, weights.k, weights.v))

    divisor = _divisor(rms[1], np.sqrt(np.sum(weights.o * weights.o, axis=0)))
    # All query heads of a group read one value head, so they share its divisors.
    group = shape.n_heads // shape.n_kv_heads
    logs = np.log(divisor).reshape(shape.n_kv_heads, group, shape.head_size).mean(axis=1)
    weights.v = weights.v / np.exp(logs).reshape(-1, 1)
    if weights.v_bias is not None:
        weights.v_bias = weights.v_bias / np.exp(logs).reshape(-1)
    weights.o = weights.o * np.exp(np.repeat(logs, group, axis=0)).reshape(-1)


def _project(x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
    product: FloatArray = x @ weight.T
    return product if bias is None else product + bias


def _rms(values: FloatArray) -> FloatArray:
    result: FloatArray = np.sqrt(np.mean(values * values, axis=0))
    return result


def _divisor(activations: FloatArray, columns: FloatArray) -> FloatArray:
    """One positive divisor a channel, of geometric mean 1."""
    smallest = np.float32(1e-3)  # of the median: channels that are never used must not explode
    activations = np.maximum(activations, smallest * np.median(activations) + 1e-12)
    columns = np.maximum(columns, smallest * np.median(columns) + 1e-12)
    logs = _STRENGTH * np.log(activations) - (1 - _STRENGTH) * np.log(columns)
    divisor: FloatArray = np.exp(logs - logs.mean()).astype(np.float32)
    return divisor
