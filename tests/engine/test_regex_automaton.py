"""Regex automata against Python's ``re``: generated patterns and texts, anchors, counts, walks."""

from __future__ import annotations

import functools
import itertools
import random
import re

import inside
import pytest
import regex_oracle
from hypothesis import assume, given
from hypothesis import strategies as st

import structgen
from engine.walks import TINY, accepts, examples, minimum, seeds, walk
from structgen import Regex, UnsupportedFeature
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf, TextLeaf
from structgen.automaton.json.values import JsonLanguage
from structgen.automaton.regex import expressions
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.encoding import JsonString, Utf8
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.strings import string_regex
from structgen.constraint.constraint import Constraint
from structgen.errors import CompileLimitExceeded, PatternError, Unsatisfiable
from structgen.grammar import ir
from structgen.grammar.formats import format_regex
from structgen.grammar.json_schema.graph import Node
from structgen.grammar.regex.read import parse_ecma, parse_python

RANDOM = st.randoms(use_true_random=False)
ALPHABET = regex_oracle.ALPHABET

PATTERNS = [
    r"\d{4}-\d{2}-\d{2}",
    r"(?:[01]\d|2[0-3]):[0-5]\d",
    r"[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}",
    r"a{3,1000}b",
    r"(ab|ba){2,500}",
    r"(a|ab)(c|bcd)*d?",
    r"(a*)*b",
    r"(a|b|ab)*c{100}",
    r"((a{1,3}b){2,4}c){1,2}",
    r"[^\n]{10,20}",
    r".{0,1000}",
    r"(?s).{3}",
    r"(?i)straße|KELVIN",
    r"[\U0001f600-\U0001f64f]+",
    r"[^a-z]*",
    r"[^\x00-\U0010fffe]",
    r"\w+\W\w+",
    r"^abc$",
    r"(^a|b)c",
    r"a(b$|c)",
    r"(?:^|x)a(?:$|x)",
    r"(?=a)\w{2}",
    r"(?!ab)[ab]{3}",
    r"[ab]{3}(?<=b)",
    r"(?<!a)b|ab",
    r"\bfoo\b",
    r"(?=.*\d)(?=.*[a-z])[a-z0-9]{4,6}",
    r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}",
    r"",
    r"a?",
    r"(|a)+",
    r"é|漢{2}|\u00e9",
]


def build(pattern: str, flags: int = 0) -> Constraint:
    return structgen.compile(Regex(pattern, flags), TINY)


# -- the automaton ------------------------------------------------------------------------------


@given(RANDOM)
@examples(300)
def test_generated_patterns_match_what_re_matches(r: random.Random) -> None:
    pattern = regex_oracle.PatternGenerator(r, "python", lookarounds=r.random() < 0.3).pattern()
    try:
        compiled = re.compile(pattern)
    except re.error:
        assume(False)
    try:
        regex = parse_python(pattern)
    except (UnsupportedFeature, PatternError, CompileLimitExceeded):
        assume(False)
    for text in regex_oracle.texts_for(regex, r, ALPHABET, 12):
        want = compiled.fullmatch(text) is not None
        assert evaluate.matches(regex, text) == want, (pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_chosen_patterns_match_what_re_matches(pattern: str) -> None:
    rng = random.Random(pattern)
    regex = parse_python(pattern)
    compiled = re.compile(pattern)
    hits = 0
    for text in regex_oracle.texts_for(regex, rng, ALPHABET + "c@x:29f", 60):
        want = compiled.fullmatch(text) is not None
        hits += want
        assert evaluate.matches(regex, text) == want, text


@pytest.mark.parametrize("least", [0, 1, 2, 999, 1000])
@pytest.mark.parametrize("most", [0, 1, 2, 999, 1000, None])
@pytest.mark.parametrize("body", ["a", "[ab]", "ab?", "(a|b)", "(ab)?"])
def test_counts(body: str, least: int, most: int | None) -> None:
    if most is not None and least > most:
        return
    if body == "(ab)?" and least > 2:
        return  # `re` itself backtracks without end
    pattern = f"(?:{body}){{{least},{'' if most is None else most}}}"
    regex, compiled = parse_python(pattern), re.compile(pattern)
    for count in sorted({0, 1, 2, 3, 998, 999, 1000, 1001}):
        for unit in ("a", "ab"):
            text = unit * count
            assert evaluate.matches(regex, text) == (compiled.fullmatch(text) is not None), count


def test_intersections_and_complements_match_their_definition() -> None:
    rng = random.Random(11)
    generator = regex_oracle.PatternGenerator(rng, "python", lookarounds=False)

    def node(depth: int) -> ir.Regex:
        roll = rng.random()
        if depth and roll < 0.35:
            return ir.Intersect((node(depth - 1), node(depth - 1)))
        if depth and roll < 0.6:
            return ir.Complement(node(depth - 1))
        if depth and roll < 0.7:
            return ir.Concat((node(depth - 1), node(depth - 1)))
        while True:
            try:
                return parse_python(generator.pattern())
            except (PatternError, UnsupportedFeature, CompileLimitExceeded):
                continue

    for _ in seeds(120):
        regex = node(2)
        slow = regex_oracle.Matcher(regex)
        for text in regex_oracle.texts_for(regex, rng, ALPHABET, 8):
            assert evaluate.matches(regex, text) == slow.matches(text), (regex, text)


def test_what_is_read_at_once_is_what_is_read_character_by_character() -> None:
    rng = random.Random(12)
    generator = regex_oracle.PatternGenerator(rng, "python", lookarounds=True)
    told = 0
    for _ in seeds(250):
        try:
            some: list[ir.Regex] = [parse_python(generator.pattern()) for _ in range(2)]
        except (PatternError, UnsupportedFeature, CompileLimitExceeded):
            continue
        some.append(ir.Repeat(ir.ANY_CHAR, rng.randrange(3), rng.choice([None, 3, 9])))
        some.append(ir.Complement(ir.Concat((some[0], some[1]))))
        regex = ir.Intersect((*rng.sample(some, rng.randrange(1, 4)),))
        automaton = RegexAutomaton(regex)
        for text in regex_oracle.texts_for(regex, rng, ALPHABET, 10):
            if not text.isascii():
                continue
            for at in range(len(text) + 1):
                to = automaton.read(automaton.start, text[:at].encode())
                rest = None if to is None else automaton.read(to, text[at:].encode())
                ends = rest is not None and automaton.label(rest) >= 0
                assert ends == automaton.accepts(text), (regex, text, at)
                told += ends
    assert told > len(seeds(200))


def test_repeats_of_sets_that_hold_together() -> None:
    rng = random.Random(13)
    texts = ["".join(t) for n in range(5) for t in itertools.product("ab-", repeat=n)]
    for _ in range(150):
        parts = []
        for _ in range(rng.randrange(2, 4)):
            chars = "".join(rng.sample("ab-c", rng.randrange(1, 5)))
            least = rng.randrange(4)
            most = rng.choice(["", max(least, 1), least + 1, least + 3])
            parts.append(f"[{chars}]{{{least},{most}}}")
        regexes = tuple(parse_python(part.replace("-", r"\-")) for part in parts)
        automaton = RegexAutomaton(ir.Intersect(regexes))
        assert not automaton.expressions.flags[automaton.start] & 0b11000
        for text in texts:
            want = all(re.fullmatch(part.replace("-", r"\-"), text) for part in parts)
            assert automaton.accepts(text) == want, (parts, text)


# -- as masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
def test_walks_match(pattern: str) -> None:
    constraint = build(pattern)
    compiled = re.compile(pattern)
    rng = random.Random(pattern)
    least = minimum(constraint)
    for extra in (0, 1, 3, 10):
        result = walk(constraint, rng, max_tokens=least + extra, end=0.1)
        assert result.ended
        assert compiled.fullmatch(result.text), result.text
    unbounded = walk(constraint, rng, steps=60)
    if unbounded.ended:
        assert compiled.fullmatch(unbounded.text), unbounded.text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_are_accepted_exactly_when_re_matches(pattern: str) -> None:
    constraint = build(pattern)
    compiled = re.compile(pattern)
    rng = random.Random(pattern)
    for text in regex_oracle.texts_for(parse_python(pattern), rng, ALPHABET + "c@x:29f", 15):
        assert accepts(constraint, text, rng) == (compiled.fullmatch(text) is not None), text


@given(RANDOM, st.integers(0, 1 << 30))
@examples(100)
def test_generated_patterns_as_masks(r: random.Random, seed: int) -> None:
    pattern = regex_oracle.PatternGenerator(r, "python", lookarounds=r.random() < 0.2).pattern()
    try:
        compiled = re.compile(pattern)
    except re.error:
        assume(False)
    rng = random.Random(seed)
    try:
        constraint = build(pattern)
    except Unsatisfiable:
        texts = [regex_oracle.sample(parse_python(pattern), rng, ALPHABET) for _ in range(10)]
        assert not any(compiled.fullmatch(text) for text in texts), pattern
        return
    except (UnsupportedFeature, PatternError, CompileLimitExceeded):
        assume(False)
    result = walk(constraint, rng, max_tokens=minimum(constraint) + rng.randint(0, 8), end=0.1)
    assert compiled.fullmatch(result.text), (pattern, result.text)
    for text in regex_oracle.texts_for(parse_python(pattern), rng, ALPHABET, 4):
        assert accepts(constraint, text, rng) == (compiled.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "flags"), [("abc", re.IGNORECASE), ("a.b", re.DOTALL), (r"\w+", re.ASCII)]
)
def test_flags(pattern: str, flags: int) -> None:
    constraint = build(pattern, flags)
    compiled = re.compile(pattern, flags)
    rng = random.Random(2)
    for text in ["abc", "ABC", "aBc", "a\nb", "axb", "é", "word", "ſ", "aéb"]:
        assert accepts(constraint, text, rng) == (compiled.fullmatch(text) is not None), text


def test_the_shortest_completion_is_the_fewest_bytes() -> None:
    # Bytes and tokens agree where every token is one byte.
    tokens = [bytes([b]) for b in range(256)] + [b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, [256])
    for pattern, fewest in [
        ("a{3,1000}b", 4),
        ("(abc|de)f?", 2),
        ("[^a]", 1),
        ("é+", 2),
        ("[é漢]x", 3),
        ("(a|b|ab)*c{100}", 100),
        ("(?=.*d)[a-d]{2,}", 2),
        ("", 0),
    ]:
        cursor = structgen.compile(Regex(pattern), vocabulary).start()
        assert cursor.min_tokens_to_finish() == fewest + 1, pattern


def test_hostile_patterns_end_in_an_answer_or_a_limit() -> None:
    for pattern in [
        "(a|b|ab)*c{1000}",
        "(a?){1000}a{1000}",
        "((a{1,100}){1,100}){1,100}",
        "(.*a.{10})+",
        "(x+x+)+y",
        "(?=.*a.{5})(?=.*b.{4})(?=.*c.{3}).*",
    ]:
        try:
            constraint = build(pattern)
            result = walk(constraint, random.Random(0), max_tokens=minimum(constraint) + 5)
        except (CompileLimitExceeded, UnsupportedFeature):
            continue
        assert re.fullmatch(pattern, result.text) if len(result.text) < 100 else result.ended


SEARCHED = [
    "a{3}",
    "(ab|a){3}",
    "(ab|a){2,4}",
    "(a b?){2}a{2,4}",
    "(a+ ){2}|(b+ ){3}",
    "^(ab?){3}|b{3}",
    "(a(?=b)|b){3}",
    "(ab?){2}$|b{4}",
    "((ab?){2}b){2}",
]


@pytest.mark.parametrize("pattern", SEARCHED)
def test_counted_repeats_that_are_searched_for(pattern: str) -> None:
    automaton = RegexAutomaton(parse_ecma(pattern))
    for length in range(9):
        for chars in itertools.product("ab ", repeat=length):
            text = "".join(chars)
            assert automaton.accepts(text) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize("pattern", PATTERNS[:4] + PATTERNS[7:9] + PATTERNS[11:] + SEARCHED)
def test_shortest_texts_are_shortest(pattern: str) -> None:
    """Symbol by symbol with an estimate, against byte by byte without one."""
    rng = random.Random(pattern)
    automaton = RegexAutomaton(parse_python(pattern))
    leaf = TextLeaf(automaton, Utf8(automaton.alphabet))
    at = leaf.start
    for _ in range(20):
        quick, slow = leaf.shortest(at), Leaf._search(leaf, at, None)
        if leaf.label(at) < 0:
            assert quick is not None
            assert slow is not None
            assert len(quick[0]) == len(slow[0])
        symbol_state = leaf.text_state(at)
        if symbol_state is not None and quick is not None:
            assert automaton.at_least(symbol_state) <= len(quick[0].decode())
        following = list(leaf.row(at).values())
        if not following:
            return
        at = rng.choice(following)


@pytest.mark.parametrize("pattern", ["é.*ü", "(ab|cd|ef)+(g|hi)", "a(b|c)*d|a(c|e)*f.{2}"])
def test_a_shortest_text_does_not_depend_on_what_was_asked_before(pattern: str) -> None:
    whole = ir.Intersect((parse_ecma(pattern), ir.Repeat(ir.ANY_CHAR, 6, None)))

    def shortest(texts: list[bytes]) -> dict[bytes, bytes]:
        automaton = RegexAutomaton(whole)
        leaf = TextLeaf(automaton, Utf8(automaton.alphabet))
        found: dict[bytes, bytes] = {}
        for text in texts:
            rest = leaf.shortest(functools.reduce(leaf.step, text, leaf.start))
            assert rest is not None
            found[text] = bytes(rest[0])
        return found

    rng = random.Random(pattern)
    texts = ["".join(rng.choices("aébcdefü", k=size)).encode() for size in range(9)]
    texts = list(dict.fromkeys(text[:end] for text in texts for end in (len(text), -1)))
    alone = {text: shortest([text])[text] for text in texts}
    for _ in range(5):
        rng.shuffle(texts)
        assert shortest(texts) == alone


@pytest.mark.parametrize(
    ("name", "least", "states"),
    [
        ("date-time", 0, 1_000),
        ("time", 0, 1_000),
        ("date-time", 60, 10_000),
        ("email", 60, 20_000),
        ("uri", 200, 10_000),
        ("idn-email", 32, 20_000),
        ("regex", 60, 40_000),
    ],
)
def test_formats_need_few_states_for_a_shortest_text(name: str, least: int, states: int) -> None:
    language = format_regex(name)
    assert language is not None
    regex = string_regex([Node("$", patterns=(language,), min_length=least)])
    assert regex is not None
    automaton = RegexAutomaton(regex)
    leaf = StringLeaf(automaton, JsonString(automaton.alphabet))
    shortest = leaf.shortest(leaf.start)
    assert shortest is not None
    assert len(shortest[0]) >= least + 2
    assert len(automaton.expressions.nodes) < states


@pytest.mark.parametrize("pattern", ["a{3000}", "(ab|a){3000}", r"(\w+ ){3000}", "[ab]{3000}c?"])
def test_counted_repeats_that_are_searched_for_need_few_states(pattern: str) -> None:
    automaton = RegexAutomaton(parse_ecma(pattern))
    leaf = StringLeaf(automaton, JsonString(automaton.alphabet))
    assert leaf.shortest(leaf.start)
    assert automaton.expressions.size < 40 * 3000


def test_alternatives_that_grow_are_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "string", "pattern": "a{5000}b"}
    structgen.compile(structgen.JsonSchema(schema), TINY)  # any count up to 5,000 is one part
    monkeypatch.setattr(expressions, "MAX_SIZE", 20_000)
    schema = {"type": "string", "pattern": "^(?:a|aaa){1000}$"}
    with pytest.raises(CompileLimitExceeded, match="alternatives at once") as caught:
        structgen.compile(structgen.JsonSchema(schema), TINY)
    assert caught.value.path == "$.pattern"


@pytest.mark.parametrize("pattern", ["a?" * 1500, "a?b?" * 300, "(?:a|b)?c?" * 200, "a*b*" * 300])
def test_long_chains_of_optional_parts(pattern: str) -> None:
    constraint = structgen.compile(Regex(pattern), TINY)
    for text in ("", "aa", "abab", "acbc", "ba" * 20, "c", "d"):
        verdict = accepts(constraint, text, random.Random(0))
        assert verdict == bool(re.fullmatch(pattern, text)), text


def test_texts_that_cannot_be_shorter_are_not_searched_for() -> None:
    patterns = [f"only here {i}$" for i in range(16)]
    schema = {"type": "string", "minLength": 30, "anyOf": [{"pattern": p} for p in patterns]}
    constraint = structgen.compile(structgen.JsonSchema(schema), TINY)
    (language,) = inside.machine(constraint).languages
    assert isinstance(language, JsonLanguage)
    texts = [leaf for leaf in inside.machine(constraint).leaves if isinstance(leaf, StringLeaf)]
    assert len(texts) == len(patterns)
    assert language.values.shortest(language.root) is not None
    assert sum(bool(inside.shortest(leaf)) for leaf in texts) == 1
    assert constraint.start().min_tokens_to_finish() >= 2


def test_states_that_grow_out_of_proportion_show_soon() -> None:
    with pytest.raises(CompileLimitExceeded, match="begin anywhere") as caught:
        structgen.compile(Regex("(a|b)*a(a|b){20}"), TINY)
    assert caught.value.limit < 30_000
    fewer = structgen.compile(Regex("(a|b)*a(a|b){10}"), TINY)
    assert accepts(fewer, "ba" * 7, random.Random(0))
    long = structgen.compile(Regex("([ab]{3}-){6000}"), TINY)  # few for its length
    assert minimum(long) > 10_000


AMBIGUOUS = [
    "a|b|ab",
    "a|ab|abc|b|bc|c",
    "a|aa|ba",
    "(?:ab?|b)c?",
    "a|b|aba",
    "[ab]{1,3}c?",
    "ab|a|b+",
]


@given(RANDOM)
def test_counts_of_what_can_be_split_in_several_ways_are_exact(rng: random.Random) -> None:
    least = rng.randrange(9)
    most = rng.choice([least, least, least + 1, least + 4, ""])
    tail = rng.choice(["", "a", "(?:ab|c)*", "(?:b|ab){2,3}"])
    pattern = f"{rng.choice(['', 'b?'])}(?:{rng.choice(AMBIGUOUS)}){{{least},{most}}}{tail}"
    automaton = RegexAutomaton(parse_python(pattern))
    compiled = re.compile(pattern)
    for _ in range(20):
        text = "".join(rng.choice("aabbc") for _ in range(rng.randrange(16)))
        assert automaton.accepts(text) == bool(compiled.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(?:a|b|ab){1000}", "(?:a|b|ab){500,1000}", "(?:[ab]+ ?){1000}", "(?:ab|a|bc|c|bca){1000}"],
)
def test_a_thousand_rounds_that_can_be_split_in_several_ways(pattern: str) -> None:
    structgen.compile(Regex(pattern), TINY)
    automaton = RegexAutomaton(parse_python(pattern))
    state: int | None = automaton.start
    for char in "ab" * 150:
        assert state is not None
        state = automaton.follow(state, automaton.alphabet.minterm(ord(char)))
    assert len(automaton.expressions.nodes) < 10_000
    assert automaton.expressions.size < 10 * len(automaton.expressions.nodes)
    assert automaton.expressions.size < 40_000


def test_what_multiplies_shows_early_however_long_its_texts_are() -> None:
    with pytest.raises(CompileLimitExceeded, match="begin anywhere"):
        structgen.compile(Regex("(a|b)*a(a|b){2000}"), TINY, max_work=250_000)


def test_what_grows_late_in_a_text_shows_too() -> None:
    for pattern in ("(?:a|b|ab){300}(a|b)*a(a|b){20}", "[ab]{2000}(a|b)*a(a|b){20}"):
        with pytest.raises(CompileLimitExceeded, match="begin anywhere"):
            structgen.compile(Regex(pattern), TINY)
