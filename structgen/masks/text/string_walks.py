"""Walk text in leaves: strings and keys, with the text before and after them.

`StringWalks` combines walks of characters (`text_walks`) with the text before opening quotes and
after closing ones. `AfterQuotes` caches the latter, which depends on the quotes reached and on a
leaf that objects share, so objects differ little in it. A leaf describes its text by
`Leaf.text_state` and similar methods. Knows no frames, constraints or masks.

`LeafTexts` holds a vocabulary's characters in one encoding and caches walks of texts. It also finds
where in a leaf the run of a text may end.
"""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from structgen.automaton.core import Leaf, StringLeaf, TextLeaf
from structgen.automaton.regex import GROUND, Utf8
from structgen.masks.grouping import ranges
from structgen.masks.node_sets import Node, NodeSet
from structgen.masks.walk_store import (
    AFTER,
    BEFORE,
    ROOT,
    Bits,
    End,
    Exits,
    Ids,
    LeafWalk,
    LeafWalker,
    Tokens,
    WalkBuilder,
    WalkMemo,
    WalkStore,
    ids_of,
)
from structgen.storage import GenerationalCache

from . import character_arrays
from .character_arrays import CharacterArrays, CountedTokens
from .characters import Characters, Whole
from .tables import DEAD, FRESH, TextWalk, apart
from .text_walks import TextWalks

_LONGEST_NAME = 80


class Cut(NamedTuple):
    """The tokens that end inside a character, at one node of an encoding.

    Attributes:
        ids: the tokens that are text up to that character.
        most: the most characters before it.
    """

    ids: Ids
    most: int


class LeafTexts:
    """The texts of one vocabulary."""

    def __init__(self, store: WalkStore) -> None:
        self._store = store
        store.when_rotated.append(self._forget)
        # Objects for a leaf hold its automaton and are freed with the leaf.
        self._texts: weakref.WeakKeyDictionary[Leaf, TextWalks] = weakref.WeakKeyDictionary()
        self._cuts: weakref.WeakKeyDictionary[Utf8, tuple[dict[int, Cut], Ids]]
        self._cuts = weakref.WeakKeyDictionary()
        self._characters: dict[tuple[str, frozenset[int]], Characters] = {}
        self._last_run: tuple[tuple[Any, ...], list[tuple[int, int]]] | None
        self._last_run = None
        self._last: tuple[weakref.ref[TextWalks], int, list[tuple[int, int, Ids]]] | None = None

    def _forget(self) -> None:
        self._texts = weakref.WeakKeyDictionary()
        self._last = self._last_run = None

    @property
    def tables(self) -> int:
        """Bytes of the vocabulary's characters, in each encoding used so far."""
        return sum(characters.n_bytes for characters in list(self._characters.values()))

    def characters(self, encoding: Utf8) -> Characters:
        """Return the vocabulary's characters in ``encoding``."""
        spelling, barred = encoding.spelling, encoding.barred
        found = self._characters.get((spelling, barred))
        if found is None:
            arrays = CharacterArrays(
                self._store.trie,
                self._store.size,
                spelling,
                barred,
                self._character_arrays(spelling, barred),
                self._store.cache,
                self._store.charge,
            )
            found = self._characters[spelling, barred] = Characters(arrays)
        return found

    def _character_arrays(self, spelling: str, barred: frozenset[int]) -> character_arrays.Arrays:
        build = partial(character_arrays.build, self._store.trie, spelling, barred)
        vocabulary = self._store.vocabulary()
        if vocabulary is None:
            return build()
        name = "-".join(["characters", spelling, *(f"{byte:x}" for byte in sorted(barred))])
        if len(name) > _LONGEST_NAME:
            name = f"characters-{spelling}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return vocabulary.cached_arrays(name, character_arrays.VERSION, build)

    def of(self, leaf: Leaf) -> TextWalks:
        """Return the walks of the text of ``leaf``."""
        # Symbols of unshared leaves may refer back to the leaf: a table here would keep both alive
        # for ever.
        found: TextWalks | None
        found = self._texts.get(leaf) if leaf.is_shared else leaf.attached.get(self)
        if found is None:
            assert leaf.holds_text
            found = TextWalks(self.characters(leaf.encoding), leaf.symbols)
            if leaf.is_shared:
                self._texts[leaf] = found
            else:
                leaf.attached[self] = found
        return found

    def ends(self, leaf: Leaf, state: int) -> list[tuple[int, int, Ids]]:
        """Return `TextWalks.ends`. The last result is cached, because a mask with a token budget
        needs it twice."""
        walks, last = self.of(leaf), self._last
        if last is not None and last[0]() is walks and last[1] == state:
            return last[2]
        found = [*walks.ends(state, self._cuts_of(leaf.encoding)[1])]
        self._last = weakref.ref(walks), state, found
        return found

    def run_ends(
        self, leaf: Leaf, state: int, most: int, is_exact: bool = True
    ) -> list[tuple[int, int]]:
        """Return the leaf states in which tokens may end on a run, with their nodes of the
        encoding, as far as they matter for completions. If not ``is_exact``, replace those inside
        characters by those after them.

        One state represents all that may end at once and after any one more character.
        """
        assert leaf.holds_text
        symbols, encoding, walks = leaf.symbols, leaf.encoding, self.of(leaf)
        if most <= FRESH:
            runs = walks.fresh_runs(state, FRESH - most)
            return [end for at, count in runs for end in self.run_ends(leaf, at, count, is_exact)]
        if most < 0:
            states = walks.special_states(state, -1 - most)
            return [end for at in states for end in self.run_ends(leaf, at, 0, is_exact)]
        key = weakref.ref(walks), state, most, is_exact
        if self._last_run is not None and self._last_run[0] == key:
            return self._last_run[1]
        cuts = self.cuts(encoding)
        most_cut = max((cut.most for cut in cuts.values()), default=-1)
        chars, length = symbols.run(state)
        last = min(most, symbols.settled(state)) if length < 0 else most
        out: list[tuple[int, int]] = []
        states = walks.after_run(state, last)[: last + 1]
        may_end = [symbols.label(at) >= 0 for at in states]
        # With several outcomes, another one may be nearer.
        is_one = symbols.expression(state) is not None
        for count, at in enumerate(states):
            may_all_end = is_one and 0 < count < last and all(may_end[count - 1 : count + 2])
            if may_all_end and not walks.live(at) & ~chars:
                continue
            out.append((leaf.in_text(at), GROUND))
            if count > most_cut:
                continue
            if not is_exact:
                out += [(leaf.in_text(to), GROUND) for _, to in symbols.moves(at)]
            else:
                live = walks.live(at)
                out += [
                    (leaf.in_text(at, node), node)
                    for node, cut in cuts.items()
                    if count <= cut.most and encoding.reach(node) & live
                ]
        self._last_run = key, out
        return out

    def cuts(self, encoding: Utf8) -> dict[int, Cut]:
        """Map nodes of ``encoding`` to the tokens that end there, inside a character."""
        return self._cuts_of(encoding)[0]

    def _cuts_of(self, encoding: Utf8) -> tuple[dict[int, Cut], Ids]:
        """Return `cuts`; and by tail the node there, or `DEAD`."""
        found = self._cuts.get(encoding)
        if found is None:
            arrays = self.characters(encoding).arrays
            tails: dict[int, list[int]] = {}
            for which, tail in enumerate(arrays.tails):
                node = GROUND
                for byte in tail:
                    node = encoding.row(node).get(byte, -1)
                    if node < 0:
                        break
                else:
                    tails.setdefault(node, []).append(which)
            nodes = np.full(len(arrays.tails), DEAD, np.int32)
            found = self._cuts[encoding] = {}, nodes
            for node, alike in tails.items():
                nodes[alike] = node
                here = nodes[arrays.partial_tail] == node
                most = int(arrays.depth[arrays.partial_node[here]].max())
                found[0][node] = Cut(arrays.partial[here], most)
        return found

    def closing(self, encoding: Utf8) -> Ids:
        """Return the tokens that close a string, with any continuation."""
        arrays = self.characters(encoding).arrays
        quotes = arrays.quotes
        found: Ids = arrays.token_ids[ranges(arrays.token_start[quotes], arrays.token_end[quotes])]
        return found


class AfterQuotes:
    """The walks after closing quotes in one vocabulary."""

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
        """Return tokens that end directly after some quotes, and the node where others continue.

        ``which``: numbers of `Characters.quotes`, or a packed mask.
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
            ids = [token for node in nodes.tolist() for token in self._store.nodes.tokens_of(node)]
            continuing = np.sort(nodes[self._store.trie.n_children[nodes] > 0])
            node = self._store.nodes.of(continuing) if len(continuing) else None
            found = self._quoted[key] = (array("i", ids).tobytes(), node)
            self._store.charge(4 * len(ids) + 300)
        return found

    def walk(self, characters: Characters, which: bytes | tuple[int, ...], leaf: Leaf) -> LeafWalk:
        """Return the walk of ``leaf`` after some quotes, with the tokens that end there."""
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
        """Return the walk of any text followed by ``after``, without ``special`` quotes."""
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


_FEW_NAMES = 200
"""Up to this many names are looked up one by one, by the rest of each."""

ROOT_PLACE = 0

_Rest: TypeAlias = "tuple[Tokens, Node | None, tuple[End, ...] | None]"
"""For the rest of a name: the tokens that begin it, or continue after it in the leaf that follows;
the nodes where tokens leave that leaf; and their ends in it, or None if no token reaches the
closing quote. Without a leaf, the same for the quote alone."""


class StringWalks:
    """A vocabulary's walks of text."""

    def __init__(self, store: WalkStore, texts: LeafTexts, leaf_walk: LeafWalker) -> None:
        self._store = store
        self._texts = texts
        self._leaf_walk = leaf_walk
        self._quotes = AfterQuotes(store, leaf_walk)
        self._rows: GenerationalCache[tuple[CountedTokens, int], Bits] = store.cache()
        self._groups_at: GenerationalCache[tuple[Characters, int], tuple[bool, list[list[int]]]]
        self._groups_at = store.cache()
        # With the text as innermost key: the garbage collector ignores dicts whose keys are
        # strings.
        self._rests: GenerationalCache[
            tuple[Characters, Leaf | None], GenerationalCache[str, _Rest]
        ] = store.cache()
        self._before: GenerationalCache[tuple[Leaf, int, Node], tuple[LeafWalk, Node | None, bytes]]
        self._before = store.cache()

    def in_text(self, leaf: Leaf, state: int, node: Node, memo: WalkMemo) -> LeafWalk | None:
        """Return the walk of a text at ``state`` of its symbols; None if it may end anywhere."""
        if type(leaf) is TextLeaf:
            return None
        if node == ROOT:
            if type(leaf) is StringLeaf:
                return self._string_walk(leaf, self._texts.of(leaf), state, memo)
            rests = leaf.symbols.rests(state, _FEW_NAMES)
            if rests is not None:
                characters = self._texts.characters(leaf.encoding)
                if characters.arrays.is_canonical:
                    return self._walk_names(leaf, state, rests, characters)
        walks = self._texts.of(leaf)
        groups = self._places_at(walks.characters, node)
        if groups is None:
            return None
        found = WalkBuilder()
        for together in groups:
            self._walk_text(leaf, walks, state, together, found, memo)
        return self._store.finished(found)

    def _places_at(self, characters: Characters, node: Node) -> list[list[int]] | None:
        """Return the character nodes at ``node``, grouped by `apart`, without nodes in which tokens
        end; None if some of them are inside a character. Do not change the lists."""
        if not isinstance(node, NodeSet):
            place = characters.arrays.views.place[node]
            return None if place < 0 else [[place]]
        key = characters, node
        found = self._groups_at[key]
        if found is None:
            members = node.members
            places: list[int] = characters.arrays.place[
                members[self._store.trie.n_children[members] > 0]
            ].tolist()
            is_inside = bool(places) and min(places) < 0
            groups = apart(characters.arrays, places) if places and not is_inside else []
            found = self._groups_at[key] = is_inside, groups
            self._store.used += 50 * len(places) + 300
        return None if found[0] else found[1]

    def _string_walk(self, leaf: Leaf, walks: TextWalks, state: int, memo: WalkMemo) -> LeafWalk:
        """Return the walk from the root of a string whose text is at ``state``. Strings with equal
        rests share it."""
        closed = leaf.after_quote(0)
        content = walks.content(state)
        kept = None if content is None else walks.characters.strings[content]
        if kept is not None:
            row, ids, exits, is_closed = kept
            ends = (state, FRESH)
            return row, ids, exits, (ends, closed) if is_closed else (ends,)
        found = WalkBuilder()
        self._walk_text(leaf, walks, state, [ROOT_PLACE], found, memo)
        walk = self._store.finished(found)
        if content is not None:
            if len(walk[1]) > 4 * self._store.n_words:
                walk = self._store.with_row(walk)
            row, ids, exits, inner = walk
            walks.characters.strings[content] = row, ids, exits, closed in inner
            self._store.used += len(ids) + 300
        return walk

    def _walk_names(
        self, leaf: Leaf, state: int, rests: list[tuple[int, str]], characters: Characters
    ) -> LeafWalk:
        """Return the walk from the root of a few names, by their rests."""
        ids = bytearray()
        exits: list[tuple[int, Node]] = []
        ends: list[End] = [(state, -1 - ROOT_PLACE)]
        shared = leaf.after_text(rests[0][0])
        after = None if shared is None else shared[0]  # one for all names
        known = self._rests[characters, after]
        if known is None:
            known = self._rests[characters, after] = self._store.cache()
        for name, text in rests:
            found = known[text]
            if found is None:
                found = known[text] = self._rest(characters, after, text)
                self._store.used += len(found[0]) + len(text) + 300
            more, node, after_ends = found
            ids += more
            if after_ends is None:
                continue
            shared = leaf.after_text(name)
            if shared is not None:
                ends.append((AFTER, after_ends, name))
                outcome = shared[1]  # of this name alone
            else:
                to = leaf.after_quote(name)
                ends.append(to)
                outcome = leaf.label(to)
            if node is not None:
                exits.append((outcome, node))
        if after is None and exits:  # then the closing quote has the same effect for all names
            exits = [(exits[0][0], self._store.nodes.join([node for _, node in exits]))]
        return None, bytes(ids), tuple(exits), tuple(ends)

    def _rest(self, characters: Characters, after: Leaf | None, text: str) -> _Rest:
        """Return the facts that `_walk_names` needs about a name with the rest ``text``."""
        ids, quote = characters.spelt(text)
        if quote < 0:
            return ids, None, None
        node: Node | None = None
        ends: tuple[End, ...] = ()
        if after is None:
            more, node = self._quotes.behind(characters, (quote,))
        else:
            _, more, exits, ends = self._quotes.walk(characters, (quote,), after)
            if exits:
                ((_, node),) = exits
        return ids + more, node, ends

    def before_text(self, leaf: Leaf, q: int, node: Node, memo: WalkMemo) -> LeafWalk | None:
        """Return the walk of a text and of the part before it, if a shared leaf reads that part."""
        shared = leaf.before_text(q)
        if shared is None:
            return None
        before, at, start = shared
        key = before, at, node
        known = self._before[key]
        if known is None:
            known = self._before[key] = self._without_text(
                self._leaf_walk(before, at, node, self._store.walks)
            )
            self._store.used += 300
        walk, text, firsts = known
        row, ids, exits, inner = walk
        ends: tuple[End, ...] = ((BEFORE, inner, start),) if inner else ()
        if text is None:
            return row, ids, exits, ends
        assert start is not None
        names = leaf.symbols.names(start)
        if names is not None and self._texts.characters(leaf.encoding).arrays.is_canonical:
            edges, _, below, at, allowed = names
            for byte, longer in edges[at]:
                if byte in firsts and allowed & below[longer]:
                    break
            else:
                if not (0x22 in firsts and leaf.symbols.label(start) >= 0):
                    return row, ids, exits, ends  # the usual case
        found = WalkBuilder()
        found.include((row, ids, exits, ends))
        found.include(self._leaf_walk(leaf, leaf.in_text(start), text, memo))
        return self._store.finished(found)

    def behind_text(self, leaf: Leaf, q: int, node: Node) -> LeafWalk | None:
        """Return the walk of the part after a text, if a shared leaf reads that part."""
        shared = leaf.behind_text(q)
        if shared is None:
            return None
        after, at, label = shared
        row, ids, exits, inner = self._leaf_walk(after, at, node, self._store.walks)
        ends: tuple[End, ...] = ((AFTER, inner, label),) if inner else ()
        if exits:
            to = leaf.after_text(label)
            assert to is not None
            exits = tuple([(to[1], where) for _, where in exits])
        return row, ids, exits, ends

    def _without_text(self, walk: LeafWalk) -> tuple[LeafWalk, Node | None, bytes]:
        """Return a walk of the part before a text without its exit to the text; the exit, if there
        is one; and the bytes with which tokens continue."""
        row, ids, exits, ends = walk
        text: Node | None = None
        others: list[tuple[int, Node]] = []
        for outcome, node in exits:
            if outcome != 1:
                others.append((outcome, node))
            else:
                text = node
        firsts: Iterable[int] = ()
        nodes = self._store.nodes
        if isinstance(text, NodeSet):
            firsts = nodes.children(text)
        elif text is not None:
            first = nodes.first_child[text]
            firsts = nodes.byte[first : first + nodes.n_children[text]]
        return (row, ids, tuple(others), ends), text, bytes(firsts)

    def set_aside(self, leaf: Leaf, q: int, at: Node, texts: dict[int, list[int]]) -> bool:
        """Note ``(q, at)`` for a walk of text, if that is worthwhile."""
        if type(leaf) is TextLeaf:
            return False  # may end anywhere: exits are needed one by one
        state = leaf.text_state(q)
        groups = None
        if state is not None:
            groups = self._places_at(self._texts.of(leaf).characters, at)
        if state is None or groups is None:
            return False
        texts.setdefault(state, []).extend(place for group in groups for place in group)
        return True

    def walk_all(
        self, leaf: Leaf, texts: dict[int, list[int]], found: WalkBuilder, memo: WalkMemo
    ) -> None:
        """Add the walks that `_set_aside` has noted."""
        walks = self._texts.of(leaf)
        for state, places in texts.items():
            for together in apart(walks.characters.arrays, places):
                self._walk_text(leaf, walks, state, together, found, memo)

    def _walk_text(
        self,
        leaf: Leaf,
        walks: TextWalks,
        state: int,
        places: list[int],
        found: WalkBuilder,
        memo: WalkMemo,
    ) -> None:
        """Add the walk of a text from ``places``, and what follows its closing quotes."""
        free = walks.free_walk(state, places)
        if free is None:
            self._add_text(leaf, walks.walk(state, places), found, memo)
            return
        shared = leaf.after_text(free.usual)
        assert shared is not None, "only keys may be anything"
        after, _ = shared
        row, ids, exits, ends = self._quotes.free(walks.characters, free.whole, free.special, after)
        if row is not None:
            found.add_row(row)
        found.parts.append(ids)
        found.ends.update(dict.fromkeys(free.runs))
        self._follow(leaf, free.usual, ends, exits, found)
        for label, single in free.single.items():
            _, ids, exits, ends = self._quotes.walk(walks.characters, (*single,), after)
            found.parts.append(ids)
            self._follow(leaf, label, ends, exits, found)

    def _follow(
        self,
        leaf: Leaf,
        label: int,
        ends: tuple[End, ...],
        exits: tuple[tuple[int, Node], ...],
        found: WalkBuilder,
    ) -> None:
        """Add a walk of ``leaf.after_text(label)``."""
        shared = leaf.after_text(label)
        assert shared is not None
        if ends:
            found.ends[AFTER, ends, label] = None
        if exits:
            nodes = found.exits.setdefault(shared[1], [])
            nodes += [node for _, node in exits]

    def _add_text(
        self, leaf: Leaf, walk: TextWalk, found: WalkBuilder, memo: WalkMemo | None
    ) -> None:
        """Add a walk of text to the results, and what follows its closing quotes."""
        if walk.counted is not None:
            found.add_row(self._row(*walk.counted))
        if walk.row is not None:
            found.add_row(self._store.intern(walk.row))
        found.parts += [ids.tobytes() for ids in walk.ids]
        found.ends.update(dict.fromkeys(walk.runs))
        if memo is None or not (walk.quotes or walk.single):
            return
        characters = self._texts.characters(leaf.encoding)
        quotes: dict[int, bytes | tuple[int, ...]] = {}
        for label, mask in walk.quotes.items():
            if label in walk.single:
                mask[walk.single.pop(label)] = True
            if mask.any():
                quotes[label] = np.packbits(mask).tobytes()
        for label, single in walk.single.items():
            quotes[label] = (*sorted(single),)
        for label, which in quotes.items():
            shared = leaf.after_text(label)
            if shared is not None:
                _, ids, exits, ends = self._quotes.walk(characters, which, shared[0])
                found.parts.append(ids)
                self._follow(leaf, label, ends, exits, found)
                continue
            to = leaf.after_quote(label)
            ids, node = self._quotes.behind(characters, which)
            found.parts.append(ids)
            found.ends[to] = None
            if node is None:
                continue
            outcome = leaf.label(to)
            if outcome >= 0:
                found.exits.setdefault(outcome, []).append(node)
            if leaf.continues(to):
                rest = self._leaf_walk(leaf, to, node, memo)
                found.include(rest)

    def _row(self, tokens: CountedTokens, most: int) -> Bits:
        """Return the ``tokens`` of at most that many characters, as bits."""
        found = self._rows[tokens, most]
        if found is None:
            flags = tokens.flags(most, 32 * self._store.n_words)
            bits = np.packbits(flags, bitorder="little").view("<u4")
            found = self._rows[tokens, most] = self._store.intern(bits)
            self._store.charge(300)
        return found

    def last(self, leaf: Leaf, q: int) -> LeafWalk | None:
        """Return `leaf_walk` from the root of plain text with nothing after it, without exits.

        None if the ordinary walk is as good.
        """
        if type(leaf) is not TextLeaf:
            return None
        state = leaf.text_state(q)
        walks = self._texts.of(leaf)
        if state is None or (
            leaf.symbols.quoting(state) is None and walks.narrow(state) is not None
        ):
            return None
        found = WalkBuilder()
        self._add_text(leaf, walks.walk(state, [ROOT_PLACE]), found, None)
        return self._store.finished(found)
