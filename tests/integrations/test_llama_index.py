"""LlamaIndex with a real model: forms and calls by mask, programs, agents, streams, an index.

The outputs of a model of 135 million parameters are not about anything; that they have their form
is what is tested. LlamaIndex reads annotations of functions as they are: none are postponed here.
"""

import json
import subprocess
import sys
from typing import Any, Literal

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.llms import ChatMessage
from llama_index.core.program import FunctionCallingProgram, LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, Field, ValidationError

from structgen import BudgetTooSmall, OptionError, Runner
from structgen.integrations.llama_index import StructgenEmbedding, StructgenLLM, chat_of

pytestmark = pytest.mark.anyio  # of the tests that are coroutines

ASK = PromptTemplate("Tell me of {city}.")


@pytest.fixture(scope="module")
def llm(runner: Runner) -> StructgenLLM:
    return StructgenLLM(model="small", runner=runner, temperature=0, max_tokens=40)


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway", "Chile"]


def population(city: Literal["Rome", "Oslo"]) -> int:
    """How many people live in a city."""
    return 7


def area(city: Literal["Rome", "Oslo"], unit: Literal["km2", "ha"]) -> int:
    """How large a city is."""
    return 12


TOOLS = [FunctionTool.from_defaults(one) for one in (population, area)]


# -- values of a class ------------------------------------------------------------------------


async def test_structured_predictions(llm: StructgenLLM) -> None:
    made = llm.structured_predict(City, ASK, city="Rome")
    assert isinstance(made, City)
    assert await llm.astructured_predict(City, ASK, city="Rome") == made
    seen = list(llm.stream_structured_predict(City, ASK, city="Rome"))
    assert len(seen) > 2
    assert seen[-1] == made
    stream = await llm.astream_structured_predict(City, ASK, city="Rome")
    assert [one async for one in stream][-1] == made


def test_other_ways_to_values(llm: StructgenLLM) -> None:
    chat = [ChatMessage("Tell me of Rome.")]
    assert isinstance(llm.as_structured_llm(City).chat(chat).raw, City)
    called = FunctionCallingProgram.from_defaults(output_cls=City, prompt=ASK, llm=llm)
    assert isinstance(called(city="Rome"), City)
    program = LLMTextCompletionProgram.from_defaults(
        output_cls=City, prompt_template_str="Tell me of {city}.", llm=llm
    )
    assert isinstance(program(city="Rome", llm_kwargs={"output_type": City}), City)
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    said = llm.complete("Go", response_format=form, temperature=2.0, seed=1).text
    assert json.loads(said) in ({}, {"n": 7})


# -- tools ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("asked_arguments")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tool_required": True}, {"population", "area"}),
        ({"tool_choice": "area"}, {"area"}),
        ({"tool_choice": "none"}, set()),
        ({"tool_choice": "any", "allow_parallel_tool_calls": True}, {"population", "area"}),
    ],
)
def test_choices_of_tools_hold(llm: StructgenLLM, options: Any, names: set[str]) -> None:
    made = llm.chat_with_tools(TOOLS, user_msg="How large is Rome?", **options)
    calls = llm.get_tool_calls_from_response(made, error_on_no_tool_call=bool(names))
    assert {call.tool_name for call in calls} <= names
    assert bool(calls) == bool(names)
    assert "allow_parallel_tool_calls" in options or len(calls) <= 1
    for call in calls:
        assert call.tool_kwargs["city"] in ("Rome", "Oslo")
    if not names:
        with pytest.raises(ValueError, match="no tool"):
            llm.get_tool_calls_from_response(made)


def test_calls_are_made(llm: StructgenLLM) -> None:
    answer = llm.predict_and_call(TOOLS, user_msg="How large is Rome?", tool_required=True)
    assert answer.sources[0].tool_name in ("population", "area")
    assert str(answer) in ("7", "12")


async def test_a_stream_of_calls_is_the_answer(llm: StructgenLLM) -> None:
    asked: dict[str, Any] = {"user_msg": "How large is Rome?", "tool_choice": "area"}
    whole = llm.get_tool_calls_from_response(llm.chat_with_tools(TOOLS, **asked))[0]
    pieces = list(llm.stream_chat_with_tools(TOOLS, **asked))
    parts = [llm.get_tool_calls_from_response(one)[0].tool_kwargs for one in pieces]
    assert parts[-1] == whole.tool_kwargs
    assert len(parts) > 2
    stream = await llm.astream_chat_with_tools(TOOLS, **asked)
    last = [one async for one in stream][-1]
    assert last.additional_kwargs["finish_reason"] == "tool_calls"
    assert llm.get_tool_calls_from_response(last)[0].tool_kwargs == whole.tool_kwargs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of LlamaIndex's own code
async def test_an_agent_calls_a_tool_and_answers(llm: StructgenLLM) -> None:
    called: list[str] = []

    def height(city: Literal["Rome", "Oslo"]) -> int:
        """How high a city lies. It answers the question."""
        called.append(city)
        return 21

    tool = FunctionTool.from_defaults(height, return_direct=True)
    agent = FunctionAgent(tools=[tool], llm=llm, initial_tool_choice="height", timeout=None)
    made = await agent.run("How high is Rome?")
    assert called
    assert "21" in str(made)


# -- texts, messages, details -----------------------------------------------------------------


async def test_streams_are_the_answer(llm: StructgenLLM) -> None:
    chat = [ChatMessage("Say hi.")]
    whole = llm.chat(chat, max_tokens=8, logprobs=True)
    pieces = list(llm.stream_chat(chat, max_tokens=8, logprobs=True))
    assert pieces[-1].logprobs == whole.logprobs
    assert "".join(one.delta or "" for one in pieces) == whole.message.content
    assert pieces[-1].message == whole.message
    assert pieces[-1].additional_kwargs == whole.additional_kwargs
    stream = await llm.astream_chat(chat, max_tokens=8)
    assert [one async for one in stream][-1].message == whole.message
    assert (await llm.achat(chat, max_tokens=8)).message == whole.message
    text = llm.complete("Say hi.", max_tokens=8).text
    assert text == whole.message.content
    assert list(llm.stream_complete("Say hi.", max_tokens=8))[-1].text == text
    assert (await llm.acomplete("Say hi.", max_tokens=8)).text == text
    made = await llm.astream_complete("Say hi.", max_tokens=8)
    assert [one async for one in made][-1].text == text


async def test_prompts_that_are_formatted_are_gone_on_with(llm: StructgenLLM) -> None:
    told: dict[str, Any] = {"formatted": True, "max_tokens": 4}
    text = llm.complete("One, two,", **told).text
    assert text
    assert list(llm.stream_complete("One, two,", **told))[-1].text == text
    assert (await llm.acomplete("One, two,", **told)).text == text
    made = await llm.astream_complete("One, two,", **told)
    assert [one async for one in made][-1].text == text


def test_histories_become_chats() -> None:
    call = ToolCallBlock(tool_call_id="1", tool_name="area", tool_kwargs={"city": "Rome"})
    made = chat_of(
        [
            ChatMessage("Be short.", role=MessageRole.SYSTEM),
            ChatMessage("How large"),
            ChatMessage("is Rome?"),
            ChatMessage([ThinkingBlock(content="Hm."), TextBlock(text="So."), call], role="model"),
            ChatMessage("12", role="tool", additional_kwargs={"tool_call_id": "1"}),
        ]
    )
    function = {"name": "area", "arguments": '{"city": "Rome"}'}
    assert made == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "How large\n\nis Rome?"},
        {
            "role": "assistant",
            "content": "So.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "12", "tool_call_id": "1"},
    ]
    with pytest.raises(OptionError, match="ImageBlock"):
        chat_of([ChatMessage([ImageBlock(url="https://a.b/c.png")])])


def test_details_of_answers(llm: StructgenLLM) -> None:
    made = llm.chat(
        [ChatMessage("Tell me of Rome.")],
        output_type=City,
        logprobs=True,
        top_logprobs=2,
        abstain_below={"$.country": 0.5},
    )
    known = made.additional_kwargs
    assert known["finish_reason"] == "stop"
    assert known["total_tokens"] == known["prompt_tokens"] + known["completion_tokens"]
    assert "$.country" in known["confidence"]
    assert made.raw["usage"]["prompt_tokens"] == known["prompt_tokens"]
    assert "".join(of[0].token for of in made.logprobs or ()) == made.message.content


def test_tokens_are_counted_by_the_model(runner: Runner) -> None:
    counter = TokenCountingHandler(tokenizer=lambda text: runner.tokenize_text(text))
    llm = StructgenLLM(
        model="small", runner=runner, max_tokens=4, callback_manager=CallbackManager([counter])
    )
    made = llm.chat([ChatMessage("Say hi.")])
    assert counter.total_llm_token_count == made.additional_kwargs["total_tokens"]


def test_thoughts(llm: StructgenLLM) -> None:
    asked: dict[str, Any] = {"output_type": bool, "thinking_budget": 15, "seed": 1}
    made = llm.chat([ChatMessage("Is water wet?")], **asked)
    thought, text = made.message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert text.text in ("true", "false")
    last = list(llm.stream_chat([ChatMessage("Is water wet?")], **asked))[-1]
    assert last.message.blocks[1] == text


def test_agents_do_not_wait_in_their_loop_for_a_model_to_load(llm: StructgenLLM) -> None:
    """LlamaIndex's ask for the context window there; the smallest model took 3 s to say it."""
    with Runner({"small": "smollm2-135m-instruct"}) as runner:
        assert StructgenLLM(model="small", runner=runner).metadata.context_window == 8192
        assert not runner.is_model_loaded("small")
    assert llm.runner is not None
    assert llm.runner.max_sequence_length("small") == 8192


def test_fields_and_errors(llm: StructgenLLM) -> None:
    assert llm.metadata.num_output == 40
    again = StructgenLLM.from_dict(llm.to_dict())
    assert (again.model, again.max_tokens, again.runner) == ("small", 40, None)
    with pytest.raises(OptionError, match="prediction"):
        llm.complete("Hi", prediction={})
    with pytest.raises(OptionError, match="cannot be set"):
        llm.complete("Hi", n=2)
    for forced in ({"tool_required": True}, {"tool_choice": "weather"}, {"tool_choice": "any"}):
        with pytest.raises(OptionError, match="requires tools"):
            llm.chat_with_tools([], "Hi", **forced)
    with pytest.raises(BudgetTooSmall):
        llm.structured_predict(City, ASK, {"max_tokens": 2}, city="Rome")
    with pytest.raises(ValidationError, match="temprature"):
        StructgenLLM(model="small", temprature=1)  # type: ignore[call-arg]
    for name in ("messages_to_prompt", "completion_to_prompt", "query_wrapper_prompt"):
        with pytest.raises(OptionError, match=f"{name} is not supported"):
            StructgenLLM(model="small", **{name: str})
        StructgenLLM(model="small", **{name: None})


# -- embeddings -------------------------------------------------------------------------------


async def test_an_index(llm: StructgenLLM, runner: Runner) -> None:
    embedding = StructgenEmbedding(model_name="vectors", runner=runner)
    documents = [Document(text="A cat purrs."), Document(text="Tax law is dry.")]
    index = VectorStoreIndex.from_documents(documents, embed_model=embedding)
    (found,) = index.as_retriever(similarity_top_k=1).retrieve("kitten")
    assert found.text == "A cat purrs."
    asked = index.as_query_engine(llm=llm, similarity_top_k=1, output_cls=City)
    assert isinstance(asked.query("Where is Rome?").response, City)
    assert await embedding.aget_text_embedding("a") == embedding.get_text_embedding("a")
    batch = await embedding.aget_text_embedding_batch(["a", "b"])
    assert batch == embedding.get_text_embedding_batch(["a", "b"])
    short = StructgenEmbedding(model_name="vectors", runner=runner, dimensions=8)
    assert len(await short.aget_query_embedding("a")) == 8


def test_the_error_without_the_package_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['llama_index.core'] = None\n"
        "import structgen.integrations.llama_index"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'structgen[llama-index]'" in made.stderr
