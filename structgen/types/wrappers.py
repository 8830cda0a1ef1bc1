"""Schemas and regular expressions as output types, without Pydantic.

Owns what is made of `JsonSchema` and of `TextPattern`, and how long a name in a message may be.
Knows no other types.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from structgen.errors import ParseError
from structgen.grammar import ir
from structgen.grammar.regex import algebra as regex_algebra

from .regexes import Regex, TextPattern
from .schemas import JsonSchema
from .user import OutputType

_LONGEST = 80


def lower_schema(value: JsonSchema) -> OutputType:
    """The output type of a schema."""
    grammar = ir.Json(value.shared, value.options)
    return OutputType(
        grammar, functools.partial(_parse_json, value), functools.partial(_name, value)
    )


def lower_pattern(value: TextPattern, name: str) -> OutputType:
    """The output type of a regular expression, called ``name`` in messages."""
    texts = value.texts
    if texts is not None:
        return OutputType(ir.Choice(texts), str, name)
    source = value.pattern if isinstance(value, Regex) else repr(value)
    grammar = ir.Pattern(regex_algebra.lower(value.expression()), source=source)
    return OutputType(grammar, str, name)


def shortened(name: str) -> str:
    """``name``, cut where it would be too long for a message."""
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _name(schema: JsonSchema) -> str:
    return shortened(repr(schema))


def _parse_json(schema: JsonSchema, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        name = _name(schema)
        raise ParseError(f"The text is not JSON ({name}): {error}.", text=text) from error
