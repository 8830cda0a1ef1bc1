"""``indent=``: lines and spaces exactly as ``json.dumps`` writes them.

What is written is judged by `laid_out`, which knows nothing of the engine: the same text must be
accepted without whitespace by the type compiled without ``indent``.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine import oracle, strategies
from engine.walks import (
    TINY,
    accepts,
    allowed,
    brute_force_after_text,
    examples,
    minimum,
    walk,
    would_accept,
)
from structgen import Cfg, JsonSchema, Template, Text, Vocabulary
from structgen.automaton.json.values import indented
from structgen.automaton.texts import flat, put, repeated
from structgen.errors import OptionError, StructgenError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"\[\]{},:]+|[\[\]{},:]', re.DOTALL)


def compact(text: str) -> str:
    return "".join(_TOKEN.findall(text))


def laid_out(text: str, indent: int) -> str:
    """As `json.dumps` lays a JSON text out, but for how its strings and numbers are spelt."""
    numbers = itertools.count()
    scalars: list[str] = []
    shape = ""
    for token in _TOKEN.findall(text):
        if token in "[]{},:":
            shape += token
        else:
            scalars.append(token)
            shape += f'"{next(numbers)}"'
    return re.sub(
        r'"(\d+)"',
        lambda found: scalars[int(found[1])],
        json.dumps(json.loads(shape), indent=indent),
    )


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "tags": {
            "type": "array",
            "items": {"enum": ["a", [], {"b": [1, {}]}]},
            "uniqueItems": True,
        },
        "friends": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "person": PERSON,
    "anything": {},
    "map": {"additionalProperties": {"type": "array", "prefixItems": [{"type": "object"}]}},
    "counted": {"type": "object", "minProperties": 2, "patternProperties": {"^a": PERSON}},
    "choice": {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "type": "object"},
    "unions": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"const": {"a": [{}, [0]]}}]},
    "contains": {"type": "array", "contains": {"type": "object"}, "minContains": 2},
    "unique": {
        "type": "array",
        "uniqueItems": True,
        "minItems": 3,
        "items": {"properties": {"a": {}}, "type": "object"},
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_text_is_what_json_dumps_writes(name: str) -> None:
    rng = random.Random(name)
    schema, indent = SCHEMAS[name], rng.choice([0, 2, 4])
    constraint = structgen.compile(JsonSchema(schema), TINY, indent=indent)
    unbroken = structgen.compile(JsonSchema(schema), TINY, whitespace="compact")
    for extra in (0, 40):
        text = walk(constraint, rng, minimum(constraint) + extra, special=0.6, end=0.1).text
        assert text == laid_out(text, indent)
        assert accepts(unbroken, compact(text), rng)
        assert accepts(constraint, text, rng)
    for text in structgen.sample(JsonSchema(schema), 3, seed=indent, indent=indent):
        assert text == laid_out(text, indent)
        assert accepts(constraint, text, rng)


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_what_can_be_accepted(name: str) -> None:
    rng = random.Random(name)
    constraint = structgen.compile(JsonSchema(SCHEMAS[name]), TINY, indent=2)
    for budget in (None, minimum(constraint) + 8):
        cursor = constraint.start(budget)
        for _ in range(15):
            ids = allowed(cursor)
            expected = (
                brute_force_after_text(cursor, TINY)
                if budget is None
                else {i for i in range(TINY.size) if would_accept(cursor, i)}
            )
            assert set(ids) == expected
            special = [i for i in ids if set(TINY.tokens[i]) & set(b'[{"\n,]}')]
            cursor.accept(rng.choice(special or ids))
            if cursor.is_finished:
                break


@given(st.randoms(use_true_random=False))
@examples(40)
def test_random_schemas(r: random.Random) -> None:
    schema, indent, order = (
        strategies.document(r),
        r.choice([0, 1, 2, 4]),
        r.choice(["schema", "any"]),
    )
    how: Any = {"property_order": order, "max_digits": 6}
    try:
        constraint = structgen.compile(JsonSchema(schema), TINY, indent=indent, **how)
    except StructgenError as error:
        with pytest.raises(type(error)):
            structgen.compile(JsonSchema(schema), TINY, whitespace="compact", **how)
        return
    unbroken = structgen.compile(JsonSchema(schema), TINY, whitespace="compact", **how)
    for extra in (0, r.randint(1, 40)):
        text = walk(constraint, r, minimum(constraint) + extra, special=0.4).text
        assert text == laid_out(text, indent)
        assert oracle.is_valid(schema, text)
        assert accepts(unbroken, compact(text), r)
    for _ in range(4):
        text = json.dumps(strategies.instance(r, schema, schema), separators=(",", ":"))
        assert accepts(constraint, laid_out(text, indent), r) == accepts(unbroken, text, r)


def test_deeper_than_any_cache_and_as_long_as_no_memory() -> None:
    constraint = structgen.compile(JsonSchema({}), TINY, indent=1, max_depth=None)
    cursor = constraint.start()
    value: Any = 1
    for _ in range(150):
        value = [value]
    for byte in json.dumps(value, indent=1).encode():
        cursor.accept(TINY.tokens.index(bytes([byte])))
    assert cursor.is_accepting
    deep: Any = {"type": "string", "minLength": 1000}
    for _ in range(4):
        deep = {"type": "array", "items": deep, "minItems": 1000}
    assert minimum(structgen.compile(JsonSchema(deep), TINY, indent=4)) > 1e12


@given(st.randoms(use_true_random=False))
@examples(20)
def test_ropes_are_laid_out_as_their_bytes(r: random.Random) -> None:
    def text(depth: int) -> Any:
        kind = r.randrange(4 if depth else 2)
        if kind < 2:
            return put(b'"', put(repeated(b'a\\"[{,:', r.randrange(90)), b'"'))
        inner: list[Any] = [text(depth - 1) for _ in range(r.randrange(3))]
        out: Any = b""
        for item in inner:
            out = put(put(out, b"," if out else b""), item)
        if inner:
            out = put(out, repeated(put(b",", inner[-1]), r.randrange(9)))
        return put(b"[", put(out, b"]"))

    whole = text(3)
    assert flat(indented(whole, 2, 0)).decode() == laid_out(flat(whole).decode(), 2)


def test_inside_other_types() -> None:
    value: Any = {"a": [{"b": []}]}
    dumped = json.dumps(value, indent=4)
    for output, before, after in (
        (Template("x {v}!", v=JsonSchema({})), "x ", "!"),
        (Text("x ") + JsonSchema({}), "x ", ""),
        (Cfg('start: "x " %json {}', dialect="llguidance"), "x ", ""),
    ):
        constraint = structgen.compile(output, TINY, indent=4)
        assert constraint.allows(before + dumped + after)
        assert not constraint.allows(before + json.dumps(value) + after)
    assert structgen.compile(dict[str, list[int]], TINY, indent=2).allows('{\n  "a": []\n}')
    template = Template("x {v}!", v=JsonSchema({}))
    for _ in range(10):
        value = {"a": value}
    dumped = json.dumps(value, indent=16)
    assert structgen.types.lower(template).parse(f"x {dumped}!") == {"v": value}


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(OptionError, match=r"indent=2 .* whitespace='flexible'"):
        structgen.compile(JsonSchema({}), TINY, indent=2, whitespace="flexible")
    for wrong in (-1, 17, True, "2"):
        with pytest.raises(OptionError, match="indent must be"):
            structgen.compile(JsonSchema({}), TINY, indent=wrong)  # type: ignore[arg-type]
    explained = structgen.compile(JsonSchema({}), TINY, indent=2).explain()
    assert "indent" in {limit.option for limit in explained.limits}


def test_what_is_fixed_is_forced() -> None:
    letters = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "minItems": 1}},
        "required": ["a"],
    }
    cursor = structgen.compile(
        JsonSchema({**schema, "additionalProperties": False}), letters, indent=2
    ).start()
    assert bytes(cursor.forced_tokens()) == b'{\n  "a": [\n    '
