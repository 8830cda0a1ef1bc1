"""Schemas whose alternatives stay open at every level: the work grows with the depth, no faster."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest

import structgen
from engine.walks import TINY, accepts, minimum, seeds, walk
from structgen import JsonSchema

AMBIGUOUS: dict[str, Any] = {
    "overlapping containers": {
        "anyOf": [
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#"}, "maxItems": 3},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
            {"type": "object", "maxProperties": 2, "additionalProperties": {"$ref": "#"}},
        ]
    },
    "told apart at the end": {
        "oneOf": [
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "array", "items": {"$ref": "#"}, "contains": {"type": "string"}},
            {"type": "string"},
        ]
    },
    "mutual": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/a"}},
                    {"type": "array", "items": {"$ref": "#/$defs/b"}},
                ]
            },
            "b": {
                "anyOf": [
                    {"type": "null"},
                    {"type": "array", "items": {"$ref": "#/$defs/b"}, "maxItems": 2},
                    {"type": "array", "items": {"$ref": "#/$defs/a"}, "uniqueItems": True},
                ]
            },
        },
    },
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_deep_texts_cost_what_their_depth_is(name: str) -> None:
    """Without merged stacks the alternatives open at depth n would be 2**n."""
    constraint = structgen.compile(JsonSchema(AMBIGUOUS[name]), TINY)
    for depth in (1, 2, 40):
        text = "[" * depth + "]" * depth
        assert accepts(constraint, text, random.Random(depth)) == jsonschema_rs.is_valid(
            AMBIGUOUS[name], json.loads(text)
        )
    cursor = constraint.start()
    for _ in range(40):
        cursor.accept(constraint.vocabulary.encode_bytes(b"[")[0])
    assert cursor.min_tokens_to_finish() <= 41 + 20


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_budgets_hold_where_stacks_are_merged(name: str) -> None:
    constraint = structgen.compile(JsonSchema(AMBIGUOUS[name]), TINY)
    validator = jsonschema_rs.validator_for(AMBIGUOUS[name])
    least = minimum(constraint)
    for seed in seeds(30):
        budget = least + seed
        result = walk(constraint, random.Random(seed), max_tokens=budget, special=0.6, end=0.05)
        assert result.ended
        assert len(result.ids) <= budget
        assert validator.is_valid(json.loads(result.text)), result.text


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_constants_are_judged_once_however_many_ways_lead_to_them(name: str) -> None:
    """Each alternative asks all others of the items, 2**50 times at this depth."""
    constant: list[Any] = []
    for _ in range(50):
        constant = [constant]
    listed = [constant, [[]], [None]]
    kinds = {"any": {**AMBIGUOUS[name], "$id": "http://any"}}
    schema = {"enum": listed, "$ref": "http://any", "$defs": kinds}
    constraint = structgen.compile(JsonSchema(schema), TINY, max_work=100_000)
    for value in (*listed, [constant], [[[]]]):
        is_one = jsonschema_rs.is_valid(AMBIGUOUS[name], value) and value in listed
        assert constraint.allows(json.dumps(value)) == is_one


_A = {"$ref": "#/$defs/a"}
_B = {"$ref": "#/$defs/b"}
_LIST: dict[str, Any] = {"type": "array", "items": _A}
_SOME = {**_LIST, "minItems": 1}
_NODE: dict[str, Any] = {"type": "object", "required": ["a"], "properties": {"a": _A, "b": _A}}

RECURSIVE: dict[str, list[dict[str, Any]]] = {
    "a list within a list": [_SOME, {**_SOME, "maxItems": 2}, {**_LIST, "maxItems": 0}],
    "beside a string": [_SOME, {**_SOME, "maxItems": 2}, {"type": "string"}],
    "by size": [_SOME, {"type": "array", "maxItems": 0}],
    "by size, unique": [{**_SOME, "uniqueItems": True}, {"type": "array", "maxItems": 0}],
    "of two kinds": [_SOME, {"type": "array", "items": _B, "minItems": 1}, {"type": "null"}],
    "two members": [{"type": "integer"}, _NODE, {**_NODE, "required": ["a", "b"]}],
    "one member": [{"type": "integer"}, _NODE, {**_NODE, "maxProperties": 1}],
}
"""Alternatives of one ``oneOf`` that refer to it."""


@pytest.mark.parametrize("name", RECURSIVE)
def test_alternatives_that_refer_to_themselves_are_not_taken_to_exclude_each_other(
    name: str,
) -> None:
    """Whether two of them do depends on just that; while it is asked, nothing is known."""
    kinds = {"b": {"oneOf": [_SOME, {"type": "string"}]}}
    schema = {**_A, "$defs": {"a": {"oneOf": RECURSIVE[name]}, **kinds}}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    validator = jsonschema_rs.validator_for(schema)
    values: list[Any] = ["", 1, None]
    for _ in range(2):
        some = [*values[:12], [], {}]
        values = [*some, *([a] for a in some), *([a, b] for a in some for b in some)]
        values += [{"a": a} for a in some] + [{"a": a, "b": b} for a in some for b in some]
        values += [[a, b, a] for a in some for b in some]
    assert any(validator.is_valid(value) for value in values)
    for value in values:
        assert constraint.allows(json.dumps(value)) == validator.is_valid(value), value
