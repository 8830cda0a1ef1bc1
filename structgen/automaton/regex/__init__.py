"""Regular expressions as lazy automata over characters, and how characters are spelt as bytes.

In reading order: `alphabet` (code points cut into classes), `expressions`, `sums`, `derivatives`,
`runs`, `lookarounds` (Brzozowski derivatives of expressions in normal form), `automaton` (these as
one automaton), `encoding` (UTF-8, JSON strings), `symbols` (what leaves are built over),
`name_trie` (finite sets); then what is read off an expression without running it:
`structural_hash`, `token_horizon`, `completion_bounds`, `quick_checks`, `position_sets`, `probing`,
`spellable`.
"""

from __future__ import annotations

from .alphabet import Alphabet
from .automaton import RegexAutomaton
from .encoding import ASCII_ONLY, GROUND, Utf8, may_escape, may_escape_slash
from .structural_hash import StructuralHash
from .symbols import Names, SymbolAutomaton
from .token_horizon import TokenHorizon

__all__ = [
    "ASCII_ONLY",
    "GROUND",
    "Alphabet",
    "Names",
    "RegexAutomaton",
    "StructuralHash",
    "SymbolAutomaton",
    "TokenHorizon",
    "Utf8",
    "may_escape",
    "may_escape_slash",
]
