"""Show a text while it is written, and what it cost when it is done."""

from __future__ import annotations

import structgen
from structgen import Generator, Regex


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    three_lines = Regex(r"(- [A-Za-z][a-z ]{4,40}\n){3}")
    generator = Generator(model, three_lines)
    messages = [{"role": "user", "content": "List three things to pack for a week at the sea."}]
    stream = generator.stream(messages, temperature=0.5, seed=1)
    for chunk in stream:
        print(chunk, end="", flush=True)
    result = stream.result
    print(f"{result.usage.output_tokens} tokens in {result.timings.total_seconds:.1f} s")


if __name__ == "__main__":
    main()
