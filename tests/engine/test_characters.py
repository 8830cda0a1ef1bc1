"""Characters of a vocabulary, against the encodings and the tokens themselves."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import get_args

import inside
import numpy as np
import pytest

import structgen
from structgen import JsonSchema
from structgen.automaton.regex import RegexAutomaton, StructuralHash
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import GROUND, Escapes, JsonString, Utf8
from structgen.automaton.work import Limits, within
from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir
from structgen.grammar.regex import parse_ecma
from structgen.masks.leaf_walks import walker_of
from structgen.masks.text import character_arrays
from structgen.vocabulary.trie import Trie

_SETS = {
    ((0x22, 0x22), (0x61, 0x7A)),
    ((0x00, 0x1F),),
    ((0x5C, 0x5C),),
    ((0x2F, 0x2F),),
    ((0x0A, 0x0A), (0x7F, 0x7F)),
    ((0x80, 0x80),),
    ((0xE9, 0xE9), (0x4E00, 0x9FFF)),
    ((0xFFFF, 0x10000),),
    ((0x1F600, 0x1F64F),),
    ((0x103FF, 0x10400), (0xD7FF, 0xD7FF), (0xE000, 0xE000)),
}


def _cut() -> list[bytes]:
    """Characters cut anywhere, in every spelling, and some that are none."""
    points = (0, 0x0A, 0x1F, 0x22, 0x2F, 0x41, 0x7F, 0x80, 0xE9, 0x7FF, 0x800, 0xD7FF, 0xE000)
    out = {b"\\", b"\\u", b"\\uD", b"\\uDC", b"\\uDC0", b"\\uD8", b"\\uD83D\\uE", b"\xe0\x80"}
    out |= {b"\xf4\x90", b"\xed\xa0", b"\xc3", b"\xe0", b"\xf0", b"\xf0\x80", b"\xf4\x8f\xbf"}
    for point in (*points, 0xFFFF, 0x10000, 0x103FF, 0x1F600, 0x10FFFF):
        raw = chr(point).encode()
        units = chr(point).encode("utf-16-be")
        escaped = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        out.update(raw[:n] for n in range(1, len(raw)))
        out.update(escaped.encode()[:n] for n in range(1, len(escaped)))
    return sorted(out)


def test_an_alphabet_of_many_sets_is_over_the_limits() -> None:
    """Each set has a bit for each: a schema of 4 MB asked for 7 GB, which nothing counted."""
    with within(Limits()), pytest.raises(CompileLimitExceeded, match="too much work"):
        Alphabet(((i, i),) for i in range(0, 100_000, 2))


def test_alternatives_are_not_held_against_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6,000 it took 9 s: each was compared with all, and looked up in all characters."""
    calls = Counter[str]()

    def counted(kind: type, name: str) -> None:
        plain = getattr(kind, name)

        def call(*given: object) -> object:
            calls[name] += 1
            return plain(*given)

        monkeypatch.setattr(kind, name, call)

    counted(Alphabet, "minterms_between")
    counted(ir.Concat, "__eq__")
    automaton = RegexAutomaton(parse_ecma("|".join(f"{chr(0x4E00 + i)}x" for i in range(300))))
    assert automaton.span(automaton.start) is not None
    assert calls["minterms_between"] < 10
    assert calls["__eq__"] < 3_000


def test_contents_are_those_of_the_characters_whatever_the_alphabet() -> None:
    def content(low: int, high: int, *others: ir.Ranges) -> bytes | None:
        wanted = ir.char_set([(low, high)])
        automaton = RegexAutomaton(wanted, Alphabet([wanted.ranges, *others]))
        return StructuralHash(automaton).of(automaton.start)

    ends = [(0, 0x10FFFF), (0, 9), (5, 9), (0xD000, 0xE005), (0xD000, 0xD7FF), (9, 0x10FFFF)]
    found = {ends: content(*ends) for ends in ends}
    assert len({*found.values()}) == len(ends)
    assert None not in found.values()
    for between, known in found.items():
        for low, high in ends:
            assert content(*between, ((low, low),), ((6, high),)) == known


@pytest.mark.parametrize("spelling", ["utf8", *get_args(Escapes)])
@pytest.mark.parametrize("missing", [frozenset[int](), frozenset({0x7F, 0xE4, 0xF0})])
def test_what_a_cut_character_may_become(spelling: str, missing: frozenset[int]) -> None:
    alphabet = Alphabet(_SETS)
    encoding = Utf8(alphabet)
    if spelling != "utf8":
        encoding = JsonString(alphabet, spelling, missing)  # type: ignore[arg-type]
    tokens = _cut()
    arrays = character_arrays.build(Trie(tokens), spelling, encoding.barred)
    ends = np.cumsum(arrays["tail_lengths"])
    text = arrays["tail_bytes"].tobytes()
    tails = [text[end - n : end] for end, n in zip(ends, arrays["tail_lengths"], strict=True)]
    assert len(tails) > 10
    reach = [0] * len(tails)
    for tail, first, last in arrays["tail_spans"].tolist():
        assert first <= last
        reach[tail] |= alphabet.minterms_between(first, last)
    for tail, mask in zip(tails, reach, strict=True):
        node = GROUND
        for byte in tail:
            node = encoding.row(node).get(byte, -1)
            if node < 0:
                break
        assert mask == (0 if node < 0 else encoding.reach(node)), tail


@pytest.mark.parametrize("spelling", ["utf8", *get_args(Escapes)])
@pytest.mark.parametrize(
    "missing", [frozenset[int](), frozenset({0xF1, 0xF2}), frozenset({0xC2, 0xE4, 0xF0})]
)
def test_shortest_spellings_are_those_that_a_search_finds(
    spelling: str, missing: frozenset[int]
) -> None:
    sets = {*_SETS, ((0x3FFF0, 0x5FFFF), (0xBFFF0, 0xC0010)), ((0x85, 0x105),)}
    encoding = Utf8(Alphabet(sets))
    if spelling != "utf8":
        encoding = JsonString(Alphabet(sets), spelling, missing)  # type: ignore[arg-type]
    found: dict[int, bytes] = {}
    seen, level = {GROUND}, [(GROUND, b"")]
    while level:
        deeper: list[tuple[int, bytes]] = []
        for node, text in level:
            for byte, to in sorted(encoding.row(node).items()):
                if to < 0:
                    found.setdefault(~to, text + bytes([byte]))
                elif to not in seen:
                    seen.add(to)
                    deeper.append((to, text + bytes([byte])))
        level = deeper
    shortest = encoding.shortest(GROUND)
    assert len(found) > 10
    # Of two digits of an escape, the search takes the capital.
    assert {a: t.lower() for a, t in shortest.items()} == {a: t.lower() for a, t in found.items()}


def test_texts_before_quotes() -> None:
    tokens = [b'a"', b'\\u00e9"x', b'\xc3\xa9"', b'ab":"c"', b'"', b"\xff", b'\x00"', b"."]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    encoding = JsonString(Alphabet(()), "canonical")
    characters = walker_of(vocabulary).texts.characters(encoding).arrays
    found = characters.quote_texts(0)
    assert {text: len(quotes) for text, quotes in found.items()} == {"a": 1, "é": 2, "ab": 1, "": 1}
    nodes = characters.node[characters.quotes[list(found["é"])]].tolist()
    spelt = {vocabulary.trie.string_of(node) for node in nodes}
    assert spelt == {b'\\u00e9"', '"'.join(("é", "")).encode()}


def test_a_constraint_that_is_gone_leaves_no_automata_behind() -> None:
    tokens = [*(bytes([b]) for b in range(256)), b'{"a', b'a":', b""]
    vocabulary = structgen.Vocabulary.from_tokens(tokens, eos_token_ids=[len(tokens) - 1])
    schema = {
        "properties": {"ab": {"type": "integer"}, "b": {"enum": ["x", "xyz"]}},
        "patternProperties": {"^z": {"type": "null"}},  # keys of its own
    }
    out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    for others in (True, False):
        constraint = structgen.compile(
            JsonSchema({**schema, "type": "object", "additionalProperties": others}), vocabulary
        )
        cursor = constraint.start()
        for byte in b'{"b":"x"':
            cursor.fill_mask(out)
            cursor.accept(byte)
        leaves = [
            weakref.ref(leaf) for leaf in inside.machine(constraint).leaves if not leaf.is_shared
        ]
        assert leaves
        del constraint, cursor
        gc.collect()
        assert not any(leaf() for leaf in leaves)
