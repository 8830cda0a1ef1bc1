"""The parent's side of a worker process: its life cycle, and the calls that run in it.

`Host` starts a process when there is work. `WorkerProcess` owns the pipes, standard error, the end
of the process, and the threads that read from it and watch it. `InThread` replaces the process by a
thread, which blocks the rest of the program during each pass. `RunningCall` is one call, as seen by
the coroutine that awaits it. `Stranger` says for whom code runs. Knows no output types.
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
        stdout: what it says.
        stderr: nothing: what it prints is printed by this process.
        pid: of this process.
        returncode: 0, once it has ended.
    """

    def __init__(self) -> None:
        """Start it."""
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
            subprocess.TimeoutExpired: it has not, in that time.
        """
        if not self._begun.join(timeout):
            raise subprocess.TimeoutExpired("a thread", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """Do nothing: a thread cannot be killed. It ends after its pass, as its pipe is closed."""


def _serve(reader: BinaryIO, writer: BinaryIO) -> None:
    # Late: it loads the runtime, which nobody needs whose workers are processes.
    from .worker import serve

    try:
        serve(reader, writer)
    except Exception:
        traceback.print_exc()
    finally:
        for pipe in (writer, reader):
            pipe.close()


Handler = Callable[[Any], object]
"""Told of each answer to a call, by the thread that reads: it must not wait."""

_STOP_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_KNOWN_TYPES = 4096
_KEPT_STDERR = 4096


@final
class WorkerProcess:
    """One process. Thread-safe.

    Attributes:
        ready: the `Ready` or `EmbedderReady` that it sent when the model was loaded;
            `wait_until_ready` comes first.
        parent: the process that started it.
    """

    ready: Any

    def __init__(self, load: Load | EmbedderLoad, report: Callable[[str, int, int], None]) -> None:
        """Start a process, which begins to load its model.

        Args:
            load: which model; ``in_process``: in a thread of this process instead.
            report: called with the progress of fetching.
        """
        self.parent = os.getpid()
        self._name = os.path.basename(load.name)  # a folder is nobody else's business
        self._report = report
        self._numbers = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._types: set[bytes] = set()
        self._lock = threading.Lock()
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
        """Wait until the model is loaded; its `ready`.

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
        """Return a number for a call, whose answers go to ``handler``; the last is `Ended`.

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
        """Return whether it has been sent an output type; from now on it has."""
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
        """Return whether somebody waits for a call."""
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
        """Kill the process when it sends nothing for so long, or does not end when it is to.

        It is pinged while a call is under way, and in the last part of loading, which it announces;
        weights may take as long as they do. It answers between two passes of the model, and
        while it compiles.
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
            # In looks, not by a clock: this process may have been stopped as well.
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
    """A process that runs a model, whenever one is needed. Thread-safe; for any event loop."""

    def __init__(self, load: Load, vocabulary: Vocabulary | None = None) -> None:
        """Start without a process.

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
        """Return the process, started if there is none.

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

    async def facts(self) -> tuple[Ready, Vocabulary]:
        """Return what the process sent about its model, and its vocabulary; starts it."""
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
                # Not read from the folder here: its files hold the interpreter while they are.
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
        """End the process, and start none any more. Waits until it has ended."""
        if (process := self._closed()) is not None:
            process.stop()

    def end(self) -> None:
        """End a dropped model without waiting."""
        if (process := self._closed()) is not None:
            process.end()

    def _closed(self) -> WorkerProcess | None:
        """Start no process any more; the one that there is."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        return process


CALLERS = itertools.count(1)
"""Numbers of those who ask: calls of one of them wait in one line."""


MAX_WORK, MAX_MASK_WORK = 75_000, 100_000


@dataclass(frozen=True, slots=True)
class Stranger:
    """Somebody on whose behalf code runs, and whose forms nobody here has seen.

    Attributes:
        owner: equal for what belongs together; owners share passes of a model fairly.
        max_work: most steps that one of their forms may take to compile.
        max_mask_work: most steps that one mask of it may take.
    """

    owner: str
    max_work: int = MAX_WORK
    max_mask_work: int = MAX_MASK_WORK

    @property
    def compile_options(self) -> Mapping[str, int]:
        """The options of `structgen.compile` for their forms."""
        return {"max_work": self.max_work, "max_mask_work": self.max_mask_work}


STRANGER: ContextVar[Stranger | None] = ContextVar("stranger", default=None)
"""On whose behalf the code of this context runs; None: the program's own.

A context variable, because it holds for all that a request leads to: trials, outputs, the rounds of
an agent, decisions and vectors.
"""


def owner() -> str | None:
    """Set whose calls this context makes; None: the program's own."""
    stranger = STRANGER.get()
    return None if stranger is None else stranger.owner


POLL_SECONDS = 0.02
"""How often a ``cancel`` event is asked whether it is set."""


@final
class RunningCall:
    """A call. Used by one task; `drop` from any thread.

    Attributes:
        logprobs, steps: the scores, and the steps of the trace, once it has ended.
    """

    def __init__(
        self, call: Call | ErrandCall, cancel: CancelEvent | None, checks: Checks | None = None
    ) -> None:
        """Send nothing yet.

        Args:
            call: without its number; with the output type, which is left out where it is known.
            cancel: the call's ``cancel`` event, or None.
            checks: made here while the output is written; None where none are.
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
        """The value that checks have accepted, if any were made."""
        return () if self._judge is None else self._judge.values

    async def begin(self, host: Host) -> None:
        """Send it.

        Raises:
            StructgenError: there is no process and none can be started.
        """
        process = await host.process()
        self._process = process
        loop = asyncio.get_running_loop()
        answers, call, cancel = self._answers, self._call, self._cancel

        def receive(message: Text | Scores | Ended | TypeWanted | Question) -> None:
            # In the thread that reads.
            if isinstance(message, TypeWanted):
                process.send(call)
                # Messages about it came from a call that the process has forgotten.
                if not process.expects(message.id):
                    process.send(Cancel(message.id, is_awaited=False))
                elif cancel is not None and cancel.is_set():
                    process.send(Cancel(message.id, is_awaited=True))
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
        """Make the checks of what has been written."""
        process, judge = self._process, self._judge
        if process is None or judge is None:
            return
        try:
            verdict = judge.answer(question)
        except BaseException as error:  # the user's code has failed, and not refused
            self._answers.put_nowait(Ended(question.id, None, error))
            return
        process.send(verdict)

    async def answer(self) -> Text | Ended:
        """Return what comes next."""
        while isinstance(message := await self._answers.get(), Scores):
            self.logprobs += message.logprobs
            self.steps += message.steps
        if isinstance(message, Ended):
            self.drop()
            if isinstance(message.error, ValidationFailed) and self._judge is not None:
                message.error.__cause__ = self._judge.error
        return message

    async def end(self) -> Ended:
        """Return its end."""
        while True:
            message = await self.answer()
            if isinstance(message, Ended):
                return message

    def drop(self) -> None:
        """Note that nobody waits for it any more: if it continues, it ends within one pass."""
        process, self._process = self._process, None
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        if process is not None and self._number is not None and process.parent == os.getpid():
            process.drop(self._number)

    def wake(self) -> None:
        """Let who waits for an answer know that there will be none."""
        self._answers.put_nowait(Ended(0, None, None))

    def _ask(self, loop: asyncio.AbstractEventLoop, event: CancelEvent) -> None:
        """Look whether the call's event is set; and again in a moment."""
        process = self._process
        if process is None or self._number is None:
            return
        if event.is_set():
            process.send(Cancel(self._number, is_awaited=True))
        else:
            self._poll = loop.call_later(POLL_SECONDS, self._ask, loop, event)


def _send(process: WorkerProcess, call: Call) -> None:
    """Send a call, without its output type where the process has had it.

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
    """Return the command of a process that runs code, and finds structgen as this one does."""
    paths = [str(path) or os.getcwd() for path in sys.path]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {paths!r}; {code}"]


def apart(function: Callable[[], Any]) -> Any:
    """Call a function in a process of its own, which nobody here waits for but the caller. It ends
    with this one.

    Raises:
        StructgenError: as the function, or WorkerDied.
    """
    process = subprocess.Popen(
        python("from structgen.workers.worker import call; call()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    ended = None
    with contextlib.suppress(BrokenPipeError), process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(packed(function))
        process.stdin.flush()
        ended = Frames(cast("BinaryIO", process.stdout)).read()
    if ended is None:
        raise WorkerDied(f"The process of the call ended (exit code {process.wait()}).")
    return raised(ended)


def raised(ended: Ended) -> Any:
    """Return the result of a call that has ended.

    Raises:
        StructgenError: what it failed with.
    """
    try:
        if ended.error is not None:
            raise ended.error
        return ended.result
    finally:
        ended.error = None  # it is theirs who have asked
