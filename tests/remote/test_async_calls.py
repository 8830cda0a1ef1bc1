"""The same of asynchronous clients: nothing blocks the event loop, cancelling hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import structgen
from structgen import Generator

from .chat_server import ChatServer, Reply


class Person(BaseModel):
    name: str
    age: int
    nick: str = "none"


ANN = '{"name": "Ann", "age": 3, "nick": null}'


def run(
    server: ChatServer, work: Callable[[structgen.AsyncRemoteModel], Awaitable[Any]], *replies: Any
) -> Any:
    """Do some work with an asynchronous model of the server, which says ``replies``."""
    if replies:
        server.say = [one if isinstance(one, Reply) else Reply(one) for one in replies]

    async def main() -> Any:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            return await work(structgen.from_openai(client, "stand-in"))

    return asyncio.run(main())


def test_values_texts_and_results(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        generator = Generator(model, Person)
        assert isinstance(generator, structgen.AsyncTypedGenerator)
        assert await generator("?") == '{"name": "Ann", "age": 3}'
        assert await generator.parse("?") == Person(name="Ann", age=3)
        result = await generator.result("?", temperature=0)
        assert result.enforcement is not None
        assert result.usage.prompt_tokens == 10

    run(server, work, ANN)
    assert server.requests[2]["temperature"] == 0


def test_several_outputs(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        generator = Generator(model, int)
        assert await generator(["1", "2"]) == ["1", "2"]
        assert await generator.parse("3", n=2) == [3, 3]
        assert await generator.parse(["3", "4"], n=2) == [[3, 3], [4, 4]]
        result, error = await generator.result(["5", "x"], return_errors=True)
        assert isinstance(result, structgen.GenerationResult)
        assert result.value == 5
        assert isinstance(error, structgen.ParseError)
        with pytest.raises(structgen.OptionError, match="greedy"):
            await generator("3", n=2, temperature=0)

    server.say = lambda body: Reply(f'{{"value":{body["messages"][0]["content"]}}}')
    run(server, work)


def test_short_forms(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        assert await model("?", Person) == Person(name="Ann", age=3)
        assert "".join([one async for one in model.stream("?", Person)]).startswith('{"name"')
        last = [one async for one in model.stream_values("?", Person)][-1]
        assert last.value == Person(name="Ann", age=3)
        assert await model("?") == ANN
        with pytest.raises(structgen.OptionError, match="max_new_tokens"):
            await model("x", Person, max_tokens=3)  # type: ignore[call-overload]

    run(server, work, ANN)


def test_many_wait_side_by_side(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        generator = Generator(model, int)
        prompts = [str(i) for i in range(20)]
        assert await generator.batch(prompts, batch_size=4) == list(range(20))
        assert 2 <= server.most_at_once <= 4
        calls = [generator.parse(prompt) for prompt in prompts]
        assert await asyncio.gather(*calls) == list(range(20))
        assert server.most_at_once > 4
        with pytest.raises(structgen.BatchError) as caught:
            await generator.batch(["1", "x"])
        assert caught.value.results == [1, None]
        with pytest.raises(structgen.PromptError):
            await generator.batch("x")  # type: ignore[arg-type]

    server.say = lambda body: Reply(f'{{"value":{body["messages"][0]["content"]}}}', seconds=0.05)
    run(server, work)


def test_streams_and_growing_values(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        generator = Generator(model, Person)
        async with generator.stream("?") as stream:
            with pytest.raises(structgen.StructgenError, match="not been read to its end"):
                stream.result  # noqa: B018
            pieces = [chunk async for chunk in stream]
        assert "".join(pieces) == '{"name": "Ann", "age": 3}'
        assert stream.section == "answer"
        assert stream.result.value == Person(name="Ann", age=3)
        grown = [one async for one in generator.stream_values("?")]
        assert grown[-1].value == Person(name="Ann", age=3)
        assert any(one.done("name") and not one.done("age") for one in grown)

    run(server, work, ANN)


def test_cancelling_hangs_up(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        generator = Generator(model)
        task = asyncio.ensure_future(generator("?"))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with generator.stream("?") as stream:
            await stream.__anext__()
        assert stream.result.finish_reason == "cancelled"
        await stream.aclose()

    run(server, work, Reply(["a"] * 1000, seconds=1), Reply(["a"] * 1000, seconds=0.01))


def test_timeouts_and_errors(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        result = await Generator(model).result("?", timeout=0.2)
        assert result.finish_reason == "cancelled"
        with pytest.raises(structgen.IncompleteOutput, match="timeout"):
            await Generator(model, int).parse("?", timeout=0.1)
        server.say = [Reply(status=429)]
        with pytest.raises(structgen.RemoteError, match="429"):
            await Generator(model).result("?")
        with pytest.raises(structgen.RemoteError, match="429"):
            await Generator(model).stream("?").__anext__()
        server.say = [Reply("a long text, and more", cut=True)]
        with pytest.raises(structgen.RemoteError):
            [chunk async for chunk in Generator(model).stream("?")]

    run(server, work, Reply(["   "] * 1000, seconds=0.01))


def test_retries(server: ChatServer) -> None:
    async def work(model: structgen.AsyncRemoteModel) -> None:
        assert (await Generator(model, Person).parse("?", retries=1)).name == "Ann"
        with pytest.raises(structgen.errors.ValidationFailed, match="None of 2 answers"):
            await Generator(model, int).parse("?", retries=1)

    run(server, work, "no", ANN)
