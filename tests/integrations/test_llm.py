"""The plugin of llm: its real command and its library, with real models."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import llm
import pytest
from pydantic import BaseModel, Field

from structgen.integrations import llm as plugin

NAME, VECTORS = "structgen/smollm2-135m-instruct", "structgen/all-minilm-l6-v2"
ROOT = Path(__file__).resolve().parents[2]


class City(BaseModel):
    """A city on the map."""

    name: str = Field(max_length=12)
    country: Literal["Italy", "Norway", "Chile"]


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """llm with this plugin and no other, and with a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_USER_PATH", str(tmp_path_factory.mktemp("llm")))
        patch.setattr("llm.plugins.LLM_LOAD_PLUGINS", "")  # those that are installed stay out
        llm.plugins.load_plugins()
        llm.plugins.pm.register(plugin, "structgen")
        yield
        llm.plugins.pm.unregister(name="structgen")


@pytest.fixture(scope="module")
def model() -> Any:
    return llm.get_model(NAME)


@pytest.fixture(scope="module")
def async_model() -> Any:
    return llm.get_async_model(NAME)


def test_the_models_that_are_here_are_known() -> None:
    assert NAME in [one.model_id for one in llm.get_models()]
    assert VECTORS in [one.model.model_id for one in llm.get_embedding_models_with_aliases()]


def test_a_schema_is_kept_by_mask_and_streamed(model: Any) -> None:
    response = model.prompt("Name a city.", schema=City)
    pieces = list(response)
    assert len(pieces) > 1
    City.model_validate_json("".join(pieces))
    assert response.usage().input > 0
    assert response.usage().output > 0
    assert response.json()["finish_reason"] == "stop"


def test_schemas_of_all_kinds(model: Any) -> None:
    short = llm.schema_dsl("name, age int")
    short["properties"]["name"]["maxLength"] = 9
    made = json.loads(model.prompt("Invent a person.", schema=short).text())
    assert set(made) == {"name", "age"}
    assert isinstance(made["age"], int)
    several = {"items": {"type": "array", "items": City.model_json_schema(), "maxItems": 2}}
    schema = {"type": "object", "properties": several, "required": ["items"]}
    made = json.loads(model.prompt("Two cities.", schema=schema, max_tokens=100).text())
    assert all(City.model_validate(one) for one in made["items"])


def test_options(model: Any) -> None:
    ask = model.prompt
    assert re.fullmatch("[0-9]{3}", ask("A number?", regex="[0-9]{3}").text())
    assert ask("North or south?", choices=["north", "south"]).text() in ("north", "south")
    assert ask("A name?", grammar='start: "Ann" | "Ben"').text() in ("Ann", "Ben")
    assert ask("A name?", grammar='root ::= "Ann" | "Ben"').text() in ("Ann", "Ben")
    assert ask("A rule?", grammar='start: "a ::= b"').text() == "a ::= b"
    cut = ask("Tell a story.", max_tokens=4, temperature=0)
    assert cut.usage().output == 4
    assert cut.json()["finish_reason"] == "length"
    one, two = (ask("A word?", regex="[a-z]{9}", temperature=1.0, seed=5).text() for _ in "12")
    assert one == two


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": r"(a)\1"}, r"^regex: Python regular expression uses"),
        ({"choices": []}, r"^choices: "),
        ({"regex": "a", "choices": ["b"]}, r"^regex and choices both set"),
        ({"regex": "a", "schema": City}, r"^regex and schema both set"),
        ({"schema": {"type": "wat"}}, r"schema\.type: "),
        ({"regex": "[a-z]{50}", "max_tokens": 2}, r"A budget of 2 tokens is too small"),
    ],
)
def test_errors(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(llm.ModelError, match=message):
        model.prompt("Hi", **options).text()


def test_a_conversation(model: Any) -> None:
    talk = model.conversation()
    first = talk.prompt("My name is Ann.", system="Be brief.", max_tokens=5)
    first.text()
    second = talk.prompt("What is my name?", system="Be brief.", max_tokens=5)
    second.text()
    roles = [one["role"] for one in plugin._messages(second.prompt)]
    assert roles == ["system", "user", "assistant", "user"]


def weather(city: Literal["Rome", "Oslo"]) -> str:
    """Tell the weather of a city."""
    return f"12 degrees in {city}"


@pytest.mark.usefixtures("asked_arguments")
def test_tools_are_called_and_their_results_are_read(model: Any) -> None:
    called = model.prompt("Oslo?", tools=[weather], tool_choice="required", max_tokens=60)
    calls = called.tool_calls()
    assert calls
    assert all(one.name == "weather" and one.arguments["city"] in ("Rome", "Oslo") for one in calls)
    results = called.execute_tool_calls()
    assert [one.output for one in results] == [
        f"12 degrees in {one.arguments['city']}" for one in calls
    ]
    cold = {"choices": ["cold", "warm"]}
    answer = called.reply("In one word?", tool_results=results, tools=[], options=cold)
    assert answer.text() in ("cold", "warm")
    assert plugin._messages(answer.prompt)[-2]["role"] == "tool"
    chain = model.chain("Say hello.", tools=[weather], options={"max_tokens": 20})
    assert isinstance(chain.text(), str)


def test_a_picture_that_a_tool_returned_is_refused(model: Any) -> None:
    seen = llm.ToolOutput(output="a cat", attachments=[llm.Attachment(content=b"x")])

    def look() -> llm.ToolOutput:
        """Look."""
        return seen

    talk = model.conversation(tools=[look])
    called = talk.prompt("Look.", tool_choice="required", max_tokens=60)
    results = called.execute_tool_calls()
    with pytest.raises(llm.ModelError, match="ToolResultPart is not supported"):
        talk.prompt("", tool_results=results, max_tokens=5).text()


def test_async(async_model: Any) -> None:
    async def ask() -> str:
        response = async_model.prompt("Name a city.", schema=City)
        pieces = [piece async for piece in response]
        usage = await response.usage()
        assert usage.output > 0
        called = async_model.prompt("Oslo?", tools=[weather], tool_choice="required", max_tokens=60)
        assert all(one.name == "weather" for one in await called.tool_calls())
        with pytest.raises(llm.ModelError, match=r"regex: .*at position 3"):
            await async_model.prompt("Hi", regex=r"(a)\1")
        return "".join(pieces)

    City.model_validate_json(asyncio.run(ask()))


def test_embeddings() -> None:
    model = llm.get_embedding_model(VECTORS)
    one = model.embed("a cat")
    many = list(model.embed_multi(["a cat", "a dog"]))
    assert len(one) == 384
    assert many[0] == pytest.approx(one, abs=1e-4)
    with pytest.raises(llm.ModelError, match=r"tokens, but all-minilm-l6-v2 accepts 256"):
        model.embed("cat " * 300)


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process for which structgen is installed, as pip would have done it."""
    info = tmp_path / "structgen-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: structgen\nVersion: 0\n")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (point,) = re.findall(r"\[project\.entry-points\.llm\]\n(.+)\n", project)
    (info / "entry_points.txt").write_text("[llm]\n" + point.replace('"', "") + "\n")
    return {
        **{name: value for name, value in os.environ.items() if name != "LLM_LOAD_PLUGINS"},
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path]),
        "LLM_USER_PATH": str(tmp_path / "user"),
    }


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llm", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_the_command(installed: dict[str, str]) -> None:
    made = run(installed, "-m", NAME, "Pick.", "-o", "choices", '["tea", "coffee"]')
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.strip() in ("tea", "coffee")
    logged = json.loads(run(installed, "logs", "--json").stdout)
    assert [one["model"] for one in logged] == [NAME]
    wrong = run(installed, "-m", NAME, "Hi", "-o", "regex", r"(a)\1")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("Error: regex: Python regular expression")
    assert "Traceback" not in wrong.stderr


def test_llm_imports_no_runtime_to_list_models(installed: dict[str, str]) -> None:
    code = (
        "import sys, llm; assert llm.get_models(); "
        "print([one for one in ('onnxruntime', 'onnxruntime_genai') if one in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, env=installed, capture_output=True, text=True)
    assert made.stdout == "[]\n", made.stderr
