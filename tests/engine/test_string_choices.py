"""What strings may be, as one expression where alternatives would multiply: exact, and one leaf."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import inside
import jsonschema_rs
import pytest

import structgen
from engine.walks import TINY, accepts
from structgen import JsonSchema
from structgen.automaton.schema import branches

VALUES: list[Any] = [
    *("".join(c) for n in range(4) for c in itertools.product("ab1", repeat=n)),
    *("é", "a b", "aaaa", "ab1ab", "bbbbb", "null", '"', "\\"),
    *(None, True, 0, 1, 2.5, [], ["a"], {}, {"a": "b"}),
]
LEAVES: list[Any] = [
    {"pattern": "a"},
    {"pattern": "^[ab]*$"},
    {"pattern": "1$"},
    {"pattern": "(ab)+"},
    {"pattern": "^(?!b)"},
    {"minLength": 2},
    {"maxLength": 3},
    {"enum": ["a", "ab", "", 1, None]},
    {"const": "ab1"},
    {"type": "string"},
    {"type": ["string", "integer"]},
    {"type": ["null", "boolean", "number"]},
    {"minimum": 1},
    {"required": ["a"]},
    {"items": {"type": "string"}},
    True,
    False,
]


def random_schema(rng: random.Random, depth: int) -> Any:
    kind = rng.choice(["leaf", "allOf", "anyOf", "oneOf", "not", "if"]) if depth else "leaf"
    if kind == "leaf":
        return rng.choice(LEAVES)
    if kind == "not":
        return {"not": random_schema(rng, depth - 1)}
    if kind == "if":
        return {key: random_schema(rng, depth - 1) for key in ("if", "then", "else")}
    return {kind: [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


@pytest.mark.parametrize("seed", range(60))
def test_any_boolean_combination_is_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MAX_STRINGS", seed % 2 - 1)  # half of them wherever possible
    rng = random.Random(seed)
    schema = {
        "allOf": [random_schema(rng, 3), {"anyOf": [random_schema(rng, 2), {"pattern": "b"}]}]
    }
    try:
        constraint = structgen.compile(JsonSchema(schema), TINY)
    except structgen.errors.Unsatisfiable:
        constraint = None
    for value in VALUES:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        accepted = constraint is not None and accepts(constraint, text, rng)
        assert accepted == jsonschema_rs.is_valid(schema, value), (schema, value)


def test_what_would_multiply_out_is_one_automaton() -> None:
    choices = [{"anyOf": [{"pattern": f"{c}{d}"} for d in "123"]} for c in "abcdefgh"]
    schema = {"type": "string", "maxLength": 40, "allOf": choices}  # 3 ** 8 conjunctions
    constraint = structgen.compile(JsonSchema(schema), TINY)
    assert len(inside.machine(constraint).configurations(inside.state(constraint.start()))) == 1
    rng = random.Random(0)
    assert accepts(constraint, '"a1b2c3d1e2f3g1h2"', rng)
    assert not accepts(constraint, '"a1b2c3d1e2f3g1h4"', rng)


def test_alternatives_that_count_may_be_spelt_freely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MAX_STRINGS", -1)
    counted = {"anyOf": [{"maxLength": 1}, {"minLength": 3, "maxLength": 3}]}
    constraint = structgen.compile(JsonSchema({"type": "string", "not": counted}), TINY)
    rng = random.Random(0)
    assert accepts(constraint, r'"\u0061b"', rng)
    assert not accepts(constraint, r'"\u0061"', rng)
