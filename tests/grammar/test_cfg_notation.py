"""GBNF and EBNF: the language every cut of which counts, against a reference made of Python."""

from __future__ import annotations

import random
import re

import inside
import pytest
from cfg_cases import accepts, texts
from engine.walks import TINY, allowed, brute_force_ids, states_on_the_way, walk

import structgen
from structgen import Cfg
from structgen.automaton.cfg import CfgFrame, CfgMachine
from structgen.errors import GrammarError
from structgen.grammar import cfg, ir

JSON_GBNF = r"""
# JSON, as llama.cpp's grammars write it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def machine(text: str, dialect: str | None = None) -> CfgMachine:
    return CfgMachine(CfgFrame(cfg.parse(text, None, dialect), ir.ANY_CHAR))


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('root ::= "a"* "a"', "a*a"),
        ('root ::= [a-b]+ "b" | "c"{2,3}', "[ab]+b|c{2,3}"),
        ('root ::= x x\nx ::= "a" | "ab"\n', "(a|ab)(a|ab)"),
        ('root ::= (x "b")? y\nx ::= "a"*\ny ::= x | "c"', "(a*b)?(a*|c)"),
        ('root ::= [^ab] . "c"?', "(?s:[^ab].c?)"),
        ('root ::= ("a" | # one\n  "b") "c"{0}\n', "a|b"),
        ('root ::= "a" |\n  "b"\n  | "c"', "a|b|c"),
        ('root ::= x{2} x{0,1}\nx ::= "a" y?\ny ::= "b" "c"*', "(a(bc*)?){2,3}"),
        (r'root ::= "\x61\u0062" [\]\-c]', r"ab[\]\-c]"),
    ],
)
def test_regular_grammars(grammar: str, pattern: str) -> None:
    made = machine(grammar, "gbnf")
    expected = re.compile(pattern)
    for text in [*texts("abc", 5), *texts("ab]-", 3)]:
        assert accepts(made, text) == bool(expected.fullmatch(text)), text


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ("root ::= [a-c] - 'b' /* no b */ #x63?", "[ac]c?"),
        ("first ::= 'a' second\nsecond ::= [#x62-#x63]* 'a' - 'b'", "a[bc]*a"),
        ("root ::= 'a'\n  'b'\n| 'c' ;", "ab|c"),
    ],
)
def test_ebnf(grammar: str, pattern: str) -> None:
    made = machine(grammar, "ebnf")
    for text in texts("abc", 4):
        assert accepts(made, text) == bool(re.fullmatch(pattern, text)), text


def test_brackets_and_ambiguity() -> None:
    made = machine('root ::= "(" root ")" | root root | "x"*', "gbnf")

    def is_in(text: str) -> bool:
        depth = 0
        for char in text:
            depth += (char == "(") - (char == ")")
            if depth < 0:
                return False
        return depth == 0

    for text in texts("()x", 6):
        assert accepts(made, text) == is_in(text), text


def test_json_masks_and_walks() -> None:
    constraint = structgen.compile(Cfg(JSON_GBNF), TINY)
    rng = random.Random(3)
    for cursor in states_on_the_way(constraint, rng, 60, special=0.6):
        state = inside.state(cursor)
        assert set(allowed(cursor)) == brute_force_ids(constraint, state, TINY)
    for _ in range(10):
        result = walk(constraint, rng, max_tokens=rng.randint(3, 40), special=0.5)
        assert result.ended
    made = machine(JSON_GBNF)
    assert accepts(made, '{"a": [1, -2.5e+1, true], "b\\n": {}}')
    assert not accepts(made, '{"a": [1,]}')
    assert not accepts(made, '{"a" "b"}')


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ('root ::= "a', 1, 10, "not closed"),
        ('root ::= ("a"\nb ::= "c"', 1, 10, "not closed"),
        ("root ::= [a-", 1, 10, "not closed"),
        ("root ::= b\n", 1, 10, "not defined"),
        ('root ::= "a"\nroot ::= "b"', 2, 1, "twice"),
        ('root := "a"', 1, 6, "::="),
        ('root ::= "a" {2,1}', 1, 14, ""),
        ("root ::= [z-a]", 1, 10, "is reversed"),
        ('root ::= "\\xZZ"', 1, 11, "hexadecimal"),
    ],
)
def test_errors_have_a_place(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(GrammarError) as error:
        machine(text, "gbnf")
    assert (error.value.line, error.value.column) == (line, column)
    assert says in str(error.value)


def test_the_dialect_is_found() -> None:
    assert cfg.dialect_of('start: "a"') == "lark"
    assert cfg.dialect_of('root ::= "a"') == "gbnf"
    assert cfg.dialect_of("expr ::= 'a'") == "ebnf"
    assert cfg.dialect_of("", "x/y.gbnf") == "gbnf"


@pytest.mark.parametrize("dialect", ["gbnf", "ebnf"])
def test_literals_and_classes_may_be_long(dialect: str) -> None:
    many = "".join(chr(0x100 + 2 * i) for i in range(500))
    text = "ab" * 2_000
    grammar = f'root ::= [{many}] item{{2}} "{text}"\nitem ::= [{many}x]*'
    if dialect == "ebnf":
        grammar = grammar.replace("{2}", " item")
    found = Cfg(grammar, dialect=dialect)
    constraint = structgen.compile(found, _BYTES)
    assert constraint.allows(f"{many[3]}{many[9]}x{text}")
    assert not constraint.allows(f"{many[3]}{text}b")
    assert not constraint.allows(f"x{text}")


_BYTES = structgen.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
