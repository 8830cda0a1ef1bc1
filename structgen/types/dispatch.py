"""`lower`: what the user wrote, sent to whoever makes a grammar and a parser of it.

Schemas and regular expressions are lowered here. All other types are left to `lowering`, which is
imported when it is first needed: it brings Pydantic with it, which to a process that has schemas
only is 0.1 s at its start and 12,000 objects more for every full collection of garbage.
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


def lower(output_type: Any) -> OutputType:
    """Turn an output type into a grammar and a parser.

    Results are cached for hashable types: calling again costs microseconds, the first call on a
    Pydantic model about a millisecond.

    Args:
        output_type: a Pydantic model, dataclass, TypedDict, NamedTuple, Enum, Literal, list of
            choices, scalar or container type, union of those, function or list of functions (for
            a `Call`), TypeAdapter, `Regex`, `Choice`, `Cfg` or `JsonSchema`.

    Raises:
        OutputTypeError: not an output type, or one that cannot be masked exactly. The message
            says what to write instead.
    """
    if isinstance(output_type, OutputType):
        return output_type
    if isinstance(output_type, JsonSchema):
        return lower_schema(output_type)  # quicker than to look it up
    if isinstance(output_type, TextPattern):
        return _lower_pattern(output_type)
    from . import lowering

    return lowering.lower(output_type)


@functools.lru_cache(maxsize=256)
def _lower_pattern(value: TextPattern) -> OutputType:
    return lower_pattern(value, shortened(repr(value)))


def lower_schema(value: JsonSchema) -> OutputType:
    """The output type of a schema."""
    grammar = ir.Json(value.shared, value.options)
    return OutputType(
        grammar, functools.partial(_parse_json, value), functools.partial(_name, value)
    )


def lower_pattern(value: TextPattern, name: str) -> OutputType:
    """The output type of a regular expression, called ``name`` in messages."""
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
