"""Reading grammars has an end: what short texts stand for is counted before it is made.

How much was read is told by which code ran, and by the error; no test asks how long it took.
"""

from __future__ import annotations

import lark.load_grammar
import pytest
from guards import ends_soon

import structgen
from structgen import Cfg, Regex, Vocabulary
from structgen.constraint.check_grammar import problems
from structgen.errors import CompileLimitExceeded, GrammarError
from structgen.grammar import reading
from structgen.grammar.cfg import notation
from structgen.types import lower

BYTES = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])


def chain(head: str, end: str, last: str, n: int) -> str:
    """Rules that refer to the next one, the last to ``last``."""
    rules = [f"r{i} {head} r{i + 1}{end}" for i in range(n)]
    return "\n".join([f"root {head} r0{end}", *rules, f"r{n} {head} {last}{end}"])


def terminals(body: str, n: int) -> str:
    lines = [f"T{i}: " + body.replace("T", f"T{i + 1}") for i in range(n)]
    return "\n".join(["start: T0", *lines, f'T{n}: "x"'])


MULTIPLIED = {
    "a Lark text": "start: " + " | ".join(f'"a{i}" start' for i in range(25_000)) + ' | "z"',
    "terminals in terminals": terminals("T T", 40),
    "terminals in terminals in a row": terminals('"a" T', 1000),
    "templates": "start: "
    + "|".join(f't{{"a{i}"}}' for i in range(900))
    + "\nt{x}: x"
    + " x" * 2000,
    "repeats": 'root ::= "a" | ("b" root){0,1000000000}',
    "repeats at least": 'root ::= "a" | ("b" root){1000000000,}',
    "special tokens": "start: " + " ".join(f"<|token_{i}|>" for i in range(6000)) + " x" * 60_000,
}


@pytest.mark.parametrize("name", MULTIPLIED)
def test_what_would_be_too_much_is_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name != "templates":  # which are written out of what Lark has read
        monkeypatch.setattr(lark.load_grammar, "GrammarBuilder", None)
    with pytest.raises(CompileLimitExceeded, match="raise max_work"):
        lower(Cfg(MULTIPLIED[name]))


def test_the_limit_is_that_of_compile() -> None:
    grammar = Cfg('start: "a" | "b" start')
    with pytest.raises(CompileLimitExceeded) as raised:
        structgen.compile(grammar, BYTES, max_work=100)
    assert raised.value.limit == 100
    assert "22 characters" in str(raised.value)
    assert structgen.compile(grammar, BYTES, max_work=5000).allows("ba")
    with pytest.raises(structgen.OptionError):
        structgen.compile(grammar, BYTES, max_work=True)


def test_parts_of_one_type_are_counted_together() -> None:
    half = Cfg('start: "a"' + " " * 100)
    assert structgen.compile(half, BYTES, max_work=1000).allows("a")
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(half | Cfg('start: "b"' + " " * 100), BYTES, max_work=1000)


def test_long_chains_of_rules() -> None:
    constraint = structgen.compile(Cfg(chain("::=", "", '"a"', 4000)), BYTES)
    assert constraint.allows("a")
    assert not constraint.allows("aa")
    # Rules in themselves at the end of the chain, and rules that may be empty.
    rest = '"a" root | "b"'
    assert structgen.compile(Cfg(chain("::=", "", rest, 2000)), BYTES).allows("aab")


def test_a_chain_of_rules_that_may_be_empty() -> None:
    text = chain("::=", "", '"a"?', 3000).replace("root ::= r0", 'root ::= (r0 root "b") | "c"')
    constraint = structgen.compile(Cfg(text), BYTES)
    assert all(map(constraint.allows, ("c", "cb", "acb", "aacbb")))
    assert not constraint.allows("ab")


def test_differences_through_a_chain_of_rules() -> None:
    text = chain("::=", "", "[a-z] - [aeiou]", 2000) + "\n"
    constraint = structgen.compile(Cfg(text, dialect="ebnf"), BYTES)
    assert constraint.allows("b")
    assert not constraint.allows("a")


def test_many_rules_are_read_in_a_row() -> None:
    """Each rule, part and terminal is looked at a bounded number of times."""
    n = 3000
    text = "root ::= " + " | ".join(f"r{i}" for i in range(n)) + "\n"
    text += "\n".join(f'r{i} ::= "a{i}" root "b" ""' for i in range(n))
    assert len(lower(Cfg(text)).grammar.rules) == 2 * n  # type: ignore[union-attr]


def nested(head: str, n: int) -> str:
    return f"{head} {'(' * n}" + '"a"' + ' "b" | "c")?' * n + ' "d"\n'


def test_what_is_in_many_brackets_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    repeat = notation.tree.repeat
    monkeypatch.setattr(
        notation.tree, "repeat", lambda *given: made.append(given) or repeat(*given)
    )
    lower(Cfg(nested("root ::=", 60), dialect="gbnf"))
    assert len(made) < 2 * 60


@pytest.mark.parametrize("head", ["start:", "%llguidance {}\nstart:"])
def test_brackets_that_are_too_deep_for_rules_are_told(head: str) -> None:
    with pytest.raises(GrammarError, match=r"nested too deeply|more than 100 deep"):
        lower(Cfg(nested(head, 400)))


def test_a_schema_in_a_grammar_is_not_nested_without_end() -> None:
    with pytest.raises(GrammarError, match="nested too deeply"):
        lower(Cfg('start: %json {"a": ' + "[" * 50_000 + "]" * 50_000 + "}"))


BACKSLASHES = "\\" * 61
WRITTEN_AT_LENGTH = {
    "a pattern that never ends": "start: /" + BACKSLASHES,
    "a literal that never ends": 'start: "' + BACKSLASHES,
    "slashes behind it": "start: /" + "\\/" * 50_000,
    "quotes behind it": 'start: "' + '\\"' * 50_000,
    "blank lines": 'start: "a"' + "\n" * 200_000,
    "other blanks": 'start: "a"' + "\x0b" * 200_000,
    "digits in a brace": "start: {" + "0" * 200_000,
    "a schema that never ends": 'start: %json {"a": "' + '\\"' * 100_000,
    "classes that never end": "start: " + "[^" * 50_000,
}


@pytest.mark.parametrize("what", WRITTEN_AT_LENGTH)
def test_no_text_is_looked_at_in_the_square_of_its_length(what: str) -> None:
    """Regular expressions that try many ways would take minutes here, the first two centuries."""
    text = WRITTEN_AT_LENGTH[what]
    with ends_soon(), pytest.raises((GrammarError, CompileLimitExceeded)):
        structgen.compile(Cfg(text, dialect="lark"), BYTES)
    with ends_soon():
        assert any(problem.is_error for problem in problems(text, dialect="lark"))


@pytest.mark.parametrize("text", ["\n" * 100_000, "(*" * 100_000, "a = ? " + " " * 100_000 + ";"])
def test_the_dialect_of_a_long_text_is_found(text: str) -> None:
    with ends_soon(), pytest.raises((GrammarError, CompileLimitExceeded)):
        structgen.compile(Cfg(text + "\n"), BYTES)


def test_character_classes_of_a_pattern_are_made_once_and_counted() -> None:
    """20,000 times a word's character took 6 s of a server's trials."""
    with reading.reading(1_000):
        lower(Regex(r"\w" * 1_000))
        with pytest.raises(CompileLimitExceeded, match="too many character classes"):
            lower(Regex("".join(rf"[\w{chr(0x2190 + i)}]" for i in range(60))))
