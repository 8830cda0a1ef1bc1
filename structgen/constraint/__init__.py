"""`compile` and what it makes: a `Constraint`, immutable and shared, and its cursors.

In reading order: `constraint`, `engine` (an automaton as it has grown so far, with its masks),
`rows` (masks one under the other), `cursor` (one sequence's place; `budget`, `forced` and
`refused_tokens` know what it asks), `batches` (the masks of several), `warming` (work done
beforehand), `explain` (how each keyword is kept) and `check_grammar` (all that is wrong with a
grammar). Knows no model.
"""

from __future__ import annotations

from .batches import fill_masks
from .constraint import Constraint, compile
from .cursor import Cursor
from .explain import Explanation
from .warming import warm_up

__all__ = ["Constraint", "Cursor", "Explanation", "compile", "fill_masks", "warm_up"]
