"""Masks, budgets, forced tokens and depth of context-free grammars."""

from __future__ import annotations

import random

import cfg_cases
import inside
import lark
import pytest
import real_tokenizers
from engine.walks import (
    SCALE,
    TINY,
    accepts,
    allowed,
    brute_force_ids,
    ids_of,
    random_tokens,
    read_mask,
    replay,
    seeds,
    states_on_the_way,
    walks_within_the_budget,
)
from test_cfg_lark import lark_accepts

import structgen
from structgen import Cfg, Constraint
from structgen.grammar.cfg import library as grammars

NAMES = list(cfg_cases.GRAMMARS)


def compiled(name: str) -> Constraint:
    return structgen.compile(Cfg(cfg_cases.GRAMMARS[name]), TINY)


@pytest.mark.parametrize("name", NAMES)
def test_masks_equal_brute_force(name: str) -> None:
    constraint = compiled(name)
    rng = random.Random(name)
    for cursor in states_on_the_way(constraint, rng, len(seeds(40)), special=0.5):
        state = inside.state(cursor)
        assert set(allowed(cursor)) == brute_force_ids(constraint, state, TINY)
    # Uniform walks hardly ever write what a grammar is about; sentences do.
    for _ in seeds(8):
        text = cfg_cases.sentence(cfg_cases.grammar(name), name, rng)
        cursor = constraint.start()
        for token in random_tokens(text.encode(), rng):
            state = inside.state(cursor)
            ids = set(allowed(cursor))
            assert ids == brute_force_ids(constraint, state, TINY)
            if token not in ids:
                break
            cursor.accept(token)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_read_at_once_lead_where_their_bytes_do(name: str) -> None:
    constraint = compiled(name)
    machine = inside.machine(constraint)
    rng = random.Random(name)
    tokens = [t for t in TINY.tokens if t]
    for cursor in states_on_the_way(constraint, rng, len(seeds(25)), special=0.5):
        state = inside.state(cursor)
        for token in [t for t in tokens if machine.step(state, t[0])] + rng.sample(tokens, 20):
            to = state
            for byte in token:
                to = machine.step(to, byte)
            assert machine.read(state, token) == (to, len(token))
            assert machine.read(state, b"x" + token, 1) == (to, len(token) + 1)


NOT_FREE = {
    "sql-select": (
        'IS: ("IS" | "is") SPACE',
        'IS: ("IS" | "is") SPACE (("NOT" | "not") SPACE)?',
        "SELECT a.b, count(*) FROM t WHERE a NOT IN (1, 2) AND b IS NULL",
    ),
    "python-function": (
        '"def" SPACE NAME',
        '"def" SPACE NAME NAME?',
        "def f(a: int, *b) -> x:\n    if a in b:\n        return 'x'\n",
    ),
}
"""Library grammars with a change after which a terminal's demand could lead to a dead end."""


@pytest.mark.parametrize("name", grammars.names())
def test_no_grammar_of_the_library_has_dead_ends(name: str) -> None:
    constraint = structgen.compile(Cfg.named(name), TINY)
    assert inside.rules(constraint).is_free


def test_what_may_not_follow_anyway_is_not_demanded() -> None:
    """No word that begins as a keyword does demands more than that no letter follows."""
    text = 'start: NAME ("." NAME)*\nNAME: /(?!(?:for|from|select)(?![a-z]))[a-z]+/'
    lexer = inside.rules(structgen.compile(Cfg(text), TINY)).lexer
    assert len(lexer.terminals.demands(1)[2]) == 1


@pytest.mark.parametrize("name", list(NOT_FREE))
def test_what_may_begin_is_what_a_look_at_each_terminal_says(name: str) -> None:
    before, after, text = NOT_FREE[name]
    grammar = Cfg.named(name).text
    assert before in grammar
    constraint = structgen.compile(Cfg(grammar.replace(before, after)), TINY)
    rules = inside.rules(constraint)
    entries = inside.entries(rules)
    cursor = constraint.start()
    for token in random_tokens(text.encode(), random.Random(name)):
        allowed(cursor)
        cursor.accept(token)
    assert not rules.is_free
    assert len(entries) > 30
    sure = 0
    for (place, condition), entry in [*entries.items()]:
        expected = rules.graph.expected(place) | rules.ignore
        chosen = rules._chosen(place, condition, expected)
        q = rules.lexer.entry(tuple(chosen), condition)
        assert entry == (q if rules.lexer.continues(q) else -1)
        sure += len(rules._fine(place)[0] & rules._met(condition)[0])
    assert sure > len(entries) / 2


@pytest.mark.parametrize("name", NAMES)
def test_walks_end_and_parse(name: str) -> None:
    constraint = compiled(name)
    rng = random.Random(name)
    for result in walks_within_the_budget(constraint, rng, 6):
        assert lark_accepts(name, result.text), result.text


@pytest.mark.parametrize("name", NAMES)
def test_forced_tokens_and_rollback(name: str) -> None:
    constraint = compiled(name)
    rng = random.Random(name)
    for _ in seeds(5):
        cursor, ids = constraint.start(), []
        for _ in range(25):
            forced = cursor.forced_tokens()
            probe = replay(constraint, ids)
            for token in forced:
                probe.accept(token)
            choices = [i for i in allowed(cursor) if i not in TINY.eos_token_ids]
            if not choices:
                break
            ids.append(rng.choice(choices))
            cursor.accept(ids[-1])
        back = rng.randint(0, len(ids))
        cursor.rollback(back)
        assert allowed(cursor) == allowed(replay(constraint, ids[: len(ids) - back]))


def test_tokens_may_cut_terminals_and_characters_anywhere() -> None:
    constraint = compiled("case and unicode")
    rng = random.Random(0)
    for text in ("SELECT GrÖßE привет😀", "select\tGRÖSSE", "größe"):
        for _ in range(10):
            assert accepts(constraint, text, rng) == lark_accepts("case and unicode", text)


PROGRAM = r"""
start: (def | statement)+
def: "def" NAME "(" (NAME ("," NAME)*)? ")" ":" (INDENT statement)+
statement: (NAME ("." NAME)* "=")? expr NEWLINE | "return" expr? NEWLINE
expr: expr ("+" | "-" | "*" | "and" | "in") expr | "not" expr | NAME | NUMBER | STRING
    | expr "(" (expr ("," expr)*)? ")" | "[" (expr ("," expr)*)? "]" | "(" expr ")"
NAME: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?/
STRING: /"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*'/
NEWLINE: /\n+/
INDENT: /\n+ {4}/
%ignore / +/
"""

WRITTEN = {
    "json": (
        cfg_cases.GRAMMARS["json"],
        '{"a b": [1, -2.5e3, true], "é": {"x": "\\"y\\u00e9日本 \\\\"}}',
    ),
    "program": (
        PROGRAM,
        "def area(r):\n    x.y = [1.5, 'it\\'s', \"日本 😀\"] + not_(r, 2e5) and (a in b)\n"
        "print('%d' , x)\n",
    ),
    "words": (
        """
        start: (NAME | "the" NAME | NAME "!s" NAME | GREEK)+
        NAME: /[a-zà-ü]+/i
        GREEK: /[α-ω]{2,5}|[^a-z ]/
        %ignore /\\s+/
        """,
        "the cat!s Größe αβγ ? été\n  x",
    ),
    # Prefixes that a goal begins again after: tokens of many hyphens are chains of nodes.
    "prefixes": (
        """
        start: condition (";" condition)*
        condition: "not" condition | "if" condition | sum
        sum: (sum ("+" | "-"))? product
        product: (product ("*" | "//"))? unary
        unary: ("-" | "~" | "--" | "- -") unary | NAME | "(" condition ")"
        NAME: /[a-z]+/
        %ignore /[ \t]+/
        """,
        "a *--b -  - c;not not ---------- (- d // ----x*~~(- n)) ; if not- if",
    ),
}


@pytest.mark.parametrize("kind", ["smollm2", "llama3"])
@pytest.mark.parametrize("name", list(WRITTEN))
def test_masks_equal_brute_force_with_real_vocabularies(name: str, kind: str) -> None:
    vocabulary = real_tokenizers.vocabulary(kind)
    grammar, text = WRITTEN[name]
    constraint = structgen.compile(Cfg(grammar), vocabulary)
    rng = random.Random(f"{name} {kind}")
    # As the tokenizer would have it, and cut anywhere: inside characters and terminals.
    whole = vocabulary.encode_bytes(text.encode())
    cut = [t for byte in text.encode() for t in vocabulary.encode_bytes(bytes([byte]))]
    # Brute force takes long with the larger vocabulary: at every place with the smaller one only.
    most = (1.0 if kind == "smollm2" else 0.35) * max(SCALE, 0.3)
    for tokens, share in ((whole, most), (cut, 0.15 * most)):
        cursor = constraint.start()
        for token in tokens:
            mask = read_mask(cursor, vocabulary)
            if rng.random() < share:
                state = inside.state(cursor)
                assert set(ids_of(mask)) == brute_force_ids(constraint, state, vocabulary)
            assert mask[token // 32] >> (token % 32) & 1
            cursor.accept(token)
    assert cursor.is_accepting


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('start: "(" start ")" | "x"', "(" * 10_000 + "x" + ")" * 10_000),
        ('start: "x" | "x" "," start', "x," * 10_000 + "x"),
        ('start: "x" | start "," "x"', "x," * 10_000 + "x"),
        ('start: start "+" start | "x"', "x+" * 2_000 + "x"),
        ('start: "a" start "b" | "a" start "c" | "."', "a" * 3_000 + "." + "bc" * 1_500),
    ],
)
def test_depth_is_no_limit(grammar: str, text: str) -> None:
    constraint = structgen.compile(Cfg(grammar), TINY)
    machine = inside.machine(constraint)
    state = machine.start
    half = text[: len(text) // 2]
    for byte in half.encode():
        state = machine.step(state, byte)
    assert state
    rest = machine.shortest_completion(state)
    assert cfg_cases.accepts(machine, half + bytes(rest).decode())  # type: ignore[arg-type]
    assert cfg_cases.accepts(machine, text)  # type: ignore[arg-type]
    assert not cfg_cases.accepts(machine, text + ")")  # type: ignore[arg-type]


def test_states_do_not_grow_with_lists() -> None:
    """A list, however written, comes back to the same states."""
    for grammar in ('start: "x" | "x" "," start', 'start: start "," start | "x"', 'start: "x"+'):
        constraint = structgen.compile(Cfg(grammar), TINY)
        machine = inside.machine(constraint)
        state = machine.start
        separator = b"" if "," not in grammar else b","
        for byte in (b"x" + separator) * 50:
            state = machine.step(state, byte)
        assert len(machine.states) < 12


def test_sentences_are_oracle_checked() -> None:
    """The oracle itself: what Lark's parser with a clean slate says of a few texts."""
    parser = lark.Lark(cfg_cases.GRAMMARS["numbers side by side"], parser="earley")
    parser.parse("1,2")
    parser.parse("12")
    assert cfg_cases.accepts(cfg_cases.machine("numbers side by side"), "1.5.2")
    parser.parse("1.5.2")
