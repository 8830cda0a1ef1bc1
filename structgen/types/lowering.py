"""Turn Python types, and everything else that users may write, into a grammar and a parser.

The rule: *a scalar is bare text, everything else is JSON*. Scalars whose JSON is a string (dates,
UUIDs, constrained ``str``) are written without quotes; numbers, booleans and None as in JSON; a
union of scalars is any of these texts. This module recognises each kind of type. `dispatch` lowers
`JsonSchema` and patterns, `json_types` makes schemas of types, `user` handles finite sets,
`signatures` functions.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)

from structgen.errors import (
    CompileLimitExceeded,
    GrammarError,
    OutputTypeError,
    ParseError,
    Unsatisfiable,
    UnsupportedFeature,
)
from structgen.grammar import cfg, ir, regex
from structgen.grammar.json_schema import ANNOTATIONS
from structgen.grammar.regex import algebra as regex_algebra
from structgen.grammar.regex import tree as regex_tree
from structgen.types.captures import Capturing
from structgen.types.joined import joined_type, repeated_type, template_type
from structgen.types.json_types import JsonType, adapter_of, json_type
from structgen.types.names import annotated, name_of, refers_to_itself, unwrapped
from structgen.types.records import modern
from structgen.types.regexes import Regex, TextPattern
from structgen.types.schemas import JsonSchema, is_plainly_schema
from structgen.types.signatures import is_function, one_of
from structgen.types.sums import AnyOf, Combining, Joined, Repeated
from structgen.types.tagged import tagged_type, whole_of
from structgen.types.tags import Tagged, TaggedText
from structgen.types.templates import Template
from structgen.types.tool_calls import ToolCalls
from structgen.types.tool_grammar import tool_calls_type
from structgen.types.user import (
    Cfg,
    Choice,
    OutputType,
    SpecialToken,
    all_checked,
    choice_type,
    fitted_parts,
)
from structgen.types.wrappers import lower_pattern, lower_schema

_VALIDATORS = (AfterValidator, BeforeValidator, PlainValidator, WrapValidator)
_FIRST = {
    "integer": "-0123456789",
    "number": "-0123456789",
    "boolean": "tf",
    "null": "n",
    "string": '"',
    "array": "[",
    "object": "{",
}
"""The first characters of a value in JSON, by type."""

_JSON_SCALARS = ("integer", "number", "boolean", "null")
_STRING_KEYWORDS = frozenset(
    ("type", "enum", "pattern", "minLength", "maxLength", "allOf", regex_algebra.KEYWORD)
)


def lower(output_type: Any) -> OutputType:
    """See `dispatch.lower`, which uses this for most types."""
    if isinstance(output_type, OutputType):
        return output_type
    name = name_of(output_type)
    if refers_to_itself(output_type):
        return _lower_json(output_type, name)  # identified by its name, not by its value
    by_value = _lower_value(output_type, name)
    if by_value is not None:
        return by_value
    output_type = modern(unwrapped(output_type))
    origin = get_origin(output_type)
    if origin is Literal:
        return choice_type(get_args(output_type), name)
    if isinstance(output_type, enum.EnumMeta):
        return choice_type(list(output_type), name)
    if origin is Union or isinstance(output_type, types.UnionType):
        return _lower_union(output_type, get_args(output_type), name)
    if origin is Annotated:
        return _lower_annotated(output_type, name)
    if is_function(output_type):
        return _lower_json(output_type, name)
    return _lower_by_schema(output_type, name)


def _lower_value(value: Any, name: str) -> OutputType | None:
    """Return the output type of an object that is no Python type; None for any other ``value``."""
    if isinstance(value, TextPattern):
        return lower_pattern(value, name)
    if isinstance(value, re.Pattern):
        return lower_pattern(Regex(value), name)
    if isinstance(value, JsonSchema):
        return lower_schema(value)
    if isinstance(value, Cfg):
        given = {name: _terminal(name, item) for name, item in value.terminals}
        grammar = cfg.parse(value.text, value.start, value.dialect, value.path, given)
        locate = functools.partial(cfg.locate, value.text, value.dialect, value.path)
        parse = Capturing(grammar, name) if grammar.captures else str
        return OutputType(grammar, parse, name, locate=locate)
    if isinstance(value, Joined):
        return joined_type(value, name, lower)
    if isinstance(value, Repeated):
        return repeated_type(value, name, lower)
    if isinstance(value, Template):
        return template_type(value, name, lower)
    if isinstance(value, AnyOf):
        return _lower_union(value, value.members, name)
    if isinstance(value, (Tagged, TaggedText)):
        return tagged_type(value, name, lower)
    if isinstance(value, ToolCalls):
        return tool_calls_type(value, name, lower)
    if isinstance(value, SpecialToken):
        raise OutputTypeError(
            f"{value!r} is not an output type on its own. Use the token in a grammar: Cfg('start: "
            f"TOKEN', terminals={{'TOKEN': {value!r}}})."
        )
    if isinstance(value, Choice):
        return choice_type(value.items, name)
    if isinstance(value, TypeAdapter):
        return _lower_json(value, name)
    if (
        isinstance(value, BaseModel)
        or (isinstance(value, tuple) and hasattr(value, "_fields"))
        or (
            dataclasses.is_dataclass(value)
            and not isinstance(value, type)
            and not hasattr(value, "__get_pydantic_core_schema__")  # `recent_date` returns one
        )
    ):
        raise OutputTypeError(
            f"{name} is a value, not a type. Pass its class instead: {type(value).__name__}."
        )
    if isinstance(value, (list, tuple, set, frozenset)):
        items = Choice(value).items
        if items and all(map(is_function, items)):
            return _lower_json(one_of(items), name)
        return choice_type(items, name)
    if isinstance(value, Mapping):
        if is_plainly_schema(value):
            return lower_schema(JsonSchema(value))
        if value.keys() & {"openapi", "swagger"}:
            raise OutputTypeError(
                "An OpenAPI document has many schemas. Choose one: "
                'JsonSchema.from_openapi(document, "POST /pets").'
            )
        raise OutputTypeError(
            "This dict is ambiguous: it has keys that are not JSON Schema keywords, or no "
            "characteristic keyword. For a JSON Schema, write JsonSchema({...}). For named "
            "fields, define a TypedDict or a Pydantic model."
        )
    if callable(getattr(value, "to_schema", None)) and any(
        cls.__module__.partition(".")[0] == "genson" for cls in type(value).__mro__
    ):  # GenSON's builder, which infers schemas from examples
        return lower_schema(JsonSchema(value.to_schema()))
    if isinstance(value, os.PathLike):
        raise OutputTypeError(
            f"{value!r} is a file path, not a type. Write JsonSchema({value!r}) for a schema in "
            f"that file, or Cfg({value!r}) for a grammar."
        )
    if isinstance(value, str):
        raise OutputTypeError(
            f"The string {value!r} is not an output type. Write Regex({value!r}) for a regular "
            f"expression, JsonSchema(...) for a schema, or Choice([{value!r}]) for exactly this "
            "text."
        )
    if isinstance(value, (int, float, bytes, enum.Enum)):
        raise OutputTypeError(
            f"{value!r} is a value, not a type. Write Choice([{value!r}]) for exactly this value, "
            f"or {type(value).__name__} for any value of its type."
        )
    return None


def _terminal(name: str, value: Any) -> str | ir.Embedded | ir.SpecialToken:
    """Return a terminal of a grammar for a value of ``terminals=``."""
    if isinstance(value, str):
        return value
    if isinstance(value, SpecialToken):
        return ir.SpecialToken(value.text)
    try:
        grammar = lower(value).grammar
    except CompileLimitExceeded as error:
        raise error.inside(f"Terminal {name} cannot be used") from error
    except OutputTypeError as error:
        raise GrammarError(f"Terminal {name} cannot be used: {error}") from error
    if ir.has_rules(grammar):
        raise GrammarError(
            f"Terminal {name} is a grammar, which terminals= does not support. Copy its rules "
            "into this grammar (structgen grammars show NAME prints library grammars), or %import "
            "them."
        )
    return ir.Embedded(f"terminal {name}", grammar)


def _lower_json(output_type: Any, name: str, part: JsonType | None = None) -> OutputType:
    part = part or json_type(output_type, name)
    return OutputType(ir.Json(part.schema), part.parse, name, part.checked, values=part.values)


def _lower_by_schema(output_type: Any, name: str) -> OutputType:
    """Lower any other type that Pydantic knows: to bare text if its JSON is a string, otherwise to
    JSON."""
    json_part = json_type(output_type, name)
    schema, kind = json_part.schema, json_part.schema.get("type")
    base = output_type
    while get_origin(base) is Annotated:
        base = unwrapped(get_args(base)[0])
    if base is Decimal:
        text = schema.get("anyOf", [schema])[-1]
        if text.get("type") != "string":
            # From text, because a JSON number would become a float and lose digits.
            return OutputType(ir.Json(schema), json_part.parse_string, name, json_part.checked)
        schema, kind = text, "string"
    is_model = isinstance(output_type, type) and issubclass(output_type, BaseModel)
    if kind == "string" and not is_model:
        pattern, parse = _string_pattern(schema, name), json_part.parse_string
        return OutputType(pattern, parse, name, json_part.checked, values=json_part.values)
    return _lower_json(output_type, name, json_part)


def _string_pattern(schema: Mapping[str, Any], name: str) -> ir.Pattern:
    """Return the bare texts whose JSON string is valid under a string schema."""
    parts: list[ir.Regex] = []
    for rule in (schema, *schema.get("allOf", ())):
        for keyword in rule.keys() - ANNOTATIONS - _STRING_KEYWORDS:
            raise UnsupportedFeature(
                f"{name} cannot be written as plain text: its keyword {keyword!r} "
                f"({rule[keyword]!r}) is not supported there, at $.",
                keyword=keyword,
                fix="Use Regex(...) instead.",
            )
        if "enum" in rule:
            parts.append(regex_tree.alternate(map(ir.literal, rule["enum"])))
        if "pattern" in rule:
            parts.append(regex.parse_ecma(rule["pattern"]))
        if regex_algebra.KEYWORD in rule:
            parts.append(regex_algebra.lower(rule[regex_algebra.KEYWORD]))
        least, most = rule.get("minLength", 0), rule.get("maxLength")
        if most is not None and most < least:
            raise Unsatisfiable(
                f"no text satisfies {name}: minLength {least} is greater than maxLength {most}, "
                "at $."
            )
        if "minLength" in rule or "maxLength" in rule:
            parts.append(ir.Repeat(ir.ANY_CHAR, least, most))
    if not parts:
        return ir.Pattern(ir.ANY_TEXT, source="any text")
    whole = parts[0] if len(parts) == 1 else ir.Intersect(tuple(parts))
    return ir.Pattern(whole, source=str(schema.get("pattern", name)))


def _lower_union(
    output_type: Any, members: Sequence[Any], name: str, constraints: Sequence[Any] = ()
) -> OutputType:
    """Lower a union. Only scalars: any of their bare texts. With a container: one JSON schema.

    In unions of structgen's own output types, or with one of them, each member is written as it
    would be alone: its bare text, or its JSON.
    """
    is_apart = isinstance(output_type, AnyOf) or any(
        isinstance(unwrapped(member), (Combining, TextPattern)) for member in members
    )
    if not is_apart and any(map(_is_container, members)):
        return _lower_json(output_type, name)
    # Beside an output type, a string is literal text, as in a sum.
    members = [Choice((member,)) if isinstance(member, str) else member for member in members]
    functions = [member for member in members if is_function(member)]
    if len(functions) > 1:  # their calls are distinguished by name
        first = members.index(functions[0])
        others = [member for member in members if not is_function(member)]
        members = [*others[:first], functions, *others[first:]]
    # A constraint on a union applies to each member except None.
    parts = [
        lower(annotated(member, constraints))
        if constraints and member is not type(None)
        else lower(member)
        for member in members
    ]
    if not is_apart and all(isinstance(part.grammar, ir.Json) for part in parts):
        return _lower_json(output_type, name)
    if any(part.offered is not None for part in parts):
        raise OutputTypeError(
            f"{name}: ToolCalls describes a complete answer in the model's own syntax and cannot "
            "be part of a union. Use ToolCalls(...) on its own; it already allows text instead of "
            "calls."
        )
    return _any_of(parts, name)


def _any_of(parts: Sequence[OutputType], name: str) -> OutputType:
    """Return the output type of a text of any of ``parts``."""
    # Parts that accept any text come last; before them those that accept nearly any: text with
    # tags.
    readers = [_exact(part) for part in sorted(parts, key=_takes_most)]

    def parse(text: str) -> Any:
        failures = []
        for read in readers:
            try:
                return read(text)
            except ParseError as error:
                failures.append(str(error))
        raise ParseError(
            f"The text matches none of the types in {name}:\n  " + "\n  ".join(failures), text=text
        )

    return OutputType(
        ir.Either(tuple(part.grammar for part in parts)),
        parse,
        name,
        all_checked(parts),
        fitted=fitted_parts(parts, lambda fit: _any_of(fit, name)),
    )


def _takes_most(part: OutputType) -> int:
    """Return the sort key for trying a part: the more texts it accepts, the later."""
    if isinstance(part.grammar, ir.Pattern) and part.grammar.regex == ir.ANY_TEXT:
        return 3
    return (2 if part.parse is str else 1) if ir.has_rules(part.grammar) else 0


def _exact(part: OutputType) -> Callable[[str], Any]:
    """Return a strict parser for a union's part: numbers only from numbers, objects only from
    objects.

    Pydantic alone would parse ``true`` as 1, and 1 as True; a `JsonSchema` parses any JSON; and a
    pattern's own parser accepts any text.
    """
    grammar = part.grammar
    first, is_whole = "", None
    if isinstance(grammar, (ir.Pattern, ir.Choice)) and part.parse is str:
        is_whole = whole_of(grammar)
    elif isinstance(grammar, ir.Json) and isinstance(grammar.schema, Mapping):
        kinds = grammar.schema.get("type", ())
        first = "".join(_FIRST[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds))
    if is_whole is None and not first:
        return part.parse

    def parse(text: str) -> Any:
        if not (is_whole(text) if is_whole else text.lstrip()[:1] in first):
            raise ParseError(f"The text does not match {part.name}. Text: {text!r}", text=text)
        return part.parse(text)

    return parse


def _is_container(member: Any) -> bool:
    try:
        grammar = lower(member).grammar
    except OutputTypeError:  # the union raises its own error later
        return False
    if not isinstance(grammar, ir.Json):
        return False
    kinds = grammar.schema.get("anyOf", [grammar.schema])
    return any(kind.get("type") not in _JSON_SCALARS for kind in kinds)


def _lower_annotated(output_type: Any, name: str) -> OutputType:
    base, *metadata = get_args(output_type)
    base = unwrapped(base)
    if get_origin(base) is Annotated:
        return _lower_annotated(annotated(base, metadata), name)
    origin = get_origin(base)
    if origin is Literal or isinstance(base, enum.EnumMeta):
        adapter = adapter_of(output_type, name)
        members = get_args(base) if origin is Literal else list(base)
        allowed = [member for member in members if _is_valid(adapter, member)]
        return _checked(choice_type(allowed, name), adapter, metadata)
    if origin is Union or isinstance(base, types.UnionType):
        # Validators run once on the value, at the end; constraints apply to the text.
        constraints = [item for item in metadata if not isinstance(item, _VALIDATORS)]
        lowered = _lower_union(output_type, get_args(base), name, constraints)
        if isinstance(lowered.grammar, ir.Json):
            return lowered
        return _checked(lowered, adapter_of(output_type, name), metadata)
    return _lower_by_schema(output_type, name)


def _is_valid(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _checked(output: OutputType, adapter: TypeAdapter[Any], metadata: Sequence[Any]) -> OutputType:
    """Return ``output`` with its values validated by ``adapter``, for validators in `Annotated`."""

    def parse(text: str) -> Any:
        value = output.parse(text)
        try:
            return adapter.validate_python(value)
        except (ValidationError, ValueError, TypeError) as error:
            raise ParseError(
                f"The text does not match {output.name}: {error}. Text: {text!r}", text=text
            ) from error

    code = [item.func for item in metadata if isinstance(item, _VALIDATORS)]
    named = tuple(("$", str(getattr(one, "__name__", type(one).__name__))) for one in code)
    return OutputType(output.grammar, parse, output.name, (*output.checked, *named))
