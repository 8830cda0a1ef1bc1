"""Context-free grammars as a pushdown machine over bytes.

In reading order: `threads` (what ``re.match`` takes), `terminals`, `lexer` (all expected terminals
as one leaf), `nonterminals` (nonterminals as automata), `places` (open goals), `neighbours`
(terminals side by side), `machine`; `embedded_terminals` and `embedding` (other output types inside
grammars, and grammars beside them).
"""

from __future__ import annotations

from .embedded_terminals import MARK, NamedTokenLeaf, spelling
from .lexer import Lexer, as_flags
from .machine import CfgMachine
from .nonterminals import NonterminalAutomata
from .places import TEXT_END, unpack
from .terminals import Terminals

__all__ = [
    "MARK",
    "TEXT_END",
    "CfgMachine",
    "Lexer",
    "NamedTokenLeaf",
    "NonterminalAutomata",
    "Terminals",
    "as_flags",
    "spelling",
    "unpack",
]
