"""Schemas whose objects have no members but those that they name."""

from __future__ import annotations

import pytest

from structgen.grammar.json_schema import closed

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**OBJECT, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (OBJECT, CLOSED),
        (True, True),
        (CLOSED, CLOSED),
        ({**OBJECT, "additionalProperties": True}, {**OBJECT, "additionalProperties": True}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": "array", "items": OBJECT}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [OBJECT, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        (
            {"$defs": {"type": OBJECT}, "$ref": "#/$defs/type"},
            {"$defs": {"type": CLOSED}, "$ref": "#/$defs/type"},
        ),
        ({"allOf": [OBJECT, OBJECT]}, {"allOf": [OBJECT, OBJECT]}),
        ({"const": OBJECT}, {"const": OBJECT}),
        ({"enum": [OBJECT]}, {"enum": [OBJECT]}),
        (
            {"type": "object", "properties": {"properties": OBJECT, "type": {"const": "object"}}},
            {
                "type": "object",
                "properties": {"properties": CLOSED, "type": {"const": "object"}},
                "additionalProperties": False,
            },
        ),
        (
            {**OBJECT, "patternProperties": {"x": OBJECT}},
            {**OBJECT, "patternProperties": {"x": CLOSED}},
        ),
    ],
)
def test_objects_are_closed(schema: object, expected: object) -> None:
    before = repr(schema)
    assert closed(schema) == expected
    assert repr(schema) == before
