"""What all grammars over one vocabulary share: sets of trie nodes, and walks of single terminals.

What a terminal does through the trie is the same in every grammar it stands in: strings, numbers,
names and white space recur. A walk is known by the terminal's content, the text that leads to the
state it begins in, and the node it begins at; where terminals end is said by texts, too
(`cfg.spellings`), so that nothing here is numbered by a grammar. It all lies under the vocabulary's
byte budget (`walks.Walker`); nodes are numbered anew (`Shared`) when it has been spent.

Grammars whose lexer is one (`shared_lexer`) find walks of it by its own numbers, without names
(`Shared.known_to`), and what is ignored from a node on as well.

This module translates between one lexer's numbers and names; it walks nothing.
"""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple, TypeAlias

from structgen.automaton.cfg import Lexer, Spellings
from structgen.masks.walks import walker_of
from structgen.storage import GenerationalCache, fork_safe
from structgen.vocabulary import Vocabulary

from .byte_runs import order_of
from .node_sets import NodeSets
from .tokens import Ids, Rows, Walk, new_number


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
