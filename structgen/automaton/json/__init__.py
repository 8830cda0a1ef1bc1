"""The texts of a JSON Schema's values as leaves and frames.

In reading order: `options`; `document` (the whole text); `values` (which values exist, and the
errors before the first text); `objects`, `closing` (open objects); `arrays`, `apart` (open arrays,
and barred values); `scalars`, `numbers`, `keys`, `whitespace`, `excluding` (leaves); `language`
(the interface that frames use). The package `schema` knows the requirements on values.
"""

from __future__ import annotations

from structgen.automaton.schema.nesting import UNLIMITED

from .document import OpeningLeaf
from .excluding import ExcludingLeaf, bytes_of_many
from .numbers import NumberLeaf
from .options import CompileOptions, JsonOptions, ReadLimits, guidance, json_options, part_options
from .values import MAX_DEPTH_COMPARED, MAX_SPELT_NUMBERS
from .whitespace import CLOSE
