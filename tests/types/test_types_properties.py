"""Output types against generated values: whatever a schema or pattern allows parses.

`instances` draws JSON texts from a lowered schema in awkward but legal spellings (``1.0`` for an
integer, escapes in strings); the types cover what Pydantic's own schema gets wrong.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import re
import uuid
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import jsonschema
import pydantic
import pytest
from engine.walks import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from structgen.automaton.schema import evaluate
from structgen.grammar import ir
from structgen.grammar.regex import algebra as regex_algebra
from structgen.types import exact_schema, lower

UTC = dt.timezone.utc


# Formats


@pytest.mark.parametrize(
    ("pattern", "python_type"),
    [
        (exact_schema.date_pattern(), dt.date),
        (exact_schema.time_pattern(), dt.time),
        (exact_schema.datetime_pattern(), dt.datetime),
        (exact_schema.datetime_pattern("required"), pydantic.AwareDatetime),
        (exact_schema.datetime_pattern("forbidden"), pydantic.NaiveDatetime),
        (exact_schema.duration_pattern(), dt.timedelta),
        (exact_schema.uuid_pattern(), uuid.UUID),
        (exact_schema.uuid_pattern(4), pydantic.UUID4),
        (exact_schema.uuid_pattern(7), pydantic.UUID7),
        (exact_schema.decimal_text(exact_schema.Limits())["pattern"], Decimal),  # type: ignore[index]
        (exact_schema.COMPLEX, complex),
        (exact_schema.INTEGER, int),
    ],
)
@settings(max_examples=60)
@given(data=st.data())
def test_what_a_pattern_allows_parses(pattern: str, python_type: Any, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern.replace("$", r"\Z")))
    TypeAdapter(python_type).validate_json(json.dumps(text))


BOUNDS: list[Any] = [
    *("0", "1", "-1", "0.05", "-0.05", "9.99", "10", "99", "100.10", "-123.456", "0.1", "-1000"),
    *(0.3, -2, Decimal("0.1000000000000000000001"), 12345678901234567890),
]


@st.composite
def decimal_limits(draw: st.DrawFn) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for keys in (("ge", "gt"), ("le", "lt")):
        if draw(st.booleans()):
            value = draw(st.sampled_from(BOUNDS))
            limits[draw(st.sampled_from(keys))] = Decimal(value) if type(value) is str else value
    if draw(st.booleans()):
        limits["max_digits"] = draw(st.integers(1, 20))
    if draw(st.booleans()):
        places = draw(st.integers(0, 4))
        limits["decimal_places"] = min(places, limits.get("max_digits", places))
    if draw(st.integers(0, 2)) == 0:
        limits["multiple_of"] = Decimal(draw(st.sampled_from(["0.01", "0.05", "0.25", "1", "3"])))
    return limits


SHAPES = st.from_regex(
    r"-?(0|[1-9][0-9]{0,5})([.][0-9]{1,4})?", fullmatch=True, alphabet="-.0123456789"
)
SHIFTS = st.sampled_from(["0", "0.01", "-0.01", "0.0001", "-1", "1", "10", "-9.9", "0.050"])


def near(limits: dict[str, Any]) -> st.SearchStrategy[str]:
    """Plain decimals: near the bounds, and anywhere."""
    found = [Decimal(str(limits[key])) for key in ("ge", "gt", "le", "lt") if key in limits]
    close = [
        SHIFTS.map(lambda shift, bound=bound: format(bound + Decimal(shift), "f"))
        for bound in found
    ]
    return st.one_of(SHAPES, *close)


def fits(text: str, limits: dict[str, Any]) -> bool:
    """Whether the digits that are written, zeros at the end included, are not too many."""
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = limits.get("max_digits", 99)
    places = limits.get("decimal_places")
    used = len(whole if whole != "0" else "") + len(fraction)
    return used <= digits and (places is None or len(fraction) <= places)


@settings(max_examples=300, deadline=None)
@given(decimal_limits(), st.data())
def test_decimals_are_those_that_pydantic_takes(
    limits: dict[str, Any], data: st.DataObject
) -> None:
    adapter = TypeAdapter(Annotated[Decimal, Field(**limits)])
    found = exact_schema.Limits.of(limits)
    pattern = exact_schema.decimal_text(found)
    text = data.draw(near(limits))
    try:
        adapter.validate_json(f'"{text}"')
    except pydantic.ValidationError:
        is_valid = False
    else:
        is_valid = fits(text, limits)
    if pattern is not None:
        parts = [["regex", pattern["pattern"], 0]] if "pattern" in pattern else []
        parts += [pattern[regex_algebra.KEYWORD]] if regex_algebra.KEYWORD in pattern else []
        assert evaluate.matches(regex_algebra.lower(["and", *parts]), text) is is_valid, text
    # As a number it is read as a float, so that what is near a bound may be on its other side.
    allowed = any(_allows_number(schema, text) for schema in exact_schema.decimal_numbers(found))
    if allowed:
        adapter.validate_json(text)
    elif is_valid and "multiple_of" not in limits and text.strip("-0.") and len(text) < 12:
        most = exact_schema.MAX_SPELT_OUT
        assert limits.get("max_digits", 0) > most or set(limits) & {"gt", "lt"}


def _allows_number(schema: dict[str, Any], text: str) -> bool:
    """Whether a number is valid under the few keywords that lowering emits, in exact arithmetic."""
    number = Fraction(text)
    exact = {key: Fraction(str(value)) for key, value in schema.items() if key in _EXACT}
    return (
        number >= exact.get("minimum", number)
        and number <= exact.get("maximum", number)
        and number > exact.get("exclusiveMinimum", number - 1)
        and number < exact.get("exclusiveMaximum", number + 1)
        and ("multipleOf" not in exact or number % exact["multipleOf"] == 0)
        and schema.get("not", {}).get("const") != number
        and all(_allows_number(rule, text) for rule in schema.get("allOf", ()))
    )


_EXACT = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
FLOATS = st.floats(-1e9, 1e9) | st.sampled_from([0.1, 0.3, 2.5, 1e-9, 0.7, 1e22, 5e-324])


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["ge", "gt", "le", "lt"]), FLOATS, max_size=2),
    st.none() | st.sampled_from([0.1, 0.01, 0.3, 2.5, 3.0, 0.05, 1e-5, 1e7 / 3]),
    st.data(),
)
def test_floats_satisfy_their_bounds_after_rounding(
    limits: dict[str, float], step: float | None, data: st.DataObject
) -> None:
    given = limits if step is None else {**limits, "multiple_of": step}
    adapter = TypeAdapter(Annotated[float, Field(**given)])  # type: ignore[arg-type]
    schema = exact_schema.float_schema(exact_schema.Limits.of(given))
    if step is None:
        edges = [value + shift for value in limits.values() for shift in (0.0, 1.0, -1.0)]
        value = data.draw(st.floats(-1e6, 1e6) | st.sampled_from([*edges, 1.0]))
        text = format(Decimal(repr(value)), "f")
        ends = ["", "0", "00000000000000000001"]
        text += data.draw(st.sampled_from(ends)) if "." in text else ""
    else:
        text = format(Decimal(repr(step)) * data.draw(st.integers(-(10**9), 10**9)), "f")
    is_valid = True
    try:
        adapter.validate_json(text)
    except pydantic.ValidationError:
        is_valid = False
    if _allows_number(schema, text):
        assert is_valid, (text, given)
    elif step is None:  # what Pydantic dumps is allowed, however near it is
        dumped = format(Decimal(repr(float(text))), "f")
        assert not is_valid or _allows_number(schema, dumped), (text, given)


def test_every_date_of_the_calendar_and_no_other() -> None:
    matches = re.compile(exact_schema.date_pattern()).fullmatch
    for year in (1, 4, 99, 100, 400, 1899, 1900, 1999, 2000, 2023, 2024, 2100, 2400, 9999):
        for month in range(14):
            for day in range(33):
                text = f"{year:04d}-{month:02d}-{day:02d}"
                try:
                    dt.date.fromisoformat(text)
                except ValueError:
                    assert not matches(text), text
                else:
                    assert matches(text), text
    for text in ("0000-01-01", "0000-02-29", "2024-1-1", "24-01-01", "2024-01-011", "", "2024"):
        assert not matches(text), text


def test_leap_days_of_ten_thousand_years() -> None:
    matches = re.compile(exact_schema.date_pattern()).fullmatch
    for year in range(1, 10_000):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        assert bool(matches(f"{year:04d}-02-29")) is leap
        assert matches(f"{year:04d}-02-28")


@settings(max_examples=50)
@given(st.dates(), st.dates(), st.lists(st.dates(), min_size=1, max_size=20))
def test_date_bounds(first: dt.date, last: dt.date, days: list[dt.date]) -> None:
    matches = re.compile(exact_schema.date_pattern(first, last)).fullmatch
    near = [
        edge + dt.timedelta(days=shift)
        for edge in (first, last)
        for shift in (-1, 0, 1)
        if dt.date.min.toordinal() <= edge.toordinal() + shift <= dt.date.max.toordinal()
    ]
    for day in days + near:
        assert bool(matches(day.isoformat())) is (first <= day <= last)


def test_bounds_of_days_as_pydantic_reads_them() -> None:
    day = Annotated[dt.date, Field(ge="2026-01-01", lt="2026-03-01")]
    moment = Annotated[dt.datetime, Field(ge=dt.date(2026, 1, 1), le="2026-02-28T12:00:00Z")]
    for bounded, rest in ((day, ""), (moment, "T10:00:00")):
        mask = lower(bounded).grammar.source
        for text, is_one in (("2025-12-01", False), ("2026-01-01", True), ("2026-03-03", False)):
            assert bool(re.fullmatch(mask, text + rest)) is is_one


@given(
    st.datetimes(dt.datetime(2019, 12, 25), dt.datetime(2020, 1, 10)),
    st.none() | st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.none() | st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_days_of_bounded_datetimes(value: dt.datetime, offset: Any, of_bounds: Any) -> None:
    """What Pydantic accepts is masked in, in any time zone; of other years nothing is."""

    def zone(minutes: Any) -> Any:
        return None if minutes is None else dt.timezone(dt.timedelta(minutes=minutes))

    first = dt.datetime(2019, 12, 31, 12, tzinfo=zone(of_bounds))
    last = dt.datetime(2020, 1, 3, 12, tzinfo=zone(of_bounds))
    bounded = Annotated[dt.datetime, pydantic.Field(gt=first, le=last)]
    pattern = TypeAdapter(bounded)
    text = value.replace(tzinfo=zone(offset)).isoformat()
    mask = lower(bounded).grammar.source
    try:
        pattern.validate_json(json.dumps(text))
    except pydantic.ValidationError:
        return
    finally:
        assert not re.fullmatch(mask, text.replace("20", "33", 1).replace("19", "33", 1))
    assert re.fullmatch(mask, text)


@given(st.datetimes(timezones=st.none() | st.timezones()))
def test_datetimes_as_dumped_match(value: dt.datetime) -> None:
    text = json.loads(TypeAdapter(dt.datetime).dump_json(value))
    seconds_in_offset = re.search(r"[+-]\d\d:\d\d:\d\d", value.isoformat())  # local mean time
    if not seconds_in_offset:
        assert re.fullmatch(exact_schema.datetime_pattern(), text)


@given(st.uuids())
def test_uuids_match(value: uuid.UUID) -> None:
    assert re.fullmatch(exact_schema.uuid_pattern(), str(value))
    matches = re.fullmatch(exact_schema.uuid_pattern(4), str(value))
    assert bool(matches) is (value.version == 4)


DAYS = dt.timedelta(days=999_999_990)


@given(
    st.timedeltas()
    | st.timedeltas(min_value=DAYS)
    | st.timedeltas(max_value=-DAYS)
    | st.integers(0, 4000).map(lambda days: dt.timedelta(days=days))
    | st.sampled_from([dt.timedelta.max, dt.timedelta.min, dt.timedelta(days=999_999_999)])
)
def test_durations_as_dumped_match(value: dt.timedelta) -> None:
    text = json.loads(TypeAdapter(dt.timedelta).dump_json(value))
    assert re.fullmatch(exact_schema.duration_pattern(), text)


def test_years_are_as_long_as_pydantic_has_them() -> None:
    for text in (
        "P1Y35D",
        "-P2739725Y364DT23H59M59.999999S",
        "P2736800Y999999DT999999H999999M",
        "-P2739726Y8DT23H59M59.999999S",
        "P2739726Y9DT23H59M59.999999S",
    ):
        assert re.fullmatch(exact_schema.duration_pattern(), text)
        TypeAdapter(dt.timedelta).validate_json(f'"{text}"')
    for text in ("P2739727Y", "P2739726Y10D", "-P2739726Y9DT1S", "P2739725Y365D", "P1Y1W", "P1M"):
        assert not re.fullmatch(exact_schema.duration_pattern(), text)


# Schemas


class Suit(enum.Enum):
    HEARTS = "♥"
    SPADES = "♠"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Span(NamedTuple):
    first: dt.date
    last: dt.date | None = None


class Circle(BaseModel):
    shape: Literal["circle"] = "circle"
    radius: float = Field(gt=0, lt=1000)


class Square(BaseModel):
    shape: Literal["square"] = "square"
    side: Annotated[int, Field(ge=-3, le=3, strict=True)]


@dataclasses.dataclass
class Card:
    suit: Suit
    level: Level = Level.LOW


class Node(BaseModel, strict=True):
    number: int
    when: dt.datetime | None = None
    price: Decimal = Decimal(1)
    children: list[Node] = Field(default=[], max_length=2)


class Everything(BaseModel, extra="forbid"):
    shapes: list[Annotated[Circle | Square, Field(discriminator="shape")]]
    card: Card
    span: Span
    by_suit: dict[Suit, int] = {}
    short: dict[str, Annotated[str, Field(min_length=1, max_length=2)]] = {}
    blob: bytes = b""
    small: Annotated[bytes, Field(max_length=4)] = b""
    identity: uuid.UUID | None = None
    wait: dt.timedelta = dt.timedelta(0)
    clock: dt.time | None = None
    amount: Annotated[Decimal, Field(max_digits=4, decimal_places=2)] = Decimal(0)
    bounded: Annotated[Decimal, Field(ge=Decimal("-1.5"), le=2)] = Decimal(0)
    trimmed: Annotated[
        str, pydantic.StringConstraints(strip_whitespace=True, min_length=1, max_length=3)
    ] = "x"
    first: Annotated[dt.date, Field(ge=dt.date(2024, 2, 27), lt=dt.date(2024, 3, 2))]
    queue: deque[int] = deque()
    ordered: OrderedDict[int, bool] = OrderedDict()
    either: int | float | str | None = None
    mixed: Literal["a", 1, None, True] = 1


def spelt(value: Any, draw: st.DrawFn) -> str:
    """JSON text of ``value``, with integers and characters in one of their other spellings."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int) and draw(st.booleans()):
        return f"{value}.0" if draw(st.booleans()) else f"{value}E0"
    if isinstance(value, Fraction):
        return str(float(value))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    return json.dumps(value)


@st.composite
def instances(draw: st.DrawFn, schema: Any, root: Any, depth: int = 0) -> str:
    """JSON texts that are valid under ``schema``; knows the keywords that lowering emits."""
    if schema is True or not schema.keys() - {"title", "default", "description"}:
        return json.dumps(draw(st.none() | st.integers() | st.text(max_size=3)))

    def inner(part: Any) -> str:
        return draw(instances(part, root, depth + 1))

    if "$ref" in schema:
        return draw(instances(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth))
    if "anyOf" in schema:
        return inner(draw(st.sampled_from(schema["anyOf"])))
    if "const" in schema:
        return spelt(schema["const"], draw)
    if "enum" in schema:
        return spelt(draw(st.sampled_from(schema["enum"])), draw)
    kind = schema["type"]
    if kind == "object":
        names = [
            name
            for name in schema.get("properties", {})
            if name in schema.get("required", ()) or (depth < 5 and draw(st.booleans()))
        ]
        members = {name: inner(schema["properties"][name]) for name in names}
        extra = schema.get("additionalProperties", True)
        if extra is not False:
            rules = {"type": "string"} | schema.get("propertyNames", {})
            for _ in range(draw(st.integers(schema.get("minProperties", 0), 2))):
                name = json.loads(draw(instances(rules, root, depth + 1)))
                members.setdefault(name, inner(extra))
        return "{" + ", ".join(f"{json.dumps(name)}: {members[name]}" for name in members) + "}"
    if kind == "array":
        low = schema.get("minItems", 0)
        count = draw(st.integers(low, min(schema.get("maxItems", low + 2), low + 2)))
        count = low if depth > 5 else count
        prefix = schema.get("prefixItems", [])
        parts = [
            inner(prefix[index] if index < len(prefix) else schema.get("items", True))
            for index in range(count)
        ]
        if schema.get("uniqueItems"):
            parts = parts[:1]
        return "[" + ",".join(parts) + "]"
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        numbers: Any = st.integers(low, high)
        if "allOf" in schema:  # quarters, whose multiples the validator's floats get right
            quarters = st.integers(-400, 400).map(lambda count: count / 4)
            numbers = quarters.filter(lambda number: _allows_number(schema, str(number)))
        elif kind == "number":
            numbers = st.floats(low, high, allow_nan=False, allow_infinity=False)
        excluded = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        return spelt(draw(numbers.filter(lambda number: number not in excluded)), draw)
    if kind == "string" and regex_algebra.KEYWORD in schema:
        language = regex_algebra.lower(schema[regex_algebra.KEYWORD])
        texts = st.integers(-400, 400).map(lambda count: str(count / 4))
        return json.dumps(draw(texts.filter(lambda text: evaluate.matches(language, text))))
    if kind == "string":
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if "pattern" not in schema:
            return spelt(draw(st.text(min_size=low, max_size=high or low + 5)), draw)
        pattern = schema["pattern"].replace("$", r"\Z")
        texts = st.from_regex(pattern)
        if "(?=" in pattern:  # a date with bounds, which few dates meet
            near = st.dates(dt.date(2024, 2, 20), dt.date(2024, 3, 9)).map(str)
            texts = near.filter(re.compile(pattern).fullmatch)
        return spelt(draw(texts.filter(lambda text: low <= len(text) <= (high or len(text)))), draw)
    return {"boolean": draw(st.sampled_from(["true", "false"])), "null": "null"}[kind]


OUTPUT_TYPES: list[Any] = [
    Everything,
    Node,
    Card,
    Span,
    list[Annotated[Circle | Square, Field(discriminator="shape")]],
    dict[int, Level],
    dict[dt.date, list[Suit]],
    dict[bool, None],
    tuple[int, dt.date, Suit],
    set[Level],
    int | dt.date | list[str],
    Annotated[list[bool], Field(min_length=1, max_length=3)],
]


@pytest.mark.parametrize(
    "output_type", OUTPUT_TYPES, ids=lambda kind: getattr(kind, "__name__", "")
)
@examples(40)
@given(data=st.data())
def test_what_a_schema_allows_parses_and_is_read_again_as_it_is_dumped(
    output_type: Any, data: st.DataObject
) -> None:
    lowered = lower(output_type)
    assert isinstance(lowered.grammar, ir.Json)
    schema = lowered.grammar.schema
    text = data.draw(instances(schema, schema))
    # The strategy itself is right: an independent validator agrees with it.
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    value = lowered.parse(text)
    adapter = TypeAdapter(output_type)
    assert adapter.dump_python(value, warnings="error") is not None
    assert lowered.parse(adapter.dump_json(value).decode()) == value


@given(st.lists(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                | st.dates() | st.uuids() | st.none() | st.booleans(), min_size=1))  # fmt: skip
def test_choices_round_trip(items: list[Any]) -> None:
    unique = list({(type(item), str(item)): item for item in items}.values())
    spelling = {}
    for item in unique:
        text = item if isinstance(item, str) else str(item)
        spelling[text.lower().replace("none", "null")] = item
    chosen = list(spelling.values())
    lowered = lower(chosen)
    assert isinstance(lowered.grammar, ir.Choice)
    assert [lowered.parse(text) for text in lowered.grammar.texts] == chosen


@pytest.mark.parametrize("step", ["0.01", "0.001", "0.1", "0.05", "0.25", "0.2", "1"])
@pytest.mark.parametrize("whole", ["0", "-0", "7", "-10"])
def test_multiples_may_end_in_any_zeros(step: str, whole: str) -> None:
    adapter = TypeAdapter(Annotated[Decimal, Field(multiple_of=Decimal(step))])
    pattern = exact_schema.decimal_text(exact_schema.Limits(multiple_of=Decimal(step)))
    assert pattern is not None
    expression = regex_algebra.lower(pattern[regex_algebra.KEYWORD])
    for fraction in ("", ".0", ".00", ".000", ".0000", ".01", ".010", ".050", ".2500", ".001"):
        text = whole + fraction
        try:
            adapter.validate_json(f'"{text}"')
            is_valid = True
        except pydantic.ValidationError:
            is_valid = False
        assert evaluate.matches(expression, text) is is_valid, text
