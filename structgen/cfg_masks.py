"""Token masks of context-free grammars: a machine state × the vocabulary's trie → packed bits.

The lexer is walked through the trie (`masks` owns that); where terminals end inside a token, the
stacks say what comes next, and the walk goes on there, until the trie ends. Walks of the lexer are
shared by all places that expect the same terminals, so that a new place costs a few look-ups.

This module knows automata only through `CfgMachine`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .automaton.cfg_machine import CfgMachine
from .automaton.leaf import GROW
from .automaton.tape import Tape
from .masks import Bits, Ids, LeafWalk, Mask, pack_ids, walker_of
from .vocabulary import Vocabulary

_ROOT = 0
_FAR = 1 << 60


class CfgMaskEngine:
    """Masks of one machine over one vocabulary.

    Thread-safe: a mask that is not cached is computed under the automata's growth lock.
    """

    def __init__(self, machine: CfgMachine, vocabulary: Vocabulary) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self._walker = walker_of(vocabulary)
        self._epoch = self._walker.epoch
        self._walks: dict[tuple[int, int], LeafWalk] = {}
        self._masks: dict[int, Mask] = {}
        self._reaches: dict[int, int] = {}
        self._eos = np.array([t for t in vocabulary.eos_token_ids if t < vocabulary.size], np.int32)

    def mask(self, state: int, tape: Callable[[], Tape] | None = None) -> Mask:
        """The mask of ``state``. Cost: a dictionary look-up once computed."""
        found = self._masks.get(state)
        if found is None:
            with GROW:
                self._trim()
                found = self._masks[state] = self._compute(state)
                self._walker.charge(found.bits.nbytes * 2 + 200)
        return found

    def fill(self, state: int, out: Bits, tape: Callable[[], Tape] | None = None) -> None:
        """Write the mask of ``state`` into ``out``, uint32 [ceil(size / 32)]."""
        mask = self.mask(state)
        if mask.words is None:
            out[:] = mask.bits
        else:
            out[:] = 0
            out[mask.words] = mask.bits

    def _trim(self) -> None:
        """Keep to the budget; forget walks whose virtual nodes no longer exist."""
        self._walker.trim()
        if self._epoch != self._walker.epoch:
            self._epoch = self._walker.epoch
            self._walks.clear()
            self._masks.clear()
            self._reaches.clear()

    def _walk(self, q: int, node: int) -> LeafWalk:
        key = (q, node)
        found = self._walks.get(key)
        if found is None:
            walker, lexer = self._walker, self.machine.lexer
            found = walker.memoised({}, lexer, q, node)
            self._walks[key] = found
        return found

    def _steps(self, state: int) -> list[tuple[LeafWalk, int]]:
        """The walks that make up the mask of ``state``, each with the place it is walked at."""
        machine, walker = self.machine, self._walker
        outcomes, trie = machine.lexer.outcomes, walker.trie
        n_nodes, n_children = trie.n_nodes, trie.n_children
        out: list[tuple[LeafWalk, int]] = []
        todo = [(q, place, _ROOT) for q, place in machine.configurations(state)]
        seen = set(todo)
        while todo:
            q, place, node = todo.pop()
            walk = self._walk(q, node)
            out.append((walk, place))
            for outcome, exit_node in walk.exits:
                if exit_node < n_nodes and not n_children[exit_node]:
                    continue
                for condition, terminals in outcomes[outcome]:
                    after = machine.after(place, terminals)
                    entry = machine.entry(after, condition)
                    step = (entry, after, exit_node)
                    if entry >= 0 and step not in seen:
                        seen.add(step)
                        todo.append(step)
        return out

    def _compute(self, state: int) -> Mask:
        parts: list[Ids] = [walk.ids for walk, _ in self._steps(state)]
        if self.machine.is_accepting(state):
            parts.append(self._eos)
        return pack_ids(parts, self._walker.n_words)

    # -- how far one token can lead from the end ----------------------------------------------

    def reach(self, state: int) -> int:
        """Upper bound, in tokens, on the completion after any one token from ``state``."""
        found = self._reaches.get(state)
        if found is None:
            with GROW:
                self._trim()
                ends = {(q, place) for walk, place in self._steps(state) for q in walk.ends}
                found = max((self._tokens_to_end(q, place) for q, place in ends), default=0)
                self._reaches[state] = found
                self._walker.charge(100)
        return found

    def _tokens_to_end(self, q: int, place: int) -> int:
        rest = self.machine.complete(q, place)
        return _FAR if rest is None else len(rest)
