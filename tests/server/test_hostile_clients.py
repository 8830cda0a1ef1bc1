"""Clients, web pages and paths that mean harm: what reaches the loop, the log and other states."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import h11
import httpx
import pytest
import uvicorn
from one_server import Served
from starlette.datastructures import Headers
from uvicorn.server import ServerState

from structgen import OptionError, Runner
from structgen.integrations.connections import connections, in_parts
from structgen.runner import Aside, ChatRequest, Sessions, Traces, samples_how
from structgen.server import Settings, create_app, gateway, pictures, serve
from structgen.server.gateway import Keys, owner_of, span_of
from structgen.server.serving import _Json, _Text
from structgen.server.store import Stored

# -- connections ------------------------------------------------------------------------------


class FakeLoop:
    """Remembers what it is to do later."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []
        self.tasks: list[Coroutine[Any, Any, None]] = []

    def call_later(self, delay: float, work: Callable[[], None]) -> FakeLoop:
        self.later.append((delay, work))
        return self

    def cancel(self) -> None:
        """What is returned in place of a timer has it."""

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def create_task(self, task: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        self.tasks.append(task)
        return Mock()

    def round(self, *, answers: bool = True) -> None:
        """What is due now; requests are answered at once."""
        due, self.soon = self.soon, []
        for work in due:
            work()
        due_tasks, self.tasks = (self.tasks, []) if answers else ([], self.tasks)
        for task in due_tasks:
            with pytest.raises(StopIteration):
                task.send(None)


class FakeTransport:
    """A connection whose client reads what the test says."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self.waiting = 0
        self.is_aborted = False
        self.closes = False
        self.reads = True
        self.answers = 0
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 1) if self.address and name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closes

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.closes = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        self.answers += data.count(b"HTTP/1.1 200")
        self.written += data


@pytest.fixture
def connected() -> tuple[Any, FakeLoop, FakeTransport]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, log_config=None, interface="asgi3")
    config.load()
    loop, transport = FakeLoop(), FakeTransport()
    kind: Any = connections(30, 7)
    made = kind(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    made.connection_made(transport)
    return made, loop, transport


def later(loop: FakeLoop) -> None:
    """Let the limit on writing pass once."""
    (due,) = [work for delay, work in loop.later if delay == 7]
    loop.later = [one for one in loop.later if one[0] != 7]
    due()


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 16 << 10])
def test_a_client_that_does_not_read_is_dropped(
    connected: tuple[Any, FakeLoop, FakeTransport], closes: bool, taken: int
) -> None:
    made, loop, transport = connected
    transport.waiting, transport.closes = 5_000_000, closes
    if not closes:
        made.pause_writing()
    later(loop)
    assert not transport.is_aborted
    transport.waiting -= taken
    later(loop)
    assert transport.is_aborted is (taken < 16 << 10)


def test_a_stream_that_is_read_slowly_goes_on(
    connected: tuple[Any, FakeLoop, FakeTransport],
) -> None:
    made, loop, transport = connected
    for _ in range(3):
        transport.waiting = 100_000
        made.pause_writing()
        later(loop)
        made.resume_writing()
    later(loop)
    assert not transport.is_aborted


_GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
_POST = _GET.replace(b"GET", b"POST").replace(
    b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def other(made: Any, loop: FakeLoop, address: str | None = None) -> tuple[Any, FakeTransport]:
    one = type(made)(made.config, made.server_state, {}, _loop=loop)
    transport = FakeTransport(address)
    one.connection_made(transport)
    return one, transport


def test_one_request_begins_in_a_round_of_the_loop(
    connected: tuple[Any, FakeLoop, FakeTransport],
) -> None:
    """However many were sent before the first answer: 300 such clients held /health for 20 s."""
    made, loop, transport = connected
    all_of_them = [(made, transport), *(other(made, loop) for _ in range(5))]
    for one, _ in all_of_them:
        one.data_received(_GET * 30)
    for _ in range(50):
        loop.round()
        assert len(loop.tasks) <= 1
    last, sent_to_last = other(made, loop)
    last.data_received(_GET)
    for _ in range(len(all_of_them) + 1):
        loop.round()
    assert sent_to_last.answers == 1
    answers = [transport.answers for _, transport in all_of_them]
    assert max(answers) - min(answers) <= 1
    assert sum(answers) >= 50
    while loop.soon:
        loop.round()
    assert {transport.answers for _, transport in all_of_them} == {30}
    assert all(transport.reads for _, transport in all_of_them)


def test_of_many_that_send_nothing_the_one_that_waits_longest_is_closed(
    connected: tuple[Any, FakeLoop, FakeTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,100 of them took all the files that a process may have: others waited 35 s."""
    monkeypatch.setattr("structgen.integrations.connections._MOST_IDLE", 2)
    made, loop, transport = connected
    _, second = other(made, loop)
    made.data_received(_GET)  # it sends, and waits behind the other from then on
    while loop.soon or loop.tasks:
        loop.round()
    assert transport.answers == 1
    slow, third = other(made, loop)
    assert second.is_aborted
    slow.data_received(_POST)  # of a body that does not come
    while loop.soon or loop.tasks:
        loop.round()
    other(made, loop)
    assert transport.is_aborted
    assert not third.is_aborted
    other(made, loop)
    assert third.is_aborted


def test_requests_that_wait_for_their_turn_are_read(
    connected: tuple[Any, FakeLoop, FakeTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 connections without a key had all requests of others dropped, and none answered."""
    monkeypatch.setattr("structgen.integrations.connections._MOST_IDLE", 3)
    made, loop, _ = connected
    flood = []
    for _ in range(10):
        flood.append(other(made, loop, "attacker"))
        flood[-1][0].data_received(_GET * 5)
    assert [one.is_aborted for _, one in flood] == [False] * 2 + [True] * 8  # made is the third
    mine, sent = other(made, loop, "mine")
    mine.data_received(_GET)
    for _ in range(3):
        loop.round()
    assert sent.answers == 1
    while loop.soon or loop.tasks:
        loop.round()
    assert [one.answers for _, one in flood][:2] == [5, 5]


@pytest.mark.parametrize(
    ("attackers", "own"),
    [
        ("192.0.2.1", "192.0.2.2"),
        ("2001:db8::{:x}", "2001:db8:0:1::1"),  # a machine has all of these
        ("fe80::{:x}%eth0", "::ffff:192.0.2.2"),
    ],
)
def test_addresses_take_turns(
    connected: tuple[Any, FakeLoop, FakeTransport], attackers: str, own: str
) -> None:
    made, loop, _ = connected
    for number in range(1, 51):
        other(made, loop, attackers.format(number))[0].data_received(_GET)
    mine, sent = other(made, loop, own)
    mine.data_received(_GET)
    for _ in range(3):
        loop.round()
    assert sent.answers == 1


@pytest.mark.parametrize("before", [b"", _GET])
def test_what_arrives_is_parsed_in_turns(
    connected: tuple[Any, FakeLoop, FakeTransport], before: bytes
) -> None:
    """A chunk of one byte takes the parser 20 us: some dozens of them are read in one round."""
    made, loop, transport = connected
    made.data_received(before + _POST + b"1\r\na\r\n" * 5_000 + b"0\r\n")
    made.data_received(b"\r\n")  # has come before reading was paused
    assert not transport.reads
    if before:
        loop.round()
    got = 0
    while loop.soon:
        loop.round(answers=False)
        body = len(made.cycle.body)
        assert body <= got + 100
        got = body
    assert got == 5_000
    loop.round()
    assert transport.answers == (2 if before else 1)
    assert transport.reads


@pytest.mark.parametrize("n", [500, 5_000])
def test_a_head_has_a_bound(connected: tuple[Any, FakeLoop, FakeTransport], n: int) -> None:
    """Also where it comes at once: 65,000 headers took 0.2 s."""
    made, loop, transport = connected
    made.data_received(_GET[:-2] + b"name: \r\n" * n + b"\r\n")
    while loop.soon:
        loop.round()
    assert transport.answers == (n == 500)
    assert transport.closes is (n != 500)
    if n != 500:  # in the shape of all errors
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"application/json" in head
        assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_requests_sent_before_the_answer_wait_with_the_client(
    connected: tuple[Any, FakeLoop, FakeTransport],
) -> None:
    """Each answer made room for 256 kB more of them: 919 MB of 300 clients without a key."""
    made, loop, transport = connected
    long = _GET[:-2] + b"name: %s\r\n\r\n" % (b"a" * 1_000)
    made.data_received(long * 100)
    for _ in range(80):
        loop.round()
        assert not transport.reads
    while loop.soon:
        loop.round()
    assert transport.answers == 100
    assert transport.reads


def test_what_is_no_http_after_an_answer_ends_the_connection(
    connected: tuple[Any, FakeLoop, FakeTransport],
) -> None:
    """It raised in the loop, and the connection stayed."""
    made, loop, transport = connected
    made.data_received(_POST)
    loop.round()
    assert transport.answers == 1
    made.data_received(b"zz\r\n")
    loop.round()
    assert transport.is_aborted


_OLD = b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"), [(_POST + b"zz\r\n", 400), (_OLD + b"zz\r\n" * 9_000, 200)]
)
def test_what_is_no_http_before_an_answer_has_one_answer(
    connected: tuple[Any, FakeLoop, FakeTransport],
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    status: int,
) -> None:
    """It had two, the application's second, which was a traceback in the log; no key was needed."""
    made, loop, transport = connected
    made.data_received(sent)
    while loop.soon:
        loop.round(answers=False)
    loop.round()
    assert transport.written.startswith(b"HTTP/1.1 %d" % status)
    assert transport.written.count(b"HTTP/1.1 ") == 1
    assert not [one for one in caplog.records if one.exc_info]


def test_nothing_is_read_again_and_again_beside_an_answer_that_is_the_last(
    connected: tuple[Any, FakeLoop, FakeTransport],
) -> None:
    """Another request behind a streamed answer that closes took a core until its end."""
    made, loop, transport = connected
    made.data_received(_GET * 2)
    loop.round(answers=False)
    made.conn.send(h11.Response(status_code=200, headers=[("Connection", "close")]))
    made.flow.resume_reading()  # as where the application waits for the client to go
    loop.round(answers=False)
    assert transport.reads
    assert not loop.soon
    loop.tasks.pop().close()


def test_streams_whose_events_are_there_take_turns() -> None:
    """Each sent 64 kB of events in its turn: of 40 that followed an old answer, others waited."""

    async def main() -> None:
        sent: list[str] = []

        async def follow(name: str) -> None:
            async def send(message: Any) -> None:
                sent.append(name)

            for _ in range(3):
                await in_parts(send, {"type": "http.response.body", "more_body": True})

        await asyncio.gather(*map(follow, "ab"))
        assert "".join(sent) == "ababab"

    asyncio.run(main())


def test_bodies_of_strangers_do_not_have_health_refused(idle: Runner) -> None:
    """64 MB of bodies that never ended, sent without a key, had it answer 429 to all."""
    app = create_app(idle, Settings(api_keys=("k",), max_body_bytes=100))
    statuses: list[int] = []

    async def get(body: bytes, *, ends: bool) -> None:
        arriving = [{"type": "http.request", "body": body, "more_body": not ends}]

        async def receive() -> Any:
            if arriving:
                return arriving.pop()
            await asyncio.sleep(10)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/health",
            "raw_path": b"/health",
            "query_string": b"",
            "headers": [],
        }
        await app(scope, receive, send)

    async def all_of_them() -> None:
        slow = [asyncio.ensure_future(get(b"x" * 90, ends=False)) for _ in range(40)]
        await asyncio.sleep(0.01)
        await get(b"", ends=True)
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await get(b"x" * 2_000, ends=False)

    asyncio.run(all_of_them())
    assert statuses == [200, *[503] * 40, 413]


def test_answers_that_are_not_read_count_as_bodies_do(idle: Runner) -> None:
    """So do conversations that are gone on from: hundreds of 4 MB filled the memory."""
    app = create_app(idle, Settings(api_keys=("a", "b"), max_body_bytes=40_000))
    statuses: list[int] = []
    reads = asyncio.Event()
    goes_on = threading.Event()

    async def ask(key: str, path: str, body: bytes = b"") -> None:
        arriving = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return arriving.pop() if arriving else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif message.get("more_body"):
                await reads.wait()

        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        scope = {
            "type": "http",
            "method": "POST" if body else "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await app(scope, receive, send)

    async def until(n_answers: int) -> None:
        for _ in range(60_000):
            if len(statuses) >= n_answers:
                return
            await asyncio.sleep(0.001)

    async def all_of_them() -> None:
        for key in "ab":
            made = {"id": f"resp_{key}", "status": "completed", "output": []}
            item = {"type": "message", "id": "msg", "role": "user", "content": "x" * 100_000}
            await app.state.store.put(Stored(made, [item], [], owner_of(key)))
        items = "/v1/responses/resp_{}/input_items"
        slow = [asyncio.ensure_future(ask("a", items.format("a"))) for _ in range(3)]
        await until(3)
        more = json.dumps({"previous_response_id": "resp_a", "input": "Hi"}).encode()
        await ask("a", items.format("a"))
        await ask("a", "/v1/responses", more)
        other = asyncio.ensure_future(ask("b", items.format("b")))
        await until(6)
        reads.set()
        await asyncio.gather(*slow, other)
        await ask("a", items.format("a"))
        # Answers that wait to be written have their conversations in memory.
        busy = asyncio.ensure_future(app.state.bodies.do(owner_of("a"), goes_on.wait))
        waiting = [asyncio.ensure_future(ask("a", "/v1/responses/resp_a")) for _ in range(7)]
        await until(8)
        goes_on.set()
        await asyncio.gather(busy, *waiting)

    asyncio.run(all_of_them())
    assert statuses == [200, 200, 200, 429, 429, 200, 200, 429, *[200] * 6]


@pytest.mark.parametrize(
    ("line", "query"), [("store", b""), ("bodies", b""), ("bodies", b"stream=true")]
)
def test_a_stored_answer_is_not_read_for_who_has_left(
    idle: Runner, line: str, query: bytes
) -> None:
    """1,200 requests whose clients had gone kept the server busy for eleven minutes."""
    app = create_app(idle, Settings(api_keys=("a",)))
    goes_on, statuses = threading.Event(), []

    async def receive() -> Any:
        return arriving.pop() if arriving else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        statuses.append(message)

    arriving = [{"type": "http.request", "body": b"", "more_body": False}]
    path = {"path": "/v1/responses/resp_a", "raw_path": b"", "query_string": query}
    headers = [(b"authorization", b"Bearer a")]

    async def main() -> bool:
        made = {"id": "resp_a", "status": "completed", "output": []}
        await app.state.store.put(Stored(made, [], [], owner_of("a")))
        turns = app.state.store._turns if line == "store" else app.state.bodies
        busy = asyncio.ensure_future(turns.do("b", goes_on.wait))
        scope = {"type": "http", "method": "GET", **path, "headers": headers}
        asking = asyncio.ensure_future(app(scope, receive, send))
        await asyncio.wait({asking}, timeout=5)
        is_over = asking.done()
        goes_on.set()
        await asyncio.gather(busy, asking)
        return is_over

    assert asyncio.run(main())
    assert not statuses


def test_a_key_has_so_many_requests_under_way(
    idle: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 that followed streams of one key had others wait for 6 s."""
    monkeypatch.setattr(gateway, "_MOST_REQUESTS", 3)
    app = create_app(idle, Settings(api_keys=("a", "b")))
    statuses: list[int] = []

    async def ask(key: str) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                await asyncio.sleep(0 if message["status"] == 429 else 10)

        headers = [(b"authorization", f"Bearer {key}".encode())]
        path = {"path": "/v1/models", "raw_path": b"/v1/models", "query_string": b""}
        await app({"type": "http", "method": "GET", **path, "headers": headers}, receive, send)

    async def all_of_them() -> None:
        tasks = [asyncio.ensure_future(ask(key)) for key in "aaaaab"]
        while len(statuses) < len(tasks):
            await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
    assert sorted(statuses) == [200] * 4 + [429] * 2


def test_headers_are_taken_once_each_for_spans() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider

    class Counting(Headers):
        def __getitem__(self, key: str) -> str:
            raise AssertionError("it looks through all headers")

    headers: Mapping[str, str] = Counting({f"a{at}": "b" for at in range(10)})
    with span_of(Traces(TracerProvider()).tracer(), "GET", headers, "id") as said:
        said["status"] = 200


def test_pictures_that_are_fetched_count_as_bodies_and_owners_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slow hosts held all threads; 4 kB of addresses were 850 MB of pictures."""
    goes_on, taken = threading.Event(), Mock()

    def fetched(url: str, *_: Any) -> bytes:
        if "slow" in url:
            goes_on.wait(60)
        return b"picture"

    monkeypatch.setattr(pictures, "fetched", fetched)
    state = SimpleNamespace(settings=Settings(), pictures=Aside(8, 100, "pictures"))

    async def ask(owner: str, url: str) -> int:
        request: Any = Mock(
            state=Mock(owner=owner, taken=taken),
            app=Mock(state=state),
            body=AsyncMock(return_value=b""),
        )
        part = {"type": "image_url", "image_url": {"url": url}}
        return await pictures.with_pictures(request, {"messages": [{"content": [part]}]})

    async def all_of_them() -> None:
        slow = [asyncio.ensure_future(ask("a", "http://slow/")) for _ in range(30)]
        await asyncio.sleep(0)
        assert await ask("b", "http://fast/")
        assert not any(one.done() for one in slow)
        goes_on.set()
        await asyncio.gather(*slow)

    asyncio.run(all_of_them())
    assert sum(one.args[0] for one in taken.call_args_list) > 31 * len(b"picture")


# -- web pages --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def idle() -> Iterator[Runner]:
    with Runner({}) as made:
        yield made


async def _asked(
    runner: Runner, headers: dict[str, str], path: str, **settings: Any
) -> httpx.Response:
    app = create_app(runner, Settings(**settings))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        return await client.post(path, headers=headers)


def asked(runner: Runner, headers: dict[str, str], path: str, **settings: Any) -> httpx.Response:
    return asyncio.run(_asked(runner, headers, path, **settings))


OWN = "http://localhost:8000"
EVIL = "http://evil.example"


@pytest.mark.parametrize(
    "path", ["/v1/models/x/load", "/v1/models/x/unload", "/v1/responses/x/cancel"]
)
@pytest.mark.parametrize(
    ("headers", "settings", "status"),
    [
        ({}, {}, 404),
        ({"Origin": EVIL}, {}, 403),
        ({"Origin": "null"}, {}, 403),
        ({"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}, {}, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, {}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, {}, 403),
        ({"Origin": OWN}, {}, 404),
        ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, {}, 404),
        ({"Origin": EVIL}, {"cors_origins": (EVIL,)}, 404),
        ({"Origin": EVIL}, {"cors_origins": ("*",)}, 404),
        ({"Origin": EVIL}, {"api_keys": ("k",)}, 401),
        ({"Origin": EVIL, "Authorization": "Bearer k"}, {"api_keys": ("k",)}, 404),
        ({"Content-Type": "application/x-www-form-urlencoded"}, {}, 400),
        ({"Content-Type": "text/plain"}, {}, 400),
        ({"Content-Type": "multipart/form-data; boundary=x"}, {}, 400),
        ({"Content-Type": "application/json"}, {}, 404),
    ],
)  # fmt: skip
def test_pages_of_others_change_nothing(
    idle: Runner, path: str, headers: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    answer = asked(idle, headers, path, **settings)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"api_keys": ("k",)}, 404),
        ({"api_keys": ("k", "l")}, 403),
        ({"api_keys": ("k", "l"), "allow_unload": True}, 404),
        ({}, 404),
        ({"host": "0.0.0.0"}, 403),
        ({"host": "0.0.0.0", "allow_unload": True}, 404),
        ({"host": "0.0.0.0", "api_keys": ("k",)}, 404),
    ],
)
def test_no_key_unloads_the_model_of_another(
    idle: Runner, settings: dict[str, Any], status: int
) -> None:
    """While a long answer of one key keeps a model from being unloaded, all others wait; and for as
    long as it takes to load again."""
    headers = {"Authorization": "Bearer k"}
    answer = asked(idle, headers, "/v1/models/x/unload", **settings)
    assert answer.status_code == status, answer.text


def test_curl_is_told_which_header_it_lacks(idle: Runner) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = asked(idle, headers, "/v1/chat/completions")
    assert "curl: -H 'Content-Type: application/json'" in answer.text.replace("With ", "")


@pytest.mark.parametrize("length", ["²", "٣", "9" * 5_000])
def test_a_content_length_that_is_no_number(idle: Runner, length: str) -> None:
    app = create_app(idle, Settings())
    sent: list[Any] = []

    coming = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> dict[str, Any]:
        while not coming:
            await asyncio.sleep(60)  # the client stays
        return coming.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", length.encode("latin-1", "replace"))]
    path = "/v1/models/x/load"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
             "server": ("localhost", 80), "scheme": "http", "root_path": "",
             "http_version": "1.1", "asgi": {"version": "3.0"}}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == (413 if length.isascii() else 404)


# -- the log ----------------------------------------------------------------------------------

FORGED = "/v1/x\n2026-01-01 INFO POST /v1/y 200\x1b[31m\x85\u2028\r"


def record(message: str, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("structgen.server", logging.INFO, "", 0, "%s", (message,), info)
    made.__dict__.update(extra)
    return made


def test_a_path_stays_in_its_line_of_the_log() -> None:
    entry = {"method": "GET", "path": FORGED, "status": 404, "model": FORGED, "x": "\ud800"}
    for made in (record("-", entry=entry), record(FORGED)):
        for form in (_Text(), _Json()):
            line = form.format(made)
            assert line.isprintable()
            line.encode()
    assert _Text().format(record("-", entry=entry)).split()[5] == "404"


def test_a_message_in_a_traceback_is_no_line_of_the_log() -> None:
    lines = _Text().format(record("it failed", ValueError(f"a{FORGED}"))).splitlines()
    assert len(lines) > 1
    assert all(line.startswith("  ") and line.isprintable() for line in lines[1:])


# -- keys, files, the start -------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["sha256:", "sha256:abc", "sha256:" + "A" * 64, "SHA256:" + "a" * 64]
)
def test_a_hash_that_is_none_is_no_key(key: str) -> None:
    with pytest.raises(OptionError, match="64 lower-case hex digits"):
        Keys([key])


@pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")
def test_a_file_of_sessions_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch()
    path.chmod(0o666)
    Sessions(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_server_says_nothing_of_listening_where_it_cannot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match="Cannot listen"):
            serve(Settings(models={"smollm2-135m-instruct": "smollm2-135m-instruct"}, port=port))
    assert "listen" not in capsys.readouterr().err


# -- what an answer says of itself ------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "how"),
    [
        ({"temperature": 0.7}, (0.7, 0.9)),
        ({"temperature": 0}, (0.0, 1.0)),
        ({"temperature": 0, "top_p": 0.5}, (0.0, 1.0)),
        ({}, (0.0, 1.0)),
        ({"top_p": 0.5}, (0.3, 0.5)),
        ({"top_k": 5}, (0.3, 0.9)),
        ({"top_k": 1}, (0.0, 1.0)),
        ({"min_p": 0.1}, (0.3, 0.9)),
    ],
)
def test_a_request_says_how_it_is_sampled(fields: dict[str, Any], how: tuple[float, float]) -> None:
    own = {"do_sample": False, "temperature": 0.3, "top_p": 0.9}
    asked = ChatRequest(messages="a", **fields)
    assert tuple(samples_how(asked, own).values()) == how


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("choice", ["none", "auto"])
def test_text_beside_tools_that_the_limit_cut_says_so(
    served: Served, choice: str, streams: bool
) -> None:
    request = {
        "messages": "Tell me a long story of a fox.",
        "max_tokens": 20,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": choice,
    }
    if not streams:
        (made,) = served.runner.chat(request, model="small").choices
        assert (made.finish_reason, made.message.tool_calls) == ("length", None)
        return
    reasons = [
        one.finish_reason
        for chunk in served.runner.stream_chat(request, model="small")
        for one in chunk.choices
    ]
    assert reasons[-1] == "length"
