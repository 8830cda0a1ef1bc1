"""A worker that says nothing any more is killed; one that is slow is not. Its process is a stub."""

from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from structgen.errors import ModelError, WorkerDied
from structgen.models.base import LoadOptions
from structgen.workers import process as processes
from structgen.workers.process import WorkerProcess
from structgen.workers.protocol import Ended, Frames, Load, Ping, Ready, packed

LOOK = 0.001  # many looks: on a busy machine the stub may miss some


class Stub:
    """Stands in for `subprocess.Popen`: it loads, and answers a `Ping` while it is not hung."""

    def __init__(self, hangs: threading.Event, load_seconds: float) -> None:
        """Start it; it hangs as it ends to load where ``hangs`` is set already."""
        told, tell = os.pipe()
        heard, say = os.pipe()
        silent, self._error = os.pipe()
        self.stdin, self.stdout = os.fdopen(tell, "wb"), os.fdopen(heard, "rb")
        self.stderr = os.fdopen(silent, "rb")
        self.pid, self.returncode = -1, 0
        self.pings = 0
        self._hangs = hangs
        self._told, self._say = os.fdopen(told, "rb"), os.fdopen(say, "wb")
        self._over = threading.Event()
        self._lock = threading.Lock()  # its own thread and one that kills it both write and end
        threading.Thread(target=self._run, args=(load_seconds,), daemon=True).start()

    def _run(self, load_seconds: float) -> None:
        frames = Frames(self._told)
        frames.read()
        time.sleep(load_seconds)
        if self._hangs.is_set():
            self._tell(Ping())
        else:
            self._tell(Ready("stub", "", 64, {}, None, None))  # type: ignore[arg-type]
        while (message := frames.read()) is not None:
            if isinstance(message, Ping):
                self.pings += 1
                if not self._hangs.is_set():
                    self._tell(message)
        self._told.close()
        if not self._hangs.is_set():
            self._end(0)

    def _tell(self, message: object) -> None:
        with self._lock:
            if not self._over.is_set():
                self._say.write(packed(message))
                self._say.flush()

    def _end(self, code: int) -> None:
        with self._lock:
            if not self._over.is_set():
                self.returncode = code
                self._say.close()
                os.close(self._error)
                self._over.set()

    def wait(self, timeout: float | None = None) -> int:
        if self._hangs.is_set() and not self._over.wait(timeout):
            raise subprocess.TimeoutExpired("stub", timeout or 0)
        self._over.wait()
        return self.returncode

    def kill(self) -> None:
        self._end(-signal.SIGTERM)


Make = Callable[..., tuple[WorkerProcess, Any]]


@pytest.fixture
def hangs() -> threading.Event:
    """Whether the stub hangs: it is set by a test."""
    return threading.Event()


@pytest.fixture
def make(hangs: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Starts a worker whose process is a stub."""
    started: list[WorkerProcess] = []

    def start(max_silence: float | None, load_seconds: float = 0.0) -> tuple[WorkerProcess, Any]:
        stub = functools.partial(Stub, hangs, load_seconds)
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: stub())
        made = WorkerProcess(Load("stub", LoadOptions(), max_silence=max_silence), lambda *_: None)
        started.append(made)
        if not hangs.is_set():
            made.wait_until_ready()
        return made, made._process

    monkeypatch.setattr(processes, "_LOOK_SECONDS", LOOK)
    yield start
    hangs.clear()
    for made in started:
        made.stop()


def asked(worker: WorkerProcess) -> queue.SimpleQueue[Ended]:
    answers: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    worker.register(answers.put)
    return answers


def test_one_that_hangs_is_killed_and_its_calls_end(make: Make, hangs: threading.Event) -> None:
    worker, _ = make(100 * LOOK)
    calls = [asked(worker) for _ in range(3)]
    hangs.set()
    for call in calls:
        error = call.get(timeout=60).error
        assert isinstance(error, WorkerDied)
        assert "after 0.1 s without a message (max_silence)" in str(error)
        assert "The next call starts another" in str(error)
    assert not worker.is_alive
    with pytest.raises(WorkerDied, match="max_silence"):
        worker.register(print)


def test_one_that_hangs_is_killed_though_its_caller_has_left(
    make: Make, hangs: threading.Event
) -> None:
    worker, stub = make(100 * LOOK)
    hangs.set()
    number = worker.register(print)
    while not stub.pings:
        time.sleep(LOOK)
    worker.drop(number)
    stub.wait(60)
    assert stub.returncode == -signal.SIGTERM


def test_one_that_answers_is_not_killed_however_long_a_call_takes(make: Make) -> None:
    worker, stub = make(100 * LOOK)
    call = asked(worker)
    while stub.pings < 120 and worker.is_alive:
        time.sleep(LOOK)
    assert worker.is_alive
    assert call.empty()


def test_one_that_loads_for_long_or_has_no_call_is_left_alone(
    make: Make, hangs: threading.Event
) -> None:
    worker, stub = make(2 * LOOK, load_seconds=20 * LOOK)
    hangs.set()
    time.sleep(20 * LOOK)
    assert worker.is_alive
    assert stub.pings == 0


def test_without_a_bound_it_is_waited_for(make: Make, hangs: threading.Event) -> None:
    worker, stub = make(None)
    hangs.set()
    asked(worker)
    while not stub.pings:
        time.sleep(LOOK)
    time.sleep(20 * LOOK)
    assert worker.is_alive


def test_one_that_hangs_in_the_last_part_of_loading_is_killed(
    make: Make, hangs: threading.Event
) -> None:
    hangs.set()
    worker, _ = make(5 * LOOK)
    with pytest.raises(WorkerDied, match="max_silence"):
        worker.wait_until_ready()


def test_one_that_hangs_is_killed_when_it_is_to_end_and_nobody_waits_for_that(
    make: Make, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 3 * LOOK)
    hangs.set()
    worker, stub = make(None)
    worker.end()
    stub.wait(60)
    assert stub.returncode == -signal.SIGTERM
    with pytest.raises(ModelError, match="was closed"):
        worker.wait_until_ready()


def test_stopping_one_that_hangs_says_that_it_was_closed(
    make: Make, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", LOOK)
    worker, _ = make(60.0)
    hangs.set()
    call = asked(worker)
    worker.stop()
    error = call.get(timeout=60).error
    assert isinstance(error, ModelError)
    assert "was closed" in str(error)
