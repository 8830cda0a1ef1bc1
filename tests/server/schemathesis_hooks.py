"""What Schemathesis is told of our server: names of models, and not to ask for all at once.

A body that the document allows names a model that there is, and keeps at most three of the fields
that it need not have: with twenty of them at once hardly any request makes sense, and one that
makes none says little. A body that the document does not allow is left as it is.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import jsonschema_rs
import schemathesis

_VECTORS = ("/v1/embeddings", "/v1/rerank")
_KEPT = ("max_tokens", "max_output_tokens", "grammar", "grammar_type")


@schemathesis.hook
def map_body(ctx: Any, body: Any) -> Any:
    operation = ctx.operation
    if not isinstance(body, dict) or operation.method.lower() != "post":
        return body
    document = operation.schema.raw_schema
    asked = document["paths"][operation.path]["post"]["requestBody"]["content"]
    if "application/json" not in asked:  # a form
        return body
    reference = asked["application/json"]["schema"]["$ref"]
    whole = {"$ref": reference, "components": document["components"]}
    if not jsonschema_rs.validator_for(whole).is_valid(body):
        return body
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    required = schema.get("required", [])
    optional = [
        name
        for name in body
        if name not in (*required, "model", "adapter") and name in schema["properties"]
    ]
    optional.sort(key=lambda name: zlib.crc32(name.encode() + json.dumps(body).encode()))
    names = {*required, *optional[:3], *(name for name in _KEPT if name in body)}
    made = {name: value for name, value in body.items() if name in names}
    if "model" in schema["properties"]:
        made["model"] = "vectors" if operation.path in _VECTORS else "small"
    return made
