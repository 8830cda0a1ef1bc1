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
"""What all that is kept may take together. A single automaton may take a quarter of it."""

MAX_COUNT = 256
"""Most that is kept: on MaskBench, twice as many would spare one in forty of what is made, and each
is thirty objects for every full collection of garbage."""

LARGE = 128 * 1024
"""Bytes from which on an automaton stays only if it is made a second time: hardly any is.
When a schema with hundreds of them goes, those that were kept would, strewn as they are among the
others, hold all their memory back from the system."""

_SLOTS = 1 << 16

_AT_ONCE = 8
"""So many new ones are weighed in a row, by when some text has been walked through them; and so
many are dropped, as what is done here is seldom at hand in the processor's caches."""

_AGAIN = 2
"""So many of the others are weighed again beside them."""

_SELDOM = 64
"""Times that some automaton is found until as many are weighed again as would be new."""


class Weighed(Protocol):
    """An object that estimates its size in bytes."""

    @property
    def weight(self) -> int:
        """In bytes."""


_T = TypeVar("_T", bound="Weighed | None")


class SharedAutomata:
    """A cache of automata by what makes them; the least recently used go first.

    Thread-safe. An automaton that was dropped still works for its holders, and is found while they
    hold it.

    Attributes:
        n_bytes: bytes of all automata as last weighed, without the newest, fewer than `_AT_ONCE`.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        # What it took: first what is new, 0, then what has not been weighed for longest.
        self._weights: OrderedDict[Hashable, int] = OrderedDict()
        # What has been dropped and is in use. With it goes its key, which holds a whole pattern.
        self._held: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        # Of what the large ones were made from, by hash. Numbers, one by one, would each hold back
        # the megabyte of memory that they happen to be in.
        self._made = bytearray(_SLOTS)
        self._n_made = 0
        self._n_new = 0
        self._n_found = 0
        self._lock = fork_safe(threading.Lock())
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, make: Callable[..., _T], *arguments: Hashable) -> _T:
        """``make(*arguments)``, or what it returned for equal ones before; None is not kept."""
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
            return made  # hardly ever asked again by another schema; or not theirs
        with self._lock:
            if self._n_new != before:  # another thread may have been faster
                found = self._find(key)
                if found is not None:
                    return found
            self._n_new += 1
            self._kept[key] = made
            self._weights[key] = 0
            self._weights.move_to_end(key, last=False)
            if not self._n_new % _AT_ONCE:
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
        """Weigh what is new, and some of the others: all at once would take milliseconds."""
        for key in list(itertools.islice(self._weights, count)):
            weighed = self._weights.pop(key)
            weight = self._weights[key] = self._kept[key].weight
            self.n_bytes += weight - weighed
            # The largest would push out everything else.
            if weight > self._max_bytes // 4 or (
                not weighed and weight >= LARGE and self._is_new(key)
            ):
                self._drop(key)
        most = max(self._max_count - _AT_ONCE, 0)
        while self.n_bytes > self._max_bytes or len(self._kept) > most:
            self._drop(next(iter(self._kept)))

    def _is_new(self, key: Hashable) -> bool:
        """Return whether nothing large was made from the same; the next time it was."""
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
"""Those of this process."""

FORMAT_AUTOMATA = SharedAutomata(MAX_BYTES // 3, 64)
"""Those of the formats that JSON Schema names: a few, which take milliseconds to make, and are the
same in all schemas: what others make is not to push them out."""
