"""Nodes of JSON Schema that `ExactSchema` writes, and the marks that it leaves on them.

A mark is a key that no JSON Schema has: `REFUSED` on a place that no schema can express, `CHECKED`
on one whose value code looks at. Knows no Pydantic type by name.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import JsonSchemaValue

from structgen.types.own_types import Kind, Refusal, known, looked_at_by, title

REFUSED = "$structgen-refused"
"""Key of a node that cannot be masked; its value is ``[message, fix]``."""

CHECKED = "$structgen-checked"
"""Key of a node that code looks at when the text is parsed; its value names that code."""


def refused(message: str, fix: str) -> JsonSchemaValue:
    """A node that cannot be masked: why, and what to do instead."""
    return {REFUSED: [message, fix]}


def _constant_of(found: JsonSchemaValue | Refusal) -> JsonSchemaValue:
    return refused(*found) if isinstance(found, Refusal) else dict(found)


def constant(schema: Any, found: JsonSchemaValue | Refusal) -> Any:
    """A core schema whose JSON Schema is ``found``, with the titles and name of ``schema``."""
    metadata = {
        key: value
        for key, value in schema.get("metadata", {}).items()
        if key in ("pydantic_js_updates", "pydantic_js_extra")
    }
    metadata["pydantic_js_functions"] = [lambda schema, handler: _constant_of(found)]
    reference = {"ref": schema["ref"]} if "ref" in schema else {}
    return {"type": "any", "metadata": metadata, **reference}


def checked(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    """``result``, marked if it is code that looks at the value."""
    return _noted(result, [title(schema)] if known(schema) is Kind.LIMIT else looked_at_by(schema))


def looked_at(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    """``result``, marked with what code looks at the value, but for functions."""
    return _noted(result, looked_at_by(schema))


def _noted(result: JsonSchemaValue, code: list[str]) -> JsonSchemaValue:
    return {**result, CHECKED: [*result.get(CHECKED, ()), *code]} if code else result


def text_of(pattern: str) -> JsonSchemaValue:
    """Strings that match a pattern."""
    return {"type": "string", "pattern": pattern}


def object_of(properties: dict[str, Any], required: list[str]) -> JsonSchemaValue:
    """Objects with these members and no others."""
    result = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**result, "required": required} if required else result


def closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    """``schema``; if it is of objects with named members, changed to allow no others."""
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
