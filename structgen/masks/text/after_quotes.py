"""What follows closing quotes: the tokens that end behind them, and the leaf that goes on there.

Little of that differs from one object to the next: it depends on which quotes are reached, and on
a leaf that objects share. Knows no text before the quotes.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from structgen.automaton.core import Leaf
from structgen.masks.walk_store import (
    Bits,
    End,
    Exits,
    LeafWalk,
    LeafWalker,
    Node,
    Tokens,
    WalkStore,
    ids_of,
)
from structgen.storage import GenerationalCache

from .characters import Characters, Whole


class AfterQuotes:
    """What follows closing quotes in one vocabulary.

    Args:
        leaf_walk: walks a leaf.
    """

    def __init__(self, store: WalkStore, leaf_walk: LeafWalker) -> None:
        self._store = store
        self._leaf_walk = leaf_walk
        self._quoted: GenerationalCache[tuple[Characters, Any], tuple[Tokens, Node | None]]
        self._quoted = store.cache()
        self._after: GenerationalCache[tuple[Characters, Any, Leaf], LeafWalk] = store.cache()
        self._free: GenerationalCache[tuple[Characters, bytes, tuple[int, ...], Leaf], LeafWalk]
        self._free = store.cache()

    def behind(
        self, characters: Characters, which: bytes | tuple[int, ...]
    ) -> tuple[Tokens, Node | None]:
        """Tokens that end right after some quotes, and the node where others go on.

        ``which`` of `Characters.quotes`: their numbers, or a packed mask.
        """
        arrays = characters.arrays
        key = (characters, which)
        found = self._quoted[key]
        if found is None:
            if isinstance(which, bytes):
                mask = np.unpackbits(np.frombuffer(which, np.uint8), count=len(arrays.quotes))
                chosen = arrays.quotes[mask > 0]
            else:
                chosen = arrays.quotes[list(which)]
            nodes = arrays.node[chosen]
            ids = [token for node in nodes.tolist() for token in self._store.ids_at(node)]
            going_on = np.sort(nodes[self._store.trie.n_children[nodes] > 0])
            node: Node | None = None
            if len(going_on):
                node = int(going_on[0]) if len(going_on) == 1 else self._store.cluster(going_on)
            found = self._quoted[key] = (array("i", ids).tobytes(), node)
            self._store.charge(4 * len(ids) + 300)
        return found

    def walk(self, characters: Characters, which: bytes | tuple[int, ...], leaf: Leaf) -> LeafWalk:
        """The walk of ``leaf`` behind some quotes, with the tokens that end right there."""
        key = (characters, which, leaf)
        found = self._after[key]
        if found is None:
            ids, node = self.behind(characters, which)
            ends: tuple[End, ...] = (leaf.start,) if ids else ()
            exits: Exits = ()
            if node is not None:
                _, more, exits, inner = self._leaf_walk(leaf, leaf.start, node, self._store.walks)
                ids, ends = ids + more, (*ends, *inner)
            found = self._after[key] = None, ids, exits, ends
            self._store.charge(len(ids) + 300)
        return found

    def free(
        self, characters: Characters, whole: Whole, special: tuple[int, ...], after: Leaf
    ) -> LeafWalk:
        """The walk of any text whatever and of ``after`` behind it, ``special`` quotes left out."""
        key = (characters, whole.places, special, after)
        found = self._free[key]
        if found is None:
            quotes = whole.quotes
            if special:
                quotes = quotes.copy()
                quotes[list(special)] = False
            _, more, exits, ends = self.walk(characters, np.packbits(quotes).tobytes(), after)
            row: Bits | None = None
            ids = whole.ids.tobytes() + more
            if whole.counted is not None:
                flags = whole.counted.flags(characters.arrays.longest, self._store.n_words * 32)
                flags[ids_of(more)] = True
                row = self._store.intern(np.packbits(flags, bitorder="little").view("<u4"))
                ids = b""
            found = self._free[key] = row, ids, exits, ends
            self._store.charge(len(ids) + len(whole.places) + 500)
        return found
