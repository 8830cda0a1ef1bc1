"""Scalars: the assertions of several schema nodes at once → leaves.

Owns what strings and numbers must be like together, how a number may be spelt, and the leaves that
all constraints share. Knows nothing of conjunctions, objects or arrays; see `values`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from structgen.automaton.core.leaf import Leaf, LiteralLeaf
from structgen.automaton.core.shared import AUTOMATA, FORMATS
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.encoding import Escapes, json_string
from structgen.grammar import ir
from structgen.grammar.formats import format_of
from structgen.grammar.json_schema import (
    ALL_TYPES,
    BOOLEAN,
    DIGITS,
    FRACTION,
    INTEGER,
    NULL,
    NUMBER,
    POINTED,
    STRING,
    Node,
    to_decimal,
)

from .key_symbols import NewKeySymbols
from .keys import KeyLeaf, NameLeaf
from .numbers import NumberLeaf, NumberSpec
from .options import JsonOptions
from .whitespace import Whitespace

MAX_LITERAL_DIGITS = 400


def string_regex(nodes: Sequence[Node], with_barred: bool = False) -> ir.Regex | None:
    """The strings that satisfy the string assertions of all ``nodes``, or None for none.

    ``with_barred``: also those strings that ``nodes`` bar one by one; see `excluding`.
    """
    least, most = 0, None
    patterns: dict[ir.Regex, None] = {}
    for node in nodes:
        least = max(least, node.min_length)
        if node.max_length is not None:
            most = node.max_length if most is None else min(most, node.max_length)
        patterns.update(dict.fromkeys(node.patterns))
    if most is not None and least > most:
        return None
    parts = list(patterns)
    if not with_barred:
        barred = [ir.literal(v) for n in nodes for v in n.excluded if isinstance(v, str)]
        if barred:
            parts.append(ir.Complement(ir.Alternate(tuple(barred))))
    if least or most is not None:
        parts.append(ir.Repeat(ir.ANY_CHAR, least, most))
    if not parts:
        return ir.ANY_TEXT
    return parts[0] if len(parts) == 1 else ir.Intersect(tuple(parts))


def number_forms(types: int) -> tuple[int, ...]:
    """The number bits of ``types``, as sets that one leaf can recognise."""
    numbers = types & NUMBER
    if numbers == DIGITS | FRACTION:
        return DIGITS, FRACTION
    return (numbers,) if numbers else ()


def number_spec(
    types: int, nodes: Sequence[Node], options: JsonOptions, with_barred: bool = False
) -> NumberSpec:
    """What numbers of these ``types`` must be like by the assertions of all ``nodes``.

    ``with_barred``: also those numbers that ``nodes`` bar one by one; see `excluding`.
    """
    lower: tuple[Decimal, bool] | None = None
    upper: tuple[Decimal, bool] | None = None
    multiples: dict[Decimal, None] = {}
    non_multiples: dict[Decimal, None] = {}
    excluded: dict[Decimal, None] = {}
    for node in nodes:
        for value, exclusive in (
            (node.minimum, False),
            (node.exclusive_minimum, True),
        ):
            if value is not None and (lower is None or (value, exclusive) > lower):
                lower = (value, exclusive)
        for value, exclusive in (
            (node.maximum, False),
            (node.exclusive_maximum, True),
        ):
            if value is not None and (
                upper is None or (value, not exclusive) < (upper[0], not upper[1])
            ):
                upper = (value, exclusive)
        for value in () if with_barred else node.excluded:
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                excluded[to_decimal(value).normalize()] = None
        if node.multiple_of is not None:
            multiples[node.multiple_of.normalize()] = None
        if node.not_multiple_of is not None:
            non_multiples[node.not_multiple_of.normalize()] = None
    if not types & FRACTION:
        multiples[Decimal(1)] = None
    elif not types & INTEGER:
        non_multiples[Decimal(1)] = None
    form = "any"
    if types & INTEGER == DIGITS:
        form = "digits"
    elif types & INTEGER == POINTED:
        form = "pointed"
    return NumberSpec(
        lower[0] if lower else None,
        upper[0] if upper else None,
        bool(lower and lower[1]),
        bool(upper and upper[1]),
        tuple(sorted(multiples)),
        tuple(sorted(non_multiples)),
        tuple(sorted(excluded)),
        options.max_digits,
        options.canonical,
        form,
    )


def spellings(value: Any, canonical: bool, types: int = ALL_TYPES) -> list[bytes]:
    """How a scalar other than a string may be spelt: as serialisers write it.

    Unless ``canonical``, a number also as an integer or with ``.0``, whichever serialisers choose.
    ``types`` may ask for one of these forms.
    """
    if isinstance(value, (int, float, Decimal)) and types & INTEGER in (DIGITS, POINTED):
        number = to_decimal(value)
        if number == number.to_integral_value():
            text = str(int(number))
            return [text.encode() if types & DIGITS else f"{text}.0".encode()]
    if value is None or isinstance(value, bool) or canonical:
        return [str(value).encode() if isinstance(value, Decimal) else json.dumps(value).encode()]
    texts = {json.dumps(value)} if not isinstance(value, Decimal) else {str(value)}
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if number == number.to_integral_value() and number.adjusted() < MAX_LITERAL_DIGITS:
        texts |= {str(int(number)), f"{int(number)}.0"}
        if number == 0:
            texts |= {"-0", "-0.0"}
        as_float = float(number)
        if Decimal(repr(as_float)) == number:
            texts.add(json.dumps(as_float))
    return [t.encode() for t in sorted(texts, key=lambda t: (len(t), t))]


def literal_leaf(texts: tuple[bytes, ...]) -> LiteralLeaf:
    """A shared leaf for a finite set of byte strings."""
    return AUTOMATA.get(LiteralLeaf, texts)


def name_leaf(names: tuple[str, ...], escapes: Escapes, missing: frozenset[int]) -> NameLeaf:
    """A shared leaf for the JSON strings of a finite set."""
    return AUTOMATA.get(NameLeaf, names, escapes, missing)


def key_leaf(
    names: tuple[str, ...], space: Whitespace, escapes: Escapes, missing: frozenset[int]
) -> KeyLeaf:
    """A shared leaf for the keys of objects with these names, all others being of one class."""
    return AUTOMATA.get(_key_leaf, names, space, escapes, missing)


def _key_leaf(
    names: tuple[str, ...], space: Whitespace, escapes: Escapes, missing: frozenset[int]
) -> KeyLeaf:
    return KeyLeaf(NewKeySymbols(names, _one_class), space, escapes, missing, True)


def _one_class(matched: int) -> int:
    return 0


def string_leaf(regex: ir.Regex, escapes: Escapes, missing: frozenset[int]) -> StringLeaf | None:
    """A shared leaf for the JSON strings of a regular language, or None when it is empty."""
    kept = AUTOMATA if format_of(regex) is None else FORMATS
    return kept.get(_string_leaf, regex, escapes, missing)


def _string_leaf(regex: ir.Regex, escapes: Escapes, missing: frozenset[int]) -> StringLeaf | None:
    symbols = RegexAutomaton(regex)
    if symbols.is_empty():
        return None
    return StringLeaf(symbols, json_string(symbols.alphabet, escapes, missing), regex)


def number_leaf(spec: NumberSpec) -> NumberLeaf | None:
    """A shared leaf for numbers, or None when none satisfies ``spec``."""
    return AUTOMATA.get(_number_leaf, spec)


def _number_leaf(spec: NumberSpec) -> NumberLeaf | None:
    leaf = NumberLeaf(spec)
    return None if leaf.is_empty() else leaf


@lru_cache(maxsize=256)
def scalar_leaves(
    types: int, escapes: Escapes, missing: frozenset[int], max_digits: int, canonical: bool
) -> tuple[tuple[Leaf, int], ...]:
    """The leaves, each with its start, of scalars of which nothing but ``types`` is asked."""
    leaves: list[Leaf] = []
    if types & STRING:
        string = string_leaf(ir.ANY_TEXT, escapes, missing)
        assert string is not None
        leaves.append(string)
    options = JsonOptions(max_digits=max_digits, spelling="canonical" if canonical else "any")
    for form in number_forms(types):
        number = number_leaf(number_spec(form, (), options))
        assert number is not None
        leaves.append(number)
    words = [*[b"null"] * bool(types & NULL), *[b"true", b"false"] * bool(types & BOOLEAN)]
    if words:
        leaves.append(literal_leaf(tuple(words)))
    return tuple([(leaf, leaf.start) for leaf in leaves])
