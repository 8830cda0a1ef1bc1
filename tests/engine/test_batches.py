"""Masks of several cursors at once, and along drafts: rows equal single masks, cursors stay."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import structgen
from engine.test_masks import BY_OUTPUT, PERSON, build
from engine.walks import (
    EOS,
    TINY,
    Bits,
    allowed,
    ids_of,
    minimum,
    n_words,
    read_mask,
    snapshot,
    states_on_the_way,
    try_accept,
)
from structgen import BatchError, Choice, Cursor, JsonSchema, OptionError, Regex, Vocabulary
from structgen.errors import CompileLimitExceeded, VocabularyError

WORDS = n_words(TINY)


def some_cursors(rng: random.Random, count: int) -> list[Cursor]:
    """Cursors of several types in various places, some with a budget, some finished."""
    constraints = [
        structgen.compile(JsonSchema(PERSON), TINY),
        structgen.compile(Regex("[a-c]{2,5}"), TINY),
        structgen.compile(Choice(["yes", "no", "yesterday"]), TINY),
        structgen.compile(JsonSchema({"type": "array", "uniqueItems": True}), TINY),
    ]
    made = []
    for _ in range(count):
        constraint = rng.choice(constraints)
        cursor = constraint.start(rng.choice([None, minimum(constraint) + 2]))
        for _ in range(rng.randint(0, 8)):
            if cursor.is_finished:
                break
            cursor.accept(rng.choice(allowed(cursor)))
        made.append(cursor)
    return made


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("scattered", [False, True])
def test_each_row_is_the_mask_of_its_cursor(dtype: Any, scattered: bool) -> None:
    rng = random.Random(3)
    for _ in range(10):
        cursors = some_cursors(rng, 7)
        wide = np.full((7, 2 * WORDS if scattered else WORDS), -1, np.int32).view(dtype)
        out = wide[:, ::2] if scattered else wide
        structgen.fill_masks(cursors, out)
        for row, cursor in zip(out, cursors, strict=True):
            assert row.view(np.uint32).tolist() == read_mask(cursor).tolist()
            assert bool(row.any()) == (not cursor.is_finished)
        if scattered:
            assert (wide[:, 1::2].view(np.int32) == -1).all()


def test_rows_without_a_cursor_allow_everything() -> None:
    (cursor,) = some_cursors(random.Random(1), 1)
    out = np.zeros((3, WORDS), np.int32)
    structgen.fill_masks([None, cursor, None], out)
    assert (out[0] == -1).all()
    assert (out[2] == -1).all()
    assert (out[1].view(np.uint32) == read_mask(cursor)).all()
    structgen.fill_masks([None], out[:1])
    structgen.fill_masks([], out[:0])


def test_a_cursor_may_stand_in_two_rows_and_goes_on_as_before() -> None:
    constraint = structgen.compile(Regex("[a-c]{2,5}"), TINY)
    cursor, other = constraint.start(9), constraint.start()
    before = snapshot(cursor)
    out = np.zeros((3, WORDS), np.uint32)
    constraint.fill_masks([cursor, other, cursor], out, threads=2)
    assert (out[0] == out[2]).all()
    assert snapshot(cursor) == before


def test_wrong_arrays_are_told() -> None:
    constraint = structgen.compile(bool, TINY)
    cursors = [constraint.start(), constraint.start()]
    for out in (
        np.zeros((2, WORDS + 1), np.int32),
        np.zeros((3, WORDS), np.int32),
        np.zeros(2 * WORDS, np.int32),
        np.zeros((2, WORDS), np.int64),
        np.zeros((2, WORDS), np.float32),
        np.zeros((2, WORDS), ">i4"),
    ):
        with pytest.raises(ValueError, match=rf"int32 or uint32 \[2, {WORDS}\], got "):
            constraint.fill_masks(cursors, out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"NumPy array of int32 or uint32 .* got list"):
        constraint.fill_masks(cursors, [[0]])  # type: ignore[arg-type]
    fixed = np.zeros((2, WORDS), np.int32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        constraint.fill_masks(cursors, fixed)


def test_cursors_of_others_are_told() -> None:
    one, two = (structgen.compile(Choice(words), TINY) for words in (["a", "b"], ["c", "d"]))
    narrow = Vocabulary.from_tokens([b"a", b"b", b""], [2])
    out = np.zeros((2, WORDS), np.int32)
    with pytest.raises(ValueError, match=r"row 1 belongs to another constraint than .*fill_masks"):
        one.fill_masks([one.start(), two.start()], out)
    structgen.fill_masks([one.start(), two.start()], out)
    other = structgen.compile(Choice(["a", "b"]), narrow).start()
    with pytest.raises(VocabularyError, match=r"row 0 has .*row 1 has"):
        structgen.fill_masks([one.start(), other], out)
    with pytest.raises(TypeError, match="got Constraint for row 1"):
        structgen.fill_masks([one.start(), one], out)  # type: ignore[list-item]
    for threads in (0, True, 1.5, "2"):
        with pytest.raises(OptionError, match="threads"):
            structgen.fill_masks([], out[:0], threads=threads)  # type: ignore[arg-type]


def test_a_row_over_its_limits_leaves_the_others_whole() -> None:
    fine = structgen.compile(JsonSchema(PERSON), TINY)
    parts = [{"properties": {f"p{i}": {"multipleOf": 2 * i + 3}}} for i in range(60)]
    hostile = structgen.compile(JsonSchema({"anyOf": parts}), TINY)
    cursor, out = hostile.start(), np.full((3, WORDS), -1, np.int32)
    limited = structgen.compile(JsonSchema({"anyOf": parts}), TINY, max_work=1_000_000)
    assert limited.start()
    cursors = [fine.start(), cursor, fine.start()]
    refusal = CompileLimitExceeded("too much", limit=1, actual=2)

    def refuse(*_: object) -> None:
        raise refusal

    class Refusing(Cursor):
        __slots__ = ()
        fill_row = refuse

    cursors[1] = Refusing.__new__(Refusing)
    for name in Cursor.__slots__:
        setattr(cursors[1], name, getattr(cursor, name))
    with pytest.raises(
        BatchError, match="1 of 3 masks could not be computed; row 1: too much"
    ) as told:
        structgen.fill_masks(cursors, out)
    assert told.value.errors == {1: refusal}
    assert not out[1].any()
    for row in (0, 2):
        assert (out[row].view(np.uint32) == read_mask(cursors[row])).all()


# -- drafts -------------------------------------------------------------------------------------


def by_hand(cursor: Cursor, tokens: list[int], parents: list[int]) -> tuple[list[Bits], list[bool]]:
    """The masks along a draft, each from the beginning: accept the way, look, take it back."""
    rows, valid = [read_mask(cursor)], []
    for i in range(len(tokens)):
        way = [i]
        while parents[way[0]] >= 0:
            way.insert(0, parents[way[0]])
        taken = 0
        for node in way:
            if not try_accept(cursor, tokens[node]):
                break
            taken += 1
        whole = taken == len(way)
        valid.append(whole)
        rows.append(read_mask(cursor) if whole else np.zeros(WORDS, np.uint32))
        cursor.rollback(taken)
    return rows, valid


@BY_OUTPUT
@pytest.mark.parametrize("budgeted", [False, True])
def test_masks_along_a_tree_are_those_of_its_ways(name: str, budgeted: bool) -> None:
    constraint = build(name, TINY)
    rng = random.Random(name)
    budget = minimum(constraint) + 12 if budgeted else None
    for _ in range(4):
        cursor = constraint.start(budget)
        for _ in range(rng.randint(0, 6)):
            if not cursor.is_finished:
                cursor.accept(rng.choice(allowed(cursor)))
        n = rng.randint(0, 9)
        parents = [rng.randint(-1, i - 1) for i in range(n)]
        tokens: list[int] = []
        for i in range(n):  # mostly allowed after their parents
            way, at = [], parents[i]
            while at >= 0:
                way.insert(0, tokens[at])
                at = parents[at]
            taken = 0
            for token in way:
                if not try_accept(cursor, token):
                    break
                taken += 1
            ids = allowed(cursor)
            cursor.rollback(taken)
            tokens.append(rng.choice(ids) if ids and rng.random() < 0.8 else rng.randrange(400))
        before, history = snapshot(cursor), cursor.without_budget
        expected, holds = by_hand(cursor, tokens, parents)
        out = np.full((n + 1, WORDS), -1, np.int32)
        found = cursor.fill_masks_for_draft(tokens, out, parents)
        assert found.tolist() == holds
        assert out.view(np.uint32).tolist() == [row.tolist() for row in expected]
        assert snapshot(cursor) == before
        assert (cursor.without_budget is None) == (history is None)


def test_a_chain_needs_no_parents() -> None:
    constraint = structgen.compile(Choice(["abc", "abd"]), TINY)
    cursor = constraint.start()
    a, b, c = (TINY.tokens.index(text) for text in (b"a", b"b", b"c"))
    tokens = np.array([a, b, c, EOS, EOS])
    out = np.zeros((6, WORDS), np.uint32)
    valid = cursor.fill_masks_for_draft(tokens, out)  # type: ignore[arg-type]
    assert valid.tolist() == [True, True, True, True, False]
    assert [bool(row.any()) for row in out] == [True, True, True, True, False, False]
    assert set(ids_of(out[3])) == set(TINY.eos_token_ids)
    assert cursor.fill_masks_for_draft([a, c, b], out[:4]).sum() == 1
    assert cursor.fill_masks_for_draft([-1, 10**9], out[:3]).sum() == 0
    assert cursor.fill_masks_for_draft([], out[:1]).tolist() == []
    long = structgen.compile(Regex("a{3000}"), TINY).start()
    deep = np.zeros((3001, WORDS), np.int32)
    assert long.fill_masks_for_draft([a] * 3000, deep).all()  # no recursion


def test_a_finished_cursor_has_no_drafts() -> None:
    constraint = structgen.compile(Choice(["a"]), TINY)
    cursor = constraint.start()
    cursor.accept(TINY.tokens.index(b"a"))
    cursor.accept(EOS)
    out = np.full((2, WORDS), -1, np.int32)
    assert cursor.fill_masks_for_draft([EOS], out).tolist() == [False]
    assert not out.any()
    assert cursor.is_finished


def test_wrong_drafts_are_told_and_move_nothing() -> None:
    cursor = structgen.compile(Regex("[a-c]+"), TINY).start()
    before, out = snapshot(cursor), np.zeros((3, WORDS), np.int32)
    a = TINY.tokens.index(b"a")
    for tokens, parents, message in [
        ([a, a], [-1, 1], r"parents\[1\] is 1\. .*from 0 to 0, or -1"),
        ([a, a], [0, 0], r"parents\[0\] is 0\. .* must be -1"),
        ([a, a], [-2, 0], r"parents\[0\] is -2"),
        ([a, a], [-1], "one index for each of the 2 tokens, got 1"),
        ([a], None, r"int32 or uint32 \[2, "),
    ]:
        with pytest.raises(ValueError, match=message):
            cursor.fill_masks_for_draft(tokens, out, parents)
    for wrong in (["a", "b"], [True, a], [1.0, a]):
        with pytest.raises(TypeError, match="integer token ids; got"):
            cursor.fill_masks_for_draft(wrong, out)  # type: ignore[arg-type]
    assert snapshot(cursor) == before


def test_a_draft_that_fails_midway_leaves_the_cursor_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constraint = structgen.compile(JsonSchema(PERSON), TINY)
    cursor = next(iter(list(states_on_the_way(constraint, random.Random(2), 5))[-1:]))
    before = snapshot(cursor)
    text = [cursor.forced_tokens() or allowed(cursor)][0][:1]
    calls = 0
    fill = Cursor.fill_row

    def fail(self: Cursor, row: Bits, view: memoryview | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise CompileLimitExceeded("too much", limit=1, actual=2)
        fill(self, row, view)

    monkeypatch.setattr(Cursor, "fill_row", fail)
    with pytest.raises(CompileLimitExceeded):
        cursor.fill_masks_for_draft(text, np.zeros((2, WORDS), np.int32))
    monkeypatch.undo()
    assert calls == 2
    assert snapshot(cursor) == before
