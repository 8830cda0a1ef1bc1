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
