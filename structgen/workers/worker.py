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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar, final

import numpy as np

from structgen import models
from structgen.constraint import compile as compile_constraint
from structgen.constraint import warm_up
from structgen.decoding import (
    Chunk,
    GenerationResult,
    Prepared,
    Run,
    SearchOptions,
    Task,
    Timings,
    chat,
)
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
_Line: TypeAlias = "queue.SimpleQueue[_Asked | None]"

_IDLE_SECONDS = 5.0
_MOST_TOGETHER = 64
_LONG = 32_768  # bytes of a message, without its type
_MOST_ASIDE = 2
_LET_GO_SECONDS = 0.001
_AHEAD_SECONDS = 0.01  # between two checks whether others have caught up with an owner
_SORT_SECONDS = 0.1  # between two looks for calls that need not wait in line
_NOTHING = Prepared(np.empty(0, np.int32), ())


def main() -> None:
    """Serve the parent until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    faulthandler.enable()
    warnings.simplefilter("ignore", UnenforcedWarning)  # the parent has given it
    serve(*_pipes())


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
        self._lock = threading.Lock()
        self._asked: dict[int, _Asked] = {}  # calls that are not over
        self._prompts: dict[int | None, _Prompt] = {}  # of these calls
        self._pictured: list[_Prompt] = []  # those whose pictures or sounds are, or get, prepared
        # Long messages have a separate queue, because tokenizing a prompt may take seconds, and so
        # do pictures and sounds.
        self._arrived: _Line = queue.SimpleQueue()
        self._long: _Line = queue.SimpleQueue()
        self._is_prepared = threading.Event()  # whether no arrived message has to be prepared
        self._is_prepared.set()
        self._tasks: KeptByBytes[tuple[Task, int]] = KeptByBytes(
            FORM_BYTES, lambda kept: form_weight(kept[0].constraint, kept[1])
        )

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

    def _take(self, message: Call | ErrandCall) -> None:
        prompt, size = _Prompt(message), self._frames.size
        with self._lock:
            if isinstance(message, Call):
                size -= len(message.lowered or b"")
                prompt = self._prompts.setdefault(message.prompt_id, prompt)
                message.prompt = None  # one copy is enough
            prompt.n_calls += 1
            asked = self._asked[message.id] = _Asked(message, prompt)
        self._is_prepared.clear()
        (self._long if size > _LONG or prompt.has_media else self._arrived).put(asked)

    def _cancel(self, message: Cancel) -> None:
        with self._lock:
            asked = self._asked.get(message.id)
            if asked is None:
                return
            asked.is_given_up = True
            if asked.job is not None:
                self._scheduler.cancel(asked.job)

    def _receive(self, verdict: Verdict) -> None:
        with self._lock:
            asked = self._asked.get(verdict.id)
        if asked is not None and asked.checks is not None:
            asked.checks.receive(verdict)
            self._scheduler.wake()

    def _prepare_all(self, arrived: _Line) -> None:
        """Prepare calls as they arrive, owners in turn.

        Calls that are there are submitted together, so that they may begin together: one of each
        owner, if there are several. One that must be compiled, or fails, does not delay others.
        Pictures and sounds are prepared in other threads. Calls that are over, and the other
        outputs of prompts whose pictures are prepared, do not wait for those before them.
        """
        lines: dict[str | None, list[_Asked]] = {}
        look = 0.0
        together: list[Job | WorkJob] = []
        owner: str | None = None  # the owner of the last turn

        def hand_in() -> None:
            if together:
                self._scheduler.submit(together)
            together.clear()

        while True:
            if (now := time.perf_counter()) > look:
                look = now + _SORT_SECONDS
                for line in lines.values():
                    line.sort(key=lambda one: not one.is_over and one.prompt.begun is None)
            has_all = arrived.empty()
            ready = [one for one, line in lines.items() if has_all and self._may_prepare(line[0])]
            if has_all and not ready:
                hand_in()
            if not ready:
                begun = self._being_seen()
                if arrived.empty() and not begun:
                    self._is_prepared.set()
                try:
                    new = arrived.get(timeout=_AHEAD_SECONDS if lines or begun else None)
                except queue.Empty:
                    continue
                if new is None:
                    return
                lines.setdefault(new.owner, []).append(new)
                continue
            self._is_prepared.clear()
            owner = next((one for one in ready if one != owner), ready[0])
            line = lines.pop(owner)
            asked = line.pop(0)
            if line:
                lines[owner] = line  # after all others
            if not asked.is_seen and not asked.is_over:
                with self._lock:
                    if asked.prompt.begun is None:
                        self._pictured.append(asked.prompt)
                    asked.prompt.begun = begin("structgen-see", partial(self._see, asked))
                continue
            compiles = self._compiles(asked)
            if compiles or len(together) == _MOST_TOGETHER or {owner} < {j.owner for j in together}:
                hand_in()
            job = self._charged(asked)
            together += [job] if job else []
            if compiles or job is None or not lines:
                hand_in()

    def _may_prepare(self, asked: _Asked) -> bool:
        """Return whether a call may be prepared now.

        Nothing is compiled for an owner who is ahead, or whose running outputs have large automata.
        Few pictures are prepared at a time, one of each owner; and few are kept for an owner,
        because each takes 20 MB in some models, until its outputs end.
        """
        owner = asked.owner
        if asked.is_over:
            return True
        if not asked.is_seen:
            begun, kept = self._being_seen(), [prompt.owner for prompt in [*self._pictured]]
            is_full = len(kept) >= OPEN_AT_REST and owner in kept and asked.prompt.begun is None
            if is_full or owner in begun or len(begun) >= _MOST_ASIDE:
                return False
        return not (
            self._compiles(asked) and (self._scheduler.is_ahead(owner) or self._is_heavy(owner))
        )

    def _being_seen(self) -> list[str | None]:
        """Return the owners whose pictures or sounds are being prepared."""
        return [
            one.owner for one in [*self._pictured] if one.begun and not one.begun.is_over.is_set()
        ]

    def _see(self, asked: _Asked) -> None:
        job = self._charged(asked)
        self._scheduler.submit([job] if job else [])

    def _charged(self, asked: _Asked) -> Job | WorkJob | None:
        """Prepare a call at its owner's cost; return its job as `_prepare`."""
        compiles = self._compiles(asked)
        began, passed, spent = time.perf_counter(), self._scheduler.passed, time.thread_time()
        job = self._prepare(asked)
        took = time.thread_time() - spent
        elapsed = time.perf_counter() - began
        if asked.prompt.has_media:
            took = elapsed  # a process decodes pictures, beside the passes
        elif compiles:
            # Charged like passes, also on a busy machine; no pass was made in that time.
            took = max(took, elapsed - (self._scheduler.passed - passed))
        self._scheduler.charge(asked.owner, took)
        if compiles:
            time.sleep(_LET_GO_SECONDS)  # masks of others wait for the automata's lock
        return job

    def _compiles(self, asked: _Asked) -> bool:
        """Return whether preparing it means compiling a type."""
        key = asked.message.type_key if isinstance(asked.message, Call) else None
        return key is not None and key not in self._tasks

    def _is_heavy(self, owner: str | None) -> bool:
        """Return whether the outputs of an owner have large automata."""
        with self._lock:
            jobs = [asked.job for asked in self._asked.values() if asked.owner == owner]
        return bool(heavy(job for job in jobs if job is not None))

    def _prepare(self, asked: _Asked) -> Job | WorkJob | None:
        """Return the job of a call; None if it has ended already."""
        message = asked.message
        try:
            if isinstance(message, Call):
                job: Job | WorkJob | None = self._job(asked, message)
            else:
                job = self._work_job(asked, message)
        except Exception as error:
            self._end(asked, None, error, "The call cannot be prepared")
            return None
        if job is not None:
            self._is_now(asked, job)
        return job

    def _is_now(self, asked: _Asked, job: Job | WorkJob) -> None:
        """Note the job that a call is from now on."""
        with self._lock:
            asked.job = job
            if asked.is_given_up:
                job.cancel()

    def _work_job(self, asked: _Asked, message: ErrandCall) -> WorkJob:
        """Return the job of an errand."""
        asked.check()
        work, on_end = pickle.loads(message.errand)(self._model), partial(self._end, asked)
        return WorkJob(
            work, on_end, message.caller, message.timeout, asked.arrived, owner=message.owner
        )

    def _job(self, asked: _Asked, message: Call) -> Job | None:
        """Return the job of an output; None if its type is missing."""
        task = self._task(asked, message)
        if task is None:
            self._forget(asked)
            self._send(TypeWanted(message.id))
            return None
        checks = asked.checks = self._checks_of(message, task)
        is_nothing = asked.is_over and asked.prompt.prepared is None  # the model will not see it
        prepared = _NOTHING if is_nothing else self._prepared(task, asked.prompt, message.search)
        run = task.run(prepared, message.search, message.index, checks)
        run.count_time_from(asked.arrived)
        output = _Output(self, asked, message, run)
        forces = task.constraint is not None and message.search.forced
        batch_size = message.search.batch_size
        if message.search.seed is not None and batch_size is None:
            batch_size = 1  # must give the same result as alone
        if message.search.best or checks is not None:
            batch_size = 1  # rows of a batch cannot be rewound
        return Job(
            run,
            output.on_chunks,
            output.on_end,
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
        return AskedChecks(
            task.constraint.output.name,
            self._send,
            message.id,
            is_json=message.checks == "json",
            streams_text=message.wants_chunks,
        )

    def _prepared(self, task: Task, prompt: _Prompt, search: SearchOptions) -> Prepared:
        """Return the tokens of a prompt, computed once for all its outputs."""
        if prompt.prepared is None:
            try:
                prompt.prepared = task.prepare(prompt.content, search)
            except StructgenError as error:
                prompt.prepared = error
        if isinstance(prompt.prepared, StructgenError):
            raise prompt.prepared
        return prompt.prepared

    def _task(self, asked: _Asked, message: Call) -> Task | None:
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
                asked.check()
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

    def _end(
        self, asked: _Asked, result: Any, error: Exception | None, what: str = "The call has failed"
    ) -> None:
        self._forget(asked)
        failed = None if error is None else _portable(error, what)
        try:
            self._send(Ended(asked.id, result, failed))
        except Exception as failure:  # ends this call, and not the process with all others
            self._send(Ended(asked.id, None, _portable(failure, "The result cannot be sent")))

    def _forget(self, asked: _Asked) -> None:
        prompt = asked.prompt
        with self._lock:
            asked.job = None  # which refers to it
            if self._asked.pop(asked.id, None) is None:
                return
            prompt.n_calls -= 1
            if not prompt.n_calls:
                self._prompts.pop(prompt.id, None)
                if prompt.begun is not None:
                    self._pictured.remove(prompt)


@final
class _Prompt:
    """A prompt, while calls with it are not over.

    Attributes:
        id: its number; None: an errand has no prompt.
        owner: the owner of its calls.
        content: the prompt itself.
        has_media: whether it has pictures or sounds.
        begun: the preparation of these, in a thread of its own.
        prepared: its tokens, or why there are none.
        n_calls: how many calls with it are not over.
    """

    def __init__(self, message: Call | ErrandCall) -> None:
        self.id = message.prompt_id if isinstance(message, Call) else None
        self.owner = message.owner
        self.content = message.prompt if isinstance(message, Call) else None
        self.has_media = isinstance(self.content, list) and bool(chat.media_of(self.content))
        self.begun: Begun | None = None
        self.prepared: Prepared | StructgenError | None = None
        self.n_calls = 0


@final
class _Asked:
    """A call, from its arrival to its end.

    Attributes:
        message: the call, without its prompt.
        prompt: its prompt.
        id: its number.
        owner: its owner.
        arrived: when it arrived, by `time.perf_counter`.
        job: the call as the scheduler has it, after it was prepared.
        checks: its checks, if they run in the parent.
        is_given_up: whether it was cancelled.
    """

    def __init__(self, message: Call | ErrandCall, prompt: _Prompt) -> None:
        self.message = message
        self.prompt = prompt
        self.id = message.id
        self.owner = message.owner
        self.arrived = time.perf_counter()
        self.job: Job | WorkJob | None = None
        self.checks: AskedChecks | None = None
        timeout = message.search.timeout if isinstance(message, Call) else message.timeout
        self._timeout = math.inf if timeout is None else timeout
        self.is_given_up = False

    @property
    def is_seen(self) -> bool:
        """Whether no pictures or sounds are left to prepare."""
        return not self.prompt.has_media or self.prompt.prepared is not None

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled, or has timed out."""
        return self.is_given_up or time.perf_counter() > self.arrived + self._timeout

    def check(self) -> None:
        """Check that it is not over, before work that takes long.

        Raises:
            IncompleteOutput: it is.
        """
        if self.is_given_up:
            raise IncompleteOutput("There is no result: it was cancelled.", text="")
        if self.is_over:
            raise IncompleteOutput(
                f"There is no result: it timed out (timeout={self._timeout:g} seconds) before it "
                "began. Allow more.",
                text="",
            )


@final
class _Output:
    """A running call for an output."""

    def __init__(self, worker: _Worker, asked: _Asked, message: Call, run: Run) -> None:
        self._worker = worker
        self._asked = asked
        self._message = message
        self._run = run
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
        arrived, work = self._asked.arrived, made.checking_sure()
        job = WorkJob(work, sure, message.caller, limit, arrived, owner=message.owner)
        self._worker._is_now(self._asked, job)
        self._worker._scheduler.submit([job])

    def _send(self, result: GenerationResult[Any] | None, error: Exception | None) -> None:
        try:
            if result is not None:
                first = None if self._first is None else self._first - self._asked.arrived
                took = time.perf_counter() - self._asked.arrived
                result = self._without_scores(replace(result, timings=Timings(first, took)))
        except Exception as failure:  # ends this call, and not the process with all others
            result, error = None, failure
        self._worker._end(self._asked, result, error, "The output cannot be generated")

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
