"""What a model's folder was when it arrived: where it came from, the size and digest of each file.

The record is a file in the folder itself, so it comes and goes with the model. This module knows
nothing of the cache, nor of what the files are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from structgen.storage.user_folder import inside

from .entry import File

NAME = ".structgen.json"
"""The record's name in a model's folder."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """Where a model came from, and its files.

    Attributes:
        source: in words, as `Entry.source` has it.
        commit: of the repository; ``""``: it came from none.
        files: every file, by its path in the folder.
    """

    source: str
    commit: str
    files: Mapping[str, File]


def write(folder: Path, source: str, commit: str = "") -> None:
    """Write the record of a folder as it is now. Cost: one reading of its files."""
    files = {
        path.relative_to(folder).as_posix(): [path.stat().st_size, sha256(path)]
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME
    }
    record = {"source": source, "commit": commit, "files": files}
    (folder / NAME).write_text(json.dumps(record, indent=1), encoding="utf-8")


def read(folder: Path) -> Record | None:
    """Return a folder's record; None: there is none, or it cannot be understood."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        files = {
            path: File(path, int(size), str(digest))
            for path, (size, digest) in found["files"].items()
            if inside(folder, path)  # else all of it is not understood
        }
        return Record(str(found["source"]), str(found["commit"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def sha256(file: Path) -> str:
    """The hexadecimal SHA-256 of a file."""
    return digest_of(file, hashlib.sha256())


def git_id(file: Path) -> str:
    """The id that git gives a file's content."""
    start = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    return digest_of(file, start)


def digest_of(file: Path, digest: hashlib._Hash) -> str:
    """Feed a file to a digest and return that in hexadecimal."""
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
