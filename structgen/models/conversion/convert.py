"""Convert a trained model into a folder that ONNX Runtime GenAI loads: the entry.

A process of its own does the work (`language`, `whisper`), because the weights may be a stranger's.
The folder appears complete or not at all: everything is written to a hidden sibling, which is
renamed at the end. Knows no catalogues, caches or downloads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

from structgen.errors import ConversionError
from structgen.models import apart
from structgen.models.progress import Progress, reporting

_DTYPES = (None, "int8", "int4", "fp16")


def convert(
    source: Path,
    out: Path,
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
    context_length: int | None = None,
    target: str = "cpu",
    dtype: str | None = None,
) -> Path:
    """Convert a GGUF file or a Hugging Face folder; see `structgen.models.convert`.

    The folder holds ``model.onnx``, the same with a mask (``model.masked.onnx``), the weights of
    both (``model.onnx.data``), ``genai_config.json``, ``tokenizer.json`` and
    ``tokenizer_config.json``. It is written under a temporary name beside
    ``out`` and renamed, so that an interrupted run leaves nothing behind. When another process
    finishes the same folder first, its folder is kept.

    Returns:
        The absolute path of ``out``.

    Raises:
        ConversionError: as there; also if ``out`` exists and is not empty, or cannot be written.

    Cost: about 9 s of CPU and 0.44 GB of memory for a model of 135M parameters; memory grows with
    the largest matrix, not with their number.
    """
    final = Path(out).resolve()  # the staged folder is renamed, which is impossible for a link
    if final.exists() and not (final.is_dir() and not any(final.iterdir())):
        raise ConversionError(
            f"{final} already exists. Remove it, or choose another folder for the converted model."
        )
    if target == "dml":
        raise ConversionError(
            "target='dml' is not supported: structgen cannot test DirectML. Use "
            "`python -m onnxruntime_genai.models.builder -e dml`."
        )
    if target not in ("cpu", "cuda"):
        raise ConversionError(f"target={target!r} is unknown. Pass 'cpu' or 'cuda'.")
    check_dtype(dtype)
    with reporting(progress) as report, _staged(final) as folder:
        try:
            apart.call(
                "structgen.models.conversion.language:write",
                *(str(source), str(folder), hidden_states, context_length, target, dtype),
                limits=apart.Limits.reading(_size(source)),
                report=report,
            )
        except apart.Ended as error:
            raise ConversionError(f"{source} {error}. Download it again.") from error
    return final


def check_dtype(dtype: str | None) -> None:
    """Raise `ConversionError` for an unknown ``dtype``."""
    if dtype not in _DTYPES:
        raise ConversionError(f"dtype={dtype!r} is not one of {', '.join(filter(None, _DTYPES))}.")


def _size(source: Path) -> int:
    """Return the bytes of a file or of a folder's files; 0 if it cannot be read."""
    with contextlib.suppress(OSError):
        files = source.iterdir() if source.is_dir() else [source]
        return sum(file.stat().st_size for file in files if file.is_file())
    return 0


@contextlib.contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """Yield a new folder beside ``target``, which is renamed to it at the end, or removed if the
    block fails."""
    host = f"{zlib.crc32(socket.gethostname().encode()):08x}"
    ours = f"{os.getpid()}-{threading.get_ident()}"
    staging = target.parent / f".{target.name}.{host}-{ours}.part"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.{host}-*.part"):  # left by killed processes
            pid = left.name.rsplit("-", 2)[1]
            if pid.isdigit() and not _is_running(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        staging.mkdir()
        yield staging
        with contextlib.suppress(OSError):
            target.rmdir()  # an empty folder, which some renames cannot replace
        try:
            staging.rename(target)
        except OSError:
            # Another process was faster. Its folder is as good as ours, because it was complete,
            # too, when it got its name.
            if not (target / "genai_config.json").is_file():
                raise
    except OSError as error:
        reason = (
            f"the disk is full ({shutil.disk_usage(target.parent).free // 10**6} MB free)"
            if error.errno in (errno.ENOSPC, None)  # NumPy's has no number
            else str(error)
        )
        raise ConversionError(f"Cannot write the converted model to {target}: {reason}.") from error
    finally:
        # Also if interrupted; after the rename there is nothing to remove.
        shutil.rmtree(staging, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":
        # On Windows, os.kill would end the process. Its files are open, so removal would fail
        # anyway.
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
