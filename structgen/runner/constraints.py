"""The output type of a request: its form and its tools combined.

A request may state its form in several ways (``response_format``, ``grammar``, ``output_type``,
``tools``). This module checks that there is only one form, and says where in the request a schema
or grammar is wrong. It compiles nothing, because that needs a model.

It also reads tools in OpenAI's format, whether the dict comes from a request, a `Tool`, an MCP
server or a framework's adapter. Arguments may have only the members that the schema names.
``tool_choice`` is checked against the tools. `tools` runs them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from structgen.errors import OutputTypeError, RequestError, SchemaError, did_you_mean
from structgen.grammar.cfg import dialect_of
from structgen.grammar.json_schema import closed
from structgen.types import Cfg, Choice, JsonSchema, Regex, ToolCalls, cache_key, lower

from .fields import only, placed, shown
from .requests import ChatRequest, Sampled

_CHOICES = ("none", "auto", "required")


Offered: TypeAlias = tuple[Mapping[int, Any], str]
"""The tools that a chat may call, by their place in the request, without those that ``tool_choice``
excludes; and the choice in the form that `structgen.ToolCalls` takes."""


def offered(request: ChatRequest) -> Offered:
    """Return the tools of a request, read and checked.

    Raises:
        RequestError: an item is not a tool, or ``tool_choice`` does not fit the tools.
    """
    choice = request.tool_choice
    tools = {}
    for index, tool in enumerate(request.tools or ()):
        tools[index] = _read(tool, f"tools[{index}]") if isinstance(tool, Mapping) else tool
    if not tools:
        if choice not in (None, "none", "auto"):
            raise RequestError("tool_choice requires tools.", param="tool_choice")
        if request.parallel_tool_calls is not None and request.tools is None:
            raise RequestError("parallel_tool_calls requires tools.", param="parallel_tool_calls")
        return {}, "none"
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return tools, choice or "auto"
    return _chosen(tools, choice)


def name_of(tool: Any) -> str:
    """Return the name by which the model calls a tool; empty if it has none."""
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


def dialect(kind: str, grammar: str) -> str:
    """Return the notation of a grammar whose ``grammar_type`` is ``"lark"`` or ``"gbnf"``;
    llguidance's variant of Lark, which clients of vLLM and mistral.rs write, is recognised by a
    statement of its own."""
    is_guidance = kind == "lark" and dialect_of(grammar) == "llguidance"
    return "llguidance" if is_guidance else kind


def grammar_type_of(grammar: Any) -> Literal["lark", "gbnf"]:
    """Guess the ``grammar_type`` of a grammar from how its rules are written."""
    is_gbnf = isinstance(grammar, str) and dialect_of(grammar) in ("gbnf", "ebnf")
    return "gbnf" if is_gbnf else "lark"


def closed_function(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function as OpenAI's API has it, whose arguments are `closed`.

    Schemas of tools, written by hand or by a library, usually leave ``additionalProperties`` out
    and mean only the members they name. A model would write others, and the tool would fail.

    Raises:
        SchemaError: the parameters are not JSON.
    """
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping):
        return dict(function)
    return {**function, "parameters": closed_schema(parameters)}


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of arguments that is `closed`.

    Raises:
        SchemaError: the schema is not JSON.
    """
    given = JsonSchema(schema).shared
    if "properties" in given and "type" not in given:  # arguments are an object all the same
        given = {"type": "object", **given}
    made: dict[str, Any] = closed(given)
    return made


def _read(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    kind, at = tool.get("type"), f"{param}.type"
    if kind is None:
        raise RequestError(f"{at} is missing. It must be 'function'.", param=at, kind="missing")
    if kind != "function":
        message = f"{at}: {shown(kind)} is not supported. It must be 'function'."
        raise RequestError(message, param=at, kind="unsupported")
    if "function" not in tool and "name" in tool:
        raise RequestError(
            f"{param} has the /v1/responses format, with the name next to the type. A chat tool "
            'is {"type": "function", "function": {"name": …, "parameters": …}}.',
            param=f"{param}.function",
        )
    only(tool, {"type", "function"}, param)
    function = tool.get("function")
    param += ".function"
    if not isinstance(function, Mapping):
        raise RequestError(f"{param} is missing.", param=param, kind="missing")
    only(function, {"name", "description", "parameters", "strict"}, param)
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError(f"{param}.name is missing.", param=f"{param}.name", kind="missing")
    parameters = function.get("parameters")
    param += ".parameters"
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(f"{param} is not a JSON Schema for an object.", param=param)
    try:
        return {**tool, "function": closed_function(function)}
    except SchemaError as error:
        raise placed(error, param) from error


# -- which may be called ----------------------------------------------------------------------


def _chosen(tools: Mapping[int, Any], choice: Any) -> Offered:
    """Return the chosen tools if ``tool_choice`` names one or some."""
    names = {name_of(tool): tool for tool in tools.values()}
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "function":
        only(choice, {"type", "function", "name"}, "tool_choice")
        name = _named(choice, "tool_choice")
        _check_there(name, names, "tool_choice.function.name")
        if name not in _CHOICES:
            return tools, name
        return {i: tool for i, tool in tools.items() if name_of(tool) == name}, "required"
    if kind == "allowed_tools":
        param = "tool_choice"
        inner = choice.get("allowed_tools", choice)
        if inner is not choice:
            param += ".allowed_tools"
            only(choice, {"type", "allowed_tools"}, "tool_choice")
        if not isinstance(inner, Mapping):
            raise RequestError(f"{param} is not an object.", param=param)
        only(inner, {"type", "mode", "tools"}, param)
        mode = inner.get("mode", "auto")
        if mode not in ("auto", "required"):
            raise RequestError(f'{param}.mode must be "auto" or "required".', param=f"{param}.mode")
        listed = inner.get("tools")
        if not isinstance(listed, (list, tuple)) or not listed:
            raise RequestError(f"{param}.tools must be a list of tools.", param=f"{param}.tools")
        allowed = {}
        for index, one in enumerate(listed):
            at = f"{param}.tools[{index}]"
            if not isinstance(one, Mapping) or one.get("type") != "function":
                raise RequestError(f"{at} is not a function.", param=at)
            name = _named(one, at)
            _check_there(name, names, at)
            allowed[name] = at
        return {i: tool for i, tool in tools.items() if name_of(tool) in allowed}, mode
    is_name = isinstance(choice, str) and choice in names
    one = {"type": "function", "function": {"name": choice if is_name else "…"}}
    hint = "" if is_name else did_you_mean(choice, [*_CHOICES, *names])
    raise RequestError(
        f"tool_choice: {shown(choice)} is not supported. It must be {', '.join(_CHOICES)}, "
        f'{json.dumps(one, ensure_ascii=False)} or {{"type": "allowed_tools", …}}.{hint}',
        param="tool_choice",
    )


def _named(given: Mapping[str, Any], param: str) -> str:
    function = given.get("function", given)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise RequestError(f"{param}: function.name is missing.", param=f"{param}.function.name")
    return name


def _check_there(name: str, names: Iterable[str], param: str) -> None:
    if name not in names:
        raise RequestError(
            f"{param}: {name!r} is not one of the tools, which are {', '.join(names)}.", param=param
        )


_FORMATS = ("text", "json_object", "json_schema")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The form that a request asks for.

    Attributes:
        type: the output type; None: free text.
        key: equal for requests with the same form; None: not known, so nothing is cached.
        param: where in the request the form is.
        tools: the tools that may be called, by their place in the request.
    """

    type: Any = None
    key: Hashable = ()
    param: str = ""
    tools: Mapping[int, Any] = field(default_factory=dict)

    @property
    def answer_is_free(self) -> bool:
        """Whether an answer that is not a call of a tool is free text."""
        return self.type is None or self.param == "tools"


def wanted(request: Sampled) -> Wanted:
    """Return the form that a request asks for.

    Raises:
        RequestError: the form is unknown, or there are several.
    """
    answer = _answer(request)
    if not isinstance(request, ChatRequest):
        return answer
    tools, choice = offered(request)
    if not tools:
        return answer
    has_answer = answer.type is not None and choice in ("auto", "none")
    parallel = request.parallel_tool_calls
    try:
        # A syntax that has only one call has no parallel calls. None: as many as the syntax allows.
        type_ = ToolCalls(
            list(tools.values()),
            parallel=None if parallel else parallel,
            choice=choice,
            **({"answer": answer.type} if has_answer else {}),
            blank=not request._needs_text,
        )
    except OutputTypeError as error:
        raise RequestError(f"tools: {error}", param="tools") from error
    keys = tuple(_key(tool) for tool in tools.values())
    key: Hashable = None
    if None not in keys and (not has_answer or answer.key is not None):
        form = answer.key if has_answer else ()
        key = ("tools", keys, choice, type_.parallel, type_.blank, form)
    return Wanted(type_, key, answer.param or "tools", tools)


def _answer(request: Sampled) -> Wanted:
    """Return the form of an answer that is not a tool call."""
    given = [
        name
        for name in ("response_format", "grammar", "output_type")
        if getattr(request, name, None) is not None
    ]
    format_ = getattr(request, "response_format", None)
    if format_ is not None and _format(format_) is None:
        given.remove("response_format")
    if len(given) > 1:
        raise RequestError(
            f"{' and '.join(given)} both set the form of the output. Remove one of them.",
            param=given[1],
        )
    if request.grammar_type is not None and request.grammar is None:
        raise RequestError("grammar_type requires grammar=.", param="grammar_type")
    if not given:
        return Wanted()
    if given == ["output_type"]:
        return Wanted(request.output_type, _key(request.output_type), "output_type")
    if given == ["grammar"]:
        return _grammar(request)
    found = _format(format_)
    assert found is not None
    return found


def _format(given: Any) -> Wanted | None:
    """Return the output type of a ``response_format``; None: free text."""
    if isinstance(given, type):
        return Wanted(given, _key(given), "response_format")
    if not isinstance(given, Mapping):
        raise RequestError(
            f"response_format: {shown(given)} is not supported. Pass a class or an object with a "
            "type, such as {'type': 'json_schema', 'json_schema': …}.",
            param="response_format",
        )
    kind = given.get("type")
    if kind not in _FORMATS:
        raise RequestError(
            f"response_format.type: {kind!r} is not supported. It must be one of "
            f"{', '.join(_FORMATS)}.",
            param="response_format.type",
            kind="unsupported",
        )
    known = {"type", "json_schema"} if kind == "json_schema" else {"type"}
    only(given, known, "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return Wanted(JsonSchema({"type": "object"}), ("json_object",), "response_format")
    inner = given.get("json_schema")
    param = "response_format.json_schema"
    if not isinstance(inner, Mapping):
        raise RequestError(f"{param} is missing. Pass an object with a schema.", param=param)
    only(inner, {"name", "description", "schema", "strict"}, param)
    if "schema" not in inner:
        raise RequestError(f"{param}.schema is missing.", param=f"{param}.schema", kind="missing")
    if not isinstance(inner["schema"], (Mapping, bool)):
        # A text that names a file would make `JsonSchema` read that file on this machine.
        raise RequestError(f"{param}.schema is not a JSON Schema.", param=f"{param}.schema")
    return _schema(inner["schema"], f"{param}.schema")


def _schema(given: Any, param: str) -> Wanted:
    try:
        schema = JsonSchema(given)
    except SchemaError as error:
        raise placed(error, param) from error
    # A digest, because comparing schemas would write their text each time.
    digest = hashlib.sha256(schema.text.encode()).digest()
    return Wanted(schema, ("schema", digest), param)


def _grammar(request: Sampled) -> Wanted:
    kind, given, param = request.grammar_type, request.grammar, "grammar"
    if kind is None:
        raise RequestError(
            "grammar: set grammar_type= to regex, json_schema, lark, gbnf or choice.",
            param="grammar_type",
        )
    if kind == "json_schema":
        if not isinstance(given, (str, Mapping, bool)) or given == "":
            raise RequestError(
                "grammar: a JSON Schema must be an object or its JSON text.", param=param
            )
        # A text that begins with a blank is never taken for a file name.
        return _schema(f" {given}" if isinstance(given, str) else given, param)
    if kind == "choice":
        if not isinstance(given, (list, tuple)) or not given:
            raise RequestError("grammar: choices must be a list of at least one.", param=param)
        type_: Any = Choice(given)
        is_text = all(type(one) is str for one in given)
        return Wanted(type_, (kind, json.dumps(given)) if is_text else _key(type_), param)
    if not isinstance(given, str) or not given:
        raise RequestError(f"grammar: a {kind} grammar must be a string.", param=param)
    try:
        # A client must not be able to read files of this machine: no file name has two lines.
        type_ = Regex(given) if kind == "regex" else Cfg(f"{given}\n", dialect=dialect(kind, given))
    except OutputTypeError as error:
        raise placed(error, param) from error
    return Wanted(type_, (kind, given), param)


# -- errors -----------------------------------------------------------------------------------


def refusal(error: OutputTypeError, asked: Wanted) -> Exception:
    """Return the error for a form that cannot be enforced, with its place in the request."""
    cause = error.__cause__ if isinstance(error.__cause__, OutputTypeError) else error
    for at, tool in asked.tools.items():
        wrong: OutputTypeError | None = None
        if error.terminal == f"arguments of {name_of(tool)}":
            wrong = cause
        else:
            try:
                lower(ToolCalls([tool]))
            except OutputTypeError as found:
                wrong = found
        if wrong is not None:
            if isinstance(tool, Mapping):
                return placed(wrong, f"tools[{at}].function.parameters")
            return RequestError(f"tools[{at}]: {wrong}", param=f"tools[{at}]")
    if asked.tools and error.terminal is not None:
        error = cause  # the answer that stands beside calls
    if asked.param == "output_type":
        return error
    return placed(error, asked.param)


def _key(value: Any) -> Hashable:
    """Return a cache key for an output type or tool; None: it has none."""
    if isinstance(value, Mapping):
        try:
            return json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return None
    return cache_key(value)
