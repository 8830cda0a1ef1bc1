"""Context-free grammars in three notations, lowered to the grammar IR.

In reading order: `read` (the entry: which notation, its reader), `lark` and `lark_sizes` (what a
Lark text comes to), `notation` (GBNF and W3C's EBNF), `builder` (expressions → rules), `characters`
(their literals and classes), `embedded` (``%json {…}`` and ``<token>``), `foreign` (other
notations, for messages), `library` (grammars by name) and `cache` (what is known of grammars, on
disk). ``lark`` is imported when a Lark text is read.
"""

from __future__ import annotations

from . import cache, embedded, lark_sizes, library
from .read import (
    BYTE_ORDER_MARK,
    DIALECTS,
    NAMES,
    choose_dialect,
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
    "dialect_of",
    "embedded",
    "is_decided",
    "lark_sizes",
    "library",
    "locate",
    "parse",
]
