"""Regular expressions as lazy automata over characters, and how characters are spelt as bytes.

In reading order: `alphabet` (code points cut into classes), `expressions`, `derivatives`,
`lookarounds` (Brzozowski derivatives of expressions in normal form), `automaton` (these as one
automaton, with runs of characters and what is alike far from a bound), `encoding` (UTF-8, JSON
strings), `symbols` (what leaves are built over).
"""

from __future__ import annotations

from .alphabet import NO_ATOM, Alphabet
from .automaton import Names, RegexAutomaton, StructuralHash, SymbolAutomaton, TokenHorizon
from .encoding import ASCII_ONLY, GROUND, Escapes, JsonString, Utf8, may_escape

__all__ = [
    "ASCII_ONLY",
    "GROUND",
    "NO_ATOM",
    "Alphabet",
    "Escapes",
    "JsonString",
    "Names",
    "RegexAutomaton",
    "StructuralHash",
    "SymbolAutomaton",
    "TokenHorizon",
    "Utf8",
    "may_escape",
]
