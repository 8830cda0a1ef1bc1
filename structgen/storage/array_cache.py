"""Named arrays on disk: a cache of results that take longer to compute than to read.

It owns the file format, and ensures that the cache cannot break or mislead anything: a file is used
only if it is complete and has the right key, and a folder that cannot be read or written is
ignored. It does not know vocabularies or masks.

    $STRUCTGEN_CACHE or the user's cache folder
    └── arrays/FOLDER/NAME.arrays

A file is, in this order, and nothing in it is ever executed or unpickled::

    8 bytes    b"sgarray1"
    32 bytes   SHA-256 of all that follows
    4 bytes    length of the header, little-endian
    header     JSON: {"key": …, "arrays": [[name, dtype, shape], …]}
    padding    to a multiple of 64
    arrays     little-endian, each padded to a multiple of 64

Files get their name by a rename, so that readers see a complete file or none, and writers in
several processes need no lock, because they write the same content. All files together have at most
`MAX_BYTES`; the least recently used are deleted first.

A thread may write files a little later: `keep` queues them, and `find` also finds queued ones.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import math
import os
import queue
import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import user_folder

Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"

MAX_BYTES = 512 * 1024 * 1024
"""The most bytes of all files on disk."""

_MAGIC = b"sgarray1"
_ALIGNMENT = 64
_SUFFIX = ".arrays"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
# Plain fixed-width numbers: no Python objects.
_DTYPE = re.compile(r"<[iuf][248]|\|[iub]1")
_ABANDONED_SECONDS = 3600.0
# A file's date is when it was last used, to within this.
_USED_SECONDS = 24 * 3600.0

_log = logging.getLogger(__name__)


def root() -> Path:
    """Return the folder of all files; it need not exist yet."""
    return user_folder.root() / "arrays"


def get_or_build(folder: str, name: str, key: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays stored under a name; build and store them if necessary.

    Args:
        folder: the subfolder; a plain file name.
        name: the name of the arrays; a plain file name.
        key: everything the arrays depend on, contents and versions. A file with another key is
            rebuilt.
        build: computes the arrays, of fixed-width numbers.

    Returns:
        The arrays, read-only. Those from disk share one buffer.

    Cost: reading the file and its SHA-256: 1 ms per megabyte.
    """
    found = load(folder, name, key)
    if found is None:
        found = frozen(build())
        store(folder, name, key, found)
    return found


def frozen(arrays: Arrays) -> Arrays:
    """Make the arrays read-only, and return them."""
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def load(folder: str, name: str, key: str) -> Arrays | None:
    """Return the arrays stored under a name with a key, or None if there are none that can be
    trusted."""
    try:
        path = _path(folder, name)
        if not _is_trusted(path):
            return None
        with open(path, "rb") as file:
            if not user_folder.is_own(os.fstat(file.fileno())):
                _log.debug("%s is not your own file and is rebuilt", path)
                return None
            data = file.read()
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _log.debug("cannot read the cache %s/%s: %s", folder, name, error)
        return None
    try:
        arrays = _decoded(data, key)
    except _Foreign as reason:
        _log.debug("%s is rebuilt: %s", path, reason)
        return None
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _USED_SECONDS:
            os.utime(path)
    return arrays


def store(
    folder: str,
    name: str,
    key: str,
    arrays: Mapping[str, npt.NDArray[Any]],
    make_room: bool = True,
    under: Path | None = None,
) -> None:
    """Store arrays under a name with a key. Does nothing if that is impossible.

    ``make_room=False`` skips the check of the total size, which looks at each file. ``under``: the
    folder of all files, if it is not `root`.
    """
    data = _encoded(key, arrays)
    temporary = None
    try:
        path = _path(folder, name, under)
        if not _is_trusted(path):
            return
        temporary = path.parent / f".{os.urandom(8).hex()}.tmp"
        try:
            _write(temporary, data)
        except FileNotFoundError:
            user_folder.make(path.parent)
            _write(temporary, data)
        os.replace(temporary, path)
        if make_room:
            _make_room(path)
    except (OSError, RuntimeError) as error:
        _log.debug("cannot keep %s/%s: %s", folder, name, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _is_trusted(path: Path) -> bool:
    """Return whether files at ``path`` belong to this user. Warns once if they do not."""
    reason = user_folder.distrust(path.parent, path.parent.parent.parent)
    if reason is None:
        return True
    if reason not in _logged:
        _logged.add(reason)
        warnings.warn(f"The disk cache is not used: {reason}", stacklevel=2)
    return False


_logged: set[str] = set()


def _write(path: Path, data: bytes) -> None:
    """Write a new file that only its user can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


class _Foreign(Exception):
    """A file is not the requested one; the message says why."""


def _encoded(key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    entries = []
    parts: list[bytes] = []
    for name, array in arrays.items():
        plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        if not _DTYPE.fullmatch(plain.dtype.str):
            raise TypeError(f"array {name!r} has the type {array.dtype}, which is not kept on disk")
        entries.append([name, plain.dtype.str, plain.shape])
        parts += (plain.tobytes(), bytes(-plain.nbytes % _ALIGNMENT))
    header = json.dumps({"key": key, "arrays": entries}).encode()
    before = len(_MAGIC) + 32 + 4 + len(header)
    padding = bytes(-before % _ALIGNMENT)
    rest = b"".join((len(header).to_bytes(4, "little"), header, padding, *parts))
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _decoded(data: bytes, key: str) -> Arrays:
    start = len(_MAGIC) + 32
    if not data.startswith(_MAGIC) or len(data) < start + 4:
        raise _Foreign("it has a different format")
    if hashlib.sha256(memoryview(data)[start:]).digest() != data[len(_MAGIC) : start]:
        raise _Foreign("it is damaged")
    header_end = start + 4 + int.from_bytes(data[start : start + 4], "little")
    # The digest is right, so only a malicious writer could have written invalid content; it is
    # rejected here.
    try:
        header = json.loads(data[start + 4 : header_end])
        if header["key"] != key:
            raise _Foreign("it was created from something else")
        at = header_end + -header_end % _ALIGNMENT
        arrays: Arrays = {}
        for name, dtype, shape in header["arrays"]:
            if not _DTYPE.fullmatch(dtype) or not all(type(n) is int and n >= 0 for n in shape):
                raise _Foreign("its header is invalid")
            flat = np.frombuffer(data, np.dtype(dtype), math.prod(shape), at)
            arrays[name] = flat.reshape(shape).astype(flat.dtype.newbyteorder("="), copy=False)
            at += flat.nbytes + -flat.nbytes % _ALIGNMENT
    except user_folder.NOT_UNDERSTOOD as error:
        raise _Foreign("its header is invalid") from error
    return arrays


def _path(folder: str, name: str, under: Path | None = None) -> Path:
    if not _SAFE_NAME.fullmatch(folder) or not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{folder!r}/{name!r} is not a simple folder and file name")
    return (under or root()).joinpath(folder, f"{name}{_SUFFIX}")


def _make_room(newest: Path) -> None:
    """Delete the least recently used files, down to `MAX_BYTES`, and abandoned parts."""
    now = time.time()
    files: list[tuple[float, int, Path]] = []
    for path in newest.parent.parent.glob("*/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.suffix == _SUFFIX and path != newest:
                files.append((status.st_mtime, status.st_size, path))
            elif path.suffix == ".tmp" and now - status.st_mtime > _ABANDONED_SECONDS:
                path.unlink()
    used = newest.stat().st_size + sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if used <= MAX_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            used -= size
            path.parent.rmdir()  # fails, as it should, if the folder is not empty


DELAY = 0.1
"""Delay in seconds: by then, a compilation and its first mask have ended, and the model is running.
"""


class _File(NamedTuple):
    folder: str
    name: str
    top: Path


class _Contents(NamedTuple):
    key: str
    make: Callable[[], Arrays]
    then: Callable[[], None]


def keep(
    folder: str,
    name: str,
    key: str,
    make: Callable[[], Arrays],
    then: Callable[[], None] = lambda: None,
) -> None:
    """Store the result of ``make`` a little later, like `store`.

    Args:
        folder: as in `store`.
        name: as in `store`.
        key: as in `store`.
        make: returns the arrays; called when they are written, and for each earlier request.
        then: called after they have been written, or could not be.

    Cost: 25 µs; 0.3 ms for the first call in a process, which starts the thread.
    """
    global _is_awake, _thread
    with _lock:
        _waiting[_File(folder, name, root())] = _Contents(key, make, then)
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


def find(folder: str, name: str, key: str) -> Arrays | None:
    """Return the arrays stored under a name with a key, on disk or queued; else None."""
    if _waiting:
        waiting = _waiting.get(_File(folder, name, root()))
        if waiting is not None and waiting.key == key:
            return frozen(waiting.make())
    return load(folder, name, key)


def flush() -> None:
    """Write all queued arrays now. Returns when they are on disk."""
    with _writing:
        with _lock:
            files = list(_waiting.items())
        for file, contents in files:
            folder, name, top = file
            try:
                store(folder, name, contents.key, contents.make(), make_room=False, under=top)
                contents.then()
            finally:
                with _lock:
                    # Keep a newer entry that has replaced it meanwhile.
                    if _waiting.get(file) is contents:
                        del _waiting[file]


def _run() -> None:
    global _is_awake
    while True:
        _bell.get()
        time.sleep(DELAY)
        _is_awake = False
        try:
            flush()
        except Exception:  # for example no memory: the next files may succeed
            _log.debug("what was to be kept is not", exc_info=True)


def _reset() -> None:
    """Drop the queue and thread of the parent process after a fork."""
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
