"""The cache folder of models: its layout, its locks, and how a model is installed.

    $STRUCTGEN_CACHE or the user's cache folder
    ├── models/NAME/     one model each, always complete: it is renamed into place at the end
    ├── partial/NAME/    downloads and conversions under way
    └── locks/NAME.lock  held by the process that writes the two above

A model's folder has a record of its origin and of the size and digest of each file. Downloads
nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from structgen.errors import DownloadError, ModelError, ModelNotFound, printable
from structgen.storage.user_folder import WRONG, distrust, document, inside, make, root

from .catalogue import File, cache_name
from .progress import Progress, bytes_under, megabytes

RECORD = ".structgen.json"
"""The record's name in a model's folder."""

_CHUNK = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Record:
    """The origin of a model, and its files.

    Attributes:
        source: the origin in words, as in `catalogue.Entry.sources`.
        commit: the repository's commit; ``""``: not from a repository.
        files: all files by path in the folder.
    """

    source: str
    commit: str
    files: Mapping[str, File]


def write_record(folder: Path, source: str, commit: str = "") -> None:
    """Write the record of a folder as it is now. Cost: reading all files once."""
    files = {
        path.relative_to(folder).as_posix(): [path.stat().st_size, sha256(path)]
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != RECORD
    }
    record = {"source": source, "commit": commit, "files": files}
    (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def read_record(folder: Path) -> Record | None:
    """Return a folder's record; None: there is none, or it is not valid."""
    if not (folder / RECORD).is_file():
        return None
    try:
        found = document(folder / RECORD, 100_000)
        files = {
            path: File(path, int(size), printable(str(digest)))
            for given, (size, digest) in found["files"].items()
            # Otherwise the whole record is not valid. One file has thousands of spellings.
            for path in [inside(folder, given).relative_to(folder).as_posix()]
        }
        source, commit = (printable(str(found[name])) for name in ("source", "commit"))
        return Record(source, commit, files)
    except WRONG:
        return None


def sha256(file: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    return digest_of(file, hashlib.sha256())


LARGEST_GRAPH = 8 << 20  # bytes of a graph that may have a mask


def masked(graph: Path) -> Path:
    """Return the path, beside a graph, of the same graph with a mask input (`base.MASK_INPUT`).

    Both read the same weights. Programs that do not know masks read the plain one.
    """
    return graph.with_name(f"{graph.name.removesuffix('.onnx')}.masked.onnx")


def has_mask(graph: Path) -> bool:
    """Return whether such a file exists and belongs to this graph.

    Not if the graph contains its weights.
    """
    try:
        if not masked(graph).is_file() or graph.stat().st_size > LARGEST_GRAPH:
            return False
        with masked(graph).open("rb") as file:
            return sha256(graph).encode() in file.read(2 * LARGEST_GRAPH)
    except OSError:
        return False


def git_id(file: Path) -> str:
    """Return the id that git gives a file's content."""
    start = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    return digest_of(file, start)


def digest_of(file: Path, digest: hashlib._Hash) -> str:
    """Return the hexadecimal digest of a file."""
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


CONFIG = "genai_config.json"
"""The file that makes a folder a language model."""

_EMBEDDER = "tokenizer.json"
"""The file that, beside an ONNX graph, makes a folder an embedder."""

_ABANDONED_SECONDS = 7 * 24 * 3600.0
_REMOVED = ".removed"


class Installed(NamedTuple):
    """A model in the cache.

    Attributes:
        name: the name that it was downloaded by.
        folder: its folder.
        bytes: its size on disk.
    """

    name: str
    folder: Path
    bytes: int

    @property
    def task(self) -> str:
        """``"generate"`` or ``"embed"``."""
        return "embed" if is_embedder(self.folder) else "generate"


def is_embedder(folder: Path) -> bool:
    """Return whether a folder has an embedder: a tokenizer and a graph, but no language model."""
    return (
        os.path.isfile(folder / _EMBEDDER)
        and not is_language_model(folder)
        and any(any(place.glob("*.onnx")) for place in (folder, folder / "onnx"))
    )


def is_language_model(folder: Path) -> bool:
    """Return whether a folder has a model for ONNX Runtime GenAI; False if unreadable."""
    return os.path.isfile(folder / CONFIG)


def is_model(folder: Path) -> bool:
    """Return whether a folder has a model of either kind."""
    return is_language_model(folder) or is_embedder(folder)


def folder_of(name: str) -> Path:
    """Return the folder where a model is or would be."""
    return root() / "models" / _file_name(name)


def find(name: str) -> Path | None:
    """Return the folder of a model that is in the cache, or None.

    Raises:
        ModelError: other users may have put it there.
    """
    folder = folder_of(name)
    if not is_model(folder):
        return None
    reason = distrust(folder)
    if reason is not None:
        raise ModelError(
            f"structgen does not load the model {name!r} from the cache: {reason} To load it "
            f"anyway, pass its path: {str(folder)!r}."
        )
    return folder


def name_of(folder: Path) -> str | None:
    """Return the name of the model in a folder; None: the folder is not in the cache."""
    is_here = folder.absolute().parent == (root() / "models").absolute()
    return name_in(folder) if is_here else None


def name_in(folder: Path) -> str:
    """Return the name of the model of a folder in ``models`` or ``partial``."""
    return "/".join(unquote(part) for part in folder.name.split("--"))


def folders(kind: str) -> list[Path]:
    """Return the entries of a folder of the cache, in order; none if it cannot be read."""
    with suppress(OSError):
        return sorted((root() / kind).iterdir())
    return []


def installed() -> list[Installed]:
    """Return the models in the cache by name. Cost: listing all their files."""
    found = [folder for folder in folders("models") if is_model(folder)]
    return sorted(Installed(name_in(folder), folder, bytes_under(folder)) for folder in found)


def remove(name: str) -> int:
    """Delete a model from the cache; local folders elsewhere are never touched.

    Returns:
        The number of bytes freed.

    Raises:
        ModelNotFound: it is not in the cache.
        ModelError: it cannot be deleted.
    """
    name = cache_name(name)
    with _locked(name, None):
        folder = folder_of(name)
        if not is_model(folder) and name and (partial := _partial(name)).is_dir():
            size = bytes_under(partial)
            shutil.rmtree(partial, ignore_errors=True)  # files of an interrupted download
            return size
        if not is_model(folder):
            there = ", ".join(model.name for model in installed()) or "nothing"
            raise ModelNotFound(
                f"{name!r} is not in the cache {root() / 'models'}. Cached models: {there}."
            )
        size = bytes_under(folder)
        try:
            # Renamed first: a process that is stopped halfway leaves no half model.
            doomed = _partial(name).with_name(_file_name(name) + _REMOVED)
            doomed.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)
            shutil.rmtree(doomed)
        except OSError as error:
            raise ModelError(f"Cannot delete {folder}: {error}.") from error
        return size


@contextmanager
def installing(name: str, progress: Progress) -> Iterator[Path]:
    """Yield a folder to work in, for one process at a time; other processes wait.

    Call `find` again inside, because another process may just have finished the model. The folder
    has the files of an earlier, interrupted run, which stay if this one fails, too.

    Args:
        name: the model.
        progress: called if it waits for another process.

    Raises:
        DownloadError: the cache cannot be written, other users can write to it, too, or the disk is
            full.
    """
    work = _partial(name)
    with _locked(name, progress):
        try:
            with disk_errors():
                _clean_abandoned()
                make(work)
                os.utime(work)  # It is in use, however old.
            reason = distrust(work)  # a file in it may be a link to any of the user's files
            if reason is not None:
                raise DownloadError(f"structgen does not download into the cache: {reason}")
            yield work
        except BaseException:
            with suppress(OSError):
                work.rmdir()  # Nothing had been downloaded.
            raise
        shutil.rmtree(work, ignore_errors=True)


def install(name: str, source: Path, origin: str, commit: str = "") -> Path:
    """Move a complete model folder to its place; call it inside `installing`.

    Args:
        name: the model.
        source: the folder.
        origin: the origin of the model, for its record.
        commit: the repository's commit, for its record.

    Raises:
        DownloadError: it cannot be moved.
    """
    folder = folder_of(name)
    with disk_errors():
        write_record(source, origin, commit)
        make(folder.parent)
        if folder.exists():
            # Not a model, which `find` would have found: something half-deleted by hand.
            shutil.rmtree(folder)
        os.replace(source, folder)
    return folder


def nearest() -> Path:
    """Return the cache's folder, or the nearest existing folder above it."""
    return next(folder for folder in (root(), *root().parents) if os.path.exists(folder))


def need_space(size: int) -> None:
    """Raise a DownloadError unless the cache's disk has this many bytes free."""
    free = shutil.disk_usage(nearest()).free
    if free < size:
        raise DownloadError(
            f"Not enough space on the disk of {root()}: {megabytes(size)} needed, "
            f"{megabytes(free)} free. Free some space, or set STRUCTGEN_CACHE to a folder on "
            "another disk."
        )


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn the operating system's errors about files into a DownloadError with the fix."""
    try:
        yield
    except OSError as error:
        raise disk_error(error) from error


def disk_error(error: OSError) -> DownloadError:
    """Return our error for an error while writing to the cache."""
    if error.errno in FULL:
        return DownloadError(
            f"The disk of {root()} is full. Free some space, or set STRUCTGEN_CACHE to a folder "
            "on another disk."
        )
    return DownloadError(
        f"Cannot write to the cache {root()}: {error}. Set STRUCTGEN_CACHE to a writable folder."
    )


def wrong_file(what: str, actual: str, expected: str) -> DownloadError:
    """Return the error for a downloaded file that is not the expected one."""
    return DownloadError(
        f"{what} is not the expected file: it has {actual}, expected {expected}. structgen "
        "deleted it. Try again. If the error persists, a mirror or proxy serves a different file."
    )


@contextmanager
def _locked(name: str, progress: Progress | None) -> Iterator[None]:
    # Imported late: it imports asyncio.
    import filelock

    file = root() / "locks" / f"{_file_name(name)}.lock"
    lock = filelock.FileLock(file)
    with disk_errors():
        make(file.parent)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if progress is not None:
                progress(f"Waiting for another process that downloads {name}", 0, 1)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _clean_abandoned() -> None:
    """Delete files of interrupted runs that were not continued within a week."""
    for folder in folders("partial"):
        try:
            old = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        except OSError:
            continue
        if old or folder.name.endswith(_REMOVED):
            shutil.rmtree(folder, ignore_errors=True)


def _partial(name: str) -> Path:
    return root() / "partial" / _file_name(name)


def _file_name(name: str) -> str:
    """Return one file name for a model's name: ``org/repository`` becomes ``org--repository``.

    It is reversible: dashes that could be taken for the separator are written as ``%2D``.
    """
    parts = (
        re.sub(r"^-|-$|-(?=-)|^\.", lambda found: f"%{ord(found[0]):02X}", quote(part, safe=" @+~"))
        for part in name.split("/")
    )
    return "--".join(parts)
