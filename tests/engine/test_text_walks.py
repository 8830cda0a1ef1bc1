"""Walks of text against the machine itself: every token of a real vocabulary, byte by byte."""

from __future__ import annotations

import random
from typing import Any

import inside
import numpy as np
import pytest
import real_tokenizers

import structgen
from engine.walks import brute_force_ids
from structgen import JsonSchema, Regex
from structgen.constraint.constraint import Constraint
from structgen.constraint.cursor import Cursor
from structgen.masks.reach import Reach
from structgen.masks.token_masks import MaskEngine

PATTERNS = [
    r"^[a-z][a-z0-9_]*$",
    r"^[A-Z][a-z]+(?: [A-Z][a-z]+){0,3}$",
    r"^(?:\S+\s+){0,5}\S+$",
    r"[0-9a-f]{8}-[0-9a-f]{4}",
    r"foo|bar$|^baz",
    r"^[^,;]{2,9}[,;]$",
    r"^.{3,7}$",
    r"^\d{1,4}(?:\.\d+)?$",
    r"^[à-ÿ]{0,3}[一-龥]+$",
    r"^[^\x00-\x7f]{1,4}$",
    r"^(?:[\u{1F600}-\u{1F64F}]|é){2,5}$",
    r"^\\[a-z\"\\]+$",
    r"^[ -~]{0,12}$",
    r"\s$",
    r"^(?!.*--)[a-z-]{1,20}$",
    r"^(?:ab|a|b){3,6}c?$",
    r"^(?:https?://)?[-.0-9a-z]+\.[.a-z]{2,6}[ -9A-Z_a-z]*/?$",
    r"^[a-z](?:[-a-z]{0,5}[a-z])?(?:\.[a-z](?:[-a-z]{0,9}[a-z])?){0,3}$",
    r"^(?:[ab]{0,3}\d|[a-z\d])*[a-z\d]*(?:é|[a-z]{2})?$",
]
SCHEMAS: list[dict[str, Any]] = [
    *({"type": "string", "pattern": p} for p in PATTERNS),
    *({"type": "string", "pattern": p, "maxLength": 6} for p in PATTERNS[:3] + PATTERNS[4:7]),
    {"type": "string"},
    {"type": "string", "minLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "b", "minLength": 2},
    {"type": "string", "pattern": r"\d+-[0-9a-f]{4}", "minLength": 12},
    {"type": "string", "pattern": r"^a|[bt]{2}$", "minLength": 6},
    {"type": "string", "pattern": "x$", "minLength": 9, "maxLength": 9},
    {"type": "string", "pattern": r"\d\w", "minLength": 1, "maxLength": 9},
    {"type": "string", "pattern": "é$", "minLength": 4},
    {"type": "string", "pattern": r"^(?:\S+\s+){0,40}\S+$", "maxLength": 400},
    {"type": "string", "pattern": r"^([a-z]{2}-){0,99}[a-z]{1,50}$", "minLength": 1},
    {"type": "string", "not": {"enum": ["a", "ab", "the", "\\"]}},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "uri", "maxLength": 70},
    {"type": "string", "format": "date-time"},
    {"properties": {"name": {}, "na": {"type": "null"}, 'né"\\': {"type": "string"}, "": {}}},
    {"additionalProperties": {"type": "integer"}, "properties": {"a": False, "b\n": {}}},
    {
        "patternProperties": {"^x": {"type": "null"}, "[0-9]$": False},
        "propertyNames": {"maxLength": 5},
    },
    {"patternProperties": {"^[a-z_]{1,40}$": {"type": "null"}}, "additionalProperties": False},
    {"patternProperties": {"^[a-z ]{2,300}$": {}}, "properties": {"ab": {"type": "null"}}},
    {
        "patternProperties": {"^(/\\S*)?$": {"type": "null"}, "\\d": {"type": "integer"}},
        "properties": {"/": {"const": 7}, "name": {}, "na": {"type": "array"}, "a\\": {}},
    },
    {"propertyNames": {"pattern": "^[a-z]{2,9}$"}, "required": ["the"]},
    {"additionalProperties": False, "patternProperties": {"^x?[0-9]+$": {"const": 1}}},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"ensure_ascii": True},
    {"spelling": "any", "ensure_ascii": True},
    {"property_order": "any"},
    {"property_order": "any", "spelling": "any", "whitespace": "flexible"},
]


def masked(cursor: Cursor, size: int) -> set[int]:
    mask = np.zeros((size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def check_walk(constraint: Constraint, rng: random.Random, steps: int, checks: float) -> None:
    cursor = constraint.start()
    ends = set(constraint.vocabulary.eos_token_ids)
    lengths = list(map(len, constraint.vocabulary.tokens))
    for _ in range(steps):
        allowed = masked(cursor, constraint.vocabulary.size)
        if rng.random() < checks:
            assert allowed == brute_force_ids(
                constraint, inside.state(cursor), constraint.vocabulary
            )
        going_on = sorted(allowed - ends)
        if not going_on:
            return
        # Short tokens half of the time: they leave a text where long ones cannot follow.
        token = rng.choice(going_on)
        if rng.random() < 0.5:
            token = min(rng.sample(going_on, min(8, len(going_on))), key=lengths.__getitem__)
        cursor.accept(token)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: next(iter(o), "default"))
def test_text_in_json(options: dict[str, Any]) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    rng = random.Random(5)
    for schema in SCHEMAS if not options else rng.sample(SCHEMAS, 8):
        constraint = structgen.compile(JsonSchema(schema), vocabulary, **options)
        check_walk(constraint, rng, steps=10, checks=0.3)


def test_plain_text() -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    rng = random.Random(6)
    for pattern in (
        r"[a-z]+(?: [a-z]+)*",
        r"\w{2,9}",
        r"(?s:.){3,}",
        r"[^\n]{0,40}\n",
        r"[\"\\a-f]*",
    ):
        constraint = structgen.compile(Regex(pattern), vocabulary)
        check_walk(constraint, rng, steps=6, checks=0.4)


def test_a_budget_sees_characters_cut_inside_a_run() -> None:
    tokens = [*(bytes([b]) for b in range(256)), b"a\xc3", b"aa\xc3", b"aaa", b"aaaa", b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    schema = {
        "type": "string",
        "pattern": "^([a-w]*|[a-w]+éx{50})$",
        "not": {"pattern": "^[a-w]{3,}é"},
    }
    cursor = structgen.compile(JsonSchema(schema), vocabulary).start(max_tokens=12)
    cursor.accept(ord('"'))
    for token in masked(cursor, vocabulary.size):
        cursor.accept(token)
        cursor.rollback(1)
    assert tokens.index(b"a\xc3") not in masked(cursor, vocabulary.size)


def test_the_longest_token_there_may_be() -> None:
    tokens = [*(bytes([b]) for b in range(256)), b"a" * 65_535, b"a\x00b", b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    cursor = structgen.compile(Regex("[a-z]*"), vocabulary).start()
    assert masked(cursor, vocabulary.size) == {*range(ord("a"), ord("z") + 1), 256, 258}


FAR = [
    r"^(?:\S+\s+){0,6}\S+$",
    r"^(?:a+b+c?){2,9}$",
    r"^(?:(?:a|bb){0,7}c){0,5}$",
    r"^a{0,11}(?:b|é){3,12}$",
    r"^(?:ab{0,8}){0,4}(?:ccc)?$",
    r"^(?:a*b){1,5}c{3}$",
]


@pytest.mark.parametrize("pattern", FAR)
def test_counters_too_far_away_to_matter_are_told_from_those_that_are_not(pattern: str) -> None:
    texts = [
        *(bytes([b]) for b in range(256)),
        b"aba",
        b"ab",
        b"a b",
        b" a ",
        b"bc",
        b'cb"',
        b"\xc3",
    ]
    vocabulary = structgen.Vocabulary.from_tokens([*texts, b""], eos_token_ids=[len(texts)])
    letters = [
        vocabulary.tokens.index(t) for t in (b"a", b"b", b"c", b" ", b"aba", b"\xc3", b"\xa9")
    ]
    rng = random.Random(9)
    alike = 0
    for most in (None, 5, 9, 14, 30, 60):
        schema = {"type": "string", "pattern": pattern}
        constraint = structgen.compile(
            JsonSchema(schema if most is None else {**schema, "maxLength": most}), vocabulary
        )
        engine = inside.masks(constraint)
        assert isinstance(engine, MaskEngine)
        for _ in range(4):
            cursor = constraint.start()
            cursor.accept(ord('"'))
            for _ in range(20):
                allowed = masked(cursor, vocabulary.size)
                assert allowed == brute_force_ids(constraint, inside.state(cursor), vocabulary)
                if engine.configurations(inside.state(cursor)) != inside.machine(
                    constraint
                ).configurations(inside.state(cursor)):
                    alike += 1
                # No token leads further from the end than the engine says.
                reach = Reach(engine).most(inside.state(cursor))
                for token in allowed:
                    to = inside.engine(constraint).advance(
                        inside.state(cursor), token, inside.text_history(cursor)
                    )
                    assert (
                        inside.engine(constraint).plan(to, inside.text_history(cursor)).size
                        <= reach
                    )
                going_on = [token for token in letters if token in allowed]
                if not going_on:
                    break
                cursor.accept(rng.choice(going_on))
    assert alike > 20


RUNS = [
    (r"^.*$", 0, 90),
    (r"^.*$", 7, 40),
    (r"^.*$", 0, 12),
    (r"^.*$", 3, 3),
    (r"^[-a-z]{0,61}$", 0, None),
    (r"^[-a-zé]{2,60}$", 0, 13),
    (r"^[a-zé]+$", 0, None),
    (r"^[^a]{0,8}$", 1, None),
    (r"^[é-ÿ]{1,2}$", 0, None),
]


@pytest.mark.parametrize("size", ["few", "many"])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=lambda o: next(iter(o), "default"))
def test_texts_that_are_one_run(options: dict[str, Any], size: str) -> None:
    texts = ["-" * n for n in (2, 3, 12, 13, 14, 40, 59, 60, 61, 62, 89, 91)] + ["é" * 6, "aé"]
    if size == "many":  # more than are listed one by one
        texts += [
            a + b for a in "bcdefghijklmnopqrstuvwxyz- " for b in "abcdefghijklmnopqrstuvwxyz"
        ]
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in texts]
    tokens += [text.encode() + end for text in texts[:16] for end in (b'"', b'",', b"\xc3", b"\\")]
    vocabulary = structgen.Vocabulary.from_tokens([*tokens, b""], eos_token_ids=[len(tokens)])
    rng = random.Random(14)
    some = [tokens.index(text.encode()) for text in texts[:10]] + [*b"ab-"]
    for pattern, least, most in RUNS:
        schema: dict[str, Any] = {"type": "string", "pattern": pattern, "minLength": least}
        if most is not None:
            schema["maxLength"] = most
        constraint = structgen.compile(JsonSchema(schema), vocabulary, **options)
        engine = inside.masks(constraint)
        assert isinstance(engine, MaskEngine)
        for has_budget in (False, False, True):
            cursor = constraint.start()
            cursor.accept(ord('"'))
            for _ in range(8):
                allowed = masked(cursor, vocabulary.size)
                assert allowed == brute_force_ids(constraint, inside.state(cursor), vocabulary)
                allowed.discard(len(tokens))
                if has_budget:
                    # No token leads further from the end than the engine says.
                    reach = Reach(engine).most(inside.state(cursor))
                    for token in allowed:
                        to = inside.engine(constraint).advance(
                            inside.state(cursor), token, inside.text_history(cursor)
                        )
                        assert (
                            inside.engine(constraint).plan(to, inside.text_history(cursor)).size
                            <= reach
                        )
                going_on = [token for token in some if token in allowed] or sorted(allowed)
                if not going_on:
                    break
                cursor.accept(rng.choice(going_on))


COUNTED = [
    r"^(?:[a-z]{1,30}-){0,9}[a-z]{0,40}$",
    r"^[-=a-z]{2,60}@[-a-z.]{1,63}(?:\.[-a]{1,20}){0,3}$",
    r"^(?:[a-z-]{1,12}é?){0,7}x$",
    r"^(?=.{0,50}$)[a-z]+(?:-+[a-z]*){0,20}é{0,3}$",
    r"^-{5,70}(?:=|a{3,40}-?)$",
]


@pytest.mark.parametrize("form", ["string", "key", "plain"])
def test_counters_and_long_tokens(form: str) -> None:
    """Short tokens cannot tell a counter's states apart, long ones can, and quotes in them."""
    texts = ["-" * n for n in (1, 2, 3, 5, 9, 14, 20, 33, 59, 60, 61, 70, 71)]
    texts += ["a" * n for n in (2, 4, 7, 12, 13, 30, 31, 39, 40, 41)]
    texts += ["ab-" * n for n in (1, 2, 5, 9, 10, 20)] + ["a" * 11 + "é", "a-" * 8 + "é" * 3 + "x"]
    texts += [text + "@" + text for text in texts[3:20:4]] + ["é", "x", "=", "a.a", "." + "-" * 19]
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in texts]
    tokens += [text.encode() + end for text in texts for end in (b'"', b'":', b"\xc3")]
    tokens = [*dict.fromkeys(tokens), b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    rng = random.Random(11)
    for pattern in COUNTED:
        kind: Any = JsonSchema({"type": "string", "pattern": pattern, "maxLength": 90})
        if form == "key":
            keys = {"patternProperties": {pattern: {}}, "additionalProperties": False}
            kind = JsonSchema({"type": "object", **keys})
        elif form == "plain":
            kind = Regex(pattern)
        constraint = structgen.compile(kind, vocabulary)
        for _ in range(6):
            check_walk(constraint, rng, steps=25, checks=0.5)


@pytest.mark.parametrize("order", ["schema", "any"])
def test_keys_that_may_be_anything_are_told_apart(order: Any) -> None:
    """Every text may be a key, but what its value may be, and how long, depends on patterns."""
    texts = [
        "a1",
        "/x",
        "name",
        "na",
        '":',
        'a":',
        '1":',
        '/":',
        'me":[',
        '",',
        "0]",
        '":[0,0',
        '{"',
    ]
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in texts] + [b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    schema = {
        "type": "object",
        "patternProperties": {
            r"^/\S*$": {"type": "array", "items": {"const": 0}, "minItems": 9, "maxItems": 9},
            r"\d$": {"maxItems": 9, "not": {"type": "null"}},
        },
        "properties": {"name": {"const": [0, 0, 0]}, "na": {"type": "null"}, "a1": {"const": 1}},
        "additionalProperties": {"const": "ab"},
        "required": ["na"],
    }
    constraint = structgen.compile(JsonSchema(schema), vocabulary, property_order=order)
    engine = inside.masks(constraint)
    assert isinstance(engine, MaskEngine)
    rng = random.Random(17)
    for _ in range(12):
        cursor = constraint.start()
        for _ in range(14):
            allowed = masked(cursor, vocabulary.size)
            assert allowed == brute_force_ids(constraint, inside.state(cursor), vocabulary)
            reach = Reach(engine).most(inside.state(cursor))
            allowed -= set(vocabulary.eos_token_ids)
            for token in allowed:
                to = inside.engine(constraint).advance(
                    inside.state(cursor), token, inside.text_history(cursor)
                )
                assert inside.engine(constraint).plan(to, inside.text_history(cursor)).size <= reach
            if not allowed:
                break
            likely = [token for token in allowed if token > 255 or token in b'{"/:,an1']
            cursor.accept(rng.choice(sorted(likely or allowed)))


REMAINDERS = [
    r"(?:[0-9a-f]{2,9}-?)*x?",
    r"[^,]{3,60}(?:,[^,]{0,40}é)?",
    r"(?:\S+\s+){0,30}\S+",
    r"(?:[a-m]+|[n-z]+)\.(?:txt|md)",
]


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_strings_of_which_the_same_is_left_share_a_walk(remainder: str) -> None:
    shared = real_tokenizers.vocabulary("smollm2")
    alone = structgen.Vocabulary.from_tokens(shared.tokens, eos_token_ids=shared.eos_token_ids)

    def after(beginning: str, text: bytes, vocabulary: structgen.Vocabulary) -> Cursor:
        schema = {"type": "string", "pattern": f"^{beginning}{remainder}$", "maxLength": 70}
        cursor = structgen.compile(JsonSchema(schema), vocabulary).start()
        for byte in b'"' + text:
            cursor.accept(vocabulary.tokens.index(bytes([byte])))
        return cursor

    def walk(cursor: Cursor) -> tuple[bytes | None, set[int], int]:
        """What is left to be read, its mask, and the most bytes that end a token's way."""
        engine = inside.engine(cursor).masks
        assert isinstance(engine, MaskEngine)
        ((leaf_id, q, _),) = engine.configurations(inside.state(cursor))
        leaf = engine.machine.leaves[leaf_id]
        state = leaf.text_state(q)
        assert state is not None
        content = inside.walker(engine).texts.of(leaf).content(state)
        found = masked(cursor, inside.engine(cursor).vocabulary.size)
        return content, found, Reach(engine).most(inside.state(cursor))

    first = walk(after("a", b"a", shared))
    cursor = after("(?:kl|b)", b"b", shared)
    second = walk(cursor)
    assert first == second == walk(after("(?:kl|b)", b"b", alone))
    assert first[0] is not None
    assert second[1] == brute_force_ids(cursor, inside.state(cursor), shared)
    # Something else is left one character later, or of a shorter text.
    assert walk(after("a", b"aa", shared))[0] != first[0]


NUMBERS: list[dict[str, Any]] = [
    {"type": "number"},
    {"type": "integer"},
    {"type": "integer", "minimum": 17},
    {"type": "integer", "minimum": -40, "maximum": 65_535},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 12.375},
    {"type": "number", "multipleOf": 0.01, "minimum": 100},
    {"type": "number", "not": {"type": "integer"}},
    {"type": "integer", "multipleOf": 7},
    {"type": "number", "not": {"enum": [0, 5, 123456]}},
]


@pytest.mark.parametrize("spelling", ["canonical", "any"])
@pytest.mark.parametrize("digits", ["all", "some", "long", "twice"])
def test_numbers_whose_digits_only_are_counted(spelling: Any, digits: str) -> None:
    numbers = [f"{i:0{n}}" for n in (1, 2, 3) for i in range(10**n)]
    if digits == "some":
        numbers = [number for number in numbers if int(number) % 7 or number in ("7", "21")]
    texts = ["0.", ".5", ".00", "-1", "1,", "12]", "7.25", "e1", "E-", "-0", "1e", "]]"]
    texts += ["000000"] if digits == "long" else []
    tokens = [*(bytes([byte]) for byte in range(256)), *(t.encode() for t in numbers + texts)]
    tokens = [*dict.fromkeys(tokens), *([b"12", b"700"] if digits == "twice" else []), b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    rng = random.Random(13)
    alike = 0
    for schema in NUMBERS if digits == "long" else NUMBERS[2:6]:
        kind = JsonSchema({"type": "array", "items": schema})
        constraint = structgen.compile(kind, vocabulary, spelling=spelling, max_digits=11)
        engine, machine = inside.masks(constraint), inside.machine(constraint)
        assert isinstance(engine, MaskEngine)
        for _ in range(6):
            cursor = constraint.start()
            cursor.accept(ord("["))
            for _ in range(14):
                allowed = masked(cursor, vocabulary.size)
                state = inside.state(cursor)
                assert allowed == brute_force_ids(constraint, state, vocabulary)
                alike += engine.configurations(state) != machine.configurations(state)
                reach = Reach(engine).most(state)
                allowed.discard(len(tokens) - 1)
                if not allowed:
                    break
                for token in rng.sample(sorted(allowed), min(len(allowed), 40)):
                    to = inside.engine(constraint).advance(
                        state, token, inside.text_history(cursor)
                    )
                    assert (
                        inside.engine(constraint).plan(to, inside.text_history(cursor)).size
                        <= reach
                    )
                longer = [t for t in sorted(allowed) if tokens[t].isdigit()]
                some = longer if longer and rng.random() < 0.8 else sorted(allowed)
                cursor.accept(rng.choice(some))
    assert alike > 20 or spelling == "any" or digits != "long"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "not": {"pattern": "K[À-ÿ]|Kx€"}}, '"aKbKx'),
        ({"type": "string", "not": {"pattern": "Kq|qK|Kg$"}}, '"aKgbq'),
        (
            {
                "patternProperties": {"Normal|Flying|Fl$|ié": {"type": "null"}},
                "required": ["Normal", "Flying"],
                "additionalProperties": False,
            },
            '{"FlyNoF',
        ),
    ],
)
def test_states_that_differ_by_few_characters(schema: dict[str, Any], text: str) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(JsonSchema(schema), vocabulary, property_order="any")
    cursor = constraint.start()
    tokens = {token: number for number, token in enumerate(vocabulary.tokens)}
    for byte in text.encode():
        cursor.accept(tokens[bytes([byte])])
        assert masked(cursor, vocabulary.size) == brute_force_ids(
            constraint, inside.state(cursor), vocabulary
        )
