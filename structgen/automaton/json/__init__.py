"""The values of a JSON Schema as leaves and frames.

In reading order: `options`; `document` (the whole text); `values` (what a value may look like),
`conjunctions`, `branches`, `rules`, `rule_reader`, `outlines` (what a value owes); `objects`,
`members`, `member_ways`, `open_members`, `closing` (open objects); `arrays`, `array_spec`, `apart`
(open arrays); `scalars`, `numbers`, `keys`, `whitespace`, `excluding` (leaves); `language` (what
they share); `emptiness`, `nesting`, `quick_checks`, `early_check` (what has no value, and why);
`evaluate` (the schema as a validator of Python values).
"""

from __future__ import annotations

from . import evaluate
from .document import OpeningLeaf
from .excluding import ExcludingLeaf, bytes_of_many
from .keys import CLOSE
from .nesting import UNLIMITED
from .numbers import NumberLeaf
from .options import CompileOptions, JsonOptions, json_options
from .values import MAX_DEPTH_COMPARED, MAX_SPELT_NUMBERS

__all__ = [
    "CLOSE",
    "MAX_DEPTH_COMPARED",
    "MAX_SPELT_NUMBERS",
    "UNLIMITED",
    "CompileOptions",
    "ExcludingLeaf",
    "JsonOptions",
    "NumberLeaf",
    "OpeningLeaf",
    "bytes_of_many",
    "evaluate",
    "json_options",
]
