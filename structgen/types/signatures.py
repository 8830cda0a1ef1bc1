"""Functions as output types: the JSON object of their arguments; never calls them.

Reads signatures. `marked` puts functions into Pydantic's schemas. `without_calls` changes each
place where Pydantic would call a function, so that it makes a `Call` instead. One function is
written as the object of its arguments, one of several as ``{"name": ..., "arguments": {...}}``.
Knows no JSON Schema and no grammar.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from structgen.errors import OutputTypeError
from structgen.types.names import annotated, changed_within, name_of
from structgen.types.patterns import with_parts
from structgen.types.records import Record, is_record, modern
from structgen.types.tool_calls import Call, name_of_function

Kind = inspect._ParameterKind

_EMPTY = inspect.Parameter.empty
CALL_OF = "call of "
"""Prefix of a call's label in a union, which Pydantic includes in the locations of errors."""

_WITHIN: Mapping[str, str] = {
    "nullable": "schema",
    "default": "schema",
    "function-after": "schema",
    "function-before": "schema",
    "function-wrap": "schema",
    "custom-error": "schema",
}
"""Core schemas around another one at the same place of the text."""


def is_function(value: Any) -> bool:
    """Return whether ``value`` is a function, a method or a `functools.partial`."""
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def marked(output_type: Any) -> Any:
    """Return ``output_type`` with functions, attrs and msgspec classes in it marked for Pydantic.

    Pydantic alone would resolve annotations in the module that uses a function, not in its own, and
    would accept any value for a parameter without an annotation.
    """
    if is_function(output_type):
        if name_of_function(output_type) == "<lambda>":
            raise OutputTypeError(
                "A lambda has no name, but a call needs the name of its function. Use def to give "
                "it a name."
            )
        return annotated(Any, (_Signature(output_type),))
    if is_record(output_type):
        return annotated(Any, (Record(output_type, marked),))
    return changed_within(output_type, marked)


def one_of(functions: Sequence[Callable[..., Any]]) -> Any:
    """Return the type of calls of one of ``functions``, always with the function's name.

    Raises:
        OutputTypeError: two of them have one name, or one has none.
    """
    return annotated(Any, (_OneOf(tuple(functions)),))


@dataclass(frozen=True)
class _Signature:
    """Marks, in `Annotated`, a call of one function."""

    function: Callable[..., Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        parameters: list[core_schema.ArgumentsParameter] = []
        var_args: CoreSchema | None = None
        var_kwargs: CoreSchema | None = None
        mode: core_schema.VarKwargsMode = "uniform"
        for parameter, annotation in _parameters(self.function):
            origin = get_origin(annotation)
            named = getattr(origin, "__name__", ""), getattr(origin, "_name", "")
            if parameter.kind is Kind.VAR_KEYWORD and "Unpack" in named:
                mode, annotation = "unpacked-typed-dict", get_args(annotation)[0]
            inner = handler.generate_schema(marked(annotation))
            if parameter.kind is Kind.VAR_POSITIONAL:
                var_args = inner
            elif parameter.kind is Kind.VAR_KEYWORD:
                var_kwargs = inner
            else:
                if parameter.default is not _EMPTY:
                    inner = core_schema.with_default_schema(inner, default=parameter.default)
                # It is never called, so the real kind does not matter.
                kept = core_schema.arguments_parameter(parameter.name, inner, mode="keyword_only")
                parameters.append(kept)
        arguments = core_schema.arguments_schema(
            parameters,
            var_args_schema=var_args,
            var_kwargs_schema=var_kwargs,
            var_kwargs_mode=None if var_kwargs is None else mode,
        )
        return core_schema.call_schema(arguments, self.function)


@dataclass(frozen=True)
class _OneOf:
    """Marks, in `Annotated`, a call of one of several functions."""

    functions: tuple[Callable[..., Any], ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        calls: list[CoreSchema | tuple[CoreSchema, str]] = [
            _Signature(one).__get_pydantic_core_schema__(Any, handler) for one in self.functions
        ]
        return _named(core_schema.union_schema(calls))


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Yield the parameters of ``function`` with their types.

    Raises:
        OutputTypeError: there is no signature, or a parameter without an annotation.
    """
    name = name_of(function)
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    try:
        parameters = inspect.signature(function).parameters
        hints = typing.get_type_hints(inner, include_extras=True)
    except (ValueError, TypeError) as error:
        raise OutputTypeError(
            f"The signature of {name} cannot be read: {error}. Wrap it in a function with "
            "annotated parameters."
        ) from error
    except NameError as error:
        raise OutputTypeError(
            f"A parameter annotation of {name} uses a name that is not defined: {error}."
        ) from error
    for parameter in parameters.values():
        if parameter.name not in hints:
            advice = f"Add a type, such as {parameter.name}: int."
            if not isinstance(inner, (types.FunctionType, types.MethodType)):
                advice = (
                    "It is a built-in function. Wrap it in a function with annotated parameters."
                )
            elif parameter.name in ("self", "cls") and "." in inner.__qualname__:
                advice = f"Pass a bound method: the_object.{inner.__name__}."
            raise OutputTypeError(
                f"Parameter {parameter.name!r} of {name} has no annotation. {advice}"
            )
        # Python would pass this object to the function
        if isinstance(parameter.default, FieldInfo):
            raise OutputTypeError(
                f"Parameter {parameter.name!r} of {name} has Field(...) for its default. Write "
                f"{parameter.name}: Annotated[<type>, Field(...)], and its default, if any, after "
                "that."
            )
        yield parameter, modern(hints[parameter.name])


# -- where Pydantic would call ----------------------------------------------------------------


def without_calls(schema: Any) -> Any:
    """Return the core schema ``schema`` with each call of a function replaced by making a `Call`.

    The same object if there are none. Classes are still called: they are the values' own types.

    Raises:
        OutputTypeError: functions of one name in one place, or a parameter without an annotation.
    """
    if isinstance(schema, dict):
        if _is_call(schema):
            return _reading(schema, is_named=False)
        if schema.get("type") == "union" and len(list(_calls(schema))) > 1:
            schema = _named(schema)
    return with_parts(schema, without_calls)


def _is_call(schema: Any) -> bool:
    return schema.get("type") == "call" and not isinstance(schema["function"], type)


def _calls(schema: Any) -> Iterator[Any]:
    """Yield the calls that may be at one place of the text."""
    kind = schema.get("type")
    if _is_call(schema):
        yield schema
    elif kind == "union":
        for choice in schema["choices"]:
            yield from _calls(choice[0] if isinstance(choice, tuple) else choice)
    elif kind in _WITHIN:
        yield from _calls(schema[_WITHIN[kind]])


def _named(schema: Any) -> CoreSchema:
    """Return ``schema`` with each call at its place named after its function."""
    by_name: dict[str, Any] = {}
    for call in _calls(schema):
        function = call["function"]
        name = name_of_function(function)
        if not name.isidentifier():
            raise OutputTypeError(
                f"One of the functions is named {name}, but the model chooses functions by name. "
                "Use def to give it a name."
            )
        if by_name.setdefault(name, function) != function:
            raise OutputTypeError(
                f"Two functions are both named {name!r}, so their calls cannot be distinguished. "
                "Wrap one of them in a function with another name."
            )
    return _with_names(schema)


def _with_names(schema: Any) -> CoreSchema:
    kind = schema.get("type")
    if _is_call(schema):
        return _reading(schema, is_named=True)
    if kind == "union":
        return {**schema, "choices": list(map(_choice_with_names, schema["choices"]))}
    if kind in _WITHIN:
        return {**schema, _WITHIN[kind]: _with_names(schema[_WITHIN[kind]])}
    unchanged: CoreSchema = schema
    return unchanged


def _choice_with_names(choice: Any) -> Any:
    if isinstance(choice, tuple):
        return _with_names(choice[0]), choice[1]
    if _is_call(choice):
        return _with_names(choice), CALL_OF + name_of_function(choice["function"])
    return _with_names(choice)


def _reading(schema: Any, *, is_named: bool) -> CoreSchema:
    """Return the core schema of a `Call`, from one that would run the call."""
    function: Callable[..., Any] = schema["function"]
    arguments = _arguments(schema["arguments_schema"], function)
    if not is_named:
        make = functools.partial(Call, function)
        return core_schema.no_info_after_validator_function(make, arguments)
    name = name_of_function(function)
    fields = {
        "name": core_schema.typed_dict_field(core_schema.literal_schema([name])),
        "arguments": core_schema.typed_dict_field(arguments),
    }
    return core_schema.no_info_after_validator_function(
        lambda value: Call(function, value["arguments"]),
        core_schema.typed_dict_schema(fields, extra_behavior="forbid"),
    )


def _arguments(schema: Any, function: Callable[..., Any]) -> CoreSchema:
    """Return the object of a call's arguments, each under its parameter's name."""
    signature = {parameter.name: parameter for parameter, _ in _parameters(function)}
    fields: dict[str, core_schema.TypedDictField] = {}
    for item in schema["arguments_schema"]:
        inner = without_calls(item["schema"])
        is_required = True
        if inner["type"] == "default":
            is_required = False
            if signature[item["name"]].default is not _EMPTY:
                inner = inner["schema"]  # the function has the default already
        fields[item["name"]] = core_schema.typed_dict_field(
            inner, required=is_required, validation_alias=item.get("alias")
        )
    for parameter in signature.values():
        if parameter.kind is Kind.VAR_POSITIONAL and "var_args_schema" in schema:
            items = without_calls(schema["var_args_schema"])
            fields[parameter.name] = core_schema.typed_dict_field(
                core_schema.list_schema(items), required=False
            )
        elif parameter.kind is Kind.VAR_KEYWORD and "var_kwargs_schema" in schema:
            inner = without_calls(schema["var_kwargs_schema"])
            is_required = False
            if schema.get("var_kwargs_mode") == "unpacked-typed-dict":
                held: Mapping[str, Any] = inner.get("fields", {})
                by_default = inner.get("total", True)
                is_required = any(one.get("required", by_default) for one in held.values())
            else:
                inner = core_schema.dict_schema(core_schema.str_schema(), inner)
            fields[parameter.name] = core_schema.typed_dict_field(inner, required=is_required)
    return core_schema.typed_dict_schema(fields, extra_behavior="forbid")
