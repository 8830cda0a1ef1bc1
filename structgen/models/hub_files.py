"""Fetching one file of a Hugging Face repository: it goes on where it stopped, and is checked.

Newer versions of the hub's own client start a file that was interrupted from its first byte, in a
new process; for a file of some gigabytes that is too much. This module knows nothing of models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from structgen.errors import DownloadError

from . import records

_PART = ".part"
_SHA256 = re.compile("[0-9a-f]{64}")
_SHA1 = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        path: where it is in the repository.
        size: its bytes; None: the hub does not say.
        sha256: of a large file; ``""``: the hub does not say.
        git_id: of a small file; ``""``: the hub does not say.
    """

    path: str
    size: int | None
    sha256: str = ""
    git_id: str = ""


def download(file: HubFile, url: str, target: Path, headers: dict[str, str]) -> None:
    """Fetch a file, unless it is there; what has arrived of it is kept if the transfer breaks off.

    Args:
        file: what the hub says of it.
        url: where it is.
        target: where to put it: it is there only when it is whole and right.
        headers: of the request.

    Raises:
        DownloadError: its digest is not the one that the hub gave; it is deleted.
        Exception: of the hub's client, which depends on its version.
    """
    from huggingface_hub.file_download import http_get

    if target.is_file() and file.size in (None, target.stat().st_size):
        return  # It got its name after it had been checked.
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + _PART)
    arrived = part.stat().st_size if part.is_file() else 0
    if file.size is None or arrived > file.size:
        part.unlink(missing_ok=True)
        arrived = 0
    with part.open("ab") as sink:
        http_get(
            url,
            sink,
            resume_size=arrived,
            headers=headers,
            expected_size=file.size,
            displayed_filename=file.path,
        )
    _check(file, part)
    part.replace(target)


def _check(file: HubFile, part: Path) -> None:
    """Compare what arrived with what the hub says of it, which some mirrors do not."""
    if file.size is not None and part.stat().st_size != file.size:
        expected, actual = f"{file.size:,} bytes", f"{part.stat().st_size:,} bytes"
    elif _SHA256.fullmatch(file.sha256):
        expected, actual = f"SHA-256 {file.sha256}", f"SHA-256 {records.sha256(part)}"
    elif _SHA1.fullmatch(file.git_id):
        expected, actual = f"git's id {file.git_id}", f"git's id {records.git_id(part)}"
    else:
        return
    if actual != expected:
        part.unlink()
        raise DownloadError(
            f"{file.path} is not the file it should be: it has {actual}, expected {expected}. It "
            "was deleted. Try again; if it stays so, a mirror or a proxy serves another file."
        )
