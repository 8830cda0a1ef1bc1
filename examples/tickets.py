"""Sort tickets, with a probability, and leave to a person what the model is not sure of.

Larger models answer several questions about a ticket at once: see `structgen.decisions`.
"""

from __future__ import annotations

from typing import Literal

import structgen
from structgen import Generator

TICKETS = [
    "I was charged twice this month.",
    "The app crashes when I open the settings.",
    "Do you sell gift cards?",
    "Hi!",
]


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Literal["billing", "bug", "other"])
    examples = [
        {"role": "user", "content": "My invoice is wrong."},
        {"role": "assistant", "content": "billing"},
        {"role": "user", "content": "I get an error message when I log in."},
        {"role": "assistant", "content": "bug"},
        {"role": "user", "content": "Where is your office?"},
        {"role": "assistant", "content": "other"},
    ]
    unsure = []
    for ticket in TICKETS:
        probabilities = generator.probabilities([*examples, {"role": "user", "content": ticket}])
        label, probability = next(iter(probabilities.items()))
        print(f"{probability:.2f} {label:<8} {ticket}")
        if probability < 0.95:
            unsure.append(ticket)
    print(f"ask a person: {unsure}")


if __name__ == "__main__":
    main()
