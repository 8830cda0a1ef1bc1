"""MCP servers as sources of tools: a real server, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import http.server
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio
import httpx2
import inside
import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import TypeAdapter, ValidationError

from structgen import OptionError, Runner
from structgen.automaton.work import WORK
from structgen.errors import RequestError, ToolServerError
from structgen.remote import generator as remote
from structgen.runner import Tool, ToolFailure, ToolOutcome, hosts, mcp, work
from structgen.runner.mcp import McpServer
from structgen.runner.tools import tools_of

SERVER = str(Path(__file__).with_name("mcp_server.py"))


def run(server: McpServer, name: str, arguments: str = "{}", **options: Any) -> ToolOutcome:
    return asyncio.run(tools_of([server])[name].run(arguments, **options))


FINE = (
    "population",
    "details",
    "noon",
    "hang",
    "deep",
    "prints",
    "environment",
    "garbles",
    "endless",
)


def stdio(**options: Any) -> McpServer:
    return McpServer.stdio(sys.executable, [SERVER], name="cities", **{"only": FINE, **options})


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with stdio() as server:
        yield server


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told(server: McpServer, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            (tmp_path / "told").write_text(str(run(server, "noon", timeout=30).error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "this process was forked" in (tmp_path / "told").read_text()
    assert run(server, "noon").content == "yes"


@contextlib.contextmanager
def served() -> Iterator[str]:
    process, port = served_at_some_port()
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as address:
        yield address


def served_at_some_port() -> tuple[subprocess.Popen[bytes], int]:
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
        while process.poll() is None:  # else somebody else had the port first
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process, port
            time.sleep(0.02)


def test_its_tools_are_tools(server: McpServer) -> None:
    tool = tools_of([server])["population"]
    assert tool.description == "How many people live in a city."
    assert tool.is_runnable
    assert tool.schema["function"]["parameters"]["required"] == ["city"]
    outcome = asyncio.run(tool.run('{"city": "Rome", "in_thousands": true}'))
    assert (outcome.content, outcome.error) == ("2755", None)


def test_arguments_have_the_members_that_schemas_name(server: McpServer) -> None:
    # A schema without additionalProperties allows any: models wrote what their prompts show.
    for name in ("noon", "population"):
        parameters = tools_of([server])[name].schema["function"]["parameters"]
        assert parameters["additionalProperties"] is False


def test_values_and_errors(server: McpServer) -> None:
    assert '"people": 1' in run(server, "details", '{"city": "Oslo"}').content
    wrong = run(server, "population", '{"city": "Atlantis"}')
    assert wrong.error is not None
    assert wrong.content.startswith("Error: ")
    assert "not valid" in str(run(server, "population", '{"city": ').error)
    # The schema is the mask's business; a server has its own look.
    assert "valid string" in str(run(server, "population", '{"city": 3}').error)


def test_a_failed_call_leaves_nothing_to_collect(server: McpServer) -> None:
    """Twenty wrong answers stayed until a full collection: 1.4 GB."""
    gc.collect()
    gc.disable()
    try:
        assert run(server, "population", '{"city": "Atlantis"}').error
        until = time.monotonic() + 30  # the connection's thread may still be about to drop it
        while any(type(one) is ToolFailure for one in gc.get_objects()):
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        gc.enable()


def test_arguments_that_cannot_be_sent_end_no_connection(server: McpServer) -> None:
    """Half a character, or values too deep for Pydantic's writer, ended it for all callers, and an
    infinite number was sent as null."""
    deep = ["[" * depth + "]" * depth for depth in range(252, 258)]
    for wrong in (r'"\ud83d"', "1e999", *deep):
        outcome = run(server, "population", f'{{"city": {wrong}}}')
        assert "cannot be written as JSON" in str(outcome.error)
    assert run(server, "noon").content == "yes"


def test_calls_side_by_side_from_several_threads_and_loops(server: McpServer) -> None:
    tool = tools_of([server])["population"]
    found: list[str] = []

    async def some() -> None:
        made = await asyncio.gather(*[tool.run('{"city": "Oslo"}') for _ in range(5)])
        found.extend(outcome.content for outcome in made)

    threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["717000"] * 15


def test_a_call_that_never_returns_runs_out_of_time(server: McpServer) -> None:
    assert "within 0.05 s" in str(run(server, "hang", timeout=0.05).error)
    assert run(server, "population", '{"city": "Oslo"}').content == "717000"


def test_an_answer_that_cannot_be_read_is_told(server: McpServer) -> None:
    said = str(run(server, "deep", timeout=60).error)
    assert "failed during a call of deep: it sent what structgen rejects" in said
    assert "nested too deep" in said
    assert run(server, "prints").content == "yes"
    assert run(server, "population", '{"city": "Oslo"}').content == "717000"


def test_what_is_no_utf8_ends_nothing(server: McpServer) -> None:
    assert run(server, "garbles", timeout=60).content == "yes"
    assert run(server, "population", '{"city": "Oslo"}').content == "717000"


def test_a_line_that_never_ends_is_bounded(server: McpServer) -> None:
    tracemalloc.start()
    try:
        said = str(run(server, "endless", timeout=600).error)
        assert "more than 16,777,216 bytes" in said
        assert run(server, "population", '{"city": "Oslo"}').content == "717000"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 80 << 20


def test_what_a_server_writes_steers_no_terminal() -> None:
    with stdio(only=["steers"]) as server:
        said = str(run(server, "steers").error)
        while not inside.last_lines(server):  # a thread reads them
            time.sleep(0.01)
        said += str(run(server, "steers").error)
    assert r"\x1b]0;owned\x07\x1b[2J" in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_a_server_that_dies_is_told_and_may_be_started_anew() -> None:
    server = stdio(only=["die", "population"])
    with server:
        assert set(tools_of([server])) == {"die", "population"}
        outcome = run(server, "die")
        assert "The MCP server cities failed during a call of die" in outcome.content
        assert "roof" not in outcome.content  # the model need not know
        assert "the roof is on fire" in str(outcome.error)
        after = run(server, "population", '{"city": "Oslo"}')
        assert "MCP server cities" in str(after.error)
        assert "the roof is on fire" in str(after.error)
        tool = server.tools[0]
    assert "MCP server cities is closed" in str(asyncio.run(tool.run('{"city": "Oslo"}')).error)
    with server:
        assert run(server, "population", '{"city": "Oslo"}').content == "717000"
    with pytest.raises(ToolServerError, match="with server"):
        _ = server.tools


def open_files() -> dict[str, str]:
    """What this process has open, by its number; nothing where that cannot be told."""
    found = {}
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # that of the look itself
            found[path.name] = os.readlink(path)
    return found


def test_the_environment_is_not_handed_on_and_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    files = open_files()
    monkeypatch.setenv("A_SECRET", "secret")
    with stdio(env={"GIVEN": "given"}) as server:
        assert run(server, "environment", '{"name": "A_SECRET"}').content == "unset"
        assert run(server, "environment", '{"name": "GIVEN"}').content == "given"
    server.close()
    assert {thread.name for thread in threading.enumerate()} <= threads
    # Other tests' loops and processes, which end meanwhile, have files of this process as well.
    for _ in range(100):
        left = open_files()
        if len(left) <= len(files):
            break
        gc.collect()
        time.sleep(0.1)
    assert len(left) <= len(files), set(left.items()) - set(files.items())


def test_a_schema_that_is_refused_is_named(address: str) -> None:
    with pytest.raises(ToolServerError, match=r"(?s)'odd' of the MCP server .*backref.*only="):
        McpServer.http(address).start()


def test_what_cannot_be_connected_to_is_told() -> None:
    with pytest.raises(ToolServerError, match="no-such-program"):
        McpServer.stdio("no-such-program").start()
    code = "import sys; sys.exit('it broke')"
    with pytest.raises(ToolServerError, match="it broke"):
        McpServer.stdio(sys.executable, ["-c", code]).start()
    with pytest.raises(ToolServerError, match=r"did not answer within 0\.3 s"):
        McpServer.stdio(sys.executable, ["-c", "input(); input()"], connect_timeout=0.3).start()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/mcp"
        with pytest.raises(ToolServerError, match="cannot be reached"):
            McpServer.http(url).start()


def test_over_http(address: str) -> None:
    with pytest.raises(ToolServerError, match=r"no tool 'nope'. Its tools: population, "):
        McpServer.http(address, only=["nope"]).start()

    async def asked() -> None:
        async with McpServer.http(
            address, headers={"X-Mine": "1"}, prefix="web.", only=["population"]
        ) as server:
            found = tools_of([server])
            outcome = await found["web.population"].run('{"city": "Rome"}')
            assert outcome.content == "2755000"

    asyncio.run(asked())


def test_an_http_server_that_dies_is_told() -> None:
    with served() as address, McpServer.http(address, only=["die", "population"]) as server:
        assert "a call of die" in str(run(server, "die", timeout=20).error)
        again = run(server, "population", '{"city": "Oslo"}', timeout=20)
        assert "MCP server http://127.0.0.1" in str(again.error)


def test_a_call_under_way_is_told_when_its_server_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = stdio(only=["hang"])
    with server:
        (tool,) = server.tools
        connection = server._connection
        assert connection is not None
        found: list[ToolOutcome] = []
        began, call = threading.Event(), connection._call

        async def noted(name: str, arguments: dict[str, Any]) -> str:
            began.set()
            return await call(name, arguments)

        monkeypatch.setattr(connection, "_call", noted)
        thread = threading.Thread(target=lambda: found.append(asyncio.run(tool.run("{}"))))
        thread.start()
        assert began.wait(60)
    thread.join()
    # Which of the two sees it first is a matter of luck.
    assert "The MCP server cities " in str(found[0].error)
    assert " a call of hang" in str(found[0].error)


def test_schemas_that_take_for_ever_are_bounded_by_the_time_to_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, forever = [], threading.Event()

    def compile_for_ever(output: Any, vocabulary: Any) -> None:
        compiled.append(output)
        forever.wait(60)  # longer than the test waits for
        forever.set()

    monkeypatch.setattr(mcp, "compile_constraint", compile_for_ever)
    lying = MCPServer("lying")
    for number in range(40):
        lying.add_tool(lambda: "", name=f"tool{number}", description="")

    async def opened(stack: contextlib.AsyncExitStack, errors: Any) -> Any:
        return lying

    with pytest.raises(ToolServerError, match="did not answer within 5 s"):
        McpServer("lying", opened, connect_timeout=5).start()
    forever.set()
    while any(thread.name == "mcp tools" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert len(compiled) == 1, "and nothing more is compiled for nobody"


def test_a_line_of_errors_that_never_ends_fills_no_memory() -> None:
    kept: deque[str] = deque(maxlen=3)
    tracemalloc.start()
    try:
        with inside.lines_to(kept) as errors:
            errors.write("first\n")
            for _ in range(1000):
                errors.write("x" * 50_000)
            errors.write("\nlast\n")
        while kept[-1] != "last":
            time.sleep(0.01)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(kept) == ["first", "x" * 500, "last"]
    assert most < 5_000_000


def test_what_a_program_leaves_running_keeps_no_thread() -> None:
    """Each connection left a thread and a file for as long as a child of its program ran."""
    kept: deque[str] = deque(maxlen=3)
    waits = [sys.executable, "-c", "input()"]
    before = set(threading.enumerate())
    with inside.lines_to(kept) as errors:
        left = subprocess.Popen(waits, stdin=subprocess.PIPE, stderr=errors)
        errors.write("first\n\nlast")
    with left:
        readers = set(threading.enumerate()) - before
        for reader in readers:
            reader.join(10)
        left.kill()
    assert not any(reader.is_alive() for reader in readers)
    assert list(kept) == ["first", "last"]


def heard(*messages: Any) -> list[Any]:
    """What `mcp` gets of messages of a server."""

    async def all_received() -> list[Any]:
        send, receive = anyio.create_memory_object_stream[Any](len(messages))
        for message in messages:
            send.send_nowait(message if isinstance(message, Exception) else SessionMessage(message))
        send.close()
        async with mcp._Received(receive) as stream:
            return [item async for item in stream]

    return asyncio.run(all_received())


def test_what_nobody_waits_for_takes_nothing() -> None:
    """Requests of 4 MB each, whose answers the server did not read, took 85 MB/s without an end;
    notifications that were wrong 2 kB of the log each."""
    asks = partial(JSONRPCRequest, jsonrpc="2.0")
    broken = ValueError("a line")
    found = heard(
        asks(id=1, method="roots/list", params={"x": "x" * 1_000}),
        asks(id=2, method="m" * 1_000),
        JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params={}),
        asks(id="i" * 101, method="ping"),
        asks(id=3, method="ping", params={"x": 1}),
        broken,
        JSONRPCResponse(jsonrpc="2.0", id=1, result={"content": []}),
        JSONRPCResponse(jsonrpc="2.0", id=2, result={"resultType": "input_required"}),
    )
    requests = [(one.message.id, one.message.method, one.message.params) for one in found[:3]]
    assert requests == [(1, "unsupported", None), (2, "unsupported", None), (3, "ping", None)]
    assert found[3] is broken
    assert found[4].message.result == {"content": []}
    # Of 45,000 questions in an answer, each had a task that refused it.
    assert found[5].message.error.message == "a request for input, which structgen does not provide"


def test_a_thread_that_computes_much_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notifications of 100,000 values each took half of a processor for as long as the connection
    was there, and so did lines that are no messages, or of standard error."""
    clock = SimpleNamespace(now=0.0, used=0.0, slept=[])
    clock.monotonic, clock.thread_time = lambda: clock.now, lambda: clock.used
    clock.sleep = clock.slept.append
    monkeypatch.setattr(mcp, "time", clock)
    pace = mcp._Pace()
    clock.used = 1.9
    pace.rest()
    assert clock.slept == []
    clock.used = 2.05
    pace.rest()
    assert clock.slept == [pytest.approx(0.5)]
    clock.now = 0.5
    pace.rest()
    assert clock.slept[1:] in ([], [pytest.approx(0.0, abs=1e-6)])
    pace.left += mcp._CALL_SECONDS
    clock.used = 2.25
    pace.rest()
    assert len(clock.slept) <= 2
    clock.used = 9.0
    pace.rest()
    assert clock.slept[-1] == 1.0, "it can be closed within a second"
    clock.now = 1_000.0
    pace.rest()
    assert pace.left == mcp._BURST_SECONDS


_CHATTING = """
import json, sys, threading
said = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"a":[1,2,3]}}' + chr(10)
where = {"messages": sys.stdout, "errors": sys.stderr}[sys.argv[1]]
def chat():
    while True:
        where.write(said * 99)
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": [{"name": "chat", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "chatting", "version": "1"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "tools/list":
        threading.Thread(target=chat, daemon=True).start()
"""


@pytest.mark.parametrize("where", ["messages", "errors"])
def test_a_server_that_never_stops_talking_is_read_slowly(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = threading.Event()

    def sleep(seconds: float) -> None:
        if threading.current_thread().name.startswith("mcp "):
            slept.set()

    clock = SimpleNamespace(monotonic=time.monotonic, thread_time=time.thread_time, sleep=sleep)
    monkeypatch.setattr(mcp, "time", clock)
    monkeypatch.setattr(mcp, "_BURST_SECONDS", 0.5)
    monkeypatch.setattr(mcp, "_SHARE", 1e-6)  # on a busy machine a thread gets less than that
    with McpServer.stdio(sys.executable, ["-c", _CHATTING, where]):
        assert slept.wait(60)


def test_an_answer_of_too_much_is_not_looked_at() -> None:
    """One event of a megabyte took gigabytes: `mcp` makes errors of 30 kB for each wrong part."""
    (found,) = heard(JSONRPCResponse(jsonrpc="2.0", id=7, result={"content": [1] * 10_001}))
    assert found.message.id == 7
    assert "an answer of more than 10" in found.message.error.message


_ASKING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "asking", "version": "1"}}
    while asked["method"] == "tools/call":
        print('{"jsonrpc":"2.0","id":"a","method":"roots/list"}')
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_a_server_that_asks_and_reads_no_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp, "_MOST_TASKS", 100)
    with McpServer.stdio(sys.executable, ["-c", _ASKING]) as asking:
        error = asyncio.run(asking.tools[0].run("{}", timeout=600)).error
    assert "more requests of its own than it reads answers to" in str(error)


def test_a_server_whose_start_nobody_waits_for_any_more_is_closed() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    async def opened(stack: contextlib.AsyncExitStack, errors: Any) -> Any:
        begun.set()
        await asyncio.to_thread(goes_on.wait, 60)
        return MCPServer("slow")

    async def started() -> None:
        task = asyncio.ensure_future(McpServer("slow", opened).__aenter__())
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(started())
    goes_on.set()
    gone = {"mcp start", "mcp slow", "mcp close"}
    while gone & {thread.name for thread in threading.enumerate()}:
        time.sleep(0.01)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="timeout=0"):
        McpServer.stdio("x", timeout=0)
    with pytest.raises(OptionError, match="only='x'"):
        McpServer.stdio("x", only="x")
    with pytest.raises(OptionError, match="does not begin with http"):
        McpServer.http("ftp://x")
    assert McpServer.http("http://user:secret@host/mcp").name == "http://host"
    for value in ("Bearer secret\n", "Bearer s\0ecret", " secret", b"secret"):
        with pytest.raises(OptionError, match="'Authorization' must be printable") as caught:
            McpServer.http("http://host/mcp", headers={"Authorization": value})  # type: ignore[dict-item]
        assert "ecret" not in str(caught.value)
    McpServer.http("http://host/mcp", headers={"Authorization": "Bearer a\tb", "Empty": ""})


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(OptionError, match=r"structgen\[mcp\]"):
        McpServer.stdio("x")


class Long(http.server.BaseHTTPRequestHandler):
    """A server over HTTP whose tool answers with a text of a megabyte, or as it is told."""

    is_compressed = False
    drops: str | None = None  # a call, before or in its answer
    endless = b""  # what it writes then
    breaks_off: ClassVar[list[float]] = []  # when it did, where it does
    waits = 0  # milliseconds after which it may be asked to go on
    cookies: ClassVar[list[int]] = []  # how many it was sent, where each answer sets some more
    cookie = "c=1"  # beside two
    farewell = threading.Event()  # it says it only then
    listed: ClassVar[dict[str, Any]] = {}  # what each tool has beside its name
    result: ClassVar[dict[str, Any]] = {"content": [{"type": "text", "text": "x" * (1 << 20)}]}
    floods: ClassVar[list[str]] = []  # with which methods' streams
    names: ClassVar[list[str]] = ["say"]
    seconds = 0.0  # that a call takes
    moved = False  # to the same path with a slash, as Starlette does
    cursors: ClassVar[list[str | None]] = [None]  # to what follows each page
    streams: ClassVar[list[str]] = []  # that have ended
    asked_for: ClassVar[list[str]] = []  # methods
    called: ClassVar[list[str]] = []  # with which the tool was
    era: ClassVar[dict[str, Any]] = {}  # what each result has beside, of a newer server
    session = "one"  # the only one that it knows
    knows_call = True  # else it says so of each, by 404
    version: str | None = None  # of MCP; None: the client's

    def log_message(self, *told: object) -> None:
        pass

    def do_DELETE(self) -> None:
        self.farewell.wait(20)
        self.answered(200, b"")

    def break_off(self) -> None:
        self.breaks_off.append(time.monotonic())
        event = b"id: 1\nretry: %d\ndata: \n\n" % self.waits
        self.answered(200, event, "text/event-stream")

    def do_GET(self) -> None:
        if self.breaks_off:
            self.break_off()
        elif "GET" in self.floods:
            self.flood()
        else:
            self.answered(405, b"")

    def flood(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}
        said["params"] |= {"data": "x" * 10_000}  # type: ignore[operator]
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"data: %s\n\n" % json.dumps(said).encode())
        self.streams.append(self.command)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.moved and not self.path.endswith("/"):
            self.send_response(307)
            self.send_header("Location", f"{self.path}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.headers["mcp-session-id"] not in (None, self.session):
            self.answered(404, b"")
            return
        if "id" not in asked:
            self.answered(202, b"")
            return
        results = {
            "initialize": {
                "protocolVersion": self.version or asked.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "long", "version": "1"},
            },
            "tools/list": {
                "tools": [
                    {"name": name, "inputSchema": {"type": "object"}, **self.listed}
                    for name in self.names
                ],
                "nextCursor": self.cursors[int(asked.get("params", {}).get("cursor") or 0)],
            },
            "tools/call": self.result,
        }
        if asked["method"] == "tools/call":
            self.called.append(self.command)
        if asked["method"] == "tools/call" and "POST" in self.floods:
            self.flood()
            return
        if asked["method"] == "tools/call" and self.drops is not None:
            self.close_connection = True
            self.wfile.write(self.drops.encode())
            with contextlib.suppress(OSError):
                while self.endless:
                    self.wfile.write(self.endless)
            self.streams.append(self.command)
            return
        if asked["method"] == "tools/call" and self.breaks_off:
            self.break_off()
            return
        if asked["method"] == "tools/call" and not self.knows_call:
            error = {"code": -32601, "message": "no such method"}
            told = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
            self.answered(404, json.dumps(told).encode())
            return
        if asked["method"] == "tools/call":
            time.sleep(self.seconds)
        self.asked_for.append(asked["method"])
        result = results.get(asked["method"], {}) | self.era
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        self.answered(200, json.dumps(answer).encode())

    def answered(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        if body and self.is_compressed:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("mcp-session-id", self.session)
        if self.cookies:
            self.cookies.append((self.headers["Cookie"] or "").count("="))
            for i in "ab":
                self.send_header("Set-Cookie", f"{i}{len(self.cookies)}=1")
            self.send_header("Set-Cookie", self.cookie)
        self.end_headers()
        with contextlib.suppress(OSError):  # the other end has heard enough
            self.wfile.write(body)


Long.farewell.set()


@pytest.fixture
def long_answers() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Long) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/mcp"
        served.shutdown()


def test_an_answer_over_http_is_bounded(long_answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with McpServer.http(long_answers) as server:
        assert run(server, "say").error is None
    with McpServer.http(long_answers) as server:
        with monkeypatch.context() as patch:
            patch.setattr(mcp, "_MOST_BYTES", 1 << 20)
            assert "more than 1,048,576 bytes" in str(run(server, "say").error)
        assert run(server, "say").error is None, "one that is too long ended it for all others"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ude00\uD83D\ud83d", "\ufffd\ufffd\ufffd"),
        (r"\ud83d\ude00 \\ud83d \\\\uD83D", "\N{GRINNING FACE} \\ud83d \\\\uD83D"),
        (r"C:\\\ud83d C:\\\ud83d\ude00", "C:\\\ufffd C:\\\N{GRINNING FACE}"),
        (r"\\ud83d\ude00", r"\ud83d" "\ufffd"),
    ],
)
def test_halves_of_characters_end_no_call(
    long_answers: str, monkeypatch: pytest.MonkeyPatch, written: str, read: str
) -> None:
    """JavaScript cuts texts in emojis, and writes the halves. .NET begins with a mark of order."""
    line = f'{{"jsonrpc": "2.0", "text": "{written}"}}\n'
    assert json.loads(mcp._Lines().decode(line.encode("utf-8-sig")))["text"] == read
    given = json.loads(line)["text"]
    monkeypatch.setattr(Long, "result", {"content": [{"type": "text", "text": given}]})
    with McpServer.http(long_answers) as server:
        assert run(server, "say").content == read


def test_a_call_is_redirected_within_its_server(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call ended the connection."""
    monkeypatch.setattr(Long, "moved", True)
    with McpServer.http(long_answers) as server:
        assert [run(server, "say").error for _ in range(2)] == [None, None]


def test_a_session_is_begun_anew_where_its_server_knows_it_no_longer(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call said "Session terminated" from then on."""
    with McpServer.http(long_answers) as server:
        (tool,) = server.tools
        monkeypatch.setattr(Long, "asked_for", asked := [])
        monkeypatch.setattr(Long, "session", "two")

        async def three() -> list[ToolOutcome]:
            return await asyncio.gather(*(tool.run("{}") for _ in range(3)))

        assert [outcome.error for outcome in asyncio.run(three())] == [None] * 3
        assert run(server, "say").error is None
        assert asked == ["initialize", *["tools/call"] * 4]
        monkeypatch.setattr(Long, "session", "three")
        monkeypatch.setattr(Long, "version", "2024-11-05")
        assert run(server, "say").error is None
        monkeypatch.setattr(Long, "session", "four")
        monkeypatch.setattr(Long, "version", "1\n2")
        assert "MCP version 1\\n2, which is not supported" in str(run(server, "say").error)


def test_a_call_that_is_answered_with_404_is_not_made_again(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Long, "knows_call", False)
    monkeypatch.setattr(Long, "called", called := [])
    with McpServer.http(long_answers) as server:
        assert "no such method" in str(run(server, "say").error)
    assert len(called) == 1


def test_a_session_that_ends_again_and_again_is_told(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with McpServer.http(long_answers) as server:
        numbers = itertools.count()
        monkeypatch.setattr(Long, "session", property(lambda self: f"{next(numbers)}"))
        assert "Session terminated" in str(run(server, "say").error)


def test_a_call_that_broke_off_is_not_made_again(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its stream was to be resumed in a session that had ended, the tool ran twice."""
    with McpServer.http(long_answers) as server:
        monkeypatch.setattr(Long, "breaks_off", [0.0])
        monkeypatch.setattr(Long, "do_GET", lambda self: self.answered(404, b""))
        monkeypatch.setattr(Long, "called", called := [])
        assert "attempts were exhausted" in str(run(server, "say").error)
        assert len(called) == 1


def test_calls_wait_for_a_connection(long_answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the first hundred failed after ``connect_timeout``."""
    one = partial(httpx2.AsyncClient, limits=httpx2.Limits(max_connections=1))
    monkeypatch.setattr("mcp.client.streamable_http.create_mcp_http_client", one)
    monkeypatch.setattr(Long, "seconds", 2.5)
    made = McpServer.http(long_answers, connect_timeout=2)
    made._connect_timeout = 60.0  # that of a request alone is what this is about
    with made as server:
        (tool,) = server.tools

        async def both() -> list[ToolOutcome]:
            return await asyncio.gather(tool.run("{}"), tool.run("{}"))

        assert [outcome.error for outcome in asyncio.run(both())] == [None, None]


def test_few_cookies_are_kept(long_answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer may set 4,000. They stayed, and were sent with each request."""
    monkeypatch.setattr(remote, "_MOST_COOKIES", 11)
    monkeypatch.setattr(Long, "cookies", sent := [0])
    with McpServer.http(long_answers) as server:
        for _ in range(20):
            assert run(server, "say").error is None
    assert max(sent) == 11
    assert sent.count(0) > 2
    monkeypatch.setattr(Long, "cookie", "\xe9=\xe9")
    with McpServer.http(long_answers) as server:
        assert [run(server, "say").error for _ in range(2)] == [None, None]


# A client may send its next request before it hears that a connection it keeps was closed.
_CLOSE = "Connection: close\r\n"
_HEAD = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENTS = f"HTTP/1.1 200 OK\r\n{_CLOSE}{_HEAD}"


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ("", "Server disconnected without sending a response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n{head}", "without sending complete message body"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n{head}", "compressed answer"),
        ("nothing\r\n\r\n", "illegal status line"),
        ("HTTP/1.1 401 Not so\r\nContent-Length: 1\r\n{head}", "HTTP status 401 Not so"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{head}", "Failed to parse JSON"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: {head}", "Unexpected content type"),
        (_EVENTS + "9\r\ndata: {\n\n\r\n0\r\n\r\n", "Failed to parse SSE"),
        (_EVENTS.replace("m\r", "m; charset=hex\r") + "9\r\ndata: {\n\n\r\n0\r\n\r\n", "parse SSE"),
    ],
)
def test_a_call_that_is_cut_off_ends_no_other(
    long_answers: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    begins: str,
    said: str,
) -> None:
    """A server that is restarted behind a proxy, say, was lost to all callers for good. Of an
    answer that cannot be read ``mcp`` logged a page, beside the error that the caller gets."""
    drops = begins.replace("{head}", f"Content-Type: application/json\r\n{_CLOSE}\r\n{{")
    with McpServer.http(long_answers) as server:
        with monkeypatch.context() as patch:
            patch.setattr(Long, "drops", drops)
            assert said in str(run(server, "say").error)
        assert run(server, "say").error is None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    logging.getLogger("mcp.client.streamable_http").warning("of another client")
    assert caplog.messages[-1] == "of another client"


def test_an_answer_of_many_values_is_not_read(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 MB with 300,000 parts stopped all threads for 7 s, and took 600 MB."""
    monkeypatch.setattr(mcp, "MAX_VALUES", 1_000)
    monkeypatch.setattr(Long, "result", {"content": [{"type": "text", "text": "a,[{"}] * 300})
    with McpServer.http(long_answers) as server:
        assert run(server, "say").content.startswith("a,[{\na,[{")
    monkeypatch.setattr(Long, "result", {"content": [{"type": "text", "text": "a"}] * 400})
    with McpServer.http(long_answers) as server:
        assert "more than 100,000 values" in str(run(server, "say").error)
    both = b'{"a":["%s",1],"jsonrpc":1}\n{"b":[%s1],"jsonrpc":1}\n['
    lines = mcp._Lines().decode(both % (b"," * 5_000, b"1," * 1_000))
    assert [line[:9] for line in lines.split("\n")] == ['{"a":[",,', "{an answe", ""]
    assert mcp._why_unreadable(unread(lines.split("\n")[1])) == mcp._TOO_MANY


def test_an_answer_of_which_much_is_wrong_is_told_shortly(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was wrong with an answer of a megabyte was written down: 112 MB, in 1.3 s."""
    part = {"type": "text", "text": "a", "annotations": {"audience": ["x"] * 1_000}}
    monkeypatch.setattr(Long, "result", {"content": [part]})
    with McpServer.http(long_answers) as server:
        assert "values of its CallToolResult are invalid" in str(run(server, "say").error)


def test_a_call_has_the_tools_listed_no_more(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schemas of a hundred pages of tools, 1 GB a call, stayed with the connection."""
    wrong = {"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "not that header"}}
    head = "HTTP/1.1 400 No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    era = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
    monkeypatch.setattr(Long, "era", {**era, "ttlMs": 0, "cacheScope": "private"})
    monkeypatch.setattr(Long, "drops", head + json.dumps(wrong))
    monkeypatch.setattr(Long, "asked_for", asked_for := [])
    with McpServer.http(long_answers) as server:
        assert "not that header" in str(run(server, "say").error)
    assert asked_for == ["server/discover", "tools/list"]


def unread(line: str) -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(dict[str, Any]).validate_json(line)
    return raised.value


def test_a_compressed_answer_over_http_is_refused(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes may be gigabytes."""
    monkeypatch.setattr(Long, "is_compressed", True)
    with pytest.raises(ToolServerError, match="compressed"):
        McpServer.http(long_answers).start()


def runs_out_of_time(server: McpServer, seconds: float, has_begun: Callable[[], bool]) -> None:
    """A call of which the server heard: on a busy machine the time may be over before."""
    for timeout in (seconds, 3.0, 3.0, 3.0):
        assert "timed out" in str(run(server, "say", timeout=timeout).error)
        if has_begun():
            return
    raise AssertionError("the server hears of no call")


def ended(streams: list[str]) -> bool:
    until = time.monotonic() + 60
    while not streams and time.monotonic() < until:
        time.sleep(0.02)
    return bool(streams)


def test_a_stream_without_an_end_is_left(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package goes on reading what nobody waits for, as long as there is a connection."""
    monkeypatch.setattr(Long, "floods", ["GET", "POST"])
    monkeypatch.setattr(Long, "streams", [])
    monkeypatch.setattr(mcp, "_MOST_STREAM", 1 << 18)
    with McpServer.http(long_answers) as server:
        assert "more than 262,144 bytes" in str(run(server, "say", timeout=30).error)
        assert ended(Long.streams)
        time.sleep(0.1)  # in which one that was not asked for would have begun
    assert Long.streams == ["POST"]


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        ("", "HTTP/1.1 103 Early Hints\r\n\r\n"),
        (_EVENTS, "2\r\n:\n\r\n"),
        (_EVENTS.replace("text/event-stream", "application/json"), "1\r\n \r\n"),
    ],
)
def test_what_has_no_end_is_left_with_its_call(
    long_answers: str, monkeypatch: pytest.MonkeyPatch, begins: str, goes_on: str
) -> None:
    """It took half of a processor until the connection was closed."""
    monkeypatch.setattr(Long, "drops", begins)
    monkeypatch.setattr(Long, "endless", goes_on.encode() * 1_000)
    monkeypatch.setattr(Long, "streams", [])
    monkeypatch.setattr(Long, "called", called := [])
    with McpServer.http(long_answers) as server:
        runs_out_of_time(server, 0.3, lambda: bool(called))
        assert ended(Long.streams)
        monkeypatch.undo()
        assert run(server, "say").error is None


def test_tools_of_one_name_are_refused_before_they_are_compiled(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Long, "names", ["a", "say", "b", "say"])
    monkeypatch.setattr(mcp, "compile_constraint", lambda *_: pytest.fail("compiled"))
    with pytest.raises(ToolServerError, match="lists several tools named 'say'"):
        McpServer.http(long_answers).start()
    monkeypatch.undo()
    monkeypatch.setattr(Long, "names", ["a", "say", "b", "b"])
    with McpServer.http(long_answers, only=["say"]) as server:
        assert len(server.tools) == 1


def test_tools_of_a_server_are_compiled_in_few_steps_together(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others whose types are compiled wait: one tool took 13 s."""
    apart = [{"properties": {f"a{n}": True, "k": {"pattern": f"x{{{n}}}"}}} for n in range(20)]
    monkeypatch.setattr(Long, "names", [f"tool{number}" for number in range(3)])
    monkeypatch.setattr(mcp, "MAX_WORK", 10_000)
    monkeypatch.setattr(Long, "listed", {"inputSchema": {"type": "object", "oneOf": apart}})
    with pytest.raises(ToolServerError, match=r"'tool0'.*simplify it, at \$.*limit 10,000"):
        McpServer.http(long_answers).start()
    monkeypatch.setattr(mcp, "compile_constraint", lambda *_: WORK.spend(4_000))
    with pytest.raises(ToolServerError, match="'tool2'"):
        McpServer.http(long_answers).start()
    with McpServer.http(long_answers, only=["tool1", "tool2"]) as server:
        assert len(server.tools) == 2


@pytest.mark.parametrize("options", [{}, {"max_tool_rounds": 1}])
@pytest.mark.parametrize(("bound", "limit"), [("max_mask_work", 2_000), ("max_work", 100)])
def test_types_with_a_servers_tools_are_bounded(
    long_answers: str,
    monkeypatch: pytest.MonkeyPatch,
    runner: Runner,
    options: dict[str, int],
    bound: str,
    limit: int,
) -> None:
    """Other chats waited 3 s for each mask, and 13 s while the type was compiled as XML."""
    barred = [{"not": {"pattern": f"{one}.{{{n}}}{one}"}} for n, one in enumerate("aei", 3)]
    text = {"type": "string", "minLength": 20, "allOf": barred}
    listed = {"type": "object", "properties": {"x": text}, "required": ["x"]}
    monkeypatch.setattr(Long, "listed", {"inputSchema": listed})
    monkeypatch.setattr(hosts, "FOREIGN", {**hosts.FOREIGN, bound: limit})
    with McpServer.http(long_answers) as server:
        said = partial(runner.chat, "Say it.", tool_choice="required", max_tokens=90, **options)
        with pytest.raises(RequestError, match=rf"tools.*: .*{bound}.*limit {limit:,}"):
            said(tools=[server])
        (own,) = server.tools
        with pytest.raises(RequestError, match=rf"tools.*: .*{bound}.*limit {limit:,}"):
            said(tools=[own.source])  # as frameworks pass what their own MCP clients list
        own = Tool(own.source, lambda **_: "said")
        assert said(tools=[own]).choices[0].finish_reason != "error"


def test_a_servers_tools_are_read_beside_the_event_loop(
    server: McpServer, monkeypatch: pytest.MonkeyPatch, runner: Runner
) -> None:
    """A million characters of schemas stopped it for 1.6 s in each round."""
    read, threads = work.wanted, []

    def noted(request: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(request)

    monkeypatch.setattr(work, "wanted", noted)
    runner.chat("Say it.", tools=[server], tool_choice="none", max_tokens=4)
    runner.chat("Say it.", tools=[server], tool_choice="none", max_tokens=4, max_tool_rounds=1)
    assert len(threads) == 2
    assert "structgen-runner" not in threads


def test_a_server_of_thousands_of_tools_is_refused(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Long, "names", [f"tool{number}" for number in range(501)])
    monkeypatch.setattr(mcp, "compile_constraint", lambda *_: None)
    with pytest.raises(ToolServerError, match=r"lists 501 tools.*limit is 500 tools.*only="):
        McpServer.http(long_answers).start()
    with McpServer.http(long_answers, only=["tool500"]) as server:
        assert [tool.name for tool in server.tools] == ["tool500"]


@pytest.mark.parametrize(("number", "size"), [(501, 1), (1, 1_000_001)], ids=["many", "long"])
def test_tools_in_openais_form_are_as_many_as_a_server_may_list(
    number: int, size: int, runner: Runner
) -> None:
    """Frameworks pass what their own MCP clients list: 3,000 tools held up others for 16 s."""
    about = {"description": "d" * size, "parameters": {}}
    tools = [{"type": "function", "function": {"name": f"t{i}", **about}} for i in range(number)]
    with pytest.raises(RequestError, match=rf"tools: the request has {number} tools.*500 tools"):
        runner.chat("Go.", tools=tools, tool_choice="none", max_tokens=1)


def test_patterns_of_a_server_are_not_matched_with_what_its_tools_return(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's ``re`` would stop all threads of this process until it has matched."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    monkeypatch.setattr(Long, "listed", {"outputSchema": schema})
    monkeypatch.setattr(Long, "result", {"content": [], "structuredContent": {"x": "aa!"}})
    with McpServer.http(long_answers) as server:
        assert run(server, "say").content == '{"x":"aa!"}'


def test_a_list_of_tools_is_bounded_as_a_whole(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "_MOST_BYTES", 1 << 18)
    monkeypatch.setattr(Long, "listed", {"description": "x" * 90_000})
    with McpServer.http(long_answers):
        pass
    monkeypatch.setattr(Long, "cursors", ["1", "2", None])
    with pytest.raises(ToolServerError, match="a list of tools of more than 262,144 bytes"):
        McpServer.http(long_answers).start()
    monkeypatch.setattr(mcp, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(Long, "listed", {"outputSchema": {"type": "object", "x": [[]] * 34_000}})
    with pytest.raises(ToolServerError, match="more than 100,000 objects and arrays"):
        McpServer.http(long_answers).start()


def test_tools_that_fill_each_prompt_together_are_refused(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 MB of them took 1 GB, and other chats waited 10 s."""
    monkeypatch.setattr(Long, "names", [f"tool{number}" for number in range(12)])
    monkeypatch.setattr(Long, "listed", {"description": "x" * 90_000})
    monkeypatch.setattr(mcp, "compile_constraint", lambda *_: None)
    told = r"lists 12 tools with 1,08\d,\d+ characters.* 1,000,000 characters.*only="
    with pytest.raises(ToolServerError, match=told):
        McpServer.http(long_answers).start()
    with McpServer.http(long_answers, only=["tool0", "tool11"]) as server:
        assert len(server.tools) == 2


@pytest.mark.parametrize("what", ["name", "description", "inputSchema"])
def test_a_tool_that_fills_each_prompt_is_refused(
    long_answers: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    long: dict[str, Any] = {"inputSchema": {"type": "object", "description": "x" * 100_000}}
    monkeypatch.setattr(Long, "listed", {what: long.get(what, "x" * 100_000)})
    told = "cannot be offered: its name, description and arguments have 100,"
    with pytest.raises(ToolServerError, match=told) as raised:
        McpServer.http(long_answers).start()
    assert len(str(raised.value)) < 3_000
    monkeypatch.setattr(Long, "names", ["say", "say"])
    with pytest.raises(ToolServerError) as raised:
        McpServer.http(long_answers, only=["say", "more"]).start()
    assert len(str(raised.value)) < 3_000


def test_a_server_that_does_not_take_leave_is_left(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(Long, "farewell", threading.Event())
    with McpServer.http(long_answers):
        closing = time.monotonic()
    assert time.monotonic() - closing < 10
    Long.farewell.set()


def test_streams_that_break_off_again_and_again_are_resumed_slowly(
    long_answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nobody waits for an answer any more: 300 calls left 1.3 GB for 33 minutes."""
    breaks = [0.0]
    monkeypatch.setattr(Long, "breaks_off", breaks)
    monkeypatch.setattr(mcp, "_MOST_RESUMED", 2)
    with McpServer.http(long_answers) as server:
        runs_out_of_time(server, 0.7, lambda: len(breaks) >= 3)
    assert len(breaks) <= 20
    monkeypatch.setattr(mcp, "_MOST_RESUMED", 0)
    monkeypatch.setattr(mcp, "_RESUME_SECONDS", 600.0)
    monkeypatch.setattr(Long, "waits", 600_000)
    with McpServer.http(long_answers) as server:
        connection = server._connection
        assert connection is not None
        own = len(asyncio.all_tasks(connection._loop))
        for _ in range(3):
            assert "timed out" in str(run(server, "say", timeout=0.1).error)
        until = time.monotonic() + 60
        while len(asyncio.all_tasks(connection._loop)) > own and time.monotonic() < until:
            time.sleep(0.02)
        assert len(asyncio.all_tasks(connection._loop)) <= own, "each call left a task that waits"


class Pieces(httpx2.AsyncByteStream):
    """An answer that comes in pieces; after the last it may never end."""

    def __init__(self, *pieces: bytes, ends: asyncio.Event | None = None) -> None:
        self._pieces, self._ends = pieces, ends

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._ends is not None:
            await self._ends.wait()


@contextlib.asynccontextmanager
async def answering(kind: str, *answers: Pieces) -> AsyncIterator[httpx2.AsyncClient]:
    left = list(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": kind, "x-long": "x" * 1_000}
        return httpx2.Response(200, headers=headers, stream=left.pop(0))

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        mcp._Bounded(client, httpx2, 60)
        yield client


async def read(client: httpx2.AsyncClient) -> bytes:
    async with client.stream("POST", "http://x", json={}) as response:
        body: bytes = await response.aread()
        return body


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (b" 999999", 999.999),
        (b"-1", 0),
        (b" 1_0", 0),
        (b"\xd9\xa3" * 9, 0),
        (b"9" * 400, 999_999.999),
    ],
)
def test_how_long_a_stream_waits_is_not_left_to_the_package(given: bytes, seconds: float) -> None:
    """A time below 0, or one that is no float, ended the connection of all calls."""

    async def whole(before: bytes) -> None:
        stream = before + b"retry:" + given + b"\n\ndata: retry: 5\n\n"
        async with answering("text/event-stream", Pieces(stream)) as client:
            assert await read(client) == stream.replace(given, b"0", 1)
            assert client.send.__self__._retry_seconds == seconds

    for before in (b"", b"id: 1\n", b": -\r\n\r\n", b"data: x\r"):
        asyncio.run(whole(before))


def test_what_a_call_keeps_of_resumed_streams_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mcp` keeps each with its last event until the call ends: 691 MB after a minute."""
    monkeypatch.setattr(mcp, "_MOST_STREAM", 2_500)

    async def asked() -> None:
        mcp._CALL.set(mcp._Exchange(60))
        streams = [Pieces(b": %s\n\n" % (b"x" * 1_000)) for _ in range(3)]
        async with answering("text/event-stream", *streams) as client:

            async def resumed(last: str) -> None:
                given = {"last-event-id": last}
                async with client.stream("GET", "http://x", headers=given) as response:
                    assert list(response.headers) == ["content-type"]
                    await response.aread()

            with pytest.raises(mcp._Unreadable, match="a long id"):
                await resumed("x" * 1_001)
            await resumed("x" * 1_000)
            await resumed("1")
            with pytest.raises(httpx2.SSEError, match="more than 2,500 bytes"):
                await resumed("2")

    asyncio.run(asked())


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b""])
def test_events_of_many_values_are_not_read(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """300,000 lists in an event of a megabyte stopped all threads for 0.6 s, and a stream has four,
    again and again."""
    monkeypatch.setattr(mcp, "MAX_VALUES", 100)

    async def whole(*pieces: bytes) -> bytes:
        async with answering("Text/Event-Stream; a=b", Pieces(*pieces)) as client:
            return await read(client)

    fine = b'data: {"a": ["' + b"x, " * 500 + b'"]' + b", 1" * 40 + b"}"
    pieces = (b': "\n', fine[:9], fine[9:], end[:1], end[1:], fine, end)
    assert asyncio.run(whole(*pieces)) == b"".join(pieces)
    many = b"data: [" + b"[]," * 99
    for pieces in ((fine, end, b':"\n', many, end, fine), (many, many)):
        with pytest.raises(httpx2.SSEError, match="more than 100,000 values"):
            asyncio.run(whole(*pieces))


def test_answers_that_have_not_ended_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 calls at once held 1.6 GB of answers that a server did not end."""
    monkeypatch.setattr(mcp, "_MOST_HELD", 2_500)

    async def asked() -> None:
        ends, one = asyncio.Event(), b"x" * 1_000
        answers = (Pieces(one, ends=ends), Pieces(one, ends=ends), Pieces(one), Pieces(one))
        async with answering("application/json", *answers) as client:
            waiting = [asyncio.ensure_future(read(client)) for _ in range(2)]
            while client.send.__self__._held < 2_000:
                await asyncio.sleep(0)
            assert b"answers of more than 2,500 bytes at once" in await read(client)
            ends.set()
            assert await asyncio.gather(*waiting, read(client)) == [one] * 3

    asyncio.run(asked())
