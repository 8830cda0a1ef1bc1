"""Automata that schemas share, kept from one to the next within a budget of bytes.

An automaton grows while it is walked, and one pattern can make it a thousand times as large as
another: so what is kept is weighed again and again, by its own estimate, and not counted. It knows
nothing of what it keeps but that, and what it was made from.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

MAX_BYTES = 12 * 1024 * 1024
"""What all that is kept may take together. A single automaton may take a quarter of it."""

MAX_COUNT = 256
"""Most that is kept: on MaskBench, twice as many would spare one in forty of what is made, and each
is thirty objects for every full collection of garbage."""

LARGE = 128 * 1024
"""Bytes from which on an automaton is kept only once it has been made a second time: hardly any is.
When a schema with hundreds of them goes, those that were kept would, strewn as they are among the
others, hold all their memory back from the system."""

_SLOTS = 1 << 16


class Weighed(Protocol):
    """Something that knows about how many bytes it takes by now."""

    @property
    def weight(self) -> int:
        """In bytes."""
        ...


_T = TypeVar("_T", bound="Weighed | None")


class SharedAutomata:
    """A cache of automata by what they are made from; those not asked for longest go first.

    Thread-safe. What is not kept goes on working for those that hold it, and is found meanwhile.

    Attributes:
        n_bytes: bytes that are kept, each automaton as it was last weighed.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._weights: OrderedDict[Hashable, int] = OrderedDict()  # not weighed for longest first
        self._held: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        # Of what the large ones were made from, by hash. Numbers, one by one, would each hold back
        # the megabyte of memory that they happen to be in.
        self._made = bytearray(_SLOTS)
        self._n_made = 0
        self._lock = threading.Lock()
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, make: Callable[..., _T], *arguments: Hashable) -> _T:
        """``make(*arguments)``, or what it returned for equal ones before; None is not kept."""
        key = (make, arguments)
        with self._lock:
            found: _T = self._find(key)
        if found is _UNKNOWN:
            made = make(*arguments)
            with self._lock:
                found = self._find(key)  # another thread may have been faster
                if found is _UNKNOWN:
                    self._keep(key, made)
                    found = made
        return found

    def _find(self, key: Hashable) -> Any:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        return self._held.get(key, _UNKNOWN)

    def _keep(self, key: Hashable, made: Any) -> None:
        if made is None:
            return  # hardly ever asked again by another schema
        slot = hash(key) % _SLOTS
        if made.weight >= LARGE and not self._made[slot]:
            self._n_made += 1
            if self._n_made > _SLOTS // 8:
                self._made, self._n_made = bytearray(_SLOTS), 0
            self._made[slot] = 1
            self._held[key] = made
            return
        self._kept[key] = made
        self._weigh(key)
        if self._weights:
            # One more for each new one: to weigh all at once would take milliseconds.
            self._weigh(next(iter(self._weights)))
        while self.n_bytes > self._max_bytes or len(self._kept) > self._max_count:
            self._drop(next(iter(self._kept)))

    def _weigh(self, key: Hashable) -> None:
        weight = self._kept[key].weight
        self.n_bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._weights.move_to_end(key)
        # Large ones would push out everything else.
        if weight > self._max_bytes // 4:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        dropped = self._kept.pop(key)
        self.n_bytes -= self._weights.pop(key)
        self._held[key] = dropped


_UNKNOWN: Any = object()


AUTOMATA = SharedAutomata()
"""Those of this process."""
