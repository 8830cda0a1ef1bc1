"""Special tokens named in grammars: one symbol each, by id and not by text.

The reference is the same grammar with a character of the private use area in the token's place.
"""

from __future__ import annotations

import itertools
import pickle
import random

import inside
import pytest
import real_tokenizers
from engine.walks import (
    TINY,
    allowed,
    minimum,
    random_tokens,
    read_mask,
    seeds,
    states_on_the_way,
    try_accept,
    walks_within_the_budget,
)
from fakes import END as EOS
from fakes import PAD, SIZE, TOKENS, FakeModel

import structgen
from structgen import Cfg, Constraint, Generator, Vocabulary
from structgen.automaton.cfg.embedded_terminals import NamedTokenLeaf
from structgen.automaton.core.leaf import LiteralLeaf
from structgen.constraint.check_grammar import problems
from structgen.errors import GrammarError, TokenNotAllowed

CALL, END, TOOL, STOP = "<|call|>", "<|end|>", "<tool>", "<|stop|>"


def _vocabulary() -> tuple[Vocabulary, dict[str, int]]:
    tokens = list(TINY.tokens)
    ids = {name: len(tokens) + i for i, name in enumerate((CALL, END, TOOL, STOP))}
    # The third is text as well; so is, by its bytes alone, one that is not named.
    tokens += [b"", b"", TOOL.encode(), b"", TOOL.encode() + b"a", b"x" + TOOL.encode()]
    vocabulary = Vocabulary.from_tokens(
        tokens,
        [*TINY.eos_token_ids, ids[STOP]],
        special_token_ids=[*TINY.special_token_ids, ids[CALL], ids[END]],
        named_tokens=ids,
    )
    return vocabulary, ids


VOCABULARY, IDS = _vocabulary()
STAND_INS = {CALL: "\ue000", END: "\ue001", TOOL: "\ue002"}

GRAMMARS = {
    "between": 'start: WORD <|call|> %json {"type": "object", "maxProperties": 0} <|end|> | WORD\n'
    "WORD: /[a-z ]+/",
    "lists": "start: (<|call|> | A)* <|end|>\nA: /a+/",
    "deep": 'start: <|call|> start <|end|> | "a" | <|call|> <|call|>',
    "text too": 'start: (<tool> "a"? | TEXT | "<" "|" "call" ">")+\nTEXT: /[^<\ue000-\uf8ff]+/',
    "its own text": 'start: "<tool>" <tool> "<tool>" | <tool>',
    "demands": r"""
        start: A <|call|> | B <|call|> "b" | C <|call|> | A C
        A: /a+(?!b)/
        B: /ba(?=b)|b/
        C: /c+$|cd/
    """,
    "ignored": "start: <|call|> A <|end|> A\nA: /a/\nIGN: /[ ]+/\n%ignore IGN",
}
GBNF = 'root ::= "a"* <|call|> (%json {"type": "boolean"} | root) <|end|>'


def compiled(name: str) -> Constraint:
    return structgen.compile(Cfg(GRAMMARS[name]), VOCABULARY)


def stand_in(name: str) -> Constraint:
    text = GRAMMARS[name]
    for token, char in STAND_INS.items():
        for quoted in (f'"{token}"',):
            text = text.replace(quoted, f'"{quoted[1:2]}" "{quoted[2:-1]}"')
        text = text.replace(token, f'"{char}"')
    return structgen.compile(Cfg(text), VOCABULARY)


def as_text(tokens: list[int]) -> bytes:
    names = {IDS[name]: char.encode() for name, char in STAND_INS.items()}
    return b"".join(names.get(t, VOCABULARY.tokens[t]) for t in tokens)


def expected_mask(reference: Constraint, tokens: list[int]) -> set[int]:
    machine = inside.machine(reference)
    state = machine.start
    for byte in as_text(tokens):
        state = machine.step(state, byte)
    found = set(VOCABULARY.eos_token_ids) if machine.is_accepting(state) else set()
    for token in range(VOCABULARY.size):
        data, to = as_text([token]), state
        for byte in data:
            to = machine.step(to, byte)
        if data and to:
            found.add(token)
    return found


@pytest.mark.parametrize("name", [name for name in GRAMMARS if name != "demands"])
def test_masks_equal_brute_force(name: str) -> None:
    constraint, reference = compiled(name), stand_in(name)
    rng = random.Random(name)
    for cursor in states_on_the_way(constraint, rng, len(seeds(60))):
        # Tokens that stand for the stand-ins' own bytes are no part of the comparison.
        expected = {
            t
            for t in expected_mask(reference, inside.tokens(cursor))
            if not VOCABULARY.tokens[t].startswith(b"\xee")
        }
        mask = set(allowed(cursor, VOCABULARY))
        found = {t for t in mask if VOCABULARY.tokens[t][:1] != b"\xee"}
        assert found == expected, inside.tokens(cursor)
        for token in range(VOCABULARY.size):
            if token not in VOCABULARY.eos_token_ids:
                moved = try_accept(cursor, token)
                assert moved == (token in mask)
                cursor.rollback(int(moved))


def reads(constraint: Constraint, *parts: str) -> bool:
    """Whether the masks let the texts and the named tokens among them through."""
    rng = random.Random(0)
    cursor = constraint.start()
    for part in parts:
        tokens = [IDS[part]] if part in IDS else random_tokens(part.encode(), rng, TINY)
        for token in tokens:
            bit = read_mask(cursor, VOCABULARY)[token // 32] >> (token % 32) & 1
            assert bool(bit) == try_accept(cursor, token)
            if not bit:
                return False
    return cursor.is_accepting


def test_to_what_stands_before_a_token_is_the_end() -> None:
    constraint = compiled("demands")
    assert reads(constraint, "aa", CALL)
    assert not reads(constraint, "ba", CALL, "b")  # the lookahead sees no b
    assert reads(constraint, "b", CALL, "b")
    assert reads(constraint, "cc", CALL)
    assert reads(constraint, "aacd")
    assert reads(constraint, "cd", CALL)


def test_walks_are_not_taken_for_those_of_other_leaves() -> None:
    other = LiteralLeaf([b"x"])  # walks are known by the number of their leaf
    assert NamedTokenLeaf(3).number > other.number


def test_text_is_not_the_token() -> None:
    constraint = compiled("its own text")
    assert reads(constraint, TOOL)
    assert reads(constraint, "<to", "ol>", TOOL, "<", "tool>")
    assert not reads(constraint, TOOL, TOOL, TOOL)
    assert not reads(constraint, "<to", "ol>")


@pytest.mark.parametrize("name", GRAMMARS)
def test_walks_end_within_the_budget(name: str) -> None:
    constraint = compiled(name)
    rng = random.Random(name)
    for result in walks_within_the_budget(constraint, rng, 10):
        text = b"".join(constraint.named.texts[t] for t in result.ids).decode()
        if name != "text too":
            assert constraint.allows(text), text


def test_the_fewest_tokens() -> None:
    assert minimum(compiled("deep")) == 2
    assert minimum(structgen.compile(Cfg("start: <|call|> <|end|> <|call|>"), VOCABULARY)) == 4
    assert minimum(structgen.compile(Cfg('start: "<tool>" <tool>'), VOCABULARY)) > 3


def test_forced_text_does_not_use_named_tokens() -> None:
    constraint = structgen.compile(Cfg('start: "<tool>" <tool> "ab"'), VOCABULARY)
    cursor = constraint.start()
    for token in cursor.forced_tokens(lambda data: VOCABULARY.encode_bytes(data)):
        cursor.accept(token)
    while not cursor.is_accepting:
        for token in cursor.forced_tokens():
            cursor.accept(token)
        choices = allowed(cursor, VOCABULARY)
        if not cursor.is_accepting:
            cursor.accept(choices[0])
    assert inside.tokens(cursor).count(IDS[TOOL]) == 1


def test_gbnf() -> None:
    constraint = structgen.compile(Cfg(GBNF), VOCABULARY)
    assert reads(constraint, "aa", CALL, CALL, "true", END, END)
    assert not reads(constraint, "aa", CALL, "true", CALL)


def test_ids_name_tokens_as_well() -> None:
    """As llama.cpp's GBNF has them."""
    grammar = f"root ::= <[{IDS[CALL]}]> [a-z]+ <[{IDS[TOOL]}]>"
    constraint = structgen.compile(Cfg(grammar), VOCABULARY)
    assert reads(constraint, CALL, "ab", TOOL)
    assert not reads(constraint, CALL, "ab", TOOL, TOOL)
    assert constraint.allows("<|call|>ba<tool>")


def _is_whole(token: int) -> bool:
    data = VOCABULARY.tokens[token]
    is_text = bool(data) and data.decode(errors="ignore").encode() == data
    return is_text or (not data and token in IDS.values())


EVERY = set(filter(_is_whole, range(VOCABULARY.size))) - {*VOCABULARY.eos_token_ids}
A, B, Z = 101, 102, 126  # the ids of single letters
(THE,) = VOCABULARY.encode_bytes(b"the")
SEVERAL = {
    "any": ('start: "a" <[*]> "b"*', {"<[*]>": EVERY}),
    "all but some": (
        f"start: (A <[^0-{Z},{IDS[END]}]> <|call|>?)+\nA: /[az]+/",
        {f"<[^0-{Z},{IDS[END]}]>": EVERY - {*range(Z + 1), IDS[END]}, CALL: {IDS[CALL]}},
    ),
    "all but one": (
        "root ::= (!<|call|> | <|call|> !<[^101]> !<|stop|>)+ !<[101]>",
        {
            "!<|call|>": EVERY - {IDS[CALL]},
            CALL: {IDS[CALL]},
            "!<[^101]>": {A},
            "!<|stop|>": EVERY,
            "!<[101]>": EVERY - {A},
        },
    ),
    "listed": (
        f'start: A? <[{A}-{B},{IDS[TOOL]},0]> ("a" | <tool> | %json {{"enum": ["b", 12]}})'
        f" <[{B},1]> | A\nA: /[ab]+/",
        {f"<[{A}-{B},{IDS[TOOL]},0]>": {A, B, IDS[TOOL]}, TOOL: {IDS[TOOL]}, f"<[{B},1]>": {B, 1}},
    ),
    "one of ordinary text": (
        f"start: (<[{THE}]> A <[{A}]>)+ | <[{A}]> A\nA: /[abthe]+/",
        {f"<[{A}]>": {A}, f"<[{THE}]>": {THE}},
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_tokens_named_together(name: str) -> None:
    """Each token is read as its text and as one of them, in all ways, as the masks tell."""
    text, sets = SEVERAL[name]
    constraint, rng = structgen.compile(Cfg(text), VOCABULARY), random.Random(name)
    readings: dict[int, list[bytes]] = {
        t: [data] * (data[:1] not in (b"", b"\xee")) for t, data in enumerate(VOCABULARY.tokens)
    }
    readings[IDS[TOOL]] *= TOOL not in sets
    for number, (written, ids) in enumerate(sets.items()):
        text = text.replace(written, f'"{chr(0xE000 + number)}"')
        for token in ids:
            readings[token] = [*readings[token], chr(0xE000 + number).encode()]
    machine = inside.machine(structgen.compile(Cfg(text), VOCABULARY))
    n_ends = 0
    for _ in seeds(10):
        cursor, states = constraint.start(), {machine.start}
        for _ in range(5):
            expected: dict[int, set[int]] = {}
            for token, ways in readings.items():
                for state, data in itertools.product(states, ways):
                    for byte in data:
                        state = machine.step(state, byte)
                    if state:
                        expected.setdefault(token, set()).add(state)
            is_accepting = any(map(machine.is_accepting, states))
            ends = {*VOCABULARY.eos_token_ids} if is_accepting else set()
            assert set(allowed(cursor, VOCABULARY)) == {*expected, *ends}, inside.tokens(cursor)
            n_ends += is_accepting
            if not expected:
                break
            few = [t for t in expected if t in (A, B, IDS[CALL], IDS[TOOL])] + [*expected]
            token = few[rng.randrange(min(len(few), 6))]
            cursor.accept(token)
            states = expected[token]
    assert n_ends or len(seeds(10)) < 10
    assert len([*walks_within_the_budget(constraint, rng, 4)])


def test_the_text_holds_the_names() -> None:
    constraint = compiled("between")
    assert constraint.allows("ab <|call|>{}<|end|>")
    assert not constraint.allows("ab <|call|>{}")
    cursor = structgen.compile(Cfg("start: <|call|>"), VOCABULARY).start()
    with pytest.raises(TokenNotAllowed, match=r"special token must come next"):
        cursor.accept(VOCABULARY.encode_bytes(b"a")[0])
    with pytest.raises(TokenNotAllowed, match=r"<\|call\|>.*not allowed here"):
        structgen.compile(Cfg('start: "a" <|call|>'), VOCABULARY).start().accept(IDS[CALL])


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ("start: <|cal|>", r"token <\|cal\|>, at line 1, column 8. Did you mean <\|call\|>"),
        ("start: <qqqqqqqqq>", r"Special tokens: <\|call\|>, <\|end\|>"),
        ("start: <|stop|>", "ends the sequence"),
        ("start: A\nA: <|call|>", r"<\|call\|> cannot be part of a terminal"),
        ("start: <[14-12]>", r"several by their ids, <\[12,20-30\]>"),
        ("start: <[^*]>", "several by their ids"),
        ("start: <[123456-123457]>", "has none of the tokens"),
        (f"start: <[{IDS[STOP]},{TINY.eos_token_ids[0]}]>", "has none of the tokens"),
        ("root ::= !<nothing>", "has no special token <nothing>"),
        ("root ::= !< a >", "without spaces"),
        ("root ::= !<[*]>", "has none of the tokens"),
        ("start: <![12]>", "several by their ids"),
        ("start: <[123456]>", "has no token 123,456"),
        (f"start: <|call|> <[{IDS[CALL]}]>", "given twice"),
        ("root ::= < a >", "without spaces"),
        ("start: <|call|> b", "'b' used but not defined"),
    ],
)
def test_errors(grammar: str, says: str) -> None:
    with pytest.raises(GrammarError, match=says):
        structgen.compile(Cfg(grammar), VOCABULARY)


def test_vocabularies_without_names_say_so() -> None:
    with pytest.raises(GrammarError, match="has no names of tokens"):
        structgen.compile(Cfg("start: <|call|>"), TINY)
    letters = Vocabulary.from_tokens([b"a", b"b", b""], [2], named_tokens={"<a>": 0})
    with pytest.raises(GrammarError, match="ordinary text, b'a'"):
        structgen.compile(Cfg("start: <a>"), letters)
    assert problems("start: <|call|> lost?\nlost: <|end|>\nunused: <|call|>")[0].line == 3
    assert pickle.loads(pickle.dumps(VOCABULARY)).named_tokens == IDS


def test_a_real_vocabulary() -> None:
    vocabulary = real_tokenizers.vocabulary("llama3")
    constraint = structgen.compile(
        Cfg('start: TEXT? <|start_header_id|> %json {"const": {"a": 1}} | TEXT\nTEXT: /[A-Z ]+/'),
        vocabulary,
        whitespace="compact",
    )
    tag = vocabulary.named_tokens["<|start_header_id|>"]
    cursor = constraint.start(20)
    for token in [*vocabulary.encode_bytes(b"HELLO "), tag]:
        assert tag in allowed(cursor, vocabulary)
        cursor.accept(token)
    assert bytes(cursor.forced_bytes()) == b'{"a":1}'


def test_outputs_hold_the_names() -> None:
    model = FakeModel("x")
    model.vocabulary = Vocabulary.from_tokens(
        TOKENS, [EOS], size=SIZE, special_token_ids=[PAD], named_tokens={CALL: PAD}
    )
    generator = Generator(model, Cfg('start: A <|call|> %json {"const": [12]} | A\nA: /[a-z]/'))
    for bias in (100, -100):
        result = generator.result("hi", logit_bias={PAD: bias}, trace=True)
        assert generator.constraint.allows(result.text)
        assert b"".join(step.token for step in result.trace).decode() == result.text
        assert (PAD in result.token_ids) == (bias > 0)
        if bias > 0:
            assert result.text[1:] == "<|call|>[12]"
            said = result.trace.explain(PAD, 1)
            assert said == "'<|call|>' was chosen after '" + result.text[0] + "'."
            assert "not allowed" in result.trace.explain(PAD, 0)
            assert "a special token" in result.trace.explain("b", 1)
    any_two = Generator(model, Cfg('start: <[*]> <[*]> "!"'))
    result = any_two.result("hi", seed=1, trace=True)
    assert b"".join(step.token for step in result.trace).decode() == result.text
    first, second, _ = result.token_ids
    assert (
        result.trace.explain(second, 1)
        == f"{result.text[1]!r} was chosen after {result.text[0]!r}."
    )
    assert "next byte may be '!'" in result.trace.explain(first, 2)
    assert "is not a single token" in result.trace.explain("zzq", 1)
    assert result.confidence is not None
    few = Generator(model, Cfg('start: "a" <|call|> | "b"'))
    result = few.result("hi", seed=1)
    alternatives = {a.value for a in result.confidence["$"].alternatives}
    assert alternatives == {"a<|call|>", "b"}
