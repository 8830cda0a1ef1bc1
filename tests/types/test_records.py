"""attrs and msgspec classes: what masks allow, both libraries take; parsed into instances."""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import msgspec
import pytest
from attrs import validators
from byte_walks import BYTES, walk
from pydantic import BaseModel, ConfigDict

import structgen
from structgen.errors import OutputTypeError, ParseError
from structgen.types import lower

T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@attrs.define
class Part:
    name: str = attrs.field(validator=[validators.min_len(1), validators.max_len(8)])
    count: int = attrs.field(validator=validators.and_(validators.ge(1), validators.lt(9)))
    size: Size = Size.SMALL
    code: str = attrs.field(default="aa", validator=validators.matches_re("[a-c]{2}"))
    begins: str = attrs.field(default="xy", validator=validators.matches_re("x", func=re.match))
    holds: str = attrs.field(default="y!", validator=validators.matches_re("!$", func=re.search))
    kind: str = attrs.field(default="q", validator=validators.in_(["q", "r"]))
    least: int | None = attrs.field(default=None, validator=validators.optional(validators.gt(3)))
    marks: list[int] = attrs.field(
        factory=list, validator=validators.deep_iterable(validators.le(6), validators.max_len(2))
    )
    by_name: dict[str, int] = attrs.field(
        factory=dict, validator=validators.deep_mapping(validators.min_len(1), validators.ge(0))
    )
    _hidden: bool = False
    computed: int = attrs.field(init=False, default=7)
    parts: list[Part] = attrs.field(factory=list, validator=validators.max_len(1))


@attrs.frozen
class Box(Generic[T]):
    content: T
    more: list[T] = attrs.field(factory=list)


@attrs.define
class Checked:
    even: int = attrs.field()
    text: str = attrs.field(converter=str.strip)

    @even.validator
    def _is_even(self, attribute: Any, value: int) -> None:
        if value % 2:
            raise ValueError("odd")


class Node(msgspec.Struct, rename="camel"):
    node_name: Annotated[str, msgspec.Meta(min_length=1, max_length=6)]
    weight: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.0
    when: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    data: bytes = b""
    code: Annotated[str, msgspec.Meta(pattern="^[a-c]+$", max_length=4)] = "a"
    parents: Annotated[list[Node], msgspec.Meta(max_length=1)] = []
    note: str | msgspec.UnsetType = msgspec.UNSET
    own: int = msgspec.field(default=0, name="an-own-name")


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag_field="kind", tag="sq"):
    side: int


class Diamond(msgspec.Struct, tag_field="kind", tag="di"):
    side: float


class Row(msgspec.Struct, array_like=True, tag=3):
    first: int
    second: str = "x"


class Pair(msgspec.Struct, Generic[T]):
    one: T
    two: T | None = None


class Ordered(msgspec.Struct):
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low above high")


def drawn(output_type: Any, count: int = 12) -> list[str]:
    constraint = structgen.compile(output_type, BYTES)
    return [walk(constraint, seed, (12, 40, 90, 200)[seed % 4]) for seed in range(count)]


@pytest.mark.parametrize("output_type", [Part, list[Part], Box[int], Box[Box[str]], Part | int])
def test_attrs_classes_take_what_masks_allow(output_type: Any) -> None:
    lowered = lower(output_type)
    for text in drawn(output_type):
        lowered.parse(text)  # calls the classes, whose validators raise


@pytest.mark.parametrize(
    "output_type",
    [Node, list[Node], Diamond | Square, Pair[int], Pair[Pair[str]], Row, dict[str, Square]],
)
def test_msgspec_reads_what_masks_allow_alike(output_type: Any) -> None:
    lowered = lower(output_type)
    for text in drawn(output_type):
        assert lowered.parse(text) == msgspec.json.decode(text, type=output_type)


def test_instances_and_their_defaults() -> None:
    part = lower(Part).parse(
        '{"name":"a","count":2,"hidden":true,"parts":[{"name":"b","count":1}]}'
    )
    assert part == Part("a", 2, hidden=True, parts=[Part("b", 1)])
    assert lower(Box[int]).parse('{"content":1}') == Box(1)
    shapes = lower(list[Circle | Node]).parse('[{"type":"Circle","radius":2},{"nodeName":"n"}]')
    assert shapes == [Circle(2), Node("n")]


@pytest.mark.parametrize(
    ("output_type", "texts"),
    [
        (Part, ['{"name":"","count":1}', '{"name":"a","count":9}', '{"name":"a","count":0}']),
        (Part, ['{"name":"a","count":1,"code":"ab"}'.replace("ab", "ad"), '{"count":1}']),
        (Part, ['{"name":"a","count":1,"begins":"yx"}', '{"name":"a","count":1,"holds":"!y"}']),
        (Part, ['{"name":"a","count":1,"kind":"s"}', '{"name":"a","count":1,"least":3}']),
        (Part, ['{"name":"a","count":1,"marks":[7]}', '{"name":"a","count":1,"marks":[1,1,1]}']),
        (Part, ['{"name":"a","count":1,"by_name":{"":1}}', '{"name":"a","count":1,"other":1}']),
        (Part, ['{"name":"a","count":1,"computed":7}', '{"name":"a","count":1,"size":"m"}']),
        (Node, ['{"nodeName":""}', '{"node_name":"a"}', '{"nodeName":"a","code":"d"}']),
        (Node, ['{"nodeName":"a","weight":0}', '{"nodeName":"a","when":"2020-01-01T00:00:00"}']),
        (Circle, ['{"radius":1}', '{"type":"Square","radius":1}']),
        (Row, ['[4,1,"x"]', '{"first":1}']),
    ],
)
def test_constraints_are_in_the_mask(output_type: Any, texts: list[str]) -> None:
    constraint = structgen.compile(output_type, BYTES)
    for text in texts:
        assert not constraint.allows(text), text


@pytest.mark.parametrize(
    ("output_type", "text", "named"),
    [
        (Checked, '{"even":1,"text":" a"}', "is_even"),
        (Ordered, '{"low":2,"high":1}', "__post_init__"),
    ],
)
def test_code_is_left_to_parsing_and_told(output_type: Any, text: str, named: str) -> None:
    constraint = structgen.compile(output_type, BYTES)
    assert constraint.allows(text)
    assert any(named in row.note for row in constraint.explain().rows if "parse" in row.how)
    with pytest.raises(ParseError):
        lower(output_type).parse(text)
    assert lower(Checked).parse('{"even":2,"text":" a "}') == Checked(2, "a")


def test_what_is_not_masked_is_refused() -> None:
    class Late(msgspec.Struct):
        when: Annotated[dt.time, msgspec.Meta(tz=True)]

    with pytest.raises(
        OutputTypeError, match=r"Meta\(tz=True\) on time is not supported.* Late.when"
    ):
        lower(Late)

    class Outer(BaseModel, arbitrary_types_allowed=True):
        part: Part
        kind: Literal["a"] = "a"

    with pytest.raises(OutputTypeError):
        lower(Outer)


def test_a_record_in_a_pydantic_class_says_what_to_write() -> None:
    class Loose(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        part: Part

    with pytest.raises(OutputTypeError, match="Define the outer class with the same library"):
        lower(Loose)


@attrs.define
class Chosen:
    one: str | None = attrs.field(validator=validators.optional(validators.in_(["a", "b"])))
    other: Any = attrs.field(default=None, validator=validators.optional(validators.in_([1])))
    marks: list[int] | None = attrs.field(
        default=None, validator=validators.optional(validators.deep_iterable(validators.gt(3)))
    )


@attrs.define
class Never:
    number: int | None = attrs.field(validator=validators.gt(3))
    text: str | None = attrs.field(default="a", validator=validators.max_len(2))


@attrs.define
class Within:
    text: str = attrs.field(validator=validators.in_("abc"))


def takes(output_type: Any, text: str) -> bool:
    """Whether masks allow ``text``."""
    return structgen.compile(output_type, BYTES, whitespace="compact").allows(text)


@pytest.mark.parametrize(
    ("output_type", "values"),
    [
        (Chosen, [{"one": None}, {"one": "a"}, {"one": "c"}, {"one": "a", "other": None}]),
        (Chosen, [{"one": "a", "other": 1}, {"one": "a", "other": 2}]),
        (Chosen, [{"one": "a", "marks": [4]}, {"one": "a", "marks": None}]),
        (Chosen, [{"one": "a", "marks": [3]}]),
        (Never, [{"number": None}, {"number": 4}, {"number": 4, "text": None}]),
        (Within, [{"text": ""}, {"text": "ab"}]),
    ],
)
def test_validators_and_none_are_as_in_attrs(output_type: Any, values: list[Any]) -> None:
    for value in values:
        try:
            made = output_type(**value)
        except (TypeError, ValueError):
            made = None
        text = json.dumps(value, separators=(",", ":"))
        assert takes(output_type, text) == (made is not None)
        if made is not None:
            assert lower(output_type).parse(text) == made


def test_an_option_within_a_text_is_left_to_parsing() -> None:
    assert lower(Within).checked == (("$", "InValidator"),)
    with pytest.raises(ParseError, match="must be in 'abc'"):
        lower(Within).parse('{"text":"ac"}')
