"""Convert a language model: the order of the work, the types of weights, ``genai_config.json``.

The types of weights, chosen by measurements on SmolLM2-135M (figures in docs/models.md):

- feed-forward projections that the GGUF file holds in 4 bits stay exactly as they are;
- everything else has 8 bits, the attention after smoothing.

The CPU kernels round a projection's *input* to 8 bits too, with one scale for 32 channels, so a
single large channel drowns its 31 neighbours. `smooth` divides such channels before the projection
and multiplies its columns by the same number, which changes nothing but that rounding (SmoothQuant,
Xiao et al. 2023). It learns from a few sentences, by a plain float32 forward pass, how large each
channel is. The division costs nothing at run time: it becomes part of the normalisation's weights
(before the query, key and value projections) or of the rows of the value projection (before the
output projection).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from structgen.errors import ConversionError
from structgen.models import trial
from structgen.models.loading import explaining_panics
from structgen.models.progress import Progress

from .decoder import Attention, Checkpoint, DecoderShape, FloatArray, LayerWeights, Rope, understood
from .gguf import GgufCheckpoint
from .graph import (
    INPUTS,
    OUTPUTS,
    SEARCH,
    GraphBuilder,
    Matrix,
    Target,
    eight_bit,
    four_bit,
    half,
    to_four_bits,
)
from .hugging_face import HuggingFaceCheckpoint
from .whisper import is_whisper
from .whisper import write as write_whisper

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
    """Return texts for the forward pass: a conversation, JSON and code, about 100 tokens.

    Args:
        knows: returns whether a text is a token. A chat model's activations are largest on the
            tokens that mark turns, so the conversation should have those that the model knows.
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
        sequences: token ids, at least two tokens each.
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
        self._tables = {
            rope: [rope.table(of, 0, n_positions) for of in (np.cos, np.sin)]
            for rope in shape.ropes
        }
        self._n_layers = 0

    def advance(self, weights: LayerWeights) -> tuple[FloatArray, FloatArray]:
        """Run the next layer.

        Returns:
            Root mean square, over all tokens, of each channel of the normalised input
            ``(hidden_size,)`` and of the attention's output ``(n_heads * head_size,)``. First
            tokens are left out, because models park attention on them with unusual values.
        """
        normed = self._norm(self._hidden, weights.attn_norm)
        attended = self._attend(normed, weights, self.shape.layers[self._n_layers])
        rms = _rms(normed[self._is_later]), _rms(attended[self._is_later])
        delta = _project(attended, weights.o, weights.o_bias)
        self._hidden = self._hidden + self._norm_behind(delta, weights.attn_post_norm)
        normed = self._norm(self._hidden, weights.ffn_norm)
        gated = self._activate(normed @ weights.gate.T) * (normed @ weights.up.T)
        delta = _project(gated, weights.down, None)
        self._hidden = self._hidden + self._norm_behind(delta, weights.ffn_post_norm)
        self._n_layers += 1
        return rms

    def _activate(self, gate: FloatArray) -> FloatArray:
        if self.shape.family.activation == "gelu":
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
        group = shape.n_heads // shape.n_kv_heads

        def projected(weight: FloatArray, bias: FloatArray | None) -> FloatArray:
            return _project(normed, weight, bias).reshape(n, -1, shape.head_size)

        q = projected(weights.q, weights.q_bias)
        k = projected(weights.k, weights.k_bias)
        v = projected(weights.v, weights.v_bias)
        q = self._rotate(self._norm_behind(q, weights.q_norm), attention.rope)
        k = self._rotate(self._norm_behind(k, weights.k_norm), attention.rope)
        attended = np.empty_like(q)
        for part, head in itertools.product(self._parts, range(shape.n_heads)):
            seen = part, head // group
            scores = q[part, head] @ k[seen].T * np.float32(shape.attention_scale)
            if shape.attention_cap:
                scores = shape.attention_cap * np.tanh(scores / shape.attention_cap)
            is_seen = np.tri(len(scores), dtype=bool)
            if attention.window:
                is_seen &= ~np.tri(len(scores), k=-attention.window, dtype=bool)
            scores = np.where(is_seen, scores, np.float32(-1e30))
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            attended[part, head] = scores / scores.sum(axis=-1, keepdims=True) @ v[seen]
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
        weights: the layer, which computes the same function before and after.
        shape: hyperparameters of the model.
        rms: the result of `Calibration.advance` for this layer.
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
    """Return a positive divisor per channel, with geometric mean 1."""
    smallest = np.float32(1e-3)  # of the median: unused channels must not explode
    activations = np.maximum(activations, smallest * np.median(activations) + 1e-12)
    columns = np.maximum(columns, smallest * np.median(columns) + 1e-12)
    logs = _STRENGTH * np.log(activations) - (1 - _STRENGTH) * np.log(columns)
    divisor: FloatArray = np.exp(logs - logs.mean()).astype(np.float32)
    return divisor


def write(
    source: str,
    folder: str,
    hidden_states: bool,
    context_length: int | None,
    target: Target,
    dtype: str | None,
    *,
    report: Progress,
) -> None:
    """Write the files of a converted model into an empty folder; see `structgen.models.convert`."""
    path, out = Path(source), Path(folder)
    if is_whisper(path):
        if (hidden_states, context_length, target, dtype) != (False, None, "cpu", None):
            raise ConversionError(
                f"{path} is a Whisper model, which is converted for the CPU without options. "
                "Remove hidden_states, context_length, target and dtype."
            )
        with understood(path):
            write_whisper(path, out)
        return
    with understood(path):
        opened = HuggingFaceCheckpoint if path.is_dir() else GgufCheckpoint
        checkpoint: Checkpoint = opened(path, context_length)
    if target != "cpu" and checkpoint.shape.family.scales_embeddings:
        raise ConversionError(
            f"target={target!r} uses 16-bit numbers, which cannot hold the values of {path}. "
            "Convert it for the CPU, or use `python -m onnxruntime_genai.models.builder`."
        )
    usual, feed_forward = _ROUNDED[dtype]
    shape = checkpoint.shape
    stage, n_steps = f"Converting {path.name}", shape.n_layers + 2
    report(stage, 0, n_steps)
    with understood(path), explaining_panics(path, ConversionError):
        sequences = _write_tokenizer(checkpoint, out)
        config = json.dumps(_genai_config(checkpoint, target), ensure_ascii=False, indent=1)
    graph = GraphBuilder(shape, out, target)
    embedding = checkpoint.embedding()
    calibration = Calibration(shape, embedding, sequences)
    graph.embed(usual(embedding))
    del embedding
    report(stage, 1, n_steps)
    for layer in range(shape.n_layers):
        weights = checkpoint.layer(layer)
        smooth(weights, shape, calibration.advance(weights))
        graph.layer(
            weights,
            qkv=usual(np.concatenate([weights.q, weights.k, weights.v])),
            o=usual(weights.o),
            gate_up=feed_forward(np.concatenate([weights.gate, weights.up])),
            down=feed_forward(weights.down),
            qkv_bias=_stacked(weights),
        )
        report(stage, layer + 2, n_steps)
    head = None if shape.is_tied else usual(checkpoint.head())
    graph.head(checkpoint.final_norm(), head, hidden_states=hidden_states)
    graph.save()
    (out / "genai_config.json").write_text(config, encoding="utf-8")
    report(stage, n_steps, n_steps)


def _write_tokenizer(checkpoint: Checkpoint, folder: Path) -> list[list[int]]:
    """Write the tokenizer's files, and return the calibration texts as token ids."""
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    data, settings = checkpoint.tokenizer_files()
    file = folder / "tokenizer.json"
    file.write_bytes(data)
    if wrong := trial.text(str(file)):
        raise ConversionError(f"The tokenizer of {checkpoint.path} {wrong}.")
    tokenizer = Tokenizer.from_file(str(file))

    # The runtime supports few classes, and treats a tokenizer by its class.
    if isinstance(tokenizer.model, Unigram):
        settings["tokenizer_class"] = "T5Tokenizer"
    elif not trial.is_class(settings["tokenizer_class"]):
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    text = json.dumps(settings, ensure_ascii=False, indent=1)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def knows(text: str) -> bool:
        return tokenizer.token_to_id(text) is not None

    longest = checkpoint.shape.context_length
    sequences = [tokenizer.encode(text).ids[:longest] for text in texts(knows)]
    # A very short text is empty without its first token.
    sequences = [ids for ids in sequences if len(ids) > 1]
    if any(max(ids) >= checkpoint.shape.vocab_size for ids in sequences):
        raise ConversionError(
            f"The tokenizer of {checkpoint.path} has more tokens than its weights."
        )
    if not sequences:
        raise ConversionError(
            f"{checkpoint.path} has a context of {longest} tokens, which is too short."
        )
    return sequences


def _stacked(weights: LayerWeights) -> FloatArray | None:
    """Return the stacked biases of projections, zeros for those without; None: none has biases."""
    biases = weights.q_bias, weights.k_bias, weights.v_bias
    if all(bias is None for bias in biases):
        return None
    rows = map(len, (weights.q, weights.k, weights.v))
    parts = zip(biases, rows, strict=True)
    return np.concatenate([np.zeros(n, np.float32) if b is None else b for b, n in parts])


_ROUNDED: dict[str | None, tuple[Callable[[FloatArray], Matrix], ...]] = {
    None: (eight_bit, lambda weight: four_bit(weight) or eight_bit(weight)),
    "int8": (eight_bit, eight_bit),
    "int4": (eight_bit, to_four_bits),
    "fp16": (half, half),
}
"""How weights are rounded, by ``dtype``: all weights, and those of feed-forward layers."""


def _genai_config(checkpoint: Checkpoint, target: Target) -> dict[str, Any]:
    shape, special = checkpoint.shape, checkpoint.special_tokens()
    providers = [] if target == "cpu" else [{"cuda": {"enable_cuda_graph": "0"}}]
    return {
        "model": {
            "type": shape.family.runtime_type,
            "vocab_size": shape.vocab_size,
            "context_length": shape.context_length,
            # The runtime requires a start token; the tokenizer decides whether texts begin with it.
            "bos_token_id": special.end[0] if special.start is None else special.start,
            "eos_token_id": special.end,
            "pad_token_id": special.padding,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": providers},
                "filename": "model.onnx",
                "head_size": shape.head_size,
                "hidden_size": shape.hidden_size,
                "num_attention_heads": shape.n_heads,
                "num_hidden_layers": shape.n_layers,
                "num_key_value_heads": shape.n_kv_heads,
                "inputs": INPUTS,
                "outputs": OUTPUTS,
            },
        },
        "search": SEARCH
        | {"max_length": shape.context_length, "past_present_share_buffer": True, "top_k": 50},
    }
