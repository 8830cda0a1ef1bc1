"""The schemas of bodies and answers in ``/openapi.json``.

Some endpoints read their bodies themselves, so FastAPI cannot describe them. This module adds the
schemas: those of the Runner's requests and responses, and what HTTP adds.
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
"""Schemas by name; filled when the endpoints are made."""


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_REF)
    for name, part in schema.pop("$defs", {}).items():
        _add(name, part)
    return schema


def _content(kind: type[BaseModel], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """JSON of a class, whose schema is kept."""
    _add(kind.__name__, dict(schema or _schema(kind)))
    return {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}


def _add(name: str, schema: dict[str, Any]) -> None:
    """Keep a schema. Two of one name would be taken for each other."""
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
    """Return what an endpoint says of its body, as ``openapi_extra=``.

    Args:
        kind: the class that the body is read into.
        without: its fields that HTTP has not.
        more: the schemas of fields that HTTP adds.
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
    """Return what an endpoint says of its answers, as ``responses=``.

    Args:
        kind: the class of a whole answer.
        chunk: that of the pieces of a stream.
        events: or what a stream is of.
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
    """An application that says all of it."""

    def setup(self) -> None:
        """Serve the document. It takes 3 ms to write, so it is written once.

        Under a prefix of a proxy (``root_path``) it says so, as FastAPI's own does.
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
        """Make the document, once."""
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
                        # Beside it is what FastAPI sees in the annotation: an object.
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
