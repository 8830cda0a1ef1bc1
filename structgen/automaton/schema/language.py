"""The interface to the whole schema, for modules that read assertions.

`Schema.conjunctions` numbers sets of requirements. `Schema.values` (`Inhabited`) knows which
conjunctions have values, and how short these are. `json.values.JsonLanguage` is a `Schema`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from typing import Any, Protocol

from structgen.automaton.texts import Text
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.grammar.json_schema import ARRAY, FALSE, OBJECT, STRING, Node, SchemaGraph, json_key

from . import evaluate
from .branches import Branch, Brancher
from .conjunctions import Conjunctions, NumberedValues
from .outlines import Listings, Outlines
from .rule_reader import RuleReader
from .rules import RuleBook
from .strings import StringReader, string_regex


class Inhabited(Protocol):
    """Knows which conjunctions have values; see `json.values.Emptiness`."""

    typed: Set[int]
    any_will_do: bool

    @property
    def is_solving(self) -> bool:
        """Whether results of `shortest` are provisional, because a fixpoint is being computed."""

    @property
    def provisional(self) -> tuple[int, int]:
        """While this value stays the same, so do the caller's results of `shortest`."""

    def is_possible(self, conjunction: int) -> bool:
        """Return whether any value satisfies the conjunction."""

    def clearly_empty(self, conjunction: int, depth: int = 3) -> bool:
        """Return True if a cheap test shows that no value satisfies it."""

    def size_at_least(self, conjunction: int, size: int) -> bool:
        """Return True if a cheap test finds ``size`` different values of the conjunction."""

    def bytes_of_many(self, conjunction: int, count: int, depth: int = 3) -> int | None:
        """Return a length within which there are more than ``count`` different values; None if this
        is not obvious."""

    def some(self, conjunction: int) -> Text | None:
        """Return any text of the conjunction, or None if it is empty."""

    def shortest(self, conjunction: int) -> Text | None:
        """Return a shortest text of the conjunction, or None if it is empty."""


class Schema:
    """All values of one schema, by conjunction.

    Attributes:
        nodes: its nodes, a growing list.
        typed: the requirements that only name one type, or none.
        conjunctions: the conjunctions, by number.
        values: which conjunctions have values, and how short these are.
    """

    values: Inhabited

    def __init__(self, graph: SchemaGraph) -> None:
        self.nodes = list(graph.nodes)
        self.typed = graph.typed
        self.conjunctions = Conjunctions(self.nodes)
        self._branches: dict[int, tuple[Branch, ...]] = {}
        self._constants: dict[Any, int] = {}

    # Parts that the first mask of most schemas does not need are made on demand.

    @cached_property
    def book(self) -> RuleBook:
        """The rules about objects' members."""
        return RuleBook()

    @cached_property
    def numbered(self) -> NumberedValues:
        """The values that must be compared with others."""
        return NumberedValues()

    @cached_property
    def listings(self) -> Listings:
        """The values that the nodes list."""
        return Listings(self.nodes)

    @cached_property
    def _outlines(self) -> Outlines:
        return Outlines(self.nodes, self.listings, self._excluded)

    @cached_property
    def _reader(self) -> RuleReader:
        return RuleReader(
            self.nodes, self.book, self.constant, self.string_language, self._outlines
        )

    @cached_property
    def _brancher(self) -> Brancher:
        strings = StringReader(self.nodes)
        return Brancher(self.nodes, self._outlines, self.constant, self._reader, strings)

    def _excluded(self, requirements: Sequence[int]) -> bool:
        """Return True if requirements certainly exclude each other; False if not obvious."""
        return self.values.clearly_empty(self.conjunctions.of(requirements))

    def release(self) -> None:
        """Drop all references back to the language, so that it is freed without a garbage
        collection.

        Do not use the language or its frames afterwards.
        """
        for name in ("book", "numbered"):
            made = self.__dict__.get(name)
            if made is not None:
                made.release()
        self.__dict__.clear()

    def branches(self, conjunction: int) -> tuple[Branch, ...]:
        """Return the conjunction's branches, without those whose types contradict each other."""
        found = self._branches.get(conjunction)
        if found is None:
            node = self.conjunctions.node(conjunction)
            if node is not None and not node.applies_in_place:  # the usual case
                own = (conjunction >> 1,) if node.asserts else ()
                found = (Branch(node.types, own),) if node.types else ()
            else:
                with self.conjunctions.placed(conjunction):
                    found = tuple(
                        self._brancher.expand(self.conjunctions.requirements(conjunction))
                    )
            self._branches[conjunction] = found
        return found

    def add(self, node: Node) -> int:
        """Return the requirement that a new node holds."""
        return self._brancher.add(node)

    def without(self, conjunction: int, numbers: tuple[int, ...], path: str = "$") -> int:
        """Return ``conjunction`` without the values that `numbered` has under ``numbers``
        (ascending)."""
        barred = self.add(Node(path, excluded=self.numbered.barred(numbers)))
        return self.conjunctions.extended(conjunction, [barred])

    def first_alike(self, requirement: int) -> int:
        """See `RuleReader`: return one requirement for all equivalent ones."""
        return self._reader.first_alike(requirement)

    def string_language(self, requirement: int) -> ir.Regex:
        """Return the strings, as text, that meet ``requirement``."""
        parts: list[ir.Regex] = []
        for branch in self.branches(self.conjunctions.of([requirement])):
            if not branch.types & STRING:
                continue
            nodes = [self.nodes[n] for n in branch.nodes]
            enum = next((n.enum for n in nodes if n.enum is not None), None)
            if enum is None:
                regex = string_regex(nodes)
                if regex is not None:
                    parts.append(regex)
            else:
                parts += [
                    ir.literal(v)
                    for v in enum
                    if isinstance(v, str)
                    and all(evaluate.holds(self.nodes, 2 * n, v) for n in branch.nodes)
                ]
        return parts[0] if len(parts) == 1 else ir.Alternate(tuple(parts))

    def constant(self, value: Any) -> int:
        """Return the requirement to equal ``value``."""
        key = (json_key(value), repr(value))  # equal values may be written differently
        found = self._constants.get(key)
        if found is not None:
            return found
        WORK.spend(4 + (len(key[1]) >> 5))
        if isinstance(value, dict):
            node = Node(
                "$",
                types=OBJECT,
                properties={k: self.constant(v) for k, v in value.items()},
                required=tuple(value),
                additional=FALSE,
            )
        elif isinstance(value, (list, tuple)):
            node = Node(
                "$",
                types=ARRAY,
                prefix=tuple(self.constant(v) for v in value),
                items=FALSE,
                min_items=len(value),
            )
        else:
            node = Node("$", enum=(value,))
        found = self._constants[key] = self.add(node)
        return found
