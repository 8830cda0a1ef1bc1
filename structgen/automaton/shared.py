"""Automata that schemas share, kept from one to the next within a budget of bytes.

An automaton grows while it is walked, and one pattern can make it a thousand times as large as
another: so what is kept is weighed again and again, by its own estimate, and not counted. It knows
nothing of what it keeps but that, and what it was made from.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

MAX_BYTES = 12 * 1024 * 1024
"""What all that is kept may take together. A single automaton may take a quarter of it."""

MAX_COUNT = 256
"""Most that is kept: on MaskBench, twice as many would spare one in forty of what is made, and each
is thirty objects for every full collection of garbage."""


class Weighed(Protocol):
    """Something that knows about how many bytes it takes by now."""

    @property
    def weight(self) -> int:
        """In bytes."""
        ...


_T = TypeVar("_T", bound="Weighed | None")


class SharedAutomata:
    """A cache of automata by what they are made from; those not asked for longest go first.

    Thread-safe. What is dropped goes on working for those that hold it.

    Attributes:
        n_bytes: bytes that are kept, each automaton as it was last weighed.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._weights: OrderedDict[Hashable, int] = OrderedDict()  # not weighed for longest first
        self._lock = threading.Lock()
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, make: Callable[..., _T], *arguments: Hashable) -> _T:
        """``make(*arguments)``, or what it returned for equal ones before."""
        key = (make, arguments)
        with self._lock:
            found: _T = self._kept.get(key, _UNKNOWN)
            if found is not _UNKNOWN:
                self._kept.move_to_end(key)
                return found
        made = make(*arguments)
        with self._lock:
            found = self._kept.setdefault(key, made)
            self._weigh(key)
            if self._weights:
                # One more for each new one: to weigh all at once would take milliseconds.
                self._weigh(next(iter(self._weights)))
            while self.n_bytes > self._max_bytes or len(self._kept) > self._max_count:
                self._drop(next(iter(self._kept)))
        return found

    def _weigh(self, key: Hashable) -> None:
        weight = _weight(self._kept[key])
        self.n_bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._weights.move_to_end(key)
        # Large ones would push out everything else.
        if weight > self._max_bytes // 4:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        del self._kept[key]
        self.n_bytes -= self._weights.pop(key)


_UNKNOWN: Any = object()
_NOTHING = 200


def _weight(value: Weighed | None) -> int:
    return _NOTHING if value is None else value.weight


AUTOMATA = SharedAutomata()
"""Those of this process."""
