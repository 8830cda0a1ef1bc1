"""`compile` and what it makes: a `Constraint`, immutable and shared, and its cursors.

In reading order: `constraint` (with `warm_up`), `engine` (an automaton as it has grown so far, with
its masks), `cursor` (one sequence's place; what a budget allows, what is forced; masks of drafts
and of batches), `explain` (how each keyword is kept, and what a type's shape costs), `examples`
(texts drawn from a type, and whether those of one are those of another) and `check_grammar` (what
is wrong with a grammar). Knows no model.
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
