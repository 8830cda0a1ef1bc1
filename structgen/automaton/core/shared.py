"""A cache of automata that schemas share, with a budget in bytes.

An automaton grows while it is walked, and one pattern can make it a thousand times as large as
another. So entries are not counted; each estimates its own size, again and again.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from structgen.storage import fork_safe

MAX_BYTES = 12 * 1024 * 1024
"""Byte budget of the cache. A single automaton may take a quarter of it."""

MAX_COUNT = 256
"""Most automata in the cache. On MaskBench, twice as many would save one construction in forty, and
each automaton adds thirty objects to every full garbage collection."""

LARGE = 128 * 1024
"""An automaton of at least this many bytes is kept only when it is made a second time, which is
rare. When a schema with hundreds of them is freed, kept ones scattered among the others would stop
the memory from returning to the system."""

_SLOTS = 1 << 16

_AT_ONCE = 8
"""New automata are weighed in batches of this size, so that each has been walked before it is
weighed, or earlier with one that is large at once. Dropping goes in batches, too: one at a time,
this code would rarely be in the processor's caches."""

_AGAIN = 2
"""The number of older automata that are weighed again with each batch."""

_SELDOM = 64
"""After this many cache hits, a batch of older automata is weighed again."""


class Weighed(Protocol):
    """An object that estimates its size in bytes."""

    @property
    def weight(self) -> int:
        """The estimated size in bytes."""


_T = TypeVar("_T", bound="Weighed | None")


class SharedAutomata:
    """A cache of automata by the arguments that make them; drops the least recently used first.

    Thread-safe. A dropped automaton still works for its holders, and is found as long as they hold
    it.

    Attributes:
        n_bytes: bytes of all automata as last weighed, without the newest few (fewer than
            `_AT_ONCE`).
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        # Size of each: first the new ones (0), then those not weighed for the longest time.
        self._weights: OrderedDict[Hashable, int] = OrderedDict()
        # Dropped but still in use. The key, which holds a whole pattern, is freed with the
        # automaton.
        self._held: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        # Hashes of the arguments of large automata. Separate int objects would each keep the
        # megabyte of memory around them from being freed.
        self._made = bytearray(_SLOTS)
        self._n_made = 0
        self._n_new = 0
        self._n_found = 0
        self._lock = fork_safe(threading.Lock())
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, make: Callable[..., _T], *arguments: Hashable) -> _T:
        """Return ``make(*arguments)``, or its earlier result for equal arguments. None is not
        kept."""
        key = (make, arguments)
        with self._lock:
            found: _T = self._find(key)
            if found is not None:
                self._n_found += 1
                if not self._n_found % _SELDOM:
                    self._weigh(_AT_ONCE)
                return found
            before = self._n_new
        made = make(*arguments)
        if made is None or getattr(made, "is_private", False):
            return made  # rarely requested again by another schema; or not cached here
        with self._lock:
            if self._n_new != before:  # another thread may have been faster
                found = self._find(key)
                if found is not None:
                    return found
            self._n_new += 1
            self._kept[key] = made
            self._weights[key] = 0
            self._weights.move_to_end(key, last=False)
            if not self._n_new % _AT_ONCE or made.weight >= LARGE:
                self._weigh(_AT_ONCE + _AGAIN)
        return made

    def clear(self) -> None:
        """Forget everything, as in a new process."""
        with self._lock:
            self._kept.clear()
            self._weights.clear()
            self._held.clear()
            self.n_bytes = 0

    def _find(self, key: Hashable) -> Any:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        return self._held.get(key)

    def _weigh(self, count: int) -> None:
        """Weigh the new automata and some of the others. All at once would take milliseconds."""
        for key in list(itertools.islice(self._weights, count)):
            weighed = self._weights.pop(key)
            weight = self._weights[key] = self._kept[key].weight
            self.n_bytes += weight - weighed
            # The largest ones would push out everything else.
            if weight > self._max_bytes // 4 or (
                not weighed and weight >= LARGE and self._is_new(key)
            ):
                self._drop(key)
        most = max(self._max_count - _AT_ONCE, 0)
        while self.n_bytes > self._max_bytes or len(self._kept) > most:
            self._drop(next(iter(self._kept)))

    def _is_new(self, key: Hashable) -> bool:
        """Return whether no large automaton was made from these arguments before; note this one."""
        slot = hash(key) % _SLOTS
        if self._made[slot]:
            return False
        self._n_made += 1
        if self._n_made > _SLOTS // 8:
            self._made, self._n_made = bytearray(_SLOTS), 0
        self._made[slot] = 1
        return True

    def _drop(self, key: Hashable) -> None:
        self.n_bytes -= self._weights.pop(key)
        self._held[key] = self._kept.pop(key)


AUTOMATA = SharedAutomata()
"""The cache of this process."""

FORMAT_AUTOMATA = SharedAutomata(MAX_BYTES // 3, 64)
"""The automata of JSON Schema's formats. They are few, take milliseconds to make, and are the same
in all schemas, so other automata must not push them out."""
