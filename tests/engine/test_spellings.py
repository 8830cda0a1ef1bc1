"""Which spellings of one value are accepted: escapes of strings, forms of numbers."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import inside
import pytest

import structgen
from engine.walks import TINY, accepts, allowed, brute_force_ids
from structgen import JsonSchema, Vocabulary

EVERYWHERE = [
    ({"type": "string"}, "{}"),
    ({"const": "{}"}, "{}"),
    ({"enum": ["x", "{}"]}, "{}"),
    ({"type": "object", "properties": {"{}": True}, "required": ["{}"]}, '{{"{}":1}}'),
]
"""Schemas with one place for a text, and the document around it."""


def spellings(char: str) -> list[str]:
    """Every way RFC 8259 has to write ``char`` in a string."""
    ways = [] if char in '"\\' or char < " " else [char]
    units = char.encode("utf-16-be").hex()
    ways += ["".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))]
    ways += ["".join("\\u" + units[i : i + 4].upper() for i in range(0, len(units), 4))]
    short = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}.get(char, char)
    if char in '"\\/\b\f\n\r\t':
        ways.append("\\" + short)
    assert all(json.loads(f'"{way}"') == char for way in ways)
    return ways


def filled(schema: Any, text: str) -> Any:
    if isinstance(schema, dict):
        return {filled(k, text): filled(v, text) for k, v in schema.items()}
    if isinstance(schema, list):
        return [filled(item, text) for item in schema]
    return text if schema == "{}" else schema


@pytest.mark.parametrize(("schema", "around"), EVERYWHERE, ids=lambda x: str(x)[:20])
def test_every_spelling_of_a_text(schema: Any, around: str) -> None:
    rng = random.Random(3)
    for text in ("aé", "/\x7f", '"\n', "😀\\", "\x01\t"):
        written = ["".join(ways) for ways in itertools.product(*map(spellings, text))]
        for ascii_only in (False, True):
            constraint = structgen.compile(
                JsonSchema(filled(schema, text)), TINY, spelling="any", ensure_ascii=ascii_only
            )
            for way in written:
                whole = around.format(way) if "{{" in around else f'"{way}"'
                wanted = way.isascii() or not ascii_only
                assert accepts(constraint, whole, rng) == wanted, whole


def test_strings_the_schema_does_not_name_may_be_escaped_at_will() -> None:
    for options in ({}, {"ensure_ascii": True}):
        free = structgen.compile(JsonSchema({"type": "string"}), TINY, **options)
        named = structgen.compile(JsonSchema({"const": "a/"}), TINY, **options)
        for text in ('"a/"', '"a\\/"', '"\\u0061/"', '"a\\u002F"'):
            assert accepts(free, text, random.Random(1))
            assert accepts(named, text, random.Random(1)) == (text == '"a/"')


@pytest.mark.parametrize(
    ("value", "equal"),
    [
        (1.0, ["1", "1.0", "1.00", "1e0", "10e-1", "0.1E+1"]),
        (100, ["100", "100.0", "1e2", "1E+2", "1000e-1"]),
        (0, ["0", "-0", "0.0", "-0.0", "0e5"]),
        (-0.0, ["0", "-0", "0.0", "-0.0", "0e5"]),
        (0.5, ["0.5", "0.50", "5e-1"]),
        (1.5e-7, ["1.5e-07", "0.00000015", "15E-8"]),
        (1e22, ["1e+22", "1e22", "10000000000000000000000", "10000000000000000000000.0"]),
    ],
)
def test_every_number_that_equals_a_constant(value: Any, equal: list[str]) -> None:
    rng = random.Random(4)
    own = json.dumps(value)
    for schema, around in (
        ({"const": value}, "{}"),
        ({"enum": ["x", value, 3]}, "{}"),
        ({"const": [value]}, "[{}]"),
        ({"const": {"a": value}}, '{{"a":{}}}'),
        ({"type": "number", "const": value}, "{}"),
    ):
        canonical = structgen.compile(JsonSchema(schema), TINY)
        free = structgen.compile(JsonSchema(schema), TINY, spelling="any")
        for text in {own, *equal}:
            assert accepts(canonical, around.format(text), rng) == (text == own), text
            assert accepts(free, around.format(text), rng), text
        for text in ("3.0000001", "7", str(value) + "1"):
            assert not accepts(free, around.format(text), rng), text


@pytest.mark.parametrize(
    ("schema", "spelt"),
    [
        ({"enum": [1, 1.0]}, "1"),
        ({"enum": [1.0, 1]}, "1.0"),
        ({"const": 1.0, "enum": [1, 2]}, "1.0"),
        ({"enum": [1, 2], "const": 1.0}, "1"),
        ({"allOf": [{"const": 1.0}, {"const": 1}]}, "1.0"),
    ],
)
def test_of_equal_constants_the_first_is_spelt(schema: Any, spelt: str) -> None:
    constraint = structgen.compile(JsonSchema(schema), TINY)
    assert [t for t in ("1", "1.0") if accepts(constraint, t, random.Random(1))] == [spelt]


@pytest.mark.parametrize("options", [{}, {"spelling": "any"}, {"ensure_ascii": True}])
def test_a_vocabulary_without_a_delete_character(options: dict[str, Any]) -> None:
    """It has no token for the lone byte 0x7F; one where it follows another byte is of no use."""
    tokens = [*(bytes([b]) for b in range(256) if b != 0x7F), b"a\x7f", b""]
    vocabulary = Vocabulary.from_tokens(tokens, [len(tokens) - 1])
    escaped = '"\\u007f"'
    for schema in ({"const": "\x7f"}, {"type": "string", "pattern": "^\x7f$"}):
        constraint = structgen.compile(JsonSchema(schema), vocabulary, **options)
        assert accepts(constraint, escaped, random.Random(1))
        assert constraint.start().min_tokens_to_finish() == len(escaped) + 1
        cursor = constraint.start(max_tokens=len(escaped) + 1)
        for token in vocabulary.encode_bytes(escaped.encode()):
            cursor.accept(token)
        assert cursor.is_accepting
    constraint = structgen.compile(JsonSchema({"type": "string"}), vocabulary, **options)
    cursor = constraint.start()
    cursor.accept(0x22)
    wanted = brute_force_ids(constraint, inside.state(cursor), vocabulary)
    assert set(allowed(cursor, vocabulary)) == wanted
    key = {"type": "object", "properties": {"\x7f": {"const": 1}}, "required": ["\x7f"]}
    constraint = structgen.compile(JsonSchema(key), vocabulary, **options)
    assert constraint.start().min_tokens_to_finish() == len('{"\\u007f":1}') + 1
