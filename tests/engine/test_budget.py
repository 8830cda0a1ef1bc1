"""Token budgets: whatever the budget, the output is complete; a smaller one is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import real_tokenizers
from guards import counted
from hypothesis import given
from hypothesis import strategies as st

import structgen
from engine import oracle, strategies
from engine.test_json_schema import RANDOM, compile_or_none
from engine.test_masks import BY_OUTPUT, OUTPUTS, PERSON, build
from engine.walks import TINY, allowed, examples, minimum, read_mask, seeds, walk
from structgen import BudgetTooSmall, Choice, JsonSchema, Regex, Vocabulary
from structgen.constraint import Cursor
from structgen.constraint.engine import Engine
from structgen.errors import CompileLimitExceeded, TokenNotAllowed, Unsatisfiable
from structgen.masks.reach import Reach


@BY_OUTPUT
def test_every_budget_from_the_minimum_up_gives_a_whole_output(name: str) -> None:
    constraint = build(name, TINY)
    least = minimum(constraint)
    output = OUTPUTS[name][0]
    for seed in seeds(25):
        rng = random.Random(seed)
        budget = least + seed // 2
        result = walk(constraint, rng, max_tokens=budget, special=0.3, end=0.05)
        assert result.ended
        assert len(result.ids) <= budget
        if isinstance(output, JsonSchema):
            assert oracle.is_valid(json.loads(output.text), result.text)
        constraint.output.parse(result.text)


def test_real_vocabularies_within_budgets(vocabulary: Vocabulary) -> None:
    constraint = structgen.compile(JsonSchema(PERSON), vocabulary)
    least = minimum(constraint)
    for extra in (0, 1, 4, 12):
        result = walk(constraint, random.Random(extra), max_tokens=least + extra, end=0.1)
        assert result.ended
        assert oracle.is_valid(PERSON, result.text), result.text


@given(RANDOM, st.integers(0, 1 << 30))
@examples(60)
def test_the_plan_is_kept_at_every_step(r: random.Random, seed: int) -> None:
    # min_tokens_to_finish must be true at every state: a fresh budget of exactly that many tokens,
    # spent at random, finishes. Checked by following it from states deep inside a walk.
    schema = strategies.document(r)
    try:
        constraint = compile_or_none(schema)
    except Unsatisfiable:
        return
    if constraint is None:
        return
    rng = random.Random(seed)
    free = constraint.start()
    prefix: list[int] = []
    for _ in range(rng.randint(0, 12)):
        ids = [i for i in allowed(free) if i not in TINY.eos_token_ids]
        if not ids:
            break
        prefix.append(rng.choice(ids))
        free.accept(prefix[-1])
    promised = free.min_tokens_to_finish()
    cursor = constraint.start(len(prefix) + max(promised, minimum(constraint)) + 1)
    for token_id in prefix:
        bit = read_mask(cursor)[token_id // 32] >> (token_id % 32) & 1
        if not bit:
            return  # this prefix is not affordable on its way
        cursor.accept(token_id)
    spent = 0
    limit = max(promised, minimum(constraint)) + 1
    while not cursor.is_finished:
        assert cursor.min_tokens_to_finish() <= limit - spent
        cursor.accept(rng.choice(allowed(cursor)))
        spent += 1
        assert spent <= limit
    text = b"".join(TINY.tokens[i] for i in prefix).decode(errors="replace")
    assert spent <= limit, text


@given(RANDOM)
@examples(60)
def test_the_exact_minimum_can_be_followed(r: random.Random) -> None:
    # With nothing to spare, every step lowers what is needed by at least one.
    try:
        constraint = compile_or_none(strategies.document(r))
    except Unsatisfiable:
        return
    if constraint is None:
        return
    rng = random.Random(r.randint(0, 999))
    left = minimum(constraint)
    cursor = constraint.start(left)
    while not cursor.is_finished:
        assert cursor.min_tokens_to_finish() <= left
        cursor.accept(rng.choice(allowed(cursor)))
        left -= 1
    assert left >= 0


@pytest.mark.parametrize(
    ("output", "fewest"),
    [
        (Regex("a{3}"), 4),  # no token is longer than "aaaa"
        (Regex("(abab){2}"), 3),
        (Choice(["true", "and the"]), 2),
        (JsonSchema({"type": "object"}), 2),
        (JsonSchema({"type": "array", "minItems": 2, "items": {"const": None}}), 6),
        (JsonSchema({"const": "name"}), 4),
        (JsonSchema({"type": "integer", "minimum": 100}), 3),
        (Regex(""), 1),
    ],
)
def test_small_minimums(output: Any, fewest: int) -> None:
    constraint = structgen.compile(output, TINY)
    found = minimum(constraint)
    assert found <= fewest
    with pytest.raises(BudgetTooSmall) as caught:
        constraint.start(max_tokens=found - 1)
    assert caught.value.minimum == found
    assert caught.value.budget == found - 1
    assert str(found) in str(caught.value)
    for seed in seeds(5):
        assert walk(constraint, random.Random(seed), max_tokens=found).ended


def test_the_minimum_counts_no_name_twice() -> None:
    # What is owed depends on the names written, also when they are planned before the first blank.
    schema = {
        "type": "object",
        "propertyNames": {"enum": ["", "a b", "_x1"]},
        "additionalProperties": {"type": "integer"},
        "minProperties": 3,
    }
    constraint = structgen.compile(JsonSchema(schema), TINY, whitespace="flexible")
    for seed in seeds(20):
        for budget in (minimum(constraint), minimum(constraint) + seed):
            result = walk(constraint, random.Random(seed), max_tokens=budget)
            assert result.ended
            assert oracle.is_valid(schema, result.text), result.text


@pytest.mark.parametrize(
    "schema",
    [
        # The completion of the object's first key is longer than the shortest object by a byte.
        {
            "type": "object",
            "properties": {"a": {"type": "number"}},
            "patternProperties": {"b$": {}},
            "additionalProperties": False,
            "minProperties": 3,
        },
        # What is owed depends on the key.
        {
            "type": "object",
            "patternProperties": {"b$": {}},
            "additionalProperties": False,
            "minProperties": 2,
        },
        {"type": "array", "items": {"enum": [1, 2, 30]}, "uniqueItems": True, "minItems": 3},
        {"type": ["null", "string"], "minLength": 9},
    ],
)
def test_completions_begin_with_no_blank(schema: Any) -> None:
    ascii_only = [bytes([byte]) for byte in range(0x20, 0x7F)]  # no tab, and no line feed
    vocabulary = Vocabulary.from_tokens([*ascii_only, b""], eos_token_ids=[len(ascii_only)])
    compact = structgen.compile(JsonSchema(schema), vocabulary)
    flexible = structgen.compile(JsonSchema(schema), vocabulary, whitespace="flexible")
    least = compact.start().min_tokens_to_finish()
    cursor = flexible.start()
    assert cursor.min_tokens_to_finish() == least
    cursor.accept(vocabulary.tokens.index(b" "))  # one may be written, and then no more is owed
    assert cursor.min_tokens_to_finish() == least
    for seed in seeds(5):
        result = walk(flexible, random.Random(seed), max_tokens=least + seed % 3)
        assert result.ended
        assert oracle.is_valid(schema, result.text), result.text


@pytest.mark.parametrize("budget", [0, -1])
def test_no_budget_at_all(budget: int) -> None:
    with pytest.raises(BudgetTooSmall):
        structgen.compile(Regex("a*"), TINY).start(max_tokens=budget)


def test_a_budget_only_removes_tokens_and_never_the_last() -> None:
    constraint = structgen.compile(JsonSchema(PERSON), TINY)
    least = minimum(constraint)
    for seed in seeds(10):
        rng = random.Random(seed)
        tight, free = constraint.start(least + rng.randint(0, 10)), constraint.start()
        while not tight.is_finished:
            mask = read_mask(tight)
            assert mask.any()
            assert not (mask & ~read_mask(free)).any()
            choice = rng.choice(allowed(tight))
            tight.accept(choice)
            free.accept(choice)


def test_a_large_budget_removes_nothing() -> None:
    constraint = structgen.compile(JsonSchema(PERSON), TINY)
    roomy, free = constraint.start(100_000), constraint.start()
    rng = random.Random(1)
    for _ in range(60):
        assert (read_mask(roomy) == read_mask(free)).all()
        if roomy.is_finished:
            break
        choice = rng.choice(allowed(free))
        roomy.accept(choice)
        free.accept(choice)


def test_what_a_budget_forbids_raises() -> None:
    constraint = structgen.compile(Regex("a{1,9}"), TINY)
    cursor = constraint.start(max_tokens=3)
    a = TINY.tokens.index(b"a")
    cursor.accept(a)
    cursor.accept(a)
    with pytest.raises(structgen.errors.TokenNotAllowed, match="budget"):
        cursor.accept(a)
    assert set(allowed(cursor)) == set(TINY.eos_token_ids)


def test_forced_tokens_keep_the_budget() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    for extra in range(6):
        budget = minimum(constraint) + extra
        cursor = constraint.start(budget)
        spent = 0
        rng = random.Random(extra)
        while not cursor.is_finished:
            for token_id in cursor.forced_tokens():
                cursor.accept(token_id)
                spent += 1
            cursor.accept(rng.choice(allowed(cursor)))
            spent += 1
        assert spent <= budget


# -- vocabularies that cannot spell everything ----------------------------------------------------


def lacking(*missing: int) -> Vocabulary:
    tokens = [bytes([b]) for b in range(256) if b not in missing]
    return Vocabulary.from_tokens([*tokens, b""], [len(tokens)])


def test_a_vocabulary_without_some_bytes_meets_no_dead_end() -> None:
    # No digit 1, no lead byte of two-byte characters, as real vocabularies lack some bytes.
    vocabulary = lacking(0x31, *range(0xC2, 0xE0))
    for output in (Regex("[0-9é]{2,5}"), Regex("(x1|y2|1z)+")):
        constraint = structgen.compile(output, vocabulary)
        for seed in seeds(20):
            result = walk(constraint, random.Random(seed), max_tokens=minimum(constraint) + 5)
            constraint.output.parse(result.text)
        walk(constraint, random.Random(0), steps=30)


@pytest.mark.parametrize("missing", [[*range(0xC2, 0xE0)], [0xA9], [0xF0, 0xF1, 0x04], [0x7F]])
def test_json_escapes_what_the_vocabulary_cannot_write(missing: list[int]) -> None:
    vocabulary = lacking(*missing)
    wanted = "aé😀\x7f"
    for schema in (
        {"const": wanted},
        {"type": "string", "pattern": "^[éßü😀\x7f]{2,3}$"},
        {"type": "object", "properties": {wanted: {"const": 1}}, "required": [wanted]},
        {"type": "array", "uniqueItems": True, "items": {"enum": [wanted, "é"]}, "minItems": 1},
        {"type": "object", "propertyNames": {"pattern": "^[é😀\x7f]"}, "minProperties": 2},
    ):
        for options in ({}, {"spelling": "any"}):
            constraint = structgen.compile(JsonSchema(schema), vocabulary, **options)
            for seed in seeds(5):
                budget = minimum(constraint) + 5
                result = walk(constraint, random.Random(seed), max_tokens=budget)
                constraint.output.parse(result.text)


def test_json_needs_all_of_ascii() -> None:
    with pytest.raises(structgen.errors.Unsatisfiable, match="no token for '1\\{'"):
        structgen.compile(JsonSchema({"type": "null"}), lacking(0x31, 0x7B, 0xC2, 0x04))


@pytest.mark.parametrize("output", [Regex("x1y"), Choice(["11"])])
def test_what_the_vocabulary_cannot_spell_is_refused_at_compile(output: Any) -> None:
    tokens = [bytes([b]) for b in range(256) if b != 0x31]
    vocabulary = Vocabulary.from_tokens([*tokens, b""], [len(tokens)])
    with pytest.raises(structgen.OutputTypeError):
        structgen.compile(output, vocabulary)


WITH_BUDGETS: dict[str, Any] = {
    "unique strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "unique strings owed": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 3,
        "uniqueItems": True,
    },
    "unique members": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "minItems": 2,
        "uniqueItems": True,
    },
    "unique, some contained": {
        "type": "array",
        "items": {"enum": ["a", "ab", "b", 1, 10]},
        "contains": {"type": "integer"},
        "minContains": 2,
        "uniqueItems": True,
    },
    "text": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "é": {"type": "string", "maxLength": 5}},
        "required": ["name", "é"],
    },
    "ways": {
        "anyOf": [
            {"type": "object", "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x*yy$"}}},
        ]
    },
    "patterns of which one is meant": {
        "anyOf": [
            {"type": "string", "pattern": "^x*yy$"},
            {"type": "string", "pattern": "^[^b-q]*$", "minLength": 3},
            {"type": "string", "pattern": "[x-z]+5"},
        ]
    },
    "names that count": {"type": "object", "minProperties": 3},
    "searched for": {"type": "string", "pattern": "a[^漢]*b[^漢]*c[^漢]*1"},
    "searched for, and long": {"type": "string", "pattern": "é.*b", "minLength": 12},
    "searched for among counts": {"type": "string", "pattern": "(a|b)*a(a|b){40}"},
}


@pytest.mark.parametrize("spare", [0, 1, 3, 8])
@pytest.mark.parametrize("name", WITH_BUDGETS)
def test_within_a_budget_the_mask_is_what_can_be_accepted(name: str, spare: int) -> None:
    # The mask is made from whole walks; accept asks for the plan of its one token.
    check_masks_within_budget(TINY, WITH_BUDGETS[name], spare, every=1)


@pytest.mark.parametrize(
    "name", ["unique strings", "unique strings owed", "text", "searched for among counts"]
)
def test_real_masks_within_budgets_are_what_can_be_accepted(
    name: str, vocabulary: Vocabulary
) -> None:
    check_masks_within_budget(vocabulary, WITH_BUDGETS[name], 2, every=1009)


def in_a_string(pattern: str, max_tokens: int, least: int = 0, **limits: int) -> Cursor:
    """A cursor in a string that has to match, with as many tokens for all of it."""
    schema = {"type": "string", "pattern": pattern, "minLength": least}
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(JsonSchema(schema), vocabulary, **limits)
    cursor = constraint.start(max_tokens)
    cursor.accept(vocabulary.tokens.index(b'"'))
    return cursor


@contextmanager
def tokens_read() -> Iterator[list[int]]:
    """The tokens that are read by themselves meanwhile."""
    read: list[int] = []
    advance = Engine.advance

    def counted(self: Engine, state: int, token: int, *args: Any) -> Any:
        read.append(token)
        return advance(self, state, token, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "advance", counted)
        yield read


def test_within_a_budget_not_every_token_is_read_by_itself() -> None:
    cursor = in_a_string("(a|b)*a(a|b){2500}", 630)  # one more than it takes
    with tokens_read() as read:
        n_allowed = len(allowed(cursor, cursor.vocabulary))
    assert 40_000 < n_allowed < len(cursor.vocabulary.trie.token_ids) - 100
    assert len(read) < 3_000


def test_nor_where_a_text_is_searched_for() -> None:
    cursor = in_a_string("dog.*fox", 8, least=60)  # no more than it takes
    with tokens_read() as read:
        words = read_mask(cursor, cursor.vocabulary)
    assert len(read) < 500
    check_mask(cursor, words, range(0, cursor.vocabulary.size, 101))


def test_nor_where_one_of_several_strings_may_be_open() -> None:
    """Of two objects with patterns of their own, each token leads somewhere in both strings."""
    texts = ("[x-z]+5", "^[^b-q]*$", "abc")
    objects = [
        {
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": text}},
            "required": ["x"],
            "additionalProperties": False,
        }
        for text in texts
    ]
    vocabulary = real_tokenizers.vocabulary("smollm2")
    cursor = structgen.compile(JsonSchema({"anyOf": objects}), vocabulary).start(11)
    for byte in b'{"x":"':
        cursor.accept(vocabulary.tokens.index(bytes([byte])))
    with tokens_read() as read:
        words = read_mask(cursor, vocabulary)
    assert 0 < len(read) < 4_000
    check_mask(cursor, words, range(0, vocabulary.size, 7))


def test_nor_where_a_name_that_is_taken_is_farther_from_the_end() -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    names = ["", "opa", ",", "<", ">__", "})", "[", ":__"]
    text = "{" + "".join(f'"{name}":0,' for name in names) + '"'
    token_ids = vocabulary.encode_bytes(text.encode())
    constraint = structgen.compile(JsonSchema({"type": "object", "minProperties": 16}), vocabulary)
    cursor = constraint.start(len(token_ids) + 33)
    for token_id in token_ids:
        cursor.accept(token_id)
    with tokens_read() as read:
        words = read_mask(cursor, vocabulary)
    assert 0 < len(read) < 4_000
    check_mask(cursor, words, range(0, vocabulary.size, 61))


def test_what_a_budget_asks_of_tokens_is_counted() -> None:
    # The first mask in the string takes 1,650 steps, nearly all of them for the budget.
    pattern = "(hog|sow|pig|cat|dog|ape|bee).*(cow|ant|fly|bat|elk)"
    cursor = in_a_string(pattern, 14, max_mask_work=500)
    with pytest.raises(CompileLimitExceeded, match="max_mask_work"):
        read_mask(cursor, cursor.vocabulary)


def check_mask(
    cursor: Cursor, words: Any, token_ids: Iterable[int], *, may_miss: bool = False
) -> None:
    """Look whether a mask allows those of some tokens that can be accepted."""
    for token_id in token_ids:
        bit = bool(words[token_id // 32] >> (token_id % 32) & 1)
        try:
            cursor.accept(token_id)
        except TokenNotAllowed:
            assert not bit, cursor.vocabulary.tokens[token_id]
        else:
            cursor.rollback(1)
            assert bit or may_miss, cursor.vocabulary.tokens[token_id]


def check_masks_within_budget(vocabulary: Vocabulary, schema: Any, spare: int, every: int) -> None:
    constraint = structgen.compile(JsonSchema(schema), vocabulary)
    rng = random.Random(spare)
    cursor = constraint.start(minimum(constraint) + spare)
    free = constraint.start()
    while not cursor.is_finished:
        words = read_mask(cursor, vocabulary)
        ids = allowed(free, vocabulary)
        looked_at = {*ids[:: every + rng.randrange(every)], *allowed(cursor, vocabulary)[:60]}
        # Where more unique items are owed, masks count on the worst text.
        check_mask(cursor, words, looked_at, may_miss="minItems" in schema)
        chosen = rng.choice(allowed(cursor, vocabulary))
        cursor.accept(chosen)
        free.accept(chosen)


def test_what_is_searched_for_may_be_lost_again_within_a_budget() -> None:
    # The last character can undo all that has been found: then all of it is still to come.
    letters = "acegikmoqsuwy1357"
    constraint = structgen.compile(
        JsonSchema({"type": "string", "pattern": "[^漢]*".join(letters)}), TINY
    )
    least = minimum(constraint)
    for budget in range(least, least + 16):
        cursor = constraint.start(budget)
        for char in '"' + letters[:-1]:
            cursor.accept(TINY.tokens.index(char.encode()))
        rng = random.Random(budget)
        while not cursor.is_finished:
            ids = allowed(cursor)
            lost = [i for i in ids if TINY.tokens[i] and TINY.tokens[i][0] >= 0x80]
            cursor.accept(rng.choice(lost or ids))


@pytest.mark.parametrize(
    "items",
    [
        {
            "type": "object",
            "properties": {"n": {"type": "string", "maxLength": 10}},
            "required": ["n"],
            "additionalProperties": False,
        },
        {"type": "array", "items": {"type": "string", "maxLength": 11}, "minItems": 2},
    ],
)
def test_ample_budgets_cost_nothing_where_masks_need_the_text(
    items: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True, "minItems": 2, "maxItems": 3}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    asked = counted(monkeypatch, Reach, "sort_out")
    walk(constraint, random.Random(1), max_tokens=4_000, end=0.2)
    before = len(asked)
    for seed in seeds(2):
        result = walk(constraint, random.Random(seed), max_tokens=minimum(constraint) + 3 * seed)
        assert result.ended
        assert oracle.is_valid(schema, result.text), result.text
    assert before < len(asked)
