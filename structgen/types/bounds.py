"""Bounds and digits of decimals: as patterns of text, and as JSON numbers that are read as floats.

Pydantic by itself reads a JSON number with a point as the nearest 64-bit float, and only then
compares it; a Decimal is what that float is written like. We keep its digits (`json_types`), as
Pydantic does of a Decimal in a string. Owns what has to hold of a text so that the value satisfies
its bounds, rounded or not. Knows no Pydantic and no grammar.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from structgen.grammar.regex import algebra as regex_algebra

Schema = dict[str, Any]

_EXACT_DIGITS = 15
"""So many digits survive being read as a float."""

_MOST_POWER = 300
"""Decimals with more digits, or further from 1, are written as strings only."""

MOST_DIGITS = 10_000
"""Most digits, or decimal places, that a Decimal may be given."""

_TOLERANT = 10**6
"""Up to here Pydantic's check of a float's ``multiple_of`` is sure to forgive rounding."""

MAX_SPELT_OUT = 15
"""Most digits that are spelt out as numbers, one alternative for each length of the whole part."""


@dataclass(frozen=True)
class Limits:
    """What a decimal must satisfy.

    Attributes:
        lower, upper: bounds, None for none.
        exclusive_lower, exclusive_upper: whether the bound itself is barred.
        multiple_of: None for any value.
        max_digits: digits before and after the point together, a lone ``0`` before it not counted.
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
        """Those of a core schema: ``ge``, ``gt`` and so on."""
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
    def is_free(self) -> bool:
        """Whether there are none."""
        return self == Limits()

    @property
    def whole_digits(self) -> int | None:
        """Most digits before the point; Pydantic keeps places for those after it."""
        if self.max_digits is None:
            return None
        return self.max_digits - min(self.decimal_places or 0, self.max_digits)


def decimal_of(value: Any) -> Decimal | None:
    """``value`` as Pydantic reads the bound of a Decimal: floats as they are written."""
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
    """JSON numbers that satisfy ``limits`` after they have been read as floats, for a float."""
    return {"type": "number", **_read_bounds(limits), **_float_multiple(limits.multiple_of)}


def _read_bounds(limits: Limits) -> Schema:
    """The bounds, moved to a float that satisfies them: what is beyond it is read as beyond it."""
    found: Schema = {}
    if limits.lower is not None:
        if limits.lower == 0 and limits.exclusive_lower:
            found["exclusiveMinimum"] = 0  # what is read as 0 has more digits than are written
        else:
            found["minimum"] = _written(_inside(limits.lower, limits.exclusive_lower, math.inf))
    if limits.upper is not None:
        if limits.upper == 0 and limits.exclusive_upper:
            found["exclusiveMaximum"] = 0
        else:
            found["maximum"] = _written(_inside(limits.upper, limits.exclusive_upper, -math.inf))
    return found


def _inside(bound: Decimal, is_exclusive: bool, to: float) -> float:
    """The float nearest to ``bound`` that is, as it is written, on its side towards ``to``."""
    nearest = float(bound)
    written = Decimal(repr(nearest))
    is_beyond = written > bound if to > 0 else written < bound
    if is_beyond or (written == bound and not is_exclusive):
        return nearest
    return math.nextafter(nearest, to)


def _written(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _plain(value: Decimal) -> float | Decimal:
    """``value`` as a float where that is written alike."""
    number = _written(float(value))
    return number if Decimal(repr(number)) == value else value


def _float_multiple(step: Decimal | None) -> Schema:
    if step is None:
        return {}
    # Whole multiples of such a float are floats; of others, Pydantic forgives what rounding does.
    is_exact = Fraction(float(step)) == Fraction(step)
    most = step * 2**52 if is_exact else max(step, Decimal(1)) * _TOLERANT
    return {"allOf": [_multiple_within(step, most)]}


def _multiple_within(step: Decimal, most: Decimal) -> Schema:
    return {"multipleOf": _plain(step), "minimum": _plain(-most), "maximum": _plain(most)}


# -- decimals ---------------------------------------------------------------------------------


def decimal_numbers(limits: Limits) -> list[Schema]:
    """JSON numbers that a Decimal of these ``limits`` is made of; perhaps none."""
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
    """Plain decimal numbers in a string; None if that is no pattern of bearable size."""
    parts = [_shape(limits)]
    if limits.max_digits is not None:
        parts.append(rf"-?(?:0(?:\.[0-9]+)?|(?:\.?[0-9]){{1,{limits.max_digits}}})")
    if limits.lower is not None:
        parts.append(_at_least(limits.lower, limits.exclusive_lower))
    if limits.upper is not None:
        parts.append(_at_most(limits.upper, limits.exclusive_upper))
    if limits.multiple_of is not None:
        multiples = _multiples(limits.multiple_of)
        if multiples is None:
            return None
        parts.append(multiples)
    if len(parts) == 1:
        return {"type": "string", "pattern": f"^{parts[0]}$"}
    expression = ["and", *(["regex", part, 0] for part in parts)]
    return {"type": "string", regex_algebra.KEYWORD: expression}


def _exponent(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _shape(limits: Limits) -> str:
    """The text of a number, with so many digits before and after its point."""
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


def _at_least(bound: Decimal, is_exclusive: bool) -> str:
    """Numbers from ``bound`` on."""
    if bound > 0:
        return _above(bound, is_exclusive)
    below = f"-{_below(-bound, is_exclusive)}"
    if bound == 0 and is_exclusive:
        return _above(bound, is_exclusive)
    return rf"{below}|[0-9.]+"


def _at_most(bound: Decimal, is_exclusive: bool) -> str:
    """Numbers up to ``bound``."""
    if bound < 0:
        return f"-{_above(-bound, is_exclusive)}"
    if bound == 0 and is_exclusive:
        return f"-{_above(bound, is_exclusive)}"
    return rf"{_below(bound, is_exclusive)}|-[0-9.]+"


def _digits(bound: Decimal) -> tuple[str, str]:
    """The digits of a number that is not negative, before and after its point."""
    whole, _, fraction = format(bound, "f").partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


def _above(bound: Decimal, is_exclusive: bool) -> str:
    """Numbers without a sign from ``bound``, which is not negative, on."""
    whole, fraction = _digits(bound)
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


def _below(bound: Decimal, is_exclusive: bool) -> str:
    """Numbers without a sign up to ``bound``, which is not negative."""
    whole, fraction = _digits(bound)
    forms: list[str] = []
    if len(whole) > 1:
        forms.append(rf"(?:0|[1-9][0-9]{{0,{len(whole) - 2}}})(?:\.[0-9]+)?")
    for i, digit in enumerate(whole):
        least = "1" if i == 0 and len(whole) > 1 else "0"
        if digit > least:
            least_to = f"[{least}-{int(digit) - 1}]"
            forms.append(rf"{whole[:i]}{least_to}[0-9]{{{len(whole) - i - 1}}}(?:\.[0-9]+)?")
    rest = [
        rf"{fraction[:i]}(?:[0-{int(digit) - 1}][0-9]*)?" if i else rf"[0-{int(digit) - 1}][0-9]*"
        for i, digit in enumerate(fraction)
        if digit > "0"
    ]
    rest += [fraction[:i] for i in range(1, len(fraction))]
    if not is_exclusive:
        rest.append(rf"{fraction}0*")
    if rest:
        optional = "?" if fraction or not is_exclusive else ""
        forms.append(rf"{whole}(?:\.(?:{'|'.join(rest)})){optional}")
    return f"(?:{'|'.join(forms)})" if forms else r"[^\s\S]"


def _multiples(step: Decimal) -> str | None:
    """Multiples of ``step`` by their last digits; None if these do not tell, or too many do."""
    places = -_exponent(step)
    if places < 0:
        return None
    modulus = int(step.scaleb(places))
    length = next((n for n in range(places + 1) if 10**n % modulus == 0), None)
    if length is None or 10**length > 1000 * modulus:
        return None
    ends = [f"{value:0{length}d}" for value in range(0, 10**length, modulus)] if length else [""]
    forms = ["-?[0-9]+"]
    for written in range(1, places + 1):
        zeros = places - written  # of the last `length` digits, those that are not written
        zero = "" if zeros else "0*"  # once all places are written
        if zeros >= length:
            forms.append(rf"-?[0-9]+\.[0-9]{{{written}}}{zero}")
            continue
        tails = [end[: length - zeros] for end in ends if end.endswith("0" * zeros)]
        free = written - (length - zeros)
        forms.append(rf"-?[0-9]+\.[0-9]{{{free}}}(?:{'|'.join(tails)}){zero}")
    if not places:
        forms.append(r"-?[0-9]+\.0+")
    return "|".join(forms)
