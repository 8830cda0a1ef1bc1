"""Walks of a grammar's lexer through a vocabulary's trie, memoised.

A walk starts in a lexer state at a node of the trie, or at a *set* of nodes walked as one (all the
places where tokens leave a name, say), and reports the tokens that end inside and the nodes where
terminals may end, by outcome. Of those nodes only the ones count from which some token goes on with
a byte that the terminal's end allows: after a name, with no letter. Narrow walks run depth first in
Python, sets of nodes merged byte by byte; wide ones level by level in NumPy; and where a state
leads back to itself by a class of bytes, the whole run is one comparison (`byte_runs`). Walks of a
single terminal are made once for all grammars over a vocabulary (`shared`).

This module knows lexers and tries; what follows a terminal is `masks`' business.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer
from structgen.masks.state_rows import StateRows
from structgen.vocabulary import Trie, Vocabulary

from .byte_runs import Order, order_of
from .node_sets import NODE_BITS, NodeSets, as_mask
from .search import Search
from .shared import Prefixes, Spaces, TerminalWalks
from .tokens import Walk, gathered, new_number

_FEW = 10
"""Sets of so many nodes are looked at one by one."""
_MANY_BYTES = 8
"""Terminals that go on with more bytes than these are walked apart from large nodes."""


class Walks:
    """The walks of one lexer over one vocabulary.

    Attributes:
        lexer: the lexer.
        nodes: nodes of the trie, and sets of them.
        states: where bytes lead from the lexer's states.
        charge: counts bytes of what is remembered, all of it the vocabulary's.
    """

    def __init__(self, lexer: Lexer, vocabulary: Vocabulary) -> None:
        self.lexer = lexer
        self.trie: Trie = vocabulary.trie
        self.order: Order = order_of(vocabulary)
        self._terminals = TerminalWalks(lexer, vocabulary)
        self.nodes: NodeSets = self._terminals.shared.nodes
        self.n_words = (vocabulary.size + 31) // 32
        self.states = StateRows(lambda: lexer, _free_of_charge, lambda q: lexer.loop(q) is not None)
        self._allowed: dict[int, npt.NDArray[np.bool_]] = {}
        self._allowed_masks: dict[int, int] = {}
        self._anything = lexer.terminals.rest.anything
        self._inside: dict[int, tuple[int, ...]] = {}
        # Those of a lexer that grammars share are theirs as well.
        self._is_shared = lexer.permits is None
        self._known = self._terminals.shared.known_to(lexer)
        self._walks: dict[int, Walk] = self._known.walks
        # States in which one terminal is read that has a name, those of one text excepted.
        self._named: dict[int, tuple[int, bytes]] = {}
        self._ends: dict[int, tuple[int, ...]] = {}
        self.charge = self._terminals.shared.charge

    def clear(self) -> None:
        """Forget all walks that are not shared."""
        if not self._is_shared:
            self._walks.clear()
        self._ends.clear()

    @property
    def is_stale(self) -> bool:
        """Whether `renew` would forget all walks."""
        return self._terminals.shared.is_stale

    def renew(self) -> bool:
        """Forget all walks if what grammars share has been made anew, and return whether that was
        so: nodes that were sets then have other numbers now."""
        if not self._terminals.shared.is_stale:
            return False
        self._terminals.renew()
        self.nodes = self._terminals.shared.nodes
        self._known = self._terminals.shared.known_to(self.lexer)
        self._walks = self._known.walks
        self.clear()
        return True

    def walk(self, q: int, node: int) -> Walk:
        """The walk from lexer state ``q`` at ``node``."""
        key = q << NODE_BITS | node
        found = self._walks.get(key)
        if found is None:
            name = self._named.get(q)
            if name is not None:
                found = self._terminals.get(name, node)
            if found is None:
                literal = self.lexer.literal(q)
                if literal is None:
                    found = self._of_states(q, node)
                else:
                    found = self._literal(*literal, node)
            self._walks[key] = found
            self.charge(400 + 8 * len(found.ids) + 4 * self.n_words * len(found.rows))
        return found

    def spaces(self, ignore: frozenset[int]) -> dict[int, Spaces]:
        """What is known of the terminals ``ignore``, wherever they are ignored: `nonterminal_walks`
        fills it. To be asked for again after `renew`."""
        return self._known.spaces.setdefault(ignore, {})

    @property
    def prefixes(self) -> dict[tuple[tuple[int, ...], frozenset[int], int], Prefixes]:
        """`Known.prefixes` of the lexer."""
        return self._known.prefixes

    def _of_states(self, q: int, node: int) -> Walk:
        split = self.lexer.split(q)
        if len(split) > 1:
            return self._joined([(part, node) for part in split])
        name = self._terminals.name(q)
        found = None
        if name is not None:
            self._named[q] = name
            found = self._terminals.get(name, node)
        if found is None:
            apart = self._apart(q, node)
            found = self._joined(apart) if apart else Search(self, q, node).walk()
            if name is not None:
                self._terminals.put(name, node, found)
        return found

    def _apart(self, q: int, node: int) -> list[tuple[int, int]]:
        """The walks that one from ``q`` at ``node`` is put together from, if it is."""
        if node < self.nodes.n_nodes or self.lexer.n_bytes(q) <= _MANY_BYTES:
            return []
        apart = self.nodes.apart(node)
        return [(q, part) for part in apart] if len(apart) > 1 else []

    def ends(self, q: int, node: int) -> tuple[int, ...]:
        """`Walk.ends` of the walk from ``q`` at ``node``.

        Cost: where another grammar made the walk, and some of its ends have no names, it is made
        again.
        """
        walked = self.walk(q, node)
        if walked.ends is not None:
            return walked.ends
        # Not put into the walk: masks are known by the numbers of their walks.
        key = q << NODE_BITS | node
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = self._find_ends(q, node)
            self.charge(100)
        return found

    def _find_ends(self, q: int, node: int) -> tuple[int, ...]:
        split = self.lexer.split(q)
        name = self._terminals.name(q)
        ends = None
        parts = [(part, node) for part in split]
        if len(parts) == 1:
            ends = None if name is None else self._terminals.ends(name, node)
            parts = self._apart(q, node)
        if ends is None and parts:
            ends = tuple(dict.fromkeys(end for part in parts for end in self.ends(*part)))
        elif ends is None:
            ends = Search(self, q, node).walk().ends or ()
        return ends

    def _literal(self, text: bytes, states: list[int], outcome: int, node: int) -> Walk:
        """The walk of a terminal that is one text."""
        nodes, child_of = self.nodes, self.trie.child
        n_nodes, token_start, token_ids = nodes.n_nodes, nodes.token_start, nodes.token_ids
        ids: list[int] = []
        ends: list[int] = []
        at = node
        for byte, state in zip(text, states, strict=True):
            below = child_of.get(at << 8 | byte, -1) if at < n_nodes else nodes.child(at, byte)
            if below < 0:
                break
            at = below
            if at >= n_nodes:
                here = nodes.tokens_of(at)
                if len(here):
                    ids += here
                    ends.append(state)
            elif token_start[at] != token_start[at + 1]:
                ids += token_ids[token_start[at] : token_start[at + 1]]
                ends.append(state)
        else:
            if nodes.n_children[at] if at < n_nodes else nodes.bytes_after(at):
                return Walk(tuple(ids), (), ((outcome, at),), tuple(ends), new_number())
        return Walk(tuple(ids), (), (), tuple(ends), new_number())

    def _joined(self, steps: list[tuple[int, int]]) -> Walk:
        parts = [self.walk(q, node) for q, node in steps]
        all_ids = [i for part in parts for i in part.ids]
        ids, rows, _ = gathered(all_ids, [r for part in parts for r in part.rows], self.n_words)
        exits: dict[int, list[int]] = {}
        for part in parts:
            for outcome, node in part.exits:
                exits.setdefault(outcome, []).append(node)
        ends: dict[int, None] = {}
        for part in parts:
            ends.update(dict.fromkeys(part.ends or ()))
        are_known = all(part.ends is not None for part in parts)
        joined = tuple((outcome, self.nodes.join(nodes)) for outcome, nodes in exits.items())
        return Walk(ids, rows, joined, tuple(ends) if are_known else None, new_number())

    def inside_characters(self, q: int) -> tuple[int, ...]:
        """The states in which a token can end inside a character that begins in ``q``."""
        found = self._inside.get(q)
        if found is None:
            states: dict[int, None] = {}
            for tail in self.order.tails():
                at: int | None = q
                for byte in tail:
                    at = self.lexer.row(at).get(byte) if at is not None else None
                if at is not None:
                    states[at] = None
            found = self._inside[q] = tuple(states)
        return found

    # -- what may follow ---------------------------------------------------------------------------

    def bytes_after(self, node: int, condition: int) -> int:
        """The bytes with which tokens go on from ``node`` under a condition, as a mask."""
        found = self.nodes.bytes_after(node)
        if condition == self._anything:
            return found
        return found & self.lexer.mask_under(condition)

    def allowed_after(self, outcome: int) -> npt.NDArray[np.bool_]:
        """Which bytes may follow an outcome: bool [256]."""
        found = self._allowed.get(outcome)
        if found is None:
            found = self._allowed[outcome] = self.lexer.following_bytes(outcome)
        return found

    def allowed_mask(self, outcome: int) -> int:
        """Which bytes may follow an outcome, as a mask."""
        found = self._allowed_masks.get(outcome)
        if found is None:
            found = self._allowed_masks[outcome] = as_mask(self.allowed_after(outcome))
        return found

    def goes_on(self, node: int, outcome: int) -> int:
        """What of ``node`` some token goes on from as an outcome allows; -1 for nothing."""
        nodes = self.nodes
        if node < nodes.n_nodes:
            allowed = self.allowed_mask(outcome)
            first, byte_of = nodes.first_child[node], nodes.byte
            for child in range(first, first + nodes.n_children[node]):
                if allowed >> byte_of[child] & 1:
                    return node
            return -1
        if nodes.n_members(node) <= _FEW:
            allowed = self.allowed_mask(outcome)
            members = nodes.real(node).tolist()
            found = [member for member in members if nodes.bytes_after(member) & allowed]
            if len(found) == len(members):
                return node
            return nodes.join(found) if found else -1
        there = nodes.going_on(nodes.real(node), self.allowed_after(outcome))
        return nodes.of(there) if len(there) else -1


def _free_of_charge(_: int) -> None:
    """The rows of a grammar's lexer are counted with its states."""
