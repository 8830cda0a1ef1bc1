"""The texts of leaves: a vocabulary's characters as an encoding spells them, and walks of a text.

`LeafTexts` keeps both for as long as they are of use, and tells where in a leaf the run of a text
may end. What stands around a text is not known here.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import NamedTuple

import numpy as np

from structgen.automaton.core import Leaf
from structgen.automaton.regex import GROUND, Utf8
from structgen.masks.grouping import ranges
from structgen.masks.walk_store import Ids, WalkStore

from . import character_nodes
from .character_arrays import CharacterArrays
from .characters import Characters
from .tables import ANEW
from .text_walks import TextWalks

_LONGEST_NAME = 80


class Cut(NamedTuple):
    """The tokens that end inside a character, at one node of an encoding.

    Attributes:
        ids: those that are text up to that character.
        most: the most characters before it.
    """

    ids: Ids
    most: int


class LeafTexts:
    """The texts of one vocabulary."""

    def __init__(self, store: WalkStore) -> None:
        self._store = store
        store.when_rotated(self._forget)
        # What is made for a leaf holds its automaton, and goes with the leaf.
        self._texts: weakref.WeakKeyDictionary[Leaf, TextWalks] = weakref.WeakKeyDictionary()
        self._cuts: weakref.WeakKeyDictionary[Utf8, dict[int, Cut]] = weakref.WeakKeyDictionary()
        self._characters: dict[tuple[str, frozenset[int]], Characters] = {}

    def _forget(self) -> None:
        self._texts = weakref.WeakKeyDictionary()

    @property
    def tables(self) -> int:
        """Bytes of the vocabulary's characters, in each spelling that was needed."""
        return sum(characters.n_bytes for characters in list(self._characters.values()))

    def characters(self, encoding: Utf8) -> Characters:
        """The vocabulary's characters as ``encoding`` spells them."""
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

    def _character_arrays(self, spelling: str, barred: frozenset[int]) -> character_nodes.Arrays:
        def build() -> character_nodes.Arrays:
            return character_nodes.build(self._store.trie, self._store.size, spelling, barred)

        vocabulary = self._store.vocabulary()
        if vocabulary is None:
            return build()
        name = "-".join(["characters", spelling, *(f"{byte:x}" for byte in sorted(barred))])
        if len(name) > _LONGEST_NAME:
            name = f"characters-{spelling}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return vocabulary.cached_arrays(name, character_nodes.VERSION, build)

    def of(self, leaf: Leaf) -> TextWalks:
        """The walks of the text of ``leaf``."""
        # Symbols of leaves that are not shared may lead back to the leaf: a table of ours would
        # hold both for ever.
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

    def run_ends(self, leaf: Leaf, state: int, most: int) -> list[tuple[int, int]]:
        """The leaf states in which tokens may end on a run: all that matter for completions; each
        with the node of the encoding that it stands at.

        States that may end right away, and after any one more character, are alike in that: one
        stands for all.
        """
        assert leaf.holds_text
        symbols, encoding = leaf.symbols, leaf.encoding
        if most <= ANEW:
            runs = self.of(leaf).runs_anew(state, ANEW - most)
            return [end for at, count in runs for end in self.run_ends(leaf, at, count)]
        if most < 0:
            states = self.of(leaf).special_states(state, -1 - most)
            return [end for at in states for end in self.run_ends(leaf, at, 0)]
        cuts = self.cuts(encoding)
        chars, length = symbols.run(state)
        last = min(most, symbols.settled(state)) if length < 0 else most
        out: list[tuple[int, int]] = []
        states = [symbols.after_run(state, count) for count in range(last + 1)]
        may_end = [symbols.label(at) >= 0 for at in states]
        # Where there are several outcomes, another one may be near.
        is_one = symbols.expression(state) is not None
        for count, at in enumerate(states):
            live = 0
            for mask, _ in symbols.moves(at):
                live |= mask
            may_all_end = is_one and 0 < count < last and all(may_end[count - 1 : count + 2])
            if may_all_end and not live & ~chars:
                continue
            out.append((leaf.in_text(at), GROUND))
            out += [
                (leaf.in_text(at, node), node)
                for node, cut in cuts.items()
                if count <= cut.most and encoding.reach(node) & live
            ]
        return out

    def cuts(self, encoding: Utf8) -> dict[int, Cut]:
        """The tokens that end inside a character, by the node of ``encoding`` that is there."""
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
            found = self._cuts[encoding] = {}
            for node, alike in tails.items():
                here = np.isin(arrays.partial_tail, alike)
                most = int(arrays.depth[arrays.partial_node[here]].max())
                found[node] = Cut(arrays.partial[here], most)
        return found

    def closing(self, encoding: Utf8) -> Ids:
        """The tokens that close a string, wherever they lead."""
        arrays = self.characters(encoding).arrays
        quotes = arrays.quotes
        found: Ids = arrays.token_ids[ranges(arrays.token_start[quotes], arrays.token_end[quotes])]
        return found
