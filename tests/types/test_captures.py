"""``capture`` of llguidance's Lark: what a rule takes of a text comes back by its name."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest

import structgen
from structgen import Cfg, ParseError, Template
from structgen.types import CapturedText, captures, lower


def captured(grammar: str, text: str) -> tuple[tuple[str, str], ...]:
    value = lower(Cfg(grammar, dialect="llguidance")).parse(text)
    assert isinstance(value, CapturedText)
    assert value == text
    return value.all_captures


@pytest.mark.parametrize(
    ("grammar", "text", "expected"),
    [
        ('start: "<" foo ">"\nfoo[capture]: /[a-z]+/', "<ab>", [("foo", "ab")]),
        ('start: foo\nfoo[capture="bar"]: /.*/', "", [("bar", "")]),
        # what llguidance's documentation says of these rules
        (
            'start: outer "x"\nouter[capture]: inner\ninner[capture, suffix="<e>"]: /.*/',
            "foo<e>x",
            [("inner", "foo"), ("outer", "foo<e>")],
        ),
        (
            'start: outer "b"\nouter[capture]: inner "<e>"\ninner[capture, stop="<e>"]: /.*/',
            "foo<e>b",
            [("inner", "foo"), ("outer", "foo<e>")],
        ),
        ("start: foo\nfoo[capture, lazy]: /.*<e>/", "foo<e>", [("foo", "foo<e>")]),
        (
            'start: foo+\nfoo[capture, stop_capture="end", suffix=/[;.]/]: /.*/\n%ignore / +/',
            "a. b ; ",
            [("end", "."), ("foo", "a"), ("end", ";"), ("foo", "b ")],
        ),
        (
            'start: foo "!"\nfoo[stop_capture="end", suffix=/<.>/, max_tokens=9]: /.*/',
            "ab<c>!",
            [("end", "<c>")],
        ),
        (
            "start: pair+\npair: key /=/ value\n%ignore / +/\nkey[capture]: /[a-z]+/\n"
            'value[capture="v"]: /[0-9]+/',
            "a = 1 b=2 ",
            [("key", "a"), ("v", "1"), ("key", "b"), ("v", "2")],
        ),
        ("start: x\nx[capture]: x /a/ | /a/", "aaa", [("x", "a"), ("x", "aa"), ("x", "aaa")]),
        ("start: a b\na[capture]: /x*/\nb[capture]: /x*/", "xx", [("a", "xx"), ("b", "")]),
        ('start: a\na[capture]: a | ""', "", [("a", "")]),
        ('start: "é" foo\nfoo[capture]: %json {"type": "array"}', "é[1, 2]", [("foo", "[1, 2]")]),
        ("start: <|tool|> foo\nfoo[capture]: /é+/", "éé", [("foo", "éé")]),
        ("start: <|tool|> foo\nfoo[capture]: /é+/", "<|tool|>éé", [("foo", "éé")]),
        ("start: foo <|t|>\nfoo[capture]: /.*/ <|t|>?", "a<|t|>", [("foo", "a")]),
        (
            'start: "é" foo <[7]> bar\nfoo[capture]: <[^3-5]>\nbar[capture]: "x"',
            "ééax",
            [("foo", "é"), ("bar", "x")],
        ),
        ("start: %lark {\nstart: foo\nfoo[capture]: /a/\n}", "a", [("foo", "a")]),
    ],
)
def test_what_is_captured(grammar: str, text: str, expected: Any) -> None:
    assert captured(grammar, text) == tuple(expected)


def test_the_value_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = 'start: (word " ")+\nword[capture]: /[a-z]+/'
    cfg = Cfg(grammar, dialect="llguidance")
    value = lower(cfg).parse("ab c ")
    assert isinstance(value, CapturedText)
    assert value.captures == {"word": "c"}
    again = pickle.loads(pickle.dumps(value))
    assert (again, again.all_captures) == (value, value.all_captures)
    with pytest.raises(ParseError, match=r"The text does not match Cfg\("):
        lower(cfg).parse("ab c")
    held = lower(Template("<{x}>", x=cfg)).parse("<ab c >")["x"]
    assert held.all_captures == value.all_captures
    assert type(lower(Cfg("start: /a/", dialect="llguidance")).parse("a")) is str
    monkeypatch.setattr(captures, "_MAX_STEPS", 20_000)
    for told in (
        "start: a a a\na[capture]: /x/*",
        "start: (a | /x*y/)*\na[capture]: /x/",
        "start: a\na[capture, suffix=/x*z|y/]: /x*/",
    ):
        with pytest.raises(ParseError, match="more than 20,000 steps"):
            captured(told, "x" * 700 + "y" * ("suffix" in told))


@pytest.mark.parametrize("seed", range(6))
def test_texts_of_a_grammar_are_derived(seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "c"]
    lines = ["start: a"]
    for name in names:
        ways = []
        for _ in range(rng.randint(1, 3)):
            parts = [rng.choice([*names, '"x"', '"y"', "/[xy]+/", '"("', '")"']) for _ in range(3)]
            ways.append(" ".join(parts[: rng.randint(1, 3)]))
        lines.append(f"{name}[capture]: {' | '.join([*ways, rng.choice(['/z/', '/[xz]*/'])])}")
    cfg = Cfg("\n".join(lines), dialect="llguidance")
    for text in structgen.sample(cfg, 4, seed=seed):
        found = lower(cfg).parse(text)
        assert isinstance(found, CapturedText)
        assert found.captures["a"] == text
        assert all(part in text for _, part in found.all_captures)
