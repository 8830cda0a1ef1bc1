"""Ropes stand for the bytes they would be written out as: length, order, depth, tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine.walks import examples
from structgen import BudgetTooSmall, Cfg, JsonSchema, Regex, Vocabulary
from structgen.automaton.json.values import height_of_text
from structgen.automaton.texts import Rope, Text, flat, head, joined, put, repeated, size_of
from structgen.errors import CompileLimitExceeded
from structgen.vocabulary.tokens import FewestTokens
from structgen.vocabulary.trie import Trie

BYTES = [bytes([b]) for b in range(256)]


def rope_of(r: random.Random, depth: int) -> tuple[Text, bytes]:
    """A random text, and the bytes it stands for."""
    if not depth or r.random() < 0.2:
        plain = bytes(r.choice(b'ab[]{}"\\') for _ in range(r.randrange(300)))
        return plain, plain
    kind = r.randrange(3)
    one, one_flat = rope_of(r, depth - 1)
    if kind == 0:
        times = r.randrange(4)
        return repeated(one, times), one_flat * times
    other, other_flat = rope_of(r, depth - 1)
    if kind == 1:
        return put(one, other), one_flat + other_flat
    texts = [r.choice([(one, one_flat), (other, other_flat)]) for _ in range(r.randrange(6))]
    return joined(b",", [t for t, _ in texts]), b",".join(f for _, f in texts)


@given(st.randoms(use_true_random=False))
@examples(200)
def test_a_rope_stands_for_its_bytes(r: random.Random) -> None:
    text, plain = rope_of(r, 4)
    assert size_of(text) == len(text) == len(plain)
    assert flat(text) == plain
    assert head(text, 7) == plain[:7]
    other, other_plain = rope_of(r, 3)
    if isinstance(text, Rope) and plain[:1000] != other_plain[:1000]:
        assert (text < other) == (plain < other_plain)
        assert (text > other) == (plain > other_plain)


def _height(text: bytes) -> int:
    height = depth = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            in_string = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            height = max(height, depth)
        elif byte in b"]}":
            depth -= 1
    return height


@given(st.randoms(use_true_random=False))
@examples(200)
def test_how_deep_a_rope_nests(r: random.Random) -> None:
    text, plain = rope_of(r, 4)
    assert height_of_text(text) == _height(plain)


@given(st.randoms(use_true_random=False))
@examples(100)
def test_ropes_in_the_fewest_tokens(r: random.Random) -> None:
    alphabet = b'ab[]{}"\\,'
    tokens = {bytes(r.choice(alphabet) for _ in range(r.randint(1, 7))) for _ in range(30)}
    single = {bytes([b]) for b in alphabet if r.random() < 0.9}
    spell = FewestTokens(Trie(sorted(tokens | single)))
    text, plain = rope_of(r, 4)
    expected = spell(plain)
    assert spell.ropes.count(text) == (None if expected is None else len(expected))
    if expected is not None:
        assert [*spell.ropes.nodes(text)] == expected


def test_what_is_too_long_is_not_written_out() -> None:
    text = repeated(b"a" * 600, 1 << 70)
    assert size_of(text) == 600 << 70
    assert len(text) == 1 << 60
    with pytest.raises(CompileLimitExceeded, match="write out"):
        flat(text)


def nested(count: int, depth: int) -> JsonSchema:
    schema: dict[str, object] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": count}
    return JsonSchema(schema)


def doubled(count: int) -> Cfg:
    rules = [f"a{i}: a{i + 1} a{i + 1}" for i in range(count)]
    return Cfg("\n".join(["start: a0", *rules, f'a{count}: "a"']))


def required(count: int) -> JsonSchema:
    definitions: dict[str, object] = {f"d{count}": {"type": "null"}}
    for i in range(count):
        to = {"$ref": f"#/$defs/d{i + 1}"}
        properties = {"a": to, "b": to}
        definitions[f"d{i}"] = {"type": "object", "properties": properties, "required": ["a", "b"]}
    return JsonSchema({"$ref": "#/$defs/d0", "$defs": definitions})


# Each with the bytes of its shortest text.
LONG = {
    "nested minItems": (nested(1000, 3), 5_002_002_001),
    "references to two": (required(22), 15 * 2**22 - 11),
    "counted groups": (Cfg('start: (((("a"~100)~100)~100)~100)'), 100**4),
    "doubling rules": (doubled(24), 2**24),
    "two hundred of these": (doubled(200), 2**200),
    "minLength": (JsonSchema({"type": "string", "minLength": 300_000}), 300_002),
    "minLength and pattern": (
        JsonSchema({"type": "string", "minLength": 100_000, "pattern": "^[a-z]+$"}),
        100_002,
    ),
    "counted character": (Regex("a{100000}"), 100_000),
}


@pytest.mark.parametrize("name", LONG)
def test_texts_that_nobody_could_write_out_are_counted(name: str) -> None:
    output, size = LONG[name]
    constraint = structgen.compile(output, Vocabulary.from_tokens([*BYTES, b""], [256]))
    assert constraint.start().min_tokens_to_finish() == size + 1
    with pytest.raises(BudgetTooSmall, match=r"needs (about|more than)") as raised:
        constraint.start(max_tokens=100)
    assert raised.value.minimum == size + 1


@pytest.mark.parametrize("name", LONG)
def test_a_budget_may_be_as_large(name: str) -> None:
    output, size = LONG[name]
    tokens = [*BYTES, b"aa", b"aaaa", b"[[", b"],", b"null", b"]]", b""]
    vocabulary = Vocabulary.from_tokens(tokens, [len(tokens) - 1])
    constraint = structgen.compile(output, vocabulary)
    least = constraint.start().min_tokens_to_finish()
    assert least <= size + 1
    cursor = constraint.start(max_tokens=least + 3)
    out = np.zeros(9, np.uint32)
    r = random.Random(1)
    for _ in range(60):
        cursor.fill_mask(out)
        allowed = np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little"))
        assert len(allowed)
        cursor.accept(int(r.choice(allowed)))
        assert cursor.min_tokens_to_finish() <= least + 3
