"""What type checkers infer of ready-made types, templates and sums, and of the values they give.

Checked by mypy and basedpyright, never run: `.ci/run` has the step.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel
from typing_extensions import assert_type

import structgen
from structgen import Generator, Regex, Template, Text, TextModel, types


class Payment(BaseModel):
    card: types.credit_card
    country: types.country_code | None = None
    zones: list[types.time_zone] = []
    phone: Annotated[str, types.phone_number("US")]
    postcode: Annotated[str, types.postal_code("US")] = "12345"


def fields(payment: Payment) -> None:
    assert_type(payment.card, str)
    assert_type(payment.country, str | None)
    assert_type(payment.zones, list[str])
    assert_type(payment.phone, str)


def ready(model: TextModel) -> None:
    assert_type(Generator(model, types.country_code), Generator[str])
    assert_type(Generator(model, list[types.ipv4]), Generator[list[str]])
    assert_type(Generator(model, types.phone_number("DE")), Generator[str])
    assert_type(Generator(model, structgen.types.isbn).parse("x"), str)
    assert_type(model("x", types.email), str)


def holes(model: TextModel) -> None:
    template = Template("{name}: {age}", name=Regex("[A-Z]+"), age=int)
    assert_type(Generator(model, template), Generator[dict[str, Any]])
    assert_type(Generator(model, template).parse("x"), dict[str, Any])
    assert_type(Generator(model, Text("a") + "b" + Regex("c")), Generator[str])
    assert_type(Generator(model, Text("a") + int), Generator[str])
    assert_type(Generator(model, Text("a: ") + types.ipv4 + "\n"), Generator[str])
