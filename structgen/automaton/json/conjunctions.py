"""Conjunctions of requirements, by number: what a value is owed to.

A conjunction is a set of schema nodes that all apply to one value. Conjunctions are integers, that
of one requirement being the requirement itself. `Conjunctions` owns the numbers of the others, and
tells where in the schema they are. It knows nothing of what they mean.

Branches: one way each to satisfy a conjunction, and one that is still being made. `branches` makes
them; here is what it writes down, and what it compares at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import ALL_TYPES, FALSE, TRUE, Node

from .rules import Rule


class Conjunctions:
    """The conjunctions of one schema's nodes.

    Args:
        nodes: the nodes, which may become more.

    Attributes:
        nodes: the same.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        # Those of several requirements, by ``-1 - number``: nearly all are of one.
        self._conjunctions: list[tuple[int, ...]] = []
        # Those that were given in another order first, by number.
        self._as_met: dict[int, tuple[int, ...]] = {}
        self._conjunction_ids: dict[tuple[int, ...], int] = {}

    def of(self, requirements: Iterable[int]) -> int:
        """The number of the conjunction of ``requirements``."""
        given = dict.fromkeys(requirements)
        given.pop(TRUE, None)
        if FALSE in given:
            return FALSE
        if len(given) < 2:
            return next(iter(given), TRUE)
        key = tuple(sorted(given))
        found = self._conjunction_ids.get(key)
        if found is None:
            WORK.spend(1 + (len(key) >> 3))
            WORK.hold(20 * len(key))
            self._conjunctions.append(key)
            found = self._conjunction_ids[key] = -len(self._conjunctions)
            as_met = tuple(given)
            if as_met != key:
                self._as_met[found] = as_met
        return found

    def requirements(self, conjunction: int) -> tuple[int, ...]:
        """The requirements that the conjunction consists of."""
        if conjunction < 0:
            return self._conjunctions[~conjunction]
        return () if conjunction == TRUE else (conjunction,)

    def node(self, conjunction: int) -> Node | None:
        """The node that the conjunction says to hold, and nothing else; None where it says more."""
        return None if conjunction < 0 or conjunction & 1 else self.nodes[conjunction >> 1]

    def extended(self, conjunction: int, more: Iterable[int]) -> int:
        """The conjunction of ``conjunction`` and further requirements."""
        return self.of([*self.requirements(conjunction), *more])

    @contextmanager
    def placed(self, conjunction: int) -> Iterator[None]:
        """Limits that are hit meanwhile name the place of the conjunction, if no other."""
        try:
            yield
        except CompileLimitExceeded as error:
            raise self.at(error, conjunction) from error

    def at(self, error: CompileLimitExceeded, conjunction: int) -> CompileLimitExceeded:
        """``error`` with the place of the conjunction."""
        paths = (self.nodes[ob >> 1].path for ob in self.requirements(conjunction))
        return error.at(next((path for path in paths if path != "$"), "$"))

    def reading_order(self, conjunction: int) -> dict[int, int]:
        """The place of each node among those that a value may owe, a schema before its parts.

        It decides on the order of properties. Nodes that the engine has made have none.
        """
        order: dict[int, int] = {}
        owed = self._as_met.get(conjunction) or self.requirements(conjunction)
        stack = [ob >> 1 for ob in reversed(owed) if not ob & 1]
        while stack:
            number = stack.pop()
            if number not in order:
                order[number] = len(order)
                parts = self.nodes[number].parts_in_place()
                stack.extend(ob >> 1 for ob in reversed(parts) if not ob & 1)
        return order


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
