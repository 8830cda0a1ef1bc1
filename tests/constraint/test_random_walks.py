"""Masks never lead wrong: a small sample of what ``tests/benchmarks/walks.py`` measures.

Random walks under a budget end in valid JSON, and edits of what they wrote are accepted exactly
when jsonschema-rs accepts them. The schemas here cover every keyword; some of our own sample, and
of the test-suite and MaskBench where these are (see corpora.py), are walked too.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import corpora
import pytest
from conformance import byte_vocabulary
from documents import Members, NotJson, Number, has_duplicates, read, spelled
from engine import strategies
from engine.test_json_schema import RANDOM
from engine.walks import examples
from hypothesis import given
from judging import FLEXIBLE, Judge, Verdict
from walks import Case, Walker, cases_of, is_bad, maskbench_cases

WALKER = Walker(byte_vocabulary(), walks=6, edits=2, seconds=0)

SCHEMAS: dict[str, Any] = {
    "anything": True,
    "strings": {"type": "string", "minLength": 1, "maxLength": 6, "pattern": "^[a-cé😀]*x?$"},
    "dates": {"type": "string", "format": "date-time"},
    "numbers": {"type": "number", "exclusiveMinimum": -3, "maximum": 250, "multipleOf": 0.25},
    "constants": {"enum": [None, {"a": [1, "é"], "b": {}}, [], 'q"\\', 1.5, -2, True]},
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "names": {
        "type": "object",
        "patternProperties": {"^x": {"type": "integer"}, "y$": {"type": ["null", "integer"]}},
        "additionalProperties": {"type": "boolean"},
        "propertyNames": {"maxLength": 3},
        "minProperties": 1,
        "maxProperties": 3,
    },
    "dependents": {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"enum": [1, 2]}},
        "dependentRequired": {"a": ["b"]},
        "dependentSchemas": {"c": {"maxProperties": 1}},
        "unevaluatedProperties": {"type": "integer"},
    },
    "arrays": {
        "type": "array",
        "prefixItems": [{"type": "string", "maxLength": 2}],
        "items": {"type": ["integer", "null"]},
        "contains": {"type": "integer", "minimum": 5},
        "minContains": 1,
        "maxContains": 2,
        "uniqueItems": True,
        "maxItems": 5,
    },
    "rest": {
        "type": "array",
        "allOf": [{"prefixItems": [{"const": 1}]}, {"contains": {"type": "string"}}],
        "unevaluatedItems": False,
    },
    "booleans": {
        "type": "object",
        "properties": {"kind": {"enum": ["circle", "square"]}, "r": {"type": "integer"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "circle"}}},
        "then": {"required": ["r"]},
        "else": {"not": {"required": ["r"]}},
        "additionalProperties": False,
    },
    "one of": {
        "oneOf": [
            {"type": "object", "required": ["a"]},
            {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}},
            {"type": "integer", "minimum": 3},
            {"type": "integer", "multipleOf": 2},
        ]
    },
    "not": {"not": {"anyOf": [{"type": "string"}, {"items": {"type": "integer"}}]}},
}


def check(cases: list[Case], walker: Walker = WALKER) -> Counter[str]:
    """Walk the cases and judge the edits."""
    count: Counter[str] = Counter()
    lines: list[str] = []
    for case in cases:
        outcome = walker.run(case)
        count += outcome.count
        lines += outcome.lines
    wrong = {label: n for label, n in count.items() if is_bad(label)}
    assert not wrong, (wrong, lines)
    return count


@pytest.mark.parametrize("name", SCHEMAS)
def test_walks_and_their_edits(name: str) -> None:
    count = check([Case("own", name, SCHEMAS[name])])
    assert count["schema: walked"] == 2
    assert count["walk: both accept"] == WALKER.walks
    # The edits are worth something only if they lead to documents of both kinds.
    verdicts = (Verdict.VALID, Verdict.INVALID, Verdict.NOT_JSON)
    edits = [count[f"edit of {what}: {v.value}"] for what in ("text", "value") for v in verdicts]
    assert sum(edits) > 3 * WALKER.walks
    assert sum(n > 0 for n in edits) > 2


@given(RANDOM)
@examples(60)
def test_generated_schemas(r: random.Random) -> None:
    # Boolean combinations of everything, with instances that are nearly right; also in schema
    # order, where a document that is refused must be accepted with its members in some order.
    schema = strategies.document(r)
    instances = tuple(strategies.instance(r, schema, schema) for _ in range(3))
    walker = replace(WALKER, walks=2, edits=1, instances=True)
    check([Case("generated", str(r.randint(0, 999)), schema, instances=instances)], walker)


@corpora.both
def test_a_sample_of_a_corpus(corpus: str) -> None:
    cases = cases_of(corpora.groups(corpus), corpora.documents(corpus))
    count = check(cases[7::29] if corpus == "suite" else cases[::4])
    least = {"suite": (270, 300, 100), "sample": (150, 50, 50)}[corpus]
    assert count["walk: both accept"] > least[0]
    assert count["edit of value: both accept"] > least[1]
    assert count["edit of value: both refuse"] > least[2]


def test_a_sample_of_maskbench() -> None:
    folder = corpora.need("maskbench-dev.jsonl.xz").parent
    cases = [case for case in maskbench_cases(folder, 2, 100) if len(str(case.schema)) < 2000]
    count = check(cases[:30])
    assert count["walk: both accept"] > 160
    assert count["edit of value: both accept"] > 90
    assert count["edit of value: both refuse"] > 90


# -- the judge itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "flexible", "verdict"),
    [
        ({"type": "integer"}, "12", True, Verdict.VALID),
        ({"type": "integer"}, "1.5", True, Verdict.INVALID),
        ({"type": "integer"}, "01", True, Verdict.NOT_JSON),
        ({"type": "string"}, '"\\ud800"', True, Verdict.NOT_JSON),
        ({"properties": {"a": True}}, '{"a":1,"a":2}', True, Verdict.DUPLICATE),
        ({"type": "object"}, '{"a":1,"a":2}', True, Verdict.VALID),
        ({"additionalProperties": False}, '{"a":1,"a":2}', True, Verdict.INVALID),
        ({"type": "array"}, "[1 ,2]", False, Verdict.SPELLING),
        ({"properties": {"a": True, "b": True}}, '{"b":1,"a":1}', False, Verdict.SPELLING),
        ({"const": 1}, " " * 21 + "1", True, Verdict.SPELLING),
        ({"type": "integer"}, "9" * 25, True, Verdict.LIMIT),
        ({"type": "number"}, "1e400", True, Verdict.LIMIT),
        ({"maximum": 0.1}, "0.10000000000000000001", True, Verdict.DECIMAL),
        ({"format": "uuid"}, '"2eb8aa08-aa98-11ea-b4aa-73b441d16380"', False, Verdict.VALID),
        ({"format": "hostname"}, '"xn--ihqwcrb4cv8a8dqg056pqjye"', False, Verdict.FORMAT_REFUSED),
    ],
)
def test_verdicts(schema: Any, text: str, flexible: bool, verdict: Verdict) -> None:
    judge = Judge(schema, WALKER.vocabulary, FLEXIBLE if flexible else {})
    assert judge.verdict(text.encode()) is verdict


def test_wrong_verdicts_are_called_wrong() -> None:
    # A constraint that is not the schema's stands for an engine with a mistake.
    judge = Judge({"type": "integer"}, WALKER.vocabulary, FLEXIBLE, formats=False)
    judge.constraint = Judge({"type": "boolean"}, WALKER.vocabulary, FLEXIBLE).constraint
    assert judge.verdict(b"true") is Verdict.WRONGLY_ACCEPTED
    assert judge.verdict(b"12") is Verdict.WRONGLY_REFUSED


def test_trees_keep_what_parsers_forget() -> None:
    tree = read('{"a": [1.50, 1e2], "a": "\\u00e9"}')
    assert tree == Members([("a", [Number("1.50"), Number("1e2")]), ("a", "é")])
    assert has_duplicates(tree)
    assert spelled(tree) == '{"a":[1.5,100],"a":"é"}'
    for text in ("NaN", '"\\udc00"', "[1,]", '"\t"', b"\xff"):
        with pytest.raises(NotJson):
            read(text)
