"""Sort texts into categories: the answer is always one of them, and nothing else."""

from __future__ import annotations

from typing import Literal

import structgen
from structgen import Generator

REVIEWS = [
    "A wonderful book, I could not put it down.",
    "The soup was cold and the waiter was rude.",
    "Best concert of my life!",
]


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Literal["positive", "negative"])
    for review in REVIEWS:
        question = f'What is the sentiment of the following sentence? "{review}"'
        label = generator([{"role": "user", "content": question}])
        print(f"{label:<9} {review}")


if __name__ == "__main__":
    main()
