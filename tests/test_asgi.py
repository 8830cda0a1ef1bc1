"""A handler's work ends when its client leaves: with a real server, and a real disconnect."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import structgen
from structgen.asgi import while_connected

GUARD = 60.0  # seconds: something hangs, after that


@contextmanager
def serving(app: Starlette) -> Iterator[int]:
    """A real server; its port."""
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def post(port: int, body: bytes = b"soup") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    head = f"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


class Handler:
    """An endless handler, which tells what becomes of it."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        self.seen: list[str] = []

    async def __call__(self, request: Request) -> Response:
        try:
            async with while_connected(request):
                self.seen.append((await request.body()).decode())
                self.began.set()
                await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        except HTTPException as error:
            self.seen.append(f"{error.status_code}")
            raise
        finally:
            self.ended.set()
        return PlainTextResponse("nobody reads this")


async def passing(request: Request, call: Callable[[Request], Any]) -> Any:
    return await call(request)


@pytest.mark.parametrize("middleware", [[], [Middleware(BaseHTTPMiddleware, dispatch=passing)]])
def test_the_block_ends_when_the_client_leaves(
    middleware: list[Middleware], caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler()

    async def endpoint(request: Request) -> Response:
        return await handler(request)

    app = Starlette(routes=[Route("/", endpoint, methods=["POST"])], middleware=middleware)
    with caplog.at_level(logging.ERROR), serving(app) as port:
        client = post(port)
        assert handler.began.wait(GUARD)
        client.close()
        assert handler.ended.wait(GUARD), "the handler ends, and not with its own end"
    assert handler.seen == ["soup", "499"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_client_that_stays_is_answered() -> None:
    async def endpoint(request: Request) -> Response:
        async with structgen.asgi.while_connected(request):
            await asyncio.sleep(0)
            return PlainTextResponse(await request.body())

    with serving(Starlette(routes=[Route("/", endpoint, methods=["POST"])])) as port:
        client = post(port, b"goulash")
        client.settimeout(GUARD)
        answer = b""
        while b"goulash" not in answer:
            answer += client.recv(1000)
        client.close()
    assert answer.startswith(b"HTTP/1.1 200")


class Connected:
    """A request whose client leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()

    async def body(self) -> bytes:
        raise RuntimeError("Stream consumed")

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


def test_what_the_block_raises_is_raised_and_nothing_is_left_behind() -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="mine"):
            async with while_connected(Connected()):
                raise ValueError("mine")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())


def test_a_client_that_leaves_as_the_block_ends_cancels_nothing_after_it() -> None:
    async def work(turns: int) -> str:
        request = Connected()
        try:
            async with while_connected(request):
                await asyncio.sleep(0)  # it waits for the client
                request.leaves.set()
                for _ in range(turns):
                    await asyncio.sleep(0)
        except HTTPException:
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "goes on"

    for turns in range(5):
        assert asyncio.run(work(turns)) == "goes on"


def test_a_task_that_others_cancel_is_cancelled() -> None:
    async def endless(request: Connected) -> None:
        async with while_connected(request):
            await asyncio.sleep(3600)

    async def work() -> None:
        task = asyncio.create_task(endless(Connected()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        request = Connected()
        task = asyncio.create_task(endless(request))
        await asyncio.sleep(0.01)
        request.leaves.set()
        with pytest.raises(HTTPException):
            await task

    asyncio.run(work())
