"""Random grammars against Lark's Earley parser, on all short texts; no state is a dead end."""

from __future__ import annotations

import os
import random

import cfg_cases
import lark
import pytest

from structgen.automaton.cfg import CfgFrame, CfgMachine
from structgen.errors import Unsatisfiable
from structgen.grammar import cfg, ir

SCALE = float(os.environ.get("STRUCTGEN_TEST_SCALE", "1"))
_TERMINALS = (
    *(
        '"a"',
        '"b"',
        '"ab"',
        '"ba"',
        "/a+/",
        "/[ab]/",
        "/a+?b/",
        "/b(?!a)/",
        "/a(?=b)/",
        "/(a|ab)b?/",
    ),
    *(
        "/b+a?/",
        "/aba|b/",
        "/a{2,3}/",
        "/b??a/",
        "/a(?!ba)/",
        "/b(?!ab)a?/",
        "/a(?=b(?!a))/",
        "/(a(?=a*$))+|b/",
    ),
)
_TEXTS = cfg_cases.texts("ab ", 5)


def random_grammar(rng: random.Random) -> str:
    names = ["start", "x", "y", "z"][: rng.randint(2, 4)]
    lines = []
    for name in names:
        ways = []
        for _ in range(rng.randint(1, 3)):
            parts = [
                rng.choice(names) if rng.random() < 0.5 else rng.choice(_TERMINALS)
                for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))
            ]
            ways.append(" ".join(p + rng.choice(("", "", "", "", "?", "*", "+")) for p in parts))
        lines.append(f"{name}: " + " | ".join(dict.fromkeys(ways)))
    if rng.random() < 0.4:
        lines.append(rng.choice(('%ignore " "', "%ignore / +/", "%ignore / a?/", "%ignore / +?/")))
    return "\n".join(lines) + "\n"


def usable(text: str) -> lark.Lark | None:
    """Lark's parser, or None for a grammar that Lark cannot load."""
    try:
        return lark.Lark(text, parser="earley", ambiguity="forest")
    except lark.exceptions.LarkError:
        return None


@pytest.mark.parametrize("seed", range(int(40 * SCALE)))
def test_random_grammar(seed: int) -> None:
    rng = random.Random(seed)
    text, parser = "", None
    while parser is None:
        text = random_grammar(rng)
        parser = usable(text)
    expected = {t for t in _TEXTS if _accepts(parser, t)}
    try:
        machine = CfgMachine(CfgFrame(cfg.parse(text), ir.ANY_CHAR))
    except Unsatisfiable:
        assert not expected, text
        return
    assert {t for t in _TEXTS if cfg_cases.accepts(machine, t)} == expected, text
    for prefix in _TEXTS:
        state = machine.start
        for byte in prefix.encode():
            state = machine.step(state, byte)
        if not state:
            continue
        rest = machine.shortest_completion(state)
        whole = prefix + bytes(rest).decode()
        assert cfg_cases.accepts(machine, whole), (text, whole)
        if whole not in expected:
            assert len(whole) > 5, (text, whole)
            assert _accepts(parser, whole), (text, whole)


def _accepts(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True
