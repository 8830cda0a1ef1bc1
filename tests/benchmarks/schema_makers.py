"""Large or entangled schemas, made from numbers: what `large_schemas.py` measures and tests count.

Each case is a schema with texts that it takes, whose masks are the ones to look at. Nothing is
drawn: the same sizes make the same schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A schema, and what to do with it.

    Attributes:
        schema: the schema.
        values: what it takes; the masks of their compact JSON are looked at.
        options: compile options.
    """

    schema: Schema
    values: list[Any]
    options: dict[str, Any] = field(default_factory=dict)


def words(n: int) -> list[str]:
    """``n`` different words that share little, each of 8 letters."""
    return [f"{i * 2654435761 % 2**32:08x}" for i in range(n)]


def described(schema: Schema, n: int) -> Schema:
    """``schema`` with a description, as real schemas have them."""
    return {"description": f"What number {n} is for, in a sentence of some length.", **schema}


# -- large, as published schemas are -------------------------------------------------------------


def pipeline(n_tasks: int = 300, n_inputs: int = 6) -> Case:
    """Tasks told apart by the pattern of one member; steps inside jobs inside stages."""

    def task(i: int) -> Schema:
        inputs: Schema = {
            f"input{j}": described(
                {"enum": [f"choice{k}" for k in range(4)]} if j % 3 == 0 else {"type": "string"},
                100 * i + j,
            )
            for j in range(n_inputs)
        }
        if i % 3 == 0:
            inputs["shared"] = {"$ref": "#/definitions/expression"}
        return {
            "properties": {
                "task": described({"pattern": f"^Task{i}@{i % 4}$"}, i),
                "inputs": {
                    "properties": inputs,
                    "additionalProperties": False,
                    "required": ["input1"] if i % 2 else [],
                },
            },
            "required": ["task", "inputs"] if i % 5 == 0 else ["task"],
        }

    names = [f"Task{i}@{i % 4}" for i in range(n_tasks)]
    shared = {f"field{i}": {"$ref": "#/definitions/expression"} for i in range(12)}
    job = {
        "type": "object",
        "properties": {
            "job": {"$ref": "#/definitions/expression"},
            "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}},
            **shared,
        },
        "required": ["job"],
        "additionalProperties": False,
    }
    script = {
        "type": "object",
        "properties": {"script": {"type": "string"}, **shared},
        "required": ["script"],
        "additionalProperties": False,
    }
    definitions = {
        "expression": {
            "anyOf": [{"type": "string", "pattern": "^[^$]*$"}, {"pattern": r"^\$\{\{.*\}\}$"}]
        },
        "task": {
            "type": "object",
            "properties": {
                "task": {"anyOf": [described({"enum": [name]}, i) for i, name in enumerate(names)]},
                "inputs": {"type": "object"},
                **shared,
            },
            "additionalProperties": False,
            "anyOf": [task(i) for i in range(n_tasks)],
        },
        "script": script,
        "step": {"anyOf": [{"$ref": "#/definitions/script"}, {"$ref": "#/definitions/task"}]},
        "job": job,
        "stage": {
            "type": "object",
            "properties": {
                "stage": {"$ref": "#/definitions/expression"},
                "jobs": {"type": "array", "items": {"$ref": "#/definitions/job"}},
            },
            "additionalProperties": False,
        },
    }
    schema = {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "stages": {"type": "array", "items": {"$ref": "#/definitions/stage"}},
                    "jobs": {"type": "array", "items": {"$ref": "#/definitions/job"}},
                    "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}},
                },
                "additionalProperties": False,
            },
            {"type": "string", "pattern": "^$"},
        ],
        "definitions": definitions,
    }
    steps = [
        {"task": names[7], "inputs": {"input0": "choice1", "input1": "x", "input2": "y"}},
        {"script": "make", "field0": "always"},
    ]
    return Case(schema, [{"stages": [{"stage": "s", "jobs": [{"job": "j", "steps": steps}]}]}])


def one_ofs(n: int = 340, per: int = 3) -> Case:
    """Members of which each is one of some shapes, without a reference anywhere."""

    def member(i: int) -> Schema:
        ways: list[Schema] = [
            {"type": "string", "enum": [f"mode{i}-{k}" for k in range(6)]},
            {"type": "boolean"},
            {"type": "array", "items": {"type": "string", "pattern": f"^[a-z]{{1,{5 + i % 9}}}$"}},
        ]
        for k in range(per):
            ways.append(
                {
                    "type": "object",
                    "properties": {
                        "kind": {"const": f"kind{k}"},
                        **{
                            f"option{j}": described({"type": "string"}, 10 * i + j)
                            for j in range(6)
                        },
                        f"own{k}": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
                    },
                    "required": ["kind"],
                    "additionalProperties": False,
                }
            )
        return described({"oneOf": ways}, i)

    schema = {
        "type": "object",
        "properties": {f"setting{i}": member(i) for i in range(n)},
        "additionalProperties": False,
    }
    value = {
        "setting0": {"kind": "kind2", "option1": "x", "own2": 3},
        f"setting{n // 2}": f"mode{n // 2}-3",
        f"setting{n - 1}": ["abc", "d"],
    }
    return Case(schema, [value])


def one_ofs_alike(n: int = 340) -> Case:
    """As `one_ofs`, where shapes are told apart by which members they require."""

    def member(i: int) -> Schema:
        def shape(*names: str, required: str) -> Schema:
            return {
                "type": "object",
                "properties": {name: described({"type": "string"}, i) for name in names},
                "required": [required],
            }

        return described(
            {
                "oneOf": [
                    {"type": "null"},
                    shape("path", "mode", f"x{i}", required="path"),
                    shape("url", "method", f"x{i}", required="url"),
                    shape("inline", f"x{i}", required="inline"),
                ]
            },
            i,
        )

    schema = {"type": "object", "properties": {f"setting{i}": member(i) for i in range(n)}}
    return Case(
        schema,
        [{"setting0": {"url": "x", "method": "y", "more": 1}, f"setting{n - 1}": {"path": "p"}}],
    )


def inherited(n: int = 200, depth: int = 20) -> Case:
    """Definitions each of which extends another by ``allOf``, in chains; one is chosen by a tag."""
    definitions: dict[str, Any] = {}
    for i in range(n):
        own = {
            "type": "object",
            "properties": {
                "type": {"const": f"type{i}"},
                **{f"p{i}_{j}": described({"type": "string"}, i) for j in range(8)},
            },
            "required": ["type"],
        }
        base: Schema = {
            "properties": {f"base{i}_{j}": {"type": "integer"} for j in range(4)},
            "required": [f"base{i}_0"],
        }
        if i % depth:
            base = {"allOf": [{"$ref": f"#/definitions/base{i - 1}"}, base]}
        definitions[f"base{i}"] = base
        definitions[f"type{i}"] = {"allOf": [{"$ref": f"#/definitions/base{i}"}, own]}
    ways = [{"$ref": f"#/definitions/type{i}"} for i in range(n)]
    schema = {"type": "array", "items": {"oneOf": ways}, "definitions": definitions}
    value = {"base0_0": 1, "type": "type2", "base1_0": 2, "base2_0": 3, "p2_1": "x"}
    return Case(schema, [[{"base0_0": 1, "type": "type0", "p0_0": "y"}, value]])


def tagged(n: int = 400, size: int = 8) -> Case:
    """A union of objects with a constant tag."""
    ways = [
        {
            "type": "object",
            "properties": {
                "tag": {"const": f"tag{i}"},
                **{f"p{j}": described({"type": "string"}, i) for j in range(size)},
                f"own{i}": {"type": "integer"},
            },
            "required": ["tag"],
            "additionalProperties": False,
        }
        for i in range(n)
    ]
    return Case(
        {"type": "array", "items": {"anyOf": ways}}, [[{"tag": "tag5", "p2": "x", "own5": 3}]]
    )


def all_references(n: int = 3000) -> Case:
    """Definitions that refer to one another and say little, as generated clients have."""
    definitions = {
        f"d{i}": {
            "type": "object",
            "properties": {
                "name": described({"type": "string"}, i),
                "kind": {"enum": [f"k{i}", f"l{i}", "other"]},
                "left": {"$ref": f"#/definitions/d{(2 * i + 1) % n}"},
                "right": {
                    "anyOf": [{"$ref": f"#/definitions/d{(3 * i + 2) % n}"}, {"type": "null"}]
                },
            },
            "required": ["name"],
        }
        for i in range(n)
    }
    value = {"name": "a", "kind": "k0", "left": {"name": "b", "right": None}}
    return Case({"$ref": "#/definitions/d0", "definitions": definitions}, [value])


# -- large lists ---------------------------------------------------------------------------------


def many_properties(n: int = 20_000, **more: Any) -> Case:
    """An object of ``n`` named members."""
    names = [f"property{i}" for i in range(n)]
    schema = {"type": "object", "properties": {p: {"type": "integer"} for p in names}, **more}
    return Case(schema, [{names[0]: 1, names[1]: 2, names[n // 2]: 3, names[-1]: 4}])


def many_properties_any_order(n: int = 20_000) -> Case:
    """The same in any order."""
    case = many_properties(n, additionalProperties=False)
    return Case(
        case.schema,
        [dict(reversed(case.values[0].items()))],
        {"property_order": "any", "spelling": "any"},
    )


def many_required(n: int = 20_000) -> Case:
    """The same, all required."""
    names = [f"property{i}" for i in range(n)]
    return many_properties(n, required=names)


def name_enum(n: int = 5_000) -> Case:
    """``propertyNames`` that lists ``n`` words."""
    listed = words(n)
    schema = {"type": "object", "propertyNames": {"enum": listed}}
    return Case(schema, [{listed[3]: 1, listed[n // 2]: [2], listed[-1]: None}])


def name_enum_counted(n: int = 5_000) -> Case:
    """The same, of which two must be there."""
    listed = words(n)
    schema = {"type": "object", "propertyNames": {"enum": listed}, "minProperties": 2}
    return Case(schema, [{listed[3]: 1, listed[n // 2]: [2], listed[-1]: None}])


def long_enum(n: int = 200_000) -> Case:
    """One of ``n`` words, as an item and as a member."""
    listed = words(n)
    return Case({"type": "array", "items": {"enum": listed}}, [[listed[0], listed[-1]]])


def long_number_enum(n: int = 50_000) -> Case:
    """One of ``n`` whole numbers."""
    listed = [i * 7919 for i in range(n)]
    return Case({"type": "array", "items": {"enum": listed}}, [[listed[0], listed[-1]]])


# -- entangled -----------------------------------------------------------------------------------


def contains_constants(k: int = 10) -> Case:
    """An array that contains each of ``k`` constants."""
    schema = {"type": "array", "allOf": [{"contains": {"const": i}} for i in range(k)]}
    return Case(schema, [list(range(k)), [*range(k - 1, -1, -1), "x"]])


def contains_members(k: int = 10) -> Case:
    """An array that contains ``k`` objects, each told by a member, in any order of members."""
    schema = {
        "type": "array",
        "allOf": [
            {"contains": {"type": "object", "properties": {"a": {"const": i}}, "required": ["a"]}}
            for i in range(k)
        ],
    }
    return Case(
        schema, [[{"b": 1, "a": i} for i in range(k)]], {"property_order": "any", "spelling": "any"}
    )


def contains_bounded(k: int = 8) -> Case:
    """The same of constants, each at most twice."""
    schema = {
        "type": "array",
        "allOf": [{"contains": {"const": i}, "maxContains": 2} for i in range(k)],
    }
    return Case(schema, [[*range(k), *range(k)]])


def contains_overlapping(k: int = 8) -> Case:
    """An array that contains multiples of several primes, which one number can be."""
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29][:k]
    schema = {"type": "array", "allOf": [{"contains": {"multipleOf": p}} for p in primes]}
    return Case(schema, [primes, [6, 35, *primes[4:]]])


def contains_none_unique() -> Case:
    """Unique items of which none may be a certain one."""
    schema = {"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 0}
    return Case({**schema, "uniqueItems": True}, [[2, 3, "x"]])


def contains_some_unique(k: int = 5) -> Case:
    """Unique items of which some are told."""
    schema = {"type": "array", "allOf": [{"contains": {"const": i}} for i in range(k)]}
    return Case({**schema, "uniqueItems": True}, [[*range(k), "x"]])


def any_of_overlapping(n: int = 800) -> Case:
    """Objects that differ in one optional member, any of which will do."""
    ways = [
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, f"x{i}": {"type": "integer"}},
            "required": ["name"],
        }
        for i in range(n)
    ]
    return Case({"anyOf": ways}, [{"name": "a", "x3": 1, "x7": "not a number"}])


def any_of_required(n: int = 800) -> Case:
    """An object with some of ``n`` pairs of members."""
    schema = {"type": "object", "anyOf": [{"required": [f"a{i}", f"b{i}"]} for i in range(n)]}
    return Case(schema, [{"a3": 1, "b3": 2, "a5": 1}])


def any_of_ranges(n: int = 800) -> Case:
    """Ranges of numbers that overlap."""
    ways = [{"type": "integer", "minimum": i, "maximum": 3 * i + 5} for i in range(n)]
    return Case({"type": "array", "items": {"anyOf": ways}}, [[0, 17, 3 * n]])


def any_of_patterns(n: int = 800) -> Case:
    """Patterns that overlap."""
    ways = [{"type": "string", "pattern": f"^item{i % 50}-[a-z]*{i}$"} for i in range(n)]
    return Case({"type": "array", "items": {"anyOf": ways}}, [["item7-abc7", "item1-1"]])


def one_of_required(n: int = 200) -> Case:
    """Exactly one of ``n`` members."""
    schema = {"type": "object", "oneOf": [{"required": [f"a{i}"]} for i in range(n)]}
    return Case(schema, [{"a3": 1, "other": 2}, {"other": 1, f"a{n - 1}": 2}])


def one_of_objects(n: int = 200) -> Case:
    """Exactly one of ``n`` objects that differ in one member, required and typed."""
    ways = [
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, f"x{i}": {"type": "integer"}},
            "required": [f"x{i}"],
        }
        for i in range(n)
    ]
    return Case({"oneOf": ways}, [{"name": "a", "x3": 1, "x7": "not a number"}])


def ifs(n: int = 400) -> Case:
    """``n`` conditions on one member, each of which requires another one."""
    return Case(
        {
            "type": "object",
            "properties": {"kind": {"type": "string"}},
            "required": ["kind"],
            "allOf": [
                {
                    "if": {"properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]},
                    "then": {"required": [f"x{i}"]},
                }
                for i in range(n)
            ],
        },
        [{"kind": "k3", "x3": 1}, {"kind": "other"}],
    )


def ifs_typed(n: int = 400) -> Case:
    """The same, with a schema for the other member."""
    return Case(
        {
            "type": "object",
            "properties": {"kind": {"enum": [f"k{i}" for i in range(n)]}, "value": True},
            "required": ["kind", "value"],
            "allOf": [
                {
                    "if": {"properties": {"kind": {"const": f"k{i}"}}},
                    "then": {"properties": {"value": {"type": "integer", "minimum": i}}},
                }
                for i in range(n)
            ],
        },
        [{"kind": "k3", "value": 12}],
    )


def ifs_apart(n: int = 400) -> Case:
    """``n`` conditions on members of their own."""
    return Case(
        {
            "type": "object",
            "allOf": [
                {"if": {"required": [f"a{i}"]}, "then": {"required": [f"b{i}"]}} for i in range(n)
            ],
        },
        [{"a3": 1, "b3": 2, "other": 3}],
    )


def dependent_chain(n: int = 200) -> Case:
    """``n`` members of which each needs the next."""
    schema = {"type": "object", "dependentRequired": {f"p{i}": [f"p{i + 1}"] for i in range(n)}}
    last = {f"p{i}": i for i in range(n - 3, n + 1)}
    return Case(schema, [last, {"other": 1}])


def dependent_apart(n: int = 400) -> Case:
    """``n`` pairs of members of which one needs the other."""
    schema = {"type": "object", "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(n)}}
    return Case(schema, [{"a3": 1, "b3": 2, "other": 3}])


def numbers_any_spelling() -> Case:
    """Multiples with alternatives, in every spelling."""
    schema = {
        "type": "number",
        "allOf": [
            {"anyOf": [{"multipleOf": 33}, {"multipleOf": 12}, {"multipleOf": 77}]},
            {
                "anyOf": [
                    {"allOf": [{"not": {"multipleOf": 6}}, {"not": {"multipleOf": 7}}]},
                    {"multipleOf": 35},
                ]
            },
            {"anyOf": [{"not": {"multipleOf": 11}}, {"multipleOf": 13}]},
            {"not": {"multipleOf": 8}},
        ],
    }
    return Case(schema, [429], {"property_order": "any", "spelling": "any"})


LARGE: dict[str, Callable[[], Case]] = {
    "pipeline": pipeline,
    "340 oneOfs": one_ofs,
    "340 oneOfs alike": one_ofs_alike,
    "inherited": inherited,
    "400 tagged": tagged,
    "3,000 references": all_references,
}
"""Of up to 1 MB, without anything pathological: their first mask is to take less than 0.5 s."""

LISTS: dict[str, Callable[[], Case]] = {
    "20,000 properties": many_properties,
    "20,000 properties, any order": many_properties_any_order,
    "20,000 required": many_required,
    "propertyNames of 5,000": name_enum,
    "propertyNames of 5,000, counted": name_enum_counted,
    "enum of 200,000": long_enum,
    "enum of 50,000 numbers": long_number_enum,
}

ENTANGLED: dict[str, Callable[[], Case]] = {
    "contains of 9": lambda: contains_constants(9),
    "contains of 10": contains_constants,
    "contains of 20": lambda: contains_constants(20),
    "contains of 10 objects": contains_members,
    "contains of 8, bounded": contains_bounded,
    "contains of 8 multiples": contains_overlapping,
    "contains none, unique": contains_none_unique,
    "contains 5, unique": contains_some_unique,
    "anyOf of 800 objects": any_of_overlapping,
    "anyOf of 2,000 objects": lambda: any_of_overlapping(2_000),
    "anyOf of 800 required pairs": any_of_required,
    "anyOf of 2,000 required pairs": lambda: any_of_required(2_000),
    "anyOf of 800 ranges": any_of_ranges,
    "anyOf of 800 patterns": any_of_patterns,
    "oneOf of 200 required": one_of_required,
    "oneOf of 200 objects": one_of_objects,
    "400 ifs": ifs,
    "400 ifs with schemas": ifs_typed,
    "400 ifs apart": ifs_apart,
    "chain of 200 dependentRequired": dependent_chain,
    "chain of 400 dependentRequired": lambda: dependent_chain(400),
    "400 dependentRequired apart": dependent_apart,
    "multiples in any spelling": numbers_any_spelling,
}

CASES = {**LARGE, **LISTS, **ENTANGLED}


def text_of(value: Any) -> bytes:
    """``value`` as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
