"""Token budgets of context-free grammars: which tokens they allow, and what that costs."""

from __future__ import annotations

import random

import cfg_cases
import inside
import numpy as np
import pytest
import real_tokenizers
from engine.walks import TINY, allowed, minimum, read_mask, would_accept

import structgen
from structgen import Cfg, Constraint, Regex, Text
from structgen.automaton.cfg.machine import CfgMachine
from structgen.constraint.engine import Engine
from structgen.errors import TokenNotAllowed
from structgen.masks.cfg.masks import CfgReach
from structgen.masks.leaf_walks import walker_of

WRITTEN = {
    "json": '{"a":[1,2,{"b":"x y z"}],"c":null,"d":[[[1,2,"hello"]]]}',
    "sql-select": "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name",
    "python-function": "def f(word):\n    if len(word) < 8:\n        return False\n",
}


def masks_on_the_way(constraint: Constraint, ids: list[int], spare: int) -> list[bytes]:
    """The masks before each token of ``ids`` that the budget still allows."""
    vocabulary = constraint.vocabulary
    cursor = constraint.start(len(ids) + 1 + spare)
    out: list[bytes] = []
    for token in ids:
        out.append(read_mask(cursor, vocabulary).tobytes())
        try:
            cursor.accept(token)
        except TokenNotAllowed:
            break
    return out


@pytest.mark.parametrize("spare", [0, 2, 7])
@pytest.mark.parametrize("name", list(cfg_cases.GRAMMARS))
def test_within_a_budget_the_mask_is_what_can_be_accepted(name: str, spare: int) -> None:
    # The mask is made from all tokens at once; accept asks for the plan of its one token.
    constraint = structgen.compile(Cfg(cfg_cases.GRAMMARS[name]), TINY)
    rng = random.Random(name)
    cursor = constraint.start(minimum(constraint) + spare)
    while not cursor.is_finished:
        ids = allowed(cursor)
        assert ids == [t for t in range(TINY.size) if would_accept(cursor, t)]
        cursor.accept(rng.choice(ids))


@pytest.mark.parametrize("name", list(WRITTEN))
def test_a_token_is_allowed_exactly_when_what_it_needs_fits(name: str) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(Cfg.named(name), vocabulary)
    machine = inside.machine(constraint)
    ids = vocabulary.encode_bytes(WRITTEN[name].encode())
    rng = random.Random(name)
    for n in rng.sample(range(1, len(ids)), 4):
        free = constraint.start()
        for token in ids[:n]:
            free.accept(token)
        state = inside.state(free)
        may = [t for t in allowed(free, vocabulary) if t not in vocabulary.eos_token_ids]
        for token in rng.sample(may, min(len(may), 300)):
            to, _ = machine.read(state, vocabulary.tokens[token])
            needed = vocabulary.count_tokens(machine.shortest_completion(to))
            for most in (needed - 1, needed):
                mask = np.full((vocabulary.size + 31) // 32, 0xFFFFFFFF, np.uint32)
                inside.engine(constraint).reach.restrict(state, most, mask)
                assert bool(mask[token >> 5] >> (token & 31) & 1) is (most == needed)


BESIDE = {
    "between texts": (Text("<") + Cfg.named("csv") + Text(">"), "<name,age"),
    "with a named token": (Cfg('start: (/[a-z ]+/ ";")+ <|im_start|>'), "one two"),
    "with JSON": (Cfg('start: "x" %json {"type": "string", "pattern": "^[a-z]*!$"}'), 'x"a'),
    "a pattern": (Text("[") + Regex("[a-z]*[0-9]"), "[abc"),
}


@pytest.mark.parametrize("name", list(BESIDE))
def test_near_the_end_tokens_are_read_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output, begun = BESIDE[name]
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(output, vocabulary)
    ids = vocabulary.encode_bytes(begun.encode())
    free = constraint.start()
    for token in ids:
        free.accept(token)
    read: list[int] = []
    anew = Engine.advance_uncached
    monkeypatch.setattr(
        Engine, "advance_uncached", lambda *args: read.append(args[2]) or anew(*args)
    )
    rng = random.Random(name)
    for spare in (0, 1, 3):
        cursor = constraint.start(len(ids) + free.min_tokens_to_finish() + spare)
        for token in ids:
            cursor.accept(token)
        read.clear()
        tokens = allowed(cursor, vocabulary)
        assert len(read) < 500
        without = allowed(free, vocabulary)
        for token in rng.sample(without, min(len(without), 50)):
            assert would_accept(cursor, token) is (token in tokens)


@pytest.mark.parametrize("name", list(WRITTEN))
def test_what_budgets_ask_is_worked_out_once_and_not_by_token(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(Cfg.named(name), vocabulary)
    ids = vocabulary.encode_bytes(WRITTEN[name].encode())
    counted = {"walks": 0, "steps": 0, "completions": 0, "tokens": 0}

    def count(of: type, method: str, what: str) -> None:
        original = getattr(of, method)

        def counting(*arguments: object) -> object:
            counted[what] += 1
            return original(*arguments)

        monkeypatch.setattr(of, method, counting)

    count(CfgReach, "_needed", "walks")
    count(CfgMachine, "step", "steps")
    count(CfgMachine, "shortest_completion", "completions")
    count(Engine, "advance", "tokens")
    first = masks_on_the_way(constraint, ids, 0)
    assert 0 < counted["walks"] <= len(ids)
    looked_at = sum(np.unpackbits(np.frombuffer(mask, np.uint8)).sum() for mask in first)
    assert looked_at > 100_000
    assert counted["tokens"] <= len(ids)
    assert counted["steps"] + counted["completions"] < looked_at / 5

    for what in counted:
        counted[what] = 0
    assert masks_on_the_way(constraint, ids, 0) == first
    # Tokens are looked up one by one as they are accepted.
    assert counted.pop("tokens") <= len(ids)
    assert counted == {"walks": 0, "steps": 0, "completions": 0}
    counted["tokens"] = 0
    masks_on_the_way(constraint, ids, 1)  # another budget, the same places
    assert counted["walks"] <= 2


def test_masks_stay_right_when_the_memory_for_them_runs_out() -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    ids = vocabulary.encode_bytes(WRITTEN["json"].encode())
    first = masks_on_the_way(structgen.compile(Cfg.named("json"), vocabulary), ids, 0)
    constraint = structgen.compile(Cfg.named("json"), vocabulary)
    walker = walker_of(vocabulary)
    before, turns = walker.store.budget, walker.store.turns
    walker.store.budget = 20_000
    try:
        for _ in range(2):
            assert masks_on_the_way(constraint, ids, 0) == first
        assert walker.store.turns > turns
        assert walker.store.used <= walker.store.budget // 2
    finally:
        walker.store.budget = before
