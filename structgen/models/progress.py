"""Progress of slow work: one callback, shown as a bar or as lines of a log.

A `Progress` is called with a stage, what is done and the total. The display writes to standard
error, because standard output belongs to results. Knows no models.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

Progress = Callable[[str, int, int], None]
"""Called with a stage (a few words), the amount done, and the total.

The unit depends on the stage: bytes or tensors. A new stage begins when the first argument changes.
"""

_LOG_SECONDS = 3.0
_LATE_SECONDS = 1.0


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing: a `Progress`."""


@contextmanager
def reporting(progress: Progress | None) -> Iterator[Progress]:
    """Yield the caller's callback, or a display on standard error if there is none.

    Nothing is written before the first call, so work that is already done stays silent.
    """
    if progress is not None:
        yield progress
    elif has_bars():
        with _Bar() as bar:
            yield bar
    else:
        yield _Log()


def has_bars() -> bool:
    """Return whether a bar can be drawn: in a terminal, or in a notebook with widgets."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_notebook = type(shell).__name__ == "ZMQInteractiveShell"
    return sys.stderr.isatty() or (in_notebook and find_spec("ipywidgets") is not None)


@contextmanager
def late(progress: Progress | None) -> Iterator[Progress]:
    """Yield the caller's callback, or a bar in a terminal or notebook that appears after a second.

    Without a bar nothing is shown: frequent work must not fill a log.
    """
    if progress is not None:
        yield progress
    elif not has_bars():
        yield silent
    else:
        began = time.monotonic()
        with _Bar() as bar:

            def report(stage: str, done: int, total: int) -> None:
                if time.monotonic() - began >= _LATE_SECONDS:
                    bar(stage, done, total)

            yield report


def bytes_under(folder: Path) -> int:
    """Return the bytes of files below a folder; files that vanish meanwhile count as 0."""
    total = 0
    with suppress(OSError):  # A folder vanished while it was listed; the next call is right again.
        for file in folder.rglob("*"):
            with suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    total += file.stat().st_size
    return total


def megabytes(size: int) -> str:
    """Return a size as readable text: ``93 MB``, ``0.4 MB``."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e6:.1f} MB"


class _Bar:
    """A bar in a terminal, one line per stage. It starts at the first call."""

    def __init__(self) -> None:
        self._rich: RichProgress | None = None
        self._stage = ""
        self._task: TaskID | None = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rich is not None:
            self._rich.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._rich is None:
            from rich import console, progress

            self._rich = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeRemainingColumn(elapsed_when_finished=True),
                console=console.Console(stderr=True),
            )
            self._rich.start()
        if self._task is None or stage != self._stage:
            self._stage = stage
            self._task = self._rich.add_task(stage, total=total)
        self._rich.update(self._task, completed=done, total=total)


class _Log:
    """Plain lines: at the start and the end of each stage, and every few seconds between."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = 0.0
        self._shown = 0.0
        self._ended = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._shown, self._ended = stage, now, now, False
            self._line(f"{stage} …")
        if self._ended:
            return
        if done >= total:
            self._ended = True
            self._line(f"{stage}: done in {now - self._began:.0f} s")
        elif now - self._shown >= _LOG_SECONDS:
            self._shown = now
            self._line(f"{stage}: {100 * done // total}%")

    @staticmethod
    def _line(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
