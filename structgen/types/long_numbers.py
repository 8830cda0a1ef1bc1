"""Decimals of more digits than a float has: every digit of the text kept.

Pydantic reads a JSON number with a point as a 64-bit float first, so that a Decimal inside of
anything has some 16 of its digits. Where a text has such numbers, a second validator reads it
(`exactly`), in which each Decimal that such a number was rounded to becomes what was written, and
only then has to satisfy its constraints. Everything else is read as it was. Knows core schemas, no
JSON Schema and no grammar.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from pydantic_core import core_schema

from structgen.types.signatures import NO_SCHEMAS

_MAY_BE_LONG = re.compile(r"[0-9][0-9.]{15}|[0-9][eE]")
"""Without this a text has no number that a float does not tell from others."""

STRING_OR_NUMBER = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"?)|-?[0-9]+(?P<float>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)'
)
"""The strings and numbers of JSON. Strings that never end and integers match, too: nothing is then
read twice, whatever the text."""


class _Told(NamedTuple):
    """What the numbers of one text were before they were rounded.

    Attributes:
        decimals: by what is read of them as Decimals.
        floats: those for which another float stands in the text, by that one, as they are read.
    """

    decimals: Mapping[Decimal, Decimal]
    floats: Mapping[float, float]


_TOLD: ContextVar[_Told] = ContextVar("long numbers")


def exactly(
    read: Callable[[str], Any], core: Any, make: Callable[[Any], Callable[[str], Any]]
) -> Callable[[str], Any]:
    """As ``read``, which makes a value of JSON by ``core``, but Decimals keep their digits.

    Args:
        read: what reads texts without long numbers.
        core: its core schema.
        make: what reads by another core schema; asked for when a text has such numbers.
    """
    exact: Callable[[str], Any] | None = None

    def read_exactly(text: str) -> Any:
        nonlocal exact
        if exact is read or _MAY_BE_LONG.search(text) is None:
            return read(text)
        apart, told = _told_apart(text)
        if not told.decimals:
            return read(text)
        if exact is None:
            changed = _keeping(core)
            exact = read if changed is core else make(changed)
            if exact is read:
                return read(text)
        token = _TOLD.set(told)
        try:
            return exact(apart)
        finally:
            _TOLD.reset(token)

    return read_exactly


def _told_apart(text: str) -> tuple[str, _Told]:
    """``text`` with what its long numbers are; where two different values would be read as one
    float, another float stands for one of them."""
    known: dict[Decimal, Decimal] = {}  # what is read as a Decimal → what is meant
    long: list[tuple[re.Match[str], Decimal, float]] = []
    for match in STRING_OR_NUMBER.finditer(text):
        exact = _decimal(_string(match[0]) if match["string"] else match[0])
        if exact is None:
            continue
        if match["float"]:
            rounded = float(match[0])
            if exact != Decimal(repr(rounded)):
                long.append((match, exact, rounded))
                continue
        known[exact] = exact
    floats: dict[float, float] = {}
    replaced: dict[Decimal, float] = {}
    last: dict[float, float] = {}  # the float that was taken last for one
    out: list[str] = []
    done = 0
    for match, exact, rounded in long:
        as_read = Decimal(repr(rounded))
        if exact in replaced:
            other = replaced[exact]
        elif known.setdefault(as_read, exact) == exact:
            continue
        else:
            other = last.get(rounded, rounded)
            towards = 0.0 if abs(rounded) > 1 else math.inf  # on whose way there are enough
            while (as_read := Decimal(repr(other))) in known:
                other = math.nextafter(other, towards)
            replaced[exact] = last[rounded] = other
            known[as_read] = exact
            floats[other] = rounded
        out += [text[done : match.start()], repr(other)]
        done = match.end()
    decimals = {as_read: exact for as_read, exact in known.items() if as_read != exact}
    return "".join([*out, text[done:]]), _Told(decimals, floats)


def _string(text: str) -> str:
    """What a string of JSON says; nothing, if it is none, which those who read the text tell."""
    try:
        return str(json.loads(text))
    except ValueError:
        return ""


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return None if value.is_nan() else value


def _keeping(schema: Any) -> Any:
    """``schema``, a core schema, with Decimals that are what was written; itself if it has none."""
    changed, has_decimals = _changed(schema)
    return changed if has_decimals else schema


def _changed(schema: Any) -> tuple[Any, bool]:
    if isinstance(schema, (list, tuple)):
        parts = [_changed(part) for part in schema]
        return type(schema)([part for part, _ in parts]), any(found for _, found in parts)
    if not isinstance(schema, dict):
        return schema, False
    kind = schema.get("type")
    if kind in _RESTORED:
        return _chained(schema, _RESTORED[kind]), kind == "decimal"
    found = False
    out: dict[str, Any] = {}
    for key, part in schema.items():
        out[key] = part
        if key not in NO_SCHEMAS:
            out[key], is_found = _changed(part)
            found = found or is_found
    return out, found


def _chained(schema: Any, restore: Callable[[Any], Any]) -> Any:
    """What is read is restored, and then has to satisfy the schema's constraints."""
    first = {"type": schema["type"]}
    if schema["type"] != "any":
        first["allow_inf_nan"] = True
        if "strict" in schema:
            first["strict"] = schema["strict"]
    last = {key: part for key, part in schema.items() if key not in ("ref", "serialization")}
    steps: list[Any] = [first, core_schema.no_info_plain_validator_function(restore), last]
    chain: dict[str, Any] = dict(core_schema.chain_schema(steps))
    if "ref" in schema:
        chain["ref"] = schema["ref"]
    return chain


def _decimal_as_written(value: Decimal) -> Decimal:
    return value if value.is_nan() else _TOLD.get().decimals.get(value, value)


def _float_as_written(value: float) -> float:
    return _TOLD.get().floats.get(value, value)


def _any_as_written(value: Any) -> Any:
    if isinstance(value, float):
        return _float_as_written(value)
    if isinstance(value, list):
        return [_any_as_written(part) for part in value]
    if isinstance(value, dict):
        return {key: _any_as_written(part) for key, part in value.items()}
    return value


_RESTORED: Mapping[Any, Callable[[Any], Any]] = {
    "decimal": _decimal_as_written,
    "float": _float_as_written,
    "any": _any_as_written,
}
