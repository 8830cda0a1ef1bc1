"""Context-free grammars as a pushdown machine over bytes.

In reading order: `terminal_patterns`, `terminals` (over `threads`: what ``re.match`` takes),
`terminal_sets`, `exits`, `minterm_bytes`, `lexer` (all expected terminals as one leaf), `loops`,
`nonterminals` (nonterminals as automata), `stacks` (open goals), `rests`, `demands`, `goal_ends`,
`neighbours`, `completion`, `entries`, `machine`; `embedded_terminals` and `embedding` (other output
types inside grammars, and grammars beside them); `spellings` (states named for sharing).
"""

from __future__ import annotations

from .embedded_terminals import MARK, NamedTokenLeaf, spelling
from .lexer import Lexer
from .machine import CfgMachine
from .nonterminals import NonterminalAutomata
from .spellings import Spellings
from .stacks import BOTTOM, unpack
from .terminals import Terminals

__all__ = [
    "BOTTOM",
    "MARK",
    "CfgMachine",
    "Lexer",
    "NamedTokenLeaf",
    "NonterminalAutomata",
    "Spellings",
    "Terminals",
    "spelling",
    "unpack",
]
