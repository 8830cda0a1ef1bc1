"""The logic of JSON Schema: the requirements on a value, a member or an item, without bytes or
frames.

In reading order: `conjunctions` (sets of requirements, and barred values), `branches` (alternatives
multiplied out), `rules` and `rule_reader` (conditions on all members of an object), `strings`
(nodes as regular expressions), `outlines` and `quick_checks` (cheap tests); `members`,
`member_ways` (of objects) and `array_spec` (of arrays), which use `language`; `nesting` (the depth
of values) and `evaluate` (a validator of Python values). The package `json` knows how values are
written.
"""

from __future__ import annotations

from . import evaluate
from .conjunctions import types_of
from .strings import StringReader
