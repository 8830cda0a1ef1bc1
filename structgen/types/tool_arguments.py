"""Tool arguments that are not a JSON object: parameters one after another, each with its name.

Finds a tool's parameters and their possible values in such a form, and converts them to the JSON
object that they represent. So a tool's own type checks them in any form. In XML, a string is
written as it is, up to the closing tag, and everything else as JSON. If a value may be a string or
something else, text that looks like the latter is the latter: the text ``null`` for ``str | None``
is None. Python's literals are JSON with other words.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from structgen.errors import OutputTypeError, Unsatisfiable
from structgen.grammar import ir, json_schema
from structgen.grammar.json_schema import ANNOTATIONS, STRING, TYPE_BITS
from structgen.grammar.regex import parse_python, tree

from .tool_calls import IN_JSON, IS_TEXT, ParameterSyntax, ToolSyntax, with_words

_CLOSING = ("additionalProperties", "unevaluatedProperties")
_READ = ("type", "properties", "required")
_ASIDE = ("$defs", "definitions", "$schema", "$id", "$comment", *ANNOTATIONS)
_WHOLE = "structgen:tool"
_REFERS = re.compile(r"'\$(?:ref|dynamicRef|recursiveRef)'")
_OTHERS = {
    "null": ("n", "null"),
    "boolean": ("e", "true|false"),
    "number": ("0123456789", r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"),
    "array": ("[", r"\[[\s\S]*"),
    "object": ("{", r"\{[\s\S]*"),
}
"""Patterns for JSON values other than strings, and characters of which each value has at least one.
"""

_INSIDE = re.compile(r'["\\]')
BLANK_CHARACTERS = " \t\n\r"
NOT_BLANK = re.compile(rf"[^{BLANK_CHARACTERS}]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool.

    Attributes:
        name: its name.
        is_required: whether it is required.
        text: the strings that are written unquoted, or None.
        value: other values, in JSON or Python's literals, or None.
        looks: texts that are not strings, although strings are allowed; None: the syntax shows it.
    """

    name: str
    is_required: bool
    text: ir.Regex | None
    value: ir.Json | None
    looks: re.Pattern[str] | None = None


def read_parameters(tool: str, grammar: ir.Grammar, how: ParameterSyntax) -> tuple[Parameter, ...]:
    """Return the parameters of a tool in their order.

    Raises:
        OutputTypeError: the tool's arguments cannot be written in this form.
    """
    assert isinstance(grammar, ir.Json)
    root = schema = grammar.schema
    json_schema.lower(root, **grammar.options)  # so that references can be resolved
    place = ""
    wrong: list[str] = []
    seen: set[str] = set()
    while isinstance(schema, Mapping) and (to := schema.get("$ref", "")).startswith("#/"):
        wrong += [key for key in schema if key not in ("$ref", "type", *_ASIDE)]
        if to in seen:
            wrong.append("$ref")  # a cycle
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
    for keyword, value in schema.items():
        if not (keyword in _READ + _ASIDE or (keyword in _CLOSING and value is False)):
            wrong.append(keyword)
    if is_python:
        wrong += [one for one in (*names, *tool.split(".")) if not one.isidentifier()]
    wrong += [one for one in names if how.between[:1] in one or "\n" in one]
    if wrong:
        raise OutputTypeError(
            f"The tool {tool}: this model's syntax writes each argument separately, so "
            f"{wrong[0]!r} is not supported, at $. Describe each argument in 'properties', with a "
            "name of letters and digits, and remove other keywords; or pass "
            "syntax=ToolSyntax.named('hermes')."
        )
    found = []
    draft = json_schema.by_uri(root.get("$schema")) if isinstance(root, Mapping) else None
    for one, part in names.items():
        options = {**grammar.options, "spelling": "python"} if is_python else {**grammar.options}
        if draft is not None:
            options["dialect"] = draft.name
        if _REFERS.search(repr(part)):  # may refer to other places of the whole
            pointer = one.replace("~", "~0").replace("/", "~1").replace("%", "%25")
            part = {"$ref": f"{_WHOLE}#{place}/properties/{pointer}"}
            options["documents"] = {**options.get("documents", {}), _WHOLE: root}
        ways = _ways(ir.Json(part, options), how)
        found.append(Parameter(one, one in required, *ways))
    return tuple(found)


def _ways(
    grammar: ir.Json, how: ParameterSyntax
) -> tuple[ir.Regex | None, ir.Json | None, re.Pattern[str] | None]:
    """Return the fields of `Parameter` that describe its values."""
    # Imported here, because automata are a lot of code for users who only make types.
    from structgen.automaton.schema import StringReader, types_of

    reading = {key: setting for key, setting in grammar.options.items() if key != "spelling"}
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


class JsonArguments:
    """Reads the arguments of a call, a JSON object, in a growing text.

    Args:
        at: the start of the arguments, or of blanks before them.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self._begin = -1
        self._end = _End(at)

    def feed(self, text: str) -> tuple[str, int | None]:
        """Return the next part of the JSON, and its end, if known; ``text`` is the whole text so
        far."""
        first, self._at = self._at, len(text)
        if self._begin < 0 and (found := NOT_BLANK.search(text, first)):
            self._begin, self._end = found.start(), _End(found.end())
        closed = self._end.find(text) if self._begin >= 0 else None
        if closed is None or not self._end.is_json(text[self._begin : closed + 1]):
            return text[first:], None
        return text[first : closed + 1], closed + 1


class ParameterReader:
    """Reads the arguments of a call that are written one after another, in a growing text.

    Args:
        syntax: how calls are written.
        parameters: the tool's parameters.
        at: the start of the arguments.
    """

    def __init__(self, syntax: ToolSyntax, parameters: tuple[Parameter, ...], at: int) -> None:
        assert syntax.parameters is not None
        self._how = syntax.parameters
        self._ends = tuple(filter(None, (syntax.again, syntax.after)))
        self._left = list(parameters)
        self._at = at  # the start of the open value, or of what comes next
        self._looked = at  # the position from which a text may end
        self._open: Parameter | None = None
        self._is_text: bool | None = None  # None: not known yet
        self._end = _End(at)
        self._more = "{"  # returned next
        self._joint = ""

    def feed(self, text: str) -> tuple[str, int | None]:
        """Return the next part of their JSON object, and their end, if known; ``text`` is the whole
        text so far."""
        more, self._more = self._more, ""
        while self._open or not text.startswith(self._ends, self._at):
            value = self._value(text) if self._open or self._opens(text) else None
            if value is None:
                return more, None
            assert self._open is not None
            more += f"{self._joint}{json.dumps(self._open.name)}: {value}"
            self._open, self._joint = None, ", "
        return more + "}", self._at

    def _opens(self, text: str) -> bool:
        """Return whether a parameter begins."""
        how = self._how
        before = how.again + how.before if self._joint else how.before
        for one, flag in itertools.product(self._left, ("true", "false")):
            opening = before + one.name + how.between.replace(IS_TEXT, flag)
            if text.startswith(opening, self._at):
                self._at = self._looked = self._at + len(opening)
                self._open, self._end = one, _End(self._at, how.after or ",")
                self._left.remove(one)
                if IS_TEXT in how.between:
                    self._is_text = flag == "true"
                else:
                    self._is_text = None if how.values == "xml" else False
                return True
        return False

    def _value(self, text: str) -> str | None:
        """Return the open value as JSON; None if it is incomplete or invalid."""
        assert self._open is not None
        begin, after = self._at, self._how.after
        end: int | None = None
        if self._is_text is not False:
            end = text.find(after, self._looked)
            if end < 0:
                self._looked = max(begin, len(text) - len(after) + 1)
                return None
            if self._is_text is None:
                looks = self._open.looks
                is_other = self._open.text is None or (looks and looks.fullmatch(text, begin, end))
                self._is_text = not is_other
        if not self._is_text:
            end = self._end.find(text)
        if end is None:
            return None
        self._at, value = end + len(after), text[begin:end]
        if self._is_text:
            return json.dumps(value, ensure_ascii=False)
        value = value.strip(BLANK_CHARACTERS)
        if self._how.values == "python":
            return with_words(value, IN_JSON)
        return value if self._end.is_json(value) else None


class _End:
    """Finds the end of a value in JSON or Python's literals, in a growing text.

    The end is a mark outside strings and brackets, or the bracket that closes the value's
    surroundings. Reads each character once.
    """

    def __init__(self, at: int, mark: str = "") -> None:
        self._at = at
        self._behind = max(len(mark) - 1, 0)  # this much of a mark may be at the end
        self._outside = re.compile(rf'(")|([\[{{(])|([\]}})])|{re.escape(mark) or "(?!)"}')
        self._is_inside = False  # a string
        self._depth = 0

    def find(self, text: str) -> int | None:
        """Return the offset of the value's end, or None. Returns it only once."""
        while found := (_INSIDE if self._is_inside else self._outside).search(text, self._at):
            self._at = found.end()
            if found[0] == "\\":
                self._at += 1
            elif self._is_inside:
                self._is_inside = False
            elif found[1]:
                self._is_inside = True
            elif found[2]:
                self._depth += 1
            elif self._depth:
                self._depth -= bool(found[3])
            else:
                return found.start()
        self._at = max(self._at, len(text) - self._behind)
        return None

    def is_json(self, text: str) -> bool:
        """Return whether a text up to the end is JSON; if not, no end is found any more."""
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            self._at = sys.maxsize
            return False
        return True
