"""What a prompt may tell of an output type: its JSON Schema, as a reader wants it.

Owns `schema_hint`. The schema that masks are made of says more than a model should read (a date is
a pattern of 400 characters there), so Python types are described by Pydantic here. Knows no prompt.
"""

from __future__ import annotations

import json
from typing import Any

from structgen.errors import OptionError
from structgen.grammar import ir
from structgen.grammar.json_schema import DIGITS_ONLY

from .schemas import JsonSchema
from .user import OutputType


def schema_hint(output_type: Any, lowered: OutputType[Any]) -> str:
    """The JSON Schema of an output type, as text for a prompt.

    Args:
        output_type: what the user wrote.
        lowered: the same, lowered: its schema is taken where Pydantic cannot describe the type.

    Raises:
        OptionError: outputs of this type are no JSON.
    """
    if not isinstance(lowered.grammar, ir.Json):
        raise OptionError(
            f"with_schema_hint=True tells the model of a JSON Schema, and {lowered.name} is not "
            "written as JSON. Leave the option out, and say in the prompt what is wanted."
        )
    return json.dumps(_described(output_type, lowered.grammar), ensure_ascii=False)


def _described(output_type: Any, grammar: ir.Json) -> Any:
    if not isinstance(output_type, JsonSchema):
        from pydantic import TypeAdapter  # here, for those who have schemas only
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            return TypeAdapter(output_type).json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError):
            pass  # attrs, msgspec, functions, compiled types
    return _without_own_keywords(grammar.schema)


def _without_own_keywords(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: _without_own_keywords(value)
            for name, value in schema.items()
            if name != DIGITS_ONLY
        }
    if isinstance(schema, list):
        return [_without_own_keywords(item) for item in schema]
    return schema
