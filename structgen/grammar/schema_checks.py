"""Values of schema keywords, checked: each function gives the value or says what is wrong with it.

Errors name the path, the keyword, what was expected and what was found. This module knows JSON and
regular expressions, and the drafts by name; paths are those of the keyword itself.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ..errors import CompileLimitExceeded, PatternError, SchemaError, UnsupportedFeature
from . import ir
from .dialects import Dialect, how_to_choose
from .regex import parse_ecma
from .schema_graph import TYPE_BITS, to_decimal


def pattern(keyword: str, value: str, path: str) -> ir.Regex:
    """The strings in which the ECMA-262 pattern ``value`` is found."""
    try:
        return _parse(value)
    except UnsupportedFeature as error:
        reason = str(error).removesuffix(error.fix).rstrip()
        raise UnsupportedFeature(
            f"the pattern at {path} cannot be enforced: {reason}",
            path=path,
            keyword=keyword,
            fix=error.fix,
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


def members(keyword: str, value: Any, path: str) -> None:
    """An object whose names are Unicode text."""
    unicode(keyword, list(mapping(keyword, value, path)), path)


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


def types(keyword: str, value: Any, path: str) -> int:
    """The type bits of a type's name or of a list of them; ``integer`` as later drafts have it."""
    if value == []:
        raise SchemaError(
            f"{keyword!r} must name at least one type, at {path}; got an empty array. Leave it out "
            "to allow every type.",
            path=path,
            keyword=keyword,
        )
    bits = 0
    for i, name in enumerate(value) if isinstance(value, list) else ((None, value),):
        bit = TYPE_BITS.get(name) if isinstance(name, str) else None
        if bit is None:
            where = path if i is None else f"{path}[{i}]"
            raise SchemaError(
                f"{keyword!r} must be one of {', '.join(TYPE_BITS)}, at {where}; "
                f"got {show(name)}.{_type_hint(name)}",
                path=where,
                keyword=keyword,
            )
        bits |= bit
    return bits


def _type_hint(name: Any) -> str:
    if name == "any":
        return " Leave 'type' out to allow every type."
    meant = _TYPE_NAMES.get(name.lower()) if isinstance(name, str) else None
    if meant is None:
        meant = next(iter(difflib.get_close_matches(str(name).lower(), TYPE_BITS, 1)), None)
    return f" Did you mean {meant!r}?" if meant else ""


_TYPE_NAMES = {
    "bool": "boolean",
    "dict": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "list": "array",
    "map": "object",
    "none": "null",
    "str": "string",
    "text": "string",
}


def names(keyword: str, value: Any, path: str) -> tuple[str, ...]:
    """An array of strings; repeated ones count once."""
    if keyword == "required" and isinstance(value, bool):
        raise SchemaError(
            f"'required' must be an array of names, at {path}; got {show(value)}. Since draft 4, "
            "required properties are listed beside 'properties'.",
            path=path,
            keyword=keyword,
        )
    for i, name in enumerate(array(keyword, value, path)):
        if not isinstance(name, str):
            raise SchemaError(
                f"{keyword!r} must be an array of strings, at {path}[{i}]; got {show(name)}.",
                path=f"{path}[{i}]",
                keyword=keyword,
            )
    unicode(keyword, value, path)
    return tuple(dict.fromkeys(value))


def number(keyword: str, value: Any, path: str) -> Decimal:
    """A number, as its decimal spelling has it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise wrong(keyword, "a number", value, path)
    exact = to_decimal(value)
    if not exact.is_finite():
        raise wrong(keyword, "a finite number", value, path)
    return exact


def unicode(keyword: str, value: Any, path: str) -> None:
    """Refuse strings that are no Unicode text: no token stands for half a surrogate pair."""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError as error:
        found = json.dumps(error.object[error.start])
        raise UnsupportedFeature(
            f"{keyword!r} asks for half a surrogate pair, {found}, which is no text, at {path}.",
            path=path,
            keyword=keyword,
            fix="Take it out, or complete the pair.",
        ) from None


def wrong(keyword: str, wanted: str, value: Any, path: str) -> SchemaError:
    """The error that ``keyword`` is not what it must be."""
    return SchemaError(
        f"{keyword!r} must be {wanted}, at {path}; got {show(value)}.", path=path, keyword=keyword
    )


def of_another_draft(
    keyword: str, value: Any, path: str, dialect: Dialect, draft: str
) -> SchemaError:
    """The error that ``keyword`` is written as the draft called ``draft`` has it."""
    if keyword == "items":
        wanted, instead = "a schema", "Use prefixItems"
    elif isinstance(value, bool):
        wanted, instead = "a number", "Write the bound itself"
    else:
        wanted, instead = "a boolean", f"Write true, and the bound as {keyword[9:].lower()}"
    return SchemaError(
        f"{keyword!r} must be {wanted} in {dialect.name}, at {path}; got {show(value)}, as {draft} "
        f"has it. {instead}, or {how_to_choose(draft)}",
        path=path,
        keyword=keyword,
    )


def no_names(keyword: str, value: Any, path: str) -> SchemaError:
    """The error that ``keyword`` has no array of names for one of its names."""
    hint = ""
    if isinstance(value, str):
        hint = f" Did you mean [{show(value)}]?"
    elif isinstance(value, (Mapping, bool)):
        hint = " A schema belongs into dependentSchemas."
    return SchemaError(
        f"{keyword!r} must have an array of names for each name, at {path}; got {show(value)}."
        f"{hint}",
        path=path,
        keyword=keyword,
    )


def not_a_schema(value: Any, path: str, keyword: str | None = None) -> SchemaError:
    """The error that a value is no schema, inside ``keyword`` if that is given."""
    hint = ""
    if isinstance(value, str) and value in TYPE_BITS:
        hint = f' Did you mean {{"type": "{value}"}}?'
    elif value in ("true", "false"):
        hint = f" Did you mean {value}, without quotes?"
    elif keyword == "dependentSchemas" and isinstance(value, list):
        hint = " An array of names belongs into dependentRequired."
    what = "a schema" if keyword is None else f"the schema in {keyword!r}"
    return SchemaError(
        f"{what} must be an object or a boolean, at {path}; got {show(value)}.{hint}",
        path=path,
        keyword=keyword,
    )


def show(value: Any) -> str:
    """``value`` as JSON, cut short."""
    try:
        shown = json.dumps(value)
    except (TypeError, ValueError):
        shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
