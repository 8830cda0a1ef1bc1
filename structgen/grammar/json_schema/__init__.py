"""JSON Schema of drafts 4 to 2020-12 as a graph of nodes: checked and resolved, nothing decided.

In reading order: `graph` (`Node` and `SchemaGraph`), `dialects` (the drafts), `documents` (where
references lead), `checks` (of values of keywords), `named` (the option ``closed``) and `read` (the
entry, the walk, and each keyword). Knows no text of a value and no automaton.
"""

from __future__ import annotations

from .checks import show, type_hint
from .dialects import (
    DIALECTS,
    GUIDANCE,
    KIND_OF,
    Dialect,
    by_name,
    by_uri,
    closed,
    is_keyword,
    is_latest,
    rewritten,
)
from .documents import Place
from .graph import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    DIGITS,
    DIGITS_ONLY,
    FALSE,
    FRACTION,
    IN_PLACE,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    OF_NUMBERS,
    OF_STRINGS,
    OF_VALUES,
    POINTED,
    STRING,
    TRUE,
    TYPE_BITS,
    Contains,
    Keys,
    Node,
    SchemaGraph,
    bounds,
    by_key,
    child_path,
    json_key,
    to_decimal,
)
from .read import lower

__all__ = [
    "ALL_TYPES",
    "ARRAY",
    "BOOLEAN",
    "DIALECTS",
    "DIGITS",
    "DIGITS_ONLY",
    "FALSE",
    "FRACTION",
    "GUIDANCE",
    "INTEGER",
    "IN_PLACE",
    "KIND_OF",
    "NULL",
    "NUMBER",
    "OBJECT",
    "OF_NUMBERS",
    "OF_STRINGS",
    "OF_VALUES",
    "POINTED",
    "STRING",
    "TRUE",
    "TYPE_BITS",
    "Contains",
    "Dialect",
    "Keys",
    "Node",
    "Place",
    "SchemaGraph",
    "bounds",
    "by_key",
    "by_name",
    "by_uri",
    "child_path",
    "closed",
    "is_keyword",
    "is_latest",
    "json_key",
    "lower",
    "rewritten",
    "show",
    "to_decimal",
    "type_hint",
]
