"""Turn a sentence into an object of a Pydantic class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

import structgen
from structgen import Generator


class Order(BaseModel):
    product: Annotated[str, Field(max_length=30)]
    quantity: Annotated[int, Field(ge=1, le=100)]
    size: Literal["small", "medium", "large"]
    gift: bool = False


def main() -> None:
    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Order)
    # A small model does much better with an example of what is wanted.
    messages = [
        {"role": "user", "content": "Two small tulip vases, please, wrapped as a present."},
        {
            "role": "assistant",
            "content": '{"product":"tulip vase","quantity":2,"size":"small","gift":true}',
        },
        {"role": "user", "content": "I would like five large coffee mugs."},
    ]
    order = generator.parse(messages, max_new_tokens=80)
    print(repr(order))


if __name__ == "__main__":
    main()
