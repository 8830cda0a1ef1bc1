"""LangChain's words for requests, answers and errors, and its agents, on the default model.

What all chat models have in common is tested by LangChain's own tests: test_langchain_standard.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from doc_blocks import run
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, wrap_model_call
from langchain.agents.structured_output import ToolStrategy
from langchain_core import decisions as theirs
from langchain_core import exceptions
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.outputs import Generation
from langchain_core.tools import StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from structgen import Cfg, OptionError, Runner, Template, Tool
from structgen.integrations import langchain
from structgen.integrations.langchain import (
    ChatStructgen,
    StructgenDecisions,
    StructgenEmbeddings,
    chat_of,
    tool_of,
)

pytestmark = pytest.mark.anyio  # of the tests that are coroutines


@pytest.fixture(scope="module")
def model(runner: Runner) -> ChatStructgen:
    return ChatStructgen(model="small", runner=runner, temperature=0, max_tokens=40)


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway", "Chile"]


@tool
def population(city: Literal["Rome", "Oslo"]) -> int:
    """How many people live in a city."""
    return 7


@tool
def area(city: Literal["Rome", "Oslo"], unit: Literal["km2", "ha"] = "km2") -> int:
    """How large a city is."""
    return 12


# -- types ------------------------------------------------------------------------------------


def any_booleans(made: Any) -> bool:
    return 1 <= len(made) <= 2 and all(isinstance(one, bool) for one in made)


def only_ones(made: Any) -> bool:
    return len(made) == 1 and set(made.values()) == {1}


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
def test_outputs_have_their_form(model: ChatStructgen, method: Any) -> None:
    asked = model.with_structured_output(City, method=method, include_raw=True)
    made = asked.invoke("Rome is in Italy.")
    assert isinstance(made["parsed"], City)
    assert made["parsing_error"] is None
    metadata = made["raw"].response_metadata
    assert metadata["finish_reason"] == ("tool_calls" if method == "function_calling" else "stop")


@pytest.mark.parametrize(
    ("schema", "holds"),
    [
        ({"type": "integer", "minimum": 2, "maximum": 9}, range(2, 10).__contains__),
        ({"anyOf": [{"const": "a"}, {"const": 7}]}, ["a", 7].__contains__),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
         any_booleans),
        ({"type": "object", "additionalProperties": {"const": 1}, "maxProperties": 1,
          "propertyNames": {"maxLength": 5}, "minProperties": 1}, only_ones),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"n": {"const": 1}},
                                               "required": ["n"]}}}, only_ones),
    ],
)  # fmt: skip
def test_json_schemas_without_properties(model: ChatStructgen, schema: Any, holds: Any) -> None:
    """LangChain itself drops all of such a schema but its title."""
    titled = {"title": "made", **schema}
    assert holds(model.with_structured_output(titled).invoke("Hi"))
    called = model.with_structured_output(titled, method="function_calling")
    if holds is only_ones:
        assert holds(called.invoke("Hi"))
    else:
        with pytest.raises(exceptions.ModelInvalidRequestError, match="are not an object"):
            called.invoke("Hi")


def test_a_call_of_a_class_is_as_exact_as_its_json(model: ChatStructgen) -> None:
    """Pydantic's JSON Schema allows any string for a Decimal, and leaves out bounds of dates."""

    class Paid(BaseModel):
        amount: Decimal
        day: date = Field(ge=date(2026, 1, 1), le=date(2026, 1, 9))

    asked = model.with_structured_output(Paid, method="function_calling", max_tokens=60)
    made = [asked.invoke("Five.", temperature=2.0, seed=seed) for seed in range(4)]
    assert all(isinstance(one, Paid) for one in made)


def test_streams_of_values_end_with_the_value(model: ChatStructgen) -> None:
    asked = model.with_structured_output(City.model_json_schema())
    seen = list(asked.stream("Rome is in Italy."))
    assert len(seen) > 2
    assert seen[-1] == asked.invoke("Rome is in Italy.")
    City.model_validate(seen[-1])


def test_what_only_code_can_check_is_told_beside_the_message(model: ChatStructgen) -> None:
    class Picky(BaseModel):
        n: Literal[1, 2]

        @field_validator("n")
        @classmethod
        def never(cls, n: int) -> int:
            raise ValueError("no")

    made = model.with_structured_output(Picky, include_raw=True).invoke("1 or 2?")
    assert made["parsed"] is None
    assert isinstance(made["parsing_error"], exceptions.OutputParserException)
    assert json.loads(made["raw"].text)["n"] in (1, 2)
    with pytest.raises(exceptions.OutputParserException, match="no"):
        model.with_structured_output(Picky).invoke("1 or 2?")


def test_strict_classes_are_read_as_json(model: ChatStructgen) -> None:
    import datetime

    class Day(BaseModel):
        model_config = ConfigDict(strict=True)
        day: datetime.date

    made = model.with_structured_output(Day).invoke("It is 2024-05-01.")
    assert isinstance(made.day, datetime.date)


def test_objects_have_the_members_that_they_name(model: ChatStructgen) -> None:
    """A schema that leaves objects open, at a temperature at which a model would add members."""
    schema = {"title": "N", "type": "object", "properties": {"n": {"enum": [7]}}}
    hot = ChatStructgen(
        model="small", runner=model.runner, temperature=2, seed=1, max_tokens=30, n=3
    )
    form = {"type": "json_schema", "json_schema": {"name": "N", "schema": schema}}
    made = hot.generate([[HumanMessage("Go")]], response_format=form)
    assert len(made.generations[0]) == 3
    for one in made.generations[0]:
        assert isinstance(one, Generation)
        assert json.loads(one.text) in ({}, {"n": 7})


# -- tools ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("asked_arguments")
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("any", {"population", "area"}),
        (True, {"population", "area"}),
        ("area", {"area"}),
        ({"type": "function", "function": {"name": "area"}}, {"area"}),
        ("none", set()),
    ],
)
def test_choices_of_tools_hold(model: ChatStructgen, choice: Any, names: set[str]) -> None:
    bound = model.bind_tools([population, area], tool_choice=choice, parallel_tool_calls=False)
    made = bound.invoke("How large is Rome?", max_tokens=30)
    assert {call["name"] for call in made.tool_calls} <= names
    assert bool(made.tool_calls) == bool(names)
    assert not made.invalid_tool_calls
    for call in made.tool_calls:
        {"population": population, "area": area}[call["name"]].invoke(call)


class Link(BaseModel):
    """A link of a chain."""

    size: Literal[1, 2]
    next: Link | Literal[0] = 0


@pytest.mark.parametrize(
    ("place", "name", "reference"),
    [
        ("$defs", "A", "#/$defs/A"),
        ("$defs", "Bä", "#/$defs/Bä"),
        ("$defs", "A", "#/$defs/A/properties/a"),
        ("definitions", "A", "#/definitions/A"),
        ("$defs", "A", "#"),
    ],
)
def test_a_schema_that_refers_to_itself_is_whole(place: str, name: str, reference: str) -> None:
    part = {"type": "object", "properties": {"a": {"$ref": reference}}}
    schema = {"title": "t", "type": "object", "properties": {"b": part}, place: {name: part}}
    assert tool_of(schema)["function"]["parameters"][place] == {name: part}


def test_a_wrong_schema_is_left_to_who_reads_it() -> None:
    schema = {"title": "t", "$defs": None, "definitions": [], "default": {1}}
    assert {"title": "t", **tool_of(schema)["function"]["parameters"]} == schema


def test_arguments_that_hold_others_of_their_kind(model: ChatStructgen) -> None:
    """LangChain lets them be anything, and the class then refused what the model wrote."""

    @tool
    def walk(link: Link) -> int:
        """Walk along a chain."""
        return link.size

    schema = {"title": "chain", "properties": {"first": {"$ref": "#/$defs/Link"}}}
    schema["$defs"] = Link.model_json_schema()["$defs"]

    def undescribed(link: Link, by: int = 1) -> int:
        return link.size

    def described(link: Link, by: int = 1) -> int:
        """Walk.

        Args:
            link: where from.
            by: how far.
        """
        return link.size

    parameters = tool_of(described)["function"]["parameters"]
    assert parameters["properties"]["by"]["description"] == "how far."
    tools = [Link, walk, schema, undescribed, described]
    for made in model.bind_tools(tools).kwargs["tools"]:  # type: ignore[attr-defined]
        parts = made["function"]["parameters"]["$defs"]["Link"]["properties"]
        assert {"$ref": "#/$defs/Link"} in parts["next"]["anyOf"]
    chain = model.with_structured_output(Link, method="function_calling", max_tokens=60)
    assert isinstance(chain.invoke("Go."), Link)


def test_references_of_a_tool_of_an_mcp_server_are_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LangChain doubles each: 2 kB of schema took gigabytes."""
    twice = [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]
    parts = {"b": {"type": "integer"}, "a": {"anyOf": twice}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": parts}
    listed = StructuredTool(name="t", description="d", args_schema=schema, func=len)
    function = {"name": "t", "description": "d", "parameters": schema}
    monkeypatch.setattr(langchain, "convert_to_openai_tool", None)
    assert tool_of(listed) == {"type": "function", "function": function}


def test_tools_of_apis_may_hold_others_of_their_kind() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    named = {"name": "chain", "description": "A chain."}
    function = {**named, "parameters": schema}
    for given in (
        {"type": "function", "function": {**function}},
        function,
        {**named, "input_schema": schema},
        {"toolSpec": {**named, "inputSchema": {"json": schema}}},
    ):
        assert tool_of(given) == {"type": "function", "function": function}


def test_arguments_are_not_escaped(model: ChatStructgen) -> None:
    @tool
    def greet(name: Literal["你好啊集团", "こんにちは"]) -> str:
        """Greet a company."""
        return name

    bound = model.bind_tools([greet], tool_choice="any", parallel_tool_calls=False)
    (call,) = bound.invoke("Greet 你好啊集团.").tool_calls
    assert call["args"]["name"] in ("你好啊集团", "こんにちは")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("schema", [int, Literal["a", "b"], None, {"type": "integer"}])
def test_a_type_without_a_schema_is_refused(model: ChatStructgen, schema: Any, method: Any) -> None:
    with pytest.raises(OptionError, match=r"schema=.* model.bind\(output_type="):
        model.with_structured_output(schema, method=method)


def test_a_choice_of_no_tool_is_refused(model: ChatStructgen) -> None:
    with pytest.raises(OptionError, match="must be auto"):
        model.bind_tools([area], tool_choice="volume")
    with pytest.raises(OptionError, match="requires tools"):
        model.bind_tools([], tool_choice="any")
    model.bind_tools([], tool_choice="none")


def test_a_stream_of_calls_is_the_answer(model: ChatStructgen) -> None:
    bound = model.bind_tools([population, area], tool_choice="any", parallel_tool_calls=False)
    full: Any = None
    for chunk in bound.stream("How large is Rome?"):
        assert isinstance(chunk, AIMessageChunk)
        full = chunk if full is None else full + chunk
    whole = bound.invoke("How large is Rome?")
    assert [(c["name"], c["args"]) for c in full.tool_calls] == [
        (c["name"], c["args"]) for c in whole.tool_calls
    ]
    assert full.response_metadata == whole.response_metadata
    assert full.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


# -- agents of LangGraph ----------------------------------------------------------------------


@wrap_model_call
def call_once(request: ModelRequest, handler: Any) -> Any:
    """Of small models: the tool first, then the answer."""
    called = any(isinstance(message, ToolMessage) for message in request.messages)
    settings = {**request.model_settings, "parallel_tool_calls": False}
    return handler(
        request.override(tool_choice="none" if called else "population", model_settings=settings)
    )


def test_an_agent_calls_a_tool_and_answers(model: ChatStructgen) -> None:
    agent = create_agent(model, [population], system_prompt="Be short.", middleware=[call_once])
    made = agent.invoke({"messages": [HumanMessage("How many people live in Rome?")]})
    kinds = [type(message) for message in made["messages"]]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, AIMessage]
    assert made["messages"][2].content == "7"
    assert made["messages"][3].text


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
async def test_langgraphs_prebuilt_agent(model: ChatStructgen) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.prebuilt import create_react_agent

    def choose(state: Any, runtime: Any) -> Any:
        called = any(isinstance(message, ToolMessage) for message in state["messages"])
        choice = "none" if called else "any"
        return model.bind_tools([population], tool_choice=choice, parallel_tool_calls=False)

    agent = create_react_agent(choose, [population], checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    asked: Any = {"messages": [HumanMessage("How many people live in Rome?")]}
    made = agent.invoke(asked, thread)
    kinds = [type(message) for message in made["messages"]]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, AIMessage]
    pieces = [one async for one in agent.astream(asked, thread, stream_mode="messages")]
    assert len(pieces) > 3
    assert len((await agent.aget_state(thread)).values["messages"]) > 4
    typed = create_react_agent(model, [], response_format=City)
    made = await typed.ainvoke({"messages": [HumanMessage("Rome is in Italy.")]})
    assert isinstance(made["structured_response"], City)


async def test_an_agent_gives_a_value_of_a_type(model: ChatStructgen) -> None:
    """By the model's own form, which its profile says that it has, and by a call of a tool."""
    for how in (City, ToolStrategy(City)):
        agent = create_agent(model, [], response_format=how)
        made = await agent.ainvoke({"messages": [HumanMessage("Rome is in Italy.")]})
        assert isinstance(made["structured_response"], City)


# -- messages ---------------------------------------------------------------------------------


def test_histories_become_chats() -> None:
    call = {"name": "area", "args": {"city": "Rome"}, "id": "1", "type": "tool_call"}
    made = chat_of(
        [
            SystemMessage("Be short."),
            SystemMessage([{"type": "text", "text": "Be kind."}]),
            HumanMessage("How large", name="ann"),
            HumanMessage("is Rome?", name="ann"),
            AIMessage(
                [
                    {"type": "thinking", "thinking": "Hm."},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "1", "name": "area", "input": {"city": "Rome"}},
                ],
                tool_calls=[call],
            ),
            ToolMessage("12", tool_call_id="1"),
            AIMessage("12", additional_kwargs={"reasoning_content": "So."}),
        ]
    )
    function = {"name": "area", "arguments": '{"city": "Rome"}'}
    assert made == [
        {"role": "system", "content": "Be short.\n\nBe kind."},
        {"role": "user", "content": "How large\n\nis Rome?", "name": "ann"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "12", "tool_call_id": "1"},
        {"role": "assistant", "content": "12", "reasoning_content": "So."},
    ]
    blocks = ({"type": "image", "url": "https://a.b/c.png"}, {"type": "tool_use"}, {"type": "text"})
    for wrong in (
        *(HumanMessage([block]) for block in blocks),
        AIMessage("", additional_kwargs={"function_call": {"name": "area", "arguments": "{}"}}),
    ):
        with pytest.raises(OptionError, match="not supported"):
            chat_of([wrong])


def test_texts_of_different_people_keep_their_names() -> None:
    texts = [("Hi.", "ann"), ("Hello.", "bob"), ("So?", "bob"), ("Well.", None)]
    (made,) = chat_of([HumanMessage(text, name=name) for text, name in texts])
    assert made == {"role": "user", "content": "ann: Hi.\n\nbob: Hello.\n\nbob: So?\n\nWell."}
    (made,) = chat_of([HumanMessage(text, name="ann") for text in ("Hi.", "So?")])
    assert made == {"role": "user", "content": "Hi.\n\nSo?", "name": "ann"}


def test_arguments_of_calls_in_the_history_are_written_as_json() -> None:
    """A date was a TypeError of Python's encoder."""
    when, odd = ({"name": "f", "args": {"a": a}, "id": "1"} for a in (date(2026, 1, 2), object()))
    (made,) = chat_of([AIMessage("", tool_calls=[when])])
    assert made["tool_calls"][0]["function"]["arguments"] == '{"a": "2026-01-02"}'
    with pytest.raises(OptionError, match="of a call of f cannot be written as JSON"):
        chat_of([AIMessage("", tool_calls=[odd])])


def test_calls_that_were_no_json_stay_in_the_history() -> None:
    broken = {"name": "area", "args": '{"city', "id": "2", "error": "", "type": "invalid_tool_call"}
    made = chat_of([AIMessage("", invalid_tool_calls=[broken])])
    assert made[0]["tool_calls"] == [
        {"id": "2", "type": "function", "function": {"name": "area", "arguments": '{"city'}}
    ]


def test_parallel_calls_hold_for_tools_of_each_way(
    model: ChatStructgen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They held with ``bind_tools`` alone."""
    seen: list[Any] = []
    one_at_a_time = model.model_copy(update={"parallel_tool_calls": False})
    monkeypatch.setattr(Runner, "chat", lambda runner, fields: seen.append(fields) or 1 / 0)
    tools = [convert_to_openai_tool(area)]
    for asked in (
        one_at_a_time.bind_tools([area]),
        one_at_a_time.bind(tools=tools),
        one_at_a_time.bind_tools([area], parallel_tool_calls=True),
        one_at_a_time,
    ):
        with pytest.raises(ZeroDivisionError):
            asked.invoke("Hi")
    assert [one.get("parallel_tool_calls") for one in seen] == [False, False, True, None]


def test_tokens_are_the_models_own(model: ChatStructgen) -> None:
    assert ChatStructgen(model="a", custom_get_token_ids=lambda text: [7]).get_num_tokens("a") == 1
    history = [SystemMessage("Be short."), HumanMessage("Say hi.")]
    made = model.invoke(history, max_tokens=1)
    assert made.usage_metadata is not None
    count = model.get_num_tokens_from_messages(history)
    assert count == made.usage_metadata["input_tokens"]
    assert model.get_num_tokens_from_messages(history, tools=[area]) > count
    assert model.get_num_tokens("Say hi.") == len(model.get_token_ids("Say hi.")) > 1
    call = {"name": "area", "args": {"city": "Rome"}, "id": "1", "type": "tool_call"}
    long = [
        *history,
        AIMessage("", tool_calls=[call]),
        ToolMessage("12", tool_call_id="1"),
        AIMessage("word " * 50),
        HumanMessage("And?"),
    ]
    kept = trim_messages(long, max_tokens=70, token_counter=model, include_system=True)
    assert kept == [history[0], long[-1]]


# -- fields, metadata, errors -----------------------------------------------------------------


def test_metadata_tells_of_tokens_and_of_confidence(model: ChatStructgen) -> None:
    asked = model.bind(
        output_type=City,
        logprobs=True,
        top_logprobs=2,
        trace=True,
        abstain_below={"$.country": 0.999999},
    )
    with get_usage_metadata_callback() as counted:
        made = asked.invoke("Rome is in Italy.")
    assert counted.usage_metadata["small"] == made.usage_metadata
    metadata = made.response_metadata
    assert metadata["model_name"] == "small"
    assert "".join(one["token"] for one in metadata["logprobs"]) == made.text
    assert "$.country" in metadata["confidence"]
    assert isinstance(metadata["abstained"], list)
    assert metadata["trace"][0]["index"] == 0
    full: Any = None
    for chunk in asked.stream("Rome is in Italy."):
        full = chunk if full is None else full + chunk
    assert full.response_metadata == metadata


def test_thoughts_stand_beside_the_answer(runner: Runner) -> None:
    thinker = ChatStructgen(
        model="small", runner=runner, seed=1, max_tokens=60, model_kwargs={"thinking_budget": 20}
    )
    asked = thinker.bind(output_type=bool)
    made = asked.invoke("Is water wet?")
    assert made.text in ("true", "false")
    assert made.additional_kwargs["reasoning_content"]
    assert {block["type"] for block in made.content_blocks} == {"reasoning", "text"}
    full: Any = None
    for chunk in asked.stream("Is water wet?"):
        full = chunk if full is None else full + chunk
    thought = full.additional_kwargs["reasoning_content"]
    assert thought.strip() == made.additional_kwargs["reasoning_content"]
    assert full.usage_metadata["output_token_details"]["reasoning"] > 0


def test_caches_of_langchain_tell_all_requests_apart(runner: Runner) -> None:
    def model(**fields: Any) -> ChatStructgen:
        cache = InMemoryCache()
        return ChatStructgen(model="small", runner=runner, cache=cache, max_tokens=9, **fields)

    def landmark(names: str) -> type[BaseModel]:
        return create_model("Landmark", name=(Literal[names], ...))

    def key(model: ChatStructgen, **fields: Any) -> str:
        return model._get_llm_string(**fields)

    long = "a" * 100  # which is not all shown
    types = [
        landmark("Eiffel"),
        landmark("Ulm"),
        Cfg(f'start: "{long}b"'),
        Cfg(f'start: "{long}c"'),
    ]
    types += [Template("{a}", a=int), Template("{a}", a=bool), Literal[1], ["a"], ["b"]]
    assert len({key(model(), output_type=one) for one in types}) == len(types)
    assert key(model(), output_type=landmark("Ulm")) == key(model(), output_type=types[1])
    assert key(model(stop="a")) != key(model(stop="b")) != key(model())
    assert len({key(model(), tools=[one]) for one in types[:2]}) == 2

    def find(name: Literal["Ulm"]) -> str:
        """Find a landmark."""
        return name

    known = key(model(), tools=[Tool(find)])
    assert key(model(), tools=[find]) == known
    find.__doc__ = "Forget a landmark."  # the prompt has it
    assert key(model(), tools=[find]) != known
    tools = {"tools": [tool_of(landmark("Ulm"))]}
    assert key(model(parallel_tool_calls=False), **tools) != key(model(), **tools)
    asked = model()
    for name in ("Eiffel", "Ulm"):
        found = asked.with_structured_output(landmark(name)).invoke("A landmark.")
        assert found.model_dump() == {"name": name}


def test_several_answers(model: ChatStructgen) -> None:
    made = model.generate([[HumanMessage("Hi")]], n=2, temperature=2.0, seed=1, max_tokens=4)
    first, second = made.generations[0]
    assert first.text != second.text
    with pytest.raises(exceptions.ModelInvalidRequestError, match="n=2"):
        next(iter(model.stream("Hi", n=2)))


def test_errors_are_langchains(model: ChatStructgen, runner: Runner) -> None:
    with pytest.raises(exceptions.ModelInvalidRequestError, match="prediction"):
        model.invoke("Hi", prediction={})
    with pytest.raises(exceptions.ModelInvalidRequestError, match="cannot be set"):
        model.invoke("Hi", session_id="a")
    with pytest.raises(exceptions.ModelInvalidRequestError, match="budget"):
        model.with_structured_output(City).invoke("Hi", max_tokens=2)
    with pytest.raises(exceptions.ContextOverflowError):
        model.invoke("word " * 9000)
    with pytest.raises(exceptions.ModelTimeoutError):
        model.with_structured_output(City).invoke("Hi", timeout=1e-6)
    with pytest.raises(exceptions.ModelNotFoundError):
        ChatStructgen(model="nobody", runner=runner).invoke("Hi")
    with pytest.raises(ValidationError, match="extra"):
        ChatStructgen(model="small", temprature=1)  # type: ignore[call-arg]


async def test_leaving_a_stream_ends_the_answer(model: ChatStructgen) -> None:
    async for _ in model.astream("Tell a story.", max_tokens=4000, repetition_penalty=1.3):
        break
    for _ in model.stream("Tell a story.", max_tokens=4000, repetition_penalty=1.3):
        break
    # The model is free again: the next answer does not wait for 8,000 tokens.
    assert (await model.ainvoke("Hi", max_tokens=2)).text


# -- embeddings and decisions -----------------------------------------------------------------


def test_embeddings_in_a_vector_store(runner: Runner) -> None:
    embeddings = StructgenEmbeddings(model="vectors", runner=runner)
    store = InMemoryVectorStore.from_texts(["a cat", "tax law"], embeddings)
    assert store.similarity_search("a kitten", k=1)[0].page_content == "a cat"
    assert embeddings.embed_documents([]) == []
    short = StructgenEmbeddings(model="vectors", runner=runner, dimensions=8)
    assert len(short.embed_query("a cat")) == 8
    with pytest.raises(exceptions.ModelInvalidRequestError, match="token"):
        embeddings.embed_query("word " * 2000)
    cuts = StructgenEmbeddings(model="vectors", runner=runner, truncate=True)
    assert cuts.embed_query("word " * 2000)


async def test_decisions(runner: Runner) -> None:
    model = StructgenDecisions(model="small", runner=runner)
    questions = {
        "refund": theirs.Noul(instructions="Does the customer want money back?"),
        "team": theirs.Choice(
            instructions="Which team?",
            criteria={"billing": "payments", "tech": {"what": "bugs"}, "other": None},
        ),
        "anger": theirs.Score(instructions="How angry?", criteria=["calm", "angry"]),
    }
    state = {"said": [HumanMessage("Give me my money back!")], "since": 3}
    made = model.invoke({"state": state, "questions": questions})
    assert made.model == "small"
    assert made.usage["input_tokens"] > 0
    assert 0 <= made.nouls["refund"].noul <= 1
    team = made.choices["team"]
    assert list(team.probabilities) == ["billing", "tech", "other"]
    assert team.choice == max(team.probabilities, key=team.probabilities.get)
    assert sum(team.probabilities.values()) == pytest.approx(1)
    anger = made.scores["anger"]
    assert anger.legend == {0: "calm", 1: "angry"}
    assert anger.score == pytest.approx(anger.probabilities[1])
    # The same numbers as by the Runner itself, and in asynchronous code.
    chat = [HumanMessage("Give me my money back!"), HumanMessage("Now!")]
    whole = await model.ainvoke({"state": chat, "questions": questions})
    asked = {"refund": {"type": "predicate", "instructions": questions["refund"].instructions}}
    own = runner.decide(model="small", state=chat_of(chat), questions=asked)
    assert whole.nouls["refund"].noul == pytest.approx(own.value["refund"].probability)
    criteria = theirs.NoulCriteria(true="asks for a refund", false={"or": "anything else"})
    noul = theirs.Noul(instructions="Which?", criteria=criteria)
    assert model.invoke({"state": "Hi", "questions": {"a": noul}}).nouls
    by_vectors = StructgenDecisions(model="vectors", runner=runner)
    told = {"a": noul, "team": questions["team"]}
    answered = by_vectors.invoke({"state": "I want my money back!", "questions": told})
    assert answered.nouls["a"].noul > 0.5
    assert answered.choices["team"].choice == "billing"
    names: dict[str, Any] = {}
    run("docs/langchain.md", "from langchain_core.decisions import", names)
    assert list(names["made"].choices["team"].probabilities) == ["billing", "tech"]
    with pytest.raises(exceptions.ModelInvalidRequestError, match="Box"):
        model.invoke({"state": "Hi", "questions": {"a": theirs.Box(instructions="Where?")}})


@pytest.mark.parametrize("package", ["langchain_core", "langchain_core.decisions"])
def test_the_error_without_the_package_says_what_to_install(package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from structgen.integrations.langchain import StructgenDecisions"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install" in made.stderr
