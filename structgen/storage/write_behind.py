"""Arrays on their way to disk: small files, written by a thread of their own a moment later.

To write a file takes longer than half of what is kept in some took to find out, and nobody waits
for it to be there. So `keep` only notes it down; `find` finds it from then on, as if it were on
disk. Files are written `DELAY` seconds later, in one go with all others that have come by then, or
at the end of the process. A process that is killed before loses them, and the next one finds out
again what they would have said: `array_cache`, which owns the files, lets readers see whole ones or
none.

It knows nothing of what is kept.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import array_cache

DELAY = 0.1
"""Seconds: a compilation and its first mask have ended by then, and a model is busy."""

_log = logging.getLogger(__name__)


class _File(NamedTuple):
    folder: str
    name: str
    root: Path


class _Contents(NamedTuple):
    key: str
    make: Callable[[], array_cache.Arrays]
    then: Callable[[], None]


def keep(
    folder: str,
    name: str,
    key: str,
    make: Callable[[], array_cache.Arrays],
    then: Callable[[], None] = lambda: None,
) -> None:
    """Keep what ``make`` returns, as `array_cache.store` does, a moment later.

    Args:
        folder: as there.
        name: as there.
        key: as there.
        make: the arrays; called when they are written, and each time they are asked for before.
        then: called when they have been written, or could not be.

    Cost: 25 µs; 0.3 ms the first time in a process, for the thread.
    """
    global _is_awake, _thread
    with _lock:
        _waiting[_File(folder, name, array_cache.root())] = _Contents(key, make, then)
        if _is_awake:
            return
        _is_awake = True
        try:
            if _thread is None:
                _thread = threading.Thread(target=_run, name="structgen-files", daemon=True)
                _thread.start()
            _bell.put(None)
            return
        except RuntimeError:
            _is_awake, _thread = False, None
    flush()  # there can be no more threads


def find(folder: str, name: str, key: str) -> array_cache.Arrays | None:
    """The arrays kept under a name for a key, on disk or on their way; else None."""
    if _waiting:
        waiting = _waiting.get(_File(folder, name, array_cache.root()))
        if waiting is not None and waiting.key == key:
            return array_cache.frozen(waiting.make())
    return array_cache.load(folder, name, key)


def flush() -> None:
    """Write now what is waiting. Returns when it is on disk, whoever writes it."""
    with _writing:
        with _lock:
            files = list(_waiting.items())
        for file, contents in files:
            try:
                _write(file, contents)
            finally:
                with _lock:
                    # What has come in its place meanwhile stays.
                    if _waiting.get(file) is contents:
                        del _waiting[file]


def _write(file: _File, contents: _Contents) -> None:
    folder, name, root = file
    array_cache.store(folder, name, contents.key, contents.make(), make_room=False, under=root)
    contents.then()


def _run() -> None:
    global _is_awake
    while True:
        _bell.get()
        time.sleep(DELAY)
        _is_awake = False
        try:
            flush()
        except Exception:  # no memory, say: the next files may fare better
            _log.debug("what was to be kept is not", exc_info=True)


def _reset() -> None:
    """Leave to the process that was forked what it is about to write, and its thread."""
    global _lock, _writing, _waiting, _bell, _is_awake, _thread
    _lock, _writing = threading.Lock(), threading.Lock()
    _waiting = {}
    _bell = queue.SimpleQueue()
    _is_awake = False
    _thread = None


_lock: threading.Lock
_writing: threading.Lock
_waiting: dict[_File, _Contents]
_bell: queue.SimpleQueue[None]
_is_awake: bool
_thread: threading.Thread | None
_reset()
atexit.register(flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
