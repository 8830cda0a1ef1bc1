"""Adapters, execution providers and session options, on the real model."""

from __future__ import annotations

import asyncio
import shutil

import onnxruntime
import pytest
from adaptable import WEIGHT, adaptable
from rounding import PROBABLE, TIE, cold, gap

import structgen
from structgen import Generator
from structgen.models import loading

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = adaptable(tmp_path_factory.mktemp("adaptable"))
    yield structgen.load(folder)
    shutil.rmtree(folder)


def test_an_adapter_acts_on_the_calls_that_name_it_and_no_others(model):
    generator = Generator(model)
    with cold(model):
        plain = generator(PROMPT, max_new_tokens=4)
    model.load_adapter(model.folder / "same.onnx_adapter", "same")
    model.load_adapter(model.folder / "turned.onnx_adapter", "turned")
    assert set(model.adapters) == {"same", "turned"}
    with cold(model):
        assert generator(PROMPT, max_new_tokens=4) == plain
        assert generator(PROMPT, max_new_tokens=4, adapter="same") == plain
    for _ in range(2):  # the second time on sequences that are kept
        turned = generator.result(PROMPT, max_new_tokens=4, adapter="turned")
        assert turned.text != plain
    both = generator.result([PROMPT, "Hello"], max_new_tokens=4, adapter="turned", batch_size=2)
    assert gap(model, PROMPT, both[0], turned, "turned") < TIE
    sure = Generator(model, bool)
    result = sure.result(PROMPT, adapter="turned")
    assert result.confidence["$"].chosen.text in ("true", "false")
    turned_probabilities = sure.probabilities(PROMPT, adapter="turned")
    assert turned_probabilities == pytest.approx(
        {one.text: one.probability for one in result.confidence["$"].alternatives}, abs=PROBABLE
    )
    with cold(model):
        alone = sure.probabilities(PROMPT)
        assert sure.probabilities(PROMPT, adapter="same") == alone
        assert sure.probabilities(PROMPT, adapter="turned") != alone
    with pytest.raises(structgen.OptionError, match=r"adapter='gone' is not loaded"):
        sure.probabilities(PROMPT, adapter="gone")
    with pytest.raises(structgen.ModelError, match="'same' is already loaded"):
        model.load_adapter(model.folder / "same.onnx_adapter", "same")
    model.unload_adapter("turned")
    model.unload_adapter("same")
    assert model.adapters == ()
    with pytest.raises(structgen.OptionError, match=r"adapter='turned' .*\(loaded: none\)"):
        generator.stream(PROMPT, adapter="turned")
    with pytest.raises(structgen.ModelError, match="No adapter named 'turned'"):
        model.unload_adapter("turned")


def test_files_that_are_no_adapters_are_errors(model, tmp_path):
    with pytest.raises(structgen.ModelError, match="does not exist"):
        model.load_adapter(tmp_path / "x.onnx_adapter", "x")
    (tmp_path / "x.onnx_adapter").write_bytes(b"nothing of the kind")
    with pytest.raises(structgen.ModelError, match="is not an adapter, or is damaged"):
        model.load_adapter(tmp_path / "x.onnx_adapter", "x")
    assert model.adapters == ()


def test_a_model_without_inputs_for_an_adapter_says_so(model):
    plain = structgen.load("smollm2-135m-instruct")
    file = model.folder / "turned.onnx_adapter"
    for _ in range(2):
        with pytest.raises(structgen.ModelError, match=rf"not exported with inputs.*{WEIGHT}"):
            plain.load_adapter(file, "x")
        assert plain.adapters == ()


def test_a_provider_that_is_missing_is_named_with_those_that_are_there(monkeypatch):
    assert "cpu" in loading.installed()
    monkeypatch.setattr(
        onnxruntime,
        "get_available_providers",
        lambda: ["CPUExecutionProvider", "WebGpuExecutionProvider"],
    )
    with pytest.raises(structgen.ModelError, match=r"'cuda' is not .*: cpu, webgpu\. For CUDA"):
        structgen.load("smollm2-135m-instruct", providers=["cuda", "cpu"])
    for wrong in ("cuda", []):
        with pytest.raises(structgen.ModelError, match="must be a list of names"):
            structgen.load("smollm2-135m-instruct", providers=wrong)
    for load in (structgen.load, structgen.load_embedder, structgen.load_async):
        with pytest.raises(structgen.OptionError, match=r"no option 'device'.*providers=\[\"cuda"):
            asyncio.run(load("smollm2-135m-instruct", device="cuda"))
        with pytest.raises(structgen.OptionError, match="Did you mean 'threads'"):
            asyncio.run(load("smollm2-135m-instruct", n_threads=4))
    assert loading.checked(["CPUExecutionProvider", "webgpu"]) == ["cpu", "webgpu"]


def test_a_provider_that_session_options_name_is_used_or_refused(monkeypatch):
    def load(options, providers=None):
        structgen.load("smollm2-135m-instruct", providers=providers, session_options=options)

    for named in ([{"cuda": {"device_id": "0"}}], {"CUDAExecutionProvider": {}}):
        with pytest.raises(structgen.ModelError, match=r"'(cuda|CUDA.*)' is not installed"):
            load({"provider_options": named})
    with pytest.raises(structgen.ModelError, match="list such as"):
        load({"provider_options": ["cuda"]})
    found = loading.read_options(None, {"provider_options": [{"CPU": {"a": 1}}]}, None)
    assert found == (["cpu"], {"cpu": {"a": 1}}, {})
    assert loading.read_options(["cpu"], {"log_id": "x"}, None) == (["cpu"], {}, {"log_id": "x"})
    monkeypatch.setattr(loading, "installed", lambda: ["cpu", "cuda"])
    with pytest.raises(structgen.ModelError, match="contains 'cpu', but providers= does not: cuda"):
        loading.read_options(["cuda"], {"provider_options": [{"cpu": {}}]}, None)


def test_session_options_reach_the_runtime():
    loaded = structgen.load("smollm2-135m-instruct", providers=["cpu"], threads=1)
    assert Generator(loaded, bool)("Is it? ") in ("true", "false")
    for options, message in [
        ({"no_such_option": 1}, "Unknown session option 'no_such_option'. Known options: intra_op"),
        ({"intra_op_num_thread": "1"}, "Did you mean 'intra_op_num_threads'"),
        ({"session.intra_op.allow_spinning": 0}, "must be a string such as '1', not 0"),
        ({"intra_op_num_threads": "two"}, "cannot load.*intra_op_num_threads"),
        ([1], "must be a mapping"),
    ]:
        with pytest.raises(structgen.ModelError, match=message):
            structgen.load("smollm2-135m-instruct", session_options=options)
    spinning = {"session.intra_op.allow_spinning": "0"}
    assert structgen.load("smollm2-135m-instruct", session_options=spinning)
