"""The folder for the user's files, and checks of file names from outside.

Also checks that nobody else can have put files there, and has `written_whole`, which writes a file
completely or leaves the old one. Does not know the contents.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO


def root() -> Path:
    """Return the cache folder: ``$STRUCTGEN_CACHE`` or the user's; it need not exist yet."""
    override = os.environ.get("STRUCTGEN_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    # Asking the platform takes half as long as reading a small file.
    return _of_user(os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME"))


@functools.lru_cache
def _of_user(home: str | None, caches: str | None) -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("structgen", appauthor=False))


def make(folder: Path) -> None:
    """Create ``folder`` if necessary; a new cache folder is private to its user.

    Raises:
        OSError: it cannot be made.
    """
    top = root()
    if not top.exists():
        top.parent.mkdir(parents=True, exist_ok=True)
        top.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def distrust(folder: Path, top: Path | None = None) -> str | None:
    """Return why others may write to ``folder``, and the fix; None if they cannot.

    Every folder from ``top`` (by default the cache folder) down to it must belong to this user or
    to root, and must not be writable for others. Others cannot change folders that they cannot
    enter. On systems without such modes, everything is trusted. Costs some microseconds.
    """
    if not hasattr(os, "geteuid"):
        return None
    top = root() if top is None else top
    below = folder.relative_to(top).parts if folder.is_relative_to(top) else ()
    path = top
    for part in ("", *below):
        path = path / part
        try:
            found = path.stat()
        except OSError:
            return None  # there is nothing in it
        reason = _others(found)
        if reason is not None:
            return (
                f"{path} {reason}. Make it accessible only to you (chmod go-w {path}) and empty "
                "it if it may contain files of others, or set STRUCTGEN_CACHE to another folder."
            )
        if not found.st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return None
    return None


_LONGEST_PATH, _LONGEST_NAME = 1_000, 255  # bytes; beyond, systems raise their own errors
_MOST_PARTS = 32  # of a path: the system reads all that come before each


def inside(folder: Path, name: object) -> Path:
    """Return the path in ``folder`` for a name from a file or a server.

    Every such name is checked here before it is joined to a folder. It must be a relative path on
    every system, and must not leave the folder, not even by a link. In the Hugging Face hub's own
    cache, files are links into their repository's ``blobs``, which counts as inside.

    Raises:
        ValueError: the name is not allowed; the message says why.
    """
    if not isinstance(name, str) or not name.isprintable():
        raise ValueError(f"{str(name)[:_LONGEST_NAME]!r} is not a file path")
    written = name.encode()
    sizes = [len(part) for part in written.split(b"/")]
    if len(written) > _LONGEST_PATH or max(sizes) > _LONGEST_NAME or len(sizes) > _MOST_PARTS:
        raise ValueError(f"{name[:_LONGEST_NAME]!r}… is too long for a file path")
    ways = (PurePosixPath(name), PureWindowsPath(name))
    if any(path.anchor or ".." in path.parts or not path.parts for path in ways):
        raise ValueError(f"{name!r} is not a path inside the folder")
    path, top = folder / name, Path(os.path.realpath(folder))
    blobs = [parent.parent / "blobs" for parent in top.parents if parent.name == "snapshots"]
    real = Path(os.path.realpath(path))  # which is not an error if links form a cycle
    if not any(real.is_relative_to(place) for place in (top, *blobs)):
        raise ValueError(f"{name!r} is a link that points outside the folder")
    return path


LARGEST = 64 << 20
"""The most bytes of a file that describes a model; XLM-V's tokenizer, the largest, has 61 million.
One astral character in it makes its text four times as large."""


def contents(file: Path, most: int | None = None) -> bytes:
    """Return the contents of an untrusted file that describes a model, such as a tokenizer.

    Raises:
        OSError: it cannot be read, is a pipe or a device, which may be endless, or is far larger
            than any of its kind. Holes in a file, which take no disk space, would fill the memory.
    """
    found = file.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(file))
    if found.st_size > (most := most or LARGEST):
        problem = f"it has {found.st_size:,} bytes; the limit is {most:,}"
        raise OSError(errno.EFBIG, problem, str(file))
    with file.open("rb") as source:
        return source.read(found.st_size)  # endless files of the system have the size 0


NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The exceptions that wrong values in a file may cause."""

WRONG = (OSError, RuntimeError, *NOT_UNDERSTOOD)
"""The exceptions for files that cannot be read, or whose JSON is invalid."""

MOST_VALUES = 1_000_000
"""The most values of JSON that describes a model; one or two bytes of it may take 60 bytes of
memory."""

MOST_OF_TOKENIZER = 3_000_000
"""The most values of a ``tokenizer.json``; XLM-V's has 2.7 million, Gemma 3's 1.9 million."""


NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""A NUL in JSON, with the escaped backslashes before it."""


def n_values(data: str | bytes) -> int:
    """Return an upper estimate of the number of values in JSON."""
    marks: Any = ",[{" if isinstance(data, str) else (b",", b"[", b"{")
    return sum(map(data.count, marks))


def document(file: Path, most: int = MOST_VALUES, **how: Any) -> Any:
    """Return the JSON in such a file, with at most that many values, of 32 bytes each, and a sixth
    as many objects, each of which may take 300 bytes of memory.

    Further arguments go to ``json.loads``.

    Raises:
        OSError: as `contents`, or it has too many values.
        ValueError, RecursionError: it is not JSON.
    """
    data = contents(file, min(32 * most, LARGEST))
    if max(n_values(data), 6 * data.count(b"{")) > most:
        problem = f"it has more than {most:,} values, or {most // 6:,} objects"
        raise OSError(errno.EFBIG, problem, str(file))
    return json.loads(data, **how)


def varint(data: bytes | mmap, at: int, bits: int = 64) -> tuple[int, int]:
    """Return the number at a place in a binary file, of seven bits a byte, and its end.

    Raises:
        IndexError, ValueError: the file ends within it, or it is too large.
    """
    value = shift = 0
    while (byte := data[at]) >= 128 and shift < 63:
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
    if (value := value | byte << shift) >> bits:
        raise ValueError(f"it has numbers of more than {bits} bits")
    return value, at + 1


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if a name occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name[:100]!r} appears twice in one object")
            seen.add(name)
    return found


def flag(config: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a flag of such a JSON object; ``default`` if it is missing. Null is False.

    Raises:
        ValueError: not a boolean; ``"false"`` would be true.
    """
    value = config.get(name, default)
    if value not in (True, False, None):
        raise ValueError(f"{name} = {repr(value)[:40]} must be true or false")
    return bool(value)


def is_own(found: os.stat_result) -> bool:
    """Return whether only this user and root can have written a file."""
    return not hasattr(os, "geteuid") or _others(found) is None


def _others(found: os.stat_result) -> str | None:
    """Return who else can write the file of ``found``, as the end of a sentence."""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (uid {found.st_uid}, but you are {os.geteuid()})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name when it is complete; pipes and devices are written
    directly.

    Raises:
        OSError: it cannot be written; an existing file is not changed.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # a link keeps leading to it
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("wb") as file:
            yield file
        if path.exists():
            temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
