"""`compile` and what it makes: a `Constraint`, immutable and shared, and its cursors.

In reading order: `constraint`, `engine` (an automaton as it has grown so far, with its masks),
`cursor` (one sequence's place), `warming` (work done beforehand), `explain` (how each keyword is
kept) and `check_grammar` (all that is wrong with a grammar). Knows no model.
"""

from __future__ import annotations

from .constraint import Constraint, compile
from .cursor import Cursor
from .explain import Explanation
from .warming import warm_up

__all__ = ["Constraint", "Cursor", "Explanation", "compile", "warm_up"]
