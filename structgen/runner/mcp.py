"""MCP servers as sources of tools, through the official ``mcp`` package (extra ``mcp``).

An `McpServer` is one server, reached over standard input and output or HTTP, with its connection,
its tools as `Tool`s, and its errors. Each connection has a thread and event loop of its own, so
tools can be called from any thread and loop, and a server that hangs blocks nobody. What a server
says about its tools, and what they return, is untrusted text, and the prompt says so. ``mcp`` is
imported when a server is opened.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import contextvars
import importlib
import json
import logging
import math
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar, cast, final

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from structgen.automaton.core import GROW
from structgen.automaton.work import Limits, sharing
from structgen.constraint import compile as compile_constraint
from structgen.errors import OptionError, OutputTypeError, ToolServerError, printable, requires
from structgen.insight import check_values
from structgen.vocabulary import Vocabulary
from structgen.workers import MAX_WORK

from .fields import MAX_VALUES
from .loops import in_thread
from .requests import excess_of_tools
from .tools import Tool, ToolFailure, as_text, check_seconds

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as McpTool

_MOST_BYTES = 16 << 20  # bytes of one answer
_MOST_STREAM = 4 << 20  # bytes of a streamed one, resumed or not, with events of at most 1 MiB
_MOST_HELD = 128 << 20  # bytes of all a server's unfinished answers
_ENCODING = "structgen_lines"  # of a program's output: see `_Lines`
_MOST_PAGES = 100  # pages of a server's list of tools
_LONGEST_TOOL = 100_000  # of a tool's name, description and schema, which are in each prompt
_LONGEST_SHOWN = 2_000  # characters of foreign text in an error message
_LONGEST_ID = 100  # characters of the id of a server's request
_MOST_WRONG = 1_000  # invalid values that are named: 500,000 take 1.3 s and 300 MB
_MOST_PARTS = 10_000  # items of an answer's content: `mcp` makes errors of 30 kB for a wrong one
_HEADERS = ("content-type", "content-encoding", "mcp-session-id")  # that are read
_LONGEST_EVENT_ID = 1_000  # characters
_MOST_RESUMED = 100  # times that broken streams are resumed at once,
_RESUME_SECONDS = 0.5  # then one in so many seconds
_BURST_SECONDS = 2.0  # seconds that a thread here may compute at once, while others wait,
_CALL_SECONDS = 0.25  # more of these for each call,
_SHARE = 0.1  # and this share of the time
_REST_SECONDS = 1.0  # seconds that it sleeps at most
_CLOSE_SECONDS = 5.0  # seconds to tell an HTTP server that a session has ended
_MOST_TASKS = 2_000  # requests of its own, beside those of calls, that wait
_LOOK_SECONDS = 1.0
_LONGEST_LOG = 1 << 20  # characters of a line that is no message
_LINES_KEPT = 10  # last lines of a server's standard error,
_LAST_SECONDS = 0.2  # for which an error waits
_CLOSED = "Connection closed"  # as `mcp` says it
_LONGEST_LINE = 500  # characters that are kept of each line
_END = "\0 the program has ended\n"  # the last line of its standard error
_TOO_LONG = "an answer of more than {:,} bytes"
_BLANK_LINE = re.compile(rb".*(\n\n|\n\r\n|\r\r)", re.DOTALL)  # the last one
_HEADER = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_RETRY = re.compile(rb"((?:\A|[\r\n])retry:)([^\r\n]*)")
"""Matches fields of event streams: after how many milliseconds a broken stream is resumed."""
_HALF = re.compile(
    r"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F]..)"
)
"""Matches a lone surrogate in JSON without ``\\\\``, which a text cut within a character leaves."""
_TOO_MANY = f"an answer of more than {MAX_VALUES:,} values"  # 20 us each for `mcp`


_HERE = threading.local()


def _is_logged(record: logging.LogRecord) -> bool:
    """Return False for ``mcp``'s long logs of invalid answers, which callers get anyway."""
    return record.levelno < logging.WARNING or not hasattr(_HERE, "is_ours")


for _name in ("client.stdio", "client.streamable_http", "shared.jsonrpc_dispatcher"):
    logging.getLogger(f"mcp.{_name}").addFilter(_is_logged)
logging.getLogger("client").addFilter(_is_logged)  # of ``mcp.client.session``


class _Unreadable(Exception):
    """The server sent something that is not a message."""


T = TypeVar("T")

Opening: TypeAlias = "Callable[[contextlib.AsyncExitStack, TextIO], Any]"
"""Opens a transport of the ``mcp`` package; the second argument takes a program's standard error.
"""


class Connection:
    """An open connection: its thread, its event loop, and the tools that call through it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop
        self._stop = asyncio.Event()
        self._ready: Future[tuple[Tool, ...]] = Future()
        self._ended: BaseException | None = None
        self._client: Client | None = None
        self._last_lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._calls: set[asyncio.Task[CallToolResult]] = set()
        self._unreadable: _Unreadable | None = None
        self._sessions = 0  # sessions begun after the first,
        self._beginning = asyncio.Lock()  # one at a time
        self._pace: _Pace
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"mcp {server.name}", daemon=True)
        self._thread.start()
        try:
            self.tools = self._ready.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection and wait until it has ended. Calling it again does nothing."""
        # A closed loop has ended by itself.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        """Run the thread, from the beginning of the connection to its end."""
        _HERE.is_ours = True
        self._pace = _Pace()

        async def paced() -> None:
            while True:
                self._pace.rest()
                await asyncio.sleep(0.1)

        async def live() -> None:
            self._pacing = asyncio.ensure_future(paced())  # until this loop ends
            try:
                await self._live()
            except BaseException as error:  # before calls under way are cancelled
                self._ended = error
                if not self._ready.done():
                    self._ready.set_exception(self._failure("cannot be reached", error))

        asyncio.run(live())

    async def _live(self) -> None:
        import anyio  # which comes with mcp

        self._loop = asyncio.get_running_loop()
        mcp = package()
        deadline = anyio.current_time() + self._server._connect_timeout

        async def receive(message: object) -> None:
            """Fail all waiting calls if an answer cannot be read, because nobody knows which call
            it answers."""
            why = _why_unreadable(message)
            if why is not None:
                give_up(why)

        def give_up(why: str) -> None:
            self._unreadable = _Unreadable(why)
            waiting: Iterable[Any] = self._calls if self._ready.done() else [scope]
            for one in waiting:
                one.cancel()

        with anyio.CancelScope(deadline=deadline) as scope:
            async with contextlib.AsyncExitStack() as stack:
                errors = stack.enter_context(_lines_to(self._last_lines))
                transport = await self._server._opening(stack, errors)
                client = await stack.enter_async_context(
                    mcp.Client(transport, message_handler=receive, cache=None)
                )
                self._client = client
                client.session.validate_tool_result = _unchecked
                listed = [tool async for tool in self._listed(client)]
                # In another thread: the server's tools may take long to compile.
                tools = await in_thread(lambda: self._offered(listed), "mcp tools")
                scope.deadline = math.inf
                self._ready.set_result(tools)
                while not self._stop.is_set():
                    with anyio.move_on_after(_LOOK_SECONDS):
                        await self._stop.wait()
                    # Each request of the server waits in a task until the server reads the answer.
                    if len(asyncio.all_tasks()) > _MOST_TASKS + 9 * len(self._calls):
                        give_up("more requests of its own than it reads answers to")
                        break
                scope.deadline = anyio.current_time() + _CLOSE_SECONDS
                if not self._stop.is_set():
                    raise cast("_Unreadable", self._unreadable)
        if scope.cancelled_caught and not self._stop.is_set():
            raise self._unreadable or TimeoutError

    async def _listed(self, client: Client) -> AsyncIterator[McpTool]:
        cursor: str | None = None
        size = nested = 0
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            text = page.model_dump_json()
            size, nested = size + len(text), nested + text.count("{") + text.count("[")
            if size > _MOST_BYTES:
                raise _Unreadable(f"a list of tools of more than {_MOST_BYTES:,} bytes")
            if nested > MAX_VALUES:  # 16 MB of those take 600 MB of memory
                raise _Unreadable(f"a list of tools of more than {MAX_VALUES:,} objects and arrays")
            for tool in page.tools:
                yield tool
            cursor = page.next_cursor
            if cursor is None:
                return
        raise self._error(f"lists its tools in more than {_MOST_PAGES} pages.")

    def _offered(self, listed: Sequence[McpTool]) -> tuple[Tool, ...]:
        only = self._server._only
        names = [tool.name for tool in listed]
        missing = [name for name in only or () if name not in names]
        if missing:
            known = printable(", ".join(names)[:_LONGEST_SHOWN]) or "none"
            raise self._error(f"has no tool {missing[0]!r}. Its tools: {known}.")
        wanted = {tool.name: tool for tool in listed if only is None or tool.name in only}
        for name, count in Counter(names).items():
            if count > 1 and name in wanted:
                raise self._error(f"lists several tools named {name[:_LONGEST_SHOWN]!r}.")
        prompted = {"name", "description", "input_schema"}
        size = sum(len(tool.model_dump_json(include=prompted)) for tool in wanted.values())
        if (excess := excess_of_tools(len(wanted), size)) is not None:
            raise self._error(f"lists {excess} Choose the tools to offer with only=[...].")
        offered: list[Tool] = []
        spent = [0]
        for tool in wanted.values():
            if self._ready.done():
                break  # It took too long; nobody waits for the rest.
            offered.append(self._tool(tool, spent))
        return tuple(offered)

    def _tool(self, tool: McpTool, spent: list[int]) -> Tool:
        """Make a tool. All tools of a server share the limit on compile steps, counted in
        ``spent``."""

        async def call(**arguments: Any) -> str:
            return await self._called(tool.name, arguments)

        function = {
            "name": f"{self._server._prefix}{tool.name}",
            "description": tool.description or tool.title or "",
            "parameters": tool.input_schema,
        }
        try:
            size = len(as_text(function))
            if size > _LONGEST_TOOL:
                raise OutputTypeError(
                    f"its name, description and arguments have {size:,} characters. They are part "
                    f"of each prompt, so the limit is {_LONGEST_TOOL:,}."
                )
            made = Tool(
                {"type": "function", "function": function}, call, timeout=self._server._timeout
            )
            made._is_foreign = True
            with GROW, sharing(Limits(MAX_WORK), spent):
                compile_constraint(made.definition.output, _bytes())
            return made
        except OutputTypeError as error:
            reason = str(error).replace(", or raise max_work", "")
            why = "\n".join(map(printable, reason.split("\n")))
            raise ToolServerError(
                f"The tool {tool.name[:_LONGEST_SHOWN]!r} of the MCP server {self._server.name} "
                f"cannot be offered: {why}\n  Choose the tools to offer with only=[...], without "
                "this one.",
                server=self._server.name,
            ) from error

    async def _called(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool, from any loop.

        Raises:
            ToolFailure: the tool or the server failed.
        """
        if self._ended is not None:
            raise self._tool_failure("has disconnected", self._ended)
        called = self._call(name, arguments)
        try:
            if self._pid != os.getpid():  # the thread is the parent's: a call would not end
                raise RuntimeError("this process was forked from the one that is connected")
            future = asyncio.run_coroutine_threadsafe(called, self._loop)
        except RuntimeError as error:  # or the loop is closed
            called.close()
            raise self._tool_failure("is closed", error) from error
        answer = asyncio.wrap_future(future)
        try:
            await asyncio.wait([answer])
        except BaseException:
            answer.cancel()
            raise
        if not answer.cancelled():
            return answer.result()
        # The connection has ended, and calls under way with it. The caller is not cancelled.
        if self._ended is not None:
            raise self._tool_failure(f"disconnected during a call of {name}", self._ended)
        raise ToolFailure(f"The MCP server {self._server.name} was closed during a call of {name}.")

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            json.dumps(arguments, allow_nan=False)
            to_json([{"params": {"arguments": arguments}}])  # a little deeper than the message
        except ValueError as error:  # it would end the connection, or become null
            raise ToolFailure(f"The arguments cannot be written as JSON: {error}") from error
        exchange = _Exchange(math.inf)
        _CALL.set(exchange)
        call = asyncio.ensure_future(self._answer(name, arguments, exchange))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait([call])
            if call.cancelled() and self._unreadable is not None:
                raise self._unreadable
            result = call.result()
        except Exception as error:
            if str(error) == _CLOSED:
                await asyncio.sleep(_LAST_SECONDS)
            raise self._tool_failure(f"failed during a call of {name}", error) from error
        finally:
            call.cancel()
            exchange.end()
            self._pace.left += _CALL_SECONDS
        text = _text(result)
        if result.is_error:
            raise ToolFailure(text)
        return text

    async def _answer(
        self, name: str, arguments: dict[str, Any], exchange: _Exchange
    ) -> CallToolResult:
        """Call a tool; in a new session if the server has restarted and does not know this one."""
        assert self._client is not None
        # Not by the client's method: it lists the tools again whenever a server says so, and keeps
        # all lists.
        session, sessions = self._client.session, self._sessions
        try:
            return await session.call_tool(name, arguments)
        except package().MCPError:
            if not exchange.is_session_over:
                raise
        async with self._beginning:
            if self._sessions == sessions:
                await self._begin(session)
                self._sessions += 1
        return await session.call_tool(name, arguments)

    async def _begin(self, session: Any) -> None:
        """Begin a session."""
        types = importlib.import_module("mcp_types")
        params = types.InitializeRequestParams(
            protocol_version=session.protocol_version,
            capabilities=types.ClientCapabilities(),
            client_info=importlib.import_module("mcp.client.session").DEFAULT_CLIENT_INFO,
        )
        begun = await session.send_request(
            types.InitializeRequest(params=params),
            types.InitializeResult,
            request_read_timeout_seconds=self._server._connect_timeout,
        )
        if (version := begun.protocol_version) not in types.version.HANDSHAKE_PROTOCOL_VERSIONS:
            shown = printable(version[:_LONGEST_ID])
            raise _Unreadable(f"its MCP version {shown}, which is not supported")
        session.adopt(begun)
        await session.send_notification(types.InitializedNotification())

    def _tool_failure(self, what: str, error: BaseException) -> ToolFailure:
        """Return the failure: a text for the model, and one for the caller with the server's last
        output."""
        failure = self._failure(what, error)
        return ToolFailure(str(failure).partition("\n")[0], detail=str(failure))

    def _failure(self, what: str, error: BaseException) -> ToolServerError:
        if isinstance(error, ToolServerError):
            return error
        inner = getattr(error, "exceptions", ())
        if inner:  # of an exception group, which anyio raises
            return self._failure(what, inner[0])
        if isinstance(error, ValidationError) and error.error_count() > _MOST_WRONG:
            error = ValueError(f"{error.error_count():,} values of its {error.title} are invalid")
        why = printable(f"{type(error).__name__}: {error}"[:_LONGEST_SHOWN].rstrip(": "))
        if isinstance(error, _Unreadable):
            why = f"it sent what structgen rejects: {error}"
        if isinstance(error, TimeoutError):
            why = f"it did not answer within {self._server._connect_timeout:g} s"
        printed = "".join(f"\n    {line}" for line in self._last_lines)
        if printed:
            printed = f"\n  The last lines of its standard error:{printed}"
        return self._error(f"{what}: {why}.{printed}")

    def _error(self, what: str) -> ToolServerError:
        name = self._server.name
        return ToolServerError(f"The MCP server {name} {what}", server=name)


def _why_unreadable(message: object) -> str | None:
    """Return why something received is not a message, if it should be one."""
    if not isinstance(message, ValidationError):
        return None
    first = message.errors(include_url=False)[0]
    given = first["input"]
    if isinstance(given, str):
        if len(given) > _MOST_BYTES:
            return _TOO_LONG.format(_MOST_BYTES)
        if given == f"{{{_TOO_MANY}":
            return _TOO_MANY
    why = printable(first["msg"])
    if "recursion" in why:
        why += " (values are nested too deeply; have the tool return a flatter structure)"
    return why


async def _unchecked(name: str, result: CallToolResult) -> None:
    """Accept what a tool returns without checking it against the server's output schema.

    ``mcp`` would match the server's patterns with Python's ``re``, which blocks all threads and may
    never end.
    """


@contextlib.contextmanager
def _lines_to(kept: deque[str]) -> Iterator[TextIO]:
    """Yield a file to write to; its last lines are kept. What is written later, by what a program
    has left running, is not read."""
    read, write = os.pipe()

    def follow() -> None:
        begins, pace = True, _Pace()
        with open(read, encoding="utf-8", errors="replace") as lines:
            while (piece := lines.readline(_LONGEST_LINE)) not in ("", _END):  # it may never end
                if begins and not piece.isspace():
                    kept.append(printable(piece.rstrip()))
                begins = piece.endswith("\n")
                pace.rest()

    thread = threading.Thread(target=follow, name="mcp errors", daemon=True)
    thread.start()
    with open(write, "w", encoding="utf-8") as file:
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # the program has written this itself
                file.flush()
                os.write(write, f"\n{_END}".encode())
            thread.join(_LAST_SECONDS)


class _Pace:
    """Makes its thread sleep if it computes too much, because other threads wait for the
    interpreter meanwhile.

    Nothing else limits what a server sends unasked. An honest server needs a hundredth of this.
    """

    def __init__(self) -> None:
        self.left = _BURST_SECONDS  # seconds that the thread may still compute
        self._seen, self._used = time.monotonic(), time.thread_time()

    def rest(self) -> None:
        """Sleep if necessary."""
        now, used = time.monotonic(), time.thread_time()
        earned = (now - self._seen) * _SHARE
        self.left = min(self.left + earned - (used - self._used), _BURST_SECONDS)
        self._seen, self._used = now, used
        if self.left < 0:
            time.sleep(min(-self.left / _SHARE, _REST_SECONDS))


def _has_many(text: str) -> bool:
    """Return whether a message has too many values."""
    try:
        check_values(text, MAX_VALUES)
    except ValueError:
        return True
    return False


def _decoded(data: bytes | bytearray) -> str:
    """Decode JSON, with ``\ufffd`` for lone surrogates, which ``mcp`` cannot read."""
    text = data.decode("utf-8-sig", "replace").replace(r"\\", r"\u005c")  # it escapes what follows
    return _HALF.sub(r"\\ufffd", text, MAX_VALUES)


class _Lines(codecs.IncrementalDecoder):
    """Decodes UTF-8 by whole lines. A line that is too long is cut. One with too many values is
    replaced by a note that says so. Other output of programs is dropped: whatever is not an object,
    and short objects that do not say they are messages, as in logs.

    ``mcp`` lets its user choose the encoding of a program's output; this codec uses that. ``mcp``
    itself would keep an endless line, and stop reading at invalid UTF-8.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._held = bytearray()
        self._is_cut = False

    def decode(self, data: Any, final: bool = False) -> str:
        if self._is_cut:
            _, newline, data = bytes(data).partition(b"\n")
            self._is_cut = not newline
        begin = len(self._held)
        self._held += data
        end = len(self._held) if final else self._held.rfind(b"\n", begin) + 1
        if not end and len(self._held) > _MOST_BYTES:
            self._is_cut = True
            self._held += b"\n"
            end = len(self._held)
        *lines, rest = _decoded(self._held[:end]).split("\n")
        del self._held[:end]
        messages = [
            line
            for line in lines
            if line.lstrip().startswith("{") and ('"jsonrpc"' in line or len(line) > _LONGEST_LOG)
        ]
        kept = [f"{{{_TOO_MANY}" if _has_many(one) else one for one in messages]
        return "\n".join([*kept, rest])


def _lines_codec(name: str) -> codecs.CodecInfo | None:
    if name != _ENCODING:
        return None
    return codecs.CodecInfo(
        codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=_Lines, name=name
    )


codecs.register(_lines_codec)


class _Received:
    """What ``mcp`` gets of a server's messages: answers, and the fact that something was asked.

    structgen uses no notifications, but ``mcp`` starts a task for each, and writes a page of log
    for an invalid one. It keeps a request until the server has read the refusal. It collects all
    errors of an invalid answer.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> _Received:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Received:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await anext(self._stream)
            if isinstance(item, Exception):
                return item
            message = item.message
            if not hasattr(message, "method"):
                wrong = _wrong_with(getattr(message, "result", {}))
                if wrong is not None:  # others wait for others
                    types = importlib.import_module("mcp_types")
                    error = types.ErrorData(code=types.INTERNAL_ERROR, message=wrong)
                    item.message = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                return item
            if hasattr(message, "id") and len(str(message.id)) <= _LONGEST_ID:
                message.params = None
                if message.method != "ping":
                    message.method = "unsupported"
                return item


def _wrong_with(result: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an answer: it has too much of something, or is a request."""
    if result.get("resultType", "complete") != "complete":
        return "a request for input, which structgen does not provide"
    parts = result.get("content")
    is_long = isinstance(parts, list) and len(parts) > _MOST_PARTS
    return f"an answer of more than {_MOST_PARTS:,} parts" if is_long else None


@contextlib.asynccontextmanager
async def _received(transport: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A transport read through `_Received`."""
    async with transport as (read, write):
        yield _Received(read), write


class _Exchange:
    """Requests over HTTP with their answers, dropped when their call ends or its time is up.

    ``mcp`` would go on reading what may have no end: comments of streams, headers of answers.
    """

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds
        self._scope: Any = None
        self.is_session_over = False  # as the answer said
        self.size = 0  # bytes that were read

    async def wait(self, awaited: Awaitable[T]) -> T:
        """Wait for something, at most until the exchange ends."""
        import anyio

        with anyio.CancelScope(deadline=self._until) as self._scope:
            return await awaited
        raise _Unreadable("an answer after the call had ended")

    def end(self) -> None:
        """Drop requests under way and those that begin later."""
        self._until = -math.inf
        if self._scope is not None:
            self._scope.cancel()


_CALL: contextvars.ContextVar[_Exchange | None] = contextvars.ContextVar(
    "structgen_mcp_call", default=None
)
"""The exchange of the call that this code runs for."""


class _Bounded:
    """Sends requests over HTTP. Answers are limited in size and time, and little of them is held in
    memory.

    What a server sends unasked is not used. Errors are turned into answers to a message; otherwise
    ``mcp`` would end the connection that all callers share. ``seconds`` limits requests that are
    not calls.
    """

    def __init__(self, client: Any, web: Any, seconds: float) -> None:
        self._web, self._seconds = web, seconds
        self._send, client.send = client.send, self.send
        self._cookies = client.cookies
        self._resumes_until = 0.0
        self._retry_seconds = 0.0  # as the server says
        self._held = 0

    async def send(self, request: Any, **options: Any) -> Any:
        try:
            return await self._sent(request, options)
        except (self._web.TransportError, _Unreadable) as error:
            if request.method != "POST":
                raise
            failure = {"code": -32000, "message": str(error) or type(error).__name__}
            answer = {"jsonrpc": "2.0", "id": None, "error": failure}
            return self._web.Response(502, json=answer, request=request)

    async def _sent(self, request: Any, options: Mapping[str, Any]) -> Any:
        from structgen.remote import bound_cookies  # importing takes 30 ms, and few Runners need it

        exchange = _CALL.get()
        is_resumed = "last-event-id" in request.headers
        # The body of a redirected request has not been read yet.
        sent = {} if is_resumed else from_json(request.read() or b"{}")
        if sent.get("method") == "initialize":
            request.headers.pop("mcp-session-id", None)
        if exchange is None or not (is_resumed or "id" in sent):
            exchange = _Exchange(self._seconds)  # also the notice that a call is cancelled
        if request.method == "GET":
            if not is_resumed:
                raise _Unreadable("an unrequested event stream")
            if len(request.headers["last-event-id"]) > _LONGEST_EVENT_ID:
                raise _Unreadable("an event with a long id")
            now = time.monotonic()
            begun = max(self._resumes_until, now - _MOST_RESUMED * _RESUME_SECONDS)
            self._resumes_until = begun + _RESUME_SECONDS
            seconds = max(self._resumes_until - now, self._retry_seconds)
            await exchange.wait(asyncio.sleep(seconds))
        response = await exchange.wait(self._send(request, **options))
        response.encoding = "utf-8"
        bound_cookies(self._cookies)
        whole, web = response.stream, self._web
        # A call keeps the answers that were resumed, with their requests, until it ends.
        response.headers = web.Headers([x for x in response.headers.items() if x[0] in _HEADERS])
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise _Unreadable("a compressed answer although compression was not requested")
            if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                pieces = self._pieces(whole, exchange, is_stream=True)

                class Events(web.AsyncByteStream):  # type: ignore[misc, name-defined]
                    async def __aiter__(self) -> AsyncIterator[bytes]:
                        try:
                            async for piece in pieces:
                                yield piece
                        except _Unreadable as error:  # other errors make `mcp` resume it
                            raise web.SSEError(f"{error}") from error

                    async def aclose(self) -> None:
                        await whole.aclose()

                response.stream = Events()
                return response
            pieces = self._pieces(whole, exchange, is_stream=False)
            held = b"".join([one async for one in pieces])
            status = response.status_code
            if status == 404 and "mcp-session-id" in request.headers and not is_resumed:
                # Only the answer to the call itself says that a method does not exist. And after a
                # broken stream the call may have run: it must not run again.
                exchange.is_session_over = _id_of(held) != sent.get("id")
            if status >= 400 and status != 404 and b'"jsonrpc"' not in held:
                raise _Unreadable(f"HTTP status {status} {response.reason_phrase}")
        except BaseException:
            await whole.aclose()
            raise
        await whole.aclose()
        response.stream = web.ByteStream(held)
        return response

    async def _pieces(
        self, whole: Any, exchange: _Exchange, *, is_stream: bool
    ) -> AsyncIterator[bytes]:
        """Yield an answer: all of it at once, or whole events of a stream."""
        most = _MOST_STREAM if is_stream else _MOST_BYTES
        held, pieces, is_over = bytearray(), aiter(whole), False
        try:
            while not is_over:
                piece = await exchange.wait(anext(pieces, None))
                is_over, piece, begin = piece is None, piece or b"", max(len(held) - 3, 0)
                held += piece
                exchange.size += len(piece)
                self._held += len(piece)
                if exchange.size > most:
                    raise _Unreadable(_TOO_LONG.format(most))
                if self._held > _MOST_HELD:
                    raise _Unreadable(f"answers of more than {_MOST_HELD:,} bytes at once")
                end = len(held) if is_over else 0
                if is_stream and not is_over and (blank := _BLANK_LINE.match(held, begin)):
                    end = blank.end()
                text = _decoded(held[:end])
                data = text.encode()
                del held[:end]
                self._held -= end
                if is_stream:  # `mcp` would wait even if the call has ended, with its last event
                    for _, given in _RETRY.findall(data):
                        number = given[:9].strip()
                        self._retry_seconds = int(number) / 1000 if number.isdigit() else 0.0
                    data = _RETRY.sub(rb"\g<1>0", data)
                if _has_many(text):
                    raise _Unreadable(_TOO_MANY)
                if data:
                    yield data
        finally:
            self._held -= len(held)


def _id_of(answer: bytes) -> Any:
    """Return the id of the request that a message answers; None if it cannot be read."""
    try:
        return from_json(answer)["id"]
    except (ValueError, LookupError, TypeError):
        return None


def _text(result: CallToolResult) -> str:
    """Return what a tool returned as text; models read nothing else."""
    parts: list[str] = []
    for item in result.content:
        if item.type == "text":
            parts.append(item.text)
        elif item.type == "resource" and hasattr(item.resource, "text"):
            parts.append(item.resource.text)
        elif item.type == "resource_link":
            parts.append(f"[{item.name}: {item.uri}]")
        else:
            kind = getattr(item, "mime_type", None) or "data"
            parts.append(f"[{item.type} of type {kind}, which cannot be shown as text]")
    if not parts and result.structured_content is not None:
        return as_text(result.structured_content)
    return "\n".join(parts)


def _bytes() -> Vocabulary:
    """Return a byte vocabulary, to test whether something compiles."""
    return Vocabulary.from_tokens([*(bytes([byte]) for byte in range(256)), b""], [256])


def package() -> Any:
    """Return the ``mcp`` package."""
    with requires(OptionError, "MCP servers need the mcp package, which is not installed", "mcp"):
        return importlib.import_module("mcp")


CONNECT_SECONDS = 30.0
"""Seconds in which a server must answer at first, by default."""


@final
class McpServer:
    """A server of tools that speaks MCP. Safe to share by threads, tasks and loops.

    Make one with `stdio` or `http`, and connect with ``with`` or ``async with``. While it is
    connected, `tools` has its tools, and the server itself can be an item of ``tools=``. If a call
    fails, for example because the server died, the model reads the error, and
    ``agentic_tool_calls`` of the answer has it.
    """

    def __init__(
        self,
        name: str,
        opening: Opening,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        """See `stdio` and `http`."""
        check_seconds("McpServer: timeout", timeout)
        check_seconds("McpServer: connect_timeout", connect_timeout)
        if isinstance(only, str):
            raise OptionError(f"McpServer: only={only!r} is a str. Pass a list of names.")
        if not isinstance(prefix, str):
            raise OptionError(f"McpServer: prefix={prefix!r} is not a str.")
        self.name = name
        self._opening = opening
        self._prefix = prefix
        self._only = None if only is None else tuple(only)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        arguments: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str | None = None,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> McpServer:
        """Return a server that is a program. It starts with the connection and ends with it.

        Args:
            command: the program.
            arguments: of its command line.
            env: environment variables. It gets these and a few harmless ones (PATH, HOME, …); this
                process's other variables are not passed on.
            cwd: the program's working folder.
            name: its name in messages; None: the command.
            prefix: put before the names of its tools, to tell them from other servers' tools.
            only: names of the tools to offer; None: all.
            timeout: seconds for one call; None: as the request says.
            connect_timeout: seconds until its tools must be known.

        Raises:
            OptionError: an option is wrong, or the ``mcp`` package is not installed.
        """
        mcp = package()
        parameters = mcp.StdioServerParameters(
            command=command,
            args=list(arguments),
            env=None if env is None else dict(env),
            cwd=None if cwd is None else Path(cwd),
            encoding=_ENCODING,
        )

        async def opened(stack: contextlib.AsyncExitStack, errors: TextIO) -> Any:
            return _received(mcp.stdio_client(parameters, errlog=errors))

        return cls(name or command, opened, prefix, only, timeout, connect_timeout)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        prefix: str = "",
        only: Collection[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> McpServer:
        """Return a server at a URL, over streamable HTTP.

        Args:
            url: such as ``http://127.0.0.1:8000/mcp``.
            headers: sent with each request, such as for authorization.
            name: its name in messages; None: the address without its password.
            prefix: as for `stdio`, and so are the other arguments.
            only: see `stdio`.
            timeout: see `stdio`.
            connect_timeout: see `stdio`.

        Raises:
            OptionError: an option is wrong, or the ``mcp`` package is not installed.
        """
        package()
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise OptionError(f"McpServer.http: {url!r} does not begin with http:// or https://.")
        for header, value in (headers or {}).items():
            # HTTP clients repeat a malformed header in their errors.
            if not (isinstance(value, str) and _HEADER.fullmatch(value)):
                raise OptionError(
                    f"McpServer.http: the header {header!r} must be printable ASCII without spaces "
                    "or line breaks around it."
                )
        transport = importlib.import_module("mcp.client.streamable_http")

        async def opened(stack: contextlib.AsyncExitStack, errors: TextIO) -> Any:
            # A few compressed bytes may become gigabytes.
            headers_ = {"Accept-Encoding": "identity", **(headers or {})}
            web = transport.httpx2
            # A call has its own time limit, also while it waits for one of the 100 connections.
            seconds = web.Timeout(connect_timeout, read=None, pool=None)
            client = transport.create_mcp_http_client(headers=headers_, timeout=seconds)
            _Bounded(client, web, connect_timeout)
            await stack.enter_async_context(client)
            return _received(transport.streamable_http_client(url, http_client=client))

        scheme, _, rest = url.partition("://")
        place = rest.partition("/")[0].rpartition("@")[2]
        name = name or f"{scheme}://{place}"
        return cls(name, opened, prefix, only, timeout, connect_timeout)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The server's tools, as they were when it was connected.

        Raises:
            ToolServerError: the server is not connected.
        """
        connection = self._connection
        if connection is None:
            raise ToolServerError(
                f"The MCP server {self.name} is not connected. Use it in a with statement: "
                "with server: ...",
                server=self.name,
            )
        return connection.tools

    def start(self) -> McpServer:
        """Connect and list the tools, as ``with`` does.

        Raises:
            ToolServerError: it cannot be started or reached, does not answer in time, or structgen
                cannot enforce the arguments of one of its tools.
        """
        with self._lock:
            if self._connection is None:
                self._connection = Connection(self)
        return self

    def close(self) -> None:
        """Close the connection, and end the program if there is one. A second call does nothing."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> McpServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> McpServer:
        try:
            return await in_thread(self.start, "mcp start")
        except asyncio.CancelledError:  # what was not entered is never left
            threading.Thread(target=self.close, name="mcp close", daemon=True).start()
            raise

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)
