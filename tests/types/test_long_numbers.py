"""Decimals keep every digit of the text, in all kinds of classes and containers."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Optional

import attrs
import msgspec
import pydantic
import pytest
from guards import ends_soon
from pydantic import BaseModel, Field, JsonValue
from typing_extensions import TypedDict

from structgen import ParseError
from structgen.types import lower

LONG, NEXT, ROUNDED = "0.91553700031385113815", "0.91553700031385113816", "0.9155370003138511"


class Model(BaseModel):
    a: Decimal


class Strict(BaseModel, strict=True):
    a: Decimal


class Frozen(BaseModel, frozen=True):
    a: Optional[Decimal] = None  # noqa: UP045


@dataclasses.dataclass
class Data:
    a: Decimal


class Struct(msgspec.Struct):
    a: Decimal


@attrs.define
class Attrs:
    a: Decimal


class Typed(TypedDict):
    a: Decimal


class Tuple(NamedTuple):
    a: Decimal


@pytest.mark.parametrize("name", ["type", "default", "metadata", "expected", "config"])
def test_fields_have_any_name(name: str) -> None:
    fields: dict[str, Any] = {name: (Decimal, ...)}
    parsed = lower(pydantic.create_model("Fields", **fields)).parse(f'{{"{name}":{LONG}}}')
    assert getattr(parsed, name) == Decimal(LONG)


@pytest.mark.parametrize("cls", [Model, Strict, Frozen, Data, Struct, Attrs, Typed, Tuple])
def test_classes(cls: Any) -> None:
    for text, expected in ((LONG, LONG), (f'"{LONG}"', LONG), ("0.5", "0.5"), ("3", "3")):
        value = lower(cls).parse(f'{{"a":{text}}}')
        assert (value["a"] if isinstance(value, dict) else value.a) == Decimal(expected)
        in_list = lower(list[cls]).parse(f'[{{"a":{text}}}, {{"a":0.25}}]')
        assert in_list[0] == value


@pytest.mark.parametrize(
    ("output_type", "text", "expected"),
    [
        (list[Decimal], f"[{LONG}]", [Decimal(LONG)]),
        (tuple[Decimal, ...], f"[{LONG}, {NEXT}]", (Decimal(LONG), Decimal(NEXT))),
        (dict[str, Decimal], f'{{"x":{LONG}}}', {"x": Decimal(LONG)}),
        (set[Decimal], f"[{LONG}, {NEXT}, {ROUNDED}]", {*map(Decimal, (LONG, NEXT, ROUNDED))}),
        (int | list[Decimal], f"[{LONG}]", [Decimal(LONG)]),
        # What is rounded alike is told apart, whatever it is.
        (
            list[str | Decimal],
            f'["{ROUNDED}", {LONG}, {ROUNDED}, {NEXT}, "x"]',
            [ROUNDED, Decimal(LONG), Decimal(ROUNDED), Decimal(NEXT), "x"],
        ),
        (list[Decimal], "[1e-400, 0.0, 2e-400]", [Decimal("1e-400"), 0, Decimal("2e-400")]),
        (list[Decimal], "[1e400, 1e500]", [Decimal("1e400"), Decimal("1e500")]),
        # Floats and unions are what they were.
        (list[Decimal | float], f"[{LONG}, {NEXT}]", [float(LONG)] * 2),
        (list[Decimal | int], f"[{LONG}, 3]", [Decimal(LONG), 3]),
        (
            tuple[Decimal, JsonValue, Any, float],
            f'[{LONG}, {{"x":[{NEXT}]}}, [{NEXT}], {NEXT}]',
            (Decimal(LONG), {"x": [float(LONG)]}, [float(LONG)], float(LONG)),
        ),
    ],
)
def test_containers_and_unions(output_type: Any, text: str, expected: Any) -> None:
    value = lower(output_type).parse(text)
    assert value == expected
    if isinstance(expected, list):
        assert [type(part) for part in value] == [
            Decimal if part == 0 else type(part) for part in expected
        ]


def test_arguments_of_functions_and_parts_of_values() -> None:
    def pay(amount: Decimal) -> None:
        """Pay."""

    assert lower(pay).parse(f'{{"amount":{LONG}}}').arguments == {"amount": Decimal(LONG)}
    values = lower(Model).values
    assert values is not None
    read = values.parser(pydantic.TypeAdapter(list[Decimal]).core_schema, None)
    assert read(f"[{LONG}]") == [Decimal(LONG)]


@pytest.mark.parametrize(
    ("limits", "text", "is_valid"),
    [
        ({"le": Decimal("0.3")}, "0.30000000000000000001", False),
        ({"le": Decimal("0.3")}, "0.29999999999999999999", True),
        ({"ge": Decimal(LONG)}, LONG, True),
        ({"gt": Decimal(LONG)}, LONG, False),
        ({"max_digits": 5}, "0.10000000000000000000001", False),
        ({"max_digits": 5}, "0.10000000000000000000000", True),
        ({"multiple_of": Decimal("0.5")}, "1" * 40 + ".5", None),
        ({}, "1e99999999999999999999", False),
    ],
)
def test_constraints_hold_of_what_was_written(
    limits: dict[str, Any], text: str, is_valid: bool | None
) -> None:
    parse = lower(list[Annotated[Decimal, Field(**limits)]]).parse
    if is_valid:
        assert parse(f"[{text}]") == [Decimal(text)]
    else:
        with pytest.raises(ParseError):
            parse(f"[{text}]")


def test_short_numbers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from structgen.types import json_types

    made = 0
    make: Callable[..., Any] = json_types._without_classes

    def count(*args: Any) -> Any:
        nonlocal made
        made += 1
        return make(*args)

    monkeypatch.setattr(json_types, "_without_classes", count)

    class Fresh(BaseModel):
        a: Decimal

    output = lower(Fresh)
    for text in ('{"a":0.5}', '{"a":123456789.25}', '{"a":"0.91553700031385113815"}'):
        output.parse(text)
    assert not made
    output.parse(f'{{"a":{LONG}}}')
    output.parse(f'{{"a":{NEXT}}}')
    assert made == 1


def test_numbers_that_round_alike_are_told_apart_in_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[float] = []
    following = math.nextafter

    def counted(value: float, towards: float) -> float:
        steps.append(value)
        return following(value, towards)

    monkeypatch.setattr(math, "nextafter", counted)
    texts = [f"0.1000000000000000000000{i:03}" for i in range(1, 301)]
    assert lower(list[Decimal]).parse(f"[{','.join(texts)}]") == [*map(Decimal, texts)]
    assert len(steps) < 2 * len(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ["1e400", "1e401", "1e402", "-1e400", "-1e401", "-1e402"],
        ["1.7976931348623157e308", *(f"1.7976931348623157000{i}e308" for i in range(1, 5))],
        ["1e-400", "2e-400", "3e-400", "-1e-400", "-2e-400", "0.0", "0"],
    ],
)
def test_numbers_at_the_ends_of_what_floats_hold(texts: list[str]) -> None:
    assert lower(list[Decimal]).parse(f"[{','.join(texts)}]") == [*map(Decimal, texts)]


OPEN = '"' + '\\"' * 200_000


@pytest.mark.parametrize(
    "text",
    [f"[{'1' * 200_000}", f"[{'1' * 200_000}x]", f"[1.0,{OPEN}", f"[1.00000000000000000001,{OPEN}",
     f"[{'1.' * 100_000}]", f"[{'1e' * 100_000}]", f"[{'1e4000,' * 100_000}1]"],
)  # fmt: skip
@pytest.mark.parametrize("of", [int, Decimal])
def test_no_text_is_looked_at_in_the_square_of_its_length(of: type, text: str) -> None:
    """Nor does a short exponent ask for thousands of digits without end."""
    with ends_soon(), contextlib.suppress(ParseError):
        lower(list[of]).parse(text)  # type: ignore[valid-type]


def test_integers_with_exponents_are_written_in_full_up_to_a_bound() -> None:
    assert lower(list[int]).parse("[1e4000, -2.50E+1, -0.0]") == [10**4000, -25, 0]
    with pytest.raises(ParseError, match="does not match"):
        lower(list[int]).parse(f"[{'1e4000,' * 60}1]")
