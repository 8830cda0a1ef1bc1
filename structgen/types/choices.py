"""Finite sets of items as bare texts.

Owns how an item is spelt without JSON around it, and the way back from text to the very item.
Knows no types: `Literal`, `Enum` and lists of choices all arrive here as a sequence of items.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import inspect
import json
import math
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir

from .user import OutputType


def choice_type(items: Sequence[Any], name: str) -> OutputType:
    """The output type that writes exactly one of ``items``.

    Raises:
        OutputTypeError: no items, an item that has no bare text, or two different items that
            would be written alike.
    """
    if not items:
        raise OutputTypeError(
            f"{name} has no members, so no text can satisfy it. Give at least one."
        )
    by_text: dict[str, Any] = {}
    for item in items:
        text = bare_text(item, name)
        if text not in by_text:
            by_text[text] = item
        elif type(by_text[text]) is not type(item) or by_text[text] != item:
            raise OutputTypeError(
                f"{name} has two members that are both written {text!r}: {by_text[text]!r} and "
                f"{item!r}. Keep one of them, or write them differently."
            )

    def parse(text: str) -> Any:
        try:
            return by_text[text]
        except KeyError:
            raise ParseError(
                f"{text!r} is not a member of {name}. Members: {', '.join(list(by_text)[:20])}.",
                text=text,
            ) from None

    return OutputType(ir.Choice(tuple(by_text)), parse, name)


def bare_text(item: Any, name: str) -> str:
    """``item`` as text: strings as they are, enum members by value, numbers as in JSON, …

    Raises:
        OutputTypeError: the item has no such text.
    """
    value = item.value if isinstance(item, enum.Enum) else item
    if isinstance(value, str):
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OutputTypeError(
                f"The member {item!r} of {name} holds half a surrogate pair, which is not text. "
                "Remove it."
            ) from None
        return text
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, float) and math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, (dt.date, dt.time)):  # datetime is a date
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    fix = "Use text, and map it to the object afterwards."
    if isinstance(item, type) or hasattr(item, "__origin__"):
        fix = "To allow any one of several types, use Union; for a list of values, list[...]."
    elif inspect.isroutine(item) or isinstance(item, functools.partial):
        fix = "For a call of one of several functions, pass a list of nothing but functions."
    raise OutputTypeError(
        f"The member {item!r} of {name} has no plain text: members may be strings, numbers, "
        f"booleans, None, dates, times, UUIDs, decimals and enum members of those. {fix}"
    )
