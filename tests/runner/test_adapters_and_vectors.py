"""LoRA adapters of a Runner's models, and vectors that its text models make."""

from __future__ import annotations

import asyncio
import runpy
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adaptable import adaptable
from mixed import EMBEDDER, SMALL

import structgen
from structgen import ModelError, RequestError, Runner, models
from structgen.models.base import most_characters
from structgen.runner import ModelConfig, vectors
from structgen.workers import EmbedderProcess

ASKED: dict[str, Any] = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = adaptable(tmp_path_factory.mktemp("adaptable"))
    yield made
    shutil.rmtree(made)


def test_adapters_are_loaded_used_kept_and_unloaded(folder: Path) -> None:
    same, turned = folder / "same.onnx_adapter", folder / "turned.onnx_adapter"
    with Runner({"it": {"source": folder, "adapters": {"same": same}}}) as runner:
        assert runner.list_adapters() == ["same"]
        runner.load_adapter("turned", turned)
        assert runner.list_adapters("it") == ["same", "turned"]
        plain, alike, other = (
            runner.complete(**ASKED, adapter=name).text for name in (None, "same", "turned")
        )
        assert plain == alike != other
        streamed = runner.stream_complete(**ASKED, adapter="turned")
        assert "".join(chunk.choices[0].text for chunk in streamed) == other

        async def together() -> list[str]:
            asked = [runner.acomplete(**ASKED, adapter=name) for name in (None, "turned") * 4]
            return [answer.text for answer in await asyncio.gather(*asked)]

        assert asyncio.run(together()) == [plain, other] * 4
        decision = {"state": "I was charged twice!", "questions": {
            "refund": {"type": "predicate", "instructions": "Is this about money?"}}}  # fmt: skip
        sure = [
            runner.decide(**decision, adapter=name).value["refund"].probability
            for name in (None, "same", "turned")
        ]
        assert sure[0] == sure[1] != sure[2]
        with pytest.raises(ModelError, match="already loaded"):
            runner.load_adapter("turned", turned)
        with runner.stream_complete(**{**ASKED, "max_tokens": 900}, adapter="turned") as stream:
            next(stream)
            with pytest.raises(ModelError, match="cannot be unloaded"):
                runner.unload_adapter("turned")
            assert next(stream)
        runner.unload("it")
        assert runner.list_adapters() == ["same", "turned"]
        assert runner.complete(**ASKED, adapter="turned").text == other
        runner.unload_adapter("turned")
        with pytest.raises(ModelError, match="No adapter named"):
            runner.unload_adapter("turned")
        with pytest.raises(RequestError, match="loaded: same") as caught:
            runner.complete(**ASKED, adapter="turned")
        assert caught.value.param == "adapter"
        runner.unload("it")
        runner.unload_adapter("same")
        assert runner.get_model_status("it") == "unloaded"
        assert runner.list_adapters() == []
        with pytest.raises(ModelError, match="No adapter named"):
            runner.unload_adapter("same")


def test_an_adapter_that_has_gone_can_be_taken_out(folder: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone.onnx_adapter"
    shutil.copy(folder / "same.onnx_adapter", gone)
    with Runner({"it": folder}) as runner:
        runner.load_adapter("gone", gone)
        runner.unload("it")
        gone.unlink()
        with pytest.raises(ModelError, match="gone"):
            runner.complete(**ASKED)
        assert runner.get_model_status("it") == "failed"
        runner.unload_adapter("gone")
        assert runner.complete(**ASKED).text


def test_all_processes_of_a_model_have_the_same_adapters(folder: Path) -> None:
    turned = folder / "turned.onnx_adapter"
    with Runner({"it": {"source": folder, "processes": 2, "threads": 1}}) as runner:
        plain = runner.complete(**ASKED).text
        runner.load_adapter("turned", turned)
        texts = {runner.complete(**ASKED, adapter="turned").text for _ in range(4)}
        assert len(texts) == 1
        assert texts != {plain}
        runner.unload_adapter("turned")
        hosts = runner._registry.entry("it").host.models  # type: ignore[union-attr]
        runner._thread.wait(hosts[1].load_adapter(turned, "turned"))
        with pytest.raises(ModelError, match="already loaded"):
            runner.load_adapter("turned", turned)
        assert hosts[0].adapters == () == tuple(runner.list_adapters())
        runner._thread.wait(hosts[1].unload_adapter("turned"))
        runner.load_adapter("turned", turned)
        runner._thread.wait(hosts[1].unload_adapter("turned"))
        with pytest.raises(ModelError, match="No adapter named"):
            runner.unload_adapter("turned")
        assert hosts[0].adapters == ("turned",) == tuple(runner.list_adapters())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights that has vectors."""
    place = tmp_path_factory.mktemp("tiny")
    write = runpy.run_path(str(Path(__file__).parents[1] / "models" / "tiny_gguf.py"))["write"]
    return models.convert(write(place / "tiny.gguf"), place / "with", hidden_states=True)


def test_text_models_that_have_vectors_make_them(tiny: Path) -> None:
    texts = ["the the in", "a", "", "12 ab " * 13]
    model = structgen.load(tiny)
    with Runner({"last": tiny, "mean": ModelConfig(source=tiny, pooling="mean")}) as runner:
        for id_ in ("last", "mean"):
            answer = runner.embed(input=texts, model=id_, input_type="query")
            found = np.array([one.embedding for one in answer.data], np.float32)
            assert np.array_equal(found, model.embed(texts, pooling=id_))
            rows = [runner.tokenize_text(text, model=id_) if text else [] for text in texts]
            assert answer.usage.prompt_tokens == sum(map(len, rows))
        tokens = runner.embed(input=rows[3], dimensions=5)
        assert np.array_equal(
            np.array(tokens.data[0].embedding, np.float32), model.embed(texts[3], dimensions=5)[0]
        )
        coded = runner.embed(input="a", encoding_format="base64").data[0].embedding
        assert isinstance(coded, str)
        long = "the in " * runner.max_sequence_length()
        for fields, param in (
            ({"input": long}, "input"),
            ({"input": "a", "dimensions": 10_000}, "dimensions"),
            ({"input": "a", "prompt_name": "query"}, "prompt_name"),
            ({"input": [[1, -1]]}, "input[0]"),
            ({"input": []}, "input"),
        ):
            with pytest.raises(RequestError) as caught:
                runner.embed(fields)
            assert caught.value.param == param
        with pytest.raises(RequestError, match=r"a list of strings\. It is empty"):
            runner.embed(input=[])
        assert runner.embed(input=long, truncate_sequence=True).data
        assert runner.complete(prompt="the", max_tokens=3).choices


def test_others_have_passes_between_the_texts_of_one_request(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = structgen.load(tiny)
    encode, read = model.encode, []
    monkeypatch.setattr(model, "encode", lambda text: read.append(text) or encode(text))
    texts = ["the the in", "a", "12 ab"]
    begin = partial(vectors._vectors, model, texts, "last", None)
    for cuts in (False, True):
        steps = [len(read) for _ in begin(cuts)]
        assert steps[:3] == [len(read) - 2, len(read) - 1, len(read)]


def test_text_models_that_have_none_say_so(runner: Runner) -> None:
    assert runner.get_default_model_id() == "small" != SMALL
    with pytest.raises(RequestError, match="hidden-states") as caught:
        runner.embed(input="a")
    assert caught.value.param == "model"
    with pytest.raises(RequestError, match="text model") as caught:
        runner.rerank(query="a", documents=["b"])
    assert caught.value.param == "model"


def test_an_embedder_is_given_no_more_than_it_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, lengths = EmbedderProcess.encode, []

    def counted(process: EmbedderProcess, texts: Any) -> Any:
        lengths.extend(len(text) for text in texts)
        return encode(process, texts)

    monkeypatch.setattr(EmbedderProcess, "encode", counted)
    with Runner({"it": EMBEDDER}) as runner:
        longest = runner.max_sequence_length()
        assert longest is not None
        text = "word " * (most_characters(longest) // 5 + 1)
        cut: dict[str, Any] = {"truncate_sequence": True}
        assert runner.embed(input=text, **cut).data == runner.embed(input=text[:9999], **cut).data
        ids = runner.tokenize_text("word", add_special_tokens=False) * (len(text) // 5 + 1)
        assert runner.embed(input=ids, **cut).data == runner.embed(input=text[:9999], **cut).data
        assert runner.rerank(query=text, documents=[text, "a word"], **cut).results
        with pytest.raises(RequestError, match=r"text has .* characters.* Split the text\.$"):
            runner.tokenize_text(text)
        for ask in (
            lambda: runner.embed(input=["a", text]),
            lambda: runner.embed(input=["a", ids]),
            lambda: runner.rerank(query="a", documents=["a", text]),
        ):
            with pytest.raises(RequestError, match=r"\[1\] has .* characters"):
                ask()
        text = "word " * (longest + 1)
        for name, message, query, document in (
            ("query", "The query", text, "a"),
            ("documents", "Document 1", "a", text),
        ):
            with pytest.raises(RequestError, match=rf"^{message} has .* tokens") as found:
                runner.rerank(query=query, documents=["a", document])
            assert found.value.param == name
    assert lengths
    assert max(lengths) <= most_characters(longest)
