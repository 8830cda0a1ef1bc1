"""Bodies that are meant to hold the server up: bounded before they are read, and off its loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from models.tiny_vision import png
from one_server import KEY, Served, serving
from pydantic import BaseModel, ValidationError

from structgen import Runner
from structgen.decoding import AsyncStream, SearchOptions, Several, chat
from structgen.errors import ModelNotFound, OptionError, Overloaded, RequestError, let_go
from structgen.media import data_uri
from structgen.runner import (
    Aside,
    ChatChunk,
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    ExplainRequest,
    Metrics,
    Strictly,
    Traces,
    answers,
    check_json,
)
from structgen.runner.hosts import MAX_SCORES, ModelConfig, TextHost
from structgen.runner.loops import AsyncChunkStream, LoopThread
from structgen.runner.work import _scores, pieces_of
from structgen.server import Settings, pictures, wire
from structgen.server import gateway as gateway_module
from structgen.server.errors import ApiError, api_error
from structgen.server.exchange import EventStream, answered, begun
from structgen.server.gateway import Gateway, Keys
from structgen.server.routes import responses, text
from structgen.server.routes.models import DetokenizeBody, TokenizeBody
from structgen.server.routes.responses import turn_of
from structgen.server.shapes import DecisionsBody, ResponsesBody, SystemOneBody
from structgen.storage.user_folder import unique
from structgen.vocabulary import Vocabulary
from structgen.workers import STRANGER, Stranger
from structgen.workers.process import raised
from structgen.workers.protocol import Ended

AUTH = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
MANY = 5_000
ZEROS = [0] * MANY
NAMES = dict.fromkeys(map(str, range(MANY)), "wrong")
ASK = [{"role": "user", "content": "Hi."}]


# -- bounds, before anything is parsed --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[" + "0," * 98 + "0]", ""),
        ("[" + "0," * 100 + "0]", "more than 100 values"),
        ("{" + '"a":0,' * 101 + "}", "more than 100 values"),
        ("[]" * 101, "more than 100 values"),
        ('"' * 1000, "more than 100 values"),
        ('"' + "," * 1000 + '"', ""),
        ('"' + '\\"' * 1000 + '"', ""),
        ('"' + "\\\\" * 1000 + '"', ""),
        ('"\\\\",' * 200, "more than 100 values"),
        ('["' + "[" * 1000 + '"]', ""),
        (r'"\ud83d\ude00"', ""),
        (r'"\\ud83d"', ""),
        (r'"\ud83d"', "lone surrogate"),
        (r'"\ude00"', "lone surrogate"),
        (r'"\ud83d\\\ude00"', "lone surrogate"),
        (r'"\ud83d\ud83d\ude00"', "lone surrogate"),
    ],
)
def test_json_is_bounded_before_it_is_parsed(text: str, wrong: str) -> None:
    if not wrong:
        check_json(text, 100)
        json.loads(text).encode() if text[0] == '"' else json.loads(text)
        return
    with pytest.raises(ValueError, match=wrong):
        check_json(text, 100)


@pytest.mark.parametrize("opened", ["[", '{"a":', '[{"a":'])
def test_nesting_is_bounded_at_the_depth_that_is_said(opened: str) -> None:
    deep = opened.count("[") + opened.count("{")
    check_json(opened * (200 // deep))
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        check_json(opened * (200 // deep + 1))


def test_names_are_compared_a_few_times_each() -> None:
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    pairs = [(Name(at), 0) for at in range(1_000)]
    with pytest.raises(ValueError, match="'999' appears twice"):
        unique([*pairs, (Name(999), 0)])
    assert compared < 5_000


@pytest.mark.parametrize("number", ["9" * 1_001, "0." + "9" * 1_000, "-" + "1" * 5_000, "1e999"])
def test_numbers_are_bounded(number: str) -> None:
    with pytest.raises(wire.ApiError, match=r"digits|too large"):
        wire.parsed(f'{{"a": {number}}}'.encode(), 10)


# -- few errors, however many there are to find -----------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, {"messages": ZEROS}),
        (ChatRequest, {"messages": [{"role": "user", "content": ZEROS}]}),
        (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": ZEROS}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": "", **NAMES}]}),
        (ChatRequest, {"messages": ASK, **NAMES}),
        (ChatRequest, {"messages": ASK, "stop": ZEROS}),
        (ChatRequest, {"messages": ASK, "stop": ["a"] * MANY}),
        (ChatRequest, {"messages": ASK, "logit_bias": NAMES}),
        (ChatRequest, {"messages": ASK, "abstain_below": NAMES}),
        (ChatRequest, {"messages": ASK, "stream_options": NAMES}),
        (CompletionRequest, {"prompt": "a", **NAMES}),
        (DecisionRequest, {"state": "a", "questions": {}, "abstain_below": NAMES}),
        (ExplainRequest, {"token": 1, "chosen": 1, "before": ["a"] * MANY}),
        (TokenizeBody, {"messages": ZEROS}),
        (DetokenizeBody, {"tokens": ["a"] * MANY}),
        (ResponsesBody, {"input": ZEROS}),
        (ResponsesBody, {"input": "a", **NAMES}),
        (ResponsesBody, {"input": "a", "tools": ZEROS}),
        (ResponsesBody, {"input": "a", "include": ZEROS}),
        (ResponsesBody, {"input": "a", "metadata": dict.fromkeys(NAMES, 0)}),
        (ResponsesBody, {"input": [{"role": "user", "content": ZEROS}]}),
        (ResponsesBody, {"input": [{"role": "user", "content": "", **NAMES}]}),
        (DecisionsBody, {"input": "a", "questions": ZEROS}),
        (DecisionsBody, {"input": ZEROS, "questions": []}),
        (
            DecisionsBody,
            {"input": "a", "questions": [{"type": "predicate", "instructions": ZEROS}]},
        ),
        (
            DecisionsBody,
            {
                "input": "a",
                "questions": [{"type": "choice", "instructions": "a", "choices": ZEROS}],
            },
        ),
        (SystemOneBody, {"state": "a", "questions": NAMES}),
        (
            SystemOneBody,
            {
                "state": "a",
                "questions": {"q": {"type": "noul", "instructions": "a", "criteria": NAMES}},
            },
        ),
    ],
)
def test_reading_stops_soon_after_the_first_error(kind: type[BaseModel], body: Any) -> None:
    with pytest.raises((ValidationError, RequestError)) as caught:
        kind(**body)
    found = caught.value.__context__ or caught.value
    assert isinstance(found, ValidationError)
    assert found.error_count() <= 210


def test_many_values_that_are_right_are_all_read() -> None:
    bias = {str(token_id): 1.0 for token_id in range(MANY)}
    read = ChatRequest(messages="a", logit_bias=bias).logit_bias
    assert read == dict.fromkeys(range(MANY), 1.0)


# -- off the event loop -----------------------------------------------------------------------

PAD = "a" * wire.SMALL
FORM = {"grammar": PAD, "grammar_type": "regex"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": ASK, "user": PAD, "max_tokens": 0}),
        ("completions", {"prompt": PAD, "max_tokens": 0}),
        ("responses", {"input": PAD, "max_output_tokens": 0}),
        ("decisions", {"input": PAD, "questions": [{"type": "predicate", "instructions": ""}]}),
        ("systemone", {"state": PAD, "questions": {"q": {"type": "noul"}}}),
        ("embeddings", {"model": "vectors", "input": PAD, "dimensions": 0}),
        ("rerank", {"model": "vectors", "query": "a", "documents": [PAD], "top_n": 0}),
        ("tokenize", {"prompt": PAD, "text": ""}),
        ("detokenize", {"tokens": [-1], "model": PAD}),
        ("grammars/check", {**FORM, "more": 1}),
        ("grammars/picture", {"regex": PAD}),
        ("grammars/explain", {**FORM, "token": 1, "chosen": 1, "before": ["a"]}),
    ],
)
def test_no_large_body_is_read_in_the_event_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    threads: set[str] = set()

    def seen(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            threads.add(threading.current_thread().name)
            return work(*given, **named)

        return wrapped

    monkeypatch.setattr(wire, "parsed", seen(wire.parsed))
    monkeypatch.setattr(Strictly, "__init__", seen(Strictly.__init__))
    validate: Any = Strictly.model_validate
    monkeypatch.setattr(Strictly, "model_validate", classmethod(seen(validate.__func__)))
    answer = httpx.post(f"{served.root}/v1/{path}", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == (404 if path == "detokenize" else 400), answer.text
    assert threads == {"structgen-bodies"}


def test_owners_take_turns_with_large_bodies() -> None:
    async def main() -> None:
        aside, order, go_on = wire.reader(), [], threading.Event()

        async def read(owner: str) -> None:
            await aside.do(owner, lambda: go_on.wait(60))
            order.append(owner)

        tasks = [asyncio.ensure_future(read(owner)) for owner in "aaaab"]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks)
        assert "".join(order) == "abaaa"

    asyncio.run(main())


# -- what the client is told ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("chat/completions", '{"messages":[' + "0," * 100_000 + "0]}", None),
        ("chat/completions", json.dumps({"messages": ASK * 2_049}), "messages"),
        ("chat/completions", json.dumps({"messages": ASK, "logit_bias": NAMES}), "logit_bias"),
        ("chat/completions", json.dumps({"messages": ASK, "tool_choice": "a" * 600_000}),
         "tool_choice"),
        ("responses", json.dumps({"input": ASK * 2_049}), "input"),
        ("tokenize", json.dumps({"messages": ASK * 2_049}), "messages"),
        ("decisions", json.dumps({"input": ASK * 2_049, "questions": []}), "input"),
        ("responses", json.dumps({"input": "a", "user": "a" * 1_001}), "user"),
        ("decisions", json.dumps({"input": "a", "questions": [
            {"type": "choice", "instructions": "?",
             "choices": [{"value": f"{i}"} for i in range(1_000)]}] * 11}), "questions"),
        ("systemone", json.dumps({"state": "a", "questions": {f"{at}": {
            "type": "choice", "instructions": "?",
            "criteria": dict.fromkeys(map(str, range(1_000)))} for at in range(11)}}), "questions"),
    ],
)  # fmt: skip
def test_what_is_too_much_is_refused(
    served: Served, path: str, body: str, param: str | None
) -> None:
    answer = httpx.post(f"{served.root}/v1/{path}", content=body, headers=AUTH, timeout=60)
    assert answer.status_code == (413 if param == "tool_choice" else 400)
    assert answer.json()["error"]["param"] == param


def test_an_error_does_not_repeat_all_that_was_sent(served: Served) -> None:
    body = {"messages": ASK, "x" * 1_000_000: 1}
    answer = httpx.post(f"{served.root}/v1/chat/completions", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == 400
    assert len(answer.content) < 10_000


def test_tokens_are_counted_of_messages_in_the_bounds_of_chats(served: Served) -> None:
    call = {"function": {"name": "f", "arguments": "[" + "0," * 50_000 + "0]"}}
    body = {"messages": [*ASK, {"role": "assistant", "tool_calls": [call] * 2}]}
    answer = httpx.post(f"{served.root}/v1/tokenize", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == 400
    assert "more than 100,000 values" in answer.json()["error"]["message"]


@pytest.mark.parametrize("arguments", ["[" * 20_000, '{"a":' * 201, "[" + "0," * 100_000 + "0]"])
def test_arguments_of_a_call_are_in_bounds(served: Served, arguments: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    body = {"messages": [*ASK, {"role": "assistant", "tool_calls": [call]}]}
    answer = httpx.post(f"{served.root}/v1/chat/completions", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("token", ["١", " 1", "01", "+1", "1_0", "-1", "", "9" * 5_000])
def test_names_of_logit_bias_are_token_ids(served: Served, token: str) -> None:
    body = {"messages": ASK, "max_tokens": 1, "logit_bias": {token: 1}}
    answer = httpx.post(f"{served.root}/v1/chat/completions", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("logit_bias.")


def test_tool_choice_looks_each_name_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from structgen.runner import constraints

    tools = [{"type": "function", "function": {"name": f"f{at}"}} for at in range(200)]
    named = {"type": "function", "name": "f199"}
    asked = ChatRequest(
        messages="a", tools=tools, tool_choice={"type": "allowed_tools", "tools": [named] * 200}
    )
    calls = 0
    name_of = constraints.name_of

    def counted(tool: Any) -> str:
        nonlocal calls
        calls += 1
        return name_of(tool)

    monkeypatch.setattr(constraints, "name_of", counted)
    assert list(constraints.offered(asked)[0]) == [199]
    assert calls <= 400


def test_calls_count_as_messages_do() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call] * 60}
    with pytest.raises(ApiError, match="has 120 calls; the limit is 100") as caught:
        wire.asked(ChatRequest, {"messages": [said, said]}, Settings(max_inputs=100))
    assert caught.value.param == "messages"
    wire.asked(ChatRequest, {"messages": [said]}, Settings(max_inputs=100))


def test_tools_are_bounded_in_number() -> None:
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(3)]
    wire.asked(ChatRequest, {"messages": "Hi", "tools": tools[:2]}, Settings(max_inputs=2))
    with pytest.raises(ApiError, match="tools has 3 entries; the limit is 2"):
        wire.asked(ChatRequest, {"messages": "Hi", "tools": tools}, Settings(max_inputs=2))


def test_pictures_of_a_request_are_few() -> None:
    """All are read at once: 32 in 8 kB kept others waiting for 5 s."""
    said = [{"role": "user", "content": [{"type": "image_url", "image_url": "data:"}] * 2}] * 2
    with pytest.raises(ApiError, match=r"has 4 pictures; the limit is 3 .*max_pictures"):
        wire.asked(ChatRequest, {"messages": said}, Settings(max_pictures=3))
    item = {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}] * 2}
    with pytest.raises(ApiError, match="has 4 pictures") as caught:
        turn_of({"input": [item]}, [said[0]], Settings(max_pictures=3))
    assert caught.value.param == "input"


def test_pictures_are_not_counted_in_tokens(served: Served) -> None:
    """To read 32 of 8 kB took 6 s, which nobody else had a turn in."""
    part = {"type": "image_url", "image_url": {"url": data_uri("image/png", png())}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    answer = httpx.post(f"{served.root}/v1/tokenize", json=body, headers=AUTH, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


def test_each_output_has_its_own_prompt(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen outputs of sixteen bodies of 4 MB took a gigabyte, and so did pictures of hosts, and
    values of which each is a dict."""
    monkeypatch.setattr(pictures, "fetched", lambda *_: png() + bytes(100_000))
    most = 100_000
    prompt = json.dumps({"prompt": "Hi", "max_tokens": 1}).ljust(most - 20)
    part = {"type": "image_url", "image_url": {"url": "http://host/"}}
    seen = json.dumps({"messages": [{"role": "user", "content": [part]}]})
    values = json.dumps({"prompt": "Hi", "max_tokens": 1, "metadata": {"m": [{}] * 300}})
    table = json.dumps({"prompt": "1,2," * 150, "max_tokens": 1})  # its commas are no values
    settings = Settings(api_keys=(KEY,), max_body_bytes=most, max_body_values=700, max_outputs=20)
    with serving(served.runner, settings) as one:

        def ask(path: str, body: str, n: int) -> int:
            body = f'{{"n": {n}, {body[1:]}'
            url = f"{one.root}/v1/{path}"
            return httpx.post(url, content=body, headers=AUTH, timeout=60).status_code

        assert [ask("completions", prompt, n) for n in (2, 20)] == [200, 413]
        assert [ask("completions", values, n) for n in (2, 20)] == [200, 413]
        assert ask("completions", table, 20) == 200
        assert [ask("chat/completions", seen, n) for n in (2, 20)] == [400, 413]  # no such model


def test_a_conversation_does_not_grow_beyond_what_a_body_may_have() -> None:
    before = [{"role": "user", "content": "x" * 700}, {"role": "assistant", "content": "ok"}]
    settings = Settings(max_body_bytes=1_000)
    turn_of({"input": "short"}, before, settings)
    with pytest.raises(ApiError, match="more than 1,000 bytes") as caught:
        turn_of({"input": "y" * 300}, before, settings)
    assert caught.value.param == "previous_response_id"


def test_a_key_has_only_so_many_bytes_under_way() -> None:
    """Bodies that never end are held for seconds, and many of them at once are gigabytes."""
    statuses: list[int] = []
    settings = Settings(max_body_bytes=1_000, api_keys=("a", "b"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gateway = Gateway(app, settings, Keys(settings.api_keys), Traces(False), Metrics(), {})

    async def ask(key: str, *pieces: bytes, ends: bool) -> None:
        left = list(pieces)

        async def receive() -> Any:
            if not left:
                await asyncio.Event().wait()
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(left) or not ends}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        headers = [(b"authorization", b"Bearer " + key.encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": headers}
        await gateway(scope, receive, send)

    async def main() -> None:
        slow = [asyncio.create_task(ask("a", b"x" * 900, ends=False)) for _ in range(17)]
        while not all(task.done() or gateway._held["key0"] == 17 * 900 for task in slow):
            await asyncio.sleep(0)
        await ask("a", b"x" * 900, ends=True)
        await ask("b", b"x" * 900, ends=True)
        assert statuses == [429, 200]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await ask("a", b"x" * 900, ends=True)
        assert statuses == [429, 200, *[503] * 17, 200]
        assert not gateway._held

    asyncio.run(main())


def test_bodies_that_are_refused_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their errors hang in cycles; and free memory is in pieces, which C libraries keep."""
    settings = Settings(max_body_bytes=1_000, api_keys=("a",))
    part = bytes(bytearray(900))
    given = threading.Event()
    monkeypatch.setattr(gateway_module, "give_back", given.set)
    monkeypatch.setattr(gateway_module, "_MUCH", 3_000)
    monkeypatch.setattr(gateway_module, "_SOON", 0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def receive() -> Any:
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message: Any) -> None:
        pass

    async def main() -> None:
        gateway = Gateway(app, settings, Keys(settings.api_keys), Traces(False), Metrics(), {})
        headers = [(b"authorization", b"Bearer a")]
        for number in range(1, 5):
            scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": headers}
            await gateway(scope, receive, send)
            assert await asyncio.to_thread(given.wait, 60 if number == 4 else 0) == (number == 4)

    before = sys.getrefcount(part)
    gc.disable()
    try:
        asyncio.run(main())
        assert sys.getrefcount(part) == before
    finally:
        gc.enable()


def test_who_is_not_answered_before_the_server_ends_is_told_so() -> None:
    """Uvicorn cancels what is under way after `drain_seconds`; it would say 500, and in no JSON."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        gateway = Gateway(app, Settings(), Keys([]), Traces(False), Metrics(), {})
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": headers}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gateway(scope, receive, send), 0.1)

    asyncio.run(main())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["code"] == "server_ending"


async def refusal(asked: Awaitable[Any]) -> str:
    """What is said of an error, which is then let go of, as the server does."""
    try:
        await asked
    except (ApiError, RequestError) as error:
        let_go(error)
        return str(error)
    raise AssertionError


@pytest.mark.parametrize("streams", [False, True])
def test_what_has_failed_keeps_nothing_of_what_was_asked(streams: bool) -> None:
    """Not until the collector comes: a few sounds of 20 MB are few objects."""
    sound = Settings()  # anything large
    kept = weakref.ref(sound)

    async def pieces(sound: Any) -> AsyncGenerator[None, None]:
        raised(Ended(1, None, RequestError("no")))
        yield

    async def main(sound: Any) -> None:
        state = SimpleNamespace(settings=Settings())
        request: Any = SimpleNamespace(
            app=SimpleNamespace(state=state), receive=asyncio.Event().wait
        )
        stream = AsyncChunkStream(thread, partial(pieces, sound))
        asked = (
            begun(request, stream, api_error)
            if streams
            else answered(request, anext(pieces(sound)))
        )
        del stream
        assert await refusal(asked) == "no"

    thread = LoopThread("streams")
    gc.disable()
    try:
        asyncio.run(main(sound))
        thread.stop()
        del sound
        assert kept() is None
    finally:
        gc.enable()


@contextlib.contextmanager
def nothing_is_kept() -> Iterator[list[Any]]:
    """A list for something large, of which nothing else may be left at the end."""
    large = [Settings()]
    kept = weakref.ref(large[0])
    gc.disable()
    try:
        yield large
        assert kept() is None
    finally:
        gc.enable()


def test_an_error_of_a_call_keeps_no_frame_of_who_waits_for_it() -> None:
    def takes(large: Any, ended: Ended) -> None:
        raised(ended)

    with nothing_is_kept() as large, pytest.raises(RequestError):
        takes(large.pop(), Ended(1, None, RequestError("no")))


def test_an_error_of_work_aside_keeps_no_frame_of_who_waits_for_it() -> None:
    """Each sound of 30 MB that was refused was kept until the collector came: 0.9 GB in all."""

    def refuse() -> None:
        raise RequestError("no")

    async def takes(large: Any) -> None:
        await Aside(1, 8, "work").do(None, refuse)

    async def main(large: list[Any]) -> None:
        assert await refusal(takes(large.pop())) == "no"

    with nothing_is_kept() as large:
        asyncio.run(main(large))
        for thread in threading.enumerate():
            if thread.name == "work":  # it has said what came of it, and ends
                thread.join()


def test_a_stream_that_is_left_keeps_nothing_of_what_was_asked() -> None:
    async def pieces(large: Any) -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.Event().wait()

    async def main(large: list[Any]) -> None:
        stream = AsyncChunkStream(thread, partial(pieces, large.pop()))
        await anext(stream)
        await stream.aclose()

    thread = LoopThread("streams")
    with nothing_is_kept() as large:
        asyncio.run(main(large))
        thread.stop()


def test_a_stream_that_takes_too_long_keeps_nothing_of_what_was_asked() -> None:
    async def events(large: Any) -> AsyncGenerator[bytes, None]:
        yield b""
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        pass

    async def main(large: list[Any]) -> None:
        stream = EventStream(events(large.pop()), most=0.01, to_error=api_error)
        state = {"id": "", "log": {}, "taken": int}
        await stream({"state": state}, asyncio.Event().wait, send)

    with nothing_is_kept() as large:
        asyncio.run(main(large))


def test_events_count_until_the_client_reads_them() -> None:
    """One key held 7 kB for each token of any number of traces, which it read slowly."""
    held, sent, is_closed = [0], [], False

    async def events() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            while True:
                yield b"x" * 100
        finally:
            is_closed = True

    def taken(more: int) -> None:
        held.append(held[-1] + more)
        if held[-1] > 1_000:
            raise ApiError(429, "Too much.", code="rate_limit_exceeded")

    async def main() -> None:
        reads = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message.get("body"))
            if len(sent) > 1:
                await reads.wait()

        stream = EventStream(events(), most=60, to_error=api_error)
        state = {"id": "", "log": {}, "taken": taken}
        task = asyncio.ensure_future(stream({"state": state}, asyncio.Event().wait, send))
        while not is_closed:
            await asyncio.sleep(0)
        assert len(sent) == 2
        reads.set()
        await task

    asyncio.run(main())
    assert max(held) == 1_100
    assert held[-1] == 100  # the one that is too much
    assert sent[1:-1] == [b"x" * 100] * 10
    assert b"rate_limit_exceeded" in sent[-1]


def test_an_error_tells_a_program_where_it_was_raised() -> None:
    with Runner() as runner, pytest.raises(ModelNotFound) as caught:
        runner.chat(messages="Hi.", model="nope")
    assert caught.traceback[-1].name == "entry"


def test_an_unknown_model_keeps_nothing_of_what_was_asked() -> None:
    def asks(large: Any) -> None:
        runner.chat(messages="Hi.", model="nope")

    with Runner() as runner, nothing_is_kept() as large, pytest.raises(ModelNotFound):
        asks(large.pop())


def test_a_picture_that_is_not_fetched_keeps_nothing_of_what_was_asked() -> None:
    async def main(large: list[Any]) -> None:
        state = SimpleNamespace(settings=Settings(), pictures=Aside(1, 8, "work"))
        request: Any = SimpleNamespace(
            app=SimpleNamespace(state=state), state=SimpleNamespace(owner="a")
        )
        part = {"type": "input_image", "image_url": "http://a.b/c.png"}
        body = {"input": [{"content": [part]}], "user": large.pop()}
        assert "does not fetch" in await refusal(pictures.with_pictures(request, body))

    with nothing_is_kept() as large:
        asyncio.run(main(large))
        for thread in threading.enumerate():
            if thread.name == "work":
                thread.join()


def test_an_error_of_one_of_several_keeps_no_frame_of_their_call() -> None:
    def makes(large: Any, several: Several) -> Any:
        several.put(0, partial(raised, Ended(1, None, RequestError("no"))))
        try:
            raise RequestError("no")
        except RequestError as error:
            several.fail(1, error)
        return several.result()

    with nothing_is_kept() as large:
        assert len(makes(large.pop(), Several(["a", "b"], SearchOptions(return_errors=True)))) == 2


@pytest.mark.parametrize("streams", [False, True])
def test_an_error_of_an_output_keeps_no_prompt(streams: bool) -> None:
    async def fails(*asked: Any, **options: Any) -> Any:
        raise OptionError("no", option="max_length")

    class Stream(AsyncStream[Any]):
        _next = fails

        async def aclose(self) -> None:
            pass

    async def main(prompt: Any) -> None:
        generator = SimpleNamespace(result=fails, streams=lambda *asked: [Stream()])
        host = SimpleNamespace(work_at=lambda *at: contextlib.nullcontext())
        work: Any = SimpleNamespace(
            prompts=[prompt], made=1, options={}, generator=generator, thinking=None, scores=None,
            place=None, asked=None, host=host,
        )  # fmt: skip
        del prompt
        with pytest.raises(RequestError):
            await anext(pieces_of(work, streams=streams))

    with nothing_is_kept() as large:
        asyncio.run(main(large.pop()))


def test_an_error_of_the_server_keeps_no_body() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("no")

    async def nothing(*message: Any) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def main(large: Any) -> None:
        settings = Settings()
        gateway = Gateway(app, settings, Keys([]), Traces(False), Metrics(), {})
        scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [], "large": large}
        del large
        await gateway(scope, nothing, nothing)

    with nothing_is_kept() as large:
        asyncio.run(main(large.pop()))


@pytest.mark.parametrize("streams", [False, True])
def test_what_repeats_all_scores_is_made_aside(
    served: Served, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Of thousands of tokens, with twenty likely ones each, that takes seconds.

    A stream that awaits a stop text sends as many at once: 190 of 1,000 likely ones held the event
    loop for 4.4 s.
    """
    for module in (answers, text):
        monkeypatch.setattr(module, "MANY_SCORES", 0)
    threads: set[str] = set()
    ends, scores, written = responses.Events.end, answers.chat_logprobs, ChatChunk.model_dump_json

    def end(events: responses.Events) -> Iterator[bytes]:
        threads.add(threading.current_thread().name)
        yield from ends(events)

    def chat_logprobs(given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return scores(given)

    monkeypatch.setattr(responses.Events, "end", end)
    ask: dict[str, Any] = {"input": "Hi.", "max_output_tokens": 2, "stream": streams}
    answer = httpx.post(f"{served.root}/v1/responses", json=ask, headers=AUTH, timeout=60)
    assert answer.status_code == 200, answer.text
    assert threads == {"structgen-bodies"}

    def model_dump_json(chunk: ChatChunk) -> str:
        if any(choice.logprobs for choice in chunk.choices):
            threads.add(threading.current_thread().name)
        return written(chunk)

    monkeypatch.setattr(answers, "chat_logprobs", chat_logprobs)
    monkeypatch.setattr(ChatChunk, "model_dump_json", model_dump_json)
    threads.clear()
    ask = {"messages": ASK, "max_tokens": 2, "logprobs": True, "stream": streams}
    answer = httpx.post(f"{served.root}/v1/chat/completions", json=ask, headers=AUTH, timeout=60)
    assert '"logprob":' in answer.text
    assert threads == {"structgen-forms"} | ({"structgen-bodies"} if streams else set())


@pytest.mark.parametrize("model", ["small", "vectors"])
def test_messages_of_a_state_are_read_aside(
    served: Served, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """A transcript of 32,000 takes 0.1 s, and 15 requests at once kept others waiting for 5 s."""
    threads: set[str] = set()
    parse = chat.parse

    def parsed(given: Any) -> Any:
        if isinstance(given, list):
            threads.add(threading.current_thread().name)
        return parse(given)

    monkeypatch.setattr(chat, "parse", parsed)
    options = dict.fromkeys(["short", "long"], "It is.")
    asks = {"type": "choice", "instructions": "?", "criteria": options}
    ask = {"model": model, "state": ASK * 9, "questions": {"q": asks}}
    answer = httpx.post(f"{served.root}/v1/systemone", json=ask, headers=AUTH, timeout=60)
    assert answer.status_code == 200, answer.text
    assert threads
    assert "structgen-runner" not in threads


def test_a_cancelled_answer_repeats_its_scores_aside(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times: of 8,000 tokens, with twenty likely ones each, the event loop wrote for 1.2 s."""
    threads: set[str] = set()
    cancels = responses.Events.cancel

    def cancel(events: responses.Events) -> Iterator[bytes]:
        threads.add(threading.current_thread().name)
        yield from cancels(events)

    monkeypatch.setattr(responses.Events, "cancel", cancel)
    form = {"grammar": "(one )+", "grammar_type": "regex"}
    ask = {"input": "Hi.", "background": True, "max_output_tokens": 4_000, **form}
    root = f"{served.root}/v1/responses"
    id_ = httpx.post(root, json=ask, headers=AUTH, timeout=60).json()["id"]
    while httpx.get(f"{root}/{id_}", headers=AUTH, timeout=60).json()["status"] == "queued":
        pass
    answer = httpx.post(f"{root}/{id_}/cancel", headers=AUTH, timeout=60)
    assert answer.json()["status"] == "cancelled"
    assert threads == {"structgen-bodies"}


def test_events_with_many_scores_are_made_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a call that ends a message. Others would wait for large bodies of others."""
    monkeypatch.setattr(text, "MANY_SCORES", 1)

    def chunk(*numbers: float, **delta: Any) -> ChatChunk:
        ours = [{"token": "a", "logprob": x, "bytes": [97], "top_logprobs": []} for x in numbers]
        choice = {"index": 0, "delta": delta, "logprobs": {"content": ours} if ours else None}
        return ChatChunk.model_validate({"id": "", "created": 0, "model": "", "choices": [choice]})

    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    events = responses.Events({"output": []})
    assert not events.takes_long(chunk(-1.0, content="a"))
    assert events.takes_long(chunk(-1.0, -1.0, content="a"))
    assert [*events.feed(chunk(-1.0, content="a"))]
    assert not events.takes_long(chunk(content="b"))
    assert events.takes_long(chunk(tool_calls=[call]))
    assert [*events.feed(chunk(tool_calls=[call]))]
    assert not events.takes_long(chunk(tool_calls=[call]))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": ASK, "n": 8, "logprobs": True, "top_logprobs": 1000}),
        ("completions", {"prompt": ["a"] * 8, "logprobs": 1000}),
        ("responses", {"input": "Hi.", "top_logprobs": 1000, "stream": True}),
        ("chat/completions", {"messages": ASK, "n": 8, "trace": True, "stream": True}),
    ],
)
def test_log_probabilities_of_a_request_are_bounded(
    served: Served, path: str, fields: dict[str, Any]
) -> None:
    """Each takes 2 kB, and one request could ask for a hundred million of them."""
    name = "max_output_tokens" if path == "responses" else "max_tokens"
    ask = {**fields, name: 3_000, "temperature": 1}
    answer = httpx.post(f"{served.root}/v1/{path}", json=ask, headers=AUTH, timeout=60)
    assert answer.status_code == 400, answer.text
    assert "log probabilities each" in answer.json()["error"]["message"]


def test_long_tokens_are_several_log_probabilities() -> None:
    """Of a foreign folder, each of 21 a token had 60,000 bytes: 50 tokens took 330 MB."""
    vocabulary = Vocabulary.from_tokens([b"", b"a" * 60_000], [0])
    model: Any = SimpleNamespace(pid=None, vocabulary=vocabulary, context_length=100)
    host = TextHost([model], ModelConfig(source="./it"), is_own=False)
    assert _scores({"logprobs": True, "top_logprobs": 3, "max_new_tokens": 10}, 1, host)
    with pytest.raises(RequestError, match="The limit is 200,000"):
        _scores({"logprobs": True, "top_logprobs": 20}, 1, host)


def test_log_probabilities_under_way_are_bounded_for_each_key() -> None:
    model: Any = SimpleNamespace(pid=None)
    host = TextHost([model], ModelConfig(source="./it"), is_own=False)

    def under_way(owner: str) -> contextlib.AbstractContextManager[None]:
        STRANGER.set(Stranger(owner, 1, 1))
        return host.work_at(0, MAX_SCORES)

    async def main() -> None:
        with under_way("a"), under_way("a"):
            with pytest.raises(Overloaded, match="The limit is 400,000"), under_way("a"):
                pass
            with under_way("b"):
                pass
        with under_way("a"):
            pass
        assert not host._scores

    asyncio.run(main())
