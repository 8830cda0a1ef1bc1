"""Expressions over whole regular languages → IR: and, or, not, concatenation, counts.

An expression is JSON data, so that it fits into a JSON Schema (`KEYWORD`): ``["regex", pattern,
flags]`` in Python's syntax, ``["and" | "or" | "then", part, ...]``, ``["not", part]``, ``["times",
part, least, most]`` (``most`` None: any number), ``["texts", lines]`` (any one line),
``["checksum", modulus, steps, between, gaps, count]`` (`ir.Checksum`; a step has the number of each
of its characters) and ``["quote", document, unit, least, most, ignore_case, any_whitespace]``
(`ir.Quote`). Parts are separate languages: an anchor or lookaround in one does not see the parts
around it. Knows no Python types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from structgen.errors import SchemaError
from structgen.grammar import ir

from . import read as regex
from . import tree as regex_tree

KEYWORD = "$structgen-regex"
"""The keyword of a JSON Schema that holds an expression for a string."""

UNITS = ("word", "character", "sentence", "line")
"""The units of quotes."""

SURROGATES = re.compile("[\ud800-\udfff]")
"""Surrogates, which no text contains."""


def lower(expression: Any) -> ir.Regex:
    """Return the regular expression over code points that ``expression`` describes.

    Raises:
        SchemaError: it is not an expression.
        PatternError: a pattern in it is malformed or not regular.
    """
    match expression:
        case ["regex", str(pattern), int(flags)]:
            return regex.parse_python(pattern, flags)
        case ["and", *parts]:
            return regex_tree.intersect(map(lower, parts))
        case ["or", *parts]:
            return regex_tree.alternate(map(lower, parts))
        case ["not", part]:
            return regex_tree.complement(lower(part))
        case ["then", *parts]:
            return regex_tree.concat(_of_its_own(lower(part)) for part in parts)
        case ["times", part, int(least), int() | None as most]:
            return regex_tree.repeat(_of_its_own(lower(part)), least, most)
        case ["texts", str(lines)]:
            return _texts(sorted(set(lines.split("\n"))), 0)
        case ["quote", str(text), str(unit), int(least), int() | None as most, bool(a), bool(b)]:
            bounded = least >= 1 and (most is None or least <= most)
            if bounded and unit in UNITS and not SURROGATES.search(text):
                return ir.Quote(text, unit, least, most, a, b)
        case ["checksum", int(modulus), [*steps], str(between), [*gaps], int(count)] if modulus > 1:
            places = range(len(steps))
            rising = sorted(set(gaps)) == gaps if all(gap in places for gap in gaps) else False
            if rising and 0 <= count <= len(gaps) and all(map(_is_step, steps)):
                read = tuple(map(_step, steps))
                return ir.Checksum(modulus, read, ir.characters(between), tuple(gaps), count)
    shown = repr(expression)
    raise SchemaError(
        f"{shown if len(shown) <= 200 else shown[:200] + '…'} is not a {KEYWORD} expression.",
        keyword=KEYWORD,
    )


def _is_step(numbers: Any) -> bool:
    """Return whether a step has a number, at least 0, for each of its characters."""
    return isinstance(numbers, Mapping) and all(
        len(character) == 1 and isinstance(number, int) and number >= 0
        for character, number in numbers.items()
    )


def _of_its_own(part: ir.Regex) -> ir.Regex:
    """Return ``part`` as a separate text, so that it can be beside others; see `ir.Intersect`."""
    return ir.Intersect((part,)) if regex_tree.looks_around(part) else part


def _texts(texts: list[str], at: int) -> ir.Regex:
    """Return an expression for ``texts``, sorted and distinct, from character ``at`` on, with
    common prefixes merged."""
    ways: list[ir.Regex] = []
    first = 0
    while first < len(texts):
        if len(texts[first]) == at:
            ways.append(ir.EPSILON)
            first += 1
            continue
        last = first
        while last < len(texts) and texts[last][at] == texts[first][at]:
            last += 1
        group = texts[first:last]
        pairs = enumerate(zip(group[0], group[-1], strict=False))
        shared = next((i for i, (a, b) in pairs if a != b), len(group[0]))
        rest = _texts(group, shared)
        ways.append(regex_tree.concat([ir.literal(group[0][at:shared]), rest]))
        first = last
    return regex_tree.alternate(ways)


def _step(numbers: Any) -> tuple[tuple[int, ir.CharSet], ...]:
    by_number: dict[int, str] = {}
    for character, number in numbers.items():
        by_number[number] = by_number.get(number, "") + character
    return tuple((number, ir.characters(found)) for number, found in sorted(by_number.items()))
