"""The ratchet: verdicts on the JSON-Schema-Test-Suite may only get better.

``tests/constraint/conformance_ratchet.json`` holds how many tests were right, for each draft and
file, when it was last written. Every test of the suite is judged where it is (see corpora.py); our
own sample, and the samples below, always. To raise the ratchet after an improvement:
``STRUCTGEN_RATCHET=write pytest tests/constraint/test_conformance.py``.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path
from typing import Any

import corpora
import pytest

import structgen
from structgen import JsonSchema, Vocabulary
from structgen.errors import StructgenError, TokenNotAllowed, Unsatisfiable

RATCHET = Path(__file__).with_name("conformance_ratchet.json")
BYTES = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])


def compiled(schema: Any, **options: Any) -> Any:
    return structgen.compile(
        JsonSchema(schema),
        BYTES,
        whitespace="flexible",
        property_order="any",
        spelling="any",
        **options,
    )


def accepts(constraint: Any, value: Any) -> bool:
    cursor = constraint.start()
    try:
        for byte in json.dumps(value, ensure_ascii=False).encode():
            cursor.accept(byte)
    except TokenNotAllowed:
        return False
    return bool(cursor.is_accepting)


def counted(corpus: str) -> dict[str, dict[str, int]]:
    """For each draft and file: tests right, wrongly accepted, wrongly rejected, refused."""
    documents = corpora.documents(corpus)
    counts: dict[str, collections.Counter[str]] = {}
    for group in corpora.groups(corpus):
        formats = bool(group["optional"]) and "/format/" in group["file"]
        if group["optional"] and not formats:
            continue
        count = counts.setdefault(group["file"], collections.Counter())
        try:
            constraint = compiled(
                group["schema"],
                dialect=group["draft"],
                documents=documents,
                format_assertion=formats,
            )
        except Unsatisfiable:
            constraint = None
        except StructgenError:
            count["refused"] += len(group["tests"])
            continue
        for test in group["tests"]:
            verdict = constraint is not None and accepts(constraint, test["data"])
            if verdict == test["valid"]:
                count["right"] += 1
            else:
                count["wrongly accepted" if verdict else "wrongly rejected"] += 1
    return {name: dict(sorted(count.items())) for name, count in sorted(counts.items())}


def test_all_verdicts_of_the_sample_are_right() -> None:
    counts = counted("sample")
    assert {label for count in counts.values() for label in count} == {"right"}, counts
    assert sum(count["right"] for count in counts.values()) > 800


def test_no_verdict_of_the_test_suite_gets_worse() -> None:
    counts = counted("suite")
    if os.environ.get("STRUCTGEN_RATCHET") == "write":
        RATCHET.write_text(json.dumps(counts, indent=1) + "\n")
    known = json.loads(RATCHET.read_text())
    assert set(counts) == set(known)
    worse = {
        name: (before, counts[name])
        for name, before in known.items()
        if counts[name].get("right", 0) < before.get("right", 0)
        or counts[name].get("wrongly accepted", 0) > before.get("wrongly accepted", 0)
    }
    assert not worse


SAMPLES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"not": {"type": "integer"}}, ["a", 1.5, None], [1, -3, 2.0]),
    ({"oneOf": [{"minimum": 3}, {"maximum": 5}]}, [1, 9], [3, 4, 5, "text"]),
    (
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 1}},
        [{"a": 1, "b": 2}, {"c": 1}, {}],
        [{"a": 1}, {"c": 1, "d": 2}],
    ),
    (
        {"contains": {"const": 7}, "minContains": 2, "maxContains": 3},
        [[7, 7], [1, 7, 7, 7, 2]],
        [[], [7], [7, 7, 7, 7]],
    ),
    ({"uniqueItems": True}, [[], [1, "1", True], [[1], [2]]], [[1, 1.0], ["a", "b", "a"]]),
    (
        {"dependentRequired": {"card": ["address"]}},
        [{}, {"address": 1}, {"card": 1, "address": 2}],
        [{"card": 1}],
    ),
    (
        {
            "dependencies": {"a": ["b"], "c": {"minProperties": 2}},
            "dependentRequired": {"a": ["d"]},
            "dependentSchemas": {"c": {"maxProperties": 2}},
        },
        [{}, {"a": 1, "b": 1, "d": 1}, {"c": 1, "d": 1}],
        [{"a": 1, "b": 1}, {"a": 1, "d": 1}, {"c": 1}, {"c": 1, "d": 1, "e": 1}],
    ),
    (
        {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}, {"a": 1, "b": 2}],
    ),
    (
        {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": {"type": "null"}},
        [{"xa": "b", "y": None}],
        [{"xa": None}, {"y": "b"}],
    ),
    ({"contains": {"const": 3}, "uniqueItems": True}, [[3], [1, 3], 4], [[], [1], [3, 3]]),
    ({"contains": False, "uniqueItems": True}, ["text"], [[], [1]]),
    ({"propertyNames": {"maxLength": 2}, "minProperties": 1}, [{"ab": 1}], [{}, {"abc": 1}]),
    ({"not": {"required": ["a"], "properties": {"a": {"const": 1}}}}, [{}, {"a": 2}], [{"a": 1}]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), SAMPLES, ids=lambda v: str(v)[:40])
def test_samples_are_judged_right(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    constraint = compiled(schema)
    for value in valid:
        assert accepts(constraint, value), value
    for value in invalid:
        assert not accepts(constraint, value), value
