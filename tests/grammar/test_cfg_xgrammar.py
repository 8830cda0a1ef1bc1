"""XGrammar's EBNF: what its options, macros and lookaheads mean, against Python and by hand."""

from __future__ import annotations

import itertools
import re

import pytest

import structgen
from structgen.errors import GrammarError, TokenNotAllowed
from structgen.grammar import cfg
from structgen.vocabulary import Vocabulary

TOKENS = [bytes([b]) for b in range(256)] + [b"", b"ab", b"<t>", b""]
VOCABULARY = Vocabulary.from_tokens(TOKENS, eos_token_ids=[256], named_tokens={"<|x|>": 259})


ONCE = "((?!ab).)*(abc)?"
TWO = "([ac]*(abc|ba))*[ac]*"
BEFORE_BB = "(?!.*bb..)(aac|(?!aa).)*bb"


def compiled(text: str) -> structgen.Constraint:
    return structgen.compile(structgen.Cfg(text, dialect="xgrammar"), VOCABULARY)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('root ::= a.b {2, 3} "c" ?  # …\na.b ::= "a" | "b"', "[ab]{2,3}c?"),
        ('root ::= "a" {1,-1} ( ) ("b"+)*', "a+b*"),
        (r'root ::= "\x61\u0062" [\x62-\x63\]\-]', r"ab[bc\]-]"),
        ('root ::= x "b"* (= "a")\nx ::= "a" (=[bc])', "ab*"),
        ('root ::= x [a-c]*\nx[lazy] ::= "a"* "b"', "a*b[a-c]*"),
        ('root ::= x "c"\nx[max_chars=2] ::= [ab]*', "[ab]{,2}c"),
        ('root ::= x "a"\nx [max_chars=1] ::= "a" "b"? "c"'.replace("x [", "x["), "ab?ca"),
        ('root ::= x "a"\nx[max_chars = 1, lazy] ::= [ab]+', "[ab]a"),
        ('root ::= Regex("a.\\\\x61?(?<n>b)") "c"', "a[abc]a?bc"),
        ('root ::= Regex("A", flags="i") | Regex("^b$")', "[aAb]"),
        ('root ::= Regex("[^c]+", json_string=true)', "[^c\"\\\\]+"),
        ('root ::= Substring("ab", "c", "a") "b"', "(ab|abc|abca|c|ca|a)?b"),
        ('root ::= TagDispatch(("ab", x))\nx ::= "c"', "((?!ab).|abc)*"),
        ('root ::= TagDispatch(("ab", x), ("b", y))\nx ::= "c"\ny ::= "a"', TWO),
        ('root ::= TagDispatch(("ac", x), excludes=("c",))\nx ::= "b"', "[ab]*"),
        ('root ::= TagDispatch(("ab", x), loop_after_dispatch=false)\nx ::= "c"', ONCE),
        ('root ::= t "bb"\nt ::= TagDispatch(("aa", x), excludes=("bb",))\nx ::= "c"', BEFORE_BB),
    ],
)  # fmt: skip
def test_meaning(text: str, pattern: str) -> None:
    allows = compiled(text).allows
    every = ["".join(p) for n in range(6) for p in itertools.product("abc", repeat=n)]
    found = [t for t in every if allows(t)]
    assert found == [t for t in every if re.fullmatch(pattern, t)]


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ('root ::= Token(257, 259) "c"', [[257, 99], [259, 99]], [[97, 98, 99], [258, 99]]),
        ('root ::= ExcludeToken(257)+ "c"', [[97, 258, 99]], [[257, 99], [99], [0xE9, 99]]),
        (
            "root ::= TokenTagDispatch((257, x), excludes=(258,))\nx ::= [a-b]",
            [[], [97, 259], [257, 97, 98], [97, 257, 98, 257, 97]],
            [[257], [257, 99], [258], [257, 258]],
        ),
        (
            "root ::= TokenTagDispatch((257, x), loop_after_dispatch=false)\nx ::= [a-b]",
            [[], [97, 257, 98]],
            [[257, 97, 98]],
        ),
    ],
)
def test_tokens(text: str, yes: list[list[int]], no: list[list[int]]) -> None:
    constraint = compiled(text)

    def is_whole(tokens: list[int]) -> bool:
        cursor = constraint.start()
        try:
            for token in tokens:
                cursor.accept(token)
        except TokenNotAllowed:
            return False
        return cursor.is_accepting

    assert [t for t in yes if not is_whole(t)] == []
    assert [t for t in no if is_whole(t)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root[max_tokens=3] ::= [a]", "max_tokens=3 of a rule is not supported. Limit the char"),
        ("root[temperature=0.5] ::= [a]", "Pass temperature= to the generator"),
        ('root[stop_capture="x"] ::= [a]', "capture is supported"),
        ("root[lazy=1] ::= [a]", "option lazy=1"),
        ("root ::= x\nx[lazy] ::= [a] x | [b]", "regular parts can be in a rule with lazy"),
        ("root ::= [a] b ::= [b]", "must be the first on its line"),
        ("root ::= [a]++", "found '+'"),
        ("root ::= [a] (=[b]", "This lookahead is not closed"),
        ("root ::= [a] (=b)", "'b' is used but not defined"),
        ("root ::= Token()", "Write Token as Token(12, 13)"),
        ('root ::= Regex("a", flags="x")', "Write Regex as Regex("),
        ('root ::= Regex("(")', "Python regular expression is malformed"),
        ('root ::= TagDispatch(("ab", root), excludes=("a",))', "Write TagDispatch as"),
        ("root ::= TokenTagDispatch((1, root), excludes=(1,))", "Write TokenTagDispatch as"),
        ('root ::= TagDispatch(("ab", no))', "'no' is used but not defined"),
        ('root ::= TagDispatch(("ab", root)', "Expected , or ) in the arguments"),
        ("root ::= Token((1 2))", "Expected , or ) in a tuple"),
        ("root ::= Token(" + "(" * 200, "Brackets are nested more than"),
        ("root ::= Token([a])", "Expected a text, a number"),
        ('start ::= "a"', "no rule 'root'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        compiled(text)


def test_captures_come_back_by_name() -> None:
    text = 'root ::= n ("," n)* " " w\nn[capture="number"] ::= [0-9]+\nw[capture, lazy] ::= [a-z]+'
    value = structgen.types.lower(structgen.Cfg(text, dialect="xgrammar")).parse("1,22 x")
    assert value.all_captures == (("number", "1"), ("number", "22"), ("w", "x"))


def test_rules_and_what_they_use() -> None:
    text = 'root[lazy] ::= Substring("a") (= x)\nx ::= TagDispatch(("a", y))\ny ::= "b"'
    assert cfg.definitions(text, "xgrammar") == {
        "root": (0, set()),
        "x": (36, {"y"}),
        "y": (64, set()),
    }
