"""When an output began, gave out its first text and ended, and whether it is to end where it is.

Owns ``timeout`` and ``cancel``, and times. Knows nothing of outputs.
"""

from __future__ import annotations

import time
from typing import final

from .options import CancelEvent
from .results import Timings


@final
class Clock:
    """The times of one output. May be cancelled from any thread.

    Attributes:
        is_cancelled: whether `cancel` was called.
    """

    def __init__(self, timeout: float | None = None, cancelled: CancelEvent | None = None) -> None:
        """Begin now.

        Args:
            timeout: most seconds, which count from `count_from`; None: no limit.
            cancelled: when it is set, the output is to end.
        """
        self._timeout = timeout
        self._cancelled = cancelled
        self._deadline: float | None = None
        self._started = time.perf_counter()
        self._first_chunk: float | None = None
        self._ended: float | None = None
        self.is_cancelled = False

    def start(self) -> float:
        """The model is about to run: times count from now, which is returned."""
        self._started = time.perf_counter()
        return self._started

    def count_from(self, began: float) -> None:
        """The call began then, by `time.perf_counter`; only the first time counts."""
        if self._timeout is not None and self._deadline is None:
            self._deadline = began + self._timeout

    def note_text(self) -> None:
        """Text has been given out."""
        if self._first_chunk is None:
            self._first_chunk = time.perf_counter()

    def cancel(self) -> None:
        """Ask that the output end where it is."""
        self.is_cancelled = True

    def end(self) -> None:
        """The output has ended; only the first time counts."""
        if self._ended is None:
            self._ended = time.perf_counter()

    @property
    def has_ended(self) -> bool:
        """Whether it has."""
        return self._ended is not None

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return self._deadline is not None and time.perf_counter() > self._deadline

    @property
    def is_interrupted(self) -> bool:
        """Whether it is to end where it is: cancelled, or out of time."""
        if self.is_cancelled or (self._cancelled is not None and self._cancelled.is_set()):
            return True
        return self._deadline is not None and time.perf_counter() > self._deadline

    @property
    def timings(self) -> Timings:
        """To the first text and to the end, or to now."""
        first = None if self._first_chunk is None else self._first_chunk - self._started
        ended = time.perf_counter() if self._ended is None else self._ended
        return Timings(first, ended - self._started)
