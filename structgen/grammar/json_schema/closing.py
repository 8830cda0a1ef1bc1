"""JSON Schemas that leave objects no members but those that they name.

How tools and the frameworks that make them mean their schemas. Knows who asks for it as little as
the reader does: what is compiled is exactly the schema that is given.
"""

from __future__ import annotations

import copy
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
    made = copy.deepcopy(schema)
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
