"""What is valid: JSON read strictly, schemas judged by `jsonschema-rs` and, exactly, `jsonschema`.

`jsonschema-rs` computes with floats; `jsonschema` here gets every number as a `Decimal` and an
integer check to match, so that ``multipleOf`` and bounds are exact. Both are asked. They may differ
only where a number has more digits than a float holds; then the exact one counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import jsonschema
import jsonschema_rs

_Base = jsonschema.Draft202012Validator


def _is_integer(_checker: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, Decimal) and value == int(value))


def _is_number(_checker: Any, value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _multiple_of(
    validator: Any, step: Any, value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    # Decimals cannot divide where the quotient has more digits than their context.
    if validator.is_type(value, "number") and (Fraction(value) / Fraction(step)).denominator != 1:
        yield jsonschema.ValidationError(f"{value} is not a multiple of {step}")


Exact = jsonschema.validators.extend(
    _Base,
    {"multipleOf": _multiple_of},
    type_checker=_Base.TYPE_CHECKER.redefine("integer", _is_integer).redefine("number", _is_number),
)

_GRAMMAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class NotJson(ValueError):
    """The text is not JSON by RFC 8259."""


def loads(text: str, exact: bool = False) -> Any:
    """Parse strictly: no NaN, no control characters in strings, no lone surrogates, no number far
    beyond the floats (which others read as infinite, or as 0).

    Args:
        text: the JSON text.
        exact: numbers as int and Decimal.
    """

    def refuse(name: str) -> Any:
        raise NotJson(name)

    # json.loads also takes other whitespace around the text? No: only JSON's own. But it takes
    # lone surrogates, which no UTF-8 text can hold.
    try:
        value = json.loads(text, parse_constant=refuse, parse_float=Decimal if exact else float)
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from error
    values = map(Decimal, numbers_in(text))
    if any(value and not -400 < value.adjusted() < 400 for value in values):
        raise NotJson("a number that no float stands for")
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise NotJson("lone surrogate") from error
    return value


def is_valid(schema: Any, text: str) -> bool:
    """Whether ``text`` is strict JSON that satisfies ``schema``."""
    try:
        value = loads(text)
        precise = loads(text, exact=True)
    except NotJson:
        return False
    exact_schema = json.loads(_as_python_patterns(json.dumps(schema)), parse_float=Decimal)
    with localcontext() as context:
        context.prec = 2000
        verdict = Exact(exact_schema).is_valid(precise)
    if all(_is_tame(token) for token in numbers_in(text)):
        fast = jsonschema_rs.is_valid(schema, value)
        if fast != verdict and "unevaluated" in json.dumps(schema):
            return bool(fast)  # `jsonschema` forgets some annotations
        assert fast == verdict, f"the validators disagree ({fast}, {verdict}): {schema} {text}"
    return bool(verdict)


def _as_python_patterns(schema: str) -> str:
    """A schema's text with patterns such that `re` reads them as ECMA-262 has them."""
    text = schema.replace(r"\\w", "[A-Za-z0-9_]").replace(r"\\d", "[0-9]")
    return re.sub(r'\$"', r'\\\\Z"', text)


def numbers_in(text: str) -> list[str]:
    """The number tokens of a JSON text."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text, flags=re.DOTALL)
    return _GRAMMAR.findall(outside)


def _is_tame(number: str) -> bool:
    digits = re.sub(r"[eE].*", "", number).replace(".", "").lstrip("-0")
    return len(digits) <= 15 and abs(Decimal(number).adjusted()) < 15
