"""Context-free grammars as a pushdown machine over bytes.

In reading order: `terminals` (over `threads`: what ``re.match`` takes), `terminal_sets`, `exits`,
`atom_bytes`, `lexer` (all expected terminals as one leaf), `loops`, `goals` (nonterminals as
automata), `stacks` (open goals), `neighbours`, `completion`, `machine`; `guests` and `host` (other
output types inside grammars, and grammars beside them); `spellings` (states named for sharing).
"""

from __future__ import annotations

from .goals import Goals
from .guests import MARK, NamedTokenLeaf, spelling
from .lexer import Lexer
from .machine import CfgMachine
from .spellings import Spellings
from .stacks import BOTTOM, unpack
from .terminals import Terminals

__all__ = [
    "BOTTOM",
    "MARK",
    "CfgMachine",
    "Goals",
    "Lexer",
    "NamedTokenLeaf",
    "Spellings",
    "Terminals",
    "spelling",
    "unpack",
]
