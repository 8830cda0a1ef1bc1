"""`compile` and its results: a `Constraint`, immutable and shared, and its cursors.

In reading order: `constraint` (with `warm_up`), `engine` (an automaton as grown so far, with its
masks), `cursor` (one sequence's position; budgets, forced text, masks of drafts and batches),
`explain` (how each keyword is enforced, and advice), `examples` (random texts of a type, and
differences between types) and `check_grammar` (problems of a grammar). Knows no model.
"""

from __future__ import annotations

from .constraint import WARNS, Constraint, compile, warm_up
from .cursor import Cursor, fill_masks
from .examples import Difference, Sampler, difference, sample
from .explain import Explanation

__all__ = [
    "WARNS",
    "Constraint",
    "Cursor",
    "Difference",
    "Explanation",
    "Sampler",
    "compile",
    "difference",
    "fill_masks",
    "sample",
    "warm_up",
]
