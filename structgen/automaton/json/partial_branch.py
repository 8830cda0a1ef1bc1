"""Branches: one way each to satisfy a conjunction, and one that is still being made.

`branches` makes them; here is what it writes down, and what it compares at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import ALL_TYPES

from .rules import Rule

MAX_SUBSETS = 6
"""Most ``anyOf`` branches beside an ``unevaluated…`` keyword: all their subsets are tried."""

Owned: TypeAlias = "tuple[int, frozenset[int]]"
"""A requirement, with the nodes whose ``unevaluated…`` sees what it evaluates."""


@dataclass(slots=True, frozen=True)
class Branch:
    """One way to satisfy a conjunction: all of ``nodes`` by their own assertions."""

    types: int
    nodes: tuple[int, ...]


class Partial:
    """A branch under construction."""

    __slots__ = ("choices", "contributors", "kept", "negated", "rules", "seen", "todo", "types")

    def __init__(self) -> None:
        self.todo: list[Owned] = []
        self.seen: set[Owned] = set()
        self.kept: set[int] = set()
        self.types = ALL_TYPES
        self.choices: list[list[tuple[Owned, ...]]] = []
        self.contributors: dict[int, set[int]] = {}
        self.rules: list[Rule] = []
        self.negated: list[int] = []

    def copy(self) -> Partial:
        """Another one like it, with nothing to do yet."""
        other = Partial()
        other.seen = set(self.seen)
        other.kept = set(self.kept)
        other.types = self.types
        other.rules = list(self.rules)
        other.negated = list(self.negated)
        other.choices = list(self.choices)
        other.contributors = {k: set(v) for k, v in self.contributors.items()}
        return other


def subsets(ways: list[Owned]) -> list[tuple[Owned, ...]]:
    """All non-empty subsets: every branch that holds may evaluate something."""
    if len(ways) > MAX_SUBSETS:
        raise CompileLimitExceeded(
            "an anyOf beside unevaluatedProperties or unevaluatedItems has too many branches; use "
            "oneOf if only one of them can hold, or write additionalProperties: false "
            "(items: false) into each instead",
            limit=MAX_SUBSETS,
            actual=len(ways),
        )
    return [
        tuple(way for i, way in enumerate(ways) if bits >> i & 1)
        for bits in range(1, 1 << len(ways))
    ]


def without_redundant(branches: list[Branch]) -> list[Branch]:
    """Drop branches that assert more than another one: they add nothing."""
    if len(branches) > 64:
        return branches
    sets = [set(b.nodes) for b in branches]
    return [
        b
        for i, b in enumerate(branches)
        if not any(
            j != i and s < sets[i] and not b.types & ~branches[j].types for j, s in enumerate(sets)
        )
    ]
