"""`sample`: random texts of an output type, without a model; and `difference` of two types.

`sample` draws evenly over a type's structure. A machine's state offers alternatives (kinds of
value, members, the end), and so does a leaf. All alternatives are equally likely. Where they lead
to finitely many texts, such as the members of a list, all texts are equally likely. Parts of any
length end with a fixed probability, and by the shortest way once a text is long. Objects have the
members that the schema names. `difference` looks for a text of one type that is not a text of
another.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from structgen.automaton import build
from structgen.automaton.cfg import spelling
from structgen.automaton.core import GROW, Leaf, TextHistory
from structgen.automaton.json import NumberLeaf, guidance
from structgen.automaton.regex import RegexAutomaton
from structgen.automaton.texts import flat
from structgen.automaton.work import within
from structgen.errors import OptionError, OutputTypeError
from structgen.grammar import ir
from structgen.types import Divider, is_text_of, lower, regular

_LONG = 400
"""After this many bytes, a text takes the shortest way to its end."""

_MOST_COUNTED, _DEEPEST = 1000, 100
_GOES_ON = 6.0
"""The weight of continuing, compared with 1 for ending."""

_RARE = 0.05
_CLOSING = frozenset(b'"]}')
_PLAIN = frozenset(range(0x20, 0x7F)) - {0x5C}

Choose = Callable[[Sequence[float]], int]
"""Chooses one of several ways by their weights; the first is a short one."""


class Sampler:
    """Draws texts of an output type.

    Args:
        output_type: anything that can be compiled.
        options: compile options; objects are ``closed`` and JSON is ``"spaced"`` unless they say
            otherwise.
    """

    def __init__(self, output_type: Any, **options: Any) -> None:
        self.output = lower(output_type)
        usual: dict[str, Any] = {"closed": True}
        is_written = any(
            guidance(p.schema) for p in ir.flat(self.output.grammar) if isinstance(p, ir.Json)
        )
        if options.get("indent") is None and not is_written:
            usual["whitespace"] = "spaced"
        self._built = build(self.output.grammar, usual | options)
        self._counts: dict[tuple[Leaf, int], float] = {}
        self._ways: dict[int, list[tuple[float, bytes]]] = {}

    def draw(self, choose: Choose) -> str:
        """Return a random text."""
        machine, tape = self._built.machine, TextHistory()
        out, state = bytearray(), machine.start
        with GROW, within(self._built.limits):
            while True:
                while machine.is_pending(state):
                    state = machine.resolve(state, tape)
                if len(out) >= _LONG:
                    out += flat(machine.shortest_completion(state, tape))
                    return self._shown(out)
                ways = self._ways.get(state)
                if ways is None:
                    ways = self._ways[state] = sorted(self._ways_of(state), key=_by_end)
                which = choose([weight for weight, _ in ways]) if len(ways) > 1 else 0
                _, ways_on = ways[which]
                if not ways_on:
                    return self._shown(out)
                plain = [byte for byte in ways_on if byte in _PLAIN] or ways_on
                out.append(plain[choose([1.0] * len(plain)) if len(plain) > 1 else 0])
                tape.feed(bytes(out[-1:]))
                state = machine.step(state, out[-1])

    def _shown(self, data: bytearray) -> str:
        """Return the text, with the names of special tokens."""
        for number, token in enumerate(self._built.named_tokens):
            data = data.replace(spelling(number), token.text.encode())
        return data.decode()

    def _ways_of(self, state: int) -> Iterator[tuple[float, bytes]]:
        """Yield the ways on from a state, each with its weight; the end has no bytes."""
        machine = self._built.machine
        if machine.is_accepting(state):
            yield 1.0, b""
        for number, q, _ in machine.configurations(state):
            leaf = machine.leaves[number]
            groups: dict[int, list[int]] = {}
            for byte, to in leaf.row(q).items():
                groups.setdefault(to, []).append(byte)
            sizes = [self._count(leaf, to) for to in groups]
            whole, share = sum(sizes), 1.0
            if leaf.labels[q] >= 0 and not isinstance(leaf, NumberLeaf):
                # Each text of it is as likely as each thing that may follow.
                share = min(whole, _MOST_COUNTED) if whole < math.inf else _GOES_ON
            weights = [
                size if whole < math.inf else _GOES_ON if size == math.inf else min(size, _GOES_ON)
                for size in sizes
            ]
            rare = [not _PLAIN.intersection(group) for group in groups.values()]
            if not all(rare):
                all_rare = sum(itertools.compress(weights, rare)) or 1.0
                usual = sum(weights) - all_rare
                weights = [
                    weight * _RARE * usual / all_rare if is_rare else weight
                    for weight, is_rare in zip(weights, rare, strict=True)
                ]
            for weight, group in zip(weights, groups.values(), strict=True):
                yield share * weight / sum(weights), bytes(sorted(group))

    def _count(self, leaf: Leaf, q: int, depth: int = 0) -> float:
        """Count the texts from a leaf's state, with equivalent bytes as one; infinity for many."""
        key = leaf, q
        if key not in self._counts:
            self._counts[key] = math.inf  # to a state that leads back here
            if leaf.hands_over or isinstance(leaf, NumberLeaf) or depth == _DEEPEST:
                return math.inf
            found = float(leaf.labels[q] >= 0)
            for to in dict.fromkeys(leaf.row(q).values()):
                found += self._count(leaf, to, depth + 1)
                if found > _MOST_COUNTED:
                    return math.inf
            self._counts[key] = found
        return self._counts[key]


def _by_end(way: tuple[float, bytes]) -> tuple[bool, bool, bytes]:
    """Return a sort key: ways that close something come first."""
    return bool(way[1]), _CLOSING.isdisjoint(way[1]), way[1]


def sample(output_type: Any, n: int = 10, seed: int = 0, **options: Any) -> list[str]:
    """Return random texts of an output type, without a model, drawn evenly over its structure.

    Args:
        output_type: anything that can be compiled.
        n: the number of texts.
        seed: equal seeds give equal texts.
        **options: compile options. By default, objects have only members that the schema names
            (``closed``), and JSON has one space after commas and colons (``whitespace``).

    Raises:
        OutputTypeError: the type is malformed.

    Cost: that of compiling the type without a vocabulary, plus microseconds per byte.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise OptionError(f"n must be an integer of at least 0, got {n!r}.")
    r, sampler = random.Random(seed), Sampler(output_type, **options)
    return [sampler.draw(lambda ws: r.choices(range(len(ws)), ws)[0]) for _ in range(n)]


class Difference(NamedTuple):
    """Whether every text of one type is also a text of another.

    Attributes:
        witness: a text of the first type that is not one of the second; None if none was found.
        is_decided: whether the result is proven; otherwise structgen only compared samples.
    """

    witness: str | None
    is_decided: bool


def difference(old: Any, new: Any, n: int = 200, seed: int = 0) -> Difference:
    """Return whether every text of ``old`` is also a text of ``new``.

    For patterns and choices, automata prove the result. For other types, structgen tries ``n``
    texts of ``old``, half of them with members that no schema names. How JSON is written does not
    matter.

    Raises:
        OutputTypeError: a type is malformed, or ``old`` has special tokens.
    """
    first, second = lower(old), lower(new)
    for token in ir.special_tokens(first.grammar):
        raise OutputTypeError(
            f"difference() compares texts, but {first.name} has the special token {token.text!r}, "
            "which is not text. Remove it from both types."
        )
    both = regular(first.grammar), regular(second.grammar)
    if both[0] is not None and both[1] is not None:
        beyond = ir.Intersect((both[0], ir.Complement(both[1])))
        if RegexAutomaton(beyond).is_empty():
            return Difference(None, True)
        machine = build(ir.Pattern(beyond, source="the difference"), {}).machine
        return Difference(flat(machine.shortest_completion(machine.start)).decode(), True)
    divider = Divider([second.grammar], "text")
    for closed in (True, False):
        for text in sample(old, n // 2, seed, closed=closed):
            if not is_text_of(divider, text):
                return Difference(text, True)
    return Difference(None, False)
