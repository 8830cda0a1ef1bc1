"""Values of schema keywords, checked: each function gives the value or says what is wrong with it.

Errors name the path, the keyword, what was expected and what was found. This module knows JSON and
regular expressions, and no schemas; paths are those of the keyword itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ..errors import CompileLimitExceeded, PatternError, SchemaError, UnsupportedFeature
from . import ir
from .regex import parse_ecma
from .schema_graph import to_decimal


def pattern(keyword: str, value: str, path: str) -> ir.Regex:
    """The strings in which the ECMA-262 pattern ``value`` is found."""
    try:
        return _parse(value)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"{error} (in the pattern at {path})", path=path, keyword=keyword
        ) from error
    except CompileLimitExceeded as error:
        raise error.at(path) from error
    except PatternError as error:
        if error.is_valid:
            raise UnsupportedFeature(
                f"the pattern at {path} cannot be enforced: {error}",
                path=path,
                keyword=keyword,
                fix="State the alternatives, or take the pattern out.",
            ) from error
        raise SchemaError(
            f"invalid regular expression at {path}: {error}", path=path, keyword=keyword
        ) from error


@lru_cache(maxsize=1024)
def _parse(source: str) -> ir.Regex:
    return parse_ecma(source)


def text(keyword: str, value: Any, path: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong(keyword, "a string", value, path)
    return value


def array(keyword: str, value: Any, path: str) -> list[Any]:
    """An array."""
    if not isinstance(value, list):
        raise wrong(keyword, "an array", value, path)
    return value


def mapping(keyword: str, value: Any, path: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        raise wrong(keyword, "an object", value, path)
    return value


def count(keyword: str, value: Any, path: str) -> int:
    """A whole number of at least 0; 2.0 will do."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    if not whole or value < 0:
        raise wrong(keyword, "a whole number of at least 0", value, path)
    return int(value)


def boolean(keyword: str, value: Any, path: str) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise wrong(keyword, "a boolean", value, path)
    return value


def names(keyword: str, value: Any, path: str) -> tuple[str, ...]:
    """An array of strings; repeated ones count once."""
    for i, name in enumerate(array(keyword, value, path)):
        if not isinstance(name, str):
            raise SchemaError(
                f"{keyword!r} must be an array of strings, at {path}[{i}]; got {show(name)}.",
                path=f"{path}[{i}]",
                keyword=keyword,
            )
    return tuple(dict.fromkeys(value))


def number(keyword: str, value: Any, path: str) -> Decimal:
    """A number, as its decimal spelling has it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise wrong(keyword, "a number", value, path)
    exact = to_decimal(value)
    if not exact.is_finite():
        raise wrong(keyword, "a finite number", value, path)
    return exact


def wrong(keyword: str, wanted: str, value: Any, path: str) -> SchemaError:
    """The error that ``keyword`` is not what it must be."""
    return SchemaError(
        f"{keyword!r} must be {wanted}, at {path}; got {show(value)}.", path=path, keyword=keyword
    )


def show(value: Any) -> str:
    """``value`` as JSON, cut short."""
    try:
        shown = json.dumps(value)
    except (TypeError, ValueError):
        shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
