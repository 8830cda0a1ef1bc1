"""A pool of daemon threads, each reused for the same kind of work; and returning memory to the
system.

A new thread allocates from any free glibc arena, and an arena into which a model was loaded keeps
some megabytes for good. A program that loads models again and again would collect such arenas. So
the same kind of work always runs in the same thread, and thus in the same arena.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias, final


@final
class Begun:
    """Work that has begun in a thread."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.thread: threading.Thread | None = None

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; return whether it has. False for work that waits for itself."""
        if self.thread is threading.current_thread():
            return False
        return self.is_over.wait(timeout)


_Waiting: TypeAlias = "queue.SimpleQueue[tuple[Begun, Callable[[], object]]]"

_idle: defaultdict[str, list[_Waiting]] = defaultdict(list)


def begin(name: str, work: Callable[[], object]) -> Begun:
    """Run work in a daemon thread: in an idle one that has done work of that name, if there is
    one."""
    begun = Begun()
    try:
        waiting = _idle[name].pop()
    except IndexError:
        waiting = queue.SimpleQueue()
        threading.Thread(target=_run, args=(name, waiting), daemon=True).start()
    waiting.put((begun, work))
    return begun


def _run(name: str, waiting: _Waiting) -> None:
    thread = threading.current_thread()
    while True:
        begun, work = waiting.get()
        begun.thread, thread.name = thread, name
        try:
            work()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
        del work
        thread.name = "structgen-idle"
        _idle[name].append(waiting)
        begun.thread = None
        begun.is_over.set()
        del begun


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # there are none of them


def give_back(*, collects: bool = False) -> None:
    """Return free memory to the system, because C libraries would keep it."""
    if collects:
        gc.collect()  # sessions of the runtime hang in cycles
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
