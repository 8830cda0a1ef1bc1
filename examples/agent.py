"""An agent: the model calls functions, reads their results, and then answers in a type."""

from __future__ import annotations

from typing import Literal

from structgen import Runner
from structgen.runner import ToolRequest

CAPITALS = {"France": "Paris", "Italy": "Rome", "Norway": "Oslo"}


def capital(country: Literal["France", "Italy", "Norway"]) -> str:
    """The capital of a country."""
    return CAPITALS[country]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def approve(asked: ToolRequest) -> bool:
    """Decide whether a call may run: ask a person here, where a tool changes something."""
    print(f"{asked.name} {asked.arguments}", end=" ")
    return asked.name in ("capital", "add")


def main() -> None:
    with Runner({"small": "smollm2-135m-instruct"}) as runner:
        for question, output_type in (
            ("What is 17 plus 25?", int),
            ("What is the capital of France?", Literal["Oslo", "Paris", "Rome"]),
        ):
            answer = runner.chat(
                messages=question,
                tools=[capital, add],
                tool_choice="required",
                parallel_tool_calls=False,
                max_tool_rounds=1,
                approve=approve,
                output_type=output_type,
                max_tokens=80,
            )
            print(f"-> {answer.agentic_tool_calls[0].result}")
            print(question, answer.value)


if __name__ == "__main__":
    main()
