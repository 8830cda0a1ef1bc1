"""llguidance's Lark: what its terminals, options and embedded parts mean, against Python."""

from __future__ import annotations

import itertools
import re

import pytest

import structgen
from structgen.constraint.check_grammar import problems
from structgen.errors import CompileLimitExceeded, GrammarError
from structgen.grammar import cfg
from structgen.vocabulary import Vocabulary

BYTES = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])


def compiled(text: str) -> structgen.Constraint:
    return structgen.compile(structgen.Cfg(text, dialect="llguidance"), BYTES)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("start: /a+/ B\nB: 'b'".replace("'", '"'), "a+b"),
        ('start: "a"{2,3} "b"{1} "a"~0..1', "a{2,3}ba?"),
        ('start: x{,2} "b"?\nx: "a" | "c" // names\n  | "ac"', "(a|c|ac){0,2}b?"),
        ('start: ["a"] ("b" | "c"i)+ -> named', "a?(b|c|C)+"),
        ("start: T\nT: /[abc]+/ & ~/(?s:.*)b(?s:.*)/", "[ac]+"),
        ("start: T | 'b'\nT: A & /[bc]*/ | 'aa'\nA: /[ab]*/".replace("'", '"'), "b*|aa"),
        ("start: T\nT: ~('a' | 'b')+ & /[ab]{0,3}/".replace("'", '"'), "(?!(a|b)$)[ab]{0,3}"),
        ('start: x "c"\nx[lazy]: /a*b/', "a*bc"),
        ('start: x /[abc]*/\nx[suffix="b"]: /(?s:.*)/', "[^b]*b[abc]*"),
        ('start: x "a"\nx[suffix=B]: /[ab]*/\nB: /b|c/', "a*(b|c)a"),
        ('start: x\nx[suffix="b", lazy]: /[abc]+/', "[abc][ac]*b"),
        ('start: x\nx[stop=""]: /a*/', "a*"),
        ('start: x\nx[stop="ab"]: "ab"', "ab"),
        ('start: x "a"\nx[stop="bc"]: /[abc]*/', "(?!.*bc.*a$)[abc]*a"),
        ('start: x "b"\nx[stop=/b?/]: /[abc]*/', "[ac]*b"),
        ('start: "a" | T "b"\nT: /ab/ & /b+/', "a"),
        ('start: "a" T? x\nT: /a/ & /b/\nx: T | "b" | x T', "ab"),
        (
            'start: p::0 "c"?\np::_: "" %if bit_count_eq([0:2], 2)\n'
            '  | "a" p::set_bit(0) -> named %if bit_clear(0)\n'
            '  | "b" p::bit_or(0x2) %if not(bit_set(1))',
            "(ab|ba)c?",
        ),
        (
            "start: p::6\np::_: /[ab]/ p::decr([1:3]) %if gt([1:3], 0)\n"
            "  | /c/ %if and(is_zeros(_), or(true, le(_, 1)))",
            "[ab]{3}c",
        ),
        (
            "start: p::0\np::_: /a/ p::incr(_) %if lt(_, 3)\n  | q::_\n"
            'q::_: "b" q::incr([0:64]) %if ne(_, 3)\n  | ""',
            "(?=.{,3}$)a*b*",
        ),
        ('start: "a" "b"\n%ignore "c"', "ac*bc*"),
        (
            '%llguidance {"ignore_once": true}\nstart: "a" "b"\n%ignore /c/ | "aa"',
            "a(c|aa)?b(c|aa)?",
        ),
        ('%llguidance {"allow_initial_skip": true}\nstart: "a"*\n%ignore "c"', "c*(ac*)*"),
        ('start: "a" %lark {\n  start: x\n  x: "b" "c"?\n  %ignore "a"\n}\nx: "z"', "aba*(ca*)?"),
        ('start: "a".."b" x-y\nx-y: "c"', "[ab]c"),
        ('start: %regex {"substring_chars": "abca"}', "|a|ab|abc|abca|b|bc|bca|c|ca"),
        ('start: %regex {"substring_chunks": ["ab", "c"]} "a"', "(ab|abc|c|)a"),
        ("start: A\n%import common.LETTER -> A", "[a-zA-Z]"),
        (r"start: /(?<n>\u{61}|[\x{62}(?<n>])+/u", "[ab]+"),
        ("start: A B\n%import common (LETTER)\nA: LETTER\nB: /b/x", "[a-zA-Z]b"),
        (r'start: "\x61\u0062" "\\"?', r"ab\\?"),
    ],
)
def test_meaning(text: str, pattern: str) -> None:
    allows = compiled(text).allows
    every = ["".join(p) for n in range(5) for p in itertools.product("abcC\\", repeat=n)]
    found = [t for t in every if allows(t)]
    assert found == [t for t in every if re.fullmatch(pattern, t)]


def test_words_in_a_row() -> None:
    allows = compiled('start: "<" %regex {"substring_words": "one two, three"} ">"').allows
    yes = ["", "one", "one two", " two,", "two, three", ", ", "one two, three"]
    assert [t for t in yes if not allows(f"<{t}>")] == []
    assert not any(allows(f"<{t}>") for t in ("o", "one  two", "three one", "two,three"))


def test_json_and_tokens_stand_in_rules() -> None:
    grammar = cfg.parse(
        'start: <|a|> %json {"type": "boolean"} <[5,7-8]> T\n%ignore " "\nT: "t"',
        None,
        "llguidance",
    )
    names = {one.name for one in grammar.terminals}
    assert {"<|a|>", "<[5,7-8]>"} <= names
    allows = compiled('start: "a" %json {"enum": [true, 1]} "b"\n%ignore " "').allows
    assert [t for t in ("atrueb", "a  1 b", "a2b", " a1b") if allows(t)] == ["atrueb", "a  1 b"]


def test_it_is_told_by_its_command() -> None:
    text = '%llguidance {}\nstart: "a"{2}'
    assert cfg.dialect_of(text) == cfg.dialect_of(text, "a.lark") == "llguidance"
    assert cfg.dialect_of('start: "a"', "a.lark") == "lark"
    constraint = structgen.compile(structgen.Cfg(text), BYTES)
    assert [constraint.allows("a" * n) for n in (1, 2, 3)] == [False, True, False]
    assert cfg.definitions("start: T\n  | x\nx: T\nT: /a/", "llguidance") == {
        "start": (0, {"T", "x"}),
        "x": (15, {"T"}),
        "T": (20, set()),
    }


def test_what_options_and_ignored_text_name_is_used() -> None:
    text = 'start: y "a"\ny[suffix=B]: /a*/\nB: "b"\nWS: " "\n%ignore WS\nZ: "z"'
    (problem,) = problems(text, dialect="llguidance")
    assert "'Z' is defined but never used" in str(problem)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('start[stop_capture="x", stop="b"]: /a/', "stop_capture= requires suffix="),
        (
            "start[max_tokens=3.5]: /a/",
            "max_tokens= must be a whole number up to 1,000,000, not 3.5",
        ),
        ("start[max_tokens=9999999]: /a/", "max_tokens= must be a whole number up to 1,000,000"),
        ("start[temperature=-1]: /a/", "temperature= must be 0 or more, not -1"),
        ("start[temperature=1]: x\nx: /a/", "x cannot be in a terminal"),
        ("start[temperature=1]: %json {} /a/", "A rule with limits must be %json alone"),
        ("start[max_tokens=2]: %json {}", "max_tokens= is not supported for %json"),
        ("start[max_tokens=2, max_tokens=3]: /a/", "max_tokens is given twice"),
        ('start[lazy, stop="b"]: /a/', "A rule ends at stop=, or at suffix= or lazy"),
        ("start[huge]: /a/", "Unknown option 'huge'"),
        ("start: T\nT[capture]: /a/", "Only rules have options. Write t[…]"),
        ("start: x\nx::_: 'a'".replace("'", '"'), "'x' has a number, as in x::0"),
        ("start: x::0\nx: 'a'".replace("'", '"'), "'x' has no number"),
        ("start: x::_\nx::_: /a/", "Only numbered rules have a number"),
        ("start: x::0\nx::_: T\nT: /a/ %if true", "Only numbered rules have a number"),
        ("start: x::0\nx::_: /a/ %if set_bit(1)", "'set_bit' is not a condition"),
        ("start: x::0\nx::_: /a/ %if eq([3:1], 2)", "'[' is not bits, like [0:3]"),
        ("start: x::0\nx::_: x::set_bit(99999999)", "'set_bit' is not a number of 64 bits"),
        ("start: x::0\nx::_: /a/ %if " + "not(" * 200, "Brackets are nested more than"),
        ("start: T\nT: /a/ & /b/", "no text matches"),
        ("start: a{x}\na: /a/", "Expected number"),
        ("start.2: /a/", "llguidance has no priorities"),
        ("start: @other", "Other grammars are not supported. Write %lark"),
        ("start: <[^*]>", "several by their ids, <[12,20-30]>"),
        ("start: <[9-3]>", "several by their ids, <[12,20-30]>"),
        ("start: x", "'x' is not defined. Define it"),
        ("start: X", "X is not defined. Define it"),
        ("start: A\nA: B\nB: A", "Terminal A contains itself"),
        ("start: T\nT: %json {}", "cannot be in a terminal"),
        ("start: T\nT: x\nx: /a/", "cannot be in a terminal"),
        ("start: /a/ & /b/", "& is only for terminals"),
        ("start: /a/{3,2}", "The first number is the minimum"),
        ("start: /a(/", "line 1, column 8"),
        ("start: /a/lu", "Unknown flags 'lu'"),
        ('start: "ab".."c"', "A range goes from one character"),
        ("start: /a/\nstart: /b/", "start is defined twice"),
        ('start: "a', "is not closed"),
        ("start: ( /a/", "Expected )"),
        ("start: /a/ )", "cannot continue with ')'"),
        ("start: %regex {}", "%regex takes"),
        ('%llguidance {"x": 1}\nstart: /a/', "has an option 'x'"),
        ('%llguidance {"ignore_once": 1}\nstart: /a/', "must be true or false"),
        ("start: /a/\n%import common.NOPE", "Lark's common has no NOPE"),
        ("start: /a/\n%import other.A", "Only common"),
        ("start: %lark { start: /a/", "Expected a rule, a terminal or a command"),
        ("start: " + "(" * 200, "Brackets are nested more than"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)) as caught:
        compiled(text)
    assert "line" in str(caught.value)


def test_numbers_are_bounded() -> None:
    ways = "".join(f'\n  | "{chr(97 + i)}" p::set_bit({i}) %if bit_clear({i})' for i in range(20))
    grammar = structgen.Cfg(f'start: p::0\np::_: "" {ways}', dialect="llguidance")
    with pytest.raises(CompileLimitExceeded, match="too many numbers of rules"):
        structgen.compile(grammar, BYTES, max_work=20_000)


def test_terminals_that_no_text_matches_are_warned_about() -> None:
    text = 'start: T | "a"\nT: /ab/ & /b/'
    (problem,) = problems(text, dialect="llguidance")
    assert str(problem).startswith("warning: line 1: the terminal at line 1, column 8 matches no")


def test_terminals_in_terminals_are_bounded() -> None:
    levels = "\n".join(f"T{n}: T{n + 1} T{n + 1}" for n in range(40))
    with pytest.raises(CompileLimitExceeded, match="terminals inside terminals"):
        compiled(f"start: T0\n{levels}\nT40: /[a-z]/")
