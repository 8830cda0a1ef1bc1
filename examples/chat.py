"""Chat with a memory: what was said is in a file, and the next run continues from it.

    python examples/chat.py chat.db

Type an empty line to leave. Without a file, two runs of the program are played.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

from structgen import Regex, Runner, Template


def talk(file: Path) -> None:
    """Answer what a person types, in free text."""
    with Runner({"small": "smollm2-135m-instruct"}, sessions=file) as runner:
        while line := input("> "):
            for chunk in runner.stream_chat(messages=line, session_id="me", max_tokens=200):
                for choice in chunk.choices:
                    print(choice.delta.content or "", end="", flush=True)
            print()


def play(file: Path) -> None:
    """Say something in one run, and ask for it in the next: the answer may have a type, too."""
    said = "I live in Oslo."
    with Runner({"small": "smollm2-135m-instruct"}, sessions=file) as runner:
        answer = runner.chat(messages=said, session_id="me", output_type=Literal["Noted."])
        print(f"> {said}\n{answer.text}\n--- a new run")
    asked = "In which city do I live?"
    with Runner({"small": "smollm2-135m-instruct"}, sessions=file) as runner:
        place = Template("You live in {city}.", city=Regex("[A-Z][a-z]{1,20}"))
        answer = runner.chat(messages=asked, session_id="me", max_tokens=20, output_type=place)
        print(f"> {asked}\n{answer.text}\n{answer.value}")


def main() -> None:
    if len(sys.argv) > 1:
        talk(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder) / "chat.db")


if __name__ == "__main__":
    main()
