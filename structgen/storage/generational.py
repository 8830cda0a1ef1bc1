"""Caches of recently used objects and of a method's results, numbers of keys, and a map by
identity. They know sizes, not meanings.

`IdentityMap` compares its keys by identity: for objects without a hash, such as those of a JSON
document, and for equal objects that must be distinguished. It keeps its keys alive, because an
address identifies an object only while that object lives.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, final

_K = TypeVar("_K")
_V = TypeVar("_V")
_Method = TypeVar("_Method", bound=Callable[..., Any])

_NOTHING: dict[Any, Any] = {}
"""Replaced, never changed."""


class GenerationalCache(dict[_K, _V]):
    """A cache with two generations: `rotate` drops entries that were not used since the last
    `rotate`.

    Approximates least-recently-used. The dictionary is the young generation, so hits cost the same
    as a dictionary's: ``cache[key]`` is the value, or None if there is none.
    """

    __slots__ = ("__dict__", "__weakref__")

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    # Every constraint has four, and few ever rotate: so creating one calls no Python code.
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
        """Start a new generation and drop the one before the last."""
        self.old = self.copy()
        self.clear()


class Weighed(Protocol):
    """An object with a size."""

    @property
    def weight(self) -> int:
        """The rough size in bytes."""
        ...


class Caches(list[GenerationalCache[Any, Any]]):
    """Several caches with the same lifetime, for ``owner``."""

    def __init__(self, held: list[GenerationalCache[Any, Any]], owner: Weighed) -> None:
        super().__init__(held)
        self.owner = owner

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # by identity
    __ne__ = object.__ne__


@final
class KeptByBytes(Generic[_V]):
    """A least-recently-used cache with a byte budget. Not thread-safe.

    Values may grow while they are used, so a value is weighed again when it is requested, and when
    others are added soon afterwards: a value usually grows after it was added.

    Attributes:
        weight: the rough size of all entries in bytes.
    """

    def __init__(self, most_bytes: int, weigh: Callable[[_V], int]) -> None:
        """Make an empty cache; ``weigh`` returns the rough bytes of a value."""
        self.weight = 0
        self._most = most_bytes
        self._weigh = weigh
        self._kept: OrderedDict[Hashable, tuple[_V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> _V | None:
        """Return the value and mark it as the most recent; None if there is none."""
        found = self._kept.get(key)
        if found is None:
            return None
        self.add(key, found[0])
        return found[0]

    def add(self, key: Hashable, value: _V) -> None:
        """Add a value, and drop the least recently used ones until the rest fits.

        A value that is larger than the budget is not kept.
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
"""The number of most recent values that are weighed again when one is added."""

_ENTRY_BYTES = 500
"""Rough overhead of an entry in bytes, which limits the number of small values."""


class Numbers(dict[_K, int]):
    """Numbers of keys, from 0 in the order in which they are first looked up.

    ``numbers[key]`` gives a new key the next number. A hit costs the same as a dictionary's.

    Attributes:
        listed: the keys by number.
    """

    __slots__ = ("listed",)

    def __init__(self, keys: Iterable[_K] = ()) -> None:
        self.listed: list[_K] = []
        for key in keys:
            self[key]

    def __missing__(self, key: _K) -> int:
        number = self[key] = len(self.listed)
        self.listed.append(key)
        return number


class IdentityMap(Generic[_K, _V]):
    """Values by object, in insertion order.

    Cost: about 60 ns per call more than a dictionary.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[_K, _V]] = {}

    def get(self, key: _K) -> _V | None:
        """Return the value of ``key``, or None."""
        entry = self._entries.get(id(key))
        return None if entry is None else entry[1]

    def setdefault(self, key: _K, value: _V) -> _V:
        """Return the value of ``key``; set it to ``value`` first if it has none."""
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
        """Return the objects with their values."""
        return iter(self._entries.values())


class _CachedMethod:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        method, this = self._method, weakref.ref(instance)
        known = functools.cache(lambda *arguments: method(this(), *arguments))
        setattr(instance, method.__name__, known)  # found before this descriptor from now on
        return known


def cached_method(method: _Method) -> _Method:
    """Return a method that computes its result once for each object and positional arguments.

    Like `functools.cached_property` with arguments: the object has the results, but they do not
    refer to it, so it is still freed without a garbage collection. Something else must keep the
    object during a call. Do not copy or pickle it, or override the method. Not for deep recursion,
    which would take three times as many frames. A hit costs the same as looking into a dictionary.
    """
    return cast("_Method", _CachedMethod(method))
