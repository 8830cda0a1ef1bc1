"""`structgen.sample`, `structgen.hypothesis` and what tells two types apart, against validators of
others and brute force."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import find, given, settings
from pydantic import BaseModel, Field

import structgen
from structgen import (
    Cfg,
    Choice,
    JsonSchema,
    OptionError,
    OutputTypeError,
    Regex,
    Tagged,
    Text,
    sample,
)
from structgen.constraint import difference
from structgen.hypothesis import from_type
from structgen.types import TaggedText, lower

LINES = (Path(__file__).parents[1] / "data" / "sample.jsonl").read_text().splitlines()
SCHEMAS = [json.loads(line)["schema"] for line in sorted(LINES, key=len)[::9]][:24]


class Order(BaseModel):
    name: str = Field(min_length=1, max_length=9)
    kind: Literal["a", "bb", "bc"]
    sizes: list[int] = Field(max_length=3)
    price: float = Field(gt=0, le=1000)
    day: date | None = None


def test_samples_of_schemas_are_valid() -> None:
    n = 0
    for schema in SCHEMAS:
        try:
            texts = sample(JsonSchema(schema), 5, seed=n)
        except structgen.OutputTypeError:
            continue
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        for text in texts:
            n += 1
            assert validator.is_valid(json.loads(text)), text
    assert n > 80


@pytest.mark.parametrize(
    "pattern", ["[a-c]{2,4}|x*", r"\d+(\.\d\d)?", "(?=.*a)[ab]{3}", "(ab?){0,3}"]
)
def test_samples_of_patterns_match(pattern: str) -> None:
    texts = sample(Regex(pattern), 40)
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(set(texts)) > 4


def test_samples_of_other_types_parse() -> None:
    unique = JsonSchema({"items": {"enum": [1, 2, 3]}, "uniqueItems": True, "type": "array"})
    for kind in (
        *(Order, int | None, date, dict[str, bool], unique, unique.times(1, 2)),
        *(Tagged("<a>", int, "</a>"), TaggedText(Tagged("<a", int, ">"), separator=",")),
        *(Text("n=") + int, Cfg('start: "(" start? ")"'), structgen.types.isbn13),
    ):
        parse = lower(kind).parse
        for text in sample(kind, 10):
            parse(text)
    for text in sample(unique, 40):
        assert len(set(json.loads(text))) == len(json.loads(text))


def test_texts_are_drawn_evenly_over_the_structure() -> None:
    def shares(kind: Any) -> list[float]:
        counts = Counter(sample(kind, 1500, seed=5))
        return [counts[text] / 1500 for text in sorted(counts)]

    assert shares(Choice(["a", "aa", "ab", "abc", "b"])) == pytest.approx([0.2] * 5, abs=0.05)
    kinds = JsonSchema({"anyOf": [{"enum": ["x", "y"]}, {"type": "null"}]})
    assert shares(kinds) == pytest.approx([0.25, 0.25, 0.5], abs=0.05)
    lengths = [len(text) for text in sample(str, 1000)]
    assert 3 < sum(lengths) / 1000 < 12
    closed = JsonSchema({"properties": {"a": {"type": "null"}}, "type": "object"})
    assert set(sample(closed, 50)) == {"{}", '{"a": null}'}
    assert len(set(sample(closed, 50, closed=False))) > 10


def test_the_same_seed_gives_the_same_texts() -> None:
    assert sample(Order, 5, seed=3) == sample(Order, 5, seed=3) != sample(Order, 5, seed=4)
    assert sample(int, 0) == []
    for wrong in (-1, True, 1.5):
        with pytest.raises(OptionError, match="must be an integer"):
            sample(int, wrong)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(from_type(Order))
def test_a_type_is_a_strategy(order: Order) -> None:
    assert isinstance(order, Order)
    assert Order.model_validate_json(order.model_dump_json()) == order


def test_a_strategy_shrinks() -> None:
    assert len(find(from_type(list[int]), lambda value: len(value) > 1)) == 2
    assert find(from_type(Regex("[a-c]*")), lambda text: "b" in text) == "b"


def test_differences_of_patterns_by_brute_force() -> None:
    r = random.Random(2)
    atoms = ["a", "b", "ab", "[ab]", "a*", "b?", "(ab)*", "(a|bb)+", ".{1,2}", ""]
    texts = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]
    seen = Counter[bool]()
    for _ in range(500):
        old, new = ("".join(r.choices(atoms, k=r.randint(1, 3))) for _ in range(2))
        if r.random() < 0.4:
            new = f"{old}|{new}"
        found = difference(Regex(old), Regex(new))
        assert found.is_decided
        beyond = [t for t in texts if re.fullmatch(old, t) and not re.fullmatch(new, t)]
        seen[found.witness is None] += 1
        if found.witness is None:
            assert not beyond, (old, new)
        else:
            assert re.fullmatch(old, found.witness), (old, new)
            assert not re.fullmatch(new, found.witness)
            assert not beyond or len(found.witness) <= len(beyond[0])
    assert min(seen.values()) > 100


def test_special_tokens_have_their_names() -> None:
    grammar = Cfg('start: "é" <|a|> n <[3-5]>\nn[capture]: <|b|> "x"', dialect="llguidance")
    assert sample(grammar, 1) == ["é<|a|><|b|>x<[3-5]>"]
    assert lower(grammar).parse(sample(grammar, 1)[0]).captures == {"n": "<|b|>x"}
    with pytest.raises(
        OutputTypeError, match=r"has the special token '<\|a\|>', which is not text"
    ):
        difference(grammar, grammar)
    assert difference(Text("é"), grammar) == ("é", True)


def test_differences_of_other_types_are_searched() -> None:
    number, positive = {"type": "integer"}, {"type": "integer", "minimum": 0}
    old = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a"]}
    wider = {"type": "object", "properties": {"b": number, "a": number}}
    assert difference(JsonSchema(old), JsonSchema(wider)) == (None, False)
    for narrower in (
        {**old, "required": ["a", "b"]},
        {**old, "properties": {"a": positive}},
        {**old, "additionalProperties": False},
        {**old, "properties": {"a": number}, "additionalProperties": {"type": "string"}},
    ):
        found = difference(JsonSchema(old), JsonSchema(narrower))
        assert found.is_decided
        assert found.witness is not None
        value = json.loads(found.witness)
        assert jsonschema_rs.is_valid(old, value)
        assert not jsonschema_rs.is_valid(narrower, value)
    assert difference(Literal["a"], Literal["a", "b"]) == (None, True)
    assert difference(Literal["a", "b"], Regex("a|c")) == ("b", True)
