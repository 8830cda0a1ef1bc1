"""Tools: what a model may call, with name, description, and the type of its arguments.

Reads functions, classes and schemas as tools, and makes their `Call`. Knows no syntax of calls.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structgen.errors import OutputTypeError
from structgen.grammar import ir

from .schemas import JsonSchema
from .signatures import is_function
from .tool_arguments import Parameter
from .tool_calls import Call, name_of_function
from .user import OutputType
from .wrappers import without

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_FUNCTION_KEYS = ("type", "name", "description", "strict")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        name: its name for the model.
        description: its purpose, perhaps empty.
        output: the object of its arguments; parses to a `Call`.
        parameters: the object's members, if they are written one by one.
    """

    name: str
    description: str
    output: OutputType
    parameters: tuple[Parameter, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the format of OpenAI's API, for prompts."""
        assert isinstance(self.output.grammar, ir.Json)
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": without(self.output.grammar.schema, "$structgen"),
        }
        return {"type": "function", "function": function}


def read_tools(tools: Sequence[Any], lower: Callable[[Any], OutputType]) -> tuple[Tool, ...]:
    """Return the user's tools.

    Raises:
        OutputTypeError: one is not a tool, has no name, or has the name of another.
    """
    found: dict[str, Tool] = {}
    for value in tools:
        tool = _tool(value, lower)
        if not _NAME.fullmatch(tool.name):
            raise OutputTypeError(
                f"A tool is named {tool.name!r}, which is not a valid name. Use letters, digits "
                "and _ . : / - only; for a function, use def to give it such a name."
            )
        if tool.name in found:
            raise OutputTypeError(
                f"Two tools are both named {tool.name!r}, so their calls cannot be distinguished. "
                "Rename one of them."
            )
        found[tool.name] = tool
    return tuple(found.values())


def _tool(value: Any, lower: Callable[[Any], OutputType]) -> Tool:
    if is_function(value):
        output = lower(value)
        return Tool(name_of_function(value), _doc(value), output)
    if isinstance(value, type):
        output = _object(lower(value), value.__name__)
        made = _then(output, lambda given: _call_of_class(value, given))
        return Tool(value.__name__, _doc(value), made)
    if isinstance(value, JsonSchema):
        name = value.schema.get("title") if isinstance(value.schema, dict) else None
        return _of_schema(value, name, None, value, lower)
    if isinstance(value, Mapping):
        function = value.get("function", value)
        if isinstance(function, Mapping) and "name" in function:
            _check_keys(function)
            schema = function.get("parameters") or _NOTHING
            about = function.get("description")
            return _of_schema(JsonSchema(schema), function["name"], about, value, lower)
        return _tool(JsonSchema(value), lower)
    raise OutputTypeError(
        f"{value!r} is not a tool. Pass functions, classes, JsonSchema({{'title': ..., ...}}) or "
        "{'name': ..., 'description': ..., 'parameters': {...}}."
    )


def _check_keys(function: Mapping[Any, Any]) -> None:
    """Raise for a tool whose parameters are under another key, because it would have none."""
    others = [key for key in function if key not in _FUNCTION_KEYS]
    if "parameters" not in function and others:
        raise OutputTypeError(
            f"The tool {function['name']!r} has the key {others[0]!r} but no 'parameters'. Put "
            f"the schema of its arguments under 'parameters', or remove {others[0]!r} if it takes "
            "no arguments."
        )


def _of_schema(
    schema: JsonSchema, name: Any, description: Any, tool: Any, lower: Callable[[Any], OutputType]
) -> Tool:
    if not isinstance(name, str):
        raise OutputTypeError(
            f"{schema!r} has no name. Add a 'title', or pass {{'name': ..., 'parameters': "
            "{...}}."
        )
    if description is None and isinstance(schema.shared, Mapping):
        description = schema.shared.get("description")
    output = _object(lower(schema), name)
    named = _Named(name, tool)
    made = _then(output, lambda value: Call(named, value, made=(value,)))
    return Tool(name, str(description or ""), made)


def _object(output: OutputType, name: str) -> OutputType:
    """Return ``output``, which must be a JSON object."""
    grammar = output.grammar
    if isinstance(grammar, ir.Json) and isinstance(schema := grammar.schema, Mapping):
        if schema.get("type") == "object":
            return output
        if "type" not in schema and {"properties", "$ref"} & schema.keys():  # which allow more
            typed = ir.Json({"type": "object", **schema}, grammar.options)
            return OutputType(typed, output.parse, output.named, output.checked)
    raise OutputTypeError(f"The arguments of the tool {name} are not an object. Use a function.")


def _then(output: OutputType, make: Callable[[Any], Call]) -> OutputType:
    def parse(text: str) -> Call:
        return make(output.parse(text))

    return OutputType(output.grammar, parse, output.named, output.checked)


def _call_of_class(cls: type, value: Any) -> Call:
    if isinstance(value, Mapping):
        arguments = dict(value)
    elif hasattr(cls, "model_fields"):
        arguments = {name: getattr(value, name) for name in value.model_fields_set}
    else:
        names = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "_fields", ())
        arguments = {name: getattr(value, name) for name in names or vars(value)}
    return Call(cls, arguments, made=(value,))


class _Named:
    """The function of a `Call` for a tool that is only a schema."""

    def __init__(self, name: str, tool: Any) -> None:
        self.__name__ = name
        self.tool = tool

    def __repr__(self) -> str:
        return self.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and (self.__name__, self.tool) == (
            other.__name__,
            other.tool,
        )

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        """Return the arguments, because a schema cannot be called."""
        return arguments

    def __hash__(self) -> int:
        return hash(self.__name__)


def _doc(value: Any) -> str:
    while isinstance(value, functools.partial):
        value = value.func
    doc = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    # The generated docstring of a dataclass repeats its schema.
    if not doc or doc.startswith(f"{value.__name__}("):
        return ""
    return inspect.cleandoc(doc)
