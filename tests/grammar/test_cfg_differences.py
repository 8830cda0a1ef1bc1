"""Differences in EBNF, against references made of Python; which dialect a text is in."""

from __future__ import annotations

import random
import re

import inside
import pytest
from cfg_cases import texts
from engine.walks import TINY, accepts, allowed, brute_force_ids, minimum, seeds, walk

import structgen
from structgen import Cfg
from structgen.errors import GrammarError
from structgen.grammar import cfg


def read(grammar: Cfg, text: str) -> bool:
    machine = inside.machine(structgen.compile(grammar, TINY))
    state = machine.start
    for byte in text.encode():
        state = machine.step(state, byte)
    return bool(state) and machine.is_accepting(state)


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ("a ::= (letter - 'b')* letter ::= 'a' | 'b' | 'c'", "[ac]*"),
        ("a ::= (letter* - 'ab') - 'c' letter ::= 'a' | 'b' | 'c'", "(?!ab$|c$)[abc]*"),
        ("a ::= (word - keyword) 'c' word ::= 'a' | 'ab' | 'b' keyword ::= 'ab'", "[ab]c"),
    ],
)
def test_regular_grammars(grammar: str, pattern: str) -> None:
    expected = re.compile(pattern)
    compiled = Cfg(grammar, dialect="ebnf")
    for text in texts("abc", 6):
        assert read(compiled, text) == bool(expected.fullmatch(text)), text


@pytest.mark.parametrize(
    "grammar",
    [
        "a ::= b (',' b)*\nb ::= word - 'no' | '(' a ')'\nword ::= ('n' | 'o')+",
        'a ::= ([a-z]+ - ("if" | "in" [a-z]*)) " " a?',
    ],
)
def test_masks_equal_brute_force(grammar: str) -> None:
    constraint = structgen.compile(Cfg(grammar), TINY)
    rng = random.Random(grammar)
    for _ in seeds(8):
        cursor = constraint.start()
        for _ in range(8):
            ids = allowed(cursor)
            assert set(ids) == brute_force_ids(constraint, inside.state(cursor), TINY)
            rest = [i for i in ids if i not in TINY.eos_token_ids]
            if not rest:
                break
            cursor.accept(rng.choice(rest))
        result = walk(constraint, rng, max_tokens=minimum(constraint) + rng.choice((0, 3, 10)))
        assert result.ended
        assert accepts(constraint, result.text, rng)


def test_differences_in_w3c_notation() -> None:
    grammar = Cfg('name ::= ([a-z]+ - ("if" | "in")) ("." name)?')
    assert [read(grammar, t) for t in ("if", "i", "ifs", "a.in", "a.inn")] == [
        False, True, True, False, True,
    ]  # fmt: skip
    with pytest.raises(GrammarError, match="no text matches the pattern 'the difference at line 1"):
        structgen.compile(Cfg('a ::= ("ab" | "c") - [a-c]+'), TINY)


def test_only_what_is_regular_can_be_taken_away() -> None:
    with pytest.raises(GrammarError, match="Only regular parts") as error:
        structgen.compile(Cfg('a ::= ("(" a ")" | "x") - "x"'), TINY)
    assert (error.value.line, error.value.column) == (1, 25)


def test_ebnf_of_iso_is_refused_with_what_to_write() -> None:
    for grammar in ("a = 'x', b;", "two words = {'x'};", 'a = "x" | "y".'):
        with pytest.raises(GrammarError, match=r"ISO 14977 .* is not supported: write a ::= b c"):
            structgen.compile(Cfg(grammar), TINY)
    with pytest.raises(
        GrammarError,
        match=r"Choose 'lark', 'llguidance', 'gbnf', 'xgrammar' or 'ebnf'\. EBNF of ISO 14977",
    ):
        Cfg("a = 'x';", dialect="iso-ebnf")


def test_dialects_are_told_apart() -> None:
    assert cfg.dialect_of('start: A\nA: "b = c"\n') == "lark"
    assert cfg.dialect_of('start: "x"\n   | "="') == "lark"
    assert cfg.dialect_of("a ::= 'x'", "g.ebnf") == "ebnf"
    assert cfg.dialect_of("a = 'x';", "g.ebnf") == "ebnf"
    assert cfg.dialect_of('root ::= "x"', "g.ebnf") == "ebnf"
