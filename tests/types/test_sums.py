"""What ``|`` and ``+`` make of output types that are objects: every kind with every other."""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import add, or_
from typing import Annotated, Any, Literal

import pytest
from engine.walks import TINY, walk
from pydantic import BaseModel

import structgen
from structgen import (
    Cfg,
    Choice,
    JsonSchema,
    OutputTypeError,
    Regex,
    Tagged,
    Template,
    Text,
    ToolCalls,
)
from structgen.types import TaggedText, lower


class Point(BaseModel):
    x: int


_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_TAG = Tagged("<a>", int, "</a>")
OWN: dict[str, Any] = {
    "JsonSchema": JsonSchema(_SCHEMA),
    "Text": Text("none"),
    "Regex": Regex("[a-z]{2,4}"),
    "Choice": Choice(["x", "y"]),
    "Tagged": _TAG,
    "TaggedText": TaggedText(_TAG, Tagged("<b>", Point, "</b>")),
    "Cfg": Cfg('start: "go" /[0-9]+/'),
    "Template": Template("n {x}", x=int),
    "sum": Text("n=") + int,
    "union": Cfg('start: "k"') | int,
    "ready": structgen.types.email,
}
OTHERS: dict[str, Any] = {"class": Point, "int": int, "Literal": Literal["p"], "dict": _SCHEMA}


@pytest.mark.parametrize("combined", [or_, add])
@pytest.mark.parametrize("first", OWN)
def test_any_two_kinds(first: str, combined: Callable[[Any, Any], Any]) -> None:
    for name, second in {**OWN, **OTHERS}.items():
        for one, other in ((OWN[first], second), (second, OWN[first])):
            output = combined(one, other)
            result = walk(structgen.compile(output, TINY), random.Random(name), 60)
            lower(output).parse(result.text)


def test_what_a_text_of_a_union_parses_to() -> None:
    kinds = OWN["JsonSchema"] | Text("none") | _TAG
    read = lower(kinds).parse
    assert read('{"a": 1}') == {"a": 1}
    assert read("none") == "none"
    assert [getattr(part, "value", part) for part in read("so <a>1</a>")] == ["so ", 1]
    assert lower(_TAG | Text("none")).parse("none") == "none"
    assert lower(Regex("[a-z]+") | JsonSchema({"type": "array"})).parse("[1]") == [1]
    thing = JsonSchema({"type": "object"})
    for text in ("12345", "null", "true", '"a"', "[1]"):
        for other in (Text(text), Regex('12345|null|true|"a"|\\[1\\]')):
            assert lower(thing | other).parse(text) == lower(other | thing).parse(text) == text
    assert lower(JsonSchema({"type": ["object", "null"]}) | Text("null")).parse("null") is None
    assert lower(thing | "none").parse("none") == lower("none" | thing).parse("none") == "none"
    assert repr(Text("a") + (Text("b") | JsonSchema(True))) == (
        "Text('a') + (Text('b') | JsonSchema(True))"
    )


def test_what_cannot_be_combined_says_what_to_do() -> None:
    for output in (ToolCalls([Point]) | Text("none"), Text("a") + ToolCalls([Point])):
        with pytest.raises(OutputTypeError, match="Pass ToolCalls"):
            structgen.compile(output, TINY)
    with pytest.raises(OutputTypeError, match="is a value, not a type"):
        structgen.compile(JsonSchema(True) | 5, TINY)
    with pytest.raises(OutputTypeError, match="cannot be a part of JSON"):
        lower(list[Text("a") | int])  # type: ignore[misc]
    with pytest.raises(OutputTypeError, match="cannot be a part of JSON"):
        lower(list[Annotated[str, JsonSchema({"type": "string"})]])  # Pydantic would ignore it
