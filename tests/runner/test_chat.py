"""Chats and completions on the real default model: forms, streams, tools, options, errors."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any, Literal

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, Field, field_validator

from structgen import RequestError, Runner
from structgen.errors import ModelNotFound, UnenforcedWarning
from structgen.workers import STRANGER, Stranger


class Person(BaseModel):
    name: str
    age: int


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def told(runner: Runner, **fields: Any) -> tuple[str, list[dict[str, str]], str | None]:
    """A streamed answer put together as a client does: content, calls, and why it ended."""
    content, calls, reason = "", [], None
    for chunk in runner.stream_chat(**fields):
        ChatCompletionChunk.model_validate(chunk.model_dump(mode="json"), strict=True)
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                if call.index == len(calls):
                    assert call.id
                    assert call.type == "function"
                    assert call.function.name
                    calls.append({"name": call.function.name, "arguments": ""})
                else:
                    assert call.id is call.function.name is None
                calls[call.index]["arguments"] += call.function.arguments
            if choice.finish_reason is not None:
                assert reason is None
                reason = choice.finish_reason
    return content, calls, reason


def test_an_answer_of_a_type(runner: Runner) -> None:
    answer = runner.chat(
        messages="Kim is 7 years old. Who is it?", output_type=Person, max_tokens=40
    )
    assert isinstance(answer.value, Person)
    assert Person.model_validate_json(answer.text) == answer.value
    wire = answer.model_dump(mode="json")
    assert json.loads(answer.model_dump_json()) == wire
    parsed = ChatCompletion.model_validate(wire, strict=True)
    assert parsed.choices[0].message.content == answer.text
    assert wire["choices"][0]["message"]["refusal"] is None
    assert "tool_calls" not in wire["choices"][0]["message"]
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens_details.forced_tokens > 0
    assert usage.time_to_first_token is not None


def test_several_answers_of_a_grammar_with_temperatures_are_several(runner: Runner) -> None:
    text = '%llguidance {}\nstart: w "."\nw[max_tokens=9, temperature=3.0]: /[a-z ]+/'
    asked = {"messages": "Say something.", "grammar": text, "grammar_type": "lark", "n": 3}
    answers = [
        [one.message.content for one in runner.chat(**asked, seed=7).choices] for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert len({*answers[0]}) > 1


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": form(SCHEMA)},
        {"response_format": form({"type": "array", "items": {"type": "integer"}, "maxItems": 3})},
        {"response_format": form({"enum": ["red", 3, None]})},
        {"response_format": {"type": "json_object"}},
        {"grammar": "[a-z]{3}-[0-9]{2}", "grammar_type": "regex"},
        {"grammar": 'start: "a" start "b" | "c"', "grammar_type": "lark"},
        {"grammar": 'root ::= "yes" | "no"', "grammar_type": "gbnf"},
        {
            "grammar": '%llguidance {}\nstart: w "."\nw[max_tokens=3]: /[a-z ]+/',
            "grammar_type": "lark",
        },
        {"grammar": ["left", "right"], "grammar_type": "choice"},
        {"grammar": json.dumps(SCHEMA), "grammar_type": "json_schema"},
        {"output_type": Literal["up", "down"]},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_every_way_to_ask_for_a_form_is_kept_and_streams_the_same(
    runner: Runner, fields: dict[str, Any]
) -> None:
    asked = {"messages": "Say something.", "max_tokens": 40, "temperature": 0, **fields}
    answer = runner.chat(**asked)
    assert told(runner, **asked)[0] == answer.text
    value = answer.value
    if "response_format" in fields or fields.get("grammar_type") == "json_schema":
        assert json.loads(answer.text) == value
    assert answer.choices[0].finish_reason == "stop"


def test_calls_of_tools(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "messages": "What is the weather in Paris?",
        "tools": [weather],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 60,
        "temperature": 0,
    }
    answer = runner.chat(asked)
    choice = answer.choices[0]
    (call,) = choice.message.tool_calls or []
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert call.function.name == "weather"
    assert set(json.loads(call.function.arguments)) == {"city"}
    assert answer.value[0].call() == weather(**json.loads(call.function.arguments))
    ChatCompletion.model_validate(answer.model_dump(mode="json"), strict=True)
    content, calls, reason = told(runner, **asked)
    assert (content, reason) == ("", "tool_calls")
    assert calls == [call.function.model_dump()]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [{"role": "user", "content": asked["messages"]}, choice.message.model_dump(), result]
    assert runner.chat(messages=messages, tools=[weather], max_tokens=30).choices


def test_named_tools_and_their_schemas(runner: Runner) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in (("add", SCHEMA), ("nothing", None))
    ]
    for name in ("add", "nothing"):
        answer = runner.chat(
            messages="Call it.",
            tools=tools,
            tool_choice={"type": "function", "function": {"name": name}},
            parallel_tool_calls=False,
            max_tokens=80,
        )
        (call,) = answer.choices[0].message.tool_calls or []
        assert call.function.name == name
        expected = {"name", "age"} if name == "add" else set()
        assert set(json.loads(call.function.arguments)) == expected


def test_tools_that_need_not_be_called(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "messages": "Say hello.",
        "tools": [weather],
        "max_tokens": 30,
        "temperature": 0,
    }
    answer = runner.chat(asked)
    message = answer.choices[0].message
    content, calls, reason = told(runner, **asked)
    assert content == (message.content or "")
    assert calls == [call.function.model_dump() for call in message.tool_calls or []]
    assert reason == answer.choices[0].finish_reason
    assert runner.chat({**asked, "tool_choice": "none"}).choices[0].message.tool_calls is None


def test_several_outputs(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "messages": "Name an animal.",
        "n": 3,
        "temperature": 1.0,
        "seed": 5,
        "max_tokens": 6,
    }
    texts = [choice.message.content for choice in runner.chat(asked).choices]
    assert texts == [choice.message.content for choice in runner.chat(asked).choices]
    assert len(set(texts)) > 1
    streamed = ["", "", ""]
    for chunk in runner.stream_chat(asked):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts
    greedy = runner.chat({**asked, "temperature": 0, "seed": None})
    first, *others = (choice.message.content for choice in greedy.choices)
    assert others == [first, first]


def test_log_probabilities(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "messages": "Name a colour.",
        "logprobs": True,
        "top_logprobs": 3,
        "max_tokens": 5,
        "temperature": 0,
    }
    answer = runner.chat(asked)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    content = logprobs.content or []
    assert "".join(one.token for one in content) == answer.text
    assert all(len(one.top_logprobs) == 3 for one in content)
    assert all(one.top_logprobs[0].token == one.token for one in content)
    choices = [choice for chunk in runner.stream_chat(asked) for choice in chunk.choices]
    told = [(one.delta.content, one.logprobs.content) for one in choices if one.logprobs]
    assert [one for _, some in told for one in some] == content
    assert len(told) == 5
    assert all("".join(one.token for one in some) == text for text, some in told)


@pytest.mark.parametrize(
    "fields",
    [
        {"output_type": Person, "max_tokens": 40},
        {"output_type": Person, "max_tokens": 40, "retries": 2},
        {"grammar": ["naïve 😀 one", "naïve 😀 two"], "grammar_type": "choice"},
        {"tools": [weather], "tool_choice": "required", "max_tokens": 60},
        {"messages": "Write emoji.", "max_tokens": 24, "temperature": 1.9, "seed": 3},
        {"max_tokens": 24, "stop": ["er t", "zzz", "e"], "messages": "Tell me of the sea."},
        {"n": 2, "temperature": 1.0, "seed": 3, "max_tokens": 6},
        {"n": 2, "max_tokens": 6, "trace": True},
        {"enable_thinking": True, "max_tokens": 24},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_log_probabilities_come_with_the_text_that_they_belong_to(
    runner: Runner, fields: dict[str, Any]
) -> None:
    asked = {"messages": "Who?", "temperature": 0, "logprobs": True, "top_logprobs": 2, **fields}
    whole = runner.chat(asked)
    found: dict[int, list[Any]] = {choice.index: [] for choice in whole.choices}
    texts = dict.fromkeys(found, b"")
    for chunk in runner.stream_chat(asked):
        ChatCompletionChunk.model_validate(chunk.model_dump(mode="json"), strict=True)
        for choice in chunk.choices:
            found[choice.index] += (choice.logprobs and choice.logprobs.content) or []
            texts[choice.index] += (choice.delta.content or "").encode()
            told = b"".join(bytes(one.bytes or ()) for one in found[choice.index])
            if "tools" in fields:
                continue
            if choice.finish_reason is None:  # neither early nor late by more than one token
                longest = max((len(one.bytes or ()) for one in found[choice.index]), default=0)
                text = texts[choice.index]
                assert text.startswith(told) or ("stop" in fields and told.startswith(text))
                assert abs(len(text) - len(told)) <= longest + 8
            else:
                assert told.startswith(texts[choice.index])
    assert found == {
        choice.index: (choice.logprobs and choice.logprobs.content) for choice in whole.choices
    }


def test_stop_and_length(runner: Runner) -> None:
    asked: dict[str, Any] = {"messages": "Count to ten.", "temperature": 0, "max_tokens": 12}
    whole = runner.chat(asked)
    assert whole.choices[0].finish_reason == "length"
    stop = whole.text[6:9]
    cut = runner.chat({**asked, "stop": [stop]})
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_the_usage_of_a_stream(runner: Runner) -> None:
    asked: dict[str, Any] = {"messages": "Hi", "max_tokens": 4, "temperature": 0}
    *chunks, last = runner.stream_chat(asked, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks)
    assert "usage" not in chunks[0].model_dump()
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "prompt": ["The capital of France is", "Two and two is"],
        "max_tokens": 4,
        "temperature": 0,
        "logprobs": 2,
        "echo": True,
    }
    answer = runner.complete(asked)
    Completion.model_validate(answer.model_dump(mode="json"), strict=True)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for prompt, choice in zip(asked["prompt"], answer.choices, strict=True):
        assert choice.text.startswith(prompt)
        assert choice.logprobs is not None
        assert prompt + "".join(choice.logprobs.tokens) == choice.text
        assert choice.logprobs.text_offset[0] == len(prompt)
    texts = ["", ""]
    told: list[list[Any]] = [[], []]
    for chunk in runner.stream_complete(asked):
        for part in chunk.choices:
            texts[part.index] += part.text
            if part.logprobs is not None:
                told[part.index].append(part.logprobs)
                at = part.logprobs.text_offset[0]
                assert texts[part.index][at:] == "".join(part.logprobs.tokens)
    assert texts == [choice.text for choice in answer.choices]
    for choice, parts in zip(answer.choices, told, strict=True):
        assert len(parts) == 4
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            together = [one for part in parts for one in getattr(part, name)]
            assert together == getattr(choice.logprobs, name)
    number = runner.complete(prompt="2 + 2 =", output_type=int, max_tokens=4)
    assert isinstance(number.value, int)


def test_prompts_in_tokens(runner: Runner) -> None:
    text = "The capital of France is"
    tokens = runner.tokenize_text(text)
    assert runner.detokenize_text(tokens) == text
    options: dict[str, Any] = {"max_tokens": 4, "temperature": 0}
    expected = runner.complete(prompt=text, **options)
    for prompt in (tokens, [tokens]):
        made = runner.complete(prompt=prompt, **options)
        assert made.text == expected.text
        assert made.usage.prompt_tokens == len(tokens)
    # As they are: spelt in single bytes the same text is another prompt, and counts as such.
    letters = [runner.tokenize_text(letter)[0] for letter in text]
    several = runner.complete(prompt=[letters, text, tokens], n=2, echo=True, **options)
    assert several.usage.prompt_tokens == len(letters) + 2 * len(tokens)
    assert [choice.text for choice in several.choices[2:]] == [text + expected.text] * 4
    assert all(choice.text.startswith(text) for choice in several.choices)
    texts = [""] * 6
    for chunk in runner.stream_complete(prompt=[letters, text, tokens], n=2, echo=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in several.choices]
    special = runner.tokenize_text("<|im_start|>user")
    assert runner.complete(prompt=special, echo=True, **options).text.startswith("<|im_start|>user")
    form = {"grammar": ["Paris", "Rome"], "grammar_type": "choice"}
    assert runner.complete(prompt=tokens, **form).text in form["grammar"]
    long = tokens * 2000
    cut = runner.complete(prompt=long, max_tokens=8000, truncate_sequence=True, **form)
    assert cut.usage.prompt_tokens == 192


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        (3, "prompt"),
        ([[]], "prompt[0]"),
        (["a", ""], "prompt[1]"),
        ([True], "prompt[0]"),
        ([1, "a"], "prompt[0]"),
        ([[1], [-1]], "prompt[1]"),
        ([49152], "prompt[0]"),
        ([[1, 2.0]], "prompt[0]"),
    ],
)
def test_prompts_that_are_none(runner: Runner, prompt: Any, param: str) -> None:
    for call in (runner.complete, lambda **fields: list(runner.stream_complete(**fields))):
        with pytest.raises(RequestError) as caught:
            call(prompt=prompt, max_tokens=1)
        assert caught.value.param == param


def test_in_any_event_loop(runner: Runner) -> None:
    async def asked() -> None:
        answers = await asyncio.gather(
            *(
                runner.achat(messages="Which?", output_type=Literal[f"a{i}", f"b{i}"])
                for i in range(4)
            )
        )
        assert [answer.text[1:] for answer in answers] == ["0", "1", "2", "3"]
        # A sync call holds up this loop, but not the Runner.
        assert runner.chat(messages="Hi", max_tokens=2).choices
        text = ""
        async with runner.astream_chat(messages="Hi", max_tokens=3, temperature=0) as stream:
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        assert text == (await runner.achat(messages="Hi", max_tokens=3, temperature=0)).text

    asyncio.run(asked())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": form({"type": "object", "properties": {"x": {"type": "wat"}}})},
            "response_format.json_schema.schema.properties.x.type",
        ),
        (
            {
                "tools": [
                    weather,
                    {
                        "type": "function",
                        "function": {
                            "name": "g",
                            "parameters": {"type": "object", "properties": {"y": {"minimum": "a"}}},
                        },
                    },
                ]
            },
            "tools[1].function.parameters.properties.y.minimum",
        ),
        ({"grammar": 'start: "a', "grammar_type": "lark"}, "grammar"),
        (
            {"grammar": {"properties": {"a": 3}}, "grammar_type": "json_schema"},
            "grammar.properties.a",
        ),
        ({"max_tokens": 1_000_000}, "max_tokens"),
        ({"adapter": "nobody"}, "adapter"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_errors_name_the_place_in_the_request(
    runner: Runner, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        runner.chat(messages="Hi", **fields)
    assert caught.value.param == param
    with pytest.raises(RequestError) as caught:
        list(runner.stream_chat(messages="Hi", **fields))
    assert caught.value.param == param


def test_models_by_id_and_alias(runner: Runner) -> None:
    assert runner.chat(messages="Hi", max_tokens=1, model="default").model == "small"
    with pytest.raises(ModelNotFound, match="nobody"):
        runner.chat(messages="Hi", model="nobody")
    with pytest.raises(ModelNotFound, match="nobody"):
        runner.stream_chat(messages="Hi", model="nobody")


def test_a_prompt_that_is_too_long(runner: Runner) -> None:
    messages = [
        {"role": "system", "content": "Answer with a word."},
        *({"role": "user", "content": f"Question {i}: {'word ' * 900}"} for i in range(10)),
        {"role": "user", "content": "What is the capital of France?"},
    ]
    with pytest.raises(Exception, match="8,192"):
        runner.chat(messages=messages, max_tokens=5)
    answer = runner.chat(messages=messages[:1] + messages[-1:], max_tokens=5, temperature=0)
    cut = runner.chat(messages=messages, max_tokens=7200, truncate_sequence=True, output_type=bool)
    assert cut.usage.prompt_tokens <= 8192 - 7200
    assert answer.text


def test_calls_or_a_value_of_a_type(runner: Runner) -> None:
    """Tools beside a form: what is no call is of that form, streamed or not."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    seen = set()
    for seed in range(6):
        asked: dict[str, Any] = {
            "messages": "Kim is 7 years old.",
            "tools": tools,
            "response_format": form(SCHEMA),
            "temperature": 1.5,
            "seed": seed,
            "max_tokens": 90,
        }
        answer = runner.chat(asked)
        message = answer.choices[0].message
        content, calls, reason = told(runner, **asked)
        assert reason == answer.choices[0].finish_reason
        assert content == (message.content or "")
        assert calls == [call.function.model_dump() for call in message.tool_calls or []]
        seen.add(reason)
        if reason == "stop":
            assert json.loads(content) == answer.value
            assert set(answer.value) == {"name", "age"}
        else:
            assert not content
            assert all(set(json.loads(call["arguments"])) == {"name", "age"} for call in calls)
    with pytest.raises(RequestError) as caught:
        runner.chat(
            messages="Hi", tools=tools, response_format=form({"properties": {"x": {"type": "wat"}}})
        )
    assert caught.value.param == "response_format.json_schema.schema.properties.x.type"


class Even(BaseModel):
    n: int = Field(ge=0, le=9)

    @field_validator("n")
    @classmethod
    def is_even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


def test_checks_of_a_class_are_asked_where_the_request_is(runner: Runner) -> None:
    values = [
        runner.chat(
            messages="Write 7.", output_type=Even, retries=9, temperature=1.0, seed=seed
        ).value
        for seed in range(4)
    ]
    assert all(value.n % 2 == 0 for value in values)
    with pytest.raises(RequestError) as caught:
        runner.chat(messages="Hi", retries=3, max_tokens=3)
    assert caught.value.param == "retries"
    with pytest.raises(RequestError) as caught:  # an OptionError, which names no field
        list(runner.stream_chat(messages="Hi", output_type=Even, retries=3, stop="x"))
    assert caught.value.param == "stop"


def test_thoughts_stand_beside_the_answer(runner: Runner) -> None:
    asked: dict[str, Any] = {
        "messages": "Is water wet?",
        "output_type": Literal["yes", "no"],
        "thinking_budget": 30,
        "seed": 1,
    }
    answer = runner.chat(asked)
    message = answer.choices[0].message
    assert message.content in ("yes", "no")
    assert message.reasoning_content
    details = answer.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens <= 30
    assert answer.usage.completion_tokens > details.reasoning_tokens
    thought, text = "", ""
    for chunk in runner.stream_chat(asked):
        for choice in chunk.choices:
            thought += choice.delta.reasoning_content or ""
            text += choice.delta.content or ""
    assert (thought.strip(), text) == (message.reasoning_content, message.content)
    few: dict[str, Any] = {"enable_thinking": True, "max_tokens": 3}
    for fields, name in (({"thinking_budget": 2}, "thinking_budget"), (few, "enable_thinking")):
        with pytest.raises(RequestError, match=f"to think: {name}= allows 2 tokens") as caught:
            runner.chat({**asked, "thinking_budget": None, **fields})
        assert caught.value.param == name
    short = runner.chat({**asked, "thinking_budget": None, "enable_thinking": False})
    assert short.choices[0].message.reasoning_content is None


def test_a_trace_in_pieces_is_the_whole_one(runner: Runner) -> None:
    fields: dict[str, Any] = {
        "messages": "Invent a person.",
        "response_format": form(SCHEMA),
        "max_tokens": 40,
        "trace": True,
        "temperature": 0.8,
        "seed": 3,
        "n": 2,
    }
    whole = runner.chat(**fields)
    steps: list[dict[int, Any]] = [{}, {}]
    for chunk in runner.stream_chat(**fields):
        for choice in chunk.choices:
            steps[choice.index] |= {step.index: step for step in choice.trace or ()}
    for choice, known in zip(whole.choices, steps, strict=True):
        assert choice.trace is not None
        assert [known[i].token_id for i in range(len(known))] == [s.token_id for s in choice.trace]
        text = b"".join(bytes(step.bytes) for step in choice.trace)
        assert text.decode() == choice.message.content
        ids = [step.token_id for step in choice.trace]
        reason = runner.explain(
            response_format=fields["response_format"],
            max_tokens=40,
            before=ids[:1],
            token="!",
            chosen=ids[1],
        )
        assert reason.startswith("'!' was not allowed at $")
    with pytest.raises(RequestError, match="trace") as caught:
        runner.complete(prompt="a", trace=True)
    assert caught.value.param == "trace"


def counted_weather(city: Literal["Rome", "Oslo"]) -> str:
    """Tell the weather of a city."""
    return city


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"output_type": Literal["yes", "no"]},
        {"tools": [counted_weather], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [counted_weather], "output_type": Literal["yes", "no"]},
        {"thinking_budget": 20, "output_type": Literal["yes", "no"]},
        {"enable_thinking": False},
    ],
    ids=["text", "a type", "tools", "tools and a type", "thoughts", "no thoughts"],
)
def test_the_tokens_of_a_prompt_are_those_that_the_answer_reports(
    runner: Runner, fields: dict[str, Any]
) -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello 🎉"}]
    counted = runner.count_tokens(messages=messages, **fields)
    made = runner.chat(messages=messages, **({"max_tokens": 40} | fields))
    assert counted == made.usage.prompt_tokens


def test_tokens_of_a_session_are_not_counted(runner: Runner) -> None:
    with pytest.raises(RequestError, match="session_id"):
        runner.count_tokens(messages="Hello", session_id="one")


def test_only_the_program_is_warned_of_what_a_schema_leaves_out(runner: Runner) -> None:
    pattern = {"type": "string", "pattern": r"^(.)\1$", "x-guidance": {"lenient": True}}
    asked: Any = {"messages": "Two letters?", "response_format": form(pattern), "max_tokens": 2}
    before = STRANGER.set(Stranger("evil"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runner.chat(**asked)
    finally:
        STRANGER.reset(before)
    with pytest.warns(UnenforcedWarning, match="backreference"):
        runner.chat(**asked)
