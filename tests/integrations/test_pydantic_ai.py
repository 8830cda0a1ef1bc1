"""Agents of pydantic-ai with a real model: forms by mask, tools, streams, settings, errors.

The outputs of a model of 135 million parameters are not about anything; that they have their form,
at the first request, is what is tested. Requests are counted, and nothing may be asked again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pydantic_ai
import pytest
from pydantic import BaseModel, Field, field_validator
from pydantic_ai import (
    Agent,
    Embedder,
    ModelRetry,
    NativeOutput,
    PromptedOutput,
    RunContext,
    StructuredDict,
    TextOutput,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai import messages as parts
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelNotFoundError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ToolOrOutput

from structgen import Runner
from structgen.integrations.frameworks import own_runner, runner_of
from structgen.integrations.pydantic_ai import (
    StructgenEmbeddingModel,
    StructgenModel,
    StructgenProvider,
)

SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": 50}


@pytest.fixture(scope="module")
def model(runner: Runner) -> StructgenModel:
    return StructgenModel("small", provider=runner, settings=SETTINGS)


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway", "Chile"]


class River(BaseModel):
    """A river."""

    length_km: int = Field(ge=0, le=9999)


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    """One event loop for all: ``run_sync`` makes one where there is none, and leaves it open."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.get_event_loop().run_until_complete(work)


def agent(model: Any, output_type: Any = str, **options: Any) -> Agent[Any, Any]:
    """One that may not ask again."""
    return Agent(model, output_type=output_type, retries=0, **options)


# -- forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output_type", "python_type"),
    [
        (City, City),
        (ToolOutput(City, name="city"), City),
        (PromptedOutput(City), City),
        ([ToolOutput(City), ToolOutput(River)], (City, River)),
        (NativeOutput([City, bool]), (City, bool)),
        (list[Literal["red", "blue"]], list),
        (bool, bool),
        ([City, str], (City, str)),
        (StructuredDict({"type": "object", "properties": {"n": {"enum": [7]}}}, name="N"), dict),
        (str, str),
    ],
    ids=lambda one: str(one)[:40],
)
def test_outputs_have_their_form_at_the_first_request(
    model: StructgenModel, output_type: Any, python_type: Any
) -> None:
    result = agent(model, output_type).run_sync("Rome is in Italy.")
    assert isinstance(result.output, python_type)
    assert result.usage.requests == 1


def test_output_functions_are_called(model: StructgenModel) -> None:
    def north(city: City) -> str:
        return f"{city.country}!"

    def shout(text: str) -> str:
        return text.upper()

    for how in (north, ToolOutput(north)):
        said = agent(model, how).run_sync("Oslo is in Norway.").output
        assert said in ("Italy!", "Norway!", "Chile!")
    said = agent(model, TextOutput(shout)).run_sync("Say hi.", model_settings={"max_tokens": 4})
    assert said.output == said.output.upper()


def test_output_validators_send_back_what_is_wrong(model: StructgenModel) -> None:
    seen = []
    asked = Agent(model, output_type=River, retries=2)

    @asked.output_validator
    def not_at_once(output: River) -> River:
        seen.append(output)
        if len(seen) < 2:
            raise ModelRetry("Measure again.")
        return output

    result = asked.run_sync("How long is the Po?")
    assert len(seen) == result.usage.requests == 2


def test_a_validator_of_the_class_is_pydantics(model: StructgenModel) -> None:
    """What only code can check is no matter of form: pydantic-ai asks again, with the reason."""
    seen: list[int] = []

    class Picky(BaseModel):
        n: Literal[1, 2]

        @field_validator("n")
        @classmethod
        def not_at_once(cls, n: int) -> int:
            seen.append(n)
            assert len(seen) > 1, "read it again"
            return n

    asked = Agent(model, output_type=Picky, retries=1)
    result = asked.run_sync("1 or 2?")
    assert result.output.n == seen[-1]
    assert result.usage.requests == 2


# -- tools ------------------------------------------------------------------------------------


@dataclass
class Bank:
    balance: int


def test_tools_with_dependencies_and_a_typed_output(model: StructgenModel) -> None:
    """As pydantic-ai's example of a bank: a tool reads the dependencies, the output is typed."""

    class Advice(BaseModel):
        block_card: bool
        risk: int = Field(ge=0, le=10)

    support = agent(
        model, ToolOutput(Advice), deps_type=Bank, instructions="You help the customers of a bank."
    )
    asked: list[bool] = []

    @support.tool
    def balance(ctx: RunContext[Bank], with_pending: bool) -> str:
        """The customer's balance."""
        asked.append(with_pending)
        return f"{ctx.deps.balance} EUR"

    def settings(ctx: RunContext[Bank]) -> dict[str, Any]:
        return {"tool_choice": ["balance"]} if ctx.run_step == 1 else {"tool_choice": "none"}

    class First(AbstractCapability[Bank]):
        def get_model_settings(self) -> Any:
            return settings

    result = support.run_sync(
        "I lost my card!",
        deps=Bank(balance=12),
        capabilities=[First()],
        model_settings={"parallel_tool_calls": False},
    )
    assert isinstance(result.output, Advice)
    assert len(asked) == 1
    assert result.usage.requests == 2
    returned = [
        part
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, parts.ToolReturnPart) and part.tool_name == "balance"
    ]
    assert [part.content for part in returned] == ["12 EUR"]
    assert result.all_messages()[1].finish_reason == "tool_call"


def test_calls_or_a_value(model: StructgenModel) -> None:
    """Native output beside tools: a request is answered by calls, or by a value of the type."""

    def population(city: Literal["Rome", "Oslo"]) -> int:
        """How many people live in a city."""
        return 7

    params = ModelRequestParameters(
        function_tools=[pydantic_ai.Tool(population).tool_def],
        output_mode="native",
        output_object=OutputObjectDefinition(json_schema=City.model_json_schema()),
    )
    history = [parts.ModelRequest([parts.UserPromptPart("Tell me of Rome.")])]
    for seed in range(3):
        made = run(model.request(list(history), {"temperature": 1.5, "seed": seed}, params))
        if isinstance(made.parts[0], parts.TextPart):
            City.model_validate_json(made.text)
            assert made.finish_reason == "stop"
        for call in made.tool_calls:
            assert call.args_as_dict()["city"] in ("Rome", "Oslo")


def test_parallel_calls(model: StructgenModel) -> None:
    def dice(sides: Literal[6, 20]) -> int:
        """Throw dice."""
        return sides

    params = ModelRequestParameters(
        function_tools=[pydantic_ai.Tool(dice).tool_def], allow_text_output=False
    )
    history = [parts.ModelRequest([parts.UserPromptPart("Throw the dice twice, both kinds.")])]

    def calls(**settings: Any) -> list[parts.ToolCallPart]:
        made = run(model.request(list(history), settings, params))
        assert all(isinstance(part, parts.ToolCallPart) for part in made.parts)
        return list(made.parts)

    (one,) = calls(parallel_tool_calls=False)
    assert one.args_as_dict()["sides"] in (6, 20)
    several = calls(max_tokens=70)
    assert len(several) >= 1
    assert len({call.tool_call_id for call in several}) == len(several)
    assert all(call.args_as_dict()["sides"] in (6, 20) for call in several)


def test_tool_choices_become_fields(runner: Runner) -> None:
    from pydantic_ai.tools import ToolDefinition

    from structgen.integrations.pydantic_ai import fields_of

    tools = [ToolDefinition(name=name) for name in ("a", "b")]
    output = [ToolDefinition(name="final", kind="output")]

    def chosen(choice: Any, *, text: bool, outputs: Any = output) -> tuple[Any, list[str]]:
        params = ModelRequestParameters(
            function_tools=tools, output_tools=outputs, allow_text_output=text
        )
        made = fields_of({"tool_choice": choice}, params)
        choice = made["tool_choice"]
        if isinstance(choice, dict):
            inner = choice["allowed_tools"]
            return inner["mode"], [tool["function"]["name"] for tool in inner["tools"]]
        return choice, [tool["function"]["name"] for tool in made["tools"]]

    assert chosen(None, text=True) == ("auto", ["a", "b", "final"])
    assert chosen(None, text=False) == ("required", ["a", "b", "final"])
    assert chosen("none", text=True, outputs=[]) == ("none", ["a", "b"])
    assert chosen("none", text=False) == ("required", ["final"])
    assert chosen(["b"], text=False) == ("required", ["b"])
    assert chosen(ToolOrOutput(["a"]), text=True) == ("auto", ["a", "final"])
    with pytest.raises(UserError, match="no function tools"):  # as ``model_request`` may send it
        fields_of({"tool_choice": "required"}, ModelRequestParameters())


def test_an_empty_description_of_a_tool_is_none() -> None:
    from pydantic_ai.tools import ToolDefinition

    from structgen.integrations.pydantic_ai import fields_of

    tools = [ToolDefinition(name="a", description=""), ToolDefinition(name="b", description="B")]
    made = fields_of({}, ModelRequestParameters(function_tools=tools))
    assert [tool["function"].get("description") for tool in made["tools"]] == [None, "B"]


# -- streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize("output_type", [City, ToolOutput(City)], ids=["native", "tool"])
def test_partial_outputs(model: StructgenModel, output_type: Any) -> None:
    async def streamed() -> tuple[list[Any], Any, Any]:
        async with agent(model, output_type).run_stream("Rome is in Italy.") as run:
            seen = [dict(one) async for one in run.stream_output(debounce_by=None)]
            return seen, await run.get_output(), run.usage

    seen, output, usage = run(streamed())
    assert isinstance(output, City)
    assert seen[-1] == dict(output)
    assert len(seen) > 1
    assert usage.requests == 1
    assert usage.output_tokens > 0
    assert agent(model, output_type).run_sync("Rome is in Italy.").output == output


def test_text_and_events(model: StructgenModel) -> None:
    async def streamed() -> tuple[str, Any]:
        async with agent(model).run_stream("Say hi.", model_settings={"max_tokens": 6}) as run:
            text = "".join([piece async for piece in run.stream_text(delta=True, debounce_by=None)])
            return text, run.response

    text, response = run(streamed())
    whole = agent(model).run_sync("Say hi.", model_settings={"max_tokens": 6})
    assert text == whole.output
    assert response.finish_reason == whole.response.finish_reason
    assert response.usage.output_tokens == whole.response.usage.output_tokens
    assert response.provider_name == "structgen"
    assert response.provider_details == whole.response.provider_details


def test_leaving_a_stream_ends_the_answer(model: StructgenModel, runner: Runner) -> None:
    async def left() -> str:
        settings = {"max_tokens": 4000, "structgen_repetition_penalty": 1.3}
        async with agent(model).run_stream("Tell a story.", model_settings=settings) as run:
            async for text in run.stream_text(debounce_by=None):
                await run.cancel()
                return text
        raise AssertionError

    assert run(left())
    # The model is free again: the next answer does not wait for 4,000 tokens.
    assert agent(model, bool).run_sync("Yes?").output in (True, False)


# -- settings, usage, details -----------------------------------------------------------------


def test_usage_is_counted_and_can_be_counted_before(model: StructgenModel) -> None:
    result = agent(model, ToolOutput(City), instructions="Be short.").run_sync("Rome is in Italy.")
    assert result.usage.details.keys() >= {"reasoning_tokens", "accepted_prediction_tokens"}

    with pytest.raises(UsageLimitExceeded):
        agent(model).run_sync(
            "word " * 50,
            usage_limits=UsageLimits(input_tokens_limit=40, count_tokens_before_request=True),
        )
    history = [parts.ModelRequest([parts.UserPromptPart("Say hi.")])]
    params = ModelRequestParameters()
    before = run(model.count_tokens(list(history), {"max_tokens": 1}, params))
    made = run(model.request(list(history), {"max_tokens": 1}, params))
    assert before.input_tokens == made.usage.input_tokens


def test_log_probabilities_and_confidence(model: StructgenModel) -> None:
    result = agent(model, City).run_sync(
        "Rome is in Italy.",
        model_settings={
            "structgen_logprobs": True,
            "structgen_top_logprobs": 2,
            "structgen_abstain_below": {"$.country": 0.999999},
        },
    )
    details = result.response.provider_details
    assert details["finish_reason"] == "stop"
    assert "".join(one["token"] for one in details["logprobs"]) == result.response.text
    assert all(len(one["top_logprobs"]) <= 2 for one in details["logprobs"])
    known = details["confidence"]["$.country"]
    sure = {one["value"]: one["probability"] for one in known["alternatives"]}
    assert known["probability"] == sure[result.output.country]
    assert sum(sure.values()) == pytest.approx(1, abs=0.01)
    assert details["abstained"] == ([] if known["probability"] >= 0.999999 else ["$.country"])
    asked = {"structgen_trace": True, "structgen_logprobs": True, "max_tokens": 4}

    async def streamed() -> Any:
        async with agent(model).run_stream("Say hi.", model_settings=asked) as stream:
            await stream.get_output()
            return stream.response.provider_details

    told = run(streamed())
    trace = told["trace"]
    whole = agent(model).run_sync("Say hi.", model_settings=asked).response
    assert told == whole.provider_details
    assert "".join(step["token"] for step in trace if not step["is_end"]) == whole.text


def test_thoughts(model: StructgenModel) -> None:
    result = agent(model, bool).run_sync(
        "Is water wet?",
        model_settings={"structgen_thinking_budget": 30, "temperature": 1, "seed": 1},
    )
    thought, text = result.response.parts
    assert isinstance(thought, parts.ThinkingPart)
    assert thought.content
    assert isinstance(text, parts.TextPart)
    assert 0 < result.usage.details["reasoning_tokens"] <= 30
    again = agent(model, bool).run_sync(
        "Sure?", message_history=result.all_messages(), model_settings={"thinking": False}
    )
    assert [type(part) for part in again.response.parts] == [parts.TextPart]


def test_tags_in_a_value_are_its_text(model: StructgenModel) -> None:
    quoted = StructuredDict(
        {"type": "object", "properties": {"q": {"enum": ["<think>a</think>b"]}}}
    )
    asked = agent(model, NativeOutput(quoted))
    assert asked.run_sync("Quote it.").output == {"q": "<think>a</think>b"}


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"extra_headers": {"a": "b"}}, UserError, "extra_headers"),
        ({"citations": True}, UserError, "citations"),
        ({"wat": 1}, UserError, "wat"),
        ({"system_prompt": "Be brief."}, UserError, "system_prompt"),
        ({"extra_body": {"messages": []}}, UserError, "messages"),
        ({"structgen_tools": []}, UserError, "tools"),
        ({"extra_body": 3}, UserError, "extra_body"),
        ({"timeout": "soon"}, UserError, "timeout"),
        ({"presence_penalty": 2.5}, ModelRequestRejectedError, "presence_penalty"),
        ({"frequency_penalty": -2.5}, ModelRequestRejectedError, "frequency_penalty"),
        ({"service_tier": "flex"}, ModelRequestRejectedError, "service_tier"),
        ({"structgen_wat": 1}, ModelRequestRejectedError, "wat"),
        ({"top_p": 7}, ModelRequestRejectedError, "top_p"),
        ({"max_tokens": 1}, ModelRequestRejectedError, "budget"),
        ({"timeout": 1e-9}, ModelTimeoutError, "timeout"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_settings_are_refused_by_name(
    model: StructgenModel, settings: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        agent(model, City).run_sync("Rome", model_settings=settings)


def test_settings_are_honoured(model: StructgenModel) -> None:
    def said(**settings: Any) -> str:
        text: str = agent(model).run_sync("Say hi.", model_settings=settings).output
        return text

    free = {"temperature": 1.5, "max_tokens": 8}
    assert said(**free, seed=1) == said(**free, seed=1)
    assert len({said(**free, seed=seed) for seed in range(4)}) > 1
    first = said(max_tokens=8)
    assert said(max_tokens=8, top_k=1, temperature=1.5, seed=3) == first
    assert said(max_tokens=8, top_p=1e-6, temperature=1.5, seed=3) == first
    barred = {str(token): -100 for token in model.runner.tokenize_text(first[:5])}
    assert said(max_tokens=8, logit_bias=barred)[:5] != first[:5]
    cut = said(max_tokens=8, stop_sequences=[first[2:4]])
    assert first.startswith(cut)
    assert len(cut) < len(first)
    # Those that hold as they are, or are meant for other models.
    assert (
        said(
            max_tokens=8,
            max_retries=0,
            cache=True,
            presence_penalty=0.0,
            service_tier="auto",
            openai_reasoning_effort="high",
            anthropic_metadata={"user_id": "me"},
            timeout=100,
            request_timeout=100,
        )
        == first
    )


# -- histories --------------------------------------------------------------------------------


def test_a_history_as_a_chat() -> None:
    from structgen.integrations.pydantic_ai import chat_of

    history = [
        parts.ModelRequest(
            [
                parts.SystemPromptPart("One."),
                parts.UserPromptPart(["Hello,", parts.CachePoint(), "you."]),
                parts.UserPromptPart("And you?"),
            ]
        ),
        parts.ModelResponse(
            [
                parts.ThinkingPart("hm"),
                parts.TextPart("I look."),
                parts.ToolCallPart("look", {"at": "sky"}, tool_call_id="c1"),
            ]
        ),
        parts.ModelRequest(
            [
                parts.ToolReturnPart("look", {"seen": "blue"}, tool_call_id="c1"),
                parts.UserPromptPart("Well?"),
            ]
        ),
    ]
    instructions = [parts.InstructionPart("Two.")]
    function = {"name": "look", "arguments": '{"at":"sky"}'}
    assert chat_of(history, instructions) == [
        {"role": "system", "content": "One.\n\nTwo."},
        {"role": "user", "content": "Hello,\n\nyou.\n\nAnd you?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"seen":"blue"}'},
        {"role": "user", "content": "Well?"},
    ]
    image = parts.ModelRequest([parts.UserPromptPart([parts.ImageUrl("https://a.b/c.png")])])
    with pytest.raises(UserError, match="ImageUrl"):
        chat_of([image], None)
    with pytest.raises(UserError, match="prepare_messages"):
        chat_of([parts.ModelRequest([parts.SpeechPart(speaker="user", transcript="no")])], None)


def test_conversations_go_on(model: StructgenModel) -> None:
    asked = agent(model, instructions="Be short.")
    first = asked.run_sync("Say hi.", model_settings={"max_tokens": 6})
    more = asked.run_sync(
        "Again.", message_history=first.all_messages(), model_settings={"max_tokens": 6}
    )
    assert more.usage.input_tokens > first.usage.input_tokens
    assert more.usage.cache_read_tokens > 0


# -- models and errors ------------------------------------------------------------------------


def test_errors_are_those_that_fallbacks_know(runner: Runner) -> None:
    gone = StructgenModel("nobody", provider=runner)
    with pytest.raises(ModelNotFoundError, match="nobody"):
        agent(gone).run_sync("Hi")

    async def streamed() -> None:
        async with agent(gone).run_stream("Hi"):
            pass

    with pytest.raises(ModelNotFoundError, match="nobody"):
        run(streamed())
    other = TestModel(custom_output_text="me")
    assert agent(FallbackModel(gone, other)).run_sync("Hi").output == "me"
    assert issubclass(ModelRequestRejectedError, ModelAPIError)


def test_a_schema_that_cannot_be_enforced_is_refused(model: StructgenModel) -> None:
    wrong = StructuredDict({"type": "object", "properties": {"x": {"type": "wat"}}}, name="X")
    with pytest.raises(ModelRequestRejectedError) as caught:
        agent(model, NativeOutput(wrong)).run_sync("Hi")
    assert (
        caught.value.provider_error_code == "response_format.json_schema.schema.properties.x.type"
    )


@pytest.mark.usefixtures("asked_arguments")
def test_objects_have_the_members_that_they_name(model: StructgenModel) -> None:
    from pydantic_ai.tools import ToolDefinition

    is_open: dict[str, Any] = {"type": "object", "properties": {"n": {"enum": [7]}}}
    hot: Any = {"temperature": 2.0, "seed": 1, "max_tokens": 30}
    form = OutputObjectDefinition(is_open)
    params = ModelRequestParameters(output_mode="native", output_object=form)

    def asked(params: ModelRequestParameters) -> Any:
        go: list[Any] = [parts.ModelRequest([parts.UserPromptPart("Go")])]
        return run(model.request(go, hot, params))

    (text,) = asked(params).parts
    assert isinstance(text, parts.TextPart)
    assert json.loads(text.content) in ({}, {"n": 7})
    tool = ToolDefinition(name="f", parameters_json_schema=is_open)
    params = ModelRequestParameters(function_tools=[tool], allow_text_output=False)
    for call in asked(params).tool_calls:
        assert call.args_as_dict() in ({}, {"n": 7})


def test_models_without_a_provider_share_one_runner_with_all_adapters() -> None:
    first, second = (StructgenModel("smollm2-135m-instruct") for _ in range(2))
    vectors = StructgenEmbeddingModel("all-minilm-l6-v2")
    assert first.runner is second.runner is vectors._provider.client is own_runner()
    other = "llama-3.2-3b-instruct"
    runner_of(None, other)  # as another adapter names one
    assert {other, "smollm2-135m-instruct", "all-minilm-l6-v2"} <= set(first.runner.list_models())
    assert other not in first._provider._known  # not unloaded with those of agents


def test_an_own_runner_holds_its_models_while_it_is_entered() -> None:
    async def used() -> tuple[str, str]:
        provider = StructgenProvider()
        try:
            model = StructgenModel("all-minilm-l6-v2", provider=provider)
            vectors = StructgenEmbeddingModel("all-minilm-l6-v2", provider=provider)
            async with model:  # as `async with agent` does
                await vectors.count_tokens("a")
                within = provider.client.get_model_status()
            return within, provider.client.get_model_status()
        finally:
            await provider.client.aclose()

    assert run(used()) == ("loaded", "unloaded")


def test_embeddings(runner: Runner) -> None:
    model = StructgenEmbeddingModel("vectors", provider=runner)
    embedder = Embedder(model)

    async def asked() -> tuple[Any, Any, Any, Any]:
        return (
            await embedder.embed_documents(["a cat", "a dog"]),
            await embedder.embed_query("a cat", settings={"dimensions": 8}),
            await embedder.max_input_tokens(),
            await embedder.count_tokens("a cat"),
        )

    documents, query, longest, count = run(asked())
    assert [len(one) for one in documents.embeddings] == [384, 384]
    assert documents.usage.input_tokens == 2 * count
    assert documents.provider_name == "structgen"
    assert len(query.embeddings[0]) == 8
    assert longest
    for settings in ({"extra_headers": {"a": "b"}}, {"wat": 1}, {"extra_body": {"input": "b"}}):
        with pytest.raises(UserError):
            run(embedder.embed_query("a", settings=settings))
    with pytest.raises(ModelRequestRejectedError, match="token"):
        run(embedder.embed_query("word " * 2000))
    assert run(embedder.embed_query("word " * 2000, settings={"truncate": True}))


def test_the_error_without_the_package_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pydantic_ai'] = None\nimport structgen.integrations.pydantic_ai"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'structgen[pydantic-ai]'" in made.stderr
