"""Terminals given to grammars from outside, and grammars beside other output types."""

from __future__ import annotations

import random
import re
from typing import Annotated, Any, Literal

import cfg_cases
import inside
import pytest
from engine.walks import TINY, accepts, allowed, brute_force_ids, minimum, seeds, walk
from pydantic import BaseModel, Field

import structgen
from structgen import Cfg, Choice, OutputTypeError, Regex
from structgen.constraint.check_grammar import problems
from structgen.errors import GrammarError
from structgen.types import SpecialToken, lower

PARENS = 'start: "(" start ")" | "x"'


class Point(BaseModel):
    x: Annotated[int, Field(ge=0, le=99)]
    tags: set[Literal["a", "b"]] = set()


GIVEN: list[tuple[Cfg, dict[str, bool]]] = [
    (
        Cfg(
            'start: "call " NAME BODY\n%declare NAME BODY',
            terminals={"NAME": r"[a-z]+", "BODY": Point},
        ),
        {'call f{"x":1,"tags":["a","b"]}': True, 'call f{"x":1,"tags":["a","a"]}': False},
    ),
    (Cfg("  start: A\n  %declare A B\n", terminals={"A": "x+"}), {"xx": True, "y": False}),
    (
        Cfg("start: A B C?", terminals={"A": "[a-z]+", "B": Literal["x", "-", 3], "C": bool}),
        {"ab-true": True, "ab3": True, "abx": False, "3": False},
    ),
    (
        Cfg("start: A B", terminals={"A": Regex("[a-z]+") - "no", "B": Choice(["x", "yy"])}),
        {"abx": True, "nox": False, "noxx": True, "ayy": True},
    ),
    (
        Cfg('root ::= a ("," b)*', terminals={"a": "[a-z]+(?<!q)", "b": int}),
        {"ab,12,-3": True, "q,1": False, "ab": True},
    ),
    (
        Cfg("start: N N\n%ignore SPACE", terminals={"N": r"\d+", "SPACE": "[ ]+"}),
        {"1 2": True, "12": False, " 1  2 ": True},
    ),
    (Cfg(PARENS) | int | None, {"((x))": True, "-12": True, "null": True, "(12)": False}),
    (Regex("a+") | (Cfg(PARENS) | Point), {"aa": True, '{"x":5,"tags":[]}': True, "(a)": False}),
    (Cfg(PARENS) | Cfg('start: "(" start ")" | "y"'), {"((y))": True, "(x)": True, "(y": False}),
]  # type: ignore[list-item]


@pytest.mark.parametrize(("output_type", "texts"), GIVEN)
def test_verdicts_masks_and_budgets(output_type: Any, texts: dict[str, bool]) -> None:
    rng = random.Random(1)
    constraint = structgen.compile(output_type, TINY)
    for text, expected in texts.items():
        for _ in range(3):
            assert accepts(constraint, text, rng) == expected, text
    least = minimum(constraint)
    for _ in seeds(6):
        result = walk(constraint, rng, max_tokens=least + rng.choice((0, 1, 4, 20)), special=0.3)
        assert result.ended
        assert accepts(constraint, result.text, rng)
    cursor = constraint.start()
    for _ in range(12):
        state = inside.state(cursor)
        ids = allowed(cursor)
        if "tags" not in bytes(b"".join(TINY.tokens[t] for t in inside.tokens(cursor))).decode(
            "latin1"
        ):
            assert set(ids) == brute_force_ids(constraint, state, TINY)
        rest = [i for i in ids if i not in TINY.eos_token_ids]
        if not rest:
            break
        cursor.accept(rng.choice(rest))


def test_a_given_pattern_is_one_that_stands_there() -> None:
    """Every grammar of the cases, its first terminals given instead of defined."""
    rng = random.Random(2)
    for name, text in cfg_cases.GRAMMARS.items():
        found = re.findall(r"^\s*([A-Z]+): (/(?:[^/\n]|\\/)+/)$", text, re.MULTILINE)
        used = [n for n, _ in found if not re.search(rf"^\s*[A-Z_]+:.*\b{n}\b", text, re.MULTILINE)]
        given = {n: p[1:-1].replace(r"\/", "/") for n, p in found if n in used}
        if not given:
            continue
        rest = re.sub(rf"^\s*(?:{'|'.join(given)}): .*$", "", text, flags=re.MULTILINE)
        whole = structgen.compile(Cfg(text), TINY)
        parted = structgen.compile(Cfg(rest, terminals=given), TINY)
        for _ in seeds(15):
            sentence = cfg_cases.sentence(cfg_cases.grammar(name), name, rng)
            for candidate in (sentence, cfg_cases.mutated(sentence, rng, sentence or "a")):
                assert accepts(whole, candidate, rng) == accepts(parted, candidate, rng), name


def test_values() -> None:
    either = lower(Cfg(PARENS) | int | Point | None)
    assert [either.parse(t) for t in ("(x)", "12", "null")] == ["(x)", 12, None]
    assert either.parse('{"x":1,"tags":["b"]}') == Point(x=1, tags={"b"})
    assert either.name == f"{Cfg(PARENS)!r} | int | Point | None"
    grammar = Cfg("start: A", terminals={"A": Choice([1])})
    assert grammar == Cfg("start: A", terminals={"A": Choice([1])})
    assert grammar != Cfg("start: A", terminals={"A": Choice([True])})
    assert lower(grammar).parse("1") == "1"


@pytest.mark.parametrize(
    ("grammar", "terminals", "says"),
    [
        ("start: A\n%declare A", {}, r"A is declared .* never defined.*terminals=\{'A'"),
        ("start: A", {"A": Cfg(PARENS)}, "is a grammar, which"),
        ("start: A", {"A": Cfg(PARENS) | int}, "is a grammar, which"),
        ("start: Aa", {"AB": "a"}, "'AB', but the grammar does not use it"),
        ("start: a", {"a": "b"}, "IN_CAPITALS"),
        ("start: A", {"A": "a*"}, "can match the empty text"),
        ("start: A", {"A": "(a"}, "unterminated"),
        ("start: A", {"A": Regex("a*")}, "terminal A matches the empty text"),
        (
            "start: A",
            {"A": Regex("a(?!a)") & Regex("b")},
            "terminal A cannot be used: no text matches",
        ),
        ("start: A", {"A": object()}, "Terminal A cannot be used"),
        ('start: A\nA: "b"', {"A": "a"}, "is both in terminals= and defined here"),
        ('root ::= a\na ::= b\nb ::= "x"', {"a": "a"}, "is both in terminals= and defined"),
        ('start: A "b"\n%ignore A', {"A": int}, "Only patterns can be ignored"),
        ("start: B\nB: A+", {"A": "a"}, "part of another terminal"),
        ("start: A", {"A": SpecialToken("[CALL]")}, r"no special token \[CALL\]"),
    ],
)
def test_errors(grammar: str, terminals: dict[str, Any], says: str) -> None:
    with pytest.raises(GrammarError, match=says):
        structgen.compile(Cfg(grammar, terminals=terminals), TINY)


def test_grammars_are_no_part_of_json() -> None:
    for output_type in (list[Cfg(PARENS)], dict[str, Annotated[str, Cfg(PARENS)]]):  # type: ignore[misc]
        with pytest.raises(OutputTypeError, match="cannot be part of a JSON value"):
            structgen.compile(output_type, TINY)
    with pytest.raises(OutputTypeError, match="cannot be part of a JSON value"):

        class _Model(BaseModel):
            text: Annotated[str, Cfg(PARENS)]

    with pytest.raises(OutputTypeError, match="not an output type on its own"):
        structgen.compile(SpecialToken("<x>"), TINY)
    with pytest.raises(OutputTypeError, match="name of a token"):
        SpecialToken("")
    with pytest.raises(GrammarError, match="must be a dict"):
        Cfg("start: A", terminals=["A"])  # type: ignore[arg-type]
    (problem,) = problems("start: A\n  %declare A")
    assert (problem.line, problem.is_error) == (2, False)
    assert "Define it, or pass it" in problem.message


def test_what_is_given_is_shown() -> None:
    assert repr(Cfg("start: A", terminals={"A": "x+"})) == "Cfg('start: A', terminals={'A': 'x+'})"
    assert repr(Cfg('start: "a"')) == "Cfg('start: \"a\"')"
