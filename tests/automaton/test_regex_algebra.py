"""Regular expressions put together: against sets of texts, bare and inside JSON."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Annotated, Any

import pytest
from engine.walks import TINY, accepts, minimum, walk
from pydantic import BaseModel, TypeAdapter, ValidationError

import structgen
from structgen import OutputTypeError, Regex
from structgen.automaton.schema import evaluate
from structgen.errors import PatternError
from structgen.grammar.regex import algebra as regex_algebra
from structgen.types.regexes import TextPattern

RNG = random.Random(4)
TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product("ab-", repeat=n)]
A, AB, WORD = Regex("a"), Regex("ab|b+"), Regex(r"[ab]+\b|-")


def language(pattern: TextPattern) -> set[str]:
    regex = regex_algebra.lower(pattern.expression())
    return {text for text in TEXTS if evaluate.matches(regex, text)}


def of(source: str) -> set[str]:
    return {text for text in TEXTS if re.fullmatch(source, text)}


def rows(part: set[str], least: int, most: int) -> set[str]:
    found: set[str] = set()
    at = {""}
    for count in range(most + 1):
        if count >= least:
            found |= at
        at = {text for a in at for b in part if (text := a + b) in set(TEXTS)}
    return found


def test_operators() -> None:
    assert language(A | AB) == of("a|ab|b+")
    assert language(Regex("[ab]*") & Regex(".{2}")) == of("[ab]{2}")
    assert language(~AB) == set(TEXTS) - of("ab|b+")
    assert language(Regex("[ab]+") - "ab" - Regex("b.*")) == of("[ab]+") - {"ab"} - of("b.*")
    assert language(A + AB + "-") == of("a(?:ab|b+)-")
    assert language("a" + AB) == language(A + AB)
    assert language("a" | AB) == language(A | AB)
    assert language("." + A) == set()


def test_counts() -> None:
    part = of("ab|b+")
    assert language(AB.exactly(2)) == rows(part, 2, 2)
    assert language(AB.at_least(2)) == rows(part, 2, 6)
    assert language(AB.at_most(2)) == rows(part, 0, 2)
    assert language(AB.between(1, 3)) == rows(part, 1, 3)
    assert language(AB.optional()) == rows(part, 0, 1)
    assert language(AB.zero_or_more()) == rows(part, 0, 6)
    assert language(AB.one_or_more()) == rows(part, 1, 6)
    assert evaluate.matches(regex_algebra.lower(A.exactly(1000).expression()), "a" * 1000)


def test_parts_are_languages_of_their_own() -> None:
    """What a part's anchors and lookarounds see ends where the part does."""
    assert language(WORD + "b") == {text + "b" for text in of(r"[ab]+\b|-")} & set(TEXTS)
    assert language(Regex("(?!ab).*") + "b") == {t + "b" for t in of("(?!ab).*")} & set(TEXTS)
    assert language(Regex("a$|^b").exactly(2)) == {"aa", "ab", "ba", "bb"}
    ends_otherwise = set(TEXTS) - of(r".*a\b.*")
    assert language(~Regex(r".*a\b.*") + "-") == {t + "-" for t in ends_otherwise} & set(TEXTS)


@pytest.mark.parametrize(
    "pattern",
    [
        Regex("[ab]{1,4}") & ~Regex("ab.*"),
        (Regex("a") | "bb").between(2, 3) + "-",
        Regex("[ab-]{3}") - Regex(r"(?:.*\b)?b-.*"),
        (Regex(r"a+\b") + Regex("-")).one_or_more() & Regex(".{0,5}"),
    ],
)
def test_masks_bare_and_in_json(pattern: TextPattern) -> None:
    bare = structgen.compile(pattern, TINY)
    item: Any = Annotated[str, pattern]
    quoted = structgen.compile(list[item], TINY)
    good = language(pattern)
    assert good
    for text in TEXTS:
        assert accepts(bare, text, RNG) == (text in good), text
        assert accepts(quoted, json.dumps([text]), RNG) == (text in good), text


def test_in_pydantic() -> None:
    class User(BaseModel):
        name: Annotated[str, Regex(r"[a-z]+") & ~Regex("admin|root")]
        code: Annotated[str, Regex(r"\d").exactly(3) | "none"] = "none"

    assert User(name="anna", code="123").code == "123"
    for wrong in ({"name": "admin"}, {"name": "A"}, {"name": "anna", "code": "12"}):
        with pytest.raises(ValidationError, match="does not match"):
            User(**wrong)
    lowered = structgen.types.lower(User)
    assert lowered.parse('{"name": "bo", "code": "007"}') == User(name="bo", code="007")
    both: Any = Annotated[str, Regex("[ab]+"), Regex("b.*")]
    assert accepts(structgen.compile(both, TINY), "ba", RNG)
    assert not accepts(structgen.compile(both, TINY), "ab", RNG)
    assert TypeAdapter(both).validate_python("ba") == "ba"


def test_representation_says_how_it_was_made() -> None:
    pattern = (Regex("a") | "b.").between(1, 2) - Regex("c", re.I)
    shown = "((Regex('a') | Regex('b\\\\.')).between(1, 2)) & (~Regex('c', re.IGNORECASE))"
    assert repr(pattern) == shown
    assert eval(repr(pattern), {"Regex": Regex, "re": re}) == pattern
    assert hash(pattern) == hash((Regex("a") | "b.").between(1, 2) - Regex("c", re.I))
    for other in (~(A & AB), A.optional().at_least(2), ~~A, A + AB.one_or_more() | A):
        assert eval(repr(other), {"Regex": Regex}) == other


def test_mistakes() -> None:
    with pytest.raises(TypeError):
        A & 3  # type: ignore[operator]
    with pytest.raises(OutputTypeError, match="at most the maximum, got 3 to 2"):
        A.between(3, 2)
    with pytest.raises(OutputTypeError, match="A count must be an int, got '2'"):
        A.exactly("2")  # type: ignore[arg-type]
    with pytest.raises(OutputTypeError, match=r"Write Annotated\[str"):
        structgen.types.lower(Annotated[int, A])
    with pytest.raises(PatternError, match="backreference"):
        structgen.types.lower(A + Regex(r"(a)\1"))
    with pytest.raises(structgen.errors.Unsatisfiable):
        structgen.compile(A & "b", TINY)


def test_walks_write_texts_of_the_pattern() -> None:
    constraint = structgen.compile((Regex("[ab]{2}") - "ab").between(2, 4), TINY)
    for seed in range(20):
        result = walk(constraint, random.Random(seed), max_tokens=minimum(constraint) + seed)
        assert result.ended
        assert re.fullmatch("(?:aa|ba|bb){2,4}", result.text)


def test_patterns_that_overlap() -> None:
    texts = ["".join(t) for n in range(4) for t in itertools.product("ab", repeat=n)]
    patterns = ["a*", "b+", "a|bb", "(ab)*", "(?!a).*", "a{2,}", ".*b(?<=ab)", "", "aab?"]
    within = Regex("[ab]{0,3}")
    verdicts = set()
    for one, other in itertools.product(patterns, repeat=2):
        common = [t for t in texts if re.fullmatch(one, t) and re.fullmatch(other, t)]
        assert (Regex(one) & within).overlaps(Regex(other)) == bool(common), (one, other)
        verdicts.add(bool(common))
    assert verdicts == {True, False}
    assert Regex("[a-z]+").overlaps("admin")
    assert not (Regex("[a-z]+") - "admin").overlaps("admin")
