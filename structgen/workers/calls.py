"""One call that is under way in a worker process, as the coroutine that waits for it sees it.

It owns what crosses from the thread that hears the process to the loop that waits, and back when
the one who waits has gone; and on whose behalf code runs (`Stranger`). It knows nothing of output
types.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, final

from structgen.decoding import CancelEvent
from structgen.errors import PromptError, ValidationFailed
from structgen.insight import TraceStep
from structgen.sampling import TokenLogprob
from structgen.values import Checks

from .process import Host, WorkerProcess
from .protocol import Call, Cancel, Ended, ErrandCall, Scores, Text, TypeWanted
from .verdicts import Judge, Question

CALLERS = itertools.count(1)
"""Numbers of those who ask: calls of one of them wait in one line."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Somebody on whose behalf code runs, and whose forms nobody here has seen.

    Attributes:
        owner: equal for what belongs together; owners share passes of a model fairly.
        max_work: most steps that one of their forms may take to compile.
        max_mask_work: most steps that one mask of it may take.
    """

    owner: str
    max_work: int
    max_mask_work: int

    @property
    def compile_options(self) -> Mapping[str, int]:
        """What `structgen.compile` is told of their forms."""
        return {"max_work": self.max_work, "max_mask_work": self.max_mask_work}


STRANGER: ContextVar[Stranger | None] = ContextVar("stranger", default=None)
"""On whose behalf the code of this context runs; None: the program's own.

A context variable, because it holds for all that a request leads to: trials, outputs, the rounds of
an agent, decisions and vectors.
"""


def owner() -> str | None:
    """On whose behalf calls of this context are made; None: the program's own."""
    stranger = STRANGER.get()
    return None if stranger is None else stranger.owner


POLL_SECONDS = 0.02
"""How often a ``cancel`` event is asked whether it is set."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        call: without its number; with the output type, which is left out where it is known.
        cancel: the call's ``cancel`` event, or None.
        checks: made here while the output is written; None where none are.
    """

    call: Call | ErrandCall
    cancel: CancelEvent | None
    checks: Checks | None = None


@final
class RunningCall:
    """A call. Used by one task; `drop` from any thread.

    Attributes:
        steps: those of the trace, once it has ended.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._answers: asyncio.Queue[Text | Scores | Ended] = asyncio.Queue()
        self._logprobs: list[TokenLogprob] = []
        self.steps: list[TraceStep] = []
        self._process: WorkerProcess | None = None
        self._number: int | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._judge = None if asked.checks is None else Judge(asked.checks)

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
        answers, asked = self._answers, self._asked

        def hear(message: Text | Scores | Ended | TypeWanted | Question) -> None:
            # In the thread that reads.
            if isinstance(message, TypeWanted):
                process.send(asked.call)
                # What was said of it before was said of a call that the process has forgotten.
                if not process.expects(message.id):
                    process.send(Cancel(message.id, is_awaited=False))
                elif asked.cancel is not None and asked.cancel.is_set():
                    process.send(Cancel(message.id, is_awaited=True))
                return
            try:
                if isinstance(message, Question):
                    loop.call_soon_threadsafe(self._check, message)
                else:
                    loop.call_soon_threadsafe(answers.put_nowait, message)
            except RuntimeError:  # the loop is closed: nobody waits
                process.drop(message.id)

        self._number = asked.call.id = process.register(hear)
        if isinstance(asked.call, Call):
            _send(process, asked.call)
        else:
            process.send(asked.call)
        if asked.cancel is not None:
            self._poll = loop.call_later(0, self._ask, loop, asked.cancel)

    def _check(self, question: Question) -> None:
        """Make the checks of what has been written."""
        process, judge = self._process, self._judge
        if process is None or judge is None:
            return
        try:
            verdict = judge.answer(question)
        except Exception as error:  # the user's code has failed, and not refused
            self._answers.put_nowait(Ended(question.id, None, error))
            return
        process.send(verdict)

    async def answer(self) -> Text | Ended:
        """What comes next."""
        while isinstance(message := await self._answers.get(), Scores):
            self._logprobs += message.logprobs
            self.steps += message.steps
        if isinstance(message, Ended):
            self.drop()
            if isinstance(message.error, ValidationFailed) and self._judge is not None:
                message.error.__cause__ = self._judge.error
            if self._logprobs and message.result is not None:
                scored = message.result.scored_by(tuple(self._logprobs))
                return replace(message, result=scored)
        return message

    async def end(self) -> Ended:
        """Its end."""
        while True:
            message = await self.answer()
            if isinstance(message, Ended):
                return message

    def drop(self) -> None:
        """Note that nobody waits for it any more: if it goes on, it ends within one pass."""
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
            "are made of texts, numbers, lists and dicts."
        ) from error
    finally:
        call.lowered = lowered


def raised(ended: Ended) -> Any:
    """The result of a call that has ended.

    Raises:
        StructgenError: what it failed with.
    """
    if ended.error is not None:
        raise ended.error
    return ended.result
