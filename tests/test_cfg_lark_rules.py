"""Lark grammars read with Lark's tables alone: the rules are those of Lark's loader."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import cfg_cases
import pytest

from structgen import Cfg, GrammarError
from structgen.grammar.cfg import embedded
from structgen.grammar.cfg import library as grammars
from structgen.grammar.cfg.lark import loader, rules, syntax
from structgen.grammar.cfg.lark.rules import Loaded
from structgen.grammar.cfg.lark.syntax import NotPlain
from structgen.storage import array_cache

SCALE = float(os.environ.get("STRUCTGEN_TEST_SCALE", "1"))
TEXTS = {name: Cfg.named(name).text for name in grammars.names()} | {
    f"case {name}": text for name, text in cfg_cases.GRAMMARS.items()
}


def canonical(loaded: Loaded) -> Hashable:
    """The grammar, whatever helpers and anonymous terminals are called."""
    ways: dict[str, set[tuple[str, ...]]] = {}
    for name, way in loaded.rules:
        ways.setdefault(name, set()).add(way)
    patterns = {name: pattern.to_regexp() for name, pattern in loaded.terminals}
    known: dict[str, Hashable] = {}

    def named(name: str) -> Hashable:
        if name in patterns:
            return ("" if name.startswith("__") else name, patterns[name])
        if name not in ways or not name.startswith("__"):
            return re.sub(r"__ANON_\d+", lambda found: patterns.get(found[0], ""), name)
        if name not in known:
            known[name] = frozenset(
                tuple("itself" if s == name else named(s) for s in way) for way in ways[name]
            )
        return known[name]

    return (
        frozenset((named(n), tuple(map(named, way))) for n, all_ in ways.items() for way in all_),
        frozenset(map(named, patterns)),
        tuple(map(named, loaded.ignored)),
    )


def verdicts(text: str, start: str = "start") -> tuple[Any, Any]:
    """The grammar as both ways of reading it have it; None where it is not read."""
    source = embedded.lift(text, {})
    try:
        fast: Any = canonical(rules.load(source.text, start))
    except NotPlain:
        fast = None
    try:
        lark: Any = canonical(loader._load(source, start, None))
    except GrammarError:
        lark = None
    return fast, lark


@pytest.mark.parametrize("name", TEXTS)
def test_same_as_larks_loader(name: str) -> None:
    fast, lark = verdicts(TEXTS[name])
    assert fast == lark is not None


@pytest.mark.parametrize(
    "text",
    [
        'start: "a" | B -> b\nB: "x"i | /y+/ | "0".."9"\n',
        'start: [B] "c"\n_x: "a"\nB: ("x" "y"?)~2..3 "z"~2 | [B2]\nB2: "q"+\n',
        'start: (x ","?)* x~1..3\nx: "if" | "IF" | "+" | "\\"" | "é"\n',
        "start: NUMBER CNAME\n%import common (NUMBER, CNAME)\n%import common.WS -> SPACE\n"
        "%ignore SPACE\n%ignore /#.*/ | SPACE\n",
        'start: TOKEN "a"\n%declare TOKEN OTHER\n',
        '!start: "a" // a comment\n  | "b"\n\n?x.2: start | y\ny: x "c"\nunused: "d"\n',
        'start: a (b | c)? (b c | b)\na:\nb: "b"\nc: a | "c"\n',
        "start: /a\\/\\\\/ /x y/x\n",
        'start: A A\nA: "a" | B\nB.3: "b" C\nC: "c"',
        'start: ("a" | "b" "c")~0..4\n',
        'start: _list{x, ";"} _list{"y", SEP} pair{_list{x, /z+/}}\nx: "x"\nSEP: ","\n'
        '_list{item, sep}: item (sep item)*\npair{y}: "(" y "," pair{y}? ")" -> p\n',
    ],
)
def test_all_of_the_syntax(text: str) -> None:
    fast, lark = verdicts(text)
    assert fast == lark is not None


@pytest.mark.parametrize(
    "text",
    [
        "start: missing\n",
        "start: MISSING\n",
        'start: "a"\nstart: "b"\n',
        'x: "a"\n',
        'start: "a" -> b | "a" -> c\n',
        'start: ["a"] ["a"]\n',
        'start: ("a" -> b)*\n',
        'start: _x\n_x: "a" -> b\n',
        'start: "a"~3..2\n',
        'start: ""\n',
        "start: A\nA:\n",
        "start: A\nA: B\nB: A\n",
        "start: A\nA: start\n",
        'start: A\nA: "a" -> b\n',
        'start: A\n%declare A\n%ignore B\nB: A "b"\n',
        "start: A\nA: B\n%declare B\n",
        'start: "a"\n%ignore NOTHING\n',
        "start: NOPE\n%import common.NOPE\n",
        "start: A\n%import nowhere.A\n",
        'start: "z".."a" (\n',
        'start: "ab".."c"\n',
        "start: /a\n",
        'start: "a" \\',
        'start: "a"\n?_x: "b"\n',
        'start: __x\n__x: "b"\n',
        "start: x\nx{y}: y\n",
        'start: x{"a"}\nx: "b"\n',
        'start: x{"a", "b"}\nx{y}: y\n',
        'start: x{"a"}\nx{start}: "b"\n',
        'start: x{"a", "b"}\nx{y, y}: "b"\n',
        'start: "a"\nx{y}: missing\n',
        "start: x{missing}\nx{y}: y\n",
        "start: " + "(" * 5_000 + '"a"' + ")" * 5_000 + "\n",
    ],
)
def test_mistakes_are_left_to_larks_loader(text: str) -> None:
    with pytest.raises(NotPlain):
        rules.load(text, "start")


def random_text(rng: random.Random) -> str:
    """A grammar with a bit of everything, mistakes among it."""
    names = ["start", "x", "y", "z"]
    atoms = [*names, "A", "B", '"a"', '"if"', '"i"i', "/a+/", '"a".."c"', '"+"', "WS"]

    def node(depth: int) -> str:
        kind = rng.random()
        if depth and kind < 0.25:
            body = " | ".join(sequence(depth - 1) for _ in range(rng.randint(1, 3)))
            left, right = rng.choice(("()", "()", "()", "[]"))
            inner = f"{left}{body}{right}"
        else:
            inner = rng.choice(atoms)
        return inner + rng.choice(("", "", "", "", "?", "*", "+", "~2", "~0..2"))

    def sequence(depth: int) -> str:
        parts = [node(depth) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return " ".join(parts)

    lines = []
    for name in names:
        sign = rng.choice(("", "", "?", "!"))
        ways = "\n  | ".join(sequence(2) for _ in range(rng.randint(1, 3)))
        lines.append(f"{sign}{name}: {ways}" + rng.choice(("", "", " -> b")))
    lines += ["A: " + rng.choice(('"a"', "/b/", 'B? "c"', '("a" | "ab")+')), 'B: "b"~1..3 | "i"i']
    lines.append(rng.choice(("%import common.WS", 'WS: " "', "%declare WS")))
    if rng.random() < 0.5:
        lines.append(rng.choice(("%ignore WS", '%ignore " " | "\\t"', "%ignore B")))
    if rng.random() < 0.1:
        lines[rng.randrange(len(lines))] += " " + rng.choice(('"b"', "Q", "q", ")", "-> d"))
    rng.shuffle(lines)
    return "\n".join(lines) + "\n"


def test_same_as_larks_loader_on_random_grammars() -> None:
    rng = random.Random(5)
    same = mistaken = given_up = 0
    for _ in range(int(150 * SCALE)):
        text = random_text(rng)
        fast, lark = verdicts(text)
        if fast is not None:
            assert fast == lark, text
            same += 1
        elif lark is None:
            mistaken += 1
        else:
            given_up += 1

    assert same > 3 * given_up > 0
    assert mistaken


def test_other_tables_are_left_to_lark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "_tables", lambda: None)
    with pytest.raises(NotPlain):
        syntax.statements('start: "a"\n')
    assert len(loader._read('start: "a"\n', "start", None, {}, None).rules) == 1


def test_tables_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS["sql-select"]
    expected = syntax.statements(text)
    monkeypatch.setattr(array_cache, "root", lambda: tmp_path)
    try:
        for _ in range(2):
            syntax._tables.cache_clear()
            assert syntax.statements(text) == expected
            monkeypatch.setattr(syntax, "_larks_tables", None)
        assert len(list(tmp_path.rglob("*.arrays"))) == 1
    finally:
        syntax._tables.cache_clear()
