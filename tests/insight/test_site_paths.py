"""Paths at which no output can have a choice among few are told before there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from fakes import FakeModel
from pydantic import Field

import structgen
from structgen import Generator, JsonSchema
from structgen.insight.path_suggestions import _Judge, suggestion


@dataclass
class Item:
    kind: Literal["a", "b"]
    n: bool | None


@dataclass
class Order:
    size: Literal["s", "m"]
    site: Annotated[str, Field(max_length=9)]
    items: list[Item]
    flags: dict[str, bool]
    pair: tuple[bool, Literal[1, 2]]
    either: Item | bool


TREE = {
    "type": "object",
    "properties": {"leaf": {"type": "boolean"}, "next": {"$ref": "#"}, "x y": {"enum": [1, 2]}},
    "required": ["leaf"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "array",
    "items": [{"type": "boolean"}, {"$ref": "#/definitions/few", "type": "object"}],
    "additionalItems": {"enum": ["x", "y"]},
    "prefixItems": [False],
    "minItems": 3,
    "definitions": {"few": {"enum": [1, 2]}},
}
MIXED = {
    "type": "object",
    "properties": {"p": {"allOf": [{"enum": [1, 2, "z"]}, {"type": ["integer", "array"]}]}},
    "patternProperties": {"^q": {"type": "boolean"}},
    "required": ["p", "qa"],
    "additionalProperties": False,
}
TYPES = [Order, Item, bool, Literal["yes", "no"], *map(JsonSchema, (TREE, OPEN, OLD, MIXED))]


@pytest.mark.parametrize("output_type", TYPES, ids=str)
def test_no_path_that_an_output_has_is_refused(output_type: Any):
    generator = Generator(FakeModel(), output_type)
    seen = set()
    for seed in range(12):
        options = {"max_new_tokens": 120, "temperature": 2.0, "seed": seed}
        seen |= set(generator.result("x", **options).confidence)
    assert seen
    assert suggestion(generator.constraint, seen) is None


@pytest.mark.parametrize(
    ("output_type", "path", "said"),
    [
        (Order, "$.sise", "Did you mean '$.size'?"),  # not site, which has many texts
        (Order, "$.items[3].knd", "Did you mean '$.items[0].kind'"),
        (Order, "$.items", "Did you mean"),
        (Order, "$.items.kind", "Did you mean '$.items[0].kind'"),
        (Order, "$.pair[2]", "$.items[0].kind"),
        (Order, "$.flags.x.y", "Its paths are: "),
        (Order, "$.either.zz", "Did you mean"),
        (Order, "$", "Its paths are: "),
        (bool, "$.x", "Its paths are: $."),
        (Literal["yes", "no"], "$.x", "only value is the whole output"),
        (JsonSchema(TREE), "$.next.next.lea", "Did you mean"),
        (JsonSchema(MIXED), "$.p.x", "$.p"),
    ],
)
def test_a_path_that_no_output_has_is_an_error_before_the_model_runs(output_type, path, said):
    model = FakeModel()
    with pytest.raises(structgen.OptionError) as caught:
        Generator(model, output_type)("x", abstain_below={path: 0.5})
    assert f"abstain_below has {path!r}" in str(caught.value)
    assert said in str(caught.value)
    assert not model.started


def test_many_ways_to_one_place_are_looked_at_once():
    level: Any = {"type": "boolean"}
    definitions = {}
    for i in range(40):
        definitions[f"l{i}"] = level
        level = {"anyOf": [{"$ref": f"#/$defs/l{i}"}, {"$ref": f"#/$defs/l{i}"}]}
    root = {**level, "$defs": definitions}
    assert not _Judge(root, iter(range(999))).may_be(root, ["x"])
    assert _Judge(root, iter(range(999))).may_be(root, [])


def test_all_paths_of_a_call_are_looked_at_in_few_steps(monkeypatch):
    """The model's process does it, where others wait; what is not found then is told at the end."""
    lists = [{"type": "array", "items": {"const": i}} for i in range(60)]
    schema = {"anyOf": [*lists, {"type": "array", "items": {"type": "boolean"}, "minItems": 1}]}
    generator = Generator(FakeModel(), JsonSchema(schema))
    looks = 0
    may_be = _Judge._may_be

    def counted(self, schema, steps, depth):
        nonlocal looks
        looks += 1
        return may_be(self, schema, steps, depth)

    monkeypatch.setattr(_Judge, "_may_be", counted)
    paths = {f"$[{i}]" for i in range(9_999)} | {"$.x"}
    assert suggestion(generator.constraint, {"$[0]": 1, "$.x": 1}) is not None
    looks = 0
    suggestion(generator.constraint, sorted(paths, key=len, reverse=True))
    assert looks <= 5_000
    with pytest.raises(structgen.OptionError, match="abstain_below has"):
        generator("x", abstain_below=dict.fromkeys(paths, 0.5), max_new_tokens=20)
