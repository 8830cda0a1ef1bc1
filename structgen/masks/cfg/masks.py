"""Compute masks of grammars, alone or beside other output types, also under token budgets.

`CfgFrameWalks` walks lexers through the trie (`lexer_walks`). Where a terminal ends inside a token,
the open goals decide what comes next (`NonterminalWalks`), and the walk continues there. Places
that expect the same terminals share these walks, so a new place costs a few look-ups. Other types
inside or around a grammar are walked as usual.

`CfgReach` computes how many tokens the output needs after each allowed token. It walks all tokens
through the machine level by level, with one step for each state and byte of a level. Tokens with
the same number form a class, so a mask for any token budget takes a few operations on whole rows.

A place's walk is combined from the walks of its tops. The walk of a goal state
(`NonterminalWalks.top`) reads its terminals and begins its goals. It reports the tokens that end
before the goal does, and the nodes where the goal may end. It does not depend on the stack below,
so all stacks share it, and all states that call a goal share its beginning
(`NonterminalWalks.goal`). Each terminal is walked by itself, so that places with other terminals
share it. Ignored terminals are walked once for each node where a terminal ends
(`NonterminalWalks.spaced`). This is exact for grammars in which no demand leads to a dead end
(`CfgFrame.is_free`). In others, what a terminal may do depends on the whole stack.

Terminals that match one text are read here byte by byte, without states of the lexer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.cfg import TEXT_END, CfgFrame, CfgMachine, Lexer, NamedTokenLeaf, unpack
from structgen.automaton.core import BOTTOM, GROW, Alternative, Leaf, Machine, TextHistory
from structgen.automaton.work import WORK
from structgen.grammar.cfg import cache as grammar_cache
from structgen.masks.frame_walks import FrameWalks
from structgen.masks.grouping import bits_of
from structgen.masks.leaf_walks import Walker
from structgen.masks.named_tokens import NamedTokens
from structgen.masks.node_sets import NODE_BITS, Node
from structgen.masks.reach import FAR, Reach
from structgen.masks.token_masks import NO_BITS, Mask, MaskEngine, fill
from structgen.masks.walk_store import NO_WALK, ROOT, Ids, LeafWalk, Tokens, WalkMemo, ids_of
from structgen.storage import Caches, GenerationalCache, cached_method
from structgen.vocabulary import Vocabulary

from .lexer_walks import (
    Bits,
    LexerWalk,
    Rows,
    Spaces,
    Walks,
    as_leaf_walk,
    gathered,
    new_number,
    overlay,
)

_STATE_BITS = 40
_STATE_MASK = (1 << _STATE_BITS) - 1

_EMBEDDED = -2
_MANY_BYTES = 400
"""Tokens of an embedded terminal that take more bytes are packed."""

_Target = tuple[int, int, int, "bytes | None", int]
_Targets = list[_Target]
"""First bytes of a terminal, as a mask; the lexer state before it without a condition (-1: not
computed yet; `_EMBEDDED`: not a pattern); the terminal; its only text, if it has one, and the
text's number."""

Spot = tuple[int, int]
"""A condition on the rest of the text, and a node."""


NonterminalWalk: TypeAlias = "tuple[tuple[int, ...], Rows, tuple[Spot, ...], int]"
"""The walk of a goal from one node: tokens that end before or exactly where the goal does; further
such tokens, as packed masks; the ends of the goal, after at least one byte; and a unique number
(`LexerWalk.number`). Plain tuples: see `walk_store.WalkMemo`."""

NOTHING: NonterminalWalk = (), (), (), 0
"""The walk of a goal that no token begins."""


WalkInner: TypeAlias = "Callable[[tuple[Alternative, ...], Node], tuple[bytes, Node]]"
"""Walks the texts of an embedded terminal, given its alternatives, from a node: returns tokens, and
the node where the texts end, or -1."""


class NonterminalWalks:
    """Walks of one grammar's goals."""

    def __init__(self, frame: CfgFrame, walks: Walks, n_words: int, inner: WalkInner) -> None:
        self._inner = inner
        self._frame = frame
        self._goals = frame.graph.goals
        self._lexer = frame.lexer
        self._anything = frame.lexer.terminals.lookahead.anything
        self._walks = walks
        self._n_words = n_words
        # Int keys, because the garbage collector would visit tuples. Walks without a condition,
        # nearly all, have their own dict, because one-word ints are faster.
        self._free: GenerationalCache[int, NonterminalWalk] = walks.cache()
        self._found: GenerationalCache[int, NonterminalWalk] = walks.cache()
        self._goals_found: GenerationalCache[int, NonterminalWalk] = walks.cache()
        self._spaces = walks.known.spaces.setdefault(frame.ignore, walks.cache())
        self._texts = frame.lexer.terminals.literals
        self._meeting: dict[int, bool] = {}
        self._ignored = tuple((self._first(t), t) for t in sorted(frame.ignore))
        self._spaces_begin = 0
        for first, _ in self._ignored:
            self._spaces_begin |= first

    def places(
        self, configurations: Iterable[tuple[int, int]], is_alone: bool
    ) -> tuple[dict[int, LexerWalk | NonterminalWalk], list[Node]]:
        """Return the walks of lexer states at places from the root; goals are walked once for all
        stacks.

        Returns:
            The walks whose tokens are allowed, by number; and, unless ``is_alone`` (nothing follows
            the grammar), nodes at which its text may end.
        """
        if not self._frame.is_free:
            return {walk.number: walk for walk, _ in self.steps(configurations)}, []
        frame, walks, top_of = self._frame, self._walks, self.top
        graph, lexer, join = frame.graph, frame.lexer, walks.nodes.join
        shapes, is_final, accepts = graph.shapes, graph.goals.is_final, graph.goals.accepts
        out: dict[int, LexerWalk | NonterminalWalk] = {}
        ended: list[Node] = []
        # The continuations to follow: (continuation, condition, node).
        todo: list[tuple[int, int, Node]] = []
        # The places after terminals, with the demand there, and a node for each configuration.
        begun: dict[tuple[int, int], list[Node]] = {}
        for q, place in configurations:
            condition = lexer.threads(q)[0]
            if frame.entry(place, condition) == q:
                after = condition
                if is_alone or not graph.accepting[place]:
                    after = self.settled(shapes[place], condition)
                begun.setdefault((place, after), []).append(ROOT)
                continue
            found = walks.walk(q, ROOT)
            out[found.number] = found
            leads: dict[tuple[int, int], list[Node]] = {}
            for outcome, node in found.exits:
                for end, terminals in lexer.outcomes[outcome]:
                    at = frame.after(place, terminals)
                    # Nothing that follows decides whether the text may end.
                    if is_alone or not graph.accepting[at]:
                        end = self.settled(shapes[at], end)
                    leads.setdefault((at, end), []).append(node)
            for key, nodes in leads.items():
                begun.setdefault(key, []).append(join(nodes))
        for (at, after), starts in begun.items():
            tops, may_end = graph.places[at], graph.accepting[at] and not is_alone
            WORK.spend(len(tops) * len(starts) >> 2)
            for start in starts:
                spaces, spots = self.spaced(after, start)
                for space in spaces:
                    out[space.number] = space
                # The continuations of a place's tops are among its tops already.
                for then, node in spots:
                    if may_end and self._may_end(then):
                        # At the root, what follows is a separate configuration.
                        real = walks.nodes.real(node)
                        if real[-1] != ROOT:
                            ended.append(walks.nodes.of(real[real != ROOT]))
                    for top, below in tops:
                        walk = top_of(top, then, node)
                        out[walk[-1]] = walk
                        for end, there in walk[2]:
                            todo.append((below, end, there))
        seen = set(todo)
        while todo:
            continuation, condition, node = todo.pop()
            WORK.spend(1 + (len(graph.continuations[continuation]) >> 1))
            for entry in graph.continuations[continuation]:
                if entry == TEXT_END:
                    if not is_alone and self._may_end(condition):
                        ended.append(node)
                    continue
                top, below = unpack(entry)
                more: list[tuple[int, int, Node]] = []
                if not is_final[top]:
                    walk = top_of(top, condition, node)
                    out[walk[-1]] = walk
                    more = [(below, end, there) for end, there in walk[2]]
                if accepts[top]:
                    more.append((below, condition, node))
                for step in more:
                    if step not in seen:
                        seen.add(step)
                        todo.append(step)
        return out, ended

    def steps(self, configurations: Iterable[tuple[int, int]]) -> list[tuple[LexerWalk, int]]:
        """Return the walks of lexer states at places from the root, place by place; not cached.

        Used if a demand can lead to a dead end, and for token budgets, which need the ends of
        tokens.
        """
        frame, walks, lexer = self._frame, self._walks, self._lexer
        out: list[tuple[LexerWalk, int]] = []
        todo: list[tuple[int, int, Node]] = []
        seen: set[tuple[int, int, Node]] = set()

        def begin(q: int, place: int, node: Node) -> None:
            if (q, place, node) not in seen:
                seen.add((q, place, node))
                # Terminals one by one, so that places share their walks.
                available = walks.nodes.bytes_after(node)
                for part in lexer.begun(q):
                    if lexer.first_bytes(part) & available:
                        todo.append((part, place, node))

        for q, place in configurations:
            begin(q, place, ROOT)
        for q, place, node in todo:
            WORK.spend(1)
            walk = walks.walk(q, node)
            out.append((walk, place))
            for outcome, at in walk.exits:
                for condition, terminals in lexer.outcomes[outcome]:
                    after = frame.after(place, terminals)
                    entry = frame.entry(after, condition)
                    if entry >= 0:
                        begin(entry, after, at)
        return out

    def ends(self, configurations: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the ends of tokens from lexer states at places: lexer states and places."""
        inside = self._walks.inside_characters
        return {
            (q, place)
            for walk, place in self.steps(configurations)
            for end in walk.ends
            for q in ((end,) if end >= 0 else inside(~end))
        }

    def _may_end(self, condition: int) -> bool:
        """Return whether the text may end under a condition."""
        return self._lexer.terminals.lookahead.label(condition) >= 0

    def top(self, state: int, condition: int, node: int) -> NonterminalWalk:
        """Return the walk of goal state ``state`` at ``node`` under ``condition``."""
        key, known = state << NODE_BITS | node, self._free
        if condition != self._anything:
            if self._meets(state, condition):
                condition = self._anything
            else:
                key, known = condition << _STATE_BITS + NODE_BITS | key, self._found
        found = known[key]
        if found is None:
            targets, calls, begins = self._own_of(state)
            available = self._walks.bytes_after(node, condition)
            found = NOTHING
            if begins & available:
                WORK.spend(len(calls) >> 2)
                found = self._walk(state, targets, calls, condition, node, available)
            known[key] = found
        return found

    def goal(self, goal: int, condition: int, node: int, available: int) -> NonterminalWalk:
        """Return the walk of a whole goal from ``node``; tokens continue from it with one of some
        bytes."""
        key = (condition << _STATE_BITS | goal) << NODE_BITS | node
        found = self._goals_found[key]
        if found is None:
            targets, _ = self._start_of(goal)
            found = self._goals_found[key] = self._walk(
                ~goal, targets, (), condition, node, available
            )
        return found

    def spaced(self, condition: int, node: int) -> Spaces:
        """Return walks of ignored text from ``node``, and the spots where something may follow, the
        start first.
        """
        key = condition << NODE_BITS | node
        found = self._spaces[key]
        if found is None:
            available = self._walks.bytes_after(node, condition)
            spot = (condition, node)
            found = self._spaced(spot) if available & self._spaces_begin else ((), (spot,))
            self._spaces[key] = found
            self._walks.charge(300)
        return found

    def _spaced(self, begin: Spot) -> Spaces:
        walks = {}
        spots: dict[int, list[int]] = {begin[0]: [begin[1]]}
        seen = {begin}
        for condition, node in (todo := [begin]):
            available = self._walks.bytes_after(node, condition)
            for first, terminal in self._ignored:
                if not first & available:
                    continue
                walk = self._walks.walk(self._entry(terminal, condition), node)
                walks[walk.number] = walk
                for outcome, at in walk.exits:
                    for after in self._lexer.conditions_of[outcome]:
                        spot = (after, at)
                        if spot not in seen:
                            seen.add(spot)
                            todo.append(spot)
                            if self._is_no_matter(after):
                                after = self._anything
                            spots.setdefault(after, []).append(at)
        join = self._walks.nodes.join
        joined = tuple([(w, join(nodes)) for w, nodes in spots.items()])
        return tuple(walks.values()), joined

    # -- goal states ------------------------------------------------------------------------------

    @cached_method
    def _own_of(self, state: int) -> tuple[_Targets, list[tuple[int, int]], int]:
        """Return the terminals of a goal state, the goals it calls, and the first bytes of both."""
        symbols = self._goals.symbols(state)
        WORK.spend(1 + len(symbols))
        WORK.hold(300 + 100 * len(symbols))
        terminals, begins = self._targets([s for s in symbols if s >= 0])
        calls = [(self._start_of(~s)[1], ~s) for s in symbols if s < 0]
        for first, _ in calls:
            begins |= first
        return terminals, calls, begins

    @cached_method
    def _start_of(self, goal: int) -> tuple[_Targets, int]:
        """Return the terminals that a goal begins with, and the bytes."""
        return self._targets(sorted(self._goals.first(goal)))

    def _targets(self, terminals: Iterable[int]) -> tuple[_Targets, int]:
        targets = [self._target(t) for t in terminals]
        begins = 0
        for first, *_ in targets:
            begins |= first
        return targets, begins

    @cached_method
    def _target(self, terminal: int) -> _Target:
        text = self._texts.get(terminal)
        q = -1 if text else self._entry(terminal, self._anything)
        if terminal in self._frame.embedded:
            q = _EMBEDDED
        number = self._walks.nodes.number_of(text) if text else 0
        return self._first(terminal), q, terminal, text, number

    def _first(self, terminal: int) -> int:
        """Return the bytes that a terminal begins with."""
        text = self._texts.get(terminal)
        if text:
            return 1 << text[0]
        if terminal in self._frame.embedded:
            ways = self._frame.ways_of(terminal, self._anything)
            return sum({1 << byte for way in ways if way.leaf for byte in way.leaf.row(way.q)})
        return self._lexer.first_bytes(self._entry(terminal, self._anything))

    @cached_method
    def _entry(self, terminal: int, condition: int) -> int:
        """Return the lexer state before one terminal."""
        if condition != self._anything and self._lexer.is_free_of(terminal, condition):
            return self._entry(terminal, self._anything)
        return self._lexer.entry(frozenset((terminal,)), condition)

    def settled(self, states: Iterable[int], condition: int) -> int:
        """Return ``condition``, or no condition if everything that can begin in goal states
        ``states``, and all ignored text, meets it at once. So terminals with different conditions
        share walks."""
        if condition == self._anything or not self._spaces_meet(condition):
            return condition
        for state in states:
            if not self._meets(state, condition):
                return condition
        return self._anything

    @cached_method
    def _spaces_meet(self, condition: int) -> bool:
        """Return whether each first character of ignored text settles a condition."""
        return all(self._lexer.is_free_of(t, condition) for _, t in self._ignored)

    def _meets(self, state: int, condition: int) -> bool:
        """Return whether each possible first terminal of a goal state meets a condition at once."""
        key = condition << _STATE_BITS | state
        found = self._meeting.get(key)
        if found is None:
            is_free_of, first = self._lexer.is_free_of, self._goals.first
            begins = self._own_of(state)[2]
            # Usually the first bytes decide.
            found = not begins & ~self._lexer.mask_under(condition) and all(
                is_free_of(t, condition)
                for symbol in self._goals.symbols(state)
                for t in ((symbol,) if symbol >= 0 else first(~symbol))
            )
            self._meeting[key] = found
        return found

    @cached_method
    def _is_no_matter(self, condition: int) -> bool:
        """Return whether everything that may follow ignored text meets a condition at once."""
        lexer, ignore = self._lexer, self._frame.ignore
        return condition == self._anything or all(
            lexer.is_free_of(t, condition)
            for t, start in enumerate(lexer.terminals.starts)
            if (start >= 0 or t in self._frame.embedded) and t not in ignore
        )

    # -- walks ------------------------------------------------------------------------------------

    def _walk(
        self,
        begin: int,
        targets: _Targets,
        calls: Iterable[tuple[int, int]],
        condition: int,
        node: int,
        available: int,
    ) -> NonterminalWalk:
        """Walk the terminals and goals of goal state ``begin``, or, if negative, those with which
        goal ``~begin`` begins; and continue after them."""
        WORK.spend(4 + (len(targets) >> 2))
        anything, go, nodes = self._anything, self._goals.go, self._walks.nodes
        known_texts, known_spaces, known_tops = nodes.known_texts, self._spaces, self._free
        is_final, accepts, join = self._goals.is_final, self._goals.accepts, nodes.join
        is_free = condition == anything
        ids: list[int] = []
        rows: list[Bits] = []
        # Where terminals end, by condition and goal state, packed.
        ended: dict[int, list[int]] = {}
        freely = anything << _STATE_BITS
        for first, q, terminal, text, number in targets:
            if not first & available:
                continue
            if text is not None and (is_free or self._lexer.is_free_of(terminal, condition)):
                here, at = known_texts[number + node] or nodes.read(text, number, node)
                ids += here
                if at >= 0:
                    ended.setdefault(freely | go(begin, terminal), []).append(at)
                continue
            if q == _EMBEDDED:
                if node == ROOT:
                    continue  # this is a separate configuration
                tokens, at = self._inner(self._frame.ways_of(terminal, condition), node)
                if len(tokens) > _MANY_BYTES:
                    rows.append(bits_of(ids_of(tokens), self._n_words))
                else:
                    ids += ids_of(tokens).tolist()
                if at >= 0:
                    ended.setdefault(freely | go(begin, terminal), []).append(at)
                continue
            entry = q if is_free and q >= 0 else self._entry(terminal, condition)
            walk = self._walks.walk(entry, node)
            ids += walk.ids
            rows += walk.rows
            to = go(begin, terminal) if walk.exits else -1
            for outcome, at in walk.exits:
                for after in self._lexer.conditions_of[outcome]:
                    if after != anything and not accepts[to]:
                        after = self.settled((to,), after)
                    ended.setdefault(after << _STATE_BITS | to, []).append(at)
        # Where goals continue.
        steps: list[tuple[int, int, int]] = []
        for key, places in ended.items():
            after, to = key >> _STATE_BITS, key & _STATE_MASK
            at = places[0] if len(places) == 1 else join(places)
            spaces, spots = known_spaces[after << NODE_BITS | at] or self.spaced(after, at)
            for walk in spaces:
                ids += walk.ids
                rows += walk.rows
            for then, where in spots:
                steps.append((to, then, where))
        for first, goal in calls:
            if first & available:
                some, more, ends, _ = self.goal(goal, condition, node, available)
                ids += some
                rows += more
                if ends:
                    to = go(begin, ~goal)
                    for after, at in ends:
                        steps.append((to, after, at))
        closed: dict[int, list[int]] = {}
        for to, after, at in steps:
            if not is_final[to]:
                known = known_tops[to << NODE_BITS | at] if after == anything else None
                some, more, ends, _ = known or self.top(to, after, at)
                ids += some
                rows += more
                for then, where in ends:
                    closed.setdefault(then, []).append(where)
            if accepts[to]:
                closed.setdefault(after, []).append(at)
        few, packed, size = gathered(ids, rows, self._n_words)
        ends = tuple([(then, join(places)) for then, places in closed.items()])
        if not (few or packed or ends):
            return NOTHING
        self._walks.charge(200 + size)
        return few, packed, ends, new_number()


_WORTH_KEEPING = 20_000
"""First masks over smaller vocabularies are not stored in a file."""

Configuration: TypeAlias = "tuple[int, int, int]"
"""A leaf's number, its state, and the continuation."""


class RuleWalks(NamedTuple):
    """The walks of configurations inside grammars.

    Attributes:
        walks: walks whose tokens are allowed, by number.
        ended: the ends of a grammar's text: the continuation below it, and the node.
        others: all other configurations.
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
        this = weakref.ref(self)

        def walk_uncached(leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk:
            walks = this()
            assert walks is not None, "what is walked belongs to it"
            return walks._walk_leaf(leaf, q, node, memo)

        self._walk_uncached = walk_uncached

    @cached_method
    def of_lexer(self, lexer: Lexer) -> Walks:
        """Return the walks of a grammar's terminals."""
        return Walks(lexer, self._vocabulary)

    @cached_method
    def of_grammar(self, frame: CfgFrame) -> NonterminalWalks:
        """Return the walks of a grammar's rules."""
        this = weakref.ref(self)

        def inner(ways: tuple[Alternative, ...], node: Node) -> tuple[Tokens, Node]:
            walks = this()
            assert walks is not None, "what is walked belongs to it"
            return walks._walk_ways(ways, node, walks._most_room)[:2]

        walks, n_words = self.of_lexer(frame.lexer), self._store.n_words
        return NonterminalWalks(frame, walks, n_words, inner)

    def of_rules(self, configurations: Sequence[Configuration]) -> RuleWalks:
        """Return the walks of configurations with whole tokens, if all stacks share them."""
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
            # A separate token: no other token continues it.
            return self._named_walk(leaf) if node == ROOT and q == leaf.start else NO_WALK
        if not isinstance(leaf, Lexer):
            return self._walker.walk_uncached(leaf, q, node, memo)
        found = as_leaf_walk(self.of_lexer(leaf), q, node)
        memo.put(leaf, q, node, found)
        self._store.used += len(found[1]) + 400
        return found

    @cached_method
    def _named_walk(self, leaf: NamedTokenLeaf) -> LeafWalk:
        """Return the walk of the leaf of named tokens at the start of a token."""
        end = leaf.start
        while leaf.row(end):
            (end,) = leaf.row(end).values()
        tokens = self._named.ids[leaf.named].tobytes()
        return None, tokens, (), (end,)


class CfgMaskEngine(MaskEngine):
    """Masks of a machine with grammars over one vocabulary."""

    machine: CfgMachine

    @cached_property
    def frames(self) -> CfgFrameWalks:
        """The walks of frames, which follow leaves."""
        return CfgFrameWalks(self.machine, self._walker, self._caches, self.vocabulary, self.named)

    def mask(self, state: int, tape: Callable[[], TextHistory]) -> Mask:
        """See `MaskEngine.mask`; the start state's mask is read from disk if it was computed
        before."""
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
        self, walks: dict[int, Any], others: list[Configuration], is_accepting: bool, tokens: Tokens
    ) -> Mask:
        """Return the mask of walks, of other configurations, and of some tokens."""
        walks.pop(NOTHING[-1], None)
        # Places often differ only in parts that no token reaches. Walks are cached, and dropped
        # together with this.
        key = (is_accepting, tokens, *others, *sorted(walks))
        found = self._alike[key]
        if found is None:
            store, ids, rows = self._store, ids_of(tokens).tolist(), []
            if others:
                rows.append(np.zeros(store.n_words, np.uint32))
                fill(super()._put_together(others, False, None), rows[0])
            if is_accepting:
                ids += [t for t in self.vocabulary.eos_token_ids if t < self.vocabulary.size]
            for walk in walks.values():
                ids += walk[0]
                rows += walk[1]
            row, is_new = overlay(ids, rows, store.zeros)
            found = self._alike[key] = row, None, NO_BITS
            store.charge(400 + len(row) * is_new)
        return found

    def _without_named(self, mask: Mask, configurations: list[Configuration]) -> Mask:
        """Return ``mask`` without named tokens that are only allowed for their text."""
        leaves = [self.machine.leaves[leaf] for leaf, _, _ in configurations]
        meant = {
            i for n in leaves if isinstance(n, NamedTokenLeaf) for i in self.named.ids[n.named]
        }
        bits = np.zeros(self._store.n_words, np.uint32)
        fill(mask, bits)
        for token in self.named.textual - meant:
            bits[token >> 5] &= ~np.uint32(1 << (token & 31))
        return self._store.packed(bits), None, NO_BITS


_FEW = 400
"""More token ids than this, and they are packed."""

Class = tuple[int, Ids, "Bits | None"]
"""A number of tokens needed, and the ids of the tokens after which it is, or a packed row if they
are many."""


class CfgReach(Reach):
    """Distances to the end over one engine's walks, of a machine that is one grammar."""

    def __init__(self, engine: CfgMaskEngine, rules: CfgFrame) -> None:
        super().__init__(engine)
        self._rules = rules
        self._masks = engine
        self._lengths: GenerationalCache[tuple[int, int], int] = self._store.cache()
        self._classes: GenerationalCache[int, tuple[Class, ...]] = self._store.cache()
        self._sizes: GenerationalCache[int, int] = self._store.cache()

    def is_ample(self, state: int, spare: int, tape: Callable[[], TextHistory]) -> bool:
        """See `Reach.is_ample`: first checks the ends of tokens, in bytes."""
        found = self._roughly[state]
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
                self._roughly[state] = found
                self._store.charge(100)
        return found <= spare or self.most(state) <= spare

    def _length(self, q: int, place: int) -> int:
        """Return the number of bytes of the completion from one configuration."""
        found = self._lengths[q, place]
        if found is None:
            rest = self._rules.complete(q, 2 * place)
            found = self._lengths[q, place] = FAR if rest is None else len(rest)
            self._store.charge(200)
        return found

    def most(self, state: int) -> int:
        """Return the number of tokens of the longest completion after any token from ``state``."""
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
        """Return the allowed tokens by the number of tokens needed after them, without EOS ids.

        Cost: a look-up once computed; before, that of `Reach._levels` plus the completions of new
        states.
        """
        found = self._classes[state]
        if found is None:
            with GROW:
                found = self._classed(self._needed(state))
                self._classes[state] = found
                self._store.charge(200 + sum(120 + ids.nbytes for _, ids, _ in found))
        return found

    def _classed(self, needed: npt.NDArray[np.int32]) -> tuple[Class, ...]:
        """Group token ids by ``needed``, int32 [n_tokens in the trie], -1 where not allowed."""
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
        """Return the number of tokens needed after each of ``trie.token_ids``, -1 if it is not
        allowed."""
        trie = self._store.trie
        of_node = np.full(trie.n_nodes, -1, np.int32)
        for nodes, at, states in self._levels(state):
            sizes = np.full(len(states), -1, np.int32)
            for place in np.flatnonzero(np.bincount(at, minlength=len(states))).tolist():
                sizes[place] = self._size(states[place])
            of_node[nodes] = sizes[at]
        return np.repeat(of_node, np.diff(trie.token_start))

    def _size(self, state: int) -> int:
        """Return the number of tokens of the completion from ``state``."""
        found = self._sizes[state]
        if found is None:
            found = self._vocabulary.count_tokens(self._machine.shortest_completion(state))
            self._sizes[state] = found
            self._store.charge(100)
        return found
