"""Vectors from language models: what the converter adds, against a forward pass in float32."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_gguf
from reference import Reference

import structgen
from structgen import models
from structgen.cli import commands
from structgen.errors import ModelError, OptionError, PromptError
from structgen.models.base import ON_CPU, passes
from structgen.models.genai.model import TextModel
from structgen.models.progress import silent

TEXTS = ["the the in", "a", "", "12 ab " * 17, "The Eiffel Tower", "in the " * 11]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    return tiny_gguf.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf", types={"blk": "Q8_0"})


@pytest.fixture(scope="module")
def model(gguf) -> TextModel:
    out = gguf.parent / "with"
    return structgen.load(models.convert(gguf, out, silent, hidden_states=True))


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_vectors_are_those_of_a_float32_pass(model, gguf, pooling):
    found = model.embed(TEXTS, pooling=pooling)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), tiny_gguf.HIDDEN)
    rows = [model.encode(text).tolist() for text in TEXTS]
    assert max(map(len, rows)) > ON_CPU.longest_pass
    whole = Reference(gguf).hidden_states([row for row in rows if row])
    wanted = iter(hidden[-1] if pooling == "last" else hidden.mean(axis=0) for hidden in whole)
    for text, vector in zip(TEXTS, found, strict=True):
        if not text:
            assert not vector.any()
            continue
        one = next(wanted)
        # The kernels round activations to 8 bits: see docs/models.md.
        assert vector @ one / np.linalg.norm(one) > 0.999
        assert abs(np.linalg.norm(vector) - 1) < 1e-6


def test_vectors_of_very_many_numbers_are_refused(model, monkeypatch):
    monkeypatch.setattr("structgen.models.embedding.pooling.WIDEST", tiny_gguf.HIDDEN - 1)
    with pytest.raises(ModelError, match="vectors with 64 numbers; the limit is 63"):
        model.embed("a")


def test_vectors_that_are_no_numbers_are_not_given(model, monkeypatch):
    nothing = np.full((1, tiny_gguf.HIDDEN), np.nan, np.float32)
    monkeypatch.setattr("structgen.models.embedding.pooling.pool", lambda *_: nothing)
    with pytest.raises(ModelError, match="NaN or infinite values"):
        model.embed("a")


def test_each_text_is_by_itself_however_many_there_are(model):
    together = model.embed(TEXTS, pooling="mean", normalize=False)
    for text, vector in zip(TEXTS, together, strict=True):
        assert np.array_equal(model.embed(text, pooling="mean", normalize=False)[0], vector)
    assert model.embed([]).shape == (0, tiny_gguf.HIDDEN)
    cut = model.embed(TEXTS, pooling="mean", dimensions=5, normalize=False)
    assert np.array_equal(cut, together[:, :5])
    reports = []
    model.embed(["a", "in"], progress=lambda *report: reports.append(report))
    assert [report[1:] for report in reports] == [(1, 2), (2, 2)]


def test_no_pass_is_a_single_token_unless_the_text_is():
    for n in range(1, 300):
        row = np.arange(n, dtype=np.int32)
        parts = passes(row, ON_CPU.longest_pass)
        assert np.array_equal(np.concatenate(parts), row)
        assert max(map(len, parts)) <= ON_CPU.longest_pass + 1
        assert n == 1 or min(map(len, parts)) > 1


def test_generating_is_as_without_the_output(model, gguf):
    plain = structgen.load(models.convert(gguf, gguf.parent / "without", silent))
    ids = model.encode("the in the")
    scores = []
    for one in (plain, model):
        sequence = one.start(16)
        sequence.append(ids)
        scores.append(sequence.logits())
        sequence.close()
    assert np.array_equal(*scores)
    with pytest.raises(ModelError, match=r"without has no output .* --hidden-states"):
        plain.embed("a")


def test_the_command_asks_for_the_output(gguf, tmp_path, capsys):
    out = tmp_path / "converted"
    assert commands._run(["models", "convert", str(gguf), str(out), "--hidden-states"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert structgen.load(out).embed("a").shape == (1, tiny_gguf.HIDDEN)


def test_what_cannot_be_embedded_is_refused(model):
    with pytest.raises(PromptError, match=r"Text 1 has \d+ tokens, but the context of .* is 128"):
        model.embed(["a", "ab " * 200])
    with pytest.raises(OptionError, match="pooling='max' is unknown"):
        model.embed("a", pooling="max")
    with pytest.raises(OptionError, match="dimensions=65 is out of range"):
        model.embed("a", dimensions=65)
    with pytest.raises(OptionError, match="is neither a str"):
        model.embed(3)
