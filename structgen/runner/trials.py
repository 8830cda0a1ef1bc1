"""Compile foreign output types in a separate process, where they can do no harm.

`Trials` has processes that compile the form of a request as the Runner would, with limits on time
and memory. A process that exceeds one is killed and replaced, and the request is refused. The
engine's own work limit (`CompileLimitExceeded`) stops most hostile forms earlier, but until then
they would block a server's threads, which share one interpreter lock. Owners share the processes
fairly (`loops.Places`). Processes are started in advance, because starting one takes seconds on a
busy machine.

Answers are cached: the same form gets the same answer again. A process that died or ran out of time
gives no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any, final

from structgen.automaton import build
from structgen.constraint import check_grammar
from structgen.errors import OutputTypeError, RequestError, StructgenError, WorkerDied
from structgen.grammar import ir, reading
from structgen.insight import picture
from structgen.storage import KeptByBytes
from structgen.types import Regex, lower
from structgen.workers import STRANGER, owner, python

from .constraints import dialect, refusal, wanted
from .hosts import resident
from .loops import Places
from .requests import ChatRequest, Sampled

PROCESSES = 3
"""Forms compiled at once, at most two of one owner; and as many more for owners that have none
running."""

RUNNING = PROCESSES + 1
"""Processes that run: one more, for an owner that finds the others busy."""

_MOST_WAITING = 64
"""Most forms that wait, half a megabyte each."""

_NICE = 5
"""Added to the nice value of these processes, so that they do not slow the models down."""

_KEPT_BYTES = 4 << 20
"""Most bytes of cached answers, some thousands of them."""

_TIRED = 256 << 20
"""A process that holds more bytes than this after a form is replaced."""

_TRIES = 2
"""How often a form is tried if its process dies."""

_FIELDS = (
    "response_format",
    "grammar",
    "grammar_type",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
_CHAT = {"messages": "-"}
_HEAD = struct.Struct(">I")


def check_form(request: Sampled, max_work: int = reading.MAX_WORK) -> None:
    """Compile the form of a request, for no particular model, within a number of steps.

    Raises:
        RequestError: it cannot be enforced; ``param`` names the field.
    """
    asked = wanted(request)
    if asked.type is None:
        return
    try:
        with reading.reading(max_work):
            grammar = lower(asked.type).grammar
        build(grammar, {"max_work": max_work})
    except OutputTypeError as error:
        raise refusal(error, asked) from error


def problems_of(
    grammar_type: str, grammar: Any, max_work: int = reading.MAX_WORK
) -> list[dict[str, Any]]:
    """Return the problems of a form, found within a number of steps, each with ``message``,
    ``line``, ``path`` and ``is_error``."""
    found: list[dict[str, Any]] = []
    if grammar_type in ("lark", "gbnf") and isinstance(grammar, str) and grammar.strip():
        kind = dialect(grammar_type, grammar)
        known = check_grammar.problems(grammar, None, kind, max_work=max_work)
        found = [
            {"message": one.message, "line": one.line, "path": None, "is_error": one.is_error}
            for one in known
        ]
        if any(one["is_error"] for one in found):
            return found
    try:
        fields = {"grammar": grammar, "grammar_type": grammar_type}
        check_form(ChatRequest.of(_CHAT, fields), max_work)
    except RequestError as error:
        found.append({"message": str(error), "line": None, "path": error.param, "is_error": True})
    return found


def picture_of(pattern: str) -> dict[str, Any]:
    """Return the automaton of a regular expression, as ``states``, ``edges`` and ``is_whole``.

    Raises:
        RequestError: it is not a regular expression, or matches no text.
    """
    try:
        grammar = lower(Regex(pattern)).grammar
        assert isinstance(grammar, ir.Pattern)
        return picture(grammar.regex)
    except OutputTypeError as error:
        raise RequestError(f"regex: {error}", param="regex") from error


@final
class Trials:
    """Processes that compile foreign forms. For one event loop; close it there."""

    def __init__(self, seconds: float, memory: int) -> None:
        """Set the limits; no process starts yet.

        Args:
            seconds: the time that a form may take.
            memory: bytes of address space that a process may have; about 300 MB of it are used
                before the first form.
        """
        self._seconds = seconds
        self._memory = memory
        self._idle: list[asyncio.subprocess.Process] = []
        self._is_closed = False
        self._places = Places(PROCESSES, _MOST_WAITING, beyond=True)
        self._known: KeptByBytes[tuple[str, str | None, Any]] = KeptByBytes(
            _KEPT_BYTES, lambda verdict: len(verdict[0].encode())
        )

    async def start(self, number: int = RUNNING) -> None:
        """Start the processes, so that no form waits for one to start."""
        while len(self._idle) < number - self._places.active:
            async with self._places.of(None):
                self._idle.append(await self._process())

    async def check(self, request: Sampled) -> None:
        """Check the form of a request.

        Raises:
            RequestError: it cannot be enforced, or takes too much time or memory.
        """
        fields = {
            name: value for name in _FIELDS if (value := getattr(request, name, None)) is not None
        }
        format_ = fields.get("response_format")
        if isinstance(format_, Mapping) and format_.get("type") in ("text", "json_object"):
            del fields["response_format"]
        if not {"response_format", "grammar", "tools"} & fields.keys():
            return
        text = _asks("check", fields=fields)
        digest = hashlib.sha256(text).digest()
        verdict = self._known.get(digest)
        if verdict is None:
            reply = await self._asked(text)
            verdict = (reply.get("error", ""), reply.get("param"), reply.get("kind"))
            self._known.add(digest, verdict)
        message, param, kind = verdict
        if message:
            cause = None if kind else OutputTypeError()
            raise RequestError(message, param=param, kind=kind or "invalid") from cause

    async def problems(self, grammar_type: str, grammar: Any) -> list[dict[str, Any]]:
        """`problems_of`, in a process. A form that takes too much is a problem, too."""
        text = _asks("problems", grammar_type=grammar_type, grammar=grammar)
        try:
            return list(_answer_in(await self._asked(text)))
        except RequestError as error:
            return [{"message": str(error), "line": None, "path": error.param, "is_error": True}]

    async def picture(self, pattern: str) -> dict[str, Any]:
        """`picture_of`, in a process.

        Raises:
            RequestError: as in `picture_of`, or it takes too much.
        """
        return dict(_answer_in(await self._asked(_asks("picture", regex=pattern))))

    async def _asked(self, text: bytes) -> dict[str, Any]:
        """Return a process's answer: an ``answer``, or an ``error`` with its ``param``.

        Raises:
            RequestError: it ran out of time; this is not cached.
            WorkerDied: the process died, and so did another for the same form.
        """
        for _ in range(_TRIES):
            reply = await self._places.hold(owner(), lambda _: self._tried(text))
            if reply is None:
                continue
            if "memory" in reply:
                reply = {
                    "error": f"Compiling the output form needs more than {self._memory:,} bytes. "
                    "Simplify it.",
                    "param": _place(text),
                }
            return reply
        raise WorkerDied(
            "The process that compiles output forms crashed twice without an error message. Send "
            "the request again."
        )

    async def _tried(self, text: bytes) -> dict[str, Any] | None:
        """Return one process's answer; None: it died."""
        process = self._idle.pop() if self._idle else await self._process()
        is_fine = False
        try:
            reply = await asyncio.wait_for(_exchange(process, text), self._seconds)
            # A process that still holds much memory would refuse later forms.
            is_fine = "memory" not in reply and resident(process.pid) < _TIRED
        except asyncio.TimeoutError:
            raise RequestError(
                f"Compiling the output form took longer than {self._seconds:g} s. Simplify it.",
                param=_place(text),
            ) from OutputTypeError()
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            await self._back(process, is_fine)
        return reply

    async def _back(self, process: asyncio.subprocess.Process, is_fine: bool) -> None:
        """Make a process ready for the next form: this one or a new one."""
        is_needed = len(self._idle) < RUNNING and not self._is_closed
        if is_fine and is_needed:
            self._idle.append(process)
            return
        await _ended(process)
        if is_needed:
            with contextlib.suppress(WorkerDied):  # the next form starts one or reports the error
                self._idle.append(await self._process())

    async def _process(self) -> asyncio.subprocess.Process:
        code = (
            f"import os; hasattr(os, 'nice') and os.nice({_NICE}); "
            f"from structgen.runner import trials; trials.work({self._memory})"
        )
        process = await asyncio.create_subprocess_exec(
            *python(code), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            await _read(process)  # it has started; from now on its time counts
        except BaseException as error:
            await _ended(process)
            if not isinstance(error, asyncio.IncompleteReadError):
                raise
            raise WorkerDied(
                "The process that compiles output forms does not start. See its standard error "
                "for the reason."
            ) from None
        return process

    async def close(self) -> None:
        """End the processes."""
        self._is_closed = True
        while self._idle:
            await _ended(self._idle.pop())


def _asks(do: str, **given: Any) -> bytes:
    """Return the message for a process, with the number of steps it may take."""
    stranger = STRANGER.get()
    most = reading.MAX_WORK if stranger is None else stranger.max_work
    return json.dumps({"do": do, "max_work": most, **given}).encode()


def _answer_in(reply: dict[str, Any]) -> Any:
    if "error" in reply:
        raise RequestError(reply["error"], param=reply["param"])
    return reply["answer"]


def _place(text: bytes) -> str | None:
    """Return the field of a form that takes too much."""
    given = json.loads(text)
    places = given.get("fields", given)
    return next((name for name in (*_FIELDS, "regex") if name in places), None)


async def _exchange(process: asyncio.subprocess.Process, text: bytes) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(_HEAD.pack(len(text)) + text)
    await process.stdin.drain()
    return await _read(process)


async def _read(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    (size,) = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))
    reply: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
    return reply


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


# -- in the process ---------------------------------------------------------------------------


def work(memory: int) -> None:
    """Answer requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    try:
        _answer_all(memory)
    except BrokenPipeError:  # the parent was killed, and Python's exit would write once more
        os._exit(1)


def _answer_all(memory: int) -> None:
    given, out = sys.stdin.buffer, sys.stdout.buffer
    out.write(_HEAD.pack(2) + b"{}")
    out.flush()
    while len(head := given.read(_HEAD.size)) == _HEAD.size:
        text = given.read(_HEAD.unpack(head)[0])
        try:
            reply = json.dumps(_answer(json.loads(text), memory)).encode()
        except MemoryError:
            reply = b'{"memory": true}'
        out.write(_HEAD.pack(len(reply)) + reply)
        out.flush()


def _answer(asked: Mapping[str, Any], memory: int) -> dict[str, Any]:
    try:
        most = asked["max_work"]
        if asked["do"] == "check":  # without memory Pydantic aborts the process
            request = ChatRequest.of(_CHAT, asked["fields"])
        with _within(memory):
            if asked["do"] == "problems":
                return {"answer": problems_of(asked["grammar_type"], asked["grammar"], most)}
            if asked["do"] == "picture":
                with reading.reading(most):
                    return {"answer": picture_of(asked["regex"])}
            check_form(request, most)
    except StructgenError as error:
        # None: the form in the field is wrong, not the field itself.
        kind = None if error.__cause__ is not None else getattr(error, "kind", None)
        return {"error": str(error), "param": getattr(error, "param", None), "kind": kind}
    return {"answer": None}


@contextlib.contextmanager
def _within(memory: int) -> Iterator[None]:
    """Limit this process's memory, if the system can.

    The limit is lifted at the end, so that there is memory to report that it was reached.
    """
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory if hard < 0 else min(memory, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
