"""Hugging Face folders: the same tiny models as of GGUF files, in their spelling."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct

import numpy as np
import onnxruntime_genai as og
import pytest
import tiny_gguf
import tiny_safetensors
from reference import Reference
from test_convert import all_logits, cosines

import structgen
from structgen import models
from structgen.cli import commands
from structgen.errors import ConversionError
from structgen.models.conversion.hugging_face import (
    HuggingFaceCheckpoint,
    SafetensorsFolder,
    _llama3_divisors,
)
from structgen.models.progress import silent

IDS = np.random.default_rng(1).integers(0, 260, 40).tolist()
FAMILIES = {
    **{family: {"architecture": family} for family in tiny_gguf.FAMILIES},
    "untied": {"is_tied": False},
    "half turned": {"architecture": "phi3", "metadata": {"rope.dimension_count": 16}},
}


def folder_of(tmp_path, options=None, **changes):
    """A Hugging Face folder with a tokenizer, and the GGUF file of the same weights."""
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf", **(options or {}))
    made = models.convert(gguf, tmp_path / "from gguf", silent)
    folder = tiny_safetensors.write(tmp_path / "folder", gguf, **changes)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(made / name, folder)
    return folder, gguf


@pytest.mark.parametrize("family", FAMILIES)
def test_families_agree_with_float32(family, tmp_path):
    folder, gguf = folder_of(tmp_path, FAMILIES[family])
    out = models.convert(folder, tmp_path / "out", silent)
    (expected,) = Reference(gguf).logits([IDS])
    assert cosines(all_logits(og.Model(str(out)), IDS), expected).min() > 0.99
    # Both readers give the graph the same numbers.
    folders = out, tmp_path / "from gguf"
    ours, theirs = ((path / "model.onnx.data").read_bytes() for path in folders)
    assert len(ours) == len(theirs)
    assert ours == theirs or family.startswith("gemma")  # whose gains lose a bit when 1 is added


@pytest.mark.parametrize(("kind", "shards"), [("F16", 1), ("BF16", 1), ("F32", 3), ("BF16", 2)])
def test_types_and_shards(kind, shards, tmp_path):
    folder, gguf = folder_of(tmp_path, kind=kind, shards=shards)
    out = models.convert(folder, tmp_path / "out", silent)
    (expected,) = Reference(gguf).logits([IDS])
    assert cosines(all_logits(og.Model(str(out)), IDS), expected).min() > 0.99


def test_numbers_of_every_type(tmp_path):
    values = np.array([[0.0, -1.5, 3.140625], [1e-3, 65504.0, -(2.0**-14)]], np.float32)
    for kind, wanted in (
        ("F32", values),
        ("F16", values.astype(np.float16).astype(np.float32)),
        ("BF16", (values.view(np.uint32) & 0xFFFF0000).view(np.float32)),
    ):
        tiny_safetensors.save(tmp_path / "model.safetensors", {"x": values, "y": values[0]}, kind)
        found = SafetensorsFolder(tmp_path)
        assert found.tensor_shape("y") == (3,)
        assert np.array_equal(found.tensor("x"), wanted)
        assert np.array_equal(found.tensor("y"), wanted[0])


@pytest.mark.parametrize(
    ("config", "metadata"),
    [
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
        ),
        # As transformers 5 writes it.
        ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, {}),
    ],
)
def test_spellings_of_positions(config, metadata, tmp_path):
    folder, gguf = folder_of(tmp_path, {"metadata": metadata}, config=config)
    out = models.convert(folder, tmp_path / "out", silent)
    (expected,) = Reference(gguf).logits([IDS])
    assert cosines(all_logits(og.Model(str(out)), IDS), expected).min() > 0.99


def test_gemma_3s_two_kinds_of_positions_as_transformers_5_writes_them(tmp_path):
    metadata = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    config = {
        "rope_theta": None,
        "rope_local_base_freq": None,
        "sliding_window_pattern": None,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    options = {"architecture": "gemma3", "metadata": metadata}
    folder, gguf = folder_of(tmp_path, options, config=config)
    out = models.convert(folder, tmp_path / "out", silent)
    (expected,) = Reference(gguf).logits([IDS])
    assert cosines(all_logits(og.Model(str(out)), IDS), expected).min() > 0.99
    said = json.loads((folder / "config.json").read_text())
    said["rope_parameters"]["sliding_attention"]["rope_type"] = "linear"
    (folder / "config.json").write_text(json.dumps(said))
    with pytest.raises(ConversionError, match="RoPE scaling of type 'linear' in sliding windows"):
        models.convert(folder, tmp_path / "other", silent)


@pytest.mark.parametrize(
    ("family", "config", "windows"),
    [
        ("smollm3", {"sliding_window": 16}, [0, 0, 0, 16]),
        ("qwen2", {"sliding_window": 16}, [0, 0]),  # the first 28 layers have none
        ("qwen2", {"max_window_layers": 0, "sliding_window": 16}, [16, 16]),
        ("qwen3", {"max_window_layers": 1}, [0, 4096]),
    ],
)
def test_which_layers_have_windows_where_the_configuration_is_silent(
    family, config, windows, tmp_path
):
    """As of transformers' own configurations."""
    config["use_sliding_window"] = True
    folder, _ = folder_of(tmp_path, {"architecture": family}, config=config)
    layers = HuggingFaceCheckpoint(folder).shape.layers
    assert [layer.window for layer in layers] == windows


@pytest.mark.parametrize("context", [None, 128])
def test_phi_3s_long_factors(context, tmp_path):
    options = {
        "architecture": "phi3",
        "metadata": {
            "rope.dimension_count": 16,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.attn_factor": float(1 + np.log(2) / np.log(64)) ** 0.5,
        },
        "extra": {"rope_factors_long": (8,), "rope_factors_short": (8,)},
    }
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf", **options)
    source = Reference(gguf, context)
    scaling = {
        "type": "longrope",
        **{f"{which}_factor": source.weight(f"rope_factors_{which}.weight").tolist()
           for which in ("long", "short")},
    }  # fmt: skip
    config = {"rope_scaling": scaling, "original_max_position_embeddings": 64}
    (tmp_path / "in").mkdir()
    folder, _ = folder_of(tmp_path / "in", options, config=config)
    out = models.convert(folder, tmp_path / "out", silent, context_length=context)
    (expected,) = source.logits([IDS])
    assert cosines(all_logits(og.Model(str(out)), IDS), expected).min() > 0.99


def test_llama_3s_divisors():
    # As llama.cpp writes them for Llama 3.2: 32 for slow frequencies, 1 for quick ones.
    scaling = {
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    divisors = np.array(_llama3_divisors(500000.0, 64, scaling))
    assert (divisors[:14] == 1).all()
    assert (divisors[20:] == 32).all()
    assert (np.diff(divisors) >= 0).all()
    # Between them, by transformers' formula for one frequency.
    wavelength = 2 * np.pi * 500000.0 ** (32 / 64)
    share = (8192 / wavelength - 1) / 3
    assert np.isclose(divisors[16], 1 / ((1 - share) / 32 + share))


def test_ends_templates_and_the_command(tmp_path, capsys):
    folder, _ = folder_of(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings["chat_template"] = [{"name": "default", "template": "Default"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    models.convert(folder, tmp_path / "first", silent)
    written = json.loads((tmp_path / "first" / "tokenizer_config.json").read_text("utf-8"))
    assert written["chat_template"] == "Default"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "secret").write_text("password")
    (folder / "chat_template.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(ConversionError, match="a link that points outside the folder"):
        models.convert(folder, tmp_path / "out")
    (folder / "chat_template.jinja").unlink()
    (tmp_path / "secret").write_text('{"password": 1}')
    for name in ("tokenizer_config.json", "generation_config.json", "tokenizer.json"):
        kept = (folder / name).read_bytes() if (folder / name).exists() else b"{}"
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(tmp_path / "secret")
        with pytest.raises(ConversionError, match=rf"{name}.* a link that points outside"):
            models.convert(folder, tmp_path / "out")
        (folder / name).unlink()
        (folder / name).write_bytes(kept)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 2], "pad_token_id": 7}')
    out = tmp_path / "out"
    command = ["models", "convert", str(folder), str(out), "--context-length", "96"]
    assert commands._run(command) == 0
    assert capsys.readouterr().out == f"{out}\n"
    config = json.loads((out / "genai_config.json").read_text("utf-8"))["model"]
    assert config["eos_token_id"] == [5, 2, 0]
    assert (config["bos_token_id"], config["pad_token_id"], config["context_length"]) == (1, 0, 96)
    tokenizer = og.Tokenizer(og.Model(str(out)))
    asked = json.dumps([{"role": "user", "content": "Hi"}])
    assert tokenizer.apply_chat_template(asked) == "Hi!"


def test_settings_of_a_tokenizer_that_only_transformers_reads_are_left_out(tmp_path):
    """What was written could not be loaded, or had no template."""
    folder, _ = folder_of(tmp_path)
    several = [{"name": "tool_use", "template": "Tools"}]
    settings = {"chat_template": several, "model_max_length": None, "unk_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    model = structgen.load(models.convert(folder, tmp_path / "out", silent))
    assert model.apply_chat_template([{"role": "user", "content": "Hi"}]) == "Hi!"


@pytest.mark.parametrize("kind", ["Ernie4_5_TokenizerFast", "BertTokenizer", 5, "LlamaTokenizer"])
def test_a_tokenizer_is_of_a_class_that_the_runtime_knows(tmp_path, kind):
    folder, _ = folder_of(tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": kind}))
    model = structgen.load(models.convert(folder, tmp_path / "out", silent))
    assert model.encode("abc").tolist()
    written = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text("utf-8"))
    assert (written["tokenizer_class"] == kind) == (kind == "LlamaTokenizer")


def test_a_unigram_is_read_as_one_whatever_the_class(tmp_path):
    folder, _ = folder_of(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    pieces = [[token, -1.0] for token in tokenizer["model"]["vocab"]]
    tokenizer["model"] = {"type": "Unigram", "unk_id": 0, "vocab": pieces}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.warns(UserWarning, match="tokenizes prompts differently"):  # no Unigram has bytes
        model = structgen.load(models.convert(folder, tmp_path / "out", silent))
    assert model.encode("abc").tolist()


LLAMA3 = {
    **{"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"model_type": "mamba"}}, "a model of type 'mamba'"),
        ({"config": {"rope_scaling": {"type": "yarn", "factor": 4.0}}}, "type 'yarn'"),
        ({"config": {"hidden_act": "relu"}}, "the activation 'relu'"),
        (
            {"options": {"architecture": "gemma2"}, "config": {"hidden_activation": "silu"}},
            "the activation 'silu'",
        ),
        (
            {
                "options": {"architecture": "qwen2"},
                "without": ["model.layers.1.self_attn.k_proj.bias"],
            },
            "lacks 1 tensors of a Qwen2 model",
        ),
        (
            {
                "options": {"architecture": "qwen2"},
                "without": [
                    f"model.layers.{layer}.self_attn.{part}_proj.bias"
                    for layer in range(2)
                    for part in "qkv"
                ],
            },
            "lacks 6 tensors of a Qwen2 model",
        ),
        ({"config": {"attention_bias": True}}, "lacks 8 tensors of a Llama model"),
        ({"config": {"quantization_config": {"bits": 4}}}, "quantized weights"),
        ({"config": {"num_local_experts": 8}}, "a mixture of 8 experts"),
        ({"config": {"hidden_size": "64"}}, "hidden_size = '64'"),
        ({"config": {"num_hidden_layers": 3}}, "lacks 9 tensors of a Llama model"),
        ({"config": {"tie_word_embeddings": False}}, "'lm_head.weight'"),
        ({"without": ["model.norm.weight"]}, "'model.norm.weight'"),
        ({"extra": {"model.norm.weight": np.full(64, np.nan)}}, "'model.norm.weight' contains NaN"),
        (
            {"extra": {"model.layers.1.mlp.up_proj.weight": np.full((96, 64), np.inf)}},
            "'model.layers.1.mlp.up_proj.weight' contains NaN or infinite",
        ),
        ({"extra": {"model.layers.0.mlp.gate_proj.bias": np.ones(96)}}, "gate_proj.bias"),
        ({"config": {"vocab_size": 7}}, "has the shape"),
        ({"config": {"num_hidden_layers": 10**12}}, "1,000,000,000,000 layers"),
        ({"config": {"head_dim": 16 * 10**12}}, "heads of 16,000,000,000,000"),
        ({"config": {"num_attention_heads": 0, "head_dim": None}}, "cannot be parsed"),
        ({"config": {"rope_scaling": {"type": "linear", "factor": "x"}}}, "cannot be parsed"),
        ({"config": {"rope_scaling": ["linear"]}}, "cannot be parsed"),
        ({"config": {"eos_token_id": "two"}}, "cannot be parsed"),
        ({"config": {"eos_token_id": [[2]]}}, "cannot be parsed"),
        ({"config": {"eos_token_id": 0.5}}, "0.5 is not a token id"),
        ({"config": {"max_position_embeddings": 10**9}}, "1,000,000,000 positions"),
        ({"config": {"num_hidden_layers": True}}, "num_hidden_layers = True"),
        ({"config": {"rms_norm_eps": math.nan}}, "nan is out of range for epsilon"),
        ({"config": {"rope_theta": -1.0}}, "-1.0 is out of range for RoPE"),
        ({"config": {"rope_scaling": LLAMA3 | {"factor": 1e-300}}}, "out of range for RoPE"),
        ({"config": {"layer_types": ["full_attention", "linear"]}}, "layers of type 'linear'"),
        ({"config": {"tie_word_embeddings": "false"}}, "must be true or false"),
        ({"config": {"use_bidirectional_attention": True}}, "non-causal attention"),
        (
            {"config": {"rope_scaling": LLAMA3, "partial_rotary_factor": 1e8}},
            "RoPE over 3200000000 of 32 dimensions",
        ),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder, _ = folder_of(tmp_path, **changes)
    with pytest.raises(ConversionError) as caught:
        models.convert(folder, tmp_path / "out", silent)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def with_header(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def of_shape(shape: str) -> bytes:
    return b'{"x": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 0]}}' % shape.encode()


MANY = b'{"x": [%s0]}' % (b"[]," * 500_001)
TWICE = b'"dtype": "F32", "shape": [4], "data_offsets": [0, 16]'


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("model.safetensors", None, "is missing"),
        ("config.json", None, "config.json is missing"),
        ("config.json", b"[]", "cannot be parsed"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("model.safetensors", b"", "damaged or truncated"),
        ("model.safetensors", b"\xff" * 64, "damaged or truncated"),
        ("model.safetensors", b"\x02" + bytes(7) + b"[]", "damaged or truncated"),
        ("model.safetensors", with_header(b"[" * 100_000), "damaged or truncated"),
        ("model.safetensors", with_header(of_shape("1e999")), "damaged or truncated"),
        ("model.safetensors", with_header(of_shape("-1, -1")), "damaged or truncated"),
        ("model.safetensors", with_header(of_shape(f"0, {10**30}")), "damaged or truncated"),
        (
            "model.safetensors",
            with_header(of_shape("2," * 10**5 + "2")),
            "shape of a tensor is too large for the file",
        ),
        ("config.json", MANY, "more than 1,000,000 values"),  # 3 GB
        (
            "model.safetensors",
            with_header(b'{"x": {%s}, "y": {%s}, "z": {%s}}' % (TWICE, TWICE, TWICE)) + bytes(16),
            "overlap|several tensors",
        ),
        ("model.safetensors.index.json", b"{}", "cannot be parsed"),
        ("model.safetensors.index.json", MANY, "more than 1,000,000 values"),
        ("tokenizer_config.json", b'{"eos_token": []}', "cannot be parsed"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"x": "../model.safetensors"}}',
            "not a path inside the folder",
        ),
        ("model.safetensors.index.json", b'{"weight_map": {"x": ".."}}', "not a path inside"),
    ],
)
def test_damage(file, data, message, tmp_path):
    folder, _ = folder_of(tmp_path)
    if data is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(data)
    with pytest.raises(ConversionError, match=message):
        models.convert(folder, tmp_path / "out", silent)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_is_a_pipe_or_a_circle_of_links_is_told(file, tmp_path):
    """The first was waited for, the second a traceback."""
    folder, _ = folder_of(tmp_path)
    for make in (os.mkfifo, lambda path: path.symlink_to(path)):
        (folder / file).unlink()
        make(folder / file)
        with pytest.raises(ConversionError, match=file):
            models.convert(folder, tmp_path / "out", silent)


def test_a_tensor_is_in_one_file_only(tmp_path):
    """The one in the file whose name comes last was taken."""
    folder, _ = folder_of(tmp_path, shards=2)
    twice = {"model.norm.weight": np.ones(64)}
    tiny_safetensors.save(folder / "more.safetensors", twice)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["more"] = "more.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConversionError, match=r"'model.norm.weight' is also in another file"):
        models.convert(folder, tmp_path / "out", silent)


def test_a_file_is_read_once_whatever_it_is_called(tmp_path):
    """An index of 30 MB had a header of a million values read 500,000 times."""
    folder, _ = folder_of(tmp_path)
    names = {"x": "model.safetensors", "y": "./model.safetensors", "z": ".//model.safetensors"}
    index = json.dumps({"weight_map": names})
    (folder / "model.safetensors.index.json").write_text(index)
    assert models.convert(folder, tmp_path / "out", silent).is_dir()


def test_a_tokenizer_of_more_tokens_than_weights(tmp_path):
    folder, _ = folder_of(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["e"] = 10**7
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConversionError, match="more tokens than its weights"):
        models.convert(folder, tmp_path / "out", silent)


def test_a_tokenizer_without_end_ends_the_conversion_alone(tmp_path):
    """It would take twelve terabytes; a limit on memory ended the whole process."""
    folder, _ = folder_of(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    grows = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [grows] * 4}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConversionError, match=r"The tokenizer of .* may replace one with"):
        models.convert(folder, tmp_path / "out", silent)
    assert not (tmp_path / "out").exists()


def test_a_truncated_file(tmp_path):
    folder, _ = folder_of(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    for size in (4, 100, len(whole) // 2, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(ConversionError, match="damaged or truncated"):
            models.convert(folder, tmp_path / "out", silent)
