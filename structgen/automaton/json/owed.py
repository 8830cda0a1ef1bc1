"""What one value owes beside the usual, built up one obligation at a time.

An `Owed` is a few obligations on top of a conjunction, together with what they leave of the value
where they list values: a set of which it is one, or values that it is not. Where a ``const`` in one
alternative and a ``const`` in the next exclude each other, comparing sets says so at once; asking
the language whether all of it together is empty would take a question for each pair. It knows
nothing of the members that such values belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .values import JsonLanguage

_MOST_STEPS = 20
"""References and ``allOf`` parts that are looked through for an enum."""


class Owed:
    """Obligations on one value. Immutable.

    Args:
        language: of which the value is part.
        base: the conjunction that the value owes anyway.

    Attributes:
        obligations: what has been added to ``base``.
    """

    __slots__ = ("_among", "_barred", "_base", "_is_guess", "_language", "obligations")

    def __init__(self, language: JsonLanguage, base: int) -> None:
        self._language = language
        self._base = base
        self._among: frozenset[Any] | None = None  # the values it can be, None: any
        self._barred: frozenset[Any] = frozenset()
        self._is_guess = False
        self.obligations: tuple[int, ...] = ()
        todo = list(language.obligations(base))
        for _ in range(_MOST_STEPS):
            if not todo:
                break
            obligation = todo.pop()
            if obligation & 1:
                continue
            node = language.nodes[obligation >> 1]
            todo += (*node.refs, *node.all_of)
            if node.enum is not None:
                self._among = node.listed if self._among is None else self._among & node.listed

    @property
    def conjunction(self) -> int:
        """All that the value owes."""
        return self._language.conjunction_with(self._base, self.obligations)

    @property
    def is_empty(self) -> bool:
        """Whether it turns out that no value meets what `adding` took for possible by lists."""
        return self._is_guess and self._language.clearly_empty(self.conjunction)

    def adding(self, obligation: int) -> Owed | None:
        """With a further obligation; None when it is clear that no value meets all of them."""
        other = Owed.__new__(Owed)
        other._language, other._base, other._is_guess = self._language, self._base, self._is_guess
        other._among, other._barred = self._among, self._barred
        node = self._language.nodes[obligation >> 1]
        if not node.is_list:
            other.obligations = (*self.obligations, obligation)
            return None if self._language.clearly_empty(other.conjunction) else other
        # Other keywords may still exclude what the lists leave: that is asked once, at the end.
        other._is_guess = True
        kept, keys = self.obligations, node.listed
        if obligation & 1:
            other._barred = self._barred | keys
            if self._among is not None:
                other._among = self._among - keys
        else:
            other._among = (keys if self._among is None else self._among & keys) - self._barred
            # What the value is tells that it is not what other lists have.
            kept = tuple(ob for ob in kept if not (ob & 1 and self._excludes(keys, ob >> 1)))
        if other._among is not None and not other._among:
            return None
        other.obligations = (*kept, obligation)
        return other

    def _excludes(self, keys: frozenset[Any], number: int) -> bool:
        node = self._language.nodes[number]
        return node.is_list and node.listed.isdisjoint(keys)
