"""Locks that are free in a forked child, and the data that they guard.

A fork copies only the thread that forks. A lock that another thread holds at that moment would stay
locked in the child forever, and the data behind it half changed. So a fork waits briefly until all
locks made here are free, and the child gets new ones. Does not know the data.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

PATIENCE = 5.0
"""The seconds that a fork waits for all locks together. A longer call is cut off in the child: its
locks are free there, and its automaton may be incomplete."""

_Lock = TypeVar("_Lock")

_locks: WeakSet[Any] = WeakSet()
_held: list[Any] = []


def fork_safe(lock: _Lock) -> _Lock:
    """Register ``lock``, a ``threading.Lock()`` or ``RLock()``, and return it."""
    _locks.add(lock)
    return lock


def in_child(reset: Callable[[], object]) -> None:
    """Register ``reset`` to be called in each forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


def _before() -> None:
    until = time.monotonic() + PATIENCE
    # Inner locks come later, so that nobody waits for a lock that this holds.
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
