"""Rules with ``max_tokens=`` and ``temperature=``: masks against brute force, and whole outputs."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import Cfg, Constraint, Cursor, Generator, Vocabulary
from structgen.automaton.core import TextHistory
from structgen.errors import BudgetTooSmall, GrammarError, OptionError, UnsupportedFeature
from structgen.integrations import numpy as processors
from structgen.integrations import vllm
from structgen.text_model import TextModel

_LETTERS = b"abxy\xc3\xa9"
_TEXTS = [bytes([b]) for b in _LETTERS]
_TEXTS += [
    bytes(t) for n in (2, 3) for t in itertools.product(b"abxy", repeat=n) if n < 3 or t[0] < t[2]
]
_TEXTS += ["é".encode(), "aé".encode(), b"\xa9b"]
_OTHERS = [bytes([b]) for b in range(256) if b not in _LETTERS]  # which no case has
END = len(_TEXTS + _OTHERS)
SMALL = Vocabulary.from_tokens([*_TEXTS, *_OTHERS, b""], [END])

# A grammar, and what it is made of: literals, and patterns with the most tokens of each.
CASES: list[tuple[str, list[bytes | tuple[bytes, int]]]] = [
    ('start: "x" n "xy"\nn[max_tokens=2]: /[ab]*/', [b"x", (b"[ab]*", 2), b"xy"]),
    ("start: n\nn[max_tokens=3]: /a*bb/", [(b"a*bb", 3)]),
    (
        'start: n m "y"\nn[max_tokens=1]: /a+/\nm[max_tokens=2]: /[ab]+/',
        [(b"a+", 1), (b"[ab]+", 2), b"y"],
    ),
    (
        'start: n "a" n\nn[max_tokens=2]: /(aé|b)+/',
        [(b"(a\xc3\xa9|b)+", 2), b"a", (b"(a\xc3\xa9|b)+", 2)],
    ),
    ('start: n "y"\nn[max_tokens=4]: /y?é*/', [(b"y?(\xc3\xa9)*", 4), b"y"]),
    (
        'start: "x" n "y"\nn[max_tokens=4, suffix="xb"]: /[abx]*/',
        [b"x", (b"(?:(?!xb)[abx])*xb", 4), b"y"],
    ),
    ('start: n "y"\nn[max_tokens=3]: %lark {\n  start: a "b"\n  a: "a"+\n}', [(b"a+b", 3), b"y"]),
    ('start: n "y"\nn[max_tokens=0]: /a+/', [b"y"]),
    (
        'start: n "b"\nn[max_tokens=2]: /a+/\n%ignore "x"',
        [(b"a+", 2), (b"x*", 99), b"b", (b"x*", 99)],
    ),
]


@cache
def missing(pattern: bytes, body: bytes) -> int:
    """The fewest bytes that make a whole of the beginning of a pattern's text; 99: nothing does."""
    for size in range(4):
        for end in itertools.product(_LETTERS, repeat=size):
            if re.fullmatch(pattern, body + bytes(end)):
                return size
    return 99


def is_alive(tokens: list[bytes], parts: list[bytes | tuple[bytes, int]], whole: bool) -> bool:
    """Whether some tokens are a text of the parts; or begin one, each rule being able to end."""
    text = b"".join(tokens)
    ends = list(itertools.accumulate(map(len, tokens)))
    spans = list(zip([0, *ends], ends, strict=False))

    def touched(begin: int, end: int) -> int:
        return sum(first < end and last > begin for first, last in spans)

    def fits(pattern: bytes, most: int, begin: int, end: int) -> bool:
        """Whether the rule could end wherever a token of it has ended."""
        return touched(begin, end) <= most and all(
            missing(pattern, text[begin:at]) <= most - touched(begin, at)
            for at in ends
            if begin < at < end
        )

    def match(at: int, i: int) -> bool:
        if i == len(parts):
            return at == len(text)
        part = parts[i]
        if isinstance(part, bytes):
            if not whole and part.startswith(text[at:]):
                return True
            return text.startswith(part, at) and match(at + len(part), i + 1)
        pattern, most = part
        for end in range(at, len(text) + 1):
            is_whole = re.fullmatch(pattern, text[at:end]) and fits(pattern, most, at, end)
            if is_whole and match(end, i + 1):
                return True
        if whole:
            return False
        left = most - touched(at, len(text))
        return fits(pattern, most, at, len(text)) and missing(pattern, text[at:]) <= left

    return match(0, 0)


def allowed(cursor: Cursor) -> list[int]:
    size = cursor.vocabulary.size
    mask = np.zeros((size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    found: list[int] = np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), bitorder="little")
    ).tolist()
    return found


def compiled(text: str, vocabulary: Vocabulary = SMALL) -> Constraint:
    return structgen.compile(Cfg(text, dialect="llguidance"), vocabulary)


@pytest.mark.parametrize(("text", "parts"), CASES)
def test_masks_are_those_of_brute_force(text: str, parts: Any) -> None:
    constraint, draw = compiled(text), random.Random(1)
    for _ in range(25):
        cursor, tokens = constraint.start(), list[bytes]()
        while len(tokens) < 7:
            found = allowed(cursor)
            alive = [i for i, t in enumerate(_TEXTS) if is_alive([*tokens, t], parts, False)]
            ends = [END] if is_alive(tokens, parts, True) else []
            assert found == alive + ends, tokens
            assert cursor.is_accepting is bool(ends)
            if not alive:
                break
            token = draw.choice(alive)
            cursor.accept(token)
            tokens.append(_TEXTS[token])
            assert found, "no place is a dead end"


@pytest.mark.parametrize(("text", "parts"), CASES)
def test_outputs_end_within_a_budget(text: str, parts: Any) -> None:
    constraint, draw = compiled(text), random.Random(2)
    with pytest.raises(BudgetTooSmall) as caught:
        constraint.start(max_tokens=1)
    for budget in range(caught.value.minimum, caught.value.minimum + 5):
        for _ in range(10):
            cursor, tokens = constraint.start(max_tokens=budget), list[bytes]()
            while (token := draw.choice(allowed(cursor))) != END:
                forced = cursor.forced_tokens()
                token = forced[0] if forced else token
                cursor.accept(token)
                tokens.append(_TEXTS[token])
            assert len(tokens) < budget
            assert is_alive(tokens, parts, True)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        (r'start: n "\n"' + "\nn[max_tokens=3]: /.*/", " Paris is"),
        ('start: n " ok"\nn[max_tokens=7, suffix="</a>"]: /(?s:.*)/', " one two"),
        ('start: "{" n "}"\nn[max_tokens=3]: /[0-9]+\\.[0-9]+/', "{1"),
    ],
)
def test_masks_of_a_real_vocabulary_are_what_is_accepted(text: str, begun: str) -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    cursor = compiled(text, vocabulary).start()
    for token in [*vocabulary.encode_bytes(begun.encode())]:
        cursor.accept(token)
    for _ in range(3):
        found, (engine, state) = allowed(cursor), cursor.place
        ends = vocabulary.eos_token_ids if cursor.is_accepting else ()
        read = [t for t in range(vocabulary.size) if engine.advance(state, t, TextHistory)]
        assert found == sorted({*read, *ends})
        if not read:
            break
        cursor.accept(read[len(read) // 2])


def test_an_end_that_does_not_fit_is_refused() -> None:
    for pattern in ('"aaa"', "/(aaa)*/"):
        with pytest.raises(
            GrammarError, match="max_tokens=2 is too small: the shortest nonempty text"
        ):
            compiled(f"start: n\nn[max_tokens=2]: {pattern}")
    with pytest.raises(GrammarError, match="max_tokens= is not supported for %json"):
        compiled('start: n\nn[max_tokens=2]: %json {"type": "integer"}')
    with pytest.raises(GrammarError, match="Only regular parts can be in a rule with max_tok"):
        compiled('start: n\nn[max_tokens=2]: %lark {\n  start: "(" start ")" | "a"\n}')


def test_the_greatest_temperature_of_the_rules_counts() -> None:
    letters = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])
    text = """
start: "x" n "-" (n | m) "." j /z+/
n[temperature=0.5]: /[0-9]+/
m[temperature=0.0]: /[a-z]+/
j[temperature=1.5]: %json {"type": "array", "items": {"type": "array"}}
"""
    constraint = compiled(text, letters)
    again = Constraint.from_bytes(constraint.to_bytes(), letters)
    for one in (constraint, again):
        assert one.has_temperatures
        cursor, said = one.start(), list[float | None]()
        for byte in b"x12-ab.[[]]zz":
            said.append(cursor.temperature)
            cursor.accept(byte)
        assert said == [None, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0, *[1.5] * 4, None, None]
    assert compiled('start: n\nn[max_tokens=2]: "a"').has_temperatures is False
    assert structgen.compile(int, letters).start().temperature is None


def test_limits_survive_bytes() -> None:
    constraint = compiled(CASES[0][0])
    again = Constraint.from_bytes(constraint.to_bytes(), SMALL)
    for cursors in (constraint.start(), again.start()):
        for token in (b"x", b"a", b"b"):
            cursors.accept(_TEXTS.index(token))
        assert [_TEXTS[token] for token in allowed(cursors)] == [b"x", b"xy"]


def test_other_engines_refuse_temperatures() -> None:
    constraint = compiled('start: n\nn[temperature=0.5]: "a"')
    with pytest.raises(UnsupportedFeature, match="when another engine samples"):
        processors.Sequences(constraint, None)
    with pytest.raises(UnsupportedFeature, match="when another engine samples"):
        vllm.arguments(constraint)


_STORY = Cfg(
    r"""
start: "Name: " name "\nCity: " city "\n"
name[capture, max_tokens=3, temperature=1.5]: /[A-Za-z ]+/
city[capture, max_tokens=2]: /[A-Za-z ]+/
""",
    dialect="llguidance",
)


def test_a_model_writes_rules_within_their_limits(model: TextModel) -> None:
    generator = Generator(model, _STORY)
    results = [generator.result("A person.", max_new_tokens=40, seed=seed) for seed in range(4)]
    tokens = model.vocabulary.tokens
    for result in results:
        ends = list(itertools.accumulate(len(tokens[token]) for token in result.token_ids))
        for name, most in (("name", 3), ("city", 2)):
            captured = result.value.captures[name]
            begin = result.text.index(f"{name.title()}: ") + 6
            spans = zip([0, *ends], ends, strict=False)
            assert sum(a < begin + len(captured) and b > begin for a, b in spans) <= most
    assert len({result.value.captures["name"] for result in results}) > 1, "they are sampled"
    again = generator.result("A person.", max_new_tokens=40, seed=3)
    assert again.text == results[3].text
    assert len(generator.batch(["A person."] * 2, max_new_tokens=40, seed=3)) == 2


def test_a_rule_that_is_greedy_is_greedy_in_a_call_that_samples(model: TextModel) -> None:
    text = 'start: "I like" thing "."\nthing[temperature=0]: / [a-z ]{4,16}/'
    generator = Generator(model, Cfg(text, dialect="llguidance"))
    sampled = [
        generator.result("Hello.", max_new_tokens=30, temperature=3.0, seed=n).text
        for n in range(3)
    ]
    assert {*sampled} == {generator.result("Hello.", max_new_tokens=30).text}


def test_retries_and_several_outputs(model: TextModel) -> None:
    generator = Generator(model, _STORY)
    outputs = generator("A person.", n=3, max_new_tokens=40, seed=5)
    assert len({*outputs}) > 1
    with pytest.raises(OptionError, match="retries= cannot be combined with temperature="):
        generator("A person.", retries=2, max_new_tokens=40)


def test_a_token_that_can_be_cut_in_many_ways_is_listed_once() -> None:
    """Rules that may follow one another at each byte: of two, one mask took 100 s and 5 GB."""
    texts = [b"a" * n for n in range(1, 40)]
    others = [bytes([b]) for b in range(256) if b != ord("a")]
    vocabulary = Vocabulary.from_tokens([*texts, *others, b""], [len(texts) + len(others)])
    rules = "w[max_tokens=5]: /a+/\nv[max_tokens=7]: /a+/\n"
    cursor = compiled(f"start: (w|v)+\n{rules}", vocabulary).start()
    assert allowed(cursor) == list(range(len(texts)))
    cursor.accept(0)
    assert allowed(cursor) == [*range(len(texts)), vocabulary.size - 1]
