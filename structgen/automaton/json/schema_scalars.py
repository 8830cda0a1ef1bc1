"""The scalars of one schema: the leaves of its strings and numbers, spelt as its options say.

`Scalars` makes the leaf of what some nodes say together of a string or number, without the values
that they bar, and that of strings that are listed. What all schemas share of that is `scalars`'. It
knows nodes' assertions, and nothing of conjunctions, branches, objects or arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex import quick_checks
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import Escapes, JsonString, json_string
from structgen.grammar import ir
from structgen.grammar.formats import FORMATS, format_of
from structgen.grammar.json_schema import STRING, Node, to_decimal

from .excluding import Barred, ExcludingLeaf, Single
from .keys import NameLeaf
from .numbers import NumberLeaf, NumberSpec
from .options import JsonOptions
from .scalars import name_leaf, number_forms, number_leaf, number_spec, string_leaf, string_regex

_ONE_ATOM = Alphabet(())

_spelt_as_it_is = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""Printable ASCII without quotes and backslashes: what no option asks to be escaped."""


class Scalars:
    """The leaves of one schema's strings and numbers.

    Args:
        options: how JSON is written.
        missing: bytes from 0x7F on that cannot be written.
    """

    def __init__(self, options: JsonOptions, missing: frozenset[int]) -> None:
        self.options = options
        self.missing = missing

    @cached_property
    def _no_strings(self) -> set[tuple[ir.Regex, Escapes]]:
        """Languages that are empty."""
        return set()

    @cached_property
    def _singles(self) -> dict[Any, Single]:
        """See `_single`."""
        return {}

    @cached_property
    def _excluding(self) -> dict[Leaf, ExcludingLeaf]:
        return {}

    def of(self, types: int, nodes: Sequence[Node]) -> list[StringLeaf | NumberLeaf]:
        """The leaves of the strings and numbers among ``types`` that meet the assertions of all
        ``nodes``, and may be among what these bar by value: `excluding` takes that out."""
        leaves: list[StringLeaf | NumberLeaf] = []
        if types & STRING:
            regex = string_regex(nodes, with_barred=True)
            string = None if regex is None else self._string_leaf(regex, nodes)
            if string is not None:
                leaves.append(string)
        # With exponents, what spells one number is as large as all that does.
        apart = self.options.canonical
        for form in number_forms(types):
            number = number_leaf(number_spec(form, nodes, self.options, with_barred=apart))
            if number is not None:
                leaves.append(number)
        return leaves

    def listed(self, strings: dict[str, bool]) -> tuple[tuple[Leaf, int], ...]:
        """The leaf, with its start, of those of ``strings`` that are allowed, if there are any.

        All are listed in it, so that one automaton serves whatever is barred.
        """
        named = name_leaf(tuple(strings), self.options.named, self.missing)
        mask = (1 << len(strings)) - 1
        if not all(strings.values()):
            mask = int("".join("01"[allowed] for allowed in reversed(strings.values())), 2)
        opened = named.open(mask)
        return () if opened is None else ((named, opened),)

    def free_leaf(self, node: Node) -> StringLeaf | None:
        """The strings that a node's lengths and patterns allow, or None."""
        regex = string_regex([node])
        return None if regex is None else self._string_leaf(regex, [node])

    def has_string(self, node: Node) -> bool:
        """Whether there is a string of a node's lengths and patterns."""
        if not node.patterns:
            return node.max_length is None or node.min_length <= node.max_length
        if len(node.patterns) == 1:
            (pattern,) = node.patterns
            least, most = node.min_length, node.max_length
            name = format_of(pattern)
            if name is None:
                found = quick_checks.has_string(pattern, least, most)
            else:
                fewest = FORMATS[name].fewest
                # A shortest string is of printable ASCII, which every vocabulary can write.
                found = least <= fewest and (most is None or fewest <= most)
            if found:
                return True
        return self.free_leaf(node) is not None

    def _string_leaf(self, regex: ir.Regex, nodes: Sequence[Node]) -> StringLeaf | None:
        """A leaf for strings; those with a pattern or format are spelt as names are."""
        has_pattern = any(node.patterns for node in nodes)
        escapes = self.options.named if has_pattern else self.options.free
        if (regex, escapes) in self._no_strings:
            return None
        leaf = string_leaf(regex, escapes, self.missing)
        if leaf is None:
            self._no_strings.add((regex, escapes))
        return leaf

    def excluding(self, leaf: StringLeaf | NumberLeaf, barred: Barred) -> tuple[Leaf, int] | None:
        """``leaf`` without the values ``barred``, and where it starts; None where nothing is
        left."""
        found = self._excluding.get(leaf)
        if found is None:
            found = self._excluding[leaf] = ExcludingLeaf(leaf)
        told = barred.told
        return found.open(
            barred.numbers, lambda n: self._single(leaf, told.keys[n], told.values[n])
        )

    def _single(self, leaf: StringLeaf | NumberLeaf, key: Any, value: Any) -> Single:
        """All ways to spell one value as ``leaf`` may, and where that automaton starts; None for
        what ``leaf`` does not spell."""
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
                return None  # it is told by the leaf itself
            if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
                return None
            name = key, leaf.spec.form
            if name not in self._singles:
                number = to_decimal(value) or Decimal(0)
                spec = NumberSpec(
                    lower=number,
                    upper=number,
                    max_digits=leaf.spec.max_digits,
                    canonical=leaf.spec.canonical,
                    form=leaf.spec.form,
                )
                only = NumberLeaf(spec)
                self._singles[name] = None if only.is_empty() else (only, only.start)
        return self._singles[name]

    def spell(self, name: str) -> bytes:
        """``name`` as a JSON string in its shortest allowed spelling."""
        if _spelt_as_it_is(name):
            return b'"%b"' % name.encode()
        speller = json_string(_ONE_ATOM, self.options.named, self.missing)
        return b'"' + b"".join(speller.spell(ord(c)) for c in name) + b'"'
