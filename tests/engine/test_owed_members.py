"""Thousands of members that an object owes: worked out once for each state, whoever asks."""

from __future__ import annotations

import random
from typing import Any

import inside
import numpy as np
import pytest

import structgen
from structgen import JsonSchema, Vocabulary
from structgen.automaton import texts
from structgen.automaton.texts import Rope, flat, joined
from structgen.automaton.work import Work

TOKENS = [*(bytes([b]) for b in range(256)), b'":', b', "', b"aa", b""]
VOCABULARY = Vocabulary.from_tokens(TOKENS, [len(TOKENS) - 1])


def n_texts_joined(schema: Any, steps: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """How many texts are put in a row in some masks within a tight budget."""
    n = 0

    def count(between: bytes, parts: Any) -> Any:
        nonlocal n
        n += len(parts)
        return joined(between, parts)

    from structgen.automaton.json import language

    monkeypatch.setattr(language, "joined", count)
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY, **options)
    cursor = constraint.start(max_tokens=constraint.start().min_tokens_to_finish() + 5)
    row = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    rng = random.Random(1)
    for _ in range(steps):
        cursor.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        cursor.accept(int(rng.choice(allowed)))
    return n


def test_min_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "minProperties": 2000}
    # Once for each key that may be written next; before, once for each of its ends, too.
    assert n_texts_joined(schema, 4, monkeypatch) < 200 * 2000


def test_required_members_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each name that may be written next the others are owed: halves of them are shared."""
    from structgen.automaton.json.closing import Closing, PlainEnds

    n = 0

    def counted(method: Any) -> Any:
        def call(*args: Any) -> Any:
            nonlocal n
            n += args[-1].bit_count() if method is few else 1
            return method(*args)

        return call

    few = PlainEnds._few
    monkeypatch.setattr(PlainEnds, "_few", counted(few))
    monkeypatch.setattr(Closing, "_member", counted(Closing._member))
    names = [f"p{i}" for i in range(200)]
    tokens = [*(bytes([b]) for b in range(256)), *(b'"%s"' % n.encode() for n in names), b""]
    vocabulary = Vocabulary.from_tokens(tokens, [len(tokens) - 1])
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "integer"} for name in (*names, *(f"q{i}" for i in range(200)))
        },
        "required": names,
    }
    constraint = structgen.compile(JsonSchema(schema), vocabulary, property_order="any")
    least = constraint.start().min_tokens_to_finish()
    cursor = constraint.start(max_tokens=least + 1)
    row = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    cursor.accept(ord("{"))
    cursor.fill_mask(row)
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    assert [vocabulary.tokens[t] for t in allowed if t >= 256] == [
        b'"%s"' % n.encode() for n in names
    ]
    assert n < 20 * 200  # of 40,000
    for name in names:  # one after the other, and the last token is the end
        cursor.accept(tokens.index(b'"%s"' % name.encode()))
        assert cursor.min_tokens_to_finish() <= least
        break


@pytest.mark.parametrize("order", ["schema", "any"])
def test_plain_ends_are_the_shortest_ends(order: Any) -> None:
    """With what is left of many required names, in whatever order, the plan is whole and valid."""
    names = [f"k{i}" for i in range(40)]
    kinds: list[Any] = [{"type": "null"}, {"const": "x" * 600}, {"enum": [10, 2]}, {}]
    schema = {
        "type": "object",
        "properties": {name: kinds[i % 4] for i, name in enumerate(names)},
        "required": names[::3],
        "additionalProperties": False,
    }
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY, property_order=order)
    texts_of = {0: "null", 1: '"' + "x" * 600 + '"', 2: "2", 3: "0"}
    rng = random.Random(4)
    for _ in range(10):
        chosen = rng.sample(range(40), rng.randrange(1, 12))
        if order == "schema":
            chosen.sort()
            chosen = [i for i in chosen if all(j in chosen for j in range(0, i, 3))] or [0]
        cursor = constraint.start()
        written = "{" + ", ".join(f'"k{i}": {texts_of[i % 4]}' for i in chosen)
        for token in constraint.named.encode(written.encode()):
            cursor.accept(int(token))
        missing = [i for i in range(0, 40, 3) if i not in chosen]
        rest = "".join(f',"k{i}":{texts_of[i % 4]}' for i in missing) + "}"
        fewest = len(constraint.named.encode(rest.encode()))
        assert cursor.min_tokens_to_finish() <= fewest + 1
        for token in constraint.named.encode(rest.encode()):
            cursor.accept(int(token))
        assert cursor.is_accepting


@pytest.mark.parametrize("seed", range(30))
def test_texts_in_a_row(seed: int) -> None:
    """`joined` is ``bytes.join``, in few parts."""
    rng = random.Random(seed)
    long = Rope(b"x" * 300, 3, b"y")
    kinds: list[texts.Text] = [b"", b"a", b'"key":1', b"z" * 400, b"w" * 700, long]
    parts = [rng.choice(kinds) for _ in range(rng.choice((0, 1, 2, 10, 700, 2000)))]
    if seed % 2:
        parts = sorted(parts, key=len)  # equal ones are neighbours
    whole = joined(b", ", parts)
    assert flat(whole) == b", ".join(map(flat, parts))
    assert len(whole) == len(flat(whole))


def test_many_short_texts_are_few_parts() -> None:
    whole = joined(b",", [b'"k%d":1' % i for i in range(3000)])
    n_parts, todo = 0, [whole]
    while todo:
        part = todo.pop()
        n_parts += 1
        if isinstance(part, Rope):
            todo += [part.first, part.second]
    assert n_parts < 200


def test_masks_with_thousands_of_members_are_within_the_limit() -> None:
    worst = 0
    leave = Work.leave

    def note(work: Work) -> None:
        nonlocal worst
        worst = max(worst, work.limits.work - work.left)
        leave(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "leave", note)
        n_texts_joined({"type": "object", "minProperties": 3000}, 4, patch)
    assert 50_000 < worst < 500_000


def test_many_of_a_long_list_of_names() -> None:
    """Their automaton is made once, not for each name that is owed: masks have steps to spare."""
    schema = {
        "type": "object",
        "propertyNames": {"enum": [f"n{i}" for i in range(3000)]},
        "minProperties": 40,
    }
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY, max_work=200_000)
    least = constraint.start().min_tokens_to_finish()
    cursor = constraint.start(max_tokens=least + 3)
    row = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    rng = random.Random(2)
    for _ in range(60):
        cursor.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        cursor.accept(int(rng.choice(allowed)))


def test_what_is_barred_one_by_one_is_refused_at_once() -> None:
    spent = 0
    leave = Work.leave

    def note(work: Work) -> None:
        nonlocal spent
        spent += work.limits.work - work.left
        leave(work)

    barred = {"type": "object", "not": {"enum": [{"a": i, "b": [i, str(i)]} for i in range(2500)]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "leave", note)
        with pytest.raises(
            structgen.errors.CompileLimitExceeded, match="excluded or combined at once"
        ):
            structgen.compile(JsonSchema(barred), VOCABULARY)
    assert spent < 300_000  # of 2,000,000 before it was told


def test_constants_that_unique_items_owe() -> None:
    """What the next constant owes does not depend on which others have been written."""
    schema = {
        "type": "array",
        "uniqueItems": True,
        "allOf": [{"contains": {"const": i}} for i in range(16)],
    }
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY)
    cursor = constraint.start(max_tokens=constraint.start().min_tokens_to_finish() + 3)
    row = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    for byte in b"[7, 3,":
        cursor.fill_mask(row)
        cursor.accept(byte)
    language = inside.machine(constraint).languages[0]
    # One for each constant and each of the states between; before, for each set of others, too.
    assert len(language.nodes) < 400
