"""Arguments of tools that are no JSON object: parameters one after another, each by its name.

Says which parameters a tool has and which values each may have in such a form, and turns them into
the JSON object that they stand for. So a tool's own type checks them in any form. In XML a string
stands as it is, up to the closing tag, and everything else as JSON. Where a string or something
else may stand, text that looks like the other is the other: the text ``null`` of ``str | None`` is
None. Python's literals are JSON with other words.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from structgen.errors import OutputTypeError, Unsatisfiable
from structgen.grammar import ir, json_schema
from structgen.grammar.json_schema import STRING, TYPE_BITS
from structgen.grammar.regex import parse_python, tree

from .tool_calls import IS_TEXT, ParameterSyntax, ToolSyntax

_CLOSING = ("additionalProperties", "unevaluatedProperties")
_READ = ("type", "properties", "required")
_ASIDE = (
    *("$defs", "definitions", "$schema", "$id"),
    *("title", "description", "default", "examples", "$comment", "deprecated"),
)
_WHOLE = "structgen:tool"
_OTHERS = {
    "null": ("n", "null"),
    "boolean": ("e", "true|false"),
    "number": ("0123456789", r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"),
    "array": ("[", r"\[[\s\S]*"),
    "object": ("{", r"\{[\s\S]*"),
}
"""What values in JSON that are no strings look like, and characters of which each has one."""

_PYTHON = re.compile(r'("(?:[^"\\]|\\.)*")|([\[({])|([\])}])|[,:]|[^"\[\](){},:]+')
BLANK_CHARACTERS = " \t\n\r"
_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool.

    Attributes:
        name: its name.
        is_required: whether it is required.
        text: the strings that are written as they are, or None.
        value: other values, in JSON or Python's literals, or None.
        looks: texts that are no string, although there may be strings; None: the syntax shows it.
    """

    name: str
    is_required: bool
    text: ir.Regex | None
    value: ir.Json | None
    looks: re.Pattern[str] | None = None


def read_parameters(tool: str, grammar: ir.Grammar, how: ParameterSyntax) -> tuple[Parameter, ...]:
    """The parameters of a tool in their order.

    Raises:
        OutputTypeError: arguments of the tool cannot be written so.
    """
    assert isinstance(grammar, ir.Json)
    root = schema = grammar.schema
    json_schema.lower(root, **grammar.options)  # so that references lead somewhere
    place = ""
    wrong: list[str] = []
    seen: set[str] = set()
    while isinstance(schema, Mapping) and (to := schema.get("$ref", "")).startswith("#/"):
        wrong += [key for key in schema if key not in ("$ref", "type", *_ASIDE)]
        if to in seen:
            wrong.append("$ref")  # round in a circle
            break
        seen.add(to)
        place, schema = to[1:], root
        for step in unquote(place).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            schema = schema[int(step) if isinstance(schema, list) else step]
    if not isinstance(schema, Mapping):
        schema = {"$ref": schema}
    names, required = schema.get("properties", {}), schema.get("required", ())
    is_python = how.values == "python"
    wrong += [key for key in required if key not in names]
    for keyword, said in schema.items():
        if not (keyword in _READ + _ASIDE or (keyword in _CLOSING and said is False)):
            wrong.append(keyword)
    if is_python:
        wrong += [one for one in (*names, *tool.split(".")) if not one.isidentifier()]
    wrong += [one for one in names if how.between[:1] in one or "\n" in one]
    if wrong:
        raise OutputTypeError(
            f"The tool {tool}: in this model's syntax each argument stands by itself, which leaves "
            f"no way to write {wrong[0]!r}, at $. Describe every argument in 'properties', by a "
            "name of letters and digits, and say nothing else of all of them; or pass "
            "syntax=ToolSyntax.named('hermes')."
        )
    found = []
    for one, part in names.items():
        options = {**grammar.options, "spelling": "python"} if is_python else {**grammar.options}
        if "$ref" in repr(part):  # which leads to other places of the whole
            pointer = one.replace("~", "~0").replace("/", "~1").replace("%", "%25")
            part = {"$ref": f"{_WHOLE}#{place}/properties/{pointer}"}
            options["documents"] = {**options.get("documents", {}), _WHOLE: root}
        ways = _ways(ir.Json(part, options), how)
        found.append(Parameter(one, one in required, *ways))
    return tuple(found)


def _ways(
    grammar: ir.Json, how: ParameterSyntax
) -> tuple[ir.Regex | None, ir.Json | None, re.Pattern[str] | None]:
    """What `Parameter` has of its values."""
    # Only now: automata are a lot of code to those who have types only.
    from structgen.automaton.schema import StringReader, types_of

    reading = {key: said for key, said in grammar.options.items() if key != "spelling"}
    graph = json_schema.lower(grammar.schema, **reading)
    types = types_of(graph.nodes, graph.root)
    text = StringReader(graph.nodes).read(graph.root) if types & STRING else None
    if text is None or how.values == "python":
        return None, grammar, None

    def of(kinds: list[str]) -> ir.Json:
        return ir.Json({"allOf": [grammar.schema], "type": kinds}, grammar.options)

    # `types_of` does not look into enums.
    others = [kind for kind in _OTHERS if TYPE_BITS[kind] & types and _is_possible(of([kind]))]
    if not others:
        return text, None, None
    value = of(others)
    if not _is_possible(ir.Pattern(text)):
        return None, value, None
    if IS_TEXT in how.between:
        return text, value, None
    has, like = zip(*(_OTHERS[kind] for kind in others), strict=True)
    looks = rf"[ \t\n\r]*(?:{'|'.join(like)})[ \t\n\r]*"
    if not all(tree.lacks(text, char) for char in "".join(has)):
        text = tree.intersect((text, tree.complement(parse_python(looks))))
    return text, value, re.compile(looks)


def _is_possible(grammar: ir.Grammar) -> bool:
    from structgen.automaton import build

    try:
        build(grammar, {})
    except Unsatisfiable:
        return False
    return True


def read_arguments(
    syntax: ToolSyntax, parameters: tuple[Parameter, ...], text: str, at: int
) -> tuple[str, int | None]:
    """The JSON object of a call's arguments so far, and where they end, if they do."""
    how = syntax.parameters
    assert how is not None
    left = list(parameters)
    ends = tuple(filter(None, (syntax.again, syntax.after)))
    told = ""
    while not text.startswith(ends, at):
        before = how.before if not told else how.again + how.before
        for one, is_text in itertools.product(left, ("true", "false")):
            opening = before + one.name + how.between.replace(IS_TEXT, is_text)
            if text.startswith(opening, at):
                break
        else:
            return "{" + told, None
        is_said = is_text == "true" if IS_TEXT in how.between else None
        value, end = _value(how, one, text, at + len(opening), is_said)
        if end is None:
            return "{" + told, None
        told += f"{', ' if told else ''}{json.dumps(one.name)}: {value}"
        left.remove(one)
        at = end
    return "{" + told + "}", at


def _value(
    how: ParameterSyntax, one: Parameter, text: str, at: int, is_text: bool | None
) -> tuple[str, int | None]:
    """A value as JSON, and where what closes it ends; None where that is not there."""
    if how.values == "python":
        depth, told = 0, ""
        for token in _PYTHON.finditer(text, at):
            depth += bool(token[2]) - bool(token[3])
            if depth < 0 or (not depth and token[0] == ","):
                return told, token.start()
            told += _WORDS.get(token[0].strip(), token[0])
        return "", None
    end = text.find(how.after, at)
    if end < 0:
        return "", None
    if is_text is None:
        is_text = one.text is not None and not (one.looks and one.looks.fullmatch(text, at, end))
    if is_text:
        return json.dumps(text[at:end], ensure_ascii=False), end + len(how.after)
    begin = end - len(text[at:end].lstrip(BLANK_CHARACTERS))
    try:  # once: many that close it may stand in its strings
        last = json.JSONDecoder().raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return "", None
    end = text.find(how.after, last)
    is_whole = end >= 0 and not text[last:end].strip(BLANK_CHARACTERS)
    return (text[begin:last], end + len(how.after)) if is_whole else ("", None)
