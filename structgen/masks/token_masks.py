"""Compute a token mask: a machine state × the vocabulary's trie → packed bits.

`MaskEngine` combines walks of leaves with whole tokens (`leaf_walks`) and of the frames after them
(`frame_walks`). It caches masks that many states share for the vocabulary, and masks of states for
the constraint, all within the vocabulary's byte budget. A `Mask` is a shared row plus the few words
that differ from it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import GROW, Machine, NeedsText, TextHistory
from structgen.automaton.json import CLOSE, OpeningLeaf
from structgen.storage import Caches, GenerationalCache
from structgen.vocabulary import Vocabulary

from .frame_walks import FrameWalks
from .grouping import bits_of, words_of, words_of_few
from .leaf_walks import walker_of
from .named_tokens import NamedTokens
from .walk_store import ROOT, Bits, Tokens, WalkStore, ids_of

NO_BITS = np.array([], np.uint32)

_OFTEN = 6
"""A mask of this many states gets its own row."""

_FEW = 24
"""Up to this many tokens are converted to words one by one,"""

_SOME = 600
"""and up to this many by sorting."""

Mask: TypeAlias = "tuple[bytes | bytearray | memoryview, npt.NDArray[np.int64] | None, Bits]"
"""A mask: a row that many masks share, and the differences.

The row, uint32 [ceil(size / 32)], as bytes (an array would take twice as long to copy); the
positions of differing words, or None; and these words. A plain tuple: see `walk_store.WalkMemo`.
"""


def fill(mask: Mask, out: Bits) -> None:
    """Write ``mask`` into ``out``, uint32 [ceil(size / 32)]."""
    row, words, bits = mask
    out[:] = np.frombuffer(row, np.uint32)
    if words is not None:
        out[words] = bits


def packed(store: WalkStore, row: bytes | None, tokens: Tokens) -> Mask:
    """Return the bytes of a row, if any, and tokens as one mask."""
    ids = ids_of(tokens)
    if len(ids) <= _FEW:
        words, bits = words_of_few(ids.tolist())
    elif len(ids) <= _SOME:
        words, bits = words_of(ids)
    else:
        every = bits_of(ids, store.n_words)
        words = every.nonzero()[0]
        if row is not None or len(words) * 3 > store.n_words:
            if row is not None:
                every |= np.frombuffer(row, np.uint32)
            return store.packed(every), None, NO_BITS
        bits = every[words]
    if not len(words):
        return store.zeros if row is None else row, None, NO_BITS
    if row is None:
        return store.zeros, words, bits
    bits |= np.frombuffer(row, np.uint32)[words]
    return row, words, bits


def met_again(store: WalkStore, key: tuple[bytes | None, Tokens], mask: Mask) -> Mask:
    """Return ``mask``, with key ``key``, for another state; with its own row if it has had many
    states.

    Differing words are a quarter of the cost of filling a mask. One mask in twenty has eight
    states; these are four in five of all filled masks.
    """
    row, words, bits = mask
    times = (store.met[key] or 0) + 1
    if times < _OFTEN or words is None:
        store.met[key] = times
        return mask
    own = np.frombuffer(bytearray(row), np.uint32)
    own[words] = bits
    mask = store.masks[key] = own.tobytes(), None, NO_BITS
    store.used += own.nbytes
    return mask


class MaskEngine:
    """Masks of one machine over one vocabulary.

    Thread-safe: a mask that is not cached is computed under the automata's growth lock.

    Attributes:
        ready: the fields of recently used masks, by state. Read only.
    """

    def __init__(
        self, machine: Machine, vocabulary: Vocabulary, named: NamedTokens | None = None
    ) -> None:
        self.machine = machine
        self.vocabulary = vocabulary
        self.named = NamedTokens(vocabulary) if named is None else named
        self._walker = walker_of(vocabulary)
        self._store = self._walker.store
        self._by_text: set[int] = set()  # states whose masks depend on the text so far
        self._masks: GenerationalCache[int, Mask] = GenerationalCache()
        self.ready = self._masks

    # Not needed by masks that all schemas share.

    _is_noted = False

    @cached_property
    def _caches(self) -> Caches:
        """The caches of the constraint, also for walks of frames and of its own leaves."""
        return self._store.caches(self._masks, 4, self.machine)

    @cached_property
    def frames(self) -> FrameWalks:
        """The walks of frames, which follow leaves."""
        return FrameWalks(self.machine, self._walker, self._caches)

    @cached_property
    def _alike(self) -> GenerationalCache[tuple[Any, ...], Mask]:
        return self._caches[1]

    def mask(self, state: int, tape: Callable[[], TextHistory]) -> Mask:
        """Return the mask of ``state``. Cost: a dictionary look-up once computed; see `ready`.

        ``tape`` returns the text so far. It is called only if the mask depends on the text; such
        masks are computed each time.
        """
        machine = self.machine
        with GROW:
            found = self._masks[state]
            if found is not None:
                return found
            configurations = machine.configurations(state)
            is_accepting = state in machine.accepting
            if state not in self._by_text:
                try:
                    if state == machine.start:
                        found = self._opening(configurations)
                    if found is None and not self._is_noted:
                        self._is_noted = bool(self._caches)  # within the budget from here on
                    for leaf_id, _, _ in configurations if found is None else ():
                        leaf = machine.leaves[leaf_id]
                        if leaf.holds_text and leaf.symbols.has_expressions:
                            found = self._mask_of_alike(configurations, is_accepting)
                            break
                    if found is None:
                        found = self._put_together(configurations, is_accepting, None)
                except NeedsText:
                    self._by_text.add(state)
                else:
                    self._masks[state] = found
                    store = self._store
                    store.used += 100
                    if store.used > store.budget * 2 // 5:
                        store.charge(0)
                    return found
            return self._put_together(configurations, is_accepting, tape())

    def _mask_of_alike(
        self, configurations: list[tuple[int, int, int]], is_accepting: bool
    ) -> Mask:
        """Return the mask of ``configurations``, which several states may share."""
        configurations = self._alike_ones(configurations)
        key = is_accepting, *configurations
        found = self._alike[key]
        if found is None:
            found = self._alike[key] = self._put_together(configurations, is_accepting, None)
            self._store.used += 200
        return found

    def _opening(self, configurations: list[tuple[int, int, int]]) -> Mask | None:
        """Return the mask before the first brace of a document that is obviously an object; None
        for other documents, and if some token also contains part of a key."""
        leaves, store = self.machine.leaves, self._store
        for leaf_id, q, _ in configurations:
            leaf = leaves[leaf_id]
            if type(leaf) is not OpeningLeaf:
                break
            found = store.openings[leaf, q]
            if found is None:
                row, tokens, exits, _ = self._walker.leaf_walk(
                    *leaf.before_key(q), ROOT, store.walks
                )
                if any(outcome != CLOSE for outcome, _ in exits):
                    break  # nothing follows the end of the document
                bits = None if row is None else store.packed(row)
                found = store.openings[leaf, q] = packed(store, bits, tokens)
            return found
        return None

    def configurations(self, state: int) -> list[tuple[int, int, int]]:
        """Return the configurations of ``state``, or others with the same tokens and completions
        after them."""
        return self._alike_ones(self.machine.configurations(state))

    def _alike_ones(self, configurations: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        leaves, walker = self.machine.leaves, self._walker
        return [(leaf, walker.alike(leaves[leaf], q), below) for leaf, q, below in configurations]

    def _put_together(
        self,
        configurations: list[tuple[int, int, int]],
        is_accepting: bool,
        tape: TextHistory | None,
    ) -> Mask:
        tokens = bytearray()  # there may be thousands of configurations
        bits: Bits | None = None
        leaves, store, frames = self.machine.leaves, self._store, self.frames
        for leaf_id, q, continuation in configurations:
            leaf = leaves[leaf_id]
            row, more, exits, _ = frames.root_walk(leaf, q, continuation)
            tokens += more
            if row is not None:
                bits = row if bits is None else bits | row
            for outcome, node in exits:
                if tape is None:
                    for (more, _, _), _ in frames.walks_after(continuation, outcome, node):
                        tokens += more
                else:
                    is_string = leaf.text_state(q) is not None
                    walks = frames.walks_after_text(continuation, outcome, node, tape, is_string)
                    for more, _ in walks:
                        tokens += more
        if is_accepting:
            eos = [t for t in self.vocabulary.eos_token_ids if t < self.vocabulary.size]
            tokens += array("i", eos).tobytes()
        # On MaskBench, four in five were known already, from another schema or state.
        key = None if bits is None else store.packed(bits), bytes(tokens)
        mask = store.masks[key]
        if mask is None:
            mask = store.masks[key] = packed(store, *key)
            store.used += 300 + len(tokens) + 3 * mask[2].nbytes
        elif mask[1] is not None:
            mask = met_again(store, key, mask)
        return mask
