"""`Constraint.advice`: what it finds in schemas, where, and what it leaves alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from fakes import vocabulary
from pydantic import BaseModel, Field

import structgen
from structgen import JsonSchema, Regex
from structgen.types import recent_date

VOCABULARY = vocabulary()


def found(output_type: Any, **options: Any) -> list[tuple[str, str]]:
    advice = structgen.compile(output_type, VOCABULARY, **options).advice()
    assert all(one.text in str(one) and one.measured for one in advice)
    return [(one.path, one.kind) for one in advice]


class Item(BaseModel):
    name: Annotated[str, Field(max_length=20)]
    note: str


class Order(BaseModel):
    team: Literal["support billing", "support tech", "shipping"]
    items: list[Item]
    f1: bool
    reasoning: Annotated[str, Field(max_length=200)]


def test_each_finding_names_its_place():
    assert found(Order) == [  # what costs most first
        ("$.properties.items", "unbounded array"),
        ("$.properties.f1", "strange name"),
        ("$.properties.reasoning", "late reasoning"),
        ("$.properties.team", "shared beginning"),
        ("$.$defs.Item.properties.note", "unbounded string"),
    ]


class Good(BaseModel):
    thoughts: Annotated[str, Field(max_length=200)]
    team: Literal["billing", "tech", "shipping"]
    tags: Annotated[list[Literal["a", "b"]], Field(max_length=3)]
    id: int
    html: bool
    qty: int


@pytest.mark.parametrize(
    "output_type",
    [
        Good,
        bool,
        Regex("[a-z]+"),
        ["yes", "no"],
        int,
        JsonSchema(True),
        JsonSchema({"format": "date"}),
    ],
)
def test_what_is_well_made_is_left_alone(output_type):
    assert found(output_type) == []


def test_of_texts_and_of_an_order_that_is_not_kept():
    assert found(["sure", "surely", "no"]) == [("$", "shared beginning")]
    assert found(["sure", "surely"]) == []  # what all share is forced
    late = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}, "why": {"type": "string", "maxLength": 9}},
        "required": ["answer", "why"],
    }
    assert found(JsonSchema(late)) == [("$.properties.why", "late reasoning")]
    assert found(JsonSchema(late), property_order="any") == []


def test_a_schema_that_leads_to_itself():
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"to": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    assert found(JsonSchema(tree)) == [("$.$defs.node.properties.to", "unasked optional")]


UNBOUNDED, ODD = "unbounded string", "unbounded date"


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        # A bound that another keyword holds: no string of any length.
        ({"type": "string", "allOf": [{"maxLength": 5}]}, []),
        ({"allOf": [{"type": "string"}, {"maxLength": 5}]}, []),
        ({"type": "string", "anyOf": [{"const": "a"}, {"const": "b"}]}, []),
        ({"type": "integer", "not": {"type": "string"}}, []),
        ({"type": ["string", "null"]}, [UNBOUNDED]),
        ({"type": "string", "format": "date"}, [ODD]),
        ({"type": "string", "format": "date-time"}, [ODD]),
        ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}, []),
        ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, []),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, ["unbounded array"]),
        ({"type": "array", "items": {"enum": [1, 2]}}, ["unbounded array"]),
        ({"type": "string", "format": "date", "pattern": "^20[0-2]"}, []),
        ({"type": "string", "pattern": "^.{0,20}$"}, []),
        ({"type": "string", "pattern": "^[A-Z0-9/-]{3,15}$"}, []),  # a number of an invoice
        ({"type": "string", "pattern": "^[0-9TZ:.-]{20}$"}, []),
        ({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"}, [ODD]),
    ],
)
def test_only_what_is_true_of_a_value_is_said(schema, kinds):
    assert found(JsonSchema(schema)) == [("$", kind) for kind in kinds]


def test_a_bounded_decimal_is_no_string_of_any_length():
    price = Annotated[Decimal, Field(ge=0, le=100, max_digits=5, decimal_places=2)]
    assert found(list[price] | price) == [("$.anyOf[0]", "unbounded array")]


class Amounts(BaseModel):
    any_number: Decimal
    no_places: Decimal = Field(ge=0, le=100)
    no_end: Decimal = Field(ge=0, decimal_places=2)
    digits: Decimal = Field(max_digits=8)
    both: Decimal = Field(ge=0, max_digits=8, decimal_places=2)
    between: Decimal = Field(ge=0, le=100, decimal_places=2)
    multiple: Decimal = Field(multiple_of=Decimal("0.05"))


def test_decimals_of_any_length_are_found():
    kind = "unbounded decimal"
    assert found(Amounts) == [
        ("$.properties.any_number", kind),
        ("$.properties.no_end", kind),
        ("$.properties.no_places", kind),
    ]
    assert ("$.items", kind) in found(list[Decimal])
    assert found(float) == []
    assert found(Decimal) == found(Annotated[Decimal, Field(ge=0, le=100)]) == [("$", kind)]
    assert found(Annotated[Decimal, Field(max_digits=8, decimal_places=2)]) == []


class Dates(BaseModel):
    any_day: dt.date
    any_time: dt.datetime
    after: dt.date = Field(ge=dt.date(2020, 1, 1))
    between: dt.date = Field(ge=dt.date(2020, 1, 1), le=dt.date(2030, 12, 31))
    moment: dt.datetime = Field(ge=dt.datetime(2020, 1, 1), lt=dt.datetime(2031, 1, 1))
    recent: Annotated[dt.date, recent_date(5, until=dt.date(2026, 12, 31))]


def test_dates_of_any_year_are_found():
    assert found(Dates) == [
        ("$.properties.after", ODD),
        ("$.properties.any_day", ODD),
        ("$.properties.any_time", ODD),
    ]
    assert found(dt.date) == [("$", ODD)]
    assert found(recent_date()) == []


class Contact(BaseModel):
    name: Annotated[str, Field(max_length=20)]
    phone: Annotated[str, Field(max_length=20)] | None
    city: Annotated[str, Field(max_length=20)] = ""
    tax: Annotated[bool | None, Field(description="null unless the text says it")] = None
    age: int


def test_optionals_are_found_whatever_their_description_says():
    assert found(Contact) == [
        ("$.properties.phone", "unasked optional"),
        ("$.properties.city", "unasked optional"),
        ("$.properties.tax", "unasked optional"),
    ]
    left_out = {"properties": {"a1": True, "b": {"type": "null"}, "c": {"const": 1}}}
    assert ("$.properties.b", "unasked optional") in found(JsonSchema(left_out))
