"""The worker process: it loads a model and makes the outputs that its parent asks for.

It has three threads: one reads messages, one prepares calls (compiles types, encodes prompts), and
the main thread runs the model pass by pass (`scheduler`). The runtime holds the interpreter lock
during a pass; the other threads run between passes, so a message is read within one pass.

An embedder is simpler: see `_serve_embedder`.

The process ends when the pipe is closed, which also happens when the parent is killed.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar, final

from structgen import models
from structgen.constraint import compile as compile_constraint
from structgen.constraint import warm_up
from structgen.decoding import Chunk, GenerationResult, Prepared, Run, Task, Timings, chat
from structgen.errors import (
    Abstained,
    IncompleteOutput,
    ModelError,
    StructgenError,
    UnenforcedWarning,
    let_go,
)
from structgen.insight import TOP
from structgen.models import genai
from structgen.storage import KeptByBytes
from structgen.types import OutputType

from .protocol import (
    FORM_BYTES,
    MOST_SCORES,
    Adapter,
    Call,
    Cancel,
    EmbedderCall,
    EmbedderLoad,
    EmbedderReady,
    Ended,
    ErrandCall,
    Frames,
    Load,
    LoweredType,
    NotLoaded,
    Ping,
    Progress,
    Ready,
    Scores,
    Text,
    TypeWanted,
    form_weight,
    packed,
)
from .scheduler import OPEN_AT_REST, Job, Scheduler, WorkJob, heavy
from .threads import Begun, begin, give_back
from .verdicts import AskedChecks, Verdict

T = TypeVar("T")
_Line: TypeAlias = "queue.SimpleQueue[Call | ErrandCall | Adapter | None]"

_IDLE_SECONDS = 5.0
_MOST_TOGETHER = 64
_LONG = 32_768  # bytes of a message, without its type
_MOST_ASIDE = 2
_LET_GO_SECONDS = 0.001
_AHEAD_SECONDS = 0.01  # between two checks whether others have caught up with an owner


def main() -> None:
    """Serve the parent until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    faulthandler.enable()
    warnings.simplefilter("ignore", UnenforcedWarning)  # the parent has given it
    serve(*_pipes())


def call() -> None:
    """Call the function that the parent sends."""
    reader, writer = _pipes()

    def end_with_parent() -> None:
        reader.read(1)
        os._exit(1)

    def called() -> Any:
        function = Frames(reader).read()
        threading.Thread(target=end_with_parent, daemon=True).start()
        return function()

    with writer:
        writer.write(packed(_called(0, called, "The call failed")))


def _called(number: int, function: Callable[[], Any], what: str) -> Ended:
    """Call a function; ``what`` is the start of the error message if it fails."""
    try:
        return Ended(number, function(), None)
    except BaseException as error:  # a panic is not an Exception
        return Ended(number, None, _portable(error, what))


def serve(reader: BinaryIO, writer: BinaryIO) -> None:
    """Serve the parent process, until the first pipe is closed."""
    _Worker(Frames(reader), writer).serve()


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes from and to the parent; other printed output goes to standard error."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reader, writer


@final
class _Worker:
    """A model and its calls."""

    def __init__(self, frames: Frames, writer: BinaryIO) -> None:
        self._frames = frames
        self._writer = writer
        self._writing = threading.Lock()
        self._is_over = False
        self._jobs: dict[int, Job | WorkJob] = {}
        self._checks: dict[int, AskedChecks] = {}  # of calls whose checks run in the parent
        # Calls that were cancelled before they were prepared, with whether anybody waits for them.
        self._given_up: dict[int, bool] = {}
        self._lock = threading.Lock()
        # Long messages have a separate queue, because tokenizing a prompt may take seconds, and so
        # do pictures and sounds.
        self._arrived: _Line = queue.SimpleQueue()
        self._long: _Line = queue.SimpleQueue()
        self._is_prepared = threading.Event()  # whether no arrived message has to be prepared
        self._is_prepared.set()
        self._tasks: KeptByBytes[tuple[Task, int]] = KeptByBytes(
            FORM_BYTES, lambda kept: form_weight(kept[0].constraint, kept[1])
        )
        self._callers: dict[int, int] = {}  # of calls that are not over
        self._n_calls: Counter[int] = Counter()  # of each caller
        # By caller: the prompt that was prepared last, and the result.
        self._prompts: dict[int, tuple[Any, Prepared | StructgenError]] = {}
        self._sees: dict[int, str | None] = {}  # the owners of callers with prepared media

    def serve(self) -> None:
        """Load the model, then make outputs."""
        load = self._frames.read()
        if load is None:
            return
        if isinstance(load, EmbedderLoad):
            _serve_embedder(load, self._frames, self._send)
            return
        try:
            self._model = _loaded(load, self._send)
        except Exception as error:
            self._send(NotLoaded(_portable(error, "The model cannot be loaded")))
            return
        # Present objects stay: a garbage collection visits only what calls leave behind.
        gc.collect()
        gc.freeze()
        self._scheduler = Scheduler(self._model, batch_size=load.batch_size)
        begin("structgen-listen", self._listen)
        self._send(Ping())  # answers from now on; the rest runs the chat template
        self._send(Ready.of(self._model, load.vocabulary_uid))
        begin("structgen-prepare", lambda: self._prepare_all(self._arrived))
        begin("structgen-prepare-long", lambda: self._prepare_all(self._long))
        self._make_all()

    def _make_all(self) -> None:
        parent, has_worked = os.getppid(), False
        while not self._is_over:
            began = time.perf_counter()
            if self._scheduler.step():
                has_worked = True
                # A pass holds the interpreter lock, and other threads get only 5 ms between two
                # passes: give preparations as long as the pass took.
                self._is_prepared.wait(time.perf_counter() - began)
            else:
                is_idle = not self._scheduler.wait(_IDLE_SECONDS)
                if is_idle and has_worked:  # the caches of many sequences take half a gigabyte
                    give_back()
                    has_worked = False
                # A child that the parent forked may keep the pipe open.
                if os.name == "posix" and os.getppid() != parent:
                    return

    def _send(self, message: object) -> None:
        frame = packed(message)
        try:
            with self._writing:
                self._writer.write(frame)
                self._writer.flush()
        except OSError:  # the parent has gone
            self._is_over = True

    # -- what the parent says ---------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while (message := self._frames.read()) is not None:
                if isinstance(message, Cancel):
                    self._cancel(message)
                elif isinstance(message, Verdict):
                    self._receive(message)
                elif isinstance(message, Ping):
                    self._send(message)
                else:
                    self._take(message)
        except BaseException:
            traceback.print_exc()
        self._is_over = True
        self._arrived.put(None)
        self._long.put(None)
        self._scheduler.wake()

    def _take(self, message: Call | ErrandCall | Adapter) -> None:
        if not isinstance(message, Adapter):
            with self._lock:
                self._callers[message.id] = message.caller
                self._n_calls[message.caller] += 1
        self._is_prepared.clear()
        size = self._frames.size - len(getattr(message, "lowered", None) or b"")
        (self._long if size > _LONG or _has_media(message) else self._arrived).put(message)

    def _cancel(self, message: Cancel) -> None:
        with self._lock:
            job = self._jobs.get(message.id)
            if job is not None:
                self._scheduler.cancel(job)
            elif message.id in self._callers:
                self._given_up[message.id] = message.is_awaited

    def _receive(self, verdict: Verdict) -> None:
        with self._lock:
            checks = self._checks.get(verdict.id)
        if checks is not None:
            checks.receive(verdict)
            self._scheduler.wake()

    def _prepare_all(self, arrived: _Line) -> None:
        lines: dict[str | None, deque[Call | ErrandCall | Adapter]] = {}
        together: list[Job | WorkJob] = []
        owners: set[str | None] = set()  # owners who had a turn since the last submission
        owner: str | None = None  # the owner of the last turn
        aside: dict[str | None, Begun] = {}  # what is prepared for owners in other threads

        def hand_in() -> None:
            if together:
                self._scheduler.submit(together)
            together.clear()
            owners.clear()

        while True:
            # Submit arrived calls together, so that they may begin together; but calls that must be
            # compiled, or fail, do not delay others, and owners alternate: one call of each, if
            # there are several. Pictures and sounds are prepared in other threads. Nothing is
            # compiled for an owner who is ahead, or whose running outputs have large automata.
            aside = {one: begun for one, begun in aside.items() if not begun.is_over.is_set()}
            ready = [
                one
                for one, line in lines.items()
                if one not in aside
                and (self._is_ready(line[0]) or (len(aside) < _MOST_ASIDE and self._may_see(one)))
                and not (
                    self._compiles(line[0])
                    and (self._scheduler.is_ahead(one) or self._is_heavy(one))
                )
            ]
            if not ready:
                hand_in()
            if not ready or not arrived.empty():
                if arrived.empty() and not aside:
                    self._is_prepared.set()
                try:
                    message = arrived.get(timeout=_AHEAD_SECONDS if lines or aside else None)
                except queue.Empty:
                    continue
                if message is None:
                    return
                whose = None if isinstance(message, Adapter) else message.owner
                lines.setdefault(whose, deque()).append(message)
                continue
            self._is_prepared.clear()
            owner = next((one for one in ready if one != owner), ready[0])
            line = lines.pop(owner)
            message = line.popleft()
            if line:
                lines[owner] = line  # after all others
            if isinstance(message, Adapter):
                self._end(message.id, None, self._adapter(message))
                hand_in()
                continue
            compiles = self._compiles(message)
            if not self._is_ready(message):
                self._sees[message.caller] = owner
                aside[owner] = begin("structgen-see", partial(self._see, message))
                continue
            if compiles or len(together) == _MOST_TOGETHER or (owner in owners and len(owners) > 1):
                hand_in()
            owners.add(owner)
            job = self._charged(message)
            together += [job] if job else []
            if compiles or job is None or not lines:
                hand_in()

    def _see(self, message: Call | ErrandCall) -> None:
        job = self._charged(message)
        self._scheduler.submit([job] if job else [])

    def _charged(self, message: Call | ErrandCall) -> Job | WorkJob | None:
        """Prepare a call at its owner's cost; return its job as `_prepare`."""
        compiles = self._compiles(message)
        began, passed, spent = time.perf_counter(), self._scheduler.passed, time.thread_time()
        job = self._prepare(message)
        took = time.thread_time() - spent
        elapsed = time.perf_counter() - began
        if _has_media(message):
            took = elapsed  # a process decodes pictures, beside the passes
        elif compiles:
            # Charged like passes, also on a busy machine; no pass was made in that time.
            took = max(took, elapsed - (self._scheduler.passed - passed))
        self._scheduler.charge(message.owner, took)
        if compiles:
            time.sleep(_LET_GO_SECONDS)  # masks of others wait for the automata's lock
        return job

    def _is_ready(self, message: Call | ErrandCall | Adapter) -> bool:
        """Return whether it has no pictures or sounds to prepare, or these are prepared."""
        if not isinstance(message, Call) or not _has_media(message):
            return True
        last = self._prompts.get(message.caller)
        is_known = last is not None and last[0] == message.prompt
        return is_known or self._given_up.get(message.id) is False

    def _may_see(self, owner: str | None) -> bool:
        """Return whether pictures of an owner may be prepared: each takes 20 MB in some models,
        until its outputs end."""
        owners = [*self._sees.values()]
        return len(owners) < OPEN_AT_REST or owner not in owners

    def _compiles(self, message: Call | ErrandCall | Adapter) -> bool:
        """Return whether preparing it means compiling a type."""
        return (
            isinstance(message, Call)
            and message.type_key not in self._tasks
            and self._given_up.get(message.id) is not False
        )

    def _is_heavy(self, owner: str | None) -> bool:
        """Return whether the outputs of an owner have large automata."""
        with self._lock:
            jobs = [job for job in self._jobs.values() if job.owner == owner]
        return bool(heavy(jobs))

    def _adapter(self, message: Adapter) -> Exception | None:
        try:
            if message.path is None:
                self._model.unload_adapter(message.name)
            else:
                self._model.load_adapter(message.path, message.name)
        except Exception as error:
            return _portable(error, f"Adapter {message.name!r}")
        return None

    def _prepare(self, message: Call | ErrandCall) -> Job | WorkJob | None:
        """Return the job of a call; None if it has ended already."""
        if self._given_up.get(message.id) is False:
            self._forget(message.id)
            return None
        try:
            job = self._job(message) if isinstance(message, Call) else self._work_job(message)
        except Exception as error:
            self._end(message.id, None, _portable(error, "The call cannot be prepared"))
            return None
        if job is None:
            return None
        with self._lock:
            self._jobs[message.id] = job
            is_given_up = message.id in self._given_up
        if is_given_up:
            job.cancel()
        return job

    def _work_job(self, message: ErrandCall) -> WorkJob:
        """Return the job of an errand."""

        def on_end(result: Any, error: Exception | None) -> None:
            failed = None if error is None else _portable(error, "The call has failed")
            self._end(message.id, result, failed)

        arrived = time.perf_counter()
        work = pickle.loads(message.errand)(self._model)
        return WorkJob(work, on_end, message.caller, message.timeout, arrived, owner=message.owner)

    def _job(self, message: Call) -> Job | None:
        """Return the job of an output; None if its type is missing."""
        arrived = time.perf_counter()
        task = self._task(message)
        if task is None:
            self._forget(message.id)
            self._send(TypeWanted(message.id))
            return None
        checks = self._checks_of(message, task)
        run = task.run(self._prepared(task, message), message.search, message.index, checks)
        run.count_time_from(arrived)
        call = _Call(self, message, run, arrived)
        forces = task.constraint is not None and message.search.forced
        batch_size = message.search.batch_size
        if message.search.seed is not None and batch_size is None:
            batch_size = 1  # must give the same result as alone
        if message.search.best or checks is not None:
            batch_size = 1  # rows of a batch cannot be rewound
        return Job(
            run,
            call.on_chunks,
            call.on_end,
            caller=message.caller,
            kind=message.type_key if forces else None,
            batch_size=batch_size,
            owner=message.owner,
            masked=task.constraint is not None,
        )

    def _checks_of(self, message: Call, task: Task) -> AskedChecks | None:
        """Return the checks of a call, which run in the parent."""
        if message.checks is None or task.constraint is None:
            return None
        checks = AskedChecks(
            task.constraint.output.name,
            self._send,
            message.id,
            is_json=message.checks == "json",
            streams_text=message.wants_chunks,
        )
        with self._lock:
            self._checks[message.id] = checks
        return checks

    def _prepared(self, task: Task, message: Call) -> Prepared:
        """Return the prompt tokens of a call, computed once for all its outputs."""
        last = self._prompts.get(message.caller)
        if last is None or last[0] != message.prompt:
            last = None
            self._prompts.pop(message.caller, None)
            prepared: Prepared | StructgenError
            try:
                prepared = task.prepare(message.prompt, message.search)
            except StructgenError as error:
                prepared = error
            last = self._prompts[message.caller] = message.prompt, prepared
        prepared = last[1]
        if isinstance(prepared, StructgenError):
            raise prepared
        return prepared

    def _task(self, message: Call) -> Task | None:
        """Return the `Task` of a call; None if its type is missing here."""
        with self._lock:
            known = self._tasks.get(message.type_key)
        if known is not None:
            task, _ = known
        else:
            if message.lowered is None:
                return None
            lowered: LoweredType = pickle.loads(message.lowered)
            constraint = None
            if lowered.grammar is not None:
                output: OutputType[str] = OutputType(
                    lowered.grammar, str, named=lowered.name, offered=lowered.offered
                )
                constraint = compile_constraint(output, self._model.vocabulary, **lowered.options)
            task = Task(
                self._model,
                constraint,
                None,
                lowered.think,
                lowered.draft,
                schema_hint=lowered.schema_hint,
            )
            with self._lock:
                self._tasks.add(message.type_key, (task, len(message.lowered)))
        return task

    # -- what it hears ----------------------------------------------------------------------

    def _follow(self, call_id: int, job: WorkJob, *, is_over: bool) -> None:
        """Finish a call whose output is made; passes of others run in between."""
        with self._lock:
            self._jobs[call_id] = job
            if is_over:
                job.cancel()
        self._scheduler.submit([job])

    def _end(self, call_id: int, result: Any, error: Exception | None) -> None:
        self._forget(call_id)
        try:
            self._send(Ended(call_id, result, error))
        except Exception as failure:  # ends this call, and not the process with all others
            self._send(Ended(call_id, None, _portable(failure, "The result cannot be sent")))

    def _forget(self, call_id: int) -> None:
        with self._lock:
            self._jobs.pop(call_id, None)
            self._checks.pop(call_id, None)
            self._given_up.pop(call_id, None)
            caller = self._callers.pop(call_id, None)
            if caller is not None:
                self._n_calls[caller] -= 1
                if not self._n_calls[caller]:
                    for kept in (self._n_calls, self._prompts, self._sees):
                        kept.pop(caller, None)


@final
class _Call:
    """A running call."""

    def __init__(self, worker: _Worker, message: Call, run: Run, arrived: float) -> None:
        self._worker = worker
        self._message = message
        self._run = run
        self._arrived = arrived
        self._first: float | None = None

    def on_chunks(self, chunks: list[Chunk]) -> None:
        """Send text on."""
        if self._first is None:
            self._first = time.perf_counter()
        if self._message.wants_chunks:
            pieces = [(str(one), one.section, one.steps, one.logprobs) for one in chunks]
            self._worker._send(Text(self._message.id, pieces))

    def on_end(self, error: Exception | None) -> None:
        """Send the result, after computing the confidence if requested."""
        message, run = self._message, self._run
        result: GenerationResult[Any] | None = None
        try:
            result = run.result
        except Exception as failure:
            error = failure
        if error is not None or result is None or result.abstain_below is None:
            self._send(result, error)
            return
        made = result

        def sure(_: None, failed: Exception | None) -> None:
            if isinstance(failed, IncompleteOutput):
                failed = made.given_up()
            elif isinstance(failed, Abstained) and failed.values and not message.checks_sure:
                failed = None
            self._send(made, failed)

        limit = message.search.timeout
        job = WorkJob(made.checking_sure(), sure, message.caller, limit, self._arrived)
        job.owner = message.owner
        self._worker._follow(message.id, job, is_over=run.is_interrupted)

    def _send(self, result: GenerationResult[Any] | None, error: Exception | None) -> None:
        try:
            if result is not None:
                first = None if self._first is None else self._first - self._arrived
                took = time.perf_counter() - self._arrived
                result = self._without_scores(replace(result, timings=Timings(first, took)))
        except Exception as failure:  # ends this call, and not the process with all others
            result, error = None, failure
        if error is not None:
            error = _portable(error, "The output cannot be generated")
        self._worker._end(self._message.id, result, error)

    def _without_scores(self, result: GenerationResult[Any]) -> GenerationResult[Any]:
        """Send the log probabilities and steps of a result first, in parts; return the rest."""
        search, send, id_ = self._message.search, self._worker._send, self._message.id
        if search.logprobs:
            for part in _parts(result.logprobs, search.top_logprobs):
                send(Scores(id_, logprobs=part))
        if search.trace:
            for steps in _parts(result.trace.steps, max(search.top_logprobs, TOP)):
                send(Scores(id_, steps=steps))
        return result.completed((), (), None)


def _has_media(message: Call | ErrandCall | Adapter) -> bool:
    prompt = getattr(message, "prompt", None)
    return isinstance(prompt, list) and bool(chat.media_of(prompt))


def _parts(whole: Sequence[T], n_top: int) -> Iterator[Sequence[T]]:
    """Yield parts of the right size for messages, with that many tokens each."""
    size = max(1, MOST_SCORES // (1 + 2 * n_top))
    for first in range(0, len(whole), size):
        yield whole[first : first + size]


def _loaded(load: Load, send: Callable[[object], None]) -> genai.TextModel:
    def report(stage: str, done: int, total: int) -> None:
        send(Progress(stage, done, total))

    options = load.options
    target = options.target
    if options.draft_model is not None:
        small = models.path(options.draft_model, report, task="generate", target=target)
        options = replace(options, draft_model=small)
    model = genai.load(
        models.path(load.name, report, task="generate", target=target),
        options,
        meanwhile=warm_up if load.warm_up else None,
        kind=genai.TextModel,
    )
    for name, path in load.adapters:
        model.load_adapter(path, name)
    return model


def _serve_embedder(load: EmbedderLoad, frames: Frames, send: Callable[[object], None]) -> None:
    """Run an embedder for the parent process, until its pipe is closed.

    Calls run in parallel threads while this one answers pings, because the runtime releases the
    lock. So a call counts as hanging if it sees too many pings; one comes each second.
    """
    from structgen.models import embedding  # imported late: others do not need it

    def bound(n_bytes: int) -> None:
        if load.most_bytes is not None and os.name == "posix":
            import resource

            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            most = load.most_bytes + n_bytes
            most = most if hard < 0 else min(most, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    try:
        parts = embedding.opened(load.place, bound=bound, **load.options)
    except Exception as error:
        send(NotLoaded(_portable(error, "The embedder cannot be loaded")))
        return
    begin("structgen-parent", _end_with_parent)
    graph, tokenizer, settings, pooling, most_tokens = parts
    of_graph = (graph.takes_text, graph.kind, graph.width)
    send(EmbedderReady(*of_graph, settings, pooling, most_tokens))
    most = math.inf if load.max_silence is None else load.max_silence
    seen: dict[int, Iterator[int]] = {}  # counts pings for each running call

    def run(call: EmbedderCall) -> None:
        method = getattr(graph if hasattr(graph, call.method) else tokenizer, call.method)
        asked = partial(method, *call.arguments, **call.named)
        send(_called(call.id, asked, "The texts cannot be embedded"))
        del seen[call.id]  # after it; without memory to send, the call counts as hanging

    while (message := frames.read()) is not None:
        if isinstance(message, EmbedderCall):
            seen[message.id] = itertools.count(1)
            begin("structgen-call", partial(run, message))
        elif isinstance(message, Ping):
            if any(next(pings) > most for pings in [*seen.values()]):
                print(
                    f"A call of the embedder took more than {most:g} s (max_silence).",
                    file=sys.stderr,
                )
                sys.stderr.flush()
                os._exit(1)
            send(message)


def _end_with_parent() -> None:
    """End with the parent, because a child that it forked may keep the pipe open."""
    parent = os.getppid()
    while os.name != "posix" or os.getppid() == parent:
        time.sleep(_IDLE_SECONDS)
    os._exit(0)


def _portable(error: BaseException, what: str) -> Exception:
    """Return an error that the parent can raise: one of structgen's."""
    if isinstance(error, StructgenError):
        let_go(error)
        try:
            pickle.dumps(error)
        except Exception:
            return ModelError(f"{what}: {type(error).__name__}: {error}")
        return error
    trace = "".join(traceback.format_exception(error))
    let_go(error)
    print(trace, file=sys.stderr, end="")
    return ModelError(
        f"{what}: {type(error).__name__} in the model's process: {error}\n{trace}".rstrip()
    )
