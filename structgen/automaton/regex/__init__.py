"""Regular expressions as lazy automata over characters, and characters as bytes.

In reading order: `alphabet` (code points cut into classes), `expressions`, `derivatives`,
`lookarounds` (Brzozowski derivatives of expressions in normal form), `quotes` (pieces of a
document, another kind of expression), `automaton` (all of these as one automaton, with runs of
characters), `encoding` (UTF-8, JSON strings), `symbols` (automaton and encoding together, for
leaves).
"""

from __future__ import annotations

from .alphabet import NO_ATOM, Alphabet
from .automaton import Names, Quoting, RegexAutomaton, StructuralHash, SymbolAutomaton, TokenHorizon
from .encoding import ASCII_ONLY, GROUND, Escapes, JsonString, Utf8, may_escape
from .quotes import passages_of
