"""`max_depth`: no text nests deeper, none is begun that would have to, and masks know it."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine import oracle, strategies
from engine.walks import TINY, examples, minimum, try_accept, would_accept
from engine.walks import accepts as reads
from engine.walks import walk as random_walk
from structgen import JsonSchema, Text, Vocabulary
from structgen.errors import Unsatisfiable

# Tokens that open and close several values at once.
TEXTS = [
    *("[[", "[[[", "[[[[", '{"a":[', '{"a":{"a":', "[1,[", "]]", "]]]", "],[", '{"next":{"next":'),
    *("null}}", '":[[', "[]", "[[]]", "{}", "[{}", ',{"', '"kids":[', '"kids":[{'),
]
TOKENS = [bytes([b]) for b in range(256)] + [t.encode() for t in TEXTS] + [b""]
VOCABULARY = Vocabulary.from_tokens(TOKENS, eos_token_ids=[len(TOKENS) - 1])

LIST = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
    "required": ["next"],
    "additionalProperties": False,
}
CHAINS = {"n": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/n"}}}
SCHEMAS: list[Any] = [
    # Items that differ by their depth alone: soon the shallow ones are used up.
    {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/n"}, "$defs": CHAINS},
    {
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
        "contains": {"maxItems": 0},
        "maxContains": 1,
        "$defs": CHAINS,
    },
    {},
    {"type": "array", "items": {"$ref": "#"}},
    {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "a": True},
        "additionalProperties": False,
    },
    LIST,
    {
        "anyOf": [
            {"type": "integer"},
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
        ]
    },
    {
        "oneOf": [
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "array", "items": {"type": "array"}, "minItems": 2},
        ]
    },
    {"type": "array", "uniqueItems": True},
    {"type": "array", "contains": {"type": "array", "minItems": 1}},
    {"type": "object", "minProperties": 2, "patternProperties": {"^a": {"type": "array"}}},
    {"enum": [[[1]], [[[[2]]]], {"a": {"a": {}}}]},
    {"not": {"type": "array", "items": {"type": "array"}}},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"whitespace": "flexible", "property_order": "any", "spelling": "any", "max_whitespace": 1},
]


def depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


def allowed(cursor: structgen.Cursor) -> set[int]:
    out = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    cursor.fill_mask(out)
    return set(np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little")).tolist())


def walk(constraint: structgen.Constraint, rng: random.Random, check: bool) -> str:
    """A text that opens much; every mask is compared with brute force where ``check`` says so."""
    cursor, out = constraint.start(max_tokens=30), bytearray()
    while True:
        mask = allowed(cursor)
        assert mask, f"dead end after {bytes(out)!r}"
        if check:
            expected = {t for t in range(VOCABULARY.size) if would_accept(cursor, t)}
            assert mask == expected, bytes(out)
        opening = [t for t in sorted(mask) if b"[" in TOKENS[t] or b"{" in TOKENS[t]]
        token = rng.choice(opening if opening and rng.random() < 0.6 else sorted(mask))
        cursor.accept(token)
        if cursor.is_finished:
            return out.decode()
        out += TOKENS[token]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:60])
@pytest.mark.parametrize("most", [2, 3, 7])
def test_nothing_nests_deeper(schema: Any, most: int) -> None:
    rng = random.Random(most)
    for options in OPTIONS:
        constraint = structgen.compile(JsonSchema(schema), VOCABULARY, max_depth=most, **options)
        for number in range(2):
            text = walk(constraint, rng, check=number == 0)
            assert depth(json.loads(text)) <= most


@pytest.mark.parametrize(
    "schema",
    [{}, LIST, {"type": "array", "items": {"$ref": "#"}}],
    ids=lambda s: json.dumps(s)[:60],
)
def test_the_bound_itself_is_reached(schema: Any) -> None:
    opening, other = ('{"next":', "null") if schema is LIST else ("[", "]")
    for most in (1, 2, 5, 64):
        constraint = structgen.compile(JsonSchema(schema), VOCABULARY, max_depth=most)
        cursor = constraint.start()
        for byte in (opening * most).encode():
            cursor.accept(byte)
        assert not would_accept(cursor, ord(opening[0]))
        assert would_accept(cursor, ord(other[0]))


def test_a_schema_that_needs_more_is_refused_by_the_name_of_the_option() -> None:
    schema: Any = {"const": 1}
    for _ in range(4):
        schema = {"type": "array", "items": schema, "minItems": 1}
    with pytest.raises(Unsatisfiable, match="max_depth=3"):
        structgen.compile(JsonSchema(schema), VOCABULARY, max_depth=3)
    for most in (4, None):
        cursor = structgen.compile(JsonSchema(schema), VOCABULARY, max_depth=most).start()
        assert cursor.min_tokens_to_finish() > 1


def test_without_a_bound() -> None:
    cursor = structgen.compile(JsonSchema({}), VOCABULARY, max_depth=None).start()
    for _ in range(500):
        cursor.accept(0x5B)
    assert would_accept(cursor, 0x5B)


@pytest.mark.parametrize("most", [None, 1000])
def test_values_that_are_compared_have_a_bound_of_their_own(most: int | None) -> None:
    constraint = structgen.compile(
        JsonSchema({"type": "array", "uniqueItems": True}), VOCABULARY, max_depth=most
    )
    cursor = constraint.start()
    for byte in b"[" * 128 + b"]" * 127 + b",":
        cursor.accept(byte)
    for byte in b"[" * 127:
        cursor.accept(byte)
    assert not would_accept(cursor, 0x5B)
    cursor.accept(0x31)
    for byte in b"]" * 128:
        cursor.accept(byte)
    assert cursor.is_accepting


@given(st.randoms(use_true_random=False))
@examples(60)
def test_any_schema_is_kept_to_the_bound_and_not_further(r: random.Random) -> None:
    schema, most = strategies.document(r), r.randint(1, 4)
    flexible = r.random() < 0.5
    options = OPTIONS[1] if flexible else {}
    shallow = [v for v in (strategies.value(r, 3) for _ in range(8)) if depth(v) <= most]
    valid = [v for v in shallow if oracle.is_valid(schema, json.dumps(v))]
    try:
        constraint = structgen.compile(JsonSchema(schema), TINY, max_depth=most, **options)
    except Unsatisfiable:
        assert not valid
        return
    except structgen.OutputTypeError:
        return
    for _ in range(2):
        text = random_walk(constraint, r, max_tokens=minimum(constraint) + r.randint(0, 25)).text
        assert depth(json.loads(text)) <= most
        assert oracle.is_valid(schema, text)
    for value in valid if flexible else []:
        assert reads(constraint, json.dumps(value), r)


_TREE = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/n"}}}
_LISTS = {"type": "array", "items": {"$ref": "#"}}
_DEEP_TOKENS = [
    *(bytes([b]) for b in range(256)),
    *(b"x[[", b"x[[[", b"[[[", b" [[[", b'{"a":{', b'{"a":{"a":{', b'{"a":{"a":{"a":{', b""),
]


@pytest.mark.parametrize("before", ["", "x"])
@pytest.mark.parametrize("after", ["", "y"])
@pytest.mark.parametrize("whitespace", ["natural", "flexible"])
@pytest.mark.parametrize("schema", [_TREE, _LISTS], ids=["objects", "arrays"])
def test_a_token_that_begins_a_value_keeps_to_the_bound(
    schema: Any, whitespace: str, before: str, after: str
) -> None:
    vocabulary = Vocabulary.from_tokens(_DEEP_TOKENS, [len(_DEEP_TOKENS) - 1])
    output: Any = JsonSchema(schema | {"$defs": CHAINS})
    output = Text(before) + output if before else output
    output = output + Text(after) if after else output
    for most in range(1, 5):
        constraint = structgen.compile(output, vocabulary, max_depth=most, whitespace=whitespace)
        out = np.zeros((len(_DEEP_TOKENS) + 31) // 32, np.uint32)
        constraint.start().fill_mask(out)
        for token in range(256, len(_DEEP_TOKENS) - 1):
            cursor = constraint.start()
            by_bytes = all(try_accept(cursor, byte) for byte in _DEEP_TOKENS[token])
            assert bool(out[token >> 5] >> (token & 31) & 1) == by_bytes, _DEEP_TOKENS[token]
