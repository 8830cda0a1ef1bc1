"""Settings, keys, limits, clients that leave, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from click.testing import CliRunner
from one_server import KEY, MODEL, Served, serving
from pydantic import ValidationError

from structgen import Runner
from structgen.cli.commands import cli
from structgen.errors import OptionError, RequestError
from structgen.runner import ChatRequest, Trials
from structgen.server import Settings, create_app
from structgen.server.gateway import Keys, RateLimit, keys_in

AUTH = {"Authorization": f"Bearer {KEY}"}
ASK: Any = [{"role": "user", "content": "Count to a thousand."}]


# -- settings ---------------------------------------------------------------------------------


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nhost = "a"\nmax_queue = 3\n[models]\nx = "y"\n')
    environment = {"STRUCTGEN_SERVER_PORT": "2", "STRUCTGEN_SERVER_HOST": "b"}
    made = Settings.of({"port": 4, "host": None}, environment, file)
    assert (made.port, made.host, made.max_queue, made.models) == (4, "b", 3, {"x": "y"})


def test_environment() -> None:
    made = Settings.of(
        {},
        {
            "STRUCTGEN_API_KEY": "a,b",
            "STRUCTGEN_SERVER_MODELS": "x=y,z",
            "STRUCTGEN_SERVER_LAZY": "true",
            "STRUCTGEN_SERVER_CORS_ORIGINS": '["http://a"]',
        },
    )
    assert made.api_keys == ("a", "b")
    assert made.models == {"x": "y", "z": "z"}
    assert made.lazy
    assert made.cors_origins == ("http://a",)
    assert "a" not in repr(made).partition("api_key")[2][:3]


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({"port": 70_000}, {}, "", "--port"),
        ({}, {"STRUCTGEN_API_KEY": ""}, "", "STRUCTGEN_API_KEY: it contains no key"),
        ({}, {"STRUCTGEN_SERVER_API_KEYS": " , "}, "", "API_KEYS: it contains no key"),
        (
            {},
            {"STRUCTGEN_SERVER_API_KEYS": "b", "STRUCTGEN_API_KEY": "a"},
            "",
            "STRUCTGEN_API_KEY and STRUCTGEN_SERVER_API_KEYS both set api_keys. Remove one.",
        ),
        (
            {},
            {"STRUCTGEN_SERVER_PORT": "1", "STRUCTGEN_SERVER_port": "2"},
            "port = 3",
            "STRUCTGEN_SERVER_PORT and STRUCTGEN_SERVER_port both set port. Remove one.",
        ),
        (
            {},
            {"STRUCTGEN_SERVER_PROT": "1"},
            "",
            "STRUCTGEN_SERVER_PROT: there is no such setting. Did you mean port?",
        ),
        ({}, {"STRUCTGEN_SERVER_HOST": ""}, "", "STRUCTGEN_SERVER_HOST: it is empty"),
        ({}, {"STRUCTGEN_SERVER_FILES": ""}, "", "STRUCTGEN_SERVER_FILES: it is empty"),
        ({}, {}, "prot = 1", "server.toml: prot: there is no such"),
        (
            {},
            {},
            "zzz = 1",
            "server.toml: zzz: there is no such setting. Known settings: host, port, ",
        ),
        ({}, {}, "prot", "is not valid TOML"),
        ({"models": ("a=b", "a=c")}, {}, "", "Two models"),
        ({"request_seconds": 0}, {}, "", "--request-seconds"),
        ({"image_hosts": ("https://a.b/c",)}, {}, "", "--image-host: write a.b instead of https"),
        ({"cors_origins": ("https://a.b/",)}, {}, "", "--cors-origin: write https://a.b instead"),
        ({"cors_origins": ("a.b:3",)}, {}, "", "write https://a.b:3 instead of a.b:3"),
        ({}, {}, 'allowed_hosts = ["http://a.b"]', "allowed_hosts: write a.b instead of http"),
        ({"cors_origins": ("https://A.b",)}, {}, "", "write https://a.b instead of https://A.b"),
        ({"cors_origins": ("https://*.a.b",)}, {}, "", "'https://*.a.b' is not an origin"),
        ({"image_hosts": ("*",)}, {}, "", "--image-host: '*' is not a host"),
        ({"image_hosts": ("a.b,c.d",)}, {}, "", "'a.b,c.d' is not a host"),
        ({"image_hosts": ("",)}, {}, "", "'' is not a host"),
        ({}, {}, 'allowed_hosts = ["*.a.b"]', "allowed_hosts: '*.a.b' is not a host"),
    ],
)
def test_what_is_wrong_says_where(
    flags: Any, environment: Any, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=re.escape(message)):
        Settings.of(flags, environment, file)


def test_a_folder_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path was the id, which every client is told."""
    one, other = tmp_path / "one" / "mine", tmp_path / "other" / "mine"
    for folder in (one, other):
        folder.mkdir(parents=True)
    monkeypatch.chdir(one)
    for given in (".", f"{one}/", "../mine"):
        assert Settings(models=[given, "x"]).models == {"mine": given, "x": "x"}
    named = [str(one), f"theirs={other}"]
    assert Settings(models=named).models == {"mine": str(one), "theirs": str(other)}
    with pytest.raises(ValidationError, match="Two models have the id mine"):
        Settings(models=[str(one), str(other)])


def test_hosts_and_origins_as_they_are_sent() -> None:
    origins = ("*", "null", "http://localhost:3000", "http://[::1]:3", "chrome-extension://abc")
    hosts = ("a.b", "10.0.0.7", "a.b:8080", "[::1]:8080", "::1")
    made = Settings.of({"cors_origins": origins, "image_hosts": hosts, "allowed_hosts": hosts}, {})
    assert (made.cors_origins, made.image_hosts, made.allowed_hosts) == (origins, hosts, hosts)


def test_check_loads_nothing(tmp_path: Path) -> None:
    names = [f"a={MODEL}", "--embedder", "c=some/repository"]
    run = CliRunner().invoke(cli, ["serve", "--check", *names, "--host", "::"])
    assert run.exit_code == 0
    assert "models: a, c" in run.output
    assert "warning" in run.output
    run = CliRunner().invoke(cli, ["serve", "--check"])
    assert MODEL in run.output
    run = CliRunner().invoke(cli, ["serve", "--check", "--default-model", "none"])
    assert run.exit_code == 1


@pytest.mark.parametrize("flags", [["--check"], ["--port", "0"]])
@pytest.mark.parametrize(
    ("models", "told"),
    [
        (["smollm2"], "There is no model 'smollm2'. Did you mean"),
        (["./none"], "The folder ./none does not exist."),
        (["--embedder", f"e={MODEL}"], f"embedders.e: {MODEL} is a language model"),
        (
            ["a=some/one", "--embedder", "a=some/other"],
            "'a' is the id of a model and of an embedder",
        ),
        (["--files", ""], "--files: it is empty."),
    ],
)
def test_a_model_that_cannot_be_is_told_at_once(
    models: list[str], told: str, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: pytest.fail("it serves"))
    run = CliRunner().invoke(cli, ["serve", *models, *flags])
    assert run.exit_code == 1
    assert str(run.exception).startswith(told)


# -- who may ask ------------------------------------------------------------------------------


def test_keys_are_kept_as_hashes(tmp_path: Path) -> None:
    import hashlib

    hashed = "sha256:" + hashlib.sha256(b"two").hexdigest()
    file = tmp_path / "keys"
    file.write_text(f"# mine\none\n\n{hashed}\n")
    keys = Keys(keys_in(file))
    assert keys.holder("one") == "key0"
    assert keys.holder("two") == "key1"
    assert keys.holder(hashed) is None
    assert keys.holder("") is None
    assert b"one" not in b"".join(keys._hashes)
    with pytest.raises(OptionError):
        Keys(["a b"])


def test_every_endpoint_wants_a_key(served: Served) -> None:
    document = httpx.get(f"{served.root}/openapi.json", timeout=60).json()
    for path, methods in document["paths"].items():
        for method in methods:
            status = httpx.request(method, served.root + path).status_code
            assert (status == 401) == (not path.startswith("/health")), path


def test_pages_of_other_origins(served: Served) -> None:
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x"}
    for origin, allowed in (("http://a.b", True), ("http://evil", False)):
        answer = httpx.options(f"{served.root}/v1/models", headers={"Origin": origin, **ask})
        assert (answer.headers.get("access-control-allow-origin") == origin) == allowed
    answer = httpx.get(f"{served.root}/v1/models", headers={"Origin": "http://a.b"}, timeout=60)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "http://a.b"


def asked(app: Any, **fields: Any) -> httpx.Response:
    """An answer of an application that no server runs."""

    async def ask() -> httpx.Response:
        given = {"url": "http://localhost/v1/models", "method": "GET", **fields}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(**given)

    return asyncio.run(ask())


def test_a_local_server_is_asked_by_its_names() -> None:
    with Runner() as runner:
        app = create_app(runner)
        assert asked(app).status_code == 200
        answer = asked(app, url="http://rebound.example/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_host")
        app = create_app(runner, Settings(host="127.0.0.2"))  # only this machine has it, too
        assert asked(app, url="http://127.0.0.2/v1/models").status_code == 200
        assert asked(app, url="http://rebound.example/v1/models").status_code == 400
        app = create_app(runner, Settings(allowed_hosts=("mine.example",)))
        assert asked(app, url="http://mine.example/v1/models").status_code == 200
        app = create_app(runner, Settings(allowed_hosts=("Mine.example:8000", "[::1]")))
        assert asked(app, url="http://mine.example:8000/v1/models").status_code == 200
        assert asked(app, url="http://[::1]:8000/v1/models").status_code == 200
        assert asked(app, url="http://[::1]/v1/models").status_code == 200
        assert asked(app, url="http://mine.example/v1/models").status_code == 400


def test_the_document_is_written_once_for_each_prefix() -> None:
    with Runner() as runner:
        app = create_app(runner)
        path = "http://localhost/openapi.json"
        document = asked(app, url=path)
        assert document.headers["content-type"] == "application/json"
        assert "servers" not in document.json()
        app.openapi()["paths"] = {}
        assert asked(app, url=path).content == document.content
        app.root_path = "/under"
        assert asked(app, url=path).json()["servers"] == [{"url": "/under"}]


# -- limits -----------------------------------------------------------------------------------


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    rate = RateLimit(2, clock=lambda: now[0])
    assert [rate.take("a"), rate.take("a")] == [0, 0]
    assert rate.take("a") == pytest.approx(30)
    assert rate.take("b") == 0
    now[0] = 30.0
    assert rate.take("a") == 0
    assert rate.take("a") > 0


def test_more_than_so_many_a_minute_get_429() -> None:
    with Runner() as runner:
        app = create_app(runner, Settings(requests_per_minute=1))
        assert asked(app).status_code == 200
        answer = asked(app)
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(answer.headers["retry-after"]) >= 1
        assert asked(app, url="http://localhost/health").status_code == 200


def test_a_defect_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Runner() as runner:
        app = create_app(runner)
        app.state.runner = None
        with caplog.at_level(logging.ERROR, "structgen.server"):
            answer = asked(app)
    assert answer.status_code == 500
    assert "NoneType" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text
    assert "AttributeError" in caplog.text


def test_logs_have_no_prompts(client: openai.OpenAI, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "structgen.server"):
        client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "my secret"}],
            max_tokens=1,
            extra_headers={"X-Request-Id": "mine-1"},
        )
        end = time.monotonic() + 60  # the answer comes before its line
        while not (said := [one for one in caplog.messages if '"mine-1"' in one]):
            assert time.monotonic() < end
            time.sleep(0.01)
    entry = json.loads(said[-1])
    assert entry["id"] == "mine-1"
    assert entry["status"] == 200
    assert entry["model"] == "small"
    assert entry["completion_tokens"] == 1
    assert "secret" not in caplog.text
    assert KEY not in caplog.text


def test_bodies_are_logged_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    with Runner() as runner:
        app = create_app(runner, Settings(log_prompts=True))
        with caplog.at_level(logging.INFO, "structgen.server"):
            body = {"model": "none", "input": "my text"}
            url = "http://localhost/v1/embeddings"
            assert asked(app, method="POST", url=url, json=body).status_code == 404
    entry = json.loads(caplog.records[-1].getMessage())
    assert entry["body"] == body
    assert entry["error"] == "model_not_found"


def test_the_queue_is_bounded() -> None:
    async def main() -> None:
        with Runner({"small": MODEL}, max_concurrency=1, max_queue=1) as runner:
            app = create_app(runner, Settings(request_seconds=60))
            transport = httpx.ASGITransport(app)
            body = {"messages": ASK, "max_tokens": 4}
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(
                    transport=transport, base_url="http://localhost", timeout=60
                ) as client,
            ):
                answers = await asyncio.gather(
                    *(client.post("/v1/chat/completions", json=body) for _ in range(4))
                )
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [200, 200, 429, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["code"] == "overloaded"
        assert int(refused.headers["retry-after"]) >= 1

    asyncio.run(main())


def test_hostile_forms_meet_a_deadline() -> None:
    async def main() -> None:
        hostile = ChatRequest.of(
            {"messages": "-", "grammar": "(.*a.{24})+" * 3, "grammar_type": "regex"}, {}
        )
        good = ChatRequest.of({"messages": "-", "grammar": "a+", "grammar_type": "regex"}, {})
        trials = Trials(seconds=0.0001, memory=2 << 30)
        with pytest.raises(RequestError, match=r"longer than 0\.0001 s") as caught:
            await trials.check(hostile)
        assert caught.value.param == "grammar"
        await trials.close()
        trials = Trials(seconds=60, memory=2 << 30)
        await trials.check(good)
        await trials.check(good)
        with pytest.raises(RequestError):
            await trials.check(hostile.model_copy(update={"grammar": "a("}))
        await trials.check(good)
        await trials.close()
        trials = Trials(seconds=60, memory=1 << 20)  # so that it can have no more
        large = {"grammar": [f"{i:08}" for i in range(20_000)], "grammar_type": "choice"}
        for _ in range(2):
            with pytest.raises(RequestError, match="bytes"):
                await trials.check(ChatRequest.of({"messages": "-"}, large))
        await trials.close()

    asyncio.run(main())


# -- clients that leave -----------------------------------------------------------------------


def users(served: Served) -> int:
    return int(served.runner.get_model_info("small")["users"])


def wait_until_idle(served: Served) -> None:
    end = time.monotonic() + 60
    while users(served):
        assert time.monotonic() < end, "the model still works for somebody who has left"
        time.sleep(0.01)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_client_that_leaves_ends_its_work(served: Served, streams: bool, path: str) -> None:
    wait_until_idle(served)
    # Some minutes of work, if nobody ended it.
    body: dict[str, Any] = {"model": "small", "stream": streams}
    if path == "/v1/responses":
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 3000}
        format_ = {"type": "json_schema", "name": "x", "schema": schema}
        body |= {"input": "Count.", "text": {"format": format_}}
    else:
        body |= {"messages": ASK, "grammar": "(one )+", "grammar_type": "regex"}
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(head.encode() + data)
        if streams:
            assert b"200 OK" in connection.recv(65_536)
        end = time.monotonic() + 60
        while not users(served):
            assert time.monotonic() < end
            time.sleep(0.01)
    wait_until_idle(served)


def test_a_body_that_never_ends(served: Served) -> None:
    with Runner() as runner:
        app = create_app(runner, Settings(body_seconds=0.05))

        async def main() -> list[Any]:
            sent: list[Any] = []

            async def receive() -> Any:
                await asyncio.sleep(3600)

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [
                    (b"host", b"localhost"), (b"content-type", b"application/json")],
                "query_string": b"", "client": ("127.0.0.1", 1), "http_version": "1.1",
                "scheme": "http", "server": ("localhost", 80), "root_path": "",
            }  # fmt: skip
            await app(scope, receive, send)
            return sent

        sent = asyncio.run(main())
    assert sent[0]["status"] == 408


def test_a_long_prompt_does_not_hold_up_a_stream(served: Served) -> None:
    wait_until_idle(served)
    long = {"model": "small", "messages": "word " * 1_500, "max_tokens": 1}
    short = {"model": "small", "messages": "Hi.", "max_tokens": 2, "stream": True}
    url = f"{served.root}/v1/chat/completions"
    with ThreadPoolExecutor(1) as pool, httpx.Client(headers=AUTH, timeout=300) as http:
        http.get(f"{served.root}/health")  # to make a client takes longer than to ask
        asked = pool.submit(httpx.post, url, json=long, headers=AUTH, timeout=300)
        while not users(served):
            assert not asked.done()
            time.sleep(0.01)
        with http.stream("POST", url, json=short) as answer:
            lines = [line for line in answer.iter_lines() if line]
        # Its prompt takes some twenty passes; the stream had its turn between them.
        assert not asked.done()
        assert lines[-1] == "data: [DONE]"
        assert asked.result().json()["usage"]["prompt_tokens"] > 1_500


# -- clients that dawdle ----------------------------------------------------------------------


def head_of(path: str, size: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


def until_closed(connection: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            said += more
    return said


def test_who_is_too_slow_is_not_waited_for() -> None:
    ok = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        Runner() as runner,
        serving(runner, Settings(api_keys=(KEY,), body_seconds=0.3)) as made,
        contextlib.ExitStack() as stack,
    ):

        def connect(first: bytes) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", made.port), timeout=60)
            stack.enter_context(connection)
            connection.sendall(first)
            return connection

        # Nothing, half of a head, half of the second request's head: the connection ends.
        assert until_closed(connect(b"")) == b""
        assert until_closed(connect(ok[:20])) == b""
        again = until_closed(connect(ok + ok[:20]))
        assert again.count(b"200 OK") == 1
        # Half of a body is told of.
        said = until_closed(connect(head_of("/v1/chat/completions", 10) + b"{"))
        assert b" 408 " in said.partition(b"\r\n")[0]
        assert b"request_timeout" in said
        # One byte now and then is no better.
        slow = connect(b"POST ")
        with contextlib.suppress(OSError):
            for _ in range(600):
                slow.sendall(b"x")
                time.sleep(0.1)
            raise AssertionError("the server still listens")


def test_a_client_that_ends_its_sending_side_has_left(served: Served) -> None:
    wait_until_idle(served)
    body = {"model": "small", "messages": ASK, "grammar": "(one )+", "grammar_type": "regex"}
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(head_of("/v1/chat/completions", len(data)) + data)
        end = time.monotonic() + 60
        while not users(served):
            assert time.monotonic() < end
            time.sleep(0.01)
        connection.shutdown(socket.SHUT_WR)
        assert until_closed(connection) == b""
    wait_until_idle(served)
    # Before the body is whole, too.
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(head_of("/v1/chat/completions", len(data)) + data[:9])
        connection.shutdown(socket.SHUT_WR)
        assert b"200" not in until_closed(connection)
    assert httpx.get(f"{served.root}/health", timeout=60).status_code == 200


# -- the end ----------------------------------------------------------------------------------


def test_a_server_that_is_told_to_stop_finishes_what_it_does() -> None:
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "structgen", "serve", "--port", "0", "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            found = re.search(r"running on http://127\.0\.0\.1:(\d+)", line)
            if found:
                port = int(found[1])
                break
        assert port
        body = {"messages": ASK, "stream": True, "max_tokens": 30, "temperature": 0}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        pattern = {"type": "string", "pattern": r"^(.)\1$", "x-guidance": {"lenient": True}}
        form = {"grammar": pattern, "grammar_type": "json_schema"}
        made = httpx.post(url, json={**body, **form, "stream": False}, timeout=60)
        assert made.status_code == 200
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2]
        process.wait(60)
        # What a schema leaves out, kilobytes a keyword, fills neither log nor memory.
        assert "not enforced" not in process.stderr.read()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=60)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
