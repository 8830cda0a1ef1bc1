"""What one value has to satisfy besides its conjunction, built up one requirement at a time.

`Requirements` are a few on top of a conjunction, together with what they leave of the value
where they list values: a set of which it is one, or values that it is not. Where a ``const`` in one
alternative and a ``const`` in the next exclude each other, comparing sets says so at once; asking
the language whether all of it together is empty would take a question for each pair. It knows
nothing of the members that such values belong to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from structgen.grammar.json_schema import ALL_TYPES, ARRAY, OBJECT, STRING, Node

from .language import Language


class Requirements:
    """Requirements on one value. Immutable.

    Args:
        language: of which the value is part.
        base: the conjunction that the value owes anyway.

    Attributes:
        base: that conjunction.
        requirements: what has been added to it.
    """

    __slots__ = (
        "_among",
        "_barred",
        "_is_exact",
        "_is_guess",
        "_language",
        "_types",
        "base",
        "requirements",
    )

    def __init__(self, language: Language, base: int) -> None:
        self._language = language
        self.base = base
        self._among: frozenset[Any] | None = None  # the values it can be, None: any
        self._barred: frozenset[Any] = frozenset()
        self._is_guess = False
        # Whether it can be all of them, and these are strings.
        self._is_exact = True
        self._types: int | None = None
        self.requirements: tuple[int, ...] = ()
        for requirement in language.conjunctions.requirements(base):
            listing = language.listings.of(requirement)
            if listing is None:
                self._is_exact &= language.listings.is_silent(requirement)
                continue
            self._is_exact &= listing.is_exact
            self._among = listing.keys if self._among is None else self._among & listing.keys
        self._is_exact &= self._among is not None

    @property
    def among(self) -> frozenset[Any] | None:
        """All values that it can be, by `json_key`, as far as lists tell; None where none does."""
        return self._among

    def listed_by(self, number: int) -> frozenset[Any] | None:
        """The values, by `json_key`, with which it meets node ``number``, and others do not.

        None where these are not a plain list.
        """
        node = self._language.nodes[number]
        if node.is_list:
            return node.listed
        return self._language.listings.words(number) if not self.types & ~STRING else None

    def are_deep(self, numbers: Iterable[int], most: int) -> bool:
        """Whether more than ``most`` of these nodes may be about what is inside the value."""
        inside = self.types & (OBJECT | ARRAY)
        if not inside:
            return False
        nodes = [self._language.nodes[number] for number in numbers]
        return sum(n.enum is None and n.types & inside != 0 for n in nodes) > most

    @property
    def types(self) -> int:
        """Type bits that are the only ones which the value can have."""
        if self._types is None:
            listings = self._language.listings
            self._types = ALL_TYPES
            for requirement in self._language.conjunctions.requirements(self.base):
                self._types &= listings.types(requirement)
            if self._among is not None and all(isinstance(key, str) for key in self._among):
                self._types &= STRING
        return self._types

    def with_values(
        self, keys: frozenset[Any], requirements: Iterable[int], order: Collection[Any] = ()
    ) -> Requirements:
        """One of the values ``keys``, as the further ``requirements`` have it.

        ``order`` has all of ``keys``, in the order of the schema if that is known.
        """
        other = self._copy()
        other._is_guess = True
        other._among = keys if self._among is None else keys & self._among
        if self._is_exact and not self.requirements:
            # That says it all: who builds it need not multiply out where it comes from.
            values = tuple(key for key in order or sorted(keys) if key in other._among)
            alone = self._language.add(Node(self._path, types=STRING, enum=values))
            other.base, other._is_guess = alone, False
        else:
            other.requirements = (*self.requirements, *requirements)
        return other

    def without_values(self, keys: frozenset[Any], requirements: Iterable[int]) -> Requirements:
        """None of the values ``keys``, as the further ``requirements`` have it."""
        other = self._copy()
        other._is_guess = True
        other._barred = self._barred | keys
        if self._among is not None:
            other._among = self._among - keys
        other.requirements = (*self.requirements, *requirements)
        return other

    def _copy(self) -> Requirements:
        other = Requirements.__new__(Requirements)
        for name in Requirements.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def _path(self) -> str:
        requirements = self._language.conjunctions.requirements(self.base)
        return next((self._language.nodes[ob >> 1].path for ob in requirements), "$")

    @property
    def conjunction(self) -> int:
        """All that the value owes."""
        return self._language.conjunctions.extended(self.base, self.requirements)

    @property
    def is_empty(self) -> bool:
        """Whether it turns out that no value meets what `adding` took for possible by lists."""
        return self._is_guess and self._language.values.clearly_empty(self.conjunction)

    def adding(self, requirement: int) -> Requirements | None:
        """With a further requirement; None when it is clear that no value meets all of them."""
        other = self._copy()
        node = self._language.nodes[requirement >> 1]
        if not node.is_list:
            other.requirements = (*self.requirements, requirement)
            return None if self._language.values.clearly_empty(other.conjunction) else other
        # Other keywords may still exclude what the lists leave: that is asked once, at the end.
        other._is_guess = True
        kept, keys = self.requirements, node.listed
        if requirement & 1:
            other._barred = self._barred | keys
            if self._among is not None:
                other._among = self._among - keys
        else:
            other._among = (keys if self._among is None else self._among & keys) - self._barred
            # What the value is tells that it is not what other lists have.
            kept = tuple(ob for ob in kept if not (ob & 1 and self._excludes(keys, ob >> 1)))
        if other._among is not None and not other._among:
            return None
        other.requirements = (*kept, requirement)
        return other

    def _excludes(self, keys: frozenset[Any], number: int) -> bool:
        node = self._language.nodes[number]
        return node.is_list and node.listed.isdisjoint(keys)
