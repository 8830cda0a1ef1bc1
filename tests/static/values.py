"""What type checkers infer of generators and their values, for every kind of output type.

Checked by mypy and basedpyright, never run: `.ci/run` has the step.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, TypeVar, Union

from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypeForm, assert_type

import structgen
from structgen import (
    AsyncTypedGenerator,
    Call,
    Cfg,
    Choice,
    Constraint,
    GenerationResult,
    Generator,
    JsonSchema,
    Partial,
    Quote,
    Regex,
    Stream,
    Tagged,
    TextModel,
    ToolCalls,
    Vocabulary,
)
from structgen.decisions import Answers, Decider, Predicate, Score
from structgen.decoding import Chunk, Prompt, ValueStream
from structgen.types import QuotedText, TaggedValue

T = TypeVar("T")


class Person(BaseModel):
    name: str
    age: int


class Pair(BaseModel):
    left: Person
    right: Person


@dataclass
class Point:
    x: int


class Movie(TypedDict):
    title: str


class Size(NamedTuple):
    width: int


class Colour(enum.Enum):
    RED = "red"


def greet(name: str) -> None: ...


def pay(amount: int) -> int:
    return amount


Answer = Literal["yes", "no"]
CHAT = [{"role": "user", "content": "hi"}]


def types(model: TextModel) -> None:
    assert_type(Generator(model, Person), Generator[Person])
    assert_type(Generator(model, Person).parse("x"), Person)
    assert_type(Generator(model, Point).parse("x"), Point)
    assert_type(Generator(model, Movie).parse("x"), Movie)
    assert_type(Generator(model, Size).parse("x"), Size)
    assert_type(Generator(model, Colour).parse("x"), Colour)
    assert_type(Generator(model, int).parse("x"), int)
    assert_type(Generator(model, bool).parse("x"), bool)
    assert_type(Generator(model, date).parse("x"), date)
    assert_type(Generator(model, Literal["a", "b"]).parse("x"), Literal["a", "b"])
    assert_type(Generator(model, Answer).parse("x"), Literal["yes", "no"])
    assert_type(Generator(model, list[int]).parse("x"), list[int])
    assert_type(Generator(model, list[Person]).parse("x"), list[Person])
    assert_type(Generator(model, dict[str, float]).parse("x"), dict[str, float])
    assert_type(Generator(model, tuple[str, bool]).parse("x"), tuple[str, bool])
    assert_type(Generator(model, Person | Point).parse("x"), Person | Point)
    assert_type(Generator(model, int | str).parse("x"), int | str)
    assert_type(Generator(model, Union[int, str]).parse("x"), Union[int, str])
    assert_type(Generator(model, Person | None).parse("x"), Person | None)
    assert_type(Generator(model, Optional[Person]).parse("x"), Optional[Person])
    assert_type(Generator(model, Colour | int).parse("x"), Colour | int)
    assert_type(Generator(model, Annotated[int, Field(ge=1)]).parse("x"), int)
    assert_type(Generator(model, TypeAdapter(list[int])).parse("x"), list[int])


def objects(model: TextModel) -> None:
    assert_type(Generator(model).parse("x"), str)
    assert_type(Generator(model, None).parse("x"), str)
    assert_type(Generator(model, Regex("a+")).parse("x"), str)
    assert_type(Generator(model, Regex("a+") & ~Regex("aa")).parse("x"), str)
    assert_type(Generator(model, Quote("a b")).parse("x"), QuotedText)
    assert_type(Generator(model, re.compile("a+")).parse("x"), str)
    assert_type(Generator(model, Cfg.named("json")).parse("x"), str)
    assert_type(Generator(model, JsonSchema({"type": "integer"})).parse("x"), Any)
    assert_type(Generator(model, {"type": "integer"}).parse("x"), Any)
    assert_type(Generator(model, Choice([1, 2])).parse("x"), int)
    assert_type(Generator(model, Choice(["a", "b"])).parse("x"), str)
    assert_type(Generator(model, ["a", "b"]).parse("x"), str)
    assert_type(Generator(model, ("a", "b")).parse("x"), str)
    assert_type(Generator(model, {1, 2}).parse("x"), int)
    assert_type(Generator(model, list(Colour)).parse("x"), Colour)
    assert_type(Generator(model, greet).parse("x"), Call)
    assert_type(Generator(model, [greet, pay]).parse("x"), Call)
    assert_type(Generator(model, Tagged("<a>", int, "</a>")).parse("x"), list[str | TaggedValue])
    assert_type(Generator(model, ToolCalls([greet])).parse("x"), list[str | Call])


def calls(model: TextModel) -> None:
    generator = Generator(model, Person)
    assert_type(generator("x"), str)
    assert_type(generator(["x", "y"]), list[str])
    assert_type(generator(CHAT), str)
    assert_type(generator([CHAT, CHAT]), list[str])
    assert_type(generator("x", n=2), list[Any])
    assert_type(generator(["x"], n=2), list[Any])
    assert_type(generator(["x"], return_errors=True), list[Any])
    assert_type(generator.parse(CHAT, max_new_tokens=9, seed=1, stop=["x"]), Person)
    assert_type(generator.parse(["x", "y"]), list[Person])
    assert_type(generator.parse("x", n=2), list[Any])
    assert_type(generator.parse(["x"], n=2), list[Any])
    assert_type(generator.parse(["x"], return_errors=True), list[Any])
    assert_type(generator.parse("x", n=2, return_errors=True), list[Any])
    assert_type(generator.parse(["x"], n=2, return_errors=True), list[Any])
    assert_type(generator.batch(["x", "y"]), list[Person])
    prompts: list[Prompt] = ["x", CHAT]
    assert_type(generator.batch(prompts), list[Person])
    assert_type(generator.batch(["x", "y"], n=2), list[Any])
    assert_type(generator.result("x"), GenerationResult[Person])
    assert_type(generator.result("x").value, Person)
    assert_type(generator.result(["x"])[0].value, Person)
    assert_type(generator.stream("x"), Stream[Person])
    assert_type(next(generator.stream("x")), Chunk)
    assert_type(generator.stream("x").result.value, Person)
    assert_type(generator.stream_values("x"), ValueStream[Person])
    for partial in generator.stream_values(CHAT, max_new_tokens=9):
        assert_type(partial, Partial[Person])
        assert_type(partial.value, Person)
        assert_type(partial.done("name"), bool)


def short_forms(model: TextModel) -> None:
    assert_type(model("x"), str)
    assert_type(model("x", Person), Person)
    assert_type(model(CHAT, Answer, temperature=0.5, whitespace="compact"), Literal["yes", "no"])
    assert_type(model("x", Regex("a")), str)
    assert_type(model("x", ["a", "b"]), str)
    assert_type(model("x", greet), Call)
    assert_type(model.stream("x", list[int]), Stream[list[int]])
    assert_type(model.stream("x"), Stream[Any])
    assert_type(model.stream("x", None), Stream[Any])
    assert_type(model.stream_values("x", Person), ValueStream[Person])
    assert_type(model.stream_values("x", ["a", "b"]), ValueStream[Any])
    assert_type(model.stream("x", Regex("a")), Stream[str])
    assert_type(model.stream_values("x"), ValueStream[Any])
    assert_type(model.stream_values("x", None), ValueStream[Any])
    assert_type(model.stream("x", greet), Stream[Any])
    assert_type(model.stream("x", [greet]), Stream[Any])
    assert_type(structgen.generate("x"), str)
    assert_type(structgen.generate("x", Person), Person)
    assert_type(structgen.generate("x", Literal["a", "b"]), Literal["a", "b"])
    assert_type(structgen.generate("x", JsonSchema(True)), Any)


def constraints(model: TextModel, vocabulary: Vocabulary) -> None:
    constraint = structgen.compile(list[int], vocabulary, spelling="any")
    assert_type(constraint, Constraint[list[int]])
    assert_type(constraint.output.parse("[1]"), list[int])
    assert_type(Generator(model, constraint).parse("x"), list[int])


def passed_on(model: TextModel, output_type: type[T], form: TypeForm[T]) -> Sequence[T]:
    return [Generator(model, output_type).parse("x"), model("x", form)]


def wider(model: TextModel) -> None:
    _narrow: Generator[bool] = Generator(model, bool)
    _wide: Generator[int] = _narrow
    _any: Generator = Generator(model, JsonSchema(True))


class Elsewhere:
    """An asynchronous model."""

    def make_generator(self, output_type: Any, **options: Any) -> AsyncTypedGenerator[Any]:
        raise NotImplementedError


class Remote:
    """A model that makes its own kind of generator."""

    def make_generator(self, output_type: Any, **options: Any) -> Generator[Any]:
        raise NotImplementedError


def mistakes(model: TextModel) -> None:
    Generator(model, Person, indent="2")  # type: ignore[call-overload]  # pyright: ignore
    Generator(model, int, whitespaces="compact")  # type: ignore[call-overload]  # pyright: ignore
    Generator(model, int, property_order="some")  # type: ignore[call-overload]  # pyright: ignore
    Generator(model, int).parse("x", max_tokens=3)  # type: ignore[call-overload]  # pyright: ignore
    Generator(model, int).parse("x", seed="3")  # type: ignore[call-overload]  # pyright: ignore
    Generator(model, 3)  # type: ignore[call-overload]  # pyright: ignore
    Generator("model", int)  # type: ignore[call-overload]  # pyright: ignore


async def other_models() -> None:
    assert_type(Generator(Elsewhere(), Person), AsyncTypedGenerator[Person])
    assert_type(await Generator(Elsewhere(), Answer).parse("x"), Literal["yes", "no"])
    assert_type(await Generator(Elsewhere()).batch(["x"]), list[str])
    assert_type(await Generator(Elsewhere(), [greet, pay]).parse("x"), Call)
    assert_type((await Generator(Elsewhere(), ["a", "b"]).result("x")).value, str)
    async with Generator(Elsewhere(), Person).stream("x", max_new_tokens=5) as stream:
        async for chunk in stream:
            assert_type(chunk, Chunk)
        assert_type(stream.result.value, Person)
    async for partial in Generator(Elsewhere(), Person).stream_values("x"):
        assert_type(partial, Partial[Person])
    assert_type(Generator(Remote(), Person | Point).parse("x"), Person | Point)


def decisions(decider: Decider) -> None:
    assert_type(decider.decide("x", Person), Answers[Person])
    assert_type(decider.decide("x", Person).value, Person)
    assert_type(decider.decide("x", {"q": Predicate("so?")}), Answers[Any])
    assert_type(decider.decide_batch(["x"], Person), list[Answers[Person]])
    mixed = {"p": Predicate("so?"), "s": Score("much?", ["no", "yes"])}
    assert_type(decider.decide("x", mixed), Answers[Any])
    decider.decide("x", {"q": 1})  # type: ignore[dict-item] # pyright: ignore
    decider.decide("x", Person, debias="none")  # type: ignore[arg-type] # pyright: ignore
