"""Pictures that are fetched: only from hosts that were named, in bounds, and never from others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from structgen.runner import Aside
from structgen.server import Settings, pictures
from structgen.server.errors import ApiError
from structgen.server.wire import reader

ENDED = threading.Event()
SIZE = 100_000


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to?"))
            self.end_headers()
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            try:
                while not ENDED.is_set():
                    self.wfile.write(bytes(1 << 20))
            except OSError:
                pass
        elif self.path == "/slow":
            ENDED.wait(30)
        else:
            picture = b"png" if self.path == "/x.png" else bytes(SIZE)
            self.send_response(404 if self.path == "/nothing" else 200)
            self.send_header("Content-Length", str(len(picture)))
            self.end_headers()
            self.wfile.write(picture)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    ENDED.clear()  # a process may come back to a module
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    ENDED.set()
    server.shutdown()
    server.server_close()
    thread.join()


def fetched(url: str, *hosts: str, seconds: float = 20.0) -> bytes:
    links: list[socket.socket] = []
    return pictures.fetched(url, hosts, time.monotonic() + seconds, links)


def test_a_host_that_was_named_is_asked(host):
    assert fetched(f"http://{host}/x.png", host) == b"png"
    assert fetched(f"http://{host}/to?/x.png", "other", host) == b"png"
    port = host.rpartition(":")[2]
    assert fetched(f"http://LOCALHOST:{port}/x.png", f"localhost:{port}", "127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nothing", "status 404"),
        ("/to?/to?/to?/to?/to?/x.png", "more than 3 times"),
        ("/to?http://example.com/x.png", "does not fetch images from 'example.com'"),
        ("/to?http://second.example/x.png", "redirects to another host"),
        ("/to?file:///etc/passwd", "redirects to another host"),
        ("/endless", "more than 20,971,520 bytes"),
    ],
)
def test_what_a_host_answers_is_bounded(host, path, message):
    with pytest.raises(ValueError, match=message):
        fetched(f"http://{host}{path}", host, "second.example")


def test_large_pictures_count_at_once_and_are_not_encoded_in_the_loop(host, monkeypatch):
    """One key's pictures of 18 MB, fetched by sixty requests, let others wait 5 s."""
    threads: list[threading.Thread] = []

    def encoded(kind: str, data: bytearray) -> str:
        threads.append(threading.current_thread())
        return "data:" + "A" * len(data)

    monkeypatch.setattr(pictures, "data_uri", encoded)

    async def body() -> bytes:
        return b""

    async def counted(most: int) -> list[int]:
        counts: list[int] = []

        def taken(more: int) -> None:
            counts.append(more)
            if sum(counts) > most:
                raise ApiError(429, "Too much.", code="rate_limit_exceeded")

        state = SimpleNamespace(
            settings=Settings(image_hosts=(host,)), pictures=Aside(1, 9, "a"), bodies=reader()
        )
        request: Any = SimpleNamespace(
            app=SimpleNamespace(state=state),
            state=SimpleNamespace(owner="", taken=taken),
            body=body,
        )
        part = {"type": "image_url", "image_url": f"http://{host}/large.png"}
        with contextlib.suppress(ApiError):
            await pictures.with_pictures(request, {"messages": [{"content": [part]}]})
        return counts

    assert asyncio.run(counted(SIZE - 1)) == [SIZE]
    assert not threads
    assert asyncio.run(counted(2 * SIZE)) == [SIZE, len("data:")]
    assert threads != [threading.main_thread()]


def test_no_answer_is_waited_for_longer_than_allowed(host):
    with pytest.raises(OSError, match=r"timed out|too long"):
        fetched(f"http://{host}/slow", host, seconds=0.2)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("http://127.0.0.1/x", ()),
        ("http://127.0.0.1:81/x", ("127.0.0.1",)),
        ("http://good.example@127.0.0.1/x", ("good.example",)),
        ("http://user@good.example/x", ("good.example",)),
        ("http://good.example.evil.example/x", ("good.example",)),
        ("https://[::1]/x", ("::1:80",)),
    ],
)
def test_other_hosts_are_not_asked(url, hosts, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", None)
    with pytest.raises(ValueError, match="does not fetch images from"):
        fetched(url, *hosts)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fe80::1%lo", "::ffff:10.0.0.1"]
)
def test_a_name_leads_into_no_private_network(address, monkeypatch):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = [(family, socket.SOCK_STREAM, 6, "", (address, 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(ValueError, match="has the private address"):
        fetched("http://good.example/x", "good.example")
