"""Work spread over processes, each piece under a time limit.

Knows nothing of schemas. Pieces are forked, so that whatever the caller has read is there, and come
back in the order they were given, so that a run prints the same with one process or sixteen.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Timeout(BaseException):
    """A piece took longer than its time limit. Passes through ``except Exception``."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `Timeout` in the main thread after ``seconds``; limits do not nest."""

    def on_alarm(*_: object) -> None:
        raise Timeout

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_pieces: tuple[Callable[[Any], Any], Sequence[Any]] | None = None


def spread(function: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[Any]:
    """``function`` of each item, in order, computed by ``jobs`` processes."""
    if jobs <= 1:
        yield from map(function, items)
        return
    global _pieces
    _pieces = (function, items)
    try:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            yield from pool.imap(_piece, range(len(items)), chunksize=1)
    finally:
        _pieces = None


def _piece(index: int) -> Any:
    assert _pieces is not None
    function, items = _pieces
    return function(items[index])
