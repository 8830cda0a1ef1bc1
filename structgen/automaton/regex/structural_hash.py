"""What an expression is, whichever automaton it belongs to: equal expressions have equal contents.

Nodes of one automaton are numbers that no other one knows, over an alphabet of its own. A content
is a digest of the node's structure, with sets of characters as code points: so what is found out
about the texts of an expression can be kept for all patterns in which the same is left to be read,
as ``.{0,40}`` is in most schemas. It knows the nodes of `expressions`, and nothing of what is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from . import expressions as kinds

if TYPE_CHECKING:
    from .automaton import RegexAutomaton

_SIZE = 16
"""Bytes of a content: two that are equal by chance are not to be expected."""


class StructuralHash:
    """The contents of one automaton's states."""

    def __init__(self, automaton: RegexAutomaton) -> None:
        self._automaton = automaton
        self._known: dict[int, bytes] = {}
        self._sets: dict[int, bytes] = {}

    def of(self, state: int) -> bytes | None:
        """The content of what is still to be read in ``state``; None where anchors or lookarounds
        have a say in that.

        Cost: a microsecond or two for each part of an expression that is met for the first time.
        """
        automaton = self._automaton
        node = automaton.started(state)
        if node < 0 or automaton.expressions.holds_anchors(node):
            return None
        if node != state and automaton.label(node) != automaton.label(state):
            return None
        return self._of_node(node)

    def _of_node(self, node: int) -> bytes:
        known, parts = self._known, self._automaton.expressions.parts
        # The end of a long sequence comes first, or it would take as deep a recursion.
        chain = [node]
        while chain[-1] not in known and parts(chain[-1])[0] == kinds.CAT:
            chain.append(parts(chain[-1])[2])
        for part in reversed(chain):
            if part not in known:
                known[part] = self._digest(part)
        return known[node]

    def _digest(self, node: int) -> bytes:
        kind, *args = self._automaton.expressions.parts(node)
        bounds = b""
        if kind == kinds.SET:
            inner = [self._set(args[0])]
        elif kind == kinds.REP:
            inner = [self._of_node(args[0])]
            bounds = b"%d,%d" % (args[1], args[2])
        else:
            inner = [self._of_node(part) for part in args]
            if kind != kinds.CAT:
                inner.sort()
        return blake2b(b"%d,%b;" % (kind, bounds) + b"".join(inner), digest_size=_SIZE).digest()

    def _set(self, mask: int) -> bytes:
        """The code points of some minterms."""
        found = self._sets.get(mask)
        if found is None:
            alphabet = self._automaton.alphabet
            bounds: list[int] = []
            is_in = 0
            for start, minterm in zip(alphabet.starts, alphabet.minterms, strict=True):
                if is_in != (minterm >= 0 and mask >> minterm & 1):
                    is_in ^= 1
                    bounds.append(start)
            found = self._sets[mask] = repr(bounds).encode()
        return found
