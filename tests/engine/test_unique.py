"""Items that must be unique: masks against what a text may be, by values and not by spellings.

The judges here know nothing of automata. Where there are finitely many texts they are written down;
elsewhere a text is tried with everything that may have been left of it.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine.walks import allowed, examples, minimum, seeds
from structgen import JsonSchema, Vocabulary
from structgen.automaton.core.leaf import ENDED
from structgen.automaton.json.excluding import ExcludingLeaf, bytes_of_many
from structgen.automaton.json.keys import NameLeaf
from structgen.automaton.json.numbers import NumberSpec
from structgen.automaton.json.scalars import number_leaf, string_leaf
from structgen.constraint.constraint import Constraint
from structgen.constraint.cursor import Cursor
from structgen.errors import TokenNotAllowed
from structgen.grammar import ir

ONE = Decimal(1)

_PIECES = r"""
[" "] "," ","a ","a" ","a"," ","b" a"," a","b b","a","ab" "a" "b" "ab" "" "","" "]," ab ba aa abc
"a","b","c" "a","a" ","ab ","abc" ,"a" ,"b ,"a","b"] \u006 \u0061 1 \u0061" "\u0061" 0061 "\u00
\n \" \\ \/ \u002f ","\u0061" ","\n" ] ]] ,1 ,2 1,2 1,1 ,1, 12 ,12 1.0 .0 .5 ,1. 0, 1] 00 -1 ,-0
[1,2 2,1 null tru ,true true ,null true, e0 e1 E+1 {"a": ,{"a":1} 1} }, {"a" :1 },{ é ré",
"""
_TOKENS = [*(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in _PIECES.split())]
VOCABULARY = Vocabulary.from_tokens([*_TOKENS, b""], [len(_TOKENS)])


def unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **more}


def at(constraint: Constraint, text: bytes) -> Cursor:
    cursor = constraint.start()
    for byte in text:
        cursor.accept(byte)
    return cursor


# -- all texts written down -------------------------------------------------------------------

_WORDS = ["a", "b", "ab", "aa", "ba", "bb"]

FINITE: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "strings of a pattern": (unique({"pattern": "^[ab]{1,2}$", "type": "string"}), _WORDS),
    "one that ends early": (
        unique({"pattern": "^(a|bb*a)$", "type": "string", "maxLength": 3}),
        ["a", "ba", "bba"],
    ),
    "a chain": (unique({"pattern": "^(a|ab|abc)$", "type": "string"}), ["a", "ab", "abc"]),
    "an enum": (unique({"enum": ["a", "ab", "b", "abc"]}), ["a", "ab", "b", "abc"]),
    "words and strings": (
        unique(
            {
                "anyOf": [
                    {"type": "boolean"},
                    {"type": "null"},
                    {"type": "string", "pattern": "^a?$"},
                ]
            }
        ),
        ["", "a", True, False, None],
    ),
    "digits": (unique({"type": "integer", "minimum": 0, "maximum": 3}), [0, 1, 2, 3]),
    "digits, some barred": (
        unique(
            {"type": "integer", "minimum": 0, "maximum": 12, "not": {"enum": [0, *range(3, 12)]}}
        ),
        [1, 2, 12],
    ),
}


@cache
def prefixes(name: str, least: int, most: int) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """All texts of the schema, and everything that one of them begins with."""
    values = FINITE[name][1]
    wholes = {
        json.dumps(list(items), separators=(",", ":")).encode()
        for n in range(least, most + 1)
        for items in itertools.permutations(values, n)
    }
    return frozenset(w[:i] for w in wholes for i in range(len(w) + 1)), frozenset(wholes)


@pytest.mark.parametrize(("least", "most"), [(0, 3), (2, 3), (3, 3)])
@pytest.mark.parametrize("name", FINITE)
def test_masks_are_those_of_all_texts_written_down(name: str, least: int, most: int) -> None:
    begun, wholes = prefixes(name, least, most)
    schema = {**FINITE[name][0], "minItems": least, "maxItems": most}
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY, whitespace="compact")
    rng = random.Random(name)
    for _ in seeds(5):
        cursor, text = constraint.start(), b""
        while True:
            expected = {i for i, token in enumerate(_TOKENS) if text + token in begun}
            if text in wholes:
                expected |= set(VOCABULARY.eos_token_ids)
            found = set(allowed(cursor, VOCABULARY))
            # -0 is a way to write 0 that `json.dumps` does not have.
            found -= {i for i in found if b"-" in VOCABULARY.tokens[i]}
            assert found == expected, text
            going = [i for i in expected if i < len(_TOKENS)]
            if not going:
                break
            chosen = rng.choice(going)
            cursor.accept(chosen)
            text += _TOKENS[chosen]


# -- any strings ------------------------------------------------------------------------------

_TAILS = ["", "n", "u0071", "0071", "071", "71", "1"]
"""What may be left of an escape."""

_ENDINGS = ["", "]", '"z"]', '"zqxj"]', '["z"]', '["zqxj"]']
_ENDINGS += [tail + more + '"]' for tail in _TAILS for more in ("", "z", "zq", "zqx", "zqxj")]


def may_begin(text: bytes, least: int, most: int | None) -> bool:
    """Whether some array of unique strings begins like that."""
    return any(is_one(text + ending.encode(), least, most) for ending in _ENDINGS)


def is_one(text: bytes, least: int, most: int | None) -> bool:
    try:
        items = json.loads(text.decode())
    except ValueError:
        return False
    compact = not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text.decode()))
    return (
        isinstance(items, list)
        and compact
        and all(isinstance(item, str) and len(item) >= least for item in items)
        and all(most is None or len(item) <= most for item in items)
        and len(set(items)) == len(items)
        and not any(0xD800 <= ord(char) < 0xE000 for item in items for char in item)
    )


_STRINGS = st.lists(st.text(st.sampled_from('ab/"\\\n'), max_size=3), max_size=5, unique=True)


def spelt(value: str, rng: random.Random) -> str:
    """``value`` as a JSON string, some of its characters as escapes."""
    out = '"'
    for char in value:
        ways = [json.dumps(char)[1:-1], f"\\u{ord(char):04x}", f"\\u{ord(char):04X}"]
        ways += ["\\/"] * (char == "/")
        out += rng.choice(ways)
    return out + '"'


@given(_STRINGS, st.sampled_from([(0, None), (1, None), (0, 8), (1, 5)]), st.integers(0, 1 << 30))
@examples(50)
def test_strings_are_told_apart_by_value(
    values: list[str], bounds: tuple[int, int | None], seed: int
) -> None:
    least, most = bounds
    rng = random.Random(seed)
    values = [v for v in values if len(v) >= least]
    items: dict[str, Any] = {"type": "string", "minLength": least}
    if most is not None:
        items["maxLength"] = most
    options: dict[str, Any] = {"spelling": "any", "whitespace": "compact"}
    constraint = structgen.compile(JsonSchema(unique(items)), VOCABULARY, **options)
    # The last item begins like another one, perhaps in another spelling.
    last = rng.choice(values) if values else "ab"
    text = "[" + "".join(spelt(v, rng) + "," for v in values) + spelt(last, rng)
    data = text.encode()
    cut = len(data) - rng.randrange(min(len(spelt(last, rng)), len(data)) + 1)
    data = data[: max(1, cut)]
    while not may_begin(data, least, most):
        data = data[:-1]
    cursor = at(constraint, data)
    found = set(allowed(cursor, VOCABULARY))
    for i, token in enumerate(_TOKENS):
        if max(token) < 0x80:
            assert (i in found) == may_begin(data + token, least, most), (data, token)
    assert (VOCABULARY.eos_token_ids[0] in found) == is_one(data, least, most)


_STRING = {"type": "string"}


def _object(properties: Any, **more: Any) -> dict[str, Any]:
    closed = {"required": [*properties], "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed, **more}


MORE: dict[str, dict[str, Any]] = {
    "anything": unique({}),
    "numbers": unique({"type": "number"}),
    "positive": unique({"type": "number", "minimum": 0}),
    "integers": unique({"type": "integer"}, minItems=2),
    "objects": unique(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
    "arrays": unique(unique({"type": "string", "minLength": 1})),
    "strings or numbers": unique({"type": ["string", "number", "null"]}, minItems=3),
    "first another": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"enum": ["a", "b"]}],
        "items": {"type": "string", "maxLength": 3},
        "uniqueItems": True,
    },
    "in an object": {
        "type": "object",
        "properties": {"a": unique({"type": "string"}), "b": unique({"type": "integer"})},
    },
    "a chain of strings": unique({"type": "string", "pattern": "^(a|ab|abc|b+)$"}, maxItems=4),
    "two strings": unique(_object({"a": _STRING, "b": _STRING})),
    "two strings, three owed": unique(_object({"a": _STRING, "b": _STRING}), minItems=3),
    "one left out": unique(_object({"a": _STRING, "b": _STRING}, required=["a"])),
    "both left out": unique(_object({"a": _STRING, "b": _STRING}, required=[]), maxItems=3),
    "few at the end": unique(_object({"a": _STRING, "b": {"type": "boolean"}})),
    "few at the start": unique(_object({"a": {"enum": ["a", "ab"]}, "b": _STRING})),
    "few in all": unique(_object({"a": {"enum": ["a", "ab"]}, "b": {"type": "boolean"}})),
    "any members": unique({"type": "object"}),
    "named and others": unique(_object({"a": _STRING}, additionalProperties=True)),
    "others of a type": unique(_object({}, additionalProperties={"type": "integer"})),
    "objects in objects": unique(_object({"a": _object({"b": _STRING}), "b": {"type": "null"}})),
    "pairs": unique({"type": "array", "items": _STRING, "minItems": 2, "maxItems": 2}),
    "any items": unique({"type": "array"}, minItems=2),
    "a prefix": unique({"prefixItems": [_STRING, {"type": "boolean"}], "type": "array"}),
    "of two kinds": unique({"anyOf": [_object({"a": _STRING}), {"type": "array"}, _STRING]}),
    "a rule": unique(_object({"a": _STRING, "b": _STRING}, minProperties=1, required=[])),
}


@pytest.mark.parametrize("options", [{}, {"spelling": "any"}, {"whitespace": "flexible"}])
@pytest.mark.parametrize("name", MORE)
def test_masks_are_what_can_be_read_byte_by_byte(name: str, options: dict[str, Any]) -> None:
    constraint = structgen.compile(JsonSchema(MORE[name]), VOCABULARY, **options)
    for seed in seeds(3):
        rng = random.Random(seed)
        cursor = constraint.start()
        for _ in range(9):
            found = set(allowed(cursor, VOCABULARY))
            expected = set()
            for token in range(len(_TOKENS)):
                try:
                    cursor.accept(token)
                except TokenNotAllowed:
                    continue
                expected.add(token)
                cursor.rollback(1)
            assert found - {len(_TOKENS)} == expected
            going = sorted(expected, key=lambda t: (-len(_TOKENS[t]), t))
            if not going:
                break
            cursor.accept(going[0] if rng.random() < 0.3 else rng.choice(going[:60]))


@pytest.mark.parametrize("spare", [0, 4])
@pytest.mark.parametrize("name", MORE)
def test_masks_within_a_budget_are_what_can_be_accepted(name: str, spare: int) -> None:
    constraint = structgen.compile(JsonSchema(MORE[name]), VOCABULARY)
    rng = random.Random(spare)
    cursor, free = constraint.start(minimum(constraint) + spare), constraint.start()
    while not cursor.is_finished:
        found = set(allowed(cursor, VOCABULARY))
        for token in allowed(free, VOCABULARY):
            try:
                cursor.accept(token)
            except TokenNotAllowed:
                assert token not in found
            else:
                cursor.rollback(1)
                assert token in found, _TOKENS[token]
        chosen = rng.choice(sorted(found))
        cursor.accept(chosen)
        free.accept(chosen)


# -- the leaf ---------------------------------------------------------------------------------


@given(st.lists(st.text("abc", max_size=4), min_size=1, max_size=6, unique=True))
@examples(60)
def test_a_leaf_without_some_of_its_texts(barred: list[str]) -> None:
    base = string_leaf(ir.ANY_TEXT, "canonical", frozenset())
    assert base is not None
    singles = []
    for text in barred:
        single = NameLeaf((text,), "canonical")
        start = single.open(1)
        assert start is not None
        singles.append((single, start))
    opened = ExcludingLeaf(base).open((*range(len(singles)),), lambda number: singles[number])
    assert opened is not None
    leaf, leaf_start = opened
    for n in range(4):
        for chars in itertools.product("abc", repeat=n):
            text = "".join(chars)
            data = f'"{text}"'.encode()
            q, end = leaf.read(leaf_start, data, 0)
            ends = q == ENDED or (q >= 0 and leaf.labels[q] == 0)
            assert (ends and end == len(data)) == (text not in barred)
            if q >= 0:
                assert leaf.shortest(q) == (b"", 0)
    way = leaf.shortest(leaf_start)
    shortest = min(
        ("".join(c) for n in range(6) for c in itertools.product(" !abc", repeat=n)),
        key=lambda t: (t in barred, len(t)),
    )
    assert way is not None
    assert len(way[0]) == len(shortest) + 2


def test_how_far_more_values_than_some_reach() -> None:
    anything = string_leaf(ir.ANY_TEXT, "any", frozenset())
    assert anything is not None
    assert bytes_of_many(anything, anything.start, 0) == 2
    longer = bytes_of_many(anything, anything.start, 50)
    assert longer is not None
    assert 3 <= longer <= 4
    few = number_leaf(NumberSpec(lower=ONE, upper=Decimal(9), multiples=(ONE,), canonical=True))
    assert few is not None
    assert bytes_of_many(few, few.start, 8) == 1
    assert bytes_of_many(few, few.start, 9) is None
