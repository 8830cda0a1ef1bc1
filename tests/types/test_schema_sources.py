"""Where a JSON Schema may come from: a dict, a file, GenSON, an OpenAPI document."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import genson
import jsonschema
import pytest
import yaml
from byte_walks import BYTES, walk

import structgen
from structgen import JsonSchema
from structgen.errors import OptionError, OutputTypeError, SchemaError
from structgen.types import lower


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": ["string", "null"], "x-note": 1},
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"enum": [1, 2]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    ],
)
def test_a_dict_that_plainly_is_a_schema(schema: dict[str, Any]) -> None:
    assert lower(schema).grammar == lower(JsonSchema(schema)).grammar


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": "string", "name": "string"},
        {"type": int},
        {"type": "person"},
        {"name": {"type": "string"}},
        {"title": "x", "description": "y"},
        {"properties": {"a": int}},
        {"enum": "ab"},
        {1: {"type": "string"}},
    ],
)
def test_any_other_dict_is_refused(value: dict[Any, Any]) -> None:
    with pytest.raises(OutputTypeError, match="This dict is ambiguous"):
        lower(value)


@pytest.mark.parametrize(
    ("schema", "got"),
    [
        ({"type": "objekt"}, r"at \$\.type; got .objekt.\. Did you mean .object.\?$"),
        ({"type": "Object", "properties": {}}, r"got .Object.\. Did you mean .object.\?$"),
        ({"type": ["str", "null"]}, r"at \$\.type\[0\]; got .str.\. Did you mean .string.\?$"),
    ],
)
def test_a_misspelt_type_is_told(schema: dict[str, Any], got: str) -> None:
    with pytest.raises(SchemaError, match=f"^'type' must be one of .*{got}"):
        structgen.compile(schema, BYTES)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('\ufeff{"type":"integer","maximum":7}', encoding="utf-8")
    for given in (path, str(path)):
        assert JsonSchema(given) == JsonSchema({"type": "integer", "maximum": 7})
    with pytest.raises(
        SchemaError, match=r"^Cannot read the file missing\.json: No such file or directory\.$"
    ):
        JsonSchema("missing.json")
    with pytest.raises(OutputTypeError, match="is a file path, not a type"):
        lower(path)


def test_a_builder_of_genson() -> None:
    builder = genson.SchemaBuilder()
    builder.add_object({"name": "a", "size": 1})
    builder.add_object({"name": "b", "tags": ["x"]})
    constraint = structgen.compile(builder, BYTES)
    assert constraint.allows('{"name":"c","tags":[]}')
    assert not constraint.allows('{"size":1}')
    assert lower(builder).parse('{"name":"c"}') == {"name": "c"}


PETS: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/pets": {
            "post": {
                "operationId": "createPet",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                "responses": {
                    "201": {"content": {"application/json": {"schema": {"type": "integer"}}}},
                    "4XX": {"content": {"application/problem+json": {"schema": {"const": "no"}}}},
                },
            },
            "get": {
                "operationId": "listPets",
                "responses": {
                    "200": {
                        "content": {
                            "text/csv": {"schema": {"type": "string"}},
                            "application/json": {
                                "schema": {
                                    "type": "array",
                                    "items": {"$ref": "#/components/schemas/Pet"},
                                }
                            },
                        }
                    }
                },
            },
        },
        "/pets/{id}": {"delete": {"responses": {"204": {"description": "gone"}}}},
    },
    "components": {
        "requestBodies": {
            "Pet": {
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "format": "int32", "readOnly": True},
                    "name": {"$ref": "#/components/schemas/a~1b"},
                    "parents": {
                        "type": "array",
                        "maxItems": 2,
                        "items": {"$ref": "#/components/schemas/Pet"},
                    },
                },
                "required": ["id", "name"],
                "additionalProperties": False,
            },
            "a/b": {"type": "string", "maxLength": 5},
            "Unused": {"type": "nonsense"},
        },
    },
}


def allowed(schema: JsonSchema, text: str) -> bool:
    return structgen.compile(schema, BYTES).allows(text)


def test_bodies_of_openapi_3_1() -> None:
    request = JsonSchema.from_openapi(PETS, "createPet")
    assert allowed(request, '{"name":"Rex","parents":[{"name":"Max"}]}')
    assert not allowed(request, '{"name":"Rexxar"}')
    assert not allowed(request, '{"id":3000000000,"name":"Rex"}')
    assert JsonSchema.from_openapi(PETS, "POST /pets") == request
    assert JsonSchema.from_openapi(json.dumps(PETS), "post /pets") == request
    listed = JsonSchema.from_openapi(PETS, "listPets", part="response")
    assert allowed(listed, '[{"id":1,"name":"Rex"}]')
    assert not allowed(listed, '[{"name":"Rex"}]'), "it is required of a response"
    assert JsonSchema.from_openapi(PETS, "createPet", part="response").schema == {"type": "integer"}
    problem = JsonSchema.from_openapi(PETS, "createPet", part="response", status=404)
    assert problem.schema == {"const": "no"}
    csv = JsonSchema.from_openapi(PETS, "listPets", part="response", media_type="text/csv")
    assert csv.schema == {"type": "string"}
    for seed in range(8):
        text = walk(structgen.compile(listed, BYTES), seed, 60)
        jsonschema.validate(json.loads(text), listed.schema)


def test_bodies_of_openapi_3_0() -> None:
    document = {
        "openapi": "3.0.3",
        "paths": {
            "/a": {
                "put": {
                    "requestBody": {
                        "content": {
                            "application/json; charset=utf-8": {
                                "schema": {
                                    "type": "object",
                                    "required": ["low", "note", "link"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "low": {
                                            "type": "integer",
                                            "minimum": 0,
                                            "exclusiveMinimum": True,
                                            "maximum": 9,
                                        },
                                        "note": {"type": "string", "nullable": True},
                                        "link": {
                                            "$ref": "#/components/schemas/Link",
                                            "nullable": True,
                                        },
                                    },
                                }
                            }
                        }
                    }
                }
            }
        },
        "components": {"schemas": {"Link": {"type": "string", "format": "byte"}}},
    }
    schema = JsonSchema.from_openapi(document, "PUT /a")
    assert allowed(schema, '{"low":1,"note":null,"link":"YQ=="}')
    assert not allowed(schema, '{"low":0,"note":"","link":""}')
    assert not allowed(schema, '{"low":1,"note":"","link":null}'), "beside $ref nothing counts"
    assert not allowed(schema, '{"low":1,"note":"","link":"a"}')


def test_bodies_of_swagger_2() -> None:
    document = {
        "swagger": "2.0",
        "paths": {
            "/a": {
                "parameters": [{"$ref": "#/parameters/body"}],
                "post": {"operationId": "a", "responses": {"200": {"schema": {"type": "boolean"}}}},
            }
        },
        "parameters": {"body": {"in": "body", "schema": {"$ref": "#/definitions/A"}}},
        "definitions": {"A": {"enum": ["x"]}},
    }
    assert allowed(JsonSchema.from_openapi(document, "a"), '"x"')
    assert not allowed(JsonSchema.from_openapi(document, "a"), '"y"')
    assert allowed(JsonSchema.from_openapi(document, "a", part="response"), "true")


def test_a_document_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "api.yaml"
    dated = {**PETS, "info": {"version": "2020-01-01"}}
    path.write_text(yaml.safe_dump(dated).replace("'2020-01-01'", "2020-01-01"))
    assert JsonSchema.from_openapi(path, "createPet").schema["$defs"].keys() == {"Pet", "a_b"}
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SchemaError, match=r"pip install 'structgen\[openapi\]'"):
        JsonSchema.from_openapi(path, "createPet")


@pytest.mark.parametrize(
    ("operation", "options", "message"),
    [
        ("createPets", {}, "no operation 'createPets'.*'createPet'"),
        ("POST /pet", {}, "no operation 'POST /pet'.*'POST /pets'"),
        ("listPets", {}, r"no request body, at #/paths/~1pets/get"),
        ("DELETE /pets/{id}", {"part": "response"}, "ambiguous.*with a body: none"),
        ("createPet", {"part": "response", "status": 500}, "no response 500.*201, 4XX"),
        ("createPet", {"media_type": "text/xml"}, "no body with 'text/xml'.*application/json"),
    ],
)
def test_what_is_not_in_the_document(operation: str, options: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        JsonSchema.from_openapi(PETS, operation, **options)


@pytest.mark.parametrize("step", ["²", "9" * 5_000, "2", "-1"])
def test_a_pointer_to_no_place_in_a_list(step: str) -> None:
    schema = JsonSchema({"anyOf": [{"type": "null"}, {"$ref": f"#/anyOf/{step}"}]})
    with pytest.raises(SchemaError, match=r"^'\$ref' '#/anyOf/.+in \$\.anyOf\."):
        structgen.compile(schema, BYTES)


def test_documents_that_are_none() -> None:
    with pytest.raises(SchemaError, match="not an OpenAPI document"):
        JsonSchema.from_openapi({"type": "object"}, "a")
    with pytest.raises(OptionError, match="'request' or 'response'"):
        JsonSchema.from_openapi(PETS, "createPet", part="body")  # type: ignore[arg-type]
    with pytest.raises(OutputTypeError, match=r"many schemas. Choose one: JsonSchema\.from"):
        lower(PETS)
    broken = json.loads(
        json.dumps(PETS).replace("#/components/schemas/Pet", "#/components/schemas/Pe")
    )
    with pytest.raises(SchemaError, match=r"cannot be resolved.*Did you mean 'Pet'"):
        JsonSchema.from_openapi(broken, "createPet")
    outside = json.loads(json.dumps(PETS).replace("#/components/schemas/Pet", "other.yaml#/Pet"))
    with pytest.raises(SchemaError, match="points outside the OpenAPI document"):
        JsonSchema.from_openapi(outside, "createPet")
    damaged = json.loads(json.dumps(PETS).replace('"application/json": {', '"a": 1, "b": {'))
    with pytest.raises(SchemaError, match="is damaged"):
        JsonSchema.from_openapi(damaged, "createPet", media_type="a")
