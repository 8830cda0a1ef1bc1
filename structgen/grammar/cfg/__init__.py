"""Lower context-free grammars in five notations to the grammar IR.

In reading order: `read` (the entry point, which chooses the reader), `lark` (Lark, read by its
package, which is imported on first use), `llguidance` (its Lark), `notation` (GBNF and W3C's EBNF),
`xgrammar` (its EBNF), `embedded` (``%json {…}`` and ``<token>``), `foreign` (other notations, for
messages), `library` (grammars by name) and `cache` (results on disk).
"""

from __future__ import annotations

from . import cache, embedded, lark, library
from .read import (
    BYTE_ORDER_MARK,
    DIALECTS,
    EXTENSIONS,
    check_dialect,
    definitions,
    dialect_of,
    is_decided,
    locate,
    parse,
)
