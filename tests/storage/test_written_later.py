"""Files that are written when nobody waits: found at once, written once, never in the way."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from structgen.storage import array_cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    array_cache.flush()
    monkeypatch.setattr(array_cache, "root", lambda: tmp_path)
    # Nothing is written behind the tests' back.
    array_cache._reset()
    array_cache._is_awake = True
    yield tmp_path
    array_cache.flush()
    array_cache._reset()


def numbers(*values: int) -> array_cache.Arrays:
    return {"numbers": np.array(values, np.int32)}


def found(name: str, key: str = "key") -> list[int] | None:
    arrays = array_cache.find("some", name, key)
    return None if arrays is None else arrays["numbers"].tolist()


def test_what_is_on_its_way_is_found(folder: Path) -> None:
    assert found("a") is None
    array_cache.keep("some", "a", "key", lambda: numbers(1, 2))
    assert found("a") == [1, 2]
    assert found("a", "other key") is None
    assert list(folder.iterdir()) == []
    array_cache.flush()
    assert array_cache._waiting == {}
    assert found("a") == [1, 2]
    assert array_cache.load("some", "a", "key") is not None


def test_the_newest_is_written_under_the_folder_of_its_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (1, 2):
        array_cache.keep("some", "a", "key", lambda value=value: numbers(value))
    monkeypatch.setattr(array_cache, "root", lambda: folder / "other")
    assert found("a") is None
    array_cache.flush()
    assert found("a") is None
    monkeypatch.setattr(array_cache, "root", lambda: folder)
    assert found("a") == [2]


def test_what_comes_while_it_is_written_is_not_lost() -> None:
    def make() -> array_cache.Arrays:
        array_cache.keep("some", "a", "key", lambda: numbers(2))
        return numbers(1)

    array_cache.keep("some", "a", "key", make)
    array_cache.flush()
    assert found("a") == [2]
    array_cache.flush()
    assert found("a") == [2]
    assert array_cache._waiting == {}


def test_what_cannot_be_made_keeps_nothing_else_back() -> None:
    def make() -> array_cache.Arrays:
        raise MemoryError

    array_cache.keep("some", "a", "key", make)
    with pytest.raises(MemoryError):
        array_cache.flush()
    array_cache.keep("some", "b", "key", lambda: numbers(1))
    array_cache.flush()
    assert found("a") is None
    assert found("b") == [1]


def test_a_thread_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_cache, "DELAY", 0)
    array_cache._reset()
    for value in (1, 2):
        written = threading.Event()
        array_cache.keep("some", f"a{value}", "key", lambda v=value: numbers(v), written.set)
        assert written.wait(60)
        assert array_cache.load("some", f"a{value}", "key") is not None


def test_where_there_can_be_no_thread_it_is_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    array_cache._reset()
    monkeypatch.setattr(threading.Thread, "start", start)
    for value in (1, 2):
        array_cache.keep("some", f"a{value}", "key", lambda v=value: numbers(v))
        assert array_cache.load("some", f"a{value}", "key") is not None


_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from structgen.storage import array_cache
array_cache.root = lambda: Path(sys.argv[1])
array_cache.DELAY = 1e6
array_cache.keep("some", "a", "key", lambda: {"numbers": np.array([1, 2], np.int32)})
"""


def test_a_process_that_ends_writes_what_is_left(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", _PROCESS, str(folder)], check=True, timeout=60)
    assert found("a") == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_writes_only_its_own(folder: Path) -> None:
    array_cache.keep("some", "a", "key", lambda: numbers(1))
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert [path.stem for path in folder.glob("*/*")] == ["b"]
    array_cache.flush()
    assert found("a") == [1]


def _in_child() -> None:
    assert array_cache._waiting == {}
    array_cache.keep("some", "b", "key", lambda: numbers(2))
    array_cache.flush()
