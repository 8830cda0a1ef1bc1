"""JSON Schemas that leave objects no members but those that they name.

How tools and the frameworks that make them mean their schemas. Knows who asks for it as little as
the reader does: what is compiled is exactly the schema that is given.
"""

from __future__ import annotations

from typing import Any

from .dialects import subschemas

_COMPOSED = ("allOf", "not", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords that let other schemas speak of an object's members too."""


def closed(schema: Any) -> Any:
    """A copy of a JSON Schema whose objects have no members but those that it names.

    An object without ``additionalProperties`` may have any. Those who write such schemas want none,
    and a model would write them until its limit. A schema in which others may speak of the same
    object stays as it is.
    """
    made = _copied(schema)
    found, waiting = [], [made]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
            waiting.extend(child for child, _ in subschemas(one, ""))
    if any(keyword in one for one in found for keyword in _COMPOSED):
        return made
    for one in found:
        names = one.get("type") == "object" and "properties" in one
        if names and "patternProperties" not in one:
            one.setdefault("additionalProperties", False)
    return made


def _copied(value: Any) -> Any:
    """A copy of JSON, however deep."""
    root = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, key = waiting.pop()
        one = holder[key]
        if isinstance(one, dict):
            one = dict(one)
            waiting.extend((one, name) for name in one)
        elif isinstance(one, list):
            one = list(one)
            waiting.extend((one, index) for index in range(len(one)))
        holder[key] = one
    return root[0]
