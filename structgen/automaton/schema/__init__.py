"""The logic of JSON Schema: what a value, a member or an item owes, without bytes or frames.

In reading order: `conjunctions` (what values are owed to, and barred values), `branches`
(alternatives multiplied out), `rules` and `rule_reader` (conditions on an object's members
together), `strings` (nodes as regular expressions), `outlines` and `quick_checks` (cheap tests);
`members`, `member_ways` (of objects) and `array_spec` (of arrays), which ask `language`; `nesting`
(how deep values go) and `evaluate` (a validator of Python values). `json` knows how values are
written.
"""

from __future__ import annotations

from . import evaluate
from .conjunctions import types_of
from .strings import StringReader

__all__ = ["StringReader", "evaluate", "types_of"]
