"""How an output type is sent, and in which form the answer comes back.

For each kind of type it chooses among the ways of a dialect, and raises for types that the dialect
cannot express. The result is a part of a request.

`Enforcement` says for each keyword who enforces it, the server or structgen. It is computed from
what was sent and from `Constraint.explain`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from structgen.constraint import Constraint
from structgen.decoding import Enforcement
from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.types import OutputType, ToolCalls, ToolsOffered

from .dialects import Dialect
from .schemas import CannotSay, as_gbnf, as_pattern, is_left_recursive, sent_schema, text_schema

_VALIDATED = ("masked", "masked, by recording")
_CODE = "checked by parse"
_NEVER = "not enforced"

Place = tuple[str, str]
"""A JSON path and a keyword."""


def enforcement(
    constraint: Constraint | None, dialect: str, sent: str, not_by_server: Collection[Place] | None
) -> Enforcement:
    """Return who enforces what of an output type.

    Args:
        constraint: the output type, for validation; None: free text.
        dialect: the server's.
        sent: what was sent, described in words.
        not_by_server: the keywords that the server does not enforce; None: it enforces nothing.
    """
    server: list[str] = []
    here: list[str] = []
    neither: list[str] = []
    for row in () if constraint is None else constraint.explain().rows:
        if row.how not in (*_VALIDATED, _CODE, _NEVER):
            continue
        named = f"{row.path} {row.keyword}"
        if row.how == _NEVER:
            neither.append(named)
        elif row.how == _CODE:
            here.append(f"{named} {row.note}".rstrip())
        elif not_by_server is None or (row.path, row.keyword) in not_by_server:
            here.append(named)
        else:
            server.append(named)
    return Enforcement(dialect, sent, tuple(server), tuple(here), tuple(neither))


@dataclass(frozen=True)
class Sent:
    """What is sent of an output type.

    Attributes:
        arguments: arguments of the request that are OpenAI's own.
        extra: keys of the extra body.
        form: the form of the answer: the text itself, an object around a text, or an object around
            a value.
        has_nulls: whether optional members may be null in it.
        enforcement: who enforces what.
        tools: the tools that were sent, or None.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    form: Literal["bare", "text", "value"] = "bare"
    has_nulls: bool = False
    enforcement: Enforcement | None = None
    tools: ToolsOffered | None = None


def sent(constraint: Constraint | None, dialect: Dialect, output_type: Any) -> Sent:
    """Return what is sent of an output type in a dialect.

    Args:
        constraint: the type, compiled to validate answers; None: free text.
        dialect: the server's.
        output_type: as the user wrote it.

    Raises:
        OutputTypeError: the dialect cannot express it.
    """
    if constraint is None:
        return Sent()
    output = constraint.output
    if output.offered is not None:
        return _tools(constraint, dialect, output.offered, output_type)
    if any(one.max_tokens or one.temperature is not None for one in ir.embedded(output.grammar)):
        raise OutputTypeError(
            f"{output.name} has rules with max_tokens= or temperature=. Servers do not report "
            "where tokens end and sample all of them alike. Remove these options, or load the "
            "model here."
        )
    if dialect.json == "none":
        return Sent(enforcement=enforcement(constraint, dialect.name, "no output type", None))
    if isinstance(output.grammar, ir.Json):
        return _json(constraint, dialect, output.grammar)
    return _text(constraint, dialect)


def _json(constraint: Constraint, dialect: Dialect, grammar: ir.Json) -> Sent:
    output = constraint.output
    if "documents" in grammar.options:
        raise OutputTypeError(
            f"{output.name} has documents=, which cannot be sent. Move what it refers to into "
            "$defs of the schema."
        )
    made = sent_schema(grammar.schema, dialect, output.name)
    form: Literal["bare", "value"] = "value" if made.is_wrapped else "bare"
    unsure = None if dialect.strict is False else made.left_out
    if dialect.json == "body":
        sent = _in_body(constraint, dialect, "json", made.schema, unsure, ", a schema")
        return replace(sent, form=form, has_nulls=made.has_nulls)
    what = "response_format json_schema"
    what += {True: ", strict", False: ", not strict: a hint", None: ""}[dialect.strict]
    how = enforcement(constraint, dialect.name, what, unsure)
    arguments = {"response_format": _format(made.schema, dialect, output)}
    return Sent(arguments, {}, form, made.has_nulls, how)


def _text(constraint: Constraint, dialect: Dialect) -> Sent:
    output, grammar = constraint.output, constraint.output.grammar
    if isinstance(grammar, ir.Choice) and "choice" in dialect.body:
        return _in_body(constraint, dialect, "choice", list(grammar.texts))
    try:
        if "regex" in dialect.body and not isinstance(grammar, ir.ContextFree):
            return _in_body(constraint, dialect, "regex", as_pattern(grammar))
        if "grammar" in dialect.body:
            if not dialect.reads_left_recursion and is_left_recursive(grammar):
                raise CannotSay("a left-recursive rule")
            made = as_gbnf(grammar)
            what = ", GBNF" + ("" if made.is_exact else ", which allows more than the grammar")
            unsure = () if made.is_exact else None
            return _in_body(constraint, dialect, "grammar", made.text, unsure, what)
        if isinstance(grammar, ir.Choice):
            schema = text_schema(None, grammar.texts)
        else:
            pattern = as_pattern(grammar)
            schema = text_schema(None if pattern == r"[\s\S]*" else pattern)
    except CannotSay as error:
        fix = "Pass dialect='none' to from_openai: then its server does not get the type, and"
        if isinstance(grammar, ir.ContextFree) and "grammar" not in dialect.body:
            fix = f"vLLM, SGLang and llama.cpp read grammars. Elsewhere: {fix[0].lower()}{fix[1:]}"
        raise OutputTypeError(
            f"{output.name} cannot be sent in the dialect {dialect.name!r}, which cannot express "
            f"{error}. {fix} structgen checks the answer."
        ) from None
    keyword = "choice" if isinstance(grammar, ir.Choice) else "pattern"
    is_enforced = {"choice": "enum", "pattern": "pattern"}[keyword] in dialect.keywords
    what = 'response_format json_schema of {"value": text}'
    how = enforcement(constraint, dialect.name, what, () if is_enforced else None)
    arguments = {"response_format": _format(schema, dialect, output)}
    return Sent(arguments, {}, "text", enforcement=how)


def _tools(
    constraint: Constraint, dialect: Dialect, offered: ToolsOffered, output_type: Any
) -> Sent:
    arguments: dict[str, Any] = {"tools": [dict(schema) for schema in offered.schemas]}
    if isinstance(output_type, ToolCalls):
        if output_type.answer is not None:
            raise OutputTypeError(
                f"{output_type!r}: answer= is not sent to servers, which differ in how they "
                "combine tools with a response format. Remove it, or load the model here."
            )
        choice = output_type.choice
        arguments["tool_choice"] = (
            choice
            if choice in ("auto", "required", "none")
            else {"type": "function", "function": {"name": choice}}
        )
        if output_type.parallel is not None:
            arguments["parallel_tool_calls"] = output_type.parallel
    how = enforcement(constraint, dialect.name, "tools", None)
    return Sent(arguments, enforcement=how, tools=offered)


def _format(schema: dict[str, Any], dialect: Dialect, output: OutputType) -> dict[str, Any]:
    """Return the argument ``response_format``."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", output.name).strip("_")[:64] or "answer"
    described: dict[str, Any] = {"name": name, "schema": schema}
    if dialect.strict is not None:
        described["strict"] = dialect.strict
    return {"type": "json_schema", "json_schema": described}


def _in_body(
    constraint: Constraint,
    dialect: Dialect,
    kind: str,
    value: Any,
    not_by_server: Collection[Place] | None = (),
    more: str = "",
) -> Sent:
    """Return keys of the extra body for a type, which the server enforces except for the named
    keywords."""
    what = f"{'.'.join(dialect.body[kind])}{more}"
    how = enforcement(constraint, dialect.name, what, not_by_server)
    for key in reversed(dialect.body[kind]):
        value = {key: value}
    return Sent(extra=value, enforcement=how)
