"""What every machine is made of: leaves, frames, stacks, states.

A *leaf* is an automaton over bytes that needs no stack (`leaf`, `text_leaf`, `literal_leaf`); a
*frame* is an open value that says what may follow when a leaf ends (`frames`, `stacks`); a *state*
is an interned set of configurations, each a leaf over a stack (`states`); `machine` leads from one
to the next, `completions` finds the shortest way to the end. `text_history` is the text so far for
the few frames that need it; `shared` keeps automata that constraints have in common.
"""

from __future__ import annotations

from .completions import AnyText
from .frames import POP, Alternative, Frame, NeedsText
from .leaf import GROW, Leaf
from .machine import Machine
from .shared import AUTOMATA, FORMATS
from .stacks import BOTTOM, Stacks
from .states import DEAD
from .text_history import TextHistory
from .text_leaf import StringLeaf, TextLeaf, is_plain

__all__ = [
    "AUTOMATA",
    "BOTTOM",
    "DEAD",
    "FORMATS",
    "GROW",
    "POP",
    "Alternative",
    "AnyText",
    "Frame",
    "Leaf",
    "Machine",
    "NeedsText",
    "Stacks",
    "StringLeaf",
    "TextHistory",
    "TextLeaf",
    "is_plain",
]
