"""Lark grammars: the language is that of Lark's Earley parser with its dynamic lexer."""

from __future__ import annotations

import os
import random
from functools import cache

import cfg_cases
import lark
import pytest

SCALE = float(os.environ.get("STRUCTGEN_TEST_SCALE", "1"))


@cache
def oracle(name: str) -> lark.Lark:
    return lark.Lark(cfg_cases.GRAMMARS[name], parser="earley", lexer="dynamic", ambiguity="forest")


def lark_accepts(name: str, text: str) -> bool:
    try:
        oracle(name).parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


@pytest.mark.parametrize("name", cfg_cases.GRAMMARS)
def test_same_verdicts_as_lark(name: str) -> None:
    grammar, machine = cfg_cases.grammar(name), cfg_cases.machine(name)
    rng = random.Random(name)
    alphabet = "".join(
        sorted({c for _ in range(40) for c in cfg_cases.sentence(grammar, name, rng)})
    )
    verdicts = [0, 0]
    for _ in range(int(150 * SCALE)):
        text = cfg_cases.sentence(grammar, name, rng)
        for candidate in (text, cfg_cases.mutated(text, rng, alphabet)):
            expected = lark_accepts(name, candidate)
            assert cfg_cases.accepts(machine, candidate) == expected, candidate
            verdicts[expected] += 1
    assert min(verdicts) >= 5 * SCALE, f"the texts tell nothing: {verdicts}"
