"""How far from the end each token of a context-free grammar leads: what token budgets ask.

All tokens are walked through the trie at once, level by level: few states of the machine are met on
a level, so that a step is made once for each of these and byte, and a completion is counted once
for each state in which tokens end. What comes out, the allowed tokens in classes that need the same
number of tokens afterwards, does not depend on the budget and is kept, under the vocabulary's
budget of bytes; within any budget the mask is then a few operations on whole rows.

The counterpart of `reach` for the machines of `masks`. It knows nothing of sequences and their
plans; `constraint` does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import CfgMachine
from structgen.automaton.core import DEAD, GROW
from structgen.masks.grouping import bits_of
from structgen.masks.reach import FAR
from structgen.masks.walk_store import Ids, WalkStore
from structgen.masks.walks import walker_of
from structgen.storage import GenerationalCache
from structgen.vocabulary import Vocabulary

from .masks import CfgMaskEngine
from .tokens import Bits, set_bits

_FEW = 400
"""More token ids than this, and they are packed."""

Class = tuple[int, Ids, "Bits | None"]
"""Tokens needed after each of some tokens, and their ids, or a packed row where they are many."""


class CfgReach:
    """Distances to the end after each token, for one engine.

    Thread-safe, as the engine is.
    """

    def __init__(self, engine: CfgMaskEngine) -> None:
        self._engine = engine
        self._machine: CfgMachine = engine.machine
        self._vocabulary: Vocabulary = engine.vocabulary
        self._store: WalkStore = walker_of(engine.vocabulary).store
        self._bounds: GenerationalCache[int, int] = self._store.cache()
        self._lengths: GenerationalCache[tuple[int, int], int] = self._store.cache()
        self._classes: GenerationalCache[int, tuple[Class, ...]] = self._store.cache()
        self._sizes: GenerationalCache[int, int] = self._store.cache()

    def is_known_ample(self, state: int, spare: int) -> bool:
        """Whether it is known without any work that ``spare`` tokens are enough after any one."""
        most = self._bounds[state]
        return most is not None and most <= spare

    def most_bytes(self, state: int) -> int:
        """Upper bound, in bytes and so in tokens, on the completion after any one token."""
        found = self._bounds[state]
        if found is None:
            with GROW:
                ends = self._engine.ends(state)
                found = max((self._bytes_to_end(q, place) for q, place in ends), default=0)
                self._bounds[state] = found
                self._store.charge(100)
        return found

    most_roughly = most_bytes

    def most(self, state: int) -> int:
        """Tokens of the longest completion after any one token from ``state``."""
        return max((needed for needed, _, _ in self.classes(state)), default=0)

    def restrict(self, state: int, most: int, out: Bits) -> None:
        """Clear the bits of tokens after which ``most`` tokens do not finish.

        Args:
            state: the machine's state.
            most: tokens that may follow, the end of the sequence not counted.
            out: uint32 ``[ceil(size / 32)]``, the mask of ``state``; changed in place.
        """
        for needed, ids, bits in self.classes(state):
            if needed <= most:
                continue
            if bits is None:
                bits = np.zeros_like(out)
                set_bits(bits, ids)
            out &= ~bits

    def classes(self, state: int) -> tuple[Class, ...]:
        """The allowed tokens by the number of tokens needed after them, EOS ids left out.

        Cost: a look-up once computed; before, 0.1 µs a node of the trie and the steps and
        completions of states that have not been met.
        """
        found = self._classes[state]
        if found is None:
            with GROW:
                found = self._classed(self._needed(state))
                self._classes[state] = found
                self._store.charge(200 + sum(120 + ids.nbytes for _, ids, _ in found))
        return found

    def _bytes_to_end(self, q: int, place: int) -> int:
        """Bytes of the completion from one configuration."""
        found = self._lengths[q, place]
        if found is None:
            rest = self._machine.complete(q, place)
            found = self._lengths[q, place] = FAR if rest is None else len(rest)
            self._store.charge(200)
        return found

    def _classed(self, needed: npt.NDArray[np.int32]) -> tuple[Class, ...]:
        """Token ids by ``needed``, int32 [n_tokens in the trie], -1 where not allowed."""
        token_ids = self._store.trie.token_ids
        out: list[Class] = []
        none = np.zeros(0, np.int32)
        for size in np.unique(needed[needed >= 0]).tolist():
            ids = token_ids[needed == size]
            if len(ids) > _FEW:
                out.append((size, none, self._store.intern(bits_of(ids, self._store.n_words))))
            else:
                out.append((size, ids, None))
        return tuple(out)

    def _needed(self, state: int) -> npt.NDArray[np.int32]:
        """Tokens needed after each of ``trie.token_ids``, -1 where it leads nowhere."""
        trie, step = self._store.trie, self._machine.step
        of_node = np.full(trie.n_nodes, -1, np.int32)
        # Nodes of one level, and for each of them the state there, by its place in `states`.
        nodes, at = np.zeros(1, np.int32), np.zeros(1, np.int64)
        states = [state]
        while len(nodes):
            n_children = trie.n_children[nodes]
            begins = trie.first_child[nodes] - np.cumsum(n_children) + n_children
            nodes = np.repeat(begins, n_children) + np.arange(n_children.sum(), dtype=np.int32)
            steps = np.repeat(at, n_children) << 8 | trie.byte[nodes]
            table = np.zeros(len(states) << 8, np.int64)
            table[steps] = 1
            met = np.flatnonzero(table)
            places: dict[int, int] = {DEAD: -1}
            table[met] = [
                places.setdefault(step(states[key >> 8], key & 255), len(places) - 1)
                for key in met.tolist()
            ]
            at = table[steps]
            nodes, at = nodes[at >= 0], at[at >= 0]
            del places[DEAD]
            states = list(places)
            is_end = trie.token_start[nodes] != trie.token_start[nodes + 1]
            sizes = np.full(len(states), -1, np.int32)
            for place in np.flatnonzero(np.bincount(at[is_end], minlength=len(states))).tolist():
                sizes[place] = self._size(states[place])
            of_node[nodes[is_end]] = sizes[at[is_end]]
        return np.repeat(of_node, np.diff(trie.token_start))

    def _size(self, state: int) -> int:
        """Tokens of the completion from ``state``."""
        found = self._sizes[state]
        if found is None:
            found = self._vocabulary.count_tokens(self._machine.shortest_completion(state))
            self._sizes[state] = found
            self._store.charge(100)
        return found
