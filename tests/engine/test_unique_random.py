"""Random schemas of unique items and of objects with counted keys, whatever stands around them.

Two judges: where a schema has finitely many values all of them are written down; elsewhere every
token is tried with `accept` on a cursor that has no mask, within a budget and without.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import inside
import jsonschema_rs
import pytest
import real_tokenizers
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine import oracle
from engine.test_unique import VOCABULARY as PIECES
from engine.test_unique import at, unique
from engine.walks import (
    TINY,
    allowed,
    brute_force_after_text,
    calls,
    examples,
    minimum,
    random_tokens,
    replay,
    would_accept,
)
from structgen import JsonSchema, StructgenError, Vocabulary
from structgen.automaton.schema.array_spec import needed_by_others
from structgen.errors import Unsatisfiable

Schema = dict[str, Any]

BYTES = Vocabulary.from_tokens([*(bytes([byte]) for byte in range(256)), b""], [256])
VOCABULARIES = {"bytes": BYTES, "pieces": PIECES, "tiny": TINY}
SEEDS = st.integers(0, 1 << 30)


# -- what was found -----------------------------------------------------------------------------

_BOOLEANS = unique({"type": "boolean"}, maxItems=2)


def test_an_item_that_leaves_none_for_those_owed_is_not_begun() -> None:
    # Another array than [false] and [false,true] that begins with false has true once more.
    constraint = structgen.compile(JsonSchema(unique(_BOOLEANS)), BYTES)
    cursor = at(constraint, b"[[false],[false,true],[")
    assert bytes(allowed(cursor, BYTES)) == b"]t"


def test_a_plan_is_found_wherever_a_mask_leads() -> None:
    schema = unique(_BOOLEANS, minItems=5)
    constraint = structgen.compile(JsonSchema(schema), BYTES, whitespace="compact")
    cursor = constraint.start(200)
    for byte in b"[[false],[false,true],[true,false],[tru":
        assert byte in allowed(cursor, BYTES)
        cursor.accept(byte)
    assert cursor.min_tokens_to_finish() == len(b"e],[]]") + 1


@pytest.mark.parametrize("whitespace", ["natural", "spaced", "flexible", " ?"])
def test_a_budget_with_whitespace(whitespace: str) -> None:
    # A token such as a comma and a space ends where it is forgotten what the next item must not be.
    schema = unique({"type": "string"}, minItems=2)
    constraint = structgen.compile(JsonSchema(schema), PIECES, whitespace=whitespace)
    cursor = constraint.start(40)
    for byte in b'["a", "b':
        assert byte in allowed(cursor, PIECES)
        cursor.accept(byte)


def test_values_of_which_there_are_too_few_to_begin_with_the_shortest() -> None:
    schema = {
        "type": "array",
        "prefixItems": [{"enum": [1, 22]}, {"enum": [1]}],
        "minItems": 2,
        "uniqueItems": True,
    }
    constraint = structgen.compile(JsonSchema(schema), BYTES)
    assert bytes(allowed(at(constraint, b"["), BYTES)) == b"2"


def test_a_token_may_lead_far_from_the_end() -> None:
    items = {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 200}]}
    constraint = structgen.compile(JsonSchema(unique(items, minItems=2)), BYTES)
    for budget in (350, 420):
        cursor = constraint.start(budget)
        cursor.accept(ord("["))
        assert (ord('"') in allowed(cursor, BYTES)) == would_accept(cursor, ord('"'))
        if would_accept(cursor, ord('"')):
            cursor.accept(ord('"'))
            assert cursor.min_tokens_to_finish() <= budget - 2


@given(st.lists(st.frozensets(st.integers(0, 4), max_size=4), max_size=5))
@examples(200)
def test_values_needed_by_others(domains: list[frozenset[int]]) -> None:
    ways = [set(way) for way in itertools.product(*domains) if len(set(way)) == len(way)]
    expected = frozenset.intersection(*map(frozenset, ways)) if ways else frozenset()
    assert needed_by_others(domains) == expected


# -- finitely many values -----------------------------------------------------------------------

_ATOMS = [True, False, None, 1, 2, "a", "ab", [], [True], {"a": 1}, {"b": 1}]


def _few(r: random.Random, depth: int) -> Schema:
    kind = r.random()
    if kind < 0.3 or not depth:
        return {"enum": r.sample(_ATOMS, r.randint(1, 3))}
    if kind < 0.5:
        return {"enum": [True, False]} if kind < 0.35 else {"type": "boolean"}
    if kind < 0.6:
        return {"anyOf": [_few(r, depth - 1), _few(r, depth - 1)]}
    return _few_members(r) if kind < 0.7 else _few_items(r, depth - 1)


def _few_members(r: random.Random) -> Schema:
    names = r.sample(["a", "b", "c"], r.randint(1, 2))
    schema: Schema = {"type": "object", "properties": {name: _few(r, 0) for name in names}}
    schema["additionalProperties"] = False
    if r.random() < 0.3:
        schema["minProperties"] = 1
    if r.random() < 0.4:
        schema["required"] = [r.choice(names)]
    return schema


def _few_items(r: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "array", "maxItems": r.randint(1, 3)}
    if r.random() < 0.8:
        schema["uniqueItems"] = True
    prefix = [_few(r, depth) for _ in range(r.choice([0, 0, 0, 1, 2, 3]))]
    if prefix:
        schema["prefixItems"] = prefix
    schema["items"] = _few(r, depth) if not prefix or r.random() < 0.5 else False
    if r.random() < 0.6:
        schema["minItems"] = r.randint(1, schema["maxItems"])
    if r.random() < 0.2:
        schema["contains"] = _few(r, 0)
        if r.random() < 0.4:
            schema["maxContains"] = 1
    return schema


class _TooMany(Exception):
    pass


def _values(schema: Any) -> list[Any]:
    """Every value that ``schema`` may have, and some others."""
    if schema is False:
        return []
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema:
        return [value for part in schema["anyOf"] for value in _values(part)]
    if schema["type"] == "boolean":
        return [True, False]
    if schema["type"] == "object":
        ways = [[None, *([v] for v in _values(s))] for s in schema["properties"].values()]
        return [
            {name: v[0] for name, v in zip(schema["properties"], way, strict=True) if v is not None}
            for way in itertools.product(*ways)
        ]
    found: list[Any] = []
    prefix = schema.get("prefixItems", [])
    for count in range(schema["maxItems"] + 1):
        items = [_values(prefix[i] if i < len(prefix) else schema["items"]) for i in range(count)]
        number = 1
        for values in items:
            number *= len(values)
        if number > 3000:
            raise _TooMany
        found += map(list, itertools.product(*items))
    return found


@given(SEEDS)
@examples(300)
def test_masks_are_those_of_all_values_written_down(seed: int) -> None:
    r = random.Random(seed)
    schema = _few_items(r, 2)
    try:
        values = _values(schema)
    except _TooMany:
        return
    judge = jsonschema_rs.validator_for(schema)
    wholes = {
        json.dumps(value, separators=(",", ":")).encode()
        for value in values
        if judge.is_valid(value)
    }
    try:
        constraint = structgen.compile(JsonSchema(schema), BYTES, whitespace="compact")
    except Unsatisfiable:
        assert not wholes
        return
    following: dict[bytes, set[int]] = {}
    for whole in wholes:
        for i, byte in enumerate(whole):
            following.setdefault(whole[:i], set()).add(byte)
    for _ in range(3):
        cursor, text = constraint.start(), b""
        while True:
            expected = set(following.get(text, ()))
            if text in wholes:
                expected.add(256)
            assert set(allowed(cursor, BYTES)) == expected, text
            going = sorted(expected - {256})
            if not going:
                break
            byte = r.choice(going)
            cursor.accept(byte)
            text += bytes([byte])


# Items that are objects and arrays of few values: nearly every text is barred sooner or later.


def _part(r: random.Random, depth: int) -> Schema:
    kind = r.random()
    if kind < 0.5 or not depth:
        return {"enum": r.sample([True, None, 1, 2, "a", "ab"], r.randint(1, 2))}
    if kind < 0.75:
        return _object(r, depth - 1)
    return {"type": "array", "items": _part(r, 0), "minItems": r.randint(0, 1), "maxItems": 2}


def _object(r: random.Random, depth: int) -> Schema:
    names = r.sample("abc", r.randint(1, 2 + depth))
    return {
        "type": "object",
        "properties": {name: _part(r, depth) for name in names},
        "required": [name for name in names if r.random() < 0.6],
        "additionalProperties": False,
    }


def _container(r: random.Random) -> Schema:
    kind = r.random()
    if kind < 0.6:
        return _object(r, r.choice([0, 1]))
    if kind < 0.8:
        least = r.randint(0, 2)
        return {"type": "array", "items": _part(r, r.choice([0, 1])), "minItems": least} | {
            "maxItems": 2
        }
    return {"anyOf": [_object(r, 0), _object(r, 0), {"enum": ["a", 1]}]}


def _texts(value: Any, any_order: bool) -> list[str]:
    """All texts of ``value``, its members in any order or in their own."""
    if isinstance(value, dict):
        orders = itertools.permutations(value) if any_order else [tuple(value)]
        return [
            "{" + ",".join(f"{json.dumps(n)}:{t}" for n, t in zip(names, way, strict=True)) + "}"
            for names in orders
            for way in itertools.product(*[_texts(value[name], any_order) for name in names])
        ]
    if isinstance(value, list):
        ways = itertools.product(*[_texts(item, any_order) for item in value])
        return ["[" + ",".join(way) + "]" for way in ways]
    return [json.dumps(value)]


@given(SEEDS)
@examples(150)
def test_objects_and_arrays_that_must_differ(seed: int) -> None:
    r = random.Random(seed)
    schema = unique(_container(r), maxItems=r.choice([2, 2, 3]))
    if r.random() < 0.4:
        schema["minItems"] = r.randint(1, schema["maxItems"])
    order = r.choice(["schema", "any"])
    try:
        values = _values(schema)
    except _TooMany:
        return
    judge = jsonschema_rs.validator_for(schema)
    wholes: set[bytes] = set()
    for value in filter(judge.is_valid, values):
        wholes.update(text.encode() for text in _texts(value, order == "any"))
        if len(wholes) > 20_000:
            return
    try:
        constraint = structgen.compile(
            JsonSchema(schema), BYTES, whitespace="compact", property_order=order
        )
    except Unsatisfiable:
        assert not wholes
        return
    following: dict[bytes, set[int]] = {}
    for whole in wholes:
        for i, byte in enumerate(whole):
            following.setdefault(whole[:i], set()).add(byte)
    for _ in range(4):
        cursor, text = constraint.start(), b""
        while True:
            expected = set(following.get(text, ()))
            if text in wholes:
                expected.add(256)
            assert set(allowed(cursor, BYTES)) == expected, text
            # What is planned ends: a budget of just so many tokens is kept.
            assert constraint.start(len(text) + cursor.min_tokens_to_finish())
            going = sorted(expected - {256})
            if not going:
                break
            byte = r.choice(going)
            cursor.accept(byte)
            text += bytes([byte])


# -- real tokenizers ------------------------------------------------------------------------------

_S = {"type": "string"}
_TWO = {
    "type": "object",
    "properties": {"name": _S, "city": _S},
    "required": ["name", "city"],
    "additionalProperties": False,
}
_REAL: dict[str, tuple[Schema, list[Any]]] = {
    "the same first": (_TWO, [{"name": "Ann", "city": c} for c in ("Rome", "Rom", "R", "Rome")]),
    "the last left out": (
        {**_TWO, "required": ["name"]},
        [{"name": "Ann"}, {"name": "Anna"}, {"name": "Anna", "city": "Rome"}, {"name": "Ann"}],
    ),
    "few at the end": (
        {**_TWO, "properties": {"name": _S, "city": {"enum": ["Rome", "Bonn"]}}},
        [{"name": n, "city": c} for n in ("Ann", "Bo") for c in ("Rome", "Bonn")],
    ),
    "others": (
        {**_TWO, "additionalProperties": True},
        [{"name": "Ann", "city": "Rome", "x": 1}, {"name": "Ann", "city": "Rome"}],
    ),
    "pairs": (
        {"type": "array", "items": _S, "maxItems": 2},
        [["Ann", "Rome"], ["Ann"], [], ["Ann", "Bonn"]],
    ),
}


@pytest.mark.parametrize("kind", ["smollm2", "llama3"])
@pytest.mark.parametrize("name", _REAL)
def test_masks_of_real_tokenizers_are_brute_force(name: str, kind: str) -> None:
    items, value = _REAL[name]
    vocabulary = real_tokenizers.vocabulary(kind)
    constraint = structgen.compile(JsonSchema(unique(items)), vocabulary)
    # Written as far as it is allowed: the last value may be one that stands there already.
    ids = real_tokenizers.reference(kind).encode(json.dumps(value), add_special_tokens=False).ids
    cursor, rng = constraint.start(), random.Random(name)
    for place, token in enumerate(ids):
        if place > len(ids) - 6 or rng.random() < 0.05:
            found = set(allowed(cursor, vocabulary))
            assert found == brute_force_after_text(cursor, vocabulary), place
        if not would_accept(cursor, token):
            break
        cursor.accept(token)


_MANY: dict[str, tuple[Schema, Callable[[int], Any]]] = {
    "strings": (_S, lambda i: f"name {i}"),
    "integers": ({"type": "integer"}, lambda i: 1000 + i),
    "two strings": (_TWO, lambda i: {"name": f"name {i}", "city": f"city {i % 7}"}),
    "the same first": (_TWO, lambda i: {"name": "Ann", "city": f"city {i}"}),
    "a string and an enum": (
        {**_TWO, "properties": {"name": _S, "city": {"enum": ["Rome", "Bonn", "Linz"]}}},
        lambda i: {"name": f"name {i // 3}", "city": ("Rome", "Bonn", "Linz")[i % 3]},
    ),
    "pairs": ({"type": "array", "items": _S}, lambda i: [f"name {i}", "b"]),
    "objects in objects": (
        {**_TWO, "properties": {"name": _TWO, "city": _S}},
        lambda i: {"name": {"name": f"name {i}", "city": "Rome"}, "city": "Bonn"},
    ),
}


@pytest.mark.parametrize("name", _MANY)
def test_what_a_token_costs_hardly_grows_with_the_items(name: str) -> None:
    items, make = _MANY[name]
    constraint = structgen.compile(JsonSchema(unique(items)), real_tokenizers.vocabulary("smollm2"))
    value = [make(i) for i in range(200)]
    ids = (
        real_tokenizers.reference("smollm2").encode(json.dumps(value), add_special_tokens=False).ids
    )
    counts = calls(constraint.start(), ids, constraint.vocabulary, 12_000_000)
    quarter = len(counts) // 4
    early, late = sum(counts[quarter : 2 * quarter]), sum(counts[-quarter:])
    assert late <= 3 * early, (early, late)
    assert sum(counts) <= 2_500 * len(counts), sum(counts) / len(counts)


# -- deep values --------------------------------------------------------------------------------


def _recursive(array: Schema, *others: Schema) -> Schema:
    """Values that are ``array``, whose items refer to them, or one of ``others``."""
    return {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [array, *others]}}}


_A: Schema = {"$ref": "#/$defs/a"}
_ANY = {"type": "array", "items": _A}
_KEPT = {"type": "object", "required": ["n", "c"], "additionalProperties": False}

_DEEP: dict[str, tuple[Schema, Callable[[int, int], Any]]] = {
    "items": (_recursive(unique(_A), {"type": "integer"}), lambda v, i: [i, v]),
    "the deep one first": (_recursive(unique(_A), {"type": "integer"}), lambda v, i: [v, i]),
    "owed items": (
        _recursive(unique(_A, minItems=2), {"type": "integer"}),
        lambda v, i: [v or 0, ~i],
    ),
    "alternatives": (_recursive(unique(_A), {**_ANY, "maxItems": 2}), lambda v, i: [v]),
    "one of two": (
        {"$defs": {"a": {"oneOf": [unique(_A, minItems=1), {**_ANY, "maxItems": 0}]}}, **_A},
        lambda v, i: [v],
    ),
    "both": ({"$defs": {"a": {"allOf": [unique(_A), _ANY]}}, **_A}, lambda v, i: [v]),
    "not many": (
        {"$defs": {"a": {**unique(_A), "not": {**_ANY, "minItems": 3}}}, **_A},
        lambda v, i: [v],
    ),
    "places": (
        _recursive(unique(_A, prefixItems=[{"type": "boolean"}]), {"type": "null"}),
        lambda v, i: [True, v],
    ),
    "members": (
        _recursive({**_KEPT, "properties": {"n": {"type": "boolean"}, "c": unique(_A)}}),
        lambda v, i: {"n": True, "c": [v] if v else []},
    ),
    "any members": (
        _recursive({"type": "object", "additionalProperties": unique(_A)}),
        lambda v, i: {"k": [v or {}]},
    ),
    "in turn": (
        {
            **_A,
            "$defs": {
                "a": {"anyOf": [_ANY, {"type": "array", "items": {"$ref": "#/$defs/b"}}]},
                "b": {"anyOf": [{"type": "null"}, {**_ANY, "maxItems": 2}, unique(_A)]},
            },
        },
        lambda v, i: [v],
    ),
}


@pytest.mark.parametrize("name", _DEEP)
def test_deep_unique_values_cost_what_their_text_is(name: str) -> None:
    """Each level reads its item once more: a token costs what the depth is, and no power of two."""
    schema, deeper = _DEEP[name]
    validator = jsonschema_rs.validator_for(schema)
    costs: list[float] = []
    for depth in (8, 16):
        value: Any = []
        for i in range(depth):
            value = deeper(value, i)
        assert validator.is_valid(value)
        if validator.is_valid([value, [value]]):  # one begins as the other does
            value = [value, [value]]
        text = json.dumps(value, separators=(",", ":"))
        constraint = structgen.compile(JsonSchema(schema), TINY, whitespace="compact")
        ids = random_tokens(text.encode(), random.Random(name))
        cursor = constraint.start()
        costs.append(sum(calls(cursor, ids, TINY, 4_000_000)) / len(ids))
        assert cursor.is_accepting
    assert costs[1] <= 3 * costs[0], costs


@pytest.mark.parametrize("max_tokens", [None, 9_000])
def test_objects_that_are_owed_cost_what_their_text_is(max_tokens: int | None) -> None:
    """200 of two strings took 32 s to read; the masks of 120 took 13 s within any budget."""
    names = {key: {"type": "string"} for key in "ab"}
    member = {"type": "object", "properties": names, "required": ["a", "b"]}
    costs: list[float] = []
    for n in (20, 40):
        schema = unique({**member, "additionalProperties": False}, minItems=n)
        text = json.dumps([{"a": "aa", "b": "a" * i} for i in range(n)], separators=(",", ":"))
        constraint = structgen.compile(JsonSchema(schema), TINY, whitespace="compact")
        ids = random_tokens(text.encode(), random.Random(n))
        cursor = constraint.start(max_tokens=max_tokens)
        costs.append(sum(calls(cursor, ids, TINY, 4_000_000)) / len(ids))
        assert cursor.is_accepting
    assert costs[1] <= 1.5 * costs[0], costs


def test_objects_as_deep_as_they_may_be_are_told_apart() -> None:
    """How each is told from the one before is not worked out for all levels at once."""
    member = {"type": "object", "properties": {"a": _A}, "required": ["a"]}
    schema = _recursive(unique(_A), {**member, "additionalProperties": False}, {"type": "boolean"})
    constraint = structgen.compile(JsonSchema(schema), TINY, max_depth=128)
    texts = ['{"a": ' * 124 + last + "}" * 124 for last in ("true", "false")]
    assert constraint.allows(f"[{texts[0]}, {texts[1]}]")
    assert not constraint.allows(f"[{texts[0]}, {texts[0]}]")


_MANY_FLAGS = {f"k{i}": {"type": "boolean"} for i in range(250)}

_LONG: dict[str, tuple[Schema, Callable[[bool], Any]]] = {
    "items": (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 400, "maxItems": 400},
        lambda last: [True] * 399 + [last],
    ),
    "members": (
        {
            "type": "object",
            "properties": _MANY_FLAGS,
            "required": list(_MANY_FLAGS),
            "additionalProperties": False,
        },
        lambda last: {**dict.fromkeys(_MANY_FLAGS, True), "k249": last},
    ),
}


@pytest.mark.parametrize("name", _LONG)
def test_long_values_are_told_apart_without_recursion(name: str) -> None:
    """Whether something else can follow depends on what follows that, hundreds of times."""
    schema, make = _LONG[name]
    constraint = structgen.compile(JsonSchema(unique(schema)), TINY)
    text = json.dumps([make(True), make(True)])
    cursor = constraint.start(max_tokens=len(text))
    for token in random_tokens(text.encode()[:-6], random.Random(name)):
        cursor.accept(token)
    assert cursor.min_tokens_to_finish() <= 10
    assert not would_accept(cursor, TINY.encode_bytes(b"t")[0])
    assert would_accept(cursor, TINY.encode_bytes(b"f")[0])


_FROM_5: Schema = {"type": "integer", "minimum": 5, "maximum": 3000}
_AB = {"type": "string", "pattern": "^[ab]{1,4}$"}


def _closed(properties: Schema, required: str = "", **more: Any) -> Schema:
    closed = {"additionalProperties": False, "required": required.split()}
    return {"type": "object", "properties": properties, **closed, **more}


@pytest.mark.parametrize(
    ("items", "n", "max_tokens", "text"),
    [
        (
            # The nearest key is not the one with which the fewest bytes end the object.
            _closed(
                {"dddd": _FROM_5, "a": {"anyOf": [{"const": 7}, _closed({"a": _FROM_5}, "a")]}}
            ),
            7,
            78,
            b'[{"dddd":996},{"dddd":2675},{},{"a":7},',
        ),
        (
            # A key that the schema does not name may be that of the object before.
            _closed({"cc": _FROM_5}, additionalProperties={"const": 7}),
            4,
            40,
            b'[{"a":7},{"eeee-oQ80061#M%":7},{},{"a":7',
        ),
        (
            # Two objects before begin with "a".
            _closed({"cc": _AB, "a": _closed({"a": _S, "b": _AB}, "a b")}, "cc a"),
            6,
            198,
            b'[{"cc":"ab","a":{"a":"Dkkkkkk","b":"a"}},{"cc":"ba","a":{"a":"","b":"b"}},'
            b'{"cc":"a","a":{"a":"","b":"a"}},{"cc":"a","a":{"a":"","b":"b"}},{"cc":"',
        ),
        (
            # The objects before differ in an unnamed key only.
            _closed({"dddd": {"const": 1}}, "dddd", additionalProperties=_S),
            3,
            50,
            b'[{"dddd":1,"x":""},{"dddd":1},{"dddd":1,',
        ),
        ({"type": "array", "items": _closed({"dddd": _FROM_5})}, 4, 33, b"[[{},{},{}],[{}],[],[{"),
    ],
)
def test_what_begins_may_need_more_than_was_promised(
    items: Schema, n: int, max_tokens: int, text: bytes
) -> None:
    constraint = structgen.compile(
        JsonSchema(unique(items, minItems=n)), BYTES, whitespace="compact"
    )
    cursor = constraint.start(max_tokens)
    for byte in text:
        found = allowed(cursor, BYTES)
        assert found == [token for token in range(BYTES.size) if would_accept(cursor, token)]
        if byte not in found:
            return  # the budget does not allow so much
        cursor.accept(byte)


@pytest.mark.parametrize("items", [{"type": "string"}, {}])
def test_texts_that_must_differ_are_not_tried_one_by_one_within_a_budget(items: Schema) -> None:
    """They took 44 s for 700 tokens: 48,000 tokens were tried in each mask near the end."""
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(JsonSchema(unique(items, minItems=8)), vocabulary)
    cursor, judge = constraint.start(80), constraint.start(80)
    begun = b'["' + b" the longest one" * 16
    ids = vocabulary.encode_bytes(begun)
    for token in ids:
        cursor.accept(token)
        judge.accept(token)
    r, n_tight = random.Random(1), 0
    while not cursor.is_finished:
        found = allowed(judge, vocabulary)
        for token in r.sample(range(vocabulary.size), 100):
            assert (token in found) == would_accept(judge, token)
        token = r.choice(found)
        counts = calls(cursor, [token], vocabulary, 200_000)
        n_tight += counts[0] > 1000
        judge.accept(token)
    assert n_tight


# -- any values ---------------------------------------------------------------------------------

_ENUM = ["a", "ab", "b", 1, 12, None, True, [], {"a": 1}, ["a"]]
_PATTERNS = ["^[ab]{1,2}$", "^(a|ab|abc)$", "b", "^a+$"]


def _item(r: random.Random, depth: int) -> Schema:
    kind = r.random()
    if kind < 0.22 or (kind >= 0.72 and not depth):
        return {"type": "string"}
    if kind < 0.32:
        return {"type": "string", "minLength": r.randint(0, 3), "maxLength": r.randint(3, 6)}
    if kind < 0.38:
        return {"type": "string", "pattern": r.choice(_PATTERNS)}
    if kind < 0.46:
        return {"type": "integer", "minimum": r.choice([0, -1]), "maximum": r.choice([1, 2, 12])}
    if kind < 0.56:
        return {"type": "number" if kind < 0.5 else "boolean"}
    if kind < 0.64:
        return {"enum": r.sample(_ENUM, r.randint(2, 6))}
    if kind < 0.72:
        return {"type": ["string", "null", "integer"]}
    if kind < 0.78:
        return {"anyOf": [_item(r, depth - 1), _item(r, depth - 1)]}
    return _items(r, depth - 1) if r.random() < 0.6 else _members(r, depth - 1)


def _items(r: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "array", "items": _item(r, depth)}
    if r.random() < 0.85:
        schema["uniqueItems"] = True
    if r.random() < 0.5:
        schema["minItems"] = r.randint(1, 4)
    if r.random() < 0.3:
        schema["maxItems"] = max(schema.get("minItems", 0), r.randint(1, 5))
    if r.random() < 0.2:
        schema["prefixItems"] = [_item(r, depth) for _ in range(r.randint(1, 2))]
    if r.random() < 0.08:
        schema["contains"] = _item(r, 0)
    return schema


def _members(r: random.Random, depth: int) -> Schema:
    schema: Schema = {"type": "object"}
    kind = r.random()
    if kind < 0.5:
        names = r.sample(["a", "ab", "b", "name"], r.randint(1, 3))
        schema["properties"] = {name: _item(r, max(depth, 0)) for name in names}
        if r.random() < 0.6:
            schema["required"] = r.sample(names, r.randint(1, len(names)))
        if r.random() < 0.5:
            schema["additionalProperties"] = False
    elif kind < 0.7:
        schema["patternProperties"] = {r.choice(["^a", "b$", "^[ab]{1,2}$"]): _item(r, 0)}
        schema["additionalProperties"] = False if r.random() < 0.6 else _item(r, 0)
    elif kind < 0.85:
        names_like: list[Schema] = [{"enum": ["a", "ab", "b"]}, {"maxLength": 1}]
        schema["propertyNames"] = r.choice([*names_like, {"pattern": "^[ab]+$"}])
    else:
        schema["additionalProperties"] = _item(r, 0)
    if r.random() < 0.4:
        schema["minProperties"] = r.randint(1, 3)
    if r.random() < 0.2:
        schema["maxProperties"] = max(schema.get("minProperties", 0), r.randint(1, 3))
    return schema


_WHITESPACE = ["natural", "compact", "spaced", "flexible", " ?", "[ \n]{0,2}", "\n? ?"]


@given(SEEDS)
@examples(50)
def test_masks_are_what_a_fresh_cursor_accepts(seed: int) -> None:
    r = random.Random(seed)
    schema = _items(r, 2) if r.random() < 0.6 else _members(r, 2)
    vocabulary = VOCABULARIES[r.choice(list(VOCABULARIES))]
    options = {
        "whitespace": r.choice(_WHITESPACE),
        "property_order": r.choice(["schema", "any"]),
        "spelling": r.choice(["canonical", "canonical", "any"]),
    }
    try:
        constraint = structgen.compile(JsonSchema(schema), vocabulary, **options)
    except Unsatisfiable:
        return
    except StructgenError:
        assert "contains" in json.dumps(schema)
        return
    budget = None
    if r.random() < 0.7:
        budget = minimum(constraint) + r.choice([0, 0, 1, 2, 3, 4, 6, 9, 14, 20])
    cursor = constraint.start(budget)
    ids: list[int] = []
    while not cursor.is_finished and (budget is not None or len(ids) < 14):
        found = allowed(cursor, vocabulary)
        fresh = replay(constraint, ids, budget)
        expected = [token for token in range(vocabulary.size) if would_accept(fresh, token)]
        assert found == expected, ids
        assert found, ids
        if budget is not None:
            assert cursor.min_tokens_to_finish() <= budget - len(ids)
        if r.random() < 0.5:
            found = [t for t in found if set(vocabulary.tokens[t]) & _TELLING] or found
        ids.append(r.choice(found))
        cursor.accept(ids[-1])
    while not cursor.is_finished:  # there is a way to the end from everywhere
        plan = inside.engine(cursor).plan(inside.state(cursor), inside.text_history(cursor))
        token = plan.first if plan.size else vocabulary.eos_token_ids[0]
        assert token in allowed(cursor, vocabulary)
        cursor.accept(token)
        ids.append(token)
    assert oracle.is_valid(schema, b"".join(vocabulary.tokens[i] for i in ids).decode())


_TELLING = set(b'"\\[]{},:0123 ab')
