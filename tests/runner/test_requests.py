"""Requests before any model: what is taken, and what is refused by its path."""

from __future__ import annotations

import asyncio
import json
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from pydantic import BaseModel

from structgen import OptionError, RequestError, Runner
from structgen.decisions import Predicate
from structgen.media import Image
from structgen.options import OPTIONS
from structgen.runner import vectors
from structgen.runner.constraints import wanted
from structgen.runner.hosts import EmbeddingHost
from structgen.runner.requests import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    RerankRequest,
)
from structgen.runner.work import EFFORTS, limits, search_of
from structgen.types import Choice, JsonSchema
from structgen.workers import STRANGER, Stranger

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def tool(name: str = "f", **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def refused(**fields: Any) -> RequestError:
    def read() -> None:
        request = ChatRequest.of({**HI, **fields}, {})
        search_of(request)
        limits(request, 1000)
        wanted(request)

    with pytest.raises(RequestError) as caught:
        read()
    return caught.value


PIXEL = np.zeros((1, 1), np.uint8)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"foo": 1}, "foo"),
    ({"seeds": 1}, "seeds"),
    ({"functions": []}, "functions"),
    ({"stream": True}, "stream"),
    ({"messages": []}, "messages"),
    ({"messages": 3}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].image_url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0].input_audio",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file"}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "system", "content": [Image(PIXEL)]}]}, "messages[0].content"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": "x", "a": 1}]}
            ]
        },
        "messages[0].content[0].image_url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "b": 1}]}]},
        "messages[0].content[0].b",
    ),
    ({"messages": [{"role": "user", "content": "x", "mood": "sad"}]}, "messages[0].mood"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": 101}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"frequency_penalty": "1"}, "frequency_penalty"),
    ({"logit_bias": {"x": 1}}, "logit_bias.x"),
    ({"logit_bias": {"3": 1e9}}, "logit_bias"),
    ({"seed": -1}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"stop": 3}, "stop"),
    ({"stop": ""}, "stop"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"store": True}, "store"),
    ({"verbosity": "low"}, "verbosity"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"enable_thinking": False, "reasoning_effort": "high"}, "reasoning_effort"),
    ({"thinking_budget": 0}, "thinking_budget"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"max_tokens": 1, "enable_thinking": True}, "max_tokens"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": 3}, "response_format"),
    ({"response_format": {"type": "json_object", "a": 1}}, "response_format.a"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
        "response_format.json_schema.schema",
    ),
    ({"grammar": "a"}, "grammar_type"),
    ({"grammar_type": "regex"}, "grammar_type"),
    ({"grammar": [], "grammar_type": "choice"}, "grammar"),
    ({"grammar": "x", "grammar_type": "choice"}, "grammar"),
    ({"grammar": 3, "grammar_type": "lark"}, "grammar"),
    ({"grammar": "{", "grammar_type": "json_schema"}, "grammar"),
    ({"grammar": "a", "grammar_type": "regex", "output_type": int}, "output_type"),
    ({"response_format": {"type": "json_object"}, "output_type": int}, "output_type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type"),
    ({"tools": [tool(), {"type": "function"}]}, "tools[1].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{**tool(), "x": 1}]}, "tools[0].x"),
    ({"tools": [tool()], "tool_choice": "maybe"}, "tool_choice"),
    ({"tools": [tool()], "tool_choice": {"type": "custom"}}, "tool_choice"),
    (
        {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice.function.name",
    ),
    (
        {"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        "tool_choice.allowed_tools.tools",
    ),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_told_with_its_path(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert param in str(error)


def test_a_message_that_names_its_field_is_not_told_with_its_path() -> None:
    with pytest.raises(RequestError, match=r"^temperature='hot' is not a number") as told:
        ChatRequest(messages=[{"role": "user", "content": "x"}], temperature="hot")
    assert told.value.param == "temperature"
    told = refused(response_format=3)
    assert str(told).startswith("response_format: 3 is not supported. Pass a class or")


def test_what_other_programs_call_it_is_told() -> None:
    assert "logprobs=true and top_logprobs=3" in str(refused(logprobs=3))
    of_responses = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    assert 'A chat tool is {"type": "function", "function": ' in str(refused(tools=[of_responses]))
    assert "tools=" in str(refused(functions=[]))
    assert "Did you mean seed?" in str(refused(seeds=1))


HARMLESS: dict[str, Any] = {
    "user": "me",
    "metadata": {"a": "b"},
    "safety_identifier": "x",
    "prompt_cache_key": "y",
    "service_tier": "auto",
    "store": False,
    "verbosity": "medium",
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "tools": [],
    "n": 1,
    "logprobs": False,
    "stop": None,
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_taken(name: str) -> None:
    request = ChatRequest.of({**HI, name: HARMLESS[name]}, {})
    assert search_of(request) == {}
    assert limits(request, 1000) == ({}, None)
    assert wanted(request).type is None


def test_every_option_of_the_loop_has_a_field_or_a_reason() -> None:
    """An option that the decode loop gets later is not forgotten here."""
    request = ChatRequest.of(
        {
            **HI,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "min_p": 0.1,
            "top_n_sigma": 1.5,
            "repetition_penalty": 1.1,
            "frequency_penalty": 0.5,
            "presence_penalty": -0.5,
            "no_repeat_ngram_size": 3,
            "logit_bias": {"5": 2},
            "stop": ["x"],
            "seed": 3,
            "adapter": "a",
            "timeout": 3.0,
            "special_tokens": "anywhere",
            "abstain_below": 0.5,
            "best": True,
            "speculate": False,
            "retries": 2,
            "logprobs": True,
            "top_logprobs": 2,
            "max_tokens": 7,
            "truncate_sequence": True,
        },
        {},
    )
    options = search_of(request) | limits(request, 1000)[0]
    assert options["speculate"] is False
    elsewhere = {
        "n": "a call for each",
        "max_length": "max_tokens counts the output only",
        "min_length": "an output type says how short a text may be",
        "do_sample": "temperature says it",
        "processor": "does not travel to the model's process",
        "trace": "the same",
        "forced": "changes no answer, only how fast it is there",
        "cancel": "cancel the task, or close the stream",
        "batch_size": "of the model's configuration",
        "quote_from": "an output type in a request leaves no document open",
        "return_errors": "a request is one call",
    }
    assert set(options) | set(elsewhere) == set(OPTIONS)
    assert not set(options) & set(elsewhere)


def test_a_request_is_itself_a_dict_or_its_fields() -> None:
    made = ChatRequest(messages="Hi", seed=3)
    assert ChatRequest.of(made, {}) is made
    assert ChatRequest.of(made, {"seed": 4}).seed == 4
    assert ChatRequest.of({"messages": "Hi"}, {"seed": 4}).seed == 4
    assert ChatRequest.of(None, {"messages": "Hi"}).messages[0].text == "Hi"
    with pytest.raises(RequestError, match="ChatRequest, a dict"):
        ChatRequest.of(3, {})
    with pytest.raises(RequestError, match=r"missing\. message is .*\. Did you mean messages\?"):
        ChatRequest.of(None, {"message": "Hi"})
    with pytest.raises(RequestError, match="prompt is missing"):
        CompletionRequest()
    with pytest.raises(RequestError, match=r"input is missing"):
        EmbeddingRequest()


def test_an_answer_goes_back_into_a_request() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        ],
    }
    result = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "7"}]}
    request = ChatRequest(messages=[*HI["messages"], message, result])
    told = [message.for_template() for message in request.messages]
    assert told[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert told[2] == {"role": "tool", "tool_call_id": "1", "content": "7"}
    # No prompt can hold a NUL, which a model may have written.
    message["tool_calls"][0]["function"]["arguments"] = r'{"a": "\u0000\\u0000\\\u0000"}'  # type: ignore[index]
    (said,) = ChatRequest(messages=[message]).messages
    arguments = said.for_template()["tool_calls"][0]["function"]["arguments"]
    assert arguments == {"a": "\ufffd\\u0000\\\ufffd"}
    for content in ("a\0b\ud83d", [{"type": "text", "text": "a\0b\ud83d"}]):
        (said,) = ChatRequest(messages=[{**result, "content": content}]).messages
        assert said.content == said.for_template()["content"] == "a\ufffdb\ufffd"
    developer = ChatRequest(messages=[{"role": "developer", "content": "Be kind."}])
    assert developer.messages[0].for_template()["role"] == "system"


class Person(BaseModel):
    name: str


def kind_of(**fields: Any) -> str:
    found = wanted(ChatRequest.of({**HI, **fields}, {})).type
    return found.__name__ if isinstance(found, type) else type(found).__name__


def test_the_form_is_asked_for_in_many_ways() -> None:
    schema = {"name": "x", "schema": {"type": "array"}, "strict": True, "description": "y"}
    assert kind_of(response_format={"type": "json_object"}) == "JsonSchema"
    assert kind_of(response_format={"type": "json_schema", "json_schema": schema}) == "JsonSchema"
    assert kind_of(response_format=Person) == "Person"
    assert kind_of(output_type=Person) == "Person"
    assert kind_of(output_type=Literal["a", "b"]) == "_LiteralGenericAlias"
    assert kind_of(grammar="a+", grammar_type="regex") == "Regex"
    assert kind_of(grammar='{"type": "string"}', grammar_type="json_schema") == "JsonSchema"
    assert kind_of(grammar={"type": "string"}, grammar_type="json_schema") == "JsonSchema"
    assert kind_of(grammar='start: "a"', grammar_type="lark") == "Cfg"
    assert kind_of(grammar='root ::= "a"', grammar_type="gbnf") == "Cfg"
    assert kind_of(grammar=["a", "b"], grammar_type="choice") == "Choice"


def test_no_text_of_a_request_is_the_name_of_a_file(tmp_path: Any) -> None:
    (tmp_path / "a.lark").write_text('start: "secret"')
    (tmp_path / "a.json").write_text('{"type": "string"}')
    for name, kind in (("a.lark", "lark"), ("a.lark", "gbnf"), ("a.json", "json_schema")):
        given = str(tmp_path / name)
        request = ChatRequest.of({**HI, "grammar": given, "grammar_type": kind}, {})
        if kind == "json_schema":
            with pytest.raises(RequestError):
                wanted(request)
        else:
            found = wanted(request).type
            assert found.path is None
            assert found.text == f"{given}\n"


def test_a_text_or_a_list_stands_for_what_is_asked() -> None:
    assert ChatRequest.of("Hi", {}) == ChatRequest.of(HI, {})
    assert ChatRequest.of(HI["messages"], {"seed": 1}).seed == 1
    assert CompletionRequest.of("Hi", {}).prompts == ["Hi"]
    assert CompletionRequest.of([1, 2], {}).prompts == [[1, 2]]
    assert EmbeddingRequest.of(["a", "b"], {}).input == ["a", "b"]
    with pytest.raises(RequestError, match="given twice"):
        ChatRequest.of("Hi", {"messages": "Ho"})
    with pytest.raises(RequestError, match="Pass a RerankRequest"):
        RerankRequest.of("Hi", {})


@pytest.mark.parametrize(
    ("choice", "name", "hint"),
    [
        ("g", "g", ""),
        ("any", "…", ""),
        ("require", "…", " Did you mean 'required'?"),
        (7, "…", ""),
        ({"type": "tool"}, "…", ""),
    ],
)
def test_a_choice_of_tools_that_is_none_is_answered_with_what_to_pass(
    choice: Any, name: str, hint: str
) -> None:
    one = json.dumps({"type": "function", "function": {"name": name}}, ensure_ascii=False)
    with pytest.raises(RequestError) as caught:
        wanted(ChatRequest.of({**HI, "tools": [tool("g")], "tool_choice": choice}, {}))
    assert str(caught.value) == (
        f"tool_choice: {choice!r} is not supported. It must be none, auto, required, {one} or "
        f'{{"type": "allowed_tools", …}}.{hint}'
    )


@pytest.mark.parametrize("name", ["none", "auto", "required"])
def test_a_tool_may_be_called_as_a_choice_is(name: str) -> None:
    choice = {"type": "function", "function": {"name": name}}
    asked = {**HI, "tools": [tool("g"), tool(name)], "tool_choice": choice}
    made = wanted(ChatRequest.of(asked, {}))
    assert (list(made.tools), made.type.choice) == ([1], "required")


@pytest.mark.parametrize("given", [{}, {"type": None}])
def test_the_type_of_a_tool_may_not_be_missing(given: Any) -> None:
    with pytest.raises(RequestError, match=r"^tools\[0\]\.type is missing\.") as caught:
        wanted(ChatRequest.of({**HI, "tools": [{**given, "function": tool("g")["function"]}]}, {}))
    assert (caught.value.param, caught.value.kind) == ("tools[0].type", "missing")


def test_models_that_are_none_are_refused_in_our_words() -> None:
    with pytest.raises(
        OptionError, match=r"models=\['a'\] is not a mapping\. Pass the name of one model"
    ):
        Runner(["a"])  # type: ignore[arg-type]
    with pytest.raises(
        OptionError, match=r"'proceses' is not a field\. Its fields are source, providers, "
    ):
        Runner({"a": {"source": "smollm2-135m-instruct", "proceses": 2}})
    with pytest.raises(OptionError, match=r"source is missing\. Its fields are source, "):
        Runner({"a": {"processes": 2}})


def test_tool_choice() -> None:
    tools = [tool("f"), tool("g"), tool("h")]
    named = {"type": "function", "function": {"name": "g"}}
    some = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "h"}, named]},
    }

    def asked(**fields: Any) -> Any:
        return wanted(ChatRequest.of({**HI, "tools": tools, **fields}, {}))

    assert asked(tool_choice="none").type.choice == "none"
    assert asked().type.choice == "auto"
    assert asked(tool_choice="required").type.choice == "required"
    assert asked(tool_choice=named).type.choice == "g"
    assert asked(tool_choice=named).tools == dict(enumerate(tools))
    assert asked(tool_choice=some).tools == {1: tools[1], 2: tools[2]}
    assert asked(tool_choice=some).type.choice == "required"
    assert asked(parallel_tool_calls=False).type.parallel is False
    assert asked(parallel_tool_calls=True).type.parallel is None
    assert asked().key == asked().key is not None


def test_arguments_of_tools_are_those_that_they_name() -> None:
    def parameters(given: Any) -> Any:
        one = {"type": "function", "function": {"name": "f", "parameters": given}}
        asked = ChatRequest.of({**HI, "tools": [one]}, {})
        (found,) = wanted(asked).tools.values()
        assert asked.tools == [one]
        return found["function"]["parameters"]

    names = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert parameters(names) == {**names, "additionalProperties": False}
    assert parameters(MappingProxyType(names)) == {**names, "additionalProperties": False}
    assert parameters({"properties": {"a": {}}})["additionalProperties"] is False
    for is_open in ({**names, "additionalProperties": True}, {"type": "object"}, {}, None):
        assert parameters(is_open) == is_open
    deep: dict[str, Any] = {}
    for _ in range(240):
        deep = {"type": "object", "properties": {"a": deep}}
    assert parameters(deep)["additionalProperties"] is False


def test_tools_that_are_no_json_are_refused_by_their_place() -> None:
    around: dict[str, Any] = {"type": "object", "properties": {}}
    around["properties"]["a"] = around
    error = refused(tools=[tool(), tool("g", a=around)])
    assert error.param == "tools[1].function.parameters.properties.a.properties.a"
    assert "contains itself" in str(error)


def test_thinking_and_the_limit_share_the_tokens() -> None:
    def both(**fields: Any) -> Any:
        return limits(ChatRequest.of({**HI, **fields}, {}), 100_000)

    assert both() == ({}, None)
    assert both(enable_thinking=False) == ({}, 0)
    assert both(reasoning_effort="none") == ({}, 0)
    assert both(enable_thinking=True) == ({}, EFFORTS["medium"])
    assert both(reasoning_effort="high") == ({}, EFFORTS["high"])
    assert both(thinking_budget=33) == ({}, 33)
    options, think = both(reasoning_effort="high", max_tokens=400)
    assert options == {"max_new_tokens": 100}
    assert think == 300
    options, think = both(reasoning_effort="minimal", max_completion_tokens=1000)
    assert options["max_new_tokens"] + think == 1000
    assert think == EFFORTS["minimal"]


@pytest.mark.parametrize(
    ("prompts", "input_type", "taken"),
    [
        ({"query": "q: ", "passage": "p: "}, "query", "query"),
        ({"query": "q: ", "passage": "p: "}, "document", "passage"),
        ({"document": "d: ", "passage": "p: "}, "document", "document"),
        ({}, "query", None),
        ({"query": "q: "}, "document", None),
        ({"query": "q: "}, None, None),
    ],
)
def test_queries_and_documents_get_the_prompts_of_the_model(
    prompts: dict[str, str], input_type: str | None, taken: str | None
) -> None:
    told: list[Any] = []

    class Embedding:
        is_cross_encoder = False
        max_length = None

        async def aresult(self, texts: list[str], **options: Any) -> Any:
            told.append(options.get("prompt_name"))
            return SimpleNamespace(vectors=np.zeros((len(texts), 2)), n_tokens=None)

    embedder: Any = Embedding()
    embedder.prompts = prompts

    async def asked(**fields: Any) -> None:
        request = EmbeddingRequest(input="a", input_type=input_type, **fields)
        await vectors.embed(EmbeddingHost(embedder), request, "tiny", "")

    asyncio.run(asked())
    assert told == [taken]
    if input_type is not None:
        with pytest.raises(RequestError, match="input_type"):
            asyncio.run(asked(prompt_name="query"))


def test_a_reranker_makes_no_vectors_and_no_decisions() -> None:
    """Decisions were a ModelError: a 503 of the server, which clients repeat."""
    embedder: Any = SimpleNamespace(is_cross_encoder=True, max_length=None)
    host = EmbeddingHost(embedder)
    decision = DecisionRequest(state="a", questions={"q": Predicate("?")})
    for work in (
        vectors.embed(host, EmbeddingRequest(input="a"), "tiny", ""),
        vectors.decide(host, decision, "tiny"),
    ):
        with pytest.raises(RequestError, match="tiny is a reranker") as caught:
            asyncio.run(work)
        assert caught.value.param == "model"


def test_the_schema_is_told_where_that_is_asked_for(runner: Runner) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean", "description": "whether it rains"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    asked = {
        "messages": "Hi",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }
    plain, told = (runner.chat({**asked, "with_schema_hint": one}) for one in (False, True))
    assert told.usage.prompt_tokens > plain.usage.prompt_tokens + 30
    assert told.choices[0].message.content in ('{"a": true}', '{"a": false}')
    with pytest.raises(RequestError, match="requires an output type") as caught:
        runner.chat({"messages": "Hi", "max_tokens": 2, "with_schema_hint": True})
    assert caught.value.param == "with_schema_hint"


def test_keys_share_an_embedder() -> None:
    started: list[str] = []

    async def main() -> None:
        go_on = asyncio.Event()

        class Embedding:
            is_cross_encoder = False
            max_length = None
            prompts: ClassVar[dict[str, str]] = {}

            async def aresult(self, texts: list[str], **options: Any) -> Any:
                started.extend(texts)
                await go_on.wait()
                return SimpleNamespace(vectors=np.zeros((len(texts), 2)), n_tokens=None)

        embedder: Any = Embedding()
        host = EmbeddingHost(embedder)

        async def asked(key: str) -> None:
            STRANGER.set(Stranger(key, 1, 1))
            await vectors.embed(host, EmbeddingRequest(input=key), "tiny", "")

        tasks = [asyncio.create_task(asked("a")) for _ in range(5)]
        while not started:
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(asked("b")))
        for _ in range(60_000):
            await asyncio.sleep(0.001)
            if "b" in started:
                break
        assert started == ["a", "b"]
        go_on.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_long_calls_of_two_keys_let_a_third_have_a_batch() -> None:
    told: list[str] = []

    async def main() -> None:
        class Embedding:
            is_cross_encoder = False
            max_length = None
            prompts: ClassVar[dict[str, str]] = {}

            async def aresult(self, texts: list[str], *, pause: Any, **options: Any) -> Any:
                for _ in range(3):
                    told.extend(texts)
                    while "c" not in host._places._waiting and "c1" not in told:
                        await asyncio.sleep(0)
                    await pause()
                return SimpleNamespace(vectors=np.zeros((len(texts), 2)), n_tokens=None)

        embedder: Any = Embedding()
        host = EmbeddingHost(embedder)

        async def asked(text: str) -> None:
            STRANGER.set(Stranger(text[0], 1, 1))
            await vectors.embed(host, EmbeddingRequest(input=text), "tiny", "")

        tasks = [asyncio.create_task(asked(text)) for text in ("a1", "a2", "b1", "c1")]
        await asyncio.gather(*tasks)
        assert not host._places.active  # all places are free again

    asyncio.run(main())
    assert set(told[:3]) == {"a1", "b1", "c1"}  # two at once, and nobody waits for a call to end
    first, second = ([at for at, text in enumerate(told) if text == name] for name in ("a1", "a2"))
    assert len(first) == len(second) == 3
    assert first[-1] < second[0]  # a key's own calls are made one after the other


def test_the_calls_of_all_messages_are_bounded_together() -> None:
    arguments = "[" + "0," * 60_000 + "0]"
    call = {"function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    ChatRequest(messages=[said])
    with pytest.raises(RequestError, match="more than 100,000 values") as caught:
        ChatRequest(messages=[said, said])
    assert caught.value.param == "messages"


def test_a_form_is_written_once_however_often_its_key_is_looked_at(monkeypatch) -> None:
    """Half a megabyte was written ten times for each request, where all others wait."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    fields = {"grammar": schema, "grammar_type": "json_schema"}
    asked, again = (wanted(ChatRequest.of({**HI, **fields}, {})) for _ in range(2))
    schema["properties"]["a"]["type"] = "string"
    other = wanted(ChatRequest.of({**HI, **fields}, {}))
    choice = {"grammar": ["a", "b"], "grammar_type": "choice"}
    one, same = (wanted(ChatRequest.of({**HI, **choice}, {})) for _ in range(2))
    monkeypatch.setattr(JsonSchema, "_key", None)
    monkeypatch.setattr(Choice, "_key", None)
    assert {asked.key: 1} == {again.key: 1} != {other.key: 1}
    assert {one.key: 1} == {same.key: 1}


@pytest.mark.parametrize("name", ["decide", "embed", "rerank"])
def test_a_call_with_too_many_arguments_is_named_as_it_was_called(name: str) -> None:
    with (
        Runner("smollm2-135m-instruct") as runner,
        pytest.raises(TypeError, match=rf"Runner\.{name}\("),
    ):
        getattr(runner, name)("a", ["b"])
