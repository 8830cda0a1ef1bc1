"""In which order members may be written under the default ``property_order="schema"``."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import structgen
from structgen import JsonSchema, Vocabulary

BYTES = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])
NULL = {"type": "null"}


def names(*listed: str, **more: Any) -> dict[str, Any]:
    return {"properties": dict.fromkeys(listed, NULL), **more}


def orders(schema: Any, of: str, **options: Any) -> set[str]:
    """All orders in which an object with exactly the members ``of`` is accepted."""
    constraint = structgen.compile(JsonSchema({"type": "object", **schema}), BYTES, **options)
    found = set()
    for order in itertools.permutations(of):
        cursor = constraint.start()
        try:
            for byte in ("{" + ",".join(f'"{name}":null' for name in order) + "}").encode():
                cursor.accept(byte)
        except structgen.errors.TokenNotAllowed:
            continue
        assert cursor.is_accepting
        found.add("".join(order))
    return found


A, B, C = names("a"), names("b"), names("c")
DEFS = {"$defs": {"A": A, "B": B, "C": C, "BA": {"allOf": [{"$ref": "#/$defs/B"}, A]}}}
REF = {name: {"$ref": f"#/$defs/{name}"} for name in DEFS["$defs"]}


@pytest.mark.parametrize(
    ("schema", "order"),
    [
        (names("b", "a", "c"), "bac"),
        # a schema's own before those of its parts, wherever the keywords stand
        ({**names("c"), "allOf": [B, A]}, "cba"),
        ({"allOf": [B, A], **names("c")}, "cba"),
        ({**REF["A"], **names("c", "b")}, "cba"),
        # parts as listed, whether in place or by reference
        ({"allOf": [A, B, C]}, "abc"),
        ({"allOf": [REF["A"], REF["B"], REF["C"]]}, "abc"),
        ({"allOf": [REF["C"], REF["B"], REF["A"]]}, "cba"),
        ({"allOf": [REF["B"], A, REF["C"]]}, "bac"),
        ({"allOf": [A, REF["B"], C]}, "abc"),
        # a whole part before the next one
        ({"allOf": [{"allOf": [{"allOf": [B]}, A]}, C]}, "bac"),
        ({"allOf": [{"allOf": [C]}, {"allOf": [A]}, {"allOf": [B]}]}, "cab"),
        ({"allOf": [REF["BA"], REF["C"]]}, "bac"),
        ({"allOf": [REF["C"], REF["BA"]]}, "cba"),
        # a definition counts where it is met, not where it was met before
        ({"allOf": [A, REF["B"], C], "properties": {"x": REF["B"]}}, "abc"),
        ({"properties": {"x": {"allOf": [REF["C"], REF["B"]]}}, "allOf": [B, REF["C"]]}, "bc"),
        # the first place of a name
        ({"allOf": [names("b", "a"), names("a", "b", "c")]}, "bac"),
        # by keyword
        ({"anyOf": [C], "allOf": [B], **REF["A"]}, "abc"),
        ({"dependentSchemas": {"b": C}, "if": A, "then": {"required": ["a"]}, "oneOf": [B]}, "bac"),
        # names that are only required follow, as listed
        ({**names("b"), "required": ["c", "a"]}, "bca"),
        ({"allOf": [{"required": ["a"]}, {"required": ["c"]}, B]}, "bac"),
        ({**names("c", "b"), "required": ["b", "c"]}, "cb"),
    ],
)
def test_named_members_have_one_order(schema: Any, order: str) -> None:
    schema = {**DEFS, **schema}
    for others in ("", "z", "yz"):  # unnamed ones come last, in any order
        wanted = {order + "".join(rest) for rest in itertools.permutations(others)}
        assert orders(schema, order + others) == wanted
    everything = {"".join(o) for o in itertools.permutations(order)}
    assert orders(schema, order, property_order="any") == everything


def test_of_alternatives_those_that_hold_count() -> None:
    either = {"anyOf": [names("b", required=["b"]), names("a", required=["a"])], **names("c")}
    # c and b, and then a as another name; or c and a, and then b.
    assert orders(either, "abc") == {"cba", "cab"}
    assert orders(either, "bc") == {"cb"}
    closed = {
        "anyOf": [
            names("b", "a", additionalProperties=False),
            names("a", "c", additionalProperties=False),
        ]
    }
    assert orders(closed, "ab") == {"ba"}
    assert orders(closed, "ac") == {"ac"}
    condition = {"if": names("a", required=["a"]), "then": names("b"), "else": names("c")}
    assert orders(condition, "ab") == {"ab"}


def test_names_that_are_only_spoken_of_come_with_the_others() -> None:
    schema = {**names("c"), "dependentRequired": {"a": ["b"]}, "patternProperties": {"^p": NULL}}
    assert orders(schema, "cabp") == {"c" + "".join(o) for o in itertools.permutations("abp")}


def test_members_of_a_constant_have_its_order() -> None:
    value = {"b": None, "a": None, "c": None}
    assert orders({"const": value}, "abc") == {"bac"}


def test_the_order_inside_a_member_that_two_parts_describe() -> None:
    parts = {"P": {"properties": {"m": names("a")}}, "Q": {"properties": {"m": names("b")}}}
    for first, second, order in (("P", "Q", "ab"), ("Q", "P", "ba")):
        both = [{"$ref": f"#/$defs/{first}"}, {"$ref": f"#/$defs/{second}"}]
        constraint = structgen.compile(
            JsonSchema({"type": "object", "allOf": both, "$defs": parts}), BYTES
        )
        for way in ("ab", "ba"):
            cursor = constraint.start()
            text = '{"m":{' + ",".join(f'"{name}":null' for name in way) + "}}"
            try:
                for byte in text.encode():
                    cursor.accept(byte)
            except structgen.errors.TokenNotAllowed:
                assert way != order
            else:
                assert way == order
