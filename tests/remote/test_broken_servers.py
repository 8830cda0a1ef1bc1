"""Servers that break the rules: whatever comes, the error is one of ours and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import threading
import time
import traceback
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import inside
import openai
import pytest
from pydantic import BaseModel

import structgen
from structgen import Generator, JsonSchema, RemoteError
from structgen.constraint import compile as compile_constraint
from structgen.insight.json_places import ByteReader
from structgen.remote import exchange, generator
from structgen.remote.reading import BYTES, Answer, NotOfType

from .chat_server import ChatServer, Reply


class Person(BaseModel):
    name: str
    age: int


ANN = '{"name": "Ann", "age": 3}'


def message(**said: Any) -> dict[str, Any]:
    """A completion that is a piece of a stream, too."""
    choice = {"index": 0, "finish_reason": "stop", "message": said, "delta": said}
    return {"id": "1", "created": 1, "model": "m", "choices": [choice]}


def _scored(**about: Any) -> dict[str, Any]:
    scored = {"content": [{"token": "x", "logprob": -1.0, **about}]}
    return {"choices": [{**message(content=ANN)["choices"][0], "logprobs": scored}]}


BROKEN: dict[str, Any] = {
    "no JSON": b'{"a": ',
    "a list": b"[1, 2]",
    "null": b"null",
    "deep JSON": b"[" * 50_000 + b"]" * 50_000,
    "a deep content": json.dumps(message(content="@"))
    .encode()
    .replace(b'"@"', b"[" * 900 + b"]" * 900),
    "a text": b'"hello"',
    "another object": b'{"foo": 1}',
    "an error": b'{"error": {"message": "out of memory"}}',
    "no choices": {**message(), "choices": []},
    "null choices": {**message(), "choices": None},
    "a number as content": message(content=5),
    "a picture as content": message(content=[{"type": "image", "url": "x"}]),
    "no UTF-8": json.dumps(message(content="@")).encode().replace(b"@", b"\xff"),
    "half a character": message(content="\ud83d"),
    "the other half": message(content="x\ude00y"),
    "scores without numbers": {
        **message(content=ANN),
        "choices": [{**message(content=ANN)["choices"][0], "logprobs": {"content": [{}]}}],
    },
    "bytes that are a size": _scored(bytes=10**12),
    "a score too large": _scored(logprob=10**400),
    "a part of no kind": message(content=[{"type": [], "text": ANN}]),
    "arguments that are no text": message(
        content=ANN, tool_calls=[{"function": {"name": "add", "arguments": {"a": 1}}}]
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_not_understood_is_an_error_of_the_server(
    kind: str, server: ChatServer, remote: Any
) -> None:
    raw = BROKEN[kind]
    model = remote(Reply(raw=raw if isinstance(raw, bytes) else json.dumps(raw).encode()))
    options: Any = {"logprobs": True}

    async def awaited(stream: bool) -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            generator = Generator(structgen.from_openai(client, "m"), Person)
            if stream:
                async for _ in generator.stream("?", **options):
                    pass
            else:
                await generator("?", **options)

    for output_type in (Person, None):
        generator: Any = Generator(model, output_type)
        with pytest.raises(RemoteError):
            generator("?", **options)
        with pytest.raises(RemoteError):
            generator("?", timeout=60, **options)
        with pytest.raises(RemoteError):
            list(generator.stream("?", **options))
    with pytest.raises(RemoteError):
        asyncio.run(awaited(stream=False))
    with pytest.raises(RemoteError):
        asyncio.run(awaited(stream=True))


def test_what_breaks_no_rule_that_matters_is_read(remote: Any) -> None:
    odd = message(content=[{"type": "thinking", "thinking": "so"}, {"type": "text", "text": ANN}])
    odd["usage"] = {"prompt_tokens": "many", "completion_tokens": -3, "total_tokens": None}
    generator = Generator(remote(Reply(raw=json.dumps(odd).encode()), dialect="none"), Person)
    result = generator.result("?")
    assert result.value == Person(name="Ann", age=3)
    assert result.reasoning == "so"
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (0, 0)
    assert "".join(generator.stream("?")).endswith(ANN)


def test_characters_divided_by_a_stream_are_put_together(remote: Any) -> None:
    pieces = ['{"name": "\ud83d', '\ude00", "age": 3}']
    generator = Generator(remote(Reply(pieces), dialect="none"), Person)
    assert "".join(generator.stream("?")) == '{"name": "\U0001f600", "age": 3}'
    assert generator.parse("?", timeout=60).name == "\U0001f600"


def test_characters_of_calls_and_refusals_are_put_together(remote: Any) -> None:
    def pieces(**said: Any) -> Any:
        made = [message(**{name: one[i] for name, one in said.items()}) for i in range(2)]
        return remote(Reply(raw=b"\n\ndata: ".join(json.dumps(one).encode() for one in made)))

    def greet(name: str) -> None: ...

    calls = [
        [{"index": 0, "function": {"name": name, "arguments": arguments}}]
        for name, arguments in (("greet", '{"name": "\ud83d'), ("", '\ude00"}'))
    ]
    stream = Generator(pieces(tool_calls=calls), structgen.ToolCalls([greet])).stream("?")
    list(stream)
    assert stream.result.value[0].arguments == {"name": "\U0001f600"}
    with pytest.raises(structgen.Refused, match="No \U0001f600"):
        list(Generator(pieces(refusal=["No \ud83d", "\ude00"])).stream("?"))


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
def test_an_answer_that_the_server_gave_up_is_no_answer(reason: str, remote: Any) -> None:
    model = remote(Reply(ANN, finish_reason=reason), dialect="none")
    for output_type in (Person, None):
        generator: Any = Generator(model, output_type)
        with pytest.raises(RemoteError, match=reason):
            generator("?", **({"retries": 2} if output_type else {}))
        with pytest.raises(RemoteError, match=reason):
            list(generator.stream("?"))


def test_a_servers_own_words_are_told(remote: Any) -> None:
    with pytest.raises(RemoteError, match="no such model") as caught:
        Generator(remote(Reply(status=404, raw=b'{"error": "no such model"}')))("?")
    assert caught.value.status == 404
    with pytest.raises(RemoteError, match="out of memory"):
        Generator(remote(Reply(raw=b'{"error": {"message": "out of memory"}}')))("?")


def test_a_servers_words_steer_no_terminal_and_a_password_is_not_told(server: ChatServer) -> None:
    client = openai.OpenAI(
        base_url=server.url.replace("//", "//ann:secret@"), api_key="k", max_retries=0
    )
    ask = Generator(structgen.from_openai(client, "m"))
    steers = b'"x\\u001b[2J"'
    for reply, said in (
        (Reply(status=500, raw=b"x\x1b[2J"), r"at http://127[^@]*\(status 500\): x\\x1b\[2J"),
        (Reply(status=400, raw=b'{"message": %s}' % steers), r"x\\x1b\[2J"),
        (Reply(refusal="x\x1b[2J"), r"x\\x1b\[2J"),
        (Reply(raw=b'{"error": {"message": %s}}' % steers), r"x\\x1b\[2J"),
    ):
        server.say = [reply]
        with pytest.raises((RemoteError, structgen.Refused), match=said):
            ask("?")


def test_a_malformed_key_is_not_told(server: ChatServer) -> None:
    client = openai.OpenAI(base_url=server.url, api_key="secret\n", max_retries=0)
    with pytest.raises(RemoteError, match="a header, such as that of its API key") as caught:
        Generator(structgen.from_openai(client, "m"))("?")
    assert "secret" not in "".join(traceback.format_exception(caught.value))


class Optional(BaseModel):
    a: int = 1
    b: str = "x"
    c: int | None = None


@pytest.mark.parametrize(
    ("text", "is_of_type"),
    [
        ('{"a":null,"b":"y"}', True),
        ('{"a":null,"b":null}', True),
        ('{,"a":1}', False),
        ('{"a":null"b":"y"}', False),
        ('{"a":null "b":"y"}', False),
        ('{"b":null,"a":null"c":null}', False),
        ('{"a":null,,"b":"y"}', False),
        ('{"a":null,}', False),
        ('{"a":1,"b":null,}', False),
        ('{"a":1"b":null}', False),
    ],
)
def test_nulls_are_left_out_of_json_only(text: str, is_of_type: bool) -> None:
    """``{"a": null "b": 1}`` is no JSON, whatever is left of it."""
    answer = Answer(compile_constraint(Optional, BYTES), has_nulls=True)

    def read() -> bool:
        try:
            answer.feed(text)
            answer.finish()
        except NotOfType:
            return False
        return True

    assert read() == is_of_type
    assert not is_of_type or json.loads(text)


def test_a_stream_that_is_being_closed_has_no_next_piece(server: ChatServer) -> None:
    server.say = [Reply(["x"] * 500, seconds=0.02)]

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            stream = Generator(structgen.from_openai(client, "m")).stream("?")
            pieces = stream._pieces

            async def closes_slowly() -> AsyncIterator[Any]:
                try:
                    async for piece in pieces:
                        yield piece
                finally:
                    await asyncio.sleep(0.05)
                    await pieces.aclose()

            stream._pieces = closes_slowly()
            await anext(stream)
            closing = asyncio.ensure_future(stream.aclose())
            await asyncio.sleep(0)
            with pytest.raises(StopAsyncIteration):  # though the connection is still closing
                await anext(stream)
            await closing

    asyncio.run(main())


def test_closing_a_stream_ends_its_reader(server: ChatServer) -> None:
    server.say = [Reply(["x"] * 500, seconds=0.02)]

    async def main() -> Any:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            model = structgen.from_openai(client, "m")
            stream = Generator(model).stream("?")

            async def read() -> int:
                return len([chunk async for chunk in stream])

            reader = asyncio.ensure_future(read())
            while not stream.section:
                await asyncio.sleep(0.01)
            await stream.aclose()
            n_pieces = await asyncio.wait_for(reader, 10)
            await stream.aclose()
            return n_pieces, [chunk async for chunk in stream], stream.result

    n_pieces, after, result = asyncio.run(main())
    assert 0 < n_pieces < 500
    assert after == []
    assert result.finish_reason == "cancelled"


def test_cancel_is_heard_while_nothing_comes(server: ChatServer) -> None:
    is_cancelled = threading.Event()

    def wait(body: Any) -> Reply:
        assert is_cancelled.wait(60)
        return Reply("x")

    server.say = wait

    async def main() -> Any:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            event = asyncio.Event()
            asyncio.get_running_loop().call_later(0.1, event.set)
            result = await Generator(structgen.from_openai(client, "m")).result("?", cancel=event)
            is_cancelled.set()
            return result

    assert asyncio.run(main()).finish_reason == "cancelled"


@pytest.mark.parametrize("many", ["bytes", "characters"])
def test_what_never_ends_is_not_kept(
    many: str, server: ChatServer, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads a body, or a line of a stream, whatever its length."""
    monkeypatch.setattr(generator if many == "bytes" else exchange, f"_MOST_{many.upper()}", 1000)
    model = remote(Reply(raw=json.dumps(message(content="x" * 2000)).encode()))
    told = f"more than 1,000 {many}"
    for options in ({}, {"timeout": 60}):
        with pytest.raises(RemoteError, match=told):
            model("?", None, **options)
    with pytest.raises(RemoteError, match=told):
        list(Generator(model).stream("?"))

    async def awaited() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            generator = Generator(structgen.from_openai(client, "m"))
            with pytest.raises(RemoteError, match=told):
                await generator("?")
            with pytest.raises(RemoteError, match=told):
                await generator("?", timeout=60)
            # Other requests of the client are not structgen's.
            answer = await client.chat.completions.create(model="m", messages=[])
            assert answer.choices[0].message.content == "x" * 2000

    asyncio.run(awaited())


@pytest.mark.parametrize("is_stream", [False, True])
def test_many_values_are_not_read(
    is_stream: bool, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 MB of calls of tools held up an event loop for 24 s, and took 1.2 GB."""
    monkeypatch.setattr(generator, "_MOST_VALUES", 1_000)
    text = '["a", "\\"'
    few = Reply(raw=json.dumps(message(content=text * 1_000)).encode())
    many = Reply(raw=json.dumps(message(content=[{"type": "text", "text": "y"}] * 500)).encode())
    for reply in (few, many):
        asks = Generator(remote(reply))
        ask = partial(asks.stream, "?") if is_stream else partial(asks, "?")
        if reply is few:
            assert "".join(ask()) == text * 1_000
        else:
            with pytest.raises(RemoteError, match="more than 1,000 values"):
                list(ask())


@pytest.mark.parametrize("before", [': "\n', 'id: "\r', ': "" "\r\n', ":\\\n"])
def test_a_quote_outside_of_the_data_of_an_event_hides_no_values(
    before: str, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one, 900 kB of choices counted as a string: they held up an event loop for 20 s."""
    monkeypatch.setattr(generator, "_MOST_VALUES", 1_000)
    said = message(content="y, [" * 1_000)
    many = json.dumps({**said, "choices": [*said["choices"], *[{}] * 1_000]})
    for event, is_refused in ((json.dumps(said), False), (many, True)):
        raw = f"{json.dumps(said)}\n\n{before}data: {event}".encode()
        asks = Generator(remote(Reply(raw=raw)))
        if is_refused:
            with pytest.raises(RemoteError, match="more than 1,000 values"):
                list(asks.stream("?"))
        else:
            assert "".join(asks.stream("?")) == "y, [" * 2_000


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16", "utf-32-be"])
def test_values_are_counted_in_utf_8(
    coding: str, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of JSON tell UTF-16, in which a letter may have the byte of a quote: 3 MB held up an
    event loop for 15 s."""
    monkeypatch.setattr(generator, "_MOST_VALUES", 1_000)
    many = json.dumps({"id": "\u0122", "choices": [{}] * 10_000}, ensure_ascii=False)
    with pytest.raises(RemoteError, match="UTF-8"):
        Generator(remote(Reply(raw=many.encode(coding))))("?")


@pytest.mark.parametrize("coding", ["punycode", "bz2", "hex"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_server_does_not_choose_how_texts_are_decoded(
    coding: str, status: int, remote: Any
) -> None:
    """600 kB of punycode held up an event loop for 14 s; others raised an AssertionError."""
    reply = Reply(raw=b"-a9a9", kind=f"text/html; charset={coding}", status=status)
    with pytest.raises(RemoteError, match="-a9a9"):
        Generator(remote(reply))("?")


def test_whole_answers_are_read_without_classes_of_the_client(
    remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each object takes 40 us: with logprobs, 1.5 MB of choices held up an event loop for 15 s."""
    asks = Generator(remote(Reply(raw=json.dumps(message(content="x")).encode())))
    monkeypatch.setattr(openai.types.chat.ChatCompletion, "construct", None)
    assert asks("?", logprobs=True) == "x"
    monkeypatch.setattr(generator, "_MOST_VALUES", 10)
    with pytest.raises(RemoteError, match="an event of a stream, and it has more than 10 values"):
        list(asks.stream("?", logprobs=True))


def test_pieces_of_a_long_argument_are_not_put_together_each_time(remote: Any) -> None:
    """Each copied all before it: 0.4 million pieces fit, and took 40 minutes."""
    seconds = []
    for size in (10, 7_000_000):
        first, rest = (
            message(tool_calls=[{"index": 0, "function": {"arguments": "x" * n}}])
            for n in (size, 1)
        )
        pieces = [json.dumps(one).encode() for one in (first, *[rest] * 2_000)]
        began = time.process_time()
        asks = Generator(remote(Reply(raw=b"\n\ndata: ".join(pieces))))
        list(asks.stream("?"))
        seconds.append(time.process_time() - began)
    assert seconds[1] < 2 * seconds[0] + 0.5


def test_parts_of_a_content_are_not_put_together_each_time(remote: Any) -> None:
    """Each copied all before it, and so did each level of parts in parts: 16 MB took 5 to 40 s."""
    seconds = []
    for size in (1, 1_600):
        content: Any = [{"type": "text", "text": "x" * size}] * 7_500
        for _ in range(200):
            content = [{"type": "text", "text": content}, {"type": "text", "text": "y"}]
        choice = {"finish_reason": "stop", "message": {"content": content}}
        asks = Generator(remote(Reply(raw=json.dumps({"choices": [choice]}).encode())))
        began = time.process_time()
        assert asks("?") == "x" * 7_500 * size + "y" * 200
        seconds.append(time.process_time() - began)
    assert seconds[1] < 2 * seconds[0] + 0.5


def test_pieces_without_text_have_an_end(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_CHARACTERS", 1_000)
    calls = [{"index": n, "function": {}} for n in range(20)]
    with pytest.raises(RemoteError, match="more than 1,000 characters"):
        list(
            Generator(remote(Reply(raw=json.dumps(message(tool_calls=calls)).encode()))).stream("?")
        )


@pytest.mark.parametrize("is_async", [False, True])
def test_all_replies_to_a_call_have_an_end(
    is_async: bool, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 40 prompts, with max_new_tokens=20, took 2.6 GB."""
    monkeypatch.setattr(exchange, "_MOST_CHARACTERS", 1_000)
    monkeypatch.setattr(exchange, "_MORE_EACH", 200)
    options = {"batch_size": 1, "return_errors": True}
    server.say = [Reply(["x" * 400])] * 5
    if is_async:

        async def asked() -> Any:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="x") as client:
                return await Generator(structgen.from_openai(client, "m"))(["?"] * 5, **options)

        said = asyncio.run(asked())
    else:
        with openai.OpenAI(base_url=server.url, api_key="x") as client:
            said = Generator(structgen.from_openai(client, "m"))(["?"] * 5, **options)
    assert said[:3] == ["x" * 400] * 3
    assert ["more than 1,800 characters" in str(one) for one in said[3:]] == [True, True]


def test_attempts_have_an_end_together(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 21 is kept, and sent with those that follow."""
    monkeypatch.setattr(exchange, "_MOST_CHARACTERS", 1_000)
    asks = Generator(remote(*[Reply(["x" * 400])] * 5), Person)
    with pytest.raises(RemoteError, match="more than 1,000 characters"):
        asks("?", retries=4)


@pytest.mark.parametrize(
    "about", [{"top_logprobs": [{"token": "", "logprob": 0}] * 40}, {"bytes": [0] * 1_000}]
)
def test_scores_have_an_end(
    about: dict[str, Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of 120 MB took 700 MB, as its alternatives did not count."""
    monkeypatch.setattr(exchange, "_MOST_CHARACTERS", 1_000)
    model = remote(Reply(raw=json.dumps(_scored(**about)).encode()), dialect="none")
    with pytest.raises(RemoteError, match="more than 1,000 characters"):
        list(Generator(model).stream("?", logprobs=True))


def test_scores_of_a_whole_answer_are_read_beside_an_event_loop(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 MB of short ones held it up for 1.5 s, honest ones for half of that."""
    server.say = [Reply(raw=json.dumps(_scored(bytes=None)).encode())]
    threads: list[threading.Thread] = []
    take = exchange.Exchange.take

    def noted(self: exchange.Exchange, completion: Any) -> None:
        threads.append(threading.current_thread())
        take(self, completion)

    async def asked() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            await Generator(structgen.from_openai(client, "m"))("?", logprobs=True)

    monkeypatch.setattr(exchange.Exchange, "take", noted)
    asyncio.run(asked())
    assert threads != [threading.current_thread()]


def test_many_pieces_do_not_hold_up_an_event_loop(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client takes all that a read has brought at once: a second for 64 kB of such events. In
    slices of 4 kB, 10 MB of them held up 19 other answers for 23 s, honest pieces for one."""
    server.say = [Reply(raw=b"{}\n\ndata: " * 2_000 + b"{}")]
    taken = most = 0
    take = exchange.Exchange.take_piece

    def noted(self: exchange.Exchange, piece: Any) -> Any:
        nonlocal taken
        taken += 1
        return take(self, piece)

    async def other() -> None:
        nonlocal taken, most
        while True:
            most, taken = max(most, taken), 0
            await asyncio.sleep(0)

    async def asked() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            waiting = asyncio.create_task(other())
            with pytest.raises(RemoteError, match="without a reason"):
                async for _ in Generator(structgen.from_openai(client, "m")).stream("?"):
                    pass
            waiting.cancel()

    monkeypatch.setattr(exchange.Exchange, "take_piece", noted)
    asyncio.run(asked())
    assert 0 < most <= 30


def test_events_that_come_together_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed piece may have thousands: honest answers were refused."""
    monkeypatch.setattr(generator, "_MOST_VALUES", 100)
    many = b"data: [%s]\n\n" % b",".join([b"1"] * 90) * 50
    assert b"".join(inside.streamed([many])) == many
    with pytest.raises(RemoteError, match="more than 100 values"):
        inside.streamed([many.replace(b"]\n\ndata: [", b",")])


class Tree(BaseModel):
    children: list[Tree] = []


@pytest.mark.parametrize(
    ("output_type", "text"),
    [
        (list[int], '{"value":' + "[" * 10_000),
        (str, '{"value":' + "[" * 10_000),
        (Tree, '{"value":' + '{"children":[' * 5_000),
        (Optional, '{"a":' + " " * 1_000_000 + "[]}"),
        (dict[str, Any], '{"a":' + "[" * 10_000 + "x"),
    ],
    ids=["a list", "a text", "of the type", "blanks", "anything"],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_deep_answers_take_little_memory(
    output_type: Any, text: str, is_stream: bool, remote: Any
) -> None:
    """Each event has its path: 40,000 brackets took 6 GB and a minute, before one was refused."""
    dialect = "openai" if output_type != dict[str, Any] else "vllm"
    asks = Generator(remote(Reply([text]), dialect=dialect), output_type)
    tracemalloc.start()
    try:
        with pytest.raises(structgen.ParseError):
            list(asks.stream("?")) if is_stream else asks("?")
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("options", [{}, {"timeout": 60}], ids=["whole", "timed"])
def test_long_answers_do_not_hold_up_an_event_loop(
    is_stream: bool, options: Any, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte takes a microsecond or ten: 15 MB took 15 s."""
    text = json.dumps({"name": "x" * 100_000, "age": 3})
    server.say = [Reply([text])]
    read = most = 0
    feed = Answer.feed

    def noted(self: Answer, piece: str) -> str:
        nonlocal read
        read += len(piece)
        return feed(self, piece)

    async def other() -> None:
        nonlocal read, most
        while True:
            most, read = max(most, read), 0
            await asyncio.sleep(0)

    async def asked() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            waiting = asyncio.create_task(other())
            asks = Generator(structgen.from_openai(client, "m"), Person)
            if is_stream:
                assert "".join([one async for one in asks.stream("?", **options)]) == text
            else:
                assert await asks("?", **options) == text
            await asyncio.sleep(0.01)
            waiting.cancel()

    monkeypatch.setattr(Answer, "feed", noted)
    asyncio.run(asked())
    assert 0 < most <= 4_096


def test_what_is_slow_to_check_is_checked_in_short_steps(
    remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character of many values that must differ takes 15 ms: 9 kB held up a loop for 14 s."""
    read: list[str] = []
    monkeypatch.setattr(Answer, "feed", lambda self, piece: read.append(piece) or piece)
    monkeypatch.setattr(exchange, "_SLOW_SECONDS", -1)
    pieces = list(Generator(remote(Reply(["x" * 200]))).stream("?"))
    assert "".join(pieces) == "".join(read) == "x" * 200
    assert list(map(len, read)) == [64, 8, *[1] * 128]


@pytest.mark.parametrize("end", ["x", ""])
def test_what_is_wrong_is_said_without_reading_the_answer_again(
    end: str, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65 kB of values that must differ and a wrong byte held up a loop for 13 s."""
    read: list[int] = []
    step = ByteReader.step
    monkeypatch.setattr(ByteReader, "step", lambda *given: read.append(given[2]) or step(*given))
    text = json.dumps([f"w{i}" for i in range(200)])[:-1]
    form = JsonSchema({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
    asks = Generator(remote(Reply([text + end]), dialect="vllm"), form)
    with pytest.raises(structgen.ParseError, match=r"w199.*; expected|missing is ']'"):
        list(asks.stream("?"))
    assert len(read) <= 2


def test_a_million_errors_in_an_answer_are_counted(remote: Any) -> None:
    """Listing them held up a loop for 7 s and took 900 MB."""
    asks = Generator(remote(Reply([json.dumps(["a"] * 1_001)]), dialect="vllm"), list[int])
    with pytest.raises(structgen.ParseError, match=r"list\[int\]: it has 1,001 errors\. Text"):
        asks("?")


def test_what_is_wrong_late_in_a_long_answer(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Generator(remote(Reply([json.dumps({"name": "x" * 100_000}), "}"])), Person)
    with pytest.raises(structgen.ParseError, match="It does not match the type after 100,0"):
        list(asks.stream("?"))
    with pytest.raises(structgen.ParseError):
        asks("?")
    monkeypatch.setattr(exchange, "_MOST_COMMAS", 9)
    asks = Generator(remote(Reply([json.dumps({"name": "," * 10, "age": 3})])), Person)
    with pytest.raises(RemoteError, match="more than 9 values"):
        asks("?")


@pytest.mark.parametrize(("status", "is_stream"), [(200, False), (400, False), (400, True)])
def test_what_only_claims_to_be_a_stream_is_no_larger_than_an_answer(
    status: int, is_stream: bool, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads it whole: comments of a gigabyte were held."""
    monkeypatch.setattr(generator, "_MOST_BYTES", 10_000)
    reply = Reply(raw=b": x\n\n" * 10_000, kind="text/event-stream", status=status)
    asks = Generator(remote(reply))
    with pytest.raises(RemoteError, match="an answer of more than 10,000 bytes"):
        list(asks.stream("?")) if is_stream else asks("?")


@pytest.mark.parametrize("coding", ["gzip, gzip", "zstd", "br"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_answers_may_be_compressed_once(coding: str, is_stream: bool, remote: Any) -> None:
    """What is compressed twice, or by more than gzip can, becomes gigabytes in one piece."""
    data = gzip.compress(json.dumps(message(content="well")).encode())
    assert Generator(remote(Reply(raw=data, coding="gzip")))("?") == "well"
    status = 400 if is_stream else 200
    asks = Generator(remote(Reply(raw=gzip.compress(data), coding=coding, status=status)))
    with pytest.raises(RemoteError, match=f"in the encoding '{coding}'"):
        list(asks.stream("?")) if is_stream else asks("?")


def test_comments_have_an_end(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_MOST_IN_ALL", 100)
    with pytest.raises(RemoteError, match="a stream of more than 100 bytes"):
        list(Generator(remote(Reply(drip=0.001))).stream("?"))


@pytest.mark.parametrize("status", [200, 400])
def test_few_cookies_are_kept(remote: Any, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Each answer may set 5,000. They stayed, and were sent with each request."""
    monkeypatch.setattr(generator, "_MOST_COOKIES", 11)
    model = remote(Reply("hi", cookies=3, status=status))
    kept = []
    for _ in range(5):
        with contextlib.nullcontext() if status == 200 else pytest.raises(RemoteError):
            model("?")
        kept.append(len(model.client._client.cookies.jar))
    assert kept == [3, 6, 9, 0, 3]


def test_many_calls_are_not_written_out(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them fit, and held an event loop for seconds."""
    monkeypatch.setattr(exchange, "_MOST_CALLS", 10)
    calls = [{"index": n, "function": {}} for n in range(11)]
    with pytest.raises(RemoteError, match="more than 10 calls"):
        Generator(remote(Reply(raw=json.dumps(message(tool_calls=calls)).encode())))("?")


@pytest.mark.parametrize("drips_head", [False, True])
def test_a_time_limit_holds_while_something_comes(remote: Any, drips_head: bool) -> None:
    model = remote(Reply(drip=0.02, drips_head=drips_head))
    others = set(threading.enumerate())
    result = Generator(model).result("?", timeout=0.2)  # else it never ends
    assert result.finish_reason == "cancelled"
    until = time.perf_counter() + 60
    while "structgen ask" in {thread.name for thread in {*threading.enumerate()} - others}:
        assert time.perf_counter() < until, "and nobody goes on listening"
        time.sleep(0.01)


@pytest.mark.parametrize("end", ["\n\n", "\r\r", "\r\n\r\n", "\n\r\n"])
def test_every_client_sees_where_an_event_ends(end: str) -> None:
    # Clients of 2024 look for three of these, and copied all before the end for each line more.
    events = [f"data: {{}}{end}".encode() for _ in range(3)]
    got = inside.streamed([*events, b"data: ["])
    ends = (b"\n\n", b"\r\r", b"\r\n\r\n")
    assert b"data: {}" in b"".join(got)
    assert all(any(one in piece for one in ends) for piece in got[:3])


@pytest.mark.parametrize("text", [ANN, '{"name": 1}'])
@pytest.mark.parametrize("options", [{}, {"timeout": 60}], ids=["whole", "timed"])
def test_no_answer_waits_for_the_garbage_collector(
    text: str, options: Any, server: ChatServer
) -> None:
    """An answer of 15 MB, right or wrong, left up to 137 MB until a full collection."""
    server.say = [Reply([text])]

    async def asked() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            asks = Generator(structgen.from_openai(client, "m"), Person)
            with contextlib.suppress(structgen.ParseError):
                await asks("?", **options)
            with contextlib.suppress(structgen.ParseError):
                async for _ in asks.stream("?", **options):
                    pass
            await asks(["?"], return_errors=True, **options)
            gc.collect()

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            asks = Generator(structgen.from_openai(client, "m"), Person)
            with contextlib.suppress(structgen.ParseError):
                asks("?", **options)
            with contextlib.suppress(structgen.ParseError):
                list(asks.stream("?", **options))
            asks(["?"], return_errors=True, **options)
            gc.collect()
        asyncio.run(asked())
        kinds = (exchange.Exchange, exchange.Piece, generator._Bound)
        assert [one for one in gc.garbage if isinstance(one, kinds)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
