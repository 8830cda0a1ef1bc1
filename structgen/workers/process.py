"""A worker process as its parent sees it: started, spoken to, stopped, missed when it dies.

It owns the process, its pipes and three threads: one writes what is to be said, since a pipe fills
up while the worker computes; one reads what it says; one passes on what goes to standard error.
So nothing here waits in the thread of an event loop. It knows calls by number, and whoever is to
hear of them by a function; not what they are about.

`Host` keeps a process: it starts one when one is needed, and another when that has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast, final

from structgen.errors import ModelError, WorkerDied
from structgen.models.progress import reporting
from structgen.storage import fork_safe
from structgen.vocabulary import Vocabulary

from .in_thread import InThread
from .protocol import Cancel, Ended, Frames, Load, NotLoaded, Progress, Ready, packed
from .threads import begin

Handler = Callable[[Any], object]
"""Told of each answer to a call, by the thread that reads: it must not wait."""

_STOP_SECONDS = 5.0
_KNOWN_TYPES = 4096
_KEPT_STDERR = 4096


@final
class WorkerProcess:
    """One process. Thread-safe.

    Attributes:
        ready: what it said when the model was loaded; `wait_until_ready` comes first.
        parent: the process that started it.
    """

    ready: Ready

    def __init__(self, load: Load, report: Callable[[str, int, int], None]) -> None:
        """Start a process, which begins to load its model.

        Args:
            load: which model; ``in_process``: in a thread of this process instead.
            report: told how fetching goes.
        """
        self.parent = os.getpid()
        self._name = str(load.name)
        self._report = report
        self._numbers = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._types: set[bytes] = set()
        self._lock = threading.Lock()
        self._is_over = False
        self._is_stopping = False
        self._sending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = bytearray()
        self._loading: Future[Ready] = Future()
        frame = packed(load)
        self._process: subprocess.Popen[bytes] | InThread
        if load.in_process:
            self._process = InThread()
        else:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _code()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        self._sending.put(frame)
        self._last_words = begin("structgen-stderr", self._pass_on)
        writing = begin("structgen-write", self._write)
        self._threads = [self._last_words, writing, begin("structgen-read", self._read)]

    def wait_until_ready(self) -> Ready:
        """Wait until the model is loaded; what it says of it.

        Raises:
            StructgenError: the model cannot be loaded, or the process was stopped.
            WorkerDied: it ended by itself.
        """
        self.ready = self._loading.result()
        return self.ready

    @property
    def is_alive(self) -> bool:
        """Whether it takes calls."""
        return not self._is_over and not self._is_stopping and self.parent == os.getpid()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def register(self, handler: Handler) -> int:
        """A number for a call, whose answers ``handler`` is told of; the last is `Ended`.

        Raises:
            WorkerDied: the process has ended.
        """
        with self._lock:
            if self._is_over:
                raise self._death()
            number = next(self._numbers)
            self._handlers[number] = handler
        return number

    def knows(self, type_key: bytes) -> bool:
        """Whether it has been sent an output type; from now on it has."""
        with self._lock:
            known = type_key in self._types
            if len(self._types) >= _KNOWN_TYPES:
                self._types.clear()  # to send one again costs little
            self._types.add(type_key)
        return known

    def send(self, message: object) -> None:
        """Say something, soon."""
        self._sending.put(packed(message))

    def expects(self, number: int) -> bool:
        """Whether somebody waits for a call."""
        with self._lock:
            return number in self._handlers

    def drop(self, number: int) -> None:
        """End a call that nobody waits for any more."""
        with self._lock:
            if self._handlers.pop(number, None) is None:
                return
        self.send(Cancel(number, is_awaited=False))

    def stop(self) -> None:
        """End the process: when it has made its pass, or after some seconds in any case.

        Calls under way fail. Waits until it has ended. A second call does nothing.
        """
        if self.parent != os.getpid():
            return
        self.end()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for begun in self._threads:
            begun.join(_STOP_SECONDS)

    def end(self) -> None:
        """End the process when it has made its pass; without waiting, also as the program ends."""
        self._is_stopping = True
        self._sending.put(None)

    # -- the threads ------------------------------------------------------------------------

    def _write(self) -> None:
        pipe = cast("BinaryIO", self._process.stdin)
        with contextlib.suppress(OSError, ValueError):  # it has ended
            while (frame := self._sending.get()) is not None:
                pipe.write(frame)
                if self._sending.empty():
                    pipe.flush()
        with contextlib.suppress(OSError, ValueError):
            pipe.close()

    def _read(self) -> None:
        pipe = cast("BinaryIO", self._process.stdout)
        frames = Frames(pipe)
        try:
            while (message := frames.read()) is not None:
                self._hear(message)
        except Exception:
            traceback.print_exc()
            self._process.kill()
        self._sending.put(None)
        self._process.wait()
        self._last_words.join(_STOP_SECONDS)
        pipe.close()
        with self._lock:
            self._is_over = True
            handlers, self._handlers = self._handlers, {}
        if not self._loading.done():
            self._loading.set_exception(self._death())
        for number, handler in handlers.items():
            handler(Ended(number, None, self._death()))

    def _hear(self, message: Any) -> None:
        if isinstance(message, Ready):
            self._loading.set_result(message)
        elif isinstance(message, NotLoaded):
            self._loading.set_exception(message.error)
        elif isinstance(message, Progress):
            self._report(message.stage, message.done, message.total)
        else:
            with self._lock:
                if isinstance(message, Ended):
                    handler = self._handlers.pop(message.id, None)
                else:
                    handler = self._handlers.get(message.id)
            if handler is not None:
                handler(message)

    def _pass_on(self) -> None:
        pipe = cast("BinaryIO", self._process.stderr)
        while data := os.read(pipe.fileno(), 65536):
            self._stderr += data
            del self._stderr[:-_KEPT_STDERR]
            with contextlib.suppress(OSError):  # a program without standard error
                os.write(2, data)
        pipe.close()

    def _death(self) -> ModelError:
        if self._is_stopping:
            return ModelError(f"The model {self._name} was closed.")
        code = self._process.returncode
        how = f"with exit code {code}"
        if code < 0:
            try:
                how = f"by signal {-code} ({signal.Signals(-code).name})"
            except ValueError:
                how = f"by signal {-code}"
            if -code == getattr(signal, "SIGKILL", 9):
                how += ", which a system sends that is short of memory"
        text = (
            f"The process that runs {self._name} ended by itself, {how}. The next call starts "
            "another."
        )
        written = bytes(self._stderr).decode(errors="replace").strip()
        return WorkerDied(f"{text} It wrote last:\n{written}" if written else text)


def _code() -> str:
    """What the process runs: it finds structgen where this one does."""
    paths = [str(path) or os.getcwd() for path in sys.path]
    return f"import sys; sys.path[:] = {paths!r}; from structgen.workers.worker import main; main()"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model without running it."""

    ready: Ready
    vocabulary: Vocabulary


@final
class Host:
    """A process that runs a model, whenever one is needed. Thread-safe; for any event loop."""

    def __init__(self, load: Load, vocabulary: Vocabulary | None = None) -> None:
        """No process yet.

        Args:
            load: which model.
            vocabulary: its vocabulary, if it is known.
        """
        self.load = load
        self._vocabulary = vocabulary
        self._lock = fork_safe(threading.Lock())
        self._process: WorkerProcess | None = None
        self._starting: Future[WorkerProcess] | None = None
        self._is_closed = False

    async def process(self) -> WorkerProcess:
        """The process, started if there is none.

        Raises:
            StructgenError: it cannot be started, or the model was closed.
        """
        with self._lock:
            if self._is_closed:
                raise ModelError(
                    f"The model {self.load.name} is closed. Load it again: structgen.load_async."
                )
            process, starting = self._process, self._starting
            if process is not None and process.parent != os.getpid():
                process = starting = None  # of the parent that forked this one
            if starting is None and process is not None and process.is_alive:
                return process
            if starting is None:
                self._starting = starting = Future()
                starting.set_running_or_notify_cancel()  # nobody who waits can cancel it
                begin("structgen-start", functools.partial(self._start, starting))
        return await asyncio.wrap_future(starting)

    @property
    def pid(self) -> int | None:
        """The id of the process; None where there is none."""
        with self._lock:
            process = self._process
        return process.pid if process is not None and process.is_alive else None

    async def facts(self) -> Facts:
        """What the model's process said of it; starts it."""
        process = await self.process()
        assert self._vocabulary is not None
        return Facts(process.ready, self._vocabulary)

    def _start(self, starting: Future[WorkerProcess]) -> None:
        process: WorkerProcess | None = None
        try:
            with reporting(None) as report:
                process = WorkerProcess(self.load, report)
                with self._lock:
                    self._process = process  # not alive before it is ready
                if self._is_closed:
                    process.end()
                ready = process.wait_until_ready()
            if self._vocabulary is None:
                self._vocabulary = Vocabulary.from_tokenizer_json(
                    Path(ready.folder) / "tokenizer.json", ready.eos_token_ids, ready.size
                )
            if self._vocabulary.uid != ready.vocabulary_uid:
                raise ModelError(
                    f"The tokenizer of {ready.name} has changed since it was first read. Load the "
                    "model again."
                )
        except BaseException as error:
            if process is not None:
                process.stop()
            with self._lock:
                self._process = self._starting = None
            starting.set_exception(error)
            return
        with self._lock:
            self._starting = None
            self.load = replace(self.load, name=ready.folder)
        starting.set_result(process)

    def close(self) -> None:
        """End the process, and start none any more. Waits until it has ended."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.stop()

    def end(self) -> None:
        """The same, without waiting: for a model that has been dropped."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.end()
