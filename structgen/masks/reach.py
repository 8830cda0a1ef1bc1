"""Find the tokens that a token budget rules out.

Within a budget, a token is allowed only if the remaining tokens can finish the output. `Reach`
checks the few places in which the tokens of one walk end. It checks single tokens only if a walk
has ends both near the end of the output and far from it. Knows no sequences and no plans.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import (
    DEAD,
    GROW,
    AnyText,
    Leaf,
    NeedsText,
    StringLeaf,
    TextHistory,
    TextLeaf,
)
from structgen.automaton.json import bytes_of_many
from structgen.automaton.regex import GROUND
from structgen.automaton.texts import Text
from structgen.storage import GenerationalCache

from .frame_walks import TokenEnd, token_ends_over
from .leaf_walks import walker_of
from .node_sets import levels
from .text.tables import grouped
from .token_masks import MaskEngine
from .walk_store import Bits, Ids, LeafWalk, WalkStore, ends_of, ids_of

_FEW, _MANY = 16, 500
"""Few tokens are not grouped. Many are not followed byte by byte, which may lead to as many states,
if they can be grouped by where they end in a string."""

FAR = 1 << 60
"""More tokens than any budget."""

_NEAR, _MIXED, _FAR = range(3)

_ROUGHLY, _IN_BYTES, _NEARLY, _EXACTLY = range(4)
"""How a bound is computed, each more expensive than the one before: in bytes, for strings with one
bound for all places of their expression; in bytes; in tokens; in tokens, also inside characters,
where otherwise the bound is that after the character plus the longest rest of one."""

_LONGEST_CHARACTER = 12
"""The most bytes of the rest of a character: two escapes."""


class Reach:
    """Distances to the end over one engine's walks.

    Thread-safe, like the engine.
    """

    def __init__(self, engine: MaskEngine) -> None:
        self._engine = engine
        self._machine = engine.machine
        self._vocabulary = engine.vocabulary
        walker = walker_of(engine.vocabulary)
        self._store: WalkStore = walker.store
        self._texts = walker.texts
        self._bounds: tuple[GenerationalCache[int, int], ...]
        self._bounds = tuple([self._store.cache() for _ in range(_EXACTLY + 1)])
        self._roughly = self._bounds[_ROUGHLY]
        self._after: GenerationalCache[tuple[Leaf, int], int] = self._store.cache()
        self._in_bytes: GenerationalCache[tuple[Leaf, int, int], int] = self._store.cache()
        self._closings: GenerationalCache[tuple[Leaf, int, int], tuple[int, int]] = (
            self._store.cache()
        )

    def is_known_ample(self, state: int, spare: int) -> bool:
        """Return whether ``spare`` tokens are already known to suffice after any token."""
        most = self._roughly[state]
        return most is not None and most <= spare

    def is_ample(self, state: int, spare: int, tape: Callable[[], TextHistory]) -> bool:
        """Return whether ``spare`` tokens are certainly enough after any token from ``state``.

        Most budgets are so ample that counting bytes is enough, because there are never more tokens
        than bytes: far from the end this costs a look-up. If an output has thousands of characters
        at least, every state is a new one, and each place would have to be tokenized.

        Args:
            state: the machine's state.
            spare: the tokens.
            tape: gives the text so far, where that matters.
        """
        for how in (_ROUGHLY, _IN_BYTES, _NEARLY):
            if self._bound(state, how) <= spare:
                return True
        most = self.most(state)
        if most >= FAR:  # it depends on the text
            text = tape()
            with GROW:
                most = self._most(state, _EXACTLY, text)
        return most <= spare

    def most(self, state: int) -> int:
        """Return an upper bound, in tokens, on the completion after any token from ``state``.

        `FAR` if it depends on the text so far.
        """
        return self._bound(state, _EXACTLY)

    def _bound(self, state: int, how: int) -> int:
        found = self._bounds[how][state]
        if found is None:
            with GROW:
                try:
                    found = self._most(state, how)
                except NeedsText:
                    found = FAR
                self._bounds[how][state] = found
                self._store.charge(100)
        return found

    def restrict(self, state: int, most: int, out: Bits) -> bool:
        """Clear the bits of tokens after which ``most`` tokens cannot finish, if this is easy to
        decide.

        Args:
            state: the machine's state.
            most: tokens that may follow, the end of the sequence not counted.
            out: uint32 ``[ceil(size / 32)]``, the mask of ``state``; changed in place.

        Returns:
            Whether it did; otherwise use `sort_out`.
        """
        return False

    def sort_out(self, state: int, most: int, tape: Callable[[], TextHistory]) -> tuple[Ids, Ids]:
        """Return which allowed tokens may be too far from the end.

        After every token that is in neither result, ``most`` tokens certainly finish.

        Args:
            state: the machine's state.
            most: tokens that may follow, the end of the sequence not counted.
            tape: gives the text so far, where that matters.

        Returns:
            The ids of tokens that have to be checked one by one, and of those after which more
                tokens are certainly needed: int32. Some may not be allowed at all.
        """
        frames, machine = self._engine.frames, self._machine
        # by `_NEAR`, `_MIXED` and `_FAR`
        flags = np.zeros((3, self._store.n_words * 32), np.uint8)
        with GROW:
            for leaf_id, q, continuation in machine.configurations(state):
                leaf = machine.leaves[leaf_id]
                walk = frames.root_walk(leaf, q, continuation)
                self._sort_root(leaf, q, continuation, walk, most, flags)
                for outcome, node in walk[2]:
                    try:
                        for frame_walk, below in frames.walks_after(continuation, outcome, node):
                            ends = [*token_ends_over(machine.stacks, frame_walk[2], below)]
                            flags[self._verdict(ends, most), ids_of(frame_walk[0])] = 1
                    except NeedsText:
                        walks = frames.walks_after_text(continuation, outcome, node, tape())
                        for ids, places in walks:
                            flags[self._verdict([*places], most), ids_of(ids)] = 1
        near, mixed, far = flags
        mixed |= near & far  # may lead to several places
        return _ids(mixed), _ids(far & ~mixed)

    def together(self, state: int, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Ids]]:
        """Yield groups of the ``chosen`` tokens that lead to the same state, with that state;
        `DEAD` if it was not computed.

        Each token by itself would cost 5 to 100 µs. Leaves out tokens after which the state depends
        on the text so far, and perhaps others.
        """
        machine = self._machine
        configurations = machine.configurations(state)
        named = self._engine.named.ids
        chosen = chosen.copy()
        strings: list[tuple[Leaf, int]] = []
        for leaf_id, q, _ in configurations:
            leaf = machine.leaves[leaf_id]
            at = leaf.text_state(q) if leaf.holds_text else None
            if at is not None:
                strings.append((leaf, at))
        left, most = np.count_nonzero(chosen), chosen.size
        if left > _MANY and not named and len(strings) == len(configurations):
            for together in self._together_in(strings, chosen):
                chosen[together] = False
                yield DEAD, together
            left, most = np.count_nonzero(chosen), _MANY
        if not _FEW < left <= most:
            return
        trie = self._store.trie
        for several in named:
            chosen[several] = False  # their texts do not determine the state after them
        of_node = np.full(trie.n_nodes, DEAD, np.int64)
        for nodes, places, states in self._levels(state, chosen):
            of_node[nodes] = np.array(states)[places]
        to = np.repeat(of_node, np.diff(trie.token_start))
        found = chosen[trie.token_ids] & (to != DEAD)
        yield from grouped(to[found], trie.token_ids[found])

    def _together_in(
        self, strings: list[tuple[Leaf, int]], chosen: npt.NDArray[np.bool_]
    ) -> Iterator[Ids]:
        """Do `together` for a state that is only in ``strings``."""
        # By token: a number for the set of places in which it ends; -1 if it is not allowed.
        places = np.full(len(chosen), -1, np.int64)
        for leaf, at in strings:
            ends = [ids for _, _, ids in self._texts.ends(leaf, at)]
            if len(strings) == 1:
                yield from (alike for ids in ends if len(alike := ids[chosen[ids]]))
                return
            here = np.full(len(chosen), len(ends), np.int64)
            for number, found in enumerate(ends):
                here[found] = number
            is_alive = (here < len(ends)) | (places >= 0)
            places = np.where(is_alive, (places + 1) * (len(ends) + 1) + here, -1)
            # Renumber, to keep numbers small.
            small = np.unique(places, return_inverse=True)[1].astype(np.int64)
            places = small - int(not is_alive.all())
        for leaf, _ in strings:  # may leave one string and stay in another
            places[self._texts.closing(leaf.encoding)] = -1
        places[~chosen] = -1
        ids = np.flatnonzero(places >= 0)
        for _, together in grouped(places[ids], ids.astype(np.int32)):
            yield together

    def _levels(
        self, state: int, chosen: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[Ids, npt.NDArray[np.int64], list[int]]]:
        """Yield the states after tokens, level by level of the trie: the nodes in which some end,
        and for each of them the index of its state in a list.

        Leaves out dead ends, and tokens that depend on the text so far.

        Args:
            state: the machine's state.
            chosen: the tokens to follow; None: all.

        Cost: 0.1 µs per node, plus the steps of new states.
        """
        trie, machine = self._store.trie, self._machine
        is_wanted = np.full(trie.n_nodes, chosen is None)
        if chosen is not None:
            ends = np.repeat(np.arange(trie.n_nodes, dtype=np.int32), np.diff(trie.token_start))
            up = ends[chosen[trie.token_ids]]
            while not is_wanted[up].all():
                is_wanted[up] = True
                up = trie.parent[up]

        def step(state: int, byte: int) -> int:
            to = machine.step(state, byte)
            return -1 if to == DEAD or to in machine.pending else to

        return levels(trie, step, state, np.zeros(1, np.int32), is_wanted)

    def _sort_root(
        self,
        leaf: Leaf,
        q: int,
        continuation: int,
        walk: LeafWalk,
        most: int,
        flags: npt.NDArray[np.uint8],
    ) -> None:
        """Sort the tokens that end in ``leaf``."""
        row, ids, _, ends_inside = walk
        tokens = np.zeros(flags.shape[1], np.uint8)
        if row is not None:
            tokens[:] = np.unpackbits(row.view(np.uint8), bitorder="little")
        tokens[ids_of(ids)] = 1
        ends: list[TokenEnd] = [(to, end, continuation) for to, end in ends_of(leaf, ends_inside)]
        if leaf.text_state(q) is None:
            flags[self._verdict(ends, most)] |= tokens
            return
        # Most tokens end between two characters; others inside one, or after a quote.
        from_open = 0
        behind: list[TokenEnd] = []
        inside: dict[int, list[TokenEnd]] = {GROUND: []}
        for to, end, _ in ends:
            from_open = max(from_open, self._bytes_from_open(to, end, continuation))
            for at, node in self._states(to, end):
                here = behind if node is None else inside.setdefault(node, [])
                here.append((to, at, continuation))
        is_open = from_open > most
        settled = [(self._verdict(behind, most), self._texts.closing(leaf.encoding))]
        verdict = _MIXED if is_open else self._verdict(inside[GROUND], most)
        for node, (apart, _) in self._texts.cuts(leaf.encoding).items():
            inner = self._verdict([*inside.get(node, ()), *behind], most)
            settled.append((_MIXED if is_open else inner, apart))
        for which, apart in settled:
            flags[which, apart] |= tokens[apart]
        for _, apart in settled:
            tokens[apart] = 0
        flags[verdict] |= tokens

    def _verdict(self, ends: list[TokenEnd], most: int) -> int:
        """Return whether all, some or none of these places are near enough to the end."""
        near = far = False
        for leaf, end, continuation in ends:
            for least, bound in self._distances(leaf, end, continuation):
                far |= bound > most
                near |= least <= most
                if near and far:
                    return _MIXED
        return _FAR if far else _NEAR

    def otherwise(
        self, state: int, to: int, ids: Ids, tape: Callable[[], TextHistory]
    ) -> tuple[int, Ids] | None:
        """Return how many tokens the plan has after those of ``ids`` after which it does not depend
        on the text; and these. None if unknown.

        Args:
            state: the machine's state.
            to: the state after each of the tokens ``ids``.
            tape: gives the text so far.
        """
        machine, text = self._machine, AnyText()
        if len(ids) <= _FEW or any(
            machine.leaves[leaf_id].text_state(q) is None
            for leaf_id, q, _ in machine.configurations(state)
        ):
            return None  # no string is open, or it ends inside a character
        if machine.is_pending(to) or any(
            self._forgets(continuation) for _, _, continuation in machine.configurations(to)
        ):
            return None
        try:
            needed = self._engine.named.count(machine.shortest_completion(to, text))
        except NeedsText:
            return None
        flags = np.zeros(self._vocabulary.size, np.bool_)
        flags[ids] = True
        flags[self._quotes] = False  # another string may be open after them
        flags[self._beginnings(text.seen, tape())] = False
        return needed, _ids(flags)

    @cached_property
    def _quotes(self) -> Ids:
        """The tokens that contain a quote."""
        return self._within(np.flatnonzero(self._store.trie.byte == 0x22).tolist())

    def _within(self, nodes: list[int]) -> Ids:
        """Return the tokens that begin with the strings of ``nodes``."""
        trie = self._store.trie
        is_within = np.zeros(trie.n_nodes, np.bool_)
        is_within[nodes] = True
        for start, end in itertools.pairwise(trie.level_start.tolist()):
            is_within[start:end] |= is_within[trie.parent[start:end]]
        return trie.token_ids[np.repeat(is_within, np.diff(trie.token_start))]

    def _beginnings(self, values: list[Any], tape: TextHistory) -> Ids:
        """Return the tokens that continue the string that is open in ``tape`` towards one in
        ``values``, and some with escapes that do not."""
        begun = json.loads(tape.open_string() + b'"')
        trie = self._vocabulary.trie
        ids, escapes = set[int](), set[int]()
        for string in strings_in(values):
            if string.startswith(begun):
                node = 0
                escapes.add(trie.child.get(0x5C, 0))
                for byte in string[len(begun) :].encode(errors="surrogatepass"):
                    node = trie.child.get(node << 8 | byte, 0)
                    if not node:
                        break
                    ids.update(trie.ids_at(node))
                    escapes.add(trie.child.get(node << 8 | 0x5C, 0))
        escapes.discard(0)
        found = np.array(sorted(ids), np.int32)
        return np.concatenate([found, self._within([*escapes])]) if escapes else found

    def _states(
        self, leaf: Leaf, end: int | tuple[int, int], is_exact: bool = True
    ) -> Sequence[tuple[int, int | None]]:
        """Return the states in which tokens end; in a text, with the encoding's node.

        If not ``is_exact``, use the states after the characters inside which tokens end.
        """
        if isinstance(end, tuple):
            return self._texts.run_ends(leaf, *end, is_exact)
        return [(end, None if leaf.text_state(end) is None else GROUND)]

    def _most(self, state: int, how: int, tape: TextHistory | None = None) -> int:
        machine, engine = self._machine, self._engine
        frames = engine.frames
        longest = 0
        # A state that represents others has completions of the same length in bytes, but perhaps
        # different ones.
        alike = engine if how < _NEARLY else machine
        for leaf_id, q, continuation in alike.configurations(state):
            leaf = machine.leaves[leaf_id]
            _, _, exits, inner = frames.root_walk(leaf, q, continuation)
            ends: list[TokenEnd] = [(to, end, continuation) for to, end in ends_of(leaf, inner)]
            at = leaf.text_state(q) if how >= _NEARLY and leaf.holds_text else None
            if at is not None and any(self._bytes_from_open(*end) for end in ends):
                # Longer plans may have fewer tokens, so check each place in the text.
                ends = [end for end in ends if not isinstance(end[1], tuple)]
                for there, cut, _ in self._texts.ends(leaf, at):
                    if cut == GROUND or _is_exact(leaf, how):
                        ends.append((leaf, leaf.in_text(there, cut), continuation))
                        continue
                    for _, behind in leaf.symbols.moves(there):
                        rest = self._tokens_to_close(leaf, leaf.in_text(behind), continuation)[1]
                        longest = max(longest, _LONGEST_CHARACTER + rest)
            for outcome, node in exits:
                if tape is not None:
                    for _, places in frames.walks_after_text(continuation, outcome, node, tape):
                        ends += places
                    continue
                for frame_walk, below in frames.walks_after(continuation, outcome, node):
                    ends += token_ends_over(machine.stacks, frame_walk[2], below)
            # In order, because the first of equally short plans is kept.
            for to, end, below in dict.fromkeys(ends):
                longest = max(longest, self._farthest(to, end, below, how))
        return longest

    def _farthest(self, leaf: Leaf, end: int | tuple[int, int], continuation: int, how: int) -> int:
        """Return an upper bound on the plans from the ends of tokens."""
        if (
            how == _ROUGHLY
            and isinstance(leaf, TextLeaf)
            and (type(leaf) is StringLeaf or leaf.is_private)
            and leaf.most_left is not None
        ):
            after = self._after_string(leaf, continuation)
            return min(FAR, leaf.most_left + 2 + after)
        is_exact = _is_exact(leaf, how)
        longest = 0
        for at, _ in self._states(leaf, end, is_exact):
            if how < _NEARLY:
                longest = max(longest, self._bytes_to_close(leaf, at, continuation))
            else:
                longest = max(longest, self._tokens_to_close(leaf, at, continuation)[1])
        if isinstance(end, tuple):
            longest += 0 if is_exact else _LONGEST_CHARACTER
            longest = max(longest, self._bytes_from_open(leaf, end, continuation))
        return longest

    def _after_string(self, leaf: Leaf, continuation: int) -> int:
        """Return the most bytes of a plan after the closing quote."""
        key = leaf, continuation
        found = self._after[key]
        if found is None:
            shortest = leaf.shortest(leaf.start)
            whole = self._bytes_to_close(leaf, leaf.start, continuation)
            found = self._after[key] = whole - (0 if shortest is None else len(shortest[0]))
            self._store.charge(200)
        return found

    def _distances(
        self, leaf: Leaf, end: int | tuple[int, int], continuation: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the fewest and most tokens of plans from the ends of tokens."""
        for at, _ in self._states(leaf, end):
            yield self._tokens_to_close(leaf, at, continuation)
        bound = self._bytes_from_open(leaf, end, continuation)
        if bound:
            yield 0, bound

    def _bytes_from_open(self, leaf: Leaf, end: int | tuple[int, int], continuation: int) -> int:
        """Return the most bytes of a plan after a run in which every text may follow.

        Walks do not report in which states such a text ends: a searched part may have begun, or may
        have been lost again. The search itself is always still open. 0 in other cases.
        """
        if not isinstance(end, tuple):
            return 0
        longest = 0
        symbols = leaf.symbols
        for q, _ in self._states(leaf, end):
            state = leaf.text_state(q)
            part = None if state is None else symbols.open_part(state)
            if part is not None and symbols.label(part) < 0:  # otherwise all texts end the same way
                rest = self._bytes_to_close(leaf, leaf.in_text(part), continuation)
                longest = max(longest, _LONGEST_CHARACTER + rest)
        return longest

    def _bytes_to_close(self, leaf: Leaf, end: int, continuation: int) -> int:
        """Return an upper bound on the bytes of the plan from there."""
        key = (leaf, end, continuation)
        found = self._in_bytes[key]
        if found is None:
            if self._forgets(continuation):
                found = self._bytes_of_any(leaf, end, continuation)
            else:
                plan = self._plan(leaf, end, continuation)
                found = self._worst(leaf, end, continuation) if plan is None else len(plan)
            self._in_bytes[key] = found
            self._store.charge(200)
        return found

    def _forgets(self, continuation: int) -> bool:
        stacks = self._machine.stacks
        frames, links = stacks.frames, stacks.continuations[continuation]
        return any(frames[link][0].forgotten(frames[link][1]) for link, _ in links)

    def _bytes_of_any(self, leaf: Leaf, end: int, continuation: int) -> int:
        """Like `_bytes_to_close`, if the top frame has forgotten which values are barred.

        Among more values than may be barred, at least one is not.
        """
        try:
            return self._bytes_forgetting(leaf, end, continuation)
        except NeedsText:
            return FAR  # of a frame below

    def _bytes_forgetting(self, leaf: Leaf, end: int, continuation: int) -> int:
        machine = self._machine
        state = machine.state_of(leaf, end, continuation)
        if machine.is_pending(state):
            return self._worst(leaf, end, continuation)
        best = 0 if machine.is_accepting(state) else FAR
        for leaf_id, q, below in machine.configurations(state):
            inside = machine.leaves[leaf_id]
            if not self._forgets(below):
                most = machine.completions.most_bytes(inside, q, below)
                best = best if most is None else min(best, most)
                continue
            for frame_id, _ in machine.stacks.continuations[below]:
                frame, at = machine.stacks.frames[frame_id]
                outcome = frame.preferred(at)
                most = machine.completions.most_bytes(inside, q, below, outcome)
                shortest = inside.shortest(q, outcome)
                if most is None or shortest is None:
                    continue
                needed: int | None = len(shortest[0])
                if outcome is None and frame.records(at, shortest[1]):
                    needed = bytes_of_many(inside, q, frame.forgotten(at))
                if needed is not None:
                    best = min(best, most - len(shortest[0]) + needed)
        return best

    def _tokens_to_close(self, leaf: Leaf, end: int, continuation: int) -> tuple[int, int]:
        """Return the fewest and the most tokens of the plan from there."""
        key = (leaf, end, continuation)
        found = self._closings[key]
        if found is None:
            forgets = self._forgets(continuation)
            plan = None if forgets else self._plan(leaf, end, continuation)
            if forgets:
                found = (0, self._bytes_of_any(leaf, end, continuation))
            elif plan is not None:
                needed = self._engine.named.count(plan)
                found = (needed, needed)
            else:
                found = (0, self._worst(leaf, end, continuation))
            self._closings[key] = found
            self._store.charge(200)
        return found

    def _plan(self, leaf: Leaf, end: int, continuation: int) -> Text | None:
        """Return the plan from there; None if it depends on the text so far."""
        machine = self._machine
        try:
            state = machine.state_of(leaf, end, continuation)
            return None if machine.is_pending(state) else machine.shortest_completion(state)
        except NeedsText:
            return None

    def _worst(self, leaf: Leaf, end: int, continuation: int) -> int:
        """Return the most bytes of a plan that depends on the text so far; `FAR` if unknown."""
        machine = self._machine
        state = machine.state_of(leaf, end, continuation)
        # What begins there may need more than the frame below promises, so look at it itself.
        places = [(leaf, end, continuation)]
        if not machine.is_pending(state):
            found = machine.configurations(state)
            places = [(machine.leaves[leaf_id], q, below) for leaf_id, q, below in found]
        ways = [machine.completions.most_bytes(*place) for place in places]
        return min([way for way in ways if way is not None], default=FAR)


def _is_exact(leaf: Leaf, how: int) -> bool:
    """Return whether to check inside characters, because some leaves' plans there are not just the
    rest of the character plus the plan after it."""
    return how == _EXACTLY or not isinstance(leaf, TextLeaf) or leaf.is_private


def strings_in(values: Iterable[Any]) -> set[str]:
    """Return all strings in ``values``, including names of members."""
    found: set[str] = set()
    todo = [*values]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, dict):
            todo += [*value, *value.values()]
        elif isinstance(value, list):
            todo += value
    return found


def _ids(flags: npt.NDArray[Any]) -> Ids:
    return np.flatnonzero(flags).astype(np.int32)
