"""Agent frameworks that ask the server: the OpenAI Agents SDK, smolagents, BAML's client."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import agents
import openai
import pytest
import smolagents
from doc_blocks import block
from one_server import KEY, Served
from pydantic import BaseModel, Field
from smolagents import tool


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway"]


# -- the OpenAI Agents SDK --------------------------------------------------------------------

LIMIT = agents.ModelSettings(max_tokens=80)
CALLS = agents.ModelSettings(max_tokens=80, tool_choice="required")


@agents.function_tool
def weather(city: Literal["Rome", "Oslo"]) -> str:
    """Tell the weather of a city."""
    return f"12 degrees in {city}"


@pytest.fixture(scope="module", autouse=True)
def untraced() -> None:
    agents.set_tracing_disabled(True)


Ran: TypeAlias = "Callable[[Callable[[Any], Awaitable[Any]]], Any]"


@pytest.fixture(params=[agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def ran(request: pytest.FixtureRequest, served: Served) -> Ran:
    """Runs what is given a model, in an event loop and with a client of its own."""

    async def run(work: Callable[[Any], Awaitable[Any]]) -> Any:
        url = f"{served.root}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            return await work(request.param(model="small", openai_client=client))

    return lambda work: asyncio.run(run(work))


def namer(model: Any) -> Any:
    return agents.Agent("namer", model=model, output_type=City, model_settings=LIMIT)


def caller(model: Any) -> Any:
    return agents.Agent(
        "caller",
        model=model,
        tools=[weather],
        model_settings=CALLS,
        tool_use_behavior="stop_on_first_tool",
    )


def test_agents_give_typed_outputs_in_one_turn(ran: Ran) -> None:
    made = ran(lambda model: agents.Runner.run(namer(model), "Name a city.", max_turns=1))
    assert isinstance(made.final_output, City)
    assert made.context_wrapper.usage.requests == 1


def test_agents_run_tools_and_read_their_results(ran: Ran) -> None:
    async def work(model: Any) -> tuple[Any, Any]:
        called = await agents.Runner.run(caller(model), "Weather in Oslo?", max_turns=1)
        asked = [*called.to_input_list(), {"role": "user", "content": "Now name a city."}]
        return called, await agents.Runner.run(namer(model), asked, max_turns=1)

    called, answered = ran(work)
    assert called.final_output in ("12 degrees in Rome", "12 degrees in Oslo")
    assert isinstance(answered.final_output, City)


def test_agents_stream(ran: Ran) -> None:
    async def work(model: Any) -> list[tuple[Any, list[str]]]:
        found = []
        for agent in (namer(model), caller(model)):
            made = agents.Runner.run_streamed(agent, "Name a city, or its weather.", max_turns=1)
            seen = [event.type async for event in made.stream_events()]
            found.append((made.final_output, seen))
        return found

    (city, pieces), (told, events) = ran(work)
    assert isinstance(city, City)
    assert pieces.count("raw_response_event") > 5
    assert told.startswith("12 degrees in ")
    assert "run_item_stream_event" in events


def test_agents_hand_over(ran: Ran) -> None:
    async def work(model: Any) -> Any:
        first = agents.Agent("a", model=model, handoffs=[namer(model)], model_settings=CALLS)
        return await agents.Runner.run(first, "Name a city.", max_turns=2)

    made = ran(work)
    assert isinstance(made.final_output, City)
    assert made.last_agent.name == "namer"


# -- smolagents -------------------------------------------------------------------------------


@tool
def population(city: str) -> str:
    """Tell how many people live in a city.

    Args:
        city: the city.
    """
    return f"717,000 in {city}"


@pytest.fixture
def small(served: Served) -> Any:
    return smolagents.OpenAIServerModel(
        model_id="small", api_base=f"{served.root}/v1", api_key=KEY, max_tokens=80
    )


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def test_smolagents_models_keep_a_schema(small: Any) -> None:
    schema = {"name": "City", "schema": City.model_json_schema()}
    form = {"type": "json_schema", "json_schema": schema}
    made = small.generate(asked("Name a city."), response_format=form)
    City.model_validate_json(made.content)
    pieces = small.generate_stream(asked("Name a city."), response_format=form)
    City.model_validate_json("".join(piece.content or "" for piece in pieces))


def test_smolagents_call_tools_with_arguments_that_fit(small: Any) -> None:
    agent = smolagents.ToolCallingAgent(
        tools=[population], model=small, max_steps=2, verbosity_level=0
    )
    # Its own prompt is thousands of tokens, which the model would read at each step.
    agent.prompt_templates["system_prompt"] = "Call the tools that you are given."
    agent.run("How many people live in Oslo?")
    steps = [one for one in agent.memory.steps if isinstance(one, smolagents.ActionStep)]
    assert any(one.tool_calls for one in steps)
    for one in steps:
        assert not isinstance(one.error, smolagents.AgentParsingError)
        assert not isinstance(one.error, smolagents.AgentToolCallError)


# -- BAML -------------------------------------------------------------------------------------

BAML = """
generator target {{
  output_type "python/pydantic"
  output_dir "../"
  version "{version}"
  default_client_mode sync
}}
client<llm> Local {{
  provider openai-generic
  options {{
    base_url "http://127.0.0.1:8000/v1"
    model "small"
  }}
}}
enum Country {{
  Italy
  Norway
}}
class City {{
  name string
  country Country
}}
function NameCity(question: string) -> City {{
  client Local
  prompt #"
    {{{{ question }}}}
    {{{{ ctx.output_format }}}}
  "#
}}
"""


ASK = """
import os

URL, KEY = os.environ["URL"], os.environ["KEY"]
exec(os.environ["BLOCK"])
assert isinstance(city, types.City)
options = {"client_registry": registry}
for question in ("And another?", "What is 1 + 1?"):
    assert isinstance(b.NameCity(question, options), types.City)
stream = b.stream.NameCity("Name a city.", options)
assert list(stream)
assert isinstance(stream.get_final_response(), types.City)
"""


def test_bamls_client_reads_every_answer(tmp_path: Path, served: Served) -> None:
    """In a process of its own: while it waits for a stream it holds the lock of Python's."""
    (tmp_path / "baml_src").mkdir()
    source = BAML.format(version=importlib.metadata.version("baml-py"))
    (tmp_path / "baml_src" / "main.baml").write_text(source)
    command = [str(Path(sys.executable).with_name("baml-cli")), "generate", "--from", "baml_src"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    given = {
        "URL": f"{served.root}/v1",
        "KEY": KEY,
        "BLOCK": block("docs/clients.md", "from baml_client import"),
        "BAML_LOG": "off",
        "PYTHONPATH": str(tmp_path),
    }
    made = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
