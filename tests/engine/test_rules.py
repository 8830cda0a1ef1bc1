"""Rules about an object's members together, and what arrays must not be: exact, in any order."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest
from guards import counted

import structgen
from engine.walks import TINY, accepts, minimum, seeds, walk
from structgen import JsonSchema
from structgen.automaton.json.values import Emptiness

DRAFT = "https://json-schema.org/draft/2020-12/schema"

OBJECTS: list[Any] = [
    {},
    {"a": 1},
    {"a": "x"},
    {"b": 1},
    {"a": 1, "b": 1},
    {"a": "x", "b": "x"},
    {"a": 1, "c": 1},
    {"a": "x", "b": 1, "c": "y"},
    {"c": 1, "cc": 2},
    {"c": 1, "cc": "s"},
    {"kind": "k0", "v": 0},
    {"kind": "k0", "v": 1},
    {"v": 2, "kind": "k2"},
    {"v": 2},
    {"kind": "other", "v": 2},
    {"props": {"p": 1}, "kind": "k3"},
    {"kind": "k3", "props": {"p": 3}},
    {"kind": "k3", "props": {"p": 4}},
    {"props": {"p": 4, "q": True}},
    {"kind": "k1", "props": {"q": 1}},
    {"kind": ["k1"], "v": 1},
    {"kind": 2, "v": 1},
    {"kind": 2.0, "v": "x"},
]
ARRAYS: list[Any] = [
    [],
    [1],
    [1, 1],
    [1, 1.0],
    [1, 2],
    [1, 2, 1],
    ["a", 1],
    ["a", "a"],
    [{"a": 1}, {"a": 1}],
    [{"a": 1}, {"a": 2}],
    [1, "a", "a"],
    [2, 2],
]

SCHEMAS: dict[str, Any] = {
    "branches that overlap": {
        "oneOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["b"]},
            {"properties": {"a": {"type": "integer"}}, "required": ["c"]},
            {"properties": {"c": {"type": "integer"}}, "required": ["a"]},
        ]
    },
    "not": {"not": {"properties": {"a": {"type": "string"}}, "required": ["b"]}},
    "not additional": {"type": "object", "not": {"additionalProperties": {"type": "string"}}},
    "not patterns": {"type": "object", "not": {"patternProperties": {"^c": {"type": "integer"}}}},
    "not names": {"type": "object", "not": {"propertyNames": {"maxLength": 1}}},
    "not counted": {"type": "object", "not": {"minProperties": 2, "maxProperties": 2}},
    "not unevaluated": {
        "$schema": DRAFT,
        "type": "object",
        "not": {
            "properties": {"a": {"type": "string"}},
            "anyOf": [
                {"properties": {"b": True}},
                {"patternProperties": {"^c": {"type": "integer"}}, "required": ["c"]},
            ],
            "unevaluatedProperties": False,
        },
    },
    "a discriminator after the fact": {
        "type": "object",
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]},
                "then": {"properties": {"v": {"enum": [i, i + 1]}, "w": {"minLength": i}}},
            }
            for i in range(12)
        ],
    },
    "twenty branches that exclude each other": {
        "oneOf": [
            {
                "properties": {"kind": {"const": f"k{i}"}, "v": {"enum": [i, i + 1]}},
                "required": ["kind"],
            }
            for i in range(20)
        ]
    },
    "many overlapping branches, told apart by an optional member": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "enum": [f"k{i}"]},
                    "props": {
                        "type": "object",
                        "properties": {"p": {"minimum": i % 5}, "q": {"type": "boolean"}},
                        "additionalProperties": False,
                    },
                },
                "additionalProperties": False,
            }
            for i in range(12)
        ]
    },
    "lists that overlap": {
        "type": "object",
        "properties": {"kind": {"enum": ["k0", "k1", "k2", "k3", 2, ["k1"]]}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"enum": kinds}}, "required": ["kind"]},
                "then": {"properties": {"v": {"type": kind}}},
            }
            for kinds, kind in (
                (["k0", "k1"], "integer"),
                (["k1", "k2"], "boolean"),
                (["k3", ["k1"], 2], "integer"),
                ([2.0, "other"], "string"),
                (["k0", "k1", "k2", "k3"], "number"),
            )
        ],
    },
    "not unique": {"type": "array", "not": {"uniqueItems": True}},
    "not unique, two at most": {"type": "array", "maxItems": 2, "not": {"uniqueItems": True}},
    "not unique, unlike items": {
        "$schema": DRAFT,
        "type": "array",
        "prefixItems": [{"type": ["integer", "object"]}, {"type": ["string", "integer"]}],
        "items": False,
        "not": {"uniqueItems": True},
    },
    "not unevaluated items": {
        "$schema": DRAFT,
        "type": "array",
        "not": {
            "anyOf": [
                {"prefixItems": [True]},
                {"prefixItems": [{"type": "string"}, True]},
                {"items": {"type": "integer"}},
            ],
            "unevaluatedItems": {"type": "null"},
        },
    },
    "unevaluated items, some contained": {
        "$schema": DRAFT,
        "type": "array",
        "not": {"prefixItems": [True], "contains": {"const": "a"}, "unevaluatedItems": False},
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_verdicts_are_those_of_a_validator(name: str) -> None:
    schema = SCHEMAS[name]
    validator = jsonschema_rs.validator_for(schema)
    constraint = structgen.compile(JsonSchema(schema), TINY, property_order="any", spelling="any")
    for seed, value in enumerate(OBJECTS + ARRAYS):
        text = json.dumps(value, separators=(",", ":"))
        verdict = accepts(constraint, text, random.Random(seed))
        assert verdict == validator.is_valid(value), text


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("order", ["any", "schema"])
def test_walks_end_and_validate(name: str, order: str) -> None:
    schema = SCHEMAS[name]
    validator = jsonschema_rs.validator_for(schema)
    constraint = structgen.compile(
        JsonSchema(schema), TINY, property_order=order, max_digits=6, spelling="canonical"
    )
    least = minimum(constraint)
    for seed in seeds(8):
        result = walk(
            constraint, random.Random(seed), max_tokens=least + seed, special=0.5, end=0.2
        )
        assert result.ended
        assert validator.is_valid(json.loads(result.text)), result.text


def test_names_that_only_a_rule_speaks_of_have_no_order() -> None:
    """The second item must differ from the first: its names are compared, not ordered."""
    constraint = structgen.compile(JsonSchema({"uniqueItems": True}), TINY)
    for text, verdict in (
        ('[{"a":true},{"b":1,"a":true}]', True),
        ('[{"a":true},{"a":true,"b":1}]', True),
        ('[{"a":true},{"a":true}]', False),
    ):
        assert accepts(constraint, text, random.Random(0)) == verdict


def test_equal_constants_keep_their_own_spelling() -> None:
    schema = {"items": {"const": [{"a": 1}]}, "not": {"const": [2, 1.0]}}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    assert accepts(constraint, '[[{"a":1}]]', random.Random(0))


def test_telling_lists_apart_asks_little(monkeypatch: pytest.MonkeyPatch) -> None:
    # A question for each pair made a schema with 125 of these take a minute.
    asked = counted(monkeypatch, Emptiness, "clearly_empty")
    kinds = 60
    structgen.compile(
        JsonSchema(
            {
                "type": "object",
                "properties": {"kind": {"type": "string"}, "v": {}},
                "allOf": [
                    {
                        "if": {"properties": {"kind": {"const": f"k{i}"}}},
                        "then": {"properties": {"v": {"properties": {"x": {"const": i}}}}},
                    }
                    for i in range(kinds)
                ],
            }
        ),
        TINY,
    )
    assert 0 < len(asked) < 20 * kinds


# -- alternatives that share parts ----------------------------------------------------------------


def _part(tag: int, variant: int = 0) -> dict[str, Any]:
    """An object told apart from others by its ``type``."""
    config = {"type": "object", "properties": {f"c{tag}": {"type": "integer"}, f"d{variant}": {}}}
    return {
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "type": {"type": "string", "enum": [f"t{tag}"]},
            "config": {**config, "additionalProperties": False},
        },
        "required": ["type"],
        "additionalProperties": False,
    }


def _whole(parts: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """An object that holds some of the parts, of which nothing is required."""
    lists = {"type": "array", "items": {"oneOf": parts}}
    properties = {"id": {"type": "string"}, "parts": lists, name: {"type": "string"}}
    return {"type": "object", "properties": properties, "additionalProperties": False}


SHARING: dict[str, list[dict[str, Any]]] = {
    "equal": [_whole([_part(i) for i in range(15)], name) for name in "ab"],
    "some of them": [_whole([_part(i) for i in range(k, k + 15)], "ab"[k > 0]) for k in (0, 5)],
    "with other parts": [_whole([_part(i, k) for i in range(15)], "ab"[k]) for k in (0, 1)],
    "three": [_whole([_part(i) for i in range(6)], name) for name in "abc"],
}


def _document(r: random.Random) -> dict[str, Any]:
    def part() -> dict[str, Any]:
        tag = r.randrange(22)
        members: list[tuple[str, Any]] = [("type", f"t{tag}")]
        if r.random() < 0.3:
            members.append(("key", "k"))
        if r.random() < 0.6:
            name = f"c{tag if r.random() < 0.8 else tag + 1}"
            config = r.choice([{}, {name: 1}, {name: "x"}, {"d0": 1}, {"d1": 1}])
            members.append(("config", config))
        return dict(members)

    members: list[tuple[str, Any]] = []
    if r.random() < 0.8:
        members.append(("parts", [part() for _ in range(r.randint(0, 2))]))
    if r.random() < 0.5:
        members.append((r.choice("abc"), "x"))
    r.shuffle(members)
    return dict(members)


@pytest.mark.parametrize("name", SHARING)
def test_alternatives_that_share_parts(name: str) -> None:
    # Neither tag nor required member tells them apart, and the parts they share are many.
    schema = {"oneOf": SHARING[name]}
    validator = jsonschema_rs.validator_for(schema)
    options: dict[str, Any] = {"property_order": "any", "max_work": 300_000}
    constraint = structgen.compile(JsonSchema(schema), TINY, **options)
    r, verdicts = random.Random(name), set()
    for _ in seeds(150):
        value = _document(r)
        verdict = constraint.allows(json.dumps(value))
        assert verdict == validator.is_valid(value), value
        verdicts.add(verdict)
    assert len(verdicts) == 2
    for seed in seeds(3):
        result = walk(constraint, random.Random(seed), minimum(constraint) + 40, special=0.6)
        assert validator.is_valid(json.loads(result.text)), result.text


def test_one_of_two_equal_alternatives_never_holds() -> None:
    whole = SHARING["equal"][0]
    with pytest.raises(structgen.errors.Unsatisfiable):
        structgen.compile(JsonSchema({"oneOf": [whole, whole]}), TINY)
    schema = {"oneOf": [whole, whole, {"type": "object", "required": ["z"]}]}
    assert structgen.compile(JsonSchema(schema), TINY).allows('{"z": 1}')


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("kind", ["const", "pattern", "required"])
def test_many_alternatives_are_told_apart_by_what_is_inside_members(depth: int, kind: str) -> None:
    inside: dict[str, Any] = {
        "const": lambda n: ({"const": f"k{n}"}, f"k{n}"),
        "pattern": lambda n: ({"type": "string", "pattern": f"^k{n}_"}, f"k{n}_a"),
        "required": lambda n: (
            {"properties": {f"r{n}": True}, "required": [f"r{n}"], "additionalProperties": False},
            {f"r{n}": 1},
        ),
    }
    options, values = [], []
    for n in range(110 if kind == "const" else 40):
        option, value = inside[kind](n)
        if kind == "required":
            option["type"] = "object"
        for at in range(depth + 1):
            option = {"type": "object", "properties": {f"m{at}": option}, "required": [f"m{at}"]}
            value = {f"m{at}": value}
        options.append(option)
        values.append(value)
    constraint = structgen.compile(JsonSchema({"oneOf": options}), TINY, max_work=200_000)
    for value in values[::13]:
        assert constraint.allows(json.dumps(value))
        assert not constraint.allows(json.dumps({**value, f"m{depth}": {}}))


def test_alternatives_that_contain_themselves_are_not_compared_for_ever() -> None:
    names = [f"n{i}" for i in range(10)]

    def kind(name: str, value: str) -> dict[str, Any]:
        own = {one: {"$ref": f"#/$defs/{name}"} for one in names}
        end = {"type": "object", "properties": {"end": {"const": value}}, "required": ["end"]}
        more = {"type": "object", "properties": own, "required": names}
        return {"anyOf": [end, more]}

    schema = {
        "$defs": {"A": kind("A", "a"), "B": kind("B", "b")},
        "oneOf": [
            {"type": "object", "properties": {"m": {"$ref": f"#/$defs/{one}"}}, "required": ["m"]}
            for one in "AB"
        ],
    }
    constraint = structgen.compile(JsonSchema(schema), TINY)
    assert constraint.allows('{"m": {"end": "a"}}')
    assert not constraint.allows('{"m": {"end": "c"}}')
