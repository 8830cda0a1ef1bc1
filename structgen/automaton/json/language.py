"""The interface through which open objects and arrays use values and their texts.

`values.JsonLanguage` implements it. Frames see only this interface, not how values are built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from structgen.automaton.core.frames import Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.schema.language import Schema
from structgen.automaton.texts import Text, joined, put
from structgen.grammar.json_schema import SchemaGraph

from .options import JsonOptions
from .scalars import Scalars
from .whitespace import Whitespace

MAX_LISTED = 100
"""The most values, or keys, for which the ways to close an object or array are compared one by one.
"""


class Plan(Protocol):
    """How objects or arrays of one kind are written."""

    def is_possible(self) -> bool:
        """Return whether such a value exists."""

    def open(self) -> Alternative:
        """Return the alternatives with which such a value may start."""


class Language(Schema):
    """All values of one schema, by conjunction, and their texts.

    Args:
        graph: the schema.
        options: how JSON is written.
        missing: bytes from 0x7F on that cannot be written.
    """

    root: int
    space: Whitespace
    shortest: Callable[[int], Text | None]
    """A shortest text of a conjunction, or None; see `Inhabited.shortest`."""

    def __init__(
        self, graph: SchemaGraph, options: JsonOptions, missing: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(graph)
        self.options = options
        self.missing = missing
        self.scalars = Scalars(options, missing)

    @property
    def inside(self) -> Language:
        """The language of the values inside objects and arrays."""
        raise NotImplementedError

    def alternatives(self, conjunction: int, limited: bool = False) -> tuple[Alternative, ...]:
        """Return the alternatives with which a value of this conjunction may start; empty if there
        is none.

        A ``limited`` value nests no deeper than the rest of ``max_depth``.
        """
        raise NotImplementedError

    def shapes(self, conjunction: int) -> tuple[tuple[tuple[Leaf, int], ...], tuple[Plan, ...]]:
        """Return the leaves, and the plans of objects and arrays, of the conjunction's values."""
        raise NotImplementedError

    def limit_below(self, nodes: tuple[int, ...]) -> int:
        """Return the depth from which values in an object or array of ``nodes`` are limited."""
        raise NotImplementedError


def ending(
    language: Language, parts: Sequence[Text] | None, is_first: bool, bracket: bytes
) -> Text | None:
    """Return items or members and the bracket; with a comma first, unless ``is_first``."""
    if parts is None:
        return None
    space = language.space
    out = joined(space.comma, parts)
    if parts and not is_first:
        out = put(space.comma, out)
    return put(out, (space.last if parts or not is_first else b"") + bracket)


def whole(language: Language, bracket: bytes, rest: Text | None) -> Text | None:
    """Return the opening bracket plus the `ending` of all that follows."""
    if rest is None:
        return None
    space = language.space
    return put(bracket + (space.empty if len(rest) == 1 else space.first), rest)
