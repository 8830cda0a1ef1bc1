"""Guards against what would never end, so that it fails instead, and against too much work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[None]:
    """Have the calls of a method counted: the list that is returned grows with each."""
    calls: list[None] = []
    method = getattr(kind, name)

    def called(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(None)
        return method(self, *args, **options)

    monkeypatch.setattr(kind, name, called)
    return calls


@contextlib.contextmanager
def ends_soon(seconds: float = 60) -> Iterator[None]:
    """End what takes this process more than so much processor time: another machine's is no less.

    Raises:
        TimeoutError: it did. Regular expressions look for it, too.
    """
    if not hasattr(signal, "SIGPROF"):  # Windows
        yield
        return

    def end(*_: Any) -> None:
        raise TimeoutError(f"It took more than {seconds:g} s of processor time.")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
