"""Output types: from a user's type to a grammar, and from finished text back to a value.

`lower` is the entry point. In reading order: `sums` (the base of all types), `user`, `regexes`,
`quotes`, `schemas` and `openapi` (what users write), `dispatch` (which module lowers what),
`wrappers` (schemas and patterns), `lowering` (everything else), `names` (of types in messages);
`json_types` and `exact_schema` (all types that Pydantic knows), `patterns`, `own_types` and
`networks` (Pydantic's own types), `signatures` (functions), `records` (attrs, msgspec); `tags` and
`tagged` (free text with values in it), `templates` and `joined` (text with holes), `captures`
(parts of a grammar's text); `tool_calls`, `tools`, `tool_arguments` and `tool_grammar` (calls in a
model's own syntax); `written` (types as bytes). Knows no vocabulary or model.

The types of `ready` are attributes as well (`structgen.types.country_code`), made on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from structgen.types.captures import CapturedText
from structgen.types.dispatch import cache_key, filled, lower
from structgen.types.joined import Divider, is_text_of
from structgen.types.own_types import FUNCTIONS, looked_at_by
from structgen.types.quotes import DocumentMissing, Quote, QuotedText, disjoint, in_order
from structgen.types.regexes import Regex
from structgen.types.schemas import JsonSchema
from structgen.types.sums import AnyT, Choices, Functions, ItemT, Others, Own, T, T_co, TextT, Typed
from structgen.types.tags import FREE_TEXT, Tagged, TaggedText, TaggedValue, regular, thought_type
from structgen.types.templates import Template, Text
from structgen.types.tool_calls import (
    DIALECTS,
    NEUTRAL,
    Call,
    ParameterSyntax,
    ToolCalls,
    ToolsOffered,
    ToolSyntax,
)
from structgen.types.user import (
    NAMES,
    Cfg,
    Choice,
    OutputType,
    Part,
    PartReader,
    SpecialToken,
    ValueSchema,
    bare_text,
)
from structgen.types.wrappers import schema_hint

if TYPE_CHECKING:
    from structgen.types.ready import phone_number, postal_code, recent_date

    # The ready-made types. For type checkers each is ``str``, like its values.
    digit: TypeAlias = str
    char: TypeAlias = str
    newline: TypeAlias = str
    whitespace: TypeAlias = str
    hex_str: TypeAlias = str
    uuid4: TypeAlias = str
    ipv4: TypeAlias = str
    ipv6: TypeAlias = str
    semver: TypeAlias = str
    mac_address: TypeAlias = str
    hex_color: TypeAlias = str
    slug: TypeAlias = str
    sentence: TypeAlias = str
    paragraph: TypeAlias = str
    email: TypeAlias = str
    media_type: TypeAlias = str
    credit_card: TypeAlias = str
    isbn13: TypeAlias = str
    isbn10: TypeAlias = str
    isbn: TypeAlias = str
    country_code: TypeAlias = str
    country_code3: TypeAlias = str
    country_number: TypeAlias = str
    country_name: TypeAlias = str
    country_flag: TypeAlias = str
    subdivision_code: TypeAlias = str
    currency_code: TypeAlias = str
    currency_number: TypeAlias = str
    currency_name: TypeAlias = str
    language_code: TypeAlias = str
    language_code3: TypeAlias = str
    language_name: TypeAlias = str
    time_zone: TypeAlias = str
    mime_type: TypeAlias = str
    airport_iata: TypeAlias = str
    airport_icao: TypeAlias = str

__all__ = [
    "Call",
    "CapturedText",
    "Cfg",
    "Choice",
    "JsonSchema",
    "OutputType",
    "ParameterSyntax",
    "Quote",
    "QuotedText",
    "Regex",
    "SpecialToken",
    "Tagged",
    "TaggedText",
    "TaggedValue",
    "Template",
    "Text",
    "ToolCalls",
    "ToolSyntax",
    "airport_iata",
    "airport_icao",
    "char",
    "country_code",
    "country_code3",
    "country_flag",
    "country_name",
    "country_number",
    "credit_card",
    "currency_code",
    "currency_name",
    "currency_number",
    "digit",
    "disjoint",
    "email",
    "hex_color",
    "hex_str",
    "in_order",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "language_code",
    "language_code3",
    "language_name",
    "lower",
    "mac_address",
    "media_type",
    "mime_type",
    "newline",
    "paragraph",
    "phone_number",
    "postal_code",
    "recent_date",
    "regular",
    "semver",
    "sentence",
    "slug",
    "subdivision_code",
    "time_zone",
    "uuid4",
    "whitespace",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'structgen.types' has no attribute {name!r}")
    from .ready import OFFERED

    return globals().setdefault(name, OFFERED[name])


def __dir__() -> list[str]:
    return sorted(__all__)
