"""What open objects and arrays ask of the values of their schema.

Three questions: which conjunctions there are (`conjunctions.Conjunctions`), which of them have
values and how short (`Inhabited`), and how JSON is spelt (`Spelling`). `Language` has all of them,
with the ways that values start; `values.JsonLanguage` is one. Frames know these and nothing else of
it, so that none of them can reach into how values are built.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

from structgen.automaton.core.frames import Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.texts import Text
from structgen.grammar import ir
from structgen.grammar.json_schema import Node

from .conjunctions import Conjunctions
from .excluding import Told
from .options import JsonOptions
from .outlines import Listings
from .rules import RuleBook
from .scalars import Scalars
from .whitespace import Whitespace


class Plan(Protocol):
    """How values of one kind, objects or arrays, are written."""

    def is_possible(self) -> bool:
        """Whether there is any such value."""

    def open(self) -> Alternative:
        """How one starts."""


class Inhabited(Protocol):
    """Which conjunctions have values; see `emptiness.Emptiness`."""

    typed: Set[int]

    @property
    def is_solving(self) -> bool:
        """Whether answers of `shortest` are provisional: a fixpoint is being computed."""

    @property
    def provisional(self) -> tuple[int, int]:
        """As long as this is the same, so are the answers of `shortest`, to the one who asks."""

    def is_possible(self, conjunction: int) -> bool:
        """Whether any value satisfies the conjunction."""

    def clearly_empty(self, conjunction: int, depth: int = 3) -> bool:
        """A cheap sufficient test that nothing satisfies it."""

    def size_at_least(self, conjunction: int, size: int) -> bool:
        """A cheap sufficient test that ``size`` different values satisfy the conjunction."""

    def shortest(self, conjunction: int) -> Text | None:
        """A shortest text of the conjunction, or None when it is empty."""


class Spelling(Protocol):
    """How JSON is written."""

    options: JsonOptions
    missing: frozenset[int]
    space: Whitespace
    scalars: Scalars

    @property
    def least_space(self) -> bytes:
        """The shortest whitespace between brackets and what is inside."""

    @property
    def least_comma(self) -> bytes:
        """A comma with the shortest whitespace around it."""

    @property
    def least_colon(self) -> bytes:
        """A colon with the shortest whitespace around it."""


class Language(Spelling, Protocol):
    """All values of one schema, by conjunction."""

    root: int
    nodes: list[Node]
    conjunctions: Conjunctions

    @property
    def values(self) -> Inhabited:
        """Which conjunctions have values."""

    @property
    def listings(self) -> Listings:
        """Which values the nodes list."""

    @property
    def told(self) -> Told:
        """The values that others are told apart from."""

    def add(self, node: Node) -> int:
        """The requirement that a new node holds."""

    def without(self, conjunction: int, numbers: tuple[int, ...], path: str = "$") -> int:
        """``conjunction``, and none of the values that `told` has under ``numbers``, which
        ascend."""

    def first_alike(self, requirement: int) -> int:
        """One requirement for all that say the same."""

    def constant(self, value: Any) -> int:
        """The requirement to equal ``value``."""

    @property
    def book(self) -> RuleBook:
        """The rules about objects' members."""

    def alternatives(self, conjunction: int, limited: bool = False) -> tuple[Alternative, ...]:
        """How a value of this conjunction may start; empty when nothing satisfies it."""

    def shapes(self, conjunction: int) -> tuple[tuple[tuple[Leaf, int], ...], tuple[Plan, ...]]:
        """The leaves and the plans of objects and arrays a value may take, possible or not."""

    def string_language(self, requirement: int) -> ir.Regex:
        """The strings, as text, that meet ``requirement``."""

    def limit_below(self, nodes: tuple[int, ...]) -> int:
        """The depth from which on the values in an object or array of ``nodes`` are limited."""
