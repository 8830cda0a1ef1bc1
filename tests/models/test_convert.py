"""Conversion: logits against a NumPy forward pass, and everything that can go wrong."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from unittest.mock import MagicMock

import numpy as np
import onnx_ir as ir
import onnxruntime_genai as og
import pytest
import tiny_gguf
from reference import Reference

from structgen.errors import ConversionError, ModelError
from structgen.models import cache, check, convert, genai, installed, requantized
from structgen.models import path as models_path
from structgen.models.conversion import decoder, gguf, graph
from structgen.models.conversion.convert import _is_running
from structgen.models.progress import silent

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nWhat is the capital of France, and what is it known for?"
    "<|im_end|>\n<|im_start|>assistant\nThe capital of France is Paris. It is known for the Eiffel "
    "Tower, the Louvre, its cafés and bakeries, and as one of the most visited cities in the world."
    "<|im_end|>\n<|im_start|>user\nHow many people live there?<|im_end|>\n<|im_start|>assistant\n"
    "About two million people live in the city itself, and more than ten million in the region."
)
PROSE = (
    "The quick brown fox jumps over the lazy dog. In 1969, humans first landed on the Moon, and "
    "since then twelve astronauts have walked on its surface. They brought back rocks, which are "
    "still being studied in laboratories around the world. Water boils at 100 degrees Celsius at "
    "sea level, but on a high mountain it boils at a lower temperature, because the pressure of "
    "the air is lower there. This is why it takes longer to cook potatoes in the mountains."
)
CODE = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
    "    if n < 2:\n        return n\n"
    "    return fibonacci(n - 1) + fibonacci(n - 2)\n\n\nprint([fibonacci(i) for i in range(10)])\n"
    '# {"numbers": [0, 1, 1, 2, 3, 5, 8], "recursive": true, "name": "fibonacci"}\n'
    "for i in range(3):\n    print(i, fibonacci(i))\n"
)


def all_logits(model, ids):
    """The runtime's logits at every position: the tokens are appended one by one."""
    generator = start(model, len(ids) + 1)
    rows = []
    for token in ids:
        generator.append_tokens([token])
        rows.append(generator.get_logits()[0, 0].copy())
    return np.array(rows)


def blocks_of(folder):
    """Inputs that share a scale, in all matrices of a graph."""
    nodes = ir.load(folder / "model.onnx").graph
    return {
        node.attributes["block_size"].as_int() for node in nodes if "block_size" in node.attributes
    }


def start(model, max_length):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=max_length, do_sample=False)
    return og.Generator(model, params)


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


# The default model


@pytest.fixture(scope="module")
def model(default_model):
    return og.Model(str(default_model))


def test_logits_agree_with_float32(model, default_weights):
    tokenizer = og.Tokenizer(model)
    sequences = [tokenizer.encode(text).tolist() for text in (CHAT, PROSE, CODE)]
    expected = Reference(default_weights).logits(sequences)
    actual = [all_logits(model, ids) for ids in sequences]
    same = np.concatenate(
        [a.argmax(-1) == b.argmax(-1) for a, b in zip(actual, expected, strict=True)]
    )
    assert len(same) > 300
    assert same.mean() >= 0.9  # 0.96 where it was measured; processors round differently
    for a, b in zip(actual, expected, strict=True):
        assert cosines(a, b).mean() >= 0.99
        assert cosines(a.ravel(), b.ravel()) >= 0.99


def test_the_capital_of_france_is_paris(model):
    tokenizer = og.Tokenizer(model)
    messages = json.dumps([{"role": "user", "content": "What is the capital of France?"}])
    prompt = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    generator = start(model, len(prompt) + 20)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    assert "Paris" in tokenizer.decode(generator.get_sequence(0)[len(prompt) :])


def test_what_the_default_model_says_about_itself(default_model):
    config = json.loads((default_model / "genai_config.json").read_text("utf-8"))
    described, search = config["model"], config["search"]
    assert described["vocab_size"] == 49152
    assert described["context_length"] == search["max_length"] == 8192
    assert described["eos_token_id"] == [2, 0]
    assert (described["bos_token_id"], described["pad_token_id"]) == (1, 2)
    decoder = described["decoder"]
    assert (decoder["head_size"], decoder["num_key_value_heads"]) == (64, 3)
    assert search["past_present_share_buffer"] is True
    size = sum(file.stat().st_size for file in default_model.iterdir())
    assert size < 125e6


# Small models of every kind

KINDS = {
    "float": {},
    "half": {"types": {"blk": "F16", "token_embd": "F16"}},
    "Q4_0": {"types": {"blk": "Q4_0", "token_embd": "Q8_0"}},
    "Q4_1": {"types": {"blk": "Q4_1", "token_embd": "Q8_0"}},
    "Q5_1": {"types": {"blk": "Q5_1", "token_embd": "Q8_0"}},
    "mixed": {"types": {"attn": "Q8_0", "ffn": "Q4_1", "ffn_down": "Q5_0"}},
    "untied": {"is_tied": False, "types": {"blk": "Q4_1"}},
    "scaled": {"metadata": {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}},
    "llama 3.1": {"extra": {"rope_freqs": (tiny_gguf.HEAD // 2,)}},
    "many keys": {"metadata": {"attention.head_count": 2, "attention.key_length": 64}},
    "half turned": {"metadata": {"rope.dimension_count": 16}},
    "qwen2": {"architecture": "qwen2"},
    "qwen2, untied": {"architecture": "qwen2", "is_tied": False, "types": {"blk": "Q4_1"}},
    "qwen3": {"architecture": "qwen3"},
    "gemma": {"architecture": "gemma"},
    "gemma2": {"architecture": "gemma2"},
    "gemma3": {"architecture": "gemma3", "types": {"ffn": "Q4_1"}},
    "gemma3, stretched": {
        "architecture": "gemma3",
        "metadata": {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    },
    "gemma3, without windows": {
        "architecture": "gemma3",
        "metadata": {"attention.sliding_window_pattern": 1},
    },
    "phi3": {"architecture": "phi3"},
    "phi3, long": {
        "architecture": "phi3",
        "metadata": {
            "rope.dimension_count": 16,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.attn_factor": 1.19,
        },
        "extra": {"rope_factors_long": (8,), "rope_factors_short": (8,)},
    },
    "smollm3": {"architecture": "smollm3"},
}


@pytest.mark.parametrize("kind", [*KINDS, "wide"])
def test_small_models_agree_with_float32(kind, tmp_path, monkeypatch):
    if kind == "wide":
        monkeypatch.setattr(graph, "_WIDE", 64)
    path = tiny_gguf.write(tmp_path / "tiny.gguf", **shaped(KINDS.get(kind, {})))
    folder = convert(path, tmp_path / "model", silent)
    assert folder == tmp_path / "model"
    assert (64 in blocks_of(folder)) == (kind == "wide")
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    (expected,) = Reference(path).logits([ids])
    model = og.Model(str(folder))
    actual = all_logits(model, ids)
    assert cosines(actual, expected).min() > 0.99
    # All at once, and in two pieces, is the same sum as one by one, but for the order of additions.
    for cut in (len(ids), 17):
        generator = start(model, 64)
        for piece in (ids[:cut], ids[cut:]):
            if piece:
                generator.append_tokens(piece)
        assert cosines(generator.get_logits()[0, 0], expected[-1]) > 0.99


@pytest.mark.parametrize("context", [None, 64, 100, 128])
def test_long_factors_are_those_of_a_long_context(context, tmp_path):
    options = KINDS["phi3, long"]
    path = tiny_gguf.write(tmp_path / "tiny.gguf", **options)
    folder = convert(path, tmp_path / "model", silent, context_length=context)
    config = json.loads((folder / "genai_config.json").read_text("utf-8"))
    assert config["model"]["context_length"] == config["search"]["max_length"] == (context or 64)
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    (expected,) = Reference(path, context).logits([ids])
    (other,) = Reference(path, 128 if (context or 64) == 64 else 64).logits([ids])
    actual = all_logits(og.Model(str(folder)), ids)
    assert cosines(actual, expected).min() > 0.99 > cosines(other, expected).min()


@pytest.mark.parametrize(
    "change",
    [
        ("gemma3", "_window", lambda self, layer: 0 if layer % 6 == 5 else 8),
        ("gemma3", "_window", lambda self, layer: 0 if layer % 6 == 5 else 6),
        ("gemma3", "_window", lambda self, layer: 7),
        ("gemma2", "_window", lambda self, layer: 7 if layer % 2 else 0),
        ("phi3", "_window", lambda self, layer: 0),
        ("smollm3", "_rotate", lambda self, heads, layer: rotate(self, heads, 0)),
        ("gemma3", "_activate", lambda self, gate: gate / (1 + np.exp(-gate))),
    ],
)
def test_the_comparison_would_notice(change, tmp_path, monkeypatch):
    family, name, other = change
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture=family)
    model = og.Model(str(convert(path, tmp_path / "model", silent)))
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    monkeypatch.setattr(Reference, name, other)
    (wrong,) = Reference(path).logits([ids])
    assert cosines(all_logits(model, ids), wrong).min() < 0.99


rotate = Reference._rotate


def shaped(options):
    metadata = options.get("metadata", {})
    if "attention.key_length" not in metadata:
        return options
    # The writer's shapes follow heads times head size, which stay the same product.
    return {**options, "metadata": {**metadata, "attention.head_count_kv": 1}}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "phi3", "smollm3"])
def test_a_graph_for_cuda_has_16_bits_and_means_the_same(family, tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture=family, types={"ffn": "Q4_1"})
    folder = convert(path, tmp_path / "model", silent, target="cuda")
    config = json.loads((folder / "genai_config.json").read_text("utf-8"))
    session = config["model"]["decoder"]["session_options"]
    assert session["provider_options"] == [{"cuda": {"enable_cuda_graph": "0"}}]
    found = ir.load(folder / "model.onnx").graph
    kinds = {value.dtype for value in (*found.inputs, *found.outputs)}
    kinds |= {value.const_value.dtype for value in found.initializers.values()}
    assert kinds & {ir.DataType.FLOAT, ir.DataType.FLOAT16} == {ir.DataType.FLOAT16}
    # There is no such device here. The CPU runs the same graph, if slowly.
    session["provider_options"] = []
    (folder / "genai_config.json").write_text(json.dumps(config))
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    (expected,) = Reference(path).logits([ids])
    assert cosines(all_logits(og.Model(str(folder)), ids), expected).min() > 0.99


@pytest.mark.parametrize(
    ("target", "family", "message"),
    [
        ("dml", "llama", "target='dml' is not supported"),
        ("tpu", "llama", "target='tpu' is unknown"),
        ("cuda", "gemma3", "16-bit"),
    ],
)
def test_other_targets_are_refused(target, family, message, tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture=family)
    with pytest.raises(ConversionError, match=message):
        convert(path, tmp_path / "out", silent, target=target)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("family", "target"), [("llama", "cpu"), ("qwen2", "cuda")])
def test_weights_are_stored_as_is_asked(family, target, tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture=family)
    ids = np.random.default_rng(1).integers(0, 260, 40).tolist()
    (expected,) = Reference(path).logits([ids])
    sizes, found = {}, {}
    for dtype in (None, "int8", "int4", "fp16"):
        folder = convert(path, tmp_path / str(dtype), silent, dtype=dtype, target=target)
        sizes[dtype] = (folder / "model.onnx.data").stat().st_size
        kinds = {node.op_type for node in ir.load(folder / "model.onnx").graph}
        assert ("MatMulNBits" in kinds, "FusedMatMul" in kinds) == (
            dtype != "fp16",
            dtype == "fp16",
        )
        config = json.loads((folder / "genai_config.json").read_text("utf-8"))
        config["model"]["decoder"]["session_options"]["provider_options"] = []  # the CPU runs both
        (folder / "genai_config.json").write_text(json.dumps(config))
        found[dtype] = cosines(all_logits(og.Model(str(folder)), ids), expected).min()
    assert sizes["int4"] < sizes["int8"] == sizes[None] < sizes["fp16"]
    assert found["int4"] > 0.9
    assert found["int8"] == found[None] > 0.99
    assert found["fp16"] > 0.9999


def test_weights_that_cannot_be_stored_so(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    with pytest.raises(ConversionError, match="dtype='int2' is not one of int8, int4, fp16"):
        convert(path, tmp_path / "out", silent, dtype="int2")
    path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", 1e6))
    with pytest.raises(ConversionError, match=r"a weight of 1e\+06, .*dtype='int8'"):
        convert(path, tmp_path / "out", silent, dtype="fp16")
    convert(path, tmp_path / "out", silent, dtype="int8")


def test_four_bit_weights_are_kept_and_need_fewer_bytes(tmp_path):
    sizes = {}
    for kind in ("Q4_0", "Q5_0"):
        path = tiny_gguf.write(tmp_path / f"{kind}.gguf", types={"ffn": kind})
        folder = convert(path, tmp_path / kind, silent)
        sizes[kind] = (folder / "model.onnx.data").stat().st_size
    n_weights = 3 * tiny_gguf.FFN * tiny_gguf.HIDDEN * tiny_gguf.LAYERS
    assert sizes["Q5_0"] - sizes["Q4_0"] > n_weights * 0.4


def test_several_sequences_in_one_batch(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", types={"blk": "Q4_1"})
    model = og.Model(str(convert(path, tmp_path / "model", silent)))
    rows = [[5, 6, 7, 8], [9, 10, 11, 12]]
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=16, batch_size=2)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(rows, np.int32))
    logits = generator.get_logits()
    for row, ids in zip(logits, rows, strict=True):
        assert cosines(row[0], all_logits(model, ids)[-1]) > 0.99


# What cannot be converted


def refused(path, tmp_path):
    """Convert, expecting an error; nothing may be left beside the input."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ConversionError) as caught:
        convert(path, tmp_path / "out", silent)
    assert sorted(tmp_path.iterdir()) == before
    return str(caught.value)


def test_no_gguf_at_all(tmp_path):
    file = tmp_path / "weights.gguf"
    said = refused(file, tmp_path)
    assert said == f"Cannot read {file}: No such file or directory."
    file.write_bytes(b"PK\3\4 something else")
    assert "not a GGUF file" in refused(file, tmp_path)


def test_another_family_is_told_before_the_tokenizer_is_read(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture="mamba")
    path.write_bytes(path.read_bytes()[:200])
    assert "architecture 'mamba'" in refused(path, tmp_path)


def lying(name, at, number, kind="<Q"):
    """A change of a file: another number behind a name in it."""

    def change(data):
        at_ = data.index(name) + len(name) + at
        return data[:at_] + struct.pack(kind, number) + data[at_ + struct.calcsize(kind) :]

    return change


TOKENS, TYPES, EMBEDDING = b"tokenizer.ggml.tokens", b"token_type", b"token_embd.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        # The package gguf's own reader goes on for ever where numbers are to come behind the end.
        (lying(TYPES, 8, 2**60), "it is truncated"),
        (lying(TOKENS, 8, 2**30), "unknown type|header has|truncated"),
        (lying(TOKENS, 16, 2**60), "it is truncated"),  # a token of so many bytes
        (lying(TOKENS, 4, 9, "<I"), "unknown type"),  # arrays of arrays
        (lying(TYPES, 0, 99, "<I"), "the unknown type 99"),
        (lying(b"GGUF", 4, 2**60), "damaged or truncated"),  # so many tensors
        (lying(b"GGUF", 12, 2**60), "damaged or truncated"),
        (lying(b"GGUF", 0, 3 << 24, "<I"), "version"),
        (lying(EMBEDDING, 0, 2**31, "<I"), "damaged or truncated"),  # so many dimensions
        (lying(EMBEDDING, 0, 9, "<I"), "a tensor has 9 dimensions"),
        (lying(EMBEDDING, 4, 2**60), "its tensors are truncated"),
        (lying(EMBEDDING, 20, 999, "<I"), "999"),
        (lying(EMBEDDING, 24, 2**62), "its tensors are truncated"),
        (lying(b"eos_token_id", 4, 2**31, "<I"), "damaged"),
        (lying(b"bos_token_id", 4, 2**31, "<I"), "damaged"),
        (lying(b"bos_token_id", 0, 2**64 - 2**32 + 5, "<Q"), "bos_token_id = -1 is not one of"),
        (lying(b"llama.context_length", 4, 2**31, "<I"), "at most 2,097,152"),
        (lambda data: data.replace(b"<|im_start|>", b"\xff" * 12), "not valid UTF-8"),
        (lambda data: data.replace(b"output_norm", b"token_embd.", 1), "lacks 1 tensors|twice"),
        (lambda data: data.replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.ppp"), "required"),
    ],
)
def test_a_lying_file(change, says, tmp_path):
    file = tiny_gguf.write(tmp_path / "tiny.gguf")
    file.write_bytes(change(file.read_bytes()))
    assert re.search(says, refused(file, tmp_path))


@pytest.mark.parametrize(
    ("tokenizer", "says"),
    [
        ({"add_bos_token": "no"}, "add_bos_token = 'no' must be true or false"),
        ({"chat_template": 7}, "tokenizer.chat_template = 7 must be text"),
    ],
)
def test_a_setting_of_another_kind(tokenizer, says, tmp_path):
    given = tiny_gguf.byte_level_tokenizer() | tokenizer
    file = tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=given)
    assert says in refused(file, tmp_path)


def test_a_context_of_one_token_is_too_short(tmp_path):
    file = tiny_gguf.write(tmp_path / "tiny.gguf", metadata={"context_length": 1})
    assert "a context of 1 tokens, which is too short" in refused(file, tmp_path)


def test_tables_of_positions_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(decoder, "_LARGEST_TABLE", tiny_gguf.CONTEXT * tiny_gguf.HEAD - 1)
    file = tiny_gguf.write(tmp_path / "tiny.gguf")
    assert "128 positions with RoPE over 32 dimensions" in refused(file, tmp_path)


def test_tables_of_positions_are_never_whole_in_memory(tmp_path):
    file = tiny_gguf.write(tmp_path / "m.gguf", metadata={"context_length": 1 << 19})
    tracemalloc.start()
    try:
        convert(file, tmp_path / "out", silent)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one_table = (1 << 19) * 16 * 4
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 2 * one_table
    assert peak < one_table


def test_tensors_that_share_bytes_are_not_more_than_the_file(tmp_path):
    file = tiny_gguf.write(tmp_path / "tiny.gguf")
    data = file.read_bytes()
    for layer in range(tiny_gguf.LAYERS):
        for part in tiny_gguf.layer_shapes():
            name = f"blk.{layer}.{part}.weight".encode()
            if "norm" not in part:
                data = lying(name, 24, 0)(data)
    file.write_bytes(data[: len(data) // 2])
    assert "its tensors are truncated" in refused(file, tmp_path)


def test_a_piece_of_a_million_characters(tmp_path):
    tokenizer = tiny_gguf.sentencepiece_tokenizer()
    tokenizer["tokens"][-1] = "a" * 1_000_000
    file = tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=tokenizer)
    assert "its tokens have up to 1,000,000 characters, which is too long" in refused(
        file, tmp_path
    )


def test_beginnings_of_long_tokens_are_not_all_put_together(tmp_path):
    """Each is two others in as many ways as it has places: 100,000 of them took gigabytes."""
    names = [letter * n for letter in "abc" for n in range(1, 1_000)]
    with pytest.raises(ValueError, match="which is too long"):
        gguf._merges_from_scores(names, [0.0] * len(names))


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        (
            "model.onnx.data",
            1000,
            r"model\.onnx\.data is damaged: it has 1,000 bytes, but model\.onnx refers to [\d,]+",
        ),
        ("model.onnx.data", 0, r"model\.onnx\.data is damaged: it has 0 bytes"),
        ("model.onnx.data", None, r"model\.onnx\.data is missing"),
        ("model.onnx", None, r"model\.onnx is missing"),
        ("model.onnx", 900, r"model\.onnx cannot be parsed: it has a truncated field"),
    ],
)
def test_a_damaged_model_is_told_as_such(name, size, message, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "cache"))
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    folder = convert(path, tmp_path / "cache" / "models" / "org--tiny", silent)
    genai.load(folder, kind=genai.TextModel)
    capfd.readouterr()
    if size is None:
        (folder / name).unlink()
    else:
        with (folder / name).open("r+b") as file:
            file.truncate(size)
    with pytest.raises(ModelError, match=message + r".*`structgen models rm org/tiny`") as caught:
        genai.load(folder, kind=genai.TextModel)
    assert ".cc:" not in str(caught.value)
    if name == "model.onnx.data":
        assert capfd.readouterr() == ("", "")
    moved = folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="Download or convert the model again"):
        genai.load(moved, kind=genai.TextModel)


def test_what_the_runtime_does_not_take_is_told(tmp_path):
    folder = convert(tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "out", silent)
    config = folder / "genai_config.json"
    config.write_text(config.read_text().replace('"num_beams": 1', '"num_beams": 2147483647'))
    with pytest.raises(ModelError, match=r"num_beams|bad_alloc"):
        genai.load(folder, kind=genai.TextModel)


def test_a_tokenizer_that_panics(tmp_path, monkeypatch):
    class PanicException(BaseException):
        """As the package tokenizers has it."""

    def panic(*_):
        raise PanicException("no entry found for key")

    monkeypatch.setattr("tokenizers.Tokenizer.from_file", panic)
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    assert "no entry found for key" in refused(path, tmp_path)


@pytest.mark.parametrize("share", [0.001, 0.2, 0.9, 0.999])
def test_a_truncated_file(share, tmp_path):
    whole = tiny_gguf.write(tmp_path / "whole.gguf").read_bytes()
    file = tmp_path / "cut.gguf"
    file.write_bytes(whole[: max(5, int(len(whole) * share))])
    assert "damaged or truncated" in refused(file, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba'"),
        ({"metadata": {"expert_count": 8}}, "a mixture of 8 experts"),
        ({"metadata": {"rope.scaling.type": "yarn"}}, "RoPE scaling of type 'yarn'"),
        ({"metadata": {"rope.scaling.factor": 4.0}}, "factor without a type"),
        ({"metadata": {"rope.dimension_count": 24}}, "RoPE over 24 of 32 dimensions"),
        ({"metadata": {"attention.value_length": 16}}, "value heads of size 16"),
        ({"metadata": {"attention.sliding_window": 64}}, "sliding-window"),
        ({"metadata": {"attention.head_count_kv": 3}}, "4 query heads"),
        ({"metadata": {"embedding_length": 48}}, "not a multiple of 32"),
        # 6 kB with 10**12 tokens of no numbers each were converted for days.
        ({"metadata": {"embedding_length": 0}}, "embedding_length = 0, which is not a multiple"),
        ({"metadata": {"feed_forward_length": 128}}, "'blk.0.ffn_down.weight' has the shape"),
        ({"metadata": {"block_count": 3}}, "lacks 9 tensors"),
        ({"metadata": {"block_count": 4_000_000_000}}, "4,000,000,000 layers"),
        (
            {"metadata": {"block_count": 1001}, "extra": {f"{i}": (1,) for i in range(1001)}},
            "declares 1,001 layers",
        ),
        ({"metadata": {"attention.head_count": 0}}, "cannot be parsed"),
        ({"without": ("blk.1.ffn_up",)}, "'blk.1.ffn_up.weight'"),
        ({"without": ("token_embd",)}, "no tensor 'token_embd.weight'"),
        ({"extra": {"blk.0.attn_q_norm": (32,)}}, "'blk.0.attn_q_norm.weight'"),
        (
            {"architecture": "qwen2", "metadata": {"rope.scaling.type": "yarn"}},
            "RoPE scaling of type 'yarn'",
        ),
        ({"architecture": "qwen3", "without": ("blk.0.attn_k_norm",)}, "of a Qwen3 model"),
        ({"architecture": "qwen2", "metadata": {"attention.sliding_window": 64}}, "sliding-window"),
        ({"architecture": "phi3", "extra": {"rope_freqs": (16,)}}, "'rope_freqs.weight'"),
        # They were read before they were counted: 5.8 MB of them took 3 GB.
        ({"extra": {"rope_freqs": (4096,)}}, "4096 RoPE factors for 16 pairs"),
        ({"metadata": {"residual_scale": 0.22}}, "the setting llama.residual_scale = 0.2"),
        ({"metadata": {"rope.scale_linear": 4.0}}, "the setting llama.rope.scale_linear = 4.0"),
        ({"metadata": {"rope.scaling.attn_factor": 2.0}}, "llama.rope.scaling.attn_factor = 2.0"),
        ({"metadata": {"attention.causal": False}}, "non-causal attention"),
        ({"metadata": {"attention.layer_norm_rms_epsilon": math.nan}}, "nan is out of range"),
        ({"metadata": {"attention.layer_norm_rms_epsilon": -1.0}}, "epsilon of its norms"),
        ({"metadata": {"rope.freq_base": 0.0}}, "out of range for RoPE"),
        ({"metadata": {"rope.freq_base": math.inf}}, "inf is out of range for RoPE"),
        ({"metadata": {"attention.scale": -1.0}}, "out of range for scale of attention"),
        (
            {"architecture": "gemma2", "metadata": {"attn_logit_softcapping": -50.0}},
            "-50.0 is out of range for caps",
        ),
    ],
)
def test_what_a_plain_llama_does_not_have(options, message, tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf", **options)
    assert message in refused(path, tmp_path)


def test_weights_are_converted_again_after_a_run_that_was_killed(tmp_path, monkeypatch):
    """It had converted them, and had not yet written down what they are."""
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "cache"))
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    with monkeypatch.context() as killed:
        killed.setattr(cache, "write_record", MagicMock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            requantized(path, "int8")
    folder = requantized(path, "int8")
    assert genai.folders.read_config(folder)
    (shown,) = installed()
    check(shown.name)
    assert models_path(shown.name) == folder


def test_an_existing_folder_is_not_overwritten(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    convert(path, tmp_path / "out", silent)  # an empty one will do
    kept = (tmp_path / "out" / "model.onnx").stat().st_mtime_ns
    assert "already exists" in refused(path, tmp_path)
    assert (tmp_path / "out" / "model.onnx").stat().st_mtime_ns == kept


def test_a_link_to_an_empty_folder_will_do(tmp_path):
    """The conversion of some minutes was thrown away: "Not a directory"."""
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    convert(path, tmp_path / "out", silent)
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "genai_config.json").is_file()


# Interruptions


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_an_interruption_leaves_nothing(error, tmp_path, monkeypatch):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")

    def interrupted(self):
        (self._folder / "model.onnx.data").write_bytes(b"half")
        raise error

    monkeypatch.setattr(graph.GraphBuilder, "save", interrupted)
    with pytest.raises(error):
        convert(path, tmp_path / "out", silent)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), OSError("48000 requested and 5632 written")]
)
def test_a_full_disk_is_told_as_one(tmp_path, monkeypatch, error):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")

    def full(self):
        raise error

    monkeypatch.setattr(graph.GraphBuilder, "save", full)
    assert "the disk is full" in refused(path, tmp_path)


KILLED = """
import sys, time
from pathlib import Path
from structgen import models
def wait(function, source, folder, *more, **limits):
    Path(folder, "model.onnx.data").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
models.apart.call = wait
models.convert(sys.argv[1], sys.argv[2], lambda *_: None)
"""


@pytest.mark.skipif(os.name == "nt", reason="processes end differently there")
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path, out = tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(path), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        # While it lives, its folder is its own, and ours does not mind.
        convert(path, tmp_path / "out", silent)
        assert len(list(tmp_path.glob(".out.*.part"))) == 1
        process.send_signal(signal.SIGKILL)
    assert not (out / "model.onnx.data").read_bytes().startswith(b"half")
    for file in out.iterdir():
        file.unlink()
    convert(path, out, silent)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out", "tiny.gguf"]


def test_the_faster_of_two_processes_wins(tmp_path, monkeypatch):
    path, out = tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "out"
    save = graph.GraphBuilder.save

    def overtaken(self):
        save(self)
        out.mkdir()
        (out / "genai_config.json").write_text("theirs")

    monkeypatch.setattr(graph.GraphBuilder, "save", overtaken)
    assert convert(path, out, silent) == out
    assert [entry.name for entry in out.iterdir()] == ["genai_config.json"]
    assert len(list(tmp_path.iterdir())) == 2


def test_the_faster_of_two_threads_wins(tmp_path, monkeypatch):
    path, out = tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "out"
    save, begun, made = graph.GraphBuilder.save, [], []

    def overtaken(self):
        begun.append(self)
        if len(begun) == 1:
            other = threading.Thread(target=lambda: made.append(convert(path, out, silent)))
            other.start()
            other.join()
        save(self)

    monkeypatch.setattr(graph.GraphBuilder, "save", overtaken)
    assert convert(path, out, silent) == out
    assert made == [out]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out", "tiny.gguf"]


def test_progress_goes_from_nothing_to_all(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    calls = []
    convert(path, tmp_path / "out", lambda *call: calls.append(call))
    n_steps = tiny_gguf.LAYERS + 2
    assert calls[0] == ("Converting tiny.gguf", 0, n_steps)
    assert calls[-1] == ("Converting tiny.gguf", n_steps, n_steps)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_running_processes_are_told_from_ended_ones():
    assert _is_running(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    deadline = time.monotonic() + 60
    while _is_running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(process.pid)
