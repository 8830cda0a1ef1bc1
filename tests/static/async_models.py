"""What type checkers infer of asynchronous models. Checked by mypy and basedpyright, never run."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel
from typing_extensions import assert_type

import structgen
from structgen import (
    AsyncModel,
    AsyncStream,
    AsyncTypedGenerator,
    Call,
    GenerationResult,
    Generator,
    Partial,
    Regex,
    TextModel,
)
from structgen.decoding import AsyncValueStream, Chunk


class Person(BaseModel):
    name: str


def greet(name: str) -> None: ...


async def loaded() -> AsyncModel:
    async with await structgen.load_async("name", batch_size=1) as model:
        assert_type(model, AsyncModel)
    return await structgen.load_async("name")


async def generators(model: AsyncModel, other: TextModel) -> None:
    assert_type(other.to_async(), AsyncModel)
    people = Generator(model, Person)
    assert_type(people, AsyncTypedGenerator[Person])
    assert_type(await people("x", max_new_tokens=3, cancel=asyncio.Event()), str)
    assert_type(await people.parse("x"), Person)
    assert_type(await people.result([{"role": "user", "content": "x"}]), GenerationResult[Person])
    assert_type(await people.batch(["x", "y"]), list[Person])
    assert_type(people.stream("x"), AsyncStream[Person])
    assert_type(people.stream_values("x"), AsyncValueStream[Person])
    assert_type([chunk async for chunk in people.stream("x")], list[Chunk])
    assert_type([value async for value in people.stream_values("x")], list[Partial[Person]])
    assert_type(await Generator(model).parse("x"), str)
    assert_type(await Generator(model, Literal["a", "b"], think=20).parse("x"), Literal["a", "b"])
    assert_type(await Generator(model, Regex("a")).parse("x"), str)
    assert_type(await Generator(model, greet).parse("x"), Call)
    await people("x", max_tokens=3)  # type: ignore[call-overload]  # pyright: ignore


async def asked(model: AsyncModel) -> None:
    assert_type(await model("x"), str)
    assert_type(await model("x", Person, max_new_tokens=3, whitespace="compact"), Person)
    assert_type(await model("x", Literal["a", "b"]), Literal["a", "b"])
    assert_type(await model("x", list[int]), list[int])
    assert_type(await model("x", Regex("a")), str)
    assert_type(await model("x", ["a", "b"]), str)
    assert_type(await model("x", greet), Call)
    assert_type(model.stream("x", Person), AsyncStream[Person])
    assert_type(model.stream("x"), AsyncStream[Any])
    assert_type(model.stream("x", None), AsyncStream[Any])
    assert_type(model.stream_values("x", Person), AsyncValueStream[Person])


async def several(model: AsyncModel) -> None:
    people = Generator(model, Person)
    assert_type(await people(["x", "y"]), list[str])
    assert_type(await people("x", n=2, temperature=1.0), list[Any])
    assert_type(await people.parse("x", n=2), list[Any])
    assert_type(await people.parse(["x"], n=2), list[Any])
    assert_type(await people.parse(["x"], return_errors=True), list[Any])
    assert_type(await people.result("x", n=2), list[Any])
    assert_type(await people.result(["x"], n=2, return_errors=True), list[Any])
    assert_type(await people.batch(["x"], n=2), list[Any])
    assert_type(await people.batch(["x"], return_errors=True), list[Any])
