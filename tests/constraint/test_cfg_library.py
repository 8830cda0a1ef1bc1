"""The grammar library on the engine: its samples, masks, and walks that end."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import inside
import pytest
from cfg_cases import accepts
from engine.walks import TINY, allowed, brute_force_ids, minimum, random_tokens, walk

import structgen
from structgen import Cfg, Constraint
from structgen.grammar.cfg import library as grammars

NAMES = grammars.names()


@cache
def constraint(name: str) -> Constraint:
    return structgen.compile(Cfg.named(name), TINY)


def samples(name: str) -> dict[str, Any]:
    text = (Path(__file__).parent.parent / "grammars" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    machine = inside.machine(constraint(name))
    for text in samples(name)["accepted"]:
        assert accepts(machine, text), text  # type: ignore[arg-type]
    for text in samples(name)["rejected"]:
        assert not accepts(machine, text), text  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_masks_and_walks(name: str) -> None:
    compiled = constraint(name)
    rng = random.Random(name)
    text = min(samples(name)["accepted"][1:], key=len)[:60]
    cursor = compiled.start()
    for token in random_tokens(text.encode(), rng):
        state = inside.state(cursor)
        assert set(allowed(cursor)) == brute_force_ids(compiled, state, TINY)
        cursor.accept(token)
    least = minimum(compiled)
    result = walk(compiled, rng, max_tokens=least + 8)
    assert result.ended
    assert accepts(inside.machine(compiled), result.text)  # type: ignore[arg-type]
