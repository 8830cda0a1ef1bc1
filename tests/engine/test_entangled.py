"""Many alternatives at once, in small: unions told apart by tags, conditions, arrays.

Random schemas of the kinds that become rules when they are large. Here they are small, and rules
are made of them all the same, so that every verdict can be held against two other validators, and
masks against all tokens tried one by one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import structgen
from engine import oracle
from engine.walks import TINY, accepts, allowed, seeds, states_on_the_way, walk, would_accept
from structgen import JsonSchema, UnsupportedFeature
from structgen.automaton.schema import branches
from structgen.errors import CompileLimitExceeded, Unsatisfiable

Schema = dict[str, Any]

WORDS = ["a", "b", "ab", "c", "abc", "x1"]


@pytest.fixture(autouse=True)
def rules_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MAX_MULTIPLIED", 1)


# -- schemas and values ---------------------------------------------------------------------------


def tag(rng: random.Random) -> Schema:
    """What a tag must be: mostly one of a few words, said in one of many ways."""
    some = rng.sample(WORDS, rng.choice((1, 1, 1, 2, 3)))
    kind = rng.randrange(9)
    if kind == 0:
        return {"type": "string", "const": some[0]}
    if kind == 1:
        return {"pattern": f"^{some[0]}$"}
    if kind == 2:
        return {"type": "string", "pattern": f"^({'|'.join(some)})$"}
    if kind == 3:
        return {"anyOf": [{"enum": [word]} for word in some]}
    if kind == 4:
        return {"enum": [*some, rng.choice([1, None, [1], {"a": 1}])]}
    if kind == 5:
        return {"pattern": rng.choice(["^a", "b", "^[ab]?c?$"])}
    if kind == 6:
        return {"type": rng.choice(["string", "integer", "null"])}
    if kind == 7:
        return {"type": "string", "maxLength": rng.randint(1, 2)}
    return {"const": some[0]} if len(some) == 1 else {"enum": some}


def part(rng: random.Random) -> Schema:
    """What another member must be."""
    return rng.choice(
        [
            {"type": "integer"},
            {"type": "string"},
            {"enum": [1, "a"]},
            {"minimum": 2},
            {"type": "object", "properties": {"p": tag(rng)}},
            {"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"]},
            {"type": "object", "required": ["q"], "additionalProperties": tag(rng)},
            {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
            False,
        ]
    )


def way(rng: random.Random) -> Schema:
    """One alternative of a union."""
    schema: Schema = {}
    properties: Schema = {}
    if rng.random() < 0.85:
        properties["t"] = tag(rng)
    for name in ("u", "v"):
        if rng.random() < 0.5:
            properties[name] = part(rng)
    if rng.random() < 0.2:
        properties["s"] = tag(rng)
    if properties:
        schema["properties"] = properties
    required = [name for name in ("t", "u", "v") if rng.random() < (0.7 if name == "t" else 0.2)]
    if required:
        schema["required"] = required
    if rng.random() < 0.5:
        schema["type"] = "object"
    kind = rng.random()
    if kind < 0.25:
        schema["additionalProperties"] = False
    elif kind < 0.35:
        schema["additionalProperties"] = part(rng)
    elif kind < 0.4:
        schema["patternProperties"] = {"^[st]$": tag(rng)}
    return schema


def union(rng: random.Random) -> Schema:
    """Objects of which any, or exactly one, must fit."""
    ways = [way(rng) for _ in range(rng.randint(2, 7))]
    schema: Schema = {"type": "object", rng.choice(["anyOf", "anyOf", "oneOf"]): ways}
    if rng.random() < 0.5:
        schema["properties"] = {"t": tag(rng)} if rng.random() < 0.5 else {"u": part(rng)}
    if rng.random() < 0.2:
        schema["minProperties"] = rng.randint(1, 2)
    if rng.random() < 0.2:
        schema["maxProperties"] = rng.randint(1, 3)
    return schema


def conditions(rng: random.Random) -> Schema:
    """Conditions on members, and members that need others."""
    schema: Schema = {"type": "object", "allOf": []}
    for _ in range(rng.randint(1, 5)):
        branch: Schema = {"if": way(rng)}
        if rng.random() < 0.8:
            branch["then"] = way(rng)
        if rng.random() < 0.4:
            branch["else"] = way(rng)
        schema["allOf"].append(branch)
    if rng.random() < 0.5:
        names = ["t", "u", "v", "s", "w"]
        schema["dependentRequired"] = {
            name: rng.sample(names, rng.randint(1, 2)) for name in rng.sample(names, 3)
        }
    return schema


def value(rng: random.Random, depth: int = 2) -> Any:
    """A value that the schemas above may ask for."""
    kind = rng.randrange(10 if depth else 6)
    if kind < 3:
        return rng.choice(WORDS)
    if kind < 5:
        return rng.choice([0, 1, 2, 3, -1])
    if kind == 5:
        return rng.choice([None, True])
    if kind == 6:
        return [value(rng, 0) for _ in range(rng.randint(0, 2))]
    names = rng.sample(["p", "q", "a"], rng.randint(0, 2))
    return {name: value(rng, depth - 1) for name in names}


def document(rng: random.Random) -> dict[str, Any]:
    """An object that the schemas above may allow, its members in any order."""
    names = rng.sample(["t", "u", "v", "s", "w"], rng.randint(0, 4))
    if rng.random() < 0.6 and "t" not in names:
        names.insert(rng.randint(0, len(names)), "t")
    return {
        name: rng.choice(WORDS) if name == "t" and rng.random() < 0.8 else value(rng)
        for name in names
    }


# -- what has to hold -----------------------------------------------------------------------------


def check(
    schema: Schema, rng: random.Random, document: Callable[[random.Random], Any], **options: Any
) -> bool:
    """Verdicts and masks of one schema; False where it is refused."""
    try:
        constraint = structgen.compile(JsonSchema(schema), TINY, **options)
    except Unsatisfiable:
        documents = [document(rng) for _ in range(30)]
        assert not any(oracle.is_valid(schema, json.dumps(d)) for d in documents), schema
        return False
    except (CompileLimitExceeded, UnsupportedFeature):
        return False
    for _ in range(12):
        text = json.dumps(document(rng), separators=(",", ":"))
        verdict = oracle.is_valid(schema, text)
        if options.get("property_order") == "any":
            assert accepts(constraint, text, rng) == verdict, (schema, text)
        else:
            assert not accepts(constraint, text, rng) or verdict, (schema, text)
    for _ in range(3):
        result = walk(constraint, rng, steps=60, special=0.5)
        assert not result.ended or oracle.is_valid(schema, result.text), (schema, result.text)
        least = constraint.start().min_tokens_to_finish()
        result = walk(constraint, rng, max_tokens=least + rng.randint(0, 8))
        assert oracle.is_valid(schema, result.text), (schema, result.text)
    for cursor in states_on_the_way(constraint, rng, 6, special=0.6):
        expected = [i for i, text in enumerate(TINY.tokens) if text and would_accept(cursor, i)]
        if cursor.is_accepting:
            expected += TINY.eos_token_ids
        assert allowed(cursor) == sorted(expected), schema
    return True


@pytest.mark.parametrize("order", ["any", "schema"])
@pytest.mark.parametrize("make", [union, conditions])
def test_rules_are_exact(make: Callable[[random.Random], Schema], order: str) -> None:
    checked = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        checked += check(make(rng), rng, document, property_order=order)
    assert checked > len(seeds(40)) // 3


def contained(rng: random.Random) -> Schema:
    """What an array must contain, and how often."""
    some: list[Schema] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice([tag(rng), {"const": rng.randint(0, 3)}, {"enum": [1, 2]}, part(rng)])
        one: Schema = {"contains": kind}
        if rng.random() < 0.3:
            one["minContains"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            one["maxContains"] = rng.randint(0, 3)
        some.append(one)
    schema: Schema = {"type": "array", "allOf": some}
    if rng.random() < 0.3:
        schema["uniqueItems"] = True
    # What different items can still be is searched for at each state: of few, or it takes long.
    if "uniqueItems" in schema:
        schema["maxItems"] = rng.randint(1, 3)
    elif rng.random() < 0.3:
        schema["maxItems"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        schema["items"] = rng.choice([{"type": ["string", "integer"]}, {"enum": [0, 1, 2, "a"]}])
    return schema


def items(rng: random.Random) -> list[Any]:
    """An array that the schemas above may allow."""
    return [
        rng.choice([*WORDS, 0, 1, 2, 3, 0, 1, 2, None, value(rng)])
        for _ in range(rng.randint(0, 5))
    ]


def test_what_arrays_contain_is_exact() -> None:
    checked = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        checked += check(contained(rng), rng, items, property_order="any", spelling="any")
    assert checked > len(seeds(40)) // 3
