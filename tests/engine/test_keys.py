"""An object's keys: their shortest texts against a search byte by byte; keys written twice."""

from __future__ import annotations

import random
from typing import Any

import inside
import pytest
from hypothesis import given

import structgen
from engine import strategies
from engine.test_json_schema import EVERYTHING, RANDOM, compile_or_none
from engine.walks import TINY, allowed, examples
from structgen import JsonSchema, Vocabulary
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.json.keys import CLOSE, KeyLeaf
from structgen.constraint.constraint import Constraint
from structgen.errors import Unsatisfiable


def key_leaves(constraint: Constraint) -> list[KeyLeaf]:
    return [leaf for leaf in inside.machine(constraint).leaves if isinstance(leaf, KeyLeaf)]


def check(leaf: KeyLeaf, rng: random.Random, steps: int) -> int:
    """Compare from states all over the leaf; how many comparisons found a text."""
    found = 0
    states = list(range(len(inside.keys(leaf))))[:20]
    seen = set(states)
    for _ in range(steps):
        if not states:
            break
        q = states.pop(rng.randrange(len(states)))
        new = set(leaf.row(q).values()) - seen
        seen |= new
        states += new
        for wanted in (None, CLOSE, *range(1, leaf.symbols.n_names + 3)):
            quick, slow = leaf.shortest(q, wanted), Leaf._search(leaf, q, wanted)
            if leaf.label(q) >= 0:
                continue  # it has ended already
            assert (quick is None) == (slow is None), (inside.keys(leaf)[q], wanted)
            if quick is None or slow is None:
                continue
            text, outcome = quick
            assert len(text) == len(slow[0]), (inside.keys(leaf)[q], wanted, quick, slow)
            assert wanted in (None, outcome)
            at = q
            for byte in text:
                at = leaf.row(at)[byte]
            assert leaf.label(at) == outcome
            found += 1
    return found


@given(RANDOM)
@examples(25)
def test_no_key_is_longer_than_it_must_be(r: random.Random) -> None:
    options: dict[str, Any] = r.choice([{}, EVERYTHING, {"ensure_ascii": True}])
    try:
        constraint = compile_or_none(strategies.document(r), **options)
    except Unsatisfiable:
        return
    # How many states a shared leaf has depends on who used it before: no draw of Hypothesis.
    rng = random.Random(r.getrandbits(32))
    for leaf in key_leaves(constraint) if constraint else ():
        check(leaf, rng, 30)


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"whitespace": "  ?"}])
def test_names_that_begin_alike(options: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": dict.fromkeys(("", "a", "ab", "abc", "é", "éa", 'q"', "\n"), True),
        "patternProperties": {"^abd+$": {"type": "null"}},
        "additionalProperties": {"type": "integer"},
    }
    constraint = structgen.compile(JsonSchema(schema), TINY, **options)
    (leaf,) = key_leaves(constraint)
    assert check(leaf, random.Random(5), 120) > 100


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"additionalProperties": {"type": "integer"}}},
        {"if": {"additionalProperties": {"type": "integer"}}, "then": {"required": ["z"]}},
        {"oneOf": [{"additionalProperties": {"type": "integer"}}, {"minProperties": 1}]},
        {"not": {"patternProperties": {"^k": {"type": "integer"}}}},
    ],
    ids=lambda schema: next(iter(schema)),
)
@pytest.mark.parametrize(
    "options", [{}, {"property_order": "any"}, {"property_order": "any", "spelling": "any"}]
)
def test_a_witness_is_not_written_over(schema: Any, options: dict[str, Any]) -> None:
    """Of two members with one key readers keep the last: what settled the rule must stay."""
    vocabulary = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])
    constraint = structgen.compile(JsonSchema({"type": "object", **schema}), vocabulary, **options)

    def accepts(text: str) -> bool:
        cursor = constraint.start()
        try:
            for byte in text.encode():
                cursor.accept(byte)
        except structgen.errors.TokenNotAllowed:
            return False
        return cursor.is_accepting

    assert accepts('{"k":"s"}')
    assert accepts('{"k":"s","b":1}')
    assert not accepts('{"k":"s","k":1}')
    assert not accepts('{"k":"s","b":1,"k":1}')


@pytest.mark.parametrize(
    ("pattern", "more"),
    [
        ("^[ab]$", False),
        ("^(a|b|ab)$", True),
        ("^[ab]{1,9}$", True),
        ("a|b", True),
        ("^a*b?$", True),
    ],
)
def test_a_pattern_that_only_names_match_has_no_other_keys(pattern: str, more: bool) -> None:
    """Names that were written bar all that a pattern takes, or not."""
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}},
        "patternProperties": {pattern: {}},
        "additionalProperties": False,
    }
    vocabulary = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])
    cursor = structgen.compile(JsonSchema(schema), vocabulary).start()
    for byte in b'{"a":1,"b":2':
        cursor.accept(byte)
    assert (ord(",") in allowed(cursor, vocabulary)) == more
    if more:
        for byte in b',"':
            cursor.accept(byte)
        assert ord("a") in allowed(cursor, vocabulary)


BYTES = Vocabulary.from_tokens([b"", *[bytes([i]) for i in range(256)]], [0])


@pytest.mark.parametrize(
    "schema",
    [
        {"propertyNames": {"type": "integer"}},
        {"propertyNames": {"minLength": 3, "maxLength": 2}},
        {"propertyNames": {"pattern": "^a+$", "maxLength": 0}},
        {"propertyNames": {"pattern": "^a+$", "not": {"pattern": "^a"}}},
        {"propertyNames": {"allOf": [{"pattern": "^a+$"}, {"pattern": "^b+$"}]}},
        {"propertyNames": {"pattern": r"[^\s\S]"}},
        {"patternProperties": {"a$b": {}}, "additionalProperties": False},
        {"patternProperties": {"^$schema$": {}}, "additionalProperties": False},
    ],
    ids=str,
)
def test_no_key_begins_that_cannot_end(schema: dict[str, Any]) -> None:
    cursor = structgen.compile(JsonSchema({"type": "object", **schema}), BYTES).start()
    cursor.accept(1 + ord("{"))
    assert allowed(cursor, BYTES) == [1 + ord("}")]
    cursor.accept(1 + ord("}"))
    assert cursor.is_accepting


def test_the_least_budget_is_that_of_the_text_whose_tokens_are_counted() -> None:
    """Of two equally short objects the one whose key comes first is written in fewer tokens."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "null"}, "a1": {"type": "array", "maxItems": 0}},
        "required": ["name", "a1"],
        "additionalProperties": False,
    }
    texts = [b"", *[bytes([i]) for i in range(256)], b'{"a1":[],"']
    constraint = structgen.compile(
        JsonSchema(schema), Vocabulary.from_tokens(texts, [0]), property_order="any", spelling="any"
    )
    assert constraint.start().min_tokens_to_finish() == len('{"a1":[],"name":null}') - 10 + 2
