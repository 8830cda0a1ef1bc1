"""Many requests of all kinds at once, each of which knows its own right answer.

``python tests/runner/mixed.py 200`` makes so many on three models (with Gemma 3 270M if it is in
the cache) and a tiny one of random weights, and says how long it took.
"""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import create_model

from structgen import Regex, Runner, models
from structgen.decisions import Choice, Predicate

SMALL, EMBEDDER, GEMMA = "smollm2-135m-instruct", "all-minilm-l6-v2", "gemma-3-270m"
NAMES = ("Ann", "Bob", "Eve", "Kim", "Leo", "Mia", "Tom", "Zoe")
AGES = (9, 12, 24, 31, 63)


def tiny_model(folder: Path, **metadata: Any) -> Path:
    """A model of random weights and a few kilobytes, converted, with ``metadata``."""
    write = runpy.run_path(str(Path(__file__).parents[1] / "models" / "tiny_gguf.py"))["write"]
    return models.convert(write(folder / "tiny.gguf", metadata=metadata), folder / "tiny-random")


def about(name: str, age: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "Zed is 7 years old."},
        {"role": "assistant", "content": '{"name": "Zed", "age": 7}'},
        {"role": "user", "content": f"{name} is {age} years old."},
    ]


def requests(runner: Runner, n: int, texts: list[str]) -> list[Callable[[], Awaitable[None]]]:
    """``n`` requests that check their answers themselves."""

    async def person(i: int) -> None:
        name, age = NAMES[i % len(NAMES)], AGES[i % len(AGES)]
        # Only this request's answer fits: what a model copies right differs between processors.
        person = create_model("Person", name=(Literal[name], ...), age=(Literal[age], ...))
        answer = await runner.achat(
            messages=about(name, age), output_type=person, max_tokens=30, model="small"
        )
        assert answer.value == person(name=name, age=age), answer.text

    async def schema(i: int) -> None:
        kind = {"type": "object", "properties": {f"k{i}": {"enum": [i, i + 1]}}}
        kind |= {"required": [f"k{i}"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": kind}}
        answer = await runner.achat(messages="Pick one.", response_format=form, model="small")
        assert json.loads(answer.text)[f"k{i}"] in (i, i + 1)
        assert answer.value == json.loads(answer.text)

    async def stream(i: int) -> None:
        text = ""
        async for chunk in runner.astream_chat(
            messages="Write a code.", output_type=Regex(f"q{i}-[0-9]{{4}}"), model="small"
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        assert re.fullmatch(f"q{i}-[0-9]{{4}}", text), text

    async def tool(i: int) -> None:
        schema = {"type": "object", "properties": {"n": {"const": i}}, "required": ["n"]}
        schema["additionalProperties"] = False
        tools = [{"type": "function", "function": {"name": f"tool{i}", "parameters": schema}}]
        answer = await runner.achat(
            messages="Call it.",
            tools=tools,
            tool_choice="required",
            parallel_tool_calls=False,
            model="small",
        )
        (call,) = answer.choices[0].message.tool_calls or []
        assert (call.function.name, json.loads(call.function.arguments)) == (f"tool{i}", {"n": i})

    async def tiny(i: int) -> None:
        answer = await runner.acomplete(
            prompt=f"{i} ", output_type=Literal[f"a{i}", f"b{i}"], n=2, temperature=1, model="tiny"
        )
        assert {choice.text[1:] for choice in answer.choices} == {str(i)}

    async def embedding(i: int) -> None:
        answer = await runner.aembed(input=[texts[i % len(texts)], f"number {i}"], model="vectors")
        again = await runner.aembed(input=texts[i % len(texts)], model="vectors")
        one, other = answer.data[0].embedding, again.data[0].embedding
        assert isinstance(one, list)
        assert isinstance(other, list)
        assert sum(a * b for a, b in zip(one, other, strict=True)) > 0.999

    async def ranking(i: int) -> None:
        wanted = texts[i % len(texts)]
        answer = await runner.arerank(query=wanted, documents=texts, model="vectors")
        assert answer.results[0].index == i % len(texts)

    async def decision(i: int) -> None:
        answer = await runner.adecide(
            state=f"The number is {i}.",
            questions={
                f"is{i}": Predicate("Is it a number?"),
                f"which{i}": Choice("Which?", [f"x{i}", f"y{i}"]),
            },
            model="small",
        )
        assert set(answer.answers) == {f"is{i}", f"which{i}"}
        assert answer.value[f"which{i}"].choice in (f"x{i}", f"y{i}")

    async def larger(i: int) -> None:
        answer = await runner.acomplete(
            prompt="The capital of France is", output_type=Literal[f"P{i}", f"Q{i}"], model="gemma"
        )
        assert answer.text in (f"P{i}", f"Q{i}")

    kinds = [person, schema, stream, tool, tiny, embedding, ranking, decision]
    if "gemma" in runner.list_models():
        kinds.append(larger)
    return [lambda i=i: kinds[i % len(kinds)](i) for i in range(n)]  # type: ignore[misc]


async def all_at_once(runner: Runner, n: int) -> None:
    """Make ``n`` requests, all under way at once.

    Raises:
        AssertionError: an answer is wrong.
    """
    texts = ["a cat on a mat", "the price of bread", "rain in the mountains", "an old violin"]
    await asyncio.gather(*(make() for make in requests(runner, n, texts)))


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as work:
        sources: dict[str, Any] = {
            "small": SMALL,
            "vectors": EMBEDDER,
            "tiny": tiny_model(Path(work)),
        }
        if any(model.name == GEMMA for model in models.installed()):
            sources["gemma"] = GEMMA
        with Runner(sources) as runner:
            for name in sources:
                runner.load(name)
            began = time.perf_counter()
            asyncio.run(all_at_once(runner, n))
            took = time.perf_counter() - began
            print(f"{n} requests on {', '.join(sources)}: all right, in {took:.1f} s")


if __name__ == "__main__":
    main()
