"""Masks of grammars, alone or beside other output types, and what token budgets bar of them.

`CfgFrameWalks` walks lexers through the trie (`lexer_walks`). Where terminals end inside a token,
the open nonterminals say what comes next (`nonterminal_walks`), and the walk continues there until
the trie ends. Places that expect the same terminals share these walks, so a new place costs a few
look-ups. What other types write inside a grammar, or around it, is walked as ever.

`CfgReach` tells how far from the end each token of a grammar leads. It walks all tokens through the
machine at once, level by level, with one step for each state and byte met on a level. It keeps the
allowed tokens in classes that need the same number of tokens afterwards; within any budget the mask
is then a few operations on whole rows.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import CfgFrame, CfgMachine, Lexer, NamedTokenLeaf
from structgen.automaton.core import BOTTOM, DEAD, GROW, Alternative, Leaf, Machine, TextHistory
from structgen.grammar.cfg import cache as grammar_cache
from structgen.masks.frame_walks import FrameWalks
from structgen.masks.grouping import bits_of
from structgen.masks.leaf_walks import Walker
from structgen.masks.mask import NO_BITS, Mask, fill
from structgen.masks.named_tokens import NamedTokens
from structgen.masks.node_sets import Node
from structgen.masks.reach import FAR, Reach
from structgen.masks.token_masks import MaskEngine
from structgen.masks.walk_store import NO_WALK, ROOT, Ids, LeafWalk, Tokens, WalkMemo, ids_of
from structgen.storage import Caches, GenerationalCache
from structgen.vocabulary import Vocabulary

from .lexer_walks import Walks, as_leaf_walk
from .nonterminal_walks import NOTHING, NonterminalWalk, NonterminalWalks
from .tokens import Bits, LexerWalk, overlay

_WORTH_KEEPING = 20_000
"""First masks over smaller vocabularies are not worth a file."""

Configuration: TypeAlias = "tuple[int, int, int]"
"""A leaf's number, its state, and the continuation."""


class RuleWalks(NamedTuple):
    """What configurations do in which the rules of grammars are followed.

    Attributes:
        walks: walks whose tokens may come, by their numbers.
        ended: where the text of a grammar ends: what lies below it, and the node.
        others: the configurations that are left.
    """

    walks: dict[int, LexerWalk | NonterminalWalk]
    ended: list[tuple[int, Node]]
    others: list[Configuration]


class CfgFrameWalks(FrameWalks):
    """Walks of the frames and leaves of a machine with grammars."""

    def __init__(
        self,
        machine: Machine,
        walker: Walker,
        caches: Caches,
        vocabulary: Vocabulary,
        named: NamedTokens,
    ) -> None:
        super().__init__(machine, walker, caches)
        self._vocabulary = vocabulary
        self._named = named
        self._named_walks: dict[NamedTokenLeaf, LeafWalk] = {}
        self._lexers: dict[Lexer, Walks] = {}
        self._grammars: dict[CfgFrame, NonterminalWalks] = {}
        this = weakref.ref(self)

        def walk_anew(leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
            walks = this()
            assert walks is not None, "what is walked belongs to it"
            return walks._walk_leaf(leaf, q, node, memo)

        self._walk_anew = walk_anew

    def of_lexer(self, lexer: Lexer) -> Walks:
        """Walks of a grammar's terminals."""
        found = self._lexers.get(lexer)
        if found is None:
            found = self._lexers[lexer] = Walks(lexer, self._vocabulary)
        return found

    def of_grammar(self, frame: CfgFrame) -> NonterminalWalks:
        """Walks of a grammar's rules."""
        found = self._grammars.get(frame)
        if found is None:
            this = weakref.ref(self)

            def inner(ways: tuple[Alternative, ...], node: Node) -> tuple[Tokens, Node]:
                walks = this()
                assert walks is not None, "what is walked belongs to it"
                return walks._walk_ways(ways, node, walks._most_room)[:2]

            walks, n_words = self.of_lexer(frame.lexer), self._store.n_words
            found = self._grammars[frame] = NonterminalWalks(frame, walks, n_words, inner)
        return found

    def of_rules(self, configurations: Sequence[Configuration]) -> RuleWalks:
        """What configurations do with whole tokens, as far as that is the same for all stacks."""
        leaves, stacks = self._machine.leaves, self._stacks
        found = RuleWalks({}, [], [])
        places: dict[tuple[CfgFrame, int], list[tuple[int, int]]] = {}
        for configuration in configurations:
            leaf_id, q, continuation = configuration
            if not isinstance(leaves[leaf_id], Lexer):
                found.others.append(configuration)
                continue
            for frame_id, below in stacks.continuations[continuation]:
                frame, at = stacks.frames[frame_id]
                assert isinstance(frame, CfgFrame)
                if not frame.is_free and (below != BOTTOM or frame.embedded):
                    found.others.append(configuration)
                    break
                places.setdefault((frame, below), []).append((q, at >> 1))
        for (frame, below), here in places.items():
            walks, nodes = self.of_grammar(frame).places(here, below == BOTTOM)
            found.walks.update(walks)
            found.ended.extend([(below, node) for node in dict.fromkeys(nodes)])
        return found

    def _walk_leaf(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
        if isinstance(leaf, NamedTokenLeaf):
            # A token of its own: no other one goes on with it.
            return self._named_walk(leaf) if node == ROOT and q == leaf.start else NO_WALK
        if not isinstance(leaf, Lexer):
            return self._walker.walk_anew(leaf, q, node, memo)
        found = as_leaf_walk(self.of_lexer(leaf), q, node)
        memo.put(leaf, q, node, found)
        self._store.used += len(found[1]) + 400
        return found

    def _named_walk(self, leaf: NamedTokenLeaf) -> LeafWalk:
        """What a named token's leaf does at the start of a token."""
        found = self._named_walks.get(leaf)
        if found is None:
            end = leaf.start
            while leaf.row(end):
                (end,) = leaf.row(end).values()
            token = array("i", [self._named.ids[leaf.named]]).tobytes()
            found = self._named_walks[leaf] = None, token, (), (end,)
        return found


class CfgMaskEngine(MaskEngine):
    """Masks of a machine with grammars over one vocabulary."""

    machine: CfgMachine

    @cached_property
    def _eos(self) -> list[int]:
        return [t for t in self.vocabulary.eos_token_ids if t < self.vocabulary.size]

    @cached_property
    def frames(self) -> CfgFrameWalks:
        """Walks of what follows leaves."""
        return CfgFrameWalks(self.machine, self._walker, self._caches, self.vocabulary, self.named)

    def mask(self, state: int, tape: Callable[[], TextHistory]) -> Mask:
        """See `MaskEngine.mask`; that of a machine's start from disk if it was computed before."""
        machine, vocabulary = self.machine, self.vocabulary
        if state != machine.start or machine.fingerprint is None or self._masks[state]:
            return super().mask(state, tape)
        if vocabulary.size < _WORTH_KEEPING:
            return super().mask(state, tape)
        with GROW:
            of = f"{machine.fingerprint} {vocabulary.uid}"
            row = grammar_cache.find_row("first mask", of)
            if row is None:
                row = np.zeros(self._store.n_words, np.uint32)
                fill(super().mask(state, tape), row)
                grammar_cache.keep_row("first mask", of, row)
            found = self._masks[state] = self._store.packed(row), None, NO_BITS
        return found

    def _put_together(
        self, configurations: list[Configuration], is_accepting: bool, tape: TextHistory | None
    ) -> Mask:
        found = RuleWalks({}, [], configurations)
        if tape is None:
            found = self.frames.of_rules(configurations)
        if not found.walks:
            mask = super()._put_together(configurations, is_accepting, tape)
        else:
            tokens = b"".join(
                walk[0]
                for below, node in found.ended
                for walk, _ in self.frames.walks_after(below, 0, node)
            )
            mask = self._united(found.walks, found.others, is_accepting, tokens)
        return self._without_named(mask, configurations) if self.named.textual else mask

    def _united(
        self,
        walks: dict[int, Any],
        others: list[Configuration],
        is_accepting: bool,
        tokens: Tokens,
    ) -> Mask:
        """The mask of walks, of other configurations, and of some tokens."""
        walks.pop(NOTHING[-1], None)
        # Often places differ only in what no token reaches. Walks are remembered, and
        # forgotten together with this.
        key = (is_accepting, tokens, *others, *sorted(walks))
        found = self._alike[key]
        if found is None:
            store, ids, rows = self._store, ids_of(tokens).tolist(), []
            if others:
                rows.append(np.zeros(store.n_words, np.uint32))
                fill(super()._put_together(others, False, None), rows[0])
            if is_accepting:
                ids += self._eos
            for walk in walks.values():
                ids += walk[0]
                rows += walk[1]
            row, is_new = overlay(ids, rows, store.zeros)
            found = self._alike[key] = row, None, NO_BITS
            store.charge(400 + len(row) * is_new)
        return found

    def _without_named(self, mask: Mask, configurations: list[Configuration]) -> Mask:
        """``mask`` without named tokens that only stand there for their text."""
        leaves = [self.machine.leaves[leaf] for leaf, _, _ in configurations]
        meant = {self.named.ids[n.named] for n in leaves if isinstance(n, NamedTokenLeaf)}
        bits = np.zeros(self._store.n_words, np.uint32)
        fill(mask, bits)
        for token in self.named.textual - meant:
            bits[token >> 5] &= ~np.uint32(1 << (token & 31))
        return self._store.packed(bits), None, NO_BITS


_FEW = 400
"""More token ids than this, and they are packed."""

Class = tuple[int, Ids, "Bits | None"]
"""Tokens needed after each of some tokens, and their ids, or a packed row where they are many."""


class CfgReach(Reach):
    """Distances to the end over one engine's walks, of a machine that is one grammar."""

    def __init__(self, engine: CfgMaskEngine, rules: CfgFrame) -> None:
        super().__init__(engine)
        self._rules = rules
        self._masks = engine
        self._lengths: GenerationalCache[tuple[int, int], int] = self._store.cache()
        self._classes: GenerationalCache[int, tuple[Class, ...]] = self._store.cache()
        self._sizes: GenerationalCache[int, int] = self._store.cache()

    def most_roughly(self, state: int) -> int:
        """See `Reach.most_roughly`: where tokens end is looked at."""
        found = self._reaches_roughly[state]
        if found is None:
            stacks = self._machine.stacks
            with GROW:
                places = [
                    (q, stacks.frames[frame_id][1] >> 1)
                    for _, q, continuation in self._machine.configurations(state)
                    for frame_id, _ in stacks.continuations[continuation]
                ]
                ends = self._masks.frames.of_grammar(self._rules).ends(places)
                found = max((self._length(q, place) for q, place in ends), default=0)
                self._reaches_roughly[state] = found
                self._store.charge(100)
        return found

    def _length(self, q: int, place: int) -> int:
        """Bytes of the completion from one configuration."""
        found = self._lengths[q, place]
        if found is None:
            rest = self._rules.complete(q, 2 * place)
            found = self._lengths[q, place] = FAR if rest is None else len(rest)
            self._store.charge(200)
        return found

    most_bytes = most_roughly

    def most(self, state: int) -> int:
        """Tokens of the longest completion after any one token from ``state``."""
        return max((needed for needed, _, _ in self.classes(state)), default=0)

    def restrict(self, state: int, most: int, out: Bits) -> bool:
        """See `Reach.restrict`."""
        for needed, ids, bits in self.classes(state):
            if needed <= most:
                continue
            if bits is None:
                bits = bits_of(ids, len(out))
            out &= ~bits
        return True

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
