"""Pictures of regular expressions: they accept what the expression does."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.insight import picture
from structgen.types import Regex, lower


def drawn(pattern: str) -> dict[str, Any]:
    grammar = lower(Regex(pattern)).grammar
    assert isinstance(grammar, ir.Pattern)
    return picture(grammar.regex)


def takes(label: str, char: str) -> bool:
    """Whether a character is one of those that a label names."""
    if label == "any":
        return True
    if label.startswith("not "):
        return not takes(label[4:], char)
    for word in label.split(" "):
        first, dash, last = word.partition("–")
        if first <= char <= last if dash else word == char:
            return True
    return False


def accepts(made: dict[str, Any], text: str) -> bool:
    states = {0}
    for char in text:
        states = {e["to"] for e in made["edges"] if e["from"] in states and takes(e["label"], char)}
        assert len(states) <= 1  # of each state one way at most takes a character
    return any(made["states"][state]["accepting"] for state in states)


@pytest.mark.parametrize(
    "pattern",
    ["a", "(ab|b)*c?", "[a-c]{2}", "[^a]b*", "a.?", "(?!ab)[ab]+", "a|b|", "[abd]c|d{1,3}"],
)
def test_a_picture_accepts_what_the_expression_does(pattern: str) -> None:
    made = drawn(pattern)
    assert made["is_whole"]
    for length in range(5):
        for chars in itertools.product("abcd", repeat=length):
            text = "".join(chars)
            assert accepts(made, text) == bool(re.fullmatch(pattern, text)), text


def test_labels_are_short_and_name_what_cannot_be_seen() -> None:
    (edge,) = drawn(r"[ \t\n]")["edges"]
    assert edge["label"] == "tab newline space"
    (edge,) = drawn(r'[^"\\]')["edges"]
    assert edge["label"] == 'not " \\'
    (edge,) = drawn("[\u200b]")["edges"]
    assert edge["label"] == "U+200B"
    (edge,) = drawn("[acegikmoqsuwy02468ACEGIK]")["edges"]
    assert edge["label"].endswith(" …")


def test_a_large_automaton_is_cut() -> None:
    made = drawn("[ab]*a[ab]{12}")
    assert not made["is_whole"]
    assert len(made["states"]) == 60
    assert all(edge["to"] < 60 for edge in made["edges"])


def test_nothing_to_draw() -> None:
    with pytest.raises(OutputTypeError):
        drawn("a(?!b)(?=b)")
