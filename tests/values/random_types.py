"""Random Python types for property tests: classes of all kinds, containers, unions, scalars."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import itertools
import operator
import random
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from typing_extensions import TypedDict

Rng = random.Random


class Suit(enum.Enum):
    HEARTS = "♥"
    SPADES = "♠"
    NONE = 0


def _shout(text: str) -> str:
    return text.upper()


SCALARS: list[Any] = [
    *(str, str, str, int, float, bool, None, dt.date, uuid.UUID, Decimal, Suit),
    Literal["a", 1, None],
    Literal["é", "ab"],
    Annotated[int, Field(ge=0, le=99)],
    Annotated[str, Field(max_length=4)],
    Annotated[str, StringConstraints(pattern="^[a-c]+$")],
    Annotated[str, StringConstraints(strip_whitespace=True, max_length=5)],
    Annotated[str, AfterValidator(_shout)],
    pydantic.SecretStr,
    bytes,
]
NAMES = ["name", "x", "items", "value", "done", "π", "class_", "other"]
_number = itertools.count()


def any_type(r: Rng, depth: int = 3) -> Any:
    """A type whose values are JSON."""
    kind = r.randrange(9) if depth else 0
    if kind < 2:
        return r.choice(SCALARS)
    if kind == 2:
        return list[any_type(r, depth - 1)]
    if kind == 3:
        return dict[r.choice([str, str, int, dt.date]), any_type(r, depth - 1)]
    if kind == 4:
        return tuple[tuple(any_type(r, depth - 1) for _ in range(r.randint(1, 3)))]
    if kind == 5:
        members = [any_type(r, depth - 1) for _ in range(r.randint(2, 3))]
        return functools.reduce(operator.or_, members, int)
    return any_class(r, depth - 1)


def any_class(r: Rng, depth: int = 2) -> Any:
    """A class of some kind."""
    fields = {
        name: any_type(r, depth) for name in r.sample(NAMES, r.randint(1, 4)) if name.isidentifier()
    }
    called = f"Class{next(_number)}"
    kind = r.randrange(4)
    if kind == 0:
        return dataclasses.make_dataclass(called, list(fields.items()))
    if kind == 1:
        return TypedDict(called, fields)
    if kind == 2:
        return NamedTuple(called, list(fields.items()))
    members: dict[str, Any] = {}
    for name, hint in fields.items():
        options: dict[str, Any] = {}
        if r.random() < 0.3:
            options["alias"] = name + "!"
        if r.random() < 0.3:
            options["default"] = None
        members[name] = (hint, Field(**options))
    return pydantic.create_model(called, __base__=BaseModel, **members)
