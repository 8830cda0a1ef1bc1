"""The short forms, without a Generator: model(prompt, T), model.stream(prompt, T), generate."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from fakes import FakeModel
from pydantic import Field

import structgen
from structgen import Cfg, Choice, Generator, JsonSchema, Regex
from structgen.asking import MAX_KEPT, KeptGenerators
from structgen.decoding.options import TypeOptions
from structgen.text_model import _LOADED
from structgen.types import cache_key


@dataclass
class Person:
    name: Annotated[str, Field(max_length=8)]


def test_asking_gives_a_value_or_text(model):
    assert model("The capital of France is", Literal["Paris", "Rome"]) == "Paris"
    assert isinstance(model("Seven is the number ", int, max_new_tokens=5), int)
    person = model([{"role": "user", "content": "Make up a name."}], Person, whitespace="compact")
    assert isinstance(person, Person)
    assert isinstance(model("Once", max_new_tokens=2), str)


def test_streaming_gives_text_and_then_the_value(model):
    stream = model.stream("A person: ", Person, max_new_tokens=30)
    text = "".join(stream)
    assert text == stream.result.text
    assert stream.result.value == Person(stream.result.value.name)
    assert model.stream("Once", max_new_tokens=2).result.text == ""
    free = model.stream("Once", None, max_new_tokens=2)
    assert "".join(free) == free.result.value == model("Once", None, max_new_tokens=2)


def test_streaming_values(model):
    *growing, last = model.stream_values("A person: ", Person, max_new_tokens=30)
    assert growing
    assert not any(partial.complete for partial in growing)
    assert isinstance(last.value, Person)


def test_unknown_options_are_told(model):
    with pytest.raises(structgen.OptionError, match=r"max_tokens.*It is called 'max_new_tokens'"):
        model("x", int, max_tokens=3)
    with pytest.raises(structgen.OptionError, match="requires an output type"):
        model("x", whitespace="compact")


def test_generate_uses_the_default_model_loaded_once():
    prompt = "The capital of France is"
    assert structgen.generate(prompt, Literal["Paris", "Rome"]) == "Paris"
    loaded = _LOADED[0]
    assert structgen.generate(prompt, ["Paris", "Rome"]) == "Paris"
    assert [loaded] == _LOADED
    assert loaded.name == structgen.models.DEFAULT


def test_generators_are_kept_while_they_are_asked_for():
    kept, model = KeptGenerators(), functools.partial(Generator, FakeModel())
    first = kept.get(model, Person, {})
    assert kept.get(model, Person, {}) is first
    assert kept.get(model, Person, {"whitespace": "compact"}) is not first
    for n in range(MAX_KEPT - 2):
        kept.get(model, Choice([n]), {})
    assert kept.get(model, Person, {}) is first
    for n in range(MAX_KEPT):
        kept.get(model, Choice([n]), {})
    assert kept.get(model, Person, {}) is not first
    listed = {"documents": {"http://a/b": True}}
    assert kept.get(model, Person, listed) is not kept.get(model, Person, listed)


def test_types_that_differ_are_kept_apart(tmp_path: Path):
    pairs = [
        (int | str, str | int),
        (Literal[1], Literal[True]),
        (Choice([1]), Choice([True])),
        ([1], [True]),
        (["a"], ("a",)),
        (Regex("a"), Choice(["a"])),
        (JsonSchema({"a": {}, "b": {}}), JsonSchema({"b": {}, "a": {}})),
    ]
    for one, other in pairs:
        assert cache_key(one) == cache_key(one)
        assert cache_key(one) != cache_key(other)
    schema = {"type": "integer"}
    assert cache_key(schema) == cache_key(dict(schema)) == cache_key(JsonSchema(schema))
    assert cache_key(Annotated[int, []]) is None
    assert cache_key(Cfg('start: "a"')) == cache_key(Cfg('start: "a"'))
    (tmp_path / "main.lark").write_text("%import .other.A\nstart: A")
    assert cache_key(Cfg(tmp_path / "main.lark")) is None, "the file may change"
    assert cache_key(Cfg(tmp_path / "main.lark") | Regex("a")) is None


def test_options_for_type_checkers_are_those_there_are():
    known = set(structgen.automaton.json.JsonOptions.__dataclass_fields__)
    assert known <= TypeOptions.__optional_keys__
