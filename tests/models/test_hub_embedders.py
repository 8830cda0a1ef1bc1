"""Embedders from Hugging Face repositories, against a stand-in hub on this machine."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_embedders as tiny

import structgen
from structgen import models
from structgen.errors import ModelNotFound
from structgen.models import cache

NAME = "org/tiny-embedder"


@pytest.fixture
def repository(hub, tmp_path):
    """A repository as they are: graphs in several precisions, weights for other runtimes."""
    place = tiny.folder(tmp_path / "source", pooling="cls_token")
    files = {
        file.relative_to(place).as_posix(): file.read_bytes()
        for file in place.rglob("*")
        if file.is_file()
    }
    graph = files.pop("model.onnx")
    files |= {
        "onnx/model.onnx": graph,
        "onnx/model.onnx_data": b"weights beside the graph",
        "onnx/Constant_7_attr__value": b"one tensor, as torch writes them",
        "onnx/model_int8 [x].onnx": graph,
        "onnx/model_int8 y.onnx": b"must not be fetched",
        "model.safetensors": b"of no use here",
        "model.safetensors.index.json": b"{}",
        "openvino/config.json": b"{}",
        "openvino/model.bin": b"of no use here",
        "README.md": b"# Tiny",
        ".gitattributes": b"",
    }
    hub.repositories[NAME] = files
    return hub


def names(folder):
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return files - {cache.RECORD}


ALWAYS = {
    *("tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    *("openvino/config.json", "onnx/Constant_7_attr__value"),
}


def test_the_usual_graph_and_what_is_said_of_it_are_fetched_once(repository, cache_folder):
    embedder = structgen.load_embedder(NAME)
    assert embedder.pooling == "cls"
    assert names(embedder.folder) == {*ALWAYS, "onnx/model.onnx", "onnx/model.onnx_data"}
    assert embedder.embed(["a", "b"]).shape == (2, tiny.WIDTH)
    requests = repository.requests
    assert structgen.load_embedder(NAME).folder == models.path(NAME) == embedder.folder
    assert repository.requests == requests
    assert [(model.name, model.task) for model in models.installed()] == [(NAME, "embed")]


def test_a_variant_is_named_by_its_path(repository):
    variant = structgen.load_embedder(f"{NAME}/onnx/model_int8 [x].onnx")
    assert names(variant.folder) == {*ALWAYS, "onnx/model_int8 [x].onnx"}
    assert variant.max_length == tiny.LONGEST
    whole = structgen.load_embedder(NAME)
    assert np.array_equal(variant.embed("a b"), whole.embed("a b"))


def test_what_is_not_there_is_told(repository):
    with pytest.raises(ModelNotFound, match=r"several ONNX files(.|\n)*/onnx/model\.onnx"):
        structgen.load_embedder(f"{NAME}/onnx/model_fp16.onnx")
    with pytest.raises(ModelNotFound, match=r"no model for ONNX Runtime GenAI"):
        structgen.load(NAME)
    repository.repositories["org/none"] = {"model.safetensors": b"x", "tokenizer.json": b"{}"}
    with pytest.raises(ModelNotFound, match="org/none has no embedder"):
        structgen.load_embedder("org/none")
