"""Arrow columns of results: their types from an output type's JSON Schema, and their values.

Objects become structs, arrays lists, enums dictionaries, decimals with a fixed number of places
decimals, and date and date-time strings the Arrow types of the same name. Values without a single
Arrow type (unions, objects with arbitrary names) become text with their JSON, and the field is
marked.

Untyped input columns get the types of the values in the first part. If these are objects, nested
lists, mixed or missing, they say too little about later parts, and the column becomes JSON, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from structgen.grammar import ir
from structgen.types import JsonSchema, lower

from .rows import Row, as_json, pyarrow

BESIDE: Mapping[str, Callable[[Any], Any]] = {
    "error": lambda arrow: arrow.struct([("type", arrow.string()), ("message", arrow.string())]),
    "finish_reason": lambda arrow: arrow.string(),
    "prompt_tokens": lambda arrow: arrow.int64(),
    "output_tokens": lambda arrow: arrow.int64(),
    "confidence": lambda arrow: arrow.map_(arrow.string(), arrow.float64()),
}
"""Columns of results beside the output, with functions that make their types."""

_JSON = {b"structgen": b"json"}
"""Metadata of a field whose values are JSON."""

_DEEPEST = 32  # a list is two levels; Parquet may have 100
_MOST_DIGITS = 38  # digits of Arrow's 128-bit decimals


class Columns:
    """Makes Arrow tables of result rows."""

    def __init__(self, output_type: Any, result: str, inputs: Any = None) -> None:
        """Define the columns.

        Args:
            output_type: what the outputs are; None: text.
            result: the name of the output's column.
            inputs: the Arrow schema of the input; None: found in the first rows.
        """
        self._result = result
        self._inputs = inputs
        schema = _schema_of(output_type)
        is_open = isinstance(output_type, JsonSchema)  # if it names no others; classes have none
        self._output = _Types(schema, is_open).field(result, schema)

    def table(self, rows: Sequence[Row], schema: Any) -> Any:
        """Make a table of rows with the columns of an Arrow schema; None: the columns of these
        rows."""
        arrow = pyarrow()
        rows = [self._written(row) for row in rows]
        names = dict.fromkeys(name for row in rows for name in row)
        if schema is None:
            names = dict.fromkeys((*(one.name for one in self._inputs or ()), *names))
            fields = {name: arrow.field(name, kind(arrow)) for name, kind in BESIDE.items()}
            fields[self._result] = self._output
            fields |= {one.name: arrow.field(one.name, one.type) for one in self._inputs or ()}
            schema = arrow.schema(
                fields.get(name) or self._found(name, [row.get(name) for row in rows])
                for name in names
            )
        if unknown := names.keys() - set(schema.names):
            raise ValueError(f"there is no column {min(unknown)!r} in the first part")
        others = [field.name for field in schema if field.metadata == _JSON]
        for name in (name for name in others if name != self._result):
            for row in rows:
                row[name] = None if row.get(name) is None else as_json(row[name]).decode()
        try:
            return arrow.Table.from_pylist(rows, schema)
        except (arrow.ArrowException, ValueError, OverflowError):
            return arrow.Table.from_pylist([self._fitting(row, schema) for row in rows], schema)

    def _found(self, name: str, values: list[Any]) -> Any:
        """Return the field of a column that is known only by its first values."""
        arrow = pyarrow()
        try:
            kind = arrow.array(values).type
        except (arrow.ArrowException, ValueError, OverflowError, TypeError):
            kind = arrow.null()
        inner = kind.value_type if arrow.types.is_list(kind) else kind
        if arrow.types.is_nested(inner) or arrow.types.is_null(inner):
            return arrow.field(name, arrow.string(), metadata=_JSON)
        return arrow.field(name, kind)

    def _fitting(self, row: Row, schema: Any) -> Row:
        """Return the row, with an error if its output does not fit the type of the column."""
        arrow = pyarrow()
        try:
            arrow.array([row.get(self._result)], schema.field(self._result).type)
        except (arrow.ArrowException, ValueError, OverflowError, TypeError) as error:
            return row | self._misfit(error)
        return row

    def _misfit(self, error: Exception) -> Row:
        misfit = {"type": "ParseError", "message": f"It does not fit the column: {error}"}
        return {self._result: None, "error": misfit}

    def _written(self, row: Row) -> Row:
        made: Row = {name: _utf8(one) for name, one in row.items()}
        try:
            made[self._result] = _value(made.get(self._result), self._output)
        except (ValueError, OverflowError, ArithmeticError) as error:
            made |= self._misfit(error)
        if made.get("confidence") is not None:
            made["confidence"] = list(made["confidence"].items())
        return made


def _utf8(value: Any) -> Any:
    """Return a value; lone surrogates in a text are replaced, as in JSON lines."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode(errors="backslashreplace").decode()


def _schema_of(output_type: Any) -> Any:
    """Return the JSON Schema of outputs; if they are not JSON, that of a text."""
    if output_type is None or not isinstance(lower(output_type).grammar, ir.Json):
        return {"type": "string"}
    if isinstance(output_type, JsonSchema):
        return output_type.schema
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class WithDecimals(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> dict[str, Any]:
            digits, places = schema.get("max_digits", _MOST_DIGITS), schema.get("decimal_places")
            if places is None or not places <= digits <= _MOST_DIGITS:
                return {"type": "string"}
            return {"type": "string", "format": "decimal", "of": (digits, places)}

    try:
        return TypeAdapter(output_type).json_schema(schema_generator=WithDecimals)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return {}


class _Types:
    """Arrow types of the parts of a JSON Schema."""

    def __init__(self, root: Mapping[str, Any], is_open: bool) -> None:
        self._root = root
        self._is_open = is_open
        self._arrow = pyarrow()

    def field(self, name: str, schema: Any, depth: int = 0) -> Any:
        """Return the field for values of a schema; without an Arrow type, for their JSON."""
        kind = self._of(schema, depth)
        if kind is None:
            return self._arrow.field(name, self._arrow.string(), metadata=_JSON)
        return self._arrow.field(name, kind)

    def _of(self, schema: Any, depth: int) -> Any:
        arrow = self._arrow
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return None
        if "$ref" in schema:
            return self._of(self._found(schema["$ref"]), depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                some = [one for one in schema[key] if one != {"type": "null"}]
                return self._of(some[0], depth + 1) if len(some) == 1 else None
        kind = schema.get("type")
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            some = [one for one in kind if one != "null"]
            kind = some[0] if len(some) == 1 else None
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is not None:
            if all(isinstance(value, str) or value is None for value in values):
                return arrow.dictionary(arrow.int32(), arrow.string())
            kinds = {type(value) for value in values if value is not None}
            plain = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64()}
            return plain.get(kinds.pop()) if len(kinds) == 1 else None
        if kind == "object" and schema.get("properties"):
            others = schema.get("additionalProperties", self._is_open)
            if others is not False or "patternProperties" in schema:
                return None
            return arrow.struct(
                [self.field(name, one, depth + 1) for name, one in schema["properties"].items()]
            )
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping) and "prefixItems" not in schema:
            return arrow.list_(self.field("item", items, depth + 1))
        if kind == "string":
            if schema.get("format") == "decimal" and "of" in schema:
                return arrow.decimal128(*schema["of"])
            formats = {"date": arrow.date32(), "date-time": arrow.timestamp("us", "UTC")}
            return formats.get(schema.get("format", ""), arrow.string())
        return {"boolean": arrow.bool_(), "integer": arrow.int64(), "number": arrow.float64()}.get(
            kind or ""
        )

    def _found(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        return found


def _value(value: Any, field: Any) -> Any:
    """Return a JSON value as one that Arrow accepts for a field."""
    if value is not None and field.metadata == _JSON:
        return json.dumps(value, ensure_ascii=False)
    return _inside(value, field.type)


def _inside(value: Any, kind: Any) -> Any:
    """Return a JSON value as one that Arrow accepts for a type."""
    arrow = pyarrow()
    if value is None:
        return None
    if arrow.types.is_struct(kind) and isinstance(value, Mapping):
        return {field.name: _value(value.get(field.name), field) for field in kind}
    if arrow.types.is_list(kind) and isinstance(value, list):
        return [_value(one, kind.value_field) for one in value]
    if arrow.types.is_decimal(kind):
        return Decimal(str(value))
    if arrow.types.is_string(kind):  # for example of a decimal written as a number
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        if arrow.types.is_date(kind):
            return date.fromisoformat(value)
        if arrow.types.is_timestamp(kind):
            found = datetime.fromisoformat(value.replace("Z", "+00:00"))
            return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    if arrow.types.is_floating(kind) and isinstance(value, int):
        return float(value)
    return value
