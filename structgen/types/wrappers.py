"""Schemas and regular expressions as output types, without Pydantic; descriptions for prompts.

Lowers `JsonSchema` and `TextPattern`, and shortens long names in messages. `schema_hint` is the
JSON Schema of an output type for a model to read. The schema behind the masks has too many details
for that (a date is a pattern of 400 characters), so Pydantic's own schema describes Python types.
Knows no prompt.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from structgen.errors import OptionError, ParseError
from structgen.grammar import ir
from structgen.grammar.json_schema import DIGITS_ONLY
from structgen.grammar.regex import algebra as regex_algebra

from .quotes import Quote
from .regexes import Regex, TextPattern
from .schemas import JsonSchema
from .user import OutputType

_LONGEST = 80


def lower_schema(value: JsonSchema) -> OutputType:
    """Return the output type of a schema."""
    grammar = ir.Json(value.shared, value.options)
    return OutputType(
        grammar, functools.partial(_parse_json, value), functools.partial(_name, value)
    )


def lower_pattern(value: TextPattern, name: str) -> OutputType:
    """Return the output type of a regular expression, called ``name`` in messages."""
    texts = value.texts
    if texts is not None:
        return OutputType(ir.Choice(texts), str, name)
    source = value.pattern if isinstance(value, Regex) else repr(value)
    grammar = ir.Pattern(regex_algebra.lower(value.expression()), source=source)
    return OutputType(grammar, value.find if isinstance(value, Quote) else str, name)


def shortened(name: str) -> str:
    """Return ``name``, shortened if it is too long for a message."""
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _name(schema: JsonSchema) -> str:
    return shortened(repr(schema))


def _parse_json(schema: JsonSchema, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        name = _name(schema)
        raise ParseError(f"The text is not valid JSON ({name}): {error}.", text=text) from error


def schema_hint(output_type: Any, lowered: OutputType[Any]) -> str:
    """Return the JSON Schema of an output type, as text for a prompt.

    Args:
        output_type: the user's output type.
        lowered: the lowered type, whose schema is used if Pydantic cannot describe the type.

    Raises:
        OptionError: outputs of this type are not JSON.
    """
    if not isinstance(lowered.grammar, ir.Json):
        raise OptionError(
            f"with_schema_hint=True describes the JSON Schema to the model, but {lowered.name} is "
            "not written as JSON. Remove the option and describe the wanted output in the prompt."
        )
    return json.dumps(_described(output_type, lowered.grammar), ensure_ascii=False)


def _described(output_type: Any, grammar: ir.Json) -> Any:
    if not isinstance(output_type, JsonSchema):
        from pydantic import TypeAdapter  # here, for users who only have schemas
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            return TypeAdapter(output_type).json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError):
            pass  # attrs, msgspec, functions, compiled types
    return without(grammar.schema, DIGITS_ONLY)


def without(schema: Any, begun: str) -> Any:
    """Return a schema without keywords with a prefix, such as structgen's own."""
    if isinstance(schema, Mapping):
        kept = (name for name in schema if not name.startswith(begun))
        return {name: without(schema[name], begun) for name in kept}
    return [without(item, begun) for item in schema] if isinstance(schema, list) else schema
