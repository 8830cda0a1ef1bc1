"""Context-free grammars in five notations, lowered to the grammar IR.

In reading order: `read` (the entry: which notation, its reader), `lark` (Lark's, by its package,
which is imported when a Lark text is read), `llguidance`
(its Lark), `notation` (GBNF and W3C's EBNF), `xgrammar` (its EBNF), `embedded` (``%json
{…}`` and ``<token>``), `foreign` (other notations, for messages), `library` (grammars by name) and
`cache` (what is known of grammars, on disk).
"""

from __future__ import annotations

from . import cache, embedded, lark, library
from .read import (
    BYTE_ORDER_MARK,
    DIALECTS,
    NAMES,
    choose_dialect,
    definitions,
    dialect_of,
    is_decided,
    locate,
    parse,
)

__all__ = [
    "BYTE_ORDER_MARK",
    "DIALECTS",
    "NAMES",
    "cache",
    "choose_dialect",
    "definitions",
    "dialect_of",
    "embedded",
    "is_decided",
    "lark",
    "library",
    "locate",
    "parse",
]
