"""`Constraint.explain`: each keyword of each reachable schema has one row, and the right one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import corpora
import pytest
from pydantic import BaseModel

import structgen
from structgen import Choice, JsonSchema, Regex, Vocabulary
from structgen.constraint.explain import (
    ANNOTATION,
    MASKED,
    RECORDED,
    REFERENCE,
    Explanation,
    explain,
)
from structgen.grammar import ir

BYTES = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])


def explained(output_type: Any, **options: Any) -> Explanation:
    return structgen.compile(output_type, BYTES, **options).explain()


def how(schema: Any, keyword: str, path: str = "$", **options: Any) -> tuple[str, str]:
    """How the one row for ``keyword`` at ``path`` says that it is kept, and its note."""
    rows = explained(JsonSchema(schema), **options).rows
    (row,) = [row for row in rows if (row.path, row.keyword) == (path, keyword)]
    return row.how, row.note


@pytest.mark.parametrize(
    ("schema", "keyword", "expected"),
    [
        ({"type": "string", "maxLength": 3}, "type", MASKED),
        ({"type": "string", "maxLength": 3}, "maxLength", MASKED),
        ({"oneOf": [{"type": "null"}]}, "oneOf", MASKED),
        ({"format": "date"}, "format", MASKED),
        ({"format": "password"}, "format", ANNOTATION),
        ({"format": "starship"}, "format", ANNOTATION),
        ({"title": "T"}, "title", ANNOTATION),
        ({"default": 1}, "default", ANNOTATION),
        ({"x-mine": 1}, "x-mine", ANNOTATION),
        ({"uniqueItems": True}, "uniqueItems", RECORDED),
        ({"uniqueItems": False}, "uniqueItems", MASKED),
        ({"minProperties": 1}, "minProperties", RECORDED),
        ({"minProperties": 1, "required": ["a"]}, "minProperties", MASKED),
        (
            {"minProperties": 1, "properties": {"a": True}, "additionalProperties": False},
            "minProperties",
            MASKED,
        ),
        ({"maxProperties": 1}, "maxProperties", MASKED),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "$ref", REFERENCE),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "$defs", REFERENCE),
        ({"$id": "https://example.com/x", "type": "null"}, "$id", REFERENCE),
        ({"id": "https://example.com/x", "type": "null"}, "id", ANNOTATION),
        ({"$anchor": "x", "type": "null"}, "$anchor", REFERENCE),
        ({"dependencies": {"a": ["b"]}}, "dependencies", MASKED),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired", MASKED),
        ({"then": False}, "then", ANNOTATION),
        ({"if": True, "then": {"type": "null"}}, "then", MASKED),
        ({"minContains": 2}, "minContains", ANNOTATION),
        ({"contains": {"type": "null"}, "minContains": 2}, "minContains", MASKED),
        ({"additionalItems": False}, "additionalItems", ANNOTATION),
        ({"items": [{"type": "null"}], "additionalItems": False}, "additionalItems", MASKED),
        ({"if": {"type": "null"}}, "if", ANNOTATION),
        ({"if": {"type": "null"}, "else": True}, "if", MASKED),
        ({"type": "string", "minimum": 3}, "minimum", ANNOTATION),
        ({"type": ["string", "integer"], "minimum": 3}, "minimum", MASKED),
        ({"type": "array", "required": ["a"]}, "required", ANNOTATION),
        ({"type": "object", "uniqueItems": True}, "uniqueItems", ANNOTATION),
        ({"type": "integer", "format": "email"}, "format", ANNOTATION),
        ({"type": "null", "enum": [None]}, "enum", MASKED),
        ({"nullable": True}, "nullable", ANNOTATION),
    ],
)
def test_how_a_keyword_is_kept(schema: Any, keyword: str, expected: str) -> None:
    assert how(schema, keyword)[0] == expected


@pytest.mark.parametrize(
    ("dialect", "schema", "keyword", "expected"),
    [
        ("draft4", {"const": 1}, "const", ANNOTATION),
        ("draft6", {"const": 1}, "const", MASKED),
        ("draft4", {"id": "https://example.com/x", "type": "null"}, "id", REFERENCE),
        ("draft4", {"$id": "https://example.com/x", "type": "null"}, "$id", ANNOTATION),
        ("draft4", {"exclusiveMinimum": True}, "exclusiveMinimum", ANNOTATION),
        ("draft4", {"minimum": 1, "exclusiveMinimum": True}, "exclusiveMinimum", MASKED),
        ("draft6", {"if": True, "then": False}, "then", ANNOTATION),
        ("draft7", {"dependencies": {"a": ["b"]}}, "dependencies", MASKED),
        ("draft7", {"dependentRequired": {"a": ["b"]}}, "dependentRequired", ANNOTATION),
        ("draft7", {"$anchor": "x", "type": "null"}, "$anchor", ANNOTATION),
        ("draft7", {"items": True, "additionalItems": False}, "additionalItems", ANNOTATION),
        ("draft7", {"items": [True], "additionalItems": False}, "additionalItems", MASKED),
        ("draft2019-09", {"prefixItems": [{"type": "null"}]}, "prefixItems", ANNOTATION),
        ("draft2019-09", {"$recursiveAnchor": True}, "$recursiveAnchor", REFERENCE),
        ("draft2020-12", {"$recursiveAnchor": True}, "$recursiveAnchor", ANNOTATION),
    ],
)
def test_drafts_differ(dialect: str, schema: Any, keyword: str, expected: str) -> None:
    assert how(schema, keyword, dialect=dialect)[0] == expected


def test_siblings_of_ref_before_2019() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/definitions/n", "maximum": 3}},
        "definitions": {"n": {"type": "integer"}},
    }
    note = "draft7 ignores all keywords next to $ref"
    assert how(schema, "maximum", "$.properties.a", dialect="draft7") == (ANNOTATION, note)
    assert how(schema, "maximum", "$.properties.a", dialect="draft2019-09") == (MASKED, "")
    assert how(schema, "type", "$.definitions.n", dialect="draft7")[0] == MASKED


def test_why_a_keyword_asserts_nothing() -> None:
    for schema, keyword, note in (
        ({"type": "string", "minimum": 3}, "minimum", "it applies only to numbers, which the type"),
        ({"nullable": True}, "nullable", "to allow null, add it to type"),
        ({"discriminator": {"propertyName": "a"}}, "discriminator", "OpenAPI only"),
        ({"id": "x"}, "id", "in draft2020-12, the keyword is $id"),
        ({"if": {"type": "null"}}, "if", "there is no then or else next to it"),
    ):
        said = how(schema, keyword)
        assert said[0] == ANNOTATION
        assert note in said[1]
    assert how({"$id": "x"}, "$id", dialect="draft4") == (
        ANNOTATION,
        "in draft4, the keyword is id",
    )


def test_what_is_said_is_what_is_done() -> None:
    """Where a row says annotation, the keyword may be broken; where it says masked, it may not."""
    for options, schema, broken in (
        ({}, {"type": "string", "format": "date"}, b'"x"'),
        ({"format_assertion": False}, {"type": "string", "format": "date"}, b'"x"'),
        ({"dialect": "draft4"}, {"type": "integer", "const": 1}, b"2"),
        ({"dialect": "draft6"}, {"type": "integer", "const": 1}, b"2"),
        ({}, {"type": "array", "additionalItems": False}, b"[1]"),
        ({}, {"type": "array", "uniqueItems": True}, b"[1,1]"),
    ):
        constraint = structgen.compile(JsonSchema(schema), BYTES, **options)
        (row,) = [row for row in constraint.explain().rows if row.keyword != "type"]
        cursor = constraint.start()
        try:
            for byte in broken:
                cursor.accept(byte)
            allowed = cursor.is_accepting
        except structgen.errors.TokenNotAllowed:
            allowed = False
        assert allowed == (row.how == ANNOTATION), (row, broken)


def test_syntax_of_older_drafts_is_told() -> None:
    for schema, keyword, note in (
        ({"items": [{}]}, "items", "an array, as in drafts up to 2019-09"),
        ({"minimum": 1, "exclusiveMinimum": True}, "exclusiveMinimum", "a boolean, as in draft 4"),
        ({"dependencies": {}}, "dependencies", "from drafts up to 7, also accepted in later ones"),
    ):
        assert how(schema, keyword) == (MASKED, note)
        assert how(schema, keyword, dialect="draft4") == (MASKED, "")


def test_unknown_keywords_are_guessed_at() -> None:
    assert "did you mean minLength?" in how({"minLenght": 3}, "minLenght")[1]
    assert "did you mean" not in how({"x-mine": 3}, "x-mine")[1]


def test_format_assertion_off() -> None:
    expected = (ANNOTATION, "format_assertion=False")
    assert how({"format": "date"}, "format", format_assertion=False) == expected


def test_a_metaschema_without_validation() -> None:
    base = "https://json-schema.org/draft/2020-12/"
    metaschema = {
        "$schema": base + "schema",
        "$vocabulary": {base + "vocab/core": True, base + "vocab/applicator": True},
    }
    schema = {"$schema": "https://example.com/meta", "minimum": 3}
    how_, note = how(schema, "minimum", documents={"https://example.com/meta": metaschema})
    assert how_ == ANNOTATION
    assert "vocabulary" in note


def test_other_documents_have_rows() -> None:
    url = "https://example.com/city"
    rows = explained(
        JsonSchema({"$ref": url}), documents={url: {"type": "string", "maxLength": 3}}
    ).rows
    assert [(row.path, row.keyword) for row in rows] == [
        ("$", "$ref"),
        (f"{url}#", "type"),
        (f"{url}#", "maxLength"),
    ]


def test_schemas_that_nothing_reaches_have_no_rows() -> None:
    rows = explained(JsonSchema({"type": "null", "$defs": {"unused": {"minimum": 1}}})).rows
    assert [row.keyword for row in rows] == ["type", "$defs"]


def test_rows_follow_the_schema() -> None:
    schema = {
        "properties": {"b": {"type": "null"}, "a": {"items": {"type": "null"}, "minItems": 1}},
        "required": ["b"],
    }
    assert [(row.path, row.keyword) for row in explained(JsonSchema(schema)).rows] == [
        ("$", "properties"),
        ("$", "required"),
        ("$.properties.b", "type"),
        ("$.properties.a", "items"),
        ("$.properties.a", "minItems"),
        ("$.properties.a.items", "type"),
    ]


def test_other_output_types_have_one_row() -> None:
    for output_type, keyword in ((Regex("a+"), "pattern"), (Choice(["a", "b"]), "choice")):
        explanation = explained(output_type)
        assert [(row.path, row.keyword, row.how) for row in explanation.rows] == [
            ("$", keyword, MASKED)
        ]
        assert explanation.limits == ()
    (row,) = explained(JsonSchema(True)).rows
    assert (row.keyword, row.how) == ("true", MASKED)


def test_keywords_of_our_own_are_called_what_users_wrote() -> None:
    class Order(BaseModel):
        code: Annotated[str, Regex("[A-Z]{3}")]
        count: int | float

    rows = {(row.path, row.keyword): row for row in explained(Order).rows}
    assert rows["$.properties.code", "pattern"].how == MASKED
    assert rows["$.properties.count.anyOf[0]", "type"].note == "digits only"
    assert not any("structgen" in keyword for _, keyword in rows)


def test_either_explains_its_parts() -> None:
    parts = (ir.Json({"type": "integer"}, {"max_digits": 3}), ir.Choice(("a", "b")))
    explanation = explain(ir.Either(parts), {"whitespace": "flexible"})
    assert [row.keyword for row in explanation.rows] == ["type", "choice"]
    assert "at most 3 digits" in str(explanation)


def test_limits_follow_the_options() -> None:
    integer = JsonSchema({"type": "integer"})
    told = {limit.option for limit in explained(integer).limits}
    assert told == {"whitespace", "property_order", "spelling", "max_digits", "max_depth", ""}
    free = explained(
        integer,
        whitespace="flexible",
        property_order="any",
        spelling="any",
        ensure_ascii=True,
        max_digits=7,
        max_depth=None,
    )
    told = {limit.option for limit in free.limits}
    assert told == {"max_whitespace", "ensure_ascii", "max_digits", ""}
    assert "at most 7 digits" in str(free)
    assert "within the range of 64-bit floats" in str(free)


@pytest.mark.parametrize("max_depth", [None, 200, 128, 64, 3])
def test_the_depth_that_is_told_is_the_depth_that_is_kept(max_depth: int | None) -> None:
    nested: dict[str, Any] = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    for schema in (nested, {**nested, "uniqueItems": True}):
        constraint = structgen.compile(JsonSchema(schema), BYTES, max_depth=max_depth)
        told = [
            limit
            for limit in constraint.explain().limits
            if "levels of objects and arrays" in limit.text
        ]
        depth = int(told[0].text.split()[2]) if told else 201
        for levels in (depth, depth + 1):
            cursor = constraint.start()
            try:
                for byte in b"[" * levels + b"]" * levels:
                    cursor.accept(byte)
                kept = cursor.is_accepting
            except structgen.errors.TokenNotAllowed:
                kept = False
            assert kept == (levels <= depth or not told)
        assert told or (max_depth is None and "uniqueItems" not in schema)
        assert [limit.option for limit in told] == (
            ["" if depth != max_depth else "max_depth"] if told else []
        )


def test_prints_as_a_table() -> None:
    text = str(explained(JsonSchema({"type": "array", "uniqueItems": True, "title": "T"})))
    lines = text.splitlines()
    assert lines[0].split() == ["path", "keyword", "how", "note"]
    assert lines[2].split() == ["$", "type", "masked"]
    column = lines[0].index("how")
    assert lines[3][column:].startswith("masked, by recording  ")
    assert lines[4][column:] == "annotation"
    assert all(line == line.rstrip() for line in lines)


def test_notebooks_show_a_table() -> None:
    constraint = structgen.compile(JsonSchema({"enum": ["a<b"], "title": "T"}), BYTES)
    shown = constraint._repr_html_()
    assert shown == constraint.explain()._repr_html_()
    bare = re.sub(' style="[^"]*"', "", shown)
    assert "<tr><th>path</th><th>keyword</th><th>how</th><th>note</th></tr>" in bare
    assert "<td>$</td><td>enum</td><td>masked</td>" in bare
    assert "a<b" not in shown


# -- nothing is left out ----------------------------------------------------------------------

# Keywords whose value is a schema, a list of schemas, or schemas by name: written down again here,
# with each draft's own, to check the reader's walk by another one.
ONE = {
    "additionalProperties": 4,
    "additionalItems": 4,
    "items": 4,
    "not": 4,
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "then": 7,
    "else": 7,
    "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
}
LIST = {"allOf": 4, "anyOf": 4, "oneOf": 4, "items": 4, "prefixItems": 2020}
NAMED = {"properties": 4, "patternProperties": 4, "dependencies": 4, "dependentSchemas": 2019}
YEARS = {"draft4": 4, "draft6": 6, "draft7": 7, "draft2019-09": 2019, "draft2020-12": 2020}


def inline(schema: Any, year: int, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all keywords reached without following references."""
    if not isinstance(schema, Mapping):
        return
    alone = year <= 7 and "$ref" in schema
    for keyword, value in schema.items():
        yield (*path, keyword)
        if alone:
            continue
        if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
            continue
        if keyword in ("then", "else") and "if" not in schema:
            continue
        if ONE.get(keyword, 9999) <= year:
            yield from inline(value, year, (*path, keyword))
        if LIST.get(keyword, 9999) <= year and isinstance(value, list):
            for i, item in enumerate(value):
                yield from inline(item, year, (*path, keyword, i))
        if NAMED.get(keyword, 9999) <= year and isinstance(value, Mapping):
            for name, item in value.items():
                yield from inline(item, year, (*path, keyword, name))


def spelled(path: tuple[Any, ...]) -> str:
    """A path as rows have it, written without the package's own function."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.lstrip("$").isidentifier() and step.count("$") <= 1:
            text += f".{step}"
        else:
            text += '["' + step.replace("\\", "\\\\").replace('"', '\\"') + '"]'
    return text


def check_complete(schema: Any, draft: str, **options: Any) -> None:
    grammar = ir.Json(schema)
    rows = explain(grammar, {"dialect": draft, **options}).rows
    count = Counter((row.path, row.keyword) for row in rows)
    assert all(n == 1 for n in count.values()), count.most_common(3)
    assert {row.how for row in rows} <= {MASKED, RECORDED, ANNOTATION, REFERENCE}
    if isinstance(schema, bool):
        return
    missing = [
        path for path in inline(schema, YEARS[draft]) if (spelled(path[:-1]), path[-1]) not in count
    ]
    assert not missing, (schema, missing)


SAMPLES: list[tuple[str, Any]] = [
    ("draft2020-12", True),
    ("draft2020-12", {}),
    (
        "draft2020-12",
        {
            "$id": "https://example.com/tree",
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {
                "data": True,
                "a b": {"allOf": [{"type": "array"}, {"prefixItems": [{"const": 1}]}]},
                'q"\\': {"not": {"enum": [1]}},
                "children": {"type": "array", "items": {"$dynamicRef": "#node"}},
            },
            "patternProperties": {"^x-": {"if": {"type": "null"}, "then": False, "else": {}}},
            "dependentSchemas": {"data": {"required": ["children"]}},
            "unevaluatedProperties": {"anyOf": [{"type": "string"}, {"minimum": 3}]},
            "propertyNames": {"maxLength": 20, "description": "short"},
            "x-vendor": {"type": "not a schema"},
        },
    ),
    (
        "draft2019-09",
        {
            "$recursiveAnchor": True,
            "items": [{"minimum": 1}, {"$recursiveRef": "#"}],
            "additionalItems": {"contains": {"type": "null"}, "minContains": 0},
            "unevaluatedItems": {"type": "null"},
        },
    ),
    (
        "draft7",
        {
            "properties": {"a": {"$ref": "#/definitions/b", "not": {"minimum": 3}}},
            "definitions": {"b": {"items": {"$ref": "#"}, "format": "date"}},
            "dependencies": {"a": ["b"], "b": {"minProperties": 3}},
            "else": {"type": "null"},
        },
    ),
    ("draft4", {"id": "http://x.example/", "minimum": 1, "exclusiveMinimum": True, "const": 3}),
]


@pytest.mark.parametrize(("draft", "schema"), SAMPLES)
def test_every_keyword_has_one_row(draft: str, schema: Any) -> None:
    check_complete(schema, draft)


@corpora.both
def test_every_keyword_of_a_corpus_has_one_row(corpus: str) -> None:
    documents = corpora.documents(corpus)
    seen = 0
    for group in corpora.groups(corpus):
        stated = group["schema"].get("$schema") if isinstance(group["schema"], dict) else None
        if isinstance(stated, str) and "json-schema.org" not in stated:
            continue  # a metaschema of its own has keywords of its own
        try:
            check_complete(group["schema"], group["draft"], documents=documents)
        except structgen.errors.SchemaError:
            continue  # refused at compile: there is no constraint to explain
        seen += 1
    assert seen > {"sample": 100, "suite": 1500}[corpus]


def test_an_unknown_dialect_is_told() -> None:
    old = {"$schema": "http://json-schema.org/draft-03/schema#", "minimum": 3}
    with pytest.raises(structgen.errors.SchemaError, match="is not a supported draft"):
        explained(JsonSchema(old))
    unknown = (REFERENCE, "an unknown draft; read as draft4")
    assert how(old, "$schema", dialect="draft4") == unknown
    latest = {"$schema": "http://json-schema.org/schema#", "minimum": 3}
    assert how(latest, "$schema") == (REFERENCE, "the latest draft; read as draft2020-12")
    assert how({"$schema": "http://json-schema.org/draft-04/schema"}, "$schema")[1] == (
        "sets the dialect"
    )
