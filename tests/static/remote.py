"""What type checkers know of remote models: checked, never run."""

from __future__ import annotations

from typing import Any, Literal

import openai
from pydantic import BaseModel
from typing_extensions import assert_type

import structgen
from structgen import (
    AsyncRemoteModel,
    AsyncStream,
    AsyncTypedGenerator,
    Call,
    Generator,
    JsonSchema,
    Partial,
    Regex,
    RemoteModel,
    Stream,
)
from structgen.decoding import AsyncValueStream, Enforcement, ValueStream


class Person(BaseModel):
    name: str


def greet(name: str) -> None: ...


def made(client: openai.OpenAI, asynchronous: openai.AsyncOpenAI) -> None:
    assert_type(structgen.from_openai(client, "m"), RemoteModel)
    assert_type(structgen.from_openai(asynchronous, "m", dialect="vllm"), AsyncRemoteModel)
    structgen.from_openai(client, "m", dialect="vlm")  # type: ignore[call-overload]  # pyright: ignore
    structgen.from_openai("url", "m")  # type: ignore[call-overload]  # pyright: ignore


def values(model: RemoteModel) -> None:
    assert_type(Generator(model, Person), Generator[Person])
    assert_type(Generator(model, Person).parse("x"), Person)
    assert_type(Generator(model, Literal["a", "b"]).parse("x"), Literal["a", "b"])
    assert_type(Generator(model, list[int]).batch(["x"]), list[list[int]])
    assert_type(Generator(model, Regex("a"))("x"), str)
    assert_type(Generator(model, greet).parse("x"), Call)
    assert_type(Generator(model, JsonSchema(True)).parse("x"), Any)
    assert_type(Generator(model).parse("x"), str)
    result = Generator(model, int).result("x", temperature=0.5)
    assert_type(result.value, int)
    assert_type(result.enforcement, Enforcement | None)
    for partial in Generator(model, Person).stream_values("x"):
        assert_type(partial, Partial[Person])


def asked(model: RemoteModel) -> None:
    assert_type(model("x"), str)
    assert_type(model("x", Person, temperature=0.5), Person)
    assert_type(model("x", Literal["a", "b"]), Literal["a", "b"])
    assert_type(model("x", JsonSchema(True)), Any)
    assert_type(model("x", greet), Call)
    assert_type(model.stream("x", Person), Stream[Person])
    assert_type(model.stream_values("x", list[int]), ValueStream[list[int]])


async def asked_asynchronously(model: AsyncRemoteModel) -> None:
    assert_type(await model("x"), str)
    assert_type(await model("x", Person), Person)
    assert_type(await model("x", int | str), int | str)
    assert_type(model.stream("x", Person), AsyncStream[Person])
    assert_type(model.stream_values("x", Regex("a")), AsyncValueStream[str])


async def asynchronous_values(model: AsyncRemoteModel) -> None:
    assert_type(Generator(model, Person), AsyncTypedGenerator[Person])
    assert_type(await Generator(model, Person).parse("x"), Person)
    assert_type(await Generator(model, int | str).batch(["x"]), list[int | str])
    async with Generator(model, Person).stream("x") as stream:
        assert_type(stream.result.value, Person)
    async for partial in Generator(model, Person).stream_values("x"):
        assert_type(partial, Partial[Person])
