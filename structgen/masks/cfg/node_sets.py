"""Nodes of a vocabulary's trie, one or many walked as one.

A set of nodes has a number of its own, beyond those of the trie's nodes; sets with the same members
are one. Its children are its members' children, merged byte by byte: so what tokens do after a name
is walked once for all names. It knows no automata.

What all grammars over one vocabulary share: sets of trie nodes, and walks of single terminals. What
a terminal does through the trie is the same in every grammar it stands in: strings, numbers, names
and white space recur. A walk is known by the terminal's content, the text that leads to the state
it begins in, and the node it begins at; where terminals end is said by texts, too
(`cfg.spellings`), so that nothing here is numbered by a grammar. It all lies under the vocabulary's
byte budget (`walks.Walker`); nodes are numbered anew (`Shared`) when it has been spent.

Grammars whose lexer is one (`shared_lexer`) find walks of it by its own numbers, without names
(`Shared.known_to`), and what is ignored from a node on as well.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import Lexer, Spellings
from structgen.automaton.work import WORK
from structgen.masks.walks import walker_of
from structgen.storage import GenerationalCache, fork_safe
from structgen.vocabulary import Trie, Vocabulary, view

from .byte_runs import Order, order_of
from .tokens import Ids, Rows, Walk, new_number

Nodes = npt.NDArray[np.int32]

NODE_BITS = 40
"""Nodes and sets have numbers of no more bits."""

_FEW = 40
"""Sets of so many members are handled one by one."""

_MANY = 2_000

_HUGE = 4_000
"""More nodes than this in a subtree, and it is walked apart from others."""


class NodeSets:
    """The sets of nodes of one trie.

    Args:
        trie: the trie.
        order: its pre-order.
        charge: told the bytes that each thing it remembers takes, about.

    Attributes:
        n_nodes: nodes of the trie: the first number of a set.
        known_texts: what `read` has been asked, by the text's number plus the node.
    """

    def __init__(self, trie: Trie, order: Order, charge: Callable[[int], None]) -> None:
        self.n_nodes = trie.n_nodes
        self._trie = trie
        self._order = order
        self.first_child = view(trie.first_child)
        self.n_children = view(trie.n_children)
        self.byte = view(trie.byte)
        self.token_start = view(trie.token_start)
        self.token_ids = view(trie.token_ids)
        self._rank = order.views.rank
        self._beyond = order.views.beyond
        self._charge = charge
        self._sets: list[Nodes] = []
        self._set_ids: dict[bytes, int] = {}
        self._children: dict[int, dict[int, int]] = {}
        self._child: dict[int, int] = {}
        self._parts: dict[int, list[int]] = {}
        self._bytes: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}
        self._joined: dict[tuple[int, ...], int] = {}
        self._texts: dict[bytes, int] = {}
        self.known_texts: dict[int, tuple[tuple[int, ...], int]] = {}

    def real(self, node: int) -> Nodes:
        """The trie nodes that ``node`` stands for."""
        n_nodes = self.n_nodes
        return np.array([node], np.int32) if node < n_nodes else self._sets[node - n_nodes]

    def n_members(self, node: int) -> int:
        """How many trie nodes ``node`` stands for."""
        return 1 if node < self.n_nodes else len(self._sets[node - self.n_nodes])

    def join(self, nodes: list[int]) -> int:
        """One node that stands for all of ``nodes``, each a node or a set."""
        if len(nodes) == 1:
            return nodes[0]
        # What leads to two nodes once does so again, in another state.
        key = tuple(nodes)
        found = self._joined.get(key)
        if found is None:
            if max(nodes) >= self.n_nodes:
                found = self.joined(np.concatenate([self.real(node) for node in nodes]))
            elif len(nodes) > _FEW:
                found = self.joined(np.array(nodes, np.int32))
            else:
                found = self.of(np.array(sorted(set(nodes)), np.int32))
            self._joined[key] = found
            self._charge(150 + 8 * len(key))
        return found

    def joined(self, nodes: Nodes) -> int:
        """One node that stands for all of ``nodes``, repeats allowed."""
        if len(nodes) == 1:
            return int(nodes[0])
        if len(nodes) > _MANY:
            # Marking them all is quicker than sorting.
            flags = np.zeros(self.n_nodes, np.bool_)
            flags[nodes] = True
            return self.of(np.flatnonzero(flags).astype(np.int32))
        # Sorting by hand: NumPy's unique hashes, which takes milliseconds here.
        nodes = np.sort(nodes)
        keep = np.empty(len(nodes), bool)
        keep[0] = True
        np.not_equal(nodes[1:], nodes[:-1], out=keep[1:])
        return self.of(nodes[keep])

    def of(self, nodes: Nodes) -> int:
        """The node for ``nodes``, ascending."""
        if len(nodes) == 1:
            return int(nodes[0])
        key = nodes.tobytes()
        found = self._set_ids.get(key)
        if found is None:
            found = self._set_ids[key] = self.n_nodes + len(self._sets)
            self._sets.append(nodes)
            self._charge(2 * nodes.nbytes + 200)
        return found

    def apart(self, node: int) -> list[int]:
        """The large nodes of a set one by one, so that others that hold them share their walks, and
        the rest as one."""
        found = self._parts.get(node)
        if found is None:
            nodes = self._sets[node - self.n_nodes]
            order = self._order
            found = []
            if len(nodes) <= _FEW:
                large = order.beyond[nodes] - order.rank[nodes] > _HUGE
                found = nodes[large].tolist()
                if found and len(found) < len(nodes):
                    found.append(self.of(nodes[~large]))
            self._parts[node] = found
            self._charge(100)
        return found

    def number_of(self, text: bytes) -> int:
        """The number of a text, for `read`: too large for a node, so that both can be added."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = (len(self._texts) + 1) << NODE_BITS
            self._charge(150 + len(text))
        return found

    def read(self, text: bytes, number: int, node: int) -> tuple[tuple[int, ...], int]:
        """Read a text from ``node``.

        Returns:
            The tokens that end on the way; and the node after it, if some token goes on there, or
            else -1.
        """
        key = number + node
        found = self.known_texts.get(key)
        if found is None:
            n_nodes, token_start, token_ids = self.n_nodes, self.token_start, self.token_ids
            child_of = self._trie.child
            ids: list[int] = []
            at = node
            for byte in text:
                at = child_of.get(at << 8 | byte, -1) if at < n_nodes else self.child(at, byte)
                if at < 0:
                    break
                if at >= n_nodes:
                    ids += self.tokens_of(at)
                elif token_start[at] != token_start[at + 1]:
                    ids += token_ids[token_start[at] : token_start[at + 1]]
            if at >= 0 and not (self.n_children[at] if at < n_nodes else self.bytes_after(at)):
                at = -1
            found = self.known_texts[key] = tuple(ids), at
            self._charge(200 + 36 * len(ids))
        return found

    def children(self, node: int) -> dict[int, int]:
        """Byte → child, itself a node or a set. The dict must not be changed."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = self._children_of(node)
            self._charge(100 * len(found) + 100)
        return found

    def child(self, node: int, byte: int) -> int:
        """The child of a set by one byte, itself a node or a set; -1 for none."""
        all_known = self._children.get(node)
        if all_known is not None:
            return all_known.get(byte, -1)
        key = node << 8 | byte
        found = self._child.get(key)
        if found is None:
            nodes = self._sets[node - self.n_nodes]
            if len(nodes) > _FEW:
                return self.children(node).get(byte, -1)
            child_of = self._trie.child
            below = [c for n in nodes.tolist() if (c := child_of.get(n << 8 | byte)) is not None]
            found = self.of(np.array(below, np.int32)) if below else -1
            self._child[key] = found
            self._charge(100)
        return found

    def _children_of(self, node: int) -> dict[int, int]:
        WORK.spend(2)
        first_child, n_children, byte_of = self.first_child, self.n_children, self.byte
        if node < self.n_nodes:
            first = first_child[node]
            return {byte_of[c]: c for c in range(first, first + n_children[node])}
        nodes = self._sets[node - self.n_nodes]
        if len(nodes) <= _FEW:
            grouped: dict[int, list[int]] = {}
            for at in nodes.tolist():
                first = first_child[at]
                for child in range(first, first + n_children[at]):
                    grouped.setdefault(byte_of[child], []).append(child)
            return {
                byte: below[0] if len(below) == 1 else self.of(np.array(below, np.int32))
                for byte, below in grouped.items()
            }
        below = self.below(nodes)
        if not len(below):
            return {}
        edge = self._trie.byte[below]
        by_byte = np.argsort(edge, kind="stable")
        below, edge = below[by_byte], edge[by_byte]
        starts = np.flatnonzero(np.diff(edge, prepend=np.int16(-1)))
        bounds = [*starts.tolist(), len(below)]
        return {
            byte: self.of(below[bounds[i] : bounds[i + 1]])
            for i, byte in enumerate(edge[starts].tolist())
        }

    def below(self, nodes: Nodes) -> Nodes:
        """All children of ``nodes``, in their order."""
        trie = self._trie
        count = trie.n_children[nodes]
        ends = np.cumsum(count)
        starts = trie.first_child[nodes] - (ends - count)
        total = int(ends[-1]) if len(ends) else 0
        return np.repeat(starts, count) + np.arange(total, dtype=np.int32)

    def size(self, nodes: list[int]) -> int:
        """How many nodes there are at and below ``nodes``, each a node or a set."""
        found = 0
        for node in nodes:
            if node < self.n_nodes:
                found += self._beyond[node] - self._rank[node]
                continue
            known = self._sizes.get(node)
            if known is None:
                members, order = self._sets[node - self.n_nodes], self._order
                known = self._sizes[node] = int((order.beyond[members] - order.rank[members]).sum())
                self._charge(100)
            found += known
        return found

    def bytes_after(self, node: int) -> int:
        """The bytes with which tokens go on from ``node``, as a mask."""
        found = self._bytes.get(node)
        if found is None:
            found = 0
            if node < self.n_nodes:
                first, byte_of = self.first_child[node], self.byte
                for child in range(first, first + self.n_children[node]):
                    found |= 1 << byte_of[child]
            elif len(members := self._sets[node - self.n_nodes]) <= _FEW:
                for member in members.tolist():
                    found |= self.bytes_after(member)
            else:
                flags = np.zeros(256, np.bool_)
                flags[self._trie.byte[self.below(members)]] = True
                found = as_mask(flags)
            self._bytes[node] = found
            self._charge(100)
        return found

    def going_on(self, nodes: Nodes, allowed: npt.NDArray[np.bool_]) -> Nodes:
        """Those of ``nodes`` from which some token goes on with an allowed byte."""
        trie = self._trie
        nodes = nodes[trie.n_children[nodes] > 0]
        if not len(nodes):
            return nodes
        count = trie.n_children[nodes]
        flags = allowed[trie.byte[self.below(nodes)]]
        return nodes[np.logical_or.reduceat(flags, np.cumsum(count) - count)]

    def tokens_of(self, node: int) -> Sequence[int]:
        """The tokens that end at ``node``."""
        start, ids = self.token_start, self.token_ids
        if node < self.n_nodes:
            return ids[start[node] : start[node + 1]]
        members = self._sets[node - self.n_nodes]
        if len(members) > _FEW:
            found = self._tokens.get(node)
            if found is None:
                found = self._tokens[node] = self.tokens_at(members).tolist()
                self._charge(100 + 8 * len(found))
            return found
        out: list[int] = []
        for member in members.tolist():
            if start[member] != start[member + 1]:
                out += ids[start[member] : start[member + 1]]
        return out

    def tokens_at(self, nodes: Nodes) -> Nodes:
        """The tokens that end at ``nodes``."""
        trie = self._trie
        first = trie.token_start[nodes]
        count = trie.token_start[nodes + 1] - first
        held = np.flatnonzero(count)
        first, count = first[held], count[held]
        ids = trie.token_ids[first]
        if len(count) and int(count.max()) > 1:
            more = count > 1
            first, count = first[more], count[more]
            ends = np.cumsum(count)
            offset = np.arange(int(ends[-1]), dtype=np.int32) - np.repeat(ends - count, count)
            ids = np.concatenate([ids, trie.token_ids[np.repeat(first, count) + offset]])
        return ids


def as_mask(flags: npt.NDArray[np.bool_]) -> int:
    """Flags as the bits of a number, the first of them lowest."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


class SharedWalk(NamedTuple):
    """A `Walk` in no grammar's numbers.

    Attributes:
        ids: as there.
        rows: as there.
        exits: where the terminal may end: texts that lead to such an end, with the nodes.
        ends: texts that lead to the states of ``Walk.ends``, and whether they stand for all
            states inside a character that begins there; None where a state has no name.
    """

    ids: Ids
    rows: Rows
    exits: tuple[tuple[str, int], ...]
    ends: tuple[tuple[str, bool], ...] | None


Spaces: TypeAlias = "tuple[tuple[Walk, ...], tuple[tuple[int, int], ...]]"
"""What is ignored does from a node: its walks, and where it ends: conditions and nodes."""


class Prefixes(NamedTuple):
    """What any number of texts do from a node, at least none.

    Attributes:
        ids: tokens that end with them or on the way.
        rows: further ones, as packed masks.
        node: where something else may follow.
        bound: where it may follow under a condition: conditions and nodes.
    """

    ids: Ids
    rows: Rows
    node: int
    bound: tuple[tuple[int, int], ...]


class Known(NamedTuple):
    """What is known of one lexer, in its own numbers. Others fill it.

    Attributes:
        walks: by state and node (``state << NODE_BITS | node``).
        spaces: for the terminals that are ignored, by condition and node.
        prefixes: any number of some texts, what is ignored between them: by the numbers of the
            texts, what is ignored, and the node.
    """

    walks: dict[int, Walk]
    spaces: dict[frozenset[int], dict[int, Spaces]]
    prefixes: dict[tuple[tuple[int, ...], frozenset[int], int], Prefixes]


class Shared:
    """The sets of nodes of one vocabulary and the walks that begin at them, for a while.

    Attributes:
        nodes: the sets.
        walks: by the name of the state and the node where they begin.
        charge: counts bytes of what is remembered.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        store = self._store = walker_of(vocabulary).store
        self.charge = store.charge
        self.nodes = NodeSets(vocabulary.trie, order_of(vocabulary), store.charge)
        self.walks: GenerationalCache[tuple[bytes, int], SharedWalk] = store.cache()
        self._made = store.turns
        self._known: weakref.WeakKeyDictionary[Lexer, Known] = weakref.WeakKeyDictionary()

    def known_to(self, lexer: Lexer) -> Known:
        """What is known of ``lexer`` that holds for all grammars that have it."""
        found = self._known.get(lexer)
        if found is None:
            found = Known({}, {}, {})
            if lexer.permits is None:
                self._known[lexer] = found
        return found

    @property
    def is_stale(self) -> bool:
        """Whether all of it has been charged to a budget that has been spent since."""
        return self._store.turns > self._made + 1


class _Names(NamedTuple):
    """What states of a lexer are called in all grammars, as far as asked for."""

    names: dict[int, tuple[int, bytes] | None]
    spellings: dict[int, Spellings]
    outcomes: dict[tuple[int, str], int]


class TerminalWalks:
    """The shared walks in the numbers of one lexer.

    Attributes:
        shared: what it takes them from.
    """

    def __init__(self, lexer: Lexer, vocabulary: Vocabulary) -> None:
        self._lexer = lexer
        self._vocabulary = vocabulary
        self.shared = shared_of(vocabulary)
        # They go with the lexer: grammars with the same terminals have them, too.
        known: _Names = lexer.attached.setdefault(TerminalWalks, _Names({}, {}, {}))
        self._names, self._spellings, self._outcomes = known

    def renew(self) -> None:
        """Go on with what is shared now: the numbers of sets of nodes mean nothing any more."""
        self.shared = shared_of(self._vocabulary)

    def name(self, q: int) -> tuple[int, bytes] | None:
        """The terminal that alone is read in ``q``, and what tells the state from all others;
        None where there is more to the state than that."""
        if q in self._names:
            return self._names[q]
        found = None
        alone = self._lexer.alone(q)
        left = b""
        if alone is None:
            inside = self._lexer.inside(q)
            if inside is not None:
                alone = inside[:2]
                left = b"\xff" + inside[2].encode()
        if alone is not None:
            terminal, state = alone
            text = self._spelling(terminal).of_state(state)
            if text is not None:
                content = self._lexer.terminals.content(terminal)
                found = terminal, content + text.encode() + left
        self._names[q] = found
        return found

    def get(self, name: tuple[int, bytes], node: int) -> Walk | None:
        """The walk at ``node``, if it is known; without its `ends`."""
        terminal, state = name
        found = self.shared.walks[state, node]
        if found is None:
            return None
        exits = []
        for text, at in found.exits:
            outcome = self._outcomes.get((terminal, text))
            if outcome is None:
                to = self._spelling(terminal).state(text)
                outcome = self._lexer.label(self._lexer.before(terminal, to))
                self._outcomes[terminal, text] = outcome
            exits.append((outcome, at))
        return Walk(found.ids, found.rows, tuple(exits), None, new_number())

    def ends(self, name: tuple[int, bytes], node: int) -> tuple[int, ...] | None:
        """`Walk.ends` of the walk at ``node``, if they are known."""
        terminal, state = name
        found = self.shared.walks[state, node]
        if found is None or found.ends is None:
            return None
        spelling, before = self._spelling(terminal), self._lexer.before
        ends = [(before(terminal, spelling.state(text)), inside) for text, inside in found.ends]
        return tuple([~q if inside else q for q, inside in ends])

    def put(self, name: tuple[int, bytes], node: int, walk: Walk) -> None:
        """Share a walk, if where it leaves its terminal has names."""
        terminal, state = name
        spelling = self._spelling(terminal)
        exits: list[tuple[str, int]] = []
        size = 600 + 36 * len(walk.ids) + sum([row.nbytes for row in walk.rows])
        for outcome, at in walk.exits:
            # One terminal ends in one way at a time.
            (condition,) = self._lexer.conditions_of[outcome]
            text = spelling.of_end(condition)
            if text is None:
                return
            self._outcomes[terminal, text] = outcome
            exits.append((text, at))
            size += 150
        ends = self._named_ends(spelling, walk.ends)
        self.shared.walks[state, node] = SharedWalk(walk.ids, walk.rows, tuple(exits), ends)
        self.shared.charge(size)

    def _named_ends(
        self, spelling: Spellings, ends: tuple[int, ...] | None
    ) -> tuple[tuple[str, bool], ...] | None:
        found: list[tuple[str, bool]] = []
        for end in ends or ():
            alone = self._lexer.alone(end if end >= 0 else ~end)
            text = None if alone is None else spelling.of_state(alone[1])
            if text is None:
                return None
            found.append((text, end < 0))
        return None if ends is None else tuple(found)

    def _spelling(self, terminal: int) -> Spellings:
        found = self._spellings.get(terminal)
        if found is None:
            found = self._spellings[terminal] = Spellings(self._lexer.terminals, terminal)
        return found


_all_shared: weakref.WeakKeyDictionary[Vocabulary, Shared] = weakref.WeakKeyDictionary()
_lock = fork_safe(threading.Lock())


def shared_of(vocabulary: Vocabulary) -> Shared:
    """What is shared now by the grammars over ``vocabulary``."""
    with _lock:
        found = _all_shared.get(vocabulary)
        if found is None or found.is_stale:
            found = _all_shared[vocabulary] = Shared(vocabulary)
        return found
