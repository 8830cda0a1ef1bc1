"""``/v1/chat/completions`` and ``/v1/completions``, asked by the official client."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema
import openai
import pytest
from inside import arguments_asked
from one_server import KEY, Served
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel, Field
from rounding import COUNTING, COUNTING_CHAT, near_logprobs

ASK: Any = [{"role": "user", "content": "Tell me about a person."}]


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=150)
    mood: Literal["calm", "angry"]


def tool(name: str, strict: bool | None = None) -> ChatCompletionToolParam:
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
    }
    made: Any = {"name": name, "description": "Tells.", "parameters": parameters}
    if strict is not None:
        made["strict"] = strict
    return {"type": "function", "function": made}


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": "small", "messages": ASK, "temperature": 0, "max_tokens": 32}
    return client.chat.completions.create(**{**given, **fields})


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


# -- one row of the contract each: every one is run by one client, and all by eight at once -------

ROWS: list[Callable[[openai.OpenAI], None]] = []


def row(check: Callable[[openai.OpenAI], None]) -> Callable[[openai.OpenAI], None]:
    ROWS.append(check)
    return check


@row
def a_text(client: openai.OpenAI) -> None:
    made = chat(client, max_tokens=4)
    assert made.object == "chat.completion"
    assert made.id.startswith("chatcmpl-")
    assert made.model == "small"
    (choice,) = made.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.message.refusal is None
    assert choice.finish_reason == "length"
    assert made.usage.completion_tokens == 4
    assert made.usage.total_tokens == made.usage.prompt_tokens + 4
    assert made._request_id.startswith("req_")
    assert made.system_fingerprint.startswith("fp_")


@row
def an_alias(client: openai.OpenAI) -> None:
    assert chat(client, model="gpt-4o", max_tokens=2).model == "small"


@row
def roots_of_any_kind(client: openai.OpenAI) -> None:
    for schema in (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
        {"enum": ["yes", "no"]},
        {"type": "integer", "minimum": 10, "maximum": 99},
        {"anyOf": [{"const": 1}, {"const": "a"}]},
        True,
        {"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}},
    ):
        (choice,) = chat(client, response_format=json_schema(schema)).choices
        jsonschema.validate(json.loads(choice.message.content), schema)
        assert choice.finish_reason == "stop"


@row
def any_object(client: openai.OpenAI) -> None:
    (choice,) = chat(client, response_format={"type": "json_object"}).choices
    assert isinstance(json.loads(choice.message.content), dict)
    assert choice.finish_reason == "stop"


@row
def plain_text_by_name(client: openai.OpenAI) -> None:
    assert chat(client, response_format={"type": "text"}, max_tokens=2).choices[0].message.content


@row
def an_instance(client: openai.OpenAI) -> None:
    made = client.chat.completions.parse(
        model="small", messages=ASK, response_format=Person, temperature=0
    )
    assert isinstance(made.choices[0].message.parsed, Person)


@row
def a_stream(client: openai.OpenAI) -> None:
    whole = chat(client, messages=COUNTING_CHAT).choices[0]
    chunks = list(chat(client, messages=COUNTING_CHAT, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [
        whole.finish_reason
    ]
    assert len({(c.id, c.system_fingerprint) for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)


@row
def a_stream_with_usage(client: openai.OpenAI) -> None:
    *chunks, last = chat(client, stream=True, max_tokens=3, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == 3
    assert all(c.usage is None for c in chunks)


@row
def a_stream_of_an_instance(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="small", messages=ASK, response_format=Person, temperature=0
    ) as stream:
        kinds = {event.type for event in stream}
        made = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert isinstance(made.choices[0].message.parsed, Person)


@row
def calls(client: openai.OpenAI) -> None:
    tools = [tool("weather"), tool("time", strict=True)]
    named = {"type": "function", "function": {"name": "time"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    for choice, names in (
        ("required", {"weather", "time"}),
        (named, {"time"}),
        (allowed, {"time"}),
    ):
        (made,) = chat(
            client, tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=64
        ).choices
        assert made.finish_reason == "tool_calls"
        (call,) = made.message.tool_calls
        assert call.type == "function"
        assert call.id
        assert call.function.name in names
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")


@row
def calls_if_the_model_wants(client: openai.OpenAI) -> None:
    tools = [tool("weather")]
    for fields in (
        {"tool_choice": "auto"},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "weather"}}]}}},
        {"response_format": json_schema({"enum": ["yes", "no"]})},
    ):  # fmt: skip
        (made,) = chat(client, tools=tools, max_tokens=40, **fields).choices
        for call in made.message.tool_calls or ():
            assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
        chunks = list(chat(client, tools=tools, max_tokens=40, stream=True, **fields))
        pieces = [chunk.choices[0] for chunk in chunks]
        # Which of two near ties is written may differ: the second call reads less of its prompt.
        for text, calls, reason in (
            (made.message.content, made.message.tool_calls, made.finish_reason),
            (
                "".join(piece.delta.content or "" for piece in pieces),
                [call for piece in pieces for call in piece.delta.tool_calls or ()],
                pieces[-1].finish_reason,
            ),
        ):
            if calls:
                assert reason == "tool_calls"
                continue
            assert reason in ("stop", "length")
            assert text
            if "response_format" in fields:
                assert json.loads(text) in ("yes", "no")


@row
def no_calls(client: openai.OpenAI) -> None:
    (made,) = chat(client, tools=[tool("weather")], tool_choice="none", max_tokens=4).choices
    assert made.message.tool_calls is None
    assert made.message.content


@row
def calls_as_instances(client: openai.OpenAI) -> None:
    made = client.chat.completions.parse(
        model="small",
        messages=ASK,
        tools=[openai.pydantic_function_tool(Person)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    calls = made.choices[0].message.tool_calls
    assert calls is not None
    assert isinstance(calls[0].function.parsed_arguments, Person)


@row
def a_stream_of_calls(client: openai.OpenAI) -> None:
    deltas = [
        piece
        for chunk in chat(
            client,
            tools=[tool("weather"), tool("time")],
            tool_choice="required",
            parallel_tool_calls=False,
            stream=True,
            max_tokens=64,
        )
        for piece in chunk.choices[0].delta.tool_calls or ()
    ]
    first, *others = deltas
    assert first.index == 0
    assert first.id
    assert first.function.name in ("weather", "time")
    assert all(one.id is None and one.function.name is None for one in others)
    arguments = "".join(one.function.arguments or "" for one in deltas)
    assert json.loads(arguments)["city"] in ("Oslo", "Rome")


@row
def the_result_of_a_call(client: openai.OpenAI) -> None:
    told = [
        *ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "abc",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "abc", "content": "Rain."},
    ]
    made = chat(client, messages=told, tools=[tool("weather")], tool_choice="none", max_tokens=4)
    assert made.choices[0].message.content


@row
def several_outputs(client: openai.OpenAI) -> None:
    made = chat(client, n=3, temperature=1.5, max_tokens=6, seed=3)
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in made.choices}) > 1
    assert made.usage.completion_tokens <= 18


@row
def the_same_seed(client: openai.OpenAI) -> None:
    # With these seeds each token wins by 3 and more in scores, so that rounding changes none.
    made = [chat(client, temperature=1.5, max_tokens=3, seed=seed) for seed in (152, 152, 158)]
    assert len({one.choices[0].message.content for one in made}) == 2
    assert len({one.system_fingerprint for one in made}) == 1


@row
def probabilities(client: openai.OpenAI) -> None:
    asked: Any = {"messages": COUNTING_CHAT, "logprobs": True, "top_logprobs": 2, "max_tokens": 4}
    made = chat(client, **asked)
    tokens = made.choices[0].logprobs.content
    assert len(tokens) == 4
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 2
        assert bytes(token.bytes).decode() == token.token
    assert "".join(token.token for token in tokens) == made.choices[0].message.content
    told = []
    for chunk in chat(client, stream=True, **asked):
        for choice in chunk.choices:
            if choice.logprobs is not None:
                told.append(choice.logprobs.content)
                assert "".join(one.token for one in told[-1]) == choice.delta.content
    assert len(told) > 1
    together = [one for some in told for one in some]
    assert [one.token for one in together] == [one.token for one in tokens]
    # Not equal: each request may run in another batch.
    assert near_logprobs((one.logprob for one in together), (one.logprob for one in tokens))


@row
def a_stop(client: openai.OpenAI) -> None:
    whole = chat(client, messages=COUNTING_CHAT).choices[0].message.content
    stop = whole.split()[1]
    made = chat(client, messages=COUNTING_CHAT, stop=[stop]).choices[0]
    assert made.finish_reason == "stop"
    assert stop not in made.message.content


@row
def thinking(client: openai.OpenAI) -> None:
    made = chat(client, reasoning_effort="minimal", response_format=json_schema({"enum": ["a"]}))
    assert made.choices[0].message.content == '"a"'
    assert made.choices[0].message.reasoning_content
    assert made.usage.completion_tokens_details.reasoning_tokens > 0


@row
def what_vllm_has(client: openai.OpenAI) -> None:
    for form, expected in (
        ({"structured_outputs": {"choice": ["red", "blue"]}}, ("red", "blue")),
        ({"structured_outputs": {"regex": "[ab]c"}}, ("ac", "bc")),
        ({"structured_outputs": {"json": {"enum": ["x"]}}}, ('"x"',)),
        ({"structured_outputs": {"json": '{"enum": ["x"]}'}}, ('"x"',)),
        ({"structured_outputs": {"grammar": 'start: "y"'}}, ("y",)),
        ({"structured_outputs": {"grammar": 'root ::= "z"'}}, ("z",)),
        ({"structured_outputs": {"grammar": 'start: "a ::= b"'}}, ("a ::= b",)),
        ({"guided_choice": ["red"]}, ("red",)),
        ({"grammar": "[0-9]", "grammar_type": "regex"}, tuple("0123456789")),
        ({"top_k": 5, "repetition_penalty": 1.1, "min_p": 0.0, "guided_regex": "w"}, ("w",)),
    ):
        assert chat(client, extra_body=form).choices[0].message.content in expected


@row
def penalties(client: openai.OpenAI) -> None:
    form: Any = {"extra_body": {"grammar": "[0-9]{9}", "grammar_type": "regex"}}
    digits = []
    for penalty in (-2, 2):
        made = chat(client, frequency_penalty=penalty, presence_penalty=penalty, **form)
        digits.append(len(set(made.choices[0].message.content)))
    assert digits[0] < digits[1]
    free: Any = {"messages": COUNTING_CHAT, "temperature": 1.9, "max_tokens": 8}
    greedy = chat(client, messages=COUNTING_CHAT, max_tokens=8).choices[0].message.content
    sure = chat(client, seed=1, extra_body={"min_p": 1.0}, **free).choices[0].message.content
    assert sure == greedy


@row
def what_changes_nothing(client: openai.OpenAI) -> None:
    chat(
        client,
        max_tokens=2,
        user="me",
        metadata={"a": "b"},
        store=True,
        service_tier="auto",
        safety_identifier="x",
        prompt_cache_key="y",
        frequency_penalty=0,
        presence_penalty=0,
    )


@row
def a_completion(client: openai.OpenAI) -> None:
    made = client.completions.create(
        model="small", prompt=[COUNTING, "A"], max_tokens=3, temperature=0, logprobs=1
    )
    assert [choice.index for choice in made.choices] == [0, 1]
    assert made.object == "text_completion"
    logprobs = made.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == made.choices[0].text
    chunks = list(
        client.completions.create(
            model="small", prompt=COUNTING, max_tokens=3, temperature=0, stream=True, echo=True
        )
    )
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text == COUNTING + made.choices[0].text
    tokens = [1, 2, 3, 4]
    for prompt, n in ((tokens, 1), ([tokens, tokens], 2)):
        given = client.completions.create(model="small", prompt=prompt, max_tokens=2, temperature=0)
        assert len(given.choices) == n
        assert given.usage.prompt_tokens == n * 4
    told = [
        chunk.choices[0]
        for chunk in client.completions.create(
            model="small", prompt=COUNTING, max_tokens=3, temperature=0, stream=True, logprobs=1
        )
        if chunk.choices[0].logprobs is not None
    ]
    assert len(told) > 1
    together = {
        name: [one for part in told for one in getattr(part.logprobs, name)]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    for name in ("tokens", "text_offset"):
        assert together[name] == getattr(logprobs, name)
    # Not equal: each request may run in another batch.
    assert near_logprobs(together["token_logprobs"], logprobs.token_logprobs)
    assert list(map(list, together["top_logprobs"])) == list(map(list, logprobs.top_logprobs))


@row
def the_models(client: openai.OpenAI) -> None:
    assert "small" in [model.id for model in client.models.list()]
    for name in ("small", "gpt-4o"):
        model = client.models.retrieve(name)
        assert (model.id, model.object, model.owned_by) == ("small", "model", "structgen")


@pytest.mark.parametrize("check", ROWS, ids=lambda check: check.__name__)
def test_row(check: Callable[[openai.OpenAI], None], client: openai.OpenAI) -> None:
    check(client)


def test_arguments_have_the_members_that_tools_name(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = arguments_asked(monkeypatch)
    calls(client)
    assert len(found) == 5  # the last choice leaves one out
    assert all(one["additionalProperties"] is False for one in found)


def test_eight_clients_at_once(served: Served) -> None:
    def work(number: int) -> None:
        rows = ROWS[number::16]  # half of them: each has been asked alone above
        random.Random(number).shuffle(rows)
        with openai.OpenAI(base_url=f"{served.root}/v1", api_key=KEY, max_retries=0) as client:
            for check in rows:
                check(client)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_asynchronous_client(served: Served) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{served.root}/v1", api_key=KEY, max_retries=0
        ) as client:

            async def number(value: int) -> None:
                made = await client.chat.completions.create(
                    model="small", messages=ASK, response_format=json_schema({"const": value})
                )
                assert made.choices[0].message.content == str(value)

            async def streamed() -> None:
                text = ""
                stream = await client.chat.completions.create(
                    model="small",
                    messages=ASK,
                    stream=True,
                    response_format=json_schema({"enum": ["aa", "bb"]}),
                )
                async for chunk in stream:
                    text += chunk.choices[0].delta.content or ""
                assert text in ('"aa"', '"bb"')

            async def parsed() -> None:
                made = await client.chat.completions.parse(
                    model="small", messages=ASK, response_format=Person
                )
                assert isinstance(made.choices[0].message.parsed, Person)

            await asyncio.gather(*map(number, range(6)), streamed(), parsed())
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="none", messages=ASK)
            assert "small" in [model.id async for model in client.models.list()]

    asyncio.run(main())
