"""Clients that mend wrong answers by asking again, and have no need to: instructor, LiteLLM, DSPy.

They hold others' packages back (openai, rich, huggingface-hub), so that they are in no environment
with these tests' other packages: skipped there, and run in one of their own, by .ci/run too.

    pip install '.[clients]' && pytest -o filterwarnings=default tests/server/test_client_*.py
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Union

import openai
import pytest
from doc_blocks import run
from one_server import KEY, Served
from pydantic import BaseModel, Field

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network when imported
pytestmark = pytest.mark.clients

WHY = "needs an environment of its own: pip install '.[clients]'"
CITY = [{"role": "user", "content": "Name a city."}]


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway"]


class Dog(BaseModel):
    """A dog."""

    age: int = Field(ge=0, le=20)


@pytest.fixture
def page(served: Served, client: openai.OpenAI) -> dict[str, Any]:
    """The names that the blocks of docs/clients.md share."""
    asked = [{"role": "user", "content": "Name a city."}]
    url = f"{served.root}/v1"
    return {"client": client, "asked": asked, "City": City, "URL": url, "KEY": KEY}


PAGE = "docs/clients.md"


# -- instructor -------------------------------------------------------------------------------


@pytest.fixture
def instructor() -> Any:
    return pytest.importorskip("instructor", reason=WHY)


def patched(instructor: Any, client: openai.OpenAI, mode: str) -> Any:
    return instructor.from_openai(client, mode=instructor.Mode[mode])


ASKED: dict[str, Any] = {"messages": CITY, "model": "small", "max_tokens": 80, "max_retries": 0}
SCHEMA = City.model_json_schema()
FORM = {"type": "json_schema", "json_schema": {"name": "City", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("mode", "extra"),
    [
        ("TOOLS", {}),
        ("JSON_SCHEMA", {}),
        ("RESPONSES_TOOLS", {}),
        # Modes that tell the form in the prompt only: the request has to say it, too.
        ("JSON", {"response_format": FORM}),
        ("MD_JSON", {"structured_outputs": {"json": SCHEMA}}),
    ],
)
def test_instructors_modes_without_a_retry(
    instructor: Any, client: openai.OpenAI, mode: str, extra: dict[str, Any]
) -> None:
    asking = patched(instructor, client, mode)
    given = {**ASKED, "response_model": City, **({"extra_body": extra} if extra else {})}
    assert isinstance(asking.create(**given), City)
    partials = list(asking.create_partial(**given))
    assert len(partials) > 1
    City.model_validate(partials[-1].model_dump())


def test_instructors_parallel_tools(instructor: Any, client: openai.OpenAI) -> None:
    asking = patched(instructor, client, "PARALLEL_TOOLS")
    several = Iterable[Union[City, Dog]]  # noqa: UP007 - as instructor reads it
    body = {"tool_choice": "required"}  # else the model may answer in words
    made = list(asking.create(response_model=several, extra_body=body, **ASKED))
    assert made
    assert all(isinstance(one, (City, Dog)) for one in made)


def test_instructors_block_of_the_documents(instructor: Any, page: dict[str, Any]) -> None:
    run(PAGE, "import instructor", page)
    assert isinstance(page["city"], City)


# -- LiteLLM ----------------------------------------------------------------------------------


@pytest.fixture
def litellm() -> Any:
    return pytest.importorskip("litellm", reason=WHY)


@pytest.fixture
def local(served: Served) -> dict[str, Any]:
    return {
        "model": "openai/small",
        "api_base": f"{served.root}/v1",
        "api_key": KEY,
        "num_retries": 0,
        "max_tokens": 80,
        "messages": CITY,
    }


def test_litellms_completions(litellm: Any, local: dict[str, Any]) -> None:
    for model in ("openai/small", "hosted_vllm/small"):
        made = litellm.completion(**{**local, "model": model}, response_format=City)
        City.model_validate_json(made.choices[0].message.content)
    pieces = litellm.completion(**local, response_format=City, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    City.model_validate_json(text)


def test_litellms_tools_and_others(litellm: Any, local: dict[str, Any], served: Served) -> None:
    parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}}
    function = {"name": "weather", "parameters": {**parameters, "required": ["city"]}}
    tools = [{"type": "function", "function": function}]
    made = litellm.completion(**local, tools=tools, tool_choice="required")
    calls = made.choices[0].message.tool_calls
    assert calls
    assert all(one.function.arguments in ('{"city": "Rome"}', '{"city": "Oslo"}') for one in calls)
    where = {"api_base": f"{served.root}/v1", "api_key": KEY}
    vectors = litellm.embedding(model="openai/vectors", input=["a cat", "a dog"], **where)
    assert [len(one["embedding"]) for one in vectors.data] == [384, 384]
    ranked = litellm.rerank(
        model="hosted_vllm/vectors",
        query="the capital of France",
        documents=["Dogs bark.", "Paris is the capital of France."],
        **where,
    )
    assert ranked.results[0]["index"] == 1


def test_litellms_block_of_the_documents(litellm: Any, page: dict[str, Any]) -> None:
    run(PAGE, "import litellm", page)
    City.model_validate_json(page["named"].choices[0].message.content)


# -- DSPy -------------------------------------------------------------------------------------


@pytest.fixture
def lm(served: Served) -> Iterator[Any]:
    dspy = pytest.importorskip("dspy", reason=WHY)
    from dspy import lm15

    url = f"{served.root}/v1"
    access = lm15.AccessPolicy(provider="structgen", base_url=url)
    lm15.register_provider(
        lm15.ProviderDefinition.chat(access, compat=lm15.OpenAIChatCompat.preset("vllm")),
        supports=lm15.ModelSupport(response_schema=True),
    )
    asking = {"api_base": url, "api_key": KEY, "cache": False, "num_retries": 0}
    made = dspy.LM("structgen/small", max_tokens=120, temperature=0.0, **asking)
    with dspy.context(lm=made, adapter=dspy.JSONAdapter()):
        yield made
    lm15.unregister_provider("structgen")


def test_dspys_typed_signatures_in_one_request(lm: Any) -> None:
    import dspy

    class Answer(dspy.Signature):  # type: ignore[misc, unused-ignore]
        """Name a city, and rate it."""

        question: str = dspy.InputField()
        city: City = dspy.OutputField()
        stars: int = dspy.OutputField()
        mood: Literal["good", "bad"] = dspy.OutputField()

    made = dspy.Predict(Answer)(question="Which city in Italy?")
    assert isinstance(made.city, City)
    assert isinstance(made.stars, int)
    assert made.mood in ("good", "bad")
    assert len(lm.history) == 1


def test_dspys_embedder(lm: Any, served: Served) -> None:
    import dspy

    embedder = dspy.Embedder(
        "openai/vectors", api_base=f"{served.root}/v1", api_key=KEY, caching=False
    )
    assert embedder(["a cat", "a dog"]).shape == (2, 384)


def test_dspys_block_of_the_documents(page: dict[str, Any]) -> None:
    dspy = pytest.importorskip("dspy", reason=WHY)
    from dspy import lm15

    try:
        run(PAGE, "import dspy", page)
        assert isinstance(page["rated"].city, City)
    finally:
        lm15.unregister_provider("structgen")
        dspy.configure(lm=None, adapter=None)
