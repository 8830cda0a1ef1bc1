"""JSON Schema of drafts 4 to 2020-12 as a graph of nodes, checked and resolved.

In reading order: `graph` (`Node`, `SchemaGraph` and the option ``closed``), `dialects` (the
drafts), `documents` (references), `checks` (of values of keywords) and `read` (the entry point, the
walk, and each keyword). Knows no texts of values and no automaton.
"""

from __future__ import annotations

from .checks import show, type_hint
from .dialects import (
    ANNOTATIONS,
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
    HOLDING,
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
    mapped,
    to_decimal,
)
from .read import lower
