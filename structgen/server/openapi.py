"""The schemas of bodies and answers in ``/openapi.json``.

Some endpoints read their bodies themselves, so FastAPI cannot describe them. Here their schemas are
added: those of the Runner's requests and responses, with the fields that HTTP adds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from .gateway import needs_no_key
from .shapes import ErrorAnswer

_REF = "#/components/schemas/{model}"
_COMPONENTS: dict[str, Any] = {}
"""Schemas by name, filled when the endpoints are made."""


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_REF)
    for name, part in schema.pop("$defs", {}).items():
        _add(name, part)
    return schema


def _content(kind: type[BaseModel], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the description of JSON content of a class, whose schema is kept."""
    _add(kind.__name__, dict(schema or _schema(kind)))
    return {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}


def _add(name: str, schema: dict[str, Any]) -> None:
    """Keep a schema; another one of the same name is an error."""
    if _COMPONENTS.setdefault(name, schema) != schema:
        raise AssertionError(f"there are two different schemas named {name}")


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": about, "content": _content(ErrorAnswer)}
    for status, about in (
        ("4XX", "The request is invalid."),
        ("5XX", "A model is not available, or an internal error occurred."),
    )
}


def body(
    kind: type[BaseModel], *, without: tuple[str, ...] = (), more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the description of an endpoint's body, for ``openapi_extra=``.

    Args:
        kind: the class of the body.
        without: fields of the class that HTTP does not have.
        more: schemas of fields that HTTP adds.
    """
    schema = _schema(kind)
    schema["properties"] = {
        name: one for name, one in schema["properties"].items() if name not in without
    } | dict(more or {})
    return {"requestBody": {"required": True, "content": _content(kind, schema)}}


def answers(
    kind: type[BaseModel] | None = None,
    *,
    chunk: type[BaseModel] | None = None,
    events: str | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Return the description of an endpoint's answers, for ``responses=``.

    Args:
        kind: the class of a whole answer.
        chunk: the class of a stream's pieces.
        events: or a description of a stream's events.
    """
    content = {} if kind is None else _content(kind)
    if chunk is not None:
        _add(chunk.__name__, _schema(chunk))
        events = f"a {chunk.__name__}"
    if events is not None:
        about = f"Lines of `data: ` and {events} as JSON."
        content["text/event-stream"] = {"schema": {"type": "string", "description": about}}
    found = dict(_ERRORS)
    if content:
        found[200] = {"description": "The answer.", "content": content}
    return found


class Application(FastAPI):
    """The FastAPI application with these schemas in its document."""

    def setup(self) -> None:
        """Serve the document, which is written once because that takes 3 ms.

        Behind a proxy with a prefix (``root_path``), it has the prefix, as FastAPI's own does.
        """

        @lru_cache(maxsize=4)
        def written(prefix: str) -> bytes:
            where = {"servers": [{"url": prefix}]} if prefix else {}
            return json.dumps({**self.openapi(), **where}, separators=(",", ":")).encode()

        async def document(request: Request) -> Response:
            prefix = request.scope.get("root_path", "").rstrip("/")
            return Response(written(prefix), media_type="application/json")

        if self.openapi_url:
            self.add_route(self.openapi_url, document, include_in_schema=False)

    def openapi(self) -> dict[str, Any]:
        """Return the document, which is made once."""
        if self.openapi_schema is None:
            found = get_openapi(
                title=self.title, version=self.version, summary=self.summary, routes=self.routes
            )
            components = found.setdefault("components", {})
            components["schemas"] = {**components.get("schemas", {}), **_COMPONENTS}
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            for path, methods in found["paths"].items():
                for operation in methods.values():
                    operation["responses"].pop("422", None)
                    for answer in operation["responses"].values():
                        # FastAPI also describes the annotation, beside the reference: an object.
                        one = answer.get("content", {}).get("application/json", {})
                        if "$ref" in one.get("schema", {}):
                            one["schema"] = {"$ref": one["schema"]["$ref"]}
                    if self.state.n_keys and needs_no_key(path):
                        operation["security"] = []
            if self.state.n_keys:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                found["security"] = [{"key": []}]
            self.openapi_schema = found
        return self.openapi_schema
