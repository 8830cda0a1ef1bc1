"""Draft 4's integers, which are told by their spelling: 12345.0 is none."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest

import structgen
from engine.walks import TINY, accepts
from structgen import JsonSchema

SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": ["integer", "number"]},
    {"type": "number", "not": {"type": "integer"}},
    {"type": "integer", "multipleOf": 1.5},
    {"not": {"type": "integer"}, "type": "number", "multipleOf": 1},
    {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "number", "minimum": 7}]},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 1.5}]},
    {"not": {"not": {"type": "integer"}}},
    {"enum": [1]},
    {"enum": [1.0], "type": "integer"},
    {"enum": [1, 2.0, 2.5], "not": {"type": "integer"}},
    {"enum": [{"a": 1}], "properties": {"a": {"type": "integer"}}},
    {"enum": [[1, 2.0], [3]], "items": {"not": {"type": "integer"}}},
    {"not": {"enum": [1, 2]}},
    {"type": "integer", "not": {"enum": [1, 2]}},
    {"type": "array", "uniqueItems": True, "items": {"type": "number"}},
    {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 3},
]
NUMBERS = "1 1.0 1e0 2.0 2.5 2 3 3.0 10 1e1 7.0 7 4.5 -0 0.0 -3 12345.0"
OTHERS = 'null true [1,1.0] [1,2] [1.0,2.0] [3] [3.0] {"a":1} {"a":1.0}'
TEXTS = NUMBERS.split() + OTHERS.split()


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_spelling_decides_as_in_an_independent_validator(schema: dict[str, Any]) -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
    any_spelling = structgen.compile(JsonSchema(schema), TINY, spelling="any")
    canonical = structgen.compile(JsonSchema(schema), TINY)
    validator = jsonschema_rs.validator_for(schema)
    rng = random.Random(1)
    for text in TEXTS:
        valid = validator.is_valid(json.loads(text))
        assert accepts(any_spelling, text, rng) == valid, text
        assert valid or not accepts(canonical, text, rng), text


def test_later_drafts_go_by_value() -> None:
    rng = random.Random(1)
    for dialect, want in [("draft4", False), ("draft6", True), ("draft2020-12", True)]:
        constraint = structgen.compile(
            JsonSchema({"type": "integer"}), TINY, spelling="any", dialect=dialect
        )
        assert accepts(constraint, "12345.0", rng) == want
