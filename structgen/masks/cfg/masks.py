"""Token masks of context-free grammars, and what token budgets bar of them.

`CfgMaskEngine` walks the lexer through the trie (`lexer_walks`). Where terminals end inside a
token, the open nonterminals say what comes next (`nonterminal_walks`), and the walk continues there
until the trie ends. Places that expect the same terminals share these walks, so a new place costs a
few look-ups.

`CfgReach` is the counterpart of `masks.reach`: how far from the end each token leads. It walks all
tokens through the machine at once, level by level, with one step for each state and byte met on a
level. It keeps the allowed tokens in classes that need the same number of tokens afterwards; within
any budget the mask is then a few operations on whole rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import TEXT_END, CfgMachine, unpack
from structgen.automaton.core import DEAD, GROW, TextHistory
from structgen.automaton.work import WORK
from structgen.grammar.cfg import cache as grammar_cache
from structgen.masks.grouping import bits_of
from structgen.masks.leaf_walks import walker_of
from structgen.masks.mask import Mask, fill
from structgen.masks.reach import FAR
from structgen.masks.walk_store import Ids, WalkStore
from structgen.storage import GenerationalCache
from structgen.vocabulary import Vocabulary

from .lexer_walks import Walks
from .nonterminal_walks import NOTHING, NonterminalWalk, NonterminalWalks
from .tokens import Bits, LexerWalk, new_number, overlay, packed, set_bits

_NO_BITS = np.array([], np.uint32)
_ROOT = 0
_PER_STATE = 200
"""Bytes of a mask that is known already, remembered for one more state."""

_WORTH_KEEPING = 20_000
"""First masks over smaller vocabularies are not worth a file."""


class CfgMaskEngine:
    """Masks of one machine over one vocabulary.

    Thread-safe: a mask that is not cached is computed under the automata's growth lock.

    Attributes:
        ready: masks by state, of those computed. Only to be read.
    """

    def __init__(self, machine: CfgMachine, vocabulary: Vocabulary) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        store = walker_of(vocabulary).store
        self.ready: GenerationalCache[int, Mask] = store.cache()
        self._n_words = (vocabulary.size + 31) // 32
        self._none = bytes(4 * self._n_words)
        self._alike: GenerationalCache[tuple[int, ...], Mask] = store.cache()
        self._eos = np.array([t for t in vocabulary.eos_token_ids if t < vocabulary.size], np.int32)
        self._end = LexerWalk(tuple(self._eos.tolist()), (), (), (), new_number())

    # A first mask from disk needs neither. Whoever asks holds `GROW`.

    @functools.cached_property
    def _walks(self) -> Walks:
        return Walks(self.machine.lexer, self.vocabulary)

    @functools.cached_property
    def _frames(self) -> NonterminalWalks:
        return NonterminalWalks(self.machine, self._walks, self._n_words)

    def mask(self, state: int, tape: Callable[[], TextHistory] | None = None) -> Mask:
        """The mask of ``state``. Cost: a dictionary look-up once computed."""
        found = self.ready[state]
        if found is None:
            with GROW:
                found = self._first() if state == self.machine.start else self._compute(state)
                self.ready[state] = found
        return found

    def _steps(self, state: int) -> list[tuple[int, int, int]]:
        """The walks that make up the mask of ``state``: lexer state, place and node of each."""
        machine, walks, lexer = self.machine, self._walks, self.machine.lexer
        outcomes, begun, first_bytes = lexer.outcomes, lexer.begun, lexer.first_bytes
        todo: list[tuple[int, int, int]] = []
        seen: set[tuple[int, int, int]] = set()

        def begin(q: int, place: int, node: int) -> None:
            if (q, place, node) not in seen:
                seen.add((q, place, node))
                # Terminals one by one, so that places share their walks.
                available = walks.nodes.bytes_after(node)
                todo.extend(
                    [(part, place, node) for part in begun(q) if first_bytes(part) & available]
                )

        for q, place in machine.configurations(state):
            begin(q, place, _ROOT)
        for q, place, node in todo:
            WORK.spend(1)
            for outcome, exit_node in walks.walk(q, node).exits:
                for condition, terminals in outcomes[outcome]:
                    after = machine.after(place, terminals)
                    entry = machine.entry(after, condition)
                    if entry >= 0:
                        begin(entry, after, exit_node)
        return todo

    def _first(self) -> Mask:
        """The mask of the machine's start, from disk if it was computed before."""
        machine, vocabulary = self.machine, self.vocabulary
        if machine.fingerprint is None or vocabulary.size < _WORTH_KEEPING:
            return self._compute(machine.start)
        of = f"{machine.fingerprint} {vocabulary.uid}"
        row = grammar_cache.find_row("first mask", of)
        if row is None:
            row = np.zeros(self._n_words, np.uint32)
            fill(self._compute(machine.start), row)
            grammar_cache.keep_row("first mask", of, row)
        return packed(row), None, _NO_BITS

    def _compute(self, state: int) -> Mask:
        parts = (
            self._whole(state)
            if self.machine.is_free
            else {
                walk.number: walk
                for walk in [self._walks.walk(q, node) for q, _, node in self._steps(state)]
            }
        )
        parts.pop(NOTHING[-1], None)
        if self.machine.is_accepting(state):
            parts[self._end.number] = self._end
        # Often places differ only in what no token reaches. Walks are remembered, and
        # forgotten together with this.
        key = tuple(sorted(parts))
        found = self._alike[key]
        if found is None:
            ids: list[int] = []
            rows: list[Bits] = []
            for part in parts.values():
                ids += part[0]
                rows += part[1]
            row, is_new = overlay(ids, rows, self._none)
            found = self._alike[key] = row, None, _NO_BITS
            self._walks.charge(400 + len(row) * is_new)
        self._walks.charge(_PER_STATE)
        return found

    def _whole(self, state: int) -> dict[int, LexerWalk | NonterminalWalk]:
        """The walks whose tokens are those of ``state``, goals walked once for all stacks."""
        machine, frames = self.machine, self._frames
        graph, lexer, join = machine.graph, machine.lexer, self._walks.nodes.join
        shapes, settled, top_of = graph.shapes, frames.settled, frames.top
        is_final, accepts = graph.goals.is_final, graph.goals.accepts
        out: dict[int, LexerWalk | NonterminalWalk] = {}
        # Continuations that are gone on with: (continuation, condition, node).
        todo: list[tuple[int, int, int]] = []
        # Where terminals lead: the place and what is demanded there, and a node per configuration.
        begun: dict[tuple[int, int], list[int]] = {}
        for q, place in machine.configurations(state):
            condition = lexer.threads(q)[0]
            if machine.entry(place, condition) == q:
                after = settled(shapes[place], condition)
                begun.setdefault((place, after), []).append(_ROOT)
                continue
            walk = self._walks.walk(q, _ROOT)
            out[walk.number] = walk
            leads: dict[tuple[int, int], list[int]] = {}
            for outcome, node in walk.exits:
                for end, terminals in lexer.outcomes[outcome]:
                    at = machine.after(place, terminals)
                    leads.setdefault((at, settled(shapes[at], end)), []).append(node)
            for key, nodes in leads.items():
                begun.setdefault(key, []).append(join(nodes))
        for (at, after), starts in begun.items():
            tops = graph.places[at]
            WORK.spend(len(tops) * len(starts) >> 2)
            for start in starts:
                spaces, spots = frames.spaced(after, start)
                for walk in spaces:
                    out[walk.number] = walk
                # What a place's tops can return to is among its tops already.
                for then, node in spots:
                    for top, below in tops:
                        found = top_of(top, then, node)
                        out[found[-1]] = found
                        for end, there in found[2]:
                            todo.append((below, end, there))
        seen = set(todo)
        while todo:
            continuation, condition, node = todo.pop()
            WORK.spend(1 + (len(graph.continuations[continuation]) >> 1))
            for entry in graph.continuations[continuation]:
                if entry == TEXT_END:
                    continue
                top, below = unpack(entry)
                more: list[tuple[int, int, int]] = []
                if not is_final[top]:
                    found = top_of(top, condition, node)
                    out[found[-1]] = found
                    more = [(below, end, there) for end, there in found[2]]
                if accepts[top]:
                    more.append((below, condition, node))
                for step in more:
                    if step not in seen:
                        seen.add(step)
                        todo.append(step)
        return out

    # -- what budgets ask -------------------------------------------------------------------------

    def ends(self, state: int) -> set[tuple[int, int]]:
        """Where tokens from ``state`` end: ``(lexer state, place)`` pairs; not remembered."""
        with GROW:
            inside = self._walks.inside_characters
            return {
                (q, place)
                for begin, place, node in self._steps(state)
                for end in self._walks.walk(begin, node).ends
                for q in ((end,) if end >= 0 else inside(~end))
            }


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
