"""Locks that are free in a forked child, and the data that they guard.

A fork copies only the thread that forks. A lock that another thread holds at that moment would stay
locked in the child forever, and the data behind it half changed. So a fork waits briefly until all
locks made here are free, and the child gets new ones. Knows nothing about the data.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

PATIENCE = 5.0
"""Seconds that a fork waits, for all locks together. A call that takes longer is cut in the child:
its locks are free there, and its automaton may lack what it was about to make."""

_Lock = TypeVar("_Lock")

_locks: WeakSet[Any] = WeakSet()
_held: list[Any] = []


def fork_safe(lock: _Lock) -> _Lock:
    """Return ``lock``, a ``threading.Lock()`` or ``RLock()``, looked after from now on."""
    _locks.add(lock)
    return lock


def in_child(reset: Callable[[], object]) -> None:
    """Have ``reset`` called in each child that is forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


def _before() -> None:
    until = time.monotonic() + PATIENCE
    # Those that can be held inside of others come later: then nobody waits for what we hold.
    waiting = sorted(_locks, key=lambda lock: isinstance(lock, type(threading.Lock())))
    for lock in waiting:
        if lock.acquire(timeout=max(0.0, until - time.monotonic())):
            _held.append(lock)


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for lock in list(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
