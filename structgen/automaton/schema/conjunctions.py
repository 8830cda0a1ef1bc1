"""Conjunctions of requirements on a value, by number, and barred values.

A conjunction is a set of schema nodes that all apply to one value. Conjunctions are integers; a
single requirement is its own conjunction. `Conjunctions` numbers the others and knows their places
in the schema, but not their meaning. `types_of` reads the types of a requirement from its nodes.

Unique items bar the values already written, as `NumberedValues`. A node holds a set of them as
`Barred`, so that equal sets are the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import ALL_TYPES, FALSE, TRUE, Node, json_key

_MOST_HOPS = 12
"""Types are searched for through at most this many nested references and applicators."""


class Conjunctions:
    """The conjunctions of one schema's nodes.

    Attributes:
        nodes: the nodes, a growing list.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        # Conjunctions of several requirements, by ``-1 - number``. Most have only one.
        self._conjunctions: list[tuple[int, ...]] = []
        # Conjunctions first requested in another order, by number.
        self._as_met: dict[int, tuple[int, ...]] = {}
        self._conjunction_ids: dict[tuple[int, ...], int] = {}

    def of(self, requirements: Iterable[int]) -> int:
        """Return the number of the conjunction of ``requirements``."""
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
        """Return the requirements that the conjunction consists of."""
        if conjunction < 0:
            return self._conjunctions[~conjunction]
        return () if conjunction == TRUE else (conjunction,)

    def node(self, conjunction: int) -> Node | None:
        """Return the only node that the conjunction requires; None if it requires more."""
        return None if conjunction < 0 or conjunction & 1 else self.nodes[conjunction >> 1]

    def extended(self, conjunction: int, more: Iterable[int]) -> int:
        """Return the conjunction of ``conjunction`` and further requirements."""
        return self.of([*self.requirements(conjunction), *more])

    @contextmanager
    def placed(self, conjunction: int) -> Iterator[None]:
        """Context in which limit errors without a place get the place of the conjunction."""
        try:
            yield
        except CompileLimitExceeded as error:
            raise self.at(error, conjunction) from error

    def at(self, error: CompileLimitExceeded, conjunction: int) -> CompileLimitExceeded:
        """Return ``error`` with the place of the conjunction."""
        paths = (self.nodes[ob >> 1].path for ob in self.requirements(conjunction))
        return error.at(next((path for path in paths if path != "$"), "$"))

    def reading_order(self, conjunction: int) -> dict[int, int]:
        """Map the nodes that may apply to a value to their positions, a schema before its parts.

        This determines the order of properties. Synthetic nodes have no position.
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


def types_of(nodes: Sequence[Node], requirement: int, hops: int = 0) -> int:
    """Return the type bits that values of ``requirement`` may have; a superset."""
    if requirement & 1 or hops > _MOST_HOPS:
        return 0 if requirement == FALSE else ALL_TYPES
    node = nodes[requirement >> 1]
    types = node.types
    for part in (*node.refs, *node.all_of):
        types &= types_of(nodes, part, hops + 1)
    for options in (node.any_of, node.one_of):
        if options is not None:
            some = 0
            for option in options:
                some |= types_of(nodes, option, hops + 1)
                if some & types == types:
                    break
            types &= some
    return types


class NumberedValues:
    """Values that must be compared with others, by number.

    Attributes:
        values: the values.
        keys: the `json_key` of each.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.keys: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._barred: dict[tuple[int, ...], Barred] = {}

    def number(self, value: Any) -> int:
        """Return the number of ``value``; equal values have the same number."""
        key = json_key(value)
        found = self._numbers.get(key)
        if found is None:
            WORK.hold(300)
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
            self.keys.append(key)
        return found

    def known(self, key: Any) -> int | None:
        """Return the number of the value with this `json_key`, or None."""
        return self._numbers.get(key)

    def release(self) -> None:
        """Drop references that form cycles."""
        self._barred.clear()

    def barred(self, numbers: tuple[int, ...]) -> Barred:
        """Return the values with ``numbers``, in ascending order."""
        found = self._barred.get(numbers)
        if found is None:
            WORK.hold(200 + 8 * len(numbers))
            found = self._barred[numbers] = Barred(self, numbers)
        return found


class Barred:
    """Values that must not be written. `NumberedValues` returns the same object for equal sets.

    Attributes:
        numbered: the values and their numbers.
        numbers: the numbers of the barred values, ascending.
    """

    def __init__(self, numbered: NumberedValues, numbers: tuple[int, ...]) -> None:
        self.numbered = numbered
        self.numbers = numbers

    def __iter__(self) -> Iterator[Any]:
        return (self.numbered.values[number] for number in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, key: object) -> bool:
        """Return whether the value with this `json_key` is barred."""
        return self.numbered.known(key) in self._members

    @cached_property
    def containers(self) -> tuple[int, ...]:
        """The numbers of the barred objects and arrays."""
        values = self.numbered.values
        return tuple([n for n in self.numbers if isinstance(values[n], (dict, list))])

    @cached_property
    def _members(self) -> frozenset[int | None]:
        return frozenset(self.numbers)
