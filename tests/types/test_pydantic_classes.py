"""Generated Pydantic classes: what masks allow validates, and what Pydantic dumps is allowed.

Classes are drawn from a seed: fields with constraints, lax and strict, aliases and defaults, extra
fields, nested and recursive containers, tagged unions. Texts are validated by Pydantic itself, not
by our parser.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress
import random
import uuid
from collections import deque
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pydantic
import pytest
import typing_extensions
from engine.walks import seeds
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, create_model
from test_pydantic_types import BYTES, walk

import structgen

GROUPS = 10
CLASSES = GROUPS * len(seeds(30))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"property_order": "any", "spelling": "any"},
    {"whitespace": "spaced"},
    {"spelling": "any"},
    {"whitespace": "flexible", "property_order": "any", "spelling": "any"},
]


class Color(enum.Enum):
    RED = "red"
    GREEN = "grün"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Pair(NamedTuple):
    left: int
    right: Optional[dt.date] = None  # noqa: UP045


@dataclasses.dataclass
class Point:
    x: float
    y: Annotated[float, Field(gt=0.3, le=1e6)] = 1.0


class Movie(typing_extensions.TypedDict):
    title: Annotated[str, Field(max_length=5)]
    year: typing_extensions.NotRequired[int]


class Node(BaseModel):
    value: int
    next: Optional[Node] = None  # noqa: UP045


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: Annotated[int, Field(ge=0, le=9)]


class Dog(BaseModel, strict=True):
    kind: Literal["dog"]
    weight: float


def number(rng: random.Random) -> dict[str, Any]:
    """Bounds of an integer, with room between them."""
    low, high = sorted(rng.sample(range(-1000, 100000), 2))
    found: dict[str, Any] = {}
    if rng.random() < 0.6:
        found[rng.choice(["ge", "gt"])] = low
    if rng.random() < 0.6:
        found[rng.choice(["le", "lt"])] = high + 40
    if rng.random() < 0.3:
        found["multiple_of"] = rng.choice([2, 3, 10])
    return found


def floats(rng: random.Random) -> dict[str, Any]:
    low, high = sorted((rng.uniform(-50, 50), rng.uniform(-50, 50)))
    found: dict[str, Any] = {}
    if rng.random() < 0.6:
        found[rng.choice(["ge", "gt"])] = rng.choice([low, 0, 0.3, -51.5])
    if rng.random() < 0.6:
        found[rng.choice(["le", "lt"])] = rng.choice([high + 1, 51.7, 1e22])
    if rng.random() < 0.2:
        found = {"multiple_of": rng.choice([0.1, 0.25, 0.01])}
    return found


def decimals(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.random() < 0.5:
        found["max_digits"] = rng.choice([3, 6, 20])
        found["decimal_places"] = rng.choice([0, 2])
    if rng.random() < 0.5:
        found[rng.choice(["ge", "gt"])] = Decimal(rng.choice(["0", "0.05", "-1.5"]))
    if rng.random() < 0.5:
        found[rng.choice(["le", "lt"])] = Decimal(rng.choice(["9.99", "100", "0.5"]))
    if rng.random() < 0.2:
        found["multiple_of"] = Decimal(rng.choice(["0.05", "0.01", "1"]))
    return found


def lengths(rng: random.Random, most: int = 6) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.random() < 0.5:
        found["min_length"] = rng.randrange(3)
    if rng.random() < 0.6:
        found["max_length"] = rng.randrange(2, most)
    return found


PATTERNS = [
    *("^[a-z]+$", "b", r"^\d{2}-\w+$", r"^\S+ \S+$", "^(ab|c)*$", r"^[^\d\s]+$", r"\Da\W", r"\ba")
]


def text(rng: random.Random) -> Any:
    kind = rng.randrange(4)
    if kind == 0:
        return str
    if kind == 1:
        return Annotated[str, Field(**lengths(rng))]
    if kind == 2:
        return Annotated[str, Field(pattern=rng.choice(PATTERNS))]
    strip = {"strip_whitespace": True} if rng.random() < 0.5 else {"to_lower": True}
    return Annotated[str, StringConstraints(**strip, **lengths(rng))]


SIMPLE: list[Any] = [
    *(
        bool,
        type(None),
        dt.date,
        dt.time,
        dt.datetime,
        dt.timedelta,
        uuid.UUID,
        Color,
        Level,
        bytes,
    ),
    *(Literal["a", "b", 1], Literal[True, "x"], Any, pydantic.HttpUrl, pydantic.IPvAnyAddress),
    *(pydantic.UUID4, pydantic.AwareDatetime, pydantic.Base64Bytes, pydantic.AnyUrl, Node, Pair),
    *(ipaddress.IPv4Network, ipaddress.IPv6Interface, pydantic.SecretStr, pydantic.ByteSize),
    *(Point,),
    *(Movie, bytes, complex, Annotated[Union[Cat, Dog], Field(discriminator="kind")]),  # noqa: UP007
]


def some_type(rng: random.Random, depth: int = 0) -> Any:
    pick = rng.random()
    if pick < 0.13:
        return Annotated[int, Field(**number(rng), strict=rng.random() < 0.5)]
    if pick < 0.23:
        return Annotated[float, Field(**floats(rng), strict=rng.random() < 0.5)]
    if pick < 0.33:
        return Annotated[Decimal, Field(**decimals(rng))]
    if pick < 0.46:
        return text(rng)
    if pick < 0.7 or depth > 1:
        return rng.choice(SIMPLE)
    inner = some_type(rng, depth + 1)
    kind = rng.randrange(8)
    if kind == 0:
        return Annotated[list[inner], Field(**lengths(rng, 4))]
    if kind == 1:
        return dict[rng.choice([str, int, Color, dt.date, bool]), inner]
    if kind == 2:
        return tuple[inner, some_type(rng, depth + 1)]
    if kind == 3:
        return Optional[inner]  # noqa: UP045
    if kind == 4:
        return Union[inner, some_type(rng, depth + 1)]  # noqa: UP007
    if kind == 5:
        return Annotated[tuple[inner, ...], Field(max_length=3)]
    if kind == 6:
        return rng.choice([set, frozenset])[rng.choice([int, str, Level, bool, dt.date])]
    return rng.choice([deque[inner], some_class(rng, depth + 1)])


def some_class(rng: random.Random, depth: int = 0) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name in ("first", "second", "third", "vierte_ä")[: rng.randint(1, 4)]:
        field = some_type(rng, depth)
        alias = {"alias": f"{name}Alias"} if rng.random() < 0.2 else {}
        if rng.random() < 0.3:
            fields[name] = (Optional[field], Field(None, **alias))  # noqa: UP045
        else:
            fields[name] = (field, Field(..., **alias))
    config = ConfigDict(
        strict=rng.random() < 0.3,
        extra=rng.choice(["ignore", "forbid", "allow"]) if rng.random() < 0.3 else "ignore",
        str_strip_whitespace=rng.random() < 0.1,
    )
    return create_model(f"Made{rng.randrange(10**6)}", __config__=config, **fields)


@pytest.mark.parametrize("group", range(GROUPS))
def test_generated_classes(group: int) -> None:
    n_compiled = n_dumped = 0
    for seed in range(group, CLASSES, GROUPS):
        made = some_class(random.Random(f"class {seed}"))
        options = OPTIONS[seed // GROUPS % len(OPTIONS)]
        try:
            constraint = structgen.compile(made, BYTES, **options)
        except structgen.errors.Unsatisfiable:
            continue  # bounds that leave nothing
        except structgen.UnsupportedFeature:
            continue  # said with its path, which test_types.py looks at
        n_compiled += 1
        for budget in (40, 150, 400):
            document = walk(constraint, seed, budget)
            try:
                value = made.model_validate_json(document)
            except pydantic.ValidationError as error:
                fields = TypeAdapter(made).json_schema()
                pytest.fail(f"{seed}: {document}\n{error}\n{options}\n{fields}")
            if not is_as_written(value) or options.get("whitespace") == "spaced":
                continue
            n_dumped += 1
            dumped = value.model_dump_json(by_alias=True, exclude_unset=True)
            assert constraint.allows(dumped), f"{seed}: {document}\n{dumped}\n{made.model_fields}"
    assert n_compiled > 0.8 * CLASSES / GROUPS
    assert n_dumped > 0.5 * n_compiled


def is_as_written(value: Any) -> bool:
    """Whether Pydantic writes ``value`` in a form that it reads, and in the one asked for."""
    if isinstance(value, BaseModel):
        return all(map(is_as_written, (*dict(value).values(), *(value.model_extra or {}).values())))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(map(is_as_written, vars(value).values()))
    if isinstance(value, dict):
        return all(is_as_written(key) and is_as_written(part) for key, part in value.items())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        # Named tuples are read as objects and written as arrays.
        return not hasattr(value, "_fields") and all(map(is_as_written, value))
    if isinstance(value, float):
        return "e" not in repr(value) and "inf" not in repr(value)
    if isinstance(value, Decimal):
        return "E" not in str(value)
    return not isinstance(value, (pydantic.SecretStr, pydantic.AnyUrl, pydantic.HttpUrl))
