"""Constraints as bytes: the same masks when read again; clear errors for all else."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import warnings
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from pydantic import BaseModel, Field, field_validator

import structgen
from engine import strategies
from engine.test_json_schema import RANDOM, compile_or_none
from engine.test_masks import OUTPUTS
from engine.walks import TINY, allowed, examples, minimum, read_mask, seeds
from structgen import (
    Cfg,
    Constraint,
    JsonSchema,
    OptionError,
    OutputTypeError,
    Regex,
    StructgenError,
    Tagged,
    Template,
    ToolCalls,
    Vocabulary,
    types,
)
from structgen.errors import CompileLimitExceeded, VocabularyError


class Person(BaseModel):
    name: Annotated[str, Field(max_length=9)]
    born: date
    price: Decimal
    parent: Person | None = None

    @field_validator("name")
    @classmethod
    def upper(cls, value: str) -> str:
        return value.upper()


def greet(name: str, times: int = 1) -> None:
    """Greet."""


TYPES: dict[str, Any] = {
    "class": Person,
    "scalars": int | bool | date,
    "decimal": Decimal,
    "datetime": datetime,
    "uuid": UUID,
    "literal": Literal["tea", "coffee", 3],
    "list": list[tuple[str, float]],
    "function": [greet],
    "regex": Regex(r"(?i)\b[a-z]\w+(?=x)x[^\W\d]*(?<!ab)$"),
    "difference": Regex("[a-c]{2,4}") - Regex("a.*"),
    "email": types.email,
    "isbn": types.isbn,
    "credit card": types.credit_card,
    "template": Template("{name} is {age}.", name=Regex("[A-Z]+"), age=int),
    "grammar": Cfg('start: "a" start "b" | /[0-9]+/ | %json {"type": "boolean"}\n%ignore " "'),
    "grammar with a type": Cfg("start: X+\n%declare X", terminals={"X": Person}),
    "library": Cfg.named("sql-select-strict"),
    "grammar that captures": Cfg(
        "start: a /;/ a\na[capture]: /[0-9]+/\n%ignore /[.]+/", dialect="llguidance"
    ),
    "grammar or type": Cfg('start: "<" start ">" | "."') | int,
    "any json": JsonSchema(True),
    "documents": JsonSchema(
        {"$ref": "http://x/y"}, documents={"http://x/y": {"enum": [1, {"a": None}]}}
    ),
    "tagged": Tagged("<sum>", int, "</sum>"),
    "tools": ToolCalls([greet, Person]),
}


def again(constraint: Constraint[Any]) -> Constraint[Any]:
    data = constraint.to_bytes()
    read = Constraint.from_bytes(data, constraint.vocabulary)
    assert read.to_bytes() == data
    return read


def check_same(one: Constraint[Any], other: Constraint[Any], rng: random.Random, n: int) -> None:
    """Random walks through both have the same masks all the way."""
    budget = minimum(one) + 20
    for limit in (None, budget):
        for _ in range(n):
            cursors = one.start(limit), other.start(limit)
            for _ in range(30):
                masks = [read_mask(cursor, one.vocabulary).tolist() for cursor in cursors]
                assert masks[0] == masks[1]
                if cursors[0].is_finished:
                    break
                token = rng.choice(allowed(cursors[0], one.vocabulary))
                for cursor in cursors:
                    cursor.accept(token)


@pytest.mark.parametrize("name", OUTPUTS)
def test_masks_are_the_same_when_read_again(name: str) -> None:
    output, options = OUTPUTS[name]
    constraint = structgen.compile(output, TINY, **options)
    read = again(constraint)
    assert read.options == constraint.options
    check_same(constraint, read, random.Random(name), 2)


@pytest.mark.parametrize("name", TYPES)
def test_all_kinds_of_types_are_read_again(name: str) -> None:
    constraint = structgen.compile(TYPES[name], TINY)
    read = again(constraint)
    assert read.output.grammar == constraint.output.grammar
    assert read.output.name == constraint.output.name
    check_same(constraint, read, random.Random(name), 2)


@given(RANDOM)
@examples(60)
def test_random_schemas_are_read_again(r: random.Random) -> None:
    try:
        constraint = compile_or_none(strategies.document(r))
    except structgen.errors.Unsatisfiable:
        return
    if constraint is not None:
        check_same(constraint, again(constraint), r, 1)


def test_values_are_plain() -> None:
    text = '{"name": "ada", "born": "2000-01-01", "price": 1.5, "parent": null}'
    constraint = structgen.compile(Person, TINY)
    assert constraint.output.parse(text).name == "ADA"
    assert again(constraint).output.parse(text) == json.loads(text)
    assert again(structgen.compile(int, TINY)).output.parse("12") == 12
    assert again(structgen.compile(date, TINY)).output.parse("2000-01-01") == "2000-01-01"
    with pytest.raises(structgen.ParseError):
        again(constraint).output.parse("{")
    captures = again(structgen.compile(TYPES["grammar that captures"], TINY)).output.parse("1.;2..")
    assert captures.all_captures == (("a", "1"), ("a", "2"))


def test_the_limits_are_those_of_who_reads() -> None:
    schema = {"oneOf": [{"properties": {f"p{i}": {"multipleOf": 2 * i + 3}}} for i in range(200)]}
    free = structgen.compile(JsonSchema(schema), TINY, max_work=10**9, max_memory_bytes=10**12)
    data = free.to_bytes()
    assert b"max_" not in data.partition(b"\n")[2]
    with pytest.raises(CompileLimitExceeded) as told:
        Constraint.from_bytes(data, TINY, max_work=50_000)
    assert told.value.limit == 50_000
    with pytest.raises(OptionError, match="whitespace is already stored in the bytes"):
        Constraint.from_bytes(data, TINY, whitespace="compact")  # type: ignore[call-arg]
    with pytest.raises(OutputTypeError, match="malformed"):
        Constraint.from_bytes(changed(data, lambda it: it["options"].update(max_work=9)), TINY)


def test_types_that_depend_on_their_vocabulary_are_for_that_one() -> None:
    other = Vocabulary.from_tokens([bytes([i]) for i in range(256)] + [b""], [256])
    data = structgen.compile(ToolCalls([greet]), TINY).to_bytes()
    with pytest.raises(VocabularyError, match="depends on the control tokens"):
        Constraint.from_bytes(data, other)
    assert Constraint.from_bytes(structgen.compile(Person, TINY).to_bytes(), other)
    with pytest.raises(VocabularyError, match="takes a Vocabulary"):
        Constraint.from_bytes(structgen.compile(Person, TINY).to_bytes(), None)  # type: ignore[arg-type]


# -- what is no constraint ----------------------------------------------------------------------


def framed(body: bytes, version: bytes = b"5") -> bytes:
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"structgen constraint %s\n%s\n%s" % (version, digest, body)


def changed(data: bytes, change: Callable[[Any], object]) -> bytes:
    content = json.loads(data.split(b"\n", 2)[2])
    change(content)
    return framed(json.dumps(content).encode())


def test_what_is_no_constraint_is_told() -> None:
    data = structgen.compile(Person, TINY).to_bytes()
    for wrong, message in [
        (b"", "are not a constraint: they do not begin with"),
        (b"\x80\x04\x95 a pickle", "are not a constraint"),
        (data[:-1], "truncated or changed"),
        (data[:60], "truncated"),
        (data[:22], "truncated"),
        (data.replace(b"Person", b"person"), "truncated or changed"),
        (framed(b"{}", b"1"), "version '1', but this structgen reads version 5"),
        (framed(b"{}"), "malformed: expected an output type"),
        (framed(b"[" * 100_000), "nested too deeply"),
        (framed(b"1" * 100_000), "malformed"),
        (framed(b"\xff"), "malformed"),
    ]:
        with pytest.raises(OutputTypeError, match=re.escape(message)):
            Constraint.from_bytes(wrong, TINY)
    for cut in range(0, len(data), 7):
        with pytest.raises(OutputTypeError):
            Constraint.from_bytes(data[:cut], TINY)
    with pytest.raises(TypeError, match="read from bytes, got str"):
        Constraint.from_bytes("structgen", TINY)  # type: ignore[arg-type]
    assert Constraint.from_bytes(bytearray(data), TINY)
    assert Constraint.from_bytes(memoryview(data), TINY)


def test_large_bytes_are_refused_before_they_are_read() -> None:
    """64 MB of empty lists took 4 GB, and a long pattern of a terminal 4 s and 240 MB for each of
    its megabytes."""
    with pytest.raises(CompileLimitExceeded, match="constraint has too many bytes"):
        Constraint.from_bytes(bytes(20_000_000), TINY)
    with pytest.raises(CompileLimitExceeded, match="constraint has too many values"):
        Constraint.from_bytes(framed(b"[[" + b"]," * 1_000_000), TINY)

    def lengthen(content: Any) -> None:
        content["grammar"][1][0] = ["Terminal", "X", "a" * 100_001]

    data = changed(structgen.compile(TYPES["grammar"], TINY).to_bytes(), lengthen)
    with pytest.raises(CompileLimitExceeded, match="too long"):
        Constraint.from_bytes(data, TINY)


_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 10**30, 1.5, "", "a", "\ud800", [], {}, [[]]),
    *(["StartAnchor"], ["EndAnchor"], ["Complement", 0], ["Alternate", []], ["Concat", []], 10**6),
    *(["Concat"], ["Concat", 5], ["Intersect", []], ["Repeat", ["Concat", []], 0, None], 0xD800),
    *(["Repeat", 0, 5, 2], ["Repeat", 0, -1, 2], ["Lookahead", 0, True], ["Either", []]),
    *(["Lookbehind", ["EndAnchor"], False], ["ContextFree"], ["SpecialToken", "x", ""]),
    *(["Embedded", "x", ["ContextFree", [], [], [], 0, []]], ["Json", True, {}], ["Choice", []]),
    *(["Terminal", "X", "("], ["Terminal", "X", "a|$"], "(?P<a>x)", ["Terminal", "X", 0]),
    *(["Terminal", "X", ["EndAnchor"]], ["Terminal", "X", ["Complement", 0]]),
    *(
        ["Embedded", "x", ["Choice", ["a"]], 3, None],
        ["Embedded", "x", ["Choice", ["a"]], None, -1.0],
    ),
    *(["Terminal", "X", ""], ["Checksum", 2, [[[1, 0]]], 0, [0], 1], "\\b{99999}"),
    *(["CharSet", []], ["_Compound"], ["Json", True, {"documents": 5}]),
]


HOSTILE = (
    *("class", "regex", "credit card", "grammar", "grammar with a type", "template", "tools"),
    *("grammar or type", "difference"),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each place in JSON data: its container and its key."""
    found = []
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        found.append((value, key))
        found += places(value[key])
    return found


def test_a_terminal_that_is_empty_is_refused() -> None:
    data = structgen.compile(TYPES["grammar"], TINY).to_bytes()

    def mutate(content: Any) -> None:
        into, key = next(
            (one, 2)
            for one, _ in places(content)
            if isinstance(one, list) and one[:1] == ["Terminal"]
        )
        into[key] = ""

    with pytest.raises(structgen.OutputTypeError, match="a terminal that is not empty"):
        Constraint.from_bytes(changed(data, mutate), TINY)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_give_errors_of_structgen_only(name: str, seed: int) -> None:
    data = structgen.compile(TYPES[name], TINY).to_bytes()
    rng = random.Random(f"{name} {seed}")

    def mutate(content: Any) -> None:
        for _ in range(rng.choice((1, 1, 2, 4))):
            spots = places(content)
            into, key = rng.choice(spots)
            other = rng.choice(
                [*_ODD, *(box[at] for box, at in rng.sample(spots, min(4, len(spots))))]
            )
            if isinstance(into, list) and rng.random() < 0.3:
                if rng.random() < 0.5:
                    del into[key]
                else:
                    into.insert(key, copy.deepcopy(other))
            else:
                into[key] = copy.deepcopy(other)

    for _ in range(25):
        hostile = changed(data, mutate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", structgen.errors.UnenforcedWarning)
            try:
                read = Constraint.from_bytes(hostile, TINY, max_work=20_000, max_memory_bytes=10**8)
                cursor = read.start()
                for _ in range(6):
                    ids = allowed(cursor)
                    assert ids
                    if cursor.is_finished:
                        break
                    cursor.accept(rng.choice(ids))
                    if cursor.is_finished:
                        break
            except StructgenError:
                continue
