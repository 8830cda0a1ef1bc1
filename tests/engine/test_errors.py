"""What is wrong with a schema is said at compile: where, which keyword, what was found."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from annotated_types import Interval

import structgen
from engine.walks import TINY, accepts
from structgen import JsonSchema, OptionError, Regex, UnsupportedFeature
from structgen.errors import CompileLimitExceeded, PatternError, SchemaError, Unsatisfiable


def compile_schema(schema: Any, **options: Any) -> structgen.Constraint:
    return structgen.compile(JsonSchema(schema), TINY, **options)


def nested(keyword: str, value: Any) -> dict[str, Any]:
    return {"properties": {"a b": {"items": {keyword: value}}}}


PLACE = '$.properties["a b"].items'


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("type", "strin"),
        ("type", 5),
        ("type", ["string", "text"]),
        ("type", None),
        ("type", []),
        ("enum", "a"),
        ("enum", {"a": 1}),
        ("minimum", "1"),
        ("maximum", True),
        ("exclusiveMaximum", None),
        ("multipleOf", 0),
        ("multipleOf", -2),
        ("multipleOf", "2"),
        ("minLength", -1),
        ("minLength", 1.5),
        ("maxLength", "3"),
        ("minItems", True),
        ("maxItems", -1),
        ("minProperties", None),
        ("maxProperties", []),
        ("pattern", 3),
        ("pattern", "(a"),
        ("pattern", "[z-a]"),
        ("pattern", "a{2,1}"),
        ("properties", ["a"]),
        ("properties", {"x": 3}),
        ("patternProperties", {"(": True}),
        ("patternProperties", []),
        ("required", "a"),
        ("required", [1]),
        ("items", "string"),
        ("items", 7),
        ("prefixItems", {}),
        ("prefixItems", []),
        ("additionalProperties", "no"),
        ("propertyNames", []),
        ("allOf", {}),
        ("allOf", []),
        ("anyOf", []),
        ("anyOf", [3]),
        ("$ref", 1),
        ("$ref", "#/$defs/missing"),
        ("$ref", "#missing"),
        ("$ref", "other.json"),
        ("$dynamicRef", "#missing"),
        ("$dynamicRef", 1),
        ("$schema", 3),
        ("$id", None),
        ("$anchor", {}),
        ("type", "any"),
        ("required", True),
        ("required", {}),
        ("enum", None),
        ("pattern", "a**"),
        ("pattern", "\\p{Foo}"),
        ("items", [{}, 3]),
        ("additionalItems", 3),
        ("uniqueItems", "yes"),
        ("uniqueItems", 1),
        ("contains", []),
        ("minContains", -1),
        ("maxContains", "a"),
        ("oneOf", None),
        ("oneOf", ["string"]),
        ("not", []),
        ("if", 3),
        ("dependentRequired", []),
        ("dependentRequired", {"a": "b"}),
        ("dependentRequired", {"a": ["b", 2]}),
        ("dependentSchemas", {"a": ["b"]}),
        ("unevaluatedProperties", "no"),
        ("unevaluatedItems", []),
        ("format", 3),
    ],
)
def test_a_malformed_keyword_is_named_with_its_place(keyword: str, value: Any) -> None:
    schema = nested(keyword, value)
    beside = {
        "minContains": ("contains", {}),
        "maxContains": ("contains", {}),
        "additionalItems": ("items", [{}]),
    }.get(keyword)
    if beside is not None:
        schema["properties"]["a b"]["items"][beside[0]] = beside[1]
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)
    error = caught.value
    assert not isinstance(error, UnsupportedFeature)
    assert error.path.startswith(PLACE)
    assert PLACE in str(error)
    assert error.keyword == keyword
    assert keyword in str(error)


@pytest.mark.parametrize("schema", [None, 3, "[1]", [], ["a"], '"a"'])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(structgen.OutputTypeError):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "String"}, "Did you mean 'string'"),
        ({"type": "int"}, "Did you mean 'integer'"),
        ({"type": "dict"}, "Did you mean 'object'"),
        ({"type": "any"}, "Remove 'type'"),
        ({"properties": {"a": "string"}}, 'Did you mean {"type": "string"}'),
        ({"additionalProperties": "false"}, "Did you mean false, without quotes"),
        ({"properties": {"a": {"required": True}}}, "listed next to 'properties'"),
        ({"$ref": "#/$defs/nmae", "$defs": {"name": {}}}, "Did you mean 'name'"),
        ({"$ref": "https://example.com/a"}, "documents="),
        ({"$ref": "#/definitions/a b", "$defs": {"a b": {}}}, "Did you mean '#/$defs/a b'?"),
        ({"$ref": "#/$defs/x", "definitions": {"x": {}}}, "Did you mean '#/definitions/x'?"),
        ({"$ref": "#/components/schemas/a~1b", "$defs": {"a/b": {}}}, "'#/$defs/a~1b'?"),
        ({"$ref": "#/$defs/q", "$defs": {"abc": {}, "def": {}}}, "Known: 'abc', 'def'."),
        ({"$ref": "#/$defs/q"}, "there is no '$defs' in $."),
        ({"$ref": "#q", "$defs": {"a": {"$id": "#q"}}}, 'Write "$anchor": "q", or have'),
        ({"$ref": "#q", "$defs": {"a": {"id": "#q"}}}, 'dialect="draft4"'),
        ({"$ref": "#nmae", "$defs": {"a": {"$anchor": "name"}}}, "Did you mean 'name'?"),
        ({"dependentRequired": {"a": "b"}}, 'Did you mean ["b"]?'),
        ({"dependentRequired": {"a": {"type": "null"}}}, "Put a schema into dependentSchemas"),
        ({"dependentSchemas": {"a": ["b"]}}, "Put an array of names into dependentRequired"),
    ],
)
def test_what_to_do_is_said(schema: Any, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)
    assert hint in str(caught.value)


def test_a_misspelt_type_gets_a_hint() -> None:
    with pytest.raises(SchemaError, match="Did you mean 'integer'"):
        compile_schema({"type": "interger"})


def test_a_misspelt_reference_gets_a_hint() -> None:
    with pytest.raises(SchemaError, match="Did you mean 'address'"):
        compile_schema({"$ref": "#/$defs/adress", "$defs": {"address": {}}})


def test_a_remote_reference_is_refused_not_fetched() -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema({"items": {"$ref": "https://example.com/schema.json"}})
    assert caught.value.path == "$.items.$ref"
    assert caught.value.keyword == "$ref"


def test_references_resolve_as_pointers_do() -> None:
    definitions = {
        "a/b": {"const": 1},
        "c~d": {"const": 2},
        "e f": {"const": 3},
        "l": {"x-list": [{"const": 4}]},
    }
    for pointer, want in [("a~1b", "1"), ("c~0d", "2"), ("e%20f", "3"), ("l/x-list/0", "4")]:
        schema = {"$ref": f"#/$defs/{pointer}", "$defs": definitions}
        cursor = compile_schema(schema).start()
        cursor.accept(TINY.tokens.index(want.encode()))
        assert cursor.is_accepting


DRAFT4, DRAFT7 = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
)
DRAFT2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "dialect", "keyword", "other"),
    [
        ({"items": [{"type": "null"}]}, "draft2020-12", "items", "draft2019-09"),
        ({"$schema": DRAFT2020, "items": [{}]}, None, "items", "draft2019-09"),
        ({"minimum": 3, "exclusiveMinimum": True}, "draft7", "exclusiveMinimum", "draft4"),
        ({"maximum": 3, "exclusiveMaximum": True}, "draft2020-12", "exclusiveMaximum", "draft4"),
        ({"$schema": DRAFT7, "exclusiveMaximum": False}, None, "exclusiveMaximum", "draft4"),
        ({"exclusiveMinimum": 3}, "draft4", "exclusiveMinimum", "draft7"),
        ({"$schema": DRAFT4, "exclusiveMaximum": 3}, None, "exclusiveMaximum", "draft7"),
    ],
)
def test_syntax_of_another_draft_is_named(
    schema: Any, dialect: str | None, keyword: str, other: str
) -> None:
    own = {"id": "https://a.example/", "$id": "https://a.example/"}
    with pytest.raises(SchemaError) as caught:
        compile_schema({"properties": {"a": {**own, **schema}}}, dialect=dialect)
    error = caught.value
    assert (error.path, error.keyword) == (f"$.properties.a.{keyword}", keyword)
    for part in (f"as {other} has it", f'dialect="{other}"', '"$schema": "', error.path):
        assert part in str(error)
    compile_schema({k: v for k, v in schema.items() if k != "$schema"}, dialect=other)


def test_where_no_draft_is_named_each_is_understood() -> None:
    for schema, good, bad in (
        ({"items": [{"type": "null"}], "additionalItems": False}, "[null]", "[null,null]"),
        ({"type": "number", "minimum": 3, "exclusiveMinimum": True}, "4", "3"),
        ({"dependencies": {"a": ["b"]}, "maxProperties": 1}, '{"b":1}', '{"a":1}'),
    ):
        constraint = compile_schema(schema)
        assert accepts(constraint, good, random.Random(1))
        assert not accepts(constraint, bad, random.Random(1))


@pytest.mark.parametrize(
    "uri", ["http://json-schema.org/draft-03/schema#", "https://example.com/mine", ""]
)
def test_a_schema_of_an_unknown_draft_is_refused_until_one_is_chosen(uri: str) -> None:
    for schema, path in (
        ({"$schema": uri, "const": 1}, "$"),
        ({"allOf": [{"$schema": uri, "$id": "https://example.com/a", "const": 1}]}, "$.allOf[0]"),
    ):
        with pytest.raises(SchemaError) as caught:
            compile_schema(schema)
        assert (caught.value.path, caught.value.keyword) == (f"{path}.$schema", "$schema")
        assert 'dialect="draft2020-12"' in str(caught.value)
        assert repr(uri) in str(caught.value)
        assert accepts(compile_schema(schema, dialect="draft7"), "1", random.Random(1))
    compile_schema({"type": "null", "$defs": {"unused": {"type": "null"}}})


def test_other_names_of_known_drafts() -> None:
    whole = {"type": "integer"}
    for uri, is_draft4 in (
        ("http://json-schema.org/schema#", False),
        ("https://json-schema.org/draft-07/schema", False),
        ("http://json-schema.org/draft-05/schema#", True),
    ):
        constraint = compile_schema({"$schema": uri, **whole}, spelling="any")
        assert accepts(constraint, "1.0", random.Random(1)) != is_draft4


def test_a_vocabulary_that_is_required_must_be_known() -> None:
    core = "https://json-schema.org/draft/2020-12/vocab/core"
    mine, meta = "https://example.com/vocab", "https://example.com/meta"
    schema = {"$schema": meta, "type": "null"}
    for is_required in (True, False):
        metaschema = {"$schema": DRAFT2020, "$vocabulary": {core: True, mine: is_required}}
        if is_required:
            with pytest.raises(SchemaError, match="requires the vocabulary") as caught:
                compile_schema(schema, documents={meta: metaschema})
            assert caught.value.path == "$.$schema"
        else:
            compile_schema(schema, documents={meta: metaschema})


# -- identifiers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["$anchor", "$dynamicAnchor"])
@pytest.mark.parametrize("reference", ["#x", "#/$defs/a"])
def test_an_anchor_stands_at_one_place(keyword: str, reference: str) -> None:
    two = {"a": {keyword: "x", "type": "null"}, "b": {"items": {keyword: "x", "type": "string"}}}
    with pytest.raises(SchemaError) as caught:
        compile_schema({"$ref": reference, "$defs": two})
    assert caught.value.path == f"$.$defs.b.items.{keyword}"
    for part in ("'x'", "$.$defs.a ", "$.$defs.b.items"):
        assert part in str(caught.value)
    two["b"]["items"]["$id"] = "https://example.com/b"  # a resource of its own has its own anchors
    assert accepts(compile_schema({"$ref": "#x", "$defs": two}), "null", random.Random(1))


@pytest.mark.parametrize("dialect", ["draft4", "draft7", "draft2020-12"])
def test_a_reference_to_one_of_two_schemas_with_one_identifier(dialect: str) -> None:
    keyword = "id" if dialect == "draft4" else "$id"
    url = "https://example.com/x"
    two = {"a": {keyword: url, "type": "null"}, "b": {keyword: url, "type": "string"}}
    with pytest.raises(SchemaError) as caught:
        compile_schema({"items": {"$ref": url}, "definitions": two}, dialect=dialect)
    assert (caught.value.path, caught.value.keyword) == ("$.items.$ref", "$ref")
    assert "$.definitions.a and $.definitions.b" in str(caught.value)
    # Where no reference has to choose, real schemas repeat them without harm.
    compile_schema({"items": {"$ref": "#/definitions/a"}, "definitions": two}, dialect=dialect)
    two["b"] = dict(two["a"])
    compile_schema({"items": {"$ref": url}, "definitions": two}, dialect=dialect)


@pytest.mark.parametrize("keyword", ["$anchor", "$dynamicAnchor"])
@pytest.mark.parametrize("uri", ["urn:example:a", "tag:example.com,2026:a", "https://a.example/b"])
def test_a_fragment_alone_refers_to_its_own_resource(uri: str, keyword: str) -> None:
    inner = {"$id": uri, "$ref": "#x", "$defs": {"a": {keyword: "x", "type": "integer"}}}
    schema = {"items": inner, "type": "array", "$defs": {"b": {"$anchor": "x", "type": "string"}}}
    constraint = compile_schema(schema)
    assert (constraint.allows("[1]"), constraint.allows('["a"]')) == (True, False)
    assert compile_schema(inner).allows("1")
    old = {"id": uri, "items": {"$ref": "#x"}, "definitions": {"a": {"id": "#x", "type": "null"}}}
    assert compile_schema(old, dialect="draft4").allows("[null]")


def test_two_documents_with_one_identifier() -> None:
    first, second = "https://example.com/1", "https://example.com/2"
    documents = {first: {"$id": second, "type": "null"}, second: {"type": "string"}}
    with pytest.raises(SchemaError) as caught:
        compile_schema({"$ref": second}, documents=documents)
    assert f"{first}#" in str(caught.value)
    assert f"{second}#" in str(caught.value)


# -- definitions that nothing reaches -------------------------------------------------------------


@pytest.mark.parametrize("holder", ["$defs", "definitions"])
@pytest.mark.parametrize(
    ("inner", "path"),
    [
        ({"type": "strin"}, ".type"),
        ({"pattern": "("}, ".pattern"),
        ({"minLength": -1}, ".minLength"),
        ({"properties": {"x": {"items": {"required": "x"}}}}, ".properties.x.items.required"),
        ({"$ref": 3}, ".$ref"),
        ({"definitions": {"b": {"enum": 3}}}, ".definitions.b.enum"),
        ("string", ""),
        (["a"], ""),
    ],
)
def test_definitions_that_nothing_reaches_are_checked(holder: str, inner: Any, path: str) -> None:
    for schema, where in (
        ({"type": "null", holder: {"a": inner}}, "$"),
        ({"properties": {"p": {"type": "null", holder: {"a": inner}}}}, "$.properties.p"),
    ):
        with pytest.raises(SchemaError) as caught:
            compile_schema(schema)
        assert caught.value.path == f"{where}.{holder}.a{path}"


def test_definitions_that_nothing_reaches_need_not_be_enforceable() -> None:
    inner = {"pattern": r"(a)\\1", "items": {"$ref": "#/nowhere"}, "const": "\ud800", "not": {}}
    compile_schema({"type": "null", "$defs": {"a": inner, "b": {"$ref": "https://e.example/"}}})
    with pytest.raises(SchemaError):
        compile_schema({"type": "null", "$defs": {"a": inner, "b": 3}})
    with pytest.raises(SchemaError, match=r"'\$defs' must be an object, at \$\.\$defs;"):
        compile_schema({"type": "null", "$defs": 3})


def test_few_of_many_definitions_that_nothing_reaches_are_checked() -> None:
    many: dict[str, Any] = {f"d{i}": {"items": {"const": i}} for i in range(50_000)}
    constraint = compile_schema({"type": "null", "$defs": {**many, "last": {"type": "strin"}}})
    assert accepts(constraint, "null", random.Random(1))
    with pytest.raises(SchemaError):
        compile_schema({"type": "null", "$defs": {"first": {"type": "strin"}, **many}})


# -- contradictions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"not": {}},
        {"type": "string", "not": {"type": ["string", "null"]}},
        {"oneOf": [{"type": "integer"}, {"type": "number"}], "const": 1},
        {"type": "array", "contains": False},
        {"type": "array", "contains": True, "minContains": 2, "maxItems": 1},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
        {"if": True, "then": False},
        {"enum": []},
        {"type": "string", "enum": [1, None]},
        {"const": 1, "enum": [2]},
        {"const": "a", "pattern": "^b"},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "integer", "multipleOf": 10, "minimum": 11, "maximum": 19},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "minItems": 1, "items": False},
        {"type": "array", "minItems": 2, "prefixItems": [True, False]},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "object", "required": ["abc"], "propertyNames": {"maxLength": 2}},
        {"type": "object", "minProperties": 2, "properties": {"a": {}},
         "additionalProperties": False},
        {"type": "object", "minProperties": 3, "maxProperties": 2, "properties": {"a": {}, "b": {}},
         "additionalProperties": False},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [False, {"type": "null", "enum": [1]}]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "type": "integer"},
        {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {
            "a": {"type": "array", "prefixItems": [{"$ref": "#/$defs/b"}], "minItems": 1},
            "b": {"type": "object", "required": ["x"],
                  "properties": {"x": {"$ref": "#/$defs/a"}}}}},
    ],
)  # fmt: skip
def test_contradictions_are_found_at_compile(schema: Any) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        compile_schema(schema)
    assert caught.value.path.startswith("$")
    assert "$" in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["object", "null"], "required": ["next"], "properties": {"next": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": False}},
        {"type": "array", "items": False},
        {"anyOf": [False, True]},
        {"type": "array", "prefixItems": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    ],
)
def test_what_only_looks_contradictory_compiles(schema: Any) -> None:
    assert compile_schema(schema).start().min_tokens_to_finish() > 0


@pytest.mark.parametrize("pattern", ["a^b", "$a", "(?!)", "(?=a)b", "[^\\s\\S]"])
def test_patterns_that_match_nothing(pattern: str) -> None:
    with pytest.raises(Unsatisfiable):
        structgen.compile(Regex(pattern), TINY)


@pytest.mark.parametrize("pattern", ["(", "[", "a**", "(?P<n", "\\"])
def test_malformed_patterns(pattern: str) -> None:
    with pytest.raises(PatternError):
        structgen.compile(Regex(pattern), TINY)


# -- options and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"white_space": "compact"},
        {"property_order": "random"},
        {"spelling": "all"},
        {"max_whitespace": 0},
        {"max_digits": -1},
        {"max_digits": True},
        {"max_depth": 0},
        {"on_unsupported": "ignore"},
        {"ensure_ascii": "yes"},
        {"format_assertion": 1},
        {"whitespace": None},
        {"dialect": "draft5"},
        {"documents": ["https://example.com/a"]},
        {"documents": {"https://example.com/a": "{}"}},
        {"max_depth": 1001},
        {"max_depth": "3"},
        {"whitespace": "x*"},
        {"whitespace": "a{0}b"},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        compile_schema({}, **options)


@pytest.mark.parametrize("whitespace", ["(", "x*", r"\s*", r"( )\1", "a{0}b", " {3000000}"])
def test_a_wrong_whitespace_names_the_option(whitespace: str) -> None:
    with pytest.raises(OptionError) as caught:
        compile_schema({}, whitespace=whitespace)
    assert str(caught.value).startswith(f"whitespace={whitespace!r} ")


def test_too_long_whitespace_names_the_option() -> None:
    with pytest.raises(OptionError, match="max_whitespace=3000000"):
        compile_schema({}, whitespace="flexible", max_whitespace=3_000_000)


@pytest.mark.parametrize("max_tokens", [float("nan"), 3.5, 7.0, True, "3", [3], np.float64(3)])
def test_a_budget_is_a_whole_number(max_tokens: Any) -> None:
    with pytest.raises(OptionError, match="max_tokens must be an integer"):
        compile_schema({"const": 1}).start(max_tokens=max_tokens)


@pytest.mark.parametrize("max_tokens", [2, np.int64(2), np.uint8(2), None])
def test_a_budget_may_be_of_any_integer_type(max_tokens: Any) -> None:
    cursor = compile_schema({"const": 1}).start(max_tokens=max_tokens)
    cursor.accept(TINY.tokens.index(b"1"))
    assert cursor.is_accepting
    with pytest.raises(structgen.BudgetTooSmall):
        compile_schema({"const": 1}).start(max_tokens=np.int64(-1))


def test_a_misspelt_option_gets_a_hint() -> None:
    with pytest.raises(OptionError, match="Did you mean 'whitespace'"):
        compile_schema({}, whitespce="compact")


def test_too_many_alternatives_are_a_limit_with_figures() -> None:
    schema = {
        "allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(40)]
    }
    with pytest.raises(CompileLimitExceeded) as caught:
        compile_schema(schema)
    assert caught.value.actual > caught.value.limit > 0


def test_deep_and_wide_schemas_compile() -> None:
    chain: dict[str, Any] = {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1000)}}
    chain["$defs"]["d1000"] = {"const": 1}
    chain["$ref"] = "#/$defs/d0"
    assert compile_schema(chain).start().min_tokens_to_finish() == 2
    deep: Any = {"const": 1}
    for _ in range(200):
        deep = {"type": "array", "items": deep, "minItems": 1}
    assert compile_schema(deep, max_depth=None).start().min_tokens_to_finish() <= 402
    with pytest.raises(Unsatisfiable, match="max_depth=64"):
        compile_schema(deep)
    wide = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}}
    assert compile_schema(wide).start().min_tokens_to_finish() == 2


def test_a_reference_to_itself_in_place_ends() -> None:
    # It says nothing at all, or nothing that can be satisfied; it must not hang.
    for schema in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"anyOf": [{"$ref": "#"}]}):
        try:
            compile_schema(schema).start().min_tokens_to_finish()
        except structgen.OutputTypeError:
            continue


# -- what cannot be enforced -----------------------------------------------------------------------

BEYOND: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": r"^(.)x\1$", "maxLength": 4}},
    "patternProperties": {r"^(a)\1": {"type": "null"}, "^b": {"type": "null"}},
    "required": ["id"],
}


def test_what_cannot_be_enforced_is_refused_with_its_place_and_a_fix() -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        compile_schema(BEYOND["properties"]["id"])
    error = caught.value
    assert (error.path, error.keyword) == ("$.pattern", "pattern")
    assert "alternatives" in error.fix
    assert error.fix in str(error)


@pytest.mark.parametrize(
    "schema",
    [
        r'{"const": "\ud800"}',
        r'{"enum": ["a", {"b": ["x\udc00"]}]}',
        r'{"const": {"\ud800": 1}}',
        r'{"required": ["\udc00"]}',
        r'{"properties": {"\udc00": {}}}',
        r'{"dependentRequired": {"\udc00": []}}',
        r'{"dependentSchemas": {"\udc00": {}}}',
    ],
)
def test_half_a_surrogate_pair_is_no_text(schema: str) -> None:
    with pytest.raises(UnsupportedFeature, match="surrogate") as caught:
        compile_schema(schema)
    assert caught.value.path == f"$.{caught.value.keyword}"
    assert compile_schema(r'{"title": "\ud800", "const": "\ud83d\ude00"}').start()


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("pattern", r"(a)\1"),
        ("pattern", r"(?<n>a)\k<n>"),
        ("pattern", "(?i)a"),
        ("pattern", "(?i)ab"),
        ("patternProperties", {"(?i)a": {}}),
        ("const", "\ud800"),
        ("required", ["\ud800"]),
        ("not", {"uniqueItems": True, "maxItems": 3, "contains": {}}),
    ],
)
def test_all_that_is_valid_and_refused(keyword: str, value: Any) -> None:
    """The table in docs/json-schema.md; what needs too much work apart."""
    schema: dict[str, Any] = {keyword: value}
    if keyword == "not":
        schema = {"type": "array", "maxItems": 3, "contains": {}, "not": {"uniqueItems": True}}
    with pytest.raises(UnsupportedFeature) as caught:
        compile_schema({"items": schema})
    assert caught.value.path.startswith("$.items")
    assert caught.value.fix
    with pytest.warns(structgen.errors.UnenforcedWarning):
        compile_schema({"items": schema}, on_unsupported="warn")


def test_or_left_out_with_a_warning() -> None:
    with pytest.warns(structgen.errors.UnenforcedWarning) as caught:
        constraint = compile_schema(BEYOND, on_unsupported="warn")
    assert len(caught) == 2
    assert all(Path(warning.filename) == Path(__file__) for warning in caught)
    told = {
        (row.path, row.keyword): row.note
        for row in constraint.explain().rows
        if row.how == "not enforced"
    }
    assert set(told) == {("$", "patternProperties"), ("$.properties.id", "pattern")}
    assert all("backreference" in note and "\n" not in note for note in told.values())
    rng = random.Random(1)
    assert accepts(constraint, '{"id":"abcd"}', rng)  # what else stands there is kept
    assert not accepts(constraint, '{"id":"abcde"}', rng)
    assert not accepts(constraint, '{"id":"abc","b":1}', rng)
    assert accepts(constraint, '{"id":"abc","aa":1}', rng)


def test_a_warning_does_not_cover_what_is_wrong() -> None:
    for schema in ({"pattern": "("}, {"type": "strin"}, {"$ref": "#/$defs/a"}):
        with pytest.raises(SchemaError):
            compile_schema(schema, on_unsupported="warn")


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        (
            {"type": "object", "required": ["a"], "properties": {
                "a": {"type": "array", "minItems": 1, "items": {
                    "type": "integer", "minimum": 5, "maximum": 4}}}},
            "$.properties.a.items",
            "no value satisfies all of type integer, minimum 5, maximum 4",
        ),
        (
            {"$ref": "#/$defs/n", "$defs": {
                "n": {"type": "string", "minLength": 3, "maxLength": 2}}},
            "$.$defs.n",
            "no value satisfies all of type string, minLength 3, maxLength 2",
        ),
        (
            {"type": "object", "required": ["a"], "additionalProperties": False},
            "$",
            "'a' is required, but not allowed",
        ),
        (
            {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#"}}},
            "$.properties.n:",
            "without end",
        ),
        (
            {"type": "object", "required": ["a"], "additionalProperties": False,
             "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"], "b": ["c"]}},
            "$",
            "additionalProperties, properties, dependentRequired",
        ),
        (
            {"type": "object", "required": ["b"],
             "properties": {"b": {"type": "string", "maxLength": -0, "minLength": 1}}},
            "$.properties.b",
            "maxLength 0, minLength 1",
        ),
        (
            {"properties": {"a": {"const": 1, "type": "string"}}, "required": ["a"],
             "type": "object"},
            "$.properties.a",
            "const",
        ),
    ],
)  # fmt: skip
def test_a_contradiction_is_found_where_it_is(schema: Any, path: str, reason: str) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        compile_schema(schema)
    assert caught.value.path.startswith(path.rstrip(":"))
    assert path in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), [(int, "integer"), (float, "number")])
def test_a_contradiction_in_a_class_names_its_type(kind: type, name: str) -> None:
    with pytest.raises(Unsatisfiable, match=rf"satisfies all of type {name}, m"):
        structgen.compile(Annotated[kind, Interval(ge=5, le=3)], TINY)


def test_a_pattern_that_needs_too_much_is_told_at_compile() -> None:
    source = "^(?=.*a.{12}x)(?=.*b.{12}x)(?=.*c.{12}x)(?=.*d.{12}x).*$"
    with pytest.raises(CompileLimitExceeded):
        structgen.compile(Regex(source), TINY)
    with pytest.raises(CompileLimitExceeded) as caught:  # though nothing requires the property
        compile_schema({"properties": {"a": {"type": "string", "pattern": source}}})
    assert caught.value.path == "$.properties.a.pattern"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**9},
        {"type": "string", "format": "idn-hostname", "minLength": 60},
        {"type": "string", "format": "idn-email", "minLength": 60},
        {"enum": [[i] for i in range(1000)]},
        {"type": "number", "allOf": [{"not": {"multipleOf": p}} for p in range(101, 200, 2)]},
        {"type": "string", "pattern": "a" * 200_000},
        {"allOf": [{"anyOf": [{"minimum": i}, {"multipleOf": i + 2}]} for i in range(30)]},
    ],
    ids=lambda s: str(s)[:40],
)
def test_a_limit_names_its_place(schema: Any) -> None:
    outer = {"type": "object", "required": ["here"], "properties": {"here": schema}}
    with pytest.raises(CompileLimitExceeded) as caught:
        compile_schema(outer)
    error = caught.value
    assert error.actual > error.limit > 0
    assert error.path is not None
    assert error.path.startswith("$.properties.here")
    assert "$.properties.here" in str(error)


@pytest.mark.parametrize("bounds", [{"items": {"type": "integer"}}, {"maxItems": 3}])
def test_unique_arrays_of_what_repeats_are_refused_at_compile(bounds: dict[str, Any]) -> None:
    # Only once two items have been written does the third owe too much at once.
    repeats = {"type": "array", "not": {"uniqueItems": True}, **bounds}
    for items in (repeats, {"type": "object", "properties": {"a": repeats}, "required": ["a"]}):
        with pytest.raises(UnsupportedFeature, match="'not' with 'uniqueItems', 'contains'"):
            compile_schema({"type": "array", "uniqueItems": True, "items": items})
    assert compile_schema({"type": "array", "items": repeats})
