"""Convert Whisper from a folder of weights: the graphs of an encoder and a decoder.

Here are the names of Whisper's tensors, both graphs in the form of ONNX Runtime GenAI, and the
settings of its feature extractor. Projections have 8 bits, the two convolutions 32. The encoder
returns the keys and values that the decoder attends to, so a step only reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from structgen.errors import ConversionError

from . import ctranslate2
from .decoder import FloatArray
from .graph import SEARCH, eight_bit, registered
from .hugging_face import SafetensorsFolder, read_file, read_json, tokenizer_settings

_MICROSOFT = "com.microsoft"
_FLOAT, _INT32 = ir.DataType.FLOAT, ir.DataType.INT32
_FRAMES = 3000  # of 30 seconds: the runtime accepts no other number
_TOKENS = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")


_Tensors: TypeAlias = SafetensorsFolder | ctranslate2.CTranslate2Folder


class _Graph:
    """Builds a graph layer by layer from tensors under Hugging Face's names."""

    def __init__(self, tensors: _Tensors, config: Mapping[str, Any], part: str) -> None:
        self.tensors = tensors
        self.part = f"model.{part}"
        self.n_heads = int(config[f"{part}_attention_heads"])
        self.width = int(config["d_model"])
        self.graph = ir.Graph([], [], nodes=[], name=part, opset_imports={"": 21, _MICROSOFT: 1})

    def given(self, name: str, dtype: ir.DataType, *shape: str | int) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def gives(self, value: ir.Value, name: str, *shape: str | int) -> None:
        value.name, value.type, value.shape = name, ir.TensorType(_FLOAT), ir.Shape(shape)
        self.graph.outputs.append(value)

    def cache(self, name: str, length: str | int) -> tuple[str | int, ...]:
        return (name, self.n_heads, length, self.width // self.n_heads)

    def constant(self, name: str, array: Any) -> ir.Value:
        known = self.graph.initializers.get(name)
        return known or registered(self.graph, ir.tensor(np.asarray(array), name=name))

    def integers(self, *values: int) -> ir.Value:
        name = "integers." + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def tensor(self, name: str, *shape: int) -> FloatArray:
        if (found := self.tensors.tensor_shape(name)) != shape:
            raise ConversionError(
                f"{self.tensors.path}: tensor {name!r} has the shape {found}, expected {shape}."
            )
        return self.tensors.tensor(name)

    def weight(self, name: str, *shape: int) -> ir.Value:
        return self.constant(name, self.tensor(name, *shape))

    def many(
        self, kind: str, n: int, *inputs: ir.Value | None, domain: str = "", **attributes: Any
    ) -> Sequence[ir.Value]:
        node = ir.node(kind, inputs, attributes, domain=domain, num_outputs=n)
        self.graph.append(node)
        return node.outputs

    def one(self, kind: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        return self.many(kind, 1, *inputs, **attributes)[0]

    def norm(self, name: str, x: ir.Value) -> ir.Value:
        gain, bias = (self.weight(f"{name}.{kind}", self.width) for kind in ("weight", "bias"))
        return self.one("LayerNormalization", x, gain, bias, epsilon=1e-5)

    def quantized(self, name: str, *shape: int) -> tuple[list[ir.Value], dict[str, int]]:
        """Return the values and scales of a matrix, and the attributes of ``MatMulNBits`` for its
        sizes."""
        matrix = eight_bit(self.tensor(name, *shape))
        values = self.constant(f"{name}.values", matrix.values)
        scales = self.constant(f"{name}.scales", matrix.scales)
        sizes = {"K": matrix.n_inputs, "N": matrix.n_outputs, "bits": 8, "block_size": matrix.block}
        return [values, scales], sizes | {"accuracy_level": 4}

    def project(
        self, name: str, x: ir.Value, has_bias: bool = True, shape: tuple[int, ...] | None = None
    ) -> ir.Value:
        n_outputs, n_inputs = shape or (self.width, self.width)
        weights, sizes = self.quantized(f"{name}.weight", n_outputs, n_inputs)
        rest = [None, None, self.weight(f"{name}.bias", n_outputs)] if has_bias else []
        return self.one("MatMulNBits", x, *weights, *rest, domain=_MICROSOFT, **sizes)

    def heads(self, x: ir.Value) -> ir.Value:
        parted = self.integers(0, -1, self.n_heads, self.width // self.n_heads)
        return self.one("Transpose", self.one("Reshape", x, parted), perm=[0, 2, 1, 3])

    def attend(self, n: int, *inputs: ir.Value | None, causal: bool = False) -> Sequence[ir.Value]:
        more = {"num_heads": self.n_heads, "unidirectional": int(causal)}
        return self.many("MultiHeadAttention", n, *inputs, domain=_MICROSOFT, **more)

    def qkv(self, name: str, x: ir.Value) -> list[ir.Value]:
        return [self.project(f"{name}.{one}_proj", x, one != "k") for one in "qkv"]

    def feed_forward(self, layer: str, x: ir.Value) -> ir.Value:
        normed = self.norm(f"{layer}.final_layer_norm", x)
        size = self.tensors.tensor_shape(f"{layer}.fc1.weight")[0]
        wide = self.one("Gelu", self.project(f"{layer}.fc1", normed, shape=(size, self.width)))
        return self.one("Add", x, self.project(f"{layer}.fc2", wide, shape=(self.width, size)))

    def save(self, file: Path) -> None:
        model = ir.Model(self.graph, ir_version=10, producer_name="structgen")
        try:
            ir.save(model, file, external_data=f"{file.name}.data")
        except ir.serde.SerdeError as error:  # it quotes the whole model
            raise ValueError("a number in its configuration is out of range") from error


def write_encoder(tensors: _Tensors, config: Mapping[str, Any], file: Path) -> None:
    """Write the graph that reads features and returns keys and values for each decoder layer."""
    graph = _Graph(tensors, config, "encoder")
    n_mels, length = int(config["num_mel_bins"]), _FRAMES // 2
    x = graph.given("audio_features", _FLOAT, "batch_size", n_mels, _FRAMES)
    for i in (1, 2):
        name, n_inputs = f"{graph.part}.conv{i}", n_mels if i == 1 else graph.width
        weight = graph.weight(f"{name}.weight", graph.width, n_inputs, 3)
        bias = graph.weight(f"{name}.bias", graph.width)
        kernel = {"kernel_shape": [3], "pads": [1, 1], "strides": [i]}
        x = graph.one("Gelu", graph.one("Conv", x, weight, bias, **kernel))
    x = graph.one("Transpose", x, perm=[0, 2, 1])
    positions = graph.weight(f"{graph.part}.embed_positions.weight", length, graph.width)
    x = graph.one("Add", x, positions)
    for i in range(int(config["encoder_layers"])):
        layer = f"{graph.part}.layers.{i}"
        normed = graph.norm(f"{layer}.self_attn_layer_norm", x)
        (attended,) = graph.attend(1, *graph.qkv(f"{layer}.self_attn", normed))
        x = graph.one("Add", x, graph.project(f"{layer}.self_attn.out_proj", attended))
        x = graph.feed_forward(layer, x)
    x = graph.norm(f"{graph.part}.layer_norm", x)
    graph.gives(x, "hidden_states", "batch_size", length, graph.width)
    for i in range(int(config["decoder_layers"])):
        for one, name in (("k", "key"), ("v", "value")):
            source = f"model.decoder.layers.{i}.encoder_attn.{one}_proj"
            part = graph.heads(graph.project(source, x, one != "k"))
            graph.gives(part, f"present_{name}_cross_{i}", *graph.cache("batch_size", length))
    graph.save(file)


def write_decoder(tensors: _Tensors, config: Mapping[str, Any], file: Path) -> None:
    """Write the graph that reads tokens with the encoder's output and scores the next ones."""
    graph = _Graph(tensors, config, "decoder")
    ids = graph.given("input_ids", _INT32, "batch_size", "sequence_length")
    layers = range(int(config["decoder_layers"]))
    past, cross = (
        [
            [
                graph.given(f"past_{one}_{kind}_{i}", _FLOAT, *graph.cache("batch_size", length))
                for one in ("key", "value")
            ]
            for i in layers
        ]
        for kind, length in (("self", "past_sequence_length"), ("cross", _FRAMES // 2))
    )
    n_tokens, table = int(config["vocab_size"]), f"{graph.part}.embed_tokens.weight"
    (values, scales), sizes = graph.quantized(table, n_tokens, graph.width)
    rows = graph.one("Reshape", values, graph.integers(n_tokens, graph.width))
    how = {"bits": 8, "block_size": sizes["block_size"], "gather_axis": 0, "quantize_axis": 1}
    x = graph.one("GatherBlockQuantized", rows, ids, scales, domain=_MICROSOFT, **how)
    begin = graph.one("Shape", past[0][0], start=2, end=3)
    end = graph.one("Add", begin, graph.one("Shape", ids, start=1, end=2))
    positions = f"{graph.part}.embed_positions.weight"
    places = graph.weight(positions, int(config["max_target_positions"]), graph.width)
    x = graph.one("Add", x, graph.one("Slice", places, begin, end, graph.integers(0)))
    presents = []
    for i in layers:
        layer = f"{graph.part}.layers.{i}"
        normed = graph.norm(f"{layer}.self_attn_layer_norm", x)
        qkv = graph.qkv(f"{layer}.self_attn", normed)
        found, *present = graph.attend(3, *qkv, None, None, None, *past[i], causal=True)
        presents.append(present)
        x = graph.one("Add", x, graph.project(f"{layer}.self_attn.out_proj", found))
        normed = graph.norm(f"{layer}.encoder_attn_layer_norm", x)
        query = graph.project(f"{layer}.encoder_attn.q_proj", normed)
        (found,) = graph.attend(1, query, *cross[i])
        x = graph.one("Add", x, graph.project(f"{layer}.encoder_attn.out_proj", found))
        x = graph.feed_forward(layer, x)
    x = graph.norm(f"{graph.part}.layer_norm", x)
    logits = graph.one("MatMulNBits", x, values, scales, domain=_MICROSOFT, **sizes)
    graph.gives(logits, "logits", "batch_size", "sequence_length", n_tokens)
    for i, present in enumerate(presents):
        for value, name in zip(present, ("key", "value"), strict=True):
            shape = graph.cache("batch_size", "total_sequence_length")
            graph.gives(value, f"present_{name}_self_{i}", *shape)
    graph.save(file)


def genai_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``genai_config.json`` of both graphs."""

    def part(name: str) -> dict[str, Any]:
        heads = config[f"{name}_attention_heads"]
        return {
            "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
            "filename": f"{name}.onnx",
            "head_size": int(config["d_model"]) // int(heads),
            "hidden_size": config["d_model"],
            "num_attention_heads": heads,
            "num_hidden_layers": config[f"{name}_layers"],
            "num_key_value_heads": heads,
        }

    return {
        "model": {
            "type": "whisper",
            "context_length": config["max_target_positions"],
            **{name: config[name] for name in _TOKENS},
            "decoder": {
                **part("decoder"),
                "inputs": {
                    "input_ids": "input_ids",
                    "past_key_names": "past_key_self_%d",
                    "past_value_names": "past_value_self_%d",
                    "cross_past_key_names": "past_key_cross_%d",
                    "cross_past_value_names": "past_value_cross_%d",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present_key_self_%d",
                    "present_value_names": "present_value_self_%d",
                },
            },
            "encoder": {
                **part("encoder"),
                "inputs": {"audio_features": "audio_features"},
                "outputs": {
                    "encoder_hidden_states": "hidden_states",
                    "cross_present_key_names": "present_key_cross_%d",
                    "cross_present_value_names": "present_value_cross_%d",
                },
            },
            "speech": {"config_filename": "audio_processor_config.json"},
        },
        "search": SEARCH
        | {"max_length": config["max_target_positions"], "past_present_share_buffer": False},
    }


def audio_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the runtime's feature extractor: 80 or 128 bands per hundredth of a
    second."""
    window = {"n_fft": 400, "hop_length": 160}
    mels = {"chunk_size": 30, "n_mel": config["num_mel_bins"], **window}
    steps = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": {"frame_length": 400, **window}},
        {"name": "log_mel_spectrogram", "type": "LogMelSpectrum", "attrs": mels},
    ]
    return {"feature_extraction": {"sequence": [{"operation": step} for step in steps]}}


def is_whisper(source: Path) -> bool:
    """Return whether a folder has Whisper in the format of Hugging Face or CTranslate2."""
    if not source.is_dir():
        return False
    if ctranslate2.is_whisper(source):
        return True
    return read_json(source / "config.json").get("model_type") == "whisper"


def write(source: Path, folder: Path) -> None:
    """Convert a folder that `is_whisper` and write it into an empty folder.

    Raises:
        ConversionError: a file is missing or damaged, or the model does not fit these graphs.
    """
    tensors: _Tensors
    if ctranslate2.is_whisper(source):
        tensors = ctranslate2.CTranslate2Folder(source)
        config = tensors.config
    else:
        tensors, config = SafetensorsFolder(source), read_json(source / "config.json")
    for name, expected in (
        ("activation_function", "gelu"),
        ("scale_embedding", False),
        ("max_source_positions", _FRAMES // 2),
    ):
        if config.get(name, expected) != expected:
            raise ConversionError(
                f"{source} has {name}={config[name]!r}, but Whisper models have {expected!r}."
            )
    write_encoder(tensors, config, folder / "encoder.onnx")
    write_decoder(tensors, config, folder / "decoder.onnx")
    (folder / "tokenizer.json").write_bytes(read_file(source / "tokenizer.json"))
    for name, found in (
        ("genai_config.json", genai_config(config)),
        ("audio_processor_config.json", audio_config(config)),
        ("tokenizer_config.json", tokenizer_settings(source, "WhisperTokenizer")),
    ):
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")
