"""The tokens that a text alone begins with: as Transformers' tokenizers say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import real_tokenizers
from fakes import FakeModel, encode
from tokenizers import Tokenizer

from structgen import Generator, Vocabulary
from structgen.errors import ModelError, PromptError
from structgen.models.base import after_start
from structgen.models.genai.folders import start_ids

VOCABULARY = Vocabulary.from_tokens(
    [b"", b"", b"a"], [1], special_token_ids=[0], named_tokens={"<s>": 0, "</s>": 1}
)
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
}
BYTES = {"type": "ByteLevel", "add_prefix_space": True}


@pytest.mark.parametrize("kind", ["smollm2", "llama3", "gemma3", "qwen3"])
def test_real_tokenizers_say_the_same(kind: str) -> None:
    file = real_tokenizers.path(kind)
    tokenizer = Tokenizer.from_file(str(file))
    bare = tokenizer.encode("tea", add_special_tokens=False).ids
    whole = tokenizer.encode("tea").ids
    found = start_ids(file.parent, Vocabulary.from_tokenizer_json(file))
    assert [*found, *bare] == whole
    assert bool(found) == (kind in ("llama3", "gemma3"))


@pytest.mark.parametrize(
    ("settings", "post_processor", "expected"),
    [
        ({"add_bos_token": True, "bos_token": "<s>"}, None, (0,)),
        ({"add_bos_token": True, "bos_token": {"content": "<s>"}}, None, (0,)),
        ({"add_bos_token": False, "bos_token": "<s>"}, TEMPLATE, ()),
        ({"bos_token": "<s>"}, None, ()),
        ({}, TEMPLATE, (0,)),
        ({}, {"type": "Sequence", "processors": [BYTES, TEMPLATE]}, (0,)),
        ({}, BYTES, ()),
        ({"add_bos_token": True, "bos_token": None}, TEMPLATE, (0,)),
        (None, TEMPLATE, (0,)),
    ],
)
def test_either_file_may_say_it(
    tmp_path: Path, settings: object, post_processor: object, expected: tuple[int, ...]
) -> None:
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    whole = {"post_processor": post_processor, "model": {"vocab": {'"post_processor"': 3}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert start_ids(tmp_path, VOCABULARY) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer_config.json", "["),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"add_bos_token": "false"}'),
        ("tokenizer.json", '{"post_processor": {"type": "TemplateProcessing", "single": [5]}}'),
        (
            "tokenizer.json",
            '{"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": 5}]}}',
        ),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=rf"{name} cannot be parsed"):
        start_ids(tmp_path, VOCABULARY)


class Starting(FakeModel):
    start_ids = (0,)


def prompt_tokens(model: FakeModel, prompt: object) -> list[int]:
    """The first tokens that the model was run over."""
    seen: list[int] = []
    start = model.start

    def spy(length: int, *, prefix: np.ndarray, **more: object) -> object:
        seen[:] = prefix.tolist()
        return start(length, prefix=prefix, **more)

    model.start = spy  # type: ignore[method-assign, assignment]
    Generator(model)(prompt, max_new_tokens=2)  # type: ignore[arg-type]
    return seen


def test_texts_begin_with_them_once() -> None:
    assert prompt_tokens(FakeModel("hi"), "tea") == encode("tea")
    assert prompt_tokens(Starting("hi"), "tea") == [0, *encode("tea")]
    with pytest.raises(PromptError, match="empty"):
        prompt_tokens(Starting("hi"), "")


def test_chats_have_what_their_template_writes() -> None:
    chat = [{"role": "user", "content": "tea"}]
    assert prompt_tokens(Starting("hi"), chat) == prompt_tokens(FakeModel("hi"), chat)


def test_what_begins_with_them_gets_no_more() -> None:
    for given, expected in (([5, 6], [0, 5, 6]), ([0, 5], [0, 5]), ([], [0])):
        found = after_start((0,), np.array(given, np.int32))
        assert found.dtype == np.int32
        assert found.tolist() == expected
    assert after_start((), np.array([5], np.int32)).tolist() == [5]
