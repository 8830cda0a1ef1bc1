"""Context-free grammars as a pushdown machine over bytes.

In reading order: `terminals` (texts that ``re.match`` would take), `lexer` (all expected terminals
as one leaf), `nonterminals` (nonterminals as automata), `places` (open goals), `embedded_terminals`
(other output types inside grammars), `frame` (a grammar's rules as a frame), `machine` (a machine
with such frames).
"""

from __future__ import annotations

from .embedded_terminals import MARK, LimitedLeaf, NamedTokenLeaf, spelling
from .frame import CfgFrame
from .lexer import Lexer, as_flags
from .machine import CfgMachine
from .nonterminals import NonterminalAutomata
from .places import TEXT_END, unpack
from .terminals import Terminals
