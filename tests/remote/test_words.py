"""What is sent says what it is to say: patterns, grammars and schemas against our own automata."""

from __future__ import annotations

import datetime as dt
import json
import re
from types import SimpleNamespace
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from byte_walks import BYTES, walk
from pydantic import BaseModel, Field

import structgen
from structgen import Cfg, Choice, JsonSchema, Regex, Template
from structgen.constraint import Constraint
from structgen.remote.dialects import DIALECTS
from structgen.remote.reading import Answer, NotOfType
from structgen.remote.schemas import as_gbnf, as_pattern
from structgen.remote.task import Task
from structgen.types import lower

SEEDS = range(12)

REGULAR = [
    Regex(r"[A-Z]{3}-[0-9]{2,4}"),
    Regex(r"(ab|c[^d-f]*)?\.\\\^\]\-x+"),
    Regex(r"\w+@\w+\.(com|org)"),
    Regex(r"[^\n\t\"\\]{1,5}"),
    Regex(r"(?s:.{0,3})é€😀?"),
    Regex(r"[\]\[^-]+"),
    Choice(["tea", "coffee (black)", 'a "quote"\n']),
    Literal["a", 2],
    int,
    bool,
    dt.date,
    UUID,
    int | dt.date,
    Template("{n} is {a}.", n=Regex("[A-Z]+"), a=int),
]


@pytest.mark.parametrize("output_type", REGULAR, ids=str)
def test_patterns_say_the_same(output_type: Any) -> None:
    ours = structgen.compile(output_type, BYTES)
    text = as_pattern(lower(output_type).grammar)
    pattern, theirs = re.compile(text), structgen.compile(Regex(text), BYTES)
    for seed in SEEDS:
        sample = walk(ours, seed, 40)
        assert len(sample) > 25 or pattern.fullmatch(sample), sample
        assert ours.allows(walk(theirs, seed, 40))


@pytest.mark.parametrize("output_type", REGULAR, ids=str)
def test_grammars_of_regular_types_say_the_same(output_type: Any) -> None:
    ours = structgen.compile(output_type, BYTES)
    gbnf = as_gbnf(lower(output_type).grammar)
    assert gbnf.is_exact
    theirs = structgen.compile(Cfg(gbnf.text, dialect="gbnf"), BYTES)
    for seed in SEEDS:
        sample = walk(ours, seed, 40)
        assert len(sample) > 25 or theirs.allows(sample), sample
        assert ours.allows(walk(theirs, seed, 40))


GRAMMARS = [
    ('root ::= [a-z]+ "-" root? | "x" tail\ntail ::= "(" tail ")" | ""', True),
    ('root ::= ("a" | [^\\n"]){2,3} "\\\\" item*\nitem ::= "[" [\\]^-] "]"', True),
    ('start: "a" start "b" | "c"', True),
    ('start: WORD ("," WORD)*\nWORD: /[a-z]+/\n%ignore " "', False),
    ('start: sum\nsum: sum "+" NUMBER | NUMBER\nNUMBER: /[0-9]+/', False),
]


@pytest.mark.parametrize(("text", "is_exact"), GRAMMARS)
def test_grammars_say_the_same_or_more(text: str, is_exact: bool) -> None:
    ours = structgen.compile(Cfg(text), BYTES)
    gbnf = as_gbnf(lower(Cfg(text)).grammar)
    assert gbnf.is_exact is is_exact
    assert gbnf.text.startswith("root ::= ")
    theirs = structgen.compile(Cfg(gbnf.text, dialect="gbnf"), BYTES)
    for seed in SEEDS:
        assert theirs.allows(walk(ours, seed, 30))
        if is_exact:
            assert ours.allows(walk(theirs, seed, 30))


def test_a_wider_grammar_is_not_said_to_be_enforced() -> None:
    task = made(Cfg(GRAMMARS[3][0]), "vllm")
    assert task.sent.enforcement is not None
    assert "allows more" in task.sent.enforcement.sent
    assert task.sent.enforcement.server == ()


class Inner(BaseModel):
    x: int = 3
    s: str | None = None


class Tree(BaseModel):
    v: int
    kids: list[Tree] = []


class Shape(BaseModel):
    kind: Literal["circle"]
    r: Annotated[float, Field(gt=0)]


class Square(BaseModel):
    kind: Literal["square"]
    side: int
    note: str = ""


class All(BaseModel):
    """All sorts of fields."""

    name: str = Field(min_length=1, max_length=8)
    code: Annotated[str, Field(pattern="^[A-Z]{2}$")]
    age: Annotated[int, Field(ge=0, le=120)] = 5
    day: dt.date | None = None
    tags: list[str] = []
    inner: Inner
    pair: tuple[int, str]
    mode: Literal["a", "b"] = "a"
    shape: Annotated[Shape | Square, Field(discriminator="kind")]


DEFINED = {
    "type": "object",
    "properties": {
        "a": {"$ref": "#/$defs/one"},
        "b": {"oneOf": [{"type": "integer"}, {"type": "string", "format": "date"}]},
        "c": {"const": "x"},
        "d": {"allOf": [{"type": "string", "maxLength": 3}]},
        "e": {"type": ["array", "null"], "items": {"enum": [1, "1", None]}, "uniqueItems": True},
    },
    "required": ["a"],
    "$defs": {"one": {"type": "object", "properties": {"o": {"$ref": "#/$defs/one"}}}, "two": {}},
}

SCHEMAS = [All, Tree, list[All], JsonSchema(DEFINED), Shape | Square, list[int | None]]
JSON_DIALECTS = [name for name, one in DIALECTS.items() if one.json != "none"]


def made(output_type: Any, dialect: str) -> Task:
    """What is asked for a type in a dialect."""
    model: Any = SimpleNamespace(dialect=DIALECTS[dialect], name="m", request={})
    return Task(model, output_type, {})


def schema_of(task: Task) -> Any:
    """The schema that travels."""
    body = {**task.sent.arguments, **task.sent.extra}
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    return body.get("guided_json") or body["structured_outputs"]["json"]


@pytest.mark.parametrize("output_type", SCHEMAS, ids=str)
@pytest.mark.parametrize("dialect", JSON_DIALECTS)
def test_what_a_server_may_say_of_a_schema_is_of_the_type_or_refused(
    output_type: Any, dialect: str
) -> None:
    """The schema that is sent, under a mask: each text is read; refused for what is listed only."""
    task = made(output_type, dialect)
    schema = json.dumps(schema_of(task))
    assert "$structgen" not in schema
    server = structgen.compile(JsonSchema(schema_of(task)), BYTES, max_digits=5)
    enforcement = task.sent.enforcement
    assert enforcement is not None
    assert task.constraint is not None
    n_read = 0
    for seed in SEEDS:
        text = walk(server, seed, 150)
        answer = Answer(task.constraint, task.sent.form, task.sent.has_nulls)
        try:
            answer.feed(text)
            answer.finish()
        except NotOfType:
            continue
        n_read += 1
        assert task.constraint.allows(answer.text)
        task.constraint.output.parse(answer.text)
    assert n_read or enforcement.here


@pytest.mark.parametrize("output_type", SCHEMAS, ids=str)
def test_strict_schemas_are_in_the_subset(output_type: Any) -> None:
    def check(schema: Any) -> None:
        known = {
            *("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf"),
            *("$ref", "$defs", "description", "title", "pattern", "format", "minimum", "maximum"),
            *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
        }
        assert set(schema) <= known
        assert {"type", "anyOf", "$ref"} & set(schema)
        if "properties" in schema:
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        if "$ref" in schema:
            assert set(schema) == {"$ref"}
        parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
        parts += [*schema.get("$defs", {}).values()]
        parts += [schema["items"]] if "items" in schema else []
        for part in parts:
            check(part)

    schema = schema_of(made(output_type, "openai"))
    assert schema["type"] == "object"
    check(schema)


@pytest.mark.parametrize("output_type", [All, Tree, list[All], JsonSchema(DEFINED)], ids=str)
def test_all_that_is_of_the_type_is_read_from_what_a_strict_server_says(output_type: Any) -> None:
    """What the type has, with null where a member is left out, gives the same text again."""
    task = made(output_type, "openai")
    ours = structgen.compile(output_type, BYTES, max_digits=5)
    for seed in SEEDS:
        text = walk(ours, seed, 200)
        for whitespace in (None, 1):
            said = json.dumps(with_nulls(json.loads(text), schema_of(task)), indent=whitespace)
            answer = Answer(task.constraint, "bare", task.sent.has_nulls)
            for i in range(0, len(said), 7):
                answer.feed(said[i : i + 7])
            answer.finish()
            assert present(json.loads(answer.text)) == present(json.loads(text))


def present(value: Any) -> Any:
    """``value`` without members that are null."""
    if isinstance(value, list):
        return [present(item) for item in value]
    if isinstance(value, dict):
        return {name: present(item) for name, item in value.items() if item is not None}
    return value


def with_nulls(value: Any, schema: Any) -> Any:
    """``value`` with null for each member that an object with its other members may have."""
    if isinstance(value, list):
        return [with_nulls(item, schema) for item in value]
    if not isinstance(value, dict):
        return value
    for one in objects(schema):
        names = one["properties"]
        if set(value) <= set(names) and "value" not in names:
            kind = names.get("kind", {}).get("enum", [value.get("kind")])
            if value.get("kind") not in kind:
                continue
            mine = {name: with_nulls(value.get(name), schema) for name in names}
            nullable = {n for n, s in names.items() if {"type": "null"} in s.get("anyOf", ())}
            if all(mine[n] is not None or n in nullable for n in set(names) - set(value)):
                return mine
    return value


def objects(schema: Any) -> Any:
    """All schemas of objects in a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from objects(item)
    elif isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict):
            yield schema
        for item in schema.values():
            yield from objects(item)


def read(output_type: Any, *pieces: str, dialect: str = "openai") -> str:
    """The text of the type that a server's answer comes to."""
    task = made(output_type, dialect)
    answer = Answer(task.constraint, task.sent.form, task.sent.has_nulls)
    for piece in pieces:
        answer.feed(piece)
    answer.finish()
    return answer.text


class Options(BaseModel):
    a: int = 1
    b: str | None = None
    c: list[Inner] = []


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"a":null,"b":null,"c":null}', '{"b":null}'),
        ('{ "a" : null , "b" : "null" }', '{ "b" : "null" }'),
        ('{"c":[{"x":null,"s":null},{"s":"\\"","x":null}],"a":null}',
         '{"c":[{"s":null},{"s":"\\""}]}'),
        ('{"a":3,"c":null\n}', '{"a":3\n}'),
        ("{}", "{}"),
        ('{"b":"a,\\"b","a":4}', '{"b":"a,\\"b","a":4}'),
    ],
)  # fmt: skip
def test_nulls_of_members_left_out_are_left_out(said: str, text: str) -> None:
    assert read(Options, said) == text
    assert read(Options, *said) == text


@pytest.mark.parametrize(
    "said",
    ['{"a":nul}', '{"a":nulL}', '{"a":null,}', '{"a":1,"a":null', "{,}", '{"z":null}', "null", ""],
)
def test_what_is_no_text_of_the_type_is_refused(said: str) -> None:
    with pytest.raises(NotOfType):
        read(Options, said)
    with pytest.raises(NotOfType):
        read(Options, *said)


@pytest.mark.parametrize(
    "said", ["", "{", '{"value"', '{"value":1', '{"value":1}}', '{"val":1}', "1", '{"value":}']
)
def test_what_is_not_in_the_object_is_refused(said: str) -> None:
    with pytest.raises(NotOfType):
        read(int, said)
    with pytest.raises(NotOfType):
        read(int, *said)


def test_servers_may_write_json_as_they_like() -> None:
    said = '\n{ "name" : "A\\u006e", "age": 3.0e0,\t"nick": "x" }\n\n'
    schema = {"properties": {"nick": {}, "age": {"type": "integer"}, "name": {"const": "An"}}}
    assert read(JsonSchema(schema), said, dialect="none") == said
    long = f"[{'1' * 900}]"
    assert read(list[float], long, dialect="none") == long


def test_constraints_are_over_bytes() -> None:
    constraint = made(All, "vllm").constraint
    assert isinstance(constraint, Constraint)
    assert constraint.vocabulary.size == 257
