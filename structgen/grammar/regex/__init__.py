"""Lower regular expressions in two dialects to the grammar IR.

In reading order: `read` (the entry points), `tree` (the result of both parsers), `python` and
`ecma` (the dialects), `unicode_sets` (character classes), `algebra` (and, or, not, counts over
whole languages). Knows no automaton, only the meaning of patterns.
"""

from __future__ import annotations

from . import algebra, python, tree
from .read import may_be_empty, parse_ecma, parse_python
from .tree import alternate, complement, intersect
from .unicode_sets import folded
