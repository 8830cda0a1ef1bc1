"""Schemas as masks, judged by independent validators on generated schemas, instances and walks."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine import oracle, strategies
from engine.walks import TINY, accepts, examples, minimum, walk
from structgen import JsonSchema, UnsupportedFeature
from structgen.constraint.constraint import Constraint
from structgen.errors import CompileLimitExceeded, Unsatisfiable

EVERYTHING = {"whitespace": "flexible", "property_order": "any", "spelling": "any"}
"""The options under which every valid text is accepted."""

MAX_DIGITS = 8

RANDOM = st.randoms(use_true_random=False)


def compile_or_none(schema: Any, **options: Any) -> Constraint | None:
    """The constraint; None where the engine rightly declines. `Unsatisfiable` goes through."""
    try:
        return structgen.compile(JsonSchema(schema), TINY, max_digits=MAX_DIGITS, **options)
    except (UnsupportedFeature, CompileLimitExceeded):
        return None


def is_usual(text: str) -> bool:
    """Whether a serialiser could have written it: plain numbers of few digits.

    Other spellings may be refused (see `structgen.automaton.json.numbers`), never wrongly
    accepted. So may runs of blanks beyond ``max_whitespace``.
    """
    if re.search(r"\s{21}", text):
        return False
    return all(
        not set(token) & set("eE")
        and max(map(len, token.lstrip("-").split("."))) <= MAX_DIGITS
        and json.dumps(json.loads(token)) == token
        for token in oracle.numbers_in(text)
    )


def check(constraint: Constraint | None, schema: Any, text: str, rng: random.Random) -> None:
    """We and the validators judge ``text`` alike. Without a constraint it must be invalid."""
    valid = oracle.is_valid(schema, text)
    accepted = constraint is not None and accepts(constraint, text, rng)
    if accepted:
        assert valid, f"wrongly accepted {text!r} under {json.dumps(schema)}"
    elif valid:
        assert not is_usual(text), f"wrongly rejected {text!r} under {json.dumps(schema)}"


def test_blanks_around_the_document() -> None:
    flexible = structgen.compile(JsonSchema({"type": "null"}), TINY, whitespace="flexible")
    compact = structgen.compile(JsonSchema({"type": "null"}), TINY)
    rng = random.Random(1)
    for text in ("\nnull", "null ", " null\t\r\n"):
        assert accepts(flexible, text, rng), text
        assert not accepts(compact, text, rng), text


def test_spaced_is_what_the_standard_library_writes() -> None:
    spaced = structgen.compile(JsonSchema(True), TINY, whitespace="spaced")
    rng = random.Random(1)
    for value in ([], {}, 1, "a, b: c", [1, [{}, []], 3], {"a": [], "b": {"c": [{"d": "x"}]}}):
        text = json.dumps(value)
        edited = {text[:i] + text[i + 1 :] for i in range(len(text)) if text[i] == " "}
        edited |= {text[:i] + " " + text[i:] for i in range(len(text) + 1)}
        assert accepts(spaced, text, rng), text
        for other in edited - {text}:
            assert accepts(spaced, other, rng) == (json.dumps(json.loads(other)) == other), other


def test_natural_is_at_most_one_space_where_people_write_one() -> None:
    natural = structgen.compile(JsonSchema(True), TINY)
    rng = random.Random(1)
    for text in ('{"a":[1,{"b":null}],"c":""}', '{"a": [1, {"b":null}],"c": ""}', "[]", "{}", "1"):
        assert accepts(natural, text, rng), text
    for text in (
        '{ "a":1}',
        '{"a" :1}',
        '{"a":  1}',
        '{"a":1 }',
        "[ 1]",
        "[1 ]",
        "[1 ,2]",
        "[1,\n2]",
    ):
        assert not accepts(natural, text, rng), text
    for text in ("[ ]", "{ }", " 1", "[1] ", "\n[]"):
        assert not accepts(natural, text, rng), text


def test_where_whitespace_stands() -> None:
    constraint = structgen.compile(JsonSchema({}), TINY, whitespace=r"\t")
    rng = random.Random(1)
    whole = '{_"a"_:_[_1_,_2_]_,_"b"_:_{_}_,_"c"_:_[_]_}'
    assert accepts(constraint, whole.replace("_", "\t"), rng)
    for i in [i for i, char in enumerate(whole) if char == "_"]:  # at each place, and no other
        assert not accepts(constraint, (whole[:i] + whole[i + 1 :]).replace("_", "\t"), rng), i
    for text in ("\tnull", "null\t", '"a\t"', "[\t\t]"):
        assert not accepts(constraint, text, rng), text


def test_fewer_required_members_than_must_be() -> None:
    # Members are not counted where the required ones suffice.
    schema = {"required": ["a"], "minProperties": 1, "type": "object"}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    assert accepts(constraint, '{"a":null}', random.Random(1))
    assert walk(constraint, random.Random(1), max_tokens=30).ended


# -- generated schemas --------------------------------------------------------------------------


@given(RANDOM)
@examples(250)
def test_instances_are_judged_as_validators_do(r: random.Random) -> None:
    schema = strategies.document(r)
    try:
        constraint = compile_or_none(schema, **EVERYTHING)
        if constraint is None:
            return
    except Unsatisfiable:
        constraint = None
    for _ in range(6):
        data = strategies.instance(r, schema, schema)
        check(constraint, schema, strategies.spell(r, data), random.Random(0))


@given(RANDOM)
@examples(150)
def test_one_edit_is_judged_as_validators_do(r: random.Random) -> None:
    schema = strategies.document(r)
    try:
        constraint = compile_or_none(schema, **EVERYTHING)
    except Unsatisfiable:
        return
    if constraint is None:
        return
    for _ in range(3):
        text = strategies.spell(r, strategies.instance(r, schema, schema))
        for _ in range(4):
            check(constraint, schema, strategies.edit(r, text), random.Random(0))


@given(RANDOM, st.integers(0, 1 << 30))
@examples(120)
def test_walks_end_parse_and_validate(r: random.Random, seed: int) -> None:
    schema = strategies.document(r)
    options = r.choice(
        [
            {},
            {},
            EVERYTHING,
            {"ensure_ascii": True},
            {"property_order": "any", "spelling": "any"},
            {"whitespace": " ?"},
        ]
    )
    try:
        constraint = compile_or_none(schema, **options)
    except Unsatisfiable:
        return
    if constraint is None:
        return
    rng = random.Random(seed)
    least = minimum(constraint)
    for budget in (least, least + 1, least + rng.randint(2, 12), least + 40):
        result = walk(constraint, rng, max_tokens=budget, special=0.3, end=0.1)
        assert result.ended
        text = result.text
        assert oracle.is_valid(schema, text), f"{text!r} is invalid under {json.dumps(schema)}"
        if options.get("ensure_ascii"):
            assert text.isascii()
    unbounded = walk(constraint, rng, steps=150, special=0.5)
    if unbounded.ended:
        assert oracle.is_valid(schema, unbounded.text), (unbounded.text, schema)


@given(RANDOM, st.integers(0, 1 << 30))
@examples(80)
def test_an_edited_walk_is_judged_as_validators_do(r: random.Random, seed: int) -> None:
    schema = strategies.document(r)
    try:
        constraint = compile_or_none(schema, **EVERYTHING)
    except Unsatisfiable:
        return
    if constraint is None:
        return
    rng = random.Random(seed)
    result = walk(constraint, rng, max_tokens=minimum(constraint) + 25, special=0.3, end=0.1)
    for _ in range(6):
        check(constraint, schema, strategies.edit(r, result.text), rng)


@given(RANDOM)
@examples(80)
def test_default_options_accept_no_more(r: random.Random) -> None:
    schema = strategies.document(r)
    try:
        constraint = compile_or_none(schema)
    except Unsatisfiable:
        return
    if constraint is None:
        return
    for _ in range(6):
        data = strategies.instance(r, schema, schema)
        text = strategies.spell(r, data, whitespace=False, escapes=False)
        if accepts(constraint, text, random.Random(0)):
            assert oracle.is_valid(schema, text), f"{text!r} {json.dumps(schema)}"


def test_the_generators_produce_enough_of_both_verdicts() -> None:
    # The tests above are worth nothing if nearly all instances are invalid, or nothing compiles.
    r = random.Random(7)
    valid = compiled = 0
    for _ in range(100):
        schema = strategies.document(r)
        try:
            compiled += compile_or_none(schema) is not None
        except Unsatisfiable:
            continue
        text = strategies.spell(r, strategies.instance(r, schema, schema))
        valid += oracle.is_valid(schema, text)
    assert compiled > 70
    assert 30 < valid < 85
