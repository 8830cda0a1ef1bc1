"""The grammar library: samples, and random sentences before whoever really reads them."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import grammar_judges
import lark
import pytest
from grammar_sentences import SentenceGenerator, mutations

import structgen
from structgen import Cfg, Vocabulary
from structgen.errors import OptionError, TokenNotAllowed
from structgen.grammar.cfg import library as grammars

ROUNDS = int(os.environ.get("STRUCTGEN_FUZZ_ROUNDS", "1"))
SAMPLES = Path(__file__).parent.parent / "grammars"
_NAMES = """
    arithmetic chess-pgn-move cron csv dot email-rfc5322-simple graphql-query html-fragment-safe
    iso8601 json json-lines jsonc lisp markdown-table mermaid-flowchart python-expression
    python-function regex semver shell-safe sql-select sql-select-strict toml-simple unified-diff
    url xml-simple yaml-flow"""
NAMES = sorted(_NAMES.split())
LEXERS = ("dynamic", "dynamic_complete")
# Not where a judge is missing: see grammar_judges.
JUDGED = [name for name in NAMES if name not in grammar_judges.FROM_3_11]
# Grammars that are all of what their judge reads.
WHOLE = ["chess-pgn-move", "cron", "json", "semver"]


@pytest.fixture(scope="module", autouse=True)
def _node() -> Iterator[None]:
    yield
    grammar_judges.close()


@functools.cache
def parser(name: str, lexer: str) -> lark.Lark:
    return lark.Lark(grammars.text(name), parser="earley", lexer=lexer)


def accepts(name: str, lexer: str, text: str) -> bool:
    try:
        parser(name, lexer).parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def samples(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((SAMPLES / f"{name}.json").read_text("utf-8"))
    return found


def test_names() -> None:
    assert grammars.names() == NAMES
    assert sorted(path.stem for path in SAMPLES.iterdir()) == NAMES
    assert sorted(grammar_judges.JUDGES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_first_sentence_says_what_a_grammar_is(name: str) -> None:
    assert grammars.text(name).startswith(f"// {grammars.description(name)[:40]}")
    assert "\n// Covers " in grammars.text(name)
    assert "Not: " in grammars.text(name)
    assert 20 < len(grammars.description(name)) < 120


def test_an_unknown_name_is_told_near_ones() -> None:
    with pytest.raises(OptionError, match="Did you mean json-lines"):
        grammars.text("jsonlines")
    with pytest.raises(OptionError, match="Grammars: arithmetic, "):
        grammars.text("../errors")


@pytest.mark.parametrize("lexer", LEXERS)
@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str, lexer: str) -> None:
    found = samples(name)
    assert found["accepted"]
    assert found["rejected"]
    for kind, texts in found.items():
        wrong = [text for text in texts if accepts(name, lexer, text) != (kind == "accepted")]
        assert not wrong, kind


@functools.cache
def compiled(name: str) -> structgen.Constraint:
    letters = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])
    return structgen.compile(Cfg.named(name), letters)


def is_written(name: str, text: str) -> bool:
    """Whether the engine lets ``text`` through, byte by byte, and end."""
    cursor = compiled(name).start()
    try:
        for byte in text.encode():
            cursor.accept(byte)
    except TokenNotAllowed:
        return False
    return cursor.is_accepting


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_writes_what_is_accepted_and_nothing_else(name: str) -> None:
    for kind, texts in samples(name).items():
        wrong = [text for text in texts if is_written(name, text) != (kind == "accepted")]
        assert not wrong, kind
    rng = random.Random(f"engine {name}")
    generator = SentenceGenerator(parser(name, "dynamic"), rng)
    for _ in range(15 * ROUNDS):
        text = generator.sentence(rng.choice([3, 8, 15]), rng.choice([1, 3]))
        if len(text) > 50:
            continue
        for other in (text, *mutations(text, rng, "aZ09 \t\n_-+*/.,:;!?()[]{}<>=|&'\"@#$%\\é")):
            assert is_written(name, other) == accepts(name, "dynamic", other), other


@pytest.mark.parametrize("name", JUDGED)
def test_samples_are_what_their_judge_says(name: str) -> None:
    """``not_covered``: texts that are right, and that the grammar leaves out."""
    judge = grammar_judges.JUDGES[name]
    for kind, texts in samples(name).items():
        wrong = [
            (text, judge(text)) for text in texts if (judge(text) is None) == (kind == "rejected")
        ]
        assert not wrong, kind


@pytest.mark.parametrize("name", JUDGED)
def test_random_sentences_are_accepted_by_their_judge(name: str) -> None:
    rng = random.Random(f"sentences {name}")
    generator = SentenceGenerator(parser(name, "dynamic"), rng)
    judge = grammar_judges.JUDGES[name]
    texts = set()
    for _ in range(60 * ROUNDS):
        text = generator.sentence(rng.choice([3, 8, 15, 30, 60]), rng.choice([1, 3, 6]))
        texts.add(text)
        assert judge(text) is None, text
    assert len(texts) > 25


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_accepted_near_a_sentence_is_right(name: str) -> None:
    """Mutants: what the grammar takes its judge takes, and the reverse where it covers all."""
    rng = random.Random(f"mutants {name}")
    generator = SentenceGenerator(parser(name, "dynamic"), rng)
    judge = grammar_judges.JUDGES[name]
    # dynamic_complete takes a second for each sentence of SQL.
    lexer = LEXERS[not name.startswith("sql-select")]
    judged = 0
    while judged < 60 * ROUNDS:
        text = generator.sentence(rng.choice([3, 8, 15]), rng.choice([1, 3]))
        if len(text) > 50:
            continue
        assert accepts(name, lexer, text), text
        for mutant in mutations(text, rng, "aZ09 \t\n_-+*/.,:;!?()[]{}<>=|&'\"@#$%\\é"):
            judged += 1
            right = judge(mutant) is None
            accepted = accepts(name, lexer, mutant)
            assert right or not accepted, mutant
            assert accepted or not right or name not in WHOLE, mutant


def test_both_python_grammars_have_the_same_expressions() -> None:
    expression, function = grammars.text("python-expression"), grammars.text("python-function")
    assert expression[expression.index("// -- expressions") :] in function


@pytest.mark.skipif(sys.version_info < (3, 11), reason="two judges need 3.11")
def test_every_grammar_has_a_judge_from_python_3_11_on() -> None:
    assert JUDGED == NAMES
