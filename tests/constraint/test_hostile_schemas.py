"""Schemas meant to hurt: each ends in a constraint or in an error of ours, soon and cheaply.

The promise is some seconds and 500 MB for compiling and for the first mask. How long that takes is
counted in steps, which are the same everywhere. Each schema has a process of its own with so much
address space; it prints how it went.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from forking import Forks, serve
from guards import counted

import structgen
from structgen import Cfg, JsonSchema, Vocabulary
from structgen.automaton.schema.array_spec import ArraySpec
from structgen.automaton.schema.branches import Partial
from structgen.automaton.schema.rule_reader import RuleReader
from structgen.automaton.work import Work
from structgen.errors import CompileLimitExceeded

STEPS, MEGABYTES = 2_500_000, 500

PATIENCE = 120
"""Seconds of processor time after which a process is ended: no test of how long anything takes."""

Make = Callable[[], Any]


def names(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def nested(wrap: Callable[[Any], Any], depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = wrap(schema)
    return schema


def chain(link: Callable[[str], Any], n: int, last: Any) -> Any:
    """``n`` definitions, each made by ``link`` from a reference to the next."""
    definitions = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{n}": last}}


def many(n: int, **more: Any) -> Any:
    return {"type": "object", "properties": {p: {"type": "integer"} for p in names("p", n)}, **more}


def similar(i: int, **more: Any) -> Any:
    """An object that differs from its like in one optional property."""
    properties = {
        "name": {"type": "string"},
        "id": {"type": "integer"},
        f"x{i}": {"type": "number"},
    }
    return {"type": "object", "properties": properties, "required": ["name"], **more}


def either(i: int) -> list[Any]:
    return [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]


NEXT = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}

ANSWERS: dict[str, Make] = {
    "a thousand nested $refs": lambda: chain(lambda to: {"$ref": to}, 1000, {"type": "null"}),
    "a thousand nested arrays": lambda: chain(
        lambda to: {"type": "array", "minItems": 1, "items": {"$ref": to}}, 1000, {"type": "null"}
    ),
    "ambiguous pattern": lambda: {"type": "string", "pattern": "(a|b|ab)*c{1000}"},
    "ambiguous pattern, anchored": lambda: {"type": "string", "pattern": "^(a|b|ab)*c{1000}$"},
    "10,000 optional properties": lambda: many(10_000),
    "10,000 optional properties, closed": lambda: many(10_000, additionalProperties=False),
    "10,000 required properties": lambda: many(10_000, required=names("p", 10_000)),
    "10,000 required properties, closed": lambda: many(
        10_000, required=names("p", 10_000), additionalProperties=False
    ),
    "twenty-way oneOf, closed": lambda: {
        "oneOf": [similar(i, additionalProperties=False) for i in range(20)]
    },
    "nots in nots": lambda: {
        "not": {
            "type": "object",
            "not": {"required": ["a"], "not": {"properties": {"a": {"not": {"minItems": 2}}}}},
        }
    },
    "recursive allOf": lambda: {"allOf": [{"$ref": "#"}, {"type": "null"}]},
    "recursive allOf in a property": lambda: {
        "type": "object",
        "properties": {"a": {"allOf": [{"$ref": "#"}, {"properties": {"b": {"$ref": "#"}}}]}},
    },
    "overlapping patternProperties": lambda: {
        "type": "object",
        "patternProperties": {f"{c}.*{d}": {"minimum": 1} for c in "abcd" for d in "abcd"},
    },
    "forty wide patternProperties": lambda: {
        "type": "object",
        "patternProperties": {f"(a|b)*a(a|b){{{i}}}": {"minimum": i} for i in range(40)},
        "additionalProperties": False,
    },
    "10,000 texts": lambda: {"enum": names("value-", 10_000)},
    "100,000 texts that share little": lambda: {
        "enum": [f"{i * 2654435761 % 2**32:08x}" for i in range(100_000)]
    },
    "10,000 numbers": lambda: {"enum": list(range(10_000))},
    "huge minLength": lambda: {"type": "string", "minLength": 10**9},
    "huge maxLength": lambda: {"type": "string", "maxLength": 10**9},
    "huge maxItems": lambda: {"type": "array", "maxItems": 10**9},
    "100,000 items": lambda: {"type": "array", "minItems": 10**5, "items": {"type": "null"}},
    "huge bound": lambda: {"type": "integer", "minimum": 10**4000},
    "fine steps": lambda: {"type": "number", "multipleOf": 1e-9, "minimum": 1e-300},
    "a reference to itself": lambda: {"$ref": "#"},
    "references in a circle": lambda: {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
    },
    "itself or null": lambda: {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    "nested groups": lambda: {"pattern": "^" + "(" * 150 + "a" + ")*" * 150 + "$"},
    "nested counted repeats": lambda: {"pattern": "^((a{0,100}){0,100}){0,100}$"},
}
"""Schemas that compile, and whose first mask allows something."""

REFUSED: dict[str, tuple[str, Make]] = {
    "required without end": ("Unsatisfiable", lambda: NEXT),
    "a long circle of required": (
        "Unsatisfiable",
        lambda: chain(
            lambda to: {"type": "object", "properties": {"n": {"$ref": to}}, "required": ["n"]},
            1000,
            {"$ref": "#/$defs/d0"},
        ),
    ),
    "not itself": ("Unsatisfiable", lambda: {"not": {"$ref": "#"}}),
    "a hundred thousand different nulls": (
        "Unsatisfiable",
        lambda: {
            "type": "array",
            "items": {"type": "null"},
            "minItems": 10**5,
            "uniqueItems": True,
        },
    ),
    "a thousand million items": (
        "CompileLimitExceeded",
        lambda: {"type": "array", "minItems": 10**9},
    ),
    "a thousand nested arrays, of sixty-four": (
        "Unsatisfiable",
        lambda: chain(
            lambda to: {"type": "array", "minItems": 1, "items": {"$ref": to}},
            1000,
            {"type": "null"},
        ),
    ),
    "900 nested items": ("SchemaError", lambda: nested(lambda s: {"items": s}, 900)),
    "900 nested allOf": ("SchemaError", lambda: nested(lambda s: {"allOf": [s]}, 900)),
    "900 nested arrays in const": (
        "SchemaError",
        lambda: {"const": json.loads("[" * 900 + "]" * 900)},
    ),
}
"""Schemas with one right answer: an error."""

BOUNDED: dict[str, Make] = {
    "eight wide patterns at once": lambda: {
        "allOf": [{"pattern": f"^.*{c}.{{8}}"} for c in "abcdefgh"]
    },
    "exponential pattern": lambda: {"pattern": "^(.*a.{20})+$"},
    "twenty-way oneOf": lambda: {"oneOf": [similar(i) for i in range(20)]},
    "not any of twenty": lambda: {"not": {"anyOf": [similar(i) for i in range(20)]}},
    "anyOf of fifty required pairs": lambda: {
        "type": "object",
        "anyOf": [{"required": [f"a{i}", f"b{i}"]} for i in range(50)],
    },
    "fifty anyOfs at once": lambda: {"allOf": [{"anyOf": either(i)} for i in range(50)]},
    "twenty oneOfs at once": lambda: {"allOf": [{"oneOf": either(i)} for i in range(20)]},
    "twenty ifs at once": lambda: {
        "allOf": [
            {"if": {"required": [f"a{i}"]}, "then": {"required": [f"b{i}"]}, "else": False}
            for i in range(20)
        ]
    },
    "oneOf of fifty required pairs": lambda: {
        "oneOf": [{"required": [f"a{i}", f"b{i}"]} for i in range(50)]
    },
    "thirty-way anyOf with unevaluatedProperties": lambda: {
        "anyOf": [many(1, required=[f"q{i}"]) for i in range(30)],
        "unevaluatedProperties": False,
    },
    "thirty dependentSchemas": lambda: {
        "type": "object",
        "dependentSchemas": {f"p{i}": many(1, required=[f"q{i}"]) for i in range(30)},
    },
    "10,000 objects": lambda: {"enum": [{"a": i, "b": [i, str(i)]} for i in range(10_000)]},
    "400 nested nots": lambda: nested(lambda s: {"not": s}, 400),
    "huge minItems": lambda: {"type": "array", "minItems": 10**9},
    "huge minProperties": lambda: {"type": "object", "minProperties": 10**6},
    "a thousand dependent properties": lambda: {
        "type": "object",
        "dependentRequired": {f"p{i}": [f"p{i + 1}"] for i in range(1000)},
    },
    "minContains of a million": lambda: {"contains": {"type": "null"}, "minContains": 10**6},
    "huge minLength of a pattern": lambda: {
        "type": "string",
        "minLength": 10**6,
        "pattern": "^[a-z]+$",
    },
    "multiples of four large primes": lambda: {
        "type": "integer",
        "allOf": [{"multipleOf": p} for p in (99991, 99989, 99971, 99961)],
    },
}
"""Schemas that may compile or be refused as too large; which, is today's engine's business."""

OPTIONS: dict[str, dict[str, Any]] = {"a thousand nested arrays": {"max_depth": None}}

CASES: dict[str, Make] = {**ANSWERS, **{k: v for k, (_, v) in REFUSED.items()}, **BOUNDED}


def judge(name: str) -> str:
    """Compile one case and fill the first mask. Prints ``outcome steps megabytes``."""
    vocabulary = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])
    schema = CASES[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_steps = 0
    leave = Work.leave

    def count(work: Work) -> None:
        nonlocal n_steps
        n_steps += max(work.limits.work - work.left, 0)
        leave(work)

    Work.leave = count  # type: ignore[method-assign]
    try:
        cursor = structgen.compile(JsonSchema(schema), vocabulary, **OPTIONS.get(name, {})).start()
        out = np.zeros(9, np.uint32)
        cursor.fill_mask(out)
        outcome = "mask" if out.any() else "empty-mask"
    except structgen.StructgenError as error:
        outcome = type(error).__name__
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"{outcome} {n_steps} {memory:.0f}"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(__file__) as made:
        yield made


def run(forks: Forks, name: str) -> str:
    """The outcome of a case in a process of its own, which must keep the promise."""
    done = forks.run(name)
    assert done.returncode == 0, done.stderr[-500:] or f"ended by signal {-done.returncode}"
    outcome, n_steps, memory = done.stdout.split()
    assert int(n_steps) < STEPS, done.stdout
    assert float(memory) < MEGABYTES, done.stdout
    return outcome


@pytest.mark.parametrize("name", ANSWERS)
def test_compiles(forks: Forks, name: str) -> None:
    assert run(forks, name) == "mask"


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(forks: Forks, name: str) -> None:
    assert run(forks, name) == REFUSED[name][0]


@pytest.mark.parametrize("name", BOUNDED)
def test_answers_or_gives_up(forks: Forks, name: str) -> None:
    assert run(forks, name) in ("mask", "CompileLimitExceeded")


# -- what stands beside many others is counted ----------------------------------------------------

VOCABULARY = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], eos_token_ids=[256])
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def nested_resources(depth: int, leaf: Any) -> Any:
    """A schema that dynamic references reach anew in each scope."""
    for i in range(depth):
        inner = {"p": leaf, "q": {"$ref": f"x{depth - 1 - i}"}, "r": {"$dynamicRef": "#a"}}
        leaf = {"$id": f"x{i}", "$dynamicAnchor": "a", "properties": inner}
    return leaf


def copies(shared: Any, n: int) -> Any:
    """Members that each say a little beside the same large schema."""
    members: Any = {p: {"$ref": "#/$defs/a", "required": [p]} for p in names("p", n)}
    return {"$defs": {"a": shared}, "properties": members, "required": list(members)}


P = names("p", 150)

COUNTED: dict[str, Make] = {
    "scopes of dynamic references": lambda: nested_resources(10, {"type": "string"}),
    "texts in dynamic scopes": lambda: nested_resources(6, {"enum": names("v", 20_000)}),
    "names in dynamic scopes": lambda: nested_resources(6, {"required": names("v", 20_000)}),
    "constants in dynamic scopes": lambda: nested_resources(6, {"const": [[1] * 20_000]}),
    "a circle of references": lambda: {
        "properties": {p: {"$ref": f"#/properties/p{(i + 1) % 150}"} for i, p in enumerate(P)}
    },
    "names beside other names": lambda: copies({"properties": {p: {} for p in P}}, 150),
    "names that are listed": lambda: copies({"propertyNames": {"enum": P}}, 60),
    "members of a constant": lambda: {
        "const": dict.fromkeys(P, 1),
        "allOf": [{"properties": {p: True}} for p in P],
    },
    "constants in each other": lambda: {
        "anyOf": [
            *({"const": json.loads('{"a":' * k + "1" + "}" * k)} for k in range(100, 140)),
            {"type": "object", "properties": {"b": True}, "minProperties": 2},
        ]
    },
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_done_again_and_again_is_counted(name: str) -> None:
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(JsonSchema(COUNTED[name]()), VOCABULARY, max_work=7_000)


def test_ways_to_fail_are_counted_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = counted(monkeypatch, Partial, "copy")
    schema = {"not": {"oneOf": [{"minimum": i} for i in range(100)]}}  # each pair may both hold
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(JsonSchema(schema), VOCABULARY, max_work=10_000)
    assert len(copied) < 2_500


def test_values_of_few_are_counted_while_others_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = counted(monkeypatch, ArraySpec, "with_value")
    keys = [{"type": "object", "properties": {f"k{i}": {"minimum": i}}} for i in range(10)]
    part = {"anyOf": [*keys, {"$ref": "#"}]}
    few = [{"enum": [i, f"x{i}"]} for i in range(200)]
    items = {"type": "array", "uniqueItems": True, "minItems": 80, "items": part}
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(
            JsonSchema({**items, "prefixItems": [part, part, part, *few]}),
            VOCABULARY,
            max_work=40_000,
        )
    assert len(told) < 40_000


def test_alternatives_of_which_each_may_meet_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, RuleReader, "read")
    lengths = [{"type": "string", "minLength": k, "maxLength": 2 * k + 50} for k in range(500)]
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(JsonSchema({"oneOf": lengths}), VOCABULARY, max_work=20_000)
    assert len(asked) < 100_000  # 500 alternatives, each beside 499


def test_expressions_of_keys_are_counted_where_keys_meet_them() -> None:
    keys = [
        f"[{LETTERS[k % 26]}{LETTERS[k * 7 % 26]}].*[{LETTERS[k * 5 % 26]}{LETTERS[k * 11 % 26]}]"
        for k in range(150)
    ]
    schema = {
        "type": "object",
        "patternProperties": {key: {"minimum": k} for k, key in enumerate(keys)},
        "additionalProperties": False,
    }
    cursor = structgen.compile(JsonSchema(schema), VOCABULARY, max_mask_work=5_000).start()
    with pytest.raises(CompileLimitExceeded):
        cursor.min_tokens_to_finish()


def test_objects_of_one_expression_each_are_counted() -> None:
    parts = [
        {
            "type": "object",
            "patternProperties": {f"^{LETTERS[k % 26]}{LETTERS[k // 26]}": {"minimum": k}},
            "additionalProperties": {"type": "integer"},
        }
        for k in range(300)
    ]
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(JsonSchema({"allOf": parts}), VOCABULARY, max_work=15_000)


def test_common_multiples_of_many_numbers_are_bounded() -> None:
    steps = [{"type": "number", "multipleOf": (k + 1) * 1e-9} for k in range(3_000)]
    with pytest.raises(
        CompileLimitExceeded, match="least common multiple of 'multipleOf' values is too large"
    ):
        structgen.compile(JsonSchema({"allOf": steps}), VOCABULARY)


def test_a_rule_of_many_symbols_that_may_be_empty() -> None:
    # Where each was looked at beside each after it, this took ten seconds.
    empty = Cfg("root ::= " + "n " * 10_000 + '\nn ::= "" | "a" root\n', dialect="gbnf")
    out = np.zeros(9, np.uint32)
    structgen.compile(empty, VOCABULARY, max_work=75_000).start().fill_mask(out)
    assert np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little")).tolist() == [
        97,
        256,
    ]
    # What may follow each is kept, with what follows each after it: 12 kB of text were 300 MB.
    tokens = [*(bytes([b]) for b in range(256)), b"aa", b""]
    two = Vocabulary.from_tokens(tokens, eos_token_ids=[257])
    empty = Cfg("root ::= " + "n " * 500 + '\nn ::= "" | "a" root\n', dialect="gbnf")
    cursor = structgen.compile(empty, two, max_mask_work=17_000).start()
    cursor.accept(ord("a"))
    with pytest.raises(CompileLimitExceeded):
        cursor.fill_mask(out)
    copied = Cfg("root ::= e\ne ::= " + "e? " * 7_000 + '| "n"\n', dialect="gbnf")
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(copied, VOCABULARY, max_work=75_000)


if __name__ == "__main__":
    # What the interpreter and NumPy map before anything is compiled is not counted.
    room = (MEGABYTES + 1500) << 20
    limits = {resource.RLIMIT_CPU: PATIENCE, resource.RLIMIT_AS: room}
    serve(lambda name: print(judge(name)), 10 * PATIENCE, limits)
