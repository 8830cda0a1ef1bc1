"""`Constraint.advice`: what it finds in schemas, where, and what it leaves alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from fakes import vocabulary
from pydantic import BaseModel, Field

import structgen
from structgen import JsonSchema, Regex

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
    assert sorted(found(Order)) == [
        ("$.$defs.Item.properties.note", "unbounded string"),
        ("$.properties.f1", "strange name"),
        ("$.properties.items", "unbounded array"),
        ("$.properties.reasoning", "late reasoning"),
        ("$.properties.team", "shared beginning"),
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
    }
    assert found(JsonSchema(late)) == [("$.properties.why", "late reasoning")]
    assert found(JsonSchema(late), property_order="any") == []


def test_a_schema_that_leads_to_itself():
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"to": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    assert found(JsonSchema(tree)) == []
