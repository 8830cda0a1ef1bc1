"""Pydantic's JSON Schema made exact: it allows only what the Pydantic parser accepts.

`ExactSchema` is a ``GenerateJsonSchema`` with one override for each place where Pydantic's own
schema is looser than its parser. Places that no schema can express carry a mark, a key that JSON
Schema does not have, so that the caller can report them with their path: `REFUSED`, or `CHECKED` if
code checks the value. Objects are closed: a class allows only its own fields unless it sets
``extra="allow"``. Knows no parsing and no grammars.

Scalars with a fixed format (dates, times, durations, UUIDs, decimals) are ECMA-262 patterns
anchored at both ends, so that one pattern serves both a JSON string and bare text. Pydantic parses
every text that such a pattern matches. Dates exist in the calendar. Dates with bounds stay regular:
the pattern has the allowed years and, for each, the allowed ``MM-DD``, both folded into nested
character classes. This takes about 10 ms.

Decimals are patterns of text, or JSON numbers that are read as floats. Pydantic reads a JSON number
with a point as the nearest 64-bit float, and then compares it; the Decimal is that float as it is
written. structgen keeps the digits (`json_types`), as Pydantic does for a Decimal in a string.
`Limits` are the conditions on a text under which the value satisfies its bounds, rounded or not.
"""

from __future__ import annotations

import calendar
import datetime as dt
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from structgen.grammar.json_schema import DIGITS_ONLY
from structgen.grammar.regex import algebra as regex_algebra

from . import networks
from .own_types import (
    FUNCTIONS,
    Kind,
    Refusal,
    fraction,
    is_check_of_text,
    known,
    looked_at_by,
    title,
)
from .patterns import KEPT, NoForm, to_ecma
from .regexes import TextPattern

Schema = dict[str, Any]

_HASHABLE = ("string", "number", "boolean", "null")
_NOT_HASHABLE = ("list", "dict", "set", "typed-dict")

_EXACT_DIGITS = 15
"""The number of digits that survive reading as a float."""

_MOST_POWER = 300
"""Decimals with more digits, or with a larger or smaller power of ten, are only written as strings.
"""

MOST_DIGITS = 10_000
"""The most digits, or decimal places, of a Decimal."""

_TOLERANT = 10**6
"""Up to this size, Pydantic's check of a float's ``multiple_of`` certainly tolerates rounding."""

MAX_SPELT_OUT = 15
"""Up to this many digits, numbers have one alternative for each length of the whole part."""


@dataclass(frozen=True)
class Limits:
    """The conditions on a decimal.

    Attributes:
        lower, upper: bounds, None for none.
        exclusive_lower, exclusive_upper: whether the bound itself is barred.
        multiple_of: None for any value.
        max_digits: digits before and after the point together, without a lone ``0`` before it.
        decimal_places: digits after the point.
    """

    lower: Decimal | None = None
    upper: Decimal | None = None
    exclusive_lower: bool = False
    exclusive_upper: bool = False
    multiple_of: Decimal | None = None
    max_digits: int | None = None
    decimal_places: int | None = None

    @classmethod
    def of(cls, schema: Any) -> Limits:
        """Return the limits of a core schema: ``ge``, ``gt`` and so on."""
        lower = _tightest(((schema.get("ge"), False), (schema.get("gt"), True)), max)
        upper = _tightest(((schema.get("le"), False), (schema.get("lt"), True)), min)
        return cls(
            lower[0],
            upper[0],
            lower[1],
            upper[1],
            decimal_of(schema.get("multiple_of")),
            schema.get("max_digits"),
            schema.get("decimal_places"),
        )

    @property
    def whole_digits(self) -> int | None:
        """The most digits before the point; Pydantic reserves places for those after it."""
        if self.max_digits is None:
            return None
        return self.max_digits - min(self.decimal_places or 0, self.max_digits)


def decimal_of(value: Any) -> Decimal | None:
    """Return ``value`` as Pydantic reads the bound of a Decimal: a float by its repr."""
    if value is None or isinstance(value, Decimal):
        return value
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _tightest(found: Iterable[tuple[Any, bool]], best: Any) -> tuple[Decimal | None, bool]:
    bounds = [(decimal_of(value), strict) for value, strict in found if value is not None]
    if not bounds:
        return None, False
    value = best(bound for bound, _ in bounds)
    return value, any(strict for bound, strict in bounds if bound == value)


# -- floats -----------------------------------------------------------------------------------


def float_schema(limits: Limits) -> Schema:
    """Return the schema of JSON numbers that satisfy ``limits`` after they are read as floats."""
    found = {"type": "number", **_read_bounds(limits)}
    step = limits.multiple_of
    if step is not None:
        # Multiples of such a float are floats; for others, Pydantic tolerates rounding.
        is_exact = Fraction(float(step)) == Fraction(step)
        most = step * 2**52 if is_exact else max(step, Decimal(1)) * _TOLERANT
        found["allOf"] = [_multiple_within(step, most)]
    return found


def _read_bounds(limits: Limits) -> Schema:
    """Return the bounds moved to floats that satisfy them, so that numbers beyond are read as
    beyond."""
    found: Schema = {}
    if limits.lower is not None:
        if limits.lower == 0 and limits.exclusive_lower:
            found["exclusiveMinimum"] = 0  # numbers read as 0 would need too many digits
        else:
            found["minimum"] = _written(_inside(limits.lower, limits.exclusive_lower, math.inf))
    if limits.upper is not None:
        if limits.upper == 0 and limits.exclusive_upper:
            found["exclusiveMaximum"] = 0
        else:
            found["maximum"] = _written(_inside(limits.upper, limits.exclusive_upper, -math.inf))
    return found


def _inside(bound: Decimal, is_exclusive: bool, to: float) -> float:
    """Return the float nearest to ``bound`` whose text is on the side towards ``to``."""
    nearest = float(bound)
    written = Decimal(repr(nearest))
    is_beyond = written > bound if to > 0 else written < bound
    if is_beyond or (written == bound and not is_exclusive):
        return nearest
    return math.nextafter(nearest, to)


def _written(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _plain(value: Decimal) -> float | Decimal:
    """Return ``value`` as a float if its text is the same."""
    number = _written(float(value))
    return number if Decimal(repr(number)) == value else value


def _multiple_within(step: Decimal, most: Decimal) -> Schema:
    return {"multipleOf": _plain(step), "minimum": _plain(-most), "maximum": _plain(most)}


# -- decimals ---------------------------------------------------------------------------------


def decimal_numbers(limits: Limits) -> list[Schema]:
    """Return schemas of the JSON numbers for a Decimal with these ``limits``; may be empty."""
    sizes = [limits.lower, limits.upper, limits.multiple_of]
    if any(value and abs(value.adjusted()) > _MOST_POWER for value in sizes):
        return []  # no float is near
    if max(limits.max_digits or 0, limits.decimal_places or 0) > _MOST_POWER:
        return []
    bounds = _read_bounds(limits)
    steps: list[Schema] = []
    if limits.multiple_of is not None:
        places = max(0, -_exponent(limits.multiple_of))
        if places >= _EXACT_DIGITS:
            return []
        most = Decimal(10) ** (_EXACT_DIGITS - places)
        steps.append(_multiple_within(limits.multiple_of, most))
    digits, places_left = limits.max_digits, limits.decimal_places
    forms: list[tuple[int | None, int]]
    if digits is None:
        forms = [] if places_left is None else [(None, places_left)]
    elif places_left is not None:
        forms = [(limits.whole_digits, min(places_left, digits))]
    elif digits <= MAX_SPELT_OUT:
        forms = [(whole, digits - whole) for whole in range(digits + 1)]
    else:
        return []
    if not forms:
        return [{"type": "number", **bounds, **({"allOf": steps} if steps else {})}]
    numbers: list[Schema] = []
    for whole, places in forms:
        rules = list(steps)
        if limits.whole_digits == 0:
            rules.append({"not": {"const": 0}})  # which Pydantic refuses then
        if whole is not None:
            most = Decimal(10) ** whole
            rules.append(_read_bounds(Limits(-most, most, True, True)))
        rules.append({"multipleOf": _plain(Decimal(1).scaleb(-places))})
        numbers.append({"type": "number", **bounds, "allOf": rules})
    return numbers


def decimal_text(limits: Limits) -> Schema | None:
    """Return the schema of plain decimal numbers in a string; None if the pattern would be too
    large."""
    shape = _shape(limits)
    rules: list[Any] = []
    if limits.max_digits is not None:
        digits = rf"-?(?:0(?:\.[0-9]+)?|(?:\.?[0-9]){{1,{limits.max_digits}}})"
        rules.append(["regex", digits, 0])
    if limits.lower is not None:
        rules.append(_from(limits.lower, limits.exclusive_lower, "", "-"))
    if limits.upper is not None:
        rules.append(_from(-limits.upper, limits.exclusive_upper, "-", ""))
    if limits.multiple_of is not None:
        multiples = _multiples(limits.multiple_of)
        if multiples is None:
            return None
        rules.append(["regex", multiples, 0])
    if not rules:
        return text_of(f"^{shape}$")
    return networks.expression(["and", ["regex", shape, 0], *rules])


def _exponent(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _shape(limits: Limits) -> str:
    """Return a pattern for numbers with the digits that ``limits`` allow before and after the
    point."""
    places = limits.decimal_places
    if limits.max_digits is not None:
        places = limits.max_digits if places is None else min(places, limits.max_digits)
    fraction = r"\.[0-9]+" if places is None else rf"\.[0-9]{{1,{places}}}" if places else ""
    optional = f"(?:{fraction})?" if fraction else ""
    whole = limits.whole_digits
    if whole == 0:  # Pydantic refuses a bare 0, but not 0.0
        return f"-?0{fraction}"
    more = "*" if whole is None else f"{{0,{whole - 1}}}"
    return f"-?(?:0|[1-9][0-9]{more}){optional}"


def _from(bound: Decimal, is_exclusive: bool, sign: str, other: str) -> list[Any]:
    """Match numbers from ``bound`` on; those above 0 have ``sign`` instead of ``other``."""
    if bound > 0 or (bound == 0 and is_exclusive):
        return ["regex", sign + _above(bound, is_exclusive), 0]
    return ["not", ["regex", other + _above(-bound, not is_exclusive), 0]]


def _above(bound: Decimal, is_exclusive: bool) -> str:
    """Return a pattern for unsigned numbers from ``bound`` on, which is not negative."""
    whole, _, fraction = format(bound, "f").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    forms = [rf"[1-9][0-9]{{{0 if whole == '0' else len(whole)},}}(?:\.[0-9]+)?"]
    if whole != "0":
        forms += [
            rf"{whole[:i]}[{int(digit) + 1}-9][0-9]{{{len(whole) - i - 1}}}(?:\.[0-9]+)?"
            for i, digit in enumerate(whole)
            if digit < "9"
        ]
    rest = [
        rf"{fraction[:i]}[{int(digit) + 1}-9][0-9]*"
        for i, digit in enumerate(fraction)
        if digit < "9"
    ]
    rest.append(rf"{fraction}[0-9]*[1-9][0-9]*" if is_exclusive else rf"{fraction}[0-9]*")
    optional = "" if fraction or is_exclusive else "?"
    forms.append(rf"{whole}(?:\.(?:{'|'.join(rest)})){optional}")
    return f"(?:{'|'.join(forms)})"


def _multiples(step: Decimal) -> str | None:
    """Return a pattern for multiples of ``step`` by their last digits; None if these do not decide,
    or are too many."""
    places, most = -_exponent(step), 28 + step.adjusted()  # Python divides to 28 digits
    if places < 0 or most < 1:
        return None
    modulus = int(step.scaleb(places))
    length = next((n for n in range(places + 1) if 10**n % modulus == 0), None)
    if length is None or 10**length > 1000 * modulus:
        return None
    ends = [f"{value:0{length}d}" for value in range(0, 10**length, modulus)] if length else [""]
    whole = f"-?[0-9]{{1,{most}}}"
    forms = [whole]
    for written in range(1, places + 1):
        zeros = places - written  # of the last `length` digits, the unwritten ones
        zero = "" if zeros else "0*"  # after all places
        if zeros >= length:
            forms.append(rf"{whole}\.[0-9]{{{written}}}{zero}")
            continue
        tails = [end[: length - zeros] for end in ends if end.endswith("0" * zeros)]
        free = written - (length - zeros)
        forms.append(rf"{whole}\.[0-9]{{{free}}}(?:{'|'.join(tails)}){zero}")
    if not places:
        forms.append(rf"{whole}\.0+")
    return "|".join(forms)


_HOUR = "(?:[01][0-9]|2[0-3])"
_CLOCK = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,6}})?"
_OFFSET = f"(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_HEX = "[0-9a-f]"

Zone = Literal["optional", "required", "forbidden"]
"""Whether a time of day has a UTC offset."""


@lru_cache(maxsize=64)
def date_pattern(first: dt.date = dt.date.min, last: dt.date = dt.date.max) -> str:
    """Return a pattern of the ISO dates (``2024-02-29``) from ``first`` to ``last``, both included.

    An empty range gives a pattern that matches nothing.
    """
    return f"^{_date(first, last)}$"


def time_pattern(zone: Zone = "optional") -> str:
    """Return a pattern of ISO times of day, ``HH:MM:SS``, with up to six decimals and perhaps an
    offset."""
    offset = {"optional": f"{_OFFSET}?", "required": _OFFSET, "forbidden": ""}[zone]
    return f"^{_CLOCK}{offset}$"


def datetime_pattern(
    zone: Zone = "optional", first: dt.date = dt.date.min, last: dt.date = dt.date.max
) -> str:
    """Return a pattern of ISO date-times, ``2024-02-29T23:59:59``, perhaps with decimals and an
    offset.

    The days are those of `date_pattern`, from ``first`` to ``last``.
    """
    return f"^{_date(first, last)}T{time_pattern(zone)[1:]}"


def duration_pattern() -> str:
    """Return a pattern of ISO 8601 durations in weeks, or in years, days, hours, minutes and
    seconds.

    A year is 365 days, as in Pydantic; months are excluded. Amounts have at most six digits,
    because Pydantic counts hours, minutes and seconds in 32 bits. Years are limited so that the
    total fits into a timedelta.
    """
    amount = "(?:0|[1-9][0-9]{0,5})"
    seconds = f"{amount}(?:\\.[0-9]{{1,6}})?S"
    minutes = f"(?:{amount}M(?:{seconds})?|{seconds})"
    clock = f"T(?:{amount}H(?:{minutes})?|{minutes})"
    some_years, all_years = _up_to(2_736_800), _up_to(2_739_725)
    second = "[1-5]?[0-9](?:\\.[0-9]{1,6})?S"
    minute = f"(?:[1-5]?[0-9]M(?:{second})?|{second})"
    of_a_day = f"T(?:(?:1?[0-9]|2[0-3])H(?:{minute})?|{minute})"
    forms = (
        f"{amount}W",
        f"(?:{some_years}Y)?{amount}D(?:{clock})?",
        f"{some_years}Y(?:{clock})?",
        clock,
        f"{all_years}Y(?:{_up_to(364)}D)?(?:{of_a_day})?",
        f"2739726Y(?:[0-8]D)?(?:{of_a_day})?",
        "2739726Y9D",
    )
    # The longest timedelta reaches a day, less a microsecond, further forward than back.
    return f"^(?:-?P(?:{'|'.join(forms)})|P2739726Y9D{of_a_day})$"


def _up_to(most: int) -> str:
    """Return a pattern of the integers from 0 to ``most``, which has at least two digits."""
    digits = str(most)
    forms = ["0", rf"[1-9][0-9]{{0,{len(digits) - 2}}}", digits]
    for i, digit in enumerate(digits):
        least = 0 if i else 1
        if int(digit) > least:
            rest = len(digits) - i - 1
            forms.append(f"{digits[:i]}[{least}-{int(digit) - 1}][0-9]{{{rest}}}")
    return f"(?:{'|'.join(forms)})"


def uuid_pattern(version: int | None = None) -> str:
    """Return a pattern of lower-case UUIDs; with ``version``, only of that version (RFC 9562)."""
    if version is None:
        third, fourth = f"{_HEX}{{4}}", f"{_HEX}{{4}}"
    else:
        third, fourth = f"{version:x}{_HEX}{{3}}", f"[89ab]{_HEX}{{3}}"
    return f"^{_HEX}{{8}}-{_HEX}{{4}}-{third}-{fourth}-{_HEX}{{12}}$"


_NUMBER = "(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?"
COMPLEX = f"^-?(?:{_NUMBER}[+-])?{_NUMBER}j$"
"""Pattern of complex numbers as Python writes them without brackets: ``1.5+2j``."""

INTEGER = "^(?:0|-?[1-9][0-9]*)$"
"""Pattern of integers in JSON."""


@lru_cache(maxsize=64)
def _date(first: dt.date, last: dt.date) -> str:
    """Return a pattern for ``first``–``last`` as an unanchored group."""
    years: dict[frozenset[str], list[str]] = defaultdict(list)
    for year in range(first.year, last.year + 1):
        low = f"{first:%m-%d}" if year == first.year else "01-01"
        high = f"{last:%m-%d}" if year == last.year else "12-31"
        days = _year_days(calendar.isleap(year))
        if low > "01-01" or high < "12-31":
            days = frozenset(day for day in days if low <= day <= high)
        if days:
            years[days].append(f"{year:04d}")
    if not years:
        return "[^\\s\\S]"
    # Merging the shared days of common and leap years would only lengthen the pattern: the
    # automaton merges them anyway.
    return f"(?:{'|'.join(f'{_fold(group)}-{_fold(days)}' for days, group in years.items())})"


@lru_cache(maxsize=2)
def _year_days(leap: bool) -> frozenset[str]:
    start = dt.date(2024 if leap else 2023, 1, 1)
    return frozenset(
        f"{start + dt.timedelta(days=day):%m-%d}" for day in range(366 if leap else 365)
    )


def _fold(texts: Iterable[str]) -> str:
    """Return a pattern for exactly ``texts`` (ASCII, of one length), sharing equal tails."""

    @cache
    def fold(tails: frozenset[str]) -> str:
        if tails == {""}:
            return ""
        by_first: dict[str, set[str]] = defaultdict(set)
        for tail in tails:
            by_first[tail[0]].add(tail[1:])
        by_rest: dict[frozenset[str], list[str]] = defaultdict(list)
        for first, rest in sorted(by_first.items()):
            by_rest[frozenset(rest)].append(first)
        parts = [_one_of(firsts) + fold(rest) for rest, firsts in by_rest.items()]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"

    return fold(frozenset(texts))


def _one_of(characters: list[str]) -> str:
    if len(characters) == 1:
        return characters[0]
    low, high = characters[0], characters[-1]
    if len(characters) > 2 and ord(high) - ord(low) + 1 == len(characters):
        return f"[{low}-{high}]"
    return f"[{''.join(characters)}]"


REFUSED = "$structgen-refused"
"""Key of a node that cannot be masked; its value is ``[message, fix]``."""

CHECKED = "$structgen-checked"
"""Key of a node that code checks when the text is parsed; its value names that code."""


_BESIDE = "pydantic_js_annotation_functions"
"""Key of metadata: functions of annotations that change the JSON Schema; they contain patterns."""


def refused(message: str, fix: str) -> JsonSchemaValue:
    """Return a node that cannot be masked: why, and what to do instead."""
    return {REFUSED: [message, fix]}


def constant(schema: Any, found: JsonSchemaValue | Refusal) -> Any:
    """Return a core schema whose JSON Schema is ``found``, with the titles and name of ``schema``,
    and the patterns beside it."""
    given = schema.get("metadata", {})
    metadata = {
        key: value
        for key, value in given.items()
        if key in ("pydantic_js_updates", "pydantic_js_extra")
    }
    if not isinstance(found, Refusal):
        beside = given.get(_BESIDE, ())
        metadata[_BESIDE] = [
            one for one in beside if isinstance(getattr(one, "__self__", None), TextPattern)
        ]
    metadata["pydantic_js_functions"] = [
        lambda schema, handler: refused(*found) if isinstance(found, Refusal) else dict(found)
    ]
    reference = {"ref": schema["ref"]} if "ref" in schema else {}
    return {"type": "any", "metadata": metadata, **reference}


def checked(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    """Return ``result``, marked if code checks the value."""
    is_limit = schema["type"] in FUNCTIONS and known(schema) is Kind.LIMIT
    code = [title(schema)] if is_limit else looked_at_by(schema)
    return {**result, CHECKED: [*result.get(CHECKED, ()), *code]} if code else result


def text_of(pattern: str) -> JsonSchemaValue:
    """Return the schema of strings that match a pattern."""
    return {"type": "string", "pattern": pattern}


def object_of(properties: dict[str, Any], required: list[str]) -> JsonSchemaValue:
    """Return the schema of objects with only these members."""
    result = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**result, "required": required} if required else result


def closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return ``schema``; if it is for objects with named members, changed to allow no others."""
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_CHECK_AFTER = "Remove the constraint from the output type and check the parsed value."
_NOT_ITS_OWN = "on a value that Pydantic converts from text is not supported"
_CHECK_OR_URL = (
    "For a URL, use UrlConstraints(max_length=...). Otherwise remove the constraint from the "
    "output type and check the parsed value."
)
_INNER = ("schema", "lax_schema", "json_schema")
_NOTES = frozenset(("title", "description", "examples", "deprecated"))
_LENGTHS: Mapping[tuple[Any, str], str] = {
    ("array", "minItems"): "minItems",
    ("array", "maxItems"): "maxItems",
    ("array", "minLength"): "minItems",
    ("array", "maxLength"): "maxItems",
    ("object", "minLength"): "minProperties",
    ("object", "maxLength"): "maxProperties",
    ("text", "minLength"): "minLength",
    ("text", "maxLength"): "maxLength",
}
"""By constraint and type, the keyword that JSON Schema has for it."""

_FLAGS = re.compile(r"^\(\?[aiLmsux]+\)")
"""Flags at the start of a pattern, which are also in `re.Pattern.flags`."""

_ASCII = "^[\\x00-\\x7f]*$"

# A string that stripping does not change.
_TRIMMED = "^[^\\s\\u0085](?:[\\s\\S]*[^\\s\\u0085])?$"


class ExactSchema(GenerateJsonSchema):
    """See the module's docstring."""

    # Both concern annotations that do not affect the mask.
    ignored_warning_kinds = {  # noqa: RUF012 - as in the base class
        "skipped-choice",
        "non-serializable-default",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._core_configs: list[Mapping[str, Any]] = [{}]

    # Functions: those of Pydantic's own types are languages, all others are code.

    def generate_inner(self, schema: Any) -> JsonSchemaValue:  # noqa: D102
        kind = schema["type"]
        if kind in FUNCTIONS:
            found = known(schema)
            if isinstance(found, (dict, Refusal)):
                return super().generate_inner(constant(schema, found))
            if found is Kind.LIMIT:
                return super().generate_inner(self._limited(schema))
        elif kind == "lax-or-strict" and schema["lax_schema"]["type"] == "function-plain":
            found = known(schema["lax_schema"])
            if isinstance(found, (dict, Refusal)):
                return super().generate_inner(constant(schema, found))
        return super().generate_inner(schema)

    def _limited(self, schema: Any) -> Any:
        """Return the core schema of a constraint checked after ``schema``'s inner part."""
        beside = {"metadata": {_BESIDE: schema.get("metadata", {}).get(_BESIDE, ())}}
        inner = self.generate_inner(schema["schema"])
        shape = self.resolve_ref_schema(inner) if "$ref" in inner else inner
        if CHECKED in shape or REFUSED in shape:
            return constant(beside, checked(inner, schema))
        limits = dict(schema.get("metadata", {}).get("pydantic_js_updates", {}))
        result = {key: limits.pop(key) for key in _NOTES & limits.keys()} | inner
        is_text = shape.get("format") == "password" or _is_text(schema["schema"])
        for key, value in limits.items():
            named = _LENGTHS.get(("text" if is_text else shape.get("type"), key))
            if named is None:
                break
            result[named] = value
            if named == "maxLength" and _holds_bytes(schema):
                result["pattern"] = _ASCII
        else:
            if limits:
                return constant(beside, result)
        named = ", ".join(limits) or title(schema)
        return constant({}, Refusal(f"A constraint ({named}) {_NOT_ITS_OWN}", _CHECK_OR_URL))

    def _function(self, schema: Any) -> JsonSchemaValue:
        return checked(self._as_pydantic(schema), schema)

    function_before_schema = function_after_schema = _function
    function_wrap_schema = function_plain_schema = _function

    def _as_pydantic(self, schema: Any) -> JsonSchemaValue:
        """Return Pydantic's own JSON Schema, for methods here that serve several types."""
        made: JsonSchemaValue = getattr(super(), f"{schema['type'].replace('-', '_')}_schema")(
            schema
        )
        return made

    def chain_schema(self, schema: core_schema.ChainSchema) -> JsonSchemaValue:  # noqa: D102
        result = super().chain_schema(schema)
        for step in schema["steps"][1:]:
            if step["type"] in FUNCTIONS and known(step) is Kind.LIMIT:
                # It applies to the result of the first step.
                if CHECKED not in result:
                    return refused(f"A constraint {_NOT_ITS_OWN}", _CHECK_OR_URL)
                result = checked(result, step)
        return result

    def custom_error_schema(self, schema: core_schema.CustomErrorSchema) -> JsonSchemaValue:  # noqa: D102
        if schema["custom_error_type"] == "is_hashable":
            return {"type": [*_HASHABLE]}
        return super().custom_error_schema(schema)

    def _set(self, schema: Any) -> JsonSchemaValue:
        items = schema.get("items_schema", core_schema.any_schema())
        if items["type"] in _NOT_HASHABLE or getattr(items.get("cls"), "__hash__", 0) is None:
            return refused(
                f"A set whose items ({items['type']}) have no hash is not supported",
                "Use a list of them, or make each a tuple or an instance of a frozen class.",
            )
        result = self._as_pydantic(schema)
        if items["type"] == "any":
            result["items"] = {"type": [*_HASHABLE]}
        return result

    set_schema = frozenset_schema = _set

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:  # noqa: D102
        return _url(schema, many_hosts=False)

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:  # noqa: D102
        return _url(schema, many_hosts=True)

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:  # noqa: D102
        shown = f"type[{schema['cls'].__name__}]"
        return refused(
            f"A class ({shown}) cannot be written in JSON", "List the classes' names in a Literal"
        )

    def fraction_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: D102
        if any(schema.get(key) is not None for key in _KEYWORDS):
            return refused("Bounds on a Fraction are not supported", _CHECK_AFTER)
        return fraction()

    # Classes: closed unless they ask for more.

    def _class(self, schema: Any) -> JsonSchemaValue:
        with self._under(schema.get("config")):
            return checked(closed(self._as_pydantic(schema)), schema)

    model_schema = dataclass_schema = typed_dict_schema = _class

    def _field(self, schema: Any) -> JsonSchemaValue:
        return _nested_alias(schema) or self._as_pydantic(schema)

    model_field_schema = dataclass_field_schema = typed_dict_field_schema = _field

    # Named tuples: objects, because the names help the model.

    def named_tuple_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: D102
        # Pydantic 2.14 and later; earlier ones come through arguments_schema.
        fields = schema["fields"]
        properties = {field["name"]: self.generate_inner(field["schema"]) for field in fields}
        required = [field["name"] for field in fields if field["schema"]["type"] != "default"]
        return object_of(properties, required)

    def arguments_schema(self, schema: core_schema.ArgumentsSchema) -> JsonSchemaValue:  # noqa: D102
        keep = {"pydantic_js_prefer_positional_arguments": False}
        unbiased: Any = {**schema, "metadata": schema.get("metadata", {}) | keep}
        return super().arguments_schema(unbiased)

    # Text with a fixed format.

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:  # noqa: D102
        day = dt.timedelta(days=1)
        limits = _limits(schema)
        try:
            after = limits["gt"] + day if "gt" in limits else dt.date.min
            before = limits["lt"] - day if "lt" in limits else dt.date.max
        except OverflowError:
            return {"not": {}}
        first = max(after, limits.get("ge", after))
        last = min(before, limits.get("le", before))
        return checked(text_of(date_pattern(first, last)), schema) if first <= last else {"not": {}}

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:  # noqa: D102
        return checked(text_of(time_pattern(_zone(schema))), schema)

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:  # noqa: D102
        first, last = _days(schema)
        return checked(text_of(datetime_pattern(_zone(schema), first, last)), schema)

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:  # noqa: D102
        return checked(text_of(duration_pattern()), schema)

    def uuid_schema(self, schema: core_schema.UuidSchema) -> JsonSchemaValue:  # noqa: D102
        return text_of(uuid_pattern(schema.get("version")))

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:  # noqa: D102
        return text_of(COMPLEX)

    # Numbers and strings.

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:  # noqa: D102
        # Pydantic accepts 1.0 for an integer only in lax fields, and 1e41 never.
        result: JsonSchemaValue = {"type": "integer", DIGITS_ONLY: True}
        constraints: Mapping[str, Any] = schema
        for key, keyword in _KEYWORDS.items():
            if constraints.get(key) is not None:
                result[keyword] = int(constraints[key])
        return result

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:  # noqa: D102
        floats: dict[str, float] = {}
        constraints: Mapping[str, Any] = schema
        for key in _KEYWORDS:
            if constraints.get(key) is None:
                continue
            value = float(constraints[key])
            if math.isfinite(value):
                floats[key] = value
            elif math.isnan(value) or (value < 0) != (key in ("ge", "gt")):
                return {"not": {}}
        return float_schema(Limits.of(floats))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:  # noqa: D102
        limits = Limits.of(schema)
        sizes = (limits.lower, limits.upper, limits.multiple_of)
        if any(value is not None and not value.is_finite() for value in sizes):
            return refused(
                "A Decimal with an infinite bound is not supported", "Remove that bound."
            )
        if max(limits.max_digits or 0, limits.decimal_places or 0) > MOST_DIGITS:
            return refused(
                f"A Decimal with more than {MOST_DIGITS:,} digits is not supported",
                "Lower the number of digits.",
            )
        forms = decimal_numbers(limits)
        text = decimal_text(limits)
        if text is not None:
            forms.append(text)
        if not forms:
            return refused(
                f"A Decimal that is a multiple of {limits.multiple_of}, combined with its other "
                "constraints, is not supported",
                "Remove one of the constraints and check the parsed value.",
            )
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:  # noqa: D102
        result = super().str_schema(schema)
        if (pattern := schema.get("metadata", {}).get(KEPT)) is not None:
            result["pattern"] = pattern
        elif "pattern" in schema:
            self._add_pattern(result, schema["pattern"])
        strip = schema.get("strip_whitespace", self._core_config("str_strip_whitespace"))
        has_pattern = "pattern" in result or regex_algebra.KEYWORD in result
        if strip and (result.get("minLength") or has_pattern):
            # Stripping runs before the other checks: allow only texts that it does not change.
            if "pattern" in result:
                result["allOf"] = [*result.get("allOf", ()), {"pattern": _TRIMMED}]
            else:
                result["pattern"] = _TRIMMED
        return result

    def _add_pattern(self, result: JsonSchemaValue, pattern: str | re.Pattern[str]) -> None:
        """Add a pattern to the JSON Schema of a string, with Pydantic's meaning."""
        if isinstance(pattern, str) and self._core_config("regex_engine") != "python-re":
            try:
                result["pattern"], is_ascii = to_ecma(pattern)
            except NoForm as error:
                result[REFUSED] = [str(error), "Use Annotated[str, Regex(...)] instead."]
                return
            if is_ascii:
                result["allOf"] = [{"pattern": _ASCII}]
            return
        try:
            compiled = re.compile(pattern)
        except re.error:
            return  # reported when it is read
        source = _FLAGS.sub("", compiled.pattern)
        end = "\n" if compiled.flags & re.VERBOSE else ""
        searched = rf"[\s\S]*(?:{source}{end})[\s\S]*"
        result.pop("pattern", None)
        flags = compiled.flags & ~re.UNICODE & ~re.DEBUG
        result[regex_algebra.KEYWORD] = ["regex", searched, flags]

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:  # noqa: D102
        if self._core_config("val_json_bytes") not in (None, "utf8"):
            return refused(
                "bytes encoded as base64 or hex inside JSON are not supported",
                "Use str with a pattern and decode the parsed value.",
            )
        result = super().bytes_schema(schema)
        result.pop("format", None)
        if schema.get("max_length") is not None:
            # Pydantic counts bytes, JSON Schema characters: they agree on ASCII.
            result["pattern"] = _ASCII
        return result

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:  # noqa: D102
        return refused(
            "A Json[...] field, which is JSON inside a JSON string, is not supported",
            "Use the inner type itself.",
        )

    # Finite sets: only members that parse back from JSON.

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:  # noqa: D102
        return _finite(schema, super().literal_schema(schema), "Literal")

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:  # noqa: D102
        # Tags differ, so at most one variant matches, and oneOf would be the same as anyOf.
        result = super().tagged_union_schema(schema)
        return {("anyOf" if key == "oneOf" else key): value for key, value in result.items()}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:  # noqa: D102
        return _finite(schema, super().enum_schema(schema), schema["cls"].__name__)

    # Mappings: keys are as exact as values.

    def _mapping(self, schema: Any) -> JsonSchemaValue:
        result = self._as_pydantic(schema)
        if "keys_schema" not in schema:
            return result
        keys = self.generate_inner(schema["keys_schema"])
        if "$ref" in keys:
            keys = self.resolve_ref_schema(keys)
        values = self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        sizes = {key: result[key] for key in ("minProperties", "maxProperties") if key in result}
        names = keys.get("enum", [keys["const"]] if "const" in keys else None)
        kind = keys.get("type")
        if kind == "boolean":
            names = ["true", "false"]
        if names is not None and all(isinstance(name, str) for name in names):
            return object_of({name: dict(values) for name in names}, []) | sizes
        if kind == "integer" and keys.keys() <= {"type", "title", DIGITS_ONLY}:
            keys = text_of(INTEGER)
        elif kind != "string" and "anyOf" not in keys and keys:
            return refused(
                "Keys of a JSON object are strings, and this mapping's key type is not supported",
                "Use dict[str, ...], dict[int, ...], or keys from a Literal or Enum of strings.",
            )
        result = {"type": "object", "additionalProperties": values or True} | sizes
        rules = {key: value for key, value in keys.items() if key not in ("type", "title")}
        return result | ({"propertyNames": rules} if rules else {})

    dict_schema = frozendict_schema = ordered_dict_schema = counter_schema = _mapping

    @contextmanager
    def _under(self, config: Mapping[str, Any] | None) -> Iterator[None]:
        """Apply a config to a block; None keeps the outer one."""
        self._core_configs.append(self._core_configs[-1] if config is None else config)
        try:
            yield
        finally:
            self._core_configs.pop()

    def _core_config(self, key: str) -> Any:
        return self._core_configs[-1].get(key)


def _holds_bytes(schema: Any) -> bool:
    """Return whether the innermost schema reads bytes."""
    while schema["type"] != "bytes":
        schema = next((schema[key] for key in _INNER if key in schema), None)
        if schema is None:
            return False
    return True


def _is_text(schema: Any) -> bool:
    """Return whether a core schema is that of ``str``, with nothing around it that changes the
    value: only checks of `regexes` and limits of Pydantic."""
    while schema["type"] in FUNCTIONS and known(schema) in (Kind.FINE, Kind.LIMIT):
        if known(schema) is Kind.FINE and not is_check_of_text(schema):
            return False
        schema = schema["schema"]
    return bool(schema["type"] == "str")


def _url(schema: Any, *, many_hosts: bool) -> JsonSchemaValue:
    return networks.url(
        schema.get("allowed_schemes"),
        max_length=schema.get("max_length"),
        needs_host=bool(schema.get("host_required")),
        is_hierarchical=schema.get("default_host") is not None,
        many_hosts=many_hosts,
    )


def _nested_alias(field: Mapping[str, Any]) -> JsonSchemaValue | None:
    alias = field.get("validation_alias")
    paths = alias if isinstance(alias, list) else []
    if not paths or any(isinstance(path, list) and len(path) == 1 for path in paths):
        return None
    return refused(
        f"The alias path {paths!r} refers to a value inside another field",
        "Give the field a plain alias, or model the nested object.",
    )


def _zone(schema: Mapping[str, Any]) -> Zone:
    constraint = schema.get("tz_constraint")
    if constraint == "aware" or isinstance(constraint, int):
        return "required"
    return "forbidden" if constraint == "naive" else "optional"


def _limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of a date or a date-time, which may be written as text."""
    read = SchemaValidator({"type": schema["type"]}).validate_python
    limits = {key: schema.get(key) for key in ("ge", "gt", "le", "lt")}
    return {key: read(limit) for key, limit in limits.items() if limit is not None}


def _days(schema: Mapping[str, Any]) -> tuple[dt.date, dt.date]:
    """Return the first and last day of date-times within the bounds, in any time zone.

    Parsing checks the exact bounds. An offset moves a text, and a bound, by at most a day.
    """
    limits = {key: limit.date() for key, limit in _limits(schema).items()}
    first = max((limits[key] for key in ("ge", "gt") if key in limits), default=dt.date.min)
    last = min((limits[key] for key in ("le", "lt") if key in limits), default=dt.date.max)
    margin = dt.timedelta(days=2)
    return (first - min(margin, first - dt.date.min), last + min(margin, dt.date.max - last))


def _finite(schema: Any, result: JsonSchemaValue, name: str) -> JsonSchemaValue:
    """Return a finite set with integers as digits, because not all versions of Pydantic accept 1.0
    for 1."""
    members = result.get("enum", [result.get("const")])
    with suppress(SchemaError):
        validator = SchemaValidator(schema)
        for member in members:
            try:
                validator.validate_json(json.dumps(member))
            except ValidationError:
                return refused(
                    f"The member {member!r} of {name} does not parse back from JSON",
                    "Use members that are strings, numbers, booleans or None.",
                )
    is_whole = any(type(one) is int for one in members)
    if is_whole and not any(isinstance(one, float) for one in members):
        return {**result, DIGITS_ONLY: True}
    return result
