"""Output types: what each is lowered to, that texts parse back, and what errors say."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime as dt
import enum
import functools
import json
import operator
import pickle
import re
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, Union

import pydantic
import pytest
import typing_extensions
from byte_walks import BYTES, allowed
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    TypeAdapter,
    conint,
    constr,
)

import structgen
from structgen.errors import (
    OutputTypeError,
    ParseError,
    PatternError,
    SchemaError,
    UnsupportedFeature,
)
from structgen.grammar import ir, json_schema
from structgen.grammar.json_schema import DIGITS_ONLY
from structgen.types import Call, Cfg, Choice, JsonSchema, OutputType, Regex, lower


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Inventory(BaseModel):
    gold: int = Field(ge=0, le=99)
    items: list[str] = Field(max_length=3)


class Character(BaseModel):
    name: str
    role: Literal["mage", "knight"]
    inventory: Inventory
    nickname: str | None = None
    born: dt.date | None = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@pydantic.dataclasses.dataclass
class CheckedPoint:
    x: int = Field(ge=0)


class Movie(typing.TypedDict):
    title: str
    year: typing_extensions.NotRequired[int]


class Shelf(typing.TypedDict, total=False):
    movies: list[Movie]
    best: Optional[Movie]  # noqa: UP045 - the typing module's spelling is what is tested


class Pair(NamedTuple):
    left: int
    right: str = "x"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


def book(title: str, pages: int = 10, *, tags: list[str]) -> None:
    """A function whose arguments are generated."""


UserId = NewType("UserId", int)
Grade = typing_extensions.TypeAliasType("Grade", Literal["A", "B"])


def schema_of(output_type: Any) -> Any:
    """The schema, without the mark of integers, which are all to be written as digits."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(plain, value))
        if not isinstance(value, dict):
            return value
        assert value.get("type") != "integer" or value.get(DIGITS_ONLY) is True
        return {key: plain(part) for key, part in value.items() if key != DIGITS_ONLY}

    grammar = lower(output_type).grammar
    assert isinstance(grammar, ir.Json)
    return plain(grammar.schema)


def texts_of(output_type: Any) -> tuple[str, ...]:
    grammar = lower(output_type).grammar
    assert isinstance(grammar, ir.Choice)
    return grammar.texts


# Choices


@pytest.mark.parametrize(
    ("output_type", "texts", "values"),
    [
        (Literal["a", "b"], ("a", "b"), ["a", "b"]),
        (Literal[1, True, None, "x"], ("1", "true", "null", "x"), [1, True, None, "x"]),
        (Literal[Color.RED, "x"], ("red", "x"), [Color.RED, "x"]),
        (Literal[Literal["a", "b"], "c"], ("a", "b", "c"), ["a", "b", "c"]),  # noqa: RUF041
        (Color, ("red", "green"), [Color.RED, Color.GREEN]),
        (Size, ("1", "2"), [Size.SMALL, Size.LARGE]),
        (["yes", "no"], ("yes", "no"), ["yes", "no"]),
        (("yes", "no"), ("yes", "no"), ["yes", "no"]),
        ({"yes", "no"}, ("no", "yes"), ["no", "yes"]),
        (frozenset([2, 10]), ("10", "2"), [10, 2]),
        (["", "a"], ("", "a"), ["", "a"]),
        (["a", "a", "b"], ("a", "b"), ["a", "b"]),
        (Choice([1, 1.5, -0.5]), ("1", "1.5", "-0.5"), [1, 1.5, -0.5]),
        (Choice([1, 1.0, True]), ("1", "1.0", "true"), [1, 1.0, True]),
        (Choice([Color.RED]), ("red",), [Color.RED]),
        (
            Choice([dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 5), dt.time(5)]),
            ("2024-02-29", "2024-01-01T05:00:00", "05:00:00"),
            [dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 5), dt.time(5)],
        ),
        (
            Choice([Decimal("1E+2"), Decimal("1.50")]),
            ("100", "1.50"),
            [Decimal(100), Decimal("1.5")],
        ),
        (Choice([uuid.UUID(int=1)]), (str(uuid.UUID(int=1)),), [uuid.UUID(int=1)]),
        (Grade, ("A", "B"), ["A", "B"]),
        (Annotated[Literal[1, 2, 3], Field(ge=2)], ("2", "3"), [2, 3]),
        (Annotated[Color, Field(description="of the car")], ("red", "green"), list(Color)),
    ],
)
def test_choices_are_bare_texts(
    output_type: Any, texts: tuple[str, ...], values: list[Any]
) -> None:
    assert texts_of(output_type) == texts
    for text, value in zip(texts, values, strict=True):
        parsed = lower(output_type).parse(text)
        assert parsed == value
        assert type(parsed) is type(value)


def test_choice_gives_back_the_very_item() -> None:
    item = dt.date(2024, 1, 1)
    assert lower([item]).parse("2024-01-01") is item


def test_choice_parse_error_lists_the_members() -> None:
    with pytest.raises(ParseError, match=r"'blue' is not a member of Color. Members: red, green"):
        lower(Color).parse("blue")


# JSON


def test_models_are_closed_objects() -> None:
    schema = schema_of(Character)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "role", "inventory"]
    assert list(schema["properties"]) == ["name", "role", "inventory", "nickname", "born"]
    inventory = schema["$defs"]["Inventory"]
    assert inventory["additionalProperties"] is False
    assert inventory["properties"]["gold"] == {
        "maximum": 99,
        "minimum": 0,
        "title": "Gold",
        "type": "integer",
    }


def test_models_parse_into_their_class() -> None:
    hero = Character(
        name="Ada",
        role="mage",
        inventory=Inventory(gold=3, items=["staff"]),
        born=dt.date(2000, 2, 29),
    )
    assert lower(Character).parse(hero.model_dump_json()) == hero
    assert lower(Character).name == "Character"


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (Tree, '{"value":1,"children":[{"value":2}]}', Tree(value=1, children=[Tree(value=2)])),
        (Point, '{"x":1}', Point(1)),
        (CheckedPoint, '{"x":1}', CheckedPoint(1)),
        (Movie, '{"title":"M"}', {"title": "M"}),
        (Shelf, '{"movies":[{"title":"M","year":1}],"best":null}',
         {"movies": [{"title": "M", "year": 1}], "best": None}),
        (list[Movie], '[{"title":"M"}]', [{"title": "M"}]),
        (Pair, '{"left":1}', Pair(1)),
        (book, '{"title":"T","tags":["a"]}', Call(book, {"title": "T", "tags": ["a"]})),
        (list[int], "[1,2]", [1, 2]),
        (list, '[1,"a"]', [1, "a"]),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (dict[int, int], '{"-1":1}', {-1: 1}),
        (dict[Color, int], '{"red":1}', {Color.RED: 1}),
        (dict[bool, int], '{"true":1}', {True: 1}),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (tuple[int, ...], "[1,2]", (1, 2)),
        (set[int], "[1,2]", {1, 2}),
        (Any, '{"a":[null]}', {"a": [None]}),
        (RootModel[str], '"a"', RootModel[str]("a")),
        (str | list[int], '"a"', "a"),
        (dt.date | list[dt.date], '"2024-01-01"', dt.date(2024, 1, 1)),
        (TypeAdapter(str), '"a"', "a"),
        (TypeAdapter(dt.date), '"2024-01-01"', dt.date(2024, 1, 1)),
        (list[Decimal], '["1.50"]', [Decimal("1.50")]),
        (list[complex], '["1.5+2j"]', [1.5 + 2j]),
        (JsonSchema({"type": "object"}), '{"a":1}', {"a": 1}),
        (JsonSchema('{"type":"array"}'), "[]", []),
        (JsonSchema(True), "null", None),
    ],
)  # fmt: skip
def test_containers_are_json(output_type: Any, text: str, value: Any) -> None:
    lowered = lower(output_type)
    assert isinstance(lowered.grammar, ir.Json)
    assert lowered.parse(text) == value


@pytest.mark.parametrize(
    ("output_type", "schema", "text", "value"),
    [
        (int, {"type": "integer"}, "3", 3),
        (float, {"type": "number"}, "3", 3.0),
        (bool, {"type": "boolean"}, "true", True),
        (None, {"type": "null"}, "null", None),
        (type(None), {"type": "null"}, "null", None),
        (UserId, {"type": "integer"}, "3", 3),
        (Annotated[int, Field(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5},
         "1", 1),
        (conint(gt=3), {"type": "integer", "exclusiveMinimum": 3}, "4", 4),
        (Annotated[float, Field(le=2.5)], {"type": "number", "maximum": 2.5}, "2", 2.0),
        (Annotated[float, Field(gt=0)], {"type": "number", "exclusiveMinimum": 0}, "2", 2.0),
        (Annotated[float, Field(gt=0.3)], {"type": "number", "minimum": 0.30000000000000004},
         "2", 2.0),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "1", 1),  # noqa: UP045
    ],
)  # fmt: skip
def test_numbers_booleans_and_none_are_spelt_as_in_json(
    output_type: Any, schema: Any, text: str, value: Any
) -> None:
    assert schema_of(output_type) == schema
    parsed = lower(output_type).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["1.0", "10e-1", "1E0", "1e0"])
@pytest.mark.parametrize("strict", [False, True])
def test_integers_parse_however_json_schema_lets_them_be_spelt(text: str, strict: bool) -> None:
    assert (
        lower(Annotated[list[Annotated[int, Field(strict=strict)]], Field()]).parse(
            f'[{text},"1.0"]' if not strict else f"[{text}]"
        )[0]
        == 1
    )


def test_large_integers_keep_every_digit() -> None:
    assert lower(int).parse("1e30") == 10**30
    assert lower(list[int]).parse("[12345678901234567890.0]") == [12345678901234567890]


def test_numbers_inside_strings_are_left_alone() -> None:
    class Strict(BaseModel, strict=True):
        number: int
        text: str

    parsed = lower(Strict).parse(r'{"number":2.0,"text":"\"3.0 and \\"}')
    assert parsed == Strict(number=2, text='"3.0 and \\')


def test_extra_fields_as_the_class_says() -> None:
    class Open(BaseModel, extra="allow"):
        x: int

    assert schema_of(Open)["additionalProperties"] is True
    assert lower(Open).parse('{"x":1,"y":2}').model_extra == {"y": 2}


def test_class_without_fields_is_the_empty_object() -> None:
    class Nothing(BaseModel):
        pass

    assert schema_of(Nothing)["additionalProperties"] is False


def test_discriminated_union_always_writes_its_tag() -> None:
    schema = schema_of(Owner)
    assert schema["properties"]["pet"]["anyOf"] == [
        {"$ref": "#/$defs/Cat"},
        {"$ref": "#/$defs/Dog"},
    ]
    assert "discriminator" not in schema["properties"]["pet"]
    assert schema["$defs"]["Cat"]["required"] == ["kind", "lives"]
    assert lower(Owner).parse('{"pet":{"kind":"cat","lives":9}}').pet == Cat(lives=9)


def test_nested_discriminated_union_writes_both_tags() -> None:
    class Red(BaseModel):
        kind: Literal["car"] = "car"
        color: Literal["red"] = "red"

    class Blue(BaseModel):
        kind: Literal["car"] = "car"
        color: Literal["blue"] = "blue"

    class Bike(BaseModel):
        kind: Literal["bike"] = "bike"

    car = Annotated[Red | Blue, Field(discriminator="color")]
    schema = schema_of(Annotated[car | Bike, Field(discriminator="kind")])
    assert schema["$defs"]["Red"]["required"] == ["kind", "color"]
    assert schema["$defs"]["Bike"]["required"] == ["kind"]
    assert "oneOf" not in json.dumps(schema)


def test_aliases_are_what_is_written() -> None:
    class Aliased(BaseModel):
        plain: int = Field(alias="plainAlias")
        either: int = Field(validation_alias=AliasChoices(AliasPath("deep", 0), "shallow"))

    schema = schema_of(Aliased)
    assert schema["required"] == ["plainAlias", "shallow"]
    assert lower(Aliased).parse('{"plainAlias":1,"shallow":2}').either == 2


def test_mapping_keys_are_as_exact_as_values() -> None:
    assert schema_of(dict[Literal["a", "b"], int]) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "additionalProperties": False,
    }
    short = Annotated[str, Field(max_length=3)]
    assert schema_of(dict[short, int])["propertyNames"] == {"maxLength": 3}  # type: ignore[valid-type]
    assert schema_of(dict[dt.date, int])["propertyNames"]["pattern"].startswith("^")
    assert schema_of(Annotated[dict[str, int], Field(min_length=1)])["minProperties"] == 1
    assert "propertyNames" not in schema_of(dict[str, int])


def test_stripped_strings_are_trimmed_before_they_are_measured() -> None:
    schema = schema_of(
        list[Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=2)]]
    )
    assert re.search(schema["items"]["pattern"], "  ") is None
    assert re.search(schema["items"]["pattern"], "a b")

    class Stripping(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True)
        name: str = Field(min_length=1)
        free: str

    properties = schema_of(Stripping)["properties"]
    assert "pattern" in properties["name"]
    assert "pattern" not in properties["free"]


def test_bytes_are_measured_in_bytes() -> None:
    schema = schema_of(list[Annotated[bytes, Field(max_length=3)]])
    assert re.search(schema["items"]["pattern"], "é") is None


def test_money_is_a_number_or_a_string_with_its_bounds_and_digits() -> None:
    class Bill(BaseModel):
        price: Decimal = Field(ge=0, le=Decimal("999.99"), max_digits=5, decimal_places=2)
        tip: Annotated[Decimal, Field(gt=0, multiple_of=Decimal("0.05"))] = Decimal(1)

    constraint = structgen.compile(Bill, BYTES)

    def allows(price: str, tip: str = "0.5") -> bool:
        text = f'{{"price":{price},"tip":{tip}}}'
        if constraint.allows(text):
            Bill.model_validate_json(text)
            return True
        return False

    for price in ("0", "12.5", "12.50", '"12.50"', '"999.99"', "999.99", '"0.01"'):
        assert allows(price), price
    for price in ("-1", "1000", "999.999", '"1000"', '"-0.01"', '"0.001"', "1.005", '"1e2"'):
        assert not allows(price), price
    assert allows("1", "0.15")
    assert allows("1", '"0.15"')
    assert not allows("1", "0.16")
    assert not allows("1", '"0.16"')
    assert not allows("1", '"0.00"')
    assert constraint.allows(Bill(price=Decimal("7.10")).model_dump_json())


def test_bounds_of_decimals_keep_every_digit() -> None:
    exact = Decimal("0.1000000000000000000001")
    constraint = structgen.compile(list[Annotated[Decimal, Field(ge=exact)]], BYTES)
    assert constraint.allows(f'["{exact}"]')
    for text in ("0.1", '"0.1"', '"0.1000000000000000000000"', "0.1000000000000000000001"):
        assert not constraint.allows(f"[{text}]"), text


@pytest.mark.parametrize(
    "limits",
    [
        {"max_digits": 10**9},
        {"max_digits": 10**9, "decimal_places": 10**8},
        {"decimal_places": 10**9},
        {"multiple_of": Decimal("1e-300")},
        {"multiple_of": Decimal("1e-400")},
        {"ge": Decimal("1e5000")},
        {"le": Decimal("1e-2000")},
        {"ge": Decimal("inf")},
        {"gt": Decimal("-1e400"), "lt": 0},
    ],
)
def test_hostile_limits_of_decimals_end(limits: dict[str, Any]) -> None:
    decimal = Annotated[Decimal, Field(**limits)]
    for output_type in (decimal, list[decimal]):
        with contextlib.suppress(UnsupportedFeature, structgen.errors.CompileLimitExceeded):
            assert allowed(structgen.compile(output_type, BYTES).start())


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize("strict", [False, True])
def test_integers_are_written_as_pydantic_reads_them(order: str, strict: bool) -> None:
    output_type = list[Annotated[int, Field(strict=strict)]]
    constraint = structgen.compile(output_type, BYTES, property_order=order)
    assert constraint.allows("[12,-3]")
    for text in ("[1.0]", "[1e41]", "[1e2]"):
        assert not constraint.allows(text)


# Bare text


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (dt.date, "2024-02-29", dt.date(2024, 2, 29)),
        (dt.time, "23:59:59.5", dt.time(23, 59, 59, 500000)),
        (dt.datetime, "2024-01-01T00:00:00Z", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)),
        (pydantic.NaiveDatetime, "2024-01-01T00:00:00", dt.datetime(2024, 1, 1)),
        (dt.timedelta, "P1DT2H", dt.timedelta(days=1, hours=2)),
        (uuid.UUID, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
        (Decimal, "-1.50", Decimal("-1.50")),
        (Annotated[Decimal, Field(max_digits=3, decimal_places=2)], "1.50", Decimal("1.50")),
        (Annotated[Decimal, Field(ge=1)], "1.00000000000000000001",
         Decimal("1.00000000000000000001")),
        (Annotated[Decimal, Field(gt=0, max_digits=8, decimal_places=2)], "0.01", Decimal("0.01")),
        (complex, "1+2j", 1 + 2j),
        (Annotated[str, Field(max_length=3)], "a\n🙂", "a\n🙂"),
        (Annotated[str, Field(pattern="^a+$")], "aa", "aa"),
        (constr(min_length=1, pattern="b"), "abc", "abc"),
        (Annotated[bytes, Field(max_length=3)], "abc", b"abc"),
        (Annotated[dt.date, Field(description="of birth")], "2024-01-01", dt.date(2024, 1, 1)),
        (Regex("a+"), "aa", "aa"),
        (re.compile("a+"), "aa", "aa"),
    ],
)  # fmt: skip
def test_text_scalars_are_bare(output_type: Any, text: str, value: Any) -> None:
    lowered = lower(output_type)
    assert isinstance(lowered.grammar, ir.Pattern)
    assert lowered.parse(text) == value


def test_string_constraints_are_all_kept() -> None:
    grammar = lower(Annotated[str, Field(min_length=2, max_length=3, pattern="a")]).grammar
    assert isinstance(grammar, ir.Pattern)
    assert isinstance(grammar.regex, ir.Intersect)
    assert ir.Repeat(ir.ANY_CHAR, 2, 3) in grammar.regex.parts
    assert len(grammar.regex.parts) == 2


def test_regex_flags_reach_the_grammar() -> None:
    assert lower(Regex("a", re.IGNORECASE)).grammar != lower(Regex("a")).grammar
    assert lower(re.compile("a", re.IGNORECASE)).grammar == lower(Regex("a", re.I)).grammar


@pytest.mark.parametrize(
    ("output_type", "kinds", "examples"),
    [
        (dt.date | None, [ir.Pattern, ir.Json], {"null": None, "2024-01-01": dt.date(2024, 1, 1)}),
        (Optional[Literal["a"]], [ir.Choice, ir.Json], {"null": None, "a": "a"}),  # noqa: UP045
        (Union[int, dt.date], [ir.Json, ir.Pattern], {"7": 7, "2024-01-01": dt.date(2024, 1, 1)}),  # noqa: UP007
        (Annotated[int | dt.date | None, Field(description="when")], [ir.Json, ir.Pattern, ir.Json],
         {"7": 7, "null": None}),
        (Color | Literal["?"], [ir.Choice, ir.Choice], {"red": Color.RED, "?": "?"}),
    ],
)  # fmt: skip
def test_unions_of_scalars_are_any_of_their_texts(
    output_type: Any, kinds: list[type], examples: dict[str, Any]
) -> None:
    lowered = lower(output_type)
    assert isinstance(lowered.grammar, ir.Either)
    assert [type(part) for part in lowered.grammar.parts] == kinds
    for text, value in examples.items():
        assert lowered.parse(text) == value
    with pytest.raises(ParseError, match="none of the types"):
        lowered.parse("@")


def test_order_of_a_union_is_kept_although_the_types_are_equal() -> None:
    one, other = Union[Color, Literal["red"]], Union[Literal["red"], Color]  # noqa: UP007
    assert one == other
    assert lower(one).parse("red") is Color.RED
    assert lower(other).parse("red") == "red"


def test_constraints_on_a_union_hold_for_each_member() -> None:
    assert schema_of(Annotated[int | None, Field(ge=1)]) == {
        "anyOf": [{"minimum": 1, "type": "integer"}, {"type": "null"}]
    }


# Custom code


def test_validators_run_when_parsing() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    with pytest.raises(ParseError, match="odd") as caught:
        lower(Annotated[int, AfterValidator(even)]).parse("3")
    assert caught.value.text == "3"
    assert lower(Annotated[Literal["a"], AfterValidator(str.upper)]).parse("a") == "A"
    half = Annotated[int | dt.date, AfterValidator(lambda value: [value])]
    assert lower(half).parse("4") == [4]


def test_parse_errors_say_where_and_show_the_text() -> None:
    text = '{"name":"A","role":"mage","inventory":{"gold":100,"items":[1]}}'
    with pytest.raises(ParseError) as caught:
        lower(Character).parse(text)
    message = str(caught.value)
    assert "less than or equal to 99 at $.inventory.gold" in message
    assert "valid string at $.inventory.items[0]" in message
    assert caught.value.text == text


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ('{"name":"zzz","arguments":{}}', "no function 'zzz' (known functions: f, g) at $.name"),
        ('{"name":"f","arguments":{}}', "Field required at $.arguments.a"),
        ("3", "Input should be an object at $"),
        ('{"arguments":{"a":1}}', None),
    ],
)
def test_a_call_that_does_not_parse_is_told_once_and_by_its_json_path(
    text: str, problems: str | None
) -> None:
    def f(a: int) -> None: ...

    def g(b: str) -> None: ...

    with pytest.raises(ParseError) as caught:
        lower([f, g]).parse(text)
    message = str(caught.value)
    assert "function-after" not in message
    assert "0x" not in message
    if problems is not None:
        assert f": {problems}. Text" in message
    both: Any = operator.getitem(Union, (f, g))  # functions have no |
    with pytest.raises(ParseError) as caught:
        lower(list[both]).parse(f"[{text}]")
    assert "function-after" not in str(caught.value)


def test_the_path_in_a_parse_error_has_no_steps_that_the_json_has_not() -> None:
    with pytest.raises(ParseError) as caught:
        lower(dict[str, list[int | dt.date]]).parse('{"a":[[]]}')
    assert re.findall(r"at (\$\S*)[;.] ", str(caught.value)) == ["$.a[0]", "$.a[0]"]


class Shop:
    def sell(self, amount: int) -> None: ...


def reads_field(city: str = pydantic.Field(max_length=9)) -> None: ...


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (
            divmod,
            "'x' of divmod() has no annotation. It is a built-in function. Wrap it in a function",
        ),
        (str.upper, "'self' of upper() has no annotation. It is a built-in function. Wrap it"),
        (Shop.sell, "'self' of sell() has no annotation. Pass a bound method: the_obj"),
        (lambda: 3, "named <lambda>, but the model chooses functions by name"),
    ],
)
def test_a_function_that_is_no_tool_says_what_to_pass(function: Any, advice: str) -> None:
    with pytest.raises(OutputTypeError, match=re.escape(advice)):
        lower([function])
    lower([Shop().sell])


def test_schema_parse_errors() -> None:
    with pytest.raises(ParseError, match="not valid JSON"):
        lower(JsonSchema(True)).parse("{")
    with pytest.raises(ParseError):
        lower(JsonSchema(True)).parse("[" * 100_000)


# Functions


def test_function_arguments() -> None:
    schema = schema_of(book)
    assert schema["required"] == ["title", "tags"]
    assert schema["additionalProperties"] is False
    assert schema_of(functools.partial(book, pages=3))["required"] == ["title", "tags"]


def test_method_and_callable_without_parameters() -> None:
    class Robot:
        def move(self, x: int) -> None: ...
        def stop(self) -> None: ...

    assert list(schema_of(Robot().move)["properties"]) == ["x"]
    robot = Robot()
    assert lower(robot.stop).parse("{}") == Call(robot.stop, {})


made: list[str] = []


def delete_user(user_id: int) -> None:
    made.append("delete_user")


def greet_user(
    name: str, times: int = 1, /, *more: int, loud: bool = False, **extra: float
) -> tuple[Any, ...]:
    made.append("greet_user")
    return name, times, more, loud, extra


class Action(BaseModel):
    call: Optional[delete_user]  # type: ignore[valid-type]  # noqa: UP045
    others: list[Union[delete_user, greet_user]] = []  # type: ignore[valid-type]  # noqa: UP007


@dataclasses.dataclass
class Step:
    action: Action
    then: greet_user  # type: ignore[valid-type]


class Plan(typing_extensions.TypedDict):
    steps: dict[str, delete_user]  # type: ignore[valid-type]


DELETE = Call(delete_user, {"user_id": 3})
GREET = Call(greet_user, {"name": "Ada"})
NAMED_DELETE = '{"name":"delete_user","arguments":{"user_id":3}}'
NAMED_GREET = '{"name":"greet_user","arguments":{"name":"Ada"}}'


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (delete_user, '{"user_id":3}', DELETE),
        (functools.partial(delete_user), '{"user_id":3}', None),
        (TypeAdapter(delete_user), '{"user_id":3}', DELETE),
        (Annotated[delete_user, Field(description="x")], '{"user_id":3}', DELETE),
        (list[delete_user], '[{"user_id":3}]', [DELETE]),
        (dict[str, delete_user], '{"a":{"user_id":3}}', {"a": DELETE}),
        (tuple[delete_user, int], '[{"user_id":3},1]', (DELETE, 1)),
        (set[delete_user], '[{"user_id":3}]', {DELETE}),
        (Optional[delete_user], '{"user_id":3}', DELETE),  # noqa: UP045
        (Union[delete_user, int], "3", 3),  # noqa: UP007
        (Union[delete_user, greet_user], NAMED_GREET, GREET),  # noqa: UP007
        (Union[delete_user, greet_user, None], NAMED_DELETE, DELETE),  # noqa: UP007
        (list[Union[delete_user, greet_user]], f"[{NAMED_GREET}]", [GREET]),  # noqa: UP007
        ([delete_user, greet_user], NAMED_DELETE, DELETE),
        ((delete_user, greet_user), NAMED_GREET, GREET),
        ([delete_user], NAMED_DELETE, DELETE),
        (Cfg('start: "x"') | delete_user, '{"user_id":3}', DELETE),
        (Cfg('start: "x"') | delete_user | greet_user, NAMED_GREET, GREET),
        (
            Annotated[Union[delete_user, greet_user], AfterValidator(lambda call: [call])],  # noqa: UP007
            NAMED_GREET,
            [GREET],
        ),
        (Action, '{"call":{"user_id":3}}', Action.model_construct(call=DELETE)),
        (
            Step,
            f'{{"action":{{"call":null,"others":[{NAMED_DELETE}]}},"then":{{"name":"Ada"}}}}',
            Step(Action.model_construct(call=None, others=[DELETE]), GREET),
        ),
        (Plan, '{"steps":{"a":{"user_id":3}}}', {"steps": {"a": DELETE}}),
    ],
)  # fmt: skip
def test_functions_parse_to_calls_and_are_never_called(
    output_type: Any, text: str, value: Any
) -> None:
    made.clear()
    parsed = lower(output_type).parse(text)
    assert made == []
    if value is not None:
        assert parsed == value
        assert type(parsed) is type(value)


@pytest.mark.parametrize("name", ["type", "default", "metadata", "expected", "config"])
def test_functions_are_never_called_whatever_their_field_is_called(name: str) -> None:
    made.clear()
    fields: dict[str, Any] = {name: (delete_user, ...)}
    parsed = lower(pydantic.create_model("Fields", **fields)).parse(f'{{"{name}":{{"user_id":3}}}}')
    assert made == []
    assert getattr(parsed, name) == DELETE


def test_calls_are_made_as_the_signature_says() -> None:
    text = '{"name":"A","times":2,"more":[3,4],"loud":true,"extra":{"x":0.5}}'
    call = lower(greet_user).parse(text)
    assert call.name == "greet_user"
    assert call.function is greet_user
    assert call.arguments["more"] == [3, 4]
    assert call.call() == ("A", 2, (3, 4), True, {"x": 0.5})
    # What comes before *more has to be passed with it, although the model left it out.
    assert lower(greet_user).parse('{"name":"A","more":[9]}').call() == ("A", 1, (9,), False, {})
    assert GREET.call() == ("Ada", 1, (), False, {})
    assert GREET() == GREET.call()
    fixed = lower(functools.partial(greet_user, "B")).parse('{"loud":true}')
    assert fixed.name == "greet_user"
    assert fixed.call() == ("B", 1, (), True, {})

    class Robot:
        def move(self, x: int) -> int:
            return x

    assert lower([Robot().move]).parse('{"name":"move","arguments":{"x":7}}').call() == 7


def test_calls_are_values() -> None:
    assert repr(DELETE) == "Call(delete_user(user_id=3))"
    assert DELETE == Call(delete_user, {"user_id": 3}) != Call(delete_user, {"user_id": 4})
    assert hash(DELETE) == hash(Call(delete_user, {"user_id": 3}))
    assert copy.deepcopy(DELETE) == DELETE == pickle.loads(pickle.dumps(DELETE))
    with pytest.raises(dataclasses.FrozenInstanceError):
        DELETE.function = greet_user  # type: ignore[misc]
    with pytest.raises(TypeError):
        DELETE.arguments["user_id"] = 4  # type: ignore[index]


def test_arguments_are_checked_when_parsing() -> None:
    def limited(count: Annotated[int, Field(le=3)]) -> None: ...

    with pytest.raises(ParseError, match=r"less than or equal to 3 at \$.count"):
        lower(limited).parse('{"count":4}')
    with pytest.raises(ParseError):
        lower(delete_user).parse('{"user_id":1,"other":2}')
    with pytest.raises(ParseError):
        lower([delete_user, greet_user]).parse('{"user_id":3}')


def test_functions_of_one_name_cannot_be_told_apart() -> None:
    def renamed(x: int) -> None: ...

    renamed.__name__ = "delete_user"
    with pytest.raises(OutputTypeError, match="both named 'delete_user'"):
        lower([delete_user, renamed])
    with pytest.raises(OutputTypeError, match="both named 'delete_user'"):
        lower(list[Union[delete_user, renamed]])  # type: ignore[valid-type]  # noqa: UP007


class Options(typing_extensions.TypedDict):
    size: int
    color: typing_extensions.NotRequired[str]


def test_keyword_arguments_of_a_typed_dict() -> None:
    def paint(what: str, **options: typing_extensions.Unpack[Options]) -> Any:
        return what, options

    schema = schema_of(paint)
    assert schema["required"] == ["what", "options"]
    call = lower(paint).parse('{"what":"wall","options":{"size":3}}')
    assert call.call() == ("wall", {"size": 3})


# Errors


class Pairs(enum.Enum):
    ONE = (1, 2)


class Unknown:
    pass


def no_types(x):  # type: ignore[no-untyped-def]
    return x


def undefined(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("output_type", "message"),
    [
        ({"type": "object", "age": "integer"}, r"JsonSchema\(\{...\}\)"),
        ("abc", r"Regex\('abc'\)"),
        (5, r"Choice\(\[5\]\)"),
        (Color.RED, "is a value, not a type"),
        (Pair(1), r"Pass its class instead: Pair\."),
        (Inventory.model_construct(), r"Pass its class instead: Inventory\."),
        (Point(1), r"Pass its class instead: Point\."),
        (object(), "not a type that structgen can generate"),
        (
            Unknown,
            r"Unknown.*not a type that structgen can generate\..* see docs/output-types\.md\.$",
        ),
        (
            list[Unknown],
            r"Unknown.*not a type that structgen can generate \(output type list\[Unkn",
        ),
        (..., "not a type"),
        (lambda: 3, "A lambda has no name"),
        (list[functools.partial(lambda x: x, x=1)], "A lambda has no name"),  # type: ignore[misc]
        (type[Unknown], r"A class \(type\[Unknown\]\) cannot be written in JSON"),
        (list[type[int]], r"A class \(type\[int\]\) cannot be written in JSON, at \$.items"),
        (no_types, "Parameter 'x' of no_types.* has no annotation. Add a type"),
        (list[no_types], "Parameter 'x' of no_types.* has no annotation. Add a type"),
        ([no_types], "Parameter 'x' of no_types.* has no annotation. Add a type"),
        ([book, "text"], "no plain text.*pass a list that contains only functions"),
        (Choice([book]), "no plain text.*pass a list that contains only functions"),
        (undefined, "a name that is not defined"),
        (dict.fromkeys, "cannot be read|no annotation|cannot be passed"),
        (Literal[()], "has no members"),
        (Literal[b"a"], "has no plain text"),
        ([], "has no members"),
        (enum.Enum("Empty", []), "Empty has no members"),
        (Pairs, "ONE.*has no plain text"),
        ([1, "1"], r"both written as '1': 1 and '1'"),
        ([int, str], "Union"),
        ([float("nan")], "has no plain text"),
        ([["a"], ["b"]], "has no plain text"),
        (["\ud800"], "surrogate"),
        (Annotated[Literal[1, 2], Field(ge=3)], "has no members"),
        (Callable[[int], int], "cannot be written as JSON"),
        (type, "cannot be written as JSON"),
    ],
)
def test_wrong_output_types_say_what_to_write(output_type: Any, message: str) -> None:
    with pytest.raises(OutputTypeError, match=message):
        lower(output_type)


@pytest.mark.parametrize(
    ("output_type", "path", "message"),
    [
        (list[pydantic.Json[int]], "$.items", "JSON inside a JSON string"),
        (list[Pairs], "$.$defs.Pairs", "does not parse back"),
        (dict[float, int], "$", "key type is not supported"),
        (dict[Size, int], "$", "key type is not supported"),
        (
            list[Annotated[Decimal, Field(multiple_of=Decimal("3e-16"))]],
            "$.items",
            "multiple of 3E-16",
        ),
    ],
)
def test_what_cannot_be_masked_is_refused_with_its_path(
    output_type: Any, path: str, message: str
) -> None:
    with pytest.raises(UnsupportedFeature, match=message) as caught:
        lower(output_type)
    assert caught.value.path == path
    assert caught.value.fix


def test_path_of_a_refused_field() -> None:
    class Deep(BaseModel):
        first: int = Field(validation_alias=AliasPath("numbers", 0))

    with pytest.raises(UnsupportedFeature, match="alias path") as caught:
        lower(list[Deep])
    assert caught.value.path == "$.$defs.Deep.properties.first"


def test_format_of_a_bare_text_is_named() -> None:
    with pytest.raises(UnsupportedFeature, match=r"'format'.*'uri'") as caught:
        lower(Annotated[str, Field(json_schema_extra={"format": "uri"})])
    assert caught.value.keyword == "format"


def test_undefined_forward_reference() -> None:
    class Later(BaseModel):
        other: NotYet  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(OutputTypeError, match=r"not (fully )?defined"):
        lower(Later)


@dataclasses.dataclass
class _Dangling:
    x: Missing1  # type: ignore[name-defined]  # noqa: F821


class _DanglingDict(typing_extensions.TypedDict):
    x: Missing2  # type: ignore[name-defined]  # noqa: F821


class _DanglingModel(BaseModel):
    x: Missing3  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("output_type", "missing"),
    [
        (_Dangling, "Missing1"),
        (_DanglingDict, "Missing2"),
        (_DanglingModel, "Missing3"),
        (list[_DanglingModel], "Missing3"),
        (list["Missing4"], "Missing4"),  # type: ignore[name-defined]  # noqa: F821
        (Optional["Missing5"], "Missing5"),  # type: ignore[name-defined]  # noqa: F821
        (dict[str, _Dangling], "Missing1"),
    ],
)
def test_what_is_not_defined_is_named(output_type: Any, missing: str) -> None:
    with pytest.raises(OutputTypeError) as caught:
        lower(output_type)
    assert missing in str(caught.value)
    assert "TypeAliasType" in str(caught.value)  # what a type that contains itself needs
    assert ".rebuild()" not in str(caught.value)


def test_an_alias_may_contain_itself() -> None:
    Tree: Any = typing_extensions.TypeAliasType("Tree", dict[str, "Tree"] | int)  # type: ignore[misc]
    assert lower(Tree).parse('{"a": {"b": 1}}') == {"a": {"b": 1}}
    with pytest.raises(ParseError):
        lower(Tree).parse('{"a": "b"}')


def test_bad_patterns_are_refused_when_lowering() -> None:
    with pytest.raises(PatternError):
        lower(Regex("("))
    with pytest.raises(OutputTypeError):
        lower(Regex(r"(a)\1"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Regex(b"a"), r"got bytes. Call .decode"),  # type: ignore[arg-type]
        (lambda: Regex(None), "got NoneType"),  # type: ignore[arg-type]
        (lambda: Regex("a", "i"), "flags of the re module"),  # type: ignore[arg-type]
        (lambda: Choice("abc"), r"Write Choice\(\['abc'\]\)"),
        (lambda: Choice({"a": 1}), "takes a list of items"),
        (lambda: Choice(3), "takes a list of items"),  # type: ignore[arg-type]
        (lambda: JsonSchema("{"), "not valid JSON"),
        (lambda: JsonSchema("3"), "an object or a boolean"),
        (lambda: JsonSchema([]), "an object or a boolean"),  # type: ignore[arg-type]
        (
            lambda: JsonSchema({"properties": {"a": int}}),
            r"type.*is not a JSON value, at \$.properties.a",
        ),
        (lambda: JsonSchema({"enum": [float("inf")]}), r"at \$.enum\[0\]"),
        (lambda: JsonSchema({1: 2}), "Keys in a JSON Schema must be strings"),  # type: ignore[dict-item]
    ],
)
def test_wrapper_arguments_are_checked_at_once(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OutputTypeError, match=message):
        make()


def test_schema_that_contains_itself() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    with pytest.raises(SchemaError, match=r"contains itself, at \$.properties.a") as caught:
        JsonSchema(schema)
    assert caught.value.path == "$.properties.a"


# Values and caching


def test_wrappers_are_values() -> None:
    assert Regex("a") == Regex("a")
    assert hash(Choice([1, "a"])) == hash(Choice((1, "a")))
    assert Choice([1]) != Choice([True])
    assert JsonSchema({"a": 1}) == JsonSchema('{"a": 1}')
    assert hash(JsonSchema(True)) == hash(JsonSchema("true"))
    assert repr(Regex("a")) == "Regex('a')"
    assert repr(Choice(["abcdef"])) == "Choice(['abcdef'])"
    assert repr(JsonSchema({"type": "null"})) == "JsonSchema({'type': 'null'})"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Regex("a").pattern = "b"  # type: ignore[misc]


def test_schema_is_copied() -> None:
    schema = {"type": "object"}
    wrapped = JsonSchema(schema)
    schema["type"] = "array"
    wrapped.schema["type"] = "string"
    assert lower(wrapped).grammar == ir.Json({"type": "object"})


def test_what_is_lowered_stays_as_it_is() -> None:
    lowered = lower(["a", "b"])
    assert lowered == OutputType(lowered.grammar, lowered.parse, "Choice(['a', 'b'])")
    assert lower(lowered) is lowered


@pytest.mark.parametrize(
    ("output_type", "name"),
    [
        (list[Character], "list[Character]"),
        (dict[str, int | None], "dict[str, int | None]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, Field(ge=1)], "int"),
        (dt.date | None, "date | None"),
        (book, "book()"),
        (UserId, "UserId"),
        (Choice(range(9)), "Choice([0, 1, 2, 3, 4, …])"),
        (Literal["x" * 200], "Literal['" + "x" * 70 + "…"),
    ],
)
def test_names(output_type: Any, name: str) -> None:
    assert lower(output_type).name == name


def test_discriminator_function() -> None:
    tagged = Annotated[
        Annotated[Cat, pydantic.Tag("c")] | Annotated[Dog, pydantic.Tag("d")],
        Discriminator(lambda value: "c" if "lives" in value else "d"),
    ]
    assert "oneOf" not in json.dumps(schema_of(tagged))
    assert lower(tagged).parse('{"lives":3}') == Cat(lives=3)


# -- patterns that Pydantic's engine does not read -------------------------------------------


@dataclasses.dataclass
class _Ahead:
    x: Annotated[str, Field(pattern="^(?=a)[a-c]+$")]
    inner: _Ahead | None = None


@pytest.mark.parametrize("text", ['{"x":"abc","inner":{"x":"a","inner":null}}', '{"x":"a"}'])
def test_lookarounds_parse_in_fields(text: str) -> None:
    for output_type in (_Ahead, list[_Ahead]):
        wrapped = text if output_type is _Ahead else f"[{text}]"
        parsed = lower(output_type).parse(wrapped)
        assert (parsed if output_type is _Ahead else parsed[0]).x[0] == "a"
        with pytest.raises(ParseError, match=r"should match pattern '\^\(\?=a\)"):
            lower(output_type).parse(wrapped.replace('"x":"a', '"x":"b'))


class _Deferred(BaseModel):
    model_config = ConfigDict(defer_build=True)
    x: Annotated[str, Field(pattern="^(?=a)[a-c]+$")]


def test_lookarounds_parse_in_models_that_are_built_late() -> None:
    assert lower(_Deferred).parse('{"x":"ab"}').x == "ab"
    with pytest.raises(ParseError):
        lower(_Deferred).parse('{"x":"b"}')


def test_lookarounds_parse_as_bare_text() -> None:
    lowered = lower(Annotated[str, Field(pattern="(?!b)[a-c]$", max_length=2)])
    assert lowered.parse("ba") == "ba"
    with pytest.raises(ParseError):
        lowered.parse("aab")
    union = lower(Annotated[int | Annotated[str, Field(pattern="^(?=a)a{2}$")], Field(title="t")])
    assert union.parse("aa") == "aa"


@pytest.mark.parametrize("pattern", ["[a", r"^(a)\1$"])
def test_patterns_that_are_refused_say_where(pattern: str) -> None:
    kept = Annotated[str, Field(pattern=pattern)]
    for output_type in (kept, Optional[kept]):  # noqa: UP045
        with pytest.raises(PatternError, match=re.escape(pattern)):
            lower(output_type)
    with pytest.raises(PatternError, match=re.escape(pattern)):
        lower(Annotated[Literal["a", "b"], Field(pattern=pattern)])
    made = dataclasses.make_dataclass("Made", [("x", kept)])
    schema = lower(made).grammar.schema  # type: ignore[union-attr]
    with pytest.raises(SchemaError) as caught:
        json_schema.lower(schema)
    assert caught.value.path == "$.properties.x.pattern"


def test_a_union_makes_no_number_of_a_boolean() -> None:
    for output_type in (Cfg('start: "a"') | int | bool, Cfg('start: "a"') | bool | int):
        parse = lower(output_type).parse
        assert [parse(text) for text in ("true", "1", "0", "false")] == [True, 1, 0, False]
        assert [type(parse(text)) for text in ("true", "1")] == [bool, int]
        assert parse("a") == "a"
    assert lower(int | dt.date | bool).parse("true") is True
    # What an int would be made of, were it lax, is the grammar's.
    assert lower(Cfg('start: "true"') | int).parse("true") == "true"


def test_patterns_and_choices_that_stand_where_a_type_does() -> None:
    def field(annotation: Any) -> Any:
        return pydantic.create_model("M", g=(annotation, ...))

    def in_dataclass(annotation: Any) -> Any:
        return dataclasses.make_dataclass("M", [("g", annotation)])

    for wrong, advice in (
        (Regex("a"), r"Annotated\[str, Regex\('a'\)\]"),
        (Regex("a") | Regex("b"), r"Annotated\[str, "),
        (Regex, r"Annotated\[str, Regex\(\.\.\.\)\]"),
        (Choice(["a", "b"]), r"Literal\['a', 'b'\]"),
        (Choice, "Literal"),
        (Cfg, "cannot be part of a JSON value"),
    ):
        for shape in (field, in_dataclass, lambda one: list[one]):
            with pytest.raises(OutputTypeError, match=advice):
                lower(shape(wrong))


# -- patterns mean what Pydantic reads them as -------------------------------------------------

RUST_PATTERNS = [
    *(r"^\D+$", r"^\W$", r"^\S+ \S+$", r"^\s$", r"^[^\d\s]+$", r"^[^\w]$", r"^[\D]$", r"^[\W]+$"),
    *(r"^[\s\S]$", r"^[^\S]$", r"^[^\D]$", r"\ba", r"a\B", r"^[[:alpha:][:digit:]]$"),
    *(r"^[^[:space:]]$", r"\Aa\z", r"^\x{e9}\U0001F600$", r"^(?P<name>a)$", r"^\pL$", r"^[]a]$"),
    *(r"^[^]a]$", r"^[a[bc]]$", r"^\a$", r"^.$", r"^\d\w$", r"^[a\]]$"),
    *("^[^[a]b]$", r"^[\x{e9}-\x{eb}]$"),
]
ALL_SORTS = "ab1_ -]\t\n\x07\x0b\x1c\x85\xa0é²ªßıſK٣߀०１ⅣⅷA\u0301\u200d\u203f\u2028\u3000\ufeff😀漢"


@pytest.mark.parametrize("pattern", RUST_PATTERNS)
def test_what_a_pattern_of_pydantics_allows_it_takes(pattern: str) -> None:
    adapter = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    constraint = structgen.compile(Annotated[str, Field(pattern=pattern)], BYTES)
    texts = [
        "",
        *ALL_SORTS,
        *(a + b for a in ALL_SORTS for b in ALL_SORTS),
        "a b",
        "é x",
        "éa",
        "aé",
    ]
    n_allowed = 0
    for text in [*texts, "é😀", "name", "a1", "a😀"]:
        if not constraint.allows(text):
            continue
        n_allowed += 1
        adapter.validate_python(text)  # raises where it is none
    assert n_allowed


@pytest.mark.parametrize(
    "pattern", [r"\<a", r"\b{start}a", r"^[\w--\d]$", "^[a[^b]]$", "[[:^alpha:]]"]
)
def test_patterns_without_a_form_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedFeature, match="ECMA-262 does not support") as caught:
        lower(list[Annotated[str, Field(pattern=pattern)]])
    assert caught.value.path == "$.items"


def test_patterns_of_pythons_engine() -> None:
    class Python(BaseModel):
        model_config = ConfigDict(regex_engine="python-re")
        text: Annotated[str, Field(pattern=r"(?i)^A\d$")]

    compiled = Annotated[str, Field(pattern=re.compile("B(?=c)", re.IGNORECASE))]
    for output_type, wrap, good, bad in (
        (Python, '{{"text":"{}"}}', ["a1", "A٣"], ["b", "1a1"]),
        (list[compiled], '["{}"]', ["abc", "BC"], ["ab", "c"]),
    ):
        constraint = structgen.compile(output_type, BYTES)
        for text in good:
            assert constraint.allows(wrap.format(text)), text
            lower(output_type).parse(wrap.format(text))
        for text in bad:
            assert not constraint.allows(wrap.format(text)), text


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"const": 10**4300}, r"The integer at \$\.const has more than 4,300 digits"),
        ({"enum": [1, -(10**5000)]}, r"The integer at \$\.enum\[1\] has more than 4,300 digits"),
        ({"const": float("nan")}, r"the number nan, at \$\.const\. Use a finite number"),
    ],
)
def test_numbers_that_are_no_json_are_told_alone(schema: Any, message: str) -> None:
    with pytest.raises(structgen.errors.SchemaError, match=message) as caught:
        lower(JsonSchema(schema))
    assert caught.value.__context__ is None


def test_the_longest_integer_that_python_writes_is_a_schema() -> None:
    longest = 10**4300 - 1
    assert lower(JsonSchema({"const": longest})).parse(str(longest)) == longest


def test_a_regex_stays_whatever_comes_after_it() -> None:
    for after in (Field(max_length=3), Field(min_length=2)):
        kind: Any = list[Annotated[str, Regex("[a-z]+"), after]]
        constraint = structgen.compile(kind, BYTES)
        assert constraint.allows('["abc"]')
        assert not constraint.allows('["ab1"]')
