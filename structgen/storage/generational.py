"""Caches that keep what was used recently, and a map by identity. They know sizes, not meanings.

`IdentityMap` compares its keys by identity: for objects without a hash, such as those of a JSON
document, and for equal objects that must stay apart. It keeps its keys alive, because an address
identifies an object only while that object lives.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

_K = TypeVar("_K")
_V = TypeVar("_V")

_NOTHING: dict[Any, Any] = {}
"""Replaced, never changed."""


class GenerationalCache(dict[_K, _V]):
    """A cache in two generations: `turn` drops what was not asked for since the last `turn`.

    An approximation of least-recently-used. The dictionary is the young generation, so that hits
    cost what a dictionary's do: ``cache[key]`` gives the value, or None where there is none.
    """

    __slots__ = ("__dict__", "__weakref__")

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    # Every constraint has four, and few ever turn: so they are made without a call of ours.
    old: dict[_K, _V] = _NOTHING

    if TYPE_CHECKING:

        def __getitem__(self, key: _K) -> _V | None: ...  # type: ignore[override]

    def __missing__(self, key: _K) -> _V | None:
        if not self.old:  # as in most caches
            return None
        found = self.old.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def rotate(self) -> None:
        """Start a new generation and forget the one before the last."""
        self.old = self.copy()
        self.clear()


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


@final
class KeptByBytes(Generic[_V]):
    """What was asked for last, as long as it fits into a budget of bytes. Not thread-safe.

    What is kept may grow while it is used, so it is weighed again when it is asked for, and when
    something else is added soon after: what was asked for once has grown after it was added.

    Attributes:
        weight: about how many bytes it holds.
    """

    def __init__(self, most_bytes: int, weigh: Callable[[_V], int]) -> None:
        """Make an empty cache; ``weigh`` says about how many bytes a value takes."""
        self.weight = 0
        self._most = most_bytes
        self._weigh = weigh
        self._kept: OrderedDict[Hashable, tuple[_V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> _V | None:
        """Return the value, now the one asked for last; None: there is none."""
        found = self._kept.get(key)
        if found is None:
            return None
        self.add(key, found[0])
        return found[0]

    def add(self, key: Hashable, value: _V) -> None:
        """Keep a value, and drop those asked for longest ago until the rest fits.

        One that does not fit by itself is not kept.
        """
        if key in self._kept:
            self.weight -= self._kept.pop(key)[1]
        self._kept[key] = value, 0
        for recent in list(itertools.islice(reversed(self._kept), _AGAIN)):
            value, before = self._kept[recent]
            weight = _ENTRY_BYTES + self._weigh(value)
            self._kept[recent] = value, weight
            self.weight += weight - before
        while self.weight > self._most:
            _, (_, gone) = self._kept.popitem(last=False)
            self.weight -= gone

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self.weight = 0


_AGAIN = 64
"""How many of what was asked for last are weighed again where one is added."""

_ENTRY_BYTES = 500
"""About how many bytes an entry takes beside its value: so small ones do not become too many."""


class IdentityMap(Generic[_K, _V]):
    """Values by the objects that they belong to, in the order in which those were added.

    Cost: some 60 ns more than a dictionary's for each call.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[_K, _V]] = {}

    def get(self, key: _K) -> _V | None:
        """Return what ``key`` has; None where it has nothing."""
        entry = self._entries.get(id(key))
        return None if entry is None else entry[1]

    def setdefault(self, key: _K, value: _V) -> _V:
        """Return what ``key`` has; ``value``, from now on, where it had nothing."""
        return self._entries.setdefault(id(key), (key, value))[1]

    def __setitem__(self, key: _K, value: _V) -> None:
        self._entries[id(key)] = key, value

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def __iter__(self) -> Iterator[_K]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[_K, _V]]:
        """Return the objects, each with what it has."""
        return iter(self._entries.values())
