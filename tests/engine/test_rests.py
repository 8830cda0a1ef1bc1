"""How far the end of a string can be, read off its expression; and what budgets save by it."""

from __future__ import annotations

import random
from typing import Any

import pytest

import structgen
from engine.walks import TINY, allowed, minimum, seeds
from structgen import JsonSchema
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.json.scalars import string_leaf
from structgen.automaton.regex.encoding import Escapes
from structgen.grammar import ir
from structgen.grammar.formats import format_regex
from structgen.grammar.regex.read import parse_python
from structgen.masks.reach import Reach
from structgen.masks.text.string_walks import LeafTexts

PATTERNS = {
    "(ab|c){3}d?": 5,
    "a{2,5}(bc){0,2}": 2,
    "x*": 1,
    "(a|bcd)*(e|fg{3})": 4,
    r'"{3}': 7,
    "(é|xyz)w": 59,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_bound_of_a_pattern(pattern: str) -> None:
    leaf = string_leaf(parse_python(pattern), "canonical", frozenset())
    assert leaf is not None
    assert leaf.most_left is not None
    assert leaf.most_left <= PATTERNS[pattern]


def length(regex: ir.Regex, least: int, most: int | None) -> ir.Regex:
    return ir.Intersect((regex, ir.Repeat(ir.ANY_CHAR, least, most)))


FORMATS = ["email", "hostname", "uuid", "date", "uri", "ipv4", "ipv6", "duration", "json-pointer"]
BOUNDED = [
    length(parse_python("(ab|c){1,3}d?"), 0, 4),
    length(parse_python("(a|bcd)*"), 0, 5),
    length(parse_python("é*[xy]+|a{3}"), 1, 4),
    ir.Intersect((parse_python("(a|bcd){0,3}"), parse_python("[a-d]{2,7}"))),
    ir.Concat((length(parse_python("[a-c]+"), 0, 3), parse_python('"[bé]*@'))),
]


@pytest.mark.parametrize("escapes", ["canonical", "any", "canonical-ascii"])
@pytest.mark.parametrize("which", [*FORMATS, *PATTERNS, *range(len(BOUNDED))])
def test_no_place_is_farther_from_its_end(which: str | int, escapes: Escapes) -> None:
    if isinstance(which, int):
        regex: ir.Regex | None = BOUNDED[which]
    else:
        regex = format_regex(which) if which in FORMATS else parse_python(which)
    assert regex is not None
    leaf = string_leaf(regex, escapes, frozenset())
    assert leaf is not None
    assert leaf.most_left is not None
    for seed in seeds(6):
        rng = random.Random(seed)
        q = leaf.start
        for _ in range(60):
            row = leaf.row(q)
            if not row:
                break
            # Characters that are written in one byte, more often than not: there the way is longer.
            plain = [byte for byte in row if byte not in b'\\"' and byte < 0x80]
            q = row[rng.choice(plain if plain and rng.random() < 0.7 else list(row))]
            way = leaf.shortest(q)
            assert way is not None
            assert len(way[0]) <= leaf.most_left + 1  # and the quote


SCHEMAS: dict[str, Any] = {
    "email": {"type": "string", "format": "email"},
    "an object": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "at": {"type": "string", "format": "hostname", "maxLength": 12},
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
        },
        "required": ["id", "at", "name"],
        "additionalProperties": False,
    },
    "strings": {"type": "array", "items": {"type": "string", "pattern": "^(ab|c){2}$"}},
    "unique": {
        "type": "array",
        "items": {"type": "string", "minLength": 2, "maxLength": 4},
        "uniqueItems": True,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_far_from_the_end_no_place_in_a_string_is_looked_at(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Leaf] = []
    run_ends = LeafTexts.run_ends

    def noted(self: LeafTexts, leaf: Leaf, *where: Any) -> list[tuple[int, int]]:
        looked_at.append(leaf)
        return run_ends(self, leaf, *where)

    monkeypatch.setattr(LeafTexts, "run_ends", noted)
    constraint = structgen.compile(JsonSchema(SCHEMAS[name]), TINY)
    cursor = constraint.start(400)
    rng = random.Random(1)
    for _ in range(60):
        ids = [i for i in allowed(cursor) if i not in TINY.eos_token_ids]
        if not ids:
            break
        cursor.accept(rng.choice(ids))
    # Names of members are few, and are looked at one by one.
    assert not [leaf for leaf in looked_at if type(leaf) is StringLeaf]


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_within_budgets_are_those_without_the_bound(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spare in (0, 3, 10, 30):
        for seed in seeds(3):
            constraint = structgen.compile(JsonSchema(SCHEMAS[name]), TINY)
            rng = random.Random(seed)
            cursor = constraint.start(minimum(constraint) + spare)
            slow = constraint.start(minimum(constraint) + spare)
            while not cursor.is_finished:
                ids = allowed(cursor)
                with monkeypatch.context() as patch:
                    patch.setattr(Reach, "is_ample", lambda *_: False)
                    assert allowed(slow) == ids
                    chosen = rng.choice(ids)
                    slow.accept(chosen)
                cursor.accept(chosen)
