"""The values of a JSON Schema as leaves and frames.

In reading order: `options`; `document` and `lazy_root` (the whole text); `values` (what a value may
look like), `conjunctions`, `partial_branch`, `branches`, `unevaluated`, `negation`, `rules`,
`rule_reader`, `string_reader` (what a value owes); `objects`, `members`, `requirements`,
`rule_needs`, `spare_keys`, `closing`, `object_steps`, `open_members`, `array_spec`,
`array_closing`, `arrays` (open values); `scalars`, `schema_scalars`, `numbers`, `number_reader`,
`decimals`, `keys`, `key_symbols`, `whitespace`, `array_leaf`, `excluding` (leaves); `emptiness`,
`contradiction`, `nesting`, `quick_checks`, `early_check` (what has no value, and why); `evaluate`
(the schema as a validator of Python values).
"""

from __future__ import annotations

from . import evaluate
from .excluding import ExcludingLeaf, bytes_of_many
from .keys import CLOSE
from .lazy_root import OpeningLeaf
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
