"""A cache of what was asked for recently. It knows neither what it holds nor how large that is."""

from __future__ import annotations

from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """A cache in two generations: `turn` drops what was not asked for since the last `turn`.

    An approximation of least-recently-used whose hits in the young generation cost one look-up.
    """

    __slots__ = ("__weakref__", "old", "young")

    def __init__(self) -> None:
        self.young: dict[_K, _V] = {}
        self.old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """The value of ``key``, or None."""
        found = self.young.get(key)
        if found is None and self.old:
            found = self.old.pop(key, None)
            if found is not None:
                self.young[key] = found
        return found

    def __setitem__(self, key: _K, value: _V) -> None:
        self.young[key] = value

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def turn(self) -> None:
        """Start a new generation and forget the one before the last."""
        self.old = self.young.copy()
        self.young.clear()  # the same dictionary for ever: cursors look things up in it themselves
