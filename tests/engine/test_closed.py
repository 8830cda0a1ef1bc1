"""``closed=True``: objects have no members but those that the schema names."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import jsonschema_rs
import pytest

import structgen
from engine.walks import TINY, accepts, minimum, walk
from structgen import JsonSchema

A = {"properties": {"a": {"type": "integer", "maximum": 9}}}
B = {"properties": {"b": {"type": "integer", "maximum": 9}}}
INNER = {"type": "object", "properties": {"in": A}}
KINDS = [
    {"properties": {"kind": {"const": kind}, "of": INNER}, "required": ["kind"]} for kind in "xyz"
]
TREE = {"properties": {"left": {"$ref": "#/$defs/t"}}}
TWO = {"oneOf": [{"properties": {"p": A}}, {"properties": {"p": B}}]}

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (A, [{}, {"a": 1}, [{"n": 1}], 3], [{"b": 1}]),
    ({"type": "object"}, [{}], [{"a": 1}]),
    ({}, [{"a": {"b": 1}}], []),
    (
        {"items": A, "prefixItems": [INNER]},
        [[{"in": {"a": 1}}, {"a": 1}]],
        [[{"in": {"b": 1}}], [{}, {"b": 1}]],
    ),
    ({**A, "additionalProperties": B}, [{"x": {"b": 1}}], [{"x": {"c": 1}}, {"a": {"b": 1}}]),
    ({**A, "additionalProperties": True}, [{"x": {"c": 1}}], []),
    (
        {**A, "patternProperties": {"^x": INNER}},
        [{"xy": {"in": {}}}],
        [{"x": {"on": {}}}, {"y": 1}],
    ),
    ({"required": ["c"], **A}, [{"a": 1, "c": {"d": 1}}], [{"c": 1, "d": 1}]),
    ({"allOf": [A, B], "required": ["a"]}, [{"a": 1, "b": 2}], [{"a": 1, "c": 1}]),
    ({"anyOf": [A, B]}, [{"a": 1}, {"b": 1}], [{"c": 1}]),
    ({"anyOf": [A, B], "properties": {"c": True}}, [{"a": 1, "c": 1}], [{"d": 1}]),
    (
        {"oneOf": KINDS},
        [{"kind": "x", "of": {"in": {"a": 1}}}],
        [{"kind": "y", "of": {"out": {}}}, {"kind": "x", "b": 1}],
    ),
    ({"not": {"required": ["b"]}, **A}, [{"a": 1}], [{"b": 1}, {"c": 1}]),
    ({"if": {"required": ["a"]}, "then": B, **A}, [{"a": 1, "b": 2}, {}], [{"b": 1}]),
    (
        {"$ref": "#/$defs/t", "$defs": {"t": TREE}},
        [{"left": {"left": {}}}],
        [{"left": {"right": {}}}],
    ),
    ({"enum": [{"a": 1}, {"b": {"c": 2}}]}, [{"b": {"c": 2}}], [{"b": {}}]),
    ({"unevaluatedProperties": {"type": "null"}, **A}, [{"a": 1, "z": None}], [{"z": 1}]),
    # Two alternatives may differ by what is nested only: what makes the other one wrong stays.
    (TWO, [{"p": {"a": "x", "b": 1}}], [{"p": {"a": 1}}]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_members_that_are_not_named(schema: Any, good: list[Any], bad: list[Any]) -> None:
    constraint = structgen.compile(JsonSchema(schema, closed=True), TINY, property_order="any")
    for value in good:
        assert jsonschema_rs.is_valid(schema, value)
        assert accepts(constraint, json.dumps(value), random.Random(1)), value
    for value in bad:
        assert not accepts(constraint, json.dumps(value), random.Random(1)), value
    for n in range(6):
        text = walk(constraint, random.Random(n), max_tokens=minimum(constraint) + 25).text
        assert jsonschema_rs.is_valid(schema, json.loads(text)), text


def test_the_option_and_the_argument_are_one() -> None:
    closed = JsonSchema(A, closed=True)
    assert closed != JsonSchema(A)
    assert pickle.loads(pickle.dumps(closed)) == closed
    option = structgen.compile(JsonSchema(A), TINY, closed=True)
    assert [option.allows(text) for text in ("{}", '{"b":1}')] == [True, False]
    assert "closed" in {limit.option for limit in option.explain().limits}
    both = structgen.compile(list[int] | JsonSchema(A), TINY, closed=True)
    assert [both.allows(text) for text in ("[1]", '{"b":1}')] == [True, False]
    with pytest.raises(structgen.errors.OptionError, match="closed must be True or False"):
        structgen.compile(JsonSchema(A), TINY, closed=1)  # type: ignore[arg-type]


def test_more_alternatives_than_unevaluated_properties_can_have() -> None:
    schema = {"anyOf": [{"properties": {name: INNER}} for name in "abcdefghij"]}
    constraint = structgen.compile(JsonSchema(schema, closed=True), TINY)
    texts = '{"j":{"in":{}}}', '{"a":{},"j":{}}', '{"k":{}}'
    assert [constraint.allows(text) for text in texts] == [True, False, False]


def test_the_order_of_members_is_the_same() -> None:
    schema = {
        "allOf": [{"properties": {"b": True}}, {"properties": {"a": True}}],
        "properties": {"c": True},
    }
    texts = '{"c":1,"b":1,"a":1}', '{"a":1,"b":1,"c":1}', '{"b":1,"c":1}'
    verdicts = [
        [structgen.compile(JsonSchema(schema), TINY, closed=closed).allows(text) for text in texts]
        for closed in (False, True)
    ]
    assert verdicts[0] == verdicts[1] == [True, False, False]
