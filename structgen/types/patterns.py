"""Patterns that Pydantic's regex engine does not read: checked here instead.

Owns `OwnPatterns`, which takes such patterns out of Pydantic's schema, so that a validator can be
built, checks them as the masks do, and keeps them for the JSON Schema, where one that is malformed
is refused with its place. Knows nothing of which types have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema

from structgen.grammar import ir, regex

KEPT = "structgen_pattern"
"""The key of a string schema's metadata that holds the pattern taken out."""

_NO_SCHEMAS = ("metadata", "serialization", "default", "expected")


class OwnPatterns:
    """Marks a type, in `Annotated`, whose patterns may be beyond Pydantic's engine."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        seen: set[str] = set()
        stack: list[Any] = [schema]
        while stack:
            node = stack.pop()
            if isinstance(node, (list, tuple)):
                stack.extend(node)
            elif isinstance(node, dict):
                if node.get("type") == "definition-ref" and node["schema_ref"] not in seen:
                    seen.add(node["schema_ref"])
                    stack.append(handler.resolve_ref_schema(node))
                stack.extend(part for key, part in node.items() if key not in _NO_SCHEMAS)
                if node.get("type") == "str" and isinstance(node.get("pattern"), str):
                    _take_out(node)
        return schema


def _take_out(node: dict[str, Any]) -> None:
    """Turn a string schema, in place, into one whose pattern is checked here, if it must be."""
    pattern = node["pattern"]
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        inner: Any = {**node, "metadata": {**node.get("metadata", {}), KEPT: pattern}}
        del inner["pattern"]
        node.clear()
        node.update(core_schema.no_info_after_validator_function(_checker(pattern), inner))


def _checker(pattern: str) -> Callable[[str], str]:
    compiled: list[ir.Regex] = []

    def check(text: str) -> str:
        # Only when a value is checked: automata are built of grammars and types, not the reverse.
        from structgen.automaton.json import evaluate

        if not compiled:
            compiled.append(regex.parse_ecma(pattern))
        if not evaluate.matches(compiled[0], text):
            raise ValueError(f"String should match pattern {pattern!r}")
        return text

    return check
