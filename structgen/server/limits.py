"""How many requests somebody may send: a bucket of tokens for each.

Owns counting, and forgetting those who have not asked for long. The clock is passed in.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import final

_MOST_HOLDERS = 10_000
"""Most of those who are counted; beyond, whoever asked longest ago is forgotten."""


@final
class RateLimit:
    """So many requests a minute, for each of those who ask; a full minute's may come at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, holder: str) -> float:
        """Count a request.

        Returns:
            0, or in how many seconds there may be one, where there may be none now.
        """
        now = self._clock()
        left, then = self._left.pop(holder, (float(self._most), now))
        left = min(float(self._most), left + (now - then) * self._most / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self._most
        self._left[holder] = (left if wait else left - 1, now)
        if len(self._left) > _MOST_HOLDERS:
            self._left.popitem(last=False)
        return wait
