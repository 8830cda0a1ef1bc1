"""What those who read a schema's assertions may ask of the whole schema.

Two questions: which conjunctions there are (`conjunctions.Conjunctions`), and which of them have
values, and how short (`Inhabited`). `Schema` answers both; `json.values.JsonLanguage` is one.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

from structgen.automaton.texts import Text
from structgen.grammar import ir
from structgen.grammar.json_schema import Node

from .conjunctions import Conjunctions, Told
from .outlines import Listings
from .rules import RuleBook


class Inhabited(Protocol):
    """Which conjunctions have values; see `json.emptiness.Emptiness`."""

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


class Schema(Protocol):
    """All values of one schema, by conjunction."""

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

    @property
    def book(self) -> RuleBook:
        """The rules about objects' members."""

    def add(self, node: Node) -> int:
        """The requirement that a new node holds."""

    def without(self, conjunction: int, numbers: tuple[int, ...], path: str = "$") -> int:
        """``conjunction``, and none of the values that `told` has under ``numbers``, which
        ascend."""

    def first_alike(self, requirement: int) -> int:
        """One requirement for all that say the same."""

    def constant(self, value: Any) -> int:
        """The requirement to equal ``value``."""

    def string_language(self, requirement: int) -> ir.Regex:
        """The strings, as text, that meet ``requirement``."""
