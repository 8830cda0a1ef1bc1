"""The parent's side of a worker process: its life cycle, and the calls that run in it.

`Host` starts a process when there is work. `WorkerProcess` owns the pipes, standard error, the end
of the process, and the threads that read from it and watch it. `InThread` replaces the process by a
thread, which blocks the rest of the program during each pass. `RunningCall` is one call, as seen by
the coroutine that awaits it. `Stranger` identifies the user for whom code runs. Knows no output
types.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast, final

from structgen.errors import ModelError, PromptError, ValidationFailed, WorkerDied
from structgen.insight import TraceStep
from structgen.models.progress import reporting
from structgen.options import CancelEvent
from structgen.sampling import TokenLogprob
from structgen.storage import fork_safe
from structgen.values import Checks
from structgen.vocabulary import Vocabulary

from .protocol import (
    Call,
    Cancel,
    EmbedderLoad,
    EmbedderReady,
    Ended,
    ErrandCall,
    Frames,
    Load,
    NotLoaded,
    Ping,
    Progress,
    Ready,
    Scores,
    Text,
    TypeWanted,
    packed,
)
from .threads import begin
from .verdicts import Judge, Question


@final
class InThread:
    """A worker in a thread.

    Attributes:
        stdin: messages to it.
        stdout: its messages.
        stderr: empty, because this process prints its output.
        pid: the id of this process.
        returncode: 0, after it has ended.
    """

    def __init__(self) -> None:
        """Start the thread."""
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        silent, unused = os.pipe()
        os.close(unused)
        self.stdin: BinaryIO = os.fdopen(stdin_write, "wb")
        self.stdout: BinaryIO = os.fdopen(stdout_read, "rb")
        self.stderr: BinaryIO = os.fdopen(silent, "rb")
        self.pid = os.getpid()
        self.returncode = 0
        reader, writer = os.fdopen(stdin_read, "rb"), os.fdopen(stdout_write, "wb")
        self._begun = begin("structgen-model", lambda: _serve(reader, writer))

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended in that time.
        """
        if not self._begun.join(timeout):
            raise subprocess.TimeoutExpired("a thread", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """Do nothing, because a thread cannot be killed. It ends after its pass, because its pipe
        is closed."""


def _serve(reader: BinaryIO, writer: BinaryIO) -> None:
    # Imported late: it loads the runtime, which is not needed if workers are processes.
    from .worker import serve

    try:
        serve(reader, writer)
    except Exception:
        traceback.print_exc()
    finally:
        for pipe in (writer, reader):
            pipe.close()


Handler = Callable[[Any], object]
"""Called with each answer to a call, by the reading thread: it must not block."""

_STOP_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_KNOWN_TYPES = 4096
_KEPT_STDERR = 4096


@final
class WorkerProcess:
    """One process. Thread-safe.

    Attributes:
        ready: the `Ready` or `EmbedderReady` that it sent when the model was loaded; call
            `wait_until_ready` first.
        parent: the process that started it.
    """

    ready: Any

    def __init__(self, load: Load | EmbedderLoad, report: Callable[[str, int, int], None]) -> None:
        """Start a process, which begins to load its model.

        Args:
            load: the model; with ``in_process``, in a thread of this process instead.
            report: called with the progress of fetching.
        """
        self.parent = os.getpid()
        self._name = os.path.basename(load.name)  # other users need not see the folder
        self._report = report
        self._numbers = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._types: set[bytes] = set()
        self._lock = threading.RLock()  # inside it, streams may be collected that take it
        self._is_over = False
        self._is_stopping = False
        self._n_received = 0
        self._answers_pings = False
        self._silent = 0.0  # seconds
        self._is_hung = False
        self._ended = threading.Event()
        self._sending: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr = bytearray()
        self._loading: Future[Ready | EmbedderReady] = Future()
        frame = packed(load)
        self._process: subprocess.Popen[bytes] | InThread
        if load.in_process:
            self._process = InThread()
        else:
            self._process = subprocess.Popen(
                python("from structgen.workers.worker import main; main()"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        self._sending.put(frame)
        self._last_words = begin("structgen-stderr", self._pass_on)
        writing = begin("structgen-write", self._write)
        self._threads = [self._last_words, writing, begin("structgen-read", self._read)]
        if not load.in_process:
            watch = functools.partial(self._watch, load.max_silence or math.inf)
            self._threads.append(begin("structgen-watch", watch))

    def wait_until_ready(self) -> Any:
        """Wait until the model is loaded; return `ready`.

        Raises:
            StructgenError: the model cannot be loaded, or the process was stopped.
            WorkerDied: the process ended by itself.
        """
        self.ready = self._loading.result()
        return self.ready

    @property
    def is_alive(self) -> bool:
        """Whether it accepts calls."""
        return not self._is_over and not self._is_stopping and self.parent == os.getpid()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def register(self, handler: Handler) -> int:
        """Return a number for a call. Its answers go to ``handler``; the last one is `Ended`.

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
        """Return whether an output type has been sent to it; mark it as sent."""
        with self._lock:
            known = type_key in self._types
            if len(self._types) >= _KNOWN_TYPES:
                self._types.clear()  # sending one again is cheap
            self._types.add(type_key)
        return known

    def send(self, message: object) -> None:
        """Queue a message."""
        self._sending.put(packed(message))

    def expects(self, number: int) -> bool:
        """Return whether anybody waits for a call."""
        with self._lock:
            return number in self._handlers

    def drop(self, number: int) -> None:
        """End a call for which nobody waits any more."""
        with self._lock:
            if self._handlers.pop(number, None) is None:
                return
        self.send(Cancel(number))

    def stop(self) -> None:
        """End the process: after its current pass, or after some seconds in any case.

        Running calls fail. Waits until it has ended. A second call does nothing.
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
        """End the process after its current pass, without waiting; also when the program ends."""
        self._is_stopping = True
        if self._silent >= _STOP_SECONDS and self.parent == os.getpid():
            self._process.kill()
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
                self._n_received += 1
                self._receive(message)
        except Exception:
            traceback.print_exc()
            self._process.kill()
        self._sending.put(None)
        self._process.wait()
        self._ended.set()
        self._last_words.join(_STOP_SECONDS)
        pipe.close()
        with self._lock:
            self._is_over = True
            handlers, self._handlers = self._handlers, {}
        if not self._loading.done():
            self._loading.set_exception(self._death())
        for number, handler in handlers.items():
            handler(Ended(number, None, self._death()))

    def _receive(self, message: Any) -> None:
        if isinstance(message, (Ready, EmbedderReady)):
            self._loading.set_result(message)
        elif isinstance(message, NotLoaded):
            self._loading.set_exception(message.error)
        elif isinstance(message, Progress):
            self._report(message.stage, message.done, message.total)
        elif isinstance(message, Ping):
            self._answers_pings = True
        else:
            with self._lock:
                if isinstance(message, Ended):
                    handler = self._handlers.pop(message.id, None)
                else:
                    handler = self._handlers.get(message.id)
            if handler is not None:
                handler(message)

    def _watch(self, most: float) -> None:
        """Kill the process if it is silent for too long, or does not end when requested.

        It is pinged while a call is running, and in the last part of loading, which it announces;
        loading weights has no limit. It answers between two passes of the model, and while it
        compiles.
        """
        n_received = -1
        while not self._ended.wait(_LOOK_SECONDS):
            if self._is_stopping:
                most = min(most, _STOP_SECONDS)
            elif n_received != self._n_received:
                n_received, self._silent = -1, 0.0
                is_loading = self._answers_pings and not self._loading.done()
                if self._handlers or is_loading:
                    n_received = self._n_received
                    self.send(Ping())
                continue
            # Counts checks, not time, because this process may have been stopped as well.
            self._silent += _LOOK_SECONDS
            if self._silent >= most:
                self._is_hung = not self._is_stopping
                self._process.kill()
                return

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
        if self._is_hung:
            how = (
                f"after {self._silent:g} s without a message (max_silence): it hung in the "
                "runtime, or was stopped"
            )
        elif code < 0:
            try:
                how = f"by signal {-code} ({signal.Signals(-code).name})"
            except ValueError:
                how = f"by signal {-code}"
            if -code == getattr(signal, "SIGKILL", 9):
                how += ", which a system sends when it is short of memory"
        text = f"The process that runs {self._name} ended {how}. The next call starts another."
        written = bytes(self._stderr).decode(errors="replace").strip()
        return WorkerDied(f"{text}\nIts last output:\n{written}" if written else text)


@final
class Host:
    """Starts the process of a model when it is needed. Thread-safe; works with any event loop."""

    def __init__(self, load: Load, vocabulary: Vocabulary | None = None) -> None:
        """Start without a process.

        Args:
            load: the model.
            vocabulary: its vocabulary, if known.
        """
        self.load = load
        self._vocabulary = vocabulary
        self._lock = fork_safe(threading.RLock())  # a collected model takes it
        self._process: WorkerProcess | None = None
        self._starting: Future[WorkerProcess] | None = None
        self._is_closed = False

    async def process(self) -> WorkerProcess:
        """Return the process; start it if there is none.

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
                starting.set_running_or_notify_cancel()  # no waiting task can cancel it
                begin("structgen-start", functools.partial(self._start, starting))
        return await asyncio.wrap_future(starting)

    @property
    def pid(self) -> int | None:
        """The id of the process; None where there is none."""
        with self._lock:
            process = self._process
        return process.pid if process is not None and process.is_alive else None

    async def facts(self) -> tuple[Ready, Vocabulary]:
        """Return the facts that the process sent about its model, and its vocabulary; starts it."""
        process = await self.process()
        assert self._vocabulary is not None
        return process.ready, self._vocabulary

    def _start(self, starting: Future[WorkerProcess]) -> None:
        process: WorkerProcess | None = None
        try:
            with reporting(None) as report:
                uid = None if self._vocabulary is None else self._vocabulary.uid
                process = WorkerProcess(replace(self.load, vocabulary_uid=uid), report)
                with self._lock:
                    self._process = process  # not alive before it is ready
                if self._is_closed:
                    process.end()
                ready = process.wait_until_ready()
            if self._vocabulary is None:
                # Not read from the folder here, because reading its files would hold the
                # interpreter.
                self._vocabulary = ready.vocabulary
            elif ready.vocabulary is not None:
                raise ModelError(
                    f"The tokenizer of {ready.name} has changed since it was loaded. Load the "
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
        """End the process, and start no more. Waits until it has ended."""
        if (process := self._closed()) is not None:
            process.stop()

    def end(self) -> None:
        """End a garbage-collected model's process without waiting."""
        if (process := self._closed()) is not None:
            process.end()

    def _closed(self) -> WorkerProcess | None:
        """Start no more processes; return the current one."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        return process


NUMBERS = itertools.count(1)
"""Numbers of callers and prompts."""


MAX_WORK, MAX_MASK_WORK = 75_000, 100_000


@dataclass(frozen=True, slots=True)
class Stranger:
    """An untrusted user on whose behalf code runs.

    Attributes:
        owner: the same for everything that belongs to one user; owners share a model's passes
            fairly.
        max_work: the most steps for compiling one of their output types.
        max_mask_work: the most steps for one of its masks.
    """

    owner: str
    max_work: int = MAX_WORK
    max_mask_work: int = MAX_MASK_WORK

    @property
    def compile_options(self) -> Mapping[str, int]:
        """The options of `structgen.compile` for their output types."""
        return {"max_work": self.max_work, "max_mask_work": self.max_mask_work}


STRANGER: ContextVar[Stranger | None] = ContextVar("stranger", default=None)
"""The user on whose behalf the code of this context runs; None: the program itself.

A context variable, because it applies to everything that a request causes: trials, outputs, the
rounds of an agent, decisions and vectors.
"""


def owner() -> str | None:
    """Return the owner of this context's calls; None: the program itself."""
    stranger = STRANGER.get()
    return None if stranger is None else stranger.owner


POLL_SECONDS = 0.02
"""Interval in seconds for polling a ``cancel`` event."""


@final
class RunningCall:
    """A call. Used by one task; `drop` from any thread.

    Attributes:
        logprobs, steps: the scores and the steps of the trace, after it has ended.
    """

    def __init__(
        self, call: Call | ErrandCall, cancel: CancelEvent | None, checks: Checks | None = None
    ) -> None:
        """Prepare a call without sending it.

        Args:
            call: the call, without its number; with the output type, which is omitted if the
                process has it.
            cancel: the call's ``cancel`` event, or None.
            checks: the checks that run here while the output is written, or None.
        """
        self._call = call
        self._cancel = cancel
        self._answers: asyncio.Queue[Text | Scores | Ended] = asyncio.Queue()
        self.logprobs: list[TokenLogprob] = []
        self.steps: list[TraceStep] = []
        self._process: WorkerProcess | None = None
        self._number: int | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._judge = None if checks is None else Judge(checks)

    @property
    def values(self) -> tuple[Any, ...]:
        """The value that the checks have accepted, if there are checks."""
        return () if self._judge is None else self._judge.values

    async def begin(self, host: Host) -> None:
        """Send the call.

        Raises:
            StructgenError: there is no process, and none can be started.
        """
        process = await host.process()
        self._process = process
        loop = asyncio.get_running_loop()
        answers, call, cancel = self._answers, self._call, self._cancel

        def receive(message: Text | Scores | Ended | TypeWanted | Question) -> None:
            # In the thread that reads.
            if isinstance(message, TypeWanted):
                process.send(call)
                # Earlier messages about it were from a call that the process has dropped.
                if not process.expects(message.id) or (cancel is not None and cancel.is_set()):
                    process.send(Cancel(message.id))
                return
            try:
                if isinstance(message, Question):
                    loop.call_soon_threadsafe(self._check, message)
                else:
                    loop.call_soon_threadsafe(answers.put_nowait, message)
            except RuntimeError:  # the loop is closed: nobody waits
                process.drop(message.id)

        self._number = call.id = process.register(receive)
        if isinstance(call, Call):
            _send(process, call)
        else:
            process.send(call)
        if cancel is not None:
            self._poll = loop.call_later(0, self._ask, loop, cancel)

    def _check(self, question: Question) -> None:
        """Run the checks of the text so far."""
        process, judge = self._process, self._judge
        if process is None or judge is None:
            return
        try:
            verdict = judge.answer(question)
        except BaseException as error:  # the user's code failed instead of refusing
            self._answers.put_nowait(Ended(question.id, None, error))
            return
        process.send(verdict)

    async def answer(self) -> Text | Ended:
        """Return the next answer."""
        while isinstance(message := await self._answers.get(), Scores):
            self.logprobs += message.logprobs
            self.steps += message.steps
        if isinstance(message, Ended):
            self.drop()
            if isinstance(message.error, ValidationFailed) and self._judge is not None:
                message.error.__cause__ = self._judge.error
        return message

    async def end(self) -> Ended:
        """Return the `Ended` of the call."""
        while True:
            message = await self.answer()
            if isinstance(message, Ended):
                return message

    def drop(self) -> None:
        """Note that nobody waits for it any more: it ends within one pass."""
        process, self._process = self._process, None
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        if process is not None and self._number is not None and process.parent == os.getpid():
            process.drop(self._number)

    def wake(self) -> None:
        """Wake the waiting task: there will be no answer."""
        self._answers.put_nowait(Ended(0, None, None))

    def _ask(self, loop: asyncio.AbstractEventLoop, event: CancelEvent) -> None:
        """Check the call's event now, and regularly."""
        process = self._process
        if process is None or self._number is None:
            return
        if event.is_set():
            process.send(Cancel(self._number))
        else:
            self._poll = loop.call_later(POLL_SECONDS, self._ask, loop, event)


def _send(process: WorkerProcess, call: Call) -> None:
    """Send a call, without its output type if the process has it.

    Raises:
        PromptError: the prompt cannot be sent.
    """
    lowered = call.lowered
    if process.knows(call.type_key):
        call.lowered = None
    try:
        process.send(call)
    except Exception as error:
        raise PromptError(
            f"The prompt cannot be sent to the process that runs the model: {error}. Messages "
            "must be texts, numbers, lists and dicts."
        ) from error
    finally:
        call.lowered = lowered


def python(code: str) -> list[str]:
    """Return the command of a Python process that finds structgen like this one."""
    paths = [str(path) or os.getcwd() for path in sys.path]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {paths!r}; {code}"]


def raised(ended: Ended) -> Any:
    """Return the result of a finished call.

    Raises:
        StructgenError: the error of the call.
    """
    try:
        if ended.error is not None:
            raise ended.error
        return ended.result
    finally:
        ended.error = None  # it belongs to the callers
