"""Partial values: monotone, what is whole equals what is parsed; at a cost of the new bytes."""

from __future__ import annotations

import codecs
import datetime as dt
import gc
import json
import random
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
from engine import strategies
from engine.walks import TINY, examples, seeds, walk
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    Field,
    OnErrorOmit,
    RootModel,
    ValidationInfo,
    field_validator,
    model_validator,
)

import structgen
from structgen import (
    IncompleteOutput,
    JsonSchema,
    OutputTypeError,
    ParseError,
    Partial,
    Regex,
    Template,
)
from structgen.grammar import ir
from structgen.types import lower
from structgen.values import GrowingValue
from values.random_types import any_class, any_type


class City(BaseModel):
    name: str = Field(alias="cityName")
    founded: dt.date


class Trip(BaseModel):
    title: str
    days: int
    cities: list[City] = []
    by: Literal["car", "train"] | None = None


def grow(output_type: Any, *pieces: str) -> list[Partial]:
    """What becomes known after each piece, and at the end; None where nothing new does."""
    output = lower(output_type)
    growing = GrowingValue(output)
    found = [growing.feed(piece) for piece in pieces]
    return [*found, growing.finish(output.parse("".join(pieces)))]


def test_fields_appear_when_they_are_settled():
    pieces = ['{"title":"The E', 'ast","da', 'ys":1', "2", ',"by":"tr', "ain", '"', "}"]
    title, grown, one, two, days, by, whole, closed, end = grow(Trip, *pieces)
    assert title.title == "The E"
    assert not title.done("title")
    assert (grown.title, grown.done("title")) == ("The East", True)
    assert one is two is None, "a number is there when it is whole"
    assert days.days == 12
    assert by is None, "a choice is there when it is whole"
    assert whole.by == "train"
    assert closed is None
    assert end.complete
    assert end.value == Trip(title="The East", days=12, by="train")
    assert [list(one) for one in (title, days, whole)] == [
        ["title"],
        ["title", "days"],
        ["title", "days", "by"],
    ]


def test_what_was_seen_does_not_change():
    first, second, _, end = grow(Trip, '{"title":"A', 'BC","days":3', "}")
    assert repr(first) == "Partial(title='A', …)"
    assert repr(second) == "Partial(title='ABC', …)"
    assert repr(end) == "Partial(title='ABC', days=3)"
    assert first.title == "A"
    assert first.so_far == {"title": "A"}
    assert not first.complete
    assert not second.done("days")
    assert end.so_far == end.value == Trip(title="ABC", days=3)


def test_what_is_not_there_says_so():
    first, *_ = grow(Trip, '{"title":"A', '","days":3}')
    with pytest.raises(AttributeError, match=r"'days' has not been written yet.*done\('days'\)"):
        _ = first.days
    with pytest.raises(KeyError, match="'days' has not been written yet"):
        first["days"]
    with pytest.raises(IncompleteOutput, match=r"still being written.*\.so_far"):
        _ = first.value
    assert not hasattr(first, "days")
    assert "days" not in first
    assert "title" in first


def test_a_name_that_no_value_has_is_told():
    first, *_ = grow(Trip, '{"title":"A', '","days":3}')
    said = r"'dys' is not a field. Did you mean 'days'\? The fields are: by, cities, days, title"
    with pytest.raises(AttributeError, match=said):
        first.done("dys")
    with pytest.raises(AttributeError, match=said):
        _ = first.dys
    with pytest.raises(KeyError, match="'dys' is not a field"):
        first["dys"]
    assert first.done(0) is False
    held = GrowingValue(lower(Template("{who}: {trip}", who=Regex("[a-z]+"), trip=Trip))).feed("a")
    assert held.done("trip") is False
    with pytest.raises(AttributeError, match="'tripp' is not a field"):
        held.done("tripp")


@pytest.mark.parametrize(
    ("output_type", "text", "path"),
    [
        (City | Trip, '{"title":"A"', ("founded",)),
        (dict[str, City], '{"a":{"cityName":"R"', ("b",)),
        (Trip | dict[str, int], '{"title":"A"', ("other",)),
        (JsonSchema({"type": "object"}), '{"a":1', ("b",)),
        (Trip, '{"title":"A"', ("model_fields_set",)),
        (list[Trip] | Trip, '[{"title":"A"', ("title",)),
    ],
)
def test_a_name_that_some_value_may_have_is_not_done(output_type, text, path):
    growing = GrowingValue(lower(output_type))
    assert growing.feed(text).done(*path) is False


def test_lists_grow_item_by_item_and_classes_field_by_field():
    city = '{"cityName":"Rome","founded":"0753-04-21"}'
    pieces = ['{"title":"","days":1,"cities":[', '{"cityName":"Ro', city[15:], "," + city[:20]]
    empty, begun, one, two, _ = grow(Trip, *pieces, city[20:], "]}")[:5]
    rome = City(cityName="Rome", founded=dt.date(753, 4, 21))
    assert list(empty.cities) == []
    assert isinstance(empty.cities, Partial)
    assert begun.cities[0].name == "Ro", "by the name of the field, not by its alias"
    assert (begun.done("cities", 0, "name"), begun.done("cities", 0)) == (False, False)
    assert one.cities[0] == rome
    assert one.done("cities", 0)
    assert one.done("cities", 0, "name")
    assert not one.done("cities")
    assert (len(two.cities), two.cities[-1].name, two.cities[-2]) == (2, "Rome", rome)
    with pytest.raises(IndexError, match="There are 2 items so far, but no item 2"):
        two.cities[2]
    assert two.so_far["cities"] == [rome, {"name": "Rome"}]
    end = grow(Trip, *pieces, city[20:], "]}")[-1]
    assert end.cities == [rome, rome]
    assert end.done("cities", 1, "founded")
    assert not end.done("cities", 2)


def test_fields_by_items_whatever_they_are_called():
    Odd = TypedDict("Odd", {"done": str, "value": int, "a b": str})
    (first, *_, end) = grow(Odd, '{"done":"x', '","value":3,"a b":"y"}')
    assert first["done"] == "x"
    assert first.done("done") is False
    assert (end["value"], end["a b"], end.value["value"]) == (3, "y", 3)


def test_sets_and_roots_are_read_as_their_json():
    first, second, end = grow(set[int], "[3,1", "2]")
    assert (list(first), list(second)) == ([3], [3, 12])
    assert end.done(0)
    assert end.value == {3, 12}

    class Root(RootModel[list[str]]):
        pass

    first, end = grow(Root, '["ab"]')
    assert (first[0], end.value) == ("ab", Root(["ab"]))


def test_classes_of_attrs_and_msgspec_and_calls():
    @attrs.define
    class Attrs:
        name: str
        when: dt.date

    class Struct(msgspec.Struct, rename="camel"):
        full_name: str
        born: dt.date

    for cls, key in ((Attrs, "name"), (Struct, "fullName")):
        born = "when" if cls is Attrs else "born"
        first, second, *_, end = grow(cls, f'{{"{key}":"A', f'b","{born}":"2024-01-01"', "}")
        name = "name" if cls is Attrs else "full_name"
        assert first[name] == "A"
        assert second[born] == getattr(end.value, born) == dt.date(2024, 1, 1)

    def greet(name: str, times: int) -> None:
        raise AssertionError("nothing is called")

    first, _, end = grow(greet, '{"name":"A', '","times":3}')
    assert first.name == "A"
    assert end.value.arguments == {"name": "A", "times": 3}
    first, *_ = grow([greet, print_it], '{"name":"greet","arguments":{"name":"A', '","times":3}}')
    assert (first.name, first.arguments.name) == ("greet", "A")


def print_it(text: str) -> None: ...


def test_maps_have_the_keys_of_their_type():
    first, *_, end = grow(
        dict[int, list[dt.date]], '{"1":["2024-01-01"', ',"2024-01-02"],"2":', "[]}"
    )
    assert first[1][0] == dt.date(2024, 1, 1)
    assert list(first) == [1]
    assert end.value == {1: [dt.date(2024, 1, 1), dt.date(2024, 1, 2)], 2: []}


def test_text_is_a_value_that_grows():
    assert [str(one) for one in grow(Regex("[a-z ]+"), "ab", " c")] == ["ab", "ab c", "ab c"]
    first, second, end = grow(Annotated[str, Field(min_length=1)], "ab", "c")
    assert (first.so_far, second.so_far, first.complete) == ("ab", "abc", False)
    assert (end.value, end.complete, end.so_far) == ("abc", True, "abc")
    nothing, end = grow(dt.date, "2024-01-01")
    assert nothing is None
    assert end.value == dt.date(2024, 1, 1)
    nothing, end = grow(Literal["tea", "coffee"], "tea")
    assert (nothing, end.value, str(end)) == (None, "tea", "tea")
    nothing, end = grow(int, "12")
    assert (nothing, end.value, end.complete) == (None, 12, True)
    free = GrowingValue(None)
    assert str(free.feed("x")) == "x"


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str
    born: dt.date


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    born: str


class Point(BaseModel):
    x: int


def test_unions_are_decided_by_tags_and_keys():
    for kind, born in (("cat", dt.date(2024, 1, 1)), ("dog", "2024-01-01")):
        text = [f'{{"kind":"{kind}"', ',"name":"T', 'om","born":"2024-01-01"', "}"]
        first, name, both, _, end = grow(Cat | Dog | Point, *text)
        assert first.kind == kind
        assert name.name == "T"
        assert both.born == born
        assert type(end.value).__name__.lower() == kind
    first, _ = grow(Point | list[int] | None, '{"x":3}')
    assert first.x == 3
    first, _ = grow(Point | list[int] | None, "[1,2]")
    assert list(first) == [1, 2]


def test_what_candidates_disagree_on_waits_for_the_whole():
    class One(BaseModel):
        when: dt.date
        a: int = 0

    class Two(BaseModel):
        when: str
        b: int = 0

    held, told, _ = grow(One | Two, '{"when":"2024-01-01"', ',"b":1}')
    assert "when" not in held
    assert not held.done("when")
    assert told.when == "2024-01-01"
    held, _, end = grow(One | Two, '{"when":"2024-01-01"', "}")
    assert "when" not in held
    assert end.when == end.value.when


def test_validators_run_and_refuse_where_they_are():
    class Checked(BaseModel):
        name: str
        twice: str = ""
        nested: Point | None = None

        @field_validator("name")
        @classmethod
        def shout(cls, name: str) -> str:
            if name == "no":
                raise ValueError("not this one")
            return name.upper()

        @field_validator("twice")
        @classmethod
        def as_the_name(cls, twice: str, info: ValidationInfo) -> str:
            return twice + info.data["name"]

    growing, whole, twice, *_, end = grow(
        Checked, '{"name":"an', 'n"', ',"twice":"x"', ',"nested":{"x":1}', "}"
    )
    assert growing is not None
    assert "name" not in growing, "it will be another text"
    assert whole.name == "ANN"
    assert "twice" not in twice, "its validator asks for the other fields"
    assert (end.twice, end.value.twice) == ("xANN", "xANN")
    output = lower(Checked)
    refused = GrowingValue(output).feed('{"name":"no",')
    assert refused is not None
    assert list(refused) == ["name"]
    assert repr(refused) == "Partial(name=(refused), …)"
    with pytest.raises(ParseError, match="not this one"):
        _ = refused.name


@pytest.mark.parametrize("kind", [list, dict])
def test_what_only_the_whole_tells_is_in_the_last_partial(kind: Any) -> None:
    def even(number: int, _: ValidationInfo) -> int:
        if number % 2:
            raise ValueError("odd")
        return number

    def grown(item: Any, *items: str) -> list[Partial]:
        is_list = kind is list
        pieces = [one if is_list else f'"{i}":{one}' for i, one in enumerate(items)]
        pieces = ["[" if is_list else "{", *(piece + "," for piece in pieces[:-1]), pieces[-1]]
        of = list[item] if is_list else dict[str, item]
        return [*filter(None, grow(of, *pieces, "]" if is_list else "}"))]

    asks = Annotated[int, AfterValidator(even)]  # for the other fields, if there are any
    text = OnErrorOmit[str]
    short = OnErrorOmit[Annotated[list[int], Field(max_length=1)]]

    class One(BaseModel):
        a: asks

    for item, items, told in (
        (asks, ("2", "4"), {"0": 2, "1": 4}),
        (OnErrorOmit[asks], ("2", "3", "4"), {"0": 2, "2": 4}),
        (text, ('"a"', '"b"'), {"0": "a", "1": "b"}),
        (OnErrorOmit[One], ('{"a":2}', '{"a":3}', '{"a":4}'), {"0": One(a=2), "2": One(a=4)}),
        (short, ("[1]", "[2]"), {"0": [1], "1": [2]}),
    ):
        *before, end = grown(item, *items)
        assert all(len(partial) == 0 and not partial.so_far for partial in before)
        assert [*end] == [*(told.values() if kind is list else told)]
        assert [end[name] for name in (range(len(end)) if kind is list else end)] == [
            *told.values()
        ]


def test_a_class_that_changes_its_fields_does_so_in_the_value():
    class Sorted(BaseModel):
        items: list[int]

        @model_validator(mode="after")
        def sort(self) -> Sorted:
            self.items.sort()
            return self

    first, *_, end = grow(Sorted, '{"items":[3,1', "]}", "")
    assert list(first.items) == [3]
    assert end.items == [3, 1], "as it was before"
    assert end.value.items == [1, 3]


def test_json_schemas_are_plain_data():
    schema = JsonSchema({"type": "object"})
    first, second, *_, end = grow(schema, '{"a":{"b":[1, "x', '\\ud83d\\ude00"]', "}}")
    assert first.a.b[1] == "x"
    assert first.so_far == {"a": {"b": [1, "x"]}}
    assert second["a"]["b"] == [1, "x😀"]
    assert end.value == {"a": {"b": [1, "x😀"]}}


# -- properties -------------------------------------------------------------------------------


def seen(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool, Any]]:
    """Everything that a partial value shows: its path, whether it is whole, and what it is."""
    if not isinstance(value, Partial):
        yield path, True, value
        return
    for step in range(len(value)) if value._kind == "array" else value:
        inner = value[step]
        if isinstance(inner, Partial):
            assert not value.done(step)
            yield (*path, step), False, type(inner)
            yield from seen(inner, (*path, step))
        else:
            done = value.done(step)
            assert done or isinstance(inner, str)
            yield (*path, step), done, inner


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        attribute = isinstance(step, str) and not isinstance(value, (dict, Partial))
        attribute = attribute and hasattr(value, step)
        value = getattr(value, step) if attribute else value[step]
    return value


def check(output_type: Any, text: bytes, sizes: Iterator[int]) -> int:
    """Follow an output and hold each partial value against those before and what is parsed."""
    output = lower(output_type)
    if isinstance(output.grammar, ir.Json):
        pairs: list[list[str]] = []
        json.loads(text, object_pairs_hook=lambda items: pairs.append([k for k, _ in items]))
        if any(len(set(keys)) < len(keys) for keys in pairs):
            return 0  # only the last of two equal keys counts
    try:
        final = output.parse(text.decode())
    except ParseError:
        return 0
    growing = GrowingValue(output)
    decode = codecs.getincrementaldecoder("utf-8")().decode
    known: dict[Any, Any] = {}
    open_texts: dict[Any, str] = {}
    partials = []
    start = 0
    while start < len(text):
        size = next(sizes)
        partial = growing.feed(decode(text[start : start + size]))
        start += size
        if partial is not None:
            assert not partial.complete
            partials.append((partial, repr(partial)))
    partials.append((growing.finish(final), None))
    for partial, shown in partials:
        if shown is not None:
            assert repr(partial) == shown, "what comes later changes nothing"
        now = {path: (done, value) for path, done, value in seen(partial)}
        for path, value in known.items():
            if path in now:
                assert now[path] == (True, value), (path, text)
            else:  # inside of what is whole by now
                assert same(at(partial, path), value), (path, text)
        for path, begun in open_texts.items():
            text_now = now[path][1] if path in now else at(partial, path)
            assert text_now.startswith(begun)
        for path, (done, value) in now.items():
            if done:
                known[path] = value
            elif isinstance(value, str):
                open_texts[path] = value
    for path, value in known.items():
        try:
            found = at(final, path)
        except (TypeError, LookupError):
            assert isinstance(final, (set, frozenset)), (path, final)
            continue
        assert same(found, value), (path, found, value, text)
    assert partials[-1][0].value is final
    return len(known)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Partial):
        one = one.so_far
    return type(one) is type(other) and one == other


OPTIONS: list[dict[str, Any]] = [
    {},
    {"whitespace": "flexible"},
    {"property_order": "any"},
    {"spelling": "any"},
    {"ensure_ascii": True},
]


class Aliased(BaseModel, extra="allow", populate_by_name=True):
    text: str = Field(validation_alias=AliasChoices("first", "second"))
    __pydantic_extra__: dict[str, int]


class Tree(BaseModel):
    number: int
    children: list[Tree] = []
    left: Tree | None = None


@pytest.mark.parametrize(
    "output_type",
    [
        *(Aliased, Tree, Cat | Dog | Point, list[Cat | Dog], dict[str, Tree | Aliased]),
        Annotated[list[Annotated[Cat | Dog, Field(discriminator="kind")]], Field(max_length=3)],
        tuple[int, str, Point],
        *(JsonSchema({"type": "object"}), JsonSchema({"type": "array"})),
    ],
    ids=str,
)
def test_types_of_each_kind_grow_as_they_are_parsed(output_type: Any) -> None:
    r = random.Random(str(output_type))
    for options in OPTIONS:
        constraint = structgen.compile(output_type, TINY, **options)
        written = walk(constraint, r, max_tokens=150, special=0.4)
        check(output_type, written.data, (len(TINY.tokens[i]) for i in written.ids))


@pytest.mark.parametrize("seed", seeds(25))
def test_random_types_grow_as_they_are_parsed(seed: int) -> None:
    r = random.Random(seed)
    n_known = 0
    for _ in range(4):
        output_type = any_class(r) if r.random() < 0.5 else any_type(r)
        try:
            constraint = structgen.compile(output_type, TINY, **r.choice(OPTIONS))
        except OutputTypeError:
            continue
        for _ in range(2):
            written = walk(constraint, r, max_tokens=250, special=0.4)
            lengths = (len(TINY.tokens[i]) for i in written.ids)
            n_known += check(output_type, written.data, lengths)
    assert n_known or seed


@examples(150)
@given(st.randoms(use_true_random=False))
def test_any_json_grows_however_it_is_cut(r: random.Random) -> None:
    data = {"x": strategies.value(r, 3), "y": [strategies.value(r, 2)]}
    text = strategies.spell(r, data).encode()
    check(JsonSchema(True), text, iter(lambda: r.randint(1, 5), None))


class Wide(BaseModel):
    items: list[dict[str, str]]


def test_a_token_costs_the_same_wherever_it_comes():
    item = '{"a":"some text","b":"\\u00e9"},'
    growing = GrowingValue(lower(Wide))
    growing.feed('{"items":[')
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    costs = []
    gc.collect()  # which has callbacks of its own
    gc.disable()
    for n in range(3_000):
        sys.setprofile(count if n in (10, 2_990) else None)
        for begin in range(0, len(item), 4):
            growing.feed(item[begin : begin + 4])
        sys.setprofile(None)
        if n in (10, 2_990):
            costs.append(calls)
            calls = 0
    gc.enable()
    assert costs[0] == costs[1]
