"""Haystack with a real model: components in pipelines and agents, written and read again.

The outputs of a model of 135 million parameters are not about anything; that they have their form
is what is tested. Haystack reads annotations of functions as they are: none are postponed here.
"""

import json
import subprocess
import sys
from typing import Any, Literal

import pytest
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.utils import print_streaming_chunk
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import (
    ChatMessage,
    ImageContent,
    ReasoningContent,
    StreamingChunk,
    TextContent,
    ToolCall,
)
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import tool
from pydantic import BaseModel, Field

from structgen import OptionError, Runner
from structgen.integrations.haystack import (
    StructgenChatGenerator,
    StructgenDocumentEmbedder,
    StructgenGenerator,
    StructgenTextEmbedder,
    chat_of,
)

pytestmark = pytest.mark.anyio  # of the tests that are coroutines

FIELDS: dict[str, Any] = {"temperature": 0, "max_tokens": 40}


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway", "Chile"]


@tool
def population(city: Literal["Rome", "Oslo"]) -> int:
    """How many people live in a city."""
    return 7


@tool
def area(city: Literal["Rome", "Oslo"], unit: Literal["km2", "ha"]) -> int:
    """How large a city is."""
    return 12


@pytest.fixture
def generator(runner: Runner) -> Any:
    return StructgenChatGenerator("small", runner=runner, generation_kwargs=FIELDS)


# -- forms and tools --------------------------------------------------------------------------


async def test_outputs_have_their_form(generator: Any) -> None:
    fields = {"response_format": City}
    reply = generator.run("Tell me of Rome.", generation_kwargs=fields)["replies"][0]
    City.model_validate_json(reply.text)
    made = await generator.run_async("Tell me of Rome.", generation_kwargs=fields)
    assert made["replies"][0].text == reply.text
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    fields = {"response_format": form, "temperature": 2.0, "seed": 1, "n": 2}
    replies = generator.run("Go", generation_kwargs=fields)["replies"]
    assert [one.meta["index"] for one in replies] == [0, 1]
    assert all(json.loads(one.text) in ({}, {"n": 7}) for one in replies)


@pytest.mark.usefixtures("asked_arguments")
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"population", "area"}),
        ({"type": "function", "function": {"name": "area"}}, {"area"}),
        ("none", set()),
    ],
)
def test_choices_of_tools_hold(generator: Any, choice: Any, names: set[str]) -> None:
    fields = {"tool_choice": choice, "parallel_tool_calls": False}
    made = generator.run("How large is Rome?", generation_kwargs=fields, tools=[population, area])
    (reply,) = made["replies"]
    assert {call.tool_name for call in reply.tool_calls} <= names
    assert bool(reply.tool_calls) == bool(names)
    for call in reply.tool_calls:
        assert call.arguments["city"] in ("Rome", "Oslo")


async def test_an_agent_calls_a_tool(generator: Any) -> None:
    fields = {"tool_choice": "required", "parallel_tool_calls": False}
    agent = Agent(chat_generator=generator, tools=[population], exit_conditions=["population"])
    made = agent.run([ChatMessage.from_user("How many live in Rome?")], generation_kwargs=fields)
    assert made["last_message"].tool_call_result.result == "7"
    made = await agent.run_async(
        [ChatMessage.from_user("How many live in Rome?")], generation_kwargs=fields
    )
    assert made["last_message"].tool_call_result.result == "7"


# -- streams ----------------------------------------------------------------------------------


async def test_streams_are_the_answer(generator: Any) -> None:
    chunks: list[StreamingChunk] = []
    whole = generator.run("Say hi.", generation_kwargs={"logprobs": True})["replies"][0]
    (reply,) = generator.run("Say hi.", chunks.append, {"logprobs": True})["replies"]
    assert reply.text == whole.text == "".join(chunk.content for chunk in chunks)
    assert chunks[0].start
    assert chunks[-1].finish_reason == whole.meta["finish_reason"]
    assert chunks[0].component_info.type.endswith("StructgenChatGenerator")
    for name in ("model", "index", "finish_reason", "logprobs"):
        assert reply.meta[name] == whole.meta[name]
    assert reply.meta["usage"]["completion_tokens"] == whole.meta["usage"]["completion_tokens"]
    seen = []

    async def note(chunk: StreamingChunk) -> None:
        seen.append(chunk.content)

    made = await generator.run_async("Say hi.", note)
    assert made["replies"][0].text == whole.text == "".join(seen)


def test_streams_of_calls_and_thoughts(generator: Any, capsys: Any) -> None:
    fields = {"tool_choice": "required"}
    asked: dict[str, Any] = {"generation_kwargs": fields, "tools": [population, area]}
    whole = generator.run("How large is Rome?", **asked)["replies"][0]
    made = generator.run("How large is Rome?", print_streaming_chunk, **asked)["replies"][0]
    assert [(c.tool_name, c.arguments) for c in made.tool_calls] == [
        (c.tool_name, c.arguments) for c in whole.tool_calls
    ]
    assert capsys.readouterr().out.count("[TOOL CALL]") == len(whole.tool_calls)
    fields = {"output_type": bool, "thinking_budget": 15, "temperature": 1.0, "seed": 1}
    chunks: list[StreamingChunk] = []
    made = generator.run("Is water wet?", chunks.append, fields)["replies"][0]
    assert made.text in ("true", "false")
    assert made.reasoning.reasoning_text
    assert [chunk.start for chunk in chunks].count(True) == 2
    whole = generator.run("Is water wet?", generation_kwargs=fields)["replies"][0]
    assert whole.reasoning == made.reasoning


# -- pipelines --------------------------------------------------------------------------------


async def test_a_pipeline_written_and_read_again(runner: Runner) -> None:
    """Documents are embedded and found; the answer about them is an object of a class."""
    store = InMemoryDocumentStore()
    indexing = Pipeline()
    indexing.add_component("embed", StructgenDocumentEmbedder("vectors", runner=runner))
    indexing.add_component("write", DocumentWriter(store))
    indexing.connect("embed.documents", "write.documents")
    texts = ["Rome is in Italy.", "Tax law is dry."]
    indexing.run({"embed": {"documents": [Document(content=text) for text in texts]}})

    asking = Pipeline()
    template = [ChatMessage.from_user("{{documents[0].content}} {{question}}")]
    fields = {**FIELDS, "response_format": City}
    asking.add_component("query", StructgenTextEmbedder("vectors", runner=runner))
    asking.add_component("find", InMemoryEmbeddingRetriever(store, top_k=1))
    asking.add_component("prompt", ChatPromptBuilder(template, required_variables="*"))
    asking.add_component(
        "generate", StructgenChatGenerator("small", runner=runner, generation_kwargs=fields)
    )
    asking.connect("query.embedding", "find.query_embedding")
    asking.connect("find.documents", "prompt.documents")
    asking.connect("prompt.prompt", "generate.messages")
    question = "Where is the city?"
    data = {"query": {"text": question}, "prompt": {"question": question}}
    made = asking.run(data, include_outputs_from={"find"})
    assert made["find"]["documents"][0].content == "Rome is in Italy."
    City.model_validate_json(made["generate"]["replies"][0].text)

    again = Pipeline.loads(asking.dumps(), allowed_modules=["structgen.integrations.haystack"])
    again.get_component("query").runner = runner
    again.get_component("generate").runner = runner
    repeated = await again.run_async(data)
    assert repeated["generate"]["replies"][0].text == made["generate"]["replies"][0].text


def test_components_are_written_whole(runner: Runner) -> None:
    made = StructgenChatGenerator(
        "small",
        runner=runner,
        streaming_callback=print_streaming_chunk,
        generation_kwargs=FIELDS,
        tools=[population],
    )
    allow_deserialization_module(__name__)
    again = StructgenChatGenerator.from_dict(made.to_dict())
    assert again.streaming_callback is print_streaming_chunk
    assert again.generation_kwargs == FIELDS
    assert [one.name for one in again.tools] == ["population"]
    assert again.runner is None
    plain = StructgenGenerator("small", runner=runner, system_prompt="Be short.")
    assert StructgenGenerator.from_dict(plain.to_dict()).system_prompt == "Be short."
    embedder = StructgenDocumentEmbedder("vectors", dimensions=8, meta_fields_to_embed=["title"])
    again = StructgenDocumentEmbedder.from_dict(embedder.to_dict())
    assert (again.dimensions, again.meta_fields_to_embed) == (8, ["title"])
    text = StructgenTextEmbedder("vectors", truncate=True)
    assert StructgenTextEmbedder.from_dict(text.to_dict()).truncate


async def test_texts_from_prompts(runner: Runner) -> None:
    made = StructgenGenerator("main", runner=runner, generation_kwargs={"max_tokens": 6})
    made.warm_up()
    told = made.run("Say hi.", "Be short.", None, {"temperature": 0})
    assert told["replies"][0]
    assert told["meta"][0]["model"] == "small"
    pieces: list[StreamingChunk] = []
    again = await made.run_async("Say hi.", "Be short.", pieces.append, {"temperature": 0})
    assert again["replies"] == told["replies"]


# -- messages, errors, embeddings -------------------------------------------------------------


def test_histories_become_chats() -> None:
    call = ToolCall("area", {"city": "Rome"}, id="1")
    made = chat_of(
        [
            ChatMessage.from_system("Be short."),
            ChatMessage.from_user("How large", name="ann"),
            ChatMessage.from_user("is Rome?", name="ann"),
            ChatMessage.from_assistant("So.", tool_calls=[call], reasoning=ReasoningContent("Hm.")),
            ChatMessage.from_tool("12", call),
            ChatMessage.from_tool([TextContent("12")], call),
        ]
    )
    function = {"name": "area", "arguments": '{"city": "Rome"}'}
    result = {"role": "tool", "content": "12", "tool_call_id": "1"}
    assert made == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "How large\n\nis Rome?", "name": "ann"},
        {
            "role": "assistant",
            "content": "So.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        result,
        result,
    ]
    image = ImageContent(base64_image="aGk=", mime_type="image/png", validation=False)
    with pytest.raises(OptionError, match="read only text"):
        chat_of([ChatMessage.from_user(content_parts=["a", image])])


def test_fields_that_are_wrong_are_named(generator: Any) -> None:
    for fields, what in (({"prediction": {}}, "prediction"), ({"model": "a"}, "component sets it")):
        with pytest.raises(OptionError, match=what):
            generator.run("Hi", generation_kwargs=fields)
    with pytest.raises(OptionError, match="requires tools"):
        generator.run("Hi", generation_kwargs={"tool_choice": "required"})
    with pytest.raises(OptionError, match="n=2"):
        generator.run("Hi", print, {"n": 2})


async def test_embedders(runner: Runner) -> None:
    embedder = StructgenDocumentEmbedder(
        "vectors", runner=runner, meta_fields_to_embed=["title"], embedding_separator=": "
    )
    await embedder.warm_up_async()
    document = Document(content="purrs", meta={"title": "A cat"})
    made = embedder.run([document])
    assert made["documents"][0].id == document.id
    assert made["meta"]["model"] == "vectors"
    text = StructgenTextEmbedder("vectors", runner=runner).run("A cat: purrs")
    assert made["documents"][0].embedding == pytest.approx(text["embedding"], abs=1e-5)
    assert made["meta"]["usage"] == text["meta"]["usage"]
    again = await embedder.run_async([document])
    assert again["documents"] == made["documents"]
    short = StructgenTextEmbedder("vectors", runner=runner, dimensions=8)
    assert len((await short.run_async("a"))["embedding"]) == 8
    assert embedder.run([]) == {"documents": [], "meta": {}}
    with pytest.raises(OptionError, match="TextEmbedder"):
        embedder.run("a")
    with pytest.raises(OptionError, match="DocumentEmbedder"):
        short.run([document])


def test_the_error_without_the_package_says_what_to_install() -> None:
    code = "import sys; sys.modules['haystack'] = None\nimport structgen.integrations.haystack"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'structgen[haystack]'" in made.stderr
