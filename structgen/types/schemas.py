"""`JsonSchema`: a JSON Schema as an output type, copied and checked to be JSON.

Knows no keywords: compiling checks whether the JSON is a schema.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from structgen.errors import SchemaError, failure
from structgen.grammar.json_schema import TYPE_BITS, child_path, is_keyword, type_hint

from .sums import Combining, Typed

_LONGEST_SHOWN = 80
_MAX_DIGITS = 4_300
"""The most digits of an integer that Python converts to text and back by default."""

_TOO_LARGE = 10**_MAX_DIGITS

_PLAIN_DEPTH = 100
"""Up to this depth, nesting needs no closer check."""

_MAX_DEPTH = 500
"""Deepest nesting of a schema."""


class JsonSchema(Combining, Typed[Any]):
    """JSON text that is valid under a JSON Schema; parses like ``json.loads``.

    The schema is copied: later changes to the argument have no effect. Compared and hashed by
    content, including the order of keys, which is the order of properties.

    Args:
        schema: a dict, True or False, the schema as JSON text, or the file that holds it: a path
            object, or a string that ends in ``.json``.
        dialect: the draft, if ``$schema`` does not set it: ``"draft4"``, ``"draft6"``,
            ``"draft7"``, ``"draft2019-09"`` or ``"draft2020-12"`` (the default).
        documents: other documents for ``$ref``, by absolute URL. The metaschemas are built in;
            structgen never fetches anything.
        closed: whether objects contain only members that the schema names.

    Raises:
        SchemaError: the argument is not JSON, or not an object or boolean; the file cannot be read.
    """

    __slots__ = ("_documents", "_schema", "closed", "dialect")

    dialect: str | None
    closed: bool
    _schema: Any
    _documents: Any

    def __init__(
        self,
        schema: Mapping[str, Any] | bool | str | os.PathLike[str],
        dialect: str | None = None,
        documents: Mapping[str, Any] | None = None,
        *,
        closed: bool = False,
    ) -> None:
        if isinstance(schema, os.PathLike) or (
            isinstance(schema, str) and schema.endswith(".json") and _PATH.fullmatch(schema)
        ):
            schema = text_of_file(schema)
        value = _read(schema) if isinstance(schema, str) else schema
        if type(value) is not dict and not isinstance(value, (Mapping, bool)):
            raise SchemaError(
                f"A JSON Schema must be an object or a boolean, got {type(value).__name__} "
                f"({shown(value)}) at $.{_instead(value)}"
            )
        object.__setattr__(self, "_schema", value if isinstance(schema, str) else _copy(value))
        object.__setattr__(self, "dialect", dialect)
        object.__setattr__(self, "closed", closed)
        object.__setattr__(self, "_documents", _copy(documents) if documents else None)

    @classmethod
    def from_openapi(
        cls,
        document: Mapping[str, Any] | str | os.PathLike[str],
        operation: str,
        *,
        part: Literal["request", "response"] = "request",
        status: int | str | None = None,
        media_type: str | None = None,
    ) -> JsonSchema:
        """Return the body of an operation in an OpenAPI document (Swagger 2.0, OpenAPI 3.0, 3.1).

        Follows references within the document. ``discriminator`` is a hint and excludes nothing. A
        request does not require ``readOnly`` properties, a response no ``writeOnly`` ones.

        Args:
            document: a dict, JSON text, or a file of JSON or YAML (which needs PyYAML).
            operation: an ``operationId``, or method and path: ``"POST /pets"``.
            part: which body.
            status: the response's status; None if only one successful response has a body.
            media_type: the media type; None for JSON.

        Raises:
            SchemaError: there is no such operation, body or reference; the message says where.
            OptionError: ``part`` is neither ``"request"`` nor ``"response"``.
        """
        from .openapi import body

        if isinstance(document, (str, os.PathLike)):
            document = _document(document)
        found = body(document, operation, part, status, media_type)
        return cls(found.schema, found.dialect)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a JsonSchema cannot be changed: {name}")

    __delattr__ = None  # type: ignore[assignment]

    @property
    def text(self) -> str:
        """The schema as JSON text."""
        return json.dumps(self._schema)

    @property
    def schema(self) -> Any:
        """A fresh copy of the schema: a dict or a bool."""
        return _copy(self._schema)

    @property
    def shared(self) -> Any:
        """The schema itself: a dict or a bool. Do not change it."""
        return self._schema

    @property
    def options(self) -> dict[str, Any]:
        """The compile options that belong to the schema itself."""
        out: dict[str, Any] = {}
        if self.dialect is not None:
            out["dialect"] = self.dialect
        if self._documents is not None:
            out["documents"] = _copy(self._documents)
        if self.closed:
            out["closed"] = True
        return out

    def _key(self) -> tuple[str, str | None, str, bool]:
        return self.text, self.dialect, json.dumps(self._documents), self.closed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(JsonSchema, closed=True) if self.closed else JsonSchema
        return made, (self._schema, self.dialect, self._documents)

    def __repr__(self) -> str:
        return f"JsonSchema({shown(self._schema)})"


def text_of_file(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8.

    Raises:
        SchemaError: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"Cannot read the file {os.fspath(path)}: {failure(error)}.") from error


def _document(source: str | os.PathLike[str]) -> Any:
    """Return an OpenAPI document from its text or file."""
    name = os.fspath(source)
    if not isinstance(source, os.PathLike) and not _PATH.fullmatch(name):
        return _read(name)
    text = text_of_file(source)
    if not name.endswith((".yaml", ".yml")):
        return _read(text)
    from .openapi import from_yaml

    return from_yaml(text, name)


_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_OF_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def is_plainly_schema(value: Mapping[Any, Any]) -> bool:
    """Return whether a dict is clearly a JSON Schema: all its keys are keywords, and one is
    characteristic (such as ``"type": "object"``, also misspelt, or ``properties`` with schemas).
    """
    if not all(isinstance(key, str) and is_keyword(key) for key in value):
        return False
    kinds = value.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if isinstance(kinds, list) and kinds:
        return all(
            isinstance(kind, str) and (kind in TYPE_BITS or type_hint(kind)) for kind in kinds
        )
    if any(isinstance(value.get(key), str) for key in ("$schema", "$ref")):
        return True
    if isinstance(value.get("enum"), list):
        return True
    maps = [value[key] for key in _OF_SCHEMAS if isinstance(value.get(key), Mapping)]
    if any(held and _are_schemas(held.values()) for held in maps):
        return True
    return any(_are_schemas(value[key]) for key in _OF_LISTS if isinstance(value.get(key), list))


def _are_schemas(values: Iterable[Any]) -> bool:
    return all(isinstance(one, (Mapping, bool)) for one in values)


_PATH = re.compile(r"[^\s{}\[\]\"]+\.[A-Za-z0-9]+|[^\s{}\[\]\"]*[/\\][^\s{}\[\]\"]+")


def _read(text: str) -> Any:
    """Return the value of JSON ``text`` by RFC 8259."""
    try:
        # Windows editors begin UTF-8 files with a byte order mark.
        value = _DECODER.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        fix = "Pass a dict, or the schema as JSON text."
        if _PATH.fullmatch(text):
            fix = (
                "JsonSchema reads a string as JSON text, not as a file name. Pass "
                f"Path({text!r}).read_text()."
            )
        raise SchemaError(
            f"JsonSchema got a string that is not valid JSON: {error}. {fix}"
        ) from error
    if text.count("{") + text.count("[") > _PLAIN_DEPTH and not _is_shallow(value):
        return _copy(value)  # it may be nested too deeply
    return value


def _is_shallow(value: Any) -> bool:
    """Return whether ``value``, of dicts, lists and scalars, is not nested deeply."""
    level = [value]
    for _ in range(_PLAIN_DEPTH):
        level = [
            item
            for held in level
            for item in (held.values() if type(held) is dict else held)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return True
    return False


def _number(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is too large for a float")
    return number


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a valid JSON number")


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_no_number)


def _instead(value: Any) -> str:
    """Return a suggestion for a value that is not a schema, if there is one."""
    if isinstance(value, os.PathLike):
        return " For a schema in a file, pass its text: path.read_text()."
    if isinstance(value, type) or hasattr(value, "__args__"):
        return " To use a Python type, pass the type itself, without JsonSchema."
    return ""


def _copy(value: Any) -> Any:
    """Return a copy of ``value``, of dicts, lists and scalars, in the same order.

    Raises:
        SchemaError: it is not JSON.
    """
    with contextlib.suppress(_NotPlain):
        return _plain(value, 0)
    _check_json(value, "$", ())
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=dict))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"The schema cannot be written as JSON: {error}.") from error


class _NotPlain(Exception):
    """A value that needs a closer check."""


def _plain(value: Any, depth: int) -> Any:
    """Return a copy of ``value``, if it is obviously JSON."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int and -_TOO_LARGE < value < _TOO_LARGE:
        return value
    if kind is dict:
        if depth >= _PLAIN_DEPTH:
            raise _NotPlain
        out = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _NotPlain
            # Most of a schema is text.
            out[key] = item if type(item) is str else _plain(item, depth + 1)
        return out
    if kind is list and depth < _PLAIN_DEPTH:
        return [item if type(item) is str else _plain(item, depth + 1) for item in value]
    if kind is float and value - value == 0:  # finite
        return value
    raise _NotPlain


def _check_json(value: Any, path: str, parents: tuple[Any, ...]) -> None:
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        raise SchemaError(
            f"JSON cannot represent the number {value!r}, at {path}. Use a finite number or null.",
            path=path,
        )
    if isinstance(value, int) and not -_TOO_LARGE < value < _TOO_LARGE:
        raise SchemaError(
            f"The integer at {path} has more than {_MAX_DIGITS:,} digits, which Python does not "
            "convert to text. Use a smaller one.",
            path=path,
        )
    if value is None or isinstance(value, (str, int, float)):
        return
    if any(value is parent for parent in parents):
        raise SchemaError(f"The schema contains itself, at {path}. Use $ref.", path=path)
    if len(parents) > _MAX_DEPTH:
        raise SchemaError(
            f"The schema is nested more than {_MAX_DEPTH} levels deep, at "
            f"{path[:60]}…{path[-40:]}. Flatten it, or move parts into $defs.",
            path=path,
        )
    parents = (*parents, value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SchemaError(
                    f"Keys in a JSON Schema must be strings, got {key!r} at {path}.", path=path
                )
            _check_json(item, child_path(path, key), parents)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_json(item, f"{path}[{index}]", parents)
    else:
        fix = " Use a list." if isinstance(value, (set, frozenset)) else _instead(value)
        raise SchemaError(
            f"{type(value).__name__} ({shown(value)}) is not a JSON value, at {path}. A JSON "
            f"Schema may contain dicts, lists, strings, numbers, booleans and None.{fix}",
            path=path,
        )


def shown(value: Any) -> str:
    """Return ``repr(value)``, cut short, at the cost of the shown part only."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _LONGEST_SHOWN:
            return text[: _LONGEST_SHOWN - 3] + "…"
    return text


def _pieces(value: Any) -> Iterator[str]:
    if type(value) is dict and value:
        before = "{"
        for key, item in value.items():
            yield f"{before}{key!r}: "
            yield from _pieces(item)
            before = ", "
        yield "}"
    elif type(value) is list and value:
        before = "["
        for item in value:
            yield before
            yield from _pieces(item)
            before = ", "
        yield "]"
    else:
        yield repr(value)
