"""Conjunctions of requirements, by number: what a value is owed to.

A conjunction is a set of schema nodes that all apply to one value. Conjunctions are integers, that
of one requirement being the requirement itself. `Conjunctions` owns the numbers of the others, and
tells where in the schema they are. It knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import FALSE, TRUE, Node


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
