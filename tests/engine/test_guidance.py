"""llguidance's ``x-guidance`` at the root of a schema: read as options, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import structgen
from engine.walks import TINY
from structgen import JsonSchema
from structgen.errors import SchemaError, UnenforcedWarning, UnsupportedFeature
from structgen.types import lower

PAIR = {"type": "array", "items": {"type": "integer"}}
TEXTS = {
    "compact": "[1,2]",
    "spaced": "[1, 2]",
    "wide": "[1,  2]",
    "around": "\n[ 1,2 ]",
    "inside": "[ 1,2 ]",
}


def taken(said: Any, **options: Any) -> set[str]:
    constraint = structgen.compile(JsonSchema({"x-guidance": said, **PAIR}), TINY, **options)
    return {name for name, text in TEXTS.items() if constraint.allows(text)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, {"compact", "spaced"}),
        ({"whitespace_flexible": False}, {"compact"}),
        ({"whitespace_flexible": True}, set(TEXTS)),
        ({"whitespace_pattern": r"[\x20\x0A]{2}"}, {"compact", "wide"}),
        ({"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}, {"spaced"}),
        (
            {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
            {"compact", "spaced"},
        ),
        (
            {
                "item_separator": ",",
                "key_separator": ":",
                "whitespace_flexible": False,
                "whitespace_pattern": None,
                "coerce_one_of": True,
                "lenient": False,
                "json_allowed_escapes": None,
                "json_allow_general_unicode_escapes": False,
            },
            {"compact"},
        ),
    ],
)
def test_what_is_the_same_here(said: Any, expected: set[str]) -> None:
    assert taken(said) == expected


def test_what_the_call_says_counts() -> None:
    said = {"whitespace_flexible": False}
    assert taken(said, whitespace="spaced") == {"spaced"}
    schema = JsonSchema({"x-guidance": said, **PAIR})
    dumped = json.dumps([1, 2], indent=2)
    assert structgen.compile(schema, TINY, indent=2).allows(dumped)
    assert structgen.sample(JsonSchema({**schema.schema, "minItems": 2}), 1)[0].count(" ") == 0
    template = structgen.Template("{a}", a=schema)
    assert structgen.compile(template, TINY).allows("[1,2]")
    assert lower(template).parse(dumped) == {"a": [1, 2]}


def test_lenient_leaves_out_what_cannot_be_kept() -> None:
    schema = {"x-guidance": {"lenient": True}, "type": "string", "pattern": r"^(.)\1$"}
    with pytest.warns(UnenforcedWarning, match="pattern"):
        constraint = structgen.compile(JsonSchema(schema), TINY)
    told = {row.keyword: row for row in constraint.explain().rows}
    assert told["pattern"].how == "not enforced"
    assert "on_unsupported='warn'" in told["x-guidance"].note
    with pytest.raises(UnsupportedFeature, match="backreference"):
        structgen.compile(JsonSchema(schema), TINY, on_unsupported="error")


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ({"item_separator": r"\s,"}, UnsupportedFeature, r"\$\.x-guidance\.|'item_separator' in"),
        ({"key_separator": ": "}, UnsupportedFeature, "'key_separator' in .* whitespace="),
        ({"json_allowed_escapes": 'n"'}, UnsupportedFeature, "'json_allowed_escapes'.* a pattern"),
        ({"white_space": 1}, SchemaError, "has no 'white_space'.* Did you mean 'whitespace"),
        ({"lenient": 1}, SchemaError, "'lenient' of 'x-guidance' must be a boolean; got 1"),
        ({"whitespace_pattern": 1}, SchemaError, "must be a string; got 1"),
        ([], SchemaError, "'x-guidance' must be an object"),
    ],
)
def test_what_is_refused(said: Any, kind: type[SchemaError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        taken(said)
    assert caught.value.keyword == "x-guidance"


def test_it_counts_at_the_root_only() -> None:
    inner = {"type": "object", "x-guidance": {}}
    with pytest.raises(
        UnsupportedFeature, match=r"is supported only at the root .* \$\.properties\.a\. Move"
    ):
        structgen.compile(JsonSchema({"properties": {"a": inner}}), TINY)
    with pytest.warns(UnenforcedWarning, match="x-guidance"):
        structgen.compile(JsonSchema({"properties": {"a": inner}}), TINY, on_unsupported="warn")
    text = 'start: %json {"x-guidance": {"whitespace_flexible": false}, "type": "array"}'
    constraint = structgen.compile(structgen.Cfg(text, dialect="llguidance"), TINY)
    assert [constraint.allows(text) for text in ("[1,2]", "[1, 2]")] == [True, False]
