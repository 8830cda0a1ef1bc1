"""Let the model think, and then call a tool: thought, call and result told apart."""

from __future__ import annotations

from typing import Literal

import structgen
from structgen import Generator, ToolCalls


def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Tell what the weather in a city will be like."""
    return f"18 degrees {unit} in {city}"


def search(words: str) -> str:
    """Search the web."""
    return f"nothing found for {words}"


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    tools = ToolCalls([weather, search], choice="required", parallel=False)
    generator = Generator(model, tools, think=40)
    messages = [{"role": "user", "content": "What will the weather be like in Paris?"}]
    stream = generator.stream(messages, max_new_tokens=80)
    section = None
    for chunk in stream:
        if chunk.section != section:
            section = chunk.section
            print(f"\n[{section}]")
        print(chunk, end="", flush=True)
    (call,) = stream.result.value
    print(f"\n[result]\n{call()}")


if __name__ == "__main__":
    main()
