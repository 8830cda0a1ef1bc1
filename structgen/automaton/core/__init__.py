"""The parts of every machine: leaves, frames, stacks, states.

A *leaf* is an automaton over bytes that needs no stack (`leaf`, `text_leaf`). A *frame* is an open
value: it decides what may follow when a leaf ends (`frames`). `stacks` interns open frames, and
states: sets of configurations, each a leaf over a stack. `machine` steps from state to state and
finds the shortest way to the end. `shared` caches automata that several constraints use.
"""

from __future__ import annotations

from .frames import POP, Alternative, Frame, NeedsText, TextHistory
from .leaf import GROW, Leaf
from .machine import AnyText, Machine
from .shared import AUTOMATA, FORMAT_AUTOMATA
from .stacks import BOTTOM, DEAD, Stacks
from .text_leaf import StringLeaf, TextLeaf, is_plain
