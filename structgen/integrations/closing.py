"""JSON Schemas that leave objects no members but those that they name.

Knows JSON Schema, and no framework.
"""

from __future__ import annotations

from typing import Any

_COMPOSED = ("allOf", "not", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords that let other schemas speak of an object's members too."""

_DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""


def closed(schema: Any) -> Any:
    """A copy of a JSON Schema whose objects have no members but those that it names.

    An object without ``additionalProperties`` may have any. Those who write such schemas want none,
    and a model would write them until its limit. A schema in which others may speak of the same
    object stays as it is.
    """
    return schema if _has(schema, _COMPOSED) else _closed(schema)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: value if name in _DATA else _members(value) if name in _NAMED else _closed(value)
        for name, value in schema.items()
    }
    names = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if names and "patternProperties" not in schema:
        made.setdefault("additionalProperties", False)
    return made


_NAMED = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose values are schemas by name."""


def _members(schemas: Any) -> Any:
    if not isinstance(schemas, dict):
        return schemas
    return {name: _closed(one) for name, one in schemas.items()}


def _has(value: Any, keywords: tuple[str, ...]) -> bool:
    if isinstance(value, dict):
        return any(one in value for one in keywords) or any(
            _has(inner, keywords) for inner in value.values()
        )
    return isinstance(value, list) and any(_has(inner, keywords) for inner in value)
