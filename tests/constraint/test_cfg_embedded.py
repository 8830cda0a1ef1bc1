"""JSON embedded in grammars (``%json {…}``), and grammars as part of a machine.

The reference for embedded JSON is `jsonschema-rs` on every way to cut a text into what the grammar
puts around it and the JSON; for masks, every token tried byte by byte.
"""

from __future__ import annotations

import json
import random
from typing import Any

import cfg_cases
import inside
import pytest
import real_tokenizers
from engine import strategies
from engine.oracle import NotJson, loads
from engine.walks import (
    TINY,
    accepts,
    allowed,
    brute_force_ids,
    minimum,
    random_tokens,
    seeds,
    states_on_the_way,
    walk,
    walks_within_the_budget,
)
from jsonschema_rs import validator_for

import structgen
from structgen import Cfg, Constraint, UnsupportedFeature, Vocabulary
from structgen.automaton.cfg import CfgFrame, CfgMachine
from structgen.errors import CompileLimitExceeded, GrammarError
from structgen.grammar import cfg, ir
from structgen.insight.json_places import ByteReader
from structgen.types import OutputType

CALLS = r"""
start: (call | "say" WORD+ ".")+
call: "<" NAME ">" %json {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 8}},
        "required": ["a"], "additionalProperties": false
    } "</" NAME ">"
NAME: /[a-z_]+/
WORD: /[A-Za-z]+/
%ignore " "
"""

GRAMMARS = {
    "calls": CALLS,
    "after a word": """start: NAME %json {"enum": ["é", true, 12, {"x": null}]} NAME?
        NAME: /[a-z]+/""",
    "numbers": 'start: %json {"type": "number"} %json {"type": "integer"} | "[" start "]"',
    "nested": 'start: "(" start ")" %json {"type": "array", "items": {"type": "boolean"}} | "x"',
    "ambiguous": 'start: (%json {"type": "integer"} | DIGITS "," | start "a")+\nDIGITS: /[0-9]+/',
    "unique": 'start: "\\"[{" %json {"type": "array", "items": {"type": "string", "maxLength": 3},'
    ' "uniqueItems": true, "maxItems": 4} "]"',
    "counted": 'start: "}" %json {"type": "object", "minProperties": 2, "maxProperties": 2,'
    ' "additionalProperties": {"const": 1}} "!"',
    "dead ends": 'start: A %json {"type": "boolean"} A | A\nA: /[a-z]+/',
}


def compiled(name: str, vocabulary: Vocabulary = TINY) -> Constraint:
    return structgen.compile(Cfg(GRAMMARS[name]), vocabulary)


def brute_force(constraint: Constraint, text: bytes, vocabulary: Vocabulary = TINY) -> set[int]:
    """Every token tried byte by byte, pending states resolved with the text."""
    base = ByteReader(constraint)
    base.read(text)
    found = set()
    for token_id, data in enumerate(vocabulary.tokens):
        state = base.state
        for i, byte in enumerate(data):
            state = base.step(state, byte, data[: i + 1])
            if not state:
                break
        if data and state:
            found.add(token_id)
    if base.machine.is_accepting(base.state):
        found.update(vocabulary.eos_token_ids)
    return found


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_equal_brute_force(name: str) -> None:
    constraint = compiled(name)
    for cursor in states_on_the_way(constraint, random.Random(name), len(seeds(60)), special=0.6):
        text = b"".join(TINY.tokens[token] for token in inside.tokens(cursor))
        assert set(allowed(cursor)) == brute_force(constraint, text), text


def test_masks_equal_brute_force_with_a_real_vocabulary() -> None:
    vocabulary = real_tokenizers.vocabulary("llama3")
    constraint = compiled("calls", vocabulary)
    text = 'say Hello there. <get_it> {"a":12,"b":"New é"}</get_it>'
    cursor = constraint.start()
    for token in vocabulary.encode_bytes(text.encode()):
        state = inside.state(cursor)
        assert set(allowed(cursor, vocabulary)) == brute_force_ids(constraint, state, vocabulary)
        cursor.accept(token)
    assert cursor.is_accepting


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("calls", {'<f>{"a":1}</f>': True, '< f > {"a":1,"b":"x y"} </ f>sayhi.': True}),
        ("calls", {'<f>{ "a":1}</f>': False, "<f>{}</f>": False, '<f>{"a":1}': False}),
        ("after a word", {'ab"é"': True, "ab12cd": True, "abtrue": False, 'ab{"x":null}z': True}),
        ("numbers", {"12": True, "1.52": True, "1": False, "[-1-1]": True, "1.2.3": False}),
        ("nested", {"((x)[])[true,false]": True, "((x)[])": False}),
        ("ambiguous", {"12,3a4": True, "12,,": False, "0": True, "a": False}),
        ("unique", {'"[{["a","b"]]': True, '"[{["a","a"]]': False, '"[{["a","\\\\"]]': True}),
        ("counted", {'}{"a":1,"b":1}!': True, '}{"a":1,"a":1}!': False, '}{"a":1}!': False}),
        ("dead ends", {"a": True, "atruea": True, "a{": False}),
    ],
)
def test_verdicts(name: str, texts: dict[str, bool]) -> None:
    rng = random.Random(name)
    constraint = compiled(name)
    for text, expected in texts.items():
        for _ in range(4):
            assert accepts(constraint, text, rng) == expected, text


@pytest.mark.parametrize("name", GRAMMARS)
def test_walks_end_within_the_budget(name: str) -> None:
    constraint = compiled(name)
    rng = random.Random(name)
    for result in walks_within_the_budget(constraint, rng, 8):
        assert accepts(constraint, result.text, rng), result.text


def is_valid(judge: Any, text: str) -> bool:
    try:
        return bool(judge.is_valid(loads(text)))
    except NotJson:
        return False


def test_random_schemas_between_literals() -> None:
    """``prefix JSON suffix`` holds just what the schema's own machine holds."""
    rng = random.Random(5)
    verdicts = [0, 0]
    for _ in seeds(60):
        schema = strategies.document(rng)
        grammar = f'start: PREFIX %json {json.dumps(schema)} ";" start?\nPREFIX: /[a-e]+/'
        try:
            alone = structgen.compile(structgen.JsonSchema(schema), TINY)
        except structgen.OutputTypeError:
            with pytest.raises(structgen.OutputTypeError):
                structgen.compile(Cfg(grammar), TINY)
            continue
        embedded = structgen.compile(Cfg(grammar), TINY)
        judge = validator_for(schema)
        for _ in range(4):
            value = strategies.value(rng)
            if rng.random() < 0.5:
                result = walk(alone, rng, max_tokens=minimum(alone) + rng.choice((0, 3, 20)))
                assert is_valid(judge, result.text)
                text = result.text
            else:
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            expected = accepts(alone, text, rng)
            assert accepts(embedded, f"abc{text};", rng) == expected, (schema, text)
            assert accepts(embedded, f"a{text};b{text};", rng) == expected, (schema, text)
            verdicts[expected] += 1
        least = minimum(embedded)
        result = walk(embedded, rng, max_tokens=least + 8, special=0.3)
        assert result.ended
    assert min(verdicts) > 10, verdicts


@pytest.mark.parametrize("name", cfg_cases.GRAMMARS)
def test_a_grammar_is_the_same_by_itself_and_in_a_machine(name: str) -> None:
    """The same masks, the same shortest ways to the end."""
    text = cfg_cases.GRAMMARS[name]
    alone = structgen.compile(Cfg(text), TINY)
    hosted = structgen.compile(OutputType(ir.Either((cfg.parse(text),)), str, name), TINY)
    assert inside.rules(alone)
    assert inside.rules(hosted) is None
    rng = random.Random(name)
    for _ in seeds(12):
        sentence = cfg_cases.sentence(cfg_cases.grammar(name), name, rng)
        a, b = alone.start(), hosted.start()
        for token in random_tokens(sentence.encode(), rng):
            ids = allowed(a)
            assert ids == allowed(b), sentence
            assert a.min_tokens_to_finish() == b.min_tokens_to_finish()
            assert a.forced_tokens() == b.forced_tokens()
            if token not in ids:
                break
            a.accept(token)
            b.accept(token)


def test_ambiguity_does_not_multiply_states() -> None:
    grammar = 'start: start start | "a" | "aa" | %json {"const": 1}'
    machine = inside.machine(structgen.compile(Cfg(grammar), TINY))
    state = machine.start
    for _ in range(300):
        state = machine.step(state, ord("a"))
    assert state
    assert len(machine.configurations(state)) < 5
    assert len(machine.states) < 20


@pytest.mark.parametrize(
    ("grammar", "line", "column", "says"),
    [
        ('start: "a" %json {"type": }', 1, 27, "must be followed by a JSON Schema"),
        ('start: "a"\n  | %json 12', 2, 11, "object or a boolean, got 12"),
        ('start: A\nA: "x" %json {}', 2, 8, "part of a terminal"),
        ('start: %json {"a":\n1} b\n', 2, 4, "'b' used but not defined"),
        ('start: %json {"a":\n1} "x" )\n', 2, 8, "Unexpected ')'"),
        ('start: "%json {" %regex {}', 1, 18, "%regex is llguidance syntax"),
        ('start: %json {"a":\n\n1} A\nA: /[z/', 4, 4, "unterminated"),
    ],
)
def test_errors_are_placed_in_what_was_written(
    grammar: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(grammar), TINY)
    assert (error.value.line, error.value.column) == (line, column), str(error.value)
    assert says in str(error.value)
    assert "EMBEDDED_1" not in str(error.value)


def test_what_is_refused() -> None:
    with pytest.raises(
        GrammarError, match=r"%json at line 1, column 8 cannot be used: no JSON value"
    ):
        structgen.compile(Cfg('start: %json {"type": "string", "enum": [1]}'), TINY)
    with pytest.raises(GrammarError, match=r"line 2, column 4 cannot be used: .*\$\.minLength"):
        structgen.compile(Cfg('start: "a"\n | %json {"minLength": -1}'), TINY)
    with pytest.raises(
        UnsupportedFeature, match=r"Whether terminal A may end before %json at line 1"
    ):
        structgen.compile(Cfg("start: A %json true\nA: /a(?!.*b)/"), TINY)


def test_json_in_literals_patterns_and_comments_is_none() -> None:
    grammar = 'start: "%json {" /%json [{]/ // %json {\n | "x" # %json ["\n'
    constraint = structgen.compile(Cfg(grammar), TINY)
    assert accepts(constraint, "%json {%json {", random.Random(0))


def test_options_and_explanations_reach_embedded_json() -> None:
    constraint = structgen.compile(Cfg('start: "x" %json {"const": {"a": 1}}'), TINY)
    spaced = structgen.compile(
        Cfg('start: "x" %json {"const": {"a": 1}}'), TINY, whitespace="spaced"
    )
    rng = random.Random(0)
    assert accepts(constraint, 'x{"a":1}', rng)
    assert accepts(constraint, 'x{"a": 1}', rng)
    assert not accepts(spaced, 'x{"a":1}', rng)
    assert accepts(spaced, 'x{"a": 1}', rng)
    assert "const" in str(constraint.explain())


def test_an_error_in_the_middle_of_a_state_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constraint, untouched = compiled("calls"), compiled("calls")
    assert isinstance(inside.machine(constraint), CfgMachine)
    rng = random.Random(0)

    def fails(self: CfgFrame, places: tuple[int, ...]) -> int:
        raise CompileLimitExceeded("too much", limit=1, actual=2)

    with monkeypatch.context() as patched:
        patched.setattr(CfgFrame, "union", fails)
        with pytest.raises(CompileLimitExceeded):
            accepts(constraint, '<f>{"a":1}</f>', rng)
    assert accepts(constraint, '<f>{"a":1}</f>say hi.', rng)
    assert allowed(constraint.start()) == allowed(untouched.start())
