"""The whole way: our client, the wire, a server that runs the default model under our own masks."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

import structgen
from structgen import Cfg, Generator, Regex

from .chat_server import ChatServer, Enforcing


class City(BaseModel):
    name: Annotated[str, Field(max_length=10)]
    country: Literal["France", "Spain"]
    population: Annotated[int, Field(ge=0, le=99_999_999)] | None = None


@pytest.mark.parametrize("dialect", ["openai", "json-schema", "vllm", "sglang", "ollama"])
def test_a_real_model_answers_in_every_dialect(model: Any, dialect: Any) -> None:
    with (
        ChatServer(Enforcing(model)) as server,
        openai.OpenAI(base_url=server.url, api_key="x") as client,
    ):
        remote = structgen.from_openai(client, model.name, dialect=dialect)
        question = [{"role": "user", "content": "Paris is a city. Describe it."}]
        city = Generator(remote, City).parse(question, max_new_tokens=50)
        assert isinstance(city, City)
        assert Generator(remote, Literal["tea", "coffee"])("Tea?") in ("tea", "coffee")
        assert len(Generator(remote, Regex("[A-Z]{3}-[0-9]{2}"))("A number!")) == 6
        with Generator(remote, City).stream_values(question, max_new_tokens=50) as stream:
            last = list(stream)[-1]
        assert last.value == city


def test_a_grammar_is_enforced_where_it_can_be_said(model: Any) -> None:
    with (
        ChatServer(Enforcing(model)) as server,
        openai.OpenAI(base_url=server.url, api_key="x") as client,
    ):
        remote = structgen.from_openai(client, model.name, dialect="llama.cpp")
        sums = Cfg('root ::= number ("+" number){1,3}\nnumber ::= [0-9]{1,3}')
        result = Generator(remote, sums).result("Add!", max_new_tokens=30)
        assert result.enforcement is not None
        assert result.enforcement.server == ("$ grammar",)
        assert eval(result.text) >= 0
        told = json.dumps(server.requests)
        assert "root ::=" in told


def test_asynchronously(model: Any) -> None:
    async def main(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="x") as client:
            remote = structgen.from_openai(client, model.name, dialect="vllm")
            answers = await Generator(remote, bool).batch(["Is it?", "Is it not?"])
            assert all(isinstance(answer, bool) for answer in answers)

    with ChatServer(Enforcing(model)) as server:
        asyncio.run(main(server.url))
