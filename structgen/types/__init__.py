"""Output types: from what the user wrote to a grammar, and from finished text back to a value.

`lower` is the whole of it. One file per step: `user` and `regexes` (the wrapper types), `dispatch`
(who lowers what), `schemas`, `openapi` and `wrappers` (schemas and patterns), `lowering` (all that
is not a wrapper), `choices` (finite sets), `json_types` and `exact_schema` (whatever Pydantic
knows), `own_types` and `networks` (its own types), `formats` (dates and other fixed spellings),
`signatures` and `call` (functions), `records` (attrs, msgspec), `tags`, `tag_grammar`, `tag_reader`
and `tagged` (free text with values in it), `typed_dicts`, `names`; `tool_calls`, `tools`,
`tool_grammar` and `tool_reader` (calls in a model's own syntax); `typed` is what type checkers know
of it all. Knows no vocabulary or model.
"""

from __future__ import annotations

from structgen.types.call import Call
from structgen.types.dispatch import cache_key, lower
from structgen.types.regexes import Regex
from structgen.types.schemas import JsonSchema
from structgen.types.tags import Tagged, TaggedText, TaggedValue
from structgen.types.tool_calls import NEUTRAL, ToolCalls, ToolsOffered, ToolSyntax
from structgen.types.typed import Choices, Functions, ItemT, Own, Schemas, T, T_co, Text, Typed
from structgen.types.user import Cfg, Choice, OutputType, SpecialToken

__all__ = [
    "NEUTRAL",
    "Call",
    "Cfg",
    "Choice",
    "Choices",
    "Functions",
    "ItemT",
    "JsonSchema",
    "OutputType",
    "Own",
    "Regex",
    "Schemas",
    "SpecialToken",
    "T",
    "T_co",
    "Tagged",
    "TaggedText",
    "TaggedValue",
    "Text",
    "ToolCalls",
    "ToolSyntax",
    "ToolsOffered",
    "Typed",
    "cache_key",
    "lower",
]
