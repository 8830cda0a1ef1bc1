"""Cursors: rollback equals replay, refusals move nothing, forced tokens, independence."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import structgen
from engine import strategies
from engine.test_json_schema import RANDOM, compile_or_none
from engine.test_masks import BY_OUTPUT, build
from engine.walks import (
    EOS,
    EOS_TOO,
    HOLE,
    SPECIAL,
    TINY,
    allowed,
    examples,
    ids_of,
    minimum,
    n_words,
    read_mask,
    replay,
    snapshot,
    states_on_the_way,
    try_accept,
    walk,
)
from structgen import Choice, JsonSchema, Regex, Vocabulary
from structgen.errors import TokenNotAllowed, Unsatisfiable


def token(text: bytes) -> int:
    return TINY.tokens.index(text)


# -- rollback -----------------------------------------------------------------------------------


@BY_OUTPUT
@pytest.mark.parametrize("budgeted", [False, True])
def test_rollback_equals_replay(name: str, budgeted: bool) -> None:
    constraint = build(name, TINY)
    rng = random.Random(name)
    budget = minimum(constraint) + 30 if budgeted else None
    for _ in range(3):
        cursor = constraint.start(budget)
        history: list[int] = []
        for _ in range(60):
            back = rng.random() < 0.25
            if back or cursor.is_finished:
                n = rng.randint(0, min(len(history), 6))
                cursor.rollback(n)
                del history[len(history) - n :]
                assert snapshot(cursor) == snapshot(replay(constraint, history, budget))
                continue
            choice = rng.choice(allowed(cursor))
            cursor.accept(choice)
            history.append(choice)
        assert snapshot(cursor) == snapshot(replay(constraint, history, budget))
        cursor.rollback(len(history))
        assert snapshot(cursor) == snapshot(constraint.start(budget))


@pytest.mark.parametrize("n", [1.5, "a", True, None])
def test_rollback_takes_whole_numbers_only(n: Any) -> None:
    cursor = structgen.compile(Choice(["a", "b"]), TINY).start()
    cursor.accept(allowed(cursor)[0])
    before = snapshot(cursor)
    with pytest.raises(TypeError, match=f"number of tokens to remove.*{n!r}"):
        cursor.rollback(n)
    assert snapshot(cursor) == before
    cursor.rollback(np.int64(1))


@given(RANDOM)
@examples(40)
def test_rollback_equals_replay_on_generated_schemas(r: random.Random) -> None:
    try:
        constraint = compile_or_none(strategies.document(r), whitespace="flexible")
    except Unsatisfiable:
        return
    if constraint is None:
        return
    rng = random.Random(r.randint(0, 999))
    ids = walk(constraint, rng, max_tokens=minimum(constraint) + 20, end=0).ids
    cursor = replay(constraint, ids)
    while ids:
        n = rng.randint(1, min(5, len(ids)))
        cursor.rollback(n)
        del ids[-n:]
        assert snapshot(cursor) == snapshot(replay(constraint, ids))


def test_rollback_over_the_end_of_the_sequence() -> None:
    cursor = structgen.compile(Choice(["ab"]), TINY).start()
    cursor.accept(token(b"ab"))
    before = snapshot(cursor)
    cursor.accept(EOS_TOO)
    assert cursor.is_finished
    cursor.rollback(1)
    assert not cursor.is_finished
    assert snapshot(cursor) == before
    cursor.accept(EOS)
    cursor.rollback(2)
    assert snapshot(cursor) == snapshot(structgen.compile(Choice(["ab"]), TINY).start())


@pytest.mark.parametrize("n", [-1, 3, 100])
def test_rollback_of_more_than_was_accepted_is_refused(n: int) -> None:
    cursor = structgen.compile(Regex("a*"), TINY).start()
    cursor.accept(token(b"a"))
    cursor.accept(token(b"a"))
    before = snapshot(cursor)
    with pytest.raises(ValueError, match="2 have been accepted"):
        cursor.rollback(n)
    assert snapshot(cursor) == before


# -- refusals -----------------------------------------------------------------------------------


@BY_OUTPUT
def test_a_forbidden_token_raises_and_moves_nothing(name: str) -> None:
    constraint = build(name, TINY)
    for cursor in states_on_the_way(constraint, random.Random(name), 12):
        before = snapshot(cursor)
        legal = set(ids_of(np.array(before["mask"], np.uint32)))
        for token_id in range(-2, TINY.size + 3):
            if token_id in legal:
                continue
            with pytest.raises(TokenNotAllowed) as caught:
                cursor.accept(token_id)
            assert caught.value.token_id == token_id
        assert snapshot(cursor) == before


@BY_OUTPUT
def test_every_allowed_token_is_accepted(name: str) -> None:
    constraint = build(name, TINY)
    for cursor in states_on_the_way(constraint, random.Random(name), 12):
        before = snapshot(cursor)
        for token_id in allowed(cursor):
            cursor.accept(token_id)
            assert cursor.is_finished == (token_id in TINY.eos_token_ids)
            cursor.rollback(1)
        assert snapshot(cursor) == before


def test_nothing_is_accepted_after_the_end() -> None:
    cursor = structgen.compile(Regex("a*"), TINY).start()
    cursor.accept(EOS)
    assert cursor.is_finished
    assert cursor.min_tokens_to_finish() == 0
    assert cursor.forced_tokens() == []
    assert not cursor.is_accepting
    assert not read_mask(cursor).any()
    for token_id in (EOS, EOS_TOO, token(b"a")):
        with pytest.raises(TokenNotAllowed, match="already ended"):
            cursor.accept(token_id)


def test_the_message_names_the_token_and_what_may_come() -> None:
    cursor = structgen.compile(Regex("[01]{2}"), TINY).start()
    with pytest.raises(TokenNotAllowed, match=r"'2'.*'01'"):
        cursor.accept(token(b"2"))
    with pytest.raises(TokenNotAllowed, match="not complete"):
        cursor.accept(EOS)
    with pytest.raises(TokenNotAllowed, match="no text"):
        cursor.accept(SPECIAL)
    with pytest.raises(TokenNotAllowed, match="no text"):
        cursor.accept(HOLE)
    with pytest.raises(TokenNotAllowed, match="does not exist"):
        cursor.accept(TINY.size)


# -- forced tokens ------------------------------------------------------------------------------


@BY_OUTPUT
def test_forced_tokens_are_acceptable_and_really_forced(name: str) -> None:
    constraint = build(name, TINY)
    for cursor in states_on_the_way(constraint, random.Random(name), 60):
        check_forced(constraint, cursor)


@given(RANDOM)
@examples(50)
def test_forced_tokens_on_generated_schemas(r: random.Random) -> None:
    try:
        constraint = compile_or_none(strategies.document(r))
    except Unsatisfiable:
        return
    if constraint is None:
        return
    for cursor in states_on_the_way(constraint, random.Random(r.randint(0, 999)), 12):
        check_forced(constraint, cursor)


def check_forced(constraint: Any, cursor: Any) -> None:
    """Forced tokens go through the masks; every other way spells the same bytes."""
    forced = cursor.forced_tokens()
    before = snapshot(cursor)
    text = b"".join(TINY.tokens[i] for i in forced)
    done = 0
    for token_id in forced:
        assert not cursor.is_accepting, "the output could have ended here"
        at = len(b"".join(TINY.tokens[i] for i in forced[:done]))
        for other in allowed(cursor):
            spelt = TINY.tokens[other]
            rest = text[at:]
            assert spelt[: len(rest)] == rest[: len(spelt)], f"{spelt!r} is allowed, not {rest!r}"
        cursor.accept(token_id)
        done += 1
    cursor.rollback(done)
    assert snapshot(cursor) == before


def test_a_constant_is_forced_to_its_end() -> None:
    schema = {"const": {"name": ["a", None, "the"], "ab": 12}}
    cursor = structgen.compile(JsonSchema(schema), TINY, whitespace="compact").start()
    forced = cursor.forced_tokens()
    text = b"".join(TINY.tokens[i] for i in forced).decode()
    # A number constant may be spelt 12 or 12.0; everything before it has one spelling.
    assert text.startswith('{"name":["a",null,"the"],"ab":')


BYTES = Vocabulary.from_tokens([*(bytes([byte]) for byte in range(256)), b""], [256])


def test_where_a_space_may_stand_it_is_a_choice_and_all_else_is_forced() -> None:
    schema = {"const": {"name": ["a", True]}}
    cursor = structgen.compile(JsonSchema(schema), BYTES).start()
    text = b""
    while not cursor.is_finished:
        forced = cursor.forced_tokens()
        text += b"".join(BYTES.tokens[i] for i in forced) + b"|"
        for token in forced:
            cursor.accept(token)
        choices = allowed(cursor, BYTES)
        assert len(choices) == (1 if cursor.is_accepting else 2)
        cursor.accept(choices[0])  # the space
    assert text == b'{"name":|["a",|true]}|'


def test_a_constant_outside_ascii_may_be_escaped_and_is_not_forced() -> None:
    cursor = structgen.compile(JsonSchema({"const": "é"}), TINY).start()
    assert b"".join(TINY.tokens[i] for i in cursor.forced_tokens()) in (b"", b'"')


def test_what_is_not_forced() -> None:
    assert structgen.compile(Regex("a|b"), TINY).start().forced_tokens() == []
    assert structgen.compile(Regex("a?"), TINY).start().forced_tokens() == []
    cursor = structgen.compile(Regex("ab"), TINY).start()
    assert b"".join(TINY.tokens[i] for i in cursor.forced_tokens()) == b"ab"


def test_no_forced_token_where_a_longer_one_could_reach_beyond() -> None:
    # After "a", "b" follows, or "bc": the token "ab" must not be chosen over "abc".
    tokens = [b"a", b"b", b"c", b"ab", b"abc", b""]
    vocabulary = Vocabulary.from_tokens(tokens, [5])
    cursor = structgen.compile(Regex("ab[cb]"), vocabulary).start()
    assert cursor.forced_tokens() == []
    cursor = structgen.compile(Regex("abb"), vocabulary).start()
    assert b"".join(tokens[i] for i in cursor.forced_tokens()) == b"abb"


# -- independence -------------------------------------------------------------------------------


def test_cursors_do_not_disturb_each_other() -> None:
    constraint = build("person", TINY)
    paths = [walk(constraint, random.Random(s), steps=40, special=0.3).ids for s in range(6)]
    cursors = [constraint.start() for _ in paths]
    for step in range(max(map(len, paths))):
        for cursor, path in zip(cursors, paths, strict=True):
            if step < len(path):
                cursor.accept(path[step])
    for cursor, path in zip(cursors, paths, strict=True):
        assert snapshot(cursor) == snapshot(replay(build("person", TINY), path))


def test_the_order_of_questions_does_not_matter() -> None:
    path = walk(build("person", TINY), random.Random(1), steps=40, special=0.3).ids
    eager = [snapshot(replay(build("person", TINY), path[:n])) for n in range(len(path) + 1)]
    lazy = build("person", TINY)
    for n in reversed(range(len(path) + 1)):
        assert snapshot(replay(lazy, path[:n])) == eager[n]


def test_a_schema_changed_afterwards_changes_nothing() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
    constraint = structgen.compile(JsonSchema(schema), TINY)
    before = snapshot(constraint.start())
    schema["properties"]["a"]["enum"].append(3)
    schema["properties"]["b"] = {}
    schema["required"] = ["zzz"]
    assert snapshot(constraint.start()) == before
    cursor = constraint.start()
    for byte in b'{"a":':
        cursor.accept(TINY.tokens.index(bytes([byte])))
    assert not try_accept(cursor, token(b"3"))


def test_fill_mask_writes_into_any_array_of_as_many_words() -> None:
    cursor = build("person", TINY).start()
    n = n_words(TINY)
    table = np.zeros((3, n), np.uint32)
    spread = np.zeros(2 * n, np.uint32)
    outs = [table[0], table[1], spread[::2], np.zeros(n, np.int32), np.zeros(n, "<u4"), table[2]]
    expected = np.zeros(n, np.uint32)
    for byte in b'{"name":"a"':
        for out in outs:
            out[:] = 0xFFFF
            for _ in range(2):  # computed, and remembered
                cursor.fill_mask(out)
        cursor.fill_mask(expected)
        assert expected.any()
        for out in outs:
            assert np.array_equal(out.view(np.uint32), expected)
        assert not spread[1::2].any()
        cursor.accept(token(bytes([byte])))
    for other in ([0] * n, bytearray(4 * n), None):
        with pytest.raises(ValueError, match=rf"NumPy array of uint32 \[{n}\], got "):
            cursor.fill_mask(other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one bit per token"):
        cursor.fill_mask(np.zeros(TINY.size, bool))  # type: ignore[arg-type]
    for dtype in (float, np.float32, np.int64, np.uint8, ">u4"):  # the bits would be other tokens
        with pytest.raises(ValueError, match=rf"uint32, .*; got {np.dtype(dtype)}\."):
            cursor.fill_mask(np.zeros(n, dtype))  # type: ignore[arg-type]
    for wrong in (np.zeros(n - 1, np.uint32), np.zeros(n + 1, np.uint32), table):
        with pytest.raises(ValueError, match=rf"uint32 \[{n}\].*size="):
            cursor.fill_mask(wrong)


def test_fill_mask_needs_no_cleared_array() -> None:
    cursor = build("person", TINY).start()
    zeros = np.zeros(n_words(TINY), np.uint32)
    cursor.fill_mask(zeros)
    assert (zeros == read_mask(cursor)).all()


def test_constraints_are_copied_by_reference_and_not_pickled() -> None:
    constraint = build("person", TINY)
    assert copy.deepcopy({"c": constraint})["c"] is copy.copy(constraint) is constraint
    with pytest.raises(TypeError, match="compile it again"):
        pickle.dumps(constraint)
    with pytest.raises(TypeError, match="as a str, got bytes"):
        constraint.allows(b"{}")  # type: ignore[arg-type]


def test_punctuation_is_begun_as_the_tokenizer_would_whatever_follows() -> None:
    pieces = [b'":', b':"', b'":"', b' "']
    tokens = [*(bytes([byte]) for byte in range(256)), *pieces, b""]
    vocabulary = Vocabulary.from_tokens(tokens, [len(tokens) - 1])
    cursor = structgen.compile(JsonSchema({"const": {"a": "x"}}), vocabulary).start()
    forced, needless = cursor.forced()
    assert b"".join(tokens[i] for i in forced) == b'{"a'
    assert needless == {ord('"')}  # the colon with a quote could come after it
    for token in forced:
        cursor.accept(token)
    left = {tokens[i] for i in allowed(cursor, vocabulary) if i not in needless}
    assert left == {b'":', b'":"'}


@pytest.mark.parametrize("token_id", [True, False, 1.0, "a", None])
def test_a_token_is_a_whole_number(token_id: Any) -> None:
    cursor = structgen.compile(JsonSchema({}), TINY).start()
    with pytest.raises(TypeError, match="takes a token id"):
        cursor.accept(token_id)
    cursor.accept(np.int64(next(i for i, text in enumerate(TINY.tokens) if text == b"1")))
