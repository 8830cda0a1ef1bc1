"""`structgen mcp`: its tools, asked by the official client on real models."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import httpx
import jsonschema
import mcp
import pytest
from click.testing import CliRunner
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.responses import Response

from structgen import OptionError, Runner
from structgen.cli.commands import cli
from structgen.errors import ModelNotFound
from structgen.integrations import mcp as mcp_module
from structgen.integrations.mcp import (
    FORMS,
    Bounded,
    Classified,
    Generate,
    Models,
    serve_http,
    server_of,
)
from structgen.workers import STRANGER, Stranger

TEXT, VECTORS = "smollm2-135m-instruct", "all-minilm-l6-v2"

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner({"small": TEXT, "vectors": VECTORS}) as made:
        yield made


@pytest.fixture(scope="module")
def server(runner: Runner) -> Server[Any]:
    return server_of(runner, Models(("small",), ("vectors",)))


def asked(server: Any, work: Callable[[mcp.Client], Awaitable[Any]]) -> Any:
    """What work returns with a client of a server."""

    async def run() -> Any:
        async with mcp.Client(server) as client:
            return await work(client)

    return asyncio.run(run())


def call(server: Any, name: str, **given: Any) -> Any:
    """The result of a call; the client has checked it against the tool's output schema."""
    return asked(server, lambda client: client.call_tool(name, given))


def value(server: Any, name: str, **given: Any) -> Any:
    result = call(server, name, **given)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_the_tools_say_what_they_take_and_return(server: Server[Any]) -> None:
    tools = {tool.name: tool for tool in asked(server, lambda client: client.list_tools()).tools}
    assert list(tools) == ["generate", "extract", "classify", "decide", "embed"]
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.input_schema["additionalProperties"] is False
        for one in (tool.input_schema, tool.output_schema):
            assert all(field["description"] for field in one["properties"].values())
    assert tools["embed"].input_schema["properties"]["model"]["enum"] == ["vectors", None]
    assert tools["decide"].input_schema["properties"]["model"]["enum"] == ["small", None]
    assert "json_schema" in FORMS
    assert set(FORMS) <= set(Generate.model_fields)


def test_only_tools_that_there_are_models_for(runner: Runner) -> None:
    for models, names in (
        (Models(("small",)), ["generate", "extract", "classify", "decide"]),
        (Models((), ("vectors",)), ["embed"]),
    ):
        listed = asked(server_of(runner, models), lambda client: client.list_tools())
        assert [tool.name for tool in listed.tools] == names


def test_calls_have_the_bounds_of_strangers() -> None:
    """A choice of two texts of 200,000 characters had calls of others wait for 13 s."""
    seen = []

    class Asked:
        def is_model_loaded(self, model: str) -> bool:
            return True

        async def adecide(self, **given: Any) -> Any:
            seen.append(STRANGER.get())
            raise OptionError("no")

    made = server_of(cast(Any, Asked()), Models(("small",)))
    assert call(made, "classify", text="a", labels=["b", "c"]).is_error
    assert seen == [Stranger("mcp")]
    # A schema of 1.3 million values had all others wait for 5 s.
    for name, schema, said in (
        ("extract", {"enum": [[]] * 100_000}, "The arguments have more than 100,000 values."),
        ("extract", {"title": "x" * (512 << 10)}, "json_schema has 524,301 bytes"),
        ("generate", {"title": "é" * (512 << 10)}, "json_schema has 1,048,589 bytes"),
    ):
        refused = call(made, name, **{"text": "a", "json_schema": schema})
        assert refused.is_error
        assert said in refused.content[0].text


def test_others_have_a_turn_between_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty answers of 256 vectors that were done at once delayed a ping for 9 s."""
    told: list[str] = []

    async def called(*_: Any) -> Classified:
        return Classified(model="small", prompt_tokens=1, label=None, probabilities=[])

    monkeypatch.setattr(mcp_module, "called", called)

    def text(text: str) -> Any:
        told.append("answer")
        return written(text)

    written = mcp_module._text
    monkeypatch.setattr(mcp_module, "_text", text)
    monkeypatch.setattr(mcp_module, "_FEW_VALUES", 0)
    made = server_of(cast(Any, None), Models(("small",)))

    async def work(client: mcp.Client) -> None:
        async def ticks() -> None:
            while told.count("answer") < 5:
                told.append("other")
                await asyncio.sleep(0)

        calls = [client.call_tool("classify", {"text": "a", "labels": ["b", "c"]}) for _ in "abcde"]
        await asyncio.gather(ticks(), *calls)

    asked(made, work)
    assert told.count("answer") == 5
    assert not any(pair == ("answer", "answer") for pair in itertools.pairwise(told))


def test_questions_are_counted(server: Server[Any]) -> None:
    questions = {str(i): {"type": "predicate", "instructions": "a"} for i in range(2_049)}
    refused = call(server, "decide", text="a", questions=questions)
    assert refused.is_error
    assert "at most 2048 items" in refused.content[0].text


def test_a_message_of_far_too_many_values_is_not_looked_at() -> None:
    """``mcp`` listed what was wrong with each of 2 million icons: 3.6 s and 1.4 GB for 4 MB. With
    66,000 answers that nobody had asked for it held up everybody for 1.6 s, and took 500 MB."""
    taken: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        taken.append(await receive())
        await Response("taken")(scope, receive, send)

    async def posted(body: bytes) -> httpx.Response:
        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 1 << 16):
                yield body[start : start + (1 << 16)]

        over = httpx.ASGITransport(app=Bounded(app))
        async with httpx.AsyncClient(transport=over, base_url="http://a") as client:
            return await client.post("/mcp", content=pieces())

    call = b'{"method":"tools/call","params":{"%b":{"a":[%b1]}}}'
    many = call % (b"arguments", b"1," * 99_990)
    assert asyncio.run(posted(many)).text == "taken"
    assert (taken[0]["body"], taken[0]["more_body"]) == (many, False)
    for body, said in (
        (call % (b"arguments", b"1," * 110_000), "more than 110,000 values"),
        (call % (b"inputResponses", b"1," * 10_000), "10,000 values in addition to the arguments"),
        (b'{"icons":[%b1]}' % (b"1," * 10_000), "10,000 values in addition to the arguments"),
        ('["\u0122", 1]'.encode("utf-16-le"), "UTF-8"),  # in which its second quote is none
    ):
        refused = asyncio.run(posted(body))
        assert (refused.status_code, len(taken)) == (413, 1)
        assert said in refused.json()["error"]["message"]


def test_bodies_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """450 bodies of 4 MB, each without its last bytes, took 2.1 GB and stayed."""
    monkeypatch.setattr("structgen.integrations.mcp._MOST_HELD", 100_000)

    async def work() -> None:
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await Response(str(len((await receive())["body"])))(scope, receive, send)

        async def slow() -> AsyncIterator[bytes]:
            yield b" " * 90_000
            await ended.wait()
            yield b"{}"

        bounded = Bounded(app)
        over = httpx.ASGITransport(app=bounded)
        async with httpx.AsyncClient(transport=over, base_url="http://a") as client:

            async def posted(body: bytes) -> tuple[int, str]:
                answer = await client.post("/mcp", content=body)
                return answer.status_code, answer.text

            held = asyncio.create_task(client.post("/mcp", content=slow()))
            while bounded._held < 90_000:
                await asyncio.sleep(0)
            assert await posted(b" " * 8_000) == (200, "8000")  # short ones always have room
            assert not held.done()
            assert await posted(b" " * 40_000) == (
                200,
                "40000",
            )  # and what does not arrive has none
            assert (await held).status_code == 429
            status, said = await posted(b" " * 110_000)
            assert (status, "100,000 bytes of messages are in progress" in said) == (429, True)
            assert bounded._held == 0
            ended.set()
            assert (await client.post("/mcp", content=slow())).text == "90002"

            ended.clear()
            with monkeypatch.context() as patch:
                patch.setattr("structgen.integrations.mcp._BODY_SECONDS", 0.01)
                assert (await client.post("/mcp", content=slow())).status_code == 408
            assert await posted(b" " * 90_000) == (200, "90000")

    asyncio.run(work())


def test_calls_with_large_messages_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of 4 MB, nearly all of it in ``_meta``, shut out others as long as they ran."""
    monkeypatch.setattr("structgen.integrations.mcp._MOST_HELD", 100_000)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size = len((await receive())["body"])
        told = await scope["structgen.over"] if size >= 50_000 else "answered"
        await Response(told)(scope, receive, send)

    async def work() -> None:
        bounded = Bounded(app)
        over = httpx.ASGITransport(app=bounded)
        async with httpx.AsyncClient(transport=over, base_url="http://a") as client:

            async def posted(size: int) -> str:
                return (await client.post("/mcp", content=b" " * size)).text

            smaller, larger = (asyncio.create_task(posted(size)) for size in (40_000, 59_000))
            while bounded._held < 59_000:
                await asyncio.sleep(0)
            assert await smaller == "answered"
            assert "100,000 bytes of messages are in progress" in await posted(59_000)
            assert not larger.done()
            assert await posted(45_000) == "answered"
            assert "smaller ones needed its memory" in await larger
            assert (bounded._held, bounded._running) == (0, {})

    asyncio.run(work())


def test_a_call_that_made_room_may_still_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structgen.integrations.mcp._MOST_HELD", 100_000)
    ends = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if len((await receive())["body"]) > 90_000:
            await ends.wait()
        await Response("answered")(scope, receive, send)

    async def work() -> None:
        bounded, headers = Bounded(app), {"mcp-session-id": "a"}
        over = httpx.ASGITransport(app=bounded)
        async with httpx.AsyncClient(
            transport=over, base_url="http://a", headers=headers
        ) as client:

            async def posted(method: str, size: int = 0, **more: Any) -> str:
                message = {"jsonrpc": "2.0", "method": method, **more}
                return (await client.post("/mcp", content=json.dumps(message).ljust(size))).text

            larger = asyncio.create_task(posted("tools/call", 95_000, id=1, params={}))
            while not bounded._running:
                await asyncio.sleep(0)
            assert await posted("tools/call", 20_000, id=2, params={}) == "answered"
            cancel = {"requestId": 1}
            assert await posted("notifications/cancelled", params=cancel) == "answered"
            ends.set()
            assert await larger == "answered"

    asyncio.run(work())


def test_answers_that_nobody_reads_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 answers of `embed` that were read byte by byte took 1.6 GB."""
    monkeypatch.setattr("structgen.integrations.mcp._MOST_HELD", 500_000)
    text = "".join(map(str, range(40_000)))  # of 188,890 bytes

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(text)(scope, receive, send)

    bounded, read = Bounded(app), asyncio.Event()

    async def got(reads: bool = True) -> str:
        parts: list[bytes] = []

        async def send(message: Any) -> None:
            if "body" in message:
                assert len(message["body"]) <= 1 << 16
                parts.append(message["body"])
                if not reads:
                    await read.wait()

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
        await bounded(scope, receive, send)
        return b"".join(parts).decode()

    async def work() -> None:
        unread = [asyncio.create_task(got(reads=False)) for _ in range(4)]
        await asyncio.wait(unread[:2], timeout=60)
        assert [one.done() for one in unread] == [True, True, False, False]
        assert await got() == text
        assert len(await unread[2]) <= 1 << 16  # and no more is sent
        read.set()
        assert await unread[3] == text
        assert not bounded._answers

    asyncio.run(work())


def test_nothing_of_a_client_is_kept() -> None:
    """``mcp`` keeps each session for half an hour, its last message and answer with it: 100 of one
    ping took 1.2 GB, and 150 that began again with messages of 4 MB as much."""

    def kept() -> int:
        gc.collect()
        held = [one for one in gc.get_objects() if isinstance(one, dict)]
        return sum(one.get("marked") is True for one in held)

    async def work(c: httpx.AsyncClient) -> None:
        about = {"name": "x" * 9_000, "version": "1", "marked": True, "a": [[]]}
        for _ in range(20):
            begun = await posted(c, "initialize", **{**HELLO, "clientInfo": about})
            assert begun.status_code == 200
            answer = await posted(c, "ping", begun.headers[ID], _meta=about)
            assert (answer.status_code, "result" in answer.text) == (200, True)
        for _ in range(100):
            await asyncio.sleep(0)
        del begun, answer
        assert len(asyncio.all_tasks()) <= 2  # `sse_starlette` begins one, once
        assert kept() == 1  # what is here
        for answer in (await c.get("/mcp"), await c.delete("/mcp", headers={ID: "a"})):
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")

    asyncio.run(over_http(cast(Any, None), work))


def test_a_call_over_http_has_the_session_as_its_owner_and_ends_with_its_client() -> None:
    """900 calls of one program had those of all others wait, and went on without it."""
    seen: list[Any] = []

    class Asked:
        def is_model_loaded(self, model: str) -> bool:
            return True

        async def adecide(self, state: str, **given: Any) -> Any:
            seen.append(STRANGER.get())
            if state == "a":
                raise OptionError("no")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("ended")
                raise

    async def work(c: httpx.AsyncClient) -> None:
        sessions = [(await posted(c, "initialize", **HELLO)).headers[ID] for _ in "ab"]
        given: dict[str, Any] = {"name": "classify"}
        given["arguments"] = {"text": "a", "labels": ["b", "c"]}
        for session in sessions:
            assert "no" in (await posted(c, "tools/call", session, **given)).text
        assert seen == [Stranger(one) for one in sessions]

        given["arguments"] = {"text": "d", "labels": ["b", "c"]}
        call = asyncio.create_task(posted(c, "tools/call", sessions[0], **given))
        while len(seen) < 3:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        for _ in range(100):
            await asyncio.sleep(0)
        assert seen[2:] == [Stranger(sessions[0]), "ended"]

        call = asyncio.create_task(posted(c, "tools/call", sessions[0], **given))
        while len(seen) < 5:
            await asyncio.sleep(0)
        for session, id_ in (("", 1), (sessions[1], 1), (sessions[0], 2), (sessions[0], [1])):
            await posted(c, "notifications/cancelled", session, requestId=id_)
        assert (seen[5:], call.done()) == ([], False)
        await posted(c, "notifications/cancelled", sessions[0], requestId=1)
        assert "The call was cancelled." in (await call).text
        assert seen[5:] == ["ended"]

    asyncio.run(over_http(cast(Any, Asked()), work))


ID = "mcp-session-id"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}


async def over_http(runner: Runner, work: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Do some work with a client of a server."""
    made = server_of(runner, Models(("small",)))
    app = made.streamable_http_app(
        streamable_http_path="/mcp", host="127.0.0.1", stateless_http=True
    )
    over = httpx.ASGITransport(app=Bounded(app))
    accept = {"Accept": "application/json, text/event-stream"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=over, base_url="http://127.0.0.1:9", headers=accept) as client,
    ):
        await work(client)


async def posted(
    client: httpx.AsyncClient,
    method: str,
    session: str = "",
    *,
    path: str = "/mcp",
    host: str = "127.0.0.1:9",
    **params: Any,
) -> httpx.Response:
    asked = {"jsonrpc": "2.0", "method": method, "params": params}
    if not method.startswith("notifications/"):
        asked["id"] = 1
    headers = {"Host": host, **((session and {ID: session}) or {})}
    return await client.post(path, json=asked, headers=headers)


def test_text_of_every_form(server: Server[Any]) -> None:
    said = value(server, "generate", prompt="Say hello.", max_tokens=5)
    assert (said["finish_reason"], said["completion_tokens"], said["value"]) == ("length", 5, None)
    said = value(server, "generate", prompt="A number?", system="Be brief.", regex="[0-9]{3}")
    assert re.fullmatch("[0-9]{3}", said["text"])
    said = value(server, "generate", prompt="North or south?", choices=["north", "south"])
    assert said["text"] in ("north", "south")
    said = value(server, "generate", prompt="A name?", grammar='start: "Ann" | "Ben"')
    assert said["text"] in ("Ann", "Ben")
    said = value(server, "generate", prompt="A name?", grammar='root ::= "Ann" | "Ben"')
    rule = value(server, "generate", prompt="A rule?", grammar='start: "a ::= b"')
    assert rule["text"] == "a ::= b"
    assert said["text"] in ("Ann", "Ben")
    for schema in ({"type": "array", "maxItems": 3}, True):
        said = value(server, "generate", prompt="Count.", json_schema=schema, max_tokens=20)
        assert said["value"] == json.loads(said["text"])
    assert (
        "allows no value" in call(server, "generate", prompt="a", json_schema=False).content[0].text
    )
    assert (said["model"], said["finish_reason"]) == ("small", "stop")


def test_an_answer_is_whole_within_its_limit_and_says_what_was_cut(server: Server[Any]) -> None:
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 9}
    said = value(server, "generate", prompt="Tell stories.", json_schema=texts, max_tokens=40)
    assert len(said["value"]) >= 9
    assert said["shortened"]
    assert said["completion_tokens"] <= 40


def test_the_same_seed_writes_the_same(server: Server[Any]) -> None:
    given = {"prompt": "A word?", "regex": "[a-z]{8}", "temperature": 1.0}
    one, two, other = (value(server, "generate", seed=seed, **given) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_facts(server: Server[Any]) -> None:
    is_open = {name: one for name, one in PERSON.items() if name != "additionalProperties"}
    said = value(server, "extract", text="Anna is 33 years old.", json_schema=is_open)
    jsonschema.validate(said["value"], PERSON)
    assert said["value"] == {"name": "Anna", "age": 33}


def test_a_number_that_is_no_float_is_not_null(server: Server[Any]) -> None:
    """The value was null, which is no number."""
    schema = {"type": "number", "exclusiveMinimum": sys.float_info.max}
    result = call(server, "extract", text="A number.", json_schema=schema, max_tokens=320)
    assert result.is_error
    assert "too large for JSON readers" in result.content[0].text


def test_a_class_with_the_probability_of_each(server: Server[Any]) -> None:
    for labels in (["good", "bad"], {"good": "praise", "bad": None}):
        said = value(server, "classify", text="The soup was cold.", labels=labels)
        found = {one["label"]: one["probability"] for one in said["probabilities"]}
        assert set(found) == {"good", "bad"}
        assert sum(found.values()) == pytest.approx(1)
        assert said["label"] == max(found, key=found.__getitem__)
    unsure = {"text": "The soup was cold.", "labels": ["good", "bad"], "abstain_below": 1.0}
    assert value(server, "classify", **unsure)["label"] is None


def test_decisions_of_every_type(server: Server[Any]) -> None:
    questions = {
        "angry": {"type": "predicate", "instructions": "Is the guest angry?"},
        "team": {"type": "choice", "instructions": "Who helps?", "options": ["cook", "waiter"]},
        "stars": {"type": "score", "instructions": "How good?", "levels": ["bad", "ok", "good"]},
    }
    answers = value(server, "decide", text="The soup was cold.", questions=questions)["answers"]
    assert {name: one["type"] for name, one in answers.items()} == {
        name: one["type"] for name, one in questions.items()
    }
    assert 0 < answers["angry"]["probability"] < 1
    assert answers["team"]["choice"] in ("cook", "waiter")
    assert [one["label"] for one in answers["stars"]["probabilities"]] == ["bad", "ok", "good"]


def test_vectors(server: Server[Any], runner: Runner) -> None:
    said = value(server, "embed", texts=["a cat", "a dog"], input_type="document")
    assert (said["dimensions"], [len(one) for one in said["vectors"]]) == (384, [384, 384])
    made = runner.embed(input=["a cat", "a dog"], model="vectors")
    assert said["vectors"] == [one.embedding for one in made.data]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("generate", {}, "prompt is missing."),
        ("generate", {"prompt": "x", "max_token": 9}, "max_token is not supported. Did you mean"),
        ("generate", {"prompt": "x", "max_tokens": "9 or so"}, "max_tokens: "),
        ("generate", {"prompt": "x", "model": "vectors"}, "There is no model 'vectors' here."),
        ("generate", {"prompt": "x", "regex": r"(a)\1"}, "regex: Python regular expression uses"),
        ("generate", {"prompt": "x", "grammar": "start: A"}, "grammar: Terminal 'A' used"),
        (
            "generate",
            {"prompt": "x", "regex": "a", "choices": ["b"]},
            "regex and choices both set the form of the answer. Pass only one.",
        ),
        (
            "generate",
            {"prompt": "x", "regex": "a", "grammar": "start: /a/"},
            "regex and grammar both set the form of the answer. Pass only one.",
        ),
        (
            "generate",
            {"prompt": "x", "json_schema": {"properties": {"a": {"type": "wat"}}}},
            "json_schema.properties.a.type: ",
        ),
        ("generate", {"prompt": "x", "regex": "[a-z]{50}", "max_tokens": 2}, "A budget of 2 "),
        ("extract", {"text": "x", "json_schema": {"type": "strin"}}, "json_schema.type: "),
        ("classify", {"text": "x", "labels": ["a", "a"]}, "labels: "),
        (
            "decide",
            {"text": "x", "questions": {"q": {"type": "wat"}}},
            "questions.q: 'type' is 'wat', which is not one of 'predicate', ",
        ),
        # Up to the first few that are wrong, however many there are.
        ("classify", {"text": "x", "labels": [0] * 99_000}, "labels[0]: "),
        ("classify", {"text": "x", "labels": dict.fromkeys(map(str, range(9999)), 0)}, "labels: "),
        ("decide", {"text": "x", "questions": dict.fromkeys(map(str, range(9999)))}, "questions: "),
        ("generate", dict.fromkeys(map(str, range(9999))), "The request has 9,999 fields"),
        ("embed", {"texts": []}, "texts: "),
        ("embed", {"texts": ["cat " * 300]}, "Text 0 has 302 tokens"),
        ("embed", {"texts": ["cat"], "dimensions": 999}, "dimensions=999 is out of range"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_tool(
    server: Server[Any], name: str, given: dict[str, Any], message: str
) -> None:
    result = call(server, name, **given)
    assert result.is_error
    assert result.structured_content is None
    said = result.content[0].text
    assert said.startswith(message)
    assert "truncate_sequence" not in said
    assert "on_truncation" not in said


def test_a_text_that_is_too_long_may_be_cut(server: Server[Any]) -> None:
    assert "truncate=true" in call(server, "embed", texts=["cat " * 300]).content[0].text
    assert value(server, "embed", texts=["cat " * 300], truncate=True)["prompt_tokens"] == 256


def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(server: Server[Any]) -> None:
    async def work(client: mcp.Client) -> None:
        with pytest.raises(MCPError, match=r"There is no tool 'wat'\. Known tools: generate"):
            await client.call_tool("wat", {})

    asked(server, work)


def test_what_goes_wrong_here_is_logged_and_not_told(
    server: Server[Any],
    runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(self: Runner, *given: Any, **fields: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Runner, "aembed", broken)
    result = call(server, "embed", texts=["a"])
    assert result.is_error
    assert result.content[0].text == "embed failed; see the server's log for the reason."
    assert "a secret" in caplog.text


def test_progress_is_told_to_those_who_ask(server: Server[Any], runner: Runner) -> None:
    told: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async def work(client: mcp.Client) -> Any:
        return await client.call_tool(
            "generate", {"prompt": "Tell a story.", "max_tokens": 40}, progress_callback=heard
        )

    runner.unload("small")
    assert not asked(server, work).is_error
    steps = [step for step, _ in told]
    assert told[0] == (0, "loading small")
    assert len(told) >= 3
    assert steps == sorted(set(steps))
    assert re.fullmatch(r"\d+ characters written", told[-1][1] or "")


def test_what_each_report_of_progress_has_is_short(server: Server[Any]) -> None:
    """Sixteen calls with tokens of 4 MB took 650 MB and held up others."""

    async def work(client: mcp.Client) -> None:
        with pytest.raises(MCPError, match="progressToken has more than 1,000 characters"):
            await client.call_tool(
                "generate", {"prompt": "a"}, meta={"progress_token": "x" * 1_001}
            )

    asked(server, work)


def test_a_call_that_is_cancelled_ends(server: Server[Any], runner: Runner) -> None:
    runner.load("small")  # else what is cancelled is the wait for it
    before = runner.metrics.value("requests_cancelled", "chat", "small")

    async def work(client: mcp.Client) -> None:
        began = asyncio.Event()

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        given = {"prompt": "Tell a story.", "regex": "[a-z ]{4000}", "max_tokens": 4000}
        call = asyncio.create_task(client.call_tool("generate", given, progress_callback=heard))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while runner.metrics.value("requests_running", "chat", "small"):
            await asyncio.sleep(0.01)
        assert runner.metrics.value("requests_cancelled", "chat", "small") == before + 1

    asked(server, work)


def test_the_command_over_stdio() -> None:
    started = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "structgen", "mcp", f"m={TEXT}", "--lazy"]
    )
    server = mcp.stdio_client(started)

    async def work(client: mcp.Client) -> None:
        assert client.server_info.name == "structgen"
        assert len((await client.list_tools()).tools) == 5
        made = await client.call_tool("generate", {"prompt": "Yes?", "choices": ["yes", "no"]})
        assert made.structured_content["text"] in ("yes", "no")
        made = await client.call_tool("embed", {"texts": ["a cat"]})
        assert made.structured_content["dimensions"] == 384

    asked(server, work)


@pytest.mark.parametrize("flags", [["smollm2"], ["--embedder", "e=smollm2-135m-instruct"]])
def test_a_model_that_cannot_be_is_told_at_once(flags: list[str]) -> None:
    run = CliRunner().invoke(cli, ["mcp", *flags])
    assert isinstance(run.exception, ModelNotFound)


@contextlib.contextmanager
def command(*flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process."""
    line = [sys.executable, "-m", "structgen", "mcp", "--lazy", "--no-embedder", *flags]
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_message_without_an_end_is_not_kept() -> None:
    """One of 400 MB took 4.5 GB, and the process did not end with its input."""
    with command() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        process.stdin.write(json.dumps(ping | {"x": "é" * (4 << 20)}).encode() + b"\n")
        process.stdin.write(json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert answers[0]["error"]["message"] == "A message has more than 4,194,304 bytes."
        assert answers[0]["id"] is None
        assert answers[1] == {"jsonrpc": "2.0", "id": 1, "result": {}}
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_message_that_cannot_be_read_is_answered() -> None:
    """A host in JavaScript that cut a prompt inside of an emoji waited for an answer for ever."""
    call = '{"jsonrpc": "2.0", "id": %s, "method": "ping", "params": {"_meta": {"a": "\\ud83d"}}}'
    wrong = ('{"id": 8, "method": "ping"}', '{"jsonrpc": "2.0", "id": 9, "method": 5}')
    lines = ("[]", "{", call % 7, call % '"b"', call % '"\\ud83d"', call % "[7]", *wrong)
    lines += ('{"id": 9, "result": 5}',)
    with command() as process:
        said, _ = process.communicate("\n".join(lines).encode(), timeout=60)
    answers = [json.loads(line) for line in said.splitlines()]
    ids = [answer["id"] for answer in answers]
    assert ids == [None, None, 7, "b", None, None, 8, 9, None]
    said = [answer["error"]["message"] for answer in answers]
    assert said[0].endswith("Input should be an object.")
    assert all(one.startswith("Cannot parse a message: ") for one in said)
    assert said[6] == "Cannot parse a message: JSONRPCRequest.jsonrpc: Field required."


def test_connections_that_send_nothing_do_not_shut_out_others() -> None:
    """1,000 of them took all files: others were not answered, and 36 MB went to the log."""
    with command("--http", "--port", "0") as process, contextlib.ExitStack() as stack:
        assert process.stderr is not None
        port = int(re.findall(rb":(\d+)/mcp", process.stderr.readline())[0])
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(520)]
        for one in held:
            stack.enter_context(one)
        until = time.monotonic() + 60
        while time.monotonic() < until and len(select.select(held, [], [], 0.1)[0]) < 20:
            pass
        assert len(select.select(held, [], [])[0]) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupt_ends_it_though_nothing_is_sent() -> None:
    command = [sys.executable, "-m", "structgen", "mcp", "--lazy"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == -signal.SIGINT
        finally:
            process.kill()


def test_a_host_that_crashes_leaves_no_traceback() -> None:
    line = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    command = [sys.executable, "-m", "structgen", "mcp", "--lazy"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(line * 100)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_the_command_over_http() -> None:
    command = [sys.executable, "-m", "structgen", "mcp", "--http", "--port", "0", "--no-embedder"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found, line
        made = value(found[0], "generate", prompt="Yes?", choices=["yes", "no"])
        assert made["text"] in ("yes", "no")
        asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accepted = {"Accept": "application/json, text/event-stream"}
        said = {**asked, "params": {"_meta": {"baggage": "\nforged\x1b[2J" * 1_000}}}
        assert httpx.post(found[0], json=said, headers=accepted, timeout=60).status_code == 200
        named = {"Host": "elsewhere.example", **accepted}
        assert httpx.post(found[0], json=asked, headers=named, timeout=60).status_code == 421
    finally:
        process.terminate()
        _, left = process.communicate(timeout=60)
    assert left == "Invalid Host header: elsewhere.example\n"


def test_a_port_that_is_taken_is_told(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=f"Cannot listen on port {port}"):
            serve_http(runner, Models(("small",)), port=port)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a=x", "a=y"], "Two models have the id a"),
        (["a="], "'a=' is neither a model nor ID=MODEL"),
        (["a=x", "--embedder", "a=y"], "Two models have the id a"),
        (["--embedder", "a", "--no-embedder"], "Pass --embedder or --no-embedder, not both"),
    ],
)
def test_wrong_arguments_of_the_command(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "structgen", "mcp", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert result.returncode == 2
    assert message in result.stderr
