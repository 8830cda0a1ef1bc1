"""Objects whose unnamed keys may run out: members are counted, and keys are out of a finite set."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

import structgen
from engine.walks import ids_of, seeds, walks_within_the_budget
from structgen import JsonSchema, Vocabulary

BYTES = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])
PIECES = ['{"', '":null', '":null,"', '":true', 'true,"', 'a":', '"b"', "null}", 'b":true,"a']
CROSSING = Vocabulary.from_tokens(
    [*BYTES.tokens[:256], *(piece.encode() for piece in PIECES), b""], [256 + len(PIECES)]
)
KEYS = ("a", "b", "c", "ab")
NULL = {"type": "null"}
TRUE = {"const": True}


def schema_of(r: random.Random) -> dict[str, Any]:
    """An object whose keys are out of `KEYS` and whose values are null and true."""
    value = {"enum": [None, True]}
    known = r.sample(KEYS, r.randint(1, 4))
    found: dict[str, Any] = {"type": "object", "additionalProperties": value}
    listed = r.sample(KEYS, r.choice((0, 1, 1, 2)))
    if listed:
        found["properties"] = {name: r.choice((NULL, TRUE, value, False)) for name in listed}
    if r.random() < 0.6:
        pattern = f"^({'|'.join(known)})$"
        found["propertyNames"] = r.choice(
            [{"enum": known}, {"pattern": pattern}, {"enum": known, "maxLength": 1}]
        )
        if r.random() < 0.6:
            patterns = r.sample(["^a", "b$", "^.$", "c"], r.randint(1, 2))
            found["patternProperties"] = {p: r.choice((NULL, TRUE, value)) for p in patterns}
            found["additionalProperties"] = r.choice((value, NULL, False))
    else:
        half = r.randrange(len(known))
        some = {f"^({'|'.join(part)})$": r.choice((NULL, TRUE, value)) for part in (known[half:],)}
        if known[:half]:
            some[f"^({'|'.join(known[:half])})$"] = r.choice((NULL, TRUE))
        found.update(patternProperties=some, additionalProperties=False)
    found["minProperties"] = r.choice((1, 2, 2, 2, 3, 3))
    if r.random() < 0.3:
        found["maxProperties"] = found["minProperties"] + r.randint(0, 1)
    if r.random() < 0.3:
        found["required"] = r.sample(KEYS, 1)
    if r.random() < 0.3:
        # Something that a member with a key out of several has to settle.
        found["not"] = r.choice(
            [
                {"patternProperties": {"^[bc]": NULL}},
                {"patternProperties": {"b$": TRUE, "^a$": NULL}},
                {"additionalProperties": NULL},
            ]
        )
    return found


def valid_objects(schema: dict[str, Any]) -> dict[frozenset[str], set[tuple[tuple[str, Any], ...]]]:
    """All that a validator takes, in every order, by the set of keys."""
    validator = jsonschema_rs.validator_for(schema)
    found: dict[frozenset[str], set[tuple[tuple[str, Any], ...]]] = {}
    for size in range(len(KEYS) + 1):
        for keys in itertools.combinations(KEYS, size):
            for values in itertools.product((None, True), repeat=size):
                members = tuple(zip(keys, values, strict=True))
                if validator.is_valid(dict(members)):
                    found.setdefault(frozenset(members), set()).update(
                        itertools.permutations(members)
                    )
    return found


def is_repeated(text: bytes) -> bool:
    """Whether the last key has been there before."""
    *before, last = re.findall(rb'"(\w+)"', text)
    return last in before


def written(constraint: Any) -> set[tuple[tuple[str, Any], ...]]:
    """The members of every object that the masks lead to, each byte a token.

    Not those that are the same but for their spelling, nor what comes after a key written again,
    as unnamed ones may be where they no longer count.
    """
    found = set()
    cursor = constraint.start()
    mask = np.zeros(9, np.uint32)
    todo: list[tuple[int, bytes]] = [(0, b"")]
    depth = 0
    while todo:
        at, text = todo.pop()
        cursor.rollback(depth - at)
        if text:
            cursor.accept(text[-1])
        depth = len(text)
        cursor.fill_mask(mask)
        ids = ids_of(mask)
        assert ids, f"no way on after {text!r}"
        for i in ids:
            if i == 256:
                pairs = json.loads(text, object_pairs_hook=tuple)
                assert pairs not in found
                found.add(pairs)
            elif i != 0x5C and not (i == 0x3A and is_repeated(text)):
                todo.append((depth, text + bytes([i])))
    return found


def compiled(schema: Any, vocabulary: Vocabulary, order: str) -> structgen.Constraint:
    options: Any = {"property_order": order, "whitespace": "compact"}
    return structgen.compile(JsonSchema(schema), vocabulary, **options)


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize("seed", seeds(100))
def test_masks_lead_to_what_a_validator_takes_and_nowhere_else(seed: int, order: str) -> None:
    schema = schema_of(random.Random(seed))
    expected = valid_objects(schema)
    if not expected:
        with pytest.raises(structgen.StructgenError):
            compiled(schema, BYTES, order)
        return
    found = written(compiled(schema, BYTES, order))
    every = set().union(*expected.values())
    assert found <= every
    if order == "any":
        assert found == every
    assert {frozenset(members) for members in found} == set(expected), schema


@pytest.mark.parametrize("seed", seeds(40))
def test_walks_end_within_their_budgets(seed: int) -> None:
    r = random.Random(seed)
    schema = schema_of(r)
    if not valid_objects(schema):
        return
    for order in ("schema", "any"):
        for result in walks_within_the_budget(compiled(schema, CROSSING, order), r, 8):
            assert jsonschema_rs.is_valid(schema, json.loads(result.text)), result.text


@pytest.mark.parametrize(
    "keys",
    [
        {"propertyNames": {"enum": ["a", "b"]}},
        {"propertyNames": {"pattern": "^[ab]$"}},
        {"patternProperties": {"^b$": {"type": "integer"}}, "additionalProperties": False},
    ],
)
def test_the_last_of_the_unnamed_keys_does_not_come_before_names(keys: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 2}
    cursor = compiled({**schema, **keys}, BYTES, "schema").start(60)
    for byte in b'{"':
        cursor.accept(byte)
    mask = np.zeros(9, np.uint32)
    cursor.fill_mask(mask)
    assert ids_of(mask) == [ord("a")]
    assert cursor.min_tokens_to_finish() == len('a":0,"b":0}') + 1
