"""Walks of grammars' lexers for `masks`: those of `walks`, in the terms of `walks`.

A lexer is a leaf like any other, but its own walks know more of it: which nodes a terminal's end
leaves open, and that wide terminals are walked once for all that expect them. This module only
translates.
"""

from __future__ import annotations

import numpy as np

from structgen.automaton.cfg import Lexer
from structgen.masks.walk_store import ROOT, LeafWalk, Node, WalkStore
from structgen.vocabulary import Vocabulary

from .walks import Walks


class LexerWalks:
    """The walks of the lexers of one constraint.

    Args:
        store: the vocabulary's.
        vocabulary: the vocabulary.
    """

    def __init__(self, store: WalkStore, vocabulary: Vocabulary) -> None:
        self._store = store
        self._vocabulary = vocabulary
        self._walks: dict[Lexer, Walks] = {}

    def walk(self, lexer: Lexer, q: int, node: Node) -> LeafWalk:
        """See `walks.Walker.leaf_walk`; remembered by the lexer's own walks."""
        walks = self._walks.get(lexer)
        if walks is None:
            walks = self._walks[lexer] = Walks(lexer, self._vocabulary)
        else:
            walks.renew()
        nodes, store = walks.nodes, self._store
        begin = node if isinstance(node, int) else nodes.of(node.members)
        found = walks.walk(q, begin)
        ids = np.array(found.ids, np.int32)
        row = None
        if found.rows:
            row = found.rows[0]
            for other in found.rows[1:]:
                row = row | other
            if node != ROOT:
                # NonterminalWalks put ids together.
                flags = np.unpackbits(row.view(np.uint8), bitorder="little")
                ids, row = np.concatenate((ids, np.flatnonzero(flags).astype(np.int32))), None
        exits: list[tuple[int, Node]] = []
        for outcome, at in found.exits:
            to: Node = at if at < nodes.n_nodes else store.cluster(nodes.real(at))
            if store.has_children(to):
                exits.append((outcome, to))
        ends: dict[int, None] = {}
        for end in walks.ends(q, begin):
            ends.update(dict.fromkeys(walks.inside_characters(~end) if end < 0 else (end,)))
        return row, ids.tobytes(), tuple(exits), tuple(ends)
