"""Check values of schema keywords: each function returns the value or raises an error.

Errors name the path, the keyword, what was expected and what was found. Each function gets the
keyword, the place of its schema and, if it checks a part of the keyword's value, the steps to it:
paths are built only for messages. Knows JSON, regular expressions, and the drafts by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from structgen.errors import (
    CompileLimitExceeded,
    PatternError,
    SchemaError,
    StructgenError,
    UnsupportedFeature,
    did_you_mean,
)
from structgen.grammar import ir, reading
from structgen.grammar.regex.read import parse_ecma

from .dialects import Dialect, how_to_choose
from .graph import TYPE_BITS, HasPath, to_decimal


def pattern(keyword: str, value: str, place: HasPath, *inside: str) -> ir.Regex:
    """Return the strings that contain a match of the ECMA-262 pattern ``value``."""
    spend(2 + (len(value) >> 4))
    try:
        return parse_ecma(value)
    except (UnsupportedFeature, CompileLimitExceeded, PatternError) as error:
        raise _bad_pattern(error, keyword, place.at(keyword, *inside)) from error


def _bad_pattern(error: StructgenError, keyword: str, path: str) -> StructgenError:
    if isinstance(error, UnsupportedFeature):
        reason = str(error).removesuffix(error.fix).rstrip()
        return UnsupportedFeature(
            f"the pattern at {path} cannot be enforced: {reason}",
            path=path,
            keyword=keyword,
            fix=error.fix,
        )
    if isinstance(error, CompileLimitExceeded):
        return error.at(path)
    if isinstance(error, PatternError) and error.is_valid:
        return UnsupportedFeature(
            f"the pattern at {path} cannot be enforced: {error}",
            path=path,
            keyword=keyword,
            fix="Write out the alternatives, or remove the pattern.",
        )
    return SchemaError(f"invalid regular expression at {path}: {error}", path=path, keyword=keyword)


def spend(steps: int) -> None:
    """Count the work of reading: with dynamic references a schema is read once for each scope.

    Raises:
        CompileLimitExceeded: see `reading.spend`.
    """
    if steps:
        reading.spend(steps, "the schema takes too much work to read; write fewer subschemas")


def text(keyword: str, value: Any, place: HasPath) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise wrong(keyword, "a string", value, place)
    return value


def array(keyword: str, value: Any, place: HasPath, *inside: str) -> list[Any]:
    """Return an array."""
    if not isinstance(value, list):
        raise wrong(keyword, "an array", value, place, *inside)
    return value


def mapping(keyword: str, value: Any, place: HasPath) -> Mapping[str, Any]:
    """Return an object."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise wrong(keyword, "an object", value, place)
    return value


def members(keyword: str, value: Any, place: HasPath) -> None:
    """Check an object whose names are Unicode text."""
    if type(value) is not dict:
        mapping(keyword, value, place)
    if not "".join(value).isascii():
        unicode(keyword, list(value), place)


def count(keyword: str, value: Any, place: HasPath) -> int:
    """Return a whole number of at least 0; 2.0 is accepted."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    if not whole or value < 0:
        raise wrong(keyword, "a whole number of at least 0", value, place)
    return int(value)


def boolean(keyword: str, value: Any, place: HasPath) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise wrong(keyword, "a boolean", value, place)
    return value


def types(keyword: str, value: Any, place: HasPath) -> int:
    """Return the bits of a type's name or of a list; ``integer`` as in later drafts."""
    bits = 0
    for i, name in enumerate(value if isinstance(value, list) else [value]):
        bit = TYPE_BITS.get(name) if isinstance(name, str) else None
        if bit is None:
            where = place.at(keyword, i) if isinstance(value, list) else place.at(keyword)
            raise SchemaError(
                f"{keyword!r} must be one of {', '.join(TYPE_BITS)}, at {where}; "
                f"got {show(name)}.{type_hint(name)}",
                path=where,
                keyword=keyword,
            )
        bits |= bit
    if not bits:
        path = place.at(keyword)
        raise SchemaError(
            f"{keyword!r} must have at least one type, at {path}; got an empty array. Remove it "
            "to allow every type.",
            path=path,
            keyword=keyword,
        )
    return bits


def type_hint(name: Any) -> str:
    """Return a suggestion for an unknown ``type``, after a blank; or nothing."""
    if name == "any":
        return " Remove 'type' to allow every type."
    meant = _TYPE_NAMES.get(name.lower()) if isinstance(name, str) else None
    return f" Did you mean {meant!r}?" if meant else did_you_mean(str(name).lower(), TYPE_BITS)


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


def names(keyword: str, value: Any, place: HasPath, *inside: str) -> tuple[str, ...]:
    """Return an array of strings; repeated ones count once."""
    try:
        if type(value) is list and "".join(value).isascii():  # the usual case
            spend(len(value) >> 5)
            return tuple(dict.fromkeys(value))
    except TypeError:
        pass  # reported below
    if keyword == "required" and isinstance(value, bool):
        raise SchemaError(
            f"'required' must be an array of names, at {place.at(keyword)}; got {show(value)}. "
            "Since draft 4, required properties are listed next to 'properties'.",
            path=place.at(keyword),
            keyword=keyword,
        )
    for i, name in enumerate(array(keyword, value, place, *inside)):
        if not isinstance(name, str):
            path = place.at(keyword, *inside, i)
            raise SchemaError(
                f"{keyword!r} must be an array of strings, at {path}; got {show(name)}.",
                path=path,
                keyword=keyword,
            )
    if not "".join(value).isascii():
        unicode(keyword, value, place, *inside)
    return tuple(dict.fromkeys(value))


def number(keyword: str, value: Any, place: HasPath) -> Decimal:
    """Return a number by its decimal text."""
    if type(value) is int:
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise wrong(keyword, "a number", value, place)
    exact = to_decimal(value)
    if not exact.is_finite():
        raise wrong(keyword, "a finite number", value, place)
    return exact


def unicode(keyword: str, value: Any, place: HasPath, *inside: str) -> None:
    """Refuse strings that are not Unicode text: no token contains half a surrogate pair."""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    spend(len(shown) >> 6)
    try:
        shown.encode()
    except UnicodeEncodeError as error:
        found = json.dumps(error.object[error.start])
        path = place.at(keyword, *inside)
        raise UnsupportedFeature(
            f"{keyword!r} has half a surrogate pair, {found}, which is not text, at {path}.",
            path=path,
            keyword=keyword,
            fix="Remove it, or complete the pair.",
        ) from None


def wrong(keyword: str, wanted: str, value: Any, place: HasPath, *inside: str) -> SchemaError:
    """Return the error about a wrong value of ``keyword``."""
    path = place.at(keyword, *inside)
    return SchemaError(
        f"{keyword!r} must be {wanted}, at {path}; got {show(value)}.", path=path, keyword=keyword
    )


def of_another_draft(
    keyword: str, value: Any, place: HasPath, dialect: Dialect, draft: str
) -> SchemaError:
    """Return the error that ``keyword`` has its form of the draft ``draft``."""
    path = place.at(keyword)
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


def no_names(keyword: str, value: Any, place: HasPath, name: str) -> SchemaError:
    """Return the error that ``keyword`` has no array of names for ``name``."""
    path = place.at(keyword, name)
    hint = ""
    if isinstance(value, str):
        hint = f" Did you mean [{show(value)}]?"
    elif isinstance(value, (Mapping, bool)):
        hint = " Put a schema into dependentSchemas."
    return SchemaError(
        f"{keyword!r} must have an array of names for each name, at {path}; got {show(value)}."
        f"{hint}",
        path=path,
        keyword=keyword,
    )


def not_a_schema(value: Any, path: str, keyword: str | None = None) -> SchemaError:
    """Return the error that a value is not a schema, inside ``keyword`` if given."""
    hint = ""
    if isinstance(value, str) and value in TYPE_BITS:
        hint = f' Did you mean {{"type": "{value}"}}?'
    elif value in ("true", "false"):
        hint = f" Did you mean {value}, without quotes?"
    elif keyword == "dependentSchemas" and isinstance(value, list):
        hint = " Put an array of names into dependentRequired."
    what = "a schema" if keyword is None else f"the schema in {keyword!r}"
    return SchemaError(
        f"{what} must be an object or a boolean, at {path}; got {show(value)}.{hint}",
        path=path,
        keyword=keyword,
    )


def show(value: Any) -> str:
    """Return ``value`` as JSON, cut short."""
    try:
        shown = json.dumps(value)
    except (TypeError, ValueError):
        shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
