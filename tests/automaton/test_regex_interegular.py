"""Languages of regular expressions against `interegular`, which decides them by eager DFAs.

It shares nothing with the derivatives here: intersection, complement, difference, emptiness and
overlap of generated patterns have to come out the same. What the two do not both read (lookarounds,
flags, anchors inside) is not generated.
"""

from __future__ import annotations

import itertools
from typing import Any

import interegular
from engine.walks import examples
from hypothesis import given
from hypothesis import strategies as st

from structgen import Regex
from structgen.automaton.regex import RegexAutomaton
from structgen.automaton.schema import evaluate
from structgen.grammar.regex import algebra
from structgen.types.regexes import TextPattern

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab0", repeat=n)]
_ATOMS = st.sampled_from(["a", "b", "0", "[ab]", "[^a]", r"\d", r"\w", ".", "ab", "[0-9a-f]", "x"])


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, counts).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(_ATOMS, _wider, max_leaves=6)


def fsm(pattern: str) -> Any:
    return interegular.parse_pattern(pattern).to_fsm()


def is_empty(pattern: TextPattern) -> bool:
    return RegexAutomaton(algebra.lower(pattern.expression())).is_empty()


def language(pattern: TextPattern) -> set[str]:
    regex = algebra.lower(pattern.expression())
    return {text for text in TEXTS if evaluate.matches(regex, text)}


def of(machine: Any) -> set[str]:
    return {text for text in TEXTS if machine.accepts(text)}


@given(PATTERNS, PATTERNS)
@examples(150)
def test_overlap_and_intersection(one: str, other: str) -> None:
    both = fsm(one) & fsm(other)
    assert Regex(one).overlaps(Regex(other)) == (not both.empty())
    assert is_empty(Regex(one) & Regex(other)) == both.empty()
    assert language(Regex(one) & Regex(other)) == of(both)


@given(PATTERNS, PATTERNS)
@examples(150)
def test_complement_difference_and_union(one: str, other: str) -> None:
    first, second = fsm(one), fsm(other)
    assert language(~Regex(one)) == of(first.everythingbut())
    rest = first.difference(second)
    assert language(Regex(one) - Regex(other)) == of(rest)
    assert is_empty(Regex(one) - Regex(other)) == rest.empty()
    assert language(Regex(one) | Regex(other)) == of(first | second)


@given(PATTERNS, PATTERNS)
@examples(100)
def test_inclusion_and_equality(one: str, other: str) -> None:
    first, second = fsm(one), fsm(other)
    assert is_empty(Regex(one) - Regex(other)) == first.issubset(second)
    same = is_empty(Regex(one) - Regex(other)) and is_empty(Regex(other) - Regex(one))
    assert same == first.equivalent(second)


def test_generated_pairs_are_of_both_kinds() -> None:
    # Otherwise what is above could not fail.
    assert not (fsm("[ab]+") & fsm("b0*")).empty()
    assert (fsm("a+") & fsm("b+")).empty()
    assert Regex("[ab]+").overlaps("b")
    assert not Regex("a+").overlaps(Regex("b+"))
