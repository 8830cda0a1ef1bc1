"""Masks against brute force: every token tried byte by byte, at states that random walks reach."""

from __future__ import annotations

import random
import threading
from typing import Any

import inside
import numpy as np
import pytest

import structgen
from engine import strategies
from engine.walks import (
    EOS,
    EOS_TOO,
    HOLE,
    SPECIAL,
    TINY,
    allowed,
    brute_force_ids,
    n_words,
    naive_ids,
    read_mask,
    seeds,
    snapshot,
    states_on_the_way,
    walk,
)
from structgen import Choice, JsonSchema, Regex, Vocabulary
from structgen.constraint.constraint import Constraint

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2.75},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
        "tags": {"type": "array", "items": {"enum": ["a", "é", "😀", 'q"', 12, None, [1]]}},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "next"],
    "additionalProperties": {"type": ["boolean", "string"]},
}
DEEP = {"type": "array", "items": {"$ref": "#"}, "prefixItems": [{"type": ["string", "null"]}]}
KEYS = {
    "type": "object",
    "patternProperties": {"^s_": {"type": "string"}, "\\d$": {"type": "integer"}},
    "propertyNames": {"maxLength": 8},
    "additionalProperties": {"type": "null"},
}

NAMED_KEYS = {
    "type": "object",
    "properties": {"a": {"type": "null"}, "ab": False, "s_1": {"minLength": 1}, "é": True},
    "patternProperties": {"^s_": {"type": "string"}, "\\d$": {"type": ["integer", "string"]}},
    "additionalProperties": {"type": "boolean"},
    "required": ["a"],
}

OUTPUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "person": (JsonSchema(PERSON), {}),
    "named keys": (JsonSchema(NAMED_KEYS), {}),
    "named keys, any": (
        JsonSchema(NAMED_KEYS),
        {
            "property_order": "any",
            "spelling": "any",
            "whitespace": "flexible",
            "ensure_ascii": True,
        },
    ),
    "person, flexible": (
        JsonSchema(PERSON),
        {"whitespace": "flexible", "property_order": "any", "spelling": "any"},
    ),
    "person, any order": (JsonSchema(PERSON), {"property_order": "any"}),
    "named keys, any order": (JsonSchema(NAMED_KEYS), {"property_order": "any"}),
    "keys by pattern, any order": (
        JsonSchema({**KEYS, "properties": {"ab": {"type": "integer"}, "b": {}, "c1": True}}),
        {"property_order": "any"},
    ),
    "person, compact": (JsonSchema(PERSON), {"whitespace": "compact"}),
    "person, spaced": (JsonSchema(PERSON), {"whitespace": "spaced"}),
    "person, ascii": (JsonSchema(PERSON), {"ensure_ascii": True}),
    "any value": (JsonSchema(True), {"whitespace": "flexible"}),
    "recursive arrays": (JsonSchema(DEEP), {}),
    "keys by pattern": (JsonSchema(KEYS), {"whitespace": "[ \n]{0,4}"}),
    "text": (Regex(r"[^\n]{1,40}\n(é|ß|漢|\U0001f600)*\d{4}-\d\d"), {}),
    "words": (Regex(r"(\w+ ){2,5}\w+[.!?]"), {}),
    "ambiguous counts": (Regex(r"(?:a|e|b|ae|eb){2,6}(?:[a-z]+ ?){0,1000}"), {}),
    "a thousand ambiguous": (Regex(r"(?:a|b|ab|é|th|t|h){1000}"), {}),
    "choice": (Choice(["yes", "yes please", "no", "nö", "😀😃", ""]), {}),
}

BY_OUTPUT = pytest.mark.parametrize("name", OUTPUTS)


def build(name: str, vocabulary: Vocabulary) -> Constraint:
    output, options = OUTPUTS[name]
    return structgen.compile(output, vocabulary, **options)


def check_mask(constraint: Constraint, cursor: Any, vocabulary: Vocabulary) -> None:
    mask = read_mask(cursor, vocabulary)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[vocabulary.size :].any(), "padding bits are set"
    want = brute_force_ids(constraint, inside.state(cursor), vocabulary)
    found = set(np.flatnonzero(bits).tolist())
    assert found == want, sorted(found ^ want)[:10]
    for token_id in vocabulary.eos_token_ids:
        assert (token_id in found) == cursor.is_accepting
    assert not found & (vocabulary.special_token_ids - set(vocabulary.eos_token_ids))


@BY_OUTPUT
def test_real_vocabularies_at_random_states(name: str, vocabulary: Vocabulary) -> None:
    constraint = build(name, vocabulary)
    rng = random.Random(name)
    # Brute force over a quarter of a million tokens takes half a second: not at every state.
    for step, cursor in enumerate(states_on_the_way(constraint, rng, 14)):
        if step in (0, 2 + len(name) % 3, 7 + len(name) % 5):
            check_mask(constraint, cursor, vocabulary)


@BY_OUTPUT
def test_the_tiny_vocabulary_at_many_states(name: str) -> None:
    constraint = build(name, TINY)
    rng = random.Random(name)
    for cursor in states_on_the_way(constraint, rng, 150):
        check_mask(constraint, cursor, TINY)


def test_the_brute_force_agrees_with_a_plain_loop() -> None:
    constraint = build("person, flexible", TINY)
    for cursor in states_on_the_way(constraint, random.Random(3), 60):
        state = inside.state(cursor)
        assert brute_force_ids(constraint, state, TINY) == naive_ids(constraint, state, TINY)


# -- the format, by hand ------------------------------------------------------------------------

A, B, AB, C, END = 0, 1, 2, 3, 4
HAND = Vocabulary.from_tokens([b"a", b"b", b"ab", b"c", b""], [END], size=40)


def test_a_mask_that_can_be_checked_by_hand() -> None:
    cursor = structgen.compile(Regex("ab?|c"), HAND).start()
    assert read_mask(cursor, HAND).tolist() == [1 << A | 1 << AB | 1 << C, 0]
    cursor.accept(A)
    assert read_mask(cursor, HAND).tolist() == [1 << B | 1 << END, 0]
    cursor.accept(B)
    assert read_mask(cursor, HAND).tolist() == [1 << END, 0]


def test_first_tokens_that_hold_part_of_a_key() -> None:
    bytes_ = [bytes([b]) for b in range(256)]
    longer = [b'{"', b'{"a', b'{"b', b'{"ab":', b'{"ab":1', b'{"ab":1}', b"{}", b"{}}"]
    plain = Vocabulary.from_tokens([*bytes_, b'{"', b"{}", b""], [258])
    vocabulary = Vocabulary.from_tokens([*bytes_, *longer, b""], [264])
    for schema, open_, close in (
        ({"properties": {"ab": {"type": "integer"}}, "additionalProperties": False}, True, True),
        ({"required": ["ab"], "properties": {"ab": {"type": "integer"}}}, True, False),
        ({"additionalProperties": False}, False, True),
    ):
        schema = {"type": "object", **schema}
        cursor = structgen.compile(JsonSchema(schema), vocabulary).start()
        texts = {vocabulary.tokens[i] for i in allowed(cursor, vocabulary)}
        wanted = {b'{"', b'{"a', b'{"ab":', b'{"ab":1', b'{"ab":1}'} if open_ else set()
        assert texts == {b"{"} | wanted | ({b"{}"} if close else set())
        cursor = structgen.compile(JsonSchema(schema), plain).start()
        texts = {plain.tokens[i] for i in allowed(cursor, plain)}
        assert texts == {b"{"} | ({b'{"'} if open_ else set()) | ({b"{}"} if close else set())
        with_budget = structgen.compile(JsonSchema(schema), plain).start(max_tokens=12)
        assert {plain.tokens[i] for i in allowed(with_budget, plain)} == texts


def test_digits_that_a_mantissa_may_have_and_a_number_may_not() -> None:
    schema = {"additionalProperties": {"type": "number"}, "propertyNames": {"maxLength": 3}}
    constraint = structgen.compile(JsonSchema(schema), TINY, max_digits=6)
    cursor = constraint.start()
    for byte in b'{"a":3.0202':
        cursor.accept(TINY.tokens.index(bytes([byte])))
    assert set(allowed(cursor)) == brute_force_ids(constraint, inside.state(cursor), TINY)


def test_ids_beyond_the_first_word() -> None:
    tokens = [b"x"] * 31 + [b"y", b"x", b"y"] + [b""] * 40 + [b"y"]
    vocabulary = Vocabulary.from_tokens(tokens, [50, 73], size=130)
    constraint = structgen.compile(Regex("y*"), vocabulary)
    mask = read_mask(constraint.start(), vocabulary)
    assert mask.shape == (5,)
    assert mask.dtype == np.uint32
    assert mask.tolist() == [1 << 31, 1 << 1 | 1 << 50 - 32, 1 << 73 - 64 | 1 << 74 - 64, 0, 0]


def test_every_id_of_one_text_is_allowed_and_special_ids_never() -> None:
    constraint = structgen.compile(Choice(["true", "a"]), TINY)
    ids = allowed(constraint.start())
    assert [i for i in ids if TINY.tokens[i] == b"true"] == [
        i for i, text in enumerate(TINY.tokens) if text == b"true"
    ]
    assert len([i for i in ids if TINY.tokens[i] == b"true"]) == 2
    assert not {SPECIAL, HOLE, EOS, EOS_TOO} & set(ids)


def test_all_end_ids_together_and_only_where_the_output_may_end() -> None:
    constraint = structgen.compile(Regex("a?"), TINY)
    cursor = constraint.start()
    assert {EOS, EOS_TOO} <= set(allowed(cursor))
    cursor = structgen.compile(Regex("a"), TINY).start()
    assert not {EOS, EOS_TOO} & set(allowed(cursor))


def test_tokens_that_cut_characters() -> None:
    # The euro sign is E2 82 AC; the tiny vocabulary has E2 82, AC and AC followed by a quote.
    constraint = structgen.compile(JsonSchema({"const": "€"}), TINY)
    cursor = constraint.start()
    cursor.accept(TINY.tokens.index(b'"'))
    texts = {TINY.tokens[i] for i in allowed(cursor)}
    assert b"\xe2\x82" in texts
    assert b"\xe2" in texts
    cursor.accept(TINY.tokens.index(b"\xe2\x82"))
    assert {TINY.tokens[i] for i in allowed(cursor)} == {b"\xac", b'\xac"'}


def test_no_output_holds_bytes_that_are_no_text() -> None:
    for output in (Regex(".*"), JsonSchema({"type": "string"})):
        constraint = structgen.compile(output, TINY)
        for seed in seeds(30):
            result = walk(constraint, random.Random(seed), max_tokens=20, end=0)
            result.data.decode()


def test_filling_twice_and_interleaved_gives_the_same() -> None:
    constraint = build("person", TINY)
    rng = random.Random(5)
    for cursor in states_on_the_way(constraint, rng, 40):
        first = read_mask(cursor)
        constraint.start().fill_mask(np.zeros(n_words(TINY), np.uint32))
        assert (read_mask(cursor) == first).all()


def test_a_callers_changes_to_a_mask_do_not_stick() -> None:
    constraint = build("any value", TINY)
    cursor = constraint.start()
    mask = read_mask(cursor)
    kept = mask.copy()
    mask[:] = 0
    assert (read_mask(cursor) == kept).all()


# -- sharing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["person, flexible", "any value", "words"])
def test_threads_see_what_one_sees(name: str) -> None:
    paths: list[list[int]] = []
    alone = build(name, TINY)
    for seed in seeds(8):
        paths.append(walk(alone, random.Random(seed), steps=60, special=0.3, end=0.1).ids)
    want = [_trace(alone, path) for path in paths]

    shared = build(name, TINY)
    found: dict[int, list[Any]] = {}
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(index: int) -> None:
        try:
            barrier.wait()
            for turn in range(len(paths)):
                at = (index + turn) % len(paths)
                found[index * 1000 + at] = _trace(shared, paths[at])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(found) == 8 * len(paths)
    for key, trace in found.items():
        assert trace == want[key % 1000]


def _trace(constraint: Constraint, ids: list[int]) -> list[Any]:
    cursor = constraint.start()
    out = [snapshot(cursor)]
    for token_id in ids:
        cursor.accept(token_id)
        out.append(snapshot(cursor))
    return out


def test_a_small_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import structgen.masks.token_masks

    vocabulary = Vocabulary.from_tokens([*TINY.tokens, b"only here"], TINY.eos_token_ids)
    constraint = build("person, flexible", vocabulary)
    paths = [walk(constraint, random.Random(s), steps=60, special=0.3).ids for s in seeds(4)]
    want = [_plain_trace(constraint, path, vocabulary) for path in paths]
    monkeypatch.setattr(structgen.masks.leaf_walks.walker_of(vocabulary).store, "budget", 20_000)
    again = build("person, flexible", vocabulary)
    assert [_plain_trace(again, path, vocabulary) for path in paths] == want


def _plain_trace(constraint: Constraint, ids: list[int], vocabulary: Vocabulary) -> list[Any]:
    cursor = constraint.start()
    out = [read_mask(cursor, vocabulary).tolist()]
    for token_id in ids:
        cursor.accept(token_id)
        out.append(read_mask(cursor, vocabulary).tolist())
    return out


def test_two_constraints_of_one_vocabulary_do_not_mix() -> None:
    first = structgen.compile(JsonSchema({"type": "string", "maxLength": 3}), TINY)
    second = structgen.compile(JsonSchema({"type": "string", "maxLength": 30}), TINY)
    for cursor_a, cursor_b in zip(
        states_on_the_way(first, random.Random(1), 60),
        states_on_the_way(second, random.Random(2), 60),
        strict=True,
    ):
        check_mask(first, cursor_a, TINY)
        check_mask(second, cursor_b, TINY)


@pytest.mark.parametrize("seed", range(40))
def test_generated_schemas_at_random_states(seed: int) -> None:
    r = random.Random(seed)
    schema = strategies.document(r)
    options = r.choice(
        [
            {},
            {"whitespace": "spaced"},
            {"whitespace": "flexible", "property_order": "any", "spelling": "any"},
        ]
    )
    try:
        constraint = structgen.compile(JsonSchema(schema), TINY, **options)
    except structgen.errors.OutputTypeError:
        return  # refused or unsatisfiable, which other tests are about
    for cursor in states_on_the_way(constraint, random.Random(r.randint(0, 999)), 12):
        check_mask(constraint, cursor, TINY)
