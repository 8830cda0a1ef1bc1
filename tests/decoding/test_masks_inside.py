"""A model that chooses under masks by itself writes what one writes whose scores are edited."""

from __future__ import annotations

import json
import shutil
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import pytest
from fakes import FakeModel, Person, chat
from models.tiny_gguf import write

import structgen
from structgen import Generator, Regex, models
from structgen.errors import ConversionError
from structgen.models import cache, genai
from structgen.models.base import MASK_INPUT

KINDS: dict[str, Any] = {
    "text": None,
    "object": Person,
    "objects": list[Person],
    "choice": Literal["true", "false", "null"],
    "regex": Regex("[a-z]{2,9}( the [0-9]{1,3}){0,4}"),
    "integer": int,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tight": {"max_new_tokens": 24},
    "sampled": {"do_sample": True, "seed": 3},
    "penal": {"repetition_penalty": 1.3},
    "scored": {"logprobs": True},
    "unforced": {"forced": False},
    "guessed": {"speculate": True},
    "stopped": {"stop": ["e"]},
}
PROMPTS = ["a", chat("the b"), "STOP true", chat("c")]


def written(has_mask: bool, kind: Any, options: dict[str, Any], batch_size: int) -> list[Any]:
    model = FakeModel()
    model.has_mask = has_mask
    options = {"max_new_tokens": 40, **options}
    found = Generator(model, kind).result(
        PROMPTS, batch_size=batch_size, return_errors=True, **options
    )
    n_read = sum(sequence.logits_read for sequence in model.started)
    return [
        n_read,
        *(
            (one.token_ids, one.finish_reason, one.usage, one.mean_allowed_tokens, one.shortened)
            if hasattr(one, "token_ids")
            else str(one)
            for one in found
        ),
    ]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_differs(kind, options, batch_size):
    edited, *expected = written(False, KINDS[kind], OPTIONS[options], batch_size)
    chosen, *got = written(True, KINDS[kind], OPTIONS[options], batch_size)
    assert got == expected
    if options in ("sampled", "penal", "scored"):
        assert chosen == edited
    elif batch_size == 1 and options == "nothing":
        assert chosen < edited


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_token_that_the_cursor_refuses_is_chosen_again_by_scores(batch_size, monkeypatch):
    from structgen.decoding.progress import Progress

    accepts, refused = Progress.accepts, []

    def picky(self: Progress, token: int) -> bool:
        place = self.tokens.n_output
        if self.cursor is not None and token % 5 == 0 and (id(self), place) not in refused:
            refused.append((id(self), place))
            return False
        return accepts(self, token)

    monkeypatch.setattr(Progress, "accepts", picky)
    texts = []
    for has_mask in (False, True):
        refused.clear()
        model = FakeModel()
        model.has_mask = has_mask
        generator = Generator(model, Regex("[a-z]{12}"))
        texts.append(generator(PROMPTS[:batch_size], batch_size=batch_size, forced=False))
        assert refused
    assert all(len(text) == 12 for row in texts for text in row)


def test_a_converted_model_has_both_graphs_and_the_runtime_chooses(model):
    assert model.has_mask
    words = np.zeros((model.vocabulary.size + 31) // 32, np.uint32)
    sequence = model.start(64)
    prompt = model.encode("The capital of France is")
    for token in (7, model.vocabulary.size - 1, 40_000):
        words[:] = 0
        words[token >> 5] = 1 << (token & 31)
        sequence.rewind(0)
        assert sequence.likeliest(prompt, words) == token
    words[:] = 0xFFFFFFFF
    sequence.rewind(0)
    free = sequence.likeliest(prompt, words)
    scores = sequence.logits()[0]
    assert np.isfinite(scores).all()
    assert free == scores.argmax()
    sequence.close()


@pytest.fixture
def without_masks(model, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.folder.iterdir():
        if ".masked." not in file.name:
            (folder / file.name).hardlink_to(file)
    return folder


def test_a_graph_of_others_gets_a_mask_once(model, without_masks, tmp_path):
    plain = structgen.load(without_masks)
    assert not plain.has_mask
    (tmp_path / "yours").write_text("precious")
    (without_masks / ".model.masked.onnx.part").symlink_to(tmp_path / "yours")
    target = models.add_mask(without_masks)
    assert (tmp_path / "yours").read_text() == "precious"
    assert target.name == "model.masked.onnx"
    assert MASK_INPUT in [one.name for one in ir.load(target).graph.inputs]
    masked = structgen.load(without_masks)
    assert masked.has_mask
    prompts = ["Ann is 31.", "Bob is a dog of five years.", "Who is it?"]
    for kind in (None, Person):
        both = [Generator(one, kind) for one in (plain, masked)]
        for size in (1, 3):
            texts = [one(prompts, max_new_tokens=24, batch_size=size) for one in both]
            assert texts[0] == texts[1]


def test_a_graph_that_cannot_have_one_is_an_error_that_says_why(model, without_masks):
    (without_masks / "model.onnx").unlink()
    (without_masks / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ConversionError, match=r"Cannot add a mask to .*model\.onnx"):
        models.add_mask(without_masks)
    assert not [*without_masks.glob("*.part")]
    (without_masks / "model.onnx").unlink()
    shutil.copy(
        models.path("smollm2-135m-instruct") / "model.masked.onnx", without_masks / "model.onnx"
    )
    with pytest.raises(ConversionError, match="it already has a mask"):
        models.add_mask(without_masks)


def test_a_graph_with_its_weights_is_refused_before_it_is_read(without_masks, monkeypatch):
    """Reading it took four times its size, and it was written once more."""
    monkeypatch.setattr(cache, "LARGEST_GRAPH", 1000)
    monkeypatch.delattr(ir, "load")
    with pytest.raises(ConversionError, match="its weights are inside the file"):
        genai.folders.add_mask(str(without_masks))


def field(data, *numbers):
    """A field of a protocol buffer in others, the outermost first."""
    for number in reversed(numbers):
        n = len(data)
        data = bytes([number << 3 | 2, n & 127 | 128, n >> 7 & 127 | 128, n >> 14]) + data
    return data


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (field(b"\1" * 2_000, 7, 5, 1), "a tensor has too many dimensions"),
        (b"\x3a\x0a\x2a\x08\x6a\x06\x0a\x00\x12\x02..", "a reference has no file name"),
    ],
)
def test_a_graph_is_checked_before_it_is_parsed(without_masks, monkeypatch, end, says):
    plain = without_masks / "model.onnx"
    data = plain.read_bytes() + end
    plain.unlink()
    plain.write_bytes(data)
    monkeypatch.delattr(ir, "load")
    with pytest.raises(ConversionError, match=says):
        genai.folders.add_mask(str(without_masks))


def test_a_mask_of_another_graph_is_not_used(model, without_masks):
    models.add_mask(without_masks)
    changed = ir.load(without_masks / "model.onnx")
    changed.producer_version = "2"
    (without_masks / "model.onnx").unlink()
    ir.save(changed, without_masks / "model.onnx")
    assert not structgen.load(without_masks).has_mask
    models.add_mask(without_masks)
    assert structgen.load(without_masks).has_mask


def test_a_mask_is_not_used_where_the_runtime_cannot_go_on(tmp_path):
    """It was an error of the runtime at the second token."""
    folder = models.convert(write(tmp_path / "tiny.gguf"), tmp_path / "tiny")
    shared = structgen.load(folder)
    assert shared.has_mask
    file = folder / "genai_config.json"
    config = json.loads(file.read_text())
    config["search"]["past_present_share_buffer"] = False
    file.write_text(json.dumps(config))
    loaded = structgen.load(folder)
    assert not loaded.has_mask
    assert Generator(loaded, int)("What is it?") == Generator(shared, int)("What is it?")


def test_a_graph_whose_mask_does_nothing_is_not_used(model, without_masks):
    graph = ir.load(model.folder / "model.onnx")
    graph.metadata_props["structgen.mask_of"] = cache.sha256(without_masks / "model.onnx")
    mask = ir.Value(
        name=MASK_INPUT, type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(["n", 1, "b"])
    )
    graph.graph.inputs.append(mask)
    ir.save(graph, without_masks / "model.masked.onnx")
    loaded = structgen.load(without_masks)
    assert not loaded.has_mask
    assert isinstance(Generator(loaded, int)("How old is Ann, who is 31?"), str)
