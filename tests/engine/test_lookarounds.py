"""Lookarounds in every place, repeats and each other included: automata against Python's ``re``."""

from __future__ import annotations

import random
import re

import pytest
import regex_oracle
from guards import counted

from engine.walks import seeds
from structgen import UnsupportedFeature
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.lookarounds import Lookarounds
from structgen.errors import CompileLimitExceeded, PatternError
from structgen.grammar import ir
from structgen.grammar.regex.read import parse_ecma, parse_python

REPEATED = [
    r"(?:\w+\b )+",
    r"(?:a(?=b)|b)*",
    r"(?:(?<=a)b|a|(?<!a)-)*",
    r"(?:(?!ab)[ab]{2})+",
    r"(?:\b\w{1,3}\b[ ,]*)+",
    r"(?:(?=[a-z])(?=.*1)\w+ )+",
    r"(?:(?<!\d)\d{3}(?!\d)|\D)+",
    r"(?:a|b(?=(?:ab)*$))*",
    r"(?:(?=a)?b?){5}a",
    r"(?:(?=ab|b)){3}(?:a|b)+",
    r"(?:(?<=a(?=b))b|a)+",
    r"(?:a\B|b\b|-)*",
    r"(?m:(?:^a$\n?)+)",
    r"(?:x|(?<=^)a|(?<=aa)b$)*",
    r"((?!a.*a)(?:a|b)){2,4}",
]


@pytest.mark.parametrize("pattern", REPEATED)
def test_inside_repeats(pattern: str) -> None:
    automaton = RegexAutomaton(parse_python(pattern))
    compiled = re.compile(pattern)
    rng = random.Random(pattern)
    verdicts = set()
    for _ in range(600):
        letters = rng.choice(["ab", "ab-", "ab1 ,x\n"])
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 8)))
        expected = compiled.fullmatch(text) is not None
        verdicts.add(expected)
        assert automaton.accepts(text) == expected, text
    assert verdicts == {True, False}


def test_generated_patterns() -> None:
    rng = random.Random(23)
    generator = regex_oracle.PatternGenerator(rng, "python", lookarounds=True)
    judged = accepted = 0
    for _ in seeds(400):
        pattern = generator.pattern()
        try:
            regex = parse_python(pattern)
        except (PatternError, UnsupportedFeature):
            continue
        automaton, compiled = RegexAutomaton(regex), re.compile(pattern)
        for text in regex_oracle.texts_for(regex, rng, "aabbAk1_ -\n", 9):
            expected = compiled.fullmatch(text) is not None
            judged += 1
            accepted += expected
            assert automaton.accepts(text) == expected, (pattern, text)
    assert judged > 5 * len(seeds(400))
    assert accepted > judged / 10


def test_no_state_is_dead() -> None:
    """From every state an end can be reached, by the automaton's own moves."""
    for pattern in REPEATED:
        automaton = RegexAutomaton(parse_python(pattern))
        seen, todo = {automaton.start}, [automaton.start]
        before: dict[int, set[int]] = {}
        while todo:
            state = todo.pop()
            for _, to in automaton.moves(state):
                before.setdefault(to, set()).add(state)
                if to not in seen:
                    seen.add(to)
                    todo.append(to)
        assert len(seen) < 300, pattern
        alive = {state for state in seen if automaton.label(state) >= 0}
        todo = list(alive)
        while todo:
            new = before.get(todo.pop(), set()) - alive
            alive |= new
            todo += new
        assert alive == seen, pattern


def test_contradictions_are_empty() -> None:
    for pattern in [r"(?:a(?=b))+", r"(?:\ba\b){2}", r"(?:a(?<!a)|b(?=a))*c(?<=d)", r"(?:(?!))+"]:
        assert RegexAutomaton(parse_python(pattern)).is_empty(), pattern


def test_intersections_and_complements_see_a_text_of_their_own() -> None:
    word = parse_python(r"a+\b")
    assert RegexAutomaton(ir.Concat((ir.Intersect((word,)), ir.literal("b")))).accepts("aab")
    assert not RegexAutomaton(ir.Concat((word, ir.literal("b")))).accepts("aab")
    end = ir.Complement(ir.Concat((ir.literal("a"), ir.EndAnchor())))
    assert not RegexAutomaton(ir.Concat((end, ir.literal("b")))).accepts("ab")
    assert RegexAutomaton(ir.Concat((end, ir.literal("b")))).accepts("aab")


def test_too_much_work_is_an_error() -> None:
    with pytest.raises(CompileLimitExceeded, match="needs too much work"):
        RegexAutomaton(parse_ecma("a" * 5000 + "(?!b)" + "c" * 5000)).is_empty()


def test_a_long_pattern_is_quick() -> None:
    automaton = RegexAutomaton(parse_python("x" * 3000 + r"(?:\b \b)?y(?!z)"))
    assert automaton.accepts("x" * 3000 + " y")
    assert not automaton.accepts("x" * 2999 + " y")


def test_lookbehinds_in_each_other_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, Lookarounds, "_empty")
    automaton = RegexAutomaton(parse_ecma("(?<=" * 40 + "a" + ")b" * 40))
    assert not automaton.is_empty()
    assert len(asked) < 10_000
