"""What the fields of a chat say of tools: which there are, and which of them may or must be called.

Owns tools as OpenAI's API has them, wherever such a dict comes from (a request, a `Tool`, a server
of tools, a framework's adapter): that it is one, and that its arguments have no members but those
that its schema names. Owns ``tool_choice``, held against the tools. What tools do is `tools`'
business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from structgen.errors import RequestError, SchemaError
from structgen.grammar.json_schema import closed
from structgen.types import JsonSchema

from .fields import only, placed
from .requests import ChatRequest

_CHOICES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that a chat may call.

    Attributes:
        tools: by their place in the request; those that ``tool_choice`` leaves out are left out.
        choice: as `structgen.ToolCalls` has it.
    """

    tools: Mapping[int, Any]
    choice: str


def offered(request: ChatRequest) -> Offered:
    """The tools of a request, read and checked.

    Raises:
        RequestError: one is none, or ``tool_choice`` does not go with them.
    """
    choice = request.tool_choice
    tools = {}
    for index, tool in enumerate(request.tools or ()):
        tools[index] = _read(tool, f"tools[{index}]") if isinstance(tool, Mapping) else tool
    if not tools:
        if choice not in (None, "none", "auto"):
            raise RequestError("tool_choice: there are no tools.", param="tool_choice")
        if request.parallel_tool_calls is not None and request.tools is None:
            raise RequestError(
                "parallel_tool_calls is of no use without tools.", param="parallel_tool_calls"
            )
        return Offered({}, "none")
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in _CHOICES:
            raise RequestError(
                f"tool_choice: {choice!r} is not one of {', '.join(_CHOICES)}.", param="tool_choice"
            )
        return Offered(tools, choice or "auto")
    return _chosen(tools, choice)


def name_of(tool: Any) -> str:
    """What the model calls a tool; empty where it has no name."""
    if isinstance(tool, Mapping):
        function = tool.get("function", tool)
        return str(function.get("name", "")) if isinstance(function, Mapping) else ""
    if isinstance(tool, JsonSchema):
        shared = tool.shared
        return str(shared.get("title", "")) if isinstance(shared, Mapping) else ""
    while hasattr(tool, "func"):  # functools.partial
        tool = tool.func
    return str(getattr(tool, "__name__", type(tool).__name__))


# -- one tool ---------------------------------------------------------------------------------


def closed_function(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function as OpenAI's API has it, whose arguments are `closed`.

    Those who write such schemas, by hand or by a library, leave ``additionalProperties`` out and
    mean what they name: a model would write others, and code that is called with them fails.

    Raises:
        SchemaError: the parameters are no JSON.
    """
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping):
        return dict(function)
    return {**function, "parameters": closed_schema(parameters)}


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of arguments that is `closed`.

    Raises:
        SchemaError: it is no JSON.
    """
    given = JsonSchema(schema).shared
    if "properties" in given and "type" not in given:  # arguments are an object, all the same
        given = {"type": "object", **given}
    made: dict[str, Any] = closed(given)
    return made


def _read(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise RequestError(
            f"{param}.type: {tool.get('type')!r} is not supported. It is 'function'.",
            param=f"{param}.type",
        )
    if "function" not in tool and "name" in tool:
        raise RequestError(
            f"{param} has its name beside its type, as /v1/responses takes tools. A chat takes "
            '{"type": "function", "function": {"name": …, "parameters": …}}.',
            param=f"{param}.function",
        )
    only(tool, {"type", "function"}, param)
    function = tool.get("function")
    param += ".function"
    if not isinstance(function, Mapping):
        raise RequestError(f"{param} is missing.", param=param)
    only(function, {"name", "description", "parameters", "strict"}, param)
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError(f"{param}.name is missing.", param=f"{param}.name")
    parameters = function.get("parameters")
    param += ".parameters"
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(f"{param} is no JSON Schema of an object.", param=param)
    try:
        return {**tool, "function": closed_function(function)}
    except SchemaError as error:
        raise placed(error, param) from error


# -- which may be called ----------------------------------------------------------------------


def _chosen(tools: Mapping[int, Any], choice: Any) -> Offered:
    """The tools, where one or some are named."""
    names = {name_of(tool): tool for tool in tools.values()}
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "function":
        only(choice, {"type", "function", "name"}, "tool_choice")
        name = _named(choice, "tool_choice")
        _check_there(name, names, "tool_choice.function.name")
        return Offered(tools, name)
    if kind == "allowed_tools":
        param = "tool_choice"
        inner = choice.get("allowed_tools", choice)
        if inner is not choice:
            param += ".allowed_tools"
            only(choice, {"type", "allowed_tools"}, "tool_choice")
        if not isinstance(inner, Mapping):
            raise RequestError(f"{param} is no object.", param=param)
        only(inner, {"type", "mode", "tools"}, param)
        mode = inner.get("mode", "auto")
        if mode not in ("auto", "required"):
            raise RequestError(f"{param}.mode is auto or required.", param=f"{param}.mode")
        listed = inner.get("tools")
        if not isinstance(listed, (list, tuple)) or not listed:
            raise RequestError(f"{param}.tools is a list of tools.", param=f"{param}.tools")
        allowed = {}
        for index, one in enumerate(listed):
            at = f"{param}.tools[{index}]"
            if not isinstance(one, Mapping) or one.get("type") != "function":
                raise RequestError(f"{at} is no function.", param=at)
            name = _named(one, at)
            _check_there(name, names, at)
            allowed[name] = at
        return Offered({i: tool for i, tool in tools.items() if name_of(tool) in allowed}, mode)
    raise RequestError(
        "tool_choice is none, auto, required, "
        '{"type": "function", "function": {"name": ...}} or {"type": "allowed_tools", ...}.',
        param="tool_choice",
    )


def _named(given: Mapping[str, Any], param: str) -> str:
    function = given.get("function", given)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise RequestError(f"{param}: there is no function.name.", param=f"{param}.function.name")
    return name


def _check_there(name: str, names: Iterable[str], param: str) -> None:
    if name not in names:
        raise RequestError(
            f"{param}: {name!r} is none of the tools, which are {', '.join(names)}.", param=param
        )
