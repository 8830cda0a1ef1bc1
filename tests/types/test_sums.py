"""What ``|`` and ``+`` make of output types that are objects: every kind with every other."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from operator import add, or_
from typing import Annotated, Any, List, Literal, Optional  # noqa: UP035

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
    own = list(OWN)
    seconds = {name: OWN[name] for name in own[own.index(first) :]}  # the others had this one
    for name, second in {**seconds, **OTHERS}.items():
        for one, other in ((OWN[first], second), (second, OWN[first])):
            if sys.version_info < (3, 11) and combined is or_ and one is OTHERS["Literal"]:
                continue  # which takes types alone
            output = combined(one, other)
            result = walk(structgen.compile(output, TINY), random.Random(name), 60)
            lower(output).parse(result.text)


@pytest.mark.parametrize("kind", OWN)
def test_repeats_of_every_kind(kind: str) -> None:
    part = OWN[kind]
    once = structgen.compile(part, TINY)
    r = random.Random(kind)
    texts = [walk(once, r, 30).text for _ in range(3)]
    for output, allowed in (
        (part.optional(), {0, 1}),
        (part.times(2), {2}),
        (part.times(1, 2), {1, 2}),
        (part.times(0, 3), {0, 1, 2, 3}),
    ):
        constraint = structgen.compile(output, TINY)
        for n in allowed:
            assert constraint.allows("".join(texts[:n])), (output, n)
        if 0 not in allowed:
            assert constraint.allows("") == once.allows("")
        least = 1 + (once.start().min_tokens_to_finish() - 1) * min(allowed)
        assert constraint.start().min_tokens_to_finish() <= least
        text = walk(constraint, r, 40).text
        assert lower(output).parse(text) == text
    if once.allows("") and not isinstance(part, Regex):
        with pytest.raises(OutputTypeError, match="Set the limit with times"):
            structgen.compile(part.many(), TINY)
    else:
        many = structgen.compile("<" + part.many() + ">", TINY)
        assert all(many.allows("<" + "".join(texts[:n]) + ">") for n in range(4))


def test_how_often_a_repeat_is_allowed() -> None:
    item = JsonSchema({"enum": [1, "a"]})
    for output, good in (
        (item.times(2, 3), {2, 3}),
        (item.times(2), {2}),
        (item.many(), set(range(6))),
    ):
        constraint = structgen.compile(output, TINY)
        for n in range(6):
            assert constraint.allows('"a"1' * (n // 2) + "1" * (n % 2)) == (n in good)
    output = item.times(2, 3) | Text("none") + Cfg('start: "go" /[0-9]/').optional()
    constraint = structgen.compile(output, TINY)
    texts = '11"a"', "none", "nonego1", "nonego", "1"
    assert [constraint.allows(text) for text in texts] == [1, 1, 1, 0, 0]
    assert (
        repr(output)
        == f"{item!r}.times(2, 3) | Text('none') + Cfg('start: \"go\" /[0-9]/').times(0, 1)"
    )
    assert repr((item | "x").many()) == f"({item!r} | 'x').many()"
    assert Regex("a").times(2) == Regex("a").exactly(2)
    assert Regex("a").many() == Regex("a").zero_or_more()
    for wrong in ((-1,), (2, 1), (True,), (1.5, 2)):
        with pytest.raises(OutputTypeError, match=r"[Cc]ount"):
            item.times(*wrong)


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
    for kind in (List[int], Optional[List[int]], Optional[Point]):  # noqa: UP006, UP045
        for union in (kind | Text("none"), kind | Regex("[a-z]+"), Text("none") | kind):
            assert lower(union).parse("none") == "none"
    assert lower(List[int] | Text("none")).parse("[1]") == [1]  # noqa: UP006
    assert repr(Text("a") + (Text("b") | JsonSchema(True))) == (
        "Text('a') + (Text('b') | JsonSchema(True))"
    )


def test_what_cannot_be_combined_says_what_to_do() -> None:
    for output in (ToolCalls([Point]) | Text("none"), Text("a") + ToolCalls([Point])):
        with pytest.raises(OutputTypeError, match="Use ToolCalls"):
            structgen.compile(output, TINY)
    with pytest.raises(OutputTypeError, match="is a value, not a type"):
        structgen.compile(JsonSchema(True) | 5, TINY)
    with pytest.raises(OutputTypeError, match="cannot be part of a JSON value"):
        lower(list[Text("a") | int])  # type: ignore[misc]
    with pytest.raises(OutputTypeError, match="cannot be part of a JSON value"):
        lower(list[Annotated[str, JsonSchema({"type": "string"})]])  # Pydantic would ignore it
