"""Caches outlive constraints: masks stay right when schemas come and go, or the budget ends."""

from __future__ import annotations

import gc
import itertools
import json
import random
import weakref

import inside
import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import JsonSchema, Regex, Vocabulary
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.errors import VocabularyError
from structgen.grammar.regex.read import parse_python
from structgen.masks.leaf_walks import walker_of

TOKENS = [bytes([b]) for b in range(256)]
TOKENS += [b'{"', b'":', b'","', b'"}', b"},", b"true", b"null", b'":"', b"k1", b"k2", b"12", b"]}"]
VOCABULARY = Vocabulary.from_tokens([*TOKENS, b""], eos_token_ids=[len(TOKENS)])


@pytest.fixture(autouse=True)
def only_what_a_test_makes_is_collected():
    """Or each collection would walk all that the run has loaded, for half a second."""
    gc.freeze()
    yield
    gc.unfreeze()


def random_schema(rng):
    kinds = [
        {"type": "string", "maxLength": rng.randrange(4)},
        {"type": "integer", "minimum": rng.randrange(9)},
        {"type": "array", "items": {"type": "null"}, "maxItems": rng.randrange(3)},
        {"enum": [f"k{rng.randrange(99)}", rng.randrange(99)]},
    ]
    names = [f"k{rng.randrange(30)}" for _ in range(rng.randrange(1, 4))]
    return {
        "type": "object",
        "properties": {name: rng.choice(kinds) for name in names},
        "required": rng.sample(names, 1),
        "additionalProperties": rng.choice([False, {"type": "boolean"}]),
    }


def left_for_the_collector():
    """Our own objects that only the collector frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    left = [x for x in gc.garbage if type(x).__module__.startswith("structgen")]
    gc.set_debug(0)
    gc.garbage.clear()
    return left


def check_one_walk(rng):
    constraint = structgen.compile(JsonSchema(random_schema(rng)), VOCABULARY)
    cursor = constraint.start(max_tokens=60)
    mask = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    while not cursor.is_finished:
        cursor.fill_mask(mask)
        allowed = set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")))
        for token in range(VOCABULARY.size):
            before = len(inside.trail(cursor)) + cursor.is_finished
            try:
                cursor.accept(token)
            except structgen.errors.TokenNotAllowed:
                assert token not in allowed
            else:
                assert token in allowed
                cursor.rollback(len(inside.trail(cursor)) + cursor.is_finished - before)
        cursor.accept(int(rng.choice(sorted(allowed))))


def test_masks_stay_right_while_schemas_come_and_go():
    rng = random.Random(7)
    for _ in range(30):
        check_one_walk(rng)
        gc.collect()  # plans are freed, and their addresses used again


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_constraints_go_without_the_collector(whitespace):
    rng = random.Random(9)
    schemas = [random_schema(rng) for _ in range(10)]
    rules = {"required": ["a"], "additionalProperties": {"type": "null"}, "minProperties": 2}
    schemas.append({"type": "object", "not": {"required": ["b"]}, **rules})
    schemas.append({"patternProperties": {"^x": {"oneOf": [rules, {"type": "string"}]}}})
    mask = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    gc.disable()
    try:
        for schema in schemas:
            constraint = structgen.compile(JsonSchema(schema), VOCABULARY, whitespace=whitespace)
            assert constraint.start().min_tokens_to_finish() < 60
            cursor = constraint.start(max_tokens=60)
            while not cursor.is_finished:
                cursor.fill_mask(mask)
                allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                cursor.accept(int(rng.choice(allowed)))
            parts = [
                inside.machine(constraint),
                *(frame for frame, _ in inside.machine(constraint).stacks.frames),
            ]
            parts += [inside.language(frame) for frame in parts[1:] if hasattr(frame, "_language")]
            parts += [leaf for leaf in inside.machine(constraint).leaves if not leaf.is_shared]
            gone = [weakref.ref(part) for part in parts]
            assert len(gone) > 3
            gc.collect()
            del constraint, cursor, parts
            assert all(part() is None for part in gone), schema
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [x for x in gc.garbage if type(x).__module__.startswith("structgen")]
            assert not left, (schema, left)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
def test_grammars_go_without_the_collector(whitespace):
    grammars = {
        'start: "x" %json {"type": "object"} A\nA: /q+/\n': 'x{"a":1}q',
        'start: A %json {"type": "object"} A\nA: /q+(?!a)/\n': 'q{"a":1}qq',
        'start: "x" A?\nA: /q+/\n': "xqq",
        # How A may end depends on what follows.
        'start: A B | C "a"\nA: /a+b?/\nB: /b/\nC: /[ab]+/\n': "abb",
    }
    mask = np.zeros((VOCABULARY.size + 31) // 32, np.uint32)
    gc.disable()
    try:
        for grammar, text in grammars.items():
            gc.collect()
            cfg = structgen.Cfg(grammar)
            constraint = structgen.compile(cfg, VOCABULARY, whitespace=whitespace)
            cursor = constraint.start()
            for token in text.encode():
                cursor.fill_mask(mask)
                cursor.accept(token)
            budgeted = constraint.start(max_tokens=30)
            budgeted.fill_mask(mask)
            gc.collect()
            del cfg, constraint, cursor, budgeted
            left = left_for_the_collector()
            assert not left, (grammar, left)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_grammars_share_the_budget_of_their_vocabulary():
    tokens = [*TOKENS, *(a + b for a in TOKENS[97:123] for b in TOKENS[97:123]), b"x" * 9]
    vocabulary = Vocabulary.from_tokens([*tokens, b""], eos_token_ids=[len(tokens)])
    walker = walker_of(vocabulary)
    mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    texts = {
        'start: "(" start ")" start | A\nA: /[a-k]+/\n': "(ab)((kk)a)b",
        'start: A B | C "a"\nA: /a+b?/\nB: /b/\nC: /[ab]+/\n': "aaabb",
        'start: W (" " W)*\nW: /[a-z]{1,4}(?![a-m])/\n': "nnn z yyy",
    }

    def masks(constraint, text):
        out = []
        cursor = constraint.start()
        for token in text.encode():
            cursor.fill_mask(mask)
            out.append(mask.tobytes())
            cursor.accept(token)
        return out

    before = walker.store.used
    made = [(structgen.compile(structgen.Cfg(g), vocabulary), text) for g, text in texts.items()]
    expected = [masks(constraint, text) for constraint, text in made]
    spent = walker.store.used - before
    engines = [inside.masks(constraint) for constraint, _ in made]
    rows = {id(m[0]): len(m[0]) for engine in engines for m in engine.ready.values()}
    n_bytes = sum(rows.values())
    assert spent >= n_bytes + 200 * sum(len(engine.ready) for engine in engines)
    assert structgen.masks.cache_info().n_bytes >= spent

    # The budget is spent by one of them, and what the others hold goes, too.
    idle = engines[0]
    assert idle.ready
    walker.store.charge(walker.store.budget)
    walker.store.charge(walker.store.budget)
    fresh, text = made[2]
    inside.masks(fresh).ready.clear()
    assert masks(fresh, text) == expected[2]
    assert not idle.ready
    assert not idle.ready.old

    # Ever so little of it, and masks are what they were.
    walker.store.budget = 20_000
    turns = walker.store.turns
    for _ in range(4):
        for (constraint, text), wanted in zip(made, expected, strict=True):
            inside.masks(constraint).ready.clear()
            assert masks(constraint, text) == wanted
    assert walker.store.turns > turns + 2


def test_automata_go_without_the_collector():
    patterns = ["^(?!ab)[a-z]+$", r"\bx\d{2,9}(?<=9)", "^a|b$", "(?=.*1).{3,8}"]
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for pattern in patterns:
            automaton = RegexAutomaton(parse_python(pattern))
            automaton.accepts("ab19")
            del automaton
        gc.collect()
        left = [x for x in gc.garbage if type(x).__module__.startswith("structgen.automaton")]
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_refused_schemas_go_without_the_collector():
    rules = {"required": ["a"], "additionalProperties": {"type": "null"}, "minProperties": 2}
    deep: dict[str, object] = {}
    for _ in range(60):
        deep = {"type": "array", "items": deep, "minItems": 1}
    schemas = [
        {"type": "object", "not": {"not": rules}, "properties": {"a": False}},
        {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": "^a$", "const": ""},
        },
        {"type": "object", "minProperties": 10_001},
        {"allOf": [deep], "uniqueItems": True},
    ]
    gc.disable()
    try:
        for schema in schemas:
            gc.collect()
            with pytest.raises(structgen.StructgenError):
                structgen.compile(JsonSchema(schema), VOCABULARY, max_depth=50)
            left = left_for_the_collector()
            assert not left, (schema, left)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_masks_stay_right_when_the_budget_runs_out():
    walker = walker_of(VOCABULARY)
    rng = random.Random(8)
    before, walker.store.budget = walker.store.budget, 20_000
    try:
        for _ in range(20):
            check_one_walk(rng)
        assert walker.store.turns > 3
        store = walker.store
        assert store.used + store.held <= store.budget + 10_000  # one entry may go over
        info = structgen.masks.cache_info()
        assert info.entries > 0
        assert info.n_bytes >= walker.store.used
    finally:
        walker.store.budget = before


def test_one_wide_pattern_stays_within_the_budget():
    path = real_tokenizers.path("smollm2")
    vocabulary = Vocabulary.from_tokenizer_json(path)
    walker = walker_of(vocabulary)
    rng = random.Random(3)
    mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    before, walker.store.budget = walker.store.budget, 1_000_000
    most = 0
    try:
        for n, max_tokens in itertools.product((20, 21), (None, 60)):
            constraint = structgen.compile(Regex(rf"(?:\w{{1,{n}}} ){{0,9}}(?=x)\S+"), vocabulary)
            cursor = constraint.start(max_tokens)
            for _ in range(12):
                cursor.fill_mask(mask)
                info = structgen.masks.cache_info()
                most = max(most, walker.store.used + walker.store.held)
                assert info.constraints > 0
                bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
                cursor.accept(int(rng.choice(np.flatnonzero(bits).tolist())))
                if cursor.is_finished:
                    break
        assert walker.store.turns
        assert 500_000 < most <= walker.store.budget
    finally:
        walker.store.budget = before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
        {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    ],
)
def test_a_constraint_in_use_does_not_grow_for_ever(schema, monkeypatch):
    monkeypatch.setattr("structgen.constraint.constraint.MAX_ENGINE_BYTES", 400_000)
    monkeypatch.setattr("structgen.constraint.engine._WEIGHED_EVERY", 100)
    constraint = structgen.compile(JsonSchema(schema), VOCABULARY)
    rng = random.Random(5)
    engines, most = set(), 0
    under_way = constraint.start()
    for byte in b'{"a"' if schema["type"] == "object" else b"[1,":
        under_way.accept(byte)
    for _ in range(150):
        numbers = rng.sample(range(10**6), 6)
        value = numbers if schema["type"] == "array" else {str(n): n for n in numbers}
        assert constraint.allows(json.dumps(value, separators=(",", ":")))
        assert not constraint.allows("[1,1]")
        assert not constraint.allows('{"a":1}')
        engines.add(id(inside.engine(constraint)))
        most = max(most, inside.machine(constraint).weight)
    assert len(engines) > 2
    assert most < 1_500_000
    for byte in b':1,"b":2}' if schema["type"] == "object" else b"2]":
        under_way.accept(byte)
    assert under_way.is_accepting


def test_warming_up_leaves_no_view_of_the_vocabulary_to_be_made():
    tokens = [*TOKENS, b"warm"]  # equal vocabularies share their tables
    vocabulary = Vocabulary.from_tokens([*tokens, b""], eos_token_ids=[len(tokens)])
    walker = walker_of(vocabulary)
    assert not inside.characters(walker.texts)
    structgen.warm_up(vocabulary)
    made = dict(inside.characters(walker.texts))
    assert made
    schema = {"properties": {"a": {"type": "string", "pattern": "^x"}, "b": {"type": "string"}}}
    cursor = structgen.compile(JsonSchema(schema), vocabulary).start()
    mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    for byte in b'{"a":"xy","b":"z"}':
        cursor.fill_mask(mask)
        cursor.accept(byte)
    assert inside.characters(walker.texts) == made


def test_only_vocabularies_are_warmed_up() -> None:
    constraint = structgen.compile(bool, VOCABULARY)
    with pytest.raises(VocabularyError, match="warm_up takes a Vocabulary, got Constraint"):
        structgen.warm_up(constraint)  # type: ignore[arg-type]
