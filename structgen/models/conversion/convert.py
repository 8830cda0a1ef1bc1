"""Convert a trained model into a folder that ONNX Runtime GenAI loads.

Here is the order of the work, and ``genai_config.json``. The folder appears complete or not at all:
everything is written to a hidden sibling, which is renamed at the end. Knows no catalogues, caches
or downloads.

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

import contextlib
import errno
import itertools
import json
import os
import shutil
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from structgen.errors import ConversionError, printable
from structgen.models.loading import explaining_panics
from structgen.models.progress import Progress, reporting

from .decoder import Attention, Checkpoint, DecoderShape, FloatArray, LayerWeights, Rope, understood
from .gguf import GgufCheckpoint
from .graph import (
    INPUTS,
    OUTPUTS,
    PIECE,
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


_MOST_ATTENDED = 8 * PIECE  # numbers at a time; Llama 3.1 405B has 2 million for all its heads
_MOST_TOKENS = 512  # of a text, which usually has 20 to 100; a normalizer may write 64 times more


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
        size = self.shape.head_size
        step = max(_MOST_ATTENDED // (len(normed) * size), 1)
        delta, found = np.float32(0), []
        for at in range(0, self.shape.n_heads, step):
            heads = range(at, min(at + step, self.shape.n_heads))
            attended = self._attend(normed, weights, self.shape.layers[self._n_layers], heads)
            found.append(_rms(attended[self._is_later]))
            delta = delta + attended @ weights.o[:, at * size : heads.stop * size].T
        rms = _rms(normed[self._is_later]), np.concatenate(found)
        delta = delta if weights.o_bias is None else delta + weights.o_bias
        self._hidden = self._hidden + self._norm_behind(delta, weights.attn_post_norm)
        normed = self._norm(self._hidden, weights.ffn_norm)
        step = max(PIECE // self.shape.ffn_size, 1)
        pieces = (normed[at : at + step] for at in range(0, len(normed), step))
        delta = np.concatenate([self._feed_forward(piece, weights) for piece in pieces])
        self._hidden = self._hidden + self._norm_behind(delta, weights.ffn_post_norm)
        self._n_layers += 1
        return rms

    def _feed_forward(self, normed: FloatArray, weights: LayerWeights) -> FloatArray:
        gated = self._activate(normed @ weights.gate.T) * (normed @ weights.up.T)
        return _project(gated, weights.down, None)

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
        self, normed: FloatArray, weights: LayerWeights, attention: Attention, heads: range
    ) -> FloatArray:
        """Return the results of some query heads."""
        shape, n = self.shape, len(normed)
        group = shape.n_heads // shape.n_kv_heads
        keys = range(heads[0] // group, heads[-1] // group + 1)

        def projected(which: range, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
            rows = slice(which.start * shape.head_size, which.stop * shape.head_size)
            values = _project(normed, weight[rows], None if bias is None else bias[rows])
            return values.reshape(n, len(which), shape.head_size)

        q = projected(heads, weights.q, weights.q_bias)
        k = projected(keys, weights.k, weights.k_bias)
        v = projected(keys, weights.v, weights.v_bias)
        q = self._rotate(self._norm_behind(q, weights.q_norm), attention.rope)
        k = self._rotate(self._norm_behind(k, weights.k_norm), attention.rope)
        attended = np.empty_like(q)
        # One head at a time: a file of 8 MB may have 4,096, whose scores took 1.5 GB.
        for part, head in itertools.product(self._parts, heads):
            of = part, head // group - keys.start
            scores = np.einsum("td,sd->ts", q[part, head - heads.start], k[of]) * np.float32(
                shape.attention_scale
            )
            if shape.attention_cap:
                scores = shape.attention_cap * np.tanh(scores / shape.attention_cap)
            is_seen = np.tri(scores.shape[-1], dtype=bool)
            if attention.window:
                is_seen &= ~np.tri(scores.shape[-1], k=-attention.window, dtype=bool)
            scores = np.where(is_seen, scores, np.float32(-1e30))
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            attended[part, head - heads.start] = np.einsum("ts,sd->td", scores, v[of])
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


def convert(
    source: Path,
    out: Path,
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
    context_length: int | None = None,
    target: str = "cpu",
    dtype: str | None = None,
) -> Path:
    """Convert a GGUF file or a Hugging Face folder; see `structgen.models.convert`.

    The folder holds ``model.onnx``, the same with a mask (``model.masked.onnx``), the weights of
    both (``model.onnx.data``), ``genai_config.json``, ``tokenizer.json`` and
    ``tokenizer_config.json``. It is written under a temporary name beside
    ``out`` and renamed, so that an interrupted run leaves nothing behind. When another process
    finishes the same folder first, its folder is kept.

    Returns:
        The absolute path of ``out``.

    Raises:
        ConversionError: as there; also if ``out`` exists and is not empty, or cannot be written.

    Cost: about 10 s of CPU and 0.7 GB of memory for a model of 135M parameters; memory grows with
    the largest matrix, not with their number.
    """
    final = Path(out).resolve()  # the staged folder is renamed, which is impossible for a link
    if final.exists() and not (final.is_dir() and not any(final.iterdir())):
        raise ConversionError(
            f"{final} already exists. Remove it, or choose another folder for the converted model."
        )
    layout = _layout(target)
    check_dtype(dtype)
    if is_whisper(source):
        if hidden_states or context_length is not None or layout != "cpu" or dtype is not None:
            raise ConversionError(
                f"{source} is a Whisper model, which is converted for the CPU without options. "
                "Remove hidden_states, context_length, target and dtype."
            )
        with _staged(final) as folder, understood(source):
            write_whisper(source, folder)
        return final
    opened = HuggingFaceCheckpoint if source.is_dir() else GgufCheckpoint
    with understood(source):
        checkpoint: Checkpoint = opened(source, context_length)
    if layout != "cpu" and checkpoint.shape.family.scales_embeddings:
        raise ConversionError(
            f"target={target!r} uses 16-bit numbers, which cannot hold the values of "
            f"{checkpoint.path}. Convert it for the CPU, or use `python -m "
            "onnxruntime_genai.models.builder`."
        )
    with reporting(progress) as report, _staged(final) as folder:
        _write(checkpoint, folder, report, hidden_states, layout, dtype)
    return final


def _layout(target: str) -> Target:
    if target in ("cpu", "cuda"):
        return cast("Target", target)
    if target == "dml":
        raise ConversionError(
            "target='dml' is not supported: structgen cannot test DirectML. Use "
            "`python -m onnxruntime_genai.models.builder -e dml`."
        )
    raise ConversionError(f"target={target!r} is unknown. Pass 'cpu' or 'cuda'.")


def _write(
    checkpoint: Checkpoint,
    folder: Path,
    report: Progress,
    hidden_states: bool,
    target: Target,
    dtype: str | None,
) -> None:
    usual, feed_forward = _DTYPES[dtype]
    shape = checkpoint.shape
    stage, n_steps = f"Converting {checkpoint.path.name}", shape.n_layers + 2
    report(stage, 0, n_steps)
    with understood(checkpoint.path), explaining_panics(checkpoint.path, ConversionError):
        sequences = _write_tokenizer(checkpoint, folder)
        config = json.dumps(_genai_config(checkpoint, target), ensure_ascii=False, indent=1)
    graph = GraphBuilder(shape, folder, target)
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
    (folder / "genai_config.json").write_text(config, encoding="utf-8")
    report(stage, n_steps, n_steps)


def _write_tokenizer(checkpoint: Checkpoint, folder: Path) -> list[list[int]]:
    """Write the tokenizer's files, and return the calibration texts as token ids."""
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    from structgen.models import trial

    data, settings = checkpoint.tokenizer_files()
    file = folder / "tokenizer.json"
    file.write_bytes(data)
    try:
        known = [{marks[0]} for marks in _MARKERS]
        trial.check_file(file, [text for one in known for text in texts(one.__contains__)])
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise ConversionError(
            f"The tokenizer of {checkpoint.path} does not work: {printable(str(error))}"
        ) from error

    # The runtime supports few classes, and treats a tokenizer by its class.
    if isinstance(tokenizer.model, Unigram):
        settings["tokenizer_class"] = "T5Tokenizer"
    elif not trial.is_class(settings["tokenizer_class"]):
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    text = json.dumps(settings, ensure_ascii=False, indent=1)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def knows(text: str) -> bool:
        return tokenizer.token_to_id(text) is not None

    longest = min(checkpoint.shape.context_length, _MOST_TOKENS)
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


_DTYPES: dict[str | None, tuple[Callable[[FloatArray], Matrix], ...]] = {
    None: (eight_bit, lambda weight: four_bit(weight) or eight_bit(weight)),
    "int8": (eight_bit, eight_bit),
    "int4": (eight_bit, to_four_bits),
    "fp16": (half, half),
}
"""How weights are rounded, by ``dtype``: all weights, and those of feed-forward layers."""


def check_dtype(dtype: str | None) -> None:
    """Raise `ConversionError` for an unknown ``dtype``."""
    if dtype not in _DTYPES:
        raise ConversionError(f"dtype={dtype!r} is not one of {', '.join(filter(None, _DTYPES))}.")


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


@contextlib.contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target``, which is renamed to it at the end, or removed if the
    block fails."""
    host = f"{zlib.crc32(socket.gethostname().encode()):08x}"
    ours = f"{os.getpid()}-{threading.get_ident()}"
    staging = target.parent / f".{target.name}.{host}-{ours}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.{host}-*.part"):  # left by killed processes
            pid = left.name.rsplit("-", 2)[1]
            if pid.isdigit() and not _is_running(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        staging.mkdir()
        yield staging
        with contextlib.suppress(OSError):
            target.rmdir()  # an empty folder, which some renames cannot replace
        try:
            staging.rename(target)
        except OSError:
            # Another process was faster. Its folder is as good as ours, because it was complete,
            # too, when it got its name.
            if not (target / "genai_config.json").is_file():
                raise
    except OSError as error:
        reason = (
            f"the disk is full ({shutil.disk_usage(target.parent).free // 10**6} MB free)"
            if error.errno in (errno.ENOSPC, None)  # NumPy's has no number
            else str(error)
        )
        raise ConversionError(f"Cannot write the converted model to {target}: {reason}.") from error
    finally:
        # Also if interrupted; after the rename there is nothing to remove.
        shutil.rmtree(staging, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":
        # On Windows, os.kill would end the process. Its files are open, so removal would fail
        # anyway.
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
