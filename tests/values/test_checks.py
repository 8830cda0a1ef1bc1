"""What code says of values as they close: as early as can be, and never of what could be valid."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import attrs
import pydantic
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    OnErrorOmit,
    PastDate,
    RootModel,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

import structgen
from structgen import ParseError
from structgen.types import lower
from structgen.values import Refusal, checks_of


def short_id(value: object) -> str:
    """``str`` without addresses, which differ between the processes that share the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value


def forgiving(value: Any, handler: Any) -> Any:
    try:
        return handler(value)
    except ValueError:
        return 0


Even = Annotated[int, AfterValidator(even)]
Small = Annotated[Even, Field(default=0)]


class Item(BaseModel):
    n: Even


class Plain(BaseModel):
    a: int
    items: list[Item]


class WithInfo(BaseModel):
    a: int
    b: int
    c: int

    @field_validator("b")
    @classmethod
    def differs(cls, value: int, info: pydantic.ValidationInfo) -> int:
        if value == info.data.get("a"):
            raise ValueError("as a")
        return value


class Whole(BaseModel):
    a: int
    b: Even

    @model_validator(mode="after")
    def agree(self) -> Whole:
        if self.a == self.b:
            raise ValueError("equal")
        return self


class Changed(BaseModel):
    a: Even
    b: int

    @model_validator(mode="before")
    @classmethod
    def repair(cls, data: Any) -> Any:
        return {**data, "a": data["a"] + data["b"]} if isinstance(data, dict) else data


class Forgiven(BaseModel):
    a: Annotated[Even, WrapValidator(forgiving)]
    b: list[OnErrorOmit[Even]]


class ForgivenInside(BaseModel):
    item: Annotated[Item | int, WrapValidator(forgiving)]
    b: Even


class Early(BaseModel):
    a: Even
    kind: Literal["x"]


class Late(BaseModel):
    a: int
    kind: Literal["y"]


class Union(BaseModel):
    one: Early | Late
    n: Even


class Keys(BaseModel):
    d: dict[Annotated[str, AfterValidator(lambda key: (even(len(key)) and key) or key)], int]


class Tree(BaseModel):
    n: Even
    below: list[Tree] = []


class Optional(BaseModel):
    a: int = 0
    b: int = 0

    @field_validator("b")
    @classmethod
    def more(cls, value: int, info: pydantic.ValidationInfo) -> int:
        if value <= info.data["a"]:
            raise ValueError("too small")
        return value


@dataclasses.dataclass
class Data:
    a: int
    b: int

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise ValueError("equal")


@attrs.define
class Attrs:
    a: int = attrs.field()
    b: int = attrs.field()

    @b.validator
    def check(self, attribute: Any, value: int) -> None:
        if value == self.a:
            raise ValueError("equal")


class Typed(TypedDict):
    a: Even
    b: tuple[Even, Even]


class Root(RootModel[list[Even]]):
    pass


NUMBERS = (0, 1, 2)
PAIRS = [{"a": a, "b": b} for a, b in itertools.product(NUMBERS, repeat=2)]
EARLY_LATE = [{"a": a, "kind": kind} for a in NUMBERS for kind in "xy"]
DOCUMENTS: dict[Any, list[Any]] = {
    Item: [{"n": n} for n in NUMBERS],
    Plain: [
        {"a": a, "items": [{"n": n} for n in ns]}
        for a in (1, 2)
        for k in (0, 1, 2)
        for ns in itertools.product(NUMBERS, repeat=k)
    ],
    WithInfo: [{**pair, "c": c} for pair in PAIRS for c in (1, 2)],
    Whole: PAIRS,
    Changed: PAIRS,
    Forgiven: [{"a": a, "b": [b, c]} for a, b, c in itertools.product(NUMBERS, repeat=3)],
    ForgivenInside: [{"item": item, "b": b} for item in ({"n": 1}, {"n": 2}, 1) for b in NUMBERS],
    Union: [{"one": one, "n": n} for one in EARLY_LATE for n in NUMBERS],
    Keys: [
        {"d": {key: 1, other: 2}} for key, other in itertools.permutations(["a", "ab", "abcd"], 2)
    ],
    Tree: [
        {"n": n, "below": [{"n": m}, {"n": k, "below": []}]}
        for n, m, k in itertools.product(NUMBERS, repeat=3)
    ],
    Optional: [*PAIRS, *({"a": a} for a in NUMBERS), *({"b": b} for b in NUMBERS), {}],
    Data: PAIRS,
    list[Data]: [[one, two] for one in PAIRS for two in PAIRS[:3]],
    Attrs: PAIRS,
    Typed: [{"a": a, "b": [b, c]} for a, b, c in itertools.product(NUMBERS, repeat=3)],
    Root: [list(ns) for k in (0, 1, 2) for ns in itertools.product(NUMBERS, repeat=k)],
    Annotated[list[int], AfterValidator(lambda v: v if sum(v) < 3 else even(1))]: [
        list(ns) for ns in itertools.product(NUMBERS, repeat=2)
    ],
    int | Annotated[list[Even], BeforeValidator(lambda v: v)]: [1, 2, [1], [2], [2, 1]],
    Annotated[Even | None, Field()]: [None, 1, 2],
    list[PastDate]: [["2999-01-01"], ["1999-01-01"], ["1999-01-01", "2999-01-01"], []],
}


def refusal_of(output_type: Any, text: str, *, in_order: bool = True) -> Refusal | None:
    checks = checks_of(lower(output_type), in_order=in_order)
    assert checks is not None
    reading = checks.reading()
    settled = 0
    for byte in text.encode():
        found = reading.read(bytes([byte]))
        if found is not None:
            assert found.start >= settled, "what was settled stands"
            return found
        assert reading.settled >= settled
        settled = reading.settled
    found = reading.end()
    assert found is None or found.start >= settled
    if found is None:
        assert [lower(output_type).parse(text)] == list(reading.values)
    return found


def is_valid(output_type: Any, text: str) -> bool:
    try:
        lower(output_type).parse(text)
    except ParseError:
        return False
    return True


def barred(text: str, refusal: Refusal) -> Iterator[str]:
    """The beginnings that a refusal excludes."""
    if refusal.ended_by is None:
        yield text[: refusal.end]
    else:
        yield from (text[: refusal.end] + chr(byte) for byte in refusal.ended_by)


@pytest.mark.parametrize("output_type", DOCUMENTS, ids=short_id)
def test_what_is_refused_is_refused_whatever_follows(output_type: Any) -> None:
    texts = [json.dumps(one, separators=(",", ":")) for one in DOCUMENTS[output_type]]
    valid = [text for text in texts if is_valid(output_type, text)]
    assert valid, "some are valid, or the test shows nothing"
    for text in texts:
        refusal = refusal_of(output_type, text)
        assert (refusal is None) == (text in valid), text
        if refusal is not None:
            for beginning in barred(text, refusal):
                assert not [one for one in valid if one.startswith(beginning)], (text, refusal)


def test_in_any_order_no_field_is_blamed_before_those_it_depends_on() -> None:
    texts = [json.dumps(one) for pair in PAIRS for one in (pair, dict(reversed(pair.items())))]
    texts += [json.dumps({"b": b}) for b in NUMBERS]
    valid = [text for text in texts if is_valid(Optional, text)]
    for text in texts:
        refusal = refusal_of(Optional, text, in_order=False)
        assert (refusal is None) == (text in valid)
        if refusal is not None:
            for beginning in barred(text, refusal):
                assert not [one for one in valid if one.startswith(beginning)]


@pytest.mark.parametrize(
    ("output_type", "text", "path", "value", "read"),
    [
        (Plain, '{"a":1,"items":[{"n":3},', "$.items[0].n", "3", '{"a":1,"items":[{"n":3}'),
        (Whole, '{"a":1,"b":3}', "$.b", "3", '{"a":1,"b":3}'),
        (Whole, '{"a":2,"b":2}', "$", '{"a":2,"b":2}', '{"a":2,"b":2}'),
        (WithInfo, '{"a":1,"b":1,"c":2}', "$.b", "1", '{"a":1,"b":1,"c":2}'),
        (Changed, '{"a":1,"b":2}', "$.a", '1,"b":2}', '{"a":1,"b":2}'),
        (Union, '{"one":{"a":1,"kind":"x"}', "$.one.a", '1,"kind":"x"}', ""),
        (list[PastDate], '["2999-01-01"', "$[0]", '"2999-01-01"', '["2999-01-01"'),
        (Even, "13", "$", "13", "13"),
        (PastDate, "2999-01-01", "$", "2999-01-01", "2999-01-01"),
    ],
)
def test_what_is_told_and_when(
    output_type: Any, text: str, path: str, value: str, read: str
) -> None:
    checks = checks_of(lower(output_type))
    assert checks is not None
    reading, found, n_read = checks.reading(), None, 0
    while found is None and n_read < len(text):
        found = reading.read(text[n_read].encode())
        n_read += 1
    found = found or reading.end()
    assert found is not None
    assert found.path == path
    assert text[found.start : found.end] == value
    if read:
        assert text[:n_read] == read


def test_what_stands_before_the_open_values_to_be_judged_is_settled() -> None:
    checks = checks_of(lower(Plain))
    assert checks is not None
    text = '{"a":12,"items":[{"n":2},{"n":44}]}'
    reading, settled = checks.reading(), []
    for byte in text.encode():
        assert reading.read(bytes([byte])) is None
        settled.append(reading.settled)
    at = text.index("44")
    assert settled[at + 1] == at
    assert settled[at - 1] == at
    assert settled[-1] == len(text)


@pytest.mark.parametrize("name", ["type", "function", "default", "config", "computed_fields"])
def test_fields_have_any_name(name: str) -> None:
    class Inner(BaseModel):
        n: int = 0

        @model_validator(mode="after")
        def small(self) -> Inner:
            assert self.n < 10
            return self

    fields: dict[str, Any] = {name: (Inner | Even, ...)}
    checks = checks_of(lower(pydantic.create_model("Fields", **fields)))
    assert checks is not None
    found = checks.reading().read(f'{{"{name}":{{"n":12}}'.encode())
    assert found is not None
    assert found.path == f"$.{name}"
    assert checks.reading().read(f'{{"{name}":4,'.encode()) is None


def test_types_without_code_have_no_checks() -> None:
    assert checks_of(lower(list[int])) is None
    assert checks_of(lower(structgen.JsonSchema({"type": "object"}))) is None
    assert checks_of(lower(Literal["a", "b"])) is None


def test_explain_lists_what_looks_at_values() -> None:
    class Times(BaseModel):
        past: PastDate
        opening: Annotated[dt.time, Field(ge=dt.time(9))]

        def model_post_init(self, context: Any) -> None:
            pass

    assert lower(Times).checked == (
        ("$", "model_post_init"),
        ("$.properties.past", "in the past"),
        ("$.properties.opening", "ge=09:00:00"),
    )
    assert lower(Data).checked == (("$", "__post_init__"),)
