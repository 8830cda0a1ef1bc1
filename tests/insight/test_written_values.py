"""Values in several spellings, held against Python's own reader of JSON."""

from __future__ import annotations

import itertools
import json

import pytest
from fakes import FakeModel

import structgen
from structgen import JsonSchema
from structgen.insight.alternatives import (
    boundary,
    canonical,
    is_closed,
    longest,
    may_become,
    sites,
    whole_texts,
)
from structgen.models.base import run_passes

CHARS = ["a", "ö", "日", "😀", '"', "\\", "\n", "/", "\x01"]
LABELS = ["положительный", "отрицательный", "größe", "日本語テスト", "東京タワー", "😀😀😀"]


def spellings(char: str) -> list[bytes]:
    """Ways to write a character in a JSON string."""
    units = char.encode("utf-16-be")
    escape = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    ways = [escape, escape.upper().replace("U", "u"), json.dumps(char, ensure_ascii=False)[1:-1]]
    if char == "/":
        ways.append("\\/")
    return [way.encode() for way in ways]


@pytest.mark.parametrize("chars", list(itertools.product(CHARS, repeat=2)))
def test_all_spellings_of_a_string_are_one(chars):
    value = "".join(chars)
    plain = b'"' + json.dumps(value, ensure_ascii=False)[1:].encode()
    others = [canonical(json.dumps(other, ensure_ascii=False).encode())[0] for other in CHARS]
    for ways in itertools.product(*map(spellings, chars)):
        text = b'"' + b"".join(ways) + b'"'
        assert json.loads(text) == value
        assert canonical(text) == (plain, b"")
        assert len(text) <= longest(text) == longest(plain)
        for end in range(1, len(text)):
            whole, begun = canonical(text[:end])
            assert may_become(whole, begun, plain)
            assert not is_closed(text[:end]) or end == 1
            for other, written in zip(CHARS, others, strict=True):
                # What is read cannot become a string of one character once it has two.
                if end > len(ways[0]) + 1:
                    assert not may_become(whole, begun, written), (text[:end], other)
        assert is_closed(text)


def test_halves_of_pairs_stay_what_they_are():
    assert canonical(rb'"\uD83Dx') == (rb'"\ud83dx', b"")
    assert canonical(rb'"\uD83D\n') == (rb'"\ud83d\n', b"")
    assert canonical(rb'"\uD83D\u00') == (b'"' + rb"\ud83d", rb"\u00")
    assert canonical(rb'"\uD83D\uD') == (b'"', rb"\ud83d\ud")
    assert canonical(rb'"\uDE00') == (rb'"\ude00', b"")


@pytest.mark.parametrize("spelling", ["canonical", "any"])
def test_alternatives_are_counted_by_value(spelling):
    vocabulary = FakeModel().vocabulary
    labels = [f"{label} {i}" for label in LABELS for i in range(30)]
    constraint = structgen.compile(JsonSchema({"enum": labels}), vocabulary, spelling=spelling)
    found = run_passes(whole_texts(constraint))
    assert found is not None
    assert sorted(map(json.loads, found)) == sorted(labels)
    assert all(text == canonical(text)[0] for text in found)
    too_many = JsonSchema({"type": "string", "maxLength": 2})
    constraint = structgen.compile(too_many, vocabulary, spelling=spelling)
    assert run_passes(whole_texts(constraint)) is None


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_fields_with_labels_beyond_ascii_have_confidence(ensure_ascii):
    schema = {"properties": {"label": {"enum": LABELS}}, "required": ["label"]}
    constraint = structgen.compile(
        JsonSchema(schema | {"additionalProperties": False}), FakeModel().vocabulary
    )
    for label in LABELS:
        text = json.dumps({"label": label}, ensure_ascii=ensure_ascii, separators=(",", ":"))
        output = text.encode()
        (site,) = run_passes(sites(constraint, output))
        assert set(site.values) == set(LABELS)
        assert site.values[site.chosen] == label
        # Tokens of one byte: all are open up to the quote, and in no case beyond a character.
        decided = boundary(range(1, len(output) + 1), site, output)
        assert site.start < decided < len(output) - 3
        read = canonical(output[site.start : decided])
        assert all(may_become(*read, json.dumps(x, ensure_ascii=False).encode()) for x in LABELS)
