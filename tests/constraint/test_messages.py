"""What errors say to someone who has just begun: the place, the cause and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

import structgen
from structgen import JsonSchema, Quote, Regex, Vocabulary
from structgen.errors import (
    CompileLimitExceeded,
    OptionError,
    SchemaError,
    TokenNotAllowed,
    Unsatisfiable,
    VocabularyError,
)

TOKENS = [bytes([b]) for b in range(256)]
BYTES = Vocabulary.from_tokens([*TOKENS, b""], eos_token_ids=[256])


class Person(BaseModel):
    name: str


class HasVocabulary:
    vocabulary = BYTES


def test_items_too_many_to_tell_apart_are_told_as_that() -> None:
    inner = {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [*range(50)]}}
    outer = {"type": "array", "uniqueItems": True, "minItems": 50, "items": inner}
    with pytest.raises(CompileLimitExceeded) as caught:
        structgen.compile(JsonSchema(outer), BYTES)
    assert re.match(r"uniqueItems requires an item at \$\.items that differs", str(caught.value))
    assert "oneOf" not in str(caught.value)
    for changed in ({"uniqueItems": False}, {"minItems": 2, "maxItems": 2}):
        structgen.compile(JsonSchema({**outer, **changed}), BYTES)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("nat", "natural"), ("Natural", "natural"), ("compct", "compact"), ("flex", "flexible")],
)
def test_a_style_of_whitespace_that_is_near_is_offered(written: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"Did you mean '{meant}'"):
        structgen.compile(int, BYTES, whitespace=written)


def schema(value: Any, **options: Any) -> Callable[[], object]:
    return lambda: structgen.compile(JsonSchema(value, **options), BYTES)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        # contradictions
        (
            lambda: structgen.compile(Annotated[str, Field(min_length=3, max_length=2)], BYTES),
            Unsatisfiable,
            "minLength 3 is greater than maxLength 2",
        ),
        (
            lambda: structgen.compile(Regex("a") & Regex("b"), BYTES),
            Unsatisfiable,
            "its parts contradict each other",
        ),
        (
            lambda: structgen.compile(Quote("\n "), BYTES),
            Unsatisfiable,
            "the document of its Quote is empty, so there is nothing to quote",
        ),
        (
            lambda: structgen.compile(Quote("a b", min=3), BYTES),
            Unsatisfiable,
            "the document of its Quote has fewer than 3 words",
        ),
        (
            lambda: structgen.compile(create_model("M", a=(Annotated[str, Quote("")], ...)), BYTES),
            Unsatisfiable,
            "at $.properties.a: the document of its Quote is empty",
        ),
        (schema({"enum": []}), Unsatisfiable, "enum or const []"),
        (
            schema({"type": "string", "enum": [1, 2]}),
            Unsatisfiable,
            "type string, enum or const [1, 2]",
        ),
        (schema({"const": 3, "minimum": 5}), Unsatisfiable, "enum or const [3], minimum 5"),
        (
            schema({"enum": ["a"], "minLength": 2}),
            Unsatisfiable,
            'enum or const ["a"], minLength 2',
        ),
        (
            schema({"allOf": [{"const": 1}, {"const": 2}]}),
            Unsatisfiable,
            "const [1], enum or const [2]",
        ),
        # limits
        (
            schema({"enum": [{"a": i} for i in range(501)]}),
            CompileLimitExceeded,
            "describe them with properties",
        ),
        (
            schema(
                {
                    "anyOf": [{"patternProperties": {c: {}}} for c in "abcdefg"],
                    "unevaluatedProperties": False,
                }
            ),
            CompileLimitExceeded,
            "use oneOf",
        ),
        # things at the wrong place
        (lambda: JsonSchema(Person), SchemaError, "pass the type itself"),  # type: ignore[arg-type]
        (lambda: JsonSchema("a/b.json"), SchemaError, "Cannot read the file a/b.json"),
        (lambda: JsonSchema(Path("x")), SchemaError, "Cannot read the file x"),
        (lambda: JsonSchema("{'a': 1}"), SchemaError, "Pass a dict, or the schema as JSON text."),
        (lambda: JsonSchema({"enum": {"a"}}), SchemaError, "and None. Use a list."),
        (
            lambda: structgen.compile(int, HasVocabulary()),  # type: ignore[arg-type]
            VocabularyError,
            "model.vocabulary",
        ),
        (lambda: structgen.compile(int, None), VocabularyError, "got NoneType"),  # type: ignore[arg-type]
        # options
        (lambda: structgen.compile(int, BYTES, whitespace=2), OptionError, "'spaced'"),
        (schema({}, dialect="2020-12"), OptionError, "Did you mean 'draft2020-12'?"),
        (schema({}, dialect=7), OptionError, "Did you mean 'draft7'?"),
        (schema({}, dialect="draft-07"), OptionError, "Did you mean 'draft7'?"),
        (schema({}, dialect="draft17"), OptionError, "'draft17'. Known dialects"),
    ],
)
def test_messages(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        call()


def test_only_a_vocabulary_that_lacks_bytes_is_blamed() -> None:
    lacking = Vocabulary.from_tokens([*TOKENS[:0x61], *TOKENS[0x62:], b""], eos_token_ids=[255])
    with pytest.raises(Unsatisfiable, match="this vocabulary cannot write"):
        structgen.compile(Regex("a"), lacking)
    with pytest.raises(Unsatisfiable, match="contradict"):
        structgen.compile(Regex("b") & Regex("c"), lacking)


def test_tokens_that_are_refused() -> None:
    with pytest.raises(TokenNotAllowed, match="the next byte may be one of '-0123456789'"):
        structgen.compile(int, BYTES).start().accept(ord("x"))
    cursor = structgen.compile(Literal["a"], BYTES).start()
    with pytest.raises(TokenNotAllowed, match="the next byte may be 'a'"):
        cursor.accept(ord("b"))
    with pytest.raises(TypeError, match="takes a token id"):
        cursor.accept("a")  # type: ignore[arg-type]
    cursor.accept(ord("a"))
    with pytest.raises(TokenNotAllowed, match="the text is complete, so nothing may follow"):
        cursor.accept(ord("a"))


def test_a_pattern_that_is_too_large_is_named() -> None:
    inside = {"type": "object", "properties": {"q": {"pattern": "^.*a.{25}$"}}}
    for value, path in (
        (inside["properties"]["q"], "$.pattern"),
        (inside, "$.properties.q.pattern"),
    ):  # type: ignore[index]
        with pytest.raises(CompileLimitExceeded) as caught:
            schema(value)()
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("one_of", "oneOf"),
        ("any_of", "anyOf"),
        ("$def", "$defs"),
        ("min", "minimum, minLength or minItems"),
        ("max", "maximum, maxLength or maxItems"),
        ("regex", "pattern"),
        ("length", "minLength and maxLength"),
        ("x-mine", ""),
    ],
)
def test_unknown_keywords_have_a_suggestion(keyword: str, meant: str) -> None:
    (row,) = structgen.compile(JsonSchema({keyword: 1}), BYTES).explain().rows
    assert row.note == f"unknown keyword without effect{meant and f'; did you mean {meant}?'}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("datetime", "date-time"), ("date_time", "date-time"), ("e-mail", "email"), ("zzz", "")],
)
def test_unknown_formats_have_a_suggestion(name: str, meant: str) -> None:
    (row,) = structgen.compile(JsonSchema({"format": name}), BYTES).explain().rows
    assert row.note.endswith(f"did you mean {meant!r}?" if meant else "without effect")


@pytest.mark.parametrize("rules", ["start: X\nX: /[xyz]+/", 'start: A "x"\nA: /a+/'])
def test_a_grammar_that_the_vocabulary_cannot_write(rules: str) -> None:
    few = structgen.Vocabulary.from_tokens([b"a", b"b", b""], [2])
    with pytest.raises(Unsatisfiable, match="this vocabulary cannot write any text"):
        structgen.compile(structgen.Cfg(rules), few)
    with pytest.raises(Unsatisfiable, match="no text matches the grammar: rule 'start'"):
        structgen.compile(structgen.Cfg('start: start "a"'), few)
