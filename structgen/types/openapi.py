"""The body of an operation in an OpenAPI document, as a self-contained JSON Schema.

Knows where a document (Swagger 2.0, OpenAPI 3.0 and 3.1) keeps its operations and their bodies, and
how its schemas differ from JSON Schema: ``nullable``, references that override the keywords beside
them, properties that are required only in requests or responses, and formats of numbers. Keeps only
parts that the body refers to. Fetches nothing. Knows no output types.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from structgen.errors import OptionError, SchemaError, did_you_mean, requires
from structgen.grammar.json_schema import rewritten
from structgen.types import networks

Part: TypeAlias = Literal["request", "response"]

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_BITS = {"int32": 31, "int64": 63}


class Body(NamedTuple):
    """A self-contained schema, and its draft (None: the default)."""

    schema: dict[str, Any]
    dialect: str | None


def body(
    document: Any, operation: str, part: Part, status: int | str | None, media_type: str | None
) -> Body:
    """Return the schema of an operation's request or response; see `JsonSchema.from_openapi`."""
    if part not in ("request", "response"):
        raise OptionError(f"part= must be 'request' or 'response', got {part!r}.")
    try:
        return _body(_Reader(document, part), part, operation, status, media_type)
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise SchemaError(
            f"The document is damaged: the path to the {part} of {operation!r} does not have the "
            f"form that OpenAPI requires ({error})."
        ) from error


def _body(
    reader: _Reader, part: Part, operation: str, status: int | str | None, media_type: str | None
) -> Body:
    path, at = _operation(reader, operation)
    found, where = (
        _request(reader, path, at) if part == "request" else _response(reader, at, status)
    )
    if reader.version == "2.0":
        schema, place = found.get("schema"), [*where, "schema"]
    else:
        content = found.get("content") or {}
        media = _media(content, media_type, where)
        schema, place = content[media].get("schema"), [*where, "content", media, "schema"]
    if schema is None:
        raise SchemaError(f"The {part} of {operation} has no schema, at {_shown(place)}.")
    return reader.alone(schema, place)


def from_yaml(text: str, name: str) -> Any:
    """Return the value of a YAML text with JSON's types: dates stay text.

    Raises:
        SchemaError: it is not YAML, or PyYAML is not installed.
    """
    with requires(SchemaError, f"{name} is YAML, which needs PyYAML", "openapi"):
        yaml: Any = importlib.import_module("yaml")
    resolvers = {
        first: [(tag, found) for tag, found in known if not tag.endswith(":timestamp")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
    try:
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise SchemaError(f"{name} is not valid YAML: {error}.") from error


class _Reader:
    """Reads one document, and collects the parts used."""

    def __init__(self, document: Any, part: Part) -> None:
        if not isinstance(document, Mapping):
            raise SchemaError(
                f"An OpenAPI document must be an object, got {type(document).__name__}."
            )
        version = str(document.get("openapi", document.get("swagger", "")))
        self.version = version[:3]
        if self.version not in ("2.0", "3.0", "3.1", "3.2"):
            raise SchemaError(
                'The document is not an OpenAPI document: it must have "openapi": "3.x.x" or '
                f'"swagger": "2.0", got {version!r}.'
            )
        self.document = document
        self.is_own_draft = self.version in ("2.0", "3.0")
        self._one_way = "readOnly" if part == "request" else "writeOnly"
        self._names: dict[str, str] = {}
        self._defs: dict[str, Any] = {}

    def found(self, pointer: str, place: list[str]) -> tuple[Any, list[str]]:
        """Return the target of a reference, and its path."""
        if not pointer.startswith("#/"):
            raise SchemaError(
                f"$ref {pointer!r} points outside the OpenAPI document, at {_shown(place)}. "
                "structgen does not fetch references. Put the target into the document."
            )
        value: Any = self.document
        steps = [
            step.replace("%7B", "{").replace("%7D", "}").replace("~1", "/").replace("~0", "~")
            for step in pointer[2:].split("/")
        ]
        for step in steps:
            if isinstance(value, list) and step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            elif isinstance(value, Mapping) and step in value:
                value = value[step]
            else:
                hint = did_you_mean(step, value if isinstance(value, Mapping) else ())
                raise SchemaError(
                    f"$ref {pointer!r} cannot be resolved: {step!r} does not exist, at "
                    f"{_shown(place)}.{hint}"
                )
        return value, steps

    def resolved(self, value: Any, place: list[str]) -> tuple[Any, list[str]]:
        """Return ``value``, or the target of its references."""
        for _ in range(100):
            if not isinstance(value, Mapping) or not isinstance(value.get("$ref"), str):
                return value, place
            value, place = self.found(value["$ref"], place)
        raise SchemaError(f"The references form a cycle, at {_shown(place)}.")

    def alone(self, schema: Any, place: list[str]) -> Body:
        """Return a schema with everything that it refers to."""
        top = self._read(schema, place)
        if self._defs:
            top = (
                {**top, "$defs": {**top.get("$defs", {}), **self._defs}}
                if isinstance(top, dict)
                else {"allOf": [top], "$defs": self._defs}
            )
        if isinstance(top, bool):
            top = {} if top else {"not": {}}
        if self.is_own_draft:
            reference = {"$ref": top.pop("$ref")} if "$ref" in top else None
            return Body({"allOf": [reference], **top} if reference else top, "draft4")
        draft = self.document.get("jsonSchemaDialect")
        if isinstance(draft, str) and "oas/3.1" not in draft and "oas/3.2" not in draft:
            top = {"$schema": draft, **top}
        return Body(top, None)

    def _read(self, schema: Any, place: list[str]) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and reference[1:2] in ("", "/"):
            named = {"$ref": f"#/$defs/{self._name(reference, place)}"}
            return named if self.is_own_draft else {**self._parts(schema, place), **named}
        if "$id" in schema or (isinstance(reference, str) and not reference.startswith("#")):
            self.found(str(reference or schema["$id"]), place)  # raises: neither is in the document
        return self._parts(schema, place)

    def _name(self, reference: str, place: list[str]) -> str:
        """Return the name under which the target of a reference is stored."""
        name = self._names.get(reference)
        if name is None:
            value, where = self.found(reference, place)
            name = base = "".join(c if c.isalnum() or c in "._-" else "_" for c in where[-1])
            number = 1
            while name in self._defs:
                number += 1
                name = f"{base}_{number}"
            self._names[reference] = name
            self._defs[name] = {}  # stored first, so that references inside it find it
            self._defs[name] = self._read(value, where)
        return name

    def _parts(self, schema: Mapping[str, Any], place: list[str]) -> dict[str, Any]:
        out = rewritten(
            {key: value for key, value in schema.items() if key != "$ref"},
            lambda part, *steps: self._read(part, [*place, *map(str, steps)]),
        )
        self._one_way_only(schema, out, place)
        kind = out.get("type")
        if self.is_own_draft and schema.get("nullable") is True and isinstance(kind, str):
            out["type"] = [kind, "null"]
        limits = _format_limits(schema.get("format"))
        if limits is not None:
            out["allOf"] = [*out.get("allOf", ()), limits]
        return out

    def _one_way_only(
        self, schema: Mapping[str, Any], out: dict[str, Any], place: list[str]
    ) -> None:
        """Remove properties from ``required`` that are required only in the other direction."""
        required, properties = schema.get("required"), schema.get("properties")
        if not isinstance(required, list) or not isinstance(properties, Mapping):
            return
        kept = []
        for name in required:
            held, _ = self.resolved(properties.get(name), [*place, "properties", str(name)])
            if not (isinstance(held, Mapping) and held.get(self._one_way) is True):
                kept.append(name)
        out["required"] = kept
        if not kept:
            del out["required"]


def _format_limits(name: Any) -> dict[str, Any] | None:
    """Return the limits of one of OpenAPI's own formats."""
    if name in _BITS:
        most = 1 << _BITS[name]
        return {"minimum": -most, "maximum": most - 1}
    if name == "byte":
        return {"pattern": networks.base64()["pattern"]}
    return None


# -- operations -------------------------------------------------------------------------------


def _operation(reader: _Reader, wanted: str) -> tuple[tuple[Any, list[str]], tuple[Any, list[str]]]:
    """Return the path and the operation that ``wanted`` names, each with its place."""
    method, _, template = wanted.partition(" ")
    by_route = template.startswith("/") and method.lower() in _METHODS
    known: list[str] = []
    paths = reader.document.get("paths")
    for path, item in (paths if isinstance(paths, Mapping) else {}).items():
        held, place = reader.resolved(item, ["paths", path])
        for key, operation in held.items() if isinstance(held, Mapping) else ():
            if key not in _METHODS or not isinstance(operation, Mapping):
                continue
            name = operation.get("operationId")
            at = operation, [*place, key]
            if by_route and key == method.lower() and path == template.strip():
                return (held, place), at
            if not by_route and name == wanted:
                return (held, place), at
            known.append(f"{key.upper()} {path}" if by_route or name is None else str(name))
    near = difflib.get_close_matches(wanted, known, 3) or known[:8]
    raise SchemaError(
        f"The OpenAPI document has no operation {wanted!r}. Pass an operationId, or a method and "
        f"path, such as {', '.join(map(repr, near)) or repr('POST /path')}."
    )


def _request(
    reader: _Reader, path: tuple[Any, list[str]], at: tuple[Any, list[str]]
) -> tuple[Any, list[str]]:
    operation, place = at
    if reader.version != "2.0":
        if "requestBody" not in operation:
            raise SchemaError(f"The operation has no request body, at {_shown(place)}.")
        return reader.resolved(operation["requestBody"], [*place, "requestBody"])
    for holder, where in (at, path):
        for number, parameter in enumerate(holder.get("parameters") or ()):
            held, found = reader.resolved(parameter, [*where, "parameters", str(number)])
            if held.get("in") == "body":
                return held, found
    raise SchemaError(f"The operation has no body parameter, at {_shown(place)}.")


def _response(
    reader: _Reader, at: tuple[Any, list[str]], status: int | str | None
) -> tuple[Any, list[str]]:
    operation, place = at
    responses = {str(key): value for key, value in (operation.get("responses") or {}).items()}
    place = [*place, "responses"]
    if status is not None:
        name = str(status)
        chosen = next((one for one in (name, f"{name[:1]}XX", "default") if one in responses), None)
        if chosen is None:
            raise SchemaError(
                f"There is no response {name}, at {_shown(place)}. Known responses: "
                f"{', '.join(responses) or 'none'}."
            )
        return reader.resolved(responses[chosen], [*place, chosen])
    bodies = []
    for name in sorted(responses):
        held, found = reader.resolved(responses[name], [*place, name])
        if (
            name[:1] == "2"
            and isinstance(held, Mapping)
            and ("content" in held or "schema" in held)
        ):
            bodies.append((name, held, found))
    if len(bodies) == 1:
        return bodies[0][1], bodies[0][2]
    if not bodies and "default" in responses:
        return reader.resolved(responses["default"], [*place, "default"])
    names = ", ".join(name for name, _, _ in bodies) or "none"
    raise SchemaError(
        f"The response is ambiguous, at {_shown(place)}: successful responses with a body: "
        f"{names}. Pass status=, one of {', '.join(responses) or '(there is none)'}."
    )


def _media(content: Mapping[str, Any], wanted: str | None, place: list[str]) -> str:
    """Return the JSON media type, or the requested one."""
    if wanted is not None:
        if wanted in content:
            return wanted
    else:
        for media in content:
            kind = media.partition(";")[0].strip().lower()
            if kind == "application/json" or kind.endswith("+json"):
                return media
        for media in content:
            if media in ("*/*", "application/*"):
                return media
    what = "JSON" if wanted is None else repr(wanted)
    raise SchemaError(
        f"There is no body with {what}, at {_shown([*place, 'content'])}. Known media types: "
        f"{', '.join(content) or 'none'}. Choose one with media_type=."
    )


def _shown(place: list[str]) -> str:
    return "#/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in place)
