"""Checksums as regular languages, held against adding up."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import structgen
from structgen import Regex, Vocabulary
from structgen.automaton.regex import RegexAutomaton
from structgen.errors import SchemaError, Unsatisfiable
from structgen.grammar.regex import algebra
from structgen.types.ready import Ready

VOCABULARY = Vocabulary.from_tokens([bytes([i]) for i in range(256)] + [b""], [256])

CASES: list[list[Any]] = [
    ["checksum", 3, [{"0": 0, "1": 1, "2": 2}] * 4, "", [], 0],
    ["checksum", 2, [{"0": 0, "1": 1}, {"2": 1, "1": 0}, {"0": 4}], "", [], 0],
    ["checksum", 3, [{"0": 0, "1": 1, "2": 2}] * 3, "-", [1, 2], 1],
    ["checksum", 3, [{"0": 0, "1": 1, "2": 2}] * 3, "-", [1, 2], 2],
    ["checksum", 5, [{"0": 0, "1": 1}] * 3, "", [], 0],
    ["checksum", 2, [{"0": 1}, {"-": 0}, {"1": 1, "2": 2}], "", [], 0],
    ["checksum", 2, [], "", [], 0],
]


def adds_up(case: list[Any], text: str) -> bool:
    _, modulus, steps, between, gaps, count = case
    for filled in itertools.combinations(gaps, count):
        at = total = 0
        for place, step in enumerate(steps):
            if place in filled:
                if text[at : at + 1] != between:
                    break
                at += 1
            if text[at : at + 1] not in step or at >= len(text):
                break
            total += step[text[at]]
            at += 1
        else:
            if at == len(text) and total % modulus == 0:
                return True
    return False


ALL = ["".join(text) for n in range(6) for text in itertools.product("012-", repeat=n)]


@pytest.mark.parametrize("case", CASES)
def test_against_adding_up(case: list[Any]) -> None:
    automaton = RegexAutomaton(algebra.lower(case))
    within = RegexAutomaton(algebra.lower(["and", case, ["not", ["regex", "0.*", 0]]]))
    beside = RegexAutomaton(algebra.lower(["then", ["regex", "x?", 0], case, ["regex", "0*", 0]]))
    for text in ALL:
        expected = adds_up(case, text)
        assert automaton.accepts(text) == expected
        assert within.accepts(text) == (expected and text[:1] != "0")
        padded = any(
            adds_up(case, text[:end]) for end in range(len(text) + 1) if not text[end:].strip("0")
        )
        assert beside.accepts(text) == padded
        assert beside.accepts("x" + text) == padded


def test_a_vocabulary_without_some_of_the_digits() -> None:
    """What cannot be written is no way to a sum that comes out."""
    tokens = [bytes([i]) for i in range(256) if chr(i) not in "13579"] + [b""]
    vocabulary = structgen.Vocabulary(tokens, eos_token_ids=[len(tokens) - 1])
    steps = [{str(d): d for d in range(10)}] * 3
    even = Ready("even", "Three digits.", lambda: ["checksum", 2, steps, "", [], 0])
    assert structgen.compile(even, vocabulary).allows("204")
    odd_end = even & Regex("[0-9]{2}[13579]")
    with pytest.raises(Unsatisfiable):
        structgen.compile(odd_end, vocabulary)


@pytest.mark.parametrize("modulus", [10**30, 10**9, 10**6])
def test_a_checksum_of_too_many_remainders_is_over_the_limits(modulus):
    """Whoever sends a schema may write the keyword; it filled the memory, or overflowed."""
    expression = ["checksum", modulus, [{"a": 1}] * 40, "", [], 0]
    schema = structgen.JsonSchema({"type": "string", "$structgen-regex": expression})
    with pytest.raises(structgen.errors.CompileLimitExceeded):
        structgen.compile(schema, VOCABULARY).start()


def test_a_checksum_of_too_many_places_is_over_the_limits():
    """Of 20,000 in a schema of 180 kB, it took 34 s and 1.6 GB, which nothing counted."""
    expression = ["checksum", 2, [{"a": 1}] * 10_000, "", [], 0]
    schema = structgen.JsonSchema({"type": "string", "$structgen-regex": expression})
    with pytest.raises(structgen.errors.CompileLimitExceeded, match="too much work"):
        structgen.compile(schema, VOCABULARY).start()


@pytest.mark.parametrize(
    "parts",
    [
        ([{"ab": 1}], "", [], 0),
        ([{"a": -1}], "", [], 0),
        ([{"a": "x"}], "", [], 0),
        ([1], "", [], 0),
        ([{"a": 1}], "", [5], 1),
        ([{"a": 1}], "", [[]], 1),
        ([{"a": 1}], "", [0], 7),
        ([{"a": 1}], "", [0], -7),
    ],
)
def test_malformed_checksums_are_told(parts):
    schema = structgen.JsonSchema({"type": "string", "$structgen-regex": ["checksum", 10, *parts]})
    with pytest.raises(SchemaError, match=r"is not a \$structgen-regex expression"):
        structgen.compile(schema, VOCABULARY).start()
