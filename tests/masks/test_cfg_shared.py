"""Lexers that grammars share: what one grammar has walked is right in all others."""

from __future__ import annotations

import random

import cfg_cases
import inside
import pytest
from engine.walks import TINY, allowed, brute_force_ids, seeds, states_on_the_way

import structgen
from structgen import Cfg, Constraint, Vocabulary
from structgen.masks.cfg.lexer_walks import Search
from structgen.masks.leaf_walks import walker_of

TERMINALS = {
    "STRING": r'/"([^"\\\x00-\x1f]|\\.)*"/',
    "NAME": "/[a-z_à-ü][a-z0-9_à-ü]*/",
    "NAME_I": "/[a-z_]+/i",
    "NUMBER": r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?/",
    "LAZY": "/<.*?>/s",
    "AHEAD": "/[a-f]+(?![0-9])/",
    "WORD": r"/[a-z]+\b[a-z ]?/",
    "GREEK": "/[α-ωé]{1,3}|漢字?/",
    "DOTS": "/[.]{2,40}/",
}
"""Terminals that occur in many grammars below, over other alphabets each time."""


def grammar_of(rng: random.Random) -> str:
    names = rng.sample(sorted(TERMINALS), 4)
    seps = rng.sample([",", ";", "{", "the", "12", "é", "'", "."], 2)
    lines = [f'start: (item "{seps[0]}")*', f'item: {" | ".join(names)} | "(" start ")"']
    lines[1] += f' | item "{seps[1]}" item'
    lines += [f"{name}: {TERMINALS[name]}" for name in names]
    if rng.random() < 0.7:
        lines.append(rng.choice(["%ignore / +/", r"%ignore /\s+/", r"%ignore /[ \n]/"]))
    return "\n".join(lines)


def check_masks(constraint: Constraint, rng: random.Random, most: int = 12) -> None:
    vocabulary = constraint.vocabulary
    for cursor in states_on_the_way(constraint, rng, most, special=0.5):
        state = inside.state(cursor)
        ids = set(allowed(cursor, vocabulary))
        assert ids == brute_force_ids(constraint, state, vocabulary)


def test_grammars_with_terminals_in_common_have_their_own_masks() -> None:
    rng = random.Random("shared")
    for _ in seeds(60):
        check_masks(structgen.compile(Cfg(grammar_of(rng)), TINY), rng)


@pytest.mark.parametrize("name", list(cfg_cases.GRAMMARS))
def test_a_grammar_compiled_again_walks_no_terminal_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = structgen.compile(Cfg(cfg_cases.GRAMMARS[name]), TINY)
    again = structgen.compile(Cfg(cfg_cases.GRAMMARS[name]), TINY)
    check_masks(first, random.Random(name))
    if inside.rules(again).is_free:  # else it has a lexer of its own

        def walk(self: Search) -> None:
            raise AssertionError("a walk of its own")

        monkeypatch.setattr(Search, "walk", walk)
    check_masks(again, random.Random(name))


LISTS = [
    """
    start: "(" (NAME ("," NAME)*)? ")" | NUMBER
    NAME: /[a-zé]+/
    NUMBER: /[0-9]+/
    %ignore / +/
    """,
    """
    start: "(" start ("," start)* ")" | NAME | NUMBER
    NAME: /[a-zé]+/
    NUMBER: /[0-9]+/
    %ignore / +/
    """,
]


def test_grammars_with_the_same_terminals_have_one_lexer() -> None:
    first, second = (structgen.compile(Cfg(grammar), TINY) for grammar in LISTS)
    assert inside.rules(first).lexer is inside.rules(second).lexer
    rng = random.Random("lexer")
    check_masks(first, rng, 40)
    again = structgen.compile(Cfg(LISTS[0].replace("| NUMBER", "| NUMBER NUMBER?")), TINY)
    assert inside.rules(again).lexer is inside.rules(first).lexer
    for constraint in (second, again, first):
        check_masks(constraint, rng, 40)
        # They know each other's walks.
        walks = inside.walks(inside.lexer_walks(constraint))
        assert walks is inside.walks(inside.lexer_walks(first))


def test_a_lexer_that_asks_the_rules_is_not_shared() -> None:
    grammar = cfg_cases.GRAMMARS["keywords with borders"]
    first, second = (structgen.compile(Cfg(grammar), TINY) for _ in range(2))
    assert not inside.rules(first).is_free
    assert inside.rules(first).lexer is not inside.rules(second).lexer


def test_masks_stay_right_when_walks_are_forgotten() -> None:
    # A vocabulary of its own: nothing is known of it.
    vocabulary = Vocabulary.from_tokens([*TINY.tokens, b"zq"], TINY.eos_token_ids)
    walker = walker_of(vocabulary)
    walker.store.budget = 60_000
    rng = random.Random("budget")
    grammars = [grammar_of(rng) for _ in range(6)]
    # Some have a lexer in common.
    constraints = [structgen.compile(Cfg(g), vocabulary) for g in (*grammars, *grammars[:2])]
    for _ in seeds(5):
        for constraint in constraints:
            check_masks(constraint, rng)
            inside.masks(constraint).ready.clear()
    assert walker.store.turns > 6
