"""A cache of what was asked for recently. It knows neither what it holds nor how large that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")

_NOTHING: dict[Any, Any] = {}
"""Replaced, never changed."""


class GenerationalCache(dict[_K, _V]):
    """A cache in two generations: `turn` drops what was not asked for since the last `turn`.

    An approximation of least-recently-used. The dictionary is the young generation, so that hits
    cost what a dictionary's do: ``cache[key]`` gives the value, or None where there is none. A
    cache that has never turned has an empty dictionary say so, which takes no call of ours: most of
    what a new mask asks for is not there.
    """

    __slots__ = ("__dict__", "__weakref__")

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    # Every constraint has four, and few ever turn: so they are made without a call of ours.
    old: dict[_K, _V] = _NOTHING

    if TYPE_CHECKING:

        def __getitem__(self, key: _K) -> _V | None: ...  # type: ignore[override]

    __missing__: Any = _NOTHING.get

    def rotate(self) -> None:
        """Start a new generation and forget the one before the last."""
        self.old = self.copy()
        self.clear()
        self.__class__ = _Turned


class _Turned(GenerationalCache[_K, _V]):
    """A cache that has an old generation."""

    __slots__ = ()

    def __missing__(self, key: _K) -> _V | None:
        found = self.old.pop(key, None)
        if found is not None:
            self[key] = found
        return found


class Weighed(Protocol):
    """What takes memory."""

    @property
    def weight(self) -> int:
        """About how many bytes."""
        ...


class Caches(list[GenerationalCache[Any, Any]]):
    """Several caches that last equally long, for ``owner``."""

    def __init__(self, held: list[GenerationalCache[Any, Any]], owner: Weighed) -> None:
        super().__init__(held)
        self.owner = owner

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # by identity
    __ne__ = object.__ne__
