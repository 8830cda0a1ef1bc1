"""Turn the scalar assertions of several schema nodes into leaves.

Combines assertions about numbers, knows how scalars may be written, and owns the leaves that all
constraints share. `Scalars` makes the leaf of a string or number (without barred values) and of
listed strings, written by the options of one schema. Knows no conjunctions, objects or arrays; see
`values`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from structgen.automaton.core.leaf import Leaf, LiteralLeaf
from structgen.automaton.core.shared import AUTOMATA, FORMAT_AUTOMATA
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.encoding import Escapes, JsonString, json_string
from structgen.automaton.schema.conjunctions import Barred
from structgen.automaton.schema.strings import has_plain_string, string_regex
from structgen.automaton.work import WORK
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
    OF_NUMBERS,
    POINTED,
    STRING,
    Node,
    to_decimal,
)
from structgen.storage import cached_method

from .excluding import ExcludingLeaf, Single
from .keys import KeyLeaf, KeySymbols, NameLeaf
from .numbers import NumberLeaf, NumberSpec, holds_a_whole
from .options import JsonOptions
from .whitespace import Whitespace

MAX_LITERAL_DIGITS = 400


def number_forms(types: int) -> tuple[int, ...]:
    """Return the number bits of ``types``, as sets that one leaf can recognise."""
    numbers = types & NUMBER
    if numbers == DIGITS | FRACTION:
        return DIGITS, FRACTION
    return (numbers,) if numbers else ()


def number_spec(
    types: int, nodes: Sequence[Node], options: JsonOptions, with_barred: bool = False
) -> NumberSpec:
    """Return the conditions on numbers of these ``types`` by the assertions of all ``nodes``.

    ``with_barred``: include the numbers that ``nodes`` bar one by one; see `excluding`.
    """
    lows: list[tuple[Decimal, bool]] = []
    highs: list[tuple[Decimal, bool]] = []  # each with whether it is included
    multiples: dict[Decimal, None] = {}
    non_multiples: dict[Decimal, None] = {}
    excluded: dict[Decimal, None] = {}
    for node in nodes:
        lows += [(v, False) for v in (node.minimum,) if v is not None]
        lows += [(v, True) for v in (node.exclusive_minimum,) if v is not None]
        highs += [(v, True) for v in (node.maximum,) if v is not None]
        highs += [(v, False) for v in (node.exclusive_maximum,) if v is not None]
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
    lower, is_above = max(lows, default=(None, False))
    upper, is_in = min(highs, default=(None, True))
    return NumberSpec(
        lower,
        upper,
        is_above,
        not is_in,
        tuple(sorted(multiples)),
        tuple(sorted(non_multiples)),
        tuple(sorted(excluded)),
        options.max_digits,
        options.canonical,
        form,
    )


def spellings(value: Any, options: JsonOptions, types: int = ALL_TYPES) -> list[bytes]:
    """Return the texts of a scalar other than a string: those that serialisers write.

    Unless ``options`` are canonical, a whole number is written both as an integer and with ``.0``.
    ``types`` may require one of these forms.
    """
    if isinstance(value, (int, float, Decimal)) and types & INTEGER in (DIGITS, POINTED):
        number = to_decimal(value)
        if number == number.to_integral_value():
            text = str(int(number))
            return [text.encode() if types & DIGITS else f"{text}.0".encode()]
    if value is None or isinstance(value, bool):
        return [options.words[0 if value is None else 2 - value]]
    if options.canonical:
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
    """Return a shared leaf for a finite set of byte strings."""
    return AUTOMATA.get(LiteralLeaf, texts)


def key_leaf(
    names: tuple[str, ...], space: Whitespace, escapes: Escapes, missing: frozenset[int]
) -> KeyLeaf:
    """Return a shared leaf for keys of objects with these names; all other keys are one class."""
    return AUTOMATA.get(_key_leaf, names, space, escapes, missing)


def _key_leaf(
    names: tuple[str, ...], space: Whitespace, escapes: Escapes, missing: frozenset[int]
) -> KeyLeaf:
    symbols = KeySymbols(names, (), (), lambda matched: 0, len(names))
    return KeyLeaf(symbols, space, escapes, missing, True)


def string_leaf(regex: ir.Regex, escapes: Escapes, missing: frozenset[int]) -> StringLeaf | None:
    """Return a shared leaf for the JSON strings of a regular language; None if it is empty."""
    kept = AUTOMATA if format_of(regex) is None else FORMAT_AUTOMATA
    return kept.get(_string_leaf, regex, escapes, missing)


def _string_leaf(regex: ir.Regex, escapes: Escapes, missing: frozenset[int]) -> StringLeaf | None:
    symbols = RegexAutomaton(regex)
    if symbols.is_empty():
        return None
    return StringLeaf(symbols, json_string(symbols.alphabet, escapes, missing))


def number_leaf(spec: NumberSpec) -> NumberLeaf | None:
    """Return a shared leaf for numbers, or None if no number satisfies ``spec``."""
    return AUTOMATA.get(_number_leaf, spec)


def _number_leaf(spec: NumberSpec) -> NumberLeaf | None:
    leaf = NumberLeaf(spec)
    return None if leaf.is_empty() else leaf


@lru_cache(maxsize=256)
def scalar_leaves(
    types: int, escapes: Escapes, missing: frozenset[int], max_digits: int, spelling: str
) -> tuple[tuple[Leaf, int], ...]:
    """Return the leaves, each with its start state, of scalars that only have ``types``."""
    leaves: list[Leaf] = []
    if types & STRING:
        string = string_leaf(ir.ANY_TEXT, escapes, missing)
        assert string is not None
        leaves.append(string)
    options = JsonOptions(max_digits=max_digits, spelling=spelling)
    for form in number_forms(types):
        number = number_leaf(number_spec(form, (), options))
        assert number is not None
        leaves.append(number)
    null, *booleans = options.words
    words = [*[null] * bool(types & NULL), *booleans * bool(types & BOOLEAN)]
    if words:
        leaves.append(literal_leaf(tuple(words)))
    return tuple([(leaf, leaf.start) for leaf in leaves])


_ONE_ATOM = Alphabet(())

_LOWER = frozenset(("minimum", "exclusive_minimum"))
_UPPER = frozenset(("maximum", "exclusive_maximum"))

_spelt_as_it_is = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""Match printable ASCII without quotes and backslashes: no option escapes it."""


class Scalars:
    """The leaves of one schema's strings and numbers."""

    def __init__(self, options: JsonOptions, missing: frozenset[int]) -> None:
        self.options = options
        self.missing = missing
        # Empty languages.
        self._no_strings: set[tuple[ir.Regex, Escapes]] = set()
        # Leaves that only this schema uses.
        self._private: dict[tuple[ir.Regex, Escapes], StringLeaf] = {}
        # See `_single`.
        self._singles: dict[Any, Single] = {}

    def of(self, types: int, nodes: Sequence[Node]) -> list[StringLeaf | NumberLeaf]:
        """Return the leaves of the strings and numbers among ``types`` that meet the assertions of
        all ``nodes``. They include values that the nodes bar; `excluding` removes these."""
        leaves: list[StringLeaf | NumberLeaf] = []
        if types & STRING:
            regex = string_regex(nodes, with_barred=True)
            string = None if regex is None else self._string_leaf(regex, nodes)
            if string is not None:
                leaves.append(string)
        # With exponents, the automaton of one number is as large as that of all.
        apart = self.options.canonical
        for form in number_forms(types):
            number = number_leaf(number_spec(form, nodes, self.options, with_barred=apart))
            if number is not None:
                leaves.append(number)
        return leaves

    def listed(self, strings: dict[str, bool]) -> tuple[tuple[Leaf, int], ...]:
        """Return the leaf, and its start state, of the allowed ones of ``strings``, if any.

        The leaf has all strings, so that one automaton serves any set of barred ones.
        """
        named = AUTOMATA.get(NameLeaf, tuple(strings), self.options.named, self.missing)
        mask = (1 << len(strings)) - 1
        if not all(strings.values()):
            mask = int("".join("01"[allowed] for allowed in reversed(strings.values())), 2)
        opened = named.open(mask)
        return () if opened is None else ((named, opened),)

    def free_leaf(self, node: Node) -> StringLeaf | None:
        """Return the strings that a node's lengths and patterns allow, or None."""
        regex = string_regex([node])
        return None if regex is None else self._string_leaf(regex, [node])

    def has_string(self, node: Node) -> bool:
        """Return whether there is a string of a node's lengths and patterns."""
        return has_plain_string(node) or self.free_leaf(node) is not None

    def has_number(self, node: Node) -> bool:
        """Return whether obviously a whole number meets a node's assertions."""
        bounds = OF_NUMBERS.intersection(vars(node))
        if bounds <= _LOWER or bounds <= _UPPER:
            return True  # room for one digit more than the bound has
        return holds_a_whole(number_spec(DIGITS, [node], self.options))

    def _string_leaf(self, regex: ir.Regex, nodes: Sequence[Node]) -> StringLeaf | None:
        """Return a leaf for strings. Those with a pattern or format are written like names."""
        has_pattern = any(node.patterns for node in nodes)
        escapes = self.options.named if has_pattern else self.options.free
        if (regex, escapes) in self._no_strings:
            return None
        leaf = self._private.get((regex, escapes)) if self._private else None
        if leaf is None:
            leaf = string_leaf(regex, escapes, self.missing)
        if leaf is None:
            self._no_strings.add((regex, escapes))
        elif leaf.is_private:
            self._private[regex, escapes] = leaf
        return leaf

    def excluding(self, leaf: StringLeaf | NumberLeaf, barred: Barred) -> tuple[Leaf, int] | None:
        """Return ``leaf`` without the values ``barred``, and its start state; None if nothing is
        left."""
        numbered = barred.numbered
        return self._excluding(leaf).open(
            barred.numbers, lambda n: self._single(leaf, numbered.keys[n], numbered.values[n])
        )

    @cached_method
    def _excluding(self, leaf: StringLeaf | NumberLeaf) -> ExcludingLeaf:
        return ExcludingLeaf(leaf)

    def _single(self, leaf: StringLeaf | NumberLeaf, key: Any, value: Any) -> Single:
        """Return an automaton of all the ways in which ``leaf`` may write one value, and its start
        state; None if ``leaf`` cannot write it."""
        if isinstance(leaf, StringLeaf):
            if not isinstance(value, str):
                return None
            assert isinstance(leaf.encoding, JsonString)
            escapes = leaf.encoding.escapes
            name: tuple[Any, str] = key, escapes
            if name not in self._singles:
                named = NameLeaf((value,), escapes, self.missing)
                start = named.open(1)
                self._singles[name] = None if start is None else (named, start)
        else:
            if not self.options.canonical:
                return None  # the leaf itself decides it
            if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
                return None
            name = key, leaf.spec.form
            if name not in self._singles:
                WORK.spend(4)
                number = to_decimal(value) or Decimal(0)
                spec = NumberSpec(
                    lower=number,
                    upper=number,
                    max_digits=leaf.most_digits,
                    canonical=leaf.spec.canonical,
                    form=leaf.spec.form,
                )
                only = NumberLeaf(spec, free=leaf.is_short)
                self._singles[name] = None if only.is_empty() else (only, only.start)
        return self._singles[name]

    def spell(self, name: str) -> bytes:
        """Return ``name`` as a JSON string in its shortest allowed form."""
        if _spelt_as_it_is(name):
            return b'"%b"' % name.encode()
        speller = json_string(_ONE_ATOM, self.options.named, self.missing)
        return b'"' + b"".join(speller.spell(ord(c)) for c in name) + b'"'
