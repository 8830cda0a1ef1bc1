"""The output type for tool calls, and the syntaxes of models: `ToolCalls`, `ToolSyntax`.

Checks the user's arguments before tools are read. A function parses to a `Call`; only the caller
can run it. A syntax comes from a model's chat template (`structgen.decoding`), otherwise it is
`NEUTRAL`. See `tools` (the tools) and `tool_grammar` (the texts and their calls).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from structgen.errors import OutputTypeError, did_you_mean

from .sums import Combining, Typed


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """A call that the model requests. structgen has not run it.

    Equal to another call of the same function with equal arguments. Can be pickled if the function
    can.

    Attributes:
        function: the function, method or `functools.partial` that was in the output type.
        arguments: the checked values by parameter name, without those that the model left out.
            ``*values`` is a list, ``**options`` a dict, each under its own name.
        made: the result of the call in a tuple, if validation made it, such as a class's instance.
            Empty: call the function.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    made: tuple[Any, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", MappingProxyType(dict(self.arguments)))

    @property
    def name(self) -> str:
        """The function's name, which is written if there are several functions."""
        return name_of_function(self.function)

    def call(self) -> Any:
        """Call the function with the arguments and return the result.

        Raises what the function raises. Await the result of an ``async`` function.
        """
        if self.made:
            return self.made[0]
        signature = inspect.signature(self.function)
        given = OrderedDict(
            (name, self.arguments[name]) for name in signature.parameters if name in self.arguments
        )
        bound = inspect.BoundArguments(signature, given)
        bound.apply_defaults()  # arguments before *values must be passed positionally, too
        return self.function(*bound.args, **bound.kwargs)

    __call__ = call

    def __hash__(self) -> int:
        return hash((self.function, *sorted(self.arguments)))  # values may not be hashable

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.function, dict(self.arguments), self.made)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"Call({self.name}({shown}))"


def name_of_function(function: Callable[..., Any]) -> str:
    """Return the name of a function, of a method, or of the function in a `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


CHOICES = ("auto", "required", "none")
"""The values of `ToolCalls.choice` besides a tool's name."""

_MAY_BE_NONE = ("auto", "none")


INDEX = "{index}"
"""Placeholder in texts of a `ToolSyntax` for the number of a call, counted over the conversation.
"""

IS_TEXT = "{string}"
"""Placeholder in texts of a `ParameterSyntax` for whether a value is a string: ``true`` or
``false``."""

_IN_PYTHON = {"true": "True", "false": "False", "null": "None"}
IN_JSON = {word: name for name, word in _IN_PYTHON.items()}


def with_words(text: str, words: Mapping[str, str]) -> str:
    """Return a value with other words, such as `IN_JSON`, outside strings."""
    tokens = rf'"(?:[^"\\]|\\.)*"|{"|".join(words)}'
    return re.sub(tokens, lambda found: words.get(found[0], found[0]), text)


@dataclass(frozen=True, slots=True)
class ParameterSyntax:
    """The syntax of arguments written one by one: each as ``before NAME between VALUE after``.

    Attributes:
        before: the text before a name.
        between: the text between a name and its value.
        after: the text after a value.
        again: the text between two arguments.
        values: ``"xml"``: strings as they are, without the closing tag, everything else as JSON; or
            ``"python"``: Python's literals.
    """

    before: str
    between: str
    after: str
    again: str = ""
    values: Literal["xml", "python"] = "xml"

    def __post_init__(self) -> None:
        if not self.between or not (self.after.strip() or self.values == "python"):
            raise OutputTypeError(
                f"{self!r}: between= must not be empty, and for XML, after= must close the value."
            )

    def written(self, name: str, value: Any) -> str:
        """Return an argument as it is written."""
        is_text = isinstance(value, str) and self.values == "xml"
        text = value if is_text else json.dumps(value, ensure_ascii=False)
        if self.values == "python":
            text = with_words(text, _IN_PYTHON)
        between = self.between.replace(IS_TEXT, json.dumps(is_text))
        return f"{self.before}{name}{between}{text}{self.after}"


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    r"""How a model writes calls: ``before NAME between ARGUMENTS after``.

    For several, ``again NAME between ARGUMENTS`` is repeated before ``after``. The arguments are a
    JSON object, unless ``parameters`` is given. Names of control tokens in the text mean these
    tokens, and `INDEX` any whole number.

    Attributes:
        marker: the start of ``before``. It begins a call, and free text never contains it. Empty:
            only the start of an answer can be a call.
        before: the text before the first name, such as ``<tool_call>\n{"name": "``.
        between: the text between a name and its arguments: ``", "arguments": ``.
        again: the text between two calls; None: the syntax has only one call.
        after: the text after the last call's arguments.
        known: whether the model's template, or a token of its vocabulary, shows the syntax.
        parameters: how arguments are written, if not as a JSON object; then ``between`` may be
            empty.
    """

    marker: str
    before: str
    between: str
    again: str | None
    after: str
    known: bool = True
    parameters: ParameterSyntax | None = None

    def __post_init__(self) -> None:
        has_between = self.between or self.parameters
        if not self.before.startswith(self.marker) or not self.before or not has_between:
            raise OutputTypeError(
                f"ToolSyntax: before={self.before!r} must begin with marker={self.marker!r}, and "
                "neither before= nor between= may be empty."
            )

    @classmethod
    def named(cls, name: str) -> ToolSyntax:
        """Return the syntax of a family of models, such as ``"kimi-k2"``: see docs/sections.md.

        Raises:
            OutputTypeError: unknown syntax.
        """
        if name not in DIALECTS:
            raise OutputTypeError(
                f"There is no tool syntax {name!r}.{did_you_mean(name, DIALECTS)} Known syntaxes: "
                f"{', '.join(DIALECTS)}."
            )
        return DIALECTS[name]

    def opening(self, name: str, before: str | None = None) -> str:
        """Return the text before the arguments of a tool, for the first call or a later one."""
        return f"{self.before if before is None else before}{name}{self.between}"

    def begins(self, names: Iterable[str], *, named: bool = False) -> tuple[str, ...]:
        """Return the texts with which only calls of these tools begin.

        ``named``: include the name of a tool, because values of a type may begin like the rest.
        """
        if self.parameters is None and not named:
            return (self.before.partition(INDEX)[0],)
        return tuple(self.opening(name).partition(INDEX)[0] for name in names)

    def example(self, name: str, arguments: str) -> str:
        """Return a call as it is written."""
        return self.written([(name, arguments)])

    def written(self, calls: Iterable[tuple[str, str]]) -> str:
        """Return the text of calls, given by names and arguments in JSON. If the syntax has no form
        for several, one after the other."""
        parts = []
        for number, (name, arguments) in enumerate(calls):
            before = (self.again or self.after + self.before) if number else None
            parts.append(self.opening(name, before).replace(INDEX, str(number)))
            parts.append(self._arguments(arguments))
        return "".join([*parts, self.after]) if parts else ""

    def _arguments(self, text: str) -> str:
        if self.parameters is None:
            return text
        try:
            given = json.loads(text).items()
        except (ValueError, RecursionError, AttributeError):
            return text  # it is not an object
        return self.parameters.again.join(itertools.starmap(self.parameters.written, given))


@dataclass(frozen=True, slots=True)
class ToolsOffered:
    """The tools for a prompt.

    Attributes:
        schemas: each tool as in OpenAI's API.
        syntax: how calls are written.
        instructions: see `ToolCalls`.
        rewritten: returns the output type in another syntax; None if the user chose one.
    """

    schemas: tuple[Mapping[str, Any], ...]
    syntax: ToolSyntax
    instructions: str | None = None
    rewritten: Callable[[ToolSyntax], Any] | None = field(default=None, repr=False, compare=False)


def _row(
    marker: str, *texts: str, joint: str = "", parameters: ParameterSyntax | None = None
) -> ToolSyntax:
    """Return a syntax, given its texts: before all calls; before a name, after it, and after a
    call; after all calls. ``joint`` is the text between two calls."""
    first, before, between, after, last = texts
    again = after + joint + before
    return ToolSyntax(marker, first + before, between, again, after + last, True, parameters)


def _dsml(block: str) -> ToolSyntax:
    """Return DeepSeek's XML syntax, with calls in a block of that name."""
    inside = ParameterSyntax(
        '\n<｜DSML｜parameter name="', f'" string="{IS_TEXT}">', "</｜DSML｜parameter>"
    )
    return _row(
        *(f"<｜DSML｜{block}>", f"<｜DSML｜{block}>", '\n<｜DSML｜invoke name="'),
        *('">', "\n</｜DSML｜invoke>", f"\n</｜DSML｜{block}>"),
        parameters=inside,
    )


_CALL, _NAME, _GIVEN = "<tool_call>", '{"name": "', '", "arguments": '
_LISTED = f'\n    {{"tool_call_id": "{INDEX}", "tool_name": "'
_HARMONY = "<|channel|>commentary to=functions."

DIALECTS: Mapping[str, ToolSyntax] = {
    "hermes": _row(_CALL, "", f"{_CALL}\n{_NAME}", _GIVEN, "}\n</tool_call>", "", joint="\n"),
    "llama-3": ToolSyntax("", _NAME, '", "parameters": ', None, "}"),
    "phi-4-mini": _row(
        "<|tool_call|>", "<|tool_call|>[", _NAME, _GIVEN, "}", "]<|/tool_call|>", joint=", "
    ),
    "mistral-v3": _row("[TOOL_CALLS]", "[TOOL_CALLS][", _NAME, _GIVEN, "}", "]", joint=", "),
    "mistral": _row("[TOOL_CALLS]", "", "[TOOL_CALLS]", "[ARGS]", "", ""),
    "deepseek-v3.1": _row(
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek-v3.2": _dsml("function_calls"),
    "deepseek-v4": _dsml("tool_calls"),
    "kimi-k2": _row(
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>"),
        *("<|tool_call_begin|>functions.", f":{INDEX}<|tool_call_argument_begin|>"),
        *("<|tool_call_end|>", "<|tool_calls_section_end|>"),
    ),
    "qwen3-coder": _row(
        *(_CALL, "", f"{_CALL}\n<function=", ">", "\n</function>\n</tool_call>", ""),
        joint="\n",
        parameters=ParameterSyntax("\n<parameter=", ">\n", "\n</parameter>"),
    ),
    "glm-4.5": _row(
        *(_CALL, "", _CALL, "", "\n</tool_call>", ""),
        joint="\n",
        parameters=ParameterSyntax("\n<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
    ),
    "glm-4.7": _row(
        *(_CALL, "", _CALL, "", "</tool_call>", ""),
        parameters=ParameterSyntax("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    ),
    "minimax-m2": _row(
        *("<minimax:tool_call>", "<minimax:tool_call>", '\n<invoke name="', '">'),
        *("\n</invoke>", "\n</minimax:tool_call>"),
        parameters=ParameterSyntax('\n<parameter name="', '">', "</parameter>"),
    ),
    "llama-4": _row(
        *("", "[", "", "(", ")", "]"),
        joint=", ",
        parameters=ParameterSyntax("", "=", "", ", ", "python"),
    ),
    # <|call|> ends the sequence, so there is only one call.
    "gpt-oss": ToolSyntax(_HARMONY, _HARMONY, " <|constrain|>json<|message|>", None, ""),
    "command": _row(
        *("<|START_ACTION|>", "<|START_ACTION|>[", _LISTED, '", "parameters": ', "}"),
        "\n]<|END_ACTION|>",
        joint=",",
    ),
}
"""The syntaxes of model families, by name."""

NEUTRAL = replace(DIALECTS["hermes"], known=False)
"""The syntax for models that show none: that of Hermes and Qwen, which many models know."""

PLAIN = (
    ToolSyntax("", '{"name": "', '", "arguments": ', '}\n{"name": "', "}"),
    ToolSyntax("", '```json\n{"name": "', '", "arguments": ', None, "}\n```"),
    ToolSyntax("", '```json\n{\n  "name": "', '",\n  "arguments": ', None, "\n}\n```"),
)
"""Syntaxes of calls without the model's markers: as JSON, or in a code fence."""


_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("parallel", (bool, type(None)), "neither a bool nor None"),
    ("text", (bool, type(None)), "neither a bool nor None"),
    ("choice", str, "neither 'auto', 'required', 'none' nor the name of a tool"),
    ("syntax", (ToolSyntax, type(None)), "not a ToolSyntax, such as ToolSyntax.named(name)"),
    ("instructions", (str, type(None)), "not a str"),
    ("plain", bool, "not a bool"),
    ("blank", bool, "not a bool"),
)
"""The allowed types of each argument of `ToolCalls`, with their description for messages."""


@dataclass(frozen=True, slots=True, repr=False)
class ToolCalls(Combining, Typed[list[str | Call]]):
    """Calls of tools in the model's own syntax, or free text instead of or before them.

    Parses to a list: nonempty text as a str, then a `structgen.Call` with checked arguments for
    each call. structgen does not run calls. With ``answer``: the calls, or one value of that type.

    Args:
        tools: functions with annotated parameters, classes (Pydantic's, dataclasses, `TypedDict`s),
            `JsonSchema`s of objects with a ``title``, or dicts as in OpenAI's API:
            ``{"type": "function", "function": {"name": ..., "parameters": {...}}}``.
        parallel: whether an answer may have several calls. None: if the syntax supports it.
        choice: ``"auto"``: free text, calls, or text and then calls; ``"required"``: at least one
            call; a tool's name: at least one call of it; or ``"none"``: free text, although the
            prompt describes the tools.
        text: whether free text may come before the calls; None: only with ``"auto"``.
        syntax: the syntax of calls; None: that of the model's chat template, otherwise `NEUTRAL`.
        instructions: a text for the system message of a chat: ``{tools}`` in it becomes their
            schemas, one per line, ``{example}`` a call. None: the chat template describes the tools
            or, if it cannot, a default text (`structgen.decoding.tools`); ``""``: nothing.
        answer: an output type instead of free text, with ``"auto"`` or ``"none"``; then no text
            comes before calls. None: free text.
        plain: if free text is allowed and calls have a marker: whether an answer that begins with a
            call of a tool in plain JSON, or fenced as code, is that call (`PLAIN`). Some models
            write these instead of their template's syntax. False: it is text.
        blank: whether free text without calls may be blank. False: it is not blank, and contains no
            call of a tool as JSON.

    Raises:
        OutputTypeError: an argument is invalid.
    """

    no_json = (
        "it is a separate output type. Inside JSON, use the function itself as the type of a "
        "call: list[greet]."
    )

    tools: Sequence[Any]
    parallel: bool | None = None
    choice: str = "auto"
    text: bool | None = None
    syntax: ToolSyntax | None = None
    instructions: str | None = None
    answer: Any = None
    plain: bool = True
    blank: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.tools, (str, Mapping)) or not isinstance(self.tools, Iterable):
            raise OutputTypeError(f"ToolCalls takes a list of tools, got {self.tools!r}.")
        object.__setattr__(self, "tools", tuple(self.tools))
        if not self.tools:
            raise OutputTypeError("ToolCalls needs at least one tool.")
        for name, kinds, wanted in _KINDS:
            if not isinstance(value := getattr(self, name), kinds):
                raise OutputTypeError(f"ToolCalls: {name}={value!r} is {wanted}.")
        if self.choice in _MAY_BE_NONE and self.text is False:
            raise OutputTypeError(
                f"ToolCalls: choice={self.choice!r} allows text instead of calls, but text=False "
                "forbids it. Write choice='required'."
            )
        if self.answer is not None and (self.choice not in _MAY_BE_NONE or self.text):
            raise OutputTypeError(
                "ToolCalls: answer= replaces free text, so it requires choice='auto' or 'none' "
                "and does not support text=True."
            )

    @property
    def may_be_text(self) -> bool:
        """Whether an answer may be free text alone."""
        return self.choice in _MAY_BE_NONE and self.answer is None

    @property
    def has_text(self) -> bool:
        """Whether free text may come before the calls."""
        return self.may_be_text if self.text is None else self.text

    def written_as(self, syntax: ToolSyntax) -> ToolCalls:
        """Return these calls with a syntax, unless they have one."""
        return self if self.syntax is not None else replace(self, syntax=syntax)

    def without_markers(self, syntax: ToolSyntax) -> tuple[ToolSyntax, ...]:
        """Return the other syntaxes in which an answer may begin with a call.

        Excludes syntaxes that contain the model's marker: there, a call in the model's syntax
        begins.
        """
        if not (self.plain and self.has_text and syntax.marker):
            return ()
        return tuple(one for one in PLAIN if not _begins_in(syntax.marker, one))

    def __repr__(self) -> str:
        shown = ", ".join(getattr(tool, "__name__", None) or repr(tool) for tool in self.tools)
        choice = "" if self.choice == "auto" else f", choice={self.choice!r}"
        parallel = "" if self.parallel is None else f", parallel={self.parallel}"
        plain = "" if self.plain else ", plain=False"
        plain += "" if self.blank else ", blank=False"
        answer = ""
        if self.answer is not None:
            named = isinstance(self.answer, type) and not get_args(self.answer)
            answer = f", answer={self.answer.__name__ if named else repr(self.answer)}"
        return f"ToolCalls([{shown}]{parallel}{choice}{answer}{plain})"


def _begins_in(marker: str, syntax: ToolSyntax) -> bool:
    """Return whether the text before arguments contains a marker, or ends with its start."""
    fixed = (syntax.before, syntax.between)
    starts = [marker[:n] for n in range(1, len(marker))]
    return any(marker in text for text in fixed) or syntax.between.endswith(tuple(starts))
