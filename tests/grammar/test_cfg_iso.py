"""EBNF as ISO 14977 writes it, and differences, against references made of Python."""

from __future__ import annotations

import itertools
import random
import re

import inside
import pytest
from engine.walks import TINY, accepts, allowed, brute_force_ids, minimum, seeds, walk

import structgen
from structgen import Cfg, GrammarError, Regex
from structgen.constraint.check_grammar import problems
from structgen.grammar import cfg


def texts(alphabet: str, most: int) -> list[str]:
    return ["".join(p) for n in range(most + 1) for p in itertools.product(alphabet, repeat=n)]


def read(grammar: Cfg, text: str) -> bool:
    machine = inside.machine(structgen.compile(grammar, TINY))
    state = machine.start
    for byte in text.encode():
        state = machine.step(state, byte)
    return bool(state) and machine.is_accepting(state)


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('a = "a", {"b"}, ["c"];', "ab*c?"),
        ("a = 'a', (: 'b' :), (/ 'c' /) .", "ab*c?"),
        ("a = 'a' | 'b' / 'c' ! 'ab';", "a|b|c|ab"),
        ("a = 3 * 'a', (* one (* two *) *) 2 * ('b' | 'c');", "a{3}[bc]{2}"),
        ("two words = 'a', other\n  name ;\nother name = | 'b';", None),
        ("two words = 'a', other  name ;\nother name = | 'b';", "ab?"),
        ("a = letter, { letter | digit } ; letter = 'a' | 'b'; digit = 'c';", "[ab][abc]*"),
        ("a = { letter - 'b' }; letter = 'a' | 'b' | 'c';", "[ac]*"),
        ("a = ({ letter } - 'ab') - 'c'; letter = 'a' | 'b' | 'c';", "(?!ab$|c$)[abc]*"),
        ("a = word - keyword, 'c'; word = 'a', {'a' | 'b'}; keyword = 'ab' | 'aa';", None),
        ("a = (word - keyword), 'c'; word = 'a' | 'ab' | 'b'; keyword = 'ab';", "[ab]c"),
        ("a = ? /[ab]+c?/ ?, ? U+0062 ?;", "[ab]+c?b"),
        ("a = {'a' | };", "a*"),
    ],
)
def test_regular_grammars(grammar: str, pattern: str | None) -> None:
    assert cfg.dialect_of(grammar) == "iso-ebnf"
    if pattern is None:
        pattern = "(a[ab]*(?<!^ab)(?<!^aa))c"
        if "two words" in grammar:
            with pytest.raises(GrammarError):
                structgen.compile(Cfg(grammar), TINY)
            return
    expected = re.compile(pattern)
    machine = inside.machine(structgen.compile(Cfg(grammar), TINY))
    for text in texts("abc", 6):
        state = machine.start
        for byte in text.encode():
            state = machine.step(state, byte)
        found = bool(state) and machine.is_accepting(state)
        assert found == bool(expected.fullmatch(text)), text


ITS_OWN = r"""
(* The syntax of ISO 14977, itself written in it: 8.1, shortened. It has no rule: with a colon *)
syntax = syntax rule, {syntax rule};
syntax rule = meta identifier, '=', definitions list, ';';
definitions list = single definition, {'|', single definition};
single definition = term, {',', term};
term = factor, ['-', factor];
factor = [integer, '*'], primary;
primary = '[', definitions list, ']' | '{', definitions list, '}' | '(', definitions list, ')'
        | meta identifier | terminal string;
meta identifier = letter, {letter | digit};
terminal string = "'", character, {character}, "'" | '"', character - "'", {character - "'"}, '"';
character = ? any but quotes ?;
integer = digit, {digit};
letter = 'a' | 'b' | 'c' | 'x';
digit = '0' | '1' | '2';
"""


def test_a_grammar_of_its_own_notation() -> None:
    grammar = Cfg(ITS_OWN, terminals={"any but quotes": Regex(r"[^\"'\n]")})
    constraint = structgen.compile(grammar, TINY)
    rng = random.Random(3)
    assert accepts(constraint, "a='x',{b|2*[c]}-'c';b=\"x\";", rng)
    assert not accepts(constraint, "a='x' b;", rng)
    least = minimum(constraint)
    for _ in seeds(20):
        text = walk(constraint, rng, max_tokens=least + rng.choice((0, 5, 20, 40))).text
        assert accepts(constraint, text, rng)
        # What it accepts, our reader reads: all but references to rules that do not exist.
        names = set(re.findall(r"[abcx][abcx012]*", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)))
        defined = re.findall(r"(?:^|;)([abcx][abcx012]*)=", re.sub(r"'[^']*'|\"[^\"]*\"", "", text))
        if len(set(defined)) == len(defined) and "-" not in text:
            rest = "".join(f"{name}='x';" for name in names - set(defined))
            cfg.parse(text + rest, None, "iso-ebnf")


@pytest.mark.parametrize(
    "grammar",
    [
        "a = b, {',', b}; b = word - 'no' | '(', a, ')'; word = ('n' | 'o'), {'n' | 'o'};",
        'a ::= ([a-z]+ - ("if" | "in" [a-z]*)) " " a?',
        'a = ? %json {"type": "array", "items": {"const": "?"}} ?, ["!"];',
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


@pytest.mark.parametrize(
    ("grammar", "line", "column", "says"),
    [
        ("a = 'x' 'y';", 1, 9, "must come a comma"),
        ("a = 'x'\nb = 'y';", 2, 1, "a semicolon"),
        ("a = 'x', b;", 1, 10, "'b' used but not defined|'b' is used but not defined"),
        ("a = 'x;\n", 1, 5, "literal is never closed"),
        ("a = ('x';", 1, 5, "bracket is never closed"),
        ("a = 'x'; (* a", 1, 10, "comment is never closed"),
        ("a = 'x'; a = 'y';", 1, 10, "defined twice"),
        ("a = ? letters ?;", 1, 5, r"terminals=\{'letters': Regex"),
        ("a = ? letters ;", 1, 5, "special sequence is never closed"),
        ("a = ? /[a/ ?;", 1, 5, "unterminated character set"),
        ("a = '';", 1, 5, "never empty"),
        ("a = 3 'x';", 1, 7, r"must come \*"),
        ("a = ['x', a] - 'b';", 1, 14, "Only what is regular"),
        ('a ::= ("(" a ")" | "x") - "x"', 1, 25, "Only what is regular"),
    ],
)
def test_errors(grammar: str, line: int, column: int, says: str) -> None:
    with pytest.raises(GrammarError, match=says) as error:
        structgen.compile(Cfg(grammar), TINY)
    assert (error.value.line, error.value.column) == (line, column)


def test_dialects_are_told_apart() -> None:
    assert cfg.dialect_of(ITS_OWN) == "iso-ebnf"
    assert cfg.dialect_of('start: A\nA: "b = c"\n') == "lark"
    assert cfg.dialect_of('start: "x"\n   | "="') == "lark"
    assert cfg.dialect_of("a ::= 'x'", "g.ebnf") == "ebnf"
    assert cfg.dialect_of("a = 'x';", "g.ebnf") == "iso-ebnf"
    assert cfg.dialect_of('root ::= "x"', "g.ebnf") == "ebnf"
    assert read(Cfg("a = 'x'; two words = 'y';", start="two words"), "y")
    assert read(Cfg("a = 'x';", dialect="iso-ebnf"), "x")
    with pytest.raises(GrammarError, match="Choose 'lark', 'gbnf', 'ebnf' or 'iso-ebnf'"):
        Cfg("a = 'x';", dialect="iso")


def test_problems_are_told() -> None:
    found = problems("a = 'x', [never];\nnever = 'x', never;\nlost rule = 'y';")
    assert [(p.line, p.is_error) for p in found] == [(2, False), (3, False)]
    assert "'lost rule'" in found[1].message
