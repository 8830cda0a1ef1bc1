"""The logic of JSON Schemas: what a value, a member or an item owes, without bytes or frames.

In reading order: `conjunctions` (what values are owed to, and the values that are barred),
`branches` (alternatives multiplied out), `rules` and `rule_reader` (what an object's members are
like together), `strings` (nodes as regular expressions), `outlines` and `quick_checks` (what is
plain to see); `members`, `member_ways` (of objects) and `array_spec` (of arrays), which ask
`language`; `nesting` (how deep values go) and `evaluate` (the schema as a validator of Python
values). How values are written is `json`'s business.
"""

from __future__ import annotations

from . import evaluate
from .conjunctions import types_of
from .nesting import UNLIMITED
from .strings import StringReader

__all__ = ["UNLIMITED", "StringReader", "evaluate", "types_of"]
